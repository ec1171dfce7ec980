// SPDX-License-Identifier: Apache-2.0
// What readers say their indexes hold at most, against what these hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "chosen_entries.h"
#include "fake_view.h"
#include "methods/question_reader.h"

namespace kvgauge {
namespace {

// What makes an index large: pictures and sentences of few tokens, though not of one.
enum class Shown { kText, kPictures, kStops };

struct ReaderCase {
  const char* name;
  const char* id;
  const char* params;
  Shown shown = Shown::kText;
};

void PrintTo(const ReaderCase& one, std::ostream* out) { *out << one.name; }

// Layers of two heads and of one, whose keys and values differ in size.
ModelShape UnevenShape(DType dtype) {
  ModelShape shape = SmallShape(2, 2, 2, 8);
  shape.heads = {{.kv_heads = 2, .key_dim = 8, .value_dim = 8, .rotary_dim = 8},
                 {.kv_heads = 1, .key_dim = 20, .value_dim = 12, .rotary_dim = 20}};
  shape.cache_dtype = dtype;
  return shape;
}

class MoreIndexBytesTest : public ::testing::TestWithParam<ReaderCase> {
 protected:
  static FakeView At(const ModelShape& shape, int64_t layer, int64_t length) {
    const ModelShape own = shape.OfLayer(layer);
    FakeView view(own, length, layer);
    for (int64_t h = 0; h < own.kv_heads; ++h) {
      const auto seed = static_cast<uint64_t>(h);
      view.keys[h] = RandomValues(length * own.key_dim, seed, 1.0f);
      view.values[h] = RandomValues(length * own.value_dim, 10 + seed, 1.0f);
    }
    view.queries = RandomValues(length * own.query_heads * own.key_dim, 20, 1.0f);
    if (GetParam().shown == Shown::kStops) {
      std::vector<float>& stops = view.classes[static_cast<size_t>(TokenClass::kPunctuation)];
      stops.assign(static_cast<size_t>(length), 0.0f);
      for (size_t i = 3; i < stops.size(); i += 4) stops[i] = 1.0f;
    }
    for (int64_t i = 0; GetParam().shown == Shown::kPictures && i < length; i += 16) {
      VisualSpan span;
      span.first = i;
      span.count = std::min<int64_t>(16, length - i);
      span.index = static_cast<int32_t>(i / 16);
      span.grid = {1, 4, 4};
      view.spans.push_back(span);
    }
    return view;
  }

  // As a step of decoding does, with new entries of every head from `held` on.
  static void Step(const Reader& reader, FakeView& view, std::span<const int64_t> held,
                   Reader::State& state) {
    const ModelShape& shape = view.shape();
    view.is_decoding = true;
    reader.Append(view, held, state);
    SelectWith(reader, view, state, RandomValues(shape.query_heads * shape.key_dim, 30, 1.0f));
  }

