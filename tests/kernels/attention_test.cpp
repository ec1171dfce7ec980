// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cpu/attention_kernels.h"
#include "cpu/cpu.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Backend {
  std::string name;
  std::unique_ptr<AttentionOps> ops;
};

std::vector<Backend> CpuBackends(int threads) {
  std::vector<Backend> backends;
  for (const Isa isa : SupportedIsas()) {
    backends.push_back({std::string(NameOf(isa)), MakeCpuAttention(isa, {threads})});
  }
  return backends;
}

// The pages of one sequence's KV heads.
class Cache {
 public:
  Cache(const AttentionOps& ops, const KvFormat& format, int64_t heads, int64_t capacity)
      : format_(format) {
    const int64_t pages = (capacity + kKvPageEntries - 1) / kKvPageEntries;
    key_pages_.resize(heads);
    value_pages_.resize(heads);
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t p = 0; p < pages; ++p) {
        buffers_.push_back(HostBuffer(ops.KeyPageBytes(format)));
        key_pages_[h].push_back(buffers_.back().data());
        buffers_.push_back(HostBuffer(ops.ValuePageBytes(format)));
        value_pages_[h].push_back(buffers_.back().data());
      }
      lists_.push_back({key_pages_[h].data(), value_pages_[h].data(), 0});
    }
  }

  void Write(AttentionOps& ops, const Tensor& keys, const Tensor& values, int64_t first) {
    ops.WriteKv(format_, keys, values, first, lists_);
    for (KvList& list : lists_) list.length = std::max(list.length, first + keys.shape[0]);
  }
  void SetLength(int64_t head, int64_t length) { lists_[head].length = length; }
  std::span<const KvList> lists() const { return lists_; }

 private:
  KvFormat format_;
  std::vector<Buffer> buffers_;
  std::vector<std::vector<void*>> key_pages_, value_pages_;
  std::vector<KvList> lists_;
};

struct Case {
  DType dtype = DType::kF32;
  int64_t key_dim = 64, value_dim = 64;
  int64_t query_heads = 4, kv_heads = 2;
  int64_t rows = 70, past = 0;  // rows attend after `past` earlier entries
  float softcap = 0;
  int64_t window = 0;
  uint64_t seed = 1;

  int64_t entries() const { return past + rows; }
  AttentionShape Shape() const {
    AttentionShape shape;
    shape.format = {dtype, key_dim, value_dim};
    shape.query_heads = query_heads;
    shape.kv_heads = kv_heads;
    shape.scale = 1.0f / std::sqrt(static_cast<float>(key_dim));
    shape.softcap = softcap;
    shape.window = window;
    return shape;
  }
  std::string Name() const {
    return std::string(NameOf(dtype)) + " dims " + std::to_string(key_dim) + "/" +
           std::to_string(value_dim) + " heads " + std::to_string(query_heads) + "/" +
           std::to_string(kv_heads) + " rows " + std::to_string(rows) + " past " +
           std::to_string(past) + " softcap " + std::to_string(softcap) + " window " +
           std::to_string(window);
  }
};

// Inputs of a case.
struct Inputs {
  std::vector<float> q, k, v;

  explicit Inputs(const Case& c)
      : q(RandomValues(c.rows * c.query_heads * c.key_dim, c.seed, 0.7f)),
        k(RandomValues(c.entries() * c.kv_heads * c.key_dim, c.seed + 1, 0.7f)),
        v(RandomValues(c.entries() * c.kv_heads * c.value_dim, c.seed + 2)) {}
  Tensor Q(const Case& c) const { return View(q, {c.rows, c.query_heads, c.key_dim}); }
  Tensor K(const Case& c) const { return View(k, {c.entries(), c.kv_heads, c.key_dim}); }
  Tensor V(const Case& c) const { return View(v, {c.entries(), c.kv_heads, c.value_dim}); }
};

struct Results {
  std::vector<float> out, lse, entropy, window, columns[4];
};

Tensor Make(std::vector<float>& memory, std::initializer_list<int64_t> dims) {
  int64_t count = 1;
  for (const int64_t d : dims) count *= d;
  memory.assign(count, -7.0f);  // anything left unwritten shows
  return View(memory, dims);
}

constexpr ColumnReduction kReductions[] = {ColumnReduction::kSum, ColumnReduction::kSumSquares,
                                           ColumnReduction::kMax, ColumnReduction::kCountAbove};

