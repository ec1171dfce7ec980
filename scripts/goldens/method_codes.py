# SPDX-License-Identifier: Apache-2.0
"""Methods without public code, after their papers and in NumPy: bases that learn by Oja's rule (OjaKV,
arXiv:2509.21623), codes for entries that hold a share of a layer's attention (ZipVL, arXiv:2410.08584),
turned codes beside text and pivots (AKVQ-VL, arXiv:2501.15021); forms of methods that have other cases.
"""

import math

import numpy as np

import method_classes as classes
import method_codecs as codecs
from method_oracles import Llama, Prefill, Sequence, sample_seed, softmax, top, uniform


def oja_step(basis, rows, step):
    """Q of basis + step * mean(x x^T) basis, with a non-negative diagonal of R."""
    moved = basis + step / len(rows) * (rows.T @ (rows @ basis))
    q, r = np.linalg.qr(moved)
    return q * np.where(np.diag(r) < 0, -1.0, 1.0)


class Oja(Sequence):
    """First and newest entries whole; those between as coordinates, read in the basis of the moment."""

    def compress(self, rank, sinks, recent, every, salient, window, first_step, step, turned=False):
        self.sinks, self.recent, self.every, self.size, self.turned = sinks, recent, every, step, turned
        model, n = self.model, self.tokens
        self.parts = {}  # (side, l, h): first rows, coordinates, newest rows, basis
        for l in range(model.layers):
            for h in range(model.groups):
                share = slice(h * model.share, (h + 1) * model.share)
                paid = self.prefill.attention[l][share, -window:].sum((0, 1))
                best = sinks + top(paid[sinks : n - recent], salient, self.margins, f"salient {l}.{h}")
                for side, held in enumerate((self.keys, self.values)):
                    rows = held[l][h]
                    _, s, vt = np.linalg.svd(rows, full_matrices=False)
                    # The directions themselves, not what they span alone: coordinates stay when bases move.
                    self.margins.note((s[:rank] - s[1 : rank + 1]).min() / s[0], f"directions {l}.{h}")
                    largest = np.sort(np.abs(vt[:rank]), 1)[:, -2:]
                    self.margins.note(((largest[:, 1] - largest[:, 0]) / largest[:, 1]).min(), f"signs {l}.{h}")
                    basis = oja_step(vt[:rank].T, rows[best], first_step)
                    self.parts[side, l, h] = [rows[:sinks], rows[sinks : n - recent] @ basis, rows[n - recent :], basis]
                    self.join(side, l, h)

    def join(self, side, l, h):
        first, coordinates, newest, basis = self.parts[side, l, h]
        held = (self.keys, self.values)[side]
        held[l][h] = np.vstack([first, coordinates @ basis.T, newest])

    def append(self, l, h, raw, v):
        super().append(l, h, raw, v)
        for side, held in enumerate((self.keys, self.values)):
            part = self.parts[side, l, h]
            part[2] = np.vstack([part[2], held[l][h][-1:]])

    def after_step(self, rows):
        for (side, l, h), part in self.parts.items():
            if len(part[2]) < self.recent + self.every:
                continue
            before = part[3]
            part[3] = oja_step(before, part[2][self.recent :], self.size)
            if self.turned:
                part[1] = part[1] @ before.T @ part[3]
            part[1] = np.vstack([part[1], part[2][: self.every] @ part[3]])
            part[2] = part[2][self.every :]
            self.join(side, l, h)


class ShareOfLayer(classes.Tiers):
    """As many entries have the better codes as hold a share of what all heads of the layer pay, by sums over
    rows; which ones is told by their mean over the rows that could see them. All heads have the same."""

    def classify(self, l, h):
        if h < self.model.groups - 1:
            return
        n, classed = len(self.pos[l][0]), self.classed(l, 0)
        mean = np.mean(self.scores[l], 0)[classed:]
        seen = self.tokens - self.pos[l][0][classed:]
        where = f"share of layer {l}"
        count = self.covering(mean * seen, self.first, where)
        target = np.full(n, -1)
        target[classed:] = 1
        target[classed + top(mean, count, self.margins, where)] = 0
        for g in range(self.model.groups):
            of = dict(zip(self.pos[l][g].tolist(), self.scores[l][g]))
            self.move(l, g, target)
            self.scores[l][g] = np.array([of[p] for p in self.pos[l][g].tolist()])


