# SPDX-License-Identifier: Apache-2.0
"""Entries by when attention came back to them, in long answers: RaaS and LazyEviction after accounts of
their papers, and LazyEviction by its authors' own code (`make_methods --checkouts DIR`)."""

import contextlib
import math
import types

import numpy as np

from checkouts import definitions
from method_oracles import Sequence, protect, top


class Recurrence(Sequence):
    """Times count tokens from 1. The query head of a KV head that pays most says what a row pays."""

    def hits(self, l, h, row):
        """Which entries a row [query heads, entries] pays enough."""
        most = row.max(0)
        self.margins.note((np.abs(most - self.least) / self.least).min(), f"hit {l}.{h}")
        return most >= self.least

    def of_prompt(self, l, h, window):
        """(time, hits of what it sees) of the prompt's last rows."""
        own = self.prefill.attention[l][h * self.model.share : (h + 1) * self.model.share]
        for row in range(self.tokens - window, self.tokens):
            yield row + 1, self.hits(l, h, own[:, row, : row + 1])

    def evict(self, l, h, scores, what):
        """The best of an entry's numbers `what`, whose last axis counts entries."""
        if len(scores) <= self.budget:
            return what
        index = top(protect(scores, 0, self.recent), self.budget, self.margins, f"recurrence {l}.{h}")
        self.keep(l, h, index)
        return what[..., index]


class Raas(Recurrence):
    """Whoever was of use longest ago goes; the newest entry is of use."""

    def compress(self, budget, window, least):
        self.budget, self.recent, self.least = budget, 0, least
        self.times = [[None] * self.model.groups for _ in range(self.model.layers)]
        for l, h in np.ndindex(self.model.layers, self.model.groups):
            times = np.zeros(self.tokens)
            for time, hits in self.of_prompt(l, h, window):
                times[:time][hits] = time
                times[time - 1] = time
            self.times[l][h] = self.evict(l, h, times, times)

    def after_step(self, rows):
        for l, of_layer in enumerate(rows):
            for h, row in enumerate(of_layer):
                times = np.append(self.times[l][h], 0)
                times[self.hits(l, h, row)] = self.tokens
                times[-1] = self.tokens
                self.times[l][h] = self.evict(l, h, times, times)


class LazyEviction(Recurrence):
    """An entry's last hit and its longest time between hits, by the paper's two terms, every few steps."""

    def compress(self, budget, window, least, recent, every):
        self.budget, self.recent, self.least, self.every = budget, recent, least, every
        self.numbers = [[None] * self.model.groups for _ in range(self.model.layers)]
        for l, h in np.ndindex(self.model.layers, self.model.groups):
            numbers = np.stack([np.arange(1.0, self.tokens + 1), np.zeros(self.tokens)])
            for time, hits in self.of_prompt(l, h, window):
                self.count(numbers[:, :time], hits, time)
            self.numbers[l][h] = self.evict(l, h, self.scores(numbers), numbers)

    def count(self, numbers, hits, time):
        last, period = numbers
        period[hits] = np.maximum(period[hits], time - last[hits])
        last[hits] = time

    def scores(self, numbers):
        last, period = numbers
        sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
        some = np.maximum(period, 1)
        return np.where(period > 0, 2 * sigmoid((last - self.tokens) / some) + 2 * sigmoid(-1 / some), 0)

    def after_step(self, rows):
        for l, of_layer in enumerate(rows):
            for h, row in enumerate(of_layer):
                numbers = np.column_stack([self.numbers[l][h], [self.tokens, 0]])
                self.count(numbers, self.hits(l, h, row), self.tokens)
                if len(self.decoded) % self.every == 0:
                    numbers = self.evict(l, h, self.scores(numbers), numbers)
                self.numbers[l][h] = numbers


