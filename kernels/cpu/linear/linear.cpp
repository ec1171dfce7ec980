// SPDX-License-Identifier: Apache-2.0
// Matrix products of the cpu backend: how the work is cut and spread over threads. The arithmetic
// is in panel.h; since every output element is one chain over k, no cut made here changes a bit.
#include "kernels/linear.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <vector>

#include "core/rounding.h"
#include "cpu/cpu.h"
#include "cpu/linear/block_layout.h"
#include "cpu/linear/coded_rows.h"
#include "cpu/linear/linear_kernels.h"
#include "cpu/linear/linear_pack.h"
#include "cpu/linear/matrix_memory.h"
#include "kernels/block_products.h"
#include "kernels/rounded_products.h"

namespace kvgauge {
namespace {

constexpr int64_t kColumns = 64;
// A second thread must save more time than it costs to wake: this many bytes read, or products.
constexpr int64_t kBytesPerThread = int64_t{128} << 10;
constexpr int64_t kProductsPerThread = int64_t{1} << 18;
// Enough pieces that the slowest thread is not waited for long.
constexpr int64_t kPiecesPerThread = 4;
// From so many on rows are worth a copy, and their parts worth a group of panels.
constexpr int64_t kRowsInGroups = 64;
// Left rows that stay in the second cache while panels pass by.
constexpr int64_t kNearBytes = int64_t{768} << 10;
constexpr int64_t kPageBytes = 4096;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

const LinearKernels& KernelsOf([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kPortable:
      break;
    case Isa::kAvx2:
      return Avx2LinearKernels();
    case Isa::kAvx512:
      return Avx512LinearKernels();
    case Isa::kAvx512Bf16:
      return Avx512Bf16LinearKernels();
    case Isa::kAmx:
      return AmxLinearKernels();
  }
#endif
  return PortableLinearKernels();
}

// How a panel is stored: as floats of the matrix's type, or in blocks.
using PanelForm = std::optional<BlockFormat>;

class CpuMatrix final : public PackedMatrix {
 public:
  // forms: of each panel; int8_rows: those in blocks are multiplied by rows of CodedBlocks.
  CpuMatrix(int64_t n, int64_t k, DType dtype, std::vector<PanelForm> forms, bool int8_rows)
      : PackedMatrix(n, k, dtype), forms_(std::move(forms)), int8_rows_(int8_rows) {
    int64_t bytes = 0;
    for (const PanelForm& form : forms_) {
      begins_.push_back(bytes);
      bytes += form ? BlockPanelBytes(*form, k) : PanelBytes(k, dtype);
    }
    memory_ = MatrixBuffer(bytes);
  }

  int64_t bytes() const override { return memory_.size_bytes(); }
  int64_t panels() const { return static_cast<int64_t>(forms_.size()); }
  bool int8_rows() const { return int8_rows_; }
  // Null: left rows are rounded to the matrix's type alone.
  const RowRounding* rounding() const { return rounding_ ? &*rounding_ : nullptr; }
  void set_rounding(const RowRounding& rounding) { rounding_ = rounding; }
  const PanelForm& form(int64_t i) const { return forms_[static_cast<size_t>(i)]; }
  char* panel(int64_t i) const {
    return static_cast<char*>(memory_.data()) + begins_[static_cast<size_t>(i)];
  }

 private:
  std::vector<PanelForm> forms_;
  bool int8_rows_;
  std::optional<RowRounding> rounding_;
  std::vector<int64_t> begins_;  // of the panels' bytes
  Buffer memory_;
};

// Rows of the left operand as the kernels read them.
struct LeftRows {
  const char* data = nullptr;
  int64_t stride = 0;   // elements
  int64_t element = 4;  // bytes
};

// Items 0..n-1, one contiguous run of them per thread: neighbours are neighbours in memory, so that
// what is fetched ahead is what is needed next. A thread that has finished its own helps others.
class WorkQueue {
 public:
  explicit WorkQueue(int threads) : runs_(static_cast<size_t>(threads)) {}

