// SPDX-License-Identifier: Apache-2.0
// Arrays that go between libraries without a copy, by the DLPack protocol: NumPy, PyTorch, CuPy and
// every other library that has __dlpack__.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace kvgauge::python {

namespace py = pybind11;

// DLPack's number of the kind; which of these devices it is says Ops::device_number.
inline constexpr int32_t kDlCuda = 2;

// A capsule with the memory of an array, or of a read-only tensor on the device of `ops` that lives
// as long as `owner`. With `versioned` it is one of DLPack 1, which says whether it is read-only
// or, with `copied`, the consumer's alone.
py::capsule ExportArray(const py::array& array, bool versioned, bool copied);
py::capsule ExportTensor(const Ops& ops, const Tensor& tensor, const py::object& owner,
                         bool versioned);

// What a stage returned as an array: itself, or the memory of any object with __dlpack__, without a
// copy but for bfloat16, which NumPy has no type for, and for memory of the device of `ops`, which
// is copied to the host. Memory of another device, numbers that are not real and shapes that no
// array has are Python exceptions that name `what`. Other objects are left to NumPy; what it cannot
// read gives a null array without an exception.
py::array AnyArray(Ops& ops, const py::object& value, const std::string& what);

// NumPy's type; of bfloat16 its words.
py::dtype NumpyType(DType dtype);

// Memory on the device as NumPy describes it, strides in bytes.
struct DeviceMemory {
  void* data;
  py::dtype type;
  std::vector<py::ssize_t> shape, strides;
};
// The same numbers in the host's memory. Waits for the device.
py::array CopyToHost(Ops& ops, const DeviceMemory& memory);

}  // namespace kvgauge::python
