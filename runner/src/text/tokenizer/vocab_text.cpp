// SPDX-License-Identifier: Apache-2.0
// vocab.txt of BERT: the same tokenizer that a tokenizer.json of its class describes.
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/text/tokenizer/json_fields.h"
#include "src/text/tokenizer/loaders.h"

namespace kvgauge {
namespace {

// Keys of tokenizer_config.json that only this class has.
struct BertRules {
  bool lower = true, part_chinese = true;
  Json strip_accents = nullptr;  // null: as `lower`
};

Result<BertRules> ReadBertRules(const std::string& path) {
  BertRules rules;
  if (!FileExists(path)) return rules;
  KVG_ASSIGN(const Json json, ReadJsonFile(path));
  KVG_ASSIGN(rules.lower, BoolField(json, "do_lower_case", true, path));
  KVG_ASSIGN(rules.part_chinese, BoolField(json, "tokenize_chinese_chars", true, path));
  if (Member(json, "strip_accents") != nullptr) {
    KVG_ASSIGN(rules.strip_accents, BoolField(json, "strip_accents", false, path));
  }
  return rules;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> LoadVocabText(const std::string& directory) {
  const std::string path = directory + "/vocab.txt";
  KVG_ASSIGN(const TokenizerConfig config, ReadTokenizerConfig(directory));
  const std::string& named = config.tokenizer_class;
  if (!named.empty() && named != "BertTokenizer" && named != "BertTokenizerFast") {
    return Unsupported(StrCat(path, ": tokenizer_class ", Quoted(named), " (", config.path,
                              ") is not known with such a file; known is BertTokenizer, and a "
                              "tokenizer.json would say all"));
  }
  KVG_ASSIGN(const BertRules rules, ReadBertRules(config.path));
  KVG_ASSIGN(const std::string text, ReadFile(path));
  Json vocab = Json::object();
  std::vector<std::string> lines = Split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].ends_with('\r')) lines[i].pop_back();
    const auto [place, fresh] = vocab.emplace(lines[i], i);
    if (!fresh) {
      return BadInput(StrCat(path, ": line ", i + 1, " repeats the token ", Quoted(lines[i]),
                             " of line ", place->get<size_t>() + 1));
    }
  }
  Json added = Json::array();
  for (const char* name : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    if (!vocab.contains(name)) {
      return BadInput(StrCat(path, ": has no line ", Quoted(name), ", which BERT's tokens have"));
    }
    added.push_back(
        {{"id", vocab[name]}, {"content", name}, {"special", true}, {"normalized", false}});
  }
  const Json root = {{"normalizer",
                      {{"type", "BertNormalizer"},
                       {"clean_text", true},
                       {"handle_chinese_chars", rules.part_chinese},
                       {"strip_accents", rules.strip_accents},
                       {"lowercase", rules.lower}}},
                     {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                     {"model",
                      {{"type", "WordPiece"},
                       {"unk_token", "[UNK]"},
                       {"continuing_subword_prefix", "##"},
                       {"max_input_chars_per_word", 100},
                       {"vocab", vocab}}},
                     {"added_tokens", added},
                     {"post_processor",
                      {{"type", "BertProcessing"},
                       {"sep", Json::array({"[SEP]", vocab["[SEP]"]})},
                       {"cls", Json::array({"[CLS]", vocab["[CLS]"]})}}},
                     {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}}};
  KVG_ASSIGN(std::string fingerprint,
             FingerprintFiles(directory, {"vocab.txt", "tokenizer_config.json",
                                          "special_tokens_map.json", "added_tokens.json"}));
  return MakeTokenizer(root, path, config, std::move(fingerprint));
}

}  // namespace kvgauge
