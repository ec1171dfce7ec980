// SPDX-License-Identifier: Apache-2.0
#include "src/cache/stream.h"

#include <algorithm>

namespace kvgauge {
namespace {

// Leading entries that keep their place.
int64_t SamePrefix(std::span<const int32_t> kept) {
  int64_t low = 0, high = std::ssize(kept);
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    kept[static_cast<size_t>(middle)] == middle ? low = middle + 1 : high = middle;
  }
  return low;
}

// A stretch that goes while few entries before it, and more behind it, stay.
struct UpMove {
  int64_t before = 0;  // entries that move up
  int64_t gone = 0;    // by so many; 0: there is no such stretch
};

UpMove UpMoveOf(std::span<const int32_t> kept, int64_t length) {
  constexpr int64_t kFew = 8;  // they are moved as f32
  const int64_t count = std::ssize(kept), gone = length - count, before = SamePrefix(kept);
  // What stays ascends: it is one stretch if its first entry is as far behind as all that goes.
  if (before == count || kFew * before > count ||
      kept[static_cast<size_t>(before)] != before + gone) {
    return {};
  }
  return {before, gone};
}

// Indices where the device reads them; `memory` may hold them.
Tensor OnDevice(Ops& ops, std::span<const int32_t> index, Buffer* memory) {
  const Tensor host = View(index, {std::ssize(index)});
  if (ops.device == Device::kHost) return host;
  *memory = ops.memory->Allocate(host.SizeBytes());
  const Tensor device = memory->As(DType::kI32, {host.shape[0]});
  ops.memory->Copy(host, device);
  return device;
}

}  // namespace

Stream::Stream(const StreamSpec& spec, BlockPool& pool)
    : spec_(spec),
      pool_(&pool),
      ops_(&pool.ops()),
      pages_(pool),
      codes_(pool),
      outliers_(pool),
      latents_(pool),
      bases_(pool) {
  spec_.codec.dim = spec_.dim;
  spec_.codec.side = spec_.side;
}

KvFormat Stream::Format() const {
  const bool keys = spec_.side == KvSide::kKeys;
  return {.dtype = spec_.dtype,
          .key_dim = keys ? spec_.dim : 1,
          .value_dim = keys ? 1 : spec_.dim,
          .by_entry = spec_.by_entry};
}

int64_t Stream::PageBytes() const {
  return spec_.side == KvSide::kKeys ? ops_->attention->KeyPageBytes(Format())
                                     : ops_->attention->ValuePageBytes(Format());
}

KvSegment Stream::FloatSegment() const {
  KvSegment segment;
  segment.length = skip_ + length_;
  (spec_.side == KvSide::kKeys ? segment.key_pages : segment.value_pages) = pages_.data();
  return segment;
}

KvPages Stream::Pages() const {
  return {.codes = codes_.data(),
          .outliers = outliers_.data(),
          .latents = latents_.data(),
          .bases = bases_.data()};
}

KvCoded Stream::coded_pages() const {
  if (coded_ == 0) return {};
  return {.codec = &spec_.codec, .pages = Pages(), .entries = coded_};
}

Status Stream::Grow(int64_t rows) {
  const int64_t slots = skip_ + length_;
  const int64_t part_filled = slots % kKvPageEntries == 0 ? -1 : slots / kKvPageEntries;
  if (rows > 0 && part_filled >= 0 && part_filled < pages_.size()) {
    KVG_TRY(pages_.Own(part_filled));
  }
  while (pages_.size() < SlotPages(length_ + rows)) KVG_TRY(pages_.Push(PageBytes()));
  return {};
}

void Stream::Trim() { pages_.Truncate(SlotPages(length_)); }

void Stream::Write(const Tensor& rows, int64_t first) {
  const bool keys = spec_.side == KvSide::kKeys;
  Tensor one_head = rows;
  one_head.rank = 3;
  one_head.shape = {rows.shape[0], 1, spec_.dim, 0};
  one_head.stride = {rows.stride[0], spec_.dim, 1, 0};
  const KvTarget target = {.key_pages = keys ? pages_.data() : nullptr,
                           .value_pages = keys ? nullptr : pages_.data(),
                           .first_entry = SlotOf(first)};
  ops_->attention->WriteKv(Format(), keys ? one_head : Tensor(), keys ? Tensor() : one_head,
                           {&target, 1});
}

