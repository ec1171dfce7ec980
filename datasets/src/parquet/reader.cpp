// SPDX-License-Identifier: Apache-2.0
#include "src/parquet/reader.h"

#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/files.h"
#include "core/strings.h"

namespace kvgauge::parquet {
namespace {

constexpr std::string_view kMagic = "PAR1", kEncrypted = "PARE";
// Every value costs memory beyond its text.
constexpr size_t kValueBytes = 32;

double HalfToDouble(std::string_view bytes) {
  const auto bits =
      static_cast<uint32_t>(static_cast<uint8_t>(bytes[0]) | static_cast<uint8_t>(bytes[1]) << 8);
  const uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double sign = (bits >> 15) != 0 ? -1.0 : 1.0;
  if (exponent == 31) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 1024, static_cast<int>(exponent) - 25);
}

// A signed number of any width, its first byte the highest.
double BigEndian(std::string_view bytes) {
  double value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    value = value * 256 + (i == 0 ? static_cast<int8_t>(byte) : byte);
  }
  return value;
}

}  // namespace

Result<std::unique_ptr<Reader>> Reader::Open(const std::string& path, const Limits& limits) {
  if (DirectoryExists(path)) return BadInput(StrCat(path, ": is a directory, expected a file"));
  std::unique_ptr<Reader> out(new Reader());
  out->path_ = path;
  out->limits_ = limits;
  out->file_.reset(std::fopen(path.c_str(), "rbe"));
  std::FILE* file = out->file_.get();
  if (file == nullptr) return SystemError(path, "open");
  // "PAR1", pages, the footer, its length in four bytes, "PAR1".
  constexpr int64_t kLeastBytes = 12;
  if (fseeko(file, 0, SEEK_END) != 0) return IoError(StrCat(path, ": cannot be read from its end"));
  const int64_t size = ftello(file);
  std::array<uint8_t, 8> tail = {};
  const bool read = size >= kLeastBytes && fseeko(file, -8, SEEK_END) == 0 &&
                    std::fread(tail.data(), 1, tail.size(), file) == tail.size();
  const std::string_view magic(reinterpret_cast<const char*>(tail.data()) + 4, 4);
  if (read && magic == kEncrypted) return BadInput(StrCat(path, ": the file is encrypted"));
  if (!read || magic != kMagic) {
    return BadInput(StrCat(path, ": does not end in \"PAR1\", so it is no whole Parquet file"));
  }
  uint32_t footer_bytes = 0;
  std::memcpy(&footer_bytes, tail.data(), 4);
  if (footer_bytes > size - kLeastBytes) {
    return BadInput(
        StrCat(path, ": says that its footer has ", footer_bytes, " bytes, the file has ", size));
  }
  if (footer_bytes > limits.footer_bytes) {
    return ResourceError(StrCat(path, ": its footer has ", HumanBytes(footer_bytes), "; up to ",
                                HumanBytes(limits.footer_bytes), " are read"));
  }
  std::vector<uint8_t> footer(footer_bytes);
  if (fseeko(file, size - 8 - int64_t{footer_bytes}, SEEK_SET) != 0 ||
      std::fread(footer.data(), 1, footer.size(), file) != footer.size()) {
    return IoError(StrCat(path, ": cannot read its footer"));
  }
  KVG_ASSIGN(out->footer_, ReadFooter(footer, size, path));
  return out;
}

std::vector<std::string> Reader::columns() const {
  std::vector<std::string> names;
  for (const int32_t child : At(0).children) names.push_back(At(child).name);
  return names;
}

Status Reader::Charge(size_t bytes) {
  row_bytes_ += static_cast<int64_t>(bytes + kValueBytes);
  if (row_bytes_ <= limits_.row_bytes) return {};
  return ResourceError(StrCat(path_, ": row ", row_ + 1, " is longer than ",
                              HumanBytes(limits_.row_bytes), "; is this the right file?"));
}

Status Reader::BeginGroup() {
  for (const std::unique_ptr<ColumnReader>& column : columns_) {
    KVG_ASSIGN(const std::optional<Levels> more, column->Peek());
    if (more) return column->Wrong("holds more values than its row group has rows");
  }
  const RowGroup& group = footer_.groups[group_++];
  columns_.clear();
  for (size_t i = 0; i < group.columns.size(); ++i) {
    columns_.push_back(std::make_unique<ColumnReader>(file_.get(), path_, footer_.schema.paths[i],
                                                      At(footer_.schema.leaves[i]),
                                                      group.columns[i], limits_.page_bytes));
  }
  group_left_ = group.rows;
  return {};
}

Result<std::optional<Json>> Reader::Next() {
  if (broken_) return std::optional<Json>();
  const auto fail = [&](const Error& error) {
    broken_ = true;
    return error;
  };
  while (group_left_ == 0) {
    if (group_ == footer_.groups.size()) return std::optional<Json>();
    if (Status begun = BeginGroup(); !begun.ok()) return fail(begun.error());
  }
  row_bytes_ = 0;
  for (const std::unique_ptr<ColumnReader>& column : columns_) {
    const Result<std::optional<Levels>> first = column->Peek();
    if (!first.ok()) return fail(first.error());
    if (*first && (*first)->repetition != 0) {
      return fail(column->Wrong(StrCat("begins row ", row_ + 1, " inside a list")));
    }
  }
  Json row = Json::object();
  for (const int32_t child : At(0).children) {
    const Node& node = At(child);
    Result<Json> value = Assemble(node);
    if (!value.ok()) return fail(value.error());
    row[node.name] = *std::move(value);
  }
  --group_left_;
  ++row_;
  return std::optional<Json>(std::move(row));
}

