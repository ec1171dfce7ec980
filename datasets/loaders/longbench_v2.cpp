// SPDX-License-Identifier: Apache-2.0
// LongBench v2 (Bai et al., 2024): 503 four-way multiple choice questions in one JSON array.
#include <array>
#include <string_view>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "src/python_text.h"
#include "src/records.h"
#include "src/source_file.h"
#include "src/task_prompt.h"

namespace kvgauge::longbench_v2 {
namespace {

constexpr std::string_view kDocument = "$DOC$";

struct Loader {
  std::string prompt;
  std::string conclusion;
  int64_t conclusion_max_new_tokens;
  TaskOptions options;
  int64_t max_new_tokens;

  Result<Sample> operator()(const Record& record) const {
    // Placeholder and field, in the order in which the reference code substitutes them.
    constexpr std::array<std::pair<std::string_view, const char*>, 5> kFields = {{
        {"$Q$", "question"},
        {"$C_A$", "choice_A"},
        {"$C_B$", "choice_B"},
        {"$C_C$", "choice_C"},
        {"$C_D$", "choice_D"},
    }};
    const Fields fields(record);
    Sample sample;
    KVG_ASSIGN(sample.id, fields.Text("_id"));
    KVG_ASSIGN(const std::string document, fields.Text("context"));
    sample.group = ContextGroup(document);

    Question question;
    question.max_new_tokens = max_new_tokens;
    question.all_classes = {"A", "B", "C", "D"};
    KVG_ASSIGN(const std::string answer, fields.Text("answer"));
    if (answer.size() != 1 || answer[0] < 'A' || answer[0] > 'D') {
      return fields.Wrong("answer", StrCat("is ", Quoted(answer), ", expected A, B, C or D"));
    }
    question.answers = {answer};

    // Each value replaces its placeholder wherever it stands by then, in the document and in
    // earlier values too: that is what the reference code does. No placeholder can form across the
    // document's end, so both parts are filled on their own.
    const size_t at = prompt.find(kDocument);
    std::string front = at == std::string::npos ? "" : prompt.substr(0, at);
    const size_t document_begin = front.size();
    std::string back = at == std::string::npos ? prompt : prompt.substr(at + kDocument.size());
    if (at != std::string::npos) front += PythonStrip(document);
    std::string concluding = conclusion;
    for (const auto& [placeholder, field] : kFields) {
      KVG_ASSIGN(const std::string value, fields.Text(field));
      front = ReplaceAll(front, placeholder, PythonStrip(value));
      back = ReplaceAll(back, placeholder, PythonStrip(value));
      concluding = ReplaceAll(concluding, placeholder, PythonStrip(value));
    }
    if (!concluding.empty()) {
      question.conclusion = std::move(concluding);
      question.conclusion_max_new_tokens = conclusion_max_new_tokens;
    }
    PromptText whole{front + back, front.size(), document_begin, front.size()};
    KVG_ASSIGN(const int64_t tokens, Truncate(Cut::kMiddleJoined, options, whole));
    PlacePrompt(whole, sample, question);
    sample.questions.push_back(std::move(question));

    for (const char* fact : {"difficulty", "length", "domain", "sub_domain"}) {
      KVG_ASSIGN(std::string value, fields.Text(fact));
      sample.facts.emplace_back(fact, std::move(value));
    }
    if (tokens > options.max_prompt_tokens) sample.facts.emplace_back("cut_from", StrCat(tokens));
    return sample;
  }
};

Status Check(const Params& params, const Json& task) {
  KVG_TRY(CheckSourceFile(params, task));
  const std::string& prompt = params.Text("prompt");
  if (prompt.find("$Q$") == std::string::npos) return BadInput(".prompt: must hold $Q$");
  const size_t at = prompt.find(kDocument);
  if (at != std::string::npos && prompt.find(kDocument, at + 1) != std::string::npos) {
    return BadInput(".prompt: holds $DOC$ twice");
  }
  const std::string& conclusion = params.Text("conclusion");
  if (!conclusion.empty() && conclusion.find(kReasoning) == std::string::npos) {
    return BadInput(StrCat(".conclusion: must hold ", kReasoning));
  }
  return {};
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  KVG_ASSIGN(const std::string path, DataFile(options, params.Text("file")));
  KVG_ASSIGN(auto reader, RecordReader::Open(path, Container::kJsonArray));
  Loader loader{params.Text("prompt"), params.Text("conclusion"),
                params.Int("conclusion_max_new_tokens"), options,
                task.at("max_new_tokens").get<int64_t>()};
  return std::unique_ptr<SampleStream>(
      std::make_unique<FileStream>(std::move(reader), options.skip_bad, std::move(loader)));
}

KVG_REGISTER_SOURCE({
    .name = "longbench_v2",
    .version = 1,
    .description = "LongBench v2's data.json",
    .generated = false,
    .params = {ChoiceParam("file", "", {}, "JSON array file below the data directory"),
               ChoiceParam("prompt", "", {}, "template with $DOC$, $Q$ and $C_A$ to $C_D$"),
               ChoiceParam("conclusion", "", {},
                           "template of a second prompt with $Q$, $C_A$ to $C_D$ and $COT$, the "
                           "answer to the first; empty: none"),
               IntParam("conclusion_max_new_tokens", 128, 1, 1000000,
                        "length limit of the answer to the second prompt")},
    .open = Open,
    .files = SourceFile,
    .check = Check,
});

}  // namespace
}  // namespace kvgauge::longbench_v2
