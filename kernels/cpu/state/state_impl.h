// SPDX-License-Identifier: Apache-2.0
// State kernels over lanes.h; each state_<isa>.cpp includes this once and exports the table.
#pragma once

#include "cpu/isa/lanes.h"
#include "cpu/state/state_kernels.h"

namespace kvgauge {
namespace {

void ConvolveRow(const float* const* rows, const float* taps, const float* bias, int64_t width,
                 int64_t columns, float* out) {
  ForLanes(columns, [&](int64_t c, auto part) {
    F sum = bias == nullptr ? F{} : Load(bias + c, part);
    for (int64_t i = 0; i < width; ++i) {
      sum = Fma(Load(taps + i * columns + c, part), Load(rows[i] + c, part), sum);
    }
    Store(out + c, sum, part);
  });
}

// Columns [j, j + kBlock * kLanes) of the state, or the part of one vector: several chains of sums
// at once hide what an addition waits for.
template <int kBlock, class Count>
KVG_INLINE void ScanColumns(float* state, const float* query, const float* key, const float* value,
                            int64_t key_dim, int64_t value_dim, int64_t j, Count part, float decay,
                            float weight, float skip, bool corrects, float* out) {
  F found[kBlock] = {}, read[kBlock] = {}, write[kBlock];
  const F shrink = Splat(decay);
  if (corrects) {
    for (int64_t i = 0; i < key_dim; ++i) {
      const F k = Splat(key[i]);
      for (int b = 0; b < kBlock; ++b) {
        const F s = Load(state + i * value_dim + j + b * kLanes, part) * shrink;
        found[b] = Fma(k, s, found[b]);
      }
    }
  }
  for (int b = 0; b < kBlock; ++b) {
    write[b] = Splat(weight) * (Load(value + j + b * kLanes, part) - found[b]);
  }
  for (int64_t i = 0; i < key_dim; ++i) {
    const F k = Splat(key[i]), q = Splat(query[i]);
    for (int b = 0; b < kBlock; ++b) {
      float* const at = state + i * value_dim + j + b * kLanes;
      const F s = Fma(k, write[b], Load(at, part) * shrink);
      Store(at, s, part);
      read[b] = Fma(q, s, read[b]);
    }
  }
  for (int b = 0; b < kBlock; ++b) {
    const F v = Load(value + j + b * kLanes, part);
    Store(out + j + b * kLanes, Fma(Splat(skip), v, read[b]), part);
  }
}

void ScanRow(float* state, const float* query, const float* key, const float* value,
             int64_t key_dim, int64_t value_dim, float decay, float weight, float skip,
             bool corrects, float* out) {
  constexpr int kBlock = 4;
  int64_t j = 0;
  for (; j + kBlock * kLanes <= value_dim; j += kBlock * kLanes) {
    ScanColumns<kBlock>(state, query, key, value, key_dim, value_dim, j, Whole{}, decay, weight,
                        skip, corrects, out);
  }
  for (; j + kLanes <= value_dim; j += kLanes) {
    ScanColumns<1>(state, query, key, value, key_dim, value_dim, j, Whole{}, decay, weight, skip,
                   corrects, out);
  }
  if (j < value_dim) {
    ScanColumns<1>(state, query, key, value, key_dim, value_dim, j,
                   Part{static_cast<int>(value_dim - j)}, decay, weight, skip, corrects, out);
  }
}

void ScanColumnsRow(float* state, const float* query, const float* key, const float* value,
                    const float* step, const float* rates, const float* skip, int64_t key_dim,
                    int64_t columns, int64_t count, float* out) {
  ForLanes(count, [&](int64_t c, auto part) {
    const F length = Load(step + c, part), x = Load(value + c, part);
    const F write = length * x;
    F read = {};
    for (int64_t i = 0; i < key_dim; ++i) {
      float* const at = state + i * columns + c;
      const F decay = Exp(Load(rates + i * columns + c, part) * length);
      const F s = Fma(Load(at, part), decay, Splat(key[i]) * write);
      Store(at, s, part);
      read = Fma(Splat(query[i]), s, read);
    }
    const F own = skip == nullptr ? F{} : Load(skip + c, part);
    Store(out + c, Fma(own, x, read), part);
  });
}

// Columns stay in registers from row to row.
void ScanAverageRows(float* state, const float* keys, int64_t key_row, const float* values,
                     int64_t value_row, const float* rates, const float* first, int64_t n,
                     int64_t columns, int64_t count, float* out, int64_t out_row) {
  // What a weight of 0 is a multiple of: its exponential is 0 beside that of any key.
  const F none = Splat(-1e38f);
  ForLanes(count, [&](int64_t c, auto part) {
    F sum = Load(state + c, part), weight = Load(state + columns + c, part);
    F top = Load(state + 2 * columns + c, part);
    top = weight > F{} ? top : none;
    const F rate = Load(rates + c, part), bonus = Load(first + c, part);
    for (int64_t t = 0; t < n; ++t) {
      const F key = Load(keys + t * key_row + c, part), v = Load(values + t * value_row + c, part);
      const F own = key + bonus, most = Max(top, own);
      const F kept = Exp(top - most), mine = Exp(own - most);
      Store(out + t * out_row + c, Fma(kept, sum, mine * v) / Fma(kept, weight, mine), part);
      const F faded = top + rate, next = Max(faded, key);
      const F shrunk = Exp(faded - next), added = Exp(key - next);
      sum = Fma(shrunk, sum, added * v);
      weight = Fma(shrunk, weight, added);
      top = next;
    }
    Store(state + c, sum, part);
    Store(state + columns + c, weight, part);
    Store(state + 2 * columns + c, top, part);
  });
}

// Columns [j, j + kBlock * kLanes) of the state, or the part of one vector.
template <int kBlock, class Count>
KVG_INLINE void ScanDecayColumns(float* state, const float* query, const float* key,
                                 const float* value, const float* decays, const float* find,
                                 const float* write, int64_t key_dim, int64_t value_dim, int64_t j,
                                 Count part, float* out) {
  F found[kBlock] = {}, read[kBlock] = {}, v[kBlock];
  for (int64_t i = 0; i < key_dim; ++i) {
    const F f = Splat(find[i]);
    for (int b = 0; b < kBlock; ++b) {
      found[b] = Fma(f, Load(state + i * value_dim + j + b * kLanes, part), found[b]);
    }
  }
  for (int b = 0; b < kBlock; ++b) v[b] = Load(value + j + b * kLanes, part);
  for (int64_t i = 0; i < key_dim; ++i) {
    const F w = Splat(write[i]), k = Splat(key[i]), q = Splat(query[i]), decay = Splat(decays[i]);
    for (int b = 0; b < kBlock; ++b) {
      float* const at = state + i * value_dim + j + b * kLanes;
      const F s = Fma(k, v[b], Fma(w, found[b], Load(at, part) * decay));
      Store(at, s, part);
      read[b] = Fma(q, s, read[b]);
    }
  }
  for (int b = 0; b < kBlock; ++b) Store(out + j + b * kLanes, read[b], part);
}

void ScanDecayRow(float* state, const float* query, const float* key, const float* value,
                  const float* decays, const float* find, const float* write, int64_t key_dim,
                  int64_t value_dim, float* out) {
  constexpr int kBlock = 4;
  int64_t j = 0;
  for (; j + kBlock * kLanes <= value_dim; j += kBlock * kLanes) {
    ScanDecayColumns<kBlock>(state, query, key, value, decays, find, write, key_dim, value_dim, j,
                             Whole{}, out);
  }
  for (; j + kLanes <= value_dim; j += kLanes) {
    ScanDecayColumns<1>(state, query, key, value, decays, find, write, key_dim, value_dim, j,
                        Whole{}, out);
  }
  if (j < value_dim) {
    ScanDecayColumns<1>(state, query, key, value, decays, find, write, key_dim, value_dim, j,
                        Part{static_cast<int>(value_dim - j)}, out);
  }
}

// Columns [j, j + kBlock * kLanes) of the state, or the part of one vector; own: what the value
// weighs in its own row.
template <int kBlock, class Count>
KVG_INLINE void ScanBonusColumns(float* state, const float* query, const float* key,
                                 const float* value, const float* decays, float own,
                                 int64_t key_dim, int64_t value_dim, int64_t j, Count part,
                                 float* out) {
  F read[kBlock] = {}, v[kBlock];
  for (int b = 0; b < kBlock; ++b) v[b] = Load(value + j + b * kLanes, part);
  for (int64_t i = 0; i < key_dim; ++i) {
    const F k = Splat(key[i]), q = Splat(query[i]), decay = Splat(decays[i]);
    for (int b = 0; b < kBlock; ++b) {
      float* const at = state + i * value_dim + j + b * kLanes;
      const F s = Load(at, part);
      read[b] = Fma(q, s, read[b]);
      Store(at, Fma(k, v[b], s * decay), part);
    }
  }
  for (int b = 0; b < kBlock; ++b) {
    Store(out + j + b * kLanes, Fma(Splat(own), v[b], read[b]), part);
  }
}

void ScanBonusRow(float* state, const float* query, const float* key, const float* value,
                  const float* decays, const float* bonus, int64_t key_dim, int64_t value_dim,
                  float* out) {
  constexpr int kBlock = 4;
  float own = 0;
  for (int64_t i = 0; bonus != nullptr && i < key_dim; ++i) own += query[i] * bonus[i] * key[i];
  int64_t j = 0;
  for (; j + kBlock * kLanes <= value_dim; j += kBlock * kLanes) {
    ScanBonusColumns<kBlock>(state, query, key, value, decays, own, key_dim, value_dim, j, Whole{},
                             out);
  }
  for (; j + kLanes <= value_dim; j += kLanes) {
    ScanBonusColumns<1>(state, query, key, value, decays, own, key_dim, value_dim, j, Whole{}, out);
  }
  if (j < value_dim) {
    ScanBonusColumns<1>(state, query, key, value, decays, own, key_dim, value_dim, j,
                        Part{static_cast<int>(value_dim - j)}, out);
  }
}

void ExponentRow(const float* x, int64_t n, float* out) {
  ForLanes(n, [&](int64_t i, auto part) { Store(out + i, Exp(Load(x + i, part)), part); });
}

constexpr StateKernels kStateKernels = {.convolve = ConvolveRow,
                                        .scan = ScanRow,
                                        .scan_columns = ScanColumnsRow,
                                        .scan_averages = ScanAverageRows,
                                        .scan_decays = ScanDecayRow,
                                        .scan_bonus = ScanBonusRow,
                                        .exponents = ExponentRow};

}  // namespace
}  // namespace kvgauge
