// SPDX-License-Identifier: Apache-2.0
// Entries of all heads side by side, a token a row, for layouts that code tokens and not heads.
#pragma once

#include <cstdint>
#include <vector>

#include "src/cache/layer_entries.h"

namespace kvgauge {

// Numbers of one token's row: [kv_heads * dim].
int64_t TokenWidth(const LayerEntries& entries, KvSide side);

// Entries [first, end) on the host: [end - first][TokenWidth], f32.
std::vector<float> ReadTokenRows(const LayerEntries& entries, KvSide side, int64_t first,
                                 int64_t end);

// Appends `rows`, as ReadTokenRows gives them, to the streams of the heads.
Status AppendTokenRows(const LayerEntries& entries, const std::vector<float>& rows, KvSide side,
                       std::vector<Stream>& streams);

}  // namespace kvgauge
