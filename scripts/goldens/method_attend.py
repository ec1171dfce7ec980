# SPDX-License-Identifier: Apache-2.0
"""Prompts that are read with sparse attention: a NumPy forward (float64) under masks of rows and
entries, one for each query head. Masks are what the authors' own functions choose, run in torch on
the processor (`make_methods --checkouts DIR`); what runs as a CUDA or Triton kernel there is
restated here, and said so with each class."""

import math

import numpy as np

from method_oracles import Prefill, Sequence, softmax
from method_selection import SnapKv


class SparsePrefill(Prefill):
    """The prompt where query head h's row i sees the entries that sight(l, q, k)[h, i] marks."""

    def __init__(self, model, ids, sight):
        self.model, self.ids, n = model, ids, len(ids)
        self.raw, self.keys, self.values, self.queries, self.attention = [], [], [], [], []
        self.density = []
        positions = np.arange(n)
        causal = positions[None, :] <= positions[:, None]

        def attend(l, q, k, v):
            q, rotated = model.rotate(q, positions), model.rotate(k, positions)
            keys = np.repeat(rotated, model.share, 0)
            seen = sight(l, q, keys) & causal
            assert seen.any(-1).all()
            self.density.append(seen.sum() / (causal.sum() * len(q)))
            scores = q @ keys.transpose(0, 2, 1) / math.sqrt(model.dim)
            p = softmax(np.where(seen, scores, -np.inf))
            for to, what in zip((self.raw, self.keys, self.values, self.queries, self.attention),
                                (k, rotated, v, q, p)):
                to.append(what)
            return p @ np.repeat(v, model.share, 0)

        self.last = model.run(ids, 0, attend)[-1]


class Sparse(Sequence):
    """Decoding over the whole cache that such a prefill leaves."""

    def __init__(self, prefill, margins, **settings):
        self.margins, self.settings = margins, settings
        super().__init__(SparsePrefill(prefill.model, prefill.ids, self.sight), margins)
        density = np.mean(self.prefill.density)
        assert density < 0.97, f"a sight of {density:.2f} of everything"

    def cut(self, scores, count, where):
        """Notes by how much the `count` largest of scores that may be infinite win."""
        order = np.sort(scores)[::-1]
        if count < len(order) and np.isfinite(order[count - 1]):
            self.margins.note((order[count - 1] - order[count]) / order[count - 1], where)


class TriShape(Sparse):
    """The masks of streaming_kernel.py: a row sees the first entries, those less than a window away,
    and of the last rows each sees all."""

    def sight(self, l, q, k):
        s, n = self.settings, q.shape[1]
        i, j = np.arange(n)[:, None], np.arange(n)[None, :]
        last = i >= n - min(s["last"], n - 1)
        return np.repeat(((j < s["sinks"]) | (i - j < s["window"]) | last)[None], len(q), 0)


