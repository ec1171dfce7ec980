// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <system_error>

#include "core/files.h"
#include "core/json.h"
#include "core/near_names.h"
#include "core/short_json.h"
#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/method.h"
#include "src/composition.h"

namespace kvgauge {
namespace {

struct Slot {
  std::string_view name;
  StageKind kind;
  std::optional<StageChoice> Method::*choice;
};
// In the order in which they act.
constexpr Slot kSlots[] = {{"prepare", StageKind::kPrepare, &Method::prepare},
                           {"see", StageKind::kSee, &Method::see},
                           {"attend", StageKind::kAttend, &Method::attend},
                           {"reuse", StageKind::kReuse, &Method::reuse},
                           {"thin", StageKind::kThin, &Method::thin},
                           {"score", StageKind::kScore, &Method::score},
                           {"allocate", StageKind::kAllocate, &Method::allocate},
                           {"reduce", StageKind::kReduce, &Method::reduce},
                           {"decode_score", StageKind::kScore, &Method::decode_score},
                           {"decode_allocate", StageKind::kAllocate, &Method::decode_allocate},
                           {"decode_reduce", StageKind::kReduce, &Method::decode_reduce},
                           {"store", StageKind::kStore, &Method::store},
                           {"read", StageKind::kRead, &Method::read},
                           {"narrow", StageKind::kRead, &Method::narrow},
                           {"trigger", StageKind::kTrigger, &Method::trigger}};
const std::vector<std::string> kFamilies = {
    "baseline",     "selection", "budget",      "merging", "retrieval", "quantization",
    "architecture", "low_rank",  "composition", "prefill", "reuse"};

const std::vector<ParamSpec>& ProtectSpecs() {
  static const std::vector<ParamSpec> specs = {
      IntParam("sinks", 0, 0, 1 << 20, "first entries that are never given up"),
      IntParam("recent", 0, 0, 1 << 20,
               "last entries that are never given up; left out: as many as the stages protect"),
      RealParam("recent_share", 0, 0, 1, "the same as a share of what a head may hold"),
      IntParam("coming", 0, 0, 1 << 20,
               "entries of the budget that are left to tokens to come, where it is not all")};
  return specs;
}

Status KnownKeys(const Json& object, const std::vector<std::string>& known,
                 const std::string& owner) {
  if (!object.is_object()) return BadInput(StrCat(owner, ": must be a JSON object"));
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return BadInput(StrCat(owner, ": unknown key ", Quoted(key), DidYouMean(key, known),
                           "; known: ", Join(known, ", ")));
  }
  return {};
}

Result<std::string> Text(const Json& json, const char* key, bool required,
                         const std::string& origin) {
  if (!json.contains(key)) {
    if (required) return BadInput(StrCat(origin, ": \"", key, "\" is missing"));
    return std::string();
  }
  if (!json[key].is_string() || (required && json[key].get<std::string>().empty())) {
    return BadInput(StrCat(origin, ": \"", key, "\" must be a text, is ", ShortJson(json[key])));
  }
  return json[key].get<std::string>();
}

// Empty where `key` is left out.
Result<std::vector<std::string>> Texts(const Json& json, const char* key,
                                       const std::string& origin) {
  if (!json.contains(key)) return std::vector<std::string>();
  const Json& list = json[key];
  const auto is_text = [](const Json& item) { return item.is_string(); };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_text)) {
    return BadInput(
        StrCat(origin, ": \"", key, "\" must be a list of texts, is ", ShortJson(list)));
  }
  return list.get<std::vector<std::string>>();
}

// Stages of the program do not throw; nothing is known of those of a plugin.
Status TryToMake(const StageChoice& choice, const std::string& origin) {
  const std::string owner = StrCat(origin, ": ", NameOf(*choice.spec));
  try {
    if (choice.spec->make(choice.params) != nullptr) return {};
  } catch (const std::exception& error) {
    return BadInput(StrCat(owner, ": its constructor throws: ", error.what()));
  } catch (...) {
    return BadInput(StrCat(owner, ": its constructor throws something that is no std::exception"));
  }
  return BadInput(StrCat(owner, ": its plugin makes no such stage"));
}

