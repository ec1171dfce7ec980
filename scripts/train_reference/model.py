# SPDX-License-Identifier: Apache-2.0
"""A Llama, and a DeepSeek-V2 of dense layers, for training, with Hugging Face's parameter names, and
their structured start."""
import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Shape:
    vocab: int = 1280
    width: int = 256
    layers: int = 4
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 64
    ffn: int = 704
    theta: float = 1e6
    eps: float = 1e-5
    reach: int = 4096  # the distance at which matching must still work
    latent: int = 0    # DeepSeek-V2: size of the cached latent; 0: a Llama
    rope_dim: int = 0  # DeepSeek-V2: the part of a key that turns, shared by the heads

    def as_dict(self):
        return asdict(self)


VARIANTS = {"gqa": {"kv_heads": 2}, "mqa": {"kv_heads": 1}, "mha": {"kv_heads": 8},
            "mla": {"kv_heads": 1, "latent": 128, "rope_dim": 32, "theta": 1e4}}


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, self.eps)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.q_proj = nn.Linear(s.width, s.heads * s.head_dim, bias=False)
        self.k_proj = nn.Linear(s.width, s.kv_heads * s.head_dim, bias=False)
        self.v_proj = nn.Linear(s.width, s.kv_heads * s.head_dim, bias=False)
        self.o_proj = nn.Linear(s.heads * s.head_dim, s.width, bias=False)

    def forward(self, x, cos, sin, values_from=None):
        """values_from: for each place of the flattened batch, the place whose value stands there."""
        s, (batch, length, _) = self.s, x.shape
        q = self.q_proj(x).view(batch, length, s.heads, s.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, s.kv_heads, s.head_dim).transpose(1, 2)
        v = self.v_proj(x)
        if values_from is not None:
            v = v.flatten(0, 1)[values_from]
        v = v.view(batch, length, s.kv_heads, s.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        repeat = s.heads // s.kv_heads
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))


class LatentAttention(nn.Module):
    """Multi-head latent attention: the cache holds one latent and one turning key part a token."""

    def __init__(self, s):
        super().__init__()
        self.s = s
        self.q_proj = nn.Linear(s.width, s.heads * (s.head_dim + s.rope_dim), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(s.width, s.latent + s.rope_dim, bias=False)
        self.kv_a_layernorm = Norm(s.latent, 1e-6)
        self.kv_b_proj = nn.Linear(s.latent, s.heads * 2 * s.head_dim, bias=False)
        self.o_proj = nn.Linear(s.heads * s.head_dim, s.width, bias=False)

    def forward(self, x, cos, sin):
        s, (batch, length, _) = self.s, x.shape
        q = self.q_proj(x).view(batch, length, s.heads, -1).transpose(1, 2)
        q, q_turn = q.split((s.head_dim, s.rope_dim), -1)
        latent, turn = self.kv_a_proj_with_mqa(x).split((s.latent, s.rope_dim), -1)
        kv = self.kv_b_proj(self.kv_a_layernorm(latent)).view(batch, length, s.heads, -1)
        k, v = kv.transpose(1, 2).split((s.head_dim, s.head_dim), -1)
        q_turn, turn = (rotate(apart(part), cos, sin) for part in (q_turn, turn[:, None]))
        q = torch.cat((q, q_turn), -1)
        k = torch.cat((k, turn.expand(-1, s.heads, -1, -1)), -1)
        v = F.pad(v, (0, s.rope_dim))  # the fast kernels want keys and values of one size
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)[..., :s.head_dim]
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))


def apart(x):
    """Neighbours turn together in DeepSeek-V2: (0, 1), (2, 3) ... to (0, half), (1, half + 1) ..."""
    return torch.cat((x[..., 0::2], x[..., 1::2]), -1)


class Mlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate_proj = nn.Linear(s.width, s.ffn, bias=False)
        self.up_proj = nn.Linear(s.width, s.ffn, bias=False)
        self.down_proj = nn.Linear(s.ffn, s.width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.input_layernorm = Norm(s.width, s.eps)
        self.self_attn = LatentAttention(s) if s.latent else Attention(s)
        self.post_attention_layernorm = Norm(s.width, s.eps)
        self.mlp = Mlp(s)

    def forward(self, x, cos, sin, **attention):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, **attention)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed_tokens = nn.Embedding(s.vocab, s.width)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.norm = Norm(s.width, s.eps)


