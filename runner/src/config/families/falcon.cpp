// SPDX-License-Identifier: Apache-2.0
// Falcon 7B, 11B, 40B and 180B, and the models of RefinedWeb's paper.
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

// How many heads keys and values have, which the three layouts say differently.
void ReadFalconHeads(ConfigReader& reader, bool grouped, ModelConfig& config) {
  ReadEvenHeads(reader, "num_attention_heads", config);
  const bool one = reader.Bool("multi_query", true);
  const int64_t given = reader.Int("num_kv_heads", config.query_heads, 1, kMostHeads);
  const int64_t heads = grouped ? given : one ? 1 : config.query_heads;
  SetKvHeads(reader, "num_kv_heads", heads, config);
}

// One norm for attention and MLP side by side, or one for each; or one after the other.
void ReadFalconNorms(ConfigReader& reader, bool grouped, ModelConfig& config) {
  const int64_t norms = reader.Int("num_ln_in_parallel_attn", grouped ? 2 : 1, 1, 2);
  config.norm = NormKind::kLayer;
  config.parallel = reader.Bool("parallel_attn", true);
  config.shared_norm = config.parallel && norms == 1;
  if (grouped && !config.parallel) {
    reader.Fail("parallel_attn", "true with new_decoder_architecture");
  }
  if (!grouped && norms == 2) {
    reader.Fail("num_ln_in_parallel_attn", "1 without new_decoder_architecture");
  }
  if (grouped && norms == 2) {
    config.tensor_names.input_norm = "ln_attn";
    config.tensor_names.mlp_norm = "ln_mlp";
  }
}

void ReadFalcon(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names = BloomNames();
  ReadSizes(reader, SizeKeys{}, 2048, config);
  config.ffn_size = reader.Int("ffn_hidden_size", 4 * config.hidden_size, 1, kMostFfn);
  const bool grouped = reader.Bool("new_decoder_architecture", false);
  ReadFalconHeads(reader, grouped, config);
  ReadFalconNorms(reader, grouped, config);
  ReadNormEps(reader, 1e-5, config, "layer_norm_epsilon");
  ReadActivation(reader, "activation", "gelu", config);
  ReadTokenIds(reader, {.bos = 11, .eos = {11}}, config);
  config.gated_mlp = false;
  config.qkv_bias = config.output_bias = config.mlp_bias = reader.Bool("bias", false);
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  if (reader.Bool("alibi", false)) {
    config.distance_slopes = DistanceSlopes(config.query_heads, 8);
    config.rounded_distances = true;
    reader.Ignore({"rope_theta", "rope_scaling", "rope_parameters"});
  } else {
    ReadRope(reader, {.head_dim = config.key_dim}, config);
  }
  CheckLayerTypes(reader, config);
  reader.Neutral("apply_residual_connection_post_layernorm", false);
}

}  // namespace

KVG_MODEL_FAMILY(
    falcon, {.title = "Falcon 7B, 11B, 40B, 180B, RW 1B, RW 7B",
             .notes = "attention and MLP side by side under one norm or two; one KV head, or some; "
                      "scores of RW count how far a key is (ALiBi)",
             .read = ReadFalcon})

}  // namespace kvgauge
