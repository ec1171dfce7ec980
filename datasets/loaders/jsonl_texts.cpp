// SPDX-License-Identifier: Apache-2.0
#include "loaders/jsonl_texts.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/strings.h"
#include "src/python_text.h"

namespace kvgauge {
namespace {

bool HoldsText(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string();
}

bool ReadTexts(const Json& object, const char* first_name, const char* second_name,
               std::string& first, std::string& second) {
  if (!HoldsText(object, first_name) || !HoldsText(object, second_name)) return false;
  first = object[first_name].get<std::string>();
  second = object[second_name].get<std::string>();
  return true;
}

bool ReadPassage(const Json& entry, std::string& title, std::string& text) {
  if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_array()) {
    title = entry[0].get<std::string>();
    for (const Json& sentence : entry[1]) {
      if (!sentence.is_string()) return false;
      text.append(sentence.get<std::string>());
    }
    return true;
  }
  if (!entry.is_object()) return false;
  const char* body = HoldsText(entry, "paragraph_text") ? "paragraph_text" : "text";
  return ReadTexts(entry, "title", body, title, text);
}

}  // namespace

std::string PassagesText(const Json& value, PassageStyle style) {
  std::string all;
  if (!value.is_array()) return all;
  for (size_t i = 0; i < value.size(); ++i) {
    std::string title, text;
    if (style == PassageStyle::kSpeech) {
      if (!value[i].is_object() || !ReadTexts(value[i], "speaker", "content", title, text)) {
        return "";
      }
      all.append(i == 0 ? "" : "\n").append(StrCat(title, ": ", text));
      continue;
    }
    if (!ReadPassage(value[i], title, text)) return "";
    if (style == PassageStyle::kPassage) {
      all.append(i == 0 ? "" : "\n\n").append(StrCat("Passage ", i + 1, ":\n", title, "\n", text));
    } else {
      all.append(i == 0 ? "" : "\n")
          .append(StrCat("Document [", i + 1, "](Title: ", title, ") ", text));
    }
  }
  return all;
}

Result<std::string> PairsText(const Json& value, const std::string& key, const std::string& answer,
                              int64_t position) {
  if (!value.is_array() || value.size() < 2) {
    return BadInput("is no array of two [key, value] or more");
  }
  std::vector<std::pair<std::string, std::string>> pairs;
  std::set<std::string> keys;
  for (const Json& entry : value) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_string()) {
      return BadInput(StrCat("holds at index ", pairs.size(), " no [key, value] of two strings"));
    }
    pairs.emplace_back(entry[0].get<std::string>(), entry[1].get<std::string>());
    if (!keys.insert(pairs.back().first).second) {
      return BadInput(StrCat("holds the key ", Quoted(pairs.back().first), " twice"));
    }
  }
  const auto gold = std::find(pairs.begin(), pairs.end(), std::pair(key, answer));
  if (gold == pairs.end()) {
    return BadInput(StrCat("does not hold the key ", Quoted(key), " with the answer as its value"));
  }
  if (position >= std::ssize(pairs)) {
    return BadInput(StrCat("has ", pairs.size(), " pairs, and none can be moved to position ",
                           position, " of them; they are counted from 0"));
  }
  if (position >= 0) {
    std::pair<std::string, std::string> moved = std::move(*gold);
    pairs.erase(gold);
    pairs.insert(pairs.begin() + position, std::move(moved));
  }
  std::string text;
  for (const auto& [name, held] : pairs) {
    text.append(text.empty() ? "{" : ",\n ").append(StrCat("\"", name, "\": \"", held, "\""));
  }
  return text + "}";
}

Result<std::string> ListText(const Json& value, const ListStyle& style) {
  if (!value.is_array() || value.empty()) {
    return BadInput(value.is_array() ? "is empty, expected an array of texts"
                                     : "is no array of texts");
  }
  std::string all;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::optional<std::string> text = PythonScalar(value[i]);
    if (!text) return BadInput(StrCat("holds at index ", i, " no text and no number"));
    const auto lookup = [&](const PromptTemplate::Field& field) -> Result<std::string> {
      return field.name == "entry" ? *text : StrCat(style.first_number + static_cast<int64_t>(i));
    };
    KVG_ASSIGN(const PromptTemplate::Filled filled, style.entry.Fill(lookup, ""));
    all.append(i == 0 ? "" : style.between).append(filled.text);
  }
  return all;
}

}  // namespace kvgauge
