// SPDX-License-Identifier: Apache-2.0
// What every store starts from.
#pragma once

#include "methods/stages.h"

namespace kvgauge {

// Keys and values as they are, in the cache's type; sides and dims are filled in.
StorePlan UncodedPlan(const ModelShape& shape);
// Seals whatever full units there are, beyond the newest `keep_recent` entries.
SealRule SealWhole(const KvCodec& codec, int64_t keep_recent = 0);

}  // namespace kvgauge
