# SPDX-License-Identifier: Apache-2.0
"""What lies on the host and what decode steps fetch from there, in NumPy: FlexGen (FMInference/FlexLLMGen
004ffef8, init_cache_one_gpu_batch and load_cache of pytorch_backend.py and flex_opt.py), which fetches all that
is there for every step, and readers that fetch what they read (load of snu-comparch/InfiniGen's prefetched
entries: what any query head of a KV head chose, once).
"""

import math

import numpy as np

from method_oracles import Sequence
from method_reads import InfiniGen

ENTRY_BYTES = 4  # of a number: cases are of f32


class Placed:
    """Counts of a sequence: call `place` first, then `fetch` with the masks of every step's layer."""

    def place(self, part=1.0, sinks=0, recent=0, first_layer=0, keys=True, values=True, keeps=False):
        self.rule = part, sinks, recent, first_layer
        self.sides, self.keeps = int(keys) + int(values), keeps
        self.fetched, self.kept = 0, {}

    def there(self, l, h):
        part, sinks, recent, first_layer = self.rule
        n = len(self.keys[l][h])
        count = int(math.floor(part * max(0, n - sinks - recent) + 1e-9)) if l >= first_layer else 0
        return np.arange(sinks, sinks + count)

    def bytes_of(self, entries):
        return int(entries) * self.sides * self.model.dim * ENTRY_BYTES

    def fetch(self, l, masks):
        for h, mask in enumerate(masks):
            chosen = set(np.flatnonzero(np.any(mask, axis=0)))
            new = chosen - self.kept.get((l, h), set())
            self.fetched += self.bytes_of(len(new & set(self.there(l, h))))
            if self.keeps and not mask.all():
                self.kept[l, h] = chosen

    @property
    def tier_bytes(self):
        """Bytes on the host at the end, and those that all steps fetched."""
        pairs = [(l, h) for l in range(self.model.layers) for h in range(self.model.groups)]
        return self.bytes_of(sum(len(self.there(l, h)) for l, h in pairs)), self.fetched


class FlexGen(Placed, Sequence):
    """Everything on the host is loaded for every step."""

    def compress(self, **rule):
        self.place(**rule)

    def reads(self, l, h, q):
        mask = np.ones((len(q), len(self.keys[l][h])), dtype=bool)
        self.fetched += self.bytes_of(mask[0, self.there(l, h)].sum())
        return mask


class FetchingInfiniGen(Placed, InfiniGen):
    def compress(self, columns, alpha, share, dense_layers, **rule):
        self.place(**rule)
        super().compress(columns, alpha, share, dense_layers)

    def narrowed(self, l, queries, masks):
        self.fetch(l, masks)
        return masks


# Name, what to ask the program for, the oracle in words, its class and settings.
CASES = [
    ("flexgen_offload",
     dict(method="flexgen_offload", budget="none", set=["place.share=0.8"]),
     "the full cache of which FMInference/FlexLLMGen 004ffef puts a share on the processor and loads it for every "
     "step, restated in NumPy; a share of each head's entries, where it takes one of the sequences",
     FlexGen, dict(part=0.8)),
    ("infinigen_fetched",
     dict(method="infinigen", budget="none",
          set=["read.rows=300", "read.dense_layers=1", "read.alpha=2", "read.share=0.08", "place.sinks=5",
               "place.recent=20", "place.share=0.9", "place.first_layer=1", "place.sides=values"]),
     "skew, partial_weight_index_generation and speculate_attention of snu-comparch/InfiniGen 3754f52, restated in "
     "NumPy; what the query heads of a KV head read of its values on the host is counted once",
     FetchingInfiniGen, dict(columns=0.3, alpha=2, share=0.08, dense_layers=1, part=0.9, sinks=5, recent=20,
                             first_layer=1, keys=False)),
    ("infinigen_kept",
     dict(method="infinigen", budget="none",
          set=["read.rows=300", "read.dense_layers=1", "read.alpha=2", "read.share=0.08", "place.keeps=step"]),
     "as infinigen_fetched; what a step read is there in the next one, as in ShadowKV and ClusterKV",
     FetchingInfiniGen, dict(columns=0.3, alpha=2, share=0.08, dense_layers=1, keeps=True)),
]
