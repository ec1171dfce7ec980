// SPDX-License-Identifier: Apache-2.0
#include "core/entropy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/check.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

// The coder's state stays in [kLeastState, 256 * kLeastState).
constexpr uint32_t kLeastState = 1u << 23;
constexpr size_t kStateBytes = 4;
// A plane's bytes: as they are, or a table and what it codes.
enum PlaneForm : char { kStoredPlane = 0, kCodedPlane = 1 };
constexpr size_t kMaskBytes = SymbolTable::kMostSymbols / 8;
constexpr std::array<size_t, 3> kStrides = {1, 2, 4};

using Counts = std::array<uint32_t, SymbolTable::kMostSymbols>;

constexpr std::array<uint32_t, 256> CrcTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit)
      value = (value & 1u) ? (value >> 1) ^ 0xedb88320u : value >> 1;
    table[i] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = CrcTable();

std::vector<uint8_t> PlaneOf(std::string_view block, size_t stride, size_t plane) {
  std::vector<uint8_t> bytes;
  bytes.reserve(block.size() / stride + 1);
  for (size_t i = plane; i < block.size(); i += stride) {
    bytes.push_back(static_cast<uint8_t>(block[i]));
  }
  return bytes;
}

Counts CountsOf(std::span<const uint8_t> bytes) {
  Counts counts = {};
  for (const uint8_t byte : bytes) ++counts[byte];
  return counts;
}

// About how many bytes a plane becomes, its table included.
double PackedBytes(const Counts& counts, size_t size) {
  double bits = 0, table = kMaskBytes;
  for (const uint32_t count : counts) {
    if (count == 0) continue;
    bits -= count * std::log2(static_cast<double>(count) / static_cast<double>(size));
    table += 2;
  }
  return bits / 8 + table + kStateBytes;
}

void PutLittle(std::string& out, uint32_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xffu));
}

uint32_t TakeLittle(std::string_view& in, size_t bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= uint32_t{static_cast<uint8_t>(in[i])} << (8 * i);
  in.remove_prefix(bytes);
  return value;
}

// Length of what follows, form, bytes.
void PutPlane(std::span<const uint8_t> bytes, std::string& out) {
  std::string coded;
  if (!bytes.empty()) {
    const Counts counts = CountsOf(bytes);
    const SymbolTable table = SymbolTable::OfCounts(counts);
    std::array<uint8_t, kMaskBytes> mask = {};
    std::string shares;
    for (size_t s = 0; s < counts.size(); ++s) {
      if (counts[s] == 0) continue;
      mask[s / 8] = static_cast<uint8_t>(mask[s / 8] | 1u << (s % 8));
      PutLittle(shares, table.share(s), 2);
    }
    coded.assign(mask.begin(), mask.end());
    coded += shares;
    coded += EncodeSymbols(bytes, {&table, 1});
  }
  const bool stored = bytes.empty() || coded.size() >= bytes.size();
  PutLittle(out, static_cast<uint32_t>(stored ? bytes.size() : coded.size()), 4);
  out.push_back(stored ? kStoredPlane : kCodedPlane);
  if (stored) {
    out.append(bytes.begin(), bytes.end());
  } else {
    out += coded;
  }
}

