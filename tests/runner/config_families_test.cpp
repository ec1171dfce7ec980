// SPDX-License-Identifier: Apache-2.0
// Families whose golden checkpoints say what a config of theirs looks like: what each key does, and
// what is refused. That the checkpoints run as they should is model_golden.cpp's.
#include <cmath>
#include <filesystem>
#include <set>

#include "runner/config_cases.h"
#include "runner/model.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<bool> Moe(const ModelConfig& config) {
  std::vector<bool> moe;
  for (const LayerConfig& layer : config.layers) moe.push_back(layer.moe);
  return moe;
}
std::vector<bool> Local(const ModelConfig& config) {
  std::vector<bool> local;
  for (const LayerConfig& layer : config.layers) local.push_back(layer.local_rope);
  return local;
}

TEST(ConfigFamilies, EveryFamilyHasAGolden) {
  std::set<std::string> proved;
  const auto folder = std::filesystem::path(KVG_TEST_DATA) / "golden" / "models";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    proved.insert(Golden(entry.path().filename())["model_type"]);
  }
  for (const FamilyInfo& family : ModelFamilies()) {
    EXPECT_TRUE(proved.contains(std::string(family.model_type))) << family.model_type;
  }
}

TEST(ConfigFamilies, WhatNobodyReadsIsRefused) {
  for (const auto& [family, golden] : kGoldenFamilies) {
    SCOPED_TRACE(family);
    const Json base = Golden(golden);
    EXPECT_EQ(Parse(base).family, family);
    ExpectRefused(With(base, {{"attention_sinks", 4}}), "attention_sinks", "forward pass");
    ExpectRefused(With(base, {{"quantization_config", {{"quant_method", "hqq"}}}}),
                  "quantization_config.quant_method");
    ExpectRefused(With(base, {{"vocab_size", 0}}), "vocab_size", "0");
    ExpectRefused(With(base, {{"tie_word_embeddings", 3}}), "tie_word_embeddings");
    // One number more is no config that could be run.
    for (const auto& [key, value] : base.items()) {
      if (!value.is_number_integer() || value < 1) continue;
      (void)ParseModelConfig(With(base, {{key, int64_t{1} << 62}}), kOrigin);
      (void)ParseModelConfig(With(base, {{key, 0}}), kOrigin);
      (void)ParseModelConfig(With(base, {{key, 3}}), kOrigin);
    }
  }
}

TEST(ConfigFamilies, KnownAndNotRun) {
  for (const char* family : {"kimi_linear", "deepseek_v32", "deepseek_v4"}) {
    ExpectRefused(With(Base("llama"), {{"model_type", family}}), "model_type", "is not run: ");
  }
  ExpectRefused(With(Base("llama"), {{"model_type", "mixtrall"}}), "model_type", "mixtral");
}

TEST(ConfigFamilies, SlopesOfDistances) {
  using ::testing::ElementsAre;
  EXPECT_THAT(Parse(Golden("bloom")).distance_slopes,
              ElementsAre(0.25f, 0.0625f, 0.015625f, 0.00390625f));
  EXPECT_THAT(Parse(Golden("bloom_heads")).distance_slopes,
              ElementsAre(0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f));
  ExpectRefused(With(Golden("bloom"), {{"num_attention_heads", 8}}), "num_attention_heads",
                "n_head");
  ExpectRefused(With(Golden("bloom"), {{"apply_residual_connection_post_layernorm", true}}),
                "apply_residual_connection_post_layernorm");

  const Json mpt = Golden("mpt_clip");
  const ModelConfig config = Parse(mpt);
  EXPECT_THAT(config.distance_slopes, ElementsAre(0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f));
  EXPECT_EQ(config.qkv_limit, 0.75f);
  EXPECT_EQ(config.attention_scale, 0.25f);
  const auto changed = [&](const Json& keys) {
    return With(mpt, {{"attn_config", With(mpt["attn_config"], keys)}});
  };
  EXPECT_EQ(Parse(changed({{"alibi_bias_max", 16}})).distance_slopes[0], 0.0625f);
  ExpectRefused(changed({{"alibi", false}}), "attn_config.alibi");
  ExpectRefused(changed({{"attn_type", "multiquery_attention"}}), "attn_config.attn_type");
  ExpectRefused(changed({{"kv_n_heads", 2}}), "attn_config.kv_n_heads");
  ExpectRefused(With(mpt, {{"attn_config", 3}}), "attn_config", "object");
  ExpectRefused(With(mpt, {{"expansion_ratio", 2}}), "expansion_ratio", "4");
}

