// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadArcee(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 4096, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-5, config);
  reader.Neutral("hidden_act", std::string_view("relu2"));
  config.activation = Activation::kRelu;
  config.squared_activation = true;
  config.gated_mlp = false;
  ReadTokenIds(reader, {.bos = 128000, .eos = {128001}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.mlp_bias = reader.Bool("mlp_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  CheckLayerTypes(reader, config);
}

}  // namespace

KVG_MODEL_FAMILY(arcee, {.title = "AFM-4.5B",
                         .notes = "as llama, with an MLP without gate whose ReLU is squared",
                         .read = ReadArcee})

}  // namespace kvgauge
