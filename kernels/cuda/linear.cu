// SPDX-License-Identifier: Apache-2.0
// LinearOps.
//
// Products with weights run on tensor cores for bf16 and f16, in kernels of our own, since a
// library chooses its algorithm, and with it the order of its sums, by the number of rows. Many
// rows go to a library where it gives the same bits (many_rows.h). Here every output is the same
// chain whatever the tile it lies in: within spans of kSpan along k one mma of 16 after the other,
// ascending; then the spans' sums in ascending order. So a row has the same bits alone and in a
// batch of any size. A short batch gives spans to different blocks, since its time is that of
// reading the weights; a long one keeps an output's spans in one block.
//
// f32 products are one fused chain over k, ascending, without TF32.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "cuda/backend_parts.h"
#include "cuda/device/context.h"
#include "cuda/device/graph_recorder.h"
#include "cuda/device/mma.h"
#include "cuda/device_matrix.h"
#include "cuda/elements.h"
#include "cuda/experts.h"
#include "cuda/host_rows.h"
#include "cuda/many_rows.h"
#include "cuda/multiply32.h"
#include "cuda/reduce.h"
#include "cuda/rounded_rows.h"
#include "cuda/strips.h"
#include "kernels/linear.h"
#include "kernels/many_rows_report.h"
#include "kernels/rounded_products.h"

