// SPDX-License-Identifier: Apache-2.0
// ModelConfig: one point in the space of decoder-only transformers, read from a Hugging Face
// config.json. Families differ in these fields and in their tensor names, not in code paths.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/json_fwd.h"
#include "core/result.h"
#include "kernels/rows.h"
#include "methods/entry_means.h"
#include "methods/model_shape.h"
#include "runner/rope.h"

namespace kvgauge {

// The names under which a checkpoint stores its tensors. Those of Llama, unless a family says
// otherwise; an empty name is a tensor that there is not, an empty scope no scope. Names are
// literals.
struct TensorNames {
  std::string_view body = "model.";  // before all but the head
  std::string_view embedding = "embed_tokens";
  std::string_view embedding_norm = "embed_norm";
  std::string_view layers = "layers";
  std::string_view final_norm = "norm";
  std::string_view head = "lm_head";
  // What follows lies in a layer. Output norms are there where ModelConfig::output_norms says so.
  std::string_view input_norm = "input_layernorm";
  std::string_view attention_norm = "post_attention_layernorm";
  std::string_view mlp_norm = "post_attention_layernorm";
  std::string_view mlp_output_norm = "post_feedforward_layernorm";
  std::string_view attention = "self_attn";
  std::string_view query = "q_proj", key = "k_proj", value = "v_proj";
  std::string_view qkv = "";  // one matrix instead of the three
  // Its rows are, for each KV head, its queries, its key and its value; otherwise all queries, all
  // keys and all values.
  bool qkv_by_group = false;
  std::string_view output = "o_proj";
  std::string_view query_norm = "q_norm", key_norm = "k_norm";
  std::string_view sinks = "sinks";
  std::string_view state = "linear_attn";  // the scope of what has a constant state
  std::string_view mlp = "mlp";
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::string_view gate_up = "";     // one matrix instead of the two
  std::string_view mixture = "mlp";  // the scope of a mixture of experts
  std::string_view router = "gate";
  std::string_view correction = "gate.e_score_correction_bias";  // of its sigmoids
  std::string_view expert_gate = "gate_proj", expert_up = "up_proj", expert_down = "down_proj";
  std::string_view shared_experts = "shared_experts";
  // The shared expert lies beside the mixture, under the names of a dense MLP.
  bool shared_as_mlp = false;
  // The beginning of names of a part that predicts further tokens; it is not run. Empty: none.
  std::string_view ahead = "";
};

enum class NormKind {
  kRms,           // x / rms * w
  kRmsOffsetOne,  // x / rms * (1 + w), Gemma
  kLayer,         // LayerNorm
};

// The norms of queries and keys before rotation.
enum class QkNorm {
  kHead,        // RMSNorm of each head, all by one weight
  kWidth,       // RMSNorm of all heads together
  kLayer,       // LayerNorm of each head, all by one weight and bias
  kLayerHeads,  // LayerNorm of each head by a weight of its own, stored as a matrix
  kLayerLists,  // the same, each weight stored as a tensor
  kLength,      // RMSNorm of each head without a weight, in layers that turn; before or behind the
                // turn, which keeps lengths (Llama 4)
};

// Multi-head latent attention (DeepSeek-V2). The norms of the two latents have eps 1e-6 whatever
// norm_eps says; the forward pass holds that number.
struct MlaConfig {
  int64_t q_lora_rank = 0;  // 0: one full query projection
  int64_t kv_lora_rank = 0;
  int64_t nope_dim = 0;  // per head, without rotation
  int64_t rope_dim = 0;  // rotated, one key part shared by all heads
};

struct MoeConfig {
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t shared_experts = 0;
  int64_t expert_ffn_size = 0;
  int64_t shared_ffn_size = 0;  // of all shared experts together
  bool shared_gate = false;     // what they give is weighed by the sigmoid of one more logit
  int64_t first_dense_layers = 0;
  int64_t groups = 1;  // group_limited_greedy when > 1
  int64_t top_groups = 1;
  double scaling = 1.0;      // routed_scaling_factor; 1 when renormalize
  bool renormalize = false;  // norm_topk_prob: the chosen weights sum to 1
  // Shares are sigmoids of logits; a stored number for each expert is added for the choice alone,
  // and a group is worth its two best.
  bool sigmoid = false;
  // With `sigmoid`: nothing is added for the choice, and a weight is that of what an expert reads
  // instead of what it gives (Llama 4).
  bool weighs_inputs = false;
  // Experts are taken one after the other, each weighed among those left that are within the
  // tolerance (ExpertRule::in_turn).
  bool in_turn = false;
  double tolerance = 0.0;
  // A dense MLP is beside the experts. They read the residual through a norm of their own, their
  // router through another one; each expert's weight has a stored factor; what either gives is
  // normed before their sum (Gemma 4).
  bool beside_mlp = false;
};

// Layers that keep a state of constant size: the last rows of a convolution, and a matrix for each
// head that each row shrinks and writes to (kernels/state.h).
struct StateConfig {
  // How checkpoints store it, and what is done around the scan.
  enum class Kind {
    kQwen3Next,  // gated delta rule; projections by key head in two matrices
    kQwen35,     // the same, in four matrices
    kMamba2,     // queries, keys and values are C, B and x; gated, then normed
    kMamba1,     // each column is a head of one value; only x is convolved, and C, B and steps are
                 // projected from what that gives
    kRetention,  // a rate for each head; queries and keys turn, and nothing is convolved (RetNet)
    kGatedRetention,  // the same, but each row says how much of a head's state stays (YOCO)
    kRwkv4,           // each column keeps an average in time; rows are mixed with those before them
    kRwkv6,    // every key dimension of a head decays by itself; how much of the row before is
               // mixed into a row is made of the row
    kFinchC2,  // RWKV-6 as GoldFinch has it: no bonus and no gate, a row adds a second value of
               // its own; keys are weighed by what the state forgets; one norm of all heads
    kRwkv7,    // as RWKV-6, but mixed as in RWKV-4; a row also looks up what it replaces
  };
  // Mamba-1: what is projected to steps, B and C may be normed before.
  enum class PartNorms { kNone, kPlain, kWeighed };
  Kind kind = Kind::kQwen3Next;
  int64_t key_heads = 0;  // queries and keys
  int64_t heads = 0;      // values, steps and matrices; a multiple of key_heads
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t conv_width = 0;  // taps
  bool conv_bias = false;
  bool input_bias = false, output_bias = false;  // of the projections
  bool norm = true;                              // Mamba-2: of what was gated
  bool norm_first = false;                       // Mamba-2: normed, then gated
  bool norm_gates = true;                        // Retention: stored as one that also gates
  // What queries and keys of retention turn by.
  double turn_base = 10000.0;
  RopeLayout turn_layout = RopeLayout::kHalf;
  int64_t norm_groups = 1;                   // parts of a row that are normed apart
  double least_step = 0.0, most_step = 0.0;  // bounds of a step; no upper one where it is 0
  int64_t step_rank = 0;                     // Mamba-1: columns that become steps
  PartNorms part_norms = PartNorms::kNone;
  float part_norm_eps = 1e-6f;  // RWKV-6 and 7: of the norm of what a head gives
  // RWKV: columns of a row of the layer, the last of which is kept; those of an MLP that mixes rows
  // too (ModelConfig::mlp_mixes).
  int64_t mixed_columns = 0, mlp_columns = 0;
  // RWKV-6 and 7: columns between the two matrices that make decays; RWKV-6: those that make one
  // mix; RWKV-7: those that make how much is written, gates, and how much of a value is the first
  // layer's. Finch-C2: value_rank of what the second value has beyond the first.
  int64_t decay_rank = 0, mix_rank = 0, write_rank = 0, gate_rank = 0, value_rank = 0;
  // What is convolved goes through this; none: through that of the model.
  std::optional<Activation> activation = std::nullopt;

