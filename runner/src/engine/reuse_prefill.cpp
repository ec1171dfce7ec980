// SPDX-License-Identifier: Apache-2.0
#include "runner/reuse_prefill.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "core/clock.h"
#include "core/strings.h"
#include "methods/layouts/plain.h"
#include "methods/linked_reuse.h"
#include "runner/reuse_texts.h"
#include "src/cache/rope_tables.h"
#include "src/engine/earlier_reads.h"

namespace kvgauge {
namespace {

// Head h of [rows, heads, d] as [rows, d].
Tensor OfHead(const Tensor& all, int64_t h) {
  Tensor one = all;
  one.data = static_cast<char*>(all.data) + h * all.stride[1] * SizeOf(all.dtype);
  one.rank = 2;
  one.shape = {all.shape[0], all.shape[2], 0, 0};
  one.stride = {all.stride[0], 1, 0, 0};
  return one;
}

Tensor EntriesMatrix(const Tensor& entries) {
  return entries.Reshape({entries.shape[0], entries.shape[1] * entries.shape[2]});
}

Status CheckPrompt(const Prompt& prompt, const Reuse& stage, int64_t texts, int64_t vocab_size) {
  if (!prompt.spans.empty()) {
    return Unsupported(
        "reuse: caches of texts are found by their tokens, and this prompt shows pictures; "
        "expected a task of text");
  }
  return CheckLinks("reuse", stage, texts, vocab_size);
}

}  // namespace

ReusePrefill::ReusePrefill(Model& model, const StageChoice& reuse, Prompt& prompt, int64_t context,
                           std::span<const int64_t> passages, KvCache& cache, ReuseStore& store)
    : model_(model),
      stage_(MakeStage(reuse)),
      prompt_(prompt),
      cache_(cache),
      store_(store),
      shape_(model.shape()) {
  KVG_CHECK(cache.tokens() == 0 && prompt.size() > 0, "a whole prompt into an empty cache");
  facts_.prompt_tokens = prompt.size();
  lead_ = stage().lead_tokens();
  FindTexts(context, passages);
  if (prefixes()) step_ = Step::kPrefix;
  if (stage().texts() == ReusedTexts::kSideBySide && texts_.size() > 1) PlaceTexts();
}

ReusePrefill::~ReusePrefill() = default;

void ReusePrefill::FindTexts(int64_t context, std::span<const int64_t> passages) {
  const std::vector<int64_t> edges = TextEdges(stage(), prompt_.size(), context, passages);
  for (size_t i = 1; i < edges.size(); ++i) texts_.push_back({edges[i - 1], edges[i]});
  const auto* linked = dynamic_cast<const LinkedReuse*>(&stage());
  const int64_t texts = std::ssize(texts_);
  if (linked == nullptr || texts < 2) return;
  if (!CheckPrompt(prompt_, *linked, texts, model_.config().vocab_size).ok()) return;
  const int64_t task_tokens = prompt_.size();
  std::vector<int32_t> task;
  for (const PromptPosition& position : prompt_.positions) task.push_back(position.token_id);
  prompt_ = Prompt::FromTokens(LinkedIds(*linked, task, edges));
  int64_t before = 0;
  for (int64_t t = 0; t < texts; ++t) {
    Text& text = texts_[static_cast<size_t>(t)];
    text = {text.begin + before, text.end + before};
    before += std::ssize(linked->Behind(t, texts));
  }
  facts_.prompt_tokens = prompt_.size();
  facts_.link_tokens = prompt_.size() - task_tokens;
}

// All behind the first text; the question behind the longest of them.
void ReusePrefill::PlaceTexts() {
  lead_ = texts_[0].end;
  int32_t next = 0;
  const auto place = [&](int64_t token, int32_t at) {
    prompt_.positions[static_cast<size_t>(token)].rope_position = {at, at, at};
    next = std::max(next, at + 1);
  };
  for (size_t t = 1; t < texts_.size(); ++t) {
    const auto [begin, end] = texts_[t];
    for (int64_t i = begin; i < end; ++i) place(i, static_cast<int32_t>(lead_ + i - begin));
  }
  for (int64_t i = texts_.back().end; i < prompt_.size(); ++i) place(i, next);
  prompt_.next_rope_position = next;
  cache_.PlaceRope(RopePlaces::Of(prompt_));
  SideBySide apart = stage().attention();
  apart.first = texts_[1].begin;
  apart.end = texts_.back().end;
  cache_.AttendApart(apart);
}

std::vector<int32_t> ReusePrefill::IdsOf(const Text& text, int64_t lead) const {
  std::vector<int32_t> ids;
  const auto id = [&](int64_t at) { return prompt_.positions[static_cast<size_t>(at)].token_id; };
  for (int64_t at = 0; at < lead; ++at) ids.push_back(id(at));
  for (int64_t at = text.begin; at < text.end; ++at) ids.push_back(id(at));
  return ids;
}

const KvCache* ReusePrefill::Find(const Text& text) {
  const std::vector<int32_t> ids = IdsOf(text, LeadOf(text));
  if (text.begin > 0) return store_.FindChunk(ids, lead_, cache_.frequencies(0));
  int64_t common = 0;
  const KvCache* found = store_.FindPrefix(ids, cache_.frequencies(0), &common);
  return common == text.end ? found : nullptr;
}

void ReusePrefill::Hold(const KvCache& cache, int64_t first) {
  held_.push_back(cache.Fork());
  firsts_.push_back(first);
}

// What the store holds of earlier samples is not asked for: nobody summed what its tokens paid.
Status ReusePrefill::ReadEarlier(const HistoricReuse& stage) {
  const double start_s = NowSeconds();
  if (earlier_ == nullptr) {
    std::vector<int64_t> edges = {0};
    for (const Text& text : texts_) edges.push_back(text.end);
    earlier_ = std::make_unique<EarlierReads>(model_, stage, prompt_, std::move(edges),
                                              cache_.planned_length(), store_.pools());
  }
  KVG_TRY(earlier_->Next());
  if (earlier_->done()) {
    EarlierReads::Choice choice = earlier_->Choose();
    for (const EarlierReads::Chunk& chunk : choice.chunks) {
      Hold(earlier_->cache(chunk.prompt), chunk.first);
    }
    again_ = std::move(choice.rows);
    for (int64_t i = 0; i < earlier_->prompts(); ++i) {
      facts_.made_tokens += std::ssize(earlier_->ids(i));
      store_.Put({.ids = earlier_->ids(i),
                  .turns = cache_.frequencies(0),
                  .chunk = true,
                  .cache = earlier_->cache(i).Fork()});
    }
    earlier_ = nullptr;
  }
  facts_.made_s += NowSeconds() - start_s;
  return {};
}

// Goes on reading the next text that the store lacks.
Status ReusePrefill::MakeSome() {
  const auto* historic = dynamic_cast<const HistoricReuse*>(&stage());
  if (historic != nullptr && held_.size() == 1 && texts_.size() > 1) return ReadEarlier(*historic);
  const double start_s = NowSeconds();
  while (made_ == nullptr && held_.size() < texts_.size()) {
    const Text& text = texts_[held_.size()];
    if (const KvCache* found = Find(text); found != nullptr) {
      Hold(*found, LeadOf(text));
      if (historic != nullptr) return {};
      continue;
    }
    made_prompt_ = std::make_unique<Prompt>(Prompt::FromTokens(IdsOf(text, LeadOf(text))));
    made_ = std::make_unique<KvCache>(model_.NewCache(cache_.planned_length(), store_.pools()));
    // What begins the prompt stays where it is; the others are turned when they are used.
    for (int64_t l = 0; l < shape_.layers && text.begin > 0; ++l) {
      KVG_TRY(made_->Store(l, PlanOf(Plain(), {.raw = true})));
    }
  }
  if (made_ == nullptr) {
    step_ = Step::kBegin;
    return {};
  }
  const int64_t begin = made_->tokens();
  const int64_t end = std::min(begin + Model::kChunkRows, made_prompt_->size());
  KVG_TRY(made_->Append(end - begin));
  const SequenceStep step = {.cache = made_.get(),
                             .prompt = made_prompt_.get(),
                             .begin = begin,
                             .end = end,
                             .logits = LogitRows::kNone};
  model_.Forward({&step, 1});
  model_.ops().memory->Synchronize();
  if (end == made_prompt_->size()) {
    const Text& text = texts_[held_.size()];
    ReuseStore::Kept kept = {.ids = IdsOf(text, LeadOf(text)),
                             .turns = cache_.frequencies(0),
                             .chunk = text.begin > 0,
                             .lead = LeadOf(text),
                             .cache = made_->Fork()};
    Hold(*made_, LeadOf(text));
    made_ = nullptr;
    store_.Put(std::move(kept));
    facts_.made_tokens += end;
  }
  facts_.made_s += NowSeconds() - start_s;
  return {};
}

// The beginning of the prompt has its place already, in all layers.
Status ReusePrefill::Begin() {
  Ops& ops = model_.ops();
  const int64_t tokens = prompt_.size(), heads = shape_.kv_heads;
  const int64_t dk = shape_.key_dim, dv = shape_.value_dim;
  rows_.resize(static_cast<size_t>(tokens));
  std::iota(rows_.begin(), rows_.end(), 0);
  if (!texts_.empty()) {
    const Text& first = texts_[0];
    rows_.erase(rows_.begin(), rows_.begin() + first.end);
    std::vector<int32_t> places(static_cast<size_t>(first.end));
    std::iota(places.begin(), places.end(), 0);
    KVG_TRY(cache_.AppendAt(0, shape_.layers, places));
    const Buffer memory =
        ops.memory->Allocate(first.end * (heads * (dk + dv) + std::max(dk, dv)) * 4);
    const Tensor all = memory.As(DType::kF32, {memory.size_bytes() / 4});
    const int64_t values_at = first.end * heads * dk, one_at = values_at + first.end * heads * dv;
    const Tensor keys = all.Slice(0, values_at).Reshape({first.end, heads, dk});
    const Tensor values = all.Slice(values_at, one_at).Reshape({first.end, heads, dv});
    const Tensor key = all.Slice(one_at, one_at + first.end * dk).Reshape({first.end, dk});
    const Tensor value = all.Slice(one_at, one_at + first.end * dv).Reshape({first.end, dv});
    for (int64_t l = 0; l < shape_.layers; ++l) {
      for (int64_t h = 0; h < heads; ++h) {
        held_[0].ReadKeys(l, h, 0, key);
        ops.rows->Convert(key, OfHead(keys, h));
        held_[0].ReadValues(l, h, 0, value);
        ops.rows->Convert(value, OfHead(values, h));
      }
      cache_.Write(l, keys, values);
    }
  }
  layer_ = texts_.size() > 1 ? stage().CheckedLayer(shape_) : 0;
  KVG_CHECK(layer_ < shape_.layers, "a layer that is not there");
  const int64_t entries = tokens * heads * (dk + dv);
  entry_memory_ = ops.memory->Allocate(entries * (layer_ > 0 ? 2 : 1) * 4);
  for (int i = 0; i < (layer_ > 0 ? 2 : 1); ++i) {
    const Tensor all = entry_memory_.As(DType::kF32, {entry_memory_.size_bytes() / 4})
                           .Slice(i * entries, (i + 1) * entries);
    Tensor* of = i == 0 ? joined_ : fresh_;
    of[0] = all.Slice(0, tokens * heads * dk).Reshape({tokens, heads, dk});
    of[1] = all.Slice(tokens * heads * dk, entries).Reshape({tokens, heads, dv});
  }
  const auto rows = std::ssize(rows_);
  hidden_memory_ = ops.memory->Allocate(rows * shape_.hidden_size * 4);
  hidden_ = hidden_memory_.As(DType::kF32, {rows, shape_.hidden_size});
  step_ = layer_ > 0 ? Step::kBelow : Step::kChoose;
  return {};
}

// As an ordinary prefill, behind what is shared with an earlier prompt.
Result<Tensor> ReusePrefill::ReadBehindPrefix() {
  const int64_t tokens = prompt_.size();
  if (cache_.tokens() == 0) {
    int64_t common = 0;
    const KvCache* found = store_.FindPrefix(IdsOf({0, tokens}, 0), cache_.frequencies(0), &common);
    common = std::min(common, tokens - 1);
    if (found != nullptr && common > 0) {
      cache_ = found->Fork();
      KVG_TRY(cache_.Truncate(common));
      facts_.reused_tokens = common;
      facts_.chunks = 1;
    }
  }
  const int64_t begin = cache_.tokens();
  const int64_t end = std::min(begin + Model::kChunkRows, tokens);
  KVG_TRY(cache_.Append(end - begin));
  const SequenceStep step = {.cache = &cache_,
                             .prompt = &prompt_,
                             .begin = begin,
                             .end = end,
                             .logits = end == tokens ? LogitRows::kLast : LogitRows::kNone};
  const Tensor logits = model_.Forward({&step, 1});
  passed_ += (end - begin) * shape_.layers;
  if (end < tokens) return Tensor();
  store_.Put(
      {.ids = IdsOf({0, tokens}, 0), .turns = cache_.frequencies(0), .cache = cache_.Fork()});
  step_ = Step::kDone;
  return logits;
}

// All rows through the layers below the one that is checked.
Status ReusePrefill::PassBelow() {
  const int64_t begin = next_row_;
  const int64_t end = std::min(begin + Model::kChunkRows, std::ssize(rows_));
  const LayerStep step = {.cache = &cache_,
                          .prompt = &prompt_,
                          .places = std::span(rows_).subspan(static_cast<size_t>(begin),
                                                             static_cast<size_t>(end - begin)),
                          .first_layer = 0,
                          .end_layer = layer_,
                          .hidden = hidden_.Slice(begin, end)};
  KVG_TRY(cache_.AppendAt(0, layer_, step.places));
  model_.ForwardLayers(step);
  next_row_ = end;
  passed_ += (end - begin) * layer_;
  if (end == std::ssize(rows_)) step_ = Step::kChoose;
  return {};
}

Tensor ReusePrefill::Turns(int64_t layer) {
  const size_t kind = model_.config().layers[static_cast<size_t>(layer)].local_rope ? 1 : 0;
  if (turns_[kind].empty()) {
    std::vector<int32_t> places;
    for (const PromptPosition& position : prompt_.positions) {
      places.push_back(position.rope_position[0]);
    }
    const RopeFrequencies& frequencies = cache_.frequencies(layer);
    turns_[kind] = MakeRotations(model_.ops(), frequencies, frequencies.attention_factor,
                                 View(places, {prompt_.size()}), &turn_memory_[kind]);
  }
  return turns_[kind];
}

void ReusePrefill::Join(int64_t layer, const Tensor& keys, const Tensor& values) {
  Ops& ops = model_.ops();
  if (texts_.size() < 2) return;
  int64_t longest = 0;
  for (const Text& text : texts_) longest = std::max(longest, text.end - text.begin);
  const int64_t dk = shape_.key_dim, dv = shape_.value_dim;
  const Buffer memory = ops.memory->Allocate(longest * std::max(dk, dv) * 4);
  for (size_t t = 1; t < texts_.size(); ++t) {
    const auto [begin, end] = texts_[t];
    const Tensor key = memory.As(DType::kF32, {end - begin, dk});
    const Tensor value = memory.As(DType::kF32, {end - begin, dv});
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      held_[t].ReadRawKeys(layer, h, firsts_[t], key);
      ops.rows->Convert(key, OfHead(keys.Slice(begin, end), h));
      held_[t].ReadValues(layer, h, firsts_[t], value);
      ops.rows->Convert(value, OfHead(values.Slice(begin, end), h));
    }
  }
  const Tensor turns = Turns(layer);
  const int64_t first = texts_[1].begin, end = texts_.back().end;
  ops.rows->Rope(turns[0].Slice(first, end), turns[1].Slice(first, end), shape_.rope_layout,
                 RopeDirection::kForward, keys.Slice(first, end));
}

