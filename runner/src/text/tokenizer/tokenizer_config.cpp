// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/text/tokenizer/json_fields.h"

namespace kvgauge {
namespace {

constexpr std::string_view kSpecialLists[] = {"additional_special_tokens", "extra_special_tokens"};

Result<Json> ReadIfThere(const std::string& path) {
  if (!FileExists(path)) return Json::object();
  KVG_ASSIGN(Json json, ReadJsonFile(path));
  if (!json.is_object()) return BadInput(StrCat(path, ": the file must hold one JSON object"));
  return json;
}

void AddSpecial(AddedToken token, TokenizerConfig& config) {
  if (token.content.empty()) return;
  const bool known = std::ranges::any_of(
      config.specials, [&](const AddedToken& other) { return other.content == token.content; });
  if (!known) config.specials.push_back(std::move(token));
}

// A special token given as a string or as an object with flags; without content where it is null.
Result<AddedToken> ReadSpecial(const Json& json, std::string_view key, const std::string& where) {
  AddedToken token{.special = true, .normalized = false};
  KVG_ASSIGN(token.content, TokenField(json, key, where));
  if (json[key].is_object()) {
    KVG_TRY(ReadTokenFlags(json[key], StrCat(where, ".", key), token));
    token.special = true;
  }
  return token;
}

Status ReadSpecials(const Json& json, const std::string& where, TokenizerConfig& config) {
  for (const std::string_view key : kSpecialKeys) {
    if (!json.contains(key)) continue;
    KVG_ASSIGN(const AddedToken token, ReadSpecial(json, key, where));
    AddSpecial(token, config);
    const bool known = std::ranges::any_of(
        config.named, [&](const NamedSpecial& other) { return other.key == key; });
    if (!known) config.named.push_back({key, token, json[key].is_string()});
  }
  for (const std::string_view key : kSpecialLists) {
    const Json* list = Member(json, key);
    if (list == nullptr) continue;
    if (!list->is_array() && !list->is_object()) {
      return WrongValue(where, key, *list, "it must be a list of tokens");
    }
    size_t i = 0;
    for (const Json& item : *list) {
      const Json one = {{"token", item}};
      KVG_ASSIGN(AddedToken token,
                 ReadSpecial(one, "token", StrCat(where, ".", key, "[", i++, "]")));
      AddSpecial(std::move(token), config);
    }
  }
  return {};
}

Status ReadAddedDecoder(const Json& json, const std::string& where, TokenizerConfig& config) {
  const Json* table = Member(json, "added_tokens_decoder");
  if (table == nullptr) return {};
  if (!table->is_object()) {
    return WrongValue(where, "added_tokens_decoder", *table, "it must be an object of ids");
  }
  for (const auto& [key, value] : table->items()) {
    const std::string place = StrCat(where, ".added_tokens_decoder[", Quoted(key), "]");
    AddedToken token;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || end != key.data() + key.size() || token.id < 0) {
      return BadInput(StrCat(place, ": the key must be a token id"));
    }
    KVG_ASSIGN(token.content, StringField(value, "content", place));
    KVG_TRY(ReadTokenFlags(value, place, token));
    config.added.push_back(std::move(token));
  }
  std::ranges::sort(config.added, {}, &AddedToken::id);
  return {};
}

// The older table: content -> id.
Status ReadAddedTokensJson(const std::string& path, TokenizerConfig& config) {
  KVG_ASSIGN(const Json json, ReadIfThere(path));
  for (const auto& item : json.items()) {
    const std::string& content = item.key();
    const bool known = std::ranges::any_of(
        config.added, [&](const AddedToken& token) { return token.content == content; });
    if (known) continue;
    KVG_ASSIGN(const int64_t id, IntField(json, content, path));
    if (id < 0 || id > INT32_MAX) {
      return WrongValue(path, content, item.value(), "it must be a token id");
    }
    const bool special = std::ranges::any_of(
        config.specials, [&](const AddedToken& token) { return token.content == content; });
    config.added.push_back({.id = static_cast<int32_t>(id),
                            .content = content,
                            .special = special,
                            .normalized = !special});
  }
  return {};
}

Result<std::optional<bool>> OptionalBool(const Json& json, std::string_view key,
                                         const std::string& where) {
  if (Member(json, key) == nullptr) return std::optional<bool>();
  KVG_ASSIGN(const bool value, BoolField(json, key, false, where));
  return std::optional<bool>(value);
}

}  // namespace

Status ReadTokenFlags(const Json& json, const std::string& where, AddedToken& token) {
  KVG_ASSIGN(token.special, BoolField(json, "special", token.special, where));
  KVG_ASSIGN(token.normalized, BoolField(json, "normalized", !token.special, where));
  KVG_ASSIGN(token.single_word, BoolField(json, "single_word", false, where));
  KVG_ASSIGN(token.lstrip, BoolField(json, "lstrip", false, where));
  KVG_ASSIGN(token.rstrip, BoolField(json, "rstrip", false, where));
  return {};
}

Result<TokenizerConfig> ReadTokenizerConfig(const std::string& directory) {
  TokenizerConfig config;
  config.path = directory + "/tokenizer_config.json";
  const std::string map_path = directory + "/special_tokens_map.json";
  KVG_ASSIGN(const Json json, ReadIfThere(config.path));
  KVG_ASSIGN(const Json map, ReadIfThere(map_path));
  KVG_TRY(ReadSpecials(json, config.path, config));
  KVG_TRY(ReadSpecials(map, map_path, config));
  KVG_TRY(ReadAddedDecoder(json, config.path, config));
  KVG_TRY(ReadAddedTokensJson(directory + "/added_tokens.json", config));
  const auto pick = [&](std::string_view key) -> Result<std::string> {
    if (json.contains(key)) return TokenField(json, key, config.path);
    return TokenField(map, key, map_path);
  };
  KVG_ASSIGN(config.bos, pick("bos_token"));
  KVG_ASSIGN(config.eos, pick("eos_token"));
  KVG_ASSIGN(config.unk, pick("unk_token"));
  if (Member(json, "tokenizer_class") != nullptr) {
    KVG_ASSIGN(config.tokenizer_class, StringField(json, "tokenizer_class", config.path));
  }
  KVG_ASSIGN(config.add_bos, OptionalBool(json, "add_bos_token", config.path));
  KVG_ASSIGN(config.add_eos, OptionalBool(json, "add_eos_token", config.path));
  KVG_ASSIGN(config.add_prefix_space, OptionalBool(json, "add_prefix_space", config.path));
  KVG_ASSIGN(config.legacy, BoolField(json, "legacy", true, config.path));
  KVG_ASSIGN(config.clean_up, BoolField(json, "clean_up_tokenization_spaces", false, config.path));
  return config;
}

Result<ModelHints> ReadModelHints(const std::string& directory) {
  const std::string path = directory + "/config.json";
  KVG_ASSIGN(const Json json, ReadIfThere(path));
  ModelHints hints;
  if (Member(json, "tokenizer_class") != nullptr) {
    KVG_ASSIGN(hints.tokenizer_class, StringField(json, "tokenizer_class", path));
  }
  if (Member(json, "model_type") != nullptr) {
    KVG_ASSIGN(hints.model_type, StringField(json, "model_type", path));
  }
  if (Member(json, "vocab_size") != nullptr) {
    KVG_ASSIGN(hints.vocab_size, IntField(json, "vocab_size", path));
  }
  if (Member(json, "bos_token_id") != nullptr) {
    KVG_ASSIGN(hints.bos_id, IntField(json, "bos_token_id", path));
  }
  return hints;
}

}  // namespace kvgauge
