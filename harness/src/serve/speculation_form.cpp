// SPDX-License-Identifier: Apache-2.0
#include "src/serve/speculation_form.h"

#include <algorithm>
#include <filesystem>

#include "core/json.h"
#include "core/near_names.h"
#include "core/short_json.h"
#include "core/strings.h"
#include "src/model/shipped_files.h"

namespace kvgauge {
namespace {

namespace fs = std::filesystem;

Result<std::string> FormDirectory() {
  KVG_ASSIGN(const std::string path, FindConfigFile("speculation/magicdec.json"));
  return fs::path(path).parent_path().string();
}

class FormReader {
 public:
  FormReader(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  Status CheckKeys() const {
    static const std::vector<std::string> keys = {"id",       "title",     "paper",  "version",
                                                  "draft",    "overrides", "budget", "gamma",
                                                  "retrieve", "departures"};
    return CheckKeys(keys);
  }

  Status CheckKeys(const std::vector<std::string>& keys) const {
    if (!json_.is_object()) return BadInput(StrCat(path_, ": must be a JSON object"));
    for (const auto& [key, value] : json_.items()) {
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      return BadInput(StrCat(path_, ": unknown key ", Quoted(key), DidYouMean(key, keys),
                             "; known: ", Join(keys, ", ")));
    }
    return {};
  }

  Status Text(const char* key, bool needed, std::string& out) const {
    if (!json_.contains(key)) {
      if (!needed) return {};
      return BadInput(StrCat(path_, ": ", Quoted(key), " is missing"));
    }
    if (!json_[key].is_string() || json_[key].get<std::string>().empty())
      return Wrong(key, "a text");
    out = json_[key].get<std::string>();
    return {};
  }

  Status Texts(const char* key, std::vector<std::string>& out) const {
    if (!json_.contains(key)) return {};
    const auto is_text = [](const Json& item) { return item.is_string(); };
    if (!json_[key].is_array() || !std::ranges::all_of(json_[key], is_text)) {
      return Wrong(key, "a list of texts");
    }
    out = json_[key].get<std::vector<std::string>>();
    return {};
  }

  Status Number(const char* key, int64_t most, int64_t& out) const {
    if (!json_.contains(key)) return {};
    const std::string range = StrCat("a whole number, 1 .. ", most);
    if (!json_[key].is_number_integer()) return Wrong(key, range);
    out = json_[key].get<int64_t>();
    return out >= 1 && out <= most ? Status() : Wrong(key, range);
  }

 private:
  Error Wrong(const char* key, const std::string& right) const {
    return BadInput(
        StrCat(path_, ": ", Quoted(key), " is ", ShortJson(json_[key]), "; expected ", right));
  }

  const Json& json_;
  const std::string path_;
};

Result<Retrieval> ReadRetrieval(const Json& json, const std::string& where) {
  const FormReader reader(json, where);
  KVG_TRY(reader.CheckKeys({"tokens", "chunk", "shorten", "first", "question"}));
  Retrieval retrieval;
  constexpr int64_t kMostTokens = int64_t{1} << 30;
  KVG_TRY(reader.Number("tokens", kMostTokens, retrieval.tokens));
  KVG_TRY(reader.Number("chunk", kMostTokens, retrieval.chunk));
  KVG_TRY(reader.Number("shorten", kMostTokens, retrieval.shorten));
  KVG_TRY(reader.Number("first", kMostTokens, retrieval.first));
  KVG_TRY(reader.Number("question", kMostTokens, retrieval.question));
  return retrieval;
}

}  // namespace

Result<SpeculationForm> ReadSpeculationForm(const std::string& path) {
  KVG_ASSIGN(const Json json, ReadJsonFile(path));
  const FormReader reader(json, path);
  SpeculationForm form;
  KVG_TRY(reader.CheckKeys());
  KVG_TRY(reader.Text("id", true, form.id));
  KVG_TRY(reader.Text("title", true, form.title));
  KVG_TRY(reader.Text("paper", true, form.paper));
  KVG_TRY(reader.Number("version", 1 << 20, form.version));
  KVG_TRY(reader.Text("draft", true, form.draft));
  KVG_TRY(reader.Texts("overrides", form.overrides));
  KVG_TRY(reader.Text("budget", false, form.budget));
  KVG_TRY(reader.Number("gamma", kMostDrafted, form.gamma));
  KVG_TRY(reader.Texts("departures", form.departures));
  if (json.contains("retrieve")) {
    KVG_ASSIGN(form.retrieve, ReadRetrieval(json["retrieve"], StrCat(path, ": retrieve")));
  }
  return form;
}

Result<std::vector<std::string>> ListSpeculationForms() {
  KVG_ASSIGN(const std::string directory, FormDirectory());
  std::vector<std::string> ids;
  std::error_code failed;
  for (const auto& file : fs::directory_iterator(directory, failed)) {
    if (file.path().extension() == ".json") ids.push_back(file.path().stem().string());
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

Result<SpeculationForm> FindSpeculationForm(const std::string& id) {
  KVG_ASSIGN(const std::vector<std::string> ids, ListSpeculationForms());
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) {
    return BadInput(StrCat("form ", Quoted(id), " is not known", DidYouMean(id, ids),
                           "; expected one of ", Join(ids, ", ")));
  }
  KVG_ASSIGN(const std::string directory, FormDirectory());
  return ReadSpeculationForm(StrCat(directory, "/", id, ".json"));
}

}  // namespace kvgauge
