// SPDX-License-Identifier: Apache-2.0
// GLM-4-9B and what else transformers converted to this class.
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadGlm(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.gate_up = "gate_up_proj";
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

KVG_MODEL_FAMILY(glm, {.title = "GLM-4-9B",
                       .notes = "half of each head turns, by pairs of neighbours",
                       .read = ReadGlm})

}  // namespace kvgauge
