// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/gguf_cuts.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

using CutKind = GgufCutStep::Kind;

// Words by case, with what is written behind an apostrophe.
constexpr std::string_view kByCase =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
// The same without apostrophes.
constexpr std::string_view kByCaseAlone =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
// Qwen2's, with marks that belong to words.
constexpr std::string_view kMarksInWords =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
// Qwen2's, whose punctuation ends before a line does.
constexpr std::string_view kEndsLines =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}|"
    " ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
// BLOOM's file has the marks in a class of their own inside, which is the same set.
constexpr std::string_view kBloomWords =
    " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+";
// A fixed list: other scripts are not cut into words.
constexpr std::string_view kCasedLetters =
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-"
    "\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd"
    "\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    "\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-"
    "\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d"
    "\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943]+";
constexpr std::string_view kWideMarks =
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+";
constexpr std::string_view kEastAsian = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";
constexpr std::string_view kKanaAndHan = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";

constexpr GgufCutStep kGpt2Cuts[] = {{CutKind::kGpt2}};
constexpr GgufCutStep kDigitsGpt2Cuts[] = {{CutKind::kDigits}, {CutKind::kGpt2}};
constexpr GgufCutStep kLlama3Cuts[] = {{.kind = CutKind::kHotSplit, .hot = HotPattern::kLlama3}};
constexpr GgufCutStep kQwen2Cuts[] = {{.kind = CutKind::kHotSplit, .hot = HotPattern::kQwen2}};
constexpr GgufCutStep kQwen35Cuts[] = {{CutKind::kSplit, kMarksInWords}};
constexpr GgufCutStep kGpt4oCuts[] = {{CutKind::kSplit, kByCase}};
constexpr GgufCutStep kTekkenCuts[] = {{CutKind::kSplit, kByCaseAlone}};
constexpr GgufCutStep kSeedCoderCuts[] = {{CutKind::kSplit, kEndsLines}};
constexpr GgufCutStep kBloomCuts[] = {{CutKind::kSplit, kBloomWords}};
constexpr GgufCutStep kFalconCuts[] = {{CutKind::kPunctuationRuns},
                                       {CutKind::kGpt2},
                                       {CutKind::kDigitRuns},
                                       {CutKind::kSplit, "[0-9][0-9][0-9]"}};
constexpr GgufCutStep kSuperBpeCuts[] = {{CutKind::kSplit, "\\p{N}+"},
                                         {CutKind::kSplit, "(?=(\\d{3})+(?!\\d))"}};
constexpr GgufCutStep kDeepSeekLlmCuts[] = {
    {CutKind::kSplit, "[\\r\\n]"}, {CutKind::kSplit, kCasedLetters}, {CutKind::kSplit, kWideMarks},
    {CutKind::kSplit, "\\s+$"},    {CutKind::kSplit, kEastAsian},    {CutKind::kDigits}};
constexpr GgufCutStep kDeepSeekCoderCuts[] = {{CutKind::kSplit, "[\\r\\n]"},
                                              {CutKind::kSplit, "\\s?\\p{L}+"},
                                              {CutKind::kSplit, "\\s?\\p{P}+"},
                                              {CutKind::kSplit, kEastAsian},
                                              {CutKind::kDigits}};
constexpr GgufCutStep kDeepSeekV3Cuts[] = {
    {CutKind::kSplit, "\\p{N}{1,3}"},
    {CutKind::kSplit, kKanaAndHan},
    {.kind = CutKind::kHotSplit, .hot = HotPattern::kDeepSeekV3}};

