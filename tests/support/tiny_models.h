// SPDX-License-Identifier: Apache-2.0
// Tiny models with seeded random weights, one of each kind of attention.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/rng.h"
#include "core/strings.h"
#include "runner/model.h"
#include "support/test_ops.h"

namespace kvgauge {

struct TinyModel {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
};

inline std::string TinyLlama(int query_heads, int kv_heads) {
  return StrCat(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": )",
                query_heads, R"(, "num_key_value_heads": )", kv_heads, R"(,
    "head_dim": 32, "vocab_size": 101, "max_position_embeddings": 2048, "rms_norm_eps": 1e-05,
    "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "float32",
    "rope_theta": 10000.0, "rope_scaling": null, "bos_token_id": 1, "eos_token_id": 2})");
}

// A decoder whose last layer attends to an encoder's rows.
inline std::string TinyCepe() {
  std::string text = TinyLlama(6, 2);
  text.resize(text.rfind('}'));
  return text + R"(, "do_cross_attention": true, "num_cross_attn_layers": 1,
    "encoder_hidden_size": 48, "encoder_config": {"hidden_size": 48, "intermediate_size": 64,
      "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 101,
      "max_position_embeddings": 64}})";
}

// The text model of a vision-language one: positions of three axes.
inline std::string TinyThreeAxes() {
  return R"({"model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"],
    "image_token_id": 90, "video_token_id": 91, "vision_start_token_id": 92,
    "vision_end_token_id": 93, "torch_dtype": "float32",
    "vision_config": {"depth": 1, "embed_dim": 32, "hidden_size": 64, "num_heads": 4,
      "mlp_ratio": 2, "patch_size": 7, "spatial_merge_size": 2, "temporal_patch_size": 2,
      "in_chans": 3, "spatial_patch_size": 7},
    "text_config": {"model_type": "qwen2_vl_text", "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
      "vocab_size": 101, "max_position_embeddings": 2048, "rms_norm_eps": 1e-06,
      "hidden_act": "silu", "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2,
      "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
        "mrope_section": [4, 6, 6]}}})";
}

// One layer with a window and a rope of its own, one without; pictures see all of themselves.
inline std::string TinyGemma() {
  return R"({"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
    "image_token_index": 90, "boi_token_index": 94, "eoi_token_index": 95,
    "mm_tokens_per_image": 4, "torch_dtype": "float32",
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 32,
      "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 2,
      "image_size": 28, "patch_size": 7},
    "text_config": {"model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
      "vocab_size": 101, "max_position_embeddings": 2048, "sliding_window": 120,
      "sliding_window_pattern": 2, "query_pre_attn_scalar": 32, "bos_token_id": 1,
      "eos_token_id": 2, "pad_token_id": 0,
      "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}})";
}

// Heads of a layer are as many and as wide as its kind has them; the values of one are its keys.
inline std::string TinyTwoSizes() {
  return R"({"model_type": "gemma4_text", "architectures": ["Gemma4ForCausalLM"],
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "num_global_key_value_heads": 1,
    "global_head_dim": 64, "attention_k_eq_v": true, "hidden_size_per_layer_input": 0,
    "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 1024,
    "vocab_size": 101, "max_position_embeddings": 2048, "rms_norm_eps": 1e-06,
    "tie_word_embeddings": false, "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0})";
}

// Layers that keep a state of constant size, each below one that attends: `layers` of either.
inline std::string TinyHybrid(int layers = 2) {
  std::string attending;
  for (int i = 0; i < layers; ++i) attending += StrCat(i == 0 ? "" : ", ", 2 * i + 1);
  return StrCat(R"({"model_type": "bamba", "architectures": ["BambaForCausalLM"],
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": )",
                2 * layers, R"(, "attn_layer_indices": [)", attending,
                R"(], "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
    "partial_rotary_factor": 1.0, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2,
    "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": true,
    "vocab_size": 101, "max_position_embeddings": 2048, "rms_norm_eps": 1e-05,
    "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "float32",
    "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0})");
}

