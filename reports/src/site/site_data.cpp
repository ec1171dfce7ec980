// SPDX-License-Identifier: Apache-2.0
#include "src/site/site_data.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "core/json.h"
#include "core/strings.h"

namespace kvgauge::site {
namespace {

// A change of bytes below this share is none that anyone asked for.
constexpr double kBytesMoved = 0.005;

uint64_t HashText(std::string_view text, uint64_t hash = 0xcbf29ce484222325u) {
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;  // FNV-1a
  return hash;
}

std::string TableKey(const std::string& fingerprint, const std::string& task,
                     const std::string& compress_at, const std::string& signature, bool group) {
  return Join({group ? "group" : "task", fingerprint, task, compress_at, signature}, "\n");
}

std::string SeriesKey(size_t table, const std::string& method, const std::string& variant,
                      const std::string& budget) {
  return Join({std::to_string(table), method, variant, budget}, "\n");
}

// The processor of a machine, as its facts say.
std::string MachineOf(const RunRow& run) {
  const Result<Json> facts = ParseJson(run.machine.facts, "machine");
  if (!facts.ok() || !facts->is_object()) return "";
  const auto text = [&](const char* key) {
    const auto found = facts->find(key);
    return found != facts->end() && found->is_string() ? found->get<std::string>() : "";
  };
  const std::string backend = text("backend");
  return backend.empty() || backend == "cpu" ? text("processor")
                                             : StrCat(text("processor"), ", ", backend);
}

Point PointOf(const LeaderboardLine& line, size_t source) {
  Point point = {.source = source,
                 .method_version = line.method.version,
                 .score = line.score,
                 .reported = line.reported,
                 .samples = line.samples,
                 .scored = line.scored,
                 .ranked = line.rank.has_value(),
                 .versus_full = line.versus_full,
                 .verdict = line.verdict,
                 .not_ranked = line.not_ranked};
  if (line.bytes.samples > 0) {
    point.logical_ratio = line.bytes.logical_ratio;
    point.resident_ratio = line.bytes.resident_ratio;
    point.resident_per_token = line.bytes.resident_per_token;
  }
  const LatencySummary* longest = nullptr;
  for (const LatencySummary& one : line.latency) {
    if (!one.isolated || one.disturbed) continue;
    if (longest == nullptr || one.context_tokens > longest->context_tokens) longest = &one;
  }
  if (longest != nullptr) {
    point.ttft_ratio = longest->ttft_ratio;
    point.tpot_ratio = longest->tpot_ratio;
  }
  return point;
}

}  // namespace

std::string Series::Name() const {
  std::string name = method.name;
  if (!method.variant.empty()) name += StrCat(" (", method.variant, ")");
  if (budget_kind != "none") name += StrCat(" ", budget);
  return name;
}

Status Data::Add(const std::string& name, ResultStore& store) {
  Source source = {.name = name};
  KVG_ASSIGN(const std::vector<StoredRun> runs, store.Runs());
  source.runs = std::ssize(runs);
  for (const StoredRun& run : runs) {
    if (run.run.started_at < source.date) continue;
    source.date = run.run.started_at;
    source.version = run.run.version;
    source.revision = run.run.revision;
    source.machine = MachineOf(run.run);
  }
  if (!sources_.empty() && source.date < sources_.back().date) {
    return BadInput(StrCat(store.path(), ": its newest run began ", source.date, ", before ",
                           sources_.back().date, " of ", sources_.back().name,
                           "; stores are added in the order of their dates"));
  }
  KVG_ASSIGN(const std::vector<StoredCell> cells, store.Cells());
  source.cells = std::ssize(cells);
  sources_.push_back(source);
  std::map<std::string, std::string> signatures;
  for (const StoredCell& cell : cells) signatures[cell.signature_key] = cell.cell.signature;
  KVG_TRY(AddTables(store, TaskGrouping::kTask, signatures));
  KVG_TRY(AddTables(store, TaskGrouping::kGroup, signatures));
  return AddSamples(store, cells);
}

Status Data::AddTables(ResultStore& store, TaskGrouping by,
                       const std::map<std::string, std::string>& signatures) {
  LeaderboardOptions options = {.by = by,
                                .alpha = options_.alpha,
                                .margin = options_.margin,
                                .seed = options_.seed,
                                .resamples = options_.resamples,
                                .set_scores = options_.set_scores};
  ResultStore* one = &store;
  KVG_ASSIGN(LeaderboardModel model, MakeLeaderboard({&one, 1}, options));
  const bool group = by == TaskGrouping::kGroup;
  const size_t source = sources_.size() - 1;
  for (LeaderboardTable& found : model.tables) {
    prints_[found.model].insert(found.model_fingerprint);
    moments_.insert(found.compress_at);
    const std::string signature = Join(found.signatures, ",");
    const auto [place, fresh] = table_of_.try_emplace(
        TableKey(found.model_fingerprint, found.task, found.compress_at, signature, group),
        tables_.size());
    if (fresh) {
      Table& made = tables_.emplace_back();
      made.group = group;
      made.signature = signature;
      for (const std::string& key : found.signatures) {
        const auto text = signatures.find(key);
        made.text.push_back(text == signatures.end() ? "" : text->second);
      }
    }
    const size_t index = place->second;
    Table& table = tables_[index];
    table.newest = source;
    const std::vector<LeaderboardLine> lines = std::exchange(found.lines, {});
    table.frame = std::move(found);
    std::vector<size_t> order;
    for (const LeaderboardLine& line : lines) {
      const auto [at, first] = series_of_.try_emplace(
          SeriesKey(index, line.method.name, line.method.variant, line.budget), series_.size());
      if (first) {
        series_.push_back({.table = index,
                           .method = line.method,
                           .budget = line.budget,
                           .budget_kind = line.budget_kind,
                           .budget_value = line.budget_value});
      }
      Series& series = series_[at->second];
      series.method = line.method;
      series.points.push_back(PointOf(line, source));
      order.push_back(at->second);
    }
    // Rows of earlier stores that this one lacks stay, behind.
    for (const size_t old : table.series) {
      if (std::ranges::find(order, old) == order.end()) order.push_back(old);
    }
    table.series = std::move(order);
  }
  return {};
}

Status Data::AddSamples(ResultStore& store, const std::vector<StoredCell>& cells) {
  std::map<int64_t, std::pair<size_t, int64_t>> of_cell;  // series and seed
  for (const StoredCell& stored : cells) {
    const CellRow& cell = stored.cell;
    const auto table = table_of_.find(TableKey(cell.model.fingerprint, cell.task.name,
                                               cell.compress_at, stored.signature_key, false));
    if (table == table_of_.end()) continue;
    const auto series = series_of_.find(
        SeriesKey(table->second, cell.method.name, cell.method.variant, cell.budget));
    if (series != series_of_.end()) of_cell[stored.id] = {series->second, cell.seed};
  }
  KVG_ASSIGN(const SampleTable samples, store.Samples());
  std::map<size_t, std::vector<SampleScore>> now;
  for (const SampleTable::Row& row : samples.rows) {
    ++sources_.back().samples;
    const auto found = of_cell.find(row.cell);
    if (found == of_cell.end() || row.status != SampleStatus::kOk || std::isnan(row.score)) {
      continue;
    }
    const SampleTable::Item& item = samples.items[row.item];
    const std::string seed = std::to_string(found->second.second);
    const std::string group = item.group.empty() ? item.sample_id : item.group;
    now[found->second.first].push_back(
        {.sample = HashText(item.hash, HashText(item.sample_id, HashText(seed))),
         .cluster = HashText(group, HashText(seed)),
         .score = row.score});
  }
  // Series are compared apart, so all processors take part.
  struct Work {
    Series* series = nullptr;
    std::vector<SampleScore>*before = nullptr, *now = nullptr;
  };
  std::vector<Work> all;
  for (auto& [index, scores] : now) all.push_back({&series_[index], &samples_[index], &scores});
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < all.size(); i = next++) {
      std::ranges::sort(*all[i].now, {}, &SampleScore::sample);
      Compare(*all[i].series, *all[i].before, *all[i].now);
      *all[i].before = std::move(*all[i].now);
    }
  };
  std::vector<std::jthread> helpers;
  const size_t threads = std::min<size_t>(std::thread::hardware_concurrency(), all.size());
  for (size_t t = 1; t < threads; ++t) helpers.emplace_back(work);
  work();
  return {};
}

