// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "core/counted.h"
#include "core/json.h"
#include "core/strings.h"
#include "reports/draws.h"
#include "reports/leaderboard_split.h"
#include "src/cli/print.h"
#include "src/cli/table.h"
#include "src/foreign/foreign_rows.h"
#include "src/results/capacity_table.h"
#include "src/results/draw_tables.h"
#include "src/results/leaderboard_fields.h"
#include "src/results/leaderboard_json.h"
#include "src/results/open_stores.h"
#include "src/results/results.h"
#include "src/results/set_scores.h"
#include "src/results/speculation_table.h"
#include "src/results/split_tables.h"

namespace kvgauge {
namespace {

Status CheckNames(const std::string& flag, const std::vector<std::string>& names) {
  const std::vector<std::string>& known = LeaderboardNames();
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) != known.end()) continue;
    return BadInput(StrCat(flag, ": there is no column ", Quoted(name), DidYouMean(name, known),
                           "; known: ", Join(known, ", ")));
  }
  return {};
}

// A line and the table that says what its numbers mean.
struct RankedRow {
  const LeaderboardTable* table;
  const LeaderboardLine* line;
};

void Sort(const std::string& by, std::vector<RankedRow>& rows) {
  if (by.empty() || rows.empty()) return;
  const bool turned = by[0] == '-';
  std::string field = turned ? by.substr(1) : by;
  if (field == "interval") field = "score";
  if (field == "delta_interval") field = "delta";
  if (field == "budget") {
    std::ranges::stable_sort(rows, {}, [](const RankedRow& row) {
      return std::pair(row.line->budget_kind, row.line->budget_value);
    });
    if (turned) std::ranges::reverse(rows);
    return;
  }
  const bool descending = MoreIsBetter(*rows.front().table, field) != turned;
  std::vector<std::pair<Json, RankedRow>> keys;
  for (const RankedRow& row : rows) keys.emplace_back(FieldOf(*row.table, *row.line, field), row);
  std::ranges::stable_sort(keys, [&](const auto& a, const auto& b) {
    if (a.first.is_null() || b.first.is_null()) return b.first.is_null() && !a.first.is_null();
    return descending ? b.first < a.first : a.first < b.first;
  });
  std::ranges::transform(keys, rows.begin(), [](const auto& key) { return key.second; });
}

std::vector<RankedRow> RowsOf(const LeaderboardTable& table) {
  std::vector<RankedRow> rows;
  for (const LeaderboardLine& line : table.lines) rows.push_back({&table, &line});
  return rows;
}

void Sort(const std::string& by, LeaderboardTable& table) {
  if (by.empty()) return;
  std::vector<RankedRow> rows = RowsOf(table);
  Sort(by, rows);
  std::vector<LeaderboardLine> sorted;
  for (const RankedRow& row : rows) sorted.push_back(*row.line);
  table.lines = std::move(sorted);
}

