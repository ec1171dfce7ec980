// SPDX-License-Identifier: Apache-2.0
// What tokenizer.ggml.pre stands for: pieces as the tokenizers library cuts them with the published
// steps (tests/golden/gguf/cuts.json, scripts/goldens/make_gguf_cuts), and ids of a file that has
// nothing but the name.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "runner/tokenizer.h"
#include "src/text/tokenizer/gguf_cuts.h"
#include "src/text/tokenizer/normalizer.h"
#include "src/text/tokenizer/pre_tokenizer.h"
#include "support/gguf_file.h"
#include "support/packed_text.h"
#include "support/scratch_directory.h"

namespace kvgauge {
namespace {

const std::string kCutsFile = std::string(KVG_TEST_DATA) + "/golden/gguf/cuts.json";
const std::string kSharedVocabulary = std::string(KVG_TEST_DATA) + "/golden/tokenizers/bbpe_gpt2";

std::vector<std::string> CutTexts(const Json& golden) {
  std::vector<std::string> texts;
  const Result<Json> cases = ReadJsonFile(kSharedVocabulary + "/cases.json");
  EXPECT_TRUE(cases.ok());
  for (const Json& item : *cases) texts.push_back(UnpackedText(item["text"]));
  for (const Json& text : golden["more"]) texts.push_back(text.get<std::string>());
  EXPECT_GE(texts.size(), 170u);
  return texts;
}

std::vector<std::string> PiecesOf(const GgufCuts& cuts, std::string text) {
  const auto normalizer = Normalizer::Parse(NormalizerOf(cuts), "normalizer");
  const auto pre_tokenizer = PreTokenizer::Parse(PreTokenizerOf(cuts), "pre_tokenizer");
  EXPECT_TRUE(normalizer.ok() && pre_tokenizer.ok()) << cuts.name;
  if (!normalizer.ok() || !pre_tokenizer.ok()) return {};
  bool at_start = true;
  EXPECT_TRUE(normalizer->Apply(text, at_start).ok());
  PieceList list;
  if (!text.empty()) list.pieces.push_back({text, true});
  EXPECT_TRUE(pre_tokenizer->Apply(list).ok());
  std::vector<std::string> pieces;
  for (const Piece& piece : list.pieces) pieces.emplace_back(piece.text);
  return pieces;
}

std::string HashOf(const std::vector<std::string>& pieces) {
  std::string all;
  for (const std::string& piece : pieces) {
    for (int i = 0; i < 4; ++i) all.push_back(static_cast<char>(piece.size() >> (8 * i)));
    all += piece;
  }
  return Sha256Hex(all).substr(0, 16);
}

TEST(GgufCutsGolden, PiecesAreThoseOfTheReference) {
  const Result<Json> golden = ReadJsonFile(kCutsFile);
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  const std::vector<std::string> texts = CutTexts(*golden);
  std::set<std::string> proved;
  for (const auto& [chain, value] : golden->items()) {
    if (!value.contains("pre")) continue;
    ASSERT_EQ(value["hashes"].size(), texts.size()) << chain;
    std::string shown;  // names that stand for the same steps are looked at once
    for (const Json& name : value["pre"]) {
      const Result<const GgufCuts*> cuts = FindGgufCuts(name.get<std::string>(), "cuts.json");
      ASSERT_TRUE(cuts.ok()) << cuts.error().message;
      EXPECT_EQ((*cuts)->nfc, value["nfc"].get<bool>()) << name;
      proved.insert(name);
      const std::string steps = PreTokenizerOf(**cuts).dump();
      if (steps == shown) continue;
      EXPECT_TRUE(shown.empty()) << name << " has other steps than the names before it";
      shown = steps;
      for (size_t i = 0; i < texts.size(); ++i) {
        const std::vector<std::string> pieces = PiecesOf(**cuts, texts[i]);
        EXPECT_EQ(HashOf(pieces), value["hashes"][i].get<std::string>())
            << chain << ": " << Quoted(texts[i], 200) << ": " << Join(pieces, "|").substr(0, 400);
      }
    }
  }
  for (const GgufCuts& cuts : AllGgufCuts()) {
    EXPECT_TRUE(proved.contains(std::string(cuts.name))) << cuts.name;
  }
}

// A file with the vocabulary of bbpe_gpt2 that names these cuts, and the same as tokenizer.json.
class GgufCutsIds : public ::testing::TestWithParam<std::string> {
 protected:
  std::string WriteGguf(const Json& shared, const std::string& pre) const {
    const Json& vocabulary = shared["model"]["vocab"];
    std::vector<std::string> tokens(vocabulary.size() + shared["added_tokens"].size()), merges;
    std::vector<uint32_t> types(tokens.size(), 1);
    for (const auto& [token, id] : vocabulary.items()) tokens.at(id.get<size_t>()) = token;
    for (const Json& added : shared["added_tokens"]) {
      tokens.at(added["id"].get<size_t>()) = added["content"];
      types.at(added["id"].get<size_t>()) = added["special"].get<bool>() ? 3 : 4;
    }
    for (const Json& merge : shared["model"]["merges"]) merges.push_back(merge);
    GgufBytes file;
    file.Header(0, 7).KeyText("general.architecture", "llama");
    file.KeyText("tokenizer.ggml.model", "gpt2").KeyText("tokenizer.ggml.pre", pre);
    file.KeyTexts("tokenizer.ggml.tokens", tokens).KeyTexts("tokenizer.ggml.merges", merges);
    file.KeyNumbers("tokenizer.ggml.token_type", types);
    file.KeyFlag("tokenizer.ggml.add_bos_token", false);
    const std::string path = scratch_.File("m.gguf");
    std::ofstream(path, std::ios::binary) << file.bytes;
    return path;
  }
  std::string WriteJson(Json shared, const GgufCuts& cuts) const {
    shared["normalizer"] = NormalizerOf(cuts);
    shared["pre_tokenizer"] = PreTokenizerOf(cuts);
    shared["model"]["ignore_merges"] = cuts.whole_tokens;
    std::ofstream(scratch_.File("tokenizer.json")) << shared.dump();
    return scratch_.path();
  }
  const ScratchDirectory scratch_;
};

TEST_P(GgufCutsIds, AreThoseOfTheSameTokenizerJson) {
  const Result<Json> golden = ReadJsonFile(kCutsFile);
  const Result<Json> shared = ReadJsonFile(kSharedVocabulary + "/tokenizer.json");
  ASSERT_TRUE(golden.ok() && shared.ok());
  const Result<const GgufCuts*> cuts = FindGgufCuts(GetParam(), "test");
  ASSERT_TRUE(cuts.ok());
  const auto stored = LoadTokenizer(WriteGguf(*shared, GetParam()));
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  std::filesystem::remove(scratch_.File("m.gguf"));
  const auto own = LoadTokenizer(WriteJson(*shared, **cuts));
  ASSERT_TRUE(own.ok()) << own.error().message;
  for (const std::string& text : CutTexts(*golden)) {
    const auto want = (*own)->Encode(text, {}), got = (*stored)->Encode(text, {});
    ASSERT_TRUE(want.ok() && got.ok());
    EXPECT_EQ(*got, *want) << Quoted(text, 200);
    EXPECT_EQ((*stored)->Decode(*got, false), (*own)->Decode(*want, false)) << Quoted(text, 200);
  }
}

std::vector<std::string> CutNames() {
  std::vector<std::string> names;
  for (const GgufCuts& cuts : AllGgufCuts()) names.emplace_back(cuts.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, GgufCutsIds, ::testing::ValuesIn(CutNames()));

}  // namespace
}  // namespace kvgauge
