// SPDX-License-Identifier: Apache-2.0
#include "methods/attention.h"

#include <algorithm>
#include <limits>

#include "methods/repeating_view.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// The last position that the window hides from a row at `position`.
int64_t LastHidden(const LayerView& view, int64_t position, int64_t window) {
  return view.shape().chunked ? position / window * window - 1 : position - window;
}

// Logits that the window hides become -inf.
void Hide(LayerView& view, int64_t head, int64_t first, QueryRows rows, int64_t window,
          const Tensor& logits) {
  RowOps& ops = *view.ops().rows;
  const int64_t count = logits.shape[0], n = logits.shape[1];
  const Tensor positions = view.Scratch(DType::kF32, {n});
  ops.Convert(view.Positions(head, first).Slice(0, n), positions);
  const Tensor hidden = view.Scratch(DType::kF32, {count, n});
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = rows.position + i * rows.apart;
    ops.Fill(static_cast<float>(LastHidden(view, at, window)), hidden.Slice(i, i + 1));
  }
  ops.Combine(hidden, positions, Binary::kLess, hidden);  // 1: seen
  ops.Activate(hidden, Activation::kLog, hidden);         // 0, or -inf
  ops.Combine(logits, hidden, Binary::kAdd, logits);
}

// `n` times a number. A graph of a device repeats this for other numbers, which are sent with the
// step.
Tensor Everywhere(LayerView& view, float number, int64_t n) {
  if (Repeating(view) == nullptr) return Filled(view, n, number);
  return Spread(view, Upload(view, std::span<const float>(&number, 1)), n)[0];
}

// The same of one row of queries, for each `run` of entries by its last one. Columns behind the
// last run mean nothing.
void HideRuns(LayerView& view, int64_t head, int64_t first, int64_t run, int64_t last_hidden,
              const Tensor& scores) {
  Ops& ops = view.ops();
  const int64_t runs = scores.shape[1], count = view.lengths()[head] - first;
  RepeatingView* const repeating = Repeating(view);
  const Tensor all =
      repeating != nullptr ? repeating->RoomyPositions(head, first) : view.Positions(head, first);
  std::vector<int32_t> last;
  for (int64_t r = 0; r < runs; ++r) {
    last.push_back(static_cast<int32_t>(std::min((r + 1) * run, count) - 1));
  }
  const Tensor ends = view.Scratch(DType::kI32, {runs}), seen = view.Scratch(DType::kF32, {runs});
  const Tensor limit = Everywhere(view, static_cast<float>(last_hidden), runs);
  ops.select->Gather(AsColumn(all), Upload(view, last), AsColumn(ends));
  ops.rows->Convert(ends, seen);
  ops.rows->Combine(limit, seen, Binary::kLess, seen);  // 1: seen
  ops.rows->Activate(seen, Activation::kLog, seen);     // 0, or -inf
  ops.rows->Combine(scores, seen, Binary::kAdd, scores);
}

// The first `count` columns of logits become -inf. A graph of a device repeats this for other
// counts, which are sent with the step; Scratch is 0 behind them.
void HideFirst(LayerView& view, int64_t count, const Tensor& roomy) {
  RowOps& rows = *view.ops().rows;
  const Tensor hidden = view.Scratch(DType::kF32, {1, roomy.shape[1]});
  rows.FillColumns(-std::numeric_limits<float>::infinity(), 0, count, hidden);
  rows.Combine(roomy, hidden[0], Binary::kAdd, roomy);
}

// Whether it is known without a device where the head's entries are.
bool AreInOrder(LayerView& view, int64_t head) {
  const RepeatingView* const repeating = Repeating(view);
  return repeating != nullptr && repeating->InOrder(head);
}

int64_t ColumnsOf(const Tensor& rows) { return rows.shape[rows.rank - 1]; }

// The first columns, which are all but where rows have room for more.
Tensor First(const Tensor& rows, int64_t count) {
  return count == ColumnsOf(rows) ? rows : Columns(rows, 0, count);
}

// The window of the layer, 0 where it hides nothing from these rows.
int64_t HidingWindow(const LayerView& view, QueryRows rows, int64_t count) {
  const int64_t window = view.shape().windows[static_cast<size_t>(view.layer())];
  return rows.position + (count - 1) * rows.apart < window ? 0 : window;
}

