// SPDX-License-Identifier: Apache-2.0
// GGUF files against independent readers (tests/golden/gguf, scripts/goldens/make_gguf).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "runner/chat_template.h"
#include "runner/tokenizer.h"
#include "src/checkpoint/gguf/architectures.h"
#include "src/checkpoint/gguf/blocks.h"
#include "src/checkpoint/gguf/file.h"
#include "support/compare.h"
#include "support/fixtures.h"
#include "support/logits.h"
#include "support/packed_text.h"
#include "support/test_ops.h"

namespace kvgauge {
namespace {

const std::string kFolder = std::string(KVG_TEST_DATA) + "/golden/gguf/";

std::vector<std::string> FilesOf(bool vocabularies) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder, ignored)) {
    if (entry.path().extension() != ".gguf") continue;
    const std::string name = entry.path().stem();
    if (name.starts_with("vocab_") == vocabularies) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

TEST(GgufGolden, BlocksToTheBit) {
  const Result<std::unique_ptr<WeightSource>> source =
      OpenSafetensorsFile(kFolder + "blocks.safetensors");
  ASSERT_TRUE(source.ok());
  for (const BlockType& type : BlockTypes()) {
    const std::string name(type.name);
    const Result<WeightTensor> bytes = (*source)->Get(name + ".bytes");
    ASSERT_TRUE(bytes.ok()) << name;
    const std::vector<float> want = ReadFixture<float>(**source, name + ".values", DType::kF32);
    ASSERT_EQ(bytes->view.Numel() / type.bytes * type.elements, std::ssize(want)) << name;
    std::vector<float> got(want.size());
    ReadBlocks(type, static_cast<const uint8_t*>(bytes->view.data), std::ssize(got), got.data());
    EXPECT_TRUE(SameBits(got, want)) << name;
  }
}

class GgufModel : public ::testing::TestWithParam<std::string> {};

// Weights that stay in blocks save memory and change nothing.
TEST_P(GgufModel, BlocksInMemoryChangeNoBit) {
  const std::string path = kFolder + GetParam();
  const Result<std::unique_ptr<WeightSource>> expected =
      OpenSafetensorsFile(path + ".expected.safetensors");
  ASSERT_TRUE(expected.ok());
  const std::vector<int32_t> ids = ReadIds(**expected, "ids");
  for (const std::string backend : {"cpu", "reference"}) {
    const std::unique_ptr<Ops> ops = MakeTestOps(backend, 2);
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(StrCat(backend, " ", NameOf(dtype)));
      ModelOptions options;
      options.dtype = dtype;
      const Result<std::unique_ptr<Model>> packed = Model::Load(path + ".gguf", options, *ops);
      options.keep_blocks = false;
      const Result<std::unique_ptr<Model>> unpacked = Model::Load(path + ".gguf", options, *ops);
      ASSERT_TRUE(packed.ok() && unpacked.ok());
      EXPECT_EQ((*packed)->fingerprint(), (*unpacked)->fingerprint());
      EXPECT_EQ((*unpacked)->block_bytes(), 0);
      const std::string format = (*packed)->config().weight_format;
      const bool blocks =
          format.find("q4_0") != std::string::npos || format.find("q8_0") != std::string::npos ||
          format.find("q4_k") != std::string::npos || format.find("q6_k") != std::string::npos;
      EXPECT_EQ((*packed)->block_bytes() > 0, blocks) << format;
      if (blocks && backend == "cpu") {
        EXPECT_LT((*packed)->weight_bytes(), (*unpacked)->weight_bytes());
      }
      EXPECT_TRUE(SameBits(AllLogits(**packed, *ops, ids), AllLogits(**unpacked, *ops, ids)));
      if (backend == "reference") break;  // once is enough of the slow one
    }
  }
}

