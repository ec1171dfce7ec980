# SPDX-License-Identifier: Apache-2.0
"""Methods that keep some entries, after their papers or their authors' code and in NumPy: which
entries (LagKV, Keyformer, Scissorhands, NACL), and how many in each layer and head (ZigZagKV,
HeadKV, LAVa). LAVa is MGDDestiny/Lava 71d3cc89, HeadKV is FYYFU/HeadKV 0862a095, Keyformer is
d-matrix-ai/keyformer-llm f3278310, NACL is PaddlePaddle/Research 6c793225; the others are their papers'
formulas.
"""

import json
import math
import string

import numpy as np

from common import save_file
from method_oracles import MiniCache, Sequence, Think, gumbel, philox, pool_average, pool_max
from method_reads import Quest
from method_weights import pooled_weights
from method_oracles import protect, sample_seed, softmax, top, uniform


def logits_of(prefill, l, rows):
    """Scaled products of the last `rows` queries, -inf for what they do not see: [heads, rows, n]."""
    model, n = prefill.model, len(prefill.ids)
    keys = np.repeat(prefill.keys[l], model.share, 0)
    x = prefill.queries[l][:, -rows:] @ keys.transpose(0, 2, 1) / math.sqrt(model.dim)
    at = np.arange(n)
    return np.where(at[None, :] <= at[n - rows :, None], x, -np.inf)


def window_means(prefill, l, window):
    """Attention that each entry before the last `window` gets from them: [KV heads, share, n - window]."""
    n = len(prefill.ids)
    return prefill.group(np.stack([a[-window:].mean(0) for a in prefill.attention[l]]))[..., : n - window]


def whole_numbers(wanted, total):
    """Rounded down; largest remainders to the first, so that the sum is the total."""
    wanted = np.asarray(wanted, dtype=np.float64)
    counts = np.floor(wanted + 1e-9).astype(int)
    for i in np.argsort(-(wanted - counts), kind="stable")[: total - counts.sum()]:
        counts[i] += 1
    return counts


class LagKv(Sequence):
    """Each run of entries against the ranges of the run behind it; all runs keep equally many."""

    def compress(self, budget, sinks, lag):
        n = self.tokens
        runs = (n - sinks) // lag
        share = (budget - sinks - (n - sinks - (runs - 1) * lag)) // (runs - 1)
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                kept = [np.arange(sinks)]
                for r in range(runs - 1):
                    begin = sinks + r * lag
                    score = np.zeros(lag)
                    for rows in (self.keys[l][h], self.values[l][h]):
                        own, behind = rows[begin : begin + lag], rows[begin + lag : begin + 2 * lag]
                        low, high = behind.min(0), behind.max(0)
                        score += softmax(((own - low) / (high - low)).std(1, ddof=1))
                    kept.append(begin + top(score, share, self.margins, f"lagkv {l}.{h}"))
                self.keep(l, h, np.concatenate(kept + [np.arange(sinks + (runs - 1) * lag, n)]))


class StepEvicted(Sequence):
    """One score an entry, added to at every step; the newest are safe, the least goes."""

    def begin(self, budget, recent, scores):
        self.budget, self.recent, self.scores = budget, recent, scores
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                self.evict(l, h)

    def evict(self, l, h):
        if len(self.pos[l][h]) <= self.budget:
            return
        scores = self.scores[l][h].copy()
        scores[len(scores) - self.recent :] = np.inf
        index = top(scores, self.budget, self.margins, f"{type(self).__name__} {l}.{h}")
        self.keep(l, h, index)
        self.scores[l][h] = self.scores[l][h][index]

    def after_step(self, rows):
        for l, of_layer in enumerate(rows):
            for h, p in enumerate(of_layer):
                self.scores[l][h] = np.append(self.scores[l][h], 0.0) + self.step_score(p, f"{l}.{h}")
                self.evict(l, h)


