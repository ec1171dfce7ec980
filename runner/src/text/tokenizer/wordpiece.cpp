// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/wordpiece.h"

#include <optional>
#include <string_view>

#include "src/text/tokenizer/unicode.h"

namespace kvgauge {
namespace {

class WordPiece final : public PieceModel {
 public:
  WordPiece(const Vocabulary& vocabulary, const WordPieceOptions& options)
      : vocabulary_(vocabulary), options_(options) {}

  void Encode(std::string_view piece, std::vector<int32_t>& out) const override {
    const size_t before = out.size();
    if (IsShort(piece) && Cut(piece, out)) return;
    out.resize(before);
    out.push_back(options_.unk_id);
  }

 private:
  bool IsShort(std::string_view piece) const {
    int64_t characters = 0;
    for (size_t at = 0; at < piece.size(); at += Utf8Width(piece[at])) ++characters;
    return characters <= options_.most_characters;
  }

  bool Cut(std::string_view piece, std::vector<int32_t>& out) const {
    std::string token;
    for (size_t begin = 0; begin < piece.size();) {
      size_t end = piece.size();
      std::optional<int32_t> found;
      while (end > begin) {
        token = begin > 0 ? options_.continues : "";
        token += piece.substr(begin, end - begin);
        found = vocabulary_.Find(token);
        if (found) break;
        end -= CodePointBefore(piece, end).width;
      }
      if (!found) return false;
      out.push_back(*found);
      begin = end;
    }
    return true;
  }

  const Vocabulary& vocabulary_;
  WordPieceOptions options_;
};

}  // namespace

std::unique_ptr<PieceModel> MakeWordPiece(const Vocabulary& vocabulary,
                                          const WordPieceOptions& options) {
  return std::make_unique<WordPiece>(vocabulary, options);
}

}  // namespace kvgauge
