// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "methods/condensing_thin.h"
#include "methods/encoding_thin.h"
#include "methods/joining_reader.h"
#include "methods/layouts/mla_latent.h"
#include "methods/layouts/shared_directions.h"
#include "methods/method.h"
#include "methods/rewriting_thin.h"
#include "src/composition.h"

namespace kvgauge {
namespace {

constexpr int64_t kEntryPositionBytes = 4;
constexpr int64_t kScoreBytes = 4;

std::string Owner(StageKind kind, const StageChoice& choice) {
  return StrCat(NameOf(kind), ".", choice.spec->id);
}

// Whether a stage has numbers for what the model's scores are, and not the scores.
bool WeighsProducts(StageKind kind, const Stage& stage) {
  if (kind == StageKind::kAttend || kind == StageKind::kRead) return true;
  const Needs needs = stage.needs();
  if (needs.products || !needs.chunk_sums.empty() || !needs.query_moments.empty() ||
      needs.first_rows > 0) {
    return true;
  }
  if (kind != StageKind::kScore) return false;
  const auto& scorer = static_cast<const Scorer&>(stage);
  return scorer.ProbeRows(1) > 0 || scorer.DraftRows() > 0;
}

Status CheckStage(StageKind kind, const std::optional<StageChoice>& choice, const Stage* stage,
                  const ModelShape& shape) {
  if (stage == nullptr) return {};
  if (const std::string path = CalibrationPath(*choice);
      !path.empty() && choice->calibration == nullptr) {
    return BadInput(StrCat(Owner(kind, *choice), ".calibration: ", Quoted(path),
                           " was not read, so the stage would do without"));
  }
  if (const std::string path = DraftModelPath(*choice); !path.empty() && choice->draft == nullptr) {
    return BadInput(StrCat(Owner(kind, *choice), ".", kDraftModelParam, ": ", Quoted(path),
                           " was not looked at, so nothing would answer"));
  }
  if (const std::string path = TaggerPath(*choice); !path.empty() && choice->tagger == nullptr) {
    return BadInput(StrCat(Owner(kind, *choice), ".", kTaggerParam, ": ", Quoted(path),
                           " was not looked at, so there would be no encoder"));
  }
  if (stage->needs().token_classes && !shape.token_classes) {
    return BadInput(StrCat(Owner(kind, *choice),
                           ": tells tokens apart by their text, and this model has no tokenizer; "
                           "use a checkpoint with one, or another stage"));
  }
  if (stage->needs().encoder && !shape.token_classes) {
    return BadInput(StrCat(Owner(kind, *choice),
                           ": puts a text of its own behind the prompt, and this model has no "
                           "tokenizer; use a checkpoint with one, or another stage"));
  }
  if (shape.distances && WeighsProducts(kind, *stage)) {
    return Unsupported(StrCat(Owner(kind, *choice),
                              ": weighs products of queries and keys that it makes itself, and "
                              "scores of this model count how far a key is from its query, too "
                              "(ALiBi); use a stage that looks at the model's own attention, such "
                              "as score.snapkv, or another model"));
  }
  // Heads of several sizes are checked one after the other.
  const int64_t sizes = shape.heads.empty() ? 1 : shape.layers;
  for (int64_t layer = 0; layer < sizes; ++layer) {
    const Status status = stage->Check(shape.OfLayer(layer));
    if (!status.ok()) return status.error().Wrap(Owner(kind, *choice));
  }
  return {};
}

// Bytes when every head holds `entries`.
double BytesOf(const Pipeline& p, const ModelShape& shape, int64_t entries) {
  double bytes = 0;
  for (int64_t l = 0; l < shape.layers; ++l) {
    const ModelShape own = shape.OfLayer(l);
    const Result<StorePlan> plan = p.store->Plan(own, l);
    KVG_CHECK(plan.ok(), "a store that was not checked");
    double head = plan->layout->HeadBytes(own, entries);
    const bool clipped = plan->turn.position == PositionPolicy::kClipped;
    head += static_cast<double>(entries * kEntryPositionBytes * (clipped ? 2 : 1));
    if (p.trigger->in_decode() && p.StepScore().ages()) {
      head += static_cast<double>(entries * p.StepScore().numbers() * kScoreBytes);
    }
    bytes += static_cast<double>(own.kv_heads) * head;
  }
  return bytes;
}

// What the budget of a prompt gives of `length` entries, before anything is protected.
int64_t BudgetEntries(const Pipeline& p, const ModelShape& shape, const Budget& budget,
                      int64_t prompt_tokens, int64_t length) {
  switch (budget.kind) {
    case Budget::Kind::kNone:
      return length;
    case Budget::Kind::kEntries:
      return budget.value >= static_cast<double>(length) ? length
                                                         : static_cast<int64_t>(budget.value);
    case Budget::Kind::kFraction:
      if (budget.value >= 1) return length;
      // 0.1 * 30 is a little more than 3.
      return std::min(length, static_cast<int64_t>(std::floor(
                                  budget.value * static_cast<double>(prompt_tokens) + 1e-9)));
    case Budget::Kind::kBytesPerToken:
      break;
  }
  // Bytes fall a little where a unit gets coded, so this may miss a few entries; what it finds
  // fits.
  const double limit = budget.value * static_cast<double>(prompt_tokens);
  int64_t fits = 0, beyond = length + 1;
  while (beyond - fits > 1) {
    const int64_t middle = fits + (beyond - fits) / 2;
    (BytesOf(p, shape, middle) <= limit ? fits : beyond) = middle;
  }
  return fits;
}

// The least budget of that kind, in round numbers, that gives every head `entries` of `length`.
Budget LeastBudget(const Pipeline& p, const ModelShape& shape, Budget::Kind kind, int64_t entries,
                   int64_t length) {
  const auto wanted = static_cast<double>(entries), all = static_cast<double>(length);
  Budget budget = {kind, wanted};
  if (kind == Budget::Kind::kFraction) budget.value = std::ceil(1000 * wanted / all) / 1000;
  if (kind != Budget::Kind::kBytesPerToken) return budget;
  budget.value = std::ceil(BytesOf(p, shape, entries) / all);
  // A search that misses a few entries may need some bytes more.
  while (BudgetEntries(p, shape, budget, length, length) < entries) ++budget.value;
  return budget;
}

// A store that puts entries into classes by their scores, and what only such a store reads.
Status CheckClasses(const Method& method, const Pipeline& p, const std::string& owner) {
  const bool scored = p.store->classifies() && p.store->needs_scores();
  if (p.reduce == nullptr) {
    if (!scored) return {};
    return BadInput(StrCat(owner,
                           " puts entries into classes by their scores, and there are none; add a "
                           "score stage, such as h2o, and \"reduce\": {\"id\": \"keep_all\"}"));
  }
  if (!p.reduce->evicts() && !scored) {
    return BadInput(StrCat(Owner(StageKind::kReduce, *method.reduce), " keeps everything and ",
                           owner,
                           " reads no scores, so they have no effect; use reduce.top_k, or "
                           "store.tiers"));
  }
  if (!p.store->classifies() || !p.trigger->in_decode() || !p.StepReduce().evicts() ||
      p.StepScore().ages()) {
    return {};
  }
  const StageChoice& score = *(method.decode_score ? method.decode_score : method.score);
  return BadInput(StrCat(owner, " puts entries into classes after others were evicted, when score.",
                         score.spec->id,
                         " can no longer see the newest attention; use a score that builds up, "
                         "such as h2o, or reduce.keep_all"));
}

Status CheckStore(const Method& method, const Pipeline& p, const ModelShape& shape) {
  const std::string owner = Owner(StageKind::kStore, *method.store);
  StoreUse use;
  use.shape = &shape;
  use.has_bases = p.prepare != nullptr && p.prepare->writes_bases();
  if (p.reduce != nullptr && p.trigger->in_decode() && p.StepReduce().merges_keys()) {
    const auto& reduce = method.decode_reduce ? method.decode_reduce : method.reduce;
    use.merges_keys_later = Owner(StageKind::kReduce, *reduce);
  }
  if (p.read != nullptr && p.read->corrects()) {
    use.corrects_reads = Owner(StageKind::kRead, *method.read);
  }
  KVG_TRY(CheckClasses(method, p, owner));
  for (int64_t l = 0; l < shape.layers; ++l) {
    const Result<StorePlan> plan = p.store->Plan(shape.OfLayer(l), l);
    if (!plan.ok()) return plan.error().Wrap(owner);
    use.layer = l;
    KVG_TRY(CheckOwnGroups(method, *plan, shape.OfLayer(l)));
    const Status status = plan->layout->Check(use);
    if (!status.ok()) return status.error().Wrap(owner);
    const KeyTurn& turn = plan->turn;
    if ((turn.raw || turn.position != PositionPolicy::kOriginal) && shape.rotary_dim == 0) {
      return BadInput(StrCat(owner,
                             ": keeps keys before rotation, but this model has no rotary "
                             "embedding; use a store with raw_keys off and position "
                             "original"));
    }
    if (turn.raw && shape.latent_dim > 0) {
      return BadInput(StrCat(owner,
                             ": keeps keys before rotation, but latent attention rotates a "
                             "part of its own; use a store that keeps them rotated"));
    }
    if (!plan->layout->traits().by_head && p.reduce != nullptr) {
      return BadInput(StrCat(owner, ": its entries belong to several heads or layers, so ",
                             Owner(StageKind::kReduce, *method.reduce),
                             " cannot evict for one of them; leave out one of the two"));
    }
  }
  return {};
}

// `given` entries a head, but never less than what is protected.
HeadBudget BudgetOfHead(const Method& method, int64_t given, int64_t length) {
  HeadBudget head_budget;
  if (given < length) given -= method.coming;
  head_budget.entries =
      std::min(length, std::max({int64_t{1}, given, method.sinks + method.recent}));
  const double share = method.recent_share * static_cast<double>(head_budget.entries);
  const int64_t recent = std::max(method.recent, static_cast<int64_t>(std::floor(share)));
  head_budget.sinks = std::min(method.sinks, head_budget.entries);
  head_budget.recent = std::min(recent, head_budget.entries - head_budget.sinks);
  return head_budget;
}

Status CheckBudget(const Method& method, const Pipeline& p, const ModelShape& shape,
                   const Budget& budget, int64_t prompt_tokens) {
  const bool given = budget.kind != Budget::Kind::kNone;
  if (!method.takes_budget) {
    if (!given) return {};
    const bool evicts = method.reduce.has_value(), thins = method.thin.has_value();
    const std::string owner = evicts       ? Owner(StageKind::kReduce, *method.reduce)
                              : thins      ? Owner(StageKind::kThin, *method.thin)
                              : method.see ? Owner(StageKind::kSee, *method.see)
                                           : Owner(StageKind::kStore, *method.store);
    return BadInput(StrCat("it takes no budget, because ",
                           evicts  ? "scores alone say what stays"
                           : thins ? "a stage of its prefill says what stays"
                                   : "nothing is evicted",
                           "; its size follows from ", owner, ", so give 'none' instead of '",
                           budget.ToString(), "'"));
  }
  if (!given) return BadInput("it needs a budget, such as 0.2, 512 or 64B");
  const int64_t entries = BudgetEntries(p, shape, budget, prompt_tokens, prompt_tokens);
  const int64_t kept = method.sinks + method.recent;
  const int64_t least = std::max<int64_t>(1, std::min(kept, prompt_tokens));
  if (entries < least) {
    const std::string enough = LeastBudget(p, shape, budget.kind, least, prompt_tokens).ToString();
    std::string gives = StrCat("budget ", budget.ToString(), " gives each head ", entries, " ",
                               entries == 1 ? "entry" : "entries");
    // A number of entries is that of every prompt.
    if (budget.kind != Budget::Kind::kEntries) {
      gives += StrCat(" of a prompt of ", prompt_tokens);
    }
    if (kept == 0) return BadInput(StrCat(gives, "; ", enough, " would do"));
    return BadInput(
        StrCat(gives, ", but ", method.sinks, " first and ", method.recent,
               " last ones are protected; ", enough,
               " would do, or lower protect.sinks and protect.recent, which is the score's window "
               "where it is left out"));
  }
  const HeadBudget head_budget = BudgetOfHead(method, entries, prompt_tokens);
  const Status status =
      p.allocate->CheckBudget({.shape = &shape,
                               .length = prompt_tokens,
                               .per_head = head_budget.entries,
                               .protected_entries = head_budget.sinks + head_budget.recent,
                               .window = p.score->needs().window});
  if (!status.ok()) return status.error().Wrap(Owner(StageKind::kAllocate, *method.allocate));
  return {};
}

Status CheckThin(const Method& method, const Pipeline& p, const ModelShape& shape) {
  if (p.thin == nullptr) return {};
  const std::string owner = Owner(StageKind::kThin, *method.thin);
  for (size_t layer = 0; layer < shape.windows.size(); ++layer) {
    if (shape.windows[layer] == 0) continue;
    return Unsupported(StrCat(owner, ": layer ", layer, " sees a window of ", shape.windows[layer],
                              " positions, in which rows would be missing; expected a model whose "
                              "layers all see the whole prompt"));
  }
  const bool at_once = dynamic_cast<const RewritingThin*>(p.thin.get()) != nullptr ||
                       dynamic_cast<const EncodingThin*>(p.thin.get()) != nullptr;
  int64_t before = at_once ? -1 : 0;
  for (const int64_t layer : p.thin->Layers(shape)) {
    const int64_t last = shape.layers - (p.thin->reads_again() ? 0 : 1);
    KVG_CHECK(layer > before && layer <= last, StrCat(owner, ": layers ascend from 1 on"));
    before = layer;
  }
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const Result<StorePlan> plan = p.store->Plan(shape.OfLayer(layer), layer);
    if (!plan.ok()) continue;
    const std::string store = Owner(StageKind::kStore, *method.store);
    if (plan->Get<SharedDirections>() != nullptr) {
      return BadInput(StrCat(store, ": layers share entries, and ", owner,
                             " leaves them different ones; leave out one of the two"));
    }
    if (plan->Get<MlaLatent>() != nullptr) {
      return Unsupported(StrCat(store, ": holds the model's latents while a prompt is read, and ",
                                owner, " looks at keys of heads; leave out one of the two"));
    }
    // They have the places of the chunk's last tokens, and were turned by those behind it.
    const bool turns = plan->turn.raw || plan->turn.position != PositionPolicy::kOriginal;
    if (turns && dynamic_cast<const CondensingThin*>(p.thin.get()) != nullptr) {
      return BadInput(StrCat(store, ": turns keys by the places of their entries, and those that ",
                             owner,
                             " leaves stand elsewhere; use a store with raw_keys off and "
                             "position original"));
    }
  }
  return {};
}

// Patterns are of keys, by head.
Status CheckAttend(const Method& method, const Pipeline& p, const ModelShape& shape) {
  if (p.attend == nullptr) return {};
  if (p.reuse != nullptr) {
    return BadInput(StrCat(Owner(StageKind::kAttend, *method.attend), " and ",
                           Owner(StageKind::kReuse, *method.reuse),
                           " both say how a prompt is read; leave out one of the two"));
  }
  if (p.read != nullptr && p.read->needs().surprise) {
    return BadInput(StrCat(
        Owner(StageKind::kRead, *method.read), " needs how little each token was expected, which ",
        Owner(StageKind::kAttend, *method.attend), " does not compute; leave out one of the two"));
  }
  if (p.store->classifies() && p.store->needs().window > 0) {
    return BadInput(StrCat(Owner(StageKind::kStore, *method.store),
                           " looks at the attention of the prompt's last rows when entries lie in "
                           "classes already, and ",
                           Owner(StageKind::kAttend, *method.attend),
                           " says what rows saw of a prompt in one piece; leave out one of the "
                           "two"));
  }
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const Result<StorePlan> plan = p.store->Plan(shape.OfLayer(layer), layer);
    if (!plan.ok() || plan->Get<MlaLatent>() == nullptr) continue;
    return Unsupported(StrCat(Owner(StageKind::kStore, *method.store),
                              ": holds the model's latents while a prompt is read, and ",
                              Owner(StageKind::kAttend, *method.attend),
                              " looks at keys of heads; leave out one of the two"));
  }
  return {};
}