class Keyformer(StepEvicted):
    """Attention flattened by a temperature, summed over rows and query heads; with a seed, a Gumbel number
    is added to every logit."""

    def compress(self, budget, window, tau, decode_tau, recent_share, seed=None):
        self.tau, self.own = decode_tau, None if seed is None else sample_seed(seed, "prompt")
        n, flat = self.tokens, []
        for l in range(self.model.layers):
            logits = logits_of(self.prefill, l, window)
            if self.own is not None:
                for head in range(len(logits)):
                    for row in range(window):
                        logits[head, row] += self.noise(l, head, n - window + row, range(n))
            flat.append(softmax(logits / tau).sum(1))
        self.begin(budget, int(recent_share * budget), [list(self.prefill.group(f).sum(1)) for f in flat])

    def noise(self, l, head, row, positions):
        place = l * self.model.groups * self.model.share + head
        return gumbel(self.own, (0x6B6579 << 16 | place) << 24 | row, positions)

    def step_score(self, p, where):
        if self.own is not None:
            l, h = map(int, where.split("."))
            heads = range(h * self.model.share, (h + 1) * self.model.share)
            p = p * np.exp([self.noise(l, head, self.tokens - 1, self.pos[l][h]) for head in heads])
        # A softmax at another temperature is a power of the first, scaled to one.
        flat = p ** (1 / self.tau)
        return (flat / flat.sum(1, keepdims=True)).sum(0)


class Scissorhands(StepEvicted):
    """How many rows, over the query heads, gave an entry less than an equal share; most go first."""

    def compress(self, budget, window, recent):
        n = self.tokens
        scores = []
        for l in range(self.model.layers):
            attention = self.prefill.attention[l][:, -window:]
            seen = np.arange(n - window, n) + 1
            visible = np.arange(n)[None, :] < seen[:, None]
            shares = attention * seen[:, None]
            self.margins.note(np.abs(shares[:, visible] - 1).min(), f"scissorhands {l}")
            few = (shares < 1) & visible
            scores.append(list(-self.prefill.group(few.sum(1)).sum(1).astype(np.float64)))
        self.begin(budget, recent, scores)

    def step_score(self, p, where):
        shares = p * p.shape[1]
        self.margins.note(np.abs(shares - 1).min(), "scissorhands " + where)
        return -(shares < 1).sum(0).astype(np.float64)


