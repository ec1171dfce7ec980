// SPDX-License-Identifier: Apache-2.0
// calibrate, and methods that name what it wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "cli/program.h"
#include "core/files.h"
#include "core/json.h"
#include "core/rng.h"
#include "core/strings.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CalibrateTest : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    Rng rng(3, 1);
    Json texts = Json::array();
    for (const int length : {150, 90, 130}) {
      Json ids = Json::array();
      for (int i = 0; i < length; ++i) ids.push_back(rng.NextBelow(200));
      texts.push_back(ids);
    }
    std::ofstream(Path("texts.json")) << texts.dump();
    std::ofstream(Path("prompt.json")) << texts[0].dump();
  }
  static std::string Model(const std::string& name) {
    return StrCat(KVG_TEST_DATA, "/golden/models/", name);
  }

  Outcome Calibrate(const std::string& method, const std::string& out,
                    const std::string& more = "") const {
    return Run(StrCat("calibrate ", Model("llama3"), " --method ", method, " --ids-file ",
                      Path("texts.json"), " --out ", Path(out), " ", more));
  }
  Outcome Probe(const std::string& model, const std::string& method,
                const std::string& more) const {
    return Run(StrCat("probe ", Model(model), " --method ", method, " --ids-file ",
                      Path("prompt.json"), " --out ", Path("probe.safetensors"), " --json ", more));
  }

  std::string directory_;
};

TEST_F(CalibrateTest, WritesTheSameFileAgainAndMethodsUseIt) {
  const Outcome made = Calibrate("kvquant", "a.safetensors", "--json --threads 1");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Json told = *ParseJson(made.out, "out");
  EXPECT_EQ(told["stage"], "store.kvquant");
  EXPECT_EQ(told["texts"], 3);
  EXPECT_EQ(told["tokens"], 370);
  const Outcome again = Calibrate("kvquant", "b.safetensors", "--threads 2");
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, AllOf(HasSubstr("--set store.calibration="),
                               HasSubstr(told["sha256"].get<std::string>())));
  EXPECT_EQ(*ReadFile(Path("a.safetensors")), *ReadFile(Path("b.safetensors")));

  const Outcome with =
      Probe("llama3", "kvquant", "--set store.calibration=" + Path("a.safetensors"));
  ASSERT_EQ(with.exit_code, 0) << with.err;
  const Json probe = *ParseJson(with.out, "probe");
  EXPECT_EQ(probe["method"]["stages"]["store"]["params"]["calibration"],
            "sha256:" + told["sha256"].get<std::string>());
  const Outcome without = Probe("llama3", "kvquant", "");
  ASSERT_EQ(without.exit_code, 0) << without.err;
  const Json plain = *ParseJson(without.out, "probe");
  // Ranges are constants of the model now, not scales of the sequence.
  const Json& bytes = probe["record"]["bytes"];
  const Json& plain_bytes = plain["record"]["bytes"];
  EXPECT_GT(bytes["codebooks"], plain_bytes["codebooks"]);
  EXPECT_LT(bytes["scales"], plain_bytes["scales"]);
}

TEST_F(CalibrateTest, ChangesWeightsByWhatItSaw) {
  const std::string small = "--set prepare.group=2 --set prepare.multiple=2";
  ASSERT_EQ(Calibrate("palu", "p.safetensors", small).exit_code, 0);
  const std::string named = StrCat(small, " --set prepare.calibration=", Path("p.safetensors"));
  EXPECT_EQ(Probe("llama3", "palu", named).exit_code, 0);
  const Outcome energy = Probe("llama3", "palu", named + " --set prepare.ranks=energy");
  EXPECT_EQ(energy.exit_code, 0) << energy.err;
  const Outcome other =
      Probe("llama3", "palu",
            StrCat("--set prepare.group=1 --set prepare.calibration=", Path("p.safetensors")));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr(R"({"group":2})"), HasSubstr(R"({"group":1})")));
}

