// SPDX-License-Identifier: Apache-2.0
#include "src/serve/trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "core/files.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr int64_t kMostTraceBytes = int64_t{4} << 30;
// Mooncake's files hash blocks of so many tokens (arXiv:2407.00079, section 4.1).
constexpr int64_t kMooncakeBlockTokens = 512;

// Where a message is about.
struct TraceLine {
  const std::string* origin;
  int64_t number;  // from 1

  Error Fault(const std::string& what) const {
    return BadInput(StrCat(*origin, ": line ", number, ": ", what));
  }
};

// The upper half of all numbers is for what is one request's own (serve_loop.h).
constexpr uint64_t kMostContent = ~uint64_t{0} >> 1;

// Equal texts have equal numbers; those of different kinds differ.
uint64_t ContentOf(std::string_view kind, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const std::string_view part : {kind, std::string_view(":"), name}) {
    for (const char c : part) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  return hash & kMostContent;
}

Status CheckTokens(const TraceLine& line, const std::string& key, int64_t tokens, int64_t least) {
  if (tokens >= least && tokens <= kMostTraceTokens) return {};
  return line.Fault(
      StrCat(Quoted(key), " is ", tokens, "; expected ", least, " .. ", kMostTraceTokens));
}

// What the file counts time in.
struct TimeUnit {
  const char* name;
  double per_second;
};
constexpr TimeUnit kInSeconds = {"s", 1}, kInMilliseconds = {"ms", 1e3};

Status CheckTime(const TraceLine& line, const std::string& key, double at_s, double before_s,
                 const TimeUnit& unit = kInSeconds) {
  const auto shown = [&](double seconds) {
    return StrCat(seconds * unit.per_second, " ", unit.name);
  };
  if (!std::isfinite(at_s) || at_s < 0 || at_s > kMostTraceSeconds) {
    return line.Fault(StrCat(Quoted(key), " is ", shown(at_s), "; expected 0 or more, at most ",
                             kMostTraceSeconds * unit.per_second));
  }
  if (at_s >= before_s) return {};
  return line.Fault(StrCat(Quoted(key), " is ", shown(at_s), " and that of the request before ",
                           shown(before_s), "; expected an order of time, so sort the file"));
}

Result<int64_t> TokensOf(const TraceLine& line, const Json& json, const char* key, int64_t least) {
  if (!json.contains(key)) return line.Fault(StrCat(Quoted(key), " is missing"));
  if (!json[key].is_number_integer()) {
    return line.Fault(StrCat(Quoted(key), " is ", Quoted(json[key].dump()),
                             "; expected a whole number of tokens"));
  }
  if (json[key].is_number_unsigned() && json[key].get<uint64_t>() > kMostTraceTokens) {
    return line.Fault(StrCat(Quoted(key), " is ", json[key].dump(), "; expected ", least, " .. ",
                             kMostTraceTokens));
  }
  const auto tokens = json[key].get<int64_t>();
  KVG_TRY(CheckTokens(line, key, tokens, least));
  return tokens;
}

Result<double> SecondsOf(const TraceLine& line, const Json& json, const char* key) {
  if (!json.contains(key)) return line.Fault(StrCat(Quoted(key), " is missing"));
  if (!json[key].is_number()) {
    return line.Fault(StrCat(Quoted(key), " is ", Quoted(json[key].dump()), "; expected a number"));
  }
  return json[key].get<double>();
}

Status CheckKeys(const TraceLine& line, const Json& json, const std::vector<std::string>& known) {
  if (!json.is_object()) return line.Fault("expected a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return line.Fault(StrCat("unknown key ", Quoted(key), DidYouMean(key, known),
                             "; known: ", Join(known, ", ")));
  }
  return {};
}

// Reads lines one by one; conversations keep the order in which they begin.
class TraceReader {
 public:
  explicit TraceReader(const std::string& origin) : origin_(origin) {}
  virtual ~TraceReader() = default;
  virtual Status Read(const TraceLine& line, std::string_view text) = 0;
  Trace Take() { return std::move(trace_); }
  int64_t requests() const { return std::ssize(trace_.requests); }

 protected:
  double last_s() const { return trace_.requests.empty() ? 0 : trace_.requests.back().at_s; }
  void Add(TraceRequest request) { trace_.requests.push_back(std::move(request)); }
  void LeaveOut() { ++trace_.left_out; }
  int64_t ConversationOf(const std::string& name) {
    const auto [at, added] = conversations_.emplace(name, trace_.conversations);
    if (added) ++trace_.conversations;
    return at->second;
  }
  const std::string& origin_;

