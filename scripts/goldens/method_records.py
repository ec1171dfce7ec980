# SPDX-License-Identifier: Apache-2.0
"""Quantisers whose numbers are rebuilt from several codes of an entry, after their papers and in
NumPy: rows [n, dim] f32 of one KV head become what reading them back gives.
"""

import math

import numpy as np

import method_codecs as codecs
from method_codecs import F, half


def e4m3(x):
    return codecs.floats(np.asarray(x, F), "float8_e4m3fn")


def channel_clusters(rows, count):
    """SKVQ: k-means of channels by (least, largest), from those at even shares of the order of widths."""
    points = np.stack([rows.min(0), rows.max(0)], 1).astype(np.float64)
    order = np.argsort(points[:, 1] - points[:, 0], kind="stable")
    centres = points[[order[(2 * c + 1) * len(points) // (2 * count)] for c in range(count)]]
    of = None
    for _ in range(100):
        now = ((points[:, None] - centres) ** 2).sum(-1).argmin(1)
        if of is not None and (now == of).all():
            break
        of = now
        for c in range(count):
            if (of == c).any():
                centres[c] = points[of == c].mean(0)
    return of


def clusters(x, of, count, bits, clip):
    """Ranges of groups of channels, clipped; scale and zero rounded to 8 bits after codes are there."""
    out, top = np.empty_like(x), F(2**bits - 1)
    for g in range(count):
        part = x[:, of == g]
        low = part.min(1, keepdims=True) * F(clip)
        high = part.max(1, keepdims=True) * F(clip)
        step = np.maximum((high - low) / top, F(1e-5))
        code = np.rint(np.clip((part - low) / step, F(0), top))
        out[:, of == g] = e4m3(step) * code + e4m3(low)
    return out


def polar_pairs(x, bits, group):
    """PolarQuant's keys: floor codes of radius and angle within their ranges, middles of the steps."""
    dim = x.shape[1] // 2
    a, b = x[:, :dim], x[:, dim:]
    radius = np.sqrt(a * a + b * b)
    angle = np.arctan2(b.astype(np.float64), a.astype(np.float64))
    angle = np.where(angle < 0, angle + 2 * np.pi, angle).astype(F)
    out = []
    for part in (radius, angle):
        done = np.empty_like(part)
        for i in range(0, len(x), group):
            some = part[i : i + group]
            low, high = some.min(0), some.max(0)
            least, step = half(low), half((high - low) / F(2**bits))
            safe = np.where(step == 0, F(1), step)
            code = np.clip(np.floor((some - least) / safe), F(0), F(2**bits - 1))
            done[i : i + group] = np.where(step == 0, F(0), code + F(0.5)) * step + least
        out.append(done.astype(np.float64))
    return np.hstack([out[0] * np.cos(out[1]), out[0] * np.sin(out[1])])


def angle_levels(level, count=4):
    """Lloyd-Max levels of an angle in [0, pi / 2] whose density goes with sin(2 t) ** (2**(level - 1) - 1)."""
    t = (np.arange(2_000_000) + 0.5) * (math.pi / 2 / 2_000_000)
    density = np.sin(2 * t) ** (2 ** (level - 1) - 1)
    mass, moment = np.cumsum(density), np.cumsum(t * density)
    levels = np.linspace(0, math.pi / 2, count + 2)[1:-1]
    for _ in range(5000):
        at = np.concatenate([[0], np.searchsorted(t, (levels[1:] + levels[:-1]) / 2), [len(t)]])
        ends = lambda sums: np.diff(np.concatenate([[0], sums])[at])
        new = ends(moment) / ends(mass)
        moved, levels = np.abs(new - levels).max(), new
        if moved < 1e-12:
            break
    return levels


def polar_tree(x, margins):
    """PolarQuant, recursive: blocks of 16 as one radius and angles of 16 sectors, then of four levels."""
    wide = x.astype(np.float64).reshape(len(x), -1, 16)
    angles, radii = [], wide
    for level in range(1, 5):
        a, b = radii[..., ::2], radii[..., 1::2]
        angle = np.arctan2(b, a)
        if level == 1:
            sector = np.mod(angle, 2 * np.pi) / (np.pi / 8)
            margins.note(np.abs(sector - np.rint(sector)).min() * np.pi / 8, "polar sector")
            angles.append((np.floor(sector) + 0.5) * np.pi / 8)
        else:
            levels = angle_levels(level)
            edges = (levels[1:] + levels[:-1]) / 2
            margins.note(np.abs(angle[..., None] - edges).min(), f"polar angle of level {level}")
            angles.append(levels[(angle[..., None] > edges).sum(-1)])
        radii = np.hypot(a, b)
    top, unsure = half(radii), np.zeros(len(x), bool)
    for near in (1 - 5e-7, 1 + 5e-7):
        unsure |= (half(radii * near) != top).any((1, 2))
    out = top.astype(np.float64)
    for angle in reversed(angles):
        out = np.stack([out * np.cos(angle), out * np.sin(angle)], -1).reshape(*angle.shape[:-1], -1)
    out = out.reshape(len(x), -1)
    out[unsure] = np.nan
    return out


def with_sketch(x, bits, margins, where):
    """TurboQuant's form for inner products: levels of unit variance, and of the error its length and
    the signs of an orthogonal projection, which queries meet as QJL's."""
    wide, dim = x.astype(np.float64), x.shape[1]
    coded = codecs.normal_levels_of_length(x, bits, margins, where)
    rest = wide - coded
    length = np.sqrt((rest * rest).sum(1, keepdims=True))
    stored = half(length)
    unsure = np.zeros(len(x), bool)
    for near in (1 - 1e-6, 1 + 1e-6):
        unsure |= (half(length * near) != stored)[:, 0]
    square = codecs.hadamard(dim)
    projected = rest @ square
    unsure |= (np.abs(projected) < 1e-6 * np.abs(wide).max(1, keepdims=True)).any(1)
    sign = np.where(projected < 0, -1.0, 1.0)
    out = coded + math.sqrt(math.pi / (2 * dim)) * stored * (sign @ square.T)
    out[unsure] = np.nan
    return out


# ---- Codewords ----


def normals(seed, stream, count):
    w = codecs.words(seed, stream, count * 4).reshape(-1, 4)
    doubles = ((w[:, ::2] | w[:, 1::2] << np.uint64(32)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.sqrt(-2 * np.log(1 - doubles[:, 0])) * np.cos(2 * np.pi * doubles[:, 1])


def word_seed(layer, head, side, seed=0):
    return ((seed * 4096 + layer) * 4096 + head) * 2 + (0 if side == "k" else 1)


def drawn_words(dim, width, bits, stages, seed, commuting=False):
    """[stages][runs][words][width]; commuting ones [stages][halves][2][pairs]."""
    left = 2.0 ** (-2.0 * bits / width)
    shape = (2 ** (bits // 2), 2, dim // 2) if commuting else (dim // width, 2**bits, width)
    count = math.prod(shape)
    numbers = normals(seed, 6, stages * count).reshape(stages, count)
    size = [math.sqrt((1 - left) * left**s / (2 if commuting else 1)) for s in range(stages)]
    return (numbers * np.array(size)[:, None]).astype(F).reshape(stages, *shape)


def turning_words(table):
    """All words of a commuting table, as entries whose pairs are dim / 2 apart: [stages][1][words][dim]."""
    x, y = table[:, :, 0].astype(np.float64), table[:, :, 1].astype(np.float64)  # [stages, halves, pairs]
    first = x[:, :, None] - y[:, None]      # (A, B): x_A - y_B
    second = x[:, None] + y[:, :, None]     # x_B + y_A
    words = np.concatenate([first, second], -1)
    return words.reshape(len(table), 1, -1, words.shape[-1])


def vectors(x, words, scaled, margins, where):
    """Stage by stage the nearest word to what is left of each run."""
    wide = x.astype(np.float64)
    scale = np.ones((len(x), 1))
    if scaled:
        root = np.sqrt((wide * wide).mean(1, keepdims=True))
        scale = half(root).astype(np.float64)
        for near in (1 - 3e-7, 1 + 3e-7):
            if (half(root * near) != scale).any():
                margins.note(1e-9, where + " length")
    width = words.shape[-1]
    rest = (wide / scale).reshape(len(x), -1, width)
    out, unsure = np.zeros_like(rest), np.zeros(len(x), bool)
    for stage in words.astype(np.float64):
        distance = ((rest[:, :, None] - stage) ** 2).sum(-1)  # [n, runs, words]
        two = np.sort(distance, -1)[..., :2]
        unsure |= (two[..., 1] - two[..., 0] < 1e-5 * (two[..., 1] + 1e-6)).any(1)
        best = distance.argmin(-1)
        word = np.take_along_axis(stage[None], best[..., None, None], 2)[:, :, 0]
        out, rest = out + word, rest - word
    done = scale * out.reshape(len(x), -1)
    done[unsure] = np.nan
    return done


def prompt_words(rows, width, bits, rounds=10):
    """k-means of each run of the prompt's rows, from evenly spaced ones: [1][runs][words][width]."""
    wide, count, out = rows.astype(np.float64), 2**bits, []
    for begin in range(0, rows.shape[1], width):
        part = wide[:, begin : begin + width]
        centres = part[[c * len(part) // count for c in range(count)]].copy()
        for _ in range(rounds):
            of = ((part[:, None] - centres) ** 2).sum(-1).argmin(1)
            for c in range(count):
                if (of == c).any():
                    centres[c] = part[of == c].mean(0)
        out.append(centres)
    return np.stack(out)[None]
