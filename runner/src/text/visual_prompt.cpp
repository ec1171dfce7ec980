// SPDX-License-Identifier: Apache-2.0
#include "runner/visual_prompt.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "core/strings.h"

namespace kvgauge {
namespace {

// What the processors of Idefics3 and SmolVLM put around tiles.
constexpr std::string_view kTileMark = "<fake_token_around_image>";
constexpr std::string_view kWholeMark = "<global-img>";
// And that of InternVL around pictures.
constexpr std::string_view kPictureBegins = "<img>", kPictureEnds = "</img>";
// And that of Pixtral behind each row of a picture, and behind the last one.
constexpr std::string_view kLineEnds = "[IMG_BREAK]", kLastLineEnds = "[IMG_END]";
// A video where it has no placeholder of its own.
constexpr std::string_view kVideoMark = "<video>";

bool SplitsPictures(const ModelConfig& config) {
  return config.vision_family == "idefics3" || config.vision_family == "smolvlm";
}

std::string Repeated(const std::string& text, int64_t times) {
  std::string out;
  out.reserve(text.size() * static_cast<size_t>(times));
  for (int64_t i = 0; i < times; ++i) out += text;
  return out;
}

std::string Fixed(const char* format, double value) {
  std::array<char, 64> text = {};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

// A number below a million in English words, as SmolVLM's prompts have it.
std::string InWords(int64_t n) {
  static const std::array<const char*, 20> small = {
      "zero",     "one",     "two",     "three",     "four",     "five",    "six",
      "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen",
      "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
  static const std::array<const char*, 10> tens = {"",      "",      "twenty",  "thirty", "forty",
                                                   "fifty", "sixty", "seventy", "eighty", "ninety"};
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  if (n < 20) return small[at(n)];
  if (n < 100) return StrCat(tens[at(n / 10)], n % 10 == 0 ? "" : StrCat("-", small[at(n % 10)]));
  if (n < 1000) {
    return StrCat(small[at(n / 100)], " hundred",
                  n % 100 == 0 ? "" : StrCat(" and ", InWords(n % 100)));
  }
  const int64_t rest = n % 1000;
  return StrCat(InWords(n / 1000), " thousand",
                rest == 0 ? "" : StrCat(rest < 100 ? " and " : ", ", InWords(rest)));
}

// H:MM:SS.
std::string Clock(int64_t seconds) {
  std::array<char, 64> text = {};
  std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld",
                static_cast<long long>(seconds / 3600), static_cast<long long>(seconds / 60 % 60),
                static_cast<long long>(seconds % 60));
  return text.data();
}

int64_t RowsOfFrame(const VisualBlock& block) {
  return block.grid[1] * (block.grid[2] + (block.newlines ? 1 : 0));
}

class Expander {
 public:
  Expander(const ModelConfig& config, const Tokenizer& tokenizer)
      : config_(config),
        image_(tokenizer.TokenText(static_cast<int32_t>(config.visual_ids.image))) {
    const VisualIds& ids = config.visual_ids;
    if (ids.video >= 0) video_ = tokenizer.TokenText(static_cast<int32_t>(ids.video));
    if (ids.vision_start >= 0) {
      start_ = tokenizer.TokenText(static_cast<int32_t>(ids.vision_start));
      end_ = tokenizer.TokenText(static_cast<int32_t>(ids.vision_end));
    }
    if (ids.image_begin >= 0) {
      image_begin_ = tokenizer.TokenText(static_cast<int32_t>(ids.image_begin));
      image_end_ = tokenizer.TokenText(static_cast<int32_t>(ids.image_end));
    }
  }

  std::string OfImage(const ShownVisual& visual) const {
    if (SplitsPictures(config_)) return OfSplit(visual.layout);
    if (config_.vision_family == "internvl") return Tile(visual.layout.rows);
    if (visual.layout.blocks[0].lines_apart) return OfLines(visual.layout.blocks[0]);
    const std::string rows = Repeated(image_, visual.layout.rows);
    return image_begin_.empty() ? rows : StrCat("\n\n", image_begin_, rows, image_end_, "\n\n");
  }

  Result<std::string> OfVideo(const ShownVisual& visual) const {
    const VisualBlock& block = visual.layout.blocks[0];
    const int64_t rows = RowsOfFrame(block), times = block.grid[0];
    std::string out;
    if (config_.vision_family == "internvl") {
      for (int64_t i = 0; i < times; ++i) {
        out += StrCat(i == 0 ? "" : "\n", "Frame", i + 1, ": ", Tile(rows));
      }
      return out;
    }
    const bool timed = config_.vision_family == "smolvlm" || config_.vision_family == "qwen3_vl";
    if (!timed) return Repeated(video_, visual.layout.rows);
    if (visual.frame_seconds.empty()) {
      return BadInput(StrCat(config_.path, ": ", config_.vision_family,
                             " writes the time of each frame into the prompt; the video has no "
                             "frame rate"));
    }
    if (config_.vision_family == "qwen3_vl") return OfTimes(visual, times, rows);
    out = StrCat("You are provided the following series of ", InWords(times), " frames from a ",
                 Clock(static_cast<int64_t>(visual.duration_s)), " [H:MM:SS] video.\n");
    for (int64_t i = 0; i < times; ++i) {
      const auto second = static_cast<int64_t>(visual.frame_seconds[static_cast<size_t>(i)]);
      out += StrCat("\nFrame from ", second / 60 < 10 ? "0" : "", second / 60, ":",
                    second % 60 < 10 ? "0" : "", second % 60, ":", Whole(rows));
    }
    return out + "\n\n";
  }

  // What stands for a video in a rendered prompt: where each time gets marks of its own, those
  // around the placeholder go with it.
  std::string VideoMark() const {
    if (config_.vision_family == "qwen3_vl") return start_ + video_ + end_;
    return config_.visual_ids.video >= 0 ? video_ : std::string(kVideoMark);
  }
  std::string ImageMark() const { return image_begin_.empty() ? image_ : image_begin_; }

 private:
  std::string Tile(int64_t rows) const {
    return StrCat(kPictureBegins, Repeated(image_, rows), kPictureEnds);
  }
  std::string Whole(int64_t rows) const {
    return StrCat(kTileMark, kWholeMark, Repeated(image_, rows), kTileMark);
  }

  std::string OfSplit(const VisualLayout& layout) const {
    const VisualBlock& whole = layout.blocks.back();
    if (layout.blocks.size() == 1) return Whole(whole.rows);
    std::string out;
    int32_t row = 0;
    for (const VisualBlock& tile : layout.blocks) {
      if (tile.kind != VisualBlock::Kind::kTile || tile.tile_row != row) out += "\n";
      if (tile.kind != VisualBlock::Kind::kTile) break;
      row = tile.tile_row;
      out += StrCat(kTileMark, "<row_", tile.tile_row + 1, "_col_", tile.tile_column + 1, ">",
                    Repeated(image_, tile.rows));
    }
    return StrCat(out, "\n", Whole(whole.rows));
  }

  std::string OfLines(const VisualBlock& picture) const {
    std::string out;
    for (int32_t line = 1; line <= picture.grid[1]; ++line) {
      out += Repeated(image_, picture.grid[2]);
      out += line < picture.grid[1] ? kLineEnds : kLastLineEnds;
    }
    return out;
  }

  // A time of the grid is shown with the mean of the seconds of its first and last frame.
  Result<std::string> OfTimes(const ShownVisual& visual, int64_t times, int64_t rows) const {
    const auto frames = std::ssize(visual.frame_seconds);
    const int64_t each = (frames + times - 1) / times;
    std::string out;
    for (int64_t i = 0; i < times; ++i) {
      const auto second = [&](int64_t frame) {
        return visual.frame_seconds[static_cast<size_t>(std::min(frame, frames - 1))];
      };
      const double mean = (second(i * each) + second(i * each + each - 1)) / 2;
      out += StrCat("<", Fixed("%.1f", mean), " seconds>", start_, Repeated(video_, rows), end_);
    }
    return out;
  }

  const ModelConfig& config_;
  std::string image_, video_, start_, end_;
  std::string image_begin_, image_end_;  // empty: rows stand alone
};

Status CheckCount(const ModelConfig& config, std::string_view what, const std::string& mark,
                  int64_t marks, int64_t shown) {
  if (marks == shown) return {};
  return BadInput(StrCat(config.path, ": the prompt has ", marks, " placeholders ", Quoted(mark),
                         " for ", what, ", but ", shown, shown == 1 ? " is" : " are", " given"));
}

VisualSpan::Piece PieceOf(VisualBlock::Kind kind) {
  switch (kind) {
    case VisualBlock::Kind::kWhole:
      return VisualSpan::Piece::kWhole;
    case VisualBlock::Kind::kTile:
      return VisualSpan::Piece::kTile;
    case VisualBlock::Kind::kCanvas:
      return VisualSpan::Piece::kCanvas;
    case VisualBlock::Kind::kVideo:
      return VisualSpan::Piece::kFrames;
    case VisualBlock::Kind::kNewline:
      return VisualSpan::Piece::kNewline;
  }
  return VisualSpan::Piece::kWhole;
}

// Model time between two times of a video's grid.
double TimeStep(const ModelConfig& config, const ShownVisual& visual, int64_t times,
                const VideoPositions& positions) {
  if (visual.modality != Modality::kVideo || config.visual_ids.tokens_per_second == 0) return 1;
  const auto frames = std::ssize(visual.frame_seconds);
  double seconds = 1;  // where nothing is known, as the reference has it
  if (frames > 1) {
    const double gap = (visual.frame_seconds.back() - visual.frame_seconds.front()) /
                       static_cast<double>(frames - 1);
    const int64_t frames_a_time = (frames + times - 1) / times;
    seconds = gap * static_cast<double>(frames_a_time);
  }
  if (positions.whole_seconds) seconds = std::trunc(seconds);
  return seconds * config.visual_ids.tokens_per_second;
}

}  // namespace

bool ShowsVideos(const ModelConfig& config) {
  return config.visual_ids.video >= 0 || config.vision_family == "internvl" ||
         config.vision_family == "smolvlm";
}

Result<VisualMarks> MarksOf(const ModelConfig& config, const Tokenizer& tokenizer) {
  if (config.vision_family.empty()) {
    return BadInput(
        StrCat(config.path, ": ", config.family, " is a text model: it sees no pictures"));
  }
  const Expander expander(config, tokenizer);
  VisualMarks marks = {.image = expander.ImageMark(), .video = expander.VideoMark()};
  if (!ShowsVideos(config)) marks.video.clear();
  return marks;
}

Result<std::string> ExpandVisuals(const ModelConfig& config, const Tokenizer& tokenizer,
                                  const std::string& text, std::span<const ShownVisual> visuals) {
  KVG_ASSIGN(const VisualMarks marks, MarksOf(config, tokenizer));
  const Expander expander(config, tokenizer);
  std::vector<const ShownVisual*> images, videos;
  for (const ShownVisual& visual : visuals) {
    (visual.modality == Modality::kVideo ? videos : images).push_back(&visual);
  }
  if (!videos.empty() && marks.video.empty()) {
    return Unsupported(StrCat(config.path, ": ", config.vision_family, " shows no videos"));
  }
  const auto found = [](size_t at) { return at != std::string::npos; };
  std::string out;
  size_t image = 0, video = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t next_image = text.find(marks.image, at);
    const size_t next_video = marks.video.empty() ? std::string::npos : text.find(marks.video, at);
    const size_t next = std::min(next_image, next_video);
    out += text.substr(at, next - at);
    if (!found(next)) break;
    // Past the last one the mark stays, and is only counted.
    if (next == next_video) {
      if (video < videos.size()) {
        KVG_ASSIGN(const std::string expanded, expander.OfVideo(*videos[video]));
        out += expanded;
      }
      ++video;
      at = next + marks.video.size();
    } else {
      if (image < images.size()) out += expander.OfImage(*images[image]);
      ++image;
      at = next + marks.image.size();
    }
  }
  KVG_TRY(
      CheckCount(config, "pictures", marks.image, static_cast<int64_t>(image), std::ssize(images)));
  KVG_TRY(
      CheckCount(config, "videos", marks.video, static_cast<int64_t>(video), std::ssize(videos)));
  return out;
}

Result<std::vector<VisualSpan>> PlaceVisuals(const ModelConfig& config,
                                             std::span<const int32_t> ids,
                                             std::span<const ShownVisual> visuals,
                                             const VideoPositions& positions) {
  const VisualIds& marks = config.visual_ids;
  const bool own_video = marks.video >= 0;
  int64_t placeholders = 0, rows = 0;
  const auto is_row = [&](int32_t id) {
    return id == marks.image || (own_video && id == marks.video);
  };
  for (const int32_t id : ids) placeholders += is_row(id);
  for (const ShownVisual& visual : visuals) rows += visual.layout.rows;
  if (placeholders != rows) {
    return BadInput(StrCat(config.path, ": the prompt has ", placeholders,
                           " placeholders for rows of pictures, but the pictures have ", rows,
                           " rows"));
  }
  std::vector<VisualSpan> spans;
  int64_t at = 0, row = 0;
  std::array<int32_t, 2> seen = {};  // pictures, videos
  for (const ShownVisual& visual : visuals) {
    const bool video = visual.modality == Modality::kVideo;
    const int64_t wanted = video && own_video ? marks.video : marks.image;
    const int32_t index = seen[video ? 1 : 0]++;
    for (const VisualBlock& block : visual.layout.blocks) {
      const int64_t of_frame = RowsOfFrame(block);
      for (int64_t done = 0; done < block.rows;) {
        while (!is_row(ids[static_cast<size_t>(at)])) ++at;
        const int64_t most = block.lines_apart ? block.grid[2] : block.rows - done;
        int64_t count = 0;
        while (count < most && at + count < std::ssize(ids) &&
               ids[static_cast<size_t>(at + count)] == wanted) {
          ++count;
        }
        const bool cut = count < most;
        const bool whole_frames = count % of_frame == 0 && block.grid[0] > 1;
        if (count == 0 || (cut && !whole_frames)) {
          return BadInput(StrCat(config.path, ": the placeholders of ",
                                 video ? "video " : "picture ", index,
                                 " are not in order, or text cuts them at token ", at + count));
        }
        VisualSpan span = {.first = at,
                           .count = count,
                           .modality = visual.modality,
                           .piece = PieceOf(block.kind),
                           .index = index,
                           .frame = static_cast<int32_t>(done / of_frame),
                           .grid = block.grid,
                           .newlines = block.newlines,
                           .tile_row = block.tile_row,
                           .tile_column = block.tile_column,
                           .embedding_row = row,
                           .time_step = TimeStep(config, visual, block.grid[0], positions),
                           .next_by_sides = positions.next_by_sides};
        if (block.lines_apart) {
          span.places.resize(static_cast<size_t>(count));
          std::iota(span.places.begin(), span.places.end(), static_cast<int32_t>(done));
        } else {
          span.grid[0] = static_cast<int32_t>(count / of_frame);
        }
        spans.push_back(std::move(span));
        at += count;
        row += count;
        done += count;
      }
    }
  }
  return spans;
}

}  // namespace kvgauge
