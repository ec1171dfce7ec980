// SPDX-License-Identifier: Apache-2.0
// Reads one JSON object key by key, with messages that name file, key, value and what is right.
// Include in .cpp files only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "core/strings.h"

namespace kvgauge {

class ConfigObject {
 public:
  // `where` begins every message: "run.json: tasks[0]". Both outlive the reader.
  ConfigObject(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  std::string At(const std::string& key) const { return StrCat(where_, ".", key); }
  Error Wrong(const std::string& key, std::string_view right) const {
    return BadInput(StrCat(At(key), ": ", Quoted(json_[key].dump()), ", expected ", right));
  }

  // Null where the key is absent.
  const Json* Find(const std::string& key) const {
    const auto found = json_.find(key);
    return found == json_.end() ? nullptr : &*found;
  }
  Status Text(const std::string& key, std::string& out) const {
    const Json* value = Find(key);
    if (value == nullptr) return {};
    if (!value->is_string()) return Wrong(key, "a text");
    out = value->get<std::string>();
    return {};
  }
  Status Int(const std::string& key, int64_t least, int64_t most, int64_t& out) const {
    const Json* value = Find(key);
    if (value == nullptr) return {};
    if (!value->is_number_integer() || value->get<double>() < static_cast<double>(least) ||
        value->get<double>() > static_cast<double>(most)) {
      return Wrong(key, StrCat("a whole number from ", least, " to ", most));
    }
    out = value->get<int64_t>();
    return {};
  }
  // A list of anything, or one of it.
  std::vector<Json> List(const std::string& key) const {
    const Json* value = Find(key);
    if (value == nullptr) return {};
    if (value->is_array()) return value->get<std::vector<Json>>();
    return {*value};
  }
  Status Texts(const std::string& key, std::vector<std::string>& out) const {
    if (!json_.contains(key)) return {};
    out.clear();
    for (const Json& value : List(key)) {
      if (!value.is_string()) return Wrong(key, "a list of texts");
      out.push_back(value.get<std::string>());
    }
    return {};
  }
  // No key but these. To be asked first, so that a misspelt key is not called missing.
  Status Only(const std::vector<std::string>& known) const {
    for (const auto& [key, value] : json_.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      return BadInput(StrCat(where_, ": unknown key ", Quoted(key), DidYouMean(key, known),
                             "; known: ", Join(known, ", ")));
    }
    return {};
  }

 private:
  const Json& json_;
  std::string where_;
};

}  // namespace kvgauge
