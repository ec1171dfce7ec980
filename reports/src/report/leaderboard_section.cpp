// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "core/strings.h"
#include "src/chart/bars.h"
#include "src/chart/palette.h"
#include "src/html/format.h"
#include "src/report/sections.h"

namespace kvgauge::report {
namespace {

// A variant that was run on some groups only: it is one of a sweep and has a section of its own.
bool IsSweepPoint(const BoardRow& row) {
  return !row.method.variant.empty() &&
         std::any_of(row.lines.begin(), row.lines.end(),
                     [](const LeaderboardLine* line) { return line == nullptr; });
}

constexpr char kExperimental[] =
    "Experimental: no independent implementation has confirmed what the method does.";

constexpr auto kNoGroup = std::numeric_limits<size_t>::max();

struct Column {
  std::string key;    // of its class: "c-key"
  std::string group;  // its heading's first line; "": none
  std::string title;
  std::string help;
  bool number = true;
  bool shown = true;           // at first; all are without scripts
  size_t of_group = kNoGroup;  // whose scores it shows
};

class Table {
 public:
  Table(const Board& board, size_t index) : board_(board), index_(index) {
    for (const BoardRow& row : board.rows) {
      kl_ = kl_ || row.means.kl_divergence;
      host_ = host_ || row.means.bytes.host > 0;
      agreement_ = agreement_ || row.means.top1_agreement;
      if (!row.times.empty()) {
        longest_ = std::max(longest_, row.times.back().summary.context_tokens);
      }
    }
    Columns();
  }

  Html Render() {
    Html html;
    html.Put(Controls());
    const bool fits = FitsPaper();
    html.Put(R"(<div class="scroll{}"><table class="board sortable{}" id="board{}" )"
             R"(data-name="leaderboard">)"
             R"(<caption class="hide">Leaderboard of {}: a row for each method and )"
             "budget</caption><thead><tr>",
             {fits ? Markup("") : Markup(" no-paper"),
              board_.IsLong() ? Markup(" long") : Markup(""), index_, board_.Title()});
    for (const Column& column : columns_) Heading(html, column);
    html.Put("</tr></thead><tbody>\n");
    for (const BoardRow& row : board_.rows) html.Put(Row(row));
    html.Put("</tbody></table></div>\n");
    if (!fits) html.Put(OnPaper());
    return html;
  }

  // What headings mean, for readers who cannot point at them.
  Html Key() const {
    Html html;
    html.Put(R"(<dl class="facts glossary{}" aria-label="What the columns mean">)",
             {FitsPaper() ? Markup(" fits") : Markup("")});
    for (const Column& column : columns_) {
      if (column.key == "method" || column.key == "family" || column.key == "budget") continue;
      if (column.of_group != kNoGroup && column.of_group > 0) continue;
      html.Put(R"(<div class="c-{}{}"><dt>{}</dt><dd>{}</dd></div>)",
               {column.key, column.shown ? Markup("") : Markup(" opt"), column.title, column.help});
    }
    const auto experimental = [](const BoardRow& row) { return row.method.experimental; };
    if (std::ranges::any_of(board_.rows, experimental)) {
      html.Put("<div><dt>*</dt><dd>{}</dd></div>", {kExperimental});
    }
    return html.Put("</dl>\n");
  }

 private:
  // Columns of numbers that stand beside each other on A4 and on Letter, landscape.
  static constexpr size_t kPaperColumns = 8;

  bool FitsPaper() const {
    return 2 * board_.groups.size() + (kl_ ? 1 : 0) + (longest_ > 0 ? 3 : 0) <= kPaperColumns;
  }

  // The same board for print, where it is wider than paper: tables of a few groups each, and one
  // of everything else. Without rows' ids, which the board has.
  Html OnPaper() {
    const size_t count = board_.groups.size();
    constexpr size_t kEach = kPaperColumns / 2;
    const size_t tables = (count + kEach - 1) / kEach;
    Html html;
    size_t begin = 0;
    for (size_t t = 0; t < tables; ++t) {
      const size_t end = begin + (count - begin) / (tables - t);  // as alike as they can be
      std::vector<std::string> names;
      for (size_t g = begin; g < end; ++g) names.push_back(board_.groups[g]->task);
      html.Put(PaperTable(StrCat("Scores on ", Join(names, ", ")), begin, end, false));
      begin = end;
    }
    html.Put(PaperTable("Bytes, fidelity and times", 0, 0, true));
    return Html().Put(R"(<div class="later paper"><noscript>{}</noscript></div>)"
                      "\n",
                      {html});
  }

