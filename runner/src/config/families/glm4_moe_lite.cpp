// SPDX-License-Identifier: Apache-2.0
#include "core/strings.h"
#include "src/config/deepseek.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

// Later files list layers by kind; what they list wins over the number of dense ones.
void ReadMlpTypes(ConfigReader& reader, ModelConfig& config) {
  const std::vector<std::string> types = reader.Texts("mlp_layer_types");
  if (types.empty()) return;
  if (types.size() != config.layers.size()) {
    return reader.Fail("mlp_layer_types", StrCat(config.layers.size(), " entries, one per layer"));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    config.layers[i].moe = types[i] == "sparse";
    if (types[i] == "sparse" || types[i] == "dense") continue;
    return reader.Fail("mlp_layer_types", StrCat("sparse or dense, not ", Quoted(types[i])));
  }
}

void ReadGlm4MoeLite(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 202752, config);
  ReadLatentAttention(
      reader,
      {.q_lora_rank = 768, .kv_lora_rank = 512, .nope_dim = 192, .rope_dim = 64, .value_dim = 256},
      config);
  ReadNormEps(reader, 1e-5, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 0, .eos = {1}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  ReadLatentRope(reader, config);
  MoeConfig moe = ReadDeepseekExperts(reader,
                                      {.experts = "n_routed_experts",
                                       .default_experts = 64,
                                       .default_per_token = 4,
                                       .default_ffn = 1536},
                                      1, 1, config);
  ReadMlpTypes(reader, config);
  moe.sigmoid = true;
  ReadExpertGroups(reader, "n_routed_experts", moe);
  moe.scaling = reader.Real("routed_scaling_factor", 1.8, 1e-6, 1e6);
  moe.renormalize = true;
  ReadRenormalize(reader, moe);
  config.moe = moe;
  ReadDraftLayers(reader, config);
  CheckLayerTypes(reader, config);
  reader.Neutral("attention_bias", false);
  reader.Neutral("mlp_bias", false);
  reader.Neutral("scoring_func", std::string_view("sigmoid"));
  reader.Neutral("topk_method", std::string_view("noaux_tc"));
  reader.Neutral("pretraining_tp", int64_t{1});
  reader.Ignore({"router_aux_loss_coef", "output_router_logits"});
}

}  // namespace

KVG_MODEL_FAMILY(glm4_moe_lite, {.title = "GLM-4.7-Flash",
                                 .notes = "latent attention and experts as deepseek_v3",
                                 .read = ReadGlm4MoeLite})

}  // namespace kvgauge
