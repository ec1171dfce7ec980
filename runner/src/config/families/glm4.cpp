// SPDX-License-Identifier: Apache-2.0
// GLM-4-0414: 9B and 32B, and GLM-Z1.
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadGlm4(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.gate_up = "gate_up_proj";
  config.output_norms = true;
  config.tensor_names.attention_norm = "post_self_attn_layernorm";
  config.tensor_names.mlp_output_norm = "post_mlp_layernorm";
  ReadSizes(reader, "intermediate_size", 131072, config);
  ReadHeads(reader, {.kv_heads = 2, .head_dim = 128}, config);
  ReadNormEps(reader, 1.5625e-7, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.eos = {151329, 151336, 151338}, .pad = 151329}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = reader.Bool("attention_bias", true);
  reader.Neutral("mlp_bias", false);
  ReadRope(reader,
           {.head_dim = config.key_dim,
            .layout = RopeLayout::kInterleaved,
            .partial = true,
            .part = 0.5},
           config);
  CheckLayerTypes(reader, config);
}

}  // namespace

KVG_MODEL_FAMILY(glm4, {.title = "GLM-4-0414, GLM-Z1",
                        .notes = "as glm, with norms of what layers add as well",
                        .read = ReadGlm4})

}  // namespace kvgauge
