// SPDX-License-Identifier: Apache-2.0
#include "src/cli/read_text.h"

#include <utility>

#include "core/files.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/utf8.h"

namespace kvgauge {

std::string WellFormed(std::string text, std::string_view where) {
  const size_t first = FindInvalidUtf8(text);
  if (first == std::string::npos) return text;
  int64_t stretches = 0;
  for (std::string_view left = text; !left.empty();) {
    const Utf8Start start = ReadUtf8(left);
    stretches += start.complete ? 0 : 1;
    left.remove_prefix(start.width);
  }
  LogWarning(StrCat(where, ": not UTF-8 at byte ", first, "; ", WithCommas(stretches),
                    stretches == 1 ? " ill-formed stretch was" : " ill-formed stretches were",
                    " replaced by U+FFFD"));
  return RepairUtf8(text);
}

Result<std::string> ReadTextFile(const std::string& path) {
  KVG_ASSIGN(std::string text, ReadFile(path));
  return WellFormed(std::move(text), path);
}

}  // namespace kvgauge
