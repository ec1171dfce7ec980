// SPDX-License-Identifier: Apache-2.0
// Quantised Hub directories that lie: about their config, their shapes or their numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "config_cases.h"
#include "core/json.h"
#include "core/strings.h"
#include "runner/weights.h"
#include "src/checkpoint/quantized/stored.h"
#include "src/checkpoint/weights_common.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct FileTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

template <class T>
std::string BytesOf(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

FileTensor Floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  return {"F32", std::move(shape), BytesOf(values)};
}

FileTensor Words(std::vector<int64_t> shape, const std::vector<int32_t>& values) {
  return {"I32", std::move(shape), BytesOf(values)};
}

FileTensor Int8s(std::vector<int64_t> shape, const std::vector<int8_t>& values) {
  return {"I8", std::move(shape), BytesOf(values)};
}

FileTensor Codes(const std::string& dtype, std::vector<int64_t> shape, uint8_t value = 0x38) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return {dtype, std::move(shape),
          std::string(static_cast<size_t>(count), static_cast<char>(value))};
}

using Tensors = std::map<std::string, FileTensor>;

class QuantizedDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "quantized_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  void Write(const Json& quantization, const Tensors& tensors) {
    std::ofstream(path_ + "/config.json") << Json{{"quantization_config", quantization}}.dump();
    Json header = Json::object();
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      header[name] = {{"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
      data += tensor.bytes;
    }
    const std::string text = header.dump();
    const uint64_t length = text.size();
    std::ofstream file(path_ + "/model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file << text << data;
  }

  // What opening says.
  std::string OpenError(const Json& quantization, const Tensors& tensors) {
    Write(quantization, tensors);
    const auto source = OpenWeights(path_, DType::kF32);
    EXPECT_FALSE(source.ok());
    return source.ok() ? "" : source.error().message;
  }

  // What the only made tensor says when it is asked for.
  std::string GetError(const Json& quantization, const Tensors& tensors) {
    Write(quantization, tensors);
    const auto source = OpenWeights(path_, DType::kF32);
    EXPECT_TRUE(source.ok()) << source.error().message;
    if (!source.ok()) return "";
    const auto weight = (*source)->Get("m.weight");
    EXPECT_FALSE(weight.ok());
    return weight.ok() ? "" : weight.error().message;
  }

  std::vector<float> Numbers(const Json& quantization, const Tensors& tensors) {
    Write(quantization, tensors);
    const auto source = OpenWeights(path_, DType::kF32);
    EXPECT_TRUE(source.ok()) << source.error().message;
    if (!source.ok()) return {};
    const auto weight = (*source)->Get("m.weight");
    EXPECT_TRUE(weight.ok()) << weight.error().message;
    if (!weight.ok()) return {};
    const float* begin = weight->view.f32();
    return {begin, begin + weight->view.Numel()};
  }

  std::string path_;
};

Tensors Without(Tensors tensors, const std::string& name) {
  tensors.erase(name);
  return tensors;
}

Tensors Replaced(Tensors tensors, const std::string& name, FileTensor tensor) {
  tensors[name] = std::move(tensor);
  return tensors;
}

const float kNan = std::numeric_limits<float>::quiet_NaN();
const float kInfinity = std::numeric_limits<float>::infinity();

// --- Numbers of one byte -------------------------------------------------------------------------

TEST(StoredNumbers, BytesAreTheFormats) {
  const float* e4m3 = ByteNumbers("F8_E4M3");
  EXPECT_EQ(e4m3[0x00], 0.0f);
  EXPECT_EQ(e4m3[0x01], std::ldexp(1.0f, -9));
  EXPECT_EQ(e4m3[0x08], std::ldexp(1.0f, -6));
  EXPECT_EQ(e4m3[0x38], 1.0f);
  EXPECT_EQ(e4m3[0x7e], 448.0f);
  EXPECT_EQ(e4m3[0xfe], -448.0f);
  EXPECT_TRUE(std::isnan(e4m3[0x7f]) && std::isnan(e4m3[0xff]));
  const float* e5m2 = ByteNumbers("F8_E5M2");
  EXPECT_EQ(e5m2[0x01], std::ldexp(1.0f, -16));
  EXPECT_EQ(e5m2[0x7b], 57344.0f);
  EXPECT_EQ(e5m2[0x7c], kInfinity);
  EXPECT_TRUE(std::isnan(e5m2[0x7d]));
  EXPECT_EQ(ByteNumbers("F8_E8M0")[0], std::ldexp(1.0f, -127));
  EXPECT_EQ(ByteNumbers("I8")[0x80], -128.0f);
  EXPECT_EQ(ByteNumbers("F32"), nullptr);
}

