// SPDX-License-Identifier: Apache-2.0
#include "runner/chat_template.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/text/tokenizer/json_fields.h"
#include "src/text/tokenizer/tokenizer_config.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge {
namespace {

// What a family's renderer sees. `system` is the text of a leading system message; `turns` the
// rest.
struct Conversation {
  std::optional<std::string> system;
  std::vector<ChatMessage> turns;
  std::string bos, eos, default_system, date;
  bool generate = false;
};

using Renderer = Result<std::string> (*)(const Conversation&);

constexpr std::string_view kVicunaSystem =
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions.";
constexpr std::string_view kQwen2System = "You are a helpful assistant.";
constexpr std::string_view kQwen25System =
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
constexpr std::string_view kSmolLm2System =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

// Python's str.strip(): white space and the four ASCII separators.
bool IsPythonSpace(char32_t c) { return HasClass(c, kSpace) || (c >= 0x1c && c <= 0x1f); }

std::string Stripped(std::string_view text) {
  size_t begin = 0, end = text.size();
  while (begin < end && IsPythonSpace(CodePointAt(text, begin).value)) {
    begin += CodePointAt(text, begin).width;
  }
  while (end > begin && IsPythonSpace(CodePointBefore(text, end).value)) {
    end -= CodePointBefore(text, end).width;
  }
  return std::string(text.substr(begin, end - begin));
}

std::string_view StripNewlines(std::string_view text, bool left, bool right) {
  while (left && text.starts_with('\n')) text.remove_prefix(1);
  while (right && text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

Status CheckAlternates(const std::vector<ChatMessage>& turns) {
  for (size_t i = 0; i < turns.size(); ++i) {
    const std::string_view wanted = i % 2 == 0 ? "user" : "assistant";
    if (turns[i].role != wanted) {
      return BadInput(StrCat("turn ", i + 1, " has role ", Quoted(turns[i].role),
                             ", but turns must alternate and this one be ", wanted));
    }
  }
  return {};
}

Result<std::string> RenderNone(const Conversation& c) {
  if (c.turns.size() != 1 || c.turns[0].role != "user") {
    return BadInput("without a template a prompt is one user message");
  }
  return c.turns[0].content;
}

Result<std::string> RenderLlama2(const Conversation& c) {
  KVG_TRY(CheckAlternates(c.turns));
  std::string out;
  for (size_t i = 0; i < c.turns.size(); ++i) {
    if (c.turns[i].role == "assistant") {
      out += StrCat(" ", Stripped(c.turns[i].content), " ", c.eos);
      continue;
    }
    std::string text = c.turns[i].content;
    if (i == 0 && c.system) text = StrCat("<<SYS>>\n", *c.system, "\n<</SYS>>\n\n", text);
    out += StrCat(c.bos, "[INST] ", Stripped(text), " [/INST]");
  }
  return out;
}

Result<std::string> RenderVicuna(const Conversation& c) {
  std::string out = StrCat(c.system.value_or(c.default_system), " ");
  for (const ChatMessage& turn : c.turns) {
    out += turn.role == "user" ? StrCat("USER: ", turn.content, " ")
                               : StrCat("ASSISTANT: ", turn.content, c.eos);
  }
  if (c.generate) out += "ASSISTANT:";
  return out;
}

std::string Llama3Block(std::string_view role, std::string_view content) {
  return StrCat("<|start_header_id|>", role, "<|end_header_id|>\n\n", content, "<|eot_id|>");
}

std::string Llama3Turns(const Conversation& c) {
  std::string out;
  for (const ChatMessage& turn : c.turns) out += Llama3Block(turn.role, Stripped(turn.content));
  if (c.generate) out += "<|start_header_id|>assistant<|end_header_id|>\n\n";
  return out;
}

Result<std::string> RenderLlama3(const Conversation& c) {
  return StrCat(c.bos, c.system ? Llama3Block("system", Stripped(*c.system)) : "", Llama3Turns(c));
}

Result<std::string> RenderLlama31(const Conversation& c) {
  const std::string system = StrCat("Cutting Knowledge Date: December 2023\nToday Date: ", c.date,
                                    "\n\n", Stripped(c.system.value_or("")));
  return StrCat(c.bos, Llama3Block("system", system), Llama3Turns(c));
}

Result<std::string> RenderMistral12(const Conversation& c, std::string_view after_eos) {
  KVG_TRY(CheckAlternates(c.turns));
  std::string out = c.bos;
  for (const ChatMessage& turn : c.turns) {
    out += turn.role == "user" ? StrCat("[INST] ", turn.content, " [/INST]")
                               : StrCat(turn.content, c.eos, after_eos);
  }
  return out;
}
Result<std::string> RenderMistralV1(const Conversation& c) { return RenderMistral12(c, " "); }
Result<std::string> RenderMistralV2(const Conversation& c) { return RenderMistral12(c, ""); }

Result<std::string> RenderMistralV3(const Conversation& c) {
  KVG_TRY(CheckAlternates(c.turns));
  std::string out = c.bos;
  for (size_t i = 0; i < c.turns.size(); ++i) {
    const ChatMessage& turn = c.turns[i];
    if (turn.role == "assistant") {
      out += StrCat(" ", Stripped(turn.content), c.eos);
    } else {
      // The system text goes with the last message, where the model reads it best.
      const bool with_system = c.system && i + 1 == c.turns.size();
      out +=
          StrCat("[INST] ", with_system ? StrCat(*c.system, "\n\n") : "", turn.content, "[/INST]");
    }
  }
  return out;
}

std::string ChatMlBlock(std::string_view role, std::string_view content) {
  return StrCat("<|im_start|>", role, "\n", content, "<|im_end|>\n");
}

std::string ChatMlSystem(const Conversation& c) {
  if (c.system) return ChatMlBlock("system", *c.system);
  return c.default_system.empty() ? "" : ChatMlBlock("system", c.default_system);
}

Result<std::string> RenderChatMl(const Conversation& c) {
  std::string out = ChatMlSystem(c);
  for (const ChatMessage& turn : c.turns) out += ChatMlBlock(turn.role, turn.content);
  if (c.generate) out += "<|im_start|>assistant\n";
  return out;
}

Result<std::string> RenderInternLm2(const Conversation& c) {
  KVG_ASSIGN(const std::string text, RenderChatMl(c));
  return StrCat(c.bos, text);
}

// Thinking is off: earlier answers lose their thoughts, the prompt brings an empty one.
Result<std::string> RenderQwen3(const Conversation& c) {
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  size_t last_query = 0;
  for (size_t i = 0; i < c.turns.size(); ++i) {
    const std::string_view content = c.turns[i].content;
    const bool tool_answer =
        content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
    if (c.turns[i].role == "user" && !tool_answer) last_query = i;
  }
  const bool any_query =
      std::ranges::any_of(c.turns, [](const ChatMessage& turn) { return turn.role == "user"; });
  std::string out = ChatMlSystem(c);
  for (size_t i = 0; i < c.turns.size(); ++i) {
    const ChatMessage& turn = c.turns[i];
    if (turn.role == "user") {
      out += ChatMlBlock("user", turn.content);
      continue;
    }
    std::string_view content = turn.content, thought;
    if (const size_t first = content.find(kClose); first != std::string_view::npos) {
      thought = StripNewlines(content.substr(0, first), false, true);
      if (const size_t open = thought.rfind(kOpen); open != std::string_view::npos) {
        thought.remove_prefix(open + kOpen.size());
      }
      thought = StripNewlines(thought, true, false);
      content = StripNewlines(content.substr(content.rfind(kClose) + kClose.size()), true, false);
    }
    const bool after_query = any_query && i > last_query;
    if (after_query && (i + 1 == c.turns.size() || !thought.empty())) {
      out +=
          ChatMlBlock("assistant", StrCat("<think>\n", StripNewlines(thought, true, true),
                                          "\n</think>\n\n", StripNewlines(content, true, false)));
    } else {
      out += ChatMlBlock("assistant", content);
    }
  }
  if (c.generate) out += "<|im_start|>assistant\n<think>\n\n</think>\n\n";
  return out;
}

Result<std::string> RenderPhi3(const Conversation& c) {
  std::string out = c.system ? StrCat("<|system|>\n", *c.system, "<|end|>\n") : "";
  for (const ChatMessage& turn : c.turns) {
    out += StrCat("<|", turn.role, "|>\n", turn.content, "<|end|>\n");
  }
  return out + (c.generate ? "<|assistant|>\n" : c.eos);
}

// The first revision asks for an answer behind every user turn, whatever the caller wants.
Result<std::string> RenderPhi3V1(const Conversation& c) {
  std::string out = c.bos;
  for (const ChatMessage& turn : c.turns) {
    out += turn.role == "user" ? StrCat("<|user|>\n", turn.content, "<|end|>\n<|assistant|>\n")
                               : StrCat(turn.content, "<|end|>\n");
  }
  return out;
}

std::string GemmaTurns(const Conversation& c, std::string_view prefix) {
  std::string out = c.bos;
  for (size_t i = 0; i < c.turns.size(); ++i) {
    const ChatMessage& turn = c.turns[i];
    out += StrCat("<start_of_turn>", turn.role == "assistant" ? "model" : "user", "\n",
                  i == 0 ? prefix : "", Stripped(turn.content), "<end_of_turn>\n");
  }
  if (c.generate) out += "<start_of_turn>model\n";
  return out;
}

Result<std::string> RenderGemma(const Conversation& c) {
  KVG_TRY(CheckAlternates(c.turns));
  return GemmaTurns(c, "");
}

Result<std::string> RenderGemma3(const Conversation& c) {
  KVG_TRY(CheckAlternates(c.turns));
  return GemmaTurns(c, c.system ? StrCat(*c.system, "\n\n") : "");
}

Result<std::string> RenderDeepSeekV2(const Conversation& c) {
  std::string out = StrCat(c.bos, c.system ? StrCat(*c.system, "\n\n") : "");
  for (const ChatMessage& turn : c.turns) {
    out += turn.role == "user" ? StrCat("User: ", turn.content, "\n\n")
                               : StrCat("Assistant: ", turn.content, c.eos);
  }
  if (c.generate) out += "Assistant:";
  return out;
}

Result<std::string> RenderDeepSeekV3(const Conversation& c) {
  std::string out = StrCat(c.bos, c.system.value_or(""));
  for (const ChatMessage& turn : c.turns) {
    out += turn.role == "user" ? StrCat("<｜User｜>", turn.content)
                               : StrCat("<｜Assistant｜>", turn.content, "<｜end▁of▁sentence｜>");
  }
  if (c.generate) out += "<｜Assistant｜>";
  return out;
}

Result<std::string> RenderZephyr(const Conversation& c) {
  std::string out = c.system ? StrCat("<|system|>\n", *c.system, c.eos, "\n") : "";
  for (const ChatMessage& turn : c.turns) {
    out += StrCat("<|", turn.role, "|>\n", turn.content, c.eos, "\n");
  }
  if (c.generate) out += "<|assistant|>\n";
  return out;
}

Result<std::string> RenderGlm4(const Conversation& c) {
  std::string out = "[gMASK]<sop>";
  const auto block = [&](std::string_view role, std::string_view content) {
    if (!content.empty()) out += StrCat("<|", role, "|>\n", content);
  };
  block("system", c.system.value_or(""));
  for (const ChatMessage& turn : c.turns) block(turn.role, turn.content);
  if (c.generate) out += "<|assistant|>";
  return out;
}

struct TemplateFamily {
  std::string_view name;
  Renderer render;
  bool includes_bos = false;
  std::string_view bos = {}, eos = {};  // where the checkpoint names none
  std::string_view default_system = {};
  bool takes_system = true;
};

constexpr TemplateFamily kTemplateFamilies[] = {
    {"none", RenderNone, false, "", "", "", false},
    {"llama2", RenderLlama2, true, "<s>", "</s>"},
    {"vicuna", RenderVicuna, false, "<s>", "</s>", kVicunaSystem},
    {"llama3", RenderLlama3, true, "<|begin_of_text|>"},
    {"llama31", RenderLlama31, true, "<|begin_of_text|>"},
    {"llama32", RenderLlama31, true, "<|begin_of_text|>"},
    {"mistral_v1", RenderMistralV1, true, "<s>", "</s>", "", false},
    {"mistral_v2", RenderMistralV2, true, "<s>", "</s>", "", false},
    {"mistral_v3", RenderMistralV3, true, "<s>", "</s>"},
    {"qwen2", RenderChatMl, false, "", "", kQwen2System},
    {"qwen25", RenderChatMl, false, "", "", kQwen25System},
    {"qwen3", RenderQwen3},
    {"yi", RenderChatMl},
    {"smollm2", RenderChatMl, false, "", "", kSmolLm2System},
    {"internlm2", RenderInternLm2, true, "<s>"},
    {"chatml", RenderChatMl},
    {"phi3", RenderPhi3, false, "<s>", "<|endoftext|>"},
    {"phi3_v1", RenderPhi3V1, true, "<s>", "<|endoftext|>", "", false},
    {"gemma", RenderGemma, true, "<bos>", "", "", false},
    {"gemma3", RenderGemma3, true, "<bos>"},
    {"deepseek_v2", RenderDeepSeekV2, true, "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"},
    {"deepseek_v3", RenderDeepSeekV3, true, "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"},
    {"zephyr", RenderZephyr, false, "<s>", "</s>"},
    {"glm4", RenderGlm4, true},
};

const TemplateFamily* FindTemplate(std::string_view name) {
  const auto found = std::ranges::find(kTemplateFamilies, name, &TemplateFamily::name);
  return found == std::end(kTemplateFamilies) ? nullptr : found;
}

// --- Recognition ---------------------------------------------------------------------------------

class Markers {
 public:
  explicit Markers(std::string_view text) : text_(text) {}
  bool Has(std::string_view marker) const { return text_.find(marker) != std::string_view::npos; }
  bool HasAll(std::initializer_list<std::string_view> markers) const {
    return std::ranges::all_of(markers, [&](std::string_view marker) { return Has(marker); });
  }
  // eos_token joined (+ or ~) to a string that is one space: what sets Mistral's first revision
  // apart.
  bool SpaceAfterEos() const {
    constexpr std::string_view kEos = "eos_token";
    for (size_t at = text_.find(kEos); at != std::string_view::npos;
         at = text_.find(kEos, at + 1)) {
      std::string squeezed;
      for (const char c : text_.substr(at + kEos.size(), 12)) {
        if (c != ' ' || squeezed.ends_with('\'') || squeezed.ends_with('"')) squeezed += c;
      }
      for (const std::string_view tail : {"+' '", "~' '", "+\" \"", "~\" \""}) {
        if (squeezed.starts_with(tail)) return true;
      }
    }
    return false;
  }

 private:
  std::string_view text_;
};

// The default system text of a ChatML template: what stands literally between the system header
// and the end mark.
std::string ChatMlDefault(std::string_view text) {
  for (const std::string_view head : {"<|im_start|>system\\n", "<|im_start|>system\n"}) {
    for (size_t at = text.find(head); at != std::string_view::npos; at = text.find(head, at + 1)) {
      const size_t begin = at + head.size();
      const size_t end = text.find("<|im_end|>", begin);
      if (end == std::string_view::npos) break;
      const std::string_view said = text.substr(begin, end - begin);
      // Quotes and braces mean that it is put together from a variable.
      if (!said.empty() && said.find_first_of("'\"{}") == std::string_view::npos) {
        return std::string(said);
      }
    }
  }
  return "";
}

std::string_view RecogniseChatMl(const Markers& has, std::string_view text) {
  if (has.Has("enable_thinking")) return "qwen3";
  if (has.Has("<think>")) return "";  // other reasoning models cut thoughts by rules of their own
  if (has.Has("bos_token")) return "internlm2";
  if (has.Has(kQwen25System)) return "qwen25";
  if (has.Has(kSmolLm2System)) return "smollm2";
  const std::string said = ChatMlDefault(text);
  if (said == kQwen2System) return "qwen2";
  return said.empty() ? "yi" : "chatml";
}

std::string_view RecogniseInst(const Markers& has) {
  if (has.Has("<<SYS>>")) return "llama2";
  if (!has.Has(" [/INST]")) return has.Has("[INST] ") ? "mistral_v3" : "";
  // Later revisions of the first two repositories moved the blanks and took a system message.
  if (has.Has("system_message") || has.Has(" [INST]")) return "";
  return has.SpaceAfterEos() ? "mistral_v1" : "mistral_v2";
}

// "" when no family fits.
std::string_view FamilyOf(std::string_view text) {
  const Markers has(text);
  if (has.Has("<|start_header_id|>")) {
    if (!has.Has("Cutting Knowledge Date")) return has.Has("<|eot_id|>") ? "llama3" : "";
    return has.Has("strftime_now") ? "llama32" : "llama31";
  }
  if (has.Has("<start_of_turn>")) {
    if (has.Has("System role not supported")) return "gemma";
    return has.Has("start_of_image") ? "gemma3" : "";
  }
  if (has.Has("<｜User｜>")) return has.Has("think>") ? "" : "deepseek_v3";
  if (has.Has("[gMASK]<sop>")) return "glm4";
  if (has.Has("<|im_start|>")) return RecogniseChatMl(has, text);
  if (has.Has("[/INST]")) return RecogniseInst(has);
  if (has.HasAll({"USER: ", "ASSISTANT:"})) return "vicuna";
  if (has.HasAll({"User: ", "Assistant:", "bos_token"})) return "deepseek_v2";
  if (has.HasAll({"<|assistant|>", "<|end|>"})) {
    return has.Has("system") ? "phi3" : "phi3_v1";
  }
  if (has.HasAll({"<|assistant|>", "eos_token"})) return "zephyr";
  return "";
}

// The template text of a checkpoint; nothing when it has none.
Result<std::optional<std::string>> ReadTemplate(const std::string& directory) {
  const std::string jinja_path = directory + "/chat_template.jinja";
  if (FileExists(jinja_path)) {
    KVG_ASSIGN(std::string text, ReadFile(jinja_path));
    return std::optional<std::string>(std::move(text));
  }
  const std::string path = directory + "/tokenizer_config.json";
  if (!FileExists(path)) return std::optional<std::string>();
  KVG_ASSIGN(const Json config, ReadJsonFile(path));
  const Json* entry = Member(config, "chat_template");
  if (entry == nullptr) return std::optional<std::string>();
  if (entry->is_string()) return std::optional<std::string>(entry->get<std::string>());
  // Several templates by name: the one for plain chat is called "default".
  if (entry->is_array()) {
    for (const Json& item : *entry) {
      const Json* name = Member(item, "name");
      if (name == nullptr || *name != "default") continue;
      KVG_ASSIGN(std::string text, StringField(item, "template", path + ": chat_template"));
      return std::optional<std::string>(std::move(text));
    }
  }
  return BadInput(StrCat(path,
                         ": chat_template must be a string or a list with an entry named "
                         "\"default\""));
}

}  // namespace

std::vector<std::string> ChatTemplate::Names() {
  std::vector<std::string> names;
  for (const TemplateFamily& family : kTemplateFamilies) names.emplace_back(family.name);
  return names;
}

Result<std::string> ChatTemplate::Recognise(std::string_view template_text) {
  const std::string_view name = FamilyOf(template_text);
  if (!name.empty()) return std::string(name);
  return Unsupported(StrCat("no known family's marks in the chat template that begins ",
                            Quoted(template_text, 80),
                            "; choose --template none|NAME with NAME of ", Join(Names(), ", ")));
}

Result<ChatTemplate> ChatTemplate::Load(const std::string& directory, const std::string& name) {
  ChatTemplate chat;
  chat.name_ = name;
  std::string found_default;
  if (name == "auto") {
    KVG_ASSIGN(const std::optional<std::string> text, ReadTemplate(directory));
    chat.name_ = "none";
    if (text) {
      Result<std::string> recognised = Recognise(*text);
      if (!recognised.ok()) return recognised.error().Wrap(directory);
      chat.name_ = *recognised;
      if (chat.name_ == "chatml") found_default = ChatMlDefault(*text);
    }
  }
  const TemplateFamily* family = FindTemplate(chat.name_);
  if (family == nullptr) {
    return BadInput(StrCat("--template ", name, ": unknown", DidYouMean(name, Names()),
                           "; known are auto, ", Join(Names(), ", ")));
  }
  KVG_ASSIGN(const TokenizerConfig config, ReadTokenizerConfig(directory));
  chat.bos_ = config.bos.empty() ? family->bos : config.bos;
  chat.eos_ = config.eos.empty() ? family->eos : config.eos;
  chat.default_system_ = found_default.empty() ? family->default_system : found_default;
  return chat;
}

bool ChatTemplate::includes_bos() const {
  const TemplateFamily* family = FindTemplate(name_);
  return family != nullptr && family->includes_bos;
}

bool ChatTemplate::takes_system() const {
  const TemplateFamily* family = FindTemplate(name_);
  return family != nullptr && family->takes_system;
}

Result<std::string> ChatTemplate::Render(const std::vector<ChatMessage>& messages,
                                         const ChatOptions& options) const {
  Conversation conversation{.system = {},
                            .turns = {},
                            .bos = bos_,
                            .eos = eos_,
                            .default_system = default_system_,
                            .date = options.date,
                            .generate = options.add_generation_prompt};
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    std::string content = RepairUtf8(messages[i].content);
    if (role == "system" && i == 0) {
      conversation.system = std::move(content);
    } else if (role == "user" || role == "assistant") {
      conversation.turns.push_back({role, std::move(content)});
    } else {
      return BadInput(StrCat("chat template ", name_, ": message ", i + 1, " has role ",
                             Quoted(role),
                             "; roles are user and assistant, and system at the "
                             "beginning"));
    }
  }
  if (conversation.turns.empty()) {
    return BadInput(StrCat("chat template ", name_, ": the conversation has no user message"));
  }
  if (conversation.system && !takes_system()) {
    return BadInput(StrCat("chat template ", name_,
                           ": there is no system role; put the text into the first user message"));
  }
  Result<std::string> rendered = FindTemplate(name_)->render(conversation);
  if (!rendered.ok()) return rendered.error().Wrap(StrCat("chat template ", name_));
  return rendered;
}

}  // namespace kvgauge
