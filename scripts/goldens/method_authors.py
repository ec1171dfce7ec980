# SPDX-License-Identifier: Apache-2.0
"""Methods whose authors' own code runs on the small model: `make_methods --checkouts DIR`, where DIR
holds their repositories as OWNER+NAME. What cannot be run there (the forward pass of another version
of transformers) is restated in NumPy, and said so with each class."""

import contextlib
import functools
import importlib
import io
import math
import sys
import types
import typing

import numpy as np

import method_attend as attend
from checkouts import Checkout, Substituted, definitions
from method_authors_thin import (aim_cases, dart_cases, dynamic_llava_cases, fastkv_cases, gemfilter_cases, llmlingua_cases,
                                 selective_context_cases, sparsevlm_cases)
from method_ccm import ccm_cases
from method_cepe import cepe_cases
from method_dmc import dmc_cases
from method_drafts import speckv_cases
from method_fetches import emllm_cases, infllm_cases, magicpig_cases, vattention_cases
from method_oracles import Cam, D2o, Sequence, pool_average, pool_max, protect, softmax, top
from method_less import less_cases
from method_prompts import longllmlingua_cases
from method_reads import Sparq
from method_recurrence import lazy_cases
from method_thin import GemFilter


class Cake(Sequence):
    """CAKE: its own budgets, eviction after the prompt and eviction while decoding. Scores and the
    preference of a layer are restated from the middle of its attention's forward. What it keeps is put
    in order of position before it is pooled again, which it does not do."""

    def compress(self, checkout, budget, window, gamma, tau1, tau2):
        import torch
        import transformers.cache_utils as cache_utils

        if not hasattr(cache_utils, "HybridCache"):
            cache_utils.HybridCache = cache_utils.DynamicCache  # newer releases have no such class
        sys.path.insert(0, str(checkout.path))
        self.torch, self.cake = torch, importlib.import_module("cake.cake_cache")
        utils = importlib.import_module("cake.utils")
        sys.path.remove(str(checkout.path))
        model, n = self.model, self.tokens
        state = types.SimpleNamespace(key_cache=[], value_cache=[], pref_scores=[], evict_scores=[], layer_budget=[])
        for l in range(model.layers):
            attention = torch.from_numpy(self.prefill.attention[l][:, -window:, : n - window])[None]
            spread = utils.calculate_entropy(attention).double().item()
            moved = torch.var(attention, dim=-2).sum().item()
            state.pref_scores.append(spread ** (1 / tau1) * moved ** (1 / tau2))
            scores = attention.mean(-2) + gamma * attention.var(-2)
            scores = torch.nn.functional.avg_pool1d(scores, kernel_size=5, padding=2, stride=1)
            state.evict_scores.append(scores.reshape(1, model.groups, model.share, -1).mean(-2))
            state.layer_budget.append(None)
            self.load(state, l)
        whole = np.array(state.pref_scores) / sum(state.pref_scores) * (budget - window) * model.layers
        off = np.abs(whole - np.round(whole)).min()
        self.margins.note(off / whole.max(), "cake budgets")
        before = [scores[0].numpy() for scores in state.evict_scores]
        evict = self.cake.CakeprefillKVCache(budget, window, num_heads=model.heads, num_layers=model.layers)
        with contextlib.redirect_stdout(io.StringIO()):
            evict(state, n)
        self.window, self.budgets = window, state.layer_budget
        assert sum(self.budgets) == (budget - window) * model.layers
        for l in range(model.layers):
            for h in range(model.groups):
                top(before[l][h], self.budgets[l], self.margins, f"cake {l}.{h}")
            self.unload(state, l)

    # Keys and values carry their positions along.
    def load(self, state, l):
        for held, cache in ((self.keys[l], state.key_cache), (self.values[l], state.value_cache)):
            rows = [np.column_stack([of, at]) for of, at in zip(held, self.pos[l])]
            cache.append(self.torch.from_numpy(np.stack(rows))[None])

    def unload(self, state, l):
        for h in range(self.model.groups):
            rows, values = state.key_cache[l][0, h].numpy(), state.value_cache[l][0, h].numpy()
            order = np.argsort(rows[:, -1])
            self.pos[l][h] = rows[order, -1].astype(int)
            self.keys[l][h], self.values[l][h] = rows[order, :-1], values[order, :-1]

    def after_step(self, rows):
        state = types.SimpleNamespace(key_cache=[], value_cache=[])
        for l, of_layer in enumerate(rows):
            self.load(state, l)
            attention = np.concatenate(of_layer)[None, :, None]
            evict = self.cake.CakeDecodingKVCache_LayerWise(hh_size=self.budgets[l], window_size=self.window)
            evict(state, self.torch.from_numpy(attention), l)
            for h, p in enumerate(of_layer):
                pooled = pool_average(p[:, : -self.window].mean(0), 5)
                top(pooled, self.budgets[l], self.margins, f"cake step {l}.{h}")
            self.unload(state, l)


