// SPDX-License-Identifier: Apache-2.0
// tokenizer.json of Hugging Face tokenizers.
#include <algorithm>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/text/tokenizer/json_fields.h"
#include "src/text/tokenizer/loaders.h"
#include "src/text/tokenizer/unigram.h"
#include "src/text/tokenizer/wordpiece.h"

namespace kvgauge {
namespace {

const Json& MemberOrNull(const Json& object, std::string_view key) {
  static const Json null;
  const Json* member = Member(object, key);
  return member != nullptr ? *member : null;
}

// "a b", split at the one space, or ["a", "b"].
Result<std::vector<BpeMerge>> ParseMerges(const Json& json, const std::string& where) {
  if (!json.is_array()) {
    return BadInput(StrCat(where, " must be a list of \"a b\" or [\"a\", \"b\"]"));
  }
  std::vector<BpeMerge> merges;
  merges.reserve(json.size());
  for (size_t i = 0; i < json.size(); ++i) {
    const Json& item = json[i];
    if (item.is_string()) {
      const auto& text = item.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
        merges.push_back({text.substr(0, space), text.substr(space + 1)});
        continue;
      }
    } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      merges.push_back({item[0].get<std::string>(), item[1].get<std::string>()});
      continue;
    }
    return BadInput(StrCat(where, "[", i, "] is ", CanonicalJson(item).substr(0, 60),
                           "; a merge is \"a b\" or [\"a\", \"b\"]"));
  }
  return merges;
}

Status RefuseUnlessEmpty(const Json& model, std::string_view key, const std::string& where) {
  const Json* member = Member(model, key);
  if (member == nullptr || *member == "" || *member == 0) return {};
  if (member->is_number() && member->get<double>() == 0.0) return {};
  return Unsupported(StrCat(where, ".", key, " is ", CanonicalJson(*member).substr(0, 40),
                            "; this build supports null only"));
}

Status ParseBpe(const Json& model, const std::string& where, PipelineParts& parts) {
  for (const std::string_view key :
       {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    KVG_TRY(RefuseUnlessEmpty(model, key, where));
  }
  KVG_ASSIGN(parts.vocabulary, ParseVocabObject(MemberOrNull(model, "vocab"), where + ".vocab"));
  KVG_ASSIGN(const std::vector<BpeMerge> merges,
             ParseMerges(MemberOrNull(model, "merges"), where + ".merges"));
  BpeOptions options;
  options.byte_level = parts.pre_tokenizer.byte_level();
  KVG_ASSIGN(options.byte_fallback, BoolField(model, "byte_fallback", false, where));
  KVG_ASSIGN(options.fuse_unk, BoolField(model, "fuse_unk", false, where));
  KVG_ASSIGN(options.ignore_merges, BoolField(model, "ignore_merges", false, where));
  KVG_ASSIGN(const std::string unk, TokenField(model, "unk_token", where));
  if (!unk.empty()) {
    const std::optional<int32_t> id = parts.vocabulary->Find(unk);
    if (!id) {
      return BadInput(
          StrCat(where, ".unk_token is ", Quoted(unk), ", which ", where, ".vocab lacks"));
    }
    options.unk_id = *id;
  }
  KVG_ASSIGN(parts.model, MakeBpe(*parts.vocabulary, merges, options, where));
  parts.kind = options.byte_level ? "byte-level BPE (tokenizer.json)" : "BPE (tokenizer.json)";
  return {};
}

Status ParseUnigram(const Json& model, const std::string& where, PipelineParts& parts) {
  if (parts.pre_tokenizer.byte_level()) {
    return Unsupported(StrCat(where, ": a Unigram model behind a ByteLevel pre-tokenizer"));
  }
  const Json& vocab = MemberOrNull(model, "vocab");
  if (!vocab.is_array() || vocab.empty()) {
    return BadInput(StrCat(where, ".vocab must be a list of [token, score]"));
  }
  parts.vocabulary = std::make_unique<Vocabulary>();
  std::vector<double> scores;
  for (size_t i = 0; i < vocab.size(); ++i) {
    const Json& item = vocab[i];
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number()) {
      return BadInput(StrCat(where, ".vocab[", i, "] is ", CanonicalJson(item).substr(0, 60),
                             "; it must be [token, score]"));
    }
    KVG_TRY(parts.vocabulary->Add(item[0].get_ref<const std::string&>(), static_cast<int64_t>(i),
                                  vocab.size(), where + ".vocab"));
    scores.push_back(item[1].get<double>());
  }
  UnigramOptions options;
  KVG_ASSIGN(options.byte_fallback, BoolField(model, "byte_fallback", false, where));
  if (const Json* unk = Member(model, "unk_id")) {
    KVG_ASSIGN(const int64_t id, IntField(model, "unk_id", where));
    if (id < 0 || id >= parts.vocabulary->size()) {
      return WrongValue(where, "unk_id", *unk, "it must be the id of a token");
    }
    options.unk_id = static_cast<int32_t>(id);
  }
  parts.unk_id = options.unk_id;
  parts.model = MakeUnigram(*parts.vocabulary, std::move(scores), options);
  parts.kind = "Unigram (tokenizer.json)";
  return {};
}

