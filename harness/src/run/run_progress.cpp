// SPDX-License-Identifier: Apache-2.0
#include "src/run/run_progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/clock.h"
#include "core/strings.h"
#include "src/cli/print.h"

namespace kvgauge {
namespace {

constexpr double kLiveSeconds = 0.2;
constexpr double kPlainSeconds = 15;

}  // namespace

std::string ClockTime(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  char text[64];
  if (whole >= 3600) {
    std::snprintf(text, sizeof(text), "%lld:%02lld:%02lld", static_cast<long long>(whole / 3600),
                  static_cast<long long>(whole / 60 % 60), static_cast<long long>(whole % 60));
  } else {
    std::snprintf(text, sizeof(text), "%lld:%02lld", static_cast<long long>(whole / 60),
                  static_cast<long long>(whole % 60));
  }
  return text;
}

double SecondsLeft(double spent_s, int64_t done, int64_t running, int64_t to_come) {
  const double half = static_cast<double>(running) / 2;
  return spent_s * (half + static_cast<double>(to_come)) / (static_cast<double>(done) + half);
}

int64_t ResidentBytes() {
  long long total = 0, resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%lld %lld", &total, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * sysconf(_SC_PAGESIZE);
}

RunProgress::RunProgress(bool quiet, RunCounters* counters)
    : quiet_(quiet), live_(!quiet && isatty(STDERR_FILENO) == 1), counters_(counters) {}

void RunProgress::PlanRun(std::vector<Work> groups) {
  const std::lock_guard lock(mutex_);
  work_ = std::move(groups);
}

std::string RunProgress::RunEta(double group_left_s) const {
  if (group_ >= work_.size()) return "";  // the last group's end is the run's
  const double spent_s = run_s_ + NowSeconds() - start_s_;
  const double cells = static_cast<double>(run_cells_ + cells_done_);
  double left_s = group_left_s;
  bool open = false;
  for (size_t i = group_; i < work_.size(); ++i) {
    open = open || work_[i].cells < 0;
    const double rate_s = work_[i].rate_s > 0 ? work_[i].rate_s : spent_s / cells;
    left_s += rate_s * static_cast<double>(std::max<int64_t>(work_[i].cells, 0));
  }
  return StrCat(ClockTime(left_s), open ? "+" : "");
}

void RunProgress::Begin(size_t number, size_t of, const std::string& name,
                        const std::vector<std::string>& rows, int64_t samples) {
  group_ = number;
  head_ = StrCat("[", number, "/", of, "] ", name);
  samples_ = samples;
  cells_each_ = std::ssize(rows);
  skipped_ = begun_ = cells_begun_ = cells_done_ = failed_ = 0;
  full_ = others_ = {};
  start_s_ = shown_s_ = NowSeconds();
  open_ = true;
  if (quiet_) return;
  if (!live_) {
    std::fputs(StrCat(head_, ": ", Counted(std::ssize(rows), "row"),
                      samples < 0 ? "" : StrCat(", ", Counted(samples, "sample")), "\n")
                   .c_str(),
               stderr);
  } else {
    Show(false);
  }
}

void RunProgress::BeginGroup(size_t number, size_t of, const std::string& name,
                             const std::vector<std::string>& rows, int64_t samples, double scale,
                             int64_t draws) {
  const std::lock_guard lock(mutex_);
  scale_ = scale;
  measures_ = false;
  Begin(number, of, name, rows, samples);
  cells_each_ *= draws;
}

void RunProgress::BeginMeasurements(size_t number, size_t of, const std::string& name,
                                    const std::vector<std::string>& rows) {
  const std::lock_guard lock(mutex_);
  measures_ = true;
  Begin(number, of, name, rows, -1);
}

void RunProgress::EndMeasurement(int64_t done, int64_t planned, bool failed) {
  const std::lock_guard lock(mutex_);
  cells_done_ = done;
  samples_ = planned;
  failed_ += failed;
  ShowWhenDue();
}

void RunProgress::SetSamples(int64_t samples) {
  const std::lock_guard lock(mutex_);
  samples_ = samples;
}

void RunProgress::SkipSample() {
  const std::lock_guard lock(mutex_);
  ++skipped_;
  if (counters_ != nullptr) ++counters_->samples_skipped;
  ShowWhenDue();
}

void RunProgress::BeginSample(int64_t cells) {
  const std::lock_guard lock(mutex_);
  ++begun_;
  cells_begun_ += cells;
  if (counters_ != nullptr) {
    ++counters_->samples_begun;
    counters_->cells_begun += cells;
  }
  ShowWhenDue();
}

void RunProgress::SkipCells(int64_t cells) {
  const std::lock_guard lock(mutex_);
  cells_begun_ += cells;
  if (counters_ != nullptr) counters_->cells_begun += cells;
}

void RunProgress::EndCell(size_t /*contender*/, bool full_cache, const double* score, bool failed) {
  const std::lock_guard lock(mutex_);
  ++cells_done_;
  failed_ += failed;
  if (score != nullptr) {
    Tally& tally = full_cache ? full_ : others_;
    ++tally.count;
    tally.sum += *score;
  }
  if (counters_ != nullptr) {
    ++counters_->cells_done;
    counters_->cells_failed += failed;
    if (score != nullptr) {
      ++(full_cache ? counters_->full_scores : counters_->other_scores);
      (full_cache ? counters_->full_score_sum : counters_->other_score_sum) += scale_ * *score;
    }
  }
  ShowWhenDue();
}

void RunProgress::ShowWhenDue() {
  if (quiet_ || !open_) return;
  const double now_s = NowSeconds();
  if (now_s - shown_s_ < (live_ ? kLiveSeconds : kPlainSeconds)) return;
  shown_s_ = now_s;
  Show(false);
}

// How many of how many, how fast, and until when.
void RunProgress::AddCells(bool last, double rate, std::vector<LinePart>& parts) const {
  const int64_t done = measures_ ? cells_done_ : skipped_ + begun_;
  const std::string of = samples_ >= 0 ? StrCat("/", samples_) : "";
  const bool one = samples_ < 0 ? done == 1 : samples_ == 1;
  parts.push_back({StrCat(done, of, measures_ ? " measurement" : " sample", one ? "" : "s"), 9});
  if (!measures_) parts.push_back({Counted(cells_done_, "cell"), 4});
  if (skipped_ > 0) parts.push_back({Counted(skipped_, "sample") + " recorded before", 2});
  if (rate > 0) parts.push_back({StrCat(Fixed(rate, rate < 10 ? 2 : 0), "/s"), 3});
  if (last || rate <= 0 || samples_ < 0) return;
  const int64_t to_come = std::max<int64_t>(0, samples_ - done);
  const int64_t running = measures_ ? 0 : std::max<int64_t>(0, cells_begun_ - cells_done_);
  const double left_s = SecondsLeft(NowSeconds() - start_s_, cells_done_, running,
                                    cells_in_all_ >= 0 ? cells_in_all_ - cells_begun_
                                    : measures_        ? to_come
                                                       : to_come * cells_each_);
  parts.push_back({StrCat("ETA ", ClockTime(left_s)), 8});
  const std::string run = RunEta(left_s);
  if (!run.empty()) parts.push_back({StrCat("run ", run), 7});
}

std::vector<LinePart> RunProgress::Parts(bool last) const {
  const double spent_s = NowSeconds() - start_s_;
  const double rate = spent_s > 0 ? static_cast<double>(cells_done_) / spent_s : 0;
  std::vector<LinePart> parts = {{head_, 10}};
  AddCells(last, rate, parts);
  if (last) parts.push_back({ClockTime(spent_s), 8});
  const auto mean = [&](const Tally& tally) {
    return Fixed(scale_ * tally.sum / static_cast<double>(tally.count), 1);
  };
  if (full_.count > 0) parts.push_back({StrCat("full ", mean(full_)), 6});
  if (others_.count > 0) parts.push_back({StrCat("others ", mean(others_)), 5});
  if (failed_ > 0) parts.push_back({StrCat(failed_, " failed"), 9});
  if (!follows_) parts.push_back({HumanBytes(ResidentBytes()), 1});
  return parts;
}

void RunProgress::Show(bool last) {
  std::string line;
  if (live_) {
    // A line that reaches the last column may break there.
    const size_t columns = TerminalColumns(STDERR_FILENO) - 1;
    line = FitLine(Parts(last), columns);
    const size_t width = TextWidth(line);
    const size_t covered = std::min(width_, columns);
    if (width < covered) line.append(covered - width, ' ');
    width_ = last ? 0 : width;
    line = "\r" + line + (last ? "\n" : "");
  } else {
    line = FitLine(Parts(last), std::string::npos) + "\n";
  }
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

void RunProgress::EndGroup() {
  const std::lock_guard lock(mutex_);
  if (!quiet_ && open_) Show(true);
  open_ = false;
  run_cells_ += cells_done_;
  run_s_ += NowSeconds() - start_s_;
}

void RunProgress::Follow(const std::string& head, const RunCounters& counters, int64_t samples,
                         int64_t cells, bool last) {
  const std::lock_guard lock(mutex_);
  if (!follows_) {
    follows_ = open_ = true;
    head_ = head;
    scale_ = 1;
    start_s_ = shown_s_ = NowSeconds();
  }
  samples_ = samples;
  skipped_ = counters.samples_skipped;
  begun_ = counters.samples_begun;
  cells_begun_ = counters.cells_begun;
  cells_done_ = counters.cells_done;
  failed_ = counters.cells_failed;
  full_ = {counters.full_scores, counters.full_score_sum};
  others_ = {counters.other_scores, counters.other_score_sum};
  cells_in_all_ = cells < 0 ? -1 : std::max<int64_t>(cells, cells_begun_);
  if (!last) return ShowWhenDue();
  if (!quiet_ && open_) Show(true);
  open_ = false;
}

void RunProgress::Note(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (live_ && open_ && width_ > 0) std::fputs("\n", stderr);
  width_ = 0;
  std::fputs((text + "\n").c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace kvgauge
