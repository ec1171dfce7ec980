// SPDX-License-Identifier: Apache-2.0
// Qwen3.5's models with experts, their text part.
#include "core/json.h"
#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

void ReadQwen35Moe(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.shared_experts = "shared_expert";
  ReadQwenHybrid(reader, StateConfig::Kind::kQwen35, 2, RopeRules::Sections::kInterleaved, config);
  MoeConfig moe = ReadExpertSizes(
      reader, {.default_experts = 256, .default_per_token = 8, .default_ffn = 512}, config);
  moe.shared_experts = 1;
  moe.shared_ffn_size = reader.Int("shared_expert_intermediate_size", 512, 1, kMostFfn);
  moe.shared_gate = moe.renormalize = true;
  if (moe.experts_per_token == 1) {
    reader.Fail("num_experts_per_tok",
                "at least 2, since the weights of a token's experts are made to sum to 1");
  }
  config.moe = moe;
  for (LayerConfig& layer : config.layers) layer.moe = true;
  // Keys of its ancestors, which would make some layers dense.
  reader.Neutral("norm_topk_prob", true);
  reader.Neutral("decoder_sparse_step", int64_t{1});
  if (const Json* dense = reader.Take("mlp_only_layers"); dense != nullptr && !dense->empty()) {
    reader.Fail("mlp_only_layers", "[]: every layer of this family has experts");
  }
  reader.Neutral("attn_output_gate", true);
  // States are f32 here, whatever the model computes in.
  reader.Neutral("mamba_ssm_dtype", std::string_view("float32"));
  reader.Ignore({"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "router_aux_loss_coef",
                 "output_router_logits", "intermediate_size"});
}

}  // namespace

KVG_MODEL_FAMILY(
    qwen3_5_moe_text,
    {.title = "Qwen3.5 with experts (text)",
     .notes = "as qwen3_5_text, with a mixture of experts beside one that all tokens share",
     .read = ReadQwen35Moe})

}  // namespace kvgauge
