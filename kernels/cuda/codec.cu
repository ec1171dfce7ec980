// SPDX-License-Identifier: Apache-2.0
// Coding and decoding of pages. Every step is one f32 operation, rounded once, as the contract has
// it: codes are those of every other backend.
#include <cmath>

#include "cuda/codec_kernels.h"
#include "cuda/codec_number.h"

namespace kvgauge::cuda {
namespace {

constexpr int kThreads = 256;

struct Numbers {
  const float* first;  // entry 0 of the page, dim 0
  int64_t stride;
  KVG_BOTH float operator()(int entry, int dim) const { return first[entry * stride + dim]; }
};
KVG_DEVICE Numbers NumbersOf(const CodecCall& call, const PagePart& part) {
  return {call.rows + (part.row - part.begin) * call.stride, call.stride};
}

KVG_KERNEL(kThreads) DecodeKernel(CodecCall call, int dim) {
  const PagePart part = call.parts[BlockX()];
  const CodecView& codec = *call.codec;
  for (int i = Thread(); i < (part.end - part.begin) * dim; i += BlockThreads()) {
    const int entry = part.begin + i / dim;
    call.rows[(part.row + i / dim) * call.stride + i % dim] =
        DecodedNumber(codec, part.page, entry, i % dim);
  }
}

// Sixteen interleaved chains over n numbers, joined by halves: the order every backend sums in.
template <class TermOf>
KVG_DEVICE float ChainSum(int n, TermOf term_of) {
  float sum = 0.0f;
  for (int i = Lane(); i < n && Lane() < 16; i += 16) sum = sum + term_of(i);
  for (int half = 8; half > 0; half /= 2) sum = sum + ShuffleXor(sum, half);
  return Shuffle(sum, 0);
}

constexpr int kMostVector = 1024;  // numbers of a vector with outliers
constexpr int kVectorWarps = kThreads / kWarp;

KVG_KERNEL(kThreads) FindOutliersKernel(CodecCall call, int dim, float* kept, uint32_t* marks) {
  KVG_SHARED(float, vectors, kVectorWarps* kMostVector);
  KVG_SHARED(uint32_t, mine, 2 * kMostVector);
  const PagePart part = call.parts[BlockX()];
  const CodecView& codec = *call.codec;
  const Numbers x = NumbersOf(call, part);
  float* const out = kept + part.row * dim;
  for (int i = Thread(); i < 2 * dim; i += BlockThreads()) mine[i] = 0;
  SyncBlock();
  if (codec.fixed_range) {
    for (int i = Thread(); i < kPageEntries * dim; i += BlockThreads()) {
      const int entry = i / dim, d = i % dim;
      const float v = x(entry, d);
      out[i] = v;
      if (v < codec.low[d] || v > codec.high[d]) {
        AtomicOr(&mine[d * 2 + entry / 32], uint32_t{1} << entry % 32);
      }
    }
  }
  const int count = codec.by_token ? kPageEntries : dim, n = codec.by_token ? dim : kPageEntries;
  const int side = codec.outliers_a_side;
  float* const vector = vectors + WarpIndex() * kMostVector;
  for (int v = WarpIndex(); v < count && !codec.fixed_range; v += kVectorWarps) {
    for (int i = Lane(); i < n; i += kWarp) vector[i] = codec.by_token ? x(v, i) : x(i, v);
    SyncWarp();
    const auto taken = [&](int i) {
      const float value = vector[i];
      int rank = 0;  // in a stable order
      for (int j = 0; j < n; ++j) {
        rank += vector[j] < value || (vector[j] == value && j < i) ? 1 : 0;
      }
      return rank < side || rank >= n - side;
    };
    for (int i = Lane(); i < n; i += kWarp) {
      if (!taken(i)) continue;
      const int entry = codec.by_token ? v : i, d = codec.by_token ? i : v;
      AtomicOr(&mine[d * 2 + entry / 32], uint32_t{1} << entry % 32);
    }
    // A warp alone marks its vector, and sees its marks after this.
    SyncWarp();
    const auto marked = [&](int i) {
      const int entry = codec.by_token ? v : i, d = codec.by_token ? i : v;
      return (mine[d * 2 + entry / 32] >> entry % 32 & 1) != 0;
    };
    int rest = 0;
    for (int i = Lane(); i < n; i += kWarp) rest += marked(i) ? 0 : 1;
    rest = WarpSum(rest);
    const float sum = ChainSum(n, [&](int i) { return marked(i) ? 0.0f : vector[i]; });
    const float mean = rest > 0 ? sum / static_cast<float>(rest) : 0.0f;
    for (int i = Lane(); i < n; i += kWarp) {
      const int entry = codec.by_token ? v : i, d = codec.by_token ? i : v;
      out[entry * dim + d] = marked(i) ? mean : vector[i];
    }
    SyncWarp();
  }
  SyncBlock();
  for (int i = Thread(); i < 2 * dim; i += BlockThreads()) marks[BlockX() * dim * 2 + i] = mine[i];
}

KVG_KERNEL(kThreads) CountMarksKernel(CodecCall, int dim, const uint32_t* marks, uint32_t* counts) {
  KVG_SHARED(uint32_t, total, 1);
  if (Thread() == 0) *total = 0;
  SyncBlock();
  uint32_t sum = 0;
  for (int i = Thread(); i < 2 * dim; i += BlockThreads()) {
    sum += static_cast<uint32_t>(PopCount(marks[BlockX() * dim * 2 + i]));
  }
  AtomicAdd(total, sum);
  SyncBlock();
  if (Thread() == 0) counts[BlockX()] = *total;
}

KVG_KERNEL(kThreads)
WriteOutliersKernel(CodecCall call, int dim, const uint32_t* marks, uint8_t* const* blocks,
                    const uint32_t* counts) {
  KVG_SHARED(uint32_t, words, 2 * kMostVector);
  const PagePart part = call.parts[BlockX()];
  auto* const block = reinterpret_cast<uint32_t*>(blocks[BlockX()]);
  for (int i = Thread(); i < 2 * dim; i += BlockThreads()) {
    words[i] = marks[BlockX() * dim * 2 + i];
  }
  SyncBlock();
  if (block == nullptr) return;
  const Numbers x = NumbersOf(call, part);
  const uint32_t most = counts[BlockX()];  // more there are only of numbers without an order
  for (int i = Thread(); i < 2 * dim; i += BlockThreads()) {
    uint32_t at = 0;
    for (int before = 0; before < i; ++before) at += static_cast<uint32_t>(PopCount(words[before]));
    for (uint32_t left = words[i]; left != 0 && at < most; left &= left - 1) {
      const int place = i * 32 + FindFirst(left) - 1;
      const uint16_t value = ClampedHalf(x(place % kPageEntries, place / kPageEntries));
      block[1 + at++] = static_cast<uint32_t>(place) | static_cast<uint32_t>(value) << 16;
    }
    if (i == 2 * dim - 1) block[0] = Least(at, most);
  }
}

// What a group's codes are computed with.
struct GroupCoding {
  float scale, zero;  // as stored
  float factor;       // of the block formats and exact scales: the unrounded inverse
  float low;          // of these: the least number, unrounded
};

KVG_DEVICE float Inverse(float d) {
  constexpr float kSmallestNormal = 0x1p-126f;
  return Abs(d) >= kSmallestNormal ? 1.0f / d : 0.0f;
}

KVG_DEVICE GroupCoding CodingOf(const CodecView& c, float low, float high, float signed_largest,
                                float mean_square) {
  low = low + 0.0f;
  high = high + 0.0f;
  const float largest = Most(high, -low);
  GroupCoding g = {0.0f, 0.0f, 0.0f, low};
  switch (c.kind) {
    case KvCodecKind::kQ8_0: {
      const float d = largest / 127.0f;
      g.scale = AsStored(d);
      g.factor = Inverse(d);
      return g;
    }
    case KvCodecKind::kQ4_0:
    case KvCodecKind::kQ5_0: {
      const float d = signed_largest / -static_cast<float>(c.shift);
      g.scale = AsStored(d);
      g.factor = Inverse(d);
      return g;
    }
    case KvCodecKind::kQ4_1:
    case KvCodecKind::kQ5_1: {
      const float d = (high - low) / static_cast<float>((1 << c.bits) - 1);
      g.scale = AsStored(d);
      g.zero = AsStored(low);
      g.factor = Inverse(d);
      return g;
    }
    case KvCodecKind::kIq4Nl:  // the scale is to follow
      g.scale = signed_largest / c.levels[0];
      g.factor = Inverse(g.scale);
      return g;
    case KvCodecKind::kMxFp4: {
      const int exponent = static_cast<int>(BitsOf(largest) >> 23);
      g.scale = FromE8M0(exponent < 2 ? 0 : exponent - 2);
      return g;
    }
    case KvCodecKind::kNvFp4: {
      const Float8Form form = FormOfFloat8(KvCodecKind::kFp8E4M3);
      g.scale = FromFloat8(form, ToFloat8(form, largest / 6.0f / c.scale_unit)) * c.scale_unit;
      return g;
    }
    case KvCodecKind::kFp8E4M3:
    case KvCodecKind::kFp8E5M2:
      g.scale = largest / FormOfFloat8(c.kind).largest;
      return g;
    case KvCodecKind::kCodebook:
      if (c.range == CodeRange::kRms) {
        g.scale = AsStored(Sqrt(mean_square));
      } else if (c.range == CodeRange::kLargest) {
        g.scale = AsStored(largest);
      } else {
        g.scale = AsStored(0.5f * high - 0.5f * low);
        g.zero = AsStored(0.5f * low + 0.5f * high);
      }
      return g;
    default: {
      const float top = static_cast<float>((1 << c.bits) - 1);
      const float middle = static_cast<float>(1 << (c.bits - 1));
      g.low = low * c.clip + 0.0f;
      const float last = high * c.clip + 0.0f;
      const float d = c.symmetric ? largest / (middle - 1.0f) : (last - g.low) / top;
      g.scale = AsStored(d);
      g.zero = c.symmetric ? 0.0f : AsStored(g.low);
      if (c.exact_scale) g.factor = Inverse(d);
      return g;
    }
  }
}

KVG_DEVICE int UnevenCode(const CodecView& c, float scaled) {
  int code = 0;  // of two the higher
  while (code < 15 && scaled >= 0.5f * (c.levels[code] + c.levels[code + 1])) ++code;
  return code;
}

KVG_DEVICE int CodeOf(const CodecView& c, const GroupCoding& g, float v) {
  switch (c.kind) {
    case KvCodecKind::kFp8E4M3:
    case KvCodecKind::kFp8E5M2:
      return ToFloat8(FormOfFloat8(c.kind), g.scale == 0.0f ? 0.0f * v : v / g.scale);
    case KvCodecKind::kMxFp4:
    case KvCodecKind::kNvFp4:
      return ToFloat4(g.scale == 0.0f ? 0.0f * v : v / g.scale);
    case KvCodecKind::kIq4Nl:
      return UnevenCode(c, v * g.factor);
    case KvCodecKind::kQ8_0: {
      // Half away from zero.
      const float x = v * g.factor, whole = Floor(Abs(x));
      const int size = static_cast<int>(Abs(x) - whole >= 0.5f ? whole + 1.0f : whole);
      return (x < 0.0f ? -size : size) + 128;
    }
    case KvCodecKind::kQ4_0:
    case KvCodecKind::kQ5_0: {
      const float middle = static_cast<float>(c.shift) + 0.5f;
      return Least((1 << c.bits) - 1, static_cast<int>(v * g.factor + middle));
    }
    case KvCodecKind::kQ4_1:
    case KvCodecKind::kQ5_1:
      return Least((1 << c.bits) - 1, static_cast<int>((v - g.low) * g.factor + 0.5f));
    case KvCodecKind::kCodebook: {
      const float u = g.scale == 0.0f ? 0.0f : (v - g.zero) / g.scale;
      int code = 0;
      while (code + 1 < 1 << c.bits && u > c.edges[code]) ++code;
      return code;
    }
    default: {
      const float top = static_cast<float>((1 << c.bits) - 1);
      if (c.exact_scale) {
        return static_cast<int>(RoundEven(Clamp((v - g.low) * g.factor, 0.0f, top)));
      }
      const float shift = static_cast<float>(c.shift);
      const float ratio = g.scale == 0.0f ? 0.0f : (v - g.zero) / g.scale;
      return static_cast<int>(RoundEven(Clamp(ratio, -shift, top - shift)) + shift);
    }
  }
}

// Two numbers and their places give the one of larger size, of equal sizes the first.
KVG_DEVICE void TakeLarger(float& value, int& place, float other, int other_place) {
  const bool larger = Abs(other) > Abs(value) || (Abs(other) == Abs(value) && other_place < place);
  value = larger ? other : value;
  place = larger ? other_place : place;
}

// Scales of the groups of part's entries; `factors` [scales][2] of the page: what codes are
// computed with that is not stored.
KVG_DEVICE void StoreScales(const CodecView& c, const PagePart& part, const Numbers& x,
                            Float2* factors) {
  uint8_t* const stored = part.page.codes + CodeBytes(c);
  auto* const scales = reinterpret_cast<uint16_t*>(stored);
  const auto store = [&](int index, const GroupCoding& g) {
    switch (c.scale) {
      case ScaleType::kF32:
        reinterpret_cast<float*>(stored)[index] = g.scale;
        break;
      case ScaleType::kE4M3:
        stored[index] = static_cast<uint8_t>(
            ToFloat8(FormOfFloat8(KvCodecKind::kFp8E4M3), g.scale / c.scale_unit));
        break;
      case ScaleType::kE8M0:
        stored[index] = static_cast<uint8_t>(BitsOf(g.scale) >> 23);
        break;
      default:
        scales[index] = ClampedHalf(g.scale);
        if (c.has_zeros) scales[c.scales + index] = FloatToHalf(g.zero);
    }
    factors[index] = {g.factor, g.low};
  };
  if (!c.by_token) {  // neighbouring threads take neighbouring dims
    const int groups = (part.end - part.begin) / c.group;
    for (int i = Thread(); i < groups * c.dim; i += BlockThreads()) {
      const int entry = part.begin + i / c.dim * c.group, dim = i % c.dim;
      // Pages with one range follow each other in the call's rows.
      const int run = c.group * c.range_pages;
      const int from = c.range_pages > 1 ? -static_cast<int>(part.row % run) : entry;
      float low = x(from, dim), high = low;
      for (int e = from + 1; e < from + run; ++e) {
        const float v = x(e, dim);
        low = v < low ? v : low;
        high = high < v ? v : high;
      }
      store(ScaleIndex(c, entry, dim), CodingOf(c, low, high, 0.0f, 0.0f));
    }
    return;
  }
  const int per_entry = static_cast<int>(CeilDiv(c.dim, c.group));
  const int groups = (part.end - part.begin) * per_entry;
  for (int i = WarpIndex(); i < groups; i += BlockThreads() / kWarp) {
    const int entry = part.begin + i / per_entry, dim = i % per_entry * c.group;
    const int n = Least(c.group, c.dim - dim);
    float low = x(entry, dim), high = low, largest = 0.0f;
    int place = kMostVector * kPageEntries;
    for (int d = Lane(); d < n; d += kWarp) {
      const float v = x(entry, dim + d);
      low = v < low ? v : low;
      high = high < v ? v : high;
      if (v != 0.0f) TakeLarger(largest, place, v, d);
    }
    low = WarpMin(low);
    high = WarpMax(high);
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      const float other = ShuffleXor(largest, mask);
      TakeLarger(largest, place, other, ShuffleXor(place, mask));
    }
    float mean_square = 0.0f;
    if (c.kind == KvCodecKind::kCodebook && c.range == CodeRange::kRms) {
      const float sum = ChainSum(n, [&](int d) {
        const float v = x(entry, dim + d);
        return v * v;
      });
      mean_square = sum / static_cast<float>(n);
    }
    GroupCoding g = CodingOf(c, low, high, largest, mean_square);
    if (c.kind == KvCodecKind::kIq4Nl) {
      // The best scale for these codes, numbers weighed by their squares.
      const auto sum = [&](bool met) {
        return ChainSum(n, [&](int d) {
          const float v = x(entry, dim + d) * g.factor, level = c.levels[UnevenCode(c, v)];
          return v * v * level * (met ? v : level);
        });
      };
      const float met = sum(true), own = sum(false);
      if (own > 0.0f) g.scale = met / own * g.scale;
    }
    if (Lane() == 0) store(ScaleIndex(c, entry, dim), g);
  }
}

// A thread for each pair of dims, or each dim, of a group of entries, then one for each entry.
KVG_DEVICE void EncodeRecords(const CodecView& c, const PagePart& part, const Numbers& x) {
  const RecordView& view = c.record;
  if (view.kind == KvCodecKind::kPolarPairs) {
    const int pairs = view.dim / 2, first = part.begin / view.group;
    const int groups = part.end / view.group - first;
    const record::RecordRows rows = {x.first, x.stride};
    for (int i = Thread(); i < groups * pairs; i += BlockThreads()) {
      record::PutPairRange<DeviceMath>(view, rows, first + i / pairs, i % pairs, part.page.codes);
    }
  }
  if (view.kind == KvCodecKind::kMeanSizes) {
    const int first = part.begin / view.group, groups = part.end / view.group - first;
    const record::RecordRows rows = {x.first, x.stride};
    for (int i = Thread(); i < groups * view.dim; i += BlockThreads()) {
      record::PutSizes<DeviceMath>(view, rows, first + i / view.dim, i % view.dim, part.page.codes);
    }
  }
  SyncBlock();
  for (int e = part.begin + Thread(); e < part.end; e += BlockThreads()) {
    float rest[kMostRecordDims];
    record::CodeRecord<DeviceMath>(view, x.first + e * x.stride, e, part.page.codes, rest);
  }
}

KVG_KERNEL(kThreads) EncodeKernel(CodecCall call, Float2* scratch, int64_t scales) {
  const PagePart part = call.parts[BlockX()];
  const CodecView& c = *call.codec;
  const Numbers x = NumbersOf(call, part);
  Float2* const factors = scratch + BlockX() * scales;
  uint8_t* const codes = part.page.codes;
  if (HoldsRecords(c)) {
    EncodeRecords(c, part, x);
    return;
  }
  if (c.scales > 0) StoreScales(c, part, x, factors);
  SyncBlock();
  for (int s = Thread(); s < c.width * 8; s += BlockThreads()) {
    const CodeString string(c, s);
    uint8_t* const at = codes + s * c.bits;
    uint64_t bits = 0;
    for (int b = 0; b < c.bits; ++b) bits |= static_cast<uint64_t>(at[b]) << 8 * b;
    bool changed = false;
    for (int j = 0; j < 8; ++j) {
      const int entry = string.EntryOf(j), dim = string.DimOf(j);
      if (entry < part.begin || entry >= part.end || dim >= c.dim) continue;
      GroupCoding g = {FixedScale(c, dim), 0.0f, 0.0f, 0.0f};
      if (c.fixed_range) {
        const CodeRangeOf range = FixedRange(c, dim);
        g.scale = range.scale;
        g.zero = range.zero;
      } else if (c.scales > 0) {
        const int index = ScaleIndex(c, entry, dim);
        const CodeRangeOf range = StoredRange(c, codes, index);
        g.scale = range.scale;
        g.zero = range.zero;
        g.factor = factors[index].x;
        g.low = factors[index].y;
      }
      const auto code = static_cast<uint64_t>(CodeOf(c, g, x(entry, dim)));
      const uint64_t mask = (uint64_t{1} << c.bits) - 1;
      const int at_bit = CodeString::PlaceOf(j) * c.bits;
      bits = (bits & ~(mask << at_bit)) | code << at_bit;
      changed = true;
    }
    if (!changed) continue;
    for (int b = 0; b < c.bits; ++b) at[b] = static_cast<uint8_t>(bits >> 8 * b);
  }
}

KVG_KERNEL(kThreads)
CodingErrorKernel(CodecCall call, int dim, const uint32_t* marks, float* error) {
  const PagePart part = call.parts[BlockX()];
  const Numbers x = NumbersOf(call, part);
  for (int i = Thread(); i < kPageEntries * dim; i += BlockThreads()) {
    const int entry = i / dim, d = i % dim;
    const bool kept =
        marks != nullptr && (marks[(BlockX() * dim + d) * 2 + entry / 32] >> entry % 32 & 1) != 0;
    error[part.row * dim + i] =
        kept ? 0.0f : x(entry, d) - CodedNumber(*call.codec, part.page.codes, entry, d);
  }
}

// The block's product; every thread gets it. The order is fixed by n.
KVG_DEVICE double BlockDot(const double* a, const double* b, int64_t n, double* warps) {
  double sum = 0;
  for (int64_t i = Thread(); i < n; i += BlockThreads()) sum = Fma(a[i], b[i], sum);
  sum = WarpSum(sum);
  SyncBlock();  // readers of the last sum are done
  if (Lane() == 0) warps[WarpIndex()] = sum;
  SyncBlock();
  double total = 0;
  for (int w = 0; w < BlockThreads() / kWarp; ++w) total = total + warps[w];
  return total;
}

// rows [count][n] become orthonormal, one that depends on those before it 0. One block.
KVG_KERNEL(kThreads) OrthonormalizeKernel(double* rows, int count, int64_t n) {
  KVG_SHARED(double, warps, kThreads / kWarp);
  for (int r = 0; r < count; ++r) {
    double* const row = rows + r * n;
    SyncBlock();
    const double before = BlockDot(row, row, n, warps);
    for (int pass = 0; pass < 2; ++pass) {
      for (int q = 0; q < r; ++q) {
        const double* const other = rows + q * n;
        SyncBlock();
        const double share = BlockDot(other, row, n, warps);
        for (int64_t i = Thread(); i < n; i += BlockThreads())
          row[i] = Fma(-share, other[i], row[i]);
      }
    }
    SyncBlock();
    const double after = BlockDot(row, row, n, warps);
    // Squares of lengths.
    const double scale = after > 1e-10 * before ? 1.0 / ::sqrt(after) : 0.0;
    for (int64_t i = Thread(); i < n; i += BlockThreads()) row[i] = row[i] * scale;
  }
}

// latents[r][i] = error[i] . basis[r]: a warp for each i.
KVG_KERNEL(kThreads)
ProjectKernel(const float* error, int64_t n, int dim, int rank, const double* basis,
              double* latents) {
  const int64_t i = BlockX() * (kThreads / kWarp) + WarpIndex();
  const int64_t row = Least(i, n - 1);
  for (int r = 0; r < rank; ++r) {
    double sum = 0;
    for (int d = Lane(); d < dim; d += kWarp) {
      sum = Fma(static_cast<double>(error[row * dim + d]), basis[r * dim + d], sum);
    }
    sum = WarpSum(sum);
    if (Lane() == 0 && i < n) latents[r * n + i] = sum;
  }
}

// basis[r][d] = sum over i of latents[r][i] * error[i][d]: a thread for each.
KVG_KERNEL(kThreads)
BackProjectKernel(const float* error, int64_t n, int dim, int rank, const double* latents,
                  double* basis) {
  const int64_t at = BlockX() * kThreads + Thread();
  if (at >= static_cast<int64_t>(rank) * dim) return;
  const int64_t r = at / dim, d = at % dim;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum = Fma(latents[r * n + i], static_cast<double>(error[i * dim + d]), sum);
  }
  basis[at] = sum;
}