  Html PaperTable(const std::string& caption, size_t begin, size_t end, bool costs) {
    Html html;
    html.Put(R"(<table class="board" data-of="board{}"><caption>{}</caption><thead><tr>)",
             {index_, caption});
    for (const Column& column : columns_) {
      const bool of_group = column.of_group != kNoGroup;
      const bool first = column.key == "method" || column.key == "budget";
      if (first || (of_group && column.of_group >= begin && column.of_group < end) ||
          (!of_group && costs && column.key != "family" && column.key != "spark")) {
        Heading(html, column);
      }
    }
    html.Put("</tr></thead><tbody>\n");
    for (const BoardRow& row : board_.rows) {
      html.Put(R"(<tr data-row="{}")", {row.id});
      Beginning(html, row);
      Budget(html, row);
      if (costs) Bytes(html, row);
      for (size_t g = begin; g < end; ++g) Score(html, row, g);
      if (costs) {
        Fidelity(html, row);
        if (longest_ > 0) Times(html, row);
        Engagement(html, row);
      }
      html.Put("</tr>\n");
    }
    return html.Put("</tbody></table>\n");
  }

  static void Heading(Html& html, const Column& column) {
    html.Put(R"(<th scope="col" class="c-{}{}{}" data-help="{}">)",
             {column.key, column.number ? Markup(" n") : Markup(""),
              column.shown ? Markup("") : Markup(" opt"), column.help});
    if (!column.group.empty())
      html.Put(R"(<span class="grp">{}</span>)", {Breakable(column.group)});
    html.Put(R"(<span class="ttl">{}</span></th>)", {column.title});
  }

  void Columns() {
    columns_.push_back(
        {"method", "", "Method", "The method's id; its variant in brackets.", false});
    columns_.push_back({"family", "", "Family", "What kind of method it is.", false, false});
    columns_.push_back({"budget", "", "Budget", "What it may keep, as it was asked for."});
    columns_.push_back(
        {"resident", "bytes a token", "held",
         "What the allocator holds for a token of context, in all layers and heads, the mean "
         "over the row's tasks. Below, and as a bar: over the full cache's logical bytes."});
    columns_.push_back({"ratio", "bytes a token", "logical, of full",
                        "Logical bytes over those of the full cache.", true, false});
    columns_.push_back({"logical", "bytes a token", "logical",
                        "Numbers or codes with scales, indices and all else a method must hold.",
                        true, false});
    columns_.push_back(
        {"nominal", "bytes a token", "nominal", "What the budget promises.", true, false});
    if (host_) {
      columns_.push_back({"device", "bytes a token", "on the device",
                          "What is held without the entries that the method's placement puts on "
                          "the host; below it over the full cache's bytes. Counted: the program "
                          "moves no entry."});
      columns_.push_back({"fetched", "bytes a step", "fetched",
                          "Bytes of entries that a decode step reads from the host, the mean over "
                          "steps; nothing where attention to them is computed there."});
    }
    for (size_t g = 0; g < board_.groups.size(); ++g) {
      const LeaderboardTable& table = *board_.groups[g];
      columns_.push_back({StrCat("rank", g), table.task, "rank",
                          "By score, then by bytes. A row that did nothing, or failed, has none.",
                          true, g == 0, g});
      columns_.push_back({StrCat("score", g), table.task, "score",
                          StrCat(ScoreTitle(table), "; below it the 95% interval of the mean."),
                          true, true, g});
      columns_.push_back({StrCat("delta", g), table.task, "Δ full",
                          "Difference to the full cache on the same samples, and the verdict.",
                          true, true, g});
    }
    columns_.push_back({"spark", "", "over budgets",
                        "Score of the method over its budgets, smallest first.", false});
    if (kl_)
      columns_.push_back(
          {"kl", "fidelity", "KL",
           "KL divergence to the full cache's next-token distribution, on its own tokens; the "
           "mean over the row's tasks."});
    if (agreement_)
      columns_.push_back(
          {"top1", "fidelity", "top-1",
           "How often the likeliest token is the full cache's; the mean over the row's "
           "tasks.",
           true, false});
    if (longest_ > 0) {
      const std::string at =
          StrCat("at ", Format(static_cast<double>(longest_), Unit::kTokens), " tokens");
      columns_.push_back(
          {"ttft", at, "TTFT",
           "Time to the first token, median, measured alone; below it the median of its ratios "
           "to the full cache beside it."});
      columns_.push_back(
          {"tpot", at, "TPOT",
           "Time of an output token, median, measured alone; below it the median of its ratios "
           "to the full cache beside it."});
      columns_.push_back(
          {"compress", at, "compress", "Time to score, select, compact and quantise."});
    }
    columns_.push_back({"engaged", "", "engaged",
                        "Whether the method changed what is held or read on every sample; where "
                        "not, in which groups of tasks. It has no rank in those.",
                        false});
    columns_.push_back(
        {"samples", "", "samples", "Scored samples; failed and skipped ones beside.", true, false});
  }

