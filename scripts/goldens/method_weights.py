# SPDX-License-Identifier: Apache-2.0
"""Methods that change weights before anything runs, after their papers and in NumPy: low-rank and
pooled projections, QServe's SmoothAttention (mit-han-lab/deepcompressor, smooth.py), LoRC, ASVD
(hahnyuan/ASVD4LLM 055232ea, svd_linear.py) and Eigen Attention (UtkarshSaxena1/EigenAttn 067df779,
decompose/eigen_attn.py).
"""

import math

import pathlib

import numpy as np

import method_codecs as codecs
from common import GOLDEN, save_file
from method_oracles import Llama, Prefill, Sequence

INPUTS = GOLDEN / "methods" / "inputs"

def low_rank_weights(config, weights, group, multiple, ratio):
    """Key and value projections of `group` heads, stacked, at their best approximation by SVD."""
    weights = dict(weights)
    rows = group * config["head_dim"]
    rank = int(max(multiple, math.floor(ratio * rows / multiple + 0.5) * multiple))
    for l in range(config["num_hidden_layers"]):
        for what in "kv":
            name = f"model.layers.{l}.self_attn.{what}_proj.weight"
            parts = []
            for begin in range(0, len(weights[name]), rows):
                u, s, vt = np.linalg.svd(weights[name][begin : begin + rows], full_matrices=False)
                parts.append((u[:, :rank] * s[:rank]) @ vt[:rank])
            weights[name] = np.vstack(parts)
    return weights


def pooled_weights(config, weights, heads):
    """The mean of `heads` neighbouring key and value heads."""
    weights, config = dict(weights), dict(config)
    for l in range(config["num_hidden_layers"]):
        for what in "kv":
            name = f"model.layers.{l}.self_attn.{what}_proj.weight"
            w = weights[name].reshape(-1, heads, config["head_dim"], weights[name].shape[1])
            weights[name] = w.mean(1).reshape(-1, weights[name].shape[1])
    config["num_key_value_heads"] //= heads
    return config, weights


# The largest absolute number of key channels, made up: [layers, KV heads, dims].
LOUD = np.exp(np.random.default_rng(27).standard_normal((4, 2, 32))).astype(np.float32)


def write_loud(path):
    save_file({f"keys.{l}": loud for l, loud in enumerate(LOUD)}, path, metadata={
        "kvgauge_calibration": "1", "stage": "prepare.smooth_keys", "stage_version": "1", "params": "{}",
        "model": "6193d2452e6d71261c46f91490427c94b7e2c528a859ff2fc2f7c0cafef09dfa", "model_name": "model",
        "texts": "0", "tokens": "0"})


def scales(loud, alpha):
    """One for both channels of a rotary pair."""
    half = loud.shape[-1] // 2
    pair = np.maximum(loud[..., :half], loud[..., half:]).astype(np.float64)
    return np.concatenate([pair, pair], -1) ** alpha


def smooth_weights(config, weights, loud, alpha):
    weights = dict(weights)
    share = config["num_attention_heads"] // config["num_key_value_heads"]
    for l in range(config["num_hidden_layers"]):
        of_keys = scales(loud[l], alpha)
        of_queries = np.repeat(of_keys, share, 0)
        for what, factor in (("k", 1 / of_keys), ("q", of_queries)):
            name = f"model.layers.{l}.self_attn.{what}_proj.weight"
            weights[name] = weights[name] * factor.reshape(-1, 1)
    return weights


# The largest numbers of channels of keys, queries and values, made up likewise; and thresholds.
SIDES = {what: np.exp(np.random.default_rng(seed).standard_normal((4, 2, 32))).astype(np.float32)
         for what, seed in (("keys", 31), ("queries", 32), ("values", 33))}
CUTS = {"keys": 0.8, "values": 0.5}


