// SPDX-License-Identifier: Apache-2.0
#include "src/data/data_command.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "datasets/task.h"
#include "images/decode.h"
#include "images/encode.h"
#include "src/data/tasks.h"
#include "src/model/tokenizer_codec.h"

namespace kvgauge {
namespace {

// What stands in for a tokenizer where there is none yet: a token for each word, digit and sign.
class SignCodec final : public TextCodec {
 public:
  Result<std::vector<int32_t>> Encode(std::string_view text, bool) const override {
    std::vector<int32_t> ids;
    bool inside = false;
    for (const char byte : text) {
      const bool letter = std::isalpha(static_cast<unsigned char>(byte)) != 0;
      if (byte != ' ' && !(letter && inside)) ids.push_back(static_cast<unsigned char>(byte));
      inside = letter;
    }
    return ids;
  }
  std::string Decode(std::span<const int32_t>, bool) const override { return ""; }
};

struct ByteRange {
  size_t begin = 0, end = 0;
};

struct WholeText {
  std::string text;
  std::vector<ByteRange> answers;  // bytes
};

constexpr std::string_view kImageMark = "<image>";

WholeText Joined(const Sample& sample) {
  WholeText whole;
  size_t from = 0;
  for (const Picture& picture : sample.pictures) {
    const auto at = static_cast<size_t>(picture.at);
    whole.text += sample.context.substr(from, at - from);
    whole.text += kImageMark;
    from = at;
  }
  whole.text += sample.context.substr(from);
  for (const Question& question : sample.questions) {
    whole.text += question.text;
    whole.text += question.answer_prefix;
    const size_t begin = whole.text.size();
    whole.text += question.answers.at(0);
    whole.answers.push_back({begin, whole.text.size()});
  }
  return whole;
}

struct Encoded {
  std::vector<int32_t> ids;
  std::vector<ByteRange> answers;
};

// Where the answers lie among the ids. Pieces are counted apart; where their sum is not the whole,
// tokens reach over the joints, and every front of the text is counted instead.
Result<Encoded> Encode(const TextCodec& codec, const WholeText& whole) {
  const auto count = [&](std::string_view text) -> Result<size_t> {
    KVG_ASSIGN(const std::vector<int32_t> ids, codec.Encode(text, false));
    return ids.size();
  };
  Encoded encoded;
  KVG_ASSIGN(encoded.ids, codec.Encode(whole.text, false));
  const std::string_view text = whole.text;
  size_t tokens = 0, at = 0;
  KVG_ASSIGN(const size_t dot, count("."));
  const auto grow = [&](size_t end) -> Status {
    std::string piece(at == 0 ? "" : ".");
    piece += text.substr(at, end - at);
    KVG_ASSIGN(const size_t added, count(piece));
    tokens += added - (at == 0 ? 0 : dot);
    at = end;
    return {};
  };
  for (const ByteRange& answer : whole.answers) {
    KVG_TRY(grow(answer.begin));
    const size_t begin = tokens;
    KVG_TRY(grow(answer.end));
    encoded.answers.push_back({begin, tokens});
  }
  if (tokens == encoded.ids.size()) return encoded;
  for (size_t i = 0; i < whole.answers.size(); ++i) {
    KVG_ASSIGN(encoded.answers[i].begin, count(text.substr(0, whole.answers[i].begin)));
    KVG_ASSIGN(encoded.answers[i].end, count(text.substr(0, whole.answers[i].end)));
  }
  return encoded;
}

void AppendRanges(std::string& line, std::string_view name, const std::vector<ByteRange>& ranges) {
  line += ", \"";
  line += name;
  line += "\": [";
  for (size_t i = 0; i < ranges.size(); ++i) {
    line += i == 0 ? "[" : ", [";
    line += std::to_string(ranges[i].begin);
    line += ", ";
    line += std::to_string(ranges[i].end);
    line += ']';
  }
  line += ']';
}

// Writes the pictures of a sample and tells the names of the files.
Result<std::vector<std::string>> WritePictures(const std::string& directory,
                                               const std::string& task, const Sample& sample) {
  std::vector<std::string> names;
  for (size_t i = 0; i < sample.pictures.size(); ++i) {
    std::string name = StrCat(task, "-", sample.id, "-", i + 1, ".png");
    std::replace(name.begin(), name.end(), '/', '_');
    KVG_ASSIGN(const std::string bytes, sample.pictures[i].load());
    KVG_ASSIGN(const Image image, DecodeImage(bytes, sample.pictures[i].name));
    KVG_ASSIGN(const std::string png, EncodePng(image));
    KVG_TRY(WriteFile(StrCat(directory, "/", name), png));
    names.push_back(std::move(name));
  }
  return names;
}

std::string LineOf(const std::string& task, const Sample& sample, const WholeText& whole,
                   const std::vector<std::string>& images, const Encoded* encoded) {
  std::string line = "{\"task\": ";
  line += Json(task).dump();
  line += ", \"id\": ";
  line += Json(sample.id).dump();
  line += ", \"length\": ";
  line += std::to_string(sample.length);
  line += ", \"text\": ";
  line += Json(whole.text).dump(-1, ' ', false, Json::error_handler_t::replace);
  AppendRanges(line, "answers", whole.answers);
  if (!images.empty()) {
    Json words = Json::array();
    for (const Picture& picture : sample.pictures) words.push_back(picture.words);
    line += ", \"images\": ";
    line += Json(images).dump();
    line += ", \"words\": ";
    line += words.dump();
  }
  if (encoded != nullptr) {
    line += ", \"ids\": [";
    for (size_t i = 0; i < encoded->ids.size(); ++i) {
      if (i > 0) line += ',';
      line += std::to_string(encoded->ids[i]);
    }
    line += ']';
    AppendRanges(line, "id_answers", encoded->answers);
  }
  line += "}\n";
  return line;
}

struct FileCloser {
  void operator()(std::FILE* file) const {
    if (file != stdout) std::fclose(file);
  }
};

// Pages of glyphs as whole texts; those of shapes ask one question, as a model is asked it.
Result<Task> PictureTask(const Task& task, const DataGenerateOptions& options) {
  const std::string owner = StrCat("task ", Quoted(task.name), " shows pictures: ");
  if (options.images.empty()) {
    return BadInput(owner + "name a directory for them with --images DIR");
  }
  if (!options.model.empty()) {
    return BadInput(owner + "its texts are written without ids; leave out --model");
  }
  if (!options.lengths.empty()) {
    return BadInput(owner + "its length is a number of pictures; give --pictures, not --lengths");
  }
  const bool whole = task.source_params.Text("style") == "glyphs" &&
                     task.source_params.Text("question") == "last" &&
                     task.source_params.Int("needles") == 1;
  Json values = {
      {"split", options.split}, {"whole", whole}, {"questions", options.questions}, {"samples", 0}};
  if (whole) values["depths"] = "";
  if (!options.pictures.empty()) values["pictures"] = options.pictures;
  return WithSourceParams(task, values);
}

Result<std::vector<Task>> WholeTextTasks(const DataGenerateOptions& options) {
  std::vector<Task> tasks;
  for (const std::string& name : options.tasks) {
    KVG_ASSIGN(const Task task, FindTask(name, options.task_directory));
    if (task.source == "visual_pages") {
      KVG_ASSIGN(Task pages, PictureTask(task, options));
      tasks.push_back(std::move(pages));
      continue;
    }
    if (task.source != "closed_english") {
      return BadInput(StrCat("task ", Quoted(task.name), " has the source ", Quoted(task.source),
                             "; only tasks of the sources closed_english and visual_pages can be "
                             "written as whole texts"));
    }
    Json values = {{"split", options.split},
                   {"whole", true},
                   {"questions", options.questions},
                   {"depths", ""},
                   {"samples", 0}};
    if (!options.lengths.empty()) values["lengths"] = options.lengths;
    KVG_ASSIGN(Task changed, WithSourceParams(task, values));
    tasks.push_back(std::move(changed));
  }
  return tasks;
}

}  // namespace

Status RunDataGenerate(const DataGenerateOptions& options) {
  if (options.texts == 0 && options.tokens == 0 && options.out != "-") {
    return BadInput("a file needs an end: give --texts or --tokens");
  }
  KVG_ASSIGN(const std::vector<Task> tasks, WholeTextTasks(options));
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<TextCodec> codec = std::make_unique<SignCodec>();
  if (!options.model.empty()) {
    KVG_ASSIGN(tokenizer, LoadTokenizer(options.model));
    codec = std::make_unique<TokenizerCodec>(*tokenizer);
  }
  const auto task_count = static_cast<int64_t>(tasks.size());
  std::vector<std::unique_ptr<SampleStream>> streams;
  for (int64_t i = 0; i < task_count; ++i) {
    TaskOptions opened;
    opened.seed = options.seed;
    opened.codec = codec.get();
    // Text k of all is text k / tasks of task k mod tasks.
    const int64_t first = (options.first - i + task_count - 1) / task_count;
    const Task& task = tasks[static_cast<size_t>(i)];
    KVG_ASSIGN(const Task placed, WithSourceParams(task, {{"first", std::max<int64_t>(0, first)}}));
    KVG_ASSIGN(std::unique_ptr<SampleStream> stream, OpenTask(placed, opened));
    streams.push_back(std::move(stream));
  }
  if (!options.images.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.images, error);
    if (error) return IoError(StrCat(options.images, ": cannot make it: ", error.message()));
  }
  std::unique_ptr<std::FILE, FileCloser> file(
      options.out == "-" ? stdout : std::fopen(options.out.c_str(), "wb"));
  if (file == nullptr) return SystemError(options.out, "write");
  int64_t tokens = 0;
  for (int64_t i = options.first;; ++i) {
    if (options.texts > 0 && i - options.first >= options.texts) break;
    if (options.tokens > 0 && tokens >= options.tokens) break;
    const auto turn = static_cast<size_t>(i % task_count);
    KVG_ASSIGN(const std::optional<Sample> sample, streams[turn]->Next());
    if (!sample) break;
    const WholeText whole = Joined(*sample);
    std::optional<Encoded> encoded;
    if (tokenizer != nullptr) {
      KVG_ASSIGN(encoded, Encode(*codec, whole));
    }
    std::vector<std::string> images;
    if (!sample->pictures.empty()) {
      KVG_ASSIGN(images, WritePictures(options.images, tasks[turn].name, *sample));
    }
    const std::string line =
        LineOf(tasks[turn].name, *sample, whole, images, encoded ? &*encoded : nullptr);
    if (std::fwrite(line.data(), 1, line.size(), file.get()) != line.size()) {
      if (options.out == "-") return {};  // the reader had enough
      return IoError(StrCat(options.out, ": cannot write"));
    }
    tokens += sample->length;
  }
  if (std::fflush(file.get()) != 0 && options.out != "-") {
    return IoError(StrCat(options.out, ": cannot write"));
  }
  return {};
}

}  // namespace kvgauge
