// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdlib>
#include <new>
#include <string>

#include "core/json.h"
#include "core/memory.h"
#include "core/strings.h"
#include "core/threads.h"
#include "kernels/block_products.h"
#include "kernels/ops.h"
#include "src/bench/bench_kernels.h"
#include "src/cli/commands.h"
#include "src/cli/print.h"
#include "src/doctor/device_check.h"
#include "src/run/machine_facts.h"

namespace kvgauge {
namespace {

std::string Scientific(double value) {
  if (value == 0) return "0";
  const int exponent = static_cast<int>(std::floor(std::log10(value)));
  return StrCat(Fixed(value / std::pow(10.0, exponent), 1), "e", exponent);
}

void PrintCheck(const DeviceCheck& check) {
  std::vector<std::vector<std::string>> rows;
  for (const DeviceCheckRow& row : check.checks) {
    rows.push_back(
        {row.op, row.shape, Scientific(row.error), Scientific(row.bound), row.ok ? "ok" : "WRONG"});
  }
  PrintTable({"operation", "shape", "error", "bound", "verdict"}, rows);
  if (check.rates.empty()) return;
  Print("\n");
  PrintRates(check);
}

Json ToJson(const DeviceCheck& check) {
  Json checks = Json::array();
  for (const DeviceCheckRow& row : check.checks) {
    checks.push_back({{"operation", row.op},
                      {"shape", row.shape},
                      {"error", row.error},
                      {"bound", row.bound},
                      {"ok", row.ok}});
  }
  Json json = RatesJson(check);
  json["ok"] = check.ok();
  json["checks"] = checks;
  return json;
}

Status RunCheck(const DoctorOptions& options) {
  constexpr int64_t kLeastEntries = 1024;
  if (options.entries != 0 && options.entries < kLeastEntries) {
    return BadInput(
        StrCat("--entries ", options.entries, ": must be 0 or at least ", kLeastEntries));
  }
  KVG_ASSIGN(const std::unique_ptr<Ops> ops, MakeOps(options.check, MakeThreadSettings(0)));
  DeviceCheck check;
  try {
    check.checks = CheckOps(*ops);
    if (options.entries > 0) MeasureRates(*ops, options.entries, &check);
  } catch (const std::bad_alloc& error) {
    return ResourceError(StrCat("--check ", options.check, ": ", error.what()));
  }
  options.json ? PrintJson(ToJson(check)) : PrintCheck(check);
  if (check.ok()) return {};
  return ResourceError(StrCat("backend ", options.check, " (", ops->variant,
                              ") gives wrong results on this machine"));
}

// Formats of weights that products read as they are.
std::vector<std::string> PackedFormats(const Ops& ops) {
  std::vector<std::string> names;
  if (BlockProducts::Of(*ops.linear) == nullptr) return names;
  for (int i = 0; i < kBlockFormats; ++i) {
    names.emplace_back(BlockShapeOf(static_cast<BlockFormat>(i)).name);
  }
  return names;
}

}  // namespace

Status RunDoctor(const DoctorOptions& options) {
  if (!options.check.empty()) return RunCheck(options);
  const int64_t memory = MachineMemoryBytes();
  const char* forced = std::getenv("KVGAUGE_ISA");
  const Result<std::unique_ptr<Ops>> ops = MakeOps("cpu", MakeThreadSettings(0));
  const std::string chosen = ops.ok() ? (*ops)->variant : ops.error().message;
  const std::vector<BackendReport> backends = ListBackends();

  if (options.json) {
    Json list = Json::array();
    for (const BackendReport& backend : backends) {
      list.push_back(
          {{"name", backend.name}, {"available", backend.available}, {"detail", backend.detail}});
    }
    PrintJson({{"system", SystemName()},
               {"processor", ProcessorName()},
               {"processors", AvailableProcessors()},
               {"memory_bytes", memory},
               {"isas", AvailableIsas()},
               {"isa", chosen},
               {"packed_weights", ops.ok() ? Json(PackedFormats(**ops)) : Json(nullptr)},
               {"forced_isa", forced == nullptr ? Json(nullptr) : Json(forced)},
               {"backends", list}});
    return ops.ok() ? Status() : Status(ops.error());
  }
  PrintFacts({{"system", SystemName()},
              {"processor", StrCat(ProcessorName(), ", ", AvailableProcessors(), " usable")},
              {"memory", HumanBytes(memory)},
              {"instruction set", StrCat(chosen, forced ? " (forced by KVGAUGE_ISA)" : "")},
              {"packed weights",
               ops.ok() ? StrCat(Join(PackedFormats(**ops), ", "),
                                 " are multiplied as they are; others, and all on cuda, are "
                                 "dequantised at load")
                        : "none"}});
  Print("\n");
  std::vector<std::vector<std::string>> rows;
  for (const BackendReport& backend : backends) {
    rows.push_back({backend.name, backend.available ? "yes" : "no", backend.detail});
  }
  PrintTable({"backend", "ready", "detail"}, rows);
  return ops.ok() ? Status() : Status(ops.error());
}

}  // namespace kvgauge
