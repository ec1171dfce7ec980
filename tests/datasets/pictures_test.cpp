// SPDX-License-Identifier: Apache-2.0
// Records with pictures: where the bytes are found, what is refused, and that memory does not grow
// with the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/json.h"
#include "core/sha256.h"
#include "datasets/formats.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    }
    for (size_t k = 0; k < 4; ++k) {
      out += i + k > bytes.size() ? '=' : kDigits[(group >> (18 - 6 * k)) & 63];
    }
  }
  return out;
}

// A picture's bytes, longer than what could name another row.
std::string Bytes(char fill, size_t size = 60) { return "PNG" + std::string(size, fill); }

class Pictures : public Formats {
 protected:
  void Write(const std::string& name, const std::string& content) {
    const std::filesystem::path path = directory_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }
  // Samples of a source "pictures" with these parameters beside those that every test has.
  Result<std::vector<Sample>> Read(Json source, bool skip_bad = false) {
    source["name"] = "pictures";
    if (!source.contains("answers")) source["answers"] = "answer";
    if (!source.contains("question")) source["question"] = "{question}";
    const Json json = {{"name", "t/t"},      {"version", 1},         {"group", "t"},
                       {"description", "d"}, {"metric", "accuracy"}, {"max_new_tokens", 4},
                       {"source", source}};
    const Result<Task> task = ParseTask(json, "t.json");
    if (!task.ok()) return task.error();
    TaskOptions options;
    options.data_directory = directory_.string();
    options.skip_bad = skip_bad;
    KVG_ASSIGN(const std::unique_ptr<SampleStream> stream, OpenTask(*task, options));
    auto samples = ReadAll(*stream);
    skipped_ = stream->skipped();
    return samples;
  }
  std::vector<Sample> Samples(const Json& source) {
    auto samples = Read(source);
    EXPECT_TRUE(samples.ok()) << (samples.ok() ? "" : samples.error().message);
    return samples.ok() ? *std::move(samples) : std::vector<Sample>(1);
  }
  std::string Fault(const Json& source) {
    const auto samples = Read(source);
    EXPECT_FALSE(samples.ok());
    return samples.ok() ? "" : samples.error().message;
  }
  static std::string Loaded(const Sample& sample, size_t picture) {
    const Result<std::string> bytes = sample.pictures.at(picture).load();
    EXPECT_TRUE(bytes.ok()) << (bytes.ok() ? "" : bytes.error().message);
    return bytes.ok() ? *bytes : "";
  }

  const Json table_ = {{"file", "s/t.tsv"},
                       {"images", "image"},
                       {"image_kind", "base64"},
                       {"index", "index"},
                       {"id", "index"}};
  int64_t skipped_ = 0;
};

TEST_F(Pictures, OfATableAreBase64ListsAndReferences) {
  const std::string first = Base64(Bytes('a')), second = Base64(Bytes('b', 61));
  Write("s/t.tsv",
        "index\tquestion\tanswer\timage\n"
        "0\tq0\ta0\t3\n"
        "1\tq1\ta1\t" +
            first +
            "\n"
            "2\tq2\ta2\t['" +
            first + "', '" + second +
            "']\n"
            "3\tq3\ta3\t\"[\"\"" +
            second + "\"\", \"\"" + first +
            "\"\"]\"\n"
            "4\tq4\ta4\t1\n");
  const std::vector<Sample> samples = Samples(table_);
  ASSERT_EQ(samples.size(), 5U);
  EXPECT_EQ(Loaded(samples[1], 0), Bytes('a'));
  EXPECT_EQ(samples[1].pictures[0].hash, Sha256Hex(Bytes('a')));
  EXPECT_THAT(samples[1].pictures[0].name, HasSubstr("t.tsv: row 2: column 'image'"));
  ASSERT_EQ(samples[2].pictures.size(), 2U);
  EXPECT_EQ(Loaded(samples[2], 1), Bytes('b', 61));
  ASSERT_EQ(samples[0].pictures.size(), 2U) << "a row further on";
  EXPECT_EQ(Loaded(samples[0], 0), Bytes('b', 61));
  EXPECT_EQ(Loaded(samples[4], 0), Bytes('a')) << "a row before";
  EXPECT_EQ(samples[4].group, samples[1].group) << "samples of one picture are one group";
  EXPECT_NE(samples[0].group, samples[1].group);
  EXPECT_EQ(WithPictureNames(samples[2]), "[picture 1][picture 2]");
  EXPECT_EQ(samples[2].questions[0].text, "q2");
}

