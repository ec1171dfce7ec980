// SPDX-License-Identifier: Apache-2.0
// Vocabulary files whose tokenizer class says the rest: vocab.json with merges.txt, and tiktoken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/json.h"
#include "core/strings.h"
#include "runner/tokenizer.h"
#include "src/text/tokenizer/vocabulary.h"
#include "support/scratch_directory.h"

namespace kvgauge {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class TokenizerFiles : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  }
  // Every byte, then "ab" and "abc"; id 258 is </s>.
  static Json Vocab() {
    Json vocab = Json::object();
    for (int byte = 0; byte < 256; ++byte) {
      std::string token;
      AppendUtf8(token, ByteToAlphabet(static_cast<uint8_t>(byte)));
      vocab[token] = byte;
    }
    vocab["ab"] = 256;
    vocab["abc"] = 257;
    vocab["</s>"] = 258;
    return vocab;
  }
  void WriteFiles(const std::string& config, const Json& vocab = Vocab(),
                  const std::string& merges = "#version: 0.2\na b\nab c\n") const {
    Write("vocab.json", vocab.dump());
    Write("merges.txt", merges);
    if (!config.empty()) Write("tokenizer_config.json", config);
  }
  std::unique_ptr<Tokenizer> Load() const {
    Result<std::unique_ptr<Tokenizer>> loaded = LoadTokenizer(path_);
    EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
    return loaded.ok() ? std::move(*loaded) : nullptr;
  }
  std::string Fault() const {
    const Result<std::unique_ptr<Tokenizer>> loaded = LoadTokenizer(path_);
    return loaded.ok() ? "" : loaded.error().message;
  }
  static std::vector<int32_t> Ids(const Tokenizer& tokenizer, std::string_view text) {
    const Result<std::vector<int32_t>> ids = tokenizer.Encode(text);
    EXPECT_TRUE(ids.ok());
    return ids.ok() ? *ids : std::vector<int32_t>();
  }

  const ScratchDirectory scratch_;
  const std::string path_ = scratch_.path();
};

TEST_F(TokenizerFiles, VocabAndMergesTakeSpecialsAndCleanUp) {
  WriteFiles(R"({"tokenizer_class": "GPT2Tokenizer", "bos_token": {"content": "</s>"},
                 "eos_token": "</s>", "unk_token": "</s>", "add_bos_token": true,
                 "clean_up_tokenization_spaces": true})");
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->bos_id(), 258);
  EXPECT_EQ(tokenizer->VocabSize(), 259);
  EXPECT_THAT(Ids(*tokenizer, "abc</s>"), ElementsAre(258, 257, 258));
  const std::vector<int32_t> ids = Ids(*tokenizer, "is n't it ?");
  EXPECT_EQ(tokenizer->Decode(ids), "isn't it?");
  EXPECT_EQ(tokenizer->Spell(ids), "</s>is n't it ?");
}

// The class decides, from whichever file names it.
TEST_F(TokenizerFiles, TheClassSaysHowATextIsCut) {
  WriteFiles(R"({"tokenizer_class": "Qwen2TokenizerFast"})");
  const std::string composed = "\u00e9", decomposed = "e\u0301";
  auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(Ids(*tokenizer, decomposed), Ids(*tokenizer, composed));
  EXPECT_THAT(tokenizer->Kind(), HasSubstr("Qwen2Tokenizer"));
  const std::string qwen2 = tokenizer->fingerprint();

  WriteFiles(R"({"model_max_length": 8})");
  Write("config.json", R"({"model_type": "qwen3"})");
  tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(Ids(*tokenizer, decomposed), Ids(*tokenizer, composed));
  const std::string by_model = tokenizer->fingerprint();

  Write("config.json", R"({"model_type": "opt"})");
  tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_NE(Ids(*tokenizer, decomposed), Ids(*tokenizer, composed));
  // Other ids, another fingerprint: config.json is not among its files, the class is.
  EXPECT_NE(tokenizer->fingerprint(), by_model);
  EXPECT_NE(by_model, qwen2);

  Write("config.json", R"({"model_type": "opt", "tokenizer_class": "RobertaTokenizer"})");
  tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, "x"), false), "<s>x</s>");
}

