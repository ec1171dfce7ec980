// SPDX-License-Identifier: Apache-2.0
// The decoder reads the end of a prompt, and an encoder what comes before it in chunks.
//
// Paper: CEPE, arXiv:2402.16617; after princeton-nlp/CEPE (modeling_llama_flash.py, and the
// strategy concat-truncate_left of eval_downstream.py). The encoder's rows are held as they are.
#include <algorithm>

#include "core/strings.h"
#include "methods/encoding_thin.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class Cepe final : public EncodingThin {
 public:
  explicit Cepe(const Params& params)
      : chunk_(params.Int("chunk")),
        decoder_(params.Int("decoder")),
        context_(params.Int("context")) {}

  Status Check(const ModelShape& shape) const override {
    if (shape.encoder_width > 0) return {};
    return Unsupported(
        "this model has no encoder that could read the beginning of a prompt; expected a "
        "checkpoint of CEPE, such as hyen/CEPED-LLaMA-2-Chat-7B");
  }

  int64_t chunk_tokens() const override { return chunk_; }
  EncodedRange Encoded(int64_t prompt_tokens) const override {
    const int64_t end = prompt_tokens - decoder_;
    if (end <= 0) return {};
    return {context_ > 0 ? std::max<int64_t>(end - context_, 0) : 0, end};
  }

 private:
  int64_t chunk_, decoder_, context_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kThin,
    .id = "cepe",
    .paper = "arXiv:2402.16617",
    .summary = "an encoder reads the beginning of the prompt in chunks, and the decoder's layers "
               "attend to its rows behind their own attention",
    .departures =
        {("the prompt is cut between tokens; the reference tokenises the text of the beginning "
          "again, and puts an empty line before the question"),
         ("the answer's tokens are no part of `decoder`; the reference takes their limit off "
          "(2048 less 50 in its configs of long questions)"),
         "the reference's limit of `context` is one token less than its name says (concatN)",
         ("demonstrations and retrieved passages have no chunks of their own, and none is put "
          "before the question in the encoder (include_query)"),
         ("keys and values across are not made: queries are projected to the encoder's rows, and "
          "values from their weighted sums, which is the same but for rounding")},
    .bytes = "the decoder's entries, and a row of the encoder's width for each token that it read, "
             "once for all layers",
    .params = {IntParam("chunk", EncodingThin::kChunkTokens, 1, 1 << 20,
                        "the most tokens of a chunk, which sees nothing else"),
               IntParam("decoder", 2048, 1, 1 << 28,
                        "the last tokens of the prompt, which the decoder reads"),
               IntParam("context", 0, 0, 1 << 28,
                        "the most tokens before these that the encoder reads, and nobody those "
                        "before; 0: all")},
    .make = Make<Cepe>(),
});

}  // namespace
}  // namespace kvgauge
