// SPDX-License-Identifier: Apache-2.0
// A decoder-only transformer: weights of one checkpoint and its forward pass.
//
// Layers may lie on several devices (kernels/devices.h), in ranges: rows go from one to the next.
//
// Model definitions are data (ModelConfig and a table of tensor names) interpreted by one forward
// pass. A Model is immutable after Load except for scratch memory, so one thread drives it.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "kernels/block_products.h"
#include "kernels/ops.h"
#include "methods/draft_model.h"
#include "methods/model_shape.h"
#include "methods/stages.h"
#include "methods/token_tagger.h"
#include "runner/config.h"
#include "runner/kv_cache.h"
#include "runner/layer_division.h"
#include "runner/layer_hook.h"
#include "runner/prompt.h"
#include "runner/token_classes.h"
#include "runner/weights.h"

namespace kvgauge {

struct ModelOptions {
  // The dtype of stored weights and of the inputs of products; unset: the checkpoint's.
  std::optional<DType> dtype;
  // Set: no weights are read; a model of the config's shape is drawn from this seed.
  std::optional<uint64_t> random_seed;
  // MLA: also hold the up projections as attention over latents needs them, for caches that keep
  // latents.
  bool mla_latent = false;
  // Matrices and tables that a file has in blocks of few bits stay so in memory where the backend's
  // products can read them. Changes no bit of any result.
  bool keep_blocks = true;
  // The form of the rows that multiply those matrices. Load refuses kInt8 where none stays in
  // blocks.
  ProductRows product_rows = ProductRows::kRounded;
  // Changes the weights before they are packed. The fingerprint stays the checkpoint's.
  const Prepare* prepare = nullptr;
  // Classes of the checkpoint's tokens, for methods that need them.
  std::shared_ptr<const TokenClasses> token_classes = nullptr;
  // Ids of a text without special tokens, for methods that put words of their own behind a prompt.
  TextEncoder encode = nullptr;
  // Models that answer prompts for methods; they run on the same Ops, between its own passes.
  Drafters drafters = {};
  // What ids spell, for methods that put other texts in the place of a prompt's.
  TextSpeller spell = nullptr;
  // Encoders that tag tokens for methods; they run as drafters do.
  Taggers taggers = {};
  // The layers' division over several devices, as a plan decided it. Load divides anew where it no
  // longer fits.
  std::vector<LayerShare> shares = {};
};

// The tensors that a config needs, in the order of the forward pass, and how many numbers they
// hold.
std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config);
int64_t ParameterCount(const ModelConfig& config);
// Bytes that Load will hold of a checkpoint in that dtype, close enough for planning: packing may
// pad, and a Prepare stage may change them. Tables of embeddings keep the dtype `stored`.
int64_t PlannedWeightBytes(const ModelConfig& config, DType dtype, DType stored);
// The same of the checkpoint that `source` reads, whose matrices stay in blocks where `keeps` keeps
// them; null: all are unpacked.
int64_t PlannedWeightBytes(const ModelConfig& config, DType dtype, const WeightSource& source,
                           const Ops* keeps);

// Product rows of int8 are refused unless matrices of the checkpoint stay in blocks on all of
// `ops`, those of the file unless it says how they are rounded and all of `ops` can: the error says
// why.
Status CheckProductRows(const ModelConfig& config, const ModelOptions& options, DType dtype,
                        const WeightSource* source, Ops& ops);

// Checks names, shapes and types of a checkpoint against its config, without reading the weights:
// missing, misshapen and unused tensors are errors that name the tensor and its file.
Status CheckWeights(const ModelConfig& config, const WeightSource& source);

// Digest of config and weights; names a model in a score's signature.
Result<std::string> ModelFingerprint(const ModelConfig& config, const WeightSource& source);

// The facts that methods may know about a model with a cache of that type.
ModelShape ShapeOf(const ModelConfig& config, DType cache_dtype);

struct ModelWeights;  // as the forward pass uses them
struct ModelSection;  // its layers on one device

