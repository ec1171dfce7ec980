// SPDX-License-Identifier: Apache-2.0
#include "src/cache/layouts/coded.h"

#include <algorithm>
#include <bit>

#include "core/strings.h"
#include "src/cache/bytes.h"

namespace kvgauge {
namespace {

// For streams of that many numbers: a group that is a whole entry stays one. Groups of entries are
// of any size.
KvCodec Fitted(KvCodec codec, int64_t dim) {
  const bool over_entries =
      codec.kind == KvCodecKind::kPolarPairs || codec.kind == KvCodecKind::kMeanSizes;
  if (codec.coded() && codec.axis == CodeAxis::kToken && !over_entries) {
    const bool whole = codec.group > 0 && codec.group == codec.dim;
    codec.group = whole ? dim : std::min(codec.group, dim);
  }
  codec.dim = dim;
  return codec;
}

Status CheckStream(const char* name, const KvCodec& codec, const SealRule& rule) {
  if (!codec.coded()) return {};
  const Status status = CheckCodec(codec);
  if (!status.ok()) return status.error().Wrap(StrCat("codec of ", name));
  if (rule.unit < 1 || rule.unit % SealUnit(codec) != 0 || rule.keep_recent < 0) {
    return BadInput(StrCat("seal rule of ", name, ": ", rule.unit, " entries at a time, ",
                           rule.keep_recent, " kept; the codec seals multiples of ",
                           SealUnit(codec)));
  }
  return {};
}

// Host tables.
void PutTable(std::string& out, const Tensor& table) {
  PutNumber(out, table.empty() ? 0 : table.Numel());
  if (!table.empty()) PutBytes(out, std::span<const float>(table.f32(), table.Numel()));
}

// A codebook says with its range that edges of its codes follow; an affine codec, that two pages
// have one range, or that the number of such pages follows, that its scales are exact, or that what
// its ranges are multiplied by follows.
constexpr int64_t kWithEdges = 8, kOverTwoPages = 16, kOverPages = 32, kExactScale = 64;
constexpr int64_t kClipped = 128;

bool HasEdges(const KvCodec& codec) {
  return codec.kind == KvCodecKind::kCodebook && !codec.table.empty();
}

void PutClip(std::string& out, const KvCodec& codec) {
  PutNumber(out, static_cast<int64_t>(std::bit_cast<uint32_t>(codec.clip)));
}

Status TakeClip(std::string_view& in, KvCodec* codec) {
  int64_t clip = 0;
  KVG_TRY(TakeNumber(in, "clipping of a codec", 0, UINT32_MAX, &clip));
  codec->clip = std::bit_cast<float>(static_cast<uint32_t>(clip));
  return {};
}

void PutCodec(std::string& out, const KvCodec& codec) {
  const int64_t edges = HasEdges(codec) ? kWithEdges : 0;
  const bool own = codec.range_pages == 1;
  const int64_t pages = own ? 0 : codec.range_pages == 2 ? kOverTwoPages : kOverPages;
  const bool clipped = codec.kind == KvCodecKind::kAffine && codec.clip != 1;
  const int64_t exact = (codec.exact_scale ? kExactScale : 0) + (clipped ? kClipped : 0);
  for (const int64_t number :
       {static_cast<int64_t>(codec.kind), codec.dim, static_cast<int64_t>(codec.dtype),
        static_cast<int64_t>(codec.bits), static_cast<int64_t>(codec.axis), codec.group,
        static_cast<int64_t>(codec.symmetric),
        static_cast<int64_t>(codec.range) + edges + pages + exact, codec.rank,
        std::bit_cast<int64_t>(codec.outlier_share)}) {
    PutNumber(out, number);
  }
  if (pages == kOverPages) PutNumber(out, codec.range_pages);
  if (clipped) PutClip(out, codec);
  for (const Tensor* table :
       {&codec.levels, &codec.channel_low, &codec.channel_high, &codec.fixed_scale}) {
    PutTable(out, *table);
  }
  if (HasEdges(codec)) PutTable(out, codec.table);
  if (!IsRecord(codec.kind)) return;
  for (const int64_t number : {codec.stages, codec.apart, static_cast<int64_t>(codec.commuting)}) {
    PutNumber(out, number);
  }
  PutClip(out, codec);
  PutTable(out, codec.table);
}

void PutRule(std::string& out, const SealRule& rule) {
  PutNumber(out, rule.unit);
  PutNumber(out, rule.keep_recent);
}

Status TakeRule(std::string_view& in, SealRule* rule) {
  KVG_TRY(TakeNumber(in, "unit of a seal rule", 1, INT32_MAX, &rule->unit));
  return TakeNumber(in, "entries that stay", 0, INT32_MAX, &rule->keep_recent);
}

// Whether a layer's sinks have a part of their own, and whether other codes follow.
constexpr int64_t kInParts = 1, kOtherCodes = 2;

// Scales of owners, or of their channels.
Status TakeScales(std::string_view& in, int64_t heads, int64_t width, std::vector<float>* memory,
                  Tensor* scales) {
  KVG_TRY(TakeArray(in, memory));
  if (memory->empty()) return {};
  const int64_t count = std::ssize(*memory);
  if (count != 1 && count != heads && count != heads * width) {
    return BadInput(StrCat("cache bytes: ", count, " fixed scales; expected 1, ", heads, " or ",
                           heads * width));
  }
  const int64_t rows = count == 1 ? 1 : heads;
  *scales = View(*memory, {rows, count / rows});
  return {};
}

}  // namespace

Status CodedLayer::Use(const StoreLayout& plan, const LayerEntries& entries) {
  plan_ = static_cast<const Coded&>(plan);
  return OwnTables(entries);
}

Status CodedLayer::OwnTables(const LayerEntries& entries) {
  auto tables = std::make_shared<Tables>();
  Ops& ops = entries.ops();
  const auto own = [&](Tensor& table, void* memory) {
    Tensor host = table;
    host.data = memory;
    host.device = Device::kHost;
    ops.memory->Copy(table, host);
    table = host;
  };
  const auto constant = [&](Tensor& table) {
    own(table, tables->emplace_back(static_cast<size_t>(table.Numel())).data());
  };
  for (KvCodec* codec : {&plan_.keys, &plan_.values}) {
    for (Tensor* table : {&codec->levels, &codec->channel_low, &codec->channel_high,
                          &codec->fixed_scale, &codec->table}) {
      if (!table->empty()) constant(*table);
    }
  }
  // A device's pool has no memory that the host can read.
  BlockPool& pool =
      ops.device == Device::kHost ? *entries.pool : entries.setup->pools->of(Tier::kHost);
  auto found = std::make_shared<BlockList>(pool);
  for (Tensor* table : TablesOfHeads()) {
    if (table->empty()) continue;
    if (IsConstant(*table)) {
      constant(*table);
      continue;
    }
    KVG_TRY(found->Push(table->SizeBytes()));
    own(*table, (*found)[found->size() - 1]);
  }
  tables_ = std::move(tables);
  ranges_ = std::move(found);
  return {};
}

std::array<Tensor*, 6> CodedLayer::TablesOfHeads() {
  return {&plan_.ranges.low,    &plan_.ranges.high, &plan_.scales.keys,
          &plan_.scales.values, &plan_.tables.keys, &plan_.tables.values};
}

bool CodedLayer::IsConstant(const Tensor& table) const {
  if (&table == &plan_.tables.keys || &table == &plan_.tables.values) return !plan_.tables.found;
  const bool range = &table == &plan_.ranges.low || &table == &plan_.ranges.high;
  return range ? plan_.ranges.constant : plan_.scales.constant;
}

Status CodedLayer::Put(std::string& out) const {
  PutCodec(out, plan_.keys);
  PutCodec(out, plan_.values);
  PutRule(out, plan_.seal_keys);
  PutRule(out, plan_.seal_values);
  for (const int64_t number :
       {plan_.sinks, static_cast<int64_t>(plan_.tier), static_cast<int64_t>(plan_.ranges.constant),
        (split_ ? kInParts : 0) + (plan_.later ? kOtherCodes : 0)}) {
    PutNumber(out, number);
  }
  if (plan_.later) {
    PutCodec(out, plan_.later->keys);
    PutCodec(out, plan_.later->values);
    PutRule(out, plan_.later->seal_keys);
    PutRule(out, plan_.later->seal_values);
  }
  PutTable(out, plan_.ranges.low);
  PutTable(out, plan_.ranges.high);
  PutNumber(out, static_cast<int64_t>(plan_.scales.constant));
  PutTable(out, plan_.scales.keys);
  PutTable(out, plan_.scales.values);
  if (!IsRecord(plan_.keys.kind) && !IsRecord(plan_.values.kind)) return {};
  PutNumber(out, static_cast<int64_t>(plan_.tables.found));
  PutTable(out, plan_.tables.keys);
  PutTable(out, plan_.tables.values);
  return {};
}

Status CodedLayer::Take(std::string_view& in, const LayerEntries& entries) {
  auto tables = std::make_shared<Tables>();
  KVG_TRY(TakeCodec(in, KvSide::kKeys, &plan_.keys, tables.get()));
  KVG_TRY(TakeCodec(in, KvSide::kValues, &plan_.values, tables.get()));
  KVG_TRY(TakeRule(in, &plan_.seal_keys));
  KVG_TRY(TakeRule(in, &plan_.seal_values));
  KVG_TRY(TakeNumber(in, "sinks", 0, INT32_MAX, &plan_.sinks));
  KVG_TRY(TakeEnum(in, "tier", Tier::kDisk, &plan_.tier));
  KVG_TRY(TakeFlag(in, "constant ranges", &plan_.ranges.constant));
  int64_t parts = 0;
  KVG_TRY(TakeNumber(in, "parts of a layer", 0, kInParts + kOtherCodes, &parts));
  split_ = parts % kOtherCodes == kInParts;
  if (parts >= kOtherCodes) {
    LaterCodes& later = plan_.later.emplace();
    KVG_TRY(TakeCodec(in, KvSide::kKeys, &later.keys, tables.get()));
    KVG_TRY(TakeCodec(in, KvSide::kValues, &later.values, tables.get()));
    KVG_TRY(TakeRule(in, &later.seal_keys));
    KVG_TRY(TakeRule(in, &later.seal_values));
  }
  if (split_ && !planned()) {
    return BadInput("cache bytes: a plain layer is in parts; expected it whole");
  }
  KVG_TRY(TakeRanges(in, entries, tables.get()));
  KVG_TRY(TakeFlag(in, "constant scales", &plan_.scales.constant));
  const int64_t heads = entries.setup->kv_heads;
  KVG_TRY(TakeScales(in, heads, entries.HeadDim(KvSide::kKeys), &tables->emplace_back(),
                     &plan_.scales.keys));
  KVG_TRY(TakeScales(in, heads, entries.HeadDim(KvSide::kValues), &tables->emplace_back(),
                     &plan_.scales.values));
  if (IsRecord(plan_.keys.kind) || IsRecord(plan_.values.kind)) {
    KVG_TRY(TakeFlag(in, "tables of this sequence", &plan_.tables.found));
    KVG_TRY(TakeHeadTable(in, heads, tables.get(), &plan_.tables.keys));
    KVG_TRY(TakeHeadTable(in, heads, tables.get(), &plan_.tables.values));
  }
  return OwnTables(entries);
}

Status CodedLayer::Check(const LayerEntries& entries) const {
  KVG_TRY(LayerLayout::Check(entries));
  return CheckCodes(entries);
}

Status CodedLayer::CheckCodes(const LayerEntries& entries) const {
  if (plan_.tier != Tier::kDevice && entries.ops().device != Device::kHost) {
    return Unsupported(StrCat("tier ", NameOf(plan_.tier),
                              ": attention of this device reads its own memory only"));
  }
  if (plan_.sinks < 0) return BadInput(StrCat("sinks ", plan_.sinks, ": must not be negative"));
  if (!plan_.ranges.low.empty()) {
    const auto of_heads = [&](const Tensor& table) {
      return table.rank == 2 && table.shape[0] == entries.setup->kv_heads;
    };
    KVG_CHECK(of_heads(plan_.ranges.low) && of_heads(plan_.ranges.high),
              "key ranges must be f32 [kv_heads, key_dim]");
    if (transforms(KvSide::kKeys)) {
      return Unsupported("key ranges are of channels; latents of groups of heads have none");
    }
  }
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    const bool keys = side == KvSide::kKeys;
    const Tensor& scales = keys ? plan_.scales.keys : plan_.scales.values;
    if (!scales.empty()) {
      KVG_CHECK(
          scales.rank == 2 && (scales.shape[0] == 1 || scales.shape[0] == owners(entries, side)),
          "fixed scales must be f32 [1, 1], [kv_heads, 1] or [kv_heads, dim]");
    }
    for (int64_t o = 0; o < owners(entries, side); ++o) {
      const int64_t width = dim(entries, side, o);
      KVG_TRY(CheckStream(keys ? "keys" : "values", Fitted(CodecOf(side, o), width),
                          keys ? plan_.seal_keys : plan_.seal_values));
      if (!plan_.later) continue;
      KVG_TRY(CheckStream(keys ? "later keys" : "later values", Fitted(LaterCodecOf(side), width),
                          keys ? plan_.later->seal_keys : plan_.later->seal_values));
    }
  }
  return {};
}

