// SPDX-License-Identifier: Apache-2.0
// The program as its users meet it: a process with arguments, output and an exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli/program.h"
#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class CliTest : public ProgramTest {
 protected:
  static std::string Model(const std::string& name) {
    return StrCat(KVG_TEST_DATA, "/golden/models/", name);
  }
};

// Approved outputs: scripts/approve rewrites them; the change is reviewed like code.
void ExpectApproved(const std::string& name, const std::string& got) {
  const std::string path = StrCat(KVG_TEST_DATA, "/cli/help/", name, ".txt");
  if (std::getenv("KVG_APPROVE") != nullptr) {
    std::ofstream(path, std::ios::binary) << got;
    return;
  }
  const Result<std::string> want = ReadFile(path);
  ASSERT_TRUE(want.ok()) << want.error().message << "; run scripts/approve";
  EXPECT_EQ(got, *want) << "help of '" << name << "' changed; run scripts/approve if it should";
}

TEST_F(CliTest, HelpTexts) {
  for (const char* command : {"",
                              "inspect",
                              "generate",
                              "tokenize",
                              "detokenize",
                              "logits",
                              "methods",
                              "tasks",
                              "sample",
                              "score",
                              "doctor",
                              "probe",
                              "calibrate",
                              "bench",
                              "bench runner",
                              "bench lockstep",
                              "bench latency",
                              "bench capacity",
                              "bench speculate",
                              "bench load",
                              "bench kernels",
                              "bench vision",
                              "submit",
                              "data",
                              "data frames",
                              "data generate",
                              "plan",
                              "run",
                              "leaderboard",
                              "compare",
                              "show",
                              "gate",
                              "merge",
                              "report",
                              "board",
                              "template"}) {
    const Outcome outcome = Run(StrCat(command, " --help"));
    EXPECT_EQ(outcome.exit_code, 0);
    std::string name = *command == 0 ? "kvgauge" : command;
    for (char& c : name) c = c == ' ' ? '_' : c;
    ExpectApproved(name, outcome.out);
  }
}

// Alone, the program says what it can do, on standard output and without complaint.
TEST_F(CliTest, WithoutACommandItListsAllOfThem) {
  const Outcome bare = Run("");
  EXPECT_EQ(bare.exit_code, 0);
  EXPECT_EQ(bare.err, "");
  EXPECT_EQ(bare.out, Run("--help").out);
  for (const char* part : {"\nStart:\n", "\nRun and compare:\n", "\nMethods:\n", "\nSpeed:\n",
                           "  kvgauge run --model models/ref-gqa --task reference/needle"}) {
    EXPECT_THAT(bare.out, HasSubstr(part));
  }
  const Outcome typo = Run("leaderbord x.db");
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_THAT(typo.err, HasSubstr("unknown command 'leaderbord' (did you mean 'leaderboard'?)"));
}

TEST_F(CliTest, TemplateRendersAConversation) {
  const std::string messages = Write("talk.json", R"([{"role": "user", "content": " Hi "}])");
  Write(
      "tokenizer_config.json",
      R"({"chat_template": "{% if enable_thinking %}T{% endif %}{{ strftime_now('%Y') }}|{{ messages[0].content | trim }}|{{ add_generation_prompt }}"})");
  const std::string directory = messages.substr(0, messages.rfind('/'));
  const std::string command = StrCat("template '", directory, "' --messages '", messages, "'");
  EXPECT_EQ(Run(command).out, "2024|Hi|True");
  EXPECT_EQ(Run(command + " --template-set enable_thinking=true --template-date 2030-01-31"
                          " --no-generation-prompt")
                .out,
            "T2030|Hi|False");
  EXPECT_EQ(Run(command + " --template gemma").out,
            "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_THAT(Run(command + " --json").out, HasSubstr("\"enable_thinking\": false"));
  // Bad input: one clear error each, with file, line and what stands there.
  for (const auto& [text, wanted] : std::vector<std::pair<std::string, std::string>>{
           {"{{ 1 + }}", "line 2: unexpected"},
           {"{{ 'x' | nofilter }}", "line 2: No filter named 'nofilter'"},
           {"{% include '/etc/passwd' %}", "line 2: {% include %} joins templates from files"},
           {"{{ ''.__class__ }}", "line 2: the attribute '__class__'"},
           {"{% for x in range(10 ** 9) %}{% endfor %}", "line 2: Range too big"},
           {"{{ raise_exception('Turns must alternate') }}", "Turns must alternate"}}) {
    const std::string file = Write("odd.jinja", "a\n" + text);
    const Outcome outcome = Run(StrCat(command, " --template '", file, "'"));
    EXPECT_EQ(outcome.exit_code, 2) << text;
    EXPECT_EQ(outcome.out, "") << text;
    EXPECT_THAT(outcome.err, HasSubstr(StrCat(file, ": "))) << text;
    EXPECT_THAT(outcome.err, HasSubstr(wanted)) << text;
  }
  EXPECT_EQ(Run(command + " --template-set enable_thinkin=true").exit_code, 2);
  EXPECT_EQ(Run(command + " --template-set nothing").exit_code, 2);
  EXPECT_EQ(Run(command + " --template-date tomorrow").exit_code, 2);
}

