// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/bpe.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "core/strings.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge {
namespace {

constexpr uint32_t kNoRank = 0xffffffff;

struct Merged {
  uint32_t rank = kNoRank;
  int32_t id = -1;
};

// (left id, right id) -> rank and merged id; open addressing, at most half full.
class MergeTable {
 public:
  explicit MergeTable(size_t count) {
    size_t slots = 16;
    while (slots < 2 * count) slots *= 2;
    slots_.resize(slots);
  }
  void Put(int32_t left, int32_t right, Merged merged) {
    Slot& slot = slots_[Find(Key(left, right))];
    slot = {Key(left, right), merged};
  }
  Merged Get(int32_t left, int32_t right) const { return slots_[Find(Key(left, right))].merged; }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Merged merged;
  };
  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t Find(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    uint64_t hash = key * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
    size_t at = hash & mask;
    while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & mask;
    return at;
  }
  std::vector<Slot> slots_;
};

// Pieces up to this many symbols are merged by scanning, longer ones with a heap.
constexpr size_t kScanSymbols = 32;

class Bpe final : public PieceModel {
 public:
  Bpe(const Vocabulary& vocabulary, const BpeOptions& options, size_t merge_count)
      : vocabulary_(vocabulary), options_(options), merges_(merge_count) {
    ascii_.fill(-1);
    byte_tokens_.fill(-1);
  }

  Status Build(std::span<const BpeMerge> merges, std::string_view where);
  void BuildRanked();
  void Encode(std::string_view piece, std::vector<int32_t>& out) const override;

 private:
  void FindBytes();
  int32_t SymbolOf(std::string_view character) const;
  void Symbols(std::string_view piece, std::vector<int32_t>& out) const;
  void MergeByScan(std::vector<int32_t>& symbols) const;
  void MergeByHeap(std::vector<int32_t>& symbols) const;

  const Vocabulary& vocabulary_;
  BpeOptions options_;
  MergeTable merges_;
  // Byte-level: per byte. Otherwise: per ASCII character.
  std::array<int32_t, 256> ascii_;
  std::array<int32_t, 256> byte_tokens_;  // <0xHH>
  // Byte-level with ignore_merges: tokens by their raw bytes.
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> by_bytes_;
};

Status Bpe::Build(std::span<const BpeMerge> merges, std::string_view where) {
  const auto id_of = [&](const std::string& part, size_t i) -> Result<int32_t> {
    if (part.empty()) {
      return BadInput(
          StrCat(where, ".merges[", i, "]: one side is empty; a merge joins two tokens"));
    }
    const std::optional<int32_t> id = vocabulary_.Find(part);
    if (!id) {
      return BadInput(
          StrCat(where, ".merges[", i, "]: token ", Quoted(part), " is not in the vocabulary"));
    }
    return *id;
  };
  for (size_t i = 0; i < merges.size(); ++i) {
    KVG_ASSIGN(const int32_t left, id_of(merges[i].left, i));
    KVG_ASSIGN(const int32_t right, id_of(merges[i].right, i));
    KVG_ASSIGN(const int32_t merged, id_of(merges[i].left + merges[i].right, i));
    merges_.Put(left, right, {static_cast<uint32_t>(i), merged});
  }
  FindBytes();
  if (options_.byte_level && options_.byte_fallback && std::ranges::count(ascii_, -1) > 0) {
    return Unsupported(StrCat(where,
                              ".byte_fallback: true in a byte-level vocabulary without all 256 "
                              "bytes; set it to false or add the bytes"));
  }
  // Without both, a character would vanish from the text.
  const auto lost = std::ranges::find(byte_tokens_, -1);
  if (!options_.byte_level && options_.byte_fallback && options_.unk_id < 0 &&
      lost != byte_tokens_.end()) {
    const auto byte = static_cast<uint8_t>(lost - byte_tokens_.begin());
    return BadInput(StrCat(where, ".byte_fallback: true, but the vocabulary lacks ",
                           Quoted(FallbackToken(byte)),
                           ", and no unk_token stands for what cannot be spelled"));
  }
  return {};
}

// The tokens of single bytes, and of all stretches of bytes where these are asked for.
void Bpe::FindBytes() {
  for (int byte = 0; byte < 256; ++byte) {
    std::string symbol;
    AppendUtf8(symbol, options_.byte_level ? ByteToAlphabet(static_cast<uint8_t>(byte))
                                           : static_cast<char32_t>(byte));
    ascii_[byte] = vocabulary_.Find(symbol).value_or(-1);
    byte_tokens_[byte] = vocabulary_.Find(FallbackToken(static_cast<uint8_t>(byte))).value_or(-1);
  }
  if (!options_.byte_level || !options_.ignore_merges) return;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    if (!vocabulary_.Has(id)) continue;
    if (auto bytes = AlphabetToBytes(vocabulary_.TextOf(id))) by_bytes_.emplace(*bytes, id);
  }
}

void Bpe::BuildRanked() {
  FindBytes();
  struct Union {
    int32_t left, right, id;
  };
  std::vector<Union> unions;
  for (const auto& [bytes, id] : by_bytes_) {
    const std::string_view whole = bytes;
    for (size_t cut = 1; cut < whole.size(); ++cut) {
      const auto left = by_bytes_.find(whole.substr(0, cut));
      if (left == by_bytes_.end()) continue;
      const auto right = by_bytes_.find(whole.substr(cut));
      if (right != by_bytes_.end()) unions.push_back({left->second, right->second, id});
    }
  }
  merges_ = MergeTable(unions.size());
  for (const Union& pair : unions) {
    merges_.Put(pair.left, pair.right, {static_cast<uint32_t>(pair.id), pair.id});
  }
}

