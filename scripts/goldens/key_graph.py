# SPDX-License-Identifier: Apache-2.0
"""RoarGraph (arXiv:2408.08933), the index that RetrievalAttention makes of keys: its construction and its
search in NumPy and lists, after index_bipartite.cpp of matchyc/RoarGraph 7c9ef95 as one thread runs it.

A key is the nearer the larger its product; among equals the lower index. `check_graphs` holds this
against the authors' own code. `spare_links` is what that code does besides: when a list of the second
kind overflows, as many copies of key 0 at distance 0 as the list has keys are candidates, too.
"""

import numpy as np


class Graph:
    def __init__(self, keys, queries, of_query, degree, build_beam, spare_links=False):
        """keys [n, d] and queries [m, d]; lists of each query's `of_query` nearest keys link `degree` keys."""
        keys = np.asarray(keys, dtype=np.float64)
        self.keys, self.degree, self.beam, self.spare_links = keys, degree, build_beam, spare_links
        self.count, self.ran_out = len(keys), False
        self.away = -(keys @ keys.T)
        self.entry = int(((keys - keys.mean(0)) ** 2).sum(1).argmin())
        self.links = [[] for _ in range(self.count)]
        for row in -(np.asarray(queries, dtype=np.float64) @ keys.T):
            self.join(np.argsort(row, kind="stable")[:of_query].tolist())
        for key in range(self.count):
            self.link_back(key)
        self.connect()

    def by_distance(self, key, others):
        return sorted(dict.fromkeys(others), key=lambda other: (self.away[key, other], other))

    def extend(self, taken, candidates, key):
        """Takes what no taken key is nearer to than `key` is."""
        for one in candidates:
            if len(taken) == self.degree:
                break
            if one not in taken and not any(self.away[one, other] < self.away[key, one] for other in taken):
                taken.append(one)
        return taken

    def fill(self, taken, candidates):
        for one in candidates:
            if len(taken) == self.degree:
                break
            if one not in taken:
                taken.append(one)
        return taken

    # The projection: keys that queries have in common.
    def join(self, nearest):
        pivot, others = nearest[0], self.by_distance(nearest[0], nearest[1:])
        self.links[pivot] = self.fill(self.extend(others[:1], others[1:], pivot), others)
        self.link_back(pivot)

    def link_back(self, key):
        for other in self.links[key]:
            held = self.links[other]
            if key in held:
                continue
            held.append(key)
            if len(held) > self.degree:
                order = self.by_distance(other, held)
                self.links[other] = self.fill(self.extend(order[:1], order[1:], other), held)

    # Connectivity: what a search for each key passes.
    def connect(self):
        self.more = [list(links) for links in self.links]
        for key in range(self.count):
            passed, _, _ = walk(self.entry, self.more, self.beam, lambda others: self.away[key, others], key)
            self.more[key] = self.passing(key, [one for one in passed if one != key])
            for other in self.more[key]:
                held = self.more[other]
                if key in held:
                    continue
                if len(held) < 2 * self.degree:
                    held.append(key)
                else:
                    self.more[other] = self.cut(other, held + [key])
        for key in range(self.count):
            if len(self.more[key]) > self.degree:
                self.more[key] = self.passing(key, self.more[key])
        for links, more in zip(self.links, self.more):
            links += [one for one in more if one not in links]

    def passing(self, key, pool):
        order = self.by_distance(key, pool)
        first = next((i for i, one in enumerate(order) if one not in self.links[key]), None)
        if first is None:
            self.ran_out = True
            return []
        taken = self.extend([order[first]], order[first + 1 :], key)
        return self.extend(taken, order[1:first], key)

    def cut(self, key, pool):
        order = self.by_distance(key, pool)
        if self.spare_links:
            order = self.by_distance(key, [one for one in pool if one != 0])
            at = sum(self.away[key, one] < 0 for one in order)
            order.insert(int(at), 0)
            away = self.away.copy()
            away[key, 0] = 0.0
            saved, self.away = self.away, away
            taken = self.extend(order[:1], order[1:], key)
            self.away = saved
            return taken
        return self.extend(order[:1], order[1:], key)

    def search(self, query, beam):
        """Keys in the order in which they were expanded, those that are left, best first, and all that were seen."""
        query = np.asarray(query, dtype=np.float64)
        return walk(self.entry, self.links, beam, lambda others: -(self.keys[others] @ query))


def walk(entry, links, beam, distances, hidden=None):
    """Best-first: the nearest key that was not expanded is next, among the `beam` nearest that were seen."""
    held = [(float(distances([entry])[0]), entry)]
    seen, done, passed = {entry: None}, set(), []
    while True:
        key = next((key for _, key in held if key not in done), None)
        if key is None:
            return passed, [key for _, key in held], list(seen)
        done.add(key)
        passed.append(key)
        new = [one for one in links[key] if one not in seen and one != hidden]
        if not new:
            continue
        seen.update(dict.fromkeys(new))
        held = sorted(held + [(float(away), one) for away, one in zip(distances(new), new)])[:beam]
