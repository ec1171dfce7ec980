// SPDX-License-Identifier: Apache-2.0
// The stages a method is made of. Stages decide, the runner acts: a stage maps views to a plan; it
// never holds cache memory, edits the model or knows its neighbours.
//
// A stage is const. What must build up over decode steps lives in the tensors the runner hands to
// it (running scores) or in the State a stage makes; both die with the sample. Randomness comes
// from LayerView::seed. A stage computes with Ops and never loops over cache entries on the host.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "kernels/kv_codec.h"
#include "methods/entry_means.h"
#include "methods/layer_view.h"
#include "methods/needs.h"
#include "methods/probe.h"
#include "methods/store_plan.h"

namespace kvgauge {

struct Calibration;
class StateFields;  // methods/state_fields.h

class Stage {
 public:
  virtual ~Stage() = default;
  virtual Needs needs() const { return {}; }
  // How many of the newest entries this stage protects; a method file can override it
  // (protect.recent).
  virtual int64_t protects() const { return 0; }
  // Whether a stage that tells pictures apart (Needs::modality) also does so where a prompt is read
  // in chunks: pictures may be half read, and entries of others have left.
  virtual bool takes_parts_of_pictures() const { return false; }
  // An error if this stage cannot work on a model of that shape; it names the parameter and what
  // would be right.
  virtual Status Check(const ModelShape&) const { return {}; }
  // Hands over the tables of a calibration; called at most once, before anything else, for stages
  // whose spec has `calibrate`.
  virtual void Use(std::shared_ptr<const Calibration>) {}  // NOLINT: stages keep it
};

// Weights of a model, one matrix at a time, for Prepare. Layers are those of shape(), as it was
// before anything was announced.
class WeightView {
 public:
  enum class Matrix { kQuery, kKey, kValue, kOutput };