class SparqByAuthors(Sparq):
    """The answers of its AnnAttention with SparseQ; the NumPy twin knows the margins."""

    def compress(self, checkout, **settings):
        import dataclasses
        import typing

        import torch

        super().compress(**settings)
        folder = checkout.path / "llminference/methods"
        given = dict(vars(typing)) | dict(torch=torch, Tensor=torch.Tensor, nn=torch.nn, partial=functools.partial,
                                          dataclass=dataclasses.dataclass)  # fmt: skip
        given["sparse_attention"] = definitions(folder / "sparse_attention.py", ("causal_index", "score_to_mask"), dict(given))
        names = ("gather", "LowRank", "SparseQ", "Settings", "AnnAttention")
        given["ScoreSettings"] = typing.Any
        module = definitions(folder / "ann_attention.py", names, given)
        settings = module.Settings(k=self.most, local_k=self.local, reallocate_to_mean_value=True,
                                   score=module.SparseQ.Settings(rank=self.rank))
        self.torch = torch
        self.attention = module.AnnAttention(settings, self.model.groups, self.model.dim)

    def answer(self, l, queries):
        ours, _ = super().answer(l, queries)
        tensor = lambda x: self.torch.from_numpy(np.stack(x))[None]  # noqa: E731
        query = tensor([q for own in queries for q in own])[:, :, None]
        mask = self.torch.zeros(1, self.model.heads, 1, len(self.keys[l][0]), dtype=query.dtype)
        output, _ = self.attention(query, tensor(self.keys[l]), tensor(self.values[l]), mask)
        theirs = output[0, :, 0].numpy().reshape(self.model.groups, self.model.share, -1)
        assert np.allclose(theirs, np.stack(ours), rtol=1e-5, atol=1e-6), l
        return list(theirs), None


class D2oByAuthors(D2o):
    """D2O: what stays and what it is merged into by its D2O_LayerKVCache, at a layer's budget. The class
    is written for 32 heads of 128 numbers: the rows of ours carry zeros behind them, and the score of
    the first entries is made for as many heads as there are. Budgets and margins are the twin's."""

    merges = True  # what stays of the prompt is compared as well
    WIDTH = 128

    def compress(self, checkout, **settings):
        import torch

        path = checkout.path / "LLM_merge_new/LMEval_kv_token_merge/modeling_llama3_7b_13b_d2o.py"

        def full(size, value):
            return torch.full((self.model.groups, size[1]), value)

        self.torch, self.evict, self.came = torch, {}, {}
        given = {"torch": Substituted(full=full), "print": lambda *_: None}
        self.authors = definitions(path, {"D2O_LayerKVCache"}, given).D2O_LayerKVCache
        super().compress(weight="mean", by_layer=True, **settings)

    def padded(self, rows):
        rows = np.stack(rows)
        return self.torch.from_numpy(np.pad(rows, [(0, 0), (0, 0), (0, self.WIDTH - rows.shape[-1])]))[None]

    def merge_layer(self, l):
        held = [(self.keys[l][h], self.values[l][h]) for h in range(self.model.groups)]
        scores = [self.scores[l][h] for h in range(self.model.groups)]
        if l not in self.evict:
            self.evict[l] = self.authors(hh_size=self.budgets[l] - self.recent, recent_size=self.recent)
            self.came[l] = np.stack(scores)
        keys, values = self.evict[l](
            [self.padded(rows) for rows in zip(*held)], self.torch.from_numpy(self.came[l].copy()), 0, 0, None
        )
        super().merge_layer(l)  # margins, positions and scores
        for h in range(self.model.groups):
            of_authors = self.evict[l].hh_score[h].numpy()
            assert np.allclose(of_authors[self.sinks :], self.scores[l][h][self.sinks :], rtol=1e-12)
            width = held[h][0].shape[1]
            self.keys[l][h], self.values[l][h] = keys[0, h, :, :width].numpy(), values[0, h, :, :width].numpy()

    def after_step(self, rows):
        self.came = {l: np.stack([p.sum(0) for p in of_layer]) for l, of_layer in enumerate(rows)}
        super().after_step(rows)


