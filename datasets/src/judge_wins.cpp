// SPDX-License-Identifier: Apache-2.0
#include <cctype>

#include "core/strings.h"
#include "datasets/judge.h"
#include "src/judge_session.h"

namespace kvgauge {
namespace {

constexpr char kFirst = 'A', kSecond = 'B', kEqual = 'C';

// `first` has the reference as A, `swapped` the model's answer.
WinVerdict VerdictOf(char first, char swapped) {
  if (first == 0 || swapped == 0) return WinVerdict::kUnparsed;
  if (first == kSecond && swapped == kFirst) return WinVerdict::kWin;
  if (first == kFirst && swapped == kSecond) return WinVerdict::kLoss;
  return WinVerdict::kTie;
}

void CountWin(const JudgedWin& win, JudgedWins& out) {
  switch (win.verdict) {
    case WinVerdict::kWin:
      ++out.won;
      return;
    case WinVerdict::kLoss:
      ++out.lost;
      return;
    case WinVerdict::kTie:
      ++out.tied;
      if (win.first == win.swapped && win.first != kEqual) ++out.order_decided;
      return;
    case WinVerdict::kUnparsed:
      ++out.unparsed;
      return;
  }
}

}  // namespace

std::string WinPrompt(const std::string& question, const std::string& answer_a,
                      const std::string& answer_b) {
  return StrCat(
      "Two assistants answered the same question. Which answer is better in helpfulness, "
      "relevance, "
      "accuracy and detail? Do not let the order or the length of the answers count. Write one "
      "letter alone on the first line: A, B, or C for a tie. Explain on the lines after it.\n\n"
      "[Question]\n",
      question, "\n\n[Assistant A]\n", answer_a, "\n[End of assistant A]\n\n[Assistant B]\n",
      answer_b, "\n[End of assistant B]\n");
}

char ParseWin(const std::string& reply) {
  char letter = 0;
  for (const char c : reply.substr(0, reply.find('\n'))) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) {
      if (static_cast<unsigned char>(c) >= 0x80) return 0;
      continue;
    }
    if (letter != 0 || c < kFirst || c > kEqual) return 0;
    letter = c;
  }
  return letter;
}

Result<JudgedWins> JudgeWins(const std::string& path, const Judge& judge,
                             const JudgeOptions& options) {
  KVG_ASSIGN(JudgeSession session, JudgeSession::Open(path, judge, options));
  JudgedWins out;
  KVG_TRY(session.ForEachPair([&](const JudgedLine& line) -> Result<bool> {
    JudgedWin win = {.line = line.number};
    for (const bool swapped : {false, true}) {
      const std::string prompt = swapped ? WinPrompt(line.question, line.answer, line.reference)
                                         : WinPrompt(line.question, line.reference, line.answer);
      const Result<std::string> reply = session.Ask(prompt, line);
      if (!reply.ok()) {
        if (out.wins.empty()) return reply.error();
        out.ended = reply.error().message;
        return false;
      }
      (swapped ? win.swapped : win.first) = ParseWin(*reply);
    }
    win.verdict = VerdictOf(win.first, win.swapped);
    CountWin(win, out);
    out.wins.push_back(win);
    out.ended = session.lost();
    return out.ended.empty();
  }));
  if (out.wins.empty()) return BadInput(StrCat(path, ": no pair to judge"));
  out.bad_lines = session.bad_lines();
  out.reused = session.reused();
  out.requests = session.requests();
  out.tokens = session.tokens();
  const int64_t parsed = out.won + out.tied + out.lost;
  if (parsed > 0) {
    out.win_rate = (static_cast<double>(out.won) + static_cast<double>(out.tied) / 2) /
                   static_cast<double>(parsed);
  }
  return out;
}

}  // namespace kvgauge