TEST(StoredNumbers, FieldsCrossWords) {
  const std::vector<uint32_t> words = {0xc0000000u, 0x00000001u};
  const auto* bytes = reinterpret_cast<const uint8_t*>(words.data());
  EXPECT_EQ(FieldAt(bytes, 9, 3), 0u);
  EXPECT_EQ(FieldAt(bytes, 10, 3), 7u);
  EXPECT_EQ(FieldAt(bytes, 11, 3), 0u);
}

// --- Configs -------------------------------------------------------------------------------------

std::string ConfigError(const Json& quantization) {
  return ErrorOf(With(Base("llama"), {{"quantization_config", quantization}}));
}

TEST(QuantizationKeys, UnknownOnesAreRefusedByName) {
  EXPECT_THAT(ConfigError({{"quant_method", "hqq"}}),
              AllOf(HasSubstr("dir/config.json"), HasSubstr("quantization_config.quant_method"),
                    HasSubstr("'hqq'"), HasSubstr("bitsandbytes")));
  EXPECT_THAT(ConfigError({{"quant_method", "gptk"}}), HasSubstr("did you mean 'gptq'"));
  EXPECT_THAT(ConfigError({{"quant_method", "fp8"}, {"rotation", "hadamard"}}),
              AllOf(HasSubstr("quantization_config.rotation"), HasSubstr("hadamard")));
  EXPECT_THAT(ConfigError({{"quant_method", "fp8"}, {"weight_block_size", {128}}}),
              HasSubstr("weight_block_size"));
  EXPECT_THAT(ConfigError({{"quant_method", "fp8"}, {"weight_block_size", {128, 0}}}),
              HasSubstr("weight_block_size"));
  EXPECT_THAT(ConfigError({{"quant_method", "fp8"}, {"fmt", "e3m4"}}), HasSubstr("e3m4"));
  EXPECT_THAT(ConfigError("fp8"), HasSubstr("object"));
  EXPECT_THAT(ConfigError({{"quant_method", "gptq"}, {"bits", 5}}), HasSubstr("2, 3, 4 or 8"));
  EXPECT_THAT(ConfigError({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 0}}),
              HasSubstr("group_size"));
  EXPECT_THAT(ConfigError({{"quant_method", "gptq"}, {"bits", 3}, {"sym", false}}),
              HasSubstr("disagree"));
  EXPECT_THAT(ConfigError({{"quant_method", "gptq"}, {"bits", 4}, {"checkpoint_format", "marlin"}}),
              AllOf(HasSubstr("checkpoint_format"), HasSubstr("marlin")));
  EXPECT_THAT(
      ConfigError(
          {{"quant_method", "gptq"}, {"bits", 4}, {"dynamic", {{"+:.*down.*", {{"bits", 8}}}}}}),
      HasSubstr("dynamic"));
  EXPECT_THAT(ConfigError({{"quant_method", "awq"}, {"version", "gemv"}}), HasSubstr("gemv"));
  EXPECT_THAT(ConfigError({{"quant_method", "awq"}, {"zero_point", false}}),
              HasSubstr("zero_point"));
  EXPECT_THAT(ConfigError({{"quant_method", "bitsandbytes"}}), HasSubstr("load_in_4bit"));
  EXPECT_THAT(ConfigError({{"quant_method", "bitsandbytes"},
                           {"load_in_4bit", true},
                           {"bnb_4bit_quant_type", "af4"}}),
              HasSubstr("af4"));
}

