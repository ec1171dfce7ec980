// SPDX-License-Identifier: Apache-2.0
// Traces that are drawn by a seed.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/rng.h"
#include "core/strings.h"
#include "src/serve/trace.h"

namespace kvgauge {
namespace {

// One stream of random numbers for each thing that is drawn: a longer trace begins like a shorter.
enum TraceStream : uint64_t { kGapStream = 0x7472616365, kPromptsStream, kAnswersStream, kSharing };

// Marsaglia and Tsang's method (ACM TOMS 26, 2000); below one with a power of a uniform number.
double DrawGamma(Rng& rng, double shape) {
  if (shape < 1) {
    const double u = 1 - rng.NextDouble();
    return DrawGamma(rng, shape + 1) * std::pow(u, 1 / shape);
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = rng.NextGaussian(), v = std::pow(1 + c * x, 3);
    const double u = 1 - rng.NextDouble();
    if (v > 0 && std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

int64_t DrawLength(Rng& rng, const LengthMix& mix) {
  if (!mix.range) return mix.choices[rng.NextBelow(mix.choices.size())];
  const auto width = static_cast<uint64_t>(mix.choices[1] - mix.choices[0] + 1);
  return mix.choices[0] + static_cast<int64_t>(rng.NextBelow(width));
}

double DrawGap(Rng& rng, const GeneratedTrace& options) {
  switch (options.arrivals) {
    case Arrivals::kTogether:
      return 0;
    case Arrivals::kPoisson:
      return -std::log(1 - rng.NextDouble()) / options.per_second;
    case Arrivals::kBursts:
      return DrawGamma(rng, 1 / options.burstiness) * options.burstiness / options.per_second;
  }
  return 0;
}

}  // namespace

std::string_view NameOf(Arrivals arrivals) {
  switch (arrivals) {
    case Arrivals::kTogether:
      return "together";
    case Arrivals::kPoisson:
      return "poisson";
    case Arrivals::kBursts:
      return "bursts";
  }
  return "";
}

Result<Arrivals> ParseArrivals(std::string_view text) {
  for (const Arrivals a : {Arrivals::kTogether, Arrivals::kPoisson, Arrivals::kBursts}) {
    if (text == NameOf(a)) return a;
  }
  return BadInput(
      StrCat("--arrivals: ", Quoted(text), " is not known; expected together, poisson or bursts"));
}

Result<LengthMix> LengthMix::Parse(const std::string& text, const std::string& flag) {
  const auto wrong = [&] {
    return BadInput(StrCat(flag, ": ", Quoted(text),
                           "; expected lengths such as 64,128,512, or a range such as 64..512, of "
                           "1 to ",
                           kMostTraceTokens, " tokens"));
  };
  LengthMix mix;
  const size_t dots = text.find("..");
  std::vector<std::string> parts = Split(text, ',');
  if (dots != std::string::npos) {
    mix.range = true;
    parts = {text.substr(0, dots), text.substr(dots + 2)};
  }
  for (const std::string& part : parts) {
    int64_t length = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), length);
    if (error != std::errc() || end != part.data() + part.size() || length < 1 ||
        length > kMostTraceTokens) {
      return wrong();
    }
    mix.choices.push_back(length);
  }
  if (mix.range && mix.choices[0] > mix.choices[1]) return wrong();
  return mix;
}

int64_t LengthMix::longest() const { return *std::max_element(choices.begin(), choices.end()); }

Trace GenerateTrace(const GeneratedTrace& options) {
  Rng gaps(options.seed, kGapStream), prompts(options.seed, kPromptsStream),
      answers(options.seed, kAnswersStream), shared(options.seed, kSharing);
  Trace trace;
  trace.name = StrCat(NameOf(options.arrivals), ", seed ", options.seed);
  double at_s = 0;
  for (int64_t i = 0; std::ssize(trace.requests) < options.requests; ++i) {
    at_s += DrawGap(gaps, options);
    const auto group = static_cast<uint64_t>(
        shared.NextBelow(static_cast<uint64_t>(std::max<int64_t>(options.shared_groups, 1))));
    const int64_t conversation = options.turns > 1 ? trace.conversations++ : -1;
    for (int64_t turn = 0; turn < options.turns; ++turn) {
      if (std::ssize(trace.requests) == options.requests) break;
      TraceRequest request = {.id = options.turns > 1 ? StrCat(i, ".", turn) : StrCat(i),
                              .at_s = at_s + static_cast<double>(turn) * options.pause_s,
                              .prompt_tokens = DrawLength(prompts, options.prompts),
                              .answer_tokens = DrawLength(answers, options.answers),
                              .conversation = conversation};
      if (options.shared_tokens > 0 && turn == 0) {
        request.prefix.push_back({group + 1, options.shared_tokens});
        request.prompt_tokens += options.shared_tokens;
      }
      trace.requests.push_back(std::move(request));
    }
  }
  std::stable_sort(trace.requests.begin(), trace.requests.end(),
                   [](const TraceRequest& a, const TraceRequest& b) { return a.at_s < b.at_s; });
  return trace;
}

}  // namespace kvgauge