class CamByAuthors(Cam):
    """CaM: the values by its local_cam_mask, one entry a step, with merge probabilities in place of
    draws. Its mean is over all entries behind the one that goes, ours over those that are merged into:
    there are as many of both here. As many entries as the prompt has are held, so that one goes a step."""

    merges = True

    def evict(self, rows):
        import torch

        path = self.checkout.path / "cam_hf/utils_hh/modify_llama_cam.py"
        mask = definitions(path, {"local_cam_mask"}, {"torch": Substituted(bernoulli=lambda p: p)}).local_cam_mask
        for l, of_layer in enumerate(rows):
            n = len(self.pos[l][0])
            if n <= self.budget:
                continue
            assert n == self.budget + 1 == self.sinks + 1 + self.merge
            attention = torch.from_numpy(np.stack([p.mean(0) for p in of_layer]))[None, :, None]
            values = torch.from_numpy(np.stack(self.values[l]))[None]
            added = mask(values, attention, None, n + 1 - self.sinks)[0].numpy()
            for h in range(self.model.groups):
                self.values[l][h] = added[h]
                self.keep(l, h, np.delete(np.arange(n), self.sinks))

    def compress(self, checkout, recent, **settings):
        self.checkout = checkout
        super().compress(budget=self.tokens, sinks=self.tokens - recent, merge=recent)


class CacheGen:
    """The quantiser and the dequantiser of the serde, in torch float32; its coder is lossless and needs a device."""

    def __init__(self, root):
        checkout = Checkout(root, "UChi-JCL/CacheGen", "6bed34c")
        import torch

        self.torch, self.name = torch, checkout.name
        given = {"torch": torch, "Tuple": typing.Tuple, "_lmcache_nvtx_annotate": lambda function: function}
        folder = checkout.path / "LMCache/lmcache/storage_backend/serde"
        self.codes = definitions(folder / "cachegen_encoder.py", ("torch_quant_vectorized",),
                                 given).torch_quant_vectorized  # fmt: skip
        self.numbers = definitions(folder / "cachegen_decoder.py", ("do_dequantize",), given).do_dequantize

    def round_trip(self, rows, bins, margins, where):
        """Rows [heads, n, dim] f32, of which heads stand side by side."""
        heads, n, dim = rows.shape
        groups = self.torch.from_numpy(np.ascontiguousarray(rows.transpose(1, 0, 2)).reshape(1, n, heads * dim))
        bins = self.torch.tensor([float(bins)])
        codes, largest = self.codes(bins, groups)
        exact = groups.double() / largest.double() * (float(bins) / 2 - 1)
        margins.note(float(((exact - exact.floor()) - 0.5).abs().min()), where)
        out = self.numbers(codes.float(), bins, largest)
        return out.numpy().reshape(n, heads, dim).transpose(1, 0, 2)


