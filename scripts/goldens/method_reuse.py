# SPDX-License-Identifier: Apache-2.0
"""Prompts that are put together of caches of chunks, in a NumPy forward (float64).

CacheBlend is restated from its authors' vLLM (YaoJiayi/CacheBlend 55ad026, llama.py and the xformers
backend): `collect` takes keys before rotation and values of each chunk, read behind the prompt's first
token; layers below the checked one compute all tokens; there the squared distances of values choose
int(total * ratio) tokens, whose rows go on, and all keys and values are the new ones; above it the
chosen tokens' keys and values replace the stored ones. Attention is causal by position, and the whole
question goes on (the stage's departures say where the code differs).

APE is restated from Infini-AI-Lab/APE 52513bc, ape_llama.py: `prefill_prefix`, `prefill_context` for each
context behind the prefix, and `prefill_query` for what follows, decoded tokens included.

KVLink is restated from UCSB-NLP-Chang/KVLink 7400d92, nq_eval.py and titan_preprocessor.py: one pass
over the whole prompt with its link tokens, masked by `make_segment_mask`, positions counted through.
Chunks are segments, what begins the prompt, links and the question are segment 0.

Cache-Craft is restated from its paper's equations 3 to 14 as Kevin-Yang1/OmniKV 1415cbb has them
(baselines/cachecraft, utils.py and controller.py), on the whole attention of the earlier prompts.
"""

import math
import types

import numpy as np

from method_oracles import Sequence, philox, softmax, top


class Joined(Sequence):
    """Chunks of `chunk` tokens, of which the last, cut one is the question."""

    layer = 0

    def __init__(self, prefill, margins, **settings):
        self.model, self.margins = prefill.model, margins
        self.settings = s = types.SimpleNamespace(**settings)
        model, ids = self.model, np.asarray(prefill.ids)
        n = self.tokens = len(ids)
        self.decoded = []
        self.end = (n - 1) // s.chunk * s.chunk
        self.begins = list(range(0, self.end, s.chunk))
        stored = [self.alone(ids, b, b + s.chunk) for b in self.begins]
        old_k = [np.concatenate([one[0][l] for one in stored], 1) for l in range(model.layers)]
        old_v = [np.concatenate([one[1][l] for one in stored], 1) for l in range(model.layers)]
        old_k = [model.rotate(k, np.arange(self.end)) for k in old_k]
        places = np.arange(n) if self.layer else self.chosen(None, None)
        h = model.w["model.embed_tokens.weight"][ids[places]]
        self.keys, self.values = [], []
        for l in range(model.layers):
            x = model.norm(h, f"model.layers.{l}.input_layernorm.weight")
            q, k, v = (model.split(x, l, m, c) for m, c in zip("qkv", (model.heads, model.groups, model.groups)))
            q, k = model.rotate(q, places), model.rotate(k, places)
            if self.layer and l == self.layer:
                places = self.chosen(v, old_v[l])
                h, q = h[places], q[:, places]
            elif l >= self.layer:
                k, v = (self.put(new, old, places) for new, old in ((k, old_k[l]), (v, old_v[l])))
            self.keys.append(list(k))
            self.values.append(list(v))
            scores = q @ np.repeat(k, model.share, 0).transpose(0, 2, 1) / math.sqrt(model.dim)
            seen = np.arange(n)[None, :] <= places[:, None]
            o = softmax(np.where(seen, scores, -np.inf)) @ np.repeat(v, model.share, 0)
            o = o.transpose(1, 0, 2).reshape(len(places), -1)
            h = model.mlp(h + o @ model.w[f"model.layers.{l}.self_attn.o_proj.weight"].T, l)
        self.pos = [[np.arange(n)] * model.groups for _ in range(model.layers)]
        self.prefill = types.SimpleNamespace(ids=ids, model=model, last=model.logits(h)[-1])

    def alone(self, ids, begin, end):
        """Keys before rotation and values of a chunk, by layer."""
        lead = self.settings.lead if begin else 0
        model, keys, values = self.model, [], []
        read = np.concatenate([ids[:lead], ids[begin:end]])
        places = np.arange(len(read))

        def attend(l, q, k, v):
            keys.append(k[:, lead:])
            values.append(v[:, lead:])
            q, k = model.rotate(q, places), model.rotate(k, places)
            scores = q @ np.repeat(k, model.share, 0).transpose(0, 2, 1) / math.sqrt(model.dim)
            return softmax(np.where(places[None, :] <= places[:, None], scores, -np.inf)) @ np.repeat(v, model.share, 0)

        model.run(read, 0, attend)
        return keys, values

    def put(self, new, old, places):
        whole = np.concatenate([old, np.zeros((len(old), self.tokens - self.end, self.model.dim))], 1)
        whole[:, places] = new
        return whole


