// SPDX-License-Identifier: Apache-2.0
// Matrices whose parts lie in blocks, as floats, or are left out in part: which number an error
// names, and how often a source makes a tensor.
#include "src/model/weight_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>

#include "core/rounding.h"
#include "core/strings.h"
#include "src/checkpoint/weights_common.h"
#include "support/test_ops.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLoadedRows = 3, kLoadedColumns = 32;
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr float kNoScale = std::numeric_limits<float>::infinity();

// Matrices [3, 32] of floats, or in blocks of q8_0 whose scale is given.
class HeldSource final : public WeightSource, public RoundedInputs {
 public:
  void PutFloats(const std::string& name, int64_t wrong = -1) {
    std::vector<float>& numbers = held_[name].numbers;
    numbers.assign(kLoadedRows * kLoadedColumns, 0.5f);
    if (wrong >= 0) numbers[static_cast<size_t>(wrong)] = kNotANumber;
  }
  // scale: of the second row.
  void PutBlocks(const std::string& name, float scale) {
    const BlockShape& shape = BlockShapeOf(BlockFormat::kQ80);
    Held& held = held_[name];
    held.blocks.assign(static_cast<size_t>(kLoadedRows * shape.bytes), 1);
    held.numbers.resize(kLoadedRows * kLoadedColumns);
    for (int64_t row = 0; row < kLoadedRows; ++row) {
      uint8_t* const block = held.blocks.data() + row * shape.bytes;
      const uint16_t half = F32ToF16(row == 1 ? scale : 0.25f);
      std::memcpy(block, &half, sizeof(half));
      ReadBlock(BlockFormat::kQ80, block, held.numbers.data() + row * kLoadedColumns);
    }
  }
  void PutInputs(const std::string& name, std::optional<RowRounding> inputs) {
    held_[name].inputs = inputs;
  }
  Result<std::optional<RowRounding>> InputsOf(const std::string& name) const override {
    return held_.at(name).inputs;
  }
  int made() const { return made_; }

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, held] : held_) names.push_back(name);
    return names;
  }
  bool Contains(const std::string& name) const override { return held_.contains(name); }
  Result<WeightTensor> Get(const std::string& name) const override {
    ++made_;
    return WeightTensor{View(held_.at(name).numbers, {kLoadedRows, kLoadedColumns}), nullptr};
  }
  Result<std::optional<WeightBlocks>> GetBlocks(const std::string& name) const override {
    const Held& held = held_.at(name);
    if (held.blocks.empty()) return std::optional<WeightBlocks>();
    WeightBlocks blocks;
    blocks.rows.format = BlockFormat::kQ80;
    const int64_t bytes = std::ssize(held.blocks) / kLoadedRows;
    for (int64_t row = 0; row < kLoadedRows; ++row) {
      blocks.rows.blocks.push_back(held.blocks.data() + row * bytes);
    }
    return std::optional<WeightBlocks>(std::move(blocks));
  }
  Result<WeightInfo> Describe(const std::string& name) const override {
    if (held_.at(name).blocks.empty()) return WeightSource::Describe(name);
    return WeightInfo{DType::kF32, {kLoadedRows, kLoadedColumns}, BlockFormat::kQ80};
  }
  std::string OriginOf(const std::string& name) const override { return name + ".file"; }
  std::string Fingerprint() const override { return ""; }

 private:
  struct Held {
    std::vector<float> numbers;
    std::vector<uint8_t> blocks;
    std::optional<RowRounding> inputs = std::nullopt;
  };
  std::map<std::string, Held> held_;
  mutable int made_ = 0;
};

LinearSpec SpecOf(const std::vector<std::string>& names) {
  LinearSpec spec;
  for (const std::string& name : names) {
    spec.parts.push_back({.name = name, .shape = {kLoadedRows, kLoadedColumns}});
  }
  return spec;
}

// On each backend, with blocks kept and without.
template <class Body>
void ForEachLoader(const HeldSource& source, const Body& body) {
  for (const char* backend : {"cpu", "reference"}) {
    const std::unique_ptr<Ops> ops = MakeTestOps(backend, 2);
    for (const bool keep : {true, false}) {
      SCOPED_TRACE(StrCat(backend, keep ? " keeps blocks" : " dequantises"));
      WeightLoader loader(source, DType::kF32, *ops, keep);
      body(loader);
    }
  }
}

