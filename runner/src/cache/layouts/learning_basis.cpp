// SPDX-License-Identifier: Apache-2.0
// The first entries whole, then those that are coordinates in bases of their heads, then the newest
// whole: a part of the layer each. Attention takes bases as those of latents. A step of learning
// makes new bases, so that forks keep theirs.
#include "methods/layouts/learning_basis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/strings.h"
#include "methods/tensors.h"
#include "src/cache/bytes.h"
#include "src/cache/layer_layout.h"

namespace kvgauge {
namespace {

constexpr std::array<KvSide, 2> kLearningSides = {KvSide::kKeys, KvSide::kValues};

class LearningBasisLayer final : public LayerLayout {
 public:
  std::string_view id() const override { return LearningBasis::kId; }
  std::unique_ptr<LayerLayout> Fork() const override {
    return std::make_unique<LearningBasisLayer>(*this);
  }

  Status Use(const StoreLayout& plan, const LayerEntries& entries) override;
  Status Put(std::string& out) const override;
  Status Take(std::string_view& in, const LayerEntries& entries) override;
  Status Check(const LayerEntries& entries) const override;
  bool seals() const override { return true; }
  Status Convert(LayerEntries& entries, std::span<const LayerPair> below) override;
  Status Seal(LayerEntries& entries, bool* changed) override;
  Status CheckReduce(std::span<const HeadPlan> plan) const override {
    for (const HeadPlan& one : plan) {
      if (one.keys.empty() && one.values.empty() && one.keys.self.empty() &&
          one.values.self.empty()) {
        continue;
      }
      return Unsupported("entries that are coordinates cannot be merged with whole ones");
    }
    return {};
  }
  void Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
            Tensor rows) const override;
  void Describe(const LayerEntries& entries, std::span<KvSegment> segments) const override {
    const size_t parts = entries.parts.size();
    for (size_t at = kMiddle; at < segments.size(); at += parts) {
      const auto head = static_cast<int64_t>(at / parts);
      segments[at].key_basis = bases_.Of(KvSide::kKeys, head);
      segments[at].value_basis = bases_.Of(KvSide::kValues, head);
    }
  }
  void AddBytes(const LayerEntries& entries, KvBytes& bytes) const override {
    LayerLayout::AddBytes(entries, bytes);
    int64_t held = 0;
    for (const Tensor& all : bases_.all) held += all.SizeBytes();
    bytes.low_rank += held;
    bytes.slack += bases_.memory->allocated_bytes() - held;
  }

 private:
  static constexpr size_t kMiddle = 1, kNewest = 2;  // parts

  struct Bases {
    std::array<Tensor, 2> all;  // by side: [kv_heads * dim, rank], in memory
    std::shared_ptr<BlockList> memory;
    int64_t heads = 1;

    Tensor Of(KvSide side, int64_t head) const {
      const Tensor& own = all[static_cast<size_t>(side)];
      const int64_t dim = own.shape[0] / heads;
      return own.Slice(head * dim, (head + 1) * dim);
    }
  };

  int64_t RankOf(KvSide side) const {
    return side == KvSide::kKeys ? plan_.key_rank : plan_.value_rank;
  }
  // In blocks of the pool that nobody else has.
  static Result<Bases> CopyOf(const LayerEntries& entries, const std::array<Tensor, 2>& bases);
  // Whole rows [n, dim] as coordinates at the end of `part`. basis: [dim, rank]
  static Status Project(Ops& ops, const Tensor& rows, const Tensor& basis, Stream& part);
  // What coordinates in the basis `from` are in the basis `to`, both [dim, rank].
  static Status Turn(const LayerEntries& entries, const Tensor& from, const Tensor& to,
                     Stream& part);
  // What is due of a head's side: from the front of `newest` to the end of `middle`.
  Status SealSide(const LayerEntries& entries, const Tensor& basis, Stream& middle,
                  Stream& newest) const;

