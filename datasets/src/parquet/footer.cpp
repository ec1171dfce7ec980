// SPDX-License-Identifier: Apache-2.0
#include "src/parquet/footer.h"

#include <utility>

#include "core/strings.h"
#include "src/parquet/compact.h"

namespace kvgauge::parquet {
namespace {

constexpr int64_t kMostNodes = 10000;
constexpr int32_t kMostDepth = 64;

// A line of the file's schema, as it stands there.
struct Element {
  int64_t physical = -1, width = 0, repetition = 0, children = 0, converted = -1, scale = 0;
  int32_t logical = 0;  // the union's field; 0: none
  bool unsigned_int = false;
  std::string name;
};

// Field numbers of parquet.thrift stand beside their names.
void ReadLogical(CompactReader& in, Wire wire, Element& element) {
  in.Struct(wire);
  for (CompactReader::Field field; in.Next(&field);) {
    element.logical = field.id;
    constexpr int32_t kDecimal = 5, kInteger = 10;
    if (field.id != kDecimal && field.id != kInteger) {
      in.Skip(field.wire);
      continue;
    }
    in.Struct(field.wire);
    for (CompactReader::Field inner; in.Next(&inner);) {
      if (field.id == kInteger && inner.id == 2) {  // is_signed
        element.unsigned_int = !in.Bool(inner.wire);
      } else if (field.id == kDecimal && inner.id == 1) {  // scale
        element.scale = in.Int(inner.wire);
      } else {
        in.Skip(inner.wire);
      }
    }
  }
}

Element ReadElement(CompactReader& in) {
  Element out;
  for (CompactReader::Field field; in.Next(&field);) {
    switch (field.id) {
      case 1:
        out.physical = in.Int(field.wire);
        break;
      case 2:
        out.width = in.Int(field.wire);
        break;
      case 3:
        out.repetition = in.Int(field.wire);
        break;
      case 4:
        out.name = in.Binary(field.wire);
        break;
      case 5:
        out.children = in.Int(field.wire);
        break;
      case 6:
        out.converted = in.Int(field.wire);
        break;
      case 7:
        out.scale = in.Int(field.wire);
        break;
      case 10:
        ReadLogical(in, field.wire, out);
        break;
      default:
        in.Skip(field.wire);
    }
  }
  return out;
}

struct Chunk {
  ColumnChunk chunk;
  int64_t physical = -1;
  int64_t data_page = -1, dictionary_page = -1;
  bool elsewhere = false, encrypted = false;
};

void ReadChunkFacts(CompactReader& in, Wire wire, Chunk& out) {
  in.Struct(wire);
  for (CompactReader::Field field; in.Next(&field);) {
    switch (field.id) {
      case 1:
        out.physical = in.Int(field.wire);
        break;
      case 4:
        out.chunk.codec = static_cast<Codec>(in.Int(field.wire));
        break;
      case 5:
        out.chunk.values = in.Int(field.wire);
        break;
      case 7:
        out.chunk.bytes = in.Int(field.wire);
        break;
      case 9:
        out.data_page = in.Int(field.wire);
        break;
      case 11:
        out.dictionary_page = in.Int(field.wire);
        break;
      default:
        in.Skip(field.wire);
    }
  }
}

Chunk ReadChunk(CompactReader& in) {
  Chunk out;
  for (CompactReader::Field field; in.Next(&field);) {
    switch (field.id) {
      case 1:
        out.elsewhere = !in.Binary(field.wire).empty();
        break;
      case 3:
        ReadChunkFacts(in, field.wire, out);
        break;
      case 8:
      case 9:
        out.encrypted = true;
        in.Skip(field.wire);
        break;
      default:
        in.Skip(field.wire);
    }
  }
  return out;
}

struct Group {
  int64_t rows = 0;
  std::vector<Chunk> columns;
};

Group ReadGroup(CompactReader& in) {
  Group out;
  for (CompactReader::Field field; in.Next(&field);) {
    if (field.id == 1) {
      const auto list = in.ListHead(field.wire);
      for (int64_t i = 0; i < list.size && in.ok(); ++i) {
        in.Struct(list.wire);
        out.columns.push_back(ReadChunk(in));
      }
    } else if (field.id == 3) {
      out.rows = in.Int(field.wire);
    } else {
      in.Skip(field.wire);
    }
  }
  return out;
}

Meaning MeaningOf(const Element& element) {
  // Numbers of LogicalType's union, then of the older ConvertedType.
  switch (element.logical) {
    case 1:   // string
    case 4:   // enum
    case 12:  // json
      return Meaning::kText;
    case 2:
      return Meaning::kMap;
    case 3:
      return Meaning::kList;
    case 5:
      return Meaning::kDecimal;
    case 10:
      return element.unsigned_int ? Meaning::kUnsigned : Meaning::kPlain;
    case 15:
      return Meaning::kFloat16;
    default:
      break;
  }
  switch (element.converted) {
    case 0:   // utf8
    case 4:   // enum
    case 19:  // json
      return Meaning::kText;
    case 1:
    case 2:
      return Meaning::kMap;
    case 3:
      return Meaning::kList;
    case 5:
      return Meaning::kDecimal;
    case 11:
    case 12:
    case 13:
    case 14:
      return Meaning::kUnsigned;
    default:
      return Meaning::kPlain;
  }
}

// Builds the tree out of the flat list of elements.
class TreeBuilder {
 public:
  TreeBuilder(const std::vector<Element>& elements, const std::string& path)
      : elements_(elements), path_(path) {}