Result<StageChoice> ParseStage(const Slot& slot, const Json& json, const std::string& origin) {
  const std::string owner = StrCat(origin, ": stages.", slot.name);
  if (!json.is_object()) {
    return BadInput(StrCat(owner, ": must be an object such as {\"id\": \"...\"}"));
  }
  KVG_ASSIGN(const std::string id, Text(json, "id", true, owner));
  const Result<const StageSpec*> spec = FindStage(slot.kind, id);
  if (!spec.ok()) return spec.error().Wrap(owner);
  StageChoice choice;
  choice.spec = *spec;
  choice.slot = slot.name;
  Json given = json;
  given.erase("id");
  KVG_ASSIGN(choice.params,
             Params::Parse(choice.spec->params, given, StrCat(origin, ": ", slot.name, ".", id)));
  if (!choice.spec->plugin.empty()) KVG_TRY(TryToMake(choice, origin));
  return choice;
}

Result<std::string> Choice(const Json& json, const char* key,
                           const std::vector<std::string>& choices, const std::string& origin) {
  KVG_ASSIGN(std::string value, Text(json, key, true, origin));
  if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
    return BadInput(StrCat(origin, ": \"", key, "\": unknown ", Quoted(value),
                           DidYouMean(value, choices), "; known: ", Join(choices, ", ")));
  }
  return value;
}

Result<PublishedNumber> ParsePublished(const Json& json, const std::string& origin) {
  static const std::vector<ParamSpec> specs = {
      ChoiceParam("what", "decode_times",
                  {"decode_times", "cache_times", "peak_times", "entry_bytes"},
                  "which number it is"),
      RealParam("value", 0, 0, 1e15, "the number"),
      IntParam("context_tokens", 0, 0, int64_t{1} << 40, "tokens it is told at; 0: any"),
      IntParam("latent_numbers", 0, 0, 1 << 20, "of models with latents of that size; 0: of all")};
  KVG_ASSIGN(std::string source, Text(json, "source", true, origin));
  Json numbers = json;
  numbers.erase("source");
  KVG_ASSIGN(const Params params, Params::Parse(specs, numbers, origin));
  PublishedNumber number = {.value = params.Real("value"),
                            .context_tokens = params.Int("context_tokens"),
                            .latent_numbers = params.Int("latent_numbers"),
                            .source = std::move(source)};
  using What = PublishedNumber::What;
  for (const What what :
       {What::kDecodeTimes, What::kCacheTimes, What::kPeakTimes, What::kEntryBytes}) {
    if (params.Text("what") == NameOf(what)) number.what = what;
  }
  return number;
}

Status ParseHead(const Json& json, const std::string& origin, Method& method) {
  KVG_ASSIGN(method.id, Text(json, "id", true, origin));
  KVG_ASSIGN(method.title, Text(json, "title", true, origin));
  KVG_ASSIGN(method.paper, Text(json, "paper", false, origin));
  KVG_ASSIGN(method.family, Choice(json, "family", kFamilies, origin));
  if (json.contains("version")) {
    const Json& version = json["version"];
    if (!version.is_number_integer() || version < 1 || version > 1000000) {
      return BadInput(StrCat(origin, ": \"version\" must be a whole number from 1 on, is ",
                             ShortJson(version)));
    }
    method.version = version.get<int>();
  }
  if (json.contains("experimental")) {
    const Json& why = json["experimental"];
    if (!why.is_boolean() && (!why.is_string() || why.get<std::string>().empty())) {
      return BadInput(StrCat(origin, ": \"experimental\" must be true, false or a text that says ",
                             "why nothing independent holds the method, is ", ShortJson(why)));
    }
    method.experimental = why.is_string() || why.get<bool>();
    if (why.is_string()) method.experimental_because = why.get<std::string>();
  }
  KVG_ASSIGN(method.departures, Texts(json, "departures", origin));
  if (json.contains("published")) {
    const Json& list = json["published"];
    if (!list.is_array()) return BadInput(StrCat(origin, ": \"published\" must be a list"));
    for (const Json& item : list) {
      const std::string owner = StrCat(origin, ": published[", method.published.size(), "]");
      if (!item.is_object()) return BadInput(StrCat(owner, ": must be a JSON object"));
      KVG_ASSIGN(PublishedNumber number, ParsePublished(item, owner));
      method.published.push_back(std::move(number));
    }
  }
  return {};
}

