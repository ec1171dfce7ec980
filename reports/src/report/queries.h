// SPDX-License-Identifier: Apache-2.0
// What figures need beyond the leaderboard, each by one statement.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reports/store.h"

namespace kvgauge::report {

// Means over the ok samples of a cell, after compression.
struct BytesByKind {
  static constexpr int64_t kKinds = 10;
  static const char* const kNames[kKinds];

  int64_t cell = 0, samples = 0;
  double tokens_in = 0, full_bytes = 0;
  double parts[kKinds] = {};
};

// Samples of a cell at one depth and length of context.
struct GridCount {
  int64_t cell = 0;
  std::string depth, length;
  bool pictures = false;           // the length is a number of them
  int64_t samples = 0, right = 0;  // with the full score
  double mean = 0;
};

// Means over the first samples of a cell.
struct HeadMean {
  int64_t cell = 0, layer = 0, head = 0;
  int64_t samples = 0;
  std::optional<double> kept, bits, attention_error, answer_kept;
};
struct DepthMean {
  int64_t cell = 0, layer = 0;
  int64_t samples = 0;
  std::vector<double> kept;  // by depth
};

// Entries of one modality in one layer of a cell, of all samples that show pictures.
struct ModalitySum {
  int64_t cell = 0, layer = 0;
  std::string modality;
  int64_t samples = 0, entries_before = 0, entries_after = 0;
  double attention = 0, attention_kept = 0;  // means over samples
};

// A sample beside the full cache's, by number only.
struct SamplePair {
  int64_t full_sample = 0, sample = 0;
  int64_t cell = 0;
  double full_score = 0, score = 0;
  bool pictures = false;  // it is known what was kept of the pictures that it shows
};

struct AnswerText {
  std::string question, excerpt, prediction, references;  // references: "one | another"
  std::optional<double> score;
};

struct SampleText {
  std::string sample_id, facts;
  std::optional<double> score, answer_depth;
  std::vector<AnswerText> turns;
  std::vector<std::optional<double>> answer_kept;  // by layer
  // What the sample shows, null where it is not known; one object for all that see it alike.
  std::shared_ptr<const SightRow> sight;
  std::string patches;
};

class Queries {
 public:
  // `store` outlives the object.
  explicit Queries(ResultStore& store) : store_(store) {}

  Result<std::vector<BytesByKind>> Bytes();
  Result<std::vector<GridCount>> Grid();
  // Reads at most about `row_limit` rows of layers; `samples` gets how many samples of each cell
  // that were.
  Result<std::vector<HeadMean>> Heads(int64_t row_limit, int64_t& samples);
  Result<std::vector<DepthMean>> Depths(int64_t samples);
  Result<std::vector<ModalitySum>> Modalities();
  // Pairs every scored sample of a method with the full cache's on the same question.
  Result<std::vector<SamplePair>> Pairs();
  // `limit`: bytes of each text that are read. What is longer ends with a note of how much is left.
  Result<SampleText> Text(int64_t sample, size_t limit);

 private:
  ResultStore& store_;
  std::map<int64_t, std::shared_ptr<const SightRow>> sights_;  // that were read, by id
};

}  // namespace kvgauge::report