void Stream::Read(int64_t first, Tensor rows) const {
  const int64_t end = first + rows.shape[0];
  KVG_CHECK(first >= 0 && end <= length_, "entries outside the stream");
  const int64_t split = std::clamp(coded_, first, end) - first;
  if (split > 0) ops_->codecs->Decode(spec_.codec, Pages(), first, rows.Slice(0, split));
  if (split == rows.shape[0]) return;
  const Tensor floats = rows.Slice(split, rows.shape[0]);
  const bool keys = spec_.side == KvSide::kKeys;
  ops_->attention->ReadKv(Format(), FloatSegment(), SlotOf(first + split), keys ? floats : Tensor(),
                          keys ? Tensor() : floats);
}

Status Stream::Encode(const Tensor& rows, int64_t first) {
  const KvCodec& codec = spec_.codec;
  const int64_t end = first + rows.shape[0];
  Status failed;
  if (first % kKvPageEntries != 0) KVG_TRY(codes_.Own(first / kKvPageEntries));
  while (failed.ok() && codes_.size() < PagesOf(end)) {
    failed = codes_.Push(ops_->codecs->PageBytes(codec));
  }
  std::vector<Buffer> spare;  // the codec cannot stop halfway
  if (failed.ok()) {
    while (codec.has_outliers() && outliers_.size() < PagesOf(end)) outliers_.PushNull();
    while (codec.rank > 0 && latents_.size() < PagesOf(end)) latents_.PushNull();
    while (codec.rank > 0 && bases_.size() < PagesOf(end)) bases_.PushNull();
    ops_->codecs->Encode(codec, rows, first, Pages(),
                         [&](CodecOps::Block kind, int64_t page, int64_t size_bytes) -> void* {
                           BlockList& list = kind == CodecOps::Block::kOutliers  ? outliers_
                                             : kind == CodecOps::Block::kLatents ? latents_
                                                                                 : bases_;
                           const Status status = list.Put(page, size_bytes);
                           if (!status.ok()) {
                             failed = status;
                             spare.push_back(ops_->memory->Allocate(size_bytes));
                             return spare.back().data();
                           }
                           if (kind == CodecOps::Block::kBasis) {
                             for (int64_t p = page + 1; p < PagesOf(end); ++p)
                               bases_.SetShared(p, list[page]);
                           }
                           return list[page];
                         });
  }
  if (failed.ok()) return {};
  for (BlockList* list : {&codes_, &outliers_, &latents_, &bases_}) {
    list->Truncate(std::min(list->size(), PagesOf(first)));
  }
  return failed;
}

int64_t Stream::Due() const {
  const int64_t unit = spec_.rule.unit;
  return spec_.codec.coded() ? (length_ - coded_ - spec_.rule.keep_recent) / unit * unit : 0;
}

Status Stream::Seal() {
  const int64_t due = Due();
  if (due <= 0) return {};
  const Buffer memory = ops_->memory->Allocate(due * spec_.dim * 4);
  const Tensor rows = memory.As(DType::kF32, {due, spec_.dim});
  Read(coded_, rows);
  KVG_TRY(Encode(rows, coded_));
  for (int64_t p = coded_ / kKvPageEntries; p < (coded_ + due) / kKvPageEntries; ++p)
    pages_.Drop(p);
  coded_ += due;
  return {};
}

Status Stream::Extend(const Tensor& rows, int64_t coded) {
  const int64_t n = rows.shape[0], codes = std::max<int64_t>(coded - length_, 0);
  if (codes > 0) {
    KVG_TRY(Encode(rows.Slice(0, codes), length_));
    length_ += codes;
    coded_ = length_;
    while (pages_.size() < coded_ / kKvPageEntries) pages_.PushNull();
  }
  if (codes == n) return {};
  KVG_TRY(Grow(n - codes));
  Write(rows.Slice(codes, n), length_);
  Count(n - codes);
  return {};
}

