// SPDX-License-Identifier: Apache-2.0
// LayerView over a cache and what was captured of it. Signals are computed once, when first asked
// for, and live as long as the view; the cache may not change meanwhile.
#pragma once

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "methods/layer_view.h"
#include "methods/repeating_view.h"
#include "runner/capture.h"
#include "runner/model.h"
#include "src/compress/gate_folds.h"

namespace kvgauge {

// Working memory of views that follow each other, one at a time: a step takes what the step before
// took, without asking the device for it.
class ViewMemory {
 public:
  static constexpr int64_t kChunkBytes = 256 << 10;
  // Steps on a device keep pieces of up to so much, so that the next finds its memory there.
  static constexpr int64_t kMostKeptOnDevice = 4 << 20;
  // Pieces larger than that are given back.
  explicit ViewMemory(int64_t most_kept_bytes = kChunkBytes) : most_kept_bytes_(most_kept_bytes) {}
  // The view before is gone.
  void Begin();
  // What the views of a reader's steps leave allocated on a device, of sequences that hold so many
  // entries a head: estimates and choices of all query heads, and keys and values of one head.
  // Larger pieces than are kept stay until the sequence's next step.
  static int64_t PlannedBytes(const ModelShape& shape, int64_t entries);
  enum class Contents { kZero, kAny };
  // Until the next Begin.
  Tensor Take(Ops& ops, DType dtype, std::initializer_list<int64_t> dims,
              Contents contents = Contents::kZero);

 private:
  struct Chunk {
    Buffer memory;
    bool used = false;  // by a view before: no longer zero
  };

  // The pieces of one device.
  struct Place {
    const Ops* ops = nullptr;
    std::vector<Chunk> chunks = {};
    size_t current = 0;
    int64_t cut_bytes = 0;  // of the current chunk
  };

  const int64_t most_kept_bytes_;
  std::vector<Place> places_;
};

// What the tokens of a sequence are, on each device, as far as it has come. What came since the
// last call is sent there. All are [prompt.size()].
class TokenMarks {
 public:
  // 1 for tokens of the class or modality, 0 for others; f32.
  Tensor OfClass(Ops& ops, const TokenClasses& classes, TokenClass wanted, const Prompt& prompt);
  Tensor OfModality(Ops& ops, Modality wanted, const Prompt& prompt);
  // As LayerView::VisualPlaces, i32.
  Tensor Places(Ops& ops, VisualAxis axis, const Prompt& prompt);

 private:
  struct Marks {
    const Ops* ops = nullptr;
    Buffer memory = {};
    int64_t count = 0;
  };
  using OnDevices = std::vector<Marks>;
  // The numbers of positions [begin, end), as the function appends them.
  template <class T, class Append>
  static Tensor Grown(Ops& ops, OnDevices& all, int64_t size, Append append);

  std::array<OnDevices, kTokenClasses> classes_;
  std::array<OnDevices, kModalities> modalities_;
  std::array<OnDevices, kVisualAxes> places_;
};

// One of the newest rows, as if it had been the last: entries of later ones are hidden.
struct RowOfPass {
  Tensor queries;                    // [query_heads, key_dim], rotated
  const GateFolds* gates = nullptr;  // of the pass, where some are declared
  int64_t at = 0;                    // among its rows
  Tensor attention;                  // [query_heads, width with all rows]
  int64_t later = 0;
};

// What the views of one sequence are made from. Pointers outlive every view.
struct ViewSource {
  const Model* model = nullptr;
  const ModelShape* shape = nullptr;
  const KvCache* cache = nullptr;
  const Prompt* prompt = nullptr;              // of every token the cache has seen
  const PrefillCapture* prefill = nullptr;     // null once a step was decoded
  const StepCapture* step = nullptr;           // null before
  const RowOfPass* row = nullptr;              // in place of `step`
  std::span<const Tensor> probe_maxima = {};   // [layers], for a scorer that probes
  std::span<const Tensor> draft_queries = {};  // [layers], for a scorer that drafts
  uint64_t seed = 0;
  ViewMemory* memory = nullptr;  // null: each view has its own
  TokenMarks* marks = nullptr;   // of `prompt`; null: each view has its own
};

// Scores of a layer [kv_heads, its width] in `memory`, as wide as others are: [kv_heads, width],
// -inf beyond a head's own entries.
Tensor ScoresAtWidth(const LayerView& view, const Tensor& own, int64_t width, Buffer& memory);

class CacheView final : public LayerView, public RepeatingView {
 public:
  CacheView(const ViewSource& source, int64_t layer);

  const ModelShape& shape() const override { return of_layer_ ? *of_layer_ : *source_.shape; }
  int64_t layer() const override { return layer_; }
  Ops& ops() const override { return source_.model->devices().of(layer_); }
  int64_t tokens() const override { return source_.cache->tokens() - later(); }
  std::span<const int64_t> lengths() const override { return lengths_; }
  int64_t width() const override { return width_; }
  bool decoding() const override { return source_.prefill == nullptr; }
  uint64_t seed() const override { return source_.seed; }

