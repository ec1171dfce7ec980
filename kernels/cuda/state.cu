// SPDX-License-Identifier: Apache-2.0
// StateOps. A thread has one column of a head's state, or of all, and goes through the rows in
// order, so that no thread waits for another.
#include "cuda/backend_parts.h"
#include "cuda/device/context.h"
#include "cuda/device/simt.h"
#include "kernels/state.h"

namespace kvgauge::cuda {
namespace {

constexpr int kStateThreads = 128;

struct ConvolveArgs {
  const float* x;
  const float* taps;
  const float* bias;  // or null
  float* past;
  float* out;
  int64_t n, columns, width, x_stride, out_stride;

  // Row t of those before the first, and of the rows behind them.
  KVG_MEMBER float At(int64_t t, int64_t c) const {
    return t < width - 1 ? past[t * columns + c] : x[(t - (width - 1)) * x_stride + c];
  }
};

KVG_KERNEL(kStateThreads) ConvolveKernel(ConvolveArgs a) {
  const int64_t i = BlockX() * BlockThreads() + Thread();
  if (i >= a.n * a.columns) return;
  const int64_t t = i / a.columns, c = i % a.columns;
  float sum = a.bias == nullptr ? 0.0f : a.bias[c];
  for (int64_t tap = 0; tap < a.width; ++tap) {
    sum = Fma(a.taps[tap * a.columns + c], a.At(t + tap, c), sum);
  }
  a.out[t * a.out_stride + c] = sum;
}

// Ascending: what is read lies behind what is written.
KVG_KERNEL(kStateThreads) ShiftPastKernel(ConvolveArgs a) {
  const int64_t c = BlockX() * BlockThreads() + Thread();
  if (c >= a.columns) return;
  for (int64_t i = 0; i < a.width - 1; ++i) a.past[i * a.columns + c] = a.At(a.n + i, c);
}

struct Strided {
  const float* data;
  int64_t row, head;
  KVG_MEMBER const float* At(int64_t t, int64_t h) const { return data + t * row + h * head; }
};

struct ScanArgs {
  Strided queries, keys, values, steps, weights;
  const float* step_bias;
  const float* rates;
  const float* skip;  // or null
  float* state;
  float* out;
  int64_t n, heads, group, key_dim, value_dim, out_row, out_head;
  float least_step, most_step;
  bool corrects;
};

// log(1 + e^logit).
KVG_DEVICE float StepLength(float logit) {
  const float tail = Exp(-Abs(logit));
  // log(1 + tail), which is tail where 1 + tail rounds that away.
  const float grown = 1.0f + tail;
  const float log = grown == 1.0f ? tail : Log(grown) * (tail / (grown - 1.0f));
  return Most(logit, 0.0f) + log;
}

KVG_KERNEL(kStateThreads) ScanKernel(ScanArgs a) {
  const int64_t h = BlockY();
  const int64_t j = BlockX() * BlockThreads() + Thread();
  if (j >= a.value_dim) return;
  float* const column = a.state + h * a.key_dim * a.value_dim + j;
  const float bias = a.step_bias[h], rate = a.rates[h];
  const float skip = a.skip == nullptr ? 0.0f : a.skip[h];
  for (int64_t t = 0; t < a.n; ++t) {
    const float length = StepLength(*a.steps.At(t, h) + bias);
    const float step = Least(Most(length, a.least_step), a.most_step);
    const float decay = Exp(rate * step);
    const float weight =
        a.weights.data == nullptr ? step : 1.0f / (1.0f + Exp(-*a.weights.At(t, h)));
    const float* const key = a.keys.At(t, h / a.group);
    const float* const query = a.queries.At(t, h / a.group);
    const float value = a.values.At(t, h)[j];
    float found = 0;
    for (int64_t i = 0; a.corrects && i < a.key_dim; ++i) {
      found = Fma(key[i], column[i * a.value_dim] * decay, found);
    }
    const float write = weight * (value - found);
    float read = 0;
    for (int64_t i = 0; i < a.key_dim; ++i) {
      const float s = Fma(key[i], write, column[i * a.value_dim] * decay);
      column[i * a.value_dim] = s;
      read = Fma(query[i], s, read);
    }
    a.out[t * a.out_row + h * a.out_head + j] = Fma(skip, value, read);
  }
}

struct ColumnScanArgs {
  Strided queries, keys, values, steps;
  const float* step_bias;
  const float* rates;
  const float* skip;  // or null
  float* state;
  float* out;
  int64_t n, columns, key_dim, out_row;
};

KVG_KERNEL(kStateThreads) ScanColumnsKernel(ColumnScanArgs a) {
  const int64_t c = BlockX() * BlockThreads() + Thread();
  if (c >= a.columns) return;
  const float bias = a.step_bias[c], skip = a.skip == nullptr ? 0.0f : a.skip[c];
  for (int64_t t = 0; t < a.n; ++t) {
    const float step = StepLength(a.steps.At(t, 0)[c] + bias);
    const float value = a.values.At(t, 0)[c], write = step * value;
    const float* const key = a.keys.At(t, 0);
    const float* const query = a.queries.At(t, 0);
    float read = 0;
    for (int64_t i = 0; i < a.key_dim; ++i) {
      const int64_t at = i * a.columns + c;
      const float s = Fma(a.state[at], Exp(a.rates[at] * step), key[i] * write);
      a.state[at] = s;
      read = Fma(query[i], s, read);
    }
    a.out[t * a.out_row + c] = Fma(skip, value, read);
  }
}

struct AverageScanArgs {
  Strided keys, values;
  const float* rates;
  const float* first;
  float* state;
  float* out;
  int64_t n, columns, out_row;
};

KVG_KERNEL(kStateThreads) ScanAveragesKernel(AverageScanArgs a) {
  const int64_t c = BlockX() * BlockThreads() + Thread();
  if (c >= a.columns) return;
  float sum = a.state[c], weight = a.state[a.columns + c];
  // What a weight of 0 is a multiple of: its exponential is 0 beside that of any key.
  float top = weight > 0 ? a.state[2 * a.columns + c] : -1e38f;
  const float rate = a.rates[c], bonus = a.first[c];
  for (int64_t t = 0; t < a.n; ++t) {
    const float key = a.keys.At(t, 0)[c], value = a.values.At(t, 0)[c];
    const float own = key + bonus, most = Most(top, own);
    const float kept = Exp(top - most), mine = Exp(own - most);
    a.out[t * a.out_row + c] = Fma(kept, sum, mine * value) / Fma(kept, weight, mine);
    const float faded = top + rate, next = Most(faded, key);
    const float shrunk = Exp(faded - next), added = Exp(key - next);
    sum = Fma(shrunk, sum, added * value);
    weight = Fma(shrunk, weight, added);
    top = next;
  }
  a.state[c] = sum;
  a.state[a.columns + c] = weight;
  a.state[2 * a.columns + c] = top;
}

struct DecayScanArgs {
  Strided queries, keys, values, rates, finds, writes;
  float* state;
  float* out;
  int64_t n, key_dim, value_dim, out_row, out_head;
};

KVG_KERNEL(kStateThreads) ScanDecaysKernel(DecayScanArgs a) {
  const int64_t h = BlockY();
  const int64_t j = BlockX() * BlockThreads() + Thread();
  if (j >= a.value_dim) return;
  float* const column = a.state + h * a.key_dim * a.value_dim + j;
  for (int64_t t = 0; t < a.n; ++t) {
    const float* const query = a.queries.At(t, h);
    const float* const key = a.keys.At(t, h);
    const float* const rate = a.rates.At(t, h);
    const float* const find = a.finds.At(t, h);
    const float* const write = a.writes.At(t, h);
    const float value = a.values.At(t, h)[j];
    float found = 0;
    for (int64_t i = 0; i < a.key_dim; ++i) found = Fma(find[i], column[i * a.value_dim], found);
    float read = 0;
    for (int64_t i = 0; i < a.key_dim; ++i) {
      const float shrunk = column[i * a.value_dim] * Exp(rate[i]);
      const float s = Fma(key[i], value, Fma(write[i], found, shrunk));
      column[i * a.value_dim] = s;
      read = Fma(query[i], s, read);
    }
    a.out[t * a.out_row + h * a.out_head + j] = read;
  }
}

struct BonusScanArgs {
  Strided queries, keys, values, rates;
  const float* bonus;  // or null
  float* state;
  float* out;
  int64_t n, key_dim, value_dim, out_row, out_head;
};

KVG_KERNEL(kStateThreads) ScanBonusKernel(BonusScanArgs a) {
  const int64_t h = BlockY();
  const int64_t j = BlockX() * BlockThreads() + Thread();
  if (j >= a.value_dim) return;
  float* const column = a.state + h * a.key_dim * a.value_dim + j;
  for (int64_t t = 0; t < a.n; ++t) {
    const float* const query = a.queries.At(t, h);
    const float* const key = a.keys.At(t, h);
    const float* const rate = a.rates.At(t, h);
    const float value = a.values.At(t, h)[j];
    float own = 0, read = 0;
    for (int64_t i = 0; i < a.key_dim; ++i) {
      const float before = column[i * a.value_dim];
      read = Fma(query[i], before, read);
      column[i * a.value_dim] = Fma(key[i], value, before * Exp(rate[i]));
      if (a.bonus != nullptr) own = Fma(query[i] * a.bonus[h * a.key_dim + i], key[i], own);
    }
    a.out[t * a.out_row + h * a.out_head + j] = Fma(own, value, read);
  }
}

Strided StridedOf(const Tensor& t) {
  if (t.empty()) return {nullptr, 0, 0};
  return {t.f32(), t.stride[0], t.stride[1]};
}

class DeviceState final : public StateOps {
 public:
  explicit DeviceState(Context& context) : context_(context) {}

