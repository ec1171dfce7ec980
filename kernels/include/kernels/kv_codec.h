// SPDX-License-Identifier: Apache-2.0
// How the entries of one stream of the cache are coded, and exactly how many bytes that takes.
//
// A stream is the keys, or the values, of one owner (usually one KV head), in pages of
// kKvPageEntries entries. A codec is data: a small set of primitives that published methods compose
// (n-bit groups along either axis, block formats, float8, codebooks, sparse outliers, a low-rank
// correction). A page's inner layout belongs to the backend; its size in logical bytes does not.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/dtype.h"
#include "core/result.h"
#include "kernels/tensor.h"

namespace kvgauge {

enum class KvSide : uint8_t { kKeys, kValues };

// Numbers of the kinds are part of a written cache: new ones go to the end.
enum class KvCodecKind : uint8_t {
  kFloat,     // f32, f16 or bf16, as KvFormat has them
  kAffine,    // groups of n-bit codes: value = scale * code + zero (symmetric: no zero)
  kQ8_0,      // blocks of 32 dims of an entry: f16 scale, 8-bit codes
  kQ4_0,      // blocks of 32 dims of an entry: f16 scale, 4-bit codes, offset 8
  kFp8E4M3,   // one byte a number, saturating, times the scales below
  kCodebook,  // n-bit index into `levels`: value = half_range * levels[code] + middle
  kQ4_1,      // blocks of 32: f16 scale and least number, 4-bit codes
  kQ5_0,      // blocks of 32: f16 scale, 5-bit codes, offset 16
  kQ5_1,      // blocks of 32: f16 scale and least number, 5-bit codes
  kIq4Nl,     // blocks of 32: f16 scale, 4-bit codes of llama.cpp's uneven levels
  kFp8E5M2,   // as kFp8E4M3, with 5 bits of exponent
  kMxFp4,     // blocks of 32: a power of two in 8 bits, 4-bit floats e2m1 (OCP microscaling)
  kNvFp4,     // blocks of 16: an e4m3 scale, 4-bit floats e2m1; times `fixed_scale`
  // Records: a number is rebuilt from several codes of its entry (docs/codes.md).
  kClusters,    // n-bit codes of dims in groups of any dims: scale and zero e4m3
  kPolarPairs,  // pairs of dims as radius and angle, n bits each, ranges over `group` entries
  kPolarTree,   // blocks of 16 dims as an f16 radius and angles of 4, 2, 2 and 2 bits
  kVectors,     // runs of `group` dims as a sum of `stages` codewords of `table`
  kSketched,    // levels as kCodebook with kRms, the length of the error and signs of its transform
  kMeanSizes,   // signs or three levels, times the mean size of a dim over `group` entries
};
inline constexpr KvCodecKind kLastCodecKind = KvCodecKind::kMeanSizes;
constexpr bool IsRecord(KvCodecKind kind) { return kind >= KvCodecKind::kClusters; }

// How the scale of a group is stored.
enum class ScaleType : uint8_t {
  kNone,
  kF16,
  kF32,
  kE4M3,  // float8
  kE8M0,  // 2^(code - 127)
};
inline int64_t SizeOf(ScaleType type) {
  constexpr int64_t kSizes[] = {0, 2, 4, 1, 1};
  return kSizes[static_cast<int>(type)];
}

// The direction of the numbers that share one scale.
enum class CodeAxis : uint8_t {
  kToken,    // `group` neighbouring dims of one entry; the last group may be shorter
  kChannel,  // `group` neighbouring entries of one dim
};

// Defines half_range and middle of a kCodebook group (kToken).
enum class CodeRange : uint8_t {
  kExtremes,  // of the smallest and largest number; both are stored
  kRms,       // the root of the mean square, and 0, which is not stored; levels of unit variance
  kLargest,   // the largest number in size, and 0, which is not stored; levels within [-1, 1]
};

struct KvCodec {
  KvCodecKind kind = KvCodecKind::kFloat;
  KvSide side = KvSide::kKeys;
  int64_t dim = 0;            // numbers of one entry
  DType dtype = DType::kF16;  // kFloat: what is stored

