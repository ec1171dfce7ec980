// SPDX-License-Identifier: Apache-2.0
#include "src/parquet/column.h"

#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/strings.h"
#include "src/parquet/compact.h"

namespace kvgauge::parquet {
namespace {

// Headers hold a page's least and largest value, which writers cut.
constexpr int64_t kFirstHeaderBytes = 256, kMostHeaderBytes = int64_t{16} << 20;

enum PageType : int64_t { kDataPage = 0, kIndexPage = 1, kDictionaryPage = 2, kDataPageV2 = 3 };

bool Inflate(std::span<const uint8_t> packed, std::vector<uint8_t>& into) {
  z_stream stream = {};
  constexpr int kAnyHeader = 15 + 32;  // of zlib or gzip
  if (inflateInit2(&stream, kAnyHeader) != Z_OK) return false;
  stream.next_in = const_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = into.data();
  stream.avail_out = static_cast<uInt>(into.size());
  const int end = inflate(&stream, Z_FINISH);
  const bool whole = end == Z_STREAM_END && stream.avail_out == 0;
  inflateEnd(&stream);
  return whole;
}

}  // namespace

struct ColumnReader::PageHeader {
  int64_t type = -1, unpacked = -1, packed = -1, count = -1, encoding = -1;
  int64_t definition_encoding = -1, repetition_encoding = -1;
  int64_t definition_bytes = 0, repetition_bytes = 0;  // of version 2
  bool compressed = true;
  std::optional<uint32_t> crc;
  int64_t header_bytes = 0;
};

ColumnReader::ColumnReader(std::FILE* file, std::string path, std::string name, const Node& leaf,
                           const ColumnChunk& chunk, int64_t max_page_bytes)
    : file_(file),
      path_(std::move(path)),
      name_(std::move(name)),
      leaf_(leaf),
      chunk_(chunk),
      max_page_bytes_(max_page_bytes),
      at_(chunk.first_byte),
      end_(chunk.first_byte + chunk.bytes),
      values_left_(chunk.values) {}

Error ColumnReader::Wrong(std::string_view what) const {
  return BadInput(StrCat(path_, ": column ", Quoted(name_), " ", what));
}

Status ColumnReader::ReadBytes(int64_t at, std::vector<uint8_t>& into) const {
  if (fseeko(file_, at, SEEK_SET) != 0 ||
      std::fread(into.data(), 1, into.size(), file_) != into.size()) {
    return IoError(StrCat(path_, ": cannot read ", into.size(), " bytes from byte ", at));
  }
  return {};
}

Result<ColumnReader::PageHeader> ColumnReader::ReadHeader() {
  for (int64_t size = kFirstHeaderBytes;; size *= 8) {
    std::vector<uint8_t> bytes(static_cast<size_t>(std::min(size, end_ - at_)));
    KVG_TRY(ReadBytes(at_, bytes));
    CompactReader in(bytes);
    PageHeader out;
    const auto read_data = [&](Wire wire, PageType type) {
      const bool first = type == kDataPage, second = type == kDataPageV2;
      in.Struct(wire);
      for (CompactReader::Field field; in.Next(&field);) {
        // All three begin with the count. Version 2 counts nulls and rows before the encoding.
        if (field.id == 1) {
          out.count = in.Int(field.wire);
        } else if (field.id == (second ? 4 : 2)) {
          out.encoding = in.Int(field.wire);
        } else if (field.id == 3 && first) {
          out.definition_encoding = in.Int(field.wire);
        } else if (field.id == 4 && first) {
          out.repetition_encoding = in.Int(field.wire);
        } else if (field.id == 5 && second) {
          out.definition_bytes = in.Int(field.wire);
        } else if (field.id == 6 && second) {
          out.repetition_bytes = in.Int(field.wire);
        } else if (field.id == 7 && second) {
          out.compressed = in.Bool(field.wire);
        } else {
          in.Skip(field.wire);
        }
      }
    };
    for (CompactReader::Field field; in.Next(&field);) {
      switch (field.id) {
        case 1:
          out.type = in.Int(field.wire);
          break;
        case 2:
          out.unpacked = in.Int(field.wire);
          break;
        case 3:
          out.packed = in.Int(field.wire);
          break;
        case 4:
          out.crc = static_cast<uint32_t>(in.Int(field.wire));
          break;
        case 5:
          read_data(field.wire, kDataPage);
          break;
        case 7:
          read_data(field.wire, kDictionaryPage);
          break;
        case 8:
          read_data(field.wire, kDataPageV2);
          break;
        default:
          in.Skip(field.wire);
      }
    }
    if (in.ok()) {
      out.header_bytes = static_cast<int64_t>(in.at());
      return out;
    }
    if (!in.cut() || size >= end_ - at_ || size >= kMostHeaderBytes) {
      return Wrong(StrCat("has a page at byte ", at_, " whose header cannot be read"));
    }
  }
}

Status ColumnReader::Unpack(std::vector<uint8_t>&& packed, int64_t size,
                            std::vector<uint8_t>& into) const {
  if (chunk_.codec == Codec::kNone) {
    if (static_cast<int64_t>(packed.size()) != size) {
      return Wrong(StrCat("has a page of ", packed.size(), " bytes that says ", size));
    }
    into = std::move(packed);
    return {};
  }
  into.resize(static_cast<size_t>(size));
  if (size == 0 && packed.empty()) return {};
  bool whole = false;
  if (chunk_.codec == Codec::kSnappy) {
    const auto* from = reinterpret_cast<const char*>(packed.data());
    size_t length = 0;
    whole = snappy_uncompressed_length(from, packed.size(), &length) == SNAPPY_OK &&
            length == into.size() &&
            snappy_uncompress(from, packed.size(), reinterpret_cast<char*>(into.data()), &length) ==
                SNAPPY_OK;
  } else if (chunk_.codec == Codec::kZstd) {
    whole = ZSTD_decompress(into.data(), into.size(), packed.data(), packed.size()) == into.size();
  } else {
    whole = Inflate(packed, into);
  }
  if (!whole) return Wrong(StrCat("has a page before byte ", at_, " that cannot be unpacked"));
  return {};
}

// Levels of version 1 have their length before them.
Result<HybridDecoder> ColumnReader::LevelsOf(Bytes& bytes, int32_t most, int64_t encoding) const {
  if (most == 0) return HybridDecoder();
  if (encoding != static_cast<int64_t>(Encoding::kRle)) {
    return Wrong(StrCat("has levels in encoding ", encoding, "; runs (3) are read"));
  }
  uint32_t size = 0;
  if (bytes.size() >= 4) std::memcpy(&size, bytes.data(), 4);
  if (bytes.size() < 4 || size > bytes.size() - 4) {
    return Wrong("has levels that reach over the end of their page");
  }
  const HybridDecoder levels(bytes.subspan(4, size),
                             static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(most))));
  bytes = bytes.subspan(4 + size_t{size});
  return levels;
}

