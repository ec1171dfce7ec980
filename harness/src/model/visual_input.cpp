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
  const auto choose = [&]() -> Result<std::vector<int64_t>> {
    if (rule.kind == FrameRule::Kind::kRate && fps <= 0) {
      return BadInput(StrCat(path, ": says no frame rate, which --frame-rule ", flags.frame_rule,
                             " needs; expected --video-fps NUMBER, or \"fps\" in a folder's "
                             "frames.json"));
    }
    return ChooseFrames(rule, total, fps);
  };
  if (DirectoryExists(path)) {
    KVG_ASSIGN(const FrameFolder folder, OpenFrameFolder(path));
    if (fps == 0) fps = folder.fps;
    total = folder.total;
    KVG_ASSIGN(indices, choose());
    KVG_ASSIGN(video.images, ReadFrames(folder, indices));
  } else if (!IsGif(path)) {
    KVG_ASSIGN(const VideoFile file, OpenVideoFile(path));
    if (fps == 0) fps = file.fps;
    total = file.total;
    video.decoder = file.decoder;
    KVG_ASSIGN(indices, choose());
    KVG_ASSIGN(video.images, ReadVideoFrames(file, indices));
  } else {
    KVG_ASSIGN(const std::string bytes, ReadFile(path, kMostPictureBytes));
    KVG_ASSIGN(const std::vector<Image> frames, DecodeGifFrames(bytes, path));
    total = std::ssize(frames);
    KVG_ASSIGN(indices, choose());
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
  // Blocks of few bits are none of a tower's.
  const bool by_file = options.product_rows == ProductRows::kFile;
  return VisionTower::Load(flags.model,
                           {.dtype = options.dtype,
                            .random_seed = options.random_seed,
                            .behind = behind,
                            .product_rows = by_file ? ProductRows::kFile : ProductRows::kRounded},
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

Error Changed(const std::string& path) {
  return BadInput(StrCat(path, ": the file changed while it was read"));
}

// The pixels of one picture of `count` together; `hash` becomes that of its file, or must be it.
Result<PixelValues> PicturePixels(const Preprocessor& preprocessor, const std::string& path,
                                  int64_t count, std::string& hash) {
  KVG_ASSIGN(const std::string bytes, ReadFile(path, kMostPictureBytes));
  std::string own = Sha256Hex(bytes);
  if (!hash.empty() && hash != own) return Changed(path);
  hash = std::move(own);
  KVG_ASSIGN(const Image image, DecodeImage(bytes, path));
  Result<PixelValues> pixels = Preprocess(preprocessor, image, count);
  if (!pixels.ok()) return pixels.error().Wrap(path);
  return pixels;
}

// Counts a visual and keeps its pixels if they are few.
Status AddVisual(const std::string& path, ShownVisual visual, PixelValues pixels, std::string hash,
                 VisualInput& input) {
  Result<VisualLayout> layout = LayOutVisual(input.spec, pixels, visual.modality);
  if (!layout.ok()) return layout.error().Wrap(path);
  visual.layout = *std::move(layout);
  input.shown.push_back(std::move(visual));
  input.hashes.push_back(std::move(hash));
  const int64_t bytes = PixelBytes(pixels);
  if (input.held_bytes + bytes > kPixelBytesInFlight) {
    input.held.emplace_back();
    return {};
  }
  input.held_bytes += bytes;
  input.held.push_back(std::move(pixels));
  return {};
}

Status AddPictures(const VisualFlags& flags, const std::string& model, VisualInput& input) {
  if (flags.images.empty()) return {};
  KVG_ASSIGN(const Preprocessor preprocessor, ReadPicturePreprocessor(model));
  const int64_t count = std::ssize(flags.images);
  // One decoded picture at a time.
  for (const std::string& path : flags.images) {
    std::string hash;
    KVG_ASSIGN(PixelValues pixels, PicturePixels(preprocessor, path, count, hash));
    input.load.emplace_back([preprocessor, path, count, hash]() {
      std::string expected = hash;
      return PicturePixels(preprocessor, path, count, expected);
    });
    KVG_TRY(AddVisual(path, {.modality = Modality::kImage, .layout = {}}, std::move(pixels), hash,
                      input));
  }
  return {};
}

Status AddVideos(const VisualFlags& flags, const std::string& model, VisualInput& input) {
  if (flags.videos.empty()) return {};
  KVG_ASSIGN(const Preprocessor frames, ReadFramePreprocessor(model, input.spec.family));
  for (const std::string& path : flags.videos) {
    KVG_ASSIGN(VideoFrames video, ReadVideo(path, flags));
    const std::string hash = HashOf(video.images);
    Result<PixelValues> pixels = FramePixels(frames, video.images);
    if (!pixels.ok()) return pixels.error().Wrap(path);
    video.images.clear();
    input.load.emplace_back([frames, path, flags, hash]() -> Result<PixelValues> {
      KVG_ASSIGN(const VideoFrames again, ReadVideo(path, flags));
      if (HashOf(again.images) != hash) return Changed(path);
      return FramePixels(frames, again.images);
    });
    ShownVisual shown = {.modality = Modality::kVideo,
                         .layout = {},
                         .frame_seconds = std::move(video.seconds),
                         .duration_s = video.duration_s};
    KVG_TRY(AddVisual(path, std::move(shown), *std::move(pixels), hash, input));
    if (!video.decoder.empty()) input.decoder = std::move(video.decoder);
  }
  return {};
}

}  // namespace

int64_t PixelBytes(const PixelValues& pixels) { return std::ssize(pixels.values) * 4; }

int64_t TowerRows(const VisionSpec& spec, const PixelValues& pixels) {
  if (pixels.grid[0] != 0) return int64_t{pixels.grid[0]} * pixels.grid[1] * pixels.grid[2];
  return pixels.tiles * (spec.tower.grid_rows() * spec.tower.grid_columns() + 1);
}

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
  KVG_TRY(AddPictures(flags, model, input));
  KVG_TRY(AddVideos(flags, model, input));
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

// Pictures on their way to the tower; those of one modality run together.
class Batches {
 public:
  Batches(VisualInput& input, VisionTower& tower, const See* see)
      : input_(input), tower_(tower), see_(see) {}

  // All of them, in order.
  Result<std::vector<VisualFeatures>> Encode() {
    for (size_t i = 0; i < input_.shown.size(); ++i) {
      PixelValues pixels = std::move(input_.held[i]);
      if (pixels.values.empty()) {
        KVG_ASSIGN(pixels, input_.load[i]());
      }
      const bool other = i > 0 && input_.shown[i].modality != input_.shown[i - 1].modality;
      if (other || bytes_ + PixelBytes(pixels) > kPixelBytesInFlight) KVG_TRY(Run());
      modality_ = input_.shown[i].modality;
      bytes_ += PixelBytes(pixels);
      rows_ += TowerRows(input_.spec, pixels);
      seeds_.push_back(SeedOfPicture(input_.hashes[i]));
      batch_.push_back(std::move(pixels));
      if (rows_ >= VisionTower::kBatchRows) KVG_TRY(Run());
    }
    KVG_TRY(Run());
    return std::move(all_);
  }
  double seconds() const { return seconds_; }  // of the tower

 private:
  Status Run() {
    if (batch_.empty()) return {};
    const double start_s = NowSeconds();
    KVG_ASSIGN(std::vector<VisualFeatures> features,
               tower_.Encode(batch_, modality_, nullptr, see_, seeds_));
    seconds_ += NowSeconds() - start_s;
    std::ranges::move(features, std::back_inserter(all_));
    batch_.clear();
    seeds_.clear();
    bytes_ = rows_ = 0;
    return {};
  }

  VisualInput& input_;
  VisionTower& tower_;
  const See* see_;
  std::vector<PixelValues> batch_;
  std::vector<uint64_t> seeds_;
  Modality modality_ = Modality::kImage;
  int64_t bytes_ = 0, rows_ = 0;
  double seconds_ = 0;
  std::vector<VisualFeatures> all_;
};

}  // namespace