// The printed flags are all that it takes, as a shell takes them, whatever the stage needs to read
// the file.
TEST_F(CalibrateTest, PrintsTheFlagsThatUseTheFile) {
  const std::string mark = "use ";
  for (const auto& [id, sets] : std::vector<std::pair<std::string, std::string>>{
           {"quarot", ""},
           {"spinquant", "--set store.key_basis=learned"},
           {"flatquant", "--set store.key_bits=8 --set store.raw_keys=true"},
           {"palu", "--set prepare.group=2 --set prepare.multiple=2"},
           {"residual_vq", "--set store.key_bits=2 --set store.value_bits=2"},
           {"leank", ""},
           {"kvquant", ""}}) {
    const Outcome made = Calibrate(id, "'made here.safetensors'", sets);
    ASSERT_EQ(made.exit_code, 0) << id << ": " << made.err;
    const size_t line = made.out.rfind(mark);
    ASSERT_NE(line, std::string::npos) << made.out;
    const std::string flags(Trim(made.out.substr(line + mark.size())));
    const Outcome with = Probe("llama3", id, flags);
    ASSERT_EQ(with.exit_code, 0) << id << " " << flags << ": " << with.err;
    const Json stages = (*ParseJson(with.out, "probe"))["method"]["stages"];
    const Json& params = stages[id == "palu" ? "prepare" : "store"]["params"];
    EXPECT_THAT(params["calibration"].get<std::string>(), HasSubstr("sha256:")) << id;
    if (!params.contains("key_basis")) continue;
    EXPECT_EQ(params["key_basis"], "learned") << id;
    EXPECT_EQ(params["value_basis"], id == "spinquant" ? "signed_hadamard" : "learned") << id;
  }
}

// What a stage refuses to do without is what it is about to learn.
TEST_F(CalibrateTest, LearnsWhatAStageCannotDoWithout) {
  for (const auto& [id, sets] : std::vector<std::pair<std::string, std::string>>{
           {"residual_vq", "--set store.key_bits=2 --set store.value_bits=2"},
           {"commvq", "--set store.key_bits=2 --set store.key_stages=2"},
           {"leank", ""}}) {
    const Outcome made = Calibrate(id, "made.safetensors", sets);
    ASSERT_EQ(made.exit_code, 0) << id << ": " << made.err;
    const Outcome with =
        Probe("llama3", id, StrCat(sets, " --set store.calibration=", Path("made.safetensors")));
    EXPECT_EQ(with.exit_code, 0) << id << ": " << with.err;
  }
  // What is wrong about the stage otherwise is said as before.
  EXPECT_THAT(Calibrate("residual_vq", "x", "--set store.key_width=3").err,
              HasSubstr("key_width 3 does not divide"));
}

class ImportTest : public CalibrateTest {
 protected:
  static std::string Golden(const std::string& name) {
    return StrCat(KVG_TEST_DATA, "/golden/methods/", name);
  }
  Outcome Import(const std::string& method, const std::string& file,
                 const std::string& model = Golden("model")) const {
    return Run(StrCat("calibrate ", model, " --method ", method, " --import ", file, " --out ",
                      Path("imported.safetensors")));
  }
  // The tables of a side-file.
  static std::map<std::string, std::vector<float>> Tables(const std::string& path) {
    const std::string file = *ReadFile(path);
    uint64_t size = 0;
    std::memcpy(&size, file.data(), sizeof(size));
    const Json header = *ParseJson(file.substr(sizeof(size), size), path);
    std::map<std::string, std::vector<float>> tables;
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
      std::vector<float>& table = tables[name];
      table.resize((end - begin) / sizeof(float));
      std::memcpy(table.data(), file.data() + sizeof(size) + size + begin, end - begin);
    }
    return tables;
  }
  // One tensor of f32 numbers.
  std::string WriteTensor(const std::string& name, const std::vector<int64_t>& dims,
                          const std::vector<float>& values) const {
    const Json entry = {
        {"dtype", "F32"}, {"shape", dims}, {"data_offsets", {0, values.size() * sizeof(float)}}};
    const std::string header = Json{{name, entry}}.dump();
    const uint64_t size = header.size();
    std::string file(reinterpret_cast<const char*>(&size), sizeof(size));
    file += header;
    file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    return Write("published.safetensors", file);
  }
};

// Weights in the published layout, for the methods that read them.
TEST_F(ImportTest, MakesASideFileOfPublishedWeights) {
  const std::pair<const char*, std::string> cases[] = {
      {"kvzap", Golden("inputs/kvzap_mlp.safetensors")},
      {"kvzap_linear", Golden("inputs/kvzap_linear.safetensors")},
      {"fastkvzip", Golden("inputs/fastkvzip.safetensors")}};
  for (const auto& [method, file] : cases) {
    const Outcome made = Import(method, file);
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_THAT(made.out, AllOf(HasSubstr("imported"), HasSubstr("--set score.calibration=")));
    const Outcome with =
        Run(StrCat("probe ", Golden("model"), " --method ", method, " --budget 20% --ids-file ",
                   Path("prompt.json"), " --out ", Path("probe.safetensors"),
                   " --json --set score.calibration=", Path("imported.safetensors")));
    ASSERT_EQ(with.exit_code, 0) << with.err;
    // The gate's weights are bytes of the method.
    EXPECT_GT((*ParseJson(with.out, "probe"))["record"]["bytes"]["projections"], 0);
  }
}