TEST_F(TokenizerFiles, RefusesAClassItDoesNotKnow) {
  WriteFiles(R"({"tokenizer_class": "MyTokenizer"})");
  EXPECT_THAT(Fault(), AllOf(HasSubstr("tokenizer_config.json"), HasSubstr("'MyTokenizer'"),
                             HasSubstr("GPT2Tokenizer, Qwen2Tokenizer")));
  WriteFiles(R"({"eos_token": "</s>"})");
  EXPECT_THAT(Fault(), AllOf(HasSubstr("'tokenizer_class' is missing"),
                             HasSubstr("config.json name a model_type")));
  Write("config.json", R"({"model_type": "llama"})");
  EXPECT_THAT(Fault(), AllOf(HasSubstr("'llama'"), HasSubstr("Qwen2Tokenizer")));
  Write("config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
  EXPECT_THAT(Fault(), AllOf(HasSubstr("config.json"), HasSubstr("'PreTrainedTokenizerFast'")));
}

TEST_F(TokenizerFiles, RefusesCutAndDisorderedFiles) {
  const std::string gpt2 = R"({"tokenizer_class": "GPT2Tokenizer"})";
  const auto fault = [&](const std::string& merges, const std::string& config) {
    WriteFiles(config, Vocab(), merges);
    return Fault();
  };
  EXPECT_EQ(fault("#version: 0.2\na b\nab c\n", gpt2), "");
  EXPECT_THAT(fault("#version: 0.2\nab c\na b\n", gpt2),
              AllOf(HasSubstr("merges.txt: line 2"), HasSubstr("'ab'"), HasSubstr("line 3")));
  EXPECT_THAT(fault("#version: 0.2\nab c\n", gpt2), HasSubstr("no line makes"));
  EXPECT_THAT(fault("#version: 0.2\na b\nab", gpt2), HasSubstr("has no end"));
  EXPECT_THAT(fault("a b\nab c\n", gpt2), HasSubstr("#version"));
  EXPECT_THAT(fault("#version: 0.2\na b\nab d\n", gpt2),
              AllOf(HasSubstr("line 3"), HasSubstr("'abd'"), HasSubstr("vocab.json lacks")));
  EXPECT_THAT(fault("#version: 0.2\na  b\n", gpt2), HasSubstr("two tokens"));
  EXPECT_THAT(fault("#version: 0.2\na b\n\xff c\n", gpt2), HasSubstr("not UTF-8"));
  // Qwen2's class takes a file without header, and a last line without end.
  EXPECT_EQ(fault("a b\nab c", R"({"tokenizer_class": "Qwen2Tokenizer"})"), "");

  Json vocab = Vocab();
  vocab.erase("z");
  WriteFiles(gpt2, vocab);
  EXPECT_THAT(Fault(), AllOf(HasSubstr("vocab.json"), HasSubstr("'z'"), HasSubstr("byte 122")));
  WriteFiles(gpt2);
  Write("vocab.json", Vocab().dump().substr(0, 900));
  EXPECT_THAT(Fault(), HasSubstr("not valid JSON"));
}

TEST_F(TokenizerFiles, WhisperNamesWhatItLacks) {
  WriteFiles(R"({"tokenizer_class": "WhisperTokenizer"})");
  EXPECT_THAT(Fault(), HasSubstr("'<|startoftranscript|>'"));
  WriteFiles(R"({"tokenizer_class": "WhisperTokenizer", "language": "german",
                 "additional_special_tokens": ["<|startoftranscript|>", "<|de|>",
                                               "<|notimestamps|>"]})");
  EXPECT_THAT(Fault(), AllOf(HasSubstr("language"), HasSubstr("german"), HasSubstr("code")));
  WriteFiles(R"({"tokenizer_class": "WhisperTokenizer", "language": "de",
                 "predict_timestamps": true,
                 "additional_special_tokens": ["<|startoftranscript|>", "<|de|>"]})");
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, "x"), false),
            "<|startoftranscript|><|de|>x<|endoftext|>");
}

std::string Base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      out += i + k > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
    }
  }
  return out;
}

// All bytes, then the given tokens.
std::string Ranks(const std::vector<std::string>& tokens) {
  std::string out;
  int rank = 0;
  for (int byte = 0; byte < 256; ++byte) {
    out += StrCat(Base64(std::string(1, static_cast<char>(byte))), " ", rank++, "\n");
  }
  for (const std::string& token : tokens) out += StrCat(Base64(token), " ", rank++, "\n");
  return out;
}

TEST_F(TokenizerFiles, TiktokenMergesByTheRankOfTheUnion) {
  // "abc" is what "ab" + "c" and "a" + "bc" both make; "bc" comes before "ab".
  Write("tokenizer.model", Ranks({"bc", "ab", "abc", "hello"}));
  Write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->bos_id(), 260);
  EXPECT_THAT(Ids(*tokenizer, "abcb"), ElementsAre(260, 258, 'b'));
  EXPECT_THAT(Ids(*tokenizer, "hello"), ElementsAre(260, 259));  // no pair makes it: the piece does
  EXPECT_THAT(Ids(*tokenizer, "<|eot_id|>"), ElementsAre(260, 269));
  EXPECT_EQ(tokenizer->VocabSize(), 260 + 256);
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, "a\xe2\x82z")), "a\ufffdz");
  // A file that lists ids has the last word on their names.
  Write("tokenizer_config.json",
        R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false, "added_tokens_decoder":
            {"260": {"content": "<|begin_of_text|>", "special": true},
             "268": {"content": "<|eom_id|>", "special": true}}})");
  const auto named = Load();
  ASSERT_NE(named, nullptr);
  EXPECT_THAT(Ids(*named, "<|eom_id|>"), ElementsAre(268));
  EXPECT_EQ(named->IdOf("<|eot_id|>"), std::nullopt);
}

