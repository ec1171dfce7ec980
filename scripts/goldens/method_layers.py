# SPDX-License-Identifier: Apache-2.0
"""Layers that read the keys and values of earlier layers, and KV heads in groups of different sizes, in
NumPy: a Llama in float64 that runs everything anew for each token, so that no cache is involved.

KVSharer's search is that of yangyifei729/KVSharer 39e5c191 (test_llama.ipynb), MLKV's projections those
of zaydzuhri/pythia-mlkv c2ad0651 (convert_to_mlkv.py), restated for Llama's names.
"""

import functools
import itertools
import json
import math

import numpy as np

from common import GOLDEN, save_file
from method_oracles import Llama, Prefill, Sequence, softmax

INPUTS = GOLDEN / "methods" / "inputs"


class Layered:
    """`reads[l]`: the layer whose keys and values layer l attends to. `head_of[l][q]`: the KV head that
    query head q attends to; None: neighbours share."""

    def __init__(self, config, weights, reads=None, head_of=None):
        self.w, self.eps = weights, config["rms_norm_eps"]
        self.layers, self.heads = config["num_hidden_layers"], config["num_attention_heads"]
        self.dim = config.get("head_dim") or config["hidden_size"] // self.heads
        theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
        self.frequencies = theta ** (-np.arange(0, self.dim, 2, dtype=np.float64) / self.dim)
        self.reads, self.head_of = reads or list(range(self.layers)), head_of
        self.head = weights["model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"]

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name]

    def turned(self, x):
        angle = np.arange(x.shape[1])[:, None] * self.frequencies
        low, high = np.split(x, 2, -1)
        return np.concatenate([low * np.cos(angle) - high * np.sin(angle),
                               high * np.cos(angle) + low * np.sin(angle)], -1)

    def run(self, ids):
        """What the head reads [n, hidden], and keys and values [heads, n, dim] of layers that have some."""
        h, held = self.w["model.embed_tokens.weight"][ids], {}
        seen = np.tri(len(ids), dtype=bool)
        for l in range(self.layers):
            at = f"model.layers.{l}."
            x = self.norm(h, at + "input_layernorm.weight")
            part = lambda what: (x @ self.w[f"{at}self_attn.{what}_proj.weight"].T).reshape(
                len(ids), -1, self.dim).transpose(1, 0, 2)  # noqa: E731
            q = self.turned(part("q"))
            if self.reads[l] == l:
                held[l] = self.turned(part("k")), part("v")
            keys, values = held[self.reads[l]]
            of = self.head_of[l] if self.head_of else np.arange(self.heads) * len(keys) // self.heads
            p = softmax(np.where(seen, q @ keys[of].transpose(0, 2, 1) / math.sqrt(self.dim), -np.inf))
            out = (p @ values[of]).transpose(1, 0, 2).reshape(len(ids), -1)
            h = h + out @ self.w[at + "self_attn.o_proj.weight"].T
            x = self.norm(h, at + "post_attention_layernorm.weight")
            gate = x @ self.w[at + "mlp.gate_proj.weight"].T
            h = h + (gate / (1 + np.exp(-gate)) * (x @ self.w[at + "mlp.up_proj.weight"].T)) @ self.w[
                at + "mlp.down_proj.weight"].T
        return self.norm(h, "model.norm.weight"), held


def decoded(model, ids, steps, margins):
    """Tensors and tokens as sequence_case gives them; caches are counted among layers that have one."""
    ids, tokens = np.array(ids), []
    for _ in range(steps):
        logits = model.run(ids)[0][-1] @ model.head.T
        best = np.sort(logits)[-2:]
        margins.note((best[1] - best[0]) / (logits.max() - logits.min()), "greedy token")
        tokens.append(int(logits.argmax()))
        ids = np.append(ids, tokens[-1])
    held = list(model.run(ids)[1].values())
    tensors = {f"kept.{c}.{h}": np.arange(len(ids)) for c, (keys, _) in enumerate(held) for h in range(len(keys))}
    for h, (keys, values) in enumerate(zip(*held[-1])):
        tensors[f"k.{len(held) - 1}.{h}"], tensors[f"v.{len(held) - 1}.{h}"] = keys, values
    return tensors, tokens


# --------------------------------------------------------------------------------------------------
# KVSharer


def remap(reads):
    """The notebook's re_map: chains end at a layer that reads its own."""
    flat = {}
    for layer, read in reads.items():
        flat[layer] = read if layer == read else flat[read]
    return flat


