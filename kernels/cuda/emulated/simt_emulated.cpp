// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/strings.h"
#include "cuda/device/mma.h"
#include "cuda/device/warpgroup.h"
#include "cuda/emulated/device_memory.h"
#include "cuda/emulated/fiber.h"

namespace kvgauge::cuda {
namespace emulated {

constinit thread_local const Place* place = nullptr;

namespace {

constexpr int kMostThreads = 1024;
// All bits set is a NaN in every float format.
constexpr int kPoison = 0xff;
constexpr int kGuard = 0xa5;

struct OpenArray {
  const char* name;
  const std::byte *before, *after;
};

struct PendingCopy {
  std::byte* shared;
  std::array<std::byte, 16> bytes;
  int group;
};

// A product of warpgroups that a thread began: its 16 by 64 of the warp's results.
struct PendingProduct {
  DType type;
  float* c;
  const Uint4* a;                             // or null
  Uint4 a_then;                               // what it was when the product began
  std::array<std::array<float, 16>, 2> rows;  // of `a`: g and g + 8
  const std::byte *a_slab, *b_slab;
  std::vector<std::byte> a_slab_then, b_slab_then;  // of a warp's first thread
  int group;
};
struct PendingSums {
  float* c;
  std::array<float, 32> sums;
};
// A row of StoreMatrix4 that no product sees yet.
struct PendingRow {
  std::byte* to;
  std::array<std::byte, 16> bytes;
};

struct ThreadState {
  enum class Waits { kReady, kWarp, kBlock, kDone };
  Fiber fiber;
  Waits waits = Waits::kReady;
  int number = 0;
};

// What a thread began and did not wait for.
struct Pending {
  std::vector<PendingCopy> copies;
  int groups = 0;  // committed
  std::vector<PendingProduct> products;
  std::vector<PendingSums> sums;
  std::vector<PendingRow> rows;
  int product_groups = 0;
  bool begun = false;  // WarpgroupBegin, and no wait since

