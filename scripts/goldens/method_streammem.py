# SPDX-License-Identifier: Apache-2.0
"""StreamMem by the paper's formulas (arXiv:2508.15717, equations 1 and 2), in NumPy: a prompt in chunks, each of
which is read against what the chunks before left; a template behind it looks at the pictures; the entries
that it looks at most stay, and of each frame that begins to lose entries their weighted mean.

What the paper leaves open is as the method's departures say.
"""

import math

import numpy as np

from method_oracles import softmax, top


class StreamMem:
    """Beside a Case of make_visual_methods, which has the frames' places."""

    asks = dict(method="streammem", public_code=False)
    oracle = "equations of arXiv:2508.15717 in a NumPy forward that reads the prompt in chunks, float64"
    budget, window, chunk, merge = 150, 5, None, "weighted"

    def compress(self):
        model, ids = self.model, self.prefill.ids
        empty = lambda *shape: [[np.zeros(shape) for _ in range(model.groups)] for _ in range(model.layers)]  # noqa: E731
        self.pos = [[at.astype(int) for at in row] for row in empty(0)]
        self.keys, self.values = empty(0, model.dim), empty(0, model.dim)
        n = len(ids)
        self.frames = [np.arange(at, at + self.area) for at in self.starts]
        self.end_of_pictures = self.frames[-1][-1] + 1
        parts = np.array_split(np.arange(n), 1 if self.chunk is None else -(-n // self.chunk))
        for part in parts:
            queries, logits = self.read(ids[part], part[0])
            self.tokens = part[-1] + 1
            if self.tokens == n or max(len(at) for row in self.pos for at in row) > self.budget:
                self.reduce([q[:, -self.window :] for q in queries] if self.chunk is None else self.asked(ids[-self.window :]))
        self.prefill.last = logits[-1]

    def read(self, ids, begin):
        """Rotated queries of each layer; keys and values are held from now on."""
        model, queries, places = self.model, [], begin + np.arange(len(ids))

        def attend(l, q, k, v):
            q, k = model.rotate(q, places), model.rotate(k, places)
            queries.append(q)
            out = []
            for g in range(model.groups):
                held = len(self.pos[l][g])
                self.pos[l][g] = np.append(self.pos[l][g], places)
                self.keys[l][g] = np.vstack([self.keys[l][g], k[g]])
                self.values[l][g] = np.vstack([self.values[l][g], v[g]])
                own = q[g * model.share : (g + 1) * model.share]
                scores = own @ self.keys[l][g].T / math.sqrt(model.dim)
                ahead = np.arange(held + len(ids))[None] > held + np.arange(len(ids))[:, None]
                out.append(softmax(np.where(ahead, -np.inf, scores)) @ self.values[l][g])
            return np.concatenate(out)

        logits = model.run(ids, begin, attend)
        return queries, logits

    def asked(self, template):
        """Queries of the template right behind what was read of the pictures; what it adds is forgotten."""
        held = [[list(x) for x in what] for what in (self.pos, self.keys, self.values)]
        seen = min(self.tokens, self.end_of_pictures)
        for l in range(self.model.layers):
            for g in range(self.model.groups):
                self.keep(l, g, np.flatnonzero(self.pos[l][g] < seen))
        queries, _ = self.read(template, seen)
        self.pos, self.keys, self.values = held
        return queries

    def reduce(self, queries):
        model = self.model
        for l in range(model.layers):
            for g in range(model.groups):
                if len(self.pos[l][g]) > self.budget:
                    self.reduce_head(l, g, queries[l][g * model.share : (g + 1) * model.share])

    def reduce_head(self, l, g, queries):
        at, keys, values = self.pos[l][g], self.keys[l][g], self.values[l][g]
        shown = np.flatnonzero(np.isin(at, np.concatenate(self.frames)))
        scores = np.full(len(at), np.inf)
        scores[shown] = softmax(queries @ keys[shown].T / math.sqrt(self.model.dim)).mean((0, 1))
        whole = []
        for frame in self.frames if self.merge != "none" else []:
            read = frame[frame < self.tokens]
            if len(read) and np.isin(read, at).all():
                whole.append(np.flatnonzero(np.isin(at, read)))
        room = self.budget - (len(at) - len(shown))
        assert room > len(whole)
        where = f"streammem {self.tokens} {l}.{g}"
        chosen = top(scores, self.budget - len(whole), self.margins, where)
        made = {}
        for entries in whole:
            gone = np.setdiff1d(entries, chosen)
            if len(gone) == 0:
                continue
            place = gone[top(scores[gone], 1, self.margins, where + " place")[0]]
            share = scores[entries] if self.merge == "weighted" else np.ones(len(entries))
            share = share / share.sum()
            made[place] = share @ keys[entries], share @ values[entries]
        keys, values = keys.copy(), values.copy()
        for place, (key, value) in made.items():
            keys[place], values[place] = key, value
        self.keys[l][g], self.values[l][g] = keys, values
        self.keep(l, g, np.sort(np.append(chosen, list(made))).astype(int))


class InChunks(StreamMem):
    """Chunks of 100 cut two of the six frames."""

    chunk, steps = 100, 6
    asks = StreamMem.asks | dict(chunk_tokens=100)


class InShortChunks(InChunks):
    chunk, budget = 34, 130
    asks = StreamMem.asks | dict(chunk_tokens=34)


class PlainMeans(InChunks):
    merge, set = "average", ['reduce.merge="average"']
