// SPDX-License-Identifier: Apache-2.0
// Attention against what the machine can do: decode beside the measured copy and read bandwidth,
// prefill beside the panel product that it is made of, captures beside the prefill they follow,
// coded segments beside float ones, some entries beside all.
//
//   attention_bench [threads [isa [prefill | decode | sparse | coded | ragged]]]
//
// Candidates that are compared run interleaved; a repetition during which other processes took more
// than a tenth of the machine is thrown away, on that ground alone; medians are printed. Time on
// one thread is that of the processor, so that waiting for it does not count.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "attention_caches.h"
#include "core/rng.h"
#include "core/threads.h"
#include "cpu/attention/attention_kernels.h"
#include "cpu/cpu.h"
#include "reference/reference.h"

namespace kvgauge {
namespace {

// How keys and values are coded.
struct CodedFormat {
  const char* name;
  KvCodecKind kind;
  int bits;  // of affine codes, by channel and by entry, in groups of 64

  KvCodec Codec(const KvFormat& format, KvSide side) const {
    KvCodec codec;
    codec.kind = kind;
    codec.side = side;
    codec.dim = side == KvSide::kKeys ? format.key_dim : format.value_dim;
    if (kind != KvCodecKind::kAffine) return codec;
    codec.bits = bits;
    codec.group = 64;
    if (side == KvSide::kKeys) codec.axis = CodeAxis::kChannel;
    return codec;
  }
};

// Heads whose entries are all coded, in memory as those of Cache.
struct CodedCache {
  KvCodec keys, values;
  Buffer memory;
  std::vector<std::vector<void*>> key_pages, value_pages;
  std::vector<KvSegment> segments;
  std::vector<KvHead> heads;
  int64_t bytes = 0;

  CodedCache(CodecOps& codecs, const AttentionShape& shape, const CodedFormat& format,
             int64_t entries)
      : keys(format.Codec(shape.format, KvSide::kKeys)),
        values(format.Codec(shape.format, KvSide::kValues)),
        key_pages(shape.kv_heads),
        value_pages(shape.kv_heads),
        segments(shape.kv_heads) {
    const int64_t key_bytes = codecs.PageBytes(keys), value_bytes = codecs.PageBytes(values);
    const int64_t pages = entries / kKvPageEntries;
    bytes = shape.kv_heads * pages * (key_bytes + value_bytes);
    memory = HostBuffer(bytes);
    char* next = static_cast<char*>(memory.data());
    for (int64_t p = 0; p < pages; ++p) {
      for (int64_t h = 0; h < shape.kv_heads; ++h, next += key_bytes + value_bytes) {
        key_pages[h].push_back(next);
        value_pages[h].push_back(next + key_bytes);
      }
    }
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      segments[h].length = entries;
      segments[h].keys = Encode(codecs, keys, entries, key_pages[h], 1);
      segments[h].values = Encode(codecs, values, entries, value_pages[h], 2);
      heads.push_back({&segments[h], 1});
    }
  }

 private:
  static KvCoded Encode(CodecOps& codecs, const KvCodec& codec, int64_t entries,
                        const std::vector<void*>& pages, uint64_t seed) {
    const std::vector<float> rows = Normal(entries * codec.dim, seed);
    codecs.Encode(codec, View(rows, {entries, codec.dim}), 0, {pages.data()});
    return {&codec, {pages.data()}, entries};
  }
};

AttentionShape MakeShape(DType dtype, int64_t dim, int64_t kv_heads, int64_t group) {
  AttentionShape shape;
  shape.format = {dtype, dim, dim};
  shape.kv_heads = kv_heads;
  shape.query_heads = kv_heads * group;
  shape.scale = 1.0f / std::sqrt(static_cast<float>(dim));
  return shape;
}

void OnThreads(int threads, const std::function<void(int)>& run) {
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(run, t);
  run(0);
  for (std::thread& thread : pool) thread.join();
}

struct Bandwidth {
  double copy = 0, read = 0;  // GB/s
};

Bandwidth MeasureBandwidth(int threads) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  const Buffer a = HostBuffer(kBytes), b = HostBuffer(kBytes);
  std::memset(a.data(), 1, kBytes);
  std::memset(b.data(), 2, kBytes);
  const auto part = [&](int t, const Buffer& buffer) {
    return static_cast<char*>(buffer.data()) + kBytes / threads * t;
  };
  std::atomic<uint64_t> sink = 0;  // so that the sums are computed
  const std::vector<double> s = Interleaved(
      {[&] {
         OnThreads(threads, [&](int t) { std::memcpy(part(t, b), part(t, a), kBytes / threads); });
       },
       [&] {
         OnThreads(threads, [&](int t) {
           const auto* words = reinterpret_cast<const uint64_t*>(part(t, a));
           uint64_t sum[8] = {};
           for (int64_t i = 0; i < kBytes / threads / 8; i += 8) {
             for (int k = 0; k < 8; ++k) sum[k] += words[i + k];
           }
           sink = std::accumulate(sum, sum + 8, uint64_t{0});
         });
       }});
  // A copy reads and writes.
  return {2.0 * kBytes / s[0] * 1e-9, 1.0 * kBytes / s[1] * 1e-9};
}

