// SPDX-License-Identifier: Apache-2.0
#include "src/serve/retrieved_prompt.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr double kSaturation = 1.5, kLengthShare = 0.75;  // k1 and b
// What words count that more than half of all chunks have: a share of the average word.
constexpr double kCommonShare = 0.25;

using Words = std::map<int32_t, int64_t>;  // how often each is there

// How well chunks fit a query.
std::vector<double> ScoreChunks(std::span<const Words> chunks, std::span<const int32_t> query) {
  const auto count = static_cast<double>(chunks.size());
  std::map<int32_t, double> weights;
  double total = 0;
  std::vector<double> lengths;
  for (const Words& words : chunks) {
    double length = 0;
    for (const auto& [word, times] : words) {
      length += static_cast<double>(times);
      ++weights[word];
    }
    lengths.push_back(length);
    total += length;
  }
  double sum = 0;
  for (auto& [word, weight] : weights) {
    weight = std::log(count - weight + 0.5) - std::log(weight + 0.5);
    sum += weight;
  }
  const double common = kCommonShare * sum / static_cast<double>(weights.size());
  std::vector<double> scores(chunks.size());
  for (const int32_t word : query) {
    const auto known = weights.find(word);
    if (known == weights.end()) continue;
    const double weight = known->second < 0 ? common : known->second;
    for (size_t i = 0; i < chunks.size(); ++i) {
      const auto there = chunks[i].find(word);
      if (there == chunks[i].end()) continue;
      const auto times = static_cast<double>(there->second);
      const double length = lengths[i] * count / total;  // of the mean
      scores[i] += weight * times * (kSaturation + 1) /
                   (times + kSaturation * (1 - kLengthShare + kLengthShare * length));
    }
  }
  return scores;
}

}  // namespace

std::string Retrieval::ToString() const {
  return StrCat("tokens=", tokens, " chunk=", chunk, " shorten=", shorten, " first=", first,
                " question=", question);
}

std::vector<int32_t> RetrievedPrompt(std::span<const int32_t> prompt, const Retrieval& retrieval) {
  const int64_t n = std::ssize(prompt);
  const int64_t end = std::max<int64_t>(n - retrieval.question, 0);
  const int64_t begin = std::min(retrieval.first, end);
  const int64_t chunks = (end - begin + retrieval.chunk - 1) / retrieval.chunk;
  const double asked = std::max(static_cast<double>(n) / static_cast<double>(retrieval.shorten),
                                static_cast<double>(std::min(retrieval.tokens, n))) /
                       static_cast<double>(retrieval.chunk);
  const auto wanted = static_cast<int64_t>(std::ceil(asked));
  if (wanted >= chunks) return {prompt.begin(), prompt.end()};
  std::vector<Words> words(static_cast<size_t>(chunks));
  for (int64_t at = begin; at < end; ++at) {
    ++words[static_cast<size_t>((at - begin) / retrieval.chunk)][prompt[static_cast<size_t>(at)]];
  }
  const std::vector<double> scores = ScoreChunks(words, prompt.subspan(static_cast<size_t>(end)));
  std::vector<int64_t> best(static_cast<size_t>(chunks));
  std::iota(best.begin(), best.end(), 0);
  std::ranges::stable_sort(best, [&](int64_t a, int64_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  best.resize(static_cast<size_t>(wanted));
  std::ranges::sort(best);
  std::vector<int32_t> shorter(prompt.begin(), prompt.begin() + begin);
  for (const int64_t chunk : best) {
    const int64_t from = begin + chunk * retrieval.chunk;
    const int64_t to = std::min(from + retrieval.chunk, end);
    shorter.insert(shorter.end(), prompt.begin() + from, prompt.begin() + to);
  }
  shorter.insert(shorter.end(), prompt.begin() + end, prompt.end());
  return shorter;
}

}  // namespace kvgauge
