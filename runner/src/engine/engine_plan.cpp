// SPDX-License-Identifier: Apache-2.0
// What a run will hold, before it starts.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "core/json.h"
#include "core/memory.h"
#include "core/strings.h"
#include "kernels/devices.h"
#include "methods/absorbing_reader.h"
#include "methods/encoding_thin.h"
#include "methods/repeating_reader.h"
#include "runner/chunk_prefill.h"
#include "runner/reuse_texts.h"
#include "runner/sequence_plan.h"
#include "src/compress/draft_pass.h"
#include "src/compress/probe_pass.h"
#include "src/compress/question_rows.h"
#include "src/compress/view.h"
#include "src/engine/check_sample.h"
#include "src/engine/engine_parts.h"
#include "src/engine/pass_bytes.h"

namespace kvgauge {
namespace {

int64_t WholePages(int64_t entries) {
  return (entries + kKvPageEntries - 1) / kKvPageEntries * kKvPageEntries;
}

// A full cache of so many tokens, in whole pages.
int64_t PagedCacheBytes(const ModelShape& shape, int64_t tokens) {
  return FullCacheBytes(shape, WholePages(shape.EntriesOf(tokens)) * shape.entry_tokens);
}

// Whether entries really lie on the host: what places them is executed on devices alone.
bool Fetches(const PlannedContender& contender) {
  const Placement& place = contender.method->place;
  return contender.model->ops->device != Device::kHost && place.any() && !place.attends;
}

// What the backend's operations take for themselves in the largest pass; `fetches`: pages on the
// host are among what it reads.
int64_t ScratchBytes(const PlannedModel& model, int64_t sequences, int64_t entries, bool fetches) {
  const ModelConfig& config = *model.config;
  int64_t ffn = config.ffn_size, value_dim = config.value_dim;
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    ffn = std::max(ffn, config.FfnSizeOf(layer));
    value_dim = std::max(value_dim, config.HeadsOf(layer).value_dim);
  }
  if (config.moe) {
    const MoeConfig& moe = *config.moe;
    ffn = std::max({ffn, moe.expert_ffn_size * moe.experts_per_token, moe.shared_ffn_size});
  }
  if (config.made_keys) value_dim = config.made_keys->head_dim;
  const int64_t attended = config.query_heads * value_dim;
  PassSize pass;
  pass.rows = PassRows(config, entries, sequences);
  pass.logit_rows = 1 + sequences;
  const int64_t scanned = config.state ? config.state->width() : 0;
  pass.widest_in = std::max({config.hidden_size, ffn, attended, scanned});
  if (config.made_keys)
    pass.widest_in = std::max(pass.widest_in, config.hidden_size + config.key_dim);
  pass.widest_out =
      std::max({config.hidden_size, config.gated_mlp ? 2 * ffn : ffn, WidestProjection(config)});
  pass.head_in = config.hidden_size;
  pass.head_out = config.vocab_size;
  pass.sequences = 1 + sequences;
  pass.entries = entries;
  pass.query_heads = config.query_heads;
  pass.kv_heads = config.kv_heads;
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    pass.kv_heads = std::max(pass.kv_heads, config.HeadsOf(layer).kv_heads);
  }
  if (config.made_keys) pass.kv_heads = config.query_heads;
  pass.value_dim = value_dim;
  if (model.product_rows == ProductRows::kFile) {
    pass.rounded_number_bytes = SizeOf(model.shape.cache_dtype);
    if (config.moe) {
      pass.chosen = config.moe->experts_per_token;
      pass.chosen_in = std::max(config.hidden_size, config.moe->expert_ffn_size);
    }
  }
  if (fetches) pass.fetched_entry_bytes = model.shape.EntryBytes();
  return model.ops->memory->ScratchBytes(pass) +
         MadeBytes(config, model.shape.cache_dtype, entries) +
         BlockPageBytes(config, model.shape.cache_dtype, sequences);
}

