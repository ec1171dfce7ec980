// SPDX-License-Identifier: Apache-2.0
#include "runner/sparse_prefill.h"

#include <algorithm>
#include <numeric>

#include "core/strings.h"
#include "methods/tensors.h"
#include "src/compress/prompt_reach.h"
#include "src/compress/view.h"

namespace kvgauge {

SparsePrefill::SparsePrefill(Model& model, const StageChoice& attend, const Prompt& prompt,
                             KvCache& cache, PrefillCapture& capture, uint64_t seed)
    : model_(model),
      choice_(attend),
      stage_(MakeStage(attend)),
      prompt_(prompt),
      cache_(cache),
      capture_(capture),
      shape_(model.shape()),
      seed_(seed),
      places_(static_cast<size_t>(prompt.size())) {
  KVG_CHECK(cache.tokens() == 0 && prompt.size() > 0, "a whole prompt into an empty cache");
  std::iota(places_.begin(), places_.end(), 0);
  const int64_t chunk = std::min(rows(), Model::kChunkRows), heads = shape_.query_heads;
  const auto allocate = [&](int64_t numbers) {
    return model_.ops().memory->Allocate(numbers * SizeOf(DType::kF32));
  };
  hidden_ = allocate(rows() * shape_.hidden_size);
  queries_ = allocate(rows() * heads * shape_.key_dim);
  attended_ = allocate(chunk * heads * shape_.value_dim);
  chunk_sums_ = allocate(chunk * heads);
  log_sums_ = allocate(rows() * heads);
}

SparsePrefill::~SparsePrefill() = default;

Tensor SparsePrefill::Queries() const {
  return queries_.As(DType::kF32, {rows(), shape_.query_heads, shape_.key_dim});
}

Result<Tensor> SparsePrefill::Next() {
  KVG_CHECK(!done_, "a prefill that has ended");
  if (model_.config().mutual_pictures && !prompt_.spans.empty()) {
    return Unsupported(StrCat(NameOf(*choice_.spec),
                              " says what rows see of what lies before them, and tokens of a "
                              "picture attend to each other in this model; leave out the stage"));
  }
  const int64_t begin = next_row_, end = std::min(begin + Model::kChunkRows, rows());
  KVG_ASSIGN(const Tensor logits, chosen_ ? Attend(begin, end) : Project(begin, end));
  next_row_ = end;
  if (end < rows()) return Tensor();
  next_row_ = 0;
  if (!chosen_) {
    const Status chosen = Choose();
    if (!chosen.ok()) return chosen.error().Wrap(NameOf(*choice_.spec));
    chosen_ = true;
    return Tensor();
  }
  CaptureLayer();
  KVG_TRY(capture_.status());
  chosen_ = false;
  done_ = ++layer_ == shape_.layers;
  return logits;
}

Result<Tensor> SparsePrefill::Project(int64_t begin, int64_t end) {
  const auto count = static_cast<size_t>(end - begin);
  const LayerStep step = {
      .cache = &cache_,
      .prompt = &prompt_,
      .places = std::span(places_).subspan(static_cast<size_t>(begin), count),
      .first_layer = layer_,
      .end_layer = layer_ + 1,
      .hidden = hidden_.As(DType::kF32, {rows(), shape_.hidden_size}).Slice(begin, end),
      .hook = &capture_,
      .part = LayerPass::kQueries,
      .queries = Queries().Slice(begin, end)};
  KVG_TRY(cache_.AppendAt(layer_, layer_ + 1, step.places));
  model_.ForwardLayers(step);
  return Tensor();
}

Status SparsePrefill::Choose() {
  reach_ = nullptr;
  // Where a layer has a window of its own, the model itself says what rows see.
  if (shape_.windows[static_cast<size_t>(layer_)] > 0) return {};
  const ViewSource source = {.model = &model_,
                             .shape = &shape_,
                             .cache = &cache_,
                             .prompt = &prompt_,
                             .prefill = &capture_,
                             .seed = seed_};
  CacheView view(source, layer_);
  PromptSight sight = static_cast<const kvgauge::Attend&>(*stage_).Choose(view, Queries());
  KVG_ASSIGN(PromptReach reach, PromptReach::Of(std::move(sight), rows(), shape_.query_heads));
  reach_ = std::make_shared<PromptReach>(std::move(reach));
  reach_->Gather(model_.ops(), LayerAttention(model_.config(), cache_, layer_),
                 cache_.Layer(layer_));
  return {};
}

Result<Tensor> SparsePrefill::Attend(int64_t begin, int64_t end) {
  Ops& ops = model_.ops();
  const int64_t count = end - begin, heads = shape_.query_heads;
  const AttentionShape shape = LayerAttention(model_.config(), cache_, layer_);
  const Tensor out = attended_.As(DType::kF32, {count, heads, shape_.value_dim});
  const Tensor sums = chunk_sums_.As(DType::kF32, {heads, count});
  const Tensor queries = Queries().Slice(begin, end);
  if (reach_ != nullptr && !reach_->whole()) {
    reach_->Attend(ops, shape, cache_.Layer(layer_), begin, end, queries, out, sums);
  } else {
    // As an ordinary prefill has it: heads hold no more than what the rows see.
    std::vector<KvSegment> segments;
    std::vector<KvHead> heads_so_far;
    for (const KvHead& head : cache_.Layer(layer_)) {
      KVG_CHECK(head.count == 1, "a prompt in several segments");
      segments.push_back(head.segments[0]);
      segments.back().length = end;
    }
    for (const KvSegment& segment : segments) heads_so_far.push_back({&segment, 1});
    const AttentionItem item = {.first_row = 0,
                                .rows = count,
                                .token_position = begin,
                                .heads = heads_so_far,
                                .column_sums = capture_.ColumnSumsOfRows(layer_)};
    ops.attention->Attend(shape, {&item, 1}, queries, out, {.log_sum_exp = sums, .entropy = {}});
    capture_.TakeRows(layer_, heads_so_far, queries, sums);
  }
  ops.rows->Convert(sums, Columns(log_sums_.As(DType::kF32, {heads, rows()}), begin, end));
  const bool last = layer_ + 1 == shape_.layers && end == rows();
  const LayerStep step = {
      .cache = &cache_,
      .prompt = &prompt_,
      .places = std::span(places_).subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
      .first_layer = layer_,
      .end_layer = layer_ + 1,
      .hidden = hidden_.As(DType::kF32, {rows(), shape_.hidden_size}).Slice(begin, end),
      .logits = last ? LogitRows::kLast : LogitRows::kNone,
      .part = LayerPass::kRest,
      .attended = out.Reshape({count, heads * shape_.value_dim})};
  return model_.ForwardLayers(step);
}

// All rows of the layer at once: its attention was computed outside of the model's passes.
void SparsePrefill::CaptureLayer() {
  if (reach_ != nullptr) reach_->Forget();
  const Tensor sums = log_sums_.As(DType::kF32, {shape_.query_heads, rows()});
  capture_.TakeLayer(layer_, reach_, Queries(), sums);
  reach_ = nullptr;
}

int64_t SparsePrefill::PlannedBytes(const ModelConfig& config, int64_t rows) {
  const int64_t chunk = std::min(rows, Model::kChunkRows), heads = config.query_heads;
  // Columns are at most the prompt, for every query head.
  const int64_t columns = heads * rows * (config.key_dim + config.value_dim);
  return 4 * (rows * (config.hidden_size + heads * (config.key_dim + 1)) +
              chunk * heads * (config.value_dim + 1) + columns);
}

}  // namespace kvgauge