Status ReusePrefill::ChooseRows() {
  Ops& ops = model_.ops();
  std::vector<int64_t> begins;
  for (size_t t = 1; t < texts_.size(); ++t) begins.push_back(texts_[t].begin);
  const int64_t first = texts_.empty() ? 0 : texts_[0].end;
  const int64_t end = texts_.empty() ? 0 : texts_.back().end;
  JoinedChunks chunks;
  chunks.ops = &ops;
  chunks.begins = begins;
  chunks.end = end;
  if (layer_ > 0) {
    Join(layer_, joined_[0], joined_[1]);
    const JoinedEntries put = {.keys = fresh_[0], .values = fresh_[1], .only_put = true};
    for (int64_t row = 0; row < std::ssize(rows_); row += Model::kChunkRows) {
      const int64_t next = std::min(row + Model::kChunkRows, std::ssize(rows_));
      model_.ForwardLayers({.cache = &cache_,
                            .prompt = &prompt_,
                            .places = std::span(rows_).subspan(static_cast<size_t>(row),
                                                               static_cast<size_t>(next - row)),
                            .first_layer = layer_,
                            .end_layer = layer_ + 1,
                            .hidden = hidden_.Slice(row, next),
                            .joined = &put});
    }
    chunks.fresh_values = EntriesMatrix(fresh_[1]);
    chunks.joined_values = EntriesMatrix(joined_[1]);
  }
  std::vector<int32_t> rows = std::move(again_);
  const bool historic = dynamic_cast<const HistoricReuse*>(&stage()) != nullptr;
  if (!begins.empty() && !historic) rows = stage().Choose(chunks);
  // Tokens between texts belong to none.
  std::vector<int32_t> between;
  for (size_t t = 1; t < texts_.size(); ++t) {
    for (int64_t at = texts_[t - 1].end; at < texts_[t].begin; ++at) {
      between.push_back(static_cast<int32_t>(at));
    }
  }
  if (!between.empty()) {
    const std::vector<int32_t> chosen = std::exchange(rows, {});
    std::set_union(chosen.begin(), chosen.end(), between.begin(), between.end(),
                   std::back_inserter(rows));
  }
  int64_t before = first - 1;
  for (const int32_t row : rows) {
    if (row <= before || row >= end) {
      return BadInput(StrCat("token ", row, " after token ", before, " of chunks from ", first,
                             " to ", end, "; tokens that are computed again ascend and are there"));
    }
    before = row;
  }
  facts_.reused_tokens = end - std::ssize(rows);
  facts_.chunks = std::ssize(texts_);
  for (int64_t row = end; row < prompt_.size(); ++row) rows.push_back(static_cast<int32_t>(row));
  const auto kept = std::ssize(rows);
  if (layer_ > 0 && kept < std::ssize(rows_)) {
    std::vector<int32_t> indices;
    indices.reserve(rows.size());
    for (const int32_t row : rows) indices.push_back(row - static_cast<int32_t>(first));
    Buffer memory = ops.memory->Allocate(kept * shape_.hidden_size * 4);
    const Tensor hidden = memory.As(DType::kF32, {kept, shape_.hidden_size});
    const Buffer index_memory = ops.memory->Allocate(kept * SizeOf(DType::kI32));
    const Tensor index = index_memory.As(DType::kI32, {kept});
    ops.memory->Copy(View(indices, {kept}), index);
    ops.select->Gather(hidden_, index, hidden);
    hidden_memory_ = std::move(memory);
    hidden_ = hidden;
  } else {
    hidden_ = hidden_.Slice(0, kept);
  }
  rows_ = std::move(rows);
  step_ = Step::kAbove;
  return {};
}

