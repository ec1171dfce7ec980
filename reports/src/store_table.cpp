// SPDX-License-Identifier: Apache-2.0
// Reading everything at once: one pass over each table in the order it lies in the file, which for
// a million samples is several times faster than asking cell by cell.
#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

#include "core/strings.h"
#include "src/store_impl.h"

namespace kvgauge {
namespace {

// Rows that room is made for at once, whatever a damaged file says of how many there are.
constexpr int64_t kMostReserved = 2'000'000;

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

// Numbers samples by what they are. Files hold them cell after cell or sample after sample, so the
// next one is most often the last one again, or the one that came after it before.
class ItemNumbers {
 public:
  explicit ItemNumbers(std::vector<SampleTable::Item>& items) : items_(items) {}

  uint32_t Of(std::string_view sample_id, std::string_view group, std::string_view hash) {
    for (const uint32_t guess : {last_, last_ + 1}) {
      if (guess >= items_.size()) continue;
      const SampleTable::Item& item = items_[guess];
      if (item.hash == hash && item.sample_id == sample_id && item.group == group) {
        return last_ = guess;
      }
    }
    spelling_.assign(sample_id).push_back('\0');
    spelling_.append(group).push_back('\0');
    spelling_.append(hash);
    const auto at = numbers_.try_emplace(spelling_, static_cast<uint32_t>(items_.size()));
    if (at.second) {
      items_.push_back({std::string(sample_id), std::string(group), std::string(hash)});
    }
    return last_ = at.first->second;
  }

 private:
  std::vector<SampleTable::Item>& items_;
  std::unordered_map<std::string, uint32_t> numbers_;
  std::string spelling_;
  uint32_t last_ = 0;
};

constexpr char kMemorySql[] =
    "SELECT sample_id, nominal_bytes, resident_bytes, host_bytes FROM memory"
    " WHERE moment = 'compressed' ORDER BY sample_id";

// Bytes of samples that are asked for in the order of their ids: both tables are walked once, side
// by side, where a join would look every sample up.
class MemoryScan {
 public:
  // The statement is kMemorySql's; it outlives the scan.
  explicit MemoryScan(Statement& statement) : statement_(statement) {}

  Status Fill(int64_t sample, SampleTable::Row& row) {
    while (sample_ < sample) KVG_TRY(Next());
    if (sample_ != sample) return {};
    row.nominal_bytes = statement_.Int(1);
    row.resident_bytes = statement_.Int(2);
    row.host_bytes = statement_.Int(3);
    return {};
  }

 private:
  Status Next() {
    KVG_ASSIGN(const bool more, statement_.Step());
    sample_ = more ? statement_.Int(0) : std::numeric_limits<int64_t>::max();
    return {};
  }

