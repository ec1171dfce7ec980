// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/result.h"
#include "src/cli/commands.h"

namespace kvgauge {

struct BenchLoadOptions {
  ModelFlags model;
  int repetitions = 5;
  bool json = false;
};

// How long a checkpoint takes to load with its fingerprint, beside reading its files, and in how
// much memory.
Status RunBenchLoad(const BenchLoadOptions& options);

}  // namespace kvgauge
