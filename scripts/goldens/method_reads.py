# SPDX-License-Identifier: Apache-2.0
"""Methods that hold every entry and read some, after their authors' code and in NumPy: SparQ (its case
is made by method_authors.py, which holds the authors' own code against the class here), TokenSelect
(pzs19/TokenSelect 8e1e97f0, token_retrieval.py), ClusterKV (sjtu-zhao-lab/ClusterKV cb66a229,
cluster_attention.py) and PQCache (HugoZHL/PQCache, pq_search.py). Clusterings begin from evenly
spaced keys, so that both sides find the same ones.
"""

import math
import string

import numpy as np

from key_graph import Graph
from method_oracles import Sequence, softmax, top


def masked_answer(sequence, l, queries, masks):
    """Plain attention over the entries of each row's mask, or over fewer, where another method narrows it."""
    masks = sequence.narrowed(l, queries, masks) if hasattr(sequence, "narrowed") else masks
    out = []
    for h, own in enumerate(queries):
        scores = own @ sequence.keys[l][h].T / math.sqrt(sequence.model.dim)
        out.append(softmax(np.where(masks[h], scores, -np.inf)) @ sequence.values[l][h])
    return out, None


class Quest(Sequence):
    """Each query head reads the pages whose bounds allow the largest product with it."""

    def compress(self, page, tokens, dense_layers):
        self.page, self.most, self.dense = page, max(3, tokens // page), dense_layers

    def reads(self, l, h, q):
        keys, page = self.keys[l][h], self.page
        pages = -(-len(keys) // page)
        mask = np.ones((len(q), len(keys)), dtype=bool)
        if l < self.dense or pages <= self.most:
            return mask
        low = np.stack([keys[p * page : (p + 1) * page].min(0) for p in range(pages)])
        high = np.stack([keys[p * page : (p + 1) * page].max(0) for p in range(pages)])
        mask[:] = False
        for row, x in enumerate(q):
            bound = np.maximum(x * low, x * high).sum(1)
            for p in top(bound, self.most, self.margins, f"quest {l}.{h}"):
                mask[row, p * page : (p + 1) * page] = True
        return mask


class LeadLayers(Sequence):
    """Layers that read everything choose what the layers behind them read: each query head its largest
    products, or a layer the entries to which a query head's softmax gives most."""

    def compress(self, layers, tokens, by_layer=False):
        self.leads, self.most, self.by_layer = layers, tokens, by_layer
        self.prompt, self.chosen = self.tokens, None

    def answer(self, l, queries):
        n = len(self.keys[l][0])
        if l not in self.leads:
            masks = [np.ones((len(own), n), dtype=bool) for own in queries]
            return masked_answer(self, l, queries, masks if l < self.leads[0] else self.chosen)
        products = [own @ self.keys[l][h].T for h, own in enumerate(queries)]
        self.chosen = [np.zeros((len(own), n), dtype=bool) for own in queries]
        if self.by_layer:
            # Of the prompt alone; what was decoded is read besides.
            given = [softmax(own[:, : self.prompt] / math.sqrt(self.model.dim)) for own in products]
            best = top(np.vstack(given).max(0), self.most, self.margins, f"omnikv {l}")
            for mask in self.chosen:
                mask[:, best] = mask[:, self.prompt :] = True
        else:
            for h, own in enumerate(products):
                for row, x in enumerate(own):
                    self.chosen[h][row, top(x, self.most, self.margins, f"tidaldecode {l}.{h}")] = True
        return masked_answer(self, l, queries, [np.ones((len(own), n), dtype=bool) for own in queries])


class Sparq(Sequence):
    """The dims of the largest numbers of a group's queries choose entries; what their softmax leaves
    to the others is answered by the mean value."""

    def compress(self, tokens, rank, local):
        self.most, self.rank, self.local = tokens, rank, local

    def answer(self, l, queries):
        out = []
        for h, own in enumerate(queries):
            keys, values, n = self.keys[l][h], self.values[l][h], len(self.keys[l][h])
            where = f"sparq {l}.{h}"
            dims = top(np.abs(own).sum(0), self.rank, self.margins, where + " dims")
            covered = np.abs(own[:, dims]).sum(1) / np.abs(own).sum(1)
            guess = own[:, dims] @ keys[:, dims].T / np.sqrt(covered * self.model.dim)[:, None]
            # The newest and `local` before it are certain.
            certain = guess.sum(0)
            certain[n - 1 - self.local :] = np.inf
            chosen = top(certain, min(self.most + 1, n), self.margins, where)
            trust = softmax(guess)[:, chosen].sum(1)[:, None]
            p = softmax(own @ keys[chosen].T / math.sqrt(self.model.dim))
            out.append(trust * (p @ values[chosen]) + (1 - trust) * values.mean(0))
        return out, None


class TokenSelect(Sequence):
    """One set a layer: every query head gives a softmax over the middle, their sum votes."""

    def compress(self, tokens, sinks, local):
        self.most, self.sinks, self.local = tokens, sinks, local

    def answer(self, l, queries):
        n = len(self.keys[l][0])
        mask = np.ones(n, dtype=bool)
        if self.sinks + self.most + self.local < n:
            middle = slice(self.sinks, n - self.local)
            votes = sum(softmax(own @ self.keys[l][h][middle].T).sum(0) for h, own in enumerate(queries))
            mask[middle] = False
            mask[self.sinks + top(votes, self.most, self.margins, f"tokenselect {l}")] = True
        return masked_answer(self, l, queries, [mask] * len(queries))


def spaced(rows, count):
    return rows[np.arange(count) * len(rows) // count].copy()


def nearest_centroid(rows, centroids, margins, where):
    away = ((rows[:, None] - centroids) ** 2).sum(-1)
    ordered = np.sort(away, 1)
    # A key that is its own centroid is at no distance, whatever the rounding.
    if centroids.shape[0] > 1:
        gap = (ordered[:, 1] - ordered[:, 0]) / np.maximum(ordered[:, 1], 1e-30)
        margins.note(gap.min(), where)
    return away.argmin(1)


def cluster(rows, centroids, rounds, margins, where):
    """Lloyd's algorithm; an empty cluster stays where it is."""
    member = nearest_centroid(rows, centroids, margins, where)
    for _ in range(rounds):
        for c in np.unique(member):
            centroids[c] = rows[member == c].mean(0)
        member = nearest_centroid(rows, centroids, margins, where)
    return member


class ClusterKv(Sequence):
    """Whole clusters of the prompt's keys by product with the query, the last one cut short."""

    def compress(self, tokens, sinks, span, rounds, dense_layers):
        self.most, self.sinks, self.dense = tokens, sinks, dense_layers
        self.prompt = self.tokens
        self.clusters = {}
        for l in range(dense_layers, self.model.layers):
            for h in range(self.model.groups):
                keys = self.keys[l][h][sinks:]
                length = np.linalg.norm(keys, axis=1, keepdims=True)
                count = -(-len(keys) // span)
                unit = keys / length
                member = cluster(unit, spaced(unit, count), rounds, self.margins, f"clusterkv {l}.{h}")
                means = np.stack([keys[member == c].mean(0) if (member == c).any() else np.zeros(keys.shape[1])
                                  for c in range(count)])
                self.clusters[l, h] = member, means

    def answer(self, l, queries):
        masks = []
        for h, own in enumerate(queries):
            mask = np.ones((len(own), len(self.keys[l][h])), dtype=bool)
            if l >= self.dense and self.prompt > self.most:
                member, means = self.clusters[l, h]
                mask[:, self.sinks : self.prompt] = False
                for row, q in enumerate(own):
                    left = self.most - self.sinks
                    product = means @ q
                    best = np.argsort(-product, kind="stable")
                    gaps = -np.diff(product[best])
                    for place, c in enumerate(best):
                        entries = np.flatnonzero(member == c)[:left]
                        mask[row, self.sinks + entries] = True
                        left -= len(entries)
                        if left == 0:
                            break
                        if place < len(gaps):
                            self.margins.note(gaps[place] / np.abs(product).max(), f"clusterkv {l}.{h}")
                    if place < len(gaps):
                        self.margins.note(gaps[place] / np.abs(product).max(), f"clusterkv {l}.{h}")
            masks.append(mask)
        return masked_answer(self, l, queries, masks)


class PqCache(Sequence):
    """Codes of parts of keys stand for products; a softmax a query head, summed over the group."""

    def compress(self, tokens, recent_share, sinks, parts, bits, rounds):
        self.recent = int(tokens * recent_share)
        self.most, self.sinks, self.parts = tokens - self.recent, sinks, parts
        width = self.model.dim // parts
        self.books = {}
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                for part in range(parts):
                    rows = self.keys[l][h][sinks:, part * width : (part + 1) * width]
                    book = spaced(rows, min(2**bits, len(rows)))
                    codes = cluster(rows, book, rounds, self.margins, f"pqcache codes {l}.{h}")
                    self.books[l, h, part] = book, codes

    def answer(self, l, queries):
        masks, width = [], self.model.dim // self.parts
        for h, own in enumerate(queries):
            n = len(self.keys[l][h])
            open_ = slice(self.sinks, n - self.recent)
            guess = np.zeros((len(own), open_.stop - open_.start))
            for part in range(self.parts):
                book, codes = self.books[l, h, part]
                columns = slice(part * width, (part + 1) * width)
                for late in self.keys[l][h][self.sinks + len(codes) : n]:
                    codes = np.append(codes, nearest_centroid(late[None, columns], book, self.margins,
                                                              f"pqcache late {l}.{h}"))
                self.books[l, h, part] = book, codes
                guess += own[:, columns] @ book[codes[: guess.shape[1]]].T
            votes = softmax(guess / math.sqrt(self.model.dim)).sum(0)
            mask = np.ones(n, dtype=bool)
            mask[open_] = False
            mask[self.sinks + top(votes, self.most, self.margins, f"pqcache {l}.{h}")] = True
            masks.append(mask)
        return masked_answer(self, l, queries, masks)


class RetrievalAttention(Sequence):
    """First and last entries, and of the others those with the largest products, for each query head."""

    def compress(self, tokens, sinks, local):
        self.most, self.sinks, self.local = tokens, sinks, local

    def answer(self, l, queries):
        masks = []
        for h, own in enumerate(queries):
            n = len(self.keys[l][h])
            products = own @ self.keys[l][h].T
            mask = np.zeros((len(own), n), dtype=bool)
            mask[:, : self.sinks] = mask[:, n - self.local :] = True
            for row, x in enumerate(products):
                best = top(x[self.sinks : n - self.local], self.most, self.margins, f"retrieval {l}.{h}")
                mask[row, self.sinks + best] = True
            masks.append(mask)
        return masked_answer(self, l, queries, masks)


class KeyGraph(Sequence):
    """First and last entries of the prompt, and of the others what a search in a graph of each query head
    finds. So many products decide a graph that some are near each other, and most of these change
    nothing: what is read must stay the same where keys and queries are moved a little, as float32 does."""

    MOVED, TIMES = 3e-6, 6

    def compress(self, tokens, sinks, local, nearest, degree, build_beam, beam):
        self.most, self.beam, self.sinks, self.members = tokens, beam, sinks, slice(sinks, self.tokens - local)
        self.draw = np.random.default_rng(5)
        self.graphs = {}
        for l in range(self.model.layers):
            for q in range(self.model.heads):
                keys = self.keys[l][q // self.model.share][self.members]
                queries = self.prefill.queries[l][q]
                self.graphs[l, q] = [Graph(keys, queries, nearest, degree, build_beam)] + [
                    Graph(self.moved(keys), self.moved(queries), nearest, degree, build_beam)
                    for _ in range(self.TIMES)]
        self.found = self.exact = 0

    def moved(self, x):
        return x + self.MOVED * np.sqrt((x * x).mean()) * self.draw.normal(size=x.shape)

    def answer(self, l, queries):
        masks = []
        for h, own in enumerate(queries):
            mask = np.ones((len(own), len(self.keys[l][h])), dtype=bool)
            mask[:, self.members] = False
            for row, x in enumerate(own):
                graphs = self.graphs[l, h * self.model.share + row]
                read = [set(graph.search(x if i == 0 else self.moved(x), self.beam)[1][: self.most])
                        for i, graph in enumerate(graphs)]
                if any(other != read[0] for other in read):
                    self.margins.note(1e-9, f"graph {l}.{h}")
                mask[row, self.sinks + np.array(sorted(read[0]))] = True
                best = np.argsort(-(graphs[0].keys @ x), kind="stable")[: self.most]
                self.found, self.exact = self.found + len(read[0] & set(best.tolist())), self.exact + self.most
            masks.append(mask)
        return masked_answer(self, l, queries, masks)


class Subspace(Sequence):
    """The entries with the largest products in a few directions of a KV head's keys: their principal
    components after rotation, or their largest channels before it."""

    def compress(self, rank, tokens, channels=False):
        self.most, self.directions = tokens, {}
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                keys = self.keys[l][h]
                if channels:
                    size = np.abs(self.prefill.raw[l][h]).mean(0)
                    best = top(size, rank, self.margins, f"channels {l}.{h}")
                    self.directions[l, h] = np.eye(self.model.dim)[best]
                else:
                    sizes, vectors = np.linalg.eigh(np.cov(keys.T))
                    self.margins.note((sizes[-rank] - sizes[-rank - 1]) / sizes[-1], f"components {l}.{h}")
                    self.directions[l, h] = vectors[:, -rank:].T

    def answer(self, l, queries):
        masks = []
        for h, own in enumerate(queries):
            few = self.directions[l, h]
            products = (own @ few.T) @ (self.keys[l][h] @ few.T).T
            mask = np.zeros(products.shape, dtype=bool)
            for row, x in enumerate(products):
                mask[row, top(x, self.most, self.margins, f"subspace {l}.{h}")] = True
            masks.append(mask)
        return masked_answer(self, l, queries, masks)


class TopP(Sequence):
    """The fewest entries whose attention sums to a share, the largest first, for each query head."""

    def compress(self, share, dense_layers):
        self.share, self.dense = share, dense_layers

    def answer(self, l, queries):
        masks = []
        for h, own in enumerate(queries):
            given = softmax(own @ self.keys[l][h].T / math.sqrt(self.model.dim))
            mask = np.full(given.shape, l < self.dense)
            for row, x in enumerate(given):
                if l < self.dense:
                    continue
                sums = np.cumsum(np.sort(x)[::-1])
                count = int(np.searchsorted(sums, self.share)) + 1
                self.margins.note(np.abs(sums - self.share).min(), f"twilight sum {l}.{h}")
                mask[row, top(x, count, self.margins, f"twilight {l}.{h}")] = True
            masks.append(mask)
        return masked_answer(self, l, queries, masks)


class Pruned:
    """Before a class that reads some entries: Twilight's pruner, which keeps of them, for each query head, the
    fewest whose softmax among them sums to a share. The first layers read everything."""

    def compress(self, share, open_layers, **settings):
        self.share, self.open_layers = share, open_layers
        super().compress(**settings)

    def narrowed(self, l, queries, masks):
        fewer = []
        for h, own in enumerate(queries):
            scores = own @ self.keys[l][h].T / math.sqrt(self.model.dim)
            held = np.broadcast_to(masks[h], scores.shape)
            mask, where = np.full(scores.shape, l < self.open_layers), f"pruned {l}.{h}"
            for row, given in enumerate(softmax(np.where(held, scores, -np.inf))):
                if l < self.open_layers:
                    continue
                sums = np.cumsum(np.sort(given)[::-1])
                self.margins.note(np.abs(sums - self.share).min(), where + " sum")
                mask[row, top(given, int(np.searchsorted(sums, self.share)) + 1, self.margins, where)] = True
            fewer.append(mask)
        return fewer


class PrunedSubspace(Pruned, Subspace):
    """Over Double Sparsity."""


class PrunedPqCache(Pruned, PqCache):
    """Over PQCache."""


class PrunedLeadLayers(Pruned, LeadLayers):
    """Over TidalDecode."""


class Recycled(Sequence):
    """Every few steps everything is read, and the entries that a KV head's query heads give most to
    are all that is read of the past until the next such step."""

    def compress(self, tokens, stride):
        self.most, self.stride = tokens, stride
        self.seen, self.chosen = [0] * self.model.layers, {}

    def answer(self, l, queries):
        masks = []
        for h, own in enumerate(queries):
            n = len(self.keys[l][h])
            mask = np.ones(n, dtype=bool)
            if self.seen[l] % self.stride == 0:
                given = softmax(own @ self.keys[l][h].T / math.sqrt(self.model.dim)).sum(0)
                self.chosen[l, h] = n, top(given, self.most, self.margins, f"recycled {l}.{h}")
            else:
                length, best = self.chosen[l, h]
                mask[:length] = False
                mask[best] = True
            masks.append(mask)
        self.seen[l] += 1
        return masked_answer(self, l, queries, masks)


class SentenceKv(Sequence):
    """Sentences of the prompt, which end with punctuation, by the product of their mean key and the
    mean query of the answer's sentence."""

    def compress(self, tokens, sinks, local):
        self.most, self.sinks, self.local = tokens, sinks, local
        ends = np.isin(self.prefill.ids, [ord(c) for c in string.punctuation])
        ends[-1] = True
        self.ends = np.flatnonzero(ends)
        self.sentence = np.searchsorted(self.ends, np.arange(self.tokens))
        self.queries = [[] for _ in range(self.model.layers)]

    def answer(self, l, queries):
        n, masks = len(self.prefill.ids), []
        self.queries[l].append(np.stack(queries))
        mean = np.mean(self.queries[l], 0)
        inner = np.arange(self.sinks, n - self.local)
        for h, own in enumerate(mean):
            keys = self.keys[l][h]
            means = np.stack([keys[:n][self.sentence == s].mean(0) for s in range(len(self.ends))])
            mask = np.ones((len(own), len(keys)), dtype=bool)
            mask[:, inner] = False
            for row, products in enumerate(own @ means.T):
                left = self.most
                order = np.argsort(-products, kind="stable")
                for place, s in enumerate(order):
                    entries = inner[self.sentence[inner] == s][:left]
                    mask[row, entries] = True
                    left -= len(entries)
                    if place + 1 < len(order):
                        gap = products[s] - products[order[place + 1]]
                        self.margins.note(gap / np.abs(products).max(), f"sentencekv {l}.{h}")
                    if left == 0:
                        break
            masks.append(mask)
        if chr(self.decoded[-1] % 256) in string.punctuation and self.decoded[-1] < 256:
            self.queries[l] = []
        return masked_answer(self, l, queries, masks)


class InfiniGen(Sequence):
    """The best entries by the query that a layer would have of the layer below's input, in the columns that
    are largest once queries and keys are turned by the queries' singular vectors: as many for each query
    head as are near its best on average. The newest entry is there anyway."""

    def compress(self, columns, alpha, share, dense_layers):
        self.alpha, self.share, self.dense, self.inputs = alpha, share, dense_layers, {}
        self.few, model = {}, self.model
        count = int(model.dim * columns)
        for l in range(dense_layers, model.layers):
            for h in range(model.groups):
                where = f"infinigen {l}.{h}"
                own = self.prefill.queries[l][h * model.share : (h + 1) * model.share].reshape(-1, model.dim)
                _, sizes, turn = np.linalg.svd(own, full_matrices=False)
                kept = set()
                for rows in (own, self.keys[l][h]):
                    kept |= set(top(np.abs(rows @ turn.T).sum(0), count, self.margins, where + " columns"))
                # Directions of like size may turn into each other, which matters where one is kept and
                # its neighbour is not.
                for i in range(model.dim - 1):
                    if (i in kept) != (i + 1 in kept):
                        gap = (sizes[i] ** 2 - sizes[i + 1] ** 2) / sizes[0] ** 2
                        self.margins.note(gap / 10, where + " directions")
                self.few[l, h] = turn[sorted(kept)]

    def step(self, token):
        plain = self.model.split

        def seen(x, l, what, count):
            self.inputs[l] = x
            return plain(x, l, what, count)

        self.model.split = seen
        try:
            return super().step(token)
        finally:
            del self.model.split

    def answer(self, l, queries):
        n, model = len(self.keys[l][0]), self.model
        masks = [np.ones((len(own), n), dtype=bool) for own in queries]
        if l < self.dense:
            return masked_answer(self, l, queries, masks)
        guess = type(model).split(model, self.inputs[l - 1], l, "q", model.heads)
        guess = model.rotate(guess, [self.tokens])[:, 0]
        logits, counts = [], []
        for h in range(model.groups):
            few, known = self.few[l, h], self.keys[l][h][: n - 1]
            for q in guess[h * model.share : (h + 1) * model.share]:
                own = (q @ few.T) @ (known @ few.T).T / math.sqrt(model.dim)
                least = own.max() - self.alpha
                self.margins.note(np.abs(own - least).min() / np.abs(own).max(), f"infinigen count {l}.{h}")
                counts.append((own > least).sum())
                logits.append(own)
        read = min(int(np.mean(counts)), int(self.share * (n - 1)))
        for q, own in enumerate(logits):
            mask = masks[q // model.share][q % model.share]
            mask[: n - 1] = False
            mask[top(own, read, self.margins, f"infinigen {l}.{q}")] = True
        return masked_answer(self, l, queries, masks)


# Name, what to ask the program for, the oracle in words, its class and settings.
CASES = [
    ("infinigen",
     dict(method="infinigen", budget="none",
          set=["read.rows=300", "read.dense_layers=1", "read.alpha=2", "read.share=0.08"]),
     "skew, partial_weight_index_generation and speculate_attention of snu-comparch/InfiniGen 3754f52, restated in "
     "NumPy; columns by queries and keys as in its modeling_llama_ours_setup, both of the prompt",
     InfiniGen, dict(columns=0.3, alpha=2, share=0.08, dense_layers=1)),
    ("loki",
     dict(method="loki", budget="none", set=["read.rank=8", "read.tokens=48"]),
     "mask_attn_pca_topk of hpcgroup/loki, restated in NumPy; components are those of the prompt's keys",
     Subspace, dict(rank=8, tokens=48)),
    ("double_sparsity",
     dict(method="double_sparsity", budget="none", set=["read.rank=8", "read.tokens=48"]),
     "LlamaAttention_heavy_hitter of andy-yang-1/DoubleSparse, restated in NumPy; channels by the prompt's keys",
     Subspace, dict(rank=8, tokens=48, channels=True)),
    ("twilight",
     dict(method="twilight", budget="none", set=["read.share=0.7", "read.dense_layers=1"]),
     "top_p_unnormalized of tsinghua-ideal/Twilight over full attention, restated in NumPy",
     TopP, dict(share=0.7, dense_layers=1)),
    ("twilight_double_sparsity",
     dict(method="twilight_double_sparsity", budget="none",
          set=["read.rank=8", "read.tokens=96", "narrow.share=0.7", "narrow.dense_layers=1"]),
     "double_sparse_selector and top_p_unnormalized of tsinghua-ideal/Twilight 843ebcc, restated in NumPy; channels "
     "by the prompt's keys, which are not coded",
     PrunedSubspace, dict(rank=8, tokens=96, channels=True, share=0.7, open_layers=1)),
    ("tidaldecode_top_p",
     dict(method="tidaldecode", budget="none",
          set=["read.layers=0,2", "read.tokens=96", "narrow.id=top_p", "narrow.share=0.7", "narrow.dense_layers=0"]),
     "tidal_decode_selector and top_p_unnormalized of tsinghua-ideal/Twilight 843ebcc, restated in NumPy; keys are not "
     "coded",
     PrunedLeadLayers, dict(layers=(0, 2), tokens=96, share=0.7, open_layers=0)),
    ("pqcache_top_p",
     dict(method="pqcache", budget="none",
          set=["read.tokens=64", "read.sinks=8", "read.bits=4", "read.iterations=4", "narrow.id=top_p",
               "narrow.share=0.7", "narrow.dense_layers=0"]),
     "PqBasedSearchCompressor of HugoZHL/PQCache and top_p_unnormalized of tsinghua-ideal/Twilight 843ebcc, restated "
     "in NumPy; centroids start from evenly spaced keys",
     PrunedPqCache, dict(tokens=64, recent_share=0.5, sinks=8, parts=2, bits=4, rounds=4, share=0.7, open_layers=0)),
    ("tidaldecode",
     dict(method="tidaldecode", budget="none", set=["read.layers=0,2", "read.tokens=48"]),
     "llama_tidal_attention_forward of DerrickYLJ/TidalDecode, restated in NumPy",
     LeadLayers, dict(layers=(0, 2), tokens=48)),
    ("omnikv",
     dict(method="omnikv", budget="none", set=["read.layers=1,2", "read.tokens=48"]),
     "select_tokens_by_attn_universal of antgroup/OmniKV, softmax_before_last, restated in NumPy",
     LeadLayers, dict(layers=(1, 2), tokens=48, by_layer=True)),
    ("sentencekv",
     dict(method="sentencekv", budget="none", set=["read.tokens=48", "read.sinks=8", "read.local=24"]),
     "zzbright1998/SentenceKV's ranking of sentences, restated in NumPy; every entry of the prompt is held",
     SentenceKv, dict(tokens=48, sinks=8, local=24)),
    ("retrieval_attention",
     dict(method="retrieval_attention", budget="none", set=["read.tokens=40", "read.sinks=8", "read.local=24"]),
     "retr_attn of microsoft/MInference, whose index is exact, restated in NumPy",
     RetrievalAttention, dict(tokens=40, sinks=8, local=24)),
    ("retrieval_attention_graph",
     dict(method="retrieval_attention_graph", budget="none",
          set=["read.tokens=24", "read.sinks=8", "read.local=24", "read.nearest=12", "read.degree=6",
               "read.build_beam=24", "read.beam=28"]),
     "index_bipartite.cpp of matchyc/RoarGraph 7c9ef95, restated in NumPy (check_graphs), over keys and queries of "
     "the prompt", KeyGraph,
     dict(tokens=24, sinks=8, local=24, nearest=12, degree=6, build_beam=24, beam=28)),
    ("recycled_attention",
     dict(method="recycled_attention", budget="none", set=["read.tokens=60", "read.stride=3"], public_code=False),
     "the paper's formulas in NumPy, float64", Recycled, dict(tokens=60, stride=3)),
    ("tokenselect",
     dict(method="tokenselect", budget="none", set=["read.tokens=40", "read.sinks=8", "read.local=24"]),
     "TokenRetriever of pzs19/TokenSelect, restated in NumPy; query heads meet their own KV head",
     TokenSelect, dict(tokens=40, sinks=8, local=24)),
    ("clusterkv",
     dict(method="clusterkv", budget="none",
          set=["read.tokens=80", "read.sinks=8", "read.span=24", "read.iterations=4"]),
     "cluster_attn_out of sjtu-zhao-lab/ClusterKV, restated in NumPy; clusters start from evenly spaced keys",
     ClusterKv, dict(tokens=80, sinks=8, span=24, rounds=4, dense_layers=2)),
    ("pqcache",
     dict(method="pqcache", budget="none",
          set=["read.tokens=64", "read.sinks=8", "read.bits=4", "read.iterations=4"]),
     "PqBasedSearchCompressor of HugoZHL/PQCache, restated in NumPy; centroids start from evenly spaced keys",
     PqCache, dict(tokens=64, recent_share=0.5, sinks=8, parts=2, bits=4, rounds=4)),
]
