// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/safetensors.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/files.h"
#include "core/json.h"
#include "core/log.h"
#include "core/strings.h"
#include "runner/weights.h"
#include "src/checkpoint/weights_common.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Length(uint64_t length) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
  return bytes;
}

// A file from header text and data.
std::string File(const std::string& header, const std::string& data) {
  return Length(header.size()) + header + data;
}

Json Entry(const std::string& dtype, const std::vector<int64_t>& shape, uint64_t begin,
           uint64_t end) {
  return {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, end}}};
}

Result<std::vector<StoredEntry>> ParseBytes(const std::string& bytes) {
  return ParseSafetensorsHeader({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                                "m.safetensors");
}

std::string ErrorOf(const std::string& bytes) {
  const auto parsed = ParseBytes(bytes);
  EXPECT_FALSE(parsed.ok());
  if (parsed.ok()) return "";
  EXPECT_THAT(parsed.error().message, HasSubstr("m.safetensors"));
  return parsed.error().message;
}

std::string ErrorOf(const Json& header, size_t data_bytes) {
  return ErrorOf(File(header.dump(), std::string(data_bytes, 'x')));
}

// Two tensors; the second is not aligned.
Json SmallHeader() {
  return {{"__metadata__", {{"format", "pt"}}},
          {"b", Entry("F32", {2}, 3, 11)},
          {"a", Entry("U8", {3}, 0, 3)}};
}

std::string SmallFile() {
  const float values[2] = {1.5f, -2.0f};
  std::string data = "\x01\x02\x03";
  data.append(reinterpret_cast<const char*>(values), sizeof(values));
  return File(SmallHeader().dump(), data);
}

TEST(SafetensorsHeader, ReadsEntriesInNameOrder) {
  const auto entries = ParseBytes(SmallFile());
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ((*entries)[1].name, "b");
  EXPECT_EQ((*entries)[1].dtype, DType::kF32);
  EXPECT_THAT((*entries)[1].shape, ElementsAre(2));
  EXPECT_EQ((*entries)[1].end, SmallFile().size());
  EXPECT_EQ((*entries)[0].begin, SmallFile().size() - 11);
}

TEST(SafetensorsHeader, MayBePaddedWithSpaces) {
  const std::string header = SmallHeader().dump() + std::string(13, ' ');
  EXPECT_TRUE(ParseBytes(File(header, std::string(11, 'x'))).ok());
  EXPECT_THAT(ErrorOf(File(" " + header, std::string(11, 'x'))), HasSubstr("'{'"));
  EXPECT_THAT(ErrorOf(File(header + "{}", std::string(11, 'x'))), HasSubstr("JSON"));
}

TEST(SafetensorsHeader, EmptyTensorsAndFilesAreLegal) {
  EXPECT_TRUE(ParseBytes(File("{}", "")).ok());
  const Json header = {{"a", Entry("F32", {0, 5}, 0, 0)},
                       {"b", Entry("F32", {}, 0, 4)},
                       {"c", Entry("F16", {0}, 4, 4)}};
  EXPECT_TRUE(ParseBytes(File(header.dump(), "1234")).ok());
}

TEST(SafetensorsHeader, EveryTruncationIsAnError) {
  const std::string whole = SmallFile();
  ASSERT_TRUE(ParseBytes(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ParseBytes(whole.substr(0, size)).ok()) << size;
  }
  EXPECT_THAT(ErrorOf(whole + "x"), HasSubstr("12 bytes after the header"));
}

TEST(SafetensorsHeader, LyingLengths) {
  EXPECT_THAT(ErrorOf(Length(uint64_t{4} << 30) + "{}"), HasSubstr("4294967296"));
  EXPECT_THAT(ErrorOf(Length(~uint64_t{0}) + "{}"), HasSubstr("claims"));
  EXPECT_THAT(ErrorOf(Length(3) + "{}"), HasSubstr("at most 2"));
  EXPECT_THAT(ErrorOf(Length(0)), HasSubstr("'{'"));
  EXPECT_THAT(ErrorOf("PK\x03\x04"), HasSubstr("too few"));
}

TEST(SafetensorsHeader, LyingEntries) {
  const auto with = [](const Json& entry) { return Json{{"t", entry}}; };
  const auto error = [&](const Json& entry, size_t bytes) { return ErrorOf(with(entry), bytes); };
  EXPECT_THAT(error(Entry("F32", {2}, 0, 8), 4), AllOf(HasSubstr("'t'"), HasSubstr("cut off")));
  EXPECT_THAT(error(Entry("F32", {2}, 8, 0), 8), HasSubstr("data_offsets"));
  EXPECT_THAT(error(Entry("F32", {3}, 0, 8), 8), AllOf(HasSubstr("8 bytes"), HasSubstr("12")));
  EXPECT_THAT(error(Entry("F32", {-2}, 0, 8), 8), AllOf(HasSubstr("shape"), HasSubstr("-2")));
  EXPECT_THAT(error(Entry("F32", {int64_t{1} << 62, 4}, 0, 8), 8), HasSubstr("overflows"));
  // 2^61 * 4 * 8 bits wraps to zero in 64 bits.
  EXPECT_THAT(error(Entry("F32", {int64_t{1} << 61, 4}, 0, 0), 0), HasSubstr("overflows"));
  // No element, but strides that do not fit.
  EXPECT_THAT(error(Entry("F32", {0, int64_t{1} << 62, int64_t{1} << 62}, 0, 0), 0),
              HasSubstr("overflows"));
  EXPECT_THAT(error(Entry("F4", {3}, 0, 1), 1), HasSubstr("inside a byte"));
  EXPECT_THAT(error(Entry("F31", {2}, 0, 8), 8), HasSubstr("'F31'"));
  EXPECT_THAT(error({{"dtype", "F32"}, {"shape", {2}}}, 8), HasSubstr("data_offsets"));
  EXPECT_THAT(error({{"dtype", "F32"}, {"data_offsets", {0, 8}}}, 8), HasSubstr("shape"));
  EXPECT_THAT(error({{"shape", {2}}, {"data_offsets", {0, 8}}}, 8), HasSubstr("dtype"));
  EXPECT_THAT(error("text", 8), HasSubstr("object"));
  Json extra = Entry("F32", {2}, 0, 8);
  extra["strides"] = {1};
  EXPECT_THAT(error(extra, 8), HasSubstr("'strides'"));
  Json typed = Entry("F32", {2}, 0, 8);
  typed["shape"] = {2.0};
  EXPECT_THAT(error(typed, 8), HasSubstr("2.0"));
  typed["shape"] = {18446744073709551615u};
  EXPECT_THAT(error(typed, 8), HasSubstr("shape"));
  typed["shape"] = "2";
  EXPECT_THAT(error(typed, 8), HasSubstr("shape"));
  typed = Entry("F32", {2}, 0, 8);
  typed["data_offsets"] = {0, 8, 16};
  EXPECT_THAT(error(typed, 8), HasSubstr("data_offsets"));
  typed["data_offsets"] = {-8, 0};
  EXPECT_THAT(error(typed, 8), HasSubstr("data_offsets"));
}

TEST(SafetensorsHeader, OverlapsAndHoles) {
  EXPECT_THAT(ErrorOf({{"a", Entry("U8", {4}, 0, 4)}, {"b", Entry("U8", {4}, 2, 6)}}, 6),
              AllOf(HasSubstr("'b'"), HasSubstr("inside the tensor before")));
  EXPECT_THAT(ErrorOf({{"a", Entry("U8", {4}, 0, 4)}, {"b", Entry("U8", {4}, 0, 4)}}, 4),
              HasSubstr("inside the tensor before"));
  EXPECT_THAT(ErrorOf({{"a", Entry("U8", {4}, 0, 4)}, {"b", Entry("U8", {4}, 5, 9)}}, 9),
              AllOf(HasSubstr("'b'"), HasSubstr("hole")));
  EXPECT_THAT(ErrorOf({{"a", Entry("U8", {4}, 1, 5)}}, 5), HasSubstr("hole"));
}

TEST(SafetensorsHeader, BrokenJson) {
  const std::string entry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(ErrorOf(File("{\"a\":" + entry + ",\"a\":" + entry + "}", "x")), HasSubstr("twice"));
  EXPECT_THAT(ErrorOf(File("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", "x")),
              HasSubstr("twice"));
  EXPECT_THAT(ErrorOf(File("{\"\xff\":" + entry + "}", "x")), HasSubstr("UTF-8"));
  EXPECT_THAT(ErrorOf(File("{\"a\":" + std::string(100000, '[') + "}", "")),
              HasSubstr("nested deeper"));
  EXPECT_THAT(ErrorOf(File("[]", "")), HasSubstr("'{'"));
  EXPECT_THAT(ErrorOf(File(R"({"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}})", "x")),
              HasSubstr("JSON"));
  EXPECT_THAT(ErrorOf(File(R"({"__metadata__":{"a":1}})", "")), HasSubstr("__metadata__"));
}

class SafetensorsDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path(::testing::TempDir()) /
            StrCat("kvgauge_safetensors_",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  void TearDown() override {
    SetLogSink(nullptr);
    std::filesystem::remove_all(path_);
  }

  void Write(const std::string& name, const std::string& bytes) {
    ASSERT_TRUE(WriteFile(path_ / name, bytes).ok());
  }
  void WriteIndex(const Json& map) {
    Write("model.safetensors.index.json",
          Json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump());
  }
  // A shard with one byte per name.
  void WriteShard(const std::string& file, const std::vector<std::string>& names) {
    Json header = Json::object();
    std::string data;
    for (const std::string& name : names) {
      header[name] = Entry("U8", {1}, data.size(), data.size() + 1);
      data += name.back();
    }
    Write(file, File(header.dump(), data));
  }
  std::unique_ptr<WeightSource> Open() {
    auto source = OpenSafetensors(path_);
    EXPECT_TRUE(source.ok()) << source.error().message;
    return source.ok() ? std::move(source).value() : nullptr;
  }
  std::string OpenError() {
    const auto source = OpenSafetensors(path_);
    EXPECT_FALSE(source.ok());
    return source.ok() ? "" : source.error().message;
  }

  std::filesystem::path path_;
};

TEST_F(SafetensorsDirectory, GivesViewsThatOutliveTheSource) {
  Write("model.safetensors", SmallFile());
  auto source = Open();
  EXPECT_THAT(source->Names(), ElementsAre("a", "b"));
  EXPECT_TRUE(source->Contains("b"));
  EXPECT_FALSE(source->Contains("__metadata__"));
  EXPECT_EQ(source->OriginOf("a"), (path_ / "model.safetensors").string());
  const Result<WeightTensor> b = source->Get("b");
  ASSERT_TRUE(b.ok()) << b.error().message;
  source.reset();
  EXPECT_EQ(b->view.DebugString(), "f32[2]");
  float values[2];
  std::memcpy(values, b->view.data, sizeof(values));
  EXPECT_EQ(values[0], 1.5f);
  EXPECT_EQ(values[1], -2.0f);
}

