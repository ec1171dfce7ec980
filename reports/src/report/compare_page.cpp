// SPDX-License-Identifier: Apache-2.0
// Two stores side by side: the gate's lines as a page.
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "reports/report.h"
#include "reports/statistics.h"
#include "src/chart/forest.h"
#include "src/html/format.h"
#include "src/report/sections.h"

namespace kvgauge {
namespace {

using report::Format;
using report::Html;
using report::Plural;
using report::Unit;

// More bars than this are a wall; the table has them all.
constexpr size_t kBars = 40;

// As the gate writes it: points of the score, where more is better, and percent of bytes and time,
// where more is worse.
double ChangeShown(const GateLine& line, double value) {
  return !line.relative ? value : std::expm1(-value);
}
Interval ChangeInterval(const GateLine& line) {
  const Interval& i = line.evidence.interval;
  // Both ends open: nothing is known of it, which no change of units makes otherwise.
  if (!line.relative || (std::isinf(i.low) && std::isinf(i.high))) return i;
  return {ChangeShown(line, i.high), ChangeShown(line, i.low)};
}
std::string ChangeText(const GateLine& line, double change) {
  const std::string points = Format(change, Unit::kPoints);
  return !line.relative ? points : points + "%";
}

std::string ValueShown(const GateLine& line, double value) {
  if (line.evidence.samples == 0) return "–";
  switch (line.metric) {
    case GateMetric::kAccuracy: {
      if (line.relative) return Format(value, Unit::kNumber);
      const std::string text = Format(value, Unit::kPercent);
      return text.substr(0, text.size() - 1);
    }
    case GateMetric::kBytes:
      return Format(value, Unit::kBytes);
    case GateMetric::kLatency:
      return Format(value, line.over_full ? Unit::kRatio : Unit::kSeconds);
  }
  return "–";
}

const char* TitleOf(GateMetric metric) {
  switch (metric) {
    case GateMetric::kAccuracy:
      return "Accuracy";
    case GateMetric::kBytes:
      return "Bytes";
    case GateMetric::kLatency:
      return "Latency";
  }
  return "";
}

// What must be looked at comes first.
int Urgency(const GateLine& line) {
  if (!line.comparable) return 1;
  switch (line.verdict) {
    case Verdict::kWorse:
      return 0;
    case Verdict::kUndecided:
      return 2;
    case Verdict::kBetter:
      return 3;
    case Verdict::kSame:
      return 4;
  }
  return 4;
}

// Groups named without what they all begin and end with ("ref-gqa, " and ", prompt").
class Namer {
 public:
  explicit Namer(const GateReport& gate) {
    if (gate.lines.size() < 2) return;
    const std::string& first = gate.lines.front().group;
    size_t front = first.size(), back = first.size();
    bool same = true;
    for (const GateLine& line : gate.lines) {
      const std::string& group = line.group;
      const size_t least = std::min(group.size(), first.size());
      size_t i = 0;
      while (i < least && group[i] == first[i]) ++i;
      front = std::min(front, i);
      i = 0;
      while (i < least && group[group.size() - 1 - i] == first[first.size() - 1 - i]) ++i;
      back = std::min(back, i);
      same = same && group == first;
    }
    if (same) return;
    // Whole words only.
    const size_t comma = first.substr(0, front).rfind(", ");
    if (comma != std::string::npos) front_ = comma + 2;
    const size_t tail = first.find(", ", first.size() - back);
    if (tail != std::string::npos) back_ = first.size() - tail;
  }

  std::string operator()(const GateLine& line) const {
    std::string name = line.group;
    if (name.size() > front_ + back_) name = name.substr(front_, name.size() - front_ - back_);
    if (line.quantity != "score" && line.quantity != "logical bytes") {
      name.append(", ").append(line.quantity);
    }
    return name;
  }

