// SPDX-License-Identifier: Apache-2.0
// The two halves of Compactor's score (arXiv:2507.08143), of the prompt alone. Either is
// standardised over all heads and entries of the layer.
#pragma once

#include "core/params.h"
#include "core/result.h"
#include "methods/layer_view.h"

namespace kvgauge {

// Attention inside chunks times the length of the value, pooled over three neighbours. `of` was
// declared in chunk_sums. out: [kv_heads, n] f32, may be strided: entries [of.first, of.first + n),
// which end of.last entries before the prompt does.
void NonCausalScores(LayerView& view, const ChunkAttention& of, Tensor out);

// How much a key adds to the directions that the keys have: k (K' K + ridge)^-1 k, where the rows
// k of K are the keys before rotation less their mean, in `sketch` random directions; 0: as they
// are. out: [kv_heads, n] f32, may be strided: entries [first, first + n).
void LeverageScores(LayerView& view, int64_t sketch, int64_t first, Tensor out);
// The parameter "sketch", and what leverage cannot work on.
ParamSpec SketchParam();
Status CheckRawKeys(const ModelShape& shape);

}  // namespace kvgauge
