// SPDX-License-Identifier: Apache-2.0
// What is to be known of the machine beside a number that was measured on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "kernels/ops.h"
#include "runner/layer_division.h"

namespace kvgauge {

std::string ProcessorName();
std::string SystemName();

// The same on every call on one machine with the same backend and thread count, however busy it is:
// system, processor, processors, memory_bytes, backend, isa, threads, and the name of the device
// where there is one. For MachineRow::facts, as canonical JSON.
Json MachineFacts(Ops& ops, int threads);
// Which layers of a model lie on which of its devices, and where that is not what was planned, what
// was.
std::string DivisionText(const std::vector<Ops*>& devices, const std::vector<LayerShare>& shares,
                         const std::vector<LayerShare>& planned = {});
// What was pinned for products of many rows while the weights of a model were packed: "cuBLASLt
// 13.0.2: bf16 256 x 1088: 128 rows by algorithm 66, tile 20; ...". "" where no library does any.
std::string ManyRowsText(const std::vector<Ops*>& devices);
// What of the environment moves times: how threads wait, where they are bound, and what of a device
// is switched off. The program itself sets OMP_WAIT_POLICY on a busy machine, so it is a fact of
// the run.
Json ThreadEnvironment();

}  // namespace kvgauge
