// SPDX-License-Identifier: Apache-2.0
// Reads the pages whose keys could match the query best, by bounds of smaller pages within them,
// and keeps to a choice for a few steps.
//
// Paper: LServe, arXiv:2502.14866, its page selector. Needs the query of each decode step. A page
// has bounds for every `logical` entries of it: the smallest and the largest number of each channel
// over their rotated keys. Its score is the best product that a key within one of these bounds
// could have with the query. A query head chooses its pages when the number of tokens before the
// newest is a multiple of `every`, and reads them until the next time; the newest page is always
// among them.
#include <algorithm>

#include "kernels/buffer_bytes.h"
#include "methods/attention.h"
#include "methods/copied_reader.h"
#include "methods/page_bounds.h"
#include "methods/registry.h"
#include "methods/repeating_reader.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class LServePages final : public Reader, public CopiedReader, public RepeatingReader {
 public:
  explicit LServePages(const Params& params)
      : logical_(params.Int("logical")),
        parts_(params.Int("parts")),
        page_(logical_ * parts_),
        tokens_(params.Int("tokens")),
        every_(params.Int("every")) {}

  struct Choice {
    int64_t tokens = 0;  // as many as the view had then
    int64_t pages = 0;   // there were at that time; 0 before the first
    int64_t count = 0;   // of each query head, 0: everything is read
    Buffer chosen;       // [group, count] i32
  };
  struct Index final : State {
    std::shared_ptr<PageIndex> pages;  // logical ones; forks share them
    std::vector<Choice> choices;       // of each head

    int64_t bytes() const override {
      int64_t sum = pages->bytes();
      for (const Choice& choice : choices) sum += choice.chosen.size_bytes();
      return sum;
    }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    const ModelShape own = shape.OfLayer(layer);
    const int64_t pages = (entries + logical_ - 1) / logical_;
    const int64_t chosen = own.group() * PagesRead(entries) * SizeOf(DType::kI32);
    return own.kv_heads * (pages * PageBounds::BytesOfPage(own) + HostBufferBytes(chosen));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<Index>();
    index->pages = std::make_shared<PageIndex>();
    index->pages->Begin(view, logical_);
    index->choices.resize(index->pages->heads.size());
    return index;
  }

  std::unique_ptr<State> Copy(const State& state, Ops& ops) const override {
    const auto& from = static_cast<const Index&>(state);
    auto index = std::make_unique<Index>();
    index->pages = from.pages;
    for (const Choice& choice : from.choices) {
      index->choices.push_back(
          {choice.tokens, choice.pages, choice.count, CopyOf(choice.chosen, ops)});
    }
    return index;
  }

  void Append(LayerView& view, std::span<const int64_t> first, State& state) const override {
    static_cast<Index&>(state).pages->Append(view, first);
  }

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    auto& index = static_cast<Index&>(state);
    KVG_TRY(index.pages->Fields(view, fields));
    for (size_t h = 0; h < index.choices.size(); ++h) {
      Choice& choice = index.choices[h];
      KVG_TRY(fields.Number("tokens of a choice", 0, view.tokens(), &choice.tokens));
      KVG_TRY(fields.Number("pages of a choice", 0, Pages(view.lengths()[h]), &choice.pages));
      KVG_TRY(fields.Number("chosen pages", 0, choice.pages, &choice.count));
      KVG_TRY(fields.Indices("chosen pages", view.ops(), view.shape().group() * choice.count,
                             choice.pages, &choice.chosen));
    }
    return {};
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    auto& index = static_cast<Index&>(state);
    const bool due = (view.tokens() - 1) % every_ == 0;
    const int64_t group = view.shape().group();
    bool partial = false;
    Tensor limits;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      Choice& choice = index.choices[static_cast<size_t>(h)];
      // A page that has begun since was not there to be chosen. A step that is begun again chooses
      // again.
      if (due || choice.pages != Pages(view.lengths()[h]) || choice.tokens == view.tokens()) {
        if (limits.empty()) limits = Limits(view, *index.pages);
        Choose(view, h, index.pages->heads[static_cast<size_t>(h)],
               q.Slice(h * group, (h + 1) * group), limits, choice);
      }
      partial |= choice.count > 0;
    }
    if (!partial) return false;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Choice& choice = index.choices[static_cast<size_t>(h)];
      const int64_t length = view.lengths()[h];
      if (length == 0) continue;
      const Tensor chosen = choice.count > 0 ? choice.chosen.As(DType::kI32, {group, choice.count})
                                             : Everything(view, choice.pages);
      view.ops().select->MarkRuns(
          chosen, page_, length,
          Columns(words.Slice(h * group, (h + 1) * group), 0, (length + 63) / 64));
    }
    return true;
  }

 private:
  static constexpr int64_t kLeastPages = 3;

  int64_t Pages(int64_t length) const { return (length + page_ - 1) / page_; }
  // How many pages a head of so many entries reads; 0: it reads everything.
  int64_t PagesRead(int64_t length) const {
    const int64_t newest = Pages(length) - 1, most = std::max(kLeastPages, tokens_ / page_);
    return length - 1 <= tokens_ || most > newest ? 0 : most;
  }

  // All pages, for each of the group: [group, pages] i32, one row.
  static Tensor Everything(LayerView& view, int64_t pages) {
    Tensor all = Numbers(view, pages).Reshape({1, pages});
    all.shape[0] = view.shape().group();
    all.stride[0] = 0;
    return all;
  }

  // Working memory for the bounds of any head.
  static Tensor Limits(LayerView& view, const PageIndex& index) {
    int64_t columns = 0;
    for (const PageBounds& bounds : index.heads) columns = std::max(columns, bounds.columns(view));
    return view.Scratch(DType::kF32, {columns, view.shape().key_dim});
  }

  // q: [group, key_dim]
  void Choose(LayerView& view, int64_t head, const PageBounds& bounds, const Tensor& q,
              const Tensor& limits, Choice& choice) const {
    Ops& ops = view.ops();
    const int64_t group = q.shape[0], length = view.lengths()[head];
    const int64_t newest = Pages(length) - 1;
    choice.tokens = view.tokens();
    choice.pages = newest + 1;
    choice.count = PagesRead(length);
    if (choice.count == 0) return;

    const Tensor products = bounds.RoomyProducts(view, q, limits);
    HideFromNewest(view, head, 0, logical_, bounds.pages(), products);
    const Tensor full = view.Scratch(DType::kF32, {group, newest * parts_});
    ops.rows->Convert(Columns(products, 0, newest * parts_), full);
    const Tensor best = view.Scratch(DType::kF32, {group * newest});
    ops.rows->ReduceRows(full.Reshape({group * newest, parts_}), Reduction::kMax, best);
    const int64_t others = choice.count - 1;
    const std::vector<int32_t> counts(static_cast<size_t>(group), static_cast<int32_t>(others));
    const Tensor chosen = view.Scratch(DType::kI32, {group, others});
    ops.select->TopK(best.Reshape({group, newest}), Upload(view, counts), chosen);

    const int64_t bytes = group * choice.count * SizeOf(DType::kI32);
    if (choice.chosen.size_bytes() != bytes) choice.chosen = ops.memory->Allocate(bytes);
    const Tensor out = choice.chosen.As(DType::kI32, {group, choice.count});
    const Tensor last = Numbers(view, 1, static_cast<int32_t>(newest));
    for (int64_t g = 0; g < group; ++g) {
      ops.memory->Copy(chosen[g], out[g].Slice(0, others));
      ops.memory->Copy(last, out[g].Slice(others, choice.count));
    }
  }

  int64_t logical_, parts_, page_, tokens_, every_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "lserve",
    .paper = "arXiv:2502.14866",
    .summary = "reads the pages of which a part could match the query best, chosen every few steps",
    .departures = {"a page that begins with the newest token is read from then on; the reference "
                   "takes the page before it in its place, and reads what the new one holds beside "
                   "the newest token from the next choice on",
                   "the index has the cache's type"},
    .bytes =
        "2 * key_dim / logical of the cache's type an entry and head, and 4 for each page that "
        "a query head reads, beside the cache",
    .params = {IntParam("logical", 16, 2, 1024, "entries that have bounds of their own"),
               IntParam("parts", 4, 1, 64, "of so many entries each, which a page has"),
               IntParam("tokens", 4096, 1, 1 << 24, "entries that are read, but 3 pages at least"),
               IntParam("every", 4, 1, 1024, "tokens from one choice of pages to the next")},
    .make = Make<LServePages>(),
});

}  // namespace
}  // namespace kvgauge
