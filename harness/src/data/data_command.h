// SPDX-License-Identifier: Apache-2.0
// data generate: whole texts with their answers, for training and for looking at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct DataGenerateOptions {
  std::vector<std::string> tasks;  // names or files; they take turns
  std::string task_directory;      // "": the shipped ones
  std::string split = "train";     // "train" or "eval"
  std::string lengths;             // "128,256"; they take turns within each task
  std::string pictures;            // "4,16", of tasks with pictures
  std::string images;              // directory for the pictures, as PNG
  std::string model;               // a directory with a tokenizer; "": words, digits and signs
  int64_t questions = 0;           // of a text, at most; 0: drawn
  int64_t texts = 0, tokens = 0;   // ends after so many, the first limit that is met; 0: none
  int64_t first = 0;               // index of the first text
  uint64_t seed = 0;
  std::string out = "-";
  bool json = false;  // changes nothing: it is JSON lines in any case
};

// One JSON object a line: task, id, length, text, answers ([begin, end) in bytes of the text); with
// a tokenizer ids (without BOS and end signs) and id_answers ([begin, end) in ids). Of tasks with
// pictures: "<image>" in the text for each, images (files in `images`), and words (what each cell
// of a picture shows, row by row), and no ids. The same options give the same bytes.
Status RunDataGenerate(const DataGenerateOptions& options);

}  // namespace kvgauge
