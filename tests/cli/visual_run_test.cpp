// SPDX-License-Identifier: Apache-2.0
// Runs on tasks with pictures: what is recorded of them, and that they are looked at once.
#include <sys/resource.h>

#include <algorithm>
#include <span>
#include <sstream>

#include "cli/visual_fixture.h"
#include "core/files.h"
#include "images/decode.h"
#include "images/drawn.h"
#include "images/encode.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ClipRunTest : public VisualRunTest {
 protected:
  // A task that shows `count` frames of a folder with such scenes; `rest` of the run file.
  void RunOnClip(std::span<const uint32_t> scenes, int count, const std::string& rest) const {
    std::filesystem::create_directories(Path("data/s/v"));
    for (size_t i = 0; i < scenes.size(); ++i) {
      Write(StrCat("data/s/v/", i, ".ppm"), EncodePpm(Drawn(80, 64, scenes[i])));
    }
    Write("data/s/t.jsonl",
          Json{{"question", "What?"}, {"answer", "a"}, {"clip", "v"}}.dump() + "\n");
    Write("t.json", StrCat(R"({"name": "t/clips", "version": 1, "group": "t", "description": "d",
      "metric": "accuracy", "max_new_tokens": 2, "source": {"name": "pictures",
      "file": "s/t.jsonl", "container": "jsonl", "video": "s/{clip}", "frame_rule": "linspace",
      "context": "{video}", "question": "{question}", "answers": "answer", "frame_count": )",
                           count, "}}"));
    Write("mine.json",
          StrCat(R"({"models": [{"path": ")", Path("eyes/config.json"),
                 R"(", "name": "eyes", "weights": "random:5"}], "data": ")", Path("data"),
                 R"(", "tasks": [")", Path("t.json"), R"("], )", rest, "}"));
    const Outcome outcome = RunInto("r.db", {"--json"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
};

TEST_F(VisualRunTest, RecordsWhatSamplesShow) {
  Write("mine.json", Seeing(R"("snapkv", "uniform_visual")"));
  const Outcome outcome = RunInto("r.db", {"--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ((*ParseJson(outcome.out, "out"))["failed"], 0) << outcome.err;
  const auto store = Open("r.db");
  for (const StoredCell& cell : CellsOf(*store)) {
    const SampleRow row = FirstOf(*store, cell);
    ASSERT_EQ(row.status, SampleStatus::kOk) << row.reason;
    EXPECT_EQ(row.images, 3);
    EXPECT_EQ(row.frames, 0);
    EXPECT_EQ(row.visual_tokens, 3 * 16);
    EXPECT_GT(row.tokens_in, row.visual_tokens);
    ASSERT_TRUE(row.latency);
    EXPECT_GT(row.latency->vision_s, 0);
    EXPECT_GT(row.latency->prefill_s, 0);
    ASSERT_EQ(row.modalities.size(), 4u) << "text and pictures in two layers";
    // What is drawn of a sample adds up to what is counted of it: 48 patches, two layers of two
    // heads, in fifteenths.
    ASSERT_TRUE(row.sight);
    ASSERT_EQ(row.sight->pictures.size(), 3u);
    EXPECT_EQ(row.sight->cells(), 48);
    const std::vector<std::vector<std::string>> patches = SplitPatches(*row.sight, row.patches);
    ASSERT_EQ(patches.size(), 3u);
    double held = 0;
    for (const auto& picture : patches) held += 16 * 4 * MeanShare(picture);
    double counted = 0;
    for (const ModalityStatRow& stat : row.modalities) {
      if (stat.modality == "image") counted += static_cast<double>(stat.entries_after);
    }
    EXPECT_NEAR(held, counted, 48 * 4 * 0.5 / 15);
    EXPECT_EQ(row.patches == "f", cell.cell.method.full_cache);
    int64_t answers = 0;
    for (const ShownPicture& shown : row.sight->pictures) {
      answers += shown.answer;
      EXPECT_EQ(shown.frame, -1);
      EXPECT_THAT(shown.name, HasSubstr("picture"));
      EXPECT_EQ(shown.grids, (std::vector<ShownPicture::Grid>{{4, 4}}));
      const Result<Image> small = DecodeImage(shown.picture->thumbnail, "thumbnail");
      ASSERT_TRUE(small.ok()) << small.error().message;
      EXPECT_EQ(small->width, 64);
    }
    EXPECT_EQ(answers, 1);
  }
  const Outcome board = Run({"leaderboard", Path("r.db"), "--split", "modality", "--json"});
  ASSERT_EQ(board.exit_code, 0) << board.err;
  const Json modalities = (*ParseJson(board.out, "out"))["modalities"][0]["rows"];
  ASSERT_EQ(modalities.size(), 3u);
  for (const Json& row : modalities) {
    ASSERT_EQ(row["modalities"].size(), 2u) << row.dump();
    const Json& image = row["modalities"][0];
    EXPECT_EQ(image["modality"], "image");
    EXPECT_EQ(image["samples"], 3);
    // 48 rows, two layers of two heads, three samples.
    EXPECT_EQ(image["entries_before"], 48 * 4 * 3);
    EXPECT_EQ(image["entries_after"] < image["entries_before"], row["method"] != "full");
  }
  EXPECT_THAT(Run({"leaderboard", Path("r.db"), "--split", "modality"}).out,
              HasSubstr("Kept by modality"));
  const std::string sample = FirstOf(*store, CellsOf(*store)[0]).sample_id;
  const Outcome shown = Run({"show", Path("r.db"), "snapkv@60%", sample});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("3 pictures; 48 of the tokens"));
  EXPECT_THAT(shown.out, HasSubstr("ms for the tower"));
  EXPECT_THAT(shown.out, HasSubstr("kept of text and pictures"));
  EXPECT_THAT(shown.out, HasSubstr("--- pictures: how many heads and layers hold each patch"));
  EXPECT_THAT(shown.out, HasSubstr("* "));
  const Outcome json = Run({"show", Path("r.db"), "snapkv@60%", sample, "--json"});
  const Json pictures = (*ParseJson(json.out, "out"))["pictures"];
  ASSERT_EQ(pictures.size(), 3u) << json.err;
  EXPECT_EQ(pictures[0]["grids"][0]["kept"].get<std::string>().size(), 16u);
  const Outcome report = Run({"report", Path("r.db"), "-o", Path("r.html"), "--json"});
  ASSERT_EQ(report.exit_code, 0) << report.err;
  EXPECT_THAT(*ReadFile(Path("r.html")), HasSubstr("data:image/jpeg;base64,"));
}

// Frames of a video are shown as pictures and recorded as frames, under their numbers.
TEST_F(ClipRunTest, FramesOfVideosAreRecordedAsFrames) {
  constexpr uint32_t kScenes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  ASSERT_NO_FATAL_FAILURE(
      RunOnClip(kScenes, 3, R"("budgets": ["60%"], "methods": ["uniform_visual"])"));
  const auto store = Open("r.db");
  for (const StoredCell& cell : CellsOf(*store)) {
    const SampleRow row = FirstOf(*store, cell);
    ASSERT_EQ(row.status, SampleStatus::kOk) << row.reason;
    EXPECT_EQ(row.images, 0);
    EXPECT_EQ(row.frames, 3);
    EXPECT_EQ(row.visual_tokens, 48);
    std::vector<int64_t> frames;
    for (const ShownPicture& shown : row.sight->pictures) frames.push_back(shown.frame);
    EXPECT_THAT(frames, ElementsAre(0, 4, 8));
  }
  const Outcome shown = Run({"show", Path("r.db"), "uniform_visual", "record-1"});
  EXPECT_THAT(shown.out, HasSubstr("3 frames; 48 of the tokens")) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("frame 4"));
}

// Frames that are the same become one, whose rows are those of each; what is left runs as any
// prompt does, beside the full cache of all frames.
TEST_F(ClipRunTest, LikeFramesAreShownOnce) {
  constexpr uint32_t kScenes[] = {7, 7, 7, 40};
  ASSERT_NO_FATAL_FAILURE(RunOnClip(kScenes, 4, R"("budgets": ["100%"], "fidelity_steps": 2,
      "latency": {"contexts": [64, 16], "decode_steps": 2, "repetitions": 1,
                  "max_others_share": 1.0},
      "methods": [{"method": "streammem", "overrides": {"see.above": 0.999999}}])"));
  const auto store = Open("r.db");
  for (const StoredCell& cell : CellsOf(*store)) {
    const SampleRow row = FirstOf(*store, cell);
    ASSERT_EQ(row.status, SampleStatus::kOk) << row.reason;
    EXPECT_EQ(row.frames, 4);
    EXPECT_EQ(row.visual_tokens, 64);
    ASSERT_TRUE(row.sight);
    ASSERT_EQ(row.sight->pictures.size(), 4u);
    if (cell.cell.method.full_cache) {
      EXPECT_EQ(row.patches, "f");
      continue;
    }
    EXPECT_EQ(row.engagement, EngagementMark::kEngaged) << row.engagement_reason;
    const std::vector<std::vector<std::string>> patches = SplitPatches(*row.sight, row.patches);
    ASSERT_EQ(patches.size(), 4u);
    EXPECT_EQ(MeanShare(patches[0]), 1.0);
    EXPECT_EQ(MeanShare(patches[1]), 0.0) << "it joined the first";
    EXPECT_EQ(MeanShare(patches[2]), 0.0);
    EXPECT_EQ(MeanShare(patches[3]), 1.0);
    for (const ModalityStatRow& stat : row.modalities) {
      if (stat.modality != "image") continue;
      EXPECT_EQ(stat.entries_before, 64 * 2);
      EXPECT_EQ(stat.entries_after, 32 * 2);
    }
    ASSERT_TRUE(row.kl_divergence.has_value());
    EXPECT_GT(*row.kl_divergence, 0);
  }
}

// A picture of which a stage shows some rows has nothing of the others.
TEST_F(VisualRunTest, PatchesThatWereNeverShownAreNotKept) {
  Write("mine.json", Seeing(R"("random_see")"));
  ASSERT_EQ(RunInto("r.db").exit_code, 0);
  const auto store = Open("r.db");
  for (const StoredCell& cell : CellsOf(*store)) {
    if (cell.cell.method.full_cache) continue;
    const SampleRow row = FirstOf(*store, cell);
    ASSERT_EQ(row.patches.size(), 48u);
    EXPECT_EQ(std::ranges::count(row.patches, 'f'), 12) << row.patches;
    EXPECT_EQ(std::ranges::count(row.patches, '0'), 36) << row.patches;
  }
}

// Files of pictures are foreign: a faulty one is its sample's, and the run goes on.
TEST_F(VisualRunTest, OneBadPictureFailsItsSample) {
  std::filesystem::create_directories(Path("data/s"));
  std::string lines;
  for (int i = 0; i < 4; ++i) {
    const std::string name = StrCat(i, ".ppm");
    std::string bytes = EncodePpm(Drawn(80, 64, static_cast<uint32_t>(i)));
    if (i == 1) bytes.resize(bytes.size() / 2);  // its header is whole
    if (i == 2) bytes = "no picture at all";
    Write("data/s/" + name, bytes);
    lines += Json{{"question", "<image> What?"}, {"answer", "a"}, {"image", name}}.dump() + "\n";
  }
  Write("data/s/t.jsonl", lines);
  WriteFileTask(R"("uniform_visual")");
  const Outcome outcome = RunInto("r.db", {"--json"});
  EXPECT_EQ((*ParseJson(outcome.out, "out"))["failed"], 4) << outcome.err;
  const auto store = Open("r.db");
  const std::vector<StoredCell> cells = CellsOf(*store);
  ASSERT_EQ(cells.size(), 2u);
  for (const StoredCell& cell : cells) {
    std::vector<std::string> reasons;
    for (const ScoreRow& score : ScoresOf(*store, cell)) {
      const SampleRow row = **store->Read(cell.id, score.sample_id);
      reasons.push_back(row.status == SampleStatus::kOk ? "" : row.reason);
    }
    std::ranges::sort(reasons);
    ASSERT_EQ(reasons.size(), 4u);
    EXPECT_THAT(reasons, ElementsAre("", "", HasSubstr(".ppm"), HasSubstr(".ppm")));
  }
}

// Methods that lack other draws of a sample than others run apart from them, and all of them know
// why its picture cannot be shown.
TEST_F(VisualRunTest, ABadPictureIsTheReasonWhateverDrawsAreMissing) {
  std::filesystem::create_directories(Path("data/s"));
  const std::string bytes = *EncodePng(Drawn(80, 64, 1));
  Write("data/s/bad.png", bytes.substr(0, bytes.size() / 2));  // its header is whole
  Write("data/s/good.png", bytes);
  std::string lines;
  for (const char* name : {"bad.png", "good.png"}) {
    lines += Json{{"question", "<image> What?"}, {"answer", "a"}, {"image", name}}.dump() + "\n";
  }
  Write("data/s/t.jsonl", lines);
  const auto sampling = [](int draws) {
    return StrCat(R"("sampling": {"temperature": 1.5, "draws": )", draws, "}, ");
  };
  WriteFileTask(R"("uniform_visual")", "eyes/config.json", sampling(1));
  RunInto("r.db");
  WriteFileTask(R"("uniform_visual", "kivi_2bit")", "eyes/config.json", sampling(2));
  RunInto("r.db");
  const auto store = Open("r.db");
  int64_t failed = 0;
  for (const StoredCell& cell : CellsOf(*store)) {
    for (const ScoreRow& score : ScoresOf(*store, cell)) {
      const SampleRow row = **store->Read(cell.id, score.sample_id);
      if (row.status == SampleStatus::kOk) continue;
      EXPECT_THAT(row.reason, HasSubstr("bad.png")) << cell.cell.method.name;
      ++failed;
    }
  }
  EXPECT_EQ(failed, 3 * 2);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

TEST_F(VisualRunTest, ATextModelIsShownNoPictures) {
  std::filesystem::create_directories(Path("data/s"));
  Write("data/s/a.ppm", EncodePpm(Drawn(80, 64, 1)));
  Write("data/s/t.jsonl", R"({"question": "<image> What?", "answer": "a", "image": "a.ppm"})");
  WriteFileTask(R"("uniform_visual")", "config.json");
  const Outcome outcome = Run({"run", Path("mine.json"), "--db", Path("r.db")});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("mine.json"), HasSubstr("t/files"),
                                 HasSubstr("a text model and the task shows pictures")));
}

// The commands of docs/vision.md as they stand there, on tiny models in the place of those that it
// names.
TEST_F(VisualRunTest, CommandsOfThePageRun) {
  Write("cat.jpg", *EncodeJpeg(Drawn(90, 70, 1), 90));
  for (const char* name : {"a.png", "b.png"}) Write(name, *EncodePng(Drawn(64, 80, 2)));
  std::vector<std::string> commands;
  std::istringstream page(*ReadFile(StrCat(KVG_SOURCE_DIR, "/docs/vision.md")));
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("    kvgauge ")) continue;
    std::string command = line.substr(12), more;
    while (command.ends_with("\\") && std::getline(page, more)) {
      command.pop_back();
      command += more;
    }
    commands.push_back(command);
  }
  int run = 0;
  for (std::string command : commands) {
    SCOPED_TRACE(command);
    const size_t model = command.find("~/models/");
    if (model != std::string::npos) {
      const size_t end = command.find(' ', model);
      const bool inspects = command.starts_with("inspect");
      command.replace(model, end - model,
                      inspects ? StrCat(KVG_TEST_DATA, "/golden/vision/llava") : Path("eyes"));
    }
    // Its weights are not on disk, as a run needs them: the other tests here are runs.
    if (command.starts_with("run ")) continue;
    // Files of videos are decoded by VideoFramesTest, where the build can.
    if (command.starts_with("data frames ")) continue;
    if (command.starts_with("generate ")) command += " --weights random:5 --max-new-tokens 2";
    // Pictures of 16 rows are shorter than the window.
    if (command.find("snapkv") != std::string::npos) command += " --set score.window=8";
    const Outcome outcome = RunProgram(directory_, command);
    ++run;
    if (command.find("--video") != std::string::npos) {
      EXPECT_THAT(outcome.err, HasSubstr("llava shows no videos"));
      continue;
    }
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  EXPECT_EQ(run, 6) << "a new command is run, or this says why not";
}