TEST_F(CliTest, ReportNamesWhatIsWrong) {
  const Outcome missing = Run("report '" + Path("nowhere.db") + "'");
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("nowhere.db"));
  const Outcome foreign = Run("report '" + Write("text.db", "no database") + "'");
  EXPECT_EQ(foreign.exit_code, 2);
  EXPECT_THAT(foreign.err, HasSubstr("text.db"));
  const Outcome two = Run("report a.db b.db");
  EXPECT_EQ(two.exit_code, 2);
  EXPECT_THAT(two.err, HasSubstr("--compare"));
  EXPECT_EQ(Run("report --compare a.db").exit_code, 2);
  EXPECT_EQ(Run("report a.db --format table --json").exit_code, 2);
  EXPECT_EQ(Run("report a.db b.db --compare --format markdown").exit_code, 2);
}

TEST_F(CliTest, DataGenerateWritesTheSameTextsEachTime) {
  const std::string root = KVG_TEST_DATA "/../configs/tasks/reference/";
  const std::string common = StrCat("data generate --task '", root, "pairs.json' --task '", root,
                                    "tracing.json' --lengths 128,256 --seed 3 --model '",
                                    Model("../../../models/ref-gqa"), "' ");
  const Outcome all = Run(common + "--texts 8");
  ASSERT_EQ(all.exit_code, 0) << all.err;
  EXPECT_EQ(all.out, Run(common + "--texts 8").out);
  EXPECT_NE(all.out, Run(common + "--texts 8 --split eval").out);
  // The tail alone is the tail.
  const Outcome tail = Run(common + "--texts 3 --first 5");
  ASSERT_EQ(tail.exit_code, 0) << tail.err;
  ASSERT_LT(tail.out.size(), all.out.size());
  EXPECT_TRUE(all.out.ends_with(tail.out));
  int texts = 0;
  for (const std::string& line : Split(all.out, '\n')) {
    if (line.empty()) continue;
    const Json text = *ParseJson(line, "text");
    EXPECT_EQ(text["task"], texts++ % 2 == 0 ? "reference/pairs" : "reference/tracing");
    const auto ids = text["ids"].get<std::vector<int>>();
    ASSERT_EQ(text["answers"].size(), text["id_answers"].size());
    EXPECT_LE(ids.size() + 1 + text["answers"].size(), 256u);
    // The bytes and the ids of an answer are the same text.
    for (size_t i = 0; i < text["answers"].size(); ++i) {
      const auto begin = text["answers"][i][0].get<size_t>();
      const auto end = text["answers"][i][1].get<size_t>();
      const std::string answer = text["text"].get<std::string>().substr(begin, end - begin);
      const auto from = text["id_answers"][i][0].get<std::ptrdiff_t>();
      const auto to = text["id_answers"][i][1].get<std::ptrdiff_t>();
      const Json some = std::vector<int>(ids.begin() + from, ids.begin() + to);
      const Outcome words = Run(StrCat("detokenize '", Model("../../../models/ref-gqa"),
                                       "' --json --ids-file '", Write("ids", some.dump()), "'"));
      ASSERT_EQ(words.exit_code, 0) << words.err;
      EXPECT_EQ(Trim((*ParseJson(words.out, "text"))["text"].get<std::string>()), Trim(answer));
    }
  }
  EXPECT_EQ(texts, 8);
  const Outcome other = Run("data generate --texts 1 --task '" + root + "../gsm8k_cot.json'");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("closed_english"));
  EXPECT_THAT(Run(common + "--out x.jsonl").err, HasSubstr("--texts or --tokens"));
}

TEST_F(CliTest, UsageErrorsExitWithTwo) {
  EXPECT_EQ(Run("frobnicate").exit_code, 2);
  EXPECT_EQ(Run("inspect").exit_code, 2);
  EXPECT_EQ(Run("generate x --max-new-tokens -3").exit_code, 2);
  EXPECT_EQ(Run("--version").exit_code, 0);
}

