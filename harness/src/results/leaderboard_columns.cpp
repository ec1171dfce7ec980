// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/json.h"
#include "core/strings.h"
#include "reports/statistics.h"
#include "src/cli/print.h"
#include "src/results/leaderboard_fields.h"

namespace kvgauge {
namespace {

using Show = TableCell (*)(const LeaderboardTable&, const LeaderboardLine&);

struct Column {
  const char* id;
  const char* title;
  bool right;
  int importance;
  bool usual;
  Show show;
};

int Digits(const LeaderboardTable& table) {
  if (table.digits >= 0) return std::min(table.digits, 4);
  return table.scale >= 10 ? 2 : 3;
}

std::string Signed(double value, int digits) {
  std::string text = Fixed(value, digits);
  // What rounds to nothing has no sign.
  if (text.find_first_of("123456789") == std::string::npos) return Fixed(0, digits);
  return value > 0 ? text.insert(0, "+") : text;
}

std::string Short(double value) { return Fixed(value, value >= 100 ? 0 : value >= 1 ? 2 : 4); }

TableCell Text(std::string text) { return {std::move(text)}; }

TableCell Bytes(const LeaderboardLine& l, double ratio) {
  return Text(l.bytes.samples > 0 && ratio > 0 ? Percent(ratio) : "");
}

// "~" where the times are not to compare by: taken in company of other rows; "!": of other
// programs.
TableCell TimeCell(const LatencySummary& s, std::string text) {
  if (!s.isolated) return {text += "~", Tone::kFaint};
  if (s.disturbed) return {text += "!", Tone::kDoubtful};
  return {std::move(text)};
}

TableCell Time(const LeaderboardLine& l, double Percentiles::*which,
               Percentiles LatencySummary::*what, std::optional<double> LatencySummary::*ratio) {
  if (l.latency.empty()) return {};
  const LatencySummary& s = l.latency.back();
  const double seconds = (s.*what).*which;
  if (!(seconds > 0)) return {};
  std::string text = ShowSeconds(seconds);
  if (ratio && s.*ratio) text.append(" (").append(Fixed(*(s.*ratio), 2)).append("x)");
  return TimeCell(s, std::move(text));
}

const Column kBoardColumns[] = {
    {"rank", "#", true, 90, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) -> TableCell {
       return Text(l.rank ? StrCat(*l.rank) : "-");
     }},
    {"method", "method", false, 100, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) -> TableCell {
       const std::string& variant = l.method.variant;
       const std::string name = StrCat(l.method.name, l.method.experimental ? "*" : "");
       return {variant.empty() ? name : StrCat(name, "[", variant, "]"),
               l.method.full_cache ? Tone::kStrong : Tone::kPlain};
     }},
    {"family", "family", false, 20, false,
     [](const LeaderboardTable&, const LeaderboardLine& l) { return Text(l.method.family); }},
    {"version", "version", true, 20, false,
     [](const LeaderboardTable&, const LeaderboardLine& l) {
       return Text(StrCat(l.method.version));
     }},
    {"budget", "budget", true, 95, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) {
       return Text(l.budget == "none" ? "-" : l.budget);
     }},
    {"score", "score", true, 100, true,
     [](const LeaderboardTable& t, const LeaderboardLine& l) {
       return Text(l.scored > 0 ? ShowReported(t, l.reported) : "");
     }},
    {"interval", "interval", false, 60, true,
     [](const LeaderboardTable& t, const LeaderboardLine& l) {
       return Text(l.scored > 0 ? ShowInterval(t, l.score.interval, false) : "");
     }},
    {"delta", "vs full", true, 80, true,
     [](const LeaderboardTable& t, const LeaderboardLine& l) {
       return Text(l.versus_full ? ShowChange(t, l.versus_full->value) : "");
     }},
    {"delta_interval", "interval", false, 50, true,
     [](const LeaderboardTable& t, const LeaderboardLine& l) {
       return Text(l.versus_full ? ShowInterval(t, l.versus_full->interval, true) : "");
     }},
    {"p", "p", true, 40, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) {
       return Text(l.versus_full ? PText(l.p_adjusted) : "");
     }},
    {"verdict", "verdict", false, 85, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) -> TableCell {
       if (l.versus_full) return {std::string(NameOf(l.verdict)), ToneOf(l.verdict)};
       return {l.method.full_cache ? "reference" : "", Tone::kFaint};
     }},
    {"detectable", "findable", true, 30, true,
     [](const LeaderboardTable& t, const LeaderboardLine& l) {
       if (!l.versus_full || std::isnan(l.versus_full->detectable)) return Text("");
       const bool any = std::isfinite(l.versus_full->detectable);
       return Text(any ? ShowScore(t, l.versus_full->detectable) : "none");
     }},
    {"nominal", "nominal", true, 25, false,
     [](const LeaderboardTable&, const LeaderboardLine& l) {
       return Bytes(l, l.bytes.nominal_ratio);
     }},
    {"bytes", "bytes", true, 84, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) {
       return Bytes(l, l.bytes.logical_ratio);
     }},
    {"resident", "resident", true, 35, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) {
       return Bytes(l, l.bytes.resident_ratio);
     }},
    {"device", "device", true, 35, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) -> TableCell {
       // Where all lies on the device this is `resident`.
       return l.bytes.host > 0 ? Bytes(l, l.bytes.device_ratio()) : TableCell();
     }},
    {"fetched", "fetched", true, 25, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) -> TableCell {
       if (l.bytes.host <= 0 || !l.fetched_per_step) return {};
       return Text(HumanBytes(std::llround(*l.fetched_per_step)));
     }},
    {"token_bytes", "B/token", true, 45, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) {
       return Text(l.bytes.samples > 0 ? Short(l.bytes.logical_per_token) : "");
     }},
    {"kl", "KL", true, 28, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) {
       return Text(l.kl_divergence ? Short(*l.kl_divergence) : "");
     }},
    {"top1", "top-1", true, 27, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) {
       return Text(l.top1_agreement ? Percent(*l.top1_agreement) : "");
     }},
    {"reads", "reads", true, 26, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) -> TableCell {
       // Who reads all that is held has nothing to say here.
       return Text(l.read_share && *l.read_share < 0.9995 ? Percent(*l.read_share) : "");
     }},
    {"ttft", "TTFT", true, 44, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) {
       return Time(l, &Percentiles::p50, &LatencySummary::ttft_s, &LatencySummary::ttft_ratio);
     }},
    {"tpot", "TPOT", true, 43, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) {
       return Time(l, &Percentiles::p50, &LatencySummary::tpot_s, &LatencySummary::tpot_ratio);
     }},
    {"tpot_p90", "TPOT p90", true, 22, false,
     [](const LeaderboardTable&, const LeaderboardLine& l) {
       return Time(l, &Percentiles::p90, &LatencySummary::tpot_s, nullptr);
     }},
    {"tpot_p99", "TPOT p99", true, 21, false,
     [](const LeaderboardTable&, const LeaderboardLine& l) {
       return Time(l, &Percentiles::p99, &LatencySummary::tpot_s, nullptr);
     }},
    {"compress", "compress", true, 24, false,
     [](const LeaderboardTable&, const LeaderboardLine& l) -> TableCell {
       if (l.latency.empty() || l.method.full_cache) return {};
       const LatencySummary& s = l.latency.back();
       return TimeCell(s, ShowSeconds(s.compress_s()));
     }},
    {"scored", "n", true, 33, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) { return Text(StrCat(l.scored)); }},
    {"seeds", "seeds", true, 15, false,
     [](const LeaderboardTable&, const LeaderboardLine& l) {
       return Text(StrCat(l.seeds.size()));
     }},
    {"note", "note", false, 70, true,
     [](const LeaderboardTable&, const LeaderboardLine& l) -> TableCell {
       if (l.not_ranked.empty()) return {};
       return {l.trouble.empty() ? l.not_ranked : StrCat(l.not_ranked, ": ", l.trouble),
               Tone::kDoubtful};
     }},
};

