# SPDX-License-Identifier: Apache-2.0
"""Rows that leave a prefill between two layers, in a NumPy forward (float64) that goes layer by layer.

Which rows go on is the papers' rule; FastKV and GemFilter are made by their authors' own functions
(`make_methods --checkouts DIR`, method_authors.py), which agree with the rule here.
"""

import math
import types

import numpy as np

from method_oracles import Sequence, pool_average, softmax, top


class Thinned(Sequence):
    """The cache of a prefill from which rows leave, and decoding from it."""

    def __init__(self, prefill, margins, **settings):
        self.model, self.margins = prefill.model, margins
        self.tokens, self.decoded = len(prefill.ids), []
        model = self.model
        self.pos = [[None] * model.groups for _ in range(model.layers)]
        self.keys, self.values = ([list(row) for row in self.pos] for _ in range(2))
        self.settings = types.SimpleNamespace(**settings)
        ids, places = np.asarray(prefill.ids), np.arange(self.tokens)
        last, kept = self.read(ids, places)
        if kept is not None:
            last, _ = self.read(ids, kept, again=True)
        self.prefill = types.SimpleNamespace(ids=ids, model=model, last=last)
        self.reduce()

    def read(self, ids, places, again=False):
        """The last row's logits; or the rows that are to be read by themselves."""
        model = self.model
        h = model.w["model.embed_tokens.weight"][ids[places]]
        for l in range(model.layers):
            at = f"model.layers.{l}."
            x = model.norm(h, at + "input_layernorm.weight")
            q, k, v = (model.split(x, l, n, c) for n, c in zip("qkv", (model.heads, model.groups, model.groups)))
            q, k = (model.rotate(rows, self.stand(places)) for rows in (q, k))
            scores = q @ np.repeat(k, model.share, 0).transpose(0, 2, 1) / math.sqrt(model.dim)
            attention = softmax(np.where(places[None, :] <= places[:, None], scores, -np.inf))
            o = (attention @ np.repeat(v, model.share, 0)).transpose(1, 0, 2).reshape(len(places), -1)
            h = model.mlp(h + o @ model.w[at + "self_attn.o_proj.weight"].T, l)
            for g in range(model.groups):
                self.pos[l][g], self.keys[l][g], self.values[l][g] = places, k[g], v[g]
            self.note(l, q, k, attention)
            if again or l + 1 == model.layers:
                continue
            self.hidden = h
            keep = self.choose(l + 1, q, k, attention)
            if keep is not None and self.reads_again:
                return None, places[keep]
            if keep is not None:
                h, places = self.passed(h, keep), places[keep]
        logits = model.logits(h)
        return logits[-1], None if again else self.at_the_end(ids, logits)

    reads_again = False

    def stand(self, places):
        """Where rows stand for rotation."""
        return places

    def at_the_end(self, ids, logits):
        """The rows that are to be read by themselves, when all layers are passed."""

    def passed(self, h, keep):
        return h[keep]

    def note(self, l, q, k, attention):
        pass

    def reduce(self):
        pass

    def best(self, scores, count, forced, where):
        """The last `forced` rows, and the best of those before."""
        before = len(scores) - forced
        keep = top(scores[:before], min(count, before), self.margins, where)
        return np.append(keep, np.arange(before, len(scores)))


class FastV(Thinned):
    """At each of some layers the rows that the last one pays most, of those before it."""

    def choose(self, layer, q, k, attention):
        shares = self.settings.shares.get(layer)
        if shares is None:
            return None
        count = int(shares * (self.tokens - 1) + 1e-9)
        return self.best(attention[:, -1].mean(0), count, 1, f"fastv {layer}")


