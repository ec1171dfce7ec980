// SPDX-License-Identifier: Apache-2.0
#include "src/results/report_command.h"

#include <filesystem>
#include <memory>

#include "core/files.h"
#include "core/strings.h"
#include "reports/report.h"
#include "src/cli/print.h"
#include "src/results/open_stores.h"
#include "src/results/set_scores.h"

namespace kvgauge {
Status RunReport(const ReportFlags& flags) {
  const size_t wanted = flags.compare ? 2 : 1;
  if (flags.stores.size() != wanted) {
    return BadInput(
        flags.compare
            ? StrCat("--compare takes two databases, the baseline first; got ", flags.stores.size())
            : StrCat("got ", flags.stores.size(),
                     " databases; one makes a report, two need "
                     "--compare, and `kvgauge merge` makes one of several"));
  }
  if (!flags.margins.empty() && !flags.compare) {
    return BadInput("--margins goes with --compare; the leaderboard's own is --margin");
  }
  std::string out = flags.out;
  if (out.empty()) {
    out = std::filesystem::path(flags.stores.back()).replace_extension(".html").string();
  }
  for (const std::string& path : flags.stores) {
    std::error_code ignored;
    if (std::filesystem::equivalent(path, out, ignored)) {
      return BadInput(StrCat("--out ", out, " is the database itself; name another file"));
    }
  }
  ReportOptions options;
  options.leaderboard.margin = flags.margin / 100;
  options.leaderboard.set_scores = KnownSetScores();
  options.max_answers = flags.max_answers;
  options.max_text_bytes = flags.max_text_bytes;
  options.title = flags.title;
  std::string html;
  KVG_ASSIGN(const auto first, OpenForReading(flags.stores[0]));
  if (flags.compare) {
    GateMargins margins;
    if (!flags.margins.empty()) {
      KVG_ASSIGN(margins, ReadGateMargins(flags.margins));
    }
    KVG_ASSIGN(const auto second, OpenForReading(flags.stores[1]));
    KVG_ASSIGN(html, RenderComparison(*first, *second, margins, options));
  } else {
    KVG_ASSIGN(html, RenderReport(*first, options));
  }
  KVG_TRY(WriteFile(out, html));
  Print(StrCat("wrote ", out, ", ", HumanBytes(static_cast<int64_t>(html.size())), "\n"));
  return {};
}

}  // namespace kvgauge
