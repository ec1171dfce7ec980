// SPDX-License-Identifier: Apache-2.0
#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

void ReadQwen3Next(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.shared_experts = "shared_expert";
  ReadQwenHybrid(reader, StateConfig::Kind::kQwen3Next, 2, RopeRules::Sections::kNone, config);
  config.ffn_size = reader.Int("intermediate_size", std::nullopt, 1, kMostFfn);
  MoeConfig moe = ReadExpertSizes(
      reader, {.default_experts = 512, .default_per_token = 10, .default_ffn = 512}, config);
  moe.shared_experts = 1;
  moe.shared_ffn_size = reader.Int("shared_expert_intermediate_size", 512, 1, kMostFfn);
  moe.shared_gate = moe.renormalize = true;
  ReadRenormalize(reader, moe);
  config.moe = moe;
  ReadSparseLayers(reader, config);
  reader.Neutral("use_sliding_window", false);
  reader.Ignore(
      {"sliding_window", "max_window_layers", "router_aux_loss_coef", "output_router_logits"});
}

}  // namespace

KVG_MODEL_FAMILY(
    qwen3_next,
    {.title = "Qwen3-Next",
     .notes = "three of four layers keep a state of constant size (gated delta rule); the others' "
              "attention is gated; mixture of experts beside one that all tokens share",
     .read = ReadQwen3Next})

}  // namespace kvgauge
