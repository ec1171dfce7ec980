// SPDX-License-Identifier: Apache-2.0
// Phi-1, Phi-1.5, Phi-2.
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadPhi(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.final_norm = "final_layernorm";
  config.tensor_names.output = "dense";
  config.tensor_names.query_norm = "q_layernorm";
  config.tensor_names.key_norm = "k_layernorm";
  config.tensor_names.up = "fc1";
  config.tensor_names.down = "fc2";
  ReadSizes(reader, "intermediate_size", 2048, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-5, config, "layer_norm_eps");
  ReadActivation(reader, "hidden_act", "gelu_new", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}}, config);
  config.norm = NormKind::kLayer;
  config.parallel = config.shared_norm = true;
  config.gated_mlp = false;
  config.qkv_bias = config.output_bias = config.mlp_bias = config.head_bias = true;
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qk_norm = reader.Bool("qk_layernorm", false);
  config.qk_norm_kind = QkNorm::kLayer;
  ReadRope(reader, {.head_dim = config.key_dim, .partial = true, .part = 0.5}, config);
  CheckLayerTypes(reader, config);
  reader.Ignore({"resid_pdrop", "embd_pdrop"});
}

}  // namespace

KVG_MODEL_FAMILY(
    phi, {.title = "Phi-1, Phi-1.5, Phi-2",
          .notes = "attention and MLP side by side under one norm; a part of each head turns",
          .read = ReadPhi})

}  // namespace kvgauge