TEST_F(Pictures, WhatIsNoBase64NamesFileRowAndColumn) {
  const std::string good = Base64(Bytes('a'));
  std::string sign = good, cut = good.substr(0, good.size() - 1);
  sign[20] = '*';
  const std::string head = "index\tquestion\tanswer\timage\n";
  Write("s/t.tsv", head + "0\tq\ta\t" + sign + "\n");
  EXPECT_THAT(Fault(table_), AllOf(HasSubstr("t.tsv: row 1: column 'image'"),
                                   HasSubstr("not base64: character 21"), HasSubstr("'*'")));
  Write("s/t.tsv", head + "0\tq\ta\t" + cut + "\n");
  EXPECT_THAT(Fault(table_), AllOf(HasSubstr("row 1: column 'image'"), HasSubstr("cut short")));
  Write("s/t.tsv", head + "0\tq\ta\t['" + good + "', '" + cut + "']\n");
  EXPECT_THAT(Fault(table_), AllOf(HasSubstr("row 1: column 'image'"), HasSubstr("picture 2")));
  Write("s/t.tsv", head + "0\tq\ta\t['" + good + "' '" + good + "']\n");
  EXPECT_THAT(Fault(table_), HasSubstr("no list of quoted texts"));
  Write("s/t.tsv", head + "0\tq\ta\t7\n1\tq\ta\t" + good + "\n");
  EXPECT_THAT(Fault(table_), AllOf(HasSubstr("row 1: column 'image'"), HasSubstr("'7'")));
  Write("s/t.tsv", head + "0\tq\ta\t\n");
  EXPECT_THAT(Fault(table_), AllOf(HasSubstr("row 1: column 'image'"), HasSubstr("no picture")));
}

// Where rows without a picture are passed by, a column of none, or no such column, is an error.
TEST_F(Pictures, AColumnWithoutAnyPictureIsNamed) {
  Json source = table_;
  source["skip_without"] = true;
  Write("s/t.tsv", "index\tquestion\tanswer\timage\n0\tq\ta\t\n1\tq\ta\t\n");
  EXPECT_THAT(Fault(source), HasSubstr("t.tsv: column 'image': none of 2 records holds a picture"));
  Write("s/t.tsv", "index\tquestion\tanswer\n0\tq\ta\n");
  EXPECT_THAT(Fault(source), HasSubstr("t.tsv: row 1: column 'image' is missing; the record has: "
                                       "answer, index, question"));
  Write("s/t.tsv",
        StrCat("index\tquestion\tanswer\timage\n0\tq\ta\t\n1\tq\ta\t", Base64(Bytes('a')), "\n"));
  EXPECT_EQ(Samples(source).size(), 1U);
}

TEST_F(Pictures, OneBadPictureFailsItsSampleAlone) {
  const std::string good = Base64(Bytes('a'));
  Write("s/t.tsv", "index\tquestion\tanswer\timage\n0\tq\ta\t" + good + "\n1\tq\ta\t*" + good +
                       "\n2\tq\n3\tq\ta\t" + good + "\n");
  const auto samples = Read(table_, true);
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  ASSERT_EQ(samples->size(), 2U);
  EXPECT_EQ(samples->at(1).id, "3");
  EXPECT_EQ(skipped_, 2);
}

TEST_F(Pictures, ATableThatChangesBetweenIsNoticed) {
  const std::string head = "index\tquestion\tanswer\timage\n0\tq\ta\t";
  Write("s/t.tsv", head + Base64(Bytes('a')) + "\n");
  const Sample sample = Samples(table_).at(0);
  Write("s/t.tsv", head + Base64(Bytes('b')) + "\n");
  const Result<std::string> bytes = sample.pictures.at(0).load();
  ASSERT_FALSE(bytes.ok());
  EXPECT_THAT(bytes.error().message, AllOf(HasSubstr("row 1"), HasSubstr("changed")));
}