Json Group(const Json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

TEST(QuantizationKeys, GroupsOfCompressedTensors) {
  const Json four = {{"num_bits", 4}, {"strategy", "group"}, {"group_size", 16}};
  const auto quantization = With(Base("llama"), {{"quantization_config", Group(four)}});
  EXPECT_EQ(Parse(quantization).weight_format,
            "compressed-tensors: pack-quantized int4 in groups of 16");
  EXPECT_THAT(ConfigError(Group({{"num_bits", 3}})), HasSubstr("num_bits"));
  EXPECT_THAT(ConfigError(Group({{"num_bits", 4}, {"type", "float"}})), HasSubstr("num_bits"));
  EXPECT_THAT(ConfigError(Group({{"num_bits", 4}, {"strategy", "group"}})),
              HasSubstr("config_groups.group_0.weights.group_size"));
  EXPECT_THAT(ConfigError(Group({{"num_bits", 4}, {"strategy", "token"}})), HasSubstr("token"));
  EXPECT_THAT(ConfigError(Group({{"num_bits", 4}, {"dynamic", true}})), HasSubstr("dynamic"));
  EXPECT_THAT(ConfigError(Group({{"num_bits", 4}, {"surprise", 1}})), HasSubstr("surprise"));
  EXPECT_THAT(ConfigError(With(Group(four), {{"format", "marlin-24"}})), HasSubstr("marlin-24"));
  EXPECT_THAT(ConfigError(With(Group(four), {{"kv_cache_scheme", {{"num_bits", 8}}}})),
              HasSubstr("kv_cache_scheme"));
  EXPECT_THAT(ConfigError(With(Group(four), {{"transform_config", {{"R1", 1}}}})),
              HasSubstr("transform_config"));
  EXPECT_THAT(ConfigError(With(Group(four), {{"config_groups", Json::object()}})),
              HasSubstr("config_groups"));
}

// --- FP8 -----------------------------------------------------------------------------------------

const Json kBlocks = {{"quant_method", "fp8"}, {"weight_block_size", {2, 4}}};

Tensors BlockTensors() {
  return {{"m.weight", Codes("F8_E4M3", {3, 6})},
          {"m.weight_scale_inv", Floats({2, 2}, {1, 2, 3, 4})}};
}

TEST_F(QuantizedDirectory, Fp8PartialBlocks) {
  EXPECT_THAT(Numbers(kBlocks, BlockTensors()),
              ElementsAre(1, 1, 1, 1, 2, 2, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4));
  const auto source = OpenWeights(path_, DType::kBF16);
  ASSERT_TRUE(source.ok());
  EXPECT_THAT((*source)->Names(), ElementsAre("m.weight"));
  EXPECT_FALSE((*source)->Contains("m.weight_scale_inv"));
  EXPECT_FALSE((*source)->Get("m.weight_scale_inv").ok());
  EXPECT_EQ((*source)->Describe("m.weight")->dtype, DType::kBF16);
}

TEST_F(QuantizedDirectory, Fp8NamesWhatDoesNotFit) {
  EXPECT_THAT(
      OpenError(kBlocks, Without(BlockTensors(), "m.weight_scale_inv")),
      AllOf(HasSubstr("model.safetensors"), HasSubstr("'m.weight'"), HasSubstr("no scale")));
  EXPECT_THAT(
      OpenError(kBlocks, Replaced(BlockTensors(), "m.weight_scale_inv", Floats({1, 2}, {1, 2}))),
      AllOf(HasSubstr("'m.weight_scale_inv'"), HasSubstr("[1, 2]"), HasSubstr("[2, 2]")));
  EXPECT_THAT(OpenError({{"quant_method", "fp8"}}, BlockTensors()), HasSubstr("one a row"));
  Json listed = kBlocks;
  listed["modules_to_not_convert"] = {"m"};
  EXPECT_THAT(OpenError(listed, BlockTensors()), HasSubstr("modules_to_not_convert"));
  EXPECT_THAT(OpenError(kBlocks, {{"m.weight", Floats({1, 1}, {1})}}),
              AllOf(HasSubstr("config.json"), HasSubstr("none beside it")));
  EXPECT_THAT(OpenError(kBlocks, {{"m.weight", Codes("F8_E4M3", {18})},
                                  {"m.weight_scale_inv", Floats({2, 2}, {1, 2, 3, 4})}}),
              HasSubstr("expected a matrix"));
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    EXPECT_THAT(GetError(kBlocks, Replaced(BlockTensors(), "m.weight_scale_inv",
                                           Floats({2, 2}, {1, 2, bad, 4}))),
                AllOf(HasSubstr("'m.weight_scale_inv'"), HasSubstr("element 2")));
  }
}

// --- compressed-tensors --------------------------------------------------------------------------

Json Packed(bool symmetric = true, int64_t group = 8) {
  return Group(
      {{"num_bits", 4}, {"symmetric", symmetric}, {"strategy", "group"}, {"group_size", group}});
}

Tensors PackedTensors() {
  return {{"m.weight_packed", Words({2, 2}, {0x76543210, -1, 0, 0x11111111})},
          {"m.weight_shape", Words({2}, {2, 16})},
          {"m.weight_scale", Floats({2, 2}, {1, 2, 3, 4})}};
}

TEST_F(QuantizedDirectory, PackedNumbers) {
  EXPECT_THAT(
      Numbers(Packed(), PackedTensors()),
      ElementsAre(-8, -7, -6, -5, -4, -3, -2, -1, 14, 14, 14, 14, 14, 14, 14, 14,  //
                  -24, -24, -24, -24, -24, -24, -24, -24, -28, -28, -28, -28, -28, -28, -28, -28));
}

// --- Inputs --------------------------------------------------------------------------------------

