// SPDX-License-Identifier: Apache-2.0
// From a weight source to the weights of a model: every expected tensor once, none left over.

#include <algorithm>
#include <future>
#include <set>
#include <utility>

#include "core/guarded.h"
#include "core/json.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "kernels/devices.h"
#include "kernels/rounded_products.h"
#include "runner/vision.h"
#include "src/checkpoint/weights_common.h"
#include "src/model/model_tensors.h"
#include "src/model/prepare.h"
#include "src/model/section.h"
#include "src/model/weight_loader.h"
#include "src/model/weights_set.h"

namespace kvgauge {
namespace {

Status LoadLayer(const LayerSpec& spec, const ModelConfig& config, WeightLoader& loader,
                 LayerWeights& out) {
  KVG_TRY(loader.Load(spec.input_norm, out.input_norm));
  KVG_TRY(loader.Load(spec.attention_norm, out.attention_norm));
  KVG_TRY(loader.Load(spec.mlp_norm, out.mlp_norm));
  KVG_TRY(loader.Load(spec.mlp_output_norm, out.mlp_output_norm));
  KVG_TRY(loader.Load(spec.q_norm, out.q_norm));
  KVG_TRY(loader.Load(spec.k_norm, out.k_norm));
  KVG_TRY(loader.LoadUnrounded(spec.sinks, out.sinks));
  KVG_TRY(loader.Load(spec.qkv, out.qkv));
  KVG_TRY(loader.Load(spec.q_latent_norm, out.q_latent_norm));
  KVG_TRY(loader.Load(spec.q_up, out.q_up));
  KVG_TRY(loader.Load(spec.kv_down, out.kv_down));
  KVG_TRY(loader.Load(spec.kv_latent_norm, out.kv_latent_norm));
  KVG_TRY(loader.Load(spec.kv_up, out.kv_up));
  KVG_TRY(loader.Load(spec.output, out.output));
  if (!spec.state.output.parts.empty()) {
    KVG_TRY(loader.Load(spec.state, *config.state, out.state));
  }
  if (config.made_keys && !spec.output.parts.empty()) {
    KVG_TRY(loader.Load(spec.made, *config.state, out));
  }
  if (config.streams) KVG_TRY(loader.Load(spec.streams, out.streams));
  KVG_TRY(loader.Load(spec.embeddings.gate, out.embeddings.gate));
  KVG_TRY(loader.Load(spec.embeddings.projection, out.embeddings.projection));
  KVG_TRY(loader.Load(spec.embeddings.projection_norm, out.embeddings.projection_norm));
  KVG_TRY(loader.LoadNumber(spec.scale, &out.scale));
  if (!spec.cross.query.parts.empty()) {
    KVG_TRY(loader.Load(spec.cross, config.kv_heads, out.cross));
  }
  KVG_TRY(loader.Load(spec.mlp_mixed, out.mlp_mixed));
  KVG_TRY(loader.Load(spec.mlp, out.mlp));
  // Routing decides which experts run: a rounded router would change the model, so it stays f32.
  KVG_TRY(loader.Load(spec.router, out.router, DType::kF32));
  KVG_TRY(loader.LoadUnrounded(spec.router_correction, out.router_correction));
  KVG_TRY(loader.LoadUnrounded(spec.router_scale, out.router_scale));
  KVG_TRY(loader.LoadUnrounded(spec.expert_scales, out.expert_scales));
  KVG_TRY(loader.Load(spec.experts_norm, out.experts_norm));
  KVG_TRY(loader.Load(spec.mlp_part_norm, out.mlp_part_norm));
  KVG_TRY(loader.Load(spec.experts_part_norm, out.experts_part_norm));
  KVG_TRY(loader.Load(spec.shared_gate, out.shared_gate));
  out.experts.resize(spec.experts.size());
  for (size_t e = 0; e < spec.experts.size(); ++e) {
    KVG_TRY(loader.Load(spec.experts[e], out.experts[e]));
  }
  if (!out.experts.empty()) loader.Collect(out);
  return {};
}

Status LoadDecoders(const BlockSpec& spec, WeightLoader& loader, BlockWeights& out) {
  KVG_TRY(loader.LoadTable(spec.embedding, out.embedding));
  KVG_TRY(loader.Load(spec.projection, out.projection));
  KVG_TRY(loader.Load(spec.norm, out.norm));
  return loader.Load(spec.expansion, out.expansion);
}

Status LoadEncoder(const ModelTensors& spec, const ModelConfig& config, WeightLoader& loader,
                   ModelWeights& out) {
  KVG_TRY(loader.LoadTable(spec.embedding, out.embedding));
  KVG_TRY(loader.Load(spec.final_norm, out.final_norm));
  out.layers.resize(spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    KVG_TRY(LoadLayer(spec.layers[i], config, loader, out.layers[i]));
  }
  return {};
}

std::string FingerprintOf(const Json& config, const WeightSource& source) {
  return Sha256Hex(CanonicalJson(config) + source.Fingerprint());
}

// A host gives out memory that it has not got, and kills who uses it; a device says so itself.
Status CheckFits(const ModelConfig& config, DType dtype, int64_t needed, const Ops& ops) {
  if (ops.device != Device::kHost) return {};
  const int64_t most = UsableMemoryBytes();
  if (needed <= most) return {};
  return ResourceError(StrCat(config.path, ": the weights take ", HumanBytes(needed), " as ",
                              NameOf(dtype), ", and this machine has ", HumanBytes(most),
                              " of memory; use a smaller model",
                              SizeOf(dtype) > 2 ? ", or f16 or bf16 weights" : ""));
}

}  // namespace

Status CheckWeights(const ModelConfig& config, const WeightSource& source) {
  KVG_ASSIGN(const ModelTensors tensors, TensorsIn(config, source));
  std::set<std::string> known;
  for (const TensorSpec& spec : ListTensors(tensors)) {
    KVG_TRY(CheckStoredTensor(spec, source));
    known.insert(spec.name);
  }
  const std::string& head = tensors.stored_head;
  if (!head.empty()) {
    // Tied, yet stored: the embedding wins, as in the reference implementation.
    const bool own = tensors.head.parts[0].name == head;
    if (tensors.stored_head_differs) {
      LogWarning(StrCat(source.OriginOf(head), ": '", head, "' differs from '",
                        tensors.embedding.name, "' although the config ties them; ",
                        own ? "each is used" : "the embedding is used for both"));
    }
    known.insert(head);
  }
  std::vector<std::string> left;
  for (const std::string& name : source.Names()) {
    const bool tower = !config.vision_family.empty() && IsTowerTensor(name);
    if (!known.contains(name) && !tower && !IsIgnorableTensor(name) &&
        !IsDraftTensor(config, name) &&
        !(config.value_norm && IsUnreadTensor(config, tensors, name))) {
      left.push_back(name);
    }
  }
  if (left.empty()) return {};
  return BadInput(StrCat(source.OriginOf(left[0]), ": ", left.size(),
                         left.size() == 1 ? " tensor is" : " tensors are",
                         " not used by this config, the first is '", left[0],
                         "'; a model that ignores weights gives wrong logits, so check model_type "
                         "and the config's flags"));
}

ModelShape ShapeOf(const ModelConfig& config, DType cache_dtype) {
  ModelShape shape;
  shape.layers = config.cache_count();
  shape.shared_caches = config.SharesCaches();
  shape.state_bytes = config.StateBytes();
  shape.running_entries = config.means.has_value();
  shape.prompt_passes = config.prompt_passes;
  shape.made_keys = config.made_keys.has_value();
  shape.entry_tokens = config.EntryTokens();
  if (config.means) {
    shape.state_bytes += shape.layers * SizeOf(DType::kF32) *
                         config.means->numbers(config.kv_heads, config.key_dim, config.value_dim);
  }
  shape.hidden_size = config.hidden_size;
  shape.query_heads = config.query_heads;
  shape.kv_heads = config.kv_heads;
  shape.key_dim = config.key_dim;
  shape.value_dim = config.value_dim;
  if (config.rope) {
    shape.rotary_dim = config.rope->rotary_dim;
    shape.rope_layout = config.rope->layout;
  }
  shape.attention_scale = config.attention_scale;
  shape.attention_softcap = config.attention_softcap;
  shape.distances = !config.distance_slopes.empty();
  shape.key_norm = config.qk_norm;
  shape.attention_gate = config.attention_gate;
  if (config.mla) shape.latent_dim = config.mla->kv_lora_rank;
  for (int64_t i = 0; i < config.layer_count(); ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    if (!config.HasCache(i)) continue;
    shape.windows.push_back(layer.window);
    shape.chunked = shape.chunked || layer.chunked;
  }
  for (int64_t i = 0; !config.HasEvenHeads() && i < config.layer_count(); ++i) {
    if (config.HasCache(i)) shape.heads.push_back(config.HeadsOf(i));
  }
  if (config.encoder != nullptr) shape.encoder_width = config.encoder->hidden_size;
  shape.cache_dtype = cache_dtype;
  return shape;
}

Result<std::string> ModelFingerprint(const ModelConfig& config, const WeightSource& source) {
  KVG_ASSIGN(const Json json, ReadConfigDocument(config.path));
  return FingerprintOf(json, source);
}

Status Model::LoadWeights(const WeightSource& source, const ModelOptions& options) {
  product_rows_ = options.product_rows;
  KVG_ASSIGN(const ModelTensors tensors, TensorsIn(config_, source));
  std::vector<std::unique_ptr<WeightLoader>> loaders;
  for (const ModelSection& section : sections_) {
    loaders.push_back(std::make_unique<WeightLoader>(source, dtype_, *section.ops,
                                                     options.keep_blocks, options.product_rows));
  }
  WeightLoader &first = *loaders.front(), &last = *loaders.back();
  KVG_TRY(first.LoadTable(tensors.embedding, weights_->embedding));
  KVG_TRY(first.LoadTable(tensors.positions, weights_->positions));
  KVG_TRY(first.LoadTable(tensors.layer_embedding, weights_->layer_embedding));
  KVG_TRY(first.Load(tensors.layer_projection, weights_->layer_projection));
  KVG_TRY(first.Load(tensors.layer_norm, weights_->layer_norm));
  KVG_TRY(first.Load(tensors.stream_projections, weights_->stream_projections));
  KVG_TRY(first.Load(tensors.stream_returns, weights_->stream_returns));
  KVG_TRY(first.Load(tensors.project_in, weights_->project_in));
  KVG_TRY(last.Load(tensors.project_out, weights_->project_out));
  KVG_TRY(first.Load(tensors.embedding_norm, weights_->embedding_norm));
  if (config_.blocks) KVG_TRY(LoadDecoders(tensors.blocks, first, weights_->blocks));
  KVG_TRY(last.Load(tensors.final_norm, weights_->final_norm));
  KVG_TRY(last.Load(tensors.head, weights_->head));
  if (!tensors.encoder.empty()) {
    weights_->encoder = std::make_unique<ModelWeights>();
    KVG_TRY(LoadEncoder(tensors.encoder[0], *config_.encoder, first, *weights_->encoder));
  }
  weights_->layers.resize(tensors.layers.size());
  for (size_t s = 0; s < sections_.size(); ++s) {
    WeightLoader& loader = *loaders[s];
    for (int64_t layer = sections_[s].first_layer; layer < sections_[s].end_layer; ++layer) {
      const auto i = static_cast<size_t>(layer);
      KVG_TRY(LoadLayer(tensors.layers[i], config_, loader, weights_->layers[i]));
      if (mla_latent_) {
        KVG_TRY(loader.LoadAbsorbed(tensors.layers[i].kv_up.parts[0], *config_.mla,
                                    config_.value_dim, weights_->layers[i]));
      }
    }
    shares_[s].weight_bytes = loader.bytes();
    weight_bytes_ += loader.bytes();
    block_bytes_ += loader.block_bytes();
  }

  FindCaches();
  return {};
}

void Model::FindCaches() {
  cache_config_ = config_.OfCaches();
  sinks_.clear();
  for (int64_t layer = 0; layer < config_.layer_count() && config_.sinks; ++layer) {
    if (!config_.HasCache(layer)) continue;
    sinks_.push_back(weights_->layers[static_cast<size_t>(layer)].sinks.weight);
  }
}

Status Model::ReadCaches(std::span<const int64_t> reads) {
  if (!bases_.empty()) {
    return Unsupported(StrCat(config_.path, ": caches in bases of their own cannot be shared"));
  }
  if (sections_.size() > 1 && !reads.empty()) {
    return Unsupported(
        StrCat(config_.path, ": caches cannot be shared by layers on several devices"));
  }
  for (LayerConfig& layer : config_.layers) layer.reads = -1;
  Status shared = reads.empty() ? Status() : config_.ShareCaches(reads);
  FindCaches();
  return shared;
}

namespace {

// The layers with a cache that lie on each device.
LayerDevices DevicesOfCaches(const ModelConfig& config, std::span<Ops* const> devices,
                             std::span<const LayerShare> shares) {
  if (devices.size() == 1) return *devices[0];
  std::vector<LayerDevices::Range> ranges;
  int64_t caches = 0;
  for (size_t i = 0; i < devices.size(); ++i) {
    LayerDevices::Range range = {.ops = devices[i], .first = caches, .end = caches};
    for (int64_t layer = shares[i].first; layer < shares[i].end; ++layer) {
      if (config.HasCache(layer)) ++range.end;
    }
    caches = range.end;
    ranges.push_back(range);
  }
  return LayerDevices(std::move(ranges));
}

}  // namespace

Model::Model(ModelConfig config, DType dtype, bool mla_latent, std::span<Ops* const> devices,
             std::vector<LayerShare> shares)
    : config_(std::move(config)),
      dtype_(dtype),
      mla_latent_(mla_latent),
      ops_(devices[0]),
      shares_(std::move(shares)),
      devices_(DevicesOfCaches(config_, devices, shares_)),
      weights_(std::make_unique<ModelWeights>()),
      pools_(std::make_unique<CachePools>(devices, std::span<const int64_t>())) {
  for (size_t i = 0; i < devices.size(); ++i) {
    sections_.push_back({.ops = devices[i],
                         .first_layer = shares_[i].first,
                         .end_layer = shares_[i].end,
                         .scratch = std::make_unique<Scratch>(),
                         .decode = devices[i]->memory->MakeRepeatedWork()});
  }
}

Model::~Model() = default;

RepeatedWork::Counts Model::decode_counts() const {
  RepeatedWork::Counts all;
  for (const ModelSection& section : sections_) {
    const RepeatedWork::Counts own = section.decode->counts();
    all.plain += own.plain;
    all.recorded += own.recorded;
    all.replayed += own.replayed;
  }
  return all;
}

namespace {

// What is read for a model: its weights, and behind them its fingerprint, on a thread of its own
// that goes on while the program does.
class Reading {
 public:
  Reading(std::string config_path, std::unique_ptr<WeightSource> source)
      : config_path_(std::move(config_path)), source_(std::move(source)) {}
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  ~Reading() {
    if (ordered_ != nullptr) ordered_->EndReads();
  }

