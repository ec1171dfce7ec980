// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "reports/comparison.h"
#include "reports/drawn_by.h"
#include "src/cli/print.h"
#include "src/cli/table.h"
#include "src/results/open_stores.h"
#include "src/results/results.h"
#include "src/results/show_sample.h"

namespace kvgauge {
namespace {

constexpr size_t kMostListed = 12;

bool IsHex(const std::string& text) {
  return text.size() >= 4 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string CellLabel(const StoredCell& stored) {
  const CellRow& c = stored.cell;
  return StrCat(c.Key().substr(0, 12), " (", RowLabel(c), ", ", c.model.name, ", ", c.task.name,
                ", ", c.compress_at, ", seed ", c.seed, ")");
}

std::string Labels(const std::vector<const StoredCell*>& cells) {
  std::vector<std::string> labels;
  for (const StoredCell* cell : cells) {
    if (labels.size() == kMostListed) {
      labels.push_back(StrCat("and ", cells.size() - kMostListed, " more"));
      break;
    }
    labels.push_back(CellLabel(*cell));
  }
  return Join(labels, "\n  ");
}

bool Wanted(const CellRow& cell, const ShowFlags& flags) {
  return (flags.task.empty() || cell.task.name == flags.task) &&
         (flags.model.empty() || cell.model.name == flags.model) &&
         (flags.compress_at.empty() || cell.compress_at == flags.compress_at ||
          cell.compress_at.starts_with(flags.compress_at + " ")) &&
         (flags.seed < 0 || cell.seed == flags.seed);
}

// What --task, --model, --at and --seed, which no cell has all of, could have meant.
Error NoneWanted(const std::vector<StoredCell>& cells, const ShowFlags& flags,
                 const std::string& path) {
  struct Flag {
    const char* name;
    std::string given;
    std::set<std::string> held;
  };
  Flag given[] = {{"task", flags.task, {}},
                  {"model", flags.model, {}},
                  {"compress_at", flags.compress_at, {}},
                  {"seed", flags.seed < 0 ? "" : StrCat(flags.seed), {}}};
  for (const StoredCell& stored : cells) {
    const CellRow& c = stored.cell;
    const std::string values[] = {c.task.name, c.model.name, c.compress_at, StrCat(c.seed)};
    for (size_t i = 0; i < std::size(values); ++i) given[i].held.insert(values[i]);
  }
  std::vector<std::string> together;
  for (const Flag& flag : given) {
    if (flag.given.empty()) continue;
    together.push_back(StrCat(flag.name, " ", Quoted(flag.given)));
    if (flag.held.contains(flag.given)) continue;
    const std::vector<std::string> held(flag.held.begin(), flag.held.end());
    const bool number = flag.given[0] >= '0' && flag.given[0] <= '9';
    return BadInput(StrCat(path, ": holds no cell of ", together.back(),
                           number ? "" : DidYouMean(flag.given, held),
                           "; there is: ", Join(held, ", ")));
  }
  return BadInput(StrCat(path, ": holds no cell of ", Join(together, " and "),
                         ", expected some that were run together"));
}

// Names that --cell could have meant.
Error NoCell(const std::vector<StoredCell>& cells, const ShowFlags& flags,
             const std::string& path) {
  std::set<std::string> rows, methods;
  for (const StoredCell& stored : cells) {
    if (!Wanted(stored.cell, flags)) continue;
    rows.insert(RowLabel(stored.cell));
    methods.insert(stored.cell.method.name);
  }
  if (rows.empty()) return NoneWanted(cells, flags, path);
  const auto list = [](const std::set<std::string>& set) {
    return std::vector<std::string>(set.begin(), set.end());
  };
  return BadInput(StrCat(path, ": holds no cell ", Quoted(flags.cell),
                         DidYouMeanRow(flags.cell, list(rows), list(methods)),
                         "; there is: ", Join(list(rows), ", ")));
}

Result<const StoredCell*> FindCell(const std::vector<StoredCell>& cells, const ShowFlags& flags,
                                   const std::string& path) {
  if (cells.empty()) return BadInput(StrCat(path, ": holds no cells yet"));
  std::vector<const StoredCell*> found;
  const RowName name = ParseRowName(flags.cell);
  for (const StoredCell& stored : cells) {
    const bool by_key = IsHex(flags.cell) && stored.cell.Key().starts_with(flags.cell);
    if (by_key || (Fits(name, stored.cell) && Wanted(stored.cell, flags))) found.push_back(&stored);
  }
  // The name of a row, letter by letter, is that row, whatever else it fits.
  const auto exact = [&](const StoredCell* cell) { return RowLabel(cell->cell) == flags.cell; };
  if (std::ranges::any_of(found, exact)) {
    std::erase_if(found, [&](const StoredCell* cell) { return !exact(cell); });
  }
  if (found.size() == 1) return found[0];
  if (found.empty()) return NoCell(cells, flags, path);
  return BadInput(StrCat(path, ": ", Quoted(flags.cell), " is ", found.size(), " cells:\n  ",
                         Labels(found),
                         "\ntell them apart by method[variant]@budget, --task, --model, --at, "
                         "--seed, or more of the key"));
}

// The full cache's cell of the same protocol; nothing where it was not run.
const StoredCell* FullCacheOf(const std::vector<StoredCell>& cells, const StoredCell& cell) {
  const StoredCell* found = nullptr;
  for (const StoredCell& other : cells) {
    const bool same = other.cell.method.full_cache && other.id != cell.id &&
                      other.signature_key == cell.signature_key &&
                      other.cell.task.name == cell.cell.task.name;
    if (!same) continue;
    if (other.cell.seed == cell.cell.seed) return &other;
    found = &other;
  }
  return found;
}

Json MaybeNumber(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

std::string ScoreText(const std::optional<double>& score) { return score ? Fixed(*score, 3) : "-"; }

// All samples of a cell beside the full cache.
Status ListSamples(ResultStore& store, const StoredCell& cell, const StoredCell* full, bool json) {
  KVG_ASSIGN(const std::vector<ScoreRow> rows, store.Scores(cell.id));
  std::vector<ScoreRow> others;
  if (full) {
    KVG_ASSIGN(others, store.Scores(full->id));
  }
  TextTable table;
  table.columns = {{"sample"}, {"score", true},  {"full cache", true}, {"change"},
                   {"status"}, {"tokens", true}, {"bytes", true},      {"group"}};
  Json list = Json::array();
  for (const ScoreRow& row : rows) {
    const auto other = std::ranges::find_if(others, [&](const ScoreRow& o) {
      return o.sample_id == row.sample_id && o.hash == row.hash;
    });
    std::optional<double> before;
    if (other != others.end()) before = other->score;
    TableCell change;
    if (before && row.score && *before != *row.score) {
      const bool lost = *row.score < *before;
      change = {lost ? "lost" : "won", lost ? Tone::kBad : Tone::kGood};
    }
    const std::string bytes = row.logical_bytes && row.full_bytes.value_or(0) > 0
                                  ? Fixed(100.0 * static_cast<double>(*row.logical_bytes) /
                                              static_cast<double>(*row.full_bytes),
                                          1) +
                                        "%"
                                  : "";
    table.rows.push_back(
        {{row.sample_id},
         {ScoreText(row.score)},
         {full ? ScoreText(before) : ""},
         change,
         {row.status == SampleStatus::kOk && row.engagement != EngagementMark::kNotEngaged
              ? ""
              : StrCat(NameOf(row.status), ", ", NameOf(row.engagement))},
         {StrCat(row.tokens_in)},
         {bytes},
         {row.group}});
    list.push_back({{"sample", row.sample_id},
                    {"group", row.group},
                    {"status", NameOf(row.status)},
                    {"engagement", NameOf(row.engagement)},
                    {"score", MaybeNumber(row.score)},
                    {"full_score", MaybeNumber(before)}});
  }
  if (json) {
    PrintJson({{"cell", cell.cell.Key()}, {"samples", list}});
    return {};
  }
  const bool colour = StdoutTakesColour();
  const std::optional<DrawnBy> drawn = DrawnByOf(cell.cell.signature);
  const std::string how =
      drawn ? StrCat(", a draw each at ", drawn->Text(), ", PROMPT#DRAW") : std::string();
  Print(Coloured(CellLabel(cell) + how, Tone::kStrong, colour) + "\n\n");
  table.DropEmptyColumns();
  Print(table.ToText(colour));
  return {};
}

Result<SampleRow> ReadSample(ResultStore& store, const StoredCell& cell, const std::string& id) {
  KVG_ASSIGN(std::optional<SampleRow> row, store.Read(cell.id, id));
  if (row) return std::move(*row);
  KVG_ASSIGN(const std::vector<ScoreRow> rows, store.Scores(cell.id));
  std::vector<std::string> ids;
  for (const ScoreRow& other : rows) ids.push_back(other.sample_id);
  const std::string slip = DidYouMean(id, ids);
  const size_t all = ids.size();
  if (all > kMostListed) {
    ids.resize(kMostListed);
    ids.push_back(StrCat("and ", all - kMostListed, " more"));
  }
  return BadInput(StrCat(store.path(), ": ", RowLabel(cell.cell), " holds no sample ", Quoted(id),
                         slip, "; there is: ", Join(ids, ", ")));
}

}  // namespace

Status RunShow(const ShowFlags& flags) {
  KVG_ASSIGN(const auto store, OpenForReading(flags.store));
  KVG_ASSIGN(const std::vector<StoredCell> cells, store->Cells());
  KVG_ASSIGN(const StoredCell* cell, FindCell(cells, flags, store->path()));
  const StoredCell* full = FullCacheOf(cells, *cell);
  if (flags.sample.empty()) return ListSamples(*store, *cell, full, flags.json);
  ShownSample shown;
  shown.cell = cell;
  KVG_ASSIGN(shown.row, ReadSample(*store, *cell, flags.sample));
  if (full) {
    KVG_ASSIGN(shown.full, store->Read(full->id, flags.sample));
    // Another content under the same name is another sample.
    if (shown.full && shown.full->hash != shown.row.hash) shown.full.reset();
  }
  KVG_ASSIGN(const std::vector<StoredRun> runs, store->Runs());
  shown.prompt = MakePromptAgain(*cell, shown.row, runs, flags);
  if (flags.json) {
    PrintJson(SampleToJson(shown));
  } else {
    Print(SampleText(shown, flags.prompt, StdoutTakesColour()));
  }
  return {};
}

}  // namespace kvgauge
