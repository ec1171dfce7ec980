// SPDX-License-Identifier: Apache-2.0
// One call of Model::Forward. forward.cpp has the body of a layer, forward_attention.cpp its
// attention, forward_state.cpp and forward_mixed.cpp its state, forward_cross.cpp an encoder;
// forward_passes.cpp goes through layers several times, forward_blocks.cpp through two decoders.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "runner/adapted_rows.h"
#include "src/model/section.h"
#include "src/model/weights_set.h"

namespace kvgauge {

inline int64_t RowCount(std::span<const SequenceStep> steps) {
  int64_t rows = 0;
  for (const SequenceStep& step : steps) rows += step.end - step.begin;
  return rows;
}

inline void ApplyLinear(Ops& ops, const Tensor& x, const Linear& linear, MatMulMode mode,
                        Tensor out) {
  ops.linear->MatMul(x, *linear.matrix, linear.bias, mode, out);
}

// View of `count` heads of width `dim`, `offset` elements into each row of x [m, width], heads
// `head_stride` apart; without that they follow each other.
inline Tensor HeadsIn(const Tensor& x, int64_t offset, int64_t count, int64_t dim,
                      int64_t head_stride) {
  Tensor heads = x;
  heads.data = static_cast<char*>(x.data) + offset * SizeOf(x.dtype);
  heads.rank = 3;
  heads.shape = {x.shape[0], count, dim, 0};
  heads.stride = {x.stride[0], head_stride, 1, 0};
  return heads;
}
inline Tensor HeadsIn(const Tensor& x, int64_t offset, int64_t count, int64_t dim) {
  return HeadsIn(x, offset, count, dim, dim);
}

// Rows of all heads of a [m, heads, d] view. Precondition: those of a row follow each other.
inline Tensor RowsOfHeads(const Tensor& heads) {
  KVG_CHECK(heads.stride[1] == heads.shape[2], "heads of a row follow each other");
  Tensor rows = heads;
  rows.rank = 2;
  rows.shape = {heads.shape[0], heads.shape[1] * heads.shape[2], 0, 0};
  rows.stride = {heads.stride[0], 1, 0, 0};
  return rows;
}

struct BlockRows;

// The pass itself, as an object so that its many small parts share what one call knows.
class ForwardPass {
 public:
  // Through the layers of a section. `hidden`: the rows that come to it, [rows, hidden_size] on its
  // device; empty for the first.
  ForwardPass(const ModelConfig& config, DType dtype, const ModelSection& section,
              const ModelWeights& weights, std::span<const SequenceStep> steps,
              const Tensor& hidden)
      : config_(config),
        dtype_(dtype),
        ops_(*section.ops),
        weights_(weights),
        scratch_(*section.scratch),
        steps_(steps),
        rows_(RowCount(steps)),
        first_layer_(section.first_layer),
        end_layer_(section.end_layer),
        hidden_(hidden) {}
  // `step` stands for the rows of `part`, places 0 to their number.
  ForwardPass(const ModelConfig& config, DType dtype, Ops& ops, const ModelWeights& weights,
              Scratch& scratch, const LayerStep& part, const SequenceStep& step)
      : config_(config),
        dtype_(dtype),
        ops_(ops),
        weights_(weights),
        scratch_(scratch),
        steps_(&step, 1),
        rows_(step.end),
        part_(&part),
        first_layer_(part.first_layer),
        end_layer_(part.end_layer),
        hidden_(part.hidden) {}

  // So many rows of texts that an encoder reads, whose config and weights these are.
  ForwardPass(const ModelConfig& encoder, DType dtype, Ops& ops, const ModelWeights& weights,
              Scratch& scratch, int64_t rows)
      : config_(encoder),
        dtype_(dtype),
        ops_(ops),
        weights_(weights),
        scratch_(scratch),
        rows_(rows),
        end_layer_(encoder.layer_count()) {}

  // Instead of Run: what the encoder makes of texts, one behind the other, each of so many tokens
  // and the last one of what is left: [rows, hidden_size] f32.
  Tensor EncodeChunks(std::span<const int32_t> ids, int64_t chunk_tokens);

  // The wanted logits behind the last layer; otherwise nothing.
  Tensor Run();
  // Behind Run: the rows that leave.
  const Tensor& hidden() const { return hidden_; }

 private:
  // Rows of the first of two decoders, of which steps count blocks; and rows of the second.
  ForwardPass(const ForwardPass& whole, std::span<const SequenceStep> blocks);
  ForwardPass(const ForwardPass& whole, const BlockRows& in_block);

