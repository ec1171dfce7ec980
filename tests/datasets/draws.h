// SPDX-License-Identifier: Apache-2.0
// What tests of generators share: three tokenizers that anyone can follow, and samples of a source.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/strings.h"
#include "datasets/task.h"

namespace kvgauge::draws {

class CodecBase : public TextCodec {
 public:
  std::string Decode(std::span<const int32_t>, bool) const override { return ""; }
};

class PlainByteCodec final : public CodecBase {
 public:
  Result<std::vector<int32_t>> Encode(std::string_view text, bool) const override {
    return std::vector<int32_t>(text.begin(), text.end());
  }
};

class WordCodec final : public CodecBase {
 public:
  Result<std::vector<int32_t>> Encode(std::string_view text, bool) const override {
    std::vector<int32_t> ids;
    bool inside = false;
    for (const char c : text) {
      const bool space = std::isspace(static_cast<unsigned char>(c)) != 0;
      if (!space && !inside) ids.push_back(1);
      inside = !space;
    }
    return ids;
  }
};

// Greedy pieces of up to five bytes whose length hangs on what stands before: where a text is
// joined moves every later boundary up to the next line break, so counts of parts never add up.
class MergingCodec final : public CodecBase {
 public:
  Result<std::vector<int32_t>> Encode(std::string_view text, bool) const override {
    std::vector<int32_t> ids;
    uint32_t state = 7;
    for (size_t at = 0; at < text.size();) {
      const auto byte = static_cast<unsigned char>(text[at]);
      state = byte == '\n' ? 7 : state * 31 + byte;
      const size_t size = byte == '\n' ? 1 : 1 + (state >> 3) % 5;
      at += std::min(size, text.size() - at);
      ids.push_back(byte);
    }
    return ids;
  }
};

inline const PlainByteCodec kBytes;
inline const WordCodec kWords;
inline const MergingCodec kMerging;

inline Result<std::vector<Sample>> Draw(const std::string& source, const Json& given,
                                        const TextCodec* codec, int64_t limit = -1,
                                        uint64_t seed = 1, const std::string& data = "") {
  const SourceSpec* spec = FindSource(source);
  if (spec == nullptr) return BadInput("no source " + source);
  KVG_ASSIGN(const Params params, Params::Parse(spec->params, given, source));
  if (spec->check) KVG_TRY(spec->check(params, Json()));
  TaskOptions options;
  options.codec = codec;
  options.limit = limit;
  options.seed = seed;
  options.data_directory = data;
  KVG_ASSIGN(const std::unique_ptr<SampleStream> stream, spec->open(params, Json(), options));
  std::vector<Sample> samples;
  while (true) {
    KVG_ASSIGN(std::optional<Sample> sample, stream->Next());
    if (!sample) return samples;
    samples.push_back(std::move(*sample));
  }
}

inline std::vector<Sample> MustDraw(const std::string& source, const Json& given,
                                    const TextCodec* codec, int64_t limit = -1, uint64_t seed = 1) {
  auto samples = Draw(source, given, codec, limit, seed);
  EXPECT_TRUE(samples.ok()) << samples.error().message;
  return samples.ok() ? std::move(samples).value() : std::vector<Sample>();
}

inline std::string ErrorOf(const std::string& source, const Json& given,
                           const TextCodec* codec = &kWords, const std::string& data = "") {
  const auto samples = Draw(source, given, codec, -1, 1, data);
  return samples.ok() ? "" : samples.error().message;
}

inline std::string TextOf(const Sample& sample) {
  return sample.context + sample.questions[0].text + sample.questions[0].answer_prefix;
}

inline int64_t Tokens(const TextCodec& codec, const std::string& text) {
  return static_cast<int64_t>(codec.Encode(text, false)->size());
}

inline int64_t Count(std::string_view text, std::string_view word) {
  int64_t count = 0;
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

inline std::string Fact(const Sample& sample, const std::string& name) {
  for (const auto& [key, value] : sample.facts) {
    if (key == name) return value;
  }
  return "";
}

}  // namespace kvgauge::draws