Result<Levels> Reader::LevelsAt(const Node& node) {
  ColumnReader& column = *columns_[static_cast<size_t>(node.leaves[0])];
  KVG_ASSIGN(const std::optional<Levels> levels, column.Peek());
  if (!levels) return column.Wrong(StrCat("ends before row ", row_ + 1, " of the file"));
  return *levels;
}

Status Reader::TakeNothing(const Node& node) {
  for (const int32_t leaf : node.leaves) {
    ColumnReader& column = *columns_[static_cast<size_t>(leaf)];
    KVG_ASSIGN(const std::optional<Levels> levels, column.Peek());
    if (!levels) return column.Wrong(StrCat("ends before row ", row_ + 1, " of the file"));
    if (levels->definition >= node.definition) {
      return column.Wrong(
          StrCat("has a value in row ", row_ + 1, " where its neighbours have none"));
    }
    Value nothing;
    KVG_TRY(column.Take(&nothing));
  }
  return {};
}

Result<Json> Reader::Assemble(const Node& node) {
  if (!node.repeated) return AssembleOne(node);
  Json array = Json::array();
  KVG_ASSIGN(Levels levels, LevelsAt(node));
  if (levels.definition < node.definition) {
    KVG_TRY(TakeNothing(node));
    return array;
  }
  ColumnReader& column = *columns_[static_cast<size_t>(node.leaves[0])];
  while (true) {
    KVG_ASSIGN(Json element, AssembleOne(node));
    KVG_TRY(Charge(0));
    array.push_back(std::move(element));
    KVG_ASSIGN(const std::optional<Levels> next, column.Peek());
    if (!next || next->repetition < node.repetition) return array;
    if (next->definition < node.definition) {
      return column.Wrong(StrCat("has no value in row ", row_ + 1, " where a list goes on"));
    }
  }
}

Result<Json> Reader::AssembleOne(const Node& node) {
  if (node.children.empty()) return AssembleLeaf(node);
  if (node.optional) {
    KVG_ASSIGN(const Levels levels, LevelsAt(node));
    if (levels.definition < node.definition) {
      KVG_TRY(TakeNothing(node));
      return Json();
    }
  }
  // A list and a map each have one repeated part; what says so without one is a plain group.
  const bool one_part = node.children.size() == 1 && At(node.children[0]).repeated;
  if (node.meaning == Meaning::kList && one_part) return AssembleList(node);
  if (node.meaning == Meaning::kMap && one_part) return AssembleMap(node);
  Json object = Json::object();
  for (const int32_t child : node.children) {
    KVG_ASSIGN(object[At(child).name], Assemble(At(child)));
  }
  return object;
}

// Lists are written with a group around each element, by old writers without: the group is the
// element where it has several parts, or is named as those writers name it.
Result<Json> Reader::AssembleList(const Node& node) {
  const Node& part = At(node.children[0]);
  KVG_ASSIGN(Json array, Assemble(part));
  const bool bare =
      part.children.size() != 1 || part.name == "array" || part.name == StrCat(node.name, "_tuple");
  if (bare) return array;
  const std::string& name = At(part.children[0]).name;
  for (Json& element : array) {
    Json inner = std::move(element[name]);
    element = std::move(inner);
  }
  return array;
}

Result<Json> Reader::AssembleMap(const Node& node) {
  const Node& part = At(node.children[0]);
  KVG_ASSIGN(Json array, Assemble(part));
  if (part.children.empty()) return array;
  const std::string& key = At(part.children[0]).name;
  Json object = Json::object();
  for (Json& entry : array) {
    if (!entry[key].is_string()) {
      return columns_[static_cast<size_t>(node.leaves[0])]->Wrong(
          "holds keys of a map that are not text");
    }
    object[entry[key].get<std::string>()] =
        part.children.size() > 1 ? std::move(entry[At(part.children[1]).name]) : Json();
  }
  return object;
}

Result<Json> Reader::AssembleLeaf(const Node& node) {
  ColumnReader& column = *columns_[static_cast<size_t>(node.leaves[0])];
  KVG_ASSIGN(const Levels levels, LevelsAt(node));
  Value value;
  KVG_TRY(column.Take(&value));
  KVG_TRY(Charge(value.text.size()));
  if (levels.definition < node.definition) return Json();
  switch (node.physical) {
    case Physical::kBoolean:
      return Json(value.integer != 0);
    case Physical::kFloat:
    case Physical::kDouble:
      return Json(value.real);
    case Physical::kInt32:
    case Physical::kInt64:
      if (node.meaning == Meaning::kDecimal) {
        return Json(static_cast<double>(value.integer) / std::pow(10.0, node.scale));
      }
      if (node.meaning != Meaning::kUnsigned) return Json(value.integer);
      return Json(node.physical == Physical::kInt32 ? uint64_t{static_cast<uint32_t>(value.integer)}
                                                    : static_cast<uint64_t>(value.integer));
    default:
      break;
  }
  if (node.meaning == Meaning::kDecimal) {
    return Json(BigEndian(value.text) / std::pow(10.0, node.scale));
  }
  if (node.meaning == Meaning::kFloat16) return Json(HalfToDouble(value.text));
  if (node.meaning == Meaning::kText) {
    if (FindInvalidUtf8(value.text) != std::string::npos) {
      return column.Wrong(StrCat("holds text in row ", row_ + 1, " that is not valid UTF-8"));
    }
    return Json(value.text);
  }
  return Json(Json::binary({value.text.begin(), value.text.end()}));
}

}  // namespace kvgauge::parquet
