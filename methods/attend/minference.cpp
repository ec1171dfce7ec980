// SPDX-License-Identifier: Apache-2.0
// Each head has one of three patterns: a band, columns and diagonals, or blocks.
//
// Paper: MInference, arXiv:2407.02490; after microsoft/MInference. A search offline gives each head
// its pattern and how much of it: a calibration, or the authors' files of best patterns. Columns
// and diagonals are those to which the last 64 rows pay most; blocks are those whose mean key is
// most alike to the mean query.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/prompt_attention.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr const char* kLines = "vertical_and_slash";
constexpr const char* kBand = "stream_llm";
constexpr const char* kBlocks = "block_sparse";
constexpr int64_t kLeastColumns = 30, kLeastDiagonals = 50;

// One of these tables has a head's two numbers, the others -1.
std::array<const char*, 3> Patterns() { return {kLines, kBand, kBlocks}; }

// The best `count` of scores [n], where some range is always among them.
std::vector<int32_t> BestAndAlways(LayerView& view, const Tensor& scores, int64_t count,
                                   int64_t always_from, int64_t always_to) {
  if (always_from < always_to) {
    view.ops().rows->Fill(kForcedScore, scores.Slice(always_from, always_to));
  }
  const Tensor best = Best(view, scores.Reshape({1, scores.shape[0]}), count);
  std::vector<int32_t> chosen(static_cast<size_t>(count));
  view.ops().memory->Copy(best, View(chosen, {count}));
  return chosen;
}

// Means over blocks, of which the last one counts as if zeros followed, as in the reference.
Tensor PaddedMeans(LayerView& view, const Tensor& x, int64_t block) {
  const Tensor means = BlockMeans(view, x, block);
  const int64_t rest = x.shape[0] % block;
  if (rest > 0) {
    const Tensor last = means[means.shape[0] - 1].Reshape({1, x.shape[1]});
    view.ops().rows->Affine(last, static_cast<float>(rest) / static_cast<float>(block), 0.0f, last);
  }
  return means;
}

// Products of the means of blocks of a query head's rows and of its keys: [blocks, blocks].
std::vector<float> ProductsOfBlocks(LayerView& view, const Tensor& queries, int64_t query_head,
                                    int64_t block) {
  const int64_t prompt = queries.shape[0], dim = queries.shape[2];
  const int64_t blocks = (prompt + block - 1) / block;
  const Tensor rows = view.Scratch(DType::kF32, {prompt, dim});
  view.ops().rows->Convert(HeadOf(queries, query_head), rows);
  const Tensor of_rows = PaddedMeans(view, rows, block);
  const Tensor of_keys = PaddedMeans(view, view.Keys(query_head / view.shape().group(), 0), block);
  const Tensor alike = view.Scratch(DType::kF32, {1, blocks, blocks});
  view.ops().linear->MatMulNT(of_rows.Reshape({1, blocks, dim}), of_keys.Reshape({1, blocks, dim}),
                              1.0f, alike);
  return Fetch(view.ops(), alike);
}

// The blocks up to its own that a row of blocks is most alike to, best first, at most `count`.
std::vector<int64_t> MostAlike(std::span<const float> products, int64_t blocks, int64_t row,
                               int64_t count) {
  std::vector<double> seen;
  for (int64_t block = 0; block <= row; ++block) {
    seen.push_back(double{products[static_cast<size_t>(row * blocks + block)]});
  }
  std::vector<int64_t> order = FallingOrder(seen);
  if (std::ssize(order) > count) order.resize(static_cast<size_t>(count));
  return order;
}

