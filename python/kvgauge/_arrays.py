# SPDX-License-Identifier: Apache-2.0
"""The arrays that a view hands out."""

import numpy as np

from . import _kvgauge

_HOST = (1, 0)  # DLPack's processor


class Array(np.ndarray):
    """A NumPy array over memory of the program, without a copy.

    It is read-only and ends with the call that it was given to; keep `array.copy()`. Every library
    that takes DLPack takes it as it is: `torch.from_dlpack(view.keys(0))`. PyTorch does not know
    read-only memory, so a stage that writes through it is found out after its call and fails.

    >>> np.from_dlpack(np.arange(3.0).view(Array)).tolist()
    [0.0, 1.0, 2.0]
    """

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if stream is not None:
            raise BufferError("host memory has no streams; expected stream=None")
        if dl_device is not None and tuple(dl_device) != _HOST:
            raise BufferError(f"the array is in host memory, {_HOST}, not on {tuple(dl_device)}")
        versioned = max_version is not None and max_version[0] >= 1
        return _kvgauge.export_array(self, versioned, bool(copy))

    def __dlpack_device__(self):
        return _HOST
