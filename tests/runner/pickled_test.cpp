// SPDX-License-Identifier: Apache-2.0
// Files of torch.save: the numbers of honest ones, and what becomes of those that lie or ask for
// something else than tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "runner/model.h"
#include "runner/weights.h"
#include "src/checkpoint/pickled/file.h"
#include "src/checkpoint/pickled/pickle.h"
#include "src/checkpoint/pickled/zip.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kPickledGolden = std::string(KVG_TEST_DATA) + "/golden/";

std::span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string Wide(uint64_t value, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

// Words of a pickle.
std::string Called(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
std::string Says(const std::string& text) { return "X" + Wide(text.size(), 4) + text; }
std::string Int(int64_t value) { return "\x8a\x08" + Wide(static_cast<uint64_t>(value), 8); }
std::string Ints(const std::vector<int64_t>& values) {
  std::string tuple = "(";
  for (const int64_t value : values) tuple += Int(value);
  return tuple + "t";
}
std::string NoHooks() { return Called("collections", "OrderedDict") + ")R"; }
std::string StorageOf(const std::string& type, int64_t elements, const std::string& key = "0") {
  return "(" + Says("storage") + Called("torch", type) + Says(key) + Says("cpu") + Int(elements) +
         "tQ";
}
std::string TensorOf(const std::string& storage, int64_t offset, const std::vector<int64_t>& shape,
                     const std::vector<int64_t>& strides) {
  return Called("torch._utils", "_rebuild_tensor_v2") + "(" + storage + Int(offset) + Ints(shape) +
         Ints(strides) + "\x89" + NoHooks() + "tR";
}
std::string Program(const std::string& body) { return "\x80\x02" + body + "."; }
std::string DictOf(const std::string& name, const std::string& value) {
  return Program("}" + Says(name) + value + "s");
}
std::string Pair() { return TensorOf(StorageOf("FloatStorage", 2), 0, {2}, {1}); }

std::string PickleError(const std::string& pickle) {
  const auto read = ReadPickle(AsBytes(pickle), "m.bin");
  EXPECT_FALSE(read.ok());
  if (read.ok()) return "";
  EXPECT_TRUE(read.error().message.starts_with("m.bin: data.pkl: "));
  return read.error().message;
}

// An archive as PyTorch writes it, and ways to spoil it.
struct ZipFile {
  std::vector<std::pair<std::string, std::string>> entries;
  uint16_t flags = 0, method = 0;
  uint64_t more = 0;               // of the size that the directory claims of every entry
  uint64_t less = 0;               // of where the directory says that the last header is
  std::string other_name = {};     // in the first entry's own header
  bool wide = false;               // numbers of 64 bits
  uint64_t directory_shift = 0;    // of where the directory is said to be
  uint64_t directory_entries = 0;  // how many more are claimed

  std::string Bytes() const {
    std::string file, directory;
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto& [name, content] = entries[i];
      const uint64_t header = file.size() - (i + 1 == entries.size() ? less : 0);
      const std::string own = i == 0 && !other_name.empty() ? other_name : name;
      file += "PK\x03\x04" + std::string(22, '\0') + Wide(own.size(), 2) + Wide(3, 2) + own + "pad";
      file += content;
      const uint64_t size = content.size() + more;
      const uint64_t narrow = wide ? 0xffffffff : size;
      const std::string extra =
          wide ? Wide(1, 2) + Wide(24, 2) + Wide(size, 8) + Wide(size, 8) + Wide(header, 8) : "";
      directory += "PK\x01\x02" + std::string(4, '\0') + Wide(flags, 2) + Wide(method, 2) +
                   std::string(8, '\0') + Wide(narrow, 4) + Wide(narrow, 4) + Wide(name.size(), 2) +
                   Wide(extra.size(), 2) + std::string(10, '\0') +
                   Wide(wide ? 0xffffffff : header, 4) + name + extra;
    }
    const uint64_t at = file.size(), count = entries.size() + directory_entries;
    file += directory;
    if (wide) {
      const uint64_t record = file.size();
      file += "PK\x06\x06" + Wide(44, 8) + Wide(45, 2) + Wide(45, 2) + Wide(0, 8) + Wide(count, 8) +
              Wide(count, 8) + Wide(directory.size(), 8) + Wide(at + directory_shift, 8);
      file += "PK\x06\x07" + Wide(0, 4) + Wide(record, 8) + Wide(1, 4);
    }
    file += "PK\x05\x06" + Wide(0, 4) + Wide(count, 2) + Wide(count, 2) +
            Wide(directory.size(), 4) + Wide(wide ? 0xffffffff : at + directory_shift, 4) +
            Wide(0, 2);
    return file;
  }
};

ZipFile Archive(const std::string& pickle, const std::string& storage = "12345678") {
  return {.entries = {{"m/data.pkl", pickle}, {"m/data/0", storage}}};
}

std::string FileError(const std::string& bytes) {
  const auto read = ParsePickledWeights(AsBytes(bytes), "m.bin");
  EXPECT_FALSE(read.ok());
  if (read.ok()) return "";
  EXPECT_TRUE(read.error().message.starts_with("m.bin: ")) << read.error().message;
  return read.error().message;
}

TEST(Pickled, EveryKindOfTensorHasItsNumbers) {
  const auto source = OpenStored(kPickledGolden + "pickled/single", kPickled);
  ASSERT_TRUE(source.ok()) << source.error().message;
  const auto expected = OpenSafetensorsFile(kPickledGolden + "pickled/single/expected.safetensors");
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ((*source)->Names(), (*expected)->Names());
  ASSERT_GE((*source)->Names().size(), 20u);
  for (const std::string& name : (*expected)->Names()) {
    const auto got = (*source)->GetStored(name);
    const auto want = (*expected)->GetStored(name);
    ASSERT_TRUE(got.ok() && want.ok()) << name;
    EXPECT_EQ(got->type, want->type) << name;
    EXPECT_EQ(got->shape, want->shape) << name;
    ASSERT_EQ(got->bytes.size(), want->bytes.size()) << name;
    EXPECT_EQ(std::memcmp(got->bytes.data(), want->bytes.data(), got->bytes.size()), 0) << name;
    const auto view = (*source)->Get(name), other = (*expected)->Get(name);
    EXPECT_EQ(view.ok(), other.ok()) << name;
    if (!view.ok()) continue;
    EXPECT_EQ(view->view.DebugString(), other->view.DebugString());
    EXPECT_TRUE(view->view.IsContiguous());
    const auto told = (*source)->Describe(name);
    ASSERT_TRUE(told.ok());
    EXPECT_EQ(told->shape, (*expected)->Describe(name)->shape);
  }
  EXPECT_EQ((*source)->Fingerprint(), (*expected)->Fingerprint());
}

TEST(Pickled, TensorsThatShareAStorageAreViewsOfTheFile) {
  const auto source = *OpenStored(kPickledGolden + "pickled/single", kPickled);
  const auto data = [&](const std::string& name) {
    return static_cast<const char*>(source->Get(name)->view.data);
  };
  EXPECT_EQ(data("again"), data("base"));
  EXPECT_EQ(data("rows"), data("base") + 2 * 8 * 4);
}

TEST(Pickled, AModelIsTheSameInShards) {
  const std::string path = kPickledGolden + "pickled/sharded";
  const std::string same = kPickledGolden + "models/gpt_neox_sequential";
  const auto source = OpenWeights(path, DType::kF32);
  ASSERT_TRUE(source.ok()) << source.error().message;
  const auto config = ReadModelConfig(path);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_TRUE(CheckWeights(*config, **source).ok());
  EXPECT_EQ(config->weight_format, "");
  const auto other = OpenSafetensors(same);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ((*source)->Fingerprint(), (*other)->Fingerprint());
  EXPECT_EQ(*ModelFingerprint(*config, **source),
            *ModelFingerprint(*ReadModelConfig(same), **other));
  EXPECT_THAT((*source)->OriginOf((*source)->Names()[0]), HasSubstr("-of-00002.bin"));
}

TEST(Pickle, ReadsWhatItIsTold) {
  const auto read = ReadPickle(
      AsBytes(DictOf("w", TensorOf(StorageOf("HalfStorage", 20, "k"), 3, {2, 3}, {8, 2}))),
      "m.bin");
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->size(), 1u);
  const PickledTensor& tensor = (*read)[0];
  EXPECT_EQ(tensor.name, "w");
  EXPECT_EQ(tensor.type->name, "F16");
  EXPECT_EQ(tensor.storage, "k");
  EXPECT_EQ(tensor.storage_bytes, 40u);
  EXPECT_EQ(tensor.offset, 3u);
  EXPECT_THAT(tensor.shape, ElementsAre(2, 3));
  EXPECT_THAT(tensor.strides, ElementsAre(8, 2));
}

