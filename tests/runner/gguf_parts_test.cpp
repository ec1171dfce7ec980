// SPDX-License-Identifier: Apache-2.0
// A model in several GGUF files: it is the model of one file, and what cannot be it is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "runner/weights.h"
#include "src/checkpoint/gguf/file.h"
#include "src/checkpoint/gguf/parts.h"
#include "support/compare.h"
#include "support/gguf_file.h"
#include "support/logits.h"
#include "support/scratch_directory.h"
#include "support/test_ops.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(GgufPartNames, SayWhichPartAFileIs) {
  const auto name = ParseGgufPartName("a/model-q8-00002-of-00013.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->stem, "a/model-q8");
  EXPECT_EQ(name->number, 2);
  EXPECT_EQ(name->count, 13);
  EXPECT_EQ(name->PathOf(13), "a/model-q8-00013-of-00013.gguf");
  for (const char* other :
       {"model.gguf", "model-0001-of-0002.gguf", "model-00001-of-00002.bin",
        "m-00003-of-00002.gguf", "m-00000-of-00002.gguf", "-00001-of-00002.gguf",
        "a/-00001-of-00002.gguf", "m-00001of-00002.gguf", "m-0000a-of-00002.gguf", "-of-00002.gguf",
        ".gguf"}) {
    EXPECT_FALSE(ParseGgufPartName(other)) << other;
  }
}

// What a test may make wrong in a file.
struct PartSpec {
  int number = 0, count = 3, total = 3;
  std::vector<std::string> tensors = {};
  bool whole = false;             // the metadata of the model
  std::string architecture = "";  // where it is not whole
  bool says_number = true, says_count = true, says_total = true;
};

GgufBytes PartOf(const PartSpec& spec) {
  const bool names = spec.whole || !spec.architecture.empty();
  GgufBytes file;
  const int keys = int{spec.says_number} + int{spec.says_count} + int{spec.says_total} +
                   int{names} + int{spec.whole};
  file.Header(spec.tensors.size(), static_cast<uint64_t>(keys));
  if (spec.says_number) file.KeyShort("split.no", static_cast<uint64_t>(spec.number));
  if (spec.says_count) file.KeyShort("split.count", static_cast<uint64_t>(spec.count));
  if (spec.says_total) file.Key("split.tensors.count", static_cast<uint32_t>(spec.total));
  if (names) file.KeyText("general.architecture", spec.whole ? "llama" : spec.architecture);
  if (spec.whole) file.Key("llama.block_count", 1);
  for (size_t i = 0; i < spec.tensors.size(); ++i) file.Tensor(spec.tensors[i], {8, 4}, 0, 128 * i);
  return file.Pad().Data(128 * spec.tensors.size());
}

class GgufParts : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(PathTo(name), std::ios::binary) << bytes;
  }
  std::string PathTo(const std::string& name) const { return StrCat(scratch_.path(), "/", name); }
  void WriteAll(const std::vector<PartSpec>& parts) const {
    for (size_t i = 0; i < parts.size(); ++i) {
      Write(StrCat("m-0000", i + 1, "-of-0000", parts.size(), ".gguf"), PartOf(parts[i]).bytes);
    }
  }
  std::string Fault(const std::string& path) const {
    const Result<GgufFile> file = OpenGgufFile(path);
    EXPECT_FALSE(file.ok());
    return file.ok() ? "" : file.error().message;
  }
  std::string FaultOf(std::vector<PartSpec> parts,
                      const std::function<void(std::vector<PartSpec>&)>& spoil) const {
    spoil(parts);
    WriteAll(parts);
    return Fault(PathTo(kFirst));
  }

  static std::vector<PartSpec> Sound() {
    return {{.number = 0, .tensors = {"token_embd.weight"}, .whole = true},
            {.number = 1, .tensors = {"blk.0.attn_q.weight"}},
            {.number = 2, .tensors = {"output.weight"}}};
  }
  static constexpr const char* kFirst = "m-00001-of-00003.gguf";
  const ScratchDirectory scratch_;
};

TEST_F(GgufParts, AreOneFile) {
  WriteAll(Sound());
  for (const std::string& path : {scratch_.path(), PathTo(kFirst)}) {
    const auto found = FindGguf(path);
    ASSERT_TRUE(found.ok() && *found);
    EXPECT_EQ(**found, PathTo(kFirst));
  }
  const Result<GgufFile> file = OpenGgufFile(PathTo(kFirst));
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ(file->header.tensors.size(), 3u);
  EXPECT_EQ(file->header.tensors[0].name, "blk.0.attn_q.weight");
  EXPECT_EQ(file->PartOf(file->header.tensors[0])->path(), PathTo("m-00002-of-00003.gguf"));
  EXPECT_EQ(file->Find("block_count")->Int(), 1);
}