// How the rows that come to "m" are rounded; what is wrong with that, nobody is told who reads it.
Result<std::optional<RowRounding>> InputsIn(const std::string& path) {
  const auto source = OpenWeights(path, DType::kF32);
  EXPECT_TRUE(source.ok() && (*source)->Get("m.weight").ok());
  return RoundedInputs::Of(**source)->InputsOf("m.weight");
}

TEST_F(QuantizedDirectory, InputsOfFp8AreToldByScheme) {
  const auto codes = RowRounding::Codes::kE4m3;
  Write(kBlocks, BlockTensors());
  EXPECT_EQ(*InputsIn(path_), (RowRounding{.codes = codes, .group = 4}));
  Write(With(kBlocks, {{"scale_fmt", "ue8m0"}}), BlockTensors());
  EXPECT_EQ(*InputsIn(path_), (RowRounding{.codes = codes, .group = 4, .powers = true}));
  const Json given = With(kBlocks, {{"activation_scheme", "static"}});
  for (const char* name : {"m.input_scale", "m.activation_scale"}) {
    Write(given, Replaced(BlockTensors(), name, Floats({}, {0.5f})));
    EXPECT_EQ(*InputsIn(path_), (RowRounding{.codes = codes, .scale = 0.5f}));
  }
  Write(given, BlockTensors());
  EXPECT_THAT(InputsIn(path_).error().message, HasSubstr("'m.input_scale'"));
  for (const float bad : {0.0f, -1.0f, kNan}) {
    Write(given, Replaced(BlockTensors(), "m.input_scale", Floats({1}, {bad})));
    EXPECT_THAT(InputsIn(path_).error().message, HasSubstr("'m.input_scale'"));
  }
}

TEST_F(QuantizedDirectory, InputsOfGroupsAreToldOrRefusedByName) {
  const auto inputs = [&](const Json& told) {
    Json config = Packed();
    config["config_groups"]["group_0"]["input_activations"] = told;
    Write(config, Replaced(PackedTensors(), "m.input_scale", Floats({1}, {0.25f})));
    return InputsIn(path_);
  };
  using Codes = RowRounding::Codes;
  EXPECT_FALSE(inputs(nullptr)->has_value());
  EXPECT_EQ(*inputs({{"num_bits", 8}, {"dynamic", true}, {"strategy", "token"}}), RowRounding());
  EXPECT_EQ(*inputs({{"type", "float"}, {"dynamic", true}, {"group_size", 128}}),
            (RowRounding{.codes = Codes::kE4m3, .group = 128}));
  EXPECT_EQ(*inputs({{"type", "int"}, {"strategy", "tensor"}}), RowRounding{.scale = 0.25f});
  EXPECT_EQ(*inputs({{"symmetric", false}, {"dynamic", true}, {"strategy", "token"}}),
            RowRounding{.spans = true});
  EXPECT_EQ(*inputs({{"symmetric", false},
                     {"dynamic", true},
                     {"group_size", 64},
                     {"zp_dtype", "torch.int8"}}),
            (RowRounding{.group = 64, .spans = true}));
  for (const Json& bad :
       {Json{{"num_bits", 4}, {"type", "float"}}, Json{{"symmetric", false}, {"dynamic", true}},
        Json{{"dynamic", true}, {"strategy", "tensor"}}, Json{{"dynamic", "local"}}, Json("int8"),
        Json{{"symmetric", false}, {"type", "float"}, {"dynamic", true}, {"strategy", "token"}},
        Json{{"symmetric", "no"}, {"dynamic", true}, {"strategy", "token"}},
        Json{{"symmetric", false},
             {"zp_dtype", "torch.uint8"},
             {"dynamic", true},
             {"strategy", "token"}},
        Json{{"dynamic", true}, {"group_size", 32}, {"scale_dtype", "torch.float8_e8m0fnu"}}}) {
    const auto refused = inputs(bad);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr("config.json"),
                      HasSubstr("config_groups.group_0.input_activations"), HasSubstr("expected")));
  }
  Write(Packed(), Without(PackedTensors(), "m.input_scale"));
  EXPECT_FALSE(InputsIn(path_)->has_value());
}

