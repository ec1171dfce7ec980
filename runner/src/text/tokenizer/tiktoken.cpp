// SPDX-License-Identifier: Apache-2.0
// tiktoken vocabularies: lines of a token's bytes in base64 and its rank, which is its id. The two
// parts of a text's piece whose union has the lowest rank are joined first.
#include <algorithm>
#include <charconv>
#include <utility>

#include "core/files.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "src/text/tokenizer/base64.h"
#include "src/text/tokenizer/byte_level_class.h"
#include "src/text/tokenizer/loaders.h"

namespace kvgauge {
namespace {

struct TiktokenClass {
  std::string_view name;  // for messages
  HotPattern pattern;
  // Normalises a whole text before special tokens are looked for.
  bool nfc;
  bool begins_with_bos;
  std::vector<std::string> specials = {};  // take the ids behind the ranks, in this order; "": none
  std::vector<std::string> before = {};    // take the ids before the ranks; no text spells them
  std::string_view bos() const { return before.empty() ? specials[0] : before[0]; }
};

// Meta's names. Later releases give other names to some ids: tokenizer_config.json lists those.
TiktokenClass Llama3() {
  TiktokenClass cls{"Llama 3", HotPattern::kLlama3, false, true};
  constexpr int kReserved = 251;
  cls.specials = {"<|begin_of_text|>",
                  "<|end_of_text|>",
                  "<|reserved_special_token_0|>",
                  "<|reserved_special_token_1|>",
                  "<|reserved_special_token_2|>",
                  "<|reserved_special_token_3|>",
                  "<|start_header_id|>",
                  "<|end_header_id|>",
                  "<|reserved_special_token_4|>",
                  "<|eot_id|>"};
  for (int i = 5; i < kReserved; ++i) {
    cls.specials.push_back(StrCat("<|reserved_special_token_", i, "|>"));
  }
  return cls;
}

TiktokenClass Qwen() {
  TiktokenClass cls{"QWenTokenizer", HotPattern::kQwen2, true, false};
  constexpr int kExtras = 205;
  cls.specials = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (int i = 0; i < kExtras; ++i) cls.specials.push_back(StrCat("<|extra_", i, "|>"));
  return cls;
}

// cl100k_base behind four ids, with names that YOCO's code adds. It gives one id to <jupyter_code>
// and to cl100k_base's <|endofprompt|>, of which the latter stays text here.
TiktokenClass Yoco() {
  TiktokenClass cls{"YocoTokenizer", HotPattern::kLlama3, false, true};
  cls.before = {"<s>", "<pad>", "</s>", "<unk>"};
  cls.specials = {"",
                  "<|endoftext|>",
                  "<|fim_prefix|>",
                  "<|fim_middle|>",
                  "<|fim_suffix|>",
                  "",
                  "",
                  "",
                  "<fim_prefix>",
                  "<fim_middle>",
                  "<fim_suffix>",
                  "<fim_pad>",
                  "<reponame>",
                  "<filename>",
                  "<gh_stars>",
                  "<issue_start>",
                  "<issue_comment>",
                  "<issue_closed>",
                  "<jupyter_start>",
                  "<jupyter_text>",
                  "<jupyter_code>",
                  "<jupyter_output>",
                  "<empty_output>",
                  "<commit_before>",
                  "<commit_msg>",
                  "<commit_after>"};
  return cls;
}

Result<TiktokenClass> FindTiktokenClass(const std::string& directory, const std::string& path,
                                        const TokenizerConfig& config, const ModelHints& hints) {
  const bool named = !config.tokenizer_class.empty();
  const std::string& given = named ? config.tokenizer_class : hints.tokenizer_class;
  const std::string_view name = WithoutFast(given);
  if (name == "QWenTokenizer") return Qwen();
  if (name == "LlamaTokenizer") return Llama3();
  if (name == "YocoTokenizer") return Yoco();
  // The general class says nothing itself: the model does.
  const bool general = name.empty() || name == "PreTrainedTokenizer";
  if (general && hints.model_type == "llama") return Llama3();
  if (general && hints.model_type == "qwen") return Qwen();
  const std::string origin = named ? config.path : directory + "/config.json";
  const std::string found =
      general ? StrCat("no tokenizer_class names its pattern and special tokens",
                       hints.model_type.empty()
                           ? std::string()
                           : StrCat(", nor does model_type ", Quoted(hints.model_type)))
              : StrCat("tokenizer_class ", Quoted(given), " (", origin, ") is not known");
  return Unsupported(
      StrCat(path, ": a tiktoken vocabulary, but ", found,
             "; known are QWenTokenizer, LlamaTokenizer (Llama 3) and YocoTokenizer, or "
             "PreTrainedTokenizerFast with model_type llama in config.json; a "
             "tokenizer.json would say it"));
}

struct Ranked {
  std::string bytes;
  int32_t rank;
};

// "IQ== 0"; nothing when the line is of another form.
std::optional<Ranked> ParseLine(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  std::optional<std::string> bytes = FromBase64(line.substr(0, space));
  const std::string_view digits = line.substr(space + 1);
  int32_t rank = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (!bytes || error != std::errc() || end != digits.data() + digits.size() || rank < 0) {
    return std::nullopt;
  }
  return Ranked{std::move(*bytes), rank};
}

// `first`: the id of rank 0.
Result<std::unique_ptr<Vocabulary>> ReadRanks(const std::string& path, int32_t first) {
  KVG_ASSIGN(const std::string text, ReadFile(path));
  std::vector<std::string> lines = Split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  auto vocabulary = std::make_unique<Vocabulary>();
  vocabulary->Reserve(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].ends_with('\r')) lines[i].pop_back();
    const std::string where = StrCat(path, ": line ", i + 1);
    const std::optional<Ranked> ranked = ParseLine(lines[i]);
    if (!ranked) {
      return BadInput(StrCat(where, " is ", Quoted(lines[i]),
                             "; a line is a token's bytes in base64, a space and its rank"));
    }
    const std::string token = BytesToAlphabet(ranked->bytes);
    if (vocabulary->Find(token)) {
      return BadInput(StrCat(where, ": the token ", Quoted(token), " is repeated"));
    }
    KVG_TRY(vocabulary->Add(token, int64_t{first} + ranked->rank, lines.size(), where));
  }
  for (int32_t id = first; id < vocabulary->size(); ++id) {
    if (vocabulary->Has(id)) continue;
    return BadInput(StrCat(path, ": no line has rank ", id - first, ", though one has rank ",
                           vocabulary->size() - 1 - first,
                           "; ranks leave no gap, so the file is cut"));
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (vocabulary->Find(BytesToAlphabet(std::string(1, static_cast<char>(byte))))) continue;
    return BadInput(StrCat(path, ": no line is byte ", byte,
                           "; a tiktoken vocabulary has every byte, so the file is cut"));
  }
  return vocabulary;
}

