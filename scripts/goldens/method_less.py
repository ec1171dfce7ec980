# SPDX-License-Identifier: Apache-2.0
"""LESS by its authors' attention (hdong920/LESS), with made-up kernels: nobody has published trained ones."""

import math
import types
import typing

import numpy as np

from checkouts import definitions
from common import GOLDEN, save_file
from method_layers import heads_ids
from method_oracles import top

LAYERS, HEADS, DIM, INNER, RANK = 2, 6, 8, 8, 3  # of tests/golden/models/llama2
MODEL = "a1dafa88e116a14e20ad8381f6aca7b12dfed16807bc9305a8c80f3f1980262d"
OURS = {"kernel_q_mat1": "queries.in", "kernel_q_mat2": "queries.out", "kernel_k_mat1": "keys.in",
        "kernel_k_mat2": "keys.out", "scalingD": "size", "interaction_k": "mix", "scalingD2": "mix_size"}


def kernels():
    """As the layers' saved states name them, LAYER.NAME."""
    rng, tables = np.random.default_rng(36), {}
    draw = lambda *dims: rng.normal(size=dims).astype(np.float32)  # noqa: E731
    for l in range(LAYERS):
        tables |= {f"{l}.kernel_q_mat1": draw(HEADS, DIM, INNER), f"{l}.kernel_q_mat2": draw(HEADS, INNER, RANK),
                   f"{l}.kernel_k_mat1": draw(HEADS, DIM, INNER), f"{l}.kernel_k_mat2": draw(HEADS, INNER, RANK),
                   f"{l}.scalingD": draw(1, HEADS, 1, RANK), f"{l}.interaction_k": draw(HEADS, RANK, RANK),
                   f"{l}.scalingD2": draw(1, HEADS, 1, RANK)}
    return tables


def write_side_files(directory):
    """`make_methods` writes them with the cases."""
    save_file(kernels(), directory / "less_published.safetensors")
    tables = {}
    for name, table in kernels().items():
        layer, part = name.split(".")
        tables[f"layers.{layer}.{OURS[part]}"] = np.ascontiguousarray(table.reshape(HEADS, -1) if table.ndim == 4 else table)
    save_file(tables, directory / "less.safetensors", metadata={
        "kvgauge_calibration": "1", "stage": "read.less", "stage_version": "1",
        "params": '{"inner":%d,"rank":%d}' % (INNER, RANK), "model": MODEL, "model_name": "llama2",
    })


def authors_attention(checkout):
    """Their class for the release of transformers it was written for, whose rotation is restated."""
    import torch

    class Rotary(torch.nn.Module):
        def __init__(self, dim, max_position_embeddings):
            super().__init__()
            self.frequencies = 10000.0 ** (-torch.arange(0, dim, 2).float() / dim)

        def forward(self, x, seq_len):
            angles = torch.arange(seq_len).float()[:, None] * self.frequencies
            angles = torch.cat([angles, angles], -1)
            return angles.cos(), angles.sin()

    def apply(q, k, cos, sin, position_ids):
        cos, sin = cos[position_ids][:, None], sin[position_ids][:, None]
        half = q.shape[-1] // 2
        turned = lambda x: x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin  # noqa: E731
        return turned(q), turned(k)

    given = dict(vars(typing)) | dict(torch=torch, nn=torch.nn, F=torch.nn.functional, math=math, LlamaConfig=object,
                                      LlamaRotaryEmbedding=Rotary, apply_rotary_pos_emb=apply)  # fmt: skip
    path = checkout.path / "src/inference/generative/llama_gen.py"
    return definitions(path, ("LlamaAttentionLESS",), given).LlamaAttentionLESS


