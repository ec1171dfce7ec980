// SPDX-License-Identifier: Apache-2.0
#include "core/log.h"

#include <cstdio>
#include <mutex>
#include <utility>

namespace kvgauge {
namespace {

struct LogState {
  std::mutex mutex;
  LogSink sink;
  LogLevel least = LogLevel::kInfo;
};

LogState& State() {
  static LogState state;
  return state;
}

}  // namespace

void SetLogSink(LogSink sink) {
  LogState& state = State();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.sink = std::move(sink);
}

void SetLogLevel(LogLevel least) {
  LogState& state = State();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.least = least;
}

void Log(LogLevel level, std::string_view message) {
  LogState& state = State();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (level < state.least) return;
  if (state.sink) {
    state.sink(level, message);
  } else if (level >= LogLevel::kWarning) {
    std::fprintf(stderr, "%s: %.*s\n", level == LogLevel::kWarning ? "warning" : "error",
                 static_cast<int>(message.size()), message.data());
  }
}

}  // namespace kvgauge