class MInference(Sparse):
    """sum_all_diagonal_matrix and the body of vertical_and_slash_kernel; _build_block_index; and
    convert_vertical_slash_indexes_kernel (csrc/vertical_slash_index.cu) restated."""

    def sight(self, l, q, k):
        import torch

        from checkouts import definitions

        path = self.settings["checkout"].path / "minference"
        forward = definitions(path / "modules/minference_forward.py", ("sum_all_diagonal_matrix",), {"torch": torch})
        blocks = definitions(path / "ops/block_sparse_flash_attention.py", ("_build_block_index",), {"torch": torch})
        kind, first, second = self.settings["pattern"]
        if kind == "mixed":
            rows = [(("vertical_and_slash", first, second), ("stream_llm", 10, 60), ("block_sparse", 0, 0))[(l + h) % 3]
                    for h in range(len(q))]
        else:
            rows = [(kind, first, second)] * len(q)
        seen = []
        for h, (kind, first, second) in enumerate(rows):
            of_q, of_k = (torch.from_numpy(x[h])[None, None] for x in (q, k))
            if kind == "stream_llm":
                i, j = np.arange(q.shape[1])[:, None], np.arange(q.shape[1])[None, :]
                seen.append((j < first) | (i - j < second))
            elif kind == "block_sparse":
                seen.append(self.of_blocks(blocks, of_q, of_k))
            else:
                seen.append(self.of_lines(forward, of_q, of_k, first, second))
        return np.stack(seen)

    def of_blocks(self, module, q, k):
        import torch

        n, take = q.shape[2], self.settings["blocks"]
        pad = 64 - (n & 63)
        q, k = (torch.nn.functional.pad(x, [0, 0, 0, pad]) for x in (q, k))
        index = module._build_block_index(q, k, take)[0, 0].numpy()
        pooled = [x.reshape(-1, 64, x.shape[-1]).mean(1).numpy() for x in (q[0, 0], k[0, 0])]
        products = pooled[0] @ pooled[1].T
        mask = np.zeros((len(index), len(index)), bool)
        for b, chosen in enumerate(index):
            mask[b, chosen] = True
            order = np.sort(products[b, : b + 1])[::-1]
            if take <= b:
                self.margins.note((order[take - 1] - order[take]) / np.abs(products).max(), "minference blocks")
        return mask.repeat(64, 0).repeat(64, 1)[:n, :n]

    def of_lines(self, module, q, k, vertical_size, slash_size):
        import torch

        n = q.shape[2]
        vertical_size, slash_size = min(n, max(vertical_size, 30)), min(n, max(slash_size, 50))
        last = min(64, n)
        qk = torch.einsum("bhmk, bhnk -> bhmn", q[:, :, -last:, :], k) / math.sqrt(q.shape[-1])
        arange = torch.arange(last)
        own = arange[None, None, :, None] >= arange[None, None, None, :]
        qk[:, :, :, -last:] = torch.where(own, qk[:, :, :, -last:], -torch.inf)
        qk = torch.nn.functional.softmax(qk, dim=-1)
        vertical = qk.sum(-2, keepdim=True)
        vertical[..., :30] = torch.inf
        slash = module.sum_all_diagonal_matrix(qk)[..., : -last + 1]
        slash[..., -100:] = torch.inf
        assert vertical_size >= 30 and slash_size >= 100, "which of the infinite ones is open"
        self.cut(vertical.numpy().ravel(), vertical_size, "minference columns")
        self.cut(slash.numpy().ravel(), slash_size, "minference diagonals")
        columns = torch.topk(vertical, vertical_size, -1).indices.numpy().ravel()
        distances = ((n - 1) - torch.topk(slash, slash_size, -1).indices).numpy().ravel()
        return converted(np.sort(columns), np.sort(distances)[::-1], n)


def minference_snapkv(prefill, margins, budget, window, kernel, **settings):
    """SnapKV behind such a prefill: the window pays what it paid there, and nothing to what it did
    not see."""
    sparse = MInference(prefill, margins, **settings).prefill
    return SnapKv(sparse, margins, budget=budget, window=window, kernel=kernel)


def converted(columns, distances, n):
    """Entries that each row of 64 sees: the kernel's loop over sorted lines, one row of blocks after
    the other."""
    seen = np.zeros((n, n), bool)
    for start in range(0, n, 64):
        end = start + 64
        rows = seen[start:end]
        s = v = 0
        while distances[s] >= end:
            s += 1
        stop = max(end - distances[s], 64)
        s += 1
        first, last = stop - 64, stop
        while True:
            column = columns[v] if v < len(columns) else end + 64
            if column < last:
                if column < first:
                    rows[:, column] = True
                v += 1
                continue
            if s == len(distances):
                rows[:, first:last] = True
                break
            stop = max(end - distances[s], 64)
            s += 1
            if stop > last + 64:
                rows[:, first:last] = True
                first, last = stop - 64, stop
            elif stop > last:
                last += 64
    return seen