// Chunks are turned to other places, so that the model must turn keys, and see all of them.
Status CheckReuse(const Method& method, const Pipeline& p, const ModelShape& shape) {
  if (p.reuse == nullptr || p.reuse->texts() == ReusedTexts::kPrefixes) return {};
  const std::string owner = Owner(StageKind::kReuse, *method.reuse);
  if (shape.rotary_dim == 0) {
    return Unsupported(StrCat(owner,
                              " turns keys of chunks to new places, and this model has no rotary "
                              "embedding; use reuse.prefix"));
  }
  if (shape.latent_dim > 0) {
    return Unsupported(StrCat(owner,
                              " turns keys of chunks to new places, and this model's keys turn in "
                              "their last dims only (latent attention); use reuse.prefix"));
  }
  for (size_t layer = 0; layer < shape.windows.size(); ++layer) {
    if (shape.windows[layer] == 0) continue;
    return Unsupported(StrCat(owner, ": layer ", layer, " sees a window of ", shape.windows[layer],
                              " positions; expected a model whose layers all see the whole "
                              "prompt, or reuse.prefix"));
  }
  if (p.reuse->texts() != ReusedTexts::kSideBySide) return {};
  if (p.read != nullptr) {
    return BadInput(StrCat(Owner(StageKind::kRead, *method.read),
                           " chooses among all entries, and ", owner,
                           " attends to chunks apart from the others; leave out one of the two"));
  }
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const Result<StorePlan> plan = p.store->Plan(shape.OfLayer(layer), layer);
    if (plan.ok() && plan->IsPlain()) continue;
    return BadInput(StrCat(Owner(StageKind::kStore, *method.store),
                           " stores entries otherwise, and ", owner,
                           " finds chunks by their places; use store.plain"));
  }
  return {};
}

