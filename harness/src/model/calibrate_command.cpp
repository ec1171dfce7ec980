// SPDX-License-Identifier: Apache-2.0
// calibrate: what a stage of a method learns from text, as a side-file that methods can name.
#include <algorithm>
#include <filesystem>

#include "core/clock.h"
#include "core/files.h"
#include "core/json.h"
#include "core/log.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "runner/calibrate.h"
#include "runner/tokenizer.h"
#include "src/cli/print.h"
#include "src/cli/read_text.h"
#include "src/model/draft_models.h"
#include "src/model/method_flags.h"
#include "src/model/model_flags.h"
#include "src/model/safetensors_file.h"

namespace kvgauge {
namespace {

using Texts = std::vector<std::vector<int32_t>>;

constexpr int64_t kLeastTokens = 64;
constexpr int64_t kUsualWindow = 2048;

// The one stage that learns, or the one that is asked for.
Result<StageChoice*> FindLearner(Method& method, const std::string& wanted) {
  std::vector<StageChoice*> found;
  std::vector<std::string> names;
  for (StageChoice* choice : method.stages()) {
    if (choice->spec->calibrate == nullptr && !choice->spec->imports()) continue;
    names.emplace_back(NameOf(choice->spec->kind));
    if (wanted.empty() || wanted == names.back()) found.push_back(choice);
  }
  if (names.empty()) {
    return BadInput(StrCat("method ", method.id,
                           " has no stage that learns from text; those that "
                           "do have a parameter \"calibration\" in `kvgauge methods --stages`"));
  }
  if (found.empty()) {
    return BadInput(StrCat("--stage: ", Quoted(wanted), " of method ", method.id,
                           " learns nothing; expected ", Join(names, " or ")));
  }
  if (found.size() > 1) {
    return BadInput(StrCat("method ", method.id,
                           " has several stages that learn; choose with "
                           "--stage ",
                           Join(names, " or --stage ")));
  }
  return found[0];
}

// With the parameters that its tables depend on; all others are as if nothing was said of them.
Status KeepCalibratedParams(StageChoice& choice) {
  KVG_ASSIGN(const Json some, ParseJson(CalibratedParams(choice), "parameters"));
  KVG_ASSIGN(choice.params, Params::Parse(choice.spec->params, some, NameOf(*choice.spec)));
  return {};
}

// What brings the method that was asked for, with the file: a side-file is read where the
// parameters are those it was made with, and where one that may be "learned" is.
std::string UsageOf(const CalibrateOptions& options, const StageChoice& asked) {
  const std::string stage(NameOf(asked.spec->kind));
  std::vector<std::pair<std::string, std::string>> own;  // parameters and values
  bool reads = false;
  for (const ParamSpec& param : asked.spec->params) {
    if (std::ranges::find(param.choices, "learned") == param.choices.end()) continue;
    own.emplace_back(StrCat(stage, ".", param.name, "="), "learned");
    reads = reads || asked.params.Text(param.name) == "learned";
  }
  if (reads) own.clear();
  own.emplace_back(StrCat(stage, ".", kCalibrationParam, "="), options.out);
  std::vector<std::string> sets;
  for (const std::string& given : options.method.overrides) {
    const bool again = std::ranges::any_of(
        own, [&given](const auto& set) { return given.starts_with(set.first); });
    if (!again) sets.push_back(given);
  }
  for (const auto& [param, value] : own) sets.push_back(param + value);
  for (std::string& set : sets) set = ShellWord(set);
  return StrCat("--set ", Join(sets, " --set "));
}

// One text's ids, or a list of such.
Result<Texts> ReadIds(const std::string& path, int64_t vocab_size) {
  KVG_ASSIGN(const Json json, ReadJsonFile(path));
  if (!json.is_array() || json.empty()) {
    return BadInput(StrCat(path, ": expected a JSON array of token ids, or of such arrays"));
  }
  const Json lists = json[0].is_array() ? json : Json::array({json});
  Texts texts;
  for (size_t i = 0; i < lists.size(); ++i) {
    KVG_ASSIGN(
        std::vector<int32_t> ids,
        IdsFromJson(lists[i], vocab_size, lists.size() == 1 ? path : StrCat(path, ": text ", i)));
    texts.push_back(std::move(ids));
  }
  return texts;
}

// Neighbouring windows of the whole text, each behind what begins a text of this model. The tail is
// left out, unless it is all there is.
Result<Texts> ReadText(const CalibrateOptions& options, const ModelConfig& config, int64_t window) {
  if (!HasTokenizer(options.model.model)) {
    return BadInput(StrCat(options.model.model,
                           ": no tokenizer (tokenizer.json, tokenizer.model or vocab.json); give "
                           "token ids with --ids-file"));
  }
  KVG_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(options.model.model));
  KVG_ASSIGN(const std::string text, ReadTextFile(options.text_file));
  KVG_ASSIGN(const std::vector<int32_t> ids,
             tokenizer->Encode(text, {.add_special = false, .parse_special = false}));
  for (const int32_t id : ids) {
    if (id >= config.vocab_size) {
      return BadInput(StrCat(options.model.model, ": the tokenizer gives id ", id,
                             ", but the model has only ", config.vocab_size,
                             " embedding rows; tokenizer and weights do not belong together"));
    }
  }
  std::vector<int32_t> start;
  if (tokenizer->bos_id()) start.push_back(*tokenizer->bos_id());
  const int64_t body = window - std::ssize(start);
  Texts texts;
  for (int64_t begin = 0; begin < std::ssize(ids); begin += body) {
    const int64_t end = std::min(begin + body, std::ssize(ids));
    if (end - begin < body && !texts.empty()) break;
    std::vector<int32_t>& one = texts.emplace_back(start);
    one.insert(one.end(), ids.begin() + begin, ids.begin() + end);
  }
  return texts;
}

Result<Texts> ReadTexts(const CalibrateOptions& options, const StageChoice& learner,
                        const ModelConfig& config) {
  if (learner.spec->calibrate == nullptr) {
    return BadInput(StrCat(NameOf(*learner.spec),
                           " learns nothing from text; give weights that its authors publish with "
                           "--import"));
  }
  if (options.text_file.empty() == options.ids_file.empty()) {
    return BadInput("calibrate needs exactly one of --text-file, --ids-file");
  }
  const std::string& path = options.text_file.empty() ? options.ids_file : options.text_file;
  const int64_t window =
      options.window > 0 ? options.window : std::min(kUsualWindow, config.max_position);
  Texts texts;
  if (options.ids_file.empty()) {
    KVG_ASSIGN(texts, ReadText(options, config, window));
  } else {
    KVG_ASSIGN(texts, ReadIds(options.ids_file, config.vocab_size));
  }
  std::erase_if(texts, [](const std::vector<int32_t>& text) { return text.empty(); });
  if (std::ssize(texts) > options.limit) texts.resize(static_cast<size_t>(options.limit));
  int64_t tokens = 0;
  for (const std::vector<int32_t>& text : texts) tokens += std::ssize(text);
  if (tokens < kLeastTokens) {
    return BadInput(StrCat(path, ": holds ", tokens, " tokens, too few to learn from; expected ",
                           kLeastTokens, " or more"));
  }
  return texts;
}

// With tables that are drawn, where a parameter can say so: what is missing of a stage that refuses
// to do without a side-file, and is about to learn one.
StageChoice Drawn(const StageChoice& learner) {
  StageChoice drawn = learner;
  Json values = learner.params.ToJson();
  for (const ParamSpec& param : learner.spec->params) {
    for (const std::string& choice : param.choices) {
      if (choice == "random" || choice == "drawn") values[param.name] = choice;
    }
  }
  Result<Params> params = Params::Parse(learner.spec->params, values, NameOf(*learner.spec));
  if (params.ok()) drawn.params = std::move(*params);
  return drawn;
}

// The stage on the model as the stages before it leave it.
Result<LoadedModel> LoadFor(Method& method, StageChoice& learner, const ModelFlags& flags,
                            int64_t longest) {
  const Budget budget = method.takes_budget ? Budget{Budget::Kind::kFraction, 1.0} : Budget{};
  KVG_ASSIGN(const ModelOptions options, ParseModelOptions(flags));
  KVG_ASSIGN(const ModelConfig config, ReadModelConfig(flags.model));
  const ModelShape shape = ShapeFor(flags, config, options);
  const StageChoice asked = learner;
  const Status fits = CheckMethod(method, shape, budget, longest);
  if (!fits.ok()) {
    learner = Drawn(asked);
    if (!CheckMethod(method, shape, budget, longest).ok()) return fits.error();
  }
  Result<LoadedModel> loaded =
      learner.spec->kind == StageKind::kPrepare
          ? LoadModel(flags)
          : LoadModelFor({.method = method, .budget = budget}, flags, longest);
  learner = asked;
  return loaded;
}

// What a stage makes of published weights, with a look at the model's own where it needs one.
class PublishedWeights final : public Prepare {
 public:
  PublishedWeights(const CalibrateOptions& options, const StageChoice& learner)
      : path_(options.import_file), learner_(&learner) {}