Result<Stream> Stream::Gathered(std::span<const int32_t> kept, const Tensor& rows) const {
  const int64_t count = std::ssize(kept);
  int64_t same = rows.empty() ? SamePrefix(kept) : 0;  // of place and content
  if (same == length_ && skip_ == 0) return *this;
  same = skip_ > 0 ? 0 : same / kKvPageEntries * kKvPageEntries;
  const int64_t unit = spec_.codec.coded() ? SealUnit(spec_.codec) : 1;
  const auto first_float = std::lower_bound(kept.begin(), kept.end(), coded_);
  const int64_t coded = (first_float - kept.begin()) / unit * unit;
  // Units of two pages: codes of half a unit become floats again, whose pages are not those here.
  if (coded < std::min(same, coded_)) same = coded;

  Stream fresh(spec_, *pool_);
  fresh.length_ = same;
  fresh.coded_ = std::min(same, coded);
  for (int64_t p = 0; p < same / kKvPageEntries; ++p) fresh.pages_.PushShared(pages_[p]);
  const auto share = [&](const BlockList& from, BlockList& to) {
    for (int64_t p = 0; p < std::min(PagesOf(fresh.coded_), from.size()); ++p) {
      to.PushShared(from[p]);
    }
  };
  share(codes_, fresh.codes_);
  share(outliers_, fresh.outliers_);
  share(latents_, fresh.latents_);
  share(bases_, fresh.bases_);
  const int64_t moved = count - same;
  if (moved == 0) return fresh;
  if (!rows.empty()) {
    KVG_TRY(fresh.Extend(rows, coded));
    return fresh;
  }
  std::vector<int32_t> from(kept.begin() + same, kept.end());
  Buffer index_memory;
  if (coded <= same && from.front() >= coded_) {  // floats stay floats
    KVG_TRY(fresh.Grow(moved));
    for (int32_t& entry : from) entry += static_cast<int32_t>(skip_);
    const bool keys = spec_.side == KvSide::kKeys;
    ops_->attention->CopyKv(Format(), FloatSegment(), OnDevice(*ops_, from, &index_memory),
                            {.key_pages = keys ? fresh.pages_.data() : nullptr,
                             .value_pages = keys ? nullptr : fresh.pages_.data(),
                             .first_entry = same});
    fresh.Count(moved);
    return fresh;
  }
  const int64_t before_rows = length_ - same;
  const Buffer memory = ops_->memory->Allocate((before_rows + moved) * spec_.dim * 4);
  const Tensor both = memory.As(DType::kF32, {before_rows + moved, spec_.dim});
  const Tensor before = both.Slice(0, before_rows);
  const Tensor after = both.Slice(before_rows, before_rows + moved);
  Read(same, before);
  for (int32_t& entry : from) entry -= static_cast<int32_t>(same);
  ops_->select->Gather(before, OnDevice(*ops_, from, &index_memory), after);
  KVG_TRY(fresh.Extend(after, coded));
  return fresh;
}

Status Stream::OwnWhatMoves(std::span<const int32_t> kept, bool may_skip) {
  if (pages_.OwnsFrom(0)) return {};
  if (const UpMove up = may_skip ? UpMoveOf(kept, length_) : UpMove(); up.gone > 0) {
    for (int64_t p = SlotOf(up.gone) / kKvPageEntries; p < SlotPages(up.gone + up.before); ++p) {
      KVG_TRY(pages_.Own(p));
    }
    return {};
  }
  const int64_t same = SamePrefix(kept);
  return same == length_ ? Status() : pages_.OwnFrom(SlotOf(same) / kKvPageEntries);
}

Status Stream::Own(std::span<const int32_t> entries) {
  for (const int32_t entry : entries) KVG_TRY(pages_.Own(SlotOf(entry) / kKvPageEntries));
  return {};
}

std::vector<int32_t> Stream::SlotsOf(std::span<const int32_t> entries) const {
  std::vector<int32_t> slots(entries.begin(), entries.end());
  for (int32_t& slot : slots) slot += static_cast<int32_t>(skip_);
  return slots;
}

void Stream::KeepInPlace(std::span<const int32_t> kept, bool may_skip) {
  const int64_t count = std::ssize(kept);
  if (count == length_) return;
  if (const UpMove up = may_skip ? UpMoveOf(kept, length_) : UpMove(); up.gone > 0) {
    const Buffer memory = ops_->memory->Allocate(std::max<int64_t>(up.before, 1) * spec_.dim * 4);
    const Tensor rows = memory.As(DType::kF32, {up.before, spec_.dim});
    if (up.before > 0) {
      Read(0, rows);
      Write(rows, up.gone);
    }
    return Shrink(count, true);
  }
  const int64_t same = SamePrefix(kept);
  const bool keys = spec_.side == KvSide::kKeys;
  if (same < count) {
    const std::vector<int32_t> slots = SlotsOf(kept.subspan(static_cast<size_t>(same)));
    Buffer memory;
    ops_->attention->CopyKv(Format(), FloatSegment(), OnDevice(*ops_, slots, &memory),
                            {.key_pages = keys ? pages_.data() : nullptr,
                             .value_pages = keys ? nullptr : pages_.data(),
                             .first_entry = SlotOf(same)});
  }
  // What is unwritten in the last page is zero.
  const int64_t left = std::min(SlotOf(length_), SlotPages(count) * kKvPageEntries) - SlotOf(count);
  if (left > 0) {
    const Buffer zeros = ops_->memory->Allocate(left * spec_.dim * 4);
    Write(zeros.As(DType::kF32, {left, spec_.dim}), count);
  }
  Shrink(count, false);
}