TEST(Pickle, NamesThatAreNoTensorsAreRefused) {
  for (const auto& [module, name] :
       std::vector<std::pair<std::string, std::string>>{{"os", "system"},
                                                        {"builtins", "eval"},
                                                        {"torch", "load"},
                                                        {"torch._utils", "_rebuild_wrapper"},
                                                        {"torch", "FloatStorage2"},
                                                        {"torch.nn.modules", "Linear"}}) {
    const std::string error = PickleError(DictOf("w", Called(module, name) + Says("rm") + "\x85R"));
    EXPECT_THAT(error, AllOf(HasSubstr("byte 9"), HasSubstr(StrCat("'", module, ".", name, "'")),
                             HasSubstr("nothing is run")));
  }
  // Names that are known are called in their place alone.
  EXPECT_THAT(PickleError(DictOf("w", Called("torch", "FloatStorage") + ")R")),
              AllOf(HasSubstr("call"), HasSubstr("torch.FloatStorage")));
  EXPECT_THAT(PickleError(DictOf("w", Called("torch", "uint16") + ")R")), HasSubstr("call"));
  EXPECT_THAT(PickleError(DictOf("w", Says("x") + ")R")), HasSubstr("a name, not a text"));
}

TEST(Pickle, EveryOtherOperationIsRefused) {
  const std::string known("\x80(N\x88\x89KMJ\x8aXc)\x85\x86\x87t}suqrhjQRb.");
  int refused = 0;
  for (int code = 0; code < 256; ++code) {
    if (known.find(static_cast<char>(code)) != std::string::npos) continue;
    const std::string error =
        PickleError("\x80\x02}" + std::string(1, static_cast<char>(code)) + "\x01\x01.");
    EXPECT_THAT(error, AllOf(HasSubstr("byte 3: operation "), HasSubstr("nothing is run")));
    ++refused;
  }
  EXPECT_EQ(refused, 256 - 27);
  EXPECT_THAT(PickleError("\x80\x02}\x93."), HasSubstr("STACK_GLOBAL"));
  EXPECT_THAT(PickleError("\x80\x02(i"), HasSubstr("INST"));
  EXPECT_THAT(PickleError("\x80\x02}\xfe."), HasSubstr("0xfe"));
}

