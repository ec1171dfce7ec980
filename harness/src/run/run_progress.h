// SPDX-License-Identifier: Apache-2.0
// What a run says while it goes on, on standard error: one live line a group on a terminal, never
// longer than that is wide, a plain line now and then elsewhere. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "src/run/progress_line.h"
#include "src/run/run_counters.h"

namespace kvgauge {

class RunProgress {
 public:
  // `quiet`: nothing but notes. `counters`, which outlive it, count as well what is told here.
  explicit RunProgress(bool quiet, RunCounters* counters = nullptr);

  // What all groups have to do, so that the end of the run can be told; without it only the end of
  // each group is.
  struct Work {
    int64_t cells = -1;  // to come; -1: not known
    double rate_s = 0;   // a cell took in a recorded run; 0: not known
  };
  void PlanRun(std::vector<Work> groups);
  // `rows`: names, the full cache first where it is there. `samples`: -1 when not known yet.
  // `scale`: scores are shown times this. `draws`: cells of a row on each sample.
  void BeginGroup(size_t number, size_t of, const std::string& name,
                  const std::vector<std::string>& rows, int64_t samples, double scale = 100,
                  int64_t draws = 1);
  void SetSamples(int64_t samples);
  // Measurements instead of samples: so many in all, once that is known.
  void BeginMeasurements(size_t number, size_t of, const std::string& name,
                         const std::vector<std::string>& rows);
  void EndMeasurement(int64_t done, int64_t planned, bool failed);
  // A sample was recorded for all rows already.
  void SkipSample();
  // A sample was handed to the engine, or will not be run; its cells end one by one.
  void BeginSample(int64_t cells);
  // So many more of a sample end than BeginSample tells.
  void SkipCells(int64_t cells);
  void EndCell(size_t contender, bool full_cache, const double* score, bool failed);
  void EndGroup();
  // Instead of all of the above, of a run of several workers: how far they are, and the samples and
  // cells to come of all groups when they began (-1: unknown). `last`: they have ended.
  void Follow(const std::string& head, const RunCounters& counters, int64_t samples, int64_t cells,
              bool last);
  // A line of its own.
  void Note(const std::string& text);

 private:
  void Begin(size_t number, size_t of, const std::string& name,
             const std::vector<std::string>& rows, int64_t samples);
  void ShowWhenDue();
  void Show(bool last);
  // "1:02:03", with a + where some group's size is not known; "" where nothing can be told.
  std::string RunEta(double group_left_s) const;
  std::vector<LinePart> Parts(bool last) const;
  void AddCells(bool last, double rate, std::vector<LinePart>& parts) const;

  struct Tally {
    int64_t count = 0;
    double sum = 0;
  };

  const bool quiet_;
  const bool live_;
  RunCounters* const counters_;
  std::mutex mutex_;
  std::vector<Work> work_;
  size_t group_ = 0;       // from 1
  int64_t run_cells_ = 0;  // done in the groups before
  double run_s_ = 0;       // that they took
  std::string head_;
  bool measures_ = false;  // times, one by one
  int64_t samples_ = -1, skipped_ = 0, begun_ = 0;
  int64_t cells_begun_ = 0, cells_done_ = 0, failed_ = 0;
  int64_t cells_each_ = 0;  // of a sample
  bool follows_ = false;
  int64_t cells_in_all_ = -1;  // where it follows; -1: not known
  Tally full_, others_;
  double scale_ = 100;
  double start_s_ = 0, shown_s_ = 0;
  bool open_ = false;
  size_t width_ = 0;  // of the live line that is shown
};

// Time to go of `running` cells, taken as half done, and of those to come. Cells that run together
// end together: right after the first of them ended, the ended ones alone tell too slow a pace.
double SecondsLeft(double spent_s, int64_t done, int64_t running, int64_t to_come);
// "1:02", "1:02:03".
std::string ClockTime(double seconds);
// The memory of this process, 0 when unknown.
int64_t ResidentBytes();

}  // namespace kvgauge