  virtual ~WeightView() = default;
  virtual const ModelShape& shape() const = 0;
  virtual Ops& ops() const = 0;
  // [out features, in features] f32.
  virtual Result<Tensor> Read(int64_t layer, Matrix matrix) = 0;
  // Takes a copy. The shape may change only as SetHeads announced. Queries and outputs of a layer
  // whose cache others read cannot change: theirs would have to, too.
  virtual Status Write(int64_t layer, Matrix matrix, const Tensor& weights) = 0;
  // The bias of a projection, [out features] f32; empty where the model has none.
  virtual Result<Tensor> ReadBias(int64_t layer, Matrix matrix) = 0;
  virtual Status WriteBias(int64_t layer, Matrix matrix, const Tensor& bias) = 0;
  virtual Status SetKvHeads(int64_t kv_heads) { return SetHeads(shape().query_heads, kv_heads); }
  // The number of query heads may change with that of KV heads, which divides it: head q reads KV
  // head q / (query_heads / kv_heads). The output projection says what each head is worth.
  virtual Status SetHeads(int64_t query_heads, int64_t kv_heads) = 0;
  // The layer whose keys and values each layer attends to: itself, or one below it that attends to
  // its own. A layer that reads another's has no cache and needs no projections of its own.
  virtual Status ShareCaches(std::span<const int64_t> reads) = 0;
  // From now on rows may join the newest entry of a head. Each layer has a cache of its own, and
  // sees the whole prompt.
  virtual Status MeanEntries(const EntryMeans& means) = 0;
  // Orthonormal columns that span what the keys (before rotation) or values of the `heads`
  // neighbouring KV heads from `first_head` on can be: [heads * dim, rank]. A Latent layout keeps
  // coordinates in it. For a LayerInputs layout: the projections themselves, [heads * dim, hidden
  // size].
  virtual Status WriteBasis(int64_t layer, KvSide side, int64_t first_head, int64_t heads,
                            const Tensor& basis) = 0;
};

// Changes the model once, before anything runs. Methods with equal Prepare stages share prefills.
class Prepare : public Stage {
 public:
  virtual Status Transform(WeightView& weights) const = 0;
  // The shape of the changed model. Precondition: Check.
  virtual ModelShape ShapeAfter(const ModelShape& shape) const { return shape; }
  virtual bool writes_bases() const { return false; }
  // Whether query heads come in another order or number, so that their results cannot be compared
  // with those of the model as it was.
  virtual bool moves_heads() const { return false; }
};

// Importance of each entry; entries with higher scores are kept.
class Scorer : public Stage {
 public:
  // out: [kv_heads, width], zero on entry; scores must be finite. Called after prefill and, if
  // any_time(), whenever the trigger acts.
  virtual void Score(LayerView& view, Tensor out) const = 0;
  // The most rows that a probe of a prompt of that length has; 0: the scorer does not probe. Such a
  // scorer looks at whole prompts only, before anything is evicted.
  virtual int64_t ProbeRows(int64_t) const { return 0; }
  // Called once for a prompt, if ProbeRows is not 0; Score() then has ProbeMaxima. `encode` is set
  // if the encoder was declared.
  virtual Result<std::vector<Probe>> Probes(const ProbeInput& input) const;
  // How many tokens of an answer Probes is given, from the model that the stage's parameter
  // `draft_model` names (methods/draft_model.h); 0: none.
  virtual int64_t AnswerTokens() const { return 0; }
  // How many tokens of an answer are drafted behind a prompt; 0: the scorer does not draft. Such a
  // scorer looks at whole prompts only, before anything is evicted; Score() then has DraftQueries.
  virtual int64_t DraftRows() const { return 0; }
  // How many entries of each head are held meanwhile, and the scores that choose them; `out` as of
  // Score().
  virtual int64_t DraftEntries() const { return 0; }
  virtual void ScoreForDraft(LayerView& view, Tensor out) const;
  // True if Score() may also be called during decoding: it uses no prefill-only signal there, but
  // the newest row's.
  virtual bool any_time() const { return false; }
  // Where a prompt is read in chunks: how many of its last rows are put behind each chunk but the
  // last, on a fork of its cache, and scored as if the prompt ended there. Their own entries do not
  // count. 0: a chunk is scored by its own last rows. At most the window of needs().
  virtual int64_t rows_behind_chunks() const { return 0; }
  // True if Score() also works where the heads of a layer hold different numbers of entries.
  virtual bool takes_uneven() const { return any_time(); }
  // True if scores change over decode steps. What they follow from is then stored with the entries
  // (and counted as bytes), if the trigger acts in decode.
  virtual bool ages() const { return false; }
  // How many numbers of each entry build up then: 1, the score itself, or 2.
  virtual int64_t numbers() const { return 1; }
  // After the prompt, what the numbers begin with: [numbers, kv_heads, width]. As Score says, with
  // one.
  virtual void Start(LayerView& view, Tensor numbers) const;
  // Called after a decode step. numbers: [kv_heads, width], or [numbers, kv_heads, width] with two;
  // those of the newest entry are 0.
  virtual void Age(LayerView& view, Tensor numbers) const;
  // The scores that follow from two numbers. out: [kv_heads, width].
  virtual void Rank(LayerView& view, const Tensor& numbers, Tensor out) const;
};

// How many entries each head may hold.
struct AllocationInput {
  const ModelShape* shape = nullptr;
  int64_t length = 0;    // entries every head holds now; the most, where a turn follows others
  int64_t per_head = 0;  // what the budget gives each head on average, protected ones included
  int64_t protected_entries = 0;  // per head; their scores are +inf; at most per_head
  int64_t window = 0;             // prompt rows from which the scorer looks back; 0: none
  // [layers] of [kv_heads, length], -inf beyond a head's own; empty unless needs_scores.
  std::span<const Tensor> scores = {};
  std::span<LayerView* const> views = {};  // [layers]
};
// entries[layer][kv_head], each in [protected_entries, length].
using Allocation = std::vector<std::vector<int64_t>>;

class Allocator : public Stage {
 public:
  // Whether it looks at the window that the score looked at, of all layers: it is then kept.
  virtual bool shares_window() const { return false; }
  virtual bool needs_scores() const { return false; }
  // The id of the only scorer whose scores this allocator understands; empty: any.
  virtual std::string_view reads_scores_of() const { return {}; }
  // True if Allocate() may also be called during decoding, when heads may hold different numbers of
  // entries: `length` is then the most, and scores beyond a head's own entries are -inf.
  virtual bool any_time() const { return false; }
  // True if Allocate() may also be called for each chunk of a prompt, what the chunks before left
  // being held beside it. With scores it is called as during decoding; without, as for the whole
  // prompt.
  virtual bool takes_chunks() const { return any_time(); }
  // True if the heads of a layer are always given alike.
  virtual bool evens_heads() const { return false; }
  virtual Result<Allocation> Allocate(const AllocationInput& input) const = 0;
  // An error if no allocation fits. Called before anything runs, when `input` has neither scores
  // nor views.
  virtual Status CheckBudget(const AllocationInput&) const { return {}; }
};

// new x[to[i]] = self[to[i]] * x[to[i]] + sum over i of weight[i] * x[from[i]], over the entries as
// they were before. All indices are entries before the reduction; every `to` is kept. With `spread`
// the same is added to the `spread` - 1 kept entries behind to[i], as far as there are that many.
struct MergeList {
  Tensor from;    // [n] i32
  Tensor to;      // [n] i32; -1: skipped
  Tensor weight;  // [n] f32
  Tensor self;    // [length] f32, or empty: 1
  int64_t spread = 1;
  bool empty() const { return from.empty(); }
};

// The plan for one head's entries. Tensors belong to the view.
struct HeadPlan {
  Tensor keep;     // [kept] i32, ascending
  MergeList keys;  // as stored (rotated, unless the store keeps keys unrotated)
  MergeList values;
  Tensor log_weight;  // [kept] f32 added to the scores of kept entries, or empty
};

struct ReduceInput {
  Tensor scores;                       // [kv_heads, width]; protected entries +inf
  std::span<const int64_t> allocated;  // [kv_heads] entries to keep, protected ones included
  int64_t step = 0;                    // 0: after prefill; otherwise decode steps so far
};

class Reducer : public Stage {
 public:
  // False if scores alone decide how many entries stay: the method then takes no budget, and heads
  // are given all they hold.
  virtual bool takes_budget() const { return true; }
  // False if it keeps every entry, so that scores are for the store alone.
  virtual bool evicts() const { return true; }
  // Whether plans may merge keys, after the prompt or in decode.
  virtual bool merges_keys() const { return false; }
  struct State {
    virtual ~State() = default;
    // All that it knows, of a layer of so many heads that hold up to `tokens` entries.
    virtual Status Fields(StateFields& fields, int64_t heads, int64_t tokens) = 0;
  };
  // One for each sample and layer, or null.
  virtual std::unique_ptr<State> Begin() const { return nullptr; }
  virtual std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input,
                                       State* state) const = 0;
};

