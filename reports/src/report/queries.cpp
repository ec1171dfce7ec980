// SPDX-License-Identifier: Apache-2.0
#include "src/report/queries.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <unordered_map>

#include "core/json.h"
#include "core/strings.h"
#include "src/html/format.h"
#include "src/html/visible.h"
#include "src/report/sql.h"
#include "src/store_impl.h"

namespace kvgauge::report {
namespace {

constexpr char kDepthsSql[] =
    "WITH few AS (SELECT id, cell_id FROM (SELECT id, cell_id, row_number() OVER (\n"
    "    PARTITION BY cell_id ORDER BY position, sample_key) AS n FROM sample WHERE status = "
    "'ok')\n"
    "  WHERE n <= ?1)\n"
    "SELECT few.cell_id, l.layer, l.kept_by_depth\n"
    "FROM few JOIN layer_stat l ON l.sample_id = few.id AND l.head = -1\n"
    "WHERE l.kept_by_depth IS NOT NULL";
constexpr char kTextSql[] =
    "SELECT a.turn, question.text, question.excerpt, a.prediction, a.answers, a.score\n"
    "FROM answer a LEFT JOIN question ON question.id = a.question_id\n"
    "WHERE a.sample_id = ?1 ORDER BY a.turn";

// "[0.1,1]" added to `sums`; false where it is no list of that many numbers.
bool AddNumbers(const std::string& text, std::vector<double>& sums) {
  size_t at = 0, count = 0;
  const auto skip = [&] {
    while (at < text.size() && std::strchr("[], ", text[at]) != nullptr && text[at] != '\0') ++at;
  };
  std::vector<double> values;
  for (skip(); at < text.size(); skip(), ++count) {
    double value = 0;
    const auto end = std::from_chars(text.data() + at, text.data() + text.size(), value);
    if (end.ec != std::errc()) return false;
    at = static_cast<size_t>(end.ptr - text.data());
    values.push_back(value);
  }
  if (sums.empty()) sums.resize(count);
  if (count != sums.size()) return false;
  for (size_t i = 0; i < count; ++i) sums[i] += values[i];
  return true;
}

// A JSON list of texts as one text; what is none stays as it is.
std::string References(const std::string& list) {
  const Result<Json> json = ParseJson(list, "answers");
  if (!json.ok() || !json->is_array()) return list;
  std::vector<std::string> texts;
  for (const Json& item : *json) {
    if (!item.is_string()) return list;
    texts.push_back(item.get<std::string>());
  }
  return Join(texts, " | ");
}

std::string Cut(const std::string& text, size_t limit) {
  size_t left_out = 0;
  std::string cut = MakeVisible(text, limit, left_out);
  if (left_out > 0) {
    cut.append(StrCat(" … (", Plural(static_cast<int64_t>(left_out), "more byte", "more bytes"),
                      " in the database)"));
  }
  return cut;
}

}  // namespace

const char* const BytesByKind::kNames[kKinds] = {"payload",  "scales", "indices",   "outliers",
                                                 "low rank", "biases", "codebooks", "projections",
                                                 "reader",   "slack"};

Result<std::vector<BytesByKind>> Queries::Bytes() {
  KVG_ASSIGN(auto s, store_.impl_->Cached(kBytesSql));
  std::vector<BytesByKind> rows;
  while (true) {
    KVG_ASSIGN(const bool more, s->Step());
    if (!more) return rows;
    BytesByKind row = {
        .cell = s->Int(0), .samples = s->Int(1), .tokens_in = s->Real(2), .full_bytes = s->Real(3)};
    for (int k = 0; k < BytesByKind::kKinds; ++k) row.parts[k] = s->Real(4 + k);
    rows.push_back(row);
  }
}

Result<std::vector<GridCount>> Queries::Grid() {
  KVG_ASSIGN(auto s, store_.impl_->Cached(kGridSql));
  std::vector<GridCount> rows;
  while (true) {
    KVG_ASSIGN(const bool more, s->Step());
    if (!more) return rows;
    if (s->IsNull(1) || s->IsNull(2)) continue;
    rows.push_back({.cell = s->Int(0),
                    .depth = s->Text(1),
                    .length = s->Text(2),
                    .pictures = s->Int(6) != 0,
                    .samples = s->Int(3),
                    .right = s->Int(4),
                    .mean = s->Real(5)});
  }
}

Result<std::vector<HeadMean>> Queries::Heads(int64_t row_limit, int64_t& samples) {
  Database& db = store_.impl_->db;
  KVG_ASSIGN(const int64_t cells, db.QueryInt("SELECT count(*) FROM cell"));
  // As many rows as one sample of each kind of model has at most.
  KVG_ASSIGN(const int64_t rows_of_one,
             db.QueryInt("SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM layer_stat"
                         " WHERE sample_id IN (SELECT min(id) FROM sample WHERE status = 'ok'"
                         " GROUP BY cell_id) GROUP BY sample_id)"));
  samples = std::max<int64_t>(4, row_limit / std::max<int64_t>(1, cells * rows_of_one));
  KVG_ASSIGN(auto s, store_.impl_->Cached(kHeadsSql));
  s->Bind(samples);
  std::vector<HeadMean> means;
  int64_t most = 0;
  while (true) {
    KVG_ASSIGN(const bool more, s->Step());
    if (!more) break;
    means.push_back({.cell = s->Int(0),
                     .layer = s->Int(1),
                     .head = s->Int(2),
                     .samples = s->Int(3),
                     .kept = s->MaybeReal(4),
                     .bits = s->MaybeReal(5),
                     .attention_error = s->MaybeReal(6),
                     .answer_kept = s->MaybeReal(7)});
    most = std::max(most, means.back().samples);
  }
  samples = std::min(samples, most);
  return means;
}

Result<std::vector<DepthMean>> Queries::Depths(int64_t samples) {
  KVG_ASSIGN(auto s, store_.impl_->Cached(kDepthsSql));
  s->Bind(samples);
  std::vector<DepthMean> means;
  std::unordered_map<int64_t, size_t> index;  // of cell and layer
  while (true) {
    KVG_ASSIGN(const bool more, s->Step());
    if (!more) break;
    const int64_t key = s->Int(0) * 4096 + s->Int(1);
    const auto place = index.emplace(key, means.size());
    if (place.second) means.push_back({.cell = s->Int(0), .layer = s->Int(1), .kept = {}});
    DepthMean& mean = means[place.first->second];
    if (AddNumbers(s->Text(2), mean.kept)) ++mean.samples;
  }
  for (DepthMean& mean : means) {
    for (double& share : mean.kept)
      share /= static_cast<double>(std::max<int64_t>(1, mean.samples));
  }
  std::sort(means.begin(), means.end(), [](const DepthMean& a, const DepthMean& b) {
    return a.cell != b.cell ? a.cell < b.cell : a.layer < b.layer;
  });
  return means;
}

Result<std::vector<ModalitySum>> Queries::Modalities() {
  KVG_ASSIGN(auto s, store_.impl_->Cached(kModalitiesSql));
  std::vector<ModalitySum> sums;
  while (true) {
    KVG_ASSIGN(const bool more, s->Step());
    if (!more) return sums;
    sums.push_back({.cell = s->Int(0),
                    .layer = s->Int(1),
                    .modality = s->Text(2),
                    .samples = s->Int(3),
                    .entries_before = s->Int(4),
                    .entries_after = s->Int(5),
                    .attention = s->Real(6),
                    .attention_kept = s->Real(7)});
  }
}

Result<std::vector<SamplePair>> Queries::Pairs() {
  // Joined here: SQLite would look for each sample's partner by itself.
  Database& db = store_.impl_->db;
  KVG_ASSIGN(Statement s,
             db.Prepare("SELECT s.id, s.cell_id, s.score, m.full_cache, c.model_id, c.task_id,"
                        " c.signature_id, c.seed, c.compress_at, s.sample_key, s.hash,"
                        " s.sight_id IS NOT NULL AND s.patches IS NOT NULL"
                        " FROM cell c JOIN method m ON m.id = c.method_id"
                        " JOIN sample s ON s.cell_id = c.id WHERE s.score IS NOT NULL"
                        " ORDER BY m.full_cache DESC, c.id, s.position"));
  std::unordered_map<std::string, std::pair<int64_t, double>> full;
  std::vector<SamplePair> pairs;
  std::string key;
  while (true) {
    KVG_ASSIGN(const bool more, s.Step());
    if (!more) return pairs;
    key.clear();
    for (int column = 4; column < 11; ++column) {
      key.append(reinterpret_cast<const char*>(sqlite3_column_text(s.get(), column)));
      key.push_back('\x1f');
    }
    if (s.Int(3) != 0) {
      full.try_emplace(key, s.Int(0), s.Real(2));
      continue;
    }
    const auto partner = full.find(key);
    if (partner == full.end()) continue;
    pairs.push_back({.full_sample = partner->second.first,
                     .sample = s.Int(0),
                     .cell = s.Int(1),
                     .full_score = partner->second.second,
                     .score = s.Real(2),
                     .pictures = s.Int(11) != 0});
  }
}

Result<SampleText> Queries::Text(int64_t sample, size_t limit) {
  SampleText text;
  {
    KVG_ASSIGN(auto s, store_.impl_->Cached("SELECT sample_key, facts, score, answer_depth,"
                                            " patches, sight_id FROM sample WHERE id = ?"));
    s->Bind(sample);
    KVG_ASSIGN(const bool found, s->Step());
    if (!found) return BadInput(StrCat(store_.path(), ": sample ", sample, " is gone"));
    text.sample_id = s->Text(0);
    text.facts = s->Text(1);
    text.score = s->MaybeReal(2);
    text.answer_depth = s->MaybeReal(3);
    text.patches = s->Text(4);
    if (const std::optional<int64_t> id = s->MaybeInt(5)) {
      std::shared_ptr<const SightRow>& sight = sights_[*id];
      if (sight == nullptr) {
        KVG_ASSIGN(sight, store_.impl_->ReadSight(*id));
      }
      text.sight = sight;
    }
  }
  KVG_ASSIGN(auto a, store_.impl_->Cached(kTextSql));
  a->Bind(sample);
  while (true) {
    KVG_ASSIGN(const bool more, a->Step());
    if (!more) break;
    text.turns.push_back({.question = Cut(a->Text(1), limit),
                          .excerpt = Cut(a->Text(2), limit),
                          .prediction = Cut(a->Text(3), limit),
                          .references = Cut(References(a->Text(4)), limit),
                          .score = a->MaybeReal(5)});
  }
  KVG_ASSIGN(auto l, store_.impl_->Cached("SELECT answer_kept FROM layer_stat WHERE sample_id = ?"
                                          " AND head = -1 ORDER BY layer"));
  l->Bind(sample);
  bool known = false;
  while (true) {
    KVG_ASSIGN(const bool more, l->Step());
    if (!more) break;
    text.answer_kept.push_back(l->MaybeReal(0));
    known = known || text.answer_kept.back().has_value();
  }
  if (!known) text.answer_kept.clear();
  return text;
}

}  // namespace kvgauge::report