// Layers that read the caches of others are shown to no stage.
Status CheckSharedCaches(const Method& method, const Pipeline& p, const ModelShape& shape) {
  if (!shape.shared_caches) return {};
  const auto refuse = [&](StageKind kind, const StageChoice& choice, std::string_view why) {
    return Unsupported(StrCat(Owner(kind, choice), ": ", why,
                              ", and layers of this model read the caches of others; expected a "
                              "model, or a prepare stage, that leaves each layer its own"));
  };
  if (p.thin != nullptr) {
    return refuse(StageKind::kThin, *method.thin, "drops rows between layers");
  }
  if (p.attend != nullptr) {
    return refuse(StageKind::kAttend, *method.attend, "chooses entries layer by layer");
  }
  if (p.reuse != nullptr && p.reuse->texts() != ReusedTexts::kPrefixes) {
    return refuse(StageKind::kReuse, *method.reuse, "joins caches layer by layer");
  }
  if (p.read != nullptr &&
      (p.read->corrects() || dynamic_cast<const JoiningReader*>(p.read.get()))) {
    return refuse(StageKind::kRead, *method.read, "corrects the attention of each layer");
  }
  return {};
}

// A model without a cache runs as it is.
Status CheckHasCache(const Method& method, const ModelShape& shape) {
  if (shape.layers > 0) return {};
  const std::vector<const StageChoice*> stages = method.stages();
  if (stages.size() == 1 && method.store->spec->id == "plain") return {};
  return Unsupported(StrCat("this model has no cache: every layer keeps a state of constant size (",
                            shape.state_bytes,
                            " bytes a sequence, however long it is), so there is nothing to "
                            "compress; use method full, which runs it as a baseline"));
}