  Html Controls() const {
    std::set<std::string> families;
    for (const BoardRow& row : board_.rows)
      families.insert(std::string(LookOf(row.method.family).family));
    Html html;
    html.Put(R"(<div class="controls js" data-for="board{}"><label class="find">Search )"
             R"(<input type="search" class="search" placeholder="method, verdict …"></label>)"
             R"(<fieldset class="chips"><legend>Family</legend>)",
             {index_});
    for (const FamilyLook& look : Families()) {
      if (families.count(std::string(look.family)) == 0) continue;
      html.Put(R"(<label class="chip f-{}"><input type="checkbox" checked value="{}">{})"
               "<span>{}</span></label>",
               {look.family, look.family, MarkBesideText(look.family, 0), look.title});
    }
    if (std::any_of(board_.rows.begin(), board_.rows.end(), IsSweepPoint)) {
      html.Put(R"(<label class="chip"><input type="checkbox" value="variants"><span>Variants of )"
               "sweeps</span></label>");
    }
    html.Put(R"(</fieldset><details class="cols"><summary>Columns</summary><div>)");
    for (const Column& column : columns_) {
      if (column.key == "method") continue;
      html.Put(R"(<label><input type="checkbox" value="{}"{}> {}</label>)",
               {column.key, column.shown ? Markup(" checked") : Markup(""),
                column.group.empty() ? column.title : StrCat(column.group, ": ", column.title)});
    }
    return html.Put(R"(</div></details><button type="button" class="csv">Download CSV</button>)"
                    R"(<output class="count"></output></div>)"
                    "\n");
  }

  static void Empty(Html& html, const std::string& key) {
    html.Put(R"(<td class="c-{} n nil">–</td>)", {key});
  }

  Html Row(const BoardRow& row) {
    Html html;
    html.Put(R"(<tr id="{}")", {row.id});
    Beginning(html, row);
    html.Put(R"(<td class="c-family opt">{}</td>)", {LookOf(row.method.family).title});
    Budget(html, row);
    Bytes(html, row);
    for (size_t g = 0; g < board_.groups.size(); ++g) Score(html, row, g);
    Spark(html, row);
    Fidelity(html, row);
    if (longest_ > 0) Times(html, row);
    Engagement(html, row);
    return html.Put("</tr>\n");
  }

  // What a row is: the rest of its tag, method and budget.
  void Beginning(Html& html, const BoardRow& row) const {
    html.Put(R"( data-f="{}"{}>)",
             {LookOf(row.method.family).family, row.method.full_cache ? Markup(R"( class="full")")
                                                : IsSweepPoint(row) ? Markup(R"( class="variant")")
                                                                    : Markup("")});
    html.Put(R"(<th scope="row" class="c-method"><span class="who">{} <span )"
             R"(title="{}">{}</span></span>)",
             {MarkBesideText(row.method.family, board_.Variety(row.method.name)), row.method.title,
              Breakable(row.method.name)});
    if (row.method.experimental) {
      html.Put(R"(<span class="soft" data-tip="{}">*</span>)", {kExperimental});
    }
    if (!row.method.variant.empty())
      html.Put(R"( <span class="soft">{}</span>)", {Breakable(row.method.variant)});
    if (row.budget_kind != "none") {
      html.Put(R"( <small class="at-narrow">{}</small>)", {row.budget});
    }
    html.Put("</th>");
  }

  void Budget(Html& html, const BoardRow& row) const {
    html.Put(R"(<td class="c-budget n" data-v="{}">{}</td>)",
             {row.budget_kind == "none" ? 1e18 : row.budget_value,
              row.budget_kind == "none" ? "all" : row.budget});
  }

