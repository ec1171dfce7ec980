// SPDX-License-Identifier: Apache-2.0
// Reading whole streams in tests, and a tokenizer that anyone can follow.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "core/strings.h"
#include "datasets/task.h"

namespace kvgauge {

// A token per byte, and one BOS in front (id 256, special).
class ByteCodec final : public TextCodec {
 public:
  Result<std::vector<int32_t>> Encode(std::string_view text, bool add_special) const override {
    std::vector<int32_t> ids;
    if (add_special) ids.push_back(256);
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
    return ids;
  }
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < 256) text += static_cast<char>(id);
      if (id == 256 && !skip_special) text += "<s>";
    }
    return RepairUtf8(text);
  }
};

inline Result<std::vector<Sample>> ReadAll(SampleStream& stream) {
  std::vector<Sample> samples;
  while (true) {
    KVG_ASSIGN(std::optional<Sample> sample, stream.Next());
    if (!sample) return samples;
    samples.push_back(*std::move(sample));
  }
}

inline Result<std::vector<Sample>> ReadAll(const Task& task, const TaskOptions& options) {
  KVG_ASSIGN(const std::unique_ptr<SampleStream> stream, OpenTask(task, options));
  return ReadAll(*stream);
}

inline std::string WholePrompt(const Sample& sample) {
  return sample.context + sample.questions.at(0).text;
}

}  // namespace kvgauge
