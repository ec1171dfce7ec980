// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V2 and V2-Lite, in the files of the authors' code and of transformers' own class.
#include <cmath>

#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadLatentAttention(ConfigReader& reader, ModelConfig& config) {
  config.query_heads = reader.Int("num_attention_heads", std::nullopt, 1, kMostHeads);
  MlaConfig mla;
  // null is one full query projection, absent the class default.
  const bool full = reader.PresenceOf("q_lora_rank") == ConfigReader::Presence::kNull;
  mla.q_lora_rank = reader.Int("q_lora_rank", full ? 0 : 1536, 1, kMostHidden);
  mla.kv_lora_rank = reader.Int("kv_lora_rank", 512, 1, kMostHidden);
  mla.nope_dim = reader.Int("qk_nope_head_dim", 128, 1, kMostHeadDim);
  mla.rope_dim = reader.Int("qk_rope_head_dim", 64, 2, kMostHeadDim);
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
  config.value_dim = reader.Int("v_head_dim", 128, 1, kMostHeadDim);
}

// 1 / sqrt(key_dim), times YaRN's magnitude squared. transformers' own class leaves the magnitude
// out; the authors' code, and every engine that reproduces the models, has it.
void ReadScale(ConfigReader& reader, ModelConfig& config) {
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

void ReadGroups(ConfigReader& reader, MoeConfig& moe) {
  const std::string method = reader.Text("topk_method", "greedy");
  const int64_t groups = reader.Int("n_group", 1, 1, kMostExperts);
  const int64_t top_groups = reader.Int("topk_group", 1, 1, kMostExperts);
  if (method == "greedy") return;  // groups have no part in it
  if (method != "group_limited_greedy") {
    reader.Fail("topk_method", "greedy or group_limited_greedy");
    return;
  }
  if (moe.experts % groups != 0) {
    reader.Fail("n_group", StrCat("a divisor of n_routed_experts (", moe.experts, ")"));
  }
  if (top_groups > groups) {
    reader.Fail("topk_group", StrCat("at most n_group (", groups, ")"));
  }
  if (moe.experts_per_token > moe.experts / groups * top_groups) {
    reader.Fail("num_experts_per_tok", StrCat("at most the ", moe.experts / groups * top_groups,
                                              " experts of topk_group groups"));
  }
  moe.groups = groups;
  moe.top_groups = top_groups;
}

void ReadExperts(ConfigReader& reader, ModelConfig& config) {
  MoeConfig moe;
  moe.experts = reader.Int("n_routed_experts", 64, 1, kMostExperts);
  const auto layers = static_cast<int64_t>(config.layers.size());
  if (moe.experts * layers > kMostExpertsOfAllLayers) {
    reader.Fail("n_routed_experts", StrCat("at most ", kMostExpertsOfAllLayers / layers,
                                           " in each of ", layers, " layers"));
  }
  moe.experts_per_token = reader.Int("num_experts_per_tok", std::nullopt, 1, kMostExperts);
  if (moe.experts_per_token > moe.experts) {
    reader.Fail("num_experts_per_tok", StrCat("at most n_routed_experts (", moe.experts, ")"));
  }
  const bool unshared = reader.PresenceOf("n_shared_experts") == ConfigReader::Presence::kNull;
  moe.shared_experts = reader.Int("n_shared_experts", unshared ? 0 : 2, 0, kMostExperts);
  moe.expert_ffn_size = reader.Int("moe_intermediate_size", 1407, 1, kMostFfn);
  moe.first_dense_layers = reader.Int("first_k_dense_replace", 0, 0, kMostLayers);
  moe.scaling = reader.Real("routed_scaling_factor", 1.0, 1e-6, 1e6);
  ReadGroups(reader, moe);
  // Either the chosen weights sum to one, or they are scaled, never both.
  moe.renormalize = reader.Bool("norm_topk_prob", false) && moe.experts_per_token > 1;
  if (moe.renormalize) moe.scaling = 1.0;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    config.layers[i].moe = static_cast<int64_t>(i) >= moe.first_dense_layers;
  }
  config.moe = moe;
}

void ReadDeepseekV2(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 2048, config);
  ReadLatentAttention(reader, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  // The authors' class and transformers' have different defaults here; files carry the keys.
  ReadTokenIds(reader, {}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  ReadRope(reader, {.head_dim = config.mla->rope_dim, .layout = RopeLayout::kInterleaved}, config);
  ReadScale(reader, config);
  ReadExperts(reader, config);
  CheckLayerTypes(reader, config);
  reader.Neutral("attention_bias", false);
  reader.Neutral("mlp_bias", false);
  reader.Neutral("moe_layer_freq", int64_t{1});
  reader.Neutral("scoring_func", std::string_view("softmax"));
  reader.Neutral("pretraining_tp", int64_t{1});
  reader.Ignore(
      {"aux_loss_alpha", "seq_aux", "ep_size", "router_aux_loss_coef", "output_router_logits"});
}

}  // namespace

KVG_MODEL_FAMILY(
    deepseek_v2,
    {.title = "DeepSeek-V2, V2-Lite",
     .notes = "latent attention (expanded, or absorbed by method `mla_latent`); mixture of experts",
     .read = ReadDeepseekV2})

}  // namespace kvgauge
