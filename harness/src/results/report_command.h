// SPDX-License-Identifier: Apache-2.0
// `kvgauge report`: a result store as one HTML file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct ReportFlags {
  std::vector<std::string> stores;  // one; two with `compare`, the baseline first
  bool compare = false;
  std::string out;      // "": the last store's name with .html
  std::string margins;  // of a comparison: a file of the gate's; "": its defaults
  double margin = 1;    // of the leaderboard's verdicts, in points of a hundred
  int64_t max_answers = 2000;
  int64_t max_text_bytes = 2000;
  int64_t max_pictures = 1000;
  std::string title;
  std::string format = "html";  // or the main tables: "table", "markdown"
  bool json = false;            // what was written
};

Status RunReport(const ReportFlags& flags);

}  // namespace kvgauge
