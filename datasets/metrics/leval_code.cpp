// SPDX-License-Identifier: Apache-2.0
// L-Eval's code understanding: the output of a program is looked for where answers state it.
#include "metrics/text.h"
#include "src/python_text.h"

namespace kvgauge::metrics::leval_code {
namespace {

// White space as one blank each, and brackets and numbers in one spelling.
std::string OneSpelling(const std::string& text) {
  Text blanks;
  for (const char32_t c : Decode(text)) {
    if (!IsSpace(c)) {
      blanks.push_back(c);
    } else if (blanks.empty() || blanks.back() != ' ') {
      blanks.push_back(' ');
    }
  }
  std::string out = Encode(blanks);
  for (const char* dropped : {",", "'", "\\", ".0"}) out = ReplaceAll(out, dropped, "");
  out = ReplaceAll(out, "] [", "][");
  out = ReplaceAll(out, "[ [", "[[");
  return ReplaceAll(out, "] ]", "]]");
}

// Pieces between runs of white space, empty ones at the ends kept as re.split keeps them.
std::vector<Text> Pieces(TextView text) {
  std::vector<Text> pieces(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (!IsSpace(text[i])) {
      pieces.back().push_back(text[i]);
    } else if (i == 0 || !IsSpace(text[i - 1])) {
      pieces.emplace_back();
    }
  }
  return pieces;
}

// Some words around where the output should be: as many as the answer has, and three more.
std::string StatedOutput(const std::string& prediction, const std::string& answer) {
  std::string text = OneSpelling(prediction);
  for (const char* dropped :
       {"will be", "of the code", "is", "would be", "the value of", "the result of", "printed"}) {
    text = ReplaceAll(text, dropped, "");
  }
  constexpr std::string_view kLead = "the final output";
  const size_t most = SplitSpace(Decode(answer)).size() + 3;
  const size_t lead = text.rfind(kLead);
  const bool stated = lead != std::string::npos;
  std::vector<Text> pieces = Pieces(Decode(stated ? text.substr(lead + kLead.size()) : text));
  if (pieces.size() > most) {
    const auto behind = static_cast<std::ptrdiff_t>(pieces.size() - most);
    if (stated) {
      pieces.resize(most);
    } else {
      pieces.erase(pieces.begin(), pieces.begin() + behind);
    }
  }
  return Encode(JoinSpace(pieces));
}

Result<double> Code(const MetricInput& input) {
  double best = 0;
  for (const std::string& answer : input.answers) {
    KVG_ASSIGN(const double score,
               FindMetric("leval_exam")
                   ->score({.prediction = StatedOutput(input.prediction, answer),
                            .answers = {OneSpelling(answer)}}));
    best = std::max(best, score);
  }
  return best;
}

}  // namespace

KVG_REGISTER_METRIC(leval_code,
                    {"leval_code", 1,
                     "leval_exam of the words behind 'the final output', else of the last ones",
                     "L-Eval auto_eval.py, commit cd34b05, by its description", Code});

}  // namespace kvgauge::metrics::leval_code
