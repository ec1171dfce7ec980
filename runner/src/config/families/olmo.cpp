// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadOlmo(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 2048, config);
  ReadHeads(reader, {}, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.eos = {50279}, .pad = 1}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.norm = NormKind::kLayer;
  config.norm_weight = config.norm_bias = false;
  config.norm_eps = 1e-5f;  // no file says it
  config.qkv_limit = static_cast<float>(reader.Real("clip_qkv", 0.0, 0.0, 1e6));
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  CheckLayerTypes(reader, config);
}

}  // namespace

KVG_MODEL_FAMILY(olmo,
                 {.title = "OLMo 1",
                  .notes = "LayerNorms without weights; queries, keys and values may be clipped",
                  .read = ReadOlmo})

}  // namespace kvgauge
