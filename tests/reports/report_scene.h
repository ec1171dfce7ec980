// SPDX-License-Identifier: Apache-2.0
// A store as a run of the reference model would leave it, made of arithmetic: every family of
// methods, budgets, three groups of tasks, a needle grid, layers, latencies, a sweep, a method that
// did nothing, failures. Equal options give equal stores.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace kvgauge {

class ResultStore;

struct SceneOptions {
  int64_t methods = 11;  // besides the full cache; beyond the known ones they are numbered
  int64_t tasks = 4;     // at most 4
  int64_t repeats = 2;   // samples of each depth and length
  // The most different lengths of contexts, and depths of what is asked for; at least one and two.
  int64_t lengths = 4, depths = 10;
  int64_t layers = 6, kv_heads = 4;
  // Another task, whose samples show so many pictures each, all of them different; a third of the
  // samples are the frames of a video. 0: no such task.
  int64_t pictures = 0;
  bool sweep = true;
  bool latency = true;
  bool hostile = false;  // names and texts that want to be markup, and 1 MB in one line
  double damage = 0;     // probability of losing a sample that was right, of all methods
};

Status WriteScene(ResultStore& store, const SceneOptions& options = {});

}  // namespace kvgauge
