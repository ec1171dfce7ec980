// SPDX-License-Identifier: Apache-2.0
#include "datasets/sample.h"

#include <algorithm>
#include <string_view>

#include "core/sha256.h"
#include "src/python_text.h"

namespace kvgauge {
namespace {

// Every part goes in with its length, so that no two samples share one byte stream.
class Hasher {
 public:
  void Number(int64_t value) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; ++i) {
      bytes[i] = static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i));
    }
    sha_.Update(bytes, sizeof(bytes));
  }
  void Text(std::string_view text) {
    Number(static_cast<int64_t>(text.size()));
    sha_.Update(text.data(), text.size());
  }
  void Texts(const std::vector<std::string>& texts) {
    Number(static_cast<int64_t>(texts.size()));
    for (const std::string& text : texts) Text(text);
  }
  std::string Finish() { return sha_.Finish(); }

 private:
  Sha256 sha_;
};

void FinishMarks(Sample& sample) {
  std::erase_if(sample.marks, [](const Mark& mark) {
    return mark.question >= 0 || mark.kind == MarkKind::kSystem;
  });
  const bool told = std::any_of(sample.marks.begin(), sample.marks.end(),
                                [](const Mark& mark) { return mark.kind == MarkKind::kContext; });
  if (!told && !sample.context.empty()) {
    sample.marks.push_back({MarkKind::kContext, 0, std::ssize(sample.context)});
  }
  const MarkKind kind =
      sample.mode == QuestionMode::kMultiTurn ? MarkKind::kTurn : MarkKind::kQuestion;
  for (size_t i = 0; i < sample.questions.size(); ++i) {
    sample.marks.push_back(
        {kind, 0, std::ssize(sample.questions[i].text), static_cast<int64_t>(i)});
  }
  if (!sample.system.empty()) {
    sample.marks.push_back({MarkKind::kSystem, 0, std::ssize(sample.system)});
  }
}

}  // namespace

void FinishSample(Sample& sample) {
  FinishMarks(sample);
  Hasher hasher;
  hasher.Text("kvgauge sample 1");
  hasher.Text(sample.context);
  hasher.Number(static_cast<int64_t>(sample.questions.size()));
  for (const Question& question : sample.questions) {
    hasher.Text(question.text);
    hasher.Text(question.answer_prefix);
    hasher.Texts(question.answers);
    hasher.Texts(question.all_classes);
    hasher.Number(question.max_new_tokens);
  }
  hasher.Number(static_cast<int64_t>(sample.mode));
  hasher.Number(sample.chat_template ? 1 : 0);
  hasher.Text(sample.language);
  // Samples without kinds hash as they did before there were any.
  const bool kinds = std::any_of(sample.questions.begin(), sample.questions.end(),
                                 [](const Question& question) { return !question.kind.empty(); });
  for (const Question& question : sample.questions) {
    if (kinds) hasher.Text(question.kind);
  }
  // Nor did they have conclusions.
  const bool conclusions = HasConclusion(sample);
  for (const Question& question : sample.questions) {
    if (!conclusions) break;
    hasher.Text(question.conclusion);
    hasher.Number(question.conclusion_max_new_tokens);
  }
  // Nor system texts.
  if (!sample.system.empty()) {
    hasher.Text("system");
    hasher.Text(sample.system);
  }
  // Nor pictures.
  for (const Picture& picture : sample.pictures) {
    hasher.Text("picture");
    hasher.Text(picture.hash);
    hasher.Number(picture.question);
    hasher.Number(picture.at);
  }
  sample.hash = hasher.Finish();
}

std::string WithPictureNames(const Sample& sample, int64_t question) {
  const std::string& text =
      question < 0 ? sample.context : sample.questions[static_cast<size_t>(question)].text;
  std::string out;
  size_t from = 0;
  for (size_t i = 0; i < sample.pictures.size(); ++i) {
    const Picture& picture = sample.pictures[i];
    if (picture.question != question) continue;
    const auto at = static_cast<size_t>(picture.at);
    out += text.substr(from, at - from);
    out += "[picture " + std::to_string(i + 1) + "]";
    from = at;
  }
  return out + text.substr(from);
}

bool HasConclusion(const Sample& sample) {
  return std::any_of(sample.questions.begin(), sample.questions.end(),
                     [](const Question& question) { return !question.conclusion.empty(); });
}

Sample ConclusionOf(const Sample& sample, const Question& question, const std::string& reasoning) {
  Sample asked;
  asked.id = sample.id;
  asked.group = sample.group;
  asked.system = sample.system;
  asked.chat_template = sample.chat_template;
  asked.language = sample.language;
  Question& concluding = asked.questions.emplace_back(question);
  concluding.text = ReplaceAll(question.conclusion, kReasoning, PythonStrip(reasoning));
  concluding.answer_prefix = std::string();
  concluding.max_new_tokens = question.conclusion_max_new_tokens;
  concluding.conclusion = std::string();
  concluding.conclusion_max_new_tokens = 0;
  return asked;
}

}  // namespace kvgauge
