// SPDX-License-Identifier: Apache-2.0
// What attention on the cpu needs from an instruction set: a table of functions on raw memory.
// The schedule (attention.cpp) is compiled once and calls through it; the functions are templates
// (attention_tiles.h) compiled once per instruction set.
//
// A panel is a matrix [steps][width] with width a multiple of 16, the stationary operand of a
// product. A key page is a panel of 64 entries (width) by key dims (steps); a value page is panels
// of at most 64 value dims (width) by 64 entries (steps). In bf16 two neighbouring steps are
// interleaved, [steps / 2][width][2], which is what the bf16 dot product consumes. Pages with
// KvFormat::by_entry are rows of an entry's numbers instead; panels are made of them in scratch.
//
// In every product one output element is ONE sequential f32 chain over the steps, or an exact sum
// of integers, so its bits do not depend on how many rows or columns are computed together. A link
// of the chain is a step, or with tile registers the sum over 32 steps.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/attention.h"

namespace kvgauge {

enum class Isa;

inline constexpr int kPanelWidth = 64;
inline constexpr int kVectorFloats = 16;  // width granularity of panels; widest vector used
inline constexpr int kEntryRun = 32;      // entries that one link of a chain may be a sum over
inline constexpr int kRowsTogether = 4;   // whose scores of an entry by entry stand side by side

// out[r][c] = (accumulate ? out[r][c] : 0) + sum over s of a[r][s] * panel[s][c].
// a is f32, or bf16 when the panel is bf16 and the table's bf16_dot is set.
struct ProductArgs {
  const void* a;
  int64_t a_stride;  // elements between rows
  int rows;
  const void* panel;
  const void* next_panel;  // prefetched meanwhile; `panel` itself when there is none
  int steps;               // bf16: even
  int width;
  float* out;
  int64_t out_stride;
  bool accumulate;
};

// Lines of memory that are wanted next, fetched meanwhile.
struct ChosenLines {
  const char* const* at;
  int count;
};

// out[r][16 i + c] = sum over s of a[r][s] * columns[i][s][c]: chosen columns of key pages, 16
// neighbours each.
struct ChosenKeysArgs {
  const void* a;  // as ProductArgs
  int64_t a_stride;
  int rows;
  const void* const* columns;  // [count] where in a page the first step of the columns is
  int count;
  int steps;  // bf16: even
  float* out;
  int64_t out_stride;
  ChosenLines lines;
};

// out[r][c] = sum over i of a[r][at[i]] * steps[i][c]: chosen steps of panels of values. In bf16
// steps[i] is a pair and at[i] the first of the two.
struct ChosenValuesArgs {
  const void* a;  // as ProductArgs
  int64_t a_stride;
  int rows;
  const void* const* steps;  // [count]
  const uint16_t* at;        // [count]
  const uint8_t* run;        // [count] which kEntryRun entries of the span the step is one of
  int count;                 // 1 at least
  int width;
  float* out;
  int64_t out_stride;
  ChosenLines lines;
};

// What a segment adds to the scores of one row; null: nothing. Index 0 belongs to column 0; arrays
// reach to the next multiple of 16 columns.
struct ScoreExtras {
  const float* key_scale;
  const float* bias;
  const float* read_bias;
  const uint64_t* read;  // bit c of word c / 64: column c takes part

  bool any() const {
    return key_scale != nullptr || bias != nullptr || read_bias != nullptr || read != nullptr;
  }
};

// One row of raw products over a span becomes its partial softmax state.
struct SoftmaxArgs {
  float* scores;      // [last), products on entry, overwritten
  uint16_t* weights;  // where exp(score - max) goes as bf16; null: f32, over the scores
  int first, last;    // columns to write, multiples of 16
  int begin, end;     // columns the row sees; weights outside are 0
  float scale, softcap;
  bool entropy;  // also sum p * (score - max)
  bool keep;     // beside `weights`, exp(score - max) stays in `scores`; without extras or entropy
  ScoreExtras extras;
  const float* value_scale;  // null, or what the weights are multiplied by
};

// Partial softmax state of one row: weighted values are kept beside it.
struct SoftmaxState {
  float max;       // -inf: saw nothing
  float sum;       // of exp(score - max), before any rounding of the weights
  float weighted;  // sum of exp(score - max) * (score - max)
};

// Rows of entries that are wanted next, fetched meanwhile.
struct WantedRows {
  const char* const* at;
  int count;
  int64_t bytes;  // of each

