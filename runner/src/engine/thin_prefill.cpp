// SPDX-License-Identifier: Apache-2.0
#include "runner/thin_prefill.h"

#include <algorithm>
#include <numeric>

#include "core/strings.h"
#include "src/compress/view.h"

namespace kvgauge {

ThinPrefill::ThinPrefill(Model& model, const StageChoice& thin, const Prompt& prompt,
                         KvCache& cache, PrefillCapture& capture, uint64_t seed)
    : model_(model),
      choice_(thin),
      stage_(MakeStage(thin)),
      prompt_(prompt),
      cache_(cache),
      capture_(capture),
      shape_(model.shape()),
      seed_(seed),
      gaps_(static_cast<const Thin&>(*stage_).Layers(shape_)),
      places_(static_cast<size_t>(prompt.size())) {
  KVG_CHECK(cache.tokens() == 0 && prompt.size() > 0, "a whole prompt into an empty cache");
  std::iota(places_.begin(), places_.end(), 0);
  memory_ = model.ops().memory->Allocate(rows() * shape_.hidden_size * 4);
  hidden_ = memory_.As(DType::kF32, {rows(), shape_.hidden_size});
}

ThinPrefill::~ThinPrefill() = default;

Result<Tensor> ThinPrefill::Next() {
  KVG_CHECK(!done_, "a prefill that has ended");
  const int64_t begin = next_row_, end = std::min(begin + Model::kChunkRows, rows());
  const auto count = static_cast<size_t>(end - begin);
  const bool last = last_stretch() && end == rows();
  const LayerStep step = {
      .cache = &cache_,
      .prompt = &prompt_,
      .places = std::span(places_).subspan(static_cast<size_t>(begin), count),
      .first_layer = first_layer_,
      .end_layer = last_stretch() ? shape_.layers : gaps_[static_cast<size_t>(stretch_)],
      .hidden = hidden_.Slice(begin, end),
      .logits = last ? LogitRows::kLast : LogitRows::kNone,
      .hook = &capture_};
  KVG_TRY(cache_.AppendAt(step.first_layer, step.end_layer, step.places));
  const Tensor logits = model_.ForwardLayers(step);
  next_row_ = end;
  if (end < rows()) return Tensor();
  KVG_TRY(capture_.status());
  done_ = last;
  if (done_) return logits;
  const Status gone = LetRowsGo();
  if (!gone.ok()) return gone.error().Wrap(NameOf(*choice_.spec));
  return Tensor();
}

Result<std::vector<int32_t>> ThinPrefill::ChooseRows() const {
  const ViewSource source = {.model = &model_,
                             .shape = &shape_,
                             .cache = &cache_,
                             .prompt = &prompt_,
                             .prefill = &capture_,
                             .seed = seed_};
  const int64_t layer = gaps_[static_cast<size_t>(stretch_)];
  CacheView view(source, layer - 1);
  const Tensor chosen = static_cast<const Thin&>(*stage_).Choose(view);
  std::vector<int32_t> keep(static_cast<size_t>(chosen.shape[0]));
  model_.ops().memory->Copy(chosen, View(keep, {std::ssize(keep)}));
  int64_t before = -1;
  for (const int32_t row : keep) {
    if (row <= before || row >= rows()) {
      return BadInput(StrCat("for layer ", layer, ": row ", row, " after row ", before, " of ",
                             rows(), "; rows that go on ascend and are there"));
    }
    before = row;
  }
  if (before != rows() - 1) {
    return BadInput(StrCat("for layer ", layer, ": the last of ", rows(),
                           " rows must go on, as it gives the answer's first token"));
  }
  return keep;
}

// What is left of the rows goes on at the same places; or from the first layer on, by itself.
Status ThinPrefill::LetRowsGo() {
  KVG_ASSIGN(const std::vector<int32_t> keep, ChooseRows());
  Ops& ops = model_.ops();
  const int64_t layer = gaps_[static_cast<size_t>(stretch_)], kept = std::ssize(keep);
  const bool fewer = kept < rows();
  const bool again = fewer && static_cast<const Thin&>(*stage_).reads_again();
  if (fewer) {
    Buffer memory = ops.memory->Allocate(kept * shape_.hidden_size * 4);
    const Tensor hidden = memory.As(DType::kF32, {kept, shape_.hidden_size});
    if (!again) {
      const Buffer indices = ops.memory->Allocate(kept * SizeOf(DType::kI32));
      const Tensor index = indices.As(DType::kI32, {kept});
      ops.memory->Copy(View(keep, {kept}), index);
      ops.select->Gather(hidden_, index, hidden);
    }
    memory_ = std::move(memory);
    hidden_ = hidden;
    std::vector<int32_t> places;
    places.reserve(keep.size());
    for (const int32_t row : keep) places.push_back(places_[static_cast<size_t>(row)]);
    places_ = std::move(places);
  }
  if (again) KVG_TRY(cache_.Truncate(0));
  first_layer_ = again ? 0 : layer;
  capture_.Begin(first_layer_, kept);
  next_row_ = 0;
  ++stretch_;
  return {};
}

int64_t ThinPrefill::PlannedBytes(const ModelConfig& config, int64_t rows) {
  return 2 * rows * config.hidden_size * 4;  // before and after rows leave
}

}  // namespace kvgauge
