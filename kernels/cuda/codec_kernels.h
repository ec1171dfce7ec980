// SPDX-License-Identifier: Apache-2.0
// Launches of the codec's kernels. Pointers are device memory.
#pragma once

#include "cuda/codec_view.h"
#include "cuda/device/driver.h"

namespace kvgauge::cuda {

// Entries [begin, end) of one page are rows [row, row + end - begin) of a call.
struct PagePart {
  CodedPage page;
  int64_t row;
  int begin, end;
};

struct CodecCall {
  const CodecView* codec;
  const PagePart* parts;
  int64_t parts_count;
  float* rows;  // decoded to, or coded from
  int64_t stride;
};

void DecodeParts(const CodecCall& call, int dim, Stream stream);

// Copies whole pages of rows to `kept` [rows, dim], each outlier replaced by the mean of the rest
// of its vector; marks outliers in `marks` [parts][2 dim] words, bit place % 32 of word place / 32.
void FindOutliers(const CodecCall& call, int dim, float* kept, uint32_t* marks, Stream stream);
// counts [parts] of marks.
void CountMarks(const CodecCall& call, int dim, const uint32_t* marks, uint32_t* counts,
                Stream stream);
// Outlier blocks: count, places, values. blocks [parts], null where there are none, with room for
// counts [parts] of them.
void WriteOutliers(const CodecCall& call, int dim, const uint32_t* marks, uint8_t* const* blocks,
                   const uint32_t* counts, Stream stream);

// scratch: 2 * scales numbers for each part; scales: at least the page's.
void EncodeParts(const CodecCall& call, float* scratch, int64_t scales, Stream stream);

// What codes leave: rows - decoded, 0 at marks (or null). error: [rows, dim].
void CodingError(const CodecCall& call, int dim, const uint32_t* marks, float* error,
                 Stream stream);

// error [n, dim] is about latents^T basis; latents [rank, n], basis [rank, dim] with starting
// values.
void FitCorrection(const float* error, int64_t n, int dim, int rank, double* latents, double* basis,
                   Stream stream);
// As f16: to each part's latents_out [64, rank], basis_out [rank, dim].
void StoreCorrection(const CodecCall& call, int64_t n, int dim, int rank, const double* latents,
                     const double* basis, uint16_t* const* latents_out, uint16_t* basis_out,
                     Stream stream);

}  // namespace kvgauge::cuda