// The sign of the published filters is turned: their score is minus the product.
TEST_F(ImportTest, TurnsPublishedFilters) {
  std::vector<float> filters(4 * 2 * 32);
  for (size_t i = 0; i < filters.size(); ++i) filters[i] = static_cast<float>(i) - 100.0f;
  const Outcome made = Import("qfilters", WriteTensor("q_filters", {4, 2, 32}, filters));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::string file = *ReadFile(Path("imported.safetensors"));
  const auto floats = [&](size_t at) {
    float value = 0;
    std::memcpy(&value, file.data() + file.size() - (filters.size() - at) * sizeof(float),
                sizeof(value));
    return value;
  };
  EXPECT_EQ(floats(0), 100.0f);
  EXPECT_EQ(floats(filters.size() - 1), 100.0f - static_cast<float>(filters.size() - 1));
}

TEST_F(ImportTest, ReadsPublishedGatesOfHeads) {
  const std::string rows =
      Write("full_attention_heads.tsv", "0.1\t0.9\n1.0\t0.0\n0.5\t0.5\n0\t1\n");
  const Outcome made = Import("duo_attention", rows);
  EXPECT_EQ(made.exit_code, 0) << made.err;
}

// The tuples of KVQuant's quantizers: levels are put in order and normalized, edges stay.
TEST_F(ImportTest, ReadsPublishedQuantizers) {
  const std::string published = Golden("inputs/kvquant_published.safetensors");
  const Outcome made = Import("kvquant --set store.bits=2 --set store.norm=true", published);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(Tables(Path("imported.safetensors")), Tables(Golden("inputs/kvquant.safetensors")));
  const Outcome plain = Import("kvquant --set store.bits=2", published);
  EXPECT_EQ(plain.exit_code, 2);
  EXPECT_THAT(plain.err, HasSubstr("was made with Q-Norm; set norm=true"));
  const Outcome bits = Import("kvquant --set store.bits=3 --set store.norm=true", published);
  EXPECT_EQ(bits.exit_code, 2);
  EXPECT_THAT(bits.err, HasSubstr("[4], this model needs [8]"));
  const Outcome other = Import("kvquant", Golden("inputs/kvzap_mlp.safetensors"));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("has no tensor 'model.layers.0.self_attn.k_proj.0'"));
}

// Heads that read queries, keys and values become maps of the layers' inputs.
TEST_F(ImportTest, PutsHeadsBehindTheModelsProjections) {
  const std::string published = Golden("inputs/locret_published.safetensors");
  const Outcome made = Import("locret --set score.inner=8", published);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto got = Tables(Path("imported.safetensors"));
  const auto want = Tables(Golden("inputs/locret.safetensors"));
  ASSERT_EQ(got.size(), 16u);
  for (const auto& [name, table] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_TRUE(AllWithin(got.at(name), table, 1e-5)) << name;
  }
  const Outcome inner = Import("locret", published);
  EXPECT_EQ(inner.exit_code, 2);
  EXPECT_THAT(inner.err, HasSubstr("'layers.0.0.bias' has shape [8], this model needs [1024]"));
  const Outcome other = Import("locret --set score.inner=8", published, Model("llama3"));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("'model.layers.0.self_attn.fc1.weight' is not [inner, "));
  const Outcome gate = Import("locret", Golden("inputs/kvzap_mlp.safetensors"));
  EXPECT_EQ(gate.exit_code, 2);
  EXPECT_THAT(gate.err, HasSubstr("has no tensor 'model.layers.0.self_attn.fc1.weight'"));
}

