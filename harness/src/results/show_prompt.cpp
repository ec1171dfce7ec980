// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <memory>
#include <span>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "datasets/task.h"
#include "reports/drawn_by.h"
#include "runner/tokenizer.h"
#include "src/data/task_commands.h"
#include "src/model/tokenizer_codec.h"
#include "src/results/show_sample.h"
#include "src/run/text_windows.h"

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
      std::string path = entry.value("path", entry.value("model", ""));
      if (DirectoryExists(path) || path.ends_with(".gguf")) return path;
      // A config.json with random weights: its tokenizer lies beside it.
      if (FileExists(path)) return std::filesystem::path(path).parent_path().string();
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

// A window of a running text: what was given, and what was counted as the question.
Result<MadePrompt> MakeWindowAgain(const Task& task, TaskOptions options,
                                   const Tokenizer& tokenizer, const SampleRow& row) {
  options.limit = -1;  // of texts
  KVG_ASSIGN(const std::unique_ptr<SampleStream> texts, OpenTask(task, options));
  WindowStream windows(*texts, tokenizer, TextProtocol::From(task.source_params));
  while (true) {
    KVG_ASSIGN(const std::optional<Sample> sample, windows.Next());
    if (!sample) return BadInput("the task now gives no such window");
    if (sample->id != row.sample_id) continue;
    if (sample->hash != row.hash) return BadInput("the task now gives another content");
    const std::span<const int32_t> ids = windows.tokens();
    const auto given = ids.size() - static_cast<size_t>(windows.window().counted);
    MadePrompt prompt;
    prompt.context = tokenizer.Spell(ids.first(given));
    prompt.questions.push_back(tokenizer.Spell(ids.subspan(given)));
    return prompt;
  }
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
  options.skip_bad = true;  // the run may have left records out; the hash tells the right one
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
  if (task.metric == kPerplexityMetric) {
    if (tokenizer == nullptr) {
      return BadInput("windows are made of tokens: name the model's directory with --tokenizer");
    }
    return MakeWindowAgain(task, options, *tokenizer, row);
  }
  KVG_ASSIGN(const std::unique_ptr<SampleStream> stream, OpenTask(task, options));
  const bool drawn = DrawnByOf(cell.cell.signature).has_value();
  const std::string id = drawn ? ParseDrawName(row.sample_id).prompt : row.sample_id;
  while (true) {
    KVG_ASSIGN(const std::optional<Sample> sample, stream->Next());
    if (!sample) break;
    if (sample->id != id) continue;
    if (sample->hash != row.hash) {
      return BadInput(StrCat("the task now makes another sample than the recorded one",
                             directory.empty() ? "; if it needs the model's tokenizer, name its "
                                                 "directory with --tokenizer"
                                               : ""));
    }
    MadePrompt prompt;
    prompt.system = sample->system;
    prompt.context = WithPictureNames(*sample);
    for (size_t i = 0; i < sample->questions.size(); ++i) {
      prompt.questions.push_back(WithPictureNames(*sample, static_cast<int64_t>(i)) +
                                 sample->questions[i].answer_prefix);
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
  return {.system = {}, .context = {}, .questions = {}, .missing = prompt.error().message};
}

}  // namespace kvgauge