namespace kvgauge::cuda {
namespace {

constexpr int kStep = kUnit;  // of k, between two barriers
constexpr int64_t kSpan = kProductSpan;
// Numbers between rows of a tile in shared memory: eight rows of 16 bytes meet all banks.
constexpr int kTileStride = kStep + 8;

struct Product {
  const uint16_t* x;  // [m, k]
  const uint16_t* w;  // [n, k]
  const float* bias;  // or null
  float* out;         // [m, n]; with several split spans: partial sums [spans, m, n]
  int64_t m, n, k;    // k: a multiple of kUnit
  int64_t out_stride;
  bool add;
};

// The same with a matrix for each row: w is not read, and of each tile of rows the table tells
// which they are.
struct ChosenProduct : Product {
  const void* const* matrices;
  ChosenRows rows;
};

// Shape of one block: kM x kN outputs by kWarpsM x kWarpsN warps. kSplit: BlockZ is the span.
template <int kM_, int kN_, int kWarpsM_, int kWarpsN_, int kStages_, bool kSplit_>
struct Tile {
  static constexpr int kM = kM_, kN = kN_, kWarpsM = kWarpsM_, kWarpsN = kWarpsN_;
  static constexpr int kStages = kStages_;
  static constexpr bool kSplit = kSplit_;
  static constexpr int kThreads = kWarpsM * kWarpsN * kWarp;
  static constexpr int kRowsM = kM / kWarpsM / 16;    // mma tiles of a warp
  static constexpr int kColumns = kN / kWarpsN / 16;  // pairs of mma tiles of a warp
  static constexpr int64_t kSharedBytes = int64_t{2} * (kM + kN) * kTileStride * kStages;
};
using Few = Tile<16, 64, 1, 4, 6, true>;
using Many = Tile<128, 128, 2, 4, 4, false>;
using FewOfMany = Tile<16, 64, 1, 4, 6, false>;  // few rows each, of many matrices

template <bool kBf16>
KVG_DEVICE void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (kBf16) {
    MultiplyAddBf16(c, a, b);
  } else {
    MultiplyAddF16(c, a, b);
  }
}

// Rows of a tile: where they are in x, where their results go. Rows past the last one repeat it.
struct TileRows {
  int64_t first, end;  // row r of the tile is row first + r of both, below end
  KVG_MEMBER int64_t OfX(int64_t r) const { return Least(first + r, end - 1); }
  KVG_MEMBER int64_t OfOut(int64_t r) const { return first + r < end ? first + r : -1; }
};
struct ChosenTileRows {
  const int32_t* order;
  int64_t count, share;
  KVG_MEMBER int64_t OfX(int64_t r) const { return order[Least(r, count - 1)] / share; }
  KVG_MEMBER int64_t OfOut(int64_t r) const { return r < count ? order[r] : -1; }
};

// Starts the copies of one step of both operands.
template <class T, class Rows>
KVG_DEVICE void LoadStep(const Product& p, const Rows& rows, int64_t column, int64_t k,
                         uint16_t* stage) {
  constexpr int kPieces = kStep / 8;  // of 16 bytes, a row
  for (int i = Thread(); i < (T::kM + T::kN) * kPieces; i += T::kThreads) {
    const int r = i / kPieces, piece = i % kPieces;
    // Rows of w past the last one repeat it; their outputs are not stored.
    const uint16_t* from =
        r < T::kM ? p.x + rows.OfX(r) * p.k : p.w + Least(column + r - T::kM, p.n - 1) * p.k;
    CopyAsync16(stage + r * kTileStride + piece * 8, from + k + piece * 8);
  }
}

// By all threads of a block: one tile of outputs.
template <class T, bool kBf16, class Rows>
KVG_DEVICE void MultiplyTile(const Product& p, const Rows& rows, uint16_t* tiles) {
  constexpr int kStageNumbers = (T::kM + T::kN) * kTileStride;
  const int64_t column = BlockX() * T::kN;
  const int warp_m = WarpIndex() / T::kWarpsN, warp_n = WarpIndex() % T::kWarpsN;
  const int lane = Lane();

  const int64_t begin = T::kSplit ? BlockZ() * kSpan : 0;
  const int64_t end = T::kSplit ? Least(p.k, begin + kSpan) : p.k;
  const auto steps = static_cast<int>((end - begin) / kStep);
  constexpr int kSpanSteps = static_cast<int>(kSpan / kStep);

  float sum[T::kRowsM][2 * T::kColumns][4] = {};    // of the span
  float total[T::kRowsM][2 * T::kColumns][4] = {};  // of the spans before
  for (int s = 0; s < T::kStages - 1; ++s) {
    if (s < steps) LoadStep<T>(p, rows, column, begin + s * kStep, tiles + s * kStageNumbers);
    CommitCopies();
  }
  for (int s = 0; s < steps; ++s) {
    WaitCopies<T::kStages - 2>();
    SyncBlock();
    const int next = s + T::kStages - 1;
    if (next < steps) {
      LoadStep<T>(p, rows, column, begin + int64_t{next} * kStep,
                  tiles + next % T::kStages * kStageNumbers);
    }
    CommitCopies();
    const uint16_t* tile_x =
        tiles + s % T::kStages * kStageNumbers + warp_m * T::kRowsM * 16 * kTileStride;
    const uint16_t* tile_w =
        tiles + s % T::kStages * kStageNumbers + (T::kM + warp_n * T::kColumns * 16) * kTileStride;
#pragma unroll
    for (int k = 0; k < kStep; k += 16) {
      uint32_t a[T::kRowsM][4];
#pragma unroll
      for (int i = 0; i < T::kRowsM; ++i) {
        LoadMatrix4(a[i], tile_x + (i * 16 + lane % 16) * kTileStride + k + lane / 16 * 8);
      }
#pragma unroll
      for (int j = 0; j < T::kColumns; ++j) {
        uint32_t b[4];
        LoadMatrix4(
            b, tile_w + (j * 16 + lane / 16 * 8 + lane % 8) * kTileStride + k + lane / 8 % 2 * 8);
        const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
        for (int i = 0; i < T::kRowsM; ++i) {
          MultiplyAdd<kBf16>(sum[i][2 * j], a[i], low);
          MultiplyAdd<kBf16>(sum[i][2 * j + 1], a[i], high);
        }
      }
    }
    if (!T::kSplit && (s + 1) % kSpanSteps == 0) {
#pragma unroll
      for (int i = 0; i < T::kRowsM; ++i) {
#pragma unroll
        for (int j = 0; j < 2 * T::kColumns; ++j) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            total[i][j][e] += sum[i][j][e];
            sum[i][j][e] = 0;
          }
        }
      }
    }
  }

  const bool open = T::kSplit || steps % kSpanSteps != 0;  // a last span is not in the total
  const bool partial = T::kSplit && p.k > kSpan;
  float* out = p.out + (partial ? BlockZ() * p.m * p.n : 0);
  const int64_t out_stride = partial ? p.n : p.out_stride;
