// SPDX-License-Identifier: Apache-2.0
#include "src/results/leaderboard_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>

#include "core/json.h"
#include "core/strings.h"
#include "src/cli/print.h"

namespace kvgauge {
namespace {

using Getter = Json (*)(const LeaderboardTable&, const LeaderboardLine&);

Json Maybe(const std::optional<double>& value) { return value ? FiniteOrNull(*value) : Json(); }

// Times are shown at the longest context that was measured.
const LatencySummary* LatencyOf(const LeaderboardLine& line) {
  return line.latency.empty() ? nullptr : &line.latency.back();
}

// The one number of the row's method over its budgets.
const Estimate* AreaOf(const LeaderboardTable& table, const LeaderboardLine& line) {
  for (const MethodSummary& m : table.methods) {
    const bool own = m.method == line.method.name && m.variant == line.method.variant;
    if (own && m.area && !line.method.full_cache) return &*m.area;
  }
  return nullptr;
}

#define KVG_FIELD(id, expression)                                         \
  {                                                                       \
    id, [](const LeaderboardTable& t, const LeaderboardLine& l) -> Json { \
      static_cast<void>(t);                                               \
      static_cast<void>(l);                                               \
      return expression;                                                  \
    }                                                                     \
  }
#define KVG_SCORED(expression) (l.scored > 0 ? FiniteOrNull(expression) : Json())
#define KVG_COMPARED(expression) (l.versus_full ? Json(expression) : Json())
#define KVG_BYTES(expression) (l.bytes.samples > 0 ? FiniteOrNull(expression) : Json())
#define KVG_TIMED(expression) (LatencyOf(l) ? Json(LatencyOf(l)->expression) : Json())
#define KVG_AREA(expression) (AreaOf(t, l) ? Json(AreaOf(t, l)->expression) : Json())

struct Field {
  const char* id;
  Getter get;
};
const Field kFields[] = {
    KVG_FIELD("model", t.model),
    KVG_FIELD("task", t.task),
    KVG_FIELD("compress_at", t.compress_at),
    KVG_FIELD("signature", t.signatures.size() == 1 ? Json(t.signatures[0]) : Json()),
    KVG_FIELD("rank", l.rank ? Json(*l.rank) : Json()),
    KVG_FIELD("method", l.method.name),
    KVG_FIELD("variant", l.method.variant),
    KVG_FIELD("family", l.method.family),
    KVG_FIELD("version", l.method.version),
    KVG_FIELD("full_cache", l.method.full_cache),
    KVG_FIELD("experimental", l.method.experimental),
    KVG_FIELD("budget", l.budget),
    KVG_FIELD("budget_kind", l.budget_kind),
    KVG_FIELD("budget_value", l.budget_value),
    KVG_FIELD("seeds", l.seeds.size()),
    KVG_FIELD("tasks", l.tasks),
    KVG_FIELD("samples", l.samples),
    KVG_FIELD("ok", l.ok),
    KVG_FIELD("failed", l.failed),
    KVG_FIELD("skipped", l.skipped),
    KVG_FIELD("not_engaged", l.not_engaged),
    KVG_FIELD("scored", l.scored),
    KVG_FIELD("contexts", l.score.clusters),
    KVG_FIELD("score", KVG_SCORED(l.score.value)),
    KVG_FIELD("reported", KVG_SCORED(l.reported)),
    KVG_FIELD("score_low", KVG_SCORED(l.score.interval.low)),
    KVG_FIELD("score_high", KVG_SCORED(l.score.interval.high)),
    KVG_FIELD("delta", KVG_COMPARED(FiniteOrNull(l.versus_full->value))),
    KVG_FIELD("delta_low", KVG_COMPARED(FiniteOrNull(l.versus_full->interval.low))),
    KVG_FIELD("delta_high", KVG_COMPARED(FiniteOrNull(l.versus_full->interval.high))),
    KVG_FIELD("p_uncorrected", KVG_COMPARED(l.versus_full->p)),
    KVG_FIELD("p_adjusted", KVG_COMPARED(l.p_adjusted)),
    KVG_FIELD("test", KVG_COMPARED(l.versus_full->test)),
    KVG_FIELD("paired", KVG_COMPARED(l.versus_full->samples)),
    KVG_FIELD("verdict", KVG_COMPARED(std::string(NameOf(l.verdict)))),
    KVG_FIELD("detectable", KVG_COMPARED(FiniteOrNull(l.versus_full->detectable))),
    KVG_FIELD("nominal_bytes", KVG_BYTES(l.bytes.nominal)),
    KVG_FIELD("logical_bytes", KVG_BYTES(l.bytes.logical)),
    KVG_FIELD("resident_bytes", KVG_BYTES(l.bytes.resident)),
    KVG_FIELD("full_bytes", KVG_BYTES(l.bytes.full)),
    KVG_FIELD("host_bytes", KVG_BYTES(l.bytes.host)),
    KVG_FIELD("nominal_ratio", KVG_BYTES(l.bytes.nominal_ratio)),
    KVG_FIELD("logical_ratio", KVG_BYTES(l.bytes.logical_ratio)),
    KVG_FIELD("resident_ratio", KVG_BYTES(l.bytes.resident_ratio)),
    KVG_FIELD("host_ratio", KVG_BYTES(l.bytes.host_ratio)),
    KVG_FIELD("device_ratio", KVG_BYTES(l.bytes.device_ratio())),
    KVG_FIELD("nominal_per_token", KVG_BYTES(l.bytes.nominal_per_token)),
    KVG_FIELD("logical_per_token", KVG_BYTES(l.bytes.logical_per_token)),
    KVG_FIELD("resident_per_token", KVG_BYTES(l.bytes.resident_per_token)),
    KVG_FIELD("host_per_token", KVG_BYTES(l.bytes.host_per_token)),
    KVG_FIELD("fetched_per_step", Maybe(l.fetched_per_step)),
    KVG_FIELD("kl_divergence", Maybe(l.kl_divergence)),
    KVG_FIELD("top1_agreement", Maybe(l.top1_agreement)),
    KVG_FIELD("read_share", Maybe(l.read_share)),
    KVG_FIELD("latency_isolated", KVG_TIMED(isolated)),
    KVG_FIELD("latency_tokens", KVG_TIMED(context_tokens)),
    KVG_FIELD("latency_count", KVG_TIMED(count)),
    KVG_FIELD("latency_left_out", KVG_TIMED(left_out)),
    KVG_FIELD("latency_disturbed", KVG_TIMED(disturbed)),
    KVG_FIELD("ttft_p50_s", KVG_TIMED(ttft_s.p50)),
    KVG_FIELD("ttft_p90_s", KVG_TIMED(ttft_s.p90)),
    KVG_FIELD("ttft_p99_s", KVG_TIMED(ttft_s.p99)),
    KVG_FIELD("ttft_ratio", LatencyOf(l) ? Maybe(LatencyOf(l)->ttft_ratio) : Json()),
    KVG_FIELD("tpot_p50_s", KVG_TIMED(tpot_s.p50)),
    KVG_FIELD("tpot_p90_s", KVG_TIMED(tpot_s.p90)),
    KVG_FIELD("tpot_p99_s", KVG_TIMED(tpot_s.p99)),
    KVG_FIELD("tpot_ratio", LatencyOf(l) ? Maybe(LatencyOf(l)->tpot_ratio) : Json()),
    KVG_FIELD("vision_s", KVG_TIMED(vision_s)),
    KVG_FIELD("prefill_s", KVG_TIMED(prefill_s)),
    KVG_FIELD("score_s", KVG_TIMED(score_s)),
    KVG_FIELD("select_s", KVG_TIMED(select_s)),
    KVG_FIELD("compact_s", KVG_TIMED(compact_s)),
    KVG_FIELD("quantise_s", KVG_TIMED(quantise_s)),
    KVG_FIELD("compress_s", KVG_TIMED(compress_s())),
    KVG_FIELD("attend_s", KVG_TIMED(attend_s)),
    KVG_FIELD("other_s", KVG_TIMED(other_s)),
    KVG_FIELD("others_share", KVG_TIMED(others_share)),
    KVG_FIELD("area", KVG_AREA(value)),
    KVG_FIELD("area_low", KVG_AREA(interval.low)),
    KVG_FIELD("area_high", KVG_AREA(interval.high)),
    KVG_FIELD("area_samples", KVG_AREA(samples)),
    KVG_FIELD("not_ranked", l.not_ranked),
    KVG_FIELD("not_compared", l.not_compared),
    KVG_FIELD("trouble", l.trouble),
};

// Values by the names of the columns that show them.
const std::map<std::string, std::string, std::less<>> kValueOfColumn = {
    {"p", "p_adjusted"},
    {"bytes", "logical_ratio"},
    {"nominal", "nominal_ratio"},
    {"resident", "resident_ratio"},
    {"device", "device_ratio"},
    {"fetched", "fetched_per_step"},
    {"token_bytes", "logical_per_token"},
    {"kl", "kl_divergence"},
    {"top1", "top1_agreement"},
    {"reads", "read_share"},
    {"ttft", "ttft_p50_s"},
    {"tpot", "tpot_p50_s"},
    {"tpot_p90", "tpot_p90_s"},
    {"tpot_p99", "tpot_p99_s"},
    {"compress", "compress_s"},
    {"note", "not_ranked"}};

bool TextMatches(const std::string& text, const std::string& pattern) {
  if (!pattern.empty() && pattern.back() == '*') {
    return text.starts_with(std::string_view(pattern).substr(0, pattern.size() - 1));
  }
  return text == pattern;
}

bool Matches(const Json& value, const std::string& wanted) {
  const std::vector<std::string> any = Split(wanted, ',');
  return std::ranges::any_of(any, [&](const std::string& pattern) {
    if (value.is_null()) return pattern.empty();
    if (value.is_string()) return TextMatches(value.get<std::string>(), pattern);
    if (value.is_boolean()) return pattern == (value.get<bool>() ? "true" : "false");
    double number = 0;
    const auto end = pattern.data() + pattern.size();
    const auto [at, error] = std::from_chars(pattern.data(), end, number);
    return error == std::errc() && at == end && value.get<double>() == number;
  });
}

}  // namespace

const std::vector<std::string>& LeaderboardFields() {
  static const std::vector<std::string> kIds = [] {
    std::vector<std::string> ids;
    for (const Field& field : kFields) ids.emplace_back(field.id);
    return ids;
  }();
  return kIds;
}

const std::vector<std::string>& LeaderboardNames() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names = LeaderboardColumns();
    for (const std::string& field : LeaderboardFields()) {
      if (std::ranges::find(names, field) == names.end()) names.push_back(field);
    }
    return names;
  }();
  return kNames;
}