TEST(ConfigFamilies, LayersOfConstantState) {
  const auto states = [](const ModelConfig& config) {
    std::vector<bool> which;
    for (const LayerConfig& layer : config.layers) which.push_back(layer.state);
    return which;
  };
  const Json qwen = Golden("qwen3_next"), bamba = Golden("bamba");
  const ModelConfig config = Parse(qwen);
  EXPECT_THAT(states(config), ElementsAre(true, true, true, false));
  EXPECT_EQ(config.cache_count(), 1);
  EXPECT_EQ(config.CacheOf(3), 0);
  EXPECT_EQ(config.LayerOf(0), 3);
  EXPECT_EQ(config.StateOf(2), 2);
  EXPECT_FALSE(config.SharesCaches());
  EXPECT_EQ(config.OfCaches().layer_count(), 1);
  EXPECT_EQ(config.KvBytesPerToken(DType::kF16), 2 * (16 + 16) * 2);
  // Three rows of a convolution over queries, keys and values, and a matrix for each head.
  EXPECT_EQ(config.StateBytes(), 3 * 4 * (3 * (2 * 2 * 8 + 4 * 6) + 4 * 8 * 6));
  EXPECT_EQ(config.rope->rotary_dim, 4);
  const Json types = {"full_attention", "linear_attention", "full_attention", "linear_attention"};
  EXPECT_THAT(states(Parse(With(qwen, {{"layer_types", types}}))),
              ElementsAre(false, true, false, true));
  ExpectRefused(With(qwen, {{"full_attention_interval", 5}}), "num_hidden_layers", "no cache");
  ExpectRefused(With(qwen, {{"layer_types", {"full_attention"}}}), "layer_types", "4 entries");
  ExpectRefused(With(qwen, {{"linear_num_value_heads", 3}}), "linear_num_value_heads", "multiple");
  EXPECT_THAT(states(Parse(bamba)), ElementsAre(true, false, true));
  ExpectRefused(With(bamba, {{"attn_layer_indices", nullptr}}), "attn_layer_indices", "no cache");
  ExpectRefused(With(bamba, {{"mamba_d_head", 8}}), "mamba_n_heads", "64 columns");
  ExpectRefused(With(bamba, {{"mamba_n_groups", 3}}), "mamba_n_groups", "divisor");
  EXPECT_EQ(Parse(bamba).state->norm_groups, 2);
  ExpectRefused(With(bamba, {{"time_step_limit", {1, "x"}}}), "time_step_limit", "two numbers");
  const Json limit = {0.5, {{"__float__", "Infinity"}}};
  EXPECT_EQ(Parse(With(bamba, {{"time_step_limit", limit}})).state->least_step, 0.5);
}

TEST(ConfigFamilies, ExpertsBesideStates) {
  const Json golden = Golden("granitemoehybrid_moe");
  const ModelConfig granite = Parse(golden);
  EXPECT_THAT(Moe(granite), ElementsAre(true, true, true));
  EXPECT_TRUE(granite.moe->renormalize && granite.tensor_names.shared_as_mlp);
  EXPECT_EQ(granite.moe->expert_ffn_size, 12);
  EXPECT_EQ(granite.moe->shared_ffn_size, 20);
  EXPECT_FALSE(Parse(Golden("granitemoehybrid")).moe);
  ExpectRefused(With(golden, {{"num_experts_per_tok", 1}}), "num_experts_per_tok", "at least 2");
  ExpectRefused(With(golden, {{"num_experts_per_tok", 5}}), "num_experts_per_tok", "4");
  ExpectRefused(With(golden, {{"num_local_experts", -1}}), "num_local_experts");
  const Json qwen = Golden("qwen3_5_moe_text");
  const ModelConfig config = Parse(qwen);
  EXPECT_THAT(Moe(config), ElementsAre(true, true, true, true));
  EXPECT_TRUE(config.moe->shared_gate && config.moe->renormalize);
  Json seeing = Golden("qwen3_5_moe");
  EXPECT_EQ(Parse(seeing).vision_family, "qwen3_5_moe");
  EXPECT_EQ(Parse(seeing).visual_ids.vision_start, 95);
  // What the class has where a file says nothing.
  for (const char* key :
       {"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"}) {
    seeing.erase(key);
  }
  const VisualIds ids = Parse(seeing).visual_ids;
  EXPECT_EQ(ids.vision_start, 248053);
  EXPECT_EQ(ids.vision_end, 248054);
  EXPECT_EQ(ids.image, 248056);
  EXPECT_EQ(ids.video, 248057);
  ExpectRefused(With(qwen, {{"mlp_only_layers", {1}}}), "mlp_only_layers", "[]");
  ExpectRefused(With(qwen, {{"norm_topk_prob", false}}), "norm_topk_prob", "true");
  ExpectRefused(With(qwen, {{"num_experts_per_tok", 1}}), "num_experts_per_tok", "at least 2");
}

TEST(ConfigFamilies, StatesWithoutAnyCache) {
  const Json golden = Golden("mamba2");
  const ModelConfig config = Parse(golden);
  EXPECT_EQ(config.cache_count(), 0);
  EXPECT_EQ(config.state_count(), 3);
  EXPECT_EQ(config.KvBytesPerToken(DType::kF32), 0);
  EXPECT_EQ(config.KvReachBytes(1000, DType::kF32), 0);
  EXPECT_EQ(config.StateBytes(), 3 * 4 * (3 * (64 + 2 * 2 * 8) + 4 * 8 * 16));
  EXPECT_EQ(config.state->norm_groups, 2);
  ExpectRefused(With(golden, {{"num_heads", 3}}), "num_heads", "64 columns of expand");
  ExpectRefused(With(golden, {{"n_groups", 3}}), "n_groups", "divisor");
  ExpectRefused(With(golden, {{"rms_norm", false}}), "rms_norm", "true");
  ExpectRefused(With(golden, {{"state_size", 0}}), "state_size");
  ExpectRefused(With(golden, {{"conv_kernel", "four"}}), "conv_kernel");
  const Json mamba = Golden("mamba");
  EXPECT_EQ(Parse(mamba).StateBytes(), 3 * 4 * (3 * 64 + 64 * 8));
  EXPECT_TRUE(Parse(mamba).tied_head && Parse(mamba).state->input_bias);
  EXPECT_EQ(Parse(With(mamba, {{"time_step_rank", "auto"}})).state->step_rank, 2);
  ExpectRefused(With(mamba, {{"intermediate_size", 48}}), "intermediate_size", "64");
  ExpectRefused(With(mamba, {{"time_step_rank", "some"}}), "time_step_rank");
  Json headless = mamba;
  headless.erase("hidden_size");
  ExpectRefused(headless, "hidden_size");
  const ModelConfig falcon = Parse(Golden("falcon_mamba"));
  EXPECT_EQ(falcon.state->width(), 48);
  EXPECT_EQ(falcon.state->part_norms, StateConfig::PartNorms::kPlain);
  ExpectRefused(With(Golden("falcon_mamba"), {{"mixer_rms_eps", -1}}), "mixer_rms_eps");
}