  bool delta() const { return kind == Kind::kQwen3Next || kind == Kind::kQwen35; }
  bool by_column() const { return kind == Kind::kMamba1; }
  bool gates_retention() const { return kind == Kind::kGatedRetention; }
  bool retains() const { return kind == Kind::kRetention || gates_retention(); }
  bool mixes() const { return kind == Kind::kRwkv4 || makes_mixes() || kind == Kind::kRwkv7; }
  bool makes_mixes() const { return kind == Kind::kRwkv6 || kind == Kind::kFinchC2; }
  int64_t conv_columns() const {
    if (mixes()) return mixed_columns;
    return by_column() ? width() : 2 * key_heads * key_dim + heads * value_dim;
  }
  int64_t width() const { return heads * value_dim; }  // of what the scan gives
  // The state of one layer and sequence has so many, f32 whatever the model computes in.
  int64_t numbers() const {
    return (conv_width - 1) * conv_columns() + heads * key_dim * value_dim + mlp_columns;
  }
};

struct LayerConfig {
  int64_t window = 0;    // sliding window in entries, itself included; 0: full attention
  bool chunked = false;  // the window does not slide: it begins anew at each multiple of its size
  bool moe = false;
  bool local_rope = false;  // turns by ModelConfig::local_rope
  // The layer below whose keys and values this one attends to: one that has a cache of its own,
  // with the same window and rope. -1: its own.
  int64_t reads = -1;
  bool state = false;  // a state of constant size (ModelConfig::state)
  bool rows_alone =
      false;            // its state is the last rows, which later ones are mixed with (GoldFinch)
  bool attends = true;  // false: no attention, hence no cache
  // false: no MLP. A layer that neither attends nor keeps a state is an MLP alone, under one norm.
  bool mlp = true;
  // Behind its own attention it attends to rows of ModelConfig::encoder, where a sequence has some.
  bool crosses = false;
  // > 0: gates of its MLP that are not so many deviations above a row's mean are closed (Gemma 3n).
  float gate_deviations = 0.0f;
  int64_t ffn_size = 0;  // > 0: of its MLP, in the place of ModelConfig::ffn_size
  // Its KV heads, where they are others than the model's (Gemma 4); what they turn is the rope's.
  std::optional<HeadSizes> heads = std::nullopt;
  bool values_are_keys = false;  // values are what is projected to keys, before their norm
  // Attends within a block of tokens (ModelConfig::blocks): its keys and values are those of the
  // newest block, a state of constant size.
  bool in_block = false;

