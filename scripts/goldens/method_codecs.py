# SPDX-License-Identifier: Apache-2.0
"""How quantisers store the entries of one KV head, after their papers and in NumPy: each function
takes rows [n, dim] f32 and returns what reading them back gives. Codes are computed in f32 with
scales already rounded to f16, as the papers' kernels do.
"""

import functools
import math

import numpy as np

from common import save_file

F = np.float32


def half(x):
    return np.asarray(x, F).astype(np.float16).astype(F)


def affine(x, bits, axis, clip=1):
    """One group along `axis`: x = scale * code + zero; both ends of its range are multiplied by `clip`."""
    low, high = x.min(axis, keepdims=True) * F(clip), x.max(axis, keepdims=True) * F(clip)
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


def by_token(x, bits, group, clip=1):
    """Groups of `group` dims of one entry."""
    return np.hstack([affine(x[:, i : i + group], bits, 1, clip) for i in range(0, x.shape[1], group)])


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


def kvquant_tuples(raw, layer, side):
    """Of a made-up quantizer in the authors' layout: the ends of ranges [heads, dim], levels in no order,
    and Q-Norm's factor and summand."""
    rng = np.random.default_rng(97 + 2 * layer + (side == "v"))
    low, high = (np.quantile(raw, q, axis=1) + 0.003 * (layer + 1) for q in (0.02, 0.97))
    levels = np.array([0.28, -0.71, 0.66, -0.2]) + rng.uniform(-0.05, 0.05, 4)
    return low.astype(F), high.astype(F), levels.astype(F), F(1.05 + 0.01 * layer), F(0.02 - 0.01 * layer)


def write_kvquant(directory, raw):
    """Those, and the side-file that the program makes of them."""
    published, tables = {}, {}
    for l in range(4):
        for side, what in (("k", "keys"), ("v", "values")):
            low, high, levels, scale, offset = kvquant_tuples(raw, l, side)
            name = f"model.layers.{l}.self_attn.{side}_proj"
            for i, numbers in enumerate((high, low, levels, scale, offset)):
                published[f"{name}.{i}"] = np.ascontiguousarray(np.asarray(numbers, F).reshape(-1))
            ordered = np.sort(levels)
            tables[f"{what}.edges.{l}"] = F(0.5) * (ordered[1:] + ordered[:-1])
            tables[f"{what}.levels.{l}"] = ordered * scale + offset
            if side == "k":
                tables[f"keys.low.{l}"], tables[f"keys.high.{l}"] = low, high
    save_file(published, directory / "kvquant_published.safetensors")
    save_file(tables, directory / "kvquant.safetensors", metadata={
        "kvgauge_calibration": "1", "stage_version": "1", "model_name": "model", "texts": "0", "tokens": "0",
        "model": "6193d2452e6d71261c46f91490427c94b7e2c528a859ff2fc2f7c0cafef09dfa", "stage": "store.kvquant",
        "params": "{\"bits\":2,\"norm\":true,\"outliers\":0.01,\"sinks\":5}"})


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


def gguf_blocks(name, x):
    """By gguf-py, the Python package of llama.cpp."""
    from gguf import GGMLQuantizationType, quants

    kind = GGMLQuantizationType[name.upper()]
    return quants.dequantize(quants.quantize(x, kind), kind)


IQ4_LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], F)


def iq4_nl(x, margins):
    """Codes and scales as llama.cpp's CUDA writes them (quantize_f32_iq4_nl_block), read by gguf-py."""
    from gguf import GGMLQuantizationType, quants

    b = blocks(x).astype(np.float64)
    largest = np.take_along_axis(b, np.abs(b).argmax(-1)[..., None], -1)
    scaled = b / (largest / -127)
    edges = (IQ4_LEVELS[1:] + IQ4_LEVELS[:-1]).astype(np.float64) / 2
    margins.note(np.abs(scaled[..., None] - edges).min() / 127, "iq4_nl code")
    codes = (scaled[..., None] >= edges).sum(-1)
    levels = IQ4_LEVELS.astype(np.float64)[codes]
    d = (b * b * levels * b).sum(-1) / (b * b * levels * levels).sum(-1)
    for near in (1 - 2.4e-7, 1 + 2.4e-7):  # four roundings of float32
        if (half(d * near) != half(d)).any():
            margins.note(1e-9, "iq4_nl scale")
    packed = (codes[..., :16] | codes[..., 16:] << 4).astype(np.uint8)
    stored = np.concatenate([d.astype(F).astype(np.float16)[..., None].view(np.uint8), packed], -1)
    return quants.dequantize(stored.reshape(len(x), -1), GGMLQuantizationType.IQ4_NL)