class Llama(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        self.lm_head = nn.Linear(shape.width, shape.vocab, bias=False)
        self.tables = {}

    def frequencies(self):
        s = self.shape
        turning = s.rope_dim or s.head_dim
        return s.theta ** (-torch.arange(0, turning, 2).double() / turning)

    def table(self, length, dtype):
        if (length, dtype) not in self.tables:
            angle = torch.outer(torch.arange(length).double(), self.frequencies()).repeat(1, 2)
            self.tables[length, dtype] = angle.cos().to(dtype), angle.sin().to(dtype)
        return self.tables[length, dtype]

    def forward(self, ids, picked=None):
        """Logits of the picked positions of the flattened batch (all when None)."""
        kind = ids.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float
        cos, sin = (t.to(ids.device) for t in self.table(ids.shape[1], dtype))
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        x = x.flatten(0, 1)
        return self.lm_head(self.model.norm(x if picked is None else x[picked]))


def build(variant, vocab):
    return Llama(Shape(vocab=vocab, **VARIANTS[variant]))


# ------------------------------------------------------------------------- other numbers of KV heads

@torch.no_grad()
def converted(weights, origin, shape):
    """The weights of a Llama with shape["kv_heads"] as those of one that differs in that alone. More
    heads: each is copied, the function stays. Fewer: each rotary pair of a shared key, and the shared
    value, keep of the merged heads what queries and output projections read most of; where those
    heads agree, the function stays as well.
    """
    old, new = origin["kv_heads"], shape.kv_heads
    sizes = {name: size for name, size in shape.as_dict().items() if name != "kv_heads"}
    if shape.latent or sizes != {name: origin.get(name, 0) for name in sizes}:
        raise SystemExit("--from takes a Llama that differs in its number of KV heads alone")
    if new == old:
        return weights
    weights = {name: weight.clone() for name, weight in weights.items()}
    for layer in range(shape.layers):
        name = f"model.layers.{layer}.self_attn."
        q, k, v, o = (weights[f"{name}{part}_proj.weight"] for part in "qkvo")
        k, v = (part.view(old, shape.head_dim, shape.width) for part in (k, v))
        if new % old == 0:
            k, v = (part.repeat_interleave(new // old, 0) for part in (k, v))
        elif old % new == 0:
            q = q.view(shape.heads, shape.head_dim, shape.width)
            o = o.view(shape.width, shape.heads, shape.head_dim).transpose(0, 1)
            merged = [merge(*parts) for parts in zip(*(
                part.chunk(new) for part in (q, k, v, o)))]
            q, k, v, o = (torch.cat(parts) for parts in zip(*merged))
            o = o.transpose(0, 1)
        else:
            raise SystemExit(f"--from: {old} KV heads do not become {new}")
        for part, value in zip("qkvo", (q, k, v, o)):
            weights[f"{name}{part}_proj.weight"] = value.reshape(
                -1, shape.heads * shape.head_dim if part == "o" else shape.width).contiguous()
    return weights


def merge(q, k, v, o):
    """One KV head from several. q: [heads, dim, width], k and v: [groups, dim, width],
    o: [heads, width, dim] -> the same with one group."""
    heads, dim, width = q.shape
    groups, half = len(k), dim // 2
    # Keys: a rotary pair is a complex number, and only complex factors commute with its turning.
    query = torch.complex(q[:, :half], q[:, half:]).view(groups, -1, half, width)
    key = torch.complex(k[:, :half], k[:, half:])
    weight = query.abs().square().sum((1, 3)).sqrt()  # [groups, half]: how much each key is asked
    _, _, rows = torch.linalg.svd((key * weight[..., None]).transpose(0, 1), full_matrices=False)
    shared = rows[:, 0]                                                   # [half, width], norm 1
    factor = (key * shared.conj()).sum(-1)                                # key ~ factor * shared
    size = factor.abs().square().mean(0).sqrt().clamp_min(1e-6)           # keys keep their size
    shared, factor = shared * size[:, None], factor / size
    query = query * factor.conj()[:, None, :, None]                       # Re(q conj(k)) stays
    query = query.view(heads, half, width)
    # Values: the space of their inputs that the output projections read most of.
    o = o.view(groups, -1, width, dim)
    read = torch.einsum("ghwd,ghwe->gde", o, o)
    size, basis = torch.linalg.eigh(read)
    root = size.clamp_min(0).sqrt()[:, :, None] * basis.mT
    _, _, space = torch.linalg.svd((root @ v).reshape(-1, width), full_matrices=False)
    space = space[:dim]                                                   # [dim, width]
    scale = (v.square().sum() / groups / dim).sqrt()                      # values keep their size
    back = (v @ space.T) / scale                                          # [groups, dim, dim]
    o = (o @ back[:, None]).view(heads, width, dim)
    return (torch.cat((query.real, query.imag), 1), torch.cat((shared.real, shared.imag), 0)[None],
            (space * scale)[None], o)


# --------------------------------------------------------------------------------- structured start

SHIFTS = 6  # layer 0 brings the last six tokens to every position
VIEW = 21   # each seen through this many directions
KEY_CONSTANT = 15.0  # size of the constant in the slowest key channels


def random_map(g, *size):
    return torch.randn(*size, generator=g)


def orthonormal(g, rows, columns):
    """Orthonormal rows, or columns where there are more rows."""
    q, _ = torch.linalg.qr(random_map(g, max(rows, columns), min(rows, columns)))
    return q if rows >= columns else q.T


# What each matching head compares: the tokens so many steps back from the present one.
SPANS = (range(0, 1), range(0, 2), range(0, 3), range(0, 3),
         range(0, 4), range(0, 6), range(1, 6), range(2, 6))


@torch.no_grad()
def structured_start(model, seed):
    """An induction circuit: shift heads in layer 0, matching heads in layer 1.

    Nothing here knows a task, a key or an answer. README.md explains each step.
    """
    s, g = model.shape, torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if p.dim() == 2:
            p.copy_(random_map(g, *p.shape) * 0.5 / math.sqrt(p.shape[1]))
        if name.endswith(("o_proj.weight", "down_proj.weight", "lm_head.weight")):
            p.zero_()

    # The residual stream: a constant direction, the token's own space, one space per shift.
    basis = orthonormal(g, s.width, s.width).T
    constant, own = basis[0], basis[1:129]
    places = [basis[129 + VIEW * i: 129 + VIEW * (i + 1)] for i in range(SHIFTS)]
    norm = math.sqrt(s.width)
    tokens = F.normalize(random_map(g, s.vocab, len(own)), dim=1) * norm
    model.model.embed_tokens.weight.copy_(tokens @ own + norm * constant)

    view = orthonormal(g, VIEW, len(own))  # how a shifted token is seen
    rest = orthonormal(g, len(own), len(own))[:s.head_dim - VIEW]
    values = torch.cat((view, rest)) @ own  # the view first, then whatever fills the values
    copied = orthonormal(g, s.head_dim, len(own)) @ own  # how a matched token is seen
    output = orthonormal(g, s.width, s.head_dim)
    start = latent_start if s.latent else llama_start
    start(model, g, constant, own, places, view, values, copied, output)
    # The head reads what the matching heads write, so that a match is a guess from the start.
    model.lm_head.weight.copy_(0.02 * (tokens @ own) @ copied.T @ output.T)


def llama_start(model, g, constant, own, places, view, values, copied, output):
    s, dim, half = model.shape, model.shape.head_dim, model.shape.head_dim // 2
    group, norm = s.heads // s.kv_heads, math.sqrt(s.width)
    frequency = model.frequencies().float()
    in_layer0 = norm / math.sqrt(2)  # of the constant and of the token, after the norm

    # Layer 0: the query of shift head h is the constant key turned h + 1 steps back.
    fast = (frequency > 0.04).nonzero().flatten()
    size = math.sqrt(40 * math.sqrt(dim) / len(fast)) / in_layer0
    first = model.model.layers[0].self_attn
    for kv in range(s.kv_heads):
        key = first.k_proj.weight[kv * dim:(kv + 1) * dim]
        key.zero_()
        key[fast] = size * constant
        first.v_proj.weight[kv * dim:(kv + 1) * dim] = values
    for head in range(SHIFTS):
        query = first.q_proj.weight[head * dim:(head + 1) * dim]
        query.zero_()
        turn = -(head + 1) * frequency[fast]
        query[fast] = (size * turn.cos())[:, None] * constant
        query[fast + half] = (size * turn.sin())[:, None] * constant
        first.o_proj.weight[:, head * dim:head * dim + VIEW] = 1.5 * places[head].T

    # Layer 1: keys hold the tokens before a position, queries the tokens up to the present one.
    slow = (frequency * s.reach < 1.6).nonzero().flatten()
    slow = torch.cat((slow, slow + half))
    second = model.model.layers[1].self_attn
    for kv in range(s.kv_heads):
        maps = [orthonormal(g, len(slow), VIEW) * 1.87 for _ in range(SHIFTS)]
        key = second.k_proj.weight[kv * dim:(kv + 1) * dim]
        key.zero_()
        heads = range(kv * group, (kv + 1) * group)
        # As many as its heads compare, but the first group of two stays with three.
        for back in range(3 if s.kv_heads == 2 and kv == 0 else
                          max(SPANS[head].stop for head in heads)):
            key[slow] += maps[back] @ places[back]
        for head in heads:
            query = second.q_proj.weight[head * dim:(head + 1) * dim]
            query.zero_()
            for back in SPANS[head]:
                query[slow] += maps[back] @ (view @ own if back == 0 else places[back - 1])
            second.o_proj.weight[:, head * dim:(head + 1) * dim] = 0.5 * output
        second.v_proj.weight[kv * dim:(kv + 1) * dim] = copied

    # A constant in the slowest key channels, nearly the same for every token: real models have such
    # channels, and per-token quantisation trips over them. It moves all scores of a query alike.
    for layer in model.model.layers:
        for kv in range(s.kv_heads):
            for channel in (half - 2, half - 1):
                layer.self_attn.k_proj.weight[kv * dim + channel] += (
                    KEY_CONSTANT / (0.57 * norm) * constant)


def latent_start(model, g, constant, own, places, view, values, copied, output):
    """Shift heads in the turning part of keys, matching heads in the part that does not turn, so no
    slow pairs are needed. The latent is half a view of the token, half the mapped earlier tokens."""
    s, dim, each = model.shape, model.shape.head_dim, model.shape.head_dim + model.shape.rope_dim
    half, norm = s.latent // 2, math.sqrt(s.width)
    frequency = model.frequencies().float()
    in_layer0 = norm / math.sqrt(2)

    fast = (frequency > 0.04).nonzero().flatten()
    size = math.sqrt(40 * math.sqrt(each) / len(fast)) / in_layer0
    first = model.model.layers[0].self_attn
    down, up = first.kv_a_proj_with_mqa.weight, first.kv_b_proj.weight
    down.zero_()
    down[:half] = values
    down[s.latent + 2 * fast] = size * constant
    up.zero_()
    for head in range(s.heads):
        up[head * 2 * dim + dim:(head + 1) * 2 * dim, :half] = torch.eye(dim, half)
    for head in range(SHIFTS):
        query = first.q_proj.weight[head * each:(head + 1) * each]
        query.zero_()
        turn = -(head + 1) * frequency[fast]
        query[dim + 2 * fast] = (size * turn.cos())[:, None] * constant
        query[dim + 2 * fast + 1] = (size * turn.sin())[:, None] * constant
        first.o_proj.weight[:, head * dim:head * dim + VIEW] = 1.13 * places[head].T

    second = model.model.layers[1].self_attn
    down, up = second.kv_a_proj_with_mqa.weight, second.kv_b_proj.weight
    down.zero_()
    up.zero_()
    maps = [orthonormal(g, half, VIEW) for _ in range(SHIFTS)]
    down[:half] = copied[:half]
    for back in range(SHIFTS):
        down[half:s.latent] += maps[back] @ places[back]
    for head in range(s.heads):
        up[head * 2 * dim:head * 2 * dim + dim, half:] = torch.eye(dim, half)
        up[head * 2 * dim + dim:(head + 1) * 2 * dim, :half] = torch.eye(dim, half)
        query = second.q_proj.weight[head * each:(head + 1) * each]
        query.zero_()
        for back in SPANS[head]:
            query[:dim] += 4 * maps[back] @ (view @ own if back == 0 else places[back - 1])
        second.o_proj.weight[:, head * dim:(head + 1) * dim] = 0.5 * output
