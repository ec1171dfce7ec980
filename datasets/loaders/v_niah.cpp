// SPDX-License-Identifier: Apache-2.0
// V-NIAH: a picture among the frames of a film, at every depth of every number of frames. The film
// is the user's: a folder of frames, one for each second.
#include <algorithm>
#include <memory>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "generators/generator.h"
#include "src/frame_folder.h"
#include "src/picture_source.h"
#include "src/records.h"
#include "src/source_file.h"

namespace kvgauge::v_niah {
namespace {

constexpr int64_t kMostFileBytes = int64_t{16} << 20;

struct Needle {
  Picture picture;
  std::string question, answer;
  int64_t answer_tokens = 0;
};

struct Haystack {
  std::vector<Picture> frames;
  std::vector<Needle> needles;
  std::vector<int64_t> lengths;
  std::vector<Percent> depths;
};

Result<std::vector<Needle>> ReadNeedles(const Params& params, const Json& task,
                                        const TaskOptions& options) {
  KVG_ASSIGN(const std::string path, DataFile(options, params.Text("file")));
  KVG_ASSIGN(auto reader, RecordReader::Open(path, Container::kJsonArray, kMostFileBytes));
  std::vector<Needle> needles;
  while (true) {
    KVG_ASSIGN(const std::optional<Record> record, reader->Next());
    if (!record) break;
    const Fields fields(*record);
    Needle needle;
    KVG_ASSIGN(const std::string name, fields.Text("path"));
    Result<Picture> picture =
        PictureOfFile(options.data_directory, StrCat(params.Text("images"), "/", name));
    if (!picture.ok()) return fields.Wrong("path", picture.error().message);
    needle.picture = *std::move(picture);
    KVG_ASSIGN(needle.question, fields.Text("prompt"));
    KVG_ASSIGN(needle.answer, fields.Text("answer"));
    if (AllBlank({needle.answer})) return fields.Wrong("answer", "is empty");
    if (AllBlank({needle.question})) return fields.Wrong("prompt", "is empty");
    needle.answer_tokens = task.at("max_new_tokens").get<int64_t>();
    if (options.codec != nullptr) {
      KVG_ASSIGN(const std::vector<int32_t> ids, options.codec->Encode(needle.answer, false));
      needle.answer_tokens = std::ssize(ids);
    }
    needles.push_back(std::move(needle));
  }
  if (needles.empty()) return BadInput(StrCat(path, ": holds no needle"));
  return needles;
}

// The first `count` frames of the folder, in its order.
Result<std::vector<Picture>> ReadFrames(const std::string& folder, const TaskOptions& options,
                                        int64_t count) {
  KVG_ASSIGN(const std::string path, PathBelow(options.data_directory, folder));
  if (!DirectoryExists(path)) return MissingData(folder, options.data_directory);
  Result<VideoFolder> video = ReadVideoFolder(path);
  if (!video.ok()) return BadInput(StrCat(path, ": ", video.error().message));
  if (std::ssize(video->files) < count) {
    return BadInput(StrCat(path, ": holds ", video->files.size(),
                           " frames, but source.frames asks for ", count,
                           "; take a longer film, or set fewer"));
  }
  std::vector<Picture> frames;
  for (int64_t i = 0; i < count; ++i) {
    const std::string file = StrCat(folder, "/", video->files[static_cast<size_t>(i)].second);
    Result<Picture> picture = PictureOfFile(options.data_directory, file);
    if (!picture.ok()) return BadInput(StrCat(path, ": ", picture.error().message));
    frames.push_back(*std::move(picture));
  }
  return frames;
}

Sample Make(const Haystack& haystack, int64_t index) {
  const auto needles = std::ssize(haystack.needles), depths = std::ssize(haystack.depths);
  const Needle& needle = haystack.needles[static_cast<size_t>(index % needles)];
  const Percent& depth = haystack.depths[static_cast<size_t>(index / needles % depths)];
  const int64_t frames = haystack.lengths[static_cast<size_t>(index / needles / depths)];
  const auto place = static_cast<int64_t>(depth.value / 100 * static_cast<double>(frames));
  Sample sample;
  sample.id = StrCat(frames, "-", depth.text, "-", index % needles + 1);
  sample.group = sample.id;
  sample.length = frames;
  for (int64_t i = 0; i <= frames; ++i) {
    sample.pictures.push_back(
        i == place ? needle.picture : haystack.frames[static_cast<size_t>(i < place ? i : i - 1)]);
    sample.pictures.back().frame = i;
  }
  sample.marks = {{.kind = MarkKind::kNeedle, .picture = place}};
  sample.facts = {{"frames", StrCat(frames)}, {"depth", depth.text}};
  Question question;
  question.text = needle.question;
  question.answers = {needle.answer};
  question.max_new_tokens = needle.answer_tokens;
  sample.questions.push_back(std::move(question));
  return sample;
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  const auto haystack = std::make_shared<Haystack>();
  KVG_ASSIGN(haystack->lengths, ParseInts(params, "frames", "v_niah", 1, 100000));
  KVG_ASSIGN(haystack->depths, ParsePercents(params, "depths", "v_niah"));
  KVG_ASSIGN(haystack->needles, ReadNeedles(params, task, options));
  const int64_t most = *std::max_element(haystack->lengths.begin(), haystack->lengths.end());
  KVG_ASSIGN(haystack->frames, ReadFrames(params.Text("haystack"), options, most));
  const int64_t total =
      std::ssize(haystack->lengths) * std::ssize(haystack->depths) * std::ssize(haystack->needles);
  return MakeStream(total, options,
                    [haystack](int64_t index) -> Result<Sample> { return Make(*haystack, index); });
}

KVG_REGISTER_SOURCE({
    .name = "v_niah",
    .version = 1,
    .description = "V-NIAH: a picture among the frames of a film of the user's",
    .generated = false,
    .params = {ChoiceParam("file", "v_niah/dataset.json", {},
                           "the needles, an array of path, prompt and answer"),
               ChoiceParam("images", "v_niah/images", {}, "folder of the needles' pictures"),
               ChoiceParam("haystack", "v_niah/haystack", {},
                           "folder of the film's frames, one for each second"),
               TextParam("frames", "200", "how many frames, comma-separated"),
               TextParam("depths", "0,20,40,60,80,100",
                         "percent of the frames that stand before the needle")},
    .open = Open,
    .files = SourceFile,
    .check = [](const Params& params, const Json&) -> Status {
      const auto frames = ParseInts(params, "frames", "v_niah", 1, 100000);
      if (!frames.ok()) return frames.error();
      const auto depths = ParsePercents(params, "depths", "v_niah");
      return depths.ok() ? Status() : depths.error();
    },
});

}  // namespace
}  // namespace kvgauge::v_niah
