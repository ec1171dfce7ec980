// SPDX-License-Identifier: Apache-2.0
// Answers beside the full cache's. The page holds the data once, as JSON that its script draws
// from; the first ones are also written out for readers without scripts.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <unordered_map>

#include "core/strings.h"
#include "src/chart/heat_map.h"
#include "src/html/format.h"
#include "src/html/script_json.h"
#include "src/html/visible.h"
#include "src/report/picture_sheet.h"
#include "src/report/sections.h"

namespace kvgauge::report {
namespace {

constexpr int64_t kWrittenOut = 8;

// Worst first: the order in which room is given, and the words that filters show.
enum class Outcome { kBroken, kGained, kWrong, kRight };
constexpr const char* kOutcomes[] = {"full cache better", "method better", "both wrong", "equal"};

Outcome OutcomeOf(const SamplePair& pair) {
  if (pair.score < pair.full_score) return Outcome::kBroken;
  if (pair.score > pair.full_score) return Outcome::kGained;
  return pair.score <= 0 ? Outcome::kWrong : Outcome::kRight;
}

// Up to `limit` pairs: of each row the n-th before any row's n+1-th, broken ones first.
std::vector<const SamplePair*> Choose(const std::vector<SamplePair>& pairs, const PageData& data,
                                      int64_t limit) {
  std::vector<const SamplePair*> chosen;
  std::map<std::pair<size_t, size_t>, std::vector<const SamplePair*>> rows[std::size(kOutcomes)];
  for (const SamplePair& pair : pairs) {
    const auto row = data.row_of_cell.find(pair.cell);
    if (row == data.row_of_cell.end()) continue;
    rows[static_cast<size_t>(OutcomeOf(pair))][row->second].push_back(&pair);
  }
  for (auto& of_outcome : rows) {
    for (auto& entry : of_outcome) {
      // The largest losses first; among equals, spread over the row instead of its first ones,
      // which are the shortest contexts.
      std::vector<const SamplePair*>& of_row = entry.second;
      std::vector<const SamplePair*> spread;
      size_t stride = of_row.size() * 5 / 8 + 1;
      while (std::gcd(stride, of_row.size()) != 1) ++stride;
      for (size_t n = 0; n < of_row.size(); ++n)
        spread.push_back(of_row[n * stride % of_row.size()]);
      std::stable_sort(spread.begin(), spread.end(), [](const SamplePair* a, const SamplePair* b) {
        return std::abs(a->full_score - a->score) > std::abs(b->full_score - b->score);
      });
      of_row = std::move(spread);
    }
    for (size_t n = 0;; ++n) {
      bool any = false;
      for (const auto& entry : of_outcome) {
        if (n >= entry.second.size()) continue;
        any = true;
        if (static_cast<int64_t>(chosen.size()) >= limit) return chosen;
        chosen.push_back(entry.second[n]);
      }
      if (!any) break;
    }
  }
  return chosen;
}

// A text that only leads to the next one: it has neither a right answer nor a score.
bool IsReasoning(const std::vector<AnswerText>& turns, size_t i) {
  return i + 1 < turns.size() && turns[i].references.empty() && !turns[i].score;
}

// What each text of a sample is called beside the others: "Turn 2", "Reasoning"; "" where it is
// alone.
std::vector<std::string> TurnNames(const std::vector<AnswerText>& turns) {
  std::vector<std::string> names;
  int64_t answers = 0, number = 0;
  for (size_t i = 0; i < turns.size(); ++i) answers += IsReasoning(turns, i) ? 0 : 1;
  for (size_t i = 0; i < turns.size(); ++i) {
    if (IsReasoning(turns, i)) {
      names.push_back(answers > 1 ? StrCat("Turn ", number + 1, ", reasoning") : "Reasoning");
      continue;
    }
    ++number;
    names.push_back(turns.size() == 1 ? "" : answers > 1 ? StrCat("Turn ", number) : "Answer");
  }
  return names;
}

std::string KeptText(const SampleText& text) {
  std::vector<std::string> layers;
  for (size_t i = 0; i < text.answer_kept.size(); ++i) {
    layers.push_back(
        StrCat(i, ": ", text.answer_kept[i] ? Format(*text.answer_kept[i], Unit::kPercent) : "–"));
  }
  return Join(layers, ", ");
}

struct Question {
  const SampleText* full = nullptr;
  const LeaderboardTable* table = nullptr;  // whose scale its scores are shown on
  size_t board = 0;                         // whose full cache answered it
  std::string task;
  std::vector<std::pair<const SamplePair*, SampleText>> answers;
  // What it shows; null where that is not known, or the page has no room for it.
  std::shared_ptr<const SightRow> sight;

