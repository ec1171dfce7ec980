// SPDX-License-Identifier: Apache-2.0
#include "runner/layer_division.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "core/strings.h"
#include "src/cache/layer_layout.h"

namespace kvgauge {

namespace {

// What a device of so many has with a range of layers.
LayerShare ShareOf(const LayerCosts& costs, std::span<const int64_t> free_bytes, size_t device,
                   int64_t first, int64_t end) {
  const bool begins = device == 0, ends = device + 1 == free_bytes.size();
  LayerShare share = {
      .first = first,
      .end = end,
      .weight_bytes = (begins ? costs.first_bytes : 0) + (ends ? costs.last_bytes : 0),
      .tower_bytes = begins ? costs.tower_bytes : 0,
      .free_bytes = free_bytes[device]};
  for (int64_t layer = first; layer < end; ++layer) {
    share.weight_bytes += costs.weight_bytes[static_cast<size_t>(layer)];
  }
  return share;
}

// With room for the tower, if there is one.
Result<std::vector<LayerShare>> DivideWithTower(const LayerCosts& costs,
                                                std::span<const int64_t> free_bytes) {
  const int64_t layers = std::ssize(costs.weight_bytes), devices = std::ssize(free_bytes);
  if (devices > layers) {
    return BadInput(
        StrCat(devices, " devices for a model of ", layers, " layers: each takes one at least"));
  }
  const auto share_of = [&](int64_t device, int64_t first, int64_t end) {
    return ShareOf(costs, free_bytes, static_cast<size_t>(device), first, end);
  };
  // What a device has left for the cache of each of its layers.
  const auto room_of = [&](int64_t device, int64_t first, int64_t end) {
    const LayerShare share = share_of(device, first, end);
    const int64_t caches =
        std::count(costs.caches.begin() + first, costs.caches.begin() + end, true);
    const int64_t left = share.left_bytes();
    return left < 0 ? left : left / std::max<int64_t>(caches, 1);
  };
  // best[d][end]: the least room where the first d + 1 devices have the layers before `end`.
  struct Choice {
    int64_t room = std::numeric_limits<int64_t>::min();
    int64_t first = 0;
  };
  std::vector<std::vector<Choice>> best(static_cast<size_t>(devices),
                                        std::vector<Choice>(static_cast<size_t>(layers) + 1));
  for (int64_t device = 0; device < devices; ++device) {
    std::vector<Choice>& own = best[static_cast<size_t>(device)];
    const int64_t last_end = layers - (devices - 1 - device);
    for (int64_t end = device + 1; end <= last_end; ++end) {
      Choice& choice = own[static_cast<size_t>(end)];
      const int64_t least_first = device == 0 ? 0 : device, most_first = device == 0 ? 0 : end - 1;
      for (int64_t first = least_first; first <= most_first; ++first) {
        int64_t room = room_of(device, first, end);
        if (device > 0) {
          room = std::min(room,
                          best[static_cast<size_t>(device) - 1][static_cast<size_t>(first)].room);
        }
        if (room > choice.room) choice = {room, first};
      }
    }
  }
  std::vector<LayerShare> shares(static_cast<size_t>(devices));
  int64_t end = layers;
  for (int64_t device = devices - 1; device >= 0; --device) {
    const int64_t first = best[static_cast<size_t>(device)][static_cast<size_t>(end)].first;
    shares[static_cast<size_t>(device)] = share_of(device, first, end);
    end = first;
  }
  if (best.back()[static_cast<size_t>(layers)].room >= 0) return shares;
  std::vector<std::string> texts;
  for (const LayerShare& share : shares) {
    texts.push_back(StrCat(HumanBytes(share.weight_bytes), " of weights where ",
                           HumanBytes(share.free_bytes), " are free"));
  }
  return ResourceError(
      StrCat("the weights fit on these devices in no division of the layers; the "
             "best one has ",
             Join(texts, ", ")));
}

}  // namespace

Result<std::vector<LayerShare>> DivideLayers(const LayerCosts& costs,
                                             std::span<const int64_t> free_bytes) {
  Result<std::vector<LayerShare>> shares = DivideWithTower(costs, free_bytes);
  if (shares.ok() || costs.tower_bytes == 0) return shares;
  LayerCosts text = costs;
  text.tower_bytes = 0;
  return DivideWithTower(text, free_bytes);
}

std::optional<std::vector<LayerShare>> Follow(std::span<const LayerShare> decided,
                                              const LayerCosts& costs,
                                              std::span<const int64_t> free_bytes) {
  if (decided.size() != free_bytes.size()) return std::nullopt;
  if (decided.back().end != std::ssize(costs.weight_bytes)) return std::nullopt;
  LayerCosts own = costs;
  own.tower_bytes = decided[0].tower_bytes;
  std::vector<LayerShare> shares;
  for (size_t device = 0; device < decided.size(); ++device) {
    shares.push_back(ShareOf(own, free_bytes, device, decided[device].first, decided[device].end));
    if (shares.back().left_bytes() < 0) return std::nullopt;
  }
  return shares;
}

bool SameLayers(std::span<const LayerShare> a, std::span<const LayerShare> b) {
  return std::ranges::equal(a, b, {}, &LayerShare::end, &LayerShare::end);
}

Result<std::vector<LayerShare>> ShareLayers(const ModelConfig& config, const LayerCosts& costs,
                                            std::span<Ops* const> devices,
                                            std::span<const LayerShare> decided) {
  if (devices.size() == 1) return std::vector{LayerShare{.end = config.layer_count()}};
  KVG_TRY(CheckLayered(config));
  std::vector<int64_t> free_bytes;
  for (const Ops* ops : devices) free_bytes.push_back(ops->memory->FreeBytes());
  if (std::optional<std::vector<LayerShare>> kept = Follow(decided, costs, free_bytes)) {
    return *std::move(kept);
  }
  Result<std::vector<LayerShare>> shares = DivideLayers(costs, free_bytes);
  if (!shares.ok()) return shares.error().Wrap(config.path);
  return shares;
}

std::string Describe(const LayerShare& share) {
  const std::string tower =
      share.tower_bytes > 0 ? StrCat(HumanBytes(share.tower_bytes), " for the vision tower, ") : "";
  return StrCat("layers ", share.first, " to ", share.end - 1, ", ", HumanBytes(share.weight_bytes),
                " of weights, ", tower, HumanBytes(std::max<int64_t>(share.left_bytes(), 0)),
                " free for caches and work");
}

namespace {

// Why such a model's layers cannot be divided; empty: they can.
std::string WhyWhole(const ModelConfig& config) {
  if (config.SharesCaches()) return "layers read each other's caches";
  if (config.state) return "layers keep states of constant size";
  if (config.blocks) return "one decoder reads blocks and the other one their tokens";
  if (!config.HasEvenHeads()) return "its layers have heads of several sizes";
  if (config.means) return "rows join entries, with states for each layer's";
  return {};
}

// The same of a method: what its stages do. `layers`: that have a cache.
std::string WhyWhole(const Method& method, int64_t layers, const ModelShape& shape) {
  const Pipeline pipeline = MakePipeline(method);
  const Needs needs = method.needs();
  if (pipeline.see != nullptr) return "reduces pictures";
  if (pipeline.attend != nullptr) return "computes a prefill's attention itself";
  if (pipeline.reuse != nullptr) return "puts prompts together of caches";
  if (pipeline.thin != nullptr) return "lets rows go between layers";
  if (pipeline.prepare != nullptr && pipeline.prepare->writes_bases()) {
    return "holds bases of all layers' caches";
  }
  if (pipeline.score != nullptr &&
      (pipeline.score->ProbeRows(1) > 0 || pipeline.score->DraftRows() > 0)) {
    return "runs the model to score a prompt";
  }
  if (pipeline.read != nullptr && pipeline.read->shares_choices()) {
    return "reads layers by the choices of others";
  }
  if (needs.guessed_queries) return "guesses queries with the weights of the layer behind";
  if (!needs.last_row_of.empty()) return "shows layers the attention of another";
  if (needs.surprise) return "weighs tokens by the logits behind the last layer";
  if (!needs.gates.empty() || !needs.step_gates.empty()) {
    return "has trained gates for all layers at once";
  }
  for (int64_t layer = 0; layer < layers && pipeline.store != nullptr; ++layer) {
    const Result<StorePlan> plan = pipeline.store->Plan(shape, layer);
    if (!plan.ok() || plan->IsPlain()) continue;
    const std::unique_ptr<LayerLayout> layout = MakeLayerLayout(plan->layout->id());
    if (layout != nullptr && layout->layers_below(*plan->layout) > 0) {
      return "stores several layers together";
    }
  }
  return {};
}

}  // namespace

Status CheckLayered(const ModelConfig& config) {
  const std::string why = WhyWhole(config);
  if (why.empty()) return {};
  return Unsupported(StrCat(config.path, ": ", config.family,
                            " cannot have its layers on several devices: ", why,
                            "; use one device, or run --devices for a worker on each"));
}

Status CheckLayered(const Method& method, int64_t layers, const ModelShape& shape) {
  const std::string why = WhyWhole(method, layers, shape);
  if (why.empty()) return {};
  return Unsupported(StrCat("method ", method.id, " ", why,
                            ", which has not been taken over several devices; use one device"));
}

}  // namespace kvgauge
