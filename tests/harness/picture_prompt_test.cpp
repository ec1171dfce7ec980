// SPDX-License-Identifier: Apache-2.0
// Samples with pictures as prompts: parts in their order, and rows at their places.
#include "src/run/picture_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/files.h"
#include "core/strings.h"
#include "src/run/sample_prompt.h"
#include "support/scratch_directory.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kImage = 300;

// A token for each byte, and one for the mark of a picture.
class Bytes final : public Tokenizer {
 public:
  Result<std::vector<int32_t>> Encode(std::string_view text,
                                      const EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    while (!text.empty()) {
      const bool mark = options.parse_special && text.starts_with("<image>");
      ids.push_back(mark ? kImage : static_cast<uint8_t>(text[0]));
      text.remove_prefix(mark ? 7 : 1);
    }
    return ids;
  }
  std::unique_ptr<Detokenizer> NewDetokenizer(const DecodeOptions&) const override {
    return nullptr;
  }
  std::string Kind() const override { return "bytes"; }
  int64_t VocabSize() const override { return 512; }
  std::string TokenText(int32_t id) const override {
    return id == kImage ? "<image>" : std::string(1, static_cast<char>(id));
  }
  std::optional<int32_t> IdOf(std::string_view) const override { return std::nullopt; }
  bool IsSpecial(int32_t id) const override { return id == kImage; }
};

ShownVisual Rows(int64_t rows) {
  ShownVisual visual;
  visual.layout.rows = rows;
  visual.layout.blocks = {{.rows = rows, .grid = {1, 1, static_cast<int32_t>(rows)}}};
  return visual;
}

class PicturePrompts : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.path = "dir/config.json";
    config_.vision_family = "llava";
    config_.visual_ids = {.image = kImage};
    // Text "ab", a picture, "cd", a picture; the question shows another.
    sample_.id = "s";
    sample_.context = "abcd";
    sample_.pictures = {{.name = "one", .at = 2}, {.name = "two", .at = 4}};
    sample_.questions = {{.text = "q?", .answer_prefix = "=", .answers = {"x"}}};
  }
  ChatTemplate Chat(const std::string& text) {
    const ScratchDirectory scratch;
    const std::string path = scratch.File("parts.jinja");
    EXPECT_TRUE(WriteFile(path, text).ok());
    const Result<ChatTemplate> chat = ChatTemplate::Load(scratch.path(), path);
    EXPECT_TRUE(chat.ok()) << chat.error().message;
    return chat.ok() ? *chat : ChatTemplate();
  }
  std::string Rendered(const ChatTemplate& chat) {
    const Result<PicturePrompt> prompt =
        RenderPicturePrompt(chat, config_, bytes_, sample_, 0, shown_);
    if (!prompt.ok()) return prompt.error().message;
    prompt_ = *prompt;
    return prompt->text;
  }
  std::vector<std::string> Plain() const {
    std::vector<std::string> texts;
    for (const auto& [begin, end] : prompt_.plain) {
      texts.push_back(prompt_.text.substr(begin, end - begin));
    }
    return texts;
  }

  Bytes bytes_;
  ModelConfig config_;
  Sample sample_;
  std::vector<ShownVisual> shown_ = {Rows(2), Rows(1)};
  PicturePrompt prompt_;
};

constexpr char kInOrder[] =
    "{% for m in messages %}[{{ m['role'] }}]{% if m['content'] is string %}{{ m['content'] }}"
    "{% else %}{% for p in m['content'] %}{% if p['type'] == 'image' %}<image>"
    "{% else %}{{ p['text'] }}{% endif %}{% endfor %}{% endif %}{% endfor %}[assistant]";
constexpr char kPicturesFirst[] =
    "{% for m in messages %}{{ m['role'] }}:{% for p in m['content'] if p['type'] == 'image' %}"
    "<image>\n{% endfor %}{% for p in m['content'] if p['type'] == 'text' %}{{ p['text'] }}"
    "{% endfor %}{% endfor %} assistant:";

