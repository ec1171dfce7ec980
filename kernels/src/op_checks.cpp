// SPDX-License-Identifier: Apache-2.0
#include "src/op_checks.h"

#include "core/strings.h"

namespace kvgauge {

std::string OpMessage(std::string_view op, std::initializer_list<Tensor> tensors) {
  std::string message = StrCat(op, ":");
  std::string_view separator = " ";
  for (const Tensor& t : tensors) {
    message += StrCat(separator, t.empty() && t.rank == 0 ? "-" : t.DebugString());
    if (t.rank > 0 && !t.IsContiguous()) message += " strided";
    separator = ", ";
  }
  return message;
}

bool SameDevice(std::initializer_list<Tensor> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor& t : tensors) {
    if (t.empty()) continue;
    if (first == nullptr) first = &t;
    if (t.device != first->device) return false;
  }
  return true;
}

bool SameShape(const Tensor& a, const Tensor& b) { return a.rank == b.rank && a.shape == b.shape; }

bool HasDenseRows(const Tensor& t) {
  return t.rank > 0 && (t.shape[t.rank - 1] <= 1 || t.stride[t.rank - 1] == 1);
}

bool FoldsToRows(const Tensor& t, Tensor* rows) {
  const int last = t.rank - 1;
  int64_t count = 1, stride = t.shape[last];
  // Innermost leading dimension first; dimensions of size 1 place no demand on their stride.
  for (int i = last - 1; i >= 0; --i) {
    if (t.shape[i] == 1) continue;
    if (count == 1) {
      stride = t.stride[i];
    } else if (t.stride[i] != stride * count) {
      return false;
    }
    count *= t.shape[i];
  }
  *rows = t;
  rows->rank = 2;
  rows->shape = {count, t.shape[last], 0, 0};
  rows->stride = {stride, 1, 0, 0};
  return true;
}

}  // namespace kvgauge
