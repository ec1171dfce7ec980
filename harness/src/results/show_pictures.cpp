// SPDX-License-Identifier: Apache-2.0
#include "src/results/show_pictures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/counted.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/cli/print.h"
#include "src/cli/table.h"

namespace kvgauge {
namespace {

constexpr int64_t kMostColumns = 32, kMostRows = 32;  // of a map; larger ones are averaged
constexpr size_t kLineWidth = 98;
constexpr size_t kShownAtFirst = 12;

// A picture under its name; the lines are of one width.
struct Map {
  std::string title;
  std::vector<std::string> lines;
  size_t width = 0;  // in characters
};

// Two characters for a cell, as a character is twice as high as wide.
std::string Shade(double share) {
  static constexpr std::array<const char*, 5> kShades = {"··", "░░", "▒▒", "▓▓", "██"};
  if (share <= 0) return kShades[0];
  return kShades[static_cast<size_t>(std::clamp(std::ceil(4 * share), 1.0, 4.0))];
}

// Cells of a grid that is too large are means of those that they stand for.
Map MapOf(const ShownPicture::Grid& grid, const std::string& digits) {
  const int64_t rows = std::min(grid.rows, kMostRows);
  const int64_t columns = std::min(grid.columns, kMostColumns);
  Map map;
  map.width = static_cast<size_t>(2 * columns);
  for (int64_t r = 0; r < rows; ++r) {
    std::string& line = map.lines.emplace_back();
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      int64_t cells = 0;
      for (int64_t y = r * grid.rows / rows; y < (r + 1) * grid.rows / rows; ++y) {
        for (int64_t x = c * grid.columns / columns; x < (c + 1) * grid.columns / columns; ++x) {
          sum += PatchShare(digits[static_cast<size_t>(y * grid.columns + x)]);
          ++cells;
        }
      }
      line += Shade(sum / static_cast<double>(cells));
    }
  }
  return map;
}

// At most `width` characters of a text, which is well-formed.
std::string CutText(const std::string& text, size_t width, size_t& used) {
  std::string cut;
  used = 0;
  for (size_t at = 0; at < text.size() && used < width; ++used) {
    size_t end = at + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    cut.append(text, at, end - at);
    at = end;
  }
  return cut;
}

std::vector<Map> MapsOf(const SightRow& sight, const std::vector<std::vector<std::string>>& split,
                        const std::vector<size_t>& chosen) {
  std::vector<Map> maps;
  for (const size_t number : chosen) {
    const ShownPicture& shown = sight.pictures[number];
    for (size_t g = 0; g < shown.grids.size(); ++g) {
      if (split[number][g].empty()) continue;
      Map map = MapOf(shown.grids[g], split[number][g]);
      map.title =
          StrCat(number + 1, shown.answer ? "*" : "", " ",
                 std::lround(100 * MeanShare({split[number][g]})), "%",
                 shown.frame >= 0 ? StrCat(" frame ", shown.frame) : "", g > 0 ? " tiles" : "");
      map.width = std::max(map.width, map.title.size());
      maps.push_back(std::move(map));
    }
  }
  return maps;
}

void AppendRow(const std::vector<Map>& maps, size_t begin, size_t end, std::string& text) {
  size_t lines = 0;
  for (size_t i = begin; i < end; ++i) lines = std::max(lines, maps[i].lines.size());
  for (size_t line = 0; line <= lines; ++line) {
    std::string row;
    for (size_t i = begin; i < end; ++i) {
      const Map& map = maps[i];
      size_t used = 0;
      if (line == 0) {
        row += CutText(map.title, map.width, used);
      } else if (line <= map.lines.size()) {
        row += CutText(map.lines[line - 1], map.width, used);
      }
      row.append(map.width - used + 2, ' ');
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text.append(row).append("\n");
  }
}

}  // namespace

std::string PictureMaps(const SampleRow& row, bool whole, bool colour) {
  if (!row.sight || row.sight->pictures.empty()) return "";
  const SightRow& sight = *row.sight;
  const std::vector<std::vector<std::string>> split = SplitPatches(sight, row.patches);
  std::string text = Coloured("--- pictures", Tone::kStrong, colour);
  if (split.empty()) return text + ": what was kept of them is not known\n";
  std::vector<size_t> chosen;
  const size_t count = sight.pictures.size();
  for (size_t i = 0; i < count; ++i) {
    if (sight.pictures[i].answer) chosen.push_back(i);
  }
  if (!whole) chosen.resize(std::min(chosen.size(), kShownAtFirst));
  for (size_t i = 0; i < count && (whole || chosen.size() < kShownAtFirst); ++i) {
    if (!sight.pictures[i].answer) chosen.push_back(i);
  }
  std::sort(chosen.begin(), chosen.end());
  text += ": how many heads and layers hold each patch, from · (none) to █; * holds the answer\n";
  const std::vector<Map> maps = MapsOf(sight, split, chosen);
  for (size_t begin = 0; begin < maps.size();) {
    size_t end = begin, width = 0;
    while (end < maps.size() && (end == begin || width + maps[end].width <= kLineWidth)) {
      width += maps[end++].width + 2;
    }
    AppendRow(maps, begin, end, text);
    begin = end;
  }
  if (chosen.size() < count) {
    text += StrCat("and ", Counted(static_cast<int64_t>(count - chosen.size()), "picture"),
                   " more, --prompt shows them\n");
  }
  return text;
}

Json PicturesToJson(const SampleRow& row) {
  Json pictures = Json::array();
  if (!row.sight) return pictures;
  const std::vector<std::vector<std::string>> split = SplitPatches(*row.sight, row.patches);
  for (size_t i = 0; i < row.sight->pictures.size(); ++i) {
    const ShownPicture& shown = row.sight->pictures[i];
    Json grids = Json::array();
    for (size_t g = 0; g < shown.grids.size(); ++g) {
      grids.push_back({{"rows", shown.grids[g].rows},
                       {"columns", shown.grids[g].columns},
                       {"kept", split.empty() ? Json() : Json(split[i][g])}});
    }
    pictures.push_back({{"name", shown.name},
                        {"frame", shown.frame < 0 ? Json() : Json(shown.frame)},
                        {"answer", shown.answer},
                        {"picture", shown.picture->key},
                        {"width", shown.picture->width},
                        {"height", shown.picture->height},
                        {"grids", std::move(grids)}});
  }
  return pictures;
}

}  // namespace kvgauge