#pragma unroll
  for (int i = 0; i < T::kRowsM; ++i) {
#pragma unroll
    for (int j = 0; j < 2 * T::kColumns; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t r = rows.OfOut((warp_m * T::kRowsM + i) * 16 + e / 2 * 8 + lane / 4);
        const int64_t c = column + (warp_n * 2 * T::kColumns + j) * 8 + lane % 4 * 2 + e % 2;
        if (r < 0 || c >= p.n) continue;
        float* at = out + r * out_stride + c;
        if (partial) {
          *at = sum[i][j][e];
        } else {
          float value = open ? total[i][j][e] + sum[i][j][e] : total[i][j][e];
          if (p.bias != nullptr) value += p.bias[c];
          *at = p.add ? *at + value : value;
        }
      }
    }
  }
}

template <bool kBf16>
KVG_KERNEL(Many::kThreads)
MultiplyKernel(Product p) {
  KVG_DYNAMIC_SHARED(uint16_t, tiles);
  MultiplyTile<Many, kBf16>(p, TileRows{BlockY() * Many::kM, p.m}, tiles);
}

template <class T, bool kBf16>
KVG_KERNEL(T::kThreads)
MultiplyChosenKernel(ChosenProduct p) {
  KVG_DYNAMIC_SHARED(uint16_t, tiles);
  const ChosenTile tile = p.rows.tiles[BlockY()];
  if (tile.matrix < 0) return;  // the whole block
  p.w = static_cast<const uint16_t*>(p.matrices[tile.matrix]);
  MultiplyTile<T, kBf16>(p, ChosenTileRows{p.rows.order + tile.first, tile.count, p.rows.share},
                         tiles);
}

// Adds the spans' sums in ascending order, starting from 0 as the unsplit kernel does.
KVG_KERNEL(kBlockThreads)
JoinSpansKernel(const float* partial, int64_t spans, int64_t m, int64_t n, const float* bias,
                bool add, float* out, int64_t out_stride) {
  const int64_t at = BlockX() * kBlockThreads + Thread();
  if (at >= m * n) return;
  float value = 0;
  for (int64_t s = 0; s < spans; ++s) value += partial[s * m * n + at];
  const Place2 place = PlaceOf(at, n);
  if (bias != nullptr) value += bias[place.column];
  float* to = out + place.row * out_stride + place.column;
  *to = add ? *to + value : value;
}

// Rounds x to the stored type, in rows of padded_k; zeros behind.
KVG_KERNEL(kBlockThreads)
RoundRowsKernel(const void* x, DType from, int64_t stride, int64_t m, int64_t k, DType to,
                int64_t padded_k, int64_t padded_m, void* out) {
  const int64_t at = BlockX() * kBlockThreads + Thread();
  if (at >= padded_m * padded_k) return;
  const Place2 place = PlaceOf(at, padded_k);
  const bool inside = place.row < m && place.column < k;
  StoreAs(to, out, at, inside ? LoadAs(from, x, place.row * stride + place.column) : 0.0f);
}

constexpr int kRoundedAtOnce = 8;  // numbers of a thread
// The same of f32 to 16 bits, where rows of both are 16-byte aligned and nothing is padded.
KVG_KERNEL(kBlockThreads)
RoundAllKernel(const float* x, int64_t stride, int64_t m, int64_t k, bool to_bf16, uint16_t* out) {
  const int64_t at = (BlockX() * kBlockThreads + Thread()) * kRoundedAtOnce;
  if (at >= m * k) return;
  const Place2 place = PlaceOf(at, k);
  const auto* const from = reinterpret_cast<const Float4*>(x + place.row * stride + place.column);
  const Float4 a = from[0], b = from[1];
  const auto pair = [to_bf16](float low, float high) {
    return to_bf16 ? PackBf16x2(low, high) : PackHalf2(low, high);
  };
  *reinterpret_cast<Uint4*>(out + at) = {pair(a.x, a.y), pair(a.z, a.w), pair(b.x, b.y),
                                         pair(b.z, b.w)};
}

