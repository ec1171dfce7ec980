// SPDX-License-Identifier: Apache-2.0
// Configs that are not accepted, and directories that hold none.
#include <filesystem>
#include <limits>

#include "core/files.h"
#include "core/strings.h"
#include "runner/config_cases.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A block-diffusion drafter that calls itself qwen3: everything fits, only the keys tell.
TEST(Config, LookalikesAreRefused) {
  ExpectRefused(With(Base("qwen3"), {{"is_causal", false}}), "is_causal");
  ExpectRefused(With(Base("qwen3"), {{"v_head_dim", 16}}), "v_head_dim");
}

TEST(Config, HostileRope) {
  const auto scaled = [](const Json& block) {
    return With(Base("llama"), {{"rope_scaling", block}});
  };
  ExpectRefused(scaled({{"type", "linaer"}, {"factor", 2}}), "rope_scaling.type", "linear");
  ExpectRefused(scaled({{"type", "linear"}}), "rope_scaling.factor", "missing");
  ExpectRefused(scaled({{"type", "linear"}, {"factor", 0.25}}), "rope_scaling.factor", "0.25");
  ExpectRefused(scaled({{"type", "linear"}, {"factor", "2"}}), "rope_scaling.factor", "number");
  ExpectRefused(scaled({{"type", "linear"}, {"rope_type", "dynamic"}, {"factor", 2}}),
                "rope_scaling.type", "rope_type");
  ExpectRefused(scaled({{"type", "linear"}, {"factor", 2}, {"facotr", 2}}), "rope_scaling.facotr",
                "forward pass");
  ExpectRefused(scaled({{"type", "linear"}, {"factor", 2}, {"beta_fast", 2}}),
                "rope_scaling.beta_fast");
  ExpectRefused(scaled(Json::array({1})), "rope_scaling", "object");
  ExpectRefused(scaled({{"type", "yarn"}, {"factor", 2}, {"beta_fast", 1}, {"beta_slow", 2}}),
                "rope_scaling.beta_fast");
  ExpectRefused(scaled({{"type", "yarn"}, {"factor", std::numeric_limits<double>::infinity()}}),
                "rope_scaling.factor");
  const Json llama3 = {
      {"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}};
  ExpectRefused(scaled(llama3), "rope_scaling.original_max_position_embeddings", "missing");
  ExpectRefused(
      scaled(With(llama3, {{"original_max_position_embeddings", 256}, {"high_freq_factor", 0.5}})),
      "rope_scaling.high_freq_factor");
  ExpectRefused(scaled(With(llama3, {{"original_max_position_embeddings", 0}})),
                "rope_scaling.original_max_position_embeddings", "0");
  ExpectRefused(With(Base("llama"), {{"rope_theta", -1}}), "rope_theta", "-1");
  ExpectRefused(With(Base("llama"), {{"rope_theta", std::nan("")}}), "rope_theta");
  ExpectRefused(With(Base("llama"), {{"head_dim", 7}}), "head_dim", "even");
  ExpectRefused(With(With(Base("llama"), {{"head_dim", 2}}),
                     {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}}),
                "head_dim", "dynamic");
}

TEST(Config, HostileSizes) {
  for (const std::string& family : kFamilies) {
    SCOPED_TRACE(family);
    const char* ffn = family == "opt" ? "ffn_dim" : "intermediate_size";
    for (const std::string key :
         {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", ffn}) {
      ExpectRefused(With(Base(family), {{key, 0}}), key, "0");
      ExpectRefused(With(Base(family), {{key, -1}}), key, "-1");
      ExpectRefused(With(Base(family), {{key, int64_t{1} << 40}}), key);
      ExpectRefused(With(Base(family), {{key, 18446744073709551615u}}), key);
      ExpectRefused(With(Base(family), {{key, 2.5}}), key);
      ExpectRefused(With(Base(family), {{key, "8"}}), key);
      ExpectRefused(With(Base(family), {{key, nullptr}}), key, "null");
      Json missing = Base(family);
      missing.erase(key);
      ExpectRefused(missing, key, "missing");
    }
    ExpectRefused(With(Base(family), {{"max_position_embeddings", 0}}), "max_position_embeddings");
    if (family == "opt" || family == "deepseek_v2") continue;
    ExpectRefused(With(Base(family), {{"num_key_value_heads", 4}}), "num_key_value_heads", "6");
    ExpectRefused(With(Base(family), {{"num_key_value_heads", 0}}), "num_key_value_heads");
    ExpectRefused(With(Base(family), {{"head_dim", -8}}), "head_dim");
    ExpectRefused(With(Base(family), {{"rms_norm_eps", 0}}), "rms_norm_eps");
    ExpectRefused(With(Base(family), {{"rms_norm_eps", 1.0}}), "rms_norm_eps");
  }
  ExpectRefused(With(Base("llama"), {{"hidden_size", 50}}), "hidden_size", "head_dim");
}

TEST(Config, UnknownKeysAreRefused) {
  ExpectRefused(With(Base("llama"), {{"rms_norm_epz", 1e-5}}), "rms_norm_epz",
                "did you mean 'rms_norm_eps'?");
  for (const std::string& family : kFamilies) {
    ExpectRefused(With(Base(family), {{"new_trick", 1}}), "new_trick", "forward pass");
    ExpectRefused(With(Base(family), {{"quantization_config", {{"bits", 4}}}}),
                  "quantization_config.quant_method");
    ExpectRefused(With(Base(family), {{"architectures", {"SomeForSequenceClassification"}}}),
                  "architectures");
  }
  ExpectRefused(With(Base("llama"), {{"pretraining_tp", 2}}), "pretraining_tp", "2");
  ExpectRefused(With(Base("llama"), {{"sliding_window", 4096}}), "sliding_window");
  ExpectRefused(With(Base("llama"), {{"rope_interleaved", true}}), "rope_interleaved");
  ExpectRefused(With(Base("llama"), {{"tie_word_embeddings", 1}}), "tie_word_embeddings");
  ExpectRefused(With(Base("llama"), {{"hidden_act", "gellu"}}), "hidden_act", "gelu");
  ExpectRefused(With(Base("llama"), {{"torch_dtype", "float64"}}), "torch_dtype");
  ExpectRefused(With(Base("llama"), {{"torch_dtype", "float16"}, {"dtype", "float32"}}),
                "torch_dtype", "dtype");
  ExpectRefused(With(Base("llama"), {{"eos_token_id", {2, 300}}}), "eos_token_id");
  ExpectRefused(With(Base("llama"), {{"bos_token_id", 300}}), "bos_token_id");
}

TEST(Config, UnknownModels) {
  EXPECT_THAT(
      ErrorOf(With(Base("llama"), {{"model_type", "lama"}})),
      AllOf(HasSubstr(kOrigin), HasSubstr("did you mean 'llama'?"), HasSubstr("deepseek_v2")));
  EXPECT_THAT(ErrorOf(Json::object()), HasSubstr("'model_type'"));
  EXPECT_THAT(ErrorOf({{"model_type", 3}}), HasSubstr("supported are"));
  EXPECT_THAT(ErrorOf(Json::array()), HasSubstr(kOrigin));
}

class ConfigDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ =
        std::filesystem::path(::testing::TempDir()) /
        StrCat("kvgauge_config_", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  void Write(const std::string& name, const Json& json) {
    ASSERT_TRUE(WriteFile(path_ / name, json.dump()).ok());
  }

  std::filesystem::path path_;
};

TEST_F(ConfigDirectory, GenerationConfigWins) {
  Write("config.json", With(Base("llama"), {{"eos_token_id", 2}, {"pad_token_id", 7}}));
  Write("generation_config.json",
        {{"eos_token_id", {5, 6}}, {"bos_token_id", 9}, {"temperature", 0.6}});
  const Result<ModelConfig> config = ReadModelConfig(path_);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_THAT(config->eos_ids, ElementsAre(5, 6));
  EXPECT_EQ(config->bos_id, 9);
  EXPECT_EQ(config->pad_id, 7);
  EXPECT_EQ(config->path, (path_ / "config.json").string());
  // The file alone: no neighbour is looked at.
  const Result<ModelConfig> alone = ReadModelConfig(path_ / "config.json");
  ASSERT_TRUE(alone.ok());
  EXPECT_THAT(alone->eos_ids, ElementsAre(2));

  Write("generation_config.json", {{"eos_token_id", {5, 999}}});
  const Result<ModelConfig> bad = ReadModelConfig(path_);
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.error().message,
              AllOf(HasSubstr("generation_config.json"), HasSubstr("'eos_token_id'")));
}

// Python writes them without quotes, and published files of Mamba-2 and Nemotron-H have them.
TEST_F(ConfigDirectory, InfinityMayStandWithoutQuotes) {
  const Result<std::string> golden =
      ReadFile(KVG_SOURCE_DIR "/tests/golden/models/bamba/config.json");
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  const auto read = [&](const std::string& entry) {
    EXPECT_TRUE(WriteFile(path_ / "config.json", StrCat("{", entry, ",", golden->substr(1))).ok());
    return ReadModelConfig(path_);
  };
  const Result<ModelConfig> config =
      read(R"("_name_or_path": "a \"NaN\" is Infinity", "time_step_limit": [0.25, Infinity])");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->state->least_step, 0.25);
  for (const std::string limit : {"[NaN, Infinity]", "[0.0, -Infinity]", "[0.0, infinity]"}) {
    const Result<ModelConfig> refused = read(StrCat("\"time_step_limit\": ", limit));
    ASSERT_FALSE(refused.ok()) << limit;
    EXPECT_THAT(refused.error().message, HasSubstr("config.json"));
  }
}

TEST_F(ConfigDirectory, MissingAndBrokenFiles) {
  const Result<ModelConfig> missing = ReadModelConfig(path_);
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("config.json"));
  ASSERT_TRUE(
      WriteFile(path_ / "config.json", R"({"model_type": "llama", "vocab_size": 1e999})").ok());
  const Result<ModelConfig> broken = ReadModelConfig(path_);
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message, HasSubstr("config.json"));
  ASSERT_TRUE(WriteFile(path_ / "config.json", "{\"a\":1,\"a\":2}").ok());
  EXPECT_THAT(ReadModelConfig(path_).error().message, HasSubstr("twice"));
}

}  // namespace
}  // namespace kvgauge
