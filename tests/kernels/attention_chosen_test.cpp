// SPDX-License-Identifier: Apache-2.0
// Attention over some of the entries of a segment (KvSegment::read), bit for bit what it is over
// all of them when the others weigh nothing.
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/rng.h"
#include "kernels/attention.h"
#include "kernels/attention_scene.h"
#include "kernels/kv_backends.h"

namespace kvgauge {
namespace {

// Entries that are read: one of `one_in` runs of `run` entries.
struct Pattern {
  const char* name;
  int64_t run, one_in;
};
constexpr Pattern kPatterns[] = {{"pages", 64, 6},       {"runs of sixteen", 16, 12},
                                 {"runs of five", 5, 9}, {"single entries", 1, 20},
                                 {"few", 1, 700},        {"most", 3, 1}};

std::vector<uint64_t> Words(const Pattern& pattern, int64_t entries, uint64_t seed) {
  std::vector<uint64_t> words(static_cast<size_t>((entries + 63) / 64));
  Rng rng(seed, 3);
  for (int64_t first = 0; first < entries; first += pattern.run) {
    const bool read = pattern.one_in == 1
                          ? rng.NextBelow(9) > 0
                          : rng.NextBelow(static_cast<uint64_t>(pattern.one_in)) == 0;
    for (int64_t e = first; read && e < std::min(entries, first + pattern.run); ++e) {
      words[e / 64] |= uint64_t{1} << e % 64;
    }
  }
  return words;
}
bool Reads(const std::vector<uint64_t>& words, int64_t entry) {
  return (words[entry / 64] >> entry % 64 & 1) != 0;
}

struct ChosenCase {
  std::string name;
  KvFormat format;
  int64_t group = 4, rows = 1, entries = 1100;
  float softcap = 0;
  int64_t window = 0;
  bool scales = false;
  std::optional<KvCodec> keys = std::nullopt, values = std::nullopt;
};

struct Answer {
  std::vector<float> out, lse, entropy;
  bool operator==(const Answer&) const = default;
};

// One KV head of one segment.
class OneHead {
 public:
  OneHead(const KvBackend& backend, const ChosenCase& c)
      : case_(c),
        codecs_(backend.Codecs()),
        one_(backend.Attention(1)),
        two_(backend.Attention(2)) {
    const int64_t n = c.entries, pages = (n + 63) / 64;
    const std::vector<float> keys = SceneValues(n * c.format.key_dim, 1, 0.7f);
    const std::vector<float> values = SceneValues(n * c.format.value_dim, 2);
    for (int64_t p = 0; p < pages; ++p) {
      for (const int64_t bytes : {one_->KeyPageBytes(c.format), one_->ValuePageBytes(c.format)}) {
        memory_.push_back(HostBuffer(bytes));
      }
      key_pages_.push_back(memory_[memory_.size() - 2].data());
      value_pages_.push_back(memory_.back().data());
    }
    const KvTarget target = {key_pages_.data(), value_pages_.data(), 0};
    one_->WriteKv(c.format, View(keys, {n, 1, c.format.key_dim}),
                  View(values, {n, 1, c.format.value_dim}), {&target, 1});
    segment_.length = n;
    segment_.by_entry = c.format.by_entry;
    segment_.key_pages = key_pages_.data();
    segment_.value_pages = value_pages_.data();
    segment_.keys = Code(c.keys, keys);
    segment_.values = Code(c.values, values);
    factors_ = SceneValues(n, 3);
    if (c.scales) segment_.key_scale = segment_.value_scale = factors_.data();
    queries_ = SceneValues(c.rows * c.group * c.format.key_dim, 4);
  }

