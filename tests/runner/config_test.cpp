// SPDX-License-Identifier: Apache-2.0
#include "runner/config.h"

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/strings.h"
#include "runner/config_cases.h"
#include "runner/model.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Config, EveryFamilyHasAMinimalConfig) {
  for (const std::string& family : kFamilies) {
    const ModelConfig config = Parse(Base(family));
    EXPECT_EQ(config.family, family);
    EXPECT_EQ(config.path, kOrigin);
    EXPECT_EQ(config.layer_count(), 3);
    EXPECT_EQ(config.embedding_size, 48);
    EXPECT_EQ(config.stored_dtype, DType::kF32);
    EXPECT_EQ(config.rope.has_value(), family != "opt");
    const bool tied = family == "gemma2" || family == "gemma3_text" || family == "opt";
    EXPECT_EQ(config.tied_head, tied) << family;
  }
}

TEST(Config, EveryFamilyIsListed) {
  std::vector<std::string> listed;
  for (const FamilyInfo& family : ModelFamilies()) {
    listed.emplace_back(family.model_type);
    EXPECT_FALSE(family.title.empty()) << family.model_type;
  }
  std::vector<std::string> known = kFamilies;
  for (const auto& [family, golden] : kGoldenFamilies) known.push_back(family);
  EXPECT_THAT(listed, ::testing::UnorderedElementsAreArray(known));
}

TEST(Config, ReadsEveryGoldenModel) {
  const auto folder = std::filesystem::path(KVG_TEST_DATA) / "golden" / "models";
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_directory()) continue;
    const Result<ModelConfig> config = ReadModelConfig(entry.path());
    EXPECT_TRUE(config.ok()) << config.error().message;
    ++models;
  }
  EXPECT_GE(models, 55);
}

TEST(Config, Llama) {
  const ModelConfig config =
      Parse(With(Base("llama"), {{"rms_norm_eps", 1e-5},
                                 {"rope_theta", 5e5},
                                 {"torch_dtype", "bfloat16"},
                                 {"bos_token_id", 3},
                                 {"eos_token_id", {4, 5}},
                                 {"attention_bias", true},
                                 {"tie_word_embeddings", true},
                                 {"rope_scaling",
                                  {{"rope_type", "llama3"},
                                   {"factor", 8.0},
                                   {"low_freq_factor", 1.0},
                                   {"high_freq_factor", 4.0},
                                   {"original_max_position_embeddings", 256}}}}));
  EXPECT_EQ(config.key_dim, 8);
  EXPECT_EQ(config.value_dim, 8);
  EXPECT_FLOAT_EQ(config.attention_scale, 1.0f / std::sqrt(8.0f));
  EXPECT_FLOAT_EQ(config.norm_eps, 1e-5f);
  EXPECT_EQ(config.stored_dtype, DType::kBF16);
  EXPECT_EQ(config.bos_id, 3);
  EXPECT_EQ(config.pad_id, -1);
  EXPECT_THAT(config.eos_ids, ElementsAre(4, 5));
  EXPECT_TRUE(config.qkv_bias && config.output_bias && !config.mlp_bias && config.tied_head);
  EXPECT_TRUE(config.gated_mlp);
  ASSERT_TRUE(config.rope.has_value());
  EXPECT_EQ(config.rope->kind, RopeKind::kLlama3);
  EXPECT_EQ(config.rope->layout, RopeLayout::kHalf);
  EXPECT_EQ(config.rope->rotary_dim, 8);
  EXPECT_EQ(config.rope->theta, 5e5);
  EXPECT_EQ(config.rope->factor, 8.0);
  EXPECT_EQ(config.rope->original_max_position, 256);
  EXPECT_EQ(config.KvBytesPerToken(DType::kF16), 3 * 2 * (8 + 8) * 2);
}

