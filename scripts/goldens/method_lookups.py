# SPDX-License-Identifier: Apache-2.0
"""Methods that look entries up by what stands for many of them, after their authors' code and in NumPy:
RocketKV (NVlabs/RocketKV 63637c8, attention/rocket.py) and Squeezed Attention
(SqueezeAILab/SqueezedAttention 4a50c64, clustering.py). Clusterings begin from evenly spaced keys.
"""

import math

import numpy as np

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
]