// What a contender asks of each layer; plain where nothing is known.
std::vector<StorePlan> StorePlansOf(const Method& method, const ModelShape& shape) {
  std::vector<StorePlan> plans(static_cast<size_t>(shape.layers));
  const std::unique_ptr<Stage> stage = MakeStage(*method.store);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    Result<StorePlan> plan = static_cast<const Store&>(*stage).Plan(shape.OfLayer(layer), layer);
    if (plan.ok()) plans[static_cast<size_t>(layer)] = *std::move(plan);
  }
  return plans;
}

// Bytes of a contender that holds up to `held` entries a head, of which up to `fresh` come in one
// pass. What a reducer leaves of the prompt, `kept`, is copied before it is stored otherwise.
int64_t LaneCacheBytes(const Method& method, const ModelShape& shape,
                       std::span<const StorePlan> plans, int64_t kept, int64_t held,
                       int64_t fresh) {
  int64_t bytes = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    bytes +=
        plans[i].layout->PlannedLayerBytes(shape.OfLayer(static_cast<int64_t>(i)), held, fresh);
  }
  if (!method.reduce) return bytes;
  return std::max(bytes, FullCacheBytes(shape, WholePages(kept) + kKvPageEntries));
}

// Entries that a head holds of a prompt.
int64_t KeptEntries(const PlannedContender& contender, const SampleLength& length) {
  return HeadBudgetFor(*contender.method, contender.model->checkpoint_shape, contender.budget,
                       length.prefill)
      .entries;
}

// Tokens that a sequence has entries of at most, from compression on.
int64_t HeldTokens(const PlannedContender& contender, const SampleLength& length) {
  return KeptEntries(contender, length) + length.total - length.prefill +
         MostLinkTokens(*contender.method);
}

// Whether a contender has its prefill for itself, read in chunks.
bool HasChunks(const PlannedContender& contender, const EngineOptions& options) {
  return options.compress_at == CompressAt::kChunk && ReducesPrompts(*contender.method);
}

// The most that a prefill in chunks holds: a chunk and what was left before it, with its captures,
// scores and sums, and a layer that is being reduced.
int64_t ChunkBytes(const PlannedContender& contender, const SampleLength& length,
                   const EngineOptions& options) {
  const PlannedModel& model = *contender.model;
  const ModelShape& shape = model.shape;
  const int64_t kept = KeptEntries(contender, length);
  const int64_t behind = MakePipeline(*contender.method).score->rows_behind_chunks();
  const int64_t held =
      std::min(length.prefill, kept + LongestChunk(length.prefill, options.chunk_tokens)) + behind;
  const int64_t pages = WholePages(held) + kKvPageEntries;
  const int64_t cache = FullCacheBytes(shape, pages);
  const Needs needs = contender.method->needs();
  const int64_t columns = int64_t{needs.column_sums} + int64_t{needs.column_squares};
  // As they are made, and as wide as those of the widest layer.
  const int64_t scores = 2 * shape.layers * shape.kv_heads * held * 4;
  const int64_t carried = shape.layers * held * 4 *
                          (columns * shape.query_heads + std::ssize(needs.gates) * shape.kv_heads);
  return cache + cache / shape.layers + shape.state_bytes +
         PrefillCapture::PlannedBytes(*model.caches, needs, held) + scores + carried;
}