  LearningBasis plan_;                       // its tensors lie in given_ until Convert
  std::array<std::vector<float>, 2> given_;  // by side
  std::array<int64_t, 2> widths_ = {};       // numbers of a basis's row, as they came
  Bases bases_;                              // never written once others may have them
  Ops* ops_ = nullptr;
};

Status LearningBasisLayer::Use(const StoreLayout& plan, const LayerEntries& entries) {
  plan_ = static_cast<const LearningBasis&>(plan);
  for (const KvSide side : kLearningSides) {
    Tensor& given = side == KvSide::kKeys ? plan_.key_basis : plan_.value_basis;
    if (given.empty()) continue;
    const auto at = static_cast<size_t>(side);
    given_[at] = Fetch(entries.ops(), given);
    widths_[at] = given.rank == 2 ? given.shape[1] : 0;
    given = {};
  }
  return {};
}

Status LearningBasisLayer::Put(std::string& out) const {
  for (const int64_t number : {plan_.key_rank, plan_.value_rank, plan_.sinks, plan_.recent,
                               plan_.every, static_cast<int64_t>(plan_.turns)}) {
    PutNumber(out, number);
  }
  PutArray(out, std::vector<float>{plan_.step});
  for (const Tensor& all : bases_.all) PutArray(out, Fetch(*ops_, all));
  return {};
}

Status LearningBasisLayer::Take(std::string_view& in, const LayerEntries& entries) {
  const auto most = [&](KvSide side) { return entries.HeadDim(side); };
  KVG_TRY(TakeNumber(in, "rank of keys", 1, most(KvSide::kKeys), &plan_.key_rank));
  KVG_TRY(TakeNumber(in, "rank of values", 1, most(KvSide::kValues), &plan_.value_rank));
  KVG_TRY(TakeNumber(in, "first entries that stay whole", 0, INT32_MAX, &plan_.sinks));
  KVG_TRY(TakeNumber(in, "newest entries that are whole", 0, INT32_MAX, &plan_.recent));
  KVG_TRY(TakeNumber(in, "entries between steps", 1, INT32_MAX, &plan_.every));
  KVG_TRY(TakeFlag(in, "coordinates that turn", &plan_.turns));
  std::vector<float> step;
  KVG_TRY(TakeArray(in, &step));
  if (step.size() != 1) {
    return BadInput(StrCat("cache bytes: ", step.size(), " step sizes; expected 1"));
  }
  plan_.step = step[0];
  for (const KvSide side : kLearningSides) {
    const auto at = static_cast<size_t>(side);
    KVG_TRY(TakeArray(in, &given_[at]));
    widths_[at] = RankOf(side);
  }
  return {};
}

Status LearningBasisLayer::Check(const LayerEntries& entries) const {
  KVG_TRY(LayerLayout::Check(entries));
  if (entries.setup->mla) {
    return Unsupported("learning_basis: the model's own latent attention has latents of its own");
  }
  if (plan_.sinks < 0 || plan_.recent < 0 || plan_.every < 1 || !(plan_.step >= 0) ||
      !std::isfinite(plan_.step)) {
    return BadInput(StrCat("learning_basis: sinks ", plan_.sinks, ", recent ", plan_.recent,
                           ", every ", plan_.every, ", step ", plan_.step,
                           "; right are 0 or more, 0 or more, 1 or more, and 0 or more"));
  }
  for (const KvSide side : kLearningSides) {
    const auto at = static_cast<size_t>(side);
    const std::vector<float>& own = given_[at];
    const int64_t dim = entries.HeadDim(side), rank = RankOf(side), heads = entries.setup->kv_heads;
    if (rank < 1 || rank > dim || widths_[at] != rank || std::ssize(own) != heads * dim * rank) {
      return BadInput(StrCat("learning_basis: a basis of ", own.size(), " numbers, ", widths_[at],
                             " in a row; right are ", heads * dim, " rows of ", rank));
    }
    if (!std::all_of(own.begin(), own.end(), [](float x) { return std::isfinite(x); })) {
      return BadInput("learning_basis: a basis with a number that is not finite");
    }
  }
  return {};
}

Result<LearningBasisLayer::Bases> LearningBasisLayer::CopyOf(const LayerEntries& entries,
                                                             const std::array<Tensor, 2>& bases) {
  Bases made;
  made.heads = entries.setup->kv_heads;
  made.memory = std::make_shared<BlockList>(*entries.pool);
  for (size_t i = 0; i < bases.size(); ++i) {
    const int64_t height = bases[i].shape[0], width = bases[i].shape[1];
    KVG_TRY(made.memory->Push(bases[i].SizeBytes()));
    made.all[i] = Tensor((*made.memory)[static_cast<int64_t>(i)], DType::kF32, {height, width},
                         entries.ops().device);
    entries.ops().memory->Copy(bases[i], made.all[i]);
  }
  return made;
}

Status LearningBasisLayer::Project(Ops& ops, const Tensor& rows, const Tensor& basis,
                                   Stream& part) {
  const int64_t n = rows.shape[0], dim = rows.shape[1], rank = basis.shape[1];
  if (n == 0) return {};
  const Buffer memory = ops.memory->Allocate(n * rank * SizeOf(DType::kF32));
  const Tensor coordinates = memory.As(DType::kF32, {n, rank});
  ops.linear->MatMulNN(rows.Reshape({1, n, dim}), basis.Reshape({1, dim, rank}), 1.0f,
                       coordinates.Reshape({1, n, rank}));
  return part.Append(coordinates);
}

Status LearningBasisLayer::Turn(const LayerEntries& entries, const Tensor& from, const Tensor& to,
                                Stream& part) {
  const int64_t n = part.length(), dim = from.shape[0], rank = from.shape[1];
  if (n == 0) return {};
  Ops& ops = entries.ops();
  const Buffer memory = ops.memory->Allocate(n * (rank + dim) * SizeOf(DType::kF32));
  const Tensor all = memory.As(DType::kF32, {n * (rank + dim)});
  const Tensor held = all.Slice(0, n * rank).Reshape({n, rank});
  const Tensor rows = all.Slice(n * rank, n * (rank + dim)).Reshape({n, dim});
  part.Read(0, held);
  ops.linear->MatMulNT(held.Reshape({1, n, rank}), from.Reshape({1, dim, rank}), 1.0f,
                       rows.Reshape({1, n, dim}));
  Stream fresh(part.spec(), *entries.pool);
  KVG_TRY(Project(ops, rows, to, fresh));
  part = std::move(fresh);
  return {};
}

Status LearningBasisLayer::Convert(LayerEntries& entries, std::span<const LayerPair>) {
  ops_ = &entries.ops();
  const int64_t heads = entries.setup->kv_heads;
  std::array<Tensor, 2> given;
  for (const KvSide side : kLearningSides) {
    const auto at = static_cast<size_t>(side);
    given[at] = View(given_[at], {heads * entries.HeadDim(side), RankOf(side)});
  }
  KVG_ASSIGN(bases_, CopyOf(entries, given));
  given_ = {};
  LayerPart first = EmptyPart(entries), newest = EmptyPart(entries);
  LayerPart middle =
      entries.NewPart({heads, heads}, *entries.pool, [&](KvSide side, int64_t owner) {
        StreamSpec spec = newest.of(side)[static_cast<size_t>(owner)].spec();
        spec.dim = RankOf(side);
        return spec;
      });
  for (int64_t h = 0; h < heads; ++h) {
    const auto at = static_cast<size_t>(h);
    const int64_t n = entries.length(h), begin = std::min(n, plan_.sinks);
    const int64_t end = std::max(begin, n - plan_.recent);
    if (n == 0) continue;
    for (const KvSide side : kLearningSides) {
      const int64_t dim = entries.HeadDim(side);
      const Buffer memory = entries.ops().memory->Allocate(n * dim * SizeOf(DType::kF32));
      const Tensor rows = memory.As(DType::kF32, {n, dim});
      entries.parts[0].of(side)[at].Read(0, rows);
      if (begin > 0) KVG_TRY(first.of(side)[at].Append(rows.Slice(0, begin)));
      KVG_TRY(
          Project(entries.ops(), rows.Slice(begin, end), bases_.Of(side, h), middle.of(side)[at]));
      if (end < n) KVG_TRY(newest.of(side)[at].Append(rows.Slice(end, n)));
    }
  }
  entries.parts.clear();
  for (LayerPart* part : {&first, &middle, &newest}) entries.parts.push_back(std::move(*part));
  return {};
}

Status LearningBasisLayer::SealSide(const LayerEntries& entries, const Tensor& basis,
                                    Stream& middle, Stream& newest) const {
  Ops& ops = entries.ops();
  const int64_t n = newest.length(), dim = basis.shape[0], rank = basis.shape[1];
  const Buffer memory = ops.memory->Allocate((n * dim + dim * rank) * SizeOf(DType::kF32));
  const Tensor all = memory.As(DType::kF32, {n * dim + dim * rank});
  const Tensor rows = all.Slice(0, n * dim).Reshape({n, dim});
  const Tensor before = all.Slice(n * dim, all.shape[0]).Reshape({dim, rank});
  newest.Read(0, rows);
  int64_t gone = 0;
  for (; n - gone >= plan_.recent + plan_.every; gone += plan_.every) {
    // As if entries had come one by one: the newest at that time teach.
    const int64_t end = gone + plan_.recent + plan_.every;
    if (plan_.step > 0) {
      ops.memory->Copy(basis, before);
      OjaStep(ops, rows.Slice(end - plan_.every, end), plan_.step, basis);
      if (plan_.turns) KVG_TRY(Turn(entries, before, basis, middle));
    }
    KVG_TRY(Project(ops, rows.Slice(gone, gone + plan_.every), basis, middle));
  }
  std::vector<int32_t> stays(static_cast<size_t>(n - gone));
  std::iota(stays.begin(), stays.end(), static_cast<int32_t>(gone));
  KVG_ASSIGN(newest, newest.Gathered(stays, {}));
  return {};
}

// On copies, so that an error leaves all as it was.
Status LearningBasisLayer::Seal(LayerEntries& entries, bool* changed) {
  const auto due = [&](const Stream& keys) { return keys.length() >= plan_.recent + plan_.every; };
  const std::vector<Stream>& held = entries.parts[kNewest].keys;
  if (std::none_of(held.begin(), held.end(), due)) return {};
  KVG_ASSIGN(Bases bases, CopyOf(entries, bases_.all));
  LayerPart middle = entries.parts[kMiddle], newest = entries.parts[kNewest];
  for (int64_t h = 0; h < entries.setup->kv_heads; ++h) {
    const auto at = static_cast<size_t>(h);
    if (!due(newest.keys[at])) continue;
    for (const KvSide side : kLearningSides) {
      KVG_TRY(SealSide(entries, bases.Of(side, h), middle.of(side)[at], newest.of(side)[at]));
    }
  }
  bases_ = std::move(bases);
  entries.parts[kMiddle] = std::move(middle);
  entries.parts[kNewest] = std::move(newest);
  *changed = true;
  return {};
}

void LearningBasisLayer::Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
                              Tensor rows) const {
  Ops& ops = entries.ops();
  const int64_t n = rows.shape[0], dim = rows.shape[1], rank = RankOf(side);
  int64_t begin = 0;  // of the part, among the head's entries
  for (size_t p = 0; p < entries.parts.size(); ++p) {
    const Stream& stream = entries.parts[p].of(side)[static_cast<size_t>(head)];
    const int64_t end = begin + stream.length();
    const int64_t from = std::max(first, begin), to = std::min(first + n, end), some = to - from;
    if (some > 0 && p != kMiddle) {
      stream.Read(from - begin, rows.Slice(from - first, to - first));
    } else if (some > 0) {
      const Buffer memory = ops.memory->Allocate(some * rank * SizeOf(DType::kF32));
      const Tensor held = memory.As(DType::kF32, {some, rank});
      stream.Read(from - begin, held);
      ops.linear->MatMulNT(held.Reshape({1, some, rank}),
                           bases_.Of(side, head).Reshape({1, dim, rank}), 1.0f,
                           rows.Slice(from - first, to - first).Reshape({1, some, dim}));
    }
    begin = end;
  }
}

}  // namespace
KVG_REGISTER_LAYOUT(learning_basis, LearningBasis, LearningBasisLayer)
}  // namespace kvgauge