KVG_KERNEL(kBlockThreads)
EmbedKernel(const void* table, DType dtype, int64_t stride, const int32_t* ids, int64_t m,
            int64_t d, float scale, float* out, int64_t out_stride) {
  const int64_t at = BlockX() * kBlockThreads + Thread();
  if (at >= m * d) return;
  const Place2 place = PlaceOf(at, d);
  out[place.row * out_stride + place.column] =
      scale * LoadAs(dtype, table, ids[place.row] * stride + place.column);
}

class DeviceLinear final : public LinearOps, public RoundedProducts, public ManyRowsReport {
 public:
  explicit DeviceLinear(Context& context) : context_(context) {
    ProductLibrary* const library = FindProductLibrary(context.device(), &why_not_);
    if (library == nullptr) return;
    name_ = library->name();
    const auto own = [this](const BlockProduct& product, const void* x, const void* w, float* out) {
      Tensor rows(const_cast<void*>(x), product.dtype, {product.rows, product.stride});
      rows.device = Device::kCuda;
      Tensor result(out, DType::kF32, {product.rows, product.n});
      result.device = Device::kCuda;
      MultiplyOwn(rows, product.dtype, w, product.stride, {}, nullptr, false, result);
    };
    many_ = std::make_unique<ManyRows>(*library, context_.stream(), own);
  }

  std::string who() const override {
    return many_ != nullptr ? name_ : StrCat("our kernels (", why_not_, ")");
  }
  std::span<const std::string> pinned() const override {
    if (many_ == nullptr) return {};
    return many_->records();
  }

