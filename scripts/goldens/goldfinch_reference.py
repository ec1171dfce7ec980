# SPDX-License-Identifier: Apache-2.0
"""GoldFinch by its authors' model (recursal/GoldFinch-paper) on a CPU: their CUDA kernel's recurrence is written out, and
what their module takes from the trainer's package is not needed. The folder of the authors' repositories is
$CHECKOUTS."""

import functools
import math
import os
import pathlib
import sys
import types

import torch

from checkouts import Checkout

COMMIT = "4fbc70c"
STEPS = 64
KEYS = ("tmix", "tmix2", "cmix", "cmix2", "parallel", "ctx_len", "vocab_size", "n_layer", "n_embd", "dropout",
        "inv_other_layer_ratio", "kv_cache_compression_ratio", "dim_att", "dim_ffn", "head_size", "head_size_divisor", "rope",
        "brope", "alibi", "use_one_minus_w", "use_v2")  # fmt: skip


def recurrence(r, k, v, w, u, state):
    """The kernel `kernel_forward` of cuda/wkv6_cuda.cu; a row of the state is a column of values."""
    batch, rows, width = r.shape
    heads, dim = u.shape
    of = lambda x: x.float().view(batch, rows, heads, dim)
    r, k, v, w = of(r), of(k), of(v), (-of(w).exp()).exp()
    kept, out = state.float(), torch.empty(batch, rows, heads, dim)
    for t in range(rows):
        own = v[:, t, :, :, None] * k[:, t, :, None, :]
        out[:, t] = ((own * u.float()[None, :, None, :] + kept) * r[:, t, :, None, :]).sum(-1)
        kept = kept * w[:, t, :, None, :] + own
    state.copy_(kept)
    return out.view(batch, rows, width).to(state.dtype)


@functools.lru_cache(maxsize=None)
def modules():
    checkout = Checkout(pathlib.Path(os.environ["CHECKOUTS"]), "recursal/GoldFinch-paper", COMMIT)
    os.environ["RWKV_JIT_ON"] = "0"
    given = {"lightning": dict(Trainer=None), "cuda": {}, "cuda.rwkv6_cuda": dict(RUN_CUDA_RWKV6=recurrence),
             "src.logger": dict(print0=lambda *_, **__: None)}  # fmt: skip
    for name, content in given.items():
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(content)
    sys.path.insert(0, str(checkout.path))
    import configs
    import src.model

    return configs, src.model


def made(config):
    configs, model = modules()
    own = configs.FinchC2_Config(**{key: config[key] for key in KEYS})
    return model.Transformer(types.SimpleNamespace(model=own, train=types.SimpleNamespace(grad_cp=0)))


def shapes(c):
    return {k: tuple(v.shape) for k, v in made(c).state_dict().items()}


def drawn(name, randn):
    if name.endswith(("_w1", "_w2")):  # narrow pairs, as [in, out]
        x = randn()
        return x * 1.2 / math.sqrt(x.shape[-2])
    if ".time_maa_" in name:  # how much of it is the row's before
        return torch.sigmoid(randn())
    if name.endswith("time_decay"):  # so that some numbers of a state stay for long
        return 1.5 * randn() - 2.0
    if name.endswith("ln0.weight"):
        return 1.0 + 0.3 * randn()
    return randn() if name.endswith("time_faaaa") or name == "emb.weight" else None


class Oracle:
    def __init__(self, config, weights):
        self.config, self.weights = config, weights

    @functools.lru_cache(maxsize=None)
    def model(self, dtype):
        model = made(self.config)
        model.load_state_dict(self.weights)
        return model.to(dtype).eval()

    @torch.no_grad()
    def forward(self, ids, dtype=torch.float32, gaps=None):
        return self.model(dtype)(ids[None])[0][0].float()

    @torch.no_grad()
    def greedy_cached(self, ids):
        model, out, rows, state = self.model(torch.float32), [], ids[None], None
        for _ in range(STEPS):
            logits, state = model(rows, state)
            rows = logits[:, -1:].argmax(-1)
            out.append(int(rows))
        return torch.tensor(out)
