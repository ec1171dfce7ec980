// SPDX-License-Identifier: Apache-2.0
// vocab.json and merges.txt: the tokens of a byte-level vocabulary and the order of its merges.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "src/text/tokenizer/byte_level_class.h"
#include "src/text/tokenizer/loaders.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge {
namespace {

struct MergesFile {
  std::string path;
  std::vector<BpeMerge> merges;
  std::vector<size_t> lines;  // of each merge, from 1
};

// Both references leave out the first and the last line of some classes' files, whatever they hold.
Status CheckEndLines(const ByteLevelClass& cls, std::string_view text, const std::string& path) {
  if (!cls.drops_end_lines) return {};
  if (!text.starts_with("#version")) {
    const std::string_view first = text.substr(0, text.find('\n'));
    return BadInput(StrCat(path, ": line 1 is ", Quoted(first), "; a ", cls.name,
                           "'s file begins with '#version: 0.2'"));
  }
  if (!text.ends_with('\n')) {
    return BadInput(StrCat(path, ": the last line has no end, so the file is cut; a ", cls.name,
                           "'s file ends with a line break"));
  }
  return {};
}

Result<MergesFile> ReadMerges(const ByteLevelClass& cls, const std::string& path) {
  KVG_ASSIGN(const std::string text, ReadFile(path));
  if (const size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
    return BadInput(StrCat(path, ": not UTF-8 at byte ", bad));
  }
  KVG_TRY(CheckEndLines(cls, text, path));
  MergesFile file;
  file.path = path;
  size_t number = 0;
  for (std::string& line : Split(text, '\n')) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string::npos) {
      return BadInput(StrCat(path, ": line ", number, " is ", Quoted(line),
                             "; a merge is two tokens with a space between"));
    }
    file.merges.push_back({line.substr(0, space), line.substr(space + 1)});
    file.lines.push_back(number);
  }
  return file;
}

// Merges were learnt one upon the other: what a line joins is a byte, or what a line before made.
Status CheckMerges(const MergesFile& file, const Vocabulary& vocabulary) {
  std::unordered_map<std::string, size_t> made;  // token -> first line that makes it
  for (size_t i = 0; i < file.merges.size(); ++i) {
    made.emplace(file.merges[i].left + file.merges[i].right, file.lines[i]);
  }
  for (size_t i = 0; i < file.merges.size(); ++i) {
    const BpeMerge& merge = file.merges[i];
    const std::string where = StrCat(file.path, ": line ", file.lines[i]);
    for (const std::string& side : {merge.left, merge.right}) {
      if (Utf8Width(side[0]) == side.size() && AlphabetToBytes(side)) continue;
      const auto maker = made.find(side);
      if (maker != made.end() && maker->second < file.lines[i]) continue;
      return BadInput(
          StrCat(where, " joins ", Quoted(side), ", which ",
                 maker == made.end() ? "no line makes"
                                     : StrCat("line ", maker->second, " makes only later"),
                 "; merges stand in the order in which they were learnt, none left out"));
    }
    if (!vocabulary.Find(merge.left + merge.right)) {
      return BadInput(StrCat(where, " makes ", Quoted(merge.left + merge.right),
                             ", which vocab.json lacks; the two files do not belong together, or "
                             "one of them is cut"));
    }
  }
  return {};
}

// A byte without a token would vanish from the text, or become the unknown token, as the reference.
Status CheckBytes(const Vocabulary& vocabulary, const std::string& path) {
  for (int byte = 0; byte < 256; ++byte) {
    const bool in_utf8 = byte != 0xc0 && byte != 0xc1 && byte < 0xf5;
    std::string token;
    AppendUtf8(token, ByteToAlphabet(static_cast<uint8_t>(byte)));
    if (!in_utf8 || vocabulary.Find(token)) continue;
    return BadInput(StrCat(path, ": lacks ", Quoted(token), ", the token of byte ", byte,
                           "; a byte-level vocabulary has a token for every byte of UTF-8"));
  }
  return {};
}

// The files' hash. Ids depend on the class too, so it counts where these files do not hold it, and
// where ids once followed another class.
Result<std::string> Fingerprint(const std::string& directory, const FoundClass& cls) {
  KVG_ASSIGN(std::string files,
             FingerprintFiles(directory, {"vocab.json", "merges.txt", "tokenizer_config.json",
                                          "special_tokens_map.json", "added_tokens.json"}));
  if (!cls.from_config && cls.found->name == "GPT2Tokenizer") return files;
  Sha256 hash;
  hash.Update(files.data(), files.size());
  hash.Update(cls.found->name.data(), cls.found->name.size());
  return hash.Finish();
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> LoadVocabMerges(const std::string& directory) {
  const std::string vocab_path = directory + "/vocab.json";
  KVG_ASSIGN(TokenizerConfig config, ReadTokenizerConfig(directory));
  KVG_ASSIGN(const FoundClass found, FindByteLevelClass(directory, config));
  const ByteLevelClass& cls = *found.found;
  PipelineParts parts;
  KVG_ASSIGN(const Json vocab, ReadJsonFile(vocab_path));
  KVG_ASSIGN(parts.vocabulary, ParseVocabObject(vocab, vocab_path));
  KVG_TRY(CheckBytes(*parts.vocabulary, vocab_path));
  KVG_ASSIGN(const MergesFile file, ReadMerges(cls, directory + "/merges.txt"));
  KVG_TRY(CheckMerges(file, *parts.vocabulary));
  KVG_ASSIGN(parts.model, MakeBpe(*parts.vocabulary, file.merges, {.byte_level = true}, file.path));

  TakeSpecialDefaults(cls, config);
  KVG_TRY(AddConfigTokens(config, *parts.vocabulary, parts.added));
  KVG_TRY(SetByteLevelSteps(cls.pattern, cls.nfc, config.add_prefix_space.value_or(false), parts));
  KVG_TRY(FrameText(cls, config, parts));
  parts.decoder = Decoder::ByteLevel();
  parts.clean_up = config.clean_up;
  parts.kind = StrCat("byte-level BPE (vocab.json, merges.txt; ", cls.name, ")");
  const std::optional<int32_t> bos = IdOfToken(config.bos, *parts.vocabulary, parts.added);
  KVG_ASSIGN(std::string fingerprint, Fingerprint(directory, found));
  return PipelineTokenizer::Make(std::move(parts), bos, std::move(fingerprint));
}

}  // namespace kvgauge
