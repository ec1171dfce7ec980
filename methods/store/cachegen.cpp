// SPDX-License-Identifier: Apache-2.0
// Entries that went through a coder for transport and came back.
//
// Paper: CacheGen, arXiv:2310.07240, as its authors released it. Needs nothing. The heads of a
// layer share the largest magnitude of a token; the first layers have more bins. A saved cache
// holds the codes, coded by entropy with shares for each channel of 256 tokens.
#include <utility>

#include "core/strings.h"
#include "methods/layouts/transported.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class CacheGen final : public Store {
 public:
  explicit CacheGen(const Params& params)
      : first_key_layers_(params.Int("first_key_layers")),
        first_key_bins_(params.Int("first_key_bins")),
        key_bins_(params.Int("key_bins")),
        first_value_layers_(params.Int("first_value_layers")),
        first_value_bins_(params.Int("first_value_bins")),
        value_bins_(params.Int("value_bins")) {}

  // Bins of layers that this model does not have are checked, too.
  Status Check(const ModelShape&) const override {
    for (const auto& [name, bins] :
         {std::pair{"first_key_bins", first_key_bins_}, std::pair{"key_bins", key_bins_},
          std::pair{"first_value_bins", first_value_bins_}, std::pair{"value_bins", value_bins_}}) {
      if (bins % 2 != 0) return BadInput(StrCat(name, " ", bins, ": must be even"));
    }
    return {};
  }

  Result<StorePlan> Plan(const ModelShape&, int64_t layer) const override {
    Transported layout;
    layout.key_bins = layer < first_key_layers_ ? first_key_bins_ : key_bins_;
    layout.value_bins = layer < first_value_layers_ ? first_value_bins_ : value_bins_;
    return PlanOf(std::move(layout));
  }

 private:
  int64_t first_key_layers_, first_key_bins_, key_bins_;
  int64_t first_value_layers_, first_value_bins_, value_bins_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "cachegen",
    .paper = "arXiv:2310.07240",
    .summary = "rounded to few steps a token, small in a saved cache and whole in memory",
    .departures = {"no differences from anchor tokens, which the released coder leaves out, too",
                   "rANS with shares of 4096 for each channel of 256 tokens, in place of an "
                   "arithmetic coder with 65,536",
                   "shares are stored packed by entropy with the rest of the file",
                   "tokens after the prompt are as they are"},
    .bytes = "those of plain entries; in a saved cache the entropy of the codes, their shares, and "
             "4 bytes for each side of a token",
    .params = {IntParam("first_key_layers", 10, 0, 1024, "layers with the first number of bins"),
               IntParam("first_key_bins", 32, 4, 256, "bins of keys in the first layers; even"),
               IntParam("key_bins", 16, 4, 256, "bins of keys in the others; even"),
               IntParam("first_value_layers", 2, 0, 1024, "layers with the first number of bins"),
               IntParam("first_value_bins", 32, 4, 256, "bins of values in the first layers; even"),
               IntParam("value_bins", 16, 4, 256, "bins of values in the others; even")},
    .make = Make<CacheGen>(),
});

}  // namespace
}  // namespace kvgauge
