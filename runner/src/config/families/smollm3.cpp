// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadSmollm3(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 32768, config);
  ReadHeads(reader, {.kv_heads = 4}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 128000, .eos = {128001}, .pad = 128004}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.mlp_bias = reader.Bool("mlp_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim, .theta = 2e6}, config);
  StopRopeIn(ReadStillLayers(reader, config), config);
  if (reader.Bool("use_sliding_window", false)) {
    reader.Fail("use_sliding_window", "false: published models of this family have no windows");
  }
  reader.Ignore({"sliding_window", "max_window_layers"});
  CheckLayerTypes(reader, config);
  reader.Neutral("pretraining_tp", int64_t{1});
}

}  // namespace

KVG_MODEL_FAMILY(smollm3, {.title = "SmolLM3",
                           .notes = "every fourth layer does not turn",
                           .read = ReadSmollm3})

}  // namespace kvgauge