  WantedRows Part(int part, int parts) const {
    const int from = count * part / parts;
    return {at + from, count * (part + 1) / parts - from, bytes};
  }
};

// out[r / 4][i][r % 4] = sum over s of a[r][s] * keys[i][s]: entries of pages by entry, anywhere.
struct EntryKeysArgs {
  const void* a;  // as ProductArgs; f32 where the table's f32_entry_rows is set
  int64_t a_stride;
  int rows;
  const char* const* keys;  // [count]
  int count;                // kAttentionSpan at most
  int steps;                // bf16: even
  float* out;   // [rows rounded up to 4][kAttentionSpan]; what is not named is untouched
  char* panel;  // scratch: a page of keys
  WantedRows next;
};

// Up to kRowsTogether rows of products with `count` entries of a span become partial softmax
// states, and scores the weights of values. Where they stand is 4 i + r for row r and entry i; and
// so do the numbers of the extras, of which `read` is not null.
struct EntrySoftmaxArgs {
  float* scores;  // whole vectors
  const uint16_t* at;
  int count;
  float scale, softcap;
  bool entropy, bf16;  // bf16: weights are numbers of bf16
  ScoreExtras extras;
  const float* value_scale;
  SoftmaxState* states;  // [kRowsTogether]
};

// out[r][c] = sum over i of weights[4 i + r] * values[i][c] for up to kRowsTogether rows, in the
// links that a product with the page's panels has.
struct EntryValuesArgs {
  float* weights;  // overwritten
  int rows;
  const char* const* values;  // [count]
  const uint16_t* at;         // columns of the span, ascending
  int count;                  // 1 at least
  int width;
  float* out;
  int64_t out_stride;
  WantedRows next;
};

// Probabilities of one row from its known log-sum-exp.
struct ProbabilityArgs {
  const float* scores;  // raw products
  float* out;           // columns [first, last)
  int first, last;      // multiples of 16
  int begin, end;
  float scale, softcap, log_sum_exp;
  ScoreExtras extras;
};

struct ColumnRow {
  float log_sum_exp, weight;
  int begin, end;  // columns of the page the row sees
};
// Folds rows of raw products [rows][64] of one page into the page's 64 column results.
struct ColumnArgs {
  const float* scores;
  const ColumnRow* rows;
  int count;
  float scale, softcap, threshold;
  ColumnReduction kind;
  float* columns;
  ScoreExtras extras;
};

// sums[c] += factors[r] * rows[r][c] over ascending r, for `width` columns, a multiple of 64.
struct WeightedRows {
  const float* rows;
  int64_t stride;
  int count;
  const float* factors;
  int width;
  float* sums;
};

// Rows times each group's scales: folded[r][c] = a[r][c] * scale[c]; constants[r] = sum over c of
// a[r][c] * (zero[c] + middle * scale[c]). In fixed point folded[r][c] is that in units[r], rounded
// to an integer of at most `largest`; constants[r] is less by units[r] * code_middle * their sum.
struct FoldArgs {
  const uint16_t* scales;  // f16, [steps]
  const uint16_t* zeros;   // or null
  int64_t scale_stride;    // of both, from group to group
  int groups;
  int steps;  // multiple of 16
  float middle;
  float code_middle, largest, unit;  // fixed point; unit: 1 / largest
  const float* a;
  int64_t a_stride;
  int rows;
  void* folded;  // f32 or 16-bit integers
  int64_t folded_stride, group_stride;
  float* constants;  // [groups][rows]
  float* units;      // likewise; fixed point
  float* products;   // fixed point: scratch, [4][steps]
};

// out[r][c] = (accumulate ? out[r][c] : 0) + sum over s of a[g][r][s] * table[code[s][c]] +
// constants[g][r], for all columns of a page of codes, which are in vectors of 16; g: the group of
// c's vector. In fixed point the table is that of integers, and the sum counts in units[g][r].
struct CodedProductArgs {
  const char* codes;               // of 2 or 4 bits, or the low 2 of 3
  const char* top_codes;           // of 3 bits: the top ones
  int pairs;                       // of steps, a multiple of 8
  int vectors;                     // of a step, a multiple of 4
  int group_vectors;               // that meet the same rows
  const float* table;              // [16], repeated
  const void* a;                   // rows of the first group, f32 or fixed point
  int64_t a_stride, group_stride;  // elements from row to row, from group to group
  int rows;
  const float* constants;  // [groups][rows]
  const float* units;      // [groups][rows], fixed point
  const char* next;        // what is wanted next, prefetched meanwhile; or null
  int64_t next_bytes;
  float* out;
  int64_t out_stride;
  bool accumulate;
};

// Scales of e4m3, none negative, as they lie in a page: each is 2^-8 times `unit` times its number.
struct ByteScales {
  const uint8_t* codes;
  float unit;
};

// folded[g][r][c] = a[r][c] * scales[g][c].
struct ScaleRowsArgs {
  const float* scales;
  ByteScales bytes;  // where `scales` is null; `steps` is a multiple of 64 then
  int64_t scale_stride;
  int groups, steps;
  const float* a;
  int64_t a_stride;
  int rows;
  float* folded;  // rows of `steps`
};

// raised[r][s] = 2^112 * a[r][s].
struct RaiseRowsArgs {
  const float* a;
  int64_t a_stride;
  int rows, steps;
  float* raised;  // rows of `steps`; `a` itself, if its rows are
};

// What a code of a page stands for, before its scale. The lower halves of a short table's floats
// are 0. kRaisedE4M3: as kE4M3, for rows that are raised.
enum class NumberForm { kE4M3, kE5M2, kByte, kTable, kShortTable, kRaisedE4M3 };
inline constexpr int kNumberForms = 6;

// out[r][c] = (accumulate ? out[r][c] : 0) + over the groups of steps g in order: scales[g][c] *
// sum over s in g of a[c][r][s] * number(code[s][c]), for all columns of a page of codes.
struct NumberProductArgs {
  const char* codes;
  int pairs;           // of steps
  int vectors;         // of a step, a multiple of 4
  const float* table;  // kTable, kShortTable: [16]
  float offset;        // kByte: a number is its code less this
  const float* a;      // rows of the first columns; those of the next ones are rows_stride behind
  int64_t a_stride, rows_stride;
  int vectors_of_rows;  // vectors of columns that meet the same rows
  int rows;
  const float* scales;  // of columns; null: those in `bytes`, or 1 where they are null, too
  ByteScales bytes;
  int64_t scale_stride;
  int group_pairs;   // pairs of steps that share scales
  const char* next;  // what is wanted next, prefetched meanwhile; or null
  int64_t next_bytes;
  float* out;
  int64_t out_stride;
  bool accumulate;
};

// Steps of a panel of 64 columns as f32 [steps][64], turned pair by pair:
// (x, y) = (x cos - y sin, y cos + x sin).
struct RotateArgs {
  const void* panel;  // f32: may be `out`
  int first, last;    // pairs
  int step;           // pair k is of steps k * step and k * step + other
  int other;
  const float* cos;  // of the first pair
  const float* sin;
  int64_t stride;  // from one pair's to the next one's
  float* out;
};

struct AttentionKernels {
  bool bf16_dot;        // weights and queries of bf16 caches are bf16, not f32
  bool f32_entry_rows;  // but queries that meet keys by entry are the same numbers in f32
  int lanes;  // sums of a row's columns are those of so many lanes, column c in lane c % lanes
  // Every thread calls these around its products; null: nothing is needed.
  void (*begin_products)();
  void (*end_products)();
  // Indexed by DType of the panel: f32, f16, bf16.
  void (*product[3])(const ProductArgs& args);
  // The same over chosen columns of keys and steps of values; indexed as `product`.
  void (*chosen_keys[3])(const ChosenKeysArgs& args);
  void (*chosen_values[3])(const ChosenValuesArgs& args);
  // Rows of keys by entry become the first columns of a panel of 64: `count` of them, 64 at most.
  // Up to the next multiple of `lanes` these repeat the last. Indexed as `product`.
  void (*turn_rows[3])(const char* const* rows, int count, int steps, void* panel);
  // Over entries of pages by entry; indexed as `product`.
  void (*entry_keys[3])(const EntryKeysArgs& args);
  void (*entry_values[3])(const EntryValuesArgs& args);
  void (*entry_softmax)(const EntrySoftmaxArgs& args);
  // Panels of f16 or bf16 expanded to f32 [steps][width]; indexed by DType, f32 unused.
  void (*expand[3])(const void* panel, int steps, int width, float* out);
  bool fixed_codes;  // rows that codes of f16 and bf16 caches meet are in fixed point, not f32
  // First index: rows folded to f32, to fixed point (with fixed_codes). Second: bits - 2.
  void (*fold[2])(const FoldArgs& args);
  void (*coded_product[2][3])(const CodedProductArgs& args);
  bool byte_scales;  // scale_rows takes some, and number_product of all forms but kE4M3's
  void (*scale_rows)(const ScaleRowsArgs& args);
  // False where products of raised rows, number_product[kRaisedE4M3], would differ from those of
  // the rows; null: rows are not raised.
  bool (*raise_rows)(const RaiseRowsArgs& args);
  void (*number_product[kNumberForms])(const NumberProductArgs& args);
  SoftmaxState (*softmax)(const SoftmaxArgs& args);
  // (state, values) and (part, part_values) merge into the former; count is padded to 16.
  void (*merge)(SoftmaxState& state, float* values, const SoftmaxState& part,
                const float* part_values, int count);
  void (*probabilities)(const ProbabilityArgs& args);
  void (*reduce_columns)(const ColumnArgs& args);
  void (*add_weighted)(const WeightedRows& args);
  // Indexed by DType of the panel.
  void (*rotate[3])(const RotateArgs& args);
  // Elementwise over n floats, any n.
  void (*to_f16)(const float* in, int64_t n, uint16_t* out);
  void (*to_bf16)(const float* in, int64_t n, uint16_t* out);
  void (*round_f16)(const float* in, int64_t n, float* out);
  void (*exp)(const float* in, int64_t n, float* out);
  void (*tanh)(const float* in, int64_t n, float* out);
};

class ProductScope {
 public:
  explicit ProductScope(const AttentionKernels& kernels) : end_(kernels.end_products) {
    if (kernels.begin_products != nullptr) kernels.begin_products();
  }
  ~ProductScope() {
    if (end_ != nullptr) end_();
  }
  ProductScope(const ProductScope&) = delete;
  ProductScope& operator=(const ProductScope&) = delete;

 private:
  void (*end_)();
};

const AttentionKernels& PortableAttentionKernels();
const AttentionKernels& Avx2AttentionKernels();
const AttentionKernels& Avx512AttentionKernels();
const AttentionKernels& Avx512Bf16AttentionKernels();
const AttentionKernels& AmxAttentionKernels();
const AttentionKernels& AttentionKernelsOf(Isa isa);

}  // namespace kvgauge