  Statement& statement_;
  int64_t sample_ = -1;  // where it stands
};

// By cell, then position, then sample. Files hold cells, or samples, one after the other: rows are
// dealt to their cells, whose positions mostly ascend by then.
void SortRows(SampleTable& table) {
  std::vector<SampleTable::Row>& rows = table.rows;
  const auto by_cell = [](const SampleTable::Row& a, const SampleTable::Row& b) {
    return a.cell < b.cell;
  };
  if (!std::ranges::is_sorted(rows, by_cell)) {
    std::map<int64_t, size_t> begin_of;
    for (const SampleTable::Row& row : rows) ++begin_of[row.cell];
    size_t begin = 0;
    std::unordered_map<int64_t, size_t> next;
    for (const auto& [cell, count] : begin_of) {
      next[cell] = begin;
      begin += count;
    }
    std::vector<SampleTable::Row> dealt(rows.size());
    for (const SampleTable::Row& row : rows) dealt[next[row.cell]++] = row;
    rows = std::move(dealt);
  }
  const auto in_cell = [&](const SampleTable::Row& a, const SampleTable::Row& b) {
    if (a.position != b.position) return a.position < b.position;
    return table.items[a.item].sample_id < table.items[b.item].sample_id;
  };
  for (auto from = rows.begin(); from != rows.end();) {
    const auto to = std::find_if(
        from, rows.end(), [&](const SampleTable::Row& row) { return row.cell != from->cell; });
    if (!std::is_sorted(from, to, in_cell)) std::sort(from, to, in_cell);
    from = to;
  }
}

}  // namespace

Result<SampleTable> ResultStore::Samples() {
  KVG_ASSIGN(auto s, impl_->Cached(
                         "SELECT s.cell_id, s.position, s.sample_key, s.group_key, s.hash,"
                         " s.status, s.engagement, s.score, s.kl_divergence, s.top1_agreement,"
                         " s.tokens_in, s.tokens_out, s.logical_bytes, s.full_bytes,"
                         " s.id, s.read_share, s.reason, s.parts, s.fetched_per_step FROM sample s"
                         " ORDER BY s.id"));
  KVG_ASSIGN(auto memory_rows, impl_->Cached(kMemorySql));
  MemoryScan memory(*memory_rows);
  SampleTable table;
  KVG_ASSIGN(const int64_t most, impl_->db.QueryInt("SELECT coalesce(max(id), 0) FROM sample"));
  table.rows.reserve(static_cast<size_t>(std::clamp<int64_t>(most, 0, kMostReserved)));
  table.reasons.emplace_back();
  std::unordered_map<std::string, uint32_t> reasons;
  ItemNumbers numbers(table.items);
  while (true) {
    KVG_ASSIGN(const bool more, s->Step());
    if (!more) break;
    SampleTable::Row row;
    row.cell = s->Int(0);
    row.position = s->Int(1);
    row.item = numbers.Of(s->View(2), s->View(3), s->View(4));
    KVG_ASSIGN(row.status, Parse(path(), s->View(5), kStatuses));
    KVG_ASSIGN(row.engagement, Parse(path(), s->View(6), kMarks));
    row.score = RealOrNan(*s, 7);
    row.kl_divergence = RealOrNan(*s, 8);
    row.top1_agreement = RealOrNan(*s, 9);
    row.tokens_in = s->Int(10);
    row.tokens_out = s->Int(11);
    row.logical_bytes = IntOrMinusOne(*s, 12);
    row.full_bytes = IntOrMinusOne(*s, 13);
    KVG_TRY(memory.Fill(s->Int(14), row));
    row.read_share = RealOrNan(*s, 15);
    row.fetched_per_step = RealOrNan(*s, 18);
    if (row.status != SampleStatus::kOk) {
      const std::string reason = s->Text(16);
      const auto at = reasons.try_emplace(reason, static_cast<uint32_t>(table.reasons.size()));
      if (at.second) table.reasons.push_back(reason);
      row.reason = at.first->second;
    }
    if (!s->IsNull(17)) {
      KVG_ASSIGN(const std::vector<double> parts, ParseNumbers(path(), s->Text(17)));
      row.parts_at = table.parts.size();
      row.part_count = static_cast<uint32_t>(parts.size());
      table.parts.insert(table.parts.end(), parts.begin(), parts.end());
    }
    table.rows.push_back(row);
  }
  SortRows(table);
  return table;
}

Status ResultStore::VisitFacts(const FactsVisitor& visit) {
  KVG_ASSIGN(auto s, impl_->Cached("SELECT cell_id, sample_key, facts, score, parts FROM sample"
                                   " WHERE status = 'ok' AND score IS NOT NULL"));
  std::string sample_id;
  while (true) {
    KVG_ASSIGN(const bool more, s->Step());
    if (!more) return {};
    sample_id = s->View(1);
    std::vector<double> parts;
    if (!s->IsNull(4)) {
      KVG_ASSIGN(parts, ParseNumbers(path(), s->Text(4)));
    }
    visit(s->Int(0), sample_id, s->View(2), s->Real(3), parts);
  }
}

Result<std::vector<std::pair<int64_t, ResultStore::ModalityShare>>> ResultStore::Modalities() {
  KVG_ASSIGN(auto m, impl_->Cached("SELECT s.cell_id, m.modality, count(DISTINCT s.id),"
                                   " sum(m.entries_before), sum(m.entries_after), sum(m.bytes),"
                                   " avg(m.attention), avg(m.attention_kept)"
                                   " FROM modality_stat m JOIN sample s ON s.id = m.sample_id"
                                   " WHERE s.status = 'ok' GROUP BY s.cell_id, m.modality"
                                   " ORDER BY s.cell_id, m.modality"));
  std::vector<std::pair<int64_t, ModalityShare>> shares;
  while (true) {
    KVG_ASSIGN(const bool more, m->Step());
    if (!more) return shares;
    shares.emplace_back(m->Int(0), ModalityShare{.modality = m->Text(1),
                                                 .samples = m->Int(2),
                                                 .entries_before = m->Int(3),
                                                 .entries_after = m->Int(4),
                                                 .bytes = m->Int(5),
                                                 .attention = m->Real(6),
                                                 .attention_kept = m->Real(7)});
  }
}

Status ResultStore::VisitLatency(int64_t most_shared, const LatencyVisitor& visit) {
  KVG_ASSIGN(const int64_t last, impl_->db.QueryInt("SELECT coalesce(max(id), 0) FROM latency"));
  KVG_ASSIGN(auto l, impl_->Cached(
                         "SELECT l.cell_id, l.isolated, r.key, l.context_tokens, l.repetition,"
                         " l.prefill_s, l.score_s, l.select_s, l.compact_s, l.quantise_s,"
                         " l.attend_s, l.other_s, l.vision_s, l.ttft_s, l.tpot_p50_s, l.tpot_p90_s,"
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
    double* const seconds[] = {&row.prefill_s,  &row.score_s,    &row.select_s,   &row.compact_s,
                               &row.quantise_s, &row.attend_s,   &row.other_s,    &row.vision_s,
                               &row.ttft_s,     &row.tpot_p50_s, &row.tpot_p90_s, &row.tpot_p99_s};
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