void BenchDecode(AttentionOps& ops, const Bandwidth& machine) {
  std::printf("\ndecode: one row per sequence, KV from memory\n");
  std::printf("%-5s %4s %6s %3s %9s %8s %8s\n", "type", "dim", "n", "G", "GB/s", "of copy",
              "of read");
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t dim : {64, 128}) {
      for (const int64_t n : {2048, 8192, 32768}) {
        const std::vector<int64_t> groups = {1, 3, 4};
        // Layers enough to leave the caches behind.
        const int64_t layer_bytes = 2 * n * 4 * dim * 2;
        const int64_t layers = std::max<int64_t>(2, (int64_t{160} << 20) / layer_bytes);
        std::vector<std::unique_ptr<Cache>> caches;
        for (int64_t l = 0; l < layers; ++l) {
          caches.push_back(std::make_unique<Cache>(ops, MakeShape(dtype, dim, 4, 1), n));
        }
        const std::vector<float> q = Normal(16 * dim, 3);
        std::vector<float> out(16 * dim);
        std::vector<std::function<void()>> runs;
        for (const int64_t group : groups) {
          runs.push_back([&, group] {
            const AttentionShape shape = MakeShape(dtype, dim, 4, group);
            for (const auto& cache : caches) {
              const AttentionItem item = {0, 1, n - 1, n - 1, cache->heads};
              ops.Attend(shape, {&item, 1},
                         View(std::span(q).first(4 * group * dim), {1, 4 * group, dim}),
                         View(std::span(out).first(4 * group * dim), {1, 4 * group, dim}));
            }
          });
        }
        const std::vector<double> s = Interleaved(runs);
        for (size_t i = 0; i < groups.size(); ++i) {
          const double rate = static_cast<double>(layers * caches[0]->bytes) / s[i] * 1e-9;
          std::printf("%-5s %4d %6d %3d %9.1f %7.0f%% %7.0f%%\n", NameOf(dtype).data(),
                      static_cast<int>(dim), static_cast<int>(n), static_cast<int>(groups[i]), rate,
                      100 * rate / machine.copy, 100 * rate / machine.read);
        }
      }
    }
  }
}

// What a reader lets the heads read of a cache: one of twenty runs of entries, the same for the
// query heads of a KV head or others for each.
struct Choice {
  const char* name;
  int64_t run;
  bool by_query_head;

  // [kv_heads][query heads of one], words of 64 entries.
  std::vector<std::vector<std::vector<uint64_t>>> Words(const AttentionShape& shape,
                                                        int64_t entries) const {
    std::vector<std::vector<std::vector<uint64_t>>> words(shape.kv_heads);
    Rng rng(7, 7);
    for (auto& of_head : words) {
      for (int64_t g = 0; g < shape.query_heads / shape.kv_heads; ++g) {
        if (g > 0 && !by_query_head) {
          of_head.push_back(of_head[0]);
          continue;
        }
        std::vector<int64_t> runs(entries / run);
        std::iota(runs.begin(), runs.end(), 0);
        std::vector<uint64_t>& row = of_head.emplace_back(entries / 64);
        for (size_t i = 0; i < runs.size() / 20; ++i) {
          std::swap(runs[i], runs[i + rng.NextBelow(runs.size() - i)]);
          for (int64_t e = runs[i] * run; e < (runs[i] + 1) * run; ++e) {
            row[e / 64] |= uint64_t{1} << e % 64;
          }
        }
      }
    }
    return words;
  }
};

