// SPDX-License-Identifier: Apache-2.0
// A conversation as the text that a model was trained on: the checkpoint's own Jinja template is
// run, as transformers' apply_chat_template does it. docs/formats/chat-templates.md.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "runner/tokenizer.h"

namespace kvgauge {

namespace jinja {
class Template;
}

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// Everything that a template is told beside the messages; part of every signature.
struct ChatSwitches {
  // Variables of the template by name, each a JSON text: {"enable_thinking", "true"}. Where a
  // template reads enable_thinking and nothing is said, it is false: answers are short.
  std::map<std::string, std::string> variables = {};
  // What strftime_now says, so that a prompt never depends on the day: "YYYY-MM-DD", midnight. The
  // default is the date that Llama 3.1's template falls back to.
  std::string date = "2024-07-26";
};

// Immutable and safe to share. Made without a checkpoint it is "none".
class ChatTemplate {
 public:
  // `name`: "auto", the checkpoint's own template (chat_template.jinja, tokenizer_config.json or
  // chat_template.json in `directory`; the one named "default" of several), "none" where it has
  // none; "none", the user's text as it is; the name of another template of the checkpoint; one of
  // Names(), which ship with the program; or the path of a file that ends in ".jinja". Special
  // tokens are the checkpoint's. A template that cannot be read is an error that names file, line
  // and what stands there; so is a switch that the template does not read.
  static Result<ChatTemplate> Load(const std::string& directory, const std::string& name,
                                   const ChatSwitches& switches = {});
  static std::vector<std::string> Names();

  // "none"; "checkpoint", or "checkpoint:tool_use"; the name or path that was given.
  const std::string& name() const { return name_; }
  bool none() const { return template_ == nullptr; }
  // SHA-256 of the template's text; "" of none.
  const std::string& sha256() const { return sha256_; }
  // What of the template can move a prompt: its hash and every switch and token that it reads;
  // "none" without one.
  Json Signature() const;

  // Whether a conversation may begin with a system message that the template then shows.
  bool takes_system() const { return takes_system_; }

  // The prompt text, special tokens spelled out. What the template itself refuses (an order of
  // roles, say) is an error with its words.
  Result<std::string> Render(const std::vector<ChatMessage>& messages,
                             bool add_generation_prompt) const;
  // `messages`: a JSON array as apply_chat_template takes it, with content parts and calls of
  // tools; `values`: further variables as JSON texts ("tools"), before the switches.
  Result<std::string> RenderJson(const std::string& messages,
                                 const std::map<std::string, std::string>& values,
                                 bool add_generation_prompt) const;

 private:
  Status Use(std::string_view text, const std::string& path, const std::string& directory,
             const ChatSwitches& switches);
  std::vector<std::pair<std::string, std::string>> Values(bool add_generation_prompt) const;

  std::string name_ = "none";
  std::string where_;  // for messages
  std::string sha256_;
  std::shared_ptr<const jinja::Template> template_;
  std::map<std::string, std::string> tokens_;    // bos_token, ...; JSON texts
  std::map<std::string, std::string> switches_;  // those that the template reads; JSON texts
  std::string date_;
  bool takes_system_ = false;
};

// Whether a rendered prompt begins with what encoding would put in front, so that it must be
// encoded without adding it again.
Result<bool> BeginsWithSpecials(const Tokenizer& tokenizer, std::string_view rendered);

}  // namespace kvgauge
