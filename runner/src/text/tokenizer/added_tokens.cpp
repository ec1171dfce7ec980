// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/added_tokens.h"

#include "core/check.h"
#include "src/text/tokenizer/regex.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge {

bool IsWordCharacter(std::string_view character) {
  if (HasClass(CodePointAt(character, 0).value, kLetter | kMark)) return true;
  static const Result<Regex> word =
      Regex::Compile(R"([\p{Alphabetic}\p{Nd}\p{Pc}\x{200c}\x{200d}])", "single_word");
  KVG_CHECK(word.ok(), "the built-in pattern compiles");
  std::vector<Span> matches;
  return word->FindAll(character, matches).ok() && !matches.empty();
}

namespace {

bool WordEndsAt(std::string_view text, size_t end) {
  if (end == 0) return false;
  const size_t width = CodePointBefore(text, end).width;
  return IsWordCharacter(text.substr(end - width, width));
}
bool WordBeginsAt(std::string_view text, size_t begin) {
  if (begin >= text.size()) return false;
  return IsWordCharacter(text.substr(begin, Utf8Width(text[begin])));
}

}  // namespace

void AddedTokenFinder::Add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return;
  trie_.Insert(pattern, static_cast<int32_t>(tokens_.size()));
  tokens_.push_back(token);
  begins_[static_cast<uint8_t>(pattern[0])] = true;
}

AddedTokenFinder::Match AddedTokenFinder::LongestAt(std::string_view text, size_t at) const {
  Match best{at, -1};
  int32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    node = trie_.Step(node, static_cast<uint8_t>(text[i]));
    if (node == ByteTrie::kNone) break;
    if (trie_.ValueAt(node) != ByteTrie::kNone) best = {i + 1, trie_.ValueAt(node)};
  }
  return best;
}

void AddedTokenFinder::Cut(std::string_view text, bool take_special,
                           std::vector<Segment>& out) const {
  size_t done = 0;  // where the text after the last token begins
  for (size_t at = 0; at < text.size();) {
    if (!begins_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    const Match match = LongestAt(text, at);
    if (match.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[match.token];
    size_t begin = at, end = match.end;
    // A match that is turned down still uses up its text.
    at = match.end;
    if (token.special && !take_special) continue;
    if (token.single_word && (WordEndsAt(text, begin) || WordBeginsAt(text, end))) continue;
    if (token.lstrip) {
      while (begin > done) {
        const CodePoint c = CodePointBefore(text, begin);
        if (!HasClass(c.value, kSpace)) break;
        begin -= c.width;
      }
    }
    if (token.rstrip) {
      while (end < text.size()) {
        const CodePoint c = CodePointAt(text, end);
        if (!HasClass(c.value, kSpace)) break;
        end += c.width;
      }
    }
    if (done < begin) out.push_back({done, begin, -1});
    out.push_back({begin, end, token.id});
    // A token within white space that the one before took along gives back what lies behind it, as
    // in the library that this follows.
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
}

}  // namespace kvgauge
