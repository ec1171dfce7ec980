// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadQwen3(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 32768, config);
  ReadHeads(reader, {.kv_heads = 32, .head_dim = 128}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qk_norm = true;
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  reader.Neutral("mlp_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim, .sections = RopeRules::Sections::kInterleaved},
           config);
  ReadQwenWindows(reader, config);
}

}  // namespace

KVG_MODEL_FAMILY(qwen3, {.title = "Qwen3", .notes = "norms of queries and keys", .read = ReadQwen3})

}  // namespace kvgauge
