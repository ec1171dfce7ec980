// SPDX-License-Identifier: Apache-2.0
#include "kernels/select.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "cpu/cpu.h"
#include "cpu/rows/select_kernels.h"
#include "cpu/split_work.h"

namespace kvgauge {
namespace {

const SelectKernels& KernelsOf([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return Avx512SelectKernels();
  if (isa >= Isa::kAvx2) return Avx2SelectKernels();
#endif
  return PortableSelectKernels();
}

constexpr double kMove_ns = 0.1;
constexpr double kSelect_ns = 2;

struct Threshold {
  uint32_t key = 0;
  int64_t ties = 0;  // how many of the keys equal to it belong to the largest k
};

// The k-th largest key by radix: counts by the leading digit, then by the next one among those that
// share the digit of the k-th, and so on. 1 <= k <= n. `left` is scratch for n keys.
Threshold FindThreshold(const uint32_t* keys, int64_t n, int64_t k, uint32_t* left) {
  struct Digit {
    int shift, bits;
  };
  constexpr Digit kDigits[] = {{21, 11}, {10, 11}, {0, 10}};
  const uint32_t* from = keys;
  Threshold found;
  for (const auto [shift, bits] : kDigits) {
    const uint32_t mask = (1u << bits) - 1;
    // Two tables: neighbouring keys often share a digit, and a count that was just stored is slow
    // to read back.
    uint32_t count[2][2048] = {};
    int64_t i = 0;
    for (; i + 2 <= n; i += 2) {
      ++count[0][from[i] >> shift & mask];
      ++count[1][from[i + 1] >> shift & mask];
    }
    if (i < n) ++count[0][from[i] >> shift & mask];
    uint32_t digit = mask;
    for (;; --digit) {
      const int64_t here = int64_t{count[0][digit]} + count[1][digit];
      if (k <= here) break;
      k -= here;
    }
    found.key |= digit << shift;
    int64_t kept = 0;
    for (i = 0; i < n; ++i) {
      const uint32_t key = from[i];
      left[kept] = key;  // reads stay ahead of writes when `from` is `left`
      kept += (key >> shift & mask) == digit;
    }
    from = left;
    n = kept;
  }
  found.ties = k;
  return found;
}

// What has this key; NaN has the least.
float ValueOf(uint32_t key) {
  return std::bit_cast<float>(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

// The largest key; among equals the first one.
int64_t FirstLargest(const uint32_t* keys, int64_t n) {
  uint32_t most = keys[0];
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; ++i) most = std::max(most, keys[i]);
  return std::find(keys, keys + n, most) - keys;
}

// The smallest key; among equals the last one.
int64_t LastSmallest(const uint32_t* keys, int64_t n) {
  uint32_t least = keys[0];
#pragma omp simd reduction(min : least)
  for (int64_t i = 0; i < n; ++i) least = std::min(least, keys[i]);
  int64_t at = n - 1;
  while (keys[at] != least) --at;
  return at;
}

class CpuSelect final : public SelectOps {
 public:
  CpuSelect(Isa isa, ThreadSettings threads)
      : k_(KernelsOf(isa)), threads_(threads), scratch_(static_cast<size_t>(threads.threads)) {}

 private:
  void DoTopK(const Tensor& scores, const Tensor& counts, Tensor out) override {
    const int64_t n = scores.shape[1], width = out.shape[1];
    for (int64_t i = 0; i < scores.shape[0]; ++i) {
      const int64_t count = counts.i32()[i];
      KVG_CHECK(count >= 0 && count <= n && count <= width, "TopK: count out of range");
    }
    const double cost = kSelect_ns * static_cast<double>(n);
    SplitWorkByWorker(threads_, scores.shape[0], cost, [&](int64_t i, int worker) {
      const int64_t count = counts.i32()[i];
      int32_t* to = out.i32() + i * out.stride[0];
      std::fill(to + count, to + width, -1);
      if (count == 0) return;
      if (count == n) return std::iota(to, to + n, 0);
      uint32_t* keys = Scratch<uint32_t>(worker, 2 * n);
      k_.order_keys(scores.f32() + i * scores.stride[0], n, keys);
      if (count == 1) {  // as of what one eviction leaves over
        *to = static_cast<int32_t>(FirstLargest(keys, n));
        return;
      }
      if (count == n - 1) {  // as when every step evicts what it adds
        const int64_t gone = LastSmallest(keys, n);
        std::iota(to, to + gone, 0);
        std::iota(to + gone, to + n - 1, static_cast<int32_t>(gone) + 1);
        return;
      }
      const Threshold threshold = FindThreshold(keys, n, count, keys + n);
      k_.take(keys, n, threshold.key, threshold.ties, to);
    });
  }

  void DoGather(const Tensor& source, const Tensor& index, Tensor out) override {
    const int64_t size = SizeOf(out.dtype), row_bytes = out.shape[1] * size;
    if (source.IsContiguous() && out.IsContiguous() && row_bytes % 4 == 0) {
      // Short rows: whatever is done for each counts.
      const auto* from = source.As<char>();
      auto* to = out.As<char>();
      return Move(index, -1, source.shape[0], out, [=](int64_t i, int64_t at) {
        if (at < 0) {
          std::memset(to + i * row_bytes, 0, static_cast<size_t>(row_bytes));
        } else if (row_bytes == 4) {
          std::memcpy(to + 4 * i, from + 4 * at, 4);
        } else {
          std::memcpy(to + i * row_bytes, from + at * row_bytes, static_cast<size_t>(row_bytes));
        }
      });
    }
    Move(index, -1, source.shape[0], out, [&](int64_t i, int64_t at) {
      if (at < 0) {
        std::memset(out[i].data, 0, static_cast<size_t>(out.shape[1] * SizeOf(out.dtype)));
      } else {
        CopyRow(source, at, out, i);
      }
    });
  }

  void DoScatter(const Tensor& source, const Tensor& index, Tensor out) override {
    if (source.IsContiguous() && out.IsContiguous() && source.shape[1] * SizeOf(out.dtype) == 4) {
      const auto* from = source.As<char>();
      auto* to = out.As<char>();
      return Move(index, 0, out.shape[0], source,
                  [=](int64_t i, int64_t at) { std::memcpy(to + 4 * at, from + 4 * i, 4); });
    }
    Move(index, 0, out.shape[0], source,
         [&](int64_t i, int64_t at) { CopyRow(source, i, out, at); });
  }

  void DoScatterAdd(const Tensor& source, const Tensor& index, const Tensor& weight,
                    Tensor out) override {
    const int64_t m = source.shape[0], d = source.shape[1];
    for (int64_t i = 0; i < m; ++i) {
      KVG_CHECK(index.i32()[i] >= -1 && index.i32()[i] < out.shape[0], "row index out of range");
    }
    // Several rows may go to one place, in order; so threads share out columns.
    const int64_t share = (d + threads_.threads - 1) / threads_.threads;
    const int64_t columns = std::max<int64_t>(64, (share + 15) / 16 * 16);
    const double cost = kMove_ns * static_cast<double>(m * columns);
    SplitWork(threads_, (d + columns - 1) / columns, cost, [&](int64_t piece) {
      const int64_t begin = piece * columns, size = std::min(columns, d - begin);
      for (int64_t i = 0; i < m; ++i) {
        const int64_t at = index.i32()[i];
        if (at < 0) continue;
        const float w = weight.empty() ? 1.0f : weight.f32()[i];
        k_.add_scaled(source.f32() + i * source.stride[0] + begin, w, size,
                      out.f32() + at * out.stride[0] + begin);
      }
    });
  }

  void DoPool(const Tensor& x, int64_t kernel, Pooling mode, Tensor out) override {
    const int64_t n = x.shape[1], reach = kernel / 2;
    const float padding =
        mode == Pooling::kAverage ? 0.0f : -std::numeric_limits<float>::infinity();
    const double cost = kMove_ns * static_cast<double>(n * kernel);
    SplitWorkByWorker(threads_, x.shape[0], cost, [&](int64_t i, int worker) {
      float* padded = Scratch<float>(worker, n + 2 * reach);
      std::fill_n(padded, reach, padding);
      std::copy_n(x.f32() + i * x.stride[0], n, padded + reach);
      std::fill_n(padded + reach + n, reach, padding);
      k_.pool(padded, n, kernel, mode, out.f32() + i * out.stride[0]);
    });
  }

  void DoFollowing(const Tensor& sorted, const Tensor& value, Tensor out) override {
    const int32_t* begin = sorted.i32();
    const int32_t* end = begin + sorted.shape[0];
    SplitWork(threads_, out.shape[1], 20 + static_cast<double>(out.shape[0]), [&](int64_t i) {
      const int32_t* next = std::upper_bound(begin, end, value.i32()[i]);
      for (int64_t j = 0; j < out.shape[0]; ++j) {
        out.i32()[j * out.stride[0] + i] = next < end ? *next++ : -1;
      }
    });
  }

  void DoMarkRuns(const Tensor& index, int64_t run, int64_t n, Tensor words) override {
    for (int64_t i = 0; i < index.shape[0]; ++i) {
      for (int64_t k = 0; k < index.shape[1]; ++k) {
        const int64_t at = index[i].i32()[k];
        KVG_CHECK(at >= -1 && at * run < n, "MarkRuns: index out of range");
      }
    }
    SplitWork(threads_, index.shape[0], static_cast<double>(index.shape[1] * 4), [&](int64_t i) {
      auto* row = words[i].As<uint64_t>();
      const int32_t* at = index[i].i32();
      for (int64_t k = 0; k < index.shape[1]; ++k) {
        if (at[k] < 0) continue;
        const int64_t end = std::min(n, (at[k] + 1) * run);
        for (int64_t bit = at[k] * run; bit < end;) {
          const int64_t count = std::min(end - bit, 64 - bit % 64);
          row[bit / 64] |= (~uint64_t{0} >> (64 - count)) << bit % 64;
          bit += count;
        }
      }
    });
  }

  void DoChooseExperts(const Tensor& logits, const ExpertRule& rule, const Tensor& correction,
                       Tensor index, Tensor weight) override {
    const double cost = 20 * static_cast<double>(logits.shape[1]);
    SplitWork(threads_, logits.shape[0], cost, [&](int64_t i) {
      if (rule.in_turn) {
        ChooseInTurn(logits[i], rule.tolerance, index[i], weight[i]);
      } else {
        ChooseOfRow(logits[i], rule, correction, index[i], weight[i]);
      }
    });
  }
  static void ChooseInTurn(const Tensor& logits, double tolerance, const Tensor& index,
                           const Tensor& weight) {
    constexpr double kOut = -std::numeric_limits<double>::infinity();
    const int64_t experts = logits.shape[0], k = index.shape[0];
    std::vector<double> left(static_cast<size_t>(experts));
    for (int64_t e = 0; e < experts; ++e) {
      const auto logit = static_cast<double>(logits.f32()[e]);
      left[static_cast<size_t>(e)] = std::isnan(logit) ? kOut : logit;
    }
    std::vector<bool> taken(left.size());
    for (int64_t round = 0; round < k; ++round) {
      size_t best = left.size();
      for (size_t e = 0; e < left.size(); ++e) {
        if (!taken[e] && (best == left.size() || left[e] > left[best])) best = e;
      }
      const double most = left[best];
      double total = 0;
      for (size_t e = 0; e < left.size(); ++e) {
        const double behind = (most - left[e]) / std::max(std::abs(left[e]), most);
        if (!taken[e] && !(behind > tolerance)) total += std::exp(left[e] - most);
      }
      taken[best] = true;
      // In ascending order of expert.
      int64_t place = round;
      for (; place > 0 && index.i32()[place - 1] > static_cast<int32_t>(best); --place) {
        index.i32()[place] = index.i32()[place - 1];
        weight.f32()[place] = weight.f32()[place - 1];
      }
      index.i32()[place] = static_cast<int32_t>(best);
      weight.f32()[place] = static_cast<float>(1 / total);
    }
  }
  static void ChooseOfRow(const Tensor& logits, const ExpertRule& rule, const Tensor& correction,
                          const Tensor& index, const Tensor& weight) {
    const auto experts = static_cast<size_t>(logits.shape[0]);
    const float* row = logits.f32();
    std::vector<double> eligible(experts), sigmoids;
    if (rule.sigmoid) {
      sigmoids.resize(experts);
      for (size_t e = 0; e < experts; ++e) {
        sigmoids[e] = 1 / (1 + std::exp(-static_cast<double>(row[e])));
        // NaN counts as nothing.
        const double rank = sigmoids[e] + static_cast<double>(correction.f32()[e]);
        eligible[e] = std::isnan(rank) ? 0 : rank;
      }
    } else {
      const double most = *std::max_element(row, row + experts);
      double total = 0;
      for (size_t e = 0; e < experts; ++e) total += eligible[e] = std::exp(row[e] - most);
      for (double& share : eligible) share /= total;
    }
    if (rule.groups > 1) {
      // Groups are ranked by their best experts; experts of the others count as 0.
      const size_t size = experts / static_cast<size_t>(rule.groups);
      std::vector<size_t> order(static_cast<size_t>(rule.groups));
      std::vector<double> best(order.size());
      for (size_t g = 0; g < order.size(); ++g) {
        order[g] = g;
        const double* group = &eligible[g * size];
        const double* top = std::max_element(group, group + size);
        best[g] = *top;
        if (!rule.sigmoid || size == 1) continue;
        double second = -std::numeric_limits<double>::infinity();
        for (size_t e = 0; e < size; ++e) {
          if (group + e != top) second = std::max(second, group[e]);
        }
        best[g] += second;
      }
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return best[a] > best[b]; });
      for (size_t g = static_cast<size_t>(rule.top_groups); g < order.size(); ++g) {
        std::fill_n(&eligible[order[g] * size], size, 0.0);
      }
    }
    const auto k = static_cast<size_t>(index.shape[0]);
    std::vector<int32_t> order(experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return eligible[a] > eligible[b]; });
    order.resize(k);
    std::sort(order.begin(), order.end());
    const std::vector<double>& shares = rule.sigmoid ? sigmoids : eligible;
    double chosen = 0;
    for (const int32_t e : order) chosen += shares[e];
    double factor = rule.renormalize && k > 1 ? 1.0 / (chosen + 1e-20) : rule.scaling;
    if (rule.sigmoid && rule.renormalize && k > 1) factor *= rule.scaling;
    for (size_t j = 0; j < k; ++j) {
      index.i32()[j] = order[j];
      weight.f32()[j] = static_cast<float>(shares[order[j]] * factor);
    }
  }

