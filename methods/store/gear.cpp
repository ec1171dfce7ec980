// SPDX-License-Identifier: Apache-2.0
// Low-bit codes, with the largest numbers kept apart and a low-rank correction of what remains.
//
// Paper: GEAR, arXiv:2403.05527. Needs nothing. The prompt's whole chunks are coded at once, later
// entries `chunk` at a time, with a correction of another rank. Group 0 is KCVT: keys have one
// range for each channel of all that is coded at once, values one for each entry.
#include <algorithm>

#include "core/strings.h"
#include "kernels/attention.h"
#include "methods/layouts/coded.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class Gear final : public Store {
 public:
  explicit Gear(const Params& params)
      : bits_(params.Int("bits")),
        group_(params.Int("group")),
        rank_(params.Int("rank")),
        later_rank_(std::min(rank_, params.Int("later_rank"))),
        chunk_(params.Int("chunk")),
        outliers_(params.Real("outliers")) {}

  Status Check(const ModelShape& shape) const override {
    const bool pages = group_ % kPage == 0;
    if (!pages && group_ != 16 && group_ != 32) {
      return BadInput(StrCat("group ", group_, " must be 16, 32 or a multiple of ", kPage));
    }
    const bool side_cars = outliers_ > 0 || later_rank_ > 0;
    if (chunk_ % kPage != 0 && (side_cars || (chunk_ != 16 && chunk_ != 32))) {
      return BadInput(
          StrCat("chunk ", chunk_, " must be a multiple of ", kPage,
                 side_cars ? ", as outliers and corrections are of whole pages" : ", or 16 or 32"));
    }
    if (group_ > 0 && chunk_ % group_ != 0) {
      return BadInput(StrCat("chunk ", chunk_, " must be a multiple of the group, ", group_));
    }
    const int64_t dim = std::min(shape.key_dim, shape.value_dim);
    if (rank_ <= dim) return {};
    return BadInput(StrCat("rank ", rank_, " is above the ", dim, " dims of an entry"));
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    Coded layout(shape);
    const int64_t unit = std::max(chunk_, kPage);
    Fill(shape, rank_, unit, layout.keys, layout.values);
    layout.seal_keys = layout.seal_values = {.unit = unit, .keep_recent = 0};
    if (later_rank_ == rank_ && unit == chunk_) return PlanOf(std::move(layout));
    LaterCodes later = {layout.keys, layout.values, {}, {}};
    Fill(shape, later_rank_, chunk_, later.keys, later.values);
    later.seal_keys = later.seal_values = {.unit = chunk_, .keep_recent = 0};
    layout.later = later;
    return PlanOf(std::move(layout));
  }

 private:
  static constexpr int64_t kPage = kKvPageEntries;

  // The codecs of entries that are coded `unit` at a time.
  void Fill(const ModelShape& shape, int64_t rank, int64_t unit, KvCodec& keys,
            KvCodec& values) const {
    for (KvCodec* codec : {&keys, &values}) {
      codec->kind = KvCodecKind::kAffine;
      codec->bits = static_cast<int>(bits_);
      codec->outlier_share = outliers_;
      codec->rank = rank;
    }
    keys.axis = CodeAxis::kChannel;
    keys.group = std::min(group_ == 0 ? unit : group_, kPage);
    keys.range_pages = keys.group < kPage ? 1 : group_ / kPage;
    values.group = group_ == 0 ? shape.value_dim : std::min(group_, shape.value_dim);
  }

  int64_t bits_, group_, rank_, later_rank_, chunk_;
  double outliers_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "gear",
    .version = 2,
    .paper = "arXiv:2403.05527",
    .summary = "n-bit codes, sparse outliers, and a low-rank correction of the error",
    .departures = {"outliers are a share of the entries they are taken from, 64 of them for keys",
                   "the scales of a group of more than 64 entries stand in each page of 64",
                   "KCVT: a value's scale is of one head, where the reference's is of all heads of "
                   "a token; its chunks of 20 entries are 16 or 32 here, which divide a page"},
    .bytes =
        "(key_dim + value_dim) * (bits / 8 + 4 / group + 4 * outliers), where a group is at "
        "most 64 entries of keys, and 2 * rank * (entries + dim) for each side and coded chunk",
    .params = {IntParam("bits", 2, 1, 8, "bits of a code: 1, 2, 3, 4 or 8"),
               IntParam("group", 64, 0, 4096,
                        "numbers that share a scale: 16, 32 or a multiple of 64; 0: all entries of "
                        "a channel that are coded at once, and a whole value"),
               IntParam("rank", 4, 0, 64, "of the correction of the prompt; 0: none"),
               IntParam("later_rank", 2, 0, 64, "of that of each later chunk, at most `rank`"),
               RealParam("outliers", 0.02, 0, 0.5, "share of numbers that are kept as they are"),
               IntParam("chunk", 64, 16, 4096,
                        "later entries that are coded at a time; the prompt's are at least 64")},
    .make = Make<Gear>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
