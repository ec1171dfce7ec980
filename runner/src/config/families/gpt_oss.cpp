// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

// How far gates and what they open may go, and how steep gates are; few files say it.
constexpr float kGateLimit = 7.0f;
constexpr float kGateSlope = 1.702f;

void ReadGptOss(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, SizeKeys{}, 131072, config);
  ReadHeads(reader, {.kv_heads = 8, .head_dim = 64}, config);
  ReadNormEps(reader, 1e-5, config);
  // Names the gate below, whatever it is called.
  reader.Neutral("hidden_act", std::string_view("silu"));
  config.activation = Activation::kGeluQuick;
  config.mlp_limit = kGateLimit;
  ReadTokenIds(reader, {}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  reader.Neutral("attention_bias", true);
  config.qkv_bias = config.output_bias = config.mlp_bias = config.router_bias = true;
  config.sinks = true;
  config.tensor_names.router = "router";
  const std::optional<std::vector<bool>> said = ReadLayerTypes(reader, config);
  const int64_t window = ReadWindow(reader, "sliding_window", 128);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    config.layers[i].moe = true;
    if (!(said ? (*said)[i] : i % 2 == 0)) continue;
    if (window == 0) {
      reader.Fail("sliding_window", "a positive window: this family has sliding layers");
    }
    config.layers[i].window = window;
  }
  if (!reader.Has("rope_scaling") && !reader.Has("rope_parameters")) {
    reader.Fail("rope_scaling", "the scaling that this family is trained with, or null");
  }
  ReadRope(reader, {.head_dim = config.key_dim, .theta = 150000.0}, config);
  MoeConfig moe = ReadExpertSizes(reader,
                                  {.experts = "num_local_experts",
                                   .default_experts = 128,
                                   .default_per_token = 4,
                                   .ffn = "intermediate_size",
                                   .default_ffn = 2880},
                                  config);
  RenormalizeExperts(reader, moe);  // shares are those among the chosen
  config.moe = moe;
  if (reader.Real("swiglu_limit", kGateLimit, 0.0, 1e6) != kGateLimit) {
    reader.Fail("swiglu_limit", "7: other files of this family say nothing else");
  }
  if (static_cast<float>(reader.Real("swiglu_alpha", kGateSlope, 0.0, 1e6)) != kGateSlope) {
    reader.Fail("swiglu_alpha", "1.702: other files of this family say nothing else");
  }
  // The authors' name for what num_experts_per_tok says.
  reader.Neutral("experts_per_token", moe.experts_per_token);
  // How far positions reach at first, which rope_scaling says.
  reader.Ignore({"initial_context_length", "router_aux_loss_coef", "output_router_logits"});
}

}  // namespace

KVG_MODEL_FAMILY(gpt_oss, {.title = "gpt-oss",
                           .notes = "mixture of experts; each head has a logit without a value; "
                                    "every second layer slides",
                           .read = ReadGptOss})

}  // namespace kvgauge
