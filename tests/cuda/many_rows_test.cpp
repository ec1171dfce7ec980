// SPDX-License-Identifier: Apache-2.0
// Products of many rows by a library: a stand-in that keeps the contract, and some that break it.
#include "cuda/many_rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "core/rng.h"
#include "core/strings.h"
#include "cuda/backend_parts.h"
#include "cuda/emulated/device_memory.h"
#include "kernels/many_rows_report.h"
#include "kernels/rounded_products.h"

namespace kvgauge::cuda {
namespace {

// How a way of the stand-in sums.
enum class WaySums {
  kAsOurs,
  kInHalves,         // of k, added at the end, as a split of k would
  kByPlace,          // in halves in every second row
  kByCompany,        // in halves where the next row is the same
  kNegativeZeros,    // as ours, but zeros get a sign
  kOntoThoseBefore,  // the chain begins with what `out` holds
  kOnlyFirst,        // as ours, but refused where it is to add
  kNotAtAll,         // refused
};

class StandIn : public ProductLibrary {
 public:
  explicit StandIn(std::vector<WaySums> ways, std::vector<int64_t> blocks = {96})
      : ways_(std::move(ways)), blocks_(std::move(blocks)) {
    emulated::SetProductLibrary(this);
  }
  ~StandIn() override { emulated::SetProductLibrary(nullptr); }

  std::string name() const override { return "stand-in"; }
  std::span<const int64_t> blocks() const override { return blocks_; }
  std::vector<Way> Ways(const BlockProduct&) override {
    std::vector<Way> ways;
    for (const WaySums sums : ways_) ways.push_back({static_cast<uint64_t>(sums)});
    return ways;
  }
  std::string Describe(const Way& way) const override { return StrCat("way ", way[0]); }

  bool Multiply(const BlockProduct& p, const Way& way, const void* x, const void* w, bool add,
                float* out, Stream) override {
    const auto sums = static_cast<WaySums>(way[0]);
    if (sums == WaySums::kNotAtAll || (sums == WaySums::kOnlyFirst && add)) return false;
    calls.push_back(p.rows);
    const emulated::DeviceAccess access;
    for (int64_t i = 0; i < p.rows; ++i) {
      const auto row = [&](int64_t r) {
        return static_cast<const char*>(x) + r * p.stride * SizeOf(p.dtype);
      };
      const bool alike = std::memcmp(row(i), row((i + 1) % p.rows),
                                     static_cast<size_t>(p.k * SizeOf(p.dtype))) == 0;
      const bool halves = sums == WaySums::kInHalves || (sums == WaySums::kByPlace && i % 2 == 1) ||
                          (sums == WaySums::kByCompany && alike);
      for (int64_t j = 0; j < p.n; ++j) {
        float& to = out[i * p.n + j];
        const auto chain = [&](float start, int64_t begin, int64_t end) {
          return Chain(p, x, w, i, j, start, begin, end);
        };
        const int64_t middle = halves ? p.k / 32 * 16 : 0;
        float sum = chain(sums == WaySums::kOntoThoseBefore && add ? to : 0.0f, middle, p.k);
        if (halves) sum += chain(0, 0, middle);
        if (sums == WaySums::kNegativeZeros && sum == 0) sum = -0.0f;
        to = add && sums != WaySums::kOntoThoseBefore ? to + sum : sum;
      }
    }
    return true;
  }

  std::vector<int64_t> calls;  // rows of the blocks

 private:
  static float Number(DType dtype, const void* data, int64_t i) {
    if (dtype == DType::kF32) return static_cast<const float*>(data)[i];
    const uint16_t bits = static_cast<const uint16_t*>(data)[i];
    return dtype == DType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
  }
  // As the emulator's tensor cores: 16 products at a time are rounded once.
  static float Chain(const BlockProduct& p, const void* x, const void* w, int64_t i, int64_t j,
                     float sum, int64_t begin, int64_t end) {
    const auto number = [&](const void* data, int64_t row, int64_t k) {
      return Number(p.dtype, data, row * p.stride + k);
    };
    if (p.dtype == DType::kF32) {
      for (int64_t k = begin; k < end; ++k) sum = std::fma(number(x, i, k), number(w, j, k), sum);
      return sum;
    }
    for (int64_t k = begin; k < end; k += 16) {
      double wide = sum;
      for (int64_t s = k; s < k + 16; ++s) wide += double{number(x, i, s)} * number(w, j, s);
      sum = static_cast<float>(wide);
    }
    return sum;
  }