// Working memory of a model, and the longest prompt's snapshot: its cache, captures and scores.
void PlanPrefills(const PlannedModel& model, std::span<const PlannedContender> contenders,
                  std::span<const SampleLength> lengths, const EngineOptions& options,
                  MemoryPlan& plan) {
  const ModelShape& shape = model.shape;
  Needs needs;
  std::set<std::string> scorers;
  std::vector<std::unique_ptr<Stage>> stages;
  std::vector<const Scorer*> probing;
  std::map<const Scorer*, const DraftModel*> drafts;
  std::vector<const StageChoice*> thins, reusing;
  bool attends = false, shares = false;
  int64_t links = 0;  // tokens that a stage puts into prompts
  for (const PlannedContender& contender : contenders) {
    if (contender.model != &model) continue;
    if (HasChunks(contender, options)) {
      for (const SampleLength& length : lengths) {
        plan.snapshot_bytes = std::max(plan.snapshot_bytes, ChunkBytes(contender, length, options));
      }
      continue;
    }
    shares = true;
    needs |= contender.method->needs();
    attends |= contender.method->attend.has_value();
    if (contender.method->reuse) reusing.push_back(&*contender.method->reuse);
    links = std::max(links, MostLinkTokens(*contender.method));
    if (contender.method->thin) thins.push_back(&*contender.method->thin);
    if (!contender.method->score) continue;
    if (!scorers.insert(StageKey(*contender.method->score)).second) continue;
    stages.push_back(MakeStage(*contender.method->score));
    const auto* scorer = static_cast<const Scorer*>(stages.back().get());
    if (scorer->ProbeRows(1) > 0 || scorer->DraftRows() > 0) probing.push_back(scorer);
    if (contender.method->score->draft != nullptr) {
      drafts.emplace(scorer, contender.method->score->draft.get());
    }
  }
  const bool fetches =
      std::any_of(contenders.begin(), contenders.end(), [&](const PlannedContender& contender) {
        return contender.model == &model && Fetches(contender);
      });
  int64_t longest = 0;
  for (const SampleLength& length : lengths) {
    longest = std::max({longest, length.total + links, length.whole});
  }
  plan.working_bytes =
      std::max(plan.working_bytes,
               PassBytes(*model.config, PassRows(*model.config, longest, options.max_pool_lanes),
                         1 + options.max_pool_lanes) +
                   ScratchBytes(model, options.max_pool_lanes, longest, fetches));
  for (const SampleLength& length : lengths) {
    if (!shares) break;
    int64_t probes = 0;
    for (const Scorer* scorer : probing) {
      if (scorer->ProbeRows(1) > 0) {
        probes += ProbePass::PlannedBytes(*model.caches, shape, length.prefill,
                                          scorer->ProbeRows(length.prefill));
      }
      if (drafts.contains(scorer)) {
        probes += FullCacheBytes(drafts.at(scorer)->shape,
                                 WholePages(length.prefill + scorer->AnswerTokens()));
      }
      if (scorer->DraftRows() > 0) {
        probes += DraftPass::PlannedBytes(*model.caches, shape,
                                          std::min(length.prefill, scorer->DraftEntries()),
                                          scorer->DraftRows());
      }
    }
    int64_t reused = 0;
    for (const StageChoice* reuse : reusing) {
      reused =
          std::max(reused, ReusePrefill::PlannedBytes(*reuse, *model.caches, length.prefill + links,
                                                      length.passages));
    }
    int64_t thinned = 0;
    for (const StageChoice* thin : thins) {
      thinned = std::max(thinned, ThinPrefill::PlannedBytes(*thin, *model.caches, length.prefill));
    }
    const int64_t scores =
        static_cast<int64_t>(scorers.size()) * shape.layers * shape.kv_heads * length.prefill * 4;
    plan.snapshot_bytes = std::max(
        plan.snapshot_bytes,
        PagedCacheBytes(shape, length.prefill + links) + shape.state_bytes +
            PrefillCapture::PlannedBytes(*model.caches, needs, length.prefill) + scores + probes +
            (attends ? SparsePrefill::PlannedBytes(*model.caches, length.prefill) : 0) + reused +
            thinned);
  }
  // The texts of the newest prompt lie in the store or beside it.
  std::set<std::string> stores;
  for (const PlannedContender& contender : contenders) {
    if (contender.model != &model || !contender.method->reuse) continue;
    if (!stores.insert(StageKey(*contender.method->reuse)).second) continue;
    plan.snapshot_bytes += FullCacheBytes(shape, WholePages(2 * StoredTokens(lengths)));
  }
}

// What of such a cache lies in the host's memory between passes: whole pages of plain entries. Of
// what is reduced or stored otherwise nothing counts as gone from the device, for there it is made.
int64_t PlacedBytes(const PlannedContender& contender, const std::vector<StorePlan>& stores,
                    int64_t held, int64_t fresh) {
  const ModelShape& shape = contender.model->shape;
  const Placement& place = contender.method->place;
  const int64_t side_bytes[] = {shape.key_dim * SizeOf(shape.cache_dtype),
                                shape.value_dim * SizeOf(shape.cache_dtype)};
  if (!Fetches(contender) || contender.method->reduce ||
      side_bytes[0] + side_bytes[1] != shape.EntryBytes()) {
    return 0;
  }
  const int64_t entry_bytes = (place.keys ? side_bytes[0] : 0) + (place.values ? side_bytes[1] : 0);
  int64_t entries = 0;
  for (size_t layer = 0; layer < stores.size(); ++layer) {
    if (!stores[layer].IsPlain()) continue;
    const EntryRange range = place.OnHost(static_cast<int64_t>(layer), held - fresh);
    const int64_t end = range.last / kKvPageEntries * kKvPageEntries;
    entries += std::max<int64_t>(end - WholePages(range.first), 0);
  }
  return entries * shape.kv_heads * entry_bytes;
}

