// SPDX-License-Identifier: Apache-2.0
// Run by hand: what the statistics of a leaderboard cost, by samples and methods.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/clock.h"
#include "core/rng.h"
#include "src/resampling.h"

namespace kvgauge {
namespace {

// CPU seconds for intervals of scores and differences and tests of `methods` rows.
double Once(size_t samples, int methods, bool binary) {
  Rng rng(1, 1);
  std::vector<MeanColumn> columns;
  for (int c = 0; c < 2 * methods; ++c) {
    MeanColumn::Stratum s;
    for (size_t i = 0; i < samples; ++i) {
      const double draw = rng.NextDouble() - (c % 2 == 0 ? 0.0 : 0.5);
      s.sums.push_back(binary ? std::round(draw) : draw);
      s.counts.push_back(1);
    }
    columns.push_back({{std::move(s)}, static_cast<int64_t>(samples)});
  }
  std::vector<int64_t> clusters(samples);
  for (size_t i = 0; i < samples; ++i) clusters[i] = static_cast<int64_t>(i);
  const double start_s = ReadCpuUse().process_s;
  const std::vector<ColumnResult> results =
      ResampleMeans(columns, {.resamples = 2000, .seed = 0, .reach = 1});
  double checksum = results[0].estimate.value;
  for (size_t c = 1; c < columns.size(); c += 2) {
    const std::vector<double>& d = columns[c].strata[0].sums;
    const auto won = std::ranges::count_if(d, [](double v) { return v > 0; });
    const auto lost = std::ranges::count_if(d, [](double v) { return v < 0; });
    checksum += binary ? McNemarExact(won, lost) : SignFlipTest(d, clusters);
  }
  const double spent_s = ReadCpuUse().process_s - start_s;
  if (!std::isfinite(checksum)) std::printf("not finite\n");
  return spent_s;
}

void Run() {
  std::printf("samples  methods  scores  CPU seconds\n");
  for (const size_t samples : {400, 1000, 2000, 10000, 100000}) {
    for (const bool binary : {true, false}) {
      std::vector<double> times;
      for (int repetition = 0; repetition < 3; ++repetition) {
        times.push_back(Once(samples, 64, binary));
      }
      std::ranges::sort(times);
      std::printf("%7zu  %7d  %-6s  %.3f\n", samples, 64, binary ? "0/1" : "real", times[1]);
    }
  }
}

}  // namespace
}  // namespace kvgauge

int main() { kvgauge::Run(); }
