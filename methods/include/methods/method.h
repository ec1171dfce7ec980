// SPDX-License-Identifier: Apache-2.0
// A method: a JSON file that names stages and their parameters, validated and ready to be made once
// for each sample.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/params.h"
#include "core/result.h"
#include "methods/draft_model.h"
#include "methods/placement.h"
#include "methods/registry.h"
#include "methods/token_tagger.h"

namespace kvgauge {

// How much a method may keep, per KV head on average.
struct Budget {
  enum class Kind { kNone, kEntries, kFraction, kBytesPerToken };
  Kind kind = Kind::kNone;
  double value = 0.0;

  // "0.2" and "20%" are fractions, "512" entries, "64B" bytes per context token, all layers and
  // heads together; "none".
  static Result<Budget> Parse(std::string_view text);
  // As Parse reads it, a fraction in percent ("20%"): the same in messages, records and tables.
  std::string ToString() const;
};
// "none", "entries", "fraction", "bytes_per_token"; also in the record.
std::string_view NameOf(Budget::Kind kind);

struct StageChoice {
  const StageSpec* spec = nullptr;
  std::string slot = {};  // where the method has it: its kind, or "decode_score", ...
  Params params;
  std::shared_ptr<const Calibration> calibration = nullptr;  // of the side-file, once attached
  std::shared_ptr<const DraftModel> draft = nullptr;         // that it names, once attached
  std::shared_ptr<const TaggerModel> tagger = nullptr;       // the same
};

// The stage, with its calibration.
std::unique_ptr<Stage> MakeStage(const StageChoice& choice);
// The side-file that a choice names; "": none.
std::string CalibrationPath(const StageChoice& choice);
// Refuses a side-file of another stage, version or other parameters.
Status AttachCalibration(StageChoice& choice, std::shared_ptr<const Calibration> calibration);
// The checkpoint that a choice names to answer prompts; "": none, or the measured model itself.
std::string DraftModelPath(const StageChoice& choice);
// The encoder that a choice names; "": none.
std::string TaggerPath(const StageChoice& choice);
// Canonical JSON of the parameters that a calibration depends on.
std::string CalibratedParams(const StageChoice& choice);
// Equal for choices whose stages compute the same: id, parameters, calibration. Precondition: of
// one kind.
std::string StageKey(const StageChoice& choice);

// A published number for a method's speed or memory, shown beside what is measured here.
struct PublishedNumber {
  enum class What {
    kDecodeTimes,  // full cache's time a token over the method's
    kCacheTimes,   // full cache's resident bytes over the method's
    kPeakTimes,    // the same of peak bytes, weights included
    kEntryBytes,   // resident bytes a token and layer
  };
  What what = What::kDecodeTimes;
  double value = 0;
  int64_t context_tokens = 0;  // 0: any
  // The number holds for models whose latents have so many numbers, rotated ones included; 0: all.
  int64_t latent_numbers = 0;
  std::string source = {};
};
std::string_view NameOf(PublishedNumber::What what);    // "decode_times", ..., as files say
std::string_view Describe(PublishedNumber::What what);  // for people

struct Method {
  std::string id;
  std::string title;
  std::string family;  // selection, budget, merging, quantization, low_rank, retrieval, reuse,
                       // architecture, baseline
  std::string paper;
  int version = 1;
  std::vector<std::string> departures;
  std::vector<PublishedNumber> published;
  bool takes_budget = false;
  bool experimental = false;
  std::string experimental_because = {};  // why nothing independent holds it; empty: not said
  // Entries that are never evicted: the first `sinks`, the last `recent`, or as many of the last as
  // make up `recent_share` of a head's entries, if that is more.
  int64_t sinks = 0, recent = 0;
  double recent_share = 0.0;
  int64_t coming = 0;  // entries of a budget that is not the whole prompt, left to tokens to come
  Placement place;     // which entries lie on the host
  // Parameters that a user chose, as "store.group", and where: in an own file, or by an override.
  // Shipped files suit many models, so some checks are for these alone. No part of the identity.
  std::map<std::string, std::string> chosen_by_user = {};
  // `store` is always set; score, allocate, reduce and trigger are set together or not at all.
  // `see` acts on pictures before the prompt is made, `attend`, `reuse` and `thin` while it is
  // read.
  // `narrow` is a reader that reads less of what `read` chooses.
  std::optional<StageChoice> prepare, see, attend, reuse, thin, score, allocate, reduce, store,
      read, narrow, trigger;
  // In place of score, allocate and reduce while decoding.
  std::optional<StageChoice> decode_score, decode_allocate, decode_reduce;

