# SPDX-License-Identifier: Apache-2.0
"""What lies on the host and what decode steps fetch from there, in NumPy: FlexGen (FMInference/FlexLLMGen
004ffef8, init_cache_one_gpu_batch and load_cache of pytorch_backend.py and flex_opt.py), which fetches all that
is there for every step, and readers that fetch what they read (load of snu-comparch/InfiniGen's prefetched
entries: what any query head of a KV head chose, once). A2ATS (junhuihe-hjh/A2ATS 71f10b0, llama_masked.py and
construct_codebooks.py), whose factors and codebooks are made of the prompt.
"""

import math

import numpy as np

from method_oracles import Sequence
from method_reads import InfiniGen, cluster, masked_answer, nearest_centroid, spaced

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


class A2ats(Sequence):
    """Keys before rotation as the nearest codewords by x H x, H the queries' second moment at one distance;
    the codewords' products with a query at that distance choose entries, for all query heads of a KV head."""

    def compress(self, codewords, share, sinks, local, distance, rounds):
        self.share, self.sinks, self.local, self.distance = share, sinks, local, distance
        model, n = self.model, self.tokens
        self.factors, self.words, self.codes = {}, {}, {}
        for l in range(model.layers):
            raw = model.rotate(self.prefill.queries[l], -np.arange(n))
            there = model.rotate(raw, np.full(n, distance)).reshape(model.groups, -1, model.dim)
            for h in range(model.groups):
                H = there[h].T @ there[h]
                H /= np.sqrt((H**2).mean())
                self.factors[l, h] = np.linalg.cholesky(H + 1e-6 * np.eye(model.dim))
                rows = self.prefill.raw[l][h] @ self.factors[l, h]
                words = spaced(rows, min(codewords, n))
                self.codes[l, h] = cluster(rows, words, rounds, self.margins, f"a2ats codes {l}.{h}")
                self.words[l, h] = words

    def append(self, l, h, raw, v):
        super().append(l, h, raw, v)
        own = nearest_centroid(raw @ self.factors[l, h], self.words[l, h], self.margins, f"a2ats code {l}.{h}")
        self.codes[l, h] = np.append(self.codes[l, h], own)

    def answer(self, l, queries):
        model, masks = self.model, []
        for h, own in enumerate(queries):
            n = len(self.keys[l][h])
            there = model.rotate(own, np.full(len(own), self.distance - self.tokens))
            words = self.words[l, h] @ np.linalg.inv(self.factors[l, h])
            found = (there @ words.T)[:, self.codes[l, h]][:, self.sinks : n - self.local]
            mask = np.ones(n, bool)
            mask[self.sinks : n - self.local] = False
            for row in found:
                # Entries of one codeword are equal; the first of them are taken.
                best = np.argsort(-row, kind="stable")[: int(self.share * n)]
                least, others = row[best].min(), row[row < row[best].min()]
                if len(others):
                    self.margins.note((least - others.max()) / np.abs(row).max(), f"a2ats {l}.{h}")
                greater = row[row > least]
                if len(greater):
                    self.margins.note((greater.min() - least) / np.abs(row).max(), f"a2ats {l}.{h}")
                mask[self.sinks + best] = True
            masks.append(np.tile(mask, (len(own), 1)))
        return masked_answer(self, l, queries, masks)


# Name, what to ask the program for, the oracle in words, its class and settings.
CASES = [
    ("a2ats",
     dict(method="a2ats", budget="none",
          set=["read.codewords=16", "read.share=0.1", "read.sinks=4", "read.local=16", "read.distance=200",
               "read.iterations=4"]),
     "llama_attention_forward and the factors of construct_codebooks of junhuihe-hjh/A2ATS 71f10b0, restated in NumPy; "
     "factors and codewords are the prompt's, and codewords start from evenly spaced keys",
     A2ats, dict(codewords=16, share=0.1, sinks=4, local=16, distance=200, rounds=4)),
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