class XAttention(Sparse):
    """xattn_estimate without its Triton kernels, and find_blocks_chunked."""

    def sight(self, l, q, k):
        import torch

        from checkouts import definitions

        s, n = self.settings, q.shape[1]
        root = s["checkout"].path / "xattn/src"
        utils = definitions(root / "utils.py", ("find_blocks_chunked",), {"torch": torch})
        given = {"torch": torch, "math": math, "F": torch.nn.functional,
                 "find_blocks_chunked": self.noted(utils.find_blocks_chunked)}
        estimate = on_processor(root / "Xattention.py", "xattn_estimate", given)
        _, mask = estimate(torch.from_numpy(q)[None], torch.from_numpy(k)[None], s["block"], s["stride"],
                           threshold=s["threshold"], chunk_size=s["chunk"], use_triton=False)
        mask = mask[0].numpy()
        return mask.repeat(s["block"], 1).repeat(s["block"], 2)[:, :n, :n]

    def noted(self, find):
        def found(sums, current, threshold, *rest, **more):
            mask = find(sums, current, threshold, *rest, **more)
            for head in sums[0].double().numpy():
                for b, row in enumerate(head, current):
                    total = row.sum()
                    if b < 2 or total == 0:
                        continue
                    always = [b] if current == 0 else [0, b]
                    others = np.sort(np.delete(row[: b + 1], always))[::-1]
                    reached = np.cumsum(np.append(row[always].sum(), others))
                    self.margins.note(np.abs(reached / total - threshold).min(), "xattention share")
                    if len(others) > 1:
                        self.margins.note(np.abs(np.diff(others)).min() / total, "xattention order")
            return mask

        return found


class FlexPrefill(Sparse):
    """get_active_blocks with its own helpers; triton_bnhd_pool restated as means over the rows that
    there are."""

    def sight(self, l, q, k):
        import torch
        from types import SimpleNamespace

        from checkouts import definitions

        s, n, block = self.settings, q.shape[1], self.settings["block"]

        def pool(x, size):
            return torch.stack([part.mean(1) for part in x.split(size, 1)], 1)

        def rearrange(x, how):
            assert how == "b h g i j -> b (h g) i j"
            return x.flatten(1, 2)

        names = ("score_cover_topk", "score_cover_idx", "sum_all_diagonal_matrix", "transform_veritcal_slash_idx",
                 "torch_bhn_sumpool", "square_root_js_divergence", "get_active_blocks")
        module = definitions(s["checkout"].path / "flex_prefill/ops/flex_prefill_attention.py", names,
                             {"torch": torch, "math": math, "triton_bnhd_pool": pool, "rearrange": rearrange,
                              "causal_mask": None})
        plain, cover, js = module.score_cover_topk, module.score_cover_idx, module.square_root_js_divergence

        def noted_cover(x, score):
            total = torch.cumsum(torch.sort(x, dim=-1, descending=True).values, -1)
            count = (total <= score).sum(-1) + 1
            # Only whole blocks of 128 count.
            edge = torch.minimum(count % 128, 128 - count % 128)
            for row, near in zip(total.reshape(-1, total.shape[-1]), edge.ravel()):
                if near < 2:
                    self.margins.note((row - score).abs().min().item(), "flexprefill share")
            return plain(x, score)

        def noted_divergence(p, of):
            found = js(p, of)
            self.margins.note((found - s["tau"]).abs().min().item(), "flexprefill divergence")
            return found

        def noted_index(x, score, padding_value=0):
            total = torch.cumsum(torch.sort(x, dim=-1, descending=True).values, -1)
            self.margins.note((total - score).abs().min().item(), "flexprefill means")
            return cover(x, score, padding_value)

        module.score_cover_topk, module.score_cover_idx = noted_cover, noted_index
        module.square_root_js_divergence = noted_divergence
        share = self.model_share(q, k)
        of_q = torch.from_numpy(q).transpose(0, 1)[None].contiguous()
        of_k = torch.from_numpy(k[::share].copy()).transpose(0, 1)[None].contiguous()
        found = module.get_active_blocks(of_q, of_k, SimpleNamespace(), block, s["gamma"], math.ceil(s["least"] / block),
                                         10**6, s["tau"])
        count = math.ceil(n / block)
        mask = np.zeros((len(q), count * count), bool)
        for h, index in enumerate(found[0]):
            mask[h, index.numpy()] = True
        mask = mask.reshape(len(q), count, count)
        return mask.repeat(block, 1).repeat(block, 2)[:, :n, :n]

    @staticmethod
    def model_share(q, k):
        """How many neighbouring query heads have the same keys."""
        return next((h for h in range(1, len(k)) if not np.array_equal(k[h], k[0])), len(k))


