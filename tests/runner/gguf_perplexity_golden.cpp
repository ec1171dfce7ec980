// SPDX-License-Identifier: Apache-2.0
// The perplexity of a quantised file is that of its dequantised twin: models/ref-gqa in the blocks
// of a GGUF file, the same numbers as safetensors, and what the reference makes of them
// (tests/golden/gguf/perplexity.json, scripts/goldens/make_gguf_perplexity).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/json.h"
#include "core/rounding.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "runner/model.h"
#include "runner/weights.h"
#include "support/gguf_file.h"
#include "support/logits.h"
#include "support/scratch_directory.h"
#include "support/test_ops.h"

namespace kvgauge {
namespace {

const std::string kRefGqa = std::string(KVG_SOURCE_DIR) + "/models/ref-gqa";

void PutHalf(float value, std::string& out) {
  const uint16_t bits = F32ToF16(value);
  out.push_back(static_cast<char>(bits));
  out.push_back(static_cast<char>(bits >> 8));
}

float AsHalf(float value) { return F16ToF32(F32ToF16(value)); }

// As ggml rounds: halves away from zero.
void PutQ80(std::span<const float> x, std::string& out) {
  float most = 0;
  for (const float value : x) most = std::max(most, std::abs(value));
  const float scale = most / 127;
  const float inverse = scale == 0 ? 0 : 1 / scale;
  PutHalf(scale, out);
  for (const float value : x) out.push_back(static_cast<char>(std::round(value * inverse)));
}

// Low halves of bytes are the first 16 numbers.
void PutQ40(std::span<const float> x, std::string& out) {
  const auto most =
      std::ranges::max_element(x, [](float a, float b) { return std::abs(a) < std::abs(b); });
  const float scale = *most / -8;
  const float inverse = scale == 0 ? 0 : 1 / scale;
  PutHalf(scale, out);
  const auto code = [&](size_t i) {
    const float product = x[i] * inverse;
    return std::clamp(static_cast<int>(product + 8.5f), 0, 15);
  };
  for (size_t i = 0; i < 16; ++i) out.push_back(static_cast<char>(code(i) | code(i + 16) << 4));
}

// Any legal blocks near the numbers, the same as the script's.
void PutQ4K(std::span<const float> x, std::string& out) {
  float scales[8], mins[8];
  for (size_t g = 0; g < 8; ++g) {
    const auto [low, high] = std::ranges::minmax(x.subspan(32 * g, 32));
    mins[g] = -std::min(low, 0.0f);
    scales[g] = (high + mins[g]) / 15;
  }
  const float scale = AsHalf(*std::ranges::max_element(scales) / 63);
  const float min = AsHalf(*std::ranges::max_element(mins) / 63);
  PutHalf(scale, out);
  PutHalf(min, out);
  const auto rounded = [](float value, float unit, int most) {
    if (unit == 0) return 0;
    const float exact = value / unit;
    return static_cast<int>(std::clamp(std::floor(exact + 0.5f), 0.0f, static_cast<float>(most)));
  };
  int ls[8], lm[8];
  for (int g = 0; g < 8; ++g) {
    ls[g] = rounded(scales[g], scale, 63);
    lm[g] = rounded(mins[g], min, 63);
  }
  for (int g = 0; g < 4; ++g) out.push_back(static_cast<char>(ls[g] | ls[g + 4] >> 4 << 6));
  for (int g = 0; g < 4; ++g) out.push_back(static_cast<char>(lm[g] | lm[g + 4] >> 4 << 6));
  for (int g = 4; g < 8; ++g) {
    out.push_back(static_cast<char>((ls[g] & 15) | (lm[g] & 15) << 4));
  }
  const auto code = [&](size_t i) {
    const size_t g = i / 32;
    const float shift = min * static_cast<float>(lm[g]);
    return rounded(x[i] + shift, scale * static_cast<float>(ls[g]), 15);
  };
  for (size_t i = 0; i < 256; i += 64) {
    for (size_t j = i; j < i + 32; ++j) {
      out.push_back(static_cast<char>(code(j) | code(j + 32) << 4));
    }
  }
}

struct PutType {
  uint32_t id;
  size_t elements;
  void (*put)(std::span<const float>, std::string&);
};
const std::map<std::string, PutType> kPutTypes = {
    {"q4_0", {2, 32, PutQ40}}, {"q8_0", {8, 32, PutQ80}}, {"q4_k", {12, 256, PutQ4K}}};

// A matrix as it stands in the file, its rows as the checkpoint has them.
struct PutMatrix {
  std::string name;  // of the checkpoint
  uint32_t type = 0;
  std::vector<int64_t> shape;
  std::string bytes;

