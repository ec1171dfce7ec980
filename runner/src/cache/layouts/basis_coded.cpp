// SPDX-License-Identifier: Apache-2.0
// Entries that were rounded by a transform coder. In memory they are plain, with their codes beside
// them; a written cache has the codes, which give the same entries again.
#include "methods/layouts/basis_coded.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/entropy.h"
#include "core/strings.h"
#include "methods/tensors.h"
#include "src/cache/blocks.h"
#include "src/cache/bytes.h"
#include "src/cache/layer_layout.h"
#include "src/cache/token_rows.h"

namespace kvgauge {
namespace {

// Tokens whose codes share tables, and are turned together.
constexpr int64_t kCoderTokens = 256;

// The codes of one side: of each token and group with bits the least coordinate and the step, f16;
// of each coordinate of such groups a byte.
struct CoderCodes {
  std::vector<uint16_t> scales;  // [tokens][groups][2]
  std::vector<uint8_t> codes;    // [tokens][kept]
};

// The same in a block of a pool that the host can read, as long as the layer has them.
class HeldCodes {
 public:
  static Result<std::shared_ptr<const HeldCodes>> Of(const CoderCodes& from, BlockPool& pool) {
    auto held = std::make_shared<HeldCodes>(pool);
    const size_t scales = from.scales.size() * sizeof(uint16_t), codes = from.codes.size();
    if (scales + codes == 0) return std::shared_ptr<const HeldCodes>(std::move(held));
    KVG_TRY(held->memory_.Push(static_cast<int64_t>(scales + codes)));
    auto* const bytes = static_cast<uint8_t*>(held->memory_[0]);
    if (scales > 0) std::memcpy(bytes, from.scales.data(), scales);
    if (codes > 0) std::memcpy(bytes + scales, from.codes.data(), codes);
    held->scales_ = {reinterpret_cast<const uint16_t*>(bytes), from.scales.size()};
    held->codes_ = {bytes + scales, codes};
    return std::shared_ptr<const HeldCodes>(std::move(held));
  }
  explicit HeldCodes(BlockPool& pool) : memory_(pool) {}
  HeldCodes(const HeldCodes&) = delete;
  HeldCodes& operator=(const HeldCodes&) = delete;

  std::span<const uint16_t> scales() const { return scales_; }
  std::span<const uint8_t> codes() const { return codes_; }
  int64_t allocated_bytes() const { return memory_.allocated_bytes(); }

 private:
  BlockList memory_;
  std::span<const uint16_t> scales_;
  std::span<const uint8_t> codes_;
};

// One side of the plan on the host, and its numbers on the device.
struct CoderSide {
  std::vector<float> mean, basis;  // [width], [width, width]
  std::vector<BasisCoded::Group> groups;

  int64_t width() const { return std::ssize(mean); }
  int64_t kept() const { return Sum(true); }
  int64_t coded_groups() const { return Sum(false); }

