// SPDX-License-Identifier: Apache-2.0
#include "runner/thin_prefill.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>

#include "core/strings.h"
#include "methods/encoding_thin.h"
#include "methods/rereading_thin.h"
#include "methods/tensors.h"
#include "methods/trained_thin.h"
#include "runner/compressor.h"
#include "src/compress/view.h"
#include "src/engine/condensed_prefill.h"
#include "src/engine/pass_bytes.h"
#include "src/engine/rewritten_prompt.h"

namespace kvgauge {
namespace {

// Keeps what the rows of a pass tell.
class KeptSurprise final : public LayerHook {
 public:
  explicit KeptSurprise(Ops& ops) : ops_(ops) {}
  bool wants_surprise() const override { return true; }
  void TakeSurprise(const Tensor& told) override {
    const std::vector<float> some = Fetch(ops_, told);
    told_.insert(told_.end(), some.begin(), some.end());
  }
  void BeforeAttend(int64_t, const Tensor&) override {}
  void AfterAttend(int64_t, const Tensor&, const Tensor&, const Tensor&) override {}
  const std::vector<float>& told() const { return told_; }

 private:
  Ops& ops_;
  std::vector<float> told_;
};

// Reads rows into a cache whose own are done with.
class CacheReader final : public RowReader {
 public:
  CacheReader(Model& model, const Prompt& prompt, KvCache& cache)
      : model_(model), prompt_(prompt), cache_(cache) {}

  bool has_read() const { return begun_; }

  Result<std::vector<float>> Surprise(std::span<const int32_t> rows, int64_t first,
                                      std::span<const int32_t> behind) override {
    const int64_t n = std::ssize(rows) + std::ssize(behind);
    KVG_CHECK(first >= 0 && first < n, "rows that foretell are among those that are read");
    std::vector<int32_t> ids;
    for (const int32_t row : rows) {
      ids.push_back(prompt_.positions[static_cast<size_t>(row)].token_id);
      KVG_CHECK(ids.back() >= 0, "rows of pictures are not read by themselves");
    }
    ids.insert(ids.end(), behind.begin(), behind.end());
    const auto common = std::ranges::mismatch(ids, read_).in1 - ids.begin();
    const int64_t begin = std::min<int64_t>(common, first);
    KVG_TRY(cache_.Truncate(begun_ ? begin : 0));
    begun_ = true;
    const Prompt alone = Prompt::FromTokens(ids);
    cache_.PlaceRope(RopePlaces::Of(alone));
    read_ = std::move(ids);
    KeptSurprise kept(model_.ops());
    while (cache_.tokens() < n) {
      const int64_t at = cache_.tokens(), end = std::min(at + Model::kChunkRows, n);
      KVG_TRY(cache_.Append(end - at));
      const SequenceStep step = {&cache_, &alone, at, end, LogitRows::kNone, &kept};
      model_.Forward({&step, 1});
    }
    return std::vector<float>(kept.told().begin() + (first - begin), kept.told().end() - 1);
  }

  RowReader& Beside() override {
    if (beside_ == nullptr) {
      own_.emplace(model_.NewCache(2 * prompt_.size()));
      beside_ = std::make_unique<CacheReader>(model_, prompt_, *own_);
    }
    return *beside_;
  }

  Result<std::vector<int32_t>> Encode(std::string_view text) override {
    return model_.encode()(text);
  }