// A file that ends behind a whole line says nothing of the lines that are missing: the model does.
// Models have up to a few hundred rows of embeddings that no token needs. `ranks`: ids up to the
// last line's.
Status CheckLength(const TiktokenClass& cls, const ModelHints& hints, const TokenizerConfig& config,
                   const std::string& directory, const std::string& path, int64_t ranks) {
  constexpr int64_t kMostPadding = 512;
  const auto cut = [&](const std::string& why) {
    return BadInput(StrCat(path, ": has ", WithCommas(ranks - std::ssize(cls.before)), " lines, ",
                           why, "; is the file cut short?"));
  };
  if (!config.added.empty()) {
    // What a listed id may lie behind: the ranks, or another listed id.
    int64_t first = INT32_MAX;
    for (const AddedToken& token : config.added) first = std::min<int64_t>(first, token.id);
    if (first <= ranks) return {};
    return cut(StrCat("and the first token that ", config.path, " lists has id ", first));
  }
  const auto specials = std::ssize(cls.specials);
  if (hints.vocab_size && *hints.vocab_size - ranks - specials > kMostPadding) {
    return cut(StrCat("with ", specials, " special tokens ", WithCommas(ranks + specials),
                      " tokens, and ", directory, "/config.json has a vocab_size of ",
                      WithCommas(*hints.vocab_size)));
  }
  if (cls.begins_with_bos && hints.bos_id && *hints.bos_id > ranks &&
      *hints.bos_id < hints.vocab_size.value_or(INT32_MAX)) {
    return cut(StrCat("behind which stands ", Quoted(cls.specials[0]), ", and the bos_token_id of ",
                      directory, "/config.json is ", *hints.bos_id));
  }
  return {};
}