// Rows that an encoder made of a prompt, and that stay.
int64_t EncodedBytes(const PlannedContender& contender, int64_t prompt_tokens) {
  if (!contender.method->thin) return 0;
  const std::unique_ptr<Stage> stage = MakeStage(*contender.method->thin);
  const auto* encoding = dynamic_cast<const EncodingThin*>(stage.get());
  if (encoding == nullptr) return 0;
  const ModelShape& shape = contender.model->shape;
  const auto [begin, end] = encoding->Encoded(prompt_tokens);
  return WholePages(end - begin) * shape.encoder_width * SizeOf(shape.cache_dtype);
}

// The working memory that a reader's steps keep where they are taken at once, which is on devices:
// as much on each, as a plan for several counts a part of a lane for each of them.
int64_t KeptStepBytes(const PlannedContender& contender, const Stage& reader, int64_t held) {
  Ops& ops = *contender.model->ops;
  if (ops.device == Device::kHost || dynamic_cast<const RepeatingReader*>(&reader) == nullptr) {
    return 0;
  }
  return std::ssize(DevicesOf(ops)) * ViewMemory::PlannedBytes(contender.model->shape, held);
}

// What a reader knows of these entries. Where a method places it on the host, that is accounting:
// it stays where it was made.
int64_t IndexBytes(const PlannedContender& contender, const SampleLength& length) {
  if (!contender.method->read) return 0;
  const ModelShape& shape = contender.model->shape;
  const std::unique_ptr<Stage> stage = MakeStage(*contender.method->read);
  const auto& reader = static_cast<const Reader&>(*stage);
  const int64_t entries = shape.EntriesOf(HeldTokens(contender, length));
  int64_t bytes = 0;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    bytes += reader.MostBytes(shape, layer, entries);
  }
  return bytes;
}

// The most of a device that a contender's sequence holds: its caches, what a reader knows of them,
// and the attention of its steps.
int64_t LaneBytes(const PlannedContender& contender, const std::vector<StorePlan>& stores,
                  const SampleLength& length, const EngineOptions& options) {
  const ModelShape& shape = contender.model->shape;
  const int64_t kept = KeptEntries(contender, length), held = HeldTokens(contender, length);
  // A question comes in one pass; a context that is returned to is held as well.
  const bool prompts = AsksApart(options.compress_at);
  const int64_t fresh = prompts ? 1 : length.total - length.prefill;
  const int64_t copies = options.compress_at == CompressAt::kContext ? 2 : 1;
  const Needs needs = contender.method->needs();
  int64_t weights = 0, steps = 0;
  for (const auto* gates : {&needs.gates, &needs.step_gates}) {
    for (const GateNeed& need : *gates) weights += need.gate->PlannedBytes(shape);
  }
  if (contender.method->read) {
    const std::unique_ptr<Stage> read = MakeStage(*contender.method->read);
    const auto* absorbing = dynamic_cast<const AbsorbingReader*>(read.get());
    if (absorbing != nullptr) weights += absorbing->WeightBytes(shape);
    steps = KeptStepBytes(contender, *read, shape.EntriesOf(held));
  }
  // The last rows' queries, and their attention in one layer.
  int64_t attention = StepCapture::PlannedBytesOfLast(*contender.model->caches, needs) +
                      StepCapture::PlannedBytesOfGuesses(*contender.model->caches, needs) +
                      needs.step_window * shape.query_heads * WholePages(held) * 4 + weights;
  if (needs.step_attention) {
    const int64_t of_layer = shape.query_heads * WholePages(held) * 4;
    attention += shape.layers * of_layer;
    // Rows of a question count in running scores.
    if (options.compress_at == CompressAt::kContext) {
      attention +=
          QuestionRows::kMostRows * of_layer + QuestionRows::PlannedBytes(*contender.model->caches);
    }
  }
  return copies * (LaneCacheBytes(*contender.method, shape, stores, kept, shape.EntriesOf(held),
                                  shape.EntriesOf(fresh)) -
                   PlacedBytes(contender, stores, held, fresh) + IndexBytes(contender, length) +
                   shape.state_bytes) +
         EncodedBytes(contender, length.prefill) + attention + steps;
}