TEST(ConfigFamilies, StreamsThatShareCaches) {
  const Json golden = Golden("gemma3n_text");
  const ModelConfig config = Parse(golden);
  EXPECT_EQ(config.cache_count(), 2);
  EXPECT_TRUE(config.SharesCaches() && config.value_norm);
  std::vector<int64_t> reads;
  for (const LayerConfig& layer : config.layers) reads.push_back(layer.reads);
  EXPECT_THAT(reads, ElementsAre(-1, -1, 0, 0, 1));
  EXPECT_THAT(Local(config), ElementsAre(true, false, true, true, false));
  EXPECT_EQ(config.attention_scale, 1.0f);
  // A tenth of a normal number's values is larger.
  EXPECT_NEAR(config.layers[0].gate_deviations, 1.2815516, 1e-6);
  EXPECT_EQ(config.layers[2].gate_deviations, 0.0f);
  EXPECT_EQ(config.layer_embeddings->columns, 6);
  Json absent = golden;
  absent.erase("activation_sparsity_pattern");
  EXPECT_EQ(Parse(absent).layers[0].gate_deviations, 0.0f);
  EXPECT_EQ(Parse(With(golden, {{"intermediate_size", 28}})).ffn_size, 28);
  ExpectRefused(With(golden, {{"intermediate_size", {28, 28, 28, 28, 30}}}), "intermediate_size");
  ExpectRefused(With(golden, {{"activation_sparsity_pattern", {0.9}}}),
                "activation_sparsity_pattern", "5 shares");
  ExpectRefused(With(golden, {{"activation_sparsity_pattern", {1.0, 0, 0, 0, 0}}}),
                "activation_sparsity_pattern");
  ExpectRefused(With(golden, {{"num_kv_shared_layers", 4}}), "num_kv_shared_layers", "layer 1");
  ExpectRefused(With(golden, {{"num_kv_shared_layers", 5}}), "num_kv_shared_layers", "less than");
  ExpectRefused(With(golden, {{"num_kv_shared_layers", 0}}), "num_kv_shared_layers");
  ExpectRefused(With(golden, {{"altup_active_idx", 4}}), "altup_active_idx", "(4)");
  const ModelConfig whole = Parse(Golden("gemma3n"));
  EXPECT_EQ(whole.vision_family, "gemma3n");
  EXPECT_EQ(whole.visual_ids.image, 97);
}

TEST(ConfigFamilies, EncodersBesideALlama) {
  const Json golden = Golden("cepe");
  const ModelConfig config = Parse(golden);
  ASSERT_NE(config.encoder, nullptr);
  EXPECT_EQ(config.encoder->hidden_size, 24);
  EXPECT_EQ(config.encoder->layer_count(), 2);
  EXPECT_EQ(config.encoder->kv_heads, 3);
  EXPECT_FALSE(config.layers[0].crosses);
  EXPECT_TRUE(config.layers[1].crosses && config.layers[2].crosses);
  EXPECT_EQ(ShapeOf(config, DType::kF32).encoder_width, 24);
  EXPECT_EQ(Parse(Golden("llama3")).encoder, nullptr);

  ExpectRefused(With(golden, {{"num_cross_attn_layers", 4}}), "num_cross_attn_layers", "3");
  ExpectRefused(With(golden, {{"num_cross_attn_layers", 0}}), "encoder_config", "null");
  ExpectRefused(With(golden, {{"encoder_config", nullptr}}), "encoder_config", "the config of");
  ExpectRefused(With(golden, {{"encoder_hidden_size", 32}}), "encoder_hidden_size", "24");
  ExpectRefused(With(golden, {{"encoder_is_model", true}}), "encoder_is_model", "false");
  ExpectRefused(With(golden, {{"num_cross_attn_hidden_states", 2}}), "num_cross_attn_hidden_states",
                "1");
  ExpectRefused(With(golden, {{"encode_mode", "with_query-64"}}), "encode_mode", "context_only");
  Json causal = golden;
  causal["encoder_config"]["is_decoder"] = true;
  ExpectRefused(causal, "encoder_config.is_decoder", "false");
  Json unknown = golden;
  unknown["encoder_config"]["sliding_window"] = 64;
  ExpectRefused(unknown, "encoder_config.sliding_window");
}

TEST(ConfigFamilies, StatesAroundAndBesideAttention) {
  const Json golden = Golden("jamba");
  const ModelConfig jamba = Parse(golden);
  EXPECT_THAT(Moe(jamba), ElementsAre(false, true, false, true));
  EXPECT_EQ(jamba.cache_count(), 1);
  EXPECT_EQ(jamba.LayerOf(0), 2);
  EXPECT_FALSE(jamba.rope || jamba.moe->renormalize);
  EXPECT_EQ(jamba.state->part_norms, StateConfig::PartNorms::kWeighed);
  EXPECT_FALSE(Parse(With(golden, {{"num_experts", 1}})).moe);
  ExpectRefused(With(golden, {{"attn_layer_offset", 4}}), "attn_layer_offset", "less than");
  ExpectRefused(With(golden, {{"attn_layer_period", 9}, {"attn_layer_offset", 8}}),
                "attn_layer_offset", "no cache");
  ExpectRefused(With(golden, {{"mamba_inner_layernorms", false}}), "mamba_inner_layernorms");
  ExpectRefused(With(golden, {{"sliding_window", 8}}), "sliding_window");
  const Json falcon = Golden("falcon_h1");
  const ModelConfig both = Parse(falcon);
  EXPECT_EQ(both.cache_count(), 2);
  EXPECT_EQ(both.state_count(), 2);
  EXPECT_FALSE(both.SharesCaches() || both.state->norm);
  EXPECT_EQ(both.state->width(), 48);
  EXPECT_FLOAT_EQ(both.multipliers->keys, 0.45f);
  EXPECT_FLOAT_EQ(both.multipliers->steps, 0.75f);
  EXPECT_EQ(
      Parse(With(falcon, {{"mamba_d_ssm", nullptr}, {"mamba_d_head", "auto"}})).state->width(), 64);
  EXPECT_TRUE(Parse(Golden("falcon_h1_norm")).state->norm_first);
  ExpectRefused(With(falcon, {{"ssm_multipliers", {1.0, 2.0}}}), "ssm_multipliers", "5 numbers");
  ExpectRefused(With(falcon, {{"mlp_multipliers", {1.0, "x"}}}), "mlp_multipliers");
  ExpectRefused(With(falcon, {{"projectors_bias", true}}), "projectors_bias");
  ExpectRefused(With(falcon, {{"mamba_d_head", 8}}), "mamba_n_heads", "48 columns of mamba_d_ssm");
  ExpectRefused(With(falcon, {{"attn_layer_indices", {0}}}), "attn_layer_indices");
}