// Heads of several sizes are for stages that go by layer.
Status CheckHeadSizes(const Method& method, const ModelShape& shape) {
  if (shape.heads.empty()) return {};
  const HeadSizes& first = shape.heads.front();
  const auto other = std::ranges::find_if(shape.heads, [&](const HeadSizes& own) {
    return own.kv_heads != first.kv_heads || own.key_dim != first.key_dim;
  });
  std::string sizes = StrCat(first.kv_heads, " KV heads of ", first.key_dim, " dims in layer 0");
  if (other != shape.heads.end()) {
    sizes += StrCat(", ", other->kv_heads, " of ", other->key_dim, " in layer ",
                    other - shape.heads.begin());
  }
  for (const StageChoice* choice : method.stages()) {
    if (choice->spec->goes_by_layer && CalibrationPath(*choice).empty()) continue;
    return Unsupported(
        StrCat(Owner(choice->spec->kind, *choice),
               ": takes one size of heads for all layers, and this model has several "
               "(",
               sizes,
               "); use a model whose heads are alike, or stages that go "
               "by layer"));
  }
  if (method.place.any()) {
    return Unsupported(
        StrCat("place: entries on the host are counted by heads of one size, and "
               "this model has several (",
               sizes, "); leave it out"));
  }
  return {};
}