  void Fill(int64_t items, int threads) {
    active_ = threads;
    for (int t = 0; t < threads; ++t) {
      runs_[t].next.store(items * t / threads, std::memory_order_relaxed);
      runs_[t].end = items * (t + 1) / threads;
    }
  }

  template <class Body>
  void Drain(int thread, const Body& body) {
    for (int i = 0; i < active_; ++i) {
      Run& run = runs_[(thread + i) % active_];
      for (int64_t item; (item = run.next.fetch_add(1, std::memory_order_relaxed)) < run.end;) {
        body(item);
      }
    }
  }

 private:
  struct alignas(64) Run {  // a cache line each
    std::atomic<int64_t> next = 0;
    int64_t end = 0;
  };
  std::vector<Run> runs_;
  int active_ = 0;
};

class CpuLinear final : public LinearOps, public BlockProducts, public RoundedProducts {
 public:
  CpuLinear(Isa isa, ThreadSettings threads)
      : kernels_(KernelsOf(isa)),
        threads_(threads.threads),
        scratch_(threads.threads),
        queue_(threads.threads) {
    for (Buffer& buffer : scratch_) {
      const int64_t rows = kernels_.grouped_k > 0 ? kProductRows * kGroupPanels : kProductRows;
      buffer = HostBuffer(ScratchFloats(rows) * int64_t{sizeof(float)});
    }
    for (int t = 0; t < threads_ && threads_ > 1; ++t) {
      alone_.push_back(std::make_unique<CpuLinear>(isa, MakeThreadSettings(1)));
    }
  }

 private:
  // What a task's thread calls, with working memory of its own: this object outside of tasks.
  CpuLinear& Mine() {
    if (alone_.empty() || omp_in_parallel() == 0) return *this;
    return *alone_[static_cast<size_t>(omp_get_thread_num())];
  }

  // body(thread, threads) on every thread. One alone opens no region: it may be in that of a task.
  template <class Body>
  void Parallel(int threads, const Body& body) {
    if (threads == 1) {
      body(0, 1);
      return;
    }
#pragma omp parallel num_threads(threads)
    body(omp_get_thread_num(), omp_get_num_threads());
  }

  int ThreadsFor(int64_t bytes, int64_t products, int64_t items) const {
    const int64_t wanted = std::max(bytes / kBytesPerThread, products / kProductsPerThread);
    return static_cast<int>(std::clamp<int64_t>(std::min(wanted, items), 1, threads_));
  }

  bool ByColumn(int64_t k, DType store) const {
    return kernels_.blocks_by_column && store == DType::kBF16 && LiesByColumn(k);
  }

  // Rows per product: many, so that a panel is read seldom, but several products per thread.
  int64_t RowStep(int64_t m, int64_t panels) const {
    const int64_t rows = m * panels / (kPiecesPerThread * threads_);
    return std::clamp(rows / kProductRowStep * kProductRowStep, kProductRowStep, kProductRows);
  }

  // Rows per product that differ little.
  static int64_t EvenRowStep(int64_t m) {
    constexpr int64_t kUnit = 32;
    return CeilDiv(CeilDiv(m, CeilDiv(m, kProductRows)), kUnit) * kUnit;
  }

  // Panels per item, with enough items for all threads.
  int64_t GroupOf(int64_t panels, int64_t row_blocks) const {
    return std::clamp<int64_t>(panels * row_blocks / (kPiecesPerThread * threads_), 1,
                               kGroupPanels);
  }

  float* Scratch(int thread) const { return static_cast<float*>(scratch_[thread].data()); }

  std::unique_ptr<PackedMatrix> DoPack(std::span<const Tensor> parts, int64_t n, int64_t k,
                                       DType store) override {
    std::vector<StoredRows> rows;
    for (const Tensor& part : parts) rows.push_back({.floats = part, .format = std::nullopt});
    bool finite = false;
    return DoPackStored(rows, n, k, store, Keep::kFloats, finite);
  }

