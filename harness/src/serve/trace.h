// SPDX-License-Identifier: Apache-2.0
// Traces of requests: when each arrives, how long its prompt and its answer are, and what of the
// prompt others have too. docs/formats/traces.md describes the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace kvgauge {

// Tokens of equal content: those of one number are equal in every request, from the first on. A
// prompt is a list of such runs.
struct TokenRun {
  uint64_t content = 0;
  int64_t tokens = 0;
  int64_t first = 0;  // where in the content it begins

  bool operator==(const TokenRun&) const = default;
};

struct TraceRequest {
  std::string id = {};
  double at_s = 0;            // arrival, from the beginning of the trace
  int64_t prompt_tokens = 0;  // a later turn of a conversation: what it adds
  int64_t answer_tokens = 0;  // at least 1
  // What stands at the beginning of the prompt and may be shared, together at most prompt_tokens;
  // the rest is the request's own.
  std::vector<TokenRun> prefix = {};
  // Turns of a conversation, in the order of the trace: each reads all prompts and answers before
  // it. -1: a request of its own.
  int64_t conversation = -1;
};

struct Trace {
  std::string name = {};  // for records
  std::vector<TraceRequest> requests = {};
  int64_t conversations = 0;
  int64_t left_out = 0;  // lines without tokens, which other formats have for failures
};

// The most that one request may ask for: larger numbers are refused as damage.
inline constexpr int64_t kMostTraceTokens = 10'000'000;
inline constexpr double kMostTraceSeconds = 1e10;  // of an arrival

// Reads a trace; the first line tells the format: JSON lines of this program or of Mooncake, or the
// CSV files of Azure's and BurstGPT's traces. `first`: at most so many requests; 0: all. Lines that
// are malformed, negative or not in order of time are errors that name file, line and value.
Result<Trace> ReadTrace(const std::string& path, int64_t first = 0);
// The same of a text; `origin` begins every message.
Result<Trace> ParseTrace(std::string_view text, const std::string& origin, int64_t first = 0);
// As a file of this program has it.
std::string WriteTrace(const Trace& trace);

enum class Arrivals {
  kTogether,  // all at the beginning
  kPoisson,   // independent, so many a second on average
  kBursts,    // so many a second on average, several at once: gamma with a shape below one
};
std::string_view NameOf(Arrivals arrivals);
Result<Arrivals> ParseArrivals(std::string_view text);

// A number that is drawn for each request: one of a list, or from a range.
struct LengthMix {
  std::vector<int64_t> choices = {};  // evenly; of two with `range` all between them
  bool range = false;

  // "64,128,512" or "64..512"; `flag` begins every message.
  static Result<LengthMix> Parse(const std::string& text, const std::string& flag);
  int64_t longest() const;
};

struct GeneratedTrace {
  Arrivals arrivals = Arrivals::kTogether;
  double per_second = 1;  // of all but kTogether
  double burstiness = 4;  // kBursts: squared coefficient of variation of the gaps, above 1
  int64_t requests = 32;
  LengthMix prompts, answers;
  int64_t shared_tokens = 0;  // at the beginning of every prompt, of one of `shared_groups`
  int64_t shared_groups = 1;
  int64_t turns = 1;  // of every conversation, `pause_s` after one another at the earliest
  double pause_s = 0;
  uint64_t seed = 1;
};
// Equal for equal options, on every machine.
Trace GenerateTrace(const GeneratedTrace& options);

}  // namespace kvgauge