  void Clear() {
    copies.clear();
    groups = 0;
    products.clear();
    sums.clear();
    rows.clear();
    product_groups = 0;
    begun = false;
  }
};

// Deposits alternate between two sets: a lane that is one call ahead does not disturb the others.
struct WarpState {
  std::array<Deposits, 2> deposits;
  uint32_t arrived = 0;
  int turn = 0;  // which set is being filled
  const char* what = nullptr;
};

struct BlockState {
  const char* kernel = nullptr;
  void (*body)(const void*) = nullptr;
  const void* arguments = nullptr;
  Place place;  // of the running thread
  std::array<ThreadState, kMostThreads> thread;
  std::array<Pending, kMostThreads> pending;
  bool is_any_pending = false;  // some thread of this block asked for its own
  std::array<WarpState, kMostThreads / kWarp> warp;
  std::vector<OpenArray> arrays;
  std::vector<std::byte> dynamic;  // with a guard on both sides
  size_t dynamic_bytes = 0, array_bytes = 0;
  int64_t most_shared = 0;  // of both
  Fiber scheduler;
  ThreadState* running = nullptr;
  uint64_t serial = 0;  // of the block, over all launches
  bool backwards = false;
};

// The state of this OS thread, from its first launch on. Asking each time whether it is there would
// cost more than many device functions do.
constinit thread_local BlockState* block_state = nullptr;
BlockState& Block() { return *block_state; }
void MakeBlock() {
  static thread_local const std::unique_ptr<BlockState> state = std::make_unique<BlockState>();
  block_state = state.get();
}

[[noreturn]] void Fail(const BlockState& b, const ThreadState& thread, const std::string& what) {
  const Place& p = b.place;
  CheckFailed(__FILE__, __LINE__, "emulated device",
              StrCat("kernel ", b.kernel, ", block (", p.block[0], ", ", p.block[1], ", ",
                     p.block[2], "), thread ", thread.number, ": ", what));
}

ThreadState& Running() {
  KVG_CHECK(place != nullptr, "a device function outside of a kernel");
  return *Block().running;
}
Pending& PendingOf(const ThreadState& thread) {
  BlockState& b = Block();
  b.is_any_pending = true;
  return b.pending[static_cast<size_t>(thread.number)];
}
Pending& RunningPending() { return PendingOf(Running()); }

void MakeRunning(BlockState& b, ThreadState& thread) {
  b.running = &thread;
  b.place.thread = thread.number;
}

// What runs when `thread` does not: the next of its warp that is ready, else the scheduler.
Fiber& NextFiber(BlockState& b, const ThreadState& thread) {
  const int step = b.backwards ? -1 : 1;
  const int end =
      b.backwards ? thread.number / kWarp * kWarp - 1 : (thread.number / kWarp + 1) * kWarp;
  for (int t = thread.number + step; t != end; t += step) {
    if (b.thread[t].waits != ThreadState::Waits::kReady) continue;
    MakeRunning(b, b.thread[t]);
    return b.thread[t].fiber;
  }
  return b.scheduler;
}

// Gives the processor away until the thread may go on.
void Yield(ThreadState& thread, ThreadState::Waits waits) {
  thread.waits = waits;
  SwitchFiber(thread.fiber, NextFiber(Block(), thread));
}

void RunThread() {
  BlockState& b = Block();
  ThreadState& thread = *b.running;
  b.body(b.arguments);
  if (b.is_any_pending) {
    const Pending& pending = PendingOf(thread);
    if (!pending.products.empty()) Fail(b, thread, "returns while its products are pending");
    if (!pending.rows.empty()) Fail(b, thread, "returns with writes that it did not fence");
  }
  thread.waits = ThreadState::Waits::kDone;
  LeaveFiber(thread.fiber, NextFiber(b, thread));
}

void CheckGuard(const BlockState& b, const OpenArray& array) {
  for (const std::byte* side : {array.before, array.after}) {
    for (size_t i = 0; i < kGuardBytes; ++i) {
      if (side[i] != std::byte{kGuard}) {
        Fail(b, b.thread[0], StrCat("wrote outside of shared array ", array.name));
      }
    }
  }
}

// Returns when a thread of the warp finds no other that is ready.
void Resume(BlockState& b, ThreadState& thread) {
  MakeRunning(b, thread);
  place = &b.place;
  SwitchFiber(b.scheduler, thread.fiber);
  place = nullptr;
  b.running = nullptr;
}

// Runs a warp until all its threads are done or wait for the block.
void RunWarp(BlockState& b, int warp) {
  bool moved = true;
  while (moved) {
    moved = false;
    for (int i = 0; i < kWarp; ++i) {
      ThreadState& thread = b.thread[warp * kWarp + (b.backwards ? kWarp - 1 - i : i)];
      if (thread.waits != ThreadState::Waits::kReady) continue;
      Resume(b, thread);
      moved = true;
    }
  }
}

void RunBlock(BlockState& b) {
  ++b.serial;
  b.arrays.clear();
  b.array_bytes = 0;
  std::fill(b.dynamic.begin(), b.dynamic.end(), std::byte{kGuard});
  std::memset(b.dynamic.data() + kGuardBytes, kPoison, b.dynamic_bytes);
  const int threads = b.place.threads, warps = threads / kWarp;
  for (int t = 0; t < threads; ++t) {
    b.thread[t].waits = ThreadState::Waits::kReady;
    b.thread[t].number = t;
    if (b.is_any_pending) b.pending[t].Clear();
    StartFiber(b.thread[t].fiber, t, RunThread);
  }
  b.is_any_pending = false;
  for (int w = 0; w < warps; ++w) {
    b.warp[w].arrived = 0;
    b.warp[w].what = nullptr;
  }
  while (true) {
    for (int w = 0; w < warps; ++w) RunWarp(b, b.backwards ? warps - 1 - w : w);
    std::array<int, 4> count = {};
    for (int t = 0; t < threads; ++t) ++count[static_cast<size_t>(b.thread[t].waits)];
    if (count[static_cast<size_t>(ThreadState::Waits::kDone)] == threads) break;
    const int at_barrier = count[static_cast<size_t>(ThreadState::Waits::kBlock)];
    if (at_barrier != threads) {
      for (int t = 0; t < threads; ++t) {
        const bool in_warp = b.thread[t].waits == ThreadState::Waits::kWarp;
        if (!in_warp && b.thread[t].waits != ThreadState::Waits::kBlock) continue;
        const char* call = in_warp ? b.warp[t / kWarp].what : "SyncBlock";
        Fail(b, b.thread[t],
             StrCat("waits in ", call, ", which not all reach: of ", threads, " threads ",
                    at_barrier, " wait in SyncBlock, ",
                    count[static_cast<size_t>(ThreadState::Waits::kWarp)],
                    " in warp functions, the rest have returned"));
      }
    }
    for (int t = 0; t < threads; ++t) b.thread[t].waits = ThreadState::Waits::kReady;
  }
  for (const OpenArray& array : b.arrays) CheckGuard(b, array);
  CheckGuard(b, {"(dynamic)", b.dynamic.data(), b.dynamic.data() + kGuardBytes + b.dynamic_bytes});
}

}  // namespace

const Deposits& Exchange(const char* what, const void* value, size_t size_bytes, Finish* finish,
                         const void* context) {
  KVG_CHECK(place != nullptr, "a warp function outside of a kernel");
  BlockState& b = Block();
  ThreadState& thread = *b.running;
  const int lane = thread.number % kWarp;
  WarpState& warp = b.warp[thread.number / kWarp];
  if (warp.arrived == 0) warp.what = what;
  if (warp.what != what && std::strcmp(warp.what, what) != 0) {
    Fail(b, thread, StrCat("is in ", what, " while others of its warp are in ", warp.what));
  }
  Deposits& deposits = warp.deposits[warp.turn];
  std::memcpy(deposits.of_lane[lane], value, size_bytes);
  warp.arrived |= uint32_t{1} << lane;
  if (warp.arrived != ~uint32_t{0}) {
    Yield(thread, ThreadState::Waits::kWarp);
  } else {
    warp.arrived = 0;
    warp.turn ^= 1;
    if (finish != nullptr) finish(deposits, context);
    const int first = thread.number / kWarp * kWarp;
    for (int t = first; t < first + kWarp; ++t) {
      if (t != thread.number) b.thread[t].waits = ThreadState::Waits::kReady;
    }
  }
  return deposits;
}

void OpenShared(const char* name, uint64_t* opened_by, std::byte* before, std::byte* data,
                std::byte* after, size_t size_bytes) {
  KVG_CHECK(place != nullptr, "shared memory outside of a kernel");
  BlockState& b = Block();
  if (*opened_by == b.serial) return;
  *opened_by = b.serial;
  std::memset(before, kGuard, kGuardBytes);
  std::memset(data, kPoison, size_bytes);
  std::memset(after, kGuard, kGuardBytes);
  b.arrays.push_back({name, before, after});
  // What a device has for arrays, and for them beside what the launch asks for.
  constexpr size_t kMostArrayBytes = size_t{48} * 1024;
  b.array_bytes += (size_bytes + 15) / 16 * 16;
  if (b.array_bytes > kMostArrayBytes ||
      b.array_bytes + b.dynamic_bytes > static_cast<size_t>(b.most_shared)) {
    Fail(b, *b.running,
         StrCat("shared array ", name, " brings the arrays of a block to ", b.array_bytes,
                " bytes, beside ", b.dynamic_bytes, " that the launch asks for"));
  }
}

void* DynamicShared() { return Block().dynamic.data() + kGuardBytes; }

void WaitForCopies(int pending) {
  Pending& own = RunningPending();
  const int complete = own.groups - pending;  // groups below this one arrive
  std::erase_if(own.copies, [complete](const PendingCopy& copy) {
    if (copy.group >= complete) return false;
    std::memcpy(copy.shared, copy.bytes.data(), copy.bytes.size());
    return true;
  });
}

void RunGrid(const char* kernel, const LaunchShape& shape, void (*body)(const void*),
             const void* arguments) {
  KVG_CHECK(shape.threads > 0 && shape.threads <= kMostThreads && shape.threads % kWarp == 0,
            StrCat("kernel ", kernel, ": ", shape.threads, " threads a block"));
  KVG_CHECK(!shape.warpgroups || GivenWarpgroups() != Warpgroups::kNone,
            StrCat("kernel ", kernel, ": the device has no instructions of warpgroups"));
  const int64_t most_shared =
      std::min(shape.warpgroups ? kMostWarpgroupSharedBytes : kMostSharedBytes, BlockSharedBytes());
  KVG_CHECK(shape.shared_bytes >= 0 && shape.shared_bytes <= most_shared,
            StrCat("kernel ", kernel, ": ", shape.shared_bytes, " bytes of shared memory"));
  CountLaunch();
  KVG_CHECK(place == nullptr, "a launch inside of a kernel");
  MakeBlock();
  BlockState& b = Block();
  b.kernel = kernel;
  b.body = body;
  b.arguments = arguments;
  b.dynamic_bytes = static_cast<size_t>(RoundUp(shape.shared_bytes, 16));
  b.most_shared = most_shared;
  b.dynamic.resize(b.dynamic_bytes + 2 * kGuardBytes);
  b.backwards = !b.backwards;
  const DeviceAccess access;
  const int64_t blocks = shape.grid_x * shape.grid_y * shape.grid_z;
  for (int64_t n = 0; n < blocks; ++n) {
    const int64_t index = b.backwards ? blocks - 1 - n : n;
    b.place = {0,
               shape.threads,
               {index % shape.grid_x, index / shape.grid_x % shape.grid_y,
                index / shape.grid_x / shape.grid_y},
               {shape.grid_x, shape.grid_y, shape.grid_z}};
    RunBlock(b);
  }
}

}  // namespace emulated

void SyncBlock() { emulated::Yield(emulated::Running(), emulated::ThreadState::Waits::kBlock); }

void CopyAsync16(void* shared, const void* global) {
  KVG_CHECK(reinterpret_cast<uintptr_t>(shared) % 16 == 0 &&
                reinterpret_cast<uintptr_t>(global) % 16 == 0,
            "CopyAsync16 between addresses that are not 16-byte aligned");
  emulated::Pending& own = emulated::RunningPending();
  emulated::PendingCopy copy = {static_cast<std::byte*>(shared), {}, own.groups};
  std::memcpy(copy.bytes.data(), global, copy.bytes.size());
  std::memset(shared, emulated::kPoison, copy.bytes.size());
  own.copies.push_back(copy);
}
void CommitCopies() { ++emulated::RunningPending().groups; }

namespace {

// The numbers of a lane's registers: pairs of 16-bit ones, the lower half first.
struct Fragments {
  float a[8];
  float b[4];
};

template <class ToFloat>
void MultiplyAdd(const char* what, float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                 ToFloat to_float) {
  Fragments own;
  for (int i = 0; i < 8; ++i) own.a[i] = to_float(static_cast<uint16_t>(a[i / 2] >> i % 2 * 16));
  for (int i = 0; i < 4; ++i) own.b[i] = to_float(static_cast<uint16_t>(b[i / 2] >> i % 2 * 16));
  const emulated::Deposits& all = emulated::Exchange(what, own);
  const auto of = [&](int lane) -> const Fragments& {
    return *reinterpret_cast<const Fragments*>(all.of_lane[lane]);
  };
  const int g = Lane() / 4, t = Lane() % 4;
  double sum[4] = {c[0], c[1], c[2], c[3]};
  for (int k = 0; k < 16; ++k) {
    const int quad = k % 8 / 2, half = k / 8, side = k % 2;
    const Fragments& of_row = of(4 * g + quad);
    for (int column = 0; column < 2; ++column) {
      const double y = of(4 * (2 * t + column) + quad).b[2 * half + side];
      sum[column] += of_row.a[4 * half + side] * y;
      sum[2 + column] += of_row.a[4 * half + 2 + side] * y;
    }
  }
  for (int i = 0; i < 4; ++i) c[i] = static_cast<float>(sum[i]);
}

void LoadMatrices(const char* what, uint32_t (&r)[4], const void* row, bool transposed) {
  KVG_CHECK(reinterpret_cast<uintptr_t>(row) % 16 == 0, "a matrix row that is not 16-byte aligned");
  // The rows as they are now: nobody may write them before the others have read.
  struct Row {
    uint16_t numbers[8];
  };
  Row own;
  std::memcpy(&own, row, sizeof own);
  const emulated::Deposits& all = emulated::Exchange(what, own);
  const int g = Lane() / 4, t = Lane() % 4;
  for (int m = 0; m < 4; ++m) {
    const auto at = [&](int i, int j) -> uint32_t {
      return emulated::DepositOf<Row>(all, 8 * m + i).numbers[j];
    };
    r[m] =
        transposed ? at(2 * t, g) | at(2 * t + 1, g) << 16 : at(g, 2 * t) | at(g, 2 * t + 1) << 16;
  }
}

}  // namespace

void MultiplyAddBf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MultiplyAdd("MultiplyAddBf16", c, a, b, [](uint16_t bits) { return Bf16ToF32(bits); });
}
void MultiplyAddF16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MultiplyAdd("MultiplyAddF16", c, a, b, [](uint16_t bits) { return F16ToF32(bits); });
}
void MultiplyAddBytes(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  struct Registers {
    uint32_t a[4], b[2];
  };
  const emulated::Deposits& all =
      emulated::Exchange("MultiplyAddBytes", Registers{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}});
  const int g = Lane() / 4, t = Lane() % 4;
  for (int quad = 0; quad < 4; ++quad) {
    const auto of_row = emulated::DepositOf<Registers>(all, 4 * g + quad);
    for (int column = 0; column < 2; ++column) {
      const auto of_column = emulated::DepositOf<Registers>(all, 4 * (2 * t + column) + quad);
      for (int k = 0; k < 8; ++k) {
        const int shift = k % 4 * 8;
        const int32_t y = static_cast<uint8_t>(of_column.b[k / 4] >> shift);
        for (int row = 0; row < 2; ++row) {
          c[row * 2 + column] += static_cast<int8_t>(of_row.a[k / 4 * 2 + row] >> shift) * y;
        }
      }
    }
  }
}
void LoadMatrix4(uint32_t (&r)[4], const void* row) { LoadMatrices("LoadMatrix4", r, row, false); }
void LoadMatrix4Transposed(uint32_t (&r)[4], const void* row) {
  LoadMatrices("LoadMatrix4Transposed", r, row, true);
}