  std::unique_ptr<PackedMatrix> DoPackStored(std::span<const StoredRows> parts, int64_t n,
                                             int64_t k, DType store, Keep keep,
                                             bool& finite) override {
    if (CpuLinear& mine = Mine(); &mine != this) {
      return mine.DoPackStored(parts, n, k, store, keep, finite);
    }
    const int64_t panels = CeilDiv(n, kColumns);
    std::vector<PackRow> rows(static_cast<size_t>(panels * kColumns));
    size_t next = 0;
    for (const StoredRows& part : parts) {
      const char* data = static_cast<const char*>(part.floats.data);
      const int64_t row_bytes = part.format ? 0 : part.floats.stride[0] * SizeOf(part.floats.dtype);
      for (int64_t i = 0; i < part.rows(); ++i) {
        if (part.format) {
          rows[next++] = {.data = part.blocks[static_cast<size_t>(i)], .format = part.format};
        } else {
          rows[next++] = {.data = data + i * row_bytes, .dtype = part.floats.dtype};
        }
      }
    }
    std::vector<PanelForm> stored;
    for (int64_t i = 0; i < panels; ++i) stored.push_back(FormOfPanel(rows.data() + i * kColumns));
    const bool int8_rows = keep == Keep::kBlocksForInt8;
    auto packed = std::make_unique<CpuMatrix>(
        n, k, store, keep == Keep::kFloats ? std::vector<PanelForm>(stored.size()) : stored,
        int8_rows);
    const int threads = ThreadsFor(packed->bytes(), 0, panels);
    std::atomic<bool> all_finite = true;
    queue_.Fill(panels, threads);
    Parallel(threads, [&](int thread, int) {
      queue_.Drain(thread, [&](int64_t i) {
        const PackRow* const first = rows.data() + i * kColumns;
        const PackRow* const soon = i + 1 < panels ? first + kColumns : nullptr;
        const PanelForm& form = stored[static_cast<size_t>(i)];
        const auto pack = [&] {
          if (!form) return PackPanel(kernels_, first, soon, k, store, packed->panel(i));
          const BlockUse use = keep == Keep::kFloats              ? BlockUse::kFloats
                               : !int8_rows && ByColumn(k, store) ? BlockUse::kKeepByColumn
                                                                  : BlockUse::kKeep;
          return PackBlocks(kernels_, first, soon, k, use, store, packed->panel(i));
        };
        if (!pack()) all_finite.store(false, std::memory_order_relaxed);
      });
    });
    finite = all_finite;
    return packed;
  }

  void DoRoundRowsOf(PackedMatrix& matrix, const RowRounding& rounding) override {
    auto* packed = dynamic_cast<CpuMatrix*>(&matrix);
    KVG_CHECK(packed != nullptr && !packed->int8_rows(), "no floats that this backend packed");
    packed->set_rounding(rounding);
  }