  void DoAddWeighted(const Tensor& source, const Tensor& weight, Tensor out) override {
    const int64_t k = weight.shape[1], d = out.shape[1];
    SplitWork(threads_, out.shape[0], kMove_ns * static_cast<double>(k * d), [&](int64_t i) {
      for (int64_t j = 0; j < k; ++j) {
        k_.add_scaled(source[i * k + j].f32(), weight[i].f32()[j], d, out[i].f32());
      }
    });
  }

  void DoCountBits(const Tensor& words, const Tensor& base, Tensor out) override {
    for (int64_t i = 0; i < words.shape[0]; ++i) {
      int64_t count = base.As<int64_t>()[i];
      const auto* row = words[i].As<uint64_t>();
      for (int64_t w = 0; w < words.shape[1]; ++w) count += std::popcount(row[w]);
      out.As<int64_t>()[i] = count;
    }
  }

  void DoCountAnyBits(const Tensor& words, const Tensor& range, const Tensor& base,
                      Tensor out) override {
    const int64_t rows = words.shape[0] / range.shape[0];
    for (int64_t g = 0; g < range.shape[0]; ++g) {
      const int64_t first = range[g].As<int32_t>()[0], last = range[g].As<int32_t>()[1];
      int64_t count = base.As<int64_t>()[g];
      for (int64_t w = first / 64; 64 * w < last; ++w) {
        uint64_t any = 0;
        for (int64_t i = 0; i < rows; ++i) any |= words[g * rows + i].As<uint64_t>()[w];
        if (64 * w < first) any &= ~uint64_t{0} << (first - 64 * w);
        if (64 * (w + 1) > last) any &= ~uint64_t{0} >> (64 * (w + 1) - last);
        count += std::popcount(any);
      }
      out.As<int64_t>()[g] = count;
    }
  }

