// SPDX-License-Identifier: Apache-2.0
#include "src/run/machine_facts.h"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <span>

#include "core/json.h"
#include "core/memory.h"
#include "core/strings.h"
#include "core/threads.h"
#include "kernels/devices.h"
#include "kernels/many_rows_report.h"

namespace kvgauge {
namespace {

constexpr std::array kWaiting = {"OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES"};
constexpr std::array kSwitches = {"KVGAUGE_CUDA_LIBRARY", "KVGAUGE_CUDA_WARPGROUPS",
                                  "KVGAUGE_CUDA_GRAPHS"};

void AddVariables(std::span<const char* const> names, Json& facts) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value != nullptr) facts[name] = value;
  }
}

const ManyRowsReport* ReportOf(const Ops& ops) {
  return dynamic_cast<const ManyRowsReport*>(ops.linear.get());
}

// The first line of a file, or "".
std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return std::string(Trim(line.substr(line.find(':') + 1)));
  }
  return "unknown";
}

std::string SystemName() {
  utsname name;
  if (uname(&name) != 0) return "unknown";
  return StrCat(name.sysname, " ", name.release, " ", name.machine);
}

Json MachineFacts(Ops& ops, int threads) {
  Json facts = {{"system", SystemName()},
                {"processor", ProcessorName()},
                {"processors", AvailableProcessors()},
                {"memory_bytes", MachineMemoryBytes()},
                {"backend", ops.backend},
                {"isa", ops.variant},
                {"threads", MakeThreadSettings(threads).threads}};
  if (!ops.hardware.empty()) facts["device"] = ops.hardware;
  if (const std::vector<Ops*> devices = DevicesOf(ops); devices.size() > 1) {
    // What the layers of a model are divided over, in their order.
    Json names = Json::array();
    for (const Ops* device : devices) names.push_back(device->hardware);
    facts["devices"] = names;
  }
  if (const ManyRowsReport* report = ReportOf(ops)) facts["many_rows_by"] = report->who();
  // With other switches its times are those of another machine.
  if (ops.device != Device::kHost) AddVariables(kSwitches, facts);
  const std::string governor = FirstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (!governor.empty()) facts["governor"] = governor;
  return facts;
}

std::string DivisionText(const std::vector<Ops*>& devices, const std::vector<LayerShare>& shares,
                         const std::vector<LayerShare>& planned) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < devices.size(); ++i) {
    lines.push_back(StrCat(devices[i]->hardware, " ", i + 1, " of ", devices.size(), ": ",
                           Describe(shares[i])));
  }
  const std::string text = Join(lines, "; ");
  if (planned.empty() || SameLayers(planned, shares)) return text;
  return StrCat(text, " (the plan's division no longer fits: ", DivisionText(devices, planned),
                ")");
}

std::string ManyRowsText(const std::vector<Ops*>& devices) {
  std::vector<std::string> lines;
  for (const Ops* device : devices) {
    const ManyRowsReport* report = ReportOf(*device);
    if (report == nullptr) continue;
    for (const std::string& line : report->pinned()) {
      if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
    }
  }
  return lines.empty() ? "" : StrCat(ReportOf(*devices[0])->who(), ": ", Join(lines, "; "));
}

Json ThreadEnvironment() {
  Json facts = Json::object();
  AddVariables(kWaiting, facts);
  AddVariables(kSwitches, facts);
  return facts;
}

}  // namespace kvgauge
