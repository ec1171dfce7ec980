// SPDX-License-Identifier: Apache-2.0
// A model of two layers that sees, whose weights are drawn; the tokenizer is that of the reference
// model.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "core/files.h"
#include "core/json.h"

namespace kvgauge {

inline constexpr char kTinyEyes[] = R"({"model_type": "llava",
  "architectures": ["LlavaForConditionalGeneration"], "image_token_index": 1792,
  "image_seq_length": 16, "vision_feature_layer": -2, "vision_feature_select_strategy": "default",
  "projector_hidden_act": "gelu", "torch_dtype": "float32", "tie_word_embeddings": false,
  "text_config": {"model_type": "llama", "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 1856, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-05, "hidden_act": "silu", "tie_word_embeddings": false,
    "torch_dtype": "float32", "rope_theta": 10000.0, "rope_scaling": null, "bos_token_id": 1,
    "eos_token_id": 2},
  "vision_config": {"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 64, "patch_size": 16,
    "projection_dim": 32, "num_channels": 3, "hidden_act": "quick_gelu"}})";
inline constexpr char kTinyPixels[] = R"({"image_processor_type": "CLIPImageProcessor",
  "do_convert_rgb": true, "do_resize": true, "size": {"shortest_edge": 64}, "resample": 3,
  "do_center_crop": true, "crop_size": {"height": 64, "width": 64}, "do_rescale": true,
  "rescale_factor": 0.00392156862745098, "do_normalize": true, "image_mean": [0.5, 0.5, 0.5],
  "image_std": [0.25, 0.25, 0.25]})";

// Makes the directory of the checkpoint.
inline void WriteTinyEyes(const std::string& directory) {
  std::filesystem::create_directories(directory);
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(directory + "/" + name) << text;
  };
  write("config.json", kTinyEyes);
  write("preprocessor_config.json", kTinyPixels);
  const std::string reference = std::string(KVG_SOURCE_DIR) + "/models/ref-gqa/";
  std::filesystem::copy_file(reference + "tokenizer_config.json",
                             directory + "/tokenizer_config.json");
  Json tokenizer = *ReadJsonFile(reference + "tokenizer.json");
  Json mark = tokenizer["added_tokens"][0];
  mark["id"] = 1792;
  mark["content"] = "<image>";
  tokenizer["added_tokens"].push_back(mark);
  write("tokenizer.json", tokenizer.dump());
}

}  // namespace kvgauge
