// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/unigram.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "src/text/tokenizer/byte_trie.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge {
namespace {

// How much worse than the worst token an unknown character is.
constexpr double kUnknownPenalty = 10.0;

class Unigram final : public PieceModel {
 public:
  Unigram(const Vocabulary& vocabulary, std::vector<double> scores, const UnigramOptions& options)
      : vocabulary_(vocabulary), scores_(std::move(scores)), options_(options) {
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      if (vocabulary.Has(id) && !vocabulary.TextOf(id).empty()) {
        trie_.Insert(vocabulary.TextOf(id), id);
      }
    }
    for (int byte = 0; byte < 256; ++byte) {
      byte_tokens_[byte] = vocabulary.Find(FallbackToken(static_cast<uint8_t>(byte))).value_or(-1);
    }
    unknown_score_ = std::numeric_limits<double>::infinity();
    for (const double score : scores_) unknown_score_ = std::min(unknown_score_, score);
    unknown_score_ -= kUnknownPenalty;
  }

  void Encode(std::string_view piece, std::vector<int32_t>& out) const override;
  std::vector<std::string> UnknownIn(std::string_view piece) const override;

 private:
  static constexpr int32_t kUnknown = -1;
  struct Found {
    size_t begin, end;
    int32_t id;  // or kUnknown
  };
  // The best path, from the last token to the first.
  std::vector<Found> BestPath(std::string_view piece) const;
  void EmitUnknown(std::string_view text, std::vector<int32_t>& out) const;

  const Vocabulary& vocabulary_;
  std::vector<double> scores_;
  UnigramOptions options_;
  ByteTrie trie_;
  std::array<int32_t, 256> byte_tokens_;
  double unknown_score_;
};

void Unigram::EmitUnknown(std::string_view text, std::vector<int32_t>& out) const {
  const auto token = [&](char c) { return byte_tokens_[static_cast<uint8_t>(c)]; };
  if (const std::optional<int32_t> id = vocabulary_.Find(text)) {
    out.push_back(*id);  // the unknown token's own spelling
  } else if (options_.byte_fallback &&
             std::ranges::all_of(text, [&](char c) { return token(c) >= 0; })) {
    for (const char c : text) out.push_back(token(c));
  } else if (options_.unk_id >= 0) {
    out.push_back(options_.unk_id);
  }
}

std::vector<Unigram::Found> Unigram::BestPath(std::string_view piece) const {
  constexpr int32_t kUnreached = -2;
  struct Node {
    double score = 0;
    size_t begin = 0;
    int32_t id = kUnreached;
  };
  std::vector<Node> best(piece.size() + 1);
  const auto offer = [&](size_t begin, size_t end, int32_t id, double score) {
    Node& node = best[end];
    if (node.id == kUnreached || score > node.score) node = {score, begin, id};
  };
  for (size_t at = 0; at < piece.size();) {
    const size_t width = Utf8Width(piece[at]);
    const double here = best[at].score;
    bool has_single = false;
    int32_t node = 0;
    for (size_t i = at; i < piece.size(); ++i) {
      node = trie_.Step(node, static_cast<uint8_t>(piece[i]));
      if (node == ByteTrie::kNone) break;
      const int32_t id = trie_.ValueAt(node);
      if (id == ByteTrie::kNone) continue;
      offer(at, i + 1, id, here + scores_[id]);
      has_single |= i + 1 == at + width;
    }
    if (!has_single) offer(at, at + width, kUnknown, here + unknown_score_);
    at += width;
  }
  // Backwards; neighbouring unknown characters count as one.
  std::vector<Found> path;
  for (size_t end = piece.size(); end > 0; end = best[end].begin) {
    const Node& node = best[end];
    const bool unknown = node.id == kUnknown || node.id == options_.unk_id;
    const int32_t id = unknown ? kUnknown : node.id;
    if (unknown && !path.empty() && path.back().id == kUnknown) {
      path.back().begin = node.begin;
    } else {
      path.push_back({node.begin, end, id});
    }
  }
  return path;
}

std::vector<std::string> Unigram::UnknownIn(std::string_view piece) const {
  const std::vector<Found> path = BestPath(piece);
  std::vector<std::string> texts;
  for (size_t i = path.size(); i-- > 0;) {
    if (path[i].id != kUnknown) continue;
    const std::string_view text = piece.substr(path[i].begin, path[i].end - path[i].begin);
    std::vector<int32_t> ids;
    EmitUnknown(text, ids);
    if (ids.size() == 1 && ids[0] == options_.unk_id) texts.emplace_back(text);
  }
  return texts;
}

void Unigram::Encode(std::string_view piece, std::vector<int32_t>& out) const {
  const std::vector<Found> path = BestPath(piece);
  for (size_t i = path.size(); i-- > 0;) {
    if (path[i].id != kUnknown) {
      out.push_back(path[i].id);
    } else {
      EmitUnknown(piece.substr(path[i].begin, path[i].end - path[i].begin), out);
    }
  }
}

}  // namespace

std::unique_ptr<PieceModel> MakeUnigram(const Vocabulary& vocabulary, std::vector<double> scores,
                                        const UnigramOptions& options) {
  return std::make_unique<Unigram>(vocabulary, std::move(scores), options);
}

}  // namespace kvgauge
