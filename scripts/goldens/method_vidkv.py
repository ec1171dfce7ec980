# SPDX-License-Identifier: Apache-2.0
"""VidKV (arXiv:2503.16257): signs of Fourier coordinates, levels by the mean size of 32 entries of a channel,
and 2 bits for wide channels. Rows [heads, n, dim] f32; one head is read back.

Its code finds and packs these codes, but reads signs as 0 and the size and three levels without their size
(unpack_and_dequant_vcache). So codes are its own where a checkout is there to ask, and are read by the paper."""

import contextlib
import types

import numpy as np

import method_codecs as codecs
from method_codecs import F, half

GROUP = 32


def narrow_channels(rows, share):
    """Which channels are not among the `share` whose ranges over all heads and entries are widest."""
    flat = rows.reshape(-1, rows.shape[-1])
    width = flat.max(0) - flat.min(0)
    wide = np.argsort(-width, kind="stable")[: int(rows.shape[-1] * share)]
    return np.setdiff1d(np.arange(rows.shape[-1]), wide), np.sort(wide)


def sizes(x):
    """Mean sizes of groups of entries, as f16; and whether f32 may round them otherwise."""
    exact = np.abs(x.astype(np.float64)).reshape(-1, GROUP, x.shape[-1]).mean(1)
    stored = half(exact)
    unsure = (half(exact * (1 - 3e-7)) != stored) | (half(exact * (1 + 3e-7)) != stored)
    spread = lambda y: np.repeat(y, GROUP, 0)
    return spread(stored).astype(np.float64), spread(unsure)


def three_levels(x, codes=None):
    """-size, 0 and size; the edges are at half of it."""
    size, unsure = sizes(x)
    wide = x.astype(np.float64)
    code = np.where(wide > size / 2, 1, np.where(wide < -size / 2, -1, 0))
    unsure |= np.abs(np.abs(wide) - size / 2) < 1e-5 * size
    if codes is not None:
        differ = codes != code
        assert (np.abs(np.abs(wide) - size / 2)[differ] < 1e-3 * size[differ]).all(), "levels of the authors' code"
    out = size * code
    out[unsure] = np.nan
    return out


