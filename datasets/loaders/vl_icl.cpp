// SPDX-License-Identifier: Apache-2.0
// VL-ICL: queries behind demonstrations that the published code draws anew in every run.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "generators/generator.h"
#include "loaders/picture_layout.h"
#include "src/python_random.h"
#include "src/python_text.h"
#include "src/source_file.h"

namespace kvgauge::vl_icl {
namespace {

constexpr int64_t kMostFileBytes = int64_t{256} << 20;
constexpr std::string_view kMark = "<image>";
const std::vector<std::string> kSets = {
    "open_mi", "operator_induction", "operator_induction_interleaved", "clevr",
    "textocr", "matching_mi"};

// One demonstration, or a query.
struct Shown {
  std::vector<std::string> images;
  std::string question, answer;
};

Result<Shown> ReadShown(const Record& record, const std::string& answer_field) {
  const Fields fields(record);
  Shown shown;
  KVG_ASSIGN(shown.images, fields.Texts("image"));
  KVG_ASSIGN(shown.question, fields.Text("question"));
  KVG_ASSIGN(const Json* answer, fields.Get(answer_field));
  const std::optional<std::string> text = PythonScalar(*answer);
  if (!text) return fields.Wrong(answer_field, "is neither a text nor a number");
  if (AllBlank({*text})) {
    return fields.Wrong(answer_field, "is empty: no prediction could be right");
  }
  if (AllBlank(shown.images)) return fields.Wrong("image", "names no picture");
  shown.answer = *text;
  return shown;
}

Record Part(const Record& record, const Json& value, std::string_view name) {
  Record part;
  part.value = value;
  part.where = StrCat(record.where, ": ", name);
  part.number = record.number;
  return part;
}

class Chooser {
 public:
  Chooser(std::string set, std::vector<Record> support)
      : set_(std::move(set)), support_(std::move(support)), random_(0) {}

  // The demonstrations of one query, as the published code draws them next.
  Result<std::vector<Shown>> Choose(const Record& query, size_t shots) {
    if (set_ == "open_mi") return OfClasses(query, shots);
    if (shots > support_.size()) {
      return BadInput(StrCat(query.where, ": ", shots,
                             " demonstrations are asked for, support.json has ", support_.size()));
    }
    std::vector<Shown> chosen;
    for (const size_t place : random_.Sample(support_.size(), shots)) {
      const Record& record = support_[place];
      if (set_ == "matching_mi") {
        for (const std::string name : {"same", "diff"}) {
          KVG_ASSIGN(const Json* half, Fields(record).Get(name));
          KVG_ASSIGN(Shown shown, ReadShown(Part(record, *half, name), "answer"));
          chosen.push_back(std::move(shown));
        }
      } else if (set_.starts_with("operator_induction")) {
        KVG_ASSIGN(Shown shown, ByOperator(query, record));
        chosen.push_back(std::move(shown));
      } else {
        KVG_ASSIGN(Shown shown, ReadShown(record, "answer"));
        chosen.push_back(std::move(shown));
      }
    }
    return chosen;
  }

 private:
  // Its answers are three, one for each operator.
  static Result<Shown> ByOperator(const Record& query, const Record& record) {
    KVG_ASSIGN(const std::string sign, Fields(query).Text("operator"));
    const std::string_view signs = "+-x";
    const size_t which = sign.size() == 1 ? signs.find(sign) : std::string::npos;
    if (which == std::string::npos) {
      return Fields(query).Wrong("operator", StrCat("is ", Quoted(sign), ", expected +, - or x"));
    }
    const Fields fields(record);
    KVG_ASSIGN(const Json* answers, fields.Get("answer"));
    if (!answers->is_array() || answers->size() != signs.size()) {
      return fields.Wrong("answer", "is no array of three, an answer for each operator");
    }
    Record flat = record;
    flat.value["answer"] = (*answers)[which];
    return ReadShown(flat, "answer");
  }

  // Pictures of the query's class and of another, in turn.
  Result<std::vector<Shown>> OfClasses(const Record& query, size_t shots) {
    const Fields fields(query);
    KVG_ASSIGN(const std::string right, fields.Text("answer"));
    KVG_ASSIGN(const std::vector<std::string> classes, fields.Texts("classes"));
    std::vector<std::string> others;
    std::copy_if(classes.begin(), classes.end(), std::back_inserter(others),
                 [&](const std::string& name) { return name != right; });
    if (others.empty()) return fields.Wrong("classes", "names no class but the answer");
    const std::string other = others[random_.Below(others.size())];
    const bool right_first = random_.Below(2) == 0;
    KVG_ASSIGN(const Json* support, fields.Get("support"));
    std::vector<Shown> chosen;
    for (size_t shot = 0; shot < shots; ++shot) {
      for (const std::string& name : {right_first ? right : other, right_first ? other : right}) {
        const Json* images = nullptr;
        if (support->is_object() && support->contains(name) && (*support)[name].is_object() &&
            (*support)[name].contains("images")) {
          images = &(*support)[name]["images"];
        }
        if (images == nullptr || !images->is_array() || images->size() <= shot ||
            !(*images)[shot].is_string()) {
          return fields.Wrong("support", StrCat("has no picture ", shot + 1, " of class ",
                                                Quoted(name), "; set fewer source.shots"));
        }
        chosen.push_back({{(*images)[shot].get<std::string>()}, "This is a", name});
      }
    }
    return chosen;
  }

