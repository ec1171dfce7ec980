// SPDX-License-Identifier: Apache-2.0
#include "src/engine/pass_bytes.h"

#include <algorithm>

#include "kernels/attention.h"
#include "runner/config.h"
#include "runner/model.h"

namespace kvgauge {
namespace {

// RWKV-6 mixes rows for queries, decays, keys, values and gates, Finch-C2 for second values.
constexpr int64_t kRwkv6Mixes = 5;

// What a row of a layer of constant state has beside its projection.
int64_t ScannedWidth(const ModelConfig& config) {
  if (!config.state) return 0;
  const StateConfig& state = *config.state;
  const int64_t width = state.conv_columns() + state.width();
  if (state.kind == StateConfig::Kind::kRwkv4) return width + config.hidden_size;
  if (state.makes_mixes()) {
    return width + config.hidden_size + kRwkv6Mixes * state.mix_rank;
  }
  if (state.kind == StateConfig::Kind::kRwkv7) {
    return width + config.hidden_size + 2 * state.width() + state.value_rank + state.heads;
  }
  if (!state.by_column()) return width;
  return width + state.step_rank + 2 * state.key_dim + state.width();
}

// What a row of a residual of several streams has besides.
int64_t StreamsWidth(const ModelConfig& config) {
  if (!config.streams) return 0;
  const StreamsConfig& streams = *config.streams;
  const int64_t count = streams.streams;
  return (2 * count + 1) * config.hidden_size + count * (count + 1) + 3 + streams.laurel_rank +
         config.ffn_size;
}

// What a row has of embeddings of all layers, and of what opens one.
int64_t EmbeddingsWidth(const ModelConfig& config) {
  if (!config.layer_embeddings) return 0;
  return (2 * config.layer_count() + 1) * config.layer_embeddings->columns;
}

// What a row has beside its projection where rows may join entries; a pass of fewer rows than a
// mean takes those before them, too, which are as many as a state has.
int64_t MeanWidth(const ModelConfig& config) {
  if (!config.means) return 0;
  return config.query_heads + config.kv_heads * (1 + config.means->window +
                                                 3 * std::max(config.key_dim, config.value_dim));
}

// What a row has that attends to those of an encoder: each head's query and result, as wide as
// they.
int64_t CrossWidth(const ModelConfig& config) {
  return config.encoder == nullptr ? 0 : 2 * config.query_heads * config.encoder->hidden_size;
}

// What a row has besides where prompts go through layers several times.
int64_t PassesWidth(const ModelConfig& config) {
  if (config.prompt_passes == 1) return 0;
  return config.hidden_size + config.query_heads +
         config.kv_heads * std::max(config.key_dim, config.value_dim);
}

// What a row of the second of two decoders has besides: a residual beside that of the first, and
// what that is made of.
int64_t BlocksWidth(const ModelConfig& config) {
  return config.blocks ? config.hidden_size + config.blocks->embedding_columns : 0;
}

}  // namespace

int64_t WidestProjection(const ModelConfig& config) {
  int64_t width = 0;
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    const HeadSizes heads = config.HeadsOf(layer);
    const int64_t queries = config.query_heads * heads.key_dim;
    const int64_t own = queries + heads.kv_heads * (heads.key_dim + heads.value_dim);
    width = std::max(width, config.attention_gate ? own + queries : own);
  }
  if (!config.state) return width;
  const StateConfig& state = *config.state;
  if (state.kind == StateConfig::Kind::kRwkv4) return 3 * state.width();
  if (state.makes_mixes()) {
    return 3 * state.heads * state.key_dim + 2 * state.width() + state.decay_rank +
           state.value_rank;
  }
  if (state.kind == StateConfig::Kind::kRwkv7) {
    return 9 * state.width() + state.decay_rank + state.write_rank + state.gate_rank +
           state.value_rank;
  }
  const int64_t logits = state.by_column() ? 0 : 2 * state.heads;
  return std::max(width, state.conv_columns() + state.width() + logits);
}

int64_t MadeBytes(const ModelConfig& config, DType dtype, int64_t entries) {
  if (!config.made_keys) return 0;
  const int64_t pages = (entries + kKvPageEntries - 1) / kKvPageEntries * kKvPageEntries;
  const int64_t block = std::min(Model::kChunkRows, entries), hidden = config.hidden_size;
  const int64_t row =
      4 * hidden + 2 * config.key_dim + 2 * config.made_keys->mix_rank + config.made_keys->rank;
  return 2 * pages * hidden * SizeOf(dtype) + 4 * (block * row + 3 * hidden);
}

int64_t PassRows(const ModelConfig& config, int64_t longest, int64_t sequences) {
  const int64_t tokens =
      config.prompt_passes > 1 ? std::max(longest, Model::kChunkRows) : Model::kChunkRows;
  if (!config.blocks) return tokens + sequences;
  // A token is a row, but for the last one of a block, which becomes the first rows of the next.
  const int64_t ended = (tokens + config.blocks->tokens - 1) / config.blocks->tokens + sequences;
  return tokens + sequences + ended * (config.blocks->given_rows - 1);
}

int64_t BlockPageBytes(const ModelConfig& config, DType dtype, int64_t sequences) {
  if (!config.blocks) return 0;
  const BlockConfig& own = *config.blocks;
  const int64_t held = kKvPageEntries / own.rows();
  // A prompt's part may begin and end within a block, and its pages may be cut, too. A sequence's
  // next token has a page.
  const int64_t blocks = Model::kChunkRows / own.tokens + 2;
  const int64_t pages = (blocks + held - 1) / held + 1 + sequences;
  return pages * kKvPageEntries * config.kv_heads * (config.key_dim + config.value_dim) *
         SizeOf(dtype);
}

int64_t PassBytes(const ModelConfig& config, int64_t rows, int64_t logit_rows) {
  const int64_t projected = WidestProjection(config);
  int64_t widest_ffn = 0, widest_value = 0;
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    widest_ffn = std::max(widest_ffn, config.FfnSizeOf(layer));
    widest_value = std::max(widest_value, config.HeadsOf(layer).value_dim);
  }
  int64_t ffn = config.gated_mlp ? 3 * widest_ffn : widest_ffn;
  int64_t experts = 0;
  if (config.moe) {
    const MoeConfig& moe = *config.moe;
    ffn = std::max({ffn, 3 * moe.expert_ffn_size * moe.experts_per_token, 3 * moe.shared_ffn_size});
    experts = moe.experts + moe.experts_per_token * config.hidden_size;
    if (moe.beside_mlp) experts += 2 * config.hidden_size;
  }
  const int64_t row = (config.parallel ? 4 : 3) * config.hidden_size + projected +
                      config.query_heads * widest_value + ffn + experts + ScannedWidth(config) +
                      MeanWidth(config) + CrossWidth(config) + PassesWidth(config) +
                      BlocksWidth(config);
  const int64_t streams = StreamsWidth(config) + EmbeddingsWidth(config);
  return 4 * (rows * (row + streams) + logit_rows * config.vocab_size);
}

}  // namespace kvgauge
