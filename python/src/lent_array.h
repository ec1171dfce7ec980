// SPDX-License-Identifier: Apache-2.0
// Arrays over memory of the program, lent to Python for as long as a call.
#pragma once

#include <pybind11/pybind11.h>

#include "kernels/ops.h"

namespace kvgauge::python {

namespace py = pybind11;

// An array over memory that somebody else owns, read-only: a kvgauge.Array, which NumPy computes
// with, or a kvgauge.DeviceArray if it is not the host's. `owner` receives the object that every
// view, slice and export of the array keeps alive: while its reference count is above one, somebody
// can still look.
py::object LendArray(const Tensor& tensor, Ops& ops, py::object& owner);
// Whether the memory of such an owner was exported and holds other numbers now: not every library
// knows that it is read-only. On a device a change is seen if it changes the weighted sum of a row.
bool WasWritten(const py::object& owner);
// From here on the memory is gone: what a DeviceArray is asked for is an exception.
void EndLoan(const py::object& owner);

void BindLentArrays(py::module_& module);

}  // namespace kvgauge::python