TEST(Pickle, EveryTruncationIsAnError) {
  const std::string whole = DictOf("w", Pair());
  ASSERT_TRUE(ReadPickle(AsBytes(whole), "m.bin").ok());
  for (size_t size = 0; size < whole.size(); ++size) PickleError(whole.substr(0, size));
  EXPECT_THAT(PickleError(whole + "x"), HasSubstr("1 bytes follow"));
}

TEST(Pickle, OtherProtocols) {
  EXPECT_THAT(PickleError("\x80\x04}."), HasSubstr("protocol 4, expected 2"));
  EXPECT_THAT(PickleError("\x80\x02\x80\x02}."), HasSubstr("inside"));
}

TEST(Pickle, StacksThatDoNotFit) {
  EXPECT_THAT(PickleError(Program("")), HasSubstr("0 values"));
  EXPECT_THAT(PickleError(Program("}}")), HasSubstr("2 values"));
  EXPECT_THAT(PickleError(Program("}(")), HasSubstr("ends with"));
  EXPECT_THAT(PickleError(Program("\x86")), HasSubstr("needs a value"));
  EXPECT_THAT(PickleError(Program("}N(\x86")), HasSubstr("needs a value"));
  EXPECT_THAT(PickleError(Program("t")), HasSubstr("needs a mark"));
  EXPECT_THAT(PickleError(Program("u")), HasSubstr("needs a mark"));
  EXPECT_THAT(PickleError(Program("}(Nu")), HasSubstr("pairs"));
  EXPECT_THAT(PickleError(Program(")NNs")), HasSubstr("a dictionary, not a tuple"));
  EXPECT_THAT(PickleError(Program("h\x05")), HasSubstr("remembered as 5"));
  EXPECT_THAT(PickleError(Program("q" + std::string(1, '\0'))), HasSubstr("needs a value"));
  EXPECT_THAT(PickleError(Program("N")), HasSubstr("holds None"));
  EXPECT_THAT(PickleError(Program("\x8a\x09" + std::string(9, '\1'))), HasSubstr("9 bytes"));
  EXPECT_THAT(PickleError(Program("X" + Wide(0xffffffff, 4))), HasSubstr("4294967295"));
  EXPECT_THAT(PickleError(Program("ctorch")), HasSubstr("without an end"));
}

