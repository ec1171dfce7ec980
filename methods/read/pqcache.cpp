// SPDX-License-Identifier: Apache-2.0
// Reads the entries whose keys, as codes, match the query best; nothing is evicted.
//
// Paper: PQCache, arXiv:2407.12820. Needs the query of each decode step. Keys after the first
// `sinks` are cut into `parts`, and each part is the nearest of 2^bits centroids, found in the
// prompt by k-means. A query head's products with the centroids give every entry a score, a softmax
// over the entries makes it a share, shares are summed over the query heads of a KV head. The first
// `sinks` entries, the newest `recent_share` of `tokens` and the best others up to `tokens` are
// read.
#include <algorithm>

#include "core/strings.h"
#include "kernels/buffer_bytes.h"
#include "methods/attention.h"
#include "methods/registry.h"
#include "methods/repeating_reader.h"
#include "methods/repeating_view.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// For one head, each part's centroids and the code of every entry from `sinks` on.
struct Codebooks {
  int64_t count = 0, coded = 0, capacity = 0;
  std::vector<Buffer> centroids;  // [parts] of [count, key_dim / parts] f32
  std::vector<Buffer> codes;      // [parts] of [capacity] i32
};

class PqCache final : public Reader, public RepeatingReader {
 public:
  explicit PqCache(const Params& params)
      : tokens_(params.Int("tokens")),
        recent_(static_cast<int64_t>(params.Real("recent_share") * static_cast<double>(tokens_))),
        sinks_(params.Int("sinks")),
        parts_(params.Int("parts")),
        bits_(params.Int("bits")),
        iterations_(static_cast<int>(params.Int("iterations"))) {}

  Status Check(const ModelShape& shape) const override {
    if (shape.key_dim % parts_ == 0) return {};
    return BadInput(StrCat("parts ", parts_, " must divide the ", shape.key_dim, " dims of a key"));
  }