// The last prompt row's attention in all layers, which is recorded for pictures.
int64_t LastRowBytes(const std::set<const PlannedModel*>& models,
                     std::span<const SampleLength> lengths) {
  int64_t bytes = 0;
  for (const PlannedModel* model : models) {
    for (const SampleLength& length : lengths) {
      bytes = std::max(bytes, model->caches->layer_count() * model->config->query_heads *
                                  length.prefill * SizeOf(DType::kF32));
    }
  }
  return bytes;
}

// Lowers the number of lanes until the plan fits: into what the user allows (`asked_bytes`, 0:
// anything), else into what the device has free beside the weights, else into the machine.
Result<MemoryPlan> FitInto(MemoryPlan plan, int64_t free_bytes, int64_t machine_bytes,
                           int64_t cells, int64_t asked_bytes) {
  const bool asked = asked_bytes > 0;
  const bool device = free_bytes > 0;
  const int64_t limit_bytes = asked    ? asked_bytes
                              : device ? plan.weight_bytes + free_bytes
                                       : machine_bytes;
  if (limit_bytes == 0 || plan.lane_bytes == 0) return plan;
  // A bound costs time, as contenders then wait for what others give back: none where all fit.
  const int64_t beside = std::max<int64_t>(plan.pool_lanes - cells, 0);
  if (!asked && !device && plan.total_bytes() - beside * plan.lane_bytes <= limit_bytes)
    return plan;
  const int64_t left = limit_bytes - plan.weight_bytes - plan.working_bytes - plan.snapshot_bytes;
  plan.pool_lanes = std::min(plan.pool_lanes, std::max<int64_t>(left, 0) / plan.lane_bytes);
  if (plan.pool_lanes == 0) {
    return ResourceError(StrCat("the run needs ", HumanBytes(plan.total_bytes() + plan.lane_bytes),
                                " (weights ", HumanBytes(plan.weight_bytes), ", working memory ",
                                HumanBytes(plan.working_bytes), ", the longest prompt ",
                                HumanBytes(plan.snapshot_bytes), ", one row ",
                                HumanBytes(plan.lane_bytes), "); ",
                                asked    ? "--max-memory is "
                                : device ? "the device has "
                                         : "this machine has ",
                                HumanBytes(limit_bytes)));
  }
  plan.cache_limit_bytes = limit_bytes - plan.weight_bytes - plan.working_bytes;
  return plan;
}