TEST(ConfigFamilies, LayersThatAreOneThingAlone) {
  const Json golden = Golden("nemotron_h"), experts = Golden("nemotron_h_moe");
  const ModelConfig config = Parse(golden);
  EXPECT_EQ(config.layer_count(), 5);
  EXPECT_EQ(config.cache_count(), 1);
  EXPECT_EQ(config.LayerOf(0), 2);
  EXPECT_EQ(config.state_count(), 2);
  EXPECT_EQ(std::ranges::count_if(config.layers, &LayerConfig::mlp), 2);
  EXPECT_TRUE(config.squared_activation && !config.rope && !config.gated_mlp && !config.moe);
  EXPECT_EQ(config.state->norm_groups, 2);
  EXPECT_EQ(config.state->activation, Activation::kSilu);
  // Heads say how wide a state is, whatever `expand` says.
  EXPECT_EQ(config.state->width(), 48);
  const auto changed = [&](const char* key, const Json& value) {
    return With(golden, {{key, value}});
  };
  EXPECT_EQ(Parse(changed("expand", 7)).state->width(), 48);
  Json listed = golden;
  listed.erase("hybrid_override_pattern");
  ExpectRefused(listed, "hybrid_override_pattern", "attends");
  listed["layers_block_type"] = {"mamba", "mlp", "full_attention", "linear_attention", "mlp"};
  EXPECT_EQ(Parse(listed).LayerOf(0), 2);
  listed.erase("num_hidden_layers");
  EXPECT_EQ(Parse(listed).layer_count(), 5);
  ExpectRefused(With(listed, {{"hybrid_override_pattern", "M-*M*"}}), "hybrid_override_pattern",
                "M-*M-");
  ExpectRefused(With(listed, {{"layers_block_type", {"mamba", "window"}}}), "layers_block_type",
                "'window'");
  ExpectRefused(changed("hybrid_override_pattern", "M-*MX"), "hybrid_override_pattern", "E (exp");
  ExpectRefused(changed("hybrid_override_pattern", "M-MM-"), "hybrid_override_pattern", "no cache");
  ExpectRefused(changed("hybrid_override_pattern", "M-*M"), "num_hidden_layers", "4");
  ExpectRefused(changed("hybrid_override_pattern", std::string(5000, 'M') + "*"),
                "hybrid_override_pattern", "4096 layers");
  ExpectRefused(changed("mlp_hidden_act", "silu"), "mlp_hidden_act", "relu2");
  ExpectRefused(changed("mamba_hidden_act", "relu"), "mamba_hidden_act", "silu");
  ExpectRefused(changed("rms_norm_eps", 1e-6), "rms_norm_eps", "layer_norm_epsilon");
  ExpectRefused(changed("attention_head_dim", 9), "attention_head_dim", "head_dim");
  ExpectRefused(changed("n_groups", 3), "n_groups", "divisor");
  EXPECT_THAT(Moe(Parse(experts)), ElementsAre(false, true, false, true, false));
  EXPECT_EQ(Parse(experts).moe->shared_ffn_size, 20);
  ExpectRefused(With(experts, {{"moe_latent_size", 16}}), "moe_latent_size", "not run");
  ExpectRefused(With(experts, {{"n_shared_experts", 2}}), "n_shared_experts", "1");
}

TEST(ConfigFamilies, LayersThatReadTheCachesOfOthers) {
  const Json golden = Golden("lckv_cla");
  const auto reads = [&](const char* map) {
    std::vector<int64_t> read;
    const ModelConfig config = Parse(With(golden, {{"layer_types", map}, {"sliding_window", 9}}));
    for (const LayerConfig& layer : config.layers) read.push_back(layer.reads);
    return read;
  };
  EXPECT_THAT(reads("0_0_2_2"), ElementsAre(-1, 0, -1, 2));
  EXPECT_THAT(reads("0_1_1_0"), ElementsAre(-1, -1, 1, 0));
  EXPECT_THAT(reads("0s_0s_2_2"), ElementsAre(-1, 0, -1, 2));
  EXPECT_THAT(Windows(Parse(With(golden, {{"layer_types", "0s_0s_2_2"}, {"sliding_window", 9}}))),
              ElementsAre(9, 9, 0, 0));
  EXPECT_FALSE(Parse(With(golden, {{"layer_types", nullptr}})).SharesCaches());
  EXPECT_EQ(Parse(golden).cache_count(), 2);
  for (const auto& [map, why] : std::vector<std::pair<const char*, const char*>>{
           {"0_2s_2_2", "here layer 1 reads 2"},
           {"1_2_2_3", "which reads that of layer 2"},
           {"0_0_1_2", "which reads that of layer 0"},
           {"0_0_2", "3 layers say whose cache they read"},
           {"0_0_2_2_4", "a layer's number for each of 4 layers"},
           {"0_0_x_2", "a layer's number"},
           {"0_0_2_99999", "a layer's number"},
           {"0_0s_2_2", "another window"}}) {
    ExpectRefused(With(golden, {{"layer_types", map}}), "layer_types", why);
  }
  ExpectRefused(With(golden, {{"layer_types", {"full_attention"}}}), "layer_types");
  ExpectRefused(With(golden, {{"force_nodiag", true}}), "force_nodiag");
  EXPECT_EQ(Parse(golden).prompt_passes, 1);
}