  struct Index final : State {
    std::vector<Codebooks> heads;
    int64_t bytes() const override {
      int64_t sum = 0;
      for (const Codebooks& head : heads) {
        for (const Buffer& centroids : head.centroids) sum += centroids.size_bytes();
        sum += std::ssize(head.codes) * head.coded * SizeOf(DType::kI32);
      }
      return sum;
    }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    const ModelShape own = shape.OfLayer(layer);
    const int64_t members = std::max<int64_t>(0, entries - sinks_);
    const int64_t words = std::min(int64_t{1} << bits_, members), sub = own.key_dim / parts_;
    return own.kv_heads * parts_ *
           (HostBufferBytes(words * sub * SizeOf(DType::kF32)) + members * SizeOf(DType::kI32));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<Index>();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      Codebooks books;
      const int64_t members = view.lengths()[h] - sinks_;
      if (members > 0) Learn(view, h, members, books);
      index->heads.push_back(std::move(books));
    }
    return index;
  }

  void Append(LayerView& view, std::span<const int64_t> first, State& state) const override {
    auto& index = static_cast<Index&>(state);
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      Codebooks& books = index.heads[static_cast<size_t>(h)];
      const int64_t members = view.lengths()[h] - sinks_;
      const int64_t before = std::min(books.coded, first[static_cast<size_t>(h)] - sinks_);
      if (books.count == 0 || members <= before) continue;
      RepeatingView* const repeating = Repeating(view);
      if (before + 1 == members && repeating != nullptr) {
        CodeOne(view, before, repeating->Filled(KvSide::kKeys, h, sinks_ + before, 1), books);
      } else {
        Code(view, h, before, 0, members, books);
      }
    }
  }

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    const int64_t sub = view.shape().key_dim / parts_;
    auto& heads = static_cast<Index&>(state).heads;
    for (size_t h = 0; h < heads.size(); ++h) {
      Codebooks& books = heads[h];
      const int64_t members = std::max<int64_t>(0, view.lengths()[h] - sinks_);
      KVG_TRY(fields.Number("words of a codebook", 0, std::min(int64_t{1} << bits_, members),
                            &books.count));
      if (books.count == 0) {
        // The prompt was all sinks, and Begin has made codes of later entries.
        if (fields.reads()) books = {};
        continue;
      }
      for (int64_t p = 0; p < parts_; ++p) {
        const auto at = static_cast<size_t>(p);
        KVG_TRY(fields.Memory("words of a codebook", view.ops(), DType::kF32, books.count * sub,
                              &books.centroids[at]));
        KVG_TRY(
            fields.Indices("codes of entries", view.ops(), members, books.count, &books.codes[at]));
      }
      if (fields.reads()) books.capacity = members;
    }
    return {};
  }

  bool ReadsFew(int64_t, int64_t length) const override { return AreFew(sinks_ + tokens_, length); }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    const auto& index = static_cast<const Index&>(state);
    const auto fits = [this](int64_t length) { return length <= sinks_ + tokens_; };
    if (std::all_of(view.lengths().begin(), view.lengths().end(), fits)) return false;
    const int64_t group = view.shape().group();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], begin = h * group, end = begin + group;
      if (length == 0) continue;
      Tensor chosen =
          Choose(view, h, index.heads[static_cast<size_t>(h)], q.Slice(begin, end), length);
      chosen.shape[0] = group;
      chosen.stride[0] = 0;
      view.ops().select->MarkRuns(chosen, 1, length,
                                  Columns(words.Slice(begin, end), 0, (length + 63) / 64));
    }
    return true;
  }

 private:
  void Learn(LayerView& view, int64_t head, int64_t members, Codebooks& books) const {
    const int64_t sub = view.shape().key_dim / parts_;
    books.count = std::min(int64_t{1} << bits_, members);
    for (int64_t p = 0; p < parts_; ++p) {
      books.centroids.push_back(
          view.ops().memory->Allocate(books.count * sub * SizeOf(DType::kF32)));
      books.codes.emplace_back();
    }
    Code(view, head, 0, iterations_, members, books);
  }

  // Codes of the entries from `first` on (of those after the sinks), all `members` afterwards; the
  // first time from evenly spaced keys, whose centroids then move.
  void Code(LayerView& view, int64_t head, int64_t first, int iterations, int64_t members,
            Codebooks& books) const {
    Ops& ops = view.ops();
    const int64_t sub = view.shape().key_dim / parts_, n = members - first;
    const Tensor keys = view.Keys(head, sinks_ + first);
    const Tensor part = view.Scratch(DType::kF32, {n, sub});
    const Tensor codes = view.Scratch(DType::kI32, {n});
    Grow(view, first, members, books);
    for (int64_t p = 0; p < parts_; ++p) {
      const auto at = static_cast<size_t>(p);
      ops.rows->Convert(Columns(keys, p * sub, (p + 1) * sub), part);
      const Tensor centroids = books.centroids[at].As(DType::kF32, {books.count, sub});
      if (first == 0) {
        std::vector<int32_t> start;
        for (int64_t c = 0; c < books.count; ++c) {
          start.push_back(static_cast<int32_t>(c * members / books.count));
        }
        ops.select->Gather(part, Upload(view, start), centroids);
      }
      ops.algebra->KMeans(part, iterations, centroids, codes);
      ops.memory->Copy(codes, books.codes[at].As(DType::kI32, {members}).Slice(first, members));
    }
    books.coded = members;
  }

  // The same of one entry, whose key is given: [1, key_dim]. A device repeats what was submitted
  // for the entry before.
  void CodeOne(LayerView& view, int64_t at, const Tensor& key, Codebooks& books) const {
    Ops& ops = view.ops();
    const int64_t sub = view.shape().key_dim / parts_;
    Grow(view, at, at + 1, books);
    const auto place = static_cast<int32_t>(at);
    const Tensor where = Upload(view, std::span(&place, 1));
    const Tensor part = view.Scratch(DType::kF32, {1, sub});
    const Tensor code = view.Scratch(DType::kI32, {1});
    for (int64_t p = 0; p < parts_; ++p) {
      const auto i = static_cast<size_t>(p);
      ops.rows->Convert(Columns(key, p * sub, (p + 1) * sub), part);
      ops.algebra->KMeans(part, 0, books.centroids[i].As(DType::kF32, {books.count, sub}), code);
      ops.select->Scatter(AsColumn(code), where,
                          AsColumn(books.codes[i].As(DType::kI32, {books.capacity})));
    }
    books.coded = at + 1;
  }

  // Room for `members` codes of each part; the first `keep` stay. Where there is no memory it
  // leaves everything as it is.
  static void Grow(LayerView& view, int64_t keep, int64_t members, Codebooks& books) {
    if (members <= books.capacity) return;
    MemoryOps& memory = *view.ops().memory;
    const int64_t capacity = std::max(members + 64, 2 * books.capacity);
    std::vector<Buffer> larger;
    for (const Buffer& codes : books.codes) {
      larger.push_back(memory.Allocate(capacity * SizeOf(DType::kI32)));
      if (keep == 0) continue;
      memory.Copy(codes.As(DType::kI32, {keep}), larger.back().As(DType::kI32, {keep}));
    }
    books.codes = std::move(larger);
    books.capacity = capacity;
  }

  // Entries that the heads of the group read: [1, read or more] i32; -1: none. q: [group, key_dim]
  Tensor Choose(LayerView& view, int64_t head, const Codebooks& books, const Tensor& q,
                int64_t length) const {
    Ops& ops = view.ops();
    const int64_t group = q.shape[0], dim = q.shape[1], sub = dim / parts_;
    const bool whole = books.count == 0;  // the prompt had no key to learn from
    const int64_t first = std::min(sinks_, length);
    const int64_t last = whole ? length - first : std::min(recent_, length - first);
    const int64_t between = length - first - last;
    // Columns behind those of the entries between mean nothing.
    const int64_t room = std::min(GrowingColumns(view, between), books.capacity);
    const Tensor order =
        view.Scratch(DType::kF32, {1, std::max(GrowingColumns(view, length), first + room)});
    if (between > 0) {
      const Tensor shares = view.Scratch(DType::kF32, {group, room});
      const Tensor query = view.Scratch(DType::kF32, {group, dim});
      const Tensor products = view.Scratch(DType::kF32, {books.count, 1});
      const Tensor scores = view.Scratch(DType::kF32, {1, room});
      ops.rows->Convert(q, query);
      for (int64_t p = 0; p < parts_; ++p) {
        const auto at = static_cast<size_t>(p);
        const Tensor centroids = books.centroids[at].As(DType::kF32, {books.count, sub});
        const Tensor codes = books.codes[at].As(DType::kI32, {room});
        for (int64_t g = 0; g < group; ++g) {
          ops.linear->MatMulNT(centroids.Reshape({1, books.count, sub}),
                               query[g].Slice(p * sub, (p + 1) * sub).Reshape({1, 1, sub}), 1.0f,
                               products.Reshape({1, books.count, 1}));
          ops.select->Gather(products, codes, scores.Reshape({room, 1}));
          const Tensor sum = shares.Slice(g, g + 1);
          ops.rows->Combine(sum, scores, Binary::kAdd, sum);
        }
      }
      AttentionOfProducts(view, head, first, QueryRows::Newest(view), between, shares);
      ops.rows->ReduceColumns(shares, Reduction::kSum, order[0].Slice(first, first + room));
    }
    ops.rows->FillColumns(kForcedScore, 0, first, order);
    ops.rows->FillColumns(kForcedScore, length - last, length, order);
    const int64_t read = whole ? length : std::min(length, first + tokens_);
    const int64_t columns =
        whole ? GrowingColumns(view, read) : ChoiceColumns(view, read, first + tokens_);
    const auto count = static_cast<int32_t>(read);
    const Tensor chosen = view.Scratch(DType::kI32, {1, columns});
    ops.select->TopK(Columns(order, 0, length), Upload(view, std::span(&count, 1)), chosen);
    return chosen;
  }

  int64_t tokens_, recent_, sinks_, parts_, bits_;
  int iterations_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "pqcache",
    .paper = "arXiv:2407.12820",
    .summary = "reads the entries whose coded keys match the query best",
    .departures = {"`tokens` is a number, not a share of the prompt",
                   "centroids start from evenly spaced keys",
                   "centroids move `iterations` times, where the reference does as many rounds as "
                   "the prefill hides",
                   "the cache of fetched blocks, which only changes speed, is left out"},
    .bytes = "4 * parts an entry and head and 4 * key_dim * 2^bits a head, beside the cache",
    .params = {IntParam("tokens", 1024, 1, 1 << 24, "entries that are read beside the first"),
               RealParam("recent_share", 0.5, 0, 1, "share of them that are the newest"),
               IntParam("sinks", 32, 0, 4096, "first entries, always read"),
               IntParam("parts", 2, 1, 64, "parts of a key with codes of their own"),
               IntParam("bits", 6, 1, 12, "bits of a code"),
               IntParam("iterations", 20, 0, 1000, "rounds of clustering")},
    .make = Make<PqCache>(),
});

}  // namespace
}  // namespace kvgauge
