// SPDX-License-Identifier: Apache-2.0
// simt.h on the processor, for tests. Included by simt.h only.
//
// A launch runs its blocks one after another on the calling thread; the threads of a block are
// fibers that change at barriers and warp functions. Successive launches take blocks and threads in
// opposite orders, so that what depends on an order shows as a difference. Ends the program, with
// the kernel's name, when
// - a barrier or warp function is not reached by all who must,
// - shared memory is written outside of its array (found when the block ends),
// - a shape is outside of what devices take.
// Shared memory is all NaN when a block starts; bytes of CopyAsync16 arrive when they are waited
// for and are NaN before.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/dtype.h"

#define KVG_KERNEL(...) static void
#define KVG_DEVICE static inline
#define KVG_MEMBER
#define KVG_CONSTANT static const
#define KVG_SHARED(type, name, count)                                                              \
  alignas(16) static thread_local ::kvgauge::cuda::emulated::Shared<type, (count)> name##_storage; \
  type* const name = name##_storage.Open(#name)
#define KVG_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::kvgauge::cuda::emulated::DynamicShared())
#define KVG_LAUNCH(kernel, ...) ::kvgauge::cuda::Launch(#kernel, kernel, __VA_ARGS__)

namespace kvgauge::cuda {

struct alignas(8) Float2 {
  float x, y;
};
struct alignas(16) Float4 {
  float x, y, z, w;
};
struct alignas(8) Uint2 {
  uint32_t x, y;
};
struct alignas(16) Uint4 {
  uint32_t x, y, z, w;
};

namespace emulated {

// Where the running fiber is. Null outside of kernels.
struct Place {
  int thread = 0;
  int threads = 0;
  int64_t block[3] = {}, grid[3] = {};
};
extern constinit thread_local const Place* place;

inline constexpr size_t kMostDeposited = 64;
struct Deposits {
  alignas(16) std::byte of_lane[kWarp][kMostDeposited];
};
// What the lane that comes last does to the values of all, before anyone reads them.
using Finish = void(Deposits& deposits, const void* context);
// Every lane of the warp leaves a value and gets those of all. Valid until the lane's next call.
// `what` tells a reader of the failure which function lanes were in, and must be one literal.
const Deposits& Exchange(const char* what, const void* value, size_t size_bytes,
                         Finish* finish = nullptr, const void* context = nullptr);
template <class T>
const Deposits& Exchange(const char* what, const T& value, Finish* finish = nullptr,
                         const void* context = nullptr) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMostDeposited);
  return Exchange(what, &value, sizeof value, finish, context);
}
template <class T>
T DepositOf(const Deposits& deposits, int lane) {
  T value;
  std::memcpy(&value, deposits.of_lane[lane], sizeof value);
  return value;
}

// True the first time within a block; the array is then poisoned and watched until the block ends.
void OpenShared(const char* name, uint64_t* opened_by, std::byte* before, std::byte* data,
                std::byte* after, size_t size_bytes);
void* DynamicShared();

inline constexpr size_t kGuardBytes = 64;
template <class T, int64_t count>
struct Shared {
  T* Open(const char* name) {
    OpenShared(name, &opened_by, before, data, after, sizeof data);
    return reinterpret_cast<T*>(data);
  }
  alignas(16) std::byte before[kGuardBytes];
  alignas(16) std::byte data[sizeof(T) * count];
  std::byte after[kGuardBytes];
  uint64_t opened_by;  // the block that did
};

// Does `work`, or keeps it: while its stream captures, or until something waits for the stream of
// copies. `what` tells works apart.
void Do(const char* what, Stream stream, std::function<void()> work);

void RunGrid(const char* kernel, const LaunchShape& shape, void (*body)(const void*),
             const void* arguments);

}  // namespace emulated

inline void ActOn(Stream) {}

