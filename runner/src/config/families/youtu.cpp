// SPDX-License-Identifier: Apache-2.0
#include "src/config/deepseek.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadYoutu(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 131072, config);
  ReadLatentAttention(reader, {}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 128000, .eos = {128001}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  ReadLatentRope(reader, config);
  CheckLayerTypes(reader, config);
  reader.Neutral("attention_bias", false);
  reader.Neutral("mlp_bias", false);
  reader.Ignore({"embedding_initializer_range"});
}

}  // namespace

KVG_MODEL_FAMILY(youtu, {.title = "Youtu-LLM 2B",
                         .notes = "latent attention as deepseek_v3; no experts",
                         .read = ReadYoutu})

}  // namespace kvgauge
