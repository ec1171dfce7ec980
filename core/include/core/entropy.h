// SPDX-License-Identifier: Apache-2.0
// Entropy coding of bytes: range asymmetric numeral systems (rANS) with static tables, and blocks
// that carry their own. What is decoded may come from anywhere.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace kvgauge {

// How often each symbol comes, as shares of kUnits. Every symbol that was counted has one at least.
class SymbolTable {
 public:
  static constexpr int kUnitBits = 12;
  static constexpr uint32_t kUnits = 1u << kUnitBits;
  static constexpr size_t kMostSymbols = 256;

  // Precondition: at most kMostSymbols counts, some of them not 0.
  static SymbolTable OfCounts(std::span<const uint32_t> counts);
  // From bytes: an error unless they add up to kUnits.
  static Result<SymbolTable> OfShares(std::span<const uint16_t> shares);

  size_t size() const { return starts_.size() - 1; }
  uint32_t start(size_t symbol) const { return starts_[symbol]; }
  uint32_t share(size_t symbol) const { return starts_[symbol + 1] - starts_[symbol]; }
  // The symbol of a unit. Precondition: unit < kUnits.
  size_t SymbolOf(uint32_t unit) const;

 private:
  explicit SymbolTable(std::span<const uint16_t> shares);

  std::vector<uint16_t> starts_;  // [symbols + 1]
};

// Symbol i is coded by table i % tables.size(). Precondition: each symbol has a share in its table.
std::string EncodeSymbols(std::span<const uint8_t> symbols, std::span<const SymbolTable> tables);
// Fills `symbols`; an error unless the bytes are what EncodeSymbols made of so many symbols.
Status DecodeSymbols(std::string_view bytes, std::span<const SymbolTable> tables,
                     std::span<uint8_t> symbols);

// A block as bytes that need no table from elsewhere: of numbers of 1, 2 or 4 bytes, whichever
// comes out smallest, each byte of a number with a table of its own; never longer than the block
// and one byte. Deterministic.
std::string PackBlock(std::string_view block);
// Appends the block, which must have that size.
Status UnpackBlock(std::string_view packed, int64_t size_bytes, std::string& out);

// CRC-32 of IEEE 802.3.
uint32_t Crc32(std::string_view bytes);

}  // namespace kvgauge
