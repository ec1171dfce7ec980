// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadStablelm(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.query_norm = "q_layernorm";
  config.tensor_names.key_norm = "k_layernorm";
  ReadSizes(reader, "intermediate_size", 4096, config);
  ReadHeads(reader, {.kv_heads = 32}, config);
  ReadNormEps(reader, 1e-5, config, "layer_norm_eps");
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 0, .eos = {0}}, config);
  config.norm = NormKind::kLayer;
  config.parallel = config.shared_norm = reader.Bool("use_parallel_residual", false);
  config.qkv_bias = reader.Bool("use_qkv_bias", false);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qk_norm = reader.Bool("qk_layernorm", false);
  config.qk_norm_kind = QkNorm::kLayerLists;
  ReadRope(reader, {.head_dim = config.key_dim, .partial = true, .part = 0.25}, config);
  CheckLayerTypes(reader, config);
}

}  // namespace

KVG_MODEL_FAMILY(stablelm, {.title = "StableLM 3B, StableLM 2",
                            .notes = "LayerNorms; a quarter of each head turns",
                            .read = ReadStablelm})

}  // namespace kvgauge
