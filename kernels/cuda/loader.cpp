// SPDX-License-Identifier: Apache-2.0
// Finds the CUDA shared object at run time and asks it what the machine has.
#include <dlfcn.h>

#include <array>

#include "core/strings.h"
#include "cuda/plugin.h"
#include "src/cuda_backend.h"

namespace kvgauge {
namespace {

struct Probe {
  int devices = 0;
  std::string detail;
};

Probe RunProbe() {
  // Found beside the program (its run path).
  void* library = dlopen("libkvgauge_cuda.so", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {0, StrCat("cannot load: ", dlerror())};
  using ProbeFunction = decltype(&kvgauge_cuda_probe);
  const auto probe = reinterpret_cast<ProbeFunction>(dlsym(library, "kvgauge_cuda_probe"));
  if (probe == nullptr) return {0, "libkvgauge_cuda.so is of another version"};
  std::array<char, 256> detail = {};
  const int devices = probe(detail.data(), static_cast<int>(detail.size()));
  return {devices, detail.data()};
}

const Probe& CachedProbe() {
  static const Probe probe = RunProbe();
  return probe;
}

}  // namespace

Result<std::unique_ptr<Ops>> MakeCudaOps() {
  const Probe& probe = CachedProbe();
  if (probe.devices == 0) return Unsupported(StrCat("cuda: ", probe.detail));
  return Unsupported(StrCat("cuda: ", probe.detail,
                            "; this version detects devices but has no CUDA operations yet"));
}

BackendReport ReportCuda() {
  const Probe& probe = CachedProbe();
  return {"cuda", false,
          probe.devices == 0 ? probe.detail : StrCat(probe.detail, "; no operations yet")};
}

}  // namespace kvgauge
