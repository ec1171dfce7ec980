// SPDX-License-Identifier: Apache-2.0
#include "runner/reuse_texts.h"

#include <algorithm>
#include <memory>

#include "core/strings.h"

namespace kvgauge {
namespace {

int64_t TokensBehind(const LinkedReuse& stage, int64_t texts) {
  int64_t tokens = 0;
  for (int64_t text = 0; text < texts; ++text) tokens += std::ssize(stage.Behind(text, texts));
  return tokens;
}

}  // namespace

std::vector<int64_t> TextEdges(const Reuse& stage, int64_t prompt_tokens, int64_t context,
                               std::span<const int64_t> passages) {
  if (stage.texts() == ReusedTexts::kPrefixes) return {};
  // The last row is always read: it gives the answer's first token.
  const int64_t chunk = stage.chunk_tokens(), last = prompt_tokens - 1;
  const auto divide = [&](int64_t end) {
    std::vector<int64_t> edges;
    if (end <= 0) return edges;
    edges.push_back(0);
    const auto add = [&](int64_t at) {
      if (at > edges.back() && at < end) edges.push_back(at);
    };
    for (const int64_t at : passages) add(at);
    if (passages.empty()) {
      for (int64_t at = chunk; at < end; at += chunk) add(at);
    }
    edges.push_back(end);
    return edges;
  };
  if (context <= 0) return divide(last / chunk * chunk);
  if (const auto* linked = dynamic_cast<const LinkedReuse*>(&stage); linked && context > last) {
    std::vector<int64_t> edges = divide(prompt_tokens);
    const int64_t texts = std::ssize(edges) - 1;
    const bool links = texts > 1 && texts <= linked->most_texts();
    if (links && !linked->Behind(texts - 1, texts).empty()) return edges;
  }
  return divide(std::min(context, last));
}

Status CheckLinks(std::string_view owner, const Reuse& stage, int64_t texts, int64_t vocab_size) {
  const auto* linked = dynamic_cast<const LinkedReuse*>(&stage);
  if (linked == nullptr) return {};
  if (linked->largest_id() >= vocab_size) {
    return BadInput(StrCat(owner, " puts tokens up to id ", linked->largest_id(),
                           " between texts, and the model's ids end at ", vocab_size - 1,
                           "; expected a checkpoint that was trained with such tokens"));
  }
  if (texts > linked->most_texts()) {
    return BadInput(StrCat(owner, " has tokens for ", linked->most_texts() - 1,
                           " chunks behind the prompt's beginning, and the prompt divides into ",
                           texts - 1, "; expected fewer passages or a larger reuse.chunk"));
  }
  return {};
}

int64_t LinkTokens(const StageChoice& reuse, int64_t prompt_tokens, int64_t context,
                   std::span<const int64_t> passages) {
  const std::unique_ptr<Stage> stage = MakeStage(reuse);
  const auto* linked = dynamic_cast<const LinkedReuse*>(stage.get());
  if (linked == nullptr) return 0;
  const int64_t texts = std::ssize(TextEdges(*linked, prompt_tokens, context, passages)) - 1;
  return texts < 2 || texts > linked->most_texts() ? 0 : TokensBehind(*linked, texts);
}

std::vector<int32_t> LinkedIds(const LinkedReuse& stage, std::span<const int32_t> ids,
                               std::span<const int64_t> edges) {
  std::vector<int32_t> linked;
  const auto append = [&](int64_t begin, int64_t end) {
    linked.insert(linked.end(), ids.begin() + begin, ids.begin() + end);
  };
  const int64_t texts = std::ssize(edges) - 1;
  for (int64_t text = 0; text < texts; ++text) {
    const auto at = static_cast<size_t>(text);
    append(edges[at], edges[at + 1]);
    const std::vector<int32_t> behind = stage.Behind(text, texts);
    linked.insert(linked.end(), behind.begin(), behind.end());
  }
  append(edges.back(), std::ssize(ids));
  return linked;
}

std::vector<int32_t> IdsRead(const Method& method, std::span<const int32_t> ids, int64_t context,
                             std::span<const int64_t> passages) {
  const int64_t tokens = std::ssize(ids);
  if (!method.reuse || LinkTokens(*method.reuse, tokens, context, passages) == 0) {
    return {ids.begin(), ids.end()};
  }
  const std::unique_ptr<Stage> stage = MakeStage(*method.reuse);
  const auto& linked = static_cast<const LinkedReuse&>(*stage);
  return LinkedIds(linked, ids, TextEdges(linked, tokens, context, passages));
}

int64_t MostLinkTokens(const Method& method) {
  if (!method.reuse) return 0;
  const std::unique_ptr<Stage> stage = MakeStage(*method.reuse);
  const auto* linked = dynamic_cast<const LinkedReuse*>(stage.get());
  return linked == nullptr ? 0 : TokensBehind(*linked, linked->most_texts());
}

}  // namespace kvgauge