  // Patches of an answer to what is shown; "": not known.
  const std::string& PatchesOf(const SampleText& text) const {
    static const std::string kNone;
    return sight != nullptr && text.sight == sight ? text.patches : kNone;
  }
};

std::string ScoreOf(const Question& question, const SampleText& text) {
  if (!text.score) return "–";
  return question.table != nullptr ? ScoreText(*question.table, *text.score)
                                   : Format(text.score, Unit::kDecimals);
}

// The score of one turn where there are several; empty if it was not scored.
std::string TurnScore(const Question& question, const SampleText& text, size_t turn) {
  const std::optional<double>& score = text.turns[turn].score;
  if (text.turns.size() < 2 || !score) return "";
  return question.table != nullptr ? ScoreText(*question.table, *score)
                                   : Format(score, Unit::kDecimals);
}

Html Asked(const SampleText& full) {
  Html html;
  const std::vector<std::string> names = TurnNames(full.turns);
  for (size_t t = 0; t < full.turns.size(); ++t) {
    const AnswerText& turn = full.turns[t];
    if (!turn.question.empty()) {
      html.Put(R"(<p class="q">)");
      if (!names[t].empty()) html.Put("<b>{}:</b> ", {names[t]});
      html.Put("<bdi>{}</bdi></p>", {Trim(turn.question)});
    }
    if (!turn.excerpt.empty()) {
      html.Put(R"(<p class="excerpt"><span class="soft">)");
      if (full.answer_depth)
        html.Put("At {} of the context: ", {Format(*full.answer_depth, Unit::kPercent)});
      html.Put("</span>{}</p>", {turn.excerpt});
    }
    if (!turn.references.empty()) {
      html.Put("<p><b>Right:</b> <bdi>{}</bdi></p>", {turn.references});
    }
  }
  return html;
}

Html Answered(const Question& question, const SampleText& text) {
  const std::vector<std::string> names = TurnNames(text.turns);
  Html html;
  for (size_t t = 0; t < text.turns.size(); ++t) {
    if (!names[t].empty()) {
      const std::string score = TurnScore(question, text, t);
      html.Put(R"(<span class="turn">{}{}</span>)",
               {names[t], score.empty() ? "" : StrCat(", score ", score)});
    }
    if (text.turns[t].prediction.empty()) {
      html.Put(R"(<span class="soft">no text</span>)");
    } else {
      html.Put("<bdi>{}</bdi>", {text.turns[t].prediction});
    }
  }
  return html;
}

// [["Turn 1","the answer","100.0"], ...]
void PutAnswers(ScriptJson& json, const Question& question, const SampleText& text) {
  const std::vector<std::string> names = TurnNames(text.turns);
  json.OpenList();
  for (size_t t = 0; t < text.turns.size(); ++t) {
    json.OpenList().Text(names[t]).Text(text.turns[t].prediction);
    json.Text(TurnScore(question, text, t)).CloseList();
  }
  json.CloseList();
}

const LeaderboardTable* TableOf(const PageData& data, const SamplePair& pair,
                                const std::string& task) {
  const Board& board = data.boards[data.row_of_cell.at(pair.cell).first];
  const auto found = std::ranges::find_if(
      board.tasks, [&](const LeaderboardTable* table) { return table->task == task; });
  return found != board.tasks.end() ? *found : nullptr;
}

Html WrittenOut(const Question& question, const PageData& data) {
  const SampleText& full = *question.full;
  Html html;
  const Board& board = data.boards[question.board];
  html.Put(R"(<article class="sample"><h3 class="sub">{} <span class="soft">{}{}</span></h3>)",
           {full.sample_id, question.task, board.alone ? "" : StrCat(", ", board.Title())});
  html.Put(Asked(full));
  html.Put(
      R"(<table class="plain answers"><thead><tr><th scope="col">Answer of</th><th scope="col" )"
      R"(class="n">score</th>)"
      R"(<th scope="col">Text</th><th scope="col">Answer's tokens kept, by )"
      "layer</th></tr></thead><tbody>");
  html.Put(R"(<tr><th scope="row">full cache</th><td class="n" data-label="score">{}</td><td )"
           R"(class="text">{}</td><td class="kept" data-label="kept">everything</td></tr>)",
           {ScoreOf(question, full), Answered(question, full)});
  for (const auto& [pair, text] : question.answers) {
    const auto place = data.row_of_cell.at(pair->cell);
    const BoardRow& row = data.boards[place.first].rows[place.second];
    html.Put(R"(<tr><th scope="row"><a href="#{}">{}</a></th><td class="n" data-label="score">)"
             R"({}</td><td class="text">{}</td><td class="kept" data-label="kept">{}</td></tr>)",
             {row.id, Breakable(row.NameBudget()), ScoreOf(question, text),
              Answered(question, text), KeptText(text)});
  }
  html.Put("</tbody></table>");
  for (const auto& [pair, text] : question.answers) {
    if (question.PatchesOf(text).empty()) continue;
    const auto place = data.row_of_cell.at(pair->cell);
    html.Put(R"(<p class="soft">What {} kept of the pictures:</p>)",
             {data.boards[place.first].rows[place.second].NameBudget()});
    html.Put(Gallery(*question.sight, text.patches));
    break;
  }
  return html.Put("</article>\n");
}

// Questions and their texts, in the order in which pairs were chosen.
struct Questions {
  std::vector<Question> all;
  std::map<int64_t, SampleText> full_texts;
  PictureSheet sheet;
  int64_t without_pictures = 0;  // samples that show some, for which there is no room
};

Status GatherQuestions(const std::vector<const SamplePair*>& chosen, const PageData& data,
                       Queries& queries, size_t most_bytes, Questions& questions) {
  std::map<int64_t, const StoredCell*> cells;
  for (const StoredCell& cell : data.cells) cells[cell.id] = &cell;
  std::unordered_map<int64_t, size_t> index;
  for (const SamplePair* pair : chosen) {
    const auto place = index.emplace(pair->full_sample, questions.all.size());
    if (place.second) {
      KVG_ASSIGN(SampleText text, queries.Text(pair->full_sample, most_bytes));
      Question& question = questions.all.emplace_back();
      question.full =
          &questions.full_texts.emplace(pair->full_sample, std::move(text)).first->second;
      question.task = cells.at(pair->cell)->cell.task.name;
      question.board = data.row_of_cell.at(pair->cell).first;
      question.table = TableOf(data, *pair, question.task);
    }
    KVG_ASSIGN(SampleText text, queries.Text(pair->sample, most_bytes));
    questions.all[place.first->second].answers.emplace_back(pair, std::move(text));
  }
  for (Question& question : questions.all) {
    std::shared_ptr<const SightRow> sight = question.full->sight;
    for (const auto& answer : question.answers) {
      if (sight == nullptr) sight = answer.second.sight;
    }
    if (sight == nullptr || sight->pictures.empty()) continue;
    if (questions.sheet.Take(*sight)) {
      question.sight = std::move(sight);
    } else {
      ++questions.without_pictures;
    }
  }
  return {};
}

// The number of a row among those that have answers, by board and place on it.
using RowNumbers = std::map<std::pair<size_t, size_t>, size_t>;

// [[id,name], ...]
RowNumbers PutRows(ScriptJson& json, const std::vector<const SamplePair*>& chosen,
                   const PageData& data) {
  RowNumbers numbers;
  json.OpenList();
  for (const SamplePair* pair : chosen) {
    const auto place = data.row_of_cell.at(pair->cell);
    if (!numbers.emplace(place, numbers.size()).second) continue;
    const BoardRow& row = data.boards[place.first].rows[place.second];
    json.OpenList().Text(row.id).Text(MakeVisible(row.NameBudget())).CloseList();
  }
  json.CloseList();
  return numbers;
}

// [task,sample,facts,depth,[[turn,question,excerpt,references]],ANSWERS,score,
// [[row,outcome,score,ANSWERS,[kept],patches]],board,SIGHT]
void PutQuestion(ScriptJson& json, const Question& question, const PageData& data,
                 const RowNumbers& row_numbers, const PictureSheet& sheet) {
  const SampleText& full = *question.full;
  json.OpenList();
  for (const std::string& text : {question.task, full.sample_id, full.facts}) {
    json.Text(MakeVisible(text));
  }
  json.Share(full.answer_depth).OpenList();
  const std::vector<std::string> names = TurnNames(full.turns);
  for (size_t t = 0; t < full.turns.size(); ++t) {
    const AnswerText& turn = full.turns[t];
    json.OpenList().Text(names[t]).Text(turn.question).Text(turn.excerpt).Text(turn.references);
    json.CloseList();
  }
  json.CloseList();
  PutAnswers(json, question, full);
  json.Text(ScoreOf(question, full)).OpenList();
  for (const auto& [pair, text] : question.answers) {
    json.OpenList();
    json.Integer(static_cast<int64_t>(row_numbers.at(data.row_of_cell.at(pair->cell))));
    json.Integer(static_cast<int64_t>(OutcomeOf(*pair))).Text(ScoreOf(question, text));
    PutAnswers(json, question, text);
    json.OpenList();
    for (const std::optional<double>& share : text.answer_kept) json.Share(share);
    json.CloseList().Text(question.PatchesOf(text)).CloseList();
  }
  json.CloseList().Integer(static_cast<int64_t>(question.board));
  if (question.sight != nullptr) {
    sheet.PutSight(json, *question.sight);
  } else {
    json.OpenList().CloseList();
  }
  json.CloseList();
}

// {"boards":[title],"rows":ROWS,"outcomes":[..],"questions":[QUESTION],"pictures":SHEET}
ScriptJson SamplesJson(const std::vector<const SamplePair*>& chosen, const Questions& questions,
                       const PageData& data) {
  ScriptJson json;
  json.OpenObject().Key("boards").OpenList();
  for (const Board& board : data.boards) json.Text(MakeVisible(board.Title()));
  json.CloseList().Key("rows");
  const RowNumbers row_numbers = PutRows(json, chosen, data);
  json.Key("outcomes").OpenList();
  for (const char* const outcome : kOutcomes) json.Text(outcome);
  json.CloseList().Key("questions").OpenList();
  for (const Question& question : questions.all) {
    PutQuestion(json.Line(), question, data, row_numbers, questions.sheet);
  }
  json.Line().CloseList().Key("pictures");
  questions.sheet.PutPictures(json);
  json.CloseObject();
  return json;
}

Html Introduction(const std::vector<SamplePair>& pairs, int64_t held, const Questions& questions) {
  const auto all = static_cast<int64_t>(pairs.size());
  int64_t broken = 0;
  for (const SamplePair& pair : pairs) broken += OutcomeOf(pair) == Outcome::kBroken;
  Html html;
  html.Put(
      R"(<p class="lead">Of {} answers of methods, {} are worse than the full cache's on the same )"
      "question. ",
      {WithCommas(all), WithCommas(broken)});
  if (held < all) {
    html.Put(
        "This page holds {} of them, worse ones first and the same number of every row as far as "
        "there are any; "
        "the others are in the database (<code>--max-answers</code> holds more, <code>kvgauge "
        "show</code> prints one).",
        {WithCommas(held)});
  } else {
    html.Put("This page holds them all.");
  }
  html.Put(" Scores are of 100.");
  html.Put(" Squares tell how much of the answer's place each layer kept. {}",
           {HeatLegend(HeatScale::kAmount, "nothing", "everything")});
  if (questions.sheet.count() > 0) {
    html.Put(
        " A picture is as bright as many heads and layers hold its patches; a frame marks "
        "those that the answer stands in.");
  }
  if (questions.without_pictures > 0) {
    html.Put(" The pictures of {} are left out (<code>--max-pictures</code> holds more).",
             {Plural(questions.without_pictures, "sample", "samples")});
  }
  return html;
}

}  // namespace

Result<Html> SamplesSection(const std::vector<SamplePair>& pairs, const PageData& data,
                            Queries& queries, const ReportOptions& options, ReportCounts& counts) {
  Html html;
  if (pairs.empty()) return html;
  const std::vector<const SamplePair*> chosen = Choose(pairs, data, options.max_answers);
  counts.answers = std::ssize(pairs);
  counts.answers_held = std::ssize(chosen);
  Questions questions = {.all = {}, .full_texts = {}, .sheet = PictureSheet(options.max_pictures)};
  KVG_TRY(GatherQuestions(chosen, data, queries, static_cast<size_t>(options.max_text_bytes),
                          questions));
  html.Put(Introduction(pairs, counts.answers_held, questions));
  html.Put(R"(</p>
<div class="js" id="samples-ui"></div><div class="samples" id="samples-static">)");
  int64_t written = 0;
  for (const Question& question : questions.all) {
    if (written++ == kWrittenOut) break;
    html.Put(WrittenOut(question, data));
  }
  html.Put("</div>\n");
  return html.PutData("samples-data", SamplesJson(chosen, questions, data).text());
}

}  // namespace kvgauge::report
