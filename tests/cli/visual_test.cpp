// SPDX-License-Identifier: Apache-2.0
// Pictures and videos on the command line: what is shown, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "cli/program.h"
#include "core/json.h"
#include "core/strings.h"
#include "images/drawn.h"
#include "images/encode.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliVisual : public ProgramTest {
 protected:
  static std::string Model(const std::string& name) {
    return StrCat(KVG_TEST_DATA, "/golden/vision/", name);
  }
  static Json Case(const std::string& model, const std::string& name) {
    return (*ReadJsonFile(Model(model) + "/made_by.json"))["cases"][name];
  }
  std::string WriteIds(const Json& c) const { return Write("ids.json", c["ids"].dump()); }
  std::string WritePicture(const std::string& name, const Json& drawn) const {
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
    return Write(name, EncodePpm(Drawn(drawn[0], drawn[1], drawn[2])));
  }
  // generate with the ids of a case and whatever shows its pictures.
  Outcome Generate(const std::string& model, const Json& c, const std::string& shown) const {
    WriteIds(c);
    return Run(StrCat("generate '", Model(model), "' --ids-file ids.json --json --dtype f32 ",
                      "--max-new-tokens 8 --ignore-stop ", shown));
  }
  void ExpectRefused(const Outcome& outcome, const std::vector<std::string>& words) const {
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    for (const std::string& word : words) EXPECT_THAT(outcome.err, HasSubstr(word));
  }
};

TEST_F(CliVisual, PicturesAreAnsweredAsByTheReference) {
  for (const char* model : {"llava", "qwen2_5_vl", "gemma3_wide"}) {
    SCOPED_TRACE(model);
    const Json c = Case(model, "one");
    WritePicture("a.ppm", c["pictures"][0]);
    const Outcome outcome = Generate(model, c, "--image a.ppm");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const Json answer = *ParseJson(outcome.out, "out");
    EXPECT_EQ(answer["visual_tokens"], c["rows"][0]);
    const auto want = c["greedy"].get<std::vector<int32_t>>();
    EXPECT_EQ(answer["ids"].get<std::vector<int32_t>>(),
              std::vector<int32_t>(want.begin(), want.begin() + 8));
  }
}

TEST_F(CliVisual, FoldersOfFramesAreVideos) {
  const Json c = Case("qwen2_vl", "video");
  for (size_t i = 0; i < c["pictures"].size(); ++i) {
    WritePicture(StrCat("frames/", i, ".ppm"), c["pictures"][i]);
  }
  const std::string shown = StrCat("--video frames --frames ", c["pictures"].size(), " ");
  // The reference puts text behind the sides of a video.
  const Outcome sides = Generate("qwen2_vl", c, shown + "--video-next sides");
  ASSERT_EQ(sides.exit_code, 0) << sides.err;
  const auto want = c["greedy"].get<std::vector<int32_t>>();
  EXPECT_EQ((*ParseJson(sides.out, "out"))["ids"].get<std::vector<int32_t>>(),
            std::vector<int32_t>(want.begin(), want.begin() + 8));
  EXPECT_EQ(Generate("qwen2_vl", c, shown).exit_code, 0);
  // Frames that join are shown once.
  const Outcome joined =
      Generate("qwen2_vl", c,
               shown + "--method streammem --budget 100% --set score.window=1 --set see.above=-1");
  ASSERT_EQ(joined.exit_code, 0) << joined.err;
  const Json once = *ParseJson(joined.out, "out");
  EXPECT_EQ(once["visual_tokens"], 4);
  EXPECT_EQ(once["visual_tokens_taken_out"], 4);
  EXPECT_EQ(once["method"]["record"]["engagement"], "engaged");
  ExpectRefused(Generate("qwen2_vl", c, "--video frames --frame-rule fps:1"),
                {"frames: says no frame rate", "--frame-rule fps:1", "--video-fps NUMBER"});
  ExpectRefused(Generate("qwen2_vl", c, "--video frames --frame-rule half"), {"frame rule 'half'"});
  // Another number of frames has other rows.
  ExpectRefused(Generate("qwen2_vl", c, "--video frames --frames 1"), {"8 placeholders", "4 rows"});
  std::filesystem::remove(Path("frames/1.ppm"));
  ExpectRefused(Generate("qwen2_vl", c, shown), {"frames: frame 1 is missing", "frames.json"});
  Write("frames/frames.json", R"({"fps": 2, "total": 3, "width": 28, "height": 28})");
  ExpectRefused(Generate("qwen2_vl", c, shown), {"frame 1 of 3 is missing"});
}