TEST_F(Pictures, OfJsonAreFilesBelowTheDataDirectory) {
  Write("s/images/a.png", Bytes('a'));
  Write("s/images/b.png", Bytes('b'));
  Write("s/empty.png", "");
  const Json source = {{"file", "s/t.jsonl"},  {"container", "jsonl"},
                       {"images", "pictures"}, {"image_file", "s/images/{image}"},
                       {"mark", "<image>"},    {"context", "{text}"}};
  const auto write = [&](const Json& pictures, const std::string& text) {
    Write("s/t.jsonl",
          Json{{"question", "q"}, {"answer", "a"}, {"pictures", pictures}, {"text", text}}.dump() +
              "\n");
  };
  write({"a.png", "b.png"}, "One <image>, two <image>.");
  const Sample sample = Samples(source).at(0);
  EXPECT_EQ(WithPictureNames(sample), "One [picture 1], two [picture 2].");
  EXPECT_EQ(Loaded(sample, 1), Bytes('b'));
  write({"a.png", "b.png"}, "One <image>.");
  EXPECT_THAT(Fault(source), AllOf(HasSubstr("t.jsonl:1"), HasSubstr("holds 2 pictures"),
                                   HasSubstr("marks for 1")));
  for (const char* bad : {"../../../etc/passwd", "/etc/passwd", "none.png", "../empty.png"}) {
    write({bad}, "<image>");
    EXPECT_THAT(Fault(source), AllOf(HasSubstr("t.jsonl:1"), HasSubstr("'pictures'"))) << bad;
  }
  std::filesystem::create_symlink("/etc", directory_ / "s/images/out");
  write({"out/passwd"}, "<image>");
  EXPECT_THAT(Fault(source), HasSubstr("leads out of the data directory"));
  write(Json(), "no mark");
  EXPECT_THAT(Fault(source), HasSubstr("holds no picture"));
  write(Json::object(), "<image>");
  EXPECT_THAT(Fault(source), HasSubstr("expected a picture"));
}

TEST_F(Pictures, NumberedMarksChooseTheirPicture) {
  for (const char* name : {"a", "b", "c"}) Write(StrCat("s/", name), Bytes(name[0]));
  const Json source = {{"file", "s/t.jsonl"},
                       {"container", "jsonl"},
                       {"images", "i1,i2,i3"},
                       {"image_file", "s/{image}"},
                       {"mark", "<image {n}>"}};
  const std::string front = R"({"answer": "a", "i1": "a", "i2": "b", "i3": null, "question": ")";
  Write("s/t.jsonl", front + "see <image 2> and <image 1>, <image>\"}\n" + front + "none\"}\n" +
                         front + "see <image 3>\"}\n");
  const auto samples = Read(source);
  EXPECT_FALSE(samples.ok());
  Write("s/t.jsonl", front + "see <image 2> and <image 1>, <image>\"}\n" + front + "none\"}\n");
  const std::vector<Sample> two = Samples(source);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(WithPictureNames(two[0], 0), "see [picture 1] and [picture 2], <image>");
  EXPECT_EQ(Loaded(two[0], 0), Bytes('b'));
  EXPECT_EQ(two[0].context, "");
  EXPECT_EQ(WithPictureNames(two[1]), "[picture 1][picture 2]") << "without a mark all come first";
}

TEST_F(Pictures, OfParquetAreBytesOfTheRow) {
  std::filesystem::create_directories(directory_ / "s");
  std::filesystem::copy(StrCat(KVG_SOURCE_DIR, "/tests/golden/parquet/images.parquet"),
                        directory_ / "s/t.parquet");
  const Json source = {{"file", "s/t.parquet"}, {"container", "parquet"}, {"images", "images"},
                       {"answers", "images"},   {"answer_kind", "json"},  {"question", "?"},
                       {"skip_without", true}};
  const auto samples = Read(source, true);
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  ASSERT_FALSE(samples->empty());
  for (const Sample& sample : *samples) {
    for (size_t i = 0; i < sample.pictures.size(); ++i) {
      EXPECT_EQ(Sha256Hex(Loaded(sample, i)), sample.pictures[i].hash);
    }
  }
}

// A row whose picture is null fails alone, and a column of nothing else leaves no sample.
TEST_F(Pictures, NullsOfAnImageColumnNameFileRowAndColumn) {
  std::filesystem::create_directories(directory_ / "s");
  std::filesystem::copy(StrCat(KVG_SOURCE_DIR, "/tests/golden/parquet/images.parquet"),
                        directory_ / "s/t.parquet");
  Json source = {{"file", "s/t.parquet"}, {"container", "parquet"}, {"images", "image"},
                 {"answers", "images"},   {"answer_kind", "json"},  {"question", "?"}};
  EXPECT_THAT(Fault(source),
              AllOf(HasSubstr("t.parquet: row 1: column 'image'"), HasSubstr("holds no picture")));
  ASSERT_TRUE(Read(source, true).ok());
  EXPECT_GT(skipped_, 0);
  source["images"] = "images";
  EXPECT_THAT(Fault(source),
              AllOf(HasSubstr("t.parquet: row 3: column 'images'"), HasSubstr("holds no picture")));
  source["images"] = "imagse";
  EXPECT_THAT(Fault(source), HasSubstr("t.parquet: row 1: column 'imagse' is missing (did you mean "
                                       "'image'?); the record has: "));
}

