// SPDX-License-Identifier: Apache-2.0
// Rows that follow each other in one sequence, whose past is a state of constant size.
//
// Here a row's result depends on the rows before it, through the state alone: however a sequence is
// cut into calls, its rows have the same bits.
#pragma once

#include "kernels/tensor.h"

namespace kvgauge {

// What a scan reads of rows t = 0 .. n - 1. All f32, innermost dimension dense. A head h has the
// queries and keys of key head h * key_heads / heads.
struct StateScan {
  Tensor queries, keys;  // [n, key_heads, key_dim]
  Tensor values;         // [n, heads, value_dim]
  // [n, heads]: logits of how long a step takes, and of how much a row writes. Without the second a
  // row writes as much as its step is long.
  Tensor steps, weights;
  Tensor step_bias, rates;  // [heads]; a rate is what the state grows by in a step of one, below 0
  Tensor skip;              // [heads], what a value adds to its own row; empty: nothing
  float least_step = 0.0f, most_step = __builtin_inff();
  // A row writes what its value has beyond that which its key finds (the delta rule).
  bool corrects = false;
};

// What a selective scan (Mamba) reads of the same: each column is a head of one value, whose decay
// has a rate for each number of its state. All f32, innermost dimension dense.
struct ColumnScan {
  Tensor queries, keys;  // [n, key_dim], those of all columns
  Tensor values, steps;  // [n, columns]; logits of how long a step takes
  Tensor step_bias;      // [columns]
  Tensor rates;          // [key_dim, columns] contiguous, below 0
  Tensor skip;           // [columns], what a value adds to its own row; empty: nothing
};

// What a scan of averages in time (RWKV-4) reads. All f32, innermost dimension dense.
struct AverageScan {
  Tensor keys, values;  // [n, columns]; a key is the logarithm of what its value weighs
  Tensor rates;         // [columns], what weights grow by in a row, below 0
  Tensor first;         // [columns], added to a key for its own row
};

// What a scan whose every key dimension decays by itself (RWKV-7) reads. All f32, innermost
// dimension dense.
struct DecayScan {
  Tensor queries, keys;  // [n, heads, key_dim]
  Tensor values;         // [n, heads, value_dim]
  Tensor rates;          // [n, heads, key_dim], what a row of the state grows by, at most 0
  // [n, heads, key_dim]: what a row looks up in the state, and where what it finds is added.
  Tensor finds, writes;
};

// What a scan reads whose rows read before they write (RWKV-6). All f32, innermost dimension dense.
struct BonusScan {
  Tensor queries, keys;  // [n, heads, key_dim]
  Tensor values;         // [n, heads, value_dim]
  Tensor rates;          // [n, heads, key_dim], what a row of the state grows by, at most 0
  // [heads, key_dim] contiguous, what a row's own key weighs for its query; empty: nothing.
  Tensor bonus;
};

class StateOps {
 public:
  virtual ~StateOps() = default;

  // A causal convolution of each column with taps of its own:
  //   out[t] = bias + sum over i of taps[i] * x[t - (width - 1) + i]
  // x, out: [n, columns], not overlapping; taps: [width, columns], width at least 1; bias:
  // [columns] or empty. `past`: [width - 1, columns] contiguous, the rows before the first, oldest
  // first; after the call those before the next. Sums run from the oldest tap on, behind the bias.
  void Convolve(const Tensor& x, const Tensor& taps, const Tensor& bias, Tensor past, Tensor out);

  // For each head, in the order of rows:
  //   step  = min(max(log(1 + e^(steps + step_bias)), least_step), most_step)
  //   S    *= e^(rates * step)
  //   found = corrects ? S^T keys : 0
  //   S    += keys (x) weight * (values - found),  weight = sigmoid(weights), or step
  //   out   = S^T queries + skip * values
  // state: [heads, key_dim, value_dim] contiguous, S before the first row and behind the last one.
  // out: [n, heads, value_dim]. Sums over key_dim are chains in its order.
  void Scan(const StateScan& scan, Tensor state, Tensor out);

  // For each column c, in the order of rows:
  //   step     = log(1 + e^(steps[c] + step_bias[c]))
  //   S[i, c]  = S[i, c] * e^(rates[i, c] * step) + keys[i] * (step * values[c])
  //   out[c]   = sum over i of queries[i] * S[i, c] + skip[c] * values[c]
  // state: [key_dim, columns] contiguous, S before the first row and behind the last one. out: [n,
  // columns]. Sums over key_dim are chains in its order.
  void ScanColumns(const ColumnScan& scan, Tensor state, Tensor out);

  // For each column, in the order of rows:
  //   own   = e^(keys + first)
  //   out   = (sum + own * values) / (weight + own)
  //   sum   = sum * e^rates + e^keys * values,  weight = weight * e^rates + e^keys
  // state: [3, columns] contiguous: sum and weight, both divided by e^top, and top, so that no
  // exponential is larger than 1. All 0: nothing was seen. out: [n, columns].
  void ScanAverages(const AverageScan& scan, Tensor state, Tensor out);

  // For each head, in the order of rows:
  //   found = S^T finds
  //   S     = e^rates * S + writes (x) found + keys (x) values
  //   out   = S^T queries
  // state: [heads, key_dim, value_dim] contiguous, S before the first row and behind the last one.
  // out: [n, heads, value_dim]. Sums over key_dim are chains in its order.
  void ScanDecays(const DecayScan& scan, Tensor state, Tensor out);

  // For each head, in the order of rows:
  //   out = S^T queries + (sum of queries * bonus * keys) * values
  //   S   = e^rates * S + keys (x) values
  // state: [heads, key_dim, value_dim] contiguous, S before the first row and behind the last one.
  // out: [n, heads, value_dim]. Sums over key_dim are chains in its order.
  void ScanBonus(const BonusScan& scan, Tensor state, Tensor out);

 private:
  virtual void DoConvolve(const Tensor& x, const Tensor& taps, const Tensor& bias, Tensor past,
                          Tensor out) = 0;
  virtual void DoScan(const StateScan& scan, Tensor state, Tensor out) = 0;
  virtual void DoScanColumns(const ColumnScan& scan, Tensor state, Tensor out) = 0;
  virtual void DoScanAverages(const AverageScan& scan, Tensor state, Tensor out) = 0;
  virtual void DoScanDecays(const DecayScan& scan, Tensor state, Tensor out) = 0;
  virtual void DoScanBonus(const BonusScan& scan, Tensor state, Tensor out) = 0;
};

}  // namespace kvgauge