Status ParseWordPiece(const Json& model, const std::string& where, PipelineParts& parts) {
  if (parts.pre_tokenizer.byte_level()) {
    return Unsupported(StrCat(where, ": a WordPiece model behind a ByteLevel pre-tokenizer"));
  }
  KVG_ASSIGN(parts.vocabulary, ParseVocabObject(MemberOrNull(model, "vocab"), where + ".vocab"));
  WordPieceOptions options;
  KVG_ASSIGN(const std::string unk, StringField(model, "unk_token", where));
  const std::optional<int32_t> id = parts.vocabulary->Find(unk);
  if (!id) {
    return BadInput(
        StrCat(where, ".unk_token is ", Quoted(unk), ", which ", where, ".vocab lacks"));
  }
  options.unk_id = *id;
  if (Member(model, "continuing_subword_prefix") != nullptr) {
    KVG_ASSIGN(options.continues, StringField(model, "continuing_subword_prefix", where));
  }
  if (Member(model, "max_input_chars_per_word") != nullptr) {
    KVG_ASSIGN(options.most_characters, IntField(model, "max_input_chars_per_word", where));
  }
  parts.model = MakeWordPiece(*parts.vocabulary, options);
  parts.kind = "WordPiece";
  return {};
}

Status ParseModel(const Json& root, const std::string& path, PipelineParts& parts) {
  const Json* model = Member(root, "model");
  const std::string where = path + ": model";
  if (model == nullptr || !model->is_object()) return BadInput(where + " is missing");
  // Files of the library's first years name no type; they hold BPE with merges.
  std::string type = "BPE";
  if (Member(*model, "type") != nullptr) {
    KVG_ASSIGN(type, StringField(*model, "type", where));
  }
  if (type == "BPE") return ParseBpe(*model, where, parts);
  if (type == "Unigram") return ParseUnigram(*model, where, parts);
  if (type == "WordPiece") return ParseWordPiece(*model, where, parts);
  return Unsupported(StrCat(where, ".type is ", Quoted(type),
                            "; supported models are BPE, Unigram and WordPiece"));
}

Status ParseAddedTokens(const Json& root, const std::string& path, PipelineParts& parts) {
  const Json* list = Member(root, "added_tokens");
  if (list == nullptr) return {};
  if (!list->is_array()) return BadInput(path + ": added_tokens must be a list");
  const size_t expected = static_cast<size_t>(parts.vocabulary->size()) + list->size();
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& item = (*list)[i];
    const std::string where = StrCat(path, ": added_tokens[", i, "]");
    AddedToken token;
    KVG_ASSIGN(token.content, StringField(item, "content", where));
    KVG_ASSIGN(const int64_t id, IntField(item, "id", where));
    if (id < 0 || id > INT32_MAX) {
      return WrongValue(where, "id", item["id"], "it must be a token id");
    }
    token.id = static_cast<int32_t>(id);
    KVG_TRY(ReadTokenFlags(item, where, token));
    const std::optional<int32_t> model_id = parts.vocabulary->Find(token.content);
    KVG_TRY(parts.added.Add(std::move(token), model_id, expected, where));
  }
  return {};
}