void Stream::Shrink(int64_t count, bool up) {
  if (up) skip_ += length_ - count;
  length_ = count;
  if (!up) return Trim();
  pages_.DropFront(skip_ / kKvPageEntries);
  skip_ %= kKvPageEntries;
}

void Stream::ReadEntries(std::span<const int32_t> index, Tensor rows) const {
  const bool keys = spec_.side == KvSide::kKeys;
  const std::vector<int32_t> slots = SlotsOf(index);
  Buffer memory;
  ops_->attention->GatherKv(Format(), FloatSegment(), OnDevice(*ops_, slots, &memory),
                            keys ? rows : Tensor(), keys ? Tensor() : rows);
}

void Stream::WriteEntries(const Tensor& rows, std::span<const int32_t> index) {
  bool neighbours = !index.empty();
  for (size_t i = 1; i < index.size(); ++i) neighbours &= index[i] == index[i - 1] + 1;
  if (neighbours) return Write(rows, index.front());
  // One row of as many heads as there are entries, each with a place of its own.
  const Tensor heads = rows.Reshape({1, rows.shape[0], rows.shape[1]});
  const bool keys = spec_.side == KvSide::kKeys;
  std::vector<KvTarget> targets;
  for (const int32_t entry : index) {
    targets.push_back({.key_pages = keys ? pages_.data() : nullptr,
                       .value_pages = keys ? nullptr : pages_.data(),
                       .first_entry = SlotOf(entry)});
  }
  ops_->attention->WriteKv(Format(), keys ? heads : Tensor(), keys ? Tensor() : heads, targets);
}

Status Stream::Append(const Tensor& rows) { return Extend(rows, 0); }

void Stream::AddBytes(KvBytes& bytes) const {
  KvCodec plain = spec_.codec;
  plain.rank = 0;
  KvBytes mine;
  if (coded_ > 0) mine = CodedBytes(plain, coded_);
  mine.payload += (length_ - coded_) * spec_.dim * SizeOf(spec_.dtype);
  for (int64_t p = 0; p < outliers_.size(); ++p) {
    if (outliers_[p] == nullptr) continue;
    mine.outliers += ops_->codecs->OutlierBytes(ops_->codecs->OutlierCount(outliers_[p]));
  }
  const int64_t rank_bytes = spec_.codec.rank * SizeOf(DType::kF16);
  if (rank_bytes > 0) mine.low_rank += coded_ * rank_bytes;
  for (int64_t p = 0; p < bases_.size(); ++p) {
    if (p == 0 || bases_[p] != bases_[p - 1]) mine.low_rank += spec_.dim * rank_bytes;
  }
  int64_t allocated = 0;
  for (const BlockList* list : {&pages_, &codes_, &outliers_, &latents_, &bases_}) {
    allocated += list->allocated_bytes();
  }
  mine.slack = allocated - mine.logical();
  bytes += mine;
}

Status Stream::Place(int64_t first, int64_t last, BlockMoves* moves) {
  const int64_t first_page = PagesOf(SlotOf(std::max<int64_t>(first, 0)));
  const int64_t end_page = SlotOf(std::min(last, length_)) / kKvPageEntries;
  KVG_TRY(pages_.Place(first_page, end_page, moves));
  return codes_.Place(first_page, end_page, moves);
}

double Stream::BytesOf(int64_t first, int64_t last) const {
  const int64_t entry_bytes = spec_.dim * SizeOf(spec_.dtype);
  const int64_t in_codes = std::max<int64_t>(std::min(last, coded_) - first, 0);
  auto bytes = static_cast<double>((last - first - in_codes) * entry_bytes);
  if (in_codes == 0) return bytes;
  KvBytes all;
  AddBytes(all);
  const auto codes = static_cast<double>(all.logical() - (length_ - coded_) * entry_bytes);
  return bytes + codes * static_cast<double>(in_codes) / static_cast<double>(coded_);
}

}  // namespace kvgauge