  void Bytes(Html& html, const BoardRow& row) const {
    if (row.means.tasks == 0) {
      Empty(html, "resident");
      html.Put(R"(<td class="c-ratio n nil opt">–</td>)");
      html.Put(R"(<td class="c-logical n nil opt">–</td><td class="c-nominal n nil opt">–</td>)");
      for (const char* key : {"device", "fetched"}) {
        if (host_) Empty(html, key);
      }
      return;
    }
    const ByteSummary& bytes = row.means.bytes;
    std::string tip =
        StrCat("Held: ", Format(bytes.resident_per_token, Unit::kBytes),
               " a token. Logical: ", Format(bytes.logical_per_token, Unit::kBytes),
               ". Nominal: ", Format(bytes.nominal_per_token, Unit::kBytes),
               ". The full cache: ", Format(row.means.full_per_token, Unit::kBytes), ".");
    if (board_.task_count > 1) {
      tip.append(StrCat(" Means over ", row.means.tasks, " of ", board_.task_count, " tasks."));
    }
    html.Put(
        R"(<td class="c-resident n" data-v="{}" data-tip="{}">{}<small>{}</small><svg )"
        R"(class="bar" )"
        R"(width="56" height="4" )"
        R"(aria-hidden="true"><path class="bg" d="M0 0h56v4h-56z"/><path class="fg" d="M0 )"
        R"(0h{}v4h-{}z"/></svg></td>)",
        {bytes.resident_per_token, tip, Format(bytes.resident_per_token, Unit::kBytes),
         row.method.full_cache ? "everything"
                               : StrCat(Format(bytes.resident_ratio, Unit::kPercent), " of full"),
         Px{56 * std::min(1.0, bytes.resident_ratio)},
         Px{56 * std::min(1.0, bytes.resident_ratio)}});
    html.Put(R"(<td class="c-ratio n opt" data-v="{}">{}</td><td class="c-logical n opt" )"
             R"(data-v="{}">{}</td>)"
             R"(<td class="c-nominal n opt" data-v="{}">{}</td>)",
             {bytes.logical_ratio, Format(bytes.logical_ratio, Unit::kPercent),
              bytes.logical_per_token, Format(bytes.logical_per_token, Unit::kBytes),
              bytes.nominal_per_token, Format(bytes.nominal_per_token, Unit::kBytes)});
    if (host_) Tiers(html, row);
  }

  void Tiers(Html& html, const BoardRow& row) const {
    const ByteSummary& bytes = row.means.bytes;
    const double held = bytes.resident_per_token - bytes.host_per_token;
    html.Put(R"(<td class="c-device n" data-v="{}">{}<small>{}</small></td>)",
             {held, Format(held, Unit::kBytes),
              StrCat(Format(bytes.device_ratio(), Unit::kPercent), " of full")});
    if (!row.means.fetched_per_step) return Empty(html, "fetched");
    html.Put(R"(<td class="c-fetched n" data-v="{}">{}</td>)",
             {*row.means.fetched_per_step, Format(*row.means.fetched_per_step, Unit::kBytes)});
  }