TEST_F(Pictures, AVideoIsAFolderOfFrames) {
  for (int i = 0; i < 10; ++i) Write(StrCat("s/frames/v1/", i, ".jpg"), Bytes('a', 50 + i));
  const Json source = {{"file", "s/t.csv"},        {"container", "csv"},
                       {"context", "{video}"},     {"video", "s/frames/{video}"},
                       {"frame_rule", "linspace"}, {"frame_count", 4}};
  Write("s/t.csv", "video,question,answer\nv1,\"what, then\",a\n");
  const Sample sample = Samples(source).at(0);
  EXPECT_EQ(WithPictureNames(sample), "[picture 1][picture 2][picture 3][picture 4]");
  EXPECT_EQ(sample.questions[0].text, "what, then");
  std::vector<size_t> sizes;
  for (size_t i = 0; i < 4; ++i) sizes.push_back(Loaded(sample, i).size() - 53);
  EXPECT_THAT(sizes, ElementsAre(0U, 3U, 6U, 9U));
  Json more = source;
  more["frame_count"] = 11;
  EXPECT_THAT(Fault(more), AllOf(HasSubstr("t.csv: row 1: column 'video'"),
                                 HasSubstr("has 10 frames; the rule takes 11")));
  more = source;
  more["frame_rule"] = "rate";
  EXPECT_THAT(Fault(more), AllOf(HasSubstr("row 1: column 'video'"), HasSubstr("frames.json")));
  Write("s/frames/v1/frames.json", R"({"fps": 2, "total": 10})");
  EXPECT_EQ(Samples(more).at(0).pictures.size(), 5U);
  Write("s/t.csv", "video,question,answer\n../v1,q,a\n");
  EXPECT_THAT(Fault(source), HasSubstr("not below the data directory"));
  Write("s/t.csv", "video,question,answer\nv2,q,a\n");
  EXPECT_THAT(Fault(source), HasSubstr("no folder of frames"));
}

// A further answer counts where a record has one.
TEST_F(Pictures, AnswersOfTwoFields) {
  for (int i = 0; i < 2; ++i) Write(StrCat("s/frames/v1/", i, ".jpg"), Bytes('a', 50 + i));
  Write("s/t.csv", "video,question,answer,other,type\nv1,q,a dog,a cat,DO\nv1,q,no,,DB\n");
  Json source = {{"file", "s/t.csv"},           {"container", "csv"}, {"context", "{video}"},
                 {"video", "s/frames/{video}"}, {"frame_count", 2},   {"question", "{question}"},
                 {"answers", "answer"},         {"kind", "type"},     {"more_answers", "other"}};
  std::vector<Sample> samples = Samples(source);
  EXPECT_THAT(samples.at(0).questions[0].answers, testing::ElementsAre("a dog", "a cat"));
  EXPECT_EQ(samples.at(0).questions[0].kind, "DO");
  EXPECT_THAT(samples.at(1).questions[0].answers, testing::ElementsAre("no"));
  source["more_answers"] = "missing";
  EXPECT_THAT(Samples(source).at(0).questions[0].answers, testing::ElementsAre("a dog"));
  source["answer_kind"] = "literal";
  EXPECT_THAT(Fault(source), HasSubstr("more_answers: other answers are texts"));
}