// Weights in blocks stay so, and whoever asks is told; generated tokens are the same.
TEST_F(CliTest, NumbersThatAreRefusedAreToldWhatIsRight) {
  const auto bad = [&](const std::string& arguments, const std::string& message) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << arguments;
  };
  bad("run quickstart --limit abc", "--limit: Value abc, expected a whole number from 1\n");
  bad("run quickstart --limit 1.5", "--limit: Value 1.5, expected a whole number from 1\n");
  bad("leaderboard a.db --margin x", "--margin: Value x, expected a number from 0 to 1\n");
  bad("leaderboard a.db --alpha 0.5", "--alpha: Value 0.5, expected a number from 1e-06 to 0.49\n");
  bad("leaderboard a.db --resamples 7",
      "--resamples: Value 7, expected a whole number from 100 to 1000000\n");
  bad("bench capacity a --per-second 0", "--per-second: Value 0, expected a number from");
  bad("doctor --entries 4096", "--entries requires --check\n");
  bad("generate models/ref-gqa --prompt hi --frames 4", "--frames requires --video\n");
  bad("doctor --check cpu --entries -1", "--entries: Value -1, expected a whole number from 0\n");
  bad("submit --slurm quickstart --shards 2 --db a.db --dry-run -- --limit x",
      "after --: --limit: Value x, expected a whole number from 1\n");
}

TEST_F(CliTest, CommandsBelowACommandAreNamed) {
  const auto bad = [&](const std::string& arguments, const std::string& message) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << arguments;
  };
  bad("bench latancy",
      "unknown command 'latancy' (did you mean 'latency'?); 'kvgauge bench --help'");
  bad("import", "'kvgauge import' has commands of its own; 'kvgauge import --help' lists all");
  EXPECT_EQ(Run("bench latency --help").exit_code, 0);
}

TEST_F(CliTest, WeightsInBlocksStayPacked) {
  const std::string model = std::string(KVG_TEST_DATA) + "/golden/gguf/mixed.gguf";
  const Json packed = Json::parse(Run(StrCat("inspect ", model, " --json")).out);
  const Json unpacked =
      Json::parse(Run(StrCat("inspect ", model, " --json --weights-memory unpacked")).out);
  EXPECT_EQ(packed["weights_memory"], "packed");
  EXPECT_EQ(unpacked["weights_memory"], "unpacked");
  EXPECT_LT(packed["held_weight_bytes"], unpacked["held_weight_bytes"]);
  EXPECT_EQ(packed["fingerprint"], unpacked["fingerprint"]);
  EXPECT_THAT(Run(StrCat("inspect ", model)).out, HasSubstr("held in blocks where products read"));
  EXPECT_THAT(Run("doctor").out, HasSubstr("q8_0, q4_0, q4_k, q6_k are multiplied as they are"));

  const std::string ids = Write("block_ids.json", "[1, 5, 9, 33, 7]");
  const auto generate = [&](const char* flags) {
    return Json::parse(
        Run(StrCat("generate ", model, " --ids-file ", ids, " --max-new-tokens 6 --json", flags))
            .out);
  };
  const Json few = generate(""), many = generate(" --weights-memory unpacked");
  EXPECT_EQ(few["ids"], many["ids"]);
  EXPECT_GT(few["packed_weight_bytes"], 0);
  EXPECT_EQ(many["packed_weight_bytes"], 0);
  EXPECT_LT(few["weight_bytes"], many["weight_bytes"]);
}

// Rows as a quantised directory says are told, kept with a cache, and refused where no file says.
TEST_F(CliTest, ProductRowsOfTheFileAreAChoice) {
  const std::string model = std::string(KVG_TEST_DATA) + "/golden/quantized/ct_int_token";
  const std::string ids = StrCat(" --ids-file ", Write("file_ids.json", "[1, 5, 9, 33, 7]"));
  const auto generate = [&](const std::string& flags) {
    const Outcome outcome = Run(StrCat("generate ", model, " --ignore-stop --json ", flags));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.exit_code == 0 ? Json::parse(outcome.out) : Json();
  };
  const std::string flags = " --max-new-tokens 3 --product-rows file --weights-memory unpacked";
  const Json rounded = generate(StrCat(ids, flags, " --save-cache ", Path("file_rows.kvc")));
  EXPECT_EQ(rounded["product_rows"], "file");
  const std::string load = StrCat(" --max-new-tokens 2 --load-cache ", Path("file_rows.kvc"));
  generate(load + " --product-rows file");

  const auto refused = [&](const std::string& arguments, const std::string& part) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(part)) << arguments;
  };
  refused(StrCat("generate ", model, load), "products by rows of file");
  refused(StrCat("inspect ", model, " --product-rows file --weights random:1"),
          "expected dtype with --weights random:SEED");
  EXPECT_EQ(Run(StrCat("inspect ", model, " --product-rows file")).exit_code, 0);
  for (const std::string& other :
       {Model("llama3"), std::string(KVG_TEST_DATA) + "/golden/gguf/mixed.gguf",
        std::string(KVG_TEST_DATA) + "/golden/quantized/ct_int"}) {
    refused(StrCat("inspect ", other, " --product-rows file"), "'input_activations'");
  }
}