  void Score(Html& html, const BoardRow& row, size_t g) const {
    const LeaderboardTable& table = *board_.groups[g];
    const LeaderboardLine* line = row.lines[g];
    const Markup rank_class = g == 0 ? Markup("") : Markup(" opt");
    if (line == nullptr || line->scored == 0) {
      html.Put(R"(<td class="c-rank{} n nil{}">–</td><td class="c-score{} n nil">–</td><td )"
               R"(class="c-delta{} n nil">–</td>)",
               {g, rank_class, g, g});
      return;
    }
    if (line->rank) {
      html.Put(R"(<td class="c-rank{} n{}" data-v="{}">{}</td>)",
               {g, rank_class, *line->rank, *line->rank});
    } else {
      html.Put(R"(<td class="c-rank{} n nil{}" data-tip="{}">–</td>)",
               {g, rank_class, StrCat("Not ranked: ", line->not_ranked)});
    }
    html.Put(R"(<td class="c-score{} n" data-v="{}")", {g, ScoreNumber(table, line->score.value)});
    const bool known = std::isfinite(line->score.interval.low);
    const Interval interval = ShownInterval(table, *line);
    if (known) {
      html.Put(R"( data-low="{}" data-high="{}")",
               {ScoreNumber(table, interval.low), ScoreNumber(table, interval.high)});
    }
    html.Put("><b>{}</b>", {ReportedText(table, line->reported)});
    if (known) {
      html.Put("<small>{}–{}</small>",
               {ScoreText(table, interval.low), ScoreText(table, interval.high)});
    }
    html.Put("</td>");
    if (row.method.full_cache) {
      html.Put(R"(<td class="c-delta{} n nil">reference</td>)", {g});
    } else if (line->versus_full) {
      const Evidence& e = *line->versus_full;
      html.Put(R"(<td class="c-delta{} n" data-v="{}")", {g, ScoreNumber(table, e.value)});
      if (std::isfinite(e.interval.low) && std::isfinite(e.interval.high)) {
        html.Put(R"( data-low="{}" data-high="{}")",
                 {ScoreNumber(table, e.interval.low), ScoreNumber(table, e.interval.high)});
      }
      html.Put(
          R"( data-tip="{}">{}<small>{}</small></td>)",
          {EvidenceText(table, *line), DifferenceText(table, e.value), VerdictMark(line->verdict)});
    } else {
      html.Put(R"(<td class="c-delta{} n nil" data-tip="{}">–</td>)", {g, line->not_compared});
    }
  }

  // Scores of the method and variant over its budgets, in the first group that has them.
  void Spark(Html& html, const BoardRow& row) {
    const auto [place, fresh] = sparks_.try_emplace({row.method.name, row.method.variant});
    if (fresh) {
      for (const BoardRow& other : board_.rows) {
        if (other.method.name != row.method.name || other.method.variant != row.method.variant)
          continue;
        for (size_t g = 0; g < other.lines.size(); ++g) {
          if (other.lines[g] == nullptr || other.lines[g]->scored == 0) continue;
          place->second.push_back(
              {other.budget_value, ScoreNumber(*board_.groups[g], other.lines[g]->score.value),
               ReportedText(*board_.groups[g], other.lines[g]->reported), &other});
          break;
        }
      }
      std::sort(place->second.begin(), place->second.end(),
                [](const auto& a, const auto& b) { return a.budget < b.budget; });
    }
    if (place->second.size() < 2) {
      html.Put(R"(<td class="c-spark nil">–</td>)");
      return;
    }
    Sparkline line;
    line.family = row.method.family;
    line.at = place->second.size();
    std::vector<std::string> words;
    double low = std::numeric_limits<double>::infinity(), high = -low;
    for (size_t i = 0; i < place->second.size(); ++i) {
      line.values.push_back(place->second[i].score);
      low = std::min(low, line.values.back());
      high = std::max(high, line.values.back());
      if (place->second[i].row == &row) line.at = i;
      words.push_back(StrCat(place->second[i].row->budget, ": ", place->second[i].text));
    }
    line.low = std::min(low, 0.0);
    line.high = board_.groups.front()->lower_is_better ? high : std::max(high, 100.0);
    line.label = Join(words, ", ");
    html.Put(R"(<td class="c-spark">{}</td>)", {kvgauge::report::Render(line)});
  }

  void Fidelity(Html& html, const BoardRow& row) const {
    const std::optional<double>&kl = row.means.kl_divergence, &agreement = row.means.top1_agreement;
    if (kl_) {
      if (kl) {
        html.Put(R"(<td class="c-kl n" data-v="{}">{}</td>)", {*kl, Format(*kl, Unit::kDecimals)});
      } else {
        Empty(html, "kl");
      }
    }
    if (agreement_) {
      if (agreement) {
        html.Put(R"(<td class="c-top1 n opt" data-v="{}">{}</td>)",
                 {*agreement, Format(*agreement, Unit::kPercent)});
      } else {
        html.Put(R"(<td class="c-top1 n nil opt">–</td>)");
      }
    }
  }