 private:
  int64_t Sum(bool coordinates) const {
    int64_t sum = 0;
    for (const BasisCoded::Group& group : groups) {
      if (group.bits > 0) sum += coordinates ? group.size : 1;
    }
    return sum;
  }
};

float HalfOf(float v, uint16_t* bits) {
  *bits = F32ToF16(std::clamp(v, -65504.0f, 65504.0f));
  return F16ToF32(*bits);
}

// coordinates [n][width] to codes behind those that are there.
void CodeCoordinates(const CoderSide& side, std::span<const float> coordinates, CoderCodes* out) {
  const auto width = static_cast<size_t>(side.width());
  for (size_t at = 0; at < coordinates.size(); at += width) {
    size_t first = at;
    for (const BasisCoded::Group& group : side.groups) {
      const std::span<const float> some =
          coordinates.subspan(first, static_cast<size_t>(group.size));
      first += some.size();
      if (group.bits == 0) continue;
      const auto [low, high] = std::minmax_element(some.begin(), some.end());
      const float top = static_cast<float>((1 << group.bits) - 1);
      uint16_t least = 0, step = 0;
      const float from = HalfOf(*low, &least), by = HalfOf((*high - *low) / top, &step);
      out->scales.insert(out->scales.end(), {least, step});
      for (const float v : some) {
        const float code = by > 0 ? std::nearbyint((v - from) / by) : 0.0f;
        // What is no number counts as the least.
        out->codes.push_back(
            static_cast<uint8_t>(std::isfinite(code) ? std::clamp(code, 0.0f, top) : 0.0f));
      }
    }
  }
}

// The coordinates of tokens [first, end).
std::vector<float> CoordinatesOf(const CoderSide& side, const CoderCodes& coded, int64_t first,
                                 int64_t end) {
  std::vector<float> out(static_cast<size_t>((end - first) * side.width()));
  auto scale = coded.scales.begin() + first * 2 * side.coded_groups();
  auto code = coded.codes.begin() + first * side.kept();
  auto to = out.begin();
  for (int64_t t = first; t < end; ++t) {
    for (const BasisCoded::Group& group : side.groups) {
      if (group.bits > 0) {
        const float from = F16ToF32(scale[0]), by = F16ToF32(scale[1]);
        for (int64_t i = 0; i < group.size; ++i) {
          const float product = by * static_cast<float>(*code++);
          to[i] = product + from;
        }
        scale += 2;
      }
      to += group.size;
    }
  }
  return out;
}

// A table for each coordinate that is kept; those of a group are the same.
std::vector<SymbolTable> TablesOfGroups(const CoderSide& side,
                                        const std::vector<SymbolTable>& of_groups) {
  std::vector<SymbolTable> tables;
  size_t at = 0;
  for (const BasisCoded::Group& group : side.groups) {
    if (group.bits == 0) continue;
    tables.insert(tables.end(), static_cast<size_t>(group.size), of_groups[at]);
    ++at;
  }
  return tables;
}

void PutCoder(const CoderSide& side, const HeldCodes& coded, int64_t first, int64_t end,
              std::string& out) {
  const int64_t scales = 2 * side.coded_groups(), kept = side.kept();
  PutBytes(out, coded.scales().subspan(static_cast<size_t>(first * scales),
                                       static_cast<size_t>((end - first) * scales)));
  const std::span<const uint8_t> codes = coded.codes().subspan(
      static_cast<size_t>(first * kept), static_cast<size_t>((end - first) * kept));
  std::vector<SymbolTable> of_groups;
  int64_t begin = 0;
  for (const BasisCoded::Group& group : side.groups) {
    if (group.bits == 0) continue;
    std::vector<uint32_t> counts(size_t{1} << group.bits);
    for (int64_t t = 0; t < end - first; ++t) {
      for (int64_t i = 0; i < group.size; ++i) {
        ++counts[codes[static_cast<size_t>(t * kept + begin + i)]];
      }
    }
    begin += group.size;
    const SymbolTable& table = of_groups.emplace_back(SymbolTable::OfCounts(counts));
    for (size_t s = 0; s < table.size(); ++s) {
      const auto share = static_cast<uint16_t>(table.share(s));
      PutBytes(out, std::span<const uint16_t>(&share, 1));
    }
  }
  const std::string symbols =
      kept == 0 ? std::string() : EncodeSymbols(codes, TablesOfGroups(side, of_groups));
  PutArray(out, std::vector<char>(symbols.begin(), symbols.end()));
}

Status TakeCoder(std::string_view& in, const CoderSide& side, int64_t tokens, CoderCodes* coded) {
  const int64_t scales = 2 * side.coded_groups(), kept = side.kept();
  KVG_TRY(CheckLeft(in, tokens * scales, sizeof(uint16_t)));
  const size_t scales_before = coded->scales.size(), codes_before = coded->codes.size();
  coded->scales.resize(scales_before + static_cast<size_t>(tokens * scales));
  KVG_TRY(TakeBytes(in, std::span(coded->scales).subspan(scales_before)));
  for (size_t i = scales_before; i < coded->scales.size(); ++i) {
    if (std::isfinite(F16ToF32(coded->scales[i]))) continue;
    return BadInput(StrCat("cache bytes: a scale is ", F16ToF32(coded->scales[i]),
                           "; expected a finite number"));
  }
  std::vector<SymbolTable> of_groups;
  for (const BasisCoded::Group& group : side.groups) {
    if (group.bits == 0) continue;
    std::vector<uint16_t> shares(size_t{1} << group.bits);
    KVG_TRY(CheckLeft(in, std::ssize(shares), sizeof(uint16_t)));
    KVG_TRY(TakeBytes(in, std::span<uint16_t>(shares)));
    const Result<SymbolTable> table = SymbolTable::OfShares(shares);
    if (!table.ok()) return table.error().Wrap("cache bytes: shares of a group");
    of_groups.push_back(*table);
  }
  std::vector<char> symbols;
  KVG_TRY(TakeArray(in, &symbols));
  if (kept == 0) return {};
  coded->codes.resize(codes_before + static_cast<size_t>(tokens * kept));
  const Status decoded =
      DecodeSymbols(std::string_view(symbols.data(), symbols.size()),
                    TablesOfGroups(side, of_groups), std::span(coded->codes).subspan(codes_before));
  return decoded.ok() ? decoded : decoded.error().Wrap("cache bytes");
}

class BasisCodedLayer final : public LayerLayout {
 public:
  std::string_view id() const override { return BasisCoded::kId; }
  std::unique_ptr<LayerLayout> Fork() const override {
    return std::make_unique<BasisCodedLayer>(*this);
  }

