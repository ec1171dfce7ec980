// SPDX-License-Identifier: Apache-2.0
#include "src/dlpack.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/strings.h"

namespace kvgauge::python {
namespace {

// The binary interface of DLPack 1.0, as its specification lays it out.
struct DlDevice {
  int32_t type, id;
};
struct DlType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t rank;
  DlType type;
  int64_t* shape;
  int64_t* strides;  // in elements; null: contiguous
  uint64_t byte_offset;
};
struct DlManaged {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManaged*);
};
struct DlVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(DlVersioned*);
  uint64_t flags;
  DlTensor tensor;
};
constexpr uint64_t kReadOnly = 1, kCopied = 2;
constexpr int32_t kCpu = 1, kCudaHost = 3, kRocmHost = 11, kCudaManaged = 13;
enum DlCode : uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kBool = 6 };

constexpr const char *kPlainName = "dltensor", *kPlainUsed = "used_dltensor";
constexpr const char *kVersionedName = "dltensor_versioned",
                     *kVersionedUsed = "used_dltensor_versioned";
constexpr int32_t kMostAxes = 32;

std::string DeviceName(const DlDevice& device) {
  switch (device.type) {
    case kDlCuda:
    case kCudaManaged:
      return StrCat("CUDA device ", device.id);
    case 8:
      return "a Metal device";
    case 10:
      return "a ROCm device";
    default:
      return StrCat("a device of DLPack's type ", device.type);
  }
}

bool OnHost(const DlDevice& device) {
  return device.type == kCpu || device.type == kCudaHost || device.type == kRocmHost;
}

// Whether it is the device that computes.
bool OnDeviceOf(const Ops& ops, const DlDevice& device) {
  return ops.device == Device::kCuda &&
         (device.type == kCudaManaged ||
          (device.type == kDlCuda && device.id == ops.device_number));
}

void CheckDevice(const Ops& ops, const DlDevice& device, const std::string& what) {
  if (OnHost(device) || OnDeviceOf(ops, device)) return;
  throw py::type_error(
      StrCat(what, ": an array in the memory of ", DeviceName(device), "; expected ",
             ops.device == Device::kCuda ? StrCat("CUDA device ", ops.device_number, " or ")
                                         : std::string(),
             "host memory, such as tensor.cpu()"));
}

// pybind11 reads a type's size where NumPy 1 has it; NumPy itself knows better.
int64_t ItemSize(const py::object& array_or_type) {
  return array_or_type.attr("itemsize").cast<int64_t>();
}

// --- export

// A tensor to be exported: what its description points to, and whom it keeps alive.
struct Exported {
  py::object owner;
  std::vector<int64_t> shape, strides;
};

void Forget(void* context) {
  const py::gil_scoped_acquire lock;
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): made by Export
  delete static_cast<Exported*>(context);
}

DlType TypeOfArray(const py::array& array) {
  const auto bits = static_cast<uint8_t>(ItemSize(array) * 8);
  switch (array.dtype().kind()) {
    case 'f':
      return {kFloat, bits, 1};
    case 'i':
      return {kInt, bits, 1};
    case 'u':
      return {kUint, bits, 1};
    case 'b':
      return {kBool, bits, 1};
    default:
      throw py::buffer_error(StrCat("arrays of ", py::str(array.dtype()).cast<std::string>(),
                                    " are not exchanged by DLPack"));
  }
}

DlType TypeOfTensor(DType dtype) {
  const auto bits = static_cast<uint8_t>(SizeOf(dtype) * 8);
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
      return {kFloat, bits, 1};
    case DType::kBF16:
      return {kBfloat, bits, 1};
    case DType::kU8:
      return {kUint, bits, 1};
    case DType::kI8:
    case DType::kI32:
    case DType::kI64:
      return {kInt, bits, 1};
  }
  throw std::invalid_argument("a tensor of an unknown type");
}

// `tensor` without shape and strides, which are those of `exported`.
template <class Managed>
py::capsule Export(DlTensor tensor, std::unique_ptr<Exported> exported, uint64_t flags,
                   const char* name) {
  auto managed = std::make_unique<Managed>();
  tensor.rank = static_cast<int32_t>(exported->shape.size());
  tensor.shape = exported->shape.data();
  tensor.strides = exported->strides.data();
  managed->tensor = tensor;
  if constexpr (std::is_same_v<Managed, DlVersioned>) {
    managed->major = 1;
    managed->minor = 0;
    managed->flags = flags;
  }
  managed->context = exported.release();
  managed->deleter = [](Managed* self) {
    Forget(self->context);
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): made by Export
    delete self;
  };
  // A library that takes the tensor renames the capsule; an untaken one goes with it.
  PyObject* const capsule = PyCapsule_New(managed.get(), name, [](PyObject* self) {
    const char* const is = PyCapsule_GetName(self);
    if (is == nullptr || (std::strcmp(is, kPlainName) != 0 && std::strcmp(is, kVersionedName) != 0))
      return;
    auto* const left = static_cast<Managed*>(PyCapsule_GetPointer(self, is));
    if (left != nullptr) left->deleter(left);
  });
  if (capsule == nullptr) {
    managed->deleter(managed.release());
    throw py::error_already_set();
  }
  managed.release();  // NOLINT(bugprone-unused-return-value): the capsule has it
  return py::reinterpret_steal<py::capsule>(capsule);
}