  void Times(Html& html, const BoardRow& row) const {
    const RowTimes* times = row.TimesAt(longest_);
    if (times == nullptr) {
      for (const char* key : {"ttft", "tpot", "compress"}) Empty(html, key);
      return;
    }
    const LatencySummary& at = times->summary;
    const auto time = [&](const char* key, double seconds, const Interval& range,
                          const std::optional<double>& ratio) {
      html.Put(R"(<td class="c-{} n" data-v="{}" data-low="{}" data-high="{}" )"
               R"(data-note="{}" data-tip="{}">{})",
               {key, seconds, range.low, range.high, times->disturbed ? "disturbed" : "",
                RepetitionsText(*times, range), Format(seconds, Unit::kSeconds)});
      const bool related = ratio && !row.method.full_cache;
      if (related || times->disturbed) {
        html.Put("<small>{} {}</small>",
                 {related ? Format(*ratio, Unit::kRatio) : "", DisturbedMark(*times)});
      }
      html.Put("</td>");
    };
    time("ttft", at.ttft_s.p50, times->ttft_s, at.ttft_ratio);
    time("tpot", at.tpot_s.p50, times->tpot_s, at.tpot_ratio);
    if (row.method.full_cache) {  // what is measured of it is the clock
      Empty(html, "compress");
      return;
    }
    html.Put(R"(<td class="c-compress n" data-v="{}" data-note="{}">{}<small>{}</small></td>)",
             {at.compress_s(), times->disturbed ? "disturbed" : "",
              Format(at.compress_s(), Unit::kSeconds), DisturbedMark(*times)});
  }

  void Engagement(Html& html, const BoardRow& row) const {
    int64_t scored = 0, failed = 0;
    std::string trouble;
    std::vector<std::string> idle, told;
    size_t groups = 0;
    for (size_t g = 0; g < row.lines.size(); ++g) {
      const LeaderboardLine* line = row.lines[g];
      if (line == nullptr || line->samples == 0) continue;
      ++groups;
      if (line->not_engaged > 0) {
        idle.push_back(board_.groups[g]->task);
        told.push_back(StrCat(idle.back(), ": ", line->not_engaged, " of ",
                              Plural(line->samples, "sample", "samples")));
      }
      scored += line->scored;
      failed += line->failed + line->skipped;
      if (trouble.empty()) trouble = line->trouble;
    }
    if (row.method.full_cache) {
      html.Put(R"(<td class="c-engaged nil" data-v="2" data-csv="">–</td>)");
    } else if (!idle.empty()) {
      const bool nowhere = idle.size() == groups;
      html.Put(R"(<td class="c-engaged" data-v="{}" data-csv="{}" data-tip="{}"><span class="v )"
               R"(worse">✕ {}</span></td>)",
               {nowhere ? 0 : 0.5, nowhere ? "no" : StrCat("not on ", Join(idle, ", ")),
                StrCat("Left as they were, ", Join(told, "; "), ". The row is not ranked there."),
                nowhere            ? "no"
                : idle.size() == 1 ? StrCat("not on ", idle[0])
                                   : StrCat("not on ", idle.size(), " of ", groups, " groups")});
    } else {
      html.Put(R"(<td class="c-engaged" data-v="1" data-csv="yes">✓ yes</td>)");
    }
    if (failed > 0) {
      html.Put(R"(<td class="c-samples n opt" data-v="{}" data-tip="{}">{} <span class="v )"
               R"(worse">{} failed</span></td>)",
               {scored, trouble, WithCommas(scored), failed});
    } else {
      html.Put(R"(<td class="c-samples n opt" data-v="{}">{}</td>)", {scored, WithCommas(scored)});
    }
  }

  struct SparkPoint {
    double budget, score;
    std::string text;
    const BoardRow* row;
  };

  const Board& board_;
  const size_t index_;
  std::vector<Column> columns_;
  std::map<std::pair<std::string, std::string>, std::vector<SparkPoint>> sparks_;
  bool kl_ = false, agreement_ = false;
  bool host_ = false;  // entries of some row lie on the host
  int64_t longest_ = 0;
};

}  // namespace

Html LeaderboardSection(const Board& board, const PageData& data) {
  Html html;
  const auto index = static_cast<size_t>(&board - data.boards.data());
  if (!board.alone) html.Put("<h3>{}</h3>", {board.Title()});
  html.Put(R"(<p class="lead">{}</p>)"
           "\n",
           {ScoreRule(board)});
  Table table(board, index);
  html.Put(table.Render());
  if (index == 0) html.Put(table.Key());
  std::set<std::string> notes;
  for (const LeaderboardTable* group : board.groups)
    notes.insert(group->notes.begin(), group->notes.end());
  for (const std::string& note : notes) html.Put(R"(<p class="note">{}</p>)", {note});
  return html;
}

}  // namespace kvgauge::report
