// SPDX-License-Identifier: Apache-2.0
// MileBench: {"meta_data": {"task_instruction", "question_type"}, "data": [...]}, pictures beside.
#include <memory>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "loaders/picture_layout.h"
#include "src/python_text.h"
#include "src/source_file.h"

namespace kvgauge::milebench {
namespace {

constexpr int64_t kMostFileBytes = int64_t{256} << 20;
constexpr std::string_view kSlot = "<ImageHere>";

struct Loader {
  PictureLayout layout;
  PictureContext context;
  Json instructions;
  bool bare_options = false;  // GPR1200's have no letters

  // The record's fields laid flat: what stands up to the last picture, and what behind it.
  Result<Sample> operator()(const Record& given) const {
    const Fields fields(given);
    KVG_ASSIGN(const int64_t instruction, fields.Int("task_instruction_id"));
    if (static_cast<size_t>(instruction) >= instructions.size() ||
        !instructions[static_cast<size_t>(instruction)].is_string()) {
      return fields.Wrong("task_instruction_id", StrCat("is ", instruction, ", but meta_data has ",
                                                        instructions.size(), " instructions"));
    }
    KVG_ASSIGN(const Json* instance, fields.Get("task_instance"));
    const Record inner{*instance, StrCat(given.where, ": task_instance")};
    if (!instance->is_object()) return fields.Wrong("task_instance", "is no object");
    const Fields within(inner);
    KVG_ASSIGN(std::string text, within.Text("context"));
    KVG_ASSIGN(const std::vector<std::string> images, within.Texts("images_path"));
    for (size_t i = 1; i <= images.size(); ++i) {
      for (const std::string_view kind : {"image", "table"}) {
        text = ReplaceAll(text, StrCat("{", kind, "#", i, "}"), kSlot);
      }
    }
    if (within.Has("choice_list")) {
      KVG_ASSIGN(const std::vector<std::string> choices, within.Texts("choice_list"));
      text += "\nChoice list: \n";
      for (size_t i = 0; i < choices.size(); ++i) {
        text += i == 0 ? "" : "\n";
        if (!bare_options) {
          AppendUtf8(text, U'A' + static_cast<char32_t>(i));
          text += ". ";
        }
        text += choices[i];
      }
      text += "\nYour answer is: ";
    }
    const size_t last = text.rfind(kSlot);
    const size_t split = last == std::string::npos ? 0 : last + kSlot.size();
    Record flat = given;
    flat.value = {{"id", given.value.value("sample_id", Json())},
                  {"instruction", instructions[static_cast<size_t>(instruction)]},
                  {"before", text.substr(0, split)},
                  {"after", text.substr(split)},
                  {"images", images},
                  {"choices", instance->value("choice_list", Json())},
                  {"response", given.value.value("response", Json())},
                  {"image_quantity_level", given.value.value("image_quantity_level", Json())}};
    KVG_ASSIGN(std::optional<Sample> sample, PictureSample(layout, context, flat));
    return *std::move(sample);
  }
};

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  KVG_ASSIGN(const std::string path, DataFile(options, params.Text("file")));
  KVG_ASSIGN(const std::string text, ReadFile(path, kMostFileBytes));
  KVG_ASSIGN(Json whole, ParseJson(text, path));
  const Json* meta =
      whole.is_object() && whole.contains("meta_data") ? &whole["meta_data"] : nullptr;
  if (meta == nullptr || !meta->is_object() || !whole.contains("data") ||
      !whole["data"].is_array() || whole["data"].empty()) {
    return BadInput(StrCat(path, ": expected an object with meta_data and an array data"));
  }
  if (!meta->contains("task_instruction") || !(*meta)["task_instruction"].is_array()) {
    return BadInput(StrCat(path, ": .meta_data.task_instruction: expected an array of texts"));
  }
  const std::string& type = params.Text("question_type");
  const Json held = meta->value("question_type", Json());
  if (held != type) {
    return BadInput(StrCat(path, ": .meta_data.question_type: ", held.dump(),
                           ", but the task's metric is for ", Quoted(type)));
  }
  Json given = {{"context", "{instruction}\n{images}{before}"},
                {"question", "{after}"},
                {"images", "images"},
                {"mark", kSlot},
                {"answers", "response"},
                {"id", "id"},
                {"facts", "image_quantity_level"}};
  const size_t slash = params.Text("file").rfind('/');
  given["image_file"] = StrCat(
      slash == std::string::npos ? "" : params.Text("file").substr(0, slash + 1), "images/{image}");
  if (type == "multi-choice") {
    given["options"] = "choices";
    given["answer_kind"] = "option";
  }
  KVG_ASSIGN(const Params layout_params, Params::Parse(PictureLayoutParams(), given, "milebench"));
  Loader loader;
  KVG_ASSIGN(loader.layout, ReadPictureLayout(layout_params));
  loader.context = {.path = path,
                    .data_directory = options.data_directory,
                    .max_new_tokens = task.at("max_new_tokens").get<int64_t>()};
  loader.instructions = (*meta)["task_instruction"];
  loader.bare_options = params.Text("file").find("GPR1200") != std::string::npos;
  std::vector<Json> records;
  for (Json& record : whole["data"]) records.push_back(std::move(record));
  return std::unique_ptr<SampleStream>(std::make_unique<FileStream>(
      RecordReader::OfValues(path, std::move(records)), options.skip_bad, std::move(loader)));
}

KVG_REGISTER_SOURCE({
    .name = "milebench",
    .version = 1,
    .description = "MileBench's files: an object with instructions and records",
    .generated = false,
    .params = {ChoiceParam("file", "", {}, "NAME.json below the data directory; images/ beside"),
               ChoiceParam("question_type", "multi-choice", {"multi-choice", "open-ended"},
                           "as the file states it")},
    .open = Open,
    .files = SourceFile,
    .check = CheckSourceFile,
});

}  // namespace
}  // namespace kvgauge::milebench
