// SPDX-License-Identifier: Apache-2.0
// Granite 4.0: the models without experts.
#include "core/strings.h"
#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

void ReadGraniteHybrid(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.mlp = "shared_mlp";
  config.tensor_names.gate_up = "input_linear";
  config.tensor_names.down = "output_linear";
  config.tensor_names.state = "mamba";
  ReadSizes(reader, "shared_intermediate_size", 2048, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.embedding_multiplier = ReadMultiplier(reader, "embedding_multiplier", 1.0);
  config.residual_multiplier = ReadMultiplier(reader, "residual_multiplier", 1.0);
  config.attention_scale = ReadMultiplier(reader, "attention_multiplier", 1.0);
  config.logit_multiplier = 1.0f / ReadMultiplier(reader, "logits_scaling", 1.0);
  const std::string turns = reader.Text("position_embedding_type", "nope");
  if (turns == "rope") {
    ReadRope(reader, {.head_dim = config.key_dim}, config);
  } else {
    if (turns != "nope") reader.Fail("position_embedding_type", "'rope' or 'nope'");
    reader.Ignore({"rope_theta", "rope_scaling", "rope_parameters"});
  }
  ReadStateLayers(reader, "mamba", kMostLayers + 1, config);
  config.state = ReadMamba2(reader, config);
  if (reader.Int("num_local_experts", 8, 0, kMostExperts) > 0) {
    reader.Fail("num_local_experts", "0: Granite 4.0 with experts is not run");
  }
  reader.Ignore({"num_experts_per_tok", "intermediate_size", "output_router_logits",
                 "router_aux_loss_coef", "normalization_function", "init_method"});
}

}  // namespace

KVG_MODEL_FAMILY(granitemoehybrid,
                 {.title = "Granite 4.0 (without experts)",
                  .notes = "Mamba-2 layers, which keep a state of constant size, around a few that "
                           "attend and do not turn; multipliers as Granite 3",
                  .read = ReadGraniteHybrid})

}  // namespace kvgauge