TEST(ConfigFamilies, LayersThatReadLaterOnes) {
  const Json top = Golden("lckv_top");
  const ModelConfig config = Parse(top);
  EXPECT_EQ(config.prompt_passes, 9);
  EXPECT_EQ(config.cache_count(), 3);
  EXPECT_EQ(config.CacheOf(1), 1);
  EXPECT_EQ(config.CacheOf(4), 2);
  EXPECT_TRUE(!config.ReadsLater(0) && config.ReadsLater(2) && !config.ReadsLater(3));
  EXPECT_EQ(config.PassedEnd(1), 4);
  EXPECT_EQ(Parse(With(top, {{"forward_passes", 3}, {"backward_passes", 1}})).prompt_passes, 4);
  // The first reads layer 1; between them and what layer 2 reads there is no gap.
  const Json six = Golden("lckv_groups");
  EXPECT_EQ(Parse(six).PassedEnd(0), 3);
  EXPECT_EQ(Parse(six).PassedEnd(4), 6);
  EXPECT_EQ(Parse(With(six, {{"layer_types", "2_4_2_3_4_5"}})).PassedEnd(0), 5);
  EXPECT_EQ(Parse(With(six, {{"layer_types", nullptr}})).prompt_passes, 1);
  ExpectRefused(With(top, {{"use_sequential", true}}), "use_sequential");
  ExpectRefused(With(top, {{"backward_passes", 0}}), "backward_passes");
  ExpectRefused(With(top, {{"forward_passes", 100000}}), "forward_passes");
}

TEST(ConfigFamilies, TwoDecoders) {
  const Json golden = Golden("block_transformer");
  const ModelConfig config = Parse(golden);
  EXPECT_EQ(config.layer_count(), 3);
  EXPECT_EQ(config.block_layer_count(), 2);
  EXPECT_EQ(config.cache_count(), 2);
  EXPECT_EQ(config.blocks->rows(), 5);
  EXPECT_TRUE(!config.blocks->projects && config.parallel && config.qkv_bias);
  EXPECT_EQ(config.EntryTokens(), 4);
  EXPECT_EQ(config.OfCaches().layer_count(), 2);
  // One decoder's layers have a cache, the other one's a state.
  EXPECT_EQ(config.StateOf(2), 0);
  EXPECT_EQ(config.LayerOf(1), 1);
  EXPECT_THAT(config.StateNumbers(), ElementsAre(5 * 2 * 32));
  const Json projected = With(golden, {{"projection_method", "projection_layer"}});
  EXPECT_TRUE(Parse(With(projected, {{"embedder_hidden_size", 5}})).blocks->projects);
  for (const char* key : {"block_length", "block_decoder_layers", "token_decoder_layers",
                          "expansion_ratio", "embedder_hidden_size", "intermediate_size"}) {
    Json without = golden;
    without.erase(key);
    ExpectRefused(without, key, "missing");
    ExpectRefused(With(golden, {{key, 0}}), key, "0");
  }
  ExpectRefused(With(golden, {{"block_length", 1}}), "block_length", "2");
  ExpectRefused(With(golden, {{"expansion_ratio", 62}}), "expansion_ratio", "at most 61");
  ExpectRefused(With(golden, {{"embedder_hidden_size", 9}}), "embedder_hidden_size",
                "divided by block_length");
  ExpectRefused(With(golden, {{"projection_method", "mean"}}), "projection_method", "concat");
  ExpectRefused(With(golden, {{"num_hidden_layers", 3}}), "num_hidden_layers", "forward pass");
}

TEST(ConfigFamilies, Mixtures) {
  const ModelConfig mixtral = Parse(Golden("mixtral"));
  EXPECT_THAT(Moe(mixtral), ElementsAre(true, true));
  EXPECT_TRUE(mixtral.moe->renormalize && mixtral.moe->shared_ffn_size == 0);
  EXPECT_EQ(mixtral.moe->expert_ffn_size, 16);
  ExpectRefused(With(Golden("mixtral"), {{"num_experts_per_tok", 1}}), "num_experts_per_tok");
  ExpectRefused(With(Golden("mixtral"), {{"num_experts_per_tok", 5}}), "num_experts_per_tok", "4");

  const Json qwen2 = Golden("qwen2_moe");
  const ModelConfig config = Parse(qwen2);
  EXPECT_THAT(Moe(config), ElementsAre(false, true, true));
  EXPECT_TRUE(config.moe->shared_gate && !config.moe->renormalize && config.qkv_bias);
  EXPECT_EQ(config.moe->shared_ffn_size, 20);
  ExpectRefused(With(qwen2, {{"use_sliding_window", true}}), "use_sliding_window", "disagree");
  ExpectRefused(With(qwen2, {{"mlp_only_layers", {7}}}), "mlp_only_layers");
  ExpectRefused(With(qwen2, {{"norm_topk_prob", true}, {"num_experts_per_tok", 1}}),
                "num_experts_per_tok", "at least 2");
  EXPECT_THAT(Moe(Parse(Golden("qwen3_moe"))), ElementsAre(false, true));
  EXPECT_TRUE(Parse(Golden("qwen3_moe")).qk_norm);

  const Json deepseek = Golden("deepseek_v3");
  const ModelConfig latent = Parse(deepseek);
  EXPECT_TRUE(latent.mla && latent.moe->sigmoid && latent.moe->renormalize);
  EXPECT_EQ(latent.moe->groups, 4);
  EXPECT_EQ(latent.moe->scaling, 2.5);
  EXPECT_EQ(latent.draft_layers, 1);
  // 0.1 ln(40) + 1, squared, over the root of 12.
  EXPECT_NEAR(latent.attention_scale, 1.8738537 / std::sqrt(12.0), 1e-6);
  ExpectRefused(With(deepseek, {{"scoring_func", "softmax"}}), "scoring_func");
  ExpectRefused(With(deepseek, {{"topk_method", "greedy"}}), "topk_method");
  ExpectRefused(With(deepseek, {{"rope_interleave", false}}), "rope_interleave");
  ExpectRefused(With(deepseek, {{"n_group", 3}}), "n_group");
  ExpectRefused(With(deepseek, {{"topk_group", 5}}), "topk_group");
  ExpectRefused(With(deepseek, {{"index_topk", 2048}}), "index_topk");
  const ModelConfig glm = Parse(Golden("glm4_moe"));
  EXPECT_TRUE(glm.moe->sigmoid && glm.qk_norm && !glm.output_bias && glm.qkv_bias);
  EXPECT_EQ(glm.rope->layout, RopeLayout::kHalf);
  EXPECT_EQ(glm.rope->rotary_dim, 4);
}

