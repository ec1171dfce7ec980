// SPDX-License-Identifier: Apache-2.0
#include "src/dlpack.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
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
constexpr int32_t kCpu = 1, kCudaHost = 3, kRocmHost = 11;
enum DlCode : uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kBool = 6 };

constexpr const char *kPlainName = "dltensor", *kPlainUsed = "used_dltensor";
constexpr const char *kVersionedName = "dltensor_versioned",
                     *kVersionedUsed = "used_dltensor_versioned";
constexpr int32_t kMostAxes = 32;

std::string DeviceName(int32_t type) {
  switch (type) {
    case 2:
      return "a CUDA device";
    case 8:
      return "a Metal device";
    case 10:
      return "a ROCm device";
    default:
      return StrCat("a device of DLPack's type ", type);
  }
}

std::string WrongDevice(const std::string& what, int32_t type) {
  return StrCat(what, ": an array in the memory of ", DeviceName(type),
                "; expected host memory, such as tensor.cpu()");
}

bool OnHost(int32_t type) { return type == kCpu || type == kCudaHost || type == kRocmHost; }

// What lies behind an array that a view lent: the memory, and its state when it was first exported.
struct Lent {
  Tensor tensor;
  bool exported = false;
  uint64_t sum = 0;
};

constexpr const char* kLentName = "kvgauge.lent";

// Different for different contents with near certainty; not against an adversary.
uint64_t SumOf(const Tensor& tensor) {
  const auto size = static_cast<int64_t>(SizeOf(tensor.dtype));
  uint64_t sum = 0xcbf29ce484222325;
  const auto mix = [&sum](uint64_t word) {
    sum = (sum ^ word) * 0x9e3779b97f4a7c15;
    sum ^= sum >> 29;
  };
  const auto run = [&](const char* at, int64_t bytes) {
    for (; bytes >= 8; at += 8, bytes -= 8) {
      uint64_t word = 0;
      std::memcpy(&word, at, 8);
      mix(word);
    }
    uint64_t rest = 0;
    std::memcpy(&rest, at, static_cast<size_t>(bytes));
    mix(rest);
  };
  if (tensor.empty()) return sum;
  // Rows of the innermost axis are contiguous.
  std::array<int64_t, kMaxRank> at = {};
  const int outer = tensor.rank - 1;
  const int64_t row = tensor.rank == 0 ? size : tensor.shape[static_cast<size_t>(outer)] * size;
  for (;;) {
    int64_t offset = 0;
    for (int axis = 0; axis < outer; ++axis) {
      const auto a = static_cast<size_t>(axis);
      if (tensor.shape[a] == 0) return sum;
      offset += at[a] * tensor.stride[a];
    }
    run(static_cast<const char*>(tensor.data) + offset * size, row);
    int axis = outer - 1;
    for (; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      if (++at[a] < tensor.shape[a]) break;
      at[a] = 0;
    }
    if (axis < 0) return sum;
  }
}

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

// Steps from a view to what it is a view of, until a capsule of ours; null: there is none.
Lent* LentBehind(py::object object) {
  while (!object.is_none()) {
    if (PyCapsule_IsValid(object.ptr(), kLentName) != 0) {
      return static_cast<Lent*>(PyCapsule_GetPointer(object.ptr(), kLentName));
    }
    if (!py::hasattr(object, "base")) return nullptr;
    object = object.attr("base");
  }
  return nullptr;
}

// --- export

// What an exported tensor owns: the array, and the numbers its description points to.
struct Exported {
  py::object array;
  std::vector<int64_t> shape, strides;
};

void Forget(void* context) {
  const py::gil_scoped_acquire lock;
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): made by Export
  delete static_cast<Exported*>(context);
}