  Tensor Take(ScratchSlot slot, DType dtype, std::initializer_list<int64_t> dims) {
    return scratch_.Take(ops_, slot, dtype, dims);
  }
  float norm_offset() const { return config_.norm == NormKind::kRmsOffsetOne ? 1.0f : 0.0f; }

  // The place in its prompt of row `i` of a step.
  int64_t PlaceOf(int64_t i) const {
    return part_ == nullptr ? i : part_->places[static_cast<size_t>(i)];
  }
  const PromptPosition& PositionOf(const SequenceStep& step, int64_t i) const {
    return step.prompt->positions[static_cast<size_t>(PlaceOf(i))];
  }
  RopePosition RopePositionOf(const SequenceStep& step, int64_t i) const {
    const auto own = static_cast<int32_t>(i);
    return counts_blocks_ ? RopePosition{own, own, own} : PositionOf(step, i).rope_position;
  }
  // Whether the pass runs that part of one layer alone.
  bool Runs(LayerPass part) const { return part_ != nullptr && part_->part == part; }
  void CheckRows();
  void FindAdaptedRows();
  void ApplyNorm(const Norm& norm, float eps, const Tensor& x, Tensor out);
  void ApplyNorm(const Norm& norm, const Tensor& x, Tensor out) {
    ApplyNorm(norm, config_.norm_eps, x, out);
  }
  // Behind the last layer.
  void LastNorm(const Tensor& x, Tensor out);
  void FindReadyRows();
  void Embed(Tensor residual);
  void AddDeepstack(int64_t layer, Tensor residual);
  void LookUp(const Table& table, std::span<const int32_t> ids, float scale, Tensor out);
  void MakeRopeTables();
  // Angles of all rows for layers that turn as `layer` does.
  void MakeRopeTables(int64_t layer, Tensor cos, Tensor sin);
  // The same of rows that stand there, in texts of so many tokens.
  void MakeRopeTables(std::span<const int32_t> places, int64_t tokens, Tensor cos, Tensor sin);
  // Which of the tables a layer turns by.
  int TablesOf(int64_t layer) const {
    return config_.layers[static_cast<size_t>(layer)].local_rope ? 1 : 0;
  }
  // In place.
  void Multiply(const Tensor& x, float factor) {
    if (factor != 1.0f) ops_.rows->Affine(x, factor, 0.0f, x);
  }
  // Attention of rows x, [rows, query_heads * value_dim]; nothing where only queries are wanted.
  Tensor Attended(int64_t layer, const Tensor& x);
  // What attention and the state of a layer add, whichever it has.
  void AttentionBranch(int64_t layer, const Tensor& x, Tensor out, MatMulMode mode);
  Tensor PlainAttention(int64_t layer, const Tensor& x);
  // What the state of a layer gives (forward_state.cpp): [rows, heads * value_dim].
  Tensor StateRows(int64_t layer, const Tensor& x);
  // Retention: turns queries and keys, in the first columns of x, by their positions.
  void TurnRetained(const Tensor& x);
  void MultiplyStateParts(const Tensor& projected);
  void ScanHeads(int64_t layer, const Tensor& projected, const Tensor& convolved, Tensor scanned);
  void ScanColumns(int64_t layer, const Tensor& convolved, Tensor scanned);
  // body(i, first row, rows, its state) of each step, which may run side by side.
  void ForStates(int64_t layer, const std::function<void(int64_t, int64_t, const Tensor&)>& body);
  // RWKV (forward_mixed.cpp).
  Tensor AverageRows(int64_t layer, const Tensor& x);
  Tensor BonusRows(int64_t layer, const Tensor& x);
  Tensor DecayRows(int64_t layer, const Tensor& x);
  Tensor MixedRows(const MixedWeights& w, const Tensor& x, const Tensor& differences,
                   const Tensor& narrow);
  // In place, each of `groups` parts of a row apart.
  void NormScannedHeads(const StateWeights& w, int64_t groups, const Tensor& scanned);
  // Layers whose keys and values are made anew (forward_made.cpp): what they give, what the layers
  // below leave in the cache, and keys and values of all tokens of a sequence.
  Tensor MadeAttention(int64_t layer, const Tensor& x);
  void KeepMadeRows(int64_t layer, const Tensor& residual);
  class MadePages;
  void MakeKeys(int64_t layer, const SequenceStep& step, MadePages& pages);
  // Lengths of the root of their width, in place.
  void EvenRows(const Tensor& x);
  Tensor Differences(int64_t layer, const Tensor& x, int64_t at);
  void ProjectMixed(const MixedWeights& w, const Tensor& x, const Tensor& differences, Tensor out);
  void MixedMlp(int64_t layer, const Tensor& x, Tensor out, MatMulMode mode);
  float Halved(int64_t layer) const;
  // A residual of several streams (forward_streams.cpp).
  Tensor Stream(const Tensor& streams, int64_t i) const;
  void TakeLengths(const Tensor& like, const Tensor& x);
  void EmbedLayers(const Tensor& residual);
  void OpenEmbeddings(int64_t layer, const Tensor& rows, Tensor out);
  Tensor OpenStreams(const Tensor& residual);
  void CloseStreams(const Tensor& streams, Tensor residual);
  Tensor RouteStreams(const StreamWeights& w, const Tensor& rows);
  void StreamLayer(int64_t layer, const Tensor& streams);
  void AddLaurel(int64_t layer, const Tensor& input, Tensor residual);
  void CloseGates(float deviations, const Tensor& gates);
  void NormScanned(const StateWeights& w, const Tensor& gates, const Tensor& scanned);
  // Without a weight.
  void EvenLengths(const Tensor& heads);
  void NormHeads(const Norm& norm, const Tensor& heads);
  void AdjustProjected(const Tensor& projected);
  void GrowQueries(int64_t layer, const Tensor& q);
  Tensor LatentAttention(int64_t layer, const Tensor& x);
  // Queries of rows x, [rows, query_heads * key_dim], not turned.
  Tensor LatentQueries(int64_t layer, const Tensor& x);
  // The same over latents: [rows, query_heads * (latent + rotated dims)].
  Tensor AbsorbedQueries(int64_t layer, const Tensor& q_all);
  Tensor ExpandedAttention(int64_t layer, const Tensor& q_all, const Tensor& down,
                           const Tensor& latent);
  void AbsorbedAttention(int64_t layer, const Tensor& q_all, const Tensor& down,
                         const Tensor& latent, Tensor attended);
  // Turns queries, and the keys, if there are any, of steps whose caches keep them turned.
  void Rotate(int64_t layer, const Tensor& q, const Tensor& keys);
  // The queries of step `index`, whose rows from `row` on are x: [rows, query_heads, key_dim], as
  // attention has them.
  Tensor QueriesOf(int64_t layer, size_t index, int64_t row, const Tensor& x);
  // Turns q, the rows of step `index` from `row` on. Tables serve all layers where slots agree.
  void RotateBySlot(size_t index, int64_t row, int64_t layer, const Tensor& q);
  // body(i) of sequences that may run side by side.
  void ForSequences(std::span<const size_t> sequences, const std::function<void(size_t)>& body);
  bool WriteTogether(int64_t layer, const Tensor& keys, const Tensor& values);
  // Writes and attends for the steps whose caches hold MLA latents, or for the others. Layers that
  // read another's cache write nothing and are shown to no hook.
  void AttendCaches(int64_t layer, bool latents, const Tensor& q, const Tensor& keys,
                    const Tensor& values, Tensor out);
  // Rows that may join entries (forward_means.cpp). MeanRows decides who joins, and makes keys and
  // values, which are not turned, those of the entries at their rows; AttendMeans puts them into
  // the caches and attends. Attention sees 0 in the place of the numbers that decide.
  void MeanRows(int64_t layer, const Tensor& q, const Tensor& keys, const Tensor& values);
  void HideNeurons(const Tensor& q, const Tensor& keys);
  void AttendMeans(int64_t layer, const Tensor& q, const Tensor& keys, const Tensor& values,
                   Tensor out);
  // Heads that are weighed by the queries of others get these, in place.
  void ShareQueries(const KvCache& cache, int64_t at, const Tensor& q);
  // Attention of rows of a part with joined entries, each over what stands before it.
  void AttendJoined(int64_t layer, const Tensor& q, const Tensor& keys, const Tensor& values,
                    Tensor out);
  // Attention of one item whose cache attends to some entries apart.
  void AttendApart(const AttentionShape& shape, KvCache& cache, int64_t layer, AttentionItem item,
                   const Tensor& q, Tensor out);
  // Rows [rows, heads, d] at their places into [tokens, heads, d].
  void PutRows(const Tensor& heads, const Tensor& into);
  void MlpBranch(int64_t layer, const Tensor& x, Tensor out, MatMulMode mode);
  // A dense MLP of rows x beside experts, which read the residual: into `out`.
  void MlpBesideExperts(int64_t layer, const Tensor& residual, const Tensor& x, Tensor out);
  // deviations: LayerConfig::gate_deviations.
  void DenseMlp(const MlpWeights& mlp, int64_t ffn_size, const Tensor& x, Tensor out,
                MatMulMode mode, float deviations = 0.0f);
  Tensor Activated(const Tensor& up);
  // routed: the rows that the router reads.
  void MixtureOfExperts(int64_t layer, const Tensor& routed, const Tensor& x, Tensor out,
                        MatMulMode mode);
  void LimitGate(const Tensor& up);
  void AddChosenBias(const Norm& biases, const Tensor& choice, const Tensor& out);
  void AddSharedExperts(int64_t layer, const Tensor& x, Tensor out);
  // What a branch reads: the residual, or its norm in `slot`.
  Tensor BranchInput(int64_t layer, const Norm& before, const Tensor& residual, ScratchSlot slot);
  // Adds what compute(out, mode) leaves in `out`.
  void AddBranch(const Norm& after, Tensor residual,
                 const std::function<void(Tensor, MatMulMode)>& compute);
  void ShowInputs(int64_t layer, const Tensor& residual, const Tensor& input);
  // Adds what rows find in those of an encoder (forward_cross.cpp), where their sequences have
  // some.
  void CrossAttend(int64_t layer, const Tensor& residual);
  void CrossAttend(int64_t layer, std::span<const AttentionItem> items, const KvFormat& format,
                   const Tensor& residual);
  // `input`: what attention of the layer below has.
  void ShowGuesses(int64_t layer, const Tensor& input);
  void ShowLast(const Tensor& residual);
  void Layer(int64_t layer, Tensor residual);
  // Layers that read later ones (forward_passes.cpp): prompts go through [first, end) several
  // times, single rows once.
  void SeveralPasses(int64_t first, int64_t end, const Tensor& residual);
  // Attention to the entries of a later layer.
  void AttendLater(int64_t layer, const Tensor& q, const Tensor& out);
  // Two decoders (forward_blocks.cpp).
  Tensor RunDecoders();
  Tensor RunBlocks(std::span<const int32_t> ids);
  void RunTokens(const Tensor& residual);
  void AttendInBlocks(int64_t layer, const Tensor& q, const Tensor& keys, const Tensor& values,
                      const Tensor& out);
  void PutInBlocks(int64_t layer, int64_t index, const Tensor& keys, const Tensor& values);
  // Logits of rows behind the last layer; norms of the rows go to `normed`, which may be they.
  Tensor LogitsOf(const Tensor& rows, const Tensor& normed);
  // The same of those rows of the residual, ascending; none: nothing.
  Tensor LogitsAt(const Tensor& residual, std::span<const int32_t> wanted);
  Tensor Logits(const Tensor& residual);
  void ShowSurprise(const Tensor& residual);

