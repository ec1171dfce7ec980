// SPDX-License-Identifier: Apache-2.0
// MiniCPM3 4B: the latent attention of DeepSeek-V2 under the multipliers of MiniCPM.
#include <cmath>
#include <iterator>
#include <optional>

#include "src/config/deepseek.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadMinicpm3(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 32768, config);
  ReadLatentAttention(
      reader,
      {.q_lora_rank = 768, .kv_lora_rank = 256, .nope_dim = 64, .rope_dim = 32, .value_dim = 0},
      config);
  ReadNormEps(reader, 1e-5, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  // Halves are pairs, unlike in DeepSeek's models.
  ReadRope(reader, {.head_dim = config.mla->rope_dim}, config);
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.key_dim));
  // The authors' code takes 1 where one of the three is absent, transformers what changes nothing.
  const auto scale = [&](std::string_view key) {
    return static_cast<float>(reader.Real(key, std::nullopt, 1e-6, 1e6));
  };
  config.embedding_multiplier = scale("scale_emb");
  config.residual_multiplier =
      scale("scale_depth") / std::sqrt(static_cast<float>(std::ssize(config.layers)));
  config.logit_multiplier = scale("dim_model_base") / static_cast<float>(config.hidden_size);
  CheckLayerTypes(reader, config);
  reader.Neutral("attention_bias", false);
  reader.Neutral("mlp_bias", false);
  reader.Neutral("pretraining_tp", int64_t{1});
}

}  // namespace

KVG_MODEL_FAMILY(minicpm3, {.title = "MiniCPM3 4B",
                            .notes = "latent attention as deepseek_v2, of halves; multipliers of "
                                     "embeddings, of what layers add and of logits",
                            .read = ReadMinicpm3})

}  // namespace kvgauge
