// SPDX-License-Identifier: Apache-2.0
// Rows of pictures at which the words that concern the pictures look least leave behind three
// layers; the best of those that leave are merged with their like and go on as fewer rows.
//
// Paper: SparseVLM, arXiv:2410.04417; after Gumpest/SparseVLMs, its first version. Which words
// count is said once, by what the first layer reads: each row of a picture shares itself among the
// words of the question by their products, and a word counts that gets more than the mean. Behind
// each of the layers a row is worth the mean over query heads and those words of the attention that
// it gets. What leaves is clustered by the densest rows that are far from denser ones (DPC-kNN) and
// averaged; an average stands where the middle of its cluster stood.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/strings.h"
#include "methods/merging_thin.h"
#include "methods/registry.h"
#include "methods/row_choice.h"
#include "methods/tensors.h"
#include "methods/tile_math.h"

namespace kvgauge {
namespace {

// "2,6,15"; empty where it is no list of ascending numbers.
std::vector<int64_t> NumbersOf(const std::string& text) {
  std::vector<int64_t> numbers;
  for (const std::string& part : Split(text, ',')) {
    const std::string_view bare = Trim(part);
    int64_t number = 0;
    const auto read = std::from_chars(bare.data(), bare.data() + bare.size(), number);
    if (read.ec != std::errc() || read.ptr != bare.data() + bare.size() || number < 0) return {};
    numbers.push_back(number);
  }
  return numbers;
}

// Rows of one cluster by their place in what was clustered, the middle first.
using Clusters = std::vector<std::vector<int64_t>>;

// Density-peak clustering by nearest neighbours. rows: [n, width]; as many clusters as neighbours
// count for a density.
Clusters PeakClusters(std::span<const float> rows, int64_t width, int64_t count) {
  const int64_t n = std::ssize(rows) / width;
  const auto at = [n](int64_t i, int64_t j) { return static_cast<size_t>(i * n + j); };
  std::vector<float> distance(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) {
    const std::span<const float> a = RowAt(rows, i, width);
    for (int64_t j = 0; j < i; ++j) {
      const std::span<const float> b = RowAt(rows, j, width);
      double sum = 0;
      for (size_t c = 0; c < a.size(); ++c) sum += std::pow(double{a[c]} - double{b[c]}, 2);
      distance[at(i, j)] = distance[at(j, i)] =
          static_cast<float>(std::sqrt(sum / static_cast<double>(width)));
    }
  }
  std::vector<float> density(static_cast<size_t>(n)), score(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    std::vector<float> nearest(distance.begin() + i * n, distance.begin() + (i + 1) * n);
    std::partial_sort(nearest.begin(), nearest.begin() + count, nearest.end());
    double sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += std::pow(double{nearest[static_cast<size_t>(k)]}, 2);
    density[static_cast<size_t>(i)] =
        static_cast<float>(std::exp(-sum / static_cast<double>(count)));
  }
  const float most = *std::max_element(distance.begin(), distance.end());
  for (int64_t i = 0; i < n; ++i) {
    float apart = most;  // from the nearest denser row
    for (int64_t j = 0; j < n; ++j) {
      if (density[static_cast<size_t>(j)] <= density[static_cast<size_t>(i)]) continue;
      apart = std::min(apart, distance[at(i, j)]);
    }
    score[static_cast<size_t>(i)] = apart * density[static_cast<size_t>(i)];
  }
  Clusters clusters;
  std::vector<bool> middle(static_cast<size_t>(n));
  for (const int32_t row : LargestFirst(score, count)) {
    clusters.push_back({row});
    middle[static_cast<size_t>(row)] = true;
  }
  for (int64_t i = 0; i < n; ++i) {
    if (middle[static_cast<size_t>(i)]) continue;
    size_t best = 0;
    for (size_t c = 1; c < clusters.size(); ++c) {
      if (distance[at(i, clusters[c][0])] < distance[at(i, clusters[best][0])]) best = c;
    }
    clusters[best].push_back(i);
  }
  return clusters;
}

class SparseVlm final : public MergingThin {
 public:
  explicit SparseVlm(const Params& params)
      : visual_(params.Text("rows") == "visual"),
        layers_(NumbersOf(params.Text("layers"))),
        kept_(NumbersOf(params.Text("kept"))),
        of_(params.Int("of")),
        drop_(params.Real("drop")),
        recycled_(params.Real("recycled")),
        members_(params.Int("members")),
        words_(params.Int("words")) {}

  Needs needs() const override {
    Needs needs;
    needs.modality = true;
    needs.question_rows = words_;
    return needs;
  }

