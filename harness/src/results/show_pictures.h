// SPDX-License-Identifier: Apache-2.0
// The pictures of a recorded sample for people at a terminal: how much of each patch was kept.
#pragma once

#include <string>

#include "core/json_fwd.h"
#include "reports/store.h"

namespace kvgauge {

// A map for each picture, several side by side; "" where the sample shows none or it is not known
// what. `whole`: all of them, instead of those with the answer and the first ones.
std::string PictureMaps(const SampleRow& row, bool whole, bool colour);
Json PicturesToJson(const SampleRow& row);

}  // namespace kvgauge