// Rows of keys and values of chosen entries, in the order in which attention reads them: of a span
// those of keys first.
struct ChosenRows {
  std::vector<const char*> keys_and_values;
  int64_t row_bytes = 0;

  // words: of each head what its query heads read together.
  ChosenRows(const Cache& cache, const std::vector<std::vector<uint64_t>>& words,
             int64_t page_bytes)
      : row_bytes(page_bytes / kKvPageEntries) {
    constexpr size_t kPages = kAttentionSpan / kKvPageEntries;
    for (size_t h = 0; h < words.size(); ++h) {
      for (size_t first = 0; first < words[h].size(); first += kPages) {
        for (const auto* pages : {&cache.key_pages[h], &cache.value_pages[h]}) {
          for (size_t p = first; p < std::min(first + kPages, words[h].size()); ++p) {
            const auto* page = static_cast<const char*>((*pages)[p]);
            for (uint64_t bits = words[h][p]; bits != 0; bits &= bits - 1) {
              keys_and_values.push_back(page + std::countr_zero(bits) * row_bytes);
            }
          }
        }
      }
    }
  }

  // Has every line come from memory, and computes nothing.
  uint64_t Read() const {
    constexpr size_t kAhead = 16;
    uint64_t sum = 0;
    for (size_t i = 0; i < keys_and_values.size(); ++i) {
      const char* next = keys_and_values[std::min(i + kAhead, keys_and_values.size() - 1)];
      for (int64_t b = 0; b < row_bytes; b += 64) __builtin_prefetch(next + b);
      for (int64_t b = 0; b < row_bytes; b += 64) {
        uint64_t word;
        std::memcpy(&word, keys_and_values[i] + b, sizeof(word));
        sum += word;
      }
    }
    return sum;
  }
};

