// SPDX-License-Identifier: Apache-2.0
// bench kernels: the costly operations against what the device itself reaches.
#include "src/bench/bench_kernels.h"

#include <new>

#include "core/json.h"
#include "core/strings.h"
#include "kernels/ops.h"
#include "src/cli/commands.h"
#include "src/cli/print.h"
#include "src/doctor/device_check.h"

namespace kvgauge {

void PrintRates(const DeviceCheck& check) {
  PrintFacts(
      {{"copy", StrCat(Fixed(check.copy_gbs, 1), " GB/s, read and written")},
       {"large product", StrCat(Fixed(check.product_tflops, 2), " TFLOP/s, ", check.product_by)}});
  Print("\n");
  std::vector<std::vector<std::string>> rows;
  for (const DeviceRateRow& row : check.rates) {
    const char* of = row.flops ? " % of product" : " % of copy";
    rows.push_back({row.op, row.shape, Fixed(row.milliseconds, 3),
                    StrCat(Fixed(row.rate, row.flops ? 2 : 1), row.flops ? " TFLOP/s" : " GB/s"),
                    StrCat(Fixed(100 * row.share, 0), of),
                    row.aim > 0 ? StrCat(Fixed(100 * row.aim, 0), " %") : "-"});
  }
  PrintTable({"operation", "shape", "ms", "rate", "share", "aim"}, rows);
}

Json RatesJson(const DeviceCheck& check) {
  Json rates = Json::array();
  for (const DeviceRateRow& row : check.rates) {
    rates.push_back({{"operation", row.op},
                     {"shape", row.shape},
                     {"milliseconds", row.milliseconds},
                     {row.flops ? "tflop_per_s" : "gb_per_s", row.rate},
                     {"share", row.share},
                     {"aim", row.aim > 0 ? Json(row.aim) : Json(nullptr)}});
  }
  return {{"copy_gb_per_s", check.copy_gbs},
          {"product_tflop_per_s", check.product_tflops},
          {"product_by", check.product_by},
          {"rates", rates}};
}

Status RunBenchKernels(const BenchKernelsOptions& options) {
  KVG_ASSIGN(const std::unique_ptr<Ops> ops,
             MakeOps(options.backend, MakeThreadSettings(options.threads)));
  Json list = Json::array();
  for (const int64_t entries : options.entries) {
    DeviceCheck check;
    try {
      MeasureRates(*ops, entries, &check);
    } catch (const std::bad_alloc& error) {
      return ResourceError(StrCat("--entries ", entries, ": ", error.what()));
    }
    if (options.json) {
      list.push_back(RatesJson(check));
      list.back()["entries"] = entries;
      continue;
    }
    if (entries != options.entries.front()) Print("\n");
    PrintRates(check);
  }
  if (options.json) {
    PrintJson({{"backend", ops->backend}, {"variant", ops->variant}, {"lengths", list}});
  }
  return {};
}

}  // namespace kvgauge
