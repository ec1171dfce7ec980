// SPDX-License-Identifier: Apache-2.0
#include "runner/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "core/json.h"
#include "core/rng.h"
#include "core/strings.h"
#include "src/text/tokenizer/bpe.h"
#include "src/text/tokenizer/decoder_steps.h"
#include "src/text/tokenizer/split.h"
#include "src/text/tokenizer/unicode.h"
#include "support/scratch_directory.h"

namespace kvgauge {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A directory that lives as long as the test.
class Directory {
 public:
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(scratch_.File(name), std::ios::binary) << text;
  }
  const std::string& path() const { return scratch_.path(); }

 private:
  ScratchDirectory scratch_;
};

std::string Character(char32_t c) {
  std::string text;
  AppendUtf8(text, c);
  return text;
}

// A byte-level vocabulary: 256 bytes, then one token per merge.
Json ByteLevelFile(const std::vector<std::pair<std::string, std::string>>& merges) {
  Json vocab = Json::object(), list = Json::array();
  for (int byte = 0; byte < 256; ++byte) {
    vocab[Character(ByteToAlphabet(static_cast<uint8_t>(byte)))] = byte;
  }
  for (const auto& [left, right] : merges) {
    const int id = static_cast<int>(vocab.size());
    vocab.emplace(left + right, id);
    list.push_back(Json::array({left, right}));
  }
  return {{"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}}}};
}

Result<std::unique_ptr<Tokenizer>> LoadJson(const Json& file) {
  const Directory directory;
  directory.Write("tokenizer.json", file.dump());
  return LoadTokenizer(directory.path());
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, std::string_view text,
                         const EncodeOptions& options = {}) {
  Result<std::vector<int32_t>> ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok());
  return ids.ok() ? *ids : std::vector<int32_t>();
}

TEST(Tokenizer, MergesByRankAndLeftmostFirst) {
  const auto loaded = LoadJson(ByteLevelFile({{"a", "a"}, {"b", "c"}, {"a", "bc"}, {"aa", "a"}}));
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const Tokenizer& t = **loaded;
  EXPECT_THAT(Ids(t, "aaa"), ElementsAre(259));
  EXPECT_THAT(Ids(t, "aaaa"), ElementsAre(256, 256));
  EXPECT_THAT(Ids(t, "abc"), ElementsAre(258));
  EXPECT_THAT(Ids(t, "aabc"), ElementsAre(256, 257));
  EXPECT_EQ(t.VocabSize(), 260);
  EXPECT_EQ(t.TokenText(258), "abc");
  EXPECT_EQ(t.IdOf("bc"), 257);
  EXPECT_EQ(t.IdOf("zz"), std::nullopt);
  EXPECT_EQ(t.fingerprint().size(), 64u);
  EXPECT_EQ(t.Decode(Ids(t, "Grüße \xff 世界")), "Grüße \uFFFD 世界");
  EXPECT_EQ(t.Decode(std::vector<int32_t>{-1, 97, 1 << 30}), "a");
}

// The definition, in the plainest words: for comparison with the heap.
std::vector<int32_t> NaiveBpe(const Vocabulary& vocabulary, const std::vector<BpeMerge>& merges,
                              std::vector<std::string> symbols) {
  while (true) {
    size_t best_rank = merges.size(), best_at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].left == symbols[i] && merges[rank].right == symbols[i + 1]) {
          best_rank = rank;
          best_at = i;
        }
      }
    }
    if (best_rank == merges.size()) break;
    symbols[best_at] += symbols[best_at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
  std::vector<int32_t> ids;
  for (const std::string& symbol : symbols) ids.push_back(*vocabulary.Find(symbol));
  return ids;
}