  size_t row_bytes() const { return bytes.size() / static_cast<size_t>(shape[0]); }
};

std::vector<float> NumbersOf(const WeightTensor& tensor) {
  std::vector<float> numbers(static_cast<size_t>(tensor.view.Numel()));
  const auto* bytes = static_cast<const uint8_t*>(tensor.view.data);
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (tensor.view.dtype == DType::kF32) {
      std::memcpy(&numbers[i], bytes + 4 * i, 4);
      continue;
    }
    uint16_t bits;
    std::memcpy(&bits, bytes + 2 * i, 2);
    numbers[i] = Bf16ToF32(bits);
  }
  return numbers;
}

// "model.layers.3.self_attn.q_proj.weight" is "blk.3.attn_q.weight".
std::string GgufNameOf(const std::string& name) {
  const std::map<std::string, std::string> parts = {
      {"embed_tokens", "token_embd"}, {"norm", "output_norm"},
      {"lm_head", "output"},          {"input_layernorm", "attn_norm"},
      {"q_proj", "attn_q"},           {"k_proj", "attn_k"},
      {"v_proj", "attn_v"},           {"o_proj", "attn_output"},
      {"gate_proj", "ffn_gate"},      {"up_proj", "ffn_up"},
      {"down_proj", "ffn_down"},      {"post_attention_layernorm", "ffn_norm"}};
  const std::vector<std::string> words = Split(name, '.');
  const std::string part = parts.at(words[words.size() - 2]) + ".weight";
  return words[1] == "layers" ? StrCat("blk.", words[2], ".", part) : part;
}

class GgufPerplexity : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<Json> golden =
        ReadJsonFile(std::string(KVG_TEST_DATA) + "/golden/gguf/perplexity.json");
    ASSERT_TRUE(golden.ok()) << golden.error().message;
    golden_ = *golden;
    ids_ = golden_["ids"].get<std::vector<int32_t>>();
    Quantise();
  }

  std::string FileName() const { return scratch_.File("packed.gguf"); }

  void Quantise() {
    const auto source = OpenSafetensors(kRefGqa);
    ASSERT_TRUE(source.ok());
    Sha256 hash;
    std::vector<PutMatrix> tensors;
    for (const std::string& name : (*source)->Names()) {
      const Result<WeightTensor> stored = (*source)->Get(name);
      ASSERT_TRUE(stored.ok());
      const std::vector<float> numbers = NumbersOf(*stored);
      const Tensor& view = stored->view;
      PutMatrix matrix{name, 0, {view.shape.begin(), view.shape.begin() + view.rank}, ""};
      const std::vector<std::string> words = Split(name, '.');
      const auto type = golden_["types"].find(words[words.size() - 2]);
      if (type == golden_["types"].end()) {
        matrix.bytes.assign(reinterpret_cast<const char*>(numbers.data()), numbers.size() * 4);
        tensors.push_back(std::move(matrix));
        continue;
      }
      const PutType& put = kPutTypes.at(type->get<std::string>());
      matrix.type = put.id;
      for (size_t i = 0; i < numbers.size(); i += put.elements) {
        put.put(std::span(numbers).subspan(i, put.elements), matrix.bytes);
      }
      hash.Update(name.data(), name.size());
      hash.Update(matrix.bytes.data(), matrix.bytes.size());
      tensors.push_back(std::move(matrix));
    }
    ASSERT_EQ(hash.Finish(), golden_["blocks_sha256"].get<std::string>());
    WriteFile(tensors);
  }

  void WriteFile(const std::vector<PutMatrix>& tensors) const {
    GgufBytes file;
    file.Header(tensors.size(), 12).KeyText("general.architecture", "llama");
    file.Key("llama.context_length", 8192).Key("llama.embedding_length", 256);
    file.Key("llama.block_count", 4).Key("llama.feed_forward_length", 704);
    file.Key("llama.attention.head_count", kHeads).Key("llama.attention.head_count_kv", kKvHeads);
    file.Key("llama.attention.key_length", 64).Key("llama.attention.value_length", 64);
    file.KeyFloat("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    file.KeyFloat("llama.rope.freq_base", 1e6f).Key("llama.rope.dimension_count", 64);
    uint64_t offset = 0;
    for (const PutMatrix& tensor : tensors) {
      const std::vector<uint64_t> dims(tensor.shape.rbegin(), tensor.shape.rend());
      file.Tensor(GgufNameOf(tensor.name), dims, tensor.type, offset);
      offset += (tensor.bytes.size() + 31) / 32 * 32;
    }
    file.Pad();
    for (const PutMatrix& tensor : tensors) {
      const bool queries = tensor.name.find("q_proj") != std::string::npos;
      const bool keys = tensor.name.find("k_proj") != std::string::npos;
      if (queries || keys) {
        PutPaired(tensor, queries ? kHeads : kKvHeads, file.bytes);
      } else {
        file.bytes += tensor.bytes;
      }
      file.Pad();
    }
    std::ofstream(FileName(), std::ios::binary) << file.bytes;
  }

  // Rows of each head from two halves to pairs, as the converter has them for llama.
  static void PutPaired(const PutMatrix& tensor, int64_t heads, std::string& out) {
    const int64_t rows = tensor.shape[0] / heads;
    for (int64_t row = 0; row < tensor.shape[0]; ++row) {
      const int64_t in_head = row % rows;
      const int64_t from = row - in_head + in_head % 2 * (rows / 2) + in_head / 2;
      out.append(tensor.bytes, static_cast<size_t>(from) * tensor.row_bytes(), tensor.row_bytes());
    }
  }

  // The numbers of the file as safetensors of f32; they must be the reference's.
  std::string WriteTwin() const {
    const auto source = OpenWeights(FileName(), DType::kF32);
    EXPECT_TRUE(source.ok()) << source.error().message;
    Json header = Json::object();
    std::string data;
    Sha256 hash;
    for (const std::string& name : (*source)->Names()) {
      const Result<WeightTensor> tensor = (*source)->Get(name);
      EXPECT_TRUE(tensor.ok());
      const Tensor& view = tensor->view;
      const auto* bytes = static_cast<const char*>(view.data);
      const auto size = static_cast<size_t>(view.SizeBytes());
      if (view.rank == 2) {
        hash.Update(name.data(), name.size());
        hash.Update(bytes, size);
      }
      const std::vector<int64_t> shape(view.shape.begin(), view.shape.begin() + view.rank);
      header[name] = {
          {"dtype", "F32"}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + size}}};
      data.append(bytes, size);
    }
    EXPECT_EQ(hash.Finish(), golden_["values_sha256"].get<std::string>());
    Json config = *ReadJsonFile(kRefGqa + "/config.json");
    config["torch_dtype"] = "float32";
    const std::string text = header.dump();
    std::ofstream(scratch_.File("config.json")) << config.dump();
    std::ofstream(scratch_.File("model.safetensors"), std::ios::binary)
        << GgufBytes().Number(text.size(), 8).bytes << text << data;
    return scratch_.path();
  }

  double PerplexityOf(const std::string& path, DType dtype, bool keep_blocks,
                      ProductRows rows = ProductRows::kRounded) const {
    const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 2);
    ModelOptions options;
    options.dtype = dtype;
    options.keep_blocks = keep_blocks;
    options.product_rows = rows;
    const Result<std::unique_ptr<Model>> model = Model::Load(path, options, *ops);
    EXPECT_TRUE(model.ok()) << model.error().message;
    if (!model.ok()) return 0;
    EXPECT_EQ((*model)->block_bytes() > 0, keep_blocks && path == FileName());
    const std::vector<float> logits = AllLogits(**model, *ops, ids_);
    const size_t words = logits.size() / ids_.size();
    double loss = 0;
    for (size_t i = 0; i + 1 < ids_.size(); ++i) {
      const std::span<const float> row(logits.data() + i * words, words);
      const double most = std::ranges::max(row);
      double sum = 0;
      for (const float logit : row) sum += std::exp(logit - most);
      loss += most + std::log(sum) - row[static_cast<size_t>(ids_[i + 1])];
    }
    return std::exp(loss / static_cast<double>(ids_.size() - 1));
  }

  static constexpr uint32_t kHeads = 8, kKvHeads = 2;
  const ScratchDirectory scratch_;
  Json golden_;
  std::vector<int32_t> ids_;
};

