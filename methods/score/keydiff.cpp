// SPDX-License-Identifier: Apache-2.0
// Entries whose keys point away from the mean direction score high.
//
// Paper: KeyDiff, arXiv:2504.15364. Needs nothing but keys, as attention sees them. With `span`
// every so many entries have a mean direction of their own, as under kvpress's ChunkPress.
#include <algorithm>

#include "methods/key_direction.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class KeyDiff final : public Scorer {
 public:
  explicit KeyDiff(const Params& params) : span_(params.Int("span")) {}

  bool any_time() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t n = view.lengths()[h], span = span_ == 0 ? n : span_;
      if (n == 0) continue;
      const Tensor keys = view.Keys(h);
      for (int64_t begin = 0; begin < n; begin += span) {
        const int64_t end = std::min(begin + span, n);
        AwayFromMean(view, keys.Slice(begin, end), out[h].Slice(begin, end));
      }
    }
  }

 private:
  int64_t span_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "keydiff",
    .paper = "arXiv:2504.15364",
    .summary = "entries whose keys point away from the mean direction",
    .departures = {"the whole prompt is scored at once; with compress_at chunk block by block, as "
                   "in the paper"},
    .params = {IntParam("span", 0, 0, 1 << 20,
                        "entries that share a mean direction; 0: all of a head")},
    .make = Make<KeyDiff>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