TEST_F(SafetensorsDirectory, WhatCannotBeViewedIsNamed) {
  const Json header = {{"deep", Entry("U8", {1, 1, 1, 1, 1}, 0, 1)},
                       {"half", Entry("F8_E4M3", {2}, 1, 3)},
                       {"one", Entry("F16", {}, 3, 5)}};
  Write("model.safetensors", File(header.dump(), "12345"));
  const auto source = Open();
  EXPECT_THAT(source->Get("half").error().message,
              AllOf(HasSubstr("model.safetensors"), HasSubstr("'half'"), HasSubstr("F8_E4M3")));
  EXPECT_EQ(source->Get("half").error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(source->Get("hal").error().message, HasSubstr("did you mean 'half'?"));
  // If there are too many dimensions, the last ones are one.
  EXPECT_EQ(source->Get("deep")->view.DebugString(), "u8[1, 1, 1, 1]");
  // One value is a list of one.
  EXPECT_EQ(source->Get("one")->view.DebugString(), "f16[1]");
}

TEST_F(SafetensorsDirectory, Shards) {
  WriteShard("model-1.safetensors", {"a", "c"});
  WriteShard("model-2.safetensors", {"b"});
  WriteIndex(
      {{"a", "model-1.safetensors"}, {"b", "model-2.safetensors"}, {"c", "model-1.safetensors"}});
  const auto source = Open();
  EXPECT_THAT(source->Names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(source->OriginOf("b"), (path_ / "model-2.safetensors").string());
  EXPECT_EQ(*source->Get("c")->view.As<char>(), 'c');

  // The same tensors in one file are the same weights.
  const std::string fingerprint = source->Fingerprint();
  WriteShard("whole.safetensors", {"a", "b", "c"});
  EXPECT_EQ((*OpenSafetensorsFile(path_ / "whole.safetensors"))->Fingerprint(), fingerprint);
}

TEST_F(SafetensorsDirectory, IndexesThatLie) {
  WriteShard("m.safetensors", {"a"});
  WriteIndex({{"a", "m.safetensors"}, {"b", "m.safetensors"}});
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("m.safetensors"), HasSubstr("'b'")));
  WriteIndex({{"a", "gone.safetensors"}});
  EXPECT_THAT(OpenError(), HasSubstr("gone.safetensors"));
  for (const std::string name : {"../m.safetensors", "/etc/m.safetensors", "sub/m.safetensors",
                                 "..safetensors", "m.bin", ""}) {
    WriteIndex({{"a", name}});
    EXPECT_THAT(OpenError(), AllOf(HasSubstr("index.json"), HasSubstr("'a'"))) << name;
  }
  WriteIndex({{"a", 3}});
  EXPECT_THAT(OpenError(), HasSubstr("'a'"));
  WriteIndex(Json::object());
  EXPECT_THAT(OpenError(), HasSubstr("'weight_map'"));
  Write("model.safetensors.index.json", "[]");
  EXPECT_THAT(OpenError(), HasSubstr("'weight_map'"));
  Write("model.safetensors.index.json", "{");
  EXPECT_THAT(OpenError(), HasSubstr("JSON"));
}