TEST(WeightLoaderTest, TheFirstWrongPartIsNamedWhateverItsForm) {
  const auto error_of = [](const HeldSource& source, const LinearSpec& spec,
                           const std::string& want) {
    ForEachLoader(source, [&](WeightLoader& loader) {
      Linear linear;
      const Status loaded = loader.Load(spec, linear);
      ASSERT_FALSE(loaded.ok());
      EXPECT_THAT(loaded.error().message, HasSubstr(want));
    });
  };
  HeldSource source;
  source.PutBlocks("blocks", kNoScale);
  source.PutFloats("floats", 40);
  error_of(source, SpecOf({"blocks", "floats"}),
           "blocks.file: tensor 'blocks' of shape [3, 32] holds NaN or infinity at element 32;");
  error_of(source, SpecOf({"floats", "blocks"}),
           "floats.file: tensor 'floats' of shape [3, 32] holds NaN or infinity at element 40;");
}

TEST(WeightLoaderTest, RowsThatAreLeftOutMustBeFiniteToo) {
  HeldSource source;
  source.PutBlocks("blocks", kNoScale);
  source.PutFloats("floats", 40);
  for (const char* name : {"blocks", "floats"}) {
    LinearSpec spec = SpecOf({name});
    spec.order = {{2, 3}, {0, 1}};
    ForEachLoader(source, [&](WeightLoader& loader) {
      Linear linear;
      const Status loaded = loader.Load(spec, linear);
      ASSERT_FALSE(loaded.ok());
      EXPECT_THAT(loaded.error().message, HasSubstr(StrCat("tensor '", name, "'")));
    });
  }
}

TEST(WeightLoaderTest, ATensorIsMadeOnceAndBlocksNever) {
  HeldSource source;
  source.PutBlocks("blocks", 0.5f);
  source.PutFloats("floats");
  ForEachLoader(source, [&](WeightLoader& loader) {
    const int before = source.made();
    Linear linear;
    ASSERT_TRUE(loader.Load(SpecOf({"blocks", "floats"}), linear).ok());
    EXPECT_EQ(linear.matrix->out_features(), 2 * kLoadedRows);
    EXPECT_EQ(source.made(), before + 1);
  });
}

TEST(WeightLoaderTest, PartsReadRowsThatAreRoundedInOneWay) {
  HeldSource source;
  source.PutFloats("q");
  source.PutFloats("k");
  const std::vector<float> x(kLoadedColumns, 0.7f);
  const auto ops = MakeTestOps("cpu", 1);
  const auto product = [&](ProductRows by, Result<float>& sum) {
    WeightLoader loader(source, DType::kF32, *ops, true, by);
    Linear linear;
    const Status loaded = loader.Load(SpecOf({"q", "k"}), linear);
    if (!loaded.ok()) {
      sum = loaded.error();
      return;
    }
    std::vector<float> out(2 * kLoadedRows);
    ops->linear->MatMul(View(x, {1, kLoadedColumns}), *linear.matrix, {}, MatMulMode::kSet,
                        View(out, {1, 2 * kLoadedRows}));
    sum = out[0];
  };
  const auto by_file = [&](std::optional<RowRounding> q, std::optional<RowRounding> k) {
    source.PutInputs("q", q);
    source.PutInputs("k", k);
    Result<float> sum = 0.0f;
    product(ProductRows::kFile, sum);
    return sum;
  };
  const RowRounding narrow{.scale = 0.25f}, wide{.scale = 0.5f};
  EXPECT_EQ(*by_file(narrow, narrow), 0.75f * 16);
  // The largest scale: that of either part.
  EXPECT_EQ(*by_file(narrow, wide), 0.5f * 16);
  EXPECT_EQ(*by_file(wide, narrow), 0.5f * 16);
  const RowRounding floats{.codes = RowRounding::Codes::kE4m3, .scale = 0.25f};
  for (const auto& other : {std::optional<RowRounding>(), std::optional(floats),
                            std::optional(RowRounding{.group = 16})}) {
    const Result<float> refused = by_file(narrow, other);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, ::testing::AllOf(HasSubstr("k.file"), HasSubstr("'q'"),
                                                          HasSubstr("different ways")));
  }
  // What a file says is a choice.
  Result<float> plain = 0.0f, unsaid = by_file(std::nullopt, std::nullopt);
  source.PutInputs("q", narrow);
  product(ProductRows::kRounded, plain);
  EXPECT_EQ(*plain, *unsaid);
  EXPECT_NE(*plain, 0.75f * 16);
}

}  // namespace
}  // namespace kvgauge