// The numbers of a tensor of a safetensors file, and its metadata.
std::vector<float> TensorIn(const std::string& file, const std::string& name) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const Json header = *ParseJson(file.substr(8, length), "header");
  const size_t begin = header[name]["data_offsets"][0], end = header[name]["data_offsets"][1];
  std::vector<float> values((end - begin) / sizeof(float));
  std::memcpy(values.data(), file.data() + 8 + length + begin, end - begin);
  return values;
}
Json MetadataOf(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  return (*ParseJson(file.substr(8, length), "header"))["__metadata__"];
}

TEST_F(CliVisual, LogitsAreThoseOfTheReference) {
  for (const char* model : {"llava", "qwen2_vl", "smolvlm"}) {
    SCOPED_TRACE(model);
    const Json c = Case(model, "one");
    WritePicture("a.ppm", c["pictures"][0]);
    WriteIds(c);
    const Outcome outcome =
        Run(StrCat("logits '", Model(model), "' --ids-file ids.json --image a.ppm ",
                   "--dtype f32 --out x.npy"));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::vector<float> want =
        TensorIn(*ReadFile(Model(model) + "/expected.safetensors"), "one.logits");
    const std::string file = *ReadFile(Path("x.npy"));
    ASSERT_GT(file.size(), want.size() * sizeof(float));
    std::vector<float> got(want.size());  // of the last rows
    std::memcpy(got.data(), file.data() + file.size() - want.size() * sizeof(float),
                want.size() * sizeof(float));
    const auto [low, high] = std::ranges::minmax(want);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 1e-4 * (double{high} - low)) << i;
    }
  }
}

// Spans in original positions, whatever the method kept.
TEST_F(CliVisual, ProbeSaysWhereThePicturesAre) {
  const Json c = Case("llava", "one");
  WritePicture("a.ppm", c["pictures"][0]);
  WriteIds(c);
  const Outcome outcome =
      Run(StrCat("probe '", Model("llava"), "' --ids-file ids.json --image a.ppm --dtype f32 ",
                 "--method uniform_visual --budget 60% --out x.safetensors"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json metadata = MetadataOf(*ReadFile(Path("x.safetensors")));
  const Json spans = *ParseJson(metadata["spans"].get<std::string>(), "spans");
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0]["first"], 2);
  EXPECT_EQ(spans[0]["count"], 16);
  EXPECT_EQ(spans[0]["modality"], "image");
  EXPECT_EQ(spans[0]["index"], 0);
  EXPECT_EQ(spans[0]["grid"], Json({1, 4, 4}));
  const Json record = *ParseJson(metadata["record"].get<std::string>(), "record");
  EXPECT_LT(record["entries_after"][0][0], 21);
}

TEST_F(CliVisual, AStageThatSeesTakesRowsOut) {
  WritePicture("a.ppm", Json{96, 64, 7});
  const std::string command = StrCat("generate '", Model("llava"),
                                     "' --ids-file ids.json --json --dtype f32 --max-new-tokens 2 "
                                     "--ignore-stop --image a.ppm --method visionzip ");
  WriteIds(Case("llava", "one"));
  const Outcome less = Run(command + "--set see.dominant=6 --set see.contextual=2");
  ASSERT_EQ(less.exit_code, 0) << less.err;
  const Json answer = *ParseJson(less.out, "out");
  EXPECT_GT(answer["visual_tokens"], 0);
  EXPECT_EQ(answer["visual_tokens"].get<int>() + answer["visual_tokens_taken_out"].get<int>(), 16);
  EXPECT_EQ(answer["method"]["record"]["engagement"], "engaged");
  ExpectRefused(Run(command + "--budget 50%"), {"takes no budget", "see.visionzip", "'50%'"});
}

