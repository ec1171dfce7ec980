// SPDX-License-Identifier: Apache-2.0
#include "runner/kv_cache.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "core/strings.h"
#include "src/cache/cache_layer.h"
#include "src/cache/encoded_rows.h"
#include "src/cache/rope_tables.h"
#include "src/cache/states.h"

namespace kvgauge {
KvCache::KvCache(const ModelConfig& config, const KvCacheOptions& options, CachePools& pools)
    : devices_(options.devices != nullptr ? *options.devices
                                          : LayerDevices(pools.of(Tier::kDevice).ops())),
      planned_length_(options.planned_length),
      sinks_(options.sinks),
      turning_(devices_.ranges().size()),
      distances_(devices_.ranges().size()) {
  auto setup = std::make_shared<LayerSetup>();
  setup->format = {
      .dtype = options.dtype, .key_dim = config.key_dim, .value_dim = config.value_dim};
  setup->query_heads = config.query_heads;
  setup->kv_heads = config.kv_heads;
  setup->mla = config.mla.has_value();
  if (options.mla_latent) {
    KVG_CHECK(config.mla.has_value(), "only MLA models have latents");
    setup->format.key_dim = config.mla->kv_lora_rank + config.mla->rope_dim;
    setup->format.value_dim = config.mla->kv_lora_rank;
    setup->kv_heads = 1;
    setup->values_in_keys = true;
  }
  if (config.made_keys) {
    setup->format.value_dim = config.key_dim;
    setup->values_in_keys = true;
    setup->rows_alone = true;
  }
  setup->windowed = std::any_of(config.layers.begin(), config.layers.end(),
                                [](const LayerConfig& layer) { return layer.window > 0; });
  setup->slopes = config.distance_slopes;
  if (config.rounded_distances) setup->rounded_scale = config.attention_scale;
  entry_tokens_ = config.EntryTokens();
  aligned_ = entry_tokens_ == 1;
  if (config.encoder != nullptr) encoder_width_ = config.encoder->hidden_size;
  setup->running = config.means.has_value();
  if (config.rope) setup->rope_layout = config.rope->layout;
  setup->frequencies = options.frequencies;
  setup->pools = &pools;
  setup_ = setup;
  // One for each kind of layers and each device, whose pools it has.
  struct Kind {
    bool local_rope;
    std::optional<HeadSizes> heads;
    std::vector<std::shared_ptr<const LayerSetup>> setups = {};
  };
  std::vector<Kind> kinds;
  const auto kind_of = [&](const LayerConfig& layer) -> const Kind& {
    const auto found = std::ranges::find_if(kinds, [&](const Kind& kind) {
      return kind.local_rope == layer.local_rope && kind.heads == layer.heads;
    });
    if (found != kinds.end()) return *found;
    LayerSetup own = *setup;
    if (layer.local_rope) {
      KVG_CHECK(config.local_rope, "a layer with a rope that the config lacks");
      own.frequencies = options.local_frequencies;
      own.local_rope = true;
    }
    if (layer.heads) {
      even_heads_ = false;
      own.kv_heads = layer.heads->kv_heads;
      own.format.key_dim = layer.heads->key_dim;
      own.format.value_dim = layer.heads->value_dim;
    }
    Kind& kind = kinds.emplace_back(Kind{layer.local_rope, layer.heads});
    for (size_t d = 0; d < std::max<size_t>(devices_.ranges().size(), 1); ++d) {
      if (d > 0) own.pools = &pools.on(d);
      kind.setups.push_back(std::make_shared<LayerSetup>(own));
    }
    return kind;
  };
  for (int64_t i = 0; i < config.layer_count(); ++i) {
    std::vector<const KvBasis*> bases;
    if (options.bases != nullptr) {
      for (const KvBasis& basis : *options.bases) {
        if (basis.layer == i) bases.push_back(&basis);
      }
    }
    const Kind& kind = kind_of(config.layers[static_cast<size_t>(i)]);
    layers_.push_back(std::make_unique<CacheLayer>(kind.setups[devices_.index_of(i)], bases));
  }
  if (!options.states.empty()) {
    states_ = std::make_unique<SequenceStates>(options.states, pools.of(Tier::kDevice));
  }
}

KvCache::KvCache(const KvCache& other)
    : setup_(other.setup_),
      devices_(other.devices_),
      planned_length_(other.planned_length_),
      even_heads_(other.even_heads_),
      sinks_(other.sinks_),
      places_(other.places_),
      apart_(other.apart_),
      turning_(other.turning_),
      distances_(other.distances_),
      states_(other.states_ ? std::make_unique<SequenceStates>(*other.states_) : nullptr),
      encoder_width_(other.encoder_width_),
      encoded_(other.encoded_),
      tokens_(other.tokens_),
      entry_tokens_(other.entry_tokens_),
      block_pad_(other.block_pad_),
      aligned_(other.aligned_) {
  for (const auto& layer : other.layers_) layers_.push_back(std::make_unique<CacheLayer>(*layer));
}

std::span<const std::unique_ptr<CacheLayer>> KvCache::LayersOf(
    const LayerDevices::Range& range) const {
  const int64_t end = std::min(range.end, layer_count());
  if (range.first >= end) return {};
  return std::span(layers_).subspan(static_cast<size_t>(range.first),
                                    static_cast<size_t>(end - range.first));
}

KvCache::KvCache(KvCache&&) noexcept = default;
// The check names what the compiler itself declares to move an array.
KvCache& KvCache::operator=(KvCache&&) noexcept = default;  // NOLINT(bugprone-*,readability-*)
KvCache::~KvCache() = default;
KvCache KvCache::Fork() const { return KvCache(*this); }

int64_t KvCache::length(int64_t layer, int64_t head) const { return layers_[layer]->length(head); }

int64_t KvCache::kv_heads(int64_t layer) const {
  return layers_[static_cast<size_t>(layer)]->setup().kv_heads;
}
int64_t KvCache::kv_heads() const {
  KVG_CHECK(even_heads_, "layers have heads of several sizes");
  return setup_->kv_heads;
}
bool KvCache::mla_latent() const { return setup_->values_in_keys && !setup_->rows_alone; }
const KvFormat& KvCache::format(int64_t layer) const {
  return layers_[static_cast<size_t>(layer)]->setup().format;
}
const KvFormat& KvCache::format() const {
  KVG_CHECK(even_heads_, "layers have heads of several sizes");
  return setup_->format;
}
const RopeFrequencies& KvCache::frequencies(int64_t layer) const {
  return layers_[layer]->setup().frequencies;
}

// Without tables no layer's keys wait to be turned: mostly no layer is asked.
bool KvCache::raw_keys(int64_t layer) const {
  return turning_[0][0].numbers != nullptr && layers_[layer]->turn().raw;
}

bool KvCache::slot_positions(int64_t layer) const {
  return raw_keys(layer) && layers_[layer]->turn().position == PositionPolicy::kSlot;
}

int64_t KvCache::slot_of(int64_t layer, int64_t head) const {
  return length(layer, head) - layers_[layer]->last_rows();
}

const DeferredRope* KvCache::rope(int64_t layer) const {
  if (!raw_keys(layer)) return nullptr;
  const Turning& turning =
      turning_[devices_.index_of(layer)][layers_[layer]->setup().local_rope ? 1 : 0];
  return slot_positions(layer) ? &turning.numbers->rope() : &turning.placed->rope();
}

std::span<const int64_t> KvCache::asked(int64_t layer) const { return layers_[layer]->asked(); }

void KvCache::PlaceRope(std::shared_ptr<const RopePlaces> places) {
  for (int64_t i = 0; i < tokens_; ++i) {
    const auto own = static_cast<int32_t>(i);
    const RopePosition plain = {own, own, own};
    KVG_CHECK((places == nullptr ? plain : places->At(i)) ==
                  (places_ == nullptr ? plain : places_->At(i)),
              "tokens that were seen stay where they stand");
  }
  places_ = std::move(places);
  for (const auto& layer : layers_) layer->SetPlaces(places_.get());
  if (turning_[0][0].numbers == nullptr) return;
  for (auto& both : turning_) {
    for (Turning& turning : both) turning.placed = nullptr;
  }
  NeedRope(std::max<int64_t>(tokens_, 1));
}

void KvCache::EndBlockBehind(int64_t prompt_tokens) {
  KVG_CHECK(tokens_ == 0, "blocks begin before the first token");
  if (entry_tokens_ == 1) return;
  block_pad_ = (entry_tokens_ - prompt_tokens % entry_tokens_) % entry_tokens_;
  aligned_ = true;
}

std::pair<int64_t, int64_t> KvCache::TokensAt(int64_t position) const {
  const int64_t begin = position * entry_tokens_ - block_pad_;
  return {std::max<int64_t>(begin, 0), begin + entry_tokens_};
}

void KvCache::NeedRope(int64_t positions) {
  const int64_t capacity =
      positions <= planned_length_ ? planned_length_ : positions + positions / 2;
  const auto extend = [&](size_t device, const RopeFrequencies& frequencies, Turning& turning) {
    const auto get = [&](const std::shared_ptr<const RopePlaces>& places) {
      return setup_->pools->on(device).rope_tables().Get(*devices_.ranges()[device].ops,
                                                         frequencies, places, setup_->rope_layout,
                                                         positions, capacity);
    };
    if (turning.numbers == nullptr || turning.numbers->capacity() < positions) {
      turning.numbers = get(nullptr);
    }
    if (places_ == nullptr) {
      turning.placed = turning.numbers;
    } else if (turning.placed == nullptr || turning.placed->capacity() < positions) {
      turning.placed = get(places_);
    }
  };
  for (size_t device = 0; device < turning_.size(); ++device) {
    auto& [plain, local] = turning_[device];
    extend(device, setup_->frequencies, plain);
    bool local_done = false;
    for (const auto& layer : LayersOf(devices_.ranges()[device])) {
      if (layer->setup().local_rope && !local_done) {
        extend(device, layer->setup().frequencies, local);
        local_done = true;
      }
      layer->SetEveryPosition(plain.numbers->every_position());
    }
  }
}

void KvCache::NeedDistances(int64_t positions) {
  if (setup_->slopes.empty() ||
      (distances_[0] != nullptr && distances_[0]->capacity() >= positions)) {
    return;
  }
  const int64_t capacity =
      positions <= planned_length_ ? planned_length_ : positions + positions / 2;
  // What layers point into stays until all of them point into this one.
  // A device without room leaves all of them as they were.
  std::vector<std::shared_ptr<const DistanceTable>> tables;
  for (const LayerDevices::Range& range : devices_.ranges()) {
    tables.push_back(std::make_shared<const DistanceTable>(*range.ops, setup_->slopes,
                                                           setup_->rounded_scale, capacity));
  }
  for (size_t device = 0; device < tables.size(); ++device) {
    for (const auto& layer : LayersOf(devices_.ranges()[device])) {
      layer->SetDistances(tables[device].get());
    }
  }
  distances_ = std::move(tables);
}

Status KvCache::Append(int64_t rows) {
  KVG_CHECK(rows > 0, "nothing to append");
  if (entry_tokens_ > 1) return AppendBlocks(rows);
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(tokens_));
  KVG_TRY(AppendTo(0, layer_count(), positions));
  tokens_ += rows;
  return {};
}