TEST(Pickle, AttributesAreThoseOfTheDictionaryAlone) {
  const std::string versions = "}" + Says("_metadata") + "}s";
  EXPECT_TRUE(ReadPickle(AsBytes(Program(NoHooks() + versions + "b")), "m.bin").ok());
  EXPECT_THAT(PickleError(Program("}" + versions + "b")), HasSubstr("attributes"));
  EXPECT_THAT(PickleError(Program(NoHooks() + NoHooks() + "b")), HasSubstr("attributes"));
  EXPECT_THAT(PickleError(Program(NoHooks() + ")b")), HasSubstr("a dictionary, not a tuple"));
}

TEST(Pickle, DictionariesOfSomethingElse) {
  EXPECT_THAT(PickleError(DictOf("epoch", Int(3))),
              AllOf(HasSubstr("'epoch'"), HasSubstr("number")));
  EXPECT_THAT(PickleError(DictOf("model", "}")),
              AllOf(HasSubstr("'model'"), HasSubstr("dictionary")));
  EXPECT_THAT(PickleError(DictOf("", Pair())), HasSubstr("key"));
  EXPECT_THAT(PickleError(DictOf("\xff", Pair())), HasSubstr("key"));
  EXPECT_THAT(PickleError(Program("}" + Int(1) + Pair() + "s")), HasSubstr("key"));
  EXPECT_THAT(PickleError(Program("}(" + Says("w") + Pair() + Says("w") + Pair() + "u")),
              AllOf(HasSubstr("'w'"), HasSubstr("twice")));
  EXPECT_THAT(PickleError(Program(Pair())), HasSubstr("holds a tensor"));
  // A dictionary that holds itself is no reason to run for ever.
  EXPECT_THAT(PickleError(Program("}q\x01" + Says("me") + "h\x01s")), HasSubstr("'me'"));
}