def write_sides(path):
    tables = {f"{what}.{l}": loud for what, of in SIDES.items() for l, loud in enumerate(of)}
    tables |= {f"{what}.cut.{l}": np.full((1, 1), cut, np.float32) for what, cut in CUTS.items() for l in range(4)}
    save_file(tables, path, metadata={
        "kvgauge_calibration": "1", "stage": "prepare.smooth_sides", "stage_version": "1", "params": "{}",
        "model": "6193d2452e6d71261c46f91490427c94b7e2c528a859ff2fc2f7c0cafef09dfa", "model_name": "model",
        "texts": "0", "tokens": "0"})


def tied(loud):
    half = loud.shape[-1] // 2
    pair = np.maximum(loud[..., :half], loud[..., half:]).astype(np.float64)
    return np.concatenate([pair, pair], -1)


def sides_weights(config, weights, cut, alpha=0.5):
    """SmoothQuant's scales (mit-han-lab/smoothquant, smooth.py: largest number of what is coded to the
    alpha over that of what it meets to 1 - alpha), or those of Outlier Suppression+ (wimh966/
    outlier_suppression_plus, scale above a threshold); keys meet queries, values the output projection."""
    weights, share = dict(weights), config["num_attention_heads"] // config["num_key_value_heads"]
    for l in range(config["num_hidden_layers"]):
        name = lambda what: f"model.layers.{l}.self_attn.{what}_proj.weight"
        out = weights[name("o")]  # [hidden, heads * dim]
        met = np.abs(out).max(0).reshape(config["num_key_value_heads"], share, -1).max(1)
        keys, values = tied(SIDES["keys"][l]), SIDES["values"][l].astype(np.float64)
        if cut:
            of_keys, of_values = np.maximum(keys / CUTS["keys"], 1), np.maximum(values / CUTS["values"], 1)
        else:
            of_keys = keys**alpha / tied(SIDES["queries"][l]) ** (1 - alpha)
            of_values = values**alpha / met ** (1 - alpha)
        for what, factor in (("k", 1 / of_keys), ("q", np.repeat(of_keys, share, 0)), ("v", 1 / of_values)):
            weights[name(what)] = weights[name(what)] * factor.reshape(-1, 1)
        weights[name("o")] = out * np.repeat(of_values, share, 0).reshape(1, -1)
    return weights


def lorc_weights(config, weights, multiple, ratio):
    """All heads of a layer in one stack; ranks fall with the condition of all that is above."""
    rows = config["num_key_value_heads"] * config["head_dim"]
    layers = config["num_hidden_layers"]
    grown = np.zeros(layers)
    for l in range(layers):
        for what in "kv":
            s = np.linalg.svd(weights[f"model.layers.{l}.self_attn.{what}_proj.weight"], compute_uv=False)
            grown[: l + 1] += math.log(s[0] / s[-1])
    shares = (grown - grown.min()) / (grown.max() - grown.min())
    changed = dict(weights)
    for l in range(layers):
        rank = math.floor((ratio + (1 - ratio) * shares[l]) * rows / multiple + 0.5) * multiple
        part = low_rank_weights(config, weights, config["num_key_value_heads"], 1, rank / rows)
        for what in "kv":
            name = f"model.layers.{l}.self_attn.{what}_proj.weight"
            changed[name] = part[name]
    return changed


# --------------------------------------------------------------------------------------------------
# What calibrations would have seen: the first prompt.


def of_prompt(config, weights):
    """Inputs of every layer's attention, and its raw keys and values."""
    import json

    ids = np.array(json.loads((INPUTS / "ids.json").read_text()))
    inputs = []

    class Watched(Llama):
        def split(self, x, l, what, count):
            if what == "k":
                inputs.append(x)
            return super().split(x, l, what, count)

    return inputs, Prefill(Watched(config, weights), ids)


def write_tables(path, stage, params, tables):
    tables = {k: np.ascontiguousarray(v, np.float32) for k, v in tables.items()}
    save_file(tables, path, metadata={
        "kvgauge_calibration": "1", "stage": stage, "stage_version": "1", "params": params,
        "model": "6193d2452e6d71261c46f91490427c94b7e2c528a859ff2fc2f7c0cafef09dfa", "model_name": "model",
        "texts": "1", "tokens": "300"})


