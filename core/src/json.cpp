// SPDX-License-Identifier: Apache-2.0
#include "core/json.h"

#include <utility>
#include <vector>

#include "core/files.h"
#include "core/short_json.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

// Builds the value from parser events, so that duplicates and depth are seen while they happen.
class StrictBuilder final : public nlohmann::json_sax<Json> {
 public:
  explicit StrictBuilder(std::string_view origin) : origin_(origin) {}

  Json root;
  std::string message;

  bool null() override { return Put(Json(nullptr)); }
  bool boolean(bool value) override { return Put(Json(value)); }
  bool number_integer(number_integer_t value) override { return Put(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Put(Json(value)); }
  bool number_float(number_float_t value, const string_t&) override { return Put(Json(value)); }
  bool string(string_t& value) override { return Put(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& value) override {
    Json& object = *open_.back();
    if (object.contains(value)) {
      message = StrCat(origin_, ": key ", Quoted(value), " occurs twice in one object");
      return false;
    }
    key_ = std::move(value);
    return true;
  }

  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& cause) override {
    std::string reason = cause.what();
    if (const size_t colon = reason.find("error"); colon != std::string::npos) {
      if (const size_t text = reason.find(": ", colon); text != std::string::npos) {
        reason = reason.substr(text + 2);
      }
    }
    message = StrCat(origin_, ": not valid JSON at byte ", position, ", near ", Quoted(last_token),
                     ": ", reason.substr(0, 160));
    return false;
  }

 private:
  Json* Place(Json value) {
    if (open_.empty()) {
      root = std::move(value);
      return &root;
    }
    Json& parent = *open_.back();
    if (parent.is_object()) {
      return &(parent[key_] = std::move(value));
    }
    parent.push_back(std::move(value));
    return &parent.back();
  }

  bool Put(Json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(Json value) {
    if (static_cast<int>(open_.size()) >= kMaxJsonDepth) {
      message = StrCat(origin_, ": nested deeper than ", kMaxJsonDepth, " levels");
      return false;
    }
    open_.push_back(Place(std::move(value)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  std::string_view origin_;
  std::vector<Json*> open_;
  std::string key_;
};

}  // namespace

Result<Json> ParseJson(std::string_view text, std::string_view origin) {
  StrictBuilder builder(origin);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return BadInput(builder.message.empty() ? StrCat(origin, ": not valid JSON") : builder.message);
  }
  // The parser takes a NUL byte for the end and would leave out what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return BadInput(StrCat(origin, ": not valid JSON at byte ", nul + 1,
                           ", near '<U+0000>': a NUL byte outside a string"));
  }
  return std::move(builder.root);
}

Result<Json> ReadJsonFile(const std::string& path) {
  KVG_ASSIGN(const std::string text, ReadFile(path));
  return ParseJson(text, path);
}

std::string CanonicalJson(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string ShortJson(const Json& value) {
  constexpr size_t kMostShown = 60;
  std::string text = CanonicalJson(value);
  if (text.size() <= kMostShown) return text;
  text.resize(kMostShown);
  return RepairUtf8(text) + "...";
}

}  // namespace kvgauge
