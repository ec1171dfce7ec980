// SPDX-License-Identifier: Apache-2.0
// Reading everything at once: one pass over each table in the order it lies in the file, which for
// a million samples is several times faster than asking cell by cell.
#include <algorithm>
#include <limits>
#include <unordered_map>

#include "core/strings.h"
#include "src/store_impl.h"

namespace kvgauge {
namespace {

double RealOrNan(const Statement& row, int column) {
  return row.IsNull(column) ? std::numeric_limits<double>::quiet_NaN() : row.Real(column);
}

int64_t IntOrMinusOne(const Statement& row, int column) {
  return row.IsNull(column) ? -1 : row.Int(column);
}

// The enumerator whose stored word is `word`.
template <class Enum, size_t kCount>
Result<Enum> Parse(const std::string& path, std::string_view word, const Enum (&all)[kCount]) {
  for (const Enum value : all) {
    if (NameOf(value) == word) return value;
  }
  return BadInput(StrCat(path, ": holds the word ", Quoted(word), ", expected ", NameOf(all[0]),
                         " or another this program writes"));
}

constexpr SampleStatus kStatuses[] = {SampleStatus::kOk, SampleStatus::kFailed,
                                      SampleStatus::kSkipped};
constexpr EngagementMark kMarks[] = {EngagementMark::kEngaged, EngagementMark::kIdentity,
                                     EngagementMark::kNotEngaged, EngagementMark::kNone};

}  // namespace

Result<SampleTable> ResultStore::Samples() {
  KVG_ASSIGN(auto s,
             impl_->Cached("SELECT s.cell_id, s.position, s.sample_key, s.group_key, s.hash,"
                           " s.status, s.engagement, s.score, s.kl_divergence, s.top1_agreement,"
                           " s.tokens_in, s.tokens_out, s.logical_bytes, s.full_bytes,"
                           " m.nominal_bytes, m.resident_bytes, s.read_share, s.reason"
                           " FROM sample s LEFT JOIN memory m ON m.sample_id = s.id"
                           " AND m.moment = 'compressed'"));
  SampleTable table;
  table.reasons.emplace_back();
  std::unordered_map<std::string, uint32_t> items, reasons;
  std::string spelling;
  while (true) {
    KVG_ASSIGN(const bool more, s->Step());
    if (!more) break;
    SampleTable::Row row;
    row.cell = s->Int(0);
    row.position = s->Int(1);
    spelling.assign(s->View(2)).push_back('\0');
    spelling.append(s->View(3)).push_back('\0');
    spelling.append(s->View(4));
    auto found = items.find(spelling);
    if (found == items.end()) {
      found = items.emplace(spelling, static_cast<uint32_t>(table.items.size())).first;
      table.items.push_back({s->Text(2), s->Text(3), s->Text(4)});
    }
    row.item = found->second;
    KVG_ASSIGN(row.status, Parse(path(), s->View(5), kStatuses));
    KVG_ASSIGN(row.engagement, Parse(path(), s->View(6), kMarks));
    row.score = RealOrNan(*s, 7);
    row.kl_divergence = RealOrNan(*s, 8);
    row.top1_agreement = RealOrNan(*s, 9);
    row.tokens_in = s->Int(10);
    row.tokens_out = s->Int(11);
    row.logical_bytes = IntOrMinusOne(*s, 12);
    row.full_bytes = IntOrMinusOne(*s, 13);
    row.nominal_bytes = IntOrMinusOne(*s, 14);
    row.resident_bytes = IntOrMinusOne(*s, 15);
    row.read_share = RealOrNan(*s, 16);
    if (row.status != SampleStatus::kOk) {
      const std::string reason = s->Text(17);
      const auto at = reasons.try_emplace(reason, static_cast<uint32_t>(table.reasons.size()));
      if (at.second) table.reasons.push_back(reason);
      row.reason = at.first->second;
    }
    table.rows.push_back(row);
  }
  std::ranges::sort(table.rows, [&](const SampleTable::Row& a, const SampleTable::Row& b) {
    if (a.cell != b.cell) return a.cell < b.cell;
    if (a.position != b.position) return a.position < b.position;
    return table.items[a.item].sample_id < table.items[b.item].sample_id;
  });
  return table;
}

Status ResultStore::VisitLatency(int64_t most_shared, const LatencyVisitor& visit) {
  KVG_ASSIGN(const int64_t last, impl_->db.QueryInt("SELECT coalesce(max(id), 0) FROM latency"));
  KVG_ASSIGN(auto l,
             impl_->Cached("SELECT l.cell_id, l.isolated, r.key, l.context_tokens, l.repetition,"
                           " l.prefill_s, l.score_s, l.select_s, l.compact_s, l.quantise_s,"
                           " l.attend_s, l.other_s, l.ttft_s, l.tpot_p50_s, l.tpot_p90_s,"
                           " l.tpot_p99_s, l.steps, l.resident_bytes, l.peak_bytes, l.others_share"
                           " FROM latency l CROSS JOIN run r ON r.id = l.run_id"
                           " WHERE l.sample_id IS NULL OR l.id % ? = 0"));
  l->Bind(1 + last / most_shared);
  LatencyRow row;
  while (true) {
    KVG_ASSIGN(const bool more, l->Step());
    if (!more) return {};
    row.isolated = l->Int(1) != 0;
    row.run_key = l->View(2);
    row.context_tokens = l->Int(3);
    row.repetition = l->Int(4);
    double* const seconds[] = {&row.prefill_s,  &row.score_s,    &row.select_s,  &row.compact_s,
                               &row.quantise_s, &row.attend_s,   &row.other_s,   &row.ttft_s,
                               &row.tpot_p50_s, &row.tpot_p90_s, &row.tpot_p99_s};
    int column = 5;
    for (double* value : seconds) *value = l->Real(column++);
    row.steps = l->Int(column++);
    row.resident_bytes = l->Int(column++);
    row.peak_bytes = l->Int(column++);
    row.others_share = l->Real(column);
    visit(l->Int(0), row);
  }
}

}  // namespace kvgauge