  std::vector<WaySums> ways_;
  std::vector<int64_t> blocks_;
};

std::vector<float> Draw(int64_t count, uint64_t seed) {
  Rng rng(seed, 0);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) {
    v = std::ldexp(static_cast<float>(rng.NextBelow(257)) - 128.0f,
                   static_cast<int>(rng.NextBelow(12)) - 12);
  }
  return values;
}

// One matrix on a device of its own, made with the library that is there now.
class OneMatrix {
 public:
  OneMatrix(int64_t n, int64_t k, DType dtype) : n_(n), k_(k) {
    std::string why;
    ops_ = MakeDeviceOps(0, &why);
    std::vector<float> w = Draw(n * k, 1);
    const Tensor part(w.data(), DType::kF32, {n, k});
    matrix_ = ops_->linear->Pack({&part, 1}, dtype);
    bias_ = Upload(Draw(n, 2));
  }

  // Bits of `m` rows, whose places in x and out are a little apart.
  std::vector<uint32_t> Multiply(int64_t m, bool bias, bool add, int64_t apart = 0) {
    const Buffer x = Upload(Draw(m * (k_ + apart), 3)), out = Upload(Draw(m * (n_ + apart), 4));
    Tensor rows = x.As(DType::kF32, {m, k_}), to = out.As(DType::kF32, {m, n_});
    rows.stride[0] = k_ + apart;
    to.stride[0] = n_ + apart;
    const auto call = [&] {
      ops_->linear->MatMul(rows, *matrix_, bias ? bias_.As(DType::kF32, {n_}) : Tensor(),
                           add ? MatMulMode::kAdd : MatMulMode::kSet, to);
    };
    work_ == nullptr ? call() : work_->Run(call);
    std::vector<uint32_t> bits(static_cast<size_t>(m * (n_ + apart)));
    Tensor host(bits.data(), DType::kF32, {std::ssize(bits)});
    ops_->memory->Copy(out.As(DType::kF32, {std::ssize(bits)}), host);
    return bits;
  }
  // From now on rows are rounded so.
  void RoundRows(const RowRounding& rounding) {
    RoundedProducts::Of(*ops_->linear)->RoundRowsOf(*matrix_, rounding);
  }
  // From now on products are submitted as steps are.
  void Repeat() { work_ = ops_->memory->MakeRepeatedWork(); }
  RepeatedWork::Counts counts() const { return work_->counts(); }

 private:
  Buffer Upload(std::vector<float> values) {
    Buffer buffer = ops_->memory->Allocate(std::ssize(values) * 4);
    const Tensor host(values.data(), DType::kF32, {std::ssize(values)});
    ops_->memory->Copy(host, buffer.As(DType::kF32, {std::ssize(values)}));
    return buffer;
  }

  int64_t n_, k_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<PackedMatrix> matrix_;
  Buffer bias_;
  std::unique_ptr<RepeatedWork> work_;
};

struct TwoMatrices {
  TwoMatrices(DType dtype, int64_t k, std::vector<WaySums> ways, std::vector<int64_t> blocks)
      : ours(24, k, dtype), library(std::move(ways), std::move(blocks)), both(24, k, dtype) {}

  // Expects equal bits of `m` rows; the blocks that the library was asked for.
  std::vector<int64_t> Check(int64_t m, bool bias, bool add, int64_t apart = 0) {
    library.calls.clear();
    EXPECT_EQ(both.Multiply(m, bias, add, apart), ours.Multiply(m, bias, add, apart)) << m;
    return library.calls;
  }

  OneMatrix ours;
  StandIn library;
  OneMatrix both;
};
using Rows = std::vector<int64_t>;

TEST(ManyRows, BlocksHaveTheBitsOfOurKernels) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    SCOPED_TRACE(NameOf(dtype));
    // 16-bit weights are padded to whole steps.
    TwoMatrices two(dtype, 40, {WaySums::kAsOurs}, {160, 96});
    EXPECT_EQ(two.Check(64, true, false), Rows{});
    EXPECT_EQ(two.Check(65, false, false), Rows{96});
    EXPECT_EQ(two.Check(300, false, false), (Rows{160, 96}));  // our kernels do the last 44
    EXPECT_EQ(two.Check(160, true, false), Rows{160});
    EXPECT_EQ(two.Check(96, false, true), Rows{96});
    EXPECT_EQ(two.Check(130, true, true, 4), Rows{96});
  }
}

