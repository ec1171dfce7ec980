// SPDX-License-Identifier: Apache-2.0
// The shipped reference models answer as Hugging Face transformers does: from text, through the
// tokenizer, f32 arithmetic and greedy decoding, back to text.
#include <gtest/gtest.h>

#include <string>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "runner/generate.h"
#include "runner/tokenizer.h"

namespace kvgauge {
namespace {

class ReferenceModel : public testing::TestWithParam<const char*> {};

TEST_P(ReferenceModel, AnswersLikeHuggingFace) {
  const std::string directory = StrCat(KVG_SOURCE_DIR, "/models/", GetParam());
  Result<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(directory);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  Result<std::unique_ptr<Ops>> ops = MakeOps("cpu", MakeThreadSettings(0));
  ASSERT_TRUE(ops.ok()) << ops.error().message;
  ModelOptions options;
  options.dtype = DType::kF32;
  Result<std::unique_ptr<Model>> model = Model::Load(directory, options, **ops);
  ASSERT_TRUE(model.ok()) << model.error().message;

  int compared = 0;
  for (const std::string& line : Split(*ReadFile(directory + "/samples.jsonl"), '\n')) {
    if (line.empty()) continue;
    const Result<Json> sample = ParseJson(line, "samples.jsonl");
    ASSERT_TRUE(sample.ok()) << sample.error().message;
    // Longer pages add minutes under sanitizers and no other code.
    if ((*sample)["length"].get<int64_t>() > 1200) continue;
    const Result<std::vector<int32_t>> ids =
        (*tokenizer)->Encode((*sample)["prompt"].get<std::string>());
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    const std::string want = (*sample)["hf_greedy"];
    GenerateOptions generate;
    generate.max_new_tokens = 256;  // the text ends it before
    TextStream stream(**tokenizer);
    std::string got;
    const Result<GenerateResult> result =
        Generate(**model, Prompt::FromTokens(*ids), generate, [&](int32_t id) {
          got += stream.Push(id);
          return got.size() < want.size();
        });
    ASSERT_TRUE(result.ok()) << result.error().message;
    got += stream.Finish();
    EXPECT_EQ(std::string(Trim(got)).substr(0, Trim(want).size()), Trim(want))
        << (*sample)["task"] << ", " << (*sample)["length"] << " tokens";
    ++compared;
  }
  EXPECT_GE(compared, 10);
}

INSTANTIATE_TEST_SUITE_P(Shipped, ReferenceModel,
                         testing::Values("ref-mha", "ref-gqa", "ref-mqa", "ref-mla", "ref-chain"),
                         [](const auto& shipped) { return StrCat("ref_", shipped.param + 4); });

}  // namespace
}  // namespace kvgauge