 private:
  size_t front_ = 0, back_ = 0;
};

Html Verdicts(const GateReport& gate, const Namer& name_of) {
  Html html;
  const int64_t worse = gate.Count(Verdict::kWorse), incomparable = gate.NotComparable();
  html.Put(R"(<p class="verdict">)");
  if (gate.lines.empty())
    return html.Put("The two databases have nothing in common to compare.</p>");
  if (worse > 0) {
    std::vector<std::string> names;
    for (const GateLine& line : gate.lines) {
      if (line.verdict == Verdict::kWorse && names.size() < 3) names.push_back(name_of(line));
    }
    html.Put("The candidate is worse in {}: {}{}.",
             {Plural(worse, "comparison", "comparisons"), Join(names, "; "),
              worse > static_cast<int64_t>(names.size()) ? "; and more" : ""});
  } else if (incomparable > 0) {
    html.Put("Nothing that can be compared is worse, but {} cannot be compared.",
             {Plural(incomparable, "group", "groups")});
  } else if (const int64_t open = gate.Count(Verdict::kUndecided); open > 0) {
    html.Put(
        "Nothing is shown to be worse, but {} of {} undecided",
        {open, StrCat(Plural(static_cast<int64_t>(gate.lines.size()), "comparison", "comparisons"),
                      open == 1 ? " is" : " are")});
    const std::string remedies = GateRemedies(gate);
    html.Put(remedies.empty() ? report::Markup("{}.") : report::Markup(": {}."), {remedies});
  } else {
    html.Put("The candidate is worse in nothing.");
  }
  return html.Put(
      R"(</p><p class="tally">Of {}: <span class="v worse">▼ {} worse</span> )"
      R"(<span class="v better">▲ {} better</span> <span class="v same">≈ {} same</span> )"
      R"(<span class="v undecided">? {} undecided</span> <span class="v none">∅ {} not )"
      "comparable</span></p>\n",
      {Plural(static_cast<int64_t>(gate.lines.size()), "comparison", "comparisons"), worse,
       gate.Count(Verdict::kBetter), gate.Count(Verdict::kSame), gate.Count(Verdict::kUndecided),
       incomparable});
}

Html Figure(const std::vector<const GateLine*>& lines, GateMetric metric, const Namer& name_of) {
  report::Forest forest;
  forest.unit = metric == GateMetric::kAccuracy ? Unit::kPoints : Unit::kPercent;
  forest.title = metric == GateMetric::kAccuracy
                     ? "change of the score, in points of 100; right is better"
                     : "change of the ratio; left is better";
  forest.label = StrCat(TitleOf(metric), ": change from baseline to candidate with 95% intervals");
  size_t drawable = 0;
  for (const GateLine* line : lines) {
    if (!line->comparable || line->evidence.samples == 0) continue;
    if (++drawable > kBars) continue;
    forest.margin = std::max(forest.margin, line->margin);
    forest.lines.push_back({name_of(*line), ChangeShown(*line, line->evidence.value),
                            ChangeInterval(*line), line->verdict});
  }
  if (forest.lines.empty()) return {};
  forest.description = StrCat(Plural(static_cast<int64_t>(forest.lines.size()), "line", "lines"),
                              ", the first: ", forest.lines.front().name, ".");
  Html html;
  html.Put(R"(<figure><div class="scroll">{}</div></figure>)"
           "\n",
           {report::Render(forest)});
  std::string left_out;
  if (drawable > kBars) {
    left_out = StrCat("The ", kBars, " most urgent of ", drawable, " that have numbers.");
  }
  if (const auto without = static_cast<int64_t>(lines.size() - drawable); without > 0) {
    if (!left_out.empty()) left_out.append(" ");
    left_out.append(StrCat(Plural(without, "line has", "lines have"),
                           " no numbers to draw; the table says why."));
  }
  if (!left_out.empty()) html.Put(R"(<p class="soft">{}</p>)", {left_out});
  return html;
}

Html Table(const std::vector<const GateLine*>& lines, GateMetric metric, const Namer& name_of) {
  const auto id = static_cast<int>(metric);
  Html html;
  html.Put(R"(<div class="controls js" data-for="gate{}"><label class="find">Search <input )"
           R"(type="search" )"
           R"(class="search" placeholder="any words"></label><button type="button" )"
           R"(class="csv">Download CSV</button><output class="count"></output></div>)"
           "\n"
           R"(<div class="scroll"><table class="board gate sortable" id="gate{}" )"
           R"(data-name="{}"><caption )"
           R"(class="hide">{}: a line for each group</caption><thead><tr><th scope="col" )"
           R"(class="c-group">Group</th>)"
           R"(<th scope="col" class="c-verdict">Verdict</th><th scope="col" class="c-base )"
           R"(n">Baseline</th>)"
           R"(<th scope="col" class="c-cand n">Candidate</th><th scope="col" class="c-change )"
           R"(n">{}</th>)"
           R"(<th scope="col" class="c-p n">p, Holm</th><th scope="col" class="c-n n">Samples</th>)"
           R"(<th scope="col" class="c-why">Why</th></tr></thead><tbody>)"
           "\n",
           {id, id, TitleOf(metric), TitleOf(metric),
            metric == GateMetric::kAccuracy ? "Change, points" : "Change"});
  for (const GateLine* line : lines) {
    const bool known = line->evidence.samples > 0;
    html.Put(R"(<tr><th scope="row" class="c-group">{}</th><td class="c-verdict" )"
             R"(data-v="{}" data-csv="{}">{}</td>)",
             {name_of(*line), Urgency(*line),
              line->comparable ? report::VerdictWord(line->verdict) : "not comparable",
              line->comparable ? report::VerdictMark(line->verdict)
                               : Html().Put(R"(<span class="v none">∅ not comparable</span>)")});
    if (!known) {
      html.Put(R"(<td class="n nil">–</td><td class="n nil">–</td><td class="n nil">–</td>)"
               R"(<td class="n nil">–</td><td class="n nil">–</td>)");
    } else {
      const Interval interval = ChangeInterval(*line);
      const double change = ChangeShown(*line, line->evidence.value);
      const bool closed = std::isfinite(interval.low) && std::isfinite(interval.high);
      html.Put(R"(<td class="n" data-v="{}">{}</td><td class="n" data-v="{}">{}</td><td )"
               R"(class="n" data-v="{}")",
               {line->baseline, ValueShown(*line, line->baseline), line->candidate,
                ValueShown(*line, line->candidate), change});
      if (closed) html.Put(R"( data-low="{}" data-high="{}")", {interval.low, interval.high});
      html.Put(">{}", {ChangeText(*line, change)});
      if (closed) {
        html.Put("<small>{} to {}</small>",
                 {ChangeText(*line, interval.low), ChangeText(*line, interval.high)});
      }
      html.Put(R"(</td><td class="n" data-v="{}">{}</td><td class="n" data-v="{}">{}</td>)",
               {line->p_adjusted, PText(line->p_adjusted), line->evidence.samples,
                line->evidence.samples});
    }
    std::string why = line->reason;
    if (line->verdict == Verdict::kUndecided && known && std::isfinite(line->evidence.detectable)) {
      why.append(why.empty() ? "" : "; ")
          .append("would find ")
          .append(ChangeText(*line, line->evidence.detectable).substr(1));
    }
    html.Put(R"(<td class="c-why">{}</td></tr>)"
             "\n",
             {why});
  }
  return html.Put("</tbody></table></div>\n");
}

