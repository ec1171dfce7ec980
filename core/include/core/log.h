// SPDX-License-Identifier: Apache-2.0
// Log lines for people. Libraries log through this and never print themselves; the program picks
// the sink and the level once, before it starts threads. Without a sink, warnings and errors go to
// standard error.
#pragma once

#include <functional>
#include <string_view>

namespace kvgauge {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

using LogSink = std::function<void(LogLevel, std::string_view)>;

void SetLogSink(LogSink sink);
void SetLogLevel(LogLevel least);
void Log(LogLevel level, std::string_view message);

inline void LogInfo(std::string_view message) { Log(LogLevel::kInfo, message); }
inline void LogWarning(std::string_view message) { Log(LogLevel::kWarning, message); }

}  // namespace kvgauge
