// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

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

// What an option takes, as the checks that it has describe themselves: "INT:POSITIVE",
// "FLOAT:FLOAT in [0 - 1]".
struct Wanted {
  explicit Wanted(const std::string& type)
      : whole(!type.starts_with("FLOAT")), words(whole ? "a whole number" : "a number") {
    const size_t range = type.find(" in [");
    if (type.find(":POSITIVE") != std::string::npos) {
      low = std::numeric_limits<double>::denorm_min();
      words += whole ? " from 1" : " above 0";
    } else if (type.find(":NONNEGATIVE") != std::string::npos) {
      low = 0;
      words += " from 0";
    } else if (range != std::string::npos) {
      const size_t first = range + 5, middle = type.find(" - ", first);
      const std::string least = type.substr(first, middle - first);
      const std::string most = type.substr(middle + 3, type.find(']', middle) - middle - 3);
      // The description rounds them: the check itself has the last word.
      low = std::strtod(least.c_str(), nullptr);
      high = std::strtod(most.c_str(), nullptr);
      words += StrCat(" from ", least, " to ", most);
    }
  }

  bool whole;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  std::string words;
};

std::string WhyNotWanted(const std::string& text, const Wanted& wanted) {
  char* end = nullptr;
  const double value = wanted.whole ? static_cast<double>(std::strtoll(text.c_str(), &end, 0))
                                    : std::strtod(text.c_str(), &end);
  const bool number = end != text.c_str() && *end == '\0';
  if (number && value >= wanted.low && value <= wanted.high) return "";
  return StrCat("Value ", text, ", expected ", wanted.words);
}

}  // namespace

void CheckNumbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    const bool real = type.starts_with("FLOAT"), has_sign = type.starts_with("INT");
    if (!real && !has_sign && !type.starts_with("UINT")) continue;
    // Before all other checks.
    option->transform(CLI::Validator(
        [real, has_sign, wanted = Wanted(type)](const std::string& text) {
          const std::string why = real ? WhyNotFinite(text) : WhyNotInRange(text, has_sign);
          return why.empty() ? WhyNotWanted(text, wanted) : why;
        },
        ""));
  }
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    CheckNumbers(*command);
  }
}

}  // namespace kvgauge
