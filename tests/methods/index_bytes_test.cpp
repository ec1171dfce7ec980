// SPDX-License-Identifier: Apache-2.0
// What a reader says that its index may hold, against what it holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "chosen_entries.h"
#include "core/strings.h"
#include "fake_view.h"
#include "methods/calibration.h"
#include "methods/narrowing_reader.h"

namespace kvgauge {
namespace {

// Layers have heads of several sizes, not all of which fill lines of memory. Layer 2 is the first
// that most readers have an index of, and layer 3 sees a window.
constexpr int64_t kIndexLayer = 2, kWindowLayer = 3, kIndexQueryHeads = 4;
constexpr int64_t kIndexPrompts[] = {1, 63, 64, 65, 200, 1000};
constexpr int64_t kLongestPrompt = 1000;

ModelShape ManySizes() {
  ModelShape shape = SmallShape(4, 1, kIndexQueryHeads, 128);
  shape.heads = {{.kv_heads = 1, .key_dim = 128, .value_dim = 128, .rotary_dim = 128},
                 {.kv_heads = 4, .key_dim = 32, .value_dim = 32, .rotary_dim = 32},
                 {.kv_heads = 2, .key_dim = 60, .value_dim = 44, .rotary_dim = 20},
                 {.kv_heads = 4, .key_dim = 64, .value_dim = 64, .rotary_dim = 64}};
  shape.windows[kWindowLayer] = 100;
  return shape;
}

// What the longest prompt takes: at least half of what the reader says, or nothing at all.
enum class Held { kHalf, kNone };

struct IndexCase {
  const char* id;
  const char* params = "{}";
  Held held = Held::kHalf;
  // Those of a side-file, for the shape of layer kIndexLayer.
  CalibrationTables (*tables)(const ModelShape& shape) = nullptr;
};

void PrintTo(const IndexCase& one, std::ostream* out) { *out << one.id << " " << one.params; }

class IndexBytesTest : public ::testing::TestWithParam<IndexCase> {
 protected:
  static std::unique_ptr<Reader> Make() {
    auto reader = MakeStage<Reader>(StageKind::kRead, GetParam().id, GetParam().params);
    if (GetParam().tables != nullptr) {
      auto file = std::make_shared<Calibration>();
      file->tables = GetParam().tables(ManySizes().OfLayer(kIndexLayer));
      reader->Use(std::move(file));
    }
    return reader;
  }

  // Everything that some reader asks for. Pictures fill a third of it.
  static FakeView Scene(int64_t length, int64_t layer, bool decoding = false) {
    const ModelShape shape = ManySizes().OfLayer(layer);
    FakeView view(shape, length, layer);
    const auto heads = static_cast<size_t>(shape.kv_heads);
    for (size_t h = 0; h < heads; ++h) {
      // A longer scene begins as a shorter one does.
      view.keys[h] = RandomValues(length * shape.key_dim, h, 1.0f);
      view.values[h] = RandomValues(length * shape.value_dim, 50 + h, 1.0f);
    }
    view.queries = RandomValues(length * shape.query_heads * shape.key_dim, 99, 1.0f);
    const float even = 1.0f / static_cast<float>(length);
    std::fill(view.attention.begin(), view.attention.end(), even);
    std::fill(view.step.begin(), view.step.end(), even);
    // Where `gamma` is low, every token is a surprise.
    for (int64_t i = 0; i < length; ++i) view.surprise.push_back(static_cast<float>(i % 2));
    auto& marks = view.classes[static_cast<size_t>(TokenClass::kPunctuation)];
    for (int64_t i = 0; i < length; ++i) marks.push_back(i % 5 == 4 ? 1.0f : 0.0f);
    for (int64_t first = 4; first + 12 <= length; first += 36) {
      VisualSpan& picture = view.spans.emplace_back();
      picture.first = first;
      picture.count = 12;
      picture.index = static_cast<int32_t>(view.spans.size()) - 1;
      picture.grid = {1, 3, 4};
    }
    view.is_decoding = decoding;
    return view;
  }

  static void Choose(const Reader& reader, FakeView& view, Reader::State& state) {
    SelectWith(reader, view, state, RandomValues(kIndexQueryHeads * view.shape().key_dim, 7, 1.0f));
  }

  static void IsClose(int64_t bytes, int64_t most) {
    if (GetParam().held == Held::kNone) {
      EXPECT_EQ(bytes, 0) << "then the case shows more";
      EXPECT_EQ(most, 0);
      return;
    }
    EXPECT_GT(bytes, 0) << "the test shows nothing";
    EXPECT_LE(most, 2 * bytes + (16 << 10));
  }

