// SPDX-License-Identifier: Apache-2.0
// What a method may know about a model: sizes, never names.
#pragma once

#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "kernels/rows.h"

namespace kvgauge {

// The KV heads of a layer.
struct HeadSizes {
  int64_t kv_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t rotary_dim = 0;  // 0: they do not turn

  bool operator==(const HeadSizes&) const = default;
};

struct ModelShape {
  // Those that have a cache. Others attend to the cache of one of them, if shared_caches; what is
  // captured of a layer is then what its own rows do.
  int64_t layers = 0;
  bool shared_caches = false;
  // Bytes of the states of constant size that other layers keep for a sequence; 0: there are none.
  // Such layers need every token, in order, and cannot forget one.
  int64_t state_bytes = 0;
  // Rows may join the newest entry of a head (methods/entry_means.h), which so goes on changing:
  // nothing but the model may evict, code, read or move entries. What rows to come need is part of
  // state_bytes, and of a cache's bytes.
  bool running_entries = false;
  // How often a prompt goes through layers that read what later ones make, each time writing all of
  // it anew; 1: there are none. Nothing but the full cache is run where it is more.
  int64_t prompt_passes = 1;
  // An entry is a row of which each layer makes keys and values anew, with that of the token before
  // it. Nothing but the full cache is run.
  bool made_keys = false;
  // How many tokens an entry stands for (Block Transformer). Nothing but the full cache is run
  // where it is more than one.
  int64_t entry_tokens = 1;
  int64_t hidden_size = 0;
  int64_t query_heads = 0;
  int64_t kv_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t rotary_dim = 0;  // 0: the model has no rotary embedding
  // [layers] of models whose layers have heads of several sizes (Gemma 4); empty: all have those
  // above.
  std::vector<HeadSizes> heads;
  RopeLayout rope_layout = RopeLayout::kHalf;
  // What multiplies products of queries and keys, and what then caps them: 0 where nothing does.
  // methods/attention.h makes shares of products by these.
  float attention_scale = 0.0f;
  float attention_softcap = 0.0f;
  // Scores count how far an entry is from its query (ALiBi): those that the view has, not those
  // that a stage makes of products.
  bool distances = false;
  bool key_norm = false;            // keys are normed between their projection and the rotation
  bool attention_gate = false;      // what attention gives is weighed before its output projection
  int64_t latent_dim = 0;           // MLA: width of the latent without its rotated part; 0: none
  std::vector<int64_t> windows;     // [layers] sliding window; 0: full attention
  DType cache_dtype = DType::kF32;  // of uncompressed entries
  bool token_classes = false;       // the text of tokens is known, so that they have classes
  bool chunked = false;             // windows are chunks: they begin at multiples of their size
  // The width of rows that an encoder beside the decoder makes, to which layers may attend
  // (methods/encoding_thin.h); 0: there is none.
  int64_t encoder_width = 0;

  int64_t group() const { return query_heads / kv_heads; }
  // Bytes one entry of one KV head takes uncompressed.
  int64_t EntryBytes() const { return (key_dim + value_dim) * SizeOf(cache_dtype); }
  // The same model, as if all its layers had the heads of this one.
  ModelShape OfLayer(int64_t layer) const {
    ModelShape own = *this;
    if (heads.empty()) return own;
    const HeadSizes& sizes = heads[static_cast<size_t>(layer)];
    own.heads.clear();
    own.kv_heads = sizes.kv_heads;
    own.key_dim = sizes.key_dim;
    own.value_dim = sizes.value_dim;
    own.rotary_dim = sizes.rotary_dim;
    return own;
  }
  // Entries of so many tokens, the last one perhaps of fewer.
  int64_t EntriesOf(int64_t tokens) const { return (tokens + entry_tokens - 1) / entry_tokens; }
  // Bytes of what one entry of each KV head of all layers takes uncompressed: those of a token,
  // where an entry is one.
  int64_t TokenBytes() const {
    if (heads.empty()) return layers * kv_heads * EntryBytes();
    int64_t numbers = 0;
    for (const HeadSizes& own : heads) numbers += own.kv_heads * (own.key_dim + own.value_dim);
    return numbers * SizeOf(cache_dtype);
  }
};

}  // namespace kvgauge
