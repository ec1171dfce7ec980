// SPDX-License-Identifier: Apache-2.0
#include "src/data/frames_command.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "datasets/frames.h"
#include "datasets/task.h"
#include "images/encode.h"
#include "images/frames.h"
#include "images/video_file.h"
#include "src/data/task_commands.h"

namespace kvgauge {
namespace {

namespace fs = std::filesystem;

// Frames that are held at once. Each batch decodes the file from its beginning, for nothing seeks.
constexpr int64_t kBatchBytes = int64_t{256} << 20;

bool IsVideoName(const fs::path& path) {
  constexpr std::array<std::string_view, 10> kEndings = {".mp4", ".m4v", ".mkv",  ".webm", ".avi",
                                                         ".mov", ".mpg", ".mpeg", ".flv",  ".wmv"};
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end();
}

// By stem, which is the folder's name.
Result<std::map<std::string, std::string>> FindVideos(const std::vector<std::string>& places) {
  std::map<std::string, std::string> videos;
  const auto add = [&](const fs::path& path) -> Status {
    const auto [at, fresh] = videos.emplace(path.stem().string(), path.string());
    if (fresh) return {};
    return BadInput(StrCat(path.string(), ": has the name of ", at->second,
                           ", so both would be one folder; expected names that differ"));
  };
  for (const std::string& place : places) {
    if (!DirectoryExists(place)) {
      if (!FileExists(place)) return BadInput(StrCat(place, ": no such file or directory"));
      KVG_TRY(add(place));
      continue;
    }
    std::error_code error;
    size_t found = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(place, error)) {
      if (!entry.is_regular_file() || !IsVideoName(entry.path())) continue;
      KVG_TRY(add(entry.path()));
      ++found;
    }
    if (error) return IoError(StrCat(place, ": cannot be listed: ", error.message()));
    if (found == 0) {
      return BadInput(StrCat(place,
                             ": holds no file of a video; expected .mp4, .mkv, .webm, .avi, ",
                             ".mov or the like"));
    }
  }
  return videos;
}

Result<std::string> HashOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Sha256 hash;
  std::vector<char> block(size_t{1} << 20);
  while (file) {
    file.read(block.data(), std::ssize(block));
    hash.Update(block.data(), static_cast<size_t>(file.gcount()));
  }
  if (!file.eof()) return IoError(path + ": cannot be read");
  return hash.Finish();
}

std::string FileName(int64_t index) { return StrCat(index, ".png"); }

// Those of `indices` that `folder` lacks. A folder of other facts is another video's, or was
// decoded otherwise: frames of both in one folder would be taken for one video's.
Result<std::vector<int64_t>> MissingFrames(const std::string& folder, const Json& facts,
                                           const std::vector<int64_t>& indices) {
  if (!DirectoryExists(folder)) return indices;
  const Result<Json> held = ReadJsonFile(folder + "/frames.json");
  if (!held.ok() || *held != facts) {
    return BadInput(StrCat(
        folder, ": holds something else than frames of this file by this decoder; ",
        "expected frames.json with ", facts.dump(), "; remove it, or name another ", "--out"));
  }
  std::vector<int64_t> missing;
  std::ranges::copy_if(indices, std::back_inserter(missing), [&](int64_t index) {
    return !FileExists(StrCat(folder, "/", FileName(index)));
  });
  return missing;
}

Status WriteFrames(const VideoFile& video, const std::vector<int64_t>& indices,
                   const std::string& folder) {
  const int64_t bytes = std::max<int64_t>(1, int64_t{3} * video.width * video.height);
  const auto batch = static_cast<size_t>(std::max<int64_t>(1, kBatchBytes / bytes));
  for (size_t from = 0; from < indices.size(); from += batch) {
    const auto begin = indices.begin() + static_cast<std::ptrdiff_t>(from);
    const auto end = begin + static_cast<std::ptrdiff_t>(std::min(batch, indices.size() - from));
    const std::vector<int64_t> some(begin, end);
    KVG_ASSIGN(const std::vector<Image> frames, ReadVideoFrames(video, some));
    for (size_t i = 0; i < some.size(); ++i) {
      KVG_ASSIGN(const std::string png, EncodePng(frames[i]));
      KVG_TRY(WriteFile(StrCat(folder, "/", FileName(some[i])), png));
    }
  }
  return {};
}