def write_tokenizer(path):
    """Token 0 to 255 is a byte, the others are special: enough for methods that look at texts."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    signs = {b: chr(b) for b in plain}
    signs |= {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in signs)}
    special = [dict(id=i, content=f"<{i}>", single_word=False, lstrip=False, rstrip=False, normalized=False,
                    special=True) for i in range(256, 271)]
    bytes_ = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
    model = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                 fuse_unk=False, byte_fallback=False, vocab={signs[b]: b for b in range(256)}, merges=[])
    path.write_text(json.dumps(dict(version="1.0", truncation=None, padding=None, added_tokens=special, normalizer=None,
                                    pre_tokenizer=bytes_, post_processor=None, decoder=bytes_, model=model)) + "\n")


SEPARATORS = set(b".,?!;: \t\n\v\f\r")


class SepLlm(Sequence):
    """First and last entries, separators, and the newest of the others where room is left."""

    def compress(self, budget, sinks, recent):
        self.budget, self.sinks, self.recent, self.ids = budget, sinks, recent, list(self.prefill.ids)
        self.evict()

    def evict(self):
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                n = len(self.pos[l][h])
                if n <= self.budget:
                    continue
                rank = [(self.ids[p] in SEPARATORS, p) for p in self.pos[l][h]]
                middle = sorted(range(self.sinks, n - self.recent), key=lambda i: rank[i], reverse=True)
                middle = np.sort(middle[: self.budget - self.sinks - self.recent]).astype(int)
                self.keep(l, h, np.r_[: self.sinks, middle, n - self.recent : n])

    def after_step(self, rows):
        self.ids.append(self.decoded[-1])
        self.evict()


class SnapKv(Sequence):
    def compress(self, budget, window, kernel, pool=pool_average):
        n = self.tokens
        for l in range(self.model.layers):
            rows = window_means(self.prefill, l, window).mean(1)
            for h, row in enumerate(rows):
                own = top(pool(row, kernel), budget - window, self.margins, f"snapkv {l}.{h}")
                self.keep(l, h, np.r_[own, n - window : n])


class Nacl(Sequence):
    """The certain part: first and last entries, and the best by what the proxy rows give. A share of the
    places is drawn from the rest, by the softmax of what the rows give in sum."""

    def compress(self, budget, sinks, window, drawn=0.0, seed=0):
        n, own = self.tokens, sample_seed(seed, "prompt")
        free = budget - sinks - window
        chance = round(free * drawn)
        for l in range(self.model.layers):
            for h, row in enumerate(window_means(self.prefill, l, window).mean(1)):
                where = f"nacl {l}.{h}"
                best = sinks + top(row[sinks:], free - chance, self.margins, where)
                rest = np.setdiff1d(np.arange(sinks, n - window), best)
                noise = gumbel(own, 0x6E61636C << 32 | (l * self.model.groups + h), rest)
                lucky = rest[top(row[rest] * window + noise, chance, self.margins, where + " drawn")]
                self.keep(l, h, np.r_[:sinks, np.sort(np.r_[best, lucky]), n - window : n])


class ZigZagKv(Sequence):
    """Layers by how many of a head's best entries hold 0.9 of what the window gives."""

    def compress(self, budget, window, kernel, mass, floor):
        n, layers = self.tokens, self.model.layers
        scores, needs = [], []
        for l in range(layers):
            scores.append([pool_average(row, kernel) for row in window_means(self.prefill, l, window).mean(1)])
            counts = []
            for row in scores[-1]:
                held = np.cumsum(np.sort(row)[::-1]) / row.sum()
                self.margins.note(np.abs(held - mass).min(), f"zigzagkv {l}")
                counts.append(1 + np.searchsorted(held, mass))
            needs.append(np.mean(counts))
        needs = np.array(needs)
        least = floor * budget
        budgets = whole_numbers(least + (budget - least) * layers * needs / needs.sum(), layers * budget)
        for l in range(layers):
            for h, row in enumerate(scores[l]):
                own = top(row, budgets[l] - window, self.margins, f"zigzagkv {l}.{h}")
                self.keep(l, h, np.r_[own, n - window : n])


