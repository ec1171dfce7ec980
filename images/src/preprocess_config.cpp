// SPDX-License-Identifier: Apache-2.0
// preprocessor_config.json: defaults of the class it names, then its own keys.
#include <array>
#include <map>
#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "images/preprocess.h"

namespace kvgauge {
namespace {

constexpr std::array<float, 3> kClipMean = {0.48145466f, 0.4578275f, 0.40821073f};
constexpr std::array<float, 3> kClipDeviation = {0.26862954f, 0.26130258f, 0.27577711f};
constexpr std::array<float, 3> kHalves = {0.5f, 0.5f, 0.5f};

// A "...Fast" class computes the same with other roundings; the slow one is what is reproduced.
std::string ClassOf(const Json& config) {
  for (const char* key : {"image_processor_type", "feature_extractor_type"}) {
    const auto found = config.find(key);
    if (found == config.end() || !found->is_string()) continue;
    std::string name = *found;
    if (name.ends_with("Fast")) name.resize(name.size() - 4);
    return name;
  }
  return "";
}

Preprocessor Whole(int32_t shortest_edge) {
  Preprocessor p;
  p.shortest_edge = shortest_edge;
  p.centre_crop = true;
  p.crop_height = p.crop_width = shortest_edge;
  p.mean = kClipMean;
  p.deviation = kClipDeviation;
  return p;
}
Preprocessor Siglip() {
  Preprocessor p;
  p.height = p.width = 224;
  p.mean = p.deviation = kHalves;
  return p;
}
Preprocessor Gemma() {
  Preprocessor p = Siglip();
  p.filter = ResizeFilter::kBilinear;
  return p;
}
Preprocessor AnyRes(int32_t side, bool crop) {
  Preprocessor p = Whole(side);
  p.kind = PreprocessKind::kAnyRes;
  p.centre_crop = crop;
  p.canvases = {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}};
  return p;
}
Preprocessor OneVision() {
  Preprocessor p = AnyRes(384, false);
  p.shortest_edge = 0;
  p.height = p.width = 384;
  p.many_as_squares = true;
  p.canvases.clear();
  for (int32_t rows = 1; rows <= 6; ++rows) {
    for (int32_t columns = 1; columns <= 6; ++columns) {
      p.canvases.emplace_back(384 * rows, 384 * columns);
    }
  }
  return p;
}
Preprocessor Patches() {
  Preprocessor p = Whole(0);
  p.kind = PreprocessKind::kPatches;
  p.centre_crop = false;
  return p;
}
Preprocessor FittedPatches() {
  Preprocessor p = Patches();
  p.patch = 16;
  p.merge = p.frames = 1;
  p.fit_within = true;
  p.height = p.width = 1024;
  return p;
}
Preprocessor Canvas() {
  Preprocessor p = Whole(0);
  p.kind = PreprocessKind::kCanvas;
  p.centre_crop = false;
  p.height = p.width = 384;
  p.split = false;
  return p;
}
Preprocessor Split() {
  Preprocessor p = Siglip();
  p.kind = PreprocessKind::kSplit;
  p.filter = ResizeFilter::kLanczos;
  p.longest_edge = 4 * 364;
  p.height = p.width = 364;
  return p;
}

const std::map<std::string, Preprocessor>& Classes() {
  static const std::map<std::string, Preprocessor> classes = {
      {"CLIPImageProcessor", Whole(224)},
      {"CLIPFeatureExtractor", Whole(224)},
      {"LlavaImageProcessor", Whole(224)},
      {"SiglipImageProcessor", Siglip()},
      {"Gemma3ImageProcessor", Gemma()},
      {"LlavaNextImageProcessor", AnyRes(224, true)},
      {"LlavaOnevisionImageProcessor", OneVision()},
      {"Qwen2VLImageProcessor", Patches()},
      {"Qwen2_5_VLImageProcessor", Patches()},
      {"GotOcr2ImageProcessor", Canvas()},
      {"PixtralImageProcessor", FittedPatches()},
      {"Idefics3ImageProcessor", Split()},
      {"SmolVLMImageProcessor", Split()},
  };
  return classes;
}

Preprocessor QwenVideo(int32_t patch, int64_t least, int64_t most) {
  Preprocessor p = Patches();
  p.patch = patch;
  p.least_pixels = least;
  p.most_pixels = most;
  return p;
}
Preprocessor Qwen3Video() {
  Preprocessor p = QwenVideo(16, 128 * 32 * 32, 32 * 32 * 768);
  p.mean = p.deviation = kHalves;
  p.frames_together = true;
  p.video_tokens = 768;
  return p;
}
Preprocessor Qwen2Video() {
  Preprocessor p = QwenVideo(14, 128 * 28 * 28, 28 * 28 * 768);
  p.video_tokens = 128000;
  return p;
}
Preprocessor OneVisionVideo() {
  Preprocessor p = Whole(0);
  p.centre_crop = false;
  p.height = p.width = 384;
  return p;
}
Preprocessor SmolVideo() {
  Preprocessor p = Split();
  p.split = false;
  return p;
}

const std::map<std::string, Preprocessor>& VideoClasses() {
  static const std::map<std::string, Preprocessor> classes = {
      {"InternVLVideoProcessor", Canvas()},
      {"LlavaNextVideoVideoProcessor", Whole(224)},
      {"LlavaOnevisionVideoProcessor", OneVisionVideo()},
      {"Qwen2VLVideoProcessor", Qwen2Video()},
      {"Qwen3VLVideoProcessor", Qwen3Video()},
      {"SmolVLMVideoProcessor", SmolVideo()},
  };
  return classes;
}

// Keys that choose frames, or that only a picture's file has.
const std::set<std::string>& KeysOfOtherParts() {
  static const std::set<std::string> keys = {
      "video_processor_type", "fps",          "num_frames",         "do_sample_frames",
      "min_frames",           "max_frames",   "video_metadata",     "return_metadata",
      "initial_shift",        "max_duration", "do_image_splitting", "crop_to_patches",
      "image_grid_pinpoints", "min_patches",  "max_patches"};
  return keys;
}

// Keys that say nothing about pixels, or only how the library returns them.
const std::set<std::string>& HarmlessKeys() {
  static const std::set<std::string> keys = {"image_processor_type",
                                             "feature_extractor_type",
                                             "processor_class",
                                             "_valid_processor_keys",
                                             "do_convert_rgb",
                                             "return_tensors",
                                             "data_format",
                                             "input_data_format",
                                             "_processor_class",
                                             "auto_map",
                                             "device",
                                             "disable_grouping",
                                             "image_seq_length",
                                             "image_seq_len",
                                             "patch_output_size",
                                             "aspect_ratio_setting",
                                             "return_row_col_info",
                                             "default_to_square"};
  return keys;
}

class ConfigReader {
 public:
  ConfigReader(const Json& config, std::string_view origin) : config_(config), origin_(origin) {}

