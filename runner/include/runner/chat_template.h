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

struct ChatOptions {
  bool add_generation_prompt = true;
  // Llama 3.1 and 3.2 write a date into the prompt. Pinned, so that a prompt never depends on the
  // day: the value that their templates fall back to.
  std::string date = "26 Jul 2024";
};

// Immutable and safe to share.
class ChatTemplate {
 public:
  // `name`: "auto" reads the checkpoint in `directory` (tokenizer_config.json's chat_template or
  // chat_template.jinja); "none" renders the user's text as it is; otherwise a name from Names().
  // "auto" with no template in the checkpoint is "none"; with one that is not recognised it is an
  // error that offers --template none|NAME. BOS and EOS are the checkpoint's own where it names
  // them, else the family's.
  static Result<ChatTemplate> Load(const std::string& directory, const std::string& name);
  // The name for a template text, or an error that says what was looked for.
  static Result<std::string> Recognise(std::string_view template_text);
  static std::vector<std::string> Names();

  const std::string& name() const { return name_; }
  // True when the rendered text begins with the tokens that encoding would put in front, so that it
  // must be encoded without adding them again.
  bool includes_bos() const;

  // Whether a conversation may begin with a system message.
  bool takes_system() const;

  // The prompt text, special tokens spelled out. A role or an order of roles that the family does
  // not know (system in Gemma 2) is an error.
  Result<std::string> Render(const std::vector<ChatMessage>& messages,
                             const ChatOptions& options) const;
  Result<std::string> Render(const std::vector<ChatMessage>& messages,
                             bool add_generation_prompt) const {
    return Render(messages, ChatOptions{.add_generation_prompt = add_generation_prompt});
  }

 private:
  std::string name_ = "none";
  std::string bos_, eos_;
  std::string default_system_;  // said when the conversation has none; "" says nothing
};

}  // namespace kvgauge
