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
#include <cstring>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "cuda/backend_parts.h"
#include "cuda/device/context.h"
#include "cuda/device/graph_recorder.h"
#include "cuda/device/mma.h"
#include "cuda/elements.h"
#include "cuda/experts.h"
#include "cuda/many_rows.h"
#include "cuda/multiply32.h"
#include "cuda/reduce.h"
#include "kernels/linear.h"

namespace kvgauge::cuda {
namespace {

constexpr int kUnit = 32;  // of k, to which rows of 16-bit matrices are padded
constexpr int64_t kSpan = kProductSpan;

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

// Shape of one block: kM x kN outputs by kWarpsM x kWarpsN warps, kStep of k between two barriers.
// kSplit: BlockZ is the span.
template <int kM_, int kN_, int kWarpsM_, int kWarpsN_, int kStages_, int kStep_, bool kSplit_>
struct Tile {
  static constexpr int kM = kM_, kN = kN_, kWarpsM = kWarpsM_, kWarpsN = kWarpsN_;
  static constexpr int kStages = kStages_, kStep = kStep_;
  // Numbers between rows in shared memory: eight rows of 16 bytes meet all banks.
  static constexpr int kTileStride = kStep + 8;
  static constexpr bool kSplit = kSplit_;
  static constexpr int kThreads = kWarpsM * kWarpsN * kWarp;
  static constexpr int kRowsM = kM / kWarpsM / 16;    // mma tiles of a warp
  static constexpr int kColumns = kN / kWarpsN / 16;  // pairs of mma tiles of a warp
  static constexpr int64_t kSharedBytes = int64_t{2} * (kM + kN) * kTileStride * kStages;
};
using Few = Tile<16, 64, 1, 4, 6, 32, true>;
using Many = Tile<128, 128, 2, 4, 4, 32, false>;
using FewOfMany = Tile<16, 64, 1, 4, 6, 32, false>;  // few rows each, of many matrices
constexpr int kSomeRows = 64;  // up to here the time is that of reading the weights

template <bool kBf16>
KVG_DEVICE void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (kBf16) {
    MultiplyAddBf16(c, a, b);
  } else {
    MultiplyAddF16(c, a, b);
  }
}

// Rows of a tile: where they are in x, where their results go, how many there are.
struct TileRows {
  int64_t first, end;  // row r of the tile is row first + r of both, below end
  KVG_MEMBER int64_t count() const { return end - first; }
  KVG_MEMBER int64_t OfX(int64_t r) const { return first + r; }
  KVG_MEMBER int64_t OfOut(int64_t r) const { return first + r < end ? first + r : -1; }
};
struct ChosenTileRows {
  const int32_t* order;
  int64_t rows, share;
  KVG_MEMBER int64_t count() const { return rows; }
  KVG_MEMBER int64_t OfX(int64_t r) const { return order[r] / share; }
  KVG_MEMBER int64_t OfOut(int64_t r) const { return r < rows ? order[r] : -1; }
};

// Starts the copies of one step of both operands, of k below `end`.
template <class T, class Rows>
KVG_DEVICE void LoadStep(const Product& p, const Rows& rows, int64_t column, int64_t k, int64_t end,
                         uint16_t* stage) {
  constexpr int kPieces = T::kStep / 8;  // of 16 bytes, a row
  const auto pieces = static_cast<int>(Least<int64_t>(end - k, T::kStep) / 8);
  for (int i = Thread(); i < (T::kM + T::kN) * kPieces; i += T::kThreads) {
    const int r = i / kPieces, piece = i % kPieces;
    if (piece >= pieces || (r < T::kM && r >= rows.count())) continue;
    // Rows of w past the last one repeat it; their outputs are not stored.
    const uint16_t* from =
        r < T::kM ? p.x + rows.OfX(r) * p.k : p.w + Least(column + r - T::kM, p.n - 1) * p.k;
    CopyAsync16(stage + r * T::kTileStride + piece * 8, from + k + piece * 8);
  }
}

// Rows of a tile that x does not have are 0 in every stage.
template <class T, class Rows>
KVG_DEVICE void ClearAbsentRows(const Rows& rows, uint16_t* tiles) {
  constexpr int kPieces = T::kTileStride / 8;
  if (rows.count() >= T::kM) return;
  const auto first = static_cast<int>(rows.count());
  for (int i = Thread(); i < (T::kM - first) * kPieces * T::kStages; i += T::kThreads) {
    const int r = first + i / kPieces % (T::kM - first), stage = i / kPieces / (T::kM - first);
    uint16_t* const at = tiles + (stage * (T::kM + T::kN) + r) * T::kTileStride + i % kPieces * 8;
    *reinterpret_cast<Uint4*>(at) = {0, 0, 0, 0};
  }
}

// By all threads of a block: one tile of outputs.
template <class T, bool kBf16, class Rows>
KVG_DEVICE void MultiplyTile(const Product& p, const Rows& rows, uint16_t* tiles) {
  constexpr int kTileStride = T::kTileStride, kStep = T::kStep;
  constexpr int kStageNumbers = (T::kM + T::kN) * kTileStride;
  const int64_t column = BlockX() * T::kN;
  const int warp_m = WarpIndex() / T::kWarpsN, warp_n = WarpIndex() % T::kWarpsN;
  const int lane = Lane();

  const int64_t begin = T::kSplit ? BlockZ() * kSpan : 0;
  const int64_t end = T::kSplit ? Least(p.k, begin + kSpan) : p.k;
  const auto steps = static_cast<int>((end - begin + kStep - 1) / kStep);
  constexpr int kSpanSteps = static_cast<int>(kSpan / kStep);

  float sum[T::kRowsM][2 * T::kColumns][4] = {};    // of the span
  float total[T::kRowsM][2 * T::kColumns][4] = {};  // of the spans before
  ClearAbsentRows<T>(rows, tiles);
  for (int s = 0; s < T::kStages - 1; ++s) {
    if (s < steps) LoadStep<T>(p, rows, column, begin + s * kStep, end, tiles + s * kStageNumbers);
    CommitCopies();
  }
  for (int s = 0; s < steps; ++s) {
    WaitCopies<T::kStages - 2>();
    SyncBlock();
    const int next = s + T::kStages - 1;
    if (next < steps) {
      LoadStep<T>(p, rows, column, begin + int64_t{next} * kStep, end,
                  tiles + next % T::kStages * kStageNumbers);
    }
    CommitCopies();
    const uint16_t* tile_x =
        tiles + s % T::kStages * kStageNumbers + warp_m * T::kRowsM * 16 * kTileStride;
    const uint16_t* tile_w =
        tiles + s % T::kStages * kStageNumbers + (T::kM + warp_n * T::kColumns * 16) * kTileStride;
    const auto deep = static_cast<int>(Least<int64_t>(end - begin - int64_t{s} * kStep, kStep));
#pragma unroll
    for (int k = 0; k < kStep; k += 16) {
      if (k >= deep) continue;
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

template <class T, bool kBf16>
KVG_KERNEL(T::kThreads)
MultiplyKernel(Product p) {
  KVG_DYNAMIC_SHARED(uint16_t, tiles);
  MultiplyTile<T, kBf16>(p, TileRows{BlockY() * T::kM, p.m}, tiles);
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

// Few rows. A block is one warp, which takes 16 rows of w over one span of k, as left operands; x
// comes packed as right ones. So nothing but the warp's own copies is waited for, and many reads
// are on their way for each multiplication.
constexpr int kStripRows = 16;
constexpr int kEight = 8;  // rows of x of one right operand
constexpr int kMostEights = kSomeRows / kEight;
constexpr int kUnitNumbers = kStripRows * kUnit;
constexpr int kEightNumbers = kEight * kUnit;

// Where a piece of 8 numbers lies in a unit: eight rows of one piece meet all banks.
KVG_DEVICE int PieceOf(int row, int piece) { return row * kUnit + (piece ^ (row / 2 & 3)) * 8; }

// x [m, stride] as right operands: [8 rows][kUnit of k][lane] of {k 2t, 2t + 8, 2t + 16, 2t + 24}
// and one further each, of row lane / 4. Rows and numbers that x does not have are 0.
KVG_KERNEL(kBlockThreads)
PackRowsKernel(const void* x, DType from, int64_t stride, int64_t m, int64_t k, bool to_bf16,
               int64_t padded_k, int64_t eights, Uint4* out) {
  const int64_t at = BlockX() * kBlockThreads + Thread();
  const int64_t units = padded_k / kUnit;
  if (at >= eights * units * kWarp) return;
  const auto lane = static_cast<int>(at % kWarp);
  const int64_t unit = at / kWarp % units, row = at / kWarp / units * kEight + lane / 4;
  const auto number = [&](int64_t column) {
    return row < m && column < k ? LoadAs(from, x, row * stride + column) : 0.0f;
  };
  const auto pair = [&](int first) {
    const int64_t column = unit * kUnit + first + lane % 4 * 2;
    const float low = number(column), high = number(column + 1);
    return to_bf16 ? PackBf16x2(low, high) : PackHalf2(low, high);
  };
  out[at] = {pair(0), pair(8), pair(16), pair(24)};
}

struct StripProduct : Product {
  const Uint4* packed;  // x
};

// Units of k that are on their way: 1 KiB of w each, and x beside it.
template <int eights>
struct Ring {
  static constexpr int kUnits = eights <= 2 ? 16 : 8;
  static constexpr int kStage = kUnitNumbers + eights * kEightNumbers;
  static constexpr int64_t kBytes = int64_t{2} * kUnits * kStage;
};

// What one unit of k multiplies: w as two left operands, x as two right ones for each eight.
template <int eights>
struct StripOperands {
  uint32_t w[2][4];
  Uint4 x[eights];
};

template <int eights, bool kBf16>
KVG_KERNEL(kWarp)
StripKernel(StripProduct p) {
  KVG_DYNAMIC_SHARED(uint16_t, ring);
  constexpr int kRing = Ring<eights>::kUnits, kStage = Ring<eights>::kStage;
  const int64_t row0 = BlockX() * kStripRows;
  const int lane = Lane();
  const int64_t all_units = p.k / kUnit, begin = BlockZ() * (kSpan / kUnit);
  const auto units = static_cast<int>(Least<int64_t>(all_units - begin, kSpan / kUnit));
  // A lane copies one piece of row lane / 4 and of the row 8 after. Rows past the last one repeat
  // it; their outputs are not stored.
  const int copied = lane / 4, piece = lane % 4;
  const uint16_t* near = p.w + Least(row0 + copied, p.n - 1) * p.k + begin * kUnit + piece * 8;
  const uint16_t* far = p.w + Least(row0 + copied + 8, p.n - 1) * p.k + begin * kUnit + piece * 8;
  const Uint4* packed = p.packed + begin * kWarp + lane;
  const int to_near = PieceOf(copied, piece), to_far = PieceOf(copied + 8, piece);
  int left = units, to_stage = 0;  // of copies
  const auto copy = [&] {
    if (left > 0) {
      uint16_t* const to = ring + to_stage * kStage;
      CopyAsync16(to + to_near, near);
      CopyAsync16(to + to_far, far);
#pragma unroll
      for (int e = 0; e < eights; ++e) {
        CopyAsync16(to + kUnitNumbers + e * kEightNumbers + lane * 8,
                    packed + e * all_units * kWarp);
      }
      near += kUnit;
      far += kUnit;
      packed += kWarp;
      to_stage = to_stage + 1 < kRing ? to_stage + 1 : 0;
      --left;
    }
    CommitCopies();
  };
  const int from = PieceOf(lane % 16, lane / 16), from_next = PieceOf(lane % 16, lane / 16 + 2);
  const auto load = [&](int stage, StripOperands<eights>& operands) {
    const uint16_t* const at = ring + stage * kStage;
    LoadMatrix4(operands.w[0], at + from);
    LoadMatrix4(operands.w[1], at + from_next);
#pragma unroll
    for (int e = 0; e < eights; ++e) {
      operands.x[e] =
          *reinterpret_cast<const Uint4*>(at + kUnitNumbers + e * kEightNumbers + lane * 8);
    }
  };
  float sum[eights][4] = {};
  for (int unit = 0; unit < kRing - 1; ++unit) copy();
  WaitCopies<kRing - 2>();
  SyncWarp();
  StripOperands<eights> operands;
  if (units > 0) load(0, operands);
  for (int unit = 0, stage = 0; unit < units; ++unit) {
    // The operands of the next unit come while those of this one are multiplied.
    const StripOperands<eights> mine = operands;
    stage = stage + 1 < kRing ? stage + 1 : 0;
    WaitCopies<kRing - 3>();
    SyncWarp();
    if (unit + 1 < units) load(stage, operands);
    copy();
#pragma unroll
    for (int e = 0; e < eights; ++e) {
      const uint32_t first[2] = {mine.x[e].x, mine.x[e].y};
      MultiplyAdd<kBf16>(sum[e], mine.w[0], first);
    }
#pragma unroll
    for (int e = 0; e < eights; ++e) {
      const uint32_t second[2] = {mine.x[e].z, mine.x[e].w};
      MultiplyAdd<kBf16>(sum[e], mine.w[1], second);
    }
  }
  const bool partial = p.k > kSpan;
  float* const out = p.out + (partial ? BlockZ() * p.m * p.n : 0);
  const int64_t out_stride = partial ? p.n : p.out_stride;
#pragma unroll
  for (int e = 0; e < eights; ++e) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t r = e * kEight + lane % 4 * 2 + i % 2, c = row0 + lane / 4 + i / 2 * 8;
      if (r >= p.m || c >= p.n) continue;
      float* const at = out + r * out_stride + c;
      if (partial) {
        *at = sum[e][i];
        continue;
      }
      float value = 0.0f + sum[e][i];
      if (p.bias != nullptr) value += p.bias[c];
      *at = p.add ? *at + value : value;
    }
  }
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

// [n, k] as stored, on the device. 16-bit rows are padded with zeros to whole steps.
class DeviceMatrix final : public PackedMatrix {
 public:
  DeviceMatrix(int64_t n, int64_t k, DType dtype)
      : PackedMatrix(n, k, dtype),
        stride_(dtype == DType::kF32 ? k : RoundUp(k, kUnit)),
        bytes_(std::max<int64_t>(n * stride_ * SizeOf(dtype), 1)) {
    data_ = Malloc(bytes_);
    if (data_ == nullptr) throw OutOfDeviceMemory(bytes_);
  }
  DeviceMatrix(const DeviceMatrix&) = delete;
  DeviceMatrix& operator=(const DeviceMatrix&) = delete;
  ~DeviceMatrix() override { Free(data_); }

  int64_t bytes() const override { return bytes_; }
  int64_t stride() const { return stride_; }
  char* data() const { return static_cast<char*>(data_); }

 private:
  int64_t stride_, bytes_;
  void* data_;
};

// Where the matrices lie, on the device.
class DeviceSet final : public MatrixSet {
 public:
  DeviceSet(std::vector<const PackedMatrix*> matrices, Stream stream)
      : MatrixSet(std::move(matrices)) {
    std::vector<const void*> where;
    for (int64_t i = 0; i < size(); ++i) {
      const auto* matrix = dynamic_cast<const DeviceMatrix*>(&(*this)[i]);
      KVG_CHECK(matrix != nullptr, "the matrix was packed by another backend");
      where.push_back(matrix->data());
    }
    stride_ = static_cast<const DeviceMatrix&>((*this)[0]).stride();
    const auto bytes = static_cast<int64_t>(where.size() * sizeof(void*));
    where_ = Malloc(bytes);
    if (where_ == nullptr) throw OutOfDeviceMemory(bytes);
    CopyToDevice(where_, where.data(), bytes, stream);
  }
  DeviceSet(const DeviceSet&) = delete;
  DeviceSet& operator=(const DeviceSet&) = delete;
  ~DeviceSet() override { Free(where_); }

  int64_t stride() const { return stride_; }
  const void* const* where() const { return static_cast<const void* const*>(where_); }

 private:
  int64_t stride_ = 0;
  void* where_;
};

// Element i of a row in host memory that may start at any byte.
float HostNumber(DType dtype, const char* row, int64_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, row + 4 * i, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, row + 2 * i, sizeof bits);
  return dtype == DType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
}

void StoreRow(const Tensor& part, int64_t row, DType store, char* to) {
  const int64_t k = part.shape[1], size = SizeOf(part.dtype);
  const char* from = static_cast<const char*>(part.data) + row * part.stride[0] * size;
  if (part.dtype == store) {
    std::memcpy(to, from, static_cast<size_t>(k * size));
    return;
  }
  for (int64_t i = 0; i < k; ++i) {
    const float value = HostNumber(part.dtype, from, i);
    if (store == DType::kF32) {
      std::memcpy(to + 4 * i, &value, sizeof value);
    } else {
      const uint16_t bits = store == DType::kF16 ? F32ToF16(value) : F32ToBf16(value);
      std::memcpy(to + 2 * i, &bits, sizeof bits);
    }
  }
}

class DeviceLinear final : public LinearOps {
 public:
  explicit DeviceLinear(Context& context) : context_(context) {
    ProductLibrary* const library = FindProductLibrary(&why_not_);
    if (library == nullptr) return;
    name_ = library->name();
    const auto own = [this](const BlockProduct& product, const void* x, const void* w, float* out) {
      Tensor rows(const_cast<void*>(x), product.dtype, {product.rows, product.stride});
      rows.device = Device::kCuda;
      Tensor result(out, DType::kF32, {product.rows, product.n});
      result.device = Device::kCuda;
      MultiplyOwn(rows, product.dtype, w, product.stride, nullptr, false, result);
    };
    many_ = std::make_unique<ManyRows>(*library, context_.stream(), own);
  }

  // Who multiplies many rows, tried with small weights of each type.
  std::string DescribeManyRows() {
    constexpr int64_t kSide = 128, kDepth = kSpan + kUnit;
    if (many_ == nullptr) return StrCat("products of many rows by our kernels (", why_not_, ")");
    std::vector<std::string> with, without;
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      const DeviceMatrix matrix(kSide, kDepth, dtype);
      many_->Prepare(dtype, kSide, matrix.stride(), matrix.data());
      const auto* block = many_->BlockOf(dtype, kSide, matrix.stride(), kSide);
      (block != nullptr ? with : without).emplace_back(NameOf(dtype));
    }
    std::string text = "products of many rows";
    if (!with.empty()) text += StrCat(" of ", kvgauge::Join(with, ", "), " by ", name_);
    if (!without.empty()) {
      text += StrCat(with.empty() ? "" : ",", " of ", kvgauge::Join(without, ", "),
                     " by our kernels (", name_, " gives other bits)");
    }
    return text;
  }

 private:
  std::unique_ptr<PackedMatrix> DoPack(std::span<const Tensor> parts, int64_t n, int64_t k,
                                       DType store) override {
    auto matrix = std::make_unique<DeviceMatrix>(n, k, store);
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
    while (many_ != nullptr && m - done > kSomeRows && Recorder::Open() == nullptr) {
      const ManyRows::Pinned* block =
          many_->BlockOf(w.dtype(), w.out_features(), matrix->stride(), m - done);
      if (block == nullptr) break;
      const int64_t end = std::min(m, done + block->rows);
      MultiplyBlock(*block, x.Slice(done, end), *matrix, bias_data, add, out.Slice(done, end));
      done = end;
    }
    if (done == m) return;
    MultiplyOwn(x.Slice(done, m), w.dtype(), matrix->data(), matrix->stride(), bias_data, add,
                out.Slice(done, m));
  }

  // x holds the block's rows, or the last ones of them.
  void MultiplyBlock(const ManyRows::Pinned& block, const Tensor& x, const DeviceMatrix& w,
                     const float* bias, bool add, Tensor out) {
    constexpr uintptr_t kAligned = 16;
    const int64_t m = x.shape[0], n = w.out_features();
    ScratchScope scratch(context_);
    void* const rows = scratch.Take<char>(block.rows * w.stride() * SizeOf(w.dtype()));
    RoundRowsTo(x, w.dtype(), m, w.stride(), block.rows, rows);
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
  void MultiplyOwn(const Tensor& x, DType dtype, const void* w, int64_t stride, const float* bias,
                   bool add, Tensor out) {
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
    if (m <= kSomeRows) {
      RunStrips(x, dtype, p);
    } else {
      ScratchScope scratch(context_);
      p.x = RoundRows(x, dtype, m, p.k, scratch);
      bf16 ? RunTiles<Many, true>(p, 1) : RunTiles<Many, false>(p, 1);
    }
  }

  std::unique_ptr<MatrixSet> DoCollect(std::vector<const PackedMatrix*> matrices) override {
    return std::make_unique<DeviceSet>(std::move(matrices), context_.stream());
  }

  void DoMatMulChosen(const Tensor& x, const MatrixSet& set, const Tensor& choice,
                      Tensor out) override {
    const auto* chosen = dynamic_cast<const DeviceSet*>(&set);
    KVG_CHECK(chosen != nullptr, "the set is of another backend");
    const int64_t m = out.shape[0], share = m / x.shape[0];
    ScratchScope scratch(context_);
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
    if (m <= kSomeRows) {
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

  // Few rows: spans of k in blocks of their own, so that every multiprocessor reads weights.
  void RunStrips(const Tensor& x, DType dtype, const Product& product) {
    ScratchScope scratch(context_);
    StripProduct p;
    static_cast<Product&>(p) = product;
    const int64_t units = p.k / kUnit, spans = Most<int64_t>(CeilDiv(p.k, kSpan), 1);
    int64_t eights = 1;  // a power of two
    while (eights * kEight < p.m) eights *= 2;
    auto* const packed = scratch.Take<Uint4>(eights * units * kWarp);
    const bool bf16 = dtype == DType::kBF16;
    KVG_LAUNCH(PackRowsKernel,
               {.grid_x = CeilDiv(eights * units * kWarp, kBlockThreads), .threads = kBlockThreads},
               context_.stream(), x.data, x.dtype, x.stride[0], p.m, x.shape[1], bf16, p.k, eights,
               packed);
    p.packed = packed;
    if (spans > 1) p.out = scratch.Take<float>(spans * p.m * p.n);
    static_assert(kMostEights == 8);
    if (eights == 1) {
      RunStripsOf<1>(p, spans, bf16);
    } else if (eights == 2) {
      RunStripsOf<2>(p, spans, bf16);
    } else if (eights == 4) {
      RunStripsOf<4>(p, spans, bf16);
    } else {
      RunStripsOf<8>(p, spans, bf16);
    }
    if (spans > 1) Join(p, spans, product.out);
  }
  template <int eights>
  void RunStripsOf(const StripProduct& p, int64_t spans, bool bf16) {
    const LaunchShape shape = {.grid_x = CeilDiv(p.n, kStripRows),
                               .grid_z = spans,
                               .threads = kWarp,
                               .shared_bytes = Ring<eights>::kBytes};
    if (bf16) {
      KVG_LAUNCH((StripKernel<eights, true>), shape, context_.stream(), p);
    } else {
      KVG_LAUNCH((StripKernel<eights, false>), shape, context_.stream(), p);
    }
  }
  void Join(const Product& p, int64_t spans, float* out) {
    KVG_LAUNCH(JoinSpansKernel,
               {.grid_x = CeilDiv(p.m * p.n, kBlockThreads), .threads = kBlockThreads},
               context_.stream(), p.out, spans, p.m, p.n, p.bias, p.add, out, p.out_stride);
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

  template <class T, bool kBf16>
  void RunTiles(const Product& p, int64_t spans) {
    KVG_LAUNCH((MultiplyKernel<T, kBf16>),
               {.grid_x = CeilDiv(p.n, T::kN),
                .grid_y = CeilDiv(p.m, T::kM),
                .grid_z = spans,
                .threads = T::kThreads,
                .shared_bytes = T::kSharedBytes},
               context_.stream(), p);
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
  const ProductLibrary* const library = FindProductLibrary(&why_not);
  const auto of = [library](int64_t m, int64_t n, int64_t k) {
    const int64_t rounded = RoundUp(m, kSomeRows) * RoundUp(k, kUnit) * 2;
    const int64_t split = CeilDiv(k, kSpan) * std::min<int64_t>(m, kSomeRows) * n * 4;
    if (library == nullptr || m <= kSomeRows) return rounded + split;
    const std::span<const int64_t> blocks = library->blocks();
    const int64_t rows = std::min(blocks.front(), RoundUp(m, blocks.back()));
    return std::max(rounded + split, rows * (RoundUp(k, kUnit) + n) * 4);
  };
  // Chunks of scratch may be there twice before one takes their place.
  return 2 * std::max(of(size.rows, size.widest_out, size.widest_in),
                      of(size.logit_rows, size.head_out, size.head_in));
}

std::unique_ptr<LinearOps> MakeCudaLinear(Context& context) {
  return std::make_unique<DeviceLinear>(context);
}

std::string DescribeManyRows() {
  Context context;
  return DeviceLinear(context).DescribeManyRows();
}

}  // namespace kvgauge::cuda
