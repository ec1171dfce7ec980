// SPDX-License-Identifier: Apache-2.0
// The keys, or the values, of one owner: the oldest entries coded, the rest float. An owner is a KV
// head, or a group of heads that share latents. A copy shares blocks until one of them is written.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "methods/seal_rule.h"
#include "src/cache/blocks.h"

namespace kvgauge {

struct StreamSpec {
  KvSide side = KvSide::kKeys;
  DType dtype = DType::kF32;  // of float entries
  int64_t dim = 0;
  KvCodec codec;  // kFloat: nothing is ever coded
  SealRule rule;
  bool by_entry = false;  // KvFormat::by_entry of float pages
};

class Stream {
 public:
  Stream(const StreamSpec& spec, BlockPool& pool);

  const StreamSpec& spec() const { return spec_; }
  int64_t length() const { return length_; }
  int64_t coded() const { return coded_; }
  // KvSegment::skip: slots of the first page before entry 0.
  int64_t skip() const { return skip_; }
  int64_t SlotOf(int64_t entry) const { return skip_ + entry; }
  KvCoded coded_pages() const;
  void* const* float_pages() const { return pages_.data(); }

  // Makes pages for `rows` more entries, of this stream alone. On an error: Trim.
  Status Grow(int64_t rows);
  void Trim();                                   // gives back what Grow made and nobody counted in
  void Count(int64_t rows) { length_ += rows; }  // they are, or will be, written
  // Float rows [n, dim] as entries from `first` on, which Grow made room for.
  void Write(const Tensor& rows, int64_t first);
  // Entries [first, first + n) as f32 [n, dim].
  void Read(int64_t first, Tensor rows) const;
  // Entries that the rule says are due.
  int64_t Due() const;
  // Codes them. After an error the stream holds the same entries.
  Status Seal();
  // A stream of `kept` of this one's entries, in that order, that skips no slot. Pages up to the
  // first entry that goes stay as they are; of the rest, float entries keep their bits, coded ones
  // are decoded and coded again, and those that no longer fill a unit become float. `rows` [kept,
  // dim] f32, if any, are what the kept entries are from now on.
  Result<Stream> Gathered(std::span<const int32_t> kept, const Tensor& rows) const;
  // Whether KeepInPlace can: all entries are float.
  bool CanKeepInPlace() const { return coded_ == 0; }
  // Makes the pages that KeepInPlace changes this stream's alone.
  Status OwnWhatMoves(std::span<const int32_t> kept, bool may_skip);
  // What Gathered makes, in this stream's own pages: nothing that can fail. Ascending `kept`. With
  // `may_skip`, where one stretch goes behind few entries, these move up to what follows it, and
  // slots before them are skipped.
  void KeepInPlace(std::span<const int32_t> kept, bool may_skip);
  // Makes every page this stream's alone: what is to be kept in place is then known to nobody else.
  Status OwnAll() { return pages_.OwnFrom(0); }
  // Counts what KeepKv does to float entries: `count` stay, and the others went.
  void Shrink(int64_t count, bool up);
  // Makes the pages with these entries this stream's alone.
  Status Own(std::span<const int32_t> entries);
  // Float entries index[i], as f32 [n, dim].
  void ReadEntries(std::span<const int32_t> index, Tensor rows) const;
  // Rows [n, dim] become the float entries index[i], on pages that are not shared.
  void WriteEntries(const Tensor& rows, std::span<const int32_t> index);
  // Adds rows [n, dim] as float entries.
  Status Append(const Tensor& rows);
  // Adds what this stream holds to the bins; slack is what its blocks have beyond that.
  void AddBytes(KvBytes& bytes) const;
  // What of it entries [first, last) have, without slack; coded ones have alike.
  double BytesOf(int64_t first, int64_t last) const;
  // Whole pages of entries [first, last) come to lie in the memory of the host, and no others:
  // those of floats, and those of codes without their side-cars.
  Status Place(int64_t first, int64_t last, BlockMoves* moves);
  int64_t placed_bytes() const { return pages_.placed_bytes() + codes_.placed_bytes(); }
  // What it holds, bit for bit. Coded pages are as this backend lays them out.
  void Serialize(std::string& out) const;
  // Fills an empty stream of the same spec from the front of `in`; what does not fit is refused.
  Status Deserialize(std::string_view& in);

 private:
  KvFormat Format() const;  // of this side; the other side has one dim
  int64_t PageBytes() const;
  KvSegment FloatSegment() const;  // all slots
  std::vector<int32_t> SlotsOf(std::span<const int32_t> entries) const;
  int64_t SlotPages(int64_t entries) const { return PagesOf(skip_ + entries); }
  KvPages Pages() const;
  Status Encode(const Tensor& rows, int64_t first);
  // Appends rows [n, dim]: entries before `coded` coded, the others float.
  Status Extend(const Tensor& rows, int64_t coded);
  void PutFloats(std::string& out) const;
  Status TakeFloats(std::string_view& in, int64_t count);
  Status TakeBlock(std::string_view& in, void* block, int64_t size_bytes);
  // The blocks of a side-car; those of outliers have sizes of their own.
  void PutSide(const BlockList& list, int64_t size_bytes, std::string& out) const;
  Status TakeSide(std::string_view& in, int64_t size_bytes, BlockList& list);
  Status CheckOutliers(std::string_view in, int64_t count) const;

  StreamSpec spec_;
  BlockPool* pool_;
  Ops* ops_;
  BlockList pages_;  // float; null where all of a page is coded
  BlockList codes_, outliers_, latents_, bases_;
  int64_t length_ = 0;
  int64_t coded_ = 0;
  int64_t skip_ = 0;  // 0 where entries may ever be coded
};

}  // namespace kvgauge
