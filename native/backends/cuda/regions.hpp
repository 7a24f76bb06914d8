#ifndef GLM_BACKENDS_CUDA_REGIONS_HPP
#define GLM_BACKENDS_CUDA_REGIONS_HPP

namespace glm::cuda {

enum Region {
  kPlacement,
  kPages,
  kEmbed,
  kQuantise,
  kSwigluQuantise,
  kReduceAddNormQuantise,
  kLinear,
  kNormRopeStore,
  kAttention,
  kRoute,
  kExperts,
  kLogits,
  kCountTokens,
  kSample,
  kNumRegions
};

}

#endif
