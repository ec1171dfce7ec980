// SPDX-License-Identifier: Apache-2.0
#include "methods/shared_numbers.h"

#include <deque>
#include <map>
#include <mutex>

namespace kvgauge {

SharedNumbersPtr SharedNumbers(const std::string& words,
                               const std::function<std::vector<float>()>& make) {
  constexpr size_t kMostNumbers = size_t{4} << 20;  // of those that nobody may use: 16 MiB
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const std::vector<float>>> known;
  static std::deque<SharedNumbersPtr> recent;
  static size_t numbers = 0;
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& one) { return one.second.expired(); });
  auto& slot = known[words];
  if (SharedNumbersPtr held = slot.lock()) return held;
  auto fresh = std::make_shared<const std::vector<float>>(make());
  slot = fresh;
  recent.push_back(fresh);
  for (numbers += fresh->size(); numbers > kMostNumbers; recent.pop_front()) {
    numbers -= recent.front()->size();
  }
  return fresh;
}

}  // namespace kvgauge
