# SPDX-License-Identifier: Apache-2.0
"""kvpress's wrappers around scorers: twins in NumPy that know by how much a choice was won, and the
cases that hold the twin and the press against each other.
"""

import math

import numpy as np

from common import save_file
from method_oracles import Cam, Sequence, cosine, pool_average, top


def snapkv_scores(prefill, l, window, kernel):
    """[KV heads, n]; the window has the highest score of all heads."""
    rows = prefill.attention[l][:, -window:, :-window].mean(1)
    scores = np.stack([pool_average(row, kernel) for row in prefill.group(rows).mean(1)])
    return np.pad(scores, ((0, 0), (0, window)), constant_values=scores.max())


def keydiff_scores(keys):
    anchor = (keys / np.linalg.norm(keys, axis=1, keepdims=True)).mean(0)
    return -cosine(keys, anchor[None])[:, 0]


class CamBy(Cam):
    """CaM with another score: what goes is what scores least."""

    def compress(self, budget, merge, score):
        self.score = score
        super().compress(budget=budget, sinks=0, merge=merge)

    def scores_of(self, l, h, rows):
        if self.score == "knorm":
            return -np.linalg.norm(self.keys[l][h], axis=1)
        return np.concatenate(rows[l]).mean(0)

    def evict(self, rows):
        for l, of_layer in enumerate(rows):
            for h, p in enumerate(of_layer):
                n = len(self.pos[l][h])
                if n <= self.budget:
                    continue
                index = top(self.scores_of(l, h, rows), self.budget, self.margins, f"cam {l}.{h}")
                attention, values = p.mean(0), self.values[l][h]
                added = values.copy()
                for e in np.setdiff1d(np.arange(n), index):
                    following = index[index > e][: self.merge]
                    if len(following):
                        probability = min(attention[e] / attention[following].mean(), 1.0)
                        added[following] += probability * values[e] / self.merge
                self.values[l][h] = added
                self.keep(l, h, index)


class GatedChunks(Sequence):
    """Whole runs by their mean; important runs whose scores are uneven keep their best few alone."""

    def compress(self, budget, window, kernel, size, few):
        n = self.tokens
        for l in range(self.model.layers):
            total = snapkv_scores(self.prefill, l, window, kernel).sum(0)
            runs = [np.arange(i, min(i + size, n)) for i in range(0, n, size)]
            means = np.array([total[r].mean() for r in runs])
            spread = []
            for r in runs:
                p = total[r] - min(total[r].min(), 0)
                p = p / (p.sum() + 1e-8)
                spread.append(np.clip(-(p * np.log(p + 1e-8)).sum() / math.log(len(r)), 0, 1) if len(r) > 1 else 0.0)
            spread = np.array(spread)
            half = (len(runs) - 1) // 2
            uneven = spread < np.sort(spread)[half]
            strong = means >= np.sort(means)[half]
            order = np.sort(spread)
            self.margins.note(order[half] - order[half - 1], f"gated chunks {l}")
            kept, left = np.zeros(n, bool), budget
            by_mean = np.argsort(-means, kind="stable")
            for a, b in zip(by_mean, by_mean[1:]):
                self.margins.note((means[a] - means[b]) / means[a], f"gated chunks {l}")
            for c in by_mean:
                if left <= 0:
                    break
                count = min(len(runs[c]), left)
                if strong[c] and uneven[c]:
                    count = min(count, few)
                kept[runs[c][top(total[runs[c]], count, self.margins, f"gated chunks {l}")]] = True
                left -= count
            if left > 0:
                rest = np.flatnonzero(~kept)
                kept[rest[top(total[rest], left, self.margins, f"gated chunks {l}")]] = True
            for h in range(self.model.groups):
                self.keep(l, h, np.flatnonzero(kept))


class ValueMerge(Sequence):
    """What goes is added to the value of the nearest key that stays, by likeness and length."""

    def compress(self, budget, window, kernel, least, share):
        n = self.tokens
        for l in range(self.model.layers):
            scores = snapkv_scores(self.prefill, l, window, kernel)
            for h in range(self.model.groups):
                where = f"value merge {l}.{h}"
                own = scores[h].copy()
                own[n - window :] = np.inf
                index = top(own, budget, self.margins, where)
                gone = np.setdiff1d(np.arange(n), index)
                like = cosine(self.keys[l][h][gone], self.keys[l][h][index])
                ordered = np.sort(like, 1)
                self.margins.note((ordered[:, -1] - ordered[:, -2]).min(), where)
                target, u = index[like.argmax(1)], like.max(1)
                self.margins.note(np.abs(u - least).min(), where)
                passing = u >= least
                if share < 1:
                    cut = np.quantile(np.where(passing, u, -np.inf), 1 - share)
                    self.margins.note(np.abs(u - cut).min(), where)
                    passing &= u >= cut
                size = np.linalg.norm(self.values[l][h], axis=1)
                weight = np.maximum(u, 0) * passing * size[gone] / (size[gone] + size[target] + 1e-6)
                merged, total = self.values[l][h].copy(), np.ones(n)
                np.add.at(merged, target, weight[:, None] * self.values[l][h][gone])
                np.add.at(total, target, weight)
                self.values[l][h] = merged / total[:, None]
                self.keep(l, h, index)


class BlockKeyDiff(Sequence):
    """The best of what stayed so far and the next block, block by block."""

    def compress(self, budget, block):
        n = self.tokens
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                kept = np.arange(budget)
                for begin in range(budget, n, block):
                    now = np.r_[kept, begin : min(begin + block, n)]
                    kept = now[top(keydiff_scores(self.keys[l][h][now]), budget, self.margins, f"block {l}.{h}")]
                self.keep(l, h, kept)


