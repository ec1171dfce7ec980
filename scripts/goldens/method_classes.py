# SPDX-License-Identifier: Apache-2.0
"""Methods that keep entries of a head in several codecs, after their papers and in NumPy. A head's
entries come class by class, each in the order of positions, then those that wait uncoded.
"""

import math

import numpy as np

import method_codecs as codecs
from method_oracles import Sequence, top
from method_selection import SEPARATORS

F = np.float32


def unsure_codes(x, bits, group, axis, off):
    """Numbers whose code may turn where x is off by that share: it, a scale or a zero may round another way."""
    rows = np.asarray(x, np.float64) if axis == 0 else np.asarray(x, np.float64).T
    unsure = np.zeros(rows.shape, bool)
    for i in range(0, len(rows), group):
        part = rows[i : i + group]
        low, high = part.min(0), part.max(0)
        scale = (high - low) / (2**bits - 1)
        code = lambda low, scale: (part - codecs.half(low)) / codecs.half(scale)
        plain = code(low, scale)
        own = np.abs(np.abs(plain - np.floor(plain)) - 0.5) < 30 * off
        for near_low in (1 - off, 1 + off):
            for near_scale in (1 - off, 1 + off):
                own |= np.rint(code(low * near_low, scale * near_scale)) != np.rint(plain)
        unsure[i : i + group] = own
    return unsure if axis == 0 else unsure.T


def classed_case(sequence, steps):
    """As sequence_case; numbers whose codes are unsure are NaN, and nothing compares them."""
    sequence.decode(steps)
    tensors, last = {}, sequence.model.layers - 1
    for l in range(last + 1):
        for h in range(sequence.model.groups):
            tensors[f"kept.{l}.{h}"] = sequence.pos[l][h]
    for h in range(sequence.model.groups):
        for side, what in enumerate((sequence.keys, sequence.values)):
            rows = what[last][h].copy()
            for i, position in enumerate(sequence.pos[last][h].tolist()):
                rows[i, sorted(sequence.unsure.get((h, side, position), ()))] = np.nan
            tensors[f"{'kv'[side]}.{last}.{h}"] = rows
    return tensors, sequence.decoded


FORMULAS = "the paper's formulas in NumPy, codes float32 with f16 scales"


