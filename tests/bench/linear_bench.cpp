// SPDX-License-Identifier: Apache-2.0
// Times the matrix products of the cpu backend, and what the rounding of their rows adds.
//
//   linear_bench [threads [isa,isa,... [filter]]]
//
// Instruction sets take turns within every repetition, so that drift of the machine hits them
// alike. A repetition during which other processes used more than a tenth of the machine is
// dropped, whatever its time was. filter: part of a line's name, such as 16x4096x4096 or bf16.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/rng.h"
#include "core/strings.h"
#include "cpu/cpu.h"
#include "kernels/rounded_products.h"

namespace kvgauge {
namespace {

constexpr int kRepetitions = 25;
constexpr double kRepetitionSeconds = 0.01;
constexpr double kMostOthers = 0.1;

struct Candidate {
  std::string name;
  std::function<void()> call;
  std::vector<double> seconds = {};  // per call, one entry per kept repetition
  int dropped = 0;
};

void Time(std::vector<Candidate>& candidates) {
  for (int i = 0; i < kRepetitions; ++i) {
    for (Candidate& c : candidates) {
      const double first = NowSeconds();
      c.call();  // also brings the weights to where they were for the others
      const double once = NowSeconds() - first;
      const int calls = std::max(1, static_cast<int>(kRepetitionSeconds / once));
      const CpuUse before = ReadCpuUse();
      const double start = NowSeconds();
      for (int n = 0; n < calls; ++n) c.call();
      const double wall = NowSeconds() - start;
      if (OthersShare(before, ReadCpuUse(), wall, AvailableProcessors()) > kMostOthers) {
        ++c.dropped;
      } else {
        c.seconds.push_back(wall / calls);
      }
    }
  }
}

void Report(const std::string& what, std::vector<Candidate>& candidates, double products,
            double bytes) {
  for (Candidate& c : candidates) {
    std::printf("%-26s %-12s", what.c_str(), c.name.c_str());
    if (c.seconds.empty()) {
      std::printf("  all %d repetitions contended\n", c.dropped);
      continue;
    }
    std::sort(c.seconds.begin(), c.seconds.end());
    const double median = c.seconds[c.seconds.size() / 2];
    std::printf("%10.1f us [%.1f..%.1f]", median * 1e6, c.seconds.front() * 1e6,
                c.seconds.back() * 1e6);
    if (products > 0) std::printf(" %8.1f GFLOP/s", 2e-9 * products / median);
    std::printf(" %7.1f GB/s  %d dropped\n", 1e-9 * bytes / median, c.dropped);
  }
  std::fflush(stdout);
}

std::vector<float> RandomVector(int64_t count, uint64_t seed) {
  Rng rng(seed, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = static_cast<float>(rng.NextDouble()) - 0.5f;
  return values;
}

// A few elements against sums in double, so that nothing wrong is ever timed.
void CheckSome(const std::vector<float>& x, const std::vector<float>& w,
               const std::vector<float>& out, int64_t n, int64_t k, DType dtype) {
  const double tolerance = (dtype == DType::kF32 ? 1e-6 : 2e-3) * std::sqrt(static_cast<double>(k));
  const auto count = static_cast<int64_t>(out.size());
  for (int64_t i = 0; i < count; i += 1 + count / 17) {
    double sum = 0;
    for (int64_t p = 0; p < k; ++p) {
      sum += double{x[static_cast<size_t>(i / n * k + p)]} * w[static_cast<size_t>(i % n * k + p)];
    }
    KVG_CHECK(std::abs(sum - out[static_cast<size_t>(i)]) < tolerance, "the product is wrong");
  }
}

struct Settings {
  ThreadSettings threads;
  std::vector<Isa> isas;
  std::string filter;

  bool Wants(const std::string& name) const { return name.find(filter) != std::string::npos; }
};

void BenchMatMul(const Settings& settings, int64_t m, int64_t n, int64_t k, DType dtype) {
  const std::string name = StrCat(m, "x", n, "x", k, " ", NameOf(dtype));
  if (!settings.Wants(name)) return;
  const auto x = RandomVector(m * k, 1), w = RandomVector(n * k, 2);
  std::vector<float> out(static_cast<size_t>(m * n));
  const Tensor part = View(w, {n, k}), rows = View(x, {m, k}), result = View(out, {m, n});
  std::vector<std::unique_ptr<LinearOps>> ops;
  std::vector<std::unique_ptr<PackedMatrix>> packed;
  std::vector<Candidate> candidates;
  for (const Isa isa : settings.isas) {
    LinearOps* linear = ops.emplace_back(MakeCpuLinear(isa, settings.threads)).get();
    const PackedMatrix* matrix = packed.emplace_back(linear->Pack({&part, 1}, dtype)).get();
    linear->MatMul(rows, *matrix, {}, MatMulMode::kSet, result);
    CheckSome(x, w, out, n, k, dtype);
    candidates.push_back({std::string(NameOf(isa)),
                          [=] { linear->MatMul(rows, *matrix, {}, MatMulMode::kSet, result); }});
  }
  Time(candidates);
  Report(name, candidates, static_cast<double>(m * n * k),
         static_cast<double>(n * k * SizeOf(dtype)));
}

// The product by rows as they are, and by rows that are rounded as files say (RowRounding).
void BenchRounded(const Settings& settings, int64_t m, int64_t n, int64_t k, DType dtype) {
  const std::string name = StrCat("rounded ", m, "x", n, "x", k, " ", NameOf(dtype));
  if (!settings.Wants(name)) return;
  const auto x = RandomVector(m * k, 1), w = RandomVector(n * k, 2);
  std::vector<float> out(static_cast<size_t>(m * n));
  const Tensor part = View(w, {n, k}), rows = View(x, {m, k}), result = View(out, {m, n});
  struct Kind {
    std::string name;
    std::optional<RowRounding> rounding;
  };
  using Codes = RowRounding::Codes;
  const Kind kinds[] = {{"as they are", std::nullopt},
                        {"int8", RowRounding{}},
                        {"int8, a span", RowRounding{.spans = true}},
                        {"int8, given", RowRounding{.scale = 0.004f}},
                        {"e4m3", RowRounding{.codes = Codes::kE4m3}},
                        {"e4m3 by 128", RowRounding{.codes = Codes::kE4m3, .group = 128}}};
  for (const Isa isa : settings.isas) {
    const auto linear = MakeCpuLinear(isa, settings.threads);
    std::vector<std::unique_ptr<PackedMatrix>> packed;
    std::vector<Candidate> candidates;
    for (const Kind& kind : kinds) {
      packed.push_back(linear->Pack({&part, 1}, dtype));
      if (kind.rounding) RoundedProducts::Of(*linear)->RoundRowsOf(*packed.back(), *kind.rounding);
      candidates.push_back({kind.name, [&, matrix = packed.back().get()] {
                              linear->MatMul(rows, *matrix, {}, MatMulMode::kSet, result);
                            }});
    }
    candidates[0].call();
    CheckSome(x, w, out, n, k, dtype);
    Time(candidates);
    Report(StrCat(name, " ", NameOf(isa)), candidates, static_cast<double>(m * n * k),
           static_cast<double>(n * k * SizeOf(dtype)));
  }
}

void BenchPack(const Settings& settings, int64_t n, int64_t k, DType from, DType store) {
  const std::string name = StrCat("pack ", n, "x", k, " ", NameOf(from), "-", NameOf(store));
  if (!settings.Wants(name)) return;
  const Buffer source = HostBuffer(n * k * SizeOf(from));
  const Tensor part = source.As(from, {n, k});
  std::vector<std::unique_ptr<LinearOps>> ops;
  std::vector<Candidate> candidates;
  for (const Isa isa : settings.isas) {
    LinearOps* linear = ops.emplace_back(MakeCpuLinear(isa, settings.threads)).get();
    candidates.push_back({std::string(NameOf(isa)), [=] { linear->Pack({&part, 1}, store); }});
  }
  Time(candidates);
  Report(name, candidates, 0, static_cast<double>(n * k * (SizeOf(from) + SizeOf(store))));
}

int Main(int argc, char** argv) {
  Settings settings;
  settings.threads = MakeThreadSettings(argc > 1 ? std::atoi(argv[1]) : 0);
  for (const std::string_view name : Split(argc > 2 ? argv[2] : "", ',')) {
    const Result<Isa> isa = ChooseIsa(name);
    if (!isa.ok()) {
      std::fprintf(stderr, "%s\n", isa.error().message.c_str());
      return 2;
    }
    settings.isas.push_back(*isa);
  }
  if (argc > 3) settings.filter = argv[3];
  std::printf("threads %d\n", settings.threads.threads);
  struct Shape {
    int64_t m, n, k;
  };
  const Shape shapes[] = {{1, 256, 768},     {1, 1024, 1024},   {16, 1024, 1024},
                          {1, 4096, 4096},   {16, 4096, 4096},  {1, 32000, 2048},
                          {64, 32000, 2048}, {512, 1024, 1024}, {512, 1024, 2816},
                          {2048, 2048, 2048}};
  for (const Shape& s : shapes) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      BenchMatMul(settings, s.m, s.n, s.k, dtype);
    }
  }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    BenchRounded(settings, 512, 1024, 1024, dtype);
  }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    BenchPack(settings, 4096, 4096, dtype, dtype);
  }
  BenchPack(settings, 4096, 4096, DType::kF32, DType::kBF16);
  BenchPack(settings, 4096, 4096, DType::kBF16, DType::kF32);
  return 0;
}

}  // namespace
}  // namespace kvgauge

int main(int argc, char** argv) { return kvgauge::Main(argc, argv); }
