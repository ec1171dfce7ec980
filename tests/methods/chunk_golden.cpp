// SPDX-License-Identifier: Apache-2.0
// Prompts that are read in chunks against the oracles of scripts/goldens/make_chunks: what a cache
// holds when the prompt was read, and what is decoded from it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "golden_overrides.h"
#include "methods/method.h"
#include "runner/engine.h"
#include "src/model/method_flags.h"
#include "support/compare.h"
#include "support/fixtures.h"

namespace kvgauge {
namespace {

const std::string kChunkGoldens = std::string(KVG_TEST_DATA) + "/golden/methods/";

Json ChunkCaseOf(const std::string& name) {
  Result<Json> json = ReadJsonFile(StrCat(kChunkGoldens, name, ".json"));
  EXPECT_TRUE(json.ok());
  return *json;
}

std::vector<std::string> ChunkCases() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(kChunkGoldens)) {
    if (file.path().extension() != ".json") continue;
    const std::string name = file.path().stem().string();
    const Result<Json> json = ReadJsonFile(file.path().string());
    if (json.ok() && json->value("kind", "") == "chunks") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

double LargestHeld(const std::vector<float>& values) {
  double largest = 0;
  for (const float v : values) largest = std::max(largest, std::abs(double{v}));
  return largest;
}

// The entries of the prompt alone: what was decoded stands behind them.
void ExpectHoldsAfterChunks(const WeightSource& expected, const KvCache& cache, int64_t layer,
                            int64_t head, int64_t tokens) {
  const std::string of = StrCat(layer, ".", head);
  std::vector<int32_t> positions = cache.Positions(layer, head);
  const auto held =
      std::lower_bound(positions.begin(), positions.end(), tokens) - positions.begin();
  positions.resize(static_cast<size_t>(held));
  EXPECT_EQ(positions, ReadFixture<int32_t>(expected, "kept." + of, DType::kI32)) << of;
  for (const bool keys : {true, false}) {
    if (!expected.Contains((keys ? "k." : "v.") + of)) continue;
    const int64_t dim = keys ? cache.format().key_dim : cache.format().value_dim;
    const int64_t length = cache.length(layer, head);
    std::vector<float> rows(static_cast<size_t>(length * dim));
    keys ? cache.ReadKeys(layer, head, 0, View(rows, {length, dim}))
         : cache.ReadValues(layer, head, 0, View(rows, {length, dim}));
    rows.resize(static_cast<size_t>(held * dim));
    const std::vector<float> want =
        ReadFixture<float>(expected, (keys ? "k." : "v.") + of, DType::kF32);
    EXPECT_TRUE(AllWithin(rows, want, 1e-4 * LargestHeld(want)))
        << of << (keys ? " keys" : " values");
  }
}

class ChunkGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(ChunkGolden, TheCacheHoldsWhatTheOracleSays) {
  const Json one = ChunkCaseOf(GetParam());
  const Result<std::unique_ptr<WeightSource>> expected =
      OpenSafetensorsFile(StrCat(kChunkGoldens, GetParam(), ".safetensors"));
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  Result<Method> method =
      LoadMethod(one.at("method").get<std::string>(),
                 std::string(KVG_SOURCE_DIR) + "/configs/methods", OverridesOf(one, kChunkGoldens));
  ASSERT_TRUE(method.ok()) << method.error().message;
  const Status attached = AttachCalibrations(*method);
  ASSERT_TRUE(attached.ok()) << attached.error().message;
  const Result<Budget> budget = Budget::Parse(one.at("budget").get<std::string>());
  ASSERT_TRUE(budget.ok());
  const Result<Json> ids =
      ReadJsonFile(StrCat(kChunkGoldens, "inputs/", one.value("ids", "ids"), ".json"));
  ASSERT_TRUE(ids.ok());
  const auto decoded = one.at("decoded").get<std::vector<int32_t>>();
  const EngineSample sample = {
      .id = "golden",
      .turns = {{.ids = ids->get<std::vector<int32_t>>(), .max_new_tokens = std::ssize(decoded)}}};
  for (const char* backend : {"cpu", "reference"}) {
    const Result<std::unique_ptr<Ops>> ops = MakeOps(backend, MakeThreadSettings(1));
    ASSERT_TRUE(ops.ok());
    ModelOptions options;
    options.dtype = DType::kF32;
    const Result<std::unique_ptr<Model>> model =
        Model::Load(kChunkGoldens + "model", options, **ops);
    ASSERT_TRUE(model.ok()) << model.error().message;
    int64_t compared = 0;
    EngineOptions engine = {.compress_at = CompressAt::kChunk,
                            .chunk_tokens = one.at("chunk_tokens").get<int64_t>()};
    engine.inspect = [&](const CellResult&, const KvCache& cache, Compressor&) {
      for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
        for (int64_t head = 0; head < cache.kv_heads(); ++head) {
          ExpectHoldsAfterChunks(**expected, cache, layer, head, std::ssize(sample.turns[0].ids));
          ++compared;
        }
      }
    };
    const Status done =
        Engine({{.method = &*method, .budget = *budget, .model = model->get()}}, engine)
            .Run({&sample, 1}, [&](const CellResult& cell) {
              EXPECT_EQ(cell.turns[0].ids, decoded) << backend;
              return cell.status;
            });
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_GE(compared, 4) << "one for each layer and KV head";
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, ChunkGolden, ::testing::ValuesIn(ChunkCases()));

}  // namespace
}  // namespace kvgauge