enum class LogitRows { kNone, kLast, kAll };

// Rows [begin, end) of a prompt. The cache has seen the `begin` rows before and made room for
// these: cache->Append(end - begin), whose error is this sequence's alone.
struct SequenceStep {
  KvCache* cache = nullptr;
  const Prompt* prompt = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  LogitRows logits = LogitRows::kLast;
  LayerHook* hook = nullptr;
  // [end - begin, hidden_size] f32 on the device: where what the head reads of these rows goes, the
  // final norm included; empty: nowhere.
  Tensor last = {};
};

// Which part of its layers a LayerStep runs.
enum class LayerPass {
  kWhole,
  // What comes before attention in one layer. Keys and values are written, queries are given out.
  kQueries,
  // What comes behind attention in the same layer, afterwards. The result of attention is given.
  kRest,
};

// Entries of one layer that were put together of caches, for a pass whose rows are computed behind
// them. Rows are the prompt's tokens, keys turned to their places.
struct JoinedEntries {
  Tensor keys, values;  // [tokens, kv_heads, dim] f32 on the device; the pass's rows are put in
  // Those from here to the pass's last row are written to the cache, which has made room for them.
  int64_t first = 0;
  bool only_put = false;  // the rows' entries are computed and put in, and nothing else happens
};

// Rows of a prompt in some layers, for prefills that go layer by layer. The cache has made room for
// them there: cache->AppendAt(first_layer, end_layer, places).
struct LayerStep {
  KvCache* cache = nullptr;
  const Prompt* prompt = nullptr;
  std::span<const int32_t> places = {};  // in the prompt, ascending
  int64_t first_layer = 0;
  int64_t end_layer = 0;
  // [rows, hidden_size] f32 on the device: what first_layer reads, unless that is 0 (then the rows
  // are embedded); after the call what end_layer reads.
  Tensor hidden = {};
  LogitRows logits = LogitRows::kNone;  // another only with the last layer
  LayerHook* hook = nullptr;
  // [rows, hidden_size] f32 on the device: where what the head would read of these rows behind
  // end_layer goes, the final norm included; empty: nowhere.
  Tensor normed = {};
  LayerPass part = LayerPass::kWhole;  // another for caches that hold keys, not latents
  // kQueries: where the rotated queries go, [rows, query_heads, key_dim] f32. kRest: the result of
  // attention, [rows, query_heads * value_dim] f32. Both contiguous.
  Tensor queries = {}, attended = {};
  // Where it is not null the step has one layer and no hook, and other entries stand between its
  // rows: the cache has made room for these too. Not of models with latent attention.
  const JoinedEntries* joined = nullptr;
};

class Model {
 public:
  // `directory` holds config.json and, unless random, the weights. What CheckWeights refuses and
  // non-finite weights are errors. Layers are divided over DevicesOf(ops), by what these have free.
  static Result<std::unique_ptr<Model>> Load(const std::string& directory,
                                             const ModelOptions& options, Ops& ops);
  ~Model();

