// SPDX-License-Identifier: Apache-2.0
// GGUF files: their headers, sound and lying, and what goes with a file that is no model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
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

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file as the format says, in parts that a test may make wrong.
class FileOf {
 public:
  FileOf& Number(uint64_t value, int width) {
    for (int i = 0; i < width; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }
  FileOf& Text(const std::string& text) {
    Number(text.size(), 8);
    bytes += text;
    return *this;
  }
  FileOf& Header(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    bytes += "GGUF";
    return Number(version, 4).Number(tensors, 8).Number(keys, 8);
  }
  FileOf& Key(const std::string& key, uint32_t value) {
    return Text(key).Number(4, 4).Number(value, 4);
  }
  FileOf& KeyFlags(const std::string& key, const std::vector<bool>& flags) {
    Text(key).Number(9, 4).Number(7, 4).Number(flags.size(), 8);
    for (const bool flag : flags) Number(flag ? 1 : 0, 1);
    return *this;
  }
  FileOf& KeyNumbers(const std::string& key, const std::vector<uint32_t>& numbers) {
    Text(key).Number(9, 4).Number(4, 4).Number(numbers.size(), 8);
    for (const uint32_t number : numbers) Number(number, 4);
    return *this;
  }
  FileOf& KeyText(const std::string& key, const std::string& value) {
    return Text(key).Number(8, 4).Text(value);
  }
  FileOf& Tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
                 uint64_t offset) {
    Text(name).Number(dims.size(), 4);
    for (const uint64_t dim : dims) Number(dim, 8);
    return Number(type, 4).Number(offset, 8);
  }
  FileOf& Pad(size_t alignment = 32) {
    while (bytes.size() % alignment != 0) bytes.push_back('\0');
    return *this;
  }
  FileOf& Data(size_t count) {
    bytes += std::string(count, '\0');
    return *this;
  }
  std::string bytes;
};

