// SPDX-License-Identifier: Apache-2.0
// A record with pictures as a sample: its texts through the templates, its pictures where they
// stand in them.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "core/files.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "loaders/picture_layout.h"
#include "src/python_literal.h"
#include "src/python_text.h"

namespace kvgauge {
namespace {

using Field = PromptTemplate::Field;

// Around a picture's number in a text that is being made; bytes that no UTF-8 holds.
constexpr char kSlotBegin = '\xff', kSlotEnd = '\xfe';

std::string Slot(size_t picture) { return StrCat(kSlotBegin, picture, kSlotEnd); }

std::optional<int64_t> WholeNumberOf(const Json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_string()) return std::nullopt;
  const std::string text = value.get<std::string>();
  int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<double> RealNumberOf(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const std::string text = value.get<std::string>();
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

// A to Z, then AA, AB, ...: as MileBench names more than 26 options.
std::string OptionKey(size_t option) {
  const std::string letter(1, static_cast<char>('A' + option % 26));
  return option < 26 ? letter : std::string(1, static_cast<char>('A' + option / 26 - 1)) + letter;
}

class PictureBuilder {
 public:
  PictureBuilder(const PictureLayout& layout, const PictureContext& context, Record record)
      : layout_(layout), context_(context), record_(std::move(record)), fields_(record_) {}

  Result<std::optional<Sample>> Build() {
    KVG_TRY(Prepare());
    KVG_TRY(FindPictures());
    if (pictures_.empty()) {
      const auto there = [&](const std::string& name) { return record_.value.contains(name); };
      const bool named = layout_.images.empty() || std::ranges::any_of(layout_.images, there);
      if (!named && (context_.table || !layout_.skip_without)) {
        KVG_ASSIGN([[maybe_unused]] const Json* const value, fields_.Get(layout_.images[0]));
      }
      if (layout_.skip_without) return std::optional<Sample>();
      return fields_.Wrong(layout_.images.empty() ? "video" : layout_.images[0],
                           "holds no picture");
    }
    KVG_TRY(FindOptions());
    Sample sample;
    sample.chat_template = layout_.chat_template;
    sample.language = layout_.language;
    sample.id = StrCat("record-", record_.number);
    if (layout_.id) {
      KVG_ASSIGN(sample.id, Text(*layout_.id));
    }
    if (layout_.marked && !layout_.numbered) next_mark_ = 0;
    Question question;
    question.max_new_tokens = context_.max_new_tokens;
    // Marks come first: pictures that have one do not stand where {images} does.
    KVG_TRY(NoteMarks());
    KVG_ASSIGN(const std::string before, Fill(layout_.context));
    KVG_ASSIGN(const std::string asked, Fill(layout_.question));
    KVG_ASSIGN(question.answer_prefix, Fill(layout_.prefix));
    KVG_TRY(CheckMarks());
    sample.context = Place(before, -1, sample.pictures);
    question.text = Place(asked, 0, sample.pictures);
    if (sample.pictures.empty()) {
      return fields_.Wrong(layout_.images.empty() ? "video" : layout_.images[0],
                           "holds pictures of which the record's texts show none");
    }
    KVG_TRY(AddAnswers(question));
    if (layout_.kind) {
      KVG_ASSIGN(question.kind, Text(*layout_.kind));
    }
    sample.questions.push_back(std::move(question));
    KVG_TRY(AddFacts(sample));
    return std::optional(std::move(sample));
  }

 private:
  // Literals are read, then objects laid flat, and arrays that literals are.
  Status Prepare() {
    for (const std::string& name : layout_.literals) {
      if (!fields_.Has(name)) continue;
      KVG_ASSIGN(const std::string text, fields_.Text(name));
      Result<Json> value = ParsePythonLiteral(text);
      if (!value.ok()) return fields_.Wrong(name, StrCat("is ", value.error().message));
      record_.value[name] = *std::move(value);
    }
    for (const std::string& name : layout_.flattened) {
      KVG_ASSIGN(const Json* value, fields_.Get(name));
      const Json whole = *value;
      if (whole.is_array() && Names(layout_.literals, name)) {
        for (size_t i = 0; i < whole.size(); ++i) record_.value[StrCat(name, "_", i)] = whole[i];
        continue;
      }
      if (!whole.is_object()) {
        return fields_.Wrong(name, StrCat("is ", KindOf(whole), ", expected an object"));
      }
      for (const auto& [entry, held] : whole.items()) {
        record_.value[StrCat(name, "_", entry)] = held;
      }
    }
    return {};
  }
  static bool Names(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  Result<std::string> Text(const Field& field) const {
    KVG_ASSIGN(const Json* value, fields_.Get(field.name));
    if (field.index >= 0) {
      if (!value->is_array() || static_cast<size_t>(field.index) >= value->size()) {
        return fields_.Wrong(field.name, StrCat("has no entry ", field.index));
      }
      value = &(*value)[static_cast<size_t>(field.index)];
    }
    std::optional<std::string> text = PythonScalar(*value);
    if (!text) {
      return fields_.Wrong(field.name,
                           StrCat("is ", KindOf(*value), ", expected a text or a number"));
    }
    text = Ruled(field, *std::move(text));
    return layout_.drop.empty() ? *std::move(text) : ReplaceAll(*text, layout_.drop, "");
  }
  // By the rule behind a field's name, where there is one.
  static std::string Ruled(const Field& field, std::string text) {
    if (field.rule.empty()) return text;
    PostProcessing post;
    post.extract = field.rule;
    return PostProcess(post, text);
  }

  // Pictures.
  Status AddPicture(const std::string& name, Result<Picture> picture) {
    if (!picture.ok()) {
      return picture.error().code == ErrorCode::kBadInput
                 ? fields_.Wrong(name, picture.error().message)
                 : picture.error();
    }
    pictures_.push_back(*std::move(picture));
    return {};
  }
  std::string PlaceName(const std::string& name) const {
    return StrCat(record_.where, record_.row ? ": column " : ": field ", Quoted(name));
  }

  Result<std::string> FileName(const std::string& image) const {
    const auto lookup = [&](const Field& field) -> Result<std::string> {
      return field.name == "image" ? Result<std::string>(image) : Text(field);
    };
    KVG_ASSIGN(PromptTemplate::Filled filled, layout_.image_file.Fill(lookup, ""));
    return std::move(filled.text);
  }

  Status AddValue(const std::string& name, const Json& value) {
    if (value.is_null()) return {};
    if (const std::optional<CellPlace> place = CellPlaceOf(value)) return AddCell(name, *place);
    if (value.is_array()) {
      for (const Json& entry : value) KVG_TRY(AddValue(name, entry));
      return {};
    }
    if (value.is_binary()) {
      const Json::binary_t& bytes = value.get_binary();
      return AddPicture(name, PictureOfBytes({bytes.begin(), bytes.end()}, PlaceName(name)));
    }
    // Parquet's pictures: {"bytes", "path"}, of which one can be null.
    if (value.is_object() && value.contains("bytes")) {
      const Json& bytes = value["bytes"];
      if (!bytes.is_null() || !value.contains("path")) return AddValue(name, bytes);
      return AddValue(name, value["path"]);
    }
    if (!value.is_string() || value.get<std::string>().empty()) {
      if (const std::optional<std::string> text = PythonScalar(value); text && !text->empty()) {
        KVG_ASSIGN(const std::string file, FileName(*text));
        return AddPicture(name, PictureOfFile(context_.data_directory, file));
      }
      if (value.is_string()) return {};
      return fields_.Wrong(name, StrCat("is ", KindOf(value), ", expected a picture"));
    }
    const std::string text = value.get<std::string>();
    if (!layout_.base64) {
      KVG_ASSIGN(const std::string file, FileName(text));
      return AddPicture(name, PictureOfFile(context_.data_directory, file));
    }
    if (!context_.find) {
      return fields_.Wrong(name, StrCat("is ", Quoted(text), ", too short for a picture"));
    }
    KVG_ASSIGN(const std::optional<CellPlace> place, context_.find(text));
    if (!place) {
      return fields_.Wrong(
          name, StrCat("is ", Quoted(text), ", neither a picture nor the index of a row with one"));
    }
    return AddCell(name, *place);
  }

  Status AddCell(const std::string& name, const CellPlace& place) {
    Result<std::vector<Picture>> pictures = PicturesOfCell(context_.path, place, PlaceName(name));
    if (!pictures.ok()) return AddPicture(name, pictures.error());
    for (Picture& picture : *pictures) pictures_.push_back(std::move(picture));
    return {};
  }

  Status FindPictures() {
    for (const std::string& name : layout_.images) {
      if (!fields_.Has(name)) continue;
      KVG_TRY(AddValue(name, record_.value.at(name)));
    }
    first_frame_ = pictures_.size();
    return layout_.has_video ? FindFrames() : Status();
  }

  Status FindFrames() {
    const auto lookup = [&](const Field& field) { return Text(field); };
    KVG_ASSIGN(const PromptTemplate::Filled folder, layout_.video.Fill(lookup, ""));
    const auto& fields = layout_.video.fields();
    const std::string column = fields.empty() ? "video" : fields[0].name;
    const Result<std::string> path = PathBelow(context_.data_directory, folder.text);
    if (!path.ok()) return fields_.Wrong(column, path.error().message);
    const Result<VideoFolder> video = ReadVideoFolder(*path);
    if (!video.ok()) return AddPicture(column, video.error());
    const auto wrong = [&](const Error& error) {
      return fields_.Wrong(column, StrCat("names ", Quoted(*path, 200), ", which ", error.message));
    };
    FrameChoice choice = layout_.frames;
    choice.fps = video->fps;
    if (layout_.video_fps) {
      KVG_ASSIGN(choice.fps, Seconds(*layout_.video_fps));
    }
    if (layout_.video_duration) {
      KVG_ASSIGN(choice.duration_s, Seconds(*layout_.video_duration));
    }
    if (layout_.video_begin) {
      KVG_ASSIGN(choice.begin_s, Seconds(*layout_.video_begin));
      KVG_ASSIGN(choice.end_s, Seconds(*layout_.video_end));
    }
    const Result<std::vector<int64_t>> chosen = ChooseFrames(choice, video->total);
    if (!chosen.ok()) return wrong(chosen.error());
    for (const int64_t frame : *chosen) {
      const Result<std::string> name = FileOfFrame(*video, frame);
      if (!name.ok()) return wrong(name.error());
      const std::string file = StrCat(folder.text, "/", *name);
      KVG_TRY(AddPicture(column, PictureOfFile(context_.data_directory, file)));
      pictures_.back().frame = frame;
    }
    return layout_.has_subtitles ? FindSubtitles(*chosen, choice) : Status();
  }

  // Subtitles.
  Status FindSubtitles(const std::vector<int64_t>& frames, const FrameChoice& video) {
    const auto lookup = [&](const Field& field) { return Text(field); };
    KVG_ASSIGN(const PromptTemplate::Filled file, layout_.subtitles.Fill(lookup, ""));
    const auto& fields = layout_.subtitles.fields();
    const std::string column = fields.empty() ? "subtitles" : fields[0].name;
    const Result<std::string> path = PathBelow(context_.data_directory, file.text);
    if (!path.ok()) return fields_.Wrong(column, path.error().message);
    const auto wrong = [&](std::string_view what) {
      return fields_.Wrong(column, StrCat("names ", Quoted(*path, 200), ", ", what));
    };
    const bool interleaved = layout_.subtitle_rule == SubtitleRule::kInterleaved;
    if (!FileExists(*path)) {
      if (interleaved) return wrong("which is no file");
      subtitles_ = layout_.no_subtitles;
      return {};
    }
    if (video.fps <= 0 && !layout_.times_of_duration) {
      return wrong("but its video has no frames.json, which says the frames a second");
    }
    const Result<std::string> text = ReadFile(*path, kMaxSubtitleBytes);
    if (!text.ok()) return wrong(StrCat("which cannot be read: ", text.error().message));
    if (interleaved) return Interleave(frames, video, *text, wrong);
    Result<std::string> shown = layout_.subtitle_rule == SubtitleRule::kAnyAtFrame
                                    ? SubtitlesAtAnyFrame(*text, frames, video.fps)
                                    : FirstSubtitleAtFrames(*text, frames, video.fps);
    if (!shown.ok()) return wrong(StrCat("which is wrong: ", shown.error().message));
    subtitles_ = *std::move(shown);
    return {};
  }

  template <class Wrong>
  Status Interleave(const std::vector<int64_t>& frames, const FrameChoice& video,
                    const std::string& json, const Wrong& wrong) {
    Interleaving how{.frames_s = {}, .offset_s = 0, .duration_s = video.duration_s};
    if (layout_.subtitle_offset) {
      KVG_ASSIGN(how.offset_s, Seconds(*layout_.subtitle_offset));
    }
    const auto most = static_cast<double>(layout_.frames.count);
    for (size_t i = 0; i < frames.size(); ++i) {
      const auto at = static_cast<double>(i);
      const bool spread = layout_.times_of_duration;
      const double apart = video.duration_s > most ? video.duration_s / most : 1;
      how.frames_s.push_back(spread ? apart * at : static_cast<double>(frames[i]) / video.fps);
    }
    const Result<std::vector<FrameOrSubtitle>> parts = InterleavedSubtitles(json, how);
    if (!parts.ok()) return wrong(StrCat("which is wrong: ", parts.error().message));
    for (const FrameOrSubtitle& part : *parts) {
      if (&part != parts->data()) interleaved_ += layout_.subtitle_between;
      interleaved_ += part.frame < 0 ? part.text + layout_.subtitle_end
                                     : Slot(first_frame_ + static_cast<size_t>(part.frame));
    }
    return {};
  }

  Result<double> Seconds(const Field& field) const {
    KVG_ASSIGN(const Json* value, fields_.Get(field.name));
    const std::optional<double> seconds = RealNumberOf(*value);
    if (seconds && *seconds >= 0) return *seconds;
    return fields_.Wrong(field.name, "is no number of seconds");
  }

  // Options.
  Status AddOption(const std::string& name, const Json& value) {
    std::optional<std::string> text = PythonScalar(value);
    if (!text) {
      return fields_.Wrong(name, StrCat("holds ", KindOf(value), ", expected options"));
    }
    if (!layout_.no_option.empty() && *text == layout_.no_option) return {};
    if (!name.empty() && name == layout_.picture_options) text = layout_.mark_before;
    if (!layout_.drop.empty()) text = ReplaceAll(*text, layout_.drop, "");
    options_.push_back(*std::move(text));
    return {};
  }
  Status FindOptions() {
    if (layout_.lettered) {
      for (char letter = 'A'; letter <= 'Z'; ++letter) {
        const std::string name(1, letter);
        if (!fields_.Has(name)) continue;
        // An option's letter is its column's: those between that are missing stay empty.
        options_.resize(static_cast<size_t>(letter - 'A'));
        KVG_TRY(AddOption(name, record_.value[name]));
      }
      return {};
    }
    for (const std::string& name : layout_.options) {
      if (!fields_.Has(name)) {
        if (layout_.options.size() > 1) continue;
        if (record_.value.contains(name)) return {};
        KVG_TRY(fields_.Get(name));
      }
      const Json& value = record_.value[name];
      if (!value.is_array()) {
        KVG_TRY(AddOption(name, value));
        continue;
      }
      for (const Json& entry : value) KVG_TRY(AddOption(name, entry));
    }
    return {};
  }

  Result<std::string> OptionsText() {
    std::string all;
    bool any = false;
    for (size_t i = 0; i < options_.size(); ++i) {
      if (layout_.lettered && options_[i].empty()) continue;
      const auto lookup = [&](const Field& field) -> Result<std::string> {
        if (field.name == "letter") return Ruled(field, OptionKey(i));
        if (field.name == "number") return Ruled(field, StrCat(i + 1));
        return Ruled(field, options_[i]);
      };
      KVG_ASSIGN(const PromptTemplate::Filled entry, layout_.option_entry.Fill(lookup, ""));
      all += any ? layout_.option_between : "";
      all += entry.text;
      any = true;
    }
    const auto lookup = [&](const Field& field) -> Result<std::string> {
      return Ruled(field, all);
    };
    const PromptTemplate& form = any ? layout_.options_form : layout_.no_options_form;
    KVG_ASSIGN(PromptTemplate::Filled filled, form.Fill(lookup, ""));
    return std::move(filled.text);
  }

  // Texts.
  Result<std::string> Value(const Field& field) {
    if (field.name == "images") return Unmarked(0, first_frame_);
    if (field.name == "video") {
      return interleaved_.empty() ? Unmarked(first_frame_, pictures_.size()) : interleaved_;
    }
    if (field.name == "subtitles" && layout_.has_subtitles) return subtitles_;
    if (field.name == "options" && field.index < 0) {
      KVG_ASSIGN(const std::string text, OptionsText());
      return WithSlots(Ruled(field, text), "");
    }
    if (Names(layout_.optional, field.name)) {
      if (!fields_.Has(field.name) || record_.value[field.name] == "") return std::string();
      KVG_ASSIGN(const std::string text, Text(field));
      const auto lookup = [&](const Field& inner) -> Result<std::string> {
        return Ruled(inner, text);
      };
      KVG_ASSIGN(const PromptTemplate::Filled filled, layout_.optional_form.Fill(lookup, ""));
      return WithSlots(filled.text);
    }
    KVG_ASSIGN(const std::string text, Text(field));
    return WithSlots(text);
  }
  Result<std::string> Fill(const PromptTemplate& form) {
    const auto lookup = [&](const Field& field) { return Value(field); };
    KVG_ASSIGN(PromptTemplate::Filled filled, form.Fill(lookup, ""));
    return std::move(filled.text);
  }

  std::string Unmarked(size_t from, size_t to) const {
    std::string all;
    for (size_t i = from; i < to && !any_mark_; ++i) all += Slot(i);
    return all;
  }

  // The picture that a mark at `at` stands for, and the mark's bytes; nothing: there is no mark.
  struct Found {
    size_t picture = 0, bytes = 0;
  };
  std::optional<Found> MarkAt(const std::string& text, size_t at) const {
    const std::string_view rest = std::string_view(text).substr(at);
    if (!rest.starts_with(layout_.mark_before)) return std::nullopt;
    if (!layout_.numbered) return Found{next_mark_, layout_.mark_before.size()};
    size_t end = layout_.mark_before.size(), number = 0;
    const auto read = std::from_chars(rest.data() + end, rest.data() + rest.size(), number);
    if (read.ec != std::errc()) return std::nullopt;
    end = static_cast<size_t>(read.ptr - rest.data());
    if (!rest.substr(end).starts_with(layout_.mark_behind) || number == 0) return std::nullopt;
    return Found{number - 1, end + layout_.mark_behind.size()};
  }
  // Where marks are kept, each stands behind `before`.
  std::string WithSlots(const std::string& text, std::string_view before = "\n") {
    if (!layout_.marked) return text;
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const std::optional<Found> found = MarkAt(text, at);
      if (!found) {
        out += text[at++];
        continue;
      }
      if (!layout_.numbered) ++next_mark_;
      most_marked_ = std::max(most_marked_, found->picture + 1);
      if (layout_.keep_marks) out.append(before).append(layout_.mark_before);
      out += Slot(found->picture);
      at += found->bytes;
    }
    return out;
  }
  // Whether any text of the prompt holds a mark.
  Status NoteMarks() {
    if (!layout_.marked) return {};
    for (const PromptTemplate* form : {&layout_.context, &layout_.question}) {
      KVG_TRY(Fill(*form));
    }
    any_mark_ = most_marked_ > 0;
    next_mark_ = 0;
    return {};
  }
  Status CheckMarks() const {
    if (most_marked_ > first_frame_ ||
        (any_mark_ && !layout_.numbered && most_marked_ != first_frame_)) {
      return fields_.Wrong(
          layout_.images[0],
          StrCat("holds ", first_frame_, first_frame_ == 1 ? " picture" : " pictures",
                 ", but the texts have marks for ", most_marked_));
    }
    return {};
  }

  // Takes the slots out of a text; their pictures join `all`.
  std::string Place(const std::string& text, int64_t question, std::vector<Picture>& all) const {
    std::string out, piece;
    const auto flush = [&] {
      out += layout_.strip_pieces ? std::string(PythonStrip(piece)) : piece;
      piece.clear();
    };
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != kSlotBegin) {
        piece += text[i];
        continue;
      }
      flush();
      size_t picture = 0;
      const auto read = std::from_chars(text.data() + i + 1, text.data() + text.size(), picture);
      i = static_cast<size_t>(read.ptr - text.data());
      all.push_back(pictures_[picture]);
      all.back().question = question;
      all.back().at = std::ssize(out);
    }
    flush();
    return out;
  }

