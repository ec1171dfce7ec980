// SPDX-License-Identifier: Apache-2.0
// SelectOps. Top-k and order statistics by radix selection on order-preserving keys: four passes of
// eight bits find the k-th key exactly, so ties are resolved by index and nothing is sorted.
#include "cuda/backend_parts.h"
#include "cuda/count.h"
#include "cuda/device/context.h"
#include "cuda/elements.h"
#include "cuda/experts.h"
#include "cuda/reduce.h"
#include "kernels/select.h"

namespace kvgauge::cuda {
namespace {

// One block works on a row that may be long.
constexpr int kSelectThreads = 512;
constexpr int kSelectWarps = kSelectThreads / kWarp;

struct Selected {
  uint32_t key;  // the `count`-th largest
  int64_t ties;  // how many of the equal keys belong to the `count` largest
};

// By all threads of a block, 1 <= count <= n; key_at(i) is the key of element i.
template <class KeyAt>
KVG_DEVICE Selected SelectLargest(int64_t n, int64_t count, KeyAt key_at) {
  KVG_SHARED(uint32_t, bins, 256);
  KVG_SHARED(uint32_t, chosen, 2);  // the bin, and how many are wanted of it
  uint32_t prefix = 0, mask = 0, wanted = static_cast<uint32_t>(count);
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int b = Thread(); b < 256; b += BlockThreads()) bins[b] = 0;
    SyncBlock();
    for (int64_t i = Thread(); i < n; i += BlockThreads()) {
      const uint32_t key = key_at(i);
      if ((key & mask) == prefix) AtomicAdd(bins + (key >> shift & 255), uint32_t{1});
    }
    SyncBlock();
    if (Thread() == 0) {
      uint32_t left = wanted;
      int b = 255;
      while (bins[b] < left) left -= bins[b--];
      chosen[0] = static_cast<uint32_t>(b);
      chosen[1] = left;
    }
    SyncBlock();
    prefix |= chosen[0] << shift;
    mask |= uint32_t{255} << shift;
    wanted = chosen[1];
  }
  return {prefix, wanted};
}

KVG_KERNEL(kSelectThreads)
TopKKernel(const float* scores, Count columns, int64_t stride, const int32_t* counts, int32_t* out,
           int64_t width, int64_t out_stride) {
  KVG_SHARED(int32_t, above_of, kSelectWarps);
  KVG_SHARED(int32_t, equal_of, kSelectWarps);
  const float* row = scores + BlockX() * stride;
  int32_t* to = out + BlockX() * out_stride;
  const int64_t n = columns.get(), count = counts[BlockX()];
  for (int64_t i = count + Thread(); i < width; i += BlockThreads()) to[i] = -1;
  if (count == 0) return;  // the whole block
  const Selected last = SelectLargest(n, count, [row](int64_t i) { return KeyOf(row[i]); });
  // In ascending order of index: of the equal ones the first `ties` are taken.
  int64_t above_before = 0, equal_before = 0;
  for (int64_t base = 0; base < n; base += BlockThreads()) {
    const int64_t i = base + Thread();
    const uint32_t key = i < n ? KeyOf(row[i]) : 0;
    const bool above = i < n && key > last.key, equal = i < n && key == last.key;
    const uint32_t above_bits = Ballot(above), equal_bits = Ballot(equal);
    if (Lane() == 0) {
      above_of[WarpIndex()] = PopCount(above_bits);
      equal_of[WarpIndex()] = PopCount(equal_bits);
    }
    SyncBlock();
    int64_t above_here = above_before, equal_here = equal_before;
    for (int w = 0; w < kSelectWarps; ++w) {
      if (w < WarpIndex()) {
        above_here += above_of[w];
        equal_here += equal_of[w];
      }
      above_before += above_of[w];
      equal_before += equal_of[w];
    }
    const uint32_t lower = (uint32_t{1} << Lane()) - 1;
    above_here += PopCount(above_bits & lower);
    equal_here += PopCount(equal_bits & lower);
    if (above || (equal && equal_here < last.ties)) {
      to[above_here + Least(equal_here, last.ties)] = static_cast<int32_t>(i);
    }
    SyncBlock();  // before the counts are written again
  }
}