  void DoMoveBits(const Tensor& words, int64_t first, int64_t skip, Tensor out) override {
    const int64_t n = words.shape[1];
    for (int64_t i = 0; i < out.shape[0]; ++i) {
      const auto* row = words[i].As<uint64_t>();
      auto* to = out[i].As<uint64_t>();
      for (int64_t w = 0; w < out.shape[1]; ++w) to[w] = WordFrom(row, n, first + 64 * w - skip);
      // Bits before `first` are no part of it.
      for (int64_t w = 0; 64 * w < skip && w < out.shape[1]; ++w) {
        const int64_t before = std::min<int64_t>(64, skip - 64 * w);
        to[w] = before == 64 ? 0 : to[w] >> before << before;
      }
    }
  }
  // Bits [from, from + 64) of a row of n words; from > -64 or nothing of it is in the row.
  static uint64_t WordFrom(const uint64_t* row, int64_t n, int64_t from) {
    if (from <= -64) return 0;
    if (from < 0) return n > 0 ? row[0] << -from : 0;
    const int64_t at = from / 64, shift = from % 64;
    uint64_t word = at < n ? row[at] >> shift : 0;
    if (shift > 0 && at + 1 < n) word |= row[at + 1] << (64 - shift);
    return word;
  }

  void DoReadBits(const Tensor& words, int64_t first, Tensor out) override {
    const int64_t n = words.shape[1], m = out.shape[1];
    SplitWork(threads_, out.shape[0], kMove_ns * static_cast<double>(m), [&](int64_t i) {
      const auto* row = words[i].As<uint64_t>();
      float* to = out[i].f32();
      for (int64_t begin = 0; begin < m; begin += 64) {
        const uint64_t word = WordFrom(row, n, first + begin);
        const int64_t count = std::min<int64_t>(64, m - begin);
        for (int64_t j = 0; j < count; ++j) to[begin + j] = static_cast<float>(word >> j & 1);
      }
    });
  }