 private:
  void DoConvolve(const Tensor& x, const Tensor& taps, const Tensor& bias, Tensor past,
                  Tensor out) override {
    const ConvolveArgs args = {x.f32(),          taps.f32(),    bias.empty() ? nullptr : bias.f32(),
                               past.As<float>(), out.f32(),     x.shape[0],
                               x.shape[1],       taps.shape[0], x.stride[0],
                               out.stride[0]};
    KVG_LAUNCH(ConvolveKernel,
               {.grid_x = CeilDiv(args.n * args.columns, kStateThreads), .threads = kStateThreads},
               context_.stream(), args);
    KVG_LAUNCH(ShiftPastKernel,
               {.grid_x = CeilDiv(args.columns, kStateThreads), .threads = kStateThreads},
               context_.stream(), args);
  }

  void DoScan(const StateScan& scan, Tensor state, Tensor out) override {
    const Tensor& v = scan.values;
    const ScanArgs args = {StridedOf(scan.queries),
                           StridedOf(scan.keys),
                           StridedOf(v),
                           StridedOf(scan.steps),
                           StridedOf(scan.weights),
                           scan.step_bias.f32(),
                           scan.rates.f32(),
                           scan.skip.empty() ? nullptr : scan.skip.f32(),
                           state.f32(),
                           out.f32(),
                           v.shape[0],
                           v.shape[1],
                           v.shape[1] / scan.keys.shape[1],
                           scan.keys.shape[2],
                           v.shape[2],
                           out.stride[0],
                           out.stride[1],
                           scan.least_step,
                           scan.most_step,
                           scan.corrects};
    KVG_LAUNCH(ScanKernel,
               {.grid_x = CeilDiv(v.shape[2], kStateThreads),
                .grid_y = v.shape[1],
                .threads = kStateThreads},
               context_.stream(), args);
  }

