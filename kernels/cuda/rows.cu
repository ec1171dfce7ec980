// SPDX-License-Identifier: Apache-2.0
// RowOps. A row that is reduced belongs to one warp or one block, by its length alone.
#include "cuda/backend_parts.h"
#include "cuda/count.h"
#include "cuda/device/context.h"
#include "cuda/elements.h"
#include "cuda/reduce.h"
#include "kernels/rows.h"

namespace kvgauge::cuda {
namespace {

constexpr float kInfinity = __builtin_inff();

struct In {
  const float* data;
  int64_t rows, d, stride;
  KVG_MEMBER const float* row(int64_t i) const { return data + i * stride; }
};
// The same where a graph may have been made for shorter rows.
struct GrowingIn {
  const float* data;
  int64_t rows, stride;
  Count d;
  KVG_MEMBER const float* row(int64_t i) const { return data + i * stride; }
};
struct Out {
  void* data;
  int64_t stride;
  DType dtype;
  KVG_MEMBER void Put(int64_t i, int64_t j, float value) const {
    StoreAs(dtype, data, i * stride + j, value);
  }
};

// That of a single row means nothing, and grows with the row.
int64_t StrideOf(const Tensor& t) { return t.shape[0] == 1 ? 0 : t.stride[0]; }
In InOf(const Tensor& t) { return {t.f32(), t.shape[0], t.shape[1], StrideOf(t)}; }
GrowingIn GrowingInOf(const Tensor& t) {
  return {t.f32(), t.shape[0], StrideOf(t), CountOf(t.shape[1])};
}
Out OutOf(const Tensor& t) { return {t.data, StrideOf(t), t.dtype}; }
const float* F32OrNull(const Tensor& t) { return t.empty() ? nullptr : t.f32(); }

// Teams whose row lies behind the last one redo the last one and store nothing.
template <class Team>
KVG_DEVICE int64_t RowOf(int64_t rows) {
  return Least(Team::row(), rows - 1);
}
template <class Team>
KVG_DEVICE bool Stores(int64_t rows) {
  return Team::row() < rows;
}

template <class Team>
KVG_KERNEL(kBlockThreads)
RmsNormKernel(In x, const float* weight, float weight_offset, float eps, Out out) {
  const int64_t i = RowOf<Team>(x.rows);
  const float* row = x.row(i);
  float squares = 0;
  for (int64_t j = Team::index(); j < x.d; j += Team::kThreads) {
    squares = Fma(row[j], row[j], squares);
  }
  squares = TeamSum<Team>(squares);
  const float scale = Rsqrt(squares / static_cast<float>(x.d) + eps);
  if (!Stores<Team>(x.rows)) return;
  for (int64_t j = Team::index(); j < x.d; j += Team::kThreads) {
    out.Put(i, j, row[j] * scale * (weight_offset + weight[j]));
  }
}

template <class Team>
KVG_KERNEL(kBlockThreads)
LayerNormKernel(In x, const float* weight, const float* bias, float eps, Out out) {
  const int64_t i = RowOf<Team>(x.rows);
  const float* row = x.row(i);
  float sum = 0;
  for (int64_t j = Team::index(); j < x.d; j += Team::kThreads) sum += row[j];
  const float mean = TeamSum<Team>(sum) / static_cast<float>(x.d);
  float squares = 0;
  for (int64_t j = Team::index(); j < x.d; j += Team::kThreads) {
    squares = Fma(row[j] - mean, row[j] - mean, squares);
  }
  squares = TeamSum<Team>(squares);
  const float scale = Rsqrt(squares / static_cast<float>(x.d) + eps);
  if (!Stores<Team>(x.rows)) return;
  for (int64_t j = Team::index(); j < x.d; j += Team::kThreads) {
    const float w = weight == nullptr ? 1.0f : weight[j];
    const float b = bias == nullptr ? 0.0f : bias[j];
    out.Put(i, j, (row[j] - mean) * scale * w + b);
  }
}

template <class Team>
KVG_KERNEL(kBlockThreads)
SoftmaxKernel(GrowingIn x, float scale, Out out) {
  const int64_t i = RowOf<Team>(x.rows), d = x.d.get();
  const float* row = x.row(i);
  float top = -kInfinity;
  for (int64_t j = Team::index(); j < d; j += Team::kThreads) {
    const float v = scale * row[j];
    top = v > top || IsNan(v) ? v : top;
  }
  top = TeamMax<Team>(top);
  // A row of only -inf: any finite shift makes every weight 0 instead of inf - inf.
  if (top == -kInfinity) top = 0;
  float sum = 0;
  for (int64_t j = Team::index(); j < d; j += Team::kThreads) sum += Exp(scale * row[j] - top);
  sum = TeamSum<Team>(sum);
  if (!Stores<Team>(x.rows)) return;
  for (int64_t j = Team::index(); j < d; j += Team::kThreads) {
    out.Put(i, j, sum == 0 ? 0.0f : Exp(scale * row[j] - top) / sum);
  }
}

template <class Team>
KVG_KERNEL(kBlockThreads)
LogSumExpKernel(GrowingIn x, float* out) {
  const int64_t i = RowOf<Team>(x.rows), d = x.d.get();
  const float* row = x.row(i);
  float top = -kInfinity;
  for (int64_t j = Team::index(); j < d; j += Team::kThreads) {
    top = row[j] > top || IsNan(row[j]) ? row[j] : top;
  }
  top = TeamMax<Team>(top);
  const float shift = Abs(top) == kInfinity ? 0.0f : top;
  float sum = 0;
  for (int64_t j = Team::index(); j < d; j += Team::kThreads) sum += Exp(row[j] - shift);
  sum = TeamSum<Team>(sum);
  if (Stores<Team>(x.rows) && Team::index() == 0) out[i] = shift + Log(sum);
}

KVG_DEVICE float StartOf(Reduction kind) {
  return kind == Reduction::kMax ? -kInfinity : kind == Reduction::kMin ? kInfinity : 0.0f;
}
// One more value; NaN stays.
KVG_DEVICE float Step(Reduction kind, float so_far, float v) {
  switch (kind) {
    case Reduction::kMax:
      return v > so_far || IsNan(v) ? v : so_far;
    case Reduction::kMin:
      return v < so_far || IsNan(v) ? v : so_far;
    case Reduction::kSumAbs:
      return so_far + Abs(v);
    case Reduction::kSumSquares:
    case Reduction::kNorm:
      return Fma(v, v, so_far);
    default:
      return so_far + v;
  }
}
// Two partial results.
KVG_DEVICE float Join(Reduction kind, float a, float b) {
  switch (kind) {
    case Reduction::kMax:
      return a > b || IsNan(a) ? a : b;
    case Reduction::kMin:
      return a < b || IsNan(a) ? a : b;
    default:
      return a + b;
  }
}

template <class Team>
KVG_KERNEL(kBlockThreads)
ReduceRowsKernel(GrowingIn x, Reduction kind, float* out) {
  const int64_t i = RowOf<Team>(x.rows), d = x.d.get();
  const float* row = x.row(i);
  float value = StartOf(kind);
  for (int64_t j = Team::index(); j < d; j += Team::kThreads) value = Step(kind, value, row[j]);
  value = Team::Reduce(value, [kind](float a, float b) { return Join(kind, a, b); });
  if (kind == Reduction::kMean) value = value / static_cast<float>(d);
  if (kind == Reduction::kNorm) value = Sqrt(value);
  if (Stores<Team>(x.rows) && Team::index() == 0) out[i] = value;
}

template <class Team>
KVG_KERNEL(kBlockThreads)
ArgMaxKernel(In x, int32_t* out) {
  const int64_t i = RowOf<Team>(x.rows);
  const float* row = x.row(i);
  // The larger value first, then the lower index.
  uint64_t best = 0;
  for (int64_t j = Team::index(); j < x.d; j += Team::kThreads) {
    const uint64_t key = static_cast<uint64_t>(KeyOf(row[j])) << 32 |
                         static_cast<uint32_t>(~static_cast<uint32_t>(j));
    best = Most(best, key);
  }
  best = Team::Reduce(best, [](uint64_t a, uint64_t b) { return a < b ? b : a; });
  if (Stores<Team>(x.rows) && Team::index() == 0) {
    out[i] = static_cast<int32_t>(~static_cast<uint32_t>(best));
  }
}

// One thread a column; sums in double, rows in order, as on every backend. Loads run ahead.
KVG_KERNEL(kBlockThreads) ReduceColumnsKernel(In x, Reduction kind, float* out) {
  const int64_t j = BlockX() * kBlockThreads + Thread();
  if (j >= x.d) return;
  constexpr int kAhead = 8;
  const bool extreme = kind == Reduction::kMax || kind == Reduction::kMin;
  const bool squares = kind == Reduction::kSumSquares || kind == Reduction::kNorm;
  float best = StartOf(kind);
  double sum = 0;
  const auto take = [&](float v) {
    if (extreme) {
      best = Step(kind, best, v);
    } else {
      if (kind == Reduction::kSumAbs) v = Abs(v);
      sum += squares ? static_cast<double>(v) * v : static_cast<double>(v);
    }
  };
  int64_t i = 0;
  for (; i + kAhead <= x.rows; i += kAhead) {
    float loaded[kAhead];
    for (int k = 0; k < kAhead; ++k) loaded[k] = x.row(i + k)[j];
    for (int k = 0; k < kAhead; ++k) take(loaded[k]);
  }
  for (; i < x.rows; ++i) take(x.row(i)[j]);
  if (kind == Reduction::kMean) sum = sum / static_cast<double>(x.rows);
  if (kind == Reduction::kNorm) sum = Sqrt(sum);
  out[j] = extreme ? best : static_cast<float>(sum);
}

// body(i, j) for every element of [rows, d].
template <class Body>
KVG_KERNEL(kBlockThreads)
ElementKernel(int64_t rows, int64_t d, Body body) {
  const int64_t at = BlockX() * kBlockThreads + Thread();
  if (at >= rows * d) return;
  const Place2 place = PlaceOf(at, d);
  body(place.row, place.column);
}
template <class Body>
void ForEach(const Context& context, int64_t rows, int64_t d, const Body& body) {
  KVG_LAUNCH((ElementKernel<Body>),
             {.grid_x = CeilDiv(rows * d, kBlockThreads), .threads = kBlockThreads},
             context.stream(), rows, d, body);
}

KVG_DEVICE float Apply(Activation act, float x) {
  switch (act) {
    case Activation::kRelu:
      return x > 0 || IsNan(x) ? x : 0.0f;
    case Activation::kSilu:
      return x / (1.0f + Exp(-x));
    case Activation::kGelu:
      // erfc keeps the small values on the negative side.
      return 0.5f * x * Erfc(-x * 0.70710678f);
    case Activation::kGeluTanh: {
      const float inner = 0.79788456f * Fma(0.044715f * x * x, x, x);
      // 0.5 (1 + tanh), in the form that does not cancel.
      return x / (1.0f + Exp(-2.0f * inner));
    }
    case Activation::kExp:
      return Exp(x);
    case Activation::kLog:
      return x < 1.17549435e-38f ? -kInfinity : Log(x);
    case Activation::kSqrt:
      return Sqrt(x);
    case Activation::kGeluQuick:
      return x / (1.0f + Exp(-1.702f * x));
    case Activation::kSigmoid:
      return 1.0f / (1.0f + Exp(-x));
  }
  return x;
}

struct ActivateBody {
  In x;
  Activation act;
  Out out;
  KVG_MEMBER void operator()(int64_t i, int64_t j) const { out.Put(i, j, Apply(act, x.row(i)[j])); }
};
struct GatedBody {
  In x;
  Activation act;
  Out out;
  KVG_MEMBER void operator()(int64_t i, int64_t j) const {
    const float* row = x.row(i);
    out.Put(i, j, Apply(act, row[j]) * row[x.d / 2 + j]);
  }
};
struct CombineBody {
  In a, b;  // b.stride 0: one row for all
  Binary op;
  Out out;
  KVG_MEMBER void operator()(int64_t i, int64_t j) const {
    out.Put(i, j, Combined(a.row(i)[j], b.row(i)[j]));
  }
  KVG_MEMBER float Combined(float x, float y) const {
    switch (op) {
      case Binary::kAdd:
        return x + y;
      case Binary::kSubtract:
        return x - y;
      case Binary::kMultiply:
        return x * y;
      case Binary::kDivide:
        return x / y;
      case Binary::kMin:
        return x < y ? x : y;
      case Binary::kMax:
        return x > y ? x : y;
      case Binary::kLess:
        return x < y ? 1.0f : 0.0f;
    }
    return x;
  }
};
struct AffineBody {
  In x;
  float scale, shift;
  Out out;
  KVG_MEMBER void operator()(int64_t i, int64_t j) const {
    out.Put(i, j, Fma(scale, x.row(i)[j], shift));
  }
};
struct FillBody {
  float value;
  Out out;
  KVG_MEMBER void operator()(int64_t i, int64_t j) const { out.Put(i, j, value); }
};
struct FillColumnsBody {
  float value;
  Count first, count;
  Out out;
  KVG_MEMBER void operator()(int64_t i, int64_t j) const {
    if (j < count.get()) out.Put(i, first.get() + j, value);
  }
};
struct SoftCapBody {
  In x;
  float cap;
  Out out;
  KVG_MEMBER void operator()(int64_t i, int64_t j) const {
    out.Put(i, j, cap * Tanh(x.row(i)[j] / cap));
  }
};
struct ConvertBody {
  const void* x;
  int64_t stride;
  DType dtype;
  Out out;
  KVG_MEMBER void operator()(int64_t i, int64_t j) const {
    const int64_t at = i * stride + j;
    out.Put(i, j,
            dtype == DType::kI32 ? static_cast<float>(static_cast<const int32_t*>(x)[at])
                                 : LoadAs(dtype, x, at));
  }
};
struct RopeTableBody {
  const int32_t* positions;
  int64_t stride;
  const float* inverse_frequency;
  const int32_t* axis;
  float factor;
  Out cos, sin;
  KVG_MEMBER void operator()(int64_t i, int64_t j) const {
    const int64_t which = axis == nullptr ? 0 : axis[j];
    // The product is rounded to f32, as the models were trained; the rest is exact.
    const float angle = static_cast<float>(positions[i * stride + which]) * inverse_frequency[j];
    cos.Put(i, j, static_cast<float>(Cos(static_cast<double>(angle))) * factor);
    sin.Put(i, j, static_cast<float>(Sin(static_cast<double>(angle))) * factor);
  }
};
struct RopeBody {  // j: head * half + pair
  In cos, sin;
  bool interleaved, inverse;
  float* x;
  int64_t stride, head_stride;
  KVG_MEMBER void operator()(int64_t i, int64_t j) const {
    const int64_t half = cos.d;
    const Place2 place = PlaceOf(j, half);
    const int64_t pair = place.column;
    float* head = x + i * stride + place.row * head_stride;
    float* first = head + (interleaved ? 2 * pair : pair);
    float* second = head + (interleaved ? 2 * pair + 1 : pair + half);
    const float c = cos.row(i)[pair], s = inverse ? -sin.row(i)[pair] : sin.row(i)[pair];
    const float a = *first, b = *second;
    *first = a * c - b * s;
    *second = b * c + a * s;
  }
};
// Word 0 of core/rng.h's generator.
struct UniformBody {
  uint64_t seed, stream;
  const int32_t* counter;
  float* out;
  KVG_MEMBER void operator()(int64_t, int64_t j) const {
    uint32_t c0 = static_cast<uint32_t>(counter[j]), c1 = 0;
    uint32_t c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
      const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c1 = static_cast<uint32_t>(p1);
      c3 = static_cast<uint32_t>(p0);
      c0 = n0;
      c2 = n2;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    out[j] = static_cast<float>(c0 >> 8) * (1.0f / 16777216.0f);
  }
};

// Launches the form of a kernel that rows of length d take.
#define KVG_ROWS(kernel, rows, d, ...)                                                  \
  do {                                                                                  \
    if ((d) <= kWarpRow) {                                                              \
      KVG_LAUNCH((kernel<WarpTeam>),                                                    \
                 {.grid_x = CeilDiv(rows, WarpTeam::kTeams), .threads = kBlockThreads}, \
                 context_.stream(), __VA_ARGS__);                                       \
    } else {                                                                            \
      KVG_LAUNCH((kernel<BlockTeam>), {.grid_x = (rows), .threads = kBlockThreads},     \
                 context_.stream(), __VA_ARGS__);                                       \
    }                                                                                   \
  } while (0)

class DeviceRows final : public RowOps {
 public:
  explicit DeviceRows(Context& context) : context_(context) {}

