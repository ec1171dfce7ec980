// SPDX-License-Identifier: Apache-2.0
// Prefills whose rows attend to some entries: what they and captures see is what a stage says, and
// a stage that leaves out nothing changes no bit.
#include "runner/sparse_prefill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "methods/registry.h"
#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "src/compress/prompt_reach.h"
#include "src/compress/view.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kSparseLayers = 2;

// Sights that tests choose by name; each head has another.
HeadSight SightOf(const std::string& way, int64_t head, int64_t rows) {
  HeadSight sight;
  if (way == "narrow_band") {
    // Some rows of a page are among the first entries.
    sight.kind = HeadSight::Kind::kBand;
    sight.sinks = head % 2 == 0 ? 9 : 90;
    sight.window = 20 + 7 * head;
  } else if (way == "band" || way == "wide_band") {
    sight.kind = HeadSight::Kind::kBand;
    sight.sinks = 5 + head;
    sight.window = way == "band" ? 70 + 11 * head : rows;
  } else if (way == "lines" || way == "all_lines") {
    sight.kind = HeadSight::Kind::kLines;
    for (int32_t i = 0; i < rows; i += way == "lines" ? 7 + static_cast<int32_t>(head) : 1) {
      sight.columns.push_back(i);
    }
    sight.distances = {0, 3, static_cast<int32_t>(rows) - 20};
    if (way == "all_lines") {
      for (int32_t d = 1; d < rows; ++d) sight.distances.push_back(d);
      std::sort(sight.distances.begin(), sight.distances.end());
      sight.distances.erase(std::unique(sight.distances.begin(), sight.distances.end()),
                            sight.distances.end());
    }
  } else if (way == "blocks" || way == "all_blocks" || way == "short") {
    sight.kind = HeadSight::Kind::kBlocks;
    const int64_t blocks = (rows + 63) / 64;
    for (int64_t row = 0; row < blocks; ++row) {
      // The first block, and every other one from the rows' own on or from the one before it.
      uint64_t bits = way == "blocks" ? 1 : ~uint64_t{0};
      if (way == "blocks") {
        for (int64_t block = row - head % 2; block >= 0; block -= 2) bits |= uint64_t{1} << block;
      }
      sight.blocks.push_back(bits);
    }
    if (way == "short") sight.blocks.pop_back();
  } else if (way == "no_own_line") {
    sight.kind = HeadSight::Kind::kLines;
    sight.distances = {3};
  }
  return sight;
}

// Rows that attend alone, in the way of that name.
bool IsAmong(int64_t row) { return row % 3 == 0 || (row > 70 && row % 5 == 1); }

class TestAttend final : public Attend {
 public:
  explicit TestAttend(const Params& params)
      : way_(params.Text("way")), whole_(params.Int("whole")) {}
  PromptSight Choose(LayerView& view, const Tensor& queries) const override {
    const int64_t rows = queries.shape[0], heads = view.shape().query_heads;
    EXPECT_EQ(view.lengths()[0], rows);
    PromptSight sight;
    if (whole_ > 0) sight.whole_from = rows - whole_;
    const char* const kinds[] = {"band", "lines", "blocks", "whole"};
    for (int64_t h = 0; h < heads; ++h) {
      sight.heads.push_back(SightOf(way_ == "mixed" ? kinds[h % 4] : way_, h, rows));
    }
    for (int32_t row = 0; row < rows; ++row) {
      if (way_ == "all_among" || (way_ == "among" && IsAmong(row))) sight.among.push_back(row);
    }
    if (way_ == "falling_among") sight.among = {3, 2};
    return sight;
  }

 private:
  std::string way_;
  int64_t whole_;
};

