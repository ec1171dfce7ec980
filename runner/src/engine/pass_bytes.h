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
// The most rows of prompts that go through in one pass, of prompts of up to `longest` tokens.
int64_t PromptRows(const ModelConfig& config, int64_t longest);
// Bytes of keys and values that a layer makes anew of so many entries of a sequence
// (ModelConfig::made_keys), and of what it makes them by, in a model of that type.
int64_t MadeBytes(const ModelConfig& config, DType dtype, int64_t entries);
// Bytes of the pass for so many rows, the logits of `logit_rows` of them included.
int64_t PassBytes(const ModelConfig& config, int64_t rows, int64_t logit_rows);

}  // namespace kvgauge
