// SPDX-License-Identifier: Apache-2.0
#include "reports/drawn_by.h"

#include <charconv>

#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr char kDrawMark = '#';

}  // namespace

std::string DrawnBy::Text() const {
  std::string text = StrCat("temperature ", temperature);
  if (top_p < 1) text += StrCat(", top-p ", top_p);
  return text;
}

std::optional<DrawnBy> DrawnByOf(const std::string& signature) {
  const Result<Json> protocol = ParseJson(signature, "signature");
  if (!protocol.ok() || !protocol->is_object()) return std::nullopt;
  const auto sampling = protocol->find("sampling");
  if (sampling == protocol->end() || !sampling->is_object()) return std::nullopt;
  const auto number = [&](const char* key, double otherwise) {
    const auto at = sampling->find(key);
    return at != sampling->end() && at->is_number() ? at->get<double>() : otherwise;
  };
  return DrawnBy{number("temperature", 0), number("top_p", 1)};
}

std::string DrawName(const std::string& prompt, int64_t draw) {
  return StrCat(prompt, std::string(1, kDrawMark), draw);
}

NamedDraw ParseDrawName(const std::string& name) {
  const size_t mark = name.rfind(kDrawMark);
  if (mark == std::string::npos) return {name, -1};
  int64_t draw = -1;
  const char* const begin = name.data() + mark + 1;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, draw);
  if (error != std::errc() || stop != end || draw < 0) return {name, -1};
  return {name.substr(0, mark), draw};
}

}  // namespace kvgauge