template <class... P, class... A>
void Launch(const char* name, void (*kernel)(P...), const LaunchShape& shape, Stream stream,
            A... args) {
  if (shape.grid_x == 0 || shape.grid_y == 0 || shape.grid_z == 0) return;
  CheckGrid(name, shape);
  if (!Submits(stream, kernel, shape.grid_x, shape.grid_y, shape.grid_z, shape.threads,
               shape.shared_bytes, static_cast<P>(args)...)) {
    return;
  }
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> args;
  };
  const Call call = {kernel, std::tuple<P...>(static_cast<P>(args)...)};
  emulated::Do(name, stream, [name, shape, call] {
    emulated::RunGrid(
        name, shape,
        [](const void* p) {
          const auto* c = static_cast<const Call*>(p);
          std::apply(c->kernel, c->args);
        },
        &call);
  });
}

inline int Thread() { return emulated::place->thread; }
inline int BlockThreads() { return emulated::place->threads; }
inline int Lane() { return Thread() % kWarp; }
inline int WarpIndex() { return Thread() / kWarp; }
inline int64_t BlockX() { return emulated::place->block[0]; }
inline int64_t BlockY() { return emulated::place->block[1]; }
inline int64_t BlockZ() { return emulated::place->block[2]; }
inline int64_t GridX() { return emulated::place->grid[0]; }
inline int64_t GridY() { return emulated::place->grid[1]; }
inline int64_t GridZ() { return emulated::place->grid[2]; }

void SyncBlock();
inline void SyncWarp() { emulated::Exchange("SyncWarp", 0); }
template <class T>
T ShuffleXor(T value, int mask) {
  return emulated::DepositOf<T>(emulated::Exchange("ShuffleXor", value), Lane() ^ mask);
}
template <class T>
T Shuffle(T value, int lane) {
  return emulated::DepositOf<T>(emulated::Exchange("Shuffle", value), lane % kWarp);
}
inline uint32_t Ballot(bool value) {
  const emulated::Deposits& all = emulated::Exchange("Ballot", value);
  uint32_t votes = 0;
  for (int lane = 0; lane < kWarp; ++lane) {
    votes |= static_cast<uint32_t>(emulated::DepositOf<bool>(all, lane)) << lane;
  }
  return votes;
}
namespace emulated {
// The butterfly over masks 16, 8, 4, 2, 1, as one exchange: one lane folds for all.
template <class T, class Fold>
T Butterfly(const char* what, T value, Fold fold) {
  const Deposits& all = Exchange(
      what, value,
      [](Deposits& deposits, const void* context) {
        const Fold& of_two = *static_cast<const Fold*>(context);
        T values[kWarp], next[kWarp];
        for (int lane = 0; lane < kWarp; ++lane) values[lane] = DepositOf<T>(deposits, lane);
        for (int mask = kWarp / 2; mask > 0; mask /= 2) {
          for (int lane = 0; lane < kWarp; ++lane) {
            next[lane] = of_two(values[lane], values[lane ^ mask]);
          }
          std::memcpy(values, next, sizeof values);
        }
        for (int lane = 0; lane < kWarp; ++lane) {
          std::memcpy(deposits.of_lane[lane], &values[lane], sizeof(T));
        }
      },
      &fold);
  return DepositOf<T>(all, Lane());
}
}  // namespace emulated
template <class T, class Fold>
T WarpReduce(T value, Fold fold) {
  return emulated::Butterfly("WarpReduce", value, fold);
}
template <class T>
T WarpSum(T value) {
  return emulated::Butterfly("WarpSum", value, [](T a, T b) { return a + b; });
}
template <class T>
T WarpMax(T value) {
  return emulated::Butterfly("WarpMax", value, [](T a, T b) { return a < b ? b : a; });
}
template <class T>
T WarpMin(T value) {
  return emulated::Butterfly("WarpMin", value, [](T a, T b) { return b < a ? b : a; });
}