  const ModelConfig& config_;
  DType dtype_;
  Ops& ops_;
  const ModelWeights& weights_;
  Scratch& scratch_;
  std::span<const SequenceStep> steps_;
  int64_t rows_;
  const LayerStep* part_ = nullptr;  // of a pass through some layers
  int64_t first_layer_ = 0, end_layer_;
  bool counts_blocks_ = false;           // of a pass through the first of two decoders
  const BlockRows* in_block_ = nullptr;  // of one through the second
  Tensor hidden_;                        // [rows, hidden_size] f32
  struct ReadyRows {
    const RowTable* table = nullptr;
    int64_t first = 0, count = 0;  // of its rows
    int64_t row = 0;               // of the pass

    bool full() const { return first + count == table->rows.shape[0]; }
  };
  std::vector<ReadyRows> ready_;
  struct Adapted {
    RowAdapters* adapters = nullptr;
    int64_t begin = 0, end = 0;  // of the pass

    Tensor Of(const Tensor& rows) const { return rows.Slice(begin, end); }
  };
  std::vector<Adapted> adapted_;
  std::vector<std::vector<int32_t>> ahead_;  // of each step, as RowsAhead gives it; or none
  bool shows_ = true;           // to hooks: false in passes whose entries the next one writes anew
  std::vector<uint8_t> joins_;  // [rows, kv_heads] of the layer: 1 where a row joins an entry
  Tensor cos_[2], sin_[2];  // [rows, rotary_dim / 2], of all layers but the local ones, of those
  Tensor layer_rows_;       // embeddings of all layers: [rows, layers * columns]
  Tensor retained_cos_, retained_sin_;  // [rows, key_dim / 2]
  Tensor first_values_;                 // RWKV-7: [rows, heads * value_dim]
  static constexpr int32_t kNoSlot = -1;
  std::vector<int32_t> slots_[2];  // of each step: the slot that its tables begin with
};

}  // namespace kvgauge
