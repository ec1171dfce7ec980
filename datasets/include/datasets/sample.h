// SPDX-License-Identifier: Apache-2.0
// A sample: one context, one or several questions about it, and the answers that count as right.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"

namespace kvgauge {

// kSystem: the system text; kContext: the long text, or all of Sample::context where the source
// tells no more; kNeedle: what has to be found in it; kQuestion: a question's text, kTurn: that of
// one turn of a conversation. Text that a chat template adds is not part of the sample.
enum class MarkKind { kSystem, kContext, kNeedle, kQuestion, kTurn };

// A byte range of Sample::system (kSystem), Sample::context (kContext, kNeedle) or of one
// question's text.
struct Mark {
  MarkKind kind;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t question = -1;  // kQuestion, kTurn: of which
  int64_t picture = -1;   // kNeedle: the picture of the sample that it is, instead of bytes
};

// A picture of a sample. The texts hold no sign of it: it stands before byte `at` of its text, and
// behind the pictures of the same place that come before it.
struct Picture {
  std::string name = {};  // in messages: a file, or where the picture stands in one
  std::string hash = {};  // SHA-256 of what `load` gives
  int64_t question = -1;  // in that question's text; -1: in the context
  int64_t at = 0;
  int64_t frame = -1;  // of a video, as its source counts them; -1: a picture of its own
  // The bytes of an image file (PNG, JPEG, WebP, GIF, PPM). From any thread, any number of times.
  std::function<Result<std::string>()> load = {};
  // The word that each cell of a drawn picture shows, row by row, "" for background. Empty for
  // pictures that were not drawn.
  std::vector<std::string> words = {};
};

struct Question {
  std::string text = {};           // follows the context directly, or the previous turn's answer
  std::string answer_prefix = {};  // after the chat template's generation prompt; "" for none
  std::vector<std::string> answers = {};  // any of them is right, unless the metric says otherwise
  std::vector<std::string> all_classes = {};  // classification and code tasks: the choices
  std::string kind =
      {};  // where a conversation mixes kinds of questions, this one's; for the metric
  int64_t max_new_tokens = 0;
  // Where this is not empty the answer is reasoning and not scored. It replaces kReasoning in this
  // text, which is a prompt of its own, without the context; the answer to that is scored.
  std::string conclusion = {};
  int64_t conclusion_max_new_tokens = 0;
};
inline constexpr std::string_view kReasoning = "$COT$";

// How several questions of one sample relate.
enum class QuestionMode {
  kSingle,        // one question
  kMultiTurn,     // each follows the answer before it in one conversation
  kMultiRequest,  // each is asked of the same context on its own
};

struct Sample {
  std::string id;       // stable: the same sample has it in every run
  std::string hash;     // SHA-256 over what can move a score: context, questions, mode,
                        // chat_template, language, system, pictures
  std::string group;    // samples of one context share it; statistics cluster by it
  std::string system;   // the task's; in the template's place for it, else before the context
  std::string context;  // everything before the first question, instructions included
  std::vector<Picture> pictures = {};  // the context's in its order, then each question's
  std::vector<Question> questions;
  QuestionMode mode = QuestionMode::kSingle;
  bool chat_template = true;  // LongBench's few-shot and code tasks go without
  std::string language = "en";
  std::vector<Mark> marks;  // those of questions behind those of the context, the system's last
  int64_t length = 0;  // as the data set states it (words, characters), or tokens when generated
  std::vector<std::pair<std::string, std::string>> facts;  // e.g. {"depth", "55"}, in this order
};

// The context (question -1) or a question's text as people read it: "[picture 3]" stands where the
// sample's third picture does.
std::string WithPictureNames(const Sample& sample, int64_t question = -1);

// Fills `hash` from the fields that it is over, and the marks that follow from them.
void FinishSample(Sample& sample);

// Whether an answer to the sample leads to another prompt.
bool HasConclusion(const Sample& sample);
// That prompt of one question, as a sample of its own with one question.
Sample ConclusionOf(const Sample& sample, const Question& question, const std::string& reasoning);

}  // namespace kvgauge
