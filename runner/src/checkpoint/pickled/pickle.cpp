// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/pickled/pickle.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/strings.h"

namespace kvgauge {
namespace {

// A tensor takes about twenty values: room for a hundred thousand tensors in a file.
constexpr size_t kMostValues = size_t{1} << 21;
constexpr size_t kMostTensors = size_t{1} << 18;
constexpr size_t kMostDimensions = 16;

enum class Name { kOrderedDict, kTensor, kTypedTensor, kParameter, kStorage, kAnyStorage, kType };

struct KnownName {
  std::string_view module, name;
  Name meaning;
  std::string_view type = {};  // under its name in safetensors
};
constexpr auto kKnownNames = std::to_array<KnownName>({
    {"collections", "OrderedDict", Name::kOrderedDict},
    {"torch._utils", "_rebuild_tensor_v2", Name::kTensor},
    {"torch._utils", "_rebuild_tensor_v3", Name::kTypedTensor},
    {"torch._utils", "_rebuild_parameter", Name::kParameter},
    {"torch.storage", "UntypedStorage", Name::kAnyStorage},
    {"torch", "FloatStorage", Name::kStorage, "F32"},
    {"torch", "HalfStorage", Name::kStorage, "F16"},
    {"torch", "BFloat16Storage", Name::kStorage, "BF16"},
    {"torch", "DoubleStorage", Name::kStorage, "F64"},
    {"torch", "LongStorage", Name::kStorage, "I64"},
    {"torch", "IntStorage", Name::kStorage, "I32"},
    {"torch", "ShortStorage", Name::kStorage, "I16"},
    {"torch", "CharStorage", Name::kStorage, "I8"},
    {"torch", "ByteStorage", Name::kStorage, "U8"},
    {"torch", "BoolStorage", Name::kStorage, "BOOL"},
    {"torch", "float8_e4m3fn", Name::kType, "F8_E4M3"},
    {"torch", "float8_e5m2", Name::kType, "F8_E5M2"},
    {"torch", "float8_e8m0fnu", Name::kType, "F8_E8M0"},
    {"torch", "uint16", Name::kType, "U16"},
    {"torch", "uint32", Name::kType, "U32"},
    {"torch", "uint64", Name::kType, "U64"},
});

// Operations that Python has and tensors do not need, for messages.
struct OtherOperation {
  uint8_t code;
  std::string_view name;
};
constexpr auto kOtherOperations = std::to_array<OtherOperation>({
    {'i', "INST"},
    {'o', "OBJ"},
    {0x81, "NEWOBJ"},
    {0x82, "EXT1"},
    {0x83, "EXT2"},
    {0x84, "EXT4"},
    {0x92, "NEWOBJ_EX"},
    {0x93, "STACK_GLOBAL"},
    {'P', "PERSID"},
    {']', "EMPTY_LIST"},
    {'a', "APPEND"},
    {'e', "APPENDS"},
    {'l', "LIST"},
    {'d', "DICT"},
    {'0', "POP"},
    {'1', "POP_MARK"},
    {'2', "DUP"},
    {'p', "PUT"},
    {'g', "GET"},
    {'F', "FLOAT"},
    {'I', "INT"},
    {'L', "LONG"},
    {'S', "STRING"},
    {'V', "UNICODE"},
    {'G', "BINFLOAT"},
    {'T', "BINSTRING"},
    {'U', "SHORT_BINSTRING"},
    {0x8b, "LONG4"},
    {'B', "BINBYTES"},
    {'C', "SHORT_BINBYTES"},
    {0x8f, "EMPTY_SET"},
    {0x94, "MEMOIZE"},
    {0x95, "FRAME"},
    {0x8c, "SHORT_BINUNICODE"},
    {0x8d, "BINUNICODE8"},
    {0x90, "ADDITEMS"},
    {0x91, "FROZENSET"},
    {0x96, "BYTEARRAY8"},
    {0x97, "NEXT_BUFFER"},
    {0x98, "READONLY_BUFFER"},
});

std::string OperationText(uint8_t code) {
  for (const OtherOperation& other : kOtherOperations) {
    if (other.code == code) return StrCat("operation ", other.name);
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  return StrCat("operation 0x", kDigits[code >> 4], kDigits[code & 15]);
}

enum class Kind : uint8_t { kNone, kBool, kInt, kText, kTuple, kDict, kName, kStorage, kTensor };

std::string_view KindText(Kind kind) {
  constexpr std::string_view kTexts[] = {"None",   "a bool",    "a number",
                                         "a text", "a tuple",   "a dictionary",
                                         "a name", "a storage", "a tensor"};
  return kTexts[static_cast<size_t>(kind)];
}

using Ref = uint32_t;  // of a value

struct Value {
  Kind kind = Kind::kNone;
  int64_t number = 0;          // bools and numbers; of tensors and storages their index
  std::string_view text = {};  // lies in the pickle
  const KnownName* name = nullptr;
  std::vector<Ref> items = {};  // of tuples; of dictionaries keys and values by turns
};

struct Storage {
  const NumberType* type = nullptr;  // null: bytes of any type
  std::string_view key;
  uint64_t bytes = 0;
};

class Machine {
 public:
  Machine(std::span<const uint8_t> bytes, std::string_view origin)
      : bytes_(bytes), origin_(origin) {}

  Result<std::vector<PickledTensor>> Run() {
    bool stopped = false;
    while (!stopped) {
      begin_ = at_;
      KVG_ASSIGN(const uint8_t code, Byte());
      if (code == '.') {
        stopped = true;
      } else {
        KVG_TRY(Step(code));
      }
    }
    if (at_ != bytes_.size()) {
      return Fault(StrCat("the pickle ends here, and ", bytes_.size() - at_, " bytes follow"));
    }
    if (stack_.size() != 1 || !marks_.empty()) {
      return Fault(StrCat("the pickle ends with ", stack_.size(), " values, expected one"));
    }
    return TensorsOf(values_[stack_[0]]);
  }

 private:
  Error Fault(std::string_view text) const {
    return BadInput(StrCat(origin_, ": data.pkl: byte ", begin_, ": ", text));
  }
  Error Refused(std::string_view text) const {
    return Unsupported(StrCat(origin_, ": data.pkl: byte ", begin_, ": ", text,
                              "; only what describes tensors is read, and nothing is run"));
  }

  // Bytes of the pickle.

  Result<std::span<const uint8_t>> Take(uint64_t count) {
    if (count > bytes_.size() - at_) {
      return Fault(
          StrCat("the operation takes ", count, " bytes, but ", bytes_.size() - at_, " are left"));
    }
    const auto taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }

  Result<uint8_t> Byte() {
    KVG_ASSIGN(const auto taken, Take(1));
    return taken[0];
  }

  Result<uint64_t> Number(uint64_t width) {
    KVG_ASSIGN(const auto taken, Take(width));
    uint64_t value = 0;
    for (uint64_t i = 0; i < width; ++i) value |= uint64_t{taken[i]} << (8 * i);
    return value;
  }

  // Two's complement of `width` bytes.
  Result<int64_t> Signed(uint64_t width) {
    KVG_ASSIGN(uint64_t value, Number(width));
    if (width > 0 && width < 8 && (value >> (8 * width - 1)) != 0)
      value |= ~uint64_t{0} << (8 * width);
    return static_cast<int64_t>(value);
  }

  Result<std::string_view> Line() {
    const auto rest = bytes_.subspan(at_);
    const auto end = std::ranges::find(rest, uint8_t{'\n'});
    if (end == rest.end()) return Fault("a name without an end");
    const auto size = static_cast<size_t>(end - rest.begin());
    at_ += size + 1;
    return std::string_view(reinterpret_cast<const char*>(rest.data()), size);
  }

  // The stack.

  Status Push(Value value) {
    if (values_.size() >= kMostValues) {
      return Fault(StrCat("more than ", kMostValues, " values"));
    }
    stack_.push_back(static_cast<Ref>(values_.size()));
    values_.push_back(std::move(value));
    return {};
  }
  Status PushNumber(Kind kind, int64_t number) { return Push({.kind = kind, .number = number}); }

  // Values above the last mark.
  size_t Room() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }

  Result<Ref> Pop() {
    if (Room() == 0) return Fault("the operation needs a value, and there is none");
    const Ref top = stack_.back();
    stack_.pop_back();
    return top;
  }
  Result<Ref> Pop(Kind kind) {
    KVG_ASSIGN(const Ref top, Pop());
    if (values_[top].kind == kind) return top;
    return Fault(
        StrCat("the operation needs ", KindText(kind), ", not ", KindText(values_[top].kind)));
  }
  Result<std::vector<Ref>> PopToMark() {
    if (marks_.empty()) return Fault("the operation needs a mark, and there is none");
    const auto first = stack_.begin() + static_cast<int64_t>(marks_.back());
    std::vector<Ref> popped(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return popped;
  }

  Status Step(uint8_t code) {
    switch (code) {
      case 0x80:  // PROTO
        return CheckProtocol();
      case '(':  // MARK
        return PushMark();
      case 'N':  // NONE
        return Push({});
      case 0x88:  // NEWTRUE
        return PushNumber(Kind::kBool, 1);
      case 0x89:  // NEWFALSE
        return PushNumber(Kind::kBool, 0);
      case 'K':  // BININT1
      case 'M':  // BININT2
        return PushUnsigned(code == 'K' ? 1 : 2);
      case 'J':  // BININT
        return PushSigned(4);
      case 0x8a:  // LONG1
        return PushLong();
      case 'X':  // BINUNICODE
        return PushText();
      case 'c':  // GLOBAL
        return PushName();
      case ')':  // EMPTY_TUPLE
        return Push({.kind = Kind::kTuple});
      case 0x85:  // TUPLE1
      case 0x86:  // TUPLE2
      case 0x87:  // TUPLE3
        return PushTuple(code - 0x84u);
      case 't': {  // TUPLE
        KVG_ASSIGN(std::vector<Ref> items, PopToMark());
        return Push({.kind = Kind::kTuple, .items = std::move(items)});
      }
      case '}':  // EMPTY_DICT
        return Push({.kind = Kind::kDict});
      case 's':  // SETITEM
        return SetItem();
      case 'u':  // SETITEMS
        return SetItems();
      case 'q':  // BINPUT
      case 'r':  // LONG_BINPUT
        return Remember(code == 'q' ? 1 : 4);
      case 'h':  // BINGET
      case 'j':  // LONG_BINGET
        return Recall(code == 'h' ? 1 : 4);
      case 'Q':  // BINPERSID
        return PushStorage();
      case 'R':  // REDUCE
        return Reduce();
      case 'b':  // BUILD
        return Build();
      default:
        return Refused(OperationText(code));
    }
  }

  Status CheckProtocol() {
    KVG_ASSIGN(const uint8_t version, Byte());
    if (begin_ != 0) return Fault("operation PROTO stands inside the pickle");
    if (version == 2) return {};
    return Unsupported(StrCat(origin_, ": data.pkl: pickle protocol ", int{version},
                              ", expected 2, which torch.save writes unless told otherwise"));
  }

  Status PushMark() {
    if (marks_.size() >= kMostValues) return Fault(StrCat("more than ", kMostValues, " marks"));
    marks_.push_back(stack_.size());
    return {};
  }

  Status PushUnsigned(uint64_t width) {
    KVG_ASSIGN(const uint64_t value, Number(width));
    return PushNumber(Kind::kInt, static_cast<int64_t>(value));
  }
  Status PushSigned(uint64_t width) {
    KVG_ASSIGN(const int64_t value, Signed(width));
    return PushNumber(Kind::kInt, value);
  }
  Status PushLong() {
    KVG_ASSIGN(const uint8_t width, Byte());
    if (width > 8) return Fault(StrCat("a number of ", int{width}, " bytes, expected at most 8"));
    return PushSigned(width);
  }
  Status PushText() {
    KVG_ASSIGN(const uint64_t size, Number(4));
    KVG_ASSIGN(const auto taken, Take(size));
    return Push(
        {.kind = Kind::kText, .text = {reinterpret_cast<const char*>(taken.data()), taken.size()}});
  }

  Status PushName() {
    KVG_ASSIGN(const std::string_view module, Line());
    KVG_ASSIGN(const std::string_view name, Line());
    for (const KnownName& known : kKnownNames) {
      if (known.module != module || known.name != name) continue;
      return Push({.kind = Kind::kName, .name = &known});
    }
    return Refused(
        StrCat("the name ", Quoted(StrCat(module, ".", name), 160), " is none of a tensor's"));
  }

  Status PushTuple(size_t count) {
    std::vector<Ref> items(count);
    for (size_t i = count; i-- > 0;) {
      KVG_ASSIGN(items[i], Pop());
    }
    return Push({.kind = Kind::kTuple, .items = std::move(items)});
  }

  Status SetItem() {
    KVG_ASSIGN(const Ref value, Pop());
    KVG_ASSIGN(const Ref key, Pop());
    KVG_ASSIGN(const Ref dict, Pop(Kind::kDict));
    values_[dict].items.insert(values_[dict].items.end(), {key, value});
    stack_.push_back(dict);
    return {};
  }

  Status SetItems() {
    KVG_ASSIGN(const std::vector<Ref> items, PopToMark());
    if (items.size() % 2 != 0) return Fault("keys and values must come in pairs");
    KVG_ASSIGN(const Ref dict, Pop(Kind::kDict));
    values_[dict].items.insert(values_[dict].items.end(), items.begin(), items.end());
    stack_.push_back(dict);
    return {};
  }

  Status Remember(uint64_t width) {
    KVG_ASSIGN(const uint64_t index, Number(width));
    KVG_ASSIGN(const Ref top, Pop());
    stack_.push_back(top);
    memo_[index] = top;
    if (memo_.size() <= kMostValues) return {};
    return Fault(StrCat("more than ", kMostValues, " values are remembered"));
  }

  Status Recall(uint64_t width) {
    KVG_ASSIGN(const uint64_t index, Number(width));
    const auto found = memo_.find(index);
    if (found == memo_.end()) return Fault(StrCat("no value was remembered as ", index));
    if (stack_.size() >= kMostValues) return Fault(StrCat("more than ", kMostValues, " values"));
    stack_.push_back(found->second);
    return {};
  }

  // Tensors.

  const Value& At(const Value& tuple, size_t i) const { return values_[tuple.items[i]]; }
  bool Is(const Value& tuple, size_t i, Kind kind) const { return At(tuple, i).kind == kind; }
  bool IsEmptyDict(const Value& tuple, size_t i) const {
    return Is(tuple, i, Kind::kDict) && At(tuple, i).items.empty();
  }

  // ("storage", type, key, where it was, elements)
  Status PushStorage() {
    KVG_ASSIGN(const Ref top, Pop(Kind::kTuple));
    const Value& id = values_[top];
    const bool legal = id.items.size() == 5 && Is(id, 0, Kind::kText) &&
                       At(id, 0).text == "storage" && Is(id, 1, Kind::kName) &&
                       Is(id, 2, Kind::kText) && Is(id, 3, Kind::kText) && Is(id, 4, Kind::kInt) &&
                       At(id, 4).number >= 0;
    const KnownName* name = legal ? At(id, 1).name : nullptr;
    if (!legal || (name->meaning != Name::kStorage && name->meaning != Name::kAnyStorage)) {
      return Fault(
          "a reference to something outside that is no storage, expected ('storage', type, key, "
          "device, elements)");
    }
    Storage storage{.key = At(id, 2).text, .bytes = static_cast<uint64_t>(At(id, 4).number)};
    if (name->meaning == Name::kStorage) {
      storage.type = FindNumberType(name->type);
      if (__builtin_mul_overflow(storage.bytes, storage.type->bits / 8, &storage.bytes)) {
        return Fault(
            StrCat("storage ", Quoted(storage.key), " claims ", At(id, 4).number, " elements"));
      }
    }
    storages_.push_back(storage);
    return PushNumber(Kind::kStorage, std::ssize(storages_) - 1);
  }

  Status Reduce() {
    KVG_ASSIGN(const Ref top, Pop(Kind::kTuple));
    KVG_ASSIGN(const Ref called, Pop(Kind::kName));
    const KnownName& name = *values_[called].name;
    const Value& arguments = values_[top];
    switch (name.meaning) {
      case Name::kOrderedDict:
        if (!arguments.items.empty()) return Fault("an OrderedDict with arguments, expected none");
        return Push({.kind = Kind::kDict, .number = 1});
      case Name::kTensor:
      case Name::kTypedTensor:
        return PushTensor(arguments, name.meaning == Name::kTypedTensor);
      case Name::kParameter:
        if (arguments.items.size() != 3 || !Is(arguments, 0, Kind::kTensor) ||
            !Is(arguments, 1, Kind::kBool) || !IsEmptyDict(arguments, 2)) {
          return Fault("_rebuild_parameter expects a tensor, a bool and no hooks");
        }
        stack_.push_back(arguments.items[0]);
        return {};
      default:
        return Refused(StrCat("a call of ", name.module, ".", name.name));
    }
  }

  // (storage, offset, shape, strides, needs a gradient, hooks[, type][, bits of mathematics])
  Status PushTensor(const Value& arguments, bool typed) {
    const size_t count = typed ? 7 : 6, given = arguments.items.size();
    const bool legal =
        (given == count || given == count + 1) && Is(arguments, 0, Kind::kStorage) &&
        Is(arguments, 1, Kind::kInt) && Is(arguments, 2, Kind::kTuple) &&
        Is(arguments, 3, Kind::kTuple) && Is(arguments, 4, Kind::kBool) &&
        IsEmptyDict(arguments, 5) &&
        (!typed ||
         (Is(arguments, 6, Kind::kName) && At(arguments, 6).name->meaning == Name::kType)) &&
        (given == count || Is(arguments, count, Kind::kNone) || IsEmptyDict(arguments, count));
    if (!legal) {
      return Fault(
          "a tensor is to be made of a storage, an offset, a shape, strides, a bool, no hooks and "
          "a "
          "type where the storage has none, and is not");
    }
    const Storage& storage = storages_[static_cast<size_t>(At(arguments, 0).number)];
    PickledTensor tensor{
        .type = storage.type, .storage = std::string(storage.key), .storage_bytes = storage.bytes};
    if ((tensor.type == nullptr) != typed) {
      return Fault(StrCat("storage ", Quoted(storage.key), " and its tensor have ",
                          typed ? "a type each" : "no type", ", expected one"));
    }
    if (typed) tensor.type = FindNumberType(At(arguments, 6).name->type);
    KVG_ASSIGN(tensor.shape, Counts(At(arguments, 2)));
    KVG_ASSIGN(tensor.strides, Counts(At(arguments, 3)));
    const int64_t offset = At(arguments, 1).number;
    if (offset < 0 || tensor.shape.size() != tensor.strides.size() ||
        tensor.shape.size() > kMostDimensions) {
      return Fault(StrCat("a tensor of ", tensor.shape.size(), " sizes, ", tensor.strides.size(),
                          " strides and offset ", offset, ", expected at most ", kMostDimensions,
                          " of each, as many of both"));
    }
    tensor.offset = static_cast<uint64_t>(offset);
    KVG_TRY(CheckReach(tensor));
    if (tensors_.size() >= kMostTensors) {
      return Fault(StrCat("more than ", kMostTensors, " tensors"));
    }
    tensors_.push_back(std::move(tensor));
    return PushNumber(Kind::kTensor, std::ssize(tensors_) - 1);
  }

  Result<std::vector<int64_t>> Counts(const Value& tuple) const {
    std::vector<int64_t> counts;
    for (size_t i = 0; i < tuple.items.size(); ++i) {
      if (!Is(tuple, i, Kind::kInt) || At(tuple, i).number < 0) {
        return Fault("sizes and strides must be integers from 0");
      }
      counts.push_back(At(tuple, i).number);
    }
    return counts;
  }

  // The last element must lie in the storage. A stride of 0 would let a small storage be a tensor
  // of any size.
  Status CheckReach(const PickledTensor& tensor) const {
    const uint64_t room = tensor.storage_bytes / (tensor.type->bits / 8);
    uint64_t elements = 1, last = tensor.offset;
    bool wrapped = false;
    const bool empty = std::ranges::find(tensor.shape, 0) != tensor.shape.end();
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      const auto size = static_cast<uint64_t>(tensor.shape[i]);
      uint64_t reach = 0;
      if (size == 0) continue;
      wrapped =
          wrapped || __builtin_mul_overflow(elements, size, &elements) ||
          __builtin_mul_overflow(size - 1, static_cast<uint64_t>(tensor.strides[i]), &reach) ||
          __builtin_add_overflow(last, reach, &last);
    }
    if (elements > uint64_t{INT64_MAX}) wrapped = true;
    if (empty) last = tensor.offset;
    const bool inside = empty ? last <= room : last < room && elements <= room;
    if (!wrapped && inside) return {};
    return Fault(StrCat("a tensor of storage ", Quoted(tensor.storage), " with ",
                        wrapped ? "too many" : StrCat(elements), " elements",
                        wrapped ? "" : StrCat(", the last at ", last), ", but the storage has ",
                        room));
  }

  // Attributes of the dictionary itself; PyTorch puts versions of modules there.
  Status Build() {
    KVG_ASSIGN(const Ref state, Pop(Kind::kDict));
    KVG_ASSIGN(const Ref dict, Pop(Kind::kDict));
    if (values_[dict].number != 1 || values_[state].number == 1) {
      return Refused("attributes of something that is no OrderedDict");
    }
    stack_.push_back(dict);
    return {};
  }

  Result<std::vector<PickledTensor>> TensorsOf(const Value& root) const {
    if (root.kind != Kind::kDict) {
      return Fault(
          StrCat("the file holds ", KindText(root.kind), ", expected a dictionary of tensors"));
    }
    if (root.items.size() / 2 > kMostTensors) {
      return Fault(StrCat("a dictionary of ", root.items.size() / 2, " entries, expected at most ",
                          kMostTensors));
    }
    std::vector<PickledTensor> tensors;
    for (size_t i = 0; i < root.items.size(); i += 2) {
      const Value& key = values_[root.items[i]];
      const Value& value = values_[root.items[i + 1]];
      if (key.kind != Kind::kText || key.text.empty() ||
          FindInvalidUtf8(key.text) != std::string_view::npos) {
        return Fault(StrCat("a key of the dictionary is ", KindText(key.kind),
                            ", expected the name of a tensor"));
      }
      if (value.kind != Kind::kTensor) {
        return Fault(StrCat("entry ", Quoted(key.text, 120), " is ", KindText(value.kind),
                            ", expected a tensor"));
      }
      PickledTensor tensor = tensors_[static_cast<size_t>(value.number)];
      tensor.name = key.text;
      tensors.push_back(std::move(tensor));
    }
    std::ranges::sort(tensors, {}, &PickledTensor::name);
    const auto twice = std::ranges::adjacent_find(tensors, {}, &PickledTensor::name);
    if (twice != tensors.end()) {
      return Fault(StrCat("tensor ", Quoted(twice->name, 120), " is there twice"));
    }
    return tensors;
  }

  std::span<const uint8_t> bytes_;
  std::string_view origin_;
  size_t begin_ = 0;  // of the operation
  size_t at_ = 0;
  std::vector<Value> values_;
  std::vector<Ref> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  std::unordered_map<uint64_t, Ref> memo_;
  std::vector<Storage> storages_;
  std::vector<PickledTensor> tensors_;
};

}  // namespace

Result<std::vector<PickledTensor>> ReadPickle(std::span<const uint8_t> pickle,
                                              std::string_view origin) {
  return Machine(pickle, origin).Run();
}

}  // namespace kvgauge
