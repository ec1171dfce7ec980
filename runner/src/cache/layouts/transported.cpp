// SPDX-License-Identifier: Apache-2.0
// Entries that were rounded to the steps of a coder for transport. In memory they are plain; in a
// written cache they are their codes, which rounding them again gives once more.
#include "methods/layouts/transported.h"

#include <algorithm>
#include <cmath>

#include "core/entropy.h"
#include "core/strings.h"
#include "methods/tensors.h"
#include "src/cache/bytes.h"
#include "src/cache/layer_layout.h"
#include "src/cache/token_rows.h"

namespace kvgauge {
namespace {

// Tokens whose codes share tables.
constexpr int64_t kTransportTokens = 256;

// The codes of some tokens of one side, all heads side by side.
struct TokenCodes {
  std::vector<float> largest;  // [tokens] of magnitudes
  std::vector<uint8_t> codes;  // [tokens][width]
};

// The code of the largest magnitude, as far from that of 0 as the least one.
float MostOf(int64_t bins) {
  const int64_t half = bins / 2;
  return static_cast<float>(half - 1);
}

TokenCodes CodesOf(std::span<const float> rows, int64_t width, int64_t bins) {
  const float most = MostOf(bins);
  TokenCodes out;
  for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(width)) {
    const std::span<const float> row = rows.subspan(at, static_cast<size_t>(width));
    float largest = 0;
    for (const float x : row) largest = std::max(largest, std::abs(x));
    const float factor = largest > 0 ? most / largest : 0.0f;
    for (const float x : row) {
      const float code = std::nearbyint(x * factor + most);
      // The largest magnitude may be so small that its factor is no number; what is no number
      // itself counts as 0.
      out.codes.push_back(
          static_cast<uint8_t>(std::isfinite(code) ? std::clamp(code, 0.0f, 2 * most) : most));
    }
    out.largest.push_back(largest);
  }
  return out;
}

std::vector<float> RowsOf(const TokenCodes& coded, int64_t width, int64_t bins) {
  const float most = MostOf(bins);
  std::vector<float> rows;
  rows.reserve(coded.codes.size());
  for (size_t i = 0; i < coded.codes.size(); ++i) {
    const float step = (static_cast<float>(coded.codes[i]) - most) / most;
    rows.push_back(step * coded.largest[i / static_cast<size_t>(width)]);
  }
  return rows;
}

std::vector<SymbolTable> ChannelTables(const TokenCodes& coded, int64_t width, int64_t bins) {
  const auto channels = static_cast<size_t>(width), codes = static_cast<size_t>(bins - 1);
  std::vector<uint32_t> counts(channels * codes);
  for (size_t i = 0; i < coded.codes.size(); ++i) {
    ++counts[i % channels * codes + coded.codes[i]];
  }
  std::vector<SymbolTable> tables;
  for (size_t c = 0; c < channels; ++c) {
    tables.push_back(SymbolTable::OfCounts(std::span(counts).subspan(c * codes, codes)));
  }
  return tables;
}

void PutCodes(const TokenCodes& coded, int64_t width, int64_t bins, std::string& out) {
  const std::vector<SymbolTable> tables = ChannelTables(coded, width, bins);
  PutBytes(out, std::span<const float>(coded.largest));
  for (const SymbolTable& table : tables) {
    for (size_t s = 0; s < table.size(); ++s) {
      const auto share = static_cast<uint16_t>(table.share(s));
      PutBytes(out, std::span<const uint16_t>(&share, 1));
    }
  }
  const std::string symbols = EncodeSymbols(coded.codes, tables);
  PutArray(out, std::vector<char>(symbols.begin(), symbols.end()));
}

Status TakeCodes(std::string_view& in, int64_t tokens, int64_t width, int64_t bins,
                 TokenCodes* coded) {
  KVG_TRY(CheckLeft(in, tokens, sizeof(float)));
  coded->largest.resize(static_cast<size_t>(tokens));
  KVG_TRY(TakeBytes(in, std::span<float>(coded->largest)));
  KVG_TRY(CheckLeft(in, width, (bins - 1) * static_cast<int64_t>(sizeof(uint16_t))));
  std::vector<SymbolTable> tables;
  std::vector<uint16_t> shares(static_cast<size_t>(bins - 1));
  for (int64_t c = 0; c < width; ++c) {
    KVG_TRY(TakeBytes(in, std::span<uint16_t>(shares)));
    const Result<SymbolTable> table = SymbolTable::OfShares(shares);
    if (!table.ok()) return table.error().Wrap(StrCat("cache bytes: channel ", c));
    tables.push_back(*table);
  }
  std::vector<char> symbols;
  KVG_TRY(TakeArray(in, &symbols));
  coded->codes.resize(static_cast<size_t>(tokens * width));
  const Status decoded =
      DecodeSymbols(std::string_view(symbols.data(), symbols.size()), tables, coded->codes);
  return decoded.ok() ? decoded : decoded.error().Wrap("cache bytes");
}

class TransportedLayer final : public LayerLayout {
 public:
  std::string_view id() const override { return Transported::kId; }
  std::unique_ptr<LayerLayout> Fork() const override {
    return std::make_unique<TransportedLayer>(*this);
  }