TEST(Pickle, TensorsThatLie) {
  const auto error = [](int64_t offset, const std::vector<int64_t>& shape,
                        const std::vector<int64_t>& strides) {
    return PickleError(DictOf("w", TensorOf(StorageOf("FloatStorage", 8), offset, shape, strides)));
  };
  EXPECT_THAT(error(0, {9}, {1}), HasSubstr("the storage has 8"));
  EXPECT_THAT(error(1, {8}, {1}), HasSubstr("the last at 8"));
  EXPECT_THAT(error(0, {2, 4}, {5, 1}), HasSubstr("the last at 8"));
  EXPECT_THAT(error(9, {0}, {1}), HasSubstr("the last at 9"));
  EXPECT_THAT(error(8, {}, {}), HasSubstr("the last at 8"));
  EXPECT_THAT(error(-1, {1}, {1}), HasSubstr("offset -1"));
  EXPECT_THAT(error(0, {1}, {}), HasSubstr("0 strides"));
  EXPECT_THAT(error(0, {-1}, {1}), HasSubstr("from 0"));
  EXPECT_THAT(error(0, {1}, {-1}), HasSubstr("from 0"));
  EXPECT_THAT(error(0, std::vector<int64_t>(17, 1), std::vector<int64_t>(17, 1)), HasSubstr("17"));
  // Small storages are no huge tensors.
  EXPECT_THAT(error(0, {1 << 20, 1 << 20}, {0, 0}), HasSubstr("1099511627776 elements"));
  EXPECT_THAT(error(0, {3, 3}, {0, 1}), HasSubstr("9 elements"));
  const int64_t most = INT64_MAX;
  EXPECT_THAT(error(0, {most, most}, {0, 0}), HasSubstr("too many"));
  EXPECT_THAT(error(0, {3}, {most}), HasSubstr("the last at 18446744073709551614"));
  EXPECT_THAT(error(most, {3}, {most}), HasSubstr("too many"));
  EXPECT_THAT(PickleError(DictOf("w", TensorOf(StorageOf("LongStorage", most), 0, {1}, {1}))),
              HasSubstr("claims"));
  EXPECT_THAT(PickleError(DictOf("w", TensorOf(StorageOf("LongStorage", -1), 0, {1}, {1}))),
              HasSubstr("no storage"));
}

TEST(Pickle, PartsOfTensorsInOtherPlaces) {
  const std::string tensor = Called("torch._utils", "_rebuild_tensor_v2");
  const std::string storage = StorageOf("FloatStorage", 2);
  const auto made_of = [&](const std::string& arguments) {
    return PickleError(DictOf("w", tensor + "(" + arguments + "tR"));
  };
  EXPECT_THAT(made_of(""), HasSubstr("is to be made"));
  EXPECT_THAT(made_of(Int(0) + Int(0) + Ints({2}) + Ints({1}) + "\x89" + NoHooks()),
              HasSubstr("is to be made"));
  EXPECT_THAT(made_of(storage + Int(0) + Ints({2}) + Int(1) + "\x89" + NoHooks()),
              HasSubstr("is to be made"));
  EXPECT_THAT(made_of(storage + Int(0) + "(" + Says("2") + "t" + Ints({1}) + "\x89" + NoHooks()),
              HasSubstr("from 0"));
  // Hooks are code, and bits of mathematics change numbers.
  const std::string hooked = storage + Int(0) + Ints({2}) + Ints({1}) + "\x89}" + Int(1) + "Ns";
  EXPECT_THAT(made_of(hooked), HasSubstr("no hooks"));
  const std::string bits = storage + Int(0) + Ints({2}) + Ints({1}) + "\x89" + NoHooks();
  EXPECT_THAT(made_of(bits + "}" + Says("neg") + "\x88s"), HasSubstr("is to be made"));
  EXPECT_TRUE(ReadPickle(AsBytes(DictOf("w", tensor + "(" + bits + "}tR")), "m.bin").ok());
  const std::string parameter = Called("torch._utils", "_rebuild_parameter");
  EXPECT_TRUE(
      ReadPickle(AsBytes(DictOf("w", parameter + Pair() + "\x88" + NoHooks() + "\x87R")), "m.bin")
          .ok());
  EXPECT_THAT(PickleError(DictOf("w", parameter + Int(1) + "\x88" + NoHooks() + "\x87R")),
              HasSubstr("_rebuild_parameter"));
  EXPECT_THAT(PickleError(DictOf("w", Says("x") + "Q")), HasSubstr("a tuple, not a text"));
  EXPECT_THAT(PickleError(DictOf("w", "(" + Says("module") + "tQ")), HasSubstr("no storage"));
  EXPECT_THAT(PickleError(DictOf("w", "(" + Says("storage") + Called("torch", "uint16") +
                                          Says("0") + Says("cpu") + Int(2) + "tQ")),
              HasSubstr("no storage"));
  const std::string bytes = "(" + Says("storage") + Called("torch.storage", "UntypedStorage") +
                            Says("0") + Says("cpu") + Int(2) + "tQ";
  EXPECT_THAT(PickleError(DictOf("w", TensorOf(bytes, 0, {2}, {1}))), HasSubstr("no type"));
  const std::string typed = Called("torch._utils", "_rebuild_tensor_v3") + "(" + storage + Int(0) +
                            Ints({2}) + Ints({1}) + "\x89" + NoHooks() +
                            Called("torch", "float8_e4m3fn") + "tR";
  EXPECT_THAT(PickleError(DictOf("w", typed)), HasSubstr("a type each"));
}

