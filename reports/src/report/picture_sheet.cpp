// SPDX-License-Identifier: Apache-2.0
#include "src/report/picture_sheet.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/strings.h"
#include "src/html/format.h"
#include "src/html/visible.h"

namespace kvgauge::report {
namespace {

constexpr size_t kWrittenPictures = 12;
constexpr double kWrittenWidth = 112;
// How dark a patch is of which nothing is held; report.js has the same number.
constexpr double kDarkest = 0.8;

// What is larger was not made by a run.
constexpr size_t kMostThumbnailBytes = 64 << 10;

std::string DataAddress(const PictureRow& picture) {
  return StrCat("data:image/jpeg;base64,", Base64(picture.thumbnail));
}

// One path for the patches of each digit, in units of patches.
Html Veil(const ShownPicture::Grid& grid, const std::string& digits) {
  std::map<char, std::string> paths;
  for (int64_t row = 0; row < grid.rows; ++row) {
    for (int64_t column = 0; column < grid.columns;) {
      const char digit = digits[static_cast<size_t>(row * grid.columns + column)];
      int64_t end = column + 1;
      while (end < grid.columns && digits[static_cast<size_t>(row * grid.columns + end)] == digit) {
        ++end;
      }
      if (digit != 'f') {
        const int64_t length = end - column;
        paths[digit].append(StrCat("M", column, " ", row, "h", length, "v1h-", length, "z"));
      }
      column = end;
    }
  }
  Html html;
  for (const auto& [digit, path] : paths) {
    html.Put(R"(<path d="{}" fill-opacity="{}"/>)", {path, kDarkest * (1 - PatchShare(digit))});
  }
  return html;
}

// The answer's pictures and the first ones, in their order.
std::vector<size_t> ChooseWritten(const SightRow& sight) {
  std::set<size_t> chosen;
  for (const bool answer : {true, false}) {
    for (size_t i = 0; i < sight.pictures.size() && chosen.size() < kWrittenPictures; ++i) {
      if (sight.pictures[i].answer == answer) chosen.insert(i);
    }
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace

std::string PictureTitle(const ShownPicture& shown, size_t number) {
  return shown.frame >= 0 ? StrCat("frame ", shown.frame) : StrCat(number + 1);
}

bool PictureSheet::Take(const SightRow& sight) {
  std::map<std::string, std::shared_ptr<const PictureRow>> fresh;
  size_t bytes = bytes_;
  for (const ShownPicture& shown : sight.pictures) {
    const PictureRow& picture = *shown.picture;
    if (numbers_.contains(picture.key)) continue;
    if (picture.thumbnail.size() > kMostThumbnailBytes) return false;
    if (fresh.emplace(picture.key, shown.picture).second) bytes += picture.thumbnail.size();
  }
  if (count() + std::ssize(fresh) > most_ || bytes > kMostBytes) return false;
  bytes_ = bytes;
  for (const ShownPicture& shown : sight.pictures) {
    const auto place = numbers_.emplace(shown.picture->key, pictures_.size());
    if (place.second) pictures_.push_back(shown.picture);
  }
  return true;
}

void PictureSheet::PutSight(ScriptJson& json, const SightRow& sight) const {
  json.OpenList();
  for (const ShownPicture& shown : sight.pictures) {
    json.OpenList().Integer(static_cast<int64_t>(numbers_.at(shown.picture->key)));
    json.Text(MakeVisible(shown.name)).Integer(shown.frame).Integer(shown.answer ? 1 : 0);
    json.OpenList();
    for (const ShownPicture::Grid& grid : shown.grids) {
      json.OpenList().Integer(grid.rows).Integer(grid.columns).CloseList();
    }
    json.CloseList().CloseList();
  }
  json.CloseList();
}

void PictureSheet::PutPictures(ScriptJson& json) const {
  json.OpenList();
  for (const auto& picture : pictures_) {
    json.OpenList().Text(Base64(picture->thumbnail));
    json.Integer(picture->width).Integer(picture->height).CloseList();
  }
  json.CloseList();
}

Html Gallery(const SightRow& sight, const std::string& patches) {
  Html html;
  const std::vector<std::vector<std::string>> split = SplitPatches(sight, patches);
  if (split.empty()) return html;
  Html figures;
  for (const size_t number : ChooseWritten(sight)) {
    const ShownPicture& shown = sight.pictures[number];
    const PictureRow& picture = *shown.picture;
    if (picture.width <= 0 || picture.height <= 0) continue;
    const double height = std::clamp(
        kWrittenWidth * static_cast<double>(picture.height) / static_cast<double>(picture.width),
        8.0, 4 * kWrittenWidth);
    for (size_t g = 0; g < shown.grids.size(); ++g) {
      const ShownPicture::Grid& grid = shown.grids[g];
      if (grid.rows == 0 || grid.columns == 0) continue;
      const std::string title = PictureTitle(shown, number);
      const std::string kept = Format(MeanShare({split[number][g]}), Unit::kPercent);
      figures.Put(R"(<figure class="pic{}"><svg width="{}" height="{}" viewBox="0 0 {} {}" )"
                  R"(preserveAspectRatio="none" role="img" aria-label="Picture {}, {}: {} kept">)"
                  R"(<image width="{}" height="{}" preserveAspectRatio="none" href="{}"/>{}</svg>)"
                  R"(<figcaption>{}{} <span class="soft">{}</span></figcaption></figure>)",
                  {shown.answer ? Markup(" answer") : Markup(""), Px{kWrittenWidth}, Px{height},
                   grid.columns, grid.rows, title, shown.name, kept, grid.columns, grid.rows,
                   DataAddress(picture), Veil(grid, split[number][g]), title,
                   g > 0 ? Markup(", tiles") : Markup(""), kept});
    }
  }
  const size_t left = sight.pictures.size() - std::min(sight.pictures.size(), kWrittenPictures);
  html.Put(R"(<div class="pictures">{}</div>)", {figures});
  if (left > 0) html.Put(R"(<p class="soft">and {} more</p>)", {left});
  return html;
}

}  // namespace kvgauge::report