def search(config, weights, texts, shared, threshold, margins):
    layers = config["num_hidden_layers"]
    own = {l: l for l in range(layers)}
    runs = [Layered(config, weights).run(text) for text in texts]
    mean = [[sum(held[l][side] for _, held in runs) / len(runs) for side in (0, 1)] for l in range(layers)]
    distance = lambda a, b: np.linalg.norm(a - b, axis=-1).mean()  # noqa: E731
    pairs = sorted((((distance(mean[i][0], mean[j][0]) + distance(mean[i][1], mean[j][1])) / 2, i, j)
                    for i in range(layers) for j in range(i)), reverse=True)
    for (a, *_), (b, *_) in zip(pairs, pairs[1:]):
        margins.note((a - b) / a, "distance of layers")
    found, kept = [], own
    for _, upper, lower in pairs:
        if upper in found:
            continue
        tried = remap(kept | {upper: lower})
        cosine = np.mean([
            (a.ravel() @ b.ravel()) / np.linalg.norm(a) / np.linalg.norm(b)
            for (a, _), b in zip(runs, (Layered(config, weights, list(tried.values())).run(text)[0] for text in texts))])
        margins.note(abs(cosine - threshold), "cosine")
        if cosine > threshold:
            kept = tried
            found.append(upper)
        if len(found) >= shared:
            break
    return list(kept.values())


TEXTS, TOKENS, SHARED, THRESHOLD = 4, 64, 2, 0.5


def texts_of(ids):
    return [np.array(ids[i * TOKENS : (i + 1) * TOKENS]) for i in range(TEXTS)]


def write_map(path, reads):
    params = f'{{"order":"dissimilar","shared":4,"threshold":{THRESHOLD},"tokens":{TOKENS}}}'
    save_file({"layers": np.array(reads, np.float32)}, path, metadata={
        "kvgauge_calibration": "1", "stage": "prepare.kvsharer", "stage_version": "1", "params": params,
        "model": "6193d2452e6d71261c46f91490427c94b7e2c528a859ff2fc2f7c0cafef09dfa", "model_name": "model",
        "texts": str(TEXTS), "tokens": str(TEXTS * TOKENS)})


# --------------------------------------------------------------------------------------------------
# MLKV


def mlkv_weights(config, weights, caches, heads):
    """Heads become means of neighbours; a layer without keys and values of its own is averaged into the
    last one before it that has some, one after the other."""
    weights, layers = dict(weights), config["num_hidden_layers"]
    dim, hidden = config["head_dim"], config["hidden_size"]
    name = lambda l, what: f"model.layers.{l}.self_attn.{what}_proj.weight"  # noqa: E731
    owners = [0] + [int((i + 1) * (layers / caches)) for i in range(caches - 1)]
    for l in range(layers):
        for what in "kv":
            weights[name(l, what)] = weights[name(l, what)].reshape(heads, -1, dim, hidden).mean(1).reshape(-1, hidden)
    for l in range(layers):
        if l in owners:
            continue
        before = max(o for o in owners if o < l)
        for what in "kv":
            weights[name(before, what)] = (weights[name(l, what)] + weights[name(before, what)]) / 2
    return weights, [max(o for o in owners if o <= l) for l in range(layers)]


# --------------------------------------------------------------------------------------------------
# Uneven groups: the best of all partitions


def partitions(heads, groups, most):
    """Every way to put heads into so many groups of at most `most`; groups by their first head."""
    for choice in itertools.product(range(groups), repeat=heads):
        firsts = [choice.index(g) for g in range(groups) if g in choice]
        if len(firsts) == groups and firsts == sorted(firsts) and max(map(choice.count, range(groups))) <= most:
            yield choice


