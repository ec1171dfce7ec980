// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX512F__)
#include "cpu/codec/codec_impl.h"
#else
#include "cpu/codec/codec_kernels.h"
#endif

namespace kvgauge {
#if defined(__AVX512F__)
const CodecKernels& Avx512CodecKernels() { return kCodecKernels; }
#else  // another processor family: never chosen there
const CodecKernels& Avx512CodecKernels() { return PortableCodecKernels(); }
#endif
}  // namespace kvgauge
