# SPDX-License-Identifier: Apache-2.0
"""Dynamic Memory Compression by its authors' code (NVIDIA/Megatron-LM, branch dmc): DynamicPooler, which
their model trains and evaluates with, inside a NumPy forward; and update_inference_params_triton_faster,
the kernel that decodes, by Triton's interpreter, which must come to the same entries."""

import importlib.util
import math
import os
import types

import numpy as np

from checkouts import Substituted, definitions
from method_oracles import softmax

KERNEL_WINDOW = 12  # their kernel has this number in it


class DmcByAuthors:
    """Everything is run anew for each token. Weights have bf16's epsilon, as where they decode."""

    merges = True  # what stays of the prompt is compared as well

    def __init__(self, prefill, margins, checkout, offset, window):
        import torch

        self.model, self.margins, self.ids, self.decoded = prefill.model, margins, list(prefill.ids), []
        self.offset, self.window, self.torch, self.checkout = offset, window, torch, checkout
        args = types.SimpleNamespace(dmc_init_val=offset, dmc_window_size=window, dmc_temp=0.1)
        given = dict(torch=Substituted(compile=lambda f: f, finfo=lambda _: torch.finfo(torch.bfloat16)), math=math,
                     F=torch.nn.functional, get_args=lambda: args, layer_decisions=[], MASK_CONST=-50000.0)
        code = definitions(checkout.path / "megatron/contrib/dmc/dmc.py",
                           ("get_decisions", "DynamicPooler", "_poolsum", "poolsum"), given)
        self.pooler = code.DynamicPooler().eval()

    def pooled(self, q, k, v):
        """[heads, n, dim] as they are: queries, pooled keys and values, and what is added to scores."""
        to = lambda x: self.torch.from_numpy(x.transpose(1, 0, 2)[:, None].copy())  # noqa: E731
        back = lambda x: x[:, 0].transpose(0, 1).numpy().astype(np.float64)  # noqa: E731
        with self.torch.no_grad():
            queries, keys, values, mask = self.pooler.downsample(to(q), to(k), to(v), False)
        return back(queries), back(keys), back(values), mask[0].numpy()

    def attend(self, l, q, k, v):
        model, n = self.model, q.shape[1]
        for gap in np.abs(k[:, 1:, -1] - self.offset).ravel():
            self.margins.note(gap / np.abs(k[..., -1]).max(), "who joins")
        queries, keys, values, mask = self.pooled(q, k, v)
        at = np.arange(n)
        raw, own = keys[:: model.share], values[:: model.share]
        queries, keys = model.rotate(queries, at), model.rotate(keys, at)
        queries[..., -1] = keys[..., -1] = 0
        seen = at[None, :] <= at[:, None]
        scores = queries @ keys.transpose(0, 2, 1) / math.sqrt(model.dim) + mask
        self.pos.append([np.flatnonzero(of[-1] == 0) for of in mask[:: model.share]])
        self.keys.append([of[kept] for of, kept in zip(keys[:: model.share], self.pos[-1])])
        self.values.append([of[kept] for of, kept in zip(own, self.pos[-1])])
        if self.last and self.window == KERNEL_WINDOW:
            self.check_kernel(q, k, v, raw, own)
        return softmax(np.where(seen, scores, -np.inf)) @ values

    def run(self, last=False):
        self.pos, self.keys, self.values, self.last = [], [], [], last
        return self.model.run(np.array(self.ids), 0, self.attend)[-1]

    def decode(self, steps):
        for _ in range(steps):
            logits = self.run()
            best = np.sort(logits)[-2:]
            self.margins.note((best[1] - best[0]) / (logits.max() - logits.min()), "greedy token")
            self.decoded.append(int(logits.argmax()))
            self.ids.append(self.decoded[-1])
        self.run(last=True)

    def check_kernel(self, q, k, v, keys, values):
        """The same entries one row after the other. The kernel has as many queries as keys: each KV head is
        given the mean of its queries' numbers."""
        os.environ["TRITON_INTERPRET"] = "1"
        torch, model, heads = self.torch, self.model, self.model.groups
        spec = importlib.util.spec_from_file_location(
            "dmc_triton", self.checkout.path / "megatron/contrib/dmc/triton.py")
        code = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(code)
        rows = lambda x: torch.from_numpy(x.astype(np.float32).transpose(1, 0, 2)[:, None].copy())  # noqa: E731
        means = q.reshape(heads, model.share, *q.shape[1:]).mean(1)
        queries, of_keys, of_values = rows(means), rows(k), rows(v)
        windows = torch.zeros(self.window + 1, 2, 1, heads, model.dim)
        weights = torch.ones(self.window + 1, 1, heads, 1)
        weights[0] = 0
        lens = torch.zeros(2, 1, heads, dtype=torch.int32)
        lens[0] = -1
        for i in range(q.shape[1]):
            code.update_inference_params_triton_faster(
                queries[i], of_keys[i], of_values[i], windows, weights, lens, win_ptr=i % self.window,
                win_sz=self.window, seq_start=i, extra_val=self.offset, eps=torch.finfo(torch.bfloat16).eps)
        for ours, theirs in ((keys, of_keys), (values, of_values)):
            theirs = theirs[:, 0].transpose(0, 1).numpy()
            assert np.abs(theirs - ours).max() < 3e-5 * np.abs(ours).max(), np.abs(theirs - ours).max()
        assert (lens[0, 0].numpy() + 1 == [len(kept) for kept in self.pos[-1]]).all()
        assert (queries[..., -1] == 0).all() and (of_keys[..., -1] == 0).all()


def dmc_cases(checkout):
    said = f"DynamicPooler of {checkout.name}, run in torch inside a NumPy forward, float64"
    kernel = "; its decoding kernel, run by Triton's interpreter row by row, comes to the same entries"
    row = lambda name, offset, window, oracle, more=(): (  # noqa: E731
        name, dict(method="dmc", budget="none", set=[f"prepare.offset={offset}", *more]), oracle, DmcByAuthors,
        dict(checkout=checkout, offset=offset, window=window))
    return [row("dmc", -0.5, KERNEL_WINDOW, said + kernel),
            row("dmc_window", -1.0, 4, said, ["prepare.window=4"])]  # fmt: skip