TEST(PickledFile, IsFoundInItsArchive) {
  for (const bool wide : {false, true}) {
    ZipFile zip = Archive(DictOf("w", TensorOf(StorageOf("FloatStorage", 2), 1, {1}, {1})));
    zip.wide = wide;
    zip.entries.push_back({"m/byteorder", "little"});
    const std::string file = zip.Bytes();
    const auto read = ParsePickledWeights(AsBytes(file), "m.bin");
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(read->size(), 1u);
    const StoredEntry& entry = (*read)[0];
    EXPECT_EQ(file.substr(entry.begin, entry.end - entry.begin), "5678");
    EXPECT_TRUE(entry.strides.empty());
  }
}

TEST(PickledFile, EveryTruncationIsAnError) {
  const std::string whole = Archive(DictOf("w", Pair())).Bytes();
  ASSERT_TRUE(ParsePickledWeights(AsBytes(whole), "m.bin").ok());
  for (size_t size = 0; size < whole.size(); ++size) FileError(whole.substr(0, size));
  EXPECT_THAT(FileError(whole + "x"), HasSubstr("the last 22 bytes"));
}

TEST(PickledFile, ArchivesThatLie) {
  const std::string pickle = DictOf("w", Pair());
  const auto spoiled = [&](auto&& spoil) {
    ZipFile zip = Archive(pickle);
    spoil(zip);
    return FileError(zip.Bytes());
  };
  EXPECT_THAT(spoiled([](ZipFile& z) { z.method = 8; }),
              AllOf(HasSubstr("'m/data.pkl'"), HasSubstr("compressed (method 8)")));
  EXPECT_THAT(spoiled([](ZipFile& z) { z.flags = 1; }), HasSubstr("encrypted"));
  EXPECT_THAT(spoiled([](ZipFile& z) { z.more = 1 << 20; }), HasSubstr("claims"));
  EXPECT_THAT(spoiled([](ZipFile& z) { z.other_name = "m/data.pkx"; }), HasSubstr("own header"));
  EXPECT_THAT(spoiled([](ZipFile& z) { z.less = 1; }), HasSubstr("is not there"));
  EXPECT_THAT(spoiled([](ZipFile& z) { z.directory_shift = 1; }), HasSubstr("zip directory"));
  EXPECT_THAT(spoiled([](ZipFile& z) { z.directory_entries = 1; }), HasSubstr("zip directory"));
  EXPECT_THAT(spoiled([](ZipFile& z) { z.directory_entries = 60000; }), HasSubstr("60002 entries"));
  EXPECT_THAT(spoiled([](ZipFile& z) {
                z.wide = true;
                z.more = ~uint64_t{0} - 100;
              }),
              HasSubstr("claims"));
  EXPECT_THAT(spoiled([](ZipFile& z) {
                z.wide = true;
                z.directory_shift = ~uint64_t{0} - 10;
              }),
              HasSubstr("zip directory"));
  EXPECT_THAT(spoiled([](ZipFile& z) { z.entries[1].first = z.entries[0].first; }),
              HasSubstr("twice"));
  EXPECT_THAT(spoiled([](ZipFile& z) { z.entries.pop_back(); }),
              AllOf(HasSubstr("'w'"), HasSubstr("storage '0' is not in the archive")));
  EXPECT_THAT(spoiled([](ZipFile& z) { z.entries[1].second += "9"; }),
              AllOf(HasSubstr("9 bytes"), HasSubstr("says 8")));
  EXPECT_THAT(spoiled([](ZipFile& z) { z.entries[0].first = "m/pkl"; }), HasSubstr("0 entries"));
  EXPECT_THAT(spoiled([](ZipFile& z) {
                z.entries.push_back({"n/data.pkl", "x"});
              }),
              HasSubstr("2 entries"));
  EXPECT_THAT(spoiled([](ZipFile& z) {
                z.entries.push_back({"m/constants.pkl", "x"});
              }),
              HasSubstr("TorchScript"));
  EXPECT_THAT(spoiled([](ZipFile& z) {
                z.entries.push_back({"m/byteorder", "big"});
              }),
              HasSubstr("'big'"));
  // An entry inside another.
  std::string inner = "PK\x03\x04" + std::string(22, '\0') + Wide(8, 2) + Wide(0, 2) + "m/data/0";
  ZipFile nested = Archive(pickle, inner + "12345678");
  nested.entries.push_back({"m/data/0x", ""});
  EXPECT_TRUE(ReadZipDirectory(AsBytes(nested.Bytes()), "m.bin").ok());
  nested.entries[1].first = "m/other";
  nested.entries[2].first = "m/data/0";
  nested.less = inner.size() + 8;
  EXPECT_THAT(FileError(nested.Bytes()), HasSubstr("inside 'm/other'"));
}

