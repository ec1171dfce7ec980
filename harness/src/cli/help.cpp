// SPDX-License-Identifier: Apache-2.0
#include "src/cli/help.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <vector>

#include "core/check.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

// tests/cli parses every example, and runs those that need no result.
constexpr CommandHelp kHelp[] = {
    {"doctor", "Start", "doctor\ndoctor --check cpu --entries 4096"},
    {"generate", "Start",
     "generate models/ref-gqa --prompt-file models/ref-gqa/demo/short.txt --stop .\n"
     "generate models/ref-gqa --prompt-file models/ref-gqa/demo/long.txt --method snapkv "
     "--budget 20%\n"
     "generate ~/models/Qwen2.5-VL-3B-Instruct --image cat.jpg --prompt 'What is this?'\n"
     "generate ~/models/Qwen3-4B --prompt 'Why is the sky blue?' --dtype bf16"},
    {"run", "Run and compare",
     "run --model models/ref-gqa --task reference/needle --method snapkv,h2o --budget 10%,20%\n"
     "run quickstart\n"
     "run mine.json --db results/mine.db --limit 100\n"
     "run mine.json --only snapkv --samples 0-9,17"},
    {"plan", "Run and compare",
     "plan --model models/ref-gqa --task reference/needle --method snapkv,h2o --budget 10%,20%\n"
     "plan quickstart\n"
     "plan mine.json --limit 100 --max-memory 8GiB"},
    {"leaderboard", "Run and compare",
     "leaderboard results/quickstart.db\n"
     "leaderboard results/quickstart.db --by group --filter 'bytes<0.3'\n"
     "leaderboard results/quickstart.db --format csv --all"},
    {"compare", "Run and compare",
     "compare snapkv@20% h2o@20% --db results/quickstart.db\n"
     "compare before.db after.db"},
    {"show", "Run and compare",
     "show results/quickstart.db snapkv@20% --task reference/needle\n"
     "show results/quickstart.db snapkv@20% n1024-3 --task reference/needle --prompt"},
    {"report", "Run and compare",
     "report results/quickstart.db -o quickstart.html\n"
     "report before.db after.db --compare"},
    {"board", "Run and compare", "board results -o site"},
    {"reproduce", "Run and compare",
     "reproduce\n"
     "reproduce snapkv --weights random:1 --dry-run\n"
     "reproduce snapkv --model ~/models/Mistral-7B-Instruct-v0.2 --limit 20"},
    {"import", "Run and compare", "import lm-eval results.json -o other.json"},
    {"import lm-eval", "", "import lm-eval results.json -o other.json"},
    {"import kvpress", "", "import kvpress results -o other.json"},
    {"submit", "Many machines and CI",
     "submit --slurm mine.json --shards 16 --db results/mine.db\n"
     "submit --slurm mine.json --shards 4 --db results/mine.db --dry-run -- --limit 100\n"
     "submit --slurm mine.json --shards 8 --db results/mine.db --gpus 4"},
    {"merge", "Many machines and CI", "merge results/all.db results/shard-1.db results/shard-2.db"},
    {"gate", "Many machines and CI",
     "gate --baseline before.db --candidate after.db\n"
     "gate --baseline before.db --candidate after.db --strict --junit gate.xml"},
    {"methods", "Methods",
     "methods\n"
     "methods snapkv\n"
     "methods snapkv --set score.window=16\n"
     "methods --stages"},
    {"probe", "Methods",
     "probe models/ref-gqa --ids-file ids.json --method snapkv --budget 20% --out "
     "kept.safetensors"},
    {"calibrate", "Methods",
     "calibrate models/ref-gqa --method palu --text-file text.txt --out palu.safetensors"},
    {"tasks", "Tasks and scores",
     "tasks\n"
     "tasks longbench\n"
     "tasks ruler --data ~/kvgauge-data"},
    {"sample", "Tasks and scores",
     "sample reference/needle\n"
     "sample reference/needle --n 3 --model models/ref-gqa\n"
     "sample passkey --set source.lengths=512 --whole"},
    {"score", "Tasks and scores",
     "score --task longbench/qasper --pairs predictions.jsonl\n"
     "score --metric rouge_l --pairs predictions.jsonl --by language\n"
     "score --metric judge_wins --pairs predictions.jsonl --judge models/ref-gqa\n"
     "score --list"},
    {"data", "Tasks and scores", "data generate --task reference/pairs --texts 3"},
    {"data generate", "",
     "data generate --task reference/pairs --texts 3\n"
     "data generate --task reference/pairs --task reference/tracing --lengths 128,256 "
     "--model models/ref-gqa --tokens 100000 --out train.jsonl"},
    {"data frames", "",
     "data frames ~/videos --out data/clips --frame-rule uniform --frames 16\n"
     "data frames ~/video_mme --task video_mme/lmms_eval --out data/video_mme/frames"},
    {"inspect", "Models",
     "inspect models/ref-gqa\n"
     "inspect config.json --weights random:1\n"
     "inspect --shapes"},
    {"tokenize", "Models", "tokenize models/ref-gqa --text-file text.txt"},
    {"detokenize", "Models", "detokenize models/ref-gqa --ids-file ids.json"},
    {"template", "Models", "template models/ref-gqa --messages messages.json --template gemma"},
    {"logits", "Models", "logits models/ref-gqa --ids-file ids.json --out logits.npy"},
    {"bench", "Speed", "bench latency models/ref-gqa --methods snapkv,kivi_4bit --contexts 1024"},
    {"bench latency", "",
     "bench latency models/ref-gqa --methods snapkv,kivi_4bit --contexts 1024\n"
     "bench latency ~/models/Llama-3.1-8B --backend cuda --contexts 4096,32768 --budgets 10%,20%\n"
     "bench latency bench-mha --weights random:1 --methods full --beside bench-s,bench-mamba"},
    {"bench capacity", "",
     "bench capacity models/ref-gqa --methods full,snapkv --budgets 10%,20% --max-memory 40MiB\n"
     "bench capacity models/ref-gqa --policies fcfs,radix --shared-tokens 512 --batches 4,16\n"
     "bench capacity models/ref-gqa --max-memory 40MiB --db results/quickstart.db\n"
     "bench capacity configs/models/llama-3.1-8b.json --estimate --max-memory 80GiB --batches max "
     "--trace data/traces/AzureLLMInferenceTrace_conv.csv"},
    {"bench speculate", "",
     "bench speculate models/ref-gqa --text models/ref-gqa/demo/long.txt --budgets 10%,30%\n"
     "bench speculate models/ref-gqa --forms magicdec,triforce,quantspec --text prompt.txt"},
    {"bench lockstep", "", "bench lockstep --rows 1,8,32 --prompt-tokens 1024"},
    {"bench runner", "",
     "bench runner --dtype bf16 --prefill 512 --depth 0,2048\n"
     "bench runner --model models/ref-gqa --repetitions 5\n"
     "bench runner --model ~/models/llama-3.2-1b.Q4_K_M.gguf --weights file --dtype bf16"},
    {"bench load", "",
     "bench load models/ref-gqa\nbench load ~/models/llama-q4_k_m.gguf --weights-memory unpacked"},
    {"bench kernels", "", "bench kernels --entries 32768\nbench kernels --backend cuda"},
    {"bench vision", "",
     "bench vision --pictures 1,8\nbench vision --model ~/models/SmolVLM-256M --dtype bf16,f32"},
};

