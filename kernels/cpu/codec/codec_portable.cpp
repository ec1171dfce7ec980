// SPDX-License-Identifier: Apache-2.0
#include "cpu/codec/codec_impl.h"

namespace kvgauge {
const CodecKernels& PortableCodecKernels() { return kCodecKernels; }
}  // namespace kvgauge
