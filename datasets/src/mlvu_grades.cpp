// SPDX-License-Identifier: Apache-2.0
#include "datasets/mlvu_grades.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "core/json.h"
#include "core/strings.h"
#include "src/lines.h"

namespace kvgauge {
namespace {

constexpr std::string_view kNumberSigns = "0123456789.";
constexpr const char* kWantedGrades = "expected two grades of 1 to 5";

Result<GradePair> Graded(const std::vector<double>& numbers) {
  if (numbers.size() != 2) return BadInput(StrCat(numbers.size(), " numbers, ", kWantedGrades));
  for (const double grade : numbers) {
    if (!(grade >= 1 && grade <= 5))
      return BadInput(StrCat("a grade of ", grade, ", ", kWantedGrades));
  }
  return GradePair{numbers[0], numbers[1]};
}

Result<GradePair> GradesOf(const Json& object, const std::string& origin) {
  if (object.contains("grades")) {
    const Json& given = object["grades"];
    std::vector<double> numbers;
    for (const Json& number : given.is_array() ? given : Json::array()) {
      if (number.is_number()) numbers.push_back(number.get<double>());
    }
    const bool plain = given.is_array() && numbers.size() == given.size();
    Result<GradePair> pair = plain ? Graded(numbers) : BadInput(StrCat("no list, ", kWantedGrades));
    if (!pair.ok()) return pair.error().Wrap(StrCat(origin, ": \"grades\""));
    return pair;
  }
  const char* key = object.contains("prediction") ? "prediction" : "pred";
  if (!object.contains(key) || !object[key].is_string()) {
    return BadInput(StrCat(origin, ": neither \"grades\", a list of two numbers, nor the judge's ",
                           "reply as the text \"prediction\""));
  }
  Result<GradePair> pair = ParseGradePair(object[key].get<std::string>());
  if (!pair.ok()) return pair.error().Wrap(StrCat(origin, ": \"", key, "\""));
  return pair;
}

}  // namespace

Result<GradePair> ParseGradePair(const std::string& reply) {
  std::vector<double> numbers;
  for (size_t at = reply.find_first_of(kNumberSigns); at != std::string::npos;) {
    const size_t end = std::min(reply.find_first_not_of(kNumberSigns, at), reply.size());
    const std::string number = reply.substr(at, end - at);
    // A full stop behind a number, or alone, is punctuation.
    if (number.find_first_not_of('.') != std::string::npos) {
      numbers.push_back(std::strtod(number.c_str(), nullptr));
    }
    at = reply.find_first_of(kNumberSigns, end);
  }
  return Graded(numbers);
}

Result<GradedSet> AverageGrades(const std::string& path, const std::string& by, bool skip_bad) {
  KVG_ASSIGN(PairLines lines, PairLines::Open(path));
  GradedSet out;
  std::map<std::string, std::vector<GradePair>> tasks;
  SampleIds ids({by});
  const auto take = [&]() -> Result<GradePair> {
    const std::string origin = lines.origin();
    KVG_ASSIGN(const Json object, lines.Object());
    if (!object.contains(by) || !object[by].is_string()) {
      return BadInput(StrCat(origin, ": \"", by, "\" must be a text, the task's name"));
    }
    KVG_ASSIGN(const GradePair pair, GradesOf(object, origin));
    KVG_TRY(ids.Add(object, lines));
    tasks[object[by].get<std::string>()].push_back(pair);
    return pair;
  };
  while (lines.Next()) {
    const Result<GradePair> pair = take();
    if (pair.ok()) {
      out.grades.push_back(*pair);
      out.lines.push_back(lines.number());
    } else if (skip_bad) {
      out.bad_lines.push_back(pair.error().message);
    } else {
      return pair.error();
    }
  }
  KVG_TRY(lines.status());
  if (tasks.empty()) return BadInput(StrCat(path, ": no grades"));
  for (const auto& [name, grades] : tasks) {
    out.tasks.push_back({name, static_cast<int64_t>(grades.size()), MeanGradeSum(grades)});
    out.generation_average += out.tasks.back().mean_sum / static_cast<double>(tasks.size());
  }
  return out;
}

}  // namespace kvgauge
