// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadStarcoder2(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.up = "c_fc";
  config.tensor_names.down = "c_proj";
  ReadSizes(reader, "intermediate_size", 4096, config);
  ReadHeads(reader, {.kv_heads = 2}, config);
  ReadNormEps(reader, 1e-5, config, "norm_epsilon");
  ReadActivation(reader, "hidden_act", "gelu_pytorch_tanh", config);
  ReadTokenIds(reader, {.bos = 50256, .eos = {50256}}, config);
  config.norm = NormKind::kLayer;
  config.gated_mlp = false;
  config.qkv_bias = config.output_bias = config.mlp_bias = reader.Bool("use_bias", true);
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  const int64_t window = ReadWindow(reader, "sliding_window", 0);
  for (LayerConfig& layer : config.layers) layer.window = window;
  CheckLayerTypes(reader, config);
  reader.Neutral("mlp_type", std::string_view("default"));
  reader.Neutral("norm_type", std::string_view("layer_norm"));
  reader.Ignore({"residual_dropout", "embedding_dropout"});
}

}  // namespace

KVG_MODEL_FAMILY(starcoder2, {.title = "StarCoder 2",
                              .notes = "LayerNorms; an MLP without gate",
                              .read = ReadStarcoder2})

}  // namespace kvgauge