class ChunkKeyDiff(Sequence):
    """Every chunk by itself."""

    def compress(self, budget, size):
        n = self.tokens
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                kept = []
                for begin in range(0, n, size):
                    rows = self.keys[l][h][begin : begin + size]
                    kept.append(begin + top(keydiff_scores(rows), len(rows) * budget // n, self.margins, f"chunk {l}.{h}"))
                self.keep(l, h, np.concatenate(kept))


def statistics(prefill_shape):
    """Mean and covariance of queries, made up: [layers, heads, dim] and [layers, heads, dim, dim]."""
    layers, heads, dim = prefill_shape
    rng = np.random.default_rng(26)
    mean = rng.standard_normal((layers, heads, dim)).astype(np.float32)
    root = rng.standard_normal((layers, heads, dim, dim)) / math.sqrt(dim)
    return mean, (root @ root.transpose(0, 1, 3, 2)).astype(np.float32)


def write_statistics(path, shape):
    mean, covariance = statistics(shape)
    tables = {f"mean.{l}": m for l, m in enumerate(mean)} | {f"covariance.{l}": c for l, c in enumerate(covariance)}
    save_file(tables, path, metadata={
        "kvgauge_calibration": "1", "stage": "score.expected_attention", "stage_version": "2",
        "params": "{\"sinks\":4}",
        "model": "6193d2452e6d71261c46f91490427c94b7e2c528a859ff2fc2f7c0cafef09dfa", "model_name": "model",
        "texts": "0", "tokens": "0"})


def cases(inputs, margins, budget, length, steps, kvpress_case, same_as):
    """As kvpress_cases of make_methods, whose functions these are."""
    import kvpress
    import torch

    model, ids, prefill = inputs.model, torch.tensor(inputs.ids), inputs.prefill
    ratio = 1 - budget / length
    run = lambda press, steps=0, **more: kvpress_case(model, ids, press, "sdpa", margins, steps, **more)  # noqa: E731
    snapkv = lambda: kvpress.SnapKVPress(ratio, window_size=32, kernel_size=5)  # noqa: E731
    yield ("entropy_gated_chunkkv", dict(method="entropy_gated_chunkkv", set=["protect.recent=0"], steps=steps),
           "kvpress EntropyGatedChunkKVPress(SnapKVPress(window_size=32, kernel_size=5))",
           lambda: same_as(GatedChunks(prefill, margins, budget=budget, window=32, kernel=5, size=10, few=4),
                           run(kvpress.EntropyGatedChunkKVPress(snapkv()), steps, forced=length), steps))
    for name, least, share in (("value_merging", 0.0, 1.0), ("value_merging_part", 0.3, 0.75)):
        yield (name,
               dict(method="value_merging", set=[f"reduce.least={least}", f"reduce.share={share}"], steps=steps),
               f"kvpress MergingPress(SnapKVPress(window_size=32, kernel_size=5), {least}, {share})",
               lambda: same_as(ValueMerge(prefill, margins, budget=budget, window=32, kernel=5, least=least, share=share),
                               run(kvpress.MergingPress(snapkv(), least, share), steps, forced=length), steps))
    yield ("block_keydiff", dict(method="block_keydiff", set=["reduce.block=64"], steps=steps),
           "kvpress BlockPress(KeyDiffPress(), block_size=64)",
           lambda: same_as(BlockKeyDiff(prefill, margins, budget=budget, block=64),
                           run(kvpress.BlockPress(kvpress.KeyDiffPress(ratio), 64), steps, forced=length), steps))
    yield ("chunk_keydiff", dict(method="chunk_keydiff", set=["score.span=100", "reduce.size=100"], steps=steps),
           "kvpress ChunkPress(KeyDiffPress(), chunk_length=100)",
           lambda: same_as(ChunkKeyDiff(prefill, margins, budget=budget, size=100),
                           run(kvpress.ChunkPress(kvpress.KeyDiffPress(ratio), 100), steps, forced=length), steps))
    kept = (150, 120, 60, 30)
    yield ("per_layer", dict(method="per_layer", set=["allocate.shares=150,120,60,30"], steps=steps),
           "kvpress PerLayerCompressionPress(ExpectedAttentionPress(), [0.5, 0.6, 0.8, 0.9])",
           lambda: run(kvpress.PerLayerCompressionPress(kvpress.ExpectedAttentionPress(ratio),
                                                        [1 - (k + 0.5) / length for k in kept]), steps))
    yield ("capkv", dict(method="capkv", steps=steps), "kvpress CapPress",
           lambda: run(kvpress.CapPress(ratio), steps))
    mean, covariance = statistics((prefill.model.layers, prefill.model.heads, prefill.model.dim))
    stats = kvpress.ExpectedAttentionStatsPress(ratio)
    stats.mu, stats.cov = torch.from_numpy(mean), torch.from_numpy(covariance)
    yield ("expected_attention_stats",
           dict(method="expected_attention", set=["score.calibration={inputs}/expected_attention.safetensors"],
                steps=steps),
           "kvpress ExpectedAttentionStatsPress with made-up statistics", lambda: run(stats, steps))


# Name, what to ask the program for, the oracle in words, its class and settings.
FORMULAS = "the paper's formulas in NumPy, float64; merge probabilities themselves in place of draws"
CASES = [
    (f"cam_{score}", dict(method=f"cam_{score}", set=["reduce.expectation=true"]), FORMULAS, CamBy,
     dict(budget=90, merge=32, score=score))
    for score in ("knorm", "tova")
]
