// SPDX-License-Identifier: Apache-2.0
#include "src/config/deepseek.h"

#include <cmath>

#include "core/strings.h"

namespace kvgauge {

void ReadLatentAttention(ConfigReader& reader, const LatentDefaults& defaults,
                         ModelConfig& config) {
  config.query_heads = reader.Int("num_attention_heads", std::nullopt, 1, kMostHeads);
  MlaConfig mla;
  // null is one full query projection, absent the class default.
  const bool full = reader.PresenceOf("q_lora_rank") == ConfigReader::Presence::kNull;
  mla.q_lora_rank = reader.Int("q_lora_rank", full ? 0 : defaults.q_lora_rank, 1, kMostHidden);
  mla.kv_lora_rank = reader.Int("kv_lora_rank", defaults.kv_lora_rank, 1, kMostHidden);
  mla.nope_dim = reader.Int("qk_nope_head_dim", defaults.nope_dim, 1, kMostHeadDim);
  mla.rope_dim = reader.Int("qk_rope_head_dim", defaults.rope_dim, 2, kMostHeadDim);
  config.mla = mla;
  // The expanded cache: every head has its own keys and values.
  config.kv_heads = config.query_heads;
  if (reader.Int("num_key_value_heads", config.query_heads, 1, kMostHeads) != config.query_heads) {
    reader.Fail("num_key_value_heads",
                StrCat("num_attention_heads (", config.query_heads, ") in this family"));
  }
  if (reader.Int("head_dim", mla.rope_dim, 1, kMostHeadDim) != mla.rope_dim) {
    reader.Fail("head_dim", StrCat("qk_rope_head_dim (", mla.rope_dim, ") in this family"));
  }
  const int64_t key_dim = mla.nope_dim + mla.rope_dim;
  if (reader.Int("qk_head_dim", key_dim, 1, 2 * kMostHeadDim) != key_dim) {
    reader.Fail("qk_head_dim",
                StrCat("qk_nope_head_dim + qk_rope_head_dim (", key_dim, ") in this family"));
  }
  config.key_dim = key_dim;
  const int64_t value_dim =
      defaults.value_dim > 0 ? defaults.value_dim : config.hidden_size / config.query_heads;
  config.value_dim = reader.Int("v_head_dim", value_dim, 1, kMostHeadDim);
}

// 1 / sqrt(key_dim), times YaRN's magnitude squared. transformers' own class leaves the magnitude
// out; the authors' code, and every engine that reproduces the models, has it.
void ReadLatentScale(ConfigReader& reader, ModelConfig& config) {
  const RopeConfig& rope = *config.rope;
  double scale = 1.0 / std::sqrt(static_cast<double>(config.key_dim));
  if (rope.kind == RopeKind::kYarn) {
    const bool alone = (rope.mscale != 0.0) != (rope.mscale_all_dim != 0.0);
    if (alone && !(rope.mscale == 1.0)) {
      reader.Fail(Unsupported(
          StrCat(reader.origin(), ": rope keys 'mscale': ", rope.mscale,
                 " and 'mscale_all_dim': ", rope.mscale_all_dim,
                 ": implementations disagree when only one is set, expected both or neither")));
    }
    if (rope.mscale_all_dim != 0.0) {
      const double magnitude = YarnMagnitude(rope.factor, rope.mscale_all_dim);
      scale *= magnitude * magnitude;
    }
  }
  config.attention_scale = static_cast<float>(scale);
}

void ReadLatentRope(ConfigReader& reader, ModelConfig& config) {
  reader.Neutral("rope_interleave", true);
  ReadRope(reader, {.head_dim = config.mla->rope_dim, .layout = RopeLayout::kInterleaved}, config);
  ReadLatentScale(reader, config);
}

MoeConfig ReadDeepseekExperts(ConfigReader& reader, const ExpertKeys& keys, int64_t shared,
                              int64_t dense_layers, ModelConfig& config) {
  MoeConfig moe = ReadExpertSizes(reader, keys, config);
  const bool unshared = reader.PresenceOf("n_shared_experts") == ConfigReader::Presence::kNull;
  moe.shared_experts = reader.Int("n_shared_experts", unshared ? 0 : shared, 0, kMostExperts);
  moe.shared_ffn_size = moe.shared_experts * moe.expert_ffn_size;
  moe.first_dense_layers = reader.Int("first_k_dense_replace", dense_layers, 0, kMostLayers);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    config.layers[i].moe = static_cast<int64_t>(i) >= moe.first_dense_layers;
  }
  return moe;
}

}  // namespace kvgauge