TEST(Bpe, ScanAndHeapAgreeWithTheDefinition) {
  Rng rng(7, 1);
  for (int round = 0; round < 20; ++round) {
    Vocabulary vocabulary;
    std::vector<std::string> tokens = {"a", "b", "c"};
    for (int32_t id = 0; id < 3; ++id) ASSERT_TRUE(vocabulary.Add(tokens[id], id, 3, "test").ok());
    std::vector<BpeMerge> merges;
    while (merges.size() < 25) {
      const BpeMerge merge{tokens[rng.NextBelow(tokens.size())],
                           tokens[rng.NextBelow(tokens.size())]};
      const std::string joined = merge.left + merge.right;
      if (joined.size() > 12) continue;
      // Two ways to one token are allowed; the same pair twice is not interesting.
      bool known = false;
      for (const BpeMerge& other : merges) {
        known |= other.left == merge.left && other.right == merge.right;
      }
      if (known) continue;
      if (!vocabulary.Find(joined)) {
        ASSERT_TRUE(vocabulary.Add(joined, vocabulary.size(), 100, "test").ok());
        tokens.push_back(joined);
      }
      merges.push_back(merge);
    }
    const auto model = MakeBpe(vocabulary, merges, {}, "test");
    ASSERT_TRUE(model.ok());
    for (int i = 0; i < 40; ++i) {
      std::string piece;
      std::vector<std::string> symbols;
      const uint64_t size = 1 + rng.NextBelow(i % 2 == 0 ? 31 : 200);
      for (uint64_t k = 0; k < size; ++k) {
        symbols.push_back(tokens[rng.NextBelow(3)]);
        piece += symbols.back();
      }
      std::vector<int32_t> ids;
      (*model)->Encode(piece, ids);
      EXPECT_EQ(ids, NaiveBpe(vocabulary, merges, symbols)) << piece;
    }
  }
}

TEST(Tokenizer, EncodesAMegabyteWithoutBlanks) {
  const auto loaded = LoadJson(ByteLevelFile({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}}));
  ASSERT_TRUE(loaded.ok());
  const std::vector<int32_t> ids = Ids(**loaded, std::string(1 << 20, 'a'));
  EXPECT_EQ(ids.size(), (1u << 20) / 8);
  EXPECT_EQ((*loaded)->Decode(ids).size(), 1u << 20);
}

TEST(Tokenizer, SpecialTokensAndBos) {
  Json file = ByteLevelFile({});
  file["added_tokens"] = Json::parse(R"([
    {"id": 300, "content": "<s>", "special": true, "normalized": false},
    {"id": 301, "content": "<tool>", "special": false, "normalized": false}])");
  file["post_processor"] = Json::parse(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [300], "tokens": ["<s>"]}}})");
  const auto loaded = LoadJson(file);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const Tokenizer& t = **loaded;
  EXPECT_THAT(Ids(t, "a<s><tool>"), ElementsAre(300, 97, 300, 301));
  EXPECT_THAT(Ids(t, "a<s><tool>", {.add_special = false, .parse_special = false}),
              ElementsAre(97, '<', 's', '>', 301));
  EXPECT_TRUE(t.IsSpecial(300));
  EXPECT_FALSE(t.IsSpecial(301));
  EXPECT_EQ(t.VocabSize(), 302);
  EXPECT_EQ(t.Decode(std::vector<int32_t>{300, 97, 301}), "a<tool>");
  EXPECT_EQ(t.Decode(std::vector<int32_t>{300, 97}, false), "<s>a");
}

TEST(TextStream, HoldsBackUnfinishedCharacters) {
  const auto loaded = LoadJson(ByteLevelFile({}));
  ASSERT_TRUE(loaded.ok());
  TextStream stream(**loaded);
  EXPECT_EQ(stream.Push(0xf0), "");
  EXPECT_EQ(stream.Push(0x9f), "");
  EXPECT_EQ(stream.Push(0x8e), "");
  EXPECT_EQ(stream.Push(0x89), "🎉");
  EXPECT_EQ(stream.Push(0xe4), "");
  EXPECT_EQ(stream.Push('a'), "\uFFFDa");
  EXPECT_EQ(stream.Push(0xe4), "");
  EXPECT_EQ(stream.Finish(), "\uFFFD");
}

