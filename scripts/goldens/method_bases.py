# SPDX-License-Identifier: Apache-2.0
"""Methods that keep entries in other bases, or without channels, after their papers or their authors'
code and in NumPy: directions found in the prompt itself (ShadowKV, xKV), nested orthogonal bases
(MatryoshkaKV: The-kamisato/MatryoshkaKV-cache 25b5f133, modeling_pcallama_trial.py), codes in a basis of
blocks (DecoQuant), learned masks (LeanK: microsoft/MInference 7eec1020).
"""

import numpy as np

import method_codecs as codecs
from method_oracles import Sequence


class OwnDirections(Sequence):
    """Keys before rotation, and values, of all heads side by side: their first singular vectors alone."""

    def compress(self, keys=0, values=0):
        model, n = self.model, self.tokens
        for l in range(model.layers):
            for rank, rows, what in ((keys, self.prefill.raw[l], self.keys), (values, self.prefill.values[l], self.values)):
                if not rank:
                    continue
                u, s, vt = np.linalg.svd(np.concatenate(list(rows), 1), full_matrices=False)
                self.margins.note((s[rank - 1] - s[rank]) / s[0], f"directions {l}")
                held = (u[:, :rank] * s[:rank]) @ vt[:rank]
                for h in range(model.groups):
                    own = held[:, h * model.dim : (h + 1) * model.dim]
                    what[l][h] = model.rotate(own, np.arange(n)) if what is self.keys else own


class SharedBasis(Sequence):
    """All heads of neighbouring layers side by side: the first singular vectors of that alone."""

    def compress(self, layers, keys, values):
        model, n = self.model, self.tokens
        width = model.groups * model.dim
        for first in range(0, model.layers, layers):
            group = range(first, first + layers)
            for rank, rows, what in ((keys, self.prefill.raw, self.keys), (values, self.prefill.values, self.values)):
                joined = np.concatenate([head for l in group for head in rows[l]], 1)
                u, s, vt = np.linalg.svd(joined, full_matrices=False)
                self.margins.note((s[rank - 1] - s[rank]) / s[0], f"directions {first}")
                held = (u[:, :rank] * s[:rank]) @ vt[:rank]
                for l in group:
                    for h in range(model.groups):
                        at = (l - first) * width + h * model.dim
                        own = held[:, at : at + model.dim]
                        what[l][h] = model.rotate(own, np.arange(n)) if what is self.keys else own


# Made up, for a model of four layers with two KV heads of 32 dims.
def made_up():
    rng = np.random.default_rng(41)
    weights = rng.standard_normal((2, 4, 2, 32, 32)).astype(np.float32) * 0.3
    ranks = rng.integers(9, 25, (2, 4, 2))
    masks = np.zeros((4, 2, 32), np.float32)
    for l in range(4):
        for h in range(2):
            masks[l, h, rng.permutation(32)[: (8, 16, 24)[(l + h) % 3]]] = 1
    return weights, ranks, masks


def cayley(x):
    """As orthogonal_ of the authors' modeling_pcallama_trial.py makes it, in float64."""
    a = x.astype(np.float64) - np.swapaxes(x, -1, -2)
    unit = np.eye(x.shape[-1])
    return np.linalg.solve(unit - a / 2, unit + a / 2)


def write_side_files(folder):
    from method_weights import write_tables

    weights, ranks, masks = made_up()
    tables = {}
    for l in range(4):
        for i, side in enumerate(("keys", "values")):
            tables[f"{side}.{l}.there"] = cayley(weights[i, l])
            tables[f"{side}.{l}.ranks"] = ranks[i, l]
    write_tables(folder / "matryoshka.safetensors", "store.matryoshka", '{"raw_keys":false}', tables)
    write_tables(folder / "leank.safetensors", "store.leank", '{"pruned":0.5,"round_to":32}',
                 {f"channels.{l}": masks[l] for l in range(4)})


