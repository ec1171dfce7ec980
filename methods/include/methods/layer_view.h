// SPDX-License-Identifier: Apache-2.0
// What a stage sees of one layer of one sequence: read-only signals, computed when first asked for.
//
// Entries are in cache order, which is ascending position; where the store has put them into
// classes (Store::Classify) they come class by class, each ascending, then those without. KV heads
// may hold different numbers of entries; a tensor over all heads is [.., width] with width the
// longest, zero beyond a head's own. Tensors are f32 on the device of `ops`, owned by the view,
// valid as long as it is. Asking for a signal that no stage of the method declared in its Needs is
// a broken precondition.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops.h"
#include "methods/model_shape.h"
#include "methods/needs.h"
#include "methods/visual_span.h"

namespace kvgauge {

// Kinds of tokens that methods treat differently, by their text.
enum class TokenClass : uint8_t {
  kSpecial,      // a mark of the model's format, such as the beginning of a text or of a turn
  kPunctuation,  // punctuation alone, whatever spaces are around it
  kSeparator,    // what parts sentences and their pieces: . , ? ! ; : and white space alone
};
inline constexpr int kTokenClasses = 3;

// Where an entry stands in what it shows.
enum class VisualAxis : uint8_t {
  kItem,    // the picture or the video, counted from 0 among those of its modality in the prompt
  kFrame,   // the time of a video, counted from its first; 0 in a picture
  kRow,     // of the piece's grid
  kColumn,  // likewise
};
inline constexpr int kVisualAxes = 4;

class LayerView {
 public:
  virtual ~LayerView() = default;

  virtual const ModelShape& shape() const = 0;
  virtual int64_t layer() const = 0;
  virtual Ops& ops() const = 0;
  // Tokens the sequence has seen, evicted ones included: the position of the next token.
  virtual int64_t tokens() const = 0;
  virtual std::span<const int64_t> lengths() const = 0;  // [kv_heads] entries held
  virtual int64_t width() const = 0;                     // the largest of them
  // Whether the signals are those of a decoded row, not of the prefill.
  virtual bool decoding() const = 0;
  // For random choices: equal for equal (run seed, sample), whatever else runs.
  virtual uint64_t seed() const = 0;

  // Entries of one head from `first` on: n = length - first rows.
  virtual Tensor Positions(int64_t head, int64_t first = 0) = 0;  // [n] i32, original positions
  // [n, key_dim], rotated as attention sees them
  virtual Tensor Keys(int64_t head, int64_t first = 0) = 0;
  virtual Tensor RawKeys(int64_t head, int64_t first = 0) = 0;  // [n, key_dim], before rotation
  virtual Tensor Values(int64_t head, int64_t first = 0) = 0;   // [n, value_dim]

  // 1 for entries of one head whose tokens are of that class, 0 for others. [n] f32
  virtual Tensor OfClass(TokenClass wanted, int64_t head, int64_t first = 0) = 0;

  // The same by modality.
  virtual Tensor OfModality(Modality wanted, int64_t head, int64_t first = 0) = 0;
  // Where entries of one head stand in what they show, -1 for text. An entry that ends a line has
  // no column, and one that ends a picture, or stands for all of it, has no row either: -1. [n] i32
  virtual Tensor VisualPlaces(VisualAxis axis, int64_t head, int64_t first = 0) = 0;
  // Where the tokens that were seen hold pictures and videos, in original positions, ascending.
  virtual std::span<const VisualSpan> VisualSpans() = 0;

  // The last min(rows, prompt) query rows: attention over all entries [query_heads, rows, width]
  // and the rotated queries [rows, query_heads, key_dim]. rows <= the declared window. After
  // prefill, when all heads hold the whole prompt, or after a chunk of it or a turn, whose rows
  // they are: fewer than asked for where it is shorter.
  // While decoding(), if step_window was declared:
  // the last min(rows, shortest head) rows, whose own entries are the last of every head; each
  // attends over what is held now.
  virtual Tensor WindowAttention(int64_t rows) = 0;
  virtual Tensor WindowQueries(int64_t rows) = 0;
  // After prefill only, from here to QueryCovariance, but for gates.
  // Rows of the prompt behind its last picture or video, 1 to `most`; `most` without pictures. A
  // window of so many may be asked for. most <= the declared question rows.
  virtual int64_t QuestionRows(int64_t most) = 0;
  // The attention of the last prompt row in `of_layer`, which was declared: [query_heads, prompt].
  virtual Tensor LastRow(int64_t of_layer) = 0;
  // All rows so far count, those of chunks that were read and compressed before included.
  virtual Tensor ColumnSums() = 0;     // [query_heads, width]
  virtual Tensor ColumnSquares() = 0;  // [query_heads, width]
  // For each row of the prefill minus the natural log of the chance that the model gave the token
  // that followed, whole vocabulary; 0 for the last row. [rows]
  virtual Tensor Surprise() = 0;
  // What was declared in chunk_sums. [query_heads, width]; 0 for entries that are in no chunk and,
  // after a turn, for those of the turns before.
  virtual Tensor ChunkSums(const ChunkAttention& of) = 0;
  // The most attention that a row of the scorer's own probes pays to each entry (methods/probe.h).
  // [query_heads, width]
  virtual Tensor ProbeMaxima() = 0;
  // The rotated queries of the tokens that were drafted for the scorer: [rows, query_heads,
  // key_dim].
  virtual Tensor DraftQueries() = 0;
  // What a declared gate gives the entries: [kv_heads, width] after prefill, 0 for those of turns
  // before. While decoding() that of the newest entry alone: [kv_heads, 1]; there a gate of
  // Needs::step_gates gives all layers the same.
  virtual Tensor GateScores(const Gate& gate) = 0;
  // The inputs of the layer's attention, of all rows that were read: [rows, hidden_size] f32.
  // Declared.
  virtual Tensor Inputs() {
    KVG_CHECK(false, "no stage declared inputs");
    return {};
  }
  // The rotated queries of the first rows that were read: [rows, query_heads, key_dim]. rows <= the
  // declared number, and as many as there are.
  virtual Tensor FirstQueries(int64_t rows) = 0;
  // Moments of queries before rotation, without those of the first `from` tokens; `from` was
  // declared.
  virtual Tensor QueryMean(int64_t from) = 0;        // [query_heads, key_dim]
  virtual Tensor QueryCovariance(int64_t from) = 0;  // [query_heads, key_dim, key_dim]
  // Rotation of the tokens at positions [first, first + count): cosines, then sines, [2, count,
  // rotary_dim / 2], as RowOps::Rope takes them. Empty: the model has no rotation.
  virtual Tensor Rotations(int64_t first, int64_t count) = 0;

  // The output projection of one query head: row i is the contribution of number i of the head's
  // result to the layer's output. [value_dim, hidden_size]; computed anew at each call.
  virtual Tensor OutputWeights(int64_t query_head) = 0;

  // While decoding() only: the newest token's attention, its own entry last.
  virtual Tensor StepAttention() = 0;  // [query_heads, width]
  virtual Tensor StepQueries() = 0;    // [query_heads, key_dim], rotated
  // In Reader::Select only, of the newest token: what this layer's query projection makes of the
  // input of the layer below, rotated. Whether there is one: the model's first layer has none.
  virtual bool has_guess() const = 0;
  virtual Tensor GuessedQueries() = 0;  // [query_heads, key_dim]

  // Zeroed working memory, valid as long as the view.
  virtual Tensor Scratch(DType dtype, std::initializer_list<int64_t> dims) = 0;
};

}  // namespace kvgauge
