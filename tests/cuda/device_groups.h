// SPDX-License-Identifier: Apache-2.0
// Groups of a device behind host tensors, so that the op tables, written for host memory, run on
// it: each call copies its tensors to the device and back.
#pragma once

#include <memory>
#include <string>

#include "kernels/ops.h"

namespace kvgauge {

// What the tables call the device.
std::string DeviceBackendName();

template <class Group>
std::unique_ptr<Group> MakeDeviceGroup();
template <>
std::unique_ptr<RowOps> MakeDeviceGroup();
template <>
std::unique_ptr<SelectOps> MakeDeviceGroup();
template <>
std::unique_ptr<AlgebraOps> MakeDeviceGroup();
template <>
std::unique_ptr<LinearOps> MakeDeviceGroup();
template <>
std::unique_ptr<CodecOps> MakeDeviceGroup();
template <>
std::unique_ptr<AttentionOps> MakeDeviceGroup();

}  // namespace kvgauge