Status KvCache::AppendBlocks(int64_t rows) {
  KVG_CHECK(aligned_, "blocks are told where the prompt ends");
  const int64_t before = EntriesBehind(tokens_), after = EntriesBehind(tokens_ + rows);
  if (after > before) {
    std::vector<int32_t> blocks(static_cast<size_t>(after - before));
    std::iota(blocks.begin(), blocks.end(), static_cast<int32_t>(before));
    KVG_TRY(AppendTo(0, layer_count(), blocks));
  } else {
    KVG_TRY(states_->Own());
  }
  tokens_ += rows;
  return {};
}

Status KvCache::AppendAt(int64_t first, int64_t end, std::span<const int32_t> positions) {
  KVG_CHECK(0 <= first && first < end && end <= layer_count(), "layers that are not there");
  KVG_CHECK(entry_tokens_ == 1, "entries of blocks come in all layers together");
  KVG_CHECK(!positions.empty() && positions.front() >= tokens(first) &&
                std::adjacent_find(positions.begin(), positions.end(), std::greater_equal<>()) ==
                    positions.end(),
            "positions ascend behind those that were seen");
  KVG_TRY(AppendTo(first, end, positions));
  tokens_ = std::max<int64_t>(tokens_, positions.back() + 1);
  return {};
}