// Layers of constant state need every token, in order, and the pass goes through all layers.
Status CheckStates(const Method& method, const Pipeline& p, const ModelShape& shape) {
  if (shape.attention_gate && p.prepare != nullptr) {
    return Unsupported(StrCat(Owner(StageKind::kPrepare, *method.prepare),
                              ": changes the projections around attention, and what attention "
                              "gives is weighed between them in this model; expected a model "
                              "whose attention has no gate"));
  }
  if (shape.state_bytes == 0) return {};
  const auto refuse = [&](StageKind kind, const StageChoice& choice, std::string_view why) {
    return Unsupported(StrCat(Owner(kind, choice), ": ", why,
                              ", and layers of this model keep a state of constant size, which "
                              "needs every token in order; expected a model whose layers all have "
                              "caches"));
  };
  if (p.thin != nullptr) {
    return refuse(StageKind::kThin, *method.thin, "drops rows between layers");
  }
  if (p.attend != nullptr) {
    return refuse(StageKind::kAttend, *method.attend, "goes through a prompt layer by layer");
  }
  if (p.reuse != nullptr) {
    return refuse(StageKind::kReuse, *method.reuse, "goes on from parts of other prompts");
  }
  return {};
}

// Slopes belong to query heads, and distances are those of positions or of slots.
Status CheckDistances(const Method& method, const Pipeline& p, const ModelShape& shape) {
  if (!shape.distances) return {};
  if (p.prepare != nullptr && p.prepare->moves_heads()) {
    return Unsupported(StrCat(Owner(StageKind::kPrepare, *method.prepare),
                              ": moves heads, and each query head of this model has a slope by "
                              "which distances count (ALiBi); expected a model without"));
  }
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const Result<StorePlan> plan = p.store->Plan(shape.OfLayer(layer), layer);
    if (!plan.ok() || plan->turn.position != PositionPolicy::kClipped) continue;
    return Unsupported(StrCat(Owner(StageKind::kStore, *method.store),
                              ": position clipped counts all that is far as one distance, and "
                              "distances of this model count in its scores (ALiBi); use position "
                              "original"));
  }
  return {};
}