// What is wrong with a file of subtitles is a fault of its row; no such file is none.
TEST_F(Pictures, SubtitlesOfAVideo) {
  for (int i = 0; i < 4; ++i) Write(StrCat("s/frames/v1/", i, ".jpg"), Bytes('a', 50 + i));
  Write("s/t.csv", "video,question,answer,seconds\nv1,q,a,4\n");
  Json source = {
      {"file", "s/t.csv"},           {"container", "csv"}, {"context", "{video}{subtitles}"},
      {"video", "s/frames/{video}"}, {"frame_count", 4},   {"subtitles", "s/said/{video}.srt"},
      {"no_subtitles", "nothing"}};
  EXPECT_TRUE(Samples(source).at(0).context.ends_with("nothing"));
  const auto said = [&](const std::string& text) { Write("s/said/v1.srt", text); };
  said("1\n00:00:00,500 --> 00:00:01,500\nhere\n");
  EXPECT_THAT(Fault(source), AllOf(HasSubstr("t.csv: row 1: column 'video'"), HasSubstr("v1.srt'"),
                                   HasSubstr("no frames.json")));
  Write("s/frames/v1/frames.json", R"({"fps": 1, "total": 4})");
  EXPECT_EQ(Samples(source).at(0).context, "here");
  said("this is no file of subtitles\n");
  EXPECT_THAT(Fault(source), AllOf(HasSubstr("row 1: column 'video'"), HasSubstr("v1.srt'"),
                                   HasSubstr("00:00:01,000 --> 00:00:02,500")));
  source["subtitle_rule"] = "any_at_frame";
  EXPECT_EQ(Samples(source).at(0).context, "");
  said("1\n00:00:00,000 --> 00:00:02,500\nx\n\n\n2\n00:00:00.000 --> 00:00:02,500\ny\n");
  EXPECT_THAT(Fault(source),
              AllOf(HasSubstr("row 1: column 'video'"), HasSubstr("line 6"), HasSubstr("'2'")));
  source["subtitle_rule"] = "interleaved";
  EXPECT_THAT(Fault(source), HasSubstr(".video_duration"));
  source["video_duration"] = "seconds";
  source["context"] = "{video}";
  EXPECT_THAT(Fault(source), AllOf(HasSubstr("v1.srt'"), HasSubstr("not valid JSON")));
  source["subtitles"] = "s/said/{video}.json";
  EXPECT_THAT(Fault(source), AllOf(HasSubstr("v1.json'"), HasSubstr("which is no file")));
  for (const auto& [text, want] :
       {std::pair{R"({"timestamp": [0.5, 1.0], "text": "x"})", "an object, expected an array"},
        {R"([{"timestamp": [0.5, 1.0]}])", "subtitle 1 has no 'text'"},
        {R"([{"timestamp": [0.5], "text": "x"}])", "subtitle 1 has no two times"},
        {R"([{"start": "1.5", "end": "0:00:02", "line": "x"}])", "has no 'start'"},
        {R"([{"timestamp": [0.5, 1.0], "text": "x"}, 7])", "subtitle 2 is a number"}}) {
    Write("s/said/v1.json", text);
    EXPECT_THAT(Fault(source), AllOf(HasSubstr("row 1: column 'video'"), HasSubstr(want)));
  }
  Write("s/said/v1.json", R"([{"timestamp": [1.5, 1.75], "text": "<b>"}])");
  EXPECT_EQ(WithPictureNames(Samples(source).at(0)),
            "[picture 1][picture 2]<b>[picture 3][picture 4]");
  source["subtitles"] = "../{video}.json";
  EXPECT_THAT(Fault(source), HasSubstr("not below the data directory"));
}

// What no one released prompts of: a line about one word behind the frames.
TEST_F(Pictures, OneWordAnswersAboutVideos) {
  for (const auto& [task, folder] : {std::pair("msvd_qa/test", "msvd_qa/frames/vid1301"),
                                     std::pair("msrvtt_qa/test", "msrvtt_qa/frames/video1301")}) {
    SCOPED_TRACE(task);
    for (int i = 0; i < 9; ++i) Write(StrCat(folder, "/", i, ".jpg"), Bytes('a', 50 + i));
    const Sample sample = One(task, R"([{"answer": "Dog", "id": 158581, "question":
        "what is chasing?", "video_id": 1301}])");
    EXPECT_EQ(WithPictureNames(sample) + WithPictureNames(sample, 0),
              "[picture 1][picture 2][picture 3][picture 4][picture 5][picture 6][picture 7]"
              "[picture 8]what is chasing?\nAnswer the question using a single word or phrase.");
    EXPECT_THAT(sample.questions[0].answers, ElementsAre("Dog"));
    EXPECT_EQ(Score(sample, "dog"), 1);
    EXPECT_EQ(Score(sample, "a dog"), 0);
  }
}

// Resident bytes of this process.
int64_t Resident() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, pages = 0;
  file >> total >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