// Rows of 8 bits are asked for by name, told, kept with a cache, and refused where nothing takes
// them.
TEST_F(CliTest, ProductRowsOfEightBitsAreAChoice) {
  const std::string model = std::string(KVG_TEST_DATA) + "/golden/gguf/mixed.gguf";
  const std::string ids = StrCat(" --ids-file ", Write("row_ids.json", "[1, 5, 9, 33, 7]"));
  const auto generate = [&](const std::string& flags) {
    const Outcome outcome = Run(StrCat("generate ", model, " --ignore-stop --json ", flags));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.exit_code == 0 ? Json::parse(outcome.out) : Json();
  };
  const Json plain = generate(ids + " --max-new-tokens 3");
  const Json coded = generate(
      StrCat(ids, " --max-new-tokens 3 --product-rows int8 --save-cache ", Path("rows.kvc")));
  EXPECT_EQ(plain["product_rows"], "dtype");
  EXPECT_EQ(coded["product_rows"], "int8");
  EXPECT_EQ(plain["packed_weight_bytes"], coded["packed_weight_bytes"]);

  const auto refused = [&](const std::string& arguments, const std::string& part) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(part)) << arguments;
  };
  const std::string load = StrCat(" --max-new-tokens 2 --load-cache ", Path("rows.kvc"));
  refused(StrCat("generate ", model, load), "products by rows of int8");
  generate(load + " --product-rows int8");
  refused(StrCat("inspect ", model, " --product-rows int4"), "expected dtype, int8 or file");
  refused(StrCat("inspect ", model, " --product-rows int8 --weights-memory unpacked"),
          "expected dtype with --weights-memory unpacked");
  refused(StrCat("inspect ", model, " --product-rows int8 --weights random:1"),
          "expected dtype with --weights random:SEED");
  for (const char* command : {"inspect ", "generate "}) {
    refused(StrCat(command, Model("llama3"), *command == 'g' ? ids : "", " --product-rows int8"),
            "no matrix stays in blocks of few bits");
  }
}

TEST_F(CliTest, BadInputNamesWhatIsWrong) {
  const std::string llama = Model("llama3");
  const auto expect = [&](const std::string& arguments, const std::string& part) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(part)) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
  };
  expect(StrCat("inspect ", llama, " --dtype f64"), "--dtype: 'f64' is not known");
  expect(StrCat("inspect ", llama, " --weights random"), "expected file or random:SEED");
  expect(StrCat("inspect ", llama, " --weights random:1x"), "expected file or random:SEED");
  expect(StrCat("inspect ", llama, " --weights-memory mapped"), "expected packed or unpacked");
  const std::string one = StrCat(" --ids-file ", Write("one.json", "[1]"));
  expect(StrCat("generate ", llama, one, " --backend cpu:sse9"), "instruction set 'sse9'");
  expect(StrCat("generate ", llama, one, " --backend gpu"), "unknown backend 'gpu'");
  expect(StrCat("generate ", llama), "exactly one of --prompt");
  expect(StrCat("generate ", llama, one, " --top-p 0.5"), "--top-p: expected a --temperature");
  expect(StrCat("generate ", llama, one, " --budget 0.2"), "name one with --method");
  expect(StrCat("generate ", llama, one, " --set score.window=4"), "name one with --method");
  const std::string ids = Write("ids.json", "[1, 2, 99999]");
  expect(StrCat("generate ", llama, " --ids-file ", ids), "element 2: 99999 is not a token id");
  const std::string object = Write("object.json", "{\"ids\": [1]}");
  expect(StrCat("generate ", llama, " --ids-file ", object), "expected one JSON array");
  const std::string broken = Write("broken.json", "[1, 2");
  expect(StrCat("generate ", llama, " --ids-file ", broken), "broken.json");
  expect(StrCat("detokenize '", Model("../../../models/ref-gqa"), "' --ids-file ", ids),
         "element 2: 99999 is not a token id of this model; expected integers in [0, 1792)");
  expect(StrCat("tokenize nowhere --text-file ", one.substr(one.rfind(' ') + 1)),
         "nowhere: no such directory");
  expect(StrCat("inspect ", llama, " --format markdown"), "goes with --families and --shapes");
  expect(StrCat("inspect ", llama, " --image-size big"), "--image-size");
  expect("methods snapkv --stages", "--stages: lists all stages; leave out NAME");
}

