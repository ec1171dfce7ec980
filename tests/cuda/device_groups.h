// SPDX-License-Identifier: Apache-2.0
// The device's codecs and attention behind host tensors.
#pragma once

#include <memory>

#include "kernels/ops.h"

namespace kvgauge {

std::unique_ptr<CodecOps> MakeHostedCodec();
// On TestDevice(), or `attention`, which uses the same device.
std::unique_ptr<AttentionOps> MakeHostedAttention(AttentionOps* attention = nullptr);

}  // namespace kvgauge
