# SPDX-License-Identifier: Apache-2.0
"""Stages in Python on a device: its arrays go to and come from other libraries by DLPack.

The device is the emulated one, whose memory the host cannot touch; a library that computes there
stands in for PyTorch or CuPy.
"""

import ctypes
import importlib.util
import sys
import unittest

import numpy as np
from support import HOME, Same, samples_of

import kvgauge
from kvgauge import _kvgauge

sys.path.insert(0, str(HOME / "examples" / "python"))
import methods  # noqa: E402,F401  registers the stages of the guide

CUDA = (2, 0)
NAMES = {(2, 32): np.float32, (0, 32): np.int32, (0, 64): np.int64}


def emulated_device():
    """The module in the file of the extension; None: it has none."""
    spec = importlib.util.spec_from_file_location("emulated_device", _kvgauge.__file__)
    try:
        return importlib.util.module_from_spec(spec)
    except ImportError:
        return None


device = emulated_device()


def setUpModule():
    if device is None:
        raise unittest.SkipTest("this build of the package has no emulated device")


# --- a library that computes on the device

class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Description(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", Device), ("rank", ctypes.c_int32),
                ("type", Type), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Plain(ctypes.Structure):
    pass


Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(Plain))
Plain._fields_ = [("tensor", Description), ("context", ctypes.c_void_p), ("deleter", Deleter)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", Description)]


def api(name, result, *arguments):
    function = getattr(ctypes.pythonapi, name)
    function.restype, function.argtypes = result, arguments
    return function


name_of = api("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
pointer_of = api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
new_capsule = api("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p,
                  ctypes.c_void_p)


class Taken:
    """The memory of an array, as long as this lives."""

    def __init__(self, array, **wishes):
        self.capsule = array.__dlpack__(stream=1, **wishes)
        name = name_of(self.capsule)
        kind = Versioned if name == b"dltensor_versioned" else Plain
        managed = kind.from_address(pointer_of(self.capsule, name))
        tensor = managed.tensor
        self.flags = managed.flags if kind is Versioned else None
        self.device = tensor.device.type, tensor.device.id
        self.address = tensor.data + tensor.byte_offset
        self.shape = tuple(tensor.shape[:tensor.rank])
        self.strides = tuple(tensor.strides[:tensor.rank])
        self.dtype = np.dtype(NAMES[tensor.type.code, tensor.type.bits])

    def numbers(self):
        count = 1 + sum((size - 1) * step for size, step in zip(self.shape, self.strides))
        read = device.read(self.address, count * self.dtype.itemsize)
        return np.lib.stride_tricks.as_strided(
            np.frombuffer(read, self.dtype), self.shape,
            [step * self.dtype.itemsize for step in self.strides])

    def write(self, numbers):
        device.write(self.address, np.ascontiguousarray(numbers, self.dtype).tobytes())


class Computed:
    """An array that the library made on the device; `every` numbers apart along its last axis."""

    exported = []  # stay: a consumer calls their deleters when it likes
    given_back = 0

    def __init__(self, array, every=1, on=CUDA):
        array = np.asarray(array)
        wide = np.full((*array.shape, abs(every)), 7, array.dtype)
        wide[..., 0] = array if every > 0 else array[..., ::-1]
        self.address, self.on = device.allocate(wide.nbytes), on
        device.write(self.address, wide.tobytes())
        steps = [step // array.itemsize for step in wide.strides[:-1]]
        start = 0
        if every < 0:
            start = (array.shape[-1] - 1) * steps[-1] * array.itemsize
            steps[-1] = -steps[-1]
        code = {"f": 2, "i": 0}[array.dtype.kind]
        axes = ctypes.c_int64 * array.ndim
        self.shape, self.strides = axes(*array.shape), axes(*steps)
        self.managed = Plain(Description(self.address, Device(*on), array.ndim,
                                         Type(code, array.itemsize * 8, 1), self.shape,
                                         self.strides, start), None, Deleter(self.forget))

    def forget(self, managed):
        Computed.given_back += 1

    def __dlpack__(self, *, stream=None, max_version=None):
        Computed.exported.append(self)
        return new_capsule(ctypes.addressof(self.managed), b"dltensor", None)

    def __dlpack_device__(self):
        return self.on


def computed(rows, **more):
    return [Computed(row, **more) for row in rows]


def positions(view):
    """What score.recency says, bit for bit."""
    return [Taken(view.positions(head)).numbers().astype(np.float32)
            for head in range(view.kv_heads)]


# --- stages

seen, kept, seen_on = [], [], []


@kvgauge.score(needs={"window": 8})
def looks(view):
    """Notes what the library finds, beside the copy that NumPy gets."""
    for array in (view.keys(0), view.keys(1, 3), view.positions(0), view.window_attention(8)):
        plain, versioned = Taken(array), Taken(array, max_version=(1, 0))
        copy = array.host()
        seen.append({
            "class": type(array), "says": array.__dlpack_device__(), "is": plain.device,
            "there": device.holds(plain.address), "same": plain.address == versioned.address,
            "flags": (plain.flags, versioned.flags), "read": plain.numbers(), "copy": copy,
            "shapes": (array.shape, plain.shape, copy.shape), "len": len(array),
            "size": (array.ndim, array.size, array.nbytes), "type": (array.dtype, plain.dtype),
            "to_host": np.from_dlpack(array.host()),
        })
        del plain, versioned
    return positions(view)


@kvgauge.score(any_time=True)
def on_device(view):
    return computed(positions(view))


@kvgauge.score(any_time=True)
def on_device_at_once(view):
    return Computed(np.stack(positions(view)))


@kvgauge.score(any_time=True)
def apart(view):
    return computed(positions(view), every=3)


@kvgauge.score(any_time=True)
def backwards(view):
    return computed(positions(view), every=-2)


@kvgauge.score(any_time=True)
def on_host(view):
    return [np.asarray(scores, np.float64) for scores in positions(view)]


def grown_older(view, scores):
    assert view.decoding and np.array_equal(Taken(scores).numbers(), scores.host())
    return computed(positions(view))


@kvgauge.score(any_time=True, age=grown_older)
def ages(view):
    return positions(view)


@kvgauge.allocate(scores=True)
def same_for_all(request):
    widths = {Taken(scores).shape[1] for scores in request.scores}
    assert widths == {request.length}, widths
    return Computed(np.full((request.layers, request.kv_heads), request.per_head))


@kvgauge.reduce
def best(view, scores, allotted):
    numbers = Taken(scores).numbers()
    return computed([np.argsort(-numbers[head, :view.lengths[head]], kind="stable")[:count]
                     for head, count in enumerate(allotted)])


@kvgauge.read
class Everything:
    @staticmethod
    def begin(view):
        return {"lengths": np.array(view.lengths)}

    @staticmethod
    def append(view, index, first):
        return {"lengths": np.array(view.lengths)}

    @staticmethod
    def select(view, index, queries):
        assert queries.shape == (view.query_heads, view.key_dim)
        assert np.array_equal(Taken(queries).numbers(), queries.host())
        return computed([np.arange(n) for n in index["lengths"]])


@kvgauge.score(any_time=True)
def elsewhere(view):
    """Another library computes on a device of its own in the middle."""
    keys = view.keys(0)
    device.choose(1)
    Taken(keys)
    device.choose(1)
    scores = positions(view)
    device.choose(1)
    return scores


@kvgauge.score(any_time=True)
def on_second(view):
    """As a library would that computes on the device where the array says it is."""
    keys = view.keys(0)
    seen_on.append((keys.__dlpack_device__(), Taken(keys).device))
    return computed(positions(view), on=keys.__dlpack_device__())


@kvgauge.reduce
def keeps_elsewhere(view, scores, allotted):
    """What is kept goes to the device before the call is closed."""
    numbers = scores.host()
    device.choose(1)
    return [np.argsort(-numbers[head, :view.lengths[head]], kind="stable")[:count]
            for head, count in enumerate(allotted)]


@kvgauge.score
def numpy_alone(view):
    return [-np.linalg.norm(view.keys(head), axis=1) for head in range(view.kv_heads)]


@kvgauge.score
def sliced(view):
    return [view.keys(head)[:, 0] for head in range(view.kv_heads)]


@kvgauge.score
def method_of_numpy(view):
    return [view.keys(head).sum(1) for head in range(view.kv_heads)]


@kvgauge.score
def second_device(view):
    return computed(positions(view), on=(2, 1))


@kvgauge.score
def keeps_an_export(view):
    kept.append(Taken(view.keys(0)))
    return positions(view)


@kvgauge.score
def keeps_an_array(view):
    kept.append(view.keys(0))
    return positions(view)


@kvgauge.score
def writes_keys(view):
    """One number of many: those of large arrays stay on the device."""
    taken = Taken(view.keys(0))
    taken.write(taken.numbers()[0] + 1)
    return positions(view)


@kvgauge.score
def writes_positions(view):
    taken = Taken(view.positions(0))
    taken.write([5])
    return positions(view)


@kvgauge.score
def raises(view):
    kept.append(view.keys(0))
    raise ValueError("on purpose")


class Equal(Same):
    """A stage gives what the built-in one gives, wherever its results lie."""

    @classmethod
    def setUpClass(cls):
        seen.clear()
        protect = {"recent": 16}
        again = {"id": "interval", "steps": 1}
        cls.same_as = {
            "recency": ["looks", "on_device", "on_device_at_once", "apart", "backwards", "on_host"],
            "recency_again": ["ages"],
            "knorm": ["short_keys", "best", "same_for_all", "keep_the_best"],
            "snapkv": ["looked_at"],
            "full": ["Everything", "NearestKeys"],
        }
        rows = [kvgauge.method(name, score=name) for name in cls.same_as["recency"]]
        rows += [kvgauge.method(name, score=name) for name in ("recency", "knorm", "short_keys")]
        rows += [kvgauge.method("best", score="knorm", reduce="best"),
                 kvgauge.method("keep_the_best", score="knorm", reduce="keep_the_best"),
                 kvgauge.method("same_for_all", score="knorm", allocate="same_for_all"),
                 kvgauge.method("looked_at", score={"id": "looked_at", "window": 16},
                                protect=protect),
                 kvgauge.method("snapkv", score={"id": "snapkv", "window": 16, "pool": "avg"},
                                protect=protect),
                 kvgauge.method("recency_again", score="recency", trigger=again),
                 kvgauge.method("ages", score="ages", trigger=again),
                 {"method": kvgauge.method("Everything", read="Everything")},
                 {"method": kvgauge.method("NearestKeys",
                                           read={"id": "NearestKeys", "tokens": 100000})}]
        cls.found = samples_of(*rows, backend="cuda", budget="20%", samples=1, length=128)

    def test_answers(self):
        for built_in, names in self.same_as.items():
            for name in names:
                self.same(self.found, name, built_in)

    def test_what_a_library_gets_is_the_memory_of_the_device(self):
        self.assertGreater(len(seen), 4)
        for one in seen:
            self.assertIs(one["class"], kvgauge.DeviceArray)
            self.assertEqual((one["says"], one["is"]), (CUDA, CUDA))
            self.assertTrue(one["there"] and one["same"])
            self.assertEqual(one["flags"], (None, 1), "read-only, where DLPack can say so")
            self.assertEqual(len(set(one["shapes"])), 1)
            self.assertEqual(len(set(one["type"])), 1)
            self.assertEqual(one["len"], one["copy"].shape[0])
            copy = one["copy"]
            self.assertEqual(one["size"], (copy.ndim, copy.size, copy.nbytes))
            self.assertEqual(one["read"].tobytes(), copy.tobytes())
            self.assertTrue(np.array_equal(one["to_host"], copy))
            self.assertIsInstance(copy, kvgauge.Array)
            self.assertIs(copy.host(), copy)
            self.assertFalse(copy.flags.writeable)
        self.assertGreater(float(np.abs(seen[0]["copy"]).sum()), 0)

    def test_what_was_taken_is_given_back(self):
        self.assertGreater(len(Computed.exported), 0)
        self.assertEqual(Computed.given_back, len(Computed.exported))


class AnotherDevice(Same):
    """Stages that leave another device current do not send the program's work there."""

    def test_answers(self):
        found = samples_of(*(kvgauge.method(name, score=name) for name in ("elsewhere", "recency")),
                           kvgauge.method("kept", score="recency", reduce="keeps_elsewhere"),
                           backend="cuda", samples=1, length=320)
        self.same(found, "elsewhere", "recency")
        self.same(found, "kept", "recency")


class SecondDevice(Same):
    """A run with --backend cuda:1 says so of its arrays."""

    def test_arrays(self):
        device.set_devices(2)
        try:
            found = samples_of(*(kvgauge.method(name, score=name)
                                 for name in ("on_second", "recency")),
                               backend="cuda:1", samples=1, length=128)
        finally:
            device.set_devices(1)
        self.same(found, "on_second", "recency")
        self.assertEqual(set(seen_on), {((2, 1), (2, 1))})


class Faults(Same):
    @classmethod
    def setUpClass(cls):
        names = ["numpy_alone", "sliced", "method_of_numpy", "second_device", "keeps_an_export",
                 "keeps_an_array", "writes_keys", "writes_positions", "raises", "knorm"]
        # Keys of a head take more than what is copied as a whole to find changes.
        cls.found = samples_of(*(kvgauge.method(name, score=name) for name in names),
                               backend="cuda", samples=1, length=320)

    def why(self, name):
        return self.fault(self.found, name, beside="knorm")

    def test_numpy_without_a_copy(self):
        for name in ("numpy_alone", "sliced", "method_of_numpy"):
            self.assertRegex(self.why(name),
                             rf"score.{name}: .*memory of a CUDA device.*view.keys\(0\).host\(\).*"
                             rf"device_test.py:\d+ in ")

    def test_memory_of_another_device(self):
        self.assertRegex(self.why("second_device"),
                         "scores: an array in the memory of CUDA device 1; expected CUDA device 0")

    def test_arrays_that_are_kept(self):
        for name in ("keeps_an_export", "keeps_an_array"):
            self.assertRegex(self.why(name), "keeps an array .* after its call")

    def test_writing_into_the_cache(self):
        for name in ("writes_keys", "writes_positions"):
            self.assertRegex(self.why(name), f"score.{name} writes into an array of a view")

    def test_arrays_after_their_call(self):
        self.assertRegex(self.why("raises"), "on purpose")
        arrays = [one for one in kept if isinstance(one, kvgauge.DeviceArray)]
        self.assertGreater(len(arrays), 1)
        for array in arrays:
            with self.assertRaisesRegex(RuntimeError, "used after its call"):
                array.host()
            with self.assertRaisesRegex(RuntimeError, "used after its call"):
                array.__dlpack__()

    def test_wishes_that_a_device_cannot_fulfil(self):
        array = next(one for one in kept if isinstance(one, kvgauge.DeviceArray))
        with self.assertRaisesRegex(BufferError, "CUDA device 0"):
            array.__dlpack__(dl_device=(2, 1))
        with self.assertRaisesRegex(BufferError, "clone"):
            array.__dlpack__(copy=True)

    def test_a_device_that_does_not_compute(self):
        found = samples_of(kvgauge.method("p", score="there"), kvgauge.method("b", score="knorm"))
        self.assertRegex(self.fault(found, "p"),
                         "scores: an array in the memory of CUDA device 0; expected host memory")


@kvgauge.score
def there(view):
    return computed(np.zeros(n, np.float32) for n in view.lengths)


if __name__ == "__main__":
    unittest.main()
