// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <new>

#include "core/strings.h"
#include "cuda/backend_parts.h"
#include "cuda/device/context.h"
#include "cuda/device/device_query.h"

namespace kvgauge::cuda {
namespace {

// All work goes to one stream, so bodies run in order.
class InOrder final : public TaskOps {
 public:
  void ForEach(int64_t count, double, const std::function<void(int64_t)>& body) override {
    for (int64_t i = 0; i < count; ++i) body(i);
  }
};

}  // namespace

bool ProbeDevice(std::string* detail) {
  DeviceInfo info;
  std::string why;
  const bool usable = UseDevice(&info, &why);
  *detail = usable ? Describe(info) : why;
  if (!usable) return false;
  try {
    *detail += StrCat("; ", DescribeManyRows());
  } catch (const std::bad_alloc& error) {
    *detail += StrCat("; ", error.what());
  }
  return true;
}

std::unique_ptr<Ops> MakeDeviceOps(std::string* why) {
  DeviceInfo info;
  if (!UseDevice(&info, why)) return nullptr;
  auto context = std::make_shared<Context>();
  auto ops = std::make_unique<Ops>();
  ops->backend = "cuda";
  ops->variant = StrCat("sm_", info.major, info.minor);
  ops->device = Device::kCuda;
  // Destroyed last, and the context with it.
  ops->memory = MakeCudaMemory(context);
  ops->tasks = std::make_unique<InOrder>();
  ops->linear = MakeCudaLinear(*context);
  ops->rows = MakeCudaRows(*context);
  ops->select = MakeCudaSelect(*context);
  ops->algebra = MakeCudaAlgebra(*context);
  ops->state = MakeCudaState(*context);
  ops->codecs = MakeCudaCodec(context->stream());
  ops->attention = MakeCudaAttention(context->stream());
  return ops;
}

}  // namespace kvgauge::cuda
