// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kv_backends.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<Backend<AttentionOps>> Backends(int threads) {
  return CpuBackends(MakeCpuAttention, {threads});
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
    }
    segments_.resize(heads);
    for (int64_t h = 0; h < heads; ++h) {
      segments_[h].key_pages = key_pages_[h].data();
      segments_[h].value_pages = value_pages_[h].data();
      heads_.push_back({&segments_[h], 1});
    }
  }

  void Write(AttentionOps& ops, const Tensor& keys, const Tensor& values, int64_t first) {
    std::vector<KvTarget> targets;
    for (KvSegment& segment : segments_) {
      targets.push_back({segment.key_pages, segment.value_pages, first});
      segment.length = std::max(segment.length, first + keys.shape[0]);
    }
    ops.WriteKv(format_, keys, values, targets);
  }
  void SetLength(int64_t head, int64_t length) { segments_[head].length = length; }
  std::span<const KvHead> heads() const { return heads_; }
  const KvSegment& segment(int64_t head) const { return segments_[head]; }

 private:
  KvFormat format_;
  std::vector<Buffer> buffers_;
  std::vector<std::vector<void*>> key_pages_, value_pages_;
  std::vector<KvSegment> segments_;
  std::vector<KvHead> heads_;
};

struct Case {
  DType dtype = DType::kF32;
  int64_t key_dim = 64, value_dim = 64;
  int64_t query_heads = 4, kv_heads = 2;
  int64_t rows = 70, past = 0;  // rows attend after `past` earlier entries
  float softcap = 0;
  int64_t window = 0;
  bool chunked = false;
  bool sees_all = false;
  bool ahead = false;  // runs of rows see each other
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
    shape.chunked = chunked;
    return shape;
  }
  std::string Name() const {
    return std::string(NameOf(dtype)) + " dims " + std::to_string(key_dim) + "/" +
           std::to_string(value_dim) + " heads " + std::to_string(query_heads) + "/" +
           std::to_string(kv_heads) + " rows " + std::to_string(rows) + " past " +
           std::to_string(past) + " softcap " + std::to_string(softcap) + " window " +
           std::to_string(window) + (chunked ? " chunked" : "") + (sees_all ? " sees all" : "") +
           (ahead ? " ahead" : "");
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

// Three rows alone, then runs of 5, 10, 15 .. rows that see each other.
std::vector<int32_t> Ahead(const Case& c) {
  std::vector<int32_t> ahead;
  if (!c.ahead) return ahead;
  for (int64_t run = 0, end = 3; std::ssize(ahead) < c.rows; end += 5 * ++run) {
    for (int64_t i = std::ssize(ahead); i < std::min(end, c.rows); ++i) {
      ahead.push_back(run == 0 ? 0 : static_cast<int32_t>(std::min(end, c.rows) - 1 - i));
    }
  }
  return ahead;
}

Results RunAll(AttentionOps& ops, const Case& c, const Inputs& in) {
  const AttentionShape shape = c.Shape();
  Cache cache(ops, shape.format, c.kv_heads, c.entries());
  cache.Write(ops, in.K(c), in.V(c), 0);
  const std::vector<int32_t> ahead = Ahead(c);
  const AttentionItem item = {0,      c.rows,        c.sees_all ? kSeesAll : c.past,
                              c.past, cache.heads(), ahead};
  Results r;
  const Tensor lse = Make(r.lse, {c.query_heads, c.rows});
  const AttentionCapture capture = {lse, Make(r.entropy, {c.query_heads, c.rows})};
  ops.Attend(shape, {&item, 1}, in.Q(c), Make(r.out, {c.rows, c.query_heads, c.value_dim}),
             capture);

  AttentionItem last = item;
  last.rows = std::min<int64_t>(c.rows, 5);
  last.first_row = c.rows - last.rows;
  if (c.ahead) last.ahead = std::span(ahead).last(static_cast<size_t>(last.rows));
  if (!c.sees_all) last.first_position = c.entries() - last.rows;
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
    c = {.dtype = dtype, .key_dim = 72, .value_dim = 72, .query_heads = 2, .kv_heads = 2};
    c.rows = 150;
    c.past = 430;  // all entries cross the end of the first span
    c.sees_all = true;
    cases.push_back(c);
    c = {.dtype = dtype, .key_dim = 64, .value_dim = 48, .query_heads = 4, .kv_heads = 2};
    c.rows = 170;
    c.past = 401;
    c.ahead = true;
    cases.push_back(c);
    c.window = 40;  // shorter than the longest runs
    c.rows = 133;
    c.past = 7;
    cases.push_back(c);
    c = {.dtype = dtype, .key_dim = 24, .value_dim = 40, .query_heads = 6, .kv_heads = 2};
    c.rows = 145;
    c.past = 490;  // rows on both sides of the end of the first span
    c.window = 70;
    c.chunked = true;
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
  const std::vector<Backend<AttentionOps>> backends = Backends(2);
  for (const Case& c : Some(Cases(), 3)) {
    const Inputs in(c);
    const Results want = RunAll(*reference, c, in);
    float largest = 0;
    for (const float v : in.v) largest = std::max(largest, std::abs(v));
    for (const Backend<AttentionOps>& b : backends) {
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

// Attends the rows of a case in chunks; `batched` puts the chunks of one call into one batch, each
// as its own item, instead of one call per chunk.
std::vector<float> AttendInChunks(AttentionOps& ops, const Case& c, const Inputs& in, int64_t chunk,
                                  bool batched, std::vector<float>& lse,
                                  std::vector<float>& entropy) {
  const AttentionShape shape = c.Shape();
  Cache cache(ops, shape.format, c.kv_heads, c.entries());
  std::vector<float> out;
  const Tensor result = Make(out, {c.rows, c.query_heads, c.value_dim});
  const AttentionCapture capture = {Make(lse, {c.query_heads, c.rows}),
                                    Make(entropy, {c.query_heads, c.rows})};
  cache.Write(ops, in.K(c).Slice(0, c.past), in.V(c).Slice(0, c.past), 0);
  std::vector<AttentionItem> items;
  for (int64_t row = 0; row < c.rows; row += chunk) {
    const int64_t end = std::min(c.rows, row + chunk);
    cache.Write(ops, in.K(c).Slice(c.past + row, c.past + end),
                in.V(c).Slice(c.past + row, c.past + end), c.past + row);
    items.push_back({row, end - row, c.past + row, c.past + row, cache.heads()});
    if (!batched) ops.Attend(shape, {&items.back(), 1}, in.Q(c), result, capture);
  }
  if (batched) ops.Attend(shape, items, in.Q(c), result, capture);
  return out;
}

std::vector<Case> IndependenceCases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t group : {1, 3, 4, 7}) {
      Case c;
      c.dtype = dtype;
      c.key_dim = group == 3 ? 64 : 33;
      c.value_dim = group == 4 ? 80 : 24;
      c.query_heads = group;
      c.kv_heads = 1;
      c.rows = 45;
      c.past = 490;  // rows cross the end of the first span
      c.window = group == 4 ? 60 : group == 7 ? 300 : 0;
      c.softcap = group == 7 ? 5.0f : 0.0f;
      cases.push_back(c);
    }
  }
  return cases;
}

// A row gets the same bits in a whole prefill, in chunks, in a batch, and on any number of threads.
TEST(Attention, RowsDoNotDependOnTheirCompany) {
  for (const KvBackend& backend : KvBackends()) {
    for (const Case& c : Some(IndependenceCases(), 5)) {
      SCOPED_TRACE(backend.name + ": " + c.Name());
      const Inputs in(c);
      std::vector<float> lse, entropy;
      const std::vector<float> whole =
          AttendInChunks(*backend.Attention(1), c, in, c.rows, false, lse, entropy);
      struct Way {
        int threads;
        int64_t chunk;
        bool batched;
      };
      for (const auto& [threads, chunk, batched] :
           {Way{1, 1, false}, Way{1, 2, true}, Way{2, 3, false}, Way{2, 1, true}, Way{2, 17, false},
            Way{2, 64, true}, Way{4, 32, false}}) {
        const std::unique_ptr<AttentionOps> ops = backend.Attention(threads);
        std::vector<float> chunk_lse, chunk_entropy;
        EXPECT_TRUE(
            SameBits(AttendInChunks(*ops, c, in, chunk, batched, chunk_lse, chunk_entropy), whole))
            << chunk << " rows a chunk, " << threads << " threads, batched " << batched;
        EXPECT_TRUE(SameBits(chunk_lse, lse));
        EXPECT_TRUE(SameBits(chunk_entropy, entropy));
      }
    }
  }
}

// Captures do not depend on threads, and the column pass sees exactly the probabilities that the
// window pass reports.
TEST(Attention, CapturesAgreeBitForBit) {
  for (const KvBackend& backend : KvBackends()) {
    for (const Case& c : Some(IndependenceCases(), 5)) {
      SCOPED_TRACE(backend.name + ": " + c.Name());
      const Inputs in(c);
      const Results one = RunAll(*backend.Attention(1), c, in);
      const Results four = RunAll(*backend.Attention(4), c, in);
      EXPECT_TRUE(SameBits(four.window, one.window));
      for (int i = 0; i < 4; ++i) EXPECT_TRUE(SameBits(four.columns[i], one.columns[i]));

      const std::unique_ptr<AttentionOps> ops = backend.Attention(2);
      const AttentionShape shape = c.Shape();
      Cache cache(*ops, shape.format, c.kv_heads, c.entries());
      cache.Write(*ops, in.K(c), in.V(c), 0);
      const AttentionItem item = {0, c.rows, c.past, c.past, cache.heads()};
      const Tensor lse = View(one.lse, {c.query_heads, c.rows});
      std::vector<float> probabilities, sums;
      ops->WindowProbabilities(shape, item, in.Q(c), lse,
                               Make(probabilities, {c.query_heads, c.rows, c.entries()}));
      ColumnRequest request;
      request.rows = c.rows;
      ops->ReduceColumns(shape, item, in.Q(c), lse, request,
                         Make(sums, {c.query_heads, c.entries()}));
      std::vector<float> want(sums.size());
      for (int64_t h = 0; h < c.query_heads; ++h) {
        for (int64_t i = 0; i < c.rows; ++i) {
          for (int64_t j = 0; j < c.entries(); ++j) {
            want[h * c.entries() + j] += probabilities[(h * c.rows + i) * c.entries() + j];
          }
        }
      }
      EXPECT_TRUE(SameBits(sums, want));
      // Every row's probabilities sum to 1.
      double total = 0;
      for (const float s : sums) total += s;
      EXPECT_NEAR(total, static_cast<double>(c.query_heads * c.rows), 1e-4 * c.rows);
      for (const float value : one.lse) ASSERT_TRUE(std::isfinite(value));
    }
  }
}

TEST(Attention, ReadingBackIsRounding) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t key_dim : {8, 33, 130}) {
      Case c;
      c.dtype = dtype;
      c.key_dim = key_dim;
      c.value_dim = key_dim + 2;
      c.kv_heads = 3;
      c.rows = 150;
      Inputs in(c);
      in.k[5] = 1e-41f;  // denormal in every type but bf16's range
      in.k[6] = 65520.0f;
      in.v[7] = -3e-6f;
      std::vector<Backend<AttentionOps>> backends = Backends(2);
      backends.push_back({"reference", MakeReferenceAttention()});
      for (const Backend<AttentionOps>& b : backends) {
        SCOPED_TRACE(b.name + ": " + c.Name());
        const KvFormat format = c.Shape().format;
        // Heads outermost in memory: writes take strides.
        Tensor keys = in.K(c), values = in.V(c);
        keys.stride = {c.key_dim, c.rows * c.key_dim, 1, 0};
        values.stride = {c.value_dim, c.rows * c.value_dim, 1, 0};
        Cache cache(*b.ops, format, c.kv_heads, c.rows);
        int64_t from = 0;
        for (const int64_t to : {1, 2, 64, 67, 150}) {
          cache.Write(*b.ops, keys.Slice(from, to), values.Slice(from, to), from);
          from = to;
        }
        const auto round = [&](float x) {
          return dtype == DType::kF16    ? F16ToF32(F32ToF16(x))
                 : dtype == DType::kBF16 ? Bf16ToF32(F32ToBf16(x))
                                         : x;
        };
        for (int64_t h = 0; h < c.kv_heads; ++h) {
          for (const int64_t first : {0, 63}) {
            const int64_t n = c.rows - first;
            std::vector<float> k, v, want_k, want_v;
            const Tensor none;
            b.ops->ReadKv(format, cache.segment(h), first, Make(k, {n, c.key_dim}), none);
            b.ops->ReadKv(format, cache.segment(h), first, none, Make(v, {n, c.value_dim}));
            for (int64_t i = (h * c.rows + first) * c.key_dim; i < (h + 1) * c.rows * c.key_dim;
                 ++i) {
              want_k.push_back(round(in.k[i]));
            }
            for (int64_t i = (h * c.rows + first) * c.value_dim; i < (h + 1) * c.rows * c.value_dim;
                 ++i) {
              want_v.push_back(round(in.v[i]));
            }
            EXPECT_TRUE(SameBits(k, want_k));
            EXPECT_TRUE(SameBits(v, want_v));
          }
        }
      }
    }
  }
}

