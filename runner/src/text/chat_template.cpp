// SPDX-License-Identifier: Apache-2.0
#include "runner/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/files.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "src/checkpoint/gguf/file.h"
#include "src/text/jinja/template.h"
#include "src/text/shipped_templates.h"
#include "src/text/tokenizer/gguf_vocabulary.h"
#include "src/text/tokenizer/json_fields.h"

namespace kvgauge {
namespace {

constexpr std::string_view kFile = "chat_template.jinja";
constexpr std::string_view kFolder = "additional_chat_templates";
// What transformers gives a template by name.
constexpr std::string_view kTokenKeys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                           "pad_token", "cls_token", "mask_token"};
// What a template is given anyway.
constexpr std::string_view kOurs[] = {"messages", "add_generation_prompt"};

struct NamedTemplate {
  std::string name, path, text;
};

Result<Json> ReadObject(const std::string& path) {
  if (!FileExists(path)) return Json::object();
  KVG_ASSIGN(Json json, ReadJsonFile(path));
  if (!json.is_object()) return BadInput(StrCat(path, ": the file must hold one JSON object"));
  return json;
}

// The member chat_template of a JSON file: a text, or several by name.
Status ReadMember(const std::string& path, std::vector<NamedTemplate>& out) {
  KVG_ASSIGN(const Json json, ReadObject(path));
  const Json* entry = Member(json, "chat_template");
  if (entry == nullptr) return {};
  const std::string where = path + ": chat_template";
  if (entry->is_string()) {
    out.push_back({"default", where, entry->get<std::string>()});
    return {};
  }
  if (!entry->is_array()) {
    return BadInput(StrCat(where, " must be a text, or a list of objects with name and template"));
  }
  for (const Json& item : *entry) {
    NamedTemplate one;
    KVG_ASSIGN(one.name, StringField(item, "name", where));
    KVG_ASSIGN(one.text, StringField(item, "template", where));
    one.path = StrCat(where, " ", Quoted(one.name));
    out.push_back(std::move(one));
  }
  return {};
}

// The templates in the metadata of a GGUF file: one, and others with a name behind its key.
Result<std::vector<NamedTemplate>> TemplatesOfGguf(const std::string& path) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  KVG_ASSIGN(const GgufFile file, OpenGgufHeader(path));
  std::vector<NamedTemplate> found;
  for (const auto& [key, value] : file.header.metadata) {
    const bool own = key == kKey;
    if (!own && !key.starts_with(StrCat(kKey, "."))) continue;
    NamedTemplate one;
    one.name = own ? "default" : key.substr(kKey.size() + 1);
    one.path = StrCat(path, ": ", key);
    const std::optional<std::string_view> text = value.Text();
    if (!text || FindInvalidUtf8(*text) != std::string_view::npos) {
      return BadInput(StrCat(one.path, ", expected a text in UTF-8"));
    }
    one.text = *text;
    found.push_back(std::move(one));
  }
  return found;
}

// All templates of a checkpoint. Files of their own come before what the configuration holds.
Result<std::vector<NamedTemplate>> TemplatesOf(const std::string& directory) {
  KVG_ASSIGN(const std::optional<std::string> gguf, FindGguf(directory));
  if (gguf) return TemplatesOfGguf(*gguf);
  std::vector<NamedTemplate> found;
  const std::string path = StrCat(directory, "/", kFile);
  if (FileExists(path)) {
    KVG_ASSIGN(std::string text, ReadFile(path));
    found.push_back({"default", path, std::move(text)});
  }
  std::error_code none;  // no such folder: no files
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(StrCat(directory, "/", kFolder), none)) {
    if (entry.path().extension() == ".jinja") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    KVG_ASSIGN(std::string text, ReadFile(file.string()));
    found.push_back({file.stem().string(), file.string(), std::move(text)});
  }
  if (found.empty()) KVG_TRY(ReadMember(directory + "/tokenizer_config.json", found));
  if (found.empty()) KVG_TRY(ReadMember(directory + "/chat_template.json", found));
  return found;
}

std::string JsonText(const std::string& text) { return Json(RepairUtf8(text)).dump(); }