class LazyByAuthors(Recurrence):
    """Its TempCache counts and its Window_LAZYKVCluster evicts. The code has a cache for each query head;
    it is given one for each KV head, whose rows are the most that a query head pays. Which of equal
    entries go is open in its topk: here the later ones. What stays is put in order of position."""

    merges = True  # what stays of the prompt is compared as well

    def compress(self, checkout, budget, least, every):
        import torch

        self.torch, self.least, self.every = torch, least, every
        folder = checkout.path / "LazyEviction/model"
        self.counts = definitions(folder / "temp_cacheobs.py", ("TempCache",), dict(torch=torch, np=np)).TempCache
        self.counts.alpha = least
        functional = types.SimpleNamespace(softmax=lambda *_, **__: self.attention)
        given = dict(torch=torch, F=functional, math=math, TempCache=self.counts)
        cluster = definitions(folder / "kv_utils.py", ("Window_LAZYKVCluster",), given).Window_LAZYKVCluster
        self.code = cluster(self.model.layers, every, budget, every)

    def after_step(self, rows):
        for l, of_layer in enumerate(rows):
            for h, row in enumerate(of_layer):
                self.hits(l, h, row)
            # Keys and values carry their positions along.
            tensor = lambda rows: self.torch.from_numpy(np.stack(rows))[None]  # noqa: E731
            self.attention = tensor([row.max(0)[None] for row in of_layer])
            keys, values = (tensor([np.column_stack(both) for both in zip(held[l], self.pos[l])])
                            for held in (self.keys, self.values))
            query = self.torch.zeros_like(keys[:, :, :1])
            with self.stable_topk(l):
                keys, values, _ = self.code.update_kv_in_decoding(
                    keys, query, values, None, 1, self.every, l, len(self.decoded))
            order = keys[0, :, :, -1].argsort(1)
            for counted in (self.counts.layer_max_period, self.counts.layer_last_recurrent):
                counted[l] = counted[l].gather(2, order[None])
            for h, index in enumerate(order):
                self.pos[l][h] = keys[0, h, index, -1].numpy().astype(int)
                for held, rows in ((self.keys, keys), (self.values, values)):
                    held[l][h] = rows[0, h, index, :-1].numpy()

    @contextlib.contextmanager
    def stable_topk(self, l):
        """Equal numbers in the order of entries; the margins of a cut are noted."""
        plain = self.torch.Tensor.topk

        def topk(scores, count, dim):
            assert dim == -1
            index = np.stack([top(row.numpy(), count, self.margins, f"lazyeviction {l}.{h}")
                              for h, row in enumerate(scores[0])])
            index = self.torch.from_numpy(index)[None]
            assert self.torch.equal(scores.gather(2, index).sort().values, plain(scores, count, dim).values.sort().values)
            return None, index

        self.torch.Tensor.topk = topk
        try:
            yield
        finally:
            self.torch.Tensor.topk = plain


ACCOUNTS = "the formulas of accounts of the paper in NumPy, float64"
CASES = [
    ("raas", dict(method="raas", public_code=False, set=["score.window=8", "score.least=0.004"]), ACCOUNTS,
     Raas, dict(budget=90, window=8, least=0.004)),
    ("lazyeviction", dict(method="lazyeviction", public_code=False, steps=12,
                          set=["score.window=16", "score.least=0.008", "protect.recent=8", "trigger.steps=4"]), ACCOUNTS,
     LazyEviction, dict(budget=90, window=16, least=0.008, recent=8, every=4)),
]  # fmt: skip


def lazy_cases(checkout):
    return [("lazyeviction_released",
             dict(method="lazyeviction", steps=12,
                  set=["score.form=released", "score.least=0.008", "protect.recent=4", "trigger.steps=4",
                       "trigger.prompt=false"]),
             f"TempCache and Window_LAZYKVCluster of Halo-949/LazyEviction as {checkout.name} holds them, run in torch"
             " inside a NumPy forward, float64; for each KV head, and the earlier of equal entries stay",
             LazyByAuthors, dict(checkout=checkout, budget=90, least=0.008, every=4))]  # fmt: skip
