// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadNemotron(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 4096, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-5, config, "norm_eps");
  config.norm = NormKind::kLayer;
  config.norm_from_one = true;
  reader.Neutral("hidden_act", std::string_view("relu2"));
  config.activation = Activation::kRelu;
  config.squared_activation = true;
  config.gated_mlp = false;
  ReadTokenIds(reader, {.bos = 2, .eos = {3}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.mlp_bias = reader.Bool("mlp_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim, .partial = true, .part = 0.5}, config);
  CheckLayerTypes(reader, config);
  // Other names, which the class does not read: they say the same.
  reader.Neutral("kv_channels", config.key_dim);
  const double part = reader.Real("rope_percent", 0.5, 0.0, 1.0);
  if (reader.Has("rope_percent") && config.rope &&
      static_cast<int64_t>(part * static_cast<double>(config.key_dim)) != config.rope->rotary_dim) {
    reader.Fail("rope_percent", "as partial_rotary_factor");
  }
}

}  // namespace

KVG_MODEL_FAMILY(
    nemotron,
    {.title = "Minitron, Nemotron-4",
     .notes = "LayerNorms whose weights count from one; an MLP without gate whose ReLU is squared; "
              "half of each head turns",
     .read = ReadNemotron})

}  // namespace kvgauge
