# SPDX-License-Identifier: Apache-2.0
"""Methods that change weights before anything runs, after their papers and in NumPy: low-rank and
pooled projections, QServe's SmoothAttention (mit-han-lab/deepcompressor, smooth.py) and LoRC.
"""

import math

import numpy as np

from method_oracles import Llama, Prefill, Sequence

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
    from safetensors.numpy import save_file

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
    from safetensors.numpy import save_file

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
