// SPDX-License-Identifier: Apache-2.0
// The page's style sheet and script, reports/html/, embedded by the build.
#pragma once

#include <string_view>

namespace kvgauge::report {

extern const std::string_view kReportCss;
extern const std::string_view kReportJs;

}  // namespace kvgauge::report