TEST_F(CliTest, MissingFilesAreNamedAndBadInput) {
  const std::string llama = Model("llama3"), gone = "/no/such/place";
  const std::string ids = Write("ids.json", "[1]");
  std::filesystem::create_directory(Path("empty"));
  for (const std::string& arguments : {
           StrCat("inspect ", gone),
           StrCat("generate ", gone, " --prompt x"),
           StrCat("generate ", llama, " --ids-file ", gone),
           StrCat("generate ", llama, " --ids-file ", ids, " --method ", gone, ".json"),
           StrCat("logits ", llama, " --ids-file ", gone, " --out l.npy"),
           StrCat("logits ", llama, " --ids-file ", ids, " --out ", gone, "/l.npy"),
           StrCat("probe ", llama, " --method full --ids-file ", gone, " --out p.safetensors"),
           StrCat("probe ", llama, " --method full --ids-file ", ids, " --out ", gone,
                  "/p.safetensors"),
           StrCat("calibrate ", gone, " --method qfilters --text-file x --out y"),
           StrCat("calibrate ", llama, " --method qfilters --ids-file ", gone, " --out y"),
           StrCat("tokenize ", gone, " --text-file ", ids),
           StrCat("tokenize ", Model("../../../models/ref-gqa"), " --text-file ", gone),
           StrCat("sample ", gone, ".json"),
           StrCat("score --metric qa_f1 --pairs ", gone),
           StrCat("data generate --texts 1 --task ", gone, ".json"),
           StrCat("plan ", gone, ".json"),
           StrCat("run ", gone, ".json"),
           StrCat("leaderboard ", gone, ".db"),
           StrCat("show ", gone, ".db 1"),
           StrCat("compare full snapkv --db ", gone, ".db"),
           StrCat("merge out.db ", gone, ".db"),
           StrCat("report ", gone, ".db -o r.html"),
           StrCat("gate --baseline ", gone, ".db --candidate ", gone, ".db"),
       }) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(gone)) << arguments;
  }
  // A directory without what is looked for.
  EXPECT_EQ(Run(StrCat("inspect ", Path("empty"))).exit_code, 2);
}

TEST_F(CliTest, ForcedInstructionSet) {
  ASSERT_EQ(setenv("KVGAUGE_ISA", "portable", 1), 0);
  const Outcome good = Run("doctor --json");
  ASSERT_EQ(setenv("KVGAUGE_ISA", "mmx", 1), 0);
  const Outcome bad = Run("doctor");
  unsetenv("KVGAUGE_ISA");
  EXPECT_EQ((*ParseJson(good.out, "doctor"))["isa"], "portable");
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("KVGAUGE_ISA: instruction set 'mmx'"));
}

TEST_F(CliTest, InspectReportsShapes) {
  const Outcome outcome = Run(StrCat("inspect --json ", Model("llama3")));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = *ParseJson(outcome.out, "inspect");
  EXPECT_EQ(json["family"], "llama");
  EXPECT_EQ(json["kv_bytes_per_token"].get<int64_t>(),
            json["layers"].get<int64_t>() * json["kv_heads"].get<int64_t>() *
                (json["key_dim"].get<int64_t>() + json["value_dim"].get<int64_t>()) * 4);
  EXPECT_EQ(json["fingerprint"].get<std::string>().size(), 64u);
  EXPECT_EQ(json["machine"]["runs"], true);
  EXPECT_EQ(json["machine"]["full_cache_tokens"], json["max_position"]);
  const std::string text = Run(StrCat("inspect ", Model("llama3"))).out;
  EXPECT_THAT(text, HasSubstr("bytes per token"));
  EXPECT_THAT(text, HasSubstr("runs here      yes: this machine has "));
  EXPECT_TRUE(json["encoder"].is_null());
  // One that has an encoder beside its decoder.
  const Json beside = *ParseJson(Run(StrCat("inspect --json ", Model("cepe"))).out, "inspect");
  EXPECT_EQ(beside["encoder"], Json({{"layers", 2},
                                     {"hidden_size", 24},
                                     {"query_heads", 3},
                                     {"cross_layers", 2},
                                     {"chunk_tokens", 256},
                                     {"bytes_per_token", 48}}));
  EXPECT_THAT(Run(StrCat("inspect ", Model("cepe"))).out,
              HasSubstr("2 layers of width 24, 3 heads; chunks of 256 tokens (method cepe), whose "
                        "rows 2 of 3 layers attend to; 48 bytes per token as bf16"));
  EXPECT_TRUE(beside["blocks"].is_null());
  // One with a decoder for blocks and another one for their tokens.
  const Json decoders =
      *ParseJson(Run(StrCat("inspect --json ", Model("block_transformer"))).out, "inspect");
  EXPECT_EQ(decoders["blocks"], Json({{"tokens", 4},
                                      {"rows", 5},
                                      {"given_rows", 2},
                                      {"block_layers", 2},
                                      {"token_layers", 1}}));
  EXPECT_EQ(decoders["kv_bytes_per_token"], 2 * 64 * 2 / 4);
  EXPECT_EQ(decoders["state_bytes"], 5 * 64 * 4);
  EXPECT_THAT(
      Run(StrCat("inspect ", Model("block_transformer"))).out,
      AllOf(HasSubstr("2 layers for blocks of 4 tokens, 1 for 5 rows of each: 2 from the "
                      "block before and 3 tokens"),
            HasSubstr("64 bytes per token as bf16, in 2 of 3 layers, an entry for 4 tokens; "
                      "the other 1 keep the rows of a block")));
  const std::string few = Write("few.json", "[1, 2, 3]");
  const Outcome all =
      Run(StrCat("logits ", Model("block_transformer"), " --ids-file ", few, " --out few.npy"));
  EXPECT_EQ(all.exit_code, 2);
  EXPECT_THAT(all.err, AllOf(HasSubstr("config.json"), HasSubstr("block_length")));
  // A config.json alone is enough for shapes.
  const Outcome shape = Run(StrCat("inspect '", KVG_SOURCE_DIR, "/configs/models/bench-s.json'"));
  EXPECT_EQ(shape.exit_code, 0) << shape.err;
  EXPECT_THAT(shape.out, HasSubstr("none (no weights)"));
}

