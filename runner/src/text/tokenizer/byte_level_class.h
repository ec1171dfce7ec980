// SPDX-License-Identifier: Apache-2.0
// The tokenizer classes whose vocabulary files hold tokens and merges only. What the files leave to
// the class: normalisation, the pattern that cuts a text, special tokens, what frames a text.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "src/text/tokenizer/pipeline.h"
#include "src/text/tokenizer/split.h"
#include "src/text/tokenizer/tokenizer_config.h"

namespace kvgauge {

enum class TextFrame {
  kNone,
  kBos,      // bos, where add_bos_token is true
  kClsSep,   // cls before a text, sep behind it
  kWhisper,  // start of transcript, language, task, no timestamps; eos behind
};

// A special token of the class that the files need not name.
struct SpecialDefault {
  std::string_view key, content;
};

struct ByteLevelClass {
  std::string_view name;  // without "Fast"
  HotPattern pattern;
  bool nfc;
  TextFrame frame;
  // The reference reads merges.txt without its first and its last line: the first must be a
  // #version, the last must end.
  bool drops_end_lines;
  std::span<const SpecialDefault> specials;
};

// The class that vocab.json and merges.txt of `directory` belong to: tokenizer_config.json names
// it, else config.json does by its tokenizer_class or model_type. `from_config`: config.json did.
struct FoundClass {
  const ByteLevelClass* found;
  bool from_config;
};
Result<FoundClass> FindByteLevelClass(const std::string& directory, const TokenizerConfig& config);

// "Qwen2TokenizerFast" -> "Qwen2Tokenizer": both give the same ids.
std::string_view WithoutFast(std::string_view tokenizer_class);

// The two steps before a byte-level model, as tokenizer.json writes them.
Status SetByteLevelSteps(HotPattern pattern, bool nfc, bool add_prefix_space, PipelineParts& parts);

// Takes the class's special tokens where the files name none, in the reference's order.
void TakeSpecialDefaults(const ByteLevelClass& cls, TokenizerConfig& config);

// What the class puts around a text. Precondition: the special tokens are in `parts`.
Status FrameText(const ByteLevelClass& cls, const TokenizerConfig& config, PipelineParts& parts);

}  // namespace kvgauge