Result<VisualPrompt> EncodeVisuals(VisualInput& input, const VisualFlags& flags,
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
  Batches batches(input, *tower, OfPictures(see));
  KVG_ASSIGN(std::vector<VisualFeatures> encoded, batches.Encode());
  prompt.vision_s = batches.seconds();
  prompt.decoder = input.decoder;
  std::vector<std::shared_ptr<const VisualFeatures>> features;
  for (VisualFeatures& one : encoded) {
    features.push_back(std::make_shared<const VisualFeatures>(std::move(one)));
  }
  if (see != nullptr && see->sees().frames) {
    KVG_ASSIGN(features, JoinFrames(*see, features, std::vector<int32_t>(features.size(), -1),
                                    *loaded.ops->memory));
  }
  std::vector<SeenVisual> seen;
  for (const auto& one : features) seen.push_back({one->layout.rows, one->places, one->gone});
  prompt.visuals = JoinRows(features, input.spec.hidden_size);
  if (see != nullptr) {
    ShowLess(seen, prompt.ids, prompt.spans);
    prompt.unseen = input.rows() - prompt.visual_tokens();
  }
  return prompt;
}

std::shared_ptr<const SampleVisuals> JoinRows(
    std::span<const std::shared_ptr<const VisualFeatures>> features, int64_t hidden_size) {
  auto visuals = std::make_shared<SampleVisuals>();
  visuals->hidden_size = hidden_size;
  for (const auto& one : features) {
    visuals->Append({one, &one->rows}, 0, one->rows.count());
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
