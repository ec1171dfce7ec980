// SPDX-License-Identifier: Apache-2.0
#include "loaders/picture_layout.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "core/strings.h"

namespace kvgauge {
namespace {

using Field = PromptTemplate::Field;

constexpr std::array<std::string_view, 7> kAnswerKinds = {"text",   "literal", "json",  "letter",
                                                          "index0", "index1",  "option"};

ParamSpec FreeText(std::string name, std::string help, std::string given = "") {
  return ChoiceParam(std::move(name), std::move(given), {}, std::move(help));
}

std::vector<std::string> NamesIn(const std::string& text) {
  std::vector<std::string> parts;
  for (const std::string& part : Split(text, ',')) {
    if (!Trim(part).empty()) parts.emplace_back(Trim(part));
  }
  return parts;
}

Result<Field> ParseFieldName(const std::string& text, std::string_view owner) {
  Result<PromptTemplate> parsed = PromptTemplate::Parse("{" + text + "}", owner);
  if (!parsed.ok()) return parsed.error();
  return parsed->fields()[0];
}

Status ReadTemplates(const Params& params, PictureLayout& layout) {
  for (const auto& [name, made] : {std::pair{"context", &layout.context},
                                   {"question", &layout.question},
                                   {"answer_prefix", &layout.prefix},
                                   {"image_file", &layout.image_file},
                                   {"video", &layout.video},
                                   {"subtitles", &layout.subtitles},
                                   {"option_entry", &layout.option_entry},
                                   {"options_form", &layout.options_form},
                                   {"no_options_form", &layout.no_options_form},
                                   {"optional_form", &layout.optional_form}}) {
    KVG_ASSIGN(*made, PromptTemplate::Parse(params.Text(name), StrCat(".", name)));
  }
  for (const auto& [name, field] : {std::pair{"answers", &layout.answers},
                                    {"more_answers", &layout.more_answers},
                                    {"id", &layout.id},
                                    {"length", &layout.length},
                                    {"kind", &layout.kind},
                                    {"group", &layout.group},
                                    {"depth", &layout.depth},
                                    {"video_begin", &layout.video_begin},
                                    {"video_end", &layout.video_end},
                                    {"video_fps", &layout.video_fps},
                                    {"video_duration", &layout.video_duration},
                                    {"subtitle_offset", &layout.subtitle_offset}}) {
    if (params.Text(name).empty()) continue;
    KVG_ASSIGN(*field, ParseFieldName(params.Text(name), StrCat(".", name)));
  }
  return {};
}

Status ReadMark(const std::string& mark, PictureLayout& layout) {
  if (mark.empty()) return {};
  constexpr std::string_view kNumber = "{n}";
  const size_t at = mark.find(kNumber);
  layout.marked = true;
  layout.numbered = at != std::string::npos;
  layout.mark_before = mark.substr(0, at);
  if (layout.numbered) layout.mark_behind = mark.substr(at + kNumber.size());
  if (layout.mark_before.empty() || (layout.numbered && layout.mark_behind.empty())) {
    return BadInput(StrCat(".mark: ", Quoted(mark),
                           ", expected a text such as <image>, or <image {n}> with a number"));
  }
  return {};
}

Status ReadBins(const std::string& text, std::vector<int64_t>& bins) {
  for (const std::string& part : NamesIn(text)) {
    int64_t bin = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), bin);
    if (read.ec != std::errc() || read.ptr != part.data() + part.size() ||
        (!bins.empty() && bins.back() >= bin)) {
      return BadInput(StrCat(".length_bins: ", Quoted(part), ", expected ascending whole numbers"));
    }
    bins.push_back(bin);
  }
  return {};
}

Status CheckSubtitles(const PictureLayout& layout) {
  const bool interleaved = layout.subtitle_rule == SubtitleRule::kInterleaved;
  if (!layout.has_subtitles) {
    return interleaved ? BadInput(".subtitle_rule: interleaved needs .subtitles") : Status();
  }
  if (!layout.has_video) return BadInput(".subtitles: needs .video");
  if (!interleaved) return {};
  if (!layout.video_duration) {
    return BadInput(".video_duration: missing; interleaved subtitles need the video's seconds");
  }
  return {};
}

}  // namespace

