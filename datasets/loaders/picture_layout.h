// SPDX-License-Identifier: Apache-2.0
// What a task file says of records with pictures or a video: the parameters of the source
// "pictures", read. A record becomes a sample by PictureSample.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/params.h"
#include "core/result.h"
#include "src/frame_folder.h"
#include "src/picture_source.h"
#include "src/records.h"
#include "src/subtitles.h"
#include "src/task_prompt.h"

namespace kvgauge {

enum class AnswerKind {
  kText,     // a text, a number, or an array of them
  kLiteral,  // a text that is a Python list of such, or is taken as it is
  kJson,     // any value, written as JSON where it is no text
  kLetter,   // of an option
  kIndex0,   // of an option
  kIndex1,
  kOption,  // the text of an option
};

struct PictureLayout {
  using Field = PromptTemplate::Field;

  PromptTemplate context, question, prefix;
  // Pictures.
  std::vector<std::string> images;       // fields
  bool base64 = false;                   // texts of those fields are base64, not files
  PromptTemplate image_file;             // of {image} and the record's fields
  std::string index;                     // column whose value a short cell of a picture names
  std::string mark_before, mark_behind;  // what stands for a picture in the record's texts
  bool numbered = false;                 // with a picture's number, from 1, between them
  bool marked = false;
  bool keep_marks = false;    // marks stay before their pictures, behind a line break
  bool strip_pieces = false;  // texts between pictures lose their white space at the ends
  bool skip_without = false;  // records without a picture are no samples
  // A video.
  bool has_video = false;
  PromptTemplate video;
  FrameChoice frames;
  std::optional<Field> video_begin, video_end, video_fps, video_duration;
  // Its subtitles.
  bool has_subtitles = false;
  PromptTemplate subtitles;
  SubtitleRule subtitle_rule = SubtitleRule::kFirstAtFrame;
  std::string no_subtitles;        // instead of {subtitles} where there is no such file
  bool times_of_duration = false;  // frames are taken to be shares of the duration apart
  std::string subtitle_end;        // behind each one
  std::string subtitle_between;    // and between frames and them
  std::optional<Field> subtitle_offset;
  // Options.
  std::vector<std::string> options;  // fields, or one with an array
  bool lettered = false;             // the columns A to Z
  std::string no_option;             // a text that stands for none
  std::string picture_options;       // the field whose options are pictures; the mark is their text
  PromptTemplate option_entry, options_form, no_options_form;
  std::string option_between;
  // Texts.
  std::vector<std::string> optional;  // fields that may be missing
  PromptTemplate optional_form;
  std::vector<std::string> literals, flattened;
  std::string drop;  // taken out of every text of the record
  // The rest.
  std::optional<Field> answers, more_answers, id, length, kind, group, depth;
  std::string answer_field;
  AnswerKind answer_kind = AnswerKind::kText;
  int64_t group_modulo = 0;
  std::vector<std::string> facts;  // fields, of any name
  std::vector<int64_t> length_bins;
  bool chat_template = true;
  std::string language = "en";
};

// The parameters that describe a record; those of the file are the caller's.
std::vector<ParamSpec> PictureLayoutParams();
Result<PictureLayout> ReadPictureLayout(const Params& params);
// What the parameters' types cannot say; messages begin with the parameter.
Status CheckPictureLayout(const Params& params);

// Where a picture lies that a short cell names; nothing where no row has that index.
using FindPicture = std::function<Result<std::optional<CellPlace>>(const std::string& index)>;

struct PictureContext {
  std::string path;            // of the data file, where cells lie
  std::string data_directory;  // image files are below it
  int64_t max_new_tokens = 0;
  bool table = false;  // whether every record has all columns, some of them null
  FindPicture find = {};
};

// Nothing where the record is none that has a picture and the layout passes those by.
Result<std::optional<Sample>> PictureSample(const PictureLayout& layout,
                                            const PictureContext& context, const Record& given);

}  // namespace kvgauge