  Status Use(const StoreLayout& plan, const LayerEntries&) override {
    plan_ = static_cast<const Transported&>(plan);
    return {};
  }
  Status Put(std::string& out) const override {
    PutNumber(out, plan_.key_bins);
    PutNumber(out, plan_.value_bins);
    return {};
  }
  Status Take(std::string_view& in, const LayerEntries&) override {
    for (int64_t* bins : {&plan_.key_bins, &plan_.value_bins}) {
      KVG_TRY(TakeNumber(in, "bins", 4, Transported::kMostBins, bins));
      if (*bins % 2 != 0) return BadInput(StrCat("cache bytes: ", *bins, " bins; expected even"));
    }
    return {};
  }
  bool rounds() const override { return transported_ > 0; }
  Status CheckReduce(std::span<const HeadPlan> plan) const override {
    if (plan.empty()) return {};
    return Unsupported("entries whose codes heads share cannot be dropped or merged");
  }
  // Those that come in their place are as they are.
  void Truncated(const LayerEntries& entries) override {
    transported_ = std::min(transported_, entries.width());
  }

  Status Convert(LayerEntries& entries, std::span<const LayerPair>) override {
    KVG_TRY(CheckAlike(entries));
    transported_ = entries.width();
    LayerPart rounded = EmptyPart(entries);
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const int64_t width = TokenWidth(entries, side), bins = BinsOf(side);
      for (int64_t at = 0; at < transported_; at += kTransportTokens) {
        const int64_t end = std::min(at + kTransportTokens, transported_);
        const std::vector<float> rows = ReadTokenRows(entries, side, at, end);
        KVG_TRY(AppendTokenRows(entries, RowsOf(CodesOf(rows, width, bins), width, bins), side,
                                rounded.of(side)));
      }
    }
    entries.parts.clear();
    entries.parts.push_back(std::move(rounded));
    return {};
  }

  void PutEntries(const LayerEntries& entries, std::string& out) const override {
    const int64_t coded = std::min(transported_, entries.width());
    PutNumber(out, coded);
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const int64_t width = TokenWidth(entries, side), bins = BinsOf(side);
      for (int64_t at = 0; at < coded; at += kTransportTokens) {
        const std::vector<float> rows =
            ReadTokenRows(entries, side, at, std::min(at + kTransportTokens, coded));
        PutCodes(CodesOf(rows, width, bins), width, bins, out);
      }
      PutArray(out, ReadTokenRows(entries, side, coded, entries.width()));
    }
  }

  Status TakeEntries(std::string_view& in, LayerEntries& entries) override {
    KVG_TRY(CheckAlike(entries));
    KVG_TRY(TakeNumber(in, "transported entries", 0, entries.width(), &transported_));
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const int64_t width = TokenWidth(entries, side), bins = BinsOf(side);
      std::vector<Stream>& streams = entries.parts[0].of(side);
      for (int64_t at = 0; at < transported_; at += kTransportTokens) {
        TokenCodes coded;
        KVG_TRY(TakeCodes(in, std::min(kTransportTokens, transported_ - at), width, bins, &coded));
        KVG_TRY(AppendTokenRows(entries, RowsOf(coded, width, bins), side, streams));
      }
      std::vector<float> rest;
      KVG_TRY(TakeArray(in, &rest));
      if (std::ssize(rest) != (entries.width() - transported_) * width) {
        return BadInput(StrCat("cache bytes: ", rest.size(), " numbers behind ", transported_,
                               " transported entries of ", entries.width()));
      }
      KVG_TRY(AppendTokenRows(entries, rest, side, streams));
    }
    return {};
  }

 private:
  int64_t BinsOf(KvSide side) const {
    return side == KvSide::kKeys ? plan_.key_bins : plan_.value_bins;
  }
  static Status CheckAlike(const LayerEntries& entries) {
    for (int64_t h = 1; h < entries.setup->kv_heads; ++h) {
      if (entries.length(h) == entries.length(0)) continue;
      return Unsupported(StrCat("transported: KV heads 0 and ", h, " hold ", entries.length(0),
                                " and ", entries.length(h),
                                " entries, so they cannot share what a token is coded by"));
    }
    return {};
  }

  Transported plan_;
  int64_t transported_ = 0;
};

}  // namespace
KVG_REGISTER_LAYOUT(transported, Transported, TransportedLayer)
}  // namespace kvgauge