KVG_KERNEL(kSelectThreads)
ColumnRangesKernel(const float* x, int64_t n, int64_t stride, int64_t trim, float* low,
                   float* high) {
  const float* column = x + BlockX();
  const auto key_at = [column, stride](int64_t i) { return KeyOf(column[i * stride]); };
  const Selected top = SelectLargest(n, trim + 1, key_at);
  const Selected bottom = SelectLargest(n, n - trim, key_at);
  if (Thread() != 0) return;
  high[BlockX()] = ValueOf(top.key);
  low[BlockX()] = ValueOf(bottom.key);
}

// out row i = source row index[i], or the other way round. Unit: what one thread moves at a time.
template <class Unit>
KVG_KERNEL(kBlockThreads)
GatherKernel(const Unit* source, int64_t source_stride, const int32_t* index, Unit* out,
             int64_t out_stride, int64_t rows, int64_t units) {
  const int64_t at = BlockX() * kBlockThreads + Thread();
  if (at >= rows * units) return;
  const Place2 place = PlaceOf(at, units);
  const int64_t from = index[place.row];
  out[place.row * out_stride + place.column] =
      from < 0 ? Unit{} : source[from * source_stride + place.column];
}
template <class Unit>
KVG_KERNEL(kBlockThreads)
ScatterKernel(const Unit* source, int64_t source_stride, const int32_t* index, Unit* out,
              int64_t out_stride, int64_t rows, int64_t units) {
  const int64_t at = BlockX() * kBlockThreads + Thread();
  if (at >= rows * units) return;
  const Place2 place = PlaceOf(at, units);
  out[index[place.row] * out_stride + place.column] =
      source[place.row * source_stride + place.column];
}

// A warp owns 32 columns of one row of `out` and takes the rows that go there in ascending order.
KVG_KERNEL(kBlockThreads)
ScatterAddKernel(const float* source, int64_t source_stride, const int32_t* index,
                 const float* weight, int64_t count, float* out, int64_t out_stride, int64_t d) {
  const auto row = static_cast<int32_t>(BlockX());
  const int64_t j = (BlockY() * kBlockWarps + WarpIndex()) * kWarp + Lane();
  float sum = j < d ? out[row * out_stride + j] : 0.0f;
  bool found = false;
  for (int64_t base = 0; base < count; base += kWarp) {
    const int64_t i = base + Lane();
    uint32_t hits = Ballot(i < count && index[i] == row);
    for (; hits != 0; hits &= hits - 1) {
      const int64_t from = base + FindFirst(hits) - 1;
      found = true;
      if (j < d) {
        sum = Fma(weight == nullptr ? 1.0f : weight[from], source[from * source_stride + j], sum);
      }
    }
  }
  if (found && j < d) out[row * out_stride + j] = sum;
}

KVG_KERNEL(kBlockThreads)
PoolKernel(const float* x, int64_t rows, int64_t n, int64_t stride, int64_t kernel, bool average,
           float* out, int64_t out_stride) {
  const int64_t at = BlockX() * kBlockThreads + Thread();
  if (at >= rows * n) return;
  const Place2 place = PlaceOf(at, n);
  const float* row = x + place.row * stride;
  const int64_t begin = Most<int64_t>(0, place.column - kernel / 2);
  const int64_t end = Least(n - 1, place.column + kernel / 2);
  float sum = 0, top = row[begin];
  for (int64_t k = begin; k <= end; ++k) {
    const float v = row[k];
    sum += v;
    top = v > top || IsNan(v) ? v : top;
  }
  out[place.row * out_stride + place.column] = average ? sum / static_cast<float>(kernel) : top;
}

KVG_KERNEL(kBlockThreads)
FollowingKernel(const int32_t* sorted, int64_t k, const int32_t* value, int64_t n, int64_t count,
                int32_t* out, int64_t out_stride) {
  const int64_t i = BlockX() * kBlockThreads + Thread();
  if (i >= n) return;
  int64_t low = 0, high = k;  // the first one above the value
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (sorted[middle] > value[i]) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  for (int64_t j = 0; j < count; ++j) {
    out[j * out_stride + i] = low + j < k ? sorted[low + j] : -1;
  }
}

