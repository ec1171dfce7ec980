// SPDX-License-Identifier: Apache-2.0
// A2ATS with codewords of a side-file, by hand; what a calibration makes of keys and queries.
#include <gmock/gmock.h>

#include "methods/calibration.h"
#include "methods/fake_view.h"

namespace kvgauge {
namespace {

constexpr char kTwoWords[] =
    R"({"codewords": 2, "share": 0.2, "sinks": 1, "local": 1, "distance": 0})";

uint64_t ReadBits(const Reader& reader, FakeView& view, Reader::State& state,
                  const std::vector<float>& q) {
  const Tensor words = view.Scratch(DType::kI64, {2, 1});
  EXPECT_TRUE(reader.Select(view, state, View(q, {2, 4}), words));
  EXPECT_EQ(words.As<uint64_t>()[0], words.As<uint64_t>()[1]) << "a KV head's query heads differ";
  return words.As<uint64_t>()[0];
}

TEST(A2atsTest, ReadsTheEntriesOfTheBestCodewords) {
  FakeView view(SmallShape(1, 1, 2), 6);
  view.keys[0] = {0, 0, 9, 9, /**/ 1, 0, 0, 0, /**/ 0,   1, 0, 0,
                  2, 0, 1, 0, /**/ 0, 3, 0, 1, /**/ 0.5, 0, 0, 0};
  const auto reader = MakeStage<Reader>(StageKind::kRead, "a2ats", kTwoWords);
  auto file = std::make_shared<Calibration>();
  file->tables["factors.0"] = {{1, 4, 4}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}};
  file->tables["words.0"] = {{1, 2, 4}, {1, 0, 0, 0, 0, 1, 0, 0}};
  reader->Use(file);
  EXPECT_TRUE(reader->Check(view.shape()).ok());
  const auto state = reader->Begin(view);
  // Each query head chooses one of six entries, the first of its codeword: 1 of 1 and 3, or 2 of 2
  // and 4. The first and the last entry are read anyway.
  EXPECT_EQ(ReadBits(*reader, view, *state, {1, 0, 0, 0, 0, 1, 0, 0}), 0b100111u);
  EXPECT_EQ(ReadBits(*reader, view, *state, {1, 0, 0, 0, 2, -1, 0, 0}), 0b100011u);
  // Codes; two words twice, a factor and an angle, each in whole 64 bytes.
  EXPECT_EQ(state->bytes(), 4 * 6 + 4 * 64);

  file->tables["words.0"].shape = {1, 4, 2};
  EXPECT_FALSE(reader->Check(view.shape()).ok());
}

TEST(A2atsTest, ACalibrationFindsClustersOfKeys) {
  const ModelShape shape = SmallShape(1, 1, 2);
  FakeView view(shape, 6);
  view.keys[0] = {4, 0, 0, 0, 4, 1, 0, 0, 4, -1, 0, 0, 0, 0, 4, 0, 0, 1, 4, 0, 0, -1, 4, 0};
  // The first head's queries are all along the first dim, the second's two along each other one.
  view.queries.assign(6 * 2 * 4, 0.0f);
  for (size_t i = 0; i < 6; ++i) {
    view.queries[8 * i] = view.queries[8 * i + 4 + 1 + i / 2] = 1.0f;
  }
  const Result<const StageSpec*> spec = FindStage(StageKind::kRead, "a2ats");
  ASSERT_TRUE(spec.ok());
  const Result<Params> params = Params::Parse((*spec)->params, {{"codewords", 2}}, "a2ats");
  ASSERT_TRUE(params.ok());
  const std::vector<int64_t> lengths = {6};
  const auto calibrator = (*spec)->calibrate(*params, shape, lengths);
  calibrator->Observe(0, view);
  const Calibration::Tables tables = calibrator->Finish(view.ops());
  const std::vector<float>& words = tables.at("words.0").values;
  ASSERT_EQ(words.size(), 8u);
  const std::vector<float> want = {4, 0, 0, 0, 0, 0, 4, 0};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(words[i], want[i], 1e-5) << i;
  // H is diagonal, 1 and three times 1 / 3, over the root of the mean square of its numbers.
  const double size = std::sqrt((1 + 3.0 / 9) / 16);
  EXPECT_NEAR(tables.at("factors.0").values[0], std::sqrt(1 / size), 1e-4);
  EXPECT_NEAR(tables.at("factors.0").values[5], std::sqrt(1 / (3 * size)), 1e-4);
}

}  // namespace
}  // namespace kvgauge