// What a store looks at that puts entries into classes.
struct ClassInput {
  // [kv_heads, width], protected entries +inf; empty where the method has none at this time.
  Tensor scores;
  std::span<const int64_t> classed;  // [kv_heads] so many entries, the first ones, have a class
};

class Store : public Stage {
 public:
  virtual Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const = 0;
  // Puts what a plan needs from the entries themselves into a new layout of it. After reducing,
  // before anything is coded; once for each layer, with the signals of the prefill. Tensors belong
  // to the view.
  virtual void Calibrate(LayerView&, StorePlan&) const {}
  // Whether its plans are Classes; then Classify says in which of them entries are: after the
  // prompt, and whenever enough new ones wait. Whether it needs scores for that.
  virtual bool classifies() const { return false; }
  virtual bool needs_scores() const { return false; }
  // classes: [kv_heads, width] i32, -1 on entry: the entry stays where it is, new ones uncoded.
  virtual void Classify(LayerView&, const ClassInput&, Tensor) const {}
};

// Chooses at each decode step which entries take part in attention. A reader evicts nothing itself;
// after a reducer has evicted entries, Begin is called again.
class Reader : public Stage {
 public:
  struct State {
    virtual ~State() = default;
    // Bytes of the reader's index.
    virtual int64_t bytes() const = 0;
  };
  // At most the bytes() of a layer's State while each of its heads holds up to so many entries,
  // which a plan of memory counts; where it hangs on the text, in all but strange texts, as the
  // reader's file says. `shape` is the model's. A reader that does not say is planned as none.
  virtual int64_t MostBytes(const ModelShape& /*shape*/, int64_t /*layer*/,
                            int64_t /*entries*/) const {
    return 0;
  }
  // Behind a prompt, or a turn, the view has the signals of its prefill that needs() declares; it
  // is then not decoding().
  virtual std::unique_ptr<State> Begin(LayerView& view) const = 0;
  // Entries of every head from `first` (of the head's own count) on are new.
  virtual void Append(LayerView& view, std::span<const int64_t> first, State& state) const = 0;
  // q: [query_heads, key_dim]. words: [query_heads, ceil(width / 64)] i64, zero on entry; bit e of
  // word p lets the head read entry 64 p + e. Returns false to read everything.
  virtual bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const = 0;
  // Whether Select lets heads of that layer read few single entries of `length`: the cache then
  // keeps the numbers of each entry side by side (KvFormat::by_entry). No result depends on it.
  virtual bool ReadsFew(int64_t /*layer*/, int64_t /*length*/) const { return false; }
  // True if layers read by the choices of others: all must hold the same entries in one order, so
  // such a reader goes with no stage that evicts or reorders some.
  virtual bool shares_choices() const { return false; }
  // The layer whose State Select is given for this one: itself, or one below that chose in the same
  // step.
  virtual int64_t LedBy(int64_t layer) const { return layer; }
  // True if Correct adjusts the result of attention for the entries that were not read.
  virtual bool corrects() const { return false; }
  // Called if corrects(), after attention over the entries of the last Select. Changes `out`,
  // [query_heads, value_dim], the result of attention, in place.
  virtual void Correct(LayerView& view, State& state, Tensor out) const;
  // Whether a saved cache can have the State with it. Then Fields names all that it knows; what is
  // read comes into what Begin has just made of the same entries, without signals of a prefill.
  virtual bool saves() const { return false; }
  virtual Status Fields(LayerView& view, State& state, StateFields& fields) const;

 protected:
  // Whole pages are read faster than more entries than that.
  static bool AreFew(int64_t read, int64_t length) { return 4 * read <= length; }
};

// When score, allocate and reduce run.
class Trigger : public Stage {
 public:
  virtual bool AfterPrefill() const = 0;
  // Called after a decode step, layer by layer. `steps`: decode steps so far. The other number is
  // the largest excess of a head of the layer over its allocation (negative if all are below);
  // without a budget it is without bounds.
  virtual bool AfterStep(int64_t steps, int64_t excess) const = 0;
  // False if AfterStep is never true.
  virtual bool in_decode() const = 0;
  // Whether a budget that is a share of the prompt is one of all tokens seen, decoded ones
  // included.
  virtual bool budget_grows() const { return false; }
  // Whether it allocates anew each time it reduces in decode; otherwise heads keep what they were
  // given for the prompt. `excess` is then the largest of all layers.
  virtual bool allocates_again() const { return false; }
};

}  // namespace kvgauge
