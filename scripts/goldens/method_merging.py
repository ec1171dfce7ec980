# SPDX-License-Identifier: Apache-2.0
"""Methods that merge what goes, after their papers or their authors' code and in NumPy: LOOK-M's text
form (merge_kv of Zefan-Cai/KVCache-Factory, pivot; LOOK-M's weighted and averaged modes after the
paper), Elastic Cache (liuzuyan/ElasticCache 860d9f4d, with ranks where it has one argsort),
KVMerger and Chelsea, of which there is no public code.
"""

import numpy as np

import method_codecs as codecs
from method_oracles import MiniCache, Sequence, cosine, protect, softmax, top


def mean_into(rows, pairs, weights):
    """Rows of `pairs` (from, to) merged as weighted means; the row that stays weighs 1."""
    merged, total = rows.copy(), np.ones(len(rows))
    for (e, j), w in zip(pairs, weights):
        merged[j] += w * rows[e]
        total[j] += w
    return merged / total[:, None]


class LookM(Sequence):
    """Half of what stays is the last, half has most attention; what goes joins its nearest key."""

    def compress(self, budget, mode):
        n, model = self.tokens, self.model
        for l in range(model.layers):
            sums = self.prefill.group(self.prefill.column_sums(l)).sum(1)
            for h in range(model.groups):
                where = f"look-m {l}.{h}"
                index = top(protect(sums[h], 0, budget // 2), budget, self.margins, where)
                gone = np.setdiff1d(np.arange(n), index)
                like = cosine(self.keys[l][h][gone], self.keys[l][h][index])
                ordered = np.sort(like, 1)
                self.margins.note((ordered[:, -1] - ordered[:, -2]).min(), where + " nearest")
                target, u = index[like.argmax(1)], like.max(1)
                if mode != "pivot":
                    self.margins.note(np.abs(u - u.mean()).min(), where + " threshold")
                    gone, target, u = (x[u >= u.mean()] for x in (gone, target, u))
                for what in (self.keys, self.values):
                    rows = what[l][h].copy()
                    for j in np.unique(target):
                        own, mine = what[l][h][j], target == j
                        others = what[l][h][gone[mine]]
                        if mode == "pivot":
                            others = (others + own) / 2
                        elif mode == "weighted":
                            others = others * u[mine][:, None]
                        rows[j] = np.vstack([own, others]).mean(0)
                    what[l][h] = rows
                self.keep(l, h, index)


class ElasticCache(Sequence):
    """One set a layer, by attention over all rows and heads; what goes joins the entry that is nearest
    in position. In decode the entry at a fixed place goes."""

    def compress(self, budget, sinks, distance):
        self.budget, self.distance = budget, distance
        n, model = self.tokens, self.model
        for l in range(model.layers):
            scores = self.prefill.column_sums(l).mean(0)
            inner = sinks + top(scores[sinks : n - 1], budget - sinks - 1, self.margins, f"elastic {l}")
            index = np.r_[:sinks, inner, n - 1]
            gone = np.setdiff1d(np.arange(n), index)
            target = inner[np.abs(inner[None, :] - gone[:, None]).argmin(1)]
            for h in range(model.groups):
                for what in (self.keys, self.values):
                    what[l][h] = mean_into(what[l][h], zip(gone, target), np.ones(len(gone)))
                self.keep(l, h, index)

    def after_step(self, rows):
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                n = len(self.pos[l][h])
                if n > self.budget:
                    self.keep(l, h, np.delete(np.arange(n), self.budget + self.distance))


class KvMerger(Sequence):
    """Runs of neighbours whose keys are alike become one entry, as many as the budget asks for: the
    pairs that are most alike. The entry with most attention is the run's, and weighs others by a
    Gaussian of their distance from it."""

    def compress(self, budget, sinks, recent):
        n, model = self.tokens, self.model
        for l in range(model.layers):
            sums = self.prefill.group(self.prefill.column_sums(l)).sum(1)
            for h in range(model.groups):
                where, keys = f"kvmerger {l}.{h}", self.keys[l][h]
                pair = np.diag(cosine(keys[:-1], keys[1:])).copy()
                pair[:sinks] = -np.inf  # neither side of a pair may be protected
                pair[n - recent - 1 :] = -np.inf
                joined = np.zeros(n, bool)
                joined[top(pair, n - budget, self.margins, where)] = True
                kept, new_keys, new_values = [], [], []
                begin = 0
                for at in range(n):
                    if joined[at]:
                        continue
                    run = np.arange(begin, at + 1)
                    begin = at + 1
                    own = sums[h][run]
                    if len(run) > 1:
                        best = np.sort(own)[::-1]
                        self.margins.note((best[0] - best[1]) / best[0], where + " pivot")
                    pivot = run[own.argmax()]
                    apart = np.linalg.norm(keys[run] - keys[pivot], axis=1)
                    spread = apart.mean() / np.sqrt(2)
                    g = np.exp(-(apart**2) / (2 * spread**2)) if len(run) > 1 else np.ones(1)
                    g /= g.sum()
                    kept.append(pivot)
                    new_keys.append(g @ keys[run])
                    new_values.append(g @ self.values[l][h][run])
                self.pos[l][h] = np.array(kept)
                self.keys[l][h], self.values[l][h] = np.array(new_keys), np.array(new_values)
                assert len(kept) == budget


class Chelsea(Sequence):
    """In chunks, every second entry finds the most alike of the others; the most alike of all these
    pairs merge, by how many entries each stands for, until the budget is met. Attention counts an
    entry as often as it stands for others."""

    def compress(self, budget, sinks, recent, chunk):
        n, model = self.tokens, self.model
        self.counts = [[None] * model.groups for _ in range(model.layers)]
        for l in range(model.layers):
            for h in range(model.groups):
                where = f"chelsea {l}.{h}"
                at = np.arange(sinks, n - recent)
                keys, values = self.keys[l][h][at], self.values[l][h][at]
                count = np.ones(len(at))
                while sinks + len(at) + recent > budget:
                    m = len(at)
                    source, target, like = [], [], []
                    for begin in range(0, m, chunk):
                        a = np.arange(begin, min(begin + chunk, m), 2)
                        b = np.arange(begin + 1, min(begin + chunk, m), 2)
                        if len(b) == 0:
                            continue
                        sim = cosine(keys[a], keys[b])
                        if len(b) > 1:
                            ordered = np.sort(sim, 1)
                            self.margins.note((ordered[:, -1] - ordered[:, -2]).min(), where + " nearest")
                        source += list(a)
                        target += list(b[sim.argmax(1)])
                        like += list(sim.max(1))
                    source, target, like = np.array(source), np.array(target), np.array(like)
                    merge = top(like, min(len(like), sinks + m + recent - budget), self.margins, where)
                    for e in merge:
                        j, i = target[e], source[e]
                        both = count[i] + count[j]
                        for rows in (keys, values):
                            rows[j] = (count[j] * rows[j] + count[i] * rows[i]) / both
                        count[j] = both
                    stay = np.setdiff1d(np.arange(m), source[merge])
                    at, keys, values, count = at[stay], keys[stay], values[stay], count[stay]
                ends = np.r_[:sinks], np.r_[n - recent : n]
                self.pos[l][h] = np.r_[ends[0], at, ends[1]]
                for what, middle in ((self.keys, keys), (self.values, values)):
                    what[l][h] = np.vstack([what[l][h][ends[0]], middle, what[l][h][ends[1]]])
                self.counts[l][h] = np.r_[np.ones(sinks), count, np.ones(recent)]

    def answer(self, l, queries):
        out, rows = [], []
        for h, own in enumerate(queries):
            weight = np.ones(len(self.keys[l][h]))
            weight[: len(self.counts[l][h])] = self.counts[l][h]
            rows.append(softmax(own @ self.keys[l][h].T / np.sqrt(self.model.dim) + np.log(weight)))
            out.append(rows[-1] @ self.values[l][h])
        return out, rows


FORMULAS = "the paper's formulas in NumPy, float64"
ALONE = dict(public_code=False)
# Name, what to ask the program for, the oracle in words, its class and settings.
class CodedMiniCache(MiniCache):
    """Shared directions in codes, each by itself; those that float32 may turn are left open."""

    def share(self, lower, upper, h, what, index, weight):
        low, high = super().share(lower, upper, h, what, index, weight)
        size = [np.linalg.norm(x, axis=1, keepdims=True) for x in (low, high)]
        direction = low / size[0]
        done = codecs.by_token(direction.astype(np.float32), 4, direction.shape[1]).astype(np.float64)
        clear = codecs.clear_codes(direction, 4)
        if upper == self.model.layers - 1:
            self.margins.note(1 if (~clear).sum() * 100 <= self.tokens else 1e-9, "open codes")
        done[~clear] = np.nan
        return done * size[0], done * size[1]


CASES = [
    (f"lookm_{mode}", dict(method="lookm", set=[f"reduce.mode={mode}"]),
     "merge_kv of Zefan-Cai/KVCache-Factory, restated in NumPy" if mode == "pivot" else FORMULAS,
     LookM, dict(budget=90, mode=mode))
    for mode in ("pivot", "weighted", "averaged")
] + [
    ("minicache_4bit", dict(method="minicache_4bit", set=["store.from=0.75"], budget="none", steps=0, tolerance=2e-3),
     "the paper's formulas in NumPy, float64; codes of directions float32 with f16 scales",
     CodedMiniCache, dict(start=3, weight=0.6, retain=0.05)),
    ("elastic_cache", dict(method="elastic_cache"),
     "ElasticCache of liuzuyan/ElasticCache, restated in NumPy; entries by rank, as in the paper",
     ElasticCache, dict(budget=90, sinks=4, distance=-25)),
    ("kvmerger", dict(method="kvmerger", budget="150") | ALONE, FORMULAS, KvMerger, dict(budget=150, sinks=4, recent=32)),
    ("chelsea", dict(method="chelsea", set=["reduce.chunk=32"]) | ALONE, FORMULAS,
     Chelsea, dict(budget=90, sinks=4, recent=32, chunk=32)),
]  # fmt: skip
