// SPDX-License-Identifier: Apache-2.0
#include "src/compress/chunk_checks.h"

#include <algorithm>

#include "core/strings.h"

namespace kvgauge {

Status CheckEvenHeads(const LayerView& view, const Method& method, const Scorer& score) {
  const auto [least, most] = std::minmax_element(view.lengths().begin(), view.lengths().end());
  if (*least == *most || score.takes_uneven()) return {};
  return Unsupported(StrCat(NameOf(*method.score->spec),
                            " takes heads that hold as many entries, and ",
                            NameOf(*method.reduce->spec), " left those of layer ", view.layer(),
                            " ", *least, " to ", *most, "; use compress_at prompt"));
}

Result<bool> StoresNumbers(const Method& method, const Store& store, const ModelShape& shape) {
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    KVG_ASSIGN(const StorePlan plan, store.Plan(shape, layer));
    if (!plan.layout->traits().plain) return false;
    const bool turned = plan.turn.position == PositionPolicy::kSlot;
    if (!turned || method.needs().query_moments.empty()) continue;
    return Unsupported(StrCat(NameOf(*method.score->spec),
                              " turns queries back by their positions, and ",
                              NameOf(*method.store->spec),
                              " turns those of later chunks by their places in the cache; use "
                              "compress_at prompt, or store.position original"));
  }
  return true;
}

}  // namespace kvgauge