py::capsule ExportAs(bool versioned, const DlTensor& tensor, std::unique_ptr<Exported> exported,
                     uint64_t flags) {
  return versioned ? Export<DlVersioned>(tensor, std::move(exported), flags, kVersionedName)
                   : Export<DlManaged>(tensor, std::move(exported), flags, kPlainName);
}

// --- import

// Takes the tensor out of the capsule of an exporter; `drop` ends it.
const DlTensor* Take(const py::object& capsule, void*& managed, void (*&drop)(void*)) {
  PyObject* const raw = capsule.ptr();
  if (PyCapsule_IsValid(raw, kVersionedName) != 0) {
    auto* const taken = static_cast<DlVersioned*>(PyCapsule_GetPointer(raw, kVersionedName));
    if (taken->major != 1) return nullptr;
    PyCapsule_SetName(raw, kVersionedUsed);
    managed = taken;
    drop = [](void* self) {
      auto* const it = static_cast<DlVersioned*>(self);
      if (it->deleter != nullptr) it->deleter(it);
    };
    return &taken->tensor;
  }
  if (PyCapsule_IsValid(raw, kPlainName) != 0) {
    auto* const taken = static_cast<DlManaged*>(PyCapsule_GetPointer(raw, kPlainName));
    PyCapsule_SetName(raw, kPlainUsed);
    managed = taken;
    drop = [](void* self) {
      auto* const it = static_cast<DlManaged*>(self);
      if (it->deleter != nullptr) it->deleter(it);
    };
    return &taken->tensor;
  }
  return nullptr;
}

py::object CapsuleOf(const py::object& value) {
  const py::object give = value.attr("__dlpack__");
  try {
    return give();
  } catch (py::error_already_set& error) {
    // An exporter of read-only memory may insist on the version that can say so.
    if (!error.matches(PyExc_BufferError)) throw;
    return give(py::arg("max_version") = py::make_tuple(1, 0));
  }
}

py::dtype NumpyTypeOf(const DlType& type, const std::string& what) {
  if (type.lanes == 1 && type.bits % 8 == 0) {
    const std::string bytes = std::to_string(type.bits / 8);
    const bool whole = type.bits == 8 || type.bits == 16 || type.bits == 32 || type.bits == 64;
    if (type.code == kInt && whole) return py::dtype("i" + bytes);
    if (type.code == kUint && whole) return py::dtype("u" + bytes);
    if (type.code == kBool && type.bits == 8) return py::dtype("?");
    if (type.code == kFloat && whole && type.bits > 8) return py::dtype("f" + bytes);
    if (type.code == kBfloat && type.bits == 16) return py::dtype("u2");
  }
  throw py::type_error(StrCat(what, ": an array of DLPack's type ", static_cast<int>(type.code),
                              " with ", static_cast<int>(type.bits),
                              " bits; expected real or whole numbers"));
}

py::array WidenBfloat(const py::array& words) {
  const auto from = py::array_t<uint16_t, py::array::c_style>::ensure(words);
  const std::vector<py::ssize_t> shape(words.shape(), words.shape() + words.ndim());
  py::array_t<float> out(shape);
  float* const to = out.mutable_data();
  for (py::ssize_t i = 0; i < from.size(); ++i) {
    const uint32_t bits = static_cast<uint32_t>(from.data()[i]) << 16;
    std::memcpy(to + i, &bits, sizeof(bits));
  }
  return out;
}

