// SPDX-License-Identifier: Apache-2.0
// Numbers that many plans need, such as rotations and drawn codewords: one copy for all of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace kvgauge {

using SharedNumbersPtr = std::shared_ptr<const std::vector<float>>;

// What `make` makes, or the copy that is still there of what the same words made before: as long as
// anybody holds it, and a while longer, since a run is planned once for each of its tasks.
// `words` must say everything that the numbers depend on.
SharedNumbersPtr SharedNumbers(const std::string& words,
                               const std::function<std::vector<float>()>& make);

}  // namespace kvgauge
