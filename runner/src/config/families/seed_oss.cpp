// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadSeedOss(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 524288, config);
  ReadHeads(reader, {.kv_heads = 8, .head_dim = 128}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 0, .eos = {2}, .pad = 1}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = reader.Bool("attention_bias", true);
  config.output_bias = reader.Bool("attention_out_bias", false);
  config.mlp_bias = reader.Bool("mlp_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  CheckLayerTypes(reader, config);
  reader.Neutral("pretraining_tp", int64_t{1});
  reader.Ignore({"residual_dropout"});
}

}  // namespace

KVG_MODEL_FAMILY(seed_oss, {.title = "Seed-OSS",
                            .notes = "biases of queries, keys and values; head_dim 128",
                            .read = ReadSeedOss})

}  // namespace kvgauge