  Result<Preprocessor> Read() {
    if (!config_.is_object()) return Wrong("the file", "is no JSON object", "");
    const std::string name = ClassOf(config_);
    const auto found = Classes().find(name);
    if (found == Classes().end()) return UnknownClass(name);
    p_ = found->second;
    // How a video's frames are seen, beside pictures.
    return ReadKeys({"video_sampling"});
  }

  Result<Preprocessor> ReadVideo(std::string_view video_class) {
    if (!config_.is_object()) return Wrong("the file", "is no JSON object", "");
    std::string name(video_class);
    if (config_.contains("video_processor_type")) {
      const Json& given = config_["video_processor_type"];
      name = given.is_string() ? given.get<std::string>() : given.dump();
    }
    const auto found = VideoClasses().find(name);
    if (found == VideoClasses().end()) {
      std::vector<std::string> known;
      for (const auto& [id, preprocessor] : VideoClasses()) known.push_back(id);
      return Unsupported(StrCat(origin_, ": video_processor_type is '", name, "'",
                                DidYouMean(name, known), "; known are ", Join(known, ", ")));
    }
    p_ = found->second;
    KVG_TRY(ReadSampling());
    std::set<std::string> passed = KeysOfOtherParts();
    passed.insert("video_sampling");
    return ReadKeys(passed);
  }

 private:
  Result<Preprocessor> ReadKeys(const std::set<std::string>& passed) {
    for (const auto& [key, value] : config_.items()) {
      if (HarmlessKeys().contains(key) || passed.contains(key) || value.is_null()) continue;
      const auto reader = Keys().find(key);
      if (reader == Keys().end()) {
        return Unsupported(StrCat(origin_, ": key '", key, "' (", value.dump().substr(0, 60),
                                  ") is not known, and it may change pixels"));
      }
      KVG_TRY((this->*reader->second)(key, value));
    }
    KVG_TRY(CheckWhole());
    return p_;
  }

