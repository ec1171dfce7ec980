// SPDX-License-Identifier: Apache-2.0
// Visual Haystacks: records of needles and other pictures, whose order is no part of the file.
#include <memory>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "generators/generator.h"
#include "loaders/picture_layout.h"
#include "src/records.h"
#include "src/source_file.h"

namespace kvgauge::visual_haystacks {
namespace {

constexpr std::string_view kMark = "<image>";

struct Setup {
  PictureLayout layout;
  PictureContext context;
  bool each_place = false;
  bool skip_bad = false;
  uint64_t seed = 0;
};

// The orders of one record's pictures: the needle at the front, then a tenth further each time; or
// one order, drawn.
class Stream final : public SampleStream {
 public:
  Stream(std::unique_ptr<RecordReader> reader, Setup setup)
      : reader_(std::move(reader)), setup_(std::move(setup)) {}

  Result<std::optional<Sample>> Next() override {
    while (true) {
      Result<std::optional<Sample>> sample = Try();
      if (sample.ok() || !setup_.skip_bad || reader_->broken() ||
          sample.error().code != ErrorCode::kBadInput) {
        return sample;
      }
      record_.reset();
      ++skipped_;
      if (faults_.size() < kToldFaults) faults_.push_back(sample.error().message);
    }
  }
  int64_t skipped() const override { return skipped_; }
  const std::vector<std::string>& faults() const override { return faults_; }

 private:
  Result<std::optional<Sample>> Try() {
    if (!record_) {
      KVG_ASSIGN(record_, reader_->Next());
      if (!record_) return std::optional<Sample>();
      place_ = 0;
      KVG_TRY(ReadRecord());
    }
    KVG_ASSIGN(Sample sample, MakeSample());
    const size_t all = needles_.size() + others_.size();
    place_ += setup_.each_place ? std::max<size_t>(all / 10, 1) : all;
    if (place_ >= all) record_.reset();
    return std::optional(std::move(sample));
  }

  Status ReadRecord() {
    const Fields fields(*record_);
    KVG_ASSIGN(needles_, fields.Texts("pos_image"));
    KVG_ASSIGN(others_, fields.Texts("neg_image"));
    if (needles_.empty()) return fields.Wrong("pos_image", "is empty: there is no needle");
    if (setup_.each_place && needles_.size() > 1) {
      return fields.Wrong("pos_image", StrCat("has ", needles_.size(),
                                              " needles; source.order each_place is of one"));
    }
    KVG_ASSIGN(const Json* turns, fields.Get("conversations"));
    for (size_t i = 0; i < 2; ++i) {
      if (!turns->is_array() || turns->size() <= i || !(*turns)[i].is_object() ||
          !(*turns)[i].contains("value") || !(*turns)[i]["value"].is_string()) {
        return fields.Wrong("conversations", "does not hold the texts [0].value and [1].value");
      }
      (i == 0 ? question_ : answer_) = (*turns)[i]["value"].get<std::string>();
    }
    return {};
  }

  // Pictures in the order that is shown; whether each is a needle.
  std::vector<std::pair<std::string, bool>> Ordered() const {
    std::vector<std::pair<std::string, bool>> all;
    const size_t front = setup_.each_place ? std::min(place_, others_.size()) : others_.size();
    for (size_t i = 0; i < front; ++i) all.emplace_back(others_[i], false);
    for (const std::string& needle : needles_) all.emplace_back(needle, true);
    for (size_t i = front; i < others_.size(); ++i) all.emplace_back(others_[i], false);
    if (!setup_.each_place) {
      Rng rng = RngFor(setup_.seed, record_->number, Draw::kPlaces);
      Shuffle(all, rng);
    }
    return all;
  }

  Result<Sample> MakeSample() const {
    const auto pictures = Ordered();
    std::string marks;
    Json files = Json::array();
    for (const auto& [file, needle] : pictures) {
      marks += StrCat(kMark, "\n");
      files.push_back(file);
    }
    Record flat = *record_;
    const std::string id = StrCat(record_->number);
    flat.value = {{"id", setup_.each_place ? StrCat(id, "-", place_) : id},
                  {"group", id},
                  {"marks", marks},
                  {"images", std::move(files)},
                  {"question", question_},
                  {"answer", answer_}};
    if (needles_.size() == 1) {
      for (size_t i = 0; i < pictures.size(); ++i) {
        if (pictures[i].second) flat.value["place"] = i;
      }
    }
    KVG_ASSIGN(std::optional<Sample> made, PictureSample(setup_.layout, setup_.context, flat));
    Sample sample = *std::move(made);
    for (size_t i = 0; i < pictures.size(); ++i) {
      if (!pictures[i].second) continue;
      const int64_t at = sample.pictures[i].at;
      sample.marks.push_back(
          {.kind = MarkKind::kNeedle, .begin = at, .end = at, .picture = static_cast<int64_t>(i)});
    }
    return sample;
  }

  std::unique_ptr<RecordReader> reader_;
  Setup setup_;
  std::optional<Record> record_;
  size_t place_ = 0;
  std::vector<std::string> needles_, others_;
  std::string question_, answer_;
  int64_t skipped_ = 0;
  std::vector<std::string> faults_;
};

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  KVG_ASSIGN(const std::string path, DataFile(options, params.Text("file")));
  KVG_ASSIGN(auto reader, RecordReader::Open(path, Container::kJsonArray));
  const Json given = {{"context", "{marks}"},
                      {"question",
                       "You are given a set of images. Please answer the following question in "
                       "Yes or No: {question}"},
                      {"images", "images"},
                      {"mark", kMark},
                      {"image_file", StrCat(params.Text("images"), "/{image}")},
                      {"answers", "answer"},
                      {"id", "id"},
                      {"group", "group"},
                      {"facts", "place"}};
  KVG_ASSIGN(const Params layout, Params::Parse(PictureLayoutParams(), given, "visual_haystacks"));
  Setup setup;
  KVG_ASSIGN(setup.layout, ReadPictureLayout(layout));
  setup.context = {.path = path,
                   .data_directory = options.data_directory,
                   .max_new_tokens = task.at("max_new_tokens").get<int64_t>()};
  setup.each_place = params.Text("order") == "each_place";
  setup.skip_bad = options.skip_bad;
  setup.seed = options.seed;
  return std::unique_ptr<SampleStream>(
      std::make_unique<Stream>(std::move(reader), std::move(setup)));
}

KVG_REGISTER_SOURCE({
    .name = "visual_haystacks",
    .version = 1,
    .description = "Visual Haystacks' files: needles and other pictures of COCO",
    .generated = false,
    .params = {ChoiceParam("file", "", {}, "visual_haystack_N.json below the data directory"),
               ChoiceParam("images", "visual_haystacks/coco", {},
                           "folder of COCO 2017 below the data directory"),
               ChoiceParam("order", "each_place", {"each_place", "drawn"},
                           "each_place: a sample for each place of the one needle, a tenth of the "
                           "pictures apart; drawn: one sample, in an order of the run's seed")},
    .open = Open,
    .files = SourceFile,
    .check = CheckSourceFile,
});

}  // namespace
}  // namespace kvgauge::visual_haystacks
