// SPDX-License-Identifier: Apache-2.0
// Published sets with pictures or videos: tables with base64 pictures, Parquet files, JSON with
// image files. docs/formats/tasks.md lists the parameters.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "loaders/picture_layout.h"
#include "src/python_text.h"
#include "src/source_file.h"

namespace kvgauge::pictures {
namespace {

// Where the pictures of a table lie, by their rows' index. Rows are read as far as they are needed,
// once, and only their places are held.
class PictureIndex {
 public:
  PictureIndex(std::string path, Container container, std::string index,
               std::vector<std::string> images)
      : path_(std::move(path)),
        container_(container),
        index_(std::move(index)),
        images_(std::move(images)) {}

  Result<std::optional<CellPlace>> Find(const std::string& wanted) {
    if (reader_ == nullptr) {
      KVG_ASSIGN(reader_, RecordReader::Open(path_, container_, kMaxRecordBytes, images_));
    }
    while (true) {
      if (const auto known = places_.find(wanted); known != places_.end()) {
        return std::optional(known->second);
      }
      const Result<std::optional<Record>> record = reader_->Next();
      if (!record.ok()) {
        // The stream of samples meets a faulty row itself.
        if (!reader_->broken() && record.error().code == ErrorCode::kBadInput) continue;
        return record.error();
      }
      if (!*record) return std::optional<CellPlace>();
      const Json& row = (*record)->value;
      if (!row.contains(index_) || !row[index_].is_string()) continue;
      for (const std::string& name : images_) {
        if (!row.contains(name)) continue;
        const std::optional<CellPlace> place = CellPlaceOf(row[name]);
        if (place) places_.emplace(row[index_].get<std::string>(), *place);
      }
    }
  }

 private:
  std::string path_;
  Container container_;
  std::string index_;
  std::vector<std::string> images_;
  std::unique_ptr<RecordReader> reader_;
  std::unordered_map<std::string, CellPlace> places_;
};

// "category=adversarial, popular": the field, and the values that make a record a sample.
struct Only {
  std::string field;
  std::vector<std::string> values;
};
Result<Only> ReadOnly(const std::string& text) {
  Only only;
  const size_t sign = text.find('=');
  only.field = Trim(text.substr(0, sign));
  if (sign != std::string::npos) {
    for (const std::string& part : Split(text.substr(sign + 1), ',')) {
      if (!Trim(part).empty()) only.values.emplace_back(Trim(part));
    }
  }
  if (!text.empty() && (only.field.empty() || only.values.empty())) {
    return BadInput(StrCat(".only: ", Quoted(text), ", expected FIELD=VALUE, such as split=test"));
  }
  return only;
}

// One file, or the parts of a table, one after the other. Records without a picture in `images`
// are passed by where the layout says so; an error if that leaves none.
class Stream final : public SampleStream {
 public:
  using OpenPart = std::function<Result<std::unique_ptr<FileStream>>(const std::string& path)>;
  Stream(std::vector<std::string> paths, std::string images, OpenPart open)
      : paths_(std::move(paths)), images_(std::move(images)), open_(std::move(open)) {}

  Result<std::optional<Sample>> Next() override {
    while (true) {
      if (records_ == nullptr) {
        if (part_ == paths_.size()) return std::optional<Sample>();
        KVG_ASSIGN(records_, open_(paths_[part_++]));
      }
      KVG_ASSIGN(std::optional<Sample> sample, records_->Next());
      if (sample && sample->questions.empty()) {
        ++passed_by_;
        continue;
      }
      if (sample && !ids_.insert(sample->id).second) {
        return BadInput(StrCat(paths_[part_ - 1], ": id ", Quoted(sample->id),
                               " stands in another part of the table, too"));
      }
      if (!sample && part_ == paths_.size() && ids_.empty() && passed_by_ > 0) {
        return BadInput(StrCat(paths_.back(), ": column ", Quoted(images_), ": none of ",
                               passed_by_, " records holds a picture"));
      }
      if (sample || part_ == paths_.size()) return sample;
      skipped_ += records_->skipped();
      faults_.insert(faults_.end(), records_->faults().begin(), records_->faults().end());
      records_ = nullptr;
    }
  }
  int64_t skipped() const override {
    return skipped_ + (records_ == nullptr ? 0 : records_->skipped());
  }
  const std::vector<std::string>& faults() const override {
    told_ = faults_;
    if (records_ != nullptr) {
      told_.insert(told_.end(), records_->faults().begin(), records_->faults().end());
    }
    if (told_.size() > kToldFaults) told_.resize(kToldFaults);
    return told_;
  }

