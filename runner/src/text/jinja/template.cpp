// SPDX-License-Identifier: Apache-2.0
#include "src/text/jinja/template.h"

#include <algorithm>

#include "core/strings.h"
#include "src/text/jinja/engine.h"
#include "src/text/jinja/parser.h"

namespace kvgauge::jinja {
namespace {

Error ErrorOf(const Fault& fault) {
  const std::string message =
      fault.line > 0 ? StrCat("line ", fault.line, ": ", fault.message) : fault.message;
  switch (fault.kind) {
    case FaultKind::kUnsupported:
      return Unsupported(message);
    case FaultKind::kRaised:
      return BadInput(StrCat("line ", fault.line, ": the template refuses: ", fault.message));
    case FaultKind::kRefused:
      return BadInput(StrCat(message, " (refused)"));
    case FaultKind::kLimit:
      return BadInput(StrCat(message, " (limit)"));
    default:
      return BadInput(message);
  }
}

}  // namespace

Result<Template> Template::Parse(std::string_view source) {
  if (const size_t at = FindInvalidUtf8(source); at != std::string_view::npos) {
    return BadInput(StrCat("byte ", at, ": ill-formed UTF-8"));
  }
  try {
    return Template(std::make_shared<const Document>(ParseDocument(source)));
  } catch (const Fault& fault) {
    return ErrorOf(fault);
  }
}

bool Template::Reads(std::string_view name) const {
  const auto found = std::find(document_->names.begin(), document_->names.end(), name);
  return found != document_->names.end() &&
         document_->read[static_cast<size_t>(found - document_->names.begin())];
}

std::vector<std::string> Template::Reads() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < document_->names.size(); ++i) {
    if (document_->read[i]) names.push_back(document_->names[i]);
  }
  return names;
}

namespace {

Value MessagesOf(const Inputs& inputs) {
  std::vector<Value> messages;
  messages.reserve(inputs.messages.size());
  const Value role = Value::Text("role"), content = Value::Text("content");
  for (const auto& [who, what] : inputs.messages) {
    auto* dict = new DictObject;
    messages.push_back(Value::Of(Kind::kDict, dict));
    dict->Set(role, Value::Text(std::string(who)));
    dict->Set(content, Value::Text(std::string(what)));
    dict->Charge(256);
  }
  return Value::List(std::move(messages));
}

}  // namespace

Result<std::string> Template::Render(const Inputs& inputs, const Limits& limits) const {
  const Meter meter(limits);
  try {
    Engine engine(*document_, meter, inputs.date);
    if (!inputs.messages.empty()) engine.Set("messages", MessagesOf(inputs));
    for (const auto& [name, json] : inputs.values) {
      if (Reads(name)) engine.Set(name, FromJson(json));
    }
    return engine.Run();
  } catch (const Fault& fault) {
    return ErrorOf(fault);
  }
}

}  // namespace kvgauge::jinja