// Special tokens by the names that templates know them by.
Status ReadTokens(const std::string& directory, std::map<std::string, std::string>& tokens) {
  KVG_ASSIGN(const std::optional<std::string> gguf, FindGguf(directory));
  if (gguf) {
    KVG_ASSIGN(const GgufFile file, OpenGgufHeader(*gguf));
    using Specials = std::map<std::string, std::string>;
    KVG_ASSIGN(const Specials specials, GgufSpecialTokens(file.header, *gguf));
    for (const auto& [key, token] : specials) tokens[key] = JsonText(token);
    return {};
  }
  for (const std::string file : {"/special_tokens_map.json", "/tokenizer_config.json"}) {
    const std::string path = directory + file;
    KVG_ASSIGN(const Json json, ReadObject(path));
    for (const std::string_view key : kTokenKeys) {
      if (Member(json, key) == nullptr) continue;
      KVG_ASSIGN(const std::string token, TokenField(json, key, path));
      if (!token.empty()) tokens[std::string(key)] = JsonText(token);
    }
    const Json* extra = Member(json, "extra_special_tokens");
    if (extra == nullptr || !extra->is_object()) continue;
    for (const auto& item : extra->items()) {
      KVG_ASSIGN(const std::string token,
                 TokenField(*extra, item.key(), path + ": extra_special_tokens"));
      if (!token.empty()) tokens[item.key()] = JsonText(token);
    }
  }
  return {};
}

Status CheckDate(const std::string& date) {
  const auto number = [&](size_t at, size_t size) {
    int value = 0;
    for (size_t i = at; i < at + size; ++i) {
      if (date[i] < '0' || date[i] > '9') return -1;
      value = value * 10 + (date[i] - '0');
    }
    return value;
  };
  constexpr int kDays[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  if (date.size() == 10 && date[4] == '-' && date[7] == '-') {
    const int year = number(0, 4), month = number(5, 2), day = number(8, 2);
    const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (year >= 1 && month >= 1 && month <= 12 && day >= 1 && day <= kDays[month - 1] &&
        (month != 2 || day != 29 || leap)) {
      return {};
    }
  }
  return BadInput(StrCat("the template's date is ", Quoted(date),
                         ", expected a day as YYYY-MM-DD, such as 2024-07-26"));
}

Status CheckSwitches(const ChatSwitches& switches, const jinja::Template* read,
                     const std::string& where) {
  for (const auto& [name, json] : switches.variables) {
    if (std::find(std::begin(kOurs), std::end(kOurs), name) != std::end(kOurs)) {
      return BadInput(StrCat("the template's variable ", Quoted(name), " is not a switch"));
    }
    const Result<Json> value = ParseJson(json, StrCat("the template's variable ", Quoted(name)));
    if (!value.ok()) return value.error();
    if (read != nullptr && read->Reads(name)) continue;
    if (read == nullptr) {
      return BadInput(StrCat("there is no chat template that could read ", Quoted(name)));
    }
    return BadInput(StrCat(where, ": the template reads no variable ", Quoted(name),
                           DidYouMean(name, read->Reads())));
  }
  return CheckDate(switches.date);
}

}  // namespace

std::vector<std::string> ChatTemplate::Names() {
  std::vector<std::string> names = {"none"};
  for (const ShippedTemplate& shipped : ShippedTemplates()) names.emplace_back(shipped.name);
  return names;
}

Result<ChatTemplate> ChatTemplate::Load(const std::string& directory, const std::string& name,
                                        const ChatSwitches& switches) {
  ChatTemplate chat;
  if (name == "none") {
    KVG_TRY(CheckSwitches(switches, nullptr, ""));
    return chat;
  }
  if (name.ends_with(".jinja")) {
    KVG_ASSIGN(const std::string text, ReadFile(name));
    chat.name_ = name;
    KVG_TRY(chat.Use(text, name, directory, switches));
    return chat;
  }
  const std::string wanted = name == "auto" ? "default" : name;
  KVG_ASSIGN(const std::vector<NamedTemplate> own, TemplatesOf(directory));
  std::vector<std::string> known = {"auto"};
  for (const NamedTemplate& one : own) {
    known.push_back(one.name);
    if (one.name != wanted) continue;
    chat.name_ = wanted == "default" ? "checkpoint" : StrCat("checkpoint:", wanted);
    KVG_TRY(chat.Use(one.text, one.path, directory, switches));
    return chat;
  }
  if (name == "auto") {
    if (!own.empty()) {
      return BadInput(StrCat(own[0].path,
                             ": no chat template is named \"default\"; choose one with "
                             "--template: ",
                             Join({known.begin() + 1, known.end()}, ", ")));
    }
    KVG_TRY(CheckSwitches(switches, nullptr, ""));
    return chat;
  }
  for (const ShippedTemplate& shipped : ShippedTemplates()) {
    if (shipped.name != name) continue;
    chat.name_ = name;
    KVG_TRY(chat.Use(shipped.text, StrCat("the shipped template ", name), directory, switches));
    return chat;
  }
  for (const std::string& shipped : Names()) known.push_back(shipped);
  return BadInput(StrCat("--template ", name, ": unknown", DidYouMean(name, known), "; known are ",
                         Join(known, ", "), ", and files that end in .jinja"));
}