int64_t KvCache::tokens(int64_t layer) const { return layers_[layer]->tokens(); }

Status KvCache::AppendTo(int64_t first, int64_t end, std::span<const int32_t> positions) {
  const int64_t rows = std::ssize(positions), seen = positions.back() + 1;
  if (states_) {
    KVG_CHECK(first == 0 && end == layer_count(), "states go through all layers together");
    KVG_TRY(states_->Own());
  }
  const std::span<const std::unique_ptr<CacheLayer>> layers =
      std::span(layers_).subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
  for (int64_t i = first; i < end; ++i) {
    if (!raw_keys(i)) continue;
    NeedRope(seen);
    break;
  }
  NeedDistances(seen);
  for (const auto& layer : layers) {
    Status status = layer->Grow(positions);
    if (status.ok()) continue;
    for (const auto& grown : layers) grown->Trim();
    return status;
  }
  const std::vector<float> zeros(static_cast<size_t>(rows));
  for (const LayerDevices::Range& range : devices_.ranges()) {
    std::vector<MemoryOps::CopyJob> copies;
    for (int64_t i = std::max(first, range.first); i < std::min(end, range.end); ++i) {
      layers_[i]->Count(View(positions, {rows}), View(zeros, {rows}), &copies);
    }
    if (!copies.empty()) range.ops->memory->CopyAll(copies);
  }
  for (const auto& layer : layers) layer->PlaceDistances();
  return {};
}

