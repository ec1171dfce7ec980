// SPDX-License-Identifier: Apache-2.0
// Chat templates that ship with the program, for checkpoints that have none: the files of
// runner/src/text/templates, compiled in.
#pragma once

#include <span>
#include <string_view>

namespace kvgauge {

struct ShippedTemplate {
  std::string_view name, text;
};

// In the order of their names.
std::span<const ShippedTemplate> ShippedTemplates();

}  // namespace kvgauge