TEST(ManyRows, SpansOfKAreAddedInOrder) {
  TwoMatrices two(DType::kBF16, kProductSpan + 16, {WaySums::kAsOurs}, {48});
  EXPECT_EQ(two.Check(70, false, false), (Rows{48, 48}));
  EXPECT_EQ(two.Check(66, true, true), (Rows{48, 48}));
}

TEST(ManyRows, WaysThatGiveOtherBitsAreNotPinned) {
  const auto calls_of = [](DType dtype, int64_t k, std::vector<WaySums> ways) {
    return TwoMatrices(dtype, k, std::move(ways), {48}).Check(66, false, false);
  };
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const WaySums wrong : {WaySums::kInHalves, WaySums::kByPlace, WaySums::kByCompany,
                                WaySums::kNegativeZeros, WaySums::kNotAtAll}) {
      SCOPED_TRACE(StrCat(NameOf(dtype), " ", static_cast<int>(wrong)));
      EXPECT_EQ(calls_of(dtype, 64, {wrong}), Rows{});
      EXPECT_EQ(calls_of(dtype, 64, {wrong, WaySums::kAsOurs}), Rows{48});
    }
    EXPECT_EQ(calls_of(dtype, 64, {}), Rows{});
    EXPECT_EQ(calls_of(dtype, 64, {WaySums::kInHalves, WaySums::kNotAtAll, WaySums::kAsOurs}),
              Rows{48});
  }
  // Bits that are ours in one span and not in two, and sums that are refused in the second.
  for (const WaySums wrong : {WaySums::kOntoThoseBefore, WaySums::kOnlyFirst}) {
    EXPECT_EQ(calls_of(DType::kF16, 64, {wrong}), Rows{48});
    EXPECT_EQ(calls_of(DType::kF16, kProductSpan + 32, {wrong}), Rows{});
    // The next way is tried for several spans, too.
    EXPECT_EQ(calls_of(DType::kF16, kProductSpan + 32, {wrong, WaySums::kAsOurs}), (Rows{48, 48}));
  }
  // They may be alike.
  EXPECT_EQ(calls_of(DType::kF16, 2 * kProductSpan, {WaySums::kOnlyFirst, WaySums::kAsOurs}),
            (Rows{48, 48}));
}

// Why no way was pinned: the first check that each of them failed.
TEST(ManyRows, RecordsWhichCheckEachWayFailed) {
  const auto record_of = [](int64_t k, std::vector<WaySums> ways) {
    const StandIn library(std::move(ways), {48});
    std::string why;
    const std::unique_ptr<Ops> ops = MakeDeviceOps(0, &why);
    std::vector<float> weights(static_cast<size_t>(8 * k));
    const Tensor w(weights.data(), DType::kF32, {8, k});
    const auto packed = ops->linear->Pack({&w, 1}, DType::kBF16);
    return dynamic_cast<const ManyRowsReport&>(*ops->linear).pinned()[0];
  };
  EXPECT_EQ(record_of(64, {}),
            "bf16 8 x 64: 48 rows by our kernels: the library has no way to sum 64 products in one "
            "place");
  EXPECT_EQ(record_of(64, {WaySums::kInHalves, WaySums::kByPlace, WaySums::kByCompany,
                           WaySums::kNegativeZeros, WaySums::kNotAtAll}),
            "bf16 8 x 64: 48 rows by our kernels: no way of the library to sum 64 products has "
            "their bits (of 5: 1 refused, 2 failed for rows that all differ, 1 failed for one row "
            "in every position, 1 failed for rows of zeros)");
  EXPECT_EQ(record_of(2 * kProductSpan, {WaySums::kOntoThoseBefore, WaySums::kOnlyFirst}),
            "bf16 8 x 16384: 48 rows by our kernels: no way of the library to sum 8192 products "
            "has their bits (of 2: 1 refused, 1 failed for sums of several spans)");
}

