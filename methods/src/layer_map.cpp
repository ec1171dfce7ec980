// SPDX-License-Identifier: Apache-2.0
#include "methods/layer_map.h"

#include <numeric>

#include "core/strings.h"

namespace kvgauge {

LayerMap OwnCaches(int64_t layers) {
  LayerMap map(static_cast<size_t>(layers));
  std::iota(map.begin(), map.end(), int64_t{0});
  return map;
}

void Share(LayerMap& map, int64_t upper, int64_t lower) {
  const int64_t owner = map[static_cast<size_t>(lower)];
  for (int64_t& read : map) {
    if (read == upper) read = owner;
  }
}

Status CheckLayerMap(const LayerMap& map, const ModelShape& shape) {
  if (shape.latent_dim > 0) {
    return BadInput("shares caches between layers, and those of this model hold latents");
  }
  if (shape.state_bytes > 0) {
    return BadInput(
        "shares caches between layers, and layers between those of this model keep a "
        "state of constant size instead");
  }
  if (shape.shared_caches) {
    return BadInput("shares caches between layers, and layers of this model do so already");
  }
  if (std::ssize(map) != shape.layers) {
    return BadInput(
        StrCat("says whose cache ", map.size(), " layers read; this model has ", shape.layers));
  }
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const int64_t owner = map[static_cast<size_t>(layer)];
    const std::string what = StrCat("layer ", layer, " reads the cache of layer ", owner);
    if (owner < 0 || owner > layer) {
      return BadInput(StrCat(what, "; expected its own, or that of an earlier layer"));
    }
    if (map[static_cast<size_t>(owner)] != owner) {
      return BadInput(StrCat(what, ", which has none; expected a layer that reads its own"));
    }
    if (shape.windows[static_cast<size_t>(layer)] == shape.windows[static_cast<size_t>(owner)]) {
      continue;
    }
    return BadInput(StrCat(what, ", which sees another window; expected layers of one kind"));
  }
  return {};
}

ModelShape ShapeWithMap(const LayerMap& map, const ModelShape& shape) {
  ModelShape after = shape;
  after.windows.clear();
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    if (map[static_cast<size_t>(layer)] == layer) {
      after.windows.push_back(shape.windows[static_cast<size_t>(layer)]);
    }
  }
  after.layers = std::ssize(after.windows);
  after.shared_caches = after.layers < shape.layers;
  return after;
}

}  // namespace kvgauge