def fp8(x):
    import torch

    return torch.from_numpy(np.clip(x, -448, 448)).to(torch.float8_e4m3fn).float().numpy()


def floats(x, kind, scale=F(1)):
    """Through a float of 8 or 4 bits as ml_dtypes rounds it, after division by a scale."""
    import ml_dtypes

    kind = getattr(ml_dtypes, kind)
    most = F(ml_dtypes.finfo(kind).max)
    return np.clip(x / scale, -most, most).astype(kind).astype(F) * scale


def scaled_floats(x, largest, most=F(448)):
    """e4m3 with the scale that makes `largest` `most`."""
    return floats(x, "float8_e4m3fn", (np.asarray(largest, F) / F(most)).astype(F))


def mxfp4(x):
    """OCP microscaling formats 1.0: the largest power of two in the block, less that of e2m1."""
    import ml_dtypes

    b = blocks(x)
    power = np.floor(np.log2(np.abs(b).max(-1, keepdims=True))) - 2
    scale = (F(2) ** power).astype(ml_dtypes.float8_e8m0fnu).astype(F)
    return floats(b, "float4_e2m1fn", scale).reshape(x.shape)


def nvfp4(x):
    b = x.reshape(len(x), -1, 16)
    scale = floats(np.abs(b).max(-1, keepdims=True) / F(6), "float8_e4m3fn")
    return floats(b, "float4_e2m1fn", scale).reshape(x.shape)


NF4_LEVELS = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0], F)


def nf4(x):
    """bitsandbytes' levels and tree of comparisons, but scales in f16; blocks are whole entries of 32
    dims here. All in float32, as the program does it."""
    scale = half(np.abs(x).max(1, keepdims=True))
    edges = (NF4_LEVELS[1:] + NF4_LEVELS[:-1]) * F(0.5)
    return scale * NF4_LEVELS[((x / scale)[..., None] > edges).sum(-1)]


# ---- Other coordinates: rows times a matrix, coded, and back. ----


