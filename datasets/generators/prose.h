// SPDX-License-Identifier: Apache-2.0
// Haystacks: sentences without end, generated or from a user's directory of text files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/rng.h"
#include "datasets/task.h"
#include "generators/length_control.h"

namespace kvgauge {

// What a source with a directory of texts needs below the data directory: nothing for prose (""),
// or for a path of the user's own, which opening looks for itself.
std::vector<std::string> TextDirectory(const std::string& directory);
// Where such a directory is: "" stays, as does an absolute path.
std::string TextDirectoryPath(const std::string& directory, const TaskOptions& options);

inline constexpr int64_t kProseSentences = 16384;

// A sentence of the closed English that generated prose draws from: no digits, no needle's words,
// ends with a full stop. Precondition: 0 <= id < kProseSentences.
std::string ProseSentence(int64_t id);

// Breaks text after ".", "!" and "?" that white space follows. What is still longer than 1,000
// bytes is broken also at other ends: stops of other scripts ("。"), stops with closing quotes or
// brackets, line breaks; and where it has none of them, every 200 bytes or less at white space, or
// between two characters. Every piece but the first keeps the white space before it; the pieces
// joined are the text.
std::vector<std::string> SplitSentences(std::string_view text);

class Haystack {
 public:
  // `directory` "": generated prose. Otherwise its *.txt files in byte order of their names, joined
  // and begun again at the end; none is an error that begins with `owner`.
  static Result<std::shared_ptr<Haystack>> Open(const std::string& directory,
                                                std::string_view owner);

  // The text of one sample. Prose is drawn from `rng`; files begin at sentence `start`, counted
  // round their end. The haystack must outlive the filler.
  Filler NewFiller(const TokenCounter* counter, Rng rng, int64_t start = 0);
  bool generated() const { return generated_; }
  int64_t sentences() const { return static_cast<int64_t>(pieces_.size()); }

 private:
  bool generated_ = true;
  std::vector<TextPiece> pieces_;
};

// The text with every run of white space as one blank, and where each of its words ends.
struct Words {
  std::string text;
  std::vector<size_t> ends;
};
Words SplitWords(std::string_view text);

}  // namespace kvgauge