// Kernels of each layer: those of queries, and of keys, as they are.
TEST_F(ImportTest, ReadsKernelsOfAState) {
  const std::string published = Golden("inputs/less_published.safetensors");
  const auto import = [&](const std::string& model, const std::string& sizes) {
    return Run(StrCat("calibrate ", Model(model), " --method less --import ", published, " --out ",
                      Path("imported.safetensors"), " ", sizes));
  };
  const std::string sizes = "--set read.inner=8 --set read.rank=3";
  const Outcome made = import("llama2", sizes);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(Tables(Path("imported.safetensors")), Tables(Golden("inputs/less.safetensors")));
  const Outcome inner = import("llama2", "--set read.rank=3");
  EXPECT_EQ(inner.exit_code, 2);
  EXPECT_THAT(inner.err, HasSubstr("this model needs [6, 8, 512]"));
  const Outcome other = import("llama3", sizes);
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("tensor '0.kernel_q_mat1' is not ["));
  const Outcome gate = Import("less", Golden("inputs/kvzap_mlp.safetensors"));
  EXPECT_EQ(gate.exit_code, 2);
  EXPECT_THAT(gate.err, HasSubstr("has no tensor '0.kernel_q_mat2'"));
}

// The LoRA of tokens behind chunks, as PEFT saves it.
TEST_F(ImportTest, ReadsAdaptersOfTokensBehindChunks) {
  const auto import = [&](const std::string& model, const std::string& memory,
                          const std::string& file, const std::string& sizes) {
    return Run(StrCat("calibrate ", Model(model), " --method ccm_", memory, " --import ", file,
                      " --out ", Path("imported.safetensors"), " --set thin.tokens=", sizes));
  };
  for (const auto& [memory, sizes] : {std::pair("concat", "2"), std::pair("merge", "3")}) {
    const std::string published = Golden(StrCat("inputs/ccm_", memory, "_published.safetensors"));
    const std::string rank = StrCat(sizes, " --set thin.rank=3");
    const Outcome made = import("llama2", memory, published, rank);
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_EQ(Tables(Path("imported.safetensors")),
              Tables(Golden(StrCat("inputs/ccm_", memory, ".safetensors"))));
    const Outcome other_rank = import("llama2", memory, published, sizes);
    EXPECT_EQ(other_rank.exit_code, 2);
    EXPECT_THAT(other_rank.err, HasSubstr("[3, 48], this model needs [16, 48]"));
    const Outcome other_model = import("llama3", memory, published, rank);
    EXPECT_EQ(other_model.exit_code, 2);
    EXPECT_THAT(other_model.err, HasSubstr("this model needs"));
  }
  const std::string query = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
  const std::vector<float> numbers(3 * 48, 0.5f);
  const Outcome bare =
      import("llama2", "concat", WriteTensor(query, {3, 48}, numbers), "2 --set thin.rank=3");
  EXPECT_EQ(bare.exit_code, 2);
  EXPECT_THAT(bare.err, HasSubstr("embed_tokens.comp_embeddings.weight', the embeddings"));
  const Outcome nan =
      import("llama2", "concat", WriteTensor(query, {3, 48}, std::vector<float>(144, NAN)), "2");
  EXPECT_EQ(nan.exit_code, 2);
  EXPECT_THAT(nan.err, HasSubstr("holds NaN or infinity"));
  // A side-file belongs to one checkpoint, and is read before any token.
  const Outcome probe = Probe(
      "llama3", "ccm_concat",
      StrCat("--set thin.rank=3 --set thin.calibration=", Golden("inputs/ccm_concat.safetensors")));
  EXPECT_EQ(probe.exit_code, 2);
  EXPECT_THAT(probe.err, HasSubstr("ccm_concat.safetensors"));
}

TEST_F(ImportTest, NamesRetentionGates) {
  const Outcome made =
      Import("trimkv --set score.inner=8", Golden("inputs/trimkv_published.safetensors"));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(Tables(Path("imported.safetensors")), Tables(Golden("inputs/trimkv.safetensors")));
  const Outcome other =
      Import("trimkv --set score.inner=8", Golden("inputs/kvzap_mlp.safetensors"));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("no tensor 'model.layers.0.self_attn.retention_gate.linear1"));
}

// A checkpoint holds more than the predictor.
TEST_F(ImportTest, TakesAPredictorOutOfACheckpoint) {
  const std::string published = Golden("inputs/dynamic_llava_published.safetensors");
  const std::string small =
      "dynamic_llava --set thin.width=16 --set thin.heads=2 --set thin.inner=32";
  const Outcome made = Import(small, published);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(Tables(Path("imported.safetensors")),
            Tables(Golden("inputs/dynamic_llava.safetensors")));
  const Outcome wide = Import("dynamic_llava --set thin.heads=2 --set thin.inner=32", published);
  EXPECT_EQ(wide.exit_code, 2);
  EXPECT_THAT(wide.err, HasSubstr("this model needs [512"));
  const Outcome other = Import(small, Golden("inputs/kvzap_mlp.safetensors"));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("no tensor whose name begins with 'model.image_score_predic"));
}