TEST_F(GgufPerplexity, IsThatOfTheDequantisedTwin) {
  const double want = golden_["perplexity"].get<double>();
  // Quantising must show, or nothing would be compared.
  EXPECT_GT(std::abs(want / golden_["perplexity_bf16"].get<double>() - 1), 1e-3);
  std::map<std::string, double> packed;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    packed[std::string(NameOf(dtype))] = PerplexityOf(FileName(), dtype, true);
  }
  const double unpacked = PerplexityOf(FileName(), DType::kF32, false);
  const std::string kept = scratch_.File("packed.kept");
  const std::string directory = WriteTwin();
  std::filesystem::rename(FileName(), kept);  // a directory holds one checkpoint
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const double twin = PerplexityOf(directory, dtype, true);
    EXPECT_NEAR(packed[std::string(NameOf(dtype))] / twin, 1, 1e-4) << NameOf(dtype);
    if (dtype != DType::kF32) continue;
    EXPECT_EQ(unpacked, packed[std::string(NameOf(dtype))]);
    EXPECT_NEAR(twin / want, 1, 1e-4);
    EXPECT_NEAR(unpacked / want, 1, 1e-4);
  }
}

// Rows of 8 bits are another result, and a near one.
TEST_F(GgufPerplexity, ByRowsOfEightBitsIsNear) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const double plain = PerplexityOf(FileName(), dtype, true);
    const double coded = PerplexityOf(FileName(), dtype, true, ProductRows::kInt8);
    RecordProperty(std::string(NameOf(dtype)), std::to_string(coded / plain));
    EXPECT_NE(coded, plain) << NameOf(dtype);
    EXPECT_NEAR(coded / plain, 1, 1e-2) << NameOf(dtype);
  }
}

}  // namespace
}  // namespace kvgauge
