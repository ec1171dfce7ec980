# SPDX-License-Identifier: Apache-2.0
"""LiveVLM by accounts of the paper's second version (arXiv:2505.15269v2: its two equations, the order in which
buckets are filled, its sizes), in NumPy: a prompt in chunks, each of which is read against what the chunks before
left; the newest rows of pictures look at what is held; buckets keep some of it; a question attends to pages of
keys without positions. The authors' code, sjtu-zhao-lab/LiveVLM, was not at hand.

What the accounts leave open is as the method's departures say.
"""

import copy
import math

import numpy as np

from method_oracles import softmax, top
from method_streammem import StreamMem

SIZES = ["read.page=8"]


class LiveVlm(StreamMem):
    """Beside a Case of make_visual_methods. The question is read with the prompt."""

    asks = dict(method="livevlm", public_code=False)
    oracle = "accounts of arXiv:2505.15269v2 in a NumPy forward that reads the prompt in chunks, float64"
    budget, steps, window, chunk, context, question = 230, 6, 100, None, None, 256
    newest, capacity, scatter, page, share = 2, 1, 0.5, 8, 0.4
    set = [*SIZES, "score.window=100"]

    def compress(self):
        self.prefill = copy.copy(self.prefill)
        model, ids = self.model, self.prefill.ids
        empty = lambda *shape: [[np.zeros(shape) for _ in range(model.groups)] for _ in range(model.layers)]  # noqa: E731
        self.pos = [[at.astype(int) for at in row] for row in empty(0)]
        self.keys, self.values = empty(0, model.dim), empty(0, model.dim)
        self.frames = [np.arange(at, at + self.area) for at in self.starts]
        self.readable, n = [None] * model.layers, self.context or len(ids)
        for part in np.array_split(np.arange(n), 1 if self.chunk is None else -(-n // self.chunk)):
            queries, logits = self.read(ids[part], part[0])
            self.tokens = part[-1] + 1
            if self.tokens == n or len(self.pos[0][0]) > self.budget:
                for l in range(model.layers):
                    self.reduce_layer(l, queries[l][:, -self.window :], part[-self.window :])
        if self.context:
            logits = self.ask(ids[n:], n)
        else:
            rows = part[-min(self.question, n - self.frames[-1][-1] - 1) :]
            for l in range(model.layers):
                self.choose_pages(l, model.rotate(queries[l][:, -len(rows) :], -rows))
        self.prefill.last = logits[-1]

    def newest_from(self):
        """Where the frames begin that stay whole."""
        return [frame[0] for frame in self.frames if frame[0] < self.tokens][-self.newest]

    def reduce_layer(self, l, queries, rows):
        model, at, budget = self.model, self.pos[l][0], self.budget
        assert all(np.array_equal(at, own) for own in self.pos[l])
        shown = np.concatenate(self.frames)
        looks = np.isin(rows, shown)
        looks = looks if looks.any() else ~looks
        weights = []
        for h in range(model.heads):
            scores = queries[h] @ self.keys[l][h // model.share].T / math.sqrt(model.dim)
            weights.append(softmax(np.where(at[None] > rows[:, None], -np.inf, scores))[looks])
        scores = np.mean(weights, (0, 1))
        always = ~np.isin(at, shown) | (at >= rows[0]) | (at >= self.newest_from())
        assert always.sum() < budget < len(at)
        others = np.flatnonzero(~always)
        chosen = self.fill_buckets(scores[others], budget - always.sum(), f"livevlm {self.tokens} {l}")
        for g in range(model.groups):
            self.keep(l, g, np.sort(np.r_[np.flatnonzero(always), others[chosen]]))

    def fill_buckets(self, scores, room, where):
        """First the best, wherever they stand; then, best first, whoever finds a place in a bucket."""
        length, buckets = len(scores), room // self.capacity
        assert buckets * self.capacity == room
        bucket = [-(-p * buckets // length) for p in range(1, length + 1)]
        best = room - int(round(self.scatter * room))
        chosen = list(top(scores, best, self.margins, where + " best"))
        first, held = set(chosen), {b: 0 for b in range(1, buckets + 1)}
        for p in chosen:
            held[bucket[p]] += 1
        later = []
        for p in np.argsort(-scores, kind="stable"):
            if len(chosen) + len(later) < room and p not in first and held[bucket[p]] < self.capacity:
                held[bucket[p]] += 1
                later.append(p)
        assert len(chosen) + len(later) == room
        assert sorted(chosen + later) != list(top(scores, room, type(self.margins)(), "")), "buckets change nothing"
        for p in set(range(length)) - first - set(later):
            rivals = [r for r in later if bucket[r] == bucket[p]] or ([] if held[bucket[p]] >= self.capacity else later)
            if rivals:
                least = min(scores[r] for r in rivals)
                self.margins.note((least - scores[p]) / least, where + " buckets")
        return np.sort(chosen + later)

    def choose_pages(self, l, queries):
        """queries: [heads, rows, dim], before rotation."""
        model, at = self.model, self.pos[l][0]
        first, end = (at < self.starts[0]).sum(), (at < self.newest_from()).sum()
        pages = [np.arange(p, min(p + self.page, end)) for p in range(first, end, self.page)]
        attention = []
        for h in range(model.heads):
            raw = model.rotate(self.keys[l][h // model.share], -at)
            means = np.stack([raw[page].mean(0) for page in pages])
            attention.append(softmax(queries[h] @ means.T / math.sqrt(model.dim)))
        picks = max(1, int(self.share * len(pages)))
        picked = top(np.mean(attention, (0, 1)), picks, self.margins, f"livevlm pages {l}")
        self.readable[l] = np.arange(end) < first
        for page in picked:
            self.readable[l][pages[page]] = True

    def ask(self, ids, begin):
        """The question's rows read what they choose."""
        model, places = self.model, begin + np.arange(len(ids))

        def attend(l, q, k, v):
            self.choose_pages(l, q)
            q, k, out = model.rotate(q, places), model.rotate(k, places), []
            for g in range(model.groups):
                self.pos[l][g] = np.append(self.pos[l][g], places)
                self.keys[l][g] = np.vstack([self.keys[l][g], k[g]])
                self.values[l][g] = np.vstack([self.values[l][g], v[g]])
                own = q[g * model.share : (g + 1) * model.share]
                scores = own @ self.keys[l][g].T / math.sqrt(model.dim)
                unseen = (self.pos[l][g][None] > places[:, None]) | ~self.reads(l, g, places)
                out.append(softmax(np.where(unseen, -np.inf, scores)) @ self.values[l][g])
            return np.concatenate(out)

        logits = model.run(ids, begin, attend)
        self.tokens = begin + len(ids)
        assert len({tuple(np.flatnonzero(read)) for read in self.readable}) > 1, "all layers choose the same"
        return logits

    def reads(self, l, h, q):
        mask = np.ones(len(self.pos[l][h]), bool)
        mask[: len(self.readable[l])] = self.readable[l]
        return np.repeat(mask[None], len(q), 0)


class Asked(LiveVlm):
    """The question comes behind the frames; buckets have two places."""

    asks = dict(method="livevlm", public_code=False, context_tokens=222)
    context, budget, window, capacity, scatter = 222, 120, 16, 2, 0.4
    set = [*SIZES, "score.window=16", "reduce.capacity=2", "reduce.scatter=0.4"]


class InChunks(LiveVlm):
    """Chunks of 60 cut frames; what was compressed is compressed again."""

    asks = dict(method="livevlm", public_code=False, chunk_tokens=60)
    chunk, budget, window, question = 60, 190, 16, 16
    set = [*SIZES, "score.window=16", "read.question=16"]