void KvCache::Write(int64_t layer, const Tensor& keys, const Tensor& values) {
  layers_[layer]->Write(keys, values);
}

void KvCache::EndRows(int64_t layer, std::span<const int64_t> lengths,
                      std::span<const std::vector<int32_t>> positions) {
  layers_[layer]->EndRows(lengths, positions);
}

bool KvCache::wants_inputs(int64_t layer) const { return layers_[layer]->wants_inputs(); }
void KvCache::TakeInputs(int64_t layer, const Tensor& inputs) {
  layers_[layer]->TakeInputs(inputs);
}

bool KvCache::AddTargets(int64_t layer, std::vector<KvTarget>* targets) const {
  return layers_[layer]->AddTargets(targets);
}

std::span<const KvHead> KvCache::Layer(int64_t layer) const { return layers_[layer]->views(); }

void KvCache::SetRead(int64_t layer, const Tensor& words, const Tensor& bias,
                      const Tensor& places) {
  layers_[layer]->SetRead(words, bias, places);
}

int64_t KvCache::state_count() const { return states_ ? states_->count() : 0; }
Tensor KvCache::State(int64_t index) const { return states_->View(index); }
void KvCache::SetStatesMidway(bool midway) {
  if (states_) states_->SetMidway(midway);
}
bool KvCache::states_midway() const { return states_ && states_->midway(); }
std::shared_ptr<EncodedRows> KvCache::NoEncodedRows() const {
  return std::make_shared<EncodedRows>(setup_->format.dtype, encoder_width_,
                                       setup_->pools->of(Tier::kDevice));
}

Status KvCache::TakeEncoded(const Tensor& rows) {
  KVG_CHECK(rows.shape[1] == encoder_width_, "rows are those of the model's encoder");
  if (encoded_ == nullptr) encoded_ = NoEncodedRows();
  KVG_CHECK(encoded_.use_count() == 1, "rows that forks share are not added to");
  return encoded_->Append(rows);
}

int64_t KvCache::StateBytes() const { return states_ ? states_->size_bytes() : 0; }

Status KvCache::Seal() {
  for (size_t i = 0; i < layers_.size(); ++i) {
    KVG_TRY(layers_[i]->Seal());
    if (!layers_[i]->seals_with_above()) continue;
    auto lower = std::make_unique<CacheLayer>(*layers_[i]);
    auto upper = std::make_unique<CacheLayer>(*layers_[i + 1]);
    const Status shared = lower->SealTogether(*upper, &share_memory_);
    if (!shared.ok()) return shared.error().Wrap(StrCat("layer ", i));
    layers_[i] = std::move(lower);
    layers_[i + 1] = std::move(upper);
  }
  return {};
}

Status KvCache::Place(const Placement& place) {
  if (ops().device == Device::kHost || !place.any() || place.attends) return {};
  for (size_t device = 0; device < devices_.ranges().size(); ++device) {
    const LayerDevices::Range& range = devices_.ranges()[device];
    BlockMoves moves(setup_->pools->on(device).of(Tier::kDevice));
    for (int64_t i = range.first; i < std::min(range.end, layer_count()); ++i) {
      const Status placed = layers_[i]->Place(place, i, &moves);
      if (!placed.ok()) return placed.error().Wrap(StrCat("layer ", i));
    }
  }
  return {};
}

