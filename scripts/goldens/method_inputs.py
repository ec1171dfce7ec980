# SPDX-License-Identifier: Apache-2.0
"""Caches that hold the inputs of a layer's attention in the place of its keys and values: HCache
(arXiv:2410.05004) and the form of XQuant (arXiv:2508.10395) for full heads, after the papers and in NumPy."""

import numpy as np

import method_codecs as codecs
from method_oracles import Llama, Sequence


class Shown(Llama):
    """Remembers what each layer's key projection was given last."""

    def __init__(self, model):
        super().__init__(model.c, model.w)
        self.seen = {}

    def split(self, x, l, what, count):
        if what == "k":
            self.seen[l] = x
        return super().split(x, l, what, count)


class InputsHeld(Sequence):
    """What is read are keys and values made of the inputs as they are held; of the prompt, too, behind it.
    Rows whose codes float32 may turn are left open."""

    def compress(self, bits=0, group=128):
        self.bits, self.group, self.model = bits, group, Shown(self.model)
        prompt, n = self.prefill, self.tokens

        def attend(l, q, k, v):
            return prompt.attention[l] @ np.repeat(v, self.model.share, 0)

        self.model.run(prompt.ids, 0, attend)
        for l in range(self.model.layers):
            keys, values = self.made_again(self.held(self.model.seen[l], l == self.model.layers - 1), l)
            for h in range(self.model.groups):
                self.keys[l][h] = self.model.rotate(keys[h], np.arange(n))
                self.values[l][h] = values[h]

    def held(self, x, compared):
        if self.bits == 0:
            return x
        done = codecs.by_token(x.astype(np.float32), self.bits, min(self.group, x.shape[1])).astype(np.float64)
        if compared:
            unsure = ~codecs.clear_codes(x, self.bits)
            self.margins.note(1 if unsure.sum() * 100 <= len(unsure) else 1e-9, "open codes")
            done[unsure] = np.nan
        return done

    def made_again(self, x, l):
        part = lambda what: Llama.split(self.model, x, l, what, self.model.groups)
        return part("k"), part("v")

    def append(self, l, h, raw, v):
        keys, values = self.made_again(self.held(self.model.seen[l], False), l)
        super().append(l, h, keys[h], values[h])


FORMULAS = "the paper's formulas in NumPy, float64"
CASES = [
    ("hcache", dict(method="hcache", budget="none"), FORMULAS, InputsHeld, {}),
    ("xquant_inputs", dict(method="xquant_inputs", budget="none", steps=0, public_code=False),
     FORMULAS + ", codes float32 with f16 scales", InputsHeld, dict(bits=4)),
]  # fmt: skip
