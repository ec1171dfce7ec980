// SPDX-License-Identifier: Apache-2.0
#include "src/parquet/value_decoders.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvgauge::parquet {
namespace {

// Lengths of a page's texts are decoded before the texts.
constexpr uint64_t kMostLengths = uint64_t{1} << 24;

std::optional<uint64_t> ReadVarint(Bytes bytes, size_t* at) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (*at == bytes.size()) return std::nullopt;
    const uint8_t byte = bytes[(*at)++];
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  return std::nullopt;
}

template <class T>
T LoadAs(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

std::string_view TextOf(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Bytes of a value of fixed size; 0 for the others.
size_t FixedBytes(const Node& leaf) {
  switch (leaf.physical) {
    case Physical::kInt32:
    case Physical::kFloat:
      return 4;
    case Physical::kInt64:
    case Physical::kDouble:
      return 8;
    case Physical::kInt96:
      return 12;
    case Physical::kFixedBytes:
      return static_cast<size_t>(leaf.width);
    case Physical::kBoolean:
    case Physical::kByteArray:
      return 0;
  }
  return 0;
}

// The value at `from`, of FixedBytes(leaf) bytes.
void LoadFixed(const Node& leaf, const uint8_t* from, Value* value) {
  switch (leaf.physical) {
    case Physical::kInt32:
      value->integer = LoadAs<int32_t>(from);
      break;
    case Physical::kInt64:
      value->integer = LoadAs<int64_t>(from);
      break;
    case Physical::kFloat:
      value->real = LoadAs<float>(from);
      break;
    case Physical::kDouble:
      value->real = LoadAs<double>(from);
      break;
    default:
      value->text = TextOf({from, FixedBytes(leaf)});
  }
}

class PlainDecoder final : public ValueDecoder {
 public:
  PlainDecoder(const Node& leaf, Bytes bytes) : leaf_(leaf), bytes_(bytes) {}

  bool Next(Value* value) override {
    if (leaf_.physical == Physical::kBoolean) {
      if (at_ / 8 >= bytes_.size()) return false;
      value->integer = (bytes_[at_ / 8] >> (at_ % 8)) & 1;
      ++at_;
      return true;
    }
    size_t size = FixedBytes(leaf_);
    const bool counted = leaf_.physical == Physical::kByteArray;
    if (counted) {
      if (bytes_.size() - at_ < 4) return false;
      size = LoadAs<uint32_t>(bytes_.data() + at_);
      at_ += 4;
    }
    if (bytes_.size() - at_ < size) return false;
    if (counted) {
      value->text = TextOf(bytes_.subspan(at_, size));
    } else {
      LoadFixed(leaf_, bytes_.data() + at_, value);
    }
    at_ += size;
    return true;
  }

 private:
  const Node& leaf_;
  Bytes bytes_;
  size_t at_ = 0;  // bytes; bits of booleans
};

class IndexedDecoder final : public ValueDecoder {
 public:
  IndexedDecoder(Bytes bytes, int32_t width, const Dictionary& dictionary)
      : indices_(bytes, width), dictionary_(dictionary) {}

  bool Next(Value* value) override {
    const std::optional<uint32_t> index = indices_.Next();
    const Value* found = index ? dictionary_.At(*index) : nullptr;
    if (found == nullptr) return false;
    *value = *found;
    return true;
  }

 private:
  HybridDecoder indices_;
  const Dictionary& dictionary_;
};

class RunsOfBooleans final : public ValueDecoder {
 public:
  explicit RunsOfBooleans(Bytes bytes) : bits_(bytes, 1) {}
  bool Next(Value* value) override {
    const std::optional<uint32_t> bit = bits_.Next();
    if (bit) value->integer = *bit;
    return bit.has_value();
  }

 private:
  HybridDecoder bits_;
};

class DeltaInts final : public ValueDecoder {
 public:
  DeltaInts(Bytes bytes, bool narrow) : deltas_(bytes), narrow_(narrow) {}
  bool Next(Value* value) override {
    const std::optional<int64_t> next = deltas_.Next();
    if (next) value->integer = narrow_ ? static_cast<int32_t>(*next) : *next;
    return next.has_value();
  }

 private:
  DeltaDecoder deltas_;
  bool narrow_;
};

// All lengths, then all texts.
class CountedTexts {
 public:
  CountedTexts(Bytes bytes, int64_t most) {
    DeltaDecoder lengths(bytes);
    if (!lengths.ok() || lengths.count() > static_cast<uint64_t>(most) ||
        lengths.count() > kMostLengths) {
      return;
    }
    while (lengths_.size() < lengths.count()) {
      const std::optional<int64_t> length = lengths.Next();
      if (!length || *length < 0) {
        lengths_.clear();
        return;
      }
      lengths_.push_back(static_cast<uint64_t>(*length));
    }
    texts_ = bytes.subspan(lengths.end());
  }

  bool Next(std::string_view* text) {
    if (given_ == lengths_.size() || lengths_[given_] > texts_.size() - at_) return false;
    *text = TextOf(texts_.subspan(at_, lengths_[given_]));
    at_ += lengths_[given_++];
    return true;
  }

 private:
  std::vector<uint64_t> lengths_;
  Bytes texts_;
  size_t given_ = 0, at_ = 0;
};

class DeltaLengthTexts final : public ValueDecoder {
 public:
  DeltaLengthTexts(Bytes bytes, int64_t count) : texts_(bytes, count) {}
  bool Next(Value* value) override { return texts_.Next(&value->text); }

 private:
  CountedTexts texts_;
};

// Each text shares a beginning with the one before it.
class DeltaTexts final : public ValueDecoder {
 public:
  DeltaTexts(Bytes bytes, int64_t count) {
    DeltaDecoder lengths(bytes);
    if (!lengths.ok() || lengths.count() > static_cast<uint64_t>(count) ||
        lengths.count() > kMostLengths) {
      return;
    }
    while (shared_.size() < lengths.count()) {
      const std::optional<int64_t> length = lengths.Next();
      if (!length || *length < 0) {
        shared_.clear();
        return;
      }
      shared_.push_back(static_cast<uint64_t>(*length));
    }
    rests_.emplace(bytes.subspan(lengths.end()), count);
  }

  bool Next(Value* value) override {
    std::string_view rest;
    if (given_ == shared_.size() || shared_[given_] > text_.size() || !rests_->Next(&rest)) {
      return false;
    }
    text_.resize(shared_[given_++]);
    text_.append(rest);
    value->text = text_;
    return true;
  }

 private:
  std::vector<uint64_t> shared_;
  std::optional<CountedTexts> rests_;
  size_t given_ = 0;
  std::string text_;
};

// The first bytes of all values, then the second ones, and so on.
class SplitDecoder final : public ValueDecoder {
 public:
  SplitDecoder(const Node& leaf, Bytes bytes)
      : leaf_(leaf), bytes_(bytes), count_(bytes.size() / FixedBytes(leaf)) {
    value_.resize(FixedBytes(leaf));
  }
  bool Next(Value* value) override {
    if (given_ == count_) return false;
    for (size_t i = 0; i < value_.size(); ++i) value_[i] = bytes_[i * count_ + given_];
    ++given_;
    LoadFixed(leaf_, value_.data(), value);
    return true;
  }

 private:
  const Node& leaf_;
  Bytes bytes_;
  size_t count_, given_ = 0;
  std::vector<uint8_t> value_;
};

}  // namespace

uint64_t ReadBits(Bytes bytes, uint64_t first_bit, int32_t width) {
  uint64_t value = 0;
  for (int32_t have = 0; have < width;) {
    const uint64_t bit = first_bit + static_cast<uint64_t>(have);
    const auto offset = static_cast<int32_t>(bit % 8);
    const int32_t take = std::min(8 - offset, width - have);
    const uint64_t piece = (bytes[bit / 8] >> offset) & ((1u << take) - 1);
    value |= piece << have;
    have += take;
  }
  return value;
}

bool HybridDecoder::NextRun() {
  const std::optional<uint64_t> head = ReadVarint(bytes_, &at_);
  if (!head) return false;
  packed_ = (*head & 1) != 0;
  left_ = *head >> 1;
  if (packed_) {
    // Groups of eight values; the last one may be cut where the page needs no more of it.
    if (left_ > (uint64_t{1} << 56)) return false;
    const uint64_t room = static_cast<uint64_t>(bytes_.size() - at_) * 8;
    const uint64_t fit = width_ == 0 ? left_ * 8 : room / static_cast<uint64_t>(width_);
    left_ = std::min(left_ * 8, fit);
    packed_at_ = at_;
    bit_ = 0;
    at_ += std::min<size_t>(bytes_.size() - at_, (left_ * static_cast<uint64_t>(width_) + 7) / 8);
    return left_ > 0;
  }
  const auto size = static_cast<size_t>((width_ + 7) / 8);
  if (bytes_.size() - at_ < size || left_ == 0) return false;
  value_ = 0;
  for (size_t i = 0; i < size; ++i) value_ |= static_cast<uint32_t>(bytes_[at_ + i]) << (8 * i);
  at_ += size;
  return true;
}

std::optional<uint32_t> HybridDecoder::Next() {
  if (left_ == 0 && !NextRun()) return std::nullopt;
  --left_;
  if (!packed_) return value_;
  const auto value = static_cast<uint32_t>(ReadBits(bytes_.subspan(packed_at_), bit_, width_));
  bit_ += static_cast<uint64_t>(width_);
  return value;
}

DeltaDecoder::DeltaDecoder(Bytes bytes) : bytes_(bytes) {
  const std::optional<uint64_t> block = Varint(), miniblocks = Varint(), count = Varint(),
                                first = Varint();
  if (!block || !miniblocks || !count || !first || *miniblocks == 0 || *miniblocks > *block ||
      *block > (uint64_t{1} << 32) || *block % *miniblocks != 0) {
    return;
  }
  block_values_ = *block;
  miniblocks_ = *miniblocks;
  per_miniblock_ = *block / *miniblocks;
  // Rows of 32 values end at a byte whatever their width is.
  if (per_miniblock_ % 8 != 0) return;
  count_ = *count;
  last_ = (*first >> 1) ^ (uint64_t{0} - (*first & 1));
  miniblock_ = miniblocks_;
  in_miniblock_ = per_miniblock_;
  failed_ = false;
}

std::optional<uint64_t> DeltaDecoder::Varint() { return ReadVarint(bytes_, &at_); }

bool DeltaDecoder::NextBlock() {
  const std::optional<uint64_t> least = Varint();
  if (!least || bytes_.size() - at_ < miniblocks_) return false;
  least_ = (*least >> 1) ^ (uint64_t{0} - (*least & 1));
  widths_ = bytes_.subspan(at_, miniblocks_);
  at_ += miniblocks_;
  miniblock_ = 0;
  return true;
}

bool DeltaDecoder::NextMiniblock() {
  if (miniblock_ == miniblocks_ && !NextBlock()) return false;
  width_ = widths_[miniblock_++];
  if (width_ > 64) return false;
  // A miniblock is whole even where fewer values are left; the last one of a page may be cut.
  const uint64_t whole = per_miniblock_ / 8 * static_cast<uint64_t>(width_);
  const uint64_t left = std::min(per_miniblock_, count_ - given_);
  const uint64_t needed = (left * static_cast<uint64_t>(width_) + 7) / 8;
  if (bytes_.size() - at_ < needed) return false;
  packed_at_ = at_;
  at_ += std::min<uint64_t>(whole, bytes_.size() - at_);
  in_miniblock_ = 0;
  return true;
}

std::optional<int64_t> DeltaDecoder::Next() {
  if (failed_ || given_ == count_) return std::nullopt;
  if (given_ > 0) {
    if (in_miniblock_ == per_miniblock_ && !NextMiniblock()) {
      failed_ = true;
      return std::nullopt;
    }
    const uint64_t delta =
        ReadBits(bytes_.subspan(packed_at_), in_miniblock_ * static_cast<uint64_t>(width_), width_);
    last_ += least_ + delta;  // wraps, as the format says
    ++in_miniblock_;
  }
  ++given_;
  return static_cast<int64_t>(last_);
}

std::optional<Dictionary> Dictionary::Read(const Node& leaf, Bytes bytes, int64_t count) {
  if (leaf.physical == Physical::kBoolean || count < 0) return std::nullopt;
  // Each value takes bytes, so that a lying count ends early.
  Dictionary out;
  PlainDecoder values(leaf, bytes);
  for (int64_t i = 0; i < count; ++i) {
    Value value;
    if (!values.Next(&value)) return std::nullopt;
    out.values_.push_back(value);
  }
  return out;
}

std::unique_ptr<ValueDecoder> MakeValueDecoder(const Node& leaf, Encoding encoding, Bytes bytes,
                                               int64_t count, const Dictionary* dictionary) {
  const bool integer = leaf.physical == Physical::kInt32 || leaf.physical == Physical::kInt64;
  const bool texts = leaf.physical == Physical::kByteArray;
  switch (encoding) {
    case Encoding::kPlain:
      return std::make_unique<PlainDecoder>(leaf, bytes);
    case Encoding::kPlainDictionary:
    case Encoding::kRleDictionary: {
      if (dictionary == nullptr) return nullptr;
      // A page of nulls alone may have no bytes at all.
      const int32_t width = bytes.empty() ? 0 : bytes[0];
      if (width > 32) return nullptr;
      return std::make_unique<IndexedDecoder>(bytes.empty() ? bytes : bytes.subspan(1), width,
                                              *dictionary);
    }
    case Encoding::kRle: {
      if (leaf.physical != Physical::kBoolean || bytes.size() < 4) return nullptr;
      const size_t size = LoadAs<uint32_t>(bytes.data());
      if (size > bytes.size() - 4) return nullptr;
      return std::make_unique<RunsOfBooleans>(bytes.subspan(4, size));
    }
    case Encoding::kDeltaBinaryPacked:
      if (!integer) return nullptr;
      return std::make_unique<DeltaInts>(bytes, leaf.physical == Physical::kInt32);
    case Encoding::kDeltaLengthByteArray:
      if (!texts) return nullptr;
      return std::make_unique<DeltaLengthTexts>(bytes, count);
    case Encoding::kDeltaByteArray:
      if (!texts && leaf.physical != Physical::kFixedBytes) return nullptr;
      return std::make_unique<DeltaTexts>(bytes, count);
    case Encoding::kByteStreamSplit:
      if (FixedBytes(leaf) == 0) return nullptr;
      return std::make_unique<SplitDecoder>(leaf, bytes);
    case Encoding::kBitPacked:
      return nullptr;
  }
  return nullptr;
}

}  // namespace kvgauge::parquet