// The class's own special tokens take the ids behind the ranks.
Status AddSpecials(const TiktokenClass& cls, const TokenizerConfig& config, const std::string& path,
                   PipelineParts& parts) {
  // A file that lists ids has the last word on their names.
  if (config.added.empty()) {
    const auto behind = static_cast<int32_t>(parts.vocabulary->size());
    const size_t expected = static_cast<size_t>(behind) + cls.specials.size();
    const auto add = [&](const std::vector<std::string>& names, int32_t first,
                         bool in_texts) -> Status {
      for (size_t i = 0; i < names.size(); ++i) {
        if (names[i].empty()) continue;
        AddedToken token{.id = first + static_cast<int32_t>(i),
                         .content = names[i],
                         .special = true,
                         .normalized = cls.nfc,
                         .in_texts = in_texts};
        KVG_TRY(parts.added.Add(std::move(token), std::nullopt, expected, path));
      }
      return {};
    };
    KVG_TRY(add(cls.before, 0, false));
    KVG_TRY(add(cls.specials, behind, true));
  }
  return AddConfigTokens(config, *parts.vocabulary, parts.added);
}

}  // namespace

Result<bool> IsTiktoken(const std::string& path) {
  KVG_ASSIGN(const std::string text, ReadFile(path));
  std::string_view line = std::string_view(text).substr(0, text.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return ParseLine(line).has_value();
}

Result<std::unique_ptr<Tokenizer>> LoadTiktoken(const std::string& directory,
                                                std::string_view name) {
  const std::string path = StrCat(directory, "/", name);
  KVG_ASSIGN(const TokenizerConfig config, ReadTokenizerConfig(directory));
  KVG_ASSIGN(const ModelHints hints, ReadModelHints(directory));
  KVG_ASSIGN(const TiktokenClass cls, FindTiktokenClass(directory, path, config, hints));
  PipelineParts parts;
  KVG_ASSIGN(parts.vocabulary, ReadRanks(path, static_cast<int32_t>(cls.before.size())));
  KVG_TRY(CheckLength(cls, hints, config, directory, path, parts.vocabulary->size()));
  parts.model = MakeRankedBpe(*parts.vocabulary);
  KVG_TRY(AddSpecials(cls, config, path, parts));
  KVG_TRY(SetByteLevelSteps(cls.pattern, cls.nfc, false, parts));
  parts.decoder = Decoder::ByteLevel();
  parts.clean_up = config.clean_up;
  parts.kind = StrCat("byte-level BPE (", name, ", tiktoken; ", cls.name, ")");
  const std::string bos_text = !config.bos.empty()   ? config.bos
                               : cls.begins_with_bos ? std::string(cls.bos())
                                                     : "";
  const std::optional<int32_t> bos = IdOfToken(bos_text, *parts.vocabulary, parts.added);
  if (cls.begins_with_bos && config.add_bos.value_or(true)) {
    if (!bos) {
      return BadInput(StrCat(config.path, ": no token is ", Quoted(bos_text), ", with which ",
                             cls.name,
                             " begins a text; set bos_token or "
                             "add_bos_token to false"));
    }
    parts.prefix.push_back(*bos);
  }
  KVG_ASSIGN(std::string fingerprint,
             FingerprintFiles(directory, {std::string(name), "tokenizer_config.json",
                                          "special_tokens_map.json", "added_tokens.json"}));
  Sha256 hash;
  hash.Update(fingerprint.data(), fingerprint.size());
  hash.Update(cls.name.data(), cls.name.size());
  return PipelineTokenizer::Make(std::move(parts), bos, hash.Finish());
}

}  // namespace kvgauge