void Data::Compare(Series& series, std::vector<SampleScore>& before,
                   std::vector<SampleScore>& now) const {
  if (series.points.size() < 2 || before.empty()) return;
  Change change = {.from = series.points.size() - 2, .to = series.points.size() - 1};
  std::vector<double> a, b;
  std::vector<int64_t> clusters;
  std::map<uint64_t, int64_t> number;
  bool differ = false;
  for (size_t i = 0, j = 0; i < before.size() && j < now.size();) {
    if (before[i].sample != now[j].sample) {
      before[i].sample < now[j].sample ? ++i : ++j;
      continue;
    }
    a.push_back(before[i].score);
    b.push_back(now[j].score);
    differ = differ || before[i].score != now[j].score;
    clusters.push_back(number.try_emplace(now[j].cluster, std::ssize(number)).first->second);
    ++i;
    ++j;
  }
  change.common = std::ssize(a);
  const Point &from = series.points[change.from], &to = series.points[change.to];
  if (from.logical_ratio > 0 && to.logical_ratio > 0) {
    change.bytes_moved = std::abs(std::log(to.logical_ratio / from.logical_ratio)) > kBytesMoved;
  }
  if (differ) {
    const LeaderboardTable& frame = tables_[series.table].frame;
    if (frame.lower_is_better) std::swap(a, b);
    ResamplingOptions resampling = {
        .confidence = 1 - options_.alpha, .resamples = options_.resamples, .seed = options_.seed};
    if (!frame.lower_is_better) resampling.reach = 1;
    change.evidence = ComparePaired(a, b, clusters, options_.alpha, resampling);
    change.margin = options_.margin;
    // A perplexity's margin is relative to what it was.
    if (frame.lower_is_better) change.margin *= std::abs(from.score.value);
  }
  if (differ || change.bytes_moved) series.changes.push_back(std::move(change));
}