struct Written {
  int64_t frames = 0, total = 0;
  bool was_there = false;
  std::string decoder;
};

Result<Written> WriteVideo(const std::string& path, const std::string& folder,
                           const std::optional<Task>& task, const DataFramesOptions& options) {
  KVG_ASSIGN(const VideoFile video, OpenVideoFile(path));
  const double fps = options.fps > 0 ? options.fps : video.fps;
  if (fps <= 0) {
    return BadInput(StrCat(path, ": does not say its frames a second; expected --fps NUMBER"));
  }
  std::vector<int64_t> indices;
  if (task) {
    const Result<std::vector<int64_t>> shown = FramesThatTaskShows(*task, video.total, fps);
    if (!shown.ok()) return shown.error().Wrap(path);
    indices = *shown;
  } else {
    KVG_ASSIGN(const FrameRule rule, ParseFrameRule(options.frame_rule, options.frames));
    const Result<std::vector<int64_t>> shown = ChooseFrames(rule, video.total, fps);
    if (!shown.ok()) return shown.error().Wrap(path);
    indices = *shown;
    indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  }
  KVG_ASSIGN(const std::string hash, HashOfFile(path));
  const Json facts = {{"fps", fps},
                      {"total", video.total},
                      {"width", video.width},
                      {"height", video.height},
                      {"source_sha256", hash},
                      {"decoder", video.decoder}};
  KVG_ASSIGN(const std::vector<int64_t> missing, MissingFrames(folder, facts, indices));
  const Written written = {.frames = std::ssize(indices),
                           .total = video.total,
                           .was_there = missing.empty(),
                           .decoder = video.decoder};
  if (written.was_there) return written;
  if (DirectoryExists(folder)) {
    KVG_TRY(WriteFrames(video, missing, folder));
    return written;
  }
  // A folder of this name is whole: it is made under another one.
  const std::string part = folder + ".part";
  std::error_code error;
  fs::remove_all(part, error);
  fs::create_directories(part, error);
  if (error) return IoError(StrCat(part, ": cannot make it: ", error.message()));
  KVG_TRY(WriteFrames(video, missing, part));
  KVG_TRY(WriteFile(part + "/frames.json", facts.dump(2) + "\n"));
  fs::rename(part, folder, error);
  if (error) return IoError(StrCat(folder, ": cannot make it: ", error.message()));
  return written;
}

}  // namespace

Status RunDataFrames(const DataFramesOptions& options) {
  std::optional<Task> task;
  if (!options.task.empty()) {
    KVG_ASSIGN(task, FindTask(options.task, options.task_directory));
  }
  KVG_ASSIGN(const auto videos, FindVideos(options.videos));
  Json rows = Json::array();
  int64_t number = 0;
  for (const auto& [stem, path] : videos) {
    const std::string folder = StrCat(options.out, "/", stem);
    KVG_ASSIGN(const Written written, WriteVideo(path, folder, task, options));
    ++number;
    if (options.json) {
      rows.push_back({{"video", path},
                      {"folder", folder},
                      {"frames", written.frames},
                      {"total", written.total},
                      {"decoder", written.decoder},
                      {"was_there", written.was_there}});
      continue;
    }
    std::printf("[%lld/%zu] %s: %lld of %lld frames%s\n", static_cast<long long>(number),
                videos.size(), folder.c_str(), static_cast<long long>(written.frames),
                static_cast<long long>(written.total), written.was_there ? ", there already" : "");
    std::fflush(stdout);
  }
  if (options.json) std::printf("%s\n", rows.dump(2).c_str());
  return {};
}

}  // namespace kvgauge