// Changes are made to a copy, so that an error leaves the layer as it was.
Status KvCache::Change(int64_t layer, const std::function<Status(CacheLayer&)>& change) {
  auto copy = std::make_unique<CacheLayer>(*layers_[layer]);
  const Status status = change(*copy);
  if (!status.ok()) return status.error().Wrap(StrCat("layer ", layer));
  layers_[layer] = std::move(copy);
  return {};
}

Status KvCache::Reduce(int64_t layer, std::span<const HeadPlan> plan) {
  const Result<bool> done = layers_[layer]->ReduceInPlace(plan);
  if (!done.ok()) return done.error().Wrap(StrCat("layer ", layer));
  if (*done) return {};
  return Change(layer, [&](CacheLayer& copy) { return copy.Reduce(plan); });
}

Result<bool> KvCache::ReduceOnDevice(int64_t layer, std::span<const HeadPlan> plan,
                                     const Tensor& outcome) {
  Result<bool> done = layers_[layer]->ReduceOnDevice(plan, outcome);
  if (!done.ok()) return done.error().Wrap(StrCat("layer ", layer));
  return done;
}

Status KvCache::Store(int64_t layer, const StorePlan& plan) {
  const bool may_turn = plan.turn.raw || plan.layout->traits().raw_keys;
  if (may_turn && !setup_->frequencies.inverse.empty()) NeedRope(std::max<int64_t>(tokens_, 1));
  std::unique_ptr<LayerLayout> layout = MakeLayerLayout(plan.layout->id());
  KVG_CHECK(layout != nullptr, StrCat("no layout of the cache is called ", plan.layout->id()));
  std::vector<std::unique_ptr<CacheLayer>> below;
  std::vector<CacheLayer*> pointers;
  const int64_t first = std::max<int64_t>(layer - layout->layers_below(*plan.layout), 0);
  for (int64_t l = first; l < layer; ++l) {
    below.push_back(std::make_unique<CacheLayer>(*layers_[l]));
    pointers.push_back(below.back().get());
  }
  KVG_TRY(Change(layer,
                 [&](CacheLayer& copy) { return copy.Store(plan, std::move(layout), pointers); }));
  for (int64_t l = first; l < layer; ++l) {
    layers_[l] = std::move(below[static_cast<size_t>(l - first)]);
  }
  return {};
}

Status KvCache::KeepByEntry(int64_t layer) {
  if (ops(layer).device != Device::kHost) return {};
  return Change(layer, [](CacheLayer& copy) { return copy.KeepByEntry(); });
}

Status KvCache::Classify(int64_t layer, const Tensor& classes) {
  const int64_t heads = kv_heads(), width = layers_[layer]->width();
  KVG_CHECK(classes.dtype == DType::kI32 && classes.rank == 2 && classes.shape[0] == heads &&
                classes.shape[1] == width && classes.IsContiguous(),
            "classes must be i32 [kv_heads, longest head]");
  std::vector<int32_t> host(static_cast<size_t>(heads * width));
  ops(layer).memory->Copy(classes, View(host, {heads, width}));
  std::vector<std::vector<int32_t>> of_heads;
  for (int64_t h = 0; h < heads; ++h) {
    const auto begin = host.begin() + h * width;
    of_heads.emplace_back(begin, begin + length(layer, h));
  }
  return Change(layer, [&](CacheLayer& copy) { return copy.Classify(of_heads); });
}

bool KvCache::ClassesAreDue(int64_t layer) const { return layers_[layer]->ClassesAreDue(); }
int64_t KvCache::InClasses(int64_t layer, int64_t head) const {
  return layers_[layer]->BeforeLastPart(head);
}
bool KvCache::reorders(int64_t layer) const { return layers_[layer]->reorders(); }
bool KvCache::rounds() const {
  return std::any_of(layers_.begin(), layers_.end(),
                     [](const std::unique_ptr<CacheLayer>& layer) { return layer->rounds(); });
}

Status KvCache::KeepScores(int64_t layer, const Tensor& scores) {
  return layers_[layer]->KeepScores(scores);
}

int64_t KvCache::kept_scores(int64_t layer) const { return layers_[layer]->kept_scores(); }

void KvCache::ReadScores(int64_t layer, Tensor scores) const { layers_[layer]->ReadScores(scores); }

namespace {

// Who looks at a device's entries on the host gets a copy of what is made on the device.
void ReadOnDevice(Ops& ops, const Tensor& rows, const std::function<void(const Tensor&)>& read) {
  if (rows.device == ops.device || rows.Numel() == 0) return read(rows);
  const Buffer memory = ops.memory->Allocate(rows.SizeBytes());
  const Tensor there = memory.As(DType::kF32, {rows.shape[0], rows.shape[1]});
  read(there);
  ops.memory->Copy(there, rows);
}

}  // namespace

