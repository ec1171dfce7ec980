// SPDX-License-Identifier: Apache-2.0
#include "datasets/pairs.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

// Column of a byte, in characters from 1.
int64_t ColumnOf(const std::string& text, size_t byte) {
  return 1 + std::count_if(text.begin(),
                           text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size())),
                           [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// The parser counts bytes from 1; people count characters.
std::string InColumns(const std::string& message, const std::string& text) {
  constexpr std::string_view kByte = "at byte ";
  const size_t at = message.find(kByte);
  if (at == std::string::npos) return message;
  size_t end = at + kByte.size();
  size_t byte = 0;
  while (end < message.size() && std::isdigit(static_cast<unsigned char>(message[end])) != 0) {
    byte = byte * 10 + static_cast<size_t>(message[end++] - '0');
  }
  return StrCat(message.substr(0, at), "at column ", ColumnOf(text, byte == 0 ? 0 : byte - 1),
                message.substr(end));
}

Result<std::string> TextAt(const Json& object, const char* key, const std::string& origin) {
  const Json& value = object[key];
  if (!value.is_string()) {
    return BadInput(StrCat(origin, ": \"", key, "\" must be a text, not ", value.type_name()));
  }
  return value.get<std::string>();
}

Result<std::vector<std::string>> TextsAt(const Json& object, const char* key,
                                         const std::string& origin) {
  const Json& value = object[key];
  if (!value.is_array()) {
    return BadInput(
        StrCat(origin, ": \"", key, "\" must be a list of texts, not ", value.type_name()));
  }
  std::vector<std::string> texts;
  for (const Json& item : value) {
    if (!item.is_string()) {
      return BadInput(StrCat(origin, ": \"", key, "\"[", texts.size(), "] must be a text, not ",
                             item.type_name()));
    }
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Lines of a file; one that is too long is read past, not held.
class LineReader {
 public:
  explicit LineReader(std::FILE* file) : file_(file), buffer_(size_t{1} << 16) {}

  // False at the end of the file.
  bool Next(std::string& line, bool& too_long) {
    line.clear();
    too_long = false;
    bool any = false;
    while (true) {
      if (at_ == end_) {
        at_ = 0;
        end_ = std::fread(buffer_.data(), 1, buffer_.size(), file_);
        if (end_ == 0) return any;
      }
      any = true;
      const char* begin = buffer_.data() + at_;
      const auto* newline = static_cast<const char*>(std::memchr(begin, '\n', end_ - at_));
      const size_t size = newline != nullptr ? static_cast<size_t>(newline - begin) : end_ - at_;
      if (line.size() + size > static_cast<size_t>(kMaxPairBytes)) {
        too_long = true;
        line.clear();
      }
      if (!too_long) line.append(begin, size);
      at_ += size + (newline != nullptr ? 1 : 0);
      if (newline != nullptr) return true;
    }
  }

 private:
  std::FILE* file_;
  std::vector<char> buffer_;
  size_t at_ = 0, end_ = 0;
};

}  // namespace

Result<MetricInput> ParsePair(const std::string& text, const std::string& origin) {
  if (const size_t bad = FindInvalidUtf8(text); bad != std::string::npos) {
    return BadInput(StrCat(origin, ": not UTF-8 at column ", ColumnOf(text, bad)));
  }
  Result<Json> parsed = ParseJson(text, origin);
  if (!parsed.ok()) return BadInput(InColumns(parsed.error().message, text));
  const Json& object = *parsed;
  if (!object.is_object()) {
    return BadInput(StrCat(origin, ": must be an object with \"prediction\" and \"answers\", not ",
                           object.type_name()));
  }
  std::vector<std::string> keys;
  for (const auto& entry : object.items()) keys.push_back(entry.key());
  for (const char* key : {"prediction", "answers"}) {
    if (!object.contains(key)) {
      return BadInput(StrCat(origin, ": \"", key, "\" is missing", DidYouMean(key, keys)));
    }
  }
  MetricInput input;
  KVG_ASSIGN(input.prediction, TextAt(object, "prediction", origin));
  KVG_ASSIGN(input.answers, TextsAt(object, "answers", origin));
  if (object.contains("all_classes") && !object["all_classes"].is_null()) {
    KVG_ASSIGN(input.all_classes, TextsAt(object, "all_classes", origin));
  }
  if (object.contains("language")) {
    KVG_ASSIGN(input.language, TextAt(object, "language", origin));
  }
  return input;
}

Result<PairScores> ScorePairs(const MetricSpec& metric, const std::string& path, bool skip_bad) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return IoError(StrCat(path, ": ", std::strerror(errno)));
  const auto score_line = [&](const std::string& line, bool too_long,
                              const std::string& origin) -> Result<double> {
    if (too_long) {
      return BadInput(StrCat(origin, ": longer than ", HumanBytes(kMaxPairBytes)));
    }
    KVG_ASSIGN(const MetricInput input, ParsePair(line, origin));
    Result<double> score = metric.score(input);
    if (!score.ok()) return score.error().Wrap(origin);
    return score;
  };

  PairScores out;
  LineReader reader(file.get());
  std::string line;
  bool too_long = false;
  for (int64_t number = 1; reader.Next(line, too_long); ++number) {
    if (!too_long && Trim(line).empty()) continue;
    Result<double> score = score_line(line, too_long, StrCat(path, ":", number));
    if (score.ok()) {
      out.scores.push_back(*score);
      out.lines.push_back(number);
      out.mean += *score;
    } else if (skip_bad) {
      out.bad_lines.push_back(score.error().message);
    } else {
      return score.error();
    }
  }
  if (std::ferror(file.get()) != 0) return IoError(StrCat(path, ": ", std::strerror(errno)));
  if (out.scores.empty()) {
    return BadInput(StrCat(path, ": no pair to score", out.bad_lines.empty() ? "" : "; first: ",
                           out.bad_lines.empty() ? "" : out.bad_lines.front()));
  }
  out.mean /= static_cast<double>(out.scores.size());
  return out;
}

}  // namespace kvgauge
