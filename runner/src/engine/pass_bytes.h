// SPDX-License-Identifier: Apache-2.0
// What a forward pass takes beside weights and caches, for the plan of a run.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace kvgauge {

struct ModelConfig;

// What a row of a layer is projected to: queries, keys and values, and what weighs attention; or
// what a state is made of.
int64_t WidestProjection(const ModelConfig& config);
// The most rows that a layer has in one pass: those of a prompt of up to `longest` tokens, and of
// the next token of each of so many sequences.
int64_t PassRows(const ModelConfig& config, int64_t longest, int64_t sequences);
// Bytes of the pages of blocks that such a pass has (ModelConfig::blocks), in a model of that type.
int64_t BlockPageBytes(const ModelConfig& config, DType dtype, int64_t sequences);
// Bytes of keys and values that a layer makes anew of so many entries of a sequence
// (ModelConfig::made_keys), and of what it makes them by, in a model of that type.
int64_t MadeBytes(const ModelConfig& config, DType dtype, int64_t entries);
// Bytes of the pass for so many rows, the logits of `logit_rows` of them included.
int64_t PassBytes(const ModelConfig& config, int64_t rows, int64_t logit_rows);

}  // namespace kvgauge