int32_t Bpe::SymbolOf(std::string_view character) const {
  const auto lead = static_cast<uint8_t>(character[0]);
  if (options_.byte_level || lead < 0x80) return ascii_[lead];
  return vocabulary_.Find(character).value_or(-1);
}

void Bpe::Symbols(std::string_view piece, std::vector<int32_t>& out) const {
  bool after_unknown = false;
  for (size_t at = 0; at < piece.size();) {
    const size_t width = options_.byte_level ? 1 : Utf8Width(piece[at]);
    const std::string_view character = piece.substr(at, width);
    at += width;
    const int32_t id = SymbolOf(character);
    if (id >= 0) {
      out.push_back(id);
      after_unknown = false;
      continue;
    }
    const auto byte_token = [&](char c) { return byte_tokens_[static_cast<uint8_t>(c)]; };
    if (options_.byte_fallback &&
        std::ranges::all_of(character, [&](char c) { return byte_token(c) >= 0; })) {
      for (const char c : character) out.push_back(byte_token(c));
      after_unknown = false;
    } else if (options_.unk_id >= 0) {
      if (!after_unknown || !options_.fuse_unk) out.push_back(options_.unk_id);
      after_unknown = true;
    }
  }
}

void Bpe::MergeByScan(std::vector<int32_t>& symbols) const {
  Merged ranks[kScanSymbols];  // of symbols i and i + 1
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = merges_.Get(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i].rank < ranks[best].rank) best = i;
    }
    if (ranks[best].rank == kNoRank) break;
    symbols[best] = ranks[best].id;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
    }
    --count;
    if (best + 1 < count) ranks[best] = merges_.Get(symbols[best], symbols[best + 1]);
    if (best > 0) ranks[best - 1] = merges_.Get(symbols[best - 1], symbols[best]);
  }
  symbols.resize(count);
}

void Bpe::MergeByHeap(std::vector<int32_t>& symbols) const {
  struct Candidate {
    uint32_t rank;
    uint32_t at;          // index of the left symbol
    int32_t left, right;  // the pair it was made for; stale once either has changed
  };
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> next(count), previous(count);
  std::vector<Candidate> initial;
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
    if (i + 1 == count) break;
    const uint32_t rank = merges_.Get(symbols[i], symbols[i + 1]).rank;
    if (rank != kNoRank) initial.push_back({rank, i, symbols[i], symbols[i + 1]});
  }
  std::priority_queue heap(later, std::move(initial));
  const auto offer = [&](uint32_t at) {
    const int32_t left = symbols[at], right = symbols[next[at]];
    const uint32_t rank = merges_.Get(left, right).rank;
    if (rank != kNoRank) heap.push({rank, at, left, right});
  };
  while (!heap.empty()) {
    const Candidate top = heap.top();
    heap.pop();
    // A symbol that was merged away is -1, and no pair has that id.
    if (symbols[top.at] != top.left || next[top.at] >= count) continue;
    const uint32_t right = next[top.at];
    if (symbols[right] != top.right) continue;
    symbols[top.at] = merges_.Get(top.left, top.right).id;
    symbols[right] = -1;
    next[top.at] = next[right];
    if (next[right] < count) {
      previous[next[right]] = top.at;
      offer(top.at);
    }
    if (top.at > 0) offer(previous[top.at]);
  }
  std::erase(symbols, -1);
}

void Bpe::Encode(std::string_view piece, std::vector<int32_t>& out) const {
  if (piece.empty()) return;
  if (options_.ignore_merges) {
    if (options_.byte_level) {
      if (const auto found = by_bytes_.find(piece); found != by_bytes_.end()) {
        out.push_back(found->second);
        return;
      }
    } else if (const std::optional<int32_t> id = vocabulary_.Find(piece)) {
      out.push_back(*id);
      return;
    }
  }
  thread_local std::vector<int32_t> symbols;
  symbols.clear();
  Symbols(piece, symbols);
  if (symbols.size() <= kScanSymbols) {
    if (!symbols.empty()) MergeByScan(symbols);
  } else {
    MergeByHeap(symbols);
  }
  out.insert(out.end(), symbols.begin(), symbols.end());
}

}  // namespace

Result<std::unique_ptr<PieceModel>> MakeBpe(const Vocabulary& vocabulary,
                                            std::span<const BpeMerge> merges,
                                            const BpeOptions& options, std::string_view where) {
  auto bpe = std::make_unique<Bpe>(vocabulary, options, merges.size());
  KVG_TRY(bpe->Build(merges, where));
  return std::unique_ptr<PieceModel>(std::move(bpe));
}

std::unique_ptr<PieceModel> MakeRankedBpe(const Vocabulary& vocabulary) {
  const BpeOptions options{.byte_level = true, .ignore_merges = true};
  auto bpe = std::make_unique<Bpe>(vocabulary, options, 0);
  bpe->BuildRanked();
  return bpe;
}

}  // namespace kvgauge
