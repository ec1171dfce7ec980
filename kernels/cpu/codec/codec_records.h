// SPDX-License-Identifier: Apache-2.0
// Pages of records on the cpu.
#pragma once

#include "cpu/codec/codec_kernels.h"
#include "cpu/codec/codec_layout.h"
#include "src/record_view.h"

namespace kvgauge {

// Entries [begin, end) of a page; rows of x are `stride` apart, the first is that of `begin`.
void EncodeRecords(const CodecKernels& k, const RecordView& view, const float* x, int64_t stride,
                   int begin, int end, uint8_t* page);
// A whole page. tile: keys [dim][64]; values [64][width].
void DecodeRecords(const RecordView& view, const CodedLayout& layout, const void* page,
                   float* tile);

}  // namespace kvgauge
