// SPDX-License-Identifier: Apache-2.0
// A model of two layers that sees, with drawn weights.
#pragma once

#include "cli/run_fixture.h"

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

class VisualRunTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    std::filesystem::create_directories(Path("eyes"));
    Write("eyes/config.json", kTinyEyes);
    Write("eyes/preprocessor_config.json", kTinyPixels);
    const std::string reference = StrCat(KVG_SOURCE_DIR, "/models/ref-gqa/");
    std::filesystem::copy_file(reference + "tokenizer_config.json",
                               Path("eyes/tokenizer_config.json"));
    Json tokenizer = *ReadJsonFile(reference + "tokenizer.json");
    Json mark = tokenizer["added_tokens"][0];
    mark["id"] = 1792;
    mark["content"] = "<image>";
    tokenizer["added_tokens"].push_back(mark);
    Write("eyes/tokenizer.json", tokenizer.dump());
  }
  // A task of the pictures that data/s/t.jsonl names.
  void WriteFileTask(const std::string& methods, const std::string& model = "eyes/config.json",
                     const std::string& keys = "") const {
    Write("t.json", R"({"name": "t/files", "version": 1, "group": "t", "description": "d",
      "metric": "accuracy", "max_new_tokens": 2, "source": {"name": "pictures",
      "file": "s/t.jsonl", "container": "jsonl", "images": "image", "image_file": "s/{image}",
      "mark": "<image>", "question": "{question}", "answers": "answer"}})");
    Write("mine.json", StrCat(R"({"models": [{"path": ")", Path(model),
                              R"(", "name": "eyes", "weights": "random:5"}], "data": ")",
                              Path("data"), R"(", "tasks": [")", Path("t.json"), R"("], )", keys,
                              R"("budgets": ["60%"], "methods": [)", methods, "]}"));
  }
  // Pages of pictures for the tiny model.
  std::string Seeing(const std::string& methods, const std::string& keys = "",
                     const std::string& source = R"("pictures": "3", "samples": 1)") const {
    return StrCat(R"({"models": [{"path": ")", Path("eyes/config.json"),
                  R"(", "name": "eyes", "weights": "random:5"}],
      "tasks": [{"task": "visual/needle", "samples": 3, "source": {)",
                  source, R"(}, "max_new_tokens": 4}],
      "budgets": ["60%"], )",
                  keys, R"("methods": [)", methods, "]}");
  }
};

}  // namespace kvgauge
