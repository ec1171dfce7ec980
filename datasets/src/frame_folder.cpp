// SPDX-License-Identifier: Apache-2.0
#include "src/frame_folder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <tuple>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/last_number.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr std::array<std::string_view, 10> kNames = {
    "linspace", "linspace_round", "interior",      "centre", "step",
    "fraction", "arange",         "arange_centre", "rate",   "whole_seconds"};

// The references count in different widths: torch.arange and torch.linspace end in float32.
int64_t InFloat(double value) { return static_cast<int64_t>(static_cast<float>(value)); }

int64_t IndexAt(const FrameChoice& choice, int64_t total, int64_t i) {
  const auto frames = static_cast<double>(total), at = static_cast<double>(i);
  const auto count = static_cast<double>(choice.count);
  const double last = frames - 1;
  switch (choice.rule) {
    case ShownFrames::kLinspace:
      if (choice.count == 1) return 0;
      return i == choice.count - 1 ? total - 1 : static_cast<int64_t>(at * (last / (count - 1)));
    case ShownFrames::kLinspaceRound: {
      if (choice.count == 1) return 0;
      // From either end, as torch does.
      const auto step = static_cast<float>(last) / static_cast<float>(choice.count - 1);
      const float value =
          i < choice.count / 2
              ? step * static_cast<float>(i)
              : static_cast<float>(last) - step * static_cast<float>(choice.count - 1 - i);
      return static_cast<int64_t>(std::nearbyint(value));
    }
    case ShownFrames::kInterior:
      return static_cast<int64_t>((at + 1) * (frames / (count + 1)));
    case ShownFrames::kStep:
      return static_cast<int64_t>(frames / count) * i;
    case ShownFrames::kFraction:
      return i * total / choice.count;
    case ShownFrames::kArange:
      return InFloat(at * (frames / count));
    case ShownFrames::kArangeCentre:
      return InFloat(frames / count / 2 + at * (frames / count));
    case ShownFrames::kRate:
      return static_cast<int64_t>(at * (choice.fps / choice.rate));
    case ShownFrames::kCentre:
    case ShownFrames::kWholeSeconds:
      break;
  }
  return 0;
}

std::vector<int64_t> Centres(const FrameChoice& choice, int64_t total) {
  const bool bounded = choice.begin_s >= 0;
  const int64_t first = choice.first_number, last = total - 1 + first;
  const auto from = bounded ? std::max<double>(static_cast<double>(first),
                                               std::nearbyint(choice.begin_s * choice.fps))
                            : static_cast<double>(first);
  const auto to = bounded ? std::min<double>(std::nearbyint(choice.end_s * choice.fps),
                                             static_cast<double>(last))
                          : static_cast<double>(last);
  const double segment = (to - from) / static_cast<double>(choice.count);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < choice.count; ++i) {
    const double at = from + segment / 2 + std::nearbyint(segment * static_cast<double>(i));
    indices.push_back(std::clamp(static_cast<int64_t>(at), first, last) - first);
  }
  return indices;
}

}  // namespace

std::vector<std::string> ShownFramesNames() { return {kNames.begin(), kNames.end()}; }

ShownFrames ShownFramesFromName(std::string_view name) {
  return static_cast<ShownFrames>(std::find(kNames.begin(), kNames.end(), name) - kNames.begin());
}