Status ColumnReader::BeginData(const PageHeader& header, std::vector<uint8_t>&& packed) {
  if (header.count < 0 || header.count > values_left_) {
    return Wrong(
        StrCat("has a page of ", header.count, " values where ", values_left_, " are left"));
  }
  const int32_t definition = leaf_.definition, repetition = leaf_.repetition;
  const auto width = [](int32_t most) {
    return static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(most)));
  };
  Bytes bytes;
  if (header.type == kDataPageV2) {
    // Levels come first and are never packed.
    const int64_t levels = header.repetition_bytes + header.definition_bytes;
    if (header.repetition_bytes < 0 || header.definition_bytes < 0 ||
        levels > static_cast<int64_t>(packed.size()) || levels > header.unpacked) {
      return Wrong("has levels that reach over the end of their page");
    }
    const std::vector<uint8_t> head(packed.begin(), packed.begin() + levels);
    packed.erase(packed.begin(), packed.begin() + levels);
    if (header.compressed) {
      KVG_TRY(Unpack(std::move(packed), header.unpacked - levels, page_));
    } else {
      page_ = std::move(packed);
    }
    page_.insert(page_.begin(), head.begin(), head.end());
    bytes = page_;
    const auto first = static_cast<size_t>(header.repetition_bytes);
    repetitions_ = HybridDecoder(bytes.first(first), width(repetition));
    definitions_ = HybridDecoder(bytes.subspan(first, static_cast<size_t>(header.definition_bytes)),
                                 width(definition));
    bytes = bytes.subspan(static_cast<size_t>(levels));
  } else {
    KVG_TRY(Unpack(std::move(packed), header.unpacked, page_));
    bytes = page_;
    KVG_ASSIGN(repetitions_, LevelsOf(bytes, repetition, header.repetition_encoding));
    KVG_ASSIGN(definitions_, LevelsOf(bytes, definition, header.definition_encoding));
  }
  values_ = MakeValueDecoder(leaf_, static_cast<Encoding>(header.encoding), bytes, header.count,
                             dictionary_ ? &*dictionary_ : nullptr);
  if (values_ == nullptr) {
    return Wrong(StrCat("has a page in encoding ", header.encoding,
                        ", which its type does not have or whose dictionary is missing"));
  }
  page_left_ = header.count;
  return {};
}