constexpr size_t kNameWidth = 13;

std::vector<std::string> ExamplesOf(const CommandHelp& help) {
  std::vector<std::string> lines = Split(std::string(help.examples), '\n');
  for (std::string& line : lines) line.insert(0, "kvgauge ");
  return lines;
}

CLI::App* FindCommand(CLI::App& app, std::string_view command) {
  CLI::App* found = &app;
  for (const std::string& word : Split(std::string(command), ' ')) {
    found = found->get_subcommand(word);
  }
  return found;
}

// "FLOAT:FLOAT in [0 - 1]" -> "FLOAT"; what a check wants is said by its error.
std::string TypeName(const CLI::Option& option) {
  const std::string name = option.get_type_name();
  return name.substr(0, name.find(':'));
}

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    if (app->get_parent() == nullptr) return Overview(*app);
    // Between two groups of options the library leaves two lines.
    return CLI::detail::find_and_replace(CLI::Formatter::make_help(app, std::move(name), mode),
                                         "\n\n\n", "\n\n");
  }

  std::string make_description(const CLI::App* app) const override {
    return app->get_description() + "\n";
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    std::string text = StrCat(" ", TypeName(*option));
    if (option->get_expected_max() == CLI::detail::expected_max_vector_size) text += " ...";
    if (option->get_required()) text += " (required)";
    return text;
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    const std::string value = option->get_default_str();
    if (!value.empty() && option->get_type_size() != 0) text += StrCat(" (default: ", value, ")");
    return text;
  }

 private:
  std::string Overview(const CLI::App& app) const {
    std::string text = StrCat(app.get_description(), "\nUsage: kvgauge COMMAND [OPTIONS]\n");
    std::string_view group;
    for (const CommandHelp& help : kHelp) {
      if (help.group.empty()) continue;
      if (help.group != group) text += StrCat("\n", help.group, ":\n");
      group = help.group;
      std::string name(help.command);
      name.resize(kNameWidth, ' ');
      text += StrCat("  ", name, app.get_subcommand(std::string(help.command))->get_description(),
                     "\n  ", std::string(kNameWidth, ' '), "  ", ExamplesOf(help)[0], "\n");
    }
    return text + make_groups(&app, CLI::AppFormatMode::Normal) +
           "\n'kvgauge COMMAND --help' shows its options and more examples.\n";
  }
};

}  // namespace

std::span<const CommandHelp> AllHelp() { return kHelp; }

void AddHelp(CLI::App& app) {
  auto overview = std::make_shared<HelpFormatter>();
  overview->column_width(28);
  app.formatter(overview);
  const auto prepare = [&](const auto& self, CLI::App& parent, const std::string& prefix) -> void {
    for (CLI::App* command : parent.get_subcommands([](const CLI::App*) { return true; })) {
      const std::string name = prefix + command->get_name();
      const bool known =
          std::ranges::any_of(kHelp, [&](const CommandHelp& help) { return help.command == name; });
      KVG_CHECK(known, StrCat("command without examples: ", name));
      self(self, *command, name + " ");
    }
  };
  prepare(prepare, app, "");
  for (const CommandHelp& help : kHelp) {
    CLI::App* command = FindCommand(app, help.command);
    auto formatter = std::make_shared<HelpFormatter>();
    formatter->column_width(28);
    command->formatter(formatter);
    command->footer(StrCat("Examples:\n  ", Join(ExamplesOf(help), "\n  ")));
  }
}

}  // namespace kvgauge
