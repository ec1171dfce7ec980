// SPDX-License-Identifier: Apache-2.0
// What a paper published: tables of scores, each with the protocol that gave them, as a run that
// can be repeated. Packs lie in configs/papers, one file a paper; docs/reproductions.md describes
// them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"

namespace kvgauge {

// A column of a table: the score of one task, or the plain mean over some.
struct PaperColumn {
  std::string name;
  std::vector<std::string> tasks;  // names within the run
};

struct PaperRow {
  std::string label;  // as the paper names it
  std::string method;
  std::string budget;                         // "" of a method that takes none
  std::vector<std::string> overrides;         // "read.tokens=512", sorted
  std::vector<std::optional<double>> scores;  // of each column; none: not published
  std::string note;                           // how it departs from the paper's; "": not known to
};

struct PaperTable {
  std::string model;       // as the paper names it
  std::string shape;       // configs/models/SHAPE.json, which several checkpoints can have
  std::string checkpoint;  // which one it is, where that is certain; else ""
  std::string table;       // "Table 1", or the file that it stands in
  std::string page;        // "" where it is not known
  std::string read;        // where the numbers were read
  std::string question;    // "seen" or "unseen" by the method when it compresses
  std::string prompt;      // chat template or raw
  std::string details;     // window, samples, truncation, what the paper leaves open
  int decimals = 2;
  int64_t max_prompt_tokens = -1;  // -1: the model's own
  bool chat_template = true;
  std::vector<Json> tasks;  // as in a run file
  std::vector<PaperColumn> columns;
  std::vector<PaperRow> rows;
};

struct Paper {
  std::string id, title, paper;
  std::string without_numbers;  // why there are none; "": there are
  std::vector<PaperTable> tables;
};

// All that ship, by id.
Result<std::vector<Paper>> ReadPapers();
// By id, or the path of a pack's file. An unknown one is an error that names the nearest.
Result<Paper> ReadPaper(const std::string& name);

struct PaperRun {
  std::string model;  // a checkpoint; "": the shape of the table's model
  std::string weights = "file", dtype = "auto";
};
// The model's name in the results.
std::string ModelNameOf(const PaperTable& table, const PaperRun& run);
// The run file that repeats the table `index` of a paper. With random weights, a model without a
// tokenizer takes that of the shipped reference model.
Result<Json> RunOfTable(const Paper& paper, size_t index, const PaperRun& run);

}  // namespace kvgauge
