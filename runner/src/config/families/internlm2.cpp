// SPDX-License-Identifier: Apache-2.0
// InternLM2 and InternLM2.5, in the files of the authors' code.
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadInternlm2(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names = {.embedding = "tok_embeddings",
                         .head = "output",
                         .input_norm = "attention_norm",
                         .mlp_norm = "ffn_norm",
                         .attention = "attention",
                         .qkv = "wqkv",
                         .qkv_by_group = true,
                         .output = "wo",
                         .mlp = "feed_forward",
                         .gate = "w1",
                         .up = "w3",
                         .down = "w2"};
  ReadSizes(reader, "intermediate_size", 2048, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}, .pad = 0}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.Bool("bias", true);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  CheckLayerTypes(reader, config);
  reader.Neutral("pretraining_tp", int64_t{1});
}

}  // namespace

KVG_MODEL_FAMILY(internlm2, {.title = "InternLM 2, InternLM 2.5",
                             .notes = "projections fused by group",
                             .read = ReadInternlm2})

}  // namespace kvgauge