TEST_F(CliTest, MethodsAreListedAndExplained) {
  const Outcome list = Run("methods");
  ASSERT_EQ(list.exit_code, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("score.snapkv allocate.uniform reduce.top_k store.plain"));
  EXPECT_THAT(list.out, HasSubstr("arXiv:2402.02750"));

  const Outcome one = Run("methods adakv --set allocate.alpha=0.5");
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("allocate.alpha"));
  EXPECT_THAT(one.out, HasSubstr("real in [0, 1], default 0.2"));
  EXPECT_THAT(one.out, HasSubstr("attention of the last 32 rows"));
  EXPECT_THAT(one.out, HasSubstr("departures from the reference"));

  // Names that no file has: by title, by paper, and what the field says of others.
  for (const auto& [name, says] : std::vector<std::pair<std::string, std::string>>{
           {"KIVI", "\n  kivi_2bit: KIVI, 2 bits"},
           {"2402.02750", "\n  kivi_4bit: KIVI, 4 bits"},
           {"wkvquant", "\n  WKVQuant: outside: its scales are learned"},
           {"zeroquant", "\n  ZeroQuant, its cache: here as int8"}}) {
    const Outcome other = Run(StrCat("methods ", name));
    EXPECT_EQ(other.exit_code, 2);
    EXPECT_THAT(other.err, HasSubstr(says)) << name;
  }

  const Outcome json = Run("methods kivi_2bit --json");
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const Result<Json> parsed = ParseJson(json.out, "methods");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ((*parsed)["stages"][0]["values"]["residual"], 128);
  EXPECT_EQ((*parsed)["takes_budget"], false);

  const Outcome stages = Run("methods --stages --json");
  const Result<Json> specs = ParseJson(stages.out, "stages");
  ASSERT_TRUE(specs.ok()) << specs.error().message;
  EXPECT_GT(specs->size(), 20u);

  for (const auto& [arguments, part] : std::vector<std::pair<std::string, std::string>>{
           {"methods snapvk", "did you mean 'snapkv'"},
           {"methods snapkv --set score.windw=2", "did you mean 'window'"},
           {"methods --set score.window=2", "needs the name of a method"}}) {
    const Outcome wrong = Run(arguments);
    EXPECT_EQ(wrong.exit_code, 2) << arguments;
    EXPECT_THAT(wrong.err, HasSubstr(part));
  }
}

TEST_F(CliTest, ListsTasksAndShowsSamples) {
  const Outcome tasks = Run("tasks");
  ASSERT_EQ(tasks.exit_code, 0) << tasks.err;
  EXPECT_THAT(tasks.out, HasSubstr("ready"));
  EXPECT_THAT(tasks.out, HasSubstr("data missing"));
  EXPECT_EQ(Run("sample no_such_task").exit_code, 2);
  // What is lacking besides data is said with it.
  const std::string none = " --data " + Path("none");
  EXPECT_THAT(Run("tasks loogle/longdep_qa_judge" + none).out,
              AllOf(HasSubstr("fetch_data --data"), HasSubstr(" loogle; then needs a judge\n")));
  EXPECT_THAT(Run("tasks bamboo/private_eval_4k" + none).out,
              HasSubstr("; then needs execution\n"));

  const std::string data = " --n 3 --data '" KVG_SOURCE_DIR "/tests/datasets/data'";
  for (const auto& [task, part] : std::vector<std::pair<std::string, std::string>>{
           {"babilong/qa1",
            "</context>\n--- question (at most 20 new tokens)\n\n\nQuestion: Where is "
            "Daniel?\n--- right\n'bathroom'\n"},
           {"lost_in_the_middle/kv_75_query_aware", "below.\n\nKey: \"1a2b3c4d-5e6f"},
           {"lost_in_the_middle/qa_20", "\nDocument [2](Title: Harbour) The harbour"}}) {
    const Outcome sample = Run(StrCat("sample ", task, data));
    EXPECT_EQ(sample.exit_code, 0) << sample.err;
    EXPECT_THAT(sample.out, HasSubstr(part)) << task;
  }
}

