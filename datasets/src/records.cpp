// SPDX-License-Identifier: Apache-2.0
#include "src/records.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <utility>

#include "core/files.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "src/delimited.h"
#include "src/parquet/reader.h"
#include "src/python_text.h"

namespace kvgauge {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 16;

bool IsBlank(int byte) { return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n'; }

// "FILE:LINE" of byte `offset` of a record that begins on `line`, and its column (from 1, in
// bytes).
std::string Place(const std::string& path, int64_t line, std::string_view text, size_t offset) {
  size_t start = 0;
  for (size_t i = 0; i < offset && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++line;
      start = i + 1;
    }
  }
  return StrCat(path, ":", line, ": column ", offset - start + 1);
}

// The parser counts bytes from the record's start; people look for a line and a column.
Error Located(const Error& error, const std::string& path, int64_t line, std::string_view text) {
  constexpr std::string_view kAt = " at byte ";
  const std::string prefix = StrCat(path, ":", line, ": ");
  const size_t at = error.message.find(kAt, prefix.size());
  if (at == std::string::npos || error.message.compare(0, prefix.size(), prefix) != 0) return error;
  const char* digits = error.message.data() + at + kAt.size();
  size_t byte = 0;
  const auto parsed = std::from_chars(digits, error.message.data() + error.message.size(), byte);
  if (parsed.ec != std::errc()) return error;
  const size_t offset = byte == 0 ? 0 : byte - 1;
  return BadInput(StrCat(Place(path, line, text, offset), ": ",
                         error.message.substr(prefix.size(), at - prefix.size()), parsed.ptr));
}

constexpr std::array<std::string_view, 5> kContainers = {"jsonl", "json_array", "parquet", "tsv",
                                                         "csv"};

}  // namespace

std::vector<std::string> ContainerNames() { return {kContainers.begin(), kContainers.end()}; }

Container ContainerFromName(std::string_view name) {
  return static_cast<Container>(std::find(kContainers.begin(), kContainers.end(), name) -
                                kContainers.begin());
}

bool IsTable(Container container) {
  return container != Container::kJsonLines && container != Container::kJsonArray;
}

std::optional<CellPlace> CellPlaceOf(const Json& value) {
  if (!value.is_object() || !value.contains("cell_at")) return std::nullopt;
  return CellPlace{.at = value["cell_at"].get<int64_t>(),
                   .bytes = value["bytes"].get<int64_t>(),
                   .quoted = value["quoted"].get<bool>()};
}

Result<std::unique_ptr<RecordReader>> RecordReader::Open(const std::string& path,
                                                         Container container,
                                                         int64_t max_record_bytes,
                                                         const std::vector<std::string>& located) {
  if (DirectoryExists(path)) return BadInput(StrCat(path, ": is a directory, expected a file"));
  if (container == Container::kParquet) {
    std::unique_ptr<RecordReader> out(new RecordReader(path, container, max_record_bytes, nullptr));
    KVG_ASSIGN(out->parquet_, parquet::Reader::Open(path));
    if (out->parquet_->rows() == 0) return BadInput(StrCat(path, ": holds no rows"));
    return out;
  }
  if (container == Container::kTabs || container == Container::kCommas) {
    std::unique_ptr<RecordReader> out(new RecordReader(path, container, max_record_bytes, nullptr));
    const char separator = container == Container::kTabs ? '\t' : ',';
    KVG_ASSIGN(out->cells_, DelimitedReader::Open(path, separator, located, max_record_bytes));
    return out;
  }
  std::FILE* file = std::fopen(path.c_str(), "rbe");
  if (file == nullptr) return SystemError(path, "open");
  return std::unique_ptr<RecordReader>(new RecordReader(path, container, max_record_bytes, file));
}

RecordReader::RecordReader(std::string path, Container container, int64_t max_record_bytes,
                           std::FILE* file)
    : path_(std::move(path)), container_(container), max_bytes_(max_record_bytes), file_(file) {}

std::unique_ptr<RecordReader> RecordReader::OfValues(const std::string& path,
                                                     std::vector<Json> values) {
  std::unique_ptr<RecordReader> out(
      new RecordReader(path, Container::kJsonArray, kMaxRecordBytes, nullptr));
  out->values_ = std::move(values);
  return out;
}

