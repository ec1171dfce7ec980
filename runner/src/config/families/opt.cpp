// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadOpt(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names = {.body = "model.decoder.",
                         .final_norm = "final_layer_norm",
                         .input_norm = "self_attn_layer_norm",
                         .mlp_norm = "final_layer_norm",
                         .output = "out_proj",
                         .mlp = "",
                         .up = "fc1",
                         .down = "fc2"};
  ReadSizes(reader, "ffn_dim", 2048, config);
  ReadHeads(reader, {}, config);
  if (config.kv_heads != config.query_heads) {
    reader.Fail("num_key_value_heads", "num_attention_heads: this family has no grouped queries");
  }
  if (config.key_dim * config.query_heads != config.hidden_size) {
    reader.Fail("head_dim", "hidden_size / num_attention_heads");
  }
  config.embedding_size = reader.Int("word_embed_proj_dim", config.hidden_size, 1, kMostHidden);
  ReadActivation(reader, "activation_function", "relu", config);
  ReadTokenIds(reader, {.bos = 2, .eos = {2}, .pad = 1}, config);
  config.norm = NormKind::kLayer;
  config.norm_eps = 1e-5f;  // the framework's default, no key
  const bool norm_first = reader.Bool("do_layer_norm_before", true);
  const bool removed = reader.Bool("_remove_final_layer_norm", false);
  config.post_norm = !norm_first;
  config.final_norm = norm_first && !removed;
  const bool bias = reader.Bool("enable_bias", true);
  config.qkv_bias = config.output_bias = config.mlp_bias = bias;
  config.gated_mlp = false;
  config.learned_positions = true;
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  reader.Neutral("layer_norm_elementwise_affine", true);
  CheckLayerTypes(reader, config);
  reader.Ignore({"activation_dropout", "layerdrop", "init_std"});
}

}  // namespace

KVG_MODEL_FAMILY(opt, {.title = "OPT", .notes = "learned positions", .read = ReadOpt})

}  // namespace kvgauge