class KvQuant:
    """Outliers, levels and Q-Norm of its simulated quantizer, in torch float64, on one head. Ranges of
    values are rounded to f16 before, as the program stores them."""

    def __init__(self, root):
        checkout = Checkout(root, "SqueezeAILab/KVQuant", "57a2383")
        import torch

        self.torch, self.name = torch, checkout.name
        names = ("round_to_nearest_pole_sim", "get_outliers", "get_outliers_dynamic", "quant_fn_nuq_recon")
        self.code = definitions(checkout.path / "quant/kvquant/simquant_module_quantizer.py", names,
                                {"torch": torch, "np": np})  # fmt: skip

    def _coded(self, x, low, high, axis, outside, tuples, margins, where):
        lut, scale, offset = tuples
        torch = self.torch
        unit = (x - (high + low) / 2) / ((high - low) / 2)
        edges = np.sort(lut)[1:] / 2 + np.sort(lut)[:-1] / 2
        margins.note(np.abs(unit[..., None] - edges)[~outside].min(), where)
        ends = [torch.from_numpy(np.ascontiguousarray(e.squeeze(axis))) for e in (high, low)]
        out = self.code.quant_fn_nuq_recon(
            torch.from_numpy(x), qchannel=axis, include_sparse=True, outlier_mask=torch.from_numpy(outside),
            maxval=ends[0], minval=ends[1], lut=[np.sort(lut)], norm=True,
            normscale=torch.tensor(scale), normoffset=torch.tensor(offset))  # fmt: skip
        return np.where(outside, x.astype(np.float16), out.numpy())

    def keys(self, x, low, high, tuples, margins):
        x, torch = x.astype(np.float64), self.torch
        ends = (torch.from_numpy(high.astype(np.float64)), torch.from_numpy(low.astype(np.float64)))
        outside = self.code.get_outliers(torch.from_numpy(x), 0, *ends).numpy()
        for e in (low, high):
            gap = np.abs(x - e)
            margins.note(gap.min() / np.abs(e).max(), "kvquant range")
        ends = (low.astype(np.float64)[None], high.astype(np.float64)[None])
        return self._coded(x, *ends, 0, outside, tuples, margins, "kvquant imported keys")

    def values(self, x, share, tuples, margins):
        x, half = x.astype(np.float64), lambda y: y.astype(np.float32).astype(np.float16).astype(np.float64)
        outside = self.code.get_outliers_dynamic(self.torch.from_numpy(x), -1, 1 - share).numpy()
        flat = outside.all(1)  # all but one are equal: nothing is coded
        low = np.where(outside, np.where(flat[:, None], 0, np.inf), x).min(1, keepdims=True)
        high = np.where(outside, np.where(flat[:, None], 0, -np.inf), x).max(1, keepdims=True)
        middle, reach = half((low + high) / 2), half((high - low) / 2)
        out, rows = x.copy(), ~flat
        out[rows] = self._coded(x[rows], (middle - reach)[rows], (middle + reach)[rows], -1, outside[rows], tuples,
                                margins, "kvquant imported values")  # fmt: skip
        return out


def kvquant(root):
    return KvQuant(root) if root and (root / "SqueezeAILab+KVQuant").is_dir() else None


