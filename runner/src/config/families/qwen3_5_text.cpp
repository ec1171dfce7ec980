// SPDX-License-Identifier: Apache-2.0
// Qwen3.5's dense models, their text part.
#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

void ReadQwen35(ConfigReader& reader, ModelConfig& config) {
  ReadQwenHybrid(reader, StateConfig::Kind::kQwen35, 4, RopeRules::Sections::kInterleaved, config);
  config.ffn_size = reader.Int("intermediate_size", std::nullopt, 1, kMostFfn);
  reader.Neutral("attn_output_gate", true);
  // States are f32 here, whatever the model computes in.
  reader.Neutral("mamba_ssm_dtype", std::string_view("float32"));
  reader.Ignore({"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"});
}

}  // namespace

KVG_MODEL_FAMILY(
    qwen3_5_text,
    {.title = "Qwen3.5 (text)",
     .notes = "three of four layers keep a state of constant size (gated delta rule); the others' "
              "attention is gated, and a quarter of each head turns",
     .read = ReadQwen35})

}  // namespace kvgauge
