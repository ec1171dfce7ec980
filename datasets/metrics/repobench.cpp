// SPDX-License-Identifier: Apache-2.0
// RepoBench: the first line of code of an output, beside the line that is there.
#include "metrics/sequence.h"
#include "metrics/text.h"

namespace kvgauge::metrics::repobench {
namespace {

constexpr const char* kReference = "RepoBench run.py and evaluation/metrics.py, commit 630c865";

// The first line that is no comment; of nothing else the first line.
TextView FirstLine(TextView said, bool java) {
  while (said.starts_with(U'\n')) said.remove_prefix(1);
  const std::vector<TextView> lines = SplitAt(said, '\n');
  bool comment = false;
  for (const TextView line : lines) {
    const TextView text = Strip(line);
    if (text.empty()) continue;
    const auto quotes = [&](TextView sign) { return text.starts_with(sign); };
    if (!comment && (java ? quotes(U"/*") : quotes(U"\"\"\"") || quotes(U"'''"))) {
      comment = true;
      continue;
    }
    const bool closes =
        java ? text.ends_with(U"*/") : text.ends_with(U"\"\"\"") || text.ends_with(U"'''");
    if (comment && closes) {
      comment = false;
      continue;
    }
    if (comment || quotes(java ? U"//" : U"#")) continue;
    return line;
  }
  return lines[0];
}

template <class Compare>
Result<double> Best(const MetricInput& input, Compare compare) {
  const Text said = Decode(input.prediction);
  const TextView line = FirstLine(said, input.kind == "java");
  double best = 0;
  for (const std::string& answer : input.answers) {
    best = std::max(best, compare(line, Decode(answer)));
  }
  return best;
}

Result<double> Similarity(const MetricInput& input) {
  return Best(input,
              [](TextView line, const Text& answer) { return FuzzRatio(answer, line) / 100.0; });
}
Result<double> Exact(const MetricInput& input) {
  return Best(input, [](TextView line, const Text& answer) {
    return SplitSpace(line) == SplitSpace(answer) ? 1.0 : 0.0;
  });
}

}  // namespace

KVG_REGISTER_METRIC(repobench_similarity,
                    {"repobench_similarity", 1,
                     "fuzz.ratio of the first line that is no comment, through difflib", kReference,
                     Similarity});
KVG_REGISTER_METRIC(repobench_exact,
                    {"repobench_exact", 1, "the words of that line are the answer's", kReference,
                     Exact});

}  // namespace kvgauge::metrics::repobench
