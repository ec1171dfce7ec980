# SPDX-License-Identifier: Apache-2.0
"""Methods whose authors' own code runs on the small model: `make_methods --checkouts DIR`, where DIR
holds their repositories as OWNER+NAME. What cannot be run there (the forward pass of another version
of transformers) is restated in NumPy, and said so with each class."""

import ast
import contextlib
import functools
import importlib
import io
import json
import math
import subprocess
import sys
import types
import typing

import numpy as np

import method_attend as attend
from method_oracles import Cam, D2o, Sequence, pool_average, pool_max, protect, softmax, top
from pictures_reference import functions
from method_drafts import speckv_cases
from method_fetches import emllm_cases, infllm_cases, magicpig_cases, vattention_cases
from method_reads import Sparq
from method_thin import Aim, FastKv, GemFilter, Thinned


class Checkout:
    def __init__(self, root, name, commit):
        self.path, self.name = root / name.replace("/", "+"), f"{name} {commit}"
        command = ["git", "-C", str(self.path), "rev-parse", "HEAD"]
        at = subprocess.run(command, capture_output=True, text=True).stdout.strip()
        if not at.startswith(commit):
            sys.exit(f"{self.path} is at {at or 'nothing'}, not at {commit}")


def definitions(path, names, given):
    """Some functions and classes of a module whose imports are not needed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kept = [node for node in tree.body if getattr(node, "name", None) in names]
    module = types.ModuleType(path.stem)
    sys.modules[path.stem] = module  # dataclasses look their module up
    module.__dict__.update(given)
    exec(compile(ast.Module(kept, []), str(path), "exec"), module.__dict__)
    return module


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
        import functools
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


class FastKvByAuthors(FastKv):
    """Which rows go on, and what a layer keeps, by its FastKVCluster; the NumPy twin knows the margins."""

    def cluster(self, layer, keys, queries, count):
        import torch

        module = definitions(self.settings.checkout.path / "baselines/fastkv/utils.py", ("repeat_kv", "FastKVCluster"),
                             dict(torch=torch, nn=torch.nn, F=torch.nn.functional, math=math))  # fmt: skip
        s = self.settings
        cluster = module.FastKVCluster(window_size=s.window, max_capacity_prompt=s.budget, kernel_size=s.kernel,
                                       tsp_layer=layer == s.layer, tsp_length=count)
        tensor = lambda x: torch.from_numpy(x)[None].float()  # noqa: E731
        # The values carry positions.
        places = np.repeat(np.arange(keys.shape[1], dtype=float)[None, :, None], len(keys), 0)
        places = np.repeat(places, keys.shape[2], 2)
        _, held, go_on = cluster.update_kv(tensor(keys), tensor(queries), tensor(places), None, self.model.share, layer)
        return np.sort(held[0, :, :, 0].numpy().astype(int), -1), None if go_on is None else go_on[0].numpy()

    def choose(self, layer, q, k, attention):
        ours = super().choose(layer, q, k, attention)
        if ours is None:
            return None
        theirs = self.cluster(layer, k, q, len(ours))[1]
        assert np.array_equal(ours, theirs), layer
        return theirs

    def note(self, l, q, k, attention):
        super().note(l, q, k, attention)
        self.held = getattr(self, "held", {}) | {l: self.cluster(-1, k, q, len(k[0]))[0]}

    def reduce(self):
        before = [list(of_layer) for of_layer in self.pos]
        super().reduce()
        for l, of_layer in enumerate(self.pos):
            for h, positions in enumerate(of_layer):
                assert np.array_equal(positions, before[l][h][self.held[l][h]]), (l, h)


class GemFilterByAuthors(GemFilter):
    """Which rows are read again by its standard_dis_index, which may leave out the last one."""

    def choose(self, layer, q, k, attention):
        import torch

        ours = super().choose(layer, q, k, attention)
        if ours is None:
            return None
        path = self.settings.checkout.path / "my_baseline/GemFilter/gem_filter_utils.py"
        module = definitions(path, ("standard_dis_index",), dict(torch=torch, F=torch.nn.functional))
        keys = torch.from_numpy(np.repeat(k, self.model.share, 0))[None]
        _, found = module.standard_dis_index(keys, torch.from_numpy(q[:, -1:])[None], len(ours), pool=True,
                                             kernel_size=self.settings.kernel, sum_over_heads=True)
        theirs = np.sort(found[0, 0].numpy())
        if theirs[-1] != len(q[0]) - 1:  # ours has the last row in place of the worst of theirs
            assert len(np.setdiff1d(theirs, ours)) == 1
            return ours
        assert np.array_equal(ours, theirs)
        return theirs


class AimByAuthors(Aim):
    """How far a walk reaches, by its get_importance, of logits that are the logarithms of the weights."""

    def reached(self, attention):
        import torch

        path = self.settings.checkout.path / "other_packages/transformers/src/transformers/models/qwen2/modeling_qwen2.py"
        module = definitions(path, ("get_importance",), dict(torch=torch, nn=torch.nn))
        with np.errstate(divide="ignore"):
            logits = torch.from_numpy(np.log(attention))[None]
        theirs = module.get_importance(logits.double())[0].numpy()
        ours = super().reached(attention)
        assert np.abs(ours - theirs).max() < 1e-6 * ours.max()
        return ours


class Substituted:
    """torch, but for a few functions: what the authors' code writes out for one model."""

    def __init__(self, **functions):
        self.__dict__.update(functions)

    def __getattr__(self, name):
        import torch

        return getattr(torch, name)