class HeadKv(Sequence):
    """Every head has the same part, and a share of the rest by its importance."""

    def compress(self, budget, window, kernel, beta, importance):
        n, model = self.tokens, self.model
        base = budget - window
        part = importance / importance.sum()
        shared = int(base // beta)
        wanted = part * shared * part.size + (base - shared)
        counts = whole_numbers(wanted.reshape(-1), base * part.size).reshape(part.shape)
        for l in range(model.layers):
            for h, row in enumerate(window_means(self.prefill, l, window).mean(1)):
                own = top(pool_max(row, kernel), counts[l, h], self.margins, f"headkv {l}.{h}")
                self.keep(l, h, np.r_[own, n - window : n])


class Lava(Sequence):
    """Attention times the largest sum of absolute values of its head; layers share by the entropy of
    that, heads by where the layer's best entries are."""

    def compress(self, budget, window, kernel, floor):
        n, model = self.tokens, self.model
        layers, groups = model.layers, model.groups
        base, scores, spread = budget - window, [], []
        for l in range(layers):
            size = np.abs(self.prefill.values[l][:, : n - window]).sum(-1).max(-1)
            rows = window_means(self.prefill, l, window)
            pooled = np.stack([[pool_max(q, kernel) * size[h] for q in own] for h, own in enumerate(rows)])
            scores.append(pooled.max(1))
            p = scores[-1].reshape(-1) / scores[-1].sum()
            spread.append(-(p * np.log(p)).sum() / math.log(p.size))
        spread = np.array(spread)
        # A layer's number is that of each of its heads, as in the authors' code.
        budgets = whole_numbers(spread / spread.sum() * base * layers, base * layers)
        for l in range(layers):
            best = top(scores[l].reshape(-1), budgets[l] * groups, self.margins, f"lava {l}")
            mine = np.bincount(best // (n - window), minlength=groups)
            counts = whole_numbers(mine * (1 - floor) + budgets[l] * floor, budgets[l] * groups)
            for h in range(groups):
                own = top(scores[l][h], counts[h], self.margins, f"lava {l}.{h}")
                self.keep(l, h, np.r_[own, n - window : n])


class ReFreeKv(Sequence):
    """Entries go, the worst first and as many in every head of a layer, until the norm of what the last row
    gives the others has fallen by a share, on average over the query heads. The first entries and the last
    rows stay and count nothing. Without rows to look back from, the oldest are the worst."""

    def compress(self, loss, window=0, sinks=0):
        n, model = self.tokens, self.model
        inner = np.arange(sinks, n - window)
        for l in range(model.layers):
            scores = np.tile(inner.astype(float), (model.groups, 1))
            if window:
                scores = window_means(self.prefill, l, window).mean(1)
            order = np.argsort(scores, 1, kind="stable")
            squares = self.prefill.group(self.prefill.attention[l][:, -1] ** 2)[:, :, inner]
            ranked = np.stack([squares[h][:, order[h]] for h in range(model.groups)])
            left = np.sqrt(np.cumsum(ranked[..., ::-1], -1)[..., ::-1]).mean((0, 1))
            lost = (left[0] - left) / left[0]
            self.margins.note(np.abs(lost - loss).min(), f"refreekv {l}")
            first = np.flatnonzero(lost <= loss).max()
            for h in range(model.groups):
                best = inner[top(scores[h], len(inner) - first, self.margins, f"refreekv {l}.{h}")]
                self.keep(l, h, np.r_[:sinks, best, n - window : n])


class SnapKvQuest(Quest):
    def compress(self, budget, window, kernel, **settings):
        SnapKv.compress(self, budget, window, kernel)
        super().compress(**settings)


class SnapKvThink(SnapKv):
    def compress(self, budget, window, kernel, pruned, recent):
        super().compress(budget, window, kernel)
        self.tokens, prompt = budget, self.tokens
        Think.compress(self, pruned, window, recent)
        self.tokens = prompt


class WindowKv(Sequence):
    """Windows of entries by the attention of the last rows: their mean, or the mean of each head's
    upper half; one set for all heads. Layers share budgets in groups, which fall along a line."""

    def compress(self, budget, suffix, size, beta, group, local):
        n, model = self.tokens, self.model
        groups = -(-model.layers // group)
        base = budget - suffix
        line = np.linspace(2 * base - base / beta, base / beta, groups)
        counts = np.array([line[l // group] for l in range(model.layers)])
        counts = whole_numbers(counts * base * model.layers / counts.sum(), base * model.layers)
        for l in range(model.layers):
            sums = np.stack([a[-suffix:, : n - suffix].sum(0) for a in self.prefill.attention[l]])
            scores = np.zeros(n - suffix)
            for begin in range(0, n - suffix, size):
                own = sums[:, begin : begin + size]
                if local:
                    half = max(1, own.shape[1] // 2)
                    scores[begin : begin + size] = np.sort(own, 1)[:, own.shape[1] - half :].mean()
                else:
                    scores[begin : begin + size] = own.mean()
            # Entries of a window are equal: the cut is between windows or within the last one.
            each = np.sort(scores[::size])[::-1]
            at = counts[l] // size
            for i in (at - 1, at):
                if 0 <= i < len(each) - 1:
                    self.margins.note((each[i] - each[i + 1]) / each[i], f"windowkv {l}")
            kept = np.sort(np.argsort(-scores, kind="stable")[: counts[l]])
            for h in range(model.groups):
                self.keep(l, h, np.r_[kept, n - suffix : n])


class Buzz(Sequence):
    """First and last entries, every second of what was kept before, and of what came since the best
    of each cell."""

    def compress(self, budget, sinks, recent, slack, stride):
        self.budget, self.sinks, self.recent, self.slack, self.stride = budget, sinks, recent, slack, stride
        self.old = 0
        self.scores = [list(self.prefill.group(self.prefill.column_sums(l)).sum(1)) for l in range(self.model.layers)]
        self.evict(0)

    def evict(self, slack):
        n = len(self.pos[0][0])
        if n - self.budget <= slack:
            return
        room = self.budget - self.sinks - self.recent
        new = n - self.sinks - self.recent - self.old
        sampled = max(-(-self.old // self.stride), room - new)
        cells = room - sampled
        sample = self.sinks + np.array([i * self.old // sampled for i in range(sampled)], dtype=int)
        begin = self.sinks + self.old
        # The first cells have one entry more where they do not divide.
        edges = [begin + i * (new // cells) + min(i, new % cells) for i in range(cells + 1)]
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                scores = self.scores[l][h]
                best = [a + top(scores[a:b], 1, self.margins, f"buzz {l}.{h}")[0] for a, b in zip(edges, edges[1:])]
                index = np.r_[: self.sinks, sample, best, n - self.recent : n].astype(int)
                self.keep(l, h, index)
                self.scores[l][h] = scores[index]
        self.old = room

    def after_step(self, rows):
        for l, of_layer in enumerate(rows):
            for h, p in enumerate(of_layer):
                self.scores[l][h] = np.append(self.scores[l][h], 0.0) + p.sum(0)
        self.evict(self.slack)


class KvCrush(Sequence):
    """The blocks with the best scores, and of the others evenly spaced ones in the order of how far their bits
    are from an anchor. A bit says whether an entry's score is in the upper half; heads choose together."""

    def compress(self, budget, sinks, recent, block, share, anchor):
        n = self.tokens
        middle = np.arange(sinks, n - recent)
        count, fit = len(middle) // block, (budget - sinks - recent) // block
        assert count * block == len(middle) and fit * block == budget - sinks - recent
        for l in range(self.model.layers):
            scores = self.prefill.column_sums(l).sum(0)[middle]
            stand_ins = int(share * fit)
            best = top(scores.reshape(count, block).sum(1), fit - stand_ins, self.margins, f"blocks {l}")
            bits = np.zeros(len(middle), dtype=int)
            bits[top(scores, len(middle) // 2, self.margins, f"upper half {l}")] = 1
            bits = bits.reshape(count, block)
            against = (bits.mean(0) > 0.5).astype(int) if anchor == "mean" else np.arange(block) % 2
            evicted = np.setdiff1d(np.arange(count), best)
            order = evicted[np.argsort((bits != against).sum(1)[evicted], kind="stable")]
            held = np.append(best, order[np.arange(stand_ins) * (len(order) // stand_ins)])
            keep = [b * block + np.arange(block) for b in np.sort(held)]
            index = np.concatenate([np.arange(sinks), middle[np.concatenate(keep)], np.arange(n - recent, n)])
            for h in range(self.model.groups):
                self.keep(l, h, index)


class Alisa(Sequence):
    """Half of what stays is the last, half has most attention of the last rows."""

    def compress(self, budget, rows):
        for l in range(self.model.layers):
            given = np.stack([a[-rows:].sum(0) for a in self.prefill.attention[l]])
            for h, own in enumerate(self.prefill.group(given).sum(1)):
                scores = protect(own, 0, budget // 2)
                self.keep(l, h, top(scores, budget, self.margins, f"alisa {l}.{h}"))


class LServe(Quest):
    """Half of the heads hold first and last entries alone: those whose mean query and key, at 500
    positions, look least far back, or those with the least gates. In the others a query head reads the
    newest page and those with the best bound of a part; it chooses when the tokens before the newest are a
    multiple of `every`."""

    def compress(self, whole, streaming, sinks, logical, parts, tokens, every, gates=None):
        self.logical, self.page, self.budget, self.every = logical, logical * parts, tokens, every
        self.chosen = {}
        n, model, positions = self.tokens, self.model, np.arange(500)
        reach = np.zeros((model.layers, model.groups))
        for l in range(model.layers):
            queries = model.rotate(self.prefill.queries[l], -np.arange(n)).mean(1)
            for q, query in enumerate(queries):
                key = self.prefill.raw[l][q // model.share].mean(0)
                keys = model.rotate(np.tile(key, (500, 1)), positions)
                given = softmax(model.rotate(query[None], positions[-1:]) @ keys.T / math.sqrt(model.dim))[0]
                reach[l, q // model.share] += np.cumsum(given).mean() / model.share
        reach = reach if gates is None else gates
        best = top(reach.reshape(-1), whole, self.margins, "lserve heads")
        for l in range(model.layers):
            for h in range(model.groups):
                if l * model.groups + h not in best:
                    self.keep(l, h, np.r_[:sinks, n - streaming + sinks : n])

    def reads(self, l, h, q):
        keys, page = self.keys[l][h], self.page
        before = len(keys) - 1
        if before % self.every == 0 or (l, h) not in self.chosen:
            self.chosen[l, h] = None if before <= self.budget else self.pages(l, h, q)
        if self.chosen[l, h] is None:
            return np.ones((len(q), len(keys)), dtype=bool)
        return np.array([np.isin(np.arange(len(keys)) // page, own) for own in self.chosen[l, h]])

    def pages(self, l, h, q):
        keys = self.keys[l][h]
        newest = (len(keys) - 1) // self.page
        parts = keys[: newest * self.page].reshape(newest, -1, self.logical, keys.shape[1])
        low, high = parts.min(2), parts.max(2)
        bounds = np.stack([np.maximum(query * low, query * high).sum(2) for query in q])
        return self.choose(bounds, len(keys) - 1, f"lserve {l}.{h}")

    def choose(self, bounds, before, where):
        """For each query the newest page, and pages by bounds [queries, pages before it, parts]."""
        newest = bounds.shape[1]
        count = min(max(3, self.budget // self.page), newest + 1) - 1
        return [np.append(top(own.max(1), count, self.margins, f"{where}.{g}"), newest)
                for g, own in enumerate(bounds)]


# Heads of which some retrieve; the checkpoint's fingerprint is what `kvgauge inspect` prints.
HEADS = np.random.default_rng(24).uniform(0.05, 1, (4, 2)).astype(np.float32)


def write_heads(path, stage="allocate.headkv"):
    save_file({"heads": HEADS}, path, metadata={
        "kvgauge_calibration": "1", "stage": stage, "stage_version": "1", "params": "{}",
        "model": "6193d2452e6d71261c46f91490427c94b7e2c528a859ff2fc2f7c0cafef09dfa", "model_name": "model",
        "texts": "0", "tokens": "0"})


# Directions of the KV heads, towards the queries.
FILTERS = np.random.default_rng(25).standard_normal((4, 2, 32)).astype(np.float32)


def write_filters(path):
    save_file({f"filters.{l}": f for l, f in enumerate(FILTERS)}, path, metadata={
        "kvgauge_calibration": "1", "stage": "score.qfilters", "stage_version": "2", "params": "{}",
        "model": "6193d2452e6d71261c46f91490427c94b7e2c528a859ff2fc2f7c0cafef09dfa", "model_name": "model",
        "texts": "0", "tokens": "0"})


PUNCTUATION = {ord(c) for c in string.punctuation}


class FastGen(Sequence):
    """Each head has the first of five nested sets of entries that holds enough of what the window gives:
    special tokens, punctuation, what the prompt's rows give most to, the last ones, all."""

    def compress(self, budget, heavy, recent, recovery, window):
        n, model = self.tokens, self.model
        at = np.arange(n)
        special, punctuation = self.prefill.ids >= 256, np.isin(self.prefill.ids, list(PUNCTUATION))
        share = lambda part: math.ceil(part * n)  # noqa: E731
        total, sets = 0, []
        for l in range(model.layers):
            # What an entry gets from a row that can see it, over rows and the query heads of a KV head.
            drawn = self.prefill.group(self.prefill.column_sums(l)).mean(1) / (n - at)
            given = self.prefill.group(np.stack([a[-window:].mean(0) for a in self.prefill.attention[l]])).mean(1)
            for h in range(model.groups):
                where = f"fastgen {l}.{h}"
                best = np.zeros(n, bool)
                best[top(drawn[h], share(heavy), self.margins, where)] = True
                kept = np.zeros(n, bool)
                for policy in (special, punctuation, best, at >= n - share(recent)):
                    kept |= policy
                    held = given[h][kept].sum() / given[h].sum()
                    self.margins.note(abs(held - recovery), where + " recovery")
                    if held >= recovery:
                        break
                else:
                    kept[:] = True
                total += kept.sum()
                sets.append((l, h, np.flatnonzero(kept)))
        assert total <= budget * model.layers * model.groups
        assert len({len(kept) for *_, kept in sets}) > 2
        for l, h, kept in sets:
            self.keep(l, h, kept)


def gaussian(seed, stream, count):
    """Box-Muller on pairs of 53-bit numbers, two words each, in the order of the blocks."""
    words = np.array([philox(seed, stream, i) for i in range(count)], dtype=np.uint64)
    u, v = ((words[:, i] | words[:, i + 1] << np.uint64(32)) >> np.uint64(11) for i in (0, 2))
    u, v = 1 - u * 2.0**-53, v * 2.0**-53
    return np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)


class Random(Sequence):
    """24 bits of a draw for each layer, head and position."""

    def compress(self, budget, sinks, recent, seed):
        own = sample_seed(seed, "prompt")
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                stream = l * self.model.groups + h
                draws = uniform(own, stream, range(self.tokens))
                self.keep(l, h, top(protect(draws, sinks, recent), budget, self.margins, f"random {l}.{h}"))


FORMULAS = "the paper's formulas in NumPy, float64"
WINDOW = dict(window=32, kernel=5)
# Name, what to ask the program for, the oracle in words, its class and settings.
CASES = [
    ("kvcrush",
     dict(method="kvcrush", set=["reduce.block=6", "reduce.anchor=mean"]),
     "KVCrushAlgorithm of openvinotoolkit/openvino.genai, restated in NumPy; what stays for others is in the budget",
     KvCrush, dict(budget=90, sinks=4, recent=8, block=6, share=0.25, anchor="mean")),
    ("kvcrush_alternating",
     dict(method="kvcrush", set=["reduce.block=6", "reduce.anchor=alternating", "reduce.share=0.5"]),
     "KVCrushAlgorithm of openvinotoolkit/openvino.genai, restated in NumPy; what stays for others is in the budget",
     KvCrush, dict(budget=90, sinks=4, recent=8, block=6, share=0.5, anchor="alternating")),
    ("full", dict(method="full", budget="none"), "the model in NumPy, float64", Sequence, {}),
    ("keyformer", dict(method="keyformer", set=["score.noise=false", "score.tau=2"]),
     "keyformer-llm's accumulated scores without their noise, restated in NumPy",
     Keyformer, dict(budget=90, window=64, tau=2.0, decode_tau=1.5, recent_share=0.3)),
    ("keyformer_noise", dict(method="keyformer", set=["score.tau=2"]),
     "keyformer-llm's accumulated scores, restated in NumPy; draws by Philox-4x32-10 restated in Python",
     Keyformer, dict(budget=90, window=64, tau=2.0, decode_tau=1.5, recent_share=0.3, seed=0)),
    ("scissorhands", dict(method="scissorhands", set=["score.window=8"]), FORMULAS,
     Scissorhands, dict(budget=90, window=8, recent=10)),
    ("nacl", dict(method="nacl", set=["reduce.random=0"]),
     "kvcache_eviction of PaddlePaddle/Research's NACL without its draws, restated in NumPy",
     Nacl, dict(budget=90, sinks=4, window=32)),
    ("nacl_drawn", dict(method="nacl"),
     "kvcache_eviction of PaddlePaddle/Research's NACL, restated in NumPy; draws by Philox-4x32-10 restated in Python",
     Nacl, dict(budget=90, sinks=4, window=32, drawn=0.37, seed=0)),
    ("sepllm", dict(method="sepllm"), FORMULAS + "; separators by the bytes that tokens stand for",
     SepLlm, dict(budget=90, sinks=4, recent=45)),
    ("zigzagkv", dict(method="zigzagkv"), FORMULAS,
     ZigZagKv, dict(budget=90, mass=0.9, floor=0.2, **WINDOW)),
    ("headkv", dict(method="headkv", set=["allocate.calibration={inputs}/headkv.safetensors"]),
     "ReasonSnapKVCluster of FYYFU/HeadKV, restated in NumPy; a KV head has the mean of its query heads",
     HeadKv, dict(budget=90, window=32, kernel=7, beta=1.2, importance=HEADS.astype(np.float64))),
    ("fastgen", dict(method="fastgen", budget="280", set=["protect.sinks=0", "score.heavy=0.1", "score.recent=0.1", "allocate.recovery=0.4"]),
     FORMULAS + "; recovery measured on the window's rows, one set for a KV head",
     FastGen, dict(budget=280, heavy=0.1, recent=0.1, recovery=0.4, window=32)),
    ("windowkv", dict(method="windowkv", set=["allocate.group=2"]), "optim996/WindowKV, aggregation, restated in NumPy",
     WindowKv, dict(budget=90, suffix=16, size=8, beta=14, group=2, local=False)),
    ("windowkv_localisation",
     dict(method="windowkv", set=["allocate.group=2", "score.window=32", "score.mode=localisation"]),
     "optim996/WindowKV, localisation, restated in NumPy",
     WindowKv, dict(budget=90, suffix=32, size=8, beta=14, group=2, local=True)),
    ("buzz", dict(method="buzz", budget="64", set=["trigger.slack=2"]),
     "JunqiZhao888/buzz-llm with accumulated scores, restated in NumPy; as many cells as the budget has room for",
     Buzz, dict(budget=64, sinks=4, recent=4, slack=2, stride=2)),
    ("lserve",
     dict(method="lserve", budget="166",
          set=["allocate.streaming=32", "protect.sinks=8", "read.logical=4", "read.tokens=64"]),
     "kvpress's rule for heads and mit-han-lab/omniserve's page selector (02b2925), restated in NumPy",
     LServe, dict(whole=4, streaming=32, sinks=8, logical=4, parts=4, tokens=64, every=4)),
    ("alisa", dict(method="alisa", public_code=False), FORMULAS, Alisa, dict(budget=90, rows=32)),
    ("random", dict(method="random"), "Philox-4x32-10 restated in Python",
     Random, dict(budget=90, sinks=4, recent=32, seed=0)),
    ("lava", dict(method="lava"), "LavaKVCluster of MGDDestiny/Lava, restated in NumPy",
     Lava, dict(budget=90, window=32, kernel=7, floor=0.2)),
    ("refreekv", dict(method="refreekv", budget="none"),
     "H2OKVCluster and last_token_attn of Patrick-Ni/ReFreeKV cc68486, restated in NumPy; a KV head keeps one set",
     ReFreeKv, dict(loss=0.05, window=8)),
    ("refreekv_recency", dict(method="refreekv", budget="none",
                              set=["score.id=recency", "protect.sinks=4", "protect.recent=0", "reduce.loss=0.01"]),
     "StreamingLLMKVCluster and last_token_attn of Patrick-Ni/ReFreeKV cc68486, restated in NumPy",
     ReFreeKv, dict(loss=0.01, sinks=4)),
    ("snapkv_quest", dict(method="snapkv_quest", set=["read.tokens=48"]), FORMULAS + "; both stages after each other",
     SnapKvQuest, dict(budget=90, page=16, tokens=48, dense_layers=2, **WINDOW)),
]