// Decode over 5% of the entries: what it takes beside all of them, and what share of the ideal
// that is, a twentieth; heads that choose for themselves together read more than that. With pages
// for whole reads, and with pages by entry; in the first line all entries of the latter. Reading
// the chosen rows of pages by entry without any arithmetic shows what of it is memory's.
void BenchSparse(AttentionOps& ops) {
  constexpr int64_t kEntries = 32768, kDim = 128, kHeads = 4, kGroup = 4;
  constexpr Choice kChoices[] = {{"pages of 64", 64, false},
                                 {"runs of 16", 16, false},
                                 {"runs of 16, by query head", 16, true},
                                 {"single entries", 1, false},
                                 {"single entries, by query head", 1, true}};
  constexpr size_t kCount = std::size(kChoices);
  std::printf(
      "\n5%% of %d entries, %d dims, %d query heads a KV head; on the right pages by entry\n",
      static_cast<int>(kEntries), static_cast<int>(kDim), static_cast<int>(kGroup));
  std::printf("%-5s %-30s %9s %9s %9s %12s %9s %9s %9s\n", "dtype", "read", "of full", "of ideal",
              "together", "of full", "of ideal", "together", "reading");
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const AttentionShape shape = MakeShape(dtype, kDim, kHeads, kGroup);
    using Caches = std::vector<std::unique_ptr<Cache>>;  // more than the processor's caches hold
    Caches kinds[2];
    for (const bool by_entry : {false, true}) {
      AttentionShape of_kind = shape;
      of_kind.format.by_entry = by_entry;
      for (int i = 0; i < 3; ++i) {
        kinds[by_entry ? 1 : 0].push_back(std::make_unique<Cache>(ops, of_kind, kEntries));
      }
    }
    const std::vector<float> q = Normal(shape.query_heads * kDim, 3);
    std::vector<float> out(q.size());
    const auto attend = [&](const Caches& caches,
                            const std::vector<std::vector<const uint64_t*>>& read) {
      for (const auto& cache : caches) {
        for (int64_t h = 0; h < kHeads; ++h) {
          cache->segments[h].read = read.empty() ? nullptr : read[h].data();
        }
        const AttentionItem item = {0, 1, kEntries - 1, kEntries - 1, cache->heads};
        ops.Attend(shape, {&item, 1}, View(q, {1, shape.query_heads, kDim}),
                   View(out, {1, shape.query_heads, kDim}));
      }
    };
    std::vector<std::function<void()>> runs;
    std::vector<std::vector<std::vector<std::vector<uint64_t>>>> words;
    std::vector<std::vector<std::vector<const uint64_t*>>> reads(kCount);
    for (size_t c = 0; c < kCount; ++c) {
      words.push_back(kChoices[c].Words(shape, kEntries));
      for (const auto& of_head : words[c]) {
        reads[c].emplace_back();
        for (const std::vector<uint64_t>& row : of_head) reads[c].back().push_back(row.data());
      }
    }
    // [choice][head]: what its query heads read together.
    std::vector<std::vector<std::vector<uint64_t>>> joined(kCount);
    std::vector<std::vector<ChosenRows>> rows(kCount);
    for (size_t c = 0; c < kCount; ++c) {
      for (const auto& of_head : words[c]) {
        std::vector<uint64_t>& join = joined[c].emplace_back(of_head[0]);
        for (const std::vector<uint64_t>& row : of_head) {
          for (size_t p = 0; p < join.size(); ++p) join[p] |= row[p];
        }
      }
      for (const auto& cache : kinds[1]) {
        rows[c].emplace_back(*cache, joined[c], ops.KeyPageBytes(shape.format));
      }
    }
    std::atomic<uint64_t> sink = 0;  // so that rows are read
    for (const Caches& caches : kinds) {
      runs.push_back([&] { attend(caches, {}); });
      for (size_t c = 0; c < kCount; ++c) runs.push_back([&, c] { attend(caches, reads[c]); });
    }
    for (size_t c = 0; c < kCount; ++c) {
      runs.push_back([&, c] {
        for (const ChosenRows& of_cache : rows[c]) sink += of_cache.Read();
      });
    }
    const std::vector<double> s = Interleaved(runs);
    std::printf("%-5s %-30s %8.1f%% %9s %9s %11.1f%%\n", NameOf(dtype).data(), "all", 100.0, "", "",
                100 * s[kCount + 1] / s[0]);
    for (size_t c = 0; c < kCount; ++c) {
      double read = 0;  // by some head of a group
      for (const std::vector<uint64_t>& join : joined[c]) {
        for (const uint64_t bits : join) read += std::popcount(bits);
      }
      std::printf("%-5s %-30s", NameOf(dtype).data(), kChoices[c].name);
      for (const size_t kind : {0, 1}) {
        const double share = s[kind * (kCount + 1) + c + 1] / s[0];
        std::printf("%*.1f%% %8.0f%% %8.0f%%", kind == 0 ? 9 : 12, 100 * share, 100 * 0.05 / share,
                    100 * read / (kEntries * kHeads) / share);
      }
      std::printf(" %8.1f%%\n", 100 * s[2 * (kCount + 1) + c] / s[0]);
    }
  }
}

// The product a prefill is made of, alone and in the first-level cache. Returns the FLOPs of one.
double MultiplyPanels(const AttentionKernels& kernels, DType dtype, int threads, int64_t products) {
  constexpr int kRows = 48, kDim = 64;
  OnThreads(threads, [&](int t) {
    alignas(64) char a[kRows * kDim * 4] = {}, panel[kDim * 64 * 4] = {};
    alignas(64) float out[kRows * 64] = {};
    const ProductScope scope(kernels);
    for (int64_t i = t; i < products; i += threads) {
      kernels.product[static_cast<int>(dtype)](
          {a, kDim, kRows, panel, panel, kDim, 64, out, 64, false});
    }
  });
  return 2.0 * kRows * kDim * 64;
}

