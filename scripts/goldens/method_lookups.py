# SPDX-License-Identifier: Apache-2.0
"""Methods that look entries up by what stands for many of them, after their authors' code and in NumPy:
RocketKV (NVlabs/RocketKV 63637c8, attention/rocket.py) and Squeezed Attention
(SqueezeAILab/SqueezedAttention 4a50c64, clustering.py), ShadowKV (bytedance/ShadowKV, models/kv_cache.py),
Twilight over Quest (tsinghua-ideal/Twilight 843ebcc, twilight/pyimpl). Clusterings begin from evenly spaced keys.
"""

import math

import numpy as np

from method_bases import OwnDirections
from method_oracles import Sequence, pool_max, softmax, top
from method_reads import cluster, masked_answer, spaced
from method_selection import SnapKv


class RocketKv(Sequence):
    """What SnapKV leaves is read by bounds of pages, in the channels where a group's queries are largest."""

    def compress(self, budget, window, kernel, page, rank, tokens):
        if budget:
            SnapKv.compress(self, budget, window, kernel, pool_max)
        self.page, self.rank, self.most = page, rank, tokens

    def answer(self, l, queries):
        masks, page = [], self.page
        for h, own in enumerate(queries):
            keys, where = self.keys[l][h], f"rocketkv {l}.{h}"
            n = len(keys)
            sign = np.where(own.sum(0) > 0, 1.0, -1.0)
            signed = np.vstack([keys * sign, np.full((-n % page, keys.shape[1]), -np.inf)])
            bounds = signed.reshape(-1, page, keys.shape[1]).max(1)
            largest = top(np.abs(own).mean(0), self.rank, self.margins, where + " channels")
            few = (own * sign)[:, largest]
            guess = np.repeat(few @ bounds[:, largest].T, page, 1)[:, :n]
            held = np.abs(few).sum(1, keepdims=True) / np.abs(own).sum(1, keepdims=True)
            shares = softmax(guess / np.sqrt(keys.shape[1] * held)).mean(0)
            mask = np.zeros((len(own), n), dtype=bool)
            mask[:, top(shares, min(self.most, n), self.margins, where)] = True
            masks.append(mask)
        return masked_answer(self, l, queries, masks)


class Squeezed(Sequence):
    """Clusters of the context's keys whose share of attention for each of their entries is above a
    threshold, which the last rows of the prompt set for a layer."""

    def compress(self, clusters, local, read, rounds):
        model, context = self.model, self.tokens - local
        self.context, self.found, self.least = context, {}, []
        for l in range(model.layers):
            shares = []
            for h in range(model.groups):
                keys = self.keys[l][h][:context]
                unit = keys / np.linalg.norm(keys, axis=1, keepdims=True)
                count = max(1, int(clusters * context))
                member = cluster(unit, spaced(unit, count), rounds, self.margins, f"squeezed {l}.{h}")
                sizes = np.bincount(member, minlength=count)
                means = np.stack([keys[member == c].mean(0) if sizes[c] else np.zeros(keys.shape[1])
                                  for c in range(count)])
                self.found[l, h] = member, means, sizes
                for q in range(h * model.share, (h + 1) * model.share):
                    each = self.each(l, h, self.prefill.queries[l][q][-local:]).mean(0)
                    shares.append(each[member])
            self.least.append(np.quantile(np.concatenate(shares), 1 - read))

    def each(self, l, h, queries):
        """What one entry of each cluster is given, about: [rows, clusters]."""
        _, means, sizes = self.found[l, h]
        e = np.exp(queries @ means.T / math.sqrt(self.model.dim))
        return e / (e @ sizes)[:, None]

    def answer(self, l, queries):
        masks = []
        for h, own in enumerate(queries):
            given, least = self.each(l, h, own), self.least[l]
            member = self.found[l, h][0]
            self.margins.note((np.abs(given - least) / least)[:, np.unique(member)].min(), f"squeezed {l}.{h}")
            mask = np.ones((len(own), len(self.keys[l][h])), dtype=bool)
            mask[:, : self.context] = (given > least)[:, member]
            masks.append(mask)
        return masked_answer(self, l, queries, masks)