  Status Check(const ModelShape& shape) const override {
    const auto ascend = [](const std::vector<int64_t>& numbers) {
      return !numbers.empty() &&
             std::is_sorted(numbers.begin(), numbers.end(), std::less_equal<>());
    };
    if (!ascend(layers_)) {
      return BadInput("layers: expected ascending numbers of layers, such as 2,6,15");
    }
    if (layers_.back() + 1 >= shape.layers) {
      return BadInput(StrCat("layers: rows leave behind layer ", layers_.back(),
                             ", and the model has the layers 0 .. ", shape.layers - 1,
                             "; expected numbers up to ", shape.layers - 2));
    }
    if (kept_.size() != layers_.size()) {
      return BadInput(StrCat("kept: ", kept_.size(), " numbers for ", layers_.size(),
                             " layers; expected one for each of them"));
    }
    if (*std::max_element(kept_.begin(), kept_.end()) > of_) {
      return BadInput(StrCat("kept: expected numbers up to `of`, which is ", of_));
    }
    return {};
  }

  std::vector<int64_t> Layers(const ModelShape&) const override {
    std::vector<int64_t> gaps;
    for (const int64_t layer : layers_) gaps.push_back(layer + 1);
    return gaps;
  }

  RowsOn Pass(LayerView& view, const ThinRows& rows) const override {
    const int64_t n = view.width(), words = WordsOf(view);
    std::vector<int32_t> candidates, kept;
    const std::vector<float> text = Fetch(view.ops(), view.OfModality(Modality::kText, 0));
    for (int64_t row = 0; row < n; ++row) {
      const bool may = row < n - words && (!visual_ || text[static_cast<size_t>(row)] == 0);
      (may ? candidates : kept).push_back(static_cast<int32_t>(row));
    }
    const auto stage = static_cast<size_t>(std::find(layers_.begin(), layers_.end(), view.layer()) -
                                           layers_.begin());
    const double share =
        1 - drop_ * (1 - static_cast<double>(kept_[stage]) / static_cast<double>(of_));
    const std::vector<int32_t> began = CandidatesOfPrompt(view, words);
    const int64_t stay = std::min(ShareOf(std::ssize(began), share), std::ssize(candidates) - 1);
    if (share >= 1 || stay < 0 || words == 0) return {.kept = Numbers(view, n)};
    const std::vector<float> all = Fetch(view.ops(), LooksOf(view, rows.inputs, began, words));
    std::vector<float> looks;
    for (const int32_t row : candidates) looks.push_back(all[static_cast<size_t>(row)]);
    const std::vector<int32_t> order = LargestFirst(looks, std::ssize(looks));
    const auto best = [&](int64_t i) {
      return candidates[static_cast<size_t>(order[static_cast<size_t>(i)])];
    };
    for (int64_t i = 0; i < stay; ++i) kept.push_back(best(i));
    std::sort(kept.begin(), kept.end());
    RowsOn on = {.kept = Upload(view, kept)};
    if (recycled_ == 0) return on;
    const int64_t leave = std::ssize(candidates) - stay;
    std::vector<int32_t> merged;
    for (int64_t i = 0; i < std::min(ShareOf(leave, recycled_) + 1, leave); ++i) {
      merged.push_back(best(stay + i));
    }
    Merge(view, rows.hidden, merged, on);
    return on;
  }

 private:
  // Words of the question that are looked at; 0: a picture ends the prompt, or it has none.
  int64_t WordsOf(LayerView& view) const {
    const std::span<const VisualSpan> spans = view.VisualSpans();
    if (spans.empty() && visual_) return 0;
    const int64_t behind =
        spans.empty() ? words_ : view.tokens() - spans.back().first - spans.back().count;
    return std::min(view.QuestionRows(words_), behind);
  }

  // The rows that could leave before any did, by their place in the prompt.
  std::vector<int32_t> CandidatesOfPrompt(LayerView& view, int64_t words) const {
    std::vector<int32_t> rows;
    const auto add = [&](int64_t first, int64_t count) {
      for (int64_t i = 0; i < count; ++i) rows.push_back(static_cast<int32_t>(first + i));
    };
    if (!visual_) add(0, view.tokens() - words);
    for (const VisualSpan& span : view.VisualSpans()) {
      if (visual_) add(span.first, span.count);
    }
    return rows;
  }

  // What each row of the layer gets of the words that count: [n].
  Tensor LooksOf(LayerView& view, const Tensor& inputs, std::span<const int32_t> began,
                 int64_t words) const {
    RowOps& ops = *view.ops().rows;
    const int64_t n = view.width(), heads = view.shape().query_heads;
    const Tensor attention = view.WindowAttention(words);  // [heads, words, n]
    const Tensor mean = view.Scratch(DType::kF32, {words * n});
    ops.ReduceColumns(attention.Reshape({heads, words * n}), Reduction::kMean, mean);
    const Tensor out = view.Scratch(DType::kF32, {1, n});
    const Tensor counts = Counts(view, inputs, began, words);
    view.ops().linear->MatMulNN(counts.Reshape({1, 1, words}), mean.Reshape({1, words, n}), 1.0f,
                                out.Reshape({1, 1, n}));
    return out.Reshape({n});
  }

