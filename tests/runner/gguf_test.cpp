// SPDX-License-Identifier: Apache-2.0
// GGUF files: their headers, sound and lying, and what goes with a file that is no model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/strings.h"
#include "runner/config.h"
#include "runner/tokenizer.h"
#include "runner/weights.h"
#include "src/checkpoint/gguf/header.h"
#include "support/gguf_file.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<GgufHeader> ParseGguf(const std::string& bytes) {
  return ParseGgufHeader({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "m.gguf");
}

std::string GgufError(const GgufBytes& file) {
  const Result<GgufHeader> parsed = ParseGguf(file.bytes);
  EXPECT_FALSE(parsed.ok());
  if (parsed.ok()) return "";
  EXPECT_THAT(parsed.error().message, HasSubstr("m.gguf"));
  return parsed.error().message;
}

GgufBytes SoundFile() {
  GgufBytes file;
  file.Header(2, 3).KeyText("general.architecture", "llama").Key("llama.block_count", 7);
  file.Text("list").Number(9, 4).Number(8, 4).Number(2, 8).Text("a").Text("bc");
  file.Tensor("b", {64, 2}, 8, 32).Tensor("a", {3}, 0, 0).Pad().Data(32 + 4 * 34);
  return file;
}

TEST(GgufHeader, ReadsKeysAndPlaces) {
  const GgufBytes file = SoundFile();
  const Result<GgufHeader> header = ParseGguf(file.bytes);
  ASSERT_TRUE(header.ok()) << header.error().message;
  EXPECT_EQ(header->Find("general.architecture")->Text(), "llama");
  EXPECT_EQ(header->Find("llama.block_count")->Int(), 7);
  EXPECT_FALSE(header->Find("llama.block_count")->Text());
  EXPECT_THAT(*header->Find("list")->Texts(), ElementsAre("a", "bc"));
  EXPECT_EQ(header->Find("none"), nullptr);
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_THAT(header->tensors[1].shape, ElementsAre(2, 64));
  EXPECT_EQ(header->tensors[1].type->name, "q8_0");
  EXPECT_EQ(header->tensors[1].end, file.bytes.size());
}

TEST(GgufHeader, EveryCutIsRefused) {
  const std::string bytes = SoundFile().bytes;
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ParseGguf(bytes.substr(0, size)).ok()) << size;
  }
}

TEST(GgufHeader, NamesWhatIsWrong) {
  GgufBytes file;
  file.bytes = "GGML and more of it";
  EXPECT_THAT(GgufError(file), HasSubstr("no GGUF file"));
  EXPECT_THAT(GgufError(GgufBytes().Header(0, 0, 1)), HasSubstr("version 1"));
  EXPECT_THAT(GgufError(GgufBytes().Header(0, 0, 3 << 24)), HasSubstr("big-endian"));
  EXPECT_THAT(GgufError(GgufBytes().Header(uint64_t{1} << 60, 0)), HasSubstr("more than"));
  EXPECT_THAT(GgufError(GgufBytes().Header(0, uint64_t{1} << 60)), HasSubstr("more than"));
  EXPECT_THAT(GgufError(GgufBytes().Header(0, 2).Key("a", 1).Key("a", 1)),
              HasSubstr("'a' is there"));
  EXPECT_THAT(GgufError(GgufBytes().Header(0, 1).Text("a").Number(13, 4).Number(0, 8)),
              AllOf(HasSubstr("'a'"), HasSubstr("unknown type 13")));
  // The lengths of a text and of a list wrap when bytes are counted.
  EXPECT_THAT(GgufError(GgufBytes().Header(0, 1).Text("a").Number(8, 4).Number(~uint64_t{0}, 8)),
              HasSubstr("beyond the end"));
  EXPECT_THAT(GgufError(GgufBytes().Header(0, 1).Text("a").Number(9, 4).Number(10, 4).Number(
                  uint64_t{1} << 61, 8)),
              HasSubstr("beyond the end"));
  EXPECT_THAT(GgufError(GgufBytes().Header(0, 1).Text("a").Number(9, 4).Number(9, 4).Number(1, 8)),
              HasSubstr("array of arrays"));
}

