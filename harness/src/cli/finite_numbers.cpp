// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cmath>

#include "core/strings.h"
#include "src/cli/command_table.h"

namespace kvgauge {
namespace {

// What is no number at all is left to the parser.
std::string WhyNotFinite(const std::string& text) {
  double value = 0;
  if (!CLI::detail::lexical_cast(text, value) || std::isfinite(value)) return "";
  return StrCat("Value ", text, " is not finite");
}

}  // namespace

void CheckNumbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_type_name().starts_with("FLOAT")) {
      option->transform(CLI::Validator(WhyNotFinite, ""));  // before all other checks
    }
  }
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    CheckNumbers(*command);
  }
}

}  // namespace kvgauge