class ZeroMergeByAuthors(Sequence):
    """ZeroMerge: scores, and what is kept and merged after the prompt and in every step, by its code; the
    NumPy twin knows the margins and where entries stand, and has the same keys and values."""

    merges = True

    def compress(self, checkout, budget, residual, fade=0.98, share=0.6):
        import torch

        names = ("score_scaled_dot_product_attention", "de_repeat_kv", "topk_split", "cache_init", "cache_merge", "cache_update")
        given = dict(torch=torch, F=torch.nn.functional, Tuple=typing.Tuple, Dict=typing.Dict, Any=typing.Any)
        self.authors = definitions(checkout.path / "mergekv/mergekv.py", names, given)
        self.torch, self.budget, self.residual, self.share = torch, budget, residual, share
        model, n, tail = self.model, self.tokens, int(0.4 * budget)
        self.ask = dict(cache_budget=budget, cache_tail=tail, cache_dense=residual, metric="dot_product",
                        score_update="max", shrink_factor=fade)  # fmt: skip
        self.cache = types.SimpleNamespace(_seen_tokens=n, key_cache=[], value_cache=[], tail_ind=-1)
        self.counts, self.scores, self.tail = [], [], tail
        for l in range(model.layers):
            tensor = lambda rows: torch.from_numpy(np.stack(rows))[None]  # noqa: E731
            keys, values = tensor(self.keys[l]), tensor(self.values[l])
            _, score = self.authors.score_scaled_dot_product_attention(
                tensor(self.prefill.queries[l]), keys.repeat_interleave(model.share, 1),
                values.repeat_interleave(model.share, 1), shrink_factor=fade)  # fmt: skip
            score = self.authors.de_repeat_kv(score, model.share)
            self.update(l, keys, values, score, init_f=True)
            self.counts.append([np.ones(budget) for _ in range(model.groups)])
            self.scores.append([None] * model.groups)
            for h in range(model.groups):
                own = score[0, h].numpy()
                best = top(protect(own, 0, tail), budget - residual, self.margins, f"zeromerge {l}.{h}")
                rest = np.setdiff1d(np.arange(n), best)
                runs = np.array_split(rest, residual)
                index = np.sort(np.r_[best, [run[0] for run in runs]])
                for run in runs:
                    for what in (self.keys[l][h], self.values[l][h]):
                        what[run[0]] = what[run].mean(0)
                    self.counts[l][h][np.searchsorted(index, run[0])] = len(run)
                self.keep(l, h, index)
                self.scores[l][h] = own[index]
        self.compare()

    def update(self, l, keys, values, scores, init_f):
        self.authors.cache_update(self.cache, keys, values, l, init_f=init_f, scores=scores, **self.ask)

    def answer(self, l, queries):
        out, rows = [], []
        for h, own in enumerate(queries):
            weight = np.ones(len(self.keys[l][h]))
            weight[: len(self.counts[l][h])] = self.counts[l][h] ** self.share
            scores = own @ self.keys[l][h].T / math.sqrt(self.model.dim) + np.log(weight)
            rows.append(softmax(scores))
            out.append(rows[-1] @ self.values[l][h])
        return out, rows

    def after_step(self, rows):
        for l, of_layer in enumerate(rows):
            # In the order of the authors' slots, the newest entry behind them.
            sums = np.stack([np.r_[p.sum(0)[self.slots[l][h]], p.sum(0)[-1:]] for h, p in enumerate(of_layer)])
            newest = [self.torch.from_numpy(np.stack([rows[-1:] for rows in of])[None]) for of in (self.keys[l], self.values[l])]
            self.update(l, *newest, self.torch.from_numpy(sums)[None], init_f=False)
            for h, p in enumerate(of_layer):
                where, keys, values = f"zeromerge step {l}.{h}", self.keys[l][h], self.values[l][h]
                score = np.r_[self.scores[l][h], 0] * self.ask["shrink_factor"] + p.sum(0)
                count = np.r_[self.counts[l][h], 1]
                standing = np.flatnonzero(self.stands[l][h])
                ranked = protect(score, 0, self.tail)
                ranked[standing] = np.inf
                gone = np.setdiff1d(np.arange(len(ranked)), top(ranked, self.budget, self.margins, where))[0]
                like = keys[standing] @ keys[gone]
                if len(like) > 1:
                    ordered = np.sort(like)
                    self.margins.note((ordered[-1] - ordered[-2]) / abs(ordered[-1]), where + " joins")
                to = standing[like.argmax()]
                for what in (keys, values):
                    what[to] = (count[to] * what[to] + count[gone] * what[gone]) / (count[to] + count[gone])
                count[to] += count[gone]
                stay = np.delete(np.arange(len(score)), gone)
                self.keep(l, h, stay)
                self.scores[l][h], self.counts[l][h] = score[stay], count[stay]
        self.compare()

    def compare(self):
        """The authors' keys, values and counts are the twin's; `slots` says in which order."""
        groups = range(self.model.groups)
        self.slots, self.stands = [], []
        for l in range(self.model.layers):
            self.slots.append([None] * self.model.groups)
            self.stands.append([None] * self.model.groups)
            for h in groups:
                keys, values = self.cache.key_cache[l][0, h].numpy(), self.cache.value_cache[l][0, h].numpy()
                apart = np.abs(keys[:, None] - self.keys[l][h][None]).max(-1) + np.abs(
                    values[:, None] - self.values[l][h][None]
                ).max(-1)
                slots = apart.argmin(1)
                assert apart.min(1).max() < 1e-9 and len(set(slots)) == len(slots) == self.budget
                assert np.allclose(self.counts[l][h][slots], self.cache.pos_weight[l][0, h].numpy())
                self.slots[l][h] = slots
                self.stands[l][h] = np.isin(np.arange(self.budget), slots[: self.residual])


class Draft(Sequence):
    """The first tokens of an answer over the entries [layer][head] that are held, and its queries."""

    def compress(self, held):
        self.queries = [[] for _ in range(self.model.layers)]
        for l, of_layer in enumerate(held):
            for h, index in enumerate(of_layer):
                self.keep(l, h, index)

    def answer(self, l, queries):
        self.queries[l].append(np.concatenate(queries))
        return super().answer(l, queries)