class SparseVlmByAuthors(Thinned):
    """What stays by its attn_postprocess_topk, what is merged by its cluster_and_merge, without noise.
    Between them the lines of its forward are restated, the choice of words among them. A merged row
    stands where the middle of its cluster stood, as the rows keep their places."""

    def choose(self, layer, q, k, attention):
        import torch

        s, below, n = self.settings, layer - 1, attention.shape[-1]
        if below not in s.layers:
            return None
        theirs = s.checkout.path / "llava/model/language_model"
        at = {2: 0, 6: 1, 15: 2}
        name = next(name for name, stage in at.items() if stage == s.layers.index(below))
        score = definitions(theirs / "score.py", ("attn_postprocess_topk",), dict(
            torch=torch, layer_dict=at, sparse_token_dict={0: s.counts}, RETAIN_TOKN=0))
        candidates = n - s.words
        mask, merges, looks = score.attn_postprocess_topk(
            torch.from_numpy(attention)[None], 0, candidates, candidates, self.counting(torch), name)
        assert merges
        mask, looks = mask[0].numpy(), looks[0].numpy()
        assert (np.flatnonzero(mask) == top(looks, mask.sum(), self.margins, f"sparsevlm {layer}")).all()
        dropped = np.flatnonzero(~mask)
        best = torch.from_numpy(looks[dropped]).topk(int(len(dropped) * 0.3) + 1)[1].numpy()
        top(looks[dropped], len(best), self.margins, f"sparsevlm {layer}, merged")
        self.merge(torch, theirs, dropped[best], layer)
        return np.sort(np.r_[np.flatnonzero(mask), list(self.made), np.arange(candidates, n)])

    def counting(self, torch):
        """The words of the question at which the rows before it point more than the mean."""
        read = torch.from_numpy(self.model.w["model.embed_tokens.weight"][np.asarray(self.inputs)])
        rows, words = read[: -self.settings.words][None], read[-self.settings.words :][None]
        share = (rows @ words.transpose(1, 2)).softmax(2).mean(1)
        self.margins.note(((share - share.mean()).abs() / share.mean()).min().item(), "sparsevlm words")
        return torch.where(share > share.mean())

    def merge(self, torch, theirs, rows, layer):
        import einops

        count = len(rows) // 10 + 1
        middles = []

        def topk(values, k, largest=True, **more):
            if largest:
                top(values[0].numpy(), k, self.margins, f"sparsevlm {layer}, middles")
            return torch.topk(values, k, largest=largest, **more)

        def index_points(distance, index):
            middles.extend(index[0].tolist())
            near = distance[0][index[0]].sort(0)[0]
            others = [i for i in range(len(rows)) if i not in middles]
            if len(near) > 1:
                gap = (near[1] - near[0]) / near[1]
                self.margins.note(gap[others].min().item(), f"sparsevlm {layer}, clusters")
            return distance[:, index[0]]

        module = definitions(theirs / "utils.py", ("cluster_and_merge",), dict(
            torch=Substituted(rand=lambda *a, **b: torch.zeros(*a, **b), topk=topk), ein=einops, index_points=index_points))
        values = module.cluster_and_merge(torch.from_numpy(self.hidden[rows])[None], count)[0].numpy()
        self.made = {rows[middle]: value for middle, value in zip(middles, values)}

    def passed(self, h, keep):
        return np.stack([self.made.get(row, h[row]) for row in keep])

    def read(self, ids, places, again=False):
        self.inputs = ids
        return super().read(ids, places, again)


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


