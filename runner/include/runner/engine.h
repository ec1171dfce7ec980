// SPDX-License-Identifier: Apache-2.0
// The lockstep engine: prefill a sample once, run every contender (a method at a budget) on it
// together.
//
// Each sample is prefilled once per model, with the captures that any contender needs, into a full
// snapshot; contenders that read prompts in chunks have prefills of their own. Every contender
// forks it, compresses its fork and decodes in one pool with the others: one pass over the weights
// per step for the whole pool, attention per contender over its own cache. Contenders leave when
// they are done, and contenders of the next sample, which was prefilled meanwhile, join. Where
// several answers are drawn, every draw has a fork of its own.
//
// A contender's tokens and logits are bit-identical to running it alone, whatever the company, the
// size of the pool and the number of threads. The random numbers of a draw depend on the seed,
// the sample's id and the number of the draw alone. One thread drives an Engine.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "methods/method.h"
#include "runner/compressor.h"
#include "runner/model.h"
#include "runner/reuse_prefill.h"
#include "runner/sampler.h"
#include "runner/visual_rows.h"

namespace kvgauge {

// When a contender compresses.
enum class CompressAt {
  kPrompt,   // context and question seen; each further turn is a prompt of its own
  kContext,  // the context seen; questions are prefilled against what is left
  kTurn,     // the prompt of every turn seen, all of one conversation: again after each
  kChunk,    // as kPrompt, but what reduces prompts does so in chunks, while they are read
};
std::string_view NameOf(CompressAt at);
Result<CompressAt> ParseCompressAt(std::string_view text);
// Whether each turn is a prompt of its own, behind the context.
inline bool AsksApart(CompressAt at) {
  return at == CompressAt::kPrompt || at == CompressAt::kChunk;
}
// Rows of a chunk where nothing else is said.
inline constexpr int64_t kChunkTokens = 512;
// An error if the method cannot act then: it names the stage and what would be right.
// `chunk_tokens`: of kChunk.
Status CheckMoment(const Method& method, CompressAt at, int64_t chunk_tokens = kChunkTokens);

struct EngineTurn {
  std::vector<int32_t> ids = {};  // the question
  // Pictures in it, counted from its first id; rows are those of the sample's visuals.
  std::vector<VisualSpan> spans = {};
  int64_t max_new_tokens = 0;
  int64_t min_new_tokens = 0;  // stop ids are never chosen before
  // Teacher-forced: the answer is these tokens, max_new_tokens of them, whatever the contender
  // would choose and without regard to stop ids; the result is their probabilities.
  std::vector<int32_t> forced = {};
  // kContext: goes on after the answer before it, rather than from the context alone. kTurn always
  // does.
  bool continues = false;
};

// What the pictures and videos of a sample became. Placeholder ids stand at their places in the
// sample's ids and are never looked up. Samples that show one picture share its rows.
struct SampleVisuals {
  struct Part {
    std::shared_ptr<const VisualRows> rows;
    int64_t first = 0, count = 0;  // of them
  };
  std::vector<Part> parts = {};  // one behind the other
  int64_t hidden_size = 0;       // of the text model

  // Rows [first, first + count), behind all others.
  void Append(std::shared_ptr<const VisualRows> rows, int64_t first, int64_t count);
  int64_t count() const;
  // Makes the rows those of the prompt's spans; they outlive it.
  void ShowIn(Prompt& prompt) const;
};
// The rows that samples hold, each counted once.
class HeldRows {
 public:
  void Add(const SampleVisuals* visuals);  // null: none
  bool Has(const VisualRows& rows) const { return rows_.count(&rows) > 0; }
  int64_t bytes() const;