  Tensor Positions(int64_t head, int64_t first) override;
  Tensor Keys(int64_t head, int64_t first) override;
  Tensor Filled(KvSide side, int64_t head, int64_t first, int64_t rows) override;
  Tensor NewestRawKey(int64_t head) override;
  Tensor RoomyPositions(int64_t head, int64_t first) override;
  Tensor RoomyKeys(int64_t head, int64_t first) override;
  Tensor RoomyValues(int64_t head, int64_t first) override;
  bool InOrder(int64_t head) const override;
  Tensor RawKeys(int64_t head, int64_t first) override;
  Tensor Values(int64_t head, int64_t first) override;
  Tensor OfClass(TokenClass wanted, int64_t head, int64_t first) override;
  Tensor OfModality(Modality wanted, int64_t head, int64_t first) override;
  Tensor VisualPlaces(VisualAxis axis, int64_t head, int64_t first) override;
  std::span<const VisualSpan> VisualSpans() override;
  int64_t QuestionRows(int64_t most) override;
  Tensor LastRow(int64_t of_layer) override;
  Tensor WindowAttention(int64_t rows) override;
  Tensor WindowQueries(int64_t rows) override;
  Tensor FirstQueries(int64_t rows) override { return prefill().FirstQueries(layer_, rows); }
  Tensor ColumnSums() override;
  Tensor ColumnSquares() override;
  Tensor Surprise() override;
  Tensor ChunkSums(const ChunkAttention& of) override;
  Tensor ProbeMaxima() override;
  Tensor DraftQueries() override;
  Tensor GateScores(const Gate& gate) override;
  Tensor Inputs() override { return prefill().Inputs(layer_); }
  Tensor QueryMean(int64_t from) override;
  Tensor QueryCovariance(int64_t from) override;
  Tensor Rotations(int64_t first, int64_t count) override;
  Tensor OutputWeights(int64_t query_head) override;
  Tensor StepAttention() override;
  Tensor StepQueries() override;
  bool has_guess() const override { return !step().Guess(layer_).empty(); }
  Tensor GuessedQueries() override { return step().Guess(layer_); }
  Tensor Scratch(DType dtype, std::initializer_list<int64_t> dims) override;

  // Scratch and what is read of entries come from `memory` from now on, and what came before is
  // forgotten: views of many layers live together, but their stages run one after the other. So
  // does attention, unless it is kept, since another stage looks at it. Null: the view's own again.
  void Lend(ViewMemory* memory, bool keeps_attention);

  // How much of that each of the newest rows pays in all: [query_heads, rows].
  Tensor NewestLogSumExp(const Tensor& q);
  // The attention of the newest rows of the sequence over all entries: [query_heads, rows, width].
  Tensor NewestAttention(const Tensor& q, const Tensor& log_sum_exp);

 private:
  const ModelConfig& config() const { return source_.model->cache_config(); }
  int64_t Count(int64_t head, int64_t first) const;
  // Angles of the tokens [first, first + count), times `factor`.
  Tensor RotationsTimes(double factor, int64_t first, int64_t count);
  // Entries from `first` on, as attention sees them.
  void ReadRoomy(KvSide side, int64_t head, int64_t first, const Tensor& rows);
  // Rows of the window that there are, at most `rows`.
  int64_t RowsOfWindow(int64_t rows) const;
  int64_t later() const { return source_.row != nullptr ? source_.row->later : 0; }
  const PrefillCapture& prefill() const;
  const Prompt& prompt() const;
  TokenMarks& marks() { return source_.marks != nullptr ? *source_.marks : own_marks_; }
  // For each token [tokens, 1], the numbers of the head's entries.
  Tensor Marked(const Tensor& of_token, int64_t head, int64_t first);
  // Memory as long as the view lives.
  ViewMemory& lasting() { return source_.memory != nullptr ? *source_.memory : own_memory_; }
  ViewMemory& passing() { return lent_ != nullptr ? *lent_ : lasting(); }
  ViewMemory& of_attention() { return keeps_attention_ ? lasting() : passing(); }
  // Numbers of entries, each of which is then written.
  Tensor EntryRows(DType dtype, std::initializer_list<int64_t> dims) {
    return passing().Take(ops(), dtype, dims, ViewMemory::Contents::kAny);
  }
  const StepCapture& step() const;

  ViewSource source_;
  std::optional<ModelShape> of_layer_;  // where layers have heads of several sizes
  int64_t layer_;
  std::vector<int64_t> lengths_;
  int64_t width_ = 0;
  ViewMemory own_memory_;
  ViewMemory* lent_ = nullptr;
  bool keeps_attention_ = true;
  TokenMarks own_marks_;
  using Parts = std::map<std::pair<int64_t, int64_t>, Tensor>;  // by head and first entry
  Parts positions_, keys_, raw_keys_, values_;
  Tensor roomy_, roomy_values_;                 // of one head after the other
  std::map<int64_t, Tensor> window_attention_;  // by rows
  Tensor step_attention_;
};

// A view's stages run in `memory` as long as this lives.
class LentMemory {
 public:
  LentMemory(CacheView& view, ViewMemory& memory, bool keeps_attention) : view_(view) {
    view_.Lend(&memory, keeps_attention);
  }
  ~LentMemory() { view_.Lend(nullptr, true); }
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

 private:
  CacheView& view_;
};

}  // namespace kvgauge