class LessByAuthors:
    """transformers' Llama with their attention in its layers, float32; half of the budget is recent."""

    merges = True  # what stays of the prompt is compared as well

    def __init__(self, _, margins, checkout, budget, initial=False):
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_grad_enabled(False)
        self.torch, self.margins, self.decoded = torch, margins, []
        self.model = types.SimpleNamespace(layers=LAYERS, groups=HEADS)
        self.llama = AutoModelForCausalLM.from_pretrained(GOLDEN / "models" / "llama2", dtype=torch.float32).eval()
        config = self.llama.config
        config.heavy_count = config.recent_count = budget // 2
        config.kernel_hidden_size, config.ker_hid = RANK, INNER
        config.fix_heavy_to_initial_tokens = initial
        write_side_files(GOLDEN / "methods" / "inputs")
        kind, tables, self.attention = authors_attention(checkout), kernels(), []
        for l, layer in enumerate(self.llama.model.layers):
            attention = kind(config)
            weights = attention.state_dict()
            weights |= {f"{p}_proj.weight": getattr(layer.self_attn, f"{p}_proj").weight for p in "qkvo"}
            weights |= {name: torch.from_numpy(tables[f"{l}.{name}"]) for name in OURS}
            attention.load_state_dict(weights)
            layer.self_attn = self.adapter(l, attention)
            self.attention.append(layer.self_attn)
        self.last = self.run(heads_ids(), 0)
        self.tokens = len(heads_ids())

    def adapter(self, l, attention):
        torch, note = self.torch, self.note

        class Adapter(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.past = attention, None

            def forward(self, hidden_states, position_ids, **_):
                n, mask, before = hidden_states.shape[1], None, attention.previous_scores
                if self.past is None:
                    mask = torch.full((n, n), torch.finfo(torch.float32).min).triu(1)[None, None]
                out, shares, self.past = attention(hidden_states, mask, position_ids, self.past, True, True)
                note(l, attention, before, shares[0].sum(1))
                return out, None

        return Adapter()

    def note(self, l, attention, before, scores):
        """By how much the heavy entries were chosen."""
        if before is not None:
            scores[:, :-1] += before
        if attention.fix_heavy_to_initial_tokens or scores.shape[1] <= attention.cache_budget:
            return
        for h, row in enumerate(scores[:, : -attention.recent_budget].numpy()):
            top(row, attention.heavy_budget, self.margins, f"less {l}.{h}")

    def run(self, ids, begin):
        at = self.torch.arange(begin, begin + len(ids))[None]
        rows = self.llama.model(self.torch.tensor([ids]), position_ids=at, use_cache=False).last_hidden_state
        return self.llama.lm_head(rows[0, -1]).numpy()

    def decode(self, steps):
        logits = self.last
        for _ in range(steps):
            best = np.sort(logits)[-2:]
            self.margins.note((best[1] - best[0]) / (logits.max() - logits.min()), "greedy token")
            self.decoded.append(int(logits.argmax()))
            logits = self.run([self.decoded[-1]], self.tokens)
            self.tokens += 1
        self.pos, self.keys, self.values = [], [], []
        for held in self.attention:
            mask = held.inner.attention_masks_next[0, :, 0, :-1].numpy()
            self.pos.append([np.flatnonzero(row) for row in mask])
            for side, rows in zip((self.keys, self.values), held.past):
                side.append([rows[0, h].numpy()[at] for h, at in enumerate(self.pos[-1])])


def less_cases(checkout):
    files = ["read.calibration={inputs}/less.safetensors", f"read.inner={INNER}", f"read.rank={RANK}"]
    said = f"LlamaAttentionLESS of {checkout.name}, run on torch in transformers' Llama, with made-up kernels"
    ask = dict(method="less", budget="40", steps=8, checkpoint="llama2", ids="ids_heads")
    return [("less", ask | dict(set=files), said, LessByAuthors, dict(checkout=checkout, budget=40)),
            ("less_lambda", ask | dict(set=files + ["score.id=recency", "protect.sinks=20"]),
             said + ", where the first entries stay", LessByAuthors, dict(checkout=checkout, budget=40, initial=True))]  # fmt: skip