constexpr GgufCuts kAllCuts[] = {
    {.name = "bloom", .steps = kBloomCuts},
    {.name = "chatglm-bpe", .steps = kLlama3Cuts},
    {.name = "command-r", .steps = kDigitsGpt2Cuts, .nfc = true},
    {.name = "dbrx", .steps = kLlama3Cuts},
    {.name = "deepseek-coder", .steps = kDeepSeekCoderCuts},
    {.name = "deepseek-llm", .steps = kDeepSeekLlmCuts},
    {.name = "deepseek-r1-qwen", .steps = kQwen2Cuts, .nfc = true},
    {.name = "deepseek-v3", .steps = kDeepSeekV3Cuts},
    {.name = "exaone4", .steps = kGpt2Cuts},
    {.name = "falcon", .steps = kFalconCuts},
    {.name = "falcon3", .steps = kLlama3Cuts, .whole_tokens = true, .bos_by_default = true},
    {.name = "glm4", .steps = kLlama3Cuts},
    {.name = "gpt-2", .steps = kGpt2Cuts},
    {.name = "gpt-4o", .steps = kGpt4oCuts},
    {.name = "llama-bpe", .steps = kLlama3Cuts, .whole_tokens = true, .bos_by_default = true},
    {.name = "llama-v3", .steps = kLlama3Cuts, .whole_tokens = true, .bos_by_default = true},
    {.name = "llama3", .steps = kLlama3Cuts, .whole_tokens = true, .bos_by_default = true},
    {.name = "llama4", .steps = kGpt4oCuts, .bos_by_default = true},
    {.name = "minerva-7b", .steps = kDigitsGpt2Cuts},
    {.name = "mpt", .steps = kGpt2Cuts, .nfc = true},
    {.name = "olmo", .steps = kGpt2Cuts, .nfc = true},
    {.name = "phi-2", .steps = kGpt2Cuts},
    {.name = "qwen2", .steps = kQwen2Cuts, .nfc = true},
    {.name = "qwen35", .steps = kQwen35Cuts, .nfc = true},
    {.name = "refact", .steps = kDigitsGpt2Cuts},
    {.name = "seed-coder", .steps = kSeedCoderCuts},
    {.name = "smollm", .steps = kDigitsGpt2Cuts},
    {.name = "stablelm2", .steps = kQwen2Cuts, .nfc = true},
    {.name = "starcoder", .steps = kDigitsGpt2Cuts},
    {.name = "superbpe", .steps = kSuperBpeCuts},
    {.name = "tekken", .steps = kTekkenCuts, .whole_tokens = true, .bos_by_default = true},
};

Json JsonOfCutStep(const GgufCutStep& step) {
  switch (step.kind) {
    case CutKind::kDigits:
    case CutKind::kDigitRuns:
      return {{"type", "Digits"}, {"individual_digits", step.kind == CutKind::kDigits}};
    case CutKind::kPunctuationRuns:
      return {{"type", "Punctuation"}, {"behavior", "Contiguous"}};
    case CutKind::kGpt2:
      return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
    case CutKind::kSplit:
    case CutKind::kHotSplit:
      break;
  }
  const std::string pattern(step.kind == CutKind::kSplit ? step.pattern : TextOf(step.hot));
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

}  // namespace

std::span<const GgufCuts> AllGgufCuts() { return kAllCuts; }

Result<const GgufCuts*> FindGgufCuts(std::string_view name, std::string_view where) {
  const auto found = std::ranges::find(kAllCuts, name, &GgufCuts::name);
  if (found != std::end(kAllCuts)) return found;
  std::vector<std::string> known;
  for (const GgufCuts& cuts : kAllCuts) known.emplace_back(cuts.name);
  return Unsupported(StrCat(where, ": ", Quoted(name, 60), ", a way to cut texts that is not known",
                            DidYouMean(std::string(name), known), "; known are ",
                            Join(known, ", ")));
}

Json NormalizerOf(const GgufCuts& cuts) { return cuts.nfc ? Json({{"type", "NFC"}}) : Json(); }

Json PreTokenizerOf(const GgufCuts& cuts) {
  Json steps = Json::array();
  bool bytes = false;
  for (const GgufCutStep& step : cuts.steps) {
    bytes = bytes || step.kind == CutKind::kGpt2;
    steps.push_back(JsonOfCutStep(step));
  }
  if (!bytes) {
    steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  }
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

}  // namespace kvgauge
