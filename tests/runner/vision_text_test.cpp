// SPDX-License-Identifier: Apache-2.0
// The text part of vision-language checkpoints: configs and tensor names.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/strings.h"
#include "runner/config_cases.h"
#include "runner/generate.h"
#include "support/checkpoint_folder.h"
#include "support/test_ops.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A vision-language config around a text config; the tower's keys are another reader's.
Json Around(const std::string& model_type, const Json& text) {
  return {{"model_type", model_type},
          {"architectures", {"SomeForConditionalGeneration"}},
          {"text_config", text},
          {"vision_config", {{"hidden_size", 24}}}};
}

Json TinyText(const std::string& model_type) {
  Json text = {{"model_type", model_type},    {"vocab_size", 120},
               {"hidden_size", 32},           {"intermediate_size", 48},
               {"num_hidden_layers", 2},      {"num_attention_heads", 4},
               {"num_key_value_heads", 2},    {"max_position_embeddings", 512},
               {"tie_word_embeddings", false}};
  if (model_type == "qwen3") text["head_dim"] = 8;
  return text;
}

TEST(VisionText, EmptyTextConfigsTakeTheirClassesDefaults) {
  // As the config of llava-1.5-7b has it.
  Json llava = Around("llava", {{"model_type", "llama"},
                                {"architectures", {"LlamaForCausalLM"}},
                                {"max_position_embeddings", 4096},
                                {"rms_norm_eps", 1e-5},
                                {"torch_dtype", "float16"},
                                {"vocab_size", 32064}});
  llava.update(Json{{"image_token_index", 32000},
                    {"ignore_index", -100},
                    {"pad_token_id", 32001},
                    {"projector_hidden_act", "gelu"},
                    {"tie_word_embeddings", false},
                    {"torch_dtype", "float16"},
                    {"vision_feature_layer", -2},
                    {"vision_feature_select_strategy", "default"}});
  const ModelConfig config = kvgauge::Parse(llava);
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.vision_family, "llava");
  EXPECT_EQ(config.vocab_size, 32064);
  EXPECT_EQ(config.hidden_size, 4096);
  EXPECT_EQ(config.ffn_size, 11008);
  EXPECT_EQ(config.layer_count(), 32);
  EXPECT_EQ(config.kv_heads, 32);
  EXPECT_EQ(config.max_position, 4096);
  EXPECT_EQ(config.stored_dtype, DType::kF16);
  EXPECT_EQ(config.pad_id, 32001);
  EXPECT_THAT(config.eos_ids, ElementsAre(2));
  EXPECT_FALSE(config.tied_head);
  EXPECT_EQ(config.visual_ids.image, 32000);
  EXPECT_EQ(config.visual_ids.video, -1);

  Json next = Around("llava_next", {{"model_type", "mistral"}, {"vocab_size", 32064}});
  const ModelConfig mistral = kvgauge::Parse(next);
  EXPECT_EQ(mistral.ffn_size, 14336);
  EXPECT_EQ(mistral.kv_heads, 8);

  Json bare = {{"model_type", "llava_onevision"}};
  EXPECT_EQ(kvgauge::Parse(bare).ffn_size, 22016);
  EXPECT_EQ(kvgauge::Parse(bare).visual_ids.video, 151647);
  EXPECT_FALSE(kvgauge::Parse(bare).tied_head);
  // This class ties unless the file says otherwise.
  EXPECT_TRUE(kvgauge::Parse({{"model_type", "internvl"}}).tied_head);
  EXPECT_FALSE(
      kvgauge::Parse(Around("internvl", {{"model_type", "qwen2"}, {"tie_word_embeddings", false}}))
          .tied_head);

  const ModelConfig qwen3 = kvgauge::Parse({{"model_type", "qwen3_vl"}});
  EXPECT_EQ(qwen3.rope->theta, 500000.0);
  EXPECT_THAT(qwen3.rope->sections, ElementsAre(24, 20, 20));
  EXPECT_TRUE(qwen3.rope->interleaved);
}