const StageRegistrar kTestAttend(StageSpec{
    .kind = StageKind::kAttend,
    .id = "test_attend",
    .version = 1,
    .paper = "",
    .summary = "as a test says",
    .params = {ChoiceParam("way", "mixed",
                           {"mixed", "band", "narrow_band", "wide_band", "lines", "all_lines",
                            "blocks", "all_blocks", "whole", "short", "no_own_line", "among",
                            "all_among", "falling_among"},
                           ""),
               IntParam("whole", 0, 0, 1000, "")},
    .make = Make<TestAttend>()});

Method Attending(const std::string& way, int whole = 0, const std::string& more = "") {
  const Json json = *ParseJson(StrCat(R"({"id": "x", "title": "x", "family": "prefill",
    "stages": {"attend": {"id": "test_attend", "way": ")",
                                      way, R"(", "whole": )", whole, "}", more, "}}"),
                               "test");
  Result<Method> method = ParseMethod(json, "test");
  EXPECT_TRUE(method.ok()) << method.error().message;
  return std::move(method).value();
}

struct Attended {
  Prompt prompt;
  KvCache cache;
  PrefillCapture capture;
  Status status;
  std::vector<float> logits;

  // Without a method as the engine reads whole prompts.
  Attended(Model& model, const Method* method, int64_t tokens, const Needs& needs)
      : prompt(Prompt::FromTokens(RandomIds(tokens, 3))),
        cache(model.NewCache(prompt.size() + 8)),
        capture(model.config(), cache, needs, prompt.size(), &prompt) {
    if (method == nullptr) {
      for (int64_t begin = 0; begin < tokens; begin += Model::kChunkRows) {
        const int64_t end = std::min(tokens, begin + Model::kChunkRows);
        EXPECT_TRUE(cache.Append(end - begin).ok());
        const SequenceStep step = {
            .cache = &cache, .prompt = &prompt, .begin = begin, .end = end, .hook = &capture};
        logits = HostFloats(model.ops(), model.Forward({&step, 1}));
      }
      return;
    }
    SparsePrefill prefill(model, *method->attend, prompt, cache, capture, 7);
    while (!prefill.done()) {
      const Result<Tensor> last = prefill.Next();
      if (!last.ok()) {
        status = last.error();
        return;
      }
      EXPECT_EQ(last->empty(), !prefill.done());
      if (prefill.done()) logits = HostFloats(model.ops(), *last);
    }
    status = capture.status();
  }

  std::vector<float> Window(Model& model, int64_t layer, int64_t rows) {
    const ModelShape shape = model.shape();
    const ViewSource source = {
        .model = &model, .shape = &shape, .cache = &cache, .prompt = &prompt, .prefill = &capture};
    CacheView view(source, layer);
    return HostFloats(model.ops(), view.WindowAttention(rows));
  }
};

Needs CaptureAll(int64_t window) {
  Needs needs;
  needs.window = window;
  needs.column_sums = needs.column_squares = true;
  needs.last_row_of = {0, 1};
  return needs;
}

// Logits, entries and everything that is captured.
TEST(SparsePrefillTest, SeeingEverythingIsTheWholePrefill) {
  for (const char* kind : {"mha", "gqa", "mqa", "mla"}) {
    const TinyModel tiny = MakeTinyModel(kind, 2, {}, kSparseLayers);
    Model& model = *tiny.model;
    for (const int64_t tokens : {int64_t{1}, int64_t{90}, Model::kChunkRows + 70}) {
      Attended whole(model, nullptr, tokens, CaptureAll(20));
      for (const char* way : {"whole", "wide_band", "all_lines", "all_blocks", "all_among"}) {
        if (tokens == 1 && std::string(way) == "all_lines") continue;
        const Method method = Attending(way);
        Attended sparse(model, &method, tokens, CaptureAll(20));
        ASSERT_TRUE(sparse.status.ok()) << sparse.status.error().message;
        const std::string what = StrCat(kind, ", ", tokens, ", ", way);
        EXPECT_TRUE(SameBits(sparse.logits, whole.logits)) << what;
        for (int64_t layer = 0; layer < kSparseLayers; ++layer) {
          ASSERT_NE(sparse.capture.reach(layer), nullptr);
          EXPECT_EQ(sparse.capture.reach(layer)->density(), 1);
          const auto same = [&](const Tensor& got, const Tensor& want) {
            return SameBits(HostFloats(model.ops(), got), HostFloats(model.ops(), want));
          };
          EXPECT_TRUE(same(sparse.capture.ColumnSums(layer), whole.capture.ColumnSums(layer)))
              << what;
          EXPECT_TRUE(same(sparse.capture.ColumnSquares(layer), whole.capture.ColumnSquares(layer)))
              << what;
          EXPECT_TRUE(same(sparse.capture.LastRow(layer), whole.capture.LastRow(layer))) << what;
          EXPECT_TRUE(SameBits(sparse.Window(model, layer, 20), whole.Window(model, layer, 20)))
              << what;
        }
      }
    }
  }
}