// The first `count` columns become shares.
void Shares(LayerView& view, const Tensor& roomy, int64_t count, float scale, int64_t head,
            int64_t first, QueryRows rows, int64_t window, const Tensor& out) {
  RowOps& ops = *view.ops().rows;
  const float cap = view.shape().attention_softcap;
  const Tensor products = First(roomy, count);
  if (cap == 0 && window == 0) return ops.Softmax(products, scale, First(out, count));
  // A graph of a device repeats these for as many as there is room for.
  if (scale != 1) ops.Affine(roomy, scale, 0.0f, roomy);
  CapLogits(view, roomy);
  if (window > 0 && rows.apart == 0 && AreInOrder(view, head)) {
    const int64_t last = LastHidden(view, rows.position, window);
    HideFirst(view, std::clamp<int64_t>(last + 1 - first, 0, count), roomy);
  } else if (window > 0 && count > 0 && rows.apart == 0 && Repeating(view) != nullptr) {
    HideRuns(view, head, first, 1, LastHidden(view, rows.position, window), roomy);
  } else if (window > 0) {
    Hide(view, head, first, rows, window, products);
  }
  ops.Softmax(products, 1.0f, First(out, count));
}

}  // namespace

void CapLogits(LayerView& view, const Tensor& logits) {
  const float cap = view.shape().attention_softcap;
  if (cap > 0) view.ops().rows->SoftCap(logits, cap, logits);
}

void LogitsOfProducts(LayerView& view, const Tensor& products) {
  view.ops().rows->Affine(products, view.shape().attention_scale, 0.0f, products);
  CapLogits(view, products);
}

void SoftmaxOfProducts(LayerView& view, const Tensor& products, const Tensor& out) {
  Shares(view, products, ColumnsOf(products), view.shape().attention_scale, 0, 0, {}, 0, out);
}

void AttentionOfProducts(LayerView& view, int64_t head, int64_t first, QueryRows rows,
                         const Tensor& products, const Tensor& out) {
  const int64_t window = HidingWindow(view, rows, products.shape[0]);
  Shares(view, products, ColumnsOf(products), view.shape().attention_scale, head, first, rows,
         window, out);
}

void AttentionOfProducts(LayerView& view, int64_t head, int64_t first, QueryRows rows,
                         int64_t count, const Tensor& products) {
  const int64_t window = HidingWindow(view, rows, products.shape[0]);
  Shares(view, products, count, view.shape().attention_scale, head, first, rows, window, products);
}

void AttentionOfLogits(LayerView& view, int64_t head, int64_t first, QueryRows rows,
                       const Tensor& logits, const Tensor& out) {
  const int64_t window = HidingWindow(view, rows, logits.shape[0]);
  Shares(view, logits, ColumnsOf(logits), 1.0f, head, first, rows, window, out);
}

void AttentionOfLogits(LayerView& view, int64_t head, int64_t first, QueryRows rows, int64_t count,
                       const Tensor& logits) {
  const int64_t window = HidingWindow(view, rows, logits.shape[0]);
  Shares(view, logits, count, 1.0f, head, first, rows, window, logits);
}

void HideFromNewest(LayerView& view, int64_t head, int64_t first, int64_t run, int64_t count,
                    const Tensor& scores) {
  const int64_t window = HidingWindow(view, QueryRows::Newest(view), 1);
  if (window == 0 || count == 0) return;
  const int64_t last = LastHidden(view, view.tokens() - 1, window);
  if (!AreInOrder(view, head)) {
    const bool roomy = Repeating(view) != nullptr;
    return HideRuns(view, head, first, run, last, roomy ? scores : First(scores, count));
  }
  // Runs whose last entries are so many are hidden; the last run may be of fewer.
  const int64_t entries = view.lengths()[head] - first, hidden = last + 1 - first;
  const int64_t runs = hidden >= entries ? count : std::max<int64_t>(hidden, 0) / run;
  HideFirst(view, std::min(runs, count), scores);
}

void HideFromNewest(LayerView& view, int64_t head, int64_t first, int64_t run,
                    const Tensor& scores) {
  const int64_t window = HidingWindow(view, QueryRows::Newest(view), 1);
  if (window == 0 || scores.shape[1] == 0) return;
  HideRuns(view, head, first, run, LastHidden(view, view.tokens() - 1, window), scores);
}

}  // namespace kvgauge
