// SPDX-License-Identifier: Apache-2.0
// Records: codes of an entry that lie side by side in a page, from several of which a number is
// rebuilt. What the kernels of the cpu and of devices are told of such a codec, and how a page is
// laid out: a header (kPolarPairs and kMeanSizes alone), then 64 records.
//
//     kClusters    [groups] scale, [groups] zero, e4m3; codes, `bits` each
//     kPolarPairs  header [groups of entries][pairs] radius: least, step; angle: least, step; f16
//                  record: of each pair radius and angle, `bits` each
//     kPolarTree   [blocks] radius f16; of each block 8 angles of 4 bits, then 4, 2 and 1 of 2 bits
//     kVectors     root of the mean square f16 (kRms alone); [stages][runs] codes, `bits` each
//     kSketched    root of the mean square, length of the error, f16; codes; a sign for each dim
//     kMeanSizes   header [groups of entries] mean sizes f16 of dims that have them; then, of the
//                  others, scales f16, and zeros f16
//                  record: signs; then codes, `bits` each, or bytes of five levels each
//
// Fields of bits follow each other, lowest first, from the byte behind what is named before them.
#pragma once

#include <cstdint>

#include "core/result.h"
#include "kernels/kv_codec.h"

#ifdef __CUDACC__
#define KVG_RECORD __host__ __device__ inline
#else
#define KVG_RECORD inline
#endif

namespace kvgauge {

inline constexpr int kRecordPage = 64;  // entries
inline constexpr int kMostRecordDims = 512;
inline constexpr int kTreeBlock = 16;  // dims
inline constexpr int kTreeBits = 46;   // of a block
inline constexpr int kMostRecordLevels = 8;

struct RecordView {
  KvCodecKind kind;
  bool scaled;  // kVectors: by the root of the mean square
  bool commuting;
  int dim, bits, group, stages, apart;
  int runs;          // kVectors: dim / group
  int header_bytes;  // of a page
  int record_bytes;  // of an entry
  float clip;
  const float* table;
  float levels[kMostRecordLevels];  // kSketched
};

// What a codec is; `table` is the codec's own.
RecordView RecordOf(const KvCodec& codec);
Status CheckRecord(const KvCodec& codec);
// Bits of an entry's codes, without scales.
int64_t RecordBits(const KvCodec& codec);

KVG_RECORD int64_t RecordPageBytes(const RecordView& view) {
  return view.header_bytes + int64_t{kRecordPage} * view.record_bytes;
}
// Bytes that each record has before its codes.
KVG_RECORD int ScaleBytesOf(const RecordView& view) {
  switch (view.kind) {
    case KvCodecKind::kClusters:
      return 2 * view.stages;
    case KvCodecKind::kPolarTree:
      return view.dim / kTreeBlock * 2;
    case KvCodecKind::kVectors:
      return view.scaled ? 2 : 0;
    case KvCodecKind::kSketched:
      return 4;
    default:
      return 0;
  }
}
// kMeanSizes: dims with a mean size, the first ones; bytes of a group in the header.
KVG_RECORD int SizedDims(const RecordView& view) { return view.bits == 0 ? view.dim : view.stages; }
KVG_RECORD int SizesBytes(const RecordView& view) {
  return 2 * SizedDims(view) + 4 * (view.dim - SizedDims(view));
}

}  // namespace kvgauge