  static std::unique_ptr<Reader> MakeReader() {
    return MakeStage<Reader>(StageKind::kRead, GetParam().id, GetParam().params);
  }
};

TEST_P(MoreIndexBytesTest, HoldsWhatItSaysAtMost) {
  const auto reader = MakeReader();
  const ModelShape shape = UnevenShape(DType::kF16);
  for (const int64_t layer : {0, 1}) {
    for (const int64_t begun : {1, 63, 64, 65, 200, 1000}) {
      FakeView prompt = At(shape, layer, begun);
      const auto state = reader->Begin(prompt);
      EXPECT_LE(state->bytes(), reader->MostBytes(shape, layer, begun))
          << begun << " entries of layer " << layer;
      int64_t held = begun;
      for (const int64_t more : {1, 63, 70}) {
        const std::vector<int64_t> first(prompt.lengths().size(), held);
        held += more;
        FakeView view = At(shape, layer, held);
        Step(*reader, view, first, *state);
        EXPECT_LE(state->bytes(), reader->MostBytes(shape, layer, held))
            << begun << " entries of layer " << layer << ", then " << held;
      }
    }
  }
}

TEST_P(MoreIndexBytesTest, HoldsNoMoreWhereAHeadHasFewer) {
  const auto reader = MakeReader();
  const ModelShape shape = UnevenShape(DType::kF32);
  // Heads that read the same for a question hold the same.
  const bool alike = dynamic_cast<const QuestionReader*>(reader.get()) != nullptr;
  for (const int64_t length : {2, 65, 300}) {
    for (const int64_t layer : {0, 1}) {
      FakeView view = At(shape, layer, length);
      // Behind an eviction there are no signals of a prompt.
      view.is_decoding = true;
      if (!alike) view.SetLength(0, length / 2);
      EXPECT_LE(reader->Begin(view)->bytes(), reader->MostBytes(shape, layer, length))
          << length << " entries of layer " << layer;
    }
  }
  for (int64_t entries = 0; entries < 3000; ++entries) {
    ASSERT_LE(reader->MostBytes(shape, 1, entries), reader->MostBytes(shape, 1, entries + 1))
        << entries;
  }
}

TEST_P(MoreIndexBytesTest, SaysLittleMoreThanItHolds) {
  const auto reader = MakeReader();
  const ModelShape shape = UnevenShape(DType::kF32);
  for (const int64_t layer : {0, 1}) {
    FakeView prompt = At(shape, layer, 1000);
    const auto state = reader->Begin(prompt);
    FakeView view = At(shape, layer, 1001);
    Step(*reader, view, std::vector<int64_t>(prompt.lengths().size(), 1000), *state);
    EXPECT_LE(reader->MostBytes(shape, layer, 1001), 3 * state->bytes() / 2 + 1024)
        << "layer " << layer;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Readers, MoreIndexBytesTest,
    ::testing::Values(
        ReaderCase{"livevlm", "livevlm", "{}"},
        ReaderCase{"livevlm_pictures", "livevlm", "{}", Shown::kPictures},
        ReaderCase{"livevlm_small_pages", "livevlm",
                   R"({"page": 3, "share": 0.9, "sinks": 0, "local": 0})"},
        ReaderCase{"livevlm_all", "livevlm", R"({"share": 1})"},
        ReaderCase{"loopserve", "loopserve", "{}"},
        ReaderCase{"loopserve_few", "loopserve", R"({"tokens": 20, "steps": 3})"},
        ReaderCase{"lserve", "lserve", "{}"},
        ReaderCase{"lserve_few", "lserve", R"({"tokens": 20, "logical": 3, "parts": 2})"},
        ReaderCase{"lserve_many", "lserve", R"({"tokens": 700, "logical": 2, "parts": 1})"},
        ReaderCase{"magicpig", "magicpig", "{}"},
        ReaderCase{"magicpig_small", "magicpig",
                   R"({"bits": 3, "tables": 5, "sinks": 0, "local": 1, "dense_every": 0})"},
        ReaderCase{"recycled", "recycled", "{}"},
        ReaderCase{"recycled_few", "recycled", R"({"tokens": 21})"},
        ReaderCase{"rekv", "rekv", "{}", Shown::kPictures},
        ReaderCase{"rekv_few", "rekv", R"({"picks": 1})", Shown::kPictures},
        ReaderCase{"rekv_text", "rekv", R"({"picks": 3, "block": 1, "sinks": 0, "local": 0})"},
        ReaderCase{"retroinfer", "retroinfer", "{}"},
        ReaderCase{"retroinfer_segments", "retroinfer",
                   R"({"segment": 100, "span": 7, "sinks": 0, "local": 1})"},
        ReaderCase{"rocketkv", "rocketkv", "{}"},
        ReaderCase{"rocketkv_large", "rocketkv", R"({"page": 17, "tokens": 30})"},
        ReaderCase{"sentences", "sentences", R"({"tokens": 20})", Shown::kStops},
        ReaderCase{"sentences_default", "sentences", "{}", Shown::kStops},
        ReaderCase{"shadowkv", "shadowkv", "{}"},
        ReaderCase{"shadowkv_small", "shadowkv",
                   R"({"chunk": 3, "tokens": 9, "outliers": 200, "local": 0})"},
        ReaderCase{"sparq", "sparq", "{}"},
        ReaderCase{"sparq_few", "sparq", R"({"tokens": 20, "rank": 3})"},
        ReaderCase{"squeezed", "squeezed", "{}"},
        ReaderCase{"squeezed_many", "squeezed", R"({"clusters": 0.31, "local": 1})"},
        ReaderCase{"subspace", "subspace", "{}"},
        ReaderCase{"subspace_channels", "subspace",
                   R"({"directions": "channels", "rank": 3, "tokens": 20})"},
        ReaderCase{"tokenselect", "tokenselect", "{}"}, ReaderCase{"top_p", "top_p", "{}"},
        ReaderCase{"vattention", "vattention", "{}"}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace kvgauge