TEST_F(GgufParts, FirstFileIsNamed) {
  WriteAll(Sound());
  EXPECT_THAT(Fault(PathTo("m-00002-of-00003.gguf")),
              AllOf(HasSubstr("part 2 of the 3"), HasSubstr(PathTo(kFirst))));
  Write("other.gguf", PartOf({.whole = true}).bytes);
  const auto found = FindGguf(scratch_.path());
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.error().message,
              AllOf(HasSubstr("2 GGUF files"), HasSubstr(StrCat(kFirst, ", other.gguf")),
                    Not(HasSubstr("00002"))));
}

TEST_F(GgufParts, MissingOnesAreNamed) {
  for (const int missing : {1, 2, 3}) {
    WriteAll(Sound());
    const std::string path = PathTo(StrCat("m-0000", missing, "-of-00003.gguf"));
    std::filesystem::remove(path);
    const auto found = FindGguf(scratch_.path());
    ASSERT_TRUE(found.ok() && *found);
    EXPECT_THAT(Fault(**found), AllOf(HasSubstr(path), HasSubstr("is missing")));
  }
}

TEST_F(GgufParts, NamesAndKeysAgree) {
  EXPECT_THAT(FaultOf(Sound(), [](auto& parts) { parts[0].says_count = false; }),
              AllOf(HasSubstr(kFirst), HasSubstr("one of 3"), HasSubstr("'split.count'")));
  EXPECT_THAT(FaultOf(Sound(), [](auto& parts) { parts[0].count = 0; }), HasSubstr("one of 3"));
  EXPECT_THAT(FaultOf(Sound(), [](auto& parts) { parts[0].count = 2; }), HasSubstr("one of 2"));
  EXPECT_THAT(FaultOf(Sound(), [](auto& parts) { parts[1].count = 4; }),
              AllOf(HasSubstr("m-00002"), HasSubstr("'split.count' is 4, expected 3")));
  EXPECT_THAT(FaultOf(Sound(), [](auto& parts) { parts[1].says_count = false; }),
              AllOf(HasSubstr("m-00002"), HasSubstr("'split.count' is missing")));
  EXPECT_THAT(FaultOf(Sound(), [](auto& parts) { std::swap(parts[1], parts[2]); }),
              AllOf(HasSubstr("m-00002"), HasSubstr("'split.no' is 2, expected 1")));
  EXPECT_THAT(FaultOf(Sound(), [](auto& parts) { parts[2].says_number = false; }),
              AllOf(HasSubstr("m-00003"), HasSubstr("'split.no' is missing")));
  Write("renamed.gguf", PartOf(Sound()[0]).bytes);
  EXPECT_THAT(Fault(PathTo("renamed.gguf")),
              AllOf(HasSubstr("'split.count' is 3"), HasSubstr("NAME-00001-of-00003.gguf")));
}

TEST_F(GgufParts, TensorsAreCounted) {
  EXPECT_THAT(FaultOf(Sound(),
                      [](auto& parts) {
                        for (PartSpec& part : parts) part.total = 4;
                      }),
              AllOf(HasSubstr(kFirst), HasSubstr("'split.tensors.count' is 4"),
                    HasSubstr("hold 3 tensors")));
  EXPECT_THAT(FaultOf(Sound(), [](auto& parts) { parts[0].says_total = false; }),
              AllOf(HasSubstr(kFirst), HasSubstr("'split.tensors.count' is missing")));
  EXPECT_THAT(FaultOf(Sound(), [](auto& parts) { parts[2].tensors = parts[1].tensors; }),
              AllOf(HasSubstr("m-00003"), HasSubstr("'blk.0.attn_q.weight'"), HasSubstr("m-00002"),
                    HasSubstr("already")));
}

