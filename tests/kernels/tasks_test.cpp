// SPDX-License-Identifier: Apache-2.0
// Calls from tasks: each on its own thread, with working memory of its own, to the same bits.
#include "kernels/tasks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "kernels/ops.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

// Something of every group that keeps working memory.
std::vector<float> Work(Ops& ops, const PackedMatrix& weights, int64_t seed) {
  constexpr int64_t kRows = 5, kDim = 96, kOut = 192, kEntries = 150;
  const std::vector<float> x = RandomValues(kRows * kDim, static_cast<uint64_t>(seed));
  std::vector<float> out(kRows * kOut), scores(kRows * kRows), attended(4 * 32), sums(4);
  ops.linear->MatMul(View(x, {kRows, kDim}), weights, {}, MatMulMode::kSet,
                     View(out, {kRows, kOut}));
  ops.linear->MatMulNT(View(x, {1, kRows, kDim}), View(x, {1, kRows, kDim}), 0.5f,
                       View(scores, {1, kRows, kRows}));
  std::vector<int32_t> best(kRows * 7), counts(kRows, 7);
  ops.select->TopK(View(out, {kRows, kOut}), View(counts, {kRows}), View(best, {kRows, 7}));

  const KvFormat format = {.dtype = DType::kBF16, .key_dim = 32, .value_dim = 32};
  std::vector<Buffer> memory;
  std::vector<void*> keys, values;
  for (int64_t p = 0; p * kKvPageEntries < kEntries; ++p) {
    memory.push_back(HostBuffer(ops.attention->KeyPageBytes(format)));
    keys.push_back(memory.back().data());
    memory.push_back(HostBuffer(ops.attention->ValuePageBytes(format)));
    values.push_back(memory.back().data());
  }
  const std::vector<float> kv = RandomValues(kEntries * 32, static_cast<uint64_t>(seed) + 100);
  const KvTarget target = {keys.data(), values.data(), 0};
  ops.attention->WriteKv(format, View(kv, {kEntries, 1, 32}), View(kv, {kEntries, 1, 32}),
                         {&target, 1});
  KvSegment segment;
  segment.key_pages = keys.data();
  segment.value_pages = values.data();
  segment.length = kEntries;
  const KvHead head = {&segment, 1};
  AttentionShape shape;
  shape.format = format;
  shape.query_heads = 4;
  shape.kv_heads = 1;
  const AttentionItem item = {
      .first_row = 0, .rows = 1, .token_position = kEntries - 1, .heads = {&head, 1}};
  const Tensor q = View(std::span(kv).first(4 * 32), {1, 4, 32});
  AttentionCapture capture;
  capture.log_sum_exp = View(sums, {4, 1});
  ops.attention->Attend(shape, {&item, 1}, q, View(attended, {1, 4, 32}), capture);
  std::vector<float> columns(4 * kEntries), rows(4 * kEntries);
  ColumnRequest request;
  request.rows = 1;
  ops.attention->ReduceColumns(shape, item, q, capture.log_sum_exp, request,
                               View(columns, {4, kEntries}));
  ops.attention->WindowProbabilities(shape, item, q, capture.log_sum_exp,
                                     View(rows, {4, 1, kEntries}));
  for (const int32_t i : best) out.push_back(static_cast<float>(i));
  for (const auto* more : {&scores, &attended, &sums, &columns, &rows}) {
    out.insert(out.end(), more->begin(), more->end());
  }
  return out;
}

TEST(Tasks, CallsGiveTheSameBits) {
  constexpr int64_t kTasks = 40;
  const std::vector<float> w = RandomValues(192 * 96, 7);
  const Tensor part = View(w, {192, 96});
  for (const std::string backend : {"cpu", "reference"}) {
    const auto alone = std::move(*MakeOps(backend, MakeThreadSettings(1)));
    const auto many = std::move(*MakeOps(backend, MakeThreadSettings(4)));
    const auto few_weights = alone->linear->Pack({&part, 1}, DType::kBF16);
    const auto many_weights = many->linear->Pack({&part, 1}, DType::kBF16);
    std::vector<std::vector<float>> got(kTasks);
    many->tasks->ForEach(kTasks, 1e6, [&](int64_t i) {
      got[static_cast<size_t>(i)] = Work(*many, *many_weights, i);
    });
    for (int64_t i = 0; i < kTasks; ++i) {
      EXPECT_TRUE(SameBits(got[static_cast<size_t>(i)], Work(*alone, *few_weights, i)))
          << backend << " task " << i;
    }
  }
}

// Tasks need not call alike: none waits for the call of another. Where one does, this hangs.
TEST(Tasks, ProductsAndPackingOfOneTaskWaitForNobody) {
  constexpr int64_t kTasks = 7, kIn = 96, kOut = 2048, kRows = 3;
  const std::vector<float> w = RandomValues(kOut * kIn, 7), x = RandomValues(kRows * kIn, 8);
  const Tensor part = View(w, {kOut, kIn}), rows = View(x, {kRows, kIn});
  const auto ops = std::move(*MakeOps("cpu", MakeThreadSettings(4)));
  const auto product = [&](const PackedMatrix& weights) {
    std::vector<float> out(kRows * kOut);
    ops->linear->MatMul(rows, weights, {}, MatMulMode::kSet, View(out, {kRows, kOut}));
    return out;
  };
  const auto weights = ops->linear->Pack({&part, 1}, DType::kBF16);
  const std::vector<float> want = product(*weights);
  std::vector<int> right(kTasks);
  ops->tasks->ForEach(kTasks, 1e6, [&](int64_t i) {
    for (int64_t call = 0; call < i % 3; ++call) {
      const auto own = ops->linear->Pack({&part, 1}, DType::kBF16);
      right[static_cast<size_t>(i)] += SameBits(product(*own), want) ? 1 : 0;
      right[static_cast<size_t>(i)] += SameBits(product(*weights), want) ? 1 : 0;
    }
  });
  for (int64_t i = 0; i < kTasks; ++i) EXPECT_EQ(right[static_cast<size_t>(i)], 2 * (i % 3)) << i;
}

TEST(Tasks, EachRunsOnce) {
  for (const int threads : {1, 3}) {
    const auto ops = std::move(*MakeOps("cpu", MakeThreadSettings(threads)));
    for (const double cost_ns : {0.0, 1e6}) {
      for (const int64_t count : {0, 1, 2, 17}) {
        std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
        ops->tasks->ForEach(count, cost_ns, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
        for (const std::atomic<int>& n : runs) EXPECT_EQ(n.load(), 1);
      }
    }
  }
}

}  // namespace
}  // namespace kvgauge
