# SPDX-License-Identifier: Apache-2.0
"""ReKV by its authors' code, Becomebright/ReKV 63793f7: a ContextManager for each layer has read the
frames of the NumPy model's prompt, chooses those that a question is answered from, and their
attention's forward reads them, step by step, in torch on the processor.

The window is as long as the prompt, as in their defaults: frames are read with full attention. A
second manager, whose window is two frames, has sent the same keys away; it must choose and return
the same. What is CUDA's is stubbed, and float32 is float64.
"""

import ast
import contextlib
import math
import types
import typing

import numpy as np
import torch

from checkouts import Checkout, Substituted, definitions

FOLDER = "model/attention"


def attention_of(checkout):
    """Their manager, their rotation and their attention's forward."""
    folder = checkout.path / FOLDER
    event = lambda: types.SimpleNamespace(record=lambda _: None, wait=lambda: None)  # noqa: E731
    cuda = types.SimpleNamespace(Event=event, current_stream=lambda: None, stream=lambda _: contextlib.nullcontext())
    on_cpu = lambda make: lambda *sizes, device=None, **rest: make(*sizes, **rest)  # noqa: E731
    given = dict(vars(typing)) | dict(math=math, copy=__import__("copy"), GLOBAL_STREAM=None)
    given["torch"] = Substituted(cuda=cuda, empty=on_cpu(torch.empty), arange=on_cpu(torch.arange), float32=torch.float64)

    def run(name, changes=()):
        text = (folder / name).read_text(encoding="utf-8")
        for old, new in changes:
            assert old in text, (name, old)
            text = text.replace(old, new)
        module = types.ModuleType(name)
        module.__dict__.update(given)
        kept = [node for node in ast.parse(text).body if getattr(node, "name", None)]
        exec(compile(ast.Module(kept, []), str(folder / name), "exec"), module.__dict__)
        return module

    base = definitions(folder / "dot_production_attention/base.py", ("MultiStageDotProductionAttention",), given)
    given |= dict(MultiStageDotProductionAttention=base.MultiStageDotProductionAttention)
    stages = run("dot_production_attention/torch_impl.py")
    given["get_multi_stage_dot_production_attention"] = lambda _: (stages.TorchMultiStageDotProductionAttention, None)
    rope = run("rope.py", ((".float()", ".double()"),)).RotaryEmbeddingESM
    manager = run("kv_cache_manager.py", ((".float()", ".double()"), ("assert _t.is_cuda", "pass"))).ContextManager
    given |= dict(ContextManager=manager)
    return manager, rope, run("rekv_attention.py").rekv_attention_forward


