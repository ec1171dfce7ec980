// SPDX-License-Identifier: Apache-2.0
// The main tables of the report, for a terminal, Markdown and files: the same numbers as the page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "reports/report.h"

namespace kvgauge {

struct ReportCell {
  std::string text;                   // for people; "": unknown
  std::optional<double> number = {};  // the same for programs, if it is a number
};

struct ReportColumn {
  std::string name;
  bool number = true;
};

struct ReportTable {
  std::string id, title;
  std::vector<ReportColumn> columns;
  std::vector<std::vector<ReportCell>> rows;
};

// Groups of tasks, tasks, bytes by kind, times, capacity, speculation; each only where the store
// holds anything of it.
Result<std::vector<ReportTable>> MakeReportTables(ResultStore& store,
                                                  const ReportOptions& options = {});

}  // namespace kvgauge