  bool mixes() const { return attends || state; }  // rows with earlier ones
};

// What multiplies the parts of a layer (Falcon-H1): what is projected to queries, keys and values,
// what attention and states give, gates, and what an MLP gives.
struct LayerMultipliers {
  float queries = 1.0f, keys = 1.0f, values = 1.0f, attended = 1.0f;
  // Of Mamba-2's projections: z, x, B, C and steps.
  float state_gates = 1.0f, state_values = 1.0f, state_keys = 1.0f, state_queries = 1.0f;
  float steps = 1.0f, scanned = 1.0f;
  float gates = 1.0f, opened = 1.0f;
};

// Queries of layers that do not turn are longer where more is read (Llama 4): that of position p is
// multiplied by 1 + scale * log(1 + floor((p + 1) / every)).
struct QueryGrowth {
  double scale = 0.0;
  double every = 1.0;
  // In layers that turn too, and by p / every (Ministral 3).
  bool everywhere = false;
};

// Gemma 3n: the residual is several streams. A layer predicts all of them, works on one, and
// corrects the others by what that has gained; what it adds beside attention goes through a narrow
// pair of matrices (LAuReL). Embeddings of the layer are added to all streams but the first.
struct StreamsConfig {
  int64_t streams = 4;
  int64_t active = 0;  // the one that a layer works on
  bool scales = true;  // it is scaled before embeddings of the layer are added
  int64_t laurel_rank = 64;
};

// Each token has an embedding of its own in every layer (Gemma 3n, Gemma 4).
struct LayerEmbeddings {
  int64_t vocab = 0;    // rows of the table of all layers
  int64_t columns = 0;  // of each layer
};

// GoldFinch: what a token leaves in the cache is one row, for all layers that attend. Each of them
// makes its keys and values anew of that row, of the token's embedding, and of those of the token
// before it. The cache then has one KV head of ModelConfig::key_dim numbers and no values.
struct MadeKeysConfig {
  int64_t head_dim = 0;  // of queries, and of the keys and values that are made
  int64_t mix_rank = 0;  // columns that make one mix
  int64_t rank = 0;      // between the matrices by which a layer changes keys and values
};

// Two decoders (Block Transformer, arXiv:2406.02657). The first one's rows are blocks of tokens,
// and its layers alone have a cache. What it makes of a block becomes the first rows that the
// second one has of the next block; behind them come that block's tokens, which see no other block.
struct BlockConfig {
  int64_t tokens = 0;      // of a block
  int64_t given_rows = 0;  // of the second decoder, from what the first one makes of a block
  // A token's in the first decoder; those of a block one behind the other are its row, or what a
  // matrix makes of them is.
  int64_t embedding_columns = 0;
  bool projects = false;
  // Rows that the second decoder has of a block: behind the last token stands the next block.
  int64_t rows() const { return given_rows + tokens - 1; }
  // Whether something is known behind the first `seen` tokens of a prompt: its first block has
  // ended, which is filled up in front so that one ends with the prompt.
  bool Answers(int64_t seen, int64_t prompt_tokens) const {
    return (tokens - prompt_tokens % tokens) % tokens + seen >= tokens;
  }
};

// Placeholder ids of a vision-language checkpoint, -1 where it has none. Prompts hold the first two
// once for each row of features.
struct VisualIds {
  int64_t image = -1;
  int64_t video = -1;  // a family without one shows frames as images
  int64_t vision_start = -1;
  int64_t vision_end = -1;
  // Around the rows of each picture; the first is also what a prompt names a picture by (Gemma-3).
  int64_t image_begin = -1;
  int64_t image_end = -1;
  // Positions in time that a second of a video takes; 0: each time of its grid takes one.
  double tokens_per_second = 0;
};

struct ModelConfig {
  // The model_type; of a vision-language checkpoint that of its text part ("qwen2" for
  // "qwen2_5_vl_text").
  std::string family = "llama";
  std::string vision_family;  // the checkpoint's own model_type where it has a vision tower
  VisualIds visual_ids;
  std::string path;  // the config file, for messages
  TensorNames tensor_names;

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t embedding_size = 0;  // differs from hidden_size only in OPT with projections
  int64_t ffn_size = 0;
  int64_t query_heads = 0;
  int64_t kv_heads = 0;
  int64_t key_dim = 0;    // per head, as attention sees it (MLA: nope + rope)
  int64_t value_dim = 0;  // per head
  int64_t max_position = 0;
  std::vector<LayerConfig> layers;

  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-5f;
  bool post_norm = false;  // norm after the residual add (opt-350m)
  bool final_norm = true;
  bool norm_bias = true;        // of LayerNorms
  bool norm_weight = true;      // of LayerNorms; OLMo's have none
  bool norm_from_one = false;   // LayerNorms' weights are stored less one (Nemotron)
  bool embedding_norm = false;  // on what is looked up, BLOOM
  bool input_norms = true;
  bool output_norms = false;  // on what attention and the MLP add, Gemma-2
  // Attention and MLP read the same residual; they may share one norm.
  bool parallel = false;
  bool shared_norm = false;
  bool value_norm = false;  // RMSNorm of each head's values without a weight (Gemma 3n)
  bool qk_norm = false;
  QkNorm qk_norm_kind = QkNorm::kHead;
  // The result of attention is weighed by sigmoids of one more projection of what it reads, whose
  // rows are stored behind each head's queries.
  bool attention_gate = false;
  // Each query head has a logit of its own in every softmax, which has no value.
  bool sinks = false;
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool router_bias = false;
  bool head_bias = false;
  bool gated_mlp = true;
  // > 0: the gate is no more than that, what it opens is within it and then one larger.
  float mlp_limit = 0.0f;
  Activation activation = Activation::kSilu;
  bool squared_activation = false;  // without a gate: squared behind it (Nemotron-H)
  // RWKV: rows of an MLP are mixed with those before them, which the layer's state keeps; what it
  // gives may be weighed by sigmoids of one more projection.
  bool mlp_mixes = false;
  bool mlp_weighed = false;
  // > 0: the residual is halved behind every so many layers, and what later ones add with it
  // (RWKV-4).
  int64_t halve_every = 0;
  float attention_scale = 1.0f;  // every factor between q . k and the softmax, YaRN's included
  float attention_softcap = 0.0f;
  std::optional<QueryGrowth> query_growth;
  float qkv_limit = 0.0f;  // > 0: queries, keys and values are kept within it, MPT
  // ALiBi: [query_heads], or empty. An entry's logit gains the head's slope times its position:
  // that is the slope times how far it is from the query, but for a number of the row that its
  // softmax cancels.
  std::vector<float> distance_slopes;
  // Slopes, positions and their products are rounded to bf16, and these are scaled as scores are
  // (Falcon).
  bool rounded_distances = false;
  float logit_softcap = 0.0f;
  bool scale_embedding = false;  // Gemma: times sqrt(hidden_size), rounded to the model dtype
  // What multiplies embeddings, what a branch adds, and logits (before their cap).
  float embedding_multiplier = 1.0f;
  float residual_multiplier = 1.0f;
  float logit_multiplier = 1.0f;
  std::optional<LayerMultipliers> multipliers;
  bool tied_head = false;
  // Further layers that a checkpoint may hold, to predict tokens ahead; they are not run.
  int64_t draft_layers = 0;
  bool learned_positions = false;  // OPT: table row = position + 2
  std::optional<RopeConfig> rope;
  // That of layers that say so; in the same layout as `rope`, and of the same dims but where heads
  // of layers have several sizes. Its kind may be none:
  // those layers do not turn.
  std::optional<RopeConfig> local_rope;
  // Rows of one picture see each other, the later ones too (Gemma-3).
  bool mutual_pictures = false;
  std::optional<MlaConfig> mla;
  std::optional<MadeKeysConfig> made_keys;
  std::optional<MoeConfig> moe;
  std::optional<StateConfig> state;
  std::optional<StreamsConfig> streams;
  std::optional<LayerEmbeddings> layer_embeddings;
  bool layer_scales = false;  // a stored number multiplies the residual behind each layer (Gemma 4)
  // A second model in the same checkpoint, whose rows see all of a text and which has no head. What
  // it makes of the beginning of a prompt is what layers attend to (CEPE). Null: there is none.
  std::shared_ptr<const ModelConfig> encoder;
  // Rows may join the newest entry of a head, in every layer: a prepare stage says so.
  std::optional<EntryMeans> means;
  // How often a prompt goes through layers that read later ones, and through these, which then are
  // of the pass before (LCKV); 1: there are none.
  int64_t prompt_passes = 1;
  // Layers that are `in_block` are the second decoder's, and come behind those of the first.
  std::optional<BlockConfig> blocks;

