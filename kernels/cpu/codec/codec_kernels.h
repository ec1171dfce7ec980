// SPDX-License-Identifier: Apache-2.0
// Kernels of one page behind CodecOps, and the decoders that attention reads coded pages with. One
// table per instruction set; all give the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/codec/codec_layout.h"
#include "cpu/cpu.h"
#include "src/record_view.h"

namespace kvgauge {

// A codec worked out for the kernels. Points into the codec's tensors.
struct CodecPlan {
  explicit CodecPlan(const KvCodec& codec);
  CodecPlan(const CodecPlan&) = delete;
  CodecPlan& operator=(const CodecPlan&) = delete;

  CodedLayout layout;
  KvCodecKind kind;
  bool symmetric, exact_scale;
  float clip;  // kAffine, kToken: of a group's range
  CodeRange range;
  int rank;

  // Codes of at most 4 bits: what a code stands for before its scale, repeated to 16 entries.
  // Codes of 5 and 8 bits but floats: code - offset.
  float table[16];
  float offset;
  float thresholds[16];       // of levels: a code is the number of thresholds below the number
  const float *low, *high;    // kCodebook, kChannel: [dim]; else null
  float fixed_scale;          // kNvFp4: what block scales are multiples of
  const float* fixed_scales;  // float8 with scales fixed ahead: [width]; else null
  std::vector<float> fixed_memory;
  RecordView record;  // of records, which have none of the above
};

// One page and its side blocks; null where there is none.
struct CodedPage {
  const void* codes = nullptr;
  const void* outliers = nullptr;
  const void* latents = nullptr;
  const void* basis = nullptr;
};

// The page of an index. pages' lists may be null where the codec has no such blocks.
CodedPage PageOf(const KvPages& pages, int64_t page);

// Rows whose least and largest numbers are the ranges of channels.
struct RangedRows {
  const float* first;
  int64_t stride;
  int64_t count;
};

struct CodecKernels {
  // One entry (kToken formats, and codebooks with channel ranges). x: [dim]; codes: [width], of
  // which dim are written; scale (of the layout's type), zero: those of the entry,
  // layout.scale_stride apart.
  void (*code_entry)(const CodecPlan& plan, const float* x, uint8_t* codes, void* scale,
                     uint16_t* zero);
  // layout.group entries (kAffine along kChannel), with the ranges of `ranged`. Rows of x are
  // `stride` apart, rows of codes layout.width; scale, zero: [dim].
  void (*code_channels)(const CodecPlan& plan, const float* x, int64_t stride,
                        const RangedRows& ranged, uint8_t* codes, uint16_t* scale, uint16_t* zero);
  // Puts the codes of entries [begin, end) into the page; codes: [64][width], 0 in all other
  // entries and past dim.
  void (*pack)(const CodecPlan& plan, const uint8_t* codes, int begin, int end, void* page);
  // Scales times codes (plus zeros) of a whole page. tile: keys [dim][64]; values [64][width],
  // whose columns past dim hold finite numbers of no meaning.
  void (*decode)(const CodecPlan& plan, const void* page, float* tile);
  // Scales of a page that has some, as f32, as they lie there.
  void (*scales)(const CodecPlan& plan, const void* page, float* out);
  // Adds latents [64, rank] * basis [rank, dim], f16, to a tile, one rank after the other.
  void (*correct)(const CodecPlan& plan, const void* latents, const void* basis, float* tile);
  // Of 64 entries the nearest of `count` words, the first of those; the distance is a sum of
  // squares over dims in order. rest: [width][64]; words: [count][width].
  void (*nearest_words)(const float* rest, const float* words, int count, int width,
                        int32_t* nearest);
  // sum of x[i] * y[i]: sixteen interleaved chains, joined by halves.
  float (*dot)(const float* x, const float* y, int64_t n);
  // y[i] += a * x[i], two roundings.
  void (*add_scaled)(float a, const float* x, int64_t n, float* y);
};

// `decode`, `correct` and the outliers: all that Decode gives.
void DecodeTile(const CodecKernels& kernels, const CodecPlan& plan, const CodedPage& page,
                float* tile);
// Floats of a tile.
inline int64_t TileFloats(const CodedLayout& layout) {
  return int64_t{layout.steps} * layout.vectors * kCodeLanes;
}

const CodecKernels& PortableCodecKernels();
const CodecKernels& Avx2CodecKernels();
const CodecKernels& Avx512CodecKernels();
// The fastest form that `isa` runs.
const CodecKernels& CodecKernelsOf(Isa isa);

}  // namespace kvgauge