  Result<Schema> Build() {
    if (elements_.empty()) return BadInput(StrCat(path_, ": the file names no columns"));
    KVG_ASSIGN(const int32_t root, Add("", 0, 0, 0));
    if (at_ != elements_.size()) return Wrong(elements_[at_].name, "belongs to no group");
    if (schema_.nodes[static_cast<size_t>(root)].children.empty()) {
      return BadInput(StrCat(path_, ": the file has no columns"));
    }
    return std::move(schema_);
  }

 private:
  Error Wrong(const std::string& name, std::string_view what) const {
    return BadInput(StrCat(path_, ": column ", Quoted(name), " ", what));
  }

  Result<int32_t> Add(const std::string& above, int32_t definition, int32_t repetition,
                      int32_t depth) {
    if (at_ == elements_.size()) return Wrong(above, "has fewer parts than it says");
    if (depth > kMostDepth) return Wrong(above, StrCat("is nested over ", kMostDepth, " deep"));
    const Element& element = elements_[at_++];
    const auto index = static_cast<int32_t>(schema_.nodes.size());
    Node node;
    node.name = element.name;
    node.meaning = MeaningOf(element);
    if (FindInvalidUtf8(element.name) != std::string::npos) {
      return Wrong(element.name, "has a name that is not valid UTF-8");
    }
    const std::string path = above.empty() ? element.name : StrCat(above, ".", element.name);
    if (depth > 0) {
      if (element.repetition < 0 || element.repetition > 2) {
        return Wrong(path, StrCat("has the repetition type ", element.repetition));
      }
      node.optional = element.repetition == 1;
      node.repeated = element.repetition == 2;
    }
    node.definition = definition + (node.optional || node.repeated ? 1 : 0);
    node.repetition = repetition + (node.repeated ? 1 : 0);
    if (element.physical >= 0 && element.children > 0) return Wrong(path, "is a group with a type");
    if (element.physical >= 0 && depth > 0) {
      KVG_TRY(MakeLeaf(element, path, node));
      node.leaves = {static_cast<int32_t>(schema_.leaves.size())};
      schema_.leaves.push_back(index);
      schema_.paths.push_back(path);
      schema_.nodes.push_back(std::move(node));
      return index;
    }
    if (depth > 0 && element.children <= 0) return Wrong(path, "is a group of nothing");
    const Node levels = node;
    schema_.nodes.push_back(std::move(node));
    for (int64_t i = 0; i < element.children; ++i) {
      KVG_ASSIGN(const int32_t child,
                 Add(depth == 0 ? "" : path, levels.definition, levels.repetition, depth + 1));
      Node& self = schema_.nodes[static_cast<size_t>(index)];
      self.children.push_back(child);
      const std::vector<int32_t>& below = schema_.nodes[static_cast<size_t>(child)].leaves;
      self.leaves.insert(self.leaves.end(), below.begin(), below.end());
    }
    return index;
  }

  Status MakeLeaf(const Element& element, const std::string& path, Node& node) const {
    if (element.physical > 7) return Wrong(path, StrCat("has the type ", element.physical));
    node.physical = static_cast<Physical>(element.physical);
    if (node.physical == Physical::kFixedBytes) {
      if (element.width < 1 || element.width > (1 << 20)) {
        return Wrong(path, StrCat("has values of ", element.width, " bytes"));
      }
      node.width = static_cast<int32_t>(element.width);
    }
    if (node.meaning == Meaning::kFloat16 && node.width != 2) {
      return Wrong(path, "holds 16-bit numbers that are not 2 bytes wide");
    }
    if (node.meaning == Meaning::kDecimal) {
      if (element.scale < 0 || element.scale > 1000) {
        return Wrong(path, StrCat("has the decimal scale ", element.scale));
      }
      node.scale = static_cast<int32_t>(element.scale);
    }
    return {};
  }