 private:
  void DoRmsNorm(const Tensor& x, const Tensor& weight, float weight_offset, float eps,
                 Tensor out) override {
    KVG_ROWS(RmsNormKernel, x.shape[0], x.shape[1], InOf(x), weight.f32(), weight_offset, eps,
             OutOf(out));
  }
  void DoLayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                   Tensor out) override {
    KVG_ROWS(LayerNormKernel, x.shape[0], x.shape[1], InOf(x), F32OrNull(weight), F32OrNull(bias),
             eps, OutOf(out));
  }
  void DoRopeTable(const Tensor& positions, const Tensor& inverse_frequency, const Tensor& axis,
                   float attention_factor, Tensor cos, Tensor sin) override {
    ForEach(context_, cos.shape[0], cos.shape[1],
            RopeTableBody{positions.i32(), positions.stride[0], inverse_frequency.f32(),
                          axis.empty() ? nullptr : axis.i32(), attention_factor, OutOf(cos),
                          OutOf(sin)});
  }
  void DoRope(const Tensor& cos, const Tensor& sin, RopeLayout layout, RopeDirection direction,
              Tensor x) override {
    ForEach(context_, x.shape[0], x.shape[1] * cos.shape[1],
            RopeBody{InOf(cos), InOf(sin), layout == RopeLayout::kInterleaved,
                     direction == RopeDirection::kInverse, x.f32(), x.stride[0], x.stride[1]});
  }
  void DoActivate(const Tensor& x, Activation act, Tensor out) override {
    ForEach(context_, x.shape[0], x.shape[1], ActivateBody{InOf(x), act, OutOf(out)});
  }
  void DoGatedActivate(const Tensor& x, Activation act, Tensor out) override {
    ForEach(context_, out.shape[0], out.shape[1], GatedBody{InOf(x), act, OutOf(out)});
  }
  void DoCombine(const Tensor& a, const Tensor& b, Binary op, Tensor out) override {
    const In right = b.rank == 1 ? In{b.f32(), 1, b.shape[0], 0} : InOf(b);
    ForEach(context_, a.shape[0], a.shape[1], CombineBody{InOf(a), right, op, OutOf(out)});
  }
  void DoAffine(const Tensor& x, float scale, float shift, Tensor out) override {
    ForEach(context_, x.shape[0], x.shape[1], AffineBody{InOf(x), scale, shift, OutOf(out)});
  }
  void DoFill(float value, Tensor out) override {
    ForEach(context_, out.shape[0], out.shape[1], FillBody{value, OutOf(out)});
  }
  void DoFillColumns(float value, int64_t begin, int64_t end, Tensor out) override {
    // Both may be others in each step.
    constexpr int64_t kAtOnce = 64;
    ForEach(context_, out.shape[0], CeilDiv(end - begin, kAtOnce) * kAtOnce,
            FillColumnsBody{value, CountOf(begin), CountOf(end - begin), OutOf(out)});
  }
  void DoSoftCap(const Tensor& x, float cap, Tensor out) override {
    ForEach(context_, x.shape[0], x.shape[1], SoftCapBody{InOf(x), cap, OutOf(out)});
  }
  void DoSoftmax(const Tensor& x, float scale, Tensor out) override {
    KVG_ROWS(SoftmaxKernel, x.shape[0], x.shape[1], GrowingInOf(x), scale, OutOf(out));
  }
  void DoLogSumExp(const Tensor& x, Tensor out) override {
    KVG_ROWS(LogSumExpKernel, x.shape[0], x.shape[1], GrowingInOf(x), out.f32());
  }
  void DoReduceRows(const Tensor& x, Reduction kind, Tensor out) override {
    KVG_ROWS(ReduceRowsKernel, x.shape[0], x.shape[1], GrowingInOf(x), kind, out.f32());
  }
  void DoReduceColumns(const Tensor& x, Reduction kind, Tensor out) override {
    KVG_LAUNCH(ReduceColumnsKernel,
               {.grid_x = CeilDiv(x.shape[1], kBlockThreads), .threads = kBlockThreads},
               context_.stream(), InOf(x), kind, out.f32());
  }
  void DoArgMax(const Tensor& x, Tensor out) override {
    KVG_ROWS(ArgMaxKernel, x.shape[0], x.shape[1], InOf(x), out.i32());
  }
  void DoConvert(const Tensor& x, Tensor out) override {
    ForEach(context_, x.shape[0], x.shape[1],
            ConvertBody{x.data, x.stride[0], x.dtype, OutOf(out)});
  }
  void DoUniform(uint64_t seed, uint64_t stream, const Tensor& counter, Tensor out) override {
    ForEach(context_, 1, counter.shape[0], UniformBody{seed, stream, counter.i32(), out.f32()});
  }

  Context& context_;
};

}  // namespace

std::unique_ptr<RowOps> MakeCudaRows(Context& context) {
  return std::make_unique<DeviceRows>(context);
}

}  // namespace kvgauge::cuda