TEST_F(QuantizedDirectory, InputsWithAZeroPointHaveItFromTheFile) {
  const auto inputs = [&](bool symmetric, const Tensors& tensors) {
    Json config = Packed();
    config["config_groups"]["group_0"]["input_activations"] = {{"symmetric", symmetric}};
    Write(config, Replaced(tensors, "m.input_scale", Floats({1}, {0.25f})));
    return InputsIn(path_);
  };
  const auto with = [](const FileTensor& zero) {
    return Replaced(PackedTensors(), "m.input_zero_point", zero);
  };
  EXPECT_EQ(*inputs(false, with(Int8s({1}, {-7}))), (RowRounding{.scale = 0.25f, .zero = -7.0f}));
  EXPECT_EQ(*inputs(true, with(Int8s({1}, {0}))), RowRounding{.scale = 0.25f});
  EXPECT_THAT(inputs(true, with(Int8s({1}, {1}))).error().message,
              AllOf(HasSubstr("'m.input_zero_point'"), HasSubstr("around 0 alone")));
  EXPECT_THAT(inputs(false, PackedTensors()).error().message, HasSubstr("'m.input_zero_point'"));
  for (const FileTensor& bad :
       {Int8s({2}, {1, 1}), Floats({1}, {0.5f}), Floats({1}, {128}), Floats({1}, {-129})}) {
    EXPECT_THAT(inputs(false, with(bad)).error().message,
                AllOf(HasSubstr("'m.input_zero_point'"), HasSubstr("from -128 to 127")));
  }
}

TEST_F(QuantizedDirectory, PackedNamesWhatDoesNotFit) {
  EXPECT_THAT(OpenError(Packed(), Without(PackedTensors(), "m.weight_scale")),
              AllOf(HasSubstr("'m.weight_packed'"), HasSubstr("'m.weight_scale'")));
  EXPECT_THAT(OpenError(Packed(), Without(PackedTensors(), "m.weight_shape")),
              HasSubstr("'m.weight_shape'"));
  EXPECT_THAT(OpenError(Packed(false), PackedTensors()), HasSubstr("'m.weight_zero_point'"));
  EXPECT_THAT(OpenError(Packed(true, 12), PackedTensors()),
              AllOf(HasSubstr("16 columns"), HasSubstr("12"), HasSubstr("do not divide")));
  EXPECT_THAT(OpenError(Packed(), Replaced(PackedTensors(), "m.weight_shape", Words({2}, {2, -3}))),
              HasSubstr("-3"));
  // Sizes whose product wraps.
  EXPECT_THAT(OpenError(Packed(), Replaced(PackedTensors(), "m.weight_shape",
                                           {"I64", {2}, BytesOf<int64_t>({int64_t{1} << 61, 8})})),
              HasSubstr("2305843009213693952"));
  EXPECT_THAT(OpenError(Packed(), Replaced(PackedTensors(), "m.weight_shape", Words({2}, {2, 64}))),
              AllOf(HasSubstr("'m.weight_packed'"), HasSubstr("[2, 8]")));
  EXPECT_THAT(GetError(Packed(), Replaced(PackedTensors(), "m.weight_scale",
                                          Floats({2, 2}, {1, kNan, 3, 4}))),
              AllOf(HasSubstr("'m.weight_scale'"), HasSubstr("element 1")));
  Json ignored = Packed();
  ignored["ignore"] = {"re:^m$"};
  EXPECT_THAT(OpenError(ignored, PackedTensors()), AllOf(HasSubstr("ignore"), HasSubstr("re:^m$")));
  Json other = Packed();
  other["config_groups"]["group_0"]["targets"] = {"re:.*attn.*"};
  EXPECT_THAT(OpenError(other, PackedTensors()), HasSubstr("config_groups"));
  other["config_groups"]["group_0"]["targets"] = {"re:("};
  EXPECT_THAT(OpenError(other, PackedTensors()), HasSubstr("targets"));
  Json bytes = Packed();
  bytes["format"] = "int-quantized";
  EXPECT_THAT(OpenError(bytes, PackedTensors()), HasSubstr("int-quantized"));
}

TEST_F(QuantizedDirectory, ActOrderNeedsWholeGroups) {
  Json ordered = Packed();
  ordered["config_groups"]["group_0"]["weights"]["actorder"] = "group";
  EXPECT_THAT(OpenError(ordered, PackedTensors()), HasSubstr("'m.weight_g_idx'"));
  std::vector<int32_t> groups(16, 0);
  std::fill(groups.begin() + 4, groups.begin() + 12, 1);
  Tensors tensors = Replaced(PackedTensors(), "m.weight_g_idx", Words({16}, groups));
  EXPECT_EQ(Numbers(ordered, tensors)[4], -8);  // -4 in the group of scale 2
  groups[0] = 1;
  EXPECT_THAT(GetError(ordered, Replaced(tensors, "m.weight_g_idx", Words({16}, groups))),
              HasSubstr("7 columns into group 0"));
  groups[0] = 2;
  EXPECT_THAT(GetError(ordered, Replaced(tensors, "m.weight_g_idx", Words({16}, groups))),
              AllOf(HasSubstr("'m.weight_g_idx'"), HasSubstr("element 0")));
}

