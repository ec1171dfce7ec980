// SPDX-License-Identifier: Apache-2.0
#include "src/lent_array.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "methods/tensors.h"
#include "src/dlpack.h"

namespace kvgauge::python {
namespace {

// What lies behind an array that a view lent: the memory, and its state when it was first exported.
struct Lent {
  Tensor tensor;
  Ops* ops = nullptr;  // null: the call is over
  bool exported = false;
  uint64_t sum = 0;
};

constexpr const char* kLentName = "kvgauge.lent";

Lent* LentOf(const py::object& owner) {
  return static_cast<Lent*>(PyCapsule_GetPointer(owner.ptr(), kLentName));
}

uint64_t Mixed(uint64_t sum, uint64_t word) {
  sum = (sum ^ word) * 0x9e3779b97f4a7c15;
  return sum ^ (sum >> 29);
}

// A sum of the numbers that lie at `data` of the host as the tensor's do. Different for different
// contents with near certainty; not against an adversary.
uint64_t SumOfBytes(const Tensor& tensor, const void* data) {
  const auto size = static_cast<int64_t>(SizeOf(tensor.dtype));
  uint64_t sum = 0xcbf29ce484222325;
  const auto run = [&](const char* at, int64_t bytes) {
    for (; bytes >= 8; at += 8, bytes -= 8) {
      uint64_t word = 0;
      std::memcpy(&word, at, 8);
      sum = Mixed(sum, word);
    }
    uint64_t rest = 0;
    std::memcpy(&rest, at, static_cast<size_t>(bytes));
    sum = Mixed(sum, rest);
  };
  // Rows of the innermost axis are contiguous.
  std::array<int64_t, kMaxRank> at = {};
  const int outer = tensor.rank - 1;
  const int64_t row = tensor.rank == 0 ? size : tensor.shape[static_cast<size_t>(outer)] * size;
  for (;;) {
    int64_t offset = 0;
    for (int axis = 0; axis < outer; ++axis) {
      const auto a = static_cast<size_t>(axis);
      if (tensor.shape[a] == 0) return sum;
      offset += at[a] * tensor.stride[a];
    }
    run(static_cast<const char*>(data) + offset * size, row);
    int axis = outer - 1;
    for (; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      if (++at[a] < tensor.shape[a]) break;
      at[a] = 0;
    }
    if (axis < 0) return sum;
  }
}

struct Layout {
  std::vector<py::ssize_t> shape, strides;  // in bytes
};

Layout LayoutOf(const Tensor& tensor) {
  Layout layout;
  const auto size = static_cast<py::ssize_t>(SizeOf(tensor.dtype));
  for (int axis = 0; axis < tensor.rank; ++axis) {
    layout.shape.push_back(tensor.shape[static_cast<size_t>(axis)]);
    layout.strides.push_back(tensor.stride[static_cast<size_t>(axis)] * size);
  }
  return layout;
}

py::array OnHost(Ops& ops, const Tensor& tensor) {
  Layout layout = LayoutOf(tensor);
  return CopyToHost(ops, {tensor.data, NumpyType(tensor.dtype), std::move(layout.shape),
                          std::move(layout.strides)});
}

// Numbers [rows, dims] stay on the device: only the sum of each row comes to the host, each number
// times a weight of its place in [1, 2). A row whose sum is not finite is no help: false.
bool SumOfRows(Ops& ops, const Tensor& tensor, uint64_t* sum) {
  const int64_t dims = tensor.shape[static_cast<size_t>(tensor.rank - 1)];
  const int64_t rows = tensor.Numel() / dims;
  std::vector<float> weights(static_cast<size_t>(dims));
  uint64_t word = 1;
  for (float& weight : weights) {
    word = Mixed(word, 1);
    weight = 1.0f + static_cast<float>(word >> 40) / static_cast<float>(1 << 24);
  }
  const Buffer on_device = ops.memory->Allocate(dims * 4), sums = ops.memory->Allocate(rows * 4);
  const Tensor weights_there = on_device.As(DType::kF32, {1, 1, dims});
  ops.memory->Copy(View(weights, {1, 1, dims}), weights_there);
  ops.linear->MatMulNT(tensor.Reshape({1, rows, dims}), weights_there, 1.0f,
                       sums.As(DType::kF32, {1, rows, 1}));
  const std::vector<float> found = Fetch(ops, sums.As(DType::kF32, {rows}));
  for (const float each : found) {
    if (!std::isfinite(each)) return false;
  }
  const Tensor all = View(found, {rows});
  *sum = SumOfBytes(all, all.data);
  return true;
}

uint64_t SumOf(const Lent& lent) {
  // Below that a copy is as quick.
  constexpr int64_t kSmallBytes = 64 << 10;
  const Tensor& tensor = lent.tensor;
  if (tensor.empty()) return 0;
  if (tensor.device == Device::kHost) return SumOfBytes(tensor, tensor.data);
  lent.ops->memory->TakeBack();
  uint64_t sum = 0;
  if (tensor.dtype == DType::kF32 && tensor.rank > 1 && tensor.IsContiguous() &&
      tensor.SizeBytes() > kSmallBytes && SumOfRows(*lent.ops, tensor, &sum)) {
    return sum;
  }
  return SumOfBytes(tensor, OnHost(*lent.ops, tensor).data());
}

void NoteExport(Lent& lent) {
  if (lent.exported) return;
  lent.sum = SumOf(lent);
  lent.exported = true;
}

// Steps from a view to what it is a view of, until a capsule of ours; null: there is none.
Lent* LentBehind(py::object object) {
  while (!object.is_none()) {
    if (PyCapsule_IsValid(object.ptr(), kLentName) != 0) return LentOf(object);
    if (!py::hasattr(object, "base")) return nullptr;
    object = object.attr("base");
  }
  return nullptr;
}

py::capsule ExportLentArray(py::array array, bool versioned, bool copy) {
  if (copy) array = array.attr("copy")().cast<py::array>();
  if (Lent* const lent = LentBehind(array); lent != nullptr) NoteExport(*lent);
  return ExportArray(array, versioned, copy);
}

Lent& OnLoan(const py::object& owner) {
  Lent& lent = *LentOf(owner);
  if (lent.ops != nullptr) return lent;
  throw std::runtime_error(
      "an array of a view is used after its call, when the memory belongs to others; keep "
      "array.host() or a copy on the device instead");
}

py::capsule ExportDeviceArray(const py::object& owner, bool versioned) {
  Lent& lent = OnLoan(owner);
  NoteExport(lent);
  return ExportTensor(*lent.ops, lent.tensor, owner, versioned);
}

py::array CopyDeviceArray(const py::object& owner) {
  const Lent& lent = OnLoan(owner);
  return OnHost(*lent.ops, lent.tensor);
}

}  // namespace

py::object LendArray(const Tensor& tensor, Ops& ops, py::object& owner) {
  auto lent = std::make_unique<Lent>();
  lent->tensor = tensor;
  lent->ops = &ops;
  PyObject* const capsule = PyCapsule_New(lent.get(), kLentName, [](PyObject* self) {
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): made above
    delete static_cast<Lent*>(PyCapsule_GetPointer(self, kLentName));
  });
  if (capsule == nullptr) throw py::error_already_set();
  lent.release();  // NOLINT(bugprone-unused-return-value): the capsule has it
  owner = py::reinterpret_steal<py::object>(capsule);
  Layout layout = LayoutOf(tensor);
  const py::module_ arrays = py::module_::import("kvgauge._arrays");
  if (tensor.device != Device::kHost) {
    return arrays.attr("DeviceArray")(owner, py::tuple(py::cast(layout.shape)),
                                      NumpyType(tensor.dtype), ops.device_number);
  }
  // An array without entries may have no memory, which NumPy would take for a wish to get some.
  static char nothing = 0;
  void* const data = tensor.empty() ? &nothing : tensor.data;
  const py::array array(NumpyType(tensor.dtype), layout.shape, layout.strides, data, owner);
  array.attr("flags").attr("writeable") = false;
  return array.attr("view")(arrays.attr("Array"));
}

bool WasWritten(const py::object& owner) {
  const Lent& lent = *LentOf(owner);
  return lent.exported && SumOf(lent) != lent.sum;
}

void EndLoan(const py::object& owner) { LentOf(owner)->ops = nullptr; }

void BindLentArrays(py::module_& module) {
  // pybind11 looks for NumPy where an array is first needed, behind the guard of a static variable.
  // NumPy's import lets go of the interpreter there, and a second thread of a run would take it and
  // then wait at the guard for ever. So it is found here, while there is one thread.
  py::dtype::of<float>();
  using py::arg;
  module.def("export_array", &ExportLentArray, arg("array"), arg("versioned"), arg("copy"),
             "The array's memory as a DLPack capsule.");
  module.def("export_device_array", &ExportDeviceArray, arg("owner"), arg("versioned"),
             "The memory of a lent array on a device as a DLPack capsule.");
  module.def("copy_device_array", &CopyDeviceArray, arg("owner"),
             "A copy of a lent array on a device in the host's memory.");
}

}  // namespace kvgauge::python
