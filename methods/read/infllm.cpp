// SPDX-License-Identifier: Apache-2.0
// Reads blocks of entries for all heads together, by keys before rotation that stand for them.
//
// Paper: InfLLM, arXiv:2402.04617; after thunlp/InfLLM. Needs the attention that the prompt's rows
// give to each entry, keys before rotation, and the query of each decode step. The prompt behind
// its first `sinks` entries is cut into blocks, as far as `local` entries are left at its end. For
// each query head the `representatives` entries of a block with most attention stand for it: the
// mean of their keys. A block's score is the sum over query heads of the products with the queries,
// turned as if they stood at position local - 1, and `picks` blocks are read. What is far is to
// count as being at that distance: store.plain, position clipped, position_limit = local - 1.
#include "core/strings.h"
#include "methods/entry_blocks.h"
#include "methods/far_reader.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class InfLlm final : public FarReader {
 public:
  explicit InfLlm(const Params& params)
      : block_(params.Int("block")),
        picks_(params.Int("picks")),
        sinks_(params.Int("sinks")),
        local_(params.Int("local")),
        representatives_(params.Int("representatives")) {}

  Needs needs() const override { return {.column_sums = true, .raw_keys = true}; }

  Status Check(const ModelShape& shape) const override {
    KVG_TRY(CheckEntryBlocks(shape));
    if (representatives_ <= block_) return {};
    return BadInput(StrCat("representatives ", representatives_, ": a block has ", block_,
                           " entries; lower representatives or raise block"));
  }
  int64_t far_distance() const override { return local_ - 1; }
  // All heads of a layer read the same entries, by their places in the prompt.
  bool shares_choices() const override { return true; }

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    const ModelShape own = shape.OfLayer(layer);
    const int64_t blocks = std::max<int64_t>(0, entries - sinks_ - local_) / block_;
    if (blocks <= picks_) return 0;
    return EntryBlocks::KeyBytes(own, own.query_heads, blocks) +
           EntryBlocks::PlaceBytes(own, blocks * block_);
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<EntryBlocks>();
    if (view.decoding()) return index;
    index->first = sinks_;
    for (int64_t end = block_; end <= view.width() - sinks_ - local_; end += block_) {
      index->ends.push_back(end);
    }
    if (index->count() <= picks_) index->ends.clear();
    index->Stand(view, view.ColumnSums(), representatives_, local_ - 1);
    return index;
  }

  void Append(LayerView&, std::span<const int64_t>, State&) const override {}

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    auto& blocks = static_cast<EntryBlocks&>(state);
    KVG_TRY(blocks.Fields(view, view.shape().query_heads, local_ - 1, fields));
    if (blocks.count() == 0 || blocks.count() > picks_) return {};
    return BadInput("state of the method: no more blocks than are read");
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    const auto& index = static_cast<const EntryBlocks&>(state);
    if (index.count() == 0) return false;
    index.Mark(view, Best(view, index.Scores(view, q), picks_), words);
    return true;
  }

 private:
  int64_t block_, picks_, sinks_, local_, representatives_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "infllm",
    .paper = "arXiv:2402.04617",
    .summary = "reads blocks of entries for all heads together, by keys that stand for them",
    .departures =
        {"the prompt is read with full attention, where the reference looks blocks up for each 512 "
         "tokens of it",
         "the attention that chooses representatives is that of all later rows, where the "
         "reference takes rows of the local window",
         "what is decoded is read, where the reference makes blocks of it, too",
         "no window of positions hides what is far: layers with a sliding window are left as "
         "they are"},
    .bytes = "4 * query_heads * key_dim / block + 4 an entry of the prompt and layer, beside the "
             "cache",
    .params = {IntParam("block", 128, 1, 4096, "entries of a block"),
               IntParam("picks", 16, 1, 1 << 20, "blocks that are read"),
               IntParam("sinks", 128, 0, 1 << 20, "first entries, always read"),
               IntParam("local", 4096, 1, 1 << 24, "last entries of the prompt, always read"),
               IntParam("representatives", 4, 1, 4096, "entries of a block that stand for it")},
    .make = Make<InfLlm>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
