// SPDX-License-Identifier: Apache-2.0
// Caches of chunks behind each other, keys turned to their new places; the first tokens of each
// chunk are computed again, since a chunk that is read by itself takes them for a beginning.
//
// Paper: EPIC, arXiv:2410.15332 (LegoLink). Without such tokens it is what papers call full reuse,
// and what Block-Attention (arXiv:2409.15355) does with a model that was tuned for it.
#include <algorithm>

#include "methods/registry.h"
#include "methods/reuse.h"

namespace kvgauge {
namespace {

class FirstTokens final : public Reuse {
 public:
  explicit FirstTokens(const Params& params)
      : chunk_(params.Int("chunk")), lead_(params.Int("lead")), again_(params.Int("again")) {}

  int64_t chunk_tokens() const override { return chunk_; }
  int64_t lead_tokens() const override { return lead_; }

  std::vector<int32_t> Choose(const JoinedChunks& chunks) const override {
    std::vector<int32_t> rows;
    for (size_t i = 0; i < chunks.begins.size(); ++i) {
      const bool last = i + 1 == chunks.begins.size();
      const int64_t end = last ? chunks.end : chunks.begins[i + 1];
      for (int64_t row = chunks.begins[i]; row < std::min(end, chunks.begins[i] + again_); ++row) {
        rows.push_back(static_cast<int32_t>(row));
      }
    }
    return rows;
  }

 private:
  int64_t chunk_, lead_, again_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReuse,
    .id = "first_tokens",
    .paper = "arXiv:2410.15332",
    .summary = "caches of chunks behind each other, their first tokens computed again",
    .bytes = "caches of chunks that lie in the store, which are no part of the sequence",
    .params = {IntParam("chunk", 256, 1, 1 << 20,
                        "the most tokens of a chunk, where the task marks no passages"),
               IntParam("lead", 1, 0, 64,
                        "first tokens of the prompt that stand before a chunk when it is read"),
               IntParam("again", 16, 0, 1 << 20,
                        "first tokens of each chunk that are computed "
                        "again")},
    .make = Make<FirstTokens>(),
});

}  // namespace
}  // namespace kvgauge