TEST_F(CliVisual, BadInput) {
  const Json c = Case("llava", "one");
  WritePicture("a.ppm", c["pictures"][0]);
  WriteIds(c);
  const std::string text = StrCat(KVG_TEST_DATA, "/golden/models/llama3");
  for (const char* command : {"generate", "logits --out x.npy", "probe --method full --out x.kv"}) {
    SCOPED_TRACE(command);
    ExpectRefused(Run(StrCat(command, " '", text, "' --ids-file ids.json --image a.ppm")),
                  {"llama is a text model", "a.ppm"});
  }
  ExpectRefused(Generate("llava", c, "--image a.ppm --image a.ppm"),
                {"16 placeholders", "32 rows"});
  ExpectRefused(Generate("llava", c, "--image none.ppm"), {"none.ppm"});
  ExpectRefused(Generate("llava", c, "--image ."), {"."});
  Write("broken.ppm", "P6 40 56 255\nabc");
  ExpectRefused(Generate("llava", c, "--image broken.ppm"), {"broken.ppm"});
  Write("bomb.ppm", "P6 60000 60000 255\n");
  ExpectRefused(Generate("llava", c, "--image bomb.ppm"), {"bomb.ppm", "pixels"});
  Write("line.ppm", "P6 1 100000 255\n" + std::string(300'000, '\1'));
  ExpectRefused(Generate("llava", c, "--image line.ppm"), {"line.ppm", "1 x 100000", "65,500"});
  Write("empty.png", "");
  ExpectRefused(Generate("llava", c, "--image empty.png"), {"empty.png", "0 bytes"});
  Write("text.jpg", "no picture at all");
  ExpectRefused(Generate("llava", c, "--image text.jpg"), {"text.jpg"});
  // A family that shows no videos, and a file that is none.
  std::filesystem::create_directory(Path("frames"));
  for (const char* family : {"llava", "llava_next", "gemma3", "idefics3"}) {
    SCOPED_TRACE(family);
    ExpectRefused(Generate(family, c, "--video none"),
                  {"config.json", StrCat(family, " shows no videos"), "none", "--image"});
  }
  ExpectRefused(Generate("qwen2_vl", c, "--video frames"), {"frames", "holds no frames"});
  ExpectRefused(Generate("qwen2_vl", c, "--video none"), {"none"});
}

TEST_F(CliVisual, InspectCountsRowsAndSaysBothRopes) {
  const Outcome outcome = Run(StrCat("inspect '", Model("gemma3_wide"), "' --image-size 56x40"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("56 x 40: 16 tokens"), HasSubstr("of KV cache"),
                                 HasSubstr("linear, theta 1e+06, factor 8"),
                                 HasSubstr("in sliding layers default, theta 100"),
                                 HasSubstr("sliding window of 6 in 3 of 4 layers")));
}

TEST_F(CliVisual, InspectSaysWhatTurnsWithEachAxis) {
  constexpr char kFollowing[] = KVG_SOURCE_DIR "/models/ref-vlm-mrope";
  EXPECT_THAT(Run(StrCat("inspect '", kFollowing, "'")).out,
              HasSubstr("half layout; of its frequencies 8 turn with time, 12 with height and 12 "
                        "with width, one section after the other"));
  const auto sections = [this](const std::string& model) {
    const Outcome outcome = Run(StrCat("inspect '", model, "' --json"));
    return ParseJson(outcome.out, "inspect")->at("rope_sections");
  };
  EXPECT_EQ(sections(kFollowing), Json({{"frequencies", {8, 12, 12}}, {"interleaved", false}}));
  EXPECT_EQ(sections(Model("qwen3_vl")).at("interleaved"), true);
  EXPECT_THAT(Run(StrCat("inspect '", Model("qwen3_vl"), "'")).out,
              HasSubstr(" with width, in turns"));
  EXPECT_EQ(sections(KVG_SOURCE_DIR "/models/ref-gqa"), nullptr);
}

}  // namespace
}  // namespace kvgauge
