// SPDX-License-Identifier: Apache-2.0
// The operation groups of this backend. Each acts on one stream, in order.
#pragma once

#include <memory>

#include "cuda/device/driver.h"
#include "kernels/attention.h"
#include "kernels/kv_codec.h"

namespace kvgauge::cuda {

std::unique_ptr<CodecOps> MakeCudaCodec(Stream stream);
std::unique_ptr<AttentionOps> MakeCudaAttention(Stream stream);

}  // namespace kvgauge::cuda
