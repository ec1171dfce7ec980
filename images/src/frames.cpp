// SPDX-License-Identifier: Apache-2.0
#include "images/frames.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>

#include "core/files.h"
#include "core/json.h"
#include "core/last_number.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostFrames = int64_t{1} << 24;
constexpr int64_t kMostFrameBytes = int64_t{1} << 28;

bool IsPicture(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* known : {".jpg", ".jpeg", ".png", ".webp", ".ppm"}) {
    if (ending == known) return true;
  }
  return false;
}

std::optional<int64_t> IndexOf(const fs::path& path) {
  const std::string stem = path.stem().string();
  int64_t index = 0;
  const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), index);
  if (error != std::errc() || end != stem.data() + stem.size() || index < 0) return std::nullopt;
  return index;
}

// How a name says the number of its frame: 2: it is the number, 1: it holds one, 0: not at all.
int Numbering(const fs::path& path) {
  return IndexOf(path) ? 2 : LastNumber(path.stem().string()) ? 1 : 0;
}

Result<std::vector<fs::path>> Pictures(const std::string& folder) {
  std::error_code error;
  const fs::path inside = fs::canonical(folder, error);
  if (error) return BadInput(StrCat(folder, ": is not a folder that can be read"));
  std::vector<fs::path> pictures;
  for (fs::directory_iterator entry(inside, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!IsPicture(entry->path())) continue;
    const fs::path real = fs::canonical(entry->path(), error);
    if (error) break;
    if (real.parent_path() != inside) {
      return BadInput(StrCat(entry->path().string(), ": leads out of the folder of frames"));
    }
    pictures.push_back(entry->path());
  }
  if (error) return BadInput(StrCat(folder, ": ", error.message()));
  if (pictures.empty()) {
    return BadInput(StrCat(folder, ": holds no frames (.jpg, .png, .webp or .ppm)"));
  }
  std::sort(pictures.begin(), pictures.end());
  return pictures;
}

Status ReadFacts(const std::string& file, FrameFolder& folder) {
  KVG_ASSIGN(const Json facts, ReadJsonFile(file));
  if (!facts.is_object()) return BadInput(StrCat(file, ": expected an object"));
  const auto number = [&](const char* key, double least, double most) -> Result<double> {
    const auto found = facts.find(key);
    if (found == facts.end() || !found->is_number() || found->get<double>() < least ||
        found->get<double>() > most) {
      return BadInput(StrCat(file, ": key '", key,
                             "': ", found == facts.end() ? "absent" : found->dump(),
                             ", expected a number from ", least, " to ", most));
    }
    return found->get<double>();
  };
  KVG_ASSIGN(folder.fps, number("fps", 1e-6, 1e6));
  KVG_ASSIGN(const double total, number("total", 1, static_cast<double>(kMostFrames)));
  folder.total = static_cast<int64_t>(total);
  folder.source_sha256 = facts.value("source_sha256", "");
  return {};
}

}  // namespace

Result<FrameFolder> OpenFrameFolder(const std::string& path) {
  FrameFolder folder;
  folder.path = path;
  KVG_ASSIGN(std::vector<fs::path> pictures, Pictures(path));
  const std::string facts = path + "/frames.json";
  const bool has_facts = FileExists(facts);
  if (has_facts) KVG_TRY(ReadFacts(facts, folder));
  const auto [least, most] = std::ranges::minmax_element(pictures, {}, Numbering);
  if (!has_facts && Numbering(*least) != Numbering(*most)) {
    return BadInput(StrCat(least->string(), ": expected a name with the number of a frame, as ",
                           most->filename().string(), " has one, or no such file in the folder"));
  }
  const bool numbered = Numbering(*least) == 2;
  if (Numbering(*least) == 1) {
    std::ranges::stable_sort(
        pictures, {}, [](const fs::path& picture) { return *LastNumber(picture.stem().string()); });
  }
  int64_t next = 0;
  for (const fs::path& picture : pictures) {
    const std::optional<int64_t> own = IndexOf(picture);
    if (has_facts && (!own || *own >= folder.total)) {
      return BadInput(StrCat(picture.string(), ": expected a name that is the number of a frame, ",
                             "0 to ", folder.total - 1));
    }
    const int64_t index = numbered ? *own : next++;
    const auto [at, fresh] = folder.files.emplace(index, picture.string());
    if (!fresh) {
      return BadInput(
          StrCat(picture.string(), ": frame ", index, " is there twice, also as ", at->second));
    }
  }
  if (has_facts) return folder;
  // The whole video, wherever its numbers begin.
  const int64_t first = folder.files.begin()->first;
  std::map<int64_t, std::string> files;
  for (auto& [index, file] : folder.files) {
    if (index - first != std::ssize(files)) {
      return BadInput(StrCat(path, ": frame ", first + std::ssize(files), " is missing before ",
                             file, "; a folder with holes needs a frames.json"));
    }
    files.emplace(index - first, std::move(file));
  }
  folder.files = std::move(files);
  folder.total = std::ssize(folder.files);
  return folder;
}

