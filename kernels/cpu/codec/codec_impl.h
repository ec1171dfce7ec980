// SPDX-License-Identifier: Apache-2.0
// Kernels behind CodecOps; each codec_<isa>.cpp includes this once and exports the table.
#pragma once

#include "cpu/codec/codec_decode.h"
#include "cpu/codec/codec_encode.h"

namespace kvgauge {
namespace {

constexpr CodecKernels kCodecKernels = {
    .code_entry = CodeEntry,
    .code_channels = CodeChannels,
    .pack = Pack,
    .decode = DecodePage,
    .scales = ReadScales,
    .correct = CorrectTile,
    .nearest_words = NearestWords,
    .dot = Dot,
    .add_scaled = AddScaled,
};

}  // namespace
}  // namespace kvgauge