// One tensor and data enough for most claims.
std::string TensorError(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
                        uint64_t offset) {
  GgufBytes file;
  file.Header(1, 0).Tensor(name, dims, type, offset).Pad().Data(256);
  return GgufError(file);
}

TEST(GgufHeader, NamesTheTensorThatLies) {
  EXPECT_THAT(TensorError("t", {8}, 0, 4), AllOf(HasSubstr("'t'"), HasSubstr("alignment")));
  EXPECT_THAT(TensorError("t", {65}, 0, 0), HasSubstr("256 bytes of data"));
  EXPECT_THAT(TensorError("t", {8}, 0, uint64_t{1} << 63), HasSubstr("'t'"));
  EXPECT_THAT(TensorError("t", {uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0),
              HasSubstr("dimension 1"));
  EXPECT_THAT(TensorError("t", {uint64_t{1} << 62}, 0, 0), HasSubstr("'t'"));
  EXPECT_THAT(TensorError("t", {0}, 0, 0), HasSubstr("dimension 0 is 0"));
  EXPECT_THAT(TensorError("t", {}, 0, 0), HasSubstr("0 dimensions"));
  EXPECT_THAT(TensorError("t", {1, 1, 1, 1, 1}, 0, 0), HasSubstr("5 dimensions"));
  EXPECT_THAT(TensorError("t", {33}, 8, 0), AllOf(HasSubstr("'t'"), HasSubstr("q8_0")));
  EXPECT_THAT(TensorError("t", {256}, 16, 0), AllOf(HasSubstr("'t'"), HasSubstr("iq2_xxs")));
  EXPECT_THAT(TensorError("t", {256}, 777, 0), HasSubstr("unknown type 777"));
  EXPECT_THAT(TensorError("", {8}, 0, 0), HasSubstr("tensor 0"));
  GgufBytes file;
  file.Header(2, 0).Tensor("a", {16}, 0, 0).Tensor("b", {8}, 0, 32).Pad().Data(256);
  EXPECT_THAT(GgufError(file),
              AllOf(HasSubstr("'b'"), HasSubstr("begins inside"), HasSubstr("'a'")));
  GgufBytes twice;
  twice.Header(2, 0).Tensor("a", {8}, 0, 0).Tensor("a", {8}, 0, 32).Pad().Data(256);
  EXPECT_THAT(GgufError(twice), HasSubstr("twice"));
  GgufBytes aligned;
  aligned.Header(0, 1).Key("general.alignment", 24);
  EXPECT_THAT(GgufError(aligned), AllOf(HasSubstr("general.alignment"), HasSubstr("24")));
}

class GgufDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "gguf_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
  }
  std::string ConfigError(const std::string& path) {
    const Result<ModelConfig> config = ReadModelConfig(path);
    EXPECT_FALSE(config.ok());
    return config.ok() ? "" : config.error().message;
  }

  std::string path_;
};

TEST_F(GgufDirectory, HoldsOneFormat) {
  Write("a.gguf", SoundFile().bytes);
  Write("model.safetensors", "x");
  EXPECT_THAT(ConfigError(path_), AllOf(HasSubstr("a.gguf"), HasSubstr("model.safetensors")));
  EXPECT_FALSE(OpenWeights(path_, DType::kF32).ok());
  std::filesystem::remove(path_ + "/model.safetensors");
  Write("b.gguf", SoundFile().bytes);
  EXPECT_THAT(ConfigError(path_), HasSubstr("2 GGUF files"));
}

// A file of Gemma 4 whose two layers have MLPs of these widths, the second one with a cache of the
// first.
GgufBytes TwoLayersOf(const std::vector<uint32_t>& widths, const std::vector<bool>& sliding,
                      uint32_t full_values = 16) {
  GgufBytes file;
  file.Header(1, 8).KeyText("general.architecture", "gemma4").Key("gemma4.block_count", 2);
  file.Key("gemma4.attention.key_length", 16);
  file.Key("gemma4.attention.value_length", full_values);
  file.Key("gemma4.attention.key_length_swa", 8).Key("gemma4.attention.shared_kv_layers", 1);
  file.KeyFlags("gemma4.attention.sliding_window_pattern", sliding);
  file.KeyNumbers("gemma4.feed_forward_length", widths);
  return file.Tensor("token_embd.weight", {8, 4}, 0, 0).Pad().Data(128);
}