Result<GgufHeader> ParseGguf(const std::string& bytes) {
  return ParseGgufHeader({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "m.gguf");
}

std::string GgufError(const FileOf& file) {
  const Result<GgufHeader> parsed = ParseGguf(file.bytes);
  EXPECT_FALSE(parsed.ok());
  if (parsed.ok()) return "";
  EXPECT_THAT(parsed.error().message, HasSubstr("m.gguf"));
  return parsed.error().message;
}

FileOf SoundFile() {
  FileOf file;
  file.Header(2, 3).KeyText("general.architecture", "llama").Key("llama.block_count", 7);
  file.Text("list").Number(9, 4).Number(8, 4).Number(2, 8).Text("a").Text("bc");
  file.Tensor("b", {64, 2}, 8, 32).Tensor("a", {3}, 0, 0).Pad().Data(32 + 4 * 34);
  return file;
}

TEST(GgufHeader, ReadsKeysAndPlaces) {
  const FileOf file = SoundFile();
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
  FileOf file;
  file.bytes = "GGML and more of it";
  EXPECT_THAT(GgufError(file), HasSubstr("no GGUF file"));
  EXPECT_THAT(GgufError(FileOf().Header(0, 0, 1)), HasSubstr("version 1"));
  EXPECT_THAT(GgufError(FileOf().Header(0, 0, 3 << 24)), HasSubstr("big-endian"));
  EXPECT_THAT(GgufError(FileOf().Header(uint64_t{1} << 60, 0)), HasSubstr("more than"));
  EXPECT_THAT(GgufError(FileOf().Header(0, uint64_t{1} << 60)), HasSubstr("more than"));
  EXPECT_THAT(GgufError(FileOf().Header(0, 2).Key("a", 1).Key("a", 1)), HasSubstr("'a' is there"));
  EXPECT_THAT(GgufError(FileOf().Header(0, 1).Text("a").Number(13, 4).Number(0, 8)),
              AllOf(HasSubstr("'a'"), HasSubstr("unknown type 13")));
  // The lengths of a text and of a list wrap when bytes are counted.
  EXPECT_THAT(GgufError(FileOf().Header(0, 1).Text("a").Number(8, 4).Number(~uint64_t{0}, 8)),
              HasSubstr("beyond the end"));
  EXPECT_THAT(GgufError(FileOf().Header(0, 1).Text("a").Number(9, 4).Number(10, 4).Number(
                  uint64_t{1} << 61, 8)),
              HasSubstr("beyond the end"));
  EXPECT_THAT(GgufError(FileOf().Header(0, 1).Text("a").Number(9, 4).Number(9, 4).Number(1, 8)),
              HasSubstr("array of arrays"));
}

// One tensor and data enough for most claims.
std::string TensorError(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
                        uint64_t offset) {
  FileOf file;
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
  FileOf file;
  file.Header(2, 0).Tensor("a", {16}, 0, 0).Tensor("b", {8}, 0, 32).Pad().Data(256);
  EXPECT_THAT(GgufError(file),
              AllOf(HasSubstr("'b'"), HasSubstr("begins inside"), HasSubstr("'a'")));
  FileOf twice;
  twice.Header(2, 0).Tensor("a", {8}, 0, 0).Tensor("a", {8}, 0, 32).Pad().Data(256);
  EXPECT_THAT(GgufError(twice), HasSubstr("twice"));
  FileOf aligned;
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
  EXPECT_THAT(ConfigError(path_ + "/model-00001-of-00002.gguf"), HasSubstr("one of several"));
}

// A file of Gemma 4 whose two layers have MLPs of these widths, the second one with a cache of the
// first.
FileOf TwoLayersOf(const std::vector<uint32_t>& widths, const std::vector<bool>& sliding,
                   uint32_t full_values = 16) {
  FileOf file;
  file.Header(1, 8).KeyText("general.architecture", "gemma4").Key("gemma4.block_count", 2);
  file.Key("gemma4.attention.key_length", 16);
  file.Key("gemma4.attention.value_length", full_values);
  file.Key("gemma4.attention.key_length_swa", 8).Key("gemma4.attention.shared_kv_layers", 1);
  file.KeyFlags("gemma4.attention.sliding_window_pattern", sliding);
  file.KeyNumbers("gemma4.feed_forward_length", widths);
  return file.Tensor("token_embd.weight", {8, 4}, 0, 0).Pad().Data(128);
}

TEST_F(GgufDirectory, NamesWhatLayersMayNotHave) {
  const auto error = [&](const FileOf& file) {
    Write("m.gguf", file.bytes);
    return ConfigError(path_);
  };
  EXPECT_THAT(error(TwoLayersOf({4, 8}, {true})),
              AllOf(HasSubstr("sliding_window_pattern"), HasSubstr("2 flags")));
  EXPECT_THAT(error(TwoLayersOf({4, 8}, {true, true}, 8)), HasSubstr("attention.value_length"));
  EXPECT_THAT(error(TwoLayersOf({4, 8}, {true, true})),
              AllOf(HasSubstr("rope.dimension_count"), HasSubstr("rope_freqs")));

  FileOf chunks;
  chunks.Header(1, 5).KeyText("general.architecture", "llama4").Key("llama4.block_count", 2);
  chunks.Key("llama4.expert_count", 2).Key("llama4.attention.sliding_window", 0);
  chunks.Key("llama4.embedding_length", 8);
  chunks.Tensor("token_embd.weight", {8, 4}, 0, 0).Pad().Data(128);
  EXPECT_THAT(error(chunks), AllOf(HasSubstr("sliding_window"), HasSubstr("chunks of 8192")));
}

TEST_F(GgufDirectory, NamesExpertsThatCannotBeParted) {
  const auto error = [&](const std::vector<std::pair<std::string, uint64_t>>& rows) {
    FileOf file;
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

TEST_F(GgufDirectory, RefusesWhatItDoesNotKnow) {
  FileOf other;
  other.Header(0, 1).KeyText("general.architecture", "lama");
  Write("m.gguf", other.bytes);
  EXPECT_THAT(ConfigError(path_), AllOf(HasSubstr("'lama'"), HasSubstr("did you mean 'llama'")));

  FileOf key;
  key.Header(1, 2).KeyText("general.architecture", "llama").Key("llama.new_thing", 1);
  key.Tensor("token_embd.weight", {8, 4}, 0, 0).Pad().Data(128);
  Write("m.gguf", key.bytes);
  EXPECT_THAT(ConfigError(path_), AllOf(HasSubstr("llama.new_thing"), HasSubstr("understood")));

  FileOf tensor;
  tensor.Header(1, 1).KeyText("general.architecture", "llama");
  tensor.Tensor("blk.0.surprise.weight", {8}, 0, 0).Pad().Data(32);
  Write("m.gguf", tensor.bytes);
  const auto weights = OpenWeights(path_, DType::kF32);
  ASSERT_FALSE(weights.ok());
  EXPECT_THAT(weights.error().message, HasSubstr("'blk.0.surprise.weight'"));

  FileOf vocabulary;
  vocabulary.Header(0, 3).KeyText("general.architecture", "llama");
  vocabulary.KeyText("tokenizer.ggml.model", "gpt2").KeyText("tokenizer.ggml.pre", "new-one");
  Write("m.gguf", vocabulary.bytes);
  EXPECT_FALSE(LoadTokenizer(path_).ok());
}

}  // namespace
}  // namespace kvgauge
