// SPDX-License-Identifier: Apache-2.0
// When entries of a stream, the keys or the values of one owner, are coded; and what that costs.
#pragma once

#include <cstdint>

#include "kernels/kv_codec.h"

namespace kvgauge {

// Always the oldest first.
struct SealRule {
  int64_t unit = 1;         // so many at a time; a multiple of SealUnit(codec)
  int64_t keep_recent = 0;  // so many newest entries stay as they are, after all full units
};
// Seals whatever full units there are, beyond the newest `keep_recent` entries.
SealRule SealWhole(const KvCodec& codec, int64_t keep_recent = 0);

// Logical bytes of `entries` entries of which the first `sinks` are never coded. Outliers are
// counted as their share.
double StreamBytes(const KvCodec& codec, const SealRule& seal, int64_t sinks, int64_t entries);
// Bytes to plan for, as StoreLayout::PlannedLayerBytes; 4 bytes of position an entry included.
int64_t PlannedStreamBytes(const KvCodec& codec, const SealRule& seal, int64_t sinks,
                           int64_t entries, int64_t fresh);

}  // namespace kvgauge