  // Who multiplies many rows, tried with small weights of each type.
  std::string DescribeManyRows() {
    constexpr int64_t kSide = 128, kDepth = kSpan + kUnit;
    if (many_ == nullptr) return StrCat("products of many rows by ", who());
    std::vector<std::string> with, without, faults;
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      const DeviceMatrix matrix(kSide, kDepth, dtype, context_.stream());
      many_->Prepare(dtype, kSide, matrix.stride(), matrix.data());
      const auto* block = many_->BlockOf(dtype, kSide, matrix.stride(), kSide);
      (block != nullptr ? with : without).emplace_back(NameOf(dtype));
      const auto known = std::find(faults.begin(), faults.end(), many_->fault());
      if (block == nullptr && known == faults.end()) faults.push_back(many_->fault());
    }
    std::string text = "products of many rows";
    if (!with.empty()) text += StrCat(" of ", kvgauge::Join(with, ", "), " by ", name_);
    if (!without.empty()) {
      text += StrCat(with.empty() ? "" : ",", " of ", kvgauge::Join(without, ", "),
                     " by our kernels (", name_, ": ", kvgauge::Join(faults, "; "), ")");
    }
    return text;
  }

 private:
  std::unique_ptr<PackedMatrix> DoPack(std::span<const Tensor> parts, int64_t n, int64_t k,
                                       DType store) override {
    auto matrix = std::make_unique<DeviceMatrix>(n, k, store, context_.stream());
    if (many_ != nullptr) many_->Prepare(store, n, matrix->stride(), matrix->data());
    const int64_t row_bytes = matrix->stride() * SizeOf(store);
    constexpr int64_t kStagingBytes = int64_t{16} << 20;
    const int64_t rows_at_once =
        std::max<int64_t>(1, kStagingBytes / std::max<int64_t>(row_bytes, 1));
    std::vector<char> staging;
    int64_t done = 0;
    for (const Tensor& part : parts) {
      for (int64_t row = 0; row < part.shape[0];) {
        const int64_t count = std::min(rows_at_once, part.shape[0] - row);
        staging.assign(static_cast<size_t>(count * row_bytes), 0);
        for (int64_t i = 0; i < count; ++i) {
          StoreRow(part, row + i, store, staging.data() + i * row_bytes);
        }
        CopyToDevice(matrix->data() + done * row_bytes, staging.data(), count * row_bytes,
                     context_.stream());
        row += count;
        done += count;
      }
    }
    return matrix;
  }

  void DoMatMul(const Tensor& x, const PackedMatrix& w, const Tensor& bias, MatMulMode mode,
                Tensor out) override {
    const auto* matrix = dynamic_cast<const DeviceMatrix*>(&w);
    KVG_CHECK(matrix != nullptr, "the matrix was packed by another backend");
    const float* bias_data = bias.empty() ? nullptr : bias.f32();
    const bool add = mode == MatMulMode::kAdd;
    // Within a graph our kernels do all rows.
    const int64_t m = x.shape[0];
    int64_t done = 0;
    while (many_ != nullptr && m - done > kMostStripColumns && Recorder::Open() == nullptr) {
      const ManyRows::Pinned* block =
          many_->BlockOf(w.dtype(), w.out_features(), matrix->stride(), m - done);
      if (block == nullptr) break;
      const int64_t end = std::min(m, done + block->rows);
      MultiplyBlock(*block, x.Slice(done, end), *matrix, bias_data, add, out.Slice(done, end));
      done = end;
    }
    if (done == m) return;
    MultiplyOwn(x.Slice(done, m), w.dtype(), matrix->data(), matrix->stride(), matrix->rounding(),
                bias_data, add, out.Slice(done, m));
  }

  // x holds the block's rows, or the last ones of them.
  void MultiplyBlock(const ManyRows::Pinned& block, const Tensor& x, const DeviceMatrix& w,
                     const float* bias, bool add, Tensor out) {
    constexpr uintptr_t kAligned = 16;
    const int64_t m = x.shape[0], n = w.out_features();
    ScratchScope scratch(context_);
    void* const rows = scratch.Take<char>(block.rows * w.stride() * SizeOf(w.dtype()));
    if (w.rounding().rounds) {
      RoundRowsToCodes(CodedRowsOf(x, w.rounding(), w.dtype(), w.stride(), block.rows, rows),
                       context_.stream());
    } else {
      RoundRowsTo(x, w.dtype(), m, w.stride(), block.rows, rows);
    }
    const bool direct = m == block.rows && bias == nullptr && !add && out.stride[0] == n &&
                        reinterpret_cast<uintptr_t>(out.data) % kAligned == 0;
    float* const result = direct ? out.f32() : scratch.Take<float>(block.rows * n);
    many_->Multiply(block, rows, w.data(), result);
    if (direct) return;
    Join({.x = nullptr,
          .w = nullptr,
          .bias = bias,
          .out = result,
          .m = m,
          .n = n,
          .k = w.stride(),
          .out_stride = out.stride[0],
          .add = add},
         1, out.f32());
  }

  // w: [out.shape[1], stride].
  void MultiplyOwn(const Tensor& as_given, DType dtype, const void* w, int64_t stride,
                   const MatrixRounding& rounding, const float* bias, bool add, Tensor out) {
    ScratchScope scratch(context_);
    const Tensor x =
        rounding.rounds ? CodedRows(as_given, rounding, dtype, stride, scratch) : as_given;
    const int64_t m = x.shape[0], n = out.shape[1];
    if (dtype == DType::kF32) {
      Multiply32({.a = x.f32(),
                  .b = static_cast<const float*>(w),
                  .m = m,
                  .n = n,
                  .k = x.shape[1],
                  .a_stride = x.stride[0],
                  .b_row = stride,
                  .b_k = 1,
                  .bias = bias,
                  .alpha = 1.0f,
                  .out = out.f32(),
                  .out_stride = out.stride[0],
                  .add = add},
                 context_.stream());
      return;
    }
    Product p = {.x = nullptr,
                 .w = static_cast<const uint16_t*>(w),
                 .bias = bias,
                 .out = out.f32(),
                 .m = m,
                 .n = n,
                 .k = stride,
                 .out_stride = out.stride[0],
                 .add = add};
    const bool bf16 = dtype == DType::kBF16;
    if (m <= kMostStripColumns) {
      RunStrips(x, dtype, p);
    } else {
      p.x = RoundRows(x, dtype, m, p.k, scratch);
      const LaunchShape shape = {.grid_x = CeilDiv(p.n, Many::kN),
                                 .grid_y = CeilDiv(p.m, Many::kM),
                                 .threads = Many::kThreads,
                                 .shared_bytes = Many::kSharedBytes};
      if (bf16) {
        KVG_LAUNCH((MultiplyKernel<true>), shape, context_.stream(), p);
      } else {
        KVG_LAUNCH((MultiplyKernel<false>), shape, context_.stream(), p);
      }
    }
  }

  std::unique_ptr<MatrixSet> DoCollect(std::vector<const PackedMatrix*> matrices) override {
    return std::make_unique<DeviceSet>(std::move(matrices), context_.stream());
  }

  void DoMatMulChosen(const Tensor& as_given, const MatrixSet& set, const Tensor& choice,
                      Tensor out) override {
    const auto* chosen = dynamic_cast<const DeviceSet*>(&set);
    KVG_CHECK(chosen != nullptr, "the set is of another backend");
    ScratchScope scratch(context_);
    const Tensor x = chosen->rounding().rounds || chosen->roundings() != nullptr
                         ? CodedRowsFor(as_given, *chosen, choice, scratch)
                         : as_given;
    const int64_t m = out.shape[0], share = m / x.shape[0];
    const auto arrange = [&](int64_t tile_rows) {
      return ArrangeRows(choice.i32(), m, share, set.size(), tile_rows, scratch, context_.stream());
    };
    if (set.dtype() == DType::kF32) {
      MultiplyChosen32({.a = x.f32(),
                        .b = nullptr,
                        .m = m,
                        .n = set.out_features(),
                        .k = set.in_features(),
                        .a_stride = x.stride[0],
                        .b_row = chosen->stride(),
                        .b_k = 1,
                        .out = out.f32(),
                        .out_stride = out.stride[0]},
                       chosen->where(), arrange(kRows32), context_.stream());
      return;
    }
    ChosenProduct p;
    p.x = RoundRows(x, set.dtype(), x.shape[0], chosen->stride(), scratch);
    p.w = nullptr;
    p.bias = nullptr;
    p.out = out.f32();
    p.m = m;
    p.n = set.out_features();
    p.k = chosen->stride();
    p.out_stride = out.stride[0];
    p.add = false;
    p.matrices = chosen->where();
    const bool bf16 = set.dtype() == DType::kBF16;
    if (m <= kMostStripColumns) {
      p.rows = arrange(Few::kM);
      float* result = p.out;
      const int64_t spans = CeilDiv(p.k, kSpan);
      if (spans == 1) return RunChosen<Few>(p, bf16, 1);
      p.out = scratch.Take<float>(spans * p.m * p.n);
      RunChosen<Few>(p, bf16, spans);
      Join(p, spans, result);
    } else if (m <= 2 * FewOfMany::kM * set.size()) {
      p.rows = arrange(FewOfMany::kM);
      RunChosen<FewOfMany>(p, bf16, 1);
    } else {
      p.rows = arrange(Many::kM);
      RunChosen<Many>(p, bf16, 1);
    }
  }

  template <class T>
  void RunChosen(const ChosenProduct& p, bool bf16, int64_t spans) {
    const LaunchShape shape = {.grid_x = CeilDiv(p.n, T::kN),
                               .grid_y = p.rows.tile_count,
                               .grid_z = spans,
                               .threads = T::kThreads,
                               .shared_bytes = T::kSharedBytes};
    if (bf16) {
      KVG_LAUNCH((MultiplyChosenKernel<T, true>), shape, context_.stream(), p);
    } else {
      KVG_LAUNCH((MultiplyChosenKernel<T, false>), shape, context_.stream(), p);
    }
  }

  void RunStrips(const Tensor& x, DType dtype, Product p) {
    ScratchScope scratch(context_);
    const int64_t spans = std::max<int64_t>(CeilDiv(p.k, kSpan), 1);
    float* const out = p.out;
    if (spans > 1) p.out = scratch.Take<float>(spans * p.m * p.n);
    MultiplyStrips({.x = x.data,
                    .x_dtype = x.dtype,
                    .x_stride = x.stride[0],
                    .x_columns = x.shape[1],
                    .w = p.w,
                    .dtype = dtype,
                    .bias = p.bias,
                    .out = p.out,
                    .m = p.m,
                    .n = p.n,
                    .k = p.k,
                    .out_stride = p.out_stride,
                    .add = p.add},
                   scratch.Take<char>(StripScratchBytes(p.m, p.k)), context_.stream());
    if (spans > 1) Join(p, spans, out);
  }
  void Join(const Product& p, int64_t spans, float* out) {
    KVG_LAUNCH(JoinSpansKernel,
               {.grid_x = CeilDiv(p.m * p.n, kBlockThreads), .threads = kBlockThreads},
               context_.stream(), p.out, spans, p.m, p.n, p.bias, p.add, out, p.out_stride);
  }

  void DoRoundRowsOf(PackedMatrix& matrix, const RowRounding& rounding) override {
    auto* packed = dynamic_cast<DeviceMatrix*>(&matrix);
    KVG_CHECK(packed != nullptr, "the matrix was packed by another backend");
    packed->set_rounding(rounding);
  }

  // With zeros up to `rows` rows of `stride`.
  static RoundedRows CodedRowsOf(const Tensor& x, const MatrixRounding& rounding, DType dtype,
                                 int64_t stride, int64_t rows, void* out) {
    return {.x = x.data,
            .x_dtype = x.dtype,
            .x_stride = x.stride[0],
            .m = x.shape[0],
            .k = x.shape[1],
            .all = rounding,
            .dtype = dtype,
            .out = out,
            .padded_m = rows,
            .padded_k = stride};
  }
  Tensor CodedRows(const Tensor& x, const MatrixRounding& rounding, DType dtype, int64_t stride,
                   ScratchScope& scratch) {
    const int64_t m = x.shape[0];
    Tensor coded(scratch.Take<char>(m * stride * SizeOf(dtype)), dtype, {m, stride});
    coded.device = Device::kCuda;
    RoundRowsToCodes(CodedRowsOf(x, rounding, dtype, stride, m, coded.data), context_.stream());
    return coded;
  }
  // A row for each choice where it decides.
  Tensor CodedRowsFor(const Tensor& x, const DeviceSet& set, const Tensor& choice,
                      ScratchScope& scratch) {
    if (set.roundings() == nullptr) {
      return CodedRows(x, set.rounding(), set.dtype(), set.stride(), scratch);
    }
    const int64_t m = choice.shape[0];
    Tensor coded(scratch.Take<char>(m * set.stride() * SizeOf(set.dtype())), set.dtype(),
                 {m, set.stride()});
    coded.device = Device::kCuda;
    RoundedRows rows = CodedRowsOf(x, {}, set.dtype(), set.stride(), m, coded.data);
    rows.m = m;
    rows.share = m / x.shape[0];
    rows.of = set.roundings();
    rows.choice = choice.i32();
    RoundRowsToCodes(rows, context_.stream());
    return coded;
  }

  // x itself where it lies as it is multiplied.
  const uint16_t* RoundRows(const Tensor& x, DType dtype, int64_t m, int64_t k,
                            ScratchScope& scratch) {
    constexpr uintptr_t kAligned = 16;
    const bool as_it_lies = x.dtype == dtype && x.shape[1] == k && x.stride[0] == k &&
                            reinterpret_cast<uintptr_t>(x.data) % kAligned == 0;
    if (as_it_lies) return static_cast<const uint16_t*>(x.data);
    auto* rounded = scratch.Take<uint16_t>(m * k);
    RoundRowsTo(x, dtype, m, k, m, rounded);
    return rounded;
  }
  void RoundRowsTo(const Tensor& x, DType dtype, int64_t m, int64_t k, int64_t rows, void* out) {
    constexpr uintptr_t kAligned = 16;
    if (x.dtype == DType::kF32 && dtype != DType::kF32 && m == rows && x.shape[1] == k &&
        k % kRoundedAtOnce == 0 && x.stride[0] % 4 == 0 &&
        reinterpret_cast<uintptr_t>(x.data) % kAligned == 0) {
      KVG_LAUNCH(RoundAllKernel,
                 {.grid_x = CeilDiv(m * k, int64_t{kBlockThreads} * kRoundedAtOnce),
                  .threads = kBlockThreads},
                 context_.stream(), x.f32(), x.stride[0], m, k, dtype == DType::kBF16,
                 static_cast<uint16_t*>(out));
      return;
    }
    KVG_LAUNCH(RoundRowsKernel,
               {.grid_x = CeilDiv(rows * k, kBlockThreads), .threads = kBlockThreads},
               context_.stream(), x.data, x.dtype, x.stride[0], m, x.shape[1], dtype, k, rows, out);
  }

  void DoMatMulNT(const Tensor& a, const Tensor& b, float alpha, Tensor out) override {
    const int64_t m = a.shape[1], n = b.shape[1], k = a.shape[2];
    RunBatched(a, b, alpha, out, m, n, k, k, 1);
  }
  void DoMatMulNN(const Tensor& a, const Tensor& b, float alpha, Tensor out) override {
    const int64_t m = a.shape[1], n = b.shape[2], k = a.shape[2];
    RunBatched(a, b, alpha, out, m, n, k, 1, n);
  }
  void RunBatched(const Tensor& a, const Tensor& b, float alpha, const Tensor& out, int64_t m,
                  int64_t n, int64_t k, int64_t b_row, int64_t b_k) {
    Multiply32({.a = a.f32(),
                .b = b.f32(),
                .batches = a.shape[0],
                .m = m,
                .n = n,
                .k = k,
                .a_stride = k,
                .b_row = b_row,
                .b_k = b_k,
                .alpha = alpha,
                .out = out.f32(),
                .out_stride = n},
               context_.stream());
  }

  void DoEmbed(const Tensor& table, const Tensor& ids, float scale, Tensor out) override {
    KVG_LAUNCH(EmbedKernel,
               {.grid_x = CeilDiv(out.Numel(), kBlockThreads), .threads = kBlockThreads},
               context_.stream(), table.data, table.dtype, table.stride[0], ids.i32(), out.shape[0],
               out.shape[1], scale, out.f32(), out.stride[0]);
  }

  Context& context_;
  std::unique_ptr<ManyRows> many_;  // or null
  std::string name_, why_not_;      // of the library
};

}  // namespace

