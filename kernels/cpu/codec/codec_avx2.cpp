// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX2__)
#include "cpu/codec/codec_impl.h"
#else
#include "cpu/codec/codec_kernels.h"
#endif

namespace kvgauge {
#if defined(__AVX2__)
const CodecKernels& Avx2CodecKernels() { return kCodecKernels; }
#else  // another processor family: never chosen there
const CodecKernels& Avx2CodecKernels() { return PortableCodecKernels(); }
#endif
}  // namespace kvgauge