std::string FieldOfName(std::string_view name) {
  const auto at = kValueOfColumn.find(name);
  return at == kValueOfColumn.end() ? std::string(name) : at->second;
}

std::vector<std::string> FieldsOfNames(const std::vector<std::string>& names) {
  std::vector<std::string> fields;
  for (const std::string& name : names) {
    if (name == "interval") {
      fields.insert(fields.end(), {"score_low", "score_high"});
    } else if (name == "delta_interval") {
      fields.insert(fields.end(), {"delta_low", "delta_high"});
    } else {
      fields.push_back(name);
    }
  }
  return fields;
}

Json FieldOf(const LeaderboardTable& table, const LeaderboardLine& line, std::string_view name) {
  const std::string id = FieldOfName(name);
  for (const Field& field : kFields) {
    if (field.id == id) return field.get(table, line);
  }
  return {};
}

bool MoreIsBetter(const LeaderboardTable& table, std::string_view name) {
  const std::string id = FieldOfName(name);
  if (id.starts_with("area")) return !table.lower_is_better;
  if (id.starts_with("score") && id != "score_s") return !table.lower_is_better;
  return id.starts_with("delta") || id == "top1_agreement" || id == "samples" || id == "scored" ||
         id == "ok" || id == "paired";
}

Result<FieldFilter> ParseFieldFilter(const std::string& text) {
  const size_t at = text.find_first_of("=!<>");
  if (at == std::string::npos || at == 0) {
    return BadInput(StrCat("--filter: ", Quoted(text),
                           ", expected NAME=VALUE, e.g. method=snapkv,h2o or bytes<0.3"));
  }
  const bool two = at + 1 < text.size() && text[at + 1] == '=';
  FieldFilter filter = {text.substr(0, at), text.substr(at, two ? 2 : 1),
                        text.substr(at + (two ? 2 : 1))};
  if (filter.operation == "==") filter.operation = "=";
  if (filter.id == "interval" || filter.id == "delta_interval") {
    return BadInput(StrCat("--filter: ", filter.id, " is two values, expected ",
                           Join(FieldsOfNames({filter.id}), " or ")));
  }
  const std::vector<std::string>& known = LeaderboardNames();
  if (filter.operation == "!" || std::ranges::find(known, filter.id) == known.end()) {
    return BadInput(StrCat("--filter: there is no ", Quoted(filter.id),
                           DidYouMean(filter.id, known), "; known: ", Join(known, ", ")));
  }
  double number = 0;
  const auto end = filter.value.data() + filter.value.size();
  const auto parsed = std::from_chars(filter.value.data(), end, number);
  const bool compares = filter.operation[0] == '<' || filter.operation[0] == '>';
  if (compares && (parsed.ec != std::errc() || parsed.ptr != end)) {
    return BadInput(StrCat("--filter: ", Quoted(text), ": ", Quoted(filter.value),
                           ", expected a number after ", filter.operation));
  }
  return filter;
}

Result<bool> Passes(const FieldFilter& filter, const LeaderboardTable& table,
                    const LeaderboardLine& line) {
  const Json value = FieldOf(table, line, filter.id);
  if (filter.operation == "=") return Matches(value, filter.value);
  if (filter.operation == "!=") return !Matches(value, filter.value);
  if (value.is_null()) return false;
  if (!value.is_number()) {
    return BadInput(StrCat("--filter: ", filter.id, " is a text, expected = or != with it"));
  }
  const double held = value.get<double>(), bound = std::stod(filter.value);
  if (held == bound) return filter.operation.size() == 2;
  return (held < bound) == (filter.operation[0] == '<');
}

}  // namespace kvgauge