RecordReader::~RecordReader() {
  if (file_ != nullptr) std::fclose(file_);
}

int RecordReader::Peek() {
  if (at_ == filled_) {
    buffer_.resize(kChunkBytes);
    at_ = 0;
    filled_ = std::fread(buffer_.data(), 1, buffer_.size(), file_);
    if (filled_ == 0) return -1;
  }
  return static_cast<uint8_t>(buffer_[at_]);
}

int RecordReader::Get() {
  const int byte = Peek();
  if (byte < 0) return byte;
  ++at_;
  if (byte == '\n') ++line_;
  return byte;
}

int RecordReader::SkipBlanks() {
  while (IsBlank(Peek())) Get();
  return Peek();
}

Error RecordReader::Broken(const std::string& what) {
  broken_ = true;
  if (std::ferror(file_)) return IoError(StrCat(path_, ": cannot read"));
  return BadInput(StrCat(path_, ":", line_, ": ", what));
}

Error RecordReader::TooLong(int64_t line) const {
  return BadInput(StrCat(path_, ":", line, ": the record is longer than ", HumanBytes(max_bytes_),
                         "; is this the right file?"));
}

Result<std::optional<Record>> RecordReader::Next() {
  if (broken_ || closed_) return std::optional<Record>();
  if (values_) return NextValue();
  switch (container_) {
    case Container::kJsonLines:
      return NextLine();
    case Container::kJsonArray:
      return NextElement();
    case Container::kParquet:
      return NextRow();
    case Container::kTabs:
    case Container::kCommas:
      return NextCells();
  }
  return NextLine();
}

Result<std::optional<Record>> RecordReader::NextLine() {
  if (skip_line_) {
    while (Peek() >= 0 && Get() != '\n') {
    }
    skip_line_ = false;
  }
  std::string text;
  while (SkipBlanks() >= 0) {
    const int64_t line = line_;
    ++seen_;
    while (Peek() >= 0 && Peek() != '\n') {
      if (static_cast<int64_t>(text.size()) >= max_bytes_) {
        // The rest is read only when someone asks for another record.
        skip_line_ = true;
        return TooLong(line);
      }
      text += static_cast<char>(Get());
    }
    return Parse(text, line);
  }
  if (std::ferror(file_)) return Broken("");
  closed_ = true;
  if (seen_ == 0) return Broken("holds no records; expected one per line");
  return std::optional<Record>();
}

Result<std::optional<Record>> RecordReader::NextElement() {
  if (!opened_) {
    if (SkipBlanks() != '[') return Broken("expected a JSON array of objects");
    Get();
    opened_ = true;
  }
  int byte = SkipBlanks();
  if (seen_ > 0 && byte == ',') {
    Get();
    byte = SkipBlanks();
  } else if (byte == ']') {
    Get();
    if (SkipBlanks() >= 0) return Broken("text follows the array");
    closed_ = true;
    if (seen_ == 0) return Broken("the array is empty");
    return std::optional<Record>();
  } else if (seen_ > 0 && byte >= 0) {
    return Broken("expected ',' or ']' after an element");
  }
  if (byte >= 0 && byte != '{') return Broken("expected an object as the array's element");

  // Braces outside strings tell where the object ends; the parser judges the rest.
  const int64_t line = line_;
  ++seen_;
  std::string text;
  int64_t depth = 0;
  bool in_string = false, escaped = false;
  for (byte = Get(); byte >= 0; byte = Get()) {
    if (static_cast<int64_t>(text.size()) >= max_bytes_) {
      broken_ = true;
      return TooLong(line);
    }
    text += static_cast<char>(byte);
    if (in_string) {
      in_string = escaped || byte != '"';
      escaped = !escaped && byte == '\\';
    } else if (byte == '"') {
      in_string = true;
    } else if (byte == '{') {
      ++depth;
    } else if (byte == '}' && --depth == 0) {
      return Parse(text, line);
    }
  }
  return Broken("the file ends inside the array; is it cut short?");
}