KVG_KERNEL(kThreads)
StoreLatentsKernel(CodecCall call, int64_t n, int rank, const double* latents,
                   uint16_t* const* out) {
  const PagePart part = call.parts[BlockX()];
  for (int i = Thread(); i < kPageEntries * rank; i += BlockThreads()) {
    out[BlockX()][i] = ClampedHalf(static_cast<float>(latents[i % rank * n + part.row + i / rank]));
  }
}
KVG_KERNEL(kThreads) StoreBasisKernel(const double* basis, int64_t count, uint16_t* out) {
  const int64_t i = BlockX() * kThreads + Thread();
  if (i < count) out[i] = ClampedHalf(static_cast<float>(basis[i]));
}

LaunchShape BlockPerPart(const CodecCall& call) {
  return {.grid_x = call.parts_count, .threads = kThreads};
}

}  // namespace

void DecodeParts(const CodecCall& call, int dim, Stream stream) {
  KVG_LAUNCH(DecodeKernel, BlockPerPart(call), stream, call, dim);
}

void FindOutliers(const CodecCall& call, int dim, float* kept, uint32_t* marks, Stream stream) {
  KVG_LAUNCH(FindOutliersKernel, BlockPerPart(call), stream, call, dim, kept, marks);
}

void CountMarks(const CodecCall& call, int dim, const uint32_t* marks, uint32_t* counts,
                Stream stream) {
  KVG_LAUNCH(CountMarksKernel, BlockPerPart(call), stream, call, dim, marks, counts);
}

void WriteOutliers(const CodecCall& call, int dim, const uint32_t* marks, uint8_t* const* blocks,
                   const uint32_t* counts, Stream stream) {
  KVG_LAUNCH(WriteOutliersKernel, BlockPerPart(call), stream, call, dim, marks, blocks, counts);
}

void EncodeParts(const CodecCall& call, float* scratch, int64_t scales, Stream stream) {
  KVG_LAUNCH(EncodeKernel, BlockPerPart(call), stream, call, reinterpret_cast<Float2*>(scratch),
             scales);
}

void CodingError(const CodecCall& call, int dim, const uint32_t* marks, float* error,
                 Stream stream) {
  KVG_LAUNCH(CodingErrorKernel, BlockPerPart(call), stream, call, dim, marks, error);
}

void FitCorrection(const float* error, int64_t n, int dim, int rank, double* latents, double* basis,
                   Stream stream) {
  constexpr int kRounds = 3;
  const LaunchShape one_block = {.threads = kThreads};
  for (int round = 0; round < kRounds; ++round) {
    KVG_LAUNCH(OrthonormalizeKernel, one_block, stream, basis, rank, dim);
    const LaunchShape rows = {.grid_x = CeilDiv(n, kThreads / kWarp), .threads = kThreads};
    KVG_LAUNCH(ProjectKernel, rows, stream, error, n, dim, rank, basis, latents);
    KVG_LAUNCH(OrthonormalizeKernel, one_block, stream, latents, rank, n);
    const LaunchShape numbers = {.grid_x = CeilDiv(int64_t{rank} * dim, kThreads),
                                 .threads = kThreads};
    KVG_LAUNCH(BackProjectKernel, numbers, stream, error, n, dim, rank, latents, basis);
  }
}

void StoreCorrection(const CodecCall& call, int64_t n, int dim, int rank, const double* latents,
                     const double* basis, uint16_t* const* latents_out, uint16_t* basis_out,
                     Stream stream) {
  KVG_LAUNCH(StoreLatentsKernel, BlockPerPart(call), stream, call, n, rank, latents, latents_out);
  const int64_t count = int64_t{rank} * dim;
  const LaunchShape numbers = {.grid_x = CeilDiv(count, kThreads), .threads = kThreads};
  KVG_LAUNCH(StoreBasisKernel, numbers, stream, basis, count, basis_out);
}

}  // namespace kvgauge::cuda