  // The union over all stages. Signals of decode steps are included only if a stage uses them in
  // decode.
  Needs needs() const;
  // The stages that are set, in the order in which they act.
  std::vector<StageChoice*> stages();
  std::vector<const StageChoice*> stages() const;
  // Every stage with its version and every parameter, canonical: part of a cell's key. A side-file
  // and the plugin that a stage came from count by their content, wherever they lie.
  Json ToJson() const;
};

// `name`: an id under `directory` (configs/methods), or a path that ends in .json. `overrides`:
// "stage.param=value", "protect.recent=16".
Result<Method> LoadMethod(const std::string& name, const std::string& directory,
                          const std::vector<std::string>& overrides);
Result<Method> ParseMethod(const Json& json, const std::string& origin);
// Ids under a directory, sorted.
Result<std::vector<std::string>> ListMethods(const std::string& directory);

// The stages of one sample.
struct Pipeline {
  std::unique_ptr<Prepare> prepare;
  std::unique_ptr<See> see;
  std::unique_ptr<Attend> attend;
  std::unique_ptr<Reuse> reuse;
  std::unique_ptr<Thin> thin;
  std::unique_ptr<Scorer> score;
  std::unique_ptr<Allocator> allocate;
  std::unique_ptr<Reducer> reduce;
  std::unique_ptr<Scorer> decode_score;
  std::unique_ptr<Allocator> decode_allocate;
  std::unique_ptr<Reducer> decode_reduce;
  std::unique_ptr<Store> store;
  std::unique_ptr<Reader> read;  // and narrow
  std::unique_ptr<Trigger> trigger;

  // Those that act in decode. Precondition: there is a reducer.
  const Scorer& StepScore() const { return decode_score ? *decode_score : *score; }
  const Allocator& StepAllocate() const { return decode_allocate ? *decode_allocate : *allocate; }
  const Reducer& StepReduce() const { return decode_reduce ? *decode_reduce : *reduce; }
  // Whether heads are given entries anew in decode.
  bool AllocatesInDecode() const { return decode_allocate || trigger->allocates_again(); }
};
Pipeline MakePipeline(const Method& method);

// Refuses a method that cannot work on this model or within this budget, before anything runs:
// names the stage, the parameter and what would be right. `prompt_tokens`: the longest prompt
// planned.
Status CheckMethod(const Method& method, const ModelShape& shape, const Budget& budget,
                   int64_t prompt_tokens);

// What a method does on such a model that its file does not say: groups along an entry whose last
// one is shorter. One sentence each, for people. Precondition: CheckMethod.
std::vector<std::string> ShorterGroups(const Method& method, const ModelShape& shape);

// Refuses a method that would evict, code, read or move entries where rows go on joining them
// (ModelShape::running_entries). A part of CheckMethod, for models that are prepared already.
Status CheckRunningEntries(const Method& method, const ModelShape& shape);

// Refuses all but the full cache where prompts go through the layers several times
// (ModelShape::prompt_passes). A part of CheckMethod.
Status CheckPromptPasses(const Method& method, const ModelShape& shape);

// The same where layers make keys and values anew of what a cache holds (ModelShape::made_keys).
Status CheckMadeKeys(const Method& method, const ModelShape& shape);

// The same where entries are blocks of tokens (ModelShape::entry_tokens).
Status CheckBlockEntries(const Method& method, const ModelShape& shape);

// Refuses a method whose `see` stage cannot work with the eyes of a model (none: a text model).
Status CheckSee(const Method& method, const std::optional<EyesShape>& eyes);

// Refuses calibrations that were made on another checkpoint than the one with this fingerprint.
Status CheckCalibrations(const Method& method, std::string_view model);

// What each head may hold for a prompt of `length`.
struct HeadBudget {
  int64_t entries = 0;            // on average, protected ones included
  int64_t sinks = 0, recent = 0;  // protected, together at most `entries`
};
// All of `length` when the method takes no budget; never less than what is protected. `shape`: the
// checkpoint's, before a `prepare` stage. Precondition: CheckMethod.
HeadBudget HeadBudgetFor(const Method& method, const ModelShape& shape, const Budget& budget,
                         int64_t length);
// By how many entries a head's allocation has grown since the prompt when `tokens` were seen. The
// budget of the prompt is constant unless the trigger lets it grow. Two budgets always grow: a
// number of entries that the prompt did not fill, and the whole prompt (1.0), which includes all
// that follows.
int64_t GrowthOf(const Method& method, const ModelShape& shape, const Budget& budget,
                 int64_t prompt_tokens, int64_t tokens);

}  // namespace kvgauge
