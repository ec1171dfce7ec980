// SPDX-License-Identifier: Apache-2.0
// How the layers of a model are divided over devices, and what cannot be divided.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "methods/method.h"
#include "runner/config.h"
#include "runner/weights.h"

namespace kvgauge {

// What the layers of a model take, for dividing them.
struct LayerCosts {
  std::vector<int64_t> weight_bytes;        // [layers]
  std::vector<bool> caches;                 // [layers] whether it has a cache
  int64_t first_bytes = 0, last_bytes = 0;  // before the first layer, behind the last
  // The vision tower lies with the first layer (VisionWeightBytes); 0: there is none.
  int64_t tower_bytes = 0;
};
// `keeps`: as PlannedWeightBytes has it. `source` null: `stored` is the type of tables.
LayerCosts CostsOfLayers(const ModelConfig& config, DType dtype, const WeightSource* source,
                         const Ops* keeps);

// The device, and the layers that lie there.
struct LayerShare {
  int64_t first = 0, end = 0;  // of layers
  int64_t weight_bytes = 0;    // what is before the first layer or behind the last included
  int64_t tower_bytes = 0;     // what is kept for the vision tower
  int64_t free_bytes = 0;      // before there are weights

  // Below 0: the weights do not fit.
  int64_t left_bytes() const { return free_bytes - weight_bytes - tower_bytes; }
};
// Divides layers over devices with so much free memory, in this order: each has one at least, and
// the least that any device has left for the cache of one of its layers is as much as can be. An
// error says what each would need. A tower that fits beside the layers in no division is left out:
// a text needs none, and the plan of a run with pictures counts it again.
Result<std::vector<LayerShare>> DivideLayers(const LayerCosts& costs,
                                             std::span<const int64_t> free_bytes);
// A division that was decided before, with what is free now. None where it fits no more, or is of
// another model or other devices.
std::optional<std::vector<LayerShare>> Follow(std::span<const LayerShare> decided,
                                              const LayerCosts& costs,
                                              std::span<const int64_t> free_bytes);
// Whether every device has the same layers in both.
bool SameLayers(std::span<const LayerShare> a, std::span<const LayerShare> b);
// The division for a model on these devices: the one that was decided, where it still fits, or one
// by what they have free now. One device has all layers.
Result<std::vector<LayerShare>> ShareLayers(const ModelConfig& config, const LayerCosts& costs,
                                            std::span<Ops* const> devices,
                                            std::span<const LayerShare> decided = {});
// "layers 0 to 15, 7.5 GiB of weights, 1.2 GiB for the vision tower, 64.1 GiB free for caches and
// work"
std::string Describe(const LayerShare& share);

// Why a model's layers cannot lie on several devices.
Status CheckLayered(const ModelConfig& config);
// Why a method cannot work on such a model: its stages look at several layers in a way that has
// not been taken over devices.
Status CheckLayered(const Method& method, int64_t layers, const ModelShape& shape);

}  // namespace kvgauge
