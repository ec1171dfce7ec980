// SPDX-License-Identifier: Apache-2.0
// The twin of pages of records (kernels/kv_codec.h), one number after the other.
#pragma once

#include <vector>

#include "kernels/kv_codec.h"

namespace kvgauge {

int64_t ReferenceRecordPageBytes(const KvCodec& codec);
// Entries [begin, begin + rows.size()) of a page.
void EncodeReferenceRecords(const KvCodec& codec, const std::vector<std::vector<float>>& rows,
                            int64_t begin, void* page);
std::vector<float> DecodeReferenceRecord(const KvCodec& codec, const void* page, int64_t entry);

}  // namespace kvgauge