Result<std::vector<int64_t>> ChooseFrames(const FrameChoice& choice, int64_t total) {
  const bool bounded = choice.begin_s >= 0 || choice.end_s >= 0;
  const bool timed = choice.rule == ShownFrames::kRate || choice.rule == ShownFrames::kWholeSeconds;
  if ((timed || bounded) && choice.fps <= 0) {
    return BadInput("has no frames.json, which says the frames a second that the frame rule needs");
  }
  if (bounded && choice.begin_s >= choice.end_s) {
    return BadInput(StrCat("begins at second ", choice.begin_s, " and ends at ", choice.end_s));
  }
  int64_t count = choice.count;
  const double whole = timed ? static_cast<double>(total) / choice.fps : 0;
  const double duration = choice.duration_s > 0 ? choice.duration_s : whole;
  if (choice.rule == ShownFrames::kRate) count = static_cast<int64_t>(duration * choice.rate);
  if (choice.rule == ShownFrames::kWholeSeconds) {
    count = std::min(count, static_cast<int64_t>(duration));
  }
  if (total < count || count < 1) {
    return BadInput(StrCat(
        "has ", total, total == 1 ? " frame" : " frames",
        count < 1 ? ", less than the rule takes one of" : StrCat("; the rule takes ", count)));
  }
  if (choice.rule == ShownFrames::kCentre) return Centres(choice, total);
  const int64_t step = choice.rule == ShownFrames::kWholeSeconds
                           ? static_cast<int64_t>(duration * choice.fps) / count
                           : 0;
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index =
        choice.rule == ShownFrames::kWholeSeconds ? step * i : IndexAt(choice, total, i);
    indices.push_back(std::min(index, total - 1));
  }
  return indices;
}

Result<VideoFolder> ReadVideoFolder(const std::string& folder) {
  namespace fs = std::filesystem;
  if (!DirectoryExists(folder)) {
    return BadInput(StrCat("names ", Quoted(folder, 200), ", which is no folder of frames"));
  }
  constexpr std::array<std::string_view, 5> kEndings = {".png", ".jpg", ".jpeg", ".webp", ".ppm"};
  std::vector<std::tuple<int64_t, std::string, std::string>> frames;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    std::string ending = entry.path().extension().string();
    std::transform(ending.begin(), ending.end(), ending.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    if (std::find(kEndings.begin(), kEndings.end(), ending) == kEndings.end()) continue;
    const std::string stem = entry.path().stem().string();
    frames.emplace_back(LastNumber(stem).value_or(-1), stem, entry.path().filename().string());
  }
  if (error) return IoError(StrCat(folder, ": cannot be listed"));
  if (frames.empty()) {
    return BadInput(StrCat("names ", Quoted(folder, 200), ", a folder without frames"));
  }
  std::sort(frames.begin(), frames.end());
  const auto wrong = [&](const auto& frame, std::string_view what) {
    return BadInput(
        StrCat("names ", Quoted(folder, 200), ", where ", Quoted(std::get<2>(frame)), " ", what));
  };
  if (std::get<0>(frames[0]) < 0) {
    return wrong(frames[0],
                 "has no number in its name, expected that of a frame (12.png, f12.jpg)");
  }
  const auto twice = std::adjacent_find(
      frames.begin(), frames.end(),
      [](const auto& a, const auto& b) { return std::get<0>(a) == std::get<0>(b); });
  if (twice != frames.end()) {
    return wrong(*twice, StrCat("has the number of ", Quoted(std::get<2>(*(twice + 1))),
                                ", expected one file for each frame"));
  }
  VideoFolder video;
  const std::string path = folder + "/frames.json";
  if (FileExists(path)) {
    KVG_ASSIGN(const Json facts, ReadJsonFile(path));
    const auto number = [&](const char* key) {
      const bool there = facts.is_object() && facts.contains(key) && facts[key].is_number();
      return there ? facts[key].get<double>() : 0.0;
    };
    video.fps = number("fps");
    const double total = number("total");
    if (video.fps <= 0 || total < 1 || total > 1e9) {
      return BadInput(StrCat(path, ": expected {\"fps\": 25, \"total\": 300}, both above 0"));
    }
    video.total = static_cast<int64_t>(total);
    if (std::get<0>(frames.back()) >= video.total) {
      return wrong(frames.back(),
                   StrCat("has a number beyond frames.json, expected 0 to ", video.total - 1));
    }
  }
  for (auto& [number, stem, name] : frames) {
    video.files.emplace_back(video.total > 0 ? number : std::ssize(video.files), std::move(name));
  }
  if (video.total == 0) video.total = std::ssize(video.files);
  return video;
}

Result<std::string> FileOfFrame(const VideoFolder& video, int64_t frame) {
  const auto found = std::find_if(video.files.begin(), video.files.end(),
                                  [&](const auto& file) { return file.first == frame; });
  if (found != video.files.end()) return found->second;
  return BadInput(StrCat("lacks frame ", frame, " of ", video.total));
}

}  // namespace kvgauge
