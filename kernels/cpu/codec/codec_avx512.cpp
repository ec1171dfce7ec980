// SPDX-License-Identifier: Apache-2.0
#ifdef __AVX512F__
#include "cpu/codec/codec_impl.h"

namespace kvgauge {
const CodecKernels& Avx512CodecKernels() { return kCodecKernels; }
}  // namespace kvgauge
#endif