  // What each word of the question counts for: 0, or the share of one of those that count. [words]
  static Tensor Counts(LayerView& view, const Tensor& inputs, std::span<const int32_t> began,
                       int64_t words) {
    RowOps& ops = *view.ops().rows;
    const int64_t rows = std::ssize(began), width = inputs.shape[1], prompt = inputs.shape[0];
    const Tensor seen = view.Scratch(DType::kF32, {rows, width});
    view.ops().select->Gather(inputs, Upload(view, began), seen);
    const Tensor shares = view.Scratch(DType::kF32, {rows, words});
    view.ops().linear->MatMulNT(seen.Reshape({1, rows, width}),
                                inputs.Slice(prompt - words, prompt).Reshape({1, words, width}),
                                1.0f, shares.Reshape({1, rows, words}));
    ops.Softmax(shares, 1.0f, shares);
    const Tensor mean = view.Scratch(DType::kF32, {words});
    ops.ReduceColumns(shares, Reduction::kMean, mean);
    std::vector<float> counts = Fetch(view.ops(), mean);
    const double bar =
        std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(words);
    double counting = 0;
    for (float& count : counts) {
      count = double{count} > bar ? 1.0f : 0.0f;
      counting += double{count};
    }
    // Words that are all alike count alike.
    for (float& count : counts) {
      count =
          counting == 0 ? 1.0f / static_cast<float>(words) : count / static_cast<float>(counting);
    }
    return Upload(view, counts);
  }

  void Merge(LayerView& view, const Tensor& hidden, const std::vector<int32_t>& merged,
             RowsOn& on) const {
    const int64_t n = hidden.shape[0], width = hidden.shape[1], count = std::ssize(merged);
    const Tensor some = view.Scratch(DType::kF32, {count, width});
    view.ops().select->Gather(hidden, Upload(view, merged), some);
    Clusters clusters = PeakClusters(Fetch(view.ops(), some), width, count / members_ + 1);
    std::sort(clusters.begin(), clusters.end(), [&](const auto& a, const auto& b) {
      return merged[static_cast<size_t>(a[0])] < merged[static_cast<size_t>(b[0])];
    });
    std::vector<int32_t> places;
    std::vector<float> shares(clusters.size() * static_cast<size_t>(n), 0.0f);
    for (size_t c = 0; c < clusters.size(); ++c) {
      places.push_back(merged[static_cast<size_t>(clusters[c][0])]);
      for (const int64_t member : clusters[c]) {
        const auto row = static_cast<size_t>(merged[static_cast<size_t>(member)]);
        shares[c * static_cast<size_t>(n) + row] = 1.0f / static_cast<float>(clusters[c].size());
      }
    }
    on.made = Upload(view, places);
    on.shares = Upload(view, shares).Reshape({std::ssize(clusters), n});
  }

  bool visual_;
  std::vector<int64_t> layers_, kept_;
  int64_t of_;
  double drop_, recycled_;
  int64_t members_, words_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kThin,
    .id = "sparsevlm",
    .paper = "arXiv:2410.04417",
    .summary =
        "rows of pictures leave by what the question's words look at, the best of them merged",
    .departures = {"a merged row stands where the middle of its cluster stood, and rows keep their "
                   "positions; the reference puts merged rows behind the others of the picture and "
                   "numbers all anew",
                   "no noise is added to densities; equals are taken in order",
                   "all pictures of a prompt are ranked together; the reference has one",
                   "the words are the last rows of the prompt behind its last picture, at most "
                   "`words`"},
    .bytes = "from the first of its layers on what is left of the prompt, and 4 bytes an entry for "
             "its position",
    .params = {ChoiceParam("rows", "visual", {"visual", "all"},
                           "which rows may leave: those of pictures and videos, or any"),
               ChoiceParam("layers", "2,6,15", {}, "the layers behind which rows leave"),
               ChoiceParam("kept", "300,200,110", {}, "rows that stay behind each of them"),
               IntParam("of", 576, 1, 1 << 20,
                        "of so many rows of pictures, of which they are a share"),
               RealParam("drop", 1, 0, 1, "of what should leave, the share that does"),
               RealParam("recycled", 0.3, 0, 1, "share of what leaves that is merged; 0: none"),
               IntParam("members", 10, 1, 4096, "rows that are merged for each cluster, about"),
               IntParam("words", 512, 1, 4096, "most words of the question")},
    .make = Make<SparseVlm>(),
});

}  // namespace
}  // namespace kvgauge
