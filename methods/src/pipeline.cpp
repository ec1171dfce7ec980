// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/json.h"
#include "core/strings.h"
#include "methods/biasing_reader.h"
#include "methods/calibration.h"
#include "methods/condensing_thin.h"
#include "methods/encoding_thin.h"
#include "methods/method.h"
#include "methods/narrowing_reader.h"
#include "methods/question_reader.h"
#include "methods/thoughts.h"
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

std::unique_ptr<Reader> MakeReader(const Method& method) {
  auto read = MakeOptional<Reader>(method.read);
  if (!method.narrow) return read;
  return MakeNarrowed(std::move(read), MakeOptional<NarrowingReader>(method.narrow));
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
  Unite(gates, other.gates);
  Unite(step_gates, other.step_gates);
  inputs |= other.inputs;
  first_rows = std::max(first_rows, other.first_rows);
  surprise |= other.surprise;
  raw_keys |= other.raw_keys;
  output_weights |= other.output_weights;
  step_window = std::max(step_window, other.step_window);
  step_attention |= other.step_attention;
  step_queries |= other.step_queries;
  guessed_queries |= other.guessed_queries;
  products |= other.products;
  token_classes |= other.token_classes;
  encoder |= other.encoder;
  modality |= other.modality;
  return *this;
}

Result<std::vector<Probe>> Scorer::Probes(const ProbeInput&) const { return std::vector<Probe>(); }

void Scorer::ScoreForDraft(LayerView&, Tensor) const {
  KVG_CHECK(false, "a scorer that drafts says which entries are held meanwhile");
}
void Scorer::Start(LayerView& view, Tensor numbers) const { Score(view, numbers[0]); }
void Scorer::Age(LayerView&, Tensor) const {}
void Scorer::Rank(LayerView&, const Tensor&, Tensor) const {
  KVG_CHECK(false, "a score of two numbers says how it follows from them");
}
void Reader::Correct(LayerView&, State&, Tensor) const {}
Status Reader::Fields(LayerView&, State&, StateFields&) const {
  KVG_CHECK(false, "a reader whose state is saved says what it is");
}

Pipeline MakePipeline(const Method& method) {
  return {.prepare = MakeOptional<Prepare>(method.prepare),
          .see = MakeOptional<See>(method.see),
          .attend = MakeOptional<Attend>(method.attend),
          .reuse = MakeOptional<Reuse>(method.reuse),
          .thin = MakeOptional<Thin>(method.thin),
          .score = MakeOptional<Scorer>(method.score),
          .allocate = MakeOptional<Allocator>(method.allocate),
          .reduce = MakeOptional<Reducer>(method.reduce),
          .decode_score = MakeOptional<Scorer>(method.decode_score),
          .decode_allocate = MakeOptional<Allocator>(method.decode_allocate),
          .decode_reduce = MakeOptional<Reducer>(method.decode_reduce),
          .store = MakeOptional<Store>(method.store),
          .read = MakeReader(method),
          .trigger = MakeOptional<Trigger>(method.trigger)};
}

Needs Method::needs() const {
  const Pipeline p = MakePipeline(*this);
  const bool in_decode = p.trigger != nullptr && p.trigger->in_decode();
  // Signals of the prompt, unless `prompt` is off, and of decode steps.
  Needs all;
  const auto add = [&](const Stage* stage, bool prompt, bool steps) {
    if (stage == nullptr) return;
    Needs own = stage->needs();
    if (!steps) {
      own.step_attention = own.step_queries = false;
      own.step_window = 0;
      own.step_gates.clear();
    }
    if (!prompt) {
      own = {.gates = own.gates,
             .step_gates = own.step_gates,
             .raw_keys = own.raw_keys,
             .output_weights = own.output_weights,
             .step_window = own.step_window,
             .step_attention = own.step_attention,
             .step_queries = own.step_queries,
             .token_classes = own.token_classes,
             .modality = own.modality};
    }
    all |= own;
  };
  add(p.attend.get(), true, false);
  add(p.thin.get(), true, false);
  add(p.score.get(), true, in_decode && p.decode_score == nullptr);
  add(p.allocate.get(), true, in_decode && p.decode_allocate == nullptr);
  add(p.reduce.get(), true, in_decode && p.decode_reduce == nullptr);
  add(p.decode_score.get(), p.decode_score != nullptr && p.decode_score->ages(), in_decode);
  add(p.decode_allocate.get(), false, in_decode);
  add(p.decode_reduce.get(), false, in_decode);
  add(p.trigger.get(), true, in_decode);
  // The first steps look back on the prompt.
  all.window = std::max(all.window, all.step_window);
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
       std::initializer_list<const Stage*>{p.score.get(), p.allocate.get(), p.reduce.get(),
                                           p.decode_score.get(), p.decode_reduce.get()}) {
    if (stage != nullptr) most = std::max(most, stage->protects());
  }
  return most;
}

