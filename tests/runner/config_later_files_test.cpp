// SPDX-License-Identifier: Apache-2.0
// Keys that families had under other names, or not at all, when their goldens were written: as
// transformers 5.24 saves them.
#include "runner/config_cases.h"

namespace kvgauge {
namespace {

Json Renamed(Json json, const std::string& from, const std::string& to) {
  json[to] = json.at(from);
  json.erase(from);
  return json;
}

TEST(ConfigLaterFiles, NumberOfExperts) {
  const Json golden = Golden("qwen3_moe");
  const Json later = Renamed(golden, "num_experts", "num_local_experts");
  EXPECT_EQ(Parse(later).moe->experts, Parse(golden).moe->experts);
  EXPECT_EQ(Parse(With(golden, {{"num_local_experts", golden["num_experts"]}})).moe->experts,
            Parse(golden).moe->experts);
  ExpectRefused(With(golden, {{"num_local_experts", 4}}), "num_local_experts", "num_experts");
}

TEST(ConfigLaterFiles, GatesOfGptOss) {
  const Json golden = Golden("gpt_oss");
  EXPECT_EQ(Parse(With(golden, {{"swiglu_alpha", 1.702}, {"swiglu_limit", 7.0}})).mlp_limit, 7.0f);
  ExpectRefused(With(golden, {{"swiglu_alpha", 1.0}}), "swiglu_alpha", "1.702");
}

TEST(ConfigLaterFiles, NamesOfLayers) {
  const Json golden = Golden("granitemoehybrid");
  Json later = golden;
  for (Json& type : later["layer_types"]) {
    type = type == "mamba" ? "linear_attention" : "full_attention";
  }
  const ModelConfig config = Parse(later);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    EXPECT_EQ(config.layers[i].state, golden["layer_types"][i] == "mamba") << i;
  }
}

TEST(ConfigLaterFiles, HowStatesAreComputed) {
  for (const std::string name : {"mamba", "falcon_mamba", "jamba"}) {
    const Json later = With(Golden(name), {{"use_associative_scan", true}, {"use_mambapy", false}});
    EXPECT_EQ(Parse(later).StateBytes(), Parse(Golden(name)).StateBytes()) << name;
  }
  EXPECT_EQ(Parse(With(Golden("nemotron_h"), {{"output_router_logits", false}})).cache_count(),
            Parse(Golden("nemotron_h")).cache_count());
}

TEST(ConfigLaterFiles, HeadsByLayer) {
  const Json golden = Golden("gemma4_text");
  Json later = golden;
  later.erase("global_head_dim");
  later.erase("num_global_key_value_heads");
  const Json heads = {{"head_dim", 16}, {"num_key_value_heads", 1}};
  const Json listed = {{"1", heads}, {"3", heads}};
  later["per_layer_config"] = listed;
  for (const Json& json : {later, With(golden, {{"per_layer_config", listed}})}) {
    const ModelConfig config = Parse(json);
    EXPECT_EQ(config.HeadsOf(0), (HeadSizes{2, 8, 8, 8}));
    EXPECT_EQ(config.HeadsOf(1), (HeadSizes{1, 16, 16, 16}));
    EXPECT_EQ(config.HeadsOf(3), (HeadSizes{1, 16, 16, 16}));
  }
  // Full layers without an entry have the heads of the others.
  EXPECT_TRUE(Parse(With(later, {{"per_layer_config", Json::object()}})).HasEvenHeads());
  const auto refuses = [&](const Json& layers, const std::string& also) {
    ExpectRefused(With(golden, {{"per_layer_config", layers}}), "per_layer_config", also);
  };
  refuses({{"1", {{"head_dim", 32}, {"num_key_value_heads", 1}}}, {"3", heads}}, "layer 3");
  refuses({{"0", heads}, {"1", heads}, {"3", heads}}, "by number");
  refuses({{"1", heads}, {"3", heads}, {"9", heads}}, "by number");
  refuses({{"1", {{"head_dim", 32}}}, {"3", {{"head_dim", 32}}}}, "16 numbers");
  refuses(Json::array({1}), "by number");
  ExpectRefused(With(later, {{"per_layer_config", {{"1", {{"sliding_window", 4}}}, {"3", heads}}}}),
                "per_layer_config.1.sliding_window");
}

TEST(ConfigLaterFiles, QueriesThatGrow) {
  const Json golden = Golden("ministral3");
  const ModelConfig config = Parse(golden);
  EXPECT_TRUE(config.query_growth->everywhere);
  EXPECT_EQ(config.query_growth->scale, 0.4);
  EXPECT_EQ(config.query_growth->every, 10.0);
  EXPECT_FALSE(Parse(Golden("llama4_text")).query_growth->everywhere);
  const auto with = [&](const Json& changes) {
    Json json = golden;
    json["rope_parameters"].update(changes);
    return json;
  };
  EXPECT_FALSE(Parse(with({{"llama_4_scaling_beta", 0.0}})).query_growth);
  ExpectRefused(with({{"llama_4_scaling_beta", "much"}}), "rope_parameters.llama_4_scaling_beta");
  ExpectRefused(with({{"other", 1}}), "rope_parameters.other");
  Json plain = golden;
  plain["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 1e6}, {"llama_4_scaling_beta", 0.1}};
  ExpectRefused(plain, "rope_parameters", "yarn");
  plain.erase("rope_parameters");
  ExpectRefused(plain, "rope_scaling", "trained with");
  // Inside a checkpoint that also sees, whose text part may leave sizes out.
  Json text = golden;
  text.erase("architectures");
  const ModelConfig inner = Parse({{"model_type", "mistral3"}, {"text_config", text}});
  EXPECT_EQ(inner.family, "ministral3");
  EXPECT_EQ(inner.vision_family, "mistral3");
}

TEST(ConfigLaterFiles, DimsThatTurn) {
  const Json golden = Golden("minimax_m2");
  EXPECT_EQ(Parse(golden).rope->rotary_dim, 6);
  Json later = golden;
  later.erase("rotary_dim");
  EXPECT_EQ(Parse(later).rope->rotary_dim, Parse(later).key_dim);
  later["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(Parse(later).rope->rotary_dim, 6);
  ExpectRefused(With(golden, {{"rotary_dim", 14}}), "rotary_dim", "head_dim (12)");
  ExpectRefused(With(golden, {{"attn_type_list", {1, 0}}}), "attn_type_list");
  ExpectRefused(With(golden, {{"num_experts_per_tok", 1}}), "num_experts_per_tok");
  ExpectRefused(With(golden, {{"use_qk_norm", false}}), "use_qk_norm");
  ExpectRefused(With(golden, {{"shared_intermediate_size", 8}}), "shared_intermediate_size");
}

TEST(ConfigLaterFiles, NormsOfFewerWeights) {
  const Json nemotron = Golden("nemotron"), olmo = Golden("olmo");
  EXPECT_TRUE(Parse(nemotron).norm_from_one && Parse(nemotron).norm_weight);
  EXPECT_EQ(Parse(nemotron).rope->rotary_dim, 6);
  ExpectRefused(With(nemotron, {{"hidden_act", "gelu"}}), "hidden_act");
  ExpectRefused(With(nemotron, {{"kv_channels", 16}}), "kv_channels");
  ExpectRefused(With(nemotron, {{"rope_percent", 1.0}}), "rope_percent");
  EXPECT_FALSE(Parse(olmo).norm_weight || Parse(olmo).norm_bias);
  EXPECT_EQ(Parse(olmo).qkv_limit, 1.5f);
  EXPECT_EQ(Parse(With(olmo, {{"clip_qkv", nullptr}})).qkv_limit, 0.0f);
  ExpectRefused(With(olmo, {{"rms_norm_eps", 1e-6}}), "rms_norm_eps");
}

TEST(ConfigLaterFiles, LlamaUnderOtherNames) {
  Json json = Golden("exaone");
  EXPECT_EQ(Parse(json).layer_count(), 2);
  EXPECT_EQ(Parse(json).tensor_names.attention, "attn.attention");
  json.erase("intermediate_size");
  EXPECT_EQ(Parse(json).ffn_size, 4 * Parse(json).hidden_size);
}

TEST(ConfigLaterFiles, ReleasesWithIndexersSayWhyTheyAreNotRun) {
  for (const std::string type : {"axk2", "dots3_note", "glm5_next", "hy_v4", "minimax_m3_vl",
                                 "mistral_large4", "qwen4_exp"}) {
    ExpectRefused(With(Base("llama"), {{"model_type", type}}), "model_type", "an indexer picks");
  }
}

// Weights that are made to sum to 1 are 1 for a single expert, which no kernel does.
TEST(ConfigLaterFiles, OneExpertHasNoShare) {
  ExpectRefused(With(Golden("gpt_oss"), {{"num_experts_per_tok", 1}}), "num_experts_per_tok",
                "at least 2");
  ExpectRefused(With(Golden("gemma4_moe"), {{"top_k_experts", 1}}), "top_k_experts", "at least 2");
  ExpectRefused(With(Golden("granitemoe"), {{"num_experts_per_tok", 1}}), "num_experts_per_tok",
                "at least 2");
}

TEST(ConfigLaterFiles, KindsOfMlps) {
  const Json golden = Golden("glm4_moe_lite");
  EXPECT_FALSE(Parse(golden).layers[0].moe);
  EXPECT_TRUE(Parse(golden).layers[1].moe);
  const ModelConfig turned = Parse(With(golden, {{"mlp_layer_types", {"sparse", "dense"}}}));
  EXPECT_TRUE(turned.layers[0].moe && !turned.layers[1].moe);
  ExpectRefused(With(golden, {{"mlp_layer_types", {"sparse"}}}), "mlp_layer_types", "2 entries");
  ExpectRefused(With(golden, {{"mlp_layer_types", {"sparse", "wide"}}}), "mlp_layer_types", "wide");
}

// As Mistral Small 3.1 has it: a tower beside Mistral's text part.
TEST(ConfigLaterFiles, TextOfMistral3) {
  const ModelConfig config = Parse(Json::parse(R"({
    "architectures": ["Mistral3ForConditionalGeneration"], "image_token_index": 10,
    "model_type": "mistral3", "multimodal_projector_bias": false, "projector_hidden_act": "gelu",
    "spatial_merge_size": 2, "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
    "text_config": {"attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu",
      "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 32768,
      "max_position_embeddings": 131072, "model_type": "mistral", "num_attention_heads": 32,
      "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
      "rope_theta": 1000000000.0, "sliding_window": null, "use_cache": true, "vocab_size": 131072},
    "vision_config": {"head_dim": 64, "hidden_size": 1024, "image_size": 1540,
      "model_type": "pixtral", "patch_size": 14}, "vision_feature_layer": -1})"));
  EXPECT_EQ(config.family, "mistral");
  EXPECT_EQ(config.vision_family, "mistral3");
  EXPECT_EQ(config.visual_ids.image, 10);
  EXPECT_EQ(config.KvBytesPerToken(DType::kBF16), 40 * 8 * 256 * 2);
}

}  // namespace
}  // namespace kvgauge