// ["</s>", 2]: the pair that Bert- and Roberta-like processors keep.
Result<int32_t> ParseTokenPair(const Json& json, std::string_view key, const std::string& where,
                               const PipelineParts& parts) {
  const Json* pair = Member(json, key);
  const bool valid =
      pair != nullptr && pair->is_array() && pair->size() == 2 && (*pair)[1].is_number_integer();
  const int64_t id = valid ? (*pair)[1].get<int64_t>() : -1;
  const int64_t limit = std::max(parts.vocabulary->size(), parts.added.size());
  if (id < 0 || id >= limit) {
    return BadInput(StrCat(where, ".", key, " must be [token, id] with an id below ", limit));
  }
  return static_cast<int32_t>(id);
}

Status ParseTemplate(const Json& json, const std::string& where, PipelineParts& parts) {
  const Json* single = Member(json, "single");
  if (single == nullptr || !single->is_array()) {
    return BadInput(StrCat(where, ".single must be a list of SpecialToken and Sequence items"));
  }
  const Json& table = MemberOrNull(json, "special_tokens");
  const int64_t limit = std::max(parts.vocabulary->size(), parts.added.size());
  std::vector<int32_t> before, after;
  bool seen = false;
  for (size_t i = 0; i < single->size(); ++i) {
    const Json& item = (*single)[i];
    const std::string place = StrCat(where, ".single[", i, "]");
    if (Member(item, "Sequence") != nullptr) {
      if (seen) return Unsupported(StrCat(place, ": the text occurs a second time"));
      seen = true;
      continue;
    }
    const Json* special = Member(item, "SpecialToken");
    if (special == nullptr) {
      return BadInput(StrCat(place, " must be {\"SpecialToken\": ...} or {\"Sequence\": ...}"));
    }
    KVG_ASSIGN(const std::string name, StringField(*special, "id", place + ".SpecialToken"));
    const Json* entry = Member(table, name);
    const Json* ids = entry != nullptr ? Member(*entry, "ids") : nullptr;
    if (ids == nullptr || !ids->is_array()) {
      return BadInput(StrCat(where, ".special_tokens has no \"ids\" for ", Quoted(name)));
    }
    for (const Json& id : *ids) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= limit) {
        return BadInput(StrCat(where, ".special_tokens[", Quoted(name), "].ids holds ",
                               CanonicalJson(id).substr(0, 40), "; ids lie below ", limit));
      }
      (seen ? after : before).push_back(id.get<int32_t>());
    }
  }
  if (!seen) return BadInput(StrCat(where, ".single leaves out the text ({\"Sequence\": ...})"));
  // A later processor puts its tokens around those of an earlier one.
  parts.prefix.insert(parts.prefix.begin(), before.begin(), before.end());
  parts.suffix.insert(parts.suffix.end(), after.begin(), after.end());
  return {};
}

Status ParsePostProcessor(const Json& json, const std::string& where, int depth,
                          PipelineParts& parts) {
  if (json.is_null()) return {};
  KVG_ASSIGN(const std::string type, StringField(json, "type", where));
  if (type == "ByteLevel") return {};  // moves offsets, not ids
  if (type == "TemplateProcessing") return ParseTemplate(json, where, parts);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    KVG_ASSIGN(const int32_t cls, ParseTokenPair(json, "cls", where, parts));
    KVG_ASSIGN(const int32_t sep, ParseTokenPair(json, "sep", where, parts));
    parts.prefix.insert(parts.prefix.begin(), cls);
    parts.suffix.push_back(sep);
    return {};
  }
  if (type == "Sequence") {
    const Json* list = Member(json, "processors");
    if (list == nullptr || !list->is_array() || depth > 16) {
      return BadInput(StrCat(where, ".processors must be a list of steps"));
    }
    for (size_t i = 0; i < list->size(); ++i) {
      KVG_TRY(
          ParsePostProcessor((*list)[i], StrCat(where, ".processors[", i, "]"), depth + 1, parts));
    }
    return {};
  }
  return Unsupported(StrCat(where, ".type is ", Quoted(type),
                            "; supported post-processors are Sequence, TemplateProcessing, "
                            "ByteLevel, BertProcessing and RobertaProcessing"));
}

}  // namespace