class FastKv(Thinned):
    """One layer chooses by its window; each layer then keeps what a window of its own rows looks at."""

    def note(self, l, q, k, attention):
        w = self.settings.window
        rows = attention[:, -w:, :-w].sum(1)
        pooled = np.stack([pool_average(row, self.settings.kernel) for row in rows])
        by_group = pooled.reshape(self.model.groups, self.model.share, -1).sum(1)
        self.of_layer = by_group
        if not hasattr(self, "scores"):
            self.scores = {}
        self.scores[l] = by_group

    def choose(self, layer, q, k, attention):
        if layer != self.settings.layer:
            return None
        w = self.settings.window
        count = int(len(attention[0]) * self.settings.rate) - w
        return self.best(np.append(self.of_layer.sum(0), np.zeros(w)), count, w, f"fastkv {layer}")

    def reduce(self):
        w, budget = self.settings.window, self.settings.budget
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                if len(self.pos[l][h]) <= budget:
                    continue
                self.keep(l, h, self.best(np.append(self.scores[l][h], np.zeros(w)), budget - w, w, f"fastkv {l}.{h}"))


class PyramidInfer(Thinned):
    """Behind each layer but the first, a share of the rows before the recent ones that falls along a
    cosine; by what the recent rows give, later ones more."""

    def choose(self, layer, q, k, attention):
        s, below = self.settings, layer - 1
        recent = 1 + int(self.tokens * s.recent)
        before = len(attention[0]) - recent
        least = min(s.least, self.tokens - recent)
        share = (1 - s.decay) * (math.cos(math.pi * below / self.model.layers) + 1) / 2 + s.decay
        count = int(before * share)
        if below == 0 or below % s.every or before <= least or count <= least:
            return None
        rows = attention.mean(0)[-recent:, :before] * np.linspace(1, s.weight, recent)[:, None]
        scores = np.append(rows.mean(0), np.zeros(recent))
        scores[: s.sinks] = np.inf
        return self.best(scores, count, recent, f"pyramidinfer {layer}")


class GemFilter(Thinned):
    """An early layer picks rows by bare products; the model reads them by themselves."""

    reads_again = True

    def choose(self, layer, q, k, attention):
        if layer != self.settings.layer:
            return None
        n = len(q[0])
        products = (q[:, -1:] @ np.repeat(k, self.model.share, 0).transpose(0, 2, 1)).sum(0)[0]
        scores = pool_average(products, self.settings.kernel)
        return self.best(scores, int(n * self.settings.share) - 1, 1, "gemfilter")


class Aim(Thinned):
    """Rows that a walk along a layer's attention reaches least leave behind each layer of the upper half."""

    def choose(self, layer, q, k, attention):
        s, below = self.settings, layer - 1
        if below < s.first:
            return None
        share = max(0.0, 1 - (below - s.first + 1) * s.drop)
        scores = self.reached(attention)
        return self.best(np.append(scores[:-1], 0), int(share * (self.tokens - 1)), 1, f"aim {layer}")

    def reached(self, attention):
        with np.errstate(divide="ignore"):
            sharp = softmax(np.log(attention) / 0.1)
        walk = np.full((len(attention), 1, attention.shape[-1]), 1 / attention.shape[-1])
        for _ in range(5):
            walk = walk @ sharp
        return np.sqrt((walk**2).mean(0))[0]


RUN = "the paper's rule in a NumPy forward that goes layer by layer, float64"
CASES = [
    ("fastv", dict(method="fastv", budget="none", set=["thin.rows=all"]), RUN, FastV, dict(shares={2: 0.5})),
    ("fastv_few", dict(method="fastv", budget="none", set=["thin.rows=all", "thin.layer=1", "thin.drop=0.875"]), RUN,
     FastV, dict(shares={1: 0.125})),
    ("pyramidinfer", dict(method="pyramidinfer", budget="none", set=["thin.drop=0.3"]),
     RUN + "; mutonix/pyramidinfer 61ac641, modeling_llama_pyramidinfer.py", PyramidInfer,
     dict(recent=0.2, decay=0.7, weight=1.2, sinks=4, least=64, every=1)),
    ("pyramiddrop", dict(method="pyramiddrop", budget="none", set=["thin.rows=all"]),
     RUN + "; by the attention of the layer below", FastV, dict(shares={1: 0.5, 2: 0.25, 3: 0.125})),
    ("lazyllm", dict(method="lazyllm", budget="none", public_code=False),
     RUN + "; by the attention of the layer below, and rows that left stay away", FastV,
     dict(shares={1: 0.7, 2: 0.7**2, 3: 0.7**3})),
]