namespace {

std::string EscapeControls(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false, escaped = false;
  for (const char c : text) {
    if (in_string && static_cast<unsigned char>(c) < 0x20) {
      constexpr std::string_view kHex = "0123456789abcdef";
      out.append("\\u00").append(1, kHex[static_cast<size_t>(c) / 16]);
      out.append(1, kHex[static_cast<size_t>(c) % 16]);
      escaped = false;
      continue;
    }
    if (c == '"' && !escaped) in_string = !in_string;
    escaped = in_string && c == '\\' && !escaped;
    out += c;
  }
  return out;
}

}  // namespace

Result<std::optional<Record>> RecordReader::Parse(const std::string& text, int64_t line) {
  if (const size_t bad = FindInvalidUtf8(text); bad != std::string::npos) {
    return BadInput(StrCat(Place(path_, line, text, bad), ": not valid UTF-8"));
  }
  Record record;
  record.where = StrCat(path_, ":", line);
  Result<Json> value = ParseJson(lenient_ ? EscapeControls(text) : text, record.where);
  if (!value.ok()) return Located(value.error(), path_, line, text);
  if (!value->is_object()) {
    return BadInput(StrCat(record.where, ": ", KindOf(*value), ", expected an object"));
  }
  record.value = *std::move(value);
  record.number = seen_;
  // Where a whole array stands in one line, that line says nothing.
  record.shares_line =
      std::exchange(last_line_, line) == line && container_ == Container::kJsonArray;
  if (record.shares_line) record.where.append(StrCat(" (record ", seen_, ")"));
  return std::optional<Record>(std::move(record));
}

Result<std::optional<Record>> RecordReader::NextRow() {
  Result<std::optional<Json>> row = parquet_->Next();
  if (!row.ok()) {
    broken_ = true;
    return row.error();
  }
  if (!*row) return std::optional<Record>();
  Record record;
  record.value = **std::move(row);
  record.number = ++seen_;
  record.row = true;
  record.where = StrCat(path_, ": row ", seen_);
  return std::optional<Record>(std::move(record));
}

Result<std::optional<Record>> RecordReader::NextValue() {
  if (static_cast<size_t>(seen_) == values_->size()) return std::optional<Record>();
  Record record;
  record.value = std::move((*values_)[static_cast<size_t>(seen_)]);
  record.number = ++seen_;
  record.where = StrCat(path_, ": record ", seen_);
  if (record.value.is_object()) return std::optional<Record>(std::move(record));
  return BadInput(StrCat(record.where, ": ", KindOf(record.value), ", expected an object"));
}

Result<std::optional<Record>> RecordReader::NextCells() {
  Result<std::optional<std::vector<Cell>>> cells = cells_->Next();
  broken_ = cells_->broken();
  if (!cells.ok()) {
    ++seen_;
    return cells.error();
  }
  if (!*cells) {
    closed_ = true;
    if (seen_ == 0) return BadInput(StrCat(path_, ": holds no rows behind its line of names"));
    return std::optional<Record>();
  }
  Record record;
  record.value = Json::object();
  for (size_t i = 0; i < (*cells)->size(); ++i) {
    Cell& cell = (**cells)[i];
    Json& value = record.value[cells_->columns()[i]];
    if (cell.place) {
      value = {{"cell_at", cell.place->at},
               {"bytes", cell.place->bytes},
               {"quoted", cell.place->quoted}};
    } else if (!IsMissingCell(cell.text)) {
      value = std::move(cell.text);
    }
  }
  record.number = ++seen_;
  record.row = true;
  record.where = StrCat(path_, ": row ", record.number);
  return std::optional<Record>(std::move(record));
}

std::string_view KindOf(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  if (value.is_binary()) return "bytes";
  return value.is_array() ? "an array" : "an object";
}

bool AllBlank(const std::vector<std::string>& texts) {
  return std::all_of(texts.begin(), texts.end(),
                     [](const std::string& text) { return PythonStrip(text).empty(); });
}

Error Fields::Wrong(const std::string& name, std::string_view what) const {
  return BadInput(StrCat(where(), record_.row ? ": column " : ": field ", Quoted(name), " ", what));
}

bool Fields::Has(const std::string& name) const {
  const auto found = record_.value.find(name);
  return found != record_.value.end() && !found->is_null();
}