// A backend whose products take no blocks.
class PlainLinear final : public LinearOps {
  std::unique_ptr<PackedMatrix> DoPack(std::span<const Tensor>, int64_t, int64_t, DType) override {
    return nullptr;
  }
  void DoMatMul(const Tensor&, const PackedMatrix&, const Tensor&, MatMulMode, Tensor) override {}
  void DoMatMulChosen(const Tensor&, const MatrixSet&, const Tensor&, Tensor) override {}
  void DoMatMulNT(const Tensor&, const Tensor&, float, Tensor) override {}
  void DoMatMulNN(const Tensor&, const Tensor&, float, Tensor) override {}
  void DoEmbed(const Tensor&, const Tensor&, float, Tensor) override {}
};

// Rows of 8 bits are refused where nothing would be multiplied by them, never left out in silence.
TEST(GgufGolden, RowsOfEightBitsNeedBlocksAndABackendThatTakesThem) {
  const std::unique_ptr<Ops> ops = MakeHostOps("cpu", 2);
  ModelOptions options;
  options.product_rows = ProductRows::kInt8;
  const auto refusal = [&](const char* file) {
    const auto model = Model::Load(kFolder + file, options, *ops);
    return model.ok() ? std::string() : model.error().message;
  };
  EXPECT_EQ(refusal("mixed.gguf"), "");
  EXPECT_NE(refusal("bloom.gguf").find("no matrix stays in blocks"), std::string::npos);
  options.keep_blocks = false;
  EXPECT_NE(refusal("mixed.gguf").find("no matrix stays in blocks"), std::string::npos);
  options.keep_blocks = true;
  ops->linear = std::make_unique<PlainLinear>();
  EXPECT_NE(refusal("mixed.gguf").find("backend cpu has no products by rows of int8"),
            std::string::npos);
}

// A scale without a value is found and named whether the weights stay in blocks or not.
TEST(GgufGolden, RefusesScalesThatAreNotNumbers) {
  const std::string path = kFolder + "mixed.gguf";
  const Result<GgufFile> file = OpenGgufHeader(path);
  ASSERT_TRUE(file.ok());
  const Result<std::string> sound = ReadFile(path);
  ASSERT_TRUE(sound.ok());
  const std::string broken = ::testing::TempDir() + "gguf_golden_broken.gguf";
  const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 2);
  int kept = 0;
  for (const GgufTensor& tensor : file->header.tensors) {
    if (!tensor.type->format) continue;
    ++kept;
    std::string bytes = *sound;
    const BlockFormat format = *tensor.type->format;
    const uint64_t at = tensor.end - static_cast<uint64_t>(tensor.type->bytes) +
                        (format == BlockFormat::kQ6K ? 208 : 0);
    bytes[at] = 0;
    bytes[at + 1] = 0x7c;  // infinity
    ASSERT_TRUE(WriteFile(broken, bytes).ok());
    std::string said;
    for (const bool keep : {true, false}) {
      ModelOptions options;
      options.keep_blocks = keep;
      const Result<std::unique_ptr<Model>> model = Model::Load(broken, options, *ops);
      ASSERT_FALSE(model.ok()) << tensor.name;
      EXPECT_NE(model.error().message.find("holds NaN or infinity at element"), std::string::npos)
          << model.error().message;
      EXPECT_TRUE(said.empty() || said == model.error().message);
      said = model.error().message;
    }
  }
  EXPECT_GE(kept, 4);
  std::filesystem::remove(broken);
}

