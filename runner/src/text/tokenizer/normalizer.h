// SPDX-License-Identifier: Apache-2.0
// What happens to a stretch of text before it is cut into pieces.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"

namespace kvgauge {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // Fails when a pattern gives up or the text grows past all measure.
  virtual Status Apply(std::string& text) const = 0;
  // True when the step takes characters off the front, so that what is left no longer stands at
  // the beginning of the input.
  virtual bool CutsFront(std::string_view) const { return false; }
};

// NFC or NFD; with `compatibility` NFKC or NFKD.
std::unique_ptr<NormalizerStep> MakeUnicodeForm(bool compose, bool compatibility);

// Immutable and safe to share.
class Normalizer {
 public:
  // `json`: the value of "normalizer", null for none. An unknown step is an error with its name.
  static Result<Normalizer> Parse(const Json& json, const std::string& where);

  // `at_start` becomes false when the front is cut off.
  Status Apply(std::string& text, bool& at_start) const;

 private:
  Status Add(const Json& json, const std::string& where, int depth);

  std::vector<std::unique_ptr<NormalizerStep>> steps_;
};

}  // namespace kvgauge