Status ColumnReader::NextPage() {
  while (page_left_ == 0) {
    if (at_ >= end_) {
      return Wrong(StrCat("ends with ", values_left_, " of ", chunk_.values, " values to come"));
    }
    KVG_ASSIGN(const PageHeader header, ReadHeader());
    at_ += header.header_bytes;
    if (header.packed < 0 || header.unpacked < 0 || header.packed > end_ - at_) {
      return Wrong(StrCat("has a page of ", header.packed, " bytes at byte ", at_,
                          ", over the end of ", "its column"));
    }
    if (std::max(header.unpacked, header.packed) > max_page_bytes_) {
      return ResourceError(StrCat(path_, ": column ", Quoted(name_), " has a page of ",
                                  HumanBytes(std::max(header.unpacked, header.packed)),
                                  "; pages up to ", HumanBytes(max_page_bytes_), " are read"));
    }
    std::vector<uint8_t> packed(static_cast<size_t>(header.packed));
    KVG_TRY(ReadBytes(at_, packed));
    at_ += header.packed;
    if (header.crc && crc32(0, packed.data(), static_cast<uInt>(packed.size())) != *header.crc) {
      return Wrong(StrCat("has a page before byte ", at_, " whose checksum is wrong"));
    }
    if (header.type == kDictionaryPage) {
      KVG_TRY(Unpack(std::move(packed), header.unpacked, dictionary_bytes_));
      dictionary_ = Dictionary::Read(leaf_, dictionary_bytes_, header.count);
      if (!dictionary_) return Wrong("has a dictionary that cannot be read");
    } else if (header.type == kDataPage || header.type == kDataPageV2) {
      KVG_TRY(BeginData(header, std::move(packed)));
    } else if (header.type != kIndexPage) {
      return Wrong(StrCat("has a page of type ", header.type));
    }
  }
  return {};
}

Result<std::optional<Levels>> ColumnReader::Peek() {
  if (ahead_) return ahead_;
  if (values_left_ == 0) return std::optional<Levels>();
  if (page_left_ == 0) KVG_TRY(NextPage());
  Levels next;
  if (leaf_.repetition > 0) {
    const std::optional<uint32_t> level = repetitions_.Next();
    if (!level || *level > static_cast<uint32_t>(leaf_.repetition)) {
      return Wrong("has a repetition level that it cannot have");
    }
    next.repetition = static_cast<int32_t>(*level);
  }
  if (leaf_.definition > 0) {
    const std::optional<uint32_t> level = definitions_.Next();
    if (!level || *level > static_cast<uint32_t>(leaf_.definition)) {
      return Wrong("has a definition level that it cannot have");
    }
    next.definition = static_cast<int32_t>(*level);
  }
  ahead_ = next;
  return ahead_;
}

Status ColumnReader::Take(Value* value) {
  const Levels levels = *std::exchange(ahead_, std::nullopt);
  --page_left_;
  --values_left_;
  if (levels.definition < leaf_.definition) return {};
  if (!values_->Next(value)) return Wrong("has a page with fewer values than it says");
  return {};
}

}  // namespace kvgauge::parquet