TEST_F(TokenizerFiles, RefusesBadTiktokenFiles) {
  const auto fault = [&](const std::string& ranks) {
    Write("qwen.tiktoken", ranks);
    return Fault();
  };
  Write("tokenizer_config.json", R"({"tokenizer_class": "QWenTokenizer"})");
  const std::string whole = Ranks({"ab", "abc"});
  EXPECT_EQ(fault(whole), "");
  // "YWJj 2"
  EXPECT_THAT(fault(whole.substr(0, whole.size() - 3)), HasSubstr("id 2 is given to both"));
  EXPECT_THAT(fault(whole.substr(0, whole.size() - 6)),
              AllOf(HasSubstr("line 258"), HasSubstr("base64")));
  EXPECT_THAT(fault(whole.substr(0, whole.size() / 2 - 3)), HasSubstr("qwen.tiktoken"));
  EXPECT_THAT(fault(whole + "YWI= 258\n"), HasSubstr("repeated"));
  EXPECT_THAT(fault(whole + "YWJk 400\n"), HasSubstr("no line has rank 258"));
  EXPECT_THAT(fault(whole + "YWJk -1\n"), HasSubstr("line 259"));
  EXPECT_THAT(fault(whole + "YW!k 258\n"), HasSubstr("line 259"));
  EXPECT_THAT(fault("YWI= 0\n"), HasSubstr("byte 0"));
  EXPECT_THAT(fault(""), HasSubstr("byte 0"));

  Write("qwen.tiktoken", whole);
  Write("tokenizer_config.json", R"({"tokenizer_class": "MyTokenizer"})");
  EXPECT_THAT(Fault(), AllOf(HasSubstr("tiktoken"), HasSubstr("'MyTokenizer'"),
                             HasSubstr("QWenTokenizer, LlamaTokenizer (Llama 3) and Yoco")));
  Write("tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
  EXPECT_THAT(Fault(), HasSubstr("no tokenizer_class names"));
  Write("config.json", R"({"model_type": "chatglm"})");
  EXPECT_THAT(Fault(), HasSubstr("'chatglm'"));
  Write("config.json", R"({"model_type": "qwen"})");
  EXPECT_EQ(Fault(), "");
}

// Lines of RWKV's vocabulary: all bytes, then `more`, whose ids go on from there.
std::string RwkvLines(const std::vector<std::string>& more) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  int id = 0;
  for (int byte = 0; byte < 256; ++byte) {
    out += StrCat(++id, " b'\\x", std::string(1, kHex[byte / 16]), std::string(1, kHex[byte % 16]),
                  "' 1\n");
  }
  for (const std::string& token : more) out += StrCat(++id, " ", token, "\n");
  return out;
}

TEST_F(TokenizerFiles, RwkvTakesTheLongestTokens) {
  Write("rwkv_vocab_v1.txt", "nothing");
  Write("rwkv_vocab_v2.txt", RwkvLines({"'ab' 2", "'abcd' 4", R"("b'c" 3)", R"('\n\\' 2)",
                                        R"('\xe9' 2)", R"(b'\xe2\x82' 2)", R"('\U0001f600' 4)"}));
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  // At each place, whatever comes later: "ab", then "c".
  EXPECT_THAT(Ids(*tokenizer, "abcabcd"), ElementsAre(257, 'c' + 1, 258));
  EXPECT_THAT(Ids(*tokenizer, "b'c\n\\"), ElementsAre(259, 260));
  EXPECT_THAT(Ids(*tokenizer, "\u00e9\u20ac\U0001f600"), ElementsAre(261, 262, 0xac + 1, 263));
  EXPECT_THAT(Ids(*tokenizer, "a<|rwkv_tokenizer_end_of_text|>"), ElementsAre('a' + 1, 0));
  EXPECT_TRUE(tokenizer->IsSpecial(0));
  EXPECT_EQ(tokenizer->VocabSize(), 264);
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{262, 0xac + 1, 0, 257}), "\u20acab");
  // Other publishers name the end of a text otherwise.
  Write("tokenizer_config.json", R"({"bos_token": "<s>", "added_tokens_decoder":
      {"0": {"content": "<s>", "special": true}}})");
  const auto named = Load();
  ASSERT_NE(named, nullptr);
  EXPECT_EQ(named->bos_id(), 0);
  EXPECT_THAT(Ids(*named, "<s>ab"), ElementsAre(0, 257));
}