class MInference final : public Attend {
 public:
  explicit MInference(const Params& params)
      : pattern_(params.Text("pattern")),
        columns_(params.Int("columns")),
        diagonals_(params.Int("diagonals")),
        blocks_(params.Int("blocks")),
        first_columns_(params.Int("first_columns")),
        near_diagonals_(params.Int("near_diagonals")),
        rows_(params.Int("rows")),
        first_layer_(params.Int("first_layer")),
        ratio_(params.Real("ratio")) {}

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }
  Status Check(const ModelShape& shape) const override {
    if (calibration_ == nullptr) return {};
    for (const char* pattern : Patterns()) {
      const Result<Tensor> table = Table(shape, pattern);
      if (!table.ok()) return table.error();
    }
    return {};
  }

  PromptSight Choose(LayerView& view, const Tensor& queries) const override {
    const ModelShape& shape = view.shape();
    PromptSight sight;
    sight.heads.resize(static_cast<size_t>(shape.query_heads));
    if (view.layer() < first_layer_) return sight;
    const int64_t prompt = queries.shape[0];
    LastRowShares last(view, queries, std::min(rows_, prompt));
    for (int64_t h = 0; h < shape.query_heads; ++h) {
      HeadSight& head = sight.heads[static_cast<size_t>(h)];
      const Pattern pattern = PatternOf(shape, view.layer(), h);
      const std::string_view name = pattern.name;
      if (name == kBand) {
        head.kind = HeadSight::Kind::kBand;
        head.sinks = pattern.first;
        head.window = std::max<int64_t>(pattern.second, 1);
      } else if (name == kBlocks) {
        ChooseBlocks(view, queries, h, head);
      } else {
        ChooseLines(view, last, h, prompt, pattern, head);
      }
    }
    return sight;
  }

 private:
  struct Pattern {
    std::string_view name;
    int64_t first = 0, second = 0;
  };

  Result<Tensor> Table(const ModelShape& shape, std::string_view pattern) const {
    return calibration_->Find(pattern, std::array{shape.layers, shape.query_heads, int64_t{2}});
  }

  int64_t Scaled(double count) const { return static_cast<int64_t>(count * ratio_); }

  Pattern PatternOf(const ModelShape& shape, int64_t layer, int64_t head) const {
    if (calibration_ == nullptr) {
      return {pattern_, Scaled(static_cast<double>(columns_)),
              Scaled(static_cast<double>(diagonals_))};
    }
    const int64_t at = 2 * (layer * shape.query_heads + head);
    for (const char* pattern : Patterns()) {
      const Result<Tensor> table = Table(shape, pattern);
      KVG_CHECK(table.ok(), "a calibration that was not checked");
      const float* numbers = table->f32() + at;
      if (numbers[0] >= 0) {
        return {pattern, Scaled(double{numbers[0]}), Scaled(double{numbers[1]})};
      }
    }
    KVG_CHECK(false, "a head without a pattern");
    return {};
  }

  void ChooseLines(LayerView& view, LastRowShares& last, int64_t query_head, int64_t prompt,
                   const Pattern& pattern, HeadSight& head) const {
    const int64_t columns = std::min(prompt, std::max(pattern.first, kLeastColumns));
    const int64_t diagonals = std::min(prompt, std::max(pattern.second, kLeastDiagonals));
    last.Compute(query_head);
    head.kind = HeadSight::Kind::kLines;
    head.columns =
        BestAndAlways(view, last.Columns(), columns, 0, std::min(prompt, first_columns_));
    // Number i is the diagonal at the distance prompt - 1 - i. The nearest of those that are always
    // chosen come first where there are too many.
    const int64_t near = std::min({prompt, near_diagonals_, diagonals});
    head.distances = BestAndAlways(view, last.Diagonals(), diagonals, prompt - near, prompt);
    for (int32_t& at : head.distances) at = static_cast<int32_t>(prompt - 1) - at;
    std::reverse(head.distances.begin(), head.distances.end());
  }

  void ChooseBlocks(LayerView& view, const Tensor& queries, int64_t query_head,
                    HeadSight& head) const {
    const int64_t prompt = queries.shape[0];
    const int64_t blocks = (prompt + kSightRun - 1) / kSightRun;
    const std::vector<float> products = ProductsOfBlocks(view, queries, query_head, kSightRun);
    const int64_t words = SightWords(prompt, kSightRun);
    head.kind = HeadSight::Kind::kBlocks;
    head.blocks.assign(static_cast<size_t>(blocks * words), 0);
    for (int64_t row = 0; row < blocks; ++row) {
      for (const int64_t block : MostAlike(products, blocks, row, blocks_)) {
        head.blocks[static_cast<size_t>(row * words + block / 64)] |= uint64_t{1} << (block % 64);
      }
    }
  }

  std::string pattern_;
  int64_t columns_, diagonals_, blocks_, first_columns_, near_diagonals_, rows_, first_layer_;
  double ratio_;
  std::shared_ptr<const Calibration> calibration_;
};

