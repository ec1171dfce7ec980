// SPDX-License-Identifier: Apache-2.0
// Chat formats of the supported families, recognised from the checkpoint's own template text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

class ChatTemplate {
 public:
  // `name`: "auto" reads the checkpoint in `directory` (tokenizer_config.json's chat_template or
  // chat_template.jinja); "none" renders the user's text as it is; otherwise a name from Names().
  // "auto" with no template in the checkpoint is "none"; with one that is not recognised it is an
  // error that offers --template none|NAME.
  static Result<ChatTemplate> Load(const std::string& directory, const std::string& name);
  // The name for a template text, or an error that says what was looked for.
  static Result<std::string> Recognise(std::string_view template_text);
  static std::vector<std::string> Names();

  const std::string& name() const { return name_; }
  // True when the rendered text begins with BOS, so that encoding must not add another.
  bool includes_bos() const;

  // The prompt text, special tokens spelled out. A role that the family does not know (system in
  // Gemma-2) is an error.
  Result<std::string> Render(const std::vector<ChatMessage>& messages,
                             bool add_generation_prompt) const;

 private:
  std::string name_ = "none";
  std::string bos_, eos_;
};

}  // namespace kvgauge
