// SPDX-License-Identifier: Apache-2.0
// What tokenizer_config.json and its older companions say about special tokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "src/text/tokenizer/added_tokens.h"

namespace kvgauge {

// The tokens that have a key of their own, in the order in which new ones take ids.
inline constexpr std::string_view kSpecialKeys[] = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

// What the files say of one of these keys.
struct NamedSpecial {
  std::string_view key;
  AddedToken token;    // without content where the file says null
  bool plain = false;  // a string, which says nothing of flags
};

struct TokenizerConfig {
  std::string path;             // of tokenizer_config.json, for messages
  std::string tokenizer_class;  // "LlamaTokenizerFast", ...; "" when not given
  std::string bos, eos, unk;
  std::vector<NamedSpecial> named;  // each key at most once; a class has defaults for the others
  // bos, eos, unk, pad, ... and the additional ones, once each; their ids are not known here.
  std::vector<AddedToken> specials;
  std::vector<AddedToken> added;  // added_tokens_decoder and added_tokens.json: with ids
  std::optional<bool> add_bos, add_eos, add_prefix_space;
  bool legacy = true;
  bool clean_up = false;
};

// Reads tokenizer_config.json, special_tokens_map.json and added_tokens.json; each may be absent.
Result<TokenizerConfig> ReadTokenizerConfig(const std::string& directory);

// What config.json, which may be absent, says of the tokenizer.
struct ModelHints {
  std::string tokenizer_class, model_type;  // "" when not given
  std::optional<int64_t> vocab_size, bos_id;
};
Result<ModelHints> ReadModelHints(const std::string& directory);

// The flags of one added token; `id` and `content` are left alone.
Status ReadTokenFlags(const Json& json, const std::string& where, AddedToken& token);

}  // namespace kvgauge