 private:
  std::set<const VisualRows*> rows_;
};

struct EngineSample {
  std::string id = {};  // in messages; with the run's seed, the source of random choices
  std::vector<int32_t> context = {};
  std::vector<VisualSpan> context_spans = {};
  // Where passages of the context begin, ascending; methods that reuse caches of texts take these
  // for chunks. Empty: nobody says.
  std::vector<int64_t> passages = {};
  std::vector<EngineTurn> turns = {};  // at least one
  std::vector<int32_t> stop_ids = {};
  // Which answers are drawn, each a cell of its own with random numbers of its own: at least one,
  // and none twice. Greedy answers are all alike.
  std::vector<int64_t> draws = {0};
  std::shared_ptr<const SampleVisuals> visuals = nullptr;  // where spans are
  // The sample as it was before a stage took rows of its pictures out: what the full cache reads
  // that fidelity is measured against. Null: this one.
  std::shared_ptr<const EngineSample> whole = nullptr;
};

struct Contender {
  const Method* method = nullptr;
  Budget budget = {};
  // The model as the method's prepare stage changed it, loaded for latents if the store keeps the
  // model's own. Contenders of one model share prefills; contenders with latents, and those with
  // equal thin or reuse stages, have prefills of their own, and under kChunk each one that reduces
  // prompts.
  Model* model = nullptr;
  // The model whose full cache is the reference of fidelity: the same checkpoint without a prepare
  // stage. Null: `model`.
  Model* original = nullptr;
};

// A contender against the full cache of the original model, on that cache's own continuation of the
// first turn.
struct Fidelity {
  int64_t steps = 0;          // 0: nothing was compared, and the other fields are undefined
  double kl_divergence = 0;   // of the contender from the full cache, nats, mean over steps
  double top1_agreement = 0;  // share of steps
  // [layers] |contender - full| / |full|, mean over decode steps; empty if the continuation has
  // none, as when it ends at its first token, if a prepare stage moves heads, or if the model's
  // layers read blocks (ModelConfig::blocks).
  std::vector<double> attention_error;
};

struct TurnResult {
  std::vector<int32_t> ids;            // without the stop
  bool stopped = false;                // by a stop id, not by the limit
  std::vector<double> log_probs = {};  // of forced tokens, each given all before it; natural logs
};

// A cell: one contender on one sample, in one draw of its answer.
struct CellResult {
  int64_t sample = 0, contender = 0;
  int64_t draw = 0;  // of EngineSample::draws
  Status status;     // an error is a result too: it names the stage or allocation that failed
  std::vector<TurnResult> turns;
  CompressionRecord record;
  std::optional<ReuseFacts> reuse = {};  // of a method that reuses caches of texts
  std::optional<Fidelity> fidelity;
};

// A token that a contender has just chosen: `answer` ends with it.
struct EngineToken {
  int64_t sample = 0, contender = 0, turn = 0;
  std::span<const int32_t> answer;
  int64_t draw = 0;
};

struct EngineOptions {
  CompressAt compress_at = CompressAt::kPrompt;
  int64_t chunk_tokens = kChunkTokens;  // kChunk: the most tokens of a chunk
  uint64_t seed = 0;
  SamplingOptions sampling = {};
  int64_t draws = 1;             // of a sample at most, for plans without samples
  int64_t valid_vocab = 0;       // as Sampler takes it
  int64_t max_pool_lanes = 64;   // sequences that decode together
  int64_t max_memory_bytes = 0;  // weights, caches, captures and working memory; 0: no limit
  // Held beside the run, for pictures: the tower and features that no sample of it shows.
  int64_t vision_bytes = 0;
  // Pixels that wait for the tower, and its working memory. They are gone when the first prompt is
  // read, so the larger of them and the working memory counts.
  int64_t pixel_bytes = 0;
  int64_t fidelity_steps = 0;  // 0: no teacher-forced pass
  // Called with every token when it is chosen; false ends the turn like a stop id.
  std::function<bool(const EngineToken&)> on_token = {};
  // Called before the first prefill of a sample. False: this sample and the following ones are left
  // out without results; running ones are finished.
  std::function<bool(int64_t sample)> begin = {};
  // Called with the cache of a cell that ended without an error, and what compressed it; for
  // several prompts (kPrompt), with those of the last one.
  std::function<void(const CellResult&, const KvCache&, Compressor&)> inspect = {};
};

// The most memory that a run will hold.
struct MemoryPlan {
  int64_t weight_bytes = 0;
  // The forward pass's, logits included, or that of pixels; rows of pictures; and what the options
  // say is held beside.
  int64_t working_bytes = 0;
  int64_t snapshot_bytes = 0;     // the longest sample's, captures included
  int64_t lane_bytes = 0;         // the largest contender's own cache
  int64_t pool_lanes = 0;         // how many fit together
  int64_t cache_limit_bytes = 0;  // what the pool of caches may hold; 0: no limit
  // The same of each device, where layers lie on several.
  std::vector<int64_t> device_limits = {};
  int64_t total_bytes() const {
    return weight_bytes + working_bytes + snapshot_bytes + pool_lanes * lane_bytes;
  }
};

struct SampleLength {
  int64_t prefill = 0;   // the longest prompt that is prefilled in one piece
  int64_t total = 0;     // the longest sequence, answers included
  int64_t whole = 0;     // the same of EngineSample::whole; 0: there is none
  int64_t passages = 0;  // that are marked in the context

  auto operator<=>(const SampleLength&) const = default;
};
SampleLength LengthOf(const EngineSample& sample, CompressAt at);

// The facts about a model that planning needs; its weights need not be loaded.
struct PlannedModel {
  const ModelConfig* config = nullptr;
  const ModelConfig* caches = nullptr;  // config->OfCaches()
  ModelShape shape = {};
  ModelShape checkpoint_shape = {};  // before a method prepares it: what budgets are of
  int64_t weight_bytes = 0;
  Ops* ops = nullptr;
  ProductRows product_rows = ProductRows::kRounded;
  // How its layers are divided over DevicesOf(*ops), where these are several.
  std::vector<LayerShare> shares = {};
};
struct PlannedContender {
  const Method* method = nullptr;
  Budget budget = {};
  const PlannedModel* model = nullptr;
  const PlannedModel* original = nullptr;  // as for Contender
};
// Refuses, with the numbers, a plan that does not fit into max_memory_bytes even one contender at a
// time. Without such a limit, the plan must fit into the memory of the device, or on a host into
// `machine_bytes` (0: not checked). Where layers lie on several devices, each has its own limit,
// and max_memory_bytes is that of each. `visual_bytes`: of the samples' visuals. `held_bytes`: of
// what is planned beside the weights, those that a device holds already, and so are not free.
// Precondition: there are contenders.
Result<MemoryPlan> PlanMemory(std::span<const PlannedContender> contenders,
                              std::span<const SampleLength> lengths, const EngineOptions& options,
                              int64_t machine_bytes = 0, int64_t visual_bytes = 0,
                              int64_t held_bytes = 0);

class Engine {
 public:
  // Called once for every cell, as it ends. An error ends the run.
  using OnResult = std::function<Status(CellResult)>;

  Engine(std::vector<Contender> contenders, const EngineOptions& options);

  // The same for loaded models; malformed samples are refused too.
  Result<MemoryPlan> PlanMemory(std::span<const EngineSample> samples) const;

  // Precondition: CheckMethod holds for every contender. A refused plan or an error of `on_result`
  // is the error of the run; a failure inside a cell is the result of that cell.
  Status Run(std::span<const EngineSample> samples, const OnResult& on_result);

 private:
  std::vector<Contender> contenders_;
  EngineOptions options_;
};

}  // namespace kvgauge
