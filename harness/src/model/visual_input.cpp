// SPDX-License-Identifier: Apache-2.0
#include "src/model/visual_input.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/clock.h"
#include "core/files.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "images/frames.h"
#include "images/video_file.h"
#include "src/model/shipped_files.h"

namespace kvgauge {
namespace {

constexpr int64_t kMostPictureBytes = int64_t{1} << 28;

Result<Preprocessor> ReadPreprocessorFile(const std::string& path) {
  KVG_ASSIGN(const Json json, ReadJsonFile(path));
  return ReadPreprocessor(json, path);
}

// The class of a video processor where its file names none, or there is only the pictures' file.
std::string VideoClassOf(const std::string& family) {
  if (family == "internvl") return "InternVLVideoProcessor";
  if (family == "llava_next_video") return "LlavaNextVideoVideoProcessor";
  if (family == "llava_onevision") return "LlavaOnevisionVideoProcessor";
  if (family == "qwen3_vl") return "Qwen3VLVideoProcessor";
  if (family == "smolvlm") return "SmolVLMVideoProcessor";
  return "Qwen2VLVideoProcessor";
}

Result<Preprocessor> ReadFramePreprocessor(const std::string& model, const std::string& family) {
  std::string path = model + "/video_preprocessor_config.json";
  if (!FileExists(path)) path = model + "/preprocessor_config.json";
  KVG_ASSIGN(const Json json, ReadJsonFile(path));
  return ReadVideoPreprocessor(json, VideoClassOf(family), path);
}

Result<PixelValues> FramePixels(const Preprocessor& preprocessor,
                                const std::vector<Image>& frames) {
  if (preprocessor.kind == PreprocessKind::kPatches) return PreprocessVideo(preprocessor, frames);
  PixelValues all;
  for (const Image& frame : frames) {
    KVG_ASSIGN(PixelValues one, Preprocess(preprocessor, frame));
    if (all.tiles == 0) {
      all = std::move(one);
      continue;
    }
    all.tiles += one.tiles;
    all.values.insert(all.values.end(), one.values.begin(), one.values.end());
  }
  return all;
}

struct VideoFrames {
  std::vector<Image> images;
  std::vector<double> seconds;
  double duration_s = 0;
  std::string decoder;  // of a file of a video
};

// By its first bytes: the whole of a video may be larger than a picture.
bool IsGif(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string head(16, '\0');
  file.read(head.data(), std::ssize(head));
  head.resize(static_cast<size_t>(file.gcount()));
  return SniffImageFormat(head) == ImageFormat::kGif;
}

Result<VideoFrames> ReadVideo(const std::string& path, const VisualFlags& flags) {
  VideoFrames video;
  KVG_ASSIGN(const FrameRule rule, ParseFrameRule(flags.frame_rule, flags.frames));
  std::vector<int64_t> indices;
  int64_t total = 0;
  double fps = flags.video_fps;
  if (DirectoryExists(path)) {
    KVG_ASSIGN(const FrameFolder folder, OpenFrameFolder(path));
    if (fps == 0) fps = folder.fps;
    total = folder.total;
    KVG_ASSIGN(indices, ChooseFrames(rule, total, fps));
    KVG_ASSIGN(video.images, ReadFrames(folder, indices));
  } else if (!IsGif(path)) {
    KVG_ASSIGN(const VideoFile file, OpenVideoFile(path));
    if (fps == 0) fps = file.fps;
    total = file.total;
    video.decoder = file.decoder;
    KVG_ASSIGN(indices, ChooseFrames(rule, total, fps));
    KVG_ASSIGN(video.images, ReadVideoFrames(file, indices));
  } else {
    KVG_ASSIGN(const std::string bytes, ReadFile(path, kMostPictureBytes));
    KVG_ASSIGN(const std::vector<Image> frames, DecodeGifFrames(bytes, path));
    total = std::ssize(frames);
    KVG_ASSIGN(indices, ChooseFrames(rule, total, fps));
    for (const int64_t index : indices) video.images.push_back(frames[static_cast<size_t>(index)]);
  }
  if (fps > 0) {
    for (const int64_t index : indices) video.seconds.push_back(static_cast<double>(index) / fps);
    video.duration_s = static_cast<double>(total) / fps;
  }
  return video;
}

// The hash of what is seen, whatever file or folder it came from.
std::string HashOf(const std::vector<Image>& frames) {
  Sha256 hash;
  for (const Image& frame : frames) {
    const int32_t sides[] = {frame.width, frame.height};
    hash.Update(sides, sizeof sides);
    hash.Update(frame.rgb.data(), frame.rgb.size());
  }
  return hash.Finish();
}

std::string_view NameOf(VisualSpan::Piece piece) {
  switch (piece) {
    case VisualSpan::Piece::kWhole:
      return "whole";
    case VisualSpan::Piece::kTile:
      return "tile";
    case VisualSpan::Piece::kCanvas:
      return "canvas";
    case VisualSpan::Piece::kFrames:
      return "frames";
    case VisualSpan::Piece::kNewline:
      return "newline";
  }
  return "";
}

int64_t Occurrences(const std::string& text, const std::string& mark) {
  int64_t count = 0;
  for (size_t at = 0; !mark.empty() && (at = text.find(mark, at)) != std::string::npos;
       at += mark.size()) {
    ++count;
  }
  return count;
}

}  // namespace

Result<Preprocessor> ReadPicturePreprocessor(const std::string& model) {
  return ReadPreprocessorFile(model + "/preprocessor_config.json");
}

Result<std::unique_ptr<VisionTower>> LoadTower(const ModelFlags& flags, Ops& ops, bool behind) {
  KVG_ASSIGN(const ModelOptions options, ParseModelOptions(flags));
  return VisionTower::Load(
      flags.model, {.dtype = options.dtype, .random_seed = options.random_seed, .behind = behind},
      ops);
}

uint64_t SeedOfPicture(const std::string& hash) {
  uint64_t seed = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : hash) seed = (seed ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return seed;
}

int64_t VisualInput::rows() const {
  int64_t rows = 0;
  for (const ShownVisual& visual : shown) rows += visual.layout.rows;
  return rows;
}

namespace {

// One more picture of `count` together: `bytes` are its file's, and `name` stands in messages.
Status AddPicture(const Preprocessor& preprocessor, const std::string& bytes,
                  const std::string& name, int64_t count, VisualInput& input) {
  KVG_ASSIGN(const Image image, DecodeImage(bytes, name));
  Result<PixelValues> pixels = Preprocess(preprocessor, image, count);
  if (!pixels.ok()) return pixels.error().Wrap(name);
  Result<VisualLayout> layout = LayOutVisual(input.spec, *pixels, Modality::kImage);
  if (!layout.ok()) return layout.error().Wrap(name);
  input.shown.push_back({.modality = Modality::kImage, .layout = *std::move(layout)});
  input.pixels.push_back(*std::move(pixels));
  input.hashes.push_back(Sha256Hex(bytes));
  return {};
}

}  // namespace

Result<VisualInput> ReadVisualInput(const VisualFlags& flags, const std::string& model,
                                    const ModelConfig& config) {
  VisualInput input;
  if (flags.images.empty() && flags.videos.empty()) return input;
  KVG_ASSIGN(std::optional<VisionSpec> spec, ReadVisionConfig(model));
  if (!spec || config.vision_family.empty()) {
    return BadInput(StrCat(config.path, ": ", config.family, " is a text model, so ",
                           flags.images.empty() ? flags.videos[0] : flags.images[0],
                           " cannot be shown to it"));
  }
  input.spec = *std::move(spec);
  if (!flags.videos.empty() && !ShowsVideos(config)) {
    return Unsupported(StrCat(config.path, ": ", config.vision_family, " shows no videos, so ",
                              flags.videos[0],
                              " cannot be shown to it; --image shows it single frames"));
  }
  if (!flags.images.empty()) {
    KVG_ASSIGN(const Preprocessor preprocessor, ReadPicturePreprocessor(model));
    // One decoded picture at a time.
    for (const std::string& path : flags.images) {
      KVG_ASSIGN(const std::string bytes, ReadFile(path, kMostPictureBytes));
      KVG_TRY(AddPicture(preprocessor, bytes, path, std::ssize(flags.images), input));
    }
  }
  if (flags.videos.empty()) return input;
  KVG_ASSIGN(const Preprocessor frames, ReadFramePreprocessor(model, input.spec.family));
  for (const std::string& path : flags.videos) {
    KVG_ASSIGN(VideoFrames video, ReadVideo(path, flags));
    input.hashes.push_back(HashOf(video.images));
    Result<PixelValues> pixels = FramePixels(frames, video.images);
    if (!pixels.ok()) return pixels.error().Wrap(path);
    Result<VisualLayout> layout = LayOutVisual(input.spec, *pixels, Modality::kVideo);
    if (!layout.ok()) return layout.error().Wrap(path);
    input.shown.push_back({.modality = Modality::kVideo,
                           .layout = *std::move(layout),
                           .frame_seconds = std::move(video.seconds),
                           .duration_s = video.duration_s});
    input.pixels.push_back(*std::move(pixels));
    if (!video.decoder.empty()) input.decoder = std::move(video.decoder);
  }
  return input;
}

Result<std::string> RenderWithVisuals(const ChatTemplate& chat, const ModelConfig& config,
                                      const Tokenizer& tokenizer, const std::string& system,
                                      const std::string& text, const VisualInput& input) {
  KVG_ASSIGN(const VisualMarks marks, MarksOf(config, tokenizer));
  const bool placed = Occurrences(text, marks.image) + Occurrences(text, marks.video) > 0;
  Json parts = Json::array();
  std::string plain;
  if (!placed) {
    for (const ShownVisual& visual : input.shown) {
      const bool video = visual.modality == Modality::kVideo;
      parts.push_back({{"type", video ? "video" : "image"}});
      plain += (video ? marks.video : marks.image) + "\n";
    }
  }
  plain += text;
  std::string rendered = plain;
  if (!chat.none()) {
    parts.push_back({{"type", "text"}, {"text", text}});
    Json messages = Json::array();
    if (!system.empty()) {
      messages.push_back({{"role", "system"}, {"content", {{{"type", "text"}, {"text", system}}}}});
    }
    messages.push_back({{"role", "user"}, {"content", parts}});
    KVG_ASSIGN(rendered, chat.RenderJson(messages.dump(), {}, true));
  }
  return ExpandVisuals(config, tokenizer, rendered, input.shown);
}

Prompt VisualPrompt::Of(const ModelConfig& config) const {
  if (visuals == nullptr) return Prompt::FromTokens(ids);
  Prompt prompt;
  visuals->ShowIn(prompt);
  prompt.Append(ids, spans, config.rope && !config.rope->sections.empty());
  return prompt;
}

Status CheckPlaceholders(const VisualInput& input, const ModelConfig& config,
                         const std::vector<int32_t>& ids) {
  if (input.empty()) return {};
  const Result<std::vector<VisualSpan>> spans = PlaceVisuals(config, ids, input.shown);
  return spans.ok() ? Status() : Status(spans.error());
}

namespace {

// All of it, in order. Precondition: it is not empty.
Result<std::vector<VisualFeatures>> EncodeAll(const VisualInput& input, VisionTower& tower,
                                              const See* see) {
  std::vector<uint64_t> seeds;
  for (const std::string& hash : input.hashes) seeds.push_back(SeedOfPicture(hash));
  std::vector<VisualFeatures> all;
  // Those of one modality run together; pictures come first.
  for (const Modality modality : {Modality::kImage, Modality::kVideo}) {
    const size_t begin = all.size();
    size_t end = begin;
    while (end < input.shown.size() && input.shown[end].modality == modality) ++end;
    if (begin == end) continue;
    KVG_ASSIGN(std::vector<VisualFeatures> features,
               tower.Encode(std::span(input.pixels).subspan(begin, end - begin), modality, nullptr,
                            see, std::span(seeds).subspan(begin, end - begin)));
    std::ranges::move(features, std::back_inserter(all));
  }
  return all;
}

}  // namespace

Result<VisualPrompt> EncodeVisuals(const VisualInput& input, const VisualFlags& flags,
                                   const ModelFlags& model, const LoadedModel& loaded,
                                   std::vector<int32_t> ids, const See* see) {
  VisualPrompt prompt;
  prompt.ids = std::move(ids);
  if (input.empty()) return prompt;
  const ModelConfig& config = loaded.model->config();
  const VideoPositions positions = {.next_by_sides = flags.video_next == "sides",
                                    .whole_seconds = flags.video_seconds == "whole"};
  KVG_ASSIGN(prompt.spans, PlaceVisuals(config, prompt.ids, input.shown, positions));
  KVG_ASSIGN(const std::unique_ptr<VisionTower> tower,
             LoadTower(model, *loaded.ops, see != nullptr && see->sees().behind));
  const double start = NowSeconds();
  KVG_ASSIGN(const std::vector<VisualFeatures> features, EncodeAll(input, *tower, see));
  prompt.vision_s = NowSeconds() - start;
  prompt.decoder = input.decoder;
  std::vector<const VisualFeatures*> all;
  std::vector<SeenVisual> seen;
  for (const VisualFeatures& one : features) {
    all.push_back(&one);
    seen.push_back({one.layout.rows, one.places});
  }
  prompt.visuals = JoinRows(all, input.spec.hidden_size);
  if (see != nullptr) {
    ShowLess(seen, prompt.ids, prompt.spans);
    prompt.unseen = input.rows() - prompt.visual_tokens();
  }
  return prompt;
}

std::shared_ptr<const SampleVisuals> JoinRows(std::span<const VisualFeatures* const> features,
                                              int64_t hidden_size) {
  auto visuals = std::make_shared<SampleVisuals>();
  visuals->hidden_size = hidden_size;
  size_t numbers = 0;
  for (const VisualFeatures* one : features) numbers += one->rows.size();
  visuals->rows.reserve(numbers);
  for (const VisualFeatures* one : features) {
    visuals->rows.insert(visuals->rows.end(), one->rows.begin(), one->rows.end());
    visuals->deepstack.resize(one->deepstack.size());
    for (size_t i = 0; i < one->deepstack.size(); ++i) {
      std::vector<float>& layer = visuals->deepstack[i];
      layer.insert(layer.end(), one->deepstack[i].begin(), one->deepstack[i].end());
    }
  }
  return visuals;
}

Json SpansJson(const std::vector<VisualSpan>& spans) {
  Json list = Json::array();
  for (const VisualSpan& span : spans) {
    Json one = {{"first", span.first},
                {"count", span.count},
                {"modality", span.modality == Modality::kVideo ? "video" : "image"},
                {"index", span.index},
                {"piece", NameOf(span.piece)},
                {"frame", span.frame},
                {"grid", span.grid},
                {"newlines", span.newlines}};
    if (span.tile_row >= 0) one["tile"] = {span.tile_row, span.tile_column};
    list.push_back(one);
  }
  return list;
}

}  // namespace kvgauge
