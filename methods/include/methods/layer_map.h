// SPDX-License-Identifier: Apache-2.0
// Layers that attend to the keys and values of other layers, as stages choose them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "methods/model_shape.h"

namespace kvgauge {

// The layer whose cache each layer reads: itself, or one below it that reads its own.
using LayerMap = std::vector<int64_t>;

LayerMap OwnCaches(int64_t layers);

// Layer `upper` reads the cache of `lower`, and so do those that read that of `upper`; where
// `lower` has none, all of them read the one that it reads. Precondition: lower < upper.
void Share(LayerMap& map, int64_t upper, int64_t lower);

// An error that names the layer if the map is none of that model, or its layers share a cache
// already.
Status CheckLayerMap(const LayerMap& map, const ModelShape& shape);

// The shape of the model whose layers read so. Precondition: CheckLayerMap.
ModelShape ShapeWithMap(const LayerMap& map, const ModelShape& shape);

}  // namespace kvgauge
