# SPDX-License-Identifier: Apache-2.0
"""DiffKV (arXiv:2412.03131) by the rules of zyqCSL/DiffKV, 6cf5d20, restated in NumPy: csrc/cache_kernels.cu and
csrc/quantization/kv_cache_quant, which run on CUDA alone. Numbers are f32 where the kernels have f32.
"""

import numpy as np

import method_classes as classes
import method_codecs as codecs

F = np.float32
WINDOW = 64  # NUM_TOKENS_SCORE and kv_buffer_size


def steps_of(x, bits):
    """Numbers of entries in steps of their codes, and what is stored for an entry: scale and zero."""
    x = np.asarray(x, F)
    low, high = x.min(1, keepdims=True), x.max(1, keepdims=True)
    scale = ((high - low) / F(2**bits - 1)).astype(F)
    return (x - low) * (F(1) / scale), scale, low


def as_read(x, bits):
    """Codes are found with scale and zero in f32, to the nearest, of two the even one; read with both in f16."""
    steps, scale, low = steps_of(x, bits)
    codes = np.clip(np.rint(steps), 0, 2**bits - 1).astype(F)
    return codes * codecs.half(scale) + codecs.half(low)


def unsure(x, bits, off):
    """Numbers whose code may turn where x is off by these shares of its range, [rows]."""
    steps = steps_of(x, bits)[0].astype(np.float64)
    return np.abs(np.abs(steps - np.floor(steps)) - 0.5) < off[:, None] * (2**bits - 1)


class DiffKv(classes.Classed):
    """Of the mean attention of an entry, by the query head of its group that pays most. All entries below a
    limit fall after each step, and rise again; the kernels let one of a head fall."""

    def compress(self, least, first, bits):
        self.limits = least, first
        self.start(bits=bits, wait=1)
        n, model = self.tokens, self.model
        self.sums, self.rows, self.were_coded = {}, {}, {}
        for l in range(model.layers):
            paid = self.prefill.group(self.prefill.attention[l][:, -WINDOW:].sum(1)).max(1)
            for h in range(model.groups):
                self.sums[l, h] = dict(enumerate(paid[h].tolist()))
                self.rows[l, h] = {p: min(n - p, WINDOW) for p in range(n)}
                self.settle(l, h)

    def settle(self, l, h):
        """Gives up what is below the lower limit, and lets fall what is below the upper one."""
        def below(alpha):
            found = []
            for p in self.pos[l][h].tolist():
                mean = self.sums[l, h][p] / self.rows[l, h][p]
                old = p < self.tokens - WINDOW
                if old:
                    self.margins.note(abs(mean * self.tokens / alpha - 1), f"limit {l}.{h} of {self.tokens}")
                found.append(old and mean < alpha / self.tokens)
            return np.array(found)

        self.keep(l, h, np.flatnonzero(~below(self.limits[0])))
        self.move(l, h, below(self.limits[1]).astype(int))

    def coded(self, l, h, side, bits, rows, positions, by_channel):
        if l == self.model.layers - 1:
            # Of rounding in f32, as torch has it; what is decoded has seen codes of other layers, of which some may
            # have turned. What falls was read from codes: the same numbers in any arithmetic that rounds as f32 does.
            off = np.where(positions < len(self.prefill.ids), 1.2e-5, 5e-5)
            before = self.were_coded.setdefault((h, side), set())
            off[[p in before for p in positions.tolist()]] = 0
            before.update(positions.tolist())
            for i, j in np.argwhere(unsure(rows, bits, off)).tolist():
                self.unsure.setdefault((h, side, int(positions[i])), set()).add(j)
        return as_read(rows, bits)

    def after_step(self, rows):
        for l, of_layer in enumerate(rows):
            for h, p in enumerate(of_layer):
                for position, paid in zip(self.pos[l][h].tolist(), p.max(0).tolist()):
                    self.sums[l, h][position] = self.sums[l, h].get(position, 0.0) + paid
                    self.rows[l, h][position] = self.rows[l, h].get(position, 0) + 1
                self.settle(l, h)


ORACLE = "zyqCSL/DiffKV, cache_kernels.cu and kv_cache_quant.h, restated in NumPy"
BITS = [(8, 4), (4, 2)]
# As many entries stay below each limit as above it.
SET = ["reduce.least=0.5", "store.first=1"]
CASES = [
    ("diffkv", dict(method="diffkv", steps=0, set=SET) | classes.ROUGH, ORACLE, DiffKv,
     dict(least=0.5, first=1, bits=BITS)),
    ("diffkv_steps", dict(method="diffkv", set=SET) | classes.ROUGH,
     ORACLE + "; after a step all entries below a limit fall", DiffKv, dict(least=0.5, first=1, bits=BITS)),
]