  Status Use(const StoreLayout& plan, const LayerEntries& entries) override {
    const auto& asked = static_cast<const BasisCoded&>(plan);
    sinks_ = asked.sinks;
    recent_ = asked.recent;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const BasisCoded::Side& from = side == KvSide::kKeys ? asked.keys : asked.values;
      const char* name = side == KvSide::kKeys ? "keys" : "values";
      KVG_TRY(CheckBasisCoded(name, from, TokenWidth(entries, side)));
      auto own = std::make_shared<CoderSide>();
      own->groups = from.groups;
      own->mean = OnHost(entries.ops(), from.mean);
      own->basis = OnHost(entries.ops(), from.basis);
      sides_[static_cast<size_t>(side)] = std::move(own);
    }
    return {};
  }
  Status Put(std::string& out) const override {
    PutNumber(out, sinks_);
    PutNumber(out, recent_);
    for (const auto& side : sides_) {
      PutArray(out, side->mean);
      PutArray(out, side->basis);
      std::vector<int32_t> groups;
      for (const BasisCoded::Group& group : side->groups) {
        groups.push_back(static_cast<int32_t>(group.size));
        groups.push_back(group.bits);
      }
      PutArray(out, groups);
    }
    return {};
  }
  Status Take(std::string_view& in, const LayerEntries& entries) override {
    KVG_TRY(TakeNumber(in, "sinks", 0, INT32_MAX, &sinks_));
    KVG_TRY(TakeNumber(in, "entries that stay", 0, INT32_MAX, &recent_));
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      auto own = std::make_shared<CoderSide>();
      std::vector<int32_t> groups;
      KVG_TRY(TakeArray(in, &own->mean));
      KVG_TRY(TakeArray(in, &own->basis));
      KVG_TRY(TakeArray(in, &groups));
      for (size_t i = 0; i + 1 < groups.size(); i += 2) {
        own->groups.push_back({groups[i], groups[i + 1]});
      }
      const int64_t width = TokenWidth(entries, side);
      if (own->width() != width || std::ssize(own->basis) != width * width) {
        return BadInput(StrCat("cache bytes: a basis of ", own->basis.size(), " numbers for ",
                               width, " numbers of a token"));
      }
      BasisCoded::Side check;
      check.mean = View(own->mean, {1, width});
      check.basis = View(own->basis, {width, width});
      check.groups = own->groups;
      KVG_TRY(CheckBasisCoded("cache bytes", check, width));
      sides_[static_cast<size_t>(side)] = std::move(own);
    }
    return {};
  }
  bool rounds() const override { return coded_ > 0; }
  Status CheckReduce(std::span<const HeadPlan> plan) const override {
    if (plan.empty()) return {};
    return Unsupported("entries whose codes heads share cannot be dropped or merged");
  }
  // Those that come in their place are as they are.
  void Truncated(const LayerEntries& entries) override {
    first_ = std::min(first_, entries.width());
    coded_ = std::min(coded_, entries.width() - first_);
  }

