# SPDX-License-Identifier: Apache-2.0
"""Methods that give layers and heads different numbers of entries, after their authors' code and in
NumPy: RazorAttention (mindspore-ai/golden-stick, with the weight of the paper for the entry that
stands for what goes) and PrefixKV (THU-MIG/PrefixKV).
"""

import numpy as np

from common import save_file
from method_oracles import Sequence, softmax, top
from method_selection import HEADS, whole_numbers


class Razor(Sequence):
    """Heads that retrieve hold everything; the others first and last entries, and one that is the mean
    of what goes and counts as often."""

    def compress(self, importance, whole, streaming, sinks):
        n, model = self.tokens, self.model
        best = top(importance.reshape(-1), whole, self.margins, "razor heads")
        self.weights = [[np.ones(n) for _ in range(model.groups)] for _ in range(model.layers)]
        for l in range(model.layers):
            for h in range(model.groups):
                if l * model.groups + h in best:
                    continue
                gone = np.arange(sinks, n - (streaming - sinks - 1))
                for what in (self.keys, self.values):
                    what[l][h][sinks] = what[l][h][gone].mean(0)
                self.keep(l, h, np.r_[: sinks + 1, gone[-1] + 1 : n])
                self.weights[l][h] = np.ones(streaming)
                self.weights[l][h][sinks] = len(gone)

    def answer(self, l, queries):
        out, rows = [], []
        for h, own in enumerate(queries):
            weight = np.ones(len(self.keys[l][h]))
            weight[: len(self.weights[l][h])] = self.weights[l][h]
            rows.append(softmax(own @ self.keys[l][h].T / np.sqrt(self.model.dim) + np.log(weight)))
            out.append(rows[-1] @ self.values[l][h])
        return out, rows


# How much of a prompt each layer holds, made up.
SHARES = np.array([[0.5], [0.25], [0.35], [0.1]], np.float32)


class PrefixKv(Sequence):
    """Layers hold as many of their best entries as give all of them the same share of their scores, or
    what a side-file says; one set for all heads. In decode the entry at a fixed place goes."""

    def compress(self, budget, sinks, distance, shares=None):
        self.distance = distance
        n, layers = self.tokens, self.model.layers
        scores = [self.prefill.column_sums(l).mean(0) for l in range(layers)]
        if shares is None:
            inner = [s[sinks : n - 1] for s in scores]
            held = np.array([np.cumsum(np.sort(s)[::-1]) / s.sum() for s in inner])
            room = layers * (budget - sinks - 1)
            # The greatest common share for which the budget suffices.
            points = np.sort(held.reshape(-1))
            need = lambda p: (held < p).sum(1) + 1  # noqa: E731
            low, high = 0, len(points) - 1
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if need(points[middle]).sum() <= room else (low, middle)
            counts = need(points[low])
            self.margins.note(np.diff(points)[max(low - 3, 0) : low + 3].min(), "prefixkv")
            assert 0 <= room - counts.sum() <= layers
            wanted = counts + sinks + 1
            wanted = wanted * layers * budget / wanted.sum()
        else:
            wanted = shares[:, 0] / shares.sum() * layers * budget
        self.budgets = whole_numbers(wanted, layers * budget)
        for l in range(layers):
            inner = sinks + top(scores[l][sinks : n - 1], self.budgets[l] - sinks - 1, self.margins, f"prefixkv {l}")
            for h in range(self.model.groups):
                self.keep(l, h, np.r_[:sinks, inner, n - 1])

    def after_step(self, rows):
        for l, budget in enumerate(self.budgets):
            for h in range(self.model.groups):
                n = len(self.pos[l][h])
                if n > budget:
                    self.keep(l, h, np.delete(np.arange(n), budget + self.distance))


# How many of 300 entries heads hold at 30 percent, made up; parts of entries sum to whole ones in each layer.
HELD = np.array([[40.3, 59.7], [120, 100], [150.6, 89.4], [70, 90]])


def curve():
    """LU-KV's: for 1 to 99 percent, the share of its entries that each head gives up."""
    percents = np.broadcast_to((np.arange(1, 100) / 100)[:, None, None], (99, *HELD.shape)).copy()
    percents[69] = 1 - HELD / 300
    return percents.astype(np.float32)


def write_side_file(path, stage, heads, table=None):
    save_file({table or ("heads" if heads.shape[1] > 1 else "layers"): heads}, path, metadata={
        "kvgauge_calibration": "1", "stage": stage, "stage_version": "1", "params": "{\"share\":0.2}" if "prefixkv" in stage else "{}",
        "model": "6193d2452e6d71261c46f91490427c94b7e2c528a859ff2fc2f7c0cafef09dfa", "model_name": "model",
        "texts": "0", "tokens": "0"})


def write_side_files(folder):
    write_side_file(folder / "razor.safetensors", "allocate.razor", HEADS)
    write_side_file(folder / "prefixkv.safetensors", "allocate.prefixkv", SHARES)
    write_side_file(folder / "lukv.safetensors", "allocate.lukv", curve(), "curve")


# Name, what to ask the program for, the oracle in words, its class and settings.
CASES = [
    ("razor_attention",
     dict(method="razor_attention", budget="166",
          set=["allocate.calibration={inputs}/razor.safetensors", "allocate.streaming=32"]),
     "golden-stick's RazorAttention, restated in NumPy; the entry that stands for others counts as often, as in the paper",
     Razor, dict(importance=HEADS.astype(np.float64), whole=4, streaming=32, sinks=4)),
    ("prefixkv", dict(method="prefixkv", set=["allocate.calibration={inputs}/prefixkv.safetensors"]),
     "PrefixKV of THU-MIG/PrefixKV, restated in NumPy, with made-up shares of layers",
     PrefixKv, dict(budget=90, sinks=4, distance=-25, shares=SHARES.astype(np.float64))),
    ("prefixkv_prompt", dict(method="prefixkv"),
     "PrefixKV's search for a common share, restated in NumPy on the prompt itself",
     PrefixKv, dict(budget=90, sinks=4, distance=-25)),
]