  Status Read() {
    KVG_ASSIGN(published_, ReadPublished(path_));
    if (learner_->spec->import == nullptr) return {};
    return Keep(learner_->spec->import(published_));
  }
  Status Transform(WeightView& weights) const override {
    if (learner_->spec->import_with == nullptr) return {};
    return Keep(learner_->spec->import_with(published_, weights));
  }

  // Tables, which fit the model.
  Result<Calibration::Tables> Take(const ModelShape& shape) {
    auto calibration = std::make_shared<Calibration>();
    calibration->path = path_;
    calibration->tables = tables_;
    StageChoice choice = *learner_;
    choice.calibration = std::move(calibration);
    KVG_TRY(MakeStage(choice)->Check(shape));
    return std::move(tables_);
  }

 private:
  Status Keep(Result<Calibration::Tables> tables) const {
    if (!tables.ok()) return tables.error().Wrap(path_);
    tables_ = std::move(*tables);
    return {};
  }

  const std::string path_;
  const StageChoice* learner_;
  Calibration::Tables published_;
  mutable Calibration::Tables tables_;
};

Status CheckImports(const CalibrateOptions& options, const StageChoice& learner) {
  if (!options.text_file.empty() || !options.ids_file.empty()) {
    return BadInput("--import: takes the place of --text-file and --ids-file; give one of them");
  }
  if (learner.spec->imports()) return {};
  return BadInput(StrCat("--import: nothing that is published fits ", NameOf(*learner.spec),
                         "; give --text-file"));
}

}  // namespace

