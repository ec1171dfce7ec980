// SPDX-License-Identifier: Apache-2.0
// bf16 panels in two-dimensional tile registers (AMX), over an engine that provides them.
//
// Eight tiles of 16 rows x 64 bytes. An engine has, for constant tile numbers:
//   Zero<t>()  Load<t>(p, stride_bytes)  Store<t>(p, stride_bytes)
//   Dot<c, a, b>()   c[16][16] f32 += a[16][32] bf16 * b[16 pairs][16][2] bf16
// and a ThreadScope. To the bit, Dot sums the first ones of the pairs and the second ones, each
// from 0 in ascending order, adds both sums, and then that to c; denormals count as 0.
//
// The hardware engine is tiles_amx.h; tests bring one in plain C++, so that the geometry is tested
// on machines without such registers.
#pragma once

#include "cpu/linear/panel.h"

namespace kvgauge {
namespace {

// kLocality: the level of cache that prefetches go to, as __builtin_prefetch has it.
template <class Engine, int kLocality = 3>
struct Bf16TilePanel {
  using A = uint16_t;
  using B = uint16_t;
  static constexpr int kStepK = 2;
  using Operands = PanelOperands<Bf16TilePanel>;

  // One pass over the panel serves 16 rows, so nothing is gained by keeping it; beyond that, half a
  // block of 64 KiB stays in L1 while the left rows stream from L2.
  static constexpr int64_t kOnePassRows = 16;
  static constexpr int64_t kBlockBytes = int64_t{64} << 10;
  // One block: 384 rows of it take 400 KB, and the sums of eight panels 800 KB.
  static constexpr int64_t kGroupedK = kBlockBytes / (kPanelColumns * 2);
  // A block for rows that wait for memory.
  static constexpr int64_t kWaitingBlockBytes = int64_t{16} << 10;

  static void Rows(const Operands& p, int64_t rows) {
    const int64_t paired = (rows + kTileRows - 1) / (2 * kTileRows) * (2 * kTileRows);
    Fetch fetch(p, paired / kTileRows);
    for (int half = 0; half < 2; ++half) {
      for (int64_t r = 0; r < paired; r += 2 * kTileRows) {
        const int64_t second = rows - r - kTileRows;
        TwoByTwo(From(p, r), second < kTileRows ? second : kTileRows, half, fetch);
      }
    }
    if (paired < rows) OneByFour(From(p, paired), rows - paired);
  }

 protected:
  static constexpr int64_t kTileRows = 16, kTileSteps = kPanelSplit, kTileColumns = 16;
  static constexpr int64_t kTileBytes = 64;  // of one row

  // What is wanted next is fetched along the way: as many lines with each step of tiles, until all
  // of a panel is on its way. A burst would hold up the loads of tiles.
  class Fetch {
   public:
    // `passes`: how many calls of TwoByTwo share a panel.
    Fetch(const Operands& p, int64_t passes) : next_(static_cast<const char*>(p.prefetch)) {
      if (next_ == nullptr || passes == 0) return;
      lines_left_ = p.steps * kStepLines;
      lines_ = (kTileSteps * kStepLines + passes - 1) / passes;
    }

    void Step() {
      for (int64_t i = 0; i < lines_ && lines_left_ > 0; ++i, --lines_left_) {
        __builtin_prefetch(next_, 0, 2);  // to the second cache: the first one is full
        next_ += kLineBytes;
      }
    }

   private:
    static constexpr int64_t kLineBytes = 64, kStepLines = kPanelColumns * kStepK * 2 / kLineBytes;
    const char* next_;
    int64_t lines_left_ = 0, lines_ = 0;
  };

  // The rows from `row` on. What is wanted next is fetched along with the first.
  static Operands From(Operands p, int64_t row) {
    p.a += row * p.a_stride;
    p.acc += row * p.acc_stride;
    if (row > 0) p.prefetch = nullptr;
    return p;
  }

  // A tile that reaches over the edge is completed with zeros here; a whole one is read in place.
  struct Staged {
    alignas(64) uint16_t values[kTileRows][32] = {};
  };
  struct Source {
    const void* data;
    int64_t stride_bytes;
  };

  static Source LeftTile(const Operands& p, const uint16_t* a, int64_t rows, int64_t steps,
                         Staged& staged) {
    if (rows == kTileRows && steps == kTileSteps) return {a, p.a_stride * 2};
    if (steps == kTileSteps) {
      for (int64_t r = 0; r < rows; ++r) std::memcpy(staged.values[r], a + r * p.a_stride, 64);
    } else {
      std::memset(staged.values, 0, sizeof(staged.values));
      for (int64_t r = 0; r < rows; ++r) {
        std::memcpy(staged.values[r], a + r * p.a_stride, static_cast<size_t>(steps * 4));
      }
    }
    return {staged.values, kTileBytes};
  }

  static Source RightTile(const Operands& p, const uint16_t* b, int64_t steps, Staged& staged) {
    if (steps == kTileSteps) return {b, p.panel_stride * 2};
    std::memset(staged.values, 0, sizeof(staged.values));
    for (int64_t s = 0; s < steps; ++s) std::memcpy(staged.values[s], b + s * p.panel_stride, 64);
    return {staged.values, kTileBytes};
  }