class Classed(Sequence):
    """Parts of each head: positions, keys and values as they are read, and how many of them are coded."""

    def start(self, bits, group=None, by_channel=False, wait=3, recent=0):
        """bits: of keys and values, class by class; 0: uncoded."""
        self.bits, self.group, self.by_channel = bits, group or self.model.dim, by_channel
        self.wait, self.recent = wait, recent
        self.unsure = {}  # of the last layer, by head, side and position: dims
        self.scales = {}  # (l, h, side): what channels of coded rows are divided by
        empty = lambda: [np.zeros(0, int), np.zeros((0, self.model.dim)), np.zeros((0, self.model.dim)), [0, 0]]
        self.parts = [[[empty() for _ in bits] + [[self.pos[l][h], self.keys[l][h], self.values[l][h], [0, 0]]]
                       for h in range(self.model.groups)] for l in range(self.model.layers)]

    def join(self, l, h):
        for i, what in enumerate((self.pos, self.keys, self.values)):
            what[l][h] = np.concatenate([part[i] for part in self.parts[l][h]])

    def append(self, l, h, raw, v):
        part = self.parts[l][h][-1]
        part[0] = np.append(part[0], self.tokens)
        part[1] = np.vstack([part[1], self.model.rotate(raw, [self.tokens])])
        part[2] = np.vstack([part[2], v])
        self.join(l, h)

    def keep(self, l, h, index):
        """Codes along an entry stay as they are."""
        kept, begin = set(index.tolist()), 0
        for part in self.parts[l][h]:
            own = [i for i in range(len(part[0])) if begin + i in kept]
            begin += len(part[0])
            part[:] = part[0][own], part[1][own], part[2][own], [min(n, len(own)) for n in part[3]]
        self.join(l, h)

    def coded(self, l, h, side, bits, rows, positions, by_channel):
        scale = self.scales.get((l, h, side), np.ones(self.model.dim, F))
        x = (rows.astype(F) / scale).astype(F)
        group = 64 if by_channel else self.group
        if l == self.model.layers - 1:
            # What is decoded has seen codes of other layers, of which some may have turned.
            for off, some in ((3e-6, positions < len(self.prefill.ids)), (2e-3, positions >= len(self.prefill.ids))):
                unsure = unsure_codes(x, bits, group, 0 if by_channel else 1, off)
                for i, j in np.argwhere(unsure & some[:, None]).tolist():
                    self.unsure.setdefault((h, side, int(positions[i])), set()).add(j)
        return (codecs.by_channel if by_channel else codecs.by_token)(x, bits, group) * scale

    def seal(self, l, h, c):
        """Whatever is due of a part: all, or groups of 64 where a scale is of a channel."""
        part = self.parts[l][h][c]
        for side in (0, 1):
            bits, by_channel = self.bits[c][side], self.by_channel and side == 0
            done, n = part[3][side], len(part[0])
            end = done + (n - done) // 64 * 64 if by_channel else n
            if bits and end > done:
                part[1 + side] = part[1 + side].copy()
                part[1 + side][done:end] = self.coded(l, h, side, bits, part[1 + side][done:end],
                                                      part[0][done:end], by_channel)
                part[3][side] = end

    def move(self, l, h, target):
        """target: the class of each entry, or -1: where it is."""
        parts, wanted, begin = self.parts[l][h], [[] for _ in self.parts[l][h]], 0
        for c, part in enumerate(parts):
            for i in range(len(part[0])):
                to = int(target[begin + i])
                wanted[c if to < 0 else to].append((part[0][i], c, i))
            begin += len(part[0])
        fresh = []
        for c, some in enumerate(wanted):
            some.sort()
            stays = [i for i, (_, was, _) in enumerate(some) if was == c]
            anew = stays != list(range(len(stays)))  # an older entry came: all are coded again
            assert not (anew and self.by_channel)
            take = lambda side: np.array([parts[was][side][i] for _, was, i in some]).reshape(-1, self.model.dim)
            done = [0, 0] if anew else [min(n, len(stays)) for n in parts[c][3]]
            fresh.append([np.array([p for p, _, _ in some], int), take(1), take(2), done])
        self.parts[l][h] = fresh
        for c in range(len(self.bits)):
            self.seal(l, h, c)
        self.join(l, h)

    def classed(self, l, h):
        return len(self.pos[l][h]) - len(self.parts[l][h][-1][0])

    def due(self, l, h):
        return len(self.parts[l][h][-1][0]) >= self.wait + self.recent


class Tiers(Classed):
    """The better the score, the better the tier: of all entries anew (`again`), or of new ones."""

    def compress(self, first, by="share", mean=False, again=False, even=False, balance=0, mass=1.0, **layout):
        self.first, self.by, self.mean, self.again, self.mass = first, by, mean, again, mass
        self.start(**layout)
        n, model = self.tokens, self.model
        self.scores = []
        for l in range(model.layers):
            sums = self.prefill.group(self.prefill.column_sums(l)).sum(1)
            self.scores.append(list(sums / (n - np.arange(n)) if mean else sums))
            for h in range(model.groups):
                largest = lambda x: np.maximum(np.abs(x.astype(F)).max(0), F(1e-5))
                self.evict(l, h)
                if even:
                    self.scales[l, h, 1] = np.sqrt(largest(self.values[l][h]))
                if balance:
                    asked = self.prefill.queries[l][h * model.share : (h + 1) * model.share, -balance:]
                    self.scales[l, h, 0] = np.sqrt(largest(self.keys[l][h]) / largest(asked.reshape(-1, model.dim)))
                self.classify(l, h)

    def protected(self, l, h):
        scores = self.scores[l][h].copy()
        if self.recent:
            scores[self.pos[l][h] >= self.tokens - self.recent] = np.inf
        return scores

    def covering(self, scores, share, where):
        mass = np.where(np.isinf(scores), 0, scores)
        sums = np.cumsum(-np.sort(-mass))
        self.margins.note(np.abs(sums / sums[-1] - share).min(), where)
        return int(np.isinf(scores).sum() + (sums < share * sums[-1]).sum() + 1)

    def evict(self, l, h):
        if self.mass >= 1:
            return
        scores, where = self.protected(l, h), f"kept {l}.{h}"
        index = top(scores, self.covering(scores, self.mass, where), self.margins, where)
        self.scores[l][h] = self.scores[l][h][index]
        self.keep(l, h, index)

    def classify(self, l, h):
        n, classed, where = len(self.pos[l][h]), self.classed(l, h), f"tiers {l}.{h}"
        begin, end = 0 if self.again else classed, n - min(self.recent, n - classed)
        target, scores = np.full(n, -1), self.protected(l, h)[begin:end]
        if end <= begin:
            return
        target[begin:end] = len(self.bits) - 1
        count = (len(scores) - math.floor((1 - self.first) * len(scores) + 1e-9) if self.by == "share"
                 else self.covering(scores, self.first, where))
        best = top(scores, count, self.margins, where)
        target[begin + best] = 0
        of = dict(zip(self.pos[l][h].tolist(), self.scores[l][h]))
        self.move(l, h, target)
        self.scores[l][h] = np.array([of[p] for p in self.pos[l][h].tolist()])

    def after_step(self, rows):
        for l, of_layer in enumerate(rows):
            for h, p in enumerate(of_layer):
                scores = np.append(self.scores[l][h], 0.0)
                seen = self.tokens - self.pos[l][h] if self.mean else 1
                self.scores[l][h] = scores + (p.sum(0) - scores) / seen if self.mean else scores + p.sum(0)
                self.evict(l, h)
        for l in range(self.model.layers):
            if any(self.due(l, h) for h in range(self.model.groups)):
                for h in range(self.model.groups):
                    self.classify(l, h)


