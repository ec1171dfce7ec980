# SPDX-License-Identifier: Apache-2.0
"""Methods whose authors' own code runs on the small model: `make_methods --checkouts DIR`, where DIR
holds their repositories as OWNER+NAME. What cannot be run there (the forward pass of another version
of transformers) is restated in NumPy, and said so with each class."""

import ast
import contextlib
import importlib
import io
import math
import subprocess
import sys
import types

import numpy as np

from method_oracles import Sequence, pool_average, top
from method_reads import Sparq


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


def cases(root):
    cake = Checkout(root, "antgroup/cakekv", "c4675ce2")
    sparq = Checkout(root, "graphcore-research/llm-inference-research", "ead9b6a7")
    window = 32
    return [
        ("cake", dict(method="cake"),
         f"CakeprefillKVCache and CakeDecodingKVCache_LayerWise of {cake.name}, run on scores restated in NumPy; what is"
         " kept stays in order of position",
         Cake, dict(checkout=cake, budget=90, window=window, gamma=200, tau1=1.6, tau2=0.4)),
        ("sparq", dict(method="sparq", budget="none", set=["read.tokens=48", "read.rank=8", "read.local=16"]),
         f"AnnAttention with SparseQ of {sparq.name}, run in torch, float64",
         SparqByAuthors, dict(checkout=sparq, tokens=48, rank=8, local=16)),
    ]  # fmt: skip