KVG_KERNEL(kBlockThreads)
MarkRunsKernel(const int32_t* index, int64_t rows, int64_t k, int64_t stride, int64_t run,
               Count bits, uint64_t* words, int64_t words_stride) {
  const int64_t at = BlockX() * kBlockThreads + Thread();
  if (at >= rows * k) return;
  const Place2 place = PlaceOf(at, k);
  const int64_t i = index[place.row * stride + place.column];
  if (i < 0) return;
  const int64_t end = Least(bits.get(), (i + 1) * run);
  for (int64_t bit = i * run; bit < end;) {
    const int64_t word = bit / 64, count = Least(end, (word + 1) * 64) - bit;
    const uint64_t ones = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    AtomicOr(words + place.row * words_stride + word, ones << (bit % 64));
    bit += count;
  }
}

// One thread a number of `out`.
KVG_KERNEL(kBlockThreads)
AddWeightedKernel(const float* source, int64_t source_stride, const float* weight,
                  int64_t weight_stride, int64_t k, float* out, int64_t out_stride, int64_t rows,
                  int64_t d) {
  const int64_t at = BlockX() * kBlockThreads + Thread();
  if (at >= rows * d) return;
  const Place2 place = PlaceOf(at, d);
  float* to = out + place.row * out_stride + place.column;
  float sum = *to;
  for (int64_t j = 0; j < k; ++j) {
    sum = Fma(weight[place.row * weight_stride + j],
              source[(place.row * k + j) * source_stride + place.column], sum);
  }
  *to = sum;
}

// A block a row.
KVG_KERNEL(kBlockThreads)
CountBitsKernel(const uint64_t* words, int64_t n, int64_t stride, const int64_t* base,
                int64_t* out) {
  const uint64_t* row = words + BlockX() * stride;
  int32_t count = 0;
  for (int64_t i = Thread(); i < n; i += kBlockThreads) count += PopCount(row[i]);
  count = TeamSum<BlockTeam>(count);
  if (Thread() == 0) out[BlockX()] = base[BlockX()] + count;
}

// A block a group of rows.
KVG_KERNEL(kBlockThreads)
CountAnyBitsKernel(const uint64_t* words, int64_t stride, int64_t rows, const int32_t* range,
                   const int64_t* base, int64_t* out) {
  const uint64_t* group = words + BlockX() * rows * stride;
  const int64_t first = range[2 * BlockX()], last = range[2 * BlockX() + 1];
  int32_t count = 0;
  for (int64_t w = first / 64 + Thread(); 64 * w < last; w += kBlockThreads) {
    uint64_t any = 0;
    for (int64_t i = 0; i < rows; ++i) any |= group[i * stride + w];
    if (64 * w < first) any &= ~uint64_t{0} << (first - 64 * w);
    if (64 * (w + 1) > last) any &= ~uint64_t{0} >> (64 * (w + 1) - last);
    count += PopCount(any);
  }
  count = TeamSum<BlockTeam>(count);
  if (Thread() == 0) out[BlockX()] = base[BlockX()] + count;
}

// Bits [from, from + 64) of a row of n words.
KVG_DEVICE uint64_t WordFrom(const uint64_t* row, int64_t n, int64_t from) {
  if (from <= -64) return 0;
  if (from < 0) return n > 0 ? row[0] << -from : 0;
  const int64_t at = from / 64, shift = from % 64;
  uint64_t word = at < n ? row[at] >> shift : 0;
  if (shift > 0 && at + 1 < n) word |= row[at + 1] << (64 - shift);
  return word;
}
KVG_KERNEL(kBlockThreads)
MoveBitsKernel(const uint64_t* words, int64_t n, int64_t stride, int64_t first, int64_t skip,
               uint64_t* out, int64_t rows, int64_t count) {
  const int64_t at = BlockX() * kBlockThreads + Thread();
  if (at >= rows * count) return;
  const Place2 place = PlaceOf(at, count);
  const int64_t bit = 64 * place.column, before = Least<int64_t>(64, skip - bit);
  uint64_t word = WordFrom(words + place.row * stride, n, first + bit - skip);
  if (before > 0) word = before == 64 ? 0 : word >> before << before;
  out[at] = word;
}

KVG_KERNEL(kBlockThreads)
ReadBitsKernel(const uint64_t* words, int64_t n, int64_t stride, int64_t first, float* out,
               int64_t out_stride, int64_t rows, int64_t count) {
  const int64_t at = BlockX() * kBlockThreads + Thread();
  if (at >= rows * count) return;
  const Place2 place = PlaceOf(at, count);
  const int64_t bit = first + place.column;
  const bool set = bit / 64 < n && (words[place.row * stride + bit / 64] >> bit % 64 & 1) != 0;
  out[place.row * out_stride + place.column] = set ? 1.0f : 0.0f;
}

