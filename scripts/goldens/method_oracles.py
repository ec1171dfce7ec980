# SPDX-License-Identifier: Apache-2.0
"""KV-cache methods after their papers' formulas, in NumPy: a small Llama in float64 whose cache is a
list of arrays for each layer and KV head, and one class a method. Shares no code with the program,
nor with kvpress, which make_methods uses where it has the method.

A `Sequence` holds what the cache holds: pos[l][h] (original positions), keys[l][h] and values[l][h]
as attention sees them. `step` decodes one token. Every choice that a rounding error could turn is
reported to `Margins`, which remembers the narrowest, so that a fixture can be refused.
"""

import math

import numpy as np


class Margins:
    def __init__(self):
        self.clear()

    def clear(self):
        self.least = math.inf
        self.where = ""

    def note(self, gap, where):
        if 0 < gap < self.least:
            self.least, self.where = float(gap), where


def top(scores, count, margins, where):
    """Ascending indices of the `count` highest; among equals the earlier."""
    order = np.argsort(-scores, kind="stable")
    if 0 < count < len(scores):
        last, first = scores[order[count - 1]], scores[order[count]]
        if np.isfinite(last):
            # Equal numbers are equal in any arithmetic; near ones may swap.
            margins.note((last - first) / max(abs(last), abs(first)), where)
    return np.sort(order[:count])


def philox(seed, stream, counter):
    """Philox-4x32-10 of Salmon et al.: the four words of the block (counter, stream) under the key."""
    low = (1 << 32) - 1
    c = [counter & low, counter >> 32, stream & low, stream >> 32]
    k = [seed & low, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & low, (a >> 32) ^ c[3] ^ k[1], a & low]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
    return c


def sample_seed(seed, name):
    """A sample's own seed: the first block of the stream that its name hashes to (FNV-1a)."""
    stream = 0xCBF29CE484222325
    for byte in name.encode():
        stream = (stream ^ byte) * 0x100000001B3 % (1 << 64)
    first, second = philox(seed, stream, 0)[:2]
    return first | second << 32


def uniform(seed, stream, counters):
    """24 bits of a draw for each counter, in [0, 1)."""
    return np.array([philox(seed, stream, int(c))[0] >> 8 for c in counters]) / float(1 << 24)


