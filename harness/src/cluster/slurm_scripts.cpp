// SPDX-License-Identifier: Apache-2.0
#include "src/cluster/slurm_scripts.h"

#include <algorithm>
#include <cctype>

#include "core/strings.h"
#include "src/cli/print.h"

namespace kvgauge {
namespace {

constexpr int64_t kMostShards = 100000;

bool Consists(std::string_view text, std::string_view of) {
  return !text.empty() && text.find_first_not_of(of) == std::string_view::npos;
}

// Minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]].
bool IsSlurmTime(const std::string& text) {
  if (text == "UNLIMITED") return true;
  std::string clock = text;
  const size_t dash = text.find('-');
  if (dash != std::string::npos) {
    if (!Consists(text.substr(0, dash), "0123456789")) return false;
    clock = text.substr(dash + 1);
  }
  const std::vector<std::string> parts = Split(clock, ':');
  return parts.size() <= 3 && std::ranges::all_of(parts, [](const std::string& part) {
           return Consists(part, "0123456789");
         });
}

bool IsSlurmMemory(std::string_view text) {
  if (!text.empty() && std::string_view("KMGT").find(text.back()) != std::string_view::npos) {
    text.remove_suffix(1);
  }
  return Consists(text, "0123456789");
}

// Slurm reads quotes and backslashes in #SBATCH lines, and %x in names of logs.
std::string LogPath(const SlurmJob& job, const std::string& name) {
  std::string path;
  for (const char c : job.directory) {
    if (c == '%') path += '%';
    if (c == '"') path += '\\';
    path += c;
  }
  return StrCat('"', path, "/log/", name, '"');
}

// A name that Slurm shows in a column.
std::string JobName(const SlurmJob& job) {
  std::string name = job.name;
  for (char& c : name) {
    if (c == '/' || ShellWord(std::string(1, c)).size() > 1) c = '_';
  }
  return name;
}

std::string Directives(const SlurmJob& job, const std::vector<std::string>& own) {
  std::vector<std::string> options = own;
  if (!job.partition.empty()) options.push_back(StrCat("partition=", job.partition));
  if (!job.time.empty()) options.push_back(StrCat("time=", job.time));
  if (!job.memory.empty()) options.push_back(StrCat("mem=", job.memory));
  std::string text;
  for (const std::string& option : options) text += StrCat("#SBATCH --", option, "\n");
  return text;
}

}  // namespace

Status CheckSlurmJob(const SlurmJob& job) {
  if (job.shards < 1 || job.shards > kMostShards) {
    return BadInput(
        StrCat("--shards: ", job.shards, ", expected a whole number from 1 to ", kMostShards));
  }
  if (job.array_limit < 0) {
    return BadInput(StrCat("--array-limit: ", job.array_limit, ", expected a whole number from 1"));
  }
  if (job.cpus < 0) {
    return BadInput(StrCat("--cpus: ", job.cpus, ", expected a whole number from 1"));
  }
  if (job.gpus < 0) {
    return BadInput(StrCat("--gpus: ", job.gpus, ", expected a whole number from 1"));
  }
  if (job.cpus > 0 && job.cpus < job.gpus) {
    return BadInput(StrCat("--cpus: ", job.cpus, ", expected ", job.gpus,
                           " or more: one for each device of --gpus"));
  }
  constexpr std::string_view kNames =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,";
  if (!job.partition.empty() && !Consists(job.partition, kNames)) {
    return BadInput(
        StrCat("--partition: ", Quoted(job.partition), ", expected a name as sinfo shows it"));
  }
  if (!job.time.empty() && !IsSlurmTime(job.time)) {
    return BadInput(StrCat("--time: ", Quoted(job.time),
                           ", expected minutes or days-hours:minutes:seconds, e.g. 90, 2:00:00, "
                           "1-12:00:00"));
  }
  if (!job.memory.empty() && !IsSlurmMemory(job.memory)) {
    return BadInput(
        StrCat("--mem: ", Quoted(job.memory), ", expected a number with K, M, G or T, e.g. 16G"));
  }
  for (const std::string& argument : job.arguments) {
    for (const char* owned :
         {"--db", "--shard", "--threads", "--processors", "--json", "--dry-run", "--worker"}) {
      if (argument == owned || argument.starts_with(StrCat(owned, "="))) {
        return BadInput(StrCat(owned, " cannot be given to the shards: each has its own"));
      }
    }
    for (const char* chosen : {"--backend", "--devices"}) {
      if (job.gpus > 0 && (argument == chosen || argument.starts_with(StrCat(chosen, "=")))) {
        return BadInput(StrCat(chosen,
                               " cannot be given to shards with --gpus: each runs on the "
                               "devices that Slurm hands it"));
      }
    }
  }
  std::vector<std::string> words = {job.name,   job.program,  job.working_directory,
                                    job.config, job.database, job.directory};
  words.insert(words.end(), job.arguments.begin(), job.arguments.end());
  for (const std::string& word : words) {
    const bool control = std::ranges::any_of(
        word, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
    if (control) {
      return BadInput(StrCat(Quoted(word), ": control characters cannot stand in a batch script"));
    }
  }
  if (job.directory.find('\\') != std::string::npos) {
    return BadInput(StrCat("--db: ", Quoted(job.database),
                           ": Slurm cannot write logs below a path with a backslash"));
  }
  return {};
}

std::string ShardScript(const SlurmJob& job) {
  std::string array = StrCat("array=1-", job.shards);
  if (job.array_limit > 0) array += StrCat("%", job.array_limit);
  std::vector<std::string> options = {StrCat("job-name=", JobName(job)), array, "ntasks=1"};
  if (job.cpus > 0) options.push_back(StrCat("cpus-per-task=", job.cpus));
  if (job.gpus > 0) options.push_back(StrCat("gres=gpu:", job.gpus));
  options.push_back(StrCat("output=", LogPath(job, "shard-%a.log")));
  options.emplace_back("open-mode=append");
  options.emplace_back("requeue");
  std::string text = StrCat(
      "#!/bin/bash\n"
      "# The shards of the run ",
      Quoted(job.name, 200),
      ", one array task each; written by kvgauge submit.\n"
      "# A shard that was stopped goes on where it was: submit it again, or run it by hand with\n"
      "#   SLURM_ARRAY_TASK_ID=1 bash shard.sh\n",
      Directives(job, options));
  text += StrCat("set -euo pipefail\n\ncd ", ShellWord(job.working_directory),
                 "\ndirectory=", ShellWord(job.directory), "\nshard=$SLURM_ARRAY_TASK_ID\n\nexec ",
                 ShellWord(job.program), " run ", ShellWord(job.config), " \\\n  --shard \"$shard/",
                 job.shards, "\" --db \"$directory/shard-$shard-of-", job.shards, ".db\"");
  // Workers of several devices share them.
  if (job.cpus > 0) text += StrCat(job.gpus > 1 ? " --processors " : " --threads ", job.cpus);
  // What Slurm hands to the task is all that CUDA shows there.
  if (job.gpus > 0) text += " --backend cuda --devices all";
  if (!job.arguments.empty()) text += " \\\n ";
  for (const std::string& argument : job.arguments) text += StrCat(" ", ShellWord(argument));
  return text + "\n";
}

std::string MergeScript(const SlurmJob& job) {
  std::string text = StrCat(
      "#!/bin/bash\n"
      "# Joins the shards of the run ",
      Quoted(job.name, 200),
      " when all are done; written by kvgauge submit.\n"
      "# Again is harmless: what is merged already stays as it is.\n",
      Directives(job, {StrCat("job-name=", JobName(job), "-merge"), "ntasks=1",
                       StrCat("output=", LogPath(job, "merge.log")), "open-mode=append",
                       "kill-on-invalid-dep=yes"}));
  text +=
      StrCat("set -euo pipefail\n\ncd ", ShellWord(job.working_directory),
             "\ndirectory=", ShellWord(job.directory), "\nshards=()\nfor shard in {1..", job.shards,
             "}; do\n  shards+=(\"$directory/shard-$shard-of-", job.shards, ".db\")\ndone\n\nexec ",
             ShellWord(job.program), " merge ", ShellWord(job.database), " \"${shards[@]}\"\n");
  return text;
}

}  // namespace kvgauge