TEST(Config, ClassDefaultsWhereKeysAreAbsent) {
  const ModelConfig llama = Parse(Base("llama"));
  EXPECT_FLOAT_EQ(llama.norm_eps, 1e-6f);
  EXPECT_EQ(llama.bos_id, 1);
  EXPECT_THAT(llama.eos_ids, ElementsAre(2));
  EXPECT_EQ(llama.rope->theta, 1e4);
  EXPECT_FLOAT_EQ(Parse(Base("phi3")).norm_eps, 1e-5f);
  // 32000 lies past this vocabulary.
  EXPECT_THAT(Parse(Base("phi3")).eos_ids, IsEmpty());
  EXPECT_THAT(Parse(With(Base("phi3"), {{"vocab_size", 32064}})).eos_ids, ElementsAre(32000));
  EXPECT_EQ(Parse(Base("qwen2")).bos_id, -1);
  EXPECT_EQ(Parse(Base("gemma2")).pad_id, 0);
  EXPECT_EQ(Parse(Base("gemma2")).key_dim, 256);
  EXPECT_EQ(Parse(Base("qwen3")).key_dim, 128);
  Json few = Base("llama");
  few.erase("num_key_value_heads");
  EXPECT_EQ(Parse(few).kv_heads, 6);
  EXPECT_EQ(Parse(With(few, {{"num_key_value_heads", nullptr}})).kv_heads, 6);
  Json gemma = With(Base("gemma2"), {{"num_attention_heads", 8}});
  gemma.erase("num_key_value_heads");
  EXPECT_EQ(Parse(gemma).kv_heads, 4);
  Json mistral = Base("mistral");
  mistral.erase("num_key_value_heads");
  ExpectRefused(mistral, "num_key_value_heads", "default is 8");
}

TEST(Config, NullMeansNone) {
  const ModelConfig config = Parse(With(Base("llama"), {{"bos_token_id", nullptr},
                                                        {"eos_token_id", nullptr},
                                                        {"pad_token_id", nullptr},
                                                        {"head_dim", nullptr},
                                                        {"rope_scaling", nullptr},
                                                        {"something_new", nullptr}}));
  EXPECT_EQ(config.bos_id, -1);
  EXPECT_EQ(config.pad_id, -1);
  EXPECT_THAT(config.eos_ids, IsEmpty());
  EXPECT_EQ(config.key_dim, 8);
}

TEST(Config, ExplicitHeadDimMayDifferFromTheQuotient) {
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "gemma2", "phi3"}) {
    const ModelConfig config = Parse(With(Base(family), {{"head_dim", 20}, {"hidden_size", 50}}));
    EXPECT_EQ(config.key_dim, 20);
    EXPECT_EQ(config.rope->rotary_dim, 20);
  }
}

TEST(Config, MistralWindow) {
  EXPECT_THAT(Windows(Parse(Base("mistral"))), ElementsAre(4096, 4096, 4096));
  EXPECT_THAT(Windows(Parse(With(Base("mistral"), {{"sliding_window", nullptr}}))),
              ElementsAre(0, 0, 0));
  EXPECT_THAT(Windows(Parse(With(Base("mistral"), {{"sliding_window", 16}}))),
              ElementsAre(16, 16, 16));
  ExpectRefused(With(Base("mistral"), {{"sliding_window", 0}}), "sliding_window", "null");
  ExpectRefused(With(Base("mistral"), {{"sliding_window", -4}}), "sliding_window", "-4");
  ExpectRefused(With(Base("mistral"),
                     {{"layer_types", {"full_attention", "sliding_attention", "full_attention"}}}),
                "layer_types", "layer 0");
}