// Config of "mha", "gqa", "mqa", "mla", "cepe", "three_axes", "gemma", "two_sizes" or "hybrid".
inline std::string TinyConfig(const std::string& kind) {
  if (kind == "mha") return TinyLlama(4, 4);
  if (kind == "gqa") return TinyLlama(6, 2);
  if (kind == "mqa") return TinyLlama(4, 1);
  if (kind == "cepe") return TinyCepe();
  if (kind == "three_axes") return TinyThreeAxes();
  if (kind == "gemma") return TinyGemma();
  if (kind == "two_sizes") return TinyTwoSizes();
  if (kind == "hybrid") return TinyHybrid();
  return R"({"model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"],
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": null, "kv_lora_rank": 32,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 32, "vocab_size": 101,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-06, "hidden_act": "silu",
    "attention_bias": false, "attention_dropout": 0.0, "tie_word_embeddings": false,
    "torch_dtype": "float32", "rope_theta": 10000.0, "rope_scaling": null,
    "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_group": 1,
    "topk_group": 1, "topk_method": "greedy", "scoring_func": "softmax", "norm_topk_prob": false,
    "routed_scaling_factor": 1.0, "aux_loss_alpha": 0.001, "seq_aux": true, "ep_size": 1,
    "pretraining_tp": 1,
    "bos_token_id": 1, "eos_token_id": 2})";
}

inline ModelShape TinyShape(const std::string& kind) {
  const Result<ModelConfig> config = ParseModelConfig(*ParseJson(TinyConfig(kind), kind), kind);
  EXPECT_TRUE(config.ok());
  ModelShape shape = ShapeOf(*config, DType::kF32);
  shape.token_classes = true;
  return shape;
}

// Tokens without text: every fifth is punctuation, and of these every second parts sentences.
inline std::shared_ptr<const TokenClasses> TinyTokenClasses() {
  auto classes = std::make_shared<TokenClasses>(101);
  classes->Set(1, TokenClass::kSpecial);
  for (int32_t id = 5; id < 101; id += 5) {
    classes->Set(id, TokenClass::kPunctuation);
    if (id % 2 == 0) classes->Set(id, TokenClass::kSeparator);
  }
  return classes;
}

inline Result<std::unique_ptr<Model>> LoadTinyModel(Ops& ops, const std::string& kind,
                                                    ModelOptions options = {}, int layers = 2) {
  std::string directory = ::testing::TempDir() + "kvg_tiny_XXXXXX";
  EXPECT_NE(mkdtemp(directory.data()), nullptr);
  const bool hybrid = kind == "hybrid";
  Json config = *ParseJson(hybrid ? TinyHybrid(layers) : TinyConfig(kind), kind);
  if (!hybrid) {
    (config.contains("text_config") ? config["text_config"] : config)["num_hidden_layers"] = layers;
  }
  std::ofstream(directory + "/config.json") << config.dump();
  options.random_seed = 5;
  options.token_classes = TinyTokenClasses();
  // A token for each byte.
  options.encode = [](std::string_view text) -> Result<std::vector<int32_t>> {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(3 + static_cast<uint8_t>(c) % 97);
    return ids;
  };
  // Letters, every fifth token a space.
  options.spell = [](std::span<const int32_t> ids) {
    std::string text;
    for (const int32_t id : ids) text += id % 5 == 0 ? ' ' : static_cast<char>('a' + id % 26);
    return text;
  };
  Result<std::unique_ptr<Model>> model = Model::Load(directory, options, ops);
  std::filesystem::remove_all(directory);
  return model;
}

inline TinyModel MakeTinyModelOn(std::unique_ptr<Ops> ops, const std::string& kind,
                                 const ModelOptions& options = {}, int layers = 2) {
  TinyModel tiny;
  tiny.ops = std::move(ops);
  Result<std::unique_ptr<Model>> model = LoadTinyModel(*tiny.ops, kind, options, layers);
  if (!model.ok()) {
    ADD_FAILURE() << kind << ": " << model.error().message;
    std::abort();
  }
  tiny.model = std::move(model).value();
  return tiny;
}

inline TinyModel MakeTinyModel(const std::string& kind, int threads = 1,
                               const ModelOptions& options = {}, int layers = 2) {
  return MakeTinyModelOn(MakeTestOps("cpu", threads), kind, options, layers);
}

inline std::vector<int32_t> RandomIds(int64_t count, uint64_t seed, int64_t vocab_size = 101) {
  Rng rng(seed, 3);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) {
    id = static_cast<int32_t>(rng.NextBelow(static_cast<uint64_t>(vocab_size)));
  }
  return ids;
}

}  // namespace kvgauge
