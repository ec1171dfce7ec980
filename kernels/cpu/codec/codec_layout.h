// SPDX-License-Identifier: Apache-2.0
// How the cpu backend lays out a coded page.
//
// A page is a matrix of codes, steps by lanes, as panels are. Keys: a step is a dim, its 64 lanes
// are the entries. Values: a step is an entry, its lanes are the dims, padded to 16. Lanes go in
// vectors of 16, steps in pairs. The page is a row of blocks of 16 words of 32 bits. Lane l of
// every vector is in word l: even steps in the low half of the word, odd steps in the high half,
// one field of `bits` bits for each (pair, vector):
//
//     slot = pair * vectors + vector      block = slot / (16 / bits)
//     bit  = slot % (16 / bits) * bits    + 16 for the odd step
//
// So one load and one shift give 16 neighbouring lanes of a step as the low bits of 32-bit words,
// which is an index for a table of floats (vpermps looks at 4 bits only); and a mask gives 16 pairs
// of 16-bit integers (even step, odd step), interleaved as products of words take them. Codes of 3
// bits are a plane of their low 2 bits and behind it a plane of the top bits, each as above; codes
// of 5 bits likewise, with a plane of their low 4 bits.
//
// Example, 4-bit keys: 4 vectors and 4 slots per block, so block i is dims 2 i and 2 i + 1 of all
// 64 entries. Entry 37 (vector 2, lane 5) of dim 7 (pair 3, odd): slot 14, block 3, word 5, bits
// 24 .. 27.
//
// Behind the codes stand the scales, f16 or as the format has them, then likewise the zeros, f16,
// if there are any. kToken: [group of dims][64 entries]. kChannel: [group of entries][dims padded
// to 16].
//
// Padding: steps and lanes that are no dim hold code 0. Where dim is a multiple of 16, every block
// is full.
#pragma once

#include <cstdint>

#include "kernels/kv_codec.h"

namespace kvgauge {

inline constexpr int kCodeLanes = 16;       // of a vector; words of a block
inline constexpr int kCodeBlockBytes = 64;  // 16 words
inline constexpr int kCodePageEntries = 64;

struct CodedLayout {
  explicit CodedLayout(const KvCodec& codec);

  KvSide side;
  int dim;
  int width;    // dim padded to 16
  int steps;    // keys: dim; values: 64
  int vectors;  // of 16 lanes; keys: 4; values: width / 16
  int slots;    // pairs of steps * vectors

  int bits;             // of a code
  int64_t high_offset;  // bits == 3, 5: bytes before the plane of top bits

  CodeAxis axis;
  int group;         // numbers that share a scale
  int groups;        // kToken: of one entry; kChannel: of one dim in the page
  int scale_stride;  // from one group's scales to the next, in elements
  ScaleType scale;
  int64_t scale_offset;  // bytes; 0: no scales in the page
  int64_t zero_offset;   // bytes; 0: no zeros in the page
  int64_t bytes;         // of the page

  // Bytes of a plane of fields of `field_bits` bits.
  int64_t PlaneBytes(int field_bits) const;
};

}  // namespace kvgauge