int64_t LinearScratchBytes(const PassSize& size) {
  std::string why_not;
  const ProductLibrary* const library = FindProductLibrary(CurrentDevice(), &why_not);
  // A choice has a row of its own where each matrix may round in another way.
  const int64_t number = size.rounded_number_bytes;
  const int64_t chosen = size.rows * size.chosen * RoundUp(size.chosen_in, kUnit) * number;
  const auto of = [&](int64_t m, int64_t n, int64_t k) {
    // Strips pack rows anew that were rounded as a file says.
    const int64_t coded = m <= kMostStripColumns ? m : 0, width = RoundUp(k, kUnit);
    const int64_t packed = (RoundUp(m, kMostStripColumns) + coded) * width * 2;
    const int64_t rounded = std::max({packed, m * width * number, chosen});
    const int64_t split = CeilDiv(k, kSpan) * std::min<int64_t>(m, kMostStripColumns) * n * 4;
    if (library == nullptr || m <= kMostStripColumns) return rounded + split;
    const std::span<const int64_t> blocks = library->blocks();
    const int64_t rows = std::min(blocks.front(), RoundUp(m, blocks.back()));
    return std::max(rounded + split, rows * (width + n) * 4);
  };
  // Chunks of scratch may be there twice before one takes their place.
  return 2 * std::max(of(size.rows, size.widest_out, size.widest_in),
                      of(size.logit_rows, size.head_out, size.head_in));
}

std::unique_ptr<LinearOps> MakeCudaLinear(Context& context) {
  return std::make_unique<DeviceLinear>(context);
}

std::string DescribeManyRows() {
  Context context(CurrentDevice());
  return DeviceLinear(context).DescribeManyRows();
}

}  // namespace kvgauge::cuda