std::vector<ParamSpec> PictureLayoutParams() {
  std::vector<std::string> kinds(kAnswerKinds.begin(), kAnswerKinds.end());
  std::vector<std::string> rules = ShownFramesNames();
  return {
      FreeText("context", "template of what stands before the question", "{images}"),
      FreeText("question", "template of the question"),
      FreeText("answer_prefix", "template of what the answer begins with"),
      FreeText("images", "fields with a picture or an array of them, comma-separated"),
      ChoiceParam("image_kind", "file", {"file", "base64"},
                  "what a text there is; bytes of Parquet rows are pictures either way"),
      FreeText("image_file", "template of a picture's file below the data directory", "{image}"),
      FreeText("index", "column whose value a short cell names to share a row's picture"),
      FreeText("mark", "what stands for a picture in texts: <image>, or numbered: <image {n}>"),
      BoolParam("keep_marks", false,
                "marks stay before their pictures, those outside of options behind a line break"),
      BoolParam("strip_pieces", false, "texts between pictures lose white space at their ends"),
      BoolParam("skip_without", false, "records without a picture are passed by"),
      FreeText("video", "template of the folder with the frames, below the data directory"),
      ChoiceParam("frame_rule", "linspace", std::move(rules), "which frames are shown"),
      IntParam("frame_count", 8, 1, 4096, "how many; not of the rule rate"),
      RealParam("frame_rate", 1, 0.001, 1000, "frames a second, of the rule rate"),
      IntParam("frame_first", 0, 0, 1, "number of the first frame, of the rule centre"),
      FreeText("video_begin", "field with the second where the frames begin, of the rule centre"),
      FreeText("video_end", "field with the second where they end"),
      FreeText("video_fps", "field with the video's frames a second; else its frames.json says so"),
      FreeText("video_duration", "field with the video's seconds, of the rule whole_seconds"),
      FreeText("subtitles", "template of the file with the video's subtitles"),
      ChoiceParam("subtitle_rule", "first_at_frame", SubtitleRuleNames(),
                  "which are shown: as {subtitles}, or interleaved: among the frames of {video}"),
      FreeText("no_subtitles", "what {subtitles} is where there is no such file"),
      ChoiceParam("subtitle_times", "frames", {"frames", "duration"},
                  "interleaved: when frames are shown, by their numbers or as shares of the video"),
      FreeText("subtitle_end", "interleaved: what stands behind each"),
      FreeText("subtitle_between", "interleaved: what stands between frames and subtitles"),
      FreeText("subtitle_offset", "interleaved: field with the file's second at which it begins"),
      FreeText("options", "A-Z: the columns of that name; or fields, or one with an array"),
      FreeText("no_option", "text of an option that is none"),
      FreeText("picture_options",
               "field of them whose entries are pictures; the mark is their text"),
      FreeText("option_entry", "template of {letter}, {option} and {number}", "{letter}. {option}"),
      FreeText("option_between", "what stands between two options", "\n"),
      FreeText("options_form", "template of {options}, where there are some", "{options}"),
      FreeText("no_options_form", "template in its stead, where there are none"),
      FreeText("optional", "fields that may be missing, comma-separated; then they are empty"),
      FreeText("optional_form", "template of {value}, where one is there", "{value}"),
      FreeText("python_literals", "fields that hold Python literals, comma-separated"),
      FreeText("flatten", "fields with an object or a literal list; entries become NAME_ENTRY"),
      FreeText("drop", "a text that is taken out of every field"),
      FreeText("answers", "field with the answer"),
      FreeText("more_answers", "field with another one that is right, too; it may be missing"),
      ChoiceParam("answer_kind", "text", std::move(kinds),
                  "text; literal: a Python list; json; or the right option by letter, index, text"),
      FreeText("answer_field", "field of each answer's text, where answers are objects"),
      FreeText("id", "field with the record's id; its number when empty"),
      FreeText("group", "field that samples of one context share; else their pictures say so"),
      IntParam("group_modulo", 0, 0, 1'000'000'000, "above 0: the group is that field modulo it"),
      FreeText("kind", "field with the question's kind, for the metric"),
      FreeText("length", "field with the length that the set states"),
      FreeText("length_bins", "ascending lengths; the fact length_bin is the last one reached"),
      FreeText("depth",
               "field with a share, or several, of the length; the fact depth is its fifth"),
      FreeText("facts", "fields kept for grouping scores, comma-separated; they may be missing"),
      BoolParam("chat_template", true, "whether the prompt goes through the chat template"),
      FreeText("language", "of the questions", "en"),
  };
}

Result<PictureLayout> ReadPictureLayout(const Params& params) {
  PictureLayout layout;
  KVG_TRY(ReadTemplates(params, layout));
  KVG_TRY(ReadMark(params.Text("mark"), layout));
  KVG_TRY(ReadBins(params.Text("length_bins"), layout.length_bins));
  layout.images = NamesIn(params.Text("images"));
  layout.base64 = params.Text("image_kind") == "base64";
  layout.index = params.Text("index");
  layout.keep_marks = params.Bool("keep_marks");
  layout.strip_pieces = params.Bool("strip_pieces");
  layout.skip_without = params.Bool("skip_without");
  layout.has_video = !params.Text("video").empty();
  layout.frames.rule = ShownFramesFromName(params.Text("frame_rule"));
  layout.frames.count = params.Int("frame_count");
  layout.frames.rate = params.Real("frame_rate");
  layout.frames.first_number = params.Int("frame_first");
  layout.has_subtitles = !params.Text("subtitles").empty();
  layout.subtitle_rule = SubtitleRuleFromName(params.Text("subtitle_rule"));
  layout.no_subtitles = params.Text("no_subtitles");
  layout.times_of_duration = params.Text("subtitle_times") == "duration";
  layout.subtitle_end = params.Text("subtitle_end");
  layout.subtitle_between = params.Text("subtitle_between");
  layout.lettered = params.Text("options") == "A-Z";
  if (!layout.lettered) layout.options = NamesIn(params.Text("options"));
  layout.no_option = params.Text("no_option");
  layout.picture_options = params.Text("picture_options");
  layout.option_between = params.Text("option_between");
  layout.optional = NamesIn(params.Text("optional"));
  layout.literals = NamesIn(params.Text("python_literals"));
  layout.facts = NamesIn(params.Text("facts"));
  layout.flattened = NamesIn(params.Text("flatten"));
  layout.drop = params.Text("drop");
  layout.answer_field = params.Text("answer_field");
  const auto kind = std::find(kAnswerKinds.begin(), kAnswerKinds.end(), params.Text("answer_kind"));
  layout.answer_kind = static_cast<AnswerKind>(kind - kAnswerKinds.begin());
  layout.group_modulo = params.Int("group_modulo");
  layout.chat_template = params.Bool("chat_template");
  layout.language = params.Text("language");
  return layout;
}

Status CheckPictureLayout(const Params& params) {
  KVG_ASSIGN(const PictureLayout layout, ReadPictureLayout(params));
  if (!layout.answers) return BadInput(".answers: missing; expected the field with the answers");
  if (layout.more_answers && params.Text("answer_kind") != "text") {
    return BadInput(StrCat(".more_answers: other answers are texts, and .answer_kind is ",
                           params.Text("answer_kind"), "; use text"));
  }
  if (layout.images.empty() && !layout.has_video) {
    return BadInput(".images: missing, and so is .video; this source shows pictures");
  }
  if (layout.images.empty() && layout.marked) return BadInput(".mark: needs .images");
  if (layout.keep_marks && (!layout.marked || layout.numbered)) {
    return BadInput(".keep_marks: needs .mark, one without a number");
  }
  if (!layout.picture_options.empty() && !layout.marked) {
    return BadInput(".picture_options: needs .mark, which stands for a picture");
  }
  const bool choice = layout.answer_kind >= AnswerKind::kLetter;
  const bool options = layout.lettered || !layout.options.empty();
  if (choice && !options) return BadInput(".answer_kind: an option needs .options");
  if (layout.video_begin.has_value() != layout.video_end.has_value()) {
    return BadInput(".video_begin: and .video_end need each other");
  }
  if (layout.video_begin && layout.frames.rule != ShownFrames::kCentre) {
    return BadInput(".video_begin: needs .frame_rule centre");
  }
  if (layout.video_duration && layout.frames.rule != ShownFrames::kWholeSeconds &&
      layout.subtitle_rule != SubtitleRule::kInterleaved) {
    return BadInput(
        ".video_duration: needs .frame_rule whole_seconds or .subtitle_rule interleaved");
  }
  KVG_TRY(CheckSubtitles(layout));
  if (layout.group_modulo > 0 && !layout.group) {
    return BadInput(".group_modulo: needs .group, the field with the number");
  }
  if (!layout.length_bins.empty() && !layout.length) {
    return BadInput(".length_bins: needs .length");
  }
  for (const auto& [name, form, known] :
       {std::tuple{"option_entry", &layout.option_entry, std::vector{"letter", "option", "number"}},
        {"options_form", &layout.options_form, std::vector{"options"}},
        {"optional_form", &layout.optional_form, std::vector{"value"}}}) {
    for (const Field& field : form->fields()) {
      if (std::find(known.begin(), known.end(), field.name) == known.end()) {
        return BadInput(StrCat(".", name, ": ", Quoted(field.name), " is not known here; write {",
                               known[0], "}"));
      }
    }
  }
  return {};
}

}  // namespace kvgauge
