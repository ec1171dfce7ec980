// SPDX-License-Identifier: Apache-2.0
#include "runner/visual_rows.h"

#include "core/check.h"

namespace kvgauge {

VisualRows::VisualRows(MemoryOps& memory, int64_t count, int64_t width, int64_t deepstack) {
  const int64_t tables = 1 + deepstack;
  memory_ = memory.Allocate(tables * count * width * SizeOf(DType::kF32));
  const Tensor all = memory_.As(DType::kF32, {tables, count, width});
  for (int64_t i = 0; i < tables; ++i) tables_.push_back(all[i]);
}

VisualRows::VisualRows(MemoryOps& memory, const std::vector<float>& rows, int64_t width,
                       const std::vector<std::vector<float>>& deepstack)
    : VisualRows(memory, std::ssize(rows) / width, width, std::ssize(deepstack)) {
  memory.Copy(View(rows, {count(), width}), tables_[0]);
  for (size_t i = 0; i < deepstack.size(); ++i) {
    memory.Copy(View(deepstack[i], {count(), width}), tables_[i + 1]);
  }
}

std::span<const float> HostNumbers(MemoryOps& memory, const Tensor& numbers,
                                   std::vector<float>& copied) {
  const auto count = static_cast<size_t>(numbers.Numel());
  if (numbers.device == Device::kHost) return {numbers.f32(), count};
  copied.resize(count);
  memory.Copy(numbers, View(copied, {std::ssize(copied)}));
  return copied;
}

}  // namespace kvgauge