// Whether a row sees an entry, by the words of methods/attend.h.
bool Sees(const HeadSight& sight, int64_t row, int64_t entry) {
  if (entry > row) return false;
  const int64_t page = row / 64;
  switch (sight.kind) {
    case HeadSight::Kind::kWhole:
      return true;
    case HeadSight::Kind::kBand:
      return entry < sight.sinks || row - entry < sight.window;
    case HeadSight::Kind::kBlocks:
      return ((sight.blocks[static_cast<size_t>(page)] >> (entry / 64)) & 1) != 0;
    case HeadSight::Kind::kLines:
      break;
  }
  if (std::count(sight.columns.begin(), sight.columns.end(), entry) > 0) return true;
  const int64_t end = 64 * (page + 1);
  std::vector<bool> run(static_cast<size_t>(end + 128));
  int64_t from = -1, to = -1;
  const auto close = [&] {
    for (int64_t e = std::max<int64_t>(from, 0); e < to; ++e) run[static_cast<size_t>(e)] = true;
  };
  for (auto at = sight.distances.rbegin(); at != sight.distances.rend(); ++at) {
    if (*at >= end) continue;
    const int64_t stop = std::max<int64_t>(end - *at, 64);
    if (from < 0 || stop > to + 64) {
      close();
      from = stop - 64;
      to = stop;
    } else if (stop > to) {
      to += 64;
    }
  }
  close();
  return run[static_cast<size_t>(entry)];
}