  // SmolVLM's files give the size of frames there; a size of the file itself wins.
  Status ReadSampling() {
    const auto sampling = config_.find("video_sampling");
    if (sampling == config_.end() || sampling->is_null()) return {};
    if (!sampling->is_object()) return Wrong("video_sampling", "is no object", "");
    const auto size = sampling->find("video_size");
    if (size == sampling->end() || config_.contains("size")) return {};
    return Size("video_sampling.video_size", *size);
  }

  using KeyReader = Status (ConfigReader::*)(const std::string&, const Json&);

  static const std::map<std::string, KeyReader>& Keys() {
    using R = ConfigReader;
    static const std::map<std::string, KeyReader> keys = {
        {"do_resize", &R::Flag<&Preprocessor::resize>},
        {"do_rescale", &R::Flag<&Preprocessor::rescale>},
        {"do_normalize", &R::Flag<&Preprocessor::normalize>},
        {"do_center_crop", &R::Flag<&Preprocessor::centre_crop>},
        {"do_image_splitting", &R::Flag<&Preprocessor::split>},
        {"crop_to_patches", &R::Flag<&Preprocessor::split>},
        {"do_pad", &R::DoPad},
        {"do_pan_and_scan", &R::MustBeFalse},
        {"size", &R::Size},
        {"crop_size", &R::CropSize},
        {"resample", &R::Resample},
        {"rescale_factor", &R::RescaleFactor},
        {"image_mean", &R::Channels<&Preprocessor::mean>},
        {"image_std", &R::Channels<&Preprocessor::deviation>},
        {"image_grid_pinpoints", &R::Canvases},
        {"min_patches", &R::Count<&Preprocessor::least_tiles>},
        {"max_patches", &R::Count<&Preprocessor::most_tiles>},
        {"patch_size", &R::Patch},
        {"merge_size", &R::Count<&Preprocessor::merge>},
        {"temporal_patch_size", &R::Count<&Preprocessor::frames>},
        {"min_pixels", &R::Pixels<&Preprocessor::least_pixels>},
        {"max_pixels", &R::Pixels<&Preprocessor::most_pixels>},
        {"max_image_size", &R::MaxImageSize},
        {"cap_pixels_per_frame", &R::Flag<&Preprocessor::cap_frames>},
        {"max_video_tokens", &R::Pixels<&Preprocessor::video_tokens>},
        {"pan_and_scan_min_crop_size", &R::Ignore},
        {"pan_and_scan_max_num_crops", &R::Ignore},
        {"pan_and_scan_min_ratio_to_activate", &R::Ignore},
    };
    return keys;
  }

  Error Wrong(std::string_view key, std::string_view value, std::string_view right) const {
    return BadInput(StrCat(origin_, ": ", key, " ", value, right.empty() ? "" : "; ", right));
  }
  Error UnknownClass(const std::string& name) const {
    std::vector<std::string> known;
    for (const auto& [id, preprocessor] : Classes()) known.push_back(id);
    if (name.empty()) {
      return BadInput(
          StrCat(origin_, ": image_processor_type is missing; known are ", Join(known, ", ")));
    }
    return Unsupported(StrCat(origin_, ": image_processor_type is '", name, "'",
                              DidYouMean(name, known), "; known are ", Join(known, ", ")));
  }

  // A whole number from 1 to `most`.
  Result<int64_t> Positive(const std::string& key, const Json& value, int64_t most) const {
    if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > most) {
      return Wrong(key, StrCat("is ", value.dump().substr(0, 60)),
                   StrCat("a whole number from 1 to ", most, " is right"));
    }
    return value.get<int64_t>();
  }
  static constexpr int64_t kMostSide = 16384;

