// SPDX-License-Identifier: Apache-2.0
// The operation groups of this backend. Each acts on one stream, in order. A context outlives the
// groups made with it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cuda/device/driver.h"
#include "kernels/library.h"
#include "kernels/ops.h"

namespace kvgauge::cuda {

class Context;

// `others`: the Ops of further devices that a model may have layers on (kernels/devices.h).
std::unique_ptr<MemoryOps> MakeCudaMemory(std::shared_ptr<Context> context,
                                          std::vector<std::unique_ptr<Ops>> others);
std::unique_ptr<LinearOps> MakeCudaLinear(Context& context);
std::unique_ptr<RowOps> MakeCudaRows(Context& context);
std::unique_ptr<SelectOps> MakeCudaSelect(Context& context);
std::unique_ptr<AlgebraOps> MakeCudaAlgebra(Context& context);
std::unique_ptr<StateOps> MakeCudaState(Context& context);
std::unique_ptr<CodecOps> MakeCudaCodec(Stream stream);
std::unique_ptr<AttentionOps> MakeCudaAttention(const Context& context);

// What products and attention take for themselves in a pass.
int64_t LinearScratchBytes(const PassSize& size);
int64_t AttentionScratchBytes(const PassSize& size);

// All of them on a device; null, and why, when it cannot be used.
std::unique_ptr<Ops> MakeDeviceOps(int device, std::string* why);
// The same on several devices of one kind, the first of which owns the others.
std::unique_ptr<Ops> MakeDeviceOps(std::span<const int> devices, std::string* why);

// Who multiplies many rows on the current device, the library or our kernels, and why: the types
// are tried with small weights. Throws OutOfDeviceMemory.
std::string DescribeManyRows();

// Who multiplies many rows on a device, which becomes the current one; or why it cannot be said.
std::string ProbeProducts(int device);
// The same of attention of many rows, by the portable kernel or on warpgroups.
std::string ProbePrefill(int device);

// All devices, usable or not. `begin`: as AskDevice has it. Empty, and why, when there is none.
std::vector<DeviceReport> ListDevices(bool begin, std::string* why);

// The vendor's product; null, and why, when it cannot be used. Not on the emulator.
std::unique_ptr<LibraryProduct> MakeCudaLibraryProduct(std::string* why);

}  // namespace kvgauge::cuda
