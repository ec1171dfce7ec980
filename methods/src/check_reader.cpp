// SPDX-License-Identifier: Apache-2.0
// What a reader asks of the stages beside it.
#include "core/strings.h"
#include "methods/absorbing_reader.h"
#include "methods/far_reader.h"
#include "methods/layouts/shared_directions.h"
#include "methods/method.h"
#include "methods/question_reader.h"
#include "src/composition.h"

namespace kvgauge {
namespace {

// Whether entries do not lie in the order of their positions.
bool OrdersAnew(const Pipeline& p, const ModelShape& shape) {
  if (p.store->classifies()) return true;
  for (int64_t l = 0; l < shape.layers; ++l) {
    const Result<StorePlan> plan = p.store->Plan(shape.OfLayer(l), l);
    if (plan.ok() && plan->Get<SharedDirections>() != nullptr) return true;
  }
  return false;
}

// Layers that read by the choices of others hold what those hold, where they hold it.
Status CheckSharedChoices(const Method& method, const Pipeline& p, const ModelShape& shape) {
  if (p.read == nullptr || !p.read->shares_choices()) return {};
  const std::string owner = NameOf(*method.read->spec);
  const auto refuse = [&](std::string_view what, std::string_view other) {
    return BadInput(StrCat(owner, " lets layers read by the choices of others, and ", what,
                           ", so that they hold other entries; ", other));
  };
  if (p.thin != nullptr) {
    return refuse(StrCat(NameOf(*method.thin->spec), " drops rows between layers"),
                  "leave out one of the two");
  }
  if (p.reduce != nullptr && p.reduce->evicts()) {
    return refuse(StrCat(NameOf(*method.reduce->spec), " chooses for each layer"),
                  "leave out one of the two");
  }
  if (!OrdersAnew(p, shape)) return {};
  return refuse(StrCat(NameOf(*method.store->spec), " orders entries anew"), "use store.plain");
}

// What a reader takes in must leave, and leave nothing of itself in what stays.
Status CheckAbsorbs(const Method& method, const Pipeline& p) {
  if (dynamic_cast<const AbsorbingReader*>(p.read.get()) == nullptr) return {};
  const std::string owner = NameOf(*method.read->spec);
  if (p.reduce == nullptr || !p.reduce->evicts()) {
    return BadInput(StrCat(owner,
                           " takes in what a reduce stage lets go, and nothing is let go; add a "
                           "score, such as h2o, and \"reduce\": {\"id\": \"top_k\"}"));
  }
  for (const auto& [choice, stage] : {std::pair{&method.reduce, p.reduce.get()},
                                      std::pair{&method.decode_reduce, p.decode_reduce.get()}}) {
    if (stage == nullptr || !stage->merges_keys()) continue;
    return BadInput(StrCat(owner, " would count twice what ", NameOf(*(*choice)->spec),
                           " merges into entries that stay; use reduce.top_k"));
  }
  return {};
}

// What a reader takes for far is as far as the store says.
Status CheckFarDistance(const Method& method, const Pipeline& p, const ModelShape& shape) {
  // The pipeline's reader may be one around it.
  const std::unique_ptr<Stage> stage = method.read ? MakeStage(*method.read) : nullptr;
  const auto* far = dynamic_cast<const FarReader*>(stage.get());
  if (far == nullptr || shape.rotary_dim == 0) return {};
  const int64_t distance = far->far_distance();
  for (int64_t l = 0; l < shape.layers; ++l) {
    const Result<StorePlan> plan = p.store->Plan(shape.OfLayer(l), l);
    if (!plan.ok()) continue;
    const KeyTurn& turn = plan->turn;
    const bool clips = turn.position == PositionPolicy::kClipped;
    if (clips && turn.position_limit == distance) continue;
    const std::string found =
        clips ? StrCat("has position_limit ", turn.position_limit) : "leaves it where it is";
    return BadInput(
        StrCat(NameOf(*method.read->spec), " chooses as if all that is far were ", distance,
               " tokens away, and ", NameOf(*method.store->spec), " ", found,
               "; use store.plain with position=clipped and position_limit=", distance));
  }
  return {};
}

// What all heads of a layer read for a question must be there until it is answered.
Status CheckQuestionReader(const Method& method, const Pipeline& p, const ModelShape& shape) {
  const auto* reader = dynamic_cast<const QuestionReader*>(p.read.get());
  if (reader == nullptr) return {};
  const std::string owner = NameOf(*method.read->spec);
  if (p.thin != nullptr) {
    return BadInput(StrCat(owner, " chooses by all rows of a question, and ",
                           NameOf(*method.thin->spec),
                           " may let some of them go; leave out one of the two"));
  }
  if (OrdersAnew(p, shape)) {
    return BadInput(StrCat(owner, " finds entries by the order of their positions, and ",
                           NameOf(*method.store->spec),
                           " orders them anew, while a question is answered, too; use a store "
                           "that does not, such as plain or kivi"));
  }
  if (p.reduce == nullptr || !p.reduce->evicts()) return {};
  const std::string reducer = NameOf(*method.reduce->spec);
  if (reader->moves()) {
    return BadInput(StrCat(owner, " puts entries of all heads to other places, and ", reducer,
                           " leaves each head others; leave out one of the two"));
  }
  if (p.trigger->in_decode()) {
    return BadInput(StrCat(owner, " chooses once for a question, and ",
                           NameOf(*method.trigger->spec),
                           " evicts while it is answered; use trigger.prefill"));
  }
  if (p.allocate->evens_heads() && p.reduce->takes_budget()) return {};
  return BadInput(StrCat(owner, " lets all heads of a layer read the same of their entries, and ",
                         p.allocate->evens_heads() ? reducer : NameOf(*method.allocate->spec),
                         " leaves some heads fewer; use allocate.uniform with a reducer that keeps "
                         "to a budget"));
}

// Keys whose places a reader chooses are turned when they are read, and by no other rule.
Status CheckReadPlaces(const Method& method, const Pipeline& p, const ModelShape& shape) {
  const auto* reader = dynamic_cast<const QuestionReader*>(p.read.get());
  if (reader == nullptr || !reader->moves() || shape.rotary_dim == 0) return {};
  for (int64_t l = 0; l < shape.layers; ++l) {
    const Result<StorePlan> plan = p.store->Plan(shape.OfLayer(l), l);
    if (!plan.ok()) continue;
    const KeyTurn& turn = plan->turn;
    if (turn.raw && turn.position == PositionPolicy::kOriginal) continue;
    return BadInput(StrCat(
        NameOf(*method.read->spec), " says by which positions keys turn when they are read, and ",
        NameOf(*method.store->spec), turn.raw ? " has another rule" : " keeps them turned",
        "; use store.plain with position=read"));
  }
  return {};
}

}  // namespace

Status CheckReader(const Method& method, const Pipeline& p, const ModelShape& shape) {
  KVG_TRY(CheckSharedChoices(method, p, shape));
  KVG_TRY(CheckAbsorbs(method, p));
  KVG_TRY(CheckFarDistance(method, p, shape));
  KVG_TRY(CheckQuestionReader(method, p, shape));
  return CheckReadPlaces(method, p, shape);
}

}  // namespace kvgauge