TEST_F(GgufDirectory, NamesWhatLayersMayNotHave) {
  const auto error = [&](const GgufBytes& file) {
    Write("m.gguf", file.bytes);
    return ConfigError(path_);
  };
  EXPECT_THAT(error(TwoLayersOf({4, 8}, {true})),
              AllOf(HasSubstr("sliding_window_pattern"), HasSubstr("2 flags")));
  EXPECT_THAT(error(TwoLayersOf({4, 8}, {true, true}, 8)), HasSubstr("attention.value_length"));
  EXPECT_THAT(error(TwoLayersOf({4, 8}, {true, true})),
              AllOf(HasSubstr("rope.dimension_count"), HasSubstr("rope_freqs")));

  GgufBytes chunks;
  chunks.Header(1, 5).KeyText("general.architecture", "llama4").Key("llama4.block_count", 2);
  chunks.Key("llama4.expert_count", 2).Key("llama4.attention.sliding_window", 0);
  chunks.Key("llama4.embedding_length", 8);
  chunks.Tensor("token_embd.weight", {8, 4}, 0, 0).Pad().Data(128);
  EXPECT_THAT(error(chunks), AllOf(HasSubstr("sliding_window"), HasSubstr("chunks of 8192")));
}

TEST_F(GgufDirectory, NamesExpertsThatCannotBeParted) {
  const auto error = [&](const std::vector<std::pair<std::string, uint64_t>>& rows) {
    GgufBytes file;
    file.Header(rows.size(), 2).KeyText("general.architecture", "gemma4");
    file.Key("gemma4.expert_count", 2);
    uint64_t offset = 0;
    for (const auto& [name, count] : rows) {
      file.Tensor(name, {8, count, 2}, 0, offset);
      offset += 8 * count * 2 * 4;
    }
    Write("m.gguf", file.Pad().Data(offset).bytes);
    const auto weights = OpenWeights(path_, DType::kF32);
    EXPECT_FALSE(weights.ok());
    return weights.ok() ? "" : weights.error().message;
  };
  EXPECT_THAT(error({{"blk.0.ffn_gate_up_exps.weight", 3}}),
              AllOf(HasSubstr("ffn_gate_up_exps"), HasSubstr("3 rows"), HasSubstr("even")));
  EXPECT_THAT(error({{"blk.0.ffn_gate_up_exps.weight", 4}, {"blk.0.ffn_up_exps.weight", 2}}),
              AllOf(HasSubstr("'blk.0.ffn_up_exps.weight'"), HasSubstr("already")));
}

// What a checkpoint may leave to a class of transformers, a file must say; only a number of KV
// heads may be absent, and is then that of heads.
TEST_F(GgufDirectory, KeysThatEveryFileHas) {
  const auto config = [&](const std::string& left_out) {
    GgufBytes keys;
    uint64_t count = 1;
    for (const auto& [key, value] :
         std::vector<std::pair<std::string, uint32_t>>{{"block_count", 2},
                                                       {"embedding_length", 8},
                                                       {"feed_forward_length", 8},
                                                       {"attention.head_count", 2},
                                                       {"expert_count", 2},
                                                       {"expert_used_count", 2}}) {
      if (key == left_out) continue;
      keys.Key("llama." + key, value);
      ++count;
    }
    const std::string eps = "attention.layer_norm_rms_epsilon";
    if (left_out != eps) keys.KeyFloat("llama." + eps, 1e-5f);
    GgufBytes file;
    file.Header(1, left_out == eps ? count : count + 1).KeyText("general.architecture", "llama");
    file.bytes += keys.bytes;
    Write("m.gguf", file.Tensor("token_embd.weight", {8, 4}, 0, 0).Pad().Data(128).bytes);
    return ReadModelConfig(path_);
  };
  const Result<ModelConfig> whole = config("");
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(whole->kv_heads, 2);  // the class has 8
  for (const std::string key : {"embedding_length", "block_count", "expert_used_count",
                                "attention.layer_norm_rms_epsilon"}) {
    const Result<ModelConfig> part = config(key);
    ASSERT_FALSE(part.ok()) << key;
    EXPECT_THAT(part.error().message, HasSubstr("'llama." + key + "'"));
  }
}