class OutlierTokens(Classed):
    """The first marks and separators of the prompt stay as they are."""

    def compress(self, first, **layout):
        self.start(**layout)
        marked = [i for i, t in enumerate(self.prefill.ids) if t in SEPARATORS or t >= 256]
        # Without so many, the first of the others: all of them score 0.
        others = [i for i in range(self.tokens) if i not in marked]
        target = np.ones(self.tokens, int)
        target[(marked + others)[:first]] = 0
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                self.move(l, h, target)

    def after_step(self, rows):
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                if self.due(l, h):
                    target = np.full(len(self.pos[l][h]), -1)
                    target[self.classed(l, h) :] = 1
                    self.move(l, h, target)


class Progressive(Classed):
    """PM-KVQ: the longer a head, the fewer bits all of its entries have; the first stay as they are."""

    def compress(self, capacity, sinks, **layout):
        self.capacity, self.sinks = capacity, sinks
        self.start(**layout)
        self.classify()

    def classify(self):
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                n = len(self.pos[l][h])
                target = np.full(n, sum(n > self.capacity * 2**i for i in range(3)))
                target[: self.sinks] = 0
                self.move(l, h, target)

    def after_step(self, rows):
        if self.due(0, 0):
            self.classify()


class Qaq(Classed):
    """Quantizer._calc_quantization_bits of ClubieDong/QAQ-KVCacheQuantization, level head, without outliers."""

    def compress(self, error, window, least, most, **layout):
        levels = range(least, most + 1)
        self.start(bits=[(k, v) for k in levels for v in levels], **layout)
        n, model = self.tokens, self.model
        for l in range(model.layers):
            for h in range(model.groups):
                group = slice(h * model.share, (h + 1) * model.share)
                norm = np.linalg.norm(self.prefill.queries[l][group, -window:], axis=-1).mean()
                paid = self.prefill.attention[l][group, -window:].max((0, 1))
                allowed = (math.sqrt(12.0 / norm * math.log(n**3 / (n - 1) * error**2 + 1)),
                           math.sqrt(12.0 / n) * error / np.maximum(paid, 1e-300))
                target = np.zeros(n, int)
                for rows, most_error in zip((self.keys[l][h], self.values[l][h]), allowed):
                    bits = np.log2((rows.max(1) - rows.min(1)) / (2 * most_error) + 1)
                    near = np.clip(bits, least - 0.5, most + 0.5)
                    self.margins.note(np.abs(near - np.rint(near)).min(), f"bits {l}.{h}")
                    bits = np.clip(np.ceil(bits), least, most).astype(int)
                    bits[n - window + 1 :] = most
                    target = target * len(levels) + bits - least
                self.move(l, h, target)

    def after_step(self, rows):
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                if self.due(l, h):
                    target = np.full(len(self.pos[l][h]), -1)
                    target[self.classed(l, h) :] = len(self.bits) - 1
                    self.move(l, h, target)