Results RunAll(AttentionOps& ops, const Case& c, const Inputs& in) {
  const AttentionShape shape = c.Shape();
  Cache cache(ops, shape.format, c.kv_heads, c.entries());
  cache.Write(ops, in.K(c), in.V(c), 0);
  const AttentionItem item = {0, c.rows, c.past, cache.lists()};
  Results r;
  const Tensor lse = Make(r.lse, {c.query_heads, c.rows});
  const AttentionCapture capture = {lse, Make(r.entropy, {c.query_heads, c.rows})};
  ops.Attend(shape, {&item, 1}, in.Q(c), Make(r.out, {c.rows, c.query_heads, c.value_dim}),
             capture);

  AttentionItem last = item;
  last.rows = std::min<int64_t>(c.rows, 5);
  last.first_row = c.rows - last.rows;
  last.first_position = c.entries() - last.rows;
  ops.WindowProbabilities(shape, last, in.Q(c), lse,
                          Make(r.window, {c.query_heads, last.rows, c.entries() + 3}));
  const std::vector<float> weights = RandomValues(c.rows, c.seed + 3);
  for (int i = 0; i < 4; ++i) {
    ColumnRequest request;
    request.kind = kReductions[i];
    request.threshold = 0.01f;
    request.first_row = i == 0 ? 0 : c.rows / 3;
    request.rows = c.rows - request.first_row;
    if (i % 2 == 1) {
      request.row_weights = View(weights, {c.rows}).Slice(0, request.rows);
    }
    ops.ReduceColumns(shape, item, in.Q(c), lse, request,
                      Make(r.columns[i], {c.query_heads, c.entries() + 1}));
  }
  return r;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    Case c;
    c.dtype = dtype;
    cases.push_back(c);
    c = {.dtype = dtype, .key_dim = 192, .value_dim = 128, .query_heads = 3, .kv_heads = 1};
    cases.push_back(c);
    c = {.dtype = dtype, .key_dim = 24, .value_dim = 16, .query_heads = 7, .kv_heads = 1};
    cases.push_back(c);
    c = {.dtype = dtype, .key_dim = 33, .value_dim = 35, .query_heads = 3, .kv_heads = 3};
    c.window = 9;
    c.past = 500;
    cases.push_back(c);
    c = {.dtype = dtype, .key_dim = 80, .value_dim = 96, .query_heads = 6, .kv_heads = 2};
    c.softcap = 3.0f;
    c.rows = 3;
    c.past = 1100;
    cases.push_back(c);
    c = {.dtype = dtype, .key_dim = 256, .value_dim = 256, .query_heads = 8, .kv_heads = 1};
    c.rows = 1;
    c.past = 640;
    cases.push_back(c);
    c = {.dtype = dtype, .key_dim = 8, .value_dim = 7, .query_heads = 2, .kv_heads = 2};
    c.rows = 130;
    c.window = 100;
    c.softcap = 20.0f;
    cases.push_back(c);
    c = {.dtype = dtype, .key_dim = 16, .value_dim = 112, .query_heads = 4, .kv_heads = 4};
    c.rows = 1;
    cases.push_back(c);
  }
  return cases;
}

// Largest difference allowed in probabilities: scores err by the rounding of their dot products,
// and an error of a score is a relative error of its probability.
double ScoreBound(const Case& c, const Inputs& in) {
  double q = 0, k = 0;
  for (int64_t i = 0; i < c.rows * c.query_heads; ++i) {
    q = std::max(q, Norm(std::span(in.q).subspan(i * c.key_dim, c.key_dim)));
  }
  for (int64_t i = 0; i < c.entries() * c.kv_heads; ++i) {
    k = std::max(k, Norm(std::span(in.k).subspan(i * c.key_dim, c.key_dim)));
  }
  return 4e-7 * std::sqrt(static_cast<double>(c.key_dim)) * q * k / std::sqrt(c.key_dim) + 2e-6;
}

TEST(Attention, EveryInstructionSetMatchesTheReference) {
  const std::unique_ptr<AttentionOps> reference = MakeReferenceAttention();
  const std::vector<Backend> backends = CpuBackends(2);
  for (const Case& c : Cases()) {
    const Inputs in(c);
    const Results want = RunAll(*reference, c, in);
    float largest = 0;
    for (const float v : in.v) largest = std::max(largest, std::abs(v));
    for (const Backend& b : backends) {
      SCOPED_TRACE(b.name + ": " + c.Name());
      const Results got = RunAll(*b.ops, c, in);
      const double score = ScoreBound(c, in);
      // bf16 weights: each is off by 2^-9 of itself at most, and they sum to 1.
      const double weight = c.dtype == DType::kBF16 ? 1.0 / 512 : 0;
      EXPECT_TRUE(AllWithin(got.out, want.out, largest * (weight + 2 * score)));
      EXPECT_TRUE(AllWithin(got.lse, want.lse, 2 * score + 1e-5));
      EXPECT_TRUE(AllWithin(got.entropy, want.entropy, 50 * score));
      EXPECT_TRUE(AllWithin(got.window, want.window, 2 * score));
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(AllWithin(got.columns[i], want.columns[i], 60 * score)) << "reduction " << i;
      }
      // A probability on the threshold may fall on either side.
      int64_t differing = 0;
      for (size_t j = 0; j < want.columns[3].size(); ++j) {
        differing += std::abs(got.columns[3][j] - want.columns[3][j]) <= 1e-3 ? 0 : 1;
      }
      EXPECT_LE(differing, 1);
    }
  }
}

}  // namespace
}  // namespace kvgauge