TEST_F(Pictures, MemoryDoesNotGrowWithTheTable) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  GTEST_SKIP() << "the sanitizer keeps what is freed for a while";
#endif
#endif
  constexpr int kRows = 96;
  const std::string cell = Base64(Bytes('a', size_t{1} << 20));
  {
    Write("s/t.tsv", "index\tquestion\tanswer\timage\n");
    std::ofstream file(directory_ / "s/t.tsv", std::ios::binary | std::ios::app);
    for (int i = 0; i < kRows; ++i) file << i << "\tq\ta\t" << cell << "\n";
  }
  Json source = table_;
  source.update({{"name", "pictures"}, {"answers", "answer"}, {"question", "{question}"}});
  const Result<Task> task = ParseTask({{"name", "t/t"},
                                       {"version", 1},
                                       {"group", "t"},
                                       {"description", "d"},
                                       {"metric", "accuracy"},
                                       {"max_new_tokens", 4},
                                       {"source", source}},
                                      "t.json");
  ASSERT_TRUE(task.ok()) << task.error().message;
  TaskOptions options;
  options.data_directory = directory_.string();
  const auto stream = OpenTask(*task, options);
  ASSERT_TRUE(stream.ok());
  const int64_t before = Resident();
  int64_t most = 0;
  int rows = 0;
  while (true) {
    const auto sample = (*stream)->Next();
    ASSERT_TRUE(sample.ok()) << sample.error().message;
    if (!*sample) break;
    ++rows;
    most = std::max(most, Resident() - before);
  }
  EXPECT_EQ(rows, kRows);
  EXPECT_LT(most, int64_t{16} << 20)
      << "of a table of " << std::filesystem::file_size(directory_ / "s/t.tsv");
}

TEST_F(Pictures, OptionsAndAnswersAreChecked) {
  Write("s/a.png", Bytes('a'));
  const Json source = {{"file", "s/t.jsonl"},
                       {"container", "jsonl"},
                       {"images", "image"},
                       {"image_file", "s/{image}"},
                       {"options", "options"}};
  const auto one = [&](const std::string& kind, const Json& answer) {
    Json with = source;
    with["answer_kind"] = kind;
    Write("s/t.jsonl",
          Json{{"image", "a.png"}, {"question", "q"}, {"answer", answer}, {"options", {"x", "y"}}}
              .dump());
    return Read(with);
  };
  for (const auto& [kind, right, wrong] : {std::tuple<std::string, Json, Json>{"letter", "B", "C"},
                                           {"index0", 1, 2},
                                           {"index0", "1", "one"},
                                           {"index1", 2, 0},
                                           {"option", "y", "z"}}) {
    const auto good = one(kind, right);
    ASSERT_TRUE(good.ok()) << kind << good.error().message;
    EXPECT_THAT(good->at(0).questions[0].answers, ElementsAre("B")) << kind;
    EXPECT_THAT(good->at(0).questions[0].all_classes, ElementsAre("x", "y")) << kind;
    const auto bad = one(kind, wrong);
    ASSERT_FALSE(bad.ok()) << kind;
    EXPECT_THAT(bad.error().message, AllOf(HasSubstr("'answer'"), HasSubstr("2 options")));
  }
}

TEST_F(Pictures, ParametersThatDoNotFitAreRefused) {
  const auto fault = [&](const Json& more) {
    Json source = table_;
    source.update(more);
    return Fault(source);
  };
  EXPECT_THAT(fault({{"images", ""}}), HasSubstr(".images"));
  EXPECT_THAT(fault({{"answers", ""}}), HasSubstr(".answers"));
  EXPECT_THAT(fault({{"mark", "{n}"}}), HasSubstr(".mark"));
  EXPECT_THAT(fault({{"answer_kind", "letter"}}), HasSubstr(".answer_kind"));
  EXPECT_THAT(fault({{"container", "jsonl"}}), HasSubstr(".image_kind"));
  EXPECT_THAT(fault({{"only", "split"}}), HasSubstr(".only"));
  EXPECT_THAT(fault({{"length_bins", "2,1"}}), HasSubstr(".length_bins"));
  EXPECT_THAT(fault({{"video_begin", "start"}}), HasSubstr(".video_begin"));
  EXPECT_THAT(fault({{"video_duration", "duration"}}), HasSubstr(".video_duration"));
  EXPECT_THAT(fault({{"subtitles", "s.srt"}}), HasSubstr(".subtitles"));
  EXPECT_THAT(fault({{"subtitle_rule", "interleaved"}}), HasSubstr(".subtitle_rule"));
  EXPECT_THAT(fault({{"option_entry", "{text}"}}), HasSubstr(".option_entry"));
  EXPECT_THAT(fault({{"group_modulo", 10}}), HasSubstr(".group_modulo"));
}

}  // namespace
}  // namespace kvgauge