// --- GPTQ and AWQ --------------------------------------------------------------------------------

const Json kGptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 8}};

Tensors GptqTensors() {
  return {{"m.qweight", Words({2, 8}, std::vector<int32_t>(16, 0x76543210))},
          {"m.qzeros", Words({2, 1}, {0x77777777, 0x77777777})},
          {"m.scales", Floats({2, 8}, std::vector<float>(16, 1.0f))}};
}

TEST_F(QuantizedDirectory, GptqNumbers) {
  const std::vector<float> numbers = Numbers(kGptq, GptqTensors());
  ASSERT_EQ(numbers.size(), 8u * 16u);
  EXPECT_EQ(numbers[0], -8);
  EXPECT_EQ(numbers[7], -1);
  Json second = kGptq;
  second["checkpoint_format"] = "gptq_v2";
  EXPECT_EQ(Numbers(second, GptqTensors())[0], -7);
  Json words = kGptq;  // GPTQModel says how wide they are
  words["pack_dtype"] = "int32";
  EXPECT_EQ(Numbers(words, GptqTensors()), numbers);
  words["pack_dtype"] = "int16";
  EXPECT_THAT(OpenError(words, GptqTensors()), HasSubstr("pack_dtype"));
}

TEST_F(QuantizedDirectory, GptqNamesWhatDoesNotFit) {
  EXPECT_THAT(OpenError(kGptq, Without(GptqTensors(), "m.scales")), HasSubstr("'m.scales'"));
  EXPECT_THAT(OpenError(kGptq, Without(GptqTensors(), "m.qzeros")), HasSubstr("'m.qzeros'"));
  Json ordered = kGptq;
  ordered["desc_act"] = true;
  EXPECT_THAT(OpenError(ordered, GptqTensors()), HasSubstr("'m.g_idx'"));
  Json wide = kGptq;
  wide["group_size"] = 12;
  EXPECT_THAT(OpenError(wide, GptqTensors()), HasSubstr("do not divide"));
  EXPECT_THAT(
      OpenError(kGptq, Replaced(GptqTensors(), "m.qweight", Words({2, 3}, {0, 0, 0, 0, 0, 0}))),
      HasSubstr("whole words"));
  EXPECT_THAT(OpenError(kGptq, Replaced(GptqTensors(), "m.qweight", Floats({1}, {0}))),
              AllOf(HasSubstr("'m.qweight'"), HasSubstr("F32")));
  std::vector<int32_t> groups(16, 0);
  groups[3] = 2;
  EXPECT_THAT(GetError(kGptq, Replaced(GptqTensors(), "m.g_idx", Words({16}, groups))),
              AllOf(HasSubstr("'m.g_idx'"), HasSubstr("element 3")));
  std::vector<float> scales(16, 1.0f);
  scales[5] = kInfinity;
  EXPECT_THAT(GetError(kGptq, Replaced(GptqTensors(), "m.scales", Floats({2, 8}, scales))),
              AllOf(HasSubstr("'m.scales'"), HasSubstr("element 5")));
  Json three = {{"quant_method", "gptq"}, {"bits", 3}, {"group_size", 32}};
  EXPECT_THAT(GetError(three, {{"m.qweight", Words({3, 32}, std::vector<int32_t>(96))},
                               {"m.qzeros", Words({1, 3}, {1, 2, 3})},
                               {"m.scales", Floats({1, 32}, std::vector<float>(32))}}),
              AllOf(HasSubstr("'m.qzeros'"), HasSubstr("zero points")));
}

TEST_F(QuantizedDirectory, BiasesOfZerosAreIdle) {
  Tensors tensors = Replaced(GptqTensors(), "m.bias", Floats({8}, std::vector<float>(8)));
  tensors["n.bias"] = Floats({8}, std::vector<float>(8));
  Write(kGptq, tensors);
  const auto source = OpenWeights(path_, DType::kF32);
  ASSERT_TRUE(source.ok());
  EXPECT_THAT((*source)->Names(), ElementsAre("m.weight", "n.bias"));
  EXPECT_TRUE((*source)->Contains("m.bias"));
  EXPECT_TRUE((*source)->Get("m.bias").ok());
}

