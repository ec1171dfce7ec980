// SPDX-License-Identifier: Apache-2.0
// What is to be known of the machine beside a number that was measured on it.
#pragma once

#include <cstdint>
#include <string>

#include "core/json_fwd.h"
#include "kernels/ops.h"

namespace kvgauge {

std::string ProcessorName();
std::string SystemName();
int64_t MemoryBytes();

// The same on every call on one machine with the same backend and thread count: system, processor,
// processors, memory_bytes, backend, isa, threads, and what of the environment moves times. For
// MachineRow::facts, as canonical JSON.
Json MachineFacts(const Ops& ops, int threads);

}  // namespace kvgauge