namespace {

Status CheckDecode(const Method& method, const Pipeline& p) {
  const std::string trigger = StrCat("trigger.", method.trigger->spec->id);
  if (!p.trigger->in_decode()) {
    for (const auto* choice :
         {&method.decode_score, &method.decode_allocate, &method.decode_reduce}) {
      if (!choice->has_value()) continue;
      return BadInput(StrCat((*choice)->slot, ".", (*choice)->spec->id, " has no effect, as ",
                             trigger,
                             " does not act in decode; use trigger.interval or "
                             "trigger.every_step"));
    }
    return {};
  }
  const StageChoice& score = *(method.decode_score ? method.decode_score : method.score);
  if (!p.StepScore().ages() && !p.StepScore().any_time()) {
    return BadInput(StrCat(trigger, " acts in decode, where score.", score.spec->id,
                           " gives new entries no score; use trigger.prefill, or a score that "
                           "continues in decode, such as h2o or recency"));
  }
  if (!p.AllocatesInDecode() && !p.trigger->AfterPrefill() && p.allocate->needs_scores()) {
    return BadInput(StrCat("allocate.", method.allocate->spec->id, " looks at scores, and ",
                           trigger,
                           " takes none of the prompt; set trigger.again=true, or use "
                           "allocate.uniform"));
  }
  if (p.AllocatesInDecode() && !p.StepAllocate().any_time()) {
    const StageChoice& allocate =
        *(method.decode_allocate ? method.decode_allocate : method.allocate);
    return BadInput(StrCat(trigger, " allocates again in decode, where allocate.",
                           allocate.spec->id,
                           " lacks what it looks at in prompts; set trigger.again=false, or use "
                           "allocate.uniform, ada or global"));
  }
  return {};
}

// A reducer that reads one scorer's scores, and keeps the same entries in all heads of a layer.
Status CheckLayerReducer(const std::optional<StageChoice>& choice, const Reducer& reduce,
                         const std::optional<StageChoice>& score, const Allocator& allocate) {
  const auto* of_layer = dynamic_cast<const LayerReducer*>(&reduce);
  if (of_layer == nullptr) return {};
  const std::string owner = StrCat(choice->slot, ".", choice->spec->id);
  if (of_layer->reads_scores_of() != score->spec->id) {
    return BadInput(StrCat(owner, " reads the scores of score.", of_layer->reads_scores_of(),
                           ", not those of score.", score->spec->id,
                           "; use that scorer, or reduce.top_k"));
  }
  if (allocate.evens_heads()) return {};
  return BadInput(StrCat(owner,
                         " keeps the same entries in all heads of a layer, which may be given "
                         "different numbers of them; use allocate.uniform"));
}

}  // namespace

Status CheckNarrow(const Method& method) {
  if (!method.narrow) return {};
  const std::string narrow = StrCat(method.narrow->slot, ".", method.narrow->spec->id);
  if (!method.read) {
    return BadInput(StrCat(narrow,
                           " reads less of what another reader chooses, and there is none; "
                           "name one under read, or this one"));
  }
  const std::unique_ptr<Stage> stage = MakeStage(*method.narrow);
  if (dynamic_cast<const NarrowingReader*>(stage.get()) == nullptr) {
    return BadInput(StrCat(narrow,
                           " chooses among all entries, not among those that another "
                           "reader chose; use narrow.top_p, or name it under read"));
  }
  const std::unique_ptr<Stage> read = MakeStage(*method.read);
  const auto* reader = dynamic_cast<const Reader*>(read.get());
  if (dynamic_cast<const QuestionReader*>(reader) != nullptr) {
    return BadInput(StrCat(NameOf(*method.read->spec),
                           " says once for a question what its rows read and where that stands, "
                           "and ",
                           narrow, " would leave gaps in it; leave out one of the two"));
  }
  if (dynamic_cast<const BiasingReader*>(reader) == nullptr && !reader->corrects()) return {};
  return BadInput(StrCat(NameOf(*method.read->spec), " makes up for what it does not read, and ",
                         narrow, " would read less than it counts on; leave out one of the two"));
}

