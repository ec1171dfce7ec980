// SPDX-License-Identifier: Apache-2.0
// One sample with pictures that tells two rows apart. What each kept of them says more than a
// table.
#include <algorithm>
#include <array>
#include <map>

#include "core/strings.h"
#include "src/report/picture_sheet.h"
#include "src/report/sections.h"

namespace kvgauge::report {
namespace {

constexpr size_t kMostLookedAt = 32;

struct Side {
  const SamplePair* pair = nullptr;
  const BoardRow* row = nullptr;
};

// Two rows on one sample that the full cache answers: the smallest row that still does, and the
// best-ranked one at the same budget that no longer does.
struct RowsApart {
  Side kept, lost;

  double size() const { return kept.row->means.bytes.resident_per_token; }
};

bool IsSmaller(const Side& a, const Side& b) {
  return b.row == nullptr ||
         a.row->means.bytes.resident_per_token < b.row->means.bytes.resident_per_token;
}

std::optional<RowsApart> ApartOf(const std::vector<const SamplePair*>& pairs,
                                 const PageData& data) {
  std::vector<Side> right, wrong;
  for (const SamplePair* pair : pairs) {
    const auto place = data.row_of_cell.find(pair->cell);
    if (place == data.row_of_cell.end() || pair->full_score <= 0) continue;
    const BoardRow& row = data.boards[place->second.first].rows[place->second.second];
    if (row.budget.empty() || row.means.tasks == 0 || !row.method.variant.empty()) continue;
    (pair->score >= pair->full_score ? right : wrong).push_back({pair, &row});
  }
  std::optional<RowsApart> found;
  for (const Side& kept : right) {
    if (found && !IsSmaller(kept, found->kept)) continue;
    Side lost;
    for (const Side& other : wrong) {
      // Rows of a board stand in the order of their ranks.
      if (other.row->budget == kept.row->budget && (lost.row == nullptr || other.row < lost.row)) {
        lost = other;
      }
    }
    if (lost.row != nullptr) found = RowsApart{kept, lost};
  }
  return found;
}

// Those of the smallest rows first.
std::vector<RowsApart> PairsApart(const std::vector<SamplePair>& pairs, const PageData& data) {
  std::map<int64_t, std::vector<const SamplePair*>> samples;
  for (const SamplePair& pair : pairs) {
    if (pair.pictures) samples[pair.full_sample].push_back(&pair);
  }
  std::vector<RowsApart> all;
  for (const auto& [sample, of_sample] : samples) {
    if (const std::optional<RowsApart> found = ApartOf(of_sample, data)) {
      all.push_back(*found);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const RowsApart& a, const RowsApart& b) { return a.size() < b.size(); });
  return all;
}

struct Texts {
  SampleText full, kept, lost;

  bool AreDrawn() const {
    if (full.sight == nullptr) return false;
    return std::ranges::all_of(std::array{&full, &kept, &lost}, [&](const SampleText* text) {
      return text->sight == full.sight && text->turns.size() == 1 &&
             !Gallery(*text->sight, text->patches).empty();
    });
  }
};

Html Answer(const Html& name, const SampleText& text) {
  Html html;
  html.Put(R"(<h3 class="sub">{} answers <bdi>{}</bdi></h3>)",
           {name, Trim(text.turns.front().prediction)});
  return html.Put(Gallery(*text.sight, text.patches));
}

}  // namespace

Result<Html> OpeningSection(const std::vector<SamplePair>& pairs, const PageData& data,
                            Queries& queries, const ReportOptions& options) {
  Html html;
  if (options.max_pictures == 0) return html;
  const std::vector<RowsApart> all = PairsApart(pairs, data);
  const auto limit = static_cast<size_t>(options.max_text_bytes);
  const RowsApart* chosen = nullptr;
  Texts texts;
  for (size_t i = 0; i < std::min(all.size(), kMostLookedAt); ++i) {
    const RowsApart& apart = all[i];
    if (chosen != nullptr && chosen->size() < apart.size()) break;
    Texts found;
    KVG_ASSIGN(found.full, queries.Text(apart.kept.pair->full_sample, limit));
    KVG_ASSIGN(found.kept, queries.Text(apart.kept.pair->sample, limit));
    KVG_ASSIGN(found.lost, queries.Text(apart.lost.pair->sample, limit));
    if (!found.AreDrawn()) continue;
    // Few pictures are taken in at once.
    if (chosen == nullptr ||
        found.full.sight->pictures.size() < texts.full.sight->pictures.size()) {
      chosen = &apart;
      texts = std::move(found);
    }
  }
  if (chosen == nullptr) return html;
  html.Put(
      R"(<p class="lead">The full cache answers this question about pictures. At a budget of {} )"
      "one method still does, and another does not. A picture is as bright as many heads and "
      "layers hold its patches; a frame marks those that the answer stands in.</p>\n",
      {chosen->kept.row->budget});
  const AnswerText& turn = texts.full.turns.front();
  html.Put(R"(<p class="q"><bdi>{}</bdi></p><p><b>Right:</b> <bdi>{}</bdi></p>)",
           {Trim(turn.question), turn.references});
  html.Put(Answer(Html().Put("The full cache"), texts.full));
  html.Put(Answer(RowLink(*chosen->kept.row), texts.kept));
  return html.Put(Answer(RowLink(*chosen->lost.row), texts.lost));
}

}  // namespace kvgauge::report