  DType stored_dtype = DType::kF32;  // torch_dtype / dtype
  // How weights are stored where that is not a float for each: "gguf: q4_k, q6_k, f32".
  std::string weight_format;
  int64_t bos_id = -1;  // -1: none
  int64_t pad_id = -1;
  std::vector<int64_t> eos_ids;  // generation_config.json wins over config.json

  // The type of tables that are looked up in, where all else is `dtype`: they stay as stored,
  // unless they have to be made.
  DType TableType(DType dtype) const;
  int64_t layer_count() const { return static_cast<int64_t>(layers.size()); }
  // Layers that read the cache of another, or do not attend, have none. The others' caches are
  // counted in their order: what knows caches alone, such as methods, calls them layers.
  bool HasCache(int64_t layer) const {
    const LayerConfig& own = layers[static_cast<size_t>(layer)];
    return own.reads < 0 && own.attends && !own.in_block;
  }
  int64_t cache_count() const;
  // How many tokens an entry of a cache stands for.
  int64_t EntryTokens() const { return blocks ? blocks->tokens : 1; }
  // Layers of the first decoder, where there are two.
  int64_t block_layer_count() const;
  // The KV heads of a layer; and whether all layers have the same.
  HeadSizes HeadsOf(int64_t layer) const;
  bool HasEvenHeads() const;
  // What a layer's queries and keys turn by.
  const std::optional<RopeConfig>& RopeOf(int64_t layer) const {
    return layers[static_cast<size_t>(layer)].local_rope ? local_rope : rope;
  }
  int64_t FfnSizeOf(int64_t layer) const {
    const int64_t own = layers[static_cast<size_t>(layer)].ffn_size;
    return own > 0 ? own : ffn_size;
  }
  // Whether a layer's queries and keys turn by their positions.
  bool Turns(int64_t layer) const;
  bool SharesCaches() const;
  // Whether a layer attends to keys and values that a later one makes, and so never to its own row.
  bool ReadsLater(int64_t layer) const { return layers[static_cast<size_t>(layer)].reads > layer; }
  // Behind the last of the layers that go with `first`, which reads a later one: those that make
  // what they read, and all between.
  int64_t PassedEnd(int64_t first) const;
  // Layers that keep a state of constant size, or the keys and values of a block.
  int64_t state_count() const;
  int64_t StateOf(int64_t layer) const;       // which of these a layer is
  std::vector<int64_t> StateNumbers() const;  // of each of these
  int64_t StateNumbers(int64_t layer) const;  // of one that has a state
  // Bytes of the states of one sequence, however long it is.
  int64_t StateBytes() const;
  int64_t CacheOf(int64_t layer) const;      // which cache a layer attends to
  int64_t CachesBelow(int64_t layer) const;  // of layers before this one
  int64_t LayerOf(int64_t cache) const;      // which layer has it
  // `reads` of all layers, each its own number or that of an earlier layer which reads its own, or
  // of a later one where prompt_passes is more than 1; that of a layer that does not attend is its
  // own. An error names the layer and changes nothing.
  Status ShareCaches(std::span<const int64_t> reads);
  // The same model to whoever knows caches alone: its layers are those that have one.
  ModelConfig OfCaches() const;
  // Bytes one token adds to a plain full cache of this dtype, all layers; its part of those of a
  // block.
  int64_t KvBytesPerToken(DType dtype) const;
  // Bytes of the keys and values that the next token of so many sees: of windows no more than they
  // reach.
  int64_t KvReachBytes(int64_t tokens, DType dtype) const;
};

// A family whose checkpoints can be read.
struct FamilyInfo {
  std::string_view model_type;
  std::string_view title;  // the models that are saved as such
  std::string_view notes;
};
// Sorted by model_type.
std::vector<FamilyInfo> ModelFamilies();

// Reads `path`: a config.json, or the directory that holds it (then generation_config.json counts
// too); or a GGUF file, or the directory that holds one, whose metadata is read instead. Keys that
// change the forward pass and are not understood are errors that name the key.
Result<ModelConfig> ReadModelConfig(const std::string& path);

// The JSON that the config at `path` (ModelConfig::path) was read from.
Result<Json> ReadConfigDocument(const std::string& path);

// The same from parsed JSON; `origin` begins every message.
Result<ModelConfig> ParseModelConfig(const Json& json, const std::string& origin);

}  // namespace kvgauge
