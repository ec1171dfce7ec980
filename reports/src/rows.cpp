// SPDX-License-Identifier: Apache-2.0
#include "core/sha256.h"
#include "reports/store_rows.h"

namespace kvgauge {

std::string CellRow::Key() const { return Sha256Hex(identity); }

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

namespace {

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
         read_share == other.read_share && parts == other.parts && answers == other.answers &&
         layers == other.layers && modalities == other.modalities && SameVisuals(*this, other);
}

}  // namespace kvgauge
