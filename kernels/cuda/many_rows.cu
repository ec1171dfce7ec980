// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/check.h"
#include "core/strings.h"
#include "cuda/elements.h"
#include "cuda/many_rows.h"
#include "cuda/reduce.h"

namespace kvgauge::cuda {
namespace {

// Larger results, and larger weights, are rare (heads of large vocabularies, all rows of which are
// wanted), and testing them takes as much memory again.
constexpr int64_t kMostOutputs = int64_t{1} << 26;
constexpr int64_t kMostWeightBytes = int64_t{1} << 29;
constexpr int64_t kWholeNumbers = 8;  // n and strides are multiples of it

KVG_DEVICE uint32_t Mixed(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// Numbers of both signs from 2^-6 to 2^6: nearly every other order of their sums has other bits.
// Row r repeats row r % period; columns outside of [begin, end) are zeros.
KVG_KERNEL(kBlockThreads)
FillNoiseKernel(DType dtype, int64_t rows, int64_t stride, int64_t period, int64_t begin,
                int64_t end, uint32_t seed, void* out) {
  const int64_t at = BlockX() * kBlockThreads + Thread();
  if (at >= rows * stride) return;
  const Place2 place = PlaceOf(at, stride);
  const auto index = static_cast<uint32_t>(place.row % period * stride + place.column);
  const uint32_t bits = Mixed(Mixed(index + 1) ^ seed);
  const uint32_t exponent = 121 + (bits >> 23) % 13;
  const float value = FloatOf((bits & 1) << 31 | exponent << 23 | (Mixed(bits) & 0x7fffffu));
  StoreAs(dtype, out, at, place.column >= begin && place.column < end ? value : 0.0f);
}

KVG_KERNEL(kBlockThreads)
CountDifferentKernel(const float* a, const float* b, int64_t count, int32_t* different) {
  const int64_t at = BlockX() * kBlockThreads + Thread();
  if (at < count && BitsOf(a[at]) != BitsOf(b[at])) AtomicAdd(different, 1);
}

// Memory of one test.
class Held {
 public:
  Held(int64_t size_bytes, Stream stream) : data_(Malloc(size_bytes, stream)) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { Free(data_); }
  void* data() const { return data_; }

 private:
  void* data_;
};

std::vector<std::pair<int64_t, int64_t>> SpansOf(DType dtype, int64_t k) {
  if (dtype == DType::kF32) return {{0, k}};
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (int64_t begin = 0; begin < k; begin += kProductSpan) {
    spans.emplace_back(begin, std::min(k, begin + kProductSpan));
  }
  return spans;
}

// How the ways to sum a span failed.
class Failures {
 public:
  void Add(int check) { ++counts_[static_cast<size_t>(check)]; }
  std::string Describe(int64_t k) const {
    // In the order of ManyRows::Failed.
    static constexpr const char* kChecks[kKinds] = {"",
                                                    "refused",
                                                    "failed for rows that all differ",
                                                    "failed for one row in every position",
                                                    "failed for rows of zeros",
                                                    "failed for sums of several spans"};
    int64_t ways = 0;
    std::vector<std::string> texts;
    for (size_t i = 1; i < kKinds; ++i) {
      ways += counts_[i];
      if (counts_[i] > 0) texts.push_back(StrCat(counts_[i], " ", kChecks[i]));
    }
    if (ways == 0) return StrCat("the library has no way to sum ", k, " products in one place");
    return StrCat("no way of the library to sum ", k, " products has their bits (of ", ways, ": ",
                  Join(texts, ", "), ")");
  }

 private:
  static constexpr size_t kKinds = 6;
  std::array<int64_t, kKinds> counts_ = {};
};

const char* AtColumn(const void* data, DType dtype, int64_t column) {
  return static_cast<const char*>(data) + column * SizeOf(dtype);
}

}  // namespace

// Inputs of a test, and room for both results. The weights are noise.
struct ManyRows::Probe {
  BlockProduct whole;
  Stream stream;
  void* x;
  const void* w;
  float *own, *other;
  int32_t* different;