TEST(VisionText, Gemma3) {
  // As the config of gemma-3-4b-it has it.
  const Json json = *ParseJson(R"({
    "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
    "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144,
    "initializer_range": 0.02, "mm_tokens_per_image": 256, "model_type": "gemma3",
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
      "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
      "sliding_window": 1024},
    "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
    "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
      "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 27,
      "patch_size": 14, "vision_use_head": false}
  })",
                               "gemma");
  const ModelConfig config = kvgauge::Parse(json);
  EXPECT_EQ(config.family, "gemma3_text");
  EXPECT_EQ(config.vision_family, "gemma3");
  EXPECT_TRUE(config.mutual_pictures && config.tied_head);
  EXPECT_EQ(config.vocab_size, 262208);
  EXPECT_EQ(config.query_heads, 8);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.key_dim, 256);
  EXPECT_EQ(config.rope->factor, 8.0);
  EXPECT_EQ(config.local_rope->theta, 1e4);
  EXPECT_THAT(config.eos_ids, ElementsAre(1, 106));
  EXPECT_EQ(config.visual_ids.image, 262144);
  EXPECT_EQ(config.visual_ids.image_begin, 255999);
  EXPECT_EQ(config.visual_ids.image_end, 256000);
}

TEST(VisionText, FlatQwenConfigs) {
  // As the config of Qwen2.5-VL-3B-Instruct has it.
  const Json flat = *ParseJson(R"({
    "architectures": ["Qwen2_5_VLForConditionalGeneration"], "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151645, "vision_start_token_id": 151652,
    "vision_end_token_id": 151653, "vision_token_id": 151654, "image_token_id": 151655,
    "video_token_id": 151656, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 128000,
    "max_window_layers": 70, "model_type": "qwen2_5_vl", "num_attention_heads": 16,
    "num_hidden_layers": 36, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "transformers_version": "4.41.2", "use_cache": true,
    "use_sliding_window": false, "vision_config": {"depth": 32, "model_type": "qwen2_5_vl"},
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "vocab_size": 151936
  })",
                               "flat");
  const ModelConfig config = kvgauge::Parse(flat);
  EXPECT_EQ(config.family, "qwen2");
  EXPECT_EQ(config.vision_family, "qwen2_5_vl");
  EXPECT_EQ(config.layer_count(), 36);
  EXPECT_EQ(config.vocab_size, 151936);
  EXPECT_TRUE(config.tied_head);
  EXPECT_EQ(config.stored_dtype, DType::kBF16);
  EXPECT_THAT(config.rope->sections, ElementsAre(16, 24, 24));
  EXPECT_FALSE(config.rope->interleaved);
  EXPECT_EQ(config.rope->kind, RopeKind::kDefault);
  EXPECT_EQ(config.visual_ids.image, 151655);
  EXPECT_EQ(config.visual_ids.vision_end, 151653);

  // The same nested, as transformers 5 writes it.
  Json text = flat;
  for (const char* key :
       {"vision_start_token_id", "vision_end_token_id", "vision_token_id", "image_token_id",
        "video_token_id", "architectures", "vision_config", "transformers_version"}) {
    text.erase(key);
  }
  text["model_type"] = "qwen2_5_vl_text";
  text.erase("rope_scaling");
  text.erase("rope_theta");
  text["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 1000000.0}, {"mrope_section", {16, 24, 24}}};
  const ModelConfig nested = kvgauge::Parse(Around("qwen2_5_vl", text));
  EXPECT_EQ(*nested.rope, *config.rope);
  EXPECT_EQ(nested.layer_count(), 36);
  // Files that were saved in between repeat the text part's keys at the top.
  Json twice = Around("qwen2_5_vl", text);
  twice["hidden_size"] = 2048;
  EXPECT_EQ(kvgauge::Parse(twice).hidden_size, 2048);
  twice["hidden_size"] = 1024;
  ExpectRefused(twice, "hidden_size");
}