TEST(Attention, PageBytesAreExact) {
  for (const Backend<AttentionOps>& b : Backends(1)) {
    EXPECT_EQ(b.ops->KeyPageBytes({DType::kBF16, 64, 64}), 64 * 64 * 2);
    EXPECT_EQ(b.ops->ValuePageBytes({DType::kBF16, 64, 64}), 64 * 64 * 2);
    EXPECT_EQ(b.ops->KeyPageBytes({DType::kBF16, 33, 24}), 64 * 34 * 2);
    EXPECT_EQ(b.ops->ValuePageBytes({DType::kF16, 33, 24}), 64 * 32 * 2);
    EXPECT_EQ(b.ops->KeyPageBytes({DType::kF32, 33, 16}), 64 * 33 * 4);
    EXPECT_EQ(b.ops->ValuePageBytes({DType::kF32, 33, 16}), 64 * 16 * 4);
  }
}

// Heads of different lengths, one of them empty, one with fewer entries than there are rows.
TEST(Attention, EndAlignedHeadsAreRagged) {
  Case c;
  c.query_heads = 6;
  c.kv_heads = 3;
  c.rows = 4;
  c.past = 96;
  const Inputs in(c);
  const AttentionShape shape = c.Shape();
  const int64_t lengths[] = {100, 2, 0};
  std::vector<Backend<AttentionOps>> backends = Backends(2);
  backends.push_back({"reference", MakeReferenceAttention()});
  for (const Backend<AttentionOps>& b : backends) {
    SCOPED_TRACE(b.name);
    Cache cache(*b.ops, shape.format, c.kv_heads, c.entries());
    cache.Write(*b.ops, in.K(c), in.V(c), 0);
    std::vector<float> out, lse, entropy, columns, window;
    for (int h = 0; h < 3; ++h) cache.SetLength(h, lengths[h]);
    const AttentionItem item = {0, c.rows, kEndAligned, 0, cache.heads()};
    const AttentionCapture capture = {Make(lse, {6, 4}), Make(entropy, {6, 4})};
    const Tensor result = Make(out, {4, 6, 64});
    b.ops->Attend(shape, {&item, 1}, in.Q(c), result, capture);
    ColumnRequest request;
    request.rows = c.rows;
    b.ops->ReduceColumns(shape, item, in.Q(c), capture.log_sum_exp, request,
                         Make(columns, {6, 100}));
    b.ops->WindowProbabilities(shape, item, in.Q(c), capture.log_sum_exp,
                               Make(window, {6, 4, 100}));
    for (int64_t h = 0; h < 6; ++h) {
      double total = 0, window_total = 0;
      for (int64_t j = 0; j < 100; ++j) total += columns[h * 100 + j];
      for (int64_t j = 0; j < 400; ++j) window_total += window[h * 400 + j];
      const int64_t seeing = std::min<int64_t>(c.rows, lengths[h / 2]);
      EXPECT_NEAR(total, static_cast<double>(seeing), 1e-5);
      EXPECT_NEAR(window_total, static_cast<double>(seeing), 1e-5);
      for (int64_t i = 0; i < c.rows; ++i) {
        const bool sees = c.rows - i <= lengths[h / 2];
        EXPECT_EQ(std::isfinite(lse[h * 4 + i]), sees);
        if (sees) continue;
        EXPECT_EQ(lse[h * 4 + i], -kInfinity);
        EXPECT_EQ(entropy[h * 4 + i], 0.0f);
        const float* row = result[i][h].f32();
        EXPECT_TRUE(SameBits({row, 64}, std::vector<float>(64, 0.0f)));
      }
      // The last row of the two-entry head sees both, the one before it only the first.
      if (h / 2 == 1) {
        EXPECT_EQ(entropy[h * 4 + 2], 0.0f);
        EXPECT_TRUE(AllWithin({result[2][h].f32(), 64}, {in.V(c)[0][1].f32(), 64}, 1e-5));
      }
    }
  }
}