TEST(PickledFile, OfOldVersionsAreRefused) {
  EXPECT_THAT(FileError("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."),
              HasSubstr("before 1.6"));
  EXPECT_THAT(FileError(""), HasSubstr("cut off"));
}

class PickledDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ =
        std::filesystem::path(::testing::TempDir()) /
        StrCat("kvgauge_pickled_", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void Write(const std::string& name, const std::string& bytes) const {
    ASSERT_TRUE(WriteFile(path_ / name, bytes).ok());
  }
  std::string OpenError() const {
    const auto source = OpenWeights(path_, DType::kF32);
    EXPECT_FALSE(source.ok());
    return source.ok() ? "" : source.error().message;
  }

  std::filesystem::path path_;
};

TEST_F(PickledDirectory, SafetensorsArePreferred) {
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("pytorch_model.bin"), HasSubstr("model.safetensors")));
  Write("pytorch_model.bin", Archive(DictOf("w", Pair())).Bytes());
  EXPECT_THAT((*OpenWeights(path_, DType::kF32))->Names(), ElementsAre("w"));
  Write("model.safetensors", Wide(2, 8) + "{}");
  EXPECT_THAT((*OpenWeights(path_, DType::kF32))->Names(), ElementsAre());
  std::filesystem::remove(path_ / "model.safetensors");
  Write("m.gguf", "GGUF");
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("m.gguf"), HasSubstr("pytorch_model.bin")));
}

TEST_F(PickledDirectory, ShardsAreNeighboursOfTheirIndex) {
  const auto index = [&](const std::string& file) {
    Write("pytorch_model.bin.index.json", Json{{"weight_map", {{"w", file}}}}.dump());
  };
  Write("a.bin", Archive(DictOf("w", Pair())).Bytes());
  index("a.bin");
  EXPECT_THAT((*OpenWeights(path_, DType::kF32))->Names(), ElementsAre("w"));
  for (const std::string file : {"../a.bin", "/a.bin", "a.safetensors", ""}) {
    index(file);
    EXPECT_THAT(OpenError(), AllOf(HasSubstr("'w'"), HasSubstr(".bin file"))) << file;
  }
  index("a.bin");
  Write("pytorch_model.bin", "x");
  EXPECT_THAT(OpenError(), HasSubstr("both"));
}

}  // namespace
}  // namespace kvgauge