 private:
  Trace trace_;
  std::map<std::string, int64_t> conversations_;
};

class OwnTrace final : public TraceReader {
 public:
  using TraceReader::TraceReader;

  Status Read(const TraceLine& line, std::string_view text) override {
    KVG_ASSIGN(const Json json, ParseJson(text, StrCat(origin_, ": line ", line.number)));
    KVG_TRY(CheckKeys(line, json,
                      {"id", "at_s", "prompt_tokens", "answer_tokens", "prefix", "conversation"}));
    TraceRequest request;
    KVG_ASSIGN(request.at_s, SecondsOf(line, json, "at_s"));
    KVG_TRY(CheckTime(line, "at_s", request.at_s, last_s()));
    KVG_ASSIGN(request.prompt_tokens, TokensOf(line, json, "prompt_tokens", 1));
    KVG_ASSIGN(request.answer_tokens, TokensOf(line, json, "answer_tokens", 1));
    request.id = StrCat("line ", line.number);
    for (const char* key : {"id", "conversation"}) {
      if (!json.contains(key)) continue;
      if (!json[key].is_string() || json[key].get<std::string>().empty()) {
        return line.Fault(
            StrCat(Quoted(key), " is ", Quoted(json[key].dump()), "; expected a text"));
      }
    }
    if (json.contains("id")) request.id = json["id"].get<std::string>();
    if (json.contains("conversation")) {
      request.conversation = ConversationOf(json["conversation"].get<std::string>());
    }
    if (json.contains("prefix")) KVG_TRY(ReadPrefix(line, json["prefix"], request));
    Add(std::move(request));
    return {};
  }

 private:
  static Status ReadPrefix(const TraceLine& line, const Json& list, TraceRequest& request) {
    if (!list.is_array()) return line.Fault("\"prefix\": expected a list of {\"id\", \"tokens\"}");
    int64_t sum = 0;
    for (const Json& item : list) {
      if (!item.is_object()) {
        return line.Fault(StrCat("\"prefix\" has ", Quoted(item.dump()),
                                 "; expected a list of {\"id\", \"tokens\"}"));
      }
      KVG_TRY(CheckKeys(line, item, {"id", "content", "tokens"}));
      KVG_ASSIGN(const uint64_t content, ContentOfItem(line, item));
      KVG_ASSIGN(const int64_t tokens, TokensOf(line, item, "tokens", 1));
      sum += tokens;
      request.prefix.push_back({content, tokens});
    }
    if (sum <= request.prompt_tokens) return {};
    return line.Fault(StrCat("\"prefix\" has ", sum, " tokens; expected at most ",
                             request.prompt_tokens, ", those of the prompt"));
  }

  // What a name stands for, or the number itself, as a saved trace has it.
  static Result<uint64_t> ContentOfItem(const TraceLine& line, const Json& item) {
    if (item.contains("id") == item.contains("content")) {
      return line.Fault("\"prefix\": expected either \"id\" or \"content\"");
    }
    if (item.contains("id")) {
      if (!item["id"].is_string()) return line.Fault("\"prefix\": \"id\" must be a text");
      return ContentOf("prefix", item["id"].get<std::string>());
    }
    const Json& content = item["content"];
    if (content.is_number_unsigned() && content.get<uint64_t>() <= kMostContent) {
      return content.get<uint64_t>();
    }
    return line.Fault(StrCat("\"prefix\": \"content\" is ", Quoted(content.dump()),
                             "; expected a whole number of 0 .. ", kMostContent));
  }
};

class MooncakeTrace final : public TraceReader {
 public:
  using TraceReader::TraceReader;

  Status Read(const TraceLine& line, std::string_view text) override {
    KVG_ASSIGN(const Json json, ParseJson(text, StrCat(origin_, ": line ", line.number)));
    KVG_TRY(CheckKeys(line, json, {"timestamp", "input_length", "output_length", "hash_ids"}));
    TraceRequest request;
    request.id = StrCat("line ", line.number);
    KVG_ASSIGN(const double at_ms, SecondsOf(line, json, "timestamp"));
    request.at_s = at_ms / 1e3;
    KVG_TRY(CheckTime(line, "timestamp", request.at_s, last_s(), kInMilliseconds));
    KVG_ASSIGN(request.prompt_tokens, TokensOf(line, json, "input_length", 0));
    KVG_ASSIGN(request.answer_tokens, TokensOf(line, json, "output_length", 0));
    if (request.prompt_tokens == 0 || request.answer_tokens == 0) {
      LeaveOut();
      return {};
    }
    if (json.contains("hash_ids")) KVG_TRY(ReadHashes(line, json["hash_ids"], request));
    Add(std::move(request));
    return {};
  }

