// SPDX-License-Identifier: Apache-2.0
// LongBench v1 and LongBench-E (Bai et al., ACL 2024): one JSON-lines file per task. Prompt,
// truncation and chat wrapping follow the reference pipeline: the filled template is cut in the
// middle on the model's own tokens, and only then wrapped, except for few-shot and code tasks.
#include <string_view>
#include <utility>

#include "core/strings.h"
#include "src/records.h"
#include "src/source_file.h"
#include "src/task_prompt.h"

namespace kvgauge::longbench {
namespace {

constexpr std::string_view kDocument = "context";

struct Loader {
  PromptTemplate prompt;
  TaskOptions options;
  int64_t max_new_tokens;
  bool chat_template;
  bool buckets;

  Result<Sample> operator()(const Record& record) const {
    const Fields fields(record);
    Sample sample;
    KVG_ASSIGN(sample.id, fields.Text("_id"));
    KVG_ASSIGN(const std::string context, fields.Text("context"));
    KVG_ASSIGN(const std::string input, fields.Text("input"));
    KVG_ASSIGN(sample.language, fields.Text("language"));
    KVG_ASSIGN(sample.length, fields.Int("length"));
    sample.group = ContextGroup(context);
    sample.chat_template = chat_template;

    Question question;
    question.max_new_tokens = max_new_tokens;
    KVG_ASSIGN(question.answers, fields.Texts("answers"));
    if (AllBlank(question.answers)) {
      return fields.Wrong("answers", "is empty: no prediction could be right");
    }
    if (fields.Has("all_classes")) {
      KVG_ASSIGN(question.all_classes, fields.Texts("all_classes"));
    }

    const auto lookup = [&](const PromptTemplate::Field& field) -> Result<std::string> {
      return field.name == kDocument ? context : input;
    };
    KVG_ASSIGN(PromptTemplate::Filled filled, prompt.Fill(lookup, kDocument));
    PromptText whole{std::move(filled.text), filled.field_end, filled.field_begin,
                     filled.field_end};
    KVG_ASSIGN(const int64_t tokens, Truncate(Cut::kMiddle, options, whole));
    PlacePrompt(whole, sample, question);
    sample.questions.push_back(std::move(question));

    if (buckets) sample.facts.emplace_back("length_bucket", LengthBucket(sample.length));
    if (tokens > options.max_prompt_tokens) sample.facts.emplace_back("cut_from", StrCat(tokens));
    return sample;
  }
};

Status Check(const Params& params, const Json& task) {
  KVG_TRY(CheckSourceFile(params, task));
  KVG_ASSIGN(const PromptTemplate prompt, PromptTemplate::Parse(params.Text("prompt"), ".prompt"));
  bool has_document = false;
  for (const PromptTemplate::Field& field : prompt.fields()) {
    has_document = has_document || field.name == kDocument;
    if ((field.name != kDocument && field.name != "input") || field.index >= 0) {
      return BadInput(StrCat(".prompt: unknown field ", Quoted(field.name),
                             "; the fields are {context} and {input}"));
    }
  }
  if (!has_document) return BadInput(".prompt: must hold {context}");
  return {};
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  KVG_ASSIGN(PromptTemplate prompt, PromptTemplate::Parse(params.Text("prompt"), "prompt"));
  KVG_ASSIGN(const std::string path, DataFile(options, params.Text("file")));
  KVG_ASSIGN(auto reader, RecordReader::Open(path, Container::kJsonLines));
  Loader loader{std::move(prompt), options, task.at("max_new_tokens").get<int64_t>(),
                params.Bool("chat_template"), params.Bool("buckets")};
  return std::unique_ptr<SampleStream>(
      std::make_unique<FileStream>(std::move(reader), options.skip_bad, std::move(loader)));
}

KVG_REGISTER_SOURCE({
    .name = "longbench",
    .version = 1,
    .description = "LongBench v1 and LongBench-E files",
    .generated = false,
    .params = {ChoiceParam("file", "", {}, "JSON-lines file below the data directory"),
               ChoiceParam("prompt", "", {}, "template with {context} and {input}"),
               BoolParam("chat_template", true, "wrap the prompt with the model's chat template"),
               BoolParam("buckets", false, "note the length bucket of LongBench-E")},
    .open = Open,
    .files = SourceFile,
    .check = Check,
});

}  // namespace
}  // namespace kvgauge::longbench