TEST_F(TokenizerFiles, RefusesBadRwkvFiles) {
  const auto fault = [&](const std::vector<std::string>& more) {
    Write("rwkv_vocab_v2.txt", RwkvLines(more));
    return Fault();
  };
  EXPECT_EQ(fault({"'ab' 2"}), "");
  EXPECT_THAT(fault({"'ab' 3"}), AllOf(HasSubstr("rwkv_vocab_v2.txt: line 257"),
                                       HasSubstr("whose token has 2 bytes")));
  for (const char* token : {"ab", "'ab", "'ab'c", "b'\u00e9'", R"('\q')", R"('\x4')",
                            R"(b'\u0041')", R"('\ud800')", "'ab' + 'c'", R"(__import__('os'))"}) {
    EXPECT_THAT(fault({StrCat(token, " 2")}), HasSubstr("no literal")) << token;
  }
  for (const char* line : {"'ab'", "2", ""}) {
    EXPECT_THAT(fault({line, "'cd' 2"}), HasSubstr("line 257")) << line;
  }
  EXPECT_THAT(fault({"'' 0"}), HasSubstr("line 257"));
  EXPECT_THAT(fault({"'ab' 2", "'ab' 2"}), HasSubstr("line 258: the token 'ab' is repeated"));
  const std::string whole = RwkvLines({"'ab' 2"});
  Write("rwkv_vocab_v2.txt", whole + "300 'cd' 2\n");
  EXPECT_THAT(Fault(), HasSubstr("no line has id 258"));
  Write("rwkv_vocab_v2.txt", whole.substr(whole.find('\n') + 1));
  EXPECT_THAT(Fault(), HasSubstr("no line has id 1"));
  Write("rwkv_vocab_v2.txt", "1 'a' 1\n");
  EXPECT_THAT(Fault(), HasSubstr("no line is byte 0"));
  Write("rwkv_vocab_v2.txt", whole);
  Write("config.json", R"({"model_type": "rwkv7", "vocab_size": 320})");
  EXPECT_EQ(Fault(), "");
  Write("config.json", R"({"model_type": "rwkv7", "vocab_size": 65536})");
  EXPECT_THAT(Fault(), AllOf(HasSubstr("last token has id 257"), HasSubstr("cut short")));
  Write("config.json", R"({"model_type": "rwkv7", "vocab_size": 100})");
  EXPECT_THAT(Fault(), HasSubstr("another model's"));
}

// A file that ends behind a whole line looks whole by itself.
TEST_F(TokenizerFiles, ATiktokenFileCutAtALineIsShorterThanItsModel) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 900; ++i) tokens.push_back(StrCat("t", i, "t"));
  const std::string whole = Ranks(tokens);
  tokens.resize(880);
  const std::string shorter = Ranks(tokens);
  tokens.resize(100);
  const std::string half = Ranks(tokens);
  Write("tokenizer_config.json", R"({"tokenizer_class": "QWenTokenizer"})");
  // 85 rows of padding, as Qwen's.
  Write("config.json", R"({"model_type": "qwen", "vocab_size": 1449})");
  const auto fault = [&](const char* file, const std::string& ranks) {
    Write(file, ranks);
    return Fault();
  };
  EXPECT_EQ(fault("qwen.tiktoken", whole), "");
  EXPECT_THAT(fault("qwen.tiktoken", half),
              AllOf(HasSubstr("qwen.tiktoken: has 356 lines"), HasSubstr("564 tokens"),
                    HasSubstr("vocab_size of 1,449"), HasSubstr("cut short")));
  std::filesystem::remove(path_ + "/qwen.tiktoken");
  // Llama 3's first special token stands right behind the ranks.
  Write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
  Write("config.json", R"({"model_type": "llama", "vocab_size": 1412, "bos_token_id": 1156})");
  EXPECT_EQ(fault("tokenizer.model", whole), "");
  EXPECT_THAT(fault("tokenizer.model", shorter),
              AllOf(HasSubstr("1,136 lines"), HasSubstr("bos_token_id"), HasSubstr("1156")));
  // The first one that is listed does so, too.
  Write("tokenizer_config.json",
        R"({"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder":
            {"1156": {"content": "<|begin_of_text|>", "special": true}}})");
  EXPECT_EQ(fault("tokenizer.model", whole), "");
  EXPECT_THAT(fault("tokenizer.model", shorter), HasSubstr("lists has id 1156"));
}

}  // namespace
}  // namespace kvgauge
