# SPDX-License-Identifier: Apache-2.0
"""RWKV-6 by flash-linear-attention's layers (requirements-rwkv.txt) on a CPU: what they give to Triton is given to that
package's own plain recurrence and to torch (the row before, norms, activations)."""

import functools

import torch
import torch.nn.functional as F

STEPS = 64


def made(config):
    from fla.models.rwkv6 import RWKV6Config, RWKV6ForCausalLM

    plain = dict(config, fuse_norm=False, fuse_cross_entropy=False)
    for key in ("architectures", "torch_dtype", "transformers_version", "model_type"):
        plain.pop(key, None)
    return RWKV6ForCausalLM(RWKV6Config(**plain))


def shapes(c):
    return {k: tuple(v.shape) for k, v in made(c).state_dict().items()}


def drawn(name, randn):
    if name.endswith((".mu", ".x_bias")):  # how much of it is the row's before
        return torch.sigmoid(randn())
    if name.endswith("w_proj.linear.lora.2.bias"):  # so that some numbers of a state stay for long
        return 1.5 * randn() - 2.0
    if name.endswith(".bonus"):
        return randn()
    return randn() / 2 if "x_proj" in name else None  # so that rows differ in what they take


def recurrence(r, k, v, w, u, scale, initial_state, output_final_state, **keys):
    from fla.ops.rwkv6.recurrent_naive import naive_recurrent_rwkv6

    heads = lambda x: x.transpose(1, 2)
    out, state = naive_recurrent_rwkv6(heads(r), heads(k), heads(v), heads(w), u, scale, initial_state, output_final_state)
    return heads(out), state


def shift(x, cu_seqlens=None):
    return F.pad(x, (0, 0, 1, -1)) - x


class HeadNorm(torch.nn.Module):
    def __init__(self, norm, heads, eps):
        super().__init__()
        self.weight, self.bias, self.heads, self.eps = norm.weight, norm.bias, heads, eps

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        return F.group_norm(rows, self.heads, self.weight, self.bias, self.eps).view_as(x)


class Oracle:
    def __init__(self, config, weights):
        self.config, self.weights = config, weights

    @functools.lru_cache(maxsize=None)
    def model(self, dtype):
        import fla.layers.rwkv6 as layers
        import fla.models.rwkv6.modeling_rwkv6 as modeling

        layers.chunk_rwkv6 = layers.fused_recurrent_rwkv6 = recurrence
        layers.token_shift = modeling.token_shift = shift
        model = made(self.config)
        model.load_state_dict(self.weights)
        for layer in model.model.layers:
            layer.attn.g_norm = HeadNorm(layer.attn.g_norm, self.config["num_heads"], self.config["norm_eps"])
            layer.attn.gate_fn = F.silu
            layer.ffn.act_fn = lambda x: F.relu(x).square()
        return model.to(dtype).eval()

    @torch.no_grad()
    def forward(self, ids, dtype=torch.float32, gaps=None):
        return self.model(dtype)(ids[None], use_cache=False).logits[0].float()

    @torch.no_grad()
    def greedy_cached(self, ids):
        model, out, rows = self.model(torch.float32), [], ids[None]
        cache = None
        for _ in range(STEPS):
            given = model(rows, past_key_values=cache, use_cache=True)
            cache, rows = given.past_key_values, given.logits[:, -1:].argmax(-1)
            out.append(int(rows))
        return torch.tensor(out)
