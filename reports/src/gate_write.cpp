// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "core/strings.h"
#include "reports/gate.h"
#include "reports/statistics.h"

namespace kvgauge {
namespace {

std::string Format(const char* format, double value) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

// In the unit a reader expects: points of the score, percent of bytes and time (more is worse).
std::string Change(const GateLine& line, double value) {
  if (!line.relative) return Format("%+.2f", 100 * value);
  return Format("%+.2f%%", 100 * std::expm1(-value) + 0.0);  // never -0
}

std::string IntervalText(const GateLine& line) {
  const Interval& i = line.evidence.interval;
  const bool turned = line.relative;
  const double low = turned ? i.high : i.low, high = turned ? i.low : i.high;
  if (line.evidence.samples == 0 || std::isinf(low) || std::isinf(high)) return "";
  return StrCat("[", Change(line, low), ", ", Change(line, high), "]");
}

std::string ChangeText(const GateLine& line) {
  if (line.evidence.samples == 0) return "-";
  const std::string interval = IntervalText(line);
  const std::string change = Change(line, line.evidence.value);
  return interval.empty() ? change : StrCat(change, " ", interval);
}

std::string Value(const GateLine& line, double value) {
  if (line.evidence.samples == 0) return "-";
  if (!line.relative) return Format("%.2f", 100 * value);
  if (line.metric == GateMetric::kBytes) {
    return HumanBytes(static_cast<int64_t>(std::llround(value)));
  }
  if (line.metric != GateMetric::kLatency) return Format("%.4g", value);
  if (line.over_full) return Format("%.3fx", value);
  if (value >= 1) return Format("%.3f s", value);
  return value >= 1e-3 ? Format("%.2f ms", 1e3 * value) : Format("%.1f us", 1e6 * value);
}

std::string Word(const GateLine& line) {
  return line.comparable ? std::string(NameOf(line.verdict)) : "NOT COMPARABLE";
}

std::string Detail(const GateLine& line) {
  std::vector<std::string> parts;
  if (!line.reason.empty()) parts.push_back(line.reason);
  if (line.verdict == Verdict::kUndecided && std::isfinite(line.evidence.detectable) &&
      line.evidence.samples > 0) {
    parts.push_back(StrCat("detectable: ", Format("%.2f", 100 * line.evidence.detectable),
                           line.relative ? "%" : " points"));
  }
  return Join(parts, "; ");
}

std::string Summary(const GateReport& report) {
  std::vector<std::string> parts;
  for (const Verdict verdict :
       {Verdict::kWorse, Verdict::kUndecided, Verdict::kBetter, Verdict::kSame}) {
    parts.push_back(StrCat(report.Count(verdict), " ", NameOf(verdict)));
  }
  if (report.NotComparable() > 0)
    parts.push_back(StrCat(report.NotComparable(), " not comparable"));
  return Join(parts, ", ");
}

std::string MarkdownCell(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return escaped;
}

std::string Xml(const std::string& text) {
  std::string escaped;
  for (const char c : RepairUtf8(text)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        // XML has no way to write most control characters.
        escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return escaped;
}

}  // namespace

GateText Describe(const GateLine& line) {
  const bool measured = line.evidence.samples > 0;
  return {.verdict = Word(line),
          .baseline = Value(line, line.baseline),
          .candidate = Value(line, line.candidate),
          .change = measured ? Change(line, line.evidence.value) : "-",
          .interval = IntervalText(line),
          .p = measured ? PText(line.p_adjusted) : "-",
          .note = Detail(line)};
}

std::string GateRemedies(const GateReport& report) {
  std::vector<std::pair<std::string, int64_t>> counts;
  for (const GateLine& line : report.lines) {
    if (!line.comparable || line.verdict != Verdict::kUndecided) continue;
    auto at = std::ranges::find(counts, line.remedy, [](const auto& count) { return count.first; });
    if (at == counts.end()) at = counts.insert(at, {line.remedy, 0});
    ++at->second;
  }
  std::vector<std::string> parts;
  parts.reserve(counts.size());
  for (const auto& [remedy, count] : counts) {
    parts.push_back(StrCat(count, count == 1 ? " needs " : " need ", remedy));
  }
  return Join(parts, ", ");
}

std::string GateMarkdown(const GateReport& report) {
  std::string out = StrCat("## Gate: ", Summary(report), "\n\n");
  out += "| verdict | metric | group | baseline | candidate | change | p | margin | n | note |\n";
  out += "|---|---|---|---:|---:|---:|---:|---:|---:|---|\n";
  for (const GateLine& line : report.lines) {
    const bool score = !line.relative;
    const std::vector<std::string> cells = {
        Word(line),
        line.quantity,
        line.group,
        Value(line, line.baseline),
        Value(line, line.candidate),
        ChangeText(line),
        line.evidence.samples == 0 ? "-" : PText(line.p_adjusted),
        Format(score ? "%.2f" : "%.2f%%", 100 * line.margin),
        StrCat(line.evidence.samples),
        Detail(line)};
    out += "|";
    for (const std::string& cell : cells) out += StrCat(" ", MarkdownCell(cell), " |");
    out += "\n";
  }
  out += StrCat(
      "\nScores are in points (of 100), perplexities as they are; times with an x are over "
      "the full cache's of the same round; changes carry their ",
      Format("%g", 100 * (1 - report.alpha)),
      "% interval; p is corrected over the lines of a metric.\n");
  const std::string remedies = GateRemedies(report);
  if (!remedies.empty()) out += StrCat("Undecided lines: ", remedies, ".\n");
  return out;
}

std::string GateJUnit(const GateReport& report) {
  std::string out = R"(<?xml version="1.0" encoding="UTF-8"?>)"
                    "\n";
  out += StrCat(
      "<testsuites>"
      "\n"
      R"(<testsuite name="kvgauge gate" tests=")",
      report.lines.size(), R"(" failures=")", report.Count(Verdict::kWorse), R"(" errors=")",
      report.NotComparable(), R"(" skipped=")", report.Count(Verdict::kUndecided),
      R"(">)"
      "\n");
  for (const GateLine& line : report.lines) {
    out += StrCat(R"(<testcase classname=")", NameOf(line.metric), R"(" name=")",
                  Xml(StrCat(line.group, ": ", line.quantity)), R"(">)");
    const std::string message = Xml(
        StrCat(Word(line), ": ", Value(line, line.baseline), " to ", Value(line, line.candidate),
               ", change ", ChangeText(line), line.reason.empty() ? "" : "; ", line.reason));
    if (!line.comparable) {
      out += StrCat(R"(<error message=")", message, R"("/>)");
    } else if (line.verdict == Verdict::kWorse) {
      out += StrCat(R"(<failure message=")", message, R"("/>)");
    } else if (line.verdict == Verdict::kUndecided) {
      out += StrCat(R"(<skipped message=")", message, R"("/>)");
    } else {
      out += StrCat("<system-out>", message, "</system-out>");
    }
    out += "</testcase>\n";
  }
  return out + "</testsuite>\n</testsuites>\n";
}

}  // namespace kvgauge
