// SPDX-License-Identifier: Apache-2.0
// RepoBench 1.1: snippets of a repository's other files before the file to go on with.
#include <algorithm>
#include <memory>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "src/python_text.h"
#include "src/records.h"
#include "src/source_file.h"

namespace kvgauge::repobench {
namespace {

struct Loader {
  std::string comment;  // what begins a comment
  int64_t max_new_tokens = 0;
  int64_t max_tokens = 0;
  const TextCodec* codec = nullptr;

  Result<Sample> operator()(const Record& record) const {
    const Fields fields(record);
    KVG_ASSIGN(std::string others, Others(fields));
    KVG_ASSIGN(const std::string path, fields.Text("file_path"));
    KVG_ASSIGN(const std::string imports, fields.Text("import_statement"));
    KVG_ASSIGN(const std::string code, fields.Text("cropped_code"));
    KVG_ASSIGN(std::string line, fields.Text("next_line"));
    // Python's rstrip: strip of a text that begins with something else.
    const std::string guarded = "x" + code;
    const std::string own =
        StrCat(comment, " Path: ", path, "\n", imports, "\n", PythonStrip(guarded).substr(1), "\n");
    if (codec != nullptr) {
      KVG_ASSIGN(others, Cut(std::move(others), own));
    }
    Sample sample;
    sample.id = StrCat("record-", record.number);
    sample.context = WithoutEmptyLines(others + own);
    sample.group = ContextGroup(sample.context);
    sample.length = static_cast<int64_t>(sample.context.size());
    sample.chat_template = false;
    Question question;
    if (AllBlank({line}))
      return fields.Wrong("next_line", "is empty: no prediction could be right");
    question.answers = {std::move(line)};
    question.kind = comment == "#" ? "python" : "java";
    question.max_new_tokens = max_new_tokens;
    sample.questions.push_back(std::move(question));
    if (fields.Has("level")) {
      KVG_ASSIGN(std::string level, fields.Text("level"));
      sample.facts.emplace_back("level", std::move(level));
    }
    return sample;
  }

 private:
  Result<std::string> Others(const Fields& fields) const {
    KVG_ASSIGN(const std::string repository, fields.Text("repo_name"));
    KVG_ASSIGN(const Json* context, fields.Get("context"));
    std::string all = StrCat(comment, " Repo Name: ", repository, "\n");
    const auto text = [](const Json& one, const char* name) {
      return one.is_object() && one.contains(name) && one[name].is_string();
    };
    if (!context->is_array()) {
      return fields.Wrong("context", StrCat("is ", KindOf(*context), ", expected an array"));
    }
    for (const Json& one : *context) {
      if (!text(one, "path") || !text(one, "snippet")) {
        return fields.Wrong("context", "has an entry without the texts path and snippet");
      }
      all += StrCat(comment, " Path: ", one["path"].get<std::string>(), "\n",
                    one["snippet"].get<std::string>(), "\n\n");
    }
    return all;
  }

  Result<int64_t> Count(const std::string& text) const {
    KVG_ASSIGN(const std::vector<int32_t> ids, codec->Encode(text, true));
    return std::ssize(ids);
  }
  // Whole lines go from the end of the other files' text until both fit with room to spare.
  Result<std::string> Cut(std::string others, const std::string& own) const {
    KVG_ASSIGN(const int64_t of_others, Count(others));
    KVG_ASSIGN(const int64_t of_own, Count(own));
    int64_t over = of_others + of_own - max_tokens;
    if (over <= 0) return others;
    const std::vector<std::string> lines = Split(others, '\n');
    size_t kept = lines.size();
    while (over >= 0 && kept > 0) {
      KVG_ASSIGN(const int64_t tokens, Count(lines[--kept]));
      over -= tokens;
    }
    std::string all;
    for (size_t i = 0; i < kept; ++i) all += StrCat(i == 0 ? "" : "\n", lines[i]);
    return all + "\n\n";
  }

  // Four line breaks or more in a row are two.
  static std::string WithoutEmptyLines(const std::string& text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      size_t end = at;
      while (end < text.size() && text[end] == '\n') ++end;
      if (end == at) {
        out += text[at++];
        continue;
      }
      out.append(end - at >= 4 ? 2 : end - at, '\n');
      at = end;
    }
    return out;
  }
};

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  KVG_ASSIGN(const std::string path, DataFile(options, params.Text("file")));
  KVG_ASSIGN(auto reader, RecordReader::Open(path, ContainerFromName(params.Text("container"))));
  const Loader loader{.comment = params.Text("language") == "python" ? "#" : "//",
                      .max_new_tokens = task.at("max_new_tokens").get<int64_t>(),
                      .max_tokens = params.Int("max_tokens"),
                      .codec = options.codec};
  auto records = std::make_unique<FileStream>(std::move(reader), options.skip_bad, loader);
  const std::vector<std::string> levels = Split(params.Text("levels"), ',');
  if (!params.Text("levels").empty()) {
    records->set_filter([levels](const Record& record) -> Result<bool> {
      KVG_ASSIGN(const std::string level, Fields(record).Text("level"));
      return std::find(levels.begin(), levels.end(), level) != levels.end();
    });
  }
  return std::unique_ptr<SampleStream>(std::move(records));
}

KVG_REGISTER_SOURCE({
    .name = "repobench",
    .version = 1,
    .description = "RepoBench 1.1's files: a repository's snippets and the code to go on with",
    .generated = false,
    .params = {ChoiceParam("file", "", {}, "file below the data directory"),
               ChoiceParam("container", "parquet", ContainerNames(), "how the records are packed"),
               ChoiceParam("language", "python", {"python", "java"}, "of the code"),
               ChoiceParam("levels", "2k,4k,8k,12k,16k", {},
                           "levels of length that are samples, comma-separated; all when empty"),
               IntParam("max_tokens", 15800, 16, 1'000'000,
                        "tokens of a prompt, above which lines of other files leave it")},
    .open = Open,
    .files = SourceFile,
    .check = CheckSourceFile,
});

}  // namespace
}  // namespace kvgauge::repobench