TEST_P(GgufModel, LogitsAreTheReferences) {
  const std::string path = kFolder + GetParam();
  const Result<std::unique_ptr<WeightSource>> expected =
      OpenSafetensorsFile(path + ".expected.safetensors");
  ASSERT_TRUE(expected.ok());
  const std::vector<int32_t> ids = ReadIds(**expected, "ids");
  const std::vector<float> want = ReadFixture<float>(**expected, "logits", DType::kF32);
  const auto [low, high] = std::minmax_element(want.begin(), want.end());
  const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 2);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ModelOptions options;
    options.dtype = dtype;
    const Result<std::unique_ptr<Model>> model = Model::Load(path + ".gguf", options, *ops);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_TRUE((*model)->config().weight_format.starts_with("gguf: "));
    const std::vector<float> got = AllLogits(**model, *ops, ids);
    const double range = double{*high} - double{*low};
    EXPECT_TRUE(dtype == DType::kF32 ? AllWithin(got, want, range * 1e-4)
                                     : NarrowLogitsWithin(got, want, ids.size(), range,
                                                          (*model)->config().moe.has_value()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufModel, ::testing::ValuesIn(FilesOf(false)));

class GgufVocabulary : public ::testing::TestWithParam<std::string> {};

TEST_P(GgufVocabulary, IdsAreThoseOfTheCheckpoint) {
  const std::string name = GetParam().substr(std::string("vocab_").size());
  const std::string directory = std::string(KVG_TEST_DATA) + "/golden/tokenizers/" + name;
  const auto own = LoadTokenizer(directory);
  const auto stored = LoadTokenizer(kFolder + GetParam() + ".gguf");
  ASSERT_TRUE(own.ok());
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  EXPECT_EQ((*stored)->VocabSize(), (*own)->VocabSize());
  EXPECT_EQ((*stored)->bos_id(), (*own)->bos_id());
  const Result<Json> cases = ReadJsonFile(directory + "/cases.json");
  ASSERT_TRUE(cases.ok() && cases->size() >= 150);
  for (const Json& item : *cases) {
    const std::string text = UnpackedText(item["text"]);
    for (const bool special : {true, false}) {
      for (const bool parse : {true, false}) {
        const EncodeOptions options{.add_special = special, .parse_special = parse};
        const auto want = (*own)->Encode(text, options), got = (*stored)->Encode(text, options);
        ASSERT_TRUE(want.ok() && got.ok());
        EXPECT_EQ(*got, *want) << Quoted(text) << " special " << special << " parse " << parse;
        EXPECT_EQ((*stored)->Spell(*want), (*own)->Spell(*want)) << Quoted(text);
      }
    }
  }
}

TEST_P(GgufVocabulary, TemplateIsTheFiles) {
  const std::string path = kFolder + GetParam() + ".gguf";
  const Result<ChatTemplate> chat = ChatTemplate::Load(path, "auto");
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_EQ(chat->name(), "checkpoint");
  const auto tokenizer = LoadTokenizer(path);
  ASSERT_TRUE(tokenizer.ok());
  const auto bos = (*tokenizer)->bos_id();
  const Result<std::string> text = chat->Render({{"user", "hi"}}, true);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, (bos ? (*tokenizer)->TokenText(*bos) : "") + "hi");
}

INSTANTIATE_TEST_SUITE_P(All, GgufVocabulary, ::testing::ValuesIn(FilesOf(true)));

TEST(GgufGolden, HasFixtures) {
  EXPECT_GE(FilesOf(false).size(), 10u);
  EXPECT_GE(FilesOf(true).size(), 7u);
}

// What is read has a file here, and stands in the table of the documentation.
TEST(GgufGolden, EveryArchitectureIsProvedAndListed) {
  std::set<const GgufArchitecture*> proved;
  for (const std::string& name : FilesOf(false)) {
    const Result<GgufFile> file = OpenGgufFile(kFolder + name + ".gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    proved.insert(file->architecture);
  }
  const Result<std::string> page = ReadFile(std::string(KVG_SOURCE_DIR) + "/docs/models.md");
  ASSERT_TRUE(page.ok());
  for (const GgufArchitecture& architecture : GgufArchitectures()) {
    EXPECT_TRUE(proved.contains(&architecture))
        << architecture.name << ", of model_type " << architecture.model_type;
    const std::string quoted = StrCat("`", architecture.name, "`");
    EXPECT_TRUE(page->find("| " + quoted) != std::string::npos ||
                page->find(", " + quoted) != std::string::npos)
        << quoted;
  }
  for (const std::string& name : FilesOf(false)) {
    EXPECT_NE(page->find("`" + name + "`"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace kvgauge