def on_processor(path, name, given):
    """A function of a module, its tensors on the processor."""
    import ast
    import types

    text = path.read_text(encoding="utf-8").replace('"cuda"', '"cpu"')
    kept = [node for node in ast.parse(text).body if getattr(node, "name", None) == name]
    module = types.ModuleType(path.stem)
    module.__dict__.update(given)
    exec(compile(ast.Module(kept, []), str(path), "exec"), module.__dict__)
    return getattr(module, name)


def tri_shape_cases(checkout):
    said = f"the masks of minference/ops/streaming_kernel.py of {checkout.name}, restated in a NumPy forward, float64"
    return [
        ("tri_shape", dict(method="tri_shape", budget="none", set=["attend.sinks=10", "attend.window=70", "attend.last=33"]),
         said, TriShape, dict(sinks=10, window=70, last=33)),
        ("a_shape", dict(method="a_shape", budget="none", set=["attend.sinks=70", "attend.window=100"]),
         said, TriShape, dict(sinks=70, window=100, last=0)),
    ]  # fmt: skip


def minference_cases(checkout):
    said = (f"sum_all_diagonal_matrix and _build_block_index of {checkout.name}, run in torch inside a NumPy forward,"
            " float64; its CUDA kernels restated")
    lines = ["attend.columns=44", "attend.diagonals=102"]
    return tri_shape_cases(checkout) + [
        ("minference", dict(method="minference", budget="none", set=lines), said,
         MInference, dict(checkout=checkout, pattern=("vertical_and_slash", 44, 102))),
        ("minference_blocks", dict(method="minference", budget="none", set=["attend.pattern=block_sparse", "attend.blocks=2"]),
         said, MInference, dict(checkout=checkout, pattern=("block_sparse", 0, 0), blocks=2)),
        ("minference_snapkv", dict(method="minference_snapkv", set=lines), said + "; SnapKV's formulas in NumPy",
         minference_snapkv, dict(checkout=checkout, pattern=("vertical_and_slash", 44, 102), budget=90, window=32, kernel=5)),
    ]  # fmt: skip


def xattention_cases(checkout):
    said = f"xattn_estimate and find_blocks_chunked of {checkout.name}, run in torch inside a NumPy forward, float64"
    ask = lambda stride, threshold, *more: dict(
        method="xattention", budget="none",
        set=["attend.block=64", f"attend.stride={stride}", f"attend.threshold={threshold}", *more])  # fmt: skip
    settings = lambda **own: dict(checkout=checkout, block=64) | own
    return [
        ("xattention", ask(8, 0.7), said + ", in chunks of a block", XAttention, settings(stride=8, threshold=0.7, chunk=64)),
        ("xattention_compat", ask(16, 0.4, "attend.compat=true"), said + ", in one chunk", XAttention,
         settings(stride=16, threshold=0.4, chunk=512)),
    ]  # fmt: skip


def flexprefill_cases(checkout):
    said = (f"get_active_blocks of {checkout.name}, run in torch inside a NumPy forward, float64; its pooling kernel"
            " restated")
    return [
        (name, dict(method="flexprefill", budget="none",
                    set=["attend.block=64", f"attend.gamma={gamma}", f"attend.tau={tau}", "attend.least=64"]),
         said, FlexPrefill, dict(checkout=checkout, block=64, gamma=gamma, tau=tau, least=64))
        for name, gamma, tau in (("flexprefill", 0.5, 0.0), ("flexprefill_means", 0.5, 0.9))
    ]  # fmt: skip