// pybind11 reads a type's size where NumPy 1 has it; NumPy itself knows better.
int64_t ItemSize(const py::object& array_or_type) {
  return array_or_type.attr("itemsize").cast<int64_t>();
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

template <class Managed>
py::capsule Export(const py::array& array, bool copied, const char* name) {
  const int64_t item = ItemSize(array);
  auto exported = std::make_unique<Exported>();
  for (py::ssize_t axis = 0; axis < array.ndim(); ++axis) {
    exported->shape.push_back(array.shape(axis));
    if (array.strides(axis) % item != 0) {
      throw py::buffer_error("the array's strides are no whole numbers of elements");
    }
    exported->strides.push_back(array.strides(axis) / item);
  }
  auto managed = std::make_unique<Managed>();
  managed->tensor = {const_cast<void*>(array.data()),  // NOLINT: DLPack has no const
                     {kCpu, 0},
                     static_cast<int32_t>(array.ndim()),
                     TypeOfArray(array),
                     exported->shape.data(),
                     exported->strides.data(),
                     0};
  if constexpr (std::is_same_v<Managed, DlVersioned>) {
    managed->major = 1;
    managed->minor = 0;
    managed->flags = (array.writeable() ? 0 : kReadOnly) | (copied ? kCopied : 0);
  }
  exported->array = array;
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

py::capsule ExportArray(py::array array, bool versioned, bool copy) {
  if (copy) array = array.attr("copy")().cast<py::array>();
  if (Lent* const lent = LentBehind(array); lent != nullptr && !lent->exported) {
    lent->exported = true;
    lent->sum = SumOf(lent->tensor);
  }
  return versioned ? Export<DlVersioned>(array, copy, kVersionedName)
                   : Export<DlManaged>(array, copy, kPlainName);
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

py::array Import(const py::object& value, const std::string& what) {
  if (py::hasattr(value, "__dlpack_device__")) {
    const auto device = value.attr("__dlpack_device__")().cast<py::tuple>();
    const auto type = device[0].cast<int32_t>();
    if (!OnHost(type)) {
      throw py::type_error(WrongDevice(what, type));
    }
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
  if (!OnHost(tensor->device.type)) {
    throw py::type_error(WrongDevice(what, tensor->device.type));
  }
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
  py::array array(type, shape, strides, data, owner);
  array.attr("flags").attr("writeable") = false;
  return tensor->type.code == kBfloat ? WidenBfloat(array) : array;
}

}  // namespace

py::array BorrowedArray(const Tensor& tensor, bool writeable, py::object& owner) {
  std::vector<py::ssize_t> shape, strides;
  const auto size = static_cast<py::ssize_t>(SizeOf(tensor.dtype));
  for (int axis = 0; axis < tensor.rank; ++axis) {
    shape.push_back(tensor.shape[static_cast<size_t>(axis)]);
    strides.push_back(tensor.stride[static_cast<size_t>(axis)] * size);
  }
  // An array without entries may have no memory, which NumPy would take for a wish to get some.
  static char nothing = 0;
  void* const data = tensor.empty() ? &nothing : tensor.data;
  auto lent = std::make_unique<Lent>();
  lent->tensor = tensor;
  PyObject* const capsule = PyCapsule_New(lent.get(), kLentName, [](PyObject* self) {
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): made below
    delete static_cast<Lent*>(PyCapsule_GetPointer(self, kLentName));
  });
  if (capsule == nullptr) throw py::error_already_set();
  lent.release();  // NOLINT(bugprone-unused-return-value): the capsule has it
  owner = py::reinterpret_steal<py::object>(capsule);
  py::array array(NumpyType(tensor.dtype), shape, strides, data, owner);
  if (!writeable) array.attr("flags").attr("writeable") = false;
  const py::object type = py::module_::import("kvgauge._arrays").attr("Array");
  return array.attr("view")(type).cast<py::array>();
}

bool WasWritten(const py::object& owner) {
  const auto* const lent = static_cast<Lent*>(PyCapsule_GetPointer(owner.ptr(), kLentName));
  return lent->exported && SumOf(lent->tensor) != lent->sum;
}

py::array AnyArray(const py::object& value, const std::string& what) {
  if (py::isinstance<py::array>(value)) return py::reinterpret_borrow<py::array>(value);
  if (py::hasattr(value, "__dlpack__")) return Import(value, what);
  py::array array = py::array::ensure(value);
  if (!array) PyErr_Clear();
  return array;
}

void BindDlpack(py::module_& module) {
  // pybind11 looks for NumPy where an array is first needed, behind the guard of a static variable.
  // NumPy's import lets go of the interpreter there, and a second thread of a run would take it and
  // then wait at the guard for ever. So it is found here, while there is one thread.
  py::dtype::of<float>();
  module.def("export_array", &ExportArray, py::arg("array"), py::arg("versioned"), py::arg("copy"),
             "The array's memory as a DLPack capsule.");
}

}  // namespace kvgauge::python