void KvCache::ReadKeys(int64_t layer, int64_t head, int64_t first, Tensor rows) const {
  ReadOnDevice(ops(layer), rows, [&](const Tensor& out) {
    layers_[layer]->Read(KvSide::kKeys, head, first, out);
    if (!raw_keys(layer)) return;
    std::vector<int32_t> counted;
    RotateRows(ops(layer), frequencies(layer), slot_positions(layer) ? nullptr : places_.get(),
               setup_->rope_layout, RopeDirection::kForward,
               layers_[layer]->RotationsOf(head, first, out.shape[0], &counted), out);
  });
}

void KvCache::ReadRawKeys(int64_t layer, int64_t head, int64_t first, Tensor rows) const {
  KVG_CHECK(!setup_->mla, "keys of latent attention turn in their last dims only");
  ReadOnDevice(ops(layer), rows, [&](const Tensor& out) {
    layers_[layer]->Read(KvSide::kKeys, head, first, out);
    if (raw_keys(layer)) return;
    std::vector<int32_t> counted;
    RotateRows(ops(layer), frequencies(layer), places_.get(), setup_->rope_layout,
               RopeDirection::kInverse,
               layers_[layer]->PositionsOf(head, first, out.shape[0], &counted), out);
  });
}

void KvCache::ReadValues(int64_t layer, int64_t head, int64_t first, Tensor rows) const {
  ReadOnDevice(ops(layer), rows,
               [&](const Tensor& out) { layers_[layer]->Read(KvSide::kValues, head, first, out); });
}

std::vector<int32_t> KvCache::Positions(int64_t layer, int64_t head) const {
  return layers_[layer]->Positions(head);
}

void KvCache::ReadPositions(int64_t layer, int64_t head, int64_t first, Tensor out) const {
  KVG_CHECK(first >= 0 && first + out.shape[0] <= length(layer, head), "entries outside the head");
  std::vector<int32_t> counted;
  if (out.shape[0] == 0) return;
  ops(layer).memory->Copy(layers_[layer]->PositionsOf(head, first, out.shape[0], &counted), out);
}

void KvCache::ReadRoomyPositions(int64_t layer, int64_t head, int64_t first, Tensor out) const {
  KVG_CHECK(first >= 0 && first < length(layer, head), "entries outside the head");
  std::vector<int32_t> counted;
  const Tensor held = layers_[layer]->RoomyPositionsOf(head, first, out.shape[0], &counted);
  ops(layer).memory->Copy(held, out.Slice(0, held.shape[0]));
}

std::vector<float> KvCache::LogWeights(int64_t layer, int64_t head) const {
  return layers_[layer]->LogWeights(head);
}

KvBytes KvCache::Bytes(int64_t layer) const {
  KvBytes bytes = layers_[layer]->Bytes();
  if (setup_->running) states_->AddBytes(layer, bytes);
  return bytes;
}

double KvCache::EntryBytes(int64_t layer, int64_t head, KvSide side, int64_t first,
                           int64_t last) const {
  return layers_[layer]->EntryBytes(side, head, first, last);
}

KvBytes KvCache::Bytes() const {
  KvBytes bytes;
  for (int64_t layer = 0; layer < layer_count(); ++layer) bytes += Bytes(layer);
  if (encoded_ != nullptr) encoded_->AddBytes(bytes);
  return bytes;
}

int64_t KvCache::PlacedBytes() const {
  int64_t bytes = 0;
  for (const auto& layer : layers_) bytes += layer->PlacedBytes();
  return bytes;
}

Status KvCache::Truncate(int64_t tokens) {
  KVG_CHECK(tokens >= 0 && tokens <= tokens_, "more tokens than were seen");
  if (states_ && tokens < tokens_) {
    return Unsupported(setup_->running
                           ? "entries that rows have joined cannot forget them"
                           : "layers of constant state cannot forget tokens that they have seen");
  }
  std::vector<std::unique_ptr<CacheLayer>> cut;
  for (const auto& layer : layers_) {
    cut.push_back(std::make_unique<CacheLayer>(*layer));
    KVG_TRY(cut.back()->Truncate(tokens));
  }
  layers_ = std::move(cut);
  tokens_ = tokens;
  return {};
}

}  // namespace kvgauge
