// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/byte_level_class.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/text/tokenizer/json_fields.h"
#include "src/text/tokenizer/loaders.h"

namespace kvgauge {
namespace {

constexpr SpecialDefault kQwen2Specials[] = {
    {"eos_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}, {"pad_token", "<|endoftext|>"}};
constexpr SpecialDefault kGpt2Specials[] = {
    {"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}};
constexpr SpecialDefault kRobertaSpecials[] = {
    {"bos_token", "<s>"},   {"eos_token", "</s>"}, {"unk_token", "<unk>"},  {"sep_token", "</s>"},
    {"pad_token", "<pad>"}, {"cls_token", "<s>"},  {"mask_token", "<mask>"}};

constexpr ByteLevelClass kClasses[] = {
    {"GPT2Tokenizer", HotPattern::kGpt2, false, TextFrame::kBos, true, kGpt2Specials},
    {"Qwen2Tokenizer", HotPattern::kQwen2, true, TextFrame::kNone, false, kQwen2Specials},
    {"RobertaTokenizer", HotPattern::kGpt2, false, TextFrame::kClsSep, true, kRobertaSpecials},
    {"WhisperTokenizer", HotPattern::kGpt2, false, TextFrame::kWhisper, true, kGpt2Specials},
};

// The class that the reference takes for a model whose files name none.
struct ModelClass {
  std::string_view model_type, tokenizer_class;
};
constexpr ModelClass kModelClasses[] = {
    {"gpt2", "GPT2Tokenizer"},       {"opt", "GPT2Tokenizer"},
    {"qwen2", "Qwen2Tokenizer"},     {"qwen2_moe", "Qwen2Tokenizer"},
    {"qwen2_vl", "Qwen2Tokenizer"},  {"qwen2_5_vl", "Qwen2Tokenizer"},
    {"qwen3", "Qwen2Tokenizer"},     {"qwen3_moe", "Qwen2Tokenizer"},
    {"roberta", "RobertaTokenizer"}, {"whisper", "WhisperTokenizer"},
};

const ByteLevelClass* FindByName(std::string_view name) {
  const auto found = std::ranges::find(kClasses, WithoutFast(name), &ByteLevelClass::name);
  return found == std::end(kClasses) ? nullptr : found;
}

std::string KnownClasses() {
  std::vector<std::string> names;
  for (const ByteLevelClass& cls : kClasses) names.emplace_back(cls.name);
  return StrCat(Join(names, ", "), " (each also with Fast behind it)");
}

const NamedSpecial* FindNamed(const TokenizerConfig& config, std::string_view key) {
  const auto found = std::ranges::find(config.named, key, &NamedSpecial::key);
  return found == config.named.end() ? nullptr : &*found;
}

// The content of a special token by its key, after TakeSpecialDefaults.
std::string ContentOf(const TokenizerConfig& config, std::string_view key) {
  const NamedSpecial* named = FindNamed(config, key);
  return named != nullptr ? named->token.content : "";
}

Result<int32_t> FrameId(const std::string& content, std::string_view what,
                        const ByteLevelClass& cls, const TokenizerConfig& config,
                        const PipelineParts& parts) {
  const std::optional<int32_t> id = IdOfToken(content, *parts.vocabulary, parts.added);
  if (id) return *id;
  return BadInput(StrCat(config.path, ": a ", cls.name, " puts ", what, " around a text, but ",
                         content.empty() ? "it is null" : StrCat("no token is ", Quoted(content)),
                         "; it must be a token of vocab.json or one of the special tokens"));
}

// Start of transcript, then what the file sets of language and task, then no timestamps.
Status FrameWhisper(const ByteLevelClass& cls, const TokenizerConfig& config,
                    PipelineParts& parts) {
  Json json = Json::object();
  if (FileExists(config.path)) {
    KVG_ASSIGN(json, ReadJsonFile(config.path));
  }
  std::vector<std::string> tokens = {"<|startoftranscript|>"};
  for (const std::string_view key : {"language", "task"}) {
    if (Member(json, key) == nullptr) continue;
    KVG_ASSIGN(const std::string value, StringField(json, key, config.path));
    const std::string token = StrCat("<|", value, "|>");
    if (!IdOfToken(token, *parts.vocabulary, parts.added)) {
      return WrongValue(config.path, key, json[key],
                        key == "task" ? "it must be transcribe or translate"
                                      : "it must be the code of a language with a token of its "
                                        "own, such as en for <|en|>");
    }
    tokens.push_back(token);
  }
  KVG_ASSIGN(const bool timestamps, BoolField(json, "predict_timestamps", false, config.path));
  if (!timestamps) tokens.emplace_back("<|notimestamps|>");
  for (const std::string& token : tokens) {
    KVG_ASSIGN(const int32_t id, FrameId(token, Quoted(token), cls, config, parts));
    parts.prefix.push_back(id);
  }
  KVG_ASSIGN(const int32_t eos, FrameId(config.eos, "eos_token", cls, config, parts));
  parts.suffix.push_back(eos);
  return {};
}

}  // namespace

std::string_view WithoutFast(std::string_view tokenizer_class) {
  constexpr std::string_view kFast = "Fast";
  if (tokenizer_class.ends_with(kFast)) tokenizer_class.remove_suffix(kFast.size());
  return tokenizer_class;
}

Result<FoundClass> FindByteLevelClass(const std::string& directory, const TokenizerConfig& config) {
  const auto unknown = [&](const std::string& where, const std::string& name) {
    return Unsupported(StrCat(where, ": tokenizer_class is ", Quoted(name),
                              ", and vocab.json with merges.txt do not say how that class cuts a "
                              "text; known are ",
                              KnownClasses(), "; a tokenizer.json would say it"));
  };
  if (!config.tokenizer_class.empty()) {
    const ByteLevelClass* found = FindByName(config.tokenizer_class);
    if (found == nullptr) return unknown(config.path, config.tokenizer_class);
    return FoundClass{found, false};
  }
  KVG_ASSIGN(const ModelHints hints, ReadModelHints(directory));
  const std::string model_path = directory + "/config.json";
  if (!hints.tokenizer_class.empty()) {
    const ByteLevelClass* found = FindByName(hints.tokenizer_class);
    if (found == nullptr) return unknown(model_path, hints.tokenizer_class);
    return FoundClass{found, true};
  }
  const auto row = std::ranges::find(kModelClasses, hints.model_type, &ModelClass::model_type);
  if (row != std::end(kModelClasses)) return FoundClass{FindByName(row->tokenizer_class), true};
  const std::string why =
      hints.model_type.empty()
          ? StrCat("nor does ", model_path, " name a model_type")
          : StrCat("and model_type ", Quoted(hints.model_type), " of ", model_path, " has none");
  return BadInput(StrCat(config.path,
                         ": key 'tokenizer_class' is missing, by which vocab.json and merges.txt "
                         "are read, ",
                         why, "; set it to one of ", KnownClasses()));
}

Status SetByteLevelSteps(HotPattern pattern, bool nfc, bool add_prefix_space,
                         PipelineParts& parts) {
  const Json normalizer = nfc ? Json({{"type", "NFC"}}) : Json();
  KVG_ASSIGN(parts.normalizer, Normalizer::Parse(normalizer, "normalizer"));
  Json steps = Json::array();
  // GPT-2's pattern is the step's own, which puts the space in front before it cuts.
  const bool own = pattern == HotPattern::kGpt2;
  if (!own) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", TextOf(pattern)}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back(
      {{"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"use_regex", own}});
  KVG_ASSIGN(parts.pre_tokenizer,
             PreTokenizer::Parse({{"type", "Sequence"}, {"pretokenizers", steps}}, "pattern"));
  return {};
}

void TakeSpecialDefaults(const ByteLevelClass& cls, TokenizerConfig& config) {
  for (const SpecialDefault& special : cls.specials) {
    if (FindNamed(config, special.key) != nullptr) continue;
    config.named.push_back(
        {special.key,
         {.content = std::string(special.content), .special = true, .normalized = false},
         true});
  }
  const auto place = [](const NamedSpecial& named) {
    return std::ranges::find(kSpecialKeys, named.key) - std::begin(kSpecialKeys);
  };
  std::ranges::sort(config.named, {}, place);
  std::vector<AddedToken> specials;
  const auto add = [&](const AddedToken& token) {
    const auto same = [&](const AddedToken& other) { return other.content == token.content; };
    if (!token.content.empty() && std::ranges::none_of(specials, same)) specials.push_back(token);
  };
  for (NamedSpecial& named : config.named) {
    // A mask stands for a word, so it takes the space before it.
    if (named.key == "mask_token" && named.plain && cls.frame == TextFrame::kClsSep) {
      named.token.lstrip = true;
    }
    add(named.token);
  }
  for (const AddedToken& token : config.specials) add(token);
  config.specials = std::move(specials);
  config.bos = ContentOf(config, "bos_token");
  config.eos = ContentOf(config, "eos_token");
  config.unk = ContentOf(config, "unk_token");
}

Status FrameText(const ByteLevelClass& cls, const TokenizerConfig& config, PipelineParts& parts) {
  switch (cls.frame) {
    case TextFrame::kNone:
      return {};
    case TextFrame::kBos: {
      if (!config.add_bos.value_or(false)) return {};
      KVG_ASSIGN(const int32_t bos, FrameId(config.bos, "bos_token", cls, config, parts));
      parts.prefix.push_back(bos);
      return {};
    }
    case TextFrame::kClsSep: {
      KVG_ASSIGN(const int32_t first,
                 FrameId(ContentOf(config, "cls_token"), "cls_token", cls, config, parts));
      KVG_ASSIGN(const int32_t last,
                 FrameId(ContentOf(config, "sep_token"), "sep_token", cls, config, parts));
      parts.prefix.push_back(first);
      parts.suffix.push_back(last);
      return {};
    }
    case TextFrame::kWhisper:
      return FrameWhisper(cls, config, parts);
  }
  return {};
}

}  // namespace kvgauge