// The same where layers lie on several devices. Each holds its layers' part of every cache and
// capture, of one layer more to be on the safe side, and the working memory of a pass. The first
// has what is held already, and of the working memory what the others lack: `vision_bytes`.
Result<MemoryPlan> FitIntoDevices(MemoryPlan plan, std::span<const PlannedModel* const> loaded,
                                  int64_t held_bytes, int64_t vision_bytes, int64_t asked_bytes) {
  const std::vector<Ops*> devices = DevicesOf(*loaded[0]->ops);
  for (size_t d = 0; d < devices.size(); ++d) {
    int64_t weights = 0;
    double part = 0;
    for (const PlannedModel* model : loaded) {
      const LayerShare& share = model->shares.at(d);
      weights += share.weight_bytes;
      const auto layers = static_cast<double>(model->shares.back().end);
      part = std::max(part, static_cast<double>(share.end - share.first + 1) / layers);
    }
    const auto own = [part](int64_t bytes) {
      return static_cast<int64_t>(std::ceil(std::min(part, 1.0) * static_cast<double>(bytes)));
    };
    const int64_t held = weights + (d == 0 ? held_bytes : 0);
    const int64_t limit = asked_bytes > 0 ? asked_bytes : held + devices[d]->memory->FreeBytes();
    const int64_t working = plan.working_bytes - (d == 0 ? 0 : vision_bytes);
    const int64_t snapshot = own(plan.snapshot_bytes),
                  lane = std::max<int64_t>(own(plan.lane_bytes), 1);
    const int64_t left = limit - weights - working - snapshot;
    const int64_t lanes = std::max<int64_t>(left, 0) / lane;
    plan.pool_lanes = std::min(plan.pool_lanes, lanes);
    plan.device_limits.push_back(limit - weights - working);
    if (lanes > 0) continue;
    const LayerShare& share = loaded[0]->shares[d];
    return ResourceError(
        StrCat("device ", d + 1, " of ", devices.size(), ", which has layers ", share.first, " to ",
               share.end - 1, ", needs ", HumanBytes(weights + working + snapshot + lane),
               " (weights ", HumanBytes(weights), ", working memory ", HumanBytes(working),
               ", its part of the longest prompt ", HumanBytes(snapshot), ", of one row ",
               HumanBytes(lane), "); ", asked_bytes > 0 ? "--max-memory is " : "the device has ",
               HumanBytes(limit)));
  }
  plan.cache_limit_bytes = plan.device_limits[0];
  return plan;
}

}  // namespace

struct SequencePlan::State {
  PlannedContender contender;
  EngineOptions options;
  std::vector<StorePlan> stores;
};

SequencePlan::SequencePlan(const PlannedContender& contender, const EngineOptions& options)
    : state_(std::make_unique<State>(
          State{contender, options, StorePlansOf(*contender.method, contender.model->shape)})) {}
SequencePlan::~SequencePlan() = default;

int64_t SequencePlan::PrefillBytes(int64_t prompt_tokens) const {
  const SampleLength length = {.prefill = prompt_tokens, .total = prompt_tokens};
  MemoryPlan plan;
  PlanPrefills(*state_->contender.model, {&state_->contender, 1}, {&length, 1}, state_->options,
               plan);
  return plan.snapshot_bytes;
}

int64_t SequencePlan::HeldBytes(int64_t prompt_tokens, int64_t total_tokens) const {
  return LaneBytes(state_->contender, state_->stores,
                   {.prefill = prompt_tokens, .total = total_tokens}, state_->options);
}

int64_t SequencePlan::IndexBytes(int64_t prompt_tokens, int64_t total_tokens) const {
  return kvgauge::IndexBytes(state_->contender, {.prefill = prompt_tokens, .total = total_tokens});
}

int64_t SequencePlan::FullBytes(int64_t tokens) const {
  const ModelShape& shape = state_->contender.model->shape;
  return PagedCacheBytes(shape, tokens) + shape.state_bytes;
}

int64_t SequencePlan::WorkingBytes(int64_t longest_tokens) const {
  const int64_t lanes = state_->options.max_pool_lanes;
  const ModelConfig& config = *state_->contender.model->config;
  return PassBytes(config, PassRows(config, longest_tokens, lanes), 1 + lanes) +
         ScratchBytes(*state_->contender.model, lanes, longest_tokens, Fetches(state_->contender));
}

SampleLength LengthOf(const EngineSample& sample, CompressAt at) {
  const auto context = static_cast<int64_t>(sample.context.size());
  SampleLength length = {
      .prefill = context, .total = context, .passages = std::ssize(sample.passages)};
  for (const EngineTurn& turn : sample.turns) {
    const auto question = static_cast<int64_t>(turn.ids.size());
    if (AsksApart(at)) {
      length.prefill = std::max(length.prefill, context + question);
      length.total = std::max(length.total, context + question + turn.max_new_tokens);
    } else {
      length.total += question + turn.max_new_tokens;
    }
  }
  if (at == CompressAt::kTurn) length.prefill += static_cast<int64_t>(sample.turns[0].ids.size());
  if (sample.whole != nullptr) length.whole = LengthOf(*sample.whole, at).total;
  return length;
}