void BenchPrefill(AttentionOps& ops, const AttentionKernels& kernels, int threads) {
  std::printf("\nprefill: 12 query heads on 4, dim 64, causal; FLOPs count the lower triangle\n");
  std::printf("sums: of each entry's attention, as Attend goes; columns: in a pass of their own\n");
  std::printf("%-5s %6s %8s %9s %9s %8s %8s %9s %9s\n", "type", "n", "ms", "GFLOP/s", "product",
              "share", "sums", "columns", "window32");
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const int64_t n : {512, 4096}) {
      const AttentionShape shape = MakeShape(dtype, 64, 4, 3);
      const Cache cache(ops, shape, n);
      const std::vector<float> q = Normal(n * 12 * 64, 3);
      std::vector<float> out(n * 12 * 64), lse(12 * n), columns(12 * n), window(12 * 32 * n);
      const AttentionItem item = {0, n, 0, 0, cache.heads};
      AttentionItem last = {n - 32, 32, n - 32, n - 32, cache.heads}, summed = item;
      summed.column_sums = View(columns, {12, n});
      ColumnRequest request;
      request.rows = n;
      const Tensor queries = View(q, {n, 12, 64}), sums = View(lse, {12, n});
      // 16-bit types without their own product are expanded to f32 first.
      const DType product = dtype == DType::kBF16 && kernels.bf16_dot ? DType::kBF16 : DType::kF32;
      constexpr int64_t kProducts = 20000;
      double product_flops = 0;
      const std::vector<double> s = Interleaved(
          {[&] {
             ops.Attend(shape, {&item, 1}, queries, View(out, {n, 12, 64}), {sums, {}});
           },
           [&] { product_flops = MultiplyPanels(kernels, product, threads, kProducts); },
           [&] {
             ops.ReduceColumns(shape, item, queries, sums, request, View(columns, {12, n}));
           },
           [&] {
             ops.WindowProbabilities(shape, last, queries, sums, View(window, {12, 32, n}));
           },
           [&] {
             ops.Attend(shape, {&summed, 1}, queries, View(out, {n, 12, 64}), {sums, {}});
           }});
      const double rate = 2.0 * n * n * 64 * 12 / s[0] * 1e-9;
      const double peak = product_flops * kProducts / s[1] * 1e-9;
      std::printf("%-5s %6d %8.2f %9.0f %9.0f %7.0f%% %7.0f%% %8.0f%% %8.1f%%\n",
                  NameOf(dtype).data(), static_cast<int>(n), s[0] * 1e3, rate, peak,
                  100 * rate / peak, 100 * (s[4] - s[0]) / s[0], 100 * s[2] / s[0],
                  100 * s[3] / s[0]);
    }
  }
}