// What is not UTF-8 becomes what Python's "replace" makes of it, and is said once.
TEST_F(CliTest, IllFormedTextsAreReplacedAndSaidOnce) {
  const std::string model = StrCat(KVG_TEST_DATA, "/golden/tokenizers/bbpe_gpt2");
  Write("bad.txt", "a\xe2\x82z\xff\xf0\x9f\x98");
  Write("good.txt", "a\ufffdz\ufffd\ufffd");
  const Outcome good = Run(StrCat("tokenize '", model, "' --json --text-file good.txt"));
  ASSERT_EQ(good.exit_code, 0) << good.err;
  EXPECT_EQ(good.err, "");
  const Outcome bad = Run(StrCat("tokenize '", model, "' --json --text-file bad.txt"));
  EXPECT_EQ(bad.exit_code, 0);
  EXPECT_EQ(bad.out, good.out);
  EXPECT_THAT(bad.err, HasSubstr("bad.txt: not UTF-8 at byte 1; 3 ill-formed stretches were "));
  EXPECT_EQ(bad.err.find("not UTF-8"), bad.err.rfind("not UTF-8"));
  const std::string generate = StrCat("generate '", Model("../../../models/ref-gqa"),
                                      "' --max-new-tokens 1 --template none ");
  EXPECT_THAT(Run(generate + "--prompt-file bad.txt").err, HasSubstr("bad.txt: not UTF-8"));
  EXPECT_THAT(Run(generate + "--prompt \"$(printf 'a\\377')\"").err,
              HasSubstr("--prompt: not UTF-8 at byte 1; 1 ill-formed stretch was"));
}

// A sample is shown as its tokens spell it: a checkpoint's clean-up is for answers.
TEST_F(CliTest, SamplesAreShownAsTheyAreFed) {
  Write("lines.jsonl", R"({"q": "is n't ( it ) , or foo(bar) ; ?", "a": "x"})");
  Write("task.json", R"({"name": "lines", "version": 1, "group": "g", "description": "d",
    "citation": "c", "metric": "partial_match",
    "max_new_tokens": 4, "source": {"name": "jsonl", "file": "lines.jsonl", "context": "Say . \n",
                                    "question": "{q}", "answers": "a"}})");
  const Outcome sample = Run(StrCat("sample task.json --data . --template none --model '",
                                    KVG_TEST_DATA, "/golden/tokenizers/bbpe_llama3'"));
  ASSERT_EQ(sample.exit_code, 0) << sample.err;
  EXPECT_THAT(sample.out, HasSubstr("<|begin_of_text|>Say . \nis n't ( it ) , or foo(bar) ; ?\n"));
}

TEST_F(CliTest, LogitsWritesNpy) {
  const std::string ids = Write("ids.json", "[3, 1, 4, 1, 5]");
  const std::string common =
      StrCat("logits ", Model("llama3"), " --dtype f32 --ids-file ", ids, " --out ");
  const Outcome whole = Run(common + Path("a.npy") + " --json");
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const Json json = *ParseJson(whole.out, "logits");
  EXPECT_EQ(json["tokens"], 5);
  const std::string a = *ReadFile(Path("a.npy"));
  const std::string header = StrCat("'shape': (5, ", json["vocab"].get<int64_t>(), ")");
  EXPECT_THAT(a.substr(0, 128), HasSubstr(header));
  ASSERT_EQ(Run(common + Path("b.npy") + " --chunk 2 --threads 1").exit_code, 0);
  EXPECT_TRUE(a == *ReadFile(Path("b.npy"))) << "chunks and threads changed the logits";
}

TEST_F(CliTest, GenerateFromIdsWithoutATokenizer) {
  const std::string ids = Write("ids.json", "[3, 1, 4, 1, 5]");
  const std::string common =
      StrCat("generate ", Model("llama3"), " --max-new-tokens 6 --ignore-stop --ids-file ", ids);
  const Outcome text = Run(common);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.err, HasSubstr("tokens/s"));
  EXPECT_THAT(text.err, HasSubstr("payload"));
  const Json json = *ParseJson(Run(common + " --json").out, "generate");
  EXPECT_EQ(json["ids"].size(), 6u);
  EXPECT_GT(json["cache_payload_bytes"].get<int64_t>(), 0);
  const Json sampled = *ParseJson(Run(common + " --json --temperature 5 --seed 1").out, "generate");
  const Json again = *ParseJson(Run(common + " --json --temperature 5 --seed 1").out, "generate");
  const Json other = *ParseJson(Run(common + " --json --temperature 5 --seed 2").out, "generate");
  EXPECT_EQ(sampled["ids"], again["ids"]);
  EXPECT_NE(sampled["ids"], other["ids"]);
  const Outcome no_tokenizer = Run(StrCat("generate ", Model("llama3"), " --prompt hello"));
  EXPECT_EQ(no_tokenizer.exit_code, 2);
  EXPECT_THAT(no_tokenizer.err, HasSubstr("no tokenizer"));
}