// A file of DeepSeek's that does not say that experts stand in groups.
GgufBytes LatentsOf(uint32_t experts, uint32_t gating) {
  GgufBytes file;
  file.Header(1, 17).KeyText("general.architecture", "deepseek2");
  file.KeyFloat("deepseek2.attention.layer_norm_rms_epsilon", 1e-6f);
  const std::vector<std::pair<std::string, uint32_t>> keys = {
      {"block_count", 2},
      {"context_length", 64},
      {"embedding_length", 32},
      {"feed_forward_length", 48},
      {"attention.head_count", 4},
      {"attention.head_count_kv", 4},
      {"attention.key_length", 12},
      {"attention.value_length", 8},
      {"attention.kv_lora_rank", 16},
      {"rope.dimension_count", 4},
      {"expert_count", experts},
      {"expert_used_count", 6},
      {"expert_feed_forward_length", 8},
      {"expert_shared_count", 1},
      {"expert_gating_func", gating},
  };
  for (const auto& [key, value] : keys) file.Key("deepseek2." + key, value);
  return file.Tensor("token_embd.weight", {32, 4}, 0, 0).Pad().Data(32 * 4 * 4);
}

TEST_F(GgufDirectory, GroupsOfExpertsThatEarlierFilesLeaveOut) {
  struct Case {
    uint32_t experts, gating;
    int64_t groups, kept;
    bool sigmoid;
  };
  // V3, V2, V2-Lite, and one that only chooses as V3 does.
  for (const Case& item : {Case{256, 2, 8, 4, true}, Case{160, 1, 8, 3, false},
                           Case{64, 1, 1, 1, false}, Case{64, 2, 1, 1, true}}) {
    Write("m.gguf", LatentsOf(item.experts, item.gating).bytes);
    const Result<ModelConfig> config = ReadModelConfig(path_);
    ASSERT_TRUE(config.ok()) << config.error().message;
    ASSERT_TRUE(config->moe);
    EXPECT_EQ(config->moe->sigmoid, item.sigmoid);
    EXPECT_EQ(config->moe->groups, item.groups);
    EXPECT_EQ(config->moe->top_groups, item.kept);
    EXPECT_EQ(config->mla->nope_dim, 8);
    EXPECT_EQ(config->value_dim, 8);
  }
}