// The authors' search: of a few patterns the one that leaves a head most of the attention of a
// text's later rows. What it finds are columns and diagonals: a band becomes as many, and blocks
// the most that are asked for.
class PatternSearch final : public Calibrator {
 public:
  PatternSearch(const Params& params, const ModelShape& shape, std::span<const int64_t> lengths)
      : shape_(shape),
        longest_(lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end())),
        rows_(params.Int("rows")),
        from_(params.Int("search_from")),
        scale_(params.Real("search_scale")),
        left_(static_cast<size_t>(shape.layers * shape.query_heads)) {}

  Needs needs(int) const override { return {.window = longest_}; }

  void Observe(int, LayerView& view) override {
    const int64_t n = view.tokens(), from = n > from_ ? from_ : n / 2;
    const Tensor queries = view.WindowQueries(n);
    LastRowShares later(view, queries, n - from), last(view, queries, std::min(rows_, n));
    const Tensor shares = view.Scratch(DType::kF32, {n - from, n});
    for (int64_t h = 0; h < shape_.query_heads; ++h) {
      later.Compute(h);
      view.ops().rows->Convert(later.Shares(), shares);
      const std::vector<float> given = Fetch(view.ops(), shares);
      std::array<double, kCandidates.size()>& left =
          left_[static_cast<size_t>(view.layer() * shape_.query_heads + h)];
      // The share of what rows from `from` on give that goes to entries they see.
      const auto kept = [&](const auto& sees) {
        double sum = 0;
        for (int64_t i = from; i < n; ++i) {
          const float* row = given.data() + (i - from) * n;
          for (int64_t j = 0; j <= i; ++j) sum += sees(i, j) ? double{row[j]} : 0;
        }
        return sum / static_cast<double>(n - from);
      };
      for (size_t c = 0; c < kCandidates.size(); ++c) {
        const Candidate& candidate = kCandidates[c];
        const int64_t first = std::min(n, Scaled(candidate.first)),
                      second = std::min(n, Scaled(candidate.second));
        if (candidate.tries == Tries::kWindow) {
          left[c] += kept([&](int64_t i, int64_t j) { return j < first || i - j <= second; });
        } else if (candidate.tries == Tries::kRuns) {
          const std::vector<char> marks = Blocks(view, queries, h);
          const int64_t blocks = (n + kBlock - 1) / kBlock;
          left[c] += kept([&](int64_t i, int64_t j) {
            return marks[static_cast<size_t>(i / kBlock * blocks + j / kBlock)] != 0;
          });
        } else {
          last.Compute(h);
          const std::vector<char> columns = MarksOf(
              n, BestAndAlways(view, last.Columns(), first, 0, std::min(first, kLeastColumns)));
          // Number n - 1 - d is the diagonal at distance d.
          const std::vector<char> diagonals =
              MarksOf(n, BestAndAlways(view, last.Diagonals(), second,
                                       n - std::min(second, kNearInSearch), n));
          left[c] += kept([&](int64_t i, int64_t j) {
            return columns[static_cast<size_t>(j)] != 0 ||
                   diagonals[static_cast<size_t>(n - 1 - (i - j))] != 0;
          });
        }
      }
    }
  }

  Calibration::Tables Finish(Ops&) override {
    const std::vector<int64_t> shape = {shape_.layers, shape_.query_heads, 2};
    const Calibration::Table none{shape, std::vector<float>(2 * left_.size(), -1.0f)};
    Calibration::Table lines{shape, {}};
    for (const auto& left : left_) {
      const auto best =
          static_cast<size_t>(std::max_element(left.begin(), left.end()) - left.begin());
      const Candidate& found =
          kCandidates[best].tries == Tries::kRuns ? kInPlaceOfBlocks : kCandidates[best];
      lines.values.push_back(static_cast<float>(Scaled(found.first)));
      lines.values.push_back(static_cast<float>(Scaled(found.second)));
    }
    return {{kLines, std::move(lines)}, {kBand, none}, {kBlocks, none}};
  }

 private:
  enum class Tries { kWindow, kColumns, kRuns };
  struct Candidate {
    Tries tries;
    int64_t first, second;
  };
  static constexpr std::array<Candidate, 6> kCandidates = {{{Tries::kWindow, 100, 800},
                                                            {Tries::kColumns, 30, 800},
                                                            {Tries::kColumns, 100, 750},
                                                            {Tries::kColumns, 500, 700},
                                                            {Tries::kColumns, 3500, 100},
                                                            {Tries::kRuns, 0, 0}}};
  static constexpr Candidate kInPlaceOfBlocks = {Tries::kColumns, 1000, 6096};
  static constexpr int64_t kBlock = 32, kShareOfBlocks = 8, kNearInSearch = 30;

  int64_t Scaled(int64_t count) const {
    return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(count) * scale_));
  }
  static std::vector<char> MarksOf(int64_t n, std::span<const int32_t> chosen) {
    std::vector<char> marks(static_cast<size_t>(n));
    for (const int32_t at : chosen) marks[static_cast<size_t>(at)] = 1;
    return marks;
  }
  // An eighth of all blocks for each row of them.
  static std::vector<char> Blocks(LayerView& view, const Tensor& queries, int64_t query_head) {
    const int64_t blocks = (queries.shape[0] + kBlock - 1) / kBlock;
    const std::vector<float> products = ProductsOfBlocks(view, queries, query_head, kBlock);
    std::vector<char> marks(static_cast<size_t>(blocks * blocks));
    for (int64_t row = 0; row < blocks; ++row) {
      for (const int64_t block : MostAlike(products, blocks, row, blocks / kShareOfBlocks)) {
        marks[static_cast<size_t>(row * blocks + block)] = 1;
      }
    }
    return marks;
  }

  const ModelShape shape_;
  const int64_t longest_, rows_, from_;
  const double scale_;
  // [layers * query heads] what each candidate left, summed over texts
  std::vector<std::array<double, kCandidates.size()>> left_;
};

