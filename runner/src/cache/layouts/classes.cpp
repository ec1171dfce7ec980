// SPDX-License-Identifier: Apache-2.0
// Entries in classes: a part for each, and one behind them for entries that wait. Where channels
// have scales, coded parts hold entries divided by them, and where entries turn, turned ones;
// attention takes what undoes both as the basis of latents: a diagonal matrix, or the turn's.
// Codewords are tables of a class, a row for each head.
#include "methods/layouts/classes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "core/strings.h"
#include "methods/basis_change.h"
#include "src/cache/bytes.h"
#include "src/cache/layer_layout.h"

namespace kvgauge {
namespace {

using ClassesPlan = Classes;  // a member of layers has that name

constexpr std::array<KvSide, 2> kClassSides = {KvSide::kKeys, KvSide::kValues};

// How a group is coded, as it is written.
constexpr int64_t kEvenCodes = 1, kExactCodes = 2, kCutCodes = 4, kPagesTogether = 8;

void PutClassCodec(std::string& out, const KvCodec& codec) {
  for (const int64_t number :
       {static_cast<int64_t>(codec.kind), codec.dim, static_cast<int64_t>(codec.dtype),
        static_cast<int64_t>(codec.bits), static_cast<int64_t>(codec.axis), codec.group,
        (codec.symmetric ? kEvenCodes : 0) + (codec.exact_scale ? kExactCodes : 0) +
            (codec.clip != 1 ? kCutCodes : 0) + (codec.range_pages != 1 ? kPagesTogether : 0)}) {
    PutNumber(out, number);
  }
  if (codec.clip != 1) PutNumber(out, static_cast<int64_t>(std::bit_cast<uint32_t>(codec.clip)));
  if (codec.range_pages != 1) PutNumber(out, codec.range_pages);
}

Status TakeClassCodec(std::string_view& in, KvSide side, int64_t dim, KvCodec* codec) {
  codec->side = side;
  int64_t bits = 0;
  KVG_TRY(TakeEnum(in, "kind of a codec", kLastCodecKind, &codec->kind));
  KVG_TRY(TakeNumber(in, "dims of a codec", dim, dim, &codec->dim));
  KVG_TRY(TakeEnum(in, "type of a codec", DType::kBF16, &codec->dtype));
  KVG_TRY(TakeNumber(in, "bits of a codec", 0, 8, &bits));
  codec->bits = static_cast<int>(bits);
  KVG_TRY(TakeEnum(in, "axis of a codec", CodeAxis::kChannel, &codec->axis));
  KVG_TRY(TakeNumber(in, "group of a codec", 0, int64_t{1} << 20, &codec->group));
  int64_t ways = 0, clip = 0;
  constexpr int64_t kAllWays = kEvenCodes + kExactCodes + kCutCodes + kPagesTogether;
  KVG_TRY(TakeNumber(in, "ways of coding", 0, kAllWays, &ways));
  codec->symmetric = (ways & kEvenCodes) != 0;
  codec->exact_scale = (ways & kExactCodes) != 0;
  if ((ways & kCutCodes) != 0) {
    KVG_TRY(TakeNumber(in, "clipping of a codec", 0, UINT32_MAX, &clip));
    codec->clip = std::bit_cast<float>(static_cast<uint32_t>(clip));
  }
  if ((ways & kPagesTogether) == 0) return {};
  return TakeNumber(in, "pages of a range", 0, int64_t{1} << 20, &codec->range_pages);
}

void PutClassTable(std::string& out, const Tensor& table) {
  const int64_t numbers = table.empty() ? 0 : table.Numel();
  PutNumber(out, numbers);
  if (numbers > 0) PutBytes(out, std::span<const float>(table.f32(), table.Numel()));
}

// A row for each head, in `memory` until OwnTables.
Status TakeClassTable(std::string_view& in, int64_t heads, std::vector<float>* memory,
                      Tensor* table) {
  KVG_TRY(TakeArray(in, memory));
  const int64_t numbers = std::ssize(*memory);
  if (numbers == 0) return {};
  if (numbers % heads != 0) {
    return BadInput(StrCat("cache bytes: codewords of ", numbers, " numbers for ", heads,
                           " heads; expected a multiple"));
  }
  *table = View(*memory, {heads, numbers / heads});
  return {};
}

// What is written of the classes beside their number: which sides turn.
constexpr int64_t kTurnedKeys = 256, kTurnedValues = 512;

std::vector<int32_t> PickedOf(const std::vector<int32_t>& all, std::span<const int32_t> picked) {
  std::vector<int32_t> numbers;
  numbers.reserve(picked.size());
  for (const int32_t i : picked) numbers.push_back(all[static_cast<size_t>(i)]);
  return numbers;
}

class ClassesLayer final : public LayerLayout {
 public:
  std::string_view id() const override { return ClassesPlan::kId; }
  std::unique_ptr<LayerLayout> Fork() const override {
    return std::make_unique<ClassesLayer>(*this);
  }

