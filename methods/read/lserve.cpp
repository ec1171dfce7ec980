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

#include "methods/attention.h"
#include "methods/page_bounds.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class LServePages final : public Reader {
 public:
  explicit LServePages(const Params& params)
      : logical_(params.Int("logical")),
        parts_(params.Int("parts")),
        page_(logical_ * parts_),
        tokens_(params.Int("tokens")),
        every_(params.Int("every")) {}

  struct Head {
    PageBounds bounds;   // of logical pages
    int64_t pages = 0;   // there were at the last choice; 0 before the first
    int64_t chosen = 0;  // of each query head, 0: everything is read
    Buffer choice;       // [group, chosen] i32
  };
  struct Index final : State {
    std::vector<Head> heads;
    int64_t page_bytes = 0;  // of a logical page

    int64_t bytes() const override {
      int64_t sum = 0;
      for (const Head& head : heads) {
        sum += head.bounds.pages() * page_bytes + head.choice.size_bytes();
      }
      return sum;
    }
  };

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<Index>();
    const auto heads = static_cast<size_t>(view.shape().kv_heads);
    index->page_bytes = PageBounds::BytesOfPage(view.shape());
    index->heads.resize(heads);
    Append(view, std::vector<int64_t>(heads, 0), *index);
    return index;
  }

  void Append(LayerView& view, std::span<const int64_t> first, State& state) const override {
    auto& index = static_cast<Index&>(state);
    for (size_t h = 0; h < index.heads.size(); ++h) {
      if (first[h] == view.lengths()[h]) continue;
      index.heads[h].bounds.Extend(view, static_cast<int64_t>(h), logical_, first[h]);
    }
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    auto& index = static_cast<Index&>(state);
    const bool due = (view.tokens() - 1) % every_ == 0;
    const int64_t group = view.shape().group();
    bool partial = false;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      Head& head = index.heads[static_cast<size_t>(h)];
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      // A page that has begun since was not there to be chosen.
      if (due || head.pages != Pages(length))
        Choose(view, h, q.Slice(h * group, (h + 1) * group), head);
      partial |= head.chosen > 0;
    }
    if (!partial) return false;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Head& head = index.heads[static_cast<size_t>(h)];
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      if (length == 0) continue;
      const Tensor of_head =
          Columns(words.Slice(h * group, (h + 1) * group), 0, (length + 63) / 64);
      Tensor choice = head.chosen > 0 ? head.choice.As(DType::kI32, {group, head.chosen})
                                      : Everything(view, head.pages);
      view.ops().select->MarkRuns(choice, page_, length, of_head);
    }
    return true;
  }

 private:
  static constexpr int64_t kLeastPages = 3;

  int64_t Pages(int64_t length) const { return (length + page_ - 1) / page_; }

  // All pages, for each of the group: [group, pages] i32, one row.
  static Tensor Everything(LayerView& view, int64_t pages) {
    Tensor all = Numbers(view, pages).Reshape({1, pages});
    all.shape[0] = view.shape().group();
    all.stride[0] = 0;
    return all;
  }

  // q: [group, key_dim]
  void Choose(LayerView& view, int64_t h, const Tensor& q, Head& head) const {
    Ops& ops = view.ops();
    const int64_t group = q.shape[0], length = view.lengths()[static_cast<size_t>(h)];
    const int64_t before = Pages(length) - 1;  // the newest page
    const int64_t count = std::min(std::max(kLeastPages, tokens_ / page_), before + 1);
    head.pages = before + 1;
    head.chosen = length - 1 <= tokens_ || count > before ? 0 : count;
    if (head.chosen == 0) return;

    const Tensor products = head.bounds.LargestProducts(view, q);
    HideFromNewest(view, h, 0, logical_, products);
    const Tensor of_pages = view.Scratch(DType::kF32, {group, before * parts_});
    ops.rows->Convert(Columns(products, 0, before * parts_), of_pages);
    const Tensor by_part = of_pages.Reshape({group * before, parts_});
    const Tensor best = view.Scratch(DType::kF32, {group * before, 1});
    ops.rows->Convert(Columns(by_part, 0, 1), best);
    for (int64_t i = 1; i < parts_; ++i) {
      ops.rows->Combine(best, Columns(by_part, i, i + 1), Binary::kMax, best);
    }
    const std::vector<int32_t> counts(static_cast<size_t>(group), static_cast<int32_t>(count - 1));
    const Tensor chosen = view.Scratch(DType::kI32, {group, count - 1});
    ops.select->TopK(best.Reshape({group, before}), Upload(view, counts), chosen);

    const int64_t bytes = group * count * SizeOf(DType::kI32);
    if (head.choice.size_bytes() != bytes) head.choice = ops.memory->Allocate(bytes);
    const Tensor choice = head.choice.As(DType::kI32, {group, count});
    const Tensor newest = Numbers(view, 1, static_cast<int32_t>(before));
    for (int64_t g = 0; g < group; ++g) {
      ops.memory->Copy(chosen[g], choice[g].Slice(0, count - 1));
      ops.memory->Copy(newest, choice[g].Slice(count - 1, count));
    }
  }

  int64_t logical_, parts_, page_, tokens_, every_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "lserve",
    .paper = "arXiv:2502.14866",
    .summary = "reads the pages of which a part could match the query best, chosen every few steps",
    .departures = {"the index has the cache's type"},
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
