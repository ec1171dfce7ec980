// SPDX-License-Identifier: Apache-2.0
// docs/reproductions.md, made of the packs.
#pragma once

#include <string>
#include <vector>

#include "src/papers/pack.h"

namespace kvgauge {

std::string ReproductionsPage(const std::vector<Paper>& papers);

}  // namespace kvgauge
