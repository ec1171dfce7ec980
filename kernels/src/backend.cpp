// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/strings.h"
#include "cpu/cpu.h"
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "reference/reference.h"
#include "src/cuda_backend.h"

namespace kvgauge {
namespace {

class HostMemory final : public MemoryOps {
 public:
  Buffer Allocate(int64_t size_bytes) override { return HostBuffer(size_bytes); }
  void Copy(const Tensor& from, Tensor to) override {
    KVG_CHECK(from.device == Device::kHost && to.device == Device::kHost, "not host memory");
    KVG_CHECK(from.IsContiguous() && to.IsContiguous(), "copy needs contiguous tensors");
    KVG_CHECK(from.SizeBytes() == to.SizeBytes(), "copy between different sizes");
    if (from.SizeBytes() > 0)
      std::memcpy(to.data, from.data, static_cast<size_t>(from.SizeBytes()));
  }
  void Clear(Tensor to) override {
    KVG_CHECK(to.device == Device::kHost && to.IsContiguous(), "not contiguous host memory");
    if (to.SizeBytes() > 0) std::memset(to.data, 0, static_cast<size_t>(to.SizeBytes()));
  }
  void Synchronize() override {}
};

class InOrder final : public TaskOps {
 public:
  void ForEach(int64_t count, double, const std::function<void(int64_t)>& body) override {
    for (int64_t i = 0; i < count; ++i) body(i);
  }
};

std::unique_ptr<Ops> MakeReferenceOps() {
  auto ops = std::make_unique<Ops>();
  ops->backend = "reference";
  ops->variant = "double";
  ops->memory = std::make_unique<HostMemory>();
  ops->tasks = std::make_unique<InOrder>();
  ops->linear = MakeReferenceLinear();
  ops->rows = MakeReferenceRows();
  ops->select = MakeReferenceSelect();
  ops->algebra = MakeReferenceAlgebra();
  ops->state = MakeReferenceState();
  ops->codecs = MakeReferenceCodec();
  ops->attention = MakeReferenceAttention();
  return ops;
}

std::unique_ptr<Ops> MakeCpuOps(Isa isa, ThreadSettings threads) {
  auto ops = std::make_unique<Ops>();
  ops->backend = "cpu";
  ops->variant = NameOf(isa);
  ops->memory = std::make_unique<HostMemory>();
  ops->tasks = MakeCpuTasks(threads);
  ops->linear = MakeCpuLinear(isa, threads);
  ops->rows = MakeCpuRows(isa, threads);
  ops->select = MakeCpuSelect(isa, threads);
  ops->algebra = MakeCpuAlgebra(isa, threads);
  ops->state = MakeCpuState(isa, threads);
  ops->codecs = MakeCpuCodec(isa, threads);
  ops->attention = MakeCpuAttention(isa, threads);
  return ops;
}

// The numbers of "cuda:N" and "cuda:N+M".
Result<std::vector<int>> DevicesNamed(const std::string& backend) {
  std::vector<int> devices;
  const char* at = backend.data() + std::strlen("cuda:");
  const char* const last = backend.data() + backend.size();
  while (true) {
    int device = -1;
    const auto [end, error] = std::from_chars(at, last, device);
    if (error != std::errc() || device < 0 || (end != last && *end != '+')) break;
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
      return BadInput(StrCat("backend ", Quoted(backend), ": device ", device, " is named twice"));
    }
    devices.push_back(device);
    if (end == last) return devices;
    at = end + 1;
  }
  return BadInput(StrCat("backend ", Quoted(backend),
                         ": expected a device's number from 0 after the colon, such as cuda:1, or "
                         "several for the layers of one model, such as cuda:0+1"));
}

std::vector<BackendReport> ReportCuda() {
  const Result<std::vector<DeviceReport>> devices = ListCudaDevices(true);
  if (!devices.ok()) {
    return {{"cuda", false, devices.error().message.substr(std::strlen("cuda: "))}};
  }
  std::vector<BackendReport> reports;
  bool described = false;
  for (const DeviceReport& device : *devices) {
    const auto number = static_cast<int>(reports.size());
    BackendReport report = {StrCat("cuda:", number), device.fault.empty(), device.detail};
    // It takes some time, and devices of a machine are mostly of one kind.
    if (report.available && !std::exchange(described, true)) {
      report.detail += StrCat("; ", DescribeCudaProducts(number));
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace

Result<std::vector<DeviceReport>> ListDevices() { return ListCudaDevices(false); }

Result<std::unique_ptr<Ops>> MakeOps(const std::string& backend, ThreadSettings threads) {
  if (backend == "reference") return MakeReferenceOps();
  if (backend == "cuda") return MakeCudaOps(std::array{0});
  if (backend.starts_with("cuda:")) {
    KVG_ASSIGN(const std::vector<int> devices, DevicesNamed(backend));
    if (devices.size() == 1) return MakeCudaOps(devices);
    return BadInput(StrCat("backend ", Quoted(backend),
                           ": this command works on one device, such as cuda:", devices[0],
                           "; the commands that take the layers of a model on several are run, "
                           "logits, generate and inspect"));
  }
  if (backend == "cpu" || backend.starts_with("cpu:")) {
    const char* forced = std::getenv("KVGAUGE_ISA");
    const bool from_environment = backend == "cpu" && forced != nullptr;
    const std::string wanted = backend != "cpu" ? backend.substr(4) : forced ? forced : "";
    Result<Isa> isa = ChooseIsa(wanted);
    if (!isa.ok()) return from_environment ? isa.error().Wrap("KVGAUGE_ISA") : isa.error();
    return MakeCpuOps(*isa, threads);
  }
  return BadInput(StrCat("unknown backend ", Quoted(backend),
                         DidYouMean(backend, {"cpu", "cuda", "reference"}),
                         "; known: cpu, cpu:ISA, cuda, cuda:N, reference"));
}

bool NamesSeveralDevices(const std::string& backend) {
  return backend.starts_with("cuda:") && backend.find('+') != std::string::npos;
}

Result<std::unique_ptr<Ops>> MakeLayeredOps(const std::string& backend, ThreadSettings threads) {
  if (!NamesSeveralDevices(backend)) return MakeOps(backend, threads);
  KVG_ASSIGN(const std::vector<int> devices, DevicesNamed(backend));
  return MakeCudaOps(devices);
}

std::vector<Ops*> DevicesOf(Ops& ops) {
  std::vector<Ops*> all = {&ops};
  if (const auto* owner = dynamic_cast<const OtherDevices*>(ops.memory.get())) {
    for (const std::unique_ptr<Ops>& other : owner->others()) all.push_back(other.get());
  }
  return all;
}

Result<std::unique_ptr<LibraryProduct>> MakeLibraryProduct(const Ops& ops) {
  if (ops.device == Device::kCuda) return MakeCudaLibrary();
  return Unsupported(StrCat("backend ", ops.backend, " has no library to be held against"));
}

std::vector<BackendReport> ListBackends() {
  std::vector<BackendReport> reports = {
      {"cpu", true, StrCat("instruction sets: ", Join(AvailableIsas(), ", "))}};
  for (BackendReport& report : ReportCuda()) reports.push_back(std::move(report));
  reports.push_back({"reference", true, "plain loops, double accumulation, one thread; for tests"});
  return reports;
}

std::vector<std::string> AvailableIsas() {
  std::vector<std::string> names;
  for (const Isa isa : SupportedIsas()) names.emplace_back(NameOf(isa));
  return names;
}

}  // namespace kvgauge