TEST(VisionText, FaultsNameTheKey) {
  const Json good = Around("llava", TinyText("llama"));
  EXPECT_EQ(kvgauge::Parse(good).hidden_size, 32);
  ExpectRefused(With(good, {{"text_config", 3}}), "text_config", "an object");
  ExpectRefused(With(good, {{"new_flag", true}}), "new_flag");
  ExpectRefused(Around("llava", With(TinyText("llama"), {{"new_flag", true}})),
                "text_config.new_flag");
  ExpectRefused(Around("llava", With(TinyText("llama"), {{"hidden_size", 0}})),
                "text_config.hidden_size");
  ExpectRefused(Around("llava", With(TinyText("llama"), {{"model_type", "bert"}})),
                "text_config.model_type",
                "supported are gemma3_text, gemma3n_text, gemma4_text, llama");
  ExpectRefused(With(good, {{"vocab_size", 7}}), "vocab_size", "120");
  ExpectRefused(With(good, {{"image_token_index", 5}, {"image_token_id", 6}}), "image_token_id");
  ExpectRefused(Around("smolvlm", With(TinyText("llama"), {{"use_resampler", true}})),
                "text_config.use_resampler");
  // Sections: there, three of them, and as many frequencies as the head has.
  Json qwen = Around("qwen2_vl", TinyText("qwen2_vl_text"));
  ExpectRefused(qwen, "text_config.rope_scaling.mrope_section", "missing");
  qwen["text_config"]["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {1, 1, 1}}};
  ExpectRefused(qwen, "text_config.rope_scaling.mrope_section", "sum is 4");
  qwen["text_config"]["rope_scaling"]["mrope_section"] = {2, 2};
  ExpectRefused(qwen, "text_config.rope_scaling.mrope_section", "three numbers");
  qwen["text_config"]["rope_scaling"]["mrope_section"] = {1, 1, 2};
  EXPECT_THAT(kvgauge::Parse(qwen).rope->sections, ElementsAre(1, 1, 2));
  // A family without sections does not know the key.
  Json llama = TinyText("llama");
  llama["rope_scaling"] = {{"rope_type", "default"}, {"mrope_section", {1, 1, 2}}};
  ExpectRefused(llama, "rope_scaling.mrope_section");
}

TEST(VisionText, FrequenciesOfEachAxis) {
  RopeConfig rope;
  rope.rotary_dim = 16;
  EXPECT_TRUE(ComputeRope(rope, 8).axis.empty());
  rope.sections = {2, 3, 3};
  EXPECT_THAT(ComputeRope(rope, 8).axis, ElementsAre(0, 0, 1, 1, 1, 2, 2, 2));
  // Turns: time goes on where another axis has no more.
  rope.interleaved = true;
  rope.sections = {4, 2, 2};
  EXPECT_THAT(ComputeRope(rope, 8).axis, ElementsAre(0, 1, 2, 0, 1, 2, 0, 0));
  rope.sections = {2, 3, 3};
  EXPECT_THAT(ComputeRope(rope, 8).axis, ElementsAre(0, 1, 2, 0, 1, 2, 0, 1));
}

// A checkpoint's files under other names.
std::vector<StoredTensor> Renamed(std::vector<StoredTensor> tensors, const std::string& body,
                                  const std::string& head) {
  for (StoredTensor& tensor : tensors) {
    if (tensor.name.starts_with("model.")) {
      tensor.name = body + tensor.name.substr(6);
    } else {
      tensor.name = head + tensor.name;
    }
  }
  return tensors;
}

class VisionTextModel : public ::testing::Test {
 protected:
  void SetUp() override {
    ops_ = *MakeOps("cpu", MakeThreadSettings(2));
    const Result<ModelConfig> config = ParseModelConfig(TinyText("llama"), "text");
    ASSERT_TRUE(config.ok()) << config.error().message;
    tensors_ = DrawTensors(ExpectedTensors(*config));
  }

  // What the model in the folder says to a prompt of ids, every row.
  std::vector<float> Logits(const CheckpointFolder& folder) {
    const Result<std::unique_ptr<Model>> model = Model::Load(folder.path(), {}, *ops_);
    if (!model.ok()) {
      ADD_FAILURE() << model.error().message;
      return {};
    }
    const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 92, 65, 35, 8, 97, 9};
    const Prompt prompt = Prompt::FromTokens(ids);
    KvCache cache = (*model)->NewCache(prompt.size());
    std::vector<float> all;
    const Status status =
        Prefill(**model, prompt, cache, 4, true, [&](const Tensor& rows) -> Status {
          all.insert(all.end(), rows.f32(), rows.f32() + rows.Numel());
          return {};
        });
    EXPECT_TRUE(status.ok());
    return all;
  }

  std::string LoadError(const CheckpointFolder& folder) {
    const Result<std::unique_ptr<Model>> model = Model::Load(folder.path(), {}, *ops_);
    return model.ok() ? "loaded" : model.error().message;
  }

  std::unique_ptr<Ops> ops_;
  std::vector<StoredTensor> tensors_;
};

