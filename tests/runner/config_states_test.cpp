// SPDX-License-Identifier: Apache-2.0
// Configs of models whose layers keep states of a kind of their own: RWKV, RetNet and what is made
// of them.
#include "runner/config_cases.h"

namespace kvgauge {
namespace {

TEST(ConfigStates, StatesOfMixedRows) {
  const Json golden = Golden("rwkv");
  const ModelConfig config = Parse(golden);
  EXPECT_EQ(config.cache_count(), 0);
  // The last row of both halves of a layer, and a sum, its weight and its scale for each column.
  EXPECT_EQ(config.StateBytes(), 4 * 4 * (32 + 3 * 32 + 32));
  EXPECT_EQ(config.halve_every, 2);
  EXPECT_EQ(config.max_position, 64);
  EXPECT_TRUE(config.mlp_mixes && config.mlp_weighed && config.layers[0].mlp);
  EXPECT_EQ(Parse(With(golden, {{"rescale_every", 0}})).halve_every, 0);
  EXPECT_EQ(Parse(With(golden, {{"rescale_every", -1}})).halve_every, 0);
  EXPECT_EQ(Parse(With(golden, {{"intermediate_size", nullptr}})).ffn_size, 128);
  ExpectRefused(With(golden, {{"attention_hidden_size", 40}}), "attention_hidden_size", "(32)");
  ExpectRefused(With(golden, {{"rescale_every", "six"}}), "rescale_every");
  ExpectRefused(With(golden, {{"num_attention_heads", 4}}), "num_attention_heads", "forward pass");

  const Json six = Golden("rwkv6");
  const ModelConfig between = Parse(six);
  EXPECT_EQ(between.cache_count(), 0);
  // Four heads of 4 columns of keys and 8 of values.
  EXPECT_EQ(between.StateBytes(), 3 * 4 * (32 + 4 * 4 * 8 + 32));
  EXPECT_TRUE(between.mlp_mixes && between.mlp_weighed && between.embedding_norm);
  EXPECT_FLOAT_EQ(between.state->part_norm_eps, 1e-4f);
  EXPECT_EQ(Parse(With(six, {{"expand_k", 1}})).state->key_dim, 8);
  EXPECT_EQ(Parse(With(six, {{"intermediate_size", nullptr}, {"hidden_ratio", nullptr}})).ffn_size,
            128);
  EXPECT_FALSE(Parse(With(six, {{"norm_first", false}})).embedding_norm);
  ExpectRefused(With(six, {{"num_heads", 5}}), "expand_k", "multiple of 5 heads");
  ExpectRefused(With(six, {{"expand_v", 0.3}}), "expand_v", "multiple of 4 heads");
  ExpectRefused(With(six, {{"proj_low_rank_dim", 0}}), "proj_low_rank_dim");
  ExpectRefused(With(six, {{"hidden_act", "silu"}}), "hidden_act", "sqrelu");
  ExpectRefused(With(six, {{"attn", {{"layers", {1}}}}}), "attn", "null");

  const Json seven = Golden("rwkv7");
  const ModelConfig later = Parse(seven);
  EXPECT_EQ(later.StateBytes(), 3 * 4 * (32 + 4 * 8 * 8 + 32));
  EXPECT_TRUE(later.mlp_mixes && !later.mlp_weighed);
  EXPECT_FLOAT_EQ(later.state->part_norm_eps, 64e-5f);
  EXPECT_EQ(Parse(With(seven, {{"value_dim", 32}})).state->heads, 4);
  EXPECT_EQ(Parse(With(seven, {{"intermediate_size", nullptr}, {"hidden_ratio", 3.5}})).ffn_size,
            128);
  ExpectRefused(With(seven, {{"value_dim", {32, 32, 64}}}), "value_dim", "hidden size (32)");
  ExpectRefused(With(seven, {{"value_dim", {32, 32}}}), "value_dim", "list of 3");
  ExpectRefused(With(seven, {{"head_dim", 5}}), "head_dim", "divisor");
  ExpectRefused(With(seven, {{"hidden_act", "relu"}}), "hidden_act", "sqrelu");
  ExpectRefused(With(seven, {{"attn", {{"layers", {1}}}}}), "attn", "null");
  ExpectRefused(With(seven, {{"v_low_rank_dim", nullptr}}), "v_low_rank_dim");
}

TEST(ConfigStates, KeysMadeAnew) {
  const Json golden = Golden("goldfinch");
  const ModelConfig config = Parse(golden);
  // Two layers keep a matrix for each head, all four the last row of both halves.
  EXPECT_EQ(config.StateBytes(), 4 * (4 * 2 * 32 + 2 * 4 * 8 * 8));
  EXPECT_EQ(config.StateNumbers(0), 2 * 32 + 4 * 8 * 8);
  EXPECT_EQ(config.StateNumbers(2), 2 * 32);
  // One row of 8 numbers for each token, which both layers that attend read.
  EXPECT_EQ(config.cache_count(), 1);
  EXPECT_EQ(config.KvBytesPerToken(DType::kF32), 8 * 4);
  EXPECT_EQ(config.CacheOf(2), 0);
  EXPECT_EQ(config.CacheOf(3), 0);
  EXPECT_FALSE(config.layers[1].attends);
  EXPECT_TRUE(config.layers[3].attends && config.layers[3].state && config.layers[3].rows_alone);
  EXPECT_EQ(config.query_heads, 4);
  EXPECT_EQ(config.made_keys->head_dim, 8);
  EXPECT_EQ(config.ffn_size, 64);
  EXPECT_EQ(Parse(With(golden, {{"dim_ffn", 0}})).ffn_size, 96);
  EXPECT_EQ(Parse(With(golden, {{"kv_cache_compression_ratio", 16}})).key_dim, 2);
  EXPECT_TRUE(Parse(With(golden, {{"inv_other_layer_ratio", 4}})).layers[3].reads < 0);
  ExpectRefused(With(golden, {{"inv_other_layer_ratio", 1}}), "inv_other_layer_ratio",
                "both kinds among 4");
  ExpectRefused(With(golden, {{"kv_cache_compression_ratio", 64}}), "kv_cache_compression_ratio",
                "(32)");
  ExpectRefused(With(golden, {{"dim_att", 64}}), "dim_att", "(32)");
  ExpectRefused(With(golden, {{"head_size", 5}}), "head_size", "divisor");
  ExpectRefused(With(golden, {{"tmix2", ""}}), "tmix2", "gold");
  ExpectRefused(With(golden, {{"use_v2", 0}}), "use_v2", "1");
  for (const char* key : {"rope", "brope", "alibi"}) {
    ExpectRefused(With(golden, {{key, {{"base", 10000}}}}), key, "null");
  }
}

TEST(ConfigStates, StatesOfRetention) {
  const Json golden = Golden("retnet");
  const ModelConfig config = Parse(golden);
  EXPECT_EQ(config.cache_count(), 0);
  EXPECT_EQ(config.StateBytes(), 2 * 4 * (4 * 8 * 16));
  EXPECT_EQ(config.ffn_size, 36);
  EXPECT_EQ(Parse(With(golden, {{"intermediate_size", nullptr}})).ffn_size, 256);
  EXPECT_EQ(Parse(With(golden, {{"expand_v", 1.5}})).state->value_dim, 12);
  ExpectRefused(With(golden, {{"expand_v", 1.1}}), "expand_v", "multiple of 4 heads");
  ExpectRefused(With(golden, {{"num_heads", 3}}), "expand_k", "multiple of 3 heads");
  ExpectRefused(With(golden, {{"num_heads", 32}}), "num_heads", "even width");
  ExpectRefused(With(golden, {{"num_kv_heads", 2}}), "num_kv_heads", "num_heads (4)");
  ExpectRefused(With(golden, {{"use_short_conv", true}}), "use_short_conv", "false");
  ExpectRefused(With(golden, {{"use_output_gate", false}}), "use_output_gate", "true");
  ExpectRefused(With(golden, {{"feature_map", "relu"}}), "feature_map", "null");
  ExpectRefused(With(golden, {{"attn", {{"layers", {1}}}}}), "attn", "null");
}

TEST(ConfigStates, OneCacheAboveStates) {
  const Json golden = Golden("yoco");
  const ModelConfig config = Parse(golden);
  // Three layers keep a matrix for each of two heads, and one cache is read by the three above.
  EXPECT_EQ(config.cache_count(), 1);
  EXPECT_EQ(config.LayerOf(0), 3);
  for (const int64_t layer : {3, 4, 5}) EXPECT_EQ(config.CacheOf(layer), 0);
  EXPECT_FALSE(config.layers[2].attends);
  EXPECT_FALSE(config.layers[3].state);
  EXPECT_EQ(config.KvBytesPerToken(DType::kF32), 2 * 2 * 8 * 4);
  EXPECT_EQ(config.StateBytes(), 3 * 4 * (2 * 16 * 16));
  EXPECT_EQ(Parse(With(golden, {{"num_self_heads", nullptr}})).state->heads, 4);
  // The last of four pairs turns by 1 / theta itself.
  EXPECT_NEAR(std::pow(config.rope->theta, -0.75), 1e-4, 1e-12);
  ExpectRefused(With(golden, {{"num_hidden_layers", 5}}), "num_hidden_layers", "two halves");
  ExpectRefused(With(golden, {{"num_self_heads", 3}}), "num_self_heads", "32");
  ExpectRefused(With(golden, {{"num_self_heads", 32}}), "num_self_heads", "even width");
  ExpectRefused(With(golden, {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}}),
                "rope_scaling", "does not have");
  const Json windowed = Golden("yoco_window");
  const ModelConfig windows = Parse(windowed);
  EXPECT_EQ(windows.cache_count(), 4);
  EXPECT_FALSE(windows.state.has_value());
  EXPECT_EQ(windows.layers[2].window, 7);
  EXPECT_EQ(windows.layers[2].heads->kv_heads, 4);
  EXPECT_EQ(windows.layers[3].window, 0);
  EXPECT_FALSE(windows.layers[3].heads.has_value());
  ExpectRefused(With(windowed, {{"num_self_heads", 2}}), "num_self_heads", "one number");
}

}  // namespace
}  // namespace kvgauge