  void Fill(int64_t period, int64_t begin, int64_t end) const {
    KVG_LAUNCH(
        FillNoiseKernel,
        {.grid_x = CeilDiv(whole.rows * whole.stride, kBlockThreads), .threads = kBlockThreads},
        stream, whole.dtype, whole.rows, whole.stride, period, begin, end, 0x5eedu, x);
  }
  bool SameResults() const {
    const int64_t count = whole.rows * whole.n;
    cuda::Fill(different, 0, sizeof(int32_t), stream);
    KVG_LAUNCH(CountDifferentKernel,
               {.grid_x = CeilDiv(count, kBlockThreads), .threads = kBlockThreads}, stream, own,
               other, count, different);
    int32_t found = 0;
    CopyToHost(&found, different, sizeof found, stream);
    return found == 0;
  }
};

// Each row in company of others, one row in every position, and rows of zeros. Columns that the
// block does not sum are zeros.
ManyRows::Failed ManyRows::Check(const Pinned& block, const Probe& probe) const {
  const Pinned::Span& last = block.spans.back();
  const int64_t begin = block.spans.front().begin, end = last.begin + last.product.k;
  struct Company {
    int64_t period, end;
    Failed check;
  };
  for (const Company& company : {Company{probe.whole.rows, end, Failed::kOtherRows},
                                 {1, end, Failed::kOneRow},
                                 {1, begin, Failed::kZeros}}) {
    probe.Fill(company.period, begin, company.end);
    own_(probe.whole, probe.x, probe.w, probe.own);
    if (!TryMultiply(block, probe.x, probe.w, probe.other)) return Failed::kRefused;
    if (!probe.SameResults()) return company.check;
  }
  return Failed::kNone;
}

std::optional<ManyRows::Pinned> ManyRows::Pin(const BlockProduct& whole, const Probe& probe,
                                              std::string* why) const {
  const std::vector<std::pair<int64_t, int64_t>> spans = SpansOf(whole.dtype, whole.k);
  Pinned block = {.rows = whole.rows, .spans = {}};
  // The spans of one length share a way. All are of the first one's length but the last.
  for (size_t first = 0; first < spans.size();) {
    BlockProduct part = whole;
    part.k = spans[first].second - spans[first].first;
    size_t next = first;
    while (next < spans.size() && spans[next].second - spans[next].first == part.k) ++next;
    const auto with = [&](Pinned pinned, const ProductLibrary::Way& way, size_t end) {
      for (size_t i = first; i < end; ++i) pinned.spans.push_back({spans[i].first, part, way});
      return pinned;
    };
    Failures failures;
    bool summed = false;  // by our kernels, rows that all differ
    const std::vector<ProductLibrary::Way> ways = library_.Ways(part);
    for (const ProductLibrary::Way& way : ways) {
      const Pinned alone = with({.rows = whole.rows, .spans = {}}, way, first + 1);
      if (!summed) {
        // Zeros outside of the span, so that our kernels sum it alone.
        probe.Fill(whole.rows, spans[first].first, spans[first].second);
        own_(whole, probe.x, probe.w, probe.own);
      }
      summed = true;
      Failed failed = Failed::kNone;
      if (!TryMultiply(alone, probe.x, probe.w, probe.other)) {
        failed = Failed::kRefused;
      } else if (!probe.SameResults()) {
        failed = Failed::kOtherRows;
      } else {
        summed = false;
        failed = Check(alone, probe);
      }
      if (failed == Failed::kNone && next > 1) {
        // Behind the spans before, whose ways are known.
        failed = Check(with(block, way, next), probe);
        if (failed != Failed::kNone && failed != Failed::kRefused) failed = Failed::kSpans;
      }
      if (failed == Failed::kNone) {
        block = with(std::move(block), way, next);
        break;
      }
      failures.Add(static_cast<int>(failed));
    }
    if (block.spans.size() < next) {
      *why = failures.Describe(part.k);
      return std::nullopt;
    }
    first = next;
  }
  return block;
}

void ManyRows::Prepare(DType dtype, int64_t n, int64_t stride, void* w) {
  const Shape shape = {dtype, n, stride};
  if (n == 0 || stride == 0 || n % kWholeNumbers != 0 || stride % kWholeNumbers != 0) return;
  if (n * stride * SizeOf(dtype) > kMostWeightBytes || shapes_.contains(shape)) return;
  std::vector<Pinned>& pinned = shapes_[shape];
  KVG_LAUNCH(FillNoiseKernel,
             {.grid_x = CeilDiv(n * stride, kBlockThreads), .threads = kBlockThreads}, stream_,
             dtype, n, stride, n, int64_t{0}, stride, 0xfeedu, w);
  for (const int64_t rows : library_.blocks()) {
    if (rows * n > kMostOutputs) continue;
    const BlockProduct whole = {dtype, rows, n, stride, stride};
    const Held x(rows * stride * SizeOf(dtype), stream_), own(rows * n * 4, stream_),
        other(rows * n * 4, stream_), different(sizeof(int32_t), stream_);
    std::string how, why = "the device has no room for the test";
    if (x.data() != nullptr && own.data() != nullptr && other.data() != nullptr &&
        different.data() != nullptr) {
      const Probe probe = {.whole = whole,
                           .stream = stream_,
                           .x = x.data(),
                           .w = w,
                           .own = static_cast<float*>(own.data()),
                           .other = static_cast<float*>(other.data()),
                           .different = static_cast<int32_t*>(different.data())};
      if (std::optional<Pinned> block = Pin(whole, probe, &why)) {
        const Pinned::Span &first = block->spans.front(), &last = block->spans.back();
        how = library_.Describe(first.way);
        // The last span may be shorter than those before it, which are alike.
        if (last.way != first.way) how += StrCat(", its end by ", library_.Describe(last.way));
        pinned.push_back(std::move(*block));
      }
    }
    if (how.empty()) {
      how = "our kernels: " + why;
      fault_ = why;
    }
    records_.push_back(StrCat(NameOf(dtype), " ", n, " x ", stride, ": ", rows, " rows by ", how));
  }
}

const ManyRows::Pinned* ManyRows::BlockOf(DType dtype, int64_t n, int64_t stride,
                                          int64_t rows) const {
  const auto found = shapes_.find({dtype, n, stride});
  if (found == shapes_.end() || found->second.empty()) return nullptr;
  for (const Pinned& block : found->second) {
    if (block.rows <= rows) return &block;
  }
  // Only the smallest size of block is filled up: scratch is planned for no more.
  const Pinned& last = found->second.back();
  return last.rows == library_.blocks().back() ? &last : nullptr;
}

// False: the library refused a span, and the result is undefined.
bool ManyRows::TryMultiply(const Pinned& block, const void* x, const void* w, float* out) const {
  for (const Pinned::Span& span : block.spans) {
    const DType dtype = span.product.dtype;
    ActOn(stream_);
    if (!library_.Multiply(span.product, span.way, AtColumn(x, dtype, span.begin),
                           AtColumn(w, dtype, span.begin), &span != block.spans.data(), out,
                           stream_)) {
      return false;
    }
  }
  return true;
}

void ManyRows::Multiply(const Pinned& block, const void* x, const void* w, float* out) const {
  KVG_CHECK(TryMultiply(block, x, w, out),
            StrCat(library_.name(), " refuses a product that it took before"));
}

}  // namespace kvgauge::cuda
