// SPDX-License-Identifier: Apache-2.0
// Signals that a pass over a sequence records for methods; only those that some method needs.
//
// A capture belongs to one sequence and one thread; it copies what it keeps. Its tensors live on
// the device of the model and are valid as long as it is.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/result.h"
#include "kernels/ops.h"
#include "methods/model_shape.h"
#include "methods/needs.h"
#include "runner/model.h"

namespace kvgauge {

class ChunkSums;
class GateFolds;
class PromptReach;
class QueryMoments;
class StateFields;

// How many rows stand behind the prompt's last picture or video, 1 to `most`; `most` without any.
int64_t RowsOfQuestion(const Prompt& prompt, int64_t most);
// What to capture of that prompt: the window reaches over the rows of its question and, where there
// are pictures, the last row of the first `recorded` layers is there for the record.
Needs NeedsOf(const Needs& declared, const Prompt& prompt, int64_t recorded = 0);

// How the rows of one layer attend over a cache.
AttentionShape LayerAttention(const ModelConfig& config, const KvCache& cache, int64_t layer);

// Captures of one prefill: the queries of its last rows, and the attention that its rows gave to
// each entry. Column sums are folded chunk by chunk as the rows come, so equal chunks give equal
// bits.
class PrefillCapture final : public LayerHook {
 public:
  // For a prefill of `rows` rows into `cache`, which already holds the rows before them. The cache
  // must outlive the prefill, not the capture; so must the prompt that the rows come from, which
  // may be null where it has no pictures.
  PrefillCapture(const ModelConfig& config, const KvCache& cache, const Needs& needs, int64_t rows,
                 const Prompt* prompt = nullptr);
  ~PrefillCapture() override;

  bool wants_log_sum_exp() const override;
  bool wants_inputs() const override { return needs_.inputs || !needs_.gates.empty(); }
  void LayerInput(int64_t layer, const Tensor& x) override;
  bool wants_surprise() const override { return needs_.surprise && !thinned_; }
  void TakeSurprise(const Tensor& surprise) override;
  void BeforeAttend(int64_t, const Tensor&) override {}
  Tensor ColumnSumsOfRows(int64_t layer) override;
  void AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                   const Tensor& out) override;

  // From this layer on the prefill has so many rows, all of which are still to come: for prefills
  // that go layer by layer, and whose rows leave. There may be no more than before.
  void Begin(int64_t first_layer, int64_t rows);

  // For prefills that compute a layer's attention outside of the model's passes, when the cache
  // holds all rows there. A chunk of rows that see everything, the last of what `heads` hold; their
  // column sums are where ColumnSumsOfRows said.
  void TakeRows(int64_t layer, std::span<const KvHead> heads, const Tensor& q,
                const Tensor& log_sum_exp);
  // Behind them, all rows of the layer. They saw what `reach` says, or everything where that is
  // null or whole. queries: [rows, query_heads, key_dim]; log_sum_exp: [query_heads, rows].
  void TakeLayer(int64_t layer, std::shared_ptr<const PromptReach> reach, const Tensor& queries,
                 const Tensor& log_sum_exp);
  // What rows of a layer saw; null: everything.
  const PromptReach* reach(int64_t layer) const {
    return reaches_[static_cast<size_t>(layer)].get();
  }