// The attention of every row, worked out on the host from queries and keys.
TEST(SparsePrefillTest, CapturesSeeWhatWasComputed) {
  for (const char* kind : {"gqa", "mha", "mla"}) {
    const TinyModel tiny = MakeTinyModel(kind, 2, {}, kSparseLayers);
    Model& model = *tiny.model;
    const ModelShape shape = model.shape();
    for (const auto& [way, whole] : std::vector<std::pair<std::string, int>>{{"mixed", 0},
                                                                             {"band", 0},
                                                                             {"narrow_band", 0},
                                                                             {"lines", 30},
                                                                             {"blocks", 0},
                                                                             {"among", 0}}) {
      if (way == "narrow_band" && std::string(kind) != "gqa") continue;
      // Rows that attend alone come in the pieces of a prefill.
      const bool pieces = way == "among" && std::string(kind) == "gqa";
      const int64_t length = pieces ? Model::kChunkRows + 70 : 300;
      const Method method = Attending(way, whole);
      Attended sparse(model, &method, length, CaptureAll(length));
      ASSERT_TRUE(sparse.status.ok()) << sparse.status.error().message;
      const char* const kinds[] = {"band", "lines", "blocks", "whole"};
      for (int64_t layer = 0; layer < kSparseLayers; ++layer) {
        const std::vector<float> queries =
            HostFloats(model.ops(), sparse.capture.WindowQueries(layer, length));
        const std::vector<float> window = sparse.Window(model, layer, length);
        const std::vector<float> sums = HostFloats(model.ops(), sparse.capture.ColumnSums(layer));
        const std::vector<float> squares =
            HostFloats(model.ops(), sparse.capture.ColumnSquares(layer));
        const std::vector<float> last = HostFloats(model.ops(), sparse.capture.LastRow(layer));
        EXPECT_FALSE(sparse.capture.reach(layer)->whole());
        std::vector<float> want_window, want_sums, want_squares, want_last;
        for (int64_t h = 0; h < shape.query_heads; ++h) {
          const int64_t dim = shape.key_dim, head = h / shape.group();
          std::vector<float> keys(static_cast<size_t>(length * dim));
          sparse.cache.ReadKeys(layer, head, 0, View(keys, {length, dim}));
          const HeadSight sight = SightOf(way == "mixed" ? kinds[h % 4] : way, h, length);
          const auto width = static_cast<size_t>(length);
          std::vector<double> column(width), square(width);
          for (int64_t row = 0; row < length; ++row) {
            std::vector<double> p(width);
            double all = 0;
            for (int64_t e = 0; e <= row; ++e) {
              const bool sees = (whole > 0 && row >= length - whole) || Sees(sight, row, e);
              if (!sees || (way == "among" && !(IsAmong(row) && IsAmong(e)))) continue;
              double dot = 0;
              for (int64_t k = 0; k < dim; ++k) {
                dot +=
                    double{queries[static_cast<size_t>((row * shape.query_heads + h) * dim + k)]} *
                    keys[static_cast<size_t>(e * dim + k)];
              }
              p[static_cast<size_t>(e)] = std::exp(dot * shape.attention_scale);
              all += p[static_cast<size_t>(e)];
            }
            for (int64_t e = 0; e < length; ++e) {
              double& share = p[static_cast<size_t>(e)];
              if (all > 0) share /= all;
              column[static_cast<size_t>(e)] += share;
              square[static_cast<size_t>(e)] += share * share;
              want_window.push_back(static_cast<float>(share));
              if (row + 1 == length) want_last.push_back(static_cast<float>(share));
            }
          }
          want_sums.insert(want_sums.end(), column.begin(), column.end());
          want_squares.insert(want_squares.end(), square.begin(), square.end());
        }
        const std::string what = StrCat(kind, ", ", way, ", layer ", layer);
        EXPECT_TRUE(AllWithin(window, want_window, 1e-4)) << what;
        EXPECT_TRUE(AllWithin(sums, want_sums, 1e-4)) << what;
        EXPECT_TRUE(AllWithin(squares, want_squares, 1e-4)) << what;
        EXPECT_TRUE(AllWithin(last, want_last, 1e-4)) << what;
        // What a row does not see has exactly nothing.
        int64_t given = 0;
        for (size_t i = 0; i < window.size(); ++i) given += want_window[i] == 0 && window[i] != 0;
        EXPECT_EQ(given, 0) << what;
      }
    }
  }
}

// How many threads there are changes nothing, and attention is that of the masks.
TEST(SparsePrefillTest, ThreadsChangeNothing) {
  std::vector<std::vector<float>> logits;
  for (const int threads : {1, 2, 4}) {
    const TinyModel tiny = MakeTinyModel("gqa", threads, {}, kSparseLayers);
    const Method method = Attending("mixed");
    const Attended sparse(*tiny.model, &method, 700, {});
    ASSERT_TRUE(sparse.status.ok()) << sparse.status.error().message;
    logits.push_back(sparse.logits);
  }
  EXPECT_TRUE(SameBits(logits[1], logits[0]));
  EXPECT_TRUE(SameBits(logits[2], logits[0]));
}

TEST(SparsePrefillTest, RefusesSightsThatAreNone) {
  const TinyModel tiny = MakeTinyModel("gqa", 1, {}, kSparseLayers);
  const std::pair<const char*, const char*> cases[] = {
      {"short", "the sight of query head 0: 1 words for 2 blocks of rows"},
      {"no_own_line", "the sight of query head 0: distances ascend from 0 on"},
      {"falling_among", "rows that attend alone ascend"}};
  for (const auto& [way, message] : cases) {
    const Method method = Attending(way);
    const Attended sparse(*tiny.model, &method, 90, {});
    ASSERT_FALSE(sparse.status.ok()) << way;
    EXPECT_THAT(sparse.status.error().message,
                AllOf(HasSubstr("attend.test_attend: "), HasSubstr(message)));
  }
}