  void DoMatMul(const Tensor& x, const PackedMatrix& w, const Tensor& bias, MatMulMode mode,
                Tensor out) override {
    if (CpuLinear& mine = Mine(); &mine != this) return mine.DoMatMul(x, w, bias, mode, out);
    const auto* matrix = dynamic_cast<const CpuMatrix*>(&w);
    KVG_CHECK(matrix != nullptr, "the matrix was packed by another backend");
    if (matrix->int8_rows()) return MultiplyByInt8(x, *matrix, bias, mode, out);
    const int64_t m = x.shape[0], n = w.out_features(), k = w.in_features();
    const DType store = w.dtype();
    const int64_t panels = matrix->panels();
    int64_t step = RowStep(m, panels);
    const bool grouped =
        store == DType::kBF16 && kernels_.grouped_k > 0 && std::min(m, step) * k * 2 > kNearBytes;
    if (grouped) step = EvenRowStep(m);
    const int64_t group = grouped ? GroupOf(panels, CeilDiv(m, step)) : 1;
    const int64_t groups = CeilDiv(panels, group), items = groups * CeilDiv(m, step);
    const RowRounding* const rounding = matrix->rounding();
    const LeftRows left = PlanLeft(x, store, rounding != nullptr);
    const bool in_place = left.data == x.data;

    // Elements [begin, end) of the chains of one panel.
    const auto part = [&](int64_t panel, int64_t row, int64_t begin, int64_t end, float* sums,
                          const void* next, int thread) {
      const int64_t column = panel * kColumns;
      const PanelForm& form = matrix->form(panel);
      const auto multiply =
          form ? kernels_.multiply_blocks[static_cast<int>(*form)][static_cast<int>(store)]
               : kernels_.multiply[static_cast<int>(store)];
      multiply({.a = left.data + row * left.stride * left.element,
                .a_stride = left.stride,
                .rows = std::min(step, m - row),
                .panel = matrix->panel(panel),
                .panel_stride = store == DType::kBF16 ? 2 * kColumns : kColumns,
                .k = end,
                .bias = bias.empty() ? nullptr : bias.f32() + column,
                .add = mode == MatMulMode::kAdd,
                .out = out.f32() + row * out.stride[0] + column,
                .out_stride = out.stride[0],
                .columns = std::min(kColumns, n - column),
                .scratch = Scratch(thread),
                .begin = begin,
                .last = end == k,
                .sums = sums,
                .next = next,
                .by_column = form && ByColumn(k, store)});
    };
    const auto run = [&](int64_t item, int thread) {
      const int64_t first = item % groups * group, row = item / groups * step;
      if (group == 1) return part(first, row, 0, k, nullptr, nullptr, thread);
      const int64_t count = std::min(group, panels - first);
      for (int64_t begin = 0; begin < k; begin += kernels_.grouped_k) {
        const int64_t end = std::min(begin + kernels_.grouped_k, k);
        for (int64_t i = 0; i < count; ++i) {
          float* const sums = Scratch(thread) + ScratchFloats(0) + i * step * kColumns;
          const bool wraps = i + 1 == count;
          const int64_t next = wraps ? first : first + i + 1;
          const bool there = !matrix->form(next) && (!wraps || end < k);
          part(first + i, row, begin, end, sums,
               there ? matrix->panel(next) + PanelBytes(wraps ? end : begin, store) : nullptr,
               thread);
        }
      }
    };
    const int threads = ThreadsFor(matrix->bytes(), m * n * k, items);
    queue_.Fill(items, threads);
    Parallel(threads, [&](int thread, int team) {
      if (!in_place) {
        const int64_t begin = m * thread / team, end = m * (thread + 1) / team;
        for (int64_t row = begin; row < end && rounding != nullptr; ++row) {
          PrepareRounded(x[row], left, store, *rounding, row);
        }
        if (rounding == nullptr) PrepareLeft(x, left, store, begin, end);
        // A thread that works alone may be one of a team that runs tasks: it would wait for ever.
        if (team > 1) {
#pragma omp barrier
        }
      }
      queue_.Drain(thread, [&](int64_t item) { run(item, thread); });
    });
  }