TEST_F(QuantizedDirectory, AwqNamesWhatDoesNotFit) {
  const Json awq = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 2}};
  const Tensors tensors = {{"m.qweight", Words({2, 1}, {0x76543210, 0})},
                           {"m.qzeros", Words({1, 1}, {0})},
                           {"m.scales", Floats({1, 8}, std::vector<float>(8, 1.0f))}};
  EXPECT_THAT(Numbers(awq, tensors), ElementsAre(0, 0, 4, 0, 1, 0, 5, 0, 2, 0, 6, 0, 3, 0, 7, 0));
  EXPECT_THAT(OpenError(awq, Without(tensors, "m.scales")), HasSubstr("'m.scales'"));
  EXPECT_THAT(OpenError(awq, Replaced(tensors, "m.qzeros", Words({1, 2}, {0, 0}))),
              AllOf(HasSubstr("'m.qzeros'"), HasSubstr("[1, 1]")));
  EXPECT_THAT(OpenError(awq, Replaced(tensors, "m.qweight", Words({3, 1}, {0, 0, 0}))),
              HasSubstr("do not divide"));
  Json listed = awq;
  listed["modules_to_not_convert"] = {"m"};
  EXPECT_THAT(OpenError(listed, tensors), HasSubstr("modules_to_not_convert"));
}

// --- bitsandbytes --------------------------------------------------------------------------------