class LaqByAuthors(Sequence):
    """LAQ in two rounds of its SnapKVCluster: what is held while a draft is made, and what its queries
    choose. The code has one set of entries per query head: each head's is held to it, and query heads of
    a group are averaged then. With `released`, under its mask; else rows see all that is before them."""

    def compress(self, checkout, budget, draft, entries, first, window, released):
        import torch

        given = dict(torch=torch, nn=torch.nn, F=torch.nn.functional, math=math, print=lambda *_: None)
        cluster = definitions(checkout.path / "pyramidkv/pyramidkv_utils.py", ("SnapKVCluster",), given).SnapKVCluster
        self.torch, model, n = torch, self.model, self.tokens
        make = lambda rows, most, ahead: cluster(window_size=rows, max_capacity_prompt=most, kernel_size=7,  # noqa: E731
                                                 pooling="maxpool", lookahead_size=ahead)  # fmt: skip
        held, hide = [], np.triu(np.full((first, first), -np.inf), 1)
        for l in range(model.layers):
            queries = self.prefill.queries[l][:, -first:]
            mask = np.concatenate([np.zeros((first, n - first)), hide], 1)
            held.append(self.choose(l, queries, mask, first, entries, make(first, entries, 0).update_kv, True))
        drafted = Draft(self.prefill, self.margins, held=held)
        drafted.decode(draft)
        for l in range(model.layers):
            queries = np.concatenate([self.prefill.queries[l][:, n - window :], np.stack(drafted.queries[l], 1)], 1)
            rows, mask = window + draft, np.zeros((window + draft, n))
            own = rows if released else window
            mask[:own, n - own :] = np.triu(np.full((own, own), -np.inf), 1)
            code = make(window, budget, draft).update_kv_LAQ
            for h, index in enumerate(self.choose(l, queries, mask, window, budget, code, released)):
                self.keep(l, h, index)

    def choose(self, l, queries, mask, window, budget, code, same):
        """queries: [heads, rows, dim]. The entries of each KV head."""
        model, n = self.model, self.tokens
        keys = np.repeat(np.stack(self.keys[l]), model.share, 0)
        attention = softmax(queries @ keys.transpose(0, 2, 1) / math.sqrt(model.dim) + mask)
        sums = attention[:, :, : n - window].sum(1)
        if same:
            tensor = lambda rows: self.torch.from_numpy(np.ascontiguousarray(rows))[None]  # noqa: E731
            places = np.repeat(np.arange(n, dtype=float)[None, :, None], model.heads, 0)
            # Values say which entries stay; the code asks for as many dims as keys have.
            self.torch.set_default_dtype(self.torch.float64)  # its mask is made of that
            _, kept = code(tensor(keys), tensor(queries), tensor(np.repeat(places, model.dim, 2)), None, None)
            self.torch.set_default_dtype(self.torch.float32)
            for head, places in zip(sums, kept[0, :, : budget - window, 0].numpy().astype(int)):
                pooled = pool_max(head, 7)
                assert np.allclose(np.sort(pooled)[::-1][: budget - window], np.sort(pooled[places])[::-1], rtol=1e-5)
        chosen = []
        for h, own in enumerate(sums.reshape(model.groups, model.share, -1).mean(1)):
            scores = np.r_[pool_max(own, 7), np.full(window, np.inf)]
            chosen.append(top(scores, budget, self.margins, f"laq {l}.{h}"))
        return chosen


def laq_cases(checkout):
    settings = dict(checkout=checkout, budget=90, draft=8, entries=64, first=32, window=8)
    return [(name, dict(method="laq", set=["score.draft_entries=64", f"score.mask={mask}"]),
             f"SnapKVCluster of {checkout.name} for each query head, run in torch inside a NumPy forward, float64; heads"
             " of a group averaged" + ("" if mask == "released" else ", and rows that see all before them"),
             LaqByAuthors, settings | dict(released=mask == "released"))
            for name, mask in (("laq", "causal"), ("laq_released", "released"))]  # fmt: skip


def zeromerge_cases(checkout):
    return [(name, dict(method="zeromerge", set=[f"reduce.residual={residual}", "score.window=300"]),
             f"cache_init and cache_update of {checkout.name}, run in torch inside a NumPy forward, float64; entries that"
             " stand for others have the position of the first of them",
             ZeroMergeByAuthors, dict(checkout=checkout, budget=90, residual=residual))
            for name, residual in (("zeromerge", 1), ("zeromerge_three", 3))]  # fmt: skip


def cachegen(root):
    return CacheGen(root) if root and (root / "UChi-JCL+CacheGen").is_dir() else None


