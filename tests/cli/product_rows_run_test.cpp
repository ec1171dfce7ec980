// SPDX-License-Identifier: Apache-2.0
// Runs of a quantised file by rows of its dtype and by rows of 8 bits.
#include "cli/run_fixture.h"
#include "support/gguf_file.h"

namespace kvgauge {
namespace {

constexpr uint64_t kHidden = 64, kMlp = 96, kQ80 = 8;

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
    const Part parts[] = {
        {"token_embd", {kHidden, words}},     {"output_norm", {kHidden}},
        {"output", {kHidden, words}},         {"blk.0.attn_norm", {kHidden}},
        {"blk.0.attn_q", {kHidden, kHidden}}, {"blk.0.attn_k", {kHidden, kHidden}},
        {"blk.0.attn_v", {kHidden, kHidden}}, {"blk.0.attn_output", {kHidden, kHidden}},
        {"blk.0.ffn_norm", {kHidden}},        {"blk.0.ffn_gate", {kHidden, kMlp}},
        {"blk.0.ffn_up", {kHidden, kMlp}},    {"blk.0.ffn_down", {kMlp, kHidden}}};
    GgufBytes head, data;
    head.Header(std::size(parts), 15).KeyText("general.architecture", "llama");
    head.Key("llama.context_length", 2048).Key("llama.embedding_length", kHidden);
    head.Key("llama.block_count", 1).Key("llama.feed_forward_length", kMlp);
    head.Key("llama.attention.head_count", 2).Key("llama.attention.head_count_kv", 2);
    head.KeyFloat("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    head.KeyFloat("llama.rope.freq_base", 10000.0f);
    head.KeyText("tokenizer.ggml.model", "gpt2").KeyText("tokenizer.ggml.pre", "gpt-2");
    head.KeyTexts("tokenizer.ggml.tokens", tokens).KeyTexts("tokenizer.ggml.merges", merges);
    head.KeyFlag("tokenizer.ggml.add_bos_token", false).Key("tokenizer.ggml.eos_token_id", 0);
    uint32_t state = 1;
    for (const Part& part : parts) {
      const bool vector = part.dims.size() == 1;
      head.Tensor(StrCat(part.name, ".weight"), part.dims, vector ? 0 : kQ80, data.bytes.size());
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
};

TEST_F(ProductRowsRunTest, ResultsAreOfTheirOwn) {
  WriteModel("m.gguf");
  const std::string path = Path("m.gguf");
  const auto run = [&](const std::string& rows) {
    Write("mine.json", StrCat(R"({"models": [{"path": ")", path, R"(", "name": "m")", rows, R"(}],
      "tasks": [{"task": "passkey", "samples": 2, "source": {"lengths": "320"},
                 "max_new_tokens": 4}], "methods": ["full"]})"));
    return Run({"run", Path("mine.json"), "--db", Path("r.db")});
  };
  const Outcome plain = run("");
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(Samples("r.db"), 2);
  // What was before there was a choice is the same cell.
  EXPECT_EQ(run(R"(, "product_rows": "dtype")").exit_code, 0);
  EXPECT_EQ(Samples("r.db"), 2);
  const Outcome coded = run(R"(, "product_rows": "int8")");
  ASSERT_EQ(coded.exit_code, 0) << coded.err;
  EXPECT_THAT(coded.err, ::testing::HasSubstr("is recorded with another product_rows"));
  EXPECT_EQ(Samples("r.db"), 4);
  std::multiset<std::string> rows;
  for (const StoredCell& cell : CellsOf(*Open("r.db"))) {
    rows.insert(ParseJson(cell.cell.signature, "signature")->value("product_rows", "none"));
  }
  EXPECT_EQ(rows, (std::multiset<std::string>{"int8", "none"}));

  const Outcome wrong = run(R"(, "product_rows": "int4")");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, ::testing::HasSubstr("expected dtype, int8 or file"));
}

}  // namespace
}  // namespace kvgauge