  // Answers.
  Status AddAnswers(Question& question) const {
    const std::string& name = layout_.answers->name;
    KVG_ASSIGN(const Json* value, fields_.Get(name));
    question.all_classes = options_;
    if (layout_.answer_kind >= AnswerKind::kLetter && !options_.empty()) {
      KVG_ASSIGN(const size_t right, RightOption(*value));
      question.answers = {OptionKey(right)};
      return {};
    }
    Json answers = *value;
    if (layout_.answer_kind == AnswerKind::kLiteral && value->is_string()) {
      const Result<Json> literal = ParsePythonLiteral(value->get<std::string>());
      if (literal.ok() && literal->is_array()) answers = *literal;
    }
    if (layout_.answer_kind == AnswerKind::kJson) {
      question.answers = {value->is_string() ? value->get<std::string>() : value->dump()};
      return {};
    }
    if (!answers.is_array()) answers = Json::array({answers});
    for (const Json& entry : answers) {
      const bool object = entry.is_object() && entry.contains(layout_.answer_field);
      std::optional<std::string> text = PythonScalar(object ? entry[layout_.answer_field] : entry);
      if (!text) {
        return fields_.Wrong(name, StrCat("holds ", KindOf(entry), ", expected texts or numbers"));
      }
      question.answers.push_back(*std::move(text));
    }
    if (AllBlank(question.answers)) {
      return fields_.Wrong(name, "is empty: no prediction could be right");
    }
    if (!layout_.more_answers || !fields_.Has(layout_.more_answers->name)) return {};
    KVG_ASSIGN(std::string more, fields_.Text(layout_.more_answers->name));
    if (!more.empty()) question.answers.push_back(std::move(more));
    return {};
  }