  // The first error while rows were captured; the captures are then invalid.
  const Status& status() const { return status_; }
  // Last query rows held, min(declared window, prefilled rows).
  int64_t window() const { return window_; }
  int64_t window(int64_t layer) const;  // those that reached a layer
  // The last `rows` of them: [rows, query_heads, key_dim], rotated. Precondition: rows <= window of
  // the layer.
  Tensor WindowQueries(int64_t layer, int64_t rows) const;
  Tensor WindowLogSumExp(int64_t layer) const;  // [query_heads, window()]
  // The first `rows` rows' queries, as WindowQueries. Precondition: declared; rows that were read.
  Tensor FirstQueries(int64_t layer, int64_t rows) const;
  // [query_heads, width of the layer]. Precondition: declared.
  Tensor ColumnSums(int64_t layer) const;
  Tensor ColumnSquares(int64_t layer) const;
  // [query_heads, width of the layer]. Precondition: declared.
  Tensor LastRow(int64_t layer) const;
  bool has_last_row(int64_t layer) const { return last_rows_.contains(layer); }
  // [rows of the prefill]. Precondition: declared.
  Tensor Surprise() const;
  // Precondition: declared.
  const ChunkSums& SumsOfChunks(const ChunkAttention& of) const;
  // What a gate gives the prefilled rows, [kv_heads, rows]. Precondition: declared.
  Tensor GateScores(const Gate& gate, int64_t layer) const;
  // The same of the entries of earlier chunks, [kv_heads, entries]; empty where none were given.
  void GiveGateScores(const Gate& gate, int64_t layer, const Tensor& before);
  Tensor GateScoresBefore(const Gate& gate, int64_t layer) const;
  // [rows of the prefill, hidden_size]. Precondition: declared.
  Tensor Inputs(int64_t layer) const;
  // Moments of the rows from position `from` on, at least one of which was prefilled. Precondition:
  // declared.
  const QueryMoments& MomentsFrom(int64_t from) const;

  int64_t bytes() const;
  // Bytes of a capture of `rows` rows into an empty cache, scratch included.
  static int64_t PlannedBytes(const ModelConfig& config, const Needs& needs, int64_t rows);

 private:
  void Capture(int64_t layer, const Tensor& q, const Tensor& log_sum_exp);
  int64_t RowsToCome(int64_t layer) const;
  void KeepWindow(int64_t layer, const Tensor& q, const Tensor& log_sum_exp);
  void KeepFirst(int64_t layer, const Tensor& q);
  // [query_heads, the layer's width now], in `part_`.
  Tensor Part(int64_t layer);
  void Add(const Tensor& part, int64_t layer, const Buffer& sums);
  void KeepLastRow(int64_t layer, const Tensor& q, const Tensor& log_sum_exp);
  void SumSeen(int64_t layer, const PromptReach& seen, const Tensor& q, const Tensor& log_sum_exp);
  void FoldSquares(int64_t layer, const Tensor& q, const Tensor& log_sum_exp);
  const ModelConfig& config_;
  const KvCache& cache_;
  const Prompt* prompt_;
  Needs needs_;
  int64_t rows_ = 0;        // of the prefill
  int64_t last_token_ = 0;  // the prefill ends before this position
  int64_t window_ = 0;
  bool thinned_ = false;                 // rows have left: what follows a row is another token
  std::vector<Buffer> queries_;          // [layers] of [window, query_heads * key_dim]
  std::vector<Buffer> log_sums_;         // [layers] of [query_heads, window]
  std::vector<Buffer> first_queries_;    // [layers] of [first_rows, query_heads * key_dim]
  std::vector<int64_t> widths_;          // [layers] when the prefill has ended
  std::vector<Buffer> inputs_;           // [layers] of [rows, hidden_size]
  std::vector<Buffer> sums_, squares_;   // [layers] of [query_heads, width]
  std::map<int64_t, Buffer> last_rows_;  // by layer: [query_heads, width]
  std::vector<int64_t> layer_rows_;      // [layers] of the prefill
  std::vector<int64_t> folded_;          // [layers] width with the last chunk that is in the sums
  std::vector<Buffer> parts_;            // of each device: one chunk's contribution
  Buffer surprise_;                      // [rows]
  std::vector<std::unique_ptr<ChunkSums>> chunks_;           // as declared
  std::vector<std::unique_ptr<QueryMoments>> moments_;       // as declared
  std::unique_ptr<GateFolds> gates_;                         // those that are declared
  std::vector<std::shared_ptr<const PromptReach>> reaches_;  // [layers]
  Status status_;
};

// The newest row's queries and attention, replaced at every decode step, and the queries of the
// last rows, where a method looks back from them.
class StepCapture {
 public:
  StepCapture(const ModelConfig& config, const Needs& needs, const LayerDevices& devices);
  ~StepCapture();