TEST_F(SafetensorsDirectory, UnlistedTensorsAreReported) {
  WriteShard("m.safetensors", {"a", "extra"});
  WriteIndex({{"a", "m.safetensors"}});
  std::string logged;
  SetLogSink([&](LogLevel, std::string_view message) { logged += message; });
  const auto source = Open();
  EXPECT_THAT(source->Names(), ElementsAre("a"));
  EXPECT_THAT(logged, AllOf(HasSubstr("1 tensors"), HasSubstr("'extra' in m.safetensors")));
}

TEST_F(SafetensorsDirectory, WhatIsMissingIsNamed) {
  EXPECT_THAT(OpenError(),
              AllOf(HasSubstr("model.safetensors "), HasSubstr("model.safetensors.index.json")));
  Write("model.safetensors", SmallFile());
  EXPECT_NE(Open(), nullptr);
  WriteIndex({{"a", "model-1.safetensors"}});
  EXPECT_THAT(OpenError(), HasSubstr("both"));
  EXPECT_FALSE(OpenSafetensors(path_ / "nowhere").ok());
  EXPECT_FALSE(OpenSafetensors(path_ / "model.safetensors").ok());
}

TEST_F(SafetensorsDirectory, FingerprintSeesNamesShapesAndContent) {
  const auto fingerprint = [&](const Json& header, const std::string& data) {
    Write("model.safetensors", File(header.dump(), data));
    return Open()->Fingerprint();
  };
  const Json header = {{"a", Entry("U8", {4}, 0, 4)}};
  const std::string base = fingerprint(header, "1234");
  EXPECT_EQ(base.size(), 64u);
  EXPECT_EQ(fingerprint(header, "1234"), base);
  Json annotated = header;
  annotated["__metadata__"] = {{"format", "pt"}};
  EXPECT_EQ(fingerprint(annotated, "1234"), base);
  EXPECT_NE(fingerprint(header, "1235"), base);
  EXPECT_NE(fingerprint({{"b", Entry("U8", {4}, 0, 4)}}, "1234"), base);
  EXPECT_NE(fingerprint({{"a", Entry("I8", {4}, 0, 4)}}, "1234"), base);
  EXPECT_NE(fingerprint({{"a", Entry("U8", {2, 2}, 0, 4)}}, "1234"), base);
  // Sampled: the ends of a large tensor always count.
  const int64_t large = 3 << 20;
  const Json sampled = {{"a", Entry("U8", {large}, 0, large)}};
  std::string data(large, 'x');
  const std::string first = fingerprint(sampled, data);
  data.back() = 'y';
  EXPECT_NE(fingerprint(sampled, data), first);
  data.back() = 'x';
  data.front() = 'y';
  EXPECT_NE(fingerprint(sampled, data), first);
}

