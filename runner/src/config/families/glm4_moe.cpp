// SPDX-License-Identifier: Apache-2.0
// GLM-4.5, GLM-4.5-Air, GLM-4.6.
#include "src/config/deepseek.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadGlm4Moe(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 131072, config);
  ReadHeads(reader, {.kv_heads = 8}, config);
  ReadNormEps(reader, 1e-5, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = reader.Bool("attention_bias", false);
  config.qk_norm = reader.Bool("use_qk_norm", false);
  ReadRope(reader, {.head_dim = config.key_dim, .partial = true, .part = 0.5}, config);
  MoeConfig moe = ReadDeepseekExperts(reader,
                                      {.experts = "n_routed_experts",
                                       .default_experts = 128,
                                       .default_per_token = 8,
                                       .default_ffn = 1408},
                                      1, 1, config);
  moe.sigmoid = true;
  ReadExpertGroups(reader, "n_routed_experts", moe);
  moe.scaling = reader.Real("routed_scaling_factor", 1.0, 1e-6, 1e6);
  moe.renormalize = true;
  ReadRenormalize(reader, moe);
  config.moe = moe;
  ReadDraftLayers(reader, config);
  CheckLayerTypes(reader, config);
  reader.Neutral("mlp_bias", false);
  reader.Ignore({"router_aux_loss_coef", "output_router_logits"});
}

}  // namespace

KVG_MODEL_FAMILY(
    glm4_moe, {.title = "GLM-4.5, GLM-4.6",
               .notes = "mixture of experts chosen by corrected sigmoids; half of each head turns",
               .read = ReadGlm4Moe})

}  // namespace kvgauge
