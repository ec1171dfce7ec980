// SPDX-License-Identifier: Apache-2.0
// Chinese words as jieba 0.42.1 finds them in its accurate mode: the likeliest path through the
// dictionary's words, and a hidden Markov model for the characters that stay single.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "metrics/text.h"

namespace kvgauge::metrics {

class Jieba {
 public:
  // `directory` is that of the installed package: dict.txt and finalseg/prob_emit.py are read.
  static Result<std::shared_ptr<const Jieba>> Load(const std::string& directory);
  // From the directory in the environment variable KVGAUGE_JIEBA, read once.
  static Result<std::shared_ptr<const Jieba>> Shared();

  std::vector<Text> Cut(TextView text) const;

 private:
  Jieba() = default;
  void CutBlock(TextView block, std::vector<Text>& words) const;
  void CutSingles(TextView singles, std::vector<Text>& words) const;
  void CutHidden(TextView han, std::vector<Text>& words) const;

  std::unordered_map<Text, int64_t> frequency_;  // 0 for what only begins a word
  double log_total_ = 0;
  std::array<std::unordered_map<char32_t, double>, 4> emission_;  // of B, M, E, S
};

}  // namespace kvgauge::metrics