  const WeightSource& source() const { return *source_; }

  // A source that knows what is read lets the fingerprint follow it: what it looks at is in the
  // system's cache, and part of it in the processor's.
  Status Begin(const ModelConfig& config) {
    ordered_ = OrderedReads::Of(*source_);
    if (ordered_ == nullptr) return {};
    KVG_ASSIGN(const ModelTensors tensors, TensorsIn(config, *source_));
    std::vector<std::string> names;
    for (const TensorSpec& spec : ListTensors(tensors)) names.push_back(spec.name);
    ordered_->PlanReads(names);
    return MakeFingerprint();
  }

  Result<std::shared_future<std::string>> End() {
    if (ordered_ == nullptr) KVG_TRY(MakeFingerprint());
    return fingerprint_;
  }

 private:
  Status MakeFingerprint() {
    KVG_ASSIGN(Json document, ReadConfigDocument(config_path_));
    auto make = [source = source_, document = std::move(document)]() mutable {
      // Files close behind it.
      const std::shared_ptr<const WeightSource> once = std::move(source);
      return FingerprintOf(document, *once);
    };
    fingerprint_ = std::async(std::launch::async, std::move(make)).share();
    return {};
  }

  std::string config_path_;
  std::shared_ptr<const WeightSource> source_;
  const OrderedReads* ordered_ = nullptr;
  std::shared_future<std::string> fingerprint_;
};

// Some matrix's inputs are rounded by its file, and all of them in ways that are known.
Status CheckInputs(const ModelConfig& config, const ModelOptions& options,
                   const WeightSource* source) {
  const RoundedInputs* inputs =
      source == nullptr || options.random_seed ? nullptr : RoundedInputs::Of(*source);
  bool some = false;
  for (const std::string& name : inputs == nullptr ? std::vector<std::string>() : source->Names()) {
    KVG_ASSIGN(const std::optional<RowRounding> rounding, inputs->InputsOf(name));
    some = some || rounding;
  }
  if (some) return {};
  return Unsupported(StrCat(config.path,
                            ": no matrix beside it says how the rows that it is multiplied by are "
                            "rounded; expected key 'quantization_config' with 'input_activations' "
                            "or quant_method fp8, or product rows of the dtype"));
}

// Eyes that cannot be read can see nothing, and texts need none.
int64_t TowerBytesOf(const std::string& directory, const ModelConfig& config, DType dtype) {
  if (config.vision_family.empty()) return 0;
  const Result<std::optional<VisionSpec>> spec = ReadVisionConfig(directory);
  return spec.ok() && *spec ? VisionWeightBytes(**spec, dtype) : 0;
}

}  // namespace

Status CheckProductRows(const ModelConfig& config, const ModelOptions& options, DType dtype,
                        const WeightSource* source, Ops& ops) {
  if (options.product_rows == ProductRows::kRounded) return {};
  const std::string_view rows = NameOf(options.product_rows);
  for (const Ops* device : DevicesOf(ops)) {
    LinearOps& linear = *device->linear;
    const bool can = options.product_rows == ProductRows::kFile
                         ? RoundedProducts::Of(linear) != nullptr
                         : BlockProducts::Of(linear) != nullptr;
    if (can) continue;
    return Unsupported(StrCat("backend ", device->backend, " has no products by rows of ", rows,
                              "; expected cpu, or product rows of the dtype"));
  }
  if (options.product_rows == ProductRows::kFile) return CheckInputs(config, options, source);
  const bool blocks = source != nullptr && !options.random_seed && options.keep_blocks &&
                      PlannedWeightBytes(config, dtype, *source, &ops) !=
                          PlannedWeightBytes(config, dtype, *source, nullptr);
  if (blocks) return {};
  return Unsupported(StrCat(config.path,
                            ": no matrix stays in blocks of few bits, so that none can be "
                            "multiplied by rows of int8; expected a GGUF file of q8_0, q4_0, q4_k "
                            "or q6_k, packed, or product rows of the dtype"));
}

Result<std::unique_ptr<Model>> Model::Load(const std::string& directory,
                                           const ModelOptions& options, Ops& ops) {
  KVG_ASSIGN(ModelConfig config, ReadModelConfig(directory));
  const DType dtype = options.dtype.value_or(config.stored_dtype);
  if (options.mla_latent && !config.mla) {
    return Unsupported(StrCat(config.path, ": ", config.family,
                              " has no latent attention, so its cache cannot keep latents"));
  }
  std::unique_ptr<WeightSource> source;
  if (options.random_seed) {
    KVG_TRY(CheckFits(config, dtype, PlannedWeightBytes(config, dtype, dtype), ops));
    source = MakeRandomWeights(ExpectedTensors(config), *options.random_seed, dtype);
  } else {
    KVG_ASSIGN(source, OpenWeights(directory, dtype));
    const Ops* keeps = options.keep_blocks ? &ops : nullptr;
    KVG_TRY(CheckFits(config, dtype, PlannedWeightBytes(config, dtype, *source, keeps), ops));
    KVG_TRY(CheckWeights(config, *source));
  }
  KVG_TRY(CheckProductRows(config, options, dtype, source.get(), ops));
  const std::vector<Ops*> devices = DevicesOf(ops);
  LayerCosts costs = CostsOfLayers(config, dtype, options.random_seed ? nullptr : source.get(),
                                   options.keep_blocks ? &ops : nullptr);
  if (devices.size() > 1) costs.tower_bytes = TowerBytesOf(directory, config, dtype);
  KVG_ASSIGN(const std::vector<LayerShare> shares,
             ShareLayers(config, costs, devices, options.shares));
  const ModelShape checkpoint_shape = ShapeOf(config, dtype);
  Reading reading(config.path, std::move(source));
  KVG_TRY(reading.Begin(config));
  std::unique_ptr<Model> model;
  const Status loaded = Guarded([&]() -> Status {
    if (options.prepare == nullptr) {
      model.reset(new Model(std::move(config), dtype, options.mla_latent, devices, shares));
      return model->LoadWeights(reading.source(), options);
    }
    KVG_ASSIGN(ModelTensors tensors, TensorsIn(config, reading.source()));
    PreparedWeights prepared(config, dtype, std::move(tensors), reading.source(), ops);
    KVG_TRY(options.prepare->Transform(prepared));
    KVG_TRY(prepared.Finish());
    if (devices.size() > 1) KVG_TRY(CheckLayered(prepared.config()));
    model.reset(new Model(prepared.config(), dtype, options.mla_latent, devices, shares));
    model->bases_ = prepared.TakeBases();
    return model->LoadWeights(prepared, options);
  });
  if (!loaded.ok()) {
    const Error& error = loaded.error();
    return error.code == ErrorCode::kResource ? error.Wrap(StrCat(directory, ": weights")) : error;
  }
  model->checkpoint_shape_ = checkpoint_shape;
  model->token_classes_ = options.token_classes;
  model->checkpoint_shape_.token_classes = options.token_classes != nullptr;
  model->encode_ = options.encode;
  model->drafters_ = options.drafters;
  model->spell_ = options.spell;
  model->taggers_ = options.taggers;
  KVG_ASSIGN(model->fingerprint_, reading.End());
  return model;
}

const PackedMatrix& Model::output_projection(int64_t cache) const {
  return *weights_->layers[static_cast<size_t>(config_.LayerOf(cache))].output.matrix;
}

KvCache Model::NewCache(int64_t planned_length, CachePools& pools, bool mla_latent) const {
  KVG_CHECK(!mla_latent || mla_latent_, "the model was not loaded for latents");
  KvCacheOptions options;
  options.dtype = dtype_;
  options.planned_length = planned_length;
  if (config_.rope) options.frequencies = ComputeRope(*config_.rope, planned_length);
  if (config_.local_rope) {
    options.local_frequencies = ComputeRope(*config_.local_rope, planned_length);
  }
  options.mla_latent = mla_latent;
  options.bases = &bases_;
  options.devices = &devices_;
  options.states = config_.StateNumbers();
  if (config_.means) {
    options.states.assign(
        static_cast<size_t>(config_.cache_count()),
        config_.means->numbers(config_.kv_heads, config_.key_dim, config_.value_dim));
  }
  if (!sinks_.empty()) options.sinks = &sinks_;
  return KvCache(cache_config_, options, pools);
}

}  // namespace kvgauge
