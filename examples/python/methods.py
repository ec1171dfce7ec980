# SPDX-License-Identifier: Apache-2.0
"""Methods in Python, as docs/python.md explains them. Each equals a built-in one.

    python -m kvgauge --python examples/python/methods.py methods --stages
"""

from typing import Annotated

import numpy as np

import kvgauge


@kvgauge.score(any_time=True, paper="arXiv:2406.11430")
def short_keys(view):
    """Entries whose keys are short, as score.knorm."""
    return [-np.sqrt(np.square(view.keys(head).host()).sum(1)) for head in range(view.kv_heads)]


@kvgauge.score(needs={"window": "window"}, paper="arXiv:2404.14469")
def looked_at(view, window: Annotated[int, kvgauge.Range(1, 4096, "last prompt rows")] = 32,
              kernel: Annotated[int, kvgauge.Range(1, 63, "entries that are pooled")] = 5):
    """Attention of the last prompt rows, pooled along the entries, as score.snapkv."""
    rows = min(window, view.tokens)
    before = view.width - rows
    attention = view.window_attention(rows).host()[:, :, :before].mean(1)
    pooled = np.zeros_like(attention)
    for shift in range(-(kernel // 2), kernel // 2 + 1):
        source = slice(max(shift, 0), before + min(shift, 0))
        pooled[:, max(-shift, 0):before - max(shift, 0)] += attention[:, source]
    by_head = (pooled / kernel).reshape(view.kv_heads, -1, before).mean(1)
    # The window itself stays.
    return np.pad(by_head, ((0, 0), (0, rows)), constant_values=by_head.max() + 1)


@kvgauge.allocate
def lower_layers_first(request, steepness: Annotated[float, kvgauge.Range(0, 1)] = 0.5):
    """More entries for lower layers; the sum is the budget."""
    middle = (request.layers - 1) / 2
    tilt = steepness * (middle - np.arange(request.layers)) / max(middle, 1)
    free = request.per_head - request.protected
    shares = request.protected + np.floor(free * (1 + tilt))
    return np.clip(shares, request.protected, request.length).astype(int).tolist()


@kvgauge.reduce
def keep_the_best(view, scores, allotted):
    """The entries with the highest scores, the earlier of two equal ones, as reduce.top_k."""
    scores = scores.host()
    return [np.argsort(-scores[head, :view.lengths[head]], kind="stable")[:count]
            for head, count in enumerate(allotted)]


@kvgauge.read
class NearestKeys:
    """At each step the entries with the largest products of query and key: the ceiling of readers."""

    @staticmethod
    def begin(view):
        return {"keys": [view.keys(head).host().copy() for head in range(view.kv_heads)]}

    @staticmethod
    def append(view, index, first):
        for head, start in enumerate(first):
            index["keys"][head] = np.concatenate((index["keys"][head][:start],
                                                  view.keys(head, start).host()))

    @staticmethod
    def select(view, index, queries,
               tokens: Annotated[int, kvgauge.Range(1, 1 << 20, "entries a step")] = 64):
        queries, chosen = queries.host(), []
        for head, keys in enumerate(index["keys"]):
            group = view.query_heads // view.kv_heads
            products = (queries[head * group:(head + 1) * group] @ keys.T).max(0)
            chosen.append(np.argsort(-products, kind="stable")[:tokens])
        return chosen
