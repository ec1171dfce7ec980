// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V3 and R1, and what else is saved as such (Moonlight, Kimi-K2 with that model_type).
#include "src/config/deepseek.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadDeepseekV3(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 4096, config);
  ReadLatentAttention(reader, {}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 0, .eos = {1}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  ReadLatentRope(reader, config);
  MoeConfig moe = ReadDeepseekExperts(reader,
                                      {.experts = "n_routed_experts",
                                       .default_experts = 256,
                                       .default_per_token = 8,
                                       .default_ffn = 2048},
                                      1, 3, config);
  moe.sigmoid = true;
  moe.groups = 8;
  moe.top_groups = 4;
  ReadExpertGroups(reader, "n_routed_experts", moe);
  moe.scaling = reader.Real("routed_scaling_factor", 2.5, 1e-6, 1e6);
  moe.renormalize = true;
  ReadRenormalize(reader, moe);
  config.moe = moe;
  ReadDraftLayers(reader, config);
  CheckLayerTypes(reader, config);
  reader.Neutral("attention_bias", false);
  reader.Neutral("mlp_bias", false);
  reader.Neutral("moe_layer_freq", int64_t{1});
  reader.Neutral("scoring_func", std::string_view("sigmoid"));
  reader.Neutral("topk_method", std::string_view("noaux_tc"));
  reader.Neutral("pretraining_tp", int64_t{1});
  reader.Ignore(
      {"aux_loss_alpha", "seq_aux", "ep_size", "router_aux_loss_coef", "output_router_logits"});
}

}  // namespace

KVG_MODEL_FAMILY(deepseek_v3,
                 {.title = "DeepSeek-V3, R1",
                  .notes = "latent attention as deepseek_v2; experts chosen by corrected sigmoids",
                  .read = ReadDeepseekV3})

}  // namespace kvgauge