namespace emulated {
template <class T>
T Swap(T* at, T next) {
  return std::exchange(*at, next);
}
}  // namespace emulated
inline int32_t AtomicAdd(int32_t* at, int32_t v) {
  return emulated::Swap(
      at, static_cast<int32_t>(static_cast<uint32_t>(*at) + static_cast<uint32_t>(v)));
}
inline uint32_t AtomicAdd(uint32_t* at, uint32_t v) { return emulated::Swap(at, *at + v); }
inline uint64_t AtomicAdd(uint64_t* at, uint64_t v) { return emulated::Swap(at, *at + v); }
inline int32_t AtomicMax(int32_t* at, int32_t v) { return emulated::Swap(at, *at < v ? v : *at); }
inline uint32_t AtomicMax(uint32_t* at, uint32_t v) {
  return emulated::Swap(at, *at < v ? v : *at);
}
inline int32_t AtomicMin(int32_t* at, int32_t v) { return emulated::Swap(at, v < *at ? v : *at); }
inline uint32_t AtomicMin(uint32_t* at, uint32_t v) {
  return emulated::Swap(at, v < *at ? v : *at);
}
inline uint32_t AtomicOr(uint32_t* at, uint32_t v) { return emulated::Swap(at, *at | v); }
inline uint64_t AtomicOr(uint64_t* at, uint64_t v) { return emulated::Swap(at, *at | v); }

inline float Exp(float x) { return std::exp(x); }
inline double Exp(double x) { return std::exp(x); }
inline float Exp2(float x) { return std::exp2(x); }
inline float Log(float x) { return std::log(x); }
inline float Log2(float x) { return std::log2(x); }
inline float Sqrt(float x) { return std::sqrt(x); }
inline float Rsqrt(float x) { return 1.0f / std::sqrt(x); }
inline float Tanh(float x) { return std::tanh(x); }
inline float Erf(float x) { return std::erf(x); }
inline float Erfc(float x) { return std::erfc(x); }
inline double Cos(double x) { return std::cos(x); }
inline double Sin(double x) { return std::sin(x); }
inline double Sqrt(double x) { return std::sqrt(x); }
inline double Abs(double x) { return std::fabs(x); }
inline float Cos(float x) { return std::cos(x); }
inline float Sin(float x) { return std::sin(x); }
inline float Abs(float x) { return std::fabs(x); }
// What is no number has the bits that a device gives it: kernels that look at bits see the same.
inline float Fma(float a, float b, float c) {
  const float result = std::fma(a, b, c);
  return std::isnan(result) ? std::bit_cast<float>(0x7fffffffu) : result;
}
inline double Fma(double a, double b, double c) { return std::fma(a, b, c); }
inline float RoundEven(float x) { return std::nearbyint(x); }
inline float Floor(float x) { return std::floor(x); }

inline uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }
inline float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }
inline bool IsNan(float x) { return x != x; }
inline int PopCount(uint32_t x) { return std::popcount(x); }
inline int PopCount(uint64_t x) { return std::popcount(x); }
inline int CountLeadingZeros(uint32_t x) { return std::countl_zero(x); }
inline int FindFirst(uint32_t x) { return x == 0 ? 0 : std::countr_zero(x) + 1; }
inline uint32_t PermuteBytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t both = uint64_t{b} << 32 | a;
  uint32_t bytes = 0;
  for (int i = 0; i < 4; ++i) {
    bytes |= static_cast<uint32_t>(both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  }
  return bytes;
}

inline float HalfToFloat(uint16_t bits) { return F16ToF32(bits); }
inline uint16_t FloatToHalf(float x) { return F32ToF16(x); }
inline float Bf16ToFloat(uint16_t bits) { return Bf16ToF32(bits); }
inline uint16_t FloatToBf16(float x) { return F32ToBf16(x); }
inline uint32_t PackHalf2(float low, float high) {
  return uint32_t{F32ToF16(low)} | uint32_t{F32ToF16(high)} << 16;
}
inline uint32_t PackBf16x2(float low, float high) {
  return uint32_t{F32ToBf16(low)} | uint32_t{F32ToBf16(high)} << 16;
}

void CopyAsync16(void* shared, const void* global);
void CommitCopies();
namespace emulated {
void WaitForCopies(int pending);
}  // namespace emulated
template <int pending>
void WaitCopies() {
  emulated::WaitForCopies(pending);
}

}  // namespace kvgauge::cuda