def words(seed, stream, count):
    from method_oracles import philox

    return np.array([philox(seed, stream, i) for i in range(-(-count // 4))], np.uint64).ravel()[:count]


def hadamard(dim):
    """By Sylvester's construction; `dim` a power of two."""
    h = np.ones((1, 1))
    while len(h) < dim:
        h = np.block([[h, h], [h, -h]])
    return h / math.sqrt(dim)


def basis_seed(layer, side, seed=0):
    return (seed * 4096 + layer) * 2 + (0 if side == "k" else 1)


def signed_hadamard(dim, seed):
    signs = np.where(words(seed, 1, 2 * dim)[::2] & np.uint64(1), -1.0, 1.0)
    return signs[:, None] * hadamard(dim)


def dealt_rotations(dim, block, loud, side, layer):
    """DuQuant: Hadamard blocks with signs, channels dealt to blocks to and fro by size, blocks again."""
    def blocks(which):
        signs = np.where(words((layer * 2 + (0 if side == "k" else 1)) * 2 + which, 7, 2 * dim)[::2] & np.uint64(1), -1.0, 1.0)
        return signs[:, None] * np.kron(np.eye(dim // block), hadamard(block))

    count, deal = dim // block, np.zeros((dim, dim))
    for i, channel in enumerate(np.argsort(-loud, kind="stable")):
        step = i % count
        deal[channel, (step if i // count % 2 == 0 else count - 1 - step) * block + i // count] = 1
    return blocks(0) @ deal @ blocks(1)


DEALT = np.exp(np.random.default_rng(41).standard_normal((2, 4, 2, 32))).astype(F)  # [side, layer, head, dim]


def affine_matrices(seed=43):
    """Strictly diagonally dominant, as AffineQuant learns them: [side, layer, head, dim, dim]."""
    off = np.random.default_rng(seed).uniform(-1, 1, (2, 4, 2, 32, 32)) / 40
    eye = np.eye(32) * np.exp(np.random.default_rng(seed + 1).uniform(-0.5, 0.5, (2, 4, 2, 32, 1)))
    return (eye + off * (1 - np.eye(32))).astype(F)


def write_matrices(directory):
    """Side-files of the tiny checkpoint for the two above."""
    made = {"kvgauge_calibration": "1", "stage_version": "1", "model_name": "model", "texts": "0", "tokens": "0",
            "model": "6193d2452e6d71261c46f91490427c94b7e2c528a859ff2fc2f7c0cafef09dfa"}
    sides = ("keys", "values")
    save_file({f"{side}.loud.{l}": DEALT[s, l] for s, side in enumerate(sides) for l in range(4)},
              directory / "duquant.safetensors",
              metadata=made | {"stage": "store.duquant", "params": "{\"block\":16,\"seed\":0}"})
    tables = {}
    for s, side in enumerate(sides):
        for l in range(4):
            for what, numbers in zip(("mean", "basis", "variances"), coder_tables(s, l)):
                tables[f"{side}.{what}.{l}"] = numbers
    save_file(tables, directory / "kvtc.safetensors", metadata=made | {"stage": "store.kvtc", "params": "{}"})
    tables = {}
    for s, side in enumerate(sides):
        for l, there in enumerate(affine_matrices()[s]):
            tables[f"{side}.{l}.there"] = there
            back = np.linalg.inv(there.astype(np.float64)).swapaxes(-1, -2)
            tables[f"{side}.{l}.back"] = np.ascontiguousarray(back, F)
    save_file(tables, directory / "affine_matrices.safetensors",
              metadata=made | {"stage": "store.affine", "params": "{\"raw_keys\":false}"})


def coder_tables(side, layer, width=64):
    """KVTC's, made up: a mean, an orthonormal basis and falling variances."""
    rng = np.random.default_rng(51 + 8 * layer + side)
    basis = np.linalg.qr(rng.standard_normal((width, width)))[0].astype(F)
    return (rng.standard_normal((1, width)) / 10).astype(F), basis, (4 * 0.9 ** np.arange(width)[None]).astype(F)


def best_groups(variances, budget):
    """KVTC's search: groups of coordinates and their bits that lose least; 32 bits for a group's scale.
    An error is that of even steps over six deviations of the loudest coordinate."""
    n, unit = len(variances), 8

    @functools.cache
    def best(begin, left):
        if begin == n:
            return 0.0, ()
        found = None
        for size in (8, 16, 32, 64, 128):
            some = variances[begin : begin + size].astype(np.float64)
            for bits in (0, 1, 2, 3, 4, 6, 8):
                asked = -(-(len(some) * bits + 32) // unit) if bits else 0
                if asked > left:
                    continue
                loss = some.sum()
                if bits:
                    loss = min(loss, len(some) * (6 * math.sqrt(some.max()) / (2**bits - 1)) ** 2 / 12)
                rest, groups = best(begin + len(some), left - asked)
                if found is None or loss + rest < found[0]:
                    found = loss + rest, ((len(some), bits), *groups)
            if begin + size >= n:
                break
        return found

    return best(0, budget // unit)[1]


def transform_coded(x, mean, basis, groups):
    """KVTC: even steps of a token's coordinates between the least and the largest of each group."""
    turned = (x.astype(np.float64) - mean) @ basis.astype(np.float64)
    out, unsure, begin = np.zeros_like(turned), np.zeros(len(x), bool), 0
    for size, bits in groups:
        part = turned[:, begin : begin + size]
        if bits:
            low, high = part.min(1, keepdims=True), part.max(1, keepdims=True)
            step = (high - low) / (2**bits - 1)
            least, by = half(low).astype(np.float64), half(step).astype(np.float64)
            off = 2e-7 * np.abs(turned).max(1, keepdims=True)
            unsure |= ((half(low - off) != half(low + off)) | (half(step - off) != half(step + off)))[:, 0]
            ratio = (part - least) / by
            unsure |= ((np.abs(np.abs(ratio - np.floor(ratio)) - 0.5) < 3 * off / by).any(1))
            out[:, begin : begin + size] = np.clip(np.rint(ratio), 0, 2**bits - 1) * by + least
        begin += size
    done = out @ basis.astype(np.float64).T + mean
    done[unsure] = np.nan
    return done


def random_orthogonal(dim, blocks, seed):
    """Gaussian squares by Box and Muller, their rows made orthonormal in order: [blocks][dim, dim]."""
    w = words(seed, 2, blocks * dim * dim * 4).reshape(-1, 4)
    doubles = ((w[:, ::2] | w[:, 1::2] << np.uint64(32)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    normal = np.sqrt(-2 * np.log(1 - doubles[:, 0])) * np.cos(2 * np.pi * doubles[:, 1])
    out = []
    for square in normal.reshape(blocks, dim, dim):
        q, r = np.linalg.qr(square.T)
        out.append((q * np.sign(np.diag(r))).T)
    return out


def turned(x, matrix, code, back=None):
    """Rows in the coordinates of a matrix, through `code`, and back, by the transpose of an orthogonal one."""
    there = (x.astype(np.float64) @ matrix.astype(F)).astype(F)
    return code(there).astype(np.float64) @ (matrix if back is None else back).astype(F).T


def clear_codes(x, bits, clip=1):
    """Which rows, coded whole, have the same codes and scales if sums of float32 are off a little."""
    low, high = x.min(1, keepdims=True) * F(clip), x.max(1, keepdims=True) * F(clip)
    step = (high - low) / (2**bits - 1)
    scale, zero = half(step), half(low)
    clear = np.ones((len(x), 1), bool)
    for near in (1 - 1e-6, 1 + 1e-6):
        clear &= (half(low * near) == zero) & (half(step * near) == scale)
    ratio = (x - zero) / scale
    away = np.abs(np.abs(ratio - np.floor(ratio)) - 0.5).min(1, keepdims=True)
    return (clear & (away > 1e-5))[:, 0]


def lloyd_max(bits):
    """Levels that are best for the standard normal distribution."""
    below = lambda x: 0.5 * math.erfc(-x / math.sqrt(2))
    density = lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    levels = np.linspace(-2, 2, 2**bits)
    for _ in range(20000):
        edges = [-40.0, *((levels[1:] + levels[:-1]) / 2), 40.0]
        new = np.array([(density(a) - density(b)) / (below(b) - below(a)) for a, b in zip(edges, edges[1:])])
        moved, levels = np.abs(new - levels).max(), new
        if moved < 1e-13:
            break
    return levels


def normal_levels_of_length(x, bits, margins, where):
    """TurboQuant's mean square form: each entry by its length, in levels of unit variance."""
    wide = x.astype(np.float64)
    scale = half(np.sqrt((wide * wide).mean(1, keepdims=True)))
    levels = lloyd_max(bits).round(7).astype(F)
    for near in (1 - 3e-7, 1 + 3e-7):
        if (half(np.sqrt((wide * wide).mean(1, keepdims=True)) * near) != scale).any():
            margins.note(1e-9, where + " length")
    return scale * nearest((x / scale).astype(F), levels, margins, where)


def sign_sketch(x, squares, margins):
    """QJL: signs of the projections and the length of the key; what queries meet on average."""
    dim, count = x.shape[1], len(squares)
    s = np.hstack(squares) * math.sqrt(dim)  # [dim, count * dim]
    projected = x.astype(np.float64) @ s
    margins.note(np.abs(projected).min() / np.abs(projected).max(), "qjl sign")
    length = np.sqrt((x.astype(np.float64) ** 2).sum(1, keepdims=True))
    for near in (1 - 3e-7, 1 + 3e-7):
        if (half(length * near) != half(length)).any():
            margins.note(1e-9, "qjl length")
    return math.sqrt(math.pi / 2) / (count * dim) * half(length) * (np.sign(projected) @ s.T)