  template <bool Preprocessor::*kField>
  Status Flag(const std::string& key, const Json& value) {
    if (!value.is_boolean())
      return Wrong(key, StrCat("is ", value.dump()), "true or false is right");
    p_.*kField = value.get<bool>();
    return {};
  }
  template <int32_t Preprocessor::*kField>
  Status Count(const std::string& key, const Json& value) {
    KVG_ASSIGN(const int64_t number, Positive(key, value, 1024));
    p_.*kField = static_cast<int32_t>(number);
    return {};
  }
  // A number, or both sides of a square.
  Status Patch(const std::string& key, const Json& value) {
    if (!value.is_object()) return Count<&Preprocessor::patch>(key, value);
    KVG_ASSIGN(const auto sides, HeightAndWidth(key, value));
    if (sides.first != sides.second || sides.first > 1024) {
      return Wrong(key, StrCat("is ", value.dump().substr(0, 60)),
                   "equal sides of at most 1024 are right");
    }
    p_.patch = sides.first;
    return {};
  }
  template <int64_t Preprocessor::*kField>
  Status Pixels(const std::string& key, const Json& value) {
    KVG_ASSIGN(p_.*kField, Positive(key, value, kMostSide * kMostSide));
    return {};
  }
  template <std::array<float, 3> Preprocessor::*kField>
  Status Channels(const std::string& key, const Json& value) {
    std::array<float, 3>& to = p_.*kField;
    if (value.is_array() && value.size() == 3) {
      bool good = true;
      for (size_t c = 0; c < 3; ++c) {
        good = good && value[c].is_number();
        if (good) to[c] = static_cast<float>(value[c].get<double>());
      }
      const bool divides = kField == &Preprocessor::deviation;
      good = good && (!divides || (to[0] > 0 && to[1] > 0 && to[2] > 0));
      if (good) return {};
    }
    return Wrong(key, StrCat("is ", value.dump().substr(0, 60)),
                 "three numbers, one a channel, are right");
  }
  Status Ignore(const std::string&, const Json&) { return {}; }
  Status MustBeFalse(const std::string& key, const Json& value) {
    if (value.is_boolean() && !value.get<bool>()) return {};
    return Unsupported(
        StrCat(origin_, ": ", key, " is ", value.dump(), "; only false is supported"));
  }
  // LLaVA-1.5 pads pictures to squares; elsewhere padding only makes batches.
  Status DoPad(const std::string& key, const Json& value) {
    if (ClassOf(config_) == "LlavaImageProcessor") {
      return Flag<&Preprocessor::pad_to_square>(key, value);
    }
    return value.is_boolean() ? Status()
                              : Wrong(key, StrCat("is ", value.dump()), "true or false is right");
  }
  Status Resample(const std::string& key, const Json& value) {
    if (!value.is_number_integer()) {
      return Wrong(key, StrCat("is ", value.dump()), "a number of Pillow's filters is right");
    }
    Result<ResizeFilter> filter = ResizeFilterOf(value.get<int>());
    if (!filter.ok()) return filter.error().Wrap(origin_);
    p_.filter = *filter;
    return {};
  }
  Status RescaleFactor(const std::string& key, const Json& value) {
    if (!value.is_number()) return Wrong(key, StrCat("is ", value.dump()), "a number is right");
    p_.rescale_factor = value.get<double>();
    return {};
  }
  Status Canvases(const std::string& key, const Json& value) {
    p_.canvases.clear();
    const auto bad = [&] {
      return Wrong(key, StrCat("is ", value.dump().substr(0, 60)),
                   "a list of [height, width] is right");
    };
    if (!value.is_array() || value.empty() || value.size() > 4096) return bad();
    for (const Json& pair : value) {
      if (!pair.is_array() || pair.size() != 2) return bad();
      KVG_ASSIGN(const int64_t height, Positive(key, pair[0], kMostSide));
      KVG_ASSIGN(const int64_t width, Positive(key, pair[1], kMostSide));
      p_.canvases.emplace_back(static_cast<int32_t>(height), static_cast<int32_t>(width));
    }
    return {};
  }