TEST(ManyRows, ShapesThatItCannotTakeAreLeft) {
  StandIn library({WaySums::kAsOurs});
  OneMatrix odd(9, 64, DType::kBF16);
  odd.Multiply(96, false, false);
  EXPECT_TRUE(library.calls.empty());
  // No room for the test: the matrix itself is granted.
  emulated::RefuseAllocations(1, 1);
  OneMatrix full(8, 64, DType::kBF16);
  EXPECT_EQ(emulated::RefusalsLeft(), 0);
  full.Multiply(96, false, false);
  EXPECT_TRUE(library.calls.empty());
}

// A block of which no way agrees is not stood in for by a larger one, for which no room is planned.
TEST(ManyRows, RowsFillUpTheSmallestBlockOnly) {
  class LargeOnly final : public StandIn {
   public:
    LargeOnly() : StandIn({WaySums::kAsOurs}, {160, 96}) {}
    std::vector<Way> Ways(const BlockProduct& product) override {
      return product.rows == 160 ? StandIn::Ways(product) : std::vector<Way>();
    }
  };
  OneMatrix ours(8, 64, DType::kBF16);
  LargeOnly library;
  OneMatrix both(8, 64, DType::kBF16);
  for (const int64_t rows : {70, 100, 159, 160, 260}) {
    library.calls.clear();
    EXPECT_EQ(both.Multiply(rows, false, false), ours.Multiply(rows, false, false)) << rows;
    EXPECT_EQ(library.calls, rows < 160 ? Rows{} : Rows{160}) << rows;
  }
}

TEST(ManyRows, GraphsHoldOurKernels) {
  OneMatrix ours(8, 64, DType::kBF16);
  StandIn library({WaySums::kAsOurs});
  OneMatrix both(8, 64, DType::kBF16);
  const std::vector<uint32_t> bits = ours.Multiply(96, false, true);
  library.calls.clear();
  both.Repeat();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(both.Multiply(96, false, true), bits);
  EXPECT_EQ(library.calls, Rows{96});  // as the first is not recorded
  EXPECT_EQ(both.counts().plain, 1);
}

// Rows that are rounded as a file says, in the library's blocks, in ours, and in graphs.
TEST(ManyRows, RoundedRowsHaveTheBitsOfOurKernels) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const RowRounding& rounding :
         {RowRounding{}, RowRounding{.codes = RowRounding::Codes::kE4m3, .group = 16}}) {
      SCOPED_TRACE(StrCat(NameOf(dtype), " ", rounding.group));
      TwoMatrices two(dtype, 40, {WaySums::kAsOurs}, {160, 96});
      const std::vector<uint32_t> plain = two.ours.Multiply(100, false, false);
      two.ours.RoundRows(rounding);
      two.both.RoundRows(rounding);
      EXPECT_EQ(two.Check(260, true, true, 4), (Rows{160, 96}));
      EXPECT_EQ(two.Check(160, false, false), Rows{160});
      const std::vector<uint32_t> bits = two.ours.Multiply(100, false, false);
      EXPECT_NE(bits, plain);
      two.both.Repeat();
      for (int i = 0; i < 3; ++i) EXPECT_EQ(two.both.Multiply(100, false, false), bits);
      EXPECT_EQ(two.both.counts().plain, 1);
    }
  }
}

TEST(ManyRows, TheProbeSaysWhoMultiplies) {
  EXPECT_EQ(ProbeProducts(0),
            "products of many rows by our kernels (the emulated device has no vendor)");
  {
    const StandIn library({WaySums::kAsOurs}, {16});
    EXPECT_EQ(ProbeProducts(0), "products of many rows of bf16, f16, f32 by stand-in");
  }
  const StandIn library({WaySums::kOntoThoseBefore}, {16});
  EXPECT_EQ(ProbeProducts(0),
            "products of many rows of f32 by stand-in, of bf16, f16 by our kernels (stand-in: "
            "no way of the library to sum 32 products has their bits (of 1: 1 failed for sums of "
            "several spans))");
  // f32 has room, and the matrix of bf16.
  emulated::RefuseAllocations(1, 1);
  EXPECT_EQ(ProbeProducts(0),
            "products of many rows of f32 by stand-in, of bf16, f16 by our kernels (stand-in: the "
            "device has no room for the test; no way of the library to sum 32 products has their "
            "bits (of 1: 1 failed for sums of several spans))");
}