// Text through a vision-language checkpoint of either spelling is text through its text model.
TEST_F(VisionTextModel, TextIsThatOfTheTextModelBitForBit) {
  const CheckpointFolder text;
  text.WriteConfig(TinyText("llama"));
  text.WriteWeights(tensors_);
  const std::vector<float> want = Logits(text);
  ASSERT_EQ(want.size(), 11u * 120u);

  const std::map<std::string, std::string> spellings = {
      {"language_model.model.", "language_model."},
      {"model.language_model.", ""},
      {"model.text_model.", ""},
      {"model.", ""}};
  for (const auto& [body, head] : spellings) {
    const CheckpointFolder folder;
    folder.WriteConfig(Around("llava", TinyText("llama")));
    std::vector<StoredTensor> stored = Renamed(tensors_, body, head);
    // The tower is not read here.
    stored.push_back({"vision_tower.vision_model.embeddings.class_embedding", {2}, {1, 2}});
    stored.push_back({"multi_modal_projector.linear_1.bias", {2}, {1, 2}});
    folder.WriteWeights(stored);
    EXPECT_EQ(Logits(folder), want) << body;
  }
}

// Three axes that agree turn like one.
TEST_F(VisionTextModel, TextOfThreeAxesIsThatOfOne) {
  const Result<ModelConfig> config = ParseModelConfig(TinyText("qwen2"), "text");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const std::vector<StoredTensor> tensors = DrawTensors(ExpectedTensors(*config));
  const CheckpointFolder text;
  text.WriteConfig(With(TinyText("qwen2"), {{"rms_norm_eps", 1e-5}, {"rope_theta", 1e6}}));
  text.WriteWeights(tensors);
  const CheckpointFolder vision;
  vision.WriteConfig(Around(
      "qwen2_vl", With(TinyText("qwen2_vl_text"),
                       {{"rope_scaling", {{"type", "mrope"}, {"mrope_section", {1, 1, 2}}}}})));
  vision.WriteWeights(tensors);
  EXPECT_EQ(Logits(vision), Logits(text));
}

TEST_F(VisionTextModel, MixedSpellingsAreRefused) {
  const CheckpointFolder folder;
  folder.WriteConfig(Around("llava", TinyText("llama")));
  std::vector<StoredTensor> stored = Renamed(tensors_, "language_model.model.", "language_model.");
  stored.back().name = "model.language_model.norm.weight";
  folder.WriteWeights(stored);
  EXPECT_THAT(LoadError(folder), AllOf(HasSubstr("model.safetensors"), HasSubstr("two spellings"),
                                       HasSubstr("'model.language_model.norm.weight'")));
  // The head is part of a spelling.
  folder.WriteWeights(Renamed(tensors_, "language_model.model.", ""));
  EXPECT_THAT(LoadError(folder), AllOf(HasSubstr("two spellings"), HasSubstr("'lm_head.weight'")));
  // What is neither text nor tower is refused as ever.
  stored = Renamed(tensors_, "language_model.model.", "language_model.");
  stored.push_back({"audio_tower.weight", {1}, {1}});
  folder.WriteWeights(stored);
  EXPECT_THAT(LoadError(folder), HasSubstr("'audio_tower.weight'"));
  // A text model has no tower.
  const CheckpointFolder text;
  text.WriteConfig(TinyText("llama"));
  stored = tensors_;
  stored.push_back({"vision_tower.weight", {1}, {1}});
  text.WriteWeights(stored);
  EXPECT_THAT(LoadError(text), HasSubstr("'vision_tower.weight'"));
}

// A class ties by default what a file may hold apart.
TEST_F(VisionTextModel, TiedByDefault) {
  Json text_config = TinyText("qwen2");
  text_config["model_type"] = "qwen2";
  text_config.erase("tie_word_embeddings");
  const Result<ModelConfig> config = ParseModelConfig(text_config, "text");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const std::vector<StoredTensor> tensors = DrawTensors(ExpectedTensors(*config));
  const CheckpointFolder text;
  text.WriteConfig(With(text_config, {{"tie_word_embeddings", false}}));
  text.WriteWeights(tensors);
  const std::vector<float> apart = Logits(text);

  const CheckpointFolder vision;
  vision.WriteConfig(Around("internvl", text_config));
  vision.WriteWeights(Renamed(tensors, "language_model.model.", "language_model."));
  EXPECT_EQ(Logits(vision), apart);
  // Without a stored head it is the embedding.
  std::vector<StoredTensor> headless = tensors;
  std::erase_if(headless, [](const StoredTensor& t) { return t.name == "lm_head.weight"; });
  text.WriteConfig(With(text_config, {{"tie_word_embeddings", true}}));
  text.WriteWeights(headless);
  vision.WriteWeights(Renamed(headless, "language_model.model.", "language_model."));
  const std::vector<float> tied = Logits(text);
  EXPECT_EQ(Logits(vision), tied);
  EXPECT_NE(tied, apart);
}

}  // namespace
}  // namespace kvgauge