class ReKv:
    """Beside a Case of make_visual_methods. The question was read with the prompt: its keys and values are
    the prompt's own."""

    asks = dict(method="rekv")
    budget, steps, picks = "none", 6, 2
    area, first = 32, 20
    starts = [20 + 32 * i for i in range(6)]
    set = ["read.picks=2"]
    oracle = ("ContextManager and rekv_attention_forward of Becomebright/ReKV 63793f7, run in torch inside a NumPy"
              " forward, float64, on the keys and queries of a prompt read with full attention")

    def compress(self):
        checkout = Checkout(self.checkouts, "Becomebright/ReKV", "63793f7")
        manager, rope, forward = attention_of(checkout)
        model, n, self.end = self.model, len(self.prefill.ids), self.starts[-1] + self.area
        raw_queries = [model.rotate(q, -np.arange(n)) for q in self.prefill.queries]
        position, longest = rope(model.dim, model_base(model)), 4 * n
        sizes = dict(block_size=self.area, max_cached_block=8, topk=self.picks, chunk_size=1, exc_block_size=self.area)
        self.managers = []
        for l in range(model.layers):
            rows = [torch.from_numpy(np.ascontiguousarray(np.stack(x)[:, : self.end]))[None]
                    for x in (raw_queries[l], self.prefill.raw[l], self.prefill.values[l])]
            made = []
            for window in (longest, 2 * self.area):
                one = manager(position, n_init=self.first, n_local=window, **sizes)
                # The system's words, and then the frames, as encode_init_prompt and encode_video do.
                for part in (slice(0, self.first), slice(self.first, self.end)):
                    own = [x[:, :, part].contiguous() for x in rows]
                    one.append(*own, *own)
                one.set_retrieval()
                made.append(one)
            assert not made[0].init_exc and made[1].num_global_block == len(self.starts)
            self.managers.append(made)
        self.forward = forward(longest, self.first, self.picks, 1, self.area, 8, self.area, False, async_global_stream=False)
        self.position, self.chosen = position, []
        self.past = [None] * model.layers
        self.ask(raw_queries)
        self.decoding()

    def ask(self, raw_queries):
        """What the question's rows choose is what its own keys and values follow."""
        model = self.model
        for l in range(model.layers):
            held = self.retrieved(l, raw_queries[l][:, self.end :])
            own = [torch.from_numpy(np.ascontiguousarray(np.stack(x)[:, self.end :]))[None]
                   for x in (self.prefill.raw[l], self.prefill.values[l])]
            self.past[l] = tuple(torch.cat(both, 2) for both in zip(held, own))

    def retrieved(self, l, queries):
        """Of both managers, and by how much the last frame that is chosen wins."""
        query = torch.from_numpy(np.ascontiguousarray(queries))[None]
        held = []
        for one in self.managers[l]:
            held.append([x.clone() for x in one.get_retrieved_kv(query)])
        near, away = self.managers[l]
        assert near.retrieved_block_indices == away.retrieved_block_indices
        assert all(torch.equal(a, b) for a, b in zip(*held))
        scores = np.sort(away.similarity[0].numpy())
        self.margins.note((scores[-self.picks] - scores[-self.picks - 1]) / np.abs(scores).max(), f"rekv {l}")
        self.chosen.append(near.retrieved_block_indices[0])
        return held[0]

    def call(self, l, q, k, v):
        """Their attention: rows that are not rotated, [heads, n, dim]; the layer's entries then hold theirs."""
        model, n = self.model, q.shape[1]
        rows = {name: torch.from_numpy(np.ascontiguousarray(x.transpose(1, 0, 2).reshape(1, n, -1)))
                for name, x in (("q", q), ("k", k), ("v", v))}
        out, self.past[l] = self.forward(
            None, rows["q"], rows["q"], self.position, True, self.past[l], lambda _: rows["q"], lambda _: rows["k"],
            lambda _: rows["v"], lambda x: x, model.dim, model.heads, model.groups)
        return out[0].numpy().reshape(n, model.heads, model.dim).transpose(1, 0, 2)

    def read(self, ids, begin):
        """Logits of rows behind the frames; the cache then holds their entries."""
        model, places = self.model, begin + np.arange(len(ids))

        def attend(l, q, k, v):
            for h in range(model.groups):
                self.pos[l][h] = np.append(self.pos[l][h], places)
                self.keys[l][h] = np.vstack([self.keys[l][h], model.rotate(k[h], places)])
                self.values[l][h] = np.vstack([self.values[l][h], v[h]])
            return self.call(l, q, k, v)

        return model.run(np.asarray(ids), begin, attend)[-1]

    def decoding(self, logits=None):
        logits, n = self.prefill.last if logits is None else logits, len(self.prefill.ids)
        frames = [at for l in range(self.model.layers) for at in self.chosen[l]]
        assert len(set(frames)) > self.picks, "all layers choose the same"
        for step in range(self.steps):
            best = np.sort(logits)[-2:]
            self.margins.note((best[1] - best[0]) / (logits.max() - logits.min()), "greedy token")
            self.decoded.append(int(logits.argmax()))
            if step + 1 < self.steps:
                logits = self.read([self.decoded[-1]], n + step)


class Asked(ReKv):
    """The question comes behind the frames. Its rows choose, layer by layer, in a pass that is forgotten; then
    they are read again from what was chosen."""

    asks = dict(method="rekv", context_tokens=20 + 32 * 6)
    oracle = ("ContextManager and rekv_attention_forward of Becomebright/ReKV 63793f7, run in torch inside a NumPy"
              " forward, float64, as question_answering does with a question that is its prompt")

    def ask(self, _):
        model, ids = self.model, self.prefill.ids[self.end :]
        for l in range(model.layers):
            for h in range(model.groups):
                self.keep(l, h, np.arange(self.end))

        def choose(l, q, k, v):
            held = self.retrieved(l, q)
            self.past[l] = self.managers[l][0]
            self.past[l].retrieved_block_indices = None
            out = self.call(l, q, k, v)
            assert all(torch.equal(a, b) for a, b in zip(self.past[l], held))
            self.past[l] = tuple(held)
            return out

        first = model.run(ids, self.end, choose)[-1]
        self.logits = self.read(ids, self.end)
        assert np.allclose(first, self.logits, rtol=0, atol=1e-12)

    def decoding(self, logits=None):
        super().decoding(self.logits)


def model_base(model):
    """What the angles are powers of."""
    return float(model.c["rope_parameters"]["rope_theta"])
