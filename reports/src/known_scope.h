// SPDX-License-Identifier: Apache-2.0
// What results there are, for the error where a scope has none of them.
#pragma once

#include <set>
#include <string>

#include "reports/gate.h"

namespace kvgauge {

struct KnownScope {
  std::set<std::string> tasks, models, places;
};

// "task 'a/b' (did you mean 'a/c'?), model 'x'; there is: tasks a/c, a/d; models y": names of each
// kind that was asked for.
std::string AskedAndKnown(const GateScope& asked, const KnownScope& known);

}  // namespace kvgauge