Status TakePlane(std::string_view& in, std::span<uint8_t> bytes) {
  if (in.size() < 5) {
    return BadInput(StrCat("a packed block ends early: ", in.size(), " bytes of 5 are left"));
  }
  const uint32_t length = TakeLittle(in, 4);
  const char form = in[0];
  in.remove_prefix(1);
  if (length > in.size()) {
    return BadInput(
        StrCat("a packed block ends early: ", in.size(), " bytes of ", length, " are left"));
  }
  std::string_view own = in.substr(0, length);
  in.remove_prefix(length);
  if (form == kStoredPlane) {
    if (own.size() != bytes.size()) {
      return BadInput(StrCat("a packed block has ", own.size(), " bytes; expected ", bytes.size()));
    }
    std::copy(own.begin(), own.end(), bytes.begin());
    return {};
  }
  if (form != kCodedPlane || own.size() < kMaskBytes) {
    return BadInput(StrCat("a packed block of ", own.size(), " bytes has form ",
                           static_cast<int>(form), "; expected ", static_cast<int>(kStoredPlane),
                           ", or ", static_cast<int>(kCodedPlane), " with ", kMaskBytes,
                           " bytes or more"));
  }
  std::array<uint16_t, SymbolTable::kMostSymbols> shares = {};
  const std::string_view mask = own.substr(0, kMaskBytes);
  own.remove_prefix(kMaskBytes);
  for (size_t s = 0; s < shares.size(); ++s) {
    if ((static_cast<uint8_t>(mask[s / 8]) >> (s % 8) & 1u) == 0) continue;
    if (own.size() < 2) return BadInput("a packed block ends within its table");
    shares[s] = static_cast<uint16_t>(TakeLittle(own, 2));
  }
  KVG_ASSIGN(const SymbolTable table, SymbolTable::OfShares(shares));
  return DecodeSymbols(own, {&table, 1}, bytes);
}

}  // namespace

SymbolTable::SymbolTable(std::span<const uint16_t> shares) {
  starts_.reserve(shares.size() + 1);
  uint16_t sum = 0;
  for (const uint16_t share : shares) {
    starts_.push_back(sum);
    sum = static_cast<uint16_t>(sum + share);
  }
  starts_.push_back(sum);
}

SymbolTable SymbolTable::OfCounts(std::span<const uint32_t> counts) {
  const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  KVG_CHECK(counts.size() <= kMostSymbols && total > 0, "a table needs symbols that were counted");
  std::vector<uint16_t> shares(counts.size());
  uint32_t sum = 0;
  for (size_t s = 0; s < counts.size(); ++s) {
    if (counts[s] == 0) continue;
    shares[s] = static_cast<uint16_t>(std::max<uint64_t>(1, counts[s] * uint64_t{kUnits} / total));
    sum += shares[s];
  }
  // Rounding leaves units over, or takes too many: the commonest symbols feel it least.
  while (sum != kUnits) {
    uint16_t& most = *std::max_element(shares.begin(), shares.end());
    const uint32_t step = sum < kUnits ? kUnits - sum : 1;
    most = static_cast<uint16_t>(sum < kUnits ? most + step : most - step);
    sum = sum < kUnits ? kUnits : sum - step;
  }
  return SymbolTable(shares);
}

Result<SymbolTable> SymbolTable::OfShares(std::span<const uint16_t> shares) {
  const uint64_t sum = std::accumulate(shares.begin(), shares.end(), uint64_t{0});
  if (shares.size() > kMostSymbols || sum != kUnits) {
    return BadInput(
        StrCat("shares of ", shares.size(), " symbols add up to ", sum, "; expected ", kUnits));
  }
  return SymbolTable(shares);
}

size_t SymbolTable::SymbolOf(uint32_t unit) const {
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), unit);
  return static_cast<size_t>(next - starts_.begin()) - 1;
}