TEST_F(GgufDirectory, NamesPartsThatDoNotFit) {
  struct Shape {
    std::string name;
    std::vector<uint64_t> dims;
  };
  const auto error = [&](const std::string& architecture, const std::vector<Shape>& shapes) {
    GgufBytes file;
    file.Header(shapes.size(), 4).KeyText("general.architecture", architecture);
    file.Key(architecture + ".attention.head_count", 4);
    file.Key(architecture + ".attention.head_count_kv", 2);
    file.Key(architecture + ".expert_count", architecture == "deepseek2" ? 2 : 0);
    uint64_t offset = 0;
    for (const Shape& shape : shapes) {
      file.Tensor(shape.name, shape.dims, 0, offset);
      uint64_t bytes = 4;
      for (const uint64_t dim : shape.dims) bytes *= dim;
      offset += (bytes + 31) / 32 * 32;
    }
    Write("m.gguf", file.Pad().Data(offset).bytes);
    const auto weights = OpenWeights(path_, DType::kF32);
    EXPECT_FALSE(weights.ok());
    return weights.ok() ? "" : weights.error().message;
  };
  const std::string keys = "blk.0.attn_k_b.weight", values = "blk.0.attn_v_b.weight";
  EXPECT_THAT(error("deepseek2", {{values, {8, 8, 4}}}),
              AllOf(HasSubstr(keys), HasSubstr("missing")));
  EXPECT_THAT(error("deepseek2", {{keys, {4, 8, 3}}, {values, {8, 8, 4}}}),
              AllOf(HasSubstr(keys), HasSubstr("[3, 8, 4]"), HasSubstr("4 heads")));
  EXPECT_THAT(error("deepseek2", {{keys, {4, 8, 4}}, {values, {16, 8, 4}}}),
              AllOf(HasSubstr(values), HasSubstr("8 columns")));
  EXPECT_THAT(error("falcon", {{"blk.0.attn_qkv.weight", {8, 12}}}),
              AllOf(HasSubstr("[12, 8]"), HasSubstr("4 heads of queries and of 2")));
  EXPECT_THAT(error("internlm2", {{"blk.0.attn_q.weight", {8, 16}},
                                  {"blk.0.attn_k.weight", {8, 8}},
                                  {"blk.0.attn_v.weight", {8, 4}}}),
              HasSubstr("rows of 4 heads, and of 2"));
  EXPECT_THAT(
      error("granitehybrid", {{"blk.0.ffn_gate.weight", {8, 4}}, {"blk.0.ffn_up.weight", {16, 4}}}),
      AllOf(HasSubstr("blk.0.ffn_up.weight"), HasSubstr("blk.0.ffn_gate.weight")));
  EXPECT_THAT(error("chatglm", {{"blk.0.attn_qkv.weight", {8, 9}}}), HasSubstr("[9, 8]"));
}