TEST(ConfigFamilies, LayersThatDoNotTurn) {
  const Json smollm = Golden("smollm3");
  const ModelConfig config = Parse(smollm);
  EXPECT_THAT(Local(config), ElementsAre(false, true, false, true));
  EXPECT_EQ(config.local_rope->kind, RopeKind::kNone);
  const RopeFrequencies still = ComputeRope(*config.local_rope, 100);
  EXPECT_THAT(still.inverse, ::testing::Each(0.0));
  EXPECT_EQ(still.attention_factor, 1.0);
  EXPECT_EQ(std::ssize(still.inverse), config.rope->rotary_dim / 2);
  Json every = smollm;
  every.erase("no_rope_layers");
  every["no_rope_layer_interval"] = 3;
  EXPECT_THAT(Local(Parse(every)), ElementsAre(false, false, true, false));
  ExpectRefused(With(smollm, {{"no_rope_layers", {1, 0}}}), "no_rope_layers", "4");
  ExpectRefused(With(smollm, {{"no_rope_layers", {1, 2, 1, 0}}}), "no_rope_layers");
  ExpectRefused(With(smollm, {{"use_sliding_window", true}}), "use_sliding_window");
  // No file may call a rope that.
  ExpectRefused(With(smollm, {{"rope_scaling", {{"rope_type", "none"}}}}),
                "rope_scaling.rope_type");

  const Json cohere = Golden("cohere2");
  const ModelConfig command = Parse(cohere);
  EXPECT_THAT(Windows(command), ElementsAre(7, 0, 7, 0));
  EXPECT_THAT(Local(command), ElementsAre(false, true, false, true));
  EXPECT_FLOAT_EQ(command.logit_multiplier, 0.25f);
  ExpectRefused(With(cohere, {{"sliding_window", nullptr}}), "sliding_window");
  ExpectRefused(With(cohere, {{"use_qk_norm", true}}), "use_qk_norm");
  ExpectRefused(With(cohere, {{"use_parallel_block", false}}), "use_parallel_block");
  ExpectRefused(With(cohere, {{"rotary_pct", 0.5}}), "rotary_pct");
  ExpectRefused(With(cohere, {{"_sliding_window_pattern", 3}}), "_sliding_window_pattern");
}

TEST(ConfigFamilies, ScalingOfFullLayersAlone) {
  const Json olmo = Golden("olmo3");
  const ModelConfig config = Parse(olmo);
  EXPECT_THAT(Windows(config), ElementsAre(7, 7, 0, 7));
  EXPECT_THAT(Local(config), ElementsAre(true, true, false, true));
  EXPECT_EQ(config.rope->kind, RopeKind::kYarn);
  EXPECT_EQ(config.local_rope->kind, RopeKind::kDefault);
  EXPECT_EQ(config.local_rope->theta, 500000.0);
  EXPECT_TRUE(!config.input_norms && config.output_norms);
  EXPECT_EQ(config.qk_norm_kind, QkNorm::kWidth);
  // Without scaling there is one rope.
  EXPECT_FALSE(Parse(With(olmo, {{"rope_scaling", nullptr}})).local_rope);
  ExpectRefused(With(olmo, {{"sliding_window", nullptr}}), "sliding_window");
  ExpectRefused(With(Golden("olmo2"), {{"clip_qkv", 8.0}}), "clip_qkv");
}

TEST(ConfigFamilies, ExpertsInTurn) {
  const Json golden = Golden("phimoe");
  const ModelConfig phi = Parse(golden);
  EXPECT_TRUE(phi.moe->in_turn && phi.qkv_bias && phi.output_bias && phi.head_bias);
  EXPECT_FALSE(phi.mlp_bias || phi.moe->renormalize);
  EXPECT_EQ(phi.moe->tolerance, 0.5);
  EXPECT_EQ(phi.norm, NormKind::kLayer);
  EXPECT_EQ(phi.rope->attention_factor, 1.243163121016122);
  EXPECT_EQ(Parse(Golden("phimoe_window")).layers[0].window, 7);
  ExpectRefused(With(golden, {{"num_experts_per_tok", 1}}), "num_experts_per_tok", "2");
  ExpectRefused(With(golden, {{"router_jitter_noise", -1}}), "router_jitter_noise");
  const auto scaled = [&](const char* key, const Json& value) {
    Json other = golden;
    other["rope_scaling"][key] = value;
    return other;
  };
  ExpectRefused(scaled("long_mscale", 1.5), "rope_scaling.long_mscale", "short_mscale");
  ExpectRefused(scaled("short_mscale", nullptr), "rope_scaling.short_mscale");
  ExpectRefused(scaled("attention_factor", 1.0), "rope_scaling.attention_factor");
  ExpectRefused(scaled("type", "yarn"), "rope_scaling.type", "longrope");
}

