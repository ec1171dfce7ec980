# SPDX-License-Identifier: Apache-2.0
"""How quantisers store the entries of one KV head, after their papers and in NumPy: each function
takes rows [n, dim] f32 and returns what reading them back gives. Codes are computed in f32 with
scales already rounded to f16, as the papers' kernels do.
"""

import math

import numpy as np

F = np.float32


def half(x):
    return np.asarray(x, F).astype(np.float16).astype(F)


def affine(x, bits, axis):
    """One group along `axis`: x = scale * code + zero."""
    low, high = x.min(axis, keepdims=True), x.max(axis, keepdims=True)
    top = F(2**bits - 1)
    scale, zero = half((high - low) / top), half(low)
    ratio = np.where(scale == 0, F(0), (x - zero) / np.where(scale == 0, F(1), scale))
    return scale * np.rint(np.clip(ratio, F(0), top)) + zero


def note_codes(x, bits, group, axis, margins, where):
    """How near any number is to another code."""
    rows = np.asarray(x, np.float64) if axis == 0 else np.asarray(x, np.float64).T
    for i in range(0, len(rows), group):
        part = rows[i : i + group]
        low, high = part.min(0), part.max(0)
        scale = (high - low) / (2**bits - 1)
        # Where float32 may round a scale or a zero to another f16, codes must be the same by either.
        for near_low in (1 - 3e-6, 1 + 3e-6):
            for near_scale in (1 - 3e-6, 1 + 3e-6):
                ratio = (part - half(low * near_low)) / half(scale * near_scale)
                margins.note(np.abs(np.abs(ratio - np.floor(ratio)) - 0.5).min(), where)
                if (np.rint(ratio) != np.rint((part - half(low)) / half(scale))).any():
                    margins.note(1e-9, where)


def by_channel(x, bits, group):
    """Groups of `group` entries of one dim."""
    return np.vstack([affine(x[i : i + group], bits, 0) for i in range(0, len(x), group)])


def by_token(x, bits, group):
    """Groups of `group` dims of one entry."""
    return np.hstack([affine(x[:, i : i + group], bits, 1) for i in range(0, x.shape[1], group)])


def split_outliers(x, share, axis):
    """Rows with the largest and smallest `share / 2` of each vector at the mean of its rest, where
    those were, and their values."""
    work = x if axis == 0 else x.T  # vectors are columns
    n = len(work)
    side = int(math.floor(share * n / 2 + 0.5))
    order = np.argsort(work, axis=0, kind="stable")
    taken = np.zeros_like(work, dtype=bool)
    for column in range(work.shape[1]):
        taken[order[:side, column], column] = True
        taken[order[n - side :, column], column] = True
    rest = np.where(taken, 0, work.astype(np.float64)).sum(0) / (n - 2 * side)
    filled = np.where(taken, rest.astype(F), work)
    if axis == 1:
        filled, taken = filled.T, taken.T
    return filled, taken


def gear(x, bits, group, share, keys):
    """Without the low-rank part: what is stored, and the error that the low-rank part is fitted to."""
    out = []
    for begin in range(0, len(x), 64):
        page = x[begin : begin + 64]
        filled, taken = split_outliers(page, share, 0 if keys else 1)
        coded = by_channel(filled, bits, group) if keys else by_token(filled, bits, group)
        out.append(np.where(taken, half(page), coded))
    return np.vstack(out)


def best_error(error, rank):
    """What no correction of that rank can get below."""
    s = np.linalg.svd(error.astype(np.float64), compute_uv=False)
    return math.sqrt((s[rank:] ** 2).sum())


def normal_levels(bits, cut=0.005):
    """Lloyd-Max levels of the normal distribution cut at `cut` and 1 - `cut`, scaled to [-1, 1]."""
    below = lambda x: 0.5 * math.erfc(-x / math.sqrt(2))
    density = lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    low, high = 0.0, 10.0
    while high - low > 1e-15 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < 1 - cut else (low, middle)
        if middle in (low, high) and high - low < 1e-14:
            break
    levels = np.linspace(-low, low, 2**bits + 2)[1:-1]
    for _ in range(100000):
        edges = [-low, *((levels[1:] + levels[:-1]) / 2), low]
        new = np.array([(density(a) - density(b)) / (below(b) - below(a))
                        for a, b in zip(edges, edges[1:])])
        moved, levels = np.abs(new - levels).max(), new
        if moved < 1e-14:
            break
    return np.round(levels / low, 6).astype(F)


def nearest(u, levels, margins, where):
    """Of two the lower."""
    edges = (levels[1:] + levels[:-1]) * F(0.5)
    margins.note(np.abs(u[..., None].astype(np.float64) - edges).min(), where)
    return levels[(u[..., None] > edges).sum(-1)]


def levels_by_channel(x, low, high, levels, margins):
    """Ranges of dims fixed ahead; what lies outside is kept as f16."""
    scale, zero = (F(0.5) * high - F(0.5) * low).astype(F), (F(0.5) * low + F(0.5) * high).astype(F)
    u = np.where(scale == 0, F(0), (x - zero) / np.where(scale == 0, F(1), scale))
    outside = (x < low) | (x > high)
    coded = scale * nearest(np.where(outside, F(9), u), levels, margins, "kvquant keys") + zero
    return np.where(outside, half(x), coded)


def levels_by_token(x, levels, margins):
    low, high = x.min(1, keepdims=True), x.max(1, keepdims=True)
    scale, zero = half(F(0.5) * high - F(0.5) * low), half(F(0.5) * low + F(0.5) * high)
    u = np.where(scale == 0, F(0), (x - zero) / np.where(scale == 0, F(1), scale))
    return scale * nearest(u, levels, margins, "kvquant values") + zero


def blocks(x):
    return x.reshape(len(x), -1, 32)


def q8_0(x):
    b = blocks(x)
    d = np.abs(b).max(-1, keepdims=True) / F(127)
    y = b * np.where(d > 0, F(1) / np.where(d > 0, d, F(1)), F(0))
    codes = np.sign(y) * np.floor(np.abs(y) + F(0.5))  # half away from zero
    return (half(d) * codes.astype(F)).reshape(x.shape)


def q4_0(x):
    b = blocks(x)
    largest = np.take_along_axis(b, np.abs(b).argmax(-1)[..., None], -1)
    d = largest / F(-8)
    y = b * np.where(d != 0, F(1) / np.where(d != 0, d, F(1)), F(0))
    codes = np.minimum(np.trunc(y + F(8.5)), F(15))
    return (half(d) * (codes - F(8))).reshape(x.shape)


def fp8(x):
    import torch

    return torch.from_numpy(np.clip(x, -448, 448)).to(torch.float8_e4m3fn).float().numpy()
