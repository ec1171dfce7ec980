// SPDX-License-Identifier: Apache-2.0
#include "src/cluster/submit_command.h"

#include <algorithm>
#include <filesystem>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "methods/plugin.h"
#include "src/cli/print.h"
#include "src/cluster/slurm_scripts.h"
#include "src/cluster/subprocess.h"
#include "src/run/run_config.h"

namespace kvgauge {
namespace {

namespace fs = std::filesystem;

// The job, with every path absolute: a node may start anywhere.
Result<SlurmJob> MakeJob(const SubmitOptions& options) {
  SlurmJob job;
  std::error_code error;
  job.working_directory = fs::current_path(error).string();
  if (error) return IoError(StrCat("the working directory is gone: ", error.message()));
  job.program = fs::read_symlink("/proc/self/exe", error).string();
  if (error) return IoError(StrCat("/proc/self/exe: ", error.message()));
  // What the shards would refuse is refused before anything is queued.
  KVG_ASSIGN(const RunConfig config, CheckedConfig(options.run));
  job.name = config.name;
  job.config = FileExists(options.config) ? fs::absolute(options.config).string() : options.config;
  for (const LoadedPlugin& plugin : LoadedPlugins()) {
    job.arguments.insert(job.arguments.end(), {"--plugin", plugin.path});
  }
  job.arguments.insert(job.arguments.end(), options.run_arguments.begin(),
                       options.run_arguments.end());
  job.database = fs::absolute(options.database).lexically_normal().string();
  job.directory = StrCat(job.database, ".shards");
  job.shards = options.shards;
  job.array_limit = options.array_limit;
  job.cpus = options.cpus;
  job.gpus = options.gpus;
  job.partition = options.partition;
  job.time = options.time;
  job.memory = options.memory;
  KVG_TRY(CheckSlurmJob(job));
  return job;
}

// Shards are cut by their number: another number would start all of them anew.
Status CheckEarlierShards(const SlurmJob& job) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(job.directory, error)) {
    const std::string name = entry.path().filename().string();
    const std::string ending = StrCat("-of-", job.shards, ".db");
    if (!name.starts_with("shard-") || !name.ends_with(".db") || name.ends_with(ending)) continue;
    return BadInput(
        StrCat("--shards: ", job.shards, ", but ", entry.path().string(),
               " comes from another number of shards; give that number, or another --db"));
  }
  return {};
}

Status WriteScripts(const SlurmJob& job) {
  const std::string logs = StrCat(job.directory, "/log");
  std::error_code error;
  fs::create_directories(logs, error);
  if (error) return IoError(StrCat(logs, ": cannot be made: ", error.message()));
  KVG_TRY(WriteFile(StrCat(job.directory, "/shard.sh"), ShardScript(job)));
  return WriteFile(StrCat(job.directory, "/merge.sh"), MergeScript(job));
}

// The number of the job. Slurm's own message, if it refuses, is on standard error.
Result<std::string> Submit(const std::vector<std::string>& options, const std::string& script) {
  std::vector<std::string> words = {"sbatch", "--parsable"};
  words.insert(words.end(), options.begin(), options.end());
  words.push_back(script);
  KVG_ASSIGN(const ProgramOutput output, RunProgram(words));
  // "12" or "12;cluster".
  const std::string job(Trim(output.out.substr(0, output.out.find(';'))));
  if (output.exit_code == 0 && !job.empty() &&
      job.find_first_not_of("0123456789") == std::string::npos) {
    return job;
  }
  return IoError(StrCat("sbatch refused ", script, " (exit code ", output.exit_code,
                        "); nothing of it is queued"));
}

}  // namespace

Status RunSubmit(const SubmitOptions& options) {
  if (!options.slurm) return BadInput("submit: name the scheduler: --slurm");
  KVG_ASSIGN(const SlurmJob job, MakeJob(options));
  if (!options.dry_run && FindProgram("sbatch").empty()) {
    return Unsupported(
        "sbatch is not on PATH; submit where Slurm is installed, or write the scripts only with "
        "--dry-run");
  }
  KVG_TRY(CheckEarlierShards(job));
  KVG_TRY(WriteScripts(job));
  const std::string shard_script = StrCat(job.directory, "/shard.sh");
  const std::string merge_script = StrCat(job.directory, "/merge.sh");
  Json json = {{"directory", job.directory}, {"scripts", {shard_script, merge_script}},
               {"database", job.database},   {"shards", job.shards},
               {"array_job", nullptr},       {"merge_job", nullptr}};
  if (options.dry_run) {
    if (options.json) {
      PrintJson(json);
      return {};
    }
    PrintFacts(
        {{"shards", StrCat("sbatch --parsable ", ShellWord(shard_script))},
         {"merge", StrCat("sbatch --dependency=afterok:ARRAY_JOB ", ShellWord(merge_script))},
         {"database", StrCat(job.database, ", when the merge is done")}});
    return {};
  }
  KVG_ASSIGN(const std::string array, Submit({}, shard_script));
  const Result<std::string> merge = Submit({StrCat("--dependency=afterok:", array)}, merge_script);
  if (!merge.ok()) {
    return merge.error().Wrap(
        StrCat("the shards are queued as job ", array,
               ", but the merge is not (stop them with "
               "'scancel ",
               array, "', or submit it by hand with --dependency=afterok:", array, ")"));
  }
  json["array_job"] = array;
  json["merge_job"] = *merge;
  if (options.json) {
    PrintJson(json);
    return {};
  }
  PrintFacts({{"shards", StrCat(job.shards, " in job ", array, ", ", shard_script)},
              {"merge", StrCat("job ", *merge, " when all are done, into ", job.database)},
              {"watch", StrCat("squeue -j ", array, ",", *merge, "; tail -f ",
                               ShellWord(StrCat(job.directory, "/log/")), "*")},
              {"stop", StrCat("scancel ", array, " ", *merge)},
              {"resume", "the same command again; what is recorded is not run again"}});
  return {};
}

}  // namespace kvgauge
