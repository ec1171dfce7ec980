// SPDX-License-Identifier: Apache-2.0
// Falcon-H1: each layer attends and keeps a Mamba-2 state, side by side.
#include "core/strings.h"
#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

// Absent and null are 1.
float ReadFactor(ConfigReader& reader, std::string_view key) {
  return ReadMultiplier(reader, key, 1.0);
}
std::vector<float> ReadFactors(ConfigReader& reader, std::string_view key, size_t count) {
  const std::vector<double> said = reader.Reals(key, 1e-6, 1e6);
  if (reader.Has(key) && reader.ok() && said.size() != count) {
    reader.Fail(key, StrCat(count, " numbers, not ", said.size()));
  }
  if (said.size() != count) return std::vector<float>(count, 1.0f);
  return {said.begin(), said.end()};
}

void ReadH1Multipliers(ConfigReader& reader, ModelConfig& config) {
  LayerMultipliers by;
  const float attention = ReadFactor(reader, "attention_in_multiplier");
  by.queries = by.values = attention;
  by.keys = attention * ReadFactor(reader, "key_multiplier");
  by.attended = ReadFactor(reader, "attention_out_multiplier");
  const float read = ReadFactor(reader, "ssm_in_multiplier");
  const std::vector<float> parts = ReadFactors(reader, "ssm_multipliers", 5);
  by.state_gates = read * parts[0];
  by.state_values = read * parts[1];
  by.state_keys = read * parts[2];
  by.state_queries = read * parts[3];
  by.steps = read * parts[4];
  by.scanned = ReadFactor(reader, "ssm_out_multiplier");
  const std::vector<float> mlp = ReadFactors(reader, "mlp_multipliers", 2);
  by.gates = mlp[0];
  by.opened = mlp[1];
  config.multipliers = by;
  if (config.state->input_bias && read != 1.0f) {
    reader.Fail("mamba_proj_bias", "false where ssm_in_multiplier is not 1");
  }
  if (config.state->output_bias && by.scanned != 1.0f) {
    reader.Fail("projectors_bias", "false where ssm_out_multiplier is not 1");
  }
}

void ReadFalconH1(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.final_norm = "final_layernorm";
  config.tensor_names.mlp_norm = "pre_ff_layernorm";
  config.tensor_names.mlp = "feed_forward";
  config.tensor_names.state = "mamba";
  ReadSizes(reader, "intermediate_size", 8192, config);
  ReadHeads(reader, {.kv_heads = 8}, config);
  ReadNormEps(reader, 1e-5, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}, .pad = 0}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.embedding_multiplier = ReadFactor(reader, "embedding_multiplier");
  config.logit_multiplier = ReadFactor(reader, "lm_head_multiplier");
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  StateConfig state = ReadMamba2(reader, {.width = "mamba_d_ssm", .default_width = 1024}, config);
  state.output_bias = reader.Bool("projectors_bias", false);
  state.norm = reader.Bool("mamba_rms_norm", false);
  state.norm_first = reader.Bool("mamba_norm_before_gate", true);
  config.state = state;
  for (LayerConfig& layer : config.layers) layer.state = true;
  ReadH1Multipliers(reader, config);
  reader.Neutral("attention_bias", false);
  reader.Neutral("mlp_bias", false);
  reader.Neutral("mamba_use_mlp", true);
  reader.Refuse("attn_layer_indices", "every layer of this family attends, expected null");
  reader.Ignore({"mlp_expansion_factor", "num_logits_to_keep"});
}

}  // namespace

KVG_MODEL_FAMILY(falcon_h1,
                 {.title = "Falcon-H1",
                  .notes = "each layer attends and keeps a Mamba-2 state of constant size, side by "
                           "side under one norm; multipliers of all parts",
                  .read = ReadFalconH1})

}  // namespace kvgauge