  std::string set_;
  std::vector<Record> support_;
  PythonRandom random_;
};

// An array of objects, whole.
Result<std::vector<Record>> ReadRecords(const TaskOptions& options, const std::string& file) {
  KVG_ASSIGN(const std::string path, DataFile(options, file));
  KVG_ASSIGN(auto reader, RecordReader::Open(path, Container::kJsonArray, kMostFileBytes));
  std::vector<Record> records;
  while (true) {
    KVG_ASSIGN(std::optional<Record> record, reader->Next());
    if (!record) return records;
    records.push_back(*std::move(record));
  }
}

void AddMarks(const Shown& shown, std::string& text, Json& images) {
  for (const std::string& image : shown.images) {
    text += StrCat(kMark, "\n");
    images.push_back(image);
  }
}

Result<Json> Flat(const Record& query, const std::vector<Shown>& demonstrations) {
  KVG_ASSIGN(const Shown asked, ReadShown(query, "answer"));
  std::string before, after;
  Json images = Json::array();
  for (const Shown& shown : demonstrations) {
    AddMarks(shown, before, images);
    before += StrCat(shown.question, "\nAnswer: ", shown.answer, "\n");
  }
  AddMarks(asked, after, images);
  after += StrCat(asked.question, "\nAnswer:");
  return Json{{"id", query.number},
              {"before", before},
              {"after", after},
              {"images", std::move(images)},
              {"answer", asked.answer}};
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  const std::string& file = params.Text("file");
  const size_t slash = file.rfind('/') + 1;
  KVG_ASSIGN(const std::vector<Record> queries, ReadRecords(options, file));
  std::vector<Record> support;
  if (params.Text("set") != "open_mi") {
    KVG_ASSIGN(support, ReadRecords(options, file.substr(0, slash) + "support.json"));
  }
  KVG_ASSIGN(const std::vector<int64_t> draws, ParseInts(params, "draws", "vl_icl", 0, 1000));
  Chooser chooser(params.Text("set"), std::move(support));
  std::vector<Json> records;
  for (const int64_t shots : draws) {
    records.clear();
    for (const Record& query : queries) {
      KVG_ASSIGN(const auto chosen, chooser.Choose(query, static_cast<size_t>(shots)));
      KVG_ASSIGN(Json flat, Flat(query, chosen));
      flat["shots"] = shots;
      records.push_back(std::move(flat));
    }
    if (shots == params.Int("shots")) break;
  }
  const Json given = {
      {"context", StrCat(ReplaceAll(ReplaceAll(params.Text("instruction"), "{", "{{"), "}", "}}"),
                         "\n{before}")},
      {"question", "{after}"},
      {"images", "images"},
      {"mark", kMark},
      {"image_file", StrCat(params.Text("images"), "/{image}")},
      {"answers", "answer"},
      {"id", "id"},
      {"facts", "shots"}};
  KVG_ASSIGN(const Params layout_params, Params::Parse(PictureLayoutParams(), given, "vl_icl"));
  KVG_ASSIGN(PictureLayout layout, ReadPictureLayout(layout_params));
  const std::string path = options.data_directory + "/" + file;
  const PictureContext context{.path = path,
                               .data_directory = options.data_directory,
                               .max_new_tokens = task.at("max_new_tokens").get<int64_t>()};
  return std::unique_ptr<SampleStream>(std::make_unique<FileStream>(
      RecordReader::OfValues(path, std::move(records)), options.skip_bad,
      [layout = std::move(layout), context](const Record& record) -> Result<Sample> {
        KVG_ASSIGN(std::optional<Sample> sample, PictureSample(layout, context, record));
        return *std::move(sample);
      }));
}

Status Check(const Params& params, const Json& task) {
  KVG_TRY(CheckSourceFile(params, task));
  const auto draws = ParseInts(params, "draws", "vl_icl", 0, 1000);
  if (!draws.ok()) return draws.error();
  if (std::find(draws->begin(), draws->end(), params.Int("shots")) != draws->end()) return {};
  return BadInput(StrCat(".shots: ", params.Int("shots"), " is not among .draws, ",
                         Quoted(params.Text("draws"))));
}

KVG_REGISTER_SOURCE({
    .name = "vl_icl",
    .version = 1,
    .description = "VL-ICL's files: queries, and demonstrations drawn by Python's random",
    .generated = false,
    .params = {ChoiceParam("file", "", {},
                           "query.json below the data directory; support.json beside"),
               ChoiceParam("set", "operator_induction", kSets, "which of the sets it is"),
               ChoiceParam("images", "vl_icl", {}, "folder below which the pictures' files are"),
               TextParam("instruction", "", "what stands before the demonstrations"),
               IntParam("shots", 4, 0, 1000, "demonstrations of a query; of open_mi of each class"),
               TextParam("draws", "0,1,2,4,8",
                         "numbers of demonstrations that one run of the published code draws, in "
                         "order: later ones depend on those before")},
    .open = Open,
    .files = SourceFile,
    .check = Check,
});

}  // namespace
}  // namespace kvgauge::vl_icl
