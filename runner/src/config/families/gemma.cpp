// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadGemma1(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 8192, config);
  ReadHeads(reader, {.head_dim = 256}, config);
  ReadNormEps(reader, 1e-6, config);
  // Early files say "gelu" and mean the approximation, with which the models were trained.
  ReadActivation(reader, "hidden_act", "gelu_pytorch_tanh", config);
  if (reader.Has("hidden_activation")) {
    ReadActivation(reader, "hidden_activation", "gelu_pytorch_tanh", config);
  } else if (config.activation == Activation::kGelu) {
    config.activation = Activation::kGeluTanh;
  }
  ReadTokenIds(reader, {.bos = 2, .eos = {1}, .pad = 0}, config);
  config.norm = NormKind::kRmsOffsetOne;
  config.scale_embedding = true;
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  CheckLayerTypes(reader, config);
  reader.Neutral("use_bidirectional_attention", false);
}

}  // namespace

KVG_MODEL_FAMILY(gemma, {.title = "Gemma 1, CodeGemma",
                         .notes = "scaled embeddings; norms count from one; head_dim 256",
                         .read = ReadGemma1})

}  // namespace kvgauge
