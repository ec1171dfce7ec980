# SPDX-License-Identifier: Apache-2.0
"""kvgauge: measures methods that compress the KV cache of language models.

A method's stage is a function with a decorator:

    import kvgauge
    import numpy as np

    @kvgauge.score
    def short_keys(view):
        return [-np.linalg.norm(view.keys(head).host(), axis=1) for head in range(view.kv_heads)]

    store = kvgauge.run(model="models/ref-gqa", task="reference/needle", budget="10%",
                        method=kvgauge.method("short_keys", score="short_keys"))
    print(store.leaderboard())

`python -m kvgauge` is the program itself.
"""

import os as _os
import pathlib as _pathlib

_HERE = _pathlib.Path(__file__).resolve().parent
# Both are read when the library is loaded: where the shipped configs and models lie, and that
# threads which wait leave the processor to the interpreter.
# A wheel has them beside this file, a build tree above it.
for _home in (_HERE / "share", *_HERE.parents):
    if (_home / "configs" / "methods").is_dir():
        _os.environ.setdefault("KVGAUGE_HOME", str(_home))
        break
_os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from ._arrays import Array, DeviceArray  # noqa: E402
from ._kvgauge import View  # noqa: E402
from ._kvgauge import version as __version__  # noqa: E402
from ._program import BadInput, Failed, Method, check, command, method, run  # noqa: E402
from ._results import Store  # noqa: E402
from ._stages import (  # noqa: E402
    AllocationRequest,
    Range,
    StageTimeout,
    allocate,
    read,
    reduce,
    score,
    stages,
)

__all__ = [
    "AllocationRequest",
    "Array",
    "BadInput",
    "DeviceArray",
    "Failed",
    "Method",
    "Range",
    "StageTimeout",
    "Store",
    "View",
    "allocate",
    "check",
    "command",
    "method",
    "read",
    "reduce",
    "run",
    "score",
    "stages",
]
