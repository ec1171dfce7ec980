// SPDX-License-Identifier: Apache-2.0
// From what the engine gives back to rows of the store, and the thread that scores and writes them
// aside, so that decoding never waits for a metric or the disk.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "datasets/metric.h"
#include "datasets/task.h"
#include "reports/store.h"
#include "runner/engine.h"
#include "runner/kv_cache.h"
#include "runner/tokenizer.h"
#include "src/run/sample_visuals.h"

namespace kvgauge {

// A sample on its way through the engine.
struct RunSample {
  int64_t position = 0;
  Sample sample;  // the context's text is given up once its tokens are made
  EngineSample tokens;
  VisualCounts visuals;
  Status shown = {};  // why its pictures could not be shown, once that was tried
  std::shared_ptr<const SightRow> sight;  // null until its pictures were seen
  int64_t pixel_bytes = 0;                // of its pictures, before the tower sees them
  // Rows of pictures that a stage took out before the prompts were read, and how many of them stood
  // before the place where the cache is compressed.
  bool reduced = false;
  int64_t unseen = 0, unseen_compressed = 0;
  double vision_s = 0;  // of the tower on all of its pictures, whoever they were shared with
  std::string excerpt;
  std::string facts;  // of the sample, as every cell of it records them
  std::vector<std::pair<int64_t, int64_t>> answer;  // token ranges in the context
};

std::string FactsJson(const Sample& sample);

// What a cache holds of the context, taken when a cell ends.
struct KeptLayer {
  std::vector<double> by_depth;  // LayerStatRow::kDepths shares, mean over heads
  double answer = 0;             // share of the answer's tokens, mean over heads
};
struct KeptEntries {
  std::vector<KeptLayer> layers;
  int64_t final_full_bytes = 0;  // the tokens at the end, uncompressed
  std::string patches = {};      // SampleRow::patches; "" where the sample shows nothing
};
// Tokens that the cell's cache holds and its sample does not have.
int64_t LinkTokensOf(const CellResult& result);
// `links`: as many as LinkTokensOf says.
KeptEntries FindKeptEntries(const KvCache& cache, const ModelShape& shape, const RunSample& sample,
                            int64_t links);

// What all cells of a group have in common. Everything outlives the cells.
struct GroupScoring {
  const Task* task = nullptr;
  const MetricSpec* metric = nullptr;  // null: answers are kept without a score
  const Tokenizer* tokenizer = nullptr;
  bool sampled = false;  // a cell is one draw of a sample's answer
};

struct FinishedCell {
  const GroupScoring* scoring = nullptr;
  std::shared_ptr<const RunSample> sample;
  int64_t cell = 0, run = 0;  // ids of the store
  size_t contender = 0;       // of the group, for the tally
  bool skipped = false;       // refused beforehand; the result's status says why
  CellResult result;
  std::vector<TurnResult> conclusions = {};  // one for each turn, where the sample has any
  KeptEntries kept;
};

// Decodes and scores the answers.
SampleRow MakeSampleRow(const FinishedCell& cell);

// Owns the store's writing side while it lives, in the order of Put. A cell is written with those
// that come within a second after it, as one transaction; the first ones of a run sooner.
class CellRecorder {
 public:
  // `on_row` sees every row that was written, on the recorder's thread.
  using OnRow = std::function<void(const FinishedCell&, const SampleRow&, WriteOutcome)>;
  CellRecorder(ResultStore& store, OnRow on_row);
  // Writes what is waiting.
  ~CellRecorder();
  CellRecorder(const CellRecorder&) = delete;
  CellRecorder& operator=(const CellRecorder&) = delete;

  // The error of an earlier write ends the run. Waits only where thousands of cells do.
  Status Put(FinishedCell cell);
  // Waits until everything is written.
  Status Flush();
  // For the store's other uses: nothing is written meanwhile.
  std::unique_lock<std::mutex> LockStore() { return std::unique_lock(store_mutex_); }
  // CPU seconds that scoring and writing took.
  double seconds();

 private:
  void Work();
  Status WriteBatch(const std::vector<FinishedCell>& cells);

  ResultStore& store_;
  OnRow on_row_;
  std::mutex store_mutex_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<FinishedCell> queue_;
  bool busy_ = false, closing_ = false;
  int flushing_ = 0;
  Status status_;
  double seconds_ = 0;
  std::thread thread_;
};

}  // namespace kvgauge