// The authors' best patterns: for each layer and head a name and two numbers, which the reader of
// the file makes a table of each name.
Result<Calibration::Tables> ImportPatterns(const Calibration::Tables& published) {
  Calibration::Tables tables;
  std::vector<int64_t> shape;
  for (const auto& [name, table] : published) {
    if (name != kLines && name != kBand && name != kBlocks) {
      return BadInput(
          StrCat("has a pattern '", name, "'; expected ", kLines, ", ", kBand, " or ", kBlocks));
    }
    if (table.shape.size() != 3 || table.shape[2] < 2) {
      return BadInput(StrCat("pattern '", name, "' is not of layers, heads and two numbers"));
    }
    shape = {table.shape[0], table.shape[1], 2};
    Calibration::Table& two = tables[name];
    two.shape = shape;
    for (int64_t i = 0; i < shape[0] * shape[1]; ++i) {
      const auto at = static_cast<size_t>(i * table.shape[2]);
      two.values.insert(two.values.end(), {table.values[at], table.values[at + 1]});
    }
  }
  if (tables.empty()) return BadInput("has no patterns");
  for (const char* pattern : Patterns()) {
    Calibration::Table& table = tables[pattern];
    if (!table.shape.empty()) continue;
    table.shape = shape;
    table.values.assign(static_cast<size_t>(2 * shape[0] * shape[1]), -1.0f);
  }
  return tables;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kAttend,
    .id = "minference",
    .paper = "arXiv:2407.02490",
    .summary = "heads see a band, columns and diagonals, or blocks of the prompt",
    .departures =
        {"products have the model's scale and cap; the reference divides by the root of "
         "the head dim",
         "of equal sums the lower entry is chosen, and the nearer of the diagonals that "
         "are always chosen, where fewer are asked for; the reference leaves it open",
         "without a side-file all heads have the same pattern: the reference's default",
         "a search sums what patterns leave over all its texts; the reference looks at one"},
    .params = {ChoiceParam("pattern", kLines, {kLines, kBand, kBlocks},
                           "of all heads, without a side-file"),
               IntParam("columns", 1000, 0, 1 << 24,
                        "columns of a head; of a band the first entries"),
               IntParam("diagonals", 6096, 1, 1 << 24, "diagonals of a head; of a band its width"),
               IntParam("blocks", 100, 1, 1 << 24, "blocks of 64 entries for each 64 rows"),
               IntParam("first_columns", 30, 0, 1 << 20, "first columns that are always chosen"),
               IntParam("near_diagonals", 100, 1, 1 << 20,
                        "nearest diagonals that are always chosen"),
               IntParam("rows", 64, 1, 1 << 16, "last rows whose attention chooses"),
               IntParam("first_layer", 0, 0, 1 << 16, "layers before it see everything"),
               RealParam("ratio", 1, 0.001, 1000, "what columns and diagonals are multiplied by"),
               IntParam("search_from", 2500, 1, 1 << 24,
                        "first row of a text whose attention a search counts; of a text that is no "
                        "longer, the second half"),
               RealParam("search_scale", 1, 0.0001, 1000,
                         "what the numbers are multiplied by that a search tries"),
               CalibrationParam()},
    .make = Make<MInference>(),
    .calibrate = MakeCalibrator<PatternSearch>,
    .calibrated_params = {"rows", "search_from", "search_scale"},
    .import = ImportPatterns,
});

}  // namespace
}  // namespace kvgauge
