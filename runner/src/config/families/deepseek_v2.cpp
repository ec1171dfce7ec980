// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V2 and V2-Lite, in the files of the authors' code and of transformers' own class.
#include "src/config/deepseek.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadGroups(ConfigReader& reader, MoeConfig& moe) {
  const std::string method = reader.Text("topk_method", "greedy");
  if (method == "group_limited_greedy") return ReadExpertGroups(reader, "n_routed_experts", moe);
  if (method != "greedy") reader.Fail("topk_method", "greedy or group_limited_greedy");
  // Groups have no part in it.
  reader.Int("n_group", 1, 1, kMostExperts);
  reader.Int("topk_group", 1, 1, kMostExperts);
}

void ReadDeepseekV2Experts(ConfigReader& reader, ModelConfig& config) {
  MoeConfig moe = ReadDeepseekExperts(
      reader, {.experts = "n_routed_experts", .default_experts = 64, .default_ffn = 1407}, 2, 0,
      config);
  moe.scaling = reader.Real("routed_scaling_factor", 1.0, 1e-6, 1e6);
  ReadGroups(reader, moe);
  // Either the chosen weights sum to one, or they are scaled, never both.
  moe.renormalize = reader.Bool("norm_topk_prob", false) && moe.experts_per_token > 1;
  if (moe.renormalize) moe.scaling = 1.0;
  config.moe = moe;
}

void ReadDeepseekV2(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 2048, config);
  ReadLatentAttention(reader, {}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  // The authors' class and transformers' have different defaults here; files carry the keys.
  ReadTokenIds(reader, {}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  ReadRope(reader, {.head_dim = config.mla->rope_dim, .layout = RopeLayout::kInterleaved}, config);
  ReadLatentScale(reader, config);
  ReadDeepseekV2Experts(reader, config);
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