def directions(rows):
    """Right singular vectors of rows [n, width], one a row, and the energy of each."""
    _, s, vt = np.linalg.svd(rows, full_matrices=False)
    return vt, s * s / len(rows)


def write_side_files(folder, config, weights):
    folder = pathlib.Path(folder)
    inputs, prefill = of_prompt(config, weights)
    write_tables(folder / "asvd.safetensors", "prepare.asvd", "{}",
                 {f"inputs.{l}": np.abs(x).mean(0) for l, x in enumerate(inputs)})
    eigen = {}
    for l in range(config["num_hidden_layers"]):
        raw, values = prefill.raw[l], prefill.values[l]
        eigen[f"keys.{l}.directions"], eigen[f"keys.{l}.energy"] = directions(np.concatenate(list(raw)))
        for h, rows in enumerate(values):
            eigen[f"values.{l}.{h}.directions"], eigen[f"values.{l}.{h}.energy"] = directions(rows)
    write_tables(folder / "eigen_attention.safetensors", "prepare.eigen_attention", "{}", eigen)
    pairs = {}
    for l, side, rows in [(l, side, held[l]) for side, held in (("keys", prefill.raw), ("values", prefill.values))
                          for l in range(config["num_hidden_layers"])]:  # fmt: skip
        for g in range(len(rows) // 2):
            at = f"{side}.{l}.{g}."
            both = np.concatenate(list(rows[2 * g : 2 * g + 2]), 1)
            pairs[at + "directions"], pairs[at + "energy"] = directions(both)
    write_tables(folder / "eckvh.safetensors", "prepare.palu", '{"group":2}', pairs)


def read_tables(name):
    from safetensors.numpy import load_file

    return {k: v.astype(np.float64) for k, v in load_file(INPUTS / f"{name}.safetensors").items()}


def projected(config, weights, basis_of):
    """Key and value projections W of all heads as U U^T W, by basis_of(layer, side, W)."""
    weights = dict(weights)
    for l in range(config["num_hidden_layers"]):
        for what in "kv":
            name = f"model.layers.{l}.self_attn.{what}_proj.weight"
            weights[name] = basis_of(l, what, weights[name])
    return weights


def eckvh_weights(config, weights):
    """Pairs of heads in the first singular vectors of both caches side by side, as many as one head has dims."""
    tables, dim = read_tables("eckvh"), config["head_dim"]

    def of(l, what, w):
        side, parts = dict(k="keys", v="values")[what], []
        for g, part in enumerate(w.reshape(-1, 2 * dim, w.shape[1])):
            basis = tables[f"{side}.{l}.{g}.directions"][:dim].T
            parts.append(basis @ (basis.T @ part))
        return np.vstack(parts)

    return projected(config, weights, of)


def asvd_weights(config, weights, alpha, ratio):
    tables = read_tables("asvd")

    def of(l, _, w):
        scale = tables[f"inputs.{l}"] ** alpha + 1e-6
        u, s, vt = np.linalg.svd(w * scale, full_matrices=False)
        rank = math.floor(ratio * len(w) + 0.5)
        return (u[:, :rank] * s[:rank]) @ (vt[:rank] / scale)

    return projected(config, weights, of)


def eigen_ranks(keys, values, budget, margins):
    """Thresholds fall by 0.02 from 1 until the error reaches the budget, and go back one step."""
    shares = lambda e: np.cumsum(np.sqrt(e)) / np.sqrt(e).sum()  # noqa: E731

    def at(threshold):
        for e in [keys] + values:
            margins.note(np.abs(shares(e)[:-1] - threshold).min(), "eigen threshold")
        count = lambda e: max(1, int((shares(e)[:-1] < threshold).sum() + (threshold > 1)))  # noqa: E731
        return count(keys), max(count(e) for e in values)

    threshold, error, ranks = 1.0, 0.0, (len(keys), len(values[0]))
    while error < budget and ranks[0] > 0.45 * len(keys) and ranks[1] > 0.45 * len(values[0]):
        ranks = at(threshold)
        lost = lambda e, r: math.sqrt(sum(x[r:].sum() for x in e) / sum(x.sum() for x in e))  # noqa: E731
        error = max(lost([keys], ranks[0]), lost(values, ranks[1]))
        margins.note(abs(error - budget) / budget, "eigen error")
        threshold -= 0.02
    return at(threshold + 0.04)


def eigen_weights(config, weights, budget, margins):
    tables, heads, dim = read_tables("eigen_attention"), config["num_key_value_heads"], config["head_dim"]

    def of(l, what, w):
        value_energy = [tables[f"values.{l}.{h}.energy"] for h in range(heads)]
        ranks = eigen_ranks(tables[f"keys.{l}.energy"], value_energy, budget, margins)
        parts = []
        for h in range(heads):
            name = f"keys.{l}.directions" if what == "k" else f"values.{l}.{h}.directions"
            u = tables[name][: ranks[0 if what == "k" else 1]].T
            parts.append(u @ (u.T @ w[h * dim : (h + 1) * dim]))
        return np.vstack(parts)

    return projected(config, weights, of)


class CodedLatents(Sequence):
    """Palu's latents: turned by Hadamard, each entry of all heads in codes of its own; what no float32
    decides is left open."""

    key_axis, turn = "token", True

    def code(self, latents, bits, by_channel):
        """Codes, and which rows no float32 decides."""
        if not by_channel:
            return (codecs.by_token(latents.astype(np.float32), bits, latents.shape[1]).astype(np.float64),
                    ~codecs.clear_codes(latents, bits))
        whole = len(latents) // 64 * 64
        done, open_ = latents.copy(), np.zeros(len(latents), bool)
        done[:whole] = codecs.by_channel(latents[:whole].astype(np.float32), bits, 64)
        for begin in range(0, whole, 64):
            part = latents[begin : begin + 64]
            low = part.min(0)
            scale = (part.max(0) - low) / (2**bits - 1)
            ratio = lambda a, b: (part - codecs.half(low * a)) / codecs.half(scale * b)  # noqa: E731
            own = np.rint(ratio(1, 1))
            away = np.abs(np.abs(ratio(1, 1) - np.floor(ratio(1, 1))) - 0.5)
            turned = away < 4e-5
            # Where float32 may round a scale or a zero to another f16, codes must be the same by either.
            for a in (1 - 3e-6, 1 + 3e-6):
                for b in (1 - 3e-6, 1 + 3e-6):
                    turned |= np.rint(ratio(a, b)) != own
            open_[begin : begin + 64] = turned.any(1)
        return done, open_

    def compress(self, rank, bits):
        model = self.model
        for l in range(model.layers):
            for what, rows, held in (("k", self.prefill.raw[l], self.keys), ("v", self.prefill.values[l], self.values)):
                # The weights have that rank already; signs as the program's: the largest of each right vector is positive.
                u, s, vt = np.linalg.svd(self.whole[f"model.layers.{l}.self_attn.{what}_proj.weight"], full_matrices=False)
                signs = np.sign(vt[np.arange(len(vt)), np.abs(vt).argmax(1)])
                basis = (u * signs)[:, :rank]
                if self.turn:
                    basis = basis @ codecs.hadamard(rank)
                done, open_ = self.code(np.concatenate(list(rows), 1) @ basis, bits,
                                        what == "k" and self.key_axis == "channel")
                if l == model.layers - 1:
                    self.margins.note(1 if open_.sum() * 100 <= len(open_) else 1e-9, "open codes")
                done[open_] = np.nan
                for h in range(model.groups):
                    own = done @ basis[h * model.dim : (h + 1) * model.dim].T
                    held[l][h] = model.rotate(own, np.arange(self.tokens)) if what == "k" else own


def cases(config, weights, ids, margins, steps, sequence_case):
    """As paper_cases of make_methods, whose function this is."""
    smooth = lambda: Sequence(Prefill(Llama(config, smooth_weights(config, weights, LOUD, 0.5)), ids), margins)  # noqa: E731

    side_file = ["prepare.calibration={inputs}/smooth_keys.safetensors"]
    # Codes are held by cases of their own; without them the changed weights are the same model.
    yield ("qserve",
           dict(method="qserve", set=side_file + ["store.key_bits=0", "store.value_bits=0"], budget="none", steps=steps),
           "SmoothAttention of mit-han-lab/deepcompressor in a NumPy forward, float64",
           lambda: sequence_case(smooth(), steps))
    for method, cut, said in (("smoothquant", False, "scales of mit-han-lab/smoothquant"),
                              ("os_plus", True, "scales of wimh966/outlier_suppression_plus")):
        yield (method,
               dict(method=method, set=["prepare.calibration={inputs}/smooth_sides.safetensors", "store.key_bits=0",
                                        "store.value_bits=0"], budget="none", steps=steps),
               said + ", both channels of a rotary pair alike, in a NumPy forward, float64",
               lambda cut=cut: sequence_case(
                   Sequence(Prefill(Llama(config, sides_weights(config, weights, cut)), ids), margins), steps))
    lorc = lambda: Sequence(Prefill(Llama(config, lorc_weights(config, weights, 8, 0.25)), ids), margins)  # noqa: E731
    yield ("lorc", dict(method="lorc", set=["prepare.key_ratio=0.25", "prepare.value_ratio=0.25"], budget="none", steps=steps,
                          public_code=False),
           "the paper's formulas in NumPy, float64: the changed weights in a forward pass",
           lambda: sequence_case(lorc(), steps))
    changed = lambda w: lambda: sequence_case(Sequence(Prefill(Llama(config, w()), ids), margins), steps)  # noqa: E731
    calibrated = lambda name: [f"prepare.calibration={{inputs}}/{name}.safetensors"]  # noqa: E731
    for name in ("svd_gqa", "svd_mqa"):
        yield (name, dict(method=name, budget="none", steps=steps),
               "the changed weights in a NumPy forward, float64: the dims of one head of a pair's singular vectors",
               changed(lambda: low_rank_weights(config, weights, 2, 1, 0.5)))
    yield ("eckvh", dict(method="eckvh", set=calibrated("eckvh"), budget="none", steps=steps, public_code=False),
           "the singular vectors of two heads' caches side by side, of the prompt inputs/ids.json, in a NumPy forward,"
           " float64", changed(lambda: eckvh_weights(config, weights)))  # fmt: skip
    yield ("asvd", dict(method="asvd", set=calibrated("asvd"), budget="none", steps=steps),
           "the factors of hahnyuan/ASVD4LLM's svd_linear.py in a NumPy forward, float64, with exact singular vectors",
           changed(lambda: asvd_weights(config, weights, 0.5, 0.5)))
    yield ("eigen_attention",
           dict(method="eigen_attention", set=calibrated("eigen_attention") + ["prepare.error=0.12"], budget="none", steps=steps),
           "bases and thresholds as UtkarshSaxena1/EigenAttn's, by the error of keys and values, in a NumPy forward, float64",
           changed(lambda: eigen_weights(config, weights, 0.12, margins)))

    def coded():
        low = low_rank_weights(config, weights, 2, 8, 0.5)
        kind = type("Coded", (CodedLatents,), dict(whole=weights))
        return sequence_case(kind(Prefill(Llama(config, low), ids), margins, rank=32, bits=4), 0)

    yield ("palu_4bit", dict(method="palu_4bit", budget="none", steps=0, tolerance=2e-3),
           "the changed weights in a NumPy forward, float64; Sylvester's Hadamard matrix, codes float32 with f16 scales", coded)

    def inputs():
        kind = type("Coded", (CodedLatents,), dict(whole=weights, key_axis="channel", turn=False))
        return sequence_case(kind(Prefill(Llama(config, weights), ids), margins, rank=64, bits=4), 0)

    yield ("xquant", dict(method="xquant", budget="none", steps=0, tolerance=2e-3, public_code=False),
           "the paper's formulas in NumPy, float64: singular directions of projections, codes float32 with f16 scales", inputs)
