// SPDX-License-Identifier: Apache-2.0
// The commands that read what was run. They open stores for reading only and never touch a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "reports/gate.h"

namespace kvgauge {

// How intervals and verdicts are computed.
struct StatisticsFlags {
  double alpha = 0.05;
  double margin = 0.01;
  uint64_t seed = 0;
  int64_t resamples = 2000;
};

struct LeaderboardFlags {
  std::vector<std::string> stores;
  std::string by = "task";
  std::string sort;
  std::vector<std::string> filters;
  std::vector<std::string> columns;
  std::vector<std::string> split;    // facts of samples; empty: what each task reports by
  std::vector<std::string> foreign;  // files of `kvgauge import`, shown below
  std::string format = "table";
  StatisticsFlags statistics;
  bool across_models = false;  // one table for the rows of all models
  bool all = false;            // also rows without a rank
  bool json = false;
};

struct GateFlags {
  std::string baseline, candidate;
  std::string margins;          // "": the shipped ones
  std::string junit, markdown;  // files to write; "": none
  GateScope scope;
  // Instead of what the file of margins says.
  std::optional<double> alpha, accuracy_margin;
  std::optional<uint64_t> seed;
  std::optional<int64_t> resamples;
  bool strict = false;  // what is undecided fails
  bool all = false;     // also lines that are the same
  bool json = false;
};

struct MergeFlags {
  std::string out;
  std::vector<std::string> inputs;
  bool json = false;
};

struct CompareFlags {
  std::string a, b;                      // method@budget both, or databases both
  std::vector<std::string> stores;       // of methods
  std::string task, model, compress_at;  // beginnings of names, or a group of tasks; "": all
  std::string margins;                   // of databases; "": the shipped ones
  // Nothing: the defaults of CompareOptions; of databases what the file of margins says.
  std::optional<double> alpha, margin;
  std::optional<uint64_t> seed;
  std::optional<int64_t> resamples;
  bool json = false;
};

struct ShowFlags {
  std::string store;
  std::string cell;                      // a key's beginning, or method@budget
  std::string sample;                    // id; "": lists those of the cell
  std::string task, model, compress_at;  // where method@budget is not enough
  int64_t seed = -1;                     // likewise; -1: any
  std::string data_directory;            // of published files, to make the prompt again
  std::string tokenizer;                 // a model's directory, for tasks of a set length
  bool prompt = false;                   // the context whole
  bool json = false;
};

// `exit_code`: 0 pass, 1 worse, 2 cannot be compared, 3 undecided and strict. Errors are 2.
Status RunGate(const GateFlags& flags, int& exit_code);
Status RunMerge(const MergeFlags& flags);
Status RunCompare(const CompareFlags& flags);
Status RunShow(const ShowFlags& flags);
Status RunLeaderboard(const LeaderboardFlags& flags);

}  // namespace kvgauge
