// SPDX-License-Identifier: Apache-2.0
// Times generated samples and ROUGE-L on one thread, in processor time.
//
//   datasets_bench TOKENIZER_DIRECTORY [samples [tokens]]
//
// Samples: those of the task "needle", whose tokens are counted afterwards. ROUGE-L: LongBench's
// and Google's, of texts of 5,000 words, of one sentence and of many; Google's is checked against a
// plain longest common subsequence.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/rng.h"
#include "core/strings.h"
#include "datasets/metric.h"
#include "datasets/task.h"
#include "runner/tokenizer.h"
#include "src/model/tokenizer_codec.h"

namespace kvgauge {
namespace {

constexpr int kRepetitions = 15;
constexpr int kWords = 5000, kVocabulary = 800;
constexpr int kSentence = 20;  // words

double ProcessorSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "error: %s\n", what.c_str());
  std::exit(1);
}

void TimeNeedles(const Tokenizer& tokenizer, int64_t samples, int64_t tokens) {
  const TokenizerCodec codec(tokenizer);
  const Json given = {{"lengths", std::to_string(tokens)}, {"repeats", (samples + 9) / 10}};
  const SourceSpec* spec = FindSource("needle");
  const auto params = Params::Parse(spec->params, given, "needle");
  if (!params.ok()) Fail(params.error().message);
  TaskOptions options;
  options.codec = &codec;
  options.limit = samples;
  const auto stream = spec->open(*params, Json(), options);
  if (!stream.ok()) Fail(stream.error().message);
  std::vector<std::string> texts;
  const double start = ProcessorSeconds();
  while (true) {
    const auto sample = (*stream)->Next();
    if (!sample.ok()) Fail(sample.error().message);
    if (!*sample) break;
    texts.push_back((*sample)->context + (*sample)->questions[0].text);
  }
  const double seconds = ProcessorSeconds() - start;
  for (const std::string& text : texts) {
    const auto counted = std::ssize(*codec.Encode(text, false));
    if (counted > tokens || counted < tokens - 1) Fail(StrCat("a text of ", counted, " tokens"));
  }
  std::printf("%lld needle samples of %lld tokens   %.2f s\n", static_cast<long long>(texts.size()),
              static_cast<long long>(tokens), seconds);
}

std::vector<int> Words(Rng& rng) {
  std::vector<int> words;
  for (int i = 0; i < kWords; ++i) words.push_back(static_cast<int>(rng.NextBelow(kVocabulary)));
  return words;
}

std::string Text(const std::vector<int>& words, bool sentences) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += StrCat(i > 0 ? " " : "", "w", words[i]);
    if (sentences && i % kSentence == kSentence - 1) text += '.';
  }
  return text;
}

double PlainRougeL(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> row(b.size() + 1, 0);
  for (const int word : a) {
    int diagonal = 0;
    for (size_t j = 1; j < row.size(); ++j) {
      const int here = word == b[j - 1] ? diagonal + 1 : std::max(row[j], row[j - 1]);
      diagonal = row[j];
      row[j] = here;
    }
  }
  return static_cast<double>(row.back()) / kWords;  // as long as each other: precision is recall
}

void TimeRougeL(const std::string& name, bool sentences) {
  Rng rng(1, 0);
  const MetricSpec* metric = FindMetric(name);
  std::vector<double> seconds;
  for (int i = 0; i < kRepetitions; ++i) {
    const std::vector<int> a = Words(rng), b = Words(rng);
    const MetricInput input = {.prediction = Text(a, sentences), .answers = {Text(b, sentences)}};
    const double start = ProcessorSeconds();
    const auto score = metric->score(input);
    seconds.push_back(ProcessorSeconds() - start);
    if (!score.ok()) Fail(score.error().message);
    if (name != "rouge_l" && !(std::abs(*score - PlainRougeL(a, b)) < 1e-6)) {
      Fail(StrCat(name, " is ", *score, ", but should be ", PlainRougeL(a, b)));
    }
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRepetitions / 2, seconds.end());
  std::printf("%s of two texts of %d words, %s   %.2f ms\n", name.c_str(), kWords,
              sentences ? "many sentences" : "one sentence", 1e3 * seconds[kRepetitions / 2]);
}

}  // namespace
}  // namespace kvgauge

int main(int argc, char** argv) {
  using namespace kvgauge;
  if (argc < 2) Fail("datasets_bench TOKENIZER_DIRECTORY [samples [tokens]]");
  const auto tokenizer = LoadTokenizer(argv[1]);
  if (!tokenizer.ok()) Fail(tokenizer.error().message);
  TimeNeedles(**tokenizer, argc > 2 ? std::atoll(argv[2]) : 10'000,
              argc > 3 ? std::atoll(argv[3]) : 4096);
  for (const char* name : {"rouge_l", "google_rouge_l_plain"}) {
    for (const bool sentences : {false, true}) TimeRougeL(name, sentences);
  }
  return 0;
}
