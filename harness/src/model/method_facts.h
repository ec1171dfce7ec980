// SPDX-License-Identifier: Apache-2.0
// What `kvgauge methods` says about methods, and the page docs/methods.md made of it.
#pragma once

#include <string>
#include <vector>

#include "methods/method.h"
#include "src/model/method_field.h"

namespace kvgauge {

// "score.snapkv reduce.top_k store.plain"
std::string StageNames(const Method& method);
// What a prefill or a decode step must capture, in words.
std::vector<std::string> SignalNames(const Needs& needs);
// The method's own departures from its reference, then those of its stages.
std::vector<std::string> AllDepartures(const Method& method);

// Markdown: a table for each family, then the field, then the departures. `methods` is sorted by
// id.
std::string MethodsPage(const std::vector<Method>& methods, const std::vector<FieldRow>& field);

}  // namespace kvgauge
