# SPDX-License-Identifier: Apache-2.0
"""Methods that keep a prompt in directions found in the prompt itself, after their papers and in NumPy."""

import numpy as np

from method_oracles import Sequence


class OwnDirections(Sequence):
    """Keys before rotation, and values, of all heads side by side: their first singular vectors alone."""

    def compress(self, keys=0, values=0):
        model, n = self.model, self.tokens
        for l in range(model.layers):
            for rank, rows, what in ((keys, self.prefill.raw[l], self.keys), (values, self.prefill.values[l], self.values)):
                if not rank:
                    continue
                u, s, vt = np.linalg.svd(np.concatenate(list(rows), 1), full_matrices=False)
                self.margins.note((s[rank - 1] - s[rank]) / s[0], f"directions {l}")
                held = (u[:, :rank] * s[:rank]) @ vt[:rank]
                for h in range(model.groups):
                    own = held[:, h * model.dim : (h + 1) * model.dim]
                    what[l][h] = model.rotate(own, np.arange(n)) if what is self.keys else own


ALL = "all singular vectors of the prompt in NumPy, float64"
# Of 64 numbers. Near directions turn with float32's rounding.
CASES = [
    ("shadowkv_keys", dict(method="shadowkv_keys", budget="none", set=["store.key_rank=0.5"], tolerance=1e-3), ALL,
     OwnDirections, dict(keys=32)),
    ("xkv_layer", dict(method="xkv_layer", budget="none", set=["store.key_rank=0.5", "store.value_rank=0.75"],
                       tolerance=1e-3), ALL,
     OwnDirections, dict(keys=32, values=48)),
]