  const ModelConfig& config() const { return config_; }
  // The same to whoever knows its caches alone (ModelConfig::OfCaches).
  const ModelConfig& cache_config() const { return cache_config_; }
  // The facts that methods may know about it.
  ModelShape shape() const {
    ModelShape shape = ShapeOf(config_, dtype_);
    shape.token_classes = token_classes_ != nullptr;
    return shape;
  }
  // Null if Load was given none.
  const TokenClasses* token_classes() const { return token_classes_.get(); }
  // The shape of the checkpoint before a Prepare stage changed it; a full cache is measured by it.
  const ModelShape& checkpoint_shape() const { return checkpoint_shape_; }
  // Empty if Load was given none.
  const TextEncoder& encode() const { return encode_; }
  const Drafters& drafters() const { return drafters_; }
  // Empty if Load was given none.
  const TextSpeller& spell() const { return spell_; }
  const Taggers& taggers() const { return taggers_; }
  DType dtype() const { return dtype_; }
  ProductRows product_rows() const { return product_rows_; }
  int64_t parameter_count() const { return ParameterCount(config_); }
  int64_t weight_bytes() const { return weight_bytes_; }  // as held in memory
  int64_t block_bytes() const { return block_bytes_; }    // of these, what stayed in blocks
  // Is made beside what follows Load: who asks early waits for it, and so does the destructor.
  const std::string& fingerprint() const { return fingerprint_.get(); }
  // The first device's.
  Ops& ops() const { return *ops_; }
  // Where the layers that have a cache lie, counted among these.
  const LayerDevices& devices() const { return devices_; }
  // How all layers are divided over devices, in their order.
  const std::vector<LayerShare>& shares() const { return shares_; }
  // The output projection of attention in a layer that has a cache, counted among these:
  // [hidden_size, query_heads * value_dim].
  const PackedMatrix& output_projection(int64_t cache) const;
  // From now on layers read these layers' caches (Calibrator::ReadsCaches); empty: each its own.
  // Caches that were made before are for the layers as they were. Precondition: each layer of the
  // checkpoint has a cache.
  Status ReadCaches(std::span<const int64_t> reads);

  // A cache for a sequence that is planned to reach `planned_length` tokens. Without `pools` it
  // uses the model's own, which have no limit.
  KvCache NewCache(int64_t planned_length) { return NewCache(planned_length, *pools_); }
  CachePools& pools() { return *pools_; }
  // How decode steps were submitted, to all devices together.
  RepeatedWork::Counts decode_counts() const;
  // `mla_latent` needs a model that was loaded for it.
  KvCache NewCache(int64_t planned_length, CachePools& pools, bool mla_latent = false) const;

  // Runs all steps together: one pass over the weights. Rows of a step attend only to their own
  // cache. Returns the wanted logits, [rows, vocab] f32 in the order of the steps; valid until the
  // next call.
  Tensor Forward(std::span<const SequenceStep> steps);
  // The same for one sequence in some layers. Rows have the bits that Forward gives them.
  // Precondition: all layers lie on one device.
  Tensor ForwardLayers(const LayerStep& step);

  // The model's encoder reads a text that comes before the cache's tokens, in chunks of so many
  // tokens, the last one of what is left, and the cache takes its rows. A chunk's rows have the
  // same bits whatever else is read with it. Precondition: config().encoder.
  Status Encode(std::span<const int32_t> ids, int64_t chunk_tokens, KvCache& cache);

  // The id of the largest logit in each row of what Forward gave, the lowest among equals. Ids from
  // `valid_vocab` on are padding rows of the head and are never chosen; 0 means all are valid. A
  // device copies only these ids to the host, not the logits. Valid until the next call of Forward.
  std::vector<int32_t> BestTokens(const Tensor& logits, int64_t valid_vocab);

  // The most rows of a prompt to pass to one Forward for good speed.
  static constexpr int64_t kChunkRows = 512;

 private:
  Model(ModelConfig config, DType dtype, bool mla_latent, std::span<Ops* const> devices,
        std::vector<LayerShare> shares);

  Status LoadWeights(const WeightSource& source, const ModelOptions& options);
  void FindCaches();

  ModelConfig config_, cache_config_;
  ModelShape checkpoint_shape_;
  DType dtype_;
  ProductRows product_rows_ = ProductRows::kRounded;
  bool mla_latent_;
  Ops* ops_;
  KvBases bases_;
  std::vector<Tensor> sinks_;  // of each layer that has a cache, or none
  std::shared_ptr<const TokenClasses> token_classes_;
  TextEncoder encode_;
  Drafters drafters_;
  TextSpeller spell_;
  Taggers taggers_;
  int64_t weight_bytes_ = 0, block_bytes_ = 0;
  std::shared_future<std::string> fingerprint_;
  std::vector<LayerShare> shares_;
  LayerDevices devices_;
  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<CachePools> pools_;
  std::vector<ModelSection> sections_;
};

}  // namespace kvgauge
