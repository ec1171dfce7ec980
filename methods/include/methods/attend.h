// SPDX-License-Identifier: Apache-2.0
// Stages that say which entries the rows of a prompt attend to while it is read. What no row sees
// is not computed.
//
// The cache holds every entry all the same, so evictors, stores and readers may follow. A method
// with such a stage shares its prefill only with methods that have the same one. Captures see what
// was computed: shares of a row are among the entries that it saw, and 0 for others. Layers with a
// sliding window of their own attend as they do without the stage, which is not asked there.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "methods/stages.h"

namespace kvgauge {

// Rows of a page of 64 see runs of so many entries along diagonals.
inline constexpr int64_t kSightRun = 64;

// Which of the entries up to its own a row of one query head sees. What lies behind a row it never
// sees. On the host: it is made of blocks and lines, not of entries.
struct HeadSight {
  enum class Kind : uint8_t {
    kWhole,   // all of them
    kBand,    // the first `sinks`, and the last `window` with its own
    kLines,   // some columns, and runs along some diagonals
    kBlocks,  // blocks of entries, chosen for each block of rows
  };
  Kind kind = Kind::kWhole;
  int64_t sinks = 0, window = 0;
  // kLines. The rows of page p, which ends before entry e = 64 (p + 1), see the run of 64 entries
  // that ends `distance` entries before e, or the first 64 where that would begin before entry 0.
  // Runs that overlap or touch are one, which goes on by 64 entries at a time, as in MInference.
  // Distances ascend and begin with 0. All rows see the columns, which ascend.
  std::vector<int32_t> columns, distances;
  // kBlocks: [blocks of rows, words]; bit j of row i lets block i of rows see block j of entries.
  std::vector<uint64_t> blocks;
};

struct PromptSight {
  // If not empty: these rows alone attend, each to those of them up to its own; attention gives the
  // others nothing. Ascending; all heads are kWhole then, and `whole_from` is as it stands below.
  std::vector<int32_t> among;
  int64_t block = kSightRun;  // of kBlocks: so many rows and entries, a multiple of 64
  // Rows from this one on see everything.
  int64_t whole_from = std::numeric_limits<int64_t>::max();
  std::vector<HeadSight> heads;  // [query_heads]
};

// Words of a row of HeadSight::blocks for a prompt of so many rows.
inline int64_t SightWords(int64_t rows, int64_t block) {
  return ((rows + block - 1) / block + 63) / 64;
}

class Attend : public Stage {
 public:
  // What the rows of the prompt see in view.layer(). The view has the keys and values of the whole
  // prompt there, and no captures. queries: [rows, query_heads, key_dim] f32, rotated.
  virtual PromptSight Choose(LayerView& view, const Tensor& queries) const = 0;
};

}  // namespace kvgauge