  void DoScanColumns(const ColumnScan& scan, Tensor state, Tensor out) override {
    const ColumnScanArgs args = {StridedOf(scan.queries),
                                 StridedOf(scan.keys),
                                 StridedOf(scan.values),
                                 StridedOf(scan.steps),
                                 scan.step_bias.f32(),
                                 scan.rates.f32(),
                                 scan.skip.empty() ? nullptr : scan.skip.f32(),
                                 state.f32(),
                                 out.f32(),
                                 scan.values.shape[0],
                                 scan.values.shape[1],
                                 scan.keys.shape[1],
                                 out.stride[0]};
    KVG_LAUNCH(ScanColumnsKernel,
               {.grid_x = CeilDiv(args.columns, kStateThreads), .threads = kStateThreads},
               context_.stream(), args);
  }

  void DoScanAverages(const AverageScan& scan, Tensor state, Tensor out) override {
    const AverageScanArgs args = {StridedOf(scan.keys), StridedOf(scan.values),
                                  scan.rates.f32(),     scan.first.f32(),
                                  state.f32(),          out.f32(),
                                  scan.values.shape[0], scan.values.shape[1],
                                  out.stride[0]};
    KVG_LAUNCH(ScanAveragesKernel,
               {.grid_x = CeilDiv(args.columns, kStateThreads), .threads = kStateThreads},
               context_.stream(), args);
  }

  void DoScanDecays(const DecayScan& scan, Tensor state, Tensor out) override {
    const Tensor& v = scan.values;
    const DecayScanArgs args = {StridedOf(scan.queries),
                                StridedOf(scan.keys),
                                StridedOf(v),
                                StridedOf(scan.rates),
                                StridedOf(scan.finds),
                                StridedOf(scan.writes),
                                state.f32(),
                                out.f32(),
                                v.shape[0],
                                scan.keys.shape[2],
                                v.shape[2],
                                out.stride[0],
                                out.stride[1]};
    KVG_LAUNCH(ScanDecaysKernel,
               {.grid_x = CeilDiv(v.shape[2], kStateThreads),
                .grid_y = v.shape[1],
                .threads = kStateThreads},
               context_.stream(), args);
  }

  void DoScanBonus(const BonusScan& scan, Tensor state, Tensor out) override {
    const Tensor& v = scan.values;
    const BonusScanArgs args = {StridedOf(scan.queries),
                                StridedOf(scan.keys),
                                StridedOf(v),
                                StridedOf(scan.rates),
                                scan.bonus.empty() ? nullptr : scan.bonus.f32(),
                                state.f32(),
                                out.f32(),
                                v.shape[0],
                                scan.keys.shape[2],
                                v.shape[2],
                                out.stride[0],
                                out.stride[1]};
    KVG_LAUNCH(ScanBonusKernel,
               {.grid_x = CeilDiv(v.shape[2], kStateThreads),
                .grid_y = v.shape[1],
                .threads = kStateThreads},
               context_.stream(), args);
  }

  Context& context_;
};

}  // namespace

std::unique_ptr<StateOps> MakeCudaState(Context& context) {
  return std::make_unique<DeviceState>(context);
}

}  // namespace kvgauge::cuda