  Status Use(const StoreLayout& plan, const LayerEntries& entries) override;
  Status Put(std::string& out) const override;
  Status Take(std::string_view& in, const LayerEntries& entries) override;
  Status Check(const LayerEntries& entries) const override;
  bool seals() const override { return true; }
  bool reorders() const override { return true; }

  Status Convert(LayerEntries& entries, std::span<const LayerPair> below) override;
  bool ClassesAreDue(const LayerEntries& entries) const override {
    const std::vector<Stream>& waiting = entries.parts.back().keys;
    return std::any_of(waiting.begin(), waiting.end(),
                       [&](const Stream& stream) { return stream.length() >= plan_.waiting; });
  }
  Status Classify(LayerEntries& entries, std::span<const std::vector<int32_t>> classes) override;
  Status CheckReduce(std::span<const HeadPlan> plan) const override {
    for (const HeadPlan& one : plan) {
      if (one.keys.empty() && one.values.empty() && one.keys.self.empty() &&
          one.values.self.empty()) {
        continue;
      }
      return Unsupported("entries of different classes cannot be merged");
    }
    return {};
  }

  void Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
            Tensor rows) const override;
  void Describe(const LayerEntries& entries, std::span<KvSegment> segments) const override;
  void AddBytes(const LayerEntries& entries, KvBytes& bytes) const override;

 private:
  struct Scales {
    std::vector<float> host;       // [kv_heads, dim], or none
    std::array<int64_t, 2> shape;  // that they came in
    Tensor rows;                   // the same, in memory_
    Tensor turn;                   // [dim, dim], or none, in memory_
    std::vector<Tensor> back;      // [kv_heads] of [dim, dim], in memory_
  };

  const Scales& ScalesOf(KvSide side) const { return scales_[static_cast<size_t>(side)]; }
  const KvCodec& CodecOf(KvSide side, size_t at) const {
    const ClassesPlan::Class& one = plan_.classes[at];
    return side == KvSide::kKeys ? one.keys : one.values;
  }
  // With the codewords of a head, where the class has some.
  KvCodec CodecOf(KvSide side, size_t at, int64_t head) const {
    const ClassesPlan::Class& one = plan_.classes[at];
    const Tensor& table = side == KvSide::kKeys ? one.key_table : one.value_table;
    KvCodec codec = CodecOf(side, at);
    if (!table.empty()) codec.table = table[head];
    return codec;
  }
  // Copies the plan's tables to host memory of a pool, where codecs want them.
  Status OwnTables(const LayerEntries& entries);
  bool Turns(KvSide side) const {
    return side == KvSide::kKeys ? plan_.turns_keys : plan_.turns_values;
  }
  // Whether what a part holds is divided by scales, or turned.
  bool IsChanged(KvSide side, size_t part) const {
    return part < plan_.classes.size() && (!ScalesOf(side).host.empty() || Turns(side)) &&
           CodecOf(side, part).coded();
  }
  Status MakeScales(const LayerEntries& entries);
  // The entries that each part is to hold, in the order of positions.
  Result<std::vector<std::vector<int32_t>>> Members(const LayerEntries& entries, int64_t head,
                                                    const std::vector<int32_t>& classes) const;
  Result<Stream> Moved(const LayerEntries& entries, KvSide side, int64_t head, size_t part,
                       std::span<const int32_t> members, const Tensor& all) const;