  int bits = 0;  // kAffine: 1, 2, 3, 4, 8; kCodebook: 1 .. 4
  CodeAxis axis = CodeAxis::kToken;
  // kChannel: 16, 32 or 64; kToken: at most dim. kFp8...: dims of an entry that share a scale, f32,
  // found when they are coded; 0: none is stored.
  int64_t group = 0;
  bool symmetric = false;  // kAffine, 2 bits at least: value = scale * (code - 2^(bits - 1))
  // kAffine, kToken, not symmetric: codes are found with scale and zero in f32, as they are before
  // f16 rounds what is stored of them.
  bool exact_scale = false;
  // kAffine, kChannel, groups of 64: so many pages have one range, held in each; 0: a call's pages.
  int64_t range_pages = 1;

  // kCodebook: [2^bits] f32 ascending; codes are those of the nearest, of two the lower, or begin
  // above the edges in `table`, [2^bits - 1] f32 ascending. kChannel: a dim's range is channel_low
  // to channel_high, [dim] f32; kToken: the entry's own. Host memory; it must outlive the codec.
  Tensor levels, channel_low, channel_high;
  CodeRange range = CodeRange::kExtremes;
  // Scales fixed ahead, f32, positive: one number, or [dim] (kFp8... without groups); one number
  // that block scales are multiples of (kNvFp4). Empty: 1. Host memory, as above.
  Tensor fixed_scale;

  // Records, and edges of codes. Host memory; it must outlive the codec.
  // kClusters: [dim] f32, the number of each dim's group, 0 .. stages - 1.
  // kVectors: f32 [stages][dim / group][2^bits][group]; commuting, where `group` is dim and `bits`
  // are even: [stages][2^(bits / 2)][2][dim / 2]. A code (A, B), A in its upper half, then stands
  // for the pairs (x_A - y_B, x_B + y_A), which is a code that turns with its pairs of dims.
  Tensor table;
  // kMeanSizes: the first `stages` dims, 0 .. dim, have signs; the others affine codes of `bits`
  // bits over `group` entries, 16, 32 or 64, as kAffine has them, or three levels where bits is 0:
  // 0 within half of the mean size.
  int64_t stages = 1;      // kVectors: codewords that are added; kClusters: groups
  int64_t apart = 1;       // from one dim of a pair to the other: 1 or dim / 2
  bool commuting = false;  // kVectors
  // kClusters, and kAffine along kToken that is not symmetric: both ends of a group's range are
  // multiplied by it, and numbers beyond get the first or the last code.
  float clip = 1.0f;

  // Side-cars. Both need whole pages: see SealUnit.
  // The largest and smallest `outlier_share / 2` of each vector (kChannel: of each dim over the
  // page's entries; kToken: of each entry; rounded half up to a count) are kept exactly, as f16,
  // and stand in the codes as the mean of the rest: kAffine, kCodebook along kToken. kCodebook with
  // channel ranges: every number outside its range is kept. Outliers need dim <= 1024.
  double outlier_share = 0.0;
  // The error that remains is approximated by a product of this rank, f16, one basis for the
  // entries of one Encode call.
  int64_t rank = 0;

  bool coded() const { return kind != KvCodecKind::kFloat; }
  bool has_outliers() const {
    return outlier_share > 0 || (kind == KvCodecKind::kCodebook && axis == CodeAxis::kChannel);
  }
};

// Whether the fields fit together; an error names the field, its value and what would be right.
Status CheckCodec(const KvCodec& codec);

// Entries are sealed in multiples of this: 1 where every entry stands alone, `group` where groups
// run over entries, a whole page where there is a side-car.
int64_t SealUnit(const KvCodec& codec);

// Bytes by kind. Logical is what a method must hold; resident adds what pages leave unused.
struct KvBytes {
  int64_t payload = 0;      // numbers or codes
  int64_t scales = 0;       // scales and zeros
  int64_t indices = 0;      // positions, page tables of references, class ids
  int64_t outliers = 0;     // values and their places
  int64_t low_rank = 0;     // both factors of corrections
  int64_t biases = 0;       // log weights, running scores, magnitudes
  int64_t codebooks = 0;    // constants, once a model
  int64_t projections = 0;  // constants, once a model
  int64_t slack = 0;        // allocated and unused

