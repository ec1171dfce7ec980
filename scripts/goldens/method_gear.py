# SPDX-License-Identifier: Apache-2.0
"""GEAR's other forms (arXiv:2403.05527): KCVT, whose keys have one range for each channel of all entries that are
coded at once, groups of more than a page, and a correction of another rank for later chunks.

Which numbers share a range is what the authors' simulation says, where a checkout of it is there to ask: its
quantisers run in torch on the same rows. Scales are rounded to f16 here, as they are stored; there they are not."""

import math

import numpy as np

import method_codecs as codecs

PAGE = 64


class ByAuthors:
    def __init__(self, checkout, definitions):
        import torch

        at = checkout.path / "GenerationBench/GenerationTest/GEARLM/Simulated/compress_function.py"
        names = ("fake_groupwise_channel_asymmetric_quantization_new", "fake_groupwise_token_asymmetric_quantization")
        self.torch, self.name = torch, checkout.name
        self.code = definitions(at, names, {"torch": torch, "F": torch.nn.functional})
        self.names = names

    def check(self, x, bits, group, keys):
        """That numbers which share a range here do there, too: without rounded scales both give the same."""
        run = getattr(self.code, self.names[0 if keys else 1])
        theirs = run(self.torch.from_numpy(x)[None, None], bits, group)[0, 0].numpy()
        rows = x.astype(np.float64) if keys else x.astype(np.float64).T
        ours = []
        for i in range(0, len(rows), group):
            part = rows[i : i + group]
            low, high = part.min(0), part.max(0)
            scale = np.where(high > low, (high - low) / (2**bits - 1), 1)
            ours.append(np.rint((part - low) / scale) * scale + low)
        ours = np.vstack(ours) if keys else np.vstack(ours).T
        constant = np.isnan(theirs)  # 0 / 0 there
        assert constant.mean() < 0.2 and not np.isnan(ours).any()
        off = np.abs(ours - theirs)[~constant] > 1e-4 * np.abs(x).max()
        assert off.mean() < 1e-3, "ranges of the authors' code"  # codes at a tie may turn


def authors(checkouts, Checkout, definitions):
    if not checkouts or not (checkouts / "opengear-project+GEAR").is_dir():
        return None
    return ByAuthors(Checkout(checkouts, "opengear-project/GEAR", "efe0bfe"), definitions)


def at_once(x, bits, group, share, keys, run):
    """Rows that are coded at once: codes, and which numbers are kept. group 0: all of them."""
    pages = [codecs.split_outliers(x[i : i + PAGE], share, 0 if keys else 1) for i in range(0, len(x), PAGE)]
    filled, taken = (np.vstack(part) for part in zip(*pages))
    group = group or (len(x) if keys else x.shape[1])
    if run is not None:
        run.check(filled, bits, min(group, len(x) if keys else x.shape[1]), keys)
    coded = (codecs.by_channel if keys else codecs.by_token)(filled, bits, min(group, len(x) if keys else x.shape[1]))
    return np.where(taken, codecs.half(x), coded), taken


def chunks(rows, prompt, chunk):
    """What is coded at once: the prompt's whole chunks, then chunk by chunk."""
    whole = prompt // max(chunk, PAGE) * max(chunk, PAGE)
    end = whole + (len(rows) - whole) // chunk * chunk
    return [(0, whole)] + [(i, i + chunk) for i in range(whole, end, chunk)], end


def held(rows, prompt, chunk, code):
    spans, end = chunks(rows, prompt, chunk)
    return np.vstack([code(rows[a:b])[0] for a, b in spans] + [rows[end:]])


def least_errors(rows, prompt, chunk, ranks, code):
    """Corrections of the prompt's rank and of later ones leave no less than this."""
    total = 0
    for i, (a, b) in enumerate(chunks(rows, prompt, chunk)[0]):
        coded, taken = code(rows[a:b])
        total += codecs.best_error(np.where(taken, 0, rows[a:b] - coded), ranks[min(i, 1)]) ** 2
    return math.sqrt(total)


def cases(run, keys, values, prompt):
    sides = (("k", keys, True), ("v", values, False))
    said = "the paper's formulas in NumPy, float32 with f16 scales"
    if run is not None:
        said += f"; groups as the quantisers of {run.name} have them, run in torch"
    share = 0.1

    def coded(bits, group, part):
        return {side: (lambda x, k=is_key: at_once(x, bits, group, part, k, run)) for side, _, is_key in sides}

    code = coded(4, 0, 0)
    yield "kcvt", dict(method="kcvt"), said, {s: held(x, prompt, 16, code[s]) for s, x, _ in sides}
    code = coded(4, 0, share)
    yield ("gear_kcvt_without_correction",
           dict(method="gear_kcvt", set=["store.rank=0", f"store.outliers={share}"]), said,
           {s: held(x, prompt, 64, code[s]) for s, x, _ in sides})
    yield ("gear_kcvt", dict(method="gear_kcvt", set=[f"store.outliers={share}"],
                             best_error={s: least_errors(x, prompt, 64, (4, 2), code[s]) for s, x, _ in sides}),
           "singular values of the error that is left, in NumPy: no correction of ranks 4 and 2 does better", {})
    code = coded(2, 128, share)
    yield ("gear_128", dict(method="gear", set=["store.group=128", "store.chunk=128", "store.rank=0",
                                                f"store.outliers={share}"]), said,
           {s: held(x, prompt, 128, code[s]) for s, x, _ in sides})