  // With a bias that leaves nothing of the other entries.
  Answer AmongAll(const std::vector<uint64_t>& words, int threads = 1) {
    std::vector<float> bias;
    for (int64_t e = 0; e < case_.entries; ++e) {
      bias.push_back(Reads(words, e) ? 0.0f : -std::numeric_limits<float>::infinity());
    }
    KvSegment segment = segment_;
    segment.bias = bias.data();
    return Attend(segment, 0, case_.group, threads);
  }
  // Query heads [first, first + count), each with its words; pages that none reads are not there.
  Answer Chosen(const std::vector<std::vector<uint64_t>>& words, int64_t first, int64_t count,
                int threads) {
    std::vector<const uint64_t*> read;
    for (int64_t g = first; g < first + count; ++g) read.push_back(words[g].data());
    std::vector<void*> keys = key_pages_, values = value_pages_;
    for (size_t p = 0; p < keys.size(); ++p) {
      uint64_t bits = 0;
      for (const uint64_t* of_head : read) bits |= of_head[p];
      if (bits == 0) keys[p] = values[p] = nullptr;
    }
    KvSegment segment = segment_;
    segment.key_pages = keys.data();
    segment.value_pages = values.data();
    segment.read = read.data();
    return Attend(segment, first, count, threads);
  }

 private:
  Answer Attend(const KvSegment& segment, int64_t first, int64_t count, int threads) {
    const int64_t rows = case_.rows, key_dim = case_.format.key_dim;
    AttentionShape shape;
    shape.format = case_.format;
    shape.query_heads = count;
    shape.kv_heads = 1;
    shape.scale = 0.2f;
    shape.softcap = case_.softcap;
    shape.window = case_.window;
    std::vector<float> queries;
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = queries_.begin() + (r * case_.group + first) * key_dim;
      queries.insert(queries.end(), row, row + count * key_dim);
    }
    const KvHead head = {&segment, 1};
    AttentionItem item;
    item.rows = rows;
    item.heads = {&head, 1};
    Answer a;
    AttentionOps& ops = threads == 1 ? *one_ : *two_;
    const AttentionCapture capture = {MakeFilled(a.lse, {count, rows}),
                                      MakeFilled(a.entropy, {count, rows})};
    ops.Attend(shape, {&item, 1}, View(queries, {rows, count, key_dim}),
               MakeFilled(a.out, {rows, count, case_.format.value_dim}), capture);
    return a;
  }
  KvCoded Code(const std::optional<KvCodec>& codec, const std::vector<float>& rows) {
    if (!codec.has_value()) return {};
    const int64_t coded = case_.entries / 64 * 64;
    streams_.push_back(std::make_unique<CodecStream>(*codecs_, *codec, coded));
    streams_.back()->Encode({rows.begin(), rows.begin() + coded * codec->dim});
    return {&*codec, streams_.back()->pages(), coded};
  }

  const ChosenCase& case_;
  std::unique_ptr<CodecOps> codecs_;
  std::unique_ptr<AttentionOps> one_, two_;
  std::vector<Buffer> memory_;
  std::vector<void*> key_pages_, value_pages_;
  std::vector<std::unique_ptr<CodecStream>> streams_;
  std::vector<float> factors_, queries_;
  KvSegment segment_;
};

std::vector<ChosenCase> ChosenCases() {
  std::vector<ChosenCase> cases;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::string type = std::string(NameOf(dtype)) + ", ";
    cases.push_back({.name = type + "one row", .format = {dtype, 128, 128}});
    cases.push_back({.name = type + "one row, odd dims, window, softcap, scales",
                     .format = {dtype, 35, 75},
                     .group = 3,
                     .softcap = 3.0f,
                     .window = 900,
                     .scales = true});
    cases.push_back({.name = type + "one row of one head, a key of one dim",
                     .format = {dtype, 1, 16},
                     .group = 1,
                     .entries = 700});
    cases.push_back({.name = type + "one row of nine heads, scales",
                     .format = {dtype, 66, 80},
                     .group = 9,
                     .entries = 600,
                     .scales = true});
    cases.push_back({.name = type + "odd dims, window, softcap",
                     .format = {dtype, 35, 75},
                     .group = 3,
                     .rows = 2,
                     .entries = 700,
                     .softcap = 3.0f,
                     .window = 400});
    cases.push_back({.name = type + "many rows, scales",
                     .format = {dtype, 40, 24},
                     .group = 7,
                     .rows = 3,
                     .entries = 600,
                     .scales = true});
    ChosenCase codes = {
        .name = type + "codes", .format = {dtype, 64, 64}, .group = 2, .entries = 700};
    codes.keys = AffineCodec(3, CodeAxis::kChannel, 64, 64);
    codes.values = AffineCodec(2, CodeAxis::kToken, 32, 64);
    codes.values->side = KvSide::kValues;
    cases.push_back(codes);
    codes.name = type + "plain keys, float8";
    codes.keys.reset();
    codes.values = PlainCodec(KvCodecKind::kFp8E4M3, 64);
    codes.values->side = KvSide::kValues;
    cases.push_back(codes);
  }
  return cases;
}