  ClassesPlan plan_;  // its tensors lie in scales_ and tables_
  std::array<Scales, 2> scales_;
  std::shared_ptr<BlockList> memory_;  // of scales; never written again
  std::shared_ptr<BlockList> tables_;  // the plan's, on the host; never written again
};

Status ClassesLayer::Use(const StoreLayout& plan, const LayerEntries& entries) {
  plan_ = static_cast<const ClassesPlan&>(plan);
  for (const KvSide side : kClassSides) {
    Tensor& given = side == KvSide::kKeys ? plan_.key_scales : plan_.value_scales;
    if (given.empty()) continue;
    Scales& own = scales_[static_cast<size_t>(side)];
    own.host.resize(static_cast<size_t>(given.Numel()));
    own.shape = {given.shape[0], given.rank == 2 ? given.shape[1] : 0};
    Tensor host = given;
    host.data = own.host.data();
    host.device = Device::kHost;
    entries.ops().memory->Copy(given, host);
    given = {};
  }
  return OwnTables(entries);
}

Status ClassesLayer::OwnTables(const LayerEntries& entries) {
  Ops& ops = entries.ops();
  // A device's pool has no memory that the host can read.
  BlockPool& pool =
      ops.device == Device::kHost ? *entries.pool : entries.setup->pools->of(Tier::kHost);
  auto tables = std::make_shared<BlockList>(pool);
  for (ClassesPlan::Class& one : plan_.classes) {
    for (Tensor* table : {&one.key_table, &one.value_table}) {
      if (table->empty()) continue;
      KVG_TRY(tables->Push(table->SizeBytes()));
      Tensor host = *table;
      host.data = (*tables)[tables->size() - 1];
      host.device = Device::kHost;
      ops.memory->Copy(*table, host);
      *table = host;
    }
  }
  tables_ = std::move(tables);
  return {};
}

Status ClassesLayer::Put(std::string& out) const {
  PutNumber(out, plan_.waiting);
  PutNumber(out, std::ssize(plan_.classes) + (plan_.turns_keys ? kTurnedKeys : 0) +
                     (plan_.turns_values ? kTurnedValues : 0));
  for (const ClassesPlan::Class& one : plan_.classes) {
    PutClassCodec(out, one.keys);
    PutClassCodec(out, one.values);
    if (IsRecord(one.keys.kind)) PutClassTable(out, one.key_table);
    if (IsRecord(one.values.kind)) PutClassTable(out, one.value_table);
  }
  for (const Scales& scales : scales_) PutArray(out, scales.host);
  return {};
}

Status ClassesLayer::Take(std::string_view& in, const LayerEntries& entries) {
  int64_t count = 0;
  KVG_TRY(TakeNumber(in, "entries that wait", 1, INT32_MAX, &plan_.waiting));
  KVG_TRY(TakeNumber(in, "classes of entries", 1, 2 * kTurnedValues - 1, &count));
  plan_.turns_keys = (count & kTurnedKeys) != 0;
  plan_.turns_values = (count & kTurnedValues) != 0;
  count %= kTurnedKeys;
  if (count < 1 || count > ClassesPlan::kMost) {
    return BadInput(
        StrCat("cache bytes: ", count, " classes of entries; right is 1 .. ", ClassesPlan::kMost));
  }
  plan_.classes.resize(static_cast<size_t>(count));
  const int64_t heads = entries.setup->kv_heads;
  std::vector<std::vector<float>> tables(2 * plan_.classes.size());
  for (size_t i = 0; i < plan_.classes.size(); ++i) {
    ClassesPlan::Class& one = plan_.classes[i];
    KVG_TRY(TakeClassCodec(in, KvSide::kKeys, entries.HeadDim(KvSide::kKeys), &one.keys));
    KVG_TRY(TakeClassCodec(in, KvSide::kValues, entries.HeadDim(KvSide::kValues), &one.values));
    if (IsRecord(one.keys.kind)) {
      KVG_TRY(TakeClassTable(in, heads, &tables[2 * i], &one.key_table));
    }
    if (IsRecord(one.values.kind)) {
      KVG_TRY(TakeClassTable(in, heads, &tables[2 * i + 1], &one.value_table));
    }
  }
  for (const KvSide side : kClassSides) {
    Scales& own = scales_[static_cast<size_t>(side)];
    KVG_TRY(TakeArray(in, &own.host));
    if (own.host.empty()) continue;
    const int64_t numbers = std::ssize(own.host);
    own.shape = {heads, numbers % heads == 0 ? numbers / heads : 0};
  }
  return OwnTables(entries);
}

Status ClassesLayer::Check(const LayerEntries& entries) const {
  KVG_TRY(LayerLayout::Check(entries));
  if (entries.turn.raw && entries.turn.position == PositionPolicy::kSlot) {
    return Unsupported(
        "classes: entries change their places, so keys cannot turn by them; use position original");
  }
  if (plan_.classes.empty() || plan_.waiting < 1) {
    return BadInput(StrCat("classes: ", plan_.classes.size(), " classes, and ", plan_.waiting,
                           " entries wait; both must be at least 1"));
  }
  for (const KvSide side : kClassSides) {
    for (size_t i = 0; i < plan_.classes.size(); ++i) {
      const bool tabled = IsRecord(CodecOf(side, i).kind);
      for (int64_t head = 0; head < (tabled ? entries.setup->kv_heads : 1); ++head) {
        KvCodec codec = CodecOf(side, i, head);
        codec.dim = entries.HeadDim(side);
        Status status = CheckClassCodec(codec);
        if (status.ok() && tabled) status = CheckCodec(codec);  // the table must be there by now
        if (!status.ok()) return status.error().Wrap(StrCat("class ", i));
      }
    }
    const Scales& scales = ScalesOf(side);
    if (scales.host.empty()) continue;
    const std::array<int64_t, 2> right = {entries.setup->kv_heads, entries.HeadDim(side)};
    if (scales.shape != right) {
      return BadInput(StrCat("classes: scales [", scales.shape[0], ", ", scales.shape[1],
                             "] of channels; right is [", right[0], ", ", right[1], "]"));
    }
    for (const float scale : scales.host) {
      if (scale > 0 && std::isfinite(scale)) continue;
      return BadInput(StrCat("classes: ", scale, " is the scale of a channel; right is above 0"));
    }
  }
  return {};
}

Status ClassesLayer::MakeScales(const LayerEntries& entries) {
  Ops& ops = entries.ops();
  memory_ = std::make_shared<BlockList>(*entries.pool);
  for (const KvSide side : kClassSides) {
    Scales& own = scales_[static_cast<size_t>(side)];
    const bool scaled = !own.host.empty();
    if (!scaled && !Turns(side)) continue;
    const int64_t heads = entries.setup->kv_heads, dim = entries.HeadDim(side);
    const auto block = [&](int64_t height, std::span<const float> numbers) -> Result<Tensor> {
      KVG_TRY(memory_->Push(height * dim * SizeOf(DType::kF32)));
      const Tensor made((*memory_)[memory_->size() - 1], DType::kF32, {height, dim}, ops.device);
      ops.memory->Copy(View(numbers, {height, dim}), made);
      return made;
    };
    const BasisChange turn = Turns(side) ? HadamardBasis(dim) : BasisChange();
    if (scaled) {
      KVG_ASSIGN(own.rows, block(heads, own.host));
    }
    if (Turns(side)) {
      KVG_ASSIGN(own.turn, block(dim, *turn.there));
    }
    for (int64_t h = 0; h < heads; ++h) {
      if (!scaled) {
        own.back.push_back(own.turn);
        continue;
      }
      std::vector<float> matrix(static_cast<size_t>(dim * dim));
      for (int64_t i = 0; i < dim; ++i) {
        const float scale = own.host[static_cast<size_t>(h * dim + i)];
        for (int64_t j = 0; j < dim; ++j) {
          const auto at = static_cast<size_t>(i * dim + j);
          matrix[at] = Turns(side) ? scale * (*turn.there)[at] : i == j ? scale : 0.0f;
        }
      }
      KVG_ASSIGN(const Tensor back, block(dim, matrix));
      own.back.push_back(back);
    }
  }
  return {};
}

Status ClassesLayer::Convert(LayerEntries& entries, std::span<const LayerPair>) {
  KVG_TRY(MakeScales(entries));
  const int64_t heads = entries.setup->kv_heads;
  std::vector<LayerPart> parts;
  for (size_t i = 0; i < plan_.classes.size(); ++i) {
    parts.push_back(entries.NewPart({heads, heads}, *entries.pool, [&](KvSide side, int64_t head) {
      StreamSpec spec;
      spec.side = side;
      spec.dtype = entries.setup->format.dtype;
      spec.dim = entries.HeadDim(side);
      spec.codec = CodecOf(side, i, head);
      if (spec.codec.coded()) spec.rule = SealWhole(spec.codec);
      return spec;
    }));
  }
  parts.push_back(std::move(entries.parts[0]));
  entries.parts = std::move(parts);
  return {};
}

Result<std::vector<std::vector<int32_t>>> ClassesLayer::Members(
    const LayerEntries& entries, int64_t head, const std::vector<int32_t>& classes) const {
  const auto at = static_cast<size_t>(head);
  const size_t count = plan_.classes.size();
  std::vector<std::vector<int32_t>> members(count + 1);
  int32_t entry = 0;
  for (size_t part = 0; part <= count; ++part) {
    for (int64_t i = 0; i < entries.parts[part].keys[at].length(); ++i, ++entry) {
      const int32_t wanted = classes[static_cast<size_t>(entry)];
      if (wanted >= static_cast<int32_t>(count)) {
        return BadInput(
            StrCat("KV head ", head, ": entry ", entry, " in class ", wanted, " of ", count));
      }
      members[wanted < 0 ? part : static_cast<size_t>(wanted)].push_back(entry);
    }
  }
  const std::vector<int32_t> positions = entries.Positions(head);
  for (std::vector<int32_t>& some : members) {
    std::sort(some.begin(), some.end(), [&](int32_t a, int32_t b) {
      return positions[static_cast<size_t>(a)] < positions[static_cast<size_t>(b)];
    });
  }
  return members;
}

// The stream of a part with these entries. What stays keeps its codes if all that comes is newer;
// otherwise the stream is made anew. `all`: the head's rows as the model has them.
Result<Stream> ClassesLayer::Moved(const LayerEntries& entries, KvSide side, int64_t head,
                                   size_t part, std::span<const int32_t> members,
                                   const Tensor& all) const {
  const auto at = static_cast<size_t>(head);
  const Stream& old = entries.parts[part].of(side)[at];
  int64_t begin = 0;
  for (size_t p = 0; p < part; ++p) begin += entries.parts[p].of(side)[at].length();
  const auto is_old = [&](int32_t i) { return i >= begin && i < begin + old.length(); };
  const auto news = std::find_if_not(members.begin(), members.end(), is_old);
  std::vector<int32_t> stays, comes;
  if (std::none_of(news, members.end(), is_old)) {
    for (auto i = members.begin(); i != news; ++i) {
      stays.push_back(*i - static_cast<int32_t>(begin));
    }
    comes.assign(news, members.end());
  } else {
    comes.assign(members.begin(), members.end());
  }
  KVG_ASSIGN(Stream stream, old.Gathered(stays, {}));
  const int64_t n = std::ssize(comes), dim = all.shape[1];
  if (n == 0) return stream;
  Ops& ops = entries.ops();
  const Buffer memory = ops.memory->Allocate(n * (2 * dim + 1) * 4);
  const Tensor numbers = memory.As(DType::kF32, {n * (2 * dim + 1)});
  Tensor rows = numbers.Slice(0, n * dim).Reshape({n, dim});
  const Tensor turned = numbers.Slice(n * dim, 2 * n * dim).Reshape({n, dim});
  Tensor index = numbers.Slice(2 * n * dim, n * (2 * dim + 1));
  index.dtype = DType::kI32;
  ops.memory->Copy(View(comes, {n}), index);
  ops.select->Gather(all, index, rows);
  const Scales& scales = ScalesOf(side);
  if (IsChanged(side, part) && !scales.host.empty()) {
    ops.rows->Combine(rows, scales.rows[head], Binary::kDivide, rows);
  }
  if (IsChanged(side, part) && Turns(side)) {
    ops.linear->MatMulNN(rows.Reshape({1, n, dim}), scales.turn.Reshape({1, dim, dim}), 1.0f,
                         turned.Reshape({1, n, dim}));
    rows = turned;
  }
  KVG_TRY(stream.Append(rows));
  KVG_TRY(stream.Seal());
  return stream;
}

Status ClassesLayer::Classify(LayerEntries& entries,
                              std::span<const std::vector<int32_t>> classes) {
  const size_t count = plan_.classes.size();
  Buffer memory;  // of a head's rows
  for (int64_t h = 0; h < entries.setup->kv_heads; ++h) {
    const auto at = static_cast<size_t>(h);
    const int64_t n = entries.length(h);
    KVG_CHECK(std::ssize(classes[at]) == n, "a class for each entry");
    if (std::all_of(classes[at].begin(), classes[at].end(), [](int32_t c) { return c < 0; })) {
      continue;
    }
    KVG_ASSIGN(const auto members, Members(entries, h, classes[at]));
    std::array<std::vector<Stream>, 2> moved;
    for (const KvSide side : kClassSides) {
      const int64_t dim = entries.HeadDim(side);
      if (memory.size_bytes() < n * dim * 4) memory = entries.ops().memory->Allocate(n * dim * 4);
      const Tensor all = memory.As(DType::kF32, {n, dim});
      Read(entries, side, h, 0, all);
      for (size_t part = 0; part <= count; ++part) {
        KVG_ASSIGN(Stream stream, Moved(entries, side, h, part, members[part], all));
        moved[static_cast<size_t>(side)].push_back(std::move(stream));
      }
    }
    std::vector<int32_t> order;
    for (const std::vector<int32_t>& some : members) {
      order.insert(order.end(), some.begin(), some.end());
    }
    const std::vector<int32_t> positions = entries.Positions(h);
    KVG_ASSIGN(HeadEntries head, entries.Gathered(h, order, {}));
    head.has_positions =
        entries.heads[at].has_positions || !std::is_sorted(order.begin(), order.end());
    if (head.has_positions) KVG_TRY(head.positions.Assign(PickedOf(positions, order)));
    entries.heads[at] = std::move(head);
    for (const KvSide side : kClassSides) {
      for (size_t part = 0; part <= count; ++part) {
        entries.parts[part].of(side)[at] = std::move(moved[static_cast<size_t>(side)][part]);
      }
    }
  }
  return {};
}

void ClassesLayer::Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
                        Tensor rows) const {
  LayerLayout::Read(entries, side, head, first, rows);
  const auto at = static_cast<size_t>(head);
  int64_t begin = 0, end = 0;  // of a part, in the head
  for (size_t part = 0; part < plan_.classes.size(); ++part, begin = end) {
    end += entries.parts[part].of(side)[at].length();
    const int64_t from = std::max(begin, first), to = std::min(end, first + rows.shape[0]);
    if (from >= to || !IsChanged(side, part)) continue;
    Ops& ops = entries.ops();
    const Tensor some = rows.Slice(from - first, to - first);
    const int64_t n = to - from, dim = rows.shape[1];
    if (Turns(side)) {
      const Buffer memory = ops.memory->Allocate(n * dim * 4);
      const Tensor turned = memory.As(DType::kF32, {n, dim});
      ops.rows->Convert(some, turned);
      ops.linear->MatMulNT(turned.Reshape({1, n, dim}), ScalesOf(side).turn.Reshape({1, dim, dim}),
                           1.0f, some.Reshape({1, n, dim}));
    }
    if (ScalesOf(side).host.empty()) continue;
    ops.rows->Combine(some, ScalesOf(side).rows[head], Binary::kMultiply, some);
  }
}