Result<std::unique_ptr<Vocabulary>> ParseVocabObject(const Json& vocab, const std::string& where) {
  if (!vocab.is_object() || vocab.empty()) {
    return BadInput(StrCat(where, " must be an object that gives every token its id"));
  }
  auto vocabulary = std::make_unique<Vocabulary>();
  vocabulary->Reserve(vocab.size());
  for (const auto& [text, id] : vocab.items()) {
    if (!id.is_number_integer() ||
        (id.is_number_unsigned() && id.get<uint64_t>() > uint64_t{INT64_MAX})) {
      return BadInput(StrCat(where, ": the id of ", Quoted(text), " is ",
                             CanonicalJson(id).substr(0, 40), "; it must be an integer"));
    }
    KVG_TRY(vocabulary->Add(text, id.get<int64_t>(), vocab.size(), where));
  }
  return vocabulary;
}

Result<std::unique_ptr<Tokenizer>> LoadTokenizerJson(const std::string& directory) {
  const std::string path = directory + "/tokenizer.json";
  KVG_ASSIGN(const Json root, ReadJsonFile(path));
  if (!root.is_object()) return BadInput(path + ": the file must hold one JSON object");
  KVG_ASSIGN(const TokenizerConfig config, ReadTokenizerConfig(directory));
  KVG_ASSIGN(std::string fingerprint,
             FingerprintFiles(directory, {"tokenizer.json", "tokenizer_config.json",
                                          "special_tokens_map.json", "added_tokens.json"}));
  return MakeTokenizer(root, path, config, std::move(fingerprint));
}

Result<std::unique_ptr<Tokenizer>> MakeTokenizer(const Json& root, const std::string& path,
                                                 const TokenizerConfig& config,
                                                 std::string fingerprint) {
  PipelineParts parts;
  KVG_ASSIGN(parts.normalizer,
             Normalizer::Parse(MemberOrNull(root, "normalizer"), path + ": normalizer"));
  KVG_ASSIGN(parts.pre_tokenizer,
             PreTokenizer::Parse(MemberOrNull(root, "pre_tokenizer"), path + ": pre_tokenizer"));
  KVG_TRY(ParseModel(root, path, parts));
  KVG_TRY(ParseAddedTokens(root, path, parts));
  KVG_TRY(AddConfigTokens(config, *parts.vocabulary, parts.added));
  KVG_TRY(ParsePostProcessor(MemberOrNull(root, "post_processor"), path + ": post_processor", 0,
                             parts));
  KVG_ASSIGN(parts.decoder, Decoder::Parse(MemberOrNull(root, "decoder"), path + ": decoder"));
  parts.clean_up = config.clean_up;
  const std::optional<int32_t> bos = IdOfToken(config.bos, *parts.vocabulary, parts.added);
  const std::optional<int32_t> eos = IdOfToken(config.eos, *parts.vocabulary, parts.added);
  // A template in the file is the last word. Without one, the Llama class writes its own from the
  // two flags; DeepSeek's checkpoints rely on that.
  if (parts.prefix.empty() && parts.suffix.empty() &&
      config.tokenizer_class.starts_with("LlamaTokenizer")) {
    if (config.add_bos.value_or(true) && bos) parts.prefix.push_back(*bos);
    if (config.add_eos.value_or(false) && eos) parts.suffix.push_back(*eos);
  }
  return PipelineTokenizer::Make(std::move(parts), bos, std::move(fingerprint));
}

}  // namespace kvgauge
