# SPDX-License-Identifier: Apache-2.0
"""RetNet by flash-linear-attention's layers (requirements-rwkv.txt) on a CPU: what they give to Triton is given to that
package's own plain forms (retention, rotation) and to torch (norms, gates)."""

import functools

import torch
import torch.nn.functional as F


def renamed(name):
    """A checkpoint calls the norm of a head by the kernel that also gates."""
    return name.replace("attn.g_norm.", "attn.g_norm_swish_gate.")


def made(config):
    from fla.models.retnet import RetNetConfig, RetNetForCausalLM

    plain = dict(config, fuse_norm=False, fuse_swiglu=False, fuse_cross_entropy=False)
    for key in ("architectures", "torch_dtype", "transformers_version", "model_type"):
        plain.pop(key, None)
    return RetNetForCausalLM(RetNetConfig(**plain))


def shapes(c):
    return {renamed(k): tuple(v.shape) for k, v in made(c).state_dict().items()}


def retention(q, k, v, **keys):
    from fla.ops.retention.naive import naive_retention

    heads = lambda x: x.transpose(1, 2)
    return heads(naive_retention(heads(q), heads(k), heads(v))), None


class Rotary(torch.nn.Module):
    def __init__(self, inverse):
        super().__init__()
        self.inverse = inverse

    def forward(self, q, k, **keys):
        from fla.modules.rotary.ops import rotary_embedding_ref

        angles = torch.outer(torch.arange(q.shape[1], dtype=torch.float32), self.inverse)
        turned = lambda x: rotary_embedding_ref(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype))
        return turned(q), turned(k)


class Oracle:
    def __init__(self, config, weights):
        self.config, self.weights = config, weights

    @functools.lru_cache(maxsize=None)
    def model(self, dtype):
        import fla.layers.multiscale_retention as layers

        layers.chunk_retention = layers.fused_chunk_retention = layers.fused_recurrent_retention = retention
        model = made(self.config)
        held = {renamed(k): k for k in model.state_dict()}
        model.load_state_dict({held[k]: v for k, v in self.weights.items()})
        dim = self.config["hidden_size"] // self.config["num_heads"]
        inverse = 1.0 / 10000 ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
        for layer in model.model.layers:
            attn, mlp = layer.attn, layer.mlp
            attn.rotary = Rotary(inverse)
            norm = torch.nn.RMSNorm(attn.head_v_dim, eps=self.config["norm_eps"])
            norm.weight = attn.g_norm.weight
            attn.g_norm = norm
            mlp.forward = lambda x, mlp=mlp, **keys: mlp.down_proj(F.silu(mlp.gate_proj(x)) * mlp.up_proj(x))
        return model.to(dtype).eval()

    @torch.no_grad()
    def forward(self, ids, dtype=torch.float32, gaps=None):
        return self.model(dtype)(ids[None], use_cache=False).logits[0].float()

    def greedy_cached(self, ids):
        return None  # the plain form of retention keeps no state
