// SPDX-License-Identifier: Apache-2.0
// What conformance tests of prompts with pictures and videos share.
#pragma once

#include <memory>

#include "conformance/scene.h"
#include "methods/condensing_thin.h"
#include "support/compare.h"
#include "support/visual_rows.h"

namespace kvgauge {

// A model whose positions are those of text, as LLaVA's, one whose positions have three axes, as
// Qwen's, and one whose pictures see all of themselves and whose layers turn in two ways, as
// Gemma's.
inline const char* const kVisualKinds[] = {"gqa", "three_axes", "gemma"};

// 20 tokens, a picture of 8 lines of 9 with line ends, 10 tokens, a video of 3 times of 4 x 5 and
// its end, 39 tokens.
inline EngineSample VisualSample(uint64_t seed, int64_t new_tokens = 5) {
  constexpr int64_t kWidth = 64;  // of the tiny models
  EngineSample sample = Sample(kPromptTokens, seed, new_tokens);
  VisualSpan picture;
  picture.first = 20;
  picture.count = 72;
  picture.grid = {1, 8, 8};
  picture.newlines = true;
  VisualSpan video;
  video.first = 102;
  video.count = 60;
  video.modality = Modality::kVideo;
  video.piece = VisualSpan::Piece::kFrames;
  video.grid = {3, 4, 5};
  video.embedding_row = 72;
  VisualSpan end = video;
  end.piece = VisualSpan::Piece::kNewline;
  end.first = 162;
  end.count = 1;
  end.grid = {1, 1, 1};
  end.embedding_row = 132;
  sample.turns[0].spans = {picture, video, end};
  sample.visuals = VisualsOf(RandomValues(133 * kWidth, seed + 1, 1.0f), kWidth);
  return sample;
}

// Whether the method cannot read prompts with pictures.
inline bool ReadsTextAlone(const Method& method) {
  const std::unique_ptr<Stage> thin = method.thin ? MakeStage(*method.thin) : nullptr;
  return method.reuse || dynamic_cast<const CondensingThin*>(thin.get()) != nullptr ||
         ReadsByEncoder(method);
}

}  // namespace kvgauge
