// SPDX-License-Identifier: Apache-2.0
// Entries that rows may join (Dynamic Memory Compression): a model that decides, for each row and
// KV head, whether the row makes an entry of its own or is averaged into the head's newest one.
#pragma once

#include <cstdint>

namespace kvgauge {

// The last number of a row's key decides: where it is above `offset`, the row joins the head's
// newest entry. The mean of the last numbers of the head's queries weighs the row: sigmoid(mean +
// offset) + 2^-7. Attention sees 0 in the place of both. An entry is the weighted mean of its last
// `window` rows at most, keys before rotation; it turns by the position of the newest of them. A
// row sees entries as they stood at it.
struct EntryMeans {
  bool merges = true;  // false: no row joins another, and attention sees 0 all the same
  float offset = 5.0f;
  int64_t window = 12;

  // f32 numbers that a layer keeps for a sequence beside its entries: keys, values and weights of
  // the rows that may still count in a mean, then how many rows the newest entry of each head has.
  int64_t numbers(int64_t kv_heads, int64_t key_dim, int64_t value_dim) const {
    return kv_heads * ((window - 1) * (key_dim + value_dim + 1) + 1);
  }
};

}  // namespace kvgauge