 private:
  // A hash stands for its block and all before it, so equal numbers are equal prefixes.
  static Status ReadHashes(const TraceLine& line, const Json& list, TraceRequest& request) {
    if (!list.is_array()) return line.Fault("\"hash_ids\": expected a list of whole numbers");
    int64_t left = request.prompt_tokens;
    for (const Json& item : list) {
      if (!item.is_number_integer()) {
        return line.Fault("\"hash_ids\": expected a list of whole numbers");
      }
      if (left == 0) break;
      const int64_t tokens = std::min(left, kMooncakeBlockTokens);
      left -= tokens;
      request.prefix.push_back({ContentOf("block", item.dump()), tokens});
    }
    return {};
  }
};

std::vector<std::string> Columns(std::string_view text) {
  std::vector<std::string> columns = Split(text, ',');
  for (std::string& column : columns) column = std::string(Trim(column));
  return columns;
}

Result<int64_t> WholeNumber(const TraceLine& line, const std::string& key,
                            const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  return line.Fault(StrCat(Quoted(key), " is ", Quoted(text), "; expected a whole number"));
}

// Seconds since 1970 of "2023-11-16 18:17:03.9799600", with or without "+00:00" behind it.
std::optional<double> SecondsOfDate(std::string_view text) {
  const auto number = [&](size_t at, size_t size) -> std::optional<int64_t> {
    int64_t value = 0;
    if (at + size > text.size()) return std::nullopt;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + size, value);
    if (error != std::errc() || end != text.data() + at + size || value < 0) return std::nullopt;
    return value;
  };
  const auto year = number(0, 4), month = number(5, 2), day = number(8, 2), hour = number(11, 2),
             minute = number(14, 2), second = number(17, 2);
  if (!year || !month || !day || !hour || !minute || !second || text[4] != '-' || text[7] != '-' ||
      text[13] != ':' || text[16] != ':' || *month < 1 || *month > 12 || *day < 1 || *day > 31 ||
      *hour > 23 || *minute > 59 || *second > 60) {
    return std::nullopt;
  }
  // Days of the proleptic Gregorian calendar, years beginning in March.
  const int64_t shifted = *month <= 2 ? *year - 1 : *year, era = shifted / 400,
                of_era = shifted - era * 400, of_year = (153 * ((*month + 9) % 12) + 2) / 5 + *day;
  const int64_t days =
      era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 1 - 719468;
  double fraction = 0;
  std::string_view rest = text.substr(19);
  if (rest.starts_with('.')) {
    double place = 0.1;
    rest.remove_prefix(1);
    while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
      fraction += place * (rest[0] - '0');
      place /= 10;
      rest.remove_prefix(1);
    }
  }
  if (!rest.empty() && rest != "+00:00" && rest != "Z") return std::nullopt;
  return static_cast<double>(((days * 24 + *hour) * 60 + *minute) * 60 + *second) + fraction;
}

// "TIMESTAMP,ContextTokens,GeneratedTokens" (Azure), or BurstGPT's "Timestamp", "Request tokens",
// "Response tokens", with or without sessions.
class CsvTrace final : public TraceReader {
 public:
  CsvTrace(const std::string& origin, const std::vector<std::string>& header, bool azure)
      : TraceReader(origin), azure_(azure) {
    for (size_t i = 0; i < header.size(); ++i) place_[header[i]] = i;
    names_ = azure ? Names{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}
                   : Names{"Timestamp", "Request tokens", "Response tokens"};
  }
  bool whole() const {
    return std::all_of(names_.begin(), names_.end(),
                       [&](const std::string& name) { return place_.contains(name); });
  }

  Status Read(const TraceLine& line, std::string_view text) override {
    const std::vector<std::string> columns = Columns(text);
    if (columns.size() != place_.size()) {
      return line.Fault(
          StrCat(columns.size(), " columns; expected ", place_.size(), ", as in the first line"));
    }
    const auto column = [&](size_t name) -> const std::string& {
      return columns[place_.at(names_[name])];
    };
    TraceRequest request;
    request.id = StrCat("line ", line.number);
    KVG_ASSIGN(const double at_s, Seconds(line, column(0)));
    if (!begin_s_) begin_s_ = at_s;
    request.at_s = at_s - *begin_s_;
    if (at_s < *begin_s_) {
      return line.Fault(StrCat(Quoted(names_[0]), " is ", Quoted(column(0)),
                               ", before that of the first request; expected an order of time"));
    }
    KVG_TRY(CheckTime(line, names_[0], request.at_s, last_s()));
    KVG_ASSIGN(request.prompt_tokens, WholeNumber(line, names_[1], column(1)));
    KVG_ASSIGN(request.answer_tokens, WholeNumber(line, names_[2], column(2)));
    KVG_TRY(CheckTokens(line, names_[1], request.prompt_tokens, 0));
    KVG_TRY(CheckTokens(line, names_[2], request.answer_tokens, 0));
    if (request.prompt_tokens == 0 || request.answer_tokens == 0) {
      LeaveOut();
    } else {
      Add(std::move(request));
    }
    return {};
  }