Result<Tensor> ReusePrefill::PassLayer(int64_t layer, const JoinedEntries& entries) {
  JoinedEntries joined = entries;
  const bool last_layer = layer + 1 == shape_.layers;
  Tensor logits;
  for (int64_t begin = 0; begin < std::ssize(rows_); begin += Model::kChunkRows) {
    const int64_t end = std::min(begin + Model::kChunkRows, std::ssize(rows_));
    const std::span<const int32_t> places =
        std::span(rows_).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    joined.first = cache_.tokens(layer);
    std::vector<int32_t> coming(static_cast<size_t>(places.back() + 1 - joined.first));
    std::iota(coming.begin(), coming.end(), static_cast<int32_t>(joined.first));
    KVG_TRY(cache_.AppendAt(layer, layer + 1, coming));
    logits = model_.ForwardLayers(
        {.cache = &cache_,
         .prompt = &prompt_,
         .places = places,
         .first_layer = layer,
         .end_layer = layer + 1,
         .hidden = hidden_.Slice(begin, end),
         .logits = last_layer && end == std::ssize(rows_) ? LogitRows::kLast : LogitRows::kNone,
         .joined = &joined});
  }
  passed_ += std::ssize(rows_);
  return logits;
}

// Those that were chosen and the question, layer by layer.
Result<Tensor> ReusePrefill::PassAbove() {
  // On the layer that was checked everything is computed behind what stands before.
  const bool checked = layer_ > 0 && !fresh_[0].empty();
  const Tensor* of = checked ? fresh_ : joined_;
  if (!checked) Join(layer_, joined_[0], joined_[1]);
  KVG_ASSIGN(const Tensor logits, PassLayer(layer_, {.keys = of[0], .values = of[1]}));
  fresh_[0] = fresh_[1] = Tensor();
  if (++layer_ < shape_.layers) return Tensor();
  step_ = Step::kDone;
  return logits;
}

