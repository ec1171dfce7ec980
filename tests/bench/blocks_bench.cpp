// SPDX-License-Identifier: Apache-2.0
// Times products with weights in blocks of few bits against those with the same weights as bf16.
//
//   blocks_bench [threads [isa [matrices [rows,rows,...]]]]
//
// Every call takes the next of many matrices of 4096 x 4096, so that weights come from memory and
// not from a cache: 64 matrices are 2 GiB as bf16. Formats take turns within every repetition; the
// last column is the median of the ratios of repetitions, bf16's time to that format's. One thread
// is timed by its processor time, which other work on the machine disturbs less.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/rng.h"
#include "core/strings.h"
#include "cpu/cpu.h"
#include "kernels/block_products.h"

namespace kvgauge {
namespace {

constexpr int64_t kSize = 4096;
constexpr int kTurns = 15;
constexpr double kTurnSeconds = 0.15;

// Random codes; scales of ordinary size.
std::vector<uint8_t> RandomBlocks(BlockFormat format, uint64_t seed) {
  const BlockShape& shape = BlockShapeOf(format);
  const int64_t blocks = kSize * kSize / shape.elements;
  std::vector<uint8_t> bytes(static_cast<size_t>(blocks * shape.bytes));
  Rng rng(seed, 5);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.NextBelow(256));
  for (int64_t i = 0; i < blocks; ++i) {
    uint8_t* const block = bytes.data() + i * shape.bytes;
    const auto scale = [&](int64_t at) {
      block[at] = 0x12;
      block[at + 1] = 0x10;  // about 5e-4
    };
    scale(format == BlockFormat::kQ6K ? 208 : 0);
    if (format == BlockFormat::kQ4K) scale(2);
  }
  return bytes;
}

struct Contender {
  std::string name;
  std::vector<std::unique_ptr<PackedMatrix>> matrices;
  size_t next = 0;
  std::vector<double> seconds = {};  // of a call, by turn
};

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Main(int argc, char** argv) {
  const ThreadSettings threads = MakeThreadSettings(argc > 1 ? std::atoi(argv[1]) : 0);
  const Result<Isa> isa = ChooseIsa(argc > 2 ? argv[2] : "");
  if (!isa.ok()) {
    std::fprintf(stderr, "%s\n", isa.error().message.c_str());
    return 2;
  }
  const int matrices = argc > 3 ? std::max(1, std::atoi(argv[3])) : 64;
  const std::unique_ptr<LinearOps> ops = MakeCpuLinear(*isa, threads);

  std::vector<Contender> contenders(1);
  contenders[0].name = "bf16";
  Rng rng(1, 1);
  std::vector<float> floats(static_cast<size_t>(kSize * kSize));
  for (float& value : floats) value = static_cast<float>(rng.NextDouble()) - 0.5f;
  const Tensor part = View(floats, {kSize, kSize});
  for (int i = 0; i < matrices; ++i) {
    contenders[0].matrices.push_back(ops->Pack({&part, 1}, DType::kBF16));
  }
  // Each format by rows of bf16, then by rows of 8 bits.
  for (int f = 0; f < 2 * kBlockFormats; ++f) {
    const auto format = static_cast<BlockFormat>(f / 2);
    const ProductRows by = f % 2 == 0 ? ProductRows::kRounded : ProductRows::kInt8;
    Contender& contender = contenders.emplace_back();
    contender.name = StrCat(BlockShapeOf(format).name, f % 2 == 0 ? "" : "/8");
    const std::vector<uint8_t> bytes = RandomBlocks(format, 7);
    StoredRows rows{.floats = {}, .format = format};
    for (int64_t row = 0; row < kSize; ++row) {
      rows.blocks.push_back(bytes.data() + row * static_cast<int64_t>(bytes.size()) / kSize);
    }
    for (int i = 0; i < matrices; ++i) {
      contender.matrices.push_back(
          BlockProducts::Of(*ops)->PackStored({&rows, 1}, kSize, DType::kBF16, nullptr, by));
    }
    // Nothing wrong is ever timed.
    std::vector<float> one(static_cast<size_t>(kSize), 0.0f), got(static_cast<size_t>(kSize));
    one[77] = 1.0f;
    ops->MatMul(View(one, {1, kSize}), *contender.matrices[0], {}, MatMulMode::kSet,
                View(got, {1, kSize}));
    const BlockShape& shape = BlockShapeOf(format);
    std::vector<float> numbers(static_cast<size_t>(shape.elements));
    ReadBlock(format, rows.blocks[5] + 77 / shape.elements * shape.bytes, numbers.data());
    const float number = numbers[static_cast<size_t>(77 % shape.elements)];
    const bool right = by == ProductRows::kInt8
                           ? std::abs(got[5] - number) <= 1e-5f * std::abs(number) + 1e-6f
                           : got[5] == Bf16ToF32(F32ToBf16(number));
    KVG_CHECK(right, "the product is wrong");
  }

  std::printf("threads %d, %d matrices of %lld x %lld\n", threads.threads, matrices,
              static_cast<long long>(kSize), static_cast<long long>(kSize));
  std::vector<int64_t> counts;
  for (const std::string_view text : Split(argc > 4 ? argv[4] : "1,4,32,512", ',')) {
    counts.push_back(std::max(1, std::atoi(std::string(text).c_str())));
  }
  for (const int64_t m : counts) {
    std::vector<float> x(static_cast<size_t>(m * kSize)), out(static_cast<size_t>(m * kSize));
    for (float& value : x) value = static_cast<float>(rng.NextDouble()) - 0.5f;
    for (Contender& c : contenders) c.seconds.clear();
    for (int turn = 0; turn < kTurns; ++turn) {
      for (Contender& c : contenders) {
        const auto clock = threads.threads == 1 ? ThreadSeconds : NowSeconds;
        const double start = clock();
        double elapsed = 0;
        int calls = 0;
        while (elapsed < kTurnSeconds) {
          c.next = (c.next + 1) % c.matrices.size();
          ops->MatMul(View(x, {m, kSize}), *c.matrices[c.next], {}, MatMulMode::kSet,
                      View(out, {m, kSize}));
          ++calls;
          elapsed = clock() - start;
        }
        c.seconds.push_back(elapsed / calls);
      }
    }
    for (const Contender& c : contenders) {
      std::vector<double> ratios;
      for (int turn = 0; turn < kTurns; ++turn) {
        ratios.push_back(contenders[0].seconds[static_cast<size_t>(turn)] /
                         c.seconds[static_cast<size_t>(turn)]);
      }
      const double median = Median(c.seconds);
      std::printf("%4lld rows  %-6s %9.3f ms  %7.1f GB/s  %8.1f GFLOP/s  %5.2fx of bf16\n",
                  static_cast<long long>(m), c.name.c_str(), 1e3 * median,
                  1e-9 * static_cast<double>(c.matrices[0]->bytes()) / median,
                  2e-9 * static_cast<double>(m * kSize * kSize) / median, Median(ratios));
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace kvgauge

int main(int argc, char** argv) { return kvgauge::Main(argc, argv); }
