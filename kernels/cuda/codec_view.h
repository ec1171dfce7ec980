// SPDX-License-Identifier: Apache-2.0
// How this backend lays out a page of codes, and what kernels are told of a codec.
//
// Codes lie as tensor cores take them. 16 entries by 16 dims of keys are 32 strings of 8 codes, one
// for each lane of a warp: what the lane holds of both 16x8 operands (see mma.h). A lane's strings
// of all dims follow each other, so that it loads 16 bytes at a time. Values do the same with 16
// dims by 64 entries. Scales and zeros follow: [group of dims][64] or [group of entries][dim].
#pragma once

#include <cstdint>

#include "kernels/kv_codec.h"
#include "src/record_view.h"

#ifdef __CUDACC__
#define KVG_BOTH __host__ __device__
#else
#define KVG_BOTH
#endif

namespace kvgauge::cuda {

inline constexpr int kPageEntries = 64;
inline constexpr int kMostLevels = 16;
inline constexpr int kMostRanges = 1024;  // of a page of codes, kept in shared memory

struct CodecView {
  KvCodecKind kind;
  ScaleType scale;   // of a group
  CodeRange range;   // kCodebook
  bool keys;         // layout of keys, else of values
  bool by_token;     // along what groups lie
  bool fixed_range;  // ranges of dims come from `low` and `high`
  bool has_zeros;    // stored beside the scales
  bool has_levels;   // codes count them
  bool symmetric;
  bool exact_scale;  // codes are found before scales and zeros are rounded
  float clip;        // kAffine: of both ends of a group's range
  int bits;
  int dim, width;   // numbers of an entry; rounded up to 16
  int group;        // dims or entries
  int range_pages;  // that have one range
  int scales;       // stored in a page
  int shift;        // code - shift is what is scaled
  int rank;
  int outliers_a_side;  // of each vector
  bool range_of_dims;   // one range for each dim, whatever the entry
  bool range_table;     // a page's ranges fit in shared memory, and nothing else is needed
  float middle;         // of codes that are counted from below, after `shift`
  bool has_outliers;
  float levels[kMostLevels];
  float edges[kMostLevels];  // kCodebook: above each the next code begins
  float scale_unit;          // what stored e4m3 scales are multiples of
  const float* low;          // [dim]
  const float* high;
  const float* fixed_scale;  // [dim], or null: float8
  RecordView record;         // of records, of which only kind, keys, dim and width are set above
};

// One page. Null: none.
struct CodedPage {
  uint8_t* codes;
  const uint8_t* outliers;
  const uint16_t* latents;
  const uint16_t* basis;
};

KVG_BOTH inline int CodeBytes(const CodecView& c) { return c.width * 8 * c.bits; }
KVG_BOTH inline int ScaleBytes(const CodecView& c) {
  switch (c.scale) {
    case ScaleType::kNone:
      return 0;
    case ScaleType::kF16:
      return 2;
    case ScaleType::kF32:
      return 4;
    default:
      return 1;
  }
}
// IsRecord, for code of both sides.
KVG_BOTH inline bool HoldsRecords(const CodecView& c) { return c.kind >= KvCodecKind::kClusters; }
KVG_BOTH inline int CodedPageBytes(const CodecView& c) {
  if (HoldsRecords(c)) return static_cast<int>(RecordPageBytes(c.record));
  return CodeBytes(c) + c.scales * (ScaleBytes(c) + (c.has_zeros ? 2 : 0));
}

// 8 codes that one lane takes at once: string `s` of a page, [0, width * 8). Code j of it is entry
// EntryOf(j), dim DimOf(j).
struct CodeString {
  int entry, dim;  // of code 0
  bool keys;

  KVG_BOTH CodeString(const CodecView& c, int s) : keys(c.keys) {
    if (keys) {
      const int chunks = c.width / 16, chunk = s % chunks, lane = s / chunks % 32;
      entry = s / chunks / 32 * 16 + lane / 4;
      dim = chunk * 16 + lane % 4 * 2;
    } else {
      const int lane = s / 4 % 32;
      entry = s % 2 * 32 + lane % 4 * 2;
      dim = s / 128 * 16 + s / 2 % 2 * 8 + lane / 4;
    }
  }
  // Which code of the string j is.
  KVG_BOTH static int PlaceOf(int j) { return (j >> 1) + (j & 1) * 4; }
  // Keys: bit 2 of j is 8 entries on, bit 1 is 8 dims on, bit 0 one dim. Values: 16 entries, 8, 1.
  KVG_BOTH int EntryOf(int j) const {
    return keys ? entry + (j >> 2) * 8 : entry + (j >> 2) * 16 + (j >> 1 & 1) * 8 + (j & 1);
  }
  KVG_BOTH int DimOf(int j) const { return keys ? dim + (j >> 1 & 1) * 8 + (j & 1) : dim; }
};

// Where the code of a number is, in codes from the start of the page.
KVG_BOTH inline int CodeIndex(const CodecView& c, int entry, int dim) {
  if (c.keys) {
    const int lane = entry % 8 * 4 + dim % 8 / 2;
    const int string = (entry / 16 * 32 + lane) * (c.width / 16) + dim / 16;
    return string * 8 + entry % 16 / 8 * 2 + dim % 16 / 8 + dim % 2 * 4;
  }
  const int lane = dim % 8 * 4 + entry % 8 / 2;
  const int string = (dim / 16 * 32 + lane) * 4 + dim % 16 / 8 * 2 + entry / 32;
  return string * 8 + entry % 32 / 16 * 2 + entry % 16 / 8 + entry % 2 * 4;
}
KVG_BOTH inline int ScaleIndex(const CodecView& c, int entry, int dim) {
  return c.by_token ? dim / c.group * kPageEntries + entry : entry / c.group * c.dim + dim;
}

// Everything but the ranges of dims; PutRanges adds those.
CodecView ViewOf(const KvCodec& codec);
// What PutRanges needs for tables of records.
int64_t RecordTableBytes(const KvCodec& codec);
class Tables;
void PutRanges(const KvCodec& codec, Tables& tables, CodecView* view);

}  // namespace kvgauge::cuda