// Sixty pictures of four megabytes are never sixty decoded ones: the most that the program holds
// hardly differs from what it holds with one.
TEST_F(VisualRunTest, SixtyPicturesAreDecodedOneByOne) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer keeps what is freed for a while";
  std::filesystem::create_directories(Path("data/s"));
  const auto peak_bytes = [&](const std::vector<std::string>& arguments) {
    const pid_t child = Start(arguments);
    int status = 0;
    struct rusage usage = {};
    wait4(child, &status, 0, &usage);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << *ReadFile(Path("err"));
    return int64_t{usage.ru_maxrss} * 1024;
  };
  constexpr int64_t kPicture = int64_t{3} * 1200 * 1200;
  for (int i = 0; i < 60; ++i) {
    // Another beginning, so that each is a picture of its own.
    std::ofstream file(Path(StrCat("data/s/", i, ".ppm")), std::ios::binary);
    file << "P6 1200 1200 255\n" << std::string(4000, static_cast<char>(4 * i));
    const std::string rest(1 << 20, '\x60');
    for (int64_t left = kPicture - 4000; left > 0; left -= std::ssize(rest)) {
      file.write(rest.data(), std::min(left, std::ssize(rest)));
    }
  }
  const auto generate = [&](int pictures) {
    std::vector<std::string> words = {"generate",         Path("eyes"), "--weights", "random:5",
                                      "--template",       "none",       "--prompt",  "What?",
                                      "--max-new-tokens", "1"};
    for (int i = 0; i < pictures; ++i) {
      words.insert(words.end(), {"--image", Path(StrCat("data/s/", i, ".ppm"))});
    }
    return peak_bytes(words);
  };
  const int64_t one = generate(1);
  EXPECT_LT(generate(60), one + 2 * kPicture);

  const auto run = [&](int pictures) {
    Json names = Json::array();
    std::string marks;
    for (int i = 0; i < pictures; ++i) {
      names.push_back(StrCat(i, ".ppm"));
      marks += "<image>";
    }
    Write("data/s/t.jsonl",
          Json{{"question", marks + " What?"}, {"answer", "a"}, {"image", names}}.dump() + "\n");
    WriteFileTask(R"("uniform_visual")");
    const std::string database = Path(StrCat(pictures, ".db"));
    const int64_t peak = peak_bytes({"run", Path("mine.json"), "--db", database});
    const auto store = Open(StrCat(pictures, ".db"));
    for (const StoredCell& cell : CellsOf(*store)) {
      const SampleRow row = FirstOf(*store, cell);
      EXPECT_EQ(row.status, SampleStatus::kOk) << row.reason;
      EXPECT_EQ(row.visual_tokens, 16 * pictures);
    }
    return peak;
  };
  const int64_t of_one = run(1);
  EXPECT_LT(run(60), of_one + 3 * kPicture);
}