class Nested(Sequence):
    """Each head's first coordinates in an orthogonal basis of rotated keys, or values; later entries too."""

    def compress(self, rank=0, learned=False):
        model = self.model
        weights, ranks, _ = made_up()
        self.bases = {}
        for l in range(model.layers):
            for h in range(model.groups):
                for i, held in enumerate((self.keys, self.values)):
                    if learned:
                        basis = cayley(weights[i, l, h])[:, : ranks[i, l, h]]
                    else:
                        _, s, vt = np.linalg.svd(held[l][h], full_matrices=False)
                        self.margins.note((s[rank - 1] - s[rank]) / s[0], f"directions {l}.{h}")
                        basis = vt[:rank].T
                    self.bases[i, l, h] = basis
                    held[l][h] = held[l][h] @ basis @ basis.T

    def append(self, l, h, raw, v):
        super().append(l, h, raw, v)
        for i, held in enumerate((self.keys, self.values)):
            basis = self.bases[i, l, h]
            held[l][h][-1] = held[l][h][-1] @ basis @ basis.T


class BlockBasis(Sequence):
    """The two-tensor decomposition of blocks of neighbouring channels; the large factor in codes."""

    def compress(self, bits, block):
        top = 2 ** (bits - 1) - 1
        for l in range(self.model.layers):
            for held in (self.keys, self.values):
                blocks = np.concatenate([x.reshape(-1, block) for x in held[l]])
                _, s, vt = np.linalg.svd(blocks, full_matrices=False)
                for h, rows in enumerate(held[l]):
                    large = (rows.reshape(-1, block) @ vt.T / np.sqrt(s)).reshape(rows.shape)
                    step = np.abs(large).max(1, keepdims=True) / top
                    scale = codecs.half(step).astype(np.float64)
                    ratio = large / scale
                    codes = np.clip(np.rint(ratio), -top - 1, top)
                    open_ = (np.abs(np.abs(ratio - np.floor(ratio)) - 0.5).min(1) < 1e-5)
                    for near in (1 - 1e-6, 1 + 1e-6):
                        open_ |= (codecs.half(step * near) != codecs.half(step))[:, 0]
                    if l == self.model.layers - 1:
                        self.margins.note(1 if open_.sum() * 100 <= len(open_) else 1e-9, "open codes")
                    done = ((codes * scale).reshape(-1, block) * np.sqrt(s) @ vt).reshape(rows.shape)
                    done[open_] = np.nan
                    held[l][h] = done


class Masked(Sequence):
    """Keys but the first and the last of the prompt without the channels that a mask gives up."""

    def compress(self, sinks, recent):
        masks = made_up()[2]
        for l in range(self.model.layers):
            for h in range(self.model.groups):
                self.keys[l][h][sinks : self.tokens - recent] *= masks[l, h]


ALL = "all singular vectors of the prompt in NumPy, float64"
# Of 64 numbers. Near directions turn with float32's rounding.
CASES = [
    ("shadowkv_keys", dict(method="shadowkv_keys", budget="none", set=["store.key_rank=0.5"], tolerance=1e-3), ALL,
     OwnDirections, dict(keys=32)),
    ("xkv_layer", dict(method="xkv_layer", budget="none", set=["store.key_rank=0.5", "store.value_rank=0.75"],
                       tolerance=1e-3), ALL,
     OwnDirections, dict(keys=32, values=48)),
    ("xkv", dict(method="xkv", budget="none", set=["store.layers=2", "store.key_rank=0.25", "store.value_rank=0.375"],
                 tolerance=1e-3), ALL, SharedBasis, dict(layers=2, keys=32, values=48)),
    ("xkv_all", dict(method="xkv", budget="none", tolerance=1e-3), ALL, SharedBasis, dict(layers=4, keys=32, values=48)),
    ("matryoshkakv", dict(method="matryoshkakv", budget="none", tolerance=1e-3),
     "all singular vectors of each head's rotated keys and values in NumPy, float64", Nested, dict(rank=16)),
    ("matryoshkakv_learned",
     dict(method="matryoshkakv", budget="none", set=["store.calibration={inputs}/matryoshka.safetensors"]),
     "unitary_transform of The-kamisato/MatryoshkaKV-cache in NumPy, float64, with made-up bases and ranks",
     Nested, dict(learned=True)),
    ("decoquant", dict(method="decoquant", budget="none", steps=0, tolerance=1e-3),
     "the decomposition and the codes of lpyhdzx/DecoQuant_code, a scale for each head, in NumPy, float64",
     BlockBasis, dict(bits=4, block=16)),
    ("leank", dict(method="leank", budget="none",
                   set=["store.calibration={inputs}/leank.safetensors", "store.sinks=8", "store.recent=16"]),
     "mask_channels_key of microsoft/MInference's leank in NumPy, float64, with made-up masks",
     Masked, dict(sinks=8, recent=16)),
]