void StoreMatrix4(void* row, const Uint4& r) {
  KVG_CHECK(reinterpret_cast<uintptr_t>(row) % 16 == 0, "a matrix row that is not 16-byte aligned");
  const emulated::Deposits& all = emulated::Exchange("StoreMatrix4", r);
  emulated::PendingRow stored = {static_cast<std::byte*>(row), {}};
  for (int t = 0; t < 4; ++t) {
    const auto words =
        std::bit_cast<std::array<uint32_t, 4>>(emulated::DepositOf<Uint4>(all, Lane() % 8 * 4 + t));
    std::memcpy(stored.bytes.data() + t * 4, &words[static_cast<size_t>(Lane() / 8)], 4);
  }
  std::memset(row, emulated::kPoison, stored.bytes.size());
  emulated::RunningPending().rows.push_back(stored);
}
void FenceSlabs() {
  emulated::Pending& own = emulated::RunningPending();
  for (const emulated::PendingRow& row : own.rows) {
    std::memcpy(row.to, row.bytes.data(), row.bytes.size());
  }
  own.rows.clear();
}

void WarpgroupBegin() { emulated::RunningPending().begun = true; }
void WarpgroupCommit() { ++emulated::RunningPending().product_groups; }

namespace emulated {
namespace {

std::atomic<int64_t> warpgroup_products = 0;
// A signalling NaN, which arithmetic makes another.
const float kPendingSum = FloatOf(0x7fa5a5a5);

float Number(DType type, uint16_t bits) {
  return type == DType::kBF16 ? Bf16ToF32(bits) : F16ToF32(bits);
}
float SlabNumber(DType type, const std::byte* slab, int row, int k) {
  uint16_t bits;
  std::memcpy(&bits, slab + k / 8 * kHalfSlabBytes + row * 16 + k % 8 * 2, sizeof bits);
  return Number(type, bits);
}

// The lane's results, onto `sums`.
void MultiplyNow(const PendingProduct& p, std::array<float, 32>& sums) {
  const int g = Lane() / 4, t = Lane() % 4, warp_row = WarpIndex() % 4 * 16;
  std::array<std::array<float, 16>, 2> rows = p.rows;
  for (int side = 0; side < 2 && p.a == nullptr; ++side) {
    for (int k = 0; k < 16; ++k) {
      rows[side][k] = SlabNumber(p.type, p.a_slab, warp_row + g + 8 * side, k);
    }
  }
  const bool halves = GivenWarpgroups() == Warpgroups::kInHalves;
  for (int i = 0; i < 32; ++i) {
    const int column = i / 4 * 8 + t * 2 + i % 2;
    const std::array<float, 16>& row = rows[i % 4 / 2];
    double sum = sums[i];
    for (int k = 0; k < 16; ++k) {
      if (halves && k == 8) sum = static_cast<float>(sum);
      sum += row[k] * static_cast<double>(SlabNumber(p.type, p.b_slab, column, k));
    }
    sums[i] = static_cast<float>(sum);
  }
}

std::vector<std::byte> SlabNow(const std::byte* slab) {
  return slab == nullptr ? std::vector<std::byte>()
                         : std::vector<std::byte>(slab, slab + kSlabBytes);
}

}  // namespace

void Multiply(DType type, float* c, const Uint4* a, const void* a_slab, const void* b_slab) {
  const ThreadState& thread = Running();
  Pending& own = PendingOf(thread);
  if (!own.begun) {
    Fail(Block(), thread, "begins a product, and called no WarpgroupBegin since it waited");
  }
  KVG_CHECK(reinterpret_cast<uintptr_t>(a_slab) % 16 == 0 &&
                reinterpret_cast<uintptr_t>(b_slab) % 16 == 0,
            "a slab that is not 16-byte aligned");
  PendingProduct p = {type,
                      c,
                      a,
                      {},
                      {},
                      static_cast<const std::byte*>(a_slab),
                      static_cast<const std::byte*>(b_slab),
                      {},
                      {},
                      own.product_groups};
  if (a != nullptr) p.a_then = *a;
  const Deposits& all = Exchange("WarpgroupMultiply", p.a_then);
  for (int k = 0; k < 16 && a != nullptr; ++k) {
    const auto words =
        std::bit_cast<std::array<uint32_t, 4>>(DepositOf<Uint4>(all, Lane() / 4 * 4 + k % 8 / 2));
    for (int side = 0; side < 2; ++side) {
      const uint32_t word = words[static_cast<size_t>(k / 8) * 2 + static_cast<size_t>(side)];
      p.rows[side][k] = Number(type, static_cast<uint16_t>(word >> k % 2 * 16));
    }
  }
  if (Lane() == 0) {
    p.a_slab_then = SlabNow(p.a_slab);
    p.b_slab_then = SlabNow(p.b_slab);
    if (WarpIndex() % 4 == 0) ++warpgroup_products;
  }
  const bool is_first = std::none_of(own.sums.begin(), own.sums.end(),
                                     [c](const PendingSums& s) { return s.c == c; });
  if (is_first) {
    PendingSums& held = own.sums.emplace_back(PendingSums{c, {}});
    std::copy_n(c, 32, held.sums.begin());
    std::fill_n(c, 32, kPendingSum);
  }
  own.products.push_back(std::move(p));
}

void WaitForProducts(int pending) {
  const ThreadState& thread = Running();
  Pending& own = PendingOf(thread);
  Exchange("WarpgroupWait", 0);
  own.begun = false;
  const int complete = own.product_groups - pending;  // groups below this one
  std::erase_if(own.products, [&](const PendingProduct& p) {
    if (p.group >= complete) return false;
    if (Lane() == 0 && (p.a_slab_then != SlabNow(p.a_slab) || p.b_slab_then != SlabNow(p.b_slab))) {
      Fail(Block(), thread, "a slab was written while a product with it was pending");
    }
    if (p.a != nullptr && std::memcmp(p.a, &p.a_then, sizeof p.a_then) != 0) {
      Fail(Block(), thread, "registers were written while a product of them was pending");
    }
    const auto held = std::find_if(own.sums.begin(), own.sums.end(),
                                   [&](const PendingSums& s) { return s.c == p.c; });
    MultiplyNow(p, held->sums);
    return true;
  });
  std::erase_if(own.sums, [&](const PendingSums& held) {
    const bool is_pending = std::any_of(own.products.begin(), own.products.end(),
                                        [&](const PendingProduct& p) { return p.c == held.c; });
    if (is_pending) return false;
    const auto untouched = [](float sum) { return BitsOf(sum) == BitsOf(kPendingSum); };
    if (!std::all_of(held.c, held.c + 32, untouched)) {
      Fail(Block(), thread, "sums were written while products onto them were pending");
    }
    std::copy(held.sums.begin(), held.sums.end(), held.c);
    return true;
  });
}

int64_t WarpgroupProducts() { return warpgroup_products; }

}  // namespace emulated

}  // namespace kvgauge::cuda
