// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "reports/leaderboard_split.h"
#include "src/cli/print.h"
#include "src/cli/table.h"
#include "src/results/leaderboard_fields.h"
#include "src/results/leaderboard_json.h"
#include "src/results/leaderboard_split.h"
#include "src/results/open_stores.h"
#include "src/results/results.h"
#include "src/results/set_scores.h"

namespace kvgauge {
namespace {

// The value that a column for people is sorted by.
std::string FieldForSorting(const std::string& column) {
  static const std::map<std::string, std::string> kOther = {
      {"interval", "score"},          {"delta_interval", "delta"},
      {"bytes", "logical_ratio"},     {"nominal", "nominal_ratio"},
      {"resident", "resident_ratio"}, {"token_bytes", "logical_per_token"},
      {"kl", "kl_divergence"},        {"top1", "top1_agreement"},
      {"reads", "read_share"},        {"ttft", "ttft_p50_s"},
      {"tpot", "tpot_p50_s"},         {"tpot_p90", "tpot_p90_s"},
      {"tpot_p99", "tpot_p99_s"},     {"compress", "compress_s"},
      {"note", "not_ranked"}};
  const auto at = kOther.find(column);
  return at == kOther.end() ? column : at->second;
}

Status CheckNames(const std::string& flag, const std::vector<std::string>& names,
                  const std::vector<std::string>& known) {
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) != known.end()) continue;
    return BadInput(StrCat(flag, ": there is no column ", Quoted(name), DidYouMean(name, known),
                           "; known: ", Join(known, ", ")));
  }
  return {};
}

