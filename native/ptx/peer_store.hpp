#ifndef GLM_PTX_PEER_STORE_HPP
#define GLM_PTX_PEER_STORE_HPP

#include <cstdint>

namespace glm::ptx {

__device__ inline void put_at_peer(uint32_t address, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value)
               : "memory");
}

}

#endif
