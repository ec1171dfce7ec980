// SPDX-License-Identifier: Apache-2.0
#include "datasets/execution.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "datasets/aggregate.h"
#include "src/lines.h"
#include "src/program_end.h"

namespace kvgauge {
namespace {

Result<std::string> OptionalText(const Json& object, const char* key, const std::string& origin) {
  if (!object.contains(key)) return std::string();
  if (object[key].is_string()) return object[key].get<std::string>();
  if (object[key].is_number_integer()) return object[key].dump();
  return BadInput(StrCat(origin, ": \"", key, "\" must be a text"));
}

struct Program {
  std::string problem;
  std::string text;
};

Result<Program> ProgramOf(const PairLines& lines) {
  const std::string origin = lines.origin();
  KVG_ASSIGN(const Json object, lines.Object());
  KVG_ASSIGN(const MetricInput input, PairOf(object, origin, PairUse::kProgram));
  if (input.answers.size() != 1) {
    return BadInput(StrCat(origin, ": \"answers\" must hold one text, the test that is run"));
  }
  Program program;
  KVG_ASSIGN(program.problem, OptionalText(object, "id", origin));
  KVG_ASSIGN(program.text, OptionalText(object, "prompt", origin));
  KVG_ASSIGN(const std::string entry, OptionalText(object, "entry_point", origin));
  program.text.append(input.prediction).append("\n").append(input.answers[0]).append("\n");
  if (!entry.empty()) program.text.append("check(").append(entry).append(")\n");
  return program;
}

}  // namespace

Result<ExecutionScores> ScoreByExecution(const std::string& path, const ExecutionOptions& options) {
  KVG_ASSIGN(PairLines lines, PairLines::Open(path));
  ExecutionScores out;
  out.isolated = true;
  struct Count {
    int64_t samples = 0, passed = 0;
  };
  std::map<std::string, Count> problems;
  while (lines.Next()) {
    const Result<Program> program = ProgramOf(lines);
    if (!program.ok()) {
      if (!options.skip_bad) return program.error();
      out.bad_lines.push_back(program.error().message);
      continue;
    }
    const EndedProgram ended = WithToldEnd(options.command, program->text);
    KVG_ASSIGN(const SandboxRun run, RunSandboxed(ended.command, ended.program, options.limits));
    const bool passed = run.exit_code == 0 && (run.end_told || !ended.tells);
    out.isolated = out.isolated && run.isolated;
    out.end_checked = ended.tells;
    out.lines.push_back(lines.number());
    out.passed.push_back(passed);
    Count& count =
        problems[program->problem.empty() ? StrCat("line ", lines.number()) : program->problem];
    ++count.samples;
    if (passed) ++count.passed;
  }
  KVG_TRY(lines.status());
  if (out.lines.empty()) return BadInput(StrCat(path, ": no program to run"));
  for (const int64_t k : options.ks) {
    ExecutionScores::PassAt pass;
    pass.k = k;
    for (const auto& [name, count] : problems) {
      if (count.samples < k) {
        ++pass.left_out;
        continue;
      }
      pass.score += PassAtK(count.samples, count.passed, k);
      ++pass.problems;
    }
    if (pass.problems == 0) {
      return BadInput(StrCat(path, ": no problem has ", k, " samples, as pass@", k, " needs"));
    }
    pass.score /= static_cast<double>(pass.problems);
    out.pass.push_back(pass);
  }
  return out;
}

}  // namespace kvgauge