Status Sort(const std::string& by, LeaderboardTable& table) {
  if (by.empty()) return {};
  const bool turned = by[0] == '-';
  const std::string field = FieldForSorting(turned ? by.substr(1) : by);
  if (field == "budget") {
    std::ranges::stable_sort(table.lines, {}, [](const LeaderboardLine& line) {
      return std::pair(line.budget_kind, line.budget_value);
    });
    if (turned) std::ranges::reverse(table.lines);
    return {};
  }
  const bool descending = MoreIsBetter(table, field) != turned;
  std::vector<std::pair<Json, size_t>> keys;
  for (const LeaderboardLine& line : table.lines) {
    keys.emplace_back(FieldOf(table, line, field), keys.size());
  }
  std::ranges::stable_sort(keys, [&](const auto& a, const auto& b) {
    if (a.first.is_null() || b.first.is_null()) return b.first.is_null() && !a.first.is_null();
    return descending ? b.first < a.first : a.first < b.first;
  });
  std::vector<LeaderboardLine> sorted;
  for (const auto& [key, place] : keys) sorted.push_back(std::move(table.lines[place]));
  table.lines = std::move(sorted);
  return {};
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

std::string Title(const LeaderboardTable& table) {
  std::vector<std::string> parts = {StrCat(table.model, ", ", table.task)};
  if (table.task_names.size() > 1) {
    parts.push_back(StrCat("mean over ", table.task_names.size(), " tasks"));
  }
  parts.push_back(StrCat("compressed at ", table.compress_at));
  if (!table.metric.empty()) {
    parts.push_back(table.lower_is_better ? StrCat(table.metric, ", lower is better")
                                          : table.metric);
  }
  int64_t scored = 0, contexts = 0;
  for (const LeaderboardLine& line : table.lines) {
    scored = std::max(scored, line.scored);
    contexts = std::max(contexts, line.score.clusters);
  }
  const auto count = [](int64_t number, const char* noun) {
    return StrCat(WithCommas(number), " ", noun, number == 1 ? "" : "s");
  };
  parts.push_back(scored == contexts
                      ? count(scored, "sample")
                      : StrCat(count(scored, "sample"), " of ", count(contexts, "context")));
  return Join(parts, " | ");
}

TextTable Lines(const LeaderboardTable& table, const std::vector<std::string>& columns) {
  TextTable text;
  for (const std::string& id : columns) text.columns.push_back(ColumnOf(id));
  for (const LeaderboardLine& line : table.lines) {
    std::vector<TableCell>& row = text.rows.emplace_back();
    for (const std::string& id : columns) row.push_back(CellOf(table, line, id));
  }
  return text;
}

TextTable Methods(const LeaderboardTable& table) {
  TextTable text;
  text.columns = {{"method"},          {"area", true},    {"interval"},    {"vs full", true},
                  {"interval", false}, {"budgets", true}, {"bytes", true}, {"note"}};
  for (const MethodSummary& m : table.methods) {
    if (!m.area && m.budgets < 2) continue;
    const auto number = [&](const std::optional<Estimate>& e, bool change) -> TableCell {
      if (!e) return {};
      return {change ? ShowChange(table, e->value) : ShowScore(table, e->value)};
    };
    const auto interval = [&](const std::optional<Estimate>& e, bool change) -> TableCell {
      return {e ? ShowInterval(table, e->interval, change) : ""};
    };
    text.rows.push_back(
        {{m.variant.empty() ? m.method : StrCat(m.method, "[", m.variant, "]")},
         number(m.area, false),
         interval(m.area, false),
         number(m.versus_full, true),
         interval(m.versus_full, true),
         {StrCat(m.budgets)},
         {StrCat(Fixed(100 * m.low_ratio, 1), " to ", Fixed(100 * m.high_ratio, 1), "%")},
         {m.missing, Tone::kDoubtful}});
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

std::string Page(const LeaderboardTable& table, const LeaderboardSplit& split,
                 const std::vector<std::string>& columns, int64_t unranked, const Style& style) {
  const std::string title = Title(table);
  std::string out = style.markdown ? StrCat("### ", title, "\n\n")
                                   : Toned(title, Tone::kStrong, style.colour).append("\n\n");
  std::vector<std::string> hidden, notes = table.notes;
  out += Draw(Lines(table, columns), style, hidden);
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
  if (!split.empty()) out += SplitText(table, split, style.markdown, style.colour);
  if (unranked > 0) {
    notes.push_back(StrCat(unranked, unranked == 1 ? " row has" : " rows have",
                           " no rank; --all shows them and why"));
  }
  if (!hidden.empty()) {
    notes.push_back(StrCat("too narrow for ", Join(hidden, ", "), "; --columns picks"));
  }
  if (!notes.empty()) out += "\n";
  for (const std::string& note : notes) {
    out += style.markdown ? StrCat("- ", note, "\n")
                          : Toned(StrCat("note: ", note), Tone::kDoubtful, style.colour) + "\n";
  }
  return out;
}

// What the words and numbers mean, once.
std::string Legend(const LeaderboardModel& model, const std::vector<std::string>& columns) {
  const bool timed = std::ranges::any_of(columns, [](const std::string& id) {
    return id.starts_with("ttft") || id.starts_with("tpot") || id == "compress";
  });
  bool shared = false;
  for (const LeaderboardTable& table : model.tables) {
    for (const LeaderboardLine& line : table.lines) {
      shared = shared || (timed && !line.latency.empty() && !line.latency.back().isolated);
    }
  }
  const LeaderboardOptions& o = model.options;
  std::string out =
      StrCat("Intervals at ", Fixed(100 * (1 - o.alpha), 0),
             "%, clustered by context; p is corrected over ", model.comparisons,
             model.comparisons == 1 ? " comparison" : " comparisons",
             " with the full cache.\nSAME: within ", o.margin,
             " of the full cache's score, by two one-sided tests; findable: the least difference "
             "this many "
             "samples show 4 times in 5.\nbytes: all that a method must keep, of the full cache's; "
             "resident: what the allocator holds for it.");
  const bool turned = std::ranges::any_of(
      model.tables, [](const LeaderboardTable& table) { return table.lower_is_better; });
  if (turned) {
    out +=
        "\nDifferences of a perplexity are turned round: + is better, lower than the full cache's.";
  }
  if (shared) out += "\n~: times in company of other rows, never to compare by.";
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
  KVG_TRY(
      CheckNames("--columns", flags.columns, values ? LeaderboardFields() : LeaderboardColumns()));
  if (!flags.sort.empty()) {
    std::vector<std::string> known = LeaderboardColumns();
    for (const std::string& field : LeaderboardFields()) {
      if (std::ranges::find(known, field) == known.end()) known.push_back(field);
    }
    const std::string name = flags.sort[0] == '-' ? flags.sort.substr(1) : flags.sort;
    KVG_TRY(CheckNames("--sort", {name}, known));
  }
  for (const std::string& text : flags.filters) KVG_TRY(ParseFieldFilter(text));
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
  if (model.tables.empty()) {
    return BadInput(StrCat(Join(flags.stores, ", "),
                           ": holds no samples yet, expected some; `kvgauge run` records them"));
  }
  KVG_TRY(Filter(flags.filters, model));
  std::vector<int64_t> unranked;
  for (LeaderboardTable& table : model.tables) {
    unranked.push_back(flags.all || values ? 0 : HideUnranked(table));
    KVG_TRY(Sort(flags.sort, table));
  }
  KVG_ASSIGN(const std::vector<LeaderboardSplit> splits,
             SplitLeaderboard(stores.all, model, flags.split));
  KVG_TRY(CheckSplits(flags.split, splits, stores.all));
  if (format == TableFormat::kJson) {
    PrintJson(LeaderboardToJson(model, splits, flags.stores, flags.columns));
    return {};
  }
  if (format == TableFormat::kCsv) {
    Print(Csv(model, flags.columns.empty() ? LeaderboardFields() : flags.columns));
    return {};
  }
  Style style;
  style.markdown = format == TableFormat::kMarkdown;
  style.colour = !style.markdown && StdoutTakesColour();
  style.width = flags.columns.empty() ? StdoutWidth() : 0;
  const std::vector<std::string>& columns =
      flags.columns.empty() ? DefaultColumns() : flags.columns;
  for (size_t i = 0; i < model.tables.size(); ++i) {
    Print(Page(model.tables[i], splits[i], columns, unranked[i], style) + "\n");
  }
  const std::string legend = Legend(model, columns);
  Print(style.markdown ? legend : Toned(legend, Tone::kFaint, style.colour));
  return {};
}

}  // namespace kvgauge