 private:
  std::vector<std::string> paths_;
  std::string images_;
  OpenPart open_;
  size_t part_ = 0;
  int64_t passed_by_ = 0;
  std::unique_ptr<FileStream> records_;
  std::set<std::string> ids_;
  int64_t skipped_ = 0;
  std::vector<std::string> faults_;
  mutable std::vector<std::string> told_;
};

// Samples of one group as one sample, whose questions are requests of the same context.
class Together final : public SampleStream {
 public:
  explicit Together(std::unique_ptr<SampleStream> inner) : inner_(std::move(inner)) {}

  Result<std::optional<Sample>> Next() override {
    if (!read_) KVG_TRY(ReadAll());
    if (next_ == samples_.size()) return std::optional<Sample>();
    return std::optional(std::move(samples_[next_++]));
  }
  int64_t skipped() const override { return inner_->skipped(); }
  const std::vector<std::string>& faults() const override { return inner_->faults(); }

 private:
  // Holds texts; pictures stay where they are.
  Status ReadAll() {
    read_ = true;
    std::unordered_map<std::string, size_t> place;
    while (true) {
      KVG_ASSIGN(std::optional<Sample> sample, inner_->Next());
      if (!sample) return {};
      const auto [at, added] = place.try_emplace(sample->group, samples_.size());
      if (added) {
        samples_.push_back(*std::move(sample));
      } else {
        KVG_TRY(Join(samples_[at->second], *std::move(sample)));
      }
    }
  }
  static Status Join(Sample& first, Sample next) {
    const auto of_context = [](const Sample& sample) {
      std::vector<std::pair<std::string, int64_t>> pictures;
      for (const Picture& picture : sample.pictures) {
        if (picture.question < 0) pictures.emplace_back(picture.hash, picture.at);
      }
      return pictures;
    };
    if (first.context != next.context || of_context(first) != of_context(next)) {
      return BadInput(StrCat("records ", Quoted(first.id), " and ", Quoted(next.id),
                             " are of one group (", Quoted(first.group),
                             "), but do not begin with the same text and pictures"));
    }
    for (Picture& picture : next.pictures) {
      if (picture.question < 0) continue;
      picture.question = std::ssize(first.questions);
      first.pictures.push_back(std::move(picture));
    }
    first.questions.push_back(std::move(next.questions[0]));
    first.mode = QuestionMode::kMultiRequest;
    return {};
  }