  void DoAtLeast(const Tensor& x, int32_t least, Tensor out) override {
    for (int64_t i = 0; i < x.shape[0]; ++i) out.i32()[i] = std::max(x.i32()[i], least);
  }

  void DoColumnRanges(const Tensor& x, int64_t trim, Tensor low, Tensor high) override {
    const int64_t n = x.shape[0], d = x.shape[1];
    // Some columns at a time, so that a line of the matrix is read once or a few times.
    const int64_t share = (d + threads_.threads - 1) / threads_.threads;
    const int64_t width = std::clamp<int64_t>(share, 4, 16);
    const double cost = 3 * kSelect_ns * static_cast<double>(n * width);
    SplitWorkByWorker(threads_, (d + width - 1) / width, cost, [&](int64_t piece, int worker) {
      const int64_t first = piece * width, columns = std::min(width, d - first);
      float* turned = Scratch<float>(worker, (width + 2) * n);
      for (int64_t i = 0; i < n; ++i) {
        const float* row = x.f32() + i * x.stride[0] + first;
        for (int64_t c = 0; c < columns; ++c) turned[c * n + i] = row[c];
      }
      auto* keys = reinterpret_cast<uint32_t*>(turned + width * n);
      for (int64_t c = 0; c < columns; ++c) {
        k_.order_keys(turned + c * n, n, keys);
        low.f32()[first + c] = ValueOf(FindThreshold(keys, n, n - trim, keys + n).key);
        high.f32()[first + c] = ValueOf(FindThreshold(keys, n, trim + 1, keys + n).key);
      }
    });
  }