py::array Import(Ops& ops, const py::object& value, const std::string& what) {
  if (py::hasattr(value, "__dlpack_device__")) {
    const auto device = value.attr("__dlpack_device__")().cast<py::tuple>();
    CheckDevice(ops, {device[0].cast<int32_t>(), device[1].cast<int32_t>()}, what);
  }
  const py::object capsule = CapsuleOf(value);
  void* managed = nullptr;
  void (*drop)(void*) = nullptr;
  const DlTensor* const tensor = Take(capsule, managed, drop);
  if (tensor == nullptr) {
    throw py::type_error(StrCat(what, ": __dlpack__() of ",
                                py::str(py::type::of(value)).cast<std::string>(),
                                " gave no tensor of DLPack 1"));
  }
  const py::capsule owner(managed, drop);  // from here on the tensor ends with the array
  CheckDevice(ops, tensor->device, what);
  const py::dtype type = NumpyTypeOf(tensor->type, what);
  bool right = tensor->rank >= 0 && tensor->rank <= kMostAxes &&
               (tensor->rank == 0 || tensor->shape != nullptr);
  std::vector<py::ssize_t> shape, strides;
  int64_t count = 1;
  for (int32_t axis = 0; right && axis < tensor->rank; ++axis) {
    const int64_t size = tensor->shape[axis];
    right = size >= 0 && !__builtin_mul_overflow(count, size, &count);
    shape.push_back(size);
  }
  if (!right || (count > 0 && tensor->data == nullptr)) {
    throw py::value_error(StrCat(what, ": DLPack gave a shape that no array has"));
  }
  const int64_t item = ItemSize(type);
  if (tensor->strides != nullptr) {
    for (int32_t axis = 0; axis < tensor->rank; ++axis) {
      strides.push_back(tensor->strides[axis] * item);
    }
  } else {
    int64_t step = item;
    strides.resize(shape.size());
    for (size_t axis = shape.size(); axis-- > 0;) {
      strides[axis] = step;
      step *= shape[axis];
    }
  }
  static char nothing = 0;  // an array without entries may have no memory
  char* const data = count > 0 ? static_cast<char*>(tensor->data) + tensor->byte_offset : &nothing;
  py::array array;
  if (count > 0 && !OnHost(tensor->device)) {
    array = CopyToHost(ops, {data, type, shape, strides});
  } else {
    array = py::array(type, shape, strides, data, owner);
    array.attr("flags").attr("writeable") = false;
  }
  return tensor->type.code == kBfloat ? WidenBfloat(array) : array;
}

}  // namespace

py::dtype NumpyType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return py::dtype::of<float>();
    case DType::kI32:
      return py::dtype::of<int32_t>();
    case DType::kI64:
      return py::dtype::of<int64_t>();
    case DType::kI8:
      return py::dtype::of<int8_t>();
    case DType::kU8:
      return py::dtype::of<uint8_t>();
    case DType::kF16:
      return py::dtype("float16");
    case DType::kBF16:
      return py::dtype::of<uint16_t>();
  }
  throw std::invalid_argument("a tensor of an unknown type");
}

py::capsule ExportArray(const py::array& array, bool versioned, bool copied) {
  const int64_t item = ItemSize(array);
  auto exported = std::make_unique<Exported>();
  exported->owner = array;
  for (py::ssize_t axis = 0; axis < array.ndim(); ++axis) {
    exported->shape.push_back(array.shape(axis));
    if (array.strides(axis) % item != 0) {
      throw py::buffer_error("the array's strides are no whole numbers of elements");
    }
    exported->strides.push_back(array.strides(axis) / item);
  }
  DlTensor tensor = {};
  tensor.data = const_cast<void*>(array.data());  // NOLINT: DLPack has no const
  tensor.device = {kCpu, 0};
  tensor.type = TypeOfArray(array);
  return ExportAs(versioned, tensor, std::move(exported),
                  (array.writeable() ? 0 : kReadOnly) | (copied ? kCopied : 0));
}

py::capsule ExportTensor(const Ops& ops, const Tensor& tensor, const py::object& owner,
                         bool versioned) {
  auto exported = std::make_unique<Exported>();
  exported->owner = owner;
  const auto rank = static_cast<size_t>(tensor.rank);
  exported->shape.assign(tensor.shape.begin(), tensor.shape.begin() + rank);
  exported->strides.assign(tensor.stride.begin(), tensor.stride.begin() + rank);
  DlTensor described = {};
  described.data = tensor.data;
  described.device = {kDlCuda, ops.device_number};
  described.type = TypeOfTensor(tensor.dtype);
  return ExportAs(versioned, described, std::move(exported), kReadOnly);
}

py::array CopyToHost(Ops& ops, const DeviceMemory& memory) {
  // All bytes from the first number to the last, so that strides stay as they are.
  py::ssize_t begin = 0, end = ItemSize(memory.type);
  for (size_t axis = 0; axis < memory.shape.size(); ++axis) {
    const py::ssize_t last = (memory.shape[axis] - 1) * memory.strides[axis];
    if (memory.shape[axis] == 0) return py::array(memory.type, memory.shape);
    (last < 0 ? begin : end) += last;
  }
  py::array_t<uint8_t> bytes(end - begin);
  // Whatever library computes the numbers, on whatever stream, is done then.
  ops.memory->Synchronize();
  ops.memory->Copy(
      Tensor(static_cast<char*>(memory.data) + begin, DType::kU8, {end - begin}, Device::kCuda),
      Tensor(bytes.mutable_data(), DType::kU8, {end - begin}));
  py::array array(memory.type, memory.shape, memory.strides, bytes.data() - begin, bytes);
  array.attr("flags").attr("writeable") = false;
  return array;
}

py::array AnyArray(Ops& ops, const py::object& value, const std::string& what) {
  if (py::isinstance<py::array>(value)) return py::reinterpret_borrow<py::array>(value);
  if (py::hasattr(value, "__dlpack__")) return Import(ops, value, what);
  py::array array = py::array::ensure(value);
  if (!array) PyErr_Clear();
  return array;
}

}  // namespace kvgauge::python