TEST(TextStream, CleanUpEqualsTheWholeText) {
  Rng rng(3, 0);
  constexpr std::string_view kAlphabet = " .?!,'ntmsverxé";
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::unique_ptr<DecodeStep>> steps;
    steps.push_back(MakeCleanUpStep());
    DecodeChain chain(std::move(steps));
    std::string whole, streamed;
    for (uint64_t i = 0, n = rng.NextBelow(24); i < n; ++i) {
      std::string part;
      for (uint64_t k = 0, m = 1 + rng.NextBelow(4); k < m; ++k) {
        part += kAlphabet[rng.NextBelow(13)];
        if (rng.NextBelow(12) == 0) part += "é";
      }
      whole += part;
      chain.Push(part, streamed);
    }
    chain.Finish(streamed);
    ASSERT_EQ(streamed, CleanUpSpaces(whole)) << Quoted(whole, 300);
  }
}

char32_t RandomCodePoint(Rng& rng) {
  constexpr std::string_view kAscii = " \t\n\r'aAsStTdDlLmMrReEvVxZ019_.,!-{}";
  constexpr char32_t kOthers[] = {0xa0,   0x85,    0x17f,   0x180e,  0x200b,  0x2028,
                                  0x3000, 0xe9,    0x301,   0x4f60,  0x3042,  0xb2,
                                  0x660,  0x2167,  0x20ac,  0x1f600, 0x31350, 0x1c,
                                  0x0,    0x1e5f1, 0x16d40, 0x10400, 0xfffd,  0x60c};
  switch (rng.NextBelow(4)) {
    case 0:
    case 1:
      return static_cast<unsigned char>(kAscii[rng.NextBelow(kAscii.size())]);
    case 2:
      return kOthers[rng.NextBelow(std::size(kOthers))];
    default:
      break;
  }
  const auto c = static_cast<char32_t>(rng.NextBelow(0x110000));
  return c >= 0xd800 && c <= 0xdfff ? U'x' : c;
}

class HotPatterns : public testing::TestWithParam<HotPattern> {};

TEST_P(HotPatterns, MatchWhatTheRegexEngineMatches) {
  const Result<Regex> regex = Regex::Compile(TextOf(GetParam()), "test");
  ASSERT_TRUE(regex.ok()) << regex.error().message;
  Rng rng(11, static_cast<uint64_t>(GetParam()));
  std::vector<Span> by_hand, by_engine;
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (uint64_t i = 0, n = rng.NextBelow(30); i < n; ++i) {
      AppendUtf8(text, RandomCodePoint(rng));
      if (rng.NextBelow(4) == 0) text += rng.NextBelow(2) == 0 ? " " : "\n";
    }
    FindAllHot(GetParam(), text, by_hand);
    ASSERT_TRUE(regex->FindAll(text, by_engine).ok());
    ASSERT_EQ(by_hand.size(), by_engine.size()) << Quoted(text, 400);
    for (size_t i = 0; i < by_hand.size(); ++i) {
      ASSERT_EQ(by_hand[i].begin, by_engine[i].begin) << Quoted(text, 400);
      ASSERT_EQ(by_hand[i].end, by_engine[i].end) << Quoted(text, 400);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, HotPatterns,
                         testing::Values(HotPattern::kGpt2, HotPattern::kLlama3, HotPattern::kQwen2,
                                         HotPattern::kDeepSeekV3));

TEST(Regex, RefusesWhatTheEnginesReadDifferently) {
  for (const char* pattern : {"[a&&b]", "[[a]b]", R"(\K)", "(?i)a|(?i)b", "a{2}?", "(*UTF)",
                              R"([\W])", "[a", "(?<name>a)", "\\", R"(\u12)", R"(\p{})"}) {
    const Result<Regex> regex = Regex::Compile(pattern, "dir/tokenizer.json: key");
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_THAT(regex.error().message, HasSubstr("dir/tokenizer.json: key")) << pattern;
  }
  const Result<Regex> broken = Regex::Compile("(a", "f: k");
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message, HasSubstr("does not compile"));
}