class FirstTokens(Joined):
    """The first tokens of each chunk but the one that begins the prompt."""

    def chosen(self, fresh, old):
        again = [np.arange(b, min(b + self.settings.again, self.end)) for b in self.begins[1:]]
        return np.concatenate(again + [np.arange(self.end, self.tokens)])


class CacheBlend(Joined):
    layer = 1

    def chosen(self, fresh, old):
        distance = ((fresh[:, : self.end] - old) ** 2).sum((0, 2))
        count = int(self.end * self.settings.share)
        first = self.begins[1]  # what begins the prompt is what it was
        assert np.abs(distance[:first]).max() < 1e-20
        kept = first + top(distance[first:], count, self.margins, "cacheblend")
        return np.append(kept, np.arange(self.end, self.tokens))


class CacheCraft(Joined):
    """Chunks come from earlier prompts that hold them in drawn orders behind the first chunk."""

    def alone(self, ids, begin, end):
        if begin == 0:
            self.read_earlier(ids)
            return super().alone(ids, 0, end)
        return self.left[begin]

    def order(self, request):
        """Fisher and Yates with 64-bit words of Philox, the low half first."""
        words = [w for i in range(32) for w in philox(self.settings.seed, request, i)]
        order = list(range(1, len(self.begins)))
        for i in range(len(order), 1, -1):
            low, high = words.pop(0), words.pop(0)
            j = (low | high << 32) % i
            order[i - 1], order[j] = order[j], order[i - 1]
        return order

    def read_earlier(self, ids):
        s, model, chunk = self.settings, self.model, self.settings.chunk
        found = {begin: [] for begin in self.begins[1:]}
        for request in range(s.requests):
            order = [0] + self.order(request)
            read = np.concatenate([ids[chunk * t : chunk * (t + 1)] for t in order])
            places, keys, values, seen = np.arange(len(read)), [], [], []

            def attend(l, q, k, v):
                keys.append(k)
                values.append(v)
                q, k = model.rotate(q, places), model.rotate(k, places)
                scores = q @ np.repeat(k, model.share, 0).transpose(0, 2, 1) / math.sqrt(model.dim)
                p = softmax(np.where(places[None, :] <= places[:, None], scores, -np.inf))
                seen.append(p.mean(0))
                return p @ np.repeat(v, model.share, 0)

            model.run(read, 0, attend)
            block = lambda p, i, j: p[chunk * i : chunk * (i + 1), chunk * j : chunk * (j + 1)]
            for at, text in enumerate(order[1:], 1):
                old = [i for i in range(0 if s.beginning else 1, at)]
                inter = {order[i]: [block(p, at, i) for p in seen] for i in old}
                a = np.mean([sum(inter[j][l].sum() / chunk**2 for j in inter) for l in range(model.layers)])
                b = np.mean([block(p, at, at).sum() / chunk**2 for p in seen])
                cci = 1 / (1 + np.exp(-a / b))
                total = sum(np.sum(inter[j]) for j in inter)
                common = [j for j in inter if j < text]
                beta = sum(np.sum(inter[j]) for j in common) / total if inter else 1.0
                pairs = [x > y for i, x in enumerate(common) for y in common[i + 1 :]]
                gamma = np.mean(pairs) if pairs else 0.0
                cfo = min(s.alpha * cci * (1 - beta * (1 - gamma)), 1.0)
                tokens = sum(np.mean(inter[j], 0).sum(1) for j in inter) if inter else np.zeros(chunk)
                rows = slice(chunk * at, chunk * (at + 1))
                left = [k[:, rows] for k in keys], [v[:, rows] for v in values]
                found[chunk * text].append((cfo, request, tokens, left))
        self.left, self.again = {}, []
        for begin, ways in found.items():
            ways.sort(key=lambda way: way[:2])
            cfo, _, tokens, self.left[begin] = ways[0]
            if len(ways) > 1 and ways[1][0] != cfo:
                self.margins.note(ways[1][0] - cfo, "cache_craft request")
            wanted = cfo * chunk
            if 0 < cfo < 1:
                self.margins.note(min(wanted % 1, 1 - wanted % 1) / chunk, "cache_craft share")
            count = math.ceil(wanted - 1e-9)
            self.again.append(begin + top(tokens, count, self.margins, "cache_craft"))

    def chosen(self, fresh, old):
        return np.concatenate(self.again + [np.arange(self.end, self.tokens)]).astype(int)


