// SPDX-License-Identifier: Apache-2.0
#include "core/entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace kvgauge {
namespace {

std::string Unpacked(const std::string& packed, size_t size) {
  std::string out;
  const Status status = UnpackBlock(packed, static_cast<int64_t>(size), out);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return out;
}

// Symbols of a geometric distribution: few are common, many are rare.
std::vector<uint8_t> Skewed(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::geometric_distribution<int> symbols(0.4);
  std::vector<uint8_t> out(count);
  for (uint8_t& symbol : out) symbol = static_cast<uint8_t>(std::min(symbols(random), 14));
  return out;
}

TEST(EntropyTest, SharesAreExactAndEverySymbolHasOne) {
  const std::vector<uint32_t> halves = {3, 0, 3};
  const SymbolTable even = SymbolTable::OfCounts(halves);
  EXPECT_EQ(even.share(0), 2048u);
  EXPECT_EQ(even.share(1), 0u);
  EXPECT_EQ(even.share(2), 2048u);
  EXPECT_EQ(even.SymbolOf(2047), 0u);
  EXPECT_EQ(even.SymbolOf(2048), 2u);
  std::vector<uint32_t> counts(256, 1);
  counts[7] = 1u << 31;
  const SymbolTable rare = SymbolTable::OfCounts(counts);
  uint32_t sum = 0;
  for (size_t s = 0; s < 256; ++s) {
    EXPECT_GE(rare.share(s), 1u);
    sum += rare.share(s);
  }
  EXPECT_EQ(sum, SymbolTable::kUnits);
}

TEST(EntropyTest, SymbolsComeBackNearTheirEntropy) {
  const std::vector<uint8_t> symbols = Skewed(20000, 1);
  std::vector<uint32_t> counts(15);
  for (const uint8_t symbol : symbols) ++counts[symbol];
  double bits = 0;
  for (const uint32_t count : counts) {
    if (count > 0) bits -= count * std::log2(count / 20000.0);
  }
  const SymbolTable table = SymbolTable::OfCounts(counts);
  const std::string coded = EncodeSymbols(symbols, {&table, 1});
  EXPECT_LT(static_cast<double>(coded.size()), bits / 8 * 1.005 + 8);
  EXPECT_GT(static_cast<double>(coded.size()), bits / 8);
  std::vector<uint8_t> again(symbols.size());
  ASSERT_TRUE(DecodeSymbols(coded, {&table, 1}, again).ok());
  EXPECT_EQ(again, symbols);
}

TEST(EntropyTest, TablesTakeTurns) {
  const std::vector<uint8_t> even = Skewed(300, 2);
  std::vector<uint8_t> symbols;
  for (const uint8_t symbol : even) {
    symbols.push_back(symbol);
    symbols.push_back(static_cast<uint8_t>(30 - symbol));
    symbols.push_back(9);
  }
  std::vector<std::vector<uint32_t>> counts(3, std::vector<uint32_t>(31));
  for (size_t i = 0; i < symbols.size(); ++i) ++counts[i % 3][symbols[i]];
  std::vector<SymbolTable> tables;
  for (const std::vector<uint32_t>& own : counts) tables.push_back(SymbolTable::OfCounts(own));
  const std::string coded = EncodeSymbols(symbols, tables);
  std::vector<uint8_t> again(symbols.size());
  ASSERT_TRUE(DecodeSymbols(coded, tables, again).ok());
  EXPECT_EQ(again, symbols);
  EXPECT_FALSE(DecodeSymbols(coded.substr(0, coded.size() - 1), tables, again).ok());
  EXPECT_FALSE(DecodeSymbols(coded + "x", tables, again).ok());
  EXPECT_FALSE(DecodeSymbols("", tables, again).ok());
}

TEST(EntropyTest, BlocksComeBack) {
  std::mt19937 random(3);
  for (const size_t size : {0, 1, 2, 3, 5, 100, 4099}) {
    std::string noise(size, 0), halves(size, 0), same(size, 'x');
    for (size_t i = 0; i < size; ++i) {
      noise[i] = static_cast<char>(random());
      // Numbers of two bytes, of which the second hardly changes.
      halves[i] = static_cast<char>(i % 2 == 0 ? random() : 60 + random() % 3);
    }
    for (const std::string& block : {noise, halves, same}) {
      const std::string packed = PackBlock(block);
      EXPECT_LE(packed.size(), block.size() + 1);
      EXPECT_EQ(Unpacked(packed, size), block);
    }
    if (size < 1000) continue;
    EXPECT_EQ(PackBlock(halves)[0], 2);
    EXPECT_LT(PackBlock(halves).size(), size * 7 / 8);
    EXPECT_LT(PackBlock(same).size(), 60u);
  }
}

TEST(EntropyTest, DamagedBlocksAreRefusedOrHaveTheirSize) {
  const std::vector<uint8_t> symbols = Skewed(900, 4);
  const std::string block(symbols.begin(), symbols.end());
  const std::string packed = PackBlock(block);
  ASSERT_LT(packed.size(), block.size() / 2);
  for (size_t at = 0; at < packed.size(); ++at) {
    std::string out, cut;
    EXPECT_FALSE(UnpackBlock(packed.substr(0, at), 900, cut).ok()) << at;
    std::string wrong = packed;
    wrong[at] = static_cast<char>(wrong[at] ^ 0x10);
    if (UnpackBlock(wrong, 900, out).ok()) {
      EXPECT_EQ(out.size(), 900u) << at;
    }
  }
  std::string out;
  EXPECT_FALSE(UnpackBlock(packed, 899, out).ok());
  EXPECT_FALSE(UnpackBlock(packed, 901, out).ok());
  EXPECT_TRUE(out.empty());
}

TEST(EntropyTest, ChecksumIsThatOfIeee) {
  EXPECT_EQ(Crc32("123456789"), 0xcbf43926u);
  EXPECT_EQ(Crc32(""), 0u);
}

}  // namespace
}  // namespace kvgauge