class ImportantPrefill(Prefill):
    """Rows of a layer's important tokens attend to each other; attention gives the others nothing."""

    def __init__(self, model, ids, choose):
        self.model, self.ids, n = model, ids, len(ids)
        self.raw, self.keys, self.values, self.queries, self.attention, self.among = [], [], [], [], [], []
        positions = np.arange(n)

        def attend(l, q, k, v):
            q, rotated = model.rotate(q, positions), model.rotate(k, positions)
            keys, values = np.repeat(rotated, model.share, 0), np.repeat(v, model.share, 0)
            some = choose(l, q, keys)
            scores = q[:, some] @ keys[:, some].transpose(0, 2, 1) / math.sqrt(model.dim)
            p = np.zeros((len(q), n, n))
            p[:, some[:, None], some] = softmax(np.where(some <= some[:, None], scores, -np.inf))
            for to, what in zip((self.raw, self.keys, self.values, self.queries, self.attention, self.among),
                                (k, rotated, v, q, p, some)):
                to.append(what)
            return p @ values

        self.last = model.run(ids, 0, attend)[-1]


class Important(ShareOfLayer):
    """ZipVL's prefill before its cache: the prompt's important tokens are those of its attention."""

    def __init__(self, prefill, margins, probes, **settings):
        self.margins, self.probes, self.share = margins, probes, settings["first"]
        super().__init__(ImportantPrefill(prefill.model, prefill.ids, self.choose), margins, **settings)

    def choose(self, l, q, keys):
        n = q.shape[1]
        recent, drawn = self.probes
        numbers = uniform(sample_seed(0, "prompt"), 0x7A697076 << 16 | l, range(n - recent))
        rows = np.concatenate([top(numbers, drawn, self.margins, f"probes {l}"), np.arange(n - recent, n)])
        scores = q[:, rows] @ keys.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        paid = softmax(np.where(np.arange(n) <= rows[:, None], scores, -np.inf)).sum((0, 1))
        sums = np.cumsum(-np.sort(-paid))
        self.margins.note(np.abs(sums / sums[-1] - self.share).min(), f"important {l}")
        count = int((sums < self.share * sums[-1]).sum() + 1)
        mean = paid / (np.arange(n) <= rows[:, None]).sum(0)
        mean[-1] = np.inf  # the answer follows from this row
        return top(mean, count, self.margins, f"important {l}")

    def classify(self, l, h):
        if self.classed(l, h):
            return super().classify(l, h)
        target = np.ones(len(self.pos[l][h]), int)
        target[self.prefill.among[l]] = 0
        self.move(l, h, target)
        self.scores[l][h] = self.scores[l][h][self.pos[l][h]]


class TextAndPivots(classes.Classed):
    """The first layers: text in the first class, all of these prompts; later ones: the entries with most mean
    attention, all heads together. Coded rows are turned, and what is beyond `clip` of their extremes is cut."""

    def compress(self, text_layers, pivots, clips, recent, wait):
        self.text_layers, self.clips = text_layers, clips
        self.start([(4, 4), (2, 2)], wait=wait, recent=recent)
        n, model = self.tokens, self.model
        for l in range(model.layers):
            mean = self.prefill.column_sums(l).sum(0) / (n - np.arange(n))
            target = np.full(n, -1)
            target[: n - recent] = 0 if l < text_layers else 1
            if l >= text_layers:
                target[top(mean, pivots, self.margins, f"pivots {l}")] = 0
            for h in range(model.groups):
                self.move(l, h, target)

    def seal(self, l, h, c):
        """The first class of later layers has no codes."""
        if c > 0 or l < self.text_layers:
            super().seal(l, h, c)

    def coded(self, l, h, side, bits, rows, positions, by_channel):
        matrix = codecs.hadamard(self.model.dim).astype(np.float64)
        turned = rows @ matrix
        clip = self.clips[0 if bits == 4 else 1]
        ends = [e(turned, 1, keepdims=True) * clip for e in (np.min, np.max)]
        cut = np.clip(turned, *ends)
        before = {key: set(dims) for key, dims in self.unsure.items()}
        done = super().coded(l, h, side, bits, cut, positions, False)
        # An open code is felt in all numbers of its entry.
        for key, dims in self.unsure.items():
            if dims != before.get(key, set()):
                dims |= set(range(self.model.dim))
        return done.astype(np.float64) @ matrix.T

    def after_step(self, rows):
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                if self.due(l, h):
                    n, classed = len(self.pos[l][h]), self.classed(l, h)
                    target = np.full(n, -1)
                    target[classed : n - self.recent] = 0 if l < self.text_layers else 1
                    self.move(l, h, target)