Result<const Json*> Fields::Get(const std::string& name) const {
  const auto found = record_.value.find(name);
  if (found != record_.value.end()) return &*found;
  // A table without a line of names has cells for names, so there may be many, and long ones.
  constexpr size_t kMostListed = 20, kLongestName = 60;
  std::vector<std::string> known, listed;
  for (const auto& [key, value] : record_.value.items()) {
    known.push_back(key);
    if (listed.size() == kMostListed) continue;
    listed.push_back(key.size() > kLongestName ? Quoted(key, kLongestName) : key);
  }
  if (known.size() > listed.size()) {
    listed.push_back(StrCat("and ", known.size() - listed.size(), " more"));
  }
  return Wrong(name, StrCat("is missing", DidYouMean(name, known),
                            "; the record has: ", Join(listed, ", ")));
}

Result<std::string> Fields::Text(const std::string& name) const {
  KVG_ASSIGN(const Json* value, Get(name));
  if (!value->is_string()) {
    return Wrong(name, StrCat("is ", KindOf(*value), ", expected a string"));
  }
  return value->get<std::string>();
}

Result<int64_t> Fields::Int(const std::string& name) const {
  KVG_ASSIGN(const Json* value, Get(name));
  if (!value->is_number_unsigned() || value->get<uint64_t>() > INT64_MAX) {
    return Wrong(name, StrCat("is ", value->is_number() ? value->dump() : KindOf(*value),
                              ", expected a whole number >= 0"));
  }
  return value->get<int64_t>();
}

Result<std::vector<std::string>> Fields::Texts(const std::string& name) const {
  KVG_ASSIGN(const Json* value, Get(name));
  if (!value->is_array()) {
    return Wrong(name, StrCat("is ", KindOf(*value), ", expected an array of strings"));
  }
  std::vector<std::string> texts;
  for (const Json& text : *value) {
    if (!text.is_string()) {
      return Wrong(name, StrCat("holds ", KindOf(text), " at index ", texts.size(),
                                ", expected an array of strings"));
    }
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

Result<std::optional<Record>> FileStream::Take() {
  Result<std::optional<Record>> record = ahead_ ? *std::exchange(ahead_, {}) : reader_->Next();
  if (!merge_ || !record.ok() || !*record) return record;
  while (true) {
    ahead_ = reader_->Next();
    if (!ahead_->ok() || !**ahead_ || !merge_(**record, ***ahead_)) return record;
  }
}

Result<std::optional<Sample>> FileStream::Try() {
  std::optional<Record> record;
  for (bool wanted = false; !wanted;) {
    KVG_ASSIGN(record, Take());
    if (!record) {
      if (passed_by_.empty() || !ids_.empty() || skipped_ > 0) return std::optional<Sample>();
      return BadInput(StrCat(passed_by_,
                             ": this record and all behind it are passed by; none is "
                             "one that the task's source.only names"));
    }
    wanted = true;
    if (filter_) {
      KVG_ASSIGN(wanted, filter_(*record));
    }
    if (!wanted && passed_by_.empty()) passed_by_ = record->where;
  }
  KVG_ASSIGN(Sample sample, build_(*record));
  if (!ids_.insert(sample.id).second) {
    return BadInput(StrCat(record->where, ": id ", Quoted(sample.id), " occurs twice"));
  }
  return std::optional<Sample>(std::move(sample));
}

Result<std::optional<Sample>> FileStream::Next() {
  while (true) {
    Result<std::optional<Sample>> sample = Try();
    if (sample.ok() && !*sample && ids_.empty() && skipped_ > 0) {
      return BadInput(StrCat("every record is malformed; the first: ", faults_[0]));
    }
    // Only faults of a record can be left out: a full disk or a cut file cannot.
    if (sample.ok() || !skip_bad_ || reader_->broken() ||
        sample.error().code != ErrorCode::kBadInput) {
      return sample;
    }
    ++skipped_;
    if (faults_.size() < kToldFaults) faults_.push_back(sample.error().message);
  }
}

Result<std::string> DataFile(const TaskOptions& options, const std::string& relative) {
  const std::string path = options.data_directory + "/" + relative;
  if (FileExists(path)) return path;
  return MissingData(relative, options.data_directory);
}

std::string ContextGroup(std::string_view context) {
  return "context-" + Sha256Hex(context).substr(0, 16);
}

}  // namespace kvgauge