// The rows of a picture are the same whoever else is shown, so results do not depend on what was
// kept of them.
TEST_F(VisualRunTest, SharedFeaturesChangeNothing) {
  Write("mine.json", Seeing(R"("snapkv")"));
  ASSERT_EQ(RunInto("all.db").exit_code, 0);
  for (const char* position : {"0", "1", "2"}) {
    ASSERT_EQ(RunInto("one.db", {"--samples", position}).exit_code, 0);
  }
  EXPECT_EQ(Open("all.db")->ResultDigest().value(), Open("one.db")->ResultDigest().value());
}

// Times are measured on prompts that show the pictures, whose rows cost more than their
// placeholders as text would.
TEST_F(VisualRunTest, LatencyFeedsPictures) {
  Write("mine.json", Seeing(R"("snapkv")", R"("latency": {"contexts": [96], "decode_steps": 2,
      "repetitions": 1, "max_others_share": 1.0}, )"));
  const Outcome outcome = RunInto("r.db");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto store = Open("r.db");
  for (const StoredCell& cell : CellsOf(*store)) {
    const Result<std::vector<LatencyRow>> rows = store->Latency(cell.id);
    ASSERT_TRUE(rows.ok());
    ASSERT_EQ(rows->size(), 1u);
    EXPECT_GT(rows->at(0).vision_s, 0);
    EXPECT_EQ(rows->at(0).context_tokens, 96);
  }
}