  Result<size_t> RightOption(const Json& value) const {
    const std::string& name = layout_.answers->name;
    const auto wrong = [&](std::string_view expected) {
      const std::optional<std::string> said = PythonScalar(value);
      return fields_.Wrong(
          name, StrCat("is ", said ? Quoted(*said) : std::string(KindOf(value)), ", expected ",
                       expected, " of one of ", options_.size(), " options"));
    };
    if (layout_.answer_kind == AnswerKind::kLetter) {
      const std::string letter =
          value.is_string() ? std::string(PythonStrip(value.get<std::string>())) : "";
      const auto right = static_cast<size_t>(letter.empty() ? 0 : letter[0] - 'A');
      if (letter.size() != 1 || right >= options_.size()) return wrong("the letter");
      return right;
    }
    if (layout_.answer_kind == AnswerKind::kOption) {
      const std::optional<std::string> text = PythonScalar(value);
      const auto right = std::find(options_.begin(), options_.end(), text.value_or(""));
      if (!text || right == options_.end()) return wrong("the text");
      return static_cast<size_t>(right - options_.begin());
    }
    const std::optional<int64_t> number = WholeNumberOf(value);
    const int64_t right =
        number.value_or(-1) - (layout_.answer_kind == AnswerKind::kIndex1 ? 1 : 0);
    if (right < 0 || right >= std::ssize(options_)) return wrong("the index");
    return static_cast<size_t>(right);
  }