  Status Convert(LayerEntries& entries, std::span<const LayerPair>) override {
    KVG_TRY(CheckAlike(entries));
    const int64_t n = entries.width();
    first_ = std::min(sinks_, n);
    coded_ = std::max<int64_t>(0, n - first_ - recent_);
    LayerPart rounded = EmptyPart(entries);
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      CoderCodes codes;
      std::vector<Stream>& streams = rounded.of(side);
      KVG_TRY(AppendTokenRows(entries, ReadTokenRows(entries, side, 0, first_), side, streams));
      for (int64_t at = 0; at < coded_; at += kCoderTokens) {
        const int64_t end = std::min(at + kCoderTokens, coded_);
        const std::vector<float> rows = ReadTokenRows(entries, side, first_ + at, first_ + end);
        CodeCoordinates(Of(side), Turned(entries, side, rows), &codes);
        KVG_TRY(AppendTokenRows(entries,
                                TurnedBack(entries, side, CoordinatesOf(Of(side), codes, at, end)),
                                side, streams));
      }
      KVG_TRY(AppendTokenRows(entries, ReadTokenRows(entries, side, first_ + coded_, n), side,
                              streams));
      KVG_ASSIGN(codes_[static_cast<size_t>(side)], HeldCodes::Of(codes, HostPool(entries)));
    }
    entries.parts.clear();
    entries.parts.push_back(std::move(rounded));
    return {};
  }

  void PutEntries(const LayerEntries& entries, std::string& out) const override {
    PutNumber(out, first_);
    PutNumber(out, coded_);
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      PutArray(out, ReadTokenRows(entries, side, 0, first_));
      for (int64_t at = 0; at < coded_; at += kCoderTokens) {
        PutCoder(Of(side), *codes_[static_cast<size_t>(side)], at,
                 std::min(at + kCoderTokens, coded_), out);
      }
      PutArray(out, ReadTokenRows(entries, side, first_ + coded_, entries.width()));
    }
  }

  Status TakeEntries(std::string_view& in, LayerEntries& entries) override {
    KVG_TRY(CheckAlike(entries));
    const int64_t n = entries.width();
    KVG_TRY(TakeNumber(in, "first entries", 0, n, &first_));
    KVG_TRY(TakeNumber(in, "coded entries", 0, n - first_, &coded_));
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      std::vector<Stream>& streams = entries.parts[0].of(side);
      CoderCodes codes;
      KVG_TRY(TakeRows(in, entries, side, first_, streams));
      for (int64_t at = 0; at < coded_; at += kCoderTokens) {
        const int64_t end = std::min(at + kCoderTokens, coded_);
        KVG_TRY(TakeCoder(in, Of(side), end - at, &codes));
        KVG_TRY(AppendTokenRows(entries,
                                TurnedBack(entries, side, CoordinatesOf(Of(side), codes, at, end)),
                                side, streams));
      }
      KVG_TRY(TakeRows(in, entries, side, n - first_ - coded_, streams));
      KVG_ASSIGN(codes_[static_cast<size_t>(side)], HeldCodes::Of(codes, HostPool(entries)));
    }
    return {};
  }

  // Directions are constants, of the model or of the method's choice; codes stay beside the
  // entries.
  void AddBytes(const LayerEntries& entries, KvBytes& bytes) const override {
    LayerLayout::AddBytes(entries, bytes);
    for (size_t i = 0; i < sides_.size(); ++i) {
      const CoderSide& side = *sides_[i];
      const int64_t codes = coded_ * side.kept(), scales = coded_ * side.coded_groups() * 4;
      bytes.projections += (std::ssize(side.mean) + std::ssize(side.basis)) * 4;
      bytes.payload += codes;
      bytes.scales += scales;
      if (codes_[i] != nullptr) bytes.slack += codes_[i]->allocated_bytes() - codes - scales;
    }
  }

 private:
  const CoderSide& Of(KvSide side) const { return *sides_[static_cast<size_t>(side)]; }
  // A device's pool has no memory that the host can read.
  static BlockPool& HostPool(const LayerEntries& entries) {
    return entries.pool->OnHost() ? *entries.pool : entries.setup->pools->of(Tier::kHost);
  }
  static std::vector<float> OnHost(Ops& ops, const Tensor& from) {
    std::vector<float> numbers(static_cast<size_t>(from.Numel()));
    Tensor host = from;
    host.data = numbers.data();
    host.device = Device::kHost;
    ops.memory->Copy(from, host);
    ops.memory->Synchronize();
    return numbers;
  }
  static Status CheckAlike(const LayerEntries& entries) {
    for (int64_t h = 1; h < entries.setup->kv_heads; ++h) {
      if (entries.length(h) == entries.length(0)) continue;
      return Unsupported(StrCat("basis_coded: KV heads 0 and ", h, " hold ", entries.length(0),
                                " and ", entries.length(h),
                                " entries, so they cannot share what a token is coded by"));
    }
    return {};
  }

  // rows [n, width] without the mean, times the basis; and coordinates back.
  std::vector<float> Turned(const LayerEntries& entries, KvSide side,
                            std::vector<float> rows) const {
    const CoderSide& of = Of(side);
    const auto width = static_cast<size_t>(of.width());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] -= of.mean[i % width];
    return Product(entries.ops(), of, rows, false);
  }
  std::vector<float> TurnedBack(const LayerEntries& entries, KvSide side,
                                const std::vector<float>& coordinates) const {
    const CoderSide& of = Of(side);
    std::vector<float> rows = Product(entries.ops(), of, coordinates, true);
    const auto width = static_cast<size_t>(of.width());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] += of.mean[i % width];
    return rows;
  }
  static std::vector<float> Product(Ops& ops, const CoderSide& of, const std::vector<float>& rows,
                                    bool back) {
    const int64_t width = of.width(), n = std::ssize(rows) / width;
    std::vector<float> out(rows.size());
    const int64_t numbers = 2 * n * width + width * width;
    const Buffer memory = ops.memory->Allocate(numbers * 4);
    const Tensor all = memory.As(DType::kF32, {numbers});
    const Tensor in = all.Slice(0, n * width), to = all.Slice(n * width, 2 * n * width);
    const Tensor basis = all.Slice(2 * n * width, numbers).Reshape({1, width, width});
    ops.memory->Copy(View(rows, {n * width}), in);
    ops.memory->Copy(View(of.basis, {1, width, width}), basis);
    const Tensor a = in.Reshape({1, n, width}), b = to.Reshape({1, n, width});
    if (back) {
      ops.linear->MatMulNT(a, basis, 1.0f, b);
    } else {
      ops.linear->MatMulNN(a, basis, 1.0f, b);
    }
    ops.memory->Copy(to, View(out, {n * width}));
    ops.memory->Synchronize();
    return out;
  }

  Status TakeRows(std::string_view& in, const LayerEntries& entries, KvSide side, int64_t n,
                  std::vector<Stream>& streams) const {
    std::vector<float> rows;
    KVG_TRY(TakeArray(in, &rows));
    if (std::ssize(rows) == n * TokenWidth(entries, side)) {
      return AppendTokenRows(entries, rows, side, streams);
    }
    return BadInput(StrCat("cache bytes: ", rows.size(), " numbers of ", n, " entries"));
  }

  std::array<std::shared_ptr<const CoderSide>, 2> sides_;
  std::array<std::shared_ptr<const HeldCodes>, 2> codes_;  // null before Convert
  int64_t sinks_ = 0, recent_ = 0;
  int64_t first_ = 0, coded_ = 0;  // entries before those that are coded, and these
};

}  // namespace
KVG_REGISTER_LAYOUT(basis_coded, BasisCoded, BasisCodedLayer)
}  // namespace kvgauge