std::string EncodeSymbols(std::span<const uint8_t> symbols, std::span<const SymbolTable> tables) {
  std::string out;  // backwards
  uint32_t state = kLeastState;
  for (size_t i = symbols.size(); i-- > 0;) {
    const SymbolTable& table = tables[i % tables.size()];
    const uint32_t share = table.share(symbols[i]);
    KVG_CHECK(share > 0, "a symbol that the table does not have");
    const uint32_t most = ((kLeastState >> SymbolTable::kUnitBits) << 8) * share;
    while (state >= most) {
      out.push_back(static_cast<char>(state & 0xffu));
      state >>= 8;
    }
    state = ((state / share) << SymbolTable::kUnitBits) + state % share + table.start(symbols[i]);
  }
  for (size_t i = 0; i < kStateBytes; ++i) {
    out.push_back(static_cast<char>(state >> (8 * (kStateBytes - 1 - i)) & 0xffu));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

Status DecodeSymbols(std::string_view bytes, std::span<const SymbolTable> tables,
                     std::span<uint8_t> symbols) {
  if (bytes.size() < kStateBytes) return BadInput("coded symbols end early");
  uint32_t state = TakeLittle(bytes, kStateBytes);
  if (state < kLeastState || state >= kLeastState << 8) {
    return BadInput(StrCat("coded symbols begin in state ", state, "; expected ", kLeastState,
                           " .. ", (kLeastState << 8) - 1));
  }
  // A table for all symbols is looked up so often that its units are worth spelling out.
  std::vector<uint8_t> symbol_of_unit;
  if (tables.size() == 1) {
    for (size_t s = 0; s < tables[0].size(); ++s) {
      symbol_of_unit.insert(symbol_of_unit.end(), tables[0].share(s), static_cast<uint8_t>(s));
    }
  }
  size_t which = 0, at = 0;
  for (uint8_t& symbol : symbols) {
    const SymbolTable& table = tables[which];
    if (++which == tables.size()) which = 0;
    const uint32_t unit = state & (SymbolTable::kUnits - 1);
    symbol =
        symbol_of_unit.empty() ? static_cast<uint8_t>(table.SymbolOf(unit)) : symbol_of_unit[unit];
    state = table.share(symbol) * (state >> SymbolTable::kUnitBits) + unit - table.start(symbol);
    while (state < kLeastState) {
      if (at == bytes.size()) return BadInput("coded symbols end early");
      state = state << 8 | static_cast<uint8_t>(bytes[at++]);
    }
  }
  if (state == kLeastState && at == bytes.size()) return {};
  return BadInput(StrCat("coded symbols end in state ", state, " with ", bytes.size() - at,
                         " bytes left; expected ", kLeastState, " and none"));
}

std::string PackBlock(std::string_view block) {
  size_t best = 1;
  double least = 0;
  for (const size_t stride : kStrides) {
    double bytes = 0;
    for (size_t plane = 0; plane < stride; ++plane) {
      const std::vector<uint8_t> own = PlaneOf(block, stride, plane);
      bytes += std::min(PackedBytes(CountsOf(own), std::max<size_t>(own.size(), 1)),
                        static_cast<double>(own.size()));
    }
    if (stride == kStrides.front() || bytes < least) {
      best = stride;
      least = bytes;
    }
  }
  std::string packed(1, static_cast<char>(best));
  for (size_t plane = 0; plane < best; ++plane) PutPlane(PlaneOf(block, best, plane), packed);
  if (packed.size() <= block.size()) return packed;
  packed.assign(1, 0);
  packed += block;
  return packed;
}

Status UnpackBlock(std::string_view packed, int64_t size_bytes, std::string& out) {
  if (packed.empty()) {
    return BadInput(StrCat("a packed block is empty; expected ", size_bytes, " bytes packed"));
  }
  const auto stride = static_cast<size_t>(static_cast<uint8_t>(packed[0]));
  packed.remove_prefix(1);
  const auto size = static_cast<size_t>(size_bytes);
  if (stride == 0) {
    if (packed.size() != size) {
      return BadInput(StrCat("a packed block has ", packed.size(), " bytes; expected ", size));
    }
    out += packed;
    return {};
  }
  if (std::find(kStrides.begin(), kStrides.end(), stride) == kStrides.end()) {
    return BadInput(StrCat("a packed block of numbers of ", stride, " bytes; expected 1, 2 or 4"));
  }
  std::string block(size, 0);
  for (size_t plane = 0; plane < stride; ++plane) {
    std::vector<uint8_t> own(plane < size ? (size - plane + stride - 1) / stride : 0);
    KVG_TRY(TakePlane(packed, own));
    for (size_t i = 0; i < own.size(); ++i) block[plane + i * stride] = static_cast<char>(own[i]);
  }
  if (!packed.empty()) {
    return BadInput(StrCat("a packed block is ", packed.size(),
                           " bytes longer than its numbers; expected none"));
  }
  out += block;
  return {};
}

uint32_t Crc32(std::string_view bytes) {
  uint32_t value = ~uint32_t{0};
  for (const char byte : bytes) {
    value = kCrcTable[(value ^ static_cast<uint8_t>(byte)) & 0xffu] ^ (value >> 8);
  }
  return ~value;
}

}  // namespace kvgauge