TEST(AttentionChosen, WhatIsNotReadAddsNothing) {
  for (const KvBackend& backend : KvBackends()) {
    for (const ChosenCase& c : ChosenCases()) {
      OneHead head(backend, c);
      for (const Pattern& pattern : kPatterns) {
        SCOPED_TRACE(backend.name + ": " + c.name + ", " + pattern.name);
        const std::vector<uint64_t> words = Words(pattern, c.entries, 11);
        const std::vector<std::vector<uint64_t>> alike(static_cast<size_t>(c.group), words);
        const Answer want = head.AmongAll(words);
        ASSERT_TRUE(head.Chosen(alike, 0, c.group, 1) == want);
        ASSERT_TRUE(head.Chosen(alike, 0, c.group, 2) == want);
      }
    }
  }
}

// Pages of which single entries are read may hold each entry's numbers side by side.
TEST(AttentionChosen, PagesByEntryChangeNoBit) {
  for (const KvBackend& backend : KvBackends()) {
    for (const ChosenCase& c : ChosenCases()) {
      ChosenCase by_entry = c;
      by_entry.format.by_entry = true;
      OneHead panels(backend, c), rows(backend, by_entry);
      for (const Pattern& pattern : kPatterns) {
        SCOPED_TRACE(backend.name + ": " + c.name + ", " + pattern.name);
        std::vector<std::vector<uint64_t>> words;
        for (int64_t g = 0; g < c.group; ++g) {
          words.push_back(Words(pattern, c.entries, 20 + static_cast<uint64_t>(g)));
        }
        ASSERT_TRUE(rows.AmongAll(words[0]) == panels.AmongAll(words[0]));
        const Answer want = panels.Chosen(words, 0, c.group, 1);
        ASSERT_TRUE(rows.Chosen(words, 0, c.group, 1) == want);
        ASSERT_TRUE(rows.Chosen(words, 0, c.group, 2) == want);
      }
    }
  }
}

TEST(AttentionChosen, HeadsOfAGroupReadTheirOwn) {
  for (const KvBackend& backend : KvBackends()) {
    for (const ChosenCase& c : ChosenCases()) {
      OneHead head(backend, c);
      for (const Pattern& pattern : kPatterns) {
        if (pattern.one_in != 12 && pattern.one_in != 20) continue;
        SCOPED_TRACE(backend.name + ": " + c.name + ", " + pattern.name);
        std::vector<std::vector<uint64_t>> words;
        for (int64_t g = 0; g < c.group; ++g) {
          words.push_back(Words(pattern, c.entries, 20 + static_cast<uint64_t>(g)));
        }
        const Answer together = head.Chosen(words, 0, c.group, 2);
        const int64_t dims = c.format.value_dim;
        for (int64_t g = 0; g < c.group; ++g) {
          const Answer alone = head.Chosen(words, g, 1, 1);
          for (int64_t r = 0; r < c.rows; ++r) {
            ASSERT_EQ(alone.lse[r], together.lse[g * c.rows + r]);
            ASSERT_EQ(alone.entropy[r], together.entropy[g * c.rows + r]);
            for (int64_t d = 0; d < dims; ++d) {
              ASSERT_EQ(alone.out[r * dims + d], together.out[(r * c.group + g) * dims + d]);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvgauge
