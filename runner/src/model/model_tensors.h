// SPDX-License-Identifier: Apache-2.0
// The model definition as data: which tensors a config needs, under which names, of which shapes.
// The loader reads exactly these; random weights draw exactly these.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runner/config.h"
#include "runner/weights.h"

namespace kvgauge {

// Rows [begin, end) of a stored matrix.
struct RowSpan {
  int64_t begin = 0, end = 0;
};

// One matrix product's weights: the stored matrices whose rows are stacked, and their biases.
struct LinearSpec {
  std::vector<TensorSpec> parts;
  std::vector<TensorSpec> biases = {};  // empty, or one for each part
  // The order in which rows of the stacked parts are taken, each run within one of them; empty: as
  // stored.
  std::vector<RowSpan> order = {};
  bool transposed = false;  // the one part is stored as [columns, rows]
};

// A norm; the weight of an absent one has no shape.
struct NormSpec {
  TensorSpec weight;                    // without a name: ones
  TensorSpec bias;                      // LayerNorm only
  std::vector<TensorSpec> others = {};  // weights of further heads, behind that of the first
  bool from_one = false;                // what is stored is the weight less one
};

struct MlpSpec {
  LinearSpec up;  // gate and up stacked, or fc1
  LinearSpec down;
};

// RWKV: a product of rows mixed with those before them.
struct MixedSpec {
  // One number a column, in as many dimensions as the file has it; RWKV-6: none.
  TensorSpec mix = {};
  // RWKV-4 stores how much of a mix is the row's own, RWKV-7 how much is that of the row before.
  bool own = false;
  LinearSpec linear;
};

// RWKV-6: what makes mixes of narrow rows, those of all products in one tensor.
struct MixesSpec {
  TensorSpec shares;    // [columns, mixes * rank]
  bool by_mix = false;  // it is [mixes, rank, columns] instead
  // What mixes are without it: of all [mixes, columns], or of each.
  std::vector<TensorSpec> biases = {};
  std::vector<int64_t> order = {};  // the product that each mix belongs to
};

// What a layer of constant state has beside norms, attention and its MLP.
struct StateSpec {
  LinearSpec input;  // rows: those of the convolution, gates, weights (gated delta rule), steps
  TensorSpec conv, conv_bias;         // [columns, 1, width], [columns]
  TensorSpec step_bias, rates, skip;  // [heads]; rates as logarithms; no skip: no name
  NormSpec norm;                      // of a head, or Mamba-2's of all
  // Mamba-1, whose rates are [heads, key_dim].
  LinearSpec selected, step_input;
  NormSpec step_norm, key_norm, query_norm;
  // RWKV (StateWeights).
  std::vector<MixedSpec> mixed;
  MixedSpec narrow;
  MixesSpec mixes;
  TensorSpec first;
  LinearSpec decays, writes, gates, values;
  TensorSpec find_scale, key_scale;
  LinearSpec output;
};

// What opens a layer's own embeddings, and what they add to the residual.
struct LayerEmbeddingSpec {
  LinearSpec gate, projection;
  NormSpec projection_norm;
};

// What a layer of a residual of several streams has besides (StreamWeights).
struct LayerStreamSpec {
  NormSpec router_norm;
  LinearSpec router, predicts, corrects;
  TensorSpec scale;
  LinearSpec laurel_left, laurel_right;
  NormSpec laurel_norm;
};

// What a layer has that attends to the rows of an encoder: its own norm and projections.
struct CrossSpec {
  NormSpec norm;
  LinearSpec query, keys, values, output;
};

// What a layer has whose keys and values are made anew (MadeKeysWeights).
struct MadeKeysSpec {
  LinearSpec down, up;  // in the layer that has the cache
  MixedSpec narrow_query, query, narrow;
  MixesSpec query_mix, mixes;
  std::vector<LinearSpec> first, second;  // of keys and of values
  NormSpec query_norm, key_norm, value_norm, output_norm;
};

struct LayerSpec {
  NormSpec input_norm;       // before attention (post_norm: after its residual add)
  NormSpec attention_norm;   // on the attention's output
  NormSpec mlp_norm;         // before the MLP (post_norm: after its residual add)
  NormSpec mlp_output_norm;  // on the MLP's output
  NormSpec q_norm, k_norm;
  TensorSpec sinks;  // [query_heads], logits without a value

