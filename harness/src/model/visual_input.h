// SPDX-License-Identifier: Apache-2.0
// Pictures and videos that flags name, from files to rows that a prompt shows.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "images/preprocess.h"
#include "runner/chat_template.h"
#include "runner/engine.h"
#include "runner/vision.h"
#include "runner/visual_prompt.h"
#include "src/cli/commands.h"
#include "src/model/model_flags.h"

namespace kvgauge {

// Pixels that are held before or on their way to the tower, beyond those of one picture.
inline constexpr int64_t kPixelBytesInFlight = int64_t{1} << 26;

int64_t PixelBytes(const PixelValues& pixels);
// Hidden states of a picture, about: to fill a batch of the tower.
int64_t TowerRows(const VisionSpec& spec, const PixelValues& pixels);

// Looked at once and counted; nothing is encoded yet.
struct VisualInput {
  VisionSpec spec;
  // Pictures in the order of the flags, then videos.
  std::vector<ShownVisual> shown;
  // Pixels of each as far as few bytes are held; else empty, and `load` makes them again, or
  // says that the file changed.
  std::vector<PixelValues> held;
  std::vector<std::function<Result<PixelValues>()>> load;
  int64_t held_bytes = 0;
  std::string decoder;              // that files of videos went through; "": none did
  std::vector<std::string> hashes;  // of their content

  bool empty() const { return shown.empty(); }
  int64_t rows() const;
};
// Empty where the flags name nothing. A picture for a text model is an error.
Result<VisualInput> ReadVisualInput(const VisualFlags& flags, const std::string& model,
                                    const ModelConfig& config);

// The tower of a model, with the weights and the dtype that the flags say.
// `behind`: with the block behind the features, for stages that look there.
Result<std::unique_ptr<VisionTower>> LoadTower(const ModelFlags& flags, Ops& ops,
                                               bool behind = false);
// Seeds the random choices about a picture, by the hash of its content.
uint64_t SeedOfPicture(const std::string& hash);

// What tells pictures how they are seen: preprocessor_config.json of a checkpoint.
Result<Preprocessor> ReadPicturePreprocessor(const std::string& model);

// A user's text with the pictures in it, rendered: at the text's own marks, or else before it.
Result<std::string> RenderWithVisuals(const ChatTemplate& chat, const ModelConfig& config,
                                      const Tokenizer& tokenizer, const std::string& system,
                                      const std::string& text, const VisualInput& input);

// A prompt of tokens and what its pictures became.
struct VisualPrompt {
  std::vector<int32_t> ids;
  std::vector<VisualSpan> spans;
  std::shared_ptr<const SampleVisuals> visuals;  // null where there are no pictures
  double vision_s = 0;                           // of the tower and its projector
  std::string decoder;                           // as of VisualInput
  int64_t unseen = 0;  // rows of the pictures that a stage took out of the prompt

  int64_t visual_tokens() const { return visuals == nullptr ? 0 : visuals->count(); }
  Prompt Of(const ModelConfig& config) const;
};
// Before the weights are read: ids hold a placeholder for each row, where anything is shown.
Status CheckPlaceholders(const VisualInput& input, const ModelConfig& config,
                         const std::vector<int32_t>& ids);
// Runs the tower on the pictures of `ids`, a batch at a time, which takes what is held of their
// pixels; `see`, if any, reduces them.
Result<VisualPrompt> EncodeVisuals(VisualInput& input, const VisualFlags& flags,
                                   const ModelFlags& model, const LoadedModel& loaded,
                                   std::vector<int32_t> ids, const See* see = nullptr);

// The stage that the tower is given, which looks at each picture alone; null: none.
inline const See* OfPictures(const See* see) {
  return see == nullptr || see->sees().frames ? nullptr : see;
}

// The rows of pictures and videos one after the other, as the engine takes them. Nothing is copied:
// prompts that show a picture share its rows.
std::shared_ptr<const SampleVisuals> JoinRows(
    std::span<const std::shared_ptr<const VisualFeatures>> features, int64_t hidden_size);

// [{"first", "count", "modality", "index", "frame", "grid", "newlines", "piece"}]
Json SpansJson(const std::vector<VisualSpan>& spans);

}  // namespace kvgauge
