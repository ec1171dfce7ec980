// SPDX-License-Identifier: Apache-2.0
#include "kernels/select.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "reference/reference.h"
#include "reference/views.h"

namespace kvgauge {
namespace {

void CopyRow(const Tensor& from, int64_t i, const Tensor& to, int64_t j) {
  KVG_CHECK(i >= 0 && i < from.shape[0] && j >= 0 && j < to.shape[0], "row index out of range");
  const int64_t size = SizeOf(from.dtype);
  std::memcpy(static_cast<char*>(to.data) + j * to.stride[0] * size,
              static_cast<const char*>(from.data) + i * from.stride[0] * size,
              static_cast<size_t>(from.shape[1] * size));
}

class ReferenceSelect final : public SelectOps {
  void DoTopK(const Tensor& scores, const Tensor& counts, Tensor out) override {
    const int64_t n = scores.shape[1];
    std::vector<int32_t> order(static_cast<size_t>(n));
    for (int64_t i = 0; i < scores.shape[0]; ++i) {
      const int64_t count = counts.i32()[i];
      KVG_CHECK(count >= 0 && count <= n && count <= out.shape[1], "TopK: count out of range");
      std::iota(order.begin(), order.end(), 0);
      // Stable: equals stay in order of index. NaN is behind everything.
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        const double va = At(scores, i, a), vb = At(scores, i, b);
        return std::isnan(vb) ? !std::isnan(va) : va > vb;
      });
      std::sort(order.begin(), order.begin() + count);
      int32_t* row = out.i32() + i * out.stride[0];
      std::copy_n(order.begin(), count, row);
      std::fill(row + count, row + out.shape[1], -1);
    }
  }

  void DoGather(const Tensor& source, const Tensor& index, Tensor out) override {
    for (int64_t i = 0; i < out.shape[0]; ++i) {
      if (index.i32()[i] == -1) {
        std::memset(out[i].data, 0, static_cast<size_t>(out.shape[1] * SizeOf(out.dtype)));
      } else {
        CopyRow(source, index.i32()[i], out, i);
      }
    }
  }

  void DoScatter(const Tensor& source, const Tensor& index, Tensor out) override {
    for (int64_t i = 0; i < source.shape[0]; ++i) CopyRow(source, i, out, index.i32()[i]);
  }

  void DoScatterAdd(const Tensor& source, const Tensor& index, const Tensor& weight,
                    Tensor out) override {
    for (int64_t j = 0; j < out.shape[1]; ++j) {
      std::vector<double> column(static_cast<size_t>(out.shape[0]));
      for (int64_t i = 0; i < out.shape[0]; ++i) column[i] = At(out, i, j);
      for (int64_t i = 0; i < source.shape[0]; ++i) {
        const int32_t to = index.i32()[i];
        if (to == -1) continue;
        KVG_CHECK(to >= 0 && to < out.shape[0], "row index out of range");
        column[to] += (weight.empty() ? 1.0 : weight.f32()[i]) * At(source, i, j);
      }
      for (int64_t i = 0; i < out.shape[0]; ++i) Put(out, i, j, column[i]);
    }
  }

