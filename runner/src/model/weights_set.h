// SPDX-License-Identifier: Apache-2.0
// The weights of a model as the forward pass uses them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kernels/ops.h"
#include "runner/model.h"
#include "runner/weights.h"

namespace kvgauge {

struct Linear {
  std::unique_ptr<PackedMatrix> matrix;  // null: absent
  Buffer bias_memory;
  Tensor bias;  // [n] f32 or empty
};

struct Norm {
  Buffer memory;
  Tensor weight;  // [d] f32, or [heads * d]; empty: absent
  Tensor bias;    // [d] f32 or empty
};

// A table whose rows are looked up: kept as stored, a view of the file where possible.
struct Table {
  WeightTensor source;
  Buffer memory;  // a copy, where the file's bytes cannot be used in place
  Tensor rows;
  std::optional<WeightBlocks> blocks;  // in place of the others
};

struct MlpWeights {
  Linear up, down;
};

// RWKV: a product of rows mixed with those before them.
struct MixedWeights {
  Norm share;   // its weight: [columns], how much of the difference to the row before is added
  Linear made;  // RWKV-6: that is made of a narrow row instead
  int64_t narrow = 0;  // which of the row's
  Linear linear;
};

struct StateWeights {
  Linear input;
  Norm conv;                    // its weight: taps, [width * columns], oldest first; its bias
  Norm step_bias, rates, skip;  // weights: [heads]; rates are below 0; no skip: empty
  Norm norm;
  Norm query_norm, key_norm;  // weights: [key_dim], what lengths become
  // Mamba-1: steps, B and C of what was convolved, what makes steps of the first of these, and its
  // norm; rates: [key_dim * heads].
  Linear selected, step_input;
  Norm step_norm;
  // RWKV, whose `conv` gives the row before: keys, values and receptances; RWKV-6: queries, decays,
  // keys, values and gates, or what makes second values; RWKV-7: queries, decays, keys, values,
  // writes and gates.
  std::vector<MixedWeights> mixed;
  MixedWeights narrow;  // RWKV-6: to the narrow rows of all these
  Norm first;  // its weight: [columns], added to keys for their own row; later: what weighs it
  // From narrow rows; RWKV-7: and what multiplies keys before they are looked up, and by how much
  // is written.
  Linear decays, writes, gates, values;
  Norm find_scale, key_scale;
  Linear output;
};

// A layer with embeddings of its own: how far the residual opens them, and what they add to it.
struct LayerEmbeddingWeights {
  Linear gate, projection;
  Norm projection_norm;
};

// A layer of a residual of several streams.
struct StreamWeights {
  Norm router_norm;
  Linear router, predicts, corrects;
  Norm scale;  // its weight: [hidden], of the corrected stream before its embedding is added
  Linear laurel_left, laurel_right;
  Norm laurel_norm;
};

// Attention to the rows of an encoder: keys and values are not made, so that projections of keys
// are turned around and go to queries, and those of values go to the result.
struct CrossWeights {
  Norm norm;
  Linear query, output;
  std::vector<Linear> keys, values;  // [kv_heads]: of [width, key_dim] and [value_dim, width]
};

// What makes queries, and keys and values anew of the rows that a cache holds (GoldFinch).
struct MadeKeysWeights {
  Linear down, up;  // to a row of the cache and from it; in the layer that has the cache
  MixedWeights narrow_query, query;
  MixedWeights narrow;             // of keys and values
  std::vector<MixedWeights> made;  // keys and values: their mixes, and the first of a narrow pair
  std::vector<Linear> second;      // of these
  Norm query_norm, output_norm;
  Norm norms[2];  // of keys and of values
};

struct LayerWeights {
  Norm input_norm, attention_norm, mlp_norm, mlp_output_norm, q_norm, k_norm;
  Linear qkv, output;
  Norm sinks;  // its weight: [query_heads]; empty: none
  Norm q_latent_norm, kv_latent_norm;
  Linear q_up, kv_down, kv_up;
  // [heads], for attention over latents: queries to latents, latents to values.
  std::vector<Linear> absorbed_keys, absorbed_values;
  CrossWeights cross;
  StateWeights state;
  MadeKeysWeights made;
  StreamWeights streams;
  LayerEmbeddingWeights embeddings;
  float scale = 1.0f;  // of the residual behind the layer
  MlpWeights mlp;
  std::vector<MixedWeights> mlp_mixed;  // RWKV: instead of mlp.up, and what weighs it
  Linear router;
  Norm router_scale;   // its weight: [hidden]; where experts are beside a dense MLP
  Norm expert_scales;  // its weight: [experts, 1]; likewise
  Norm experts_norm, mlp_part_norm, experts_part_norm;  // likewise
  Norm router_correction;                               // its weight: [experts]; empty: none
  Linear shared_gate;
  std::vector<MlpWeights> experts;
  std::unique_ptr<MatrixSet> experts_up, experts_down;  // all of `experts`; null: there are none
  Norm experts_up_bias, experts_down_bias;              // weights: [experts, n]; empty: none
};

// Where one decoder reads blocks and the other one their tokens (ModelConfig::blocks).
struct BlockWeights {
  Table embedding;    // of tokens, in the first
  Linear projection;  // of those of a block, one behind the other; or none
  Norm norm;          // behind the layers of the first
  Linear expansion;   // to all rows that the second has of the next block
};

struct ModelWeights {
  Table embedding, positions;
  // Embeddings of all layers, and a projection of the embedding below that is added to them.
  Table layer_embedding;
  Linear layer_projection;
  Norm layer_norm;
  // A residual of several streams: what makes them of the first and brings them back, for each but
  // the first.
  std::vector<Linear> stream_projections, stream_returns;
  Linear project_in, project_out, head;
  Norm embedding_norm, final_norm;
  std::vector<LayerWeights> layers;
  BlockWeights blocks;
  std::unique_ptr<ModelWeights> encoder;  // on the first device; null: there is none
};

}  // namespace kvgauge
