// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "reports/store_rows.h"

namespace kvgauge {

std::string CellRow::Key() const { return Sha256Hex(identity); }
std::string CapacityRow::Key() const { return Sha256Hex(identity); }
std::string SpeculationRow::Key() const { return Sha256Hex(identity); }

std::string_view NameOf(SampleStatus status) {
  switch (status) {
    case SampleStatus::kOk:
      return "ok";
    case SampleStatus::kFailed:
      return "failed";
    case SampleStatus::kSkipped:
      return "skipped";
  }
  return "";
}

std::string_view NameOf(EngagementMark mark) {
  switch (mark) {
    case EngagementMark::kNone:
      return "none";
    case EngagementMark::kEngaged:
      return "engaged";
    case EngagementMark::kNotEngaged:
      return "not_engaged";
    case EngagementMark::kIdentity:
      return "identity";
  }
  return "";
}

std::string_view NameOf(MemoryMoment moment) {
  switch (moment) {
    case MemoryMoment::kCompressed:
      return "compressed";
    case MemoryMoment::kFinal:
      return "final";
  }
  return "";
}

bool MemoryRow::SameResult(const MemoryRow& other) const {
  MemoryRow copy = other;
  copy.peak_bytes = peak_bytes;
  return *this == copy;
}

int64_t SightRow::cells() const {
  int64_t cells = 0;
  for (const ShownPicture& shown : pictures) {
    for (const ShownPicture::Grid& grid : shown.grids) cells += grid.rows * grid.columns;
  }
  return cells;
}

std::string SightRow::Spec() const {
  Json list = Json::array();
  for (const ShownPicture& shown : pictures) {
    Json grids = Json::array();
    for (const ShownPicture::Grid& grid : shown.grids) grids.push_back({grid.rows, grid.columns});
    list.push_back({{"picture", shown.picture->key},
                    {"name", RepairUtf8(shown.name)},
                    {"frame", shown.frame},
                    {"answer", shown.answer},
                    {"grids", std::move(grids)}});
  }
  return CanonicalJson(list);
}

std::vector<std::vector<std::string>> SplitPatches(const SightRow& sight,
                                                   const std::string& patches) {
  std::vector<std::vector<std::string>> split;
  const auto size = std::ssize(patches);
  if (size == 0 || (size != 1 && size != sight.cells())) return split;
  size_t at = 0;
  for (const ShownPicture& shown : sight.pictures) {
    std::vector<std::string>& grids = split.emplace_back();
    for (const ShownPicture::Grid& grid : shown.grids) {
      const auto cells = static_cast<size_t>(grid.rows * grid.columns);
      grids.push_back(size == 1 ? std::string(cells, patches[0]) : patches.substr(at, cells));
      at += cells;
    }
  }
  return split;
}

double MeanShare(const std::vector<std::string>& digits) {
  double sum = 0;
  size_t cells = 0;
  for (const std::string& grid : digits) {
    for (const char digit : grid) sum += PatchShare(digit);
    cells += grid.size();
  }
  return cells == 0 ? 0 : sum / static_cast<double>(cells);
}

namespace {
constexpr std::string_view kDigits = "0123456789abcdef";
}

char PatchDigit(double share) {
  if (!(share > 0)) return '0';
  if (share >= 1) return 'f';
  return kDigits[static_cast<size_t>(std::clamp(std::round(15 * share), 1.0, 14.0))];
}

double PatchShare(char digit) {
  const size_t level = kDigits.find(digit);
  return level == std::string_view::npos ? 0 : static_cast<double>(level) / 15;
}

namespace {

// Records of before schema 8 do not hold what a sample shows.
bool SameSight(const SampleRow& a, const SampleRow& b) {
  if (!a.sight || !b.sight) return true;
  return a.patches == b.patches && a.sight->Spec() == b.sight->Spec();
}

// Records of before schema 7 do not count what a sample shows.
bool SameVisuals(const SampleRow& a, const SampleRow& b) {
  const auto counted = [](const SampleRow& row) {
    return row.images + row.frames + row.visual_tokens > 0;
  };
  if (!counted(a) || !counted(b)) return true;
  return a.images == b.images && a.frames == b.frames && a.visual_tokens == b.visual_tokens;
}

}  // namespace

bool SampleRow::SameResult(const SampleRow& other) const {
  if (memory.size() != other.memory.size()) return false;
  for (size_t i = 0; i < memory.size(); ++i) {
    if (!memory[i].SameResult(other.memory[i])) return false;
  }
  return sample_id == other.sample_id && hash == other.hash && group == other.group &&
         position == other.position && status == other.status && reason == other.reason &&
         score == other.score && tokens_in == other.tokens_in && tokens_out == other.tokens_out &&
         engagement == other.engagement && engagement_reason == other.engagement_reason &&
         compressions == other.compressions && kl_divergence == other.kl_divergence &&
         top1_agreement == other.top1_agreement && facts == other.facts &&
         answer_depth == other.answer_depth && reads_per_step == other.reads_per_step &&
         read_share == other.read_share && fetched_per_step == other.fetched_per_step &&
         parts == other.parts && answers == other.answers && layers == other.layers &&
         modalities == other.modalities && SameVisuals(*this, other) && SameSight(*this, other);
}

std::string NumbersOfIdentity(const std::string& identity) {
  const Result<Json> json = ParseJson(identity, "identity");
  if (!json.ok() || !json->is_object() || !json->contains("dtype")) return "";
  const Json& numbers = json->at("dtype");
  return numbers.is_string() ? numbers.get<std::string>() : "";
}

}  // namespace kvgauge
