// SPDX-License-Identifier: Apache-2.0
// Bits that sink while the cache grows: all entries of a head have as many as a fixed memory
// allows.
//
// Paper: PM-KVQ, arXiv:2505.18610. Needs nothing. A head has memory for `capacity` uncoded entries.
// Up to so many stay uncoded; then all of them have 8 bits, from twice as many on 4, and from four
// times as many on 2. The first `sinks` stay as they are, and so do new ones until `wait` of them
// are there. Codes with the range of the codes before are what a shift of those would be.
#include <algorithm>
#include <iterator>

#include "methods/layouts/classes.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr int kSinkingBits[] = {0, 8, 4, 2};  // of a class; 0: uncoded

class Progressive final : public Store {
 public:
  explicit Progressive(const Params& params)
      : capacity_(params.Int("capacity")),
        sinks_(params.Int("sinks")),
        wait_(params.Int("wait")),
        group_(params.Int("group")) {}

  bool classifies() const override { return true; }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    Classes layout;
    for (const int bits : kSinkingBits) {
      Classes::Class one;
      Fill(shape.key_dim, bits, shape.cache_dtype, KvSide::kKeys, one.keys);
      Fill(shape.value_dim, bits, shape.cache_dtype, KvSide::kValues, one.values);
      one.share = 1.0 / std::size(kSinkingBits);  // how long a head becomes is unknown
      layout.classes.push_back(one);
    }
    layout.waiting = wait_;
    return PlanOf(std::move(layout));
  }

  void Classify(LayerView& view, const ClassInput&, Tensor classes) const override {
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      const int64_t first = std::min(sinks_, length);
      if (length == 0) continue;
      int32_t of = 0;
      while (of < 3 && length > capacity_ << of) ++of;
      const Tensor row = classes[h].Slice(0, length);
      view.ops().memory->Copy(Numbers(view, length, of, 0), row);
      // They stand first in every order: of the prompt, and of the class of what is uncoded.
      if (first > 0) view.ops().memory->Copy(Numbers(view, first, 0, 0), row.Slice(0, first));
    }
  }

 private:
  void Fill(int64_t dim, int bits, DType dtype, KvSide side, KvCodec& codec) const {
    codec.side = side;
    codec.dim = dim;
    codec.dtype = dtype;
    if (bits == 0) return;
    codec.kind = KvCodecKind::kAffine;
    codec.bits = bits;
    codec.group = std::min(group_, dim);
  }

  int64_t capacity_, sinks_, wait_, group_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "progressive",
    .paper = "arXiv:2505.18610",
    .summary = "16, 8, 4, then 2 bits for all entries of a head, as the cache grows",
    .departures = {"memory is counted in entries, the same for all layers; the paper gives more to "
                   "layers whose error a gradient finds dear",
                   "keys are not divided by scales that calibration texts were searched for",
                   "codes of fewer bits are made of what the codes before stand for, whose range "
                   "they keep; the paper shifts them, which is the same but for ties",
                   "the first 16 bits are entries as they are, not integers, and attention of the "
                   "prompt reads those"},
    .bytes = "for each side dim * (bits / 8 + 4 / group) an entry, of 16 bits dim * 2",
    .params = {IntParam("capacity", 256, 1, 1 << 30,
                        "uncoded entries that a head has memory for; half the bits from there on, "
                        "and again at twice and four times as many"),
               IntParam("sinks", 1, 0, 4096, "first entries that stay uncoded"),
               IntParam("wait", 128, 1, 1 << 20, "new entries that are coded at a time"),
               IntParam("group", 128, 1, 4096, "numbers that share a scale; at most an entry")},
    .make = Make<Progressive>(),
});

}  // namespace
}  // namespace kvgauge
