// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/json.h"
#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/method.h"
#include "src/composition.h"

namespace kvgauge {
namespace {

template <class T>
std::unique_ptr<T> MakeOptional(const std::optional<StageChoice>& choice) {
  if (!choice) return nullptr;
  std::unique_ptr<Stage> stage = MakeStage(*choice);
  auto* typed = dynamic_cast<T*>(stage.get());
  KVG_CHECK(typed != nullptr, StrCat("stage ", choice->spec->id, " is not what it registered as"));
  static_cast<void>(stage.release());  // `typed` is the same object
  return std::unique_ptr<T>(typed);
}

// Both ascend.
template <class T>
void Unite(std::vector<T>& all, const std::vector<T>& more) {
  for (const T& one : more) {
    const auto at = std::lower_bound(all.begin(), all.end(), one);
    if (at == all.end() || *at != one) all.insert(at, one);
  }
}

}  // namespace

std::unique_ptr<Stage> MakeStage(const StageChoice& choice) {
  std::unique_ptr<Stage> stage = choice.spec->make(choice.params);
  if (choice.calibration != nullptr) stage->Use(choice.calibration);
  return stage;
}

std::string StageKey(const StageChoice& choice) {
  std::string key = choice.spec->id + choice.params.ToJson().dump();
  if (choice.calibration != nullptr) key += choice.calibration->digest;
  return key;
}

Needs& Needs::operator|=(const Needs& other) {
  window = std::max(window, other.window);
  question_rows = std::max(question_rows, other.question_rows);
  Unite(last_row_of, other.last_row_of);
  column_sums |= other.column_sums;
  column_squares |= other.column_squares;
  Unite(chunk_sums, other.chunk_sums);
  Unite(query_moments, other.query_moments);
  raw_keys |= other.raw_keys;
  output_weights |= other.output_weights;
  step_attention |= other.step_attention;
  step_queries |= other.step_queries;
  token_classes |= other.token_classes;
  encoder |= other.encoder;
  modality |= other.modality;
  return *this;
}

Result<std::vector<Probe>> Scorer::Probes(const ProbeInput&) const { return std::vector<Probe>(); }
void Scorer::Age(LayerView&, Tensor) const {}
void Reader::Correct(LayerView&, State&, Tensor) const {}

Pipeline MakePipeline(const Method& method) {
  return {MakeOptional<Prepare>(method.prepare), MakeOptional<See>(method.see),
          MakeOptional<Scorer>(method.score),    MakeOptional<Allocator>(method.allocate),
          MakeOptional<Reducer>(method.reduce),  MakeOptional<Store>(method.store),
          MakeOptional<Reader>(method.read),     MakeOptional<Trigger>(method.trigger)};
}

Needs Method::needs() const {
  const Pipeline p = MakePipeline(*this);
  Needs all;
  for (const Stage* stage : std::initializer_list<const Stage*>{p.score.get(), p.allocate.get(),
                                                                p.reduce.get(), p.trigger.get()}) {
    if (stage != nullptr) all |= stage->needs();
  }
  if (p.trigger == nullptr || !p.trigger->in_decode()) {
    all.step_attention = all.step_queries = false;
  }
  for (const Stage* stage :
       std::initializer_list<const Stage*>{p.prepare.get(), p.store.get(), p.read.get()}) {
    if (stage != nullptr) all |= stage->needs();
  }
  return all;
}

int64_t ProtectedByStages(const Method& method) {
  const Pipeline p = MakePipeline(method);
  int64_t most = 0;
  for (const Stage* stage :
       std::initializer_list<const Stage*>{p.score.get(), p.allocate.get(), p.reduce.get()}) {
    if (stage != nullptr) most = std::max(most, stage->protects());
  }
  return most;
}

Status CheckComposition(const Method& method) {
  if (!method.reduce) {
    const std::pair<const char*, const std::optional<StageChoice>*> idle[] = {
        {"score", &method.score}, {"allocate", &method.allocate}, {"trigger", &method.trigger}};
    for (const auto& [kind, choice] : idle) {
      if (!*choice) continue;
      return BadInput(StrCat(kind, ".", (*choice)->spec->id,
                             " has no effect without a reduce stage; add \"reduce\": {\"id\": "
                             "\"top_k\"}"));
    }
    if (method.sinks > 0 || method.recent > 0 || method.recent_share > 0) {
      return BadInput("protect has no effect without a reduce stage, as nothing is given up");
    }
    return {};
  }
  if (!method.score) {
    return BadInput(StrCat("reduce.", method.reduce->spec->id,
                           " needs scores; add a score stage, such as recency"));
  }
  const Pipeline p = MakePipeline(method);
  const std::string_view scorer = p.allocate->reads_scores_of();
  if (!scorer.empty() && scorer != method.score->spec->id) {
    return BadInput(StrCat("allocate.", method.allocate->spec->id, " reads the scores of score.",
                           scorer, ", not those of score.", method.score->spec->id,
                           "; use that scorer, or allocate.uniform"));
  }
  if (p.trigger->in_decode() && !p.score->ages() && !p.score->any_time()) {
    return BadInput(StrCat("trigger.", method.trigger->spec->id, " acts in decode, where score.",
                           method.score->spec->id,
                           " gives new entries no score; use trigger.prefill, or a score that "
                           "continues in decode, such as h2o or recency"));
  }
  return {};
}

}  // namespace kvgauge