  template <int kTile>
  static void LoadSum(const Operands& p, float* acc, int64_t rows) {
    if (!p.resume) {
      Engine::template Zero<kTile>();
    } else if (rows == kTileRows) {
      Engine::template Load<kTile>(acc, p.acc_stride * 4);
    } else {
      alignas(64) float staged[kTileRows][kTileColumns] = {};
      for (int64_t r = 0; r < rows; ++r) std::memcpy(staged[r], acc + r * p.acc_stride, 64);
      Engine::template Load<kTile>(staged, kTileBytes);
    }
  }

  template <int kTile>
  static void StoreSum(const Operands& p, float* acc, int64_t rows) {
    if (rows == kTileRows) {
      Engine::template Store<kTile>(acc, p.acc_stride * 4);
    } else {
      alignas(64) float staged[kTileRows][kTileColumns];
      Engine::template Store<kTile>(staged, kTileBytes);
      for (int64_t r = 0; r < rows; ++r) std::memcpy(acc + r * p.acc_stride, staged[r], 64);
    }
  }

  static void Prefetch(const char*& next, int64_t lines) {
    if (next == nullptr) return;
    for (int64_t i = 0; i < lines; ++i) __builtin_prefetch(next + i * 64, 0, kLocality);
    next += lines * 64;
  }

  template <int kColumnTile, int kSum, int kLeft, int kRight>
  static void DotColumn(const Operands& p, const uint16_t* b, int64_t steps, Staged& staged) {
    const Source right = RightTile(p, b + kColumnTile * 32, steps, staged);
    Engine::template Load<kRight>(right.data, right.stride_bytes);
    Engine::template Dot<kSum, kLeft, kRight>();
  }

  // Up to 16 rows, four column tiles: tiles 0-3 sums, 4 left, 5-7 right.
  static void OneByFour(const Operands& p, int64_t rows) {
    LoadSum<0>(p, p.acc, rows);
    LoadSum<1>(p, p.acc + 16, rows);
    LoadSum<2>(p, p.acc + 32, rows);
    LoadSum<3>(p, p.acc + 48, rows);
    Staged left, right;
    const char* next = static_cast<const char*>(p.prefetch);
    for (int64_t s = 0; s < p.steps; s += kTileSteps) {
      const int64_t steps = p.steps - s < kTileSteps ? p.steps - s : kTileSteps;
      const uint16_t* b = p.panel + s * p.panel_stride;
      const Source a = LeftTile(p, p.a + s * 2, rows, steps, left);
      Engine::template Load<4>(a.data, a.stride_bytes);
      DotColumn<0, 0, 4, 5>(p, b, steps, right);
      DotColumn<1, 1, 4, 6>(p, b, steps, right);
      DotColumn<2, 2, 4, 7>(p, b, steps, right);
      DotColumn<3, 3, 4, 5>(p, b, steps, right);
      Prefetch(next, 4 * steps);
    }
    StoreSum<0>(p, p.acc, rows);
    StoreSum<1>(p, p.acc + 16, rows);
    StoreSum<2>(p, p.acc + 32, rows);
    StoreSum<3>(p, p.acc + 48, rows);
  }

  // 16 + `second` rows, column tiles 2 half and 2 half + 1: tiles 0-3 sums, 4-5 left, 6-7 right.
  static void TwoByTwo(const Operands& p, int64_t second, int half, Fetch& fetch) {
    float* const acc0 = p.acc + half * 32;
    float* const acc1 = acc0 + kTileRows * p.acc_stride;
    LoadSum<0>(p, acc0, kTileRows);
    LoadSum<1>(p, acc0 + 16, kTileRows);
    LoadSum<2>(p, acc1, second);
    LoadSum<3>(p, acc1 + 16, second);
    Staged left0, left1, right;
    for (int64_t s = 0; s < p.steps; s += kTileSteps) {
      const int64_t steps = p.steps - s < kTileSteps ? p.steps - s : kTileSteps;
      const uint16_t* a = p.a + s * 2;
      const uint16_t* b = p.panel + s * p.panel_stride + half * 64;
      const Source a0 = LeftTile(p, a, kTileRows, steps, left0);
      Engine::template Load<4>(a0.data, a0.stride_bytes);
      DotColumn<0, 0, 4, 6>(p, b, steps, right);
      const Source a1 = LeftTile(p, a + kTileRows * p.a_stride, second, steps, left1);
      Engine::template Load<5>(a1.data, a1.stride_bytes);
      Engine::template Dot<2, 5, 6>();
      DotColumn<1, 1, 4, 7>(p, b, steps, right);
      Engine::template Dot<3, 5, 7>();
      fetch.Step();
    }
    StoreSum<0>(p, acc0, kTileRows);
    StoreSum<1>(p, acc0 + 16, kTileRows);
    StoreSum<2>(p, acc1, second);
    StoreSum<3>(p, acc1 + 16, second);
  }
};

}  // namespace
}  // namespace kvgauge