def coded_cases(keys, values, prompt):
    """GEAR without outliers (GEAR-L, arXiv:2403.05527): nobody's correction of rank 4, and of 2 for later chunks,
    leaves less than this."""
    limits = {}
    for side, rows, code in (("k", keys, lambda x: codecs.by_channel(x, 2, 64)), ("v", values, lambda x: codecs.by_token(x, 2, 32))):
        # The prompt's whole chunks share a basis; later chunks have one each.
        whole, end = prompt // 64 * 64, len(rows) // 64 * 64
        parts = [rows[:whole]] + [rows[i : i + 64] for i in range(whole, end, 64)]
        limits[side] = math.sqrt(sum(codecs.best_error(x - code(x), 2 if i else 4) ** 2 for i, x in enumerate(parts)))
    yield ("gear_l", dict(method="gear_l", best_error=limits),
           "singular values of the error that is left, in NumPy: no correction of ranks 4 and 2 does better", {})


def weight_cases(config, weights, ids, margins, steps, sequence_case):
    """MHA2MLA's joint decomposition (arXiv:2502.14837): stacked projections at their best approximation."""

    def joint(ratio):
        low = dict(weights)
        for l in range(config["num_hidden_layers"]):
            names = [f"model.layers.{l}.self_attn.{what}_proj.weight" for what in "kv"]
            stack = np.vstack([low[name] for name in names])
            u, s, vt = np.linalg.svd(stack, full_matrices=False)
            rank = round(ratio * len(stack))
            halves = np.split((u[:, :rank] * s[:rank]) @ vt[:rank], [len(low[names[0]])])
            low.update(zip(names, halves))
        return Sequence(Prefill(Llama(config, low), ids), margins)

    yield ("joint_svd", dict(method="joint_svd", budget="none", steps=steps),
           "the changed weights in a NumPy forward, float64", lambda: sequence_case(joint(0.5), steps))


FORMULAS = "the paper's formulas in NumPy, float64"
LEARN = ["store.key_rank=0.5", "store.value_rank=0.5", "store.sinks=4", "store.recent=8", "store.every=3",
         "store.salient=48", "store.window=16", "store.step=0.2"]
SIZES = dict(rank=16, sinks=4, recent=8, every=3, salient=48, window=16, first_step=0.1, step=0.2)
CASES = [
    ("ojakv", dict(method="ojakv", budget="none", public_code=False, set=LEARN, tolerance=1e-3), FORMULAS, Oja, SIZES),
    ("ojakv_turned", dict(method="ojakv", budget="none", public_code=False, set=LEARN + ["store.older=turned"],
                          tolerance=1e-3), FORMULAS + "; coordinates follow their basis", Oja, SIZES | dict(turned=True)),
]
CLASSED = [
    # A share at which neighbouring sums are far enough apart.
    ("zipvl", dict(method="zipvl", set=classes.WAIT + ["store.first=0.8"], public_code=False) | classes.ROUGH,
     classes.FORMULAS + ", a scale of a channel for 64 entries; every row is a probe",
     ShareOfLayer, dict(first=0.8, bits=[(4, 4), (2, 2)], by_channel=True, mean=True, even=True)),
    ("zipvl_prefill",
     dict(method="zipvl_prefill", public_code=False,
          set=classes.WAIT + ["attend.threshold=0.8", "attend.recent=20", "attend.drawn=12", "store.first=0.8"]) | classes.ROUGH,
     classes.FORMULAS + ", a scale of a channel for 64 entries; probes drawn by Philox-4x32-10 restated in Python",
     Important, dict(probes=(20, 12), first=0.8, bits=[(4, 4), (2, 2)], by_channel=True, mean=True, even=True)),
    ("akvq_vl", dict(method="akvq_vl", set=["store.recent=8"], public_code=False) | classes.ROUGH,
     classes.FORMULAS + "; Sylvester's Hadamard matrix", TextAndPivots,
     dict(text_layers=2, pivots=15, clips=(1.0, 0.8), recent=8, wait=32)),
]