Status ChatTemplate::Use(std::string_view text, const std::string& path,
                         const std::string& directory, const ChatSwitches& switches) {
  where_ = path;
  Result<jinja::Template> parsed = jinja::Template::Parse(text);
  if (!parsed.ok()) return parsed.error().Wrap(path);
  template_ = std::make_shared<const jinja::Template>(*std::move(parsed));
  KVG_TRY(CheckSwitches(switches, template_.get(), path));
  sha256_ = Sha256Hex(text);
  date_ = switches.date;
  switches_ = switches.variables;
  if (template_->Reads("enable_thinking")) switches_.emplace("enable_thinking", "false");
  KVG_TRY(ReadTokens(directory, tokens_));
  std::erase_if(tokens_, [&](const auto& token) { return !template_->Reads(token.first); });
  constexpr std::string_view kMark = "\uf8f0system\uf8f1";
  const Result<std::string> probe = Render({{"system", std::string(kMark)}, {"user", "q"}}, true);
  takes_system_ = probe.ok() && probe->find(kMark) != std::string::npos;
  return {};
}

std::vector<std::pair<std::string, std::string>> ChatTemplate::Values(
    bool add_generation_prompt) const {
  std::vector<std::pair<std::string, std::string>> values = {
      {"tools", "null"},
      {"documents", "null"},
      {"add_generation_prompt", add_generation_prompt ? "true" : "false"}};
  values.insert(values.end(), tokens_.begin(), tokens_.end());
  values.insert(values.end(), switches_.begin(), switches_.end());
  return values;
}

Json ChatTemplate::Signature() const {
  if (none()) return "none";
  Json variables = Json::object();
  for (const auto& [name, json] : Values(true)) {
    if (json != "null" && template_->Reads(name)) variables[name] = Json::parse(json);
  }
  Json signature = {{"sha256", sha256_}, {"variables", std::move(variables)}};
  if (template_->Reads("strftime_now")) signature["date"] = date_;
  return signature;
}

Result<std::string> ChatTemplate::Render(const std::vector<ChatMessage>& messages,
                                         bool add_generation_prompt) const {
  if (none()) {
    if (messages.size() != 1 || messages[0].role != "user") {
      return BadInput("without a template a prompt is one user message");
    }
    return RepairUtf8(messages[0].content);
  }
  if (messages.empty()) return BadInput(StrCat(where_, ": the conversation has no message"));
  // Kept apart: the engine reads them where they lie.
  std::vector<ChatMessage> repaired;
  for (const ChatMessage& message : messages) {
    repaired.push_back({RepairUtf8(message.role), RepairUtf8(message.content)});
  }
  jinja::Inputs inputs = {.values = Values(add_generation_prompt), .date = date_};
  for (const ChatMessage& message : repaired) {
    inputs.messages.emplace_back(message.role, message.content);
  }
  Result<std::string> rendered = template_->Render(inputs);
  if (!rendered.ok()) return rendered.error().Wrap(where_);
  return rendered;
}

Result<std::string> ChatTemplate::RenderJson(const std::string& messages,
                                             const std::map<std::string, std::string>& values,
                                             bool add_generation_prompt) const {
  if (none()) return BadInput("there is no chat template to render these messages with");
  jinja::Inputs inputs = {.values = Values(add_generation_prompt), .date = date_};
  inputs.values.insert(inputs.values.end(), values.begin(), values.end());
  inputs.values.emplace_back("messages", messages);
  Result<std::string> rendered = template_->Render(inputs);
  if (!rendered.ok()) return rendered.error().Wrap(where_);
  return rendered;
}

Result<bool> BeginsWithSpecials(const Tokenizer& tokenizer, std::string_view rendered) {
  constexpr size_t kHead = 256;  // longer than any tokens that stand in front
  KVG_ASSIGN(const std::vector<int32_t> with, tokenizer.Encode("x", {.add_special = true}));
  KVG_ASSIGN(const std::vector<int32_t> bare, tokenizer.Encode("x", {.add_special = false}));
  const auto found = std::search(with.begin(), with.end(), bare.begin(), bare.end());
  const auto front = static_cast<size_t>(found - with.begin());
  if (front == 0 || found == with.end()) return false;
  KVG_ASSIGN(const std::vector<int32_t> head,
             tokenizer.Encode(rendered.substr(0, kHead), {.add_special = false}));
  return head.size() >= front && std::equal(with.begin(), found, head.begin());
}

}  // namespace kvgauge