TEST(ManyRows, RoomForBlocksIsPlanned) {
  PassSize size;
  size.rows = 600;
  size.widest_in = size.widest_out = 4096;
  const int64_t ours = LinearScratchBytes(size);
  const StandIn library({WaySums::kAsOurs}, {512, 128});
  EXPECT_GE(LinearScratchBytes(size), std::max<int64_t>(ours, 2 * 512 * (4096 + 4096) * 4));
  size.rows = 64;
  const int64_t few = LinearScratchBytes(size);
  emulated::SetProductLibrary(nullptr);
  EXPECT_EQ(LinearScratchBytes(size), few);
}

// Chunks of scratch grow: the second product's is there beside the first one's.
TEST(RoundedScratch, RowsOfFloatsArePlanned) {
  constexpr int64_t kRows = 600, kDepth = 1024, kWide = 8;
  OneMatrix matrix(kWide, kDepth, DType::kF32);
  matrix.RoundRows({});
  const int64_t before = emulated::AllocatedBytes();
  matrix.Multiply(kRows - 1, false, false);
  matrix.Multiply(kRows, false, false);
  PassSize size;
  size.rows = kRows;
  size.widest_in = kDepth;
  size.widest_out = kWide;
  const int64_t others = LinearScratchBytes(size);
  size.rounded_number_bytes = SizeOf(DType::kF32);
  EXPECT_GT(emulated::AllocatedBytes() - before, others);
  EXPECT_LE(emulated::AllocatedBytes() - before, LinearScratchBytes(size));
}

TEST(RoundedScratch, ARowForEachChoiceIsPlanned) {
  constexpr int64_t kRows = 200, kChosen = 4, kDepth = 1024, kWide = 8;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    SCOPED_TRACE(NameOf(dtype));
    std::string why;
    const std::unique_ptr<Ops> ops = MakeDeviceOps(0, &why);
    std::vector<float> zeros(kWide * kDepth);
    const Tensor part(zeros.data(), DType::kF32, {kWide, kDepth});
    const std::unique_ptr<PackedMatrix> first = ops->linear->Pack({&part, 1}, dtype);
    const std::unique_ptr<PackedMatrix> second = ops->linear->Pack({&part, 1}, dtype);
    RoundedProducts::Of(*ops->linear)->RoundRowsOf(*first, {.scale = 0.5f});
    RoundedProducts::Of(*ops->linear)->RoundRowsOf(*second, {.scale = 0.25f});
    const auto set = ops->linear->Collect({first.get(), second.get()});
    const Buffer x = ops->memory->Allocate(kRows * kDepth * 4);
    const Buffer choice = ops->memory->Allocate(kRows * kChosen * 4);
    const Buffer out = ops->memory->Allocate(kRows * kChosen * kWide * 4);
    const int64_t before = emulated::AllocatedBytes();
    ops->linear->MatMulChosen(x.As(DType::kF32, {kRows, kDepth}), *set,
                              choice.As(DType::kI32, {kRows * kChosen}),
                              out.As(DType::kF32, {kRows * kChosen, kWide}));
    PassSize size;
    size.rows = kRows;
    size.widest_in = kDepth;
    size.widest_out = kWide;
    const int64_t others = LinearScratchBytes(size);
    size.rounded_number_bytes = SizeOf(dtype);
    size.chosen = kChosen;
    size.chosen_in = kDepth;
    EXPECT_GT(emulated::AllocatedBytes() - before, others);
    EXPECT_LE(emulated::AllocatedBytes() - before, LinearScratchBytes(size));
  }
}

