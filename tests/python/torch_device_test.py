# SPDX-License-Identifier: Apache-2.0
"""Stages of PyTorch and CuPy on a real device: those of the guide, and what only streams can show.

scripts/gpu_check runs it. Elsewhere it skips itself, with the reason.
"""

import os
import pathlib
import re
import sys
import tempfile
import unittest

from support import HOME, MODEL, Same, samples_of

import kvgauge
from kvgauge import _program

try:
    import torch
except ImportError:
    torch = None
try:
    import cupy
except ImportError:
    cupy = None

kept = []


def why_not():
    if torch is None:
        return "PyTorch is not installed"
    if not torch.cuda.is_available():
        return "PyTorch finds no CUDA device"
    said = _program.captured(["doctor"])
    if not re.search("^cuda:[0-9]+ +yes", said, re.M):
        return "the program finds no CUDA device: " + said
    return None


def setUpModule():
    reason = why_not()
    if reason is not None:
        raise unittest.SkipTest(reason)
    sys.path.insert(0, str(HOME / "examples" / "python"))
    import methods  # noqa: F401  registers the stages of the guide


def keys_of(view):
    return [torch.from_dlpack(view.keys(head)) for head in range(view.kv_heads)]


@kvgauge.score(any_time=True)
def torch_norms(view):
    keys = keys_of(view)
    assert all(each.is_cuda for each in keys)
    return [-each.norm(dim=1) for each in keys]


@kvgauge.score(any_time=True)
def torch_stream(view):
    """On a stream that nothing waits for, behind work that takes a while."""
    with torch.cuda.stream(torch.cuda.Stream()):
        busy = torch.ones(2048, 2048, device="cuda")
        for _ in range(20):
            busy = busy @ busy * 1e-4
        return [-each.norm(dim=1) + 0 * busy[0, 0].clamp(0, 1) for each in keys_of(view)]


@kvgauge.score(any_time=True)
def torch_on_host(view):
    return [-each.cpu().norm(dim=1) for each in keys_of(view)]


@kvgauge.score(any_time=True)
def cupy_norms(view):
    return [-cupy.linalg.norm(cupy.from_dlpack(view.keys(head)), axis=1)
            for head in range(view.kv_heads)]


@kvgauge.score(needs={"window": "window"})
def torch_snapkv(view, window: int = 16):
    rows = min(window, view.tokens)
    before = view.width - rows
    attention = torch.from_dlpack(view.window_attention(rows))[:, :, :before].mean(1)
    pooled = torch.nn.functional.avg_pool1d(attention, 5, 1, 2)
    by_head = pooled.reshape(view.kv_heads, -1, before).mean(1)
    return torch.nn.functional.pad(by_head, (0, rows), value=float(by_head.max()) + 1)


@kvgauge.reduce
def torch_best(view, scores, allotted):
    scores = torch.from_dlpack(scores)
    return [torch.sort(scores[head, :view.lengths[head]], descending=True,
                       stable=True).indices[:count] for head, count in enumerate(allotted)]


@kvgauge.read
class TorchEverything:
    @staticmethod
    def begin(view):
        return {"keys": [each.clone() for each in keys_of(view)]}

    @staticmethod
    def append(view, index, first):
        return {"keys": [each.clone() for each in keys_of(view)]}

    @staticmethod
    def select(view, index, queries):
        group = view.query_heads // view.kv_heads
        products = torch.from_dlpack(queries)[::group, None] * torch.stack(index["keys"])
        return torch.argsort(products.sum(2), dim=1)


@kvgauge.score
def numpy_alone(view):
    return [-abs(view.keys(head)).sum(1) for head in range(view.kv_heads)]


@kvgauge.score
def torch_keeps(view):
    kept.append(torch.from_dlpack(view.keys(0)))
    return [-each.norm(dim=1) for each in keys_of(view)]


@kvgauge.score
def torch_writes(view):
    keys = keys_of(view)
    keys[0][0].mul_(2)
    return [-each.norm(dim=1) for each in keys]


class Equal(Same):
    """What the built-in stage answers on the device."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        root = pathlib.Path(cls.directory.name)
        weights, text = root / "gate.safetensors", root / "text.txt"
        text.write_text("The secret number of the green box is 4821. Ruth sold the old lamp. " * 200)
        code = kvgauge.command(["calibrate", MODEL, "--method", "qfilters", "--text-file", text,
                                "--window", "256", "--limit", "4", "--out", weights])
        assert code == 0
        os.environ["GATE"] = str(weights)
        import gate  # noqa: F401  registers the stage of the guide
        window, protect = {"window": 16}, {"recent": 16}
        scorers = ["short_keys", "torch_norms", "torch_stream", "torch_on_host", "knorm"]
        scorers += ["cupy_norms"] if cupy is not None else []
        cls.found = samples_of(
            *(kvgauge.method(name, score=name) for name in scorers),
            kvgauge.method("torch_best", score="knorm", reduce="torch_best"),
            *(kvgauge.method(name, score={"id": name, **window}, protect=protect)
              for name in ("looked_at", "torch_snapkv")),
            kvgauge.method("snapkv", score={"id": "snapkv", "pool": "avg", **window},
                           protect=protect),
            kvgauge.method("gated", score="gated", protect=protect),
            kvgauge.method("qfilters", score={"id": "qfilters", "calibration": str(weights)},
                           protect=protect),
            {"method": kvgauge.method("TorchEverything", read="TorchEverything")},
            backend="cuda", samples=4)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def test_norms_of_keys(self):
        for name in ("short_keys", "torch_norms", "torch_stream", "torch_on_host", "torch_best"):
            self.same(self.found, name, "knorm")

    @unittest.skipIf(cupy is None, "CuPy is not installed")
    def test_cupy(self):
        self.same(self.found, "cupy_norms", "knorm")

    def test_the_window(self):
        for name in ("looked_at", "torch_snapkv"):
            self.same(self.found, name, "snapkv")

    def test_a_gate(self):
        self.same(self.found, "gated", "qfilters")

    def test_a_reader_that_reads_everything(self):
        self.same(self.found, "TorchEverything", "full")


class Faults(Same):
    def test_what_no_stage_may(self):
        found = samples_of(*(kvgauge.method(name, score=name) for name in
                             ("numpy_alone", "torch_keeps", "torch_writes", "knorm")),
                           backend="cuda", samples=1)
        for name, reason in (("numpy_alone", r"CUDA device|DeviceArray"),
                             ("torch_keeps", "keeps an array .* after its call"),
                             ("torch_writes", "writes into an array of a view")):
            self.assertRegex(self.fault(found, name, beside="knorm"), reason)
        kept.clear()


if __name__ == "__main__":
    unittest.main()