// The share that was computed is recorded; a stage that leaves out nothing is not engaged. An
// evictor may follow.
TEST(SparsePrefillTest, RecordsHowMuchWasComputed) {
  const TinyModel tiny = MakeTinyModel("gqa", 1, {}, kSparseLayers);
  Model& model = *tiny.model;
  const Method sparse = Attending("blocks"), all = Attending("all_blocks"), full = Shipped("full");
  const Method evicts =
      Attending("blocks", 0, R"(, "score": {"id": "snapkv"}, "reduce": {"id": "top_k"})");
  const EngineSample sample = {.id = "s",
                               .turns = {{.ids = RandomIds(300, 9), .max_new_tokens = 4}}};
  const Budget half = {Budget::Kind::kFraction, 0.5};
  const Contender rows[] = {{.method = &sparse, .budget = {}, .model = &model},
                            {.method = &all, .budget = {}, .model = &model},
                            {.method = &evicts, .budget = half, .model = &model},
                            {.method = &full, .budget = {}, .model = &model}};
  const Cells cells = RunEngine({rows[0], rows[1], rows[2], rows[3]}, {}, {sample});
  const CompressionRecord& record = cells.at({0, 0}).record;
  EXPECT_EQ(record.engagement, Engagement::kEngaged);
  ASSERT_EQ(record.prefill_density.size(), 2u);
  // Five rows of blocks: of each the first, and every other one.
  EXPECT_NEAR(record.prefill_density[0], 10.0 / 15.0, 1e-9);
  EXPECT_EQ(record.entries_after[0][0], 300);
  EXPECT_EQ(cells.at({0, 1}).record.engagement, Engagement::kNotEngaged);
  EXPECT_THAT(cells.at({0, 1}).record.reason,
              HasSubstr("attend.test_attend left out nothing of what 300 tokens attend to"));
  EXPECT_EQ(cells.at({0, 1}).turns[0].ids, cells.at({0, 3}).turns[0].ids);
  EXPECT_EQ(cells.at({0, 2}).record.entries_after[0][0], 150);
  EXPECT_EQ(cells.at({0, 2}).record.prefill_density, record.prefill_density);
  for (size_t i = 0; i < 4; ++i) {
    const CellResult alone = RunEngine({rows[i]}, {}, {sample}).at({0, 0});
    EXPECT_EQ(alone.turns[0].ids, cells.at({0, static_cast<int64_t>(i)}).turns[0].ids) << i;
  }
}

TEST(SparsePrefillTest, SaysWhereItDoesNotGo) {
  const Method sparse = Attending("blocks");
  const Status turn = CheckMoment(sparse, CompressAt::kTurn);
  ASSERT_FALSE(turn.ok());
  EXPECT_THAT(turn.error().message, HasSubstr("attend.test_attend says what a prompt"));
  const Status chunk = CheckMoment(sparse, CompressAt::kChunk, 512);
  ASSERT_FALSE(chunk.ok());
  EXPECT_THAT(chunk.error().message, HasSubstr("attend.test_attend says what a prompt"));
  const Json json = *ParseJson(R"({"id": "x", "title": "x", "family": "prefill", "stages": {
    "attend": {"id": "test_attend"}, "thin": {"id": "fastv"}}})",
                               "test");
  const Result<Method> both = ParseMethod(json, "test");
  ASSERT_FALSE(both.ok());
  EXPECT_THAT(both.error().message, AllOf(HasSubstr("attend.test_attend looks at whole prompts"),
                                          HasSubstr("leave out one of the two")));
}

}  // namespace
}  // namespace kvgauge