TEST_F(CliTest, GenerateWithAMethod) {
  std::vector<int> numbers;
  for (int i = 0; i < 120; ++i) numbers.push_back(3 + i * 7 % 50);
  const std::string ids = Write("ids.json", Json(numbers).dump());
  const std::string common =
      StrCat("generate ", Model("llama3"), " --max-new-tokens 6 --ignore-stop --ids-file ", ids);
  const std::string method = " --method snapkv --budget 50% --set score.window=8";
  const Outcome text = Run(common + method);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.err, HasSubstr("snapkv"));
  EXPECT_THAT(text.err, HasSubstr("engaged"));
  EXPECT_THAT(text.err, HasSubstr("60 of 120 a head"));
  const Json json = *ParseJson(Run(common + method + " --json").out, "generate");
  const Json& record = json["method"]["record"];
  EXPECT_EQ(record["engagement"], "engaged");
  EXPECT_EQ(record["nominal_bytes"].get<int64_t>() * 2, record["full_bytes"].get<int64_t>());
  EXPECT_EQ(record["entries_after"][0][0], 60);
  // The full cache by way of the engine answers as it does without.
  const Json plain = *ParseJson(Run(common + " --json").out, "generate");
  const Json full = *ParseJson(Run(common + " --method full --json").out, "generate");
  EXPECT_EQ(plain["ids"], full["ids"]);
  EXPECT_EQ(plain["method"], nullptr);

  const Outcome unknown = Run(common + " --method snapkw");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("snapkv"));
  const Outcome no_budget = Run(common + " --method snapkv --budget lots");
  EXPECT_EQ(no_budget.exit_code, 2);
  EXPECT_THAT(no_budget.err, HasSubstr("lots"));
}

TEST_F(CliTest, ProbeWritesWhatIsHeld) {
  std::vector<int> numbers;
  for (int i = 0; i < 100; ++i) numbers.push_back(3 + i * 7 % 50);
  const std::string ids = Write("ids.json", Json(numbers).dump());
  const std::string common = StrCat("probe ", Model("llama3"), " --ids-file ", ids,
                                    " --method random --budget 0.4 --set protect.recent=4 --out ");
  const Outcome outcome = Run(common + Path("a.safetensors"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("40 of 100 a head"));
  const std::string file = *ReadFile(Path("a.safetensors"));
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  const Json header = *ParseJson(file.substr(8, length), "header");
  EXPECT_EQ(header["kept.0.0"]["shape"], Json({40}));
  EXPECT_EQ(header["kept.0.0"]["dtype"], "I64");
  EXPECT_EQ(header["k.0.0"]["shape"][0], 40);
  EXPECT_EQ(header["v.1.1"]["dtype"], "F32");
  EXPECT_EQ(header["__metadata__"]["prompt_tokens"], "100");
  const Json record = *ParseJson(header["__metadata__"]["record"].get<std::string>(), "record");
  EXPECT_EQ(record["entries_after"][1][0], 40);
  // Ascending original positions; the last ones are protected.
  const size_t begin = 8 + length + header["kept.0.0"]["data_offsets"][0].get<size_t>();
  std::vector<int64_t> kept(40);
  std::memcpy(kept.data(), file.data() + begin, kept.size() * sizeof(int64_t));
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
  EXPECT_EQ(kept[36], 96);
  EXPECT_EQ(kept[39], 99);
  // With steps, the answer's entries follow.
  ASSERT_EQ(Run(common + Path("b.safetensors") + " --steps 3").exit_code, 0);
  const std::string longer = *ReadFile(Path("b.safetensors"));
  std::memcpy(&length, longer.data(), sizeof(length));
  const Json after = *ParseJson(longer.substr(8, length), "header");
  EXPECT_EQ(after["kept.0.0"]["shape"], Json({43}));
  EXPECT_EQ(ParseJson(after["__metadata__"]["decoded"].get<std::string>(), "ids")->size(), 3u);
}

TEST_F(CliTest, RandomWeightsNeedOnlyAConfig) {
  const std::string config = StrCat(Model("llama3"), "/config.json");
  std::filesystem::copy(config, Path("config.json"));
  const std::string ids = Write("ids.json", "[1, 2]");
  const std::string common = StrCat("generate ", directory_, " --max-new-tokens 8 --ignore-stop",
                                    " --json --ids-file ", ids, " --weights random:");
  const Json one = *ParseJson(Run(common + "7").out, "generate");
  const Json two = *ParseJson(Run(common + "7").out, "generate");
  const Json three = *ParseJson(Run(common + "8").out, "generate");
  EXPECT_EQ(one["ids"], two["ids"]);
  EXPECT_NE(one["ids"], three["ids"]);
  // Without the flag the weights are missed, by name.
  const Outcome outcome = Run(StrCat("inspect ", directory_));
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("model.safetensors"));
}

}  // namespace
}  // namespace kvgauge