// What is left of a prompt whose rows leave is no prompt of its own: other stages must do with
// that.
Status CheckThinned(const Method& method, const Pipeline& p) {
  if (p.thin == nullptr) return {};
  const std::string thin = StrCat("thin.", method.thin->spec->id);
  if (p.attend != nullptr) {
    return BadInput(StrCat(NameOf(*method.attend->spec),
                           " looks at whole prompts in every layer, "
                           "and ",
                           thin, " lets rows go in between; leave out one of the two"));
  }
  if (method.prepare && dynamic_cast<const EncodingThin*>(p.thin.get()) != nullptr) {
    return BadInput(StrCat(NameOf(*method.prepare->spec), " changes weights of the decoder, and ",
                           thin,
                           " has its layers attend to an encoder's rows by weights of the "
                           "checkpoint; leave out one of the two"));
  }
  const Needs needs = method.needs();
  const std::pair<bool, const char*> missing[] = {
      {!needs.chunk_sums.empty(), "attention inside chunks of the prompt"},
      {!needs.query_moments.empty(), "moments of the queries of all rows"},
      {!needs.gates.empty(), "gates of all rows"},
      {needs.inputs, "the inputs of all rows"},
      {p.score != nullptr && (p.score->ProbeRows(1) > 0 || p.score->DraftRows() > 0),
       "probes of the whole prompt"}};
  if (p.read != nullptr && p.read->needs().surprise) {
    return BadInput(StrCat(NameOf(*method.read->spec),
                           " needs how little each token was expected, and ", thin,
                           " lets rows go before the last layer; leave out one of the two"));
  }
  const StageChoice& other = method.score ? *method.score : *method.store;
  for (const auto& [wanted, what] : missing) {
    if (!wanted) continue;
    return BadInput(StrCat(NameOf(*other.spec), " needs ", what, ", and ", thin,
                           " lets rows go before the last layer; use another stage, such as "
                           "score.snapkv, or leave out one of the two"));
  }
  for (const auto& [choice, stage] :
       {std::pair{&method.allocate, p.allocate.get()},
        std::pair{&method.decode_allocate, p.decode_allocate.get()}}) {
    if (stage == nullptr || !stage->needs_scores()) continue;
    return BadInput(StrCat((*choice)->slot, ".", (*choice)->spec->id,
                           " compares the scores of all layers, and ", thin,
                           " leaves layers different entries; use allocate.uniform or pyramid"));
  }
  return {};
}

// A prompt that is put together of caches, or condensed chunk by chunk, has no captures: other
// stages do with the entries alone.
Status CheckUncaptured(const Method& method, const Pipeline& p) {
  const bool condenses = dynamic_cast<const CondensingThin*>(p.thin.get()) != nullptr;
  if (!method.reuse && !condenses) return {};
  const StageChoice& reader = method.reuse ? *method.reuse : *method.thin;
  const std::string name = NameOf(*reader.spec);
  const std::string reads =
      StrCat(name, method.reuse ? " does not read all of it" : " reads it chunk by chunk");
  for (const auto* choice : {&method.thin, &method.reduce}) {
    if (!choice->has_value() || &**choice == &reader) continue;
    return BadInput(StrCat(NameOf(*(*choice)->spec), " chooses by the attention of a prompt that ",
                           "is read whole, and ", reads, "; leave out one of the two"));
  }
  if (condenses && method.prepare) {
    return BadInput(StrCat(NameOf(*method.prepare->spec), " changes projections, and ", name,
                           " has trained weights for those of the checkpoint; leave out one of "
                           "the two"));
  }
  for (const StageChoice* choice : method.stages()) {
    const Needs needs = MakeStage(*choice)->needs();
    const bool looks = needs.window > 0 || needs.column_sums || needs.column_squares ||
                       !needs.chunk_sums.empty() || !needs.query_moments.empty() ||
                       !needs.gates.empty() || needs.inputs || !needs.last_row_of.empty() ||
                       needs.question_rows > 0 || needs.modality || needs.surprise ||
                       needs.first_rows > 0 ||
                       (condenses && (needs.raw_keys || needs.step_window > 0));
    if (!looks) continue;
    return BadInput(StrCat(NameOf(*choice->spec), " needs signals of the whole prompt, and ", reads,
                           "; leave out one of the two"));
  }
  return {};
}