// Rows of an encoder: each gets what it gets alone as the last of all entries.
TEST(Attention, RowsThatSeeAllGetWhatTheLastRowGets) {
  for (const KvBackend& backend : KvBackends()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t rows : {1, 19}) {
        Case c = {.dtype = dtype, .key_dim = 24, .value_dim = 40, .query_heads = 2, .kv_heads = 2};
        c.rows = rows;
        c.past = 60;  // all entries are more than a page
        SCOPED_TRACE(backend.name + ": " + c.Name());
        const Inputs in(c);
        const std::unique_ptr<AttentionOps> ops = backend.Attention(2);
        Cache cache(*ops, c.Shape().format, c.kv_heads, c.entries());
        cache.Write(*ops, in.K(c), in.V(c), 0);
        std::vector<float> all, alone;
        const Tensor together = Make(all, {c.rows, c.query_heads, c.value_dim});
        const Tensor single = Make(alone, {c.rows, c.query_heads, c.value_dim});
        const AttentionItem item = {0, c.rows, kSeesAll, 0, cache.heads()};
        ops->Attend(c.Shape(), {&item, 1}, in.Q(c), together);
        for (int64_t row = 0; row < c.rows; ++row) {
          const AttentionItem one = {row, 1, kEndAligned, 0, cache.heads()};
          ops->Attend(c.Shape(), {&one, 1}, in.Q(c), single);
        }
        EXPECT_EQ(all, alone);
      }
    }
  }
}