Result<Tensor> ReusePrefill::Next() {
  KVG_CHECK(!done(), "a prefill that has ended");
  KVG_TRY(CheckPrompt(prompt_, stage(), std::ssize(texts_), model_.config().vocab_size));
  Result<Tensor> logits = Tensor();
  switch (step_) {
    case Step::kMake:
      KVG_TRY(MakeSome());
      break;
    case Step::kBegin:
      KVG_TRY(Begin());
      break;
    case Step::kPrefix:
      logits = ReadBehindPrefix();
      break;
    case Step::kBelow:
      KVG_TRY(PassBelow());
      break;
    case Step::kChoose:
      KVG_TRY(ChooseRows());
      break;
    case Step::kAbove:
      logits = PassAbove();
      break;
    case Step::kDone:
      break;
  }
  if (done()) {
    facts_.rows_share =
        static_cast<double>(passed_) / static_cast<double>(prompt_.size() * shape_.layers);
    facts_.store_bytes = store_.bytes();
    held_.clear();
  }
  return logits;
}

int64_t ReusePrefill::PlannedBytes(const StageChoice& reuse, const ModelConfig& config,
                                   int64_t rows, int64_t passages) {
  const int64_t entry = config.kv_heads * (config.key_dim + config.value_dim);
  const int64_t joined = rows * 4 * (2 * config.hidden_size + 3 * entry);
  const std::unique_ptr<Stage> stage = MakeStage(reuse);
  const auto* historic = dynamic_cast<const HistoricReuse*>(stage.get());
  if (historic == nullptr) return joined;
  const int64_t chunk = historic->chunk_tokens();
  const int64_t texts = 1 + (passages > 0 ? passages : (rows + chunk - 1) / chunk);
  // Earlier prompts are read before anything is joined.
  return std::max(joined, EarlierReads::PlannedBytes(*historic, config, rows, texts));
}

}  // namespace kvgauge
