// SPDX-License-Identifier: Apache-2.0
#include "core/strings.h"
#include "reports/report.h"
#include "src/report/sections.h"

namespace kvgauge {

Result<std::string> RenderComparison(ResultStore& baseline, ResultStore& candidate,
                                     const GateMargins& margins, const ReportOptions& options) {
  KVG_ASSIGN(const GateReport gate, CompareStores(baseline, candidate, margins));
  report::Html body;
  body.Put("{}", {gate.lines.size()});
  return report::WrapPage(options.title, {}, body);
}

}  // namespace kvgauge