def fourier_signs(x, codes=None):
    """Signs and mean sizes of the coordinates of all channels of an entry: a complex transform, both parts coded
    by themselves. Coordinates are scaled so that the transform is orthogonal, and with them their sizes."""
    n = x.shape[1]
    parts = np.fft.fft(x.astype(np.float64), norm="ortho")
    # Of a coordinate and its mirror image one is stored, for both.
    scale = np.full(n, np.sqrt(2.0))
    scale[0] = 1
    if n % 2 == 0:
        scale[n // 2] = 1
    read, unsure = [], np.zeros(len(x), bool)
    for which, part in enumerate((parts.real, parts.imag)):
        alone = np.zeros(n, bool) if which == 0 else scale == 1  # the imaginary part of these is 0
        size, unclear = sizes(part * scale)
        sign = np.where(part >= 0, 1.0, -1.0)
        if codes is not None:
            differ = (codes[..., which] != sign) & ~alone
            assert (np.abs(part[differ]) < 1e-5).all(), "signs of the authors' code"
        near = np.abs(part) < 2e-6 * np.abs(x).max(1, keepdims=True)
        unsure |= ((near | unclear) & ~alone).any(1)
        read.append(np.where(alone, 0, sign * size / scale))
    out = np.fft.ifft(read[0] + 1j * read[1], norm="ortho").real
    out[unsure] = np.nan
    return out


class ByAuthors:
    """The half of its quantizer that codes, in torch float32; kernels that pack are replaced by sums."""

    def __init__(self, checkout, definitions):
        import torch

        self.torch, self.name = torch, checkout.name
        folder = checkout.path / "transformers/src/transformers"

        class Packs:
            """What a launch on a grid does: `bits` of each number, the first lowest."""

            def __getitem__(self, grid):
                def launch(bits, numbers, code, *sizes, **settings):
                    wide = numbers.reshape(code.shape[0], code.shape[1], -1).long()
                    packed = (wide << (bits * torch.arange(wide.shape[-1]))).sum(-1)
                    code.copy_(((packed + 2**31) % 2**32 - 2**31).int())

                return launch

        class Ends:
            def __getitem__(self, grid):
                def launch(data, least, most, *sizes, **settings):
                    least.copy_(data.amin(-1))
                    most.copy_(data.amax(-1))

                return launch

        class Torch:
            cuda = types.SimpleNamespace(device=lambda device: contextlib.nullcontext())

            def __getattr__(self, name):
                return getattr(torch, name)

        given = {"torch": Torch(), "np": np, "triton": types.SimpleNamespace(cdiv=lambda a, b: -(-a // b)),
                 "_pack_along_last_dim": Packs(), "_minmax_along_last_dim": Ends()}
        self.quant = definitions(folder / "vidkv_quant.py",
                                 ("unpack_tensor", "triton_quantize_and_pack_along_last_dim"), given)  # fmt: skip
        self.quant.__dict__.update(given)
        cache = definitions(folder / "cache_utils.py", ("QuantizedTensorFunction", "QuantizedCacheLM", "QuantizedCacheVLM"), {
            "torch": torch, "DynamicCache": object, "QuantizedCacheConfig": object, "CacheConfig": object, "List": list,
            "Optional": __import__("typing").Optional, "Dict": dict, "Any": object, "Tuple": tuple,
            "triton_quantize_and_pack_along_last_dim": self.quant.triton_quantize_and_pack_along_last_dim,
            "unpack_and_dequant_vcache": None})  # fmt: skip
        self.cache = object.__new__(cache.QuantizedCacheVLM)
        self.cache.__dict__.update(axis_key=-1, q_group_size=GROUP, low_nbits=1, high_nbits=2)

    def _codes(self, packed, bits):
        return self.quant.unpack_tensor(packed, bits, pack_dim=3)[0].transpose(1, 2).numpy()

    def keys(self, rows, share):
        """(narrow channels, signs [heads, n, narrow, 2])."""
        self.cache.difficult_ratio = share
        found = self.cache.dynamic_quantize_key(self.torch.from_numpy(np.ascontiguousarray(rows))[None])
        signs = 2 * self._codes(found["q_easy"][0], 1).astype(int) - 1
        narrow = found["easy_idx"].numpy()
        return narrow, signs.reshape(*signs.shape[:2], len(narrow), 2)

    def values(self, rows):
        turned = self.torch.from_numpy(np.ascontiguousarray(rows.transpose(0, 2, 1)))[None]
        return self._codes(self.quant.triton_quantize_and_pack_along_last_dim(turned, GROUP, 1.58)[0], 2).astype(int) - 1


def cases(authors, keys, values, head, prompt, share=0.5):
    """`prompt` entries stand before the first step; all but the last part of a group are coded."""
    n = keys.shape[1]
    coded = n // GROUP * GROUP
    narrow, wide = narrow_channels(keys[:, : prompt // GROUP * GROUP], share)
    signs = levels = None
    if authors is not None:
        theirs, _ = authors.keys(keys[:, : prompt // GROUP * GROUP], share)
        assert (theirs == narrow).all(), "narrow channels of the authors' code"
        levels = authors.values(values[:, :coded])[head]
        # The whole of the entries in these channels, whichever are narrow among later ones.
        signs = authors.keys(keys[:, :coded][..., narrow], 0)[1][head]
    done = keys[head].astype(np.float64)
    done[:coded, narrow] = fourier_signs(keys[head, :coded, narrow].T, signs)
    done[:coded, wide] = codecs.by_channel(keys[head, :coded][:, wide], 2, GROUP)
    held = values[head].astype(np.float64)
    held[:coded] = three_levels(values[head, :coded], levels)
    said = "the paper's formulas in NumPy, float64 with f16 sizes"
    if authors is not None:
        said += (f"; narrow channels, signs and levels are those of dynamic_quantize_key and"
                 f" triton_quantize_and_pack_along_last_dim of {authors.name}, run in torch, float32")  # fmt: skip
    yield "vidkv", dict(method="vidkv"), said, {"k": done.astype(F), "v": held.astype(F)}


def authors(root, checkout, definitions):
    if not root or not (root / "KD-TAO+VidKV").is_dir():
        return None
    return ByAuthors(checkout(root, "KD-TAO/VidKV", "0e55c39"), definitions)
