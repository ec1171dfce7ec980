// SPDX-License-Identifier: Apache-2.0
// What the matrix products need from an instruction set, as plain functions: the driver in
// linear.cpp knows no vector type, and the files that do know no threads.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/row_rounding.h"
#include "kernels/weight_blocks.h"

namespace kvgauge {

struct CodedBlock;

// Some rows times one panel, to the end: out = [out +] alpha * (a * panel) [+ bias].
struct PanelProduct {
  const void* a = nullptr;  // float, or uint16_t bf16 where bf16_left says so, or CodedBlock
  int64_t a_stride = 0;     // elements, or bytes of CodedBlocks
  int64_t rows = 0;
  const void* panel = nullptr;
  int64_t panel_stride = 0;  // elements from step to step
  int64_t k = 0;
  float alpha = 1.0f;
  const float* bias = nullptr;  // [columns] or null
  bool add = false;
  float* out = nullptr;
  int64_t out_stride = 0;
  int64_t columns = 0;       // <= kPanelColumns
  float* scratch = nullptr;  // ScratchFloats(rows)

  // A product in parts: elements [begin, k) of each chain, where the call before summed those up to
  // `begin`. Until the last part the sums stay in `sums`, and there is no output.
  int64_t begin = 0;  // a multiple of grouped_k
  bool last = true;
  float* sums = nullptr;       // [rows][64]; null: in the scratch, for a product in one part
  const void* next = nullptr;  // what the next part reads of its panel, or null
  bool by_column = false;      // of panels in blocks: PackBlocksByColumn made them
};

// Most rows of one PanelProduct. A multiple of every tile height.
inline constexpr int64_t kProductRows = 384;
inline constexpr int64_t kProductRowStep = 96;

// Floats of scratch: one panel block widened to f32, and the running sums.
inline constexpr int64_t kWidenedFloats = int64_t{64} << 10;
constexpr int64_t ScratchFloats(int64_t rows) { return kWidenedFloats + rows * 64; }
// Most panels that are multiplied by the same part of left rows.
inline constexpr int64_t kGroupPanels = 8;

// What is brought into panel order at once: kPackRows rows, so many words of 32 bits (one f32, or
// two 16-bit values) of each that all of them fit the first cache. Rows are a multiple of 4 KiB
// apart in most models; in the stage they are not, or all would compete for the same cache sets.
inline constexpr int64_t kPackRows = 64;
inline constexpr int64_t kChunkWords = 64;
inline constexpr int64_t kStageWords = kChunkWords + 16;

// The bits of the largest sizes of numbers with and without a sign; those of a NaN where there is
// one. 0 where there are no such numbers.
struct SpanBits {
  int32_t below = 0, above = 0;
};

// Numbers of a row that share codes, and where they go when they are rounded to the type of the
// product's rows, as RoundRow does, and to the type again.
struct RowPart {
  RowRounding::Codes codes;
  ScaleAndZero by;
  const void* from;  // of f32, or of the type
  bool from_f32;
  int64_t count;
  void* to;  // of f32, or of the type
  bool to_f32;
};

struct LinearKernels {
  // Indexed by weight dtype: f32, f16, bf16.
  void (*multiply[3])(const PanelProduct& product);
  // The same for panels in blocks (block_layout.h), by format and by the type that their numbers
  // are rounded to. There is no panel_stride.
  void (*multiply_blocks[kBlockFormats][3])(const PanelProduct& product);
  // The same for rows of CodedBlocks (coded_rows.h), by format; in one part, to the end. Panels do
  // not lie by column.
  void (*multiply_coded[kBlockFormats])(const PanelProduct& product);
  // A CodedBlock of `count` numbers, whole parts.
  void (*code_block)(const float* from, int64_t count, CodedBlock* to);
  // The bits of the largest size; those of a NaN where there is one.
  int32_t (*largest_bits)(const float* values, int64_t count);
  SpanBits (*span_bits)(const float* values, int64_t count);
  // By the type of the product's rows.
  void (*round_codes[3])(const RowPart& part);
  // A panel of floats (panel.h) of a panel in blocks that do not lie by column, by format and by
  // the type that its numbers are rounded to; k: a whole number of blocks.
  void (*floats_of_blocks[kBlockFormats][3])(const uint8_t* blocks, int64_t k, void* to);
  // bf16 weights are multiplied by bf16 left rows, as bits; otherwise by f32 rows of bf16 values.
  bool bf16_left;
  // Where bf16 products are faster than left rows come from behind the second cache: so many
  // elements of the rows are multiplied by a group of panels before the next ones. 0: to the end.
  int64_t grouped_k;
  // Blocks whose numbers are rounded to bf16 lie by column where they can (LiesByColumn).
  bool blocks_by_column;
  // to[word][kPackRows] = stage[kPackRows][word], rows of the stage kStageWords apart; words: a
  // multiple of 4.
  void (*transpose)(const uint32_t* stage, int64_t words, uint32_t* to);
  // The same of 64 rows at any byte address, which need no stage; words: a multiple of 16. False
  // where a number, f32 or bf16, is not finite. next: null, or rows that come soon. Null on
  // instruction sets that cannot.
  bool (*transpose_rows)(const char* const* rows, const char* const* next, int64_t words,
                         DType type, uint32_t* to);
  // Exact widening, and rounding to nearest even.
  void (*f16_to_f32)(const uint16_t* from, int64_t count, float* to);
  void (*bf16_to_f32)(const uint16_t* from, int64_t count, float* to);
  void (*f32_to_f16)(const float* from, int64_t count, uint16_t* to);
  void (*f32_to_bf16)(const float* from, int64_t count, uint16_t* to);
};

const LinearKernels& PortableLinearKernels();
const LinearKernels& Avx2LinearKernels();
const LinearKernels& Avx512LinearKernels();
const LinearKernels& Avx512Bf16LinearKernels();
const LinearKernels& AmxLinearKernels();

}  // namespace kvgauge