class Ordered(dict):
    """A set that is gone through in the order in which its members came."""

    def __init__(self, members=()):
        super().__init__(dict.fromkeys(members))

    def update(self, members):
        super().update(dict.fromkeys(members))

    def difference_update(self, members):
        for member in members:
            self.pop(member, None)

    def __sub__(self, members):
        return Ordered(member for member in self if member not in members)


class DartByAuthors(Thinned):
    """The rows between `first` and the last `behind` ones that stay by its get_retained_image_token, as for
    one picture there. Python's own sets, in whose order its pivots take turns, are put in order of coming;
    how many rows that changes is printed."""

    def choose(self, layer, q, k, attention):
        import torch
        import torch.nn.functional

        s, n = self.settings, len(k[0])
        if layer != s.layer:
            return None
        path = s.checkout.path / "llava/model/language_model/modeling_llama_self.py"
        length = n - s.first - s.behind
        config = types.SimpleNamespace(text_length=None, DART_config=dict(
            K=layer, image_token_start_index=s.first, image_token_length=length, max_num_trunction=None,
            pivot_image_token=s.pivots[0], pivot_text_token=s.pivots[1], reduction_ratio=s.drop))
        normed = torch.from_numpy(self.model.norm(self.hidden, "model.norm.weight"))[None]
        kept = []
        for kind in (Ordered, set):
            model = functions(path, {"get_retained_image_token@DART"}, dict(
                torch=torch, math=math, set=kind, LlamaConfig=None, Optional=typing.Optional))
            found = model.get_retained_image_token(None, config, normed, torch.from_numpy(np.stack(list(k)))[None])
            kept.append(np.sort(found.numpy()))
        print(f"dart {layer}: {len(np.setdiff1d(*kept))} of {len(kept[0])} rows are others in the order of Python's sets")
        self.twin(layer, k, normed[0].numpy(), length, kept[0])
        return np.r_[: s.first, kept[0], n - s.behind : n]

    def twin(self, layer, k, normed, length, kept):
        """The same anew, for its margins."""
        s, keys = self.settings, np.abs(k).sum((0, 2))
        end = s.first + length

        def longest(begin, stop, count, what):
            rows = begin + np.argsort(-keys[begin:stop], kind="stable")[:count]
            top(keys[begin:stop], count, self.margins, f"dart {layer}, {what} pivots")
            self.margins.note((-np.diff(keys[rows]) / keys[rows[1:]]).min(), f"dart {layer}, turns of {what}")
            return rows

        pictures, text = longest(s.first, end, s.pivots[0], "visual"), longest(end, len(keys), s.pivots[1], "text")
        left, own = np.setdiff1d(np.arange(s.first, end), pictures), list(pictures)
        unit = normed / np.linalg.norm(normed, axis=1, keepdims=True)
        for pivot in np.r_[pictures, text]:
            each = int(length * (1 - s.drop) // sum(s.pivots))
            taken = left[top(-unit[left] @ unit[pivot], each, self.margins, f"dart {layer}, {pivot}")]
            own.extend(taken)
            left = np.setdiff1d(left, taken)
        assert np.array_equal(np.sort(own), kept)


class SelectiveContextByAuthors(Thinned):
    """Tokens that stay by its self_info_mask, given what each tells behind all before it; the model then
    reads them as a prompt. Entries keep the places of their tokens, and turn by those in the shorter prompt."""

    def stand(self, places):
        return np.arange(len(places))

    def at_the_end(self, ids, logits):
        s, n = self.settings, len(ids)
        chances = logits - logits.max(1, keepdims=True)
        chances -= np.log(np.exp(chances).sum(1, keepdims=True))
        told = -chances[np.arange(n - 1), ids[1:]][s.sinks - 1 : n - 1 - s.recent]
        rows = np.arange(s.sinks, n - s.recent)
        module = functions(s.checkout.path / "selective_context.py", {"self_info_mask@SelectiveContext"}, dict(np=np, List=list))
        given = types.SimpleNamespace(mask_ratio=s.drop, mask_a_sent=lambda *_: "")
        _, masked = module.self_info_mask(given, [str(row) for row in rows], list(told), "token")
        gone = np.array([int(row) for row in masked])
        order = np.sort(told)
        self.margins.note((order[len(gone)] - order[len(gone) - 1]) / order[len(gone)], "selective context")
        self.gone = len(gone)
        return np.setdiff1d(np.arange(n), gone)

    def append(self, l, h, raw, v):
        self.pos[l][h] = np.append(self.pos[l][h], self.tokens)
        self.keys[l][h] = np.vstack([self.keys[l][h], self.model.rotate(raw, [self.tokens - self.gone])])
        self.values[l][h] = np.vstack([self.values[l][h], v])

    def query(self, l, h, raw):
        return self.model.rotate(raw, [self.tokens - self.gone])

    def choose(self, layer, q, k, attention):
        return None


class LlmLingua(SelectiveContextByAuthors):
    """LLMLingua's compression in segments, restated: each is told behind what is left of those before it,
    and keeps what tells more than a quantile of all that is left. `following`: a token stays by what the
    one behind it tells, as in the released code; `whole`: what does not fill a segment stays."""

    def told(self, ids):
        """What each token but the first tells, behind those before it."""
        model, n = self.model, len(ids)
        seen = np.tri(n, dtype=bool)

        def attend(l, q, k, v):
            q, k = model.rotate(q, np.arange(n)), model.rotate(k, np.arange(n))
            scores = q @ np.repeat(k, model.share, 0).transpose(0, 2, 1) / math.sqrt(model.dim)
            return softmax(np.where(seen, scores, -np.inf)) @ np.repeat(v, model.share, 0)

        chances = model.run(np.asarray(ids), 0, attend)
        chances = chances - chances.max(1, keepdims=True)
        chances -= np.log(np.exp(chances).sum(1, keepdims=True))
        return -chances[np.arange(n - 1), ids[1:]]

    def share(self, n):
        s = self.settings
        return min(max((n * (1 - s.drop) - s.sinks - s.recent) / (n - s.sinks - s.recent), 0), 1)

    def at_the_end(self, ids, logits):
        s, n = self.settings, len(ids)
        left = self.segments(ids, list(range(s.sinks, n - s.recent)))
        kept = np.r_[: s.sinks, left, n - s.recent : n].astype(int)
        self.gone = n - len(kept)
        return kept

    def segments(self, ids, rows):
        s, share = self.settings, self.share(len(ids))
        size, told = s.segment, {}  # by row
        own = 0 if s.following else 1

        def tell(upto, first):
            values = self.told([ids[row] for row in rows[:upto]])
            for j in range(first, upto - 1):
                told[rows[j + own]] = values[j]

        def decide(begin, end):
            ranked = sorted((told[row] for row in rows if row in told), reverse=True)
            least = ranked[max(0, min(len(ranked) - 1, int(len(ranked) * share) - 1))]
            gone = {row for row in rows[begin:end] if row in told and told[row] <= least}
            near = [abs(told[row] - least) / least for row in rows[begin:end] if row in told]
            self.margins.note(min(gap for gap in near if gap), f"llmlingua {begin}")
            rows[:] = [row for row in rows if row not in gone]
            return end - len(gone)

        if len(rows) < size:
            if not s.whole:
                tell(len(rows), 0)
                decide(0, len(rows))
            return rows
        tell(len(rows), 0)
        begin, before = decide(0, size - 1), 0
        while begin + size <= len(rows):
            tell(begin + size, before)
            before, begin = begin, decide(begin, begin + size)
        if not s.whole and begin < len(rows):
            tell(len(rows), before)
            decide(begin, len(rows))
        return rows


class LlmLinguaByAuthors(LlmLingua):
    """The same by its iterative_compress_prompt and what that calls, on losses of the NumPy forward."""

    def segments(self, ids, rows):
        import torch

        s, share = self.settings, self.share(len(ids))
        names = ("get_compressed_input", "get_estimate_threshold_base_distribution", "iterative_compress_prompt",
                 "get_dynamic_compression_ratio")
        module = functions(s.checkout.path / "llmlingua/prompt_compressor.py", {f"{name}@PromptCompressor" for name in names},
                           dict(torch=torch, List=list, tuple=tuple, list=list))
        context = torch.tensor([[ids[row] for row in rows]])

        def get_ppl(text, granularity, input_ids, mask, past_key_values=None, return_kv=False, end=None):
            past = 0 if past_key_values is None else past_key_values[0][0].shape[2]
            end = input_ids.shape[1] if end is None else end
            told = torch.tensor(self.told(input_ids[0, :end].numpy()))
            return told[past:], [[torch.zeros(1, 1, end, 1)] * 2]

        given = types.SimpleNamespace(
            tokenizer=lambda text, **_: dict(input_ids=context, attention_mask=torch.ones_like(context)), device="cpu",
            max_position_embeddings=1 << 20, cache_bos_num=0, get_ppl=get_ppl,
            get_token_length=lambda text, _: len(rows))
        for name in names[:2] + names[3:]:
            setattr(given, name, functools.partial(getattr(module, name), given))
        # It counts three tokens more: a share of those is asked.
        left, _ = module.iterative_compress_prompt(given, ["context"], share * (len(rows) + 3), s.segment, dynamic_ratio=[0.0])
        restated = super().segments(ids, list(rows))
        assert left[0].tolist() == [ids[row] for row in restated]
        return restated


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
        "Gumpest/SparseVLMs": ("26a5f48", sparsevlm_cases),
        "xqy1111111/DART": ("d6a5af6", dart_cases),
        "liyucheng09/Selective_Context": ("3074343", selective_context_cases),
        "microsoft/LLMLingua": ("e0e9d99", llmlingua_cases),
        "noforit/Lookahead_Q-Cache": ("74612bd", laq_cases),
        "SusCom-Lab/ZeroMerge": ("311494e", zeromerge_cases),
        "microsoft/MInference": ("fb56c91", attend.minference_cases),
        "mit-han-lab/x-attention": ("e379887", attend.xattention_cases),
        "bytedance/FlexPrefill": ("a24b27b", attend.flexprefill_cases),
        "Infini-AI-Lab/MagicPIG": ("ac9aa36", magicpig_cases),
        "thunlp/InfLLM": ("12b7079", infllm_cases),
        "em-llm/EM-LLM-model": ("e911d1f", emllm_cases),
        "xAlg-ai/sparse-attention-hub": ("1a048c9", vattention_cases),
        "furiosa-ai/draft-based-approx-llm": ("d79e404", functools.partial(speckv_cases, definitions)),
    }
    found = {name for name in wanted if (root / name.replace("/", "+")).is_dir()}
    if not found and not cachegen(root) and not kvquant(root) and not (root / "KD-TAO+VidKV").is_dir():
        sys.exit(f"{root} holds none of {', '.join(wanted)}")
    return [case for name in sorted(found) for case in wanted[name][1](Checkout(root, name, wanted[name][0]))]