KvCodec CodedLayer::CodecOf(KvSide side, int64_t owner) const {
  const bool keys = side == KvSide::kKeys;
  KvCodec codec = keys ? plan_.keys : plan_.values;
  const Tensor& scales = keys ? plan_.scales.keys : plan_.scales.values;
  if (!scales.empty()) codec.fixed_scale = scales[scales.shape[0] == 1 ? 0 : owner];
  const Tensor& of_heads = keys ? plan_.tables.keys : plan_.tables.values;
  if (!of_heads.empty()) codec.table = of_heads[owner];
  if (keys && !plan_.ranges.low.empty()) {
    codec.channel_low = plan_.ranges.low[owner];
    codec.channel_high = plan_.ranges.high[owner];
  }
  return codec;
}

KvCodec CodedLayer::LaterCodecOf(KvSide side) const {
  return side == KvSide::kKeys ? plan_.later->keys : plan_.later->values;
}

Status CodedLayer::Convert(LayerEntries& entries, std::span<const LayerPair>) {
  // What was taken from bytes begins in the parts it had.
  return split_ ? Split(entries) : Status();
}

Status CodedLayer::Split(LayerEntries& entries) {
  LayerPart sinks = EmptyPart(entries);
  const std::array<int64_t, 2> counts = {owners(entries, KvSide::kKeys),
                                         owners(entries, KvSide::kValues)};
  BlockPool& pool = entries.setup->pools->of(plan_.tier);
  const auto part = [&](bool later) {
    return entries.NewPart(counts, pool, [&](KvSide side, int64_t owner) {
      const bool keys = side == KvSide::kKeys;
      StreamSpec spec;
      spec.side = side;
      spec.dtype = entries.setup->format.dtype;
      spec.dim = dim(entries, side, owner);
      spec.codec = Fitted(later ? LaterCodecOf(side) : CodecOf(side, owner), spec.dim);
      spec.rule = keys ? plan_.seal_keys : plan_.seal_values;
      if (later) spec.rule = keys ? plan_.later->seal_keys : plan_.later->seal_values;
      return spec;
    });
  };
  LayerPart body = part(false);
  LayerPart behind = plan_.later ? part(true) : LayerPart();
  const SealRule& rule = plan_.seal_keys;
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    const std::vector<Stream>& from = entries.parts[0].of(side);
    for (size_t o = 0; o < from.size(); ++o) {
      const int64_t n = from[o].length(), first = std::min(n, plan_.sinks);
      const int64_t width = from[o].spec().dim;
      if (n == 0) continue;
      const Buffer memory = entries.ops().memory->Allocate(n * width * 4);
      const Tensor rows = memory.As(DType::kF32, {n, width});
      from[o].Read(0, rows);
      const int64_t due = std::max<int64_t>(0, n - first - rule.keep_recent) / rule.unit;
      const int64_t end = plan_.later ? first + due * rule.unit : n;
      if (first > 0) KVG_TRY(sinks.of(side)[o].Append(rows.Slice(0, first)));
      if (first < end) KVG_TRY(body.of(side)[o].Append(rows.Slice(first, end)));
      if (end < n) KVG_TRY(behind.of(side)[o].Append(rows.Slice(end, n)));
    }
  }
  entries.parts.clear();
  if (plan_.sinks > 0) entries.parts.push_back(std::move(sinks));
  entries.parts.push_back(std::move(body));
  if (plan_.later) entries.parts.push_back(std::move(behind));
  split_ = true;
  return {};
}