// The same checkpoint has the predictor of decoded tokens.
TEST_F(ImportTest, TakesThePredictorOfDecodedTokens) {
  const std::string published = Golden("inputs/dynamic_llava_published.safetensors");
  const Outcome made = Import("dynamic_llava_text --set score.width=16", published);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(Tables(Path("imported.safetensors")),
            Tables(Golden("inputs/dynamic_llava_text.safetensors")));
  const Outcome wide = Import("dynamic_llava_text", published);
  EXPECT_EQ(wide.exit_code, 2);
  EXPECT_THAT(wide.err, HasSubstr("this model needs [512"));
  const Outcome odd = Import("dynamic_llava_text --set score.width=18", published);
  EXPECT_EQ(odd.exit_code, 2);
  EXPECT_THAT(odd.err, HasSubstr("width is 18; expected a multiple of 4"));
  const Outcome other =
      Import("dynamic_llava_text --set score.width=16", Golden("inputs/kvzap_mlp.safetensors"));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("begins with 'model.output_text_score_predictor.'"));
}

TEST_F(ImportTest, ReadsPublishedCurves) {
  const std::vector<float> curve(99 * 4 * 2, 0.5f);
  const Outcome made = Import("lukv --stage allocate", WriteTensor("curve", {99, 4, 2}, curve));
  EXPECT_EQ(made.exit_code, 0) << made.err;
  const Outcome other =
      Import("lukv --stage allocate", WriteTensor("curve", {99, 4, 4}, std::vector<float>(1584)));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("this model needs [99, 4, 2]"));
  const Outcome named = Import("lukv --stage allocate", WriteTensor("ratios", {99, 4, 2}, curve));
  EXPECT_EQ(named.exit_code, 2);
  EXPECT_THAT(named.err, HasSubstr("has no tensor 'curve' [99, layers, kv_heads]"));
}

// The authors' layout: a list of layers, of each the heads by number.
TEST_F(ImportTest, ReadsBestPatterns) {
  const auto file = [&](int layers, const std::string& odd) {
    const std::string lines = R"(["vertical_and_slash", 30, 800, 0.9])";
    std::vector<std::string> list;
    for (int layer = 0; layer < layers; ++layer) {
      list.push_back(StrCat(R"({"0": )", lines, R"(, "1": ["stream_llm", 100, 800, 0.8], "2": )",
                            lines, R"(, "3": )", layer == 1 ? odd : lines, "}"));
    }
    return Write("patterns.json", StrCat("[", Join(list, ", "), "]"));
  };
  const Outcome made = Import("minference", file(4, R"(["block_sparse", 1000, 6096, 1])"));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Outcome short_by_one = Import("minference", file(3, R"(["block_sparse", 1000, 6096, 1])"));
  EXPECT_EQ(short_by_one.exit_code, 2);
  EXPECT_THAT(short_by_one.err, HasSubstr("this model needs [4, 4, 2]"));
  const Outcome unknown = Import("minference", file(4, R"(["dense", 1, 1, 1])"));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("has a pattern 'dense'"));
  const Outcome negative = Import("minference", file(4, R"(["stream_llm", -1, 1, 1])"));
  EXPECT_EQ(negative.exit_code, 2);
  EXPECT_THAT(negative.err, HasSubstr("layer 1, head 3: expected a name and two numbers"));
}