Status CheckComposition(const Method& method) {
  KVG_TRY(CheckUncaptured(method, MakePipeline(method)));
  if (!method.reduce) {
    const std::pair<const char*, const std::optional<StageChoice>*> idle[] = {
        {"score", &method.score},
        {"allocate", &method.allocate},
        {"trigger", &method.trigger},
        {"decode_score", &method.decode_score},
        {"decode_allocate", &method.decode_allocate},
        {"decode_reduce", &method.decode_reduce}};
    for (const auto& [kind, choice] : idle) {
      if (!*choice) continue;
      return BadInput(StrCat(kind, ".", (*choice)->spec->id,
                             " has no effect without a reduce stage; add \"reduce\": {\"id\": "
                             "\"top_k\"}"));
    }
    KVG_TRY(CheckThinned(method, MakePipeline(method)));
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
  KVG_TRY(CheckThinned(method, p));
  if (!p.reduce->takes_budget() && p.allocate->needs_scores()) {
    return BadInput(StrCat("allocate.", method.allocate->spec->id, " has no effect, as reduce.",
                           method.reduce->spec->id, " keeps what its scores say; leave it out"));
  }
  if (p.decode_reduce != nullptr && p.decode_reduce->takes_budget() != p.reduce->takes_budget()) {
    return BadInput(StrCat("decode_reduce.", method.decode_reduce->spec->id, " and reduce.",
                           method.reduce->spec->id,
                           " differ in whether a budget says what stays; use two that agree"));
  }
  const std::string_view scorer = p.allocate->reads_scores_of();
  if (!scorer.empty() && scorer != method.score->spec->id) {
    return BadInput(StrCat("allocate.", method.allocate->spec->id, " reads the scores of score.",
                           scorer, ", not those of score.", method.score->spec->id,
                           "; use that scorer, or allocate.uniform"));
  }
  KVG_TRY(CheckLayerReducer(method.reduce, *p.reduce, method.score, *p.allocate));
  if (p.decode_reduce != nullptr) {
    KVG_TRY(CheckLayerReducer(method.decode_reduce, *p.decode_reduce,
                              method.decode_score ? method.decode_score : method.score,
                              p.decode_allocate ? *p.decode_allocate : *p.allocate));
    const bool prompt = dynamic_cast<const LayerReducer*>(p.reduce.get()) != nullptr;
    if (!prompt && dynamic_cast<const LayerReducer*>(p.decode_reduce.get()) != nullptr) {
      return BadInput(StrCat("decode_reduce.", method.decode_reduce->spec->id,
                             " keeps the same entries in all heads of a layer, and reduce.",
                             method.reduce->spec->id, " does not; use reduce.",
                             method.decode_reduce->spec->id));
    }
  }
  return CheckDecode(method, p);
}

bool TakesBudget(const Method& method) {
  if (!method.reduce) return false;
  const Pipeline p = MakePipeline(method);
  return p.reduce->takes_budget();
}

Status CheckProtection(const Method& method) {
  const int64_t rows = method.needs().step_window;
  if (rows <= method.recent) return {};
  const StageChoice& score = *(method.decode_score ? method.decode_score : method.score);
  return BadInput(StrCat("protect.recent is ", method.recent, ", but score.", score.spec->id,
                         " looks back from the last ", rows,
                         " rows in decode, whose own entries must stay; raise it to ", rows,
                         ", or leave it out"));
}

}  // namespace kvgauge