Status CodedLayer::Seal(LayerEntries& entries, bool* changed) {
  if (!split_) {
    if (!planned() || entries.width() <= plan_.sinks) return {};
    KVG_TRY(Split(entries));
    *changed = true;
  }
  Status status;
  for (LayerPart& part : entries.parts) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      for (Stream& stream : part.of(side)) {
        if (!status.ok() || stream.Due() <= 0) continue;
        status = stream.Seal();
        *changed = true;
      }
    }
  }
  return status;
}

void CodedLayer::AddBytes(const LayerEntries& entries, KvBytes& bytes) const {
  LayerLayout::AddBytes(entries, bytes);
  for (const KvCodec* codec : {&plan_.keys, &plan_.values}) {
    for (const Tensor* table : {&codec->levels, &codec->channel_low, &codec->channel_high,
                                &codec->fixed_scale, &codec->table}) {
      if (!table->empty()) bytes.codebooks += table->SizeBytes();
    }
  }
  // Those found in this sequence are its own.
  int64_t found = 0;
  for (const Tensor* table : {&plan_.ranges.low, &plan_.ranges.high, &plan_.scales.keys,
                              &plan_.scales.values, &plan_.tables.keys, &plan_.tables.values}) {
    if (table->empty()) continue;
    (IsConstant(*table) ? bytes.codebooks : found) += table->SizeBytes();
  }
  bytes.scales += found;
  bytes.slack += ranges_->allocated_bytes() - found;
}