const Json kNf4Config = {
    {"quant_method", "bitsandbytes"}, {"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}};

FileTensor TextTensor(const std::string& text) {
  return {"U8", {static_cast<int64_t>(text.size())}, text};
}

Json Nf4State() {
  return {{"quant_type", "nf4"}, {"blocksize", 64}, {"dtype", "float32"}, {"shape", {2, 32}}};
}

Tensors Nf4Tensors(const Json& state = Nf4State()) {
  const std::vector<float> table = {-1.0f,        -0.69619280f, -0.52507305f, -0.39491749f,
                                    -0.28444138f, -0.18477343f, -0.09105004f, 0.0f,
                                    0.07958030f,  0.16093020f,  0.24611230f,  0.33791524f,
                                    0.44070983f,  0.56261700f,  0.72295684f,  1.0f};
  return {{"m.weight", Codes("U8", {32, 1}, 0x0f)},
          {"m.weight.absmax", Floats({1}, {3.0f})},
          {"m.weight.quant_map", Floats({16}, table)},
          {"m.weight.quant_state.bitsandbytes__nf4", TextTensor(state.dump())}};
}

TEST_F(QuantizedDirectory, BitsAndBytesNumbers) {
  const std::vector<float> numbers = Numbers(kNf4Config, Nf4Tensors());
  ASSERT_EQ(numbers.size(), 64u);
  EXPECT_EQ(numbers[0], -3.0f);
  EXPECT_EQ(numbers[1], 3.0f);
}

TEST_F(QuantizedDirectory, BitsAndBytesNamesWhatDoesNotFit) {
  const auto state = [](const std::string& key, const Json& value) {
    Json json = Nf4State();
    json[key] = value;
    return Nf4Tensors(json);
  };
  EXPECT_THAT(OpenError(kNf4Config, Without(Nf4Tensors(), "m.weight.absmax")),
              HasSubstr("'m.weight.absmax'"));
  EXPECT_THAT(OpenError(kNf4Config, state("shape", {2, 33})), HasSubstr("2 x 33"));
  EXPECT_THAT(OpenError(kNf4Config, state("shape", {int64_t{1} << 31, int64_t{1} << 31})),
              HasSubstr("four bits"));
  EXPECT_THAT(OpenError(kNf4Config, state("shape", "wide")), HasSubstr("shape"));
  EXPECT_THAT(OpenError(kNf4Config, state("blocksize", 0)), HasSubstr("blocksize"));
  EXPECT_THAT(OpenError(kNf4Config, state("quant_type", "fp4")), HasSubstr("quant_type"));
  EXPECT_THAT(OpenError(kNf4Config, state("unknown", 1)), HasSubstr("unknown"));
  EXPECT_THAT(OpenError(kNf4Config, Replaced(Nf4Tensors(), "m.weight.quant_state.bitsandbytes__nf4",
                                             TextTensor("{\"blocksize\": "))),
              HasSubstr("JSON"));
  Json fp4 = kNf4Config;
  fp4["bnb_4bit_quant_type"] = "fp4";
  EXPECT_THAT(OpenError(fp4, Nf4Tensors()), AllOf(HasSubstr("'nf4'"), HasSubstr("'fp4'")));
  EXPECT_THAT(GetError(kNf4Config, Replaced(Nf4Tensors(), "m.weight.absmax", Floats({1}, {kNan}))),
              AllOf(HasSubstr("'m.weight.absmax'"), HasSubstr("element 0")));
  EXPECT_THAT(GetError(kNf4Config, Replaced(Nf4Tensors(), "m.weight.quant_map",
                                            Floats({16}, std::vector<float>(16)))),
              HasSubstr("table of 16"));
  const Json eight = {{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}};
  const Tensors rows = {{"m.weight", Codes("I8", {2, 2}, 0xff)},
                        {"m.SCB", Floats({2}, {127, 254})}};
  EXPECT_THAT(Numbers(eight, rows), ElementsAre(-1, -1, -2, -2));
  EXPECT_THAT(OpenError(eight, Replaced(rows, "m.SCB", Floats({3}, {1, 2, 3}))),
              HasSubstr("'m.SCB'"));
  EXPECT_THAT(OpenError(eight, Replaced(rows, "m.weight_format", Codes("U8", {}, 1))),
              HasSubstr("'m.weight_format'"));
  EXPECT_THAT(GetError(eight, Replaced(rows, "m.SCB", Floats({2}, {1, kInfinity}))),
              HasSubstr("element 1"));
}

// Two experts of 4 gates and what they open in turns, 64 inputs: two blocks a row.
Tensors StackedBlocks() {
  return {{"l.experts.gate_up_proj_blocks", Codes("U8", {2, 8, 2, 16}, 0x52)},
          {"l.experts.gate_up_proj_scales", Codes("U8", {2, 8, 2}, 126)}};
}
const Json kFourBits = {{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"lm_head"}}};

TEST_F(QuantizedDirectory, StackedBlocksAreExperts) {
  Tensors tensors = StackedBlocks();
  // Output 3 of expert 1 is what gate 1 opens: its second block is larger.
  tensors["l.experts.gate_up_proj_scales"].bytes[static_cast<size_t>((8 + 3) * 2 + 1)] = 2;
  tensors["l.experts.gate_up_proj_bias"] =
      Floats({2, 8}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  Write(kFourBits, tensors);
  const auto source = OpenWeights(path_, DType::kF32);
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ((*source)->Names().size(), 8u);  // weights and biases of gates and the rest
  const auto up = (*source)->Get("l.experts.1.up_proj.weight");
  ASSERT_TRUE(up.ok()) << up.error().message;
  ASSERT_EQ(up->view.shape[0], 4);
  ASSERT_EQ(up->view.shape[1], 64);
  const float* row = up->view[1].f32();
  EXPECT_THAT(std::vector<float>(row, row + 2), ElementsAre(0.5f, 1.5f));  // 1 and 3 halves
  EXPECT_EQ(row[32], std::ldexp(1.0f, 2 - 127));
  const auto bias = (*source)->Get("l.experts.1.gate_proj.bias");
  ASSERT_TRUE(bias.ok());
  EXPECT_THAT(std::vector<float>(bias->view.f32(), bias->view.f32() + 4),
              ElementsAre(8, 10, 12, 14));
}

TEST_F(QuantizedDirectory, StackedNamesWhatDoesNotFit) {
  Tensors tensors = StackedBlocks();
  tensors.erase("l.experts.gate_up_proj_scales");
  EXPECT_THAT(OpenError(kFourBits, tensors),
              AllOf(HasSubstr("gate_up_proj_blocks"), HasSubstr("gate_up_proj_scales")));
  tensors = StackedBlocks();
  tensors["l.experts.gate_up_proj_scales"] = Codes("U8", {2, 8, 1});
  EXPECT_THAT(OpenError(kFourBits, tensors),
              AllOf(HasSubstr("gate_up_proj_scales"), HasSubstr("[2, 8, 1]")));
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{2, 8, 32}, {2, 7, 2, 16}, {2, 8, 2, 8}}) {
    tensors = StackedBlocks();
    tensors["l.experts.gate_up_proj_blocks"] = Codes("U8", shape);
    EXPECT_THAT(OpenError(kFourBits, tensors),
                AllOf(HasSubstr("gate_up_proj_blocks"), HasSubstr("expected [experts, outputs")));
  }
  EXPECT_THAT(OpenError(kFourBits, {{"m.weight", Floats({1}, {1})}}), HasSubstr("stored so"));
  EXPECT_THAT(OpenError(With(kFourBits, {{"dequantize", true}}), StackedBlocks()),
              HasSubstr("dequantize"));
  tensors = StackedBlocks();
  tensors["l.experts.gate_up_proj_scales"].bytes[5] = static_cast<char>(0xff);
  Write(kFourBits, tensors);
  const auto source = OpenWeights(path_, DType::kF32);
  ASSERT_TRUE(source.ok());
  EXPECT_TRUE((*source)->Get("l.experts.0.up_proj.weight").ok());  // outputs 1, 3, 5, 7
  const auto gates = (*source)->Get("l.experts.0.gate_proj.weight");
  ASSERT_FALSE(gates.ok());
  EXPECT_THAT(gates.error().message, AllOf(HasSubstr("NaN (255)"), HasSubstr("output 2, block 1")));
}

}  // namespace
}  // namespace kvgauge
