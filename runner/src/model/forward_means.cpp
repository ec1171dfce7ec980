// SPDX-License-Identifier: Apache-2.0
// Rows that join a head's newest entry (methods/entry_means.h) in the forward pass: who joins, what
// the entries become, and attention that sees them as they stood at each row.
//
// Rows of a pass go through a layer's attention in runs, in which no row but the first joins an
// entry: so a row sees what it would see alone, to the same bits, and rows of a model that joins
// none are one run.
#include <algorithm>
#include <cmath>

#include "methods/tensors.h"
#include "src/model/forward_pass.h"

namespace kvgauge {
namespace {

// What is added to each weight: bf16's epsilon, whatever the model computes in.
constexpr double kLeastWeight = 0x1p-7;

// The last number of each head of a [m, heads, d] view: [m, heads, 1].
Tensor LastNumbers(const Tensor& heads) {
  Tensor last = heads;
  last.data = static_cast<char*>(heads.data) + (heads.shape[2] - 1) * SizeOf(heads.dtype);
  last.shape[2] = 1;
  return last;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Which of a sequence's rows join an entry, and the share that each row has of the entries at it
// and behind it. On the host: a number for each row and head.
class RowShares {
 public:
  // past: what EntryMeans::numbers keeps of rows before these, from the weights on.
  RowShares(const EntryMeans& means, int64_t kv_heads, std::span<const float> past)
      : means_(means),
        heads_(kv_heads),
        weights_(past.begin(), past.end() - kv_heads),
        counts_(past.end() - kv_heads, past.end()) {}

  // keys: [rows, kv_heads]; queries: [rows, kv_heads * group]; the last numbers of each.
  void Add(std::span<const float> keys, std::span<const float> queries, uint8_t* joins) {
    const size_t group = queries.size() / keys.size(), heads = static_cast<size_t>(heads_);
    for (size_t i = 0; i < keys.size(); ++i) {
      double sum = 0;
      for (size_t g = 0; g < group; ++g) sum += double{queries[i * group + g]};
      const double mean = sum / static_cast<double>(group);
      weights_.push_back(static_cast<float>(Sigmoid(mean + double{means_.offset}) + kLeastWeight));
      float& count = counts_[i % heads];
      joins[i] = means_.merges && count > 0 && keys[i] > means_.offset ? 1 : 0;
      count = joins[i] != 0 ? std::min(count + 1, static_cast<float>(means_.window)) : 1.0f;
      runs_.push_back(static_cast<int64_t>(count));
      longest_ = std::max(longest_, runs_.back());
    }
  }

  // The most rows that an entry is the mean of.
  int64_t longest() const { return longest_; }
  // [longest][rows, kv_heads]: what the row `lag` rows before has of the entry at each row.
  std::vector<float> Shares() const {
    const size_t rows = runs_.size(), heads = static_cast<size_t>(heads_);
    const size_t past = weights_.size() - rows;
    std::vector<float> shares(static_cast<size_t>(longest_) * rows);
    for (size_t i = 0; i < rows; ++i) {
      const auto run = static_cast<size_t>(runs_[i]);
      double total = 0;
      for (size_t lag = 0; lag < run; ++lag) total += double{weights_[past + i - lag * heads]};
      for (size_t lag = 0; lag < run; ++lag) {
        const double share = double{weights_[past + i - lag * heads]} / total;
        shares[lag * rows + i] = static_cast<float>(share);
      }
    }
    return shares;
  }
  // What is kept of these rows for those to come, as `past`.
  std::vector<float> Kept() const {
    const auto kept = static_cast<std::ptrdiff_t>((means_.window - 1) * heads_);
    std::vector<float> numbers(weights_.end() - kept, weights_.end());
    numbers.insert(numbers.end(), counts_.begin(), counts_.end());
    return numbers;
  }

 private:
  EntryMeans means_;
  int64_t heads_;
  std::vector<float> weights_;  // [window - 1 + rows, kv_heads]
  std::vector<float> counts_;   // [kv_heads] rows of the newest entry, `window` at most
  std::vector<int64_t> runs_;   // [rows, kv_heads] rows that count in the entry at each row
  int64_t longest_ = 1;
};

}  // namespace

void ForwardPass::HideNeurons(const Tensor& q, const Tensor& keys) {
  ops_.rows->Fill(0.0f, LastNumbers(q));
  ops_.rows->Fill(0.0f, LastNumbers(keys));
}

void ForwardPass::MeanRows(int64_t layer, const Tensor& q, const Tensor& keys,
                           const Tensor& values) {
  const EntryMeans& means = *config_.means;
  const int64_t at = config_.CacheOf(layer), heads = keys.shape[1], queries = q.shape[1];
  const int64_t past = means.window - 1;
  const Tensor neurons = Take(ScratchSlot::kMeanNeurons, DType::kF32, {rows_ * (heads + queries)});
  const Tensor of_keys = neurons.Slice(0, rows_ * heads);
  const Tensor of_queries = neurons.Slice(rows_ * heads, rows_ * (heads + queries));
  ops_.rows->Convert(LastNumbers(keys), of_keys.Reshape({rows_, heads, 1}));
  ops_.rows->Convert(LastNumbers(q), of_queries.Reshape({rows_, queries, 1}));
  const std::vector<float> key_numbers = Fetch(ops_, of_keys);
  const std::vector<float> query_numbers = Fetch(ops_, of_queries);
  HideNeurons(q, keys);
  joins_.assign(static_cast<size_t>(rows_ * heads), 0);

  int64_t row = 0;
  for (const SequenceStep& step : steps_) {
    const int64_t begin = row, rows = step.end - step.begin;
    row += rows;
    step.cache->SetStatesMidway(true);
    const Tensor state = step.cache->State(at);
    const int64_t key_numbers_kept = past * heads * keys.shape[2];
    const int64_t kept_numbers = key_numbers_kept + past * heads * values.shape[2];
    const Tensor tail = state.Slice(kept_numbers, state.shape[0]);
    RowShares shares(means, heads, Fetch(ops_, tail));
    const auto some = [&](const std::vector<float>& numbers, int64_t width) {
      return std::span(numbers).subspan(static_cast<size_t>(begin * width),
                                        static_cast<size_t>(rows * width));
    };
    shares.Add(some(key_numbers, heads), some(query_numbers, queries),
               &joins_[static_cast<size_t>(begin * heads)]);
    const std::vector<float> share = shares.Shares();
    const Tensor weights = Take(ScratchSlot::kMeanShares, DType::kF32, {std::ssize(share)});
    ops_.memory->Copy(View(share, {std::ssize(share)}), weights);
    for (const bool of_key : {true, false}) {
      const Tensor own = (of_key ? keys : values).Slice(begin, begin + rows);
      const int64_t dim = own.shape[2], count = rows * heads;
      const Tensor kept =
          of_key ? state.Slice(0, key_numbers_kept) : state.Slice(key_numbers_kept, kept_numbers);
      const Tensor memory =
          Take(ScratchSlot::kMeanRows, DType::kF32, {past * heads + 2 * count, dim});
      const Tensor out = memory.Slice(past * heads + count, past * heads + 2 * count);
      const Tensor before = memory.Slice(0, past * heads).Reshape({past * heads * dim});
      if (past > 0) ops_.memory->Copy(kept, before);
      ops_.rows->Convert(
          RowsOfHeads(own),
          memory.Slice(past * heads, past * heads + count).Reshape({rows, heads * dim}));
      ops_.rows->Fill(0.0f, out);
      // The oldest row first. Rows of shorter means add exact zeros, so that means do not depend on
      // how many rows others have.
      for (int64_t lag = shares.longest() - 1; lag >= 0; --lag) {
        const int64_t first = (past - lag) * heads;
        ops_.select->AddWeighted(memory.Slice(first, first + count),
                                 weights.Slice(lag * count, (lag + 1) * count).Reshape({count, 1}),
                                 out);
      }
      ops_.rows->Convert(out.Reshape({rows, heads * dim}), RowsOfHeads(own));
      if (past > 0) {
        ops_.memory->Copy(memory.Slice(count, count + past * heads).Reshape({past * heads * dim}),
                          kept);
      }
    }
    const std::vector<float> numbers = shares.Kept();
    ops_.memory->Copy(View(numbers, {std::ssize(numbers)}), tail);
  }
}

void ForwardPass::AttendMeans(int64_t layer, const Tensor& q, const Tensor& keys,
                              const Tensor& values, Tensor out) {
  const int64_t at = config_.CacheOf(layer), kv_heads = keys.shape[1];
  const Tensor& sinks = weights_.layers[static_cast<size_t>(layer)].sinks.weight;
  int64_t row = 0;
  for (const SequenceStep& step : steps_) {
    const int64_t begin = row, end = row + step.end - step.begin;
    row = end;
    KvCache& cache = *step.cache;
    // Rows are not written yet, which only hooks that choose entries would see; methods with such
    // hooks are refused (CheckRunningEntries).
    if (step.hook != nullptr) step.hook->BeforeAttend(at, q.Slice(begin, end));
    const AttentionShape shape = {.format = cache.format(at),
                                  .query_heads = config_.query_heads,
                                  .kv_heads = kv_heads,
                                  .scale = config_.attention_scale,
                                  .softcap = config_.attention_softcap,
                                  .sinks = sinks};
    const bool hooked = step.hook != nullptr && step.hook->wants_log_sum_exp();
    Tensor log_sums;
    if (hooked) {
      log_sums = Take(ScratchSlot::kLogSumExp, DType::kF32, {config_.query_heads, end - begin});
    }
    // The heads as they grow, in pages that Append made.
    std::vector<KvSegment> segments;
    std::vector<KvHead> heads;
    for (int64_t h = 0; h < kv_heads; ++h) {
      const KvHead& head = cache.Layer(at)[static_cast<size_t>(h)];
      KVG_CHECK(head.count == 1 && head.segments[0].skip == 0, "rows join plain entries");
      segments.push_back(head.segments[0]);
      segments.back().length = cache.slot_of(at, h);
      segments.back().positions = nullptr;
    }
    for (const KvSegment& segment : segments) heads.push_back({&segment, 1});
    std::vector<std::vector<int32_t>> positions(static_cast<size_t>(kv_heads));
    const auto joins = [&](int64_t i, int64_t h) {
      return joins_[static_cast<size_t>(i * kv_heads + h)] != 0;
    };
    const auto any_joins = [&](int64_t i) {
      const auto first = joins_.begin() + i * kv_heads;
      return std::any_of(first, first + kv_heads, [](uint8_t one) { return one != 0; });
    };
    for (int64_t first = begin, last = begin; first < end; first = last) {
      for (last = first + 1; last < end && !any_joins(last);) ++last;
      std::vector<KvTarget> targets;
      for (int64_t h = 0; h < kv_heads; ++h) {
        KvSegment& segment = segments[static_cast<size_t>(h)];
        std::vector<int32_t>& placed = positions[static_cast<size_t>(h)];
        const int64_t entry = segment.length - (joins(first, h) ? 1 : 0);
        targets.push_back({segment.key_pages, segment.value_pages, entry});
        segment.length = entry + last - first;
        if (joins(first, h) && !placed.empty()) placed.pop_back();
        for (int64_t i = first; i < last; ++i) {
          placed.push_back(static_cast<int32_t>(step.begin + i - begin));
        }
      }
      ops_.attention->WriteKv(cache.format(at), keys.Slice(first, last), values.Slice(first, last),
                              targets);
      const AttentionItem item = {
          .rows = last - first, .token_position = step.begin + first - begin, .heads = heads};
      AttentionCapture capture;
      if (hooked || !sinks.empty()) {
        capture.log_sum_exp =
            Take(ScratchSlot::kMeanLogSums, DType::kF32, {config_.query_heads, item.rows});
      }
      ops_.attention->Attend(shape, {&item, 1}, q.Slice(first, last), out.Slice(first, last),
                             capture);
      if (hooked) {
        ops_.rows->Convert(capture.log_sum_exp, Columns(log_sums, first - begin, last - begin));
      }
    }
    std::vector<int64_t> lengths;
    for (const KvSegment& segment : segments) lengths.push_back(segment.length);
    cache.EndRows(at, lengths, positions);
    if (step.hook != nullptr) {
      step.hook->AfterAttend(at, q.Slice(begin, end), log_sums, out.Slice(begin, end));
    }
  }
}

}  // namespace kvgauge
