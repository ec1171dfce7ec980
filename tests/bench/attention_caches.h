// SPDX-License-Identifier: Apache-2.0
// What attention's measurements are made with: candidates timed in turn, and heads with entries.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "core/clock.h"
#include "core/rng.h"
#include "core/threads.h"
#include "kernels/attention.h"
#include "kernels/tensor.h"

namespace kvgauge {

inline constexpr int kRepetitions = 5;
inline constexpr int kAttempts = 12;
inline constexpr double kMostOthers = 0.10;

inline bool processor_time = false;  // on one thread

inline double Seconds() {
  if (!processor_time) return NowSeconds();
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Median seconds of each candidate, run in turn.
inline std::vector<double> Interleaved(const std::vector<std::function<void()>>& candidates) {
  std::vector<std::vector<double>> clean(candidates.size()), all(candidates.size());
  for (const auto& run : candidates) run();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    bool enough = true;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const CpuUse before = ReadCpuUse();
      const double start = Seconds();
      // The system counts processor time in hundredths: short work is repeated.
      int runs = 0;
      do {
        candidates[i]();
        ++runs;
      } while (Seconds() - start < 0.15);
      const double wall = Seconds() - start;
      const double others =
          processor_time ? 0.0 : OthersShare(before, ReadCpuUse(), wall, AvailableProcessors());
      all[i].push_back(wall / runs);
      if (others <= kMostOthers) clean[i].push_back(wall / runs);
      enough = enough && static_cast<int>(clean[i].size()) >= kRepetitions;
    }
    if (enough) break;
  }
  std::vector<double> medians;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const bool contended = clean[i].size() < 3;
    if (contended) std::printf("(contended) ");
    std::vector<double>& times = contended ? all[i] : clean[i];
    // A contended machine only slows down: its best is the better witness.
    std::sort(times.begin(), times.end());
    medians.push_back(contended ? times.front() : times[times.size() / 2]);
  }
  return medians;
}

inline std::vector<float> Normal(int64_t count, uint64_t seed) {
  // Drawn once and repeated: the generator is slower than anything measured here.
  static const std::vector<float> pool = [] {
    Rng rng(5, 5);
    std::vector<float> values(1 << 16);
    for (float& v : values) v = static_cast<float>(rng.NextGaussian());
    return values;
  }();
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = pool[(i * 7 + i / 65536 + seed * 997) & 0xffff];
  return values;
}

struct Cache {
  Buffer memory;
  std::vector<std::vector<void*>> key_pages, value_pages;
  std::vector<KvSegment> segments;
  std::vector<KvHead> heads;
  int64_t bytes = 0;

  Cache(AttentionOps& ops, const AttentionShape& shape, int64_t entries)
      : Cache(ops, shape, std::vector<int64_t>(shape.kv_heads, entries)) {}
  // The number of entries of each head.
  Cache(AttentionOps& ops, const AttentionShape& shape, const std::vector<int64_t>& entries) {
    const KvFormat& f = shape.format;
    const auto pages_of = [](int64_t n) { return (n + kKvPageEntries - 1) / kKvPageEntries; };
    const int64_t kv_heads = shape.kv_heads;
    const int64_t key_bytes = ops.KeyPageBytes(f), value_bytes = ops.ValuePageBytes(f);
    int64_t most = 0;
    for (const int64_t n : entries) {
      bytes += pages_of(n) * (key_bytes + value_bytes);
      most = std::max(most, n);
    }
    memory = HostBuffer(bytes);
    key_pages.resize(kv_heads);
    value_pages.resize(kv_heads);
    char* next = static_cast<char*>(memory.data());
    // As a growing sequence takes them from a pool: page by page over the heads.
    for (int64_t p = 0; p < pages_of(most); ++p) {
      for (int64_t h = 0; h < kv_heads; ++h) {
        if (p >= pages_of(entries[h])) continue;
        key_pages[h].push_back(next);
        value_pages[h].push_back(next + key_bytes);
        next += key_bytes + value_bytes;
      }
    }
    segments.resize(kv_heads);
    for (int64_t h = 0; h < kv_heads; ++h) {
      segments[h].key_pages = key_pages[h].data();
      segments[h].value_pages = value_pages[h].data();
      segments[h].length = entries[h];
      segments[h].by_entry = f.by_entry;
      heads.push_back({&segments[h], 1});
      const KvTarget target = {key_pages[h].data(), value_pages[h].data(), 0};
      const std::vector<float> k = Normal(entries[h] * f.key_dim, 1 + 2 * h);
      const std::vector<float> v = Normal(entries[h] * f.value_dim, 2 + 2 * h);
      ops.WriteKv(f, View(k, {entries[h], 1, f.key_dim}), View(v, {entries[h], 1, f.value_dim}),
                  {&target, 1});
    }
  }
};

}  // namespace kvgauge