  // Rows as codes where panels are in blocks, and as the type of the weights where they are not.
  void MultiplyByInt8(const Tensor& x, const CpuMatrix& matrix, const Tensor& bias, MatMulMode mode,
                      const Tensor& out) {
    const int64_t m = x.shape[0], n = matrix.out_features(), k = matrix.in_features();
    const DType store = matrix.dtype();
    const int64_t panels = matrix.panels();
    bool any_coded = false, any_floats = false;
    for (int64_t i = 0; i < panels; ++i) (matrix.form(i) ? any_coded : any_floats) = true;
    const LeftRows left = any_floats ? PlanLeft(x, store, false) : LeftRows{};
    const int64_t coded_bytes =
        CeilDiv(CodedBlocksOf(k) * int64_t{sizeof(CodedBlock)}, 64) * 64 + 64;
    // Rows that stay in the second cache while panels pass by.
    const int64_t near = kNearBytes / coded_bytes / kProductRowStep * kProductRowStep;
    const int64_t step = std::min(RowStep(m, panels), std::max(near, kProductRowStep));
    if (any_coded && coded_.size_bytes() < m * coded_bytes) coded_ = HostBuffer(m * coded_bytes);

    const auto run = [&](int64_t item, int thread) {
      const int64_t panel = item % panels, row = item / panels * step, column = panel * kColumns;
      const PanelForm& form = matrix.form(panel);
      const auto multiply = form ? kernels_.multiply_coded[static_cast<int>(*form)]
                                 : kernels_.multiply[static_cast<int>(store)];
      multiply({.a = form ? static_cast<const char*>(coded_.data()) + row * coded_bytes
                          : left.data + row * left.stride * left.element,
                .a_stride = form ? coded_bytes : left.stride,
                .rows = std::min(step, m - row),
                .panel = matrix.panel(panel),
                .panel_stride = store == DType::kBF16 ? 2 * kColumns : kColumns,
                .k = k,
                .bias = bias.empty() ? nullptr : bias.f32() + column,
                .add = mode == MatMulMode::kAdd,
                .out = out.f32() + row * out.stride[0] + column,
                .out_stride = out.stride[0],
                .columns = std::min(kColumns, n - column),
                .scratch = Scratch(thread)});
    };
    const int64_t items = panels * CeilDiv(m, step);
    const int threads = ThreadsFor(matrix.bytes(), m * n * k, items);
    queue_.Fill(items, threads);
    Parallel(threads, [&](int thread, int team) {
      const int64_t begin = m * thread / team, end = m * (thread + 1) / team;
      if (any_floats && left.data != x.data) PrepareLeft(x, left, store, begin, end);
      for (int64_t row = any_coded ? begin : end; row < end; ++row) {
        CodeRow(x[row], store, static_cast<char*>(coded_.data()) + row * coded_bytes);
      }
      if (team > 1) {  // as in DoMatMul
#pragma omp barrier
      }
      queue_.Drain(thread, [&](int64_t item) { run(item, thread); });
    });
  }

  // A row, rounded to `store`, as CodedBlocks.
  void CodeRow(const Tensor& row, DType store, char* to) const {
    const int64_t k = row.shape[0];
    auto* block = reinterpret_cast<CodedBlock*>(to);
    static_assert(kCodedK <= kConvertChunk);
    for (int64_t i = 0; i < k; i += kCodedK, ++block) {
      const int64_t count = std::min(kCodedK, k - i);
      float values[kCodedK];
      RoundedChunk(row, store, i, count, values);
      kernels_.code_block(values, count, block);
    }
  }

  // Numbers [first, first + count) of a row, count <= kConvertChunk, rounded to `store`.
  void RoundedChunk(const Tensor& row, DType store, int64_t first, int64_t count,
                    float* values) const {
    if (store == DType::kF32) {
      std::memcpy(values, row.f32() + first, static_cast<size_t>(count) * sizeof(float));
      return;
    }
    const auto widen = store == DType::kF16 ? kernels_.f16_to_f32 : kernels_.bf16_to_f32;
    const auto narrow = store == DType::kF16 ? kernels_.f32_to_f16 : kernels_.f32_to_bf16;
    uint16_t bits[kConvertChunk];
    if (row.dtype == DType::kF32) narrow(row.f32() + first, count, bits);
    widen(row.dtype == DType::kF32 ? bits : row.As<uint16_t>() + first, count, values);
  }