int64_t StoredTokens(std::span<const SampleLength> lengths) {
  constexpr int64_t kPrompts = 4;
  int64_t longest = 0;
  for (const SampleLength& length : lengths) longest = std::max(longest, length.prefill);
  return kPrompts * longest;
}

std::string_view NameOf(CompressAt at) {
  switch (at) {
    case CompressAt::kPrompt:
      return "prompt";
    case CompressAt::kContext:
      return "context";
    case CompressAt::kTurn:
      return "turn";
    case CompressAt::kChunk:
      return "chunk";
  }
  return "";
}

Result<CompressAt> ParseCompressAt(std::string_view text) {
  for (const CompressAt at :
       {CompressAt::kPrompt, CompressAt::kContext, CompressAt::kTurn, CompressAt::kChunk}) {
    if (text == NameOf(at)) return at;
  }
  return BadInput(StrCat("compress_at: \"", text, "\"; expected prompt, context, turn or chunk"));
}

Status CheckMoment(const Method& method, CompressAt at, int64_t chunk_tokens) {
  if (at == CompressAt::kChunk) return CheckChunks(method, chunk_tokens);
  if (at != CompressAt::kTurn) return {};
  if (method.attend) {
    return BadInput(StrCat(method.id, ": ", NameOf(*method.attend->spec),
                           " says what a prompt that is whole attends to, and compress_at turn "
                           "reads those of later turns behind an answer; use compress_at prompt or "
                           "context, or leave out the stage"));
  }
  if (method.thin) {
    return BadInput(StrCat(method.id, ": ", NameOf(*method.thin->spec),
                           " lets rows go while a prompt is read, and compress_at turn reads "
                           "those of later turns behind an answer; use compress_at prompt or "
                           "context, or leave out the stage"));
  }
  if (method.reuse && MakePipeline(method).reuse->texts() == ReusedTexts::kChunks) {
    return BadInput(StrCat(method.id, ": ", NameOf(*method.reuse->spec),
                           " puts a context together of chunks, and compress_at turn compresses "
                           "turns behind an answer; use compress_at prompt or context, or another "
                           "stage"));
  }
  if (!method.needs().gates.empty()) {
    return BadInput(StrCat(method.id, ": ", NameOf(*method.score->spec),
                           " scores entries where they are made, and compress_at turn compresses "
                           "those of turns before again; use compress_at prompt or context, or "
                           "another score"));
  }
  if (!ProbesPrompt(method)) return {};
  return BadInput(StrCat(method.id, ": ", NameOf(*method.score->spec),
                         " runs the model behind a prompt that is whole, and compress_at turn "
                         "compresses what was compressed before; use compress_at prompt or "
                         "context, or another score"));
}