def gumbel(seed, stream, counters):
    with np.errstate(divide="ignore"):
        return -np.log(-np.log(uniform(seed, stream, counters)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def cosine(a, b):
    a = a / np.linalg.norm(a, axis=-1, keepdims=True)
    b = b / np.linalg.norm(b, axis=-1, keepdims=True)
    return a @ b.T


class Llama:
    def __init__(self, config, weights):
        self.c, self.w = config, weights
        self.layers = config["num_hidden_layers"]
        self.heads, self.groups = config["num_attention_heads"], config["num_key_value_heads"]
        self.dim = config["head_dim"]
        self.share = self.heads // self.groups
        i = np.arange(0, self.dim, 2, dtype=np.float64)
        self.frequencies = config["rope_parameters"]["rope_theta"] ** (-i / self.dim)

    def rotate(self, x, positions, dtype=np.float64):
        """x [..., n, dim], each row by its position; angles are products of numbers of that type."""
        angle = np.asarray(positions, dtype=dtype)[:, None] * self.frequencies.astype(dtype)
        angle = angle.astype(np.float64)
        c, s, half = np.cos(angle), np.sin(angle), self.dim // 2
        low, high = x[..., :half], x[..., half:]
        return np.concatenate([low * c - high * s, high * c + low * s], -1)

    def norm(self, x, name):
        scale = np.sqrt((x * x).mean(-1, keepdims=True) + self.c["rms_norm_eps"])
        return x / scale * self.w[name]

    def split(self, x, l, what, count):
        y = x @ self.w[f"model.layers.{l}.self_attn.{what}_proj.weight"].T
        return y.reshape(len(x), count, -1).transpose(1, 0, 2)

    def mlp(self, h, l):
        at = f"model.layers.{l}."
        x = self.norm(h, at + "post_attention_layernorm.weight")
        gate = x @ self.w[at + "mlp.gate_proj.weight"].T
        up = x @ self.w[at + "mlp.up_proj.weight"].T
        return h + (gate / (1 + np.exp(-gate)) * up) @ self.w[at + "mlp.down_proj.weight"].T

    def logits(self, h):
        return self.norm(h, "model.norm.weight") @ self.w["model.embed_tokens.weight"].T

    def run(self, ids, begin, attend, entering=None):
        """`attend(l, q, k, v)`, each [heads, n, dim] and not rotated, gives [heads, n, dim]; `entering(l, h)` is
        shown the rows that enter a layer."""
        h = self.w["model.embed_tokens.weight"][ids]
        for l in range(self.layers):
            at = f"model.layers.{l}."
            if entering is not None:
                entering(l, h)
            x = self.norm(h, at + "input_layernorm.weight")
            q, k, v = (self.split(x, l, n, c)
                       for n, c in zip("qkv", (self.heads, self.groups, self.groups)))
            o = attend(l, q, k, v)
            o = o.transpose(1, 0, 2).reshape(len(ids), -1)
            h = h + o @ self.w[at + "self_attn.o_proj.weight"].T
            h = self.mlp(h, l)
        return self.logits(h)


class Prefill:
    """The prompt under full attention: raw keys, values, rotated queries, attention by layer."""

    def __init__(self, model, ids):
        self.model, self.ids, n = model, ids, len(ids)
        self.raw, self.keys, self.values, self.queries, self.attention = [], [], [], [], []
        positions = np.arange(n)
        seen = positions[None, :] <= positions[:, None]

        def attend(l, q, k, v):
            q, rotated = model.rotate(q, positions), model.rotate(k, positions)
            scores = q @ np.repeat(rotated, model.share, 0).transpose(0, 2, 1) / math.sqrt(model.dim)
            p = softmax(np.where(seen, scores, -np.inf))
            for to, what in zip((self.raw, self.keys, self.values, self.queries, self.attention),
                                (k, rotated, v, q, p)):
                to.append(what)
            return p @ np.repeat(v, model.share, 0)

        self.last = model.run(ids, 0, attend)[-1]

    def column_sums(self, l):
        return self.attention[l].sum(1)  # [heads, n]

    def group(self, rows):
        """[heads, n] to [kv heads, share, n]."""
        return rows.reshape(self.model.groups, self.model.share, -1)


class Sequence:
    """The full cache, and what all methods share."""

    def __init__(self, prefill, margins, **settings):
        self.model, self.prefill, self.margins = prefill.model, prefill, margins
        self.tokens, self.decoded = len(prefill.ids), []
        model = self.model
        each = lambda f: [[f(l, h) for h in range(model.groups)] for l in range(model.layers)]
        self.pos = each(lambda l, h: np.arange(self.tokens))
        self.keys = each(lambda l, h: prefill.keys[l][h].copy())
        self.values = each(lambda l, h: prefill.values[l][h].copy())
        self.compress(**settings)

    def compress(self):
        pass

    def keep(self, l, h, index):
        self.pos[l][h] = self.pos[l][h][index]
        self.keys[l][h] = self.keys[l][h][index]
        self.values[l][h] = self.values[l][h][index]

    # Where a method departs from plain decoding.
    def append(self, l, h, raw, v):
        key = self.model.rotate(raw, [self.tokens])
        self.pos[l][h] = np.append(self.pos[l][h], self.tokens)
        self.keys[l][h] = np.vstack([self.keys[l][h], key])
        self.values[l][h] = np.vstack([self.values[l][h], v])

    def query(self, l, h, raw):
        return self.model.rotate(raw, [self.tokens])

    def reads(self, l, h, q):
        return np.ones((len(q), len(self.keys[l][h])), dtype=bool)

    def answer(self, l, queries):
        """Outputs [share, dim] and attention of each KV head, for its rotated queries."""
        out, rows = [], []
        for h, own in enumerate(queries):
            scores = own @ self.keys[l][h].T / math.sqrt(self.model.dim)
            rows.append(softmax(np.where(self.reads(l, h, own), scores, -np.inf)))
            out.append(rows[-1] @ self.values[l][h])
        return out, rows

    def after_step(self, rows):
        pass

    def entering(self, l, h):
        pass

    def step(self, token):
        model, rows = self.model, []

        def attend(l, q, k, v):
            queries = []
            for h in range(model.groups):
                self.append(l, h, k[h], v[h])
                own = q[h * model.share : (h + 1) * model.share, 0]
                queries.append(np.vstack([self.query(l, h, row[None]) for row in own]))
            out, of_layer = self.answer(l, queries)
            rows.append(of_layer)
            return np.concatenate(out)[:, None, :]

        logits = model.run(np.array([token]), self.tokens, attend, self.entering)[0]
        self.tokens += 1
        self.after_step(rows)
        return logits

    def decode(self, steps):
        logits = self.prefill.last
        for _ in range(steps):
            best = np.sort(logits)[-2:]
            self.margins.note((best[1] - best[0]) / (logits.max() - logits.min()), "greedy token")
            self.decoded.append(int(logits.argmax()))
            logits = self.step(self.decoded[-1])


def protect(scores, sinks, recent):
    scores = scores.copy()
    scores[:sinks] = np.inf
    scores[len(scores) - recent :] = np.inf
    return scores


class H2o(Sequence):
    """Attention received so far, summed over the query heads of a KV head; half is recent. With
    `coming`, the token that comes next is one of the recent ones already."""

    def compress(self, budget, every_step=True, coming=0):
        self.budget, self.every_step, self.coming = budget - coming, every_step, coming
        self.scores = []
        for l in range(self.model.layers):
            self.scores.append(list(self.prefill.group(self.prefill.column_sums(l)).sum(1)))
            for h in range(self.model.groups):
                self.evict(l, h)

    def evict(self, l, h):
        if len(self.pos[l][h]) <= self.budget:
            return
        recent = int(0.5 * (self.budget + self.coming)) - self.coming
        scores = protect(self.scores[l][h], 0, recent)
        index = top(scores, self.budget, self.margins, f"h2o {l}.{h}")
        self.keep(l, h, index)
        self.scores[l][h] = self.scores[l][h][index]

    def after_step(self, rows):
        if not self.every_step:
            return
        for l, of_layer in enumerate(rows):
            for h, p in enumerate(of_layer):
                self.scores[l][h] = np.append(self.scores[l][h], 0.0) + p.sum(0)
                self.evict(l, h)


class Vatp(H2o):
    """H2O with each row's attention times the absolute sums of the values it falls on."""

    def compress(self, budget, sinks):
        self.budget, self.sinks = budget, sinks
        self.scores = []
        for l in range(self.model.layers):
            sums = self.prefill.group(self.prefill.column_sums(l)).sum(1)
            self.scores.append([s * np.abs(v).sum(1) for s, v in zip(sums, self.values[l])])
            for h in range(self.model.groups):
                self.evict(l, h)

    def evict(self, l, h):
        if len(self.pos[l][h]) <= self.budget:
            return
        scores = protect(self.scores[l][h], self.sinks, int(0.5 * self.budget))
        index = top(scores, self.budget, self.margins, f"vatp {l}.{h}")
        self.keep(l, h, index)
        self.scores[l][h] = self.scores[l][h][index]

    def after_step(self, rows):
        for l, of_layer in enumerate(rows):
            for h, p in enumerate(of_layer):
                row = p.sum(0) * np.abs(self.values[l][h]).sum(1)
                self.scores[l][h] = np.append(self.scores[l][h], 0.0) + row
                self.evict(l, h)


class Caote(Sequence):
    """How far the mean of the window's outputs moves without an entry, by taking it away."""

    def compress(self, budget, window):
        n = self.tokens
        for l in range(self.model.layers):
            weights = self.prefill.attention[l][:, -window:].mean(1)
            moves = np.zeros((self.model.heads, n))
            for q, a in enumerate(weights):
                v = self.values[l][q // self.model.share]
                for j in range(n):
                    others = a.copy()
                    others[j] = 0
                    moves[q, j] = np.linalg.norm(a @ v - others @ v / others.sum())
            for h, row in enumerate(self.prefill.group(moves).mean(1)):
                scores = protect(row, 0, window)
                self.keep(l, h, top(scores, budget, self.margins, f"caote {l}.{h}"))


class DynamicKv(Sequence):
    """Layers by how many of the best entries of all layers and heads they hold."""

    def compress(self, budget, window, kernel):
        n, layers, groups = self.tokens, self.model.layers, self.model.groups
        base = budget - window
        scores = []
        for l in range(layers):
            rows = self.prefill.attention[l][:, -window:, : n - window].mean(1)
            scores.append([pool_max(row, kernel) for row in self.prefill.group(rows).mean(1)])
        best = top(np.array(scores).reshape(-1), layers * groups * base, self.margins, "dynamickv")
        wanted = np.bincount(best // (groups * (n - window)), minlength=layers) / groups
        counts = np.floor(wanted).astype(int)
        # Largest remainders to the first, so that the sum is the budget.
        for l in np.argsort(-(wanted - counts), kind="stable")[: layers * base - counts.sum()]:
            counts[l] += 1
        for l in range(layers):
            for h in range(groups):
                own = top(scores[l][h], counts[l], self.margins, f"dynamickv {l}.{h}")
                self.keep(l, h, np.r_[own, n - window : n])


class Tova(Sequence):
    """The newest row, averaged over all heads; nothing is protected."""

    def compress(self, budget):
        self.budget = budget
        self.evict([[self.prefill.attention[l][:, -1]] for l in range(self.model.layers)])

    def evict(self, rows):
        for l, of_layer in enumerate(rows):
            scores = np.concatenate(of_layer).mean(0)
            if len(scores) <= self.budget:
                continue
            for h in range(self.model.groups):
                self.keep(l, h, top(scores, self.budget, self.margins, f"tova {l}"))

    def after_step(self, rows):
        self.evict(rows)


class Streaming(Sequence):
    """Sinks and a window. Keys turn by their place in the cache, queries by theirs."""

    def compress(self, budget, sinks):
        self.budget, self.sinks = budget, sinks
        self.raw = [[k.copy() for k in of_layer] for of_layer in self.prefill.raw]
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                self.evict(l, h)

    def evict(self, l, h):
        n = len(self.pos[l][h])
        if n > self.budget:
            index = np.r_[: self.sinks, n - self.budget + self.sinks : n]
            self.keep(l, h, index)
            self.raw[l][h] = self.raw[l][h][index]
        self.keys[l][h] = self.model.rotate(self.raw[l][h], np.arange(len(self.raw[l][h])))

    def append(self, l, h, raw, v):
        super().append(l, h, raw, v)
        self.raw[l][h] = np.vstack([self.raw[l][h], raw])
        self.keys[l][h] = self.model.rotate(self.raw[l][h], np.arange(len(self.raw[l][h])))

    def query(self, l, h, raw):
        return self.model.rotate(raw, [len(self.raw[l][h]) - 1])

    def after_step(self, rows):
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                self.evict(l, h)


class LmInfinite(Streaming):
    """Sinks and a window at their own positions, but none further than `limit` from the newest."""

    def compress(self, budget, sinks, limit):
        self.limit = limit
        super().compress(budget, sinks)

    def evict(self, l, h):
        super().evict(l, h)
        self.turn(l, h, self.tokens - 1)

    def turn(self, l, h, newest):
        positions = np.maximum(self.pos[l][h], newest - self.limit)
        self.keys[l][h] = self.model.rotate(self.raw[l][h], positions)

    def append(self, l, h, raw, v):
        super().append(l, h, raw, v)
        self.turn(l, h, self.tokens)

    def query(self, l, h, raw):
        return self.model.rotate(raw, [self.tokens])


def pool_max(x, kernel):
    half = kernel // 2
    padded = np.pad(x, (half, half), constant_values=-np.inf)
    return np.array([padded[i : i + kernel].max() for i in range(len(x))])


def pool_average(x, kernel):
    half = kernel // 2
    padded = np.pad(x, (half, half))
    return np.array([padded[i : i + kernel].mean() for i in range(len(x))])


class AdaBlend(Sequence):
    """Ada-KV as its authors share a layer's budget: counts of the layer's best entries, blended
    with an equal share and rounded head by head."""

    def compress(self, budget, window, kernel, alpha):
        n, groups = self.tokens, self.model.groups
        base = budget - window
        for l in range(self.model.layers):
            rows = self.prefill.attention[l][:, -window:, : n - window].mean(1)
            grouped = self.prefill.group(rows).mean(1)
            scores = np.stack([pool_max(row, kernel) for row in grouped])
            best = top(scores.reshape(-1), groups * base, self.margins, f"ada {l}")
            counts = np.bincount(best // (n - window), minlength=groups)
            for h in range(groups):
                share = counts[h] * (1 - alpha) + math.floor(base * alpha)
                own = top(scores[h], int(np.rint(share)), self.margins, f"ada {l}.{h}")
                self.keep(l, h, np.r_[own, n - window : n])


class Critical(Sequence):
    """CriticalKV: a share of a head's entries by attention, the others by attention times the mean
    over query heads of |W v|, the sum of absolute numbers. With `shared`, heads have as many entries
    as the layer's best are theirs."""

    def compress(self, budget, window, kernel, first=0.5, epsilon=1e-4, average=False, shared=False):
        n, model = self.tokens, self.model
        for l in range(model.layers):
            rows = self.prefill.attention[l][:, -window:, : n - window].mean(1)
            pool = pool_average if average else pool_max
            scores = [pool(row, kernel) for row in self.prefill.group(rows).mean(1)]
            scores = np.array([np.r_[row, np.full(window, np.inf)] for row in scores])
            counts = [budget] * model.groups
            if shared:
                best = top(scores.reshape(-1), model.groups * budget, self.margins, f"critical {l}")
                counts = np.bincount(best // n, minlength=model.groups)
            weights = model.w[f"model.layers.{l}.self_attn.o_proj.weight"]
            for h, count in enumerate(counts):
                where = f"critical {l}.{h}"
                size = np.zeros(n)
                for q in range(h * model.share, (h + 1) * model.share):
                    own = weights[:, q * model.dim : (q + 1) * model.dim]
                    size += np.abs(self.values[l][h] @ own.T).sum(1) / model.share
                sure = top(scores[h], max(1, int(count * first)), self.margins, where)
                second = (scores[h] + epsilon) * size
                second[sure] = np.inf
                self.keep(l, h, top(second, count, self.margins, where))


class PyramidSteps(Sequence):
    """PyramidKV with the whole-number steps between layers that its authors take."""

    def compress(self, budget, window, kernel, beta):
        n, layers = self.tokens, self.model.layers
        base = budget - window
        least = base // beta
        most = 2 * base - least
        if most >= n - window:
            most = n - window
            least = 2 * base - most
        step = (most - least) // (layers - 1)
        for l in range(layers):
            rows = self.prefill.attention[l][:, -window:, : n - window].mean(1)
            for h, row in enumerate(self.prefill.group(rows).mean(1)):
                own = top(pool_max(row, kernel), most - l * step, self.margins, f"pyramid {l}.{h}")
                self.keep(l, h, np.r_[own, n - window : n])


class Cam(Sequence):
    """A value that goes is added over m, with its merge probability, to the m that follow; without a seed,
    times that probability."""

    def compress(self, budget, sinks, merge, seed=None):
        self.budget, self.sinks, self.merge = budget, sinks, merge
        self.own = None if seed is None else sample_seed(seed, "prompt")
        self.evict([[g for g in self.prefill.group(self.prefill.attention[l][:, -1])]
                    for l in range(self.model.layers)])

    def evict(self, rows):
        for l, of_layer in enumerate(rows):
            for h, p in enumerate(of_layer):
                n = len(self.pos[l][h])
                if n <= self.budget:
                    continue
                index = np.r_[: self.sinks, n - self.budget + self.sinks : n]
                attention, values = p.mean(0), self.values[l][h]
                added = values.copy()
                for e in np.setdiff1d(np.arange(n), index):
                    following = index[index > e][: self.merge]
                    probability = min(attention[e] / attention[following].mean(), 1.0)
                    if self.own is not None:
                        stream = 0x63616D << 32 | (l * self.model.groups + h)
                        draw = uniform(self.own, stream, [self.pos[l][h][e]])[0]
                        self.margins.note(abs(draw - probability), f"cam {l}.{h} draw")
                        probability = float(draw < probability)
                    added[following] += probability * values[e] / self.merge
                self.values[l][h] = added
                self.keep(l, h, index)

    def after_step(self, rows):
        self.evict(rows)


class D2o(H2o):
    """Budgets by how evenly attention is spread; what goes is merged into its nearest key."""

    def compress(self, budget, sinks, recent, weight, reference_shares=False, by_layer=False):
        self.sinks, self.recent, self.weight, self.by_layer = sinks, recent, weight, by_layer
        n, layers = self.tokens, self.model.layers
        spread = []
        for l in range(layers):
            variance = self.prefill.column_sums(l).var(1)
            scaled = (variance - variance.min()) / (variance.max() - variance.min())
            spread.append(scaled.mean())
        share = softmax(-np.array(spread))
        wanted = layers * budget * share
        if reference_shares:
            self.budgets = [int(min(1.0, w / n) * n) for w in wanted]
        else:
            # Largest remainders to the first, so that the sum is the budget.
            self.budgets = np.floor(wanted).astype(int)
            rest = wanted - self.budgets
            order = np.argsort(-rest, kind="stable")
            for l in order[: layers * budget - self.budgets.sum()]:
                self.budgets[l] += 1
        self.threshold = [None] * layers
        self.scores = []
        for l in range(layers):
            self.scores.append(list(self.prefill.group(self.prefill.column_sums(l)).sum(1)))
            self.merge_layer(l)

    def merge_layer(self, l):
        found = []
        for h in range(self.model.groups):
            n, count = len(self.pos[l][h]), self.budgets[l]
            if n <= count:
                continue
            scores = protect(self.scores[l][h], self.sinks, self.recent)
            index = top(scores, count, self.margins, f"d2o {l}.{h}")
            gone = np.setdiff1d(np.arange(n), index)
            likeness = cosine(self.keys[l][h][gone], self.keys[l][h][index])
            ordered = np.sort(likeness, 1)
            self.margins.note((ordered[:, -1] - ordered[:, -2]).min(), f"d2o nearest {l}.{h}")
            found.append((h, index, gone, index[likeness.argmax(1)], likeness.max(1)))
        if not found:
            return
        mean = np.concatenate([u for *_, u in found]).mean()
        old = self.threshold[l]
        self.threshold[l] = mean if old is None else 0.5 * old + 0.5 * mean
        # Over the heads: of the first that goes in each, of the second, and so on.
        shared = np.mean([u for *_, u in found], 0) if self.by_layer else None
        for h, index, gone, target, u in found:
            held = u if shared is None else shared
            # One entry that goes alone lies on its own mean: that is no choice.
            off = np.abs(held - self.threshold[l])
            if (off > 1e-12).any():
                self.margins.note(off[off > 1e-12].min(), f"d2o threshold {l}.{h}")
            for what in (self.keys, self.values):
                rows = what[l][h].copy()
                for j in np.unique(target):
                    merged = [(e, w) for e, t, w, at in zip(gone, target, u, held)
                              if t == j and at >= self.threshold[l] - 1e-12]
                    if not merged:
                        continue
                    if self.weight == "exp":
                        total = math.e + sum(math.exp(w) for _, w in merged)
                        rows[j] = math.e / total * what[l][h][j]
                        rows[j] += sum(math.exp(w) / total * what[l][h][e] for e, w in merged)
                    else:
                        rows[j] = what[l][h][j] + sum(w * what[l][h][e] for e, w in merged)
                        rows[j] /= 1 + len(merged)
                what[l][h] = rows
            self.keep(l, h, index)
            self.scores[l][h] = self.scores[l][h][index]

    def after_step(self, rows):
        for l, of_layer in enumerate(rows):
            for h, p in enumerate(of_layer):
                self.scores[l][h] = np.append(self.scores[l][h], 0.0) + p.sum(0)
            self.merge_layer(l)


class MiniCache(Sequence):
    """Layer pairs share directions; the prompt's keys that differ most stay apart, by count, and so do
    such values. Entries lie by which of their halves stay apart: both, the key, the value, none."""

    def share(self, lower, upper, h, what, index, weight):
        a, b = what[lower][h][index], what[upper][h][index]
        angle = np.arccos(np.clip(np.diag(cosine(a, b)), -1, 1))[:, None]
        size_a, size_b = (np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
        e = (np.sin((1 - weight) * angle) * a / size_a + np.sin(weight * angle) * b / size_b)
        e /= np.linalg.norm(e, axis=1, keepdims=True)
        return e * size_a, e * size_b

    def after_step(self, rows):
        if not self.later:
            return
        for upper in range(self.start, self.model.layers, 2):
            for h in range(self.model.groups):
                for what in (self.keys, self.values):
                    newest = self.share(upper - 1, upper, h, what, slice(-1, None), self.weight)
                    what[upper - 1][h][-1:], what[upper][h][-1:] = newest

    def compress(self, start, weight, retain, later=True):
        self.start, self.weight, self.later = start, weight, later
        n = self.tokens
        for upper in range(start, self.model.layers, 2):
            lower = upper - 1
            for h in range(self.model.groups):
                apart = np.zeros((2, n), bool)
                for side, what in enumerate((self.keys, self.values)):
                    a, b = what[lower][h], what[upper][h]
                    angle = np.arccos(np.clip(np.diag(cosine(a, b)), -1, 1))
                    apart[side, top(angle, int(retain * n + 0.5), self.margins, "minicache")] = True
                order = np.argsort(-(2 * apart[0] + apart[1]), kind="stable")
                for side, what in enumerate((self.keys, self.values)):
                    shared = np.flatnonzero(~apart[side])
                    low, high = what[lower][h].copy(), what[upper][h].copy()
                    low[shared], high[shared] = self.share(lower, upper, h, what, shared, weight)
                    what[lower][h], what[upper][h] = low[order], high[order]
                for l in (lower, upper):
                    self.pos[l][h] = order


def rkv_scores(keys, queries, kernel, mix, threshold, margins, where):
    """Attention of the window, the highest logit of a KV head's query heads, less how like an entry's
    key is to the others, of each other's likes but the last. Queries: [query heads, window, dim]."""
    n, window = len(keys), queries.shape[1]
    logits = (queries @ keys[: n - window].T / math.sqrt(keys.shape[1])).max(0)
    attention = pool_max(softmax(logits).mean(0), kernel)
    like = cosine(keys, keys)
    np.fill_diagonal(like, 0)
    last = np.where(like > threshold, np.arange(n), 0).max(1)
    # Whatever stands before the last one decides nothing.
    open_ = np.arange(n)[None, :] >= last[:, None]
    margins.note(np.abs(like - threshold)[open_].min(), where + " alike")
    like[np.arange(n), last] = 0
    redundancy = softmax(like.mean(0))[: n - window]
    return np.r_[mix * attention - (1 - mix) * redundancy, np.full(window, np.inf)]


class Rkv(Sequence):
    def compress(self, budget, window, kernel, mix, threshold):
        model = self.model
        for l in range(model.layers):
            for h in range(model.groups):
                where = f"rkv {l}.{h}"
                queries = self.prefill.queries[l][h * model.share : (h + 1) * model.share, -window:]
                scores = rkv_scores(self.keys[l][h], queries, kernel, mix, threshold, self.margins, where)
                self.keep(l, h, top(scores, budget, self.margins, where))


class Think(Sequence):
    """Keys but the last are 0 where the mean of their squares times that of the last queries, over the
    query heads of a KV head, is least."""

    def compress(self, pruned, window, recent):
        model = self.model
        for l in range(model.layers):
            for h in range(model.groups):
                queries = self.prefill.queries[l][h * model.share : (h + 1) * model.share, -window:]
                scores = (queries**2).mean((0, 1)) * (self.keys[l][h] ** 2).mean(0)
                stay = top(scores, model.dim - int(model.dim * pruned), self.margins, f"think {l}.{h}")
                gone = np.setdiff1d(np.arange(model.dim), stay)
                self.keys[l][h][: self.tokens - recent, gone] = 0