  // A product for each matrix that is chosen, of its rows together.
  void DoMatMulChosen(const Tensor& x, const MatrixSet& set, const Tensor& choice,
                      Tensor out) override {
    const int64_t m = out.shape[0], n = out.shape[1], k = x.shape[1], share = m / x.shape[0];
    std::vector<std::vector<int64_t>> rows_of(static_cast<size_t>(set.size()));
    size_t most = 0;
    for (int64_t i = 0; i < m; ++i) {
      const int32_t chosen = choice.i32()[i];
      KVG_CHECK(0 <= chosen && chosen < set.size(), "no such matrix in the set");
      rows_of[static_cast<size_t>(chosen)].push_back(i);
      most = std::max(most, rows_of[static_cast<size_t>(chosen)].size());
    }
    const auto height = static_cast<int64_t>(most);
    const int64_t row_bytes = k * SizeOf(x.dtype);
    const Buffer gathered = HostBuffer(std::max<int64_t>(height * row_bytes, 1));
    const Buffer products = HostBuffer(height * n * SizeOf(DType::kF32));
    for (size_t chosen = 0; chosen < rows_of.size(); ++chosen) {
      const std::vector<int64_t>& rows = rows_of[chosen];
      if (rows.empty()) continue;
      const auto count = static_cast<int64_t>(rows.size());
      const Tensor input = gathered.As(x.dtype, {count, k});
      const Tensor product = products.As(DType::kF32, {count, n});
      for (int64_t i = 0; i < count && k > 0; ++i) {
        std::memcpy(input[i].data, x[rows[static_cast<size_t>(i)] / share].data,
                    static_cast<size_t>(row_bytes));
      }
      DoMatMul(input, set[static_cast<int64_t>(chosen)], {}, MatMulMode::kSet, product);
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(out[rows[static_cast<size_t>(i)]].data, product[i].data,
                    static_cast<size_t>(n) * sizeof(float));
      }
    }
  }

  // Where the kernels can read x as it is; otherwise, and where they must not, room for a converted
  // copy.
  LeftRows PlanLeft(const Tensor& x, DType store, bool rounds) {
    const int64_t k = x.shape[1];
    const bool bits = store == DType::kBF16 && kernels_.bf16_left;
    // Rows a multiple of a page apart lie in the same few sets of a cache.
    const bool crowded = kernels_.grouped_k > 0 && x.shape[0] >= kRowsInGroups &&
                         x.stride[0] * SizeOf(x.dtype) % kPageBytes == 0;
    const bool as_it_is =
        store == DType::kF32 || (bits && x.dtype == DType::kBF16 && k % 2 == 0 && !crowded);
    if (as_it_is && !rounds) {
      return {static_cast<const char*>(x.data), x.stride[0], bits ? 2 : 4};
    }
    // 64 bytes more than needed: rows that lie a power of two apart would share cache sets.
    const int64_t element = bits ? 2 : 4;
    const int64_t stride = CeilDiv(PaddedK(k, store) * element, 64) * 64 / element + 64 / element;
    const int64_t bytes = x.shape[0] * stride * element;
    if (left_.size_bytes() < bytes) left_ = HostBuffer(bytes);
    return {static_cast<const char*>(left_.data()), stride, element};
  }

  // Rounds rows [begin, end) of x to the weights' dtype, in the form the kernels read.
  void PrepareLeft(const Tensor& x, const LeftRows& left, DType store, int64_t begin, int64_t end) {
    const int64_t k = x.shape[1];
    const auto narrow = store == DType::kF16 ? kernels_.f32_to_f16 : kernels_.f32_to_bf16;
    for (int64_t row = begin; row < end; ++row) {
      char* to = static_cast<char*>(left_.data()) + row * left.stride * left.element;
      const Tensor from = x[row];
      if (left.element == 2) {
        auto* bits = reinterpret_cast<uint16_t*>(to);
        if (x.dtype == DType::kF32) {
          narrow(from.f32(), k, bits);
        } else {
          std::memcpy(bits, from.data, static_cast<size_t>(k) * sizeof(uint16_t));
        }
        if (k % 2 != 0) bits[k] = 0;
        continue;
      }
      auto* values = reinterpret_cast<float*>(to);
      for (int64_t i = 0; i < k; i += kConvertChunk) {
        RoundedChunk(from, store, i, std::min(kConvertChunk, k - i), values + i);
      }
      if (PaddedK(k, store) != k) values[k] = 0.0f;
    }
  }

