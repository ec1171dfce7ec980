// SPDX-License-Identifier: Apache-2.0
// Small configs of every family, and what is expected of them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "runner/config.h"

namespace kvgauge {

inline constexpr const char* kOrigin = "dir/config.json";

// That of a checkpoint of tests/golden/models.
inline Json Golden(const std::string& name) {
  const std::string file = StrCat(KVG_TEST_DATA, "/golden/models/", name, "/config.json");
  const Result<std::string> text = ReadFile(file, 1 << 20);
  EXPECT_TRUE(text.ok()) << file;
  return text.ok() ? *ParseJson(*text, file) : Json::object();
}

// The smallest config of a family that is accepted.
inline Json Base(const std::string& family) {
  Json json = {{"model_type", family},     {"vocab_size", 300},
               {"hidden_size", 48},        {"intermediate_size", 80},
               {"num_hidden_layers", 3},   {"num_attention_heads", 6},
               {"num_key_value_heads", 2}, {"max_position_embeddings", 512}};
  if (family == "opt") {
    json.erase("intermediate_size");
    json.erase("num_key_value_heads");
    json["ffn_dim"] = 96;
  }
  if (family == "deepseek_v2") {
    json.erase("num_key_value_heads");
    json.update(Json{{"q_lora_rank", nullptr},
                     {"kv_lora_rank", 24},
                     {"qk_nope_head_dim", 16},
                     {"qk_rope_head_dim", 8},
                     {"v_head_dim", 12},
                     {"n_routed_experts", 12},
                     {"num_experts_per_tok", 4},
                     {"n_shared_experts", 1},
                     {"moe_intermediate_size", 16},
                     {"first_k_dense_replace", 1}});
  }
  return json;
}

inline Json With(Json json, const Json& changes) {
  json.update(changes);
  return json;
}

inline ModelConfig Parse(const Json& json) {
  const Result<ModelConfig> config = ParseModelConfig(json, kOrigin);
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? *config : ModelConfig{};
}

inline std::string ErrorOf(const Json& json) {
  const Result<ModelConfig> config = ParseModelConfig(json, kOrigin);
  EXPECT_FALSE(config.ok()) << json.dump() << " was accepted";
  return config.ok() ? "" : config.error().message;
}

// The message names the file and the key.
inline void ExpectRefused(const Json& json, const std::string& key, const std::string& also = "") {
  EXPECT_THAT(ErrorOf(json),
              ::testing::AllOf(::testing::HasSubstr(kOrigin), ::testing::HasSubstr("'" + key + "'"),
                               ::testing::HasSubstr(also)));
}

inline std::vector<int64_t> Windows(const ModelConfig& config) {
  std::vector<int64_t> windows;
  for (const LayerConfig& layer : config.layers) windows.push_back(layer.window);
  return windows;
}

inline const std::vector<std::string> kFamilies = {
    "llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "opt", "deepseek_v2", "gemma3_text"};

// Families whose smallest config is that of their golden checkpoint, and that checkpoint.
inline const std::vector<std::pair<std::string, std::string>> kGoldenFamilies = {
    {"arcee", "arcee"},
    {"bamba", "bamba"},
    {"block_transformer", "block_transformer"},
    {"bloom", "bloom"},
    {"cohere", "cohere"},
    {"cohere2", "cohere2"},
    {"cwm", "cwm"},
    {"deepseek_v3", "deepseek_v3"},
    {"dots1", "dots1"},
    {"ernie4_5", "ernie4_5"},
    {"exaone", "exaone"},
    {"exaone4", "exaone4"},
    {"falcon", "falcon"},
    {"falcon_h1", "falcon_h1"},
    {"falcon_mamba", "falcon_mamba"},
    {"gemma", "gemma"},
    {"gemma3n_text", "gemma3n_text"},
    {"gemma4_text", "gemma4_text"},
    {"glm", "glm"},
    {"glm4", "glm4"},
    {"glm4_moe", "glm4_moe"},
    {"glm4_moe_lite", "glm4_moe_lite"},
    {"gpt_neox", "gpt_neox"},
    {"goldfinch", "goldfinch"},
    {"gpt_oss", "gpt_oss"},
    {"gptj", "gptj"},
    {"granite", "granite"},
    {"granitemoe", "granitemoe"},
    {"granitemoehybrid", "granitemoehybrid"},
    {"granitemoeshared", "granitemoeshared"},
    {"helium", "helium"},
    {"internlm2", "internlm2"},
    {"jais2", "jais2"},
    {"jamba", "jamba"},
    {"lckv-llama", "lckv_cla"},
    {"llama4_text", "llama4_text"},
    {"mamba", "mamba"},
    {"mamba2", "mamba2"},
    {"minicpm", "minicpm"},
    {"minicpm3", "minicpm3"},
    {"minimax_m2", "minimax_m2"},
    {"ministral3", "ministral3"},
    {"mixtral", "mixtral"},
    {"mpt", "mpt"},
    {"nemotron", "nemotron"},
    {"nemotron_h", "nemotron_h"},
    {"olmo", "olmo"},
    {"olmo2", "olmo2"},
    {"olmo3", "olmo3"},
    {"olmoe", "olmoe"},
    {"phi", "phi"},
    {"phimoe", "phimoe"},
    {"qwen2_moe", "qwen2_moe"},
    {"qwen3_5_moe_text", "qwen3_5_moe_text"},
    {"qwen3_5_text", "qwen3_5_text"},
    {"qwen3_moe", "qwen3_moe"},
    {"qwen3_next", "qwen3_next"},
    {"retnet", "retnet"},
    {"rwkv", "rwkv"},
    {"rwkv6", "rwkv6"},
    {"rwkv7", "rwkv7"},
    {"seed_oss", "seed_oss"},
    {"smollm3", "smollm3"},
    {"stablelm", "stablelm"},
    {"starcoder2", "starcoder2"},
    {"yoco", "yoco"},
    {"youtu", "youtu"}};

}  // namespace kvgauge
