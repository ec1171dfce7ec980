// SPDX-License-Identifier: Apache-2.0
#include "methods/whole_heads.h"

#include <algorithm>
#include <numeric>

#include "core/strings.h"
#include "methods/split_by_weight.h"

namespace kvgauge {

Allocation HoldWhole(const AllocationInput& input, int64_t streaming,
                     const std::function<std::vector<float>()>& numbers) {
  const int64_t layers = input.shape->layers, heads = input.shape->kv_heads;
  const int64_t all = layers * heads;
  // Shorter prompts than were planned for may have less room.
  const int64_t held = std::min(input.per_head, std::max(streaming, input.protected_entries));
  const int64_t whole = CountWhole(all, all * input.per_head, input.length, held);
  Allocation allocation(static_cast<size_t>(layers),
                        std::vector<int64_t>(static_cast<size_t>(heads), input.length));
  if (whole == all) return allocation;
  const std::vector<float> of_heads = numbers();
  std::vector<size_t> order(of_heads.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return of_heads[a] < of_heads[b]; });
  order.resize(static_cast<size_t>(all - whole));
  for (const size_t head : order) {
    allocation[head / static_cast<size_t>(heads)][head % static_cast<size_t>(heads)] = held;
  }
  return allocation;
}

Status CheckHoldWhole(const AllocationInput& input, int64_t streaming) {
  const int64_t held = std::max(streaming, input.protected_entries);
  if (input.per_head >= std::min(input.length, held)) return {};
  return BadInput(StrCat("streaming heads hold ", held, " entries, and the budget gives ",
                         input.per_head, " of ", input.length,
                         "; raise it or lower allocate.streaming"));
}

}  // namespace kvgauge