  // The codes of numbers [begin, end) of a row, of their own sizes. The largest size, rounded to
  // the weights' dtype, is the largest rounded one.
  ScaleAndZero OwnCodes(const Tensor& row, int64_t begin, int64_t end, DType store,
                        const RowRounding& rounding) const {
    int32_t largest = 0;
    SpanBits span;
    const auto see = [&](const float* values, int64_t count) {
      if (rounding.spans) {
        const SpanBits some = kernels_.span_bits(values, count);
        span = {std::max(span.below, some.below), std::max(span.above, some.above)};
      } else {
        largest = std::max(largest, kernels_.largest_bits(values, count));
      }
    };
    if (row.dtype == DType::kF32) {
      see(row.f32() + begin, end - begin);
    } else {
      float chunk[kConvertChunk];
      for (int64_t i = begin; i < end; i += kConvertChunk) {
        const int64_t count = std::min(kConvertChunk, end - i);
        RoundedChunk(row, store, i, count, chunk);
        see(chunk, count);
      }
    }
    const auto stored = [&](int32_t bits) { return Rounded(store, std::bit_cast<float>(bits)); };
    if (rounding.spans) return SpanCodes(stored(span.below), stored(span.above));
    return {.scale = RowScale(rounding, stored(largest))};
  }

  // A row rounded to the weights' dtype, to numbers of codes, and to the dtype again, in the form
  // that the kernels read.
  void PrepareRounded(const Tensor& from, const LeftRows& left, DType store,
                      const RowRounding& rounding, int64_t row) {
    const int64_t k = from.shape[0], group = rounding.group > 0 ? rounding.group : k;
    char* const to = static_cast<char*>(left_.data()) + row * left.stride * left.element;
    const bool halves = left.element == 2;
    auto* const bits = reinterpret_cast<uint16_t*>(to);
    auto* const values = reinterpret_cast<float*>(to);
    for (int64_t begin = 0; begin < k; begin += group) {
      const int64_t end = std::min(begin + group, k);
      ScaleAndZero by{.scale = rounding.scale, .zero = rounding.zero};
      if (by.scale == 0.0f) by = OwnCodes(from, begin, end, store, rounding);
      const Tensor numbers = from.Slice(begin, end);
      kernels_.round_codes[static_cast<int>(store)](
          {.codes = rounding.codes,
           .by = by,
           .from = numbers.data,
           .from_f32 = numbers.dtype == DType::kF32,
           .count = end - begin,
           .to = halves ? static_cast<void*>(bits + begin) : values + begin,
           .to_f32 = !halves});
    }
    if (PaddedK(k, store) == k) return;
    if (halves) {
      bits[k] = 0;
    } else {
      values[k] = 0.0f;
    }
  }

  void DoMatMulNT(const Tensor& a, const Tensor& b, float alpha, Tensor out) override {
    if (CpuLinear& mine = Mine(); &mine != this) return mine.DoMatMulNT(a, b, alpha, out);
    Batched(a, alpha, out, [&](int64_t batch, int64_t column, int64_t columns, float* panel) {
      const int64_t k = b.shape[2];
      PackPanelF32(kernels_, b[batch].f32() + column * k, k, columns, k, panel);
      return Right{panel, kColumns};
    });
  }

  void DoMatMulNN(const Tensor& a, const Tensor& b, float alpha, Tensor out) override {
    if (CpuLinear& mine = Mine(); &mine != this) return mine.DoMatMulNN(a, b, alpha, out);
    Batched(a, alpha, out, [&](int64_t batch, int64_t column, int64_t columns, float* panel) {
      const int64_t k = b.shape[1], n = b.shape[2];
      const float* from = b[batch].f32() + column;
      // [k, n] already is panels with steps n apart; only a last narrow one must be completed.
      if (columns == kColumns) return Right{from, n};
      for (int64_t i = 0; i < k; ++i) {
        std::memcpy(panel + i * kColumns, from + i * n,
                    static_cast<size_t>(columns) * sizeof(float));
      }
      return Right{panel, kColumns};
    });
  }

  struct Right {
    const float* panel;
    int64_t stride;
  };

