// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadHelium(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 4096, config);
  ReadHeads(reader, {.kv_heads = 20, .head_dim = 128}, config);
  ReadNormEps(reader, 1e-8, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}, .pad = 3}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = reader.Bool("attention_bias", false);
  config.mlp_bias = reader.Bool("mlp_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim, .layout = RopeLayout::kInterleaved, .theta = 1e5},
           config);
  CheckLayerTypes(reader, config);
}

}  // namespace

KVG_MODEL_FAMILY(helium,
                 {.title = "Helium 1", .notes = "pairs of neighbours turn", .read = ReadHelium})

}  // namespace kvgauge
