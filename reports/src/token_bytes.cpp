// SPDX-License-Identifier: Apache-2.0
#include "src/token_bytes.h"

#include "core/json.h"

namespace kvgauge {

namespace {

double FactOf(const Json& facts, const char* key) {
  const auto at = facts.find(key);
  return at != facts.end() && at->is_number() ? at->get<double>() : 0.0;
}

}  // namespace

double StateBytes(const std::string& model_facts) {
  const Result<Json> facts = ParseJson(model_facts, "model.facts");
  return facts.ok() && facts->is_object() ? FactOf(*facts, "state_bytes") : 0;
}

double FullTokenBytes(const std::string& model_facts) {
  const Result<Json> facts = ParseJson(model_facts, "model.facts");
  if (!facts.ok() || !facts->is_object()) return 0;
  const auto number = [&](const char* key) { return FactOf(*facts, key); };
  const auto dtype = facts->find("dtype");
  const bool known = dtype != facts->end() && dtype->is_string();
  const std::string name = known ? dtype->get<std::string>() : "";
  const double number_bytes = name == "f32" ? 4 : name == "f16" || name == "bf16" ? 2 : 0;
  const double entry_tokens = facts->contains("entry_tokens") ? number("entry_tokens") : 1;
  if (entry_tokens < 1) return 0;
  const double numbers =
      facts->contains("token_numbers")
          ? number("token_numbers")
          : number("layers") * number("kv_heads") * (number("key_dim") + number("value_dim"));
  return numbers * number_bytes / entry_tokens;
}

}  // namespace kvgauge