// A run of rows that see each other has the bits of its rows over all entries up to its end.
TEST(Attention, RowsThatSeeAheadSeeTheirRun) {
  for (const KvBackend& backend : KvBackends()) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      Case c = {.dtype = dtype, .key_dim = 24, .value_dim = 40, .query_heads = 4, .kv_heads = 2};
      c.rows = 90;
      c.past = 470;
      c.ahead = true;
      SCOPED_TRACE(backend.name + ": " + c.Name());
      const Inputs in(c);
      const std::unique_ptr<AttentionOps> ops = backend.Attention(2);
      Cache cache(*ops, c.Shape().format, c.kv_heads, c.entries());
      cache.Write(*ops, in.K(c), in.V(c), 0);
      std::vector<float> all, alone;
      const Tensor together = Make(all, {c.rows, c.query_heads, c.value_dim});
      const Tensor single = Make(alone, {c.rows, c.query_heads, c.value_dim});
      const std::vector<int32_t> ahead = Ahead(c);
      const AttentionItem item = {0, c.rows, kEndAligned, 0, cache.heads(), ahead};
      ops->Attend(c.Shape(), {&item, 1}, in.Q(c), together);
      for (int64_t row = 0; row < c.rows; ++row) {
        const int64_t last = c.past + row + ahead[static_cast<size_t>(row)];
        const AttentionItem one = {row, 1, last, 0, cache.heads()};
        ops->Attend(c.Shape(), {&one, 1}, in.Q(c), single);
      }
      EXPECT_EQ(all, alone);
    }
  }
}

