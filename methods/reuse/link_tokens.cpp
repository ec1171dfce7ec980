// SPDX-License-Identifier: Apache-2.0
// Chunks that were read by themselves, with trained tokens behind each: these see all that stands
// before them, and what follows reads of them how chunks belong together.
//
// Paper: KVLink, arXiv:2502.16002; after UCSB-NLP-Chang/KVLink, titan_preprocessor.py and
// nq_eval.py. A chunk sees neither the prompt's beginning nor other chunks. The ids are reserved
// ones of Llama 3.2, whose rows the published checkpoints have learned.
#include <algorithm>

#include "methods/linked_reuse.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class TokensBetween final : public LinkedReuse {
 public:
  explicit TokensBetween(const Params& params)
      : chunk_(params.Int("chunk")),
        links_(params.Int("links")),
        first_(params.Int("first")),
        most_(params.Int("most")),
        begin_(params.Int("begin")),
        end_(params.Int("end")) {}

  int64_t chunk_tokens() const override { return chunk_; }
  int64_t most_texts() const override { return most_ + 1; }
  int32_t largest_id() const override {
    return static_cast<int32_t>(std::max({begin_, end_, first_ + links_ * most_ - 1}));
  }

  std::vector<int32_t> Behind(int64_t text, int64_t texts) const override {
    std::vector<int32_t> ids;
    const auto mark = [&](int64_t id) {
      if (id >= 0) ids.push_back(static_cast<int32_t>(id));
    };
    if (text == 0) mark(begin_);
    for (int64_t i = 0; i < links_ && text > 0; ++i) mark(first_ + (text - 1) * links_ + i);
    if (text + 1 == texts) mark(end_);
    return ids;
  }

 private:
  int64_t chunk_, links_, first_, most_, begin_, end_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReuse,
    .id = "link_tokens",
    .paper = "arXiv:2502.16002",
    .summary = "chunks that were read by themselves, with trained tokens behind each that see all",
    .departures = {"where no passages are marked, chunks have a fixed length, and the first one "
                   "begins the prompt: it is an exact prefix and has no tokens of its own"},
    .bytes = "caches of chunks that lie in the store, which are no part of the sequence; entries "
             "of the trained tokens, which are",
    .params = {IntParam("chunk", 256, 1, 1 << 20,
                        "the most tokens of a chunk, where the task marks no passages"),
               IntParam("links", 5, 0, 64, "trained tokens behind a chunk"),
               IntParam("first", 128011, 0, 1 << 24,
                        "the id of the first chunk's first token; the others follow it"),
               IntParam("most", 40, 1, 1 << 12, "chunks that the model has such tokens for"),
               IntParam("begin", 128254, -1, 1 << 24,
                        "the id that stands before the first chunk; -1: none"),
               IntParam("end", 128255, -1, 1 << 24,
                        "the id that stands before the question; -1: none")},
    .make = Make<TokensBetween>(),
});

}  // namespace
}  // namespace kvgauge