  // Behind a prompt, behind a step, and behind many entries more.
  static void Fits(int64_t prompt, int64_t layer) {
    const ModelShape shape = ManySizes();
    const auto reader = Make();
    FakeView begun = Scene(prompt, layer);
    const auto state = reader->Begin(begun);
    Choose(*reader, begun, *state);
    const int64_t bytes = state->bytes(), most = reader->MostBytes(shape, layer, prompt);
    EXPECT_LE(bytes, most) << "of " << prompt;
    if (prompt == kLongestPrompt) IsClose(bytes, most);
    int64_t before = prompt;
    for (const int64_t length : {prompt + 1, prompt + 70}) {
      FakeView view = Scene(length, layer, true);
      const std::vector<int64_t> first(static_cast<size_t>(view.shape().kv_heads), before);
      reader->Append(view, first, *state);
      Choose(*reader, view, *state);
      EXPECT_LE(state->bytes(), reader->MostBytes(shape, layer, length))
          << "of " << prompt << " and later ones, together " << length;
      before = length;
    }
  }
};

TEST_P(IndexBytesTest, AsMuchAsTheReaderSays) {
  for (const int64_t prompt : kIndexPrompts) Fits(prompt, kIndexLayer);
}

TEST_P(IndexBytesTest, NoMoreInOtherLayers) {
  if (GetParam().tables != nullptr) GTEST_SKIP() << "tables are of one layer";
  for (const int64_t layer : {int64_t{0}, kWindowLayer}) Fits(200, layer);
}

TEST_P(IndexBytesTest, MoreOfMoreEntries) {
  const auto reader = Make();
  int64_t before = 0;
  for (int64_t entries = 0; entries <= 5000; entries += 50) {
    const int64_t most = reader->MostBytes(ManySizes(), kIndexLayer, entries);
    EXPECT_GE(most, before) << entries;
    before = most;
  }
}

// Its index is that of the reader that it narrows.
TEST(NarrowedIndexTest, IsThatOfTheOtherReader) {
  const auto quest = [] { return MakeStage<Reader>(StageKind::kRead, "quest"); };
  const auto narrowed =
      MakeNarrowed(quest(), MakeStage<NarrowingReader>(StageKind::kRead, "top_p"));
  const int64_t most = quest()->MostBytes(ManySizes(), kIndexLayer, kLongestPrompt);
  EXPECT_GT(most, 0);
  EXPECT_EQ(narrowed->MostBytes(ManySizes(), kIndexLayer, kLongestPrompt), most);
}

CalibrationTables FarWords(const ModelShape& shape) {
  const int64_t heads = shape.kv_heads, dim = shape.key_dim;
  CalibrationTables tables;
  tables[StrCat("factors.", kIndexLayer)] = {{heads, dim, dim}, RandomValues(heads * dim * dim, 1)};
  tables[StrCat("words.", kIndexLayer)] = {{heads, 300, dim}, RandomValues(heads * 300 * dim, 2)};
  return tables;
}

INSTANTIATE_TEST_SUITE_P(
    Readers, IndexBytesTest,
    ::testing::Values(
        IndexCase{"a2ats"}, IndexCase{"a2ats", R"({"codewords": 20})"},
        IndexCase{"a2ats", R"({"codewords": 300, "calibration": "f"})", Held::kHalf, FarWords},
        IndexCase{"calibquant"}, IndexCase{"clusterkv", "{}", Held::kNone},
        IndexCase{"clusterkv", R"({"tokens": 50, "sinks": 3, "span": 7, "iterations": 2})"},
        IndexCase{"emllm", "{}", Held::kNone},
        IndexCase{"emllm", R"({"sinks": 3, "local": 20, "least": 4, "gamma": -100, "chunk": 8})"},
        IndexCase{"emllm", R"({"sinks": 3, "local": 20, "gamma": 100, "most": 16})"},
        IndexCase{"exact_top_k", R"({"tokens": 20})", Held::kNone}, IndexCase{"guessed"},
        IndexCase{"guessed", R"({"columns": 0.7, "rows": 20})"},
        IndexCase{"infllm", "{}", Held::kNone},
        IndexCase{"infllm", R"({"block": 16, "picks": 5, "sinks": 3, "local": 20})"},
        IndexCase{"key_graph", R"({"rows": 400})"},
        IndexCase{"key_graph",
                  R"({"tokens": 20, "sinks": 3, "local": 9, "rows": 300, "nearest": 20,
                      "degree": 8, "build_beam": 30, "beam": 25})"},
        IndexCase{"lead_layers"},
        IndexCase{"lead_layers", R"({"layers": "1,2", "tokens": 20, "heads": "layer",
                                     "prompt_only": true})"},
        IndexCase{"less", R"({"weights": "random", "inner": 16})"},
        IndexCase{"less", R"({"weights": "random", "inner": 16, "rank": 64})"},
        IndexCase{"pqcache"},
        IndexCase{"pqcache", R"({"parts": 4, "bits": 9, "sinks": 5, "iterations": 2})"},
        IndexCase{"quest"}, IndexCase{"quest", R"({"page": 7, "tokens": 30})"},
        IndexCase{"quest_top_p"}, IndexCase{"quest_top_p", R"({"page": 30, "tokens": 64})"}),
    [](const auto& one) { return StrCat(one.param.id, "_", one.index); });

}  // namespace
}  // namespace kvgauge
