// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadJais2(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 8192, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-5, config, "layer_norm_eps");
  config.norm = NormKind::kLayer;
  reader.Neutral("hidden_act", std::string_view("relu2"));
  config.activation = Activation::kRelu;
  config.squared_activation = true;
  config.gated_mlp = false;
  ReadTokenIds(reader, {.bos = 0, .eos = {150024}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", true);
  config.mlp_bias = reader.Bool("mlp_bias", true);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  CheckLayerTypes(reader, config);
}

}  // namespace

KVG_MODEL_FAMILY(jais2,
                 {.title = "Jais 2",
                  .notes = "LayerNorms and biases; an MLP without gate whose ReLU is squared",
                  .read = ReadJais2})

}  // namespace kvgauge