// The largest difference to the reference over a short cache.
double CodedError(AttentionOps& ops, CodecOps& codecs, const AttentionShape& shape,
                  const CodedFormat& format) {
  constexpr int64_t kEntries = 640;
  const int64_t heads = shape.query_heads, dim = shape.format.key_dim;
  const std::vector<float> q = Normal(heads * dim, 3);
  std::vector<float> results[2];
  const auto run = [&](AttentionOps& attention, CodecOps& codec, std::vector<float>& out) {
    const CodedCache cache(codec, shape, format, kEntries);
    AttentionItem item;
    item.rows = 1;
    item.heads = cache.heads;
    out.resize(heads * dim);
    attention.Attend(shape, {&item, 1}, View(q, {1, heads, dim}), View(out, {1, heads, dim}));
  };
  run(ops, codecs, results[0]);
  run(*MakeReferenceAttention(), *MakeReferenceCodec(), results[1]);
  double worst = 0;
  for (int64_t i = 0; i < heads * dim; ++i) {
    const double error = std::abs(double{results[0][i]} - results[1][i]);
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

// Multiply-adds a second of the product that rows meet codes with, alone and in the first-level
// cache: four rows, codes of 4 bits.
double CodedProductRate(const AttentionKernels& kernels, int threads) {
  constexpr int kRows = 4, kSteps = 128;
  constexpr int64_t kProducts = 200000;
  const int fixed = kernels.fixed_codes ? 1 : 0;
  const std::vector<double> s = Interleaved({[&] {
    OnThreads(threads, [&](int t) {
      alignas(64) char codes[kSteps * 64 / 2 + 64] = {}, a[kRows * kSteps * 4] = {};
      alignas(64) float table[16] = {}, out[kRows * 64] = {}, side[kRows] = {};
      CodedProductArgs args = {};
      args.codes = codes;
      args.pairs = kSteps / 2;
      args.vectors = 4;
      args.group_vectors = 4;
      args.table = table;
      args.a = a;
      args.constants = args.units = side;
      args.a_stride = kSteps;
      args.rows = kRows;
      args.out = out;
      args.out_stride = 64;
      for (int64_t i = t; i < kProducts; i += threads) kernels.coded_product[fixed][2](args);
    });
  }});
  return 1.0 * kProducts * kRows * kSteps * 64 / s[0];
}

// The same of the product that rows meet numbers with, where those are rebuilt from codes.
double FloatProductRate(const AttentionKernels& kernels, int threads) {
  constexpr int kRows = 4, kSteps = 64;
  constexpr int64_t kProducts = 200000;
  const std::vector<double> s = Interleaved({[&] {
    OnThreads(threads, [&](int t) {
      alignas(64) float a[kRows * kSteps] = {}, panel[kSteps * 64] = {}, out[kRows * 64] = {};
      for (int64_t i = t; i < kProducts; i += threads) {
        kernels.product[static_cast<int>(DType::kF32)](
            {a, kSteps, kRows, panel, panel, kSteps, 64, out, 64, false});
      }
    });
  }});
  return 1.0 * kProducts * kRows * kSteps * 64 / s[0];
}

void BenchCoded(AttentionOps& ops, CodecOps& codecs, const AttentionKernels& kernels, int threads,
                const Bandwidth& machine) {
  const double code_products = CodedProductRate(kernels, threads);
  const double float_products = FloatProductRate(kernels, threads);
  constexpr int64_t kEntries = 32768, kDim = 128, kHeads = 4;
  std::printf(
      "\ndecode over coded segments: 32768 entries, dim 128, groups of 64; products alone: %.0f G "
      "multiply-adds/s with codes, %.0f with numbers\nshares of: bytes, the plain cache's time "
      "times bytes; products, theirs alone; ideal, the longer of both\n",
      code_products * 1e-9, float_products * 1e-9);
  std::printf("%-5s %3s %6s %9s %9s %8s %9s %8s %11s %8s %8s\n", "type", "G", "codes", "us/layer",
              "GB/s", "of copy", "speed-up", "of bytes", "of products", "of ideal", "error");
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<std::unique_ptr<Cache>> plain;
    for (int l = 0; l < 3; ++l) {
      plain.push_back(std::make_unique<Cache>(ops, MakeShape(dtype, kDim, kHeads, 1), kEntries));
    }
    constexpr CodedFormat kFormats[] = {
        {"4 bits", KvCodecKind::kAffine, 4}, {"3 bits", KvCodecKind::kAffine, 3},
        {"2 bits", KvCodecKind::kAffine, 2}, {"q8_0", KvCodecKind::kQ8_0, 0},
        {"fp8", KvCodecKind::kFp8E4M3, 0},   {"nvfp4", KvCodecKind::kNvFp4, 0}};
    constexpr size_t kCount = std::size(kFormats);
    std::vector<std::vector<std::unique_ptr<CodedCache>>> coded(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      for (int l = 0; l < 6; ++l) {
        coded[i].push_back(std::make_unique<CodedCache>(codecs, MakeShape(dtype, kDim, kHeads, 1),
                                                        kFormats[i], kEntries));
      }
    }
    for (const int64_t group : {1, 2, 4}) {
      const AttentionShape shape = MakeShape(dtype, kDim, kHeads, group);
      const std::vector<float> q = Normal(kHeads * group * kDim, 3);
      std::vector<float> out(kHeads * group * kDim);
      const auto attend = [&](std::span<const KvHead> heads) {
        AttentionItem item;
        item.rows = 1;
        item.heads = heads;
        ops.Attend(shape, {&item, 1}, View(q, {1, kHeads * group, kDim}),
                   View(out, {1, kHeads * group, kDim}));
      };
      std::vector<std::function<void()>> runs = {[&] {
        for (const auto& cache : plain) attend(cache->heads);
      }};
      for (size_t i = 0; i < kCount; ++i) {
        runs.push_back([&, i] {
          for (const auto& cache : coded[i]) attend(cache->heads);
        });
      }
      const std::vector<double> s = Interleaved(runs);
      const double plain_s = s[0] / static_cast<double>(plain.size());
      for (size_t i = 0; i < runs.size(); ++i) {
        const double bytes = static_cast<double>(i == 0 ? plain[0]->bytes : coded[i - 1][0]->bytes);
        const double layer_s = i == 0 ? plain_s : s[i] / static_cast<double>(coded[i - 1].size());
        const double of_bytes = plain_s * bytes / static_cast<double>(plain[0]->bytes) / layer_s;
        std::printf("%-5s %3d %6s %9.0f %9.1f %7.0f%% %9.2f", NameOf(dtype).data(),
                    static_cast<int>(group), i == 0 ? "plain" : kFormats[i - 1].name, layer_s * 1e6,
                    bytes / layer_s * 1e-9, 100 * bytes / layer_s * 1e-9 / machine.copy,
                    plain_s / layer_s);
        if (i == 0) {
          std::printf("\n");
          continue;
        }
        const bool codes = kFormats[i - 1].kind == KvCodecKind::kAffine;
        const double of_products = 2.0 * kEntries * kDim * kHeads * group /
                                   (codes ? code_products : float_products) / layer_s;
        std::printf(" %7.0f%% %10.0f%% %7.0f%% %8.1e\n", 100 * of_bytes, 100 * of_products,
                    100 * std::max(of_bytes, of_products),
                    CodedError(ops, codecs, shape, kFormats[i - 1]));
      }
    }
  }
}

// Heads of very different lengths against heads of one length, with as many entries in all: where
// pages were taken for just these entries, and where those between were given back since.
void BenchRagged(AttentionOps& ops) {
  std::printf(
      "\nragged heads: f16, dim 128, 8 heads of 4080 entries, or one of 8 with ten times what "
      "the others have\n");
  constexpr int64_t kHeads = 8, kShort = 4096 * 8 / 17 / 64 * 64, kLong = 10 * kShort;
  constexpr int64_t kEven = (kLong + 7 * kShort) / 8;
  const AttentionShape shape = MakeShape(DType::kF16, 128, kHeads, 4);
  const std::vector<int64_t> even(kHeads, kEven);
  std::vector<int64_t> ragged(kHeads, kShort);
  ragged[3] = kLong;
  std::vector<std::unique_ptr<Cache>> caches[3];
  for (int l = 0; l < 4; ++l) {
    caches[0].push_back(std::make_unique<Cache>(ops, shape, even));
    caches[1].push_back(std::make_unique<Cache>(ops, shape, ragged));
    caches[2].push_back(std::make_unique<Cache>(ops, shape, kLong));
    for (int64_t h = 0; h < kHeads; ++h) caches[2].back()->segments[h].length = ragged[h];
  }
  const std::vector<float> q = Normal(kHeads * 4 * 128, 3);
  std::vector<float> out(q.size());
  std::vector<std::function<void()>> runs;
  for (const auto& layers : caches) {
    runs.push_back([&] {
      for (const auto& cache : layers) {
        AttentionItem item;
        item.rows = 1;
        item.heads = cache->heads;
        ops.Attend(shape, {&item, 1}, View(q, {1, kHeads * 4, 128}),
                   View(out, {1, kHeads * 4, 128}));
      }
    });
  }
  const std::vector<double> s = Interleaved(runs);
  std::printf(
      "even %.0f us; ragged %.0f us, %.1f%% more; after pages between were given back "
      "%.0f us, %.1f%% more\n",
      s[0] * 1e6 / 4, s[1] * 1e6 / 4, 100 * (s[1] / s[0] - 1), s[2] * 1e6 / 4,
      100 * (s[2] / s[0] - 1));
}

int Main(int argc, char** argv) {
  const ThreadSettings threads = MakeThreadSettings(argc > 1 ? std::atoi(argv[1]) : 0);
  processor_time = threads.threads == 1;
  const Result<Isa> isa = ChooseIsa(argc > 2 ? argv[2] : "");
  if (!isa.ok()) {
    std::fprintf(stderr, "%s\n", isa.error().message.c_str());
    return 2;
  }
  const std::unique_ptr<AttentionOps> ops = MakeCpuAttention(*isa, threads);
  const Bandwidth machine = MeasureBandwidth(threads.threads);
  std::printf("%s, %d threads; copy %.1f GB/s, read %.1f GB/s\n", NameOf(*isa).data(),
              threads.threads, machine.copy, machine.read);
  const std::string section = argc > 3 ? argv[3] : "";
  const auto wanted = [&](const char* name) { return section.empty() || section == name; };
  const std::unique_ptr<CodecOps> codecs = MakeCpuCodec(*isa, threads);
  if (wanted("prefill")) BenchPrefill(*ops, AttentionKernelsOf(*isa), threads.threads);
  if (wanted("decode")) BenchDecode(*ops, machine);
  if (wanted("sparse")) BenchSparse(*ops);
  if (wanted("coded")) {
    BenchCoded(*ops, *codecs, AttentionKernelsOf(*isa), threads.threads, machine);
  }
  if (wanted("ragged")) BenchRagged(*ops);
  return 0;
}

}  // namespace
}  // namespace kvgauge

int main(int argc, char** argv) { return kvgauge::Main(argc, argv); }