 private:
  Model& model_;
  const Prompt& prompt_;
  KvCache& cache_;
  bool begun_ = false;
  std::vector<int32_t> read_;   // ids
  std::optional<KvCache> own_;  // of the one beside it
  std::unique_ptr<CacheReader> beside_;
};

}  // namespace

ThinPrefill::ThinPrefill(Model& model, const StageChoice& thin, Prompt& prompt, KvCache& cache,
                         PrefillCapture& capture, uint64_t seed, int64_t context,
                         std::span<const int64_t> passages)
    : model_(model),
      choice_(thin),
      stage_(MakeStage(thin)),
      thin_(static_cast<const Thin&>(*stage_)),
      merging_(dynamic_cast<const MergingThin*>(&thin_)),
      rewriting_(dynamic_cast<const RewritingThin*>(&thin_)),
      encoding_(dynamic_cast<const EncodingThin*>(&thin_)),
      prompt_(prompt),
      cache_(cache),
      capture_(capture),
      shape_(model.shape()),
      seed_(seed),
      gaps_(thin_.Layers(shape_)),
      places_(static_cast<size_t>(prompt.size())) {
  KVG_CHECK(cache.tokens() == 0 && prompt.size() > 0, "a whole prompt into an empty cache");
  if (const auto* condensing = dynamic_cast<const CondensingThin*>(&thin_)) {
    condensed_ = std::make_unique<CondensedPrefill>(model, NameOf(*thin.spec), *condensing, prompt,
                                                    context, passages, cache);
    return;
  }
  std::iota(places_.begin(), places_.end(), 0);
  memory_ = model.ops().memory->Allocate(rows() * shape_.hidden_size * 4);
  hidden_ = memory_.As(DType::kF32, {rows(), shape_.hidden_size});
  const int64_t bytes = rows() * shape_.hidden_size * 4;
  if (WantsInputs()) inputs_ = model_.ops().memory->Allocate(bytes);
  if (WantsNormed()) normed_ = model_.ops().memory->Allocate(bytes);
}

ThinPrefill::~ThinPrefill() = default;

Result<Tensor> ThinPrefill::Next() {
  KVG_CHECK(!done_, "a prefill that has ended");
  if (condensed_ != nullptr) {
    Result<Tensor> logits = condensed_->Next();
    done_ = condensed_->done();
    return logits;
  }
  if (encoding_ != nullptr && stretch_ == 0) {
    const Result<bool> encoded = EncodeRows();
    if (!encoded.ok()) return encoded.error().Wrap(NameOf(*choice_.spec));
    if (!*encoded) return Tensor();
  }
  if ((rewriting_ != nullptr || encoding_ != nullptr) && stretch_ == 0) {
    const Status rewritten = LetRowsGo();
    if (!rewritten.ok()) return rewritten.error().Wrap(NameOf(*choice_.spec));
    return Tensor();
  }
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
      .hook = &capture_,
      .normed = !last_stretch() && WantsNormed() ? Normed().Slice(begin, end) : Tensor()};
  // Where nothing is left out behind the last layer, the head alone follows.
  if (step.first_layer < step.end_layer) {
    KVG_TRY(cache_.AppendAt(step.first_layer, step.end_layer, step.places));
  }
  if (stretch_ == 0 && WantsInputs()) {
    LayerStep embedding = step;
    embedding.end_layer = 0;
    embedding.logits = LogitRows::kNone;
    embedding.normed = {};
    embedding.hidden = Inputs().Slice(begin, end);
    model_.ForwardLayers(embedding);
  }
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

Tensor ThinPrefill::Inputs() const {
  return WantsInputs() ? inputs_.As(DType::kF32, {prompt_.size(), shape_.hidden_size}) : Tensor();
}

Tensor ThinPrefill::Normed() const {
  return WantsNormed() ? normed_.As(DType::kF32, {rows(), shape_.hidden_size}) : Tensor();
}

Result<bool> ThinPrefill::EncodeRows() {
  if (!prompt_.spans.empty()) {
    return Unsupported(
        "an encoder reads text, and this prompt shows pictures; expected a task of text");
  }
  const auto [begin, end] = encoding_->Encoded(prompt_.size());
  const auto id_of = [&](int64_t row) {
    return prompt_.positions[static_cast<size_t>(row)].token_id;
  };
  // The token that begins texts is none of what the encoder reads.
  const bool begins = end > 0 && id_of(0) == model_.config().bos_id;
  const int64_t first = std::max({next_row_, begin, int64_t{begins ? 1 : 0}});
  const int64_t chunk = encoding_->chunk_tokens();
  const int64_t last =
      std::min(first + std::max(Model::kChunkRows / chunk, int64_t{1}) * chunk, end);
  if (first < last) {
    std::vector<int32_t> ids;
    for (int64_t row = first; row < last; ++row) ids.push_back(id_of(row));
    KVG_TRY(model_.Encode(ids, chunk, cache_));
  }
  next_row_ = last;
  return last >= end;
}

Result<ThinPrefill::Chosen> ThinPrefill::ChooseRows() {
  if (encoding_ != nullptr) {
    Chosen chosen;
    chosen.rows.resize(static_cast<size_t>(rows() - encoding_->Encoded(rows()).end));
    std::iota(chosen.rows.begin(), chosen.rows.end(),
              static_cast<int32_t>(encoding_->Encoded(rows()).end));
    return chosen;
  }
  if (rewriting_ != nullptr) {
    Chosen chosen;
    KVG_ASSIGN(chosen.rows, RewritePrompt(*rewriting_, choice_, model_, prompt_));
    return chosen;
  }
  const ViewSource source = {.model = &model_,
                             .shape = &shape_,
                             .cache = &cache_,
                             .prompt = &prompt_,
                             .prefill = &capture_,
                             .seed = seed_};
  const int64_t layer = gaps_[static_cast<size_t>(stretch_)];
  CacheView view(source, layer - 1);
  RowsOn on;
  if (const auto* rereading = dynamic_cast<const RereadingThin*>(&thin_)) {
    CacheReader reader(model_, prompt_, cache_);
    KVG_ASSIGN(on.kept, rereading->ChooseBy(view, reader));
    forgotten_ = reader.has_read();
  } else if (merging_ != nullptr) {
    on = merging_->Pass(view, {.hidden = hidden_, .inputs = Inputs(), .normed = Normed()});
  } else {
    on.kept = thin_.Choose(view);
  }
  const auto fetched = [&](const Tensor& index) {
    std::vector<int32_t> host(index.empty() ? 0 : static_cast<size_t>(index.shape[0]));
    if (!host.empty()) model_.ops().memory->Copy(index, View(host, {std::ssize(host)}));
    return host;
  };
  const std::vector<int32_t> kept = fetched(on.kept), made = fetched(on.made);
  int32_t before = -1;
  for (const std::vector<int32_t>* some : {&kept, &made}) {
    before = -1;
    for (const int32_t row : *some) {
      if (row <= before || row >= rows()) {
        return BadInput(StrCat("for layer ", layer, ": row ", row, " after row ", before, " of ",
                               rows(), "; rows that go on ascend and are there"));
      }
      before = row;
    }
  }
  Chosen chosen;
  std::merge(kept.begin(), kept.end(), made.begin(), made.end(), std::back_inserter(chosen.rows));
  if (std::adjacent_find(chosen.rows.begin(), chosen.rows.end()) != chosen.rows.end()) {
    return BadInput(
        StrCat("for layer ", layer, ": a made row takes the place of one that goes on"));
  }
  if (kept.empty() || kept.back() != rows() - 1) {
    return BadInput(StrCat("for layer ", layer, ": the last of ", rows(),
                           " rows must go on, as it gives the answer's first token"));
  }
  if (made.empty()) return chosen;
  for (const int32_t row : made) {
    const auto at = std::lower_bound(chosen.rows.begin(), chosen.rows.end(), row);
    chosen.made.push_back(static_cast<int32_t>(at - chosen.rows.begin()));
  }
  const int64_t count = std::ssize(made);
  chosen.values = model_.ops().memory->Allocate(count * shape_.hidden_size * 4);
  model_.ops().linear->MatMulNN(on.shares.Reshape({1, count, rows()}),
                                hidden_.Reshape({1, rows(), shape_.hidden_size}), 1.0f,
                                chosen.values.As(DType::kF32, {1, count, shape_.hidden_size}));
  return chosen;
}

// What is left of the rows goes on at the same places; or from the first layer on, by itself.
Status ThinPrefill::LetRowsGo() {
  KVG_ASSIGN(const Chosen chosen, ChooseRows());
  const std::vector<int32_t>& keep = chosen.rows;
  Ops& ops = model_.ops();
  const int64_t layer = gaps_[static_cast<size_t>(stretch_)], kept = std::ssize(keep);
  const bool fewer = kept < rows();
  const bool again = (fewer && thin_.reads_again()) || forgotten_;
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
  if (!chosen.made.empty()) {
    const int64_t made = std::ssize(chosen.made);
    const Buffer indices = ops.memory->Allocate(made * SizeOf(DType::kI32));
    const Tensor index = indices.As(DType::kI32, {made});
    ops.memory->Copy(View(chosen.made, {made}), index);
    ops.select->Scatter(chosen.values.As(DType::kF32, {made, shape_.hidden_size}), index, hidden_);
  }
  if (again) {
    if (rewriting_ == nullptr && encoding_ == nullptr) KVG_TRY(cache_.Truncate(0));
    cache_.PlaceRope(RopePlaces::Of(prompt_));
    if (thin_.closes_up()) CloseUp();
  }
  first_layer_ = again ? 0 : layer;
  capture_.Begin(first_layer_, kept);
  next_row_ = 0;
  ++stretch_;
  return {};
}

// Each text that has left took one place on every axis.
void ThinPrefill::CloseUp() {
  int32_t gone = 0;
  for (size_t row = 0, kept = 0; row < prompt_.positions.size(); ++row) {
    for (int32_t& place : prompt_.positions[row].rope_position) place -= gone;
    if (kept < places_.size() && places_[kept] == static_cast<int32_t>(row)) {
      ++kept;
    } else {
      ++gone;
    }
  }
  prompt_.next_rope_position -= gone;
  cache_.PlaceRope(RopePlaces::Of(prompt_));
}

int64_t ThinPrefill::PlannedBytes(const StageChoice& thin, const ModelConfig& config,
                                  int64_t rows) {
  const std::unique_ptr<Stage> stage = MakeStage(thin);
  if (const auto* condensing = dynamic_cast<const CondensingThin*>(stage.get())) {
    return CondensedPrefill::PlannedBytes(*condensing, ShapeOf(config, config.stored_dtype));
  }
  if (const auto* encoding = dynamic_cast<const EncodingThin*>(stage.get());
      encoding != nullptr && config.encoder != nullptr) {
    // What an encoder makes, which is held, and its passes: keys and values lie in pages, too.
    const ModelConfig& encoder = *config.encoder;
    const int64_t pass = std::max(Model::kChunkRows, encoding->chunk_tokens());
    const int64_t pages = 2 * encoder.kv_heads * encoder.key_dim * 4;
    return 2 * rows * config.hidden_size * 4 +
           (rows + kKvPageEntries) * encoder.hidden_size * SizeOf(DType::kF32) +
           PassBytes(encoder, pass, 0) + pass * pages;
  }
  const auto* merging = dynamic_cast<const MergingThin*>(stage.get());
  // Before and after rows leave; what the first layer read, what is merged, and what is normed.
  int64_t copies = 2;
  if (merging != nullptr) copies += 1 + (merging->wants_inputs() ? 1 : 0);
  if (merging != nullptr && merging->wants_normed()) ++copies;
  int64_t own = 0;
  if (const auto* trained = dynamic_cast<const TrainedThin*>(stage.get())) {
    const ModelShape shape = ShapeOf(config, config.stored_dtype);
    own = trained->WeightBytes(shape) + trained->WorkingBytes(shape, rows);
  }
  if (thin.tagger != nullptr) own += thin.tagger->working_bytes;
  const auto* reading = dynamic_cast<const RereadingThin*>(stage.get());
  const bool rereads = reading != nullptr;
  Needs told;
  told.surprise = rereads;
  const bool beside = reading != nullptr && reading->reads_beside();
  return copies * rows * config.hidden_size * 4 + own +
         (beside ? FullCacheBytes(ShapeOf(config, config.stored_dtype), 2 * rows) : 0) +
         (rereads ? PrefillCapture::PlannedBytes(config, told, rows) : 0);
}

}  // namespace kvgauge
