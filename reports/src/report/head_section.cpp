// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "src/html/format.h"
#include "src/report/sections.h"

namespace kvgauge::report {
namespace {

struct Counts {
  int64_t same = 0, better = 0, worse = 0, undecided = 0, unranked = 0;
  // Equivalent or better in every group that was run; worse in none but not all decided.
  std::vector<const BoardRow*> kept, open;
  double detectable = 0;
};

Counts CountVerdicts(const Board& board) {
  Counts counts;
  for (const BoardRow& row : board.rows) {
    if (row.method.full_cache) continue;
    const bool everywhere =
        std::none_of(row.lines.begin(), row.lines.end(),
                     [](const LeaderboardLine* line) { return line == nullptr; });
    if (!row.method.variant.empty() && !everywhere) continue;  // a point of a sweep
    bool ranked = true, worse = false, decided = true, better = false;
    for (const LeaderboardLine* line : row.lines) {
      if (line == nullptr || !line->rank || !line->versus_full) {
        ranked = false;
        continue;
      }
      worse = worse || line->verdict == Verdict::kWorse;
      better = better || line->verdict == Verdict::kBetter;
      if (line->verdict == Verdict::kUndecided) {
        decided = false;
        counts.detectable = std::max(counts.detectable, line->versus_full->detectable);
      }
    }
    if (!ranked) {
      ++counts.unranked;
    } else if (worse) {
      ++counts.worse;
    } else if (!decided) {
      ++counts.undecided;
      counts.open.push_back(&row);
    } else {
      ++(better ? counts.better : counts.same);
      counts.kept.push_back(&row);
    }
  }
  const auto size = [](const BoardRow* row) {
    return row->means.tasks > 0 ? row->means.bytes.resident_per_token : 1e300;
  };
  for (auto* rows : {&counts.kept, &counts.open}) {
    std::stable_sort(rows->begin(), rows->end(),
                     [&](const BoardRow* a, const BoardRow* b) { return size(a) < size(b); });
  }
  return counts;
}

// "the smallest is kivi (...), then gear (...) and 3 more"
Html Smallest(const std::vector<const BoardRow*>& rows) {
  Html html;
  html.Put("the smallest is {}", {RowLink(*rows[0])});
  const size_t named = std::min<size_t>(rows.size(), 4);
  for (size_t i = 1; i < named; ++i) {
    html.Put(i == 1 ? Markup(", then {}") : Markup(", {}"), {RowLink(*rows[i])});
  }
  if (rows.size() > named) html.Put(" and {} more", {rows.size() - named});
  return html;
}

// "Equivalent to the full cache within 1 point on all tasks: the smallest is ..."
Html VerdictSentence(const Board& board, double margin) {
  const Counts counts = CountVerdicts(board);
  const std::string size = FormatTick(100 * margin, Unit::kNumber);
  const std::string points = size == "1" ? "1 point" : StrCat(size, " points");
  const std::string where = board.groups.size() == 1 ? StrCat("on ", board.groups.front()->task)
                            : board.groups.size() == 2
                                ? "on both groups of tasks"
                                : StrCat("on all ", board.groups.size(), " groups of tasks");
  Html html;
  html.Put(R"(<p class="verdict">)");
  if (!board.alone) html.Put("<b>{}.</b> ", {board.Title()});
  const int64_t rows =
      counts.same + counts.better + counts.worse + counts.undecided + counts.unranked;
  if (board.Full() == nullptr) {
    html.Put("The full cache was not run, so nothing can be said against it.</p>");
    return html;
  }
  if (rows == 0) return html.Put("Only the full cache was run.</p>");
  if (counts.kept.empty()) {
    html.Put("No method is proven equivalent to the full cache within {} {}.", {points, where});
    // What may yet be, since nobody stops reading at "none".
    if (!counts.open.empty()) {
      html.Put(" Not shown to be worse: {}.", {Smallest(counts.open)});
    }
  } else {
    html.Put("Equivalent to the full cache within {} {}: {}.",
             {points, where, Smallest(counts.kept)});
  }
  html.Put(R"(</p><p class="tally">Of {}: <span class="v same">≈ {} equivalent</span> )",
           {Plural(rows, "row", "rows"), counts.same});
  if (counts.better > 0) html.Put(R"(<span class="v better">▲ {} better</span> )", {counts.better});
  html.Put(
      R"(<span class="v worse">▼ {} worse</span> <span class="v undecided">? {} undecided</span>)",
      {counts.worse, counts.undecided});
  if (counts.unranked > 0) {
    html.Put(R"( <span class="v none">∅ {} not ranked</span>)", {counts.unranked});
  }
  html.Put(
      R"( <span class="soft">A row counts as equivalent where it is so in every group, as worse )"
      "where it is in any.");
  if (counts.undecided > 0 && std::isinf(counts.detectable)) {
    html.Put(" Undecided: some groups have too few samples to find any loss.");
  } else if (counts.undecided > 0 && counts.detectable > 0) {
    html.Put(" Undecided means that these samples find losses from {} points on only.",
             {Format(counts.detectable, Unit::kPoints).substr(1)});
  }
  return html.Put("</span></p>\n");
}

void Fact(Html& html, const char* name, const Html& value) {
  html.Put("<div><dt>{}</dt><dd>{}</dd></div>", {name, value});
}

Html TextOf(const std::string& text) { return Html().Text(text); }

// "layers 6, kv heads 4": the scalars of an object, settings of the environment last.
std::string Scalars(const std::string& facts) {
  const Result<Json> json = ParseJson(facts, "facts");
  if (!json.ok() || !json->is_object()) return facts;
  std::vector<std::string> parts, environment;
  for (const auto& [key, value] : json->items()) {
    if (value.is_structured()) continue;
    if (key[0] >= 'A' && key[0] <= 'Z') {
      environment.push_back(
          StrCat(key, "=", value.is_string() ? value.get<std::string>() : value.dump()));
      continue;
    }
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', ' ');
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (value.is_number_integer()) {
      const auto number = value.get<int64_t>();
      if (number == 0) continue;  // a part that this one has not
      const bool bytes = key.size() > 6 && key.compare(key.size() - 6, 6, "_bytes") == 0;
      text = bytes ? HumanBytes(number) : WithCommas(number);
      if (bytes) name.resize(name.size() - 6);
    }
    parts.push_back(StrCat(name, " ", text));
  }
  parts.insert(parts.end(), environment.begin(), environment.end());
  return Join(parts, ", ");
}

// "reference: labels, needle; ruler: qa_1": what stands before the slash once.
std::string TaskNames(const std::set<std::string>& tasks) {
  constexpr size_t kMost = 12;
  std::string text, before;
  size_t shown = 0;
  for (const std::string& task : tasks) {
    if (shown == kMost) {
      text.append(StrCat(" and ", tasks.size() - shown, " more"));
      break;
    }
    const size_t slash = task.find('/');
    const std::string collection = slash == std::string::npos ? "" : task.substr(0, slash);
    const bool same = shown > 0 && collection == before;
    if (shown++ > 0) text.append(same ? ", " : "; ");
    if (!same && !collection.empty()) text.append(collection).append(": ");
    text.append(collection.empty() ? task : task.substr(slash + 1));
    before = collection;
  }
  return text;
}

std::string Versions(const std::vector<StoredRun>& runs) {
  std::set<std::string> versions;
  for (const StoredRun& run : runs) {
    versions.insert(run.run.revision.empty()
                        ? run.run.version
                        : StrCat(run.run.version, " (", run.run.revision, ")"));
  }
  return Join({versions.begin(), versions.end()}, ", ");
}

// "2026-01-02T03:04:05Z" as "2026-01-02 03:04"; what is none stays as it is.
std::string ReadableTime(const std::string& time) {
  if (time.size() < 16 || time[10] != 'T') return time;
  std::string text = time.substr(0, 16);
  text[10] = ' ';
  return text;
}

}  // namespace

Html RowLink(const BoardRow& row) {
  Html link;
  link.Put(R"(<a href="#{}">{}</a>)", {row.id, row.NameBudget()});
  if (row.means.tasks > 0) {
    link.Put(R"( <span class="soft">({} held a token, {} of full)</span>)",
             {Format(row.means.bytes.resident_per_token, Unit::kBytes),
              Format(row.means.bytes.resident_ratio, Unit::kPercent)});
  }
  return link;
}

Html RunFacts(const std::vector<StoredRun>& runs) {
  Html html;
  std::set<std::string> machines;
  std::vector<std::string> commands;  // as they were run
  std::string first, last;
  bool open = false;
  for (const StoredRun& run : runs) {
    machines.insert(Scalars(run.run.machine.facts));
    if (std::ranges::find(commands, run.run.command) == commands.end()) {
      commands.push_back(run.run.command);
    }
    if (first.empty() || run.run.started_at < first) first = run.run.started_at;
    last = std::max(last, run.run.finished_at);
    open = open || run.run.finished_at.empty();
  }
  std::string when = ReadableTime(first);
  if (!last.empty()) {
    const std::string end = ReadableTime(last);
    // The day once.
    when.append(" to ").append(end.substr(0, 10) == when.substr(0, 10) ? end.substr(11) : end);
  }
  when.append(" UTC");
  if (open) when.append(runs.size() == 1 ? ", not finished" : ", one of the runs not finished");
  Fact(html, "Run",
       TextOf(StrCat(when, runs.size() > 1 ? StrCat(" in ", runs.size(), " runs") : "")));
  Fact(html, "Program", TextOf(StrCat("kvgauge ", Versions(runs))));
  for (const std::string& machine : machines) Fact(html, "Machine", TextOf(machine));
  Html all;
  size_t shown = 0;
  for (const std::string& command : commands) {
    if (++shown > 3) {
      all.Put(R"(<span class="soft">and {} more under Reproduce</span>)", {commands.size() - 3});
      break;
    }
    all.Put("<code>{}</code>", {command});
  }
  Fact(html, "Command", all);
  return html;
}

Html HeadSection(const PageData& data, const ReportOptions& options) {
  Html html;
  html.Put(R"(<header class="head"><p class="over">kvgauge report</p><h1>)");
  std::set<std::string> models, methods, tasks, signatures;
  for (const StoredCell& cell : data.cells) {
    models.insert(cell.cell.model.name);
    tasks.insert(cell.cell.task.name);
    signatures.insert(cell.signature_key);
    if (!cell.cell.method.full_cache) methods.insert(cell.cell.method.name);
  }
  if (!options.title.empty()) {
    html.Text(options.title);
  } else if (models.empty()) {
    html.Put("An empty store");
  } else {
    html.Put("{}: {} of KV-cache compression on {}",
             {Join({models.begin(), models.end()}, ", "),
              Plural(static_cast<int64_t>(methods.size()), "method", "methods"),
              Plural(static_cast<int64_t>(tasks.size()), "task", "tasks")});
  }
  html.Put("</h1>\n");
  if (data.cells.empty()) {
    html.Put(R"(<p class="verdict">The store holds no results yet. <code>kvgauge run</code> fills )"
             "it.</p>\n");
  }
  for (const Board& board : data.boards)
    html.Put(VerdictSentence(board, options.leaderboard.margin));
  html.Put(R"(<dl class="facts">)");
  for (const Board& board : data.boards) {
    Fact(html, "Model", TextOf(StrCat(board.Title(), ": ", Scalars(board.model_facts))));
  }
  if (!tasks.empty()) Fact(html, "Tasks", TextOf(TaskNames(tasks)));
  Fact(html, "Samples",
       TextOf(StrCat(Plural(data.by_task.samples, "sample", "samples"), " in ",
                     Plural(static_cast<int64_t>(data.cells.size()), "cell", "cells"))));
  html.Put(RunFacts(data.runs));
  Html keys;
  size_t shown = 0;
  for (const std::string& key : signatures) {
    if (++shown > 4) {
      keys.Put(R"(<span class="soft">and {} more under Reproduce</span>)", {signatures.size() - 4});
      break;
    }
    keys.Put("<code>{}</code> ", {key.substr(0, 12)});
  }
  if (!signatures.empty()) Fact(html, "Protocol signatures", keys);
  html.Put("</dl></header>\n");
  return html;
}

}  // namespace kvgauge::report