std::string FileName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

Result<std::string> RenderComparison(ResultStore& baseline, ResultStore& candidate,
                                     const GateMargins& margins, const ReportOptions& options) {
  KVG_ASSIGN(const GateReport gate,
             CompareStores(baseline, candidate, margins, options.leaderboard.set_scores));
  KVG_ASSIGN(const std::vector<StoredRun> before, baseline.Runs());
  KVG_ASSIGN(const std::vector<StoredRun> after, candidate.Runs());
  const Namer name_of(gate);
  const std::string title = !options.title.empty() ? options.title
                                                   : StrCat(FileName(candidate.path()), " against ",
                                                            FileName(baseline.path()));
  Html body;
  body.Put(
      R"(<header class="head"><p class="over">kvgauge comparison</p><h1>{}</h1>{}<div )"
      R"(class="pair">)"
      R"(<div><h2>Baseline: {}</h2><dl class="facts">{}</dl></div><div><h2>Candidate: {}</h2><dl )"
      R"(class="facts">{}</dl></div></div></header>)"
      "\n",
      {title, Verdicts(gate, name_of), FileName(baseline.path()), report::RunFacts(before),
       FileName(candidate.path()), report::RunFacts(after)});
  std::vector<report::PageLink> links;
  for (const GateMetric metric :
       {GateMetric::kAccuracy, GateMetric::kBytes, GateMetric::kLatency}) {
    std::vector<const GateLine*> lines;
    for (const GateLine& line : gate.lines) {
      if (line.metric == metric) lines.push_back(&line);
    }
    if (lines.empty()) continue;
    std::stable_sort(lines.begin(), lines.end(), [](const GateLine* a, const GateLine* b) {
      if (Urgency(*a) != Urgency(*b)) return Urgency(*a) < Urgency(*b);
      return a->evidence.value < b->evidence.value;
    });
    const std::string id(kvgauge::NameOf(metric));
    links.push_back({id, TitleOf(metric)});
    body.Put(R"(<section id="{}" aria-labelledby="{}-h"><h2 id="{}-h">{}</h2>)"
             "\n"
             "{}{}</section>"
             "\n",
             {id, id, id, TitleOf(metric), Figure(lines, metric, name_of),
              Table(lines, metric, name_of)});
  }
  return report::WrapPage(StrCat("kvgauge: ", title), links, body);
}

}  // namespace kvgauge