class Ape(Joined):
    """Contexts side by side behind the first chunk."""

    def __init__(self, prefill, margins, **settings):
        self.model, self.margins = prefill.model, margins
        self.settings = s = types.SimpleNamespace(**settings)
        model, ids = self.model, np.asarray(prefill.ids)
        n = self.tokens = len(ids)
        self.decoded, self.first, self.end = [], s.chunk, (n - 1) // s.chunk * s.chunk
        s.lead = s.chunk
        stored = [self.alone(ids, b, b + s.chunk) for b in range(0, self.end, s.chunk)]
        places = np.concatenate([np.arange(s.chunk)] + [s.chunk + np.arange(s.chunk)] * (len(stored) - 1))
        rows = 2 * s.chunk + np.arange(n - self.end)
        self.place = rows[-1] + 1
        h = model.w["model.embed_tokens.weight"][ids[self.end :]]
        self.keys, self.values = [], []
        for l in range(model.layers):
            x = model.norm(h, f"model.layers.{l}.input_layernorm.weight")
            q, k, v = (model.split(x, l, m, c) for m, c in zip("qkv", (model.heads, model.groups, model.groups)))
            old_k = model.rotate(np.concatenate([one[0][l] for one in stored], 1), places)
            old_v = np.concatenate([one[1][l] for one in stored], 1)
            self.keys.append(list(np.concatenate([old_k, model.rotate(k, rows)], 1)))
            self.values.append(list(np.concatenate([old_v, v], 1)))
            q, o = model.rotate(q, rows), []
            for i in range(len(rows)):
                held = self.end + i + 1
                queries = q[:, i].reshape(model.groups, model.share, -1)
                o.append(np.concatenate([self.merge(own, ks[:held], vs[:held])
                                         for own, ks, vs in zip(queries, self.keys[l], self.values[l])]))
            o = np.stack(o).reshape(len(rows), -1)
            h = model.mlp(h + o @ model.w[f"model.layers.{l}.self_attn.o_proj.weight"].T, l)
        self.pos = [[np.arange(n)] * model.groups for _ in range(model.layers)]
        self.prefill = types.SimpleNamespace(ids=ids, model=model, last=model.logits(h)[-1])

    def merge(self, q, keys, values):
        """[share, dim] of rotated queries [share, dim]."""
        s, root = self.settings, math.sqrt(self.model.dim)
        inside = np.arange(len(keys))
        inside = (inside >= self.first) & (inside < self.end)
        out, sums = [], []
        for chosen, divisor in ((inside, root * s.temperature), (~inside, root)):
            e = np.exp(q @ keys[chosen].T / divisor)
            out.append(e / e.sum(-1, keepdims=True) @ values[chosen])
            sums.append(np.log(e.sum(-1)))
        weight = softmax(np.stack([sums[0] * s.scale * s.temperature, sums[1]], -1))
        return weight[:, :1] * out[0] + weight[:, 1:] * out[1]

    def append(self, l, h, raw, v):
        self.pos[l][h] = np.append(self.pos[l][h], self.tokens)
        self.keys[l][h] = np.vstack([self.keys[l][h], self.model.rotate(raw, [self.now()])])
        self.values[l][h] = np.vstack([self.values[l][h], v])

    def query(self, l, h, raw):
        return self.model.rotate(raw, [self.now()])

    def now(self):
        return self.place + self.tokens - len(self.prefill.ids)

    def answer(self, l, queries):
        out = [self.merge(own, self.keys[l][h], self.values[l][h]) for h, own in enumerate(queries)]
        return out, None


