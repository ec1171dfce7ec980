// SPDX-License-Identifier: Apache-2.0
// Writes JSON that a page holds for its script: texts are escaped so that nothing ends the script
// element, numbers have six digits, and commas come by themselves.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/html/html.h"

namespace kvgauge::report {

class ScriptJson {
 public:
  ScriptJson& OpenList() { return Open('['); }
  ScriptJson& CloseList() { return Close(']'); }
  ScriptJson& OpenObject() { return Open('{'); }
  ScriptJson& CloseObject() { return Close('}'); }
  // What is written next belongs to this key. Precondition: the key needs no escape.
  ScriptJson& Key(std::string_view key) {
    BeforeItem();
    json_.append("\"").append(key).append("\":");
    first_ = true;
    return *this;
  }
  // Precondition: made visible.
  ScriptJson& Text(std::string_view text) {
    BeforeItem();
    AppendScriptString(json_, text);
    return *this;
  }
  ScriptJson& Integer(int64_t value) {
    BeforeItem();
    json_.append(std::to_string(value));
    return *this;
  }
  ScriptJson& Number(double value) {
    BeforeItem();
    AppendNumber(json_, value);
    return *this;
  }
  // Three decimals; null for nothing and for what is no number.
  ScriptJson& Share(const std::optional<double>& value) {
    if (value && std::isfinite(*value)) return Number(std::round(*value * 1000) / 1000);
    BeforeItem();
    json_.append("null");
    return *this;
  }
  // The next item, or the end of the list, begins a line.
  ScriptJson& Line() {
    line_ = true;
    return *this;
  }

  const std::string& text() const { return json_; }

 private:
  ScriptJson& Open(char bracket) {
    BeforeItem();
    json_.push_back(bracket);
    first_ = true;
    return *this;
  }
  ScriptJson& Close(char bracket) {
    first_ = true;
    BeforeItem();
    json_.push_back(bracket);
    return *this;
  }
  void BeforeItem() {
    if (!first_) json_.push_back(',');
    if (line_) json_.push_back('\n');
    first_ = line_ = false;
  }

  std::string json_;
  bool first_ = true, line_ = false;
};

}  // namespace kvgauge::report
