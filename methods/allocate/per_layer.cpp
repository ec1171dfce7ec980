// SPDX-License-Identifier: Apache-2.0
// Layers hold what they are told to, as shares of the budget.
//
// No paper of its own; kvpress's PerLayerCompressionPress. Needs nothing. `shares` are numbers, one
// for each layer; other counts stand for evenly spaced depths, and the layers between lie on the
// lines between them.
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/split_by_weight.h"

namespace kvgauge {
namespace {

// Not negative, finite, at least one above 0; otherwise an error.
Result<std::vector<double>> ParseShares(const std::string& text) {
  std::vector<double> shares;
  for (const std::string& part : Split(text, ',')) {
    const std::string number(Trim(part));
    char* end = nullptr;
    const double share = std::strtod(number.c_str(), &end);
    if (number.empty() || *end != '\0' || !std::isfinite(share) || share < 0) {
      return BadInput(StrCat("shares ", Quoted(text), ": ", Quoted(number),
                             " is no number of at least 0; write one for each layer, such as "
                             "\"2,1.5,1,0.5\""));
    }
    shares.push_back(share);
  }
  if (*std::max_element(shares.begin(), shares.end()) == 0) {
    return BadInput(
        StrCat("shares ", Quoted(text), " are all 0; at least one layer needs a share"));
  }
  return shares;
}

class PerLayer final : public Allocator {
 public:
  explicit PerLayer(const Params& params) : text_(params.Text("shares")) {}

  Status Check(const ModelShape& shape) const override {
    KVG_ASSIGN(const std::vector<double> shares, ParseShares(text_));
    if (std::ssize(shares) <= shape.layers) return {};
    return BadInput(StrCat("shares ", Quoted(text_), " are ", shares.size(), " numbers for ",
                           shape.layers, " layers; leave out ", std::ssize(shares) - shape.layers));
  }

  bool takes_chunks() const override { return true; }
  bool evens_heads() const override { return true; }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    KVG_ASSIGN(const std::vector<double> shares, ParseShares(text_));
    const int64_t layers = input.shape->layers, kept = input.protected_entries;
    const int64_t mean = std::min(input.per_head, input.length);
    std::vector<double> weights;
    for (int64_t l = 0; l < layers; ++l) weights.push_back(At(shares, l, layers));
    Allocation allocation;
    for (const int64_t entries : SplitByWeight(weights, layers * mean, kept, input.length)) {
      allocation.emplace_back(static_cast<size_t>(input.shape->kv_heads), entries);
    }
    return allocation;
  }

 private:
  static double At(const std::vector<double>& shares, int64_t layer, int64_t layers) {
    if (shares.size() == 1 || layers == 1) return shares.front();
    const double at = static_cast<double>(layer) * static_cast<double>(shares.size() - 1) /
                      static_cast<double>(layers - 1);
    const auto below = std::min(static_cast<size_t>(at), shares.size() - 2);
    const double above = at - static_cast<double>(below);
    return shares[below] * (1 - above) + shares[below + 1] * above;
  }

  std::string text_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "per_layer",
    .summary = "layers hold the shares of the budget that they are given",
    .departures = {"shares divide a budget, where kvpress has a ratio for each layer"},
    .params = {ChoiceParam(
        "shares", "1.5,0.5", {},
        "numbers for the layers, or for evenly spaced depths, parted by commas")},
    .make = Make<PerLayer>(),
});

}  // namespace
}  // namespace kvgauge