class KvLink(Sequence):
    """No cache of a chunk: a mask of segments over the prompt with its links."""

    def __init__(self, prefill, margins, **settings):
        self.model, self.margins = prefill.model, margins
        s = types.SimpleNamespace(**settings)
        model, given = self.model, list(prefill.ids)
        end = (len(given) - 1) // s.chunk * s.chunk
        begins = list(range(s.chunk, end, s.chunk))
        ids, segments = given[: s.chunk] + [s.begin], [0] * (s.chunk + 1)
        for index, begin in enumerate(begins):
            ids += given[begin : begin + s.chunk] + [s.first + s.links * index + i for i in range(s.links)]
            segments += [index + 1] * s.chunk + [0] * s.links
        ids += [s.end] + given[end:]
        segments = np.array(segments + [0] * (len(ids) - len(segments)))
        n = self.tokens = len(ids)
        self.decoded, self.keys, self.values = [], [], []
        seen = (segments[:, None] == segments[None, :]) | (segments[:, None] == 0)
        seen &= np.tri(n, dtype=bool)

        def attend(l, q, k, v):
            q, k = model.rotate(q, np.arange(n)), model.rotate(k, np.arange(n))
            self.keys.append(list(k))
            self.values.append(list(v))
            scores = q @ np.repeat(k, model.share, 0).transpose(0, 2, 1) / math.sqrt(model.dim)
            return softmax(np.where(seen, scores, -np.inf)) @ np.repeat(v, model.share, 0)

        last = model.run(np.array(ids), 0, attend)[-1]
        self.pos = [[np.arange(n)] * model.groups for _ in range(model.layers)]
        self.prefill = types.SimpleNamespace(ids=np.array(ids), model=model, last=last)


RUN = "in a NumPy forward over caches of chunks, float64"
CASES = [
    ("cacheblend", dict(method="cacheblend", budget="none", set=["reuse.chunk=48"]),
     "YaoJiayi/CacheBlend 55ad026, restated " + RUN, CacheBlend, dict(chunk=48, lead=1, share=0.16)),
    ("full_reuse", dict(method="full_reuse", budget="none", set=["reuse.chunk=48"]),
     "the rule " + RUN, FirstTokens, dict(chunk=48, lead=1, again=0)),
    ("epic", dict(method="epic", budget="none", set=["reuse.chunk=48", "reuse.again=8"]),
     "the paper's rule " + RUN, FirstTokens, dict(chunk=48, lead=1, again=8)),
    ("ape", dict(method="ape", budget="none", set=["reuse.chunk=48"]),
     "Infini-AI-Lab/APE 52513bc, restated " + RUN, Ape, dict(chunk=48, temperature=0.9, scale=0.9)),
    ("kvlink", dict(method="kvlink", budget="none", set=[
        "reuse.chunk=64", "reuse.first=200", "reuse.most=14", "reuse.begin=269", "reuse.end=270"]),
     "UCSB-NLP-Chang/KVLink 7400d92, its mask of segments restated in a NumPy forward, float64", KvLink,
     dict(chunk=64, links=5, first=200, begin=269, end=270)),
]
# The same, of keys and values only those that decoding adds.
CRAFTED = "Cache-Craft's equations as Kevin-Yang1/OmniKV 1415cbb restates them, "
DECODED = [
    ("cache_craft", dict(method="cache_craft", budget="none", set=["reuse.chunk=48"]), CRAFTED + RUN,
     CacheCraft, dict(chunk=48, requests=1, seed=0, alpha=1.0, beginning=True)),
    ("cache_craft_requests", dict(method="cache_craft", budget="none", set=[
        "reuse.chunk=36", "reuse.requests=3", "reuse.seed=5", "reuse.alpha=0.6", "reuse.beginning=false"]),
     CRAFTED + RUN, CacheCraft, dict(chunk=36, requests=3, seed=5, alpha=0.6, beginning=False)),
    ("cacheblend_half", dict(method="cacheblend", budget="none", set=["reuse.chunk=30", "reuse.share=0.5"]),
     "YaoJiayi/CacheBlend 55ad026, restated " + RUN, CacheBlend, dict(chunk=30, lead=1, share=0.5)),
    ("block_attention", dict(method="block_attention", budget="none", set=["reuse.chunk=64"]),
     "the rule " + RUN, FirstTokens, dict(chunk=64, lead=0, again=0)),
    ("ape_sharp", dict(method="ape", budget="none", set=["reuse.chunk=60", "reuse.temperature=0.5", "reuse.scale=0.7"]),
     "Infini-AI-Lab/APE 52513bc, restated " + RUN, Ape, dict(chunk=60, temperature=0.5, scale=0.7)),
    ("radix_attention", dict(method="radix_attention", budget="none", set=[]),
     "the full cache in NumPy, float64: what prompts share is what reading it gives", Sequence, {}),
]
