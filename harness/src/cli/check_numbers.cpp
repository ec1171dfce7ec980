// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "core/strings.h"
#include "src/cli/command_table.h"

namespace kvgauge {
namespace {

// What is no number at all is left to the parser.
std::string WhyNotFinite(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || std::isfinite(value)) return "";
  return StrCat("Value ", text, " is not finite");
}

// The parser turns the sign of a number without one around, and takes the last one of the range for
// what lies behind it.
std::string WhyNotInRange(const std::string& text, bool has_sign) {
  const char* begin = text.c_str();
  char* end = nullptr;
  errno = 0;
  if (has_sign) {
    std::strtoll(begin, &end, 0);
  } else {
    std::strtoull(begin, &end, 0);
  }
  if (end == begin || *end != '\0') return "";
  if (errno != ERANGE && (has_sign || text.find('-') == std::string::npos)) return "";
  using Signed = std::numeric_limits<int64_t>;
  return StrCat("Value ", text, " is not in the range ", has_sign ? StrCat(Signed::min()) : "0",
                " .. ", has_sign ? StrCat(Signed::max()) : StrCat(~uint64_t{0}));
}

}  // namespace

void CheckNumbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    // Before all other checks.
    const std::string type = option->get_type_name();
    if (type.starts_with("FLOAT")) option->transform(CLI::Validator(WhyNotFinite, ""));
    for (const bool has_sign : {false, true}) {
      if (!type.starts_with(has_sign ? "INT" : "UINT")) continue;
      option->transform(CLI::Validator(
          [has_sign](const std::string& text) { return WhyNotInRange(text, has_sign); }, ""));
    }
  }
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    CheckNumbers(*command);
  }
}

}  // namespace kvgauge