  // `right(batch, column, columns, room)` gives 64 columns of the right operand, using `room`
  // (zeros in the columns beyond) where it must.
  template <class RightOf>
  void Batched(const Tensor& a, float alpha, const Tensor& out, const RightOf& right) {
    const int64_t m = a.shape[1], k = a.shape[2], n = out.shape[2];
    const int64_t panels = CeilDiv(n, kColumns), matrices = a.shape[0] * panels;
    const int64_t bytes = matrices * k * kColumns * 4, products = a.shape[0] * m * n * k;
    const int64_t blocks = BlocksOf(m, matrices, ThreadsFor(bytes, products, m));
    const int64_t step = CeilDiv(CeilDiv(m, blocks), kProductRowStep) * kProductRowStep;
    const int64_t items = matrices * blocks;
    const int threads = ThreadsFor(bytes, products, items);
    const int64_t panel_bytes = std::max<int64_t>(1, k) * kColumns * int64_t{sizeof(float)};
    std::vector<Buffer> rooms(static_cast<size_t>(threads));
    for (Buffer& room : rooms) room = HostBuffer(panel_bytes);
    queue_.Fill(items, threads);
    Parallel(threads, [&](int thread, int) {
      auto* room = static_cast<float*>(rooms[thread].data());
      queue_.Drain(thread, [&](int64_t i) {
        const int64_t batch = i / blocks / panels, column = i / blocks % panels * kColumns;
        const int64_t columns = std::min(kColumns, n - column);
        const int64_t begin = i % blocks * step, end = std::min(begin + step, m);
        if (begin >= end) return;
        const Right w = right(batch, column, columns, room);
        for (int64_t row = begin; row < end; row += kProductRows) {
          kernels_.multiply[0]({.a = a[batch].f32() + row * k,
                                .a_stride = k,
                                .rows = std::min(kProductRows, end - row),
                                .panel = w.panel,
                                .panel_stride = w.stride,
                                .k = k,
                                .alpha = alpha,
                                .out = out[batch].f32() + row * n + column,
                                .out_stride = n,
                                .columns = columns,
                                .scratch = Scratch(thread)});
        }
      });
    });
  }

  // Rows are cut where there are fewer panels than threads want to share, into blocks so large that
  // the cost of bringing a panel into order for each of them does not matter.
  static int64_t BlocksOf(int64_t rows, int64_t panels, int threads) {
    if (threads == 1 || panels == 0) return 1;
    return std::clamp<int64_t>(kPiecesPerThread * threads / panels, 1,
                               std::max<int64_t>(rows / kProductRows, 1));
  }

  void DoEmbed(const Tensor& table, const Tensor& ids, float scale, Tensor out) override {
    if (CpuLinear& mine = Mine(); &mine != this) return mine.DoEmbed(table, ids, scale, out);
    const int64_t m = ids.shape[0], d = table.shape[1];
    const int64_t row_bytes = table.stride[0] * SizeOf(table.dtype);
    Parallel(ThreadsFor(m * d * SizeOf(table.dtype), 0, m), [&](int thread, int threads) {
      for (int64_t i = m * thread / threads; i < m * (thread + 1) / threads; ++i) {
        const int32_t id = ids.i32()[i];
        KVG_CHECK(0 <= id && id < table.shape[0], "token id out of range");
        const char* from = static_cast<const char*>(table.data) + id * row_bytes;
        float* to = out.f32() + i * out.stride[0];
        for (int64_t j = 0; j < d; j += kConvertChunk) {
          const int64_t count = std::min(kConvertChunk, d - j);
          LoadAsF32(kernels_, from + j * SizeOf(table.dtype), table.dtype, count, to + j);
          for (int64_t c = j; c < j + count; ++c) to[c] *= scale;
        }
      }
    });
  }

  const LinearKernels& kernels_;
  int threads_;
  std::vector<Buffer> scratch_;  // one per thread
  WorkQueue queue_;
  Buffer left_;                                    // converted left rows of the product under way
  Buffer coded_;                                   // the same as CodedBlocks
  std::vector<std::unique_ptr<CpuLinear>> alone_;  // [threads] for tasks
};

}  // namespace

std::unique_ptr<LinearOps> MakeCpuLinear(Isa isa, ThreadSettings threads) {
  return std::make_unique<CpuLinear>(isa, threads);
}

}  // namespace kvgauge
