// SPDX-License-Identifier: Apache-2.0
#include "src/run/text_windows.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/sha256.h"
#include "core/strings.h"

namespace kvgauge {

TextProtocol TextProtocol::From(const Params& params) {
  TextProtocol protocol;
  const std::string& name = params.Text("protocol");
  protocol.kind = name == "sliding"     ? Kind::kSliding
                  : name == "streaming" ? Kind::kStreaming
                                        : Kind::kBlocks;
  protocol.window = params.Int("window");
  protocol.stride = params.Int("stride");
  protocol.max_tokens = params.Int("max_tokens");
  return protocol;
}

std::vector<TextWindow> CutWindows(const TextProtocol& protocol, int64_t tokens) {
  if (protocol.max_tokens > 0) tokens = std::min(tokens, protocol.max_tokens);
  std::vector<TextWindow> windows;
  if (protocol.kind == TextProtocol::Kind::kStreaming) {
    if (tokens > 1) windows.push_back({0, tokens, tokens - 1});
    return windows;
  }
  const bool sliding = protocol.kind == TextProtocol::Kind::kSliding;
  const int64_t step = sliding ? protocol.stride : protocol.window;
  // The first token of a text has nothing before it.
  const int64_t counted = std::min(step, protocol.window - 1);
  for (int64_t begin = 0; begin + protocol.window <= tokens; begin += step) {
    windows.push_back({begin, begin + protocol.window, counted});
  }
  return windows;
}

Result<std::optional<Sample>> WindowStream::Next() {
  while (next_ == windows_.size()) {
    KVG_ASSIGN(text_, texts_.Next());
    if (!text_) return std::optional<Sample>();
    KVG_ASSIGN(ids_, tokenizer_.Encode(text_->context, {.parse_special = false}));
    windows_ = CutWindows(protocol_, std::ssize(ids_));
    next_ = 0;
  }
  const int64_t number = static_cast<int64_t>(next_++);
  Sample sample;
  sample.id = sample.group = StrCat(text_->id, "/", number);
  sample.chat_template = false;
  sample.language = text_->language;
  sample.length = std::ssize(tokens());
  sample.facts = text_->facts;
  sample.facts.emplace_back("first_token", StrCat(window().begin));
  sample.questions.push_back({.max_new_tokens = window().counted});
  Sha256 sha;
  const int64_t counted = window().counted;
  sha.Update(tokens().data(), tokens().size_bytes());
  sha.Update(&counted, sizeof(counted));
  sample.hash = sha.Finish();
  return std::optional<Sample>(std::move(sample));
}

std::span<const int32_t> WindowStream::tokens() const {
  const TextWindow& w = window();
  return std::span(ids_).subspan(static_cast<size_t>(w.begin),
                                 static_cast<size_t>(w.end - w.begin));
}

EngineSample FeedWindow(std::string id, std::span<const int32_t> ids, int64_t counted,
                        CompressAt compress_at) {
  const int64_t given = std::ssize(ids) - counted;
  KVG_CHECK(counted >= 1 && given >= 1, "something is given and something counts");
  EngineSample sample;
  sample.id = std::move(id);
  EngineTurn turn;
  // With one token given the cache holds nothing that could be compressed.
  const int64_t context = std::max<int64_t>(given - 1, 1);
  sample.context.assign(ids.begin(), ids.begin() + context);
  int64_t fed = context;
  if (compress_at == CompressAt::kContext && given > context) {
    turn.ids.assign(ids.begin() + context, ids.begin() + given);
    fed = given;
  }
  turn.forced.assign(ids.begin() + fed, ids.end());
  turn.max_new_tokens = std::ssize(turn.forced);
  sample.turns.push_back(std::move(turn));
  return sample;
}

}  // namespace kvgauge
