// SPDX-License-Identifier: Apache-2.0
// Configs whose layers have heads of several sizes.
#include "runner/config_cases.h"

namespace kvgauge {
namespace {

TEST(ConfigHeadSizes, Gemma4) {
  const Json golden = Golden("gemma4_text");
  const ModelConfig config = Parse(golden);
  EXPECT_FALSE(config.HasEvenHeads());
  EXPECT_EQ(config.HeadsOf(0), (HeadSizes{2, 8, 8, 8}));
  EXPECT_EQ(config.HeadsOf(1), (HeadSizes{1, 16, 16, 16}));
  for (size_t i = 0; i < config.layers.size(); ++i) {
    EXPECT_EQ(config.layers[i].local_rope, i % 2 == 0) << i;
  }
  EXPECT_TRUE(config.layers[1].values_are_keys && !config.layers[0].values_are_keys);
  EXPECT_EQ(config.rope->kind, RopeKind::kProportional);
  EXPECT_EQ(config.rope->turned_dim, 4);
  EXPECT_EQ(config.local_rope->rotary_dim, 8);
  // Two layers of two heads of 8 dims and two of one of 16, keys and values.
  EXPECT_EQ(config.KvBytesPerToken(DType::kF16), 2 * 2 * (2 * 8 + 2 * 8) + 2 * 2 * (16 + 16));
  EXPECT_EQ(config.KvReachBytes(20, DType::kF16), 2 * (2 * 7 * 32 + 2 * 20 * 32));
  // The number of full layers' KV heads is theirs only where values are keys.
  const ModelConfig apart = Parse(With(golden, {{"attention_k_eq_v", false}}));
  EXPECT_EQ(apart.HeadsOf(1), (HeadSizes{2, 16, 16, 16}));
  EXPECT_TRUE(
      Parse(With(golden, {{"attention_k_eq_v", false}, {"global_head_dim", 8}})).HasEvenHeads());
  // The last layer is a full one, whatever the file says.
  EXPECT_EQ(Parse(With(golden, {{"layer_types",
                                 {"sliding_attention", "full_attention", "sliding_attention",
                                  "sliding_attention"}}}))
                .layers[3]
                .window,
            0);
  ExpectRefused(With(golden, {{"num_global_key_value_heads", 3}}), "num_global_key_value_heads",
                "(4)");
  ExpectRefused(With(golden, {{"use_bidirectional_attention", "all"}}),
                "use_bidirectional_attention");
  ExpectRefused(With(golden, {{"hidden_size_per_layer_input", 6}}), "num_kv_shared_layers", "(6)");
  ExpectRefused(With(golden, {{"num_kv_shared_layers", 3}}), "num_kv_shared_layers", "layer 1");
  Json ropes = golden["rope_parameters"];
  ropes["sliding_attention"]["partial_rotary_factor"] = 0.5;
  ExpectRefused(With(golden, {{"rope_parameters", ropes}}),
                "rope_parameters.sliding_attention.partial_rotary_factor");
  ropes = golden["rope_parameters"];
  ropes.erase("full_attention");
  ExpectRefused(With(golden, {{"rope_parameters", ropes}}), "rope_parameters", "full_attention");
  const ModelConfig small = Parse(Golden("gemma4_e"));
  EXPECT_EQ(small.cache_count(), 3);
  EXPECT_EQ(small.FfnSizeOf(2), 28);
  EXPECT_EQ(small.FfnSizeOf(3), 56);
  EXPECT_EQ(small.layer_embeddings->columns, 6);
  const ModelConfig experts = Parse(Golden("gemma4_moe"));
  EXPECT_TRUE(experts.moe->beside_mlp && experts.moe->renormalize);
  ExpectRefused(With(Golden("gemma4_moe"), {{"top_k_experts", 5}}), "top_k_experts", "(4)");
  const ModelConfig whole = Parse(Golden("gemma4"));
  EXPECT_EQ(whole.vision_family, "gemma4");
  EXPECT_EQ(whole.visual_ids.image, 97);
}

}  // namespace
}  // namespace kvgauge
