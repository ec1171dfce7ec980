// SPDX-License-Identifier: Apache-2.0
// Data files of any content: a sample that is accepted is whole, a refusal names its line, and the
// same bytes give the same samples. The first byte chooses how the file is taken.
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/check.h"
#include "core/json.h"
#include "core/log.h"
#include "core/strings.h"
#include "datasets/pairs.h"
#include "datasets/task.h"
#include "support/scratch_directory.h"

namespace {

constexpr std::string_view kTask = R"({"name": "fuzz", "version": 1, "group": "g",
  "description": "d", "metric": "qa_f1", "max_new_tokens": 5, "source": {"name": "jsonl",
  "file": "fuzz/x.jsonl", "context": "{c}", "question": "{q[0]}", "document": "c",
  "answers": "a"}})";

kvgauge::Task MakeTask(const std::filesystem::path& directory, bool parallel) {
  kvgauge::Json json = *kvgauge::ParseJson(kTask, "task");
  if (parallel) {
    kvgauge::Json& source = json["source"];
    source["question"] = "{turn} {turn_answer_words}";
    source["turns"] = "q";
    source["turn_answers"] = "a";
    source["answers"] = "turn_answer";
    source["python_literals"] = "p";
    source["lenient"] = true;
  }
  const std::string path = (directory / (parallel ? "parallel.json" : "plain.json")).string();
  std::ofstream(path) << json.dump();
  kvgauge::Result<kvgauge::Task> task = kvgauge::ReadTask(path);
  KVG_CHECK(task.ok(), task.ok() ? "" : task.error().message);
  return *std::move(task);
}

struct Files {
  kvgauge::ScratchDirectory scratch = kvgauge::ScratchDirectory("/dev/shm");
  std::filesystem::path directory = scratch.path();
  kvgauge::Task plain = MakeTask(directory, false);
  kvgauge::Task parallel = MakeTask(directory, true);
};

const Files& Shared() {
  static const Files files;
  std::filesystem::create_directories(files.directory / "fuzz");
  return files;
}

// Hashes of the samples, and how many records were left out.
std::string ReadAll(const kvgauge::Task& task, const kvgauge::TaskOptions& options) {
  std::string seen;
  const auto stream = kvgauge::OpenTask(task, options);
  if (!stream.ok()) return stream.error().message;
  while (true) {
    const auto sample = (*stream)->Next();
    if (!sample.ok()) {
      KVG_CHECK(sample.error().message.find("x.jsonl") != std::string::npos,
                "a message without its file");
      return seen + sample.error().message;
    }
    if (!*sample) return seen + std::to_string((*stream)->skipped());
    const kvgauge::Sample& got = **sample;
    KVG_CHECK(!got.questions.empty() && !got.questions[0].answers.empty(),
              "a sample can be asked and scored");
    KVG_CHECK(kvgauge::FindInvalidUtf8(got.context) == std::string::npos, "texts are UTF-8");
    for (const kvgauge::Mark& mark : got.marks) {
      const std::string& text = mark.question < 0
                                    ? got.context
                                    : got.questions.at(static_cast<size_t>(mark.question)).text;
      KVG_CHECK(0 <= mark.begin && mark.begin <= mark.end &&
                    mark.end <= static_cast<int64_t>(text.size()),
                "marks lie in their texts");
    }
    seen += got.hash;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvgauge::SetLogLevel(kvgauge::LogLevel::kError);
  if (size == 0) return 0;
  const Files& files = Shared();
  const std::string path = (files.directory / "fuzz/x.jsonl").string();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data + 1), static_cast<std::streamsize>(size - 1));
  kvgauge::TaskOptions options;
  options.data_directory = files.directory.string();
  options.skip_bad = (data[0] & 1) != 0;
  const kvgauge::Task& task = (data[0] & 2) != 0 ? files.parallel : files.plain;
  KVG_CHECK(ReadAll(task, options) == ReadAll(task, options), "reading is a function of the bytes");
  kvgauge::PairOptions pairs;
  pairs.skip_bad = options.skip_bad;
  if ((data[0] & 4) != 0) pairs.by = {"length_bucket"};
  const auto scores = kvgauge::ScorePairs(*kvgauge::FindMetric("qa_f1"), path, pairs);
  KVG_CHECK(!scores.ok() || (scores->mean >= 0 && scores->mean <= 1), "scores are shares");
  return 0;
}