 private:
  using Names = std::vector<std::string>;

  Result<double> Seconds(const TraceLine& line, const std::string& text) const {
    if (azure_) {
      const std::optional<double> seconds = SecondsOfDate(text);
      if (seconds) return *seconds;
      return line.Fault(StrCat("\"TIMESTAMP\" is ", Quoted(text),
                               "; expected a time such as 2023-11-16 18:17:03.9799600"));
    }
    double seconds = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (error == std::errc() && end == text.data() + text.size() && seconds >= 0 &&
        std::isfinite(seconds)) {
      return seconds;
    }
    return line.Fault(StrCat("\"Timestamp\" is ", Quoted(text), "; expected seconds, 0 or more"));
  }

  const bool azure_;
  Names names_;
  std::map<std::string, size_t> place_;
  std::optional<double> begin_s_;
};

// By the first line that is not empty; `header`: whether it is no request.
Result<std::unique_ptr<TraceReader>> ReaderFor(std::string_view first, const TraceLine& line,
                                               bool* header) {
  const std::string& origin = *line.origin;
  *header = false;
  if (first.starts_with('{')) {
    KVG_ASSIGN(const Json json, ParseJson(first, StrCat(origin, ": line ", line.number)));
    if (json.contains("input_length")) return {std::make_unique<MooncakeTrace>(origin)};
    return {std::make_unique<OwnTrace>(origin)};
  }
  *header = true;
  const std::vector<std::string> columns = Columns(first);
  for (auto column = columns.begin(); column != columns.end(); ++column) {
    if (std::find(columns.begin(), column, *column) == column) continue;
    return line.Fault(StrCat("column ", Quoted(*column), " occurs twice; expected it once"));
  }
  auto csv = std::make_unique<CsvTrace>(origin, columns, columns[0] == "TIMESTAMP");
  if (csv->whole()) return {std::move(csv)};
  return line.Fault(StrCat(Quoted(first),
                           " is no trace; expected JSON lines, or the columns of Azure's "
                           "(TIMESTAMP, ContextTokens, GeneratedTokens) or BurstGPT's traces "
                           "(Timestamp, Request tokens, Response tokens)"));
}

}  // namespace

Result<Trace> ParseTrace(std::string_view text, const std::string& origin, int64_t first) {
  if (const size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
    return BadInput(StrCat(origin, ": byte ", bad, " is no UTF-8"));
  }
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::unique_ptr<TraceReader> reader;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view raw = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    const std::string_view content = Trim(raw);
    if (content.empty()) continue;
    const TraceLine line = {&origin, number};
    if (reader == nullptr) {
      bool header = false;
      KVG_ASSIGN(reader, ReaderFor(content, line, &header));
      if (header) continue;
    }
    KVG_TRY(reader->Read(line, content));
    if (first > 0 && reader->requests() == first) break;
  }
  if (reader == nullptr || reader->requests() == 0) {
    return BadInput(StrCat(origin, ": holds no request"));
  }
  Trace trace = reader->Take();
  trace.name = origin.substr(origin.find_last_of('/') + 1);
  return trace;
}

Result<Trace> ReadTrace(const std::string& path, int64_t first) {
  KVG_ASSIGN(const std::string text, ReadFile(path, kMostTraceBytes));
  return ParseTrace(text, path, first);
}

std::string WriteTrace(const Trace& trace) {
  std::string text;
  for (const TraceRequest& request : trace.requests) {
    Json json = {{"id", request.id},
                 {"at_s", request.at_s},
                 {"prompt_tokens", request.prompt_tokens},
                 {"answer_tokens", request.answer_tokens}};
    for (const TokenRun& run : request.prefix) {
      json["prefix"].push_back({{"content", run.content}, {"tokens", run.tokens}});
    }
    if (request.conversation >= 0) json["conversation"] = StrCat(request.conversation);
    text += CanonicalJson(json) + "\n";
  }
  return text;
}

}  // namespace kvgauge
