// SPDX-License-Identifier: Apache-2.0
// How a running text is cut into windows whose perplexity is taken through the cache. What a single
// forward pass says of a text never looks into the cache: here a window's counted tokens are fed
// one by one, after what stands before them was prefilled and compressed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/params.h"
#include "core/result.h"
#include "datasets/task.h"
#include "runner/engine.h"
#include "runner/tokenizer.h"

namespace kvgauge {

struct TextProtocol {
  enum class Kind {
    kBlocks,     // disjoint windows, each token by token; the tail is dropped
    kSliding,    // windows `stride` apart; all but the last `stride` tokens of each are prefilled
    kStreaming,  // the whole text, token by token
  };
  Kind kind = Kind::kBlocks;
  int64_t window = 0, stride = 0;
  int64_t max_tokens = 0;  // of each text; 0: all

  // Reads the params of the source "running_text".
  static TextProtocol From(const Params& params);
  // Whether there is a prompt to compress; otherwise only what acts while decoding can do anything.
  bool has_prompt() const { return kind == Kind::kSliding && window - stride >= 2; }
};

// Tokens [begin, end) of a text; the last `counted` of them are scored, those before are given.
struct TextWindow {
  int64_t begin = 0, end = 0, counted = 0;
};
std::vector<TextWindow> CutWindows(const TextProtocol& protocol, int64_t tokens);

// Every window of every text of a stream, each a sample without a context's text. A text is encoded
// as a whole, so that what begins a text stands there once.
class WindowStream {
 public:
  // Both outlive it.
  WindowStream(SampleStream& texts, const Tokenizer& tokenizer, const TextProtocol& protocol)
      : texts_(texts), tokenizer_(tokenizer), protocol_(protocol) {}

  Result<std::optional<Sample>> Next();
  // The window of the sample that Next gave last.
  const TextWindow& window() const { return windows_[next_ - 1]; }
  std::span<const int32_t> tokens() const;

 private:
  SampleStream& texts_;
  const Tokenizer& tokenizer_;
  const TextProtocol protocol_;
  std::optional<Sample> text_;
  std::vector<int32_t> ids_;
  std::vector<TextWindow> windows_;
  size_t next_ = 0;
};

// What the engine is fed: the first counted token is already predicted by the compressed cache, so
// the token before it is fed after compression. Precondition: counted < ids.size().
EngineSample FeedWindow(std::string id, std::span<const int32_t> ids, int64_t counted,
                        CompressAt compress_at);

}  // namespace kvgauge