TEST_F(ImportTest, RefusesWhatIsOfAnotherModel) {
  const std::string mlp = Golden("inputs/kvzap_mlp.safetensors");
  const Outcome kind = Import("kvzap_linear", mlp);
  EXPECT_EQ(kind.exit_code, 2);
  EXPECT_THAT(kind.err, HasSubstr("has no table 'layers.0.bias'"));
  EXPECT_EQ(Import("kvzap", mlp, Model("llama3")).exit_code, 2);
  const Outcome filters =
      Import("qfilters", WriteTensor("q_filters", {5, 2, 32}, std::vector<float>(320)));
  EXPECT_EQ(filters.exit_code, 2);
  EXPECT_THAT(filters.err, HasSubstr("this model has 4 layers"));
  const Outcome broken = Import("qfilters", WriteTensor("q_filters", {1, 1, 1}, {std::nanf("")}));
  EXPECT_EQ(broken.exit_code, 2);
  EXPECT_THAT(broken.err, HasSubstr("holds NaN or infinity"));
  const Outcome rows = Import("duo_attention", Write("heads.tsv", "1 2\n3\n"));
  EXPECT_EQ(rows.exit_code, 2);
  EXPECT_THAT(rows.err, HasSubstr("row 2 has 1 numbers, row 1 has 2"));
  const Outcome few = Import("duo_attention", Write("heads.tsv", "1 2\n3 4\n"));
  EXPECT_EQ(few.exit_code, 2);
  EXPECT_THAT(few.err, HasSubstr("'heads'"));
  EXPECT_THAT(Import("palu", mlp).err, HasSubstr("nothing that is published fits prepare.palu"));
  const Outcome text = Calibrate("kvzap", "a.safetensors");
  EXPECT_EQ(text.exit_code, 2);
  EXPECT_THAT(text.err, HasSubstr("--import"));
  const Outcome without = Probe("llama3", "kvzap", "--budget 20%");
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_THAT(without.err, HasSubstr("calibration names no side-file"));
}

TEST_F(CalibrateTest, RefusesWhatDoesNotBelong) {
  ASSERT_EQ(Calibrate("kvquant", "a.safetensors").exit_code, 0);
  const std::string named = "--set store.calibration=" + Path("a.safetensors");
  const Outcome stranger = Probe("llama_bias", "kvquant", named);
  EXPECT_EQ(stranger.exit_code, 2);
  EXPECT_THAT(stranger.err, HasSubstr("was made on model llama3 ("));
  EXPECT_THAT(stranger.err, HasSubstr("and this model is "));
  EXPECT_THAT(Probe("llama3", "kvquant", named + " --set store.bits=2").err,
              AllOf(HasSubstr("\"bits\":4"), HasSubstr("\"bits\":2")));
  const Outcome wrong =
      Probe("llama3", "palu", "--set prepare.calibration=" + Path("a.safetensors"));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("was made for store.kvquant, not for prepare.palu"));
  // A probe's file is no calibration, and neither is half of one.
  const Outcome probe =
      Probe("llama3", "kvquant", "--set store.calibration=" + Path("probe.safetensors"));
  EXPECT_NE(probe.exit_code, 0);
  ASSERT_EQ(Probe("llama3", "full", "").exit_code, 0);
  const Outcome foreign =
      Probe("llama3", "kvquant", "--set store.calibration=" + Path("probe.safetensors"));
  EXPECT_EQ(foreign.exit_code, 2);
  EXPECT_THAT(foreign.err, HasSubstr("kvgauge_calibration"));
  const std::string whole = *ReadFile(Path("a.safetensors"));
  std::ofstream(Path("half"), std::ios::binary) << whole.substr(0, whole.size() / 2);
  EXPECT_EQ(Probe("llama3", "kvquant", "--set store.calibration=" + Path("half")).exit_code, 2);
}

TEST_F(CalibrateTest, NamesWhatIsWrong) {
  const Outcome nothing = Calibrate("snapkv", "x");
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("no stage that learns"));
  EXPECT_THAT(Calibrate("kvquant", "x", "--stage prepare").err, HasSubstr("expected store"));
  EXPECT_THAT(Calibrate("kvquant", "x", "--text-file y").err, HasSubstr("exactly one of"));
  const Outcome few = Calibrate("kvquant", "x", "--limit 1 --set store.bits=7");
  EXPECT_THAT(few.err, HasSubstr("bits"));
  std::ofstream(Path("texts.json")) << "[[1, 2, 3], [4]]";
  EXPECT_THAT(Calibrate("kvquant", "x").err, HasSubstr("holds 4 tokens, too few"));
  std::ofstream(Path("texts.json")) << "[[1, 2, 3], [4, -1]]";
  EXPECT_THAT(Calibrate("kvquant", "x").err, HasSubstr("text 1: element 1"));
  // Keys that are normed after their projection lie in no basis of it.
  const Outcome normed =
      Run(StrCat("calibrate ", Model("qwen3"), " --method palu --set prepare.group=0 --ids-file ",
                 Path("prompt.json"), " --out ", Path("x")));
  EXPECT_EQ(normed.exit_code, 2);
  EXPECT_THAT(normed.err, HasSubstr("normed after their projection"));
  EXPECT_FALSE(FileExists(Path("x")));
}

}  // namespace
}  // namespace kvgauge
