// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "datasets/task.h"
#include "runner/tokenizer.h"
#include "src/show_sample.h"
#include "src/tasks.h"
#include "src/tokenizer_codec.h"

namespace kvgauge {
namespace {

// The directory of a model that some run's configuration names.
std::string ModelDirectory(const std::string& model, const std::vector<StoredRun>& runs) {
  for (const StoredRun& run : runs) {
    const Result<Json> config = ParseJson(run.run.config, "config");
    if (!config.ok() || !config->is_object()) continue;
    const auto models = config->find("models");
    if (models == config->end() || !models->is_array()) continue;
    for (const Json& entry : *models) {
      if (!entry.is_object() || entry.value("name", "") != model) continue;
      const std::string path = entry.value("path", entry.value("model", ""));
      if (DirectoryExists(path)) return path;
    }
  }
  return "";
}

int64_t MaxPromptTokens(const std::string& signature) {
  const Result<Json> protocol = ParseJson(signature, "signature");
  if (!protocol.ok() || !protocol->is_object()) return 0;
  const auto at = protocol->find("max_prompt_tokens");
  return at != protocol->end() && at->is_number_integer() ? at->get<int64_t>() : 0;
}

Result<MadePrompt> Make(const StoredCell& cell, const SampleRow& row,
                        const std::vector<StoredRun>& runs, const ShowFlags& flags) {
  const std::string origin = StrCat("task ", cell.cell.task.name);
  KVG_ASSIGN(Json spec, ParseJson(cell.cell.task.spec, origin));
  KVG_ASSIGN(const Task task, ParseTask(std::move(spec), origin));
  TaskOptions options;
  options.data_directory = DataDirectory(flags.data_directory);
  options.seed = static_cast<uint64_t>(cell.cell.seed);
  options.limit = row.position + 1;
  const std::string directory =
      flags.tokenizer.empty() ? ModelDirectory(cell.cell.model.name, runs) : flags.tokenizer;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<TokenizerCodec> codec;
  if (!directory.empty()) {
    KVG_ASSIGN(tokenizer, LoadTokenizer(directory));
    codec = std::make_unique<TokenizerCodec>(*tokenizer);
    options.codec = codec.get();
    options.max_prompt_tokens = MaxPromptTokens(cell.cell.signature);
  }
  KVG_ASSIGN(const std::unique_ptr<SampleStream> stream, OpenTask(task, options));
  while (true) {
    KVG_ASSIGN(const std::optional<Sample> sample, stream->Next());
    if (!sample) break;
    if (sample->id != row.sample_id) continue;
    if (sample->hash != row.hash) {
      return BadInput(StrCat("the task now gives another content",
                             directory.empty() ? ", maybe for want of the model's tokenizer: name "
                                                 "its directory with --tokenizer"
                                               : ""));
    }
    MadePrompt prompt;
    prompt.context = sample->context;
    for (const Question& question : sample->questions) {
      prompt.questions.push_back(question.text + question.answer_prefix);
    }
    return prompt;
  }
  return BadInput("the task now gives no such sample");
}

}  // namespace

MadePrompt MakePromptAgain(const StoredCell& cell, const SampleRow& row,
                           const std::vector<StoredRun>& runs, const ShowFlags& flags) {
  Result<MadePrompt> prompt = Make(cell, row, runs, flags);
  if (prompt.ok()) return std::move(*prompt);
  return {.context = {}, .questions = {}, .missing = prompt.error().message};
}

}  // namespace kvgauge
