// SPDX-License-Identifier: Apache-2.0
// Prompts that show pictures and videos: a family's placeholders are expanded as its processor in
// transformers does, and the expanded ones are matched with rows of features. docs/vision.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "runner/config.h"
#include "runner/prompt.h"
#include "runner/tokenizer.h"
#include "runner/vision_spec.h"

namespace kvgauge {

// A picture or a video of a prompt, before it is encoded.
struct ShownVisual {
  Modality modality = Modality::kImage;
  VisualLayout layout;
  // A video: when each of its frames stands in the source, in seconds, and how long that is.
  std::vector<double> frame_seconds = {};
  double duration_s = 0;
};

// Where implementations disagree on the positions of videos. The defaults are how the models were
// trained; `spatial` and `whole` are for parity with one version of transformers.
struct VideoPositions {
  // Text follows behind the larger side of a frame, whatever the times (transformers 5.23).
  bool next_by_sides = false;
  // Seconds between two times are cut to whole ones first (transformers 4.57 to 5.2).
  bool whole_seconds = false;
};

// Whether prompts of the family hold videos; llava, llava_next, gemma3 and idefics3 see pictures
// alone.
bool ShowsVideos(const ModelConfig& config);

// The marks of a picture and a video in rendered text, before they are expanded.
struct VisualMarks {
  std::string image, video;  // empty: the family shows none
};
Result<VisualMarks> MarksOf(const ModelConfig& config, const Tokenizer& tokenizer);

// `text` with the i-th mark of a picture, and of a video, replaced by what the i-th one becomes.
// Another number of marks than of pictures is an error that names both.
Result<std::string> ExpandVisuals(const ModelConfig& config, const Tokenizer& tokenizer,
                                  const std::string& text, std::span<const ShownVisual> visuals);

// Where the rows of the visuals, one after the other, stand among `ids`: at the placeholders.
// Another number of placeholders than of rows is an error that names both.
Result<std::vector<VisualSpan>> PlaceVisuals(const ModelConfig& config,
                                             std::span<const int32_t> ids,
                                             std::span<const ShownVisual> visuals,
                                             const VideoPositions& positions = {});

// What a stage left of a picture of a prompt: as VisualFeatures has it.
struct SeenVisual {
  int64_t rows = 0;             // of its layout
  std::vector<int32_t> places;  // empty: all of them
  bool gone = false;            // none of them
};
// Takes the rows that were given up out of tokens: `spans` lie in `ids`, with embedding rows that
// count those of all visuals together, before anything was taken out. Returns where each token
// stands now; one that is gone, where it would. Precondition: the rows of a piece stay together.
std::vector<int64_t> ShowLess(std::span<const SeenVisual> visuals, std::vector<int32_t>& ids,
                              std::vector<VisualSpan>& spans);

}  // namespace kvgauge