// Stages that reduce pictures: prefills of their own, shared by rows of equal stages; bytes are
// held against the whole prompt.
TEST_F(VisualRunTest, ReducedPicturesAreAPrefillOfTheirOwn) {
  Write("mine.json", Seeing(R"("random_see", {"method": "visionzip", "overrides":
      {"see.dominant": 4, "see.contextual": 2}}, {"method": "snapkv", "overrides":
      {"see.id": "random_rows"}}, "prumerge")"));
  const Outcome planned = Run({"plan", Path("mine.json"), "--db", Path("r.db"), "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Json plan = *ParseJson(planned.out, "out");
  ASSERT_EQ(plan["groups"].size(), 4u) << "the full cache's, and one for each stage";
  ASSERT_EQ(RunInto("r.db", {"--json"}).exit_code, 0);
  const auto store = Open("r.db");
  std::map<std::string, SampleRow> rows;
  for (const StoredCell& cell : CellsOf(*store)) {
    rows[cell.cell.method.name] = FirstOf(*store, cell);
  }
  const SampleRow& full = rows.at("full");
  for (const auto& [name, row] : rows) {
    SCOPED_TRACE(name);
    ASSERT_EQ(row.status, SampleStatus::kOk) << row.reason;
    EXPECT_EQ(row.tokens_in, full.tokens_in);
    EXPECT_EQ(row.visual_tokens, 48);
    EXPECT_EQ(row.memory[0].full_bytes, full.memory[0].full_bytes);
    EXPECT_EQ(row.engagement, name == "full" ? EngagementMark::kIdentity : EngagementMark::kEngaged)
        << row.engagement_reason;
    if (name == "full") continue;
    EXPECT_LT(row.memory[0].logical_bytes(), full.memory[0].logical_bytes());
    for (const ModalityStatRow& stat : row.modalities) {
      if (stat.modality == "image") {
        EXPECT_EQ(stat.entries_before, 48 * 2);
      }
    }
  }
  // A quarter of 16 patches, three times; six rows a picture.
  EXPECT_EQ(rows.at("random_see").modalities[0].entries_after, 2 * 3 * 4);
  EXPECT_EQ(rows.at("visionzip").modalities[0].entries_after, 2 * 3 * 6);
  EXPECT_LT(rows.at("snapkv").memory[0].logical_bytes(),
            rows.at("random_see").memory[0].logical_bytes());
}

// A prefill of its own says which setting of its method it is of.
TEST_F(VisualRunTest, PrefillsOfOneMethodAreToldApart) {
  Write("mine.json", Seeing(R"("visionzip", {"method": "random_see",
      "sweep": {"see.share": [0.5, 0.25, 0.125]}})"));
  const Outcome planned = Run({"plan", Path("mine.json"), "--db", Path("r.db"), "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  std::vector<std::string> prefills;
  std::set<std::string> groups;
  const Json plan = *ParseJson(planned.out, "out");
  for (const Json& group : plan["groups"]) {
    prefills.push_back(group["prefill"]);
    groups.insert(group["group"].get<std::string>());
  }
  EXPECT_EQ(prefills, (std::vector<std::string>{"shared", "visionzip", "random_see (see.share=0.5)",
                                                "random_see (see.share=0.25)",
                                                "random_see (see.share=0.125)"}));
  EXPECT_EQ(groups.size(), prefills.size());
}

// What is left of a prompt against the full cache of the whole one, on that cache's own words; and
// alone, beside the full cache on the same prompt.
TEST_F(VisualRunTest, ReducedPicturesAreMeasuredAgainstWholeOnes) {
  const std::string extra = R"("compress_at": ["prompt", "context"], "fidelity_steps": 3,
      "latency": {"contexts": [96], "decode_steps": 2, "repetitions": 1,
                  "max_others_share": 1.0}, )";
  // All rows stay of the first.
  Write("mine.json", Seeing(R"({"method": "random_see", "overrides": {"see.share": 1}}, {"method":
      "visionzip", "overrides": {"see.dominant": 4, "see.contextual": 2}}, "prumerge",
      {"method": "snapkv", "overrides": {"see.id": "random_rows", "score.window": 8,
      "protect.recent": 8}})",
                            extra));
  const Outcome planned = Run({"plan", Path("mine.json"), "--db", Path("r.db"), "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Outcome outcome = RunInto("r.db", {"--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto store = Open("r.db");
  std::map<int64_t, int> rounds;
  for (const StoredCell& cell : CellsOf(*store)) {
    SCOPED_TRACE(cell.cell.method.name);
    for (const ScoreRow& score : ScoresOf(*store, cell)) {
      const SampleRow row = **store->Read(cell.id, score.sample_id);
      ASSERT_EQ(row.status, SampleStatus::kOk) << row.reason;
      ASSERT_TRUE(row.kl_divergence.has_value());
      if (cell.cell.method.name == "full" || cell.cell.method.name == "random_see") {
        EXPECT_EQ(*row.kl_divergence, 0);
      } else {
        EXPECT_GT(*row.kl_divergence, 0);
      }
    }
    const Result<std::vector<LatencyRow>> rows = store->Latency(cell.id);
    ASSERT_TRUE(rows.ok());
    for (const LatencyRow& row : *rows) {
      EXPECT_EQ(row.context_tokens, 96);
      EXPECT_GT(row.vision_s, 0);
      ++rounds[cell.id];
    }
  }
  EXPECT_EQ(rounds.size(), 10u) << outcome.err << "each row at both places";
}

// Rows of pictures that leave between two layers: a prefill of their own, shared by rows with the
// same stage, and by layer what is left.
TEST_F(VisualRunTest, ThinnedPicturesAreAPrefillOfTheirOwn) {
  Write("mine.json", Seeing(R"({"method": "fastv", "overrides": {"thin.layer": 1}},
      {"method": "snapkv", "overrides": {"thin.id": "fastv", "thin.layer": 1}})"));
  const Outcome planned = Run({"plan", Path("mine.json"), "--db", Path("r.db"), "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Json plan = *ParseJson(planned.out, "out");
  ASSERT_EQ(plan["groups"].size(), 2u) << "the full cache's, and that of both others";
  EXPECT_EQ(plan["groups"][0]["prefill"], "shared");
  EXPECT_EQ(plan["groups"][1]["prefill"], "fastv");
  ASSERT_EQ(RunInto("r.db", {"--json"}).exit_code, 0);
  const auto store = Open("r.db");
  for (const StoredCell& cell : CellsOf(*store)) {
    const SampleRow row = FirstOf(*store, cell);
    SCOPED_TRACE(cell.cell.method.name);
    ASSERT_EQ(row.status, SampleStatus::kOk) << row.reason;
    if (cell.cell.method.name == "full") continue;
    EXPECT_EQ(row.engagement, EngagementMark::kEngaged) << row.engagement_reason;
    for (const ModalityStatRow& stat : row.modalities) {
      if (stat.modality != "image") continue;
      EXPECT_EQ(stat.entries_before, 48 * 2);
      if (cell.cell.method.name != "fastv") continue;
      EXPECT_EQ(stat.entries_after, stat.layer == 0 ? 48 * 2 : 24 * 2);
    }
  }
}

class TightRunTest : public VisualRunTest {
 protected:
  // `most`: KiB that the run may hold, 0: any.
  void WriteRun(const std::string& keys, int64_t most) const {
    const std::string bound = most == 0 ? "" : StrCat(R"("max_memory": ")", most, R"(KiB", )");
    Write("mine.json", Seeing(R"("snapkv")", bound + keys, R"("pictures": "8", "samples": 3)"));
  }
  // KiB with which one sample runs.
  int64_t Least(const std::string& keys) const {
    int64_t least = 0, most = 1 << 14;
    for (int i = 0; least + 1 < most; ++i) {
      const int64_t middle = (least + most) / 2;
      WriteRun(keys, middle);
      const Outcome one = Run({"run", Path("mine.json"), "--db",
                               Path(StrCat(std::hash<std::string>()(keys), "-", i, ".db")),
                               "--samples", "1", "--json"});
      const Result<Json> out = ParseJson(one.out, "out");
      const bool fits = one.exit_code == 0 && out.ok() && (*out)["failed"] == 0;
      (fits ? most : least) = middle;
    }
    return most;
  }
  std::vector<std::pair<SampleStatus, std::string>> Rows(const std::string& database) const {
    std::vector<std::pair<SampleStatus, std::string>> found;
    const auto store = Open(database);
    for (const StoredCell& cell : CellsOf(*store)) {
      for (const ScoreRow& score : ScoresOf(*store, cell)) {
        const SampleRow row = **store->Read(cell.id, score.sample_id);
        found.emplace_back(row.status, score.answers_key);
      }
    }
    return found;
  }
};

// Whatever has room alone runs, however many samples are read ahead, to what it is without a bound.
TEST_F(TightRunTest, SamplesThatFitOnlyAloneRunInSmallerGroups) {
  WriteRun("", 0);
  RunInto("free.db", {"--json"});
  WriteRun("", Least("") + 16);
  RunInto("tight.db", {"--json"});
  const auto tight = Rows("tight.db");
  EXPECT_EQ(tight.size(), 6u);
  EXPECT_EQ(tight, Rows("free.db"));
}

// What is kept of pictures for samples to come takes no room from one that needs it.
TEST_F(TightRunTest, WhatIsKeptOfPicturesMakesRoomForASample) {
  const std::string one = R"("seeds": [1], )", other = R"("seeds": [2], )";
  WriteRun(R"("seeds": [1, 2], )", std::max(Least(one), Least(other)));
  RunInto("tight.db", {"--samples", "1", "--json"});
  const auto tight = Rows("tight.db");
  EXPECT_EQ(tight.size(), 4u);
  for (const auto& [status, answers] : tight) EXPECT_EQ(status, SampleStatus::kOk);
}

TEST_F(VisualRunTest, PlansCountThePictures) {
  Write("mine.json", Seeing(R"("snapkv")"));
  const Outcome outcome = Run({"plan", Path("mine.json"), "--db", Path("r.db"), "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json plan = *ParseJson(outcome.out, "out");
  const Json& group = plan["groups"][0];
  EXPECT_GT(group["memory_bytes"], 0) << plan.dump(1);
}

}  // namespace
}  // namespace kvgauge