Status CodedLayer::TakeTable(std::string_view& in, Tables* tables, Tensor* table) {
  std::vector<float>& memory = tables->emplace_back();
  KVG_TRY(TakeArray(in, &memory));
  if (!memory.empty()) *table = View(memory, {std::ssize(memory)});
  return {};
}

Status CodedLayer::TakeCodec(std::string_view& in, KvSide side, KvCodec* codec, Tables* tables) {
  constexpr int64_t kMost = int64_t{1} << 20;
  codec->side = side;
  int64_t bits = 0, share = 0;
  KVG_TRY(TakeEnum(in, "kind of codec", kLastCodecKind, &codec->kind));
  KVG_TRY(TakeNumber(in, "dims of a codec", 0, kMost, &codec->dim));
  KVG_TRY(TakeEnum(in, "type of a codec", DType::kBF16, &codec->dtype));
  KVG_TRY(TakeNumber(in, "bits of a codec", 0, 12, &bits));
  codec->bits = static_cast<int>(bits);
  KVG_TRY(TakeEnum(in, "axis of a codec", CodeAxis::kChannel, &codec->axis));
  KVG_TRY(TakeNumber(in, "group of a codec", 0, kMost, &codec->group));
  KVG_TRY(TakeFlag(in, "symmetry of a codec", &codec->symmetric));
  int64_t range = 0;
  constexpr auto kLastRange = static_cast<int64_t>(CodeRange::kLargest);
  KVG_TRY(TakeNumber(in, "range of a codec", 0, kClipped + kExactScale + kLastRange, &range));
  const bool clipped = range >= kClipped;
  if (clipped) range -= kClipped;
  codec->exact_scale = range >= kExactScale;
  if (codec->exact_scale) range -= kExactScale;
  const bool pages = range >= kOverPages;
  if (pages) {
    range -= kOverPages;
  } else if (range >= kOverTwoPages) {
    codec->range_pages = 2;
    range -= kOverTwoPages;
  }
  const bool edges = range >= kWithEdges;
  if (edges) range -= kWithEdges;
  const bool over_pages = pages || codec->range_pages > 1;
  const bool of_entries = codec->exact_scale || clipped;
  if (range > kLastRange || (edges && codec->kind != KvCodecKind::kCodebook) ||
      (over_pages && of_entries) ||
      ((over_pages || of_entries) && codec->kind != KvCodecKind::kAffine)) {
    return BadInput(
        StrCat("cache bytes: range ", range, " of a codec", edges ? " with edges" : ""));
  }
  codec->range = static_cast<CodeRange>(range);
  KVG_TRY(TakeNumber(in, "rank of a codec", 0, kMost, &codec->rank));
  KVG_TRY(TakeNumber(in, &share));
  codec->outlier_share = std::bit_cast<double>(share);
  if (pages) KVG_TRY(TakeNumber(in, "pages of one range", 0, kMost, &codec->range_pages));
  if (clipped) KVG_TRY(TakeClip(in, codec));
  for (Tensor* table :
       {&codec->levels, &codec->channel_low, &codec->channel_high, &codec->fixed_scale}) {
    KVG_TRY(TakeTable(in, tables, table));
  }
  if (edges) KVG_TRY(TakeTable(in, tables, &codec->table));
  if (!IsRecord(codec->kind)) return {};
  KVG_TRY(TakeNumber(in, "stages of a record", 0, kMost, &codec->stages));
  KVG_TRY(TakeNumber(in, "distance of paired dims", 0, kMost, &codec->apart));
  KVG_TRY(TakeFlag(in, "commuting codewords", &codec->commuting));
  KVG_TRY(TakeClip(in, codec));
  return TakeTable(in, tables, &codec->table);
}