// Queries, keys and values in one tensor, and layers that predict further tokens.
TEST_F(GgufDirectory, PartsAndLeavesOutTensors) {
  GgufBytes file;
  file.Header(2, 5).KeyText("general.architecture", "chatglm");
  file.Key("chatglm.attention.head_count", 4).Key("chatglm.attention.head_count_kv", 2);
  file.Key("chatglm.block_count", 2).Key("chatglm.nextn_predict_layers", 1);
  file.Tensor("blk.0.attn_qkv.bias", {16}, 0, 0);
  file.Tensor("blk.1.nextn.eh_proj.weight", {8}, 0, 64).Pad();
  for (int i = 0; i < 24; ++i) {
    const float value = static_cast<float>(i);
    file.bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  Write("m.gguf", file.bytes);
  const auto weights = OpenWeights(path_, DType::kF32);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  const std::string scope = "model.layers.0.self_attn.";
  EXPECT_THAT((*weights)->Names(),
              ElementsAre(scope + "k_proj.bias", scope + "q_proj.bias", scope + "v_proj.bias"));
  const auto numbers = [&](const std::string& name) {
    const Result<WeightTensor> tensor = (*weights)->Get(scope + name + ".bias");
    EXPECT_TRUE(tensor.ok());
    const float* first = tensor->view.f32();
    return std::vector<float>(first, first + tensor->view.Numel());
  };
  EXPECT_THAT(numbers("q_proj"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(numbers("k_proj"), ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(numbers("v_proj"), ElementsAre(12, 13, 14, 15));
}

TEST_F(GgufDirectory, NamesWhatFamiliesMayNotHave) {
  const auto error = [&](const GgufBytes& file) {
    Write("m.gguf", file.bytes);
    return ConfigError(path_);
  };
  const auto end = [](GgufBytes& file) -> GgufBytes& {
    return file.Tensor("token_embd.weight", {8, 4}, 0, 0).Pad().Data(128);
  };
  GgufBytes bamba;
  bamba.Header(1, 12).KeyText("general.architecture", "granitehybrid");
  bamba.Key("granitehybrid.block_count", 2).Key("granitehybrid.embedding_length", 8);
  bamba.Key("granitehybrid.attention.head_count", 2);
  bamba.KeyNumbers("granitehybrid.attention.head_count_kv", {0, 2});
  bamba.Key("granitehybrid.ssm.inner_size", 16).Key("granitehybrid.ssm.time_step_rank", 2);
  bamba.Key("granitehybrid.ssm.state_size", 4).Key("granitehybrid.ssm.conv_kernel", 4);
  bamba.Key("granitehybrid.ssm.group_count", 1).Key("granitehybrid.vocab_size", 4);
  bamba.KeyFlag("granitehybrid.rope.scaling.finetuned", true);
  EXPECT_THAT(error(end(bamba)), AllOf(HasSubstr("rope.scaling.finetuned"), HasSubstr("Bamba")));

  GgufBytes jamba;
  jamba.Header(1, 11).KeyText("general.architecture", "jamba").Key("jamba.block_count", 5);
  jamba.Key("jamba.embedding_length", 8).Key("jamba.attention.head_count", 2);
  jamba.Key("jamba.expert_count", 2).Key("jamba.ssm.inner_size", 16);
  jamba.Key("jamba.ssm.time_step_rank", 2).Key("jamba.ssm.state_size", 4);
  jamba.Key("jamba.ssm.conv_kernel", 4).Key("jamba.feed_forward_length", 8);
  jamba.KeyNumbers("jamba.attention.head_count_kv", {2, 0, 2, 2, 0});
  EXPECT_THAT(error(end(jamba)), AllOf(HasSubstr("head_count_kv"), HasSubstr("layer 3")));

  GgufBytes mpt;
  mpt.Header(1, 2).KeyText("general.architecture", "mpt").Key("mpt.block_count", 1);
  EXPECT_THAT(error(end(mpt)), HasSubstr("max_alibi_bias"));

  GgufBytes dots;
  dots.Header(1, 7).KeyText("general.architecture", "dots1").Key("dots1.block_count", 1);
  dots.Key("dots1.embedding_length", 8).Key("dots1.attention.head_count", 2);
  dots.Key("dots1.expert_count", 2).Key("dots1.expert_gating_func", 1);
  dots.Key("dots1.feed_forward_length", 8);
  EXPECT_THAT(error(end(dots)), AllOf(HasSubstr("expert_gating_func"), HasSubstr("sigmoids")));
}

TEST_F(GgufDirectory, RefusesWhatItDoesNotKnow) {
  GgufBytes other;
  other.Header(0, 1).KeyText("general.architecture", "lama");
  Write("m.gguf", other.bytes);
  EXPECT_THAT(ConfigError(path_), AllOf(HasSubstr("'lama'"), HasSubstr("did you mean 'llama'"),
                                        HasSubstr("command-r, deepseek2, dots1, ernie4_5")));
  GgufBytes mixture;
  mixture.Header(0, 2).KeyText("general.architecture", "granite").Key("granite.expert_count", 2);
  Write("m.gguf", mixture.bytes);
  EXPECT_THAT(ConfigError(path_), HasSubstr("'granite' with experts is not read"));

  GgufBytes key;
  key.Header(1, 2).KeyText("general.architecture", "llama").Key("llama.new_thing", 1);
  key.Tensor("token_embd.weight", {8, 4}, 0, 0).Pad().Data(128);
  Write("m.gguf", key.bytes);
  EXPECT_THAT(ConfigError(path_), AllOf(HasSubstr("llama.new_thing"), HasSubstr("understood")));

  GgufBytes tensor;
  tensor.Header(1, 1).KeyText("general.architecture", "llama");
  tensor.Tensor("blk.0.surprise.weight", {8}, 0, 0).Pad().Data(32);
  Write("m.gguf", tensor.bytes);
  const auto weights = OpenWeights(path_, DType::kF32);
  ASSERT_FALSE(weights.ok());
  EXPECT_THAT(weights.error().message, HasSubstr("'blk.0.surprise.weight'"));

  GgufBytes vocabulary;
  vocabulary.Header(0, 3).KeyText("general.architecture", "llama");
  vocabulary.KeyText("tokenizer.ggml.model", "gpt2").KeyText("tokenizer.ggml.pre", "new-one");
  Write("m.gguf", vocabulary.bytes);
  EXPECT_FALSE(LoadTokenizer(path_).ok());
}

}  // namespace
}  // namespace kvgauge
