// SPDX-License-Identifier: Apache-2.0
// From a weight source to the weights of a model: every expected tensor once, none left over.

#include <algorithm>
#include <set>

#include "core/guarded.h"
#include "core/json.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "src/model/prepare.h"
#include "src/model/scratch.h"
#include "src/model/tensors.h"
#include "src/model/weights_set.h"

namespace kvgauge {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += StrCat(i == 0 ? "" : ", ", shape[i]);
  return out + "]";
}

// Index of the first NaN or infinity, or -1. Exponent bits all set, whatever the alignment.
template <class Bits>
int64_t FirstNonFinite(const Tensor& tensor, Bits exponent_mask) {
  const auto* bytes = static_cast<const unsigned char*>(tensor.data);
  const int64_t count = tensor.Numel();
  constexpr int64_t kBlock = 4096;
  int64_t first = count;
#pragma omp parallel for schedule(static) reduction(min : first)
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    unsigned found = 0;
    for (int64_t i = begin; i < end; ++i) {
      Bits bits;
      __builtin_memcpy(&bits, bytes + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
      found |= static_cast<unsigned>((bits & exponent_mask) == exponent_mask);
    }
    if (!found) continue;
    for (int64_t i = begin; i < end; ++i) {
      Bits bits;
      __builtin_memcpy(&bits, bytes + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
      if ((bits & exponent_mask) == exponent_mask) {
        first = std::min(first, i);
        break;
      }
    }
  }
  return first == count ? -1 : first;
}

int64_t FirstNonFinite(const Tensor& tensor) {
  switch (tensor.dtype) {
    case DType::kF32:
      return FirstNonFinite<uint32_t>(tensor, 0x7f800000u);
    case DType::kF16:
      return FirstNonFinite<uint16_t>(tensor, 0x7c00u);
    case DType::kBF16:
      return FirstNonFinite<uint16_t>(tensor, 0x7f80u);
    default:
      return -1;
  }
}

class Loader {
 public:
  Loader(const WeightSource& source, DType dtype, Ops& ops)
      : source_(source), dtype_(dtype), ops_(ops) {}

  Status Load(const TensorSpec& spec, WeightTensor& out) {
    KVG_ASSIGN(out, source_.Get(spec.name));
    if (const int64_t at = FirstNonFinite(out.view); at >= 0) {
      return BadInput(StrCat(source_.OriginOf(spec.name), ": tensor '", spec.name, "' of shape ",
                             ShapeText(spec.shape), " holds NaN or infinity at element ", at,
                             "; weights must be finite"));
    }
    return {};
  }

  Status Load(const LinearSpec& spec, Linear& out, std::optional<DType> store = std::nullopt) {
    if (spec.parts.empty()) return {};
    std::vector<WeightTensor> parts(spec.parts.size());
    std::vector<Tensor> views;
    for (size_t i = 0; i < parts.size(); ++i) {
      KVG_TRY(Load(spec.parts[i], parts[i]));
      views.push_back(parts[i].view);
    }
    out.matrix = ops_.linear->Pack(views, store.value_or(dtype_));
    bytes_ += out.matrix->bytes();
    if (spec.biases.empty()) return {};
    int64_t size = 0;
    for (const TensorSpec& bias : spec.biases) size += bias.shape[0];
    out.bias_memory = ops_.memory->Allocate(size * SizeOf(DType::kF32));
    out.bias = out.bias_memory.As(DType::kF32, {size});
    int64_t begin = 0;
    for (const TensorSpec& bias : spec.biases) {
      KVG_TRY(LoadVector(bias, out.bias.Slice(begin, begin + bias.shape[0])));
      begin += bias.shape[0];
    }
    return {};
  }

  Status Load(const NormSpec& spec, Norm& out) {
    if (spec.weight.name.empty()) return {};
    const int64_t size = spec.weight.shape[0];
    out.memory = ops_.memory->Allocate(2 * size * SizeOf(DType::kF32));
    const Tensor both = out.memory.As(DType::kF32, {2, size});
    out.weight = both[0];
    KVG_TRY(LoadVector(spec.weight, out.weight));
    if (spec.bias.name.empty()) return {};
    out.bias = both[1];
    return LoadVector(spec.bias, out.bias);
  }

  Status Load(const MlpSpec& spec, MlpWeights& out) {
    KVG_TRY(Load(spec.up, out.up));
    return Load(spec.down, out.down);
  }

  // Rows stay as the file has them when they may be read in place.
  Status LoadTable(const TensorSpec& spec, Table& out) {
    if (spec.name.empty()) return {};
    KVG_TRY(Load(spec, out.source));
    const Tensor& view = out.source.view;
    const bool aligned = reinterpret_cast<uintptr_t>(view.data) % 4 == 0;
    if (ops_.device == Device::kHost && aligned) {
      out.rows = view;
    } else {
      out.memory = ops_.memory->Allocate(view.SizeBytes());
      out.rows = out.memory.As(view.dtype, {view.shape[0], view.shape[1]});
      ops_.memory->Copy(view, out.rows);
      out.source = {};
    }
    bytes_ += view.SizeBytes();
    return {};
  }

  // The up projection of MLA, head by head: its key part transposed, its value part as it is.
  Status LoadAbsorbed(const TensorSpec& up, const MlaConfig& mla, int64_t value_dim,
                      LayerWeights& out) {
    WeightTensor stored;
    KVG_TRY(Load(up, stored));
    const int64_t rank = mla.kv_lora_rank, height = mla.nope_dim + value_dim;
    std::vector<float> keys(static_cast<size_t>(rank * mla.nope_dim));
    for (int64_t h = 0; h < up.shape[0] / height; ++h) {
      for (int64_t i = 0; i < mla.nope_dim; ++i) {
        const Buffer row = HostBuffer(rank * SizeOf(stored.view.dtype));
        const Tensor aligned = row.As(stored.view.dtype, {rank});
        const Tensor from = stored.view[h * height + i];
        __builtin_memcpy(aligned.data, from.data, static_cast<size_t>(from.SizeBytes()));
        for (int64_t r = 0; r < rank; ++r) {
          keys[static_cast<size_t>(r * mla.nope_dim + i)] = ReadElement(aligned, r);
        }
      }
      const Tensor key_part = View(keys, {rank, mla.nope_dim});
      const Tensor value_part = stored.view.Slice(h * height + mla.nope_dim, (h + 1) * height);
      out.absorbed_keys.emplace_back().matrix = ops_.linear->Pack({&key_part, 1}, dtype_);
      out.absorbed_values.emplace_back().matrix = ops_.linear->Pack({&value_part, 1}, dtype_);
      bytes_ += out.absorbed_keys.back().matrix->bytes();
      bytes_ += out.absorbed_values.back().matrix->bytes();
    }
    return {};
  }

  void Collect(LayerWeights& out) {
    std::vector<const PackedMatrix*> up, down;
    for (const MlpWeights& expert : out.experts) {
      up.push_back(expert.up.matrix.get());
      down.push_back(expert.down.matrix.get());
    }
    out.experts_up = ops_.linear->Collect(std::move(up));
    out.experts_down = ops_.linear->Collect(std::move(down));
  }

  int64_t bytes() const { return bytes_; }

 private:
  // Norm weights and biases are few: kept f32, but rounded to the model's dtype like all weights.
  Status LoadVector(const TensorSpec& spec, Tensor out) {
    WeightTensor stored;
    KVG_TRY(Load(spec, stored));
    const int64_t size = spec.shape[0];
    // Through aligned host memory: the file promises nothing.
    const Buffer aligned = HostBuffer(stored.view.SizeBytes());
    const Tensor raw = aligned.As(stored.view.dtype, {size});
    __builtin_memcpy(raw.data, stored.view.data, static_cast<size_t>(stored.view.SizeBytes()));
    const Buffer rounded = HostBuffer(size * SizeOf(DType::kF32));
    const Tensor wide = rounded.As(DType::kF32, {size});
    for (int64_t i = 0; i < size; ++i) wide.f32()[i] = Rounded(ReadElement(raw, i));
    ops_.memory->Copy(wide, out);
    bytes_ += out.SizeBytes();
    return {};
  }

  static float ReadElement(const Tensor& raw, int64_t i) {
    switch (raw.dtype) {
      case DType::kF16:
        return F16ToF32(raw.As<uint16_t>()[i]);
      case DType::kBF16:
        return Bf16ToF32(raw.As<uint16_t>()[i]);
      default:
        return raw.f32()[i];
    }
  }

  float Rounded(float value) const {
    switch (dtype_) {
      case DType::kF16:
        return F16ToF32(F32ToF16(value));
      case DType::kBF16:
        return Bf16ToF32(F32ToBf16(value));
      default:
        return value;
    }
  }

  const WeightSource& source_;
  DType dtype_;
  Ops& ops_;
  int64_t bytes_ = 0;
};

Status LoadLayer(const LayerSpec& spec, Loader& loader, LayerWeights& out) {
  KVG_TRY(loader.Load(spec.input_norm, out.input_norm));
  KVG_TRY(loader.Load(spec.attention_norm, out.attention_norm));
  KVG_TRY(loader.Load(spec.mlp_norm, out.mlp_norm));
  KVG_TRY(loader.Load(spec.mlp_output_norm, out.mlp_output_norm));
  KVG_TRY(loader.Load(spec.q_norm, out.q_norm));
  KVG_TRY(loader.Load(spec.k_norm, out.k_norm));
  KVG_TRY(loader.Load(spec.qkv, out.qkv));
  KVG_TRY(loader.Load(spec.q_latent_norm, out.q_latent_norm));
  KVG_TRY(loader.Load(spec.q_up, out.q_up));
  KVG_TRY(loader.Load(spec.kv_down, out.kv_down));
  KVG_TRY(loader.Load(spec.kv_latent_norm, out.kv_latent_norm));
  KVG_TRY(loader.Load(spec.kv_up, out.kv_up));
  KVG_TRY(loader.Load(spec.output, out.output));
  KVG_TRY(loader.Load(spec.mlp, out.mlp));
  // Routing decides which experts run: a rounded router would change the model, so it stays f32.
  KVG_TRY(loader.Load(spec.router, out.router, DType::kF32));
  out.experts.resize(spec.experts.size());
  for (size_t e = 0; e < spec.experts.size(); ++e) {
    KVG_TRY(loader.Load(spec.experts[e], out.experts[e]));
  }
  if (!out.experts.empty()) loader.Collect(out);
  return {};
}

Status CheckTensor(const TensorSpec& spec, const WeightSource& source) {
  if (!source.Contains(spec.name)) {
    return BadInput(StrCat(source.OriginOf(spec.name), ": tensor '", spec.name,
                           "' is missing; the config needs it with shape ", ShapeText(spec.shape),
                           DidYouMean(spec.name, source.Names())));
  }
  KVG_ASSIGN(const WeightTensor stored, source.Get(spec.name));
  const Tensor& view = stored.view;
  const std::vector<int64_t> shape(view.shape.begin(), view.shape.begin() + view.rank);
  if (shape != spec.shape) {
    return BadInput(StrCat(source.OriginOf(spec.name), ": tensor '", spec.name, "' has shape ",
                           ShapeText(shape), ", but the config needs ", ShapeText(spec.shape)));
  }
  if (!IsFloat(view.dtype)) {
    return BadInput(StrCat(source.OriginOf(spec.name), ": tensor '", spec.name, "' is stored as ",
                           NameOf(view.dtype), "; expected f32, f16 or bf16"));
  }
  return {};
}

// A host gives out memory that it has not got, and kills who uses it; a device says so itself.
Status CheckFits(const ModelConfig& config, DType dtype, DType stored, const Ops& ops) {
  if (ops.device != Device::kHost) return {};
  const int64_t needed = PlannedWeightBytes(config, dtype, stored), most = UsableMemoryBytes();
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
    KVG_TRY(CheckTensor(spec, source));
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
    if (!known.contains(name) && !tower && !IsIgnorableTensor(name)) left.push_back(name);
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
  shape.layers = config.layer_count();
  shape.hidden_size = config.hidden_size;
  shape.query_heads = config.query_heads;
  shape.kv_heads = config.kv_heads;
  shape.key_dim = config.key_dim;
  shape.value_dim = config.value_dim;
  if (config.rope) {
    shape.rotary_dim = config.rope->rotary_dim;
    shape.rope_layout = config.rope->layout;
  }
  shape.key_norm = config.qk_norm;
  if (config.mla) shape.latent_dim = config.mla->kv_lora_rank;
  for (const LayerConfig& layer : config.layers) shape.windows.push_back(layer.window);
  shape.cache_dtype = cache_dtype;
  return shape;
}

Result<std::string> ModelFingerprint(const ModelConfig& config, const WeightSource& source) {
  KVG_ASSIGN(const Json json, ReadJsonFile(config.path));
  return Sha256Hex(CanonicalJson(json) + source.Fingerprint());
}

Status Model::LoadWeights(const WeightSource& source) {
  KVG_ASSIGN(const ModelTensors tensors, TensorsIn(config_, source));
  Loader loader(source, dtype_, *ops_);

  KVG_TRY(loader.LoadTable(tensors.embedding, weights_->embedding));
  KVG_TRY(loader.LoadTable(tensors.positions, weights_->positions));
  KVG_TRY(loader.Load(tensors.project_in, weights_->project_in));
  KVG_TRY(loader.Load(tensors.project_out, weights_->project_out));
  KVG_TRY(loader.Load(tensors.final_norm, weights_->final_norm));
  KVG_TRY(loader.Load(tensors.head, weights_->head));
  weights_->layers.resize(tensors.layers.size());
  for (size_t i = 0; i < tensors.layers.size(); ++i) {
    KVG_TRY(LoadLayer(tensors.layers[i], loader, weights_->layers[i]));
    if (mla_latent_) {
      KVG_TRY(loader.LoadAbsorbed(tensors.layers[i].kv_up.parts[0], *config_.mla, config_.value_dim,
                                  weights_->layers[i]));
    }
  }

  weight_bytes_ = loader.bytes();
  return {};
}

Model::Model(ModelConfig config, DType dtype, bool mla_latent, Ops& ops)
    : config_(std::move(config)),
      dtype_(dtype),
      mla_latent_(mla_latent),
      ops_(&ops),
      weights_(std::make_unique<ModelWeights>()),
      scratch_(std::make_unique<Scratch>()),
      pools_(std::make_unique<CachePools>(ops)),
      decode_(ops.memory->MakeRepeatedWork()) {}

Model::~Model() = default;

Result<std::unique_ptr<Model>> Model::Load(const std::string& directory,
                                           const ModelOptions& options, Ops& ops) {
  KVG_ASSIGN(ModelConfig config, ReadModelConfig(directory));
  const DType dtype = options.dtype.value_or(config.stored_dtype);
  if (options.mla_latent && !config.mla) {
    return Unsupported(StrCat(config.path, ": ", config.family,
                              " has no latent attention, so its cache cannot keep latents"));
  }
  KVG_TRY(CheckFits(config, dtype, options.random_seed ? dtype : config.stored_dtype, ops));
  std::unique_ptr<WeightSource> source;
  if (options.random_seed) {
    source = MakeRandomWeights(ExpectedTensors(config), *options.random_seed, dtype);
  } else {
    KVG_ASSIGN(source, OpenSafetensors(directory));
    KVG_TRY(CheckWeights(config, *source));
  }
  KVG_ASSIGN(std::string fingerprint, ModelFingerprint(config, *source));
  const ModelShape checkpoint_shape = ShapeOf(config, dtype);
  std::unique_ptr<Model> model;
  const Status loaded = Guarded([&]() -> Status {
    if (options.prepare == nullptr) {
      model.reset(new Model(std::move(config), dtype, options.mla_latent, ops));
      return model->LoadWeights(*source);
    }
    KVG_ASSIGN(ModelTensors tensors, TensorsIn(config, *source));
    PreparedWeights prepared(config, dtype, std::move(tensors), *source, ops);
    KVG_TRY(options.prepare->Transform(prepared));
    KVG_TRY(prepared.Finish());
    model.reset(new Model(prepared.config(), dtype, options.mla_latent, ops));
    model->bases_ = prepared.TakeBases();
    return model->LoadWeights(prepared);
  });
  if (!loaded.ok()) {
    const Error& error = loaded.error();
    return error.code == ErrorCode::kResource ? error.Wrap(StrCat(directory, ": weights")) : error;
  }
  model->checkpoint_shape_ = checkpoint_shape;
  model->token_classes_ = options.token_classes;
  model->fingerprint_ = std::move(fingerprint);
  return model;
}

const PackedMatrix& Model::output_projection(int64_t layer) const {
  return *weights_->layers[static_cast<size_t>(layer)].output.matrix;
}

KvCache Model::NewCache(int64_t planned_length, CachePools& pools, bool mla_latent) const {
  KVG_CHECK(!mla_latent || mla_latent_, "the model was not loaded for latents");
  KvCacheOptions options;
  options.dtype = dtype_;
  options.planned_length = planned_length;
  if (config_.rope) options.frequencies = ComputeRope(*config_.rope, planned_length);
  options.mla_latent = mla_latent;
  options.bases = &bases_;
  return KvCache(config_, options, pools);
}

}  // namespace kvgauge
