// SPDX-License-Identifier: Apache-2.0
// Perfect eyes: rows of pictures that are the embeddings of the words they show. So the chain from
// drawn pages to the engine is tested without any weights for pictures: a text model that never saw
// one finds what stands in them, and loses it where a method drops it.
#include <gtest/gtest.h>

#include <map>

#include "core/strings.h"
#include "datasets/task.h"
#include "methods/method.h"
#include "runner/engine.h"
#include "runner/tokenizer.h"
#include "runner/weights.h"
#include "support/visual_rows.h"

namespace kvgauge {
namespace {

class PerfectEyes : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string directory = StrCat(KVG_SOURCE_DIR, "/models/ref-gqa");
    auto tokenizer = LoadTokenizer(directory);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    tokenizer_ = *std::move(tokenizer);
    ops_ = *MakeOps("cpu", MakeThreadSettings(0));
    auto model = Model::Load(directory, {}, *ops_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *std::move(model);
    source_ = *OpenSafetensors(directory);
    const auto table = source_->Get("model.embed_tokens.weight");
    ASSERT_TRUE(table.ok()) << table.error().message;
    ASSERT_EQ(table->view.dtype, DType::kBF16);
    width_ = table->view.shape[1];
    const auto* stored = static_cast<const uint16_t*>(table->view.data);
    embeddings_.resize(static_cast<size_t>(table->view.shape[0] * width_));
    for (size_t i = 0; i < embeddings_.size(); ++i) {
      const uint32_t bits = uint32_t{stored[i]} << 16;
      std::memcpy(&embeddings_[i], &bits, 4);
    }
    blank_.assign(static_cast<size_t>(width_), 0.0f);
    const auto rows = static_cast<size_t>(table->view.shape[0]);
    for (size_t i = 0; i < embeddings_.size(); ++i) {
      blank_[i % static_cast<size_t>(width_)] += embeddings_[i] / static_cast<float>(rows);
    }
  }

  int32_t IdOf(const std::string& word) const {
    const bool digit = word[0] >= '0' && word[0] <= '9';
    const auto id = tokenizer_->IdOf(digit ? word : "\u2581" + word);
    EXPECT_TRUE(id.has_value()) << word << " is not one piece";
    return id.value_or(0);
  }

  // Behind other text, so that no space is put in front.
  void AppendText(const std::string& text, std::vector<int32_t>& ids) const {
    const auto anchor = *tokenizer_->Encode(".", {.add_special = false});
    const auto both = *tokenizer_->Encode("." + text, {.add_special = false});
    ids.insert(ids.end(), both.begin() + std::ssize(anchor), both.end());
  }

  EngineSample Feed(const Sample& page, std::vector<int32_t>& answer) const {
    EngineSample sample;
    sample.id = page.id;
    std::vector<float> rows;
    std::vector<int32_t>& ids = sample.context;
    ids = *tokenizer_->Encode("Story:");
    size_t from = 6;
    int32_t row = 0;
    for (size_t i = 0; i < page.pictures.size(); ++i) {
      const Picture& picture = page.pictures[i];
      const auto at = static_cast<size_t>(picture.at);
      AppendText(page.context.substr(from, at - from), ids);
      from = at;
      sample.context_spans.push_back({.first = std::ssize(ids),
                                      .count = std::ssize(picture.words),
                                      .index = static_cast<int32_t>(i),
                                      .grid = {1, 8, 8},
                                      .embedding_row = row});
      for (const std::string& word : picture.words) {
        const float* values =
            word.empty() ? blank_.data() : &embeddings_[static_cast<size_t>(IdOf(word) * width_)];
        rows.insert(rows.end(), values, values + width_);
        ids.push_back(0);
        ++row;
      }
    }
    AppendText(page.context.substr(from), ids);
    EngineTurn turn;
    AppendText(page.questions[0].text + page.questions[0].answer_prefix, turn.ids);
    AppendText(page.questions[0].answers[0], answer);
    turn.max_new_tokens = std::ssize(answer);
    sample.turns = {turn};
    sample.visuals = VisualsOf(rows, width_);
    return sample;
  }

  // Share of answer tokens that are right, for each of the rows.
  std::vector<double> Score(const std::string& form, int pictures, int pages,
                            const std::vector<std::pair<std::string, std::string>>& rows) {
    const Result<Task> task = ParseTask(
        Json{{"name", "t"},
             {"version", 1},
             {"group", "t"},
             {"description", "t"},
             {"metric", "accuracy"},
             {"max_new_tokens", 8},
             {"source",
              {{"name", "visual_pages"}, {"form", form}, {"pictures", std::to_string(pictures)}}}},
        "t.json");
    EXPECT_TRUE(task.ok()) << task.error().message;
    const auto stream = *OpenTask(*task, {.data_directory = "", .limit = pages});
    std::vector<EngineSample> samples;
    std::vector<std::vector<int32_t>> answers;
    while (auto page = *stream->Next()) {
      samples.push_back(Feed(*page, answers.emplace_back()));
    }
    std::vector<Method> methods;
    std::vector<Contender> contenders;
    for (const auto& [id, budget] : rows) {
      methods.push_back(*LoadMethod(id, StrCat(KVG_SOURCE_DIR, "/configs/methods"), {}));
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      contenders.push_back(
          {.method = &methods[i], .budget = *Budget::Parse(rows[i].second), .model = model_.get()});
    }
    std::vector<double> right(rows.size());
    double all = 0;
    for (const auto& answer : answers) all += static_cast<double>(answer.size());
    Engine engine(contenders, {});
    const Status ran = engine.Run(samples, [&](const CellResult& cell) {
      EXPECT_TRUE(cell.status.ok()) << cell.status.error().message;
      const std::vector<int32_t>& want = answers[static_cast<size_t>(cell.sample)];
      for (size_t i = 0; i < std::min(want.size(), cell.turns[0].ids.size()); ++i) {
        right[static_cast<size_t>(cell.contender)] += want[i] == cell.turns[0].ids[i] ? 1 / all : 0;
      }
      return Status();
    });
    EXPECT_TRUE(ran.ok()) << ran.error().message;
    return right;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<WeightSource> source_;
  int64_t width_ = 0;
  std::vector<float> embeddings_, blank_;
};

// By chance a digit is right one time in ten.
TEST_F(PerfectEyes, PagesCanBeSolvedAndMethodsTell) {
  const std::vector<double> share =
      Score("pairs", 5, 24, {{"full", "100%"}, {"snapkv", "50%"}, {"random", "15%"}});
  RecordProperty("full", std::to_string(share[0]));
  EXPECT_GE(share[0], 0.4) << "full";
  EXPECT_GE(share[1], share[0] - 0.15) << "snapkv at half";
  EXPECT_LE(share[2], share[0] - 0.2) << "random at 15%";
  std::printf("%f %f %f\n", share[0], share[1], share[2]);
}

}  // namespace
}  // namespace kvgauge