def fastkv_cases(checkout):
    return [("fastkv", dict(method="fastkv", budget="45", set=["thin.drop=0.7"]),
             f"FastKVCluster of {checkout.name}, run in torch inside a NumPy forward, float64; what is kept stays in"
             " order of position",
             FastKvByAuthors, dict(checkout=checkout, layer=2, rate=0.3, window=8, kernel=7, budget=45))]  # fmt: skip


def gemfilter_cases(checkout):
    return [("gemfilter", dict(method="gemfilter", budget="none", set=["thin.drop=0.7", "thin.layer=2"]),
             f"standard_dis_index of {checkout.name}, run in torch inside a NumPy forward, float64; rows keep their"
             " positions, the last one stays",
             GemFilterByAuthors, dict(checkout=checkout, layer=2, share=0.3, kernel=5))]  # fmt: skip


def aim_cases(checkout):
    return [("aim_prune", dict(method="aim_prune", budget="none", steps=6, set=["thin.rows=all", "thin.start=0.25", "thin.drop=0.3"]),
             f"get_importance of {checkout.name}, run in torch inside a NumPy forward, float64, for rows that leave",
             AimByAuthors, dict(checkout=checkout, first=1, drop=0.3))]  # fmt: skip


def sparsevlm_cases(checkout):
    return [(name, dict(method="sparsevlm", budget="none", steps=6,
                        set=["thin.rows=all", f"thin.layers=\"{','.join(map(str, layers))}\"", f'thin.kept="{kept}"',
                             "thin.of=100", f"thin.words={words}"]),
             f"attn_postprocess_topk and cluster_and_merge of {checkout.name}, run in torch inside a NumPy forward,"
             " float64; merged rows in the middle of their cluster",
             SparseVlmByAuthors, dict(checkout=checkout, layers=layers, words=words,
                                      counts=[int((300 - words) * int(part) / 100 + 1e-9) for part in kept.split(",")]))
            for name, layers, kept, words in (("sparsevlm", [0, 1, 2], "52,34,19", 24), ("sparsevlm_few", [1], "10", 60))]  # fmt: skip


