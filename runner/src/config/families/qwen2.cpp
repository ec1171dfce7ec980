// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5.
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadQwen2(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 32768, config);
  ReadHeads(reader, {.kv_heads = 32}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  // Always on q, k and v, never on the output, whatever a config says.
  config.qkv_bias = true;
  reader.Neutral("attention_bias", true);
  reader.Neutral("mlp_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim, .sections = RopeRules::Sections::kContiguous},
           config);
  ReadQwenWindows(reader, config);
  reader.Neutral("use_mrope", false);
}

}  // namespace

KVG_MODEL_FAMILY(qwen2, {.title = "Qwen2, Qwen2.5",
                         .notes = "sliding window where configured",
                         .read = ReadQwen2})

}  // namespace kvgauge
