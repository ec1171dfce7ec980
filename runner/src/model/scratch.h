// SPDX-License-Identifier: Apache-2.0
// Scratch memory of the forward pass: named buffers that only ever grow.
#pragma once

#include <array>

#include "runner/model.h"

namespace kvgauge {

enum class ScratchSlot {
  kIds,
  kPositions,
  kResidual,   // [m, hidden]
  kNormed,     // [m, hidden], the dtype that products take
  kMlpNormed,  // the same of an MLP beside attention
  kProjected,  // q, k, v of all rows, or the MLA factors
  kLatentQuery,
  kLatentNormed,
  kLatentUp,
  kKeys,     // MLA: expanded keys
  kNewKeys,  // [1, m * kv heads, key_dim], of sequences that are written together
  kNewValues,
  kAttended,         // [m, heads, value_dim]
  kConvolved,        // [m, conv_columns], of layers of constant state
  kScanned,          // [m, heads * value_dim] of these
  kSelected,         // [m, step_rank + 2 * key_dim], Mamba-1: what becomes steps, B and C
  kSteps,            // [m, heads] of these; gated retention: how much is written
  kMixed,            // [m, hidden], rows mixed with those before them
  kFirstValues,      // [m, heads * value_dim], the first layer's (RWKV-7)
  kMade,             // a block of tokens whose keys and values are made anew
  kMadeBefore,       // [2, hidden], the rows before it
  kMadePages,        // keys and values of one layer and sequence that were made
  kStreams,          // [m * streams, hidden], of a residual of several
  kStreamsBefore,    // the same, before a layer
  kStreamWork,       // [m, hidden], the one that a layer works on
  kStreamRoutes,     // [m, streams]
  kStreamMixes,      // [m, streams^2]
  kStreamFactors,    // [3, m]
  kStreamGate,       // [m, columns of a layer's embedding, or of what goes beside attention]
  kLayerEmbeddings,  // [m, layers * these columns]
  kGateOnes,         // [m, ffn]
  kBeforePasses,     // [m, hidden], before layers that a prompt goes through several times
  kTokenRows,        // [m, hidden], of the second of two decoders
  kBlockPages,       // keys and values of these
  kNoEntries,        // [m, kv heads, dim] of zeros
  kZeroLogits,       // [query heads]
  kLogSumExp,
  kMeanNeurons,    // [m, kv heads + heads]: who joins an entry, and by what weight
  kMeanShares,     // [rows of an entry, m, kv heads]
  kMeanRows,       // rows before, rows and their means, of one sequence
  kMeanLogSums,    // of a run of rows
  kApart,          // [m, heads, value_dim] and more, of entries that are attended apart
  kApartWords,     // which those are, and which are the others
  kAbsorbedQuery,  // MLA: queries over latents
  kBranch,         // output of attention or MLP before it is added
  kSharedGate,     // [m, 1]
  kMlpUp,
  kMlpActivated,
  kCos,
  kSin,
  kRetainedCos,  // [m, key_dim / 2], of layers of constant state that turn
  kRetainedSin,
  kSlotTables,  // keys that turn by slot: positions, frequencies and their tables
  kRouterLogits,
  kExperts,       // [m, experts per token]: who they are
  kExpertWeight,  // and what they weigh
  kExpertOutput,  // [m * experts per token, hidden]
  kExpertsGiven,  // [m, hidden], of experts beside a dense MLP
  kExpertBias,    // the same, or as wide as what they read
  kGateLimit,
  kChoiceBias,   // [experts] of zeros
  kQueryFactor,  // [m, 1]
  kQueryGrown,   // [m, query heads * key_dim]
  kSurprise,     // [m] and more
  kLogitRows,
  kLogits,
  kCount,
};

struct Scratch {
  std::array<Buffer, static_cast<size_t>(ScratchSlot::kCount)> buffers;

  // A view of the slot's memory; contents are undefined. Views taken earlier from the same slot
  // become invalid when it grows.
  Tensor Take(Ops& ops, ScratchSlot slot, DType dtype, std::initializer_list<int64_t> dims) {
    Buffer& buffer = buffers[static_cast<size_t>(slot)];
    int64_t bytes = SizeOf(dtype);
    for (const int64_t d : dims) bytes *= d;
    if (bytes == 0) bytes = 1;
    if (buffer.size_bytes() < bytes) buffer = ops.memory->Allocate(bytes);
    return buffer.As(dtype, dims);
  }
};

}  // namespace kvgauge