TEST(Config, QwenWindows) {
  for (const char* family : {"qwen2", "qwen3"}) {
    const Json off = With(Base(family), {{"sliding_window", 12}, {"max_window_layers", 1}});
    EXPECT_THAT(Windows(Parse(off)), ElementsAre(0, 0, 0));
    const Json on = With(off, {{"use_sliding_window", true}});
    EXPECT_THAT(Windows(Parse(on)), ElementsAre(0, 12, 12));
    EXPECT_THAT(Windows(Parse(With(on, {{"max_window_layers", 28}}))), ElementsAre(0, 0, 0));
    const Json types = {
        {"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}};
    EXPECT_THAT(Windows(Parse(With(on, types))), ElementsAre(12, 0, 12));
    ExpectRefused(With(off, types), "layer_types", "use_sliding_window");
    ExpectRefused(With(on, {{"layer_types", {"full_attention"}}}), "layer_types", "3 entries");
    ExpectRefused(
        With(on, {{"layer_types", {"full_attention", "chunked_attention", "full_attention"}}}),
        "layer_types", "'chunked_attention'");
  }
}

TEST(Config, QwenBiasesAndNorms) {
  const ModelConfig qwen2 = Parse(Base("qwen2"));
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.output_bias && !qwen2.qk_norm);
  const ModelConfig qwen3 = Parse(Base("qwen3"));
  EXPECT_TRUE(!qwen3.qkv_bias && !qwen3.output_bias && qwen3.qk_norm);
  const ModelConfig biased = Parse(With(Base("qwen3"), {{"attention_bias", true}}));
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias);
  ExpectRefused(With(Base("qwen2"), {{"attention_bias", false}}), "attention_bias");
  ExpectRefused(With(Base("qwen2"), {{"use_mrope", true}}), "use_mrope");
}

Json Longrope(int64_t pairs) {
  return {{"type", "longrope"},
          {"short_factor", std::vector<double>(pairs, 1.25)},
          {"long_factor", std::vector<double>(pairs, 3.5)}};
}

TEST(Config, Phi3Longrope) {
  const Json base = With(Base("phi3"), {{"max_position_embeddings", 131072},
                                        {"original_max_position_embeddings", 4096}});
  for (const char* name : {"longrope", "su", "yarn"}) {
    Json block = Longrope(4);
    block["type"] = name;
    const ModelConfig config = Parse(With(base, {{"rope_scaling", block}}));
    EXPECT_EQ(config.rope->kind, RopeKind::kLongrope);
    EXPECT_EQ(config.rope->original_max_position, 4096);
    EXPECT_EQ(config.rope->factor, 32.0);
    EXPECT_EQ(config.rope->long_factor, std::vector<double>(4, 3.5));
    EXPECT_NEAR(ComputeRope(*config.rope, 1).attention_factor, 1.190238, 1e-6);
  }
  ExpectRefused(With(base, {{"rope_scaling", Longrope(5)}}), "rope_scaling.short_factor", "4");
  Json block = Longrope(4);
  block.erase("long_factor");
  ExpectRefused(With(base, {{"rope_scaling", block}}), "rope_scaling.long_factor");
  block["long_factor"] = {1.0, 1.0, 0.0, 1.0};
  ExpectRefused(With(base, {{"rope_scaling", block}}), "rope_scaling.long_factor");
  block = Longrope(4);
  block["original_max_position_embeddings"] = 2048;
  ExpectRefused(With(base, {{"rope_scaling", block}}),
                "rope_scaling.original_max_position_embeddings", "4096");
  block = Longrope(4);
  block["type"] = "linear";
  ExpectRefused(With(base, {{"rope_scaling", block}}), "rope_scaling.type", "longrope");
}

TEST(Config, Phi3RotatesAPartOfTheHead) {
  const Json base = With(Base("phi3"), {{"hidden_size", 96}, {"partial_rotary_factor", 0.75}});
  const ModelConfig config = Parse(base);
  EXPECT_EQ(config.key_dim, 16);
  EXPECT_EQ(config.rope->rotary_dim, 12);
  EXPECT_FALSE(config.qkv_bias);
  ExpectRefused(With(base, {{"partial_rotary_factor", 0.1}}), "head_dim", "even");
  ExpectRefused(With(base, {{"partial_rotary_factor", 1.5}}), "partial_rotary_factor");
  ExpectRefused(With(Base("llama"), {{"partial_rotary_factor", 0.5}}), "partial_rotary_factor");
  const Json parameters = {
      {"rope_parameters",
       {{"rope_theta", 1e4}, {"rope_type", "default"}, {"partial_rotary_factor", 0.5}}}};
  ExpectRefused(With(base, parameters), "rope_parameters.partial_rotary_factor", "0.75");
  Json only = With(base, parameters);
  only.erase("partial_rotary_factor");
  EXPECT_EQ(Parse(only).rope->rotary_dim, 8);
  EXPECT_THAT(Windows(Parse(With(base, {{"sliding_window", 20}}))), ElementsAre(20, 20, 20));
}

