// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "cuda/backend_parts.h"
#include "cuda/device/context.h"
#include "cuda/device/device_query.h"
#include "cuda/device/switches.h"
#include "cuda/prefill_choice.h"

namespace kvgauge::cuda {
namespace {

// All work of a device goes to one stream, so bodies run in order.
class InOrder final : public TaskOps {
 public:
  void ForEach(int64_t count, double, const std::function<void(int64_t)>& body) override {
    for (int64_t i = 0; i < count; ++i) body(i);
  }
};

}  // namespace

std::string ProbeProducts(int device) {
  DeviceInfo info;
  std::string why;
  if (!UseDevice(device, &info, &why)) return why;
  try {
    return DescribeManyRows();
  } catch (const std::bad_alloc& error) {
    return error.what();
  }
}

std::string ProbePrefill(int device) {
  DeviceInfo info;
  std::string why;
  if (!UseDevice(device, &info, &why)) return why;
  return PrefillChoice(info, StreamOf(device)).Describe();
}

std::vector<DeviceReport> ListDevices(bool begin, std::string* why) {
  std::vector<DeviceReport> devices;
  DeviceQuery asked = AskDevice(0, begin);
  if (asked.count == 0) *why = WhyNotUsable(asked);
  for (int device = 0; device < asked.count; ++device) {
    if (device > 0) asked = AskDevice(device, begin);
    const DeviceInfo& info = asked.info;
    DeviceReport report;
    report.name = info.name;
    report.variant = StrCat("sm_", info.major, info.minor);
    report.total_bytes = info.total_bytes;
    report.fault = WhyNotUsable(asked);
    if (report.fault.empty()) report.fault = WhyWrongSwitch();
    report.detail = report.fault.empty() ? Describe(info) : report.fault;
    devices.push_back(std::move(report));
  }
  return devices;
}

namespace {

std::unique_ptr<Ops> MakeOpsOn(int device, std::vector<std::unique_ptr<Ops>> others,
                               std::string* why) {
  DeviceInfo info;
  if (!UseDevice(device, &info, why)) return nullptr;
  if (*why = WhyWrongSwitch(); !why->empty()) return nullptr;
  auto context = std::make_shared<Context>(device);
  auto ops = std::make_unique<Ops>();
  ops->backend = "cuda";
  ops->variant = StrCat("sm_", info.major, info.minor);
  ops->hardware = info.name;
  ops->device = Device::kCuda;
  ops->device_number = device;
  // Destroyed last, and the context with it.
  ops->memory = MakeCudaMemory(context, std::move(others));
  ops->tasks = std::make_unique<InOrder>();
  ops->linear = MakeCudaLinear(*context);
  ops->rows = MakeCudaRows(*context);
  ops->select = MakeCudaSelect(*context);
  ops->algebra = MakeCudaAlgebra(*context);
  ops->state = MakeCudaState(*context);
  ops->codecs = MakeCudaCodec(context->stream());
  ops->attention = MakeCudaAttention(*context);
  return ops;
}

}  // namespace

std::unique_ptr<Ops> MakeDeviceOps(int device, std::string* why) {
  return MakeOpsOn(device, {}, why);
}

std::unique_ptr<Ops> MakeDeviceOps(std::span<const int> devices, std::string* why) {
  std::vector<std::unique_ptr<Ops>> others;
  for (const int device : devices.subspan(1)) {
    others.push_back(MakeOpsOn(device, {}, why));
    if (others.back() == nullptr) return nullptr;
  }
  std::vector<std::string> kinds;
  for (const std::unique_ptr<Ops>& other : others) kinds.push_back(other->variant);
  std::unique_ptr<Ops> ops = MakeOpsOn(devices[0], std::move(others), why);
  if (ops == nullptr) return nullptr;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] == ops->variant) continue;
    *why = StrCat("devices ", devices[0], " and ", devices[i + 1], " are of different kinds (",
                  ops->variant, " and ", kinds[i],
                  "), which may differ in the last bits: layers of one model need devices of one");
    return nullptr;
  }
  return ops;
}

}  // namespace kvgauge::cuda