KVG_KERNEL(kBlockThreads)
AtLeastKernel(const int32_t* x, int32_t least, int32_t* out, int64_t n) {
  const int64_t i = BlockX() * kBlockThreads + Thread();
  if (i < n) out[i] = Most(x[i], least);
}

template <class Unit>
bool Fits(int64_t row_bytes, const Tensor& a, const Tensor& b) {
  constexpr auto size = static_cast<int64_t>(sizeof(Unit));
  const auto fits = [](const Tensor& t) {
    return reinterpret_cast<uintptr_t>(t.data) % sizeof(Unit) == 0 &&
           (t.shape[0] <= 1 || t.stride[0] * SizeOf(t.dtype) % size == 0);
  };
  return row_bytes % size == 0 && fits(a) && fits(b);
}

class DeviceSelect final : public SelectOps {
 public:
  explicit DeviceSelect(Context& context) : context_(context) {}

 private:
  void DoTopK(const Tensor& scores, const Tensor& counts, Tensor out) override {
    KVG_LAUNCH(TopKKernel, {.grid_x = scores.shape[0], .threads = kSelectThreads},
               context_.stream(), scores.f32(), CountOf(scores.shape[1]), scores.stride[0],
               counts.i32(), out.i32(), out.shape[1], out.stride[0]);
  }

  void DoGather(const Tensor& source, const Tensor& index, Tensor out) override {
    Move(true, source, index, out);
  }
  void DoScatter(const Tensor& source, const Tensor& index, Tensor out) override {
    Move(false, source, index, out);
  }
  void Move(bool gather, const Tensor& source, const Tensor& index, const Tensor& out) {
    const int64_t row_bytes = out.shape[1] * SizeOf(out.dtype);
    if (Fits<Uint4>(row_bytes, source, out)) {
      MoveUnits<Uint4>(gather, row_bytes, source, index, out);
    } else if (Fits<uint32_t>(row_bytes, source, out)) {
      MoveUnits<uint32_t>(gather, row_bytes, source, index, out);
    } else {
      MoveUnits<uint8_t>(gather, row_bytes, source, index, out);
    }
  }
  template <class Unit>
  void MoveUnits(bool gather, int64_t row_bytes, const Tensor& source, const Tensor& index,
                 const Tensor& out) {
    constexpr auto size = static_cast<int64_t>(sizeof(Unit));
    const int64_t units = row_bytes / size, rows = index.shape[0];
    const auto stride = [](const Tensor& t) { return t.stride[0] * SizeOf(t.dtype) / size; };
    const LaunchShape shape = {.grid_x = CeilDiv(rows * units, kBlockThreads),
                               .threads = kBlockThreads};
    if (gather) {
      KVG_LAUNCH((GatherKernel<Unit>), shape, context_.stream(), source.As<const Unit>(),
                 stride(source), index.i32(), out.As<Unit>(), stride(out), rows, units);
    } else {
      KVG_LAUNCH((ScatterKernel<Unit>), shape, context_.stream(), source.As<const Unit>(),
                 stride(source), index.i32(), out.As<Unit>(), stride(out), rows, units);
    }
  }

  void DoScatterAdd(const Tensor& source, const Tensor& index, const Tensor& weight,
                    Tensor out) override {
    KVG_LAUNCH(ScatterAddKernel,
               {.grid_x = out.shape[0],
                .grid_y = CeilDiv(out.shape[1], kBlockThreads),
                .threads = kBlockThreads},
               context_.stream(), source.f32(), source.stride[0], index.i32(),
               weight.empty() ? nullptr : weight.f32(), source.shape[0], out.f32(), out.stride[0],
               out.shape[1]);
  }

  void DoPool(const Tensor& x, int64_t kernel, Pooling mode, Tensor out) override {
    KVG_LAUNCH(
        PoolKernel,
        {.grid_x = CeilDiv(x.shape[0] * x.shape[1], kBlockThreads), .threads = kBlockThreads},
        context_.stream(), x.f32(), x.shape[0], x.shape[1], x.stride[0], kernel,
        mode == Pooling::kAverage, out.f32(), out.stride[0]);
  }