  std::unique_ptr<SampleStream> inner_;
  std::vector<Sample> samples_;
  size_t next_ = 0;
  bool read_ = false;
};

// The file, or in a folder its Parquet files by name.
Result<std::vector<std::string>> PartsOf(const TaskOptions& options, const std::string& file) {
  const std::string whole = options.data_directory + "/" + file;
  std::vector<std::string> parts;
  std::error_code error;
  if (DirectoryExists(whole)) {
    for (const auto& entry : std::filesystem::directory_iterator(whole, error)) {
      if (entry.path().extension() == ".parquet") parts.push_back(entry.path().string());
    }
    std::sort(parts.begin(), parts.end());
    if (parts.empty()) return MissingData(file + "/*.parquet", options.data_directory);
    return parts;
  }
  KVG_ASSIGN(std::string path, DataFile(options, file));
  parts.push_back(std::move(path));
  return parts;
}

// The samples of one file.
Result<std::unique_ptr<FileStream>> OpenFile(const Params& params, const Json& task,
                                             const TaskOptions& options, const std::string& path) {
  KVG_ASSIGN(PictureLayout layout, ReadPictureLayout(params));
  KVG_ASSIGN(const Only only, ReadOnly(params.Text("only")));
  const Container container = ContainerFromName(params.Text("container"));
  const std::vector<std::string> located =
      layout.base64 ? layout.images : std::vector<std::string>();
  KVG_ASSIGN(auto reader, RecordReader::Open(path, container, kMaxRecordBytes, located));
  PictureContext context{.path = path,
                         .data_directory = options.data_directory,
                         .max_new_tokens = task.at("max_new_tokens").get<int64_t>(),
                         .table = container == Container::kTabs ||
                                  container == Container::kCommas ||
                                  container == Container::kParquet};
  if (layout.base64 && !layout.index.empty()) {
    const auto index = std::make_shared<PictureIndex>(path, container, layout.index, located);
    context.find = [index](const std::string& wanted) { return index->Find(wanted); };
  }
  auto records = std::make_unique<FileStream>(
      std::move(reader), options.skip_bad,
      [layout = std::move(layout), context](const Record& record) -> Result<Sample> {
        KVG_ASSIGN(std::optional<Sample> sample, PictureSample(layout, context, record));
        if (sample) return *std::move(sample);
        Sample none;
        none.id = StrCat("\x1f", record.number);
        return none;
      });
  if (!only.values.empty()) {
    records->set_filter([only](const Record& record) -> Result<bool> {
      const Fields fields(record);
      KVG_ASSIGN(const Json* value, fields.Get(only.field));
      const std::optional<std::string> text = PythonScalar(*value);
      return text && std::find(only.values.begin(), only.values.end(), *text) != only.values.end();
    });
  }
  return records;
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  KVG_ASSIGN(std::vector<std::string> paths, PartsOf(options, params.Text("file")));
  const auto open = [params, task, options](const std::string& path) {
    return OpenFile(params, task, options, path);
  };
  std::unique_ptr<SampleStream> stream =
      std::make_unique<Stream>(std::move(paths), params.Text("images"), open);
  if (params.Bool("together")) stream = std::make_unique<Together>(std::move(stream));
  return stream;
}

std::vector<ParamSpec> AllParams() {
  std::vector<ParamSpec> all = {
      ChoiceParam("file", "", {}, "file below the data directory, or a folder of Parquet files"),
      ChoiceParam("container", "tsv", ContainerNames(), "how the records are packed"),
      BoolParam("together", false,
                "records of one group are one sample, a request each; the file is read first"),
      ChoiceParam("only", "", {},
                  "FIELD=VALUE, VALUE ...: which records are samples; the others are passed by")};
  for (ParamSpec& param : PictureLayoutParams()) all.push_back(std::move(param));
  return all;
}

Status Check(const Params& params, const Json& task) {
  KVG_TRY(CheckSourceFile(params, task));
  KVG_TRY(ReadOnly(params.Text("only")));
  const Container container = ContainerFromName(params.Text("container"));
  if (params.Text("image_kind") == "base64" && container != Container::kTabs &&
      container != Container::kCommas) {
    return BadInput(".image_kind: base64 is read from tables, .container tsv or csv");
  }
  if (params.Bool("together") && params.Text("group").empty()) {
    return BadInput(".together: needs .group, the field that records share");
  }
  if (params.Bool("together") && container == Container::kParquet) {
    return BadInput(".together: not of .container parquet, whose rows hold their pictures");
  }
  return CheckPictureLayout(params);
}

KVG_REGISTER_SOURCE({
    .name = "pictures",
    .version = 1,
    .description = "records with pictures or videos, described by the task file",
    .generated = false,
    .params = AllParams(),
    .open = Open,
    .files = SourceFile,
    .check = Check,
});

}  // namespace
}  // namespace kvgauge::pictures
