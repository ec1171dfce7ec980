// SPDX-License-Identifier: Apache-2.0
#include "src/compress/modalities.h"

#include <cmath>

namespace kvgauge {
namespace {

size_t ModalityAt(const Prompt& prompt, int32_t position) {
  return static_cast<size_t>(prompt.positions[static_cast<size_t>(position)].modality);
}

}  // namespace

void ModalityCounts::Begin(const KvCache& cache, const Prompt& prompt,
                           const PrefillCapture* capture, Ops& ops, bool thinned) {
  layers_.clear();
  if (prompt.spans.empty()) return;
  for (int64_t l = 0; l < cache.layer_count(); ++l) {
    const int64_t heads = cache.kv_heads(l);
    Layer& layer = layers_.emplace_back();
    std::vector<float> row;
    int64_t query_heads = 0, width = 0;
    if (capture != nullptr && capture->has_last_row(l)) {
      const Tensor last = capture->LastRow(l);
      query_heads = last.shape[0];
      width = last.shape[1];
      row.resize(static_cast<size_t>(last.Numel()));
      ops.memory->Copy(last, View(row, {query_heads, width}));
      ops.memory->Synchronize();
    }
    if (thinned) {
      for (const PromptPosition& position : prompt.positions) {
        layer.of[static_cast<size_t>(position.modality)].entries_before += heads;
      }
    }
    for (int64_t h = 0; h < heads; ++h) {
      const std::vector<int32_t> positions = cache.Positions(l, h);
      std::vector<float>& by_position = layer.attention.emplace_back();
      if (!row.empty()) by_position.resize(static_cast<size_t>(cache.tokens()));
      for (size_t entry = 0; entry < positions.size(); ++entry) {
        ModalityRecord& of = layer.of[ModalityAt(prompt, positions[entry])];
        of.entries_before += thinned ? 0 : 1;
        if (row.empty()) continue;
        double sum = 0;
        const int64_t group = query_heads / heads;
        for (int64_t q = h * group; q < (h + 1) * group; ++q) {
          sum += double{row[static_cast<size_t>(q * width) + entry]};
        }
        sum /= static_cast<double>(query_heads);
        of.attention += sum;
        by_position[static_cast<size_t>(positions[entry])] = static_cast<float>(sum);
      }
    }
  }
}

void ModalityCounts::Finish(const KvCache& cache, const Prompt& prompt,
                            std::vector<std::array<ModalityRecord, kModalities>>& record) {
  record.clear();
  for (size_t l = 0; l < layers_.size(); ++l) {
    Layer& layer = layers_[l];
    int64_t held = 0;
    for (size_t h = 0; h < layer.attention.size(); ++h) {
      for (const int32_t position :
           cache.Positions(static_cast<int64_t>(l), static_cast<int64_t>(h))) {
        ModalityRecord& of = layer.of[ModalityAt(prompt, position)];
        ++of.entries_after;
        ++held;
        if (layer.attention[h].empty()) continue;
        of.attention_kept += double{layer.attention[h][static_cast<size_t>(position)]};
      }
    }
    const auto bytes = static_cast<double>(cache.Bytes(static_cast<int64_t>(l)).logical());
    for (ModalityRecord& of : layer.of) {
      if (held == 0) continue;
      of.bytes =
          std::llround(bytes * static_cast<double>(of.entries_after) / static_cast<double>(held));
    }
    record.push_back(layer.of);
  }
  layers_.clear();
}

}  // namespace kvgauge
