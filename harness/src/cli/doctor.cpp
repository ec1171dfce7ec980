// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <string>

#include "core/json.h"
#include "core/strings.h"
#include "core/threads.h"
#include "kernels/ops.h"
#include "src/cli/commands.h"
#include "src/cli/print.h"
#include "src/run/machine_facts.h"

namespace kvgauge {
Status RunDoctor(const DoctorOptions& options) {
  const int64_t memory = MemoryBytes();
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
               {"forced_isa", forced == nullptr ? Json(nullptr) : Json(forced)},
               {"backends", list}});
    return ops.ok() ? Status() : Status(ops.error());
  }
  PrintFacts({{"system", SystemName()},
              {"processor", StrCat(ProcessorName(), ", ", AvailableProcessors(), " usable")},
              {"memory", HumanBytes(memory)},
              {"instruction set", StrCat(chosen, forced ? " (forced by KVGAUGE_ISA)" : "")}});
  Print("\n");
  std::vector<std::vector<std::string>> rows;
  for (const BackendReport& backend : backends) {
    rows.push_back({backend.name, backend.available ? "yes" : "no", backend.detail});
  }
  PrintTable({"backend", "ready", "detail"}, rows);
  return ops.ok() ? Status() : Status(ops.error());
}

}  // namespace kvgauge