  LinearSpec qkv;  // MLA: the query projection, full or its first factor
  LinearSpec output;

  // MLA only.
  NormSpec q_latent_norm;
  LinearSpec q_up;
  LinearSpec kv_down;
  NormSpec kv_latent_norm;
  LinearSpec kv_up;

  CrossSpec cross;
  StateSpec state;
  MadeKeysSpec made;
  LayerStreamSpec streams;
  LayerEmbeddingSpec embeddings;
  TensorSpec scale;  // [1], of the residual behind the layer

  std::vector<MixedSpec> mlp_mixed;  // instead of mlp.up
  MlpSpec mlp;                       // dense, or the shared experts of a MoE layer (may be absent)
  LinearSpec router;
  TensorSpec router_scale;   // [hidden], of what a router reads that norms the residual itself
  TensorSpec expert_scales;  // [experts], of their weights
  NormSpec experts_norm;     // before experts that are beside a dense MLP
  NormSpec mlp_part_norm, experts_part_norm;  // on what either of the two gives
  TensorSpec router_correction;               // [experts], added to sigmoids for the choice
  LinearSpec shared_gate;                     // one row
  std::vector<MlpSpec> experts;
};

// The rows of queries, keys and values in a matrix that has them by group: those of all queries,
// of all keys and of all values, each in the order of heads.
struct GroupedRows {
  std::vector<RowSpan> queries, keys, values;
};
GroupedRows RowsByGroup(const ModelConfig& config);

// How a layer of constant state is stored (state_tensors.cpp); `scope` begins its names.
StateSpec DescribeState(const ModelConfig& config, int64_t layer, const std::string& scope);
// The parts of GoldFinch (goldfinch_tensors.cpp): a layer of Finch-C2, and one that attends.
StateSpec DescribeFinchC2(const ModelConfig& config, const std::string& scope);
void DescribeMadeKeys(const ModelConfig& config, int64_t layer, const std::string& scope,
                      LayerSpec& spec);
// What an MLP that mixes its rows has before its second matrix.
std::vector<MixedSpec> DescribeMixedMlp(const ModelConfig& config, const std::string& scope);

// What two decoders have besides (BlockWeights).
struct BlockSpec {
  TensorSpec embedding;
  LinearSpec projection;
  NormSpec norm;
  LinearSpec expansion;
};

struct ModelTensors {
  TensorSpec embedding;
  TensorSpec positions;  // learned positions
  LinearSpec project_in, project_out;
  // Embeddings of all layers, and what is added to them (ModelWeights).
  TensorSpec layer_embedding;
  LinearSpec layer_projection;
  NormSpec layer_norm;
  // A residual of several streams has these.
  std::vector<LinearSpec> stream_projections, stream_returns;
  NormSpec embedding_norm, final_norm;
  LinearSpec head;  // tied: the embedding's name
  // The name of a tied head that is stored all the same (TensorsIn).
  std::string stored_head;
  bool stored_head_differs = false;
  std::vector<LayerSpec> layers;
  BlockSpec blocks;
  std::vector<ModelTensors>
      encoder;  // ModelConfig::encoder, of whose heads there is none; or empty
};

// What goes before the names of a checkpoint.
struct TensorPlaces {
  std::optional<std::string> body;  // none: that of the config's names
  std::string head;                 // before the head's name
};
ModelTensors DescribeTensors(const ModelConfig& config, const TensorPlaces& places = {});

// As that checkpoint names them. A vision-language checkpoint has one of three spellings; a mixture
// is an error. There a tied head that is stored and differs from the embedding is a head of its
// own.
Result<ModelTensors> TensorsIn(const ModelConfig& config, const WeightSource& source);

// Every tensor once, in the order of the forward pass; a tied head is the embedding.
std::vector<TensorSpec> ListTensors(const ModelTensors& tensors);

// Tensors that checkpoints carry and no forward pass reads.
bool IsIgnorableTensor(const std::string& name);

// A tensor of layers behind the last that are not run.
bool IsDraftTensor(const ModelConfig& config, const std::string& name);
// What would make keys and values in a layer that reads those of another.
bool IsUnreadTensor(const ModelConfig& config, const ModelTensors& tensors,
                    const std::string& name);

// A vision-language checkpoint's tensor that is not the text part's.
bool IsTowerTensor(const std::string& name);

}  // namespace kvgauge
