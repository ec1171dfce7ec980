# SPDX-License-Identifier: Apache-2.0
"""The arrays that a view hands out."""

import math

import numpy as np

from . import _kvgauge

_HOST, _CUDA = (1, 0), 2  # DLPack's processor, and its kind of CUDA devices


def _versioned(max_version):
    return max_version is not None and max_version[0] >= 1


class Array(np.ndarray):
    """A NumPy array over memory of the program, without a copy.

    It is read-only and ends with the call that it was given to; keep `array.copy()`. Every library
    that takes DLPack takes it as it is: `torch.from_dlpack(view.keys(0))`. PyTorch does not know
    read-only memory, so a stage that writes through it is found out after its call and fails.

    >>> np.from_dlpack(np.arange(3.0).view(Array)).tolist()
    [0.0, 1.0, 2.0]
    """

    def host(self):
        """The array itself; of a DeviceArray a copy, so that a stage runs on every backend."""
        return self

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if stream is not None:
            raise BufferError("host memory has no streams; expected stream=None")
        if dl_device is not None and tuple(dl_device) != _HOST:
            raise BufferError(f"the array is in host memory, {_HOST}, not on {tuple(dl_device)}")
        return _kvgauge.export_array(self, _versioned(max_version), bool(copy))

    def __dlpack_device__(self):
        return _HOST


class DeviceArray:
    """An array over memory of the program on a CUDA device, without a copy.

    A view hands it out on a run with `--backend cuda`. It is read-only and ends with the call that
    it was given to. Libraries that compute on the device take it as it is:
    `torch.from_dlpack(view.keys(0))`, `cupy.from_dlpack(view.keys(0))`. NumPy does not; `host()`
    copies the array to it.
    """

    __slots__ = ("_owner", "_device", "shape", "dtype")

    def __init__(self, owner, shape, dtype, device):
        self._owner, self.shape, self.dtype = owner, shape, dtype
        self._device = (_CUDA, device)

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        return math.prod(self.shape)

    @property
    def nbytes(self):
        return self.size * self.dtype.itemsize

    def host(self):
        """A copy in host memory, read-only as it is on every backend. It may be kept."""
        return _kvgauge.copy_device_array(self._owner).view(Array)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        # Its numbers are there on every stream: the program has waited for them.
        if dl_device is not None and tuple(dl_device) == _HOST and copy is not False:
            return self.host().__dlpack__(max_version=max_version)
        if dl_device is not None and tuple(dl_device) != self._device:
            raise BufferError(f"the array is on CUDA device {self._device[1]}, {self._device}, not "
                              f"on {tuple(dl_device)}")
        if copy:
            raise BufferError("copies on the device are made by the library that takes the array, "
                              "such as tensor.clone()")
        return _kvgauge.export_device_array(self._owner, _versioned(max_version))

    def __dlpack_device__(self):
        return self._device

    def __repr__(self):
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype})"

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    # What NumPy would do with it.
    def __array__(self, *args, **kwargs):
        raise TypeError(_NOT_ON_HOST)

    def __getitem__(self, index):
        raise TypeError(_NOT_ON_HOST)

    def __getattr__(self, name):
        raise AttributeError(f"no {name!r}: {_NOT_ON_HOST}")


_NOT_ON_HOST = (
    "the array is in the memory of a CUDA device, which NumPy does not see; array.host() copies "
    "it, as in view.keys(0).host(), and torch.from_dlpack and cupy.from_dlpack take it as it is"
)