TEST_F(PicturePrompts, WithoutATemplate) {
  EXPECT_EQ(Rendered(ChatTemplate()), "ab<image><image>cd<image>q?=");
  EXPECT_THAT(Plain(), ElementsAre("ab", "cd", "q?"));
  EXPECT_EQ(prompt_.text.substr(prompt_.context_end), "q?=");
}

TEST_F(PicturePrompts, PartsKeepTheirOrder) {
  EXPECT_EQ(Rendered(Chat(kInOrder)), "[user]ab<image><image>cd<image>q?[assistant]=");
  EXPECT_THAT(Plain(), ElementsAre("ab", "cd", "q?"));
  EXPECT_EQ(prompt_.text.substr(prompt_.context_end), "q?[assistant]=");
}

TEST_F(PicturePrompts, MarksWhereATemplateMovesPictures) {
  EXPECT_EQ(Rendered(Chat(kPicturesFirst)), "user:ab<image><image>cd<image>q? assistant:=");
  EXPECT_THAT(Plain(), ElementsAre("ab", "cd", "q?"));
  // All pictures first anyway: then they are parts, as the template writes them.
  sample_.pictures = {{.name = "one", .at = 0}, {.name = "two", .at = 0}};
  EXPECT_EQ(Rendered(Chat(kPicturesFirst)), "user:<image><image>\n<image>\nabcdq? assistant:=");
  EXPECT_THAT(Plain(), ElementsAre("abcdq?"));
  EXPECT_EQ(prompt_.text.substr(prompt_.context_end), "q? assistant:=");
}

TEST_F(PicturePrompts, DataCannotShowPictures) {
  sample_.questions[0].text = "what is <image>?";
  EXPECT_THAT(Rendered(ChatTemplate()), HasSubstr("the data hold '<image>'"));
}

TEST_F(PicturePrompts, SpansAndRowsOfEachQuestion) {
  sample_.mode = QuestionMode::kMultiRequest;
  sample_.questions.push_back({.text = "r?", .answers = {"y"}});
  sample_.pictures.push_back({.name = "three", .question = 0, .at = 0});
  sample_.pictures.push_back({.name = "four", .question = 1, .at = 2});
  shown_ = {Rows(2), Rows(1), Rows(3), Rows(2)};
  const ChatTemplate chat;
  const PromptBuilder builder(bytes_, chat, &config_);
  const Result<EngineSample> built =
      builder.Build(sample_, Task(), {.max_new_tokens = 1, .stop_ids = {}}, shown_);
  ASSERT_TRUE(built.ok()) << built.error().message;
  EXPECT_THAT(built->context, ElementsAre('a', 'b', kImage, kImage, 'c', 'd', kImage));
  ASSERT_EQ(built->context_spans.size(), 2u);
  EXPECT_EQ(built->context_spans[1].first, 6);
  EXPECT_EQ(built->context_spans[1].embedding_row, 2);
  EXPECT_THAT(built->turns[0].ids, ElementsAre(kImage, kImage, kImage, 'q', '?', '='));
  ASSERT_EQ(built->turns[0].spans.size(), 1u);
  EXPECT_EQ(built->turns[0].spans[0].first, 0);
  EXPECT_EQ(built->turns[0].spans[0].embedding_row, 3);
  EXPECT_THAT(built->turns[1].ids, ElementsAre('r', '?', kImage, kImage));
  EXPECT_EQ(built->turns[1].spans[0].first, 2);
  EXPECT_EQ(built->turns[1].spans[0].embedding_row, 6);
  // A needle that is a picture is found by its rows, one in the text by its bytes.
  const auto ranges =
      builder.TokensOf(sample_, {.bytes = {{2, 4}}, .pictures = {1}}, *built, shown_);
  ASSERT_TRUE(ranges.ok());
  EXPECT_THAT(*ranges,
              ElementsAre(std::pair<int64_t, int64_t>(4, 6), std::pair<int64_t, int64_t>(6, 7)));
}

}  // namespace
}  // namespace kvgauge