TEST_F(GgufParts, OfDifferentModelsAreRefused) {
  EXPECT_THAT(FaultOf(Sound(), [](auto& parts) { parts[1].total = 7; }),
              AllOf(HasSubstr("m-00002"), HasSubstr("different models")));
  EXPECT_THAT(FaultOf(Sound(), [](auto& parts) { parts[1].architecture = "qwen2"; }),
              AllOf(HasSubstr("m-00002"), HasSubstr("'general.architecture'"),
                    HasSubstr("different models")));
  // The same said twice is no fault.
  std::vector<PartSpec> repeated = Sound();
  repeated[2].architecture = "llama";
  WriteAll(repeated);
  EXPECT_TRUE(OpenGgufFile(PathTo(kFirst)).ok());
  // Metadata that the first file lacks belongs to another one.
  std::vector<PartSpec> other = Sound();
  std::swap(other[0].whole, other[1].whole);
  WriteAll(other);
  EXPECT_THAT(Fault(PathTo(kFirst)), AllOf(HasSubstr("m-00002"), HasSubstr("is not in")));
}

TEST_F(GgufParts, EveryCutIsRefused) {
  WriteAll(Sound());
  const std::string bytes = PartOf(Sound()[1]).bytes;
  for (size_t size = 0; size < bytes.size(); ++size) {
    Write("m-00002-of-00003.gguf", bytes.substr(0, size));
    EXPECT_THAT(Fault(PathTo(kFirst)), HasSubstr("m-00002")) << size;
  }
}

// A golden file, torn into parts by hand.
class TornGolden : public GgufParts {
 protected:
  static constexpr const char* kGolden = KVG_TEST_DATA "/golden/gguf/mixed.gguf";

  void Tear(int count) const {
    const Result<GgufFile> file = OpenGgufHeader(kGolden);
    ASSERT_TRUE(file.ok());
    const std::vector<GgufTensor>& all = file->header.tensors;
    for (int part = 0; part < count; ++part) {
      const size_t first = all.size() * part / count, end = all.size() * (part + 1) / count;
      GgufBytes out;
      const size_t keys = part == 0 ? file->header.metadata.size() : 0;
      out.Header(end - first, keys + 3);
      out.KeyShort("split.no", static_cast<uint64_t>(part));
      out.KeyShort("split.count", static_cast<uint64_t>(count));
      out.Key("split.tensors.count", static_cast<uint32_t>(all.size()));
      if (part == 0) {
        for (const auto& [key, value] : file->header.metadata) out.KeyValue(key, value);
      }
      uint64_t offset = 0;
      for (size_t i = first; i < end; ++i) {
        const std::vector<uint64_t> dims(all[i].shape.rbegin(), all[i].shape.rend());
        out.Tensor(all[i].name, dims, all[i].type->id, offset);
        offset = (offset + all[i].end - all[i].begin + 31) / 32 * 32;
      }
      for (size_t i = first; i < end; ++i) {
        const std::span<const uint8_t> bytes = file->BytesOf(all[i]);
        out.Pad().bytes.append(bytes.begin(), bytes.end());
      }
      Write(GgufPartName{.stem = "m", .count = count}.PathOf(part + 1), out.Pad().bytes);
    }
  }
};

TEST_F(TornGolden, IsTheWholeModel) {
  const auto whole = OpenWeights(kGolden, DType::kBF16);
  ASSERT_TRUE(whole.ok());
  const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 2);
  const Result<std::unique_ptr<Model>> expected = Model::Load(kGolden, {}, *ops);
  ASSERT_TRUE(expected.ok());
  for (const int count : {2, 3, 7}) {
    Tear(count);
    const std::string first = PathTo(GgufPartName{.stem = "m", .count = count}.PathOf(1));
    const auto weights = OpenWeights(first, DType::kBF16);
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    EXPECT_EQ((*weights)->Names(), (*whole)->Names());
    EXPECT_EQ((*weights)->Fingerprint(), (*whole)->Fingerprint());
    std::set<std::string> origins;
    for (const std::string& name : (*whole)->Names()) origins.insert((*weights)->OriginOf(name));
    EXPECT_EQ(std::ssize(origins), count);
    const Result<std::unique_ptr<Model>> model = Model::Load(first, {}, *ops);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ((*model)->config().weight_format, (*expected)->config().weight_format);
    EXPECT_EQ((*model)->block_bytes(), (*expected)->block_bytes());
    EXPECT_EQ((*model)->weight_bytes(), (*expected)->weight_bytes());
    const std::vector<int32_t> ids = {5, 9, 33, 2, 17};
    EXPECT_TRUE(SameBits(AllLogits(**model, *ops, ids), AllLogits(**expected, *ops, ids)));
    for (int part = 1; part <= count; ++part) {
      std::filesystem::remove(PathTo(GgufPartName{.stem = "m", .count = count}.PathOf(part)));
    }
  }
}

}  // namespace
}  // namespace kvgauge