  static void CopyRow(const Tensor& from, int64_t i, const Tensor& to, int64_t j) {
    const int64_t size = SizeOf(from.dtype);
    std::memcpy(to.As<char>() + j * to.stride[0] * size,
                from.As<char>() + i * from.stride[0] * size,
                static_cast<size_t>(from.shape[1] * size));
  }

  // copy(i, index[i]) for every row of `list`.
  template <class Copy>
  void Move(const Tensor& index, int64_t least, int64_t limit, const Tensor& list,
            const Copy& copy) {
    const int32_t* at = index.i32();
    for (int64_t i = 0; i < list.shape[0]; ++i) {
      KVG_CHECK(at[i] >= least && at[i] < limit, "row index out of range");
    }
    const double row_bytes = static_cast<double>(list.shape[1] * SizeOf(list.dtype));
    SplitWork(threads_, list.shape[0], 5 + row_bytes * kMove_ns / 4,
              [&](int64_t i) { copy(i, at[i]); });
  }

  // At least `count` elements that stay with the worker; contents are left over.
  template <class T>
  T* Scratch(int worker, int64_t count) {
    std::vector<uint32_t>& words = scratch_[static_cast<size_t>(worker)];
    static_assert(sizeof(T) == sizeof(uint32_t));
    if (static_cast<int64_t>(words.size()) < count) words.resize(static_cast<size_t>(count));
    return reinterpret_cast<T*>(words.data());
  }

  const SelectKernels& k_;
  const ThreadSettings threads_;
  std::vector<std::vector<uint32_t>> scratch_;
};

}  // namespace

std::unique_ptr<SelectOps> MakeCpuSelect(Isa isa, ThreadSettings threads) {
  return std::make_unique<CpuSelect>(isa, threads);
}

}  // namespace kvgauge
