// SPDX-License-Identifier: Apache-2.0
#include "src/known_scope.h"

#include <vector>

#include "core/near_names.h"
#include "core/strings.h"

namespace kvgauge {

std::string AskedAndKnown(const GateScope& asked, const KnownScope& known) {
  std::vector<std::string> words, lists;
  const auto add = [&](const std::string& name, const char* kind, const char* kinds,
                       const std::set<std::string>& there) {
    if (name.empty()) return;
    const std::vector<std::string> names(there.begin(), there.end());
    words.push_back(StrCat(kind, Quoted(name), DidYouMean(name, names)));
    lists.push_back(StrCat(kinds, Join(names, ", ")));
  };
  add(asked.task, "task ", "tasks ", known.tasks);
  add(asked.model, "model ", "models ", known.models);
  add(asked.compress_at, "compressed at ", "compressed at ", known.places);
  return StrCat(Join(words, ", "), "; there is: ", Join(lists, "; "));
}

}  // namespace kvgauge
