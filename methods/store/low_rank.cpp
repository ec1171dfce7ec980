// SPDX-License-Identifier: Apache-2.0
// Entries are kept as coordinates in the bases that a prepare stage wrote, keys before rotation;
// coded, if wanted, each group of heads' coordinates of an entry by themselves.
//
// Paper: Palu, arXiv:2407.21118. Needs nothing.
#include <string>

#include "methods/layouts/latent.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class LowRank final : public Store {
 public:
  explicit LowRank(const Params& params) : params_(params) {}

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    Latent layout(shape);
    Fill("key_bits", "key_axis", layout.keys);
    Fill("value_bits", "value_axis", layout.values);
    const int64_t recent = params_.Int("keep_recent");
    layout.seal_keys = SealWhole(layout.keys, recent);
    layout.seal_values = SealWhole(layout.values, recent);
    return PlanOf(std::move(layout), {.raw = shape.rotary_dim > 0});
  }

 private:
  // Codecs learn how many coordinates there are when the bases are known.
  void Fill(const char* bits, const char* axis, KvCodec& codec) const {
    if (params_.Int(bits) == 0) return;
    codec.kind = KvCodecKind::kAffine;
    codec.bits = static_cast<int>(params_.Int(bits));
    codec.symmetric = params_.Bool("symmetric");
    codec.axis = params_.Text(axis) == "channel" ? CodeAxis::kChannel : CodeAxis::kToken;
    const int64_t whole = codec.axis == CodeAxis::kChannel ? 64 : codec.dim;
    codec.group = params_.Int("group") == 0 ? whole : params_.Int("group");
  }

  Params params_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "low_rank",
    .paper = "arXiv:2407.21118",
    .summary = "coordinates in the bases that the prepare stage wrote",
    .departures = {"zero points of codes are f16 numbers, not whole steps"},
    .bytes = "ranks of a layer's groups * bytes of the cache's type, or * (bits / 8 + 4 / group); "
             "the bases once a model",
    .params = {IntParam("key_bits", 0, 0, 8, "1, 2, 3, 4 or 8; 0: uncoded"),
               IntParam("value_bits", 0, 0, 8, "the same of values"),
               ChoiceParam("key_axis", "token", {"token", "channel"},
                           "groups run over coordinates of an entry, or over entries of one"),
               ChoiceParam("value_axis", "token", {"token", "channel"}, "the same of values"),
               IntParam("group", 0, 0, 4096,
                        "numbers that share a scale; 0: an entry's in a group of heads, or 64 "
                        "entries"),
               BoolParam("symmetric", false, "no zero points"),
               IntParam("keep_recent", 0, 0, 1 << 20, "newest entries that stay uncoded")},
    .make = Make<LowRank>(),
});

}  // namespace
}  // namespace kvgauge