  // Scores are grouped by these facts.
  Status AddFacts(Sample& sample) const {
    Sha256 sha;
    for (const Picture& picture : sample.pictures) {
      sha.Update(picture.hash.data(), picture.hash.size());
    }
    sample.group = "pictures-" + sha.Finish().substr(0, 16);
    if (layout_.group) {
      KVG_ASSIGN(sample.group, Text(*layout_.group));
    }
    if (layout_.group_modulo > 0) {
      const std::optional<int64_t> number = WholeNumberOf(Json(sample.group));
      if (!number || *number < 0) {
        return fields_.Wrong(layout_.group->name, "is no whole number, which a group needs");
      }
      sample.group = StrCat(*number % layout_.group_modulo);
    }
    if (layout_.length) {
      KVG_ASSIGN(const Json* value, fields_.Get(layout_.length->name));
      const std::optional<int64_t> length = WholeNumberOf(*value);
      if (!length || *length < 0) return fields_.Wrong(layout_.length->name, "is no length");
      sample.length = *length;
    }
    if (!layout_.length_bins.empty()) {
      const auto next =
          std::upper_bound(layout_.length_bins.begin(), layout_.length_bins.end(), sample.length);
      sample.facts.emplace_back("length_bin",
                                next == layout_.length_bins.begin() ? "0" : StrCat(*(next - 1)));
    }
    if (layout_.depth) KVG_TRY(AddDepth(sample));
    sample.facts.emplace_back("pictures", StrCat(sample.pictures.size()));
    for (const std::string& fact : layout_.facts) {
      if (!fields_.Has(fact)) continue;
      KVG_ASSIGN(std::string text, Text(Field{fact}));
      sample.facts.emplace_back(fact, std::move(text));
    }
    return {};
  }
  // The fifth of the text where the needle stands; of several their mean.
  Status AddDepth(Sample& sample) const {
    KVG_ASSIGN(const Json* value, fields_.Get(layout_.depth->name));
    const Json all = value->is_array() ? *value : Json::array({*value});
    double sum = 0;
    for (const Json& one : all) {
      const std::optional<double> depth = RealNumberOf(one);
      if (!depth || *depth < 0 || *depth > 1) {
        return fields_.Wrong(layout_.depth->name, "is no share from 0 to 1, or a list of such");
      }
      sum += *depth;
    }
    if (all.empty()) return {};
    double mean = sum / static_cast<double>(all.size());
    if (mean == 1.0) mean = 0.99;
    sample.facts.emplace_back("depth", StrCat(static_cast<int64_t>(mean / 0.2) * 20));
    return {};
  }

  const PictureLayout& layout_;
  const PictureContext& context_;
  Record record_;
  Fields fields_;
  std::vector<Picture> pictures_;
  size_t first_frame_ = 0;
  std::string subtitles_;    // what {subtitles} is
  std::string interleaved_;  // what {video} is where subtitles stand among the frames
  std::vector<std::string> options_;
  size_t next_mark_ = 0, most_marked_ = 0;
  bool any_mark_ = false;
};

}  // namespace

Result<std::optional<Sample>> PictureSample(const PictureLayout& layout,
                                            const PictureContext& context, const Record& given) {
  return PictureBuilder(layout, context, given).Build();
}

}  // namespace kvgauge
