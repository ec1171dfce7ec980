// SPDX-License-Identifier: Apache-2.0
// What every generator needs: streams, seeded draws, lists in parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "datasets/task.h"

namespace kvgauge {

// Sample i of `total`; `make` must be a pure function of i. `faults`: of data that were left out.
std::unique_ptr<SampleStream> MakeStream(int64_t total, const TaskOptions& options,
                                         std::function<Result<Sample>(int64_t index)> make,
                                         std::vector<std::string> faults = {});

ParamSpec TextParam(std::string name, std::string default_value, std::string help);
// "1000,2000": what parameters have instead of lists. `owner` and `name` begin the messages.
Result<std::vector<int64_t>> ParseInts(const Params& params, std::string_view name,
                                       std::string_view owner, int64_t least, int64_t most);
struct Percent {
  double value = 0;
  std::string text;  // as given, for facts and ids
};
Result<std::vector<Percent>> ParsePercents(const Params& params, std::string_view name,
                                           std::string_view owner);
// "fill", which is an error where "lengths" names none.
Result<bool> ReadFill(const Params& params, std::string_view owner);
// The task file's "max_new_tokens", or `otherwise`.
int64_t NewTokens(const Json& task, int64_t otherwise);

// A generator of its own for one purpose of sample `index`.
enum class Draw : uint64_t { kFiller, kFacts, kPlaces, kQuestion, kTail };
Rng RngFor(uint64_t seed, int64_t index, Draw purpose);

int64_t Between(Rng& rng, int64_t least, int64_t most);  // both ends included
std::string Uuid(Rng& rng);                              // version 4
// `count` different numbers below `bound`, in drawn order. Precondition: count <= bound.
std::vector<int64_t> DrawDistinct(Rng& rng, int64_t bound, int64_t count);
template <class T>
void Shuffle(std::vector<T>& values, Rng& rng) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[rng.NextBelow(i)]);
}

// Every "{name}" by its value. Values are not searched again.
std::string FillIn(std::string_view text,
                   const std::vector<std::pair<std::string_view, std::string_view>>& values);

Mark MarkAt(MarkKind kind, size_t begin, size_t size);

}  // namespace kvgauge