// {"id": stage} where a method needs one and names none.
void FillDefaults(Json& stages) {
  const auto fill = [&](const char* kind, const char* id) {
    if (!stages.contains(kind)) stages[kind] = {{"id", id}};
  };
  fill("store", "plain");
  if (!stages.contains("reduce")) return;
  fill("allocate", "uniform");
  fill("trigger", "prefill");
}

// One "stage.param=value" into the JSON of a method.
Status Override(const std::string& text, Json& method) {
  const size_t equals = text.find('='), dot = text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
    return BadInput(
        StrCat("override ", Quoted(text), ": must be stage.param=value, such as score.window=16"));
  }
  const std::string owner = text.substr(0, dot);
  const std::string name = text.substr(dot + 1, equals - dot - 1), given = text.substr(equals + 1);
  // Numbers, true and false are JSON; anything else is text.
  const Result<Json> parsed = ParseJson(given, "override");
  const Json value = parsed.ok() && !parsed->is_structured() ? *parsed : Json(given);
  if (owner == "protect" || owner == "place") {
    method[owner][name] = value;
    return {};
  }
  std::vector<std::string> owners = {"protect", "place"};
  for (const Slot& slot : kSlots) owners.emplace_back(slot.name);
  if (std::find(owners.begin() + 2, owners.end(), owner) == owners.end()) {
    return BadInput(StrCat("override ", Quoted(text), ": unknown stage ", Quoted(owner),
                           DidYouMean(owner, owners), "; known: ", Join(owners, ", ")));
  }
  if (!method.contains("stages")) method["stages"] = Json::object();
  Json& stages = method["stages"];
  if (!stages.is_object()) return {};  // parsing says what is wrong
  if (name == "id") {
    stages[owner] = {{"id", value}};  // the parameters of another stage mean nothing to it
    return {};
  }
  FillDefaults(stages);
  if (!stages.contains(owner)) {
    return BadInput(StrCat("override ", Quoted(text), ": the method has no ", owner,
                           " stage; name one with ", owner, ".id=..."));
  }
  if (stages[owner].is_object()) stages[owner][name] = value;
  return {};
}

}  // namespace

Result<Method> ParseMethod(const Json& json, const std::string& origin) {
  KVG_TRY(KnownKeys(json,
                    {"id", "title", "family", "paper", "version", "departures", "published",
                     "experimental", "conformance", "protect", "place", "stages"},
                    origin));
  Method method;
  KVG_TRY(ParseHead(json, origin, method));

  const Json protect = json.contains("protect") ? json["protect"] : Json::object();
  KVG_ASSIGN(const Params kept, Params::Parse(ProtectSpecs(), protect, origin + ": protect"));
  method.sinks = kept.Int("sinks");
  method.recent = kept.Int("recent");
  method.recent_share = kept.Real("recent_share");
  method.coming = kept.Int("coming");

  if (json.contains("place")) {
    KVG_ASSIGN(const Params place,
               Params::Parse(Placement::Specs(), json["place"], origin + ": place"));
    method.place = Placement::From(place);
  }

  Json stages = json.contains("stages") ? json["stages"] : Json::object();
  std::vector<std::string> kinds;
  for (const Slot& slot : kSlots) kinds.emplace_back(slot.name);
  KVG_TRY(KnownKeys(stages, kinds, origin + ": stages"));
  FillDefaults(stages);
  for (const Slot& slot : kSlots) {
    const std::string name(slot.name);
    if (!stages.contains(name)) continue;
    KVG_ASSIGN(method.*slot.choice, ParseStage(slot, stages[name], origin));
  }
  const Status narrows = CheckNarrow(method);
  if (!narrows.ok()) return narrows.error().Wrap(origin);
  method.takes_budget = TakesBudget(method);
  const Status composed = CheckComposition(method);
  if (!composed.ok()) return composed.error().Wrap(origin);
  if (!protect.contains("recent")) method.recent = ProtectedByStages(method);
  const Status protects = CheckProtection(method);
  if (!protects.ok()) return protects.error().Wrap(origin);
  // The conformance tests read these overrides from the file; here they are checked.
  KVG_ASSIGN(const std::vector<std::string> conformance, Texts(json, "conformance", origin));
  if (!conformance.empty()) {
    Json asked = json;
    asked.erase("conformance");
    for (const std::string& text : conformance) {
      const Status applied = Override(text, asked);
      if (!applied.ok()) return applied.error().Wrap(origin + ": conformance");
    }
    KVG_TRY(ParseMethod(asked, origin + ": conformance"));
  }
  return method;
}

