// SPDX-License-Identifier: Apache-2.0
// A stream as bytes: float entries in their dtype, coded pages as the backend lays them out.
#include <algorithm>

#include "src/cache/bytes.h"
#include "src/cache/stream.h"

namespace kvgauge {
namespace {

void PutBlock(Ops& ops, const void* block, int64_t size_bytes, std::string& out) {
  const size_t at = out.size();
  out.resize(at + static_cast<size_t>(size_bytes));
  const Device device = ops.device;
  ops.memory->Copy(Tensor(const_cast<void*>(block), DType::kU8, {size_bytes}, device),
                   Tensor(out.data() + at, DType::kU8, {size_bytes}));
}

}  // namespace

void Stream::PutFloats(std::string& out) const {
  const int64_t n = length_ - coded_, dim = spec_.dim;
  if (n == 0) return;
  const int64_t size_bytes = n * dim * SizeOf(spec_.dtype);
  const Buffer memory = ops_->memory->Allocate(n * dim * 4 + size_bytes);
  const Tensor wide = memory.As(DType::kF32, {n, dim});
  const Tensor narrow(static_cast<char*>(memory.data()) + n * dim * 4, spec_.dtype, {n, dim},
                      wide.device);
  Read(coded_, wide);
  ops_->rows->Convert(wide, narrow);
  PutBlock(*ops_, narrow.data, size_bytes, out);
}

Status Stream::TakeFloats(std::string_view& in, int64_t count) {
  if (count == 0) return {};
  const int64_t dim = spec_.dim, size_bytes = count * dim * SizeOf(spec_.dtype);
  const Buffer memory = ops_->memory->Allocate(count * dim * 4 + size_bytes);
  const Tensor wide = memory.As(DType::kF32, {count, dim});
  const Tensor narrow(static_cast<char*>(memory.data()) + count * dim * 4, spec_.dtype,
                      {count, dim}, wide.device);
  KVG_TRY(TakeBlock(in, narrow.data, size_bytes));
  ops_->rows->Convert(narrow, wide);
  return Append(wide);
}

Status Stream::TakeBlock(std::string_view& in, void* block, int64_t size_bytes) {
  KVG_TRY(CheckLeft(in, size_bytes, 1));
  std::vector<char> host(in.begin(), in.begin() + size_bytes);
  in.remove_prefix(static_cast<size_t>(size_bytes));
  ops_->memory->Copy(Tensor(host.data(), DType::kU8, {size_bytes}),
                     Tensor(block, DType::kU8, {size_bytes}, ops_->device));
  ops_->memory->Synchronize();
  return {};
}

// Blocks of a side-car: 0: none, 1: one follows, 2: that of the page before.
void Stream::PutSide(const BlockList& list, int64_t size_bytes, std::string& out) const {
  PutNumber(out, list.size());
  for (int64_t p = 0; p < list.size(); ++p) {
    const bool same = p > 0 && list[p] == list[p - 1] && list[p] != nullptr;
    PutNumber(out, list[p] == nullptr ? 0 : same ? 2 : 1);
    if (list[p] == nullptr || same) continue;
    const bool outliers = &list == &outliers_;
    const int64_t count = outliers ? ops_->codecs->OutlierCount(list[p]) : 0;
    if (outliers) PutNumber(out, count);
    PutBlock(*ops_, list[p], outliers ? ops_->codecs->OutlierBytes(count) : size_bytes, out);
  }
}

Status Stream::TakeSide(std::string_view& in, int64_t size_bytes, BlockList& list) {
  int64_t pages = 0;
  KVG_TRY(TakeNumber(in, "pages of a side-car", 0, PagesOf(coded_), &pages));
  for (int64_t p = 0; p < pages; ++p) {
    int64_t kind = 0, count = 0;
    KVG_TRY(TakeNumber(in, "kind of a block", 0, p > 0 ? 2 : 1, &kind));
    list.PushNull();
    if (kind == 2) {
      if (list[p - 1] == nullptr) {
        return BadInput(StrCat("cache bytes: page ", p, " shares the block of page ", p - 1,
                               ", which has none; expected kind 0 or 1"));
      }
      list.SetShared(p, list[p - 1]);
    }
    if (kind != 1) continue;
    if (&list == &outliers_) {
      KVG_TRY(TakeNumber(in, "outliers", 0, kKvPageEntries * spec_.dim, &count));
      size_bytes = ops_->codecs->OutlierBytes(count);
      KVG_TRY(CheckOutliers(in, count));
    }
    KVG_TRY(CheckLeft(in, size_bytes, 1));
    KVG_TRY(list.Put(p, size_bytes));
    KVG_TRY(TakeBlock(in, list[p], size_bytes));
  }
  return {};
}

// A block that follows: its own count, and places that ascend within the page.
Status Stream::CheckOutliers(std::string_view in, int64_t count) const {
  uint32_t own = 0;
  KVG_TRY(TakeBytes(in, std::span<uint32_t>(&own, 1)));
  std::vector<uint16_t> pairs(static_cast<size_t>(2 * count));  // place, value
  KVG_TRY(TakeBytes(in, std::span<uint16_t>(pairs)));
  int64_t before = -1;
  bool ascending = true;
  for (size_t i = 0; i < pairs.size(); i += 2) {
    ascending = ascending && pairs[i] > before;
    before = pairs[i];
  }
  const bool inside = before < kKvPageEntries * spec_.dim;
  if (own == count && ascending && inside) return {};
  return BadInput(StrCat("cache bytes: a page claims ", count, " outliers, its block ", own,
                         ", and the last stands at ", before,
                         "; expected two equal counts, and places that ascend below ",
                         kKvPageEntries * spec_.dim));
}

void Stream::Serialize(std::string& out) const {
  PutNumber(out, length_);
  PutNumber(out, coded_);
  PutNumber(out, skip_);
  PutNumber(out, pages_.size());
  if (coded_ > 0) {
    PutArray(out, std::vector<char>(ops_->backend.begin(), ops_->backend.end()));
    const int64_t rank_bytes = spec_.codec.rank * SizeOf(DType::kF16);
    for (int64_t p = 0; p < PagesOf(coded_); ++p) {
      PutBlock(*ops_, codes_[p], ops_->codecs->PageBytes(spec_.codec), out);
    }
    PutSide(outliers_, 0, out);
    PutSide(latents_, kKvPageEntries * rank_bytes, out);
    PutSide(bases_, spec_.dim * rank_bytes, out);
  }
  PutFloats(out);
}

Status Stream::Deserialize(std::string_view& in) {
  KVG_CHECK(length_ == 0 && pages_.size() == 0, "only an empty stream can be filled");
  const KvCodec& codec = spec_.codec;
  int64_t length = 0, coded = 0, skip = 0, pages = 0;
  KVG_TRY(TakeNumber(in, "entries of a stream", 0, INT32_MAX, &length));
  KVG_TRY(TakeNumber(in, "coded entries", 0, codec.coded() ? length : 0, &coded));
  KVG_TRY(TakeNumber(in, "skipped slots", 0, codec.coded() || length == 0 ? 0 : kKvPageEntries - 1,
                     &skip));
  KVG_TRY(TakeNumber(in, "pages", 0, PagesOf(skip + length), &pages));
  if (coded > 0) {
    if (coded % SealUnit(codec) != 0) {
      return BadInput(StrCat("cache bytes: ", coded, " coded entries; expected a multiple of ",
                             SealUnit(codec)));
    }
    std::vector<char> backend;
    KVG_TRY(TakeArray(in, &backend));
    const std::string_view theirs(backend.data(), backend.size());
    if (theirs != ops_->backend) {
      return BadInput(StrCat("cache bytes: pages of backend ", Quoted(theirs), ", which ",
                             ops_->backend, " cannot read; go on with that backend"));
    }
    const int64_t page_bytes = ops_->codecs->PageBytes(codec);
    KVG_TRY(CheckLeft(in, PagesOf(coded), page_bytes));
    for (int64_t p = 0; p < PagesOf(coded); ++p) {
      KVG_TRY(codes_.Push(page_bytes));
      KVG_TRY(TakeBlock(in, codes_[p], page_bytes));
    }
    length_ = coded_ = coded;
    const int64_t rank_bytes = codec.rank * SizeOf(DType::kF16);
    KVG_TRY(TakeSide(in, 0, outliers_));
    KVG_TRY(TakeSide(in, kKvPageEntries * rank_bytes, latents_));
    KVG_TRY(TakeSide(in, spec_.dim * rank_bytes, bases_));
    const auto whole = [&](const BlockList& list) {
      return list.size() == PagesOf(coded) && std::find(list.data(), list.data() + list.size(),
                                                        nullptr) == list.data() + list.size();
    };
    if (codec.rank > 0 && (!whole(latents_) || !whole(bases_))) {
      return BadInput(StrCat("cache bytes: ", latents_.size(), " and ", bases_.size(),
                             " blocks of corrections, or empty ones; expected ", PagesOf(coded),
                             " of both"));
    }
    const bool given = outliers_.size() > 0;
    if (given != codec.has_outliers() || (given && outliers_.size() != PagesOf(coded))) {
      return BadInput(StrCat("cache bytes: ", outliers_.size(), " pages of outliers; expected ",
                             codec.has_outliers() ? PagesOf(coded) : 0));
    }
    while (pages_.size() < coded / kKvPageEntries) pages_.PushNull();
  }
  KVG_TRY(CheckLeft(in, length - coded, spec_.dim * SizeOf(spec_.dtype)));
  skip_ = skip;
  KVG_TRY(TakeFloats(in, length - coded));
  while (pages_.size() < pages) KVG_TRY(pages_.Push(PageBytes()));
  return {};
}

}  // namespace kvgauge
