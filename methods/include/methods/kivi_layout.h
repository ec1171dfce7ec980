// SPDX-License-Identifier: Apache-2.0
// KIVI's layout of codes, which other stores use with their own number of bits.
#pragma once

#include <cstdint>

#include "core/result.h"
#include "methods/layouts/coded.h"

namespace kvgauge {

// An error if `group` does not divide the dims. 128 entries of a key's channel lie in two pages,
// each of which has their range; a value of fewer dims than 128 is one group.
Status CheckKiviLayout(const ModelShape& shape, int64_t group, int64_t residual);
// Keys by channel over groups of entries, `residual` of them coded at a time; values by entry over
// groups of dims, the newest `residual` left uncoded.
Coded KiviLayout(const ModelShape& shape, int key_bits, int value_bits, int64_t group,
                 int64_t residual);

}  // namespace kvgauge