  void DoPool(const Tensor& x, int64_t kernel, Pooling mode, Tensor out) override {
    const int64_t n = x.shape[1], reach = kernel / 2;
    for (int64_t i = 0; i < x.shape[0]; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, top = -std::numeric_limits<double>::infinity();
        for (int64_t k = std::max<int64_t>(0, j - reach); k <= std::min(n - 1, j + reach); ++k) {
          const double v = At(x, i, k);
          sum += v;
          if (!std::isnan(top) && !(v <= top)) top = v;  // a NaN gets in and stays
        }
        Put(out, i, j, mode == Pooling::kAverage ? sum / static_cast<double>(kernel) : top);
      }
    }
  }

  void DoFollowing(const Tensor& sorted, const Tensor& value, Tensor out) override {
    for (int64_t i = 0; i < out.shape[1]; ++i) {
      int64_t found = 0;
      for (int64_t k = 0; k < sorted.shape[0] && found < out.shape[0]; ++k) {
        if (sorted.i32()[k] > value.i32()[i]) out[found++].i32()[i] = sorted.i32()[k];
      }
      for (; found < out.shape[0]; ++found) out[found].i32()[i] = -1;
    }
  }

  void DoMarkRuns(const Tensor& index, int64_t run, int64_t n, Tensor words) override {
    for (int64_t i = 0; i < index.shape[0]; ++i) {
      auto* row = words[i].As<uint64_t>();
      for (int64_t k = 0; k < index.shape[1]; ++k) {
        const int64_t at = index[i].i32()[k];
        if (at == -1) continue;
        KVG_CHECK(at >= 0 && at * run < n, "MarkRuns: index out of range");
        for (int64_t bit = at * run; bit < std::min(n, (at + 1) * run); ++bit) {
          row[bit / 64] |= uint64_t{1} << bit % 64;
        }
      }
    }
  }

  // The experts of row i one after the other.
  static void ChooseInTurn(const Tensor& logits, int64_t i, double tolerance, Tensor index,
                           Tensor weight) {
    const int64_t experts = logits.shape[1], k = index.shape[1];
    std::vector<std::pair<int32_t, double>> taken;
    std::vector<bool> left(static_cast<size_t>(experts), true);
    // NaN comes behind everything.
    const auto logit = [&](int64_t e) {
      const double x = At(logits, i, e);
      return std::isnan(x) ? -std::numeric_limits<double>::infinity() : x;
    };
    while (std::ssize(taken) < k) {
      int64_t best = -1;
      for (int64_t e = 0; e < experts; ++e) {
        if (left[e] && (best < 0 || logit(e) > logit(best))) best = e;
      }
      const double most = logit(best);
      double total = 0;
      for (int64_t e = 0; e < experts; ++e) {
        const double behind = (most - logit(e)) / std::max(std::abs(logit(e)), most);
        if (left[e] && !(behind > tolerance)) total += std::exp(logit(e) - most);
      }
      left[best] = false;
      taken.emplace_back(static_cast<int32_t>(best), 1 / total);
    }
    std::sort(taken.begin(), taken.end());
    for (int64_t j = 0; j < k; ++j) {
      index[i].i32()[j] = taken[j].first;
      weight[i].f32()[j] = static_cast<float>(taken[j].second);
    }
  }

  void DoChooseExperts(const Tensor& logits, const ExpertRule& rule, const Tensor& correction,
                       Tensor index, Tensor weight) override {
    for (int64_t i = 0; rule.in_turn && i < logits.shape[0]; ++i) {
      ChooseInTurn(logits, i, rule.tolerance, index, weight);
    }
    if (rule.in_turn) return;
    const int64_t experts = logits.shape[1], k = index.shape[1], size = experts / rule.groups;
    std::vector<double> share(static_cast<size_t>(experts));
    for (int64_t i = 0; i < logits.shape[0]; ++i) {
      double most = -std::numeric_limits<double>::infinity(), total = 0;
      for (int64_t e = 0; e < experts; ++e) most = std::max(most, At(logits, i, e));
      for (int64_t e = 0; e < experts; ++e) total += share[e] = std::exp(At(logits, i, e) - most);
      for (double& one : share) one /= total;
      std::vector<double> eligible = share;
      if (rule.sigmoid) {
        for (int64_t e = 0; e < experts; ++e) {
          share[e] = 1 / (1 + std::exp(-At(logits, i, e)));
          eligible[e] = share[e] + correction.f32()[e];
          if (std::isnan(eligible[e])) eligible[e] = 0;
        }
      }
      // A group is in if fewer than `top_groups` come before it.
      std::vector<double> best;
      for (int64_t g = 0; g < rule.groups; ++g) {
        std::vector<double> group(eligible.begin() + g * size, eligible.begin() + (g + 1) * size);
        std::sort(group.begin(), group.end(), std::greater<>());
        best.push_back(group[0] + (rule.sigmoid && size > 1 ? group[1] : 0.0));
      }
      for (int64_t g = 0; g < rule.groups; ++g) {
        int64_t before = 0;
        for (int64_t o = 0; o < rule.groups; ++o) {
          before += best[o] > best[g] || (best[o] == best[g] && o < g);
        }
        for (int64_t e = g * size; before >= rule.top_groups && e < (g + 1) * size; ++e) {
          eligible[e] = 0;
        }
      }
      int64_t found = 0;
      double sum = 0;
      for (int64_t e = 0; e < experts && found < k; ++e) {
        int64_t before = 0;
        for (int64_t o = 0; o < experts; ++o) {
          before += eligible[o] > eligible[e] || (eligible[o] == eligible[e] && o < e);
        }
        if (before >= k) continue;
        index[i].i32()[found++] = static_cast<int32_t>(e);
        sum += rule.sigmoid ? share[e] : eligible[e];
      }
      double factor = rule.renormalize && k > 1 ? 1.0 / (sum + 1e-20) : rule.scaling;
      if (rule.sigmoid && rule.renormalize && k > 1) factor *= rule.scaling;
      for (int64_t j = 0; j < k; ++j) {
        const int32_t e = index[i].i32()[j];
        weight[i].f32()[j] = static_cast<float>((rule.sigmoid ? share[e] : eligible[e]) * factor);
      }
    }
  }

  void DoAddWeighted(const Tensor& source, const Tensor& weight, Tensor out) override {
    const int64_t k = weight.shape[1];
    for (int64_t i = 0; i < out.shape[0]; ++i) {
      for (int64_t j = 0; j < out.shape[1]; ++j) {
        double sum = At(out, i, j);
        for (int64_t s = 0; s < k; ++s) sum += At(weight, i, s) * At(source, i * k + s, j);
        Put(out, i, j, sum);
      }
    }
  }

  void DoCountBits(const Tensor& words, const Tensor& base, Tensor out) override {
    for (int64_t i = 0; i < words.shape[0]; ++i) {
      int64_t count = base.As<int64_t>()[i];
      for (int64_t bit = 0; bit < 64 * words.shape[1]; ++bit) count += BitOf(words, i, bit);
      out.As<int64_t>()[i] = count;
    }
  }

  void DoCountAnyBits(const Tensor& words, const Tensor& range, const Tensor& base,
                      Tensor out) override {
    const int64_t rows = words.shape[0] / range.shape[0];
    for (int64_t g = 0; g < range.shape[0]; ++g) {
      const auto* ends = range[g].As<int32_t>();
      int64_t count = base.As<int64_t>()[g];
      for (int64_t bit = ends[0]; bit < ends[1]; ++bit) {
        bool any = false;
        for (int64_t i = 0; i < rows; ++i) any |= BitOf(words, g * rows + i, bit);
        count += any ? 1 : 0;
      }
      out.As<int64_t>()[g] = count;
    }
  }

  void DoMoveBits(const Tensor& words, int64_t first, int64_t skip, Tensor out) override {
    for (int64_t i = 0; i < out.shape[0]; ++i) {
      auto* row = out[i].As<uint64_t>();
      std::fill_n(row, out.shape[1], 0);
      for (int64_t bit = skip; bit < 64 * out.shape[1]; ++bit) {
        const int64_t from = first + bit - skip;
        if (from < 64 * words.shape[1] && BitOf(words, i, from)) {
          row[bit / 64] |= uint64_t{1} << bit % 64;
        }
      }
    }
  }
  static bool BitOf(const Tensor& words, int64_t row, int64_t bit) {
    return (words[row].As<uint64_t>()[bit / 64] >> bit % 64 & 1) != 0;
  }

  void DoReadBits(const Tensor& words, int64_t first, Tensor out) override {
    for (int64_t i = 0; i < out.shape[0]; ++i) {
      for (int64_t j = 0; j < out.shape[1]; ++j) {
        const int64_t bit = first + j;
        Put(out, i, j, bit < 64 * words.shape[1] && BitOf(words, i, bit) ? 1 : 0);
      }
    }
  }

  void DoAtLeast(const Tensor& x, int32_t least, Tensor out) override {
    for (int64_t i = 0; i < x.shape[0]; ++i) out.i32()[i] = std::max(x.i32()[i], least);
  }

  void DoColumnRanges(const Tensor& x, int64_t trim, Tensor low, Tensor high) override {
    std::vector<double> column(static_cast<size_t>(x.shape[0]));
    for (int64_t j = 0; j < x.shape[1]; ++j) {
      for (int64_t i = 0; i < x.shape[0]; ++i) column[i] = At(x, i, j);
      std::sort(column.begin(), column.end(),
                [](double a, double b) { return std::isnan(a) ? !std::isnan(b) : a < b; });
      low.f32()[j] = static_cast<float>(column[trim]);
      high.f32()[j] = static_cast<float>(column[column.size() - 1 - trim]);
    }
  }
};

}  // namespace

std::unique_ptr<SelectOps> MakeReferenceSelect() { return std::make_unique<ReferenceSelect>(); }

}  // namespace kvgauge