class Thoughts(Classed):
    """ThinKV. A thought begins every `period` tokens; the share of entries that get less than a hundredth
    of the most attention says of which kind it is. A thought of transition moves all before it to the next
    number of the schedule; above the budget the oldest of the least important goes on with it. All heads of
    a layer keep the same tokens, those nearest to the centres of their keys, taken together."""

    TRANSITION, EXECUTION, REASONING, PROMPT = range(4)

    def compress(self, budget, period, schedule, dense, sparse, rounds=10, **layout):
        self.budget, self.period, self.schedule, self.rounds = budget, period, schedule, rounds
        self.dense, self.sparse = dense, sparse
        self.start(**layout)
        self.asked = [None] * self.model.layers
        self.seen = []  # sparsities, for whoever sets thresholds
        of_prompt = {p: (p // period * period, self.PROMPT) for p in range(self.tokens)}
        self.thoughts = [dict(of_prompt) for _ in range(self.model.layers)]
        for l in range(self.model.layers):
            self.fit(l)
            for h in range(self.model.groups):
                self.classify(l, h)

    def answer(self, l, queries):
        self.asked[l] = queries
        return super().answer(l, queries)

    def sparsity(self, l):
        """Of the newest row: logits by the largest of a group's queries, shares, their mean over groups."""
        shares = []
        for h, own in enumerate(self.asked[l]):
            logits = (own @ self.keys[l][h].T).max(0) / math.sqrt(self.model.dim)
            e = np.exp(logits - logits.max())
            shares.append(e / e.sum())
        mean = np.mean(shares, 0)
        self.margins.note(np.abs(mean / mean.max() - 0.01).min() / 0.01, f"sparsity {l} of {self.tokens}")
        return (mean < 0.01 * mean.max()).mean()

    def segments(self, l):
        """Indices of entries by thought, the oldest thought first."""
        found = {}
        for i, position in enumerate(self.pos[l][0].tolist()):
            found.setdefault(self.thoughts[l][position], []).append(i)
        return sorted(found.items())

    def lower(self, size):
        """The next number of the schedule; the last one is not left."""
        return next((r for r in self.schedule if r < size), min(size, self.schedule[-1]))

    def nearest(self, l, members, count):
        joint = np.concatenate([self.keys[l][h][members] for h in range(self.model.groups)], 1)
        centres = joint[[c * len(members) // count for c in range(count)]].copy()

        def owners():
            far = ((joint[:, None] - centres[None]) ** 2).sum(-1)
            near = np.sort(far, 1)[:, :2]
            if count > 1:
                self.margins.note(((near[:, 1] - near[:, 0]) / spread).min(), f"owner {l} of {self.tokens}")
            return far.argmin(1)

        spread = ((joint - joint.mean(0)) ** 2).sum(1).mean()
        owner = owners()
        for _ in range(self.rounds):
            for c in range(count):
                if (owner == c).any():
                    centres[c] = joint[owner == c].mean(0)
            owner = owners()
        # The mean of two is as far from both: as near as that the first is taken.
        far = ((centres[:, None] - joint[None]) ** 2).sum(-1)
        beyond = far - far.min(1, keepdims=True) - 1e-3 * spread
        self.margins.note(np.abs(beyond).min() / spread, f"centre {l} of {self.tokens}")
        return [members[i] for i in sorted(set((beyond <= 0).argmax(1).tolist()))]

    def fit(self, l, transition=False):
        found, n = self.segments(l), self.tokens
        if not found:
            return
        running = found[-1][0] if found[-1][0][1] != self.PROMPT else None
        size = {thought: len(members) for thought, members in found}
        if transition:
            for thought in size:
                if thought != running and thought[1] != self.PROMPT:
                    size[thought] = self.lower(size[thought])
        order = sorted(size, key=lambda thought: (thought == running, thought[1], thought[0]))
        excess = lambda: sum(size.values()) - self.budget
        for least in (False, True):
            for thought in order:
                while excess() > 0 and size[thought] > 0:
                    to = self.lower(size[thought]) if not least else max(0, size[thought] - excess())
                    if to == size[thought]:
                        break
                    size[thought] = to
        kept = []
        for thought, members in found:
            if size[thought] == len(members):
                kept += members
            elif size[thought]:
                kept += self.nearest(l, members, size[thought])
        if len(kept) < len(self.pos[l][0]):
            for h in range(self.model.groups):
                self.keep(l, h, np.sort(kept))

    def classify(self, l, h):
        n, classed = len(self.pos[l][h]), self.classed(l, h)
        target = np.full(n, -1)
        kinds = [self.thoughts[l][p][1] for p in self.pos[l][h][classed:].tolist()]
        target[classed:] = [0 if kind >= self.EXECUTION else 1 for kind in kinds]
        self.move(l, h, target)

    def after_step(self, rows):
        newest = self.tokens - 1
        for l in range(self.model.layers):
            start, kind = max(self.thoughts[l][p] for p in self.pos[l][0][self.pos[l][0] < newest].tolist())
            begins = kind == self.PROMPT or newest - start >= self.period
            if begins:
                share = self.sparsity(l)
                self.seen.append(share)
                kind = (self.TRANSITION if share > self.sparse else
                        self.EXECUTION if share < self.dense else self.REASONING)
                start = newest
            self.thoughts[l][newest] = (start, kind)
            if begins and kind == self.TRANSITION or len(self.pos[l][0]) > self.budget:
                self.fit(l, begins and kind == self.TRANSITION)
        for l in range(self.model.layers):
            if any(self.due(l, h) for h in range(self.model.groups)):
                for h in range(self.model.groups):
                    self.classify(l, h)


WAIT = ["store.wait=3"]
ROUGH = dict(budget="none", tolerance=2e-3)  # scales may round to another f16 than those of float64
CASES = [
    ("mikv", dict(method="mikv", set=WAIT, public_code=False) | ROUGH, FORMULAS,
     Tiers, dict(first=0.2, bits=[(0, 0), (2, 2)], again=True, balance=32)),
    ("zipcache", dict(method="zipcache", set=WAIT) | ROUGH,
     FORMULAS + ", a scale of a channel for 64 entries; every row is a probe",
     Tiers, dict(first=0.6, bits=[(4, 4), (2, 2)], by_channel=True, mean=True, even=True)),
    # Shares at which neighbouring sums are far enough apart.
    ("leankv", dict(method="leankv", set=WAIT + ["reduce.mass=0.8", "store.first=0.5"], public_code=False) | ROUGH,
     FORMULAS,
     Tiers, dict(first=0.5, by="coverage", bits=[(8, 4), (4, 2)], again=True, mean=True, mass=0.8, recent=32)),
    ("prefixquant", dict(method="prefixquant", set=WAIT) | ROUGH,
     FORMULAS + "; marks and separators by the bytes that tokens stand for",
     OutlierTokens, dict(first=4, bits=[(0, 0), (4, 4)])),
    # 300 entries fit with 8 bits, 303 with 4.
    ("pm_kvq", dict(method="pm_kvq", set=WAIT + ["store.capacity=151"]) | ROUGH,
     FORMULAS + "; thu-nics/PM-KVQ, progressive_quantized_cache.py, memory counted in entries",
     Progressive, dict(capacity=151, sinks=1, bits=[(0, 0), (8, 8), (4, 4), (2, 2)])),
    # Codes of 1 bit turn what is decoded after them too far.
    ("qaq", dict(method="qaq", set=["store.error=0.5"], steps=0) | ROUGH,
     "Quantizer of ClubieDong/QAQ-KVCacheQuantization restated in NumPy, level head, without outliers; codes "
     "float32 with f16 scales, from the least number",
     Qaq, dict(error=0.5, window=5, least=1, most=4)),
    ("thinkv",
     dict(method="thinkv", set=WAIT + ["score.period=4", "trigger.steps=4", "score.dense=0.35", "score.sparse=0.6",
                                       'reduce.schedule="64"', "store.key_axis=token", "store.key_group=0",
                                       "store.value_group=0"],
          steps=10, public_code=False) | ROUGH | dict(budget="400"), FORMULAS,
     Thoughts, dict(budget=400, period=4, schedule=[64], dense=0.35, sparse=0.6, bits=[(4, 4), (2, 2)])),
    # Codes would move centres.
    ("thinkv_steps",
     dict(method="thinkv", set=WAIT + ["score.period=8", "trigger.steps=8", "score.dense=0.35", "score.sparse=0.6",
                                       "reduce.schedule=6,4,2", "store.first_key_bits=0", "store.first_value_bits=0",
                                       "store.last_key_bits=0", "store.last_value_bits=0"],
          steps=28, public_code=False, budget="90"), "the paper's formulas in NumPy, float64",
     Thoughts, dict(budget=90, period=8, schedule=[6, 4, 2], dense=0.35, sparse=0.6, bits=[(0, 0), (0, 0)])),
]