Result<FrameRule> ParseFrameRule(std::string_view text, int64_t count) {
  FrameRule rule;
  rule.count = count;
  if (text == "uniform") return rule;
  rule.kind = FrameRule::Kind::kInterior;
  if (text == "interior") return rule;
  for (const auto& [prefix, kind] :
       {std::pair{"fps:", FrameRule::Kind::kRate}, std::pair{"every:", FrameRule::Kind::kEvery}}) {
    const std::string_view name = prefix;
    if (!text.starts_with(name)) continue;
    const std::string number(text.substr(name.size()));
    char* end = nullptr;
    rule.kind = kind;
    rule.number = std::strtod(number.c_str(), &end);
    const bool whole = kind == FrameRule::Kind::kRate || std::floor(rule.number) == rule.number;
    const double least = kind == FrameRule::Kind::kRate ? 1e-6 : 1;
    const bool read = !number.empty() && *end == '\0';
    if (read && whole && rule.number >= least && rule.number <= 1e6) return rule;
  }
  return BadInput(StrCat("frame rule ", Quoted(text),
                         ": expected uniform, interior, fps:NUMBER or every:NUMBER"));
}

Result<std::vector<int64_t>> ChooseFrames(const FrameRule& rule, int64_t total, double fps) {
  std::vector<int64_t> indices;
  const auto t = static_cast<double>(total);
  switch (rule.kind) {
    case FrameRule::Kind::kUniform: {
      const double step = rule.count > 1 ? (t - 1) / static_cast<double>(rule.count - 1) : 0;
      for (int64_t i = 0; i < rule.count; ++i) {
        const bool last = i > 0 && i == rule.count - 1;
        indices.push_back(last ? total - 1 : static_cast<int64_t>(static_cast<double>(i) * step));
      }
      break;
    }
    case FrameRule::Kind::kInterior:
      for (int64_t i = 1; i <= rule.count; ++i) indices.push_back(i * total / (rule.count + 1));
      break;
    case FrameRule::Kind::kRate:
      if (fps <= 0) return BadInput("a rule of frames a second needs the video's frame rate");
      // Whole periods of the rule, and at least one frame.
      for (int64_t i = 0; i < std::max<int64_t>(static_cast<int64_t>(t / fps * rule.number), 1);
           ++i) {
        indices.push_back(static_cast<int64_t>(static_cast<double>(i) * fps / rule.number));
      }
      break;
    case FrameRule::Kind::kEvery:
      for (int64_t i = 0; i < total; i += static_cast<int64_t>(rule.number)) indices.push_back(i);
      break;
  }
  return indices;
}

Result<std::vector<Image>> ReadFrames(const FrameFolder& folder,
                                      const std::vector<int64_t>& indices,
                                      const ImageLimits& limits) {
  std::vector<Image> frames;
  for (const int64_t index : indices) {
    const auto found = folder.files.find(index);
    if (found == folder.files.end()) {
      return BadInput(StrCat(folder.path, ": frame ", index, " of ", folder.total,
                             " is missing; the rule shows it"));
    }
    KVG_ASSIGN(const std::string bytes, ReadFile(found->second, kMostFrameBytes));
    KVG_ASSIGN(Image frame, DecodeImage(bytes, found->second, limits));
    if (!frames.empty() && (frame.width != frames[0].width || frame.height != frames[0].height)) {
      return BadInput(StrCat(found->second, ": ", frame.width, " x ", frame.height,
                             " pixels, but the first frame has ", frames[0].width, " x ",
                             frames[0].height));
    }
    frames.push_back(std::move(frame));
  }
  return frames;
}

}  // namespace kvgauge
