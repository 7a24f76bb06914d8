#ifndef GLM_BASE_HOST_DEVICE_HPP
#define GLM_BASE_HOST_DEVICE_HPP

#ifdef __CUDACC__
#define GLM_HOST_DEVICE __host__ __device__
#else
#define GLM_HOST_DEVICE
#endif

#endif
