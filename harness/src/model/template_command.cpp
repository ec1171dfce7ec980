// SPDX-License-Identifier: Apache-2.0
// template: what a checkpoint's chat template makes of a conversation.
#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "runner/chat_template.h"
#include "src/cli/commands.h"
#include "src/cli/print.h"
#include "src/cli/read_text.h"

namespace kvgauge {

Result<ChatSwitches> SwitchesOf(const TemplateFlags& flags) {
  ChatSwitches switches;
  if (!flags.date.empty()) switches.date = flags.date;
  for (const std::string& text : flags.set) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return BadInput(StrCat("--template-set ", Quoted(text),
                             ": must be NAME=VALUE, such as enable_thinking=true"));
    }
    const std::string value = text.substr(equals + 1);
    const Result<Json> json = ParseJson(value, "--template-set");
    switches.variables[text.substr(0, equals)] =
        json.ok() ? value : Json(WellFormed(value, "--template-set")).dump();
  }
  return switches;
}

Status RunTemplate(const TemplateOptions& options) {
  KVG_ASSIGN(const ChatSwitches switches, SwitchesOf(options.chat));
  if (!DirectoryExists(options.model) && !FileExists(options.model)) {
    return BadInput(StrCat(options.model, ": there is no such directory"));
  }
  KVG_ASSIGN(const ChatTemplate chat,
             ChatTemplate::Load(options.model, options.chat.name, switches));
  std::map<std::string, std::string> values;
  const auto read = [](const std::string& path, std::string& text) -> Status {
    KVG_ASSIGN(text, ReadFile(path));
    KVG_ASSIGN(const Json json, ParseJson(text, path));
    if (!json.is_array()) return BadInput(StrCat(path, ": the file must hold one JSON array"));
    return {};
  };
  std::string messages;
  KVG_TRY(read(options.messages, messages));
  if (!options.tools.empty()) KVG_TRY(read(options.tools, values["tools"]));
  KVG_ASSIGN(const std::string text,
             chat.RenderJson(messages, values, !options.no_generation_prompt));
  if (options.json) {
    PrintJson({{"template", chat.name()}, {"signature", chat.Signature()}, {"text", text}});
  } else {
    Print(text);
  }
  return {};
}

}  // namespace kvgauge
