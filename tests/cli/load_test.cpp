// SPDX-License-Identifier: Apache-2.0
// Loading a checkpoint of ordinary width: how much memory it takes at most. The files are made here
// of numbers that repeat. KVG_LOAD_LAYERS=44 makes files of 1 GB in bf16, and prints how long they
// take beside being read (docs/performance.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "cli/program.h"
#include "core/json.h"
#include "core/strings.h"
#include "support/gguf_file.h"

namespace kvgauge {
namespace {

constexpr int64_t kHidden = 1024, kMlp = 2816, kKvWidth = 256, kMadeWords = 8192;

struct MadeTensor {
  std::string name, gguf;
  std::vector<int64_t> shape;  // rows first

  int64_t elements() const { return shape.size() == 1 ? shape[0] : shape[0] * shape[1]; }
};

std::vector<MadeTensor> TensorsOf(int layers) {
  std::vector<MadeTensor> all = {
      {"model.embed_tokens.weight", "token_embd.weight", {kMadeWords, kHidden}},
      {"model.norm.weight", "output_norm.weight", {kHidden}},
      {"lm_head.weight", "output.weight", {kMadeWords, kHidden}}};
  const std::vector<MadeTensor> layer = {{"input_layernorm", "attn_norm", {kHidden}},
                                         {"self_attn.q_proj", "attn_q", {kHidden, kHidden}},
                                         {"self_attn.k_proj", "attn_k", {kKvWidth, kHidden}},
                                         {"self_attn.v_proj", "attn_v", {kKvWidth, kHidden}},
                                         {"self_attn.o_proj", "attn_output", {kHidden, kHidden}},
                                         {"post_attention_layernorm", "ffn_norm", {kHidden}},
                                         {"mlp.gate_proj", "ffn_gate", {kMlp, kHidden}},
                                         {"mlp.up_proj", "ffn_up", {kMlp, kHidden}},
                                         {"mlp.down_proj", "ffn_down", {kHidden, kMlp}}};
  for (int i = 0; i < layers; ++i) {
    for (const MadeTensor& part : layer) {
      all.push_back({StrCat("model.layers.", i, ".", part.name, ".weight"),
                     StrCat("blk.", i, ".", part.gguf, ".weight"), part.shape});
    }
  }
  return all;
}

// A type of GGUF whose blocks are random but for their scales, so that all numbers are finite.
struct MadeBlocks {
  uint32_t type;
  int64_t elements, bytes;
  int64_t scales;  // how many 16-bit ones are in front
};
constexpr MadeBlocks kQ80 = {8, 32, 34, 1}, kQ4K = {12, 256, 144, 2};

class Load : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    GTEST_SKIP() << "the sanitizer has memory of its own";
#endif
#endif
    if (const char* layers = std::getenv("KVG_LOAD_LAYERS")) layers_ = std::atoi(layers);
  }

  // So many bytes that repeat every few MB.
  void Append(std::ofstream& file, int64_t bytes, const std::string& pattern) const {
    for (int64_t at = 0; at < bytes;) {
      const int64_t some = std::min<int64_t>(std::ssize(pattern), bytes - at);
      file.write(pattern.data(), some);
      at += some;
    }
  }

  // Halves of sizes between 1/128 and 1/32.
  std::string Bf16Pattern() const {
    std::mt19937 random(7);
    std::string pattern;
    for (int i = 0; i < 1 << 20; ++i) {
      const uint32_t bits = (random() & 0x80ff) | 0x3c00;
      pattern.push_back(static_cast<char>(bits));
      pattern.push_back(static_cast<char>(bits >> 8));
    }
    return pattern;
  }

  std::string BlockPattern(const MadeBlocks& blocks) const {
    std::mt19937 random(11);
    std::string pattern;
    for (int i = 0; i < 1 << 13; ++i) {
      for (int64_t at = 0; at < blocks.bytes; ++at) {
        const bool scale = at < 2 * blocks.scales;
        pattern.push_back(static_cast<char>(!scale ? random() : at % 2 == 0 ? 0x10 : 0x08));
      }
    }
    return pattern;
  }

