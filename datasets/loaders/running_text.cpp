// SPDX-License-Identifier: Apache-2.0
// Texts whose perplexity is taken: each is the context of a sample without questions. How they are
// cut into windows is declared here and done by whoever runs the model.
#include <utility>

#include "core/files.h"
#include "core/strings.h"
#include "src/records.h"
#include "src/source_file.h"

namespace kvgauge::running_text {
namespace {

// What the usual loader of WikiText makes of its lines: each with its newline, blank ones empty,
// joined by two newlines.
std::string JoinedLines(const std::string& text) {
  std::string out;
  bool first = true;
  std::vector<std::string> lines = Split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  for (const std::string& line : lines) {
    if (!first) out += "\n\n";
    first = false;
    if (!Trim(line).empty()) out.append(line).append("\n");
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> Protocol(const Params& params) {
  return {{"protocol", params.Text("protocol")},
          {"window", std::to_string(params.Int("window"))},
          {"stride", std::to_string(params.Int("stride"))},
          {"max_tokens", std::to_string(params.Int("max_tokens"))}};
}

Sample MakeSample(std::string id, std::string text, const Params& params) {
  Sample sample;
  sample.id = sample.group = std::move(id);
  sample.context = std::move(text);
  sample.chat_template = false;
  sample.length = static_cast<int64_t>(sample.context.size());
  sample.marks = {{MarkKind::kContext, 0, sample.length}};
  sample.facts = Protocol(params);
  return sample;
}

class OneText final : public SampleStream {
 public:
  explicit OneText(Sample sample) : sample_(std::move(sample)) {}
  Result<std::optional<Sample>> Next() override { return std::exchange(sample_, std::nullopt); }

 private:
  std::optional<Sample> sample_;
};

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json&,
                                           const TaskOptions& options) {
  KVG_ASSIGN(const std::string path, DataFile(options, params.Text("file")));
  if (params.Text("container") == "jsonl") {
    KVG_ASSIGN(auto reader, RecordReader::Open(path, Container::kJsonLines));
    return std::unique_ptr<SampleStream>(std::make_unique<FileStream>(
        std::move(reader), options.skip_bad, [params](const Record& record) -> Result<Sample> {
          KVG_ASSIGN(std::string text, Fields(record).Text("text"));
          if (text.empty()) return Fields(record).Wrong("text", "is empty");
          return MakeSample("line-" + record.where.substr(record.where.rfind(':') + 1),
                            std::move(text), params);
        }));
  }
  KVG_ASSIGN(std::string text, ReadFile(path));
  if (const size_t bad = FindInvalidUtf8(text); bad != std::string::npos) {
    return BadInput(StrCat(path, ": not UTF-8 at byte ", bad + 1));
  }
  if (params.Text("container") == "lines") text = JoinedLines(text);
  if (text.empty()) return BadInput(StrCat(path, ": is empty"));
  return std::unique_ptr<SampleStream>(
      std::make_unique<OneText>(MakeSample("text", std::move(text), params)));
}

Status Check(const Params& params, const Json& task) {
  KVG_TRY(CheckSourceFile(params, task));
  if (params.Text("protocol") == "sliding" && params.Int("stride") > params.Int("window")) {
    return BadInput(".stride: must not be above .window, or tokens would be left out");
  }
  return {};
}

KVG_REGISTER_SOURCE({
    .name = "running_text",
    .version = 1,
    .description = "texts whose perplexity is taken",
    .generated = false,
    .params =
        {
            ChoiceParam("file", "", {}, "file below the data directory"),
            ChoiceParam("container", "text", {"text", "lines", "jsonl"},
                        "one text; lines joined as WikiText's are; records with a field 'text'"),
            ChoiceParam("protocol", "blocks", {"blocks", "sliding", "streaming"},
                        "disjoint windows; overlapping ones; token by token through the cache"),
            IntParam("window", 2048, 2, 1 << 24, "tokens of a window"),
            IntParam("stride", 512, 1, 1 << 24, "sliding: tokens that count in each window"),
            IntParam("max_tokens", 0, 0, 1 << 30, "of each text; 0: all"),
        },
    .open = Open,
    .files = SourceFile,
    .check = Check,
});

}  // namespace
}  // namespace kvgauge::running_text