// Values that a filter could have asked for: "method holds full, h2o, snapkv".
std::string Held(const LeaderboardModel& model, const std::string& id) {
  std::set<std::string> values;
  for (const LeaderboardTable& table : model.tables) {
    for (const LeaderboardLine& line : table.lines) {
      const Json value = FieldOf(table, line, id);
      values.insert(value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  constexpr size_t kMost = 30;
  std::vector<std::string> shown;
  for (const std::string& value : values) {
    if (shown.size() < kMost) shown.push_back(value.empty() ? "''" : value);
  }
  if (values.size() > kMost) shown.emplace_back("...");
  return StrCat(id, " holds ", Join(shown, ", "));
}

Status Filter(const std::vector<std::string>& texts, LeaderboardModel& model) {
  for (const std::string& text : texts) {
    KVG_ASSIGN(const FieldFilter filter, ParseFieldFilter(text));
    LeaderboardModel kept = model;
    kept.tables.clear();
    for (const LeaderboardTable& table : model.tables) {
      LeaderboardTable next = table;
      next.lines.clear();
      std::set<std::string> methods;
      for (const LeaderboardLine& line : table.lines) {
        KVG_ASSIGN(const bool passes, Passes(filter, table, line));
        if (!passes) continue;
        next.lines.push_back(line);
        methods.insert(StrCat(line.method.name, "\n", line.method.variant));
      }
      std::erase_if(next.methods, [&](const MethodSummary& m) {
        return !methods.contains(StrCat(m.method, "\n", m.variant));
      });
      if (!next.lines.empty()) kept.tables.push_back(std::move(next));
    }
    if (kept.tables.empty()) {
      return BadInput(
          StrCat("--filter: no row passes ", Quoted(text), "; ", Held(model, filter.id)));
    }
    model = std::move(kept);
  }
  return {};
}

// Takes rows without a rank out, unless there are no others; how many went.
int64_t HideUnranked(LeaderboardTable& table) {
  const auto ranked = [](const LeaderboardLine& line) { return line.rank.has_value(); };
  if (std::ranges::none_of(table.lines, ranked)) return 0;
  return static_cast<int64_t>(
      std::erase_if(table.lines, [&](const LeaderboardLine& line) { return !ranked(line); }));
}

// `what` says whose rows they are: "ref-gqa, needle/single".
std::string Title(std::string what, const LeaderboardTable& table,
                  const std::vector<RankedRow>& rows) {
  std::vector<std::string> parts = {std::move(what)};
  if (table.task_names.size() > 1) {
    parts.push_back(StrCat("mean over ", table.task_names.size(), " tasks"));
  }
  parts.push_back(StrCat("compressed at ", table.compress_at));
  if (!table.metric.empty()) {
    parts.push_back(table.lower_is_better ? StrCat(table.metric, ", lower is better")
                                          : table.metric);
  }
  if (table.drawn) {
    parts.push_back(StrCat("drawn at ", table.drawn->Text(), ", mean over draws"));
  }
  int64_t scored = 0, contexts = 0;
  for (const RankedRow& row : rows) {
    scored = std::max(scored, row.line->scored);
    contexts = std::max(contexts, row.line->score.clusters);
  }
  parts.push_back(scored == contexts
                      ? Counted(scored, "sample")
                      : StrCat(Counted(scored, "sample"), " of ", Counted(contexts, "context")));
  return Join(parts, " | ");
}

TextTable Lines(const std::vector<RankedRow>& rows, const std::vector<std::string>& columns) {
  TextTable text;
  for (const std::string& id : columns) text.columns.push_back(ColumnOf(id));
  for (const RankedRow& row : rows) {
    std::vector<TableCell>& cells = text.rows.emplace_back();
    for (const std::string& id : columns) cells.push_back(CellOf(*row.table, *row.line, id));
  }
  return text;
}

TextTable Methods(const LeaderboardTable& table) {
  TextTable text;
  text.columns = {{"method"},  {"area", true},    {"interval"},    {"vs full", true}, {"interval"},
                  {"n", true}, {"budgets", true}, {"bytes", true}, {"note"}};
  int64_t most = 0;
  for (const MethodSummary& m : table.methods) {
    if (m.area) most = std::max(most, m.area->samples);
  }
  for (const MethodSummary& m : table.methods) {
    if (!m.area && m.budgets < 2 && m.left_out.empty()) continue;
    std::vector<std::string> notes;
    if (!m.missing.empty()) notes.push_back(m.missing);
    if (m.area && m.area->samples < most) notes.emplace_back("of other samples than the others");
    if (!m.left_out.empty()) notes.push_back(StrCat("without ", m.left_out));
    const auto number = [&](const std::optional<Estimate>& e, bool change) -> TableCell {
      if (!e) return {};
      return {change ? ShowChange(table, e->value) : ShowScore(table, e->value)};
    };
    const auto interval = [&](const std::optional<Estimate>& e, bool change) -> TableCell {
      return {e ? ShowInterval(table, e->interval, change) : ""};
    };
    text.rows.push_back({{m.variant.empty() ? m.method : StrCat(m.method, "[", m.variant, "]")},
                         number(m.area, false),
                         interval(m.area, false),
                         number(m.versus_full, true),
                         interval(m.versus_full, true),
                         {m.area ? StrCat(m.area->samples) : ""},
                         {StrCat(m.budgets)},
                         {m.budgets == 0 ? ""
                                         : StrCat(Fixed(100 * m.low_ratio, 1), " to ",
                                                  Fixed(100 * m.high_ratio, 1), "%")},
                         {Join(notes, "; "), Tone::kDoubtful}});
  }
  return text;
}

struct Style {
  bool markdown = false;
  bool colour = false;
  size_t width = 0;  // 0: as wide as it gets
};

std::string Draw(TextTable table, const Style& style, std::vector<std::string>& hidden) {
  table.DropEmptyColumns();
  if (style.markdown) return table.ToMarkdown();
  if (style.width > 0) hidden = table.FitTo(style.width);
  return table.ToText(style.colour);
}

std::string Notes(std::vector<std::string> notes, int64_t unranked,
                  const std::vector<std::string>& hidden, const Style& style) {
  if (unranked > 0) {
    notes.push_back(StrCat(unranked, unranked == 1 ? " row has" : " rows have",
                           " no rank; --all shows them and why"));
  }
  if (!hidden.empty()) {
    notes.push_back(StrCat("too narrow for ", Join(hidden, ", "), "; --columns picks"));
  }
  std::string out = notes.empty() ? "" : "\n";
  for (const std::string& note : notes) {
    out += style.markdown ? StrCat("- ", note, "\n")
                          : Coloured(StrCat("note: ", note), Tone::kDoubtful, style.colour) + "\n";
  }
  return out;
}

std::string Head(const std::string& title, const Style& style) {
  return style.markdown ? StrCat("### ", title, "\n\n")
                        : Coloured(title, Tone::kStrong, style.colour).append("\n\n");
}

std::string Page(const LeaderboardTable& table, const LeaderboardSplit& split,
                 const DrawTable& draws, const std::vector<std::string>& columns, int64_t unranked,
                 const Style& style) {
  const std::vector<RankedRow> rows = RowsOf(table);
  std::string out = Head(Title(StrCat(table.model, ", ", table.task), table, rows), style);
  std::vector<std::string> hidden;
  out += Draw(Lines(rows, columns), style, hidden);
  if (table.area_range && !table.methods.empty()) {
    const TextTable methods = Methods(table);
    if (!methods.rows.empty()) {
      out += StrCat("\nMean score over log(bytes), from ", Fixed(100 * table.area_range->low, 1),
                    "% to ", Fixed(100 * table.area_range->high, 1),
                    "% of the full cache's bytes:\n\n");
      std::vector<std::string> ignored;
      out += Draw(methods, style, ignored);
    }
  }
  if (!draws.empty()) out += DrawsText(table, draws, style.markdown, style.colour);
  if (!split.empty()) out += SplitText(table, split, style.markdown, style.colour);
  return out + Notes(table.notes, unranked, hidden, style);
}

// Tables of one task, metric and moment of compression, of any models, in order of appearance.
std::vector<std::vector<size_t>> AcrossModels(const LeaderboardModel& model) {
  std::vector<std::vector<size_t>> sets;
  for (size_t i = 0; i < model.tables.size(); ++i) {
    const LeaderboardTable& table = model.tables[i];
    const auto same = std::ranges::find_if(sets, [&](const std::vector<size_t>& set) {
      const LeaderboardTable& first = model.tables[set.front()];
      return std::tie(first.task_names, first.task, first.compress_at, first.metric) ==
             std::tie(table.task_names, table.task, table.compress_at, table.metric);
    });
    if (same == sets.end()) {
      sets.push_back({i});
    } else {
      same->push_back(i);
    }
  }
  return sets;
}

// The rows of several models' tables as one, by score and then by bytes a token. Ranks are of one
// model and stay out.
std::string AcrossPage(const LeaderboardModel& model, const std::vector<size_t>& set,
                       const std::string& sort, std::vector<std::string> columns,
                       const std::vector<int64_t>& unranked, const Style& style) {
  std::vector<RankedRow> rows;
  std::vector<std::string> notes;
  std::set<std::string> names;
  int64_t out_of_rank = 0;
  for (const size_t i : set) {
    const LeaderboardTable& table = model.tables[i];
    for (const RankedRow& row : RowsOf(table)) rows.push_back(row);
    for (const std::string& note : table.notes) {
      notes.push_back(StrCat(table.model, ": ", note));
    }
    names.insert(table.model);
    out_of_rank += unranked[i];
  }
  if (sort.empty()) Sort("token_bytes", rows);
  Sort(sort.empty() ? "score" : sort, rows);
  std::erase(columns, "rank");
  TextTable text = Lines(rows, columns);
  text.columns.insert(text.columns.begin(), TableColumn{"model", false, 100});
  for (size_t i = 0; i < rows.size(); ++i) {
    text.rows[i].insert(text.rows[i].begin(), TableCell{rows[i].table->model});
  }
  const LeaderboardTable& first = model.tables[set.front()];
  const std::string what =
      names.size() == 1 ? StrCat(first.model, ", ", first.task)
                        : StrCat(first.task, ", ", static_cast<int64_t>(names.size()), " models");
  if (names.size() > 1) {
    notes.emplace_back(
        "bytes, differences and verdicts are against each model's own full cache; scores of "
        "different models are not tested against each other");
  }
  std::vector<std::string> hidden;
  std::string out = Head(Title(what, first, rows), style);
  out += Draw(std::move(text), style, hidden);
  return out + Notes(notes, out_of_rank, hidden, style);
}

// What p is corrected over.
std::string Correction(const LeaderboardModel& model) {
  const std::string which = "in which any sample differs from the full cache";
  std::vector<std::string> families;
  int64_t size = 0;
  for (const LeaderboardTable& table : model.tables) {
    const std::string family =
        StrCat(table.corrected_over, " of ", table.model, " at ", table.compress_at);
    if (std::ranges::find(families, family) == families.end()) families.push_back(family);
    size = table.corrected_over;
  }
  if (families.size() == 1) {
    return StrCat("over the ", Counted(size, "comparison"), " of the model ", which);
  }
  return StrCat("over the comparisons of a model ", which, ": ", Join(families, ", "));
}

// What the words and numbers mean, once.
std::string Legend(const LeaderboardModel& model, const std::vector<std::string>& columns) {
  const bool timed = std::ranges::any_of(columns, [](const std::string& id) {
    return id.starts_with("ttft") || id.starts_with("tpot") || id == "compress";
  });
  bool shared = false, disturbed = false, related = false, experimental = false;
  for (const LeaderboardTable& table : model.tables) {
    for (const LeaderboardLine& line : table.lines) {
      experimental = experimental || line.method.experimental;
      if (!timed || line.latency.empty()) continue;
      const LatencySummary& s = line.latency.back();
      shared = shared || !s.isolated;
      disturbed = disturbed || s.disturbed;
      related = related || s.ttft_ratio || s.tpot_ratio;
    }
  }
  const LeaderboardOptions& o = model.options;
  std::string out =
      StrCat("Intervals at ", Fixed(100 * (1 - o.alpha), 0),
             "%, clustered by context; p is corrected (Holm) ", Correction(model),
             ".\nSAME: within ", o.margin,
             " of the full cache's score, by two one-sided tests; findable: the least difference "
             "this many "
             "samples show 4 times in 5, or none.\nbytes: all that a method must keep, of the full "
             "cache's; "
             "resident: what the allocator holds for it.");
  const bool placed = std::ranges::any_of(model.tables, [](const LeaderboardTable& table) {
    return std::ranges::any_of(table.lines,
                               [](const LeaderboardLine& line) { return line.bytes.host > 0; });
  });
  if (placed) {
    out +=
        "\ndevice: resident without what the method's place puts on the host; fetched: what a "
        "decode step reads from there. Both are counted, no entry is moved.";
  }
  const bool turned = std::ranges::any_of(
      model.tables, [](const LeaderboardTable& table) { return table.lower_is_better; });
  if (turned) {
    out +=
        "\nDifferences of a perplexity are turned round: + is better, lower than the full cache's.";
  }
  const bool drawn = std::ranges::any_of(
      model.tables, [](const LeaderboardTable& table) { return table.drawn.has_value(); });
  if (drawn) {
    out +=
        "\nWhere answers were drawn, a sample is one draw: the score is pass@1 where answers are "
        "right "
        "or wrong.";
  }
  if (related) {
    out +=
        "\nTimes are medians; (x): the median ratio to the full cache of the same round, not the "
        "ratio of the medians.";
  }
  if (shared) out += "\n~: times in company of other rows, never to compare by.";
  if (disturbed) out += "\n!: other programs ran beside every repetition, never to compare by.";
  if (experimental) {
    out += "\n*: experimental; no independent implementation has confirmed what the method does.";
  }
  return out + "\n";
}

std::string Csv(const LeaderboardModel& model, const std::vector<std::string>& columns) {
  TextTable text;
  for (const std::string& id : columns) text.columns.push_back({id});
  for (const LeaderboardTable& table : model.tables) {
    for (const LeaderboardLine& line : table.lines) {
      std::vector<TableCell>& row = text.rows.emplace_back();
      for (const std::string& id : columns) {
        const Json value = FieldOf(table, line, id);
        row.push_back({value.is_null()     ? ""
                       : value.is_string() ? value.get<std::string>()
                                           : value.dump()});
      }
    }
  }
  return text.ToCsv();
}

}  // namespace

Status RunLeaderboard(const LeaderboardFlags& flags) {
  KVG_ASSIGN(const TableFormat format,
             ParseTableFormat(flags.json ? "json" : flags.format, "--format"));
  if (flags.by != "task" && flags.by != "group") {
    return BadInput(StrCat("--by: ", Quoted(flags.by), DidYouMean(flags.by, {"task", "group"}),
                           ", expected task or group"));
  }
  const bool values = format == TableFormat::kCsv || format == TableFormat::kJson;
  KVG_TRY(CheckNames("--columns", flags.columns));
  if (!flags.sort.empty()) {
    KVG_TRY(CheckNames("--sort", {flags.sort[0] == '-' ? flags.sort.substr(1) : flags.sort}));
  }
  if (flags.across_models && (values || !flags.split.empty())) {
    return BadInput(StrCat("--across-models: expected without ",
                           values ? "csv or json, which hold the rows of all models in any case"
                                  : "--split, which splits the scores of one model"));
  }
  for (const std::string& text : flags.filters) KVG_TRY(ParseFieldFilter(text));
  if (!flags.foreign.empty() && format == TableFormat::kCsv) {
    return BadInput("--foreign: shown in a table of its own, expected another --format than csv");
  }
  KVG_ASSIGN(const std::vector<ForeignRow> foreign, ReadForeignRows(flags.foreign));
  if (flags.split.size() > 2) {
    return BadInput(
        StrCat("--split: ", Quoted(Join(flags.split, ",")), ", expected one or two keys"));
  }

  KVG_ASSIGN(const OpenStores stores, OpenAllForReading(flags.stores));
  LeaderboardOptions options;
  options.by = flags.by == "group" ? TaskGrouping::kGroup : TaskGrouping::kTask;
  options.alpha = flags.statistics.alpha;
  options.margin = flags.statistics.margin;
  options.seed = flags.statistics.seed;
  options.resamples = flags.statistics.resamples;
  options.set_scores = KnownSetScores();
  KVG_ASSIGN(LeaderboardModel model, MakeLeaderboard(stores.all, options));
  KVG_ASSIGN(std::vector<CapacityBoard> capacities, ReadCapacities(stores.all));
  KVG_ASSIGN(std::vector<SpeculationBoard> speculations, ReadSpeculations(stores.all));
  const bool served = !capacities.empty() || !speculations.empty();
  if (model.tables.empty() && (!served || format == TableFormat::kCsv)) {
    return BadInput(StrCat(Join(flags.stores, ", "),
                           ": holds no samples yet, expected some; `kvgauge run` records them"));
  }
  KVG_TRY(Filter(flags.filters, model));
  if (!flags.filters.empty()) {
    const auto left_out = [&](const auto& board) {
      return std::ranges::none_of(model.tables, [&](const LeaderboardTable& table) {
        return table.model_fingerprint == board.model.fingerprint;
      });
    };
    std::erase_if(capacities, left_out);
    std::erase_if(speculations, left_out);
  }
  std::vector<int64_t> unranked;
  for (LeaderboardTable& table : model.tables) {
    unranked.push_back(flags.all || values ? 0 : HideUnranked(table));
    Sort(flags.sort, table);
  }
  const bool by_modality = flags.split == std::vector<std::string>{kModalitySplit};
  std::vector<std::vector<ModalityLine>> modalities;
  if (by_modality) {
    KVG_ASSIGN(modalities, SplitByModality(stores.all, model));
  }
  const std::vector<std::string> facts = by_modality ? std::vector<std::string>() : flags.split;
  KVG_ASSIGN(const std::vector<LeaderboardSplit> splits,
             SplitLeaderboard(stores.all, model, facts));
  KVG_TRY(CheckSplits(facts, splits, stores.all));
  KVG_ASSIGN(const std::vector<DrawTable> draws, MakeDrawTables(stores.all, model));
  if (format == TableFormat::kJson) {
    Json json = LeaderboardToJson(model, splits, draws, flags.stores, FieldsOfNames(flags.columns));
    for (size_t i = 0; i < modalities.size(); ++i) {
      json["modalities"].push_back(ModalityJson(model.tables[i], modalities[i]));
    }
    if (!capacities.empty()) json["capacity"] = CapacityJson(capacities);
    if (!speculations.empty()) json["speculation"] = SpeculationJson(speculations);
    if (!foreign.empty()) json["foreign"] = ToJson(foreign)["rows"];
    PrintJson(json);
    return {};
  }
  if (format == TableFormat::kCsv) {
    Print(Csv(model, flags.columns.empty() ? LeaderboardFields() : FieldsOfNames(flags.columns)));
    return {};
  }
  Style style;
  style.markdown = format == TableFormat::kMarkdown;
  style.colour = !style.markdown && StdoutTakesColour();
  style.width = flags.columns.empty() ? StdoutWidth() : 0;
  const std::vector<std::string>& columns =
      flags.columns.empty() ? DefaultColumns() : flags.columns;
  if (flags.across_models) {
    for (const std::vector<size_t>& set : AcrossModels(model)) {
      Print(AcrossPage(model, set, flags.sort, columns, unranked, style) + "\n");
    }
  }
  for (size_t i = 0; i < model.tables.size() && !flags.across_models; ++i) {
    Print(Page(model.tables[i], splits[i], draws[i], columns, unranked[i], style) + "\n");
    if (by_modality) {
      Print(ModalityText(model.tables[i], modalities[i], style.markdown, style.colour) + "\n");
    }
    const std::string capacity =
        CapacityText(model.tables[i], capacities, style.markdown, style.colour);
    if (!capacity.empty()) Print(capacity + "\n");
  }
  const std::string unscored =
      UnscoredCapacityText(model, capacities, style.markdown, style.colour);
  if (!unscored.empty()) Print(unscored + "\n");
  if (!speculations.empty()) {
    Print(SpeculationText(speculations, style.markdown, style.colour) + "\n");
  }
  if (!foreign.empty()) Print(ForeignText(foreign, style.markdown) + "\n");
  if (model.tables.empty()) return {};
  const std::string legend = Legend(model, columns);
  Print(style.markdown ? legend : Coloured(legend, Tone::kFaint, style.colour));
  return {};
}

}  // namespace kvgauge