TEST(Attention, NothingToDo) {
  std::vector<Backend<AttentionOps>> backends = Backends(2);
  backends.push_back({"reference", MakeReferenceAttention()});
  for (const Backend<AttentionOps>& b : backends) {
    const Case c;
    const AttentionShape shape = c.Shape();
    float unused = 0;
    const Tensor none(&unused, DType::kF32, {0, c.query_heads, 64});
    b.ops->Attend(shape, {}, none, none);
    const KvSegment empty;
    const std::vector<KvHead> heads = {{&empty, 1}, {nullptr, 0}};
    const AttentionItem item = {0, 0, 0, 0, heads};
    b.ops->Attend(shape, {&item, 1}, none, none);
    b.ops->WriteKv(shape.format, Tensor(&unused, DType::kF32, {0, 2, 64}),
                   Tensor(&unused, DType::kF32, {0, 2, 64}), std::vector<KvTarget>(2));
  }
}

// What a row does not see may hold anything finite: the output keeps its bits.
TEST(Attention, UnseenEntriesDoNotMatter) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    Case c;
    c.dtype = dtype;
    c.rows = 80;
    Inputs in(c);
    for (const Backend<AttentionOps>& b : Backends(1)) {
      SCOPED_TRACE(b.name + ": " + c.Name());
      const Results before = RunAll(*b.ops, c, in);
      const Inputs saved = in;
      for (size_t i = in.k.size() - 64 * 2 * 10; i < in.k.size(); ++i) in.k[i] = 3e4f;
      for (size_t i = in.v.size() - 64 * 2 * 10; i < in.v.size(); ++i) in.v[i] = -6e4f;
      const Results after = RunAll(*b.ops, c, in);
      const size_t untouched = 70 * 4 * 64;
      EXPECT_TRUE(SameBits({after.out.data(), untouched}, {before.out.data(), untouched}));
      in = saved;
    }
  }
}

TEST(Attention, NanReachesTheOutput) {
  Case c;
  c.rows = 2;
  Inputs in(c);
  in.q[3] = std::numeric_limits<float>::quiet_NaN();  // row 0, head 0
  for (const Backend<AttentionOps>& b : Backends(1)) {
    const Results r = RunAll(*b.ops, c, in);
    for (int k = 0; k < 64; ++k) EXPECT_TRUE(std::isnan(r.out[k])) << b.name;
    for (int k = 64; k < 2 * 64; ++k) EXPECT_TRUE(std::isfinite(r.out[k])) << b.name;
  }
}

}  // namespace
}  // namespace kvgauge