// A row of a table for each head.
Status CodedLayer::TakeHeadTable(std::string_view& in, int64_t heads, Tables* tables,
                                 Tensor* table) {
  KVG_TRY(TakeTable(in, tables, table));
  if (table->empty()) return {};
  if (table->Numel() % heads != 0) {
    return BadInput(StrCat("cache bytes: a table of ", table->Numel(), " numbers for ", heads,
                           " heads; expected a multiple"));
  }
  *table = table->Reshape({heads, table->Numel() / heads});
  return {};
}

Status CodedLayer::TakeRanges(std::string_view& in, const LayerEntries& entries, Tables* tables) {
  KVG_TRY(TakeTable(in, tables, &plan_.ranges.low));
  KVG_TRY(TakeTable(in, tables, &plan_.ranges.high));
  Tensor &low = plan_.ranges.low, &high = plan_.ranges.high;
  if (low.empty() && high.empty()) return {};
  const int64_t heads = entries.setup->kv_heads, width = entries.HeadDim(KvSide::kKeys);
  const int64_t numbers = low.empty() ? 0 : low.Numel();
  if (high.empty() || high.Numel() != numbers || numbers != heads * width) {
    return BadInput(
        StrCat("cache bytes: ranges of ", numbers, " numbers; expected ", heads * width));
  }
  for (Tensor* table : {&low, &high}) *table = table->Reshape({heads, width});
  return {};
}

KVG_REGISTER_LAYOUT(coded, Coded, CodedLayer)
}  // namespace kvgauge
