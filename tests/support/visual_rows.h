// SPDX-License-Identifier: Apache-2.0
// Rows of pictures made of numbers, and the numbers that they are.
#pragma once

#include <memory>
#include <vector>

#include "runner/engine.h"
#include "support/test_ops.h"

namespace kvgauge {

// Memory of the host, which outlives every test.
inline MemoryOps& HostMemory() {
  static const std::unique_ptr<Ops> ops = MakeHostOps("cpu", 1);
  return *ops->memory;
}

// One table of rows.
inline std::shared_ptr<const SampleVisuals> VisualsOf(const std::vector<float>& rows, int64_t width,
                                                      MemoryOps& memory = HostMemory()) {
  auto visuals = std::make_shared<SampleVisuals>();
  visuals->hidden_size = width;
  auto table = std::make_shared<const VisualRows>(memory, rows, width);
  const int64_t count = table->count();
  visuals->Append(std::move(table), 0, count);
  return visuals;
}

// The rows (0), or those of a layer of deepstack behind them.
inline std::vector<float> NumbersOf(const VisualRows& rows, size_t table = 0,
                                    MemoryOps& memory = HostMemory()) {
  std::vector<float> numbers(static_cast<size_t>(rows.count() * rows.width()));
  if (!numbers.empty()) {
    memory.Copy(rows.tables().at(table), View(numbers, {rows.count(), rows.width()}));
  }
  return numbers;
}
inline std::vector<float> NumbersOf(const SampleVisuals& visuals, size_t table = 0,
                                    MemoryOps& memory = HostMemory()) {
  std::vector<float> numbers;
  for (const SampleVisuals::Part& part : visuals.parts) {
    const std::vector<float> all = NumbersOf(*part.rows, table, memory);
    const int64_t width = part.rows->width();
    numbers.insert(numbers.end(), all.begin() + part.first * width,
                   all.begin() + (part.first + part.count) * width);
  }
  return numbers;
}

}  // namespace kvgauge