void Data::Finish() {
  std::vector<double> p;
  std::vector<Change*> asked;
  for (Series& series : series_) {
    for (Change& change : series.changes) {
      if (change.evidence.differing == 0) continue;
      asked.push_back(&change);
      p.push_back(change.evidence.p);
    }
  }
  const std::vector<double> adjusted = HolmAdjust(p);
  for (size_t i = 0; i < asked.size(); ++i) {
    asked[i]->p_adjusted = adjusted[i];
    asked[i]->verdict = Decide(asked[i]->evidence, adjusted[i],
                               {.alpha = options_.alpha, .margin = asked[i]->margin});
  }
  ChooseTables();
  std::map<std::string, size_t> board_of;
  for (size_t i = 0; i < tables_.size(); ++i) {
    const LeaderboardTable& frame = tables_[i].frame;
    if (!tables_[i].current) continue;
    const auto [at, fresh] = board_of.try_emplace(
        Join({frame.model, frame.model_fingerprint, frame.compress_at}, "\n"), boards_.size());
    if (fresh) boards_.push_back({frame.model, frame.model_fingerprint, frame.compress_at, {}, {}});
    Board& board = boards_[at->second];
    (tables_[i].group ? board.groups : board.tasks).push_back(i);
  }
  const auto by_task = [&](size_t a, size_t b) {
    return tables_[a].frame.task < tables_[b].frame.task;
  };
  for (Board& board : boards_) {
    std::ranges::sort(board.groups, by_task);
    std::ranges::sort(board.tasks, by_task);
  }
  std::ranges::sort(boards_, {}, [](const Board& board) {
    return std::tie(board.model, board.compress_at, board.fingerprint);
  });
}

// A task has one table for each protocol: that of the newest store stands. A group of such tasks
// has one for each set of them: that of most tasks stands, so that a store of a few tasks does not
// take the place of the whole.
void Data::ChooseTables() {
  std::map<std::string, size_t> newest;
  std::set<std::string> stands;  // task and signature
  const auto place = [&](size_t i) {
    const LeaderboardTable& frame = tables_[i].frame;
    return TableKey(frame.model_fingerprint, frame.task, frame.compress_at, "", tables_[i].group);
  };
  for (size_t i = 0; i < tables_.size(); ++i) {
    if (tables_[i].group) continue;
    const auto [at, fresh] = newest.try_emplace(place(i), i);
    if (fresh) continue;
    size_t loser = i;
    if (tables_[i].newest > tables_[at->second].newest) std::swap(loser, at->second);
    tables_[loser].current = false;
  }
  for (size_t i = 0; i < tables_.size(); ++i) {
    Table& table = tables_[i];
    if (table.group) continue;
    if (table.current) {
      stands.insert(StrCat(table.frame.task, "\n", table.signature));
      continue;
    }
    std::string keys;
    const Table& now = tables_[newest.at(place(i))];
    if (!table.text.empty() && !now.text.empty()) {
      keys = DifferingSignatureKeys(table.text[0], now.text[0]);
    }
    sources_[table.newest].apart.push_back(
        StrCat(TitleOf(table), ", ", table.frame.task,
               keys.empty() ? std::string() : StrCat(": ", keys, " differ")));
  }
  std::map<std::string, std::tuple<bool, size_t, size_t, size_t>> best;
  for (size_t i = 0; i < tables_.size(); ++i) {
    Table& table = tables_[i];
    if (!table.group) continue;
    table.current = false;
    const LeaderboardTable& frame = table.frame;
    bool whole = true;
    for (size_t t = 0; t < frame.task_names.size(); ++t) {
      whole = whole && stands.contains(StrCat(frame.task_names[t], "\n", frame.signatures[t]));
    }
    std::tuple<bool, size_t, size_t, size_t>& now = best[place(i)];
    now = std::max(now, std::tuple(whole, frame.task_names.size(), table.newest, i));
  }
  for (const auto& [key, chosen] : best) tables_[std::get<3>(chosen)].current = true;
}

std::string Data::TitleOf(const std::string& model, const std::string& fingerprint,
                          const std::string& compress_at) const {
  std::string title = model;
  if (prints_.at(model).size() > 1) title += StrCat(" (", fingerprint.substr(0, 8), ")");
  if (moments_.size() > 1) title += StrCat(", compressed at ", compress_at);
  return title;
}

std::string Data::TitleOf(const Board& board) const {
  return TitleOf(board.model, board.fingerprint, board.compress_at);
}

std::string Data::TitleOf(const Table& table) const {
  return TitleOf(table.frame.model, table.frame.model_fingerprint, table.frame.compress_at);
}

}  // namespace kvgauge::site