// What is said of entries and their sides must be true of them.
Status CheckPlace(const Method& method, const Pipeline& p, const ModelShape& shape) {
  KVG_TRY(method.place.Check(shape, p.read != nullptr));
  if (!method.place.any() || (method.place.keys && method.place.values)) return {};
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const Result<StorePlan> plan = p.store->Plan(shape.OfLayer(layer), layer);
    if (!plan.ok() || !plan->layout->traits().model_latents) continue;
    return BadInput(StrCat("place.sides is ", method.place.keys ? "keys" : "values", ", but ",
                           Owner(StageKind::kStore, *method.store),
                           " holds the model's latents, which are both; use both"));
  }
  return {};
}

ModelShape Prepared(const Pipeline& p, const ModelShape& shape) {
  return p.prepare == nullptr ? shape : p.prepare->ShapeAfter(shape);
}

Status CheckAll(const Method& method, const ModelShape& shape, const Budget& budget,
                int64_t prompt_tokens) {
  KVG_TRY(CheckHasCache(method, shape));
  KVG_TRY(CheckMadeKeys(method, shape));
  KVG_TRY(CheckBlockEntries(method, shape));
  KVG_TRY(CheckHeadSizes(method, shape));
  const Pipeline p = MakePipeline(method);
  KVG_TRY(CheckStage(StageKind::kPrepare, method.prepare, p.prepare.get(), shape));
  const ModelShape after = Prepared(p, shape);
  KVG_TRY(CheckStage(StageKind::kSee, method.see, p.see.get(), after));
  KVG_TRY(CheckStage(StageKind::kAttend, method.attend, p.attend.get(), after));
  KVG_TRY(CheckRunningEntries(method, after));
  KVG_TRY(CheckPromptPasses(method, after));
  KVG_TRY(CheckStates(method, p, after));
  KVG_TRY(CheckSharedCaches(method, p, after));
  KVG_TRY(CheckDistances(method, p, after));
  KVG_TRY(CheckAttend(method, p, after));
  KVG_TRY(CheckStage(StageKind::kThin, method.thin, p.thin.get(), after));
  KVG_TRY(CheckStage(StageKind::kReuse, method.reuse, p.reuse.get(), after));
  KVG_TRY(CheckReuse(method, p, after));
  KVG_TRY(CheckThin(method, p, after));
  KVG_TRY(CheckStage(StageKind::kScore, method.score, p.score.get(), after));
  KVG_TRY(CheckStage(StageKind::kAllocate, method.allocate, p.allocate.get(), after));
  KVG_TRY(CheckStage(StageKind::kReduce, method.reduce, p.reduce.get(), after));
  KVG_TRY(CheckStage(StageKind::kScore, method.decode_score, p.decode_score.get(), after));
  KVG_TRY(CheckStage(StageKind::kAllocate, method.decode_allocate, p.decode_allocate.get(), after));
  KVG_TRY(CheckStage(StageKind::kReduce, method.decode_reduce, p.decode_reduce.get(), after));
  KVG_TRY(CheckStage(StageKind::kStore, method.store, p.store.get(), after));
  KVG_TRY(CheckStage(StageKind::kRead, method.read, p.read.get(), after));
  KVG_TRY(CheckStage(StageKind::kTrigger, method.trigger, p.trigger.get(), after));
  KVG_TRY(CheckStore(method, p, after));
  KVG_TRY(CheckReader(method, p, after));
  KVG_TRY(CheckPlace(method, p, after));
  return CheckBudget(method, p, after, budget, prompt_tokens);
}

}  // namespace