// A grid has fewer rows of blocks than there may be rows.
TEST(ManyRows, AProductOfFloatsHasMoreRowsThanAGrid) {
  constexpr int64_t kRows = int64_t{65535} * 64 + 1;
  std::string why;
  const std::unique_ptr<Ops> ops = MakeDeviceOps(0, &why);
  std::vector<float> numbers(kRows);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 1000);
  const Tensor host(numbers.data(), DType::kF32, {1, kRows, 1});
  const Buffer rows = ops->memory->Allocate(kRows * 4), out = ops->memory->Allocate(kRows * 4);
  const Buffer two = ops->memory->Allocate(4);
  ops->memory->Copy(host, rows.As(DType::kF32, {1, kRows, 1}));
  ops->rows->Fill(2.0f, two.As(DType::kF32, {1, 1}));
  ops->linear->MatMulNT(rows.As(DType::kF32, {1, kRows, 1}), two.As(DType::kF32, {1, 1, 1}), 1.0f,
                        out.As(DType::kF32, {1, kRows, 1}));
  const std::vector<float> before = numbers;
  ops->memory->Copy(out.As(DType::kF32, {1, kRows, 1}), host);
  for (size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], 2 * before[i]) << i;
}

// A shorter span at the end of k may have a way of its own.
TEST(ManyRows, TheDeviceTellsWhatItPinned) {
  class ByLength final : public StandIn {
   public:
    ByLength() : StandIn({}) {}
    std::vector<Way> Ways(const BlockProduct& product) override {
      return {{static_cast<uint64_t>(WaySums::kAsOurs), static_cast<uint64_t>(product.k)}};
    }
    std::string Describe(const Way& way) const override { return StrCat("way of ", way[1]); }
  };
  constexpr int64_t kDepth = kProductSpan + 32;
  const ByLength library;
  std::string why;
  const std::unique_ptr<Ops> ops = MakeDeviceOps(0, &why);
  const auto* report = dynamic_cast<const ManyRowsReport*>(ops->linear.get());
  ASSERT_NE(report, nullptr);
  EXPECT_EQ(report->who(), "stand-in");
  EXPECT_TRUE(report->pinned().empty());
  std::vector<float> weights(8 * kDepth);
  const Tensor w(weights.data(), DType::kF32, {8, kDepth});
  const auto packed = ops->linear->Pack({&w, 1}, DType::kBF16);
  ASSERT_EQ(report->pinned().size(), 1u);
  EXPECT_EQ(report->pinned()[0], "bf16 8 x 8224: 96 rows by way of 8192, its end by way of 32");
}

// What was pinned is on record, with the way or the reason.
TEST(ManyRows, RecordsWhatItPinned) {
  StandIn library({WaySums::kInHalves, WaySums::kAsOurs}, {160, 96});
  std::string why;
  const std::unique_ptr<Ops> ops = MakeDeviceOps(0, &why);
  const auto nothing = [](const BlockProduct&, const void*, const void*, float*) {};
  ManyRows untrue(library, StreamOf(0), nothing);  // "our kernels" do nothing: nothing agrees
  const Buffer w = ops->memory->Allocate(8 * 64 * 2);
  untrue.Prepare(DType::kBF16, 8, 64, w.data());
  EXPECT_EQ(untrue.BlockOf(DType::kBF16, 8, 64, 500), nullptr);
  const std::vector<std::string> records = {
      "bf16 8 x 64: 160 rows by our kernels: no way of the library to sum 64 products has their "
      "bits (of 2: 2 failed for rows that all differ)",
      "bf16 8 x 64: 96 rows by our kernels: no way of the library to sum 64 products has their "
      "bits (of 2: 2 failed for rows that all differ)"};
  EXPECT_EQ(untrue.records(), records);
  ManyRows its(
      library, StreamOf(0), [&](const BlockProduct& p, const void* x, const void* y, float* out) {
        library.Multiply(p, {static_cast<uint64_t>(WaySums::kAsOurs)}, x, y, false, out, nullptr);
      });
  its.Prepare(DType::kBF16, 8, 64, w.data());
  its.Prepare(DType::kBF16, 8, 64, w.data());
  ASSERT_NE(its.BlockOf(DType::kBF16, 8, 64, 500), nullptr);
  EXPECT_EQ(its.BlockOf(DType::kBF16, 8, 64, 500)->rows, 160);
  EXPECT_EQ(its.BlockOf(DType::kBF16, 8, 64, 100)->rows, 96);
  EXPECT_EQ(its.BlockOf(DType::kBF16, 8, 64, 20)->rows, 96);
  EXPECT_EQ(its.records(), (std::vector<std::string>{"bf16 8 x 64: 160 rows by way 0",
                                                     "bf16 8 x 64: 96 rows by way 0"}));
}

}  // namespace
}  // namespace kvgauge::cuda