  // {"shortest_edge": n}, {"height": h, "width": w}, {"longest_edge": n}, or n.
  Status Size(const std::string& key, const Json& value) {
    if (p_.fit_within) return SizeToFit(key, value);
    if (p_.kind == PreprocessKind::kPatches) return PixelRange(key, value);
    p_.shortest_edge = p_.height = p_.width = 0;
    if (value.is_number_integer()) {
      KVG_ASSIGN(const int64_t side, Positive(key, value, kMostSide));
      if (p_.kind == PreprocessKind::kWhole && p_.centre_crop) {
        p_.shortest_edge = static_cast<int32_t>(side);
      } else {
        p_.height = p_.width = static_cast<int32_t>(side);
      }
      return {};
    }
    if (value.is_object() && value.size() == 1 && value.contains("shortest_edge")) {
      KVG_ASSIGN(const int64_t side, Positive(key, value["shortest_edge"], kMostSide));
      p_.shortest_edge = static_cast<int32_t>(side);
      return {};
    }
    if (value.is_object() && value.size() == 1 && value.contains("longest_edge") &&
        p_.kind == PreprocessKind::kSplit) {
      KVG_ASSIGN(const int64_t side, Positive(key, value["longest_edge"], kMostSide));
      p_.longest_edge = static_cast<int32_t>(side);
      p_.height = p_.width = tile_;
      return {};
    }
    KVG_ASSIGN(const auto sides, HeightAndWidth(key, value));
    p_.height = sides.first;
    p_.width = sides.second;
    return {};
  }
  // {"longest_edge": n} or {"height": h, "width": w}.
  Status SizeToFit(const std::string& key, const Json& value) {
    if (value.is_object() && value.size() == 1 && value.contains("longest_edge")) {
      KVG_ASSIGN(const int64_t side, Positive(key, value["longest_edge"], kMostSide));
      p_.height = p_.width = static_cast<int32_t>(side);
      return {};
    }
    KVG_ASSIGN(const auto sides, HeightAndWidth(key, value));
    p_.height = sides.first;
    p_.width = sides.second;
    return {};
  }
  Result<std::pair<int32_t, int32_t>> HeightAndWidth(const std::string& key,
                                                     const Json& value) const {
    if (!value.is_object() || !value.contains("height") || !value.contains("width")) {
      return Wrong(key, StrCat("is ", value.dump().substr(0, 60)),
                   R"({"height": ..., "width": ...} is right)");
    }
    KVG_ASSIGN(const int64_t height, Positive(key, value["height"], kMostSide));
    KVG_ASSIGN(const int64_t width, Positive(key, value["width"], kMostSide));
    return std::pair(static_cast<int32_t>(height), static_cast<int32_t>(width));
  }
  // Qwen2-VL calls numbers of pixels edges. min_pixels and max_pixels, where present, win.
  Status PixelRange(const std::string& key, const Json& value) {
    for (const char* edge : {"shortest_edge", "longest_edge"}) {
      if (!value.is_object() || !value.contains(edge)) {
        return Wrong(key, StrCat("is ", value.dump().substr(0, 60)),
                     R"({"shortest_edge": least pixels, "longest_edge": most pixels} is right)");
      }
    }
    if (!config_.contains("min_pixels") || config_["min_pixels"].is_null()) {
      KVG_TRY(Pixels<&Preprocessor::least_pixels>(key, value["shortest_edge"]));
    }
    if (!config_.contains("max_pixels") || config_["max_pixels"].is_null()) {
      KVG_TRY(Pixels<&Preprocessor::most_pixels>(key, value["longest_edge"]));
    }
    return {};
  }
  Status CropSize(const std::string& key, const Json& value) {
    if (value.is_number_integer()) {
      KVG_ASSIGN(const int64_t side, Positive(key, value, kMostSide));
      p_.crop_height = p_.crop_width = static_cast<int32_t>(side);
      return {};
    }
    KVG_ASSIGN(const auto sides, HeightAndWidth(key, value));
    p_.crop_height = sides.first;
    p_.crop_width = sides.second;
    return {};
  }
  Status MaxImageSize(const std::string& key, const Json& value) {
    if (!value.is_object() || !value.contains("longest_edge")) {
      return Wrong(key, StrCat("is ", value.dump().substr(0, 60)),
                   R"({"longest_edge": n} is right)");
    }
    KVG_ASSIGN(const int64_t side, Positive(key, value["longest_edge"], kMostSide));
    tile_ = static_cast<int32_t>(side);
    p_.height = p_.width = tile_;
    return {};
  }

  Status CheckWhole() const {
    if (p_.kind == PreprocessKind::kAnyRes) {
      const int32_t tile = p_.shortest_edge > 0 ? p_.shortest_edge : std::min(p_.height, p_.width);
      for (const auto& [height, width] : p_.canvases) {
        if (height % tile != 0 || width % tile != 0) {
          return Wrong("image_grid_pinpoints", StrCat("hold [", height, ", ", width, "]"),
                       StrCat("multiples of the tile's side ", tile, " are right"));
        }
      }
    }
    if (p_.least_tiles > p_.most_tiles) {
      return Wrong("min_patches", StrCat("is ", p_.least_tiles),
                   StrCat("at most max_patches, ", p_.most_tiles, ", is right"));
    }
    if (p_.least_pixels > p_.most_pixels) {
      return Wrong("min_pixels", StrCat("is ", p_.least_pixels),
                   StrCat("at most max_pixels, ", p_.most_pixels, ", is right"));
    }
    return {};
  }

  const Json& config_;
  const std::string_view origin_;
  Preprocessor p_;
  int32_t tile_ = 364;  // kSplit
};

}  // namespace

Result<Preprocessor> ReadVideoPreprocessor(const Json& config, std::string_view video_class,
                                           std::string_view origin) {
  return ConfigReader(config, origin).ReadVideo(video_class);
}

Result<Preprocessor> ReadPreprocessor(const Json& config, std::string_view origin) {
  return ConfigReader(config, origin).Read();
}

}  // namespace kvgauge