// Null where a value has no column.
const Column* Find(std::string_view id) {
  const auto at = std::find_if(std::begin(kBoardColumns), std::end(kBoardColumns),
                               [id](const Column& c) { return c.id == id; });
  return at == std::end(kBoardColumns) ? nullptr : at;
}

std::string Plain(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? Short(value.get<double>()) : value.dump();
}

}  // namespace

const std::vector<std::string>& LeaderboardColumns() {
  static const std::vector<std::string> kIds = [] {
    std::vector<std::string> ids;
    for (const Column& column : kBoardColumns) ids.emplace_back(column.id);
    return ids;
  }();
  return kIds;
}

const std::vector<std::string>& DefaultColumns() {
  static const std::vector<std::string> kIds = [] {
    std::vector<std::string> ids;
    for (const Column& column : kBoardColumns) {
      if (column.usual) ids.emplace_back(column.id);
    }
    return ids;
  }();
  return kIds;
}

TableColumn ColumnOf(std::string_view id) {
  const Column* column = Find(id);
  if (column == nullptr) return {std::string(id), true};
  return {column->title, column->right, column->importance, column->id};
}

TableCell CellOf(const LeaderboardTable& table, const LeaderboardLine& line, std::string_view id) {
  const Column* column = Find(id);
  if (column == nullptr) return {Plain(FieldOf(table, line, id))};
  return column->show(table, line);
}

std::string ShowScore(const LeaderboardTable& table, double score) {
  return Fixed(table.scale * score, Digits(table));
}

std::string ShowReported(const LeaderboardTable& table, double reported) {
  return Fixed(reported, Digits(table));
}

std::string ShowChange(const LeaderboardTable& table, double change) {
  return Signed(table.scale * change, Digits(table));
}

std::string ShowInterval(const LeaderboardTable& table, const Interval& interval, bool change) {
  if (std::isinf(interval.low) || std::isinf(interval.high)) return "";
  const auto show = [&](double v) { return change ? ShowChange(table, v) : ShowScore(table, v); };
  return StrCat("[", show(interval.low), ", ", show(interval.high), "]");
}

std::string ShowSeconds(double seconds) {
  if (seconds >= 100) return Fixed(seconds, 0) + " s";
  // From here on the smaller unit would round to 1000 of them.
  if (seconds >= 0.9995) return Fixed(seconds, 2) + " s";
  if (seconds >= 0.9995e-3) return Fixed(1e3 * seconds, seconds >= 0.1 ? 0 : 2) + " ms";
  return Fixed(1e6 * seconds, 0) + " us";
}

Tone ToneOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSame:
      return Tone::kGood;
    case Verdict::kBetter:
      return Tone::kStrong;
    case Verdict::kWorse:
      return Tone::kBad;
    case Verdict::kUndecided:
      return Tone::kDoubtful;
  }
  return Tone::kPlain;
}

}  // namespace kvgauge
