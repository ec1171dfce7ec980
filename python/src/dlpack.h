// SPDX-License-Identifier: Apache-2.0
// Arrays that go between libraries without a copy, by the DLPack protocol: NumPy, PyTorch and every
// other library that has __dlpack__.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <string>

#include "kernels/tensor.h"

namespace kvgauge::python {

namespace py = pybind11;

// A NumPy array over memory that somebody else owns. Its type, kvgauge.Array, exports DLPack, which
// a plain read-only array of NumPy does not. `owner` receives the object that every view, slice and
// export of the array keeps alive: while its reference count is above one, somebody can still look.
py::array BorrowedArray(const Tensor& tensor, bool writeable, py::object& owner);
// Whether the memory of such an owner was exported and holds other numbers now: not every library
// knows that it is read-only.
bool WasWritten(const py::object& owner);

// What a stage returned as an array: itself, or the memory of any object with __dlpack__, without a
// copy but for bfloat16, which NumPy has no type for. Memory of a device, numbers that are not real
// and shapes that no array has are Python exceptions that name `what`. Other objects are left to
// NumPy; what it cannot read gives a null array without an exception.
py::array AnyArray(const py::object& value, const std::string& what);

void BindDlpack(py::module_& module);

}  // namespace kvgauge::python