def dart_cases(checkout):
    return [(name, dict(method="dart", budget="none", steps=6,
                        set=["thin.rows=all", f"thin.layer={layer}", f"thin.sinks={first}", f"thin.recent={behind}",
                             f"thin.drop={drop}", f"thin.visual_pivots={pivots[0]}", f"thin.text_pivots={pivots[1]}"]),
             f"get_retained_image_token of ZichenWen1/DART as {checkout.name} holds it (llava, last changed by its"
             " authors in 9fee9fa), run in torch inside a NumPy forward, float64, its sets in order of coming",
             DartByAuthors, dict(checkout=checkout, layer=layer, first=first, behind=behind, drop=drop, pivots=pivots))
            for name, layer, first, behind, drop, pivots in (("dart", 2, 20, 24, 0.778, (4, 4)), ("dart_few", 1, 0, 60, 0.9, (2, 5)))]  # fmt: skip


def selective_context_cases(checkout):
    return [(name, dict(method="selective_context", budget="none", steps=6,
                        set=[f"thin.drop={drop}", f"thin.sinks={sinks}", f"thin.recent={recent}"]),
             f"self_info_mask of {checkout.name} on tokens, and a NumPy forward of what it leaves, float64",
             SelectiveContextByAuthors, dict(checkout=checkout, drop=drop, sinks=sinks, recent=recent))
            for name, drop, sinks, recent in (("selective_context", 0.35, 4, 64), ("selective_context_few", 0.8, 1, 1))]  # fmt: skip


def llmlingua_cases(checkout):
    sets = dict(sinks=4, recent=64)
    asked = lambda **more: [f"thin.{k}={json.dumps(v)}" for k, v in (sets | more).items()]  # noqa: E731
    return [
        ("llmlingua_released", dict(method="llmlingua", budget="none", steps=6,
                                    set=asked(drop=0.4, segment=50, told_by="following", rest="whole")),
         f"iterative_compress_prompt of {checkout.name} on losses of a NumPy forward, and one of what it leaves, float64",
         LlmLinguaByAuthors, dict(checkout=checkout, drop=0.4, segment=50, following=True, whole=True) | sets),
        ("llmlingua", dict(method="llmlingua", budget="none", steps=6, set=asked(drop=0.5, segment=40)),
         f"the same restated in NumPy, which agrees with {checkout.name}: a token by what it tells itself, and the rest as"
         " a segment",
         LlmLingua, dict(drop=0.5, segment=40, following=False, whole=False) | sets)]  # fmt: skip


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
