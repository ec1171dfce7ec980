// SPDX-License-Identifier: Apache-2.0
#include "kernels/state.h"

#include "src/op_checks.h"

namespace kvgauge {
namespace {

bool IsHeads(const Tensor& t, int64_t rows, int64_t heads, int64_t dim) {
  return t.dtype == DType::kF32 && t.rank == 3 && t.shape[0] == rows && t.shape[1] == heads &&
         t.shape[2] == dim && HasDenseRows(t);
}

bool IsRowsOf(const Tensor& t, int64_t rows, int64_t columns) {
  return IsMatrix(t, DType::kF32) && t.shape[0] == rows && t.shape[1] == columns;
}

}  // namespace

void StateOps::Convolve(const Tensor& x, const Tensor& taps, const Tensor& bias, Tensor past,
                        Tensor out) {
  const auto all = [&] { return OpMessage("Convolve", {x, taps, bias, past, out}); };
  KVG_CHECK(IsMatrix(x, DType::kF32) && IsRowsOf(out, x.shape[0], x.shape[1]), all());
  const int64_t columns = x.shape[1];
  KVG_CHECK(IsMatrix(taps, DType::kF32) && taps.shape[0] >= 1 && taps.shape[1] == columns &&
                taps.IsContiguous(),
            all());
  KVG_CHECK(IsRowsOf(past, taps.shape[0] - 1, columns) && past.IsContiguous(), all());
  KVG_CHECK(bias.empty() || IsVector(bias, DType::kF32, columns), all());
  KVG_CHECK(SameDevice({x, taps, bias, past, out}), all());
  if (x.Numel() == 0) return;
  DoConvolve(x, taps, bias, past, out);
}

void StateOps::Scan(const StateScan& scan, Tensor state, Tensor out) {
  const Tensor &q = scan.queries, &k = scan.keys, &v = scan.values;
  const auto all = [&] {
    return OpMessage("Scan", {q, k, v, scan.steps, scan.weights, scan.step_bias, scan.rates,
                              scan.skip, state, out});
  };
  KVG_CHECK(v.rank == 3 && k.rank == 3, all());
  const int64_t rows = v.shape[0], heads = v.shape[1], key_heads = k.shape[1];
  KVG_CHECK(key_heads >= 1 && heads % key_heads == 0, all());
  KVG_CHECK(IsHeads(k, rows, key_heads, k.shape[2]) && IsHeads(q, rows, key_heads, k.shape[2]),
            all());
  KVG_CHECK(IsHeads(v, rows, heads, v.shape[2]) && IsHeads(out, rows, heads, v.shape[2]), all());
  KVG_CHECK(IsHeads(state, heads, k.shape[2], v.shape[2]) && state.IsContiguous(), all());
  KVG_CHECK(IsRowsOf(scan.steps, rows, heads), all());
  KVG_CHECK(scan.weights.empty() || IsRowsOf(scan.weights, rows, heads), all());
  KVG_CHECK(IsVector(scan.step_bias, DType::kF32, heads) &&
                IsVector(scan.rates, DType::kF32, heads) &&
                (scan.skip.empty() || IsVector(scan.skip, DType::kF32, heads)),
            all());
  KVG_CHECK(SameDevice({q, k, v, scan.steps, scan.weights, scan.step_bias, scan.rates, scan.skip,
                        state, out}),
            all());
  if (v.Numel() == 0) return;
  DoScan(scan, state, out);
}

void StateOps::ScanColumns(const ColumnScan& scan, Tensor state, Tensor out) {
  const Tensor &q = scan.queries, &k = scan.keys, &v = scan.values;
  const auto all = [&] {
    return OpMessage("ScanColumns",
                     {q, k, v, scan.steps, scan.step_bias, scan.rates, scan.skip, state, out});
  };
  KVG_CHECK(IsMatrix(v, DType::kF32) && IsMatrix(k, DType::kF32), all());
  const int64_t rows = v.shape[0], columns = v.shape[1], dim = k.shape[1];
  KVG_CHECK(IsRowsOf(k, rows, dim) && IsRowsOf(q, rows, dim), all());
  KVG_CHECK(IsRowsOf(scan.steps, rows, columns) && IsRowsOf(out, rows, columns), all());
  KVG_CHECK(IsRowsOf(scan.rates, dim, columns) && scan.rates.IsContiguous(), all());
  KVG_CHECK(IsRowsOf(state, dim, columns) && state.IsContiguous(), all());
  KVG_CHECK(IsVector(scan.step_bias, DType::kF32, columns) &&
                (scan.skip.empty() || IsVector(scan.skip, DType::kF32, columns)),
            all());
  KVG_CHECK(SameDevice({q, k, v, scan.steps, scan.step_bias, scan.rates, scan.skip, state, out}),
            all());
  if (v.Numel() == 0) return;
  DoScanColumns(scan, state, out);
}

void StateOps::ScanAverages(const AverageScan& scan, Tensor state, Tensor out) {
  const Tensor &k = scan.keys, &v = scan.values;
  const auto all = [&] {
    return OpMessage("ScanAverages", {k, v, scan.rates, scan.first, state, out});
  };
  KVG_CHECK(IsMatrix(v, DType::kF32), all());
  const int64_t rows = v.shape[0], columns = v.shape[1];
  KVG_CHECK(IsRowsOf(k, rows, columns) && IsRowsOf(out, rows, columns), all());
  KVG_CHECK(
      IsVector(scan.rates, DType::kF32, columns) && IsVector(scan.first, DType::kF32, columns),
      all());
  KVG_CHECK(IsRowsOf(state, 3, columns) && state.IsContiguous(), all());
  KVG_CHECK(SameDevice({k, v, scan.rates, scan.first, state, out}), all());
  if (v.Numel() == 0) return;
  DoScanAverages(scan, state, out);
}

void StateOps::ScanDecays(const DecayScan& scan, Tensor state, Tensor out) {
  const Tensor &k = scan.keys, &v = scan.values;
  const auto all = [&] {
    return OpMessage("ScanDecays",
                     {scan.queries, k, v, scan.rates, scan.finds, scan.writes, state, out});
  };
  KVG_CHECK(v.rank == 3 && k.rank == 3, all());
  const int64_t rows = v.shape[0], heads = v.shape[1], dim = k.shape[2];
  for (const Tensor* t : {&scan.queries, &k, &scan.rates, &scan.finds, &scan.writes}) {
    KVG_CHECK(IsHeads(*t, rows, heads, dim), all());
  }
  KVG_CHECK(IsHeads(v, rows, heads, v.shape[2]) && IsHeads(out, rows, heads, v.shape[2]), all());
  KVG_CHECK(IsHeads(state, heads, dim, v.shape[2]) && state.IsContiguous(), all());
  KVG_CHECK(SameDevice({scan.queries, k, v, scan.rates, scan.finds, scan.writes, state, out}),
            all());
  if (v.Numel() == 0) return;
  DoScanDecays(scan, state, out);
}

void StateOps::ScanBonus(const BonusScan& scan, Tensor state, Tensor out) {
  const Tensor &k = scan.keys, &v = scan.values;
  const auto all = [&] {
    return OpMessage("ScanBonus", {scan.queries, k, v, scan.rates, scan.bonus, state, out});
  };
  KVG_CHECK(v.rank == 3 && k.rank == 3, all());
  const int64_t rows = v.shape[0], heads = v.shape[1], dim = k.shape[2];
  for (const Tensor* t : {&scan.queries, &k, &scan.rates}) {
    KVG_CHECK(IsHeads(*t, rows, heads, dim), all());
  }
  KVG_CHECK(scan.bonus.empty() || (IsRowsOf(scan.bonus, heads, dim) && scan.bonus.IsContiguous()),
            all());
  KVG_CHECK(IsHeads(v, rows, heads, v.shape[2]) && IsHeads(out, rows, heads, v.shape[2]), all());
  KVG_CHECK(IsHeads(state, heads, dim, v.shape[2]) && state.IsContiguous(), all());
  KVG_CHECK(SameDevice({scan.queries, k, v, scan.rates, scan.bonus, state, out}), all());
  if (v.Numel() == 0) return;
  DoScanBonus(scan, state, out);
}

}  // namespace kvgauge
