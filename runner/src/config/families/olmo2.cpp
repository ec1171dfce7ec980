// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadOlmo2(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 2048, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-5, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.eos = {50279}, .pad = 1}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.input_norms = false;
  config.output_norms = true;
  config.qk_norm = true;
  config.qk_norm_kind = QkNorm::kWidth;
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  CheckLayerTypes(reader, config);
}

}  // namespace

KVG_MODEL_FAMILY(
    olmo2,
    {.title = "OLMo 2",
     .notes =
         "norms of what layers add, none of what they read; queries and keys normed over all heads",
     .read = ReadOlmo2})

}  // namespace kvgauge