def cases(root):
    """Of the repositories that are there."""
    wanted = {
        "antgroup/cakekv": ("c4675ce2", cake_cases),
        "graphcore-research/llm-inference-research": ("ead9b6a7", sparq_cases),
        "dongwonjo/FastKV": ("b978769", fastkv_cases),
        "SalesforceAIResearch/GemFilter": ("5f79b1a", gemfilter_cases),
        "AIoT-MLSys-Lab/D2O": ("12c99d8", d2o_cases),
        "zyxxmu/cam": ("fc80e64", cam_cases),
        "LaVi-Lab/AIM": ("edc24e9", aim_cases),
        "Osilly/dynamic_llava": ("e1469bc", dynamic_llava_cases),
        "Gumpest/SparseVLMs": ("26a5f48", sparsevlm_cases),
        "xqy1111111/DART": ("d6a5af6", dart_cases),
        "liyucheng09/Selective_Context": ("3074343", selective_context_cases),
        "microsoft/LLMLingua": ("e0e9d99", lambda found: llmlingua_cases(found) + longllmlingua_cases(found)),
        "noforit/Lookahead_Q-Cache": ("74612bd", laq_cases),
        "SusCom-Lab/ZeroMerge": ("311494e", zeromerge_cases),
        "microsoft/MInference": ("fb56c91", attend.minference_cases),
        "mit-han-lab/omniserve": ("02b2925", attend.lserve_cases),
        "mit-han-lab/x-attention": ("e379887", attend.xattention_cases),
        "bytedance/FlexPrefill": ("a24b27b", attend.flexprefill_cases),
        "Infini-AI-Lab/MagicPIG": ("ac9aa36", magicpig_cases),
        "thunlp/InfLLM": ("12b7079", infllm_cases),
        "em-llm/EM-LLM-model": ("e911d1f", emllm_cases),
        "xAlg-ai/sparse-attention-hub": ("1a048c9", vattention_cases),
        "furiosa-ai/draft-based-approx-llm": ("d79e404", speckv_cases),
        "hdong920/LESS": ("0e0cf98", less_cases),
        "NVIDIA/Megatron-LM": ("d36bf8d", dmc_cases),
        "snu-mllab/Context-Memory": ("a89dd08", ccm_cases),
        "princeton-nlp/CEPE": ("53ca69b", cepe_cases),
        "WeianMao/triattention": ("e7a0eb18", lazy_cases),  # holds Halo-949/LazyEviction as it was published
    }
    found = {name for name in wanted if (root / name.replace("/", "+")).is_dir()}
    if not found and not cachegen(root) and not kvquant(root) and not (root / "KD-TAO+VidKV").is_dir():
        sys.exit(f"{root} holds none of {', '.join(wanted)}")
    return [case for name in sorted(found) for case in wanted[name][1](Checkout(root, name, wanted[name][0]))]


def d2o_cases(checkout):
    return [("d2o_authors", dict(method="d2o", set=["allocate.whole_first=0", "allocate.whole_last=0"]),
             f"D2O_LayerKVCache of {checkout.name}, run in torch inside a NumPy forward, float64, at budgets restated"
             " in NumPy and when the prompt is read",
             D2oByAuthors, dict(checkout=checkout, budget=90, sinks=4, recent=32))]  # fmt: skip


def cam_cases(checkout):
    return [("cam_authors", dict(method="cam", budget="300", set=["reduce.expectation=true", "protect.sinks=268"]),
             f"local_cam_mask (utils_hh) of {checkout.name}, run in torch inside a NumPy forward, float64; merge"
             " probabilities themselves in place of draws",
             CamByAuthors, dict(checkout=checkout, recent=32))]  # fmt: skip


def cake_cases(cake):
    return [
        ("cake", dict(method="cake"),
         f"CakeprefillKVCache and CakeDecodingKVCache_LayerWise of {cake.name}, run on scores restated in NumPy; what is"
         " kept stays in order of position",
         Cake, dict(checkout=cake, budget=90, window=32, gamma=200, tau1=1.6, tau2=0.4)),
    ]  # fmt: skip


def sparq_cases(sparq):
    return [
        ("sparq", dict(method="sparq", budget="none", set=["read.tokens=48", "read.rank=8", "read.local=16"]),
         f"AnnAttention with SparseQ of {sparq.name}, run in torch, float64",
         SparqByAuthors, dict(checkout=sparq, tokens=48, rank=8, local=16)),
    ]  # fmt: skip