TEST(ConfigFamilies, Chunks) {
  const Json golden = Golden("llama4_text");
  const ModelConfig llama = Parse(golden);
  EXPECT_THAT(Windows(llama), ElementsAre(9, 0, 9));
  EXPECT_THAT(Moe(llama), ElementsAre(false, true, false));
  EXPECT_THAT(Local(llama), ElementsAre(false, true, false));
  EXPECT_TRUE(llama.layers[2].chunked && !llama.layers[1].chunked && !llama.qk_norm);
  EXPECT_TRUE(llama.moe->weighs_inputs && llama.moe->shared_ffn_size == 12);
  EXPECT_EQ(llama.query_growth->every, 5.0);
  // 18 tokens end a chunk, one more begins the next.
  EXPECT_EQ(llama.KvReachBytes(18, DType::kF32), (9 + 18 + 9) * 2 * 16 * 4);
  EXPECT_EQ(llama.KvReachBytes(19, DType::kF32), (1 + 19 + 1) * 2 * 16 * 4);
  // In the first files of the family a number says yes, and an empty list says nothing.
  EXPECT_FALSE(Parse(With(golden, {{"attn_temperature_tuning", 0}})).query_growth);
  EXPECT_TRUE(Parse(With(golden, {{"attn_temperature_tuning", true}})).query_growth);
  EXPECT_THAT(Moe(Parse(With(golden, {{"moe_layers", {0}}}))), ElementsAre(true, false, false));
  Json turning = With(golden, {{"no_rope_layers", {1, 1, 1}}});
  turning.erase("layer_types");
  EXPECT_THAT(Windows(Parse(turning)), ElementsAre(9, 9, 9));
  EXPECT_FALSE(Parse(turning).local_rope);
  const ModelConfig seeing = Parse(Golden("llama4"));
  EXPECT_EQ(seeing.vision_family, "llama4");
  EXPECT_EQ(seeing.qk_norm_kind, QkNorm::kLength);
  EXPECT_TRUE(seeing.qk_norm);
  ExpectRefused(With(golden, {{"attention_chunk_size", nullptr}}), "attention_chunk_size");
  ExpectRefused(With(golden, {{"layer_types", {"chunked_attention"}}}), "layer_types", "3");
  ExpectRefused(
      With(golden, {{"layer_types", {"chunked_attention", "sliding_attention", "full_attention"}}}),
      "layer_types", "sliding_attention");
  ExpectRefused(With(golden, {{"attention_bias", true}}), "attention_bias");
  ExpectRefused(With(golden, {{"moe_layers", {3}}}), "moe_layers", "2");
  ExpectRefused(With(golden, {{"use_qk_norm", true},
                              {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}}),
                "use_qk_norm");
}

TEST(ConfigFamilies, LogitsWithoutValues) {
  const ModelConfig oss = Parse(Golden("gpt_oss"));
  EXPECT_TRUE(oss.sinks && oss.router_bias && oss.qkv_bias && oss.output_bias && oss.mlp_bias);
  EXPECT_EQ(oss.mlp_limit, 7.0f);
  EXPECT_EQ(oss.layers[0].window, 9);
  EXPECT_EQ(oss.layers[1].window, 0);
  EXPECT_EQ(oss.KvReachBytes(100, DType::kF32), (9 + 100) * 2 * 16 * 4);
  EXPECT_TRUE(oss.moe->renormalize && !oss.rope->truncate);
  EXPECT_EQ(Parse(Golden("gpt_oss_mxfp4")).weight_format, "mxfp4: experts");
  Json absent = Golden("gpt_oss");
  absent.erase("layer_types");
  EXPECT_EQ(Parse(absent).layers[0].window, 9);
  absent.erase("rope_scaling");
  ExpectRefused(absent, "rope_scaling");
  ExpectRefused(With(Golden("gpt_oss"), {{"swiglu_limit", 5.0}}), "swiglu_limit", "7");
  ExpectRefused(With(Golden("gpt_oss"), {{"sliding_window", nullptr}}), "sliding_window");
  ExpectRefused(With(Golden("gpt_oss"), {{"experts_per_token", 3}}), "experts_per_token", "2");
  ExpectRefused(With(Golden("gpt_oss"), {{"hidden_act", "gelu"}}), "hidden_act");
}

TEST(ConfigFamilies, Multipliers) {
  const ModelConfig granite = Parse(Golden("granite"));
  EXPECT_EQ(granite.embedding_multiplier, 12.0f);
  EXPECT_EQ(granite.residual_multiplier, 0.22f);
  EXPECT_EQ(granite.attention_scale, 0.2f);
  EXPECT_EQ(granite.logit_multiplier, 0.125f);
  ExpectRefused(With(Golden("granite"), {{"logits_scaling", 0.0}}), "logits_scaling");
  const ModelConfig minicpm = Parse(Golden("minicpm"));
  EXPECT_EQ(minicpm.embedding_multiplier, 12.0f);
  EXPECT_NEAR(minicpm.residual_multiplier, 1.4 / std::sqrt(2.0), 1e-6);
  EXPECT_EQ(minicpm.logit_multiplier, 0.25f);
  Json tied = Golden("minicpm");
  tied.erase("tie_word_embeddings");
  EXPECT_TRUE(Parse(tied).tied_head);
  ExpectRefused(With(Golden("minicpm"), {{"num_experts", 8}}), "num_experts");
  ExpectRefused(With(Golden("minicpm"), {{"sparse_config", Json::object()}}), "sparse_config");
}