TEST(Config, Gemma2) {
  const ModelConfig config = Parse(With(Base("gemma2"), {{"query_pre_attn_scalar", 144}}));
  EXPECT_EQ(config.norm, NormKind::kRmsOffsetOne);
  EXPECT_TRUE(config.output_norms && config.scale_embedding && config.tied_head);
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_FLOAT_EQ(config.attention_scale, 1.0f / 12.0f);
  EXPECT_EQ(config.attention_softcap, 50.0f);
  EXPECT_EQ(config.logit_softcap, 30.0f);
  EXPECT_THAT(Windows(config), ElementsAre(4096, 0, 4096));
  const ModelConfig open = Parse(With(
      Base("gemma2"), {{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", nullptr}}));
  EXPECT_EQ(open.attention_softcap, 0.0f);
  EXPECT_EQ(open.logit_softcap, 0.0f);
  const Json types = {{"layer_types", {"full_attention", "sliding_attention", "full_attention"}}};
  EXPECT_THAT(Windows(Parse(With(Base("gemma2"), types))), ElementsAre(0, 4096, 0));
  ExpectRefused(With(Base("gemma2"), {{"sliding_window", nullptr}}), "sliding_window");
  ExpectRefused(With(Base("gemma2"), {{"sliding_window_size", 8}}), "sliding_window_size");
  ExpectRefused(With(Base("gemma2"), {{"final_logit_softcapping", -1.0}}),
                "final_logit_softcapping");
  ExpectRefused(With(Base("gemma2"), {{"hidden_act", "relu"}}), "hidden_act");
  ExpectRefused(With(Base("gemma2"), {{"use_bidirectional_attention", true}}),
                "use_bidirectional_attention");
}

TEST(Config, Gemma3) {
  const Json base = With(Base("gemma3_text"), {{"num_hidden_layers", 7}});
  const ModelConfig config = Parse(base);
  EXPECT_EQ(config.norm, NormKind::kRmsOffsetOne);
  EXPECT_TRUE(config.output_norms && config.scale_embedding && config.qk_norm);
  EXPECT_EQ(config.attention_softcap, 0.0f);
  EXPECT_EQ(config.logit_softcap, 0.0f);
  EXPECT_FALSE(config.mutual_pictures);
  EXPECT_THAT(Windows(config), ElementsAre(4096, 4096, 4096, 4096, 4096, 0, 4096));
  for (const LayerConfig& layer : config.layers) EXPECT_EQ(layer.local_rope, layer.window > 0);
  EXPECT_EQ(config.rope->theta, 1e6);
  EXPECT_EQ(config.local_rope->theta, 1e4);
  EXPECT_EQ(config.local_rope->rotary_dim, 256);
  // As the config of gemma-3-1b-it has it, with the scaling of the larger ones.
  const Json old = {{"rope_theta", 500000.0},
                    {"rope_local_base_freq", 20000.0},
                    {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
                    {"sliding_window", 512},
                    {"sliding_window_pattern", 2}};
  const ModelConfig scaled = Parse(With(base, old));
  EXPECT_THAT(Windows(scaled), ElementsAre(512, 0, 512, 0, 512, 0, 512));
  EXPECT_EQ(scaled.rope->kind, RopeKind::kLinear);
  EXPECT_EQ(scaled.rope->factor, 8.0);
  EXPECT_EQ(scaled.rope->theta, 500000.0);
  EXPECT_EQ(scaled.local_rope->kind, RopeKind::kDefault);
  EXPECT_EQ(scaled.local_rope->theta, 20000.0);
  // The same as transformers 5 writes it.
  const Json full = {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 500000.0}};
  const Json local = {{"rope_type", "default"}, {"rope_theta", 20000.0}};
  const Json both = {{"full_attention", full}, {"sliding_attention", local}};
  const ModelConfig fresh = Parse(With(
      base, {{"rope_parameters", both}, {"sliding_window", 512}, {"_sliding_window_pattern", 2}}));
  EXPECT_EQ(*fresh.rope, *scaled.rope);
  EXPECT_EQ(*fresh.local_rope, *scaled.local_rope);
  EXPECT_EQ(Windows(fresh), Windows(scaled));
  // One kind alone leaves the other as its class has it.
  EXPECT_EQ(*Parse(With(base, {{"rope_parameters", {{"full_attention", full}}}})).local_rope,
            *config.local_rope);
  ExpectRefused(With(base, {{"rope_parameters", local}}), "rope_parameters", "sliding_attention");
  ExpectRefused(With(base, {{"rope_parameters", {{"full_attention", 3}}}}),
                "rope_parameters.full_attention");
  ExpectRefused(With(base, {{"rope_parameters", {{"full_attention", full}, {"other", local}}}}),
                "rope_parameters", "other");
  Json twice = With(base, {{"rope_parameters", both}, {"rope_local_base_freq", 20000.0}});
  EXPECT_EQ(Parse(twice).local_rope->theta, 20000.0);
  twice["rope_local_base_freq"] = 10000.0;
  ExpectRefused(twice, "rope_parameters.sliding_attention.rope_theta", "rope_local_base_freq");
  ExpectRefused(With(base, {{"sliding_window_pattern", 2}, {"_sliding_window_pattern", 3}}),
                "_sliding_window_pattern");
  ExpectRefused(With(base, {{"sliding_window", nullptr}}), "sliding_window");
  ExpectRefused(With(base, {{"use_bidirectional_attention", true}}), "use_bidirectional_attention");
}

TEST(Config, Opt) {
  const ModelConfig config = Parse(With(Base("opt"), {{"word_embed_proj_dim", nullptr}}));
  EXPECT_EQ(config.norm, NormKind::kLayer);
  EXPECT_FLOAT_EQ(config.norm_eps, 1e-5f);
  EXPECT_TRUE(config.qkv_bias && config.output_bias && config.mlp_bias);
  EXPECT_TRUE(config.learned_positions && config.final_norm && config.tied_head);
  EXPECT_FALSE(config.gated_mlp || config.post_norm);
  EXPECT_EQ(config.activation, Activation::kRelu);
  EXPECT_EQ(config.bos_id, 2);
  EXPECT_EQ(config.pad_id, 1);
  const ModelConfig post =
      Parse(With(Base("opt"), {{"do_layer_norm_before", false}, {"word_embed_proj_dim", 32}}));
  EXPECT_TRUE(post.post_norm);
  EXPECT_FALSE(post.final_norm);
  EXPECT_EQ(post.embedding_size, 32);
  EXPECT_FALSE(Parse(With(Base("opt"), {{"_remove_final_layer_norm", true}})).final_norm);
  ExpectRefused(With(Base("opt"), {{"layer_norm_elementwise_affine", false}}),
                "layer_norm_elementwise_affine");
  ExpectRefused(With(Base("opt"), {{"num_key_value_heads", 2}}), "num_key_value_heads");
}

TEST(Config, DeepseekV2) {
  const Json yarn = {{"type", "yarn"},
                     {"factor", 40},
                     {"beta_fast", 32},
                     {"beta_slow", 1},
                     {"mscale", 0.707},
                     {"mscale_all_dim", 0.707},
                     {"original_max_position_embeddings", 4096}};
  const Json published = {{"num_attention_heads", 16}, {"qk_nope_head_dim", 128},
                          {"qk_rope_head_dim", 64},    {"v_head_dim", 128},
                          {"kv_lora_rank", 512},       {"rope_scaling", yarn}};
  const ModelConfig config = Parse(With(Base("deepseek_v2"), published));
  EXPECT_EQ(config.key_dim, 192);
  EXPECT_EQ(config.value_dim, 128);
  EXPECT_EQ(config.kv_heads, 16);
  EXPECT_NEAR(config.attention_scale, 0.1147214, 1e-7);
  EXPECT_EQ(config.rope->layout, RopeLayout::kInterleaved);
  EXPECT_EQ(config.rope->rotary_dim, 64);
  EXPECT_EQ(config.mla->q_lora_rank, 0);
  EXPECT_EQ(config.mla->kv_lora_rank, 512);
  ASSERT_TRUE(config.moe.has_value());
  EXPECT_EQ(config.moe->experts, 12);
  EXPECT_EQ(config.moe->groups, 1);
  EXPECT_FALSE(config.layers[0].moe);
  EXPECT_TRUE(config.layers[1].moe && config.layers[2].moe);
  Json alone = yarn;
  alone.erase("mscale");
  ExpectRefused(With(Base("deepseek_v2"), {{"rope_scaling", alone}}), "mscale_all_dim");
}

TEST(Config, DeepseekExperts) {
  const Json grouped = With(Base("deepseek_v2"), {{"topk_method", "group_limited_greedy"},
                                                  {"n_group", 4},
                                                  {"topk_group", 2},
                                                  {"routed_scaling_factor", 16.0}});
  const ModelConfig config = Parse(grouped);
  EXPECT_EQ(config.moe->groups, 4);
  EXPECT_EQ(config.moe->top_groups, 2);
  EXPECT_EQ(config.moe->scaling, 16.0);
  const ModelConfig renormalized = Parse(With(grouped, {{"norm_topk_prob", true}}));
  EXPECT_TRUE(renormalized.moe->renormalize);
  EXPECT_EQ(renormalized.moe->scaling, 1.0);
  EXPECT_EQ(Parse(With(grouped, {{"n_shared_experts", nullptr}})).moe->shared_experts, 0);
  ExpectRefused(With(grouped, {{"n_routed_experts", 4096}, {"num_hidden_layers", 4096}}),
                "n_routed_experts", "32");
  ExpectRefused(With(grouped, {{"n_group", 5}}), "n_group", "12");
  ExpectRefused(With(grouped, {{"topk_group", 5}}), "topk_group");
  ExpectRefused(With(grouped, {{"num_experts_per_tok", 7}}), "num_experts_per_tok", "6");
  ExpectRefused(With(grouped, {{"num_experts_per_tok", 13}}), "num_experts_per_tok", "12");
  ExpectRefused(With(grouped, {{"topk_method", "noaux_tc"}}), "topk_method");
  ExpectRefused(With(grouped, {{"scoring_func", "sigmoid"}}), "scoring_func");
  ExpectRefused(With(grouped, {{"moe_layer_freq", 2}}), "moe_layer_freq");
  ExpectRefused(With(grouped, {{"num_key_value_heads", 3}}), "num_key_value_heads");
  ExpectRefused(With(grouped, {{"qk_rope_head_dim", 7}}), "head_dim", "even");
}

// The keys of published files, beyond what the golden models have.
TEST(Config, PublishedConfigsAreAccepted) {
  const ModelConfig smollm = Parse(Json::parse(R"({
      "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576,
      "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
      "is_llama_config": true, "max_position_embeddings": 8192, "model_type": "llama",
      "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
      "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false,
      "rope_scaling": null, "rope_theta": 100000, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true,
      "vocab_size": 49152})"));
  EXPECT_EQ(smollm.key_dim, 64);
  EXPECT_TRUE(smollm.tied_head);
  EXPECT_EQ(smollm.rope->theta, 1e5);

  const ModelConfig phi4 = Parse(With(Json::parse(R"({
      "architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "bos_token_id": 199999,
      "embd_pdrop": 0.0, "eos_token_id": 199999, "full_attn_mod": 1, "hidden_act": "silu",
      "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 8192,
      "interpolate_factor": 1, "lm_head_bias": false, "max_position_embeddings": 131072,
      "mlp_bias": false, "model_type": "phi3", "num_attention_heads": 24,
      "num_hidden_layers": 32, "num_key_value_heads": 8,
      "original_max_position_embeddings": 4096, "pad_token_id": 199999,
      "partial_rotary_factor": 0.75, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
      "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "transformers_version": "4.45.0", "use_cache": true,
      "vocab_size": 200064})"),
                                      {{"rope_scaling", Longrope(48)}}));
  EXPECT_EQ(phi4.key_dim, 128);
  EXPECT_EQ(phi4.rope->rotary_dim, 96);

  const ModelConfig gemma = Parse(Json::parse(R"({
      "architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid",
      "eos_token_id": [1, 107], "final_logit_softcapping": 30.0, "head_dim": 256,
      "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
      "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 14336,
      "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 16,
      "num_hidden_layers": 42, "num_key_value_heads": 8, "pad_token_id": 0,
      "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
      "sliding_window": 4096, "sliding_window_size": 4096, "torch_dtype": "bfloat16",
      "transformers_version": "4.42.4", "use_cache": true, "vocab_size": 256000})"));
  EXPECT_FLOAT_EQ(gemma.attention_scale, 1.0f / 16.0f);
  EXPECT_TRUE(gemma.tied_head);

  const ModelConfig qwen = Parse(Json::parse(R"({
      "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
      "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 3584,
      "initializer_range": 0.02, "intermediate_size": 18944, "max_position_embeddings": 32768,
      "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 28,
      "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
      "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.43.1", "use_cache": true,
      "use_mrope": false, "use_sliding_window": false, "vocab_size": 152064})"));
  EXPECT_EQ(qwen.KvBytesPerToken(DType::kBF16), 28 * 4 * 256 * 2);
}

TEST(Config, BothStylesOfRopeAgree) {
  const Json v4 =
      With(Base("qwen2"),
           {{"rope_theta", 1e6},
            {"rope_scaling",
             {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 256}}}});
  const Json v5 = With(Base("qwen2"), {{"rope_parameters",
                                        {{"rope_type", "yarn"},
                                         {"rope_theta", 1e6},
                                         {"factor", 4.0},
                                         {"original_max_position_embeddings", 256}}}});
  EXPECT_EQ(*Parse(v4).rope, *Parse(v5).rope);
  EXPECT_EQ(*Parse(With(v4, v5)).rope, *Parse(v5).rope);
  Json other = v5;
  other["rope_parameters"]["factor"] = 2.0;
  ExpectRefused(With(v4, other), "rope_scaling", "rope_parameters");
  other = v5;
  other["rope_theta"] = 1e4;
  ExpectRefused(other, "rope_parameters.rope_theta", "10000");
  other = v5;
  other["rope_parameters"] = {{"full_attention", v5["rope_parameters"]}};
  ExpectRefused(other, "rope_parameters", "per kind of layer");
  EXPECT_EQ(Parse(With(Base("llama"), {{"rope_scaling", Json::object()}})).rope->kind,
            RopeKind::kDefault);
}

// Compares with the checkpoints that were published with these shapes.
TEST(ShippedShapes, HoldAsManyNumbersAsTheOriginals) {
  const std::pair<const char*, int64_t> shapes[] = {
      // Llama-2 7B, four projections and a norm more in each layer, and the encoder's 435 million.
      {"cepe-llama-2-7b", 6'738'415'616 + 1'342'308'352 + 435'471'360},
      {"llama-3.1-8b", 8'030'261'248},
      {"qwen2.5-7b", 7'615'616'512},
      {"gpt-oss-20b", 20'914'757'184},
      {"mpt-7b", 6'649'286'656},
      {"bloom-7b1", 7'069'016'064},
      {"deepseek-v2-lite", 15'706'484'224},
      {"phi-3.5-moe", 41'873'153'344},
      {"jamba-v0.1", 51'570'323'328},
      {"mamba-2.8b", 2'768'345'600},
      {"gemma-4-e2b", 4'628'569'379},
      {"gemma-4-e4b", 7'463'013'418},
      {"gemma-4-26b-a4b", 25'233'141'790},
      {"gemma-4-31b", 30'697'345'340},
      {"goldfinch-1.5b", 1'445'257'216},
      // Two embeddings of tokens, 24 layers, two norms, what a block gives the next one, the head.
      {"block-transformer-1.2b",
       50'304 * 512 + 50'304 * 2'048 + 24 * 50'358'272 + 2 * 4'096 + 8'392'704 + 50'304 * 2'048},
      {"nemotron-h-8b", 8'100'852'736},
      {"retnet-1.3b", 1'351'727'104},
      {"rwkv-4-7b", 7'392'649'216},
      {"rwkv-6-7b", 7'635'746'816},
      {"rwkv-7-2.9b", 2'947'735'040},
      {"yoco-3b", 3'445'300'224},
      {"gemma-2-9b", 9'241'705'984},
      {"gemma-2-27b", 27'227'128'320},
      // What is published counts 262,144 rows of the embedding; checkpoints hold 64 more.
      {"gemma-3-4b", 3'880'099'328 + 64 * 2'560},
      {"gemma-3-12b", 11'765'788'416 + 64 * 3'840},
      {"gemma-3-27b", 27'009'002'240 + 64 * 5'376},
      {"phi-3-mini-4k", 3'821'079'552},
      {"phi-4", 14'659'507'200},
      {"phi-4-mini", 3'836'021'760},
      {"qwen2.5-32b", 32'763'876'352},
      {"qwen2.5-72b", 72'706'203'648},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"qwen3-235b-a22b", 235'093'634'560},
      {"deepseek-v3", 671'026'419'200},
      {"glm-4-9b", 9'399'951'360},
      {"gpt-oss-120b", 116'829'156'672},
      {"falcon-7b", 6'921'720'704},
      {"pythia-6.9b", 6'857'302'016},
      {"olmo-2-7b", 7'298'617'344},
      {"smollm2-1.7b", 1'711'376'384},
      {"smollm3-3b", 3'075'098'624},
      {"command-r-35b", 34'980'831'232},
      {"command-r-35b-08-2024", 32'296'476'672},
      {"starcoder2-7b", 7'173'923'840},
      {"granite-3.0-8b", 8'170'848'256},
      {"mistral-small-3-24b", 23'572'403'200},
      {"mixtral-8x22b", 140'630'071'296},
      {"ministral-8b", 8'019'808'256},
      {"falcon-h1-0.5b", 521'411'104},
      {"jamba-1.5-mini", 51'570'323'328},
      // That checkpoint's own count leaves its 23 * 128 corrections of choices out.
      {"nemotron-3-nano-30b-a3b", 31'577'937'344 + 23 * 128}};
  for (const auto& [name, count] : shapes) {
    const Result<ModelConfig> config =
        ReadModelConfig(StrCat(KVG_SOURCE_DIR, "/configs/models/", name, ".json"));
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(ParameterCount(*config), count) << name;
  }
}

// Their times are compared with each other.
TEST(ShippedShapes, OfArchitecturesAreOfOneSize) {
  const std::string directory = StrCat(KVG_SOURCE_DIR, "/configs/models/");
  const Result<ModelConfig> small = ReadModelConfig(directory + "bench-s.json");
  ASSERT_TRUE(small.ok()) << small.error().message;
  const auto size = static_cast<double>(ParameterCount(*small));
  int shapes = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    const std::string name = file.path().stem().string();
    if (!name.starts_with("bench-") || name == "bench-l") continue;
    const Result<ModelConfig> config = ReadModelConfig(file.path().string());
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_NEAR(static_cast<double>(ParameterCount(*config)) / size, 1.0, 0.005) << name;
    EXPECT_EQ(config->vocab_size, small->vocab_size) << name;
    EXPECT_EQ(config->hidden_size, small->hidden_size) << name;
    ++shapes;
  }
  EXPECT_GE(shapes, 20);
}

}  // namespace
}  // namespace kvgauge
