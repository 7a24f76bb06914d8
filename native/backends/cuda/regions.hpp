#pragma once

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
