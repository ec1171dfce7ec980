// SPDX-License-Identifier: Apache-2.0
#include "methods/shared_numbers.h"

#include <map>
#include <mutex>

namespace kvgauge {

SharedNumbersPtr SharedNumbers(const std::string& words,
                               const std::function<std::vector<float>()>& make) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const std::vector<float>>> known;
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& one) { return one.second.expired(); });
  auto& slot = known[words];
  if (SharedNumbersPtr held = slot.lock()) return held;
  auto fresh = std::make_shared<const std::vector<float>>(make());
  slot = fresh;
  return fresh;
}

}  // namespace kvgauge
