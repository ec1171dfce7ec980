// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadErnie45(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 131072, config);
  ReadHeads(reader, {.kv_heads = 2, .head_dim = 128}, config);
  ReadNormEps(reader, 1e-5, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}, .pad = 0}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  config.qkv_bias = config.output_bias = config.mlp_bias = reader.Bool("use_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim, .layout = RopeLayout::kInterleaved, .theta = 5e5},
           config);
  CheckLayerTypes(reader, config);
}

}  // namespace

KVG_MODEL_FAMILY(ernie4_5, {.title = "ERNIE 4.5 0.3B",
                            .notes = "pairs of neighbours turn; head_dim 128",
                            .read = ReadErnie45})

}  // namespace kvgauge
