// SPDX-License-Identifier: Apache-2.0
// MMLongBench: five kinds of long texts with pictures, each with a prompt of its own.
#include <array>
#include <functional>
#include <memory>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "loaders/picture_layout.h"
#include "src/python_random.h"
#include "src/python_text.h"
#include "src/source_file.h"

namespace kvgauge::mmlongbench {
namespace {

constexpr int64_t kMostFileBytes = int64_t{512} << 20;
constexpr std::string_view kMark = "<image>";

constexpr std::string_view kFormat =
    " Write your answer in the following format:\nAnswer: [answer]\n\n";
constexpr std::string_view kInterleaved =
    "You are given interleaved text and images. Please answer ";

// A record's parts, flat: text, question, images, answer, kind.
using Flatten = Result<Json> (*)(const Record& record);

struct Kind {
  std::string_view name;
  std::string_view lead;    // before the text
  std::string_view asked;   // template of what follows the text
  std::string_view prefix;  // what the answer begins with
  Flatten flatten;          // null: records are made when the file is opened
};

// The first 15 characters.
std::string Short(const std::string& name) {
  size_t at = 0;
  for (int characters = 0; at < name.size() && characters < 15; ++characters) {
    ++at;
    while (at < name.size() && (static_cast<unsigned char>(name[at]) & 0xC0) == 0x80) ++at;
  }
  return name.substr(0, at);
}

std::string Joined(const std::vector<std::string>& parts, std::string_view between) {
  std::string all;
  for (size_t i = 0; i < parts.size(); ++i) all += StrCat(i == 0 ? "" : between, parts[i]);
  return all;
}

// The field `name` of each entry of "ctxs".
Result<std::vector<std::string>> OfTexts(const Record& record, const std::string& name) {
  const Fields fields(record);
  KVG_ASSIGN(const Json* all, fields.Get("ctxs"));
  if (!all->is_array()) return fields.Wrong("ctxs", "is no array");
  std::vector<std::string> texts;
  for (const Json& entry : *all) {
    if (!entry.is_object() || !entry.contains(name) || !entry[name].is_string()) {
      return fields.Wrong("ctxs", StrCat("has an entry without the text ", Quoted(name)));
    }
    texts.push_back(entry[name].get<std::string>());
  }
  return texts;
}

Result<Json> OfPassages(const Record& record) {
  const Fields fields(record);
  KVG_ASSIGN(const std::vector<std::string> titles, OfTexts(record, "title"));
  KVG_ASSIGN(const std::vector<std::string> texts, OfTexts(record, "text"));
  std::vector<std::string> passages;
  for (size_t i = 0; i < titles.size(); ++i) {
    passages.push_back(StrCat("Document (Title: ", titles[i], "): ", texts[i]));
  }
  KVG_ASSIGN(const std::string question, fields.Text("question"));
  KVG_ASSIGN(const std::string image, fields.Text("image"));
  return Json{
      {"text", Joined(passages, "\n\n")}, {"question", StrCat(kMark, question)}, {"images", image}};
}

Result<Json> OfPictures(const Record& record) {
  const Fields fields(record);
  KVG_ASSIGN(const std::vector<std::string> images, fields.Texts("ctxs"));
  KVG_ASSIGN(const std::string question, fields.Text("question"));
  // What counts as the answer of an output that gives none goes round.
  constexpr std::array<std::string_view, 4> kOtherwise = {"0", "1", "1", "0"};
  return Json{{"text", Joined(std::vector<std::string>(images.size(), std::string(kMark)), "\n")},
              {"question", question},
              {"images", images},
              {"kind", kOtherwise[static_cast<size_t>(record.number - 1) % 4]}};
}

// "Document NAME (page N): <image>" of a page's file.
Result<std::string> PageText(const Fields& fields, const std::string& file, bool numbered) {
  const std::vector<std::string> parts = Split(file, '/');
  const size_t page = file.find("page");
  if (parts.size() < 2 || (numbered && page == std::string::npos)) {
    return fields.Wrong(numbered ? "image_list" : "page_list",
                        StrCat("names ", Quoted(file), ", expected FOLDER/pageN.png"));
  }
  std::string text = StrCat("Document ", Short(parts[parts.size() - 2]));
  if (numbered) {
    // What stands between the first "page" and the next, up to a full stop.
    std::string number = file.substr(page + 4);
    number = number.substr(0, number.find("page"));
    text += StrCat(" (page ", number.substr(0, number.find('.')), ")");
  }
  return StrCat(text, ": ", kMark);
}

Result<std::string> PageTexts(const Fields& fields, const std::vector<std::string>& files,
                              bool numbered) {
  std::vector<std::string> pages;
  for (const std::string& file : files) {
    KVG_ASSIGN(std::string text, PageText(fields, file, numbered));
    pages.push_back(std::move(text));
  }
  return Joined(pages, "\n\n");
}

Result<Json> OfPages(const Record& record) {
  const Fields fields(record);
  KVG_ASSIGN(const std::vector<std::string> images, fields.Texts("page_list"));
  KVG_ASSIGN(const std::string text, PageTexts(fields, images, false));
  KVG_ASSIGN(const std::string name, fields.Text("doc_name"));
  KVG_ASSIGN(const std::string question, fields.Text("question"));
  KVG_ASSIGN(const std::string form, fields.Text("answer_format"));
  return Json{{"text", text},
              {"question", StrCat("Based on Document ", Short(name),
                                  ", answer the following question. ", question)},
              {"images", images},
              {"kind", form}};
}

Result<Json> OfReport(const Record& record) {
  const Fields fields(record);
  KVG_ASSIGN(const std::vector<std::string> images, fields.Texts("image_list"));
  KVG_ASSIGN(const std::string text, PageTexts(fields, images, true));
  KVG_ASSIGN(const Json* summary, fields.Get("summary"));
  std::vector<std::string> sections;
  for (const Json& section : *summary) {
    if (!section.is_object() || !section.contains("section_title") ||
        !section["section_title"].is_string() || !section.contains("paragraphs") ||
        !section["paragraphs"].is_array()) {
      return fields.Wrong("summary", "has an entry without section_title and paragraphs");
    }
    std::vector<std::string> paragraphs;
    for (const Json& paragraph : section["paragraphs"]) {
      if (!paragraph.is_string()) return fields.Wrong("summary", "has a paragraph that is no text");
      paragraphs.push_back(paragraph.get<std::string>());
    }
    sections.push_back(
        StrCat(section["section_title"].get<std::string>(), ":\n", Joined(paragraphs, "\n")));
  }
  return Json{{"text", text}, {"images", images}, {"answer", Joined(sections, "\n\n")}};
}

Result<Json> OfCase(const Record& record) {
  const Fields fields(record);
  KVG_ASSIGN(const std::vector<std::string> images, fields.Texts("image_list"));
  KVG_ASSIGN(const std::string text, PageTexts(fields, images, true));
  KVG_ASSIGN(const Json* summary, fields.Get("summary"));
  return Json{{"text", text}, {"images", images}, {"answer", *summary}};
}

// Texts and pictures in turn; `more` holds the pictures of the question.
Result<Json> OfParagraphs(const Record& record, const std::string& more, bool options) {
  const Fields fields(record);
  KVG_ASSIGN(const std::vector<std::string> paragraphs, OfTexts(record, "text"));
  KVG_ASSIGN(std::vector<std::string> images, fields.Texts("image_list"));
  KVG_ASSIGN(std::string question, fields.Text("question"));
  if (!more.empty()) {
    KVG_ASSIGN(const std::vector<std::string> pictures, fields.Texts(more));
    for (size_t i = 0; i < pictures.size(); ++i) {
      images.push_back(pictures[i]);
      if (!options) continue;
      question += "\n";
      AppendUtf8(question, U'A' + static_cast<char32_t>(i));
      question += StrCat(". ", kMark);
    }
  }
  return Json{{"text", Joined(paragraphs, "\n\n")}, {"question", question}, {"images", images}};
}
Result<Json> OfTextNeedle(const Record& record) { return OfParagraphs(record, "", false); }
Result<Json> OfCounts(const Record& record) {
  return OfParagraphs(record, "needle_image_list", false);
}
Result<Json> OfOptions(const Record& record) { return OfParagraphs(record, "choices_image", true); }

const std::vector<Kind>& Kinds() {
  static const std::string text_needle =
      StrCat(kInterleaved, "the question based on the given text and images.", kFormat);
  static const std::string options =
      StrCat(kInterleaved,
             "the question with the option's letter (A, B, etc.) based on the given text and "
             "images.",
             kFormat);
  static const std::string passages = StrCat(
      "Use the given documents to write a concise and short answer to the question about "
      "the entity shown in the image.",
      kFormat);
  static const std::string haystack = StrCat(
      "You are given a set of images. Please answer the question in Yes or No based on the "
      "given images.",
      kFormat);
  static const std::string document = StrCat(
      "You are given a document with text and images, and a question. Answer the question "
      "as concisely as you can, using a single phrase or sentence if possible. If the "
      "question cannot be answered based on the information in the article, write 'Not "
      "answerable.'",
      kFormat);
  static const std::vector<Kind> kinds = {
      {"passages", passages, "\n\nQuestion: {question}", "Answer:", OfPassages},
      {"haystack", haystack, "\n\nQuestion: {question}", "Answer:", OfPictures},
      {"needle_text", text_needle, "\n\nQuestion: {question}", "Answer:", OfTextNeedle},
      {"needle_counts", text_needle, "\n\nQuestion: {question}", "Answer:", OfCounts},
      {"needle_options", options, "\n\nQuestion: {question}", "Answer:", OfOptions},
      {"labels",
       "You need to recognize entities in images. Use the provided mapping from the image to label "
       "to assign a label to the test image. Only output \"label: {label}\" and nothing else.\n\n"
       "Training examples:\n",
       "\n\nNow classify this image: {question}", "label:", nullptr},
      {"report",
       "You are given a government report from U.S. Government Accountability Office (GAO), and "
       "you are tasked to summarize the report. Write a concise summary (around 550 words) "
       "organized in multiple paragraphs. Where applicable, the summary should contain a short "
       "description of why GAO did this study, what GAO found, and what GAO recommends.\n\n"
       "Government Report:\n",
       "\n\nNow please summarize the report.", "Summary:", OfReport},
      {"case",
       "You are given the legal documents in a civil rights lawsuit, and you are tasked to "
       "summarize the case. Write a concise summary of one paragraph (200 to 250 words). The "
       "summary should contain a short description of the background, the parties involved, and "
       "the outcomes of the case.\n\nLegal documents:\n",
       "\n\nNow please summarize the case.", "Summary:", OfCase},
      {"document", document, "\n\nQuestion: {question}", "Answer:", OfPages},
  };
  return kinds;
}

std::vector<std::string> KindNames() {
  std::vector<std::string> names;
  for (const Kind& kind : Kinds()) names.emplace_back(kind.name);
  return names;
}

// Demonstrations of labels: an object of domains, whose pictures are drawn and shuffled by Python's
// random, every draw in what the draws before have left.
Result<std::vector<Json>> LabelRecords(const std::string& path) {
  KVG_ASSIGN(const std::string text, ReadFile(path, kMostFileBytes));
  KVG_ASSIGN(Json domains, ParseJson(text, path));
  if (!domains.is_object()) return BadInput(StrCat(path, ": expected an object of domains"));
  constexpr uint64_t kSeed = 42;
  PythonRandom random(kSeed);
  std::vector<Json> records;
  for (auto& [name, domain] : domains.items()) {
    const auto wrong = [&, &name = name](std::string_view what) {
      return BadInput(StrCat(path, ": .", name, ": ", what));
    };
    if (!domain.is_object() || !domain.contains("exemplar_list") ||
        !domain["exemplar_list"].is_array() || domain["exemplar_list"].empty() ||
        !domain.contains("test_example") || !domain["test_example"].is_array()) {
      return wrong("expected exemplar_list and test_example");
    }
    // Rounds of demonstrations, of each choice.
    std::vector<std::vector<std::vector<Json>>> choices;
    for (const Json& choice : domain["exemplar_list"]) {
      choices.emplace_back();
      for (const Json& round : choice) {
        choices.back().emplace_back();
        for (const Json& one : round) {
          if (!one.is_object() || !one.contains("image") || !one["image"].is_string() ||
              !one.contains("id") || !PythonScalar(one["id"])) {
            return wrong("exemplar_list holds an entry without image and id");
          }
          choices.back().back().push_back(one);
        }
      }
    }
    for (const Json& example : domain["test_example"]) {
      if (!example.is_object() || !example.contains("image") || !example["image"].is_string() ||
          !example.contains("answer")) {
        return wrong("test_example holds an entry without image and answer");
      }
      auto& rounds = choices[random.Below(choices.size())];
      std::vector<std::string> shown;
      Json images = Json::array();
      for (std::vector<Json>& round : rounds) {
        random.Shuffle(round);
        for (const Json& one : round) {
          shown.push_back(StrCat(kMark, "\nlabel: ", *PythonScalar(one["id"])));
          images.push_back(one["image"]);
        }
      }
      images.push_back(example["image"]);
      records.push_back(Json{{"text", Joined(shown, "\n\n")},
                             {"question", kMark},
                             {"images", std::move(images)},
                             {"answer", example["answer"]},
                             {"domain", name}});
    }
  }
  return records;
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  KVG_ASSIGN(const std::string path, DataFile(options, params.Text("file")));
  const Kind* kind = nullptr;
  for (const Kind& one : Kinds()) {
    if (one.name == params.Text("kind")) kind = &one;
  }
  std::unique_ptr<RecordReader> reader;
  if (kind->flatten == nullptr) {
    KVG_ASSIGN(std::vector<Json> records, LabelRecords(path));
    reader = RecordReader::OfValues(path, std::move(records));
  } else {
    KVG_ASSIGN(reader, RecordReader::Open(path, Container::kJsonLines));
  }
  Json given = {
      {"context", StrCat(ReplaceAll(ReplaceAll(kind->lead, "{", "{{"), "}", "}}"), "{text}")},
      {"question", kind->asked},
      {"answer_prefix", kind->prefix},
      {"images", "images"},
      {"mark", kMark},
      {"image_file", StrCat(params.Text("images"), "/{image}")},
      {"answers", "answer"},
      {"answer_kind", params.Text("answers")},
      {"id", "id"},
      {"kind", "kind"},
      {"facts", "domain"}};
  KVG_ASSIGN(const Params layout_params,
             Params::Parse(PictureLayoutParams(), given, "mmlongbench"));
  KVG_ASSIGN(PictureLayout layout, ReadPictureLayout(layout_params));
  const PictureContext context{.path = path,
                               .data_directory = options.data_directory,
                               .max_new_tokens = task.at("max_new_tokens").get<int64_t>()};
  const auto build = [layout = std::move(layout), context,
                      kind](const Record& record) -> Result<Sample> {
    Record flat = record;
    if (kind->flatten != nullptr) {
      KVG_ASSIGN(flat.value, kind->flatten(record));
    }
    flat.value["id"] = record.number;
    if (!flat.value.contains("kind")) flat.value["kind"] = "";
    if (!flat.value.contains("answer")) {
      KVG_ASSIGN(const Json* answer, Fields(record).Get("answer"));
      flat.value["answer"] = *answer;
    }
    KVG_ASSIGN(std::optional<Sample> sample, PictureSample(layout, context, flat));
    return *std::move(sample);
  };
  auto records = std::make_unique<FileStream>(std::move(reader), options.skip_bad, build);
  if (kind->name == "passages") {
    // The published code passes by pictures whose names hold a quotation mark.
    records->set_filter([](const Record& record) -> Result<bool> {
      KVG_ASSIGN(const std::string image, Fields(record).Text("image"));
      return image.find('"') == std::string::npos;
    });
  }
  return std::unique_ptr<SampleStream>(std::move(records));
}

KVG_REGISTER_SOURCE({
    .name = "mmlongbench",
    .version = 1,
    .description = "MMLongBench's files, of nine kinds",
    .generated = false,
    .params = {ChoiceParam("file", "", {}, "file below the data directory"),
               ChoiceParam("kind", "passages", KindNames(), "which prompt its records are for"),
               ChoiceParam("images", "mmlongbench/mmlb_image", {}, "folder of the pictures"),
               ChoiceParam("answers", "text", {"text", "json"},
                           "json: the answer is one value, not several texts")},
    .open = Open,
    .files = SourceFile,
    .check = CheckSourceFile,
});

}  // namespace
}  // namespace kvgauge::mmlongbench