Result<MemoryPlan> PlanMemory(std::span<const PlannedContender> contenders,
                              std::span<const SampleLength> lengths, const EngineOptions& options,
                              int64_t machine_bytes, int64_t visual_bytes, int64_t held_bytes) {
  for (const PlannedContender& contender : contenders) {
    KVG_TRY(CheckMoment(*contender.method, options.compress_at, options.chunk_tokens));
    if (const std::optional<StageChoice>& reuse = contender.method->reuse) {
      KVG_TRY(CheckLinks(StrCat(contender.method->id, ": ", NameOf(*reuse->spec)),
                         static_cast<const Reuse&>(*MakeStage(*reuse)), 0,
                         contender.model->config->vocab_size));
    }
  }
  const bool layered = DevicesOf(*contenders[0].model->ops).size() > 1;
  for (const PlannedContender& contender : contenders) {
    if (!layered) break;
    KVG_TRY(CheckLayered(*contender.method, contender.model->caches->layer_count(),
                         contender.model->shape));
  }
  MemoryPlan plan;
  plan.pool_lanes = options.max_pool_lanes;
  // Bytes of the whole prompt beside the snapshot, against which fidelity is measured.
  int64_t original_bytes = 0;
  std::set<const PlannedModel*> models;
  std::set<const PlannedModel*> loaded;
  std::set<std::string> beside;  // checkpoints that stages have beside the model
  for (const PlannedContender& contender : contenders) {
    models.insert(contender.model);
    for (const PlannedModel* model : {contender.model, contender.original}) {
      if (model != nullptr && loaded.insert(model).second) plan.weight_bytes += model->weight_bytes;
    }
    const std::optional<StageChoice>& score = contender.method->score;
    if (score && score->draft != nullptr && beside.insert(score->draft->directory).second) {
      plan.weight_bytes += score->draft->weight_bytes;
    }
    const std::optional<StageChoice>& thin = contender.method->thin;
    if (thin && thin->tagger != nullptr && beside.insert(thin->tagger->directory).second) {
      plan.weight_bytes += thin->tagger->weight_bytes;
    }
  }
  for (const PlannedModel* model : models) PlanPrefills(*model, contenders, lengths, options, plan);
  for (const PlannedContender& contender : contenders) {
    const std::vector<StorePlan> stores = StorePlansOf(*contender.method, contender.model->shape);
    for (const SampleLength& length : lengths) {
      plan.lane_bytes = std::max(plan.lane_bytes, LaneBytes(contender, stores, length, options));
      if (options.fidelity_steps == 0) continue;
      const PlannedModel* original =
          contender.original != nullptr ? contender.original : contender.model;
      const bool partial = contender.method->attend || contender.method->thin ||
                           contender.method->reuse || HasChunks(contender, options) ||
                           length.whole > 0;
      if (original == contender.model && !partial) continue;
      const int64_t entries = std::max(length.total, length.whole);
      original_bytes = std::max(
          original_bytes, PagedCacheBytes(original->shape, entries) + original->shape.state_bytes);
    }
  }
  plan.snapshot_bytes += original_bytes;
  plan.working_bytes = std::max(plan.working_bytes, options.pixel_bytes);
  plan.working_bytes += visual_bytes + options.vision_bytes;
  if (visual_bytes > 0) plan.snapshot_bytes += LastRowBytes(models, lengths);
  if (layered) {
    const std::vector<const PlannedModel*> all(loaded.begin(), loaded.end());
    return FitIntoDevices(plan, all, held_bytes, options.vision_bytes, options.max_memory_bytes);
  }
  const int64_t free_bytes = contenders[0].model->ops->memory->FreeBytes();
  return FitInto(plan, free_bytes > 0 ? free_bytes + held_bytes : 0, machine_bytes,
                 std::ssize(contenders) * std::ssize(lengths) * options.draws,
                 options.max_memory_bytes);
}

Result<MemoryPlan> Engine::PlanMemory(std::span<const EngineSample> samples) const {
  std::map<const Model*, PlannedModel> models;
  for (const Contender& contender : contenders_) {
    KVG_TRY(CheckCalibrations(*contender.method, contender.model->fingerprint()));
    for (const EngineSample& sample : samples) {
      KVG_TRY(CheckSample(sample, options_.compress_at, contender.model->config()));
    }
    for (const Model* model : {contender.model, OriginalOf(contender)}) {
      models[model] = {.config = &model->config(),
                       .caches = &model->cache_config(),
                       .shape = model->shape(),
                       .checkpoint_shape = model->checkpoint_shape(),
                       .weight_bytes = model->weight_bytes(),
                       .ops = &model->ops(),
                       .product_rows = model->product_rows(),
                       .shares = model->shares()};
    }
  }
  std::vector<PlannedContender> contenders;
  for (const Contender& contender : contenders_) {
    contenders.push_back({.method = contender.method,
                          .budget = contender.budget,
                          .model = &models.at(contender.model),
                          .original = &models.at(OriginalOf(contender))});
  }
  std::vector<SampleLength> lengths;
  for (const EngineSample& sample : samples) {
    lengths.push_back(LengthOf(sample, options_.compress_at));
  }
  HeldRows shown;
  for (const EngineSample& sample : samples) {
    shown.Add(sample.visuals.get());
    if (sample.whole != nullptr) shown.Add(sample.whole->visuals.get());
  }
  EngineOptions options = options_;
  for (const EngineSample& sample : samples) {
    options.draws = std::max(options.draws, std::ssize(sample.draws));
  }
  return kvgauge::PlanMemory(contenders, lengths, options, UsableMemoryBytes(), shown.bytes(),
                             shown.bytes() + options.vision_bytes);
}

}  // namespace kvgauge
