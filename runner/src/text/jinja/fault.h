// SPDX-License-Identifier: Apache-2.0
// How the template engine stops: an exception that never leaves this directory. Template::Parse and
// Template::Render turn it into an Error with the line.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace kvgauge::jinja {

enum class FaultKind {
  kSyntax,       // the text is no template
  kRuntime,      // Python would raise an exception here
  kRaised,       // the template's own raise_exception: the message is the template's
  kUnsupported,  // jinja2 knows it, this engine does not
  kRefused,      // files, attribute tricks, changes of lists and dicts: never done
  kLimit,        // steps, depth, memory or output
};

struct Fault {
  FaultKind kind = FaultKind::kRuntime;
  std::string message;
  int line = 0;  // 0: the line that is being run
};

[[noreturn]] inline void Fail(FaultKind kind, std::string message, int line = 0) {
  throw Fault{kind, std::move(message), line};
}
[[noreturn]] inline void FailRuntime(std::string message) {
  Fail(FaultKind::kRuntime, std::move(message));
}

// What one rendering may use.
struct Limits {
  // Nodes evaluated, and one for every 64 bytes of text that is made or looked through.
  int64_t steps = 50'000'000;
  int depth = 1000;  // expressions, statements and calls within each other
  int64_t memory_bytes = int64_t{1} << 29;
  int64_t output_bytes = int64_t{1} << 28;
};

// Counts what a rendering uses. One at a time on each thread: values charge the current one.
class Meter {
 public:
  explicit Meter(const Limits& limits) : limits_(limits), outer_(current) { current = this; }
  ~Meter() { current = outer_; }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  static Meter* Current() { return current; }
  // While it lives nothing is counted.
  class Pause {
   public:
    Pause() : meter_(current) { current = nullptr; }
    ~Pause() { current = meter_; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Meter* const meter_;
  };
  // Fails when so many bytes more would be too many. Without a meter everything is allowed.
  static void Room(int64_t bytes) {
    if (current != nullptr && current->live_ + bytes > current->limits_.memory_bytes) {
      current->FailMemory();
    }
  }
  static void Step(int64_t count = 1) {
    if (current != nullptr && (current->steps_ += count) > current->limits_.steps) {
      current->FailSteps();
    }
  }
  void Charge(int64_t bytes) {
    Room(bytes);
    live_ += bytes;
    Step(bytes / 64);
  }
  void Release(int64_t bytes) { live_ -= bytes; }
  int64_t live() const { return live_; }
  const Limits& limits() const { return limits_; }

 private:
  [[noreturn]] void FailMemory() const;
  [[noreturn]] void FailSteps() const;

  static thread_local Meter* current;
  const Limits limits_;
  Meter* const outer_;
  int64_t live_ = 0, steps_ = 0;
};

}  // namespace kvgauge::jinja
