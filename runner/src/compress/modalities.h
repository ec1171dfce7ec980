// SPDX-License-Identifier: Apache-2.0
// What a cache holds of text, pictures and videos around its compression, for prompts with
// pictures.
#pragma once

#include <vector>

#include "runner/compressor.h"

namespace kvgauge {

class ModalityCounts {
 public:
  // The cache as it is before it is compressed. `capture` may lack the last row: then attention is
  // 0. `thinned`: rows may have left the prefill, and all of the prompt counts as entries before.
  void Begin(const KvCache& cache, const Prompt& prompt, const PrefillCapture* capture, Ops& ops,
             bool thinned);
  // By layer; nothing for a prompt without pictures. `cache` is compressed.
  void Finish(const KvCache& cache, const Prompt& prompt,
              std::vector<std::array<ModalityRecord, kModalities>>& record);

 private:
  struct Layer {
    std::array<ModalityRecord, kModalities> of = {};
    std::vector<std::vector<float>> attention;  // [kv_heads] by position; or empty
  };
  std::vector<Layer> layers_;
};

}  // namespace kvgauge
