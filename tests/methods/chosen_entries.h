// SPDX-License-Identifier: Apache-2.0
// What a reader chose, as numbers of entries.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "fake_view.h"
#include "methods/question_reader.h"

namespace kvgauge {

struct Reads {
  bool chosen = false;
  std::vector<uint64_t> words;  // [query_heads, per_head], a bit an entry
  int64_t per_head = 0;

  bool Has(int64_t head, int64_t entry) const {
    return words[head * per_head + entry / 64] >> entry % 64 & 1;
  }
  std::vector<int64_t> Of(int64_t head) const {
    std::vector<int64_t> entries;
    for (int64_t entry = 0; entry < 64 * per_head; ++entry) {
      if (Has(head, entry)) entries.push_back(entry);
    }
    return entries;
  }
};

// `q` is [query_heads, dim].
inline Reads SelectWith(const Reader& reader, LayerView& view, Reader::State& state,
                        const std::vector<float>& q) {
  const int64_t heads = view.shape().query_heads;
  Reads reads;
  reads.per_head = (view.width() + 63) / 64;
  reads.words.resize(heads * reads.per_head);
  reads.chosen = reader.Select(view, state, View(q, {heads, std::ssize(q) / heads}),
                               Tensor(reads.words.data(), DType::kI64, {heads, reads.per_head}));
  return reads;
}

struct Answered {
  Reads reads;
  std::vector<int32_t> places;
};

// Rows of a question, q [rows, query_heads, dim].
inline Answered AskWith(const Reader& reader, LayerView& view, Reader::State& state,
                        const std::vector<float>& q, bool anew) {
  const ModelShape& shape = view.shape();
  const int64_t heads = shape.query_heads, width = view.width(), words = (width + 63) / 64;
  const int64_t rows = std::ssize(q) / (heads * shape.key_dim);
  Answered out;
  out.reads.per_head = words;
  out.reads.words.resize(heads * words);
  out.places.resize(width);
  std::iota(out.places.begin(), out.places.end(), 0);
  out.reads.chosen = dynamic_cast<const QuestionReader&>(reader).Choose(
      view, state, View(q, {rows, heads, shape.key_dim}), anew,
      Tensor(out.reads.words.data(), DType::kI64, {heads, words}), View(out.places, {width}));
  return out;
}

}  // namespace kvgauge