  bool wanted() const {
    return needs_.step_attention || needs_.step_queries || slides() || wants_inputs() ||
           wants_residuals();
  }
  // Whether queries of more than the newest row are kept.
  bool slides() const { return needs_.step_window > 0; }
  bool wants_log_sum_exp() const { return needs_.step_attention; }
  bool wants_inputs() const { return !needs_.gates.empty(); }
  // x: [1, hidden_size].
  void KeepInput(int64_t layer, const Tensor& x);
  bool wants_residuals() const { return !needs_.step_gates.empty(); }
  void KeepResidual(int64_t layer, const Tensor& x);
  bool wants_guesses() const { return needs_.guessed_queries; }
  // q: [1, query_heads, key_dim].
  void KeepGuess(int64_t layer, const Tensor& q);
  // [query_heads, key_dim], or empty where the layer had none.
  Tensor Guess(int64_t layer) const;
  static int64_t PlannedBytesOfGuesses(const ModelConfig& config, const Needs& needs);
  // What a gate gives the newest row: [kv_heads, 1].
  Tensor GateScores(const Gate& gate, int64_t layer) const;
  // q: [1, query_heads, key_dim]; log_sum_exp: [query_heads, 1] or empty.
  void Keep(int64_t layer, const Tensor& q, const Tensor& log_sum_exp);
  // Where it slides. The row that Keep kept was that of position `at`: one of the last from now on.
  void KeepLast(int64_t at);
  // Rows of several positions, the last one before `end`, of one layer. q: [rows, query_heads,
  // key_dim]. Rows may come again.
  void KeepRows(int64_t layer, const Tensor& q, int64_t end);
  // The last rows of a prompt, which ends before position `end`.
  void KeepPrompt(const PrefillCapture& prompt, int64_t end);
  // The last rows that another sequence has kept.
  void ContinueFrom(const StepCapture& other);
  // The last rows of a layer, to be saved or as they were saved.
  Status LastFields(StateFields& fields, int64_t layer) const;
  // Those that end before position `end`, oldest first, into out [rows, query_heads, key_dim].
  // Precondition: they were kept, rows <= step_window.
  void LastQueries(int64_t layer, int64_t end, Tensor out) const;
  // Bytes of the last rows.
  int64_t bytes_of_last() const { return last_.size_bytes(); }
  static int64_t PlannedBytesOfLast(const ModelConfig& config, const Needs& needs);

  // The tensor for the step's attention, [query_heads, width], if it costs no second pass over the
  // keys; else empty.
  Tensor AttentionOf(int64_t layer, const KvCache& cache);

  Tensor Queries(int64_t layer) const;    // [query_heads, key_dim]
  Tensor LogSumExp(int64_t layer) const;  // [query_heads, 1]
  // The step's attention, or empty.
  Tensor Attention(int64_t layer) const {
    return attention_.empty() ? Tensor() : attention_[static_cast<size_t>(layer)].left;
  }

 private:
  struct Left {
    Buffer memory;
    Tensor left;
  };
  int64_t row_size() const { return config_.query_heads * config_.key_dim; }
  // Column block of one layer: [step_window, query_heads * key_dim].
  Tensor LastOf(int64_t layer) const;
  // [step_window, layers of the piece * query_heads * key_dim]
  Tensor RowsOf(const LayerNumbers::Piece& last) const;
  const ModelConfig& config_;
  const LayerDevices devices_;
  Needs needs_;
  LayerNumbers queries_;         // [query_heads, key_dim] of each layer
  std::vector<Buffer> guesses_;  // [layers] of [query_heads, key_dim]
  LayerNumbers last_;            // of a device: [step_window, its layers' queries], by position
  LayerNumbers log_sums_;        // [query_heads] of each layer
  std::vector<Left> attention_;  // [layers]
  std::unique_ptr<GateFolds> gates_, step_gates_;  // those that are declared
};

}  // namespace kvgauge