void ClassesLayer::Describe(const LayerEntries& entries, std::span<KvSegment> segments) const {
  const size_t parts = entries.parts.size();
  for (size_t at = 0; at < segments.size(); ++at) {
    const size_t head = at / parts, part = at % parts;
    if (IsChanged(KvSide::kKeys, part)) {
      segments[at].key_basis = ScalesOf(KvSide::kKeys).back[head];
    }
    if (IsChanged(KvSide::kValues, part)) {
      segments[at].value_basis = ScalesOf(KvSide::kValues).back[head];
    }
  }
}

void ClassesLayer::AddBytes(const LayerEntries& entries, KvBytes& bytes) const {
  LayerLayout::AddBytes(entries, bytes);
  // A method must hold the scales; as matrices they take more.
  int64_t scales = 0;
  for (const Scales& own : scales_) scales += std::ssize(own.host) * SizeOf(DType::kF32);
  int64_t words = 0;
  for (const ClassesPlan::Class& one : plan_.classes) {
    for (const Tensor* table : {&one.key_table, &one.value_table}) {
      if (!table->empty()) words += table->SizeBytes();
    }
  }
  bytes.scales += scales + words;
  bytes.slack += memory_->allocated_bytes() - scales + tables_->allocated_bytes() - words;
}

}  // namespace
KVG_REGISTER_LAYOUT(classes, Classes, ClassesLayer)
}  // namespace kvgauge