  std::string WriteSafetensors() const {
    const std::string directory = Path("bf16");
    std::filesystem::create_directories(directory);
    std::ofstream(directory + "/config.json") << Json{
        {"model_type", "llama"},     {"hidden_size", kHidden},
        {"intermediate_size", kMlp}, {"num_hidden_layers", layers_},
        {"num_attention_heads", 8},  {"num_key_value_heads", 2},
        {"vocab_size", kMadeWords},  {"max_position_embeddings", 2048},
        {"rms_norm_eps", 1e-5},      {"tie_word_embeddings", false},
        {"torch_dtype", "bfloat16"}}.dump();
    Json header = Json::object();
    int64_t end = 0;
    for (const MadeTensor& tensor : TensorsOf(layers_)) {
      const int64_t begin = end;
      end += 2 * tensor.elements();
      header[tensor.name] = {
          {"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    }
    const std::string text = header.dump();
    GgufBytes length;
    std::ofstream file(directory + "/model.safetensors", std::ios::binary);
    file << length.Number(text.size(), 8).bytes << text;
    Append(file, end, Bf16Pattern());
    return directory;
  }

  std::string WriteGguf(const std::string& name, const MadeBlocks& blocks) const {
    const std::vector<MadeTensor> tensors = TensorsOf(layers_);
    GgufBytes head;
    head.Header(tensors.size(), 9).KeyText("general.architecture", "llama");
    head.Key("llama.context_length", 2048).Key("llama.embedding_length", kHidden);
    head.Key("llama.block_count", static_cast<uint32_t>(layers_));
    head.Key("llama.feed_forward_length", kMlp).Key("llama.attention.head_count", 8);
    head.Key("llama.attention.head_count_kv", 2);
    head.KeyFloat("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    head.KeyFloat("llama.rope.freq_base", 10000.0f);
    const auto bytes_of = [&](const MadeTensor& tensor) {
      return tensor.shape.size() == 1 ? tensor.elements() * 4
                                      : tensor.elements() / blocks.elements * blocks.bytes;
    };
    uint64_t offset = 0;
    for (const MadeTensor& tensor : tensors) {
      const bool vector = tensor.shape.size() == 1;
      head.Tensor(tensor.gguf, {tensor.shape.rbegin(), tensor.shape.rend()},
                  vector ? 0 : blocks.type, offset);
      offset = (offset + static_cast<uint64_t>(bytes_of(tensor)) + 31) / 32 * 32;
    }
    std::ofstream file(Path(name), std::ios::binary);
    file << head.Pad().bytes;
    const std::string pattern = BlockPattern(blocks);
    GgufBytes one;
    one.Number(std::bit_cast<uint32_t>(1.0f), 4);
    for (const MadeTensor& tensor : tensors) {
      const int64_t bytes = bytes_of(tensor);
      Append(file, bytes, tensor.shape.size() == 1 ? one.bytes : pattern);
      Append(file, (32 - bytes % 32) % 32, std::string(1, '\0'));
    }
    return Path(name);
  }

  // Loading may take a layer more than the model holds, and what the program itself does.
  void ExpectLittleMemory(const std::string& path, const std::string& flags,
                          const std::string& what) const {
    SCOPED_TRACE(what);
    const bool long_run = std::getenv("KVG_LOAD_LAYERS") != nullptr;
    const Outcome outcome = Run(StrCat("bench load '", path, "' --dtype bf16 --backend cpu ", flags,
                                       " --json --repetitions ", long_run ? 5 : 1));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const Json json = Json::parse(outcome.out);
    const auto weights = json["weight_bytes"].get<int64_t>();
    const auto layer = json["layer_bytes"].get<int64_t>();
    EXPECT_GT(json["warm"]["times_read"].get<double>(), 0);
    if (long_run) {
      std::cout << what << ": " << json["file_bytes"] << " bytes, times the read: warm "
                << json["warm"]["times_read"] << ", cold "
                << (json["cold"].is_null() ? Json() : json["cold"]["times_read"])
                << ", memory above the weights " << json["most_bytes"].get<int64_t>() - weights
                << " of a layer of " << layer << "\n"
                << outcome.err;
    }
    EXPECT_GT(layer, weights / (layers_ + 4));
    if (json["most_bytes"].is_null()) GTEST_SKIP() << "the system does not say what a process had";
    const auto most = json["most_bytes"].get<int64_t>();
    EXPECT_GT(most, weights * 9 / 10) << "of what is held";
    EXPECT_LT(most, weights + layer + kProgram);
  }

  static constexpr int64_t kProgram = int64_t{8} << 20;
  int layers_ = 4;
};

TEST_F(Load, OfSafetensorsTakesAtMostALayerMore) {
  ExpectLittleMemory(WriteSafetensors(), "", "bf16");
}

TEST_F(Load, OfQ80TakesAtMostALayerMore) {
  const std::string path = WriteGguf("q8_0.gguf", kQ80);
  ExpectLittleMemory(path, "", "q8_0, packed");
  ExpectLittleMemory(path, "--weights-memory unpacked", "q8_0, dequantised");
}

TEST_F(Load, OfQ4KTakesAtMostALayerMore) {
  const std::string path = WriteGguf("q4_k.gguf", kQ4K);
  ExpectLittleMemory(path, "", "q4_k, packed");
  ExpectLittleMemory(path, "--weights-memory unpacked", "q4_k, dequantised");
}

}  // namespace
}  // namespace kvgauge