TEST(Regex, GivesUpOnEndlessBacktracking) {
  const Result<Regex> regex = Regex::Compile("(?:a|aa|aaa)+[0-9]", "f: k");
  ASSERT_TRUE(regex.ok());
  std::vector<Span> matches;
  const Status status = regex->FindAll(std::string(2000, 'a'), matches);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("gives up"));
}

// --- Files that are wrong ------------------------------------------------------------------------

struct BadFile {
  std::string name;
  std::function<void(Json&)> spoil;
  std::string message;
};

class BadTokenizerJson : public testing::TestWithParam<BadFile> {};

TEST_P(BadTokenizerJson, IsRefusedByFileAndKey) {
  Json file = ByteLevelFile({{"a", "b"}});
  GetParam().spoil(file);
  const auto loaded = LoadJson(file);
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message, HasSubstr("tokenizer.json: "));
  EXPECT_THAT(loaded.error().message, HasSubstr(GetParam().message));
}

Json Parse(const char* text) { return Json::parse(text); }

INSTANTIATE_TEST_SUITE_P(
    Files, BadTokenizerJson,
    testing::Values(
        BadFile{"NoModel", [](Json& f) { f.erase("model"); }, "model is missing"},
        BadFile{"UnknownModel", [](Json& f) { f["model"]["type"] = "WordLevel"; }, "WordLevel"},
        BadFile{"HugeId", [](Json& f) { f["model"]["vocab"]["x!"] = int64_t{1} << 40; },
                "1099511627776"},
        BadFile{"UnsignedId", [](Json& f) { f["model"]["vocab"]["x!"] = ~uint64_t{0}; }, "integer"},
        BadFile{"NegativeId", [](Json& f) { f["model"]["vocab"]["x!"] = -1; }, "id -1"},
        BadFile{"DuplicateId", [](Json& f) { f["model"]["vocab"]["x!"] = 97; }, "id 97"},
        BadFile{"FractionalId", [](Json& f) { f["model"]["vocab"]["x!"] = 1.5; }, "1.5"},
        BadFile{"VocabIsList", [](Json& f) { f["model"]["vocab"] = Parse("[1]"); }, "model.vocab"},
        BadFile{"UnknownMerge",
                [](Json& f) { f["model"]["merges"].push_back(Parse(R"(["a","qq"])")); },
                "merges[1]"},
        BadFile{"EmptyMerge", [](Json& f) { f["model"]["merges"].push_back(Parse(R"(["","a"])")); },
                "one side is empty"},
        BadFile{"MergeOfThree", [](Json& f) { f["model"]["merges"].push_back("a b c"); },
                "merges[1]"},
        BadFile{"Dropout", [](Json& f) { f["model"]["dropout"] = 0.1; }, "dropout"},
        BadFile{"UnkMissing", [](Json& f) { f["model"]["unk_token"] = "<unk>"; }, "unk_token"},
        BadFile{"ByteMissing",
                [](Json& f) {
                  f["pre_tokenizer"] = nullptr;
                  f["model"]["byte_fallback"] = true;
                  for (int byte = 0; byte < 256; ++byte) {
                    if (byte != 0xe4) f["model"]["vocab"][FallbackToken(byte)] = 1000 + byte;
                  }
                },
                "byte_fallback: true, but the vocabulary lacks '<0xE4>'"},
        BadFile{"Normalizer", [](Json& f) { f["normalizer"] = Parse(R"({"type":"Odd"})"); }, "Odd"},
        BadFile{"NoTable", [](Json& f) { f["normalizer"] = Parse(R"({"type":"Precompiled"})"); },
                "normalizer.precompiled_charsmap is missing"},
        BadFile{"PreTokenizer",
                [](Json& f) { f["pre_tokenizer"] = Parse(R"({"type":"UnicodeScripts"})"); },
                "UnicodeScripts"},
        BadFile{"Decoder", [](Json& f) { f["decoder"] = Parse(R"({"type":"CTC"})"); }, "CTC"},
        BadFile{"PostProcessor", [](Json& f) { f["post_processor"] = Parse(R"({"type":"Odd"})"); },
                "Odd"},
        BadFile{"Template",
                [](Json& f) {
                  f["post_processor"] = Parse(R"({"type":"TemplateProcessing","single":
                    [{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{}})");
                },
                "<s>"},
        BadFile{"Regex",
                [](Json& f) {
                  f["pre_tokenizer"] =
                      Parse(R"({"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated"})");
                },
                "does not compile"},
        BadFile{"Behavior",
                [](Json& f) {
                  f["pre_tokenizer"] =
                      Parse(R"({"type":"Split","pattern":{"String":"a"},"behavior":"Odd"})");
                },
                "behavior"},
        BadFile{
            "AddedId",
            [](Json& f) { f["added_tokens"] = Parse(R"([{"id":1099511627776,"content":"<x>"}])"); },
            "added_tokens[0].id"},
        BadFile{"AddedElsewhere",
                [](Json& f) { f["added_tokens"] = Parse(R"([{"id":400,"content":"a"}])"); },
                "added_tokens[0]"},
        BadFile{"TwoByteLevels",
                [](Json& f) {
                  f["pre_tokenizer"] = Parse(R"({"type":"Sequence","pretokenizers":
                    [{"type":"ByteLevel"},{"type":"ByteLevel"}]})");
                },
                "second ByteLevel"}),
    [](const auto& bad) { return bad.param.name; });