  void DoFollowing(const Tensor& sorted, const Tensor& value, Tensor out) override {
    KVG_LAUNCH(FollowingKernel,
               {.grid_x = CeilDiv(value.shape[0], kBlockThreads), .threads = kBlockThreads},
               context_.stream(), sorted.i32(), sorted.shape[0], value.i32(), value.shape[0],
               out.shape[0], out.i32(), out.stride[0]);
  }

  void DoMarkRuns(const Tensor& index, int64_t run, int64_t n, Tensor words) override {
    KVG_LAUNCH(MarkRunsKernel,
               {.grid_x = CeilDiv(index.shape[0] * index.shape[1], kBlockThreads),
                .threads = kBlockThreads},
               context_.stream(), index.i32(), index.shape[0], index.shape[1], index.stride[0], run,
               CountOf(n), words.As<uint64_t>(), words.stride[0]);
  }

  void DoChooseExperts(const Tensor& logits, const ExpertRule& rule, const Tensor& correction,
                       Tensor index, Tensor weight) override {
    LaunchChooseExperts(context_, logits, rule, correction, index, weight);
  }

  void DoAddWeighted(const Tensor& source, const Tensor& weight, Tensor out) override {
    KVG_LAUNCH(AddWeightedKernel,
               {.grid_x = CeilDiv(out.Numel(), kBlockThreads), .threads = kBlockThreads},
               context_.stream(), source.f32(), source.stride[0], weight.f32(), weight.stride[0],
               weight.shape[1], out.f32(), out.stride[0], out.shape[0], out.shape[1]);
  }

  void DoCountBits(const Tensor& words, const Tensor& base, Tensor out) override {
    KVG_LAUNCH(CountBitsKernel, {.grid_x = words.shape[0], .threads = kBlockThreads},
               context_.stream(), words.As<const uint64_t>(), words.shape[1], words.stride[0],
               base.As<const int64_t>(), out.As<int64_t>());
  }

  void DoCountAnyBits(const Tensor& words, const Tensor& range, const Tensor& base,
                      Tensor out) override {
    KVG_LAUNCH(CountAnyBitsKernel, {.grid_x = range.shape[0], .threads = kBlockThreads},
               context_.stream(), words.As<const uint64_t>(), words.stride[0],
               words.shape[0] / range.shape[0], range.As<const int32_t>(), base.As<const int64_t>(),
               out.As<int64_t>());
  }

  void DoMoveBits(const Tensor& words, int64_t first, int64_t skip, Tensor out) override {
    KVG_LAUNCH(MoveBitsKernel,
               {.grid_x = CeilDiv(out.Numel(), kBlockThreads), .threads = kBlockThreads},
               context_.stream(), words.As<const uint64_t>(), words.shape[1], words.stride[0],
               first, skip, out.As<uint64_t>(), out.shape[0], out.shape[1]);
  }

  void DoReadBits(const Tensor& words, int64_t first, Tensor out) override {
    KVG_LAUNCH(ReadBitsKernel,
               {.grid_x = CeilDiv(out.Numel(), kBlockThreads), .threads = kBlockThreads},
               context_.stream(), words.As<const uint64_t>(), words.shape[1], words.stride[0],
               first, out.f32(), out.stride[0], out.shape[0], out.shape[1]);
  }

  void DoAtLeast(const Tensor& x, int32_t least, Tensor out) override {
    KVG_LAUNCH(AtLeastKernel,
               {.grid_x = CeilDiv(out.Numel(), kBlockThreads), .threads = kBlockThreads},
               context_.stream(), x.i32(), least, out.i32(), out.shape[0]);
  }

  void DoColumnRanges(const Tensor& x, int64_t trim, Tensor low, Tensor high) override {
    KVG_LAUNCH(ColumnRangesKernel, {.grid_x = x.shape[1], .threads = kSelectThreads},
               context_.stream(), x.f32(), x.shape[0], x.stride[0], trim, low.f32(), high.f32());
  }

  Context& context_;
};

}  // namespace

std::unique_ptr<SelectOps> MakeCudaSelect(Context& context) {
  return std::make_unique<DeviceSelect>(context);
}

}  // namespace kvgauge::cuda
