// SPDX-License-Identifier: Apache-2.0
// Which metrics take words for what stands between blanks, and so score nothing in Chinese.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct EnglishMetric {
  std::string name;
  std::string chinese;  // the metric that does the same with Chinese; "": there is none
};
const std::vector<EnglishMetric>& EnglishMetrics();

// An error where the metric is for another language than a line of predictions says. Languages
// other than English and Chinese ("python") are left alone.
Status CheckLanguage(const std::string& metric, const std::string& language);

}  // namespace kvgauge