TEST(Tokenizer, RefusesATextThatAReplaceWouldBlowUp) {
  Json file = ByteLevelFile({});
  file["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1 << 16, 'b')}};
  const auto loaded = LoadJson(file);
  ASSERT_TRUE(loaded.ok());
  const auto ids = (*loaded)->Encode(std::string(100000, 'a'));
  ASSERT_FALSE(ids.ok());
  EXPECT_THAT(ids.error().message, HasSubstr("normalizer"));
}

TEST(LoadTokenizer, NamesTheFilesItLookedFor) {
  const Directory directory;
  EXPECT_FALSE(HasTokenizer(directory.path()));
  auto none = LoadTokenizer(directory.path());
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("tokenizer.model"));
  directory.Write("vocab.json", "{}");
  none = LoadTokenizer(directory.path());
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("no merges.txt"));
  directory.Write("tokenizer.json", "{\"a\": ");
  none = LoadTokenizer(directory.path());
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("not valid JSON"));
}

TEST(LoadTokenizer, RefusesNoise) {
  const Directory directory;
  directory.Write("tokenizer.model", "\x01\x02");
  const auto loaded = LoadTokenizer(directory.path());
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message, HasSubstr("0x0A"));
  directory.Write("tokenizer.model", "\n\xff\xff\xff");
  EXPECT_FALSE(LoadTokenizer(directory.path()).ok());
}

// --- SentencePiece -------------------------------------------------------------------------------

TEST(SentencePiece, NonLegacyPutsTheMarkOnlyAtTheStart) {
  const std::string golden = std::string(KVG_TEST_DATA) + "/golden/tokenizers/spm_bpe";
  const Directory directory;
  std::filesystem::copy_file(golden + "/tokenizer.model", directory.path() + "/tokenizer.model");
  directory.Write("tokenizer_config.json",
                  R"({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                      "legacy": false, "add_bos_token": false})");
  const auto loaded = LoadTokenizer(directory.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const Tokenizer& t = **loaded;
  const std::vector<int32_t> hi = Ids(t, "hi"), mixed = Ids(t, "hi<s>hi");
  EXPECT_EQ(t.TokenText(hi[0]).substr(0, 3), "▁");
  ASSERT_GT(mixed.size(), hi.size());
  EXPECT_EQ(mixed[hi.size()], t.bos_id());
  EXPECT_NE(t.TokenText(mixed[hi.size() + 1]).substr(0, 3), "▁");
  EXPECT_EQ(t.Decode(hi), "hi");
  EXPECT_TRUE(Ids(t, "").empty());
}

}  // namespace
}  // namespace kvgauge
