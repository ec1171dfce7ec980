# SPDX-License-Identifier: Apache-2.0
"""Keys and queries of tests/golden/graphs. Numbers are multiples of 1/4 below 4 in size, so that every
product is exact in float32 in any order of its sum, and equal products are equal: no margins are needed."""

import numpy as np

# keys, dims, training queries, nearest of each, degree, beam of construction, searches: beams
CASES = {
    "plain": (220, 16, 150, 12, 6, 24, (8, 20, 60)),
    "ties": (130, 4, 90, 9, 5, 16, (6, 16)),  # few different products
    "sparse": (90, 12, 7, 4, 3, 10, (4, 12)),  # most keys are nobody's nearest
    "dense": (48, 20, 200, 48, 40, 64, (10, 48)),  # more links than keys
    "few": (3, 8, 5, 3, 4, 8, (2, 3)),
}
SEARCHES = 12


def draw(generator, rows, dims, centre):
    return np.clip(np.round(4 * (generator.normal(size=(rows, dims)) + centre)), -15, 15) / 4


def inputs(name):
    """Keys, training queries and searches; queries lie elsewhere than keys do."""
    keys, dims, queries = CASES[name][:3]
    generator = np.random.default_rng(sorted(CASES).index(name) + 40)
    centre = generator.normal(size=dims)
    return (draw(generator, keys, dims, 0.0), draw(generator, queries, dims, centre),
            draw(generator, SEARCHES, dims, centre))


def nearest_keys(keys, queries, count):
    """The nearest of each query first, [queries, count]; among equals the lower index."""
    return np.argsort(-(queries @ keys.T), kind="stable")[:, :count]