Status CheckSee(const Method& method, const std::optional<EyesShape>& eyes) {
  if (!method.see) return {};
  const std::string owner = StrCat("method ", method.id, ": ", Owner(StageKind::kSee, *method.see));
  if (!eyes) {
    return BadInput(StrCat(owner,
                           " reduces pictures, and this is a text model; expected a "
                           "vision-language model"));
  }
  const std::unique_ptr<Stage> stage = MakeStage(*method.see);
  const SeeNeeds needs = static_cast<const See&>(*stage).sees();
  if ((needs.tower() || needs.rows) && !eyes->by_row) {
    return Unsupported(StrCat(owner,
                              " looks at rows of the tower, but this model's pictures are not made "
                              "of them one by one: it interpolates a canvas, or reads several "
                              "layers or the class token; random_rows works on any"));
  }
  const std::vector<int64_t>& whole = eyes->whole_blocks;
  if (needs.early >= 0 && std::ranges::find(whole, needs.early) == whole.end()) {
    std::vector<std::string> blocks;
    for (const int64_t block : whole) blocks.push_back(StrCat(block));
    return Unsupported(StrCat(owner, " looks at block ", needs.early,
                              " of the tower, which is not one whose rows see all of a picture; "
                              "expected one of ",
                              Join(blocks, ", ")));
  }
  if (needs.behind && (!eyes->behind || !eyes->class_token)) {
    return Unsupported(StrCat(owner,
                              " asks what the class token looks at in the block behind the "
                              "features, and this model's tower has no such ",
                              eyes->class_token ? "block" : "token"));
  }
  return {};
}

Status CheckMethod(const Method& method, const ModelShape& shape, const Budget& budget,
                   int64_t prompt_tokens) {
  const Status status = CheckAll(method, shape, budget, prompt_tokens);
  if (!status.ok()) return status.error().Wrap(StrCat("method ", method.id));
  return {};
}

HeadBudget HeadBudgetFor(const Method& method, const ModelShape& shape, const Budget& budget,
                         int64_t length) {
  if (!method.takes_budget) {
    const int64_t sinks = std::min(method.sinks, length);
    return {.entries = length, .sinks = sinks, .recent = std::min(method.recent, length - sinks)};
  }
  const Pipeline p = MakePipeline(method);
  return BudgetOfHead(method, BudgetEntries(p, Prepared(p, shape), budget, length, length), length);
}

int64_t GrowthOf(const Method& method, const ModelShape& shape, const Budget& budget,
                 int64_t prompt_tokens, int64_t tokens) {
  if (!method.takes_budget) return tokens - prompt_tokens;
  const Pipeline p = MakePipeline(method);
  const ModelShape after = Prepared(p, shape);
  const auto allowed = [&](int64_t share_of, int64_t length) {
    return BudgetOfHead(method, BudgetEntries(p, after, budget, share_of, length), length).entries;
  };
  const int64_t share_of = p.trigger->budget_grows() ? tokens : prompt_tokens;
  return allowed(share_of, tokens) - allowed(prompt_tokens, prompt_tokens);
}

}  // namespace kvgauge