// Tensors of zeros that take no storage: the first and the last 4 MiB of 128, and what lies
// between.
class FarApart : public SafetensorsDirectory {
 protected:
  static constexpr int64_t kTensor = int64_t{4} << 20, kAll = int64_t{128} << 20;

  void SetUp() override {
    SafetensorsDirectory::SetUp();
    const Json header = {{"first", Entry("U8", {kTensor}, 0, kTensor)},
                         {"between", Entry("U8", {kAll - 2 * kTensor}, kTensor, kAll - kTensor)},
                         {"last", Entry("U8", {kTensor}, kAll - kTensor, kAll)}};
    Write("model.safetensors", File(header.dump(), ""));
    const auto begin = std::filesystem::file_size(Path());
    std::filesystem::resize_file(Path(), begin + kAll);
    last_ = static_cast<int64_t>(begin) + kAll - kTensor;
    std::fstream file(Path(), std::ios::binary | std::ios::in | std::ios::out);
    const std::string data(kTensor, 'x');
    for (const int64_t at : {static_cast<int64_t>(begin), last_}) file.seekp(at) << data;
    file.close();
    source_ = Open();
    reads_ = OrderedReads::Of(*source_);
    ASSERT_NE(reads_, nullptr);
  }
  std::filesystem::path Path() const { return path_ / "model.safetensors"; }

  // Whether the system's cache has something of the end of the file.
  bool LastIsCached() const {
    const int file = open(Path().c_str(), O_RDONLY | O_CLOEXEC);
    void* const mapped = mmap(nullptr, kTensor, PROT_READ, MAP_PRIVATE, file, last_ / 4096 * 4096);
    close(file);
    std::vector<unsigned char> states(kTensor / 4096);
    mincore(mapped, kTensor, states.data());
    munmap(mapped, kTensor);
    return std::ranges::any_of(states, [](unsigned char state) { return (state & 1) != 0; });
  }
  bool Drop() const {
    const int file = open(Path().c_str(), O_RDONLY | O_CLOEXEC);
    fdatasync(file);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
    return !LastIsCached();
  }

  int64_t last_ = 0;
  std::unique_ptr<WeightSource> source_;
  const OrderedReads* reads_ = nullptr;
};

TEST_F(FarApart, FilesAreReadInTheOrderOfThePlan) {
  if (!Drop()) GTEST_SKIP() << "the file stays in the cache";
  ASSERT_TRUE(source_->Get("first").ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(LastIsCached()) << "it is not used soon";

  source_ = Open();
  ASSERT_TRUE(Drop());
  OrderedReads::Of(*source_)->PlanReads(std::vector<std::string>{"first", "last"});
  ASSERT_TRUE(source_->Get("first").ok());
  for (int i = 0; i < 2000 && !LastIsCached(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(LastIsCached());
}

TEST_F(FarApart, AFingerprintLooksAtWhatWasGot) {
  using namespace std::chrono_literals;
  const std::string want = source_->Fingerprint();
  for (const bool whole : {true, false}) {
    source_ = Open();
    reads_ = OrderedReads::Of(*source_);
    reads_->PlanReads(std::vector<std::string>{"last", "first"});
    auto made = std::async(std::launch::async, [&] { return source_->Fingerprint(); });
    ASSERT_TRUE(source_->Get("last").ok());
    EXPECT_EQ(made.wait_for(100ms), std::future_status::timeout);
    if (whole) {
      ASSERT_TRUE(source_->Get("first").ok());
      EXPECT_EQ(made.wait_for(10s), std::future_status::ready);
    }
    reads_->EndReads();
    EXPECT_EQ(made.get(), want);
  }
}

TEST(Safetensors, OpensEveryGoldenModel) {
  const auto folder = std::filesystem::path(KVG_TEST_DATA) / "golden" / "models";
  int tensors = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_directory()) continue;
    const auto source = OpenSafetensors(entry.path());
    ASSERT_TRUE(source.ok()) << source.error().message;
    for (const std::string& name : (*source)->Names()) {
      const Result<WeightTensor> tensor = (*source)->Get(name);
      EXPECT_TRUE(tensor.ok()) << tensor.error().message;
      ++tensors;
    }
  }
  EXPECT_GT(tensors, 300);
}

}  // namespace
}  // namespace kvgauge