  int64_t logical() const {
    return payload + scales + indices + outliers + low_rank + biases + codebooks + projections;
  }
  int64_t resident() const { return logical() + slack; }
  KvBytes& operator+=(const KvBytes& other);
  bool operator==(const KvBytes&) const = default;
};

// Bits stored for one number, without what it shares with others; of an entry's numbers together.
// Records have the second alone.
int64_t CodeBits(const KvCodec& codec);
int64_t EntryCodeBits(const KvCodec& codec);

// What a codec is to whoever lays out its pages: one row of a table of formats.
struct CodeForm {
  int bits = 0;  // of a code
  ScaleType scale = ScaleType::kNone;
  bool zeros = false;             // one beside each scale, f16
  bool by_token = true;           // what a group runs along
  int64_t group = 0;              // numbers of one; 0: nothing is stored beside the codes
  bool float8 = false;            // codes are floats of 8 bits
  int offset = 0;                 // a code stands for code - offset,
  std::span<const float> levels;  // or for one of these, before its scale
};
CodeForm FormOf(const KvCodec& codec);

// Exact bytes of `entries` entries sealed by one Encode call (a multiple of SealUnit), without
// outliers, whose number depends on the data: CodecOps::OutlierBytes.
KvBytes CodedBytes(const KvCodec& codec, int64_t entries);

// The pages of a coded stream; page p holds entries [64 p, 64 p + 64). Side blocks are null where a
// codec has none.
struct KvPages {
  void* const* codes = nullptr;     // CodecOps::PageBytes each, zero before the first Encode
  void* const* outliers = nullptr;  // CodecOps::OutlierBytes(count) each, or null where none
  void* const* latents = nullptr;   // [64, rank] f16
  void* const* bases = nullptr;     // [rank, dim] f16; pages of one Encode call share one
};

class CodecOps {
 public:
  virtual ~CodecOps() = default;

  // Bytes of one block in memory, padding included. Nothing is padded where dim is a multiple of
  // 16: then PageBytes is payload + scales of CodedBytes(codec, 64).
  virtual int64_t PageBytes(const KvCodec& codec) const = 0;
  // A count (u32), then for each outlier its place in the page, dim * 64 + entry (u16), ascending,
  // and its value (f16).
  int64_t OutlierBytes(int64_t count) const { return 4 + 4 * count; }

  // Called by Encode for each side block it needs, on the calling thread: first the basis, for the
  // first page, on behalf of all pages of the call; then page by page latents and, if there are
  // any, outliers (clear the entry of a page that is coded again). The memory must stay until the
  // page is dropped or coded again.
  enum class Block { kOutliers, kLatents, kBasis };
  using AllocateBlock = std::function<void*(Block kind, int64_t page, int64_t size_bytes)>;

  // Codes rows [n, dim] f32, finite (rows may be strided), as entries [first_entry, first_entry +
  // n). Both are multiples of SealUnit. `pages` are those of the whole stream; their code blocks
  // exist; side blocks come from `allocate`. Other entries of the pages stay as they are.
  //
  // Codes, scales and outliers are the same on every backend, for each step is one f32 operation,
  // rounded once. Scales and zeros are rounded to their type (and clamped to its range) before
  // codes are computed with them; codes round half to even, those of llama.cpp's blocks as
  // llama.cpp does: with the unrounded scale. A constant group of affine codes reproduces its value
  // as f16 has it. The correction is the same up to rounding.
  void Encode(const KvCodec& codec, const Tensor& rows, int64_t first_entry, const KvPages& pages,
              const AllocateBlock& allocate = nullptr);

  // Decodes entries [first_entry, first_entry + n) to rows [n, dim] f32. A number is scale * code
  // (+ zero), not fused; plus its correction; or the outlier that is kept for it. A block scale of
  // kNvFp4 is multiplied by the fixed one first.
  void Decode(const KvCodec& codec, const KvPages& pages, int64_t first_entry, Tensor rows);

  // Outliers held by one page, for the accountant; 0 for a null block.
  virtual int64_t OutlierCount(const void* block) const = 0;

 private:
  virtual void DoEncode(const KvCodec& codec, const Tensor& rows, int64_t first_entry,
                        const KvPages& pages, const AllocateBlock& allocate) = 0;
  virtual void DoDecode(const KvCodec& codec, const KvPages& pages, int64_t first_entry,
                        Tensor rows) = 0;
};

}  // namespace kvgauge