  const std::vector<Element>& elements_;
  const std::string& path_;
  size_t at_ = 0;
  Schema schema_;
};

Result<ColumnChunk> CheckedChunk(const Chunk& read, const Node& leaf, const std::string& name,
                                 int64_t file_bytes, const std::string& path) {
  const auto wrong = [&](const auto&... what) {
    return BadInput(StrCat(path, ": column ", Quoted(name), " ", what...));
  };
  if (read.elsewhere) return wrong("lies in another file; only whole files are read");
  if (read.encrypted) return wrong("is encrypted");
  if (read.physical != static_cast<int64_t>(leaf.physical)) {
    return wrong("has another type in its row group than in the schema");
  }
  ColumnChunk chunk = read.chunk;
  // A file without a dictionary may say 0 for the place of one.
  const bool dictionary = read.dictionary_page > 0 && read.dictionary_page < read.data_page;
  chunk.first_byte = dictionary ? read.dictionary_page : read.data_page;
  if (chunk.values < 0 || chunk.bytes < 0 || chunk.first_byte < 4 || chunk.bytes > file_bytes ||
      chunk.first_byte > file_bytes - chunk.bytes) {
    return wrong("lies outside the file (", chunk.bytes, " bytes from byte ", chunk.first_byte,
                 " of ", file_bytes, "); is the file cut short?");
  }
  switch (chunk.codec) {
    case Codec::kNone:
    case Codec::kSnappy:
    case Codec::kGzip:
    case Codec::kZstd:
      return chunk;
    case Codec::kLzo:
      return wrong("is compressed with LZO; none, Snappy, Gzip and Zstd are read");
    case Codec::kBrotli:
      return wrong("is compressed with Brotli; none, Snappy, Gzip and Zstd are read");
    case Codec::kLz4:
    case Codec::kLz4Raw:
      return wrong("is compressed with LZ4; none, Snappy, Gzip and Zstd are read");
  }
  return wrong("is compressed with codec number ", static_cast<int32_t>(chunk.codec),
               ", which is none of the format's");
}

}  // namespace

Result<Footer> ReadFooter(std::span<const uint8_t> bytes, int64_t file_bytes,
                          const std::string& path) {
  CompactReader in(bytes);
  std::vector<Element> elements;
  std::vector<Group> groups;
  Footer footer;
  bool encrypted = false;
  for (CompactReader::Field field; in.Next(&field);) {
    if (field.id == 2) {
      const auto list = in.ListHead(field.wire);
      if (list.size > kMostNodes) {
        return BadInput(StrCat(path, ": names ", list.size, " columns, over ", kMostNodes));
      }
      for (int64_t i = 0; i < list.size && in.ok(); ++i) {
        in.Struct(list.wire);
        elements.push_back(ReadElement(in));
      }
    } else if (field.id == 3) {
      footer.rows = in.Int(field.wire);
    } else if (field.id == 4) {
      const auto list = in.ListHead(field.wire);
      for (int64_t i = 0; i < list.size && in.ok(); ++i) {
        in.Struct(list.wire);
        groups.push_back(ReadGroup(in));
      }
    } else {
      encrypted |= field.id == 8;
      in.Skip(field.wire);
    }
  }
  if (!in.ok()) return BadInput(StrCat(path, ": the footer cannot be read; is the file whole?"));
  if (encrypted) return BadInput(StrCat(path, ": the file is encrypted"));
  KVG_ASSIGN(footer.schema, TreeBuilder(elements, path).Build());

  int64_t rows = 0;
  for (const Group& group : groups) {
    if (group.columns.size() != footer.schema.leaves.size()) {
      return BadInput(StrCat(path, ": a row group has ", group.columns.size(),
                             " columns, the schema ", footer.schema.leaves.size()));
    }
    if (group.rows < 0 || group.rows > footer.rows - rows) {
      return BadInput(
          StrCat(path, ": its row groups hold more rows than the ", footer.rows, " of the file"));
    }
    rows += group.rows;
    RowGroup out{.rows = group.rows, .columns = {}};
    for (size_t i = 0; i < group.columns.size(); ++i) {
      const Node& leaf = footer.schema.nodes[static_cast<size_t>(footer.schema.leaves[i])];
      KVG_ASSIGN(const ColumnChunk chunk,
                 CheckedChunk(group.columns[i], leaf, footer.schema.paths[i], file_bytes, path));
      out.columns.push_back(chunk);
    }
    footer.groups.push_back(std::move(out));
  }
  if (rows != footer.rows) {
    return BadInput(
        StrCat(path, ": its row groups hold ", rows, " rows, the file says ", footer.rows));
  }
  return footer;
}

}  // namespace kvgauge::parquet
