// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX2__
#include "cpu/codec/codec_impl.h"

namespace kvgauge {
const CodecKernels& Avx2CodecKernels() { return kCodecKernels; }
}  // namespace kvgauge
#endif