Status RunCalibrate(const CalibrateOptions& options) {
  const double start_s = NowSeconds();
  KVG_ASSIGN(const ModelConfig config, ReadModelConfig(options.model.model));
  KVG_ASSIGN(const std::string directory, MethodDirectory());
  KVG_ASSIGN(Method method, LoadMethod(options.method.method, directory, options.method.overrides));
  KVG_ASSIGN(StageChoice* const learner, FindLearner(method, options.stage));
  const std::string usage = UsageOf(options, *learner);
  KVG_TRY(KeepCalibratedParams(*learner));
  KVG_TRY(AttachCalibrations(method));
  KVG_TRY(AttachDraftModels(method));
  const bool imports = !options.import_file.empty();
  PublishedWeights published(options, *learner);
  Texts texts;
  if (imports) {
    KVG_TRY(CheckImports(options, *learner));
    KVG_TRY(published.Read());
  } else {
    KVG_ASSIGN(texts, ReadTexts(options, *learner, config));
  }
  int64_t tokens = 0, longest = 0;
  for (const std::vector<int32_t>& text : texts) {
    tokens += std::ssize(text);
    longest = std::max(longest, std::ssize(text));
  }
  KVG_ASSIGN(const LoadedModel loaded, imports ? LoadModel(options.model, &published)
                                               : LoadFor(method, *learner, options.model, longest));
  const auto learned = [&]() -> Result<Calibration::Tables> {
    if (imports) return published.Take(loaded.model->shape());
    return Calibrate(*loaded.model, *learner, texts, [&](int pass, int64_t text) {
      LogInfo(StrCat("pass ", pass + 1, ", text ", text + 1, " of ", texts.size()));
    });
  };
  KVG_ASSIGN(const Calibration::Tables tables, learned());

  const std::string stage = NameOf(*learner->spec);
  const std::string name =
      std::filesystem::path(options.model.model).lexically_normal().filename().string();
  SafetensorsFile file;
  for (const auto& [key, table] : tables) file.Add(key, table.values, table.shape);
  file.SetMetadata(kCalibrationFormat, "1");
  file.SetMetadata(kCalibrationStage, stage);
  file.SetMetadata(kCalibrationStageVersion, StrCat(learner->spec->version));
  file.SetMetadata(kCalibrationParams, CalibratedParams(*learner));
  file.SetMetadata(kCalibrationModel, loaded.model->fingerprint());
  file.SetMetadata(kCalibrationModelName, name);
  file.SetMetadata("texts", StrCat(texts.size()));
  file.SetMetadata("tokens", StrCat(tokens));
  KVG_TRY(file.Write(options.out));
  KVG_ASSIGN(const std::string written, ReadFile(options.out, int64_t{8} << 30));
  const std::string digest = Sha256Hex(written);
  if (options.json) {
    PrintJson({{"out", options.out},
               {"sha256", digest},
               {"stage", stage},
               {"params", learner->params.ToJson()},
               {"model", loaded.model->fingerprint()},
               {"texts", texts.size()},
               {"tokens", tokens},
               {"tables", tables.size()},
               {"bytes", written.size()},
               {"seconds", NowSeconds() - start_s}});
    return {};
  }
  PrintFacts({{"stage", stage},
              {"with", CalibratedParams(*learner)},
              {"model", StrCat(name, ", ", loaded.model->fingerprint().substr(0, 12))},
              imports ? std::pair<std::string, std::string>("imported", options.import_file)
                      : std::pair<std::string, std::string>(
                            "texts", StrCat(texts.size(), ", ", WithCommas(tokens), " tokens")),
              {"file", StrCat(options.out, ", ", tables.size(), " tables, ",
                              HumanBytes(std::ssize(written)))},
              {"sha256", digest},
              {"time", StrCat(Fixed(NowSeconds() - start_s, 1), " s")},
              {"use", usage}});
  return {};
}

}  // namespace kvgauge