Result<Method> LoadMethod(const std::string& name, const std::string& directory,
                          const std::vector<std::string>& overrides) {
  std::string path = name;
  if (!name.ends_with(".json")) {
    path = StrCat(directory, "/", name, ".json");
    if (!FileExists(path)) {
      KVG_ASSIGN(const std::vector<std::string> known, ListMethods(directory));
      return BadInput(StrCat("unknown method ", Quoted(name), DidYouMeanOneOf(name, known),
                             "; 'kvgauge methods' lists all ", known.size(),
                             ", and the path of a .json file will do"));
    }
  }
  KVG_ASSIGN(Json json, ReadJsonFile(path));
  if (!json.is_object()) return BadInput(StrCat(path, ": must be a JSON object"));
  // What the conformance tests ask of the file may name parameters of a stage that is replaced.
  if (!overrides.empty()) json.erase("conformance");
  for (const std::string& text : overrides) KVG_TRY(Override(text, json));
  KVG_ASSIGN(Method method, ParseMethod(json, path));
  std::error_code unknown;  // a directory that is not there holds no file
  const std::filesystem::path holds = std::filesystem::absolute(path).parent_path();
  const bool shipped = std::filesystem::equivalent(holds, directory, unknown);
  if (!shipped && json.contains("stages") && json["stages"].contains("store")) {
    for (const auto& param : json["stages"]["store"].items()) {
      method.chosen_by_user[StrCat("store.", param.key())] = path;
    }
  }
  for (const std::string& text : overrides) {
    method.chosen_by_user[text.substr(0, text.find('='))] = StrCat("override ", Quoted(text));
  }
  const std::string stem = std::filesystem::path(path).stem().string();
  if (method.id != stem) {
    return BadInput(StrCat(path, ": \"id\" is ", Quoted(method.id), ", but the file's name says ",
                           Quoted(stem)));
  }
  return method;
}

Result<std::vector<std::string>> ListMethods(const std::string& directory) {
  std::vector<std::string> ids;
  std::error_code error;
  std::filesystem::directory_iterator files(directory, error);
  if (error) return BadInput(StrCat(directory, ": ", error.message()));
  for (const auto& file : files) {
    if (file.path().extension() == ".json") ids.push_back(file.path().stem().string());
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<StageChoice*> Method::stages() {
  std::vector<StageChoice*> there;
  for (const Slot& slot : kSlots) {
    if ((this->*slot.choice).has_value()) there.push_back(&*(this->*slot.choice));
  }
  return there;
}

std::vector<const StageChoice*> Method::stages() const {
  std::vector<const StageChoice*> there;
  for (const Slot& slot : kSlots) {
    if ((this->*slot.choice).has_value()) there.push_back(&*(this->*slot.choice));
  }
  return there;
}

Json Method::ToJson() const {
  Json stages = Json::object();
  for (const Slot& slot : kSlots) {
    const std::optional<StageChoice>& choice = this->*slot.choice;
    if (!choice) continue;
    Json params = choice->params.ToJson();
    if (choice->calibration != nullptr) {
      params[kCalibrationParam] = "sha256:" + choice->calibration->digest;
    } else if (CalibrationPath(*choice).empty()) {
      params.erase(kCalibrationParam);  // as if the stage had no such parameter
    }
    if (choice->draft != nullptr) params[kDraftModelParam] = choice->draft->fingerprint;
    if (choice->tagger != nullptr) params[kTaggerParam] = choice->tagger->fingerprint;
    Json& stage = stages[std::string(slot.name)];
    stage = {{"id", choice->spec->id}, {"version", choice->spec->version}, {"params", params}};
    if (!choice->spec->plugin.empty()) stage["plugin"] = "sha256:" + choice->spec->plugin;
  }
  Json protect = {{"sinks", sinks}, {"recent", recent}, {"recent_share", recent_share}};
  if (coming > 0) protect["coming"] = coming;
  Json json = {{"id", id}, {"version", version}, {"protect", protect}, {"stages", stages}};
  if (place.any()) json["place"] = place.ToJson();
  return json;
}

}  // namespace kvgauge
