// SPDX-License-Identifier: Apache-2.0
// The cpu backend's parts, and the instruction sets it can use.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "kernels/ops.h"

namespace kvgauge {

// Each contains the ones before it.
enum class Isa { kPortable, kAvx2, kAvx512, kAvx512Bf16, kAmx };

std::string_view NameOf(Isa isa);  // "portable", "avx2", "avx512", "avx512_bf16", "amx"
// What this processor and kernel can run, in ascending order; never empty.
const std::vector<Isa>& SupportedIsas();
// `wanted` empty: the best supported. Unknown or unsupported: an error that lists the supported.
Result<Isa> ChooseIsa(std::string_view wanted);

std::unique_ptr<LinearOps> MakeCpuLinear(Isa isa, ThreadSettings threads);
std::unique_ptr<RowOps> MakeCpuRows(Isa isa, ThreadSettings threads);
std::unique_ptr<SelectOps> MakeCpuSelect(Isa isa, ThreadSettings threads);
std::unique_ptr<AlgebraOps> MakeCpuAlgebra(Isa isa, ThreadSettings threads);
std::unique_ptr<StateOps> MakeCpuState(Isa isa, ThreadSettings threads);
std::unique_ptr<TaskOps> MakeCpuTasks(ThreadSettings threads);
std::unique_ptr<CodecOps> MakeCpuCodec(Isa isa, ThreadSettings threads);
std::unique_ptr<AttentionOps> MakeCpuAttention(Isa isa, ThreadSettings threads);

}  // namespace kvgauge