def grouped(config, weights, groups, most, unit, margins):
    weights, heads = dict(weights), config["num_key_value_heads"]
    dim = config["hidden_size"] // config["num_attention_heads"]
    head_of = []
    for l in range(config["num_hidden_layers"]):
        name = lambda what: f"model.layers.{l}.self_attn.{what}_proj.weight"  # noqa: E731
        products = 0
        for what in "kv":
            flat = weights[name(what)].reshape(heads, -1)
            products = products + (lambda m: m / np.sqrt(np.outer(np.diag(m), np.diag(m))) if unit else m)(flat @ flat.T)

        def missed(choice):
            total = np.trace(products)
            for g in range(groups):
                own = [h for h in range(heads) if choice[h] == g]
                total -= products[np.ix_(own, own)].sum() / len(own)
            return total

        ranked = sorted((missed(c), c) for c in partitions(heads, groups, most))
        margins.note((ranked[1][0] - ranked[0][0]) / ranked[0][0], "best groups")
        best = np.array(ranked[0][1])
        for what in "kv":
            rows = weights[name(what)].reshape(heads, dim, -1)
            weights[name(what)] = np.vstack([rows[best == g].mean(0) for g in range(groups)])
        head_of.append(np.repeat(best, config["num_attention_heads"] // heads))
    return weights, head_of


@functools.cache
def heads_model():
    """tests/golden/models/llama2: six heads, each with keys and values of its own."""
    from safetensors.numpy import load_file

    folder = GOLDEN / "models" / "llama2"
    weights = {k: v.astype(np.float64) for k, v in load_file(folder / "model.safetensors").items()}
    return json.loads((folder / "config.json").read_text()), weights


def heads_ids():
    path = INPUTS / "ids_heads.json"
    if not path.exists():
        config, _ = heads_model()
        path.write_text(json.dumps(np.random.default_rng(8).integers(3, config["vocab_size"], 96).tolist()) + "\n")
    return json.loads(path.read_text())


# --------------------------------------------------------------------------------------------------
# CHAI


class Chai(Sequence):
    """Clusters as scipy's average linkage makes them of cosine distances (the code calls scikit-learn's
    AgglomerativeClustering with the same); the first head of each lends keys and queries."""

    def compress(self, counts, rows=5):
        from scipy.cluster.hierarchy import cut_tree, linkage
        from scipy.spatial.distance import pdist

        model, self.first = self.model, []
        for l, count in enumerate(counts):
            points = self.prefill.attention[l][:, :rows, :rows].reshape(model.groups, -1)
            tree = linkage(pdist(points, "cosine"), "average")
            self.margins.note(min([1.0, *(b - a for a, b in zip(tree[:, 2], tree[1:, 2]))]), "distance of heads")
            labels = cut_tree(tree, n_clusters=count).ravel()
            self.first.append([int(np.argmax(labels == label)) for label in labels])
            for h, first in enumerate(self.first[-1]):
                self.keys[l][h] = self.prefill.keys[l][first].copy()

    def answer(self, l, queries):
        for h, first in enumerate(self.first[l]):
            self.keys[l][h] = self.keys[l][first]
        return super().answer(l, [queries[first] for first in self.first[l]])


# --------------------------------------------------------------------------------------------------


def cases(config, weights, ids, margins, steps, sequence_case):
    """As paper_cases of make_methods."""
    side = INPUTS / "kvsharer.safetensors"

    def sharer():
        reads = search(config, weights, texts_of(ids), SHARED, THRESHOLD, margins)
        write_map(side, reads)
        return decoded(Layered(config, weights, reads), ids, steps, margins)

    yield ("kvsharer",
           dict(method="kvsharer", budget="none", steps=steps,
                set=["prepare.calibration={inputs}/kvsharer.safetensors"]),
           "the search of yangyifei729/KVSharer's test_llama.ipynb and its layers in a NumPy forward, float64", sharer)

    def with_map(reads):
        return lambda: decoded(Layered(config, weights, reads), ids, steps, margins)

    yield ("cla", dict(method="cla", budget="none", steps=steps, public_code=False),
           "layers read the keys and values of the one before in a NumPy forward, float64", with_map([0, 0, 2, 2]))
    yield ("share_layers_map",
           dict(method="cla", budget="none", steps=steps, set=["prepare.map=0_1_1_0"], public_code=False),
           "the same with another map", with_map([0, 1, 1, 0]))
    for name, caches, asked in (("mlkv", 2, []), ("mlkv_three", 3, ["prepare.caches=3"])):
        def mlkv(caches=caches):
            changed, reads = mlkv_weights(config, weights, caches, 1)
            return decoded(Layered(config, changed, reads), ids, steps, margins)

        yield (name, dict(method="mlkv", budget="none", caches=caches, steps=steps, set=asked),
               "the projections of zaydzuhri/pythia-mlkv's convert_to_mlkv.py in a NumPy forward, float64", mlkv)

    for name, groups, most, unit in (("qcqa", 3, 3, False), ("asymgqa", 3, 3, True)):
        def uneven(groups=groups, most=most, unit=unit):
            model, full = heads_model()
            changed, head_of = grouped(model, full, groups, most, unit, margins)
            return decoded(Layered(model, changed, head_of=head_of), heads_ids(), steps, margins)

        yield (name, dict(method=name, budget="none", steps=steps, checkpoint="llama2", ids="ids_heads",
                          set=[f"prepare.groups={groups}", f"prepare.most={most}"], public_code=False),
               "the best of all groupings, heads of different numbers to a key in a NumPy forward, float64", uneven)

    chai = lambda: Chai(Prefill(Llama(config, weights), ids), margins, counts=[2, 2, 1, 1])  # noqa: E731
    yield ("chai", dict(method="chai", budget="none", steps=steps),
           "clusters by scipy's average linkage, as facebookresearch/chai's llama.patch makes them, in NumPy, float64",
           lambda: sequence_case(chai(), steps))