# Name, what to ask the program for, the oracle in words, its class and settings.
class ShadowKv(OwnDirections):
    """Keys in few directions, and of the prompt only chunks are read: those whose mean key gets most of a
    softmax over the means, those that hold the key least like their mean, and the last ones."""

    def compress(self, keys, tokens, chunk, outliers, local):
        super().compress(keys=keys)
        self.chunk, self.picks = chunk, tokens // chunk
        self.chunks = self.tokens // chunk - local
        self.sure, self.landmarks = {}, {}
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                cut = self.keys[l][h][: self.chunks * chunk].reshape(self.chunks, chunk, -1)
                means = cut.mean(1)
                likeness = np.einsum("cid,cd->ci", cut, means)
                likeness /= np.linalg.norm(cut, axis=2) * np.linalg.norm(means, axis=1)[:, None]
                self.sure[l, h] = top(-likeness.min(1), outliers, self.margins, f"outlier chunks {l}.{h}")
                self.landmarks[l, h] = means

    def answer(self, l, queries):
        masks = []
        for h, own in enumerate(queries):
            rest = np.setdiff1d(np.arange(self.chunks), self.sure[l, h])
            products = own @ self.landmarks[l, h][rest].T / math.sqrt(self.model.dim)
            picked = rest[top(softmax(products).max(0), self.picks, self.margins, f"chunks {l}.{h}")]
            mask = np.zeros(len(self.keys[l][h]), dtype=bool)
            mask[self.chunks * self.chunk :] = True
            for c in np.concatenate([picked, self.sure[l, h]]):
                mask[c * self.chunk : (c + 1) * self.chunk] = True
            masks.append(np.tile(mask, (len(own), 1)))
        return masked_answer(self, l, queries, masks)


class PrunedQuest(Sequence):
    """Twilight: each query head takes pages by their bounds, as Quest, and of their entries the fewest whose
    softmax among them, by keys in a few bits each, sums to a share."""

    def compress(self, page, tokens, share, bits):
        self.page, self.most, self.share, self.levels = page, -(-tokens // page), share, 2**bits - 1

    def coarse(self, keys):
        low, high = keys.min(1, keepdims=True), keys.max(1, keepdims=True)
        scale = np.maximum(high - low, 1e-9) / self.levels
        codes = (keys - low) / scale
        self.margins.note(np.abs(codes - np.floor(codes) - 0.5).min(), "code of a key")
        return np.clip(np.round(codes), 0, self.levels) * scale + low

    def answer(self, l, queries):
        masks, page = [], self.page
        for h, own in enumerate(queries):
            keys, where = self.keys[l][h], f"twilight {l}.{h}"
            pages = -(-len(keys) // page)
            near = self.coarse(keys) if self.levels else keys
            mask = np.zeros((len(own), len(keys)), dtype=bool)
            for row, x in enumerate(own):
                sign = np.where(x > 0, 1.0, -1.0)
                signed = np.vstack([keys * sign, np.full((-len(keys) % page, keys.shape[1]), -np.inf)])
                bound = signed.reshape(pages, page, -1).max(1) @ np.abs(x)
                held = np.zeros(pages * page, dtype=bool)
                for p in top(bound, min(max(1, self.most), pages), self.margins, where + " pages"):
                    held[p * page : (p + 1) * page] = True
                held = held[: len(keys)]
                given = softmax(np.where(held, near @ x / math.sqrt(self.model.dim), -np.inf))
                sums = np.cumsum(np.sort(given)[::-1])
                count = int(np.searchsorted(sums, self.share)) + 1
                self.margins.note(np.abs(sums - self.share).min(), where + " sum")
                mask[row, top(given, count, self.margins, where)] = True
            masks.append(mask)
        return masked_answer(self, l, queries, masks)


CASES = [
    ("rocketkv",
     dict(method="rocketkv", set=["read.page=4", "read.rank=8", "read.tokens=48", "score.kernel=21"]),
     "rocket_forward of NVlabs/RocketKV, restated in NumPy",
     RocketKv, dict(budget=90, window=32, kernel=21, page=4, rank=8, tokens=48)),
    ("squeezed_attention",
     dict(method="squeezed_attention", budget="none",
          set=["read.clusters=0.1", "read.local=40", "read.share=0.3", "read.iterations=4"]),
     "run_clustering and run_global_threshold of SqueezeAILab/SqueezedAttention, restated in NumPy; "
     "a threshold for each layer, clusters start from evenly spaced keys",
     Squeezed, dict(clusters=0.1, local=40, read=0.3, rounds=4)),
    ("shadowkv", dict(method="shadowkv", budget="none",
                      set=["store.key_rank=0.5", "read.tokens=64", "read.outliers=3", "read.local=2"], tolerance=1e-3),
     "ShadowKVCache of bytedance/ShadowKV, restated in NumPy; chunks by the keys that are held",
     ShadowKv, dict(keys=32, tokens=64, chunk=8, outliers=3, local=2)),
    ("twilight_quest",
     dict(method="twilight_quest", budget="none", set=["read.page=8", "read.tokens=128", "read.share=0.7", "read.dense_layers=0"]),
     "quest_selector and top_p_unnormalized of tsinghua-ideal/Twilight, restated in NumPy; keys are not coded",
     PrunedQuest, dict(page=8, tokens=128, share=0.7, bits=0)),
]
