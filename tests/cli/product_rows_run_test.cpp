// SPDX-License-Identifier: Apache-2.0
// Runs of quantised files by rows of their dtype, by rows of 8 bits and by rows as the file says.
#include <cstring>
#include <set>

#include "cli/run_fixture.h"
#include "support/gguf_file.h"

namespace kvgauge {
namespace {

constexpr uint64_t kHiddenSize = 64, kMlpSize = 96, kTypeQ80 = 8;

class ProductRowsRunTest : public RunTest {
 protected:
  // One layer in q8_0 with the vocabulary of a reference tokenizer.
  void WriteModel(const std::string& name) const {
    const Json shared = *ReadJsonFile(KVG_TEST_DATA "/golden/tokenizers/bbpe_gpt2/tokenizer.json");
    const Json& vocabulary = shared["model"]["vocab"];
    std::vector<std::string> tokens(vocabulary.size() + shared["added_tokens"].size()), merges;
    for (const auto& [token, id] : vocabulary.items()) tokens.at(id.get<size_t>()) = token;
    for (const Json& added : shared["added_tokens"]) {
      tokens.at(added["id"].get<size_t>()) = added["content"];
    }
    for (const Json& merge : shared["model"]["merges"]) merges.push_back(merge);

    const uint64_t words = tokens.size();
    struct Part {
      const char* name;
      std::vector<uint64_t> dims;  // columns first
    };
    const Part parts[] = {{"token_embd", {kHiddenSize, words}},
                          {"output_norm", {kHiddenSize}},
                          {"output", {kHiddenSize, words}},
                          {"blk.0.attn_norm", {kHiddenSize}},
                          {"blk.0.attn_q", {kHiddenSize, kHiddenSize}},
                          {"blk.0.attn_k", {kHiddenSize, kHiddenSize}},
                          {"blk.0.attn_v", {kHiddenSize, kHiddenSize}},
                          {"blk.0.attn_output", {kHiddenSize, kHiddenSize}},
                          {"blk.0.ffn_norm", {kHiddenSize}},
                          {"blk.0.ffn_gate", {kHiddenSize, kMlpSize}},
                          {"blk.0.ffn_up", {kHiddenSize, kMlpSize}},
                          {"blk.0.ffn_down", {kMlpSize, kHiddenSize}}};
    GgufBytes head, data;
    head.Header(std::size(parts), 15).KeyText("general.architecture", "llama");
    head.Key("llama.context_length", 2048).Key("llama.embedding_length", kHiddenSize);
    head.Key("llama.block_count", 1).Key("llama.feed_forward_length", kMlpSize);
    head.Key("llama.attention.head_count", 2).Key("llama.attention.head_count_kv", 2);
    head.KeyFloat("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    head.KeyFloat("llama.rope.freq_base", 10000.0f);
    head.KeyText("tokenizer.ggml.model", "gpt2").KeyText("tokenizer.ggml.pre", "gpt-2");
    head.KeyTexts("tokenizer.ggml.tokens", tokens).KeyTexts("tokenizer.ggml.merges", merges);
    head.KeyFlag("tokenizer.ggml.add_bos_token", false).Key("tokenizer.ggml.eos_token_id", 0);
    uint32_t state = 1;
    for (const Part& part : parts) {
      const bool vector = part.dims.size() == 1;
      head.Tensor(StrCat(part.name, ".weight"), part.dims, vector ? 0 : kTypeQ80,
                  data.bytes.size());
      const uint64_t count = part.dims[0] * (vector ? 1 : part.dims[1]);
      for (uint64_t i = 0; i < count; ++i) {
        if (!vector && i % 32 == 0) data.Number(0x1400, 2);  // a scale of 2^-10
        state = state * 1664525 + 1013904223;
        vector ? data.Number(std::bit_cast<uint32_t>(1.0f), 4) : data.Number(state >> 24, 1);
      }
      data.Pad();
    }
    Write(name, head.Pad().bytes + data.bytes);
  }

  // A reference checkpoint of int8 that says how rows are rounded, with words for the tokenizer:
  // its own 64 again and again. In the test's directory, in place of the model that is there.
  void WriteCheckpoint() const {
    const std::string from = KVG_TEST_DATA "/golden/quantized/ct_int_token";
    constexpr int64_t kWords = 1792, kOwnWords = 64;
    Json config = *ReadJsonFile(from + "/config.json");
    config["vocab_size"] = kWords;
    config["max_position_embeddings"] = 2048;
    Write("config.json", config.dump());

    const std::string bytes = *ReadFile(from + "/model.safetensors");
    uint64_t head_bytes = 0;
    std::memcpy(&head_bytes, bytes.data(), sizeof head_bytes);
    Json head = *ParseJson(bytes.substr(sizeof head_bytes, head_bytes), "head");
    Json& words = head["model.embed_tokens.weight"];
    const auto own_bytes = words["data_offsets"][1].get<int64_t>();
    ASSERT_EQ(words["data_offsets"][0], 0);
    ASSERT_EQ(words["shape"][0], kOwnWords);
    const int64_t more_bytes = own_bytes * (kWords / kOwnWords - 1);
    words["shape"][0] = kWords;
    words["data_offsets"][1] = own_bytes + more_bytes;
    for (auto& [name, tensor] : head.items()) {
      if (name == "__metadata__" || name == "model.embed_tokens.weight") continue;
      for (Json& offset : tensor["data_offsets"]) offset = offset.get<int64_t>() + more_bytes;
    }
    const std::string data = bytes.substr(sizeof head_bytes + head_bytes), text = head.dump();
    const uint64_t text_bytes = text.size();
    std::string out(reinterpret_cast<const char*>(&text_bytes), sizeof text_bytes);
    out += text;
    for (int64_t i = 0; i < more_bytes / own_bytes; ++i) {
      out.append(data, 0, static_cast<size_t>(own_bytes));
    }
    Write("model.safetensors", out + data);
  }

  // Runs the model with such a choice, or without one.
  Outcome RunRows(const std::string& path, const std::string& rows, const std::string& db) const {
    const std::string choice = rows.empty() ? "" : StrCat(R"(, "product_rows": ")", rows, "\"");
    Write("mine.json", StrCat(R"({"models": [{"path": ")", path, R"(", "name": "m")", choice, R"(}],
      "tasks": [{"task": "passkey", "samples": 2, "source": {"lengths": "320"},
                 "max_new_tokens": 4}], "methods": ["full"]})"));
    return Run({"run", Path("mine.json"), "--db", Path(db)});
  }
  // What each cell's signature says of them.
  std::multiset<std::string> RowsIn(const std::string& db) const {
    std::multiset<std::string> rows;
    for (const StoredCell& cell : CellsOf(*Open(db))) {
      rows.insert(ParseJson(cell.cell.signature, "signature")->value("product_rows", "none"));
    }
    return rows;
  }
};

TEST_F(ProductRowsRunTest, ResultsAreOfTheirOwn) {
  WriteModel("m.gguf");
  const std::string path = Path("m.gguf");
  const Outcome plain = RunRows(path, "", "r.db");
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(Samples("r.db"), 2);
  // What was before there was a choice is the same cell.
  EXPECT_EQ(RunRows(path, "dtype", "r.db").exit_code, 0);
  EXPECT_EQ(Samples("r.db"), 2);
  const Outcome coded = RunRows(path, "int8", "r.db");
  ASSERT_EQ(coded.exit_code, 0) << coded.err;
  EXPECT_THAT(coded.err, ::testing::HasSubstr("is recorded with another product_rows"));
  EXPECT_EQ(Samples("r.db"), 4);
  EXPECT_EQ(RowsIn("r.db"), (std::multiset<std::string>{"int8", "none"}));

  const Outcome wrong = RunRows(path, "int4", "r.db");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, ::testing::HasSubstr("expected dtype, int8 or file"));
}

// A run that goes on with another choice takes nothing of what is there, and what compares results
// never takes the two for one.
TEST_F(ProductRowsRunTest, ResultsByRowsOfTheFileAreOfTheirOwn) {
  WriteCheckpoint();
  const std::string path = Path(".");
  const Outcome plain = RunRows(path, "", "r.db");
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(Samples("r.db"), 2);
  const Outcome rounded = RunRows(path, "file", "r.db");
  ASSERT_EQ(rounded.exit_code, 0) << rounded.err;
  EXPECT_THAT(rounded.err, ::testing::HasSubstr("is recorded with another product_rows"));
  EXPECT_EQ(Samples("r.db"), 4);
  EXPECT_EQ(RowsIn("r.db"), (std::multiset<std::string>{"file", "none"}));
  const std::string digest = Digest("r.db");
  EXPECT_EQ(RunRows(path, "file", "r.db").exit_code, 0);
  EXPECT_EQ(Digest("r.db"), digest);
  EXPECT_EQ(Samples("r.db"), 4);

  // In files of their own they are no parts of one result.
  ASSERT_EQ(RunRows(path, "", "a.db").exit_code, 0);
  ASSERT_EQ(RunRows(path, "file", "b.db").exit_code, 0);
  const Outcome merged = Run({"merge", Path("c.db"), Path("a.db"), Path("b.db")});
  EXPECT_EQ(merged.exit_code, 2);
  EXPECT_THAT(merged.err, ::testing::HasSubstr("they differ in product_rows"));
  const Outcome board = Run({"leaderboard", Path("a.db"), Path("b.db")});
  EXPECT_EQ(board.exit_code, 0) << board.err;
  EXPECT_THAT(board.out, ::testing::AllOf(::testing::HasSubstr("not compared with this one"),
                                          ::testing::HasSubstr("product_rows")));

  const Outcome coded = RunRows(path, "int8", "r.db");
  EXPECT_EQ(coded.exit_code, 2);
  EXPECT_THAT(coded.err, ::testing::HasSubstr("multiplied by rows of int8"));
}

}  // namespace
}  // namespace kvgauge