TEST(ConfigFamilies, LatentsUnderMultipliers) {
  const ModelConfig config = Parse(Golden("minicpm3"));
  ASSERT_TRUE(config.mla && !config.moe);
  EXPECT_EQ(config.mla->q_lora_rank, 12);
  EXPECT_EQ(config.key_dim, 10);
  EXPECT_EQ(config.value_dim, 8);  // the hidden size by the heads
  EXPECT_EQ(config.rope->layout, RopeLayout::kHalf);
  EXPECT_EQ(config.rope->kind, RopeKind::kLongrope);
  EXPECT_NEAR(config.attention_scale, 1.0 / std::sqrt(10.0), 1e-7);
  EXPECT_EQ(config.embedding_multiplier, 8.0f);
  EXPECT_EQ(config.residual_multiplier, 0.5f);
  EXPECT_EQ(config.logit_multiplier, 0.25f);
  EXPECT_EQ(Parse(With(Golden("minicpm3"), {{"v_head_dim", 6}})).value_dim, 6);
  for (const char* key : {"scale_emb", "scale_depth", "dim_model_base"}) {
    Json without = Golden("minicpm3");
    without.erase(key);
    ExpectRefused(without, key);
  }
  ExpectRefused(With(Golden("minicpm3"), {{"num_key_value_heads", 2}}), "num_key_value_heads");
  ExpectRefused(With(Golden("minicpm3"), {{"attention_bias", true}}), "attention_bias");
}

TEST(ConfigFamilies, SideBySide) {
  const ModelConfig phi = Parse(Golden("phi"));
  EXPECT_TRUE(phi.parallel && phi.shared_norm && phi.head_bias && !phi.qk_norm);
  EXPECT_EQ(Parse(Golden("phi_qk")).qk_norm_kind, QkNorm::kLayer);
  const Json neox = Golden("gpt_neox");
  EXPECT_TRUE(Parse(neox).parallel && !Parse(neox).shared_norm);
  EXPECT_FALSE(Parse(Golden("gpt_neox_sequential")).parallel);
  EXPECT_EQ(Parse(neox).rope->rotary_dim, 2);
  EXPECT_EQ(Parse(With(neox, {{"rope_theta", 10000}, {"partial_rotary_factor", 0.25}})).family,
            "gpt_neox");
  ExpectRefused(With(neox, {{"rope_theta", 500.0}}), "rope_theta", "rotary_emb_base");
  ExpectRefused(With(neox, {{"partial_rotary_factor", 0.5}}), "partial_rotary_factor",
                "rotary_pct");
  ExpectRefused(With(neox, {{"num_attention_heads", 5}}), "num_attention_heads", "32");
  const Json gptj = Golden("gptj");
  EXPECT_EQ(Parse(gptj).rope->layout, RopeLayout::kInterleaved);
  EXPECT_EQ(Parse(gptj).ffn_size, 128);
  ExpectRefused(With(gptj, {{"rotary_dim", 10}}), "rotary_dim", "8");
  ExpectRefused(With(gptj, {{"rotary", false}}), "rotary");
  ExpectRefused(With(gptj, {{"scale_attn_weights", false}}), "scale_attn_weights");
  const ModelConfig big = Parse(Golden("stablelm_12b"));
  EXPECT_TRUE(big.parallel && big.shared_norm && big.qk_norm);
  EXPECT_EQ(big.qk_norm_kind, QkNorm::kLayerLists);
  EXPECT_EQ(Parse(Golden("cohere_qk")).qk_norm_kind, QkNorm::kLayerHeads);
}

TEST(ConfigFamilies, FalconHeads) {
  const Json one = Golden("falcon");
  EXPECT_EQ(Parse(one).kv_heads, 1);
  EXPECT_TRUE(Parse(one).parallel && Parse(one).shared_norm);
  const Json grouped = Golden("falcon_40b");
  EXPECT_EQ(Parse(grouped).kv_heads, 2);
  EXPECT_TRUE(Parse(grouped).parallel && !Parse(grouped).shared_norm);
  EXPECT_EQ(Parse(grouped).tensor_names.mlp_norm, "ln_mlp");
  const ModelConfig second = Parse(With(grouped, {{"num_ln_in_parallel_attn", 1}}));
  EXPECT_TRUE(second.shared_norm);
  EXPECT_EQ(second.tensor_names.input_norm, "input_layernorm");
  EXPECT_EQ(Parse(Golden("falcon_bias")).kv_heads, 4);
  EXPECT_FALSE(Parse(Golden("falcon_bias")).parallel);
  EXPECT_TRUE(Parse(one).rope.has_value() && Parse(one).distance_slopes.empty());
  const ModelConfig far = Parse(Golden("falcon_rw"));
  EXPECT_FALSE(far.rope.has_value());
  EXPECT_TRUE(far.rounded_distances);
  EXPECT_EQ(std::ssize(far.distance_slopes), far.query_heads);
  ExpectRefused(With(grouped, {{"num_kv_heads", 3}}), "num_kv_heads");
  ExpectRefused(With(grouped, {{"parallel_attn", false}}), "parallel_attn");
  ExpectRefused(With(one, {{"num_ln_in_parallel_attn", 2}}), "num_ln_in_parallel_attn");
}

TEST(ConfigFamilies, TheRest) {
  const ModelConfig glm = Parse(Golden("glm"));
  EXPECT_EQ(glm.rope->layout, RopeLayout::kInterleaved);
  EXPECT_EQ(glm.rope->rotary_dim, 4);
  EXPECT_TRUE(glm.qkv_bias && !glm.output_bias && !glm.output_norms);
  EXPECT_TRUE(Parse(Golden("glm4")).output_norms && Parse(Golden("glm4")).input_norms);
  const ModelConfig star = Parse(Golden("starcoder2"));
  EXPECT_THAT(Windows(star), ElementsAre(9, 9));
  ExpectRefused(With(Golden("starcoder2"), {{"norm_type", "rms_norm"}}), "norm_type");
  EXPECT_TRUE(Parse(Golden("internlm2")).tensor_names.qkv_by_group);
  EXPECT_EQ(Parse(Golden("internlm2")).rope->kind, RopeKind::kDynamic);
}

}  // namespace
}  // namespace kvgauge
