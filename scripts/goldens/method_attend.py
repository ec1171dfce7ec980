# SPDX-License-Identifier: Apache-2.0
"""Prompts that are read with sparse attention: a NumPy forward (float64) under masks of rows and
entries, one for each query head. Masks are what the authors' own functions choose, run in torch on
the processor (`make_methods --checkouts DIR`); what runs as a CUDA or Triton kernel there is
restated here, and said so with each class."""

import inspect
import math
import types

import numpy as np

from method_oracles import Prefill, Sequence, sample_seed, softmax, top, uniform
from method_selection import HEADS, LServe, SnapKv


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
        self.margins, self.settings, self.prefill_model = margins, settings, prefill.model
        super().__init__(SparsePrefill(prefill.model, prefill.ids, self.sight), margins, **self.of_decode(settings))
        density = np.mean(self.prefill.density)
        assert density < 0.97, f"a sight of {density:.2f} of everything"

    def of_decode(self, settings):
        """What compress() asks for."""
        return {}

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


class StreamingHeads(Sparse):
    """Some KV heads see the whole prompt, the others its first entries and those just before a row:
    SpAttnConfig and construct_exact_streaming_mask, the mask that token_streaming_attn_func is tested
    against; the mask of each head put together as init_ctx_sparse_attn does. Without gates the rule is
    the program's own: in each layer those heads stream whose last rows pay least to what none of them
    would see."""

    def sight(self, l, q, k):
        s, n, groups = self.settings, q.shape[1], self.prefill_model.groups
        whole = self.by_gates()[l] if s["gates"] else self.by_prompt(l, q, k, groups)
        band = self.band(n)
        return np.stack([np.ones((n, n), bool) if whole[h // (len(q) // groups)] else band for h in range(len(q))])

    def band(self, n):
        import torch
        from checkouts import Checkout, definitions

        s, masks = self.settings, Checkout(self.settings["checkout"].path.parent, *MASKS).path
        at = masks / "block_sparse_tests/fwd/test_correctness/utils.py"
        code = definitions(at, ("construct_exact_streaming_mask", "generate_streaming_mask"),
                           {"torch": torch, "rearrange": lambda x, how: {"s -> s 1": x[:, None]}[how]})
        if s["blocks"]:
            count = [math.ceil(s[what] / 128) for what in ("sinks", "window")]
            seen = code.generate_streaming_mask(n, n, 1, 1, [0, n], [0, n], 128, 128, 128, count, causal=True, device="cpu")
            return seen[0, 0].numpy().repeat(128, 0).repeat(128, 1)[:n, :n]
        return ~code.construct_exact_streaming_mask(n, n, s["sinks"], s["window"]).numpy()

    def by_gates(self):
        import json
        import os
        import tempfile
        import typing

        import torch
        from checkouts import definitions

        model = self.prefill_model
        config = definitions(self.settings["checkout"].path / "omniserve/attn_config.py",
                             ("CtxAttnConfig", "DecAttnConfig", "SpAttnConfig", "sparse_attn_init"),
                             dict(torch=torch, np=np, os=os, json=json, Optional=typing.Optional, Union=typing.Union))
        gates = np.sort(HEADS, axis=None)
        self.margins.note(np.diff(gates).min(), "lserve gates")
        with tempfile.TemporaryDirectory() as folder:
            np.savetxt(os.path.join(folder, "full_attention_heads.tsv"), HEADS, delimiter="\t")
            with open(os.path.join(folder, "config.json"), "w") as file:
                json.dump({}, file)
            found = config.sparse_attn_init(model.groups, model.layers, 64, True, 0, folder, self.settings["share"],
                                            self.settings["sinks"], self.settings["window"])
        return found.get_full_attention_heads().numpy() == 1

    def by_prompt(self, l, q, k, groups):
        s, n = self.settings, q.shape[1]
        rows = min(s["rows"], n)
        scores = q[:, n - rows :] @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        seen = np.arange(n)[None, :] <= np.arange(n - rows, n)[:, None]
        given = softmax(np.where(seen, scores, -np.inf))
        beyond = given[:, :, s["sinks"] : n - rows - s["window"] + 1].sum((1, 2)).reshape(groups, -1).sum(1)
        streaming = math.ceil(s["share"] * (groups - 1))
        order = np.argsort(beyond, kind="stable")
        gap = beyond[order[streaming]] - beyond[order[streaming - 1]]
        self.margins.note(gap / beyond[order[streaming]], f"lserve beyond {l}")
        whole = np.ones(groups, bool)
        whole[order[:streaming]] = False
        return whole


class LoopServe(Sparse):
    """LoopServe's prefill from accounts of the paper: some rows, drawn at random; of each head the fewest columns
    and diagonals, by what these rows give along them, that hold a share of all that they give. Then its
    decode: every few steps the prompt's entries with most of the attention of the last steps' queries."""

    def of_decode(self, settings):
        return {name: settings[name] for name in ("steps", "tokens")}

    def compress(self, steps, tokens):
        self.steps, self.most, self.prompt, self.step_queries = steps, tokens, self.tokens, {}

    def sight(self, l, q, k):
        s, n = self.settings, q.shape[1]
        m = min(s["rows"], n)
        drawn = top(uniform(sample_seed(0, "prompt"), 0x6C6F6F70 << 16 | l, range(n)), m, self.margins, f"loopserve rows {l}")
        scores = q[:, drawn] @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        given = softmax(np.where(np.arange(n)[None, :] <= drawn[:, None], scores, -np.inf))
        return np.stack([converted(*self.lines(a, drawn, n, f"loopserve {l}.{h}"), n) for h, a in enumerate(given)])

    def lines(self, given, drawn, n, where):
        """Columns, ascending, and distances, descending; a row's cells may lie on two lines and count once."""
        distance = drawn[:, None] - np.arange(n)[None, :]
        along = np.zeros(n)
        np.add.at(along, distance[distance >= 0], given[distance >= 0])
        masses = np.concatenate([given.sum(0), along[::-1]])
        order = np.argsort(-masses, kind="stable")
        column, diagonal = np.zeros(n, bool), np.zeros(n, bool)
        before = 0.0
        for count, line in enumerate(order, 1):
            if line < n:
                column[line] = True
            else:
                diagonal[2 * n - 1 - line] = True
            held = given[column[None, :] | ((distance >= 0) & diagonal[np.maximum(distance, 0)])].sum() / len(drawn)
            if held >= self.settings["threshold"]:
                break
            before = held
        self.margins.note(min(held - self.settings["threshold"], self.settings["threshold"] - before), where)
        self.margins.note((masses[order[count - 1]] - masses[order[count]]) / masses[order[count]], where)
        diagonal[0] = True
        return np.flatnonzero(column), np.flatnonzero(diagonal)[::-1]

    def reads(self, l, h, q):
        keys = self.keys[l][h]
        seen, chosen = self.step_queries.setdefault((l, h), ([], [None]))
        if seen and len(seen) % self.steps == 0 and self.prompt > self.most:
            products = np.concatenate(seen[-self.steps :]) @ keys[: self.prompt].T / math.sqrt(self.model.dim)
            chosen[0] = top(softmax(products).sum(0), self.most, self.margins, f"loopserve reads {l}.{h}")
        seen.append(q)
        mask = np.ones((len(q), len(keys)), bool)
        if chosen[0] is not None:
            mask[:, : self.prompt] = False
            mask[:, chosen[0]] = True
        return mask


LOOPSERVE = [
    ("loopserve", dict(method="loopserve", budget="none", public_code=False,
                       set=["attend.rows=24", "attend.threshold=0.7", "read.steps=2", "read.tokens=60"]),
     "what accounts of the paper say in NumPy, float64; draws by Philox-4x32-10 restated in Python",
     LoopServe, dict(rows=24, threshold=0.7, steps=2, tokens=60)),
]  # fmt: skip


MASKS = ("mit-han-lab/Block-Sparse-Attention", "49d6c39")


class OmniServe(LServe):
    """Pages are those that the authors' own function takes, given bounds. A page that begins with the
    newest token is there when it takes them, as the program has it."""

    def compress(self, checkout, **settings):
        import torch
        from checkouts import definitions

        kernels = types.SimpleNamespace(single_query_page_selector=lambda *_: self.bounds)
        code = definitions(checkout.path / "omniserve/modeling/layers/decoding_attention.py",
                           ("DecodingAttentionWrapper",),
                           {"torch": torch, "Dict": dict, "fused_attention_selector": kernels})
        self.select = code.DecodingAttentionWrapper.dynamic_select_topk_pages
        super().compress(**settings)

    def choose(self, bounds, before, where):
        import torch

        queries, _, parts = bounds.shape
        self.bounds = torch.from_numpy(np.pad(bounds, ((0, 0), (0, 1), (0, 0))).reshape(1, queries, -1))
        wrapper = types.SimpleNamespace(
            dynamic_sparse_token_budget=self.budget, tokens_per_block=self.page, sub_chunk_size=self.page // parts,
            kv_cache_config={"INT4_ENABLED": False}, rope_scaling_factor=1.0, **dict.fromkeys((
                "alibi_slopes", "memory_max_len", "rotary_embedding_dim", "rotary_base", "neox_rotary_style")))
        given = dict.fromkeys(list(inspect.signature(self.select).parameters)[1:])  # the kernel's, most of them
        given.update(q=torch.zeros(1, queries, 1), timestep=before)
        chosen = self.select(wrapper, **given)[0].numpy()
        assert all(set(own) == set(said) for own, said in zip(chosen, super().choose(bounds, before, where)))
        return chosen


def lserve(prefill, margins, checkout, gates, share, window, rows, sinks, blocks=False, **settings):
    """Behind such a prefill, the heads that hold everything and those that slide, and what is read."""
    sparse = StreamingHeads(prefill, margins, checkout=checkout, gates=gates, share=share, window=window, rows=rows,
                            sinks=sinks, blocks=blocks).prefill
    return OmniServe(sparse, margins, checkout=checkout, sinks=sinks, gates=HEADS if gates else None, **settings)


def lserve_cases(checkout):
    said = (f"sparse_attn_init of {checkout.name} and construct_exact_streaming_mask of {' '.join(MASKS)}, run in"
            f" torch inside a NumPy forward, float64; dynamic_select_topk_pages of {checkout.name} over bounds in NumPy")
    small = ["attend.sinks=8", "attend.window=40", "allocate.streaming=32", "protect.sinks=8",
             "read.logical=4", "read.tokens=64"]
    files = [f"{stage}.calibration={{inputs}}/lserve_{stage}.safetensors" for stage in ("attend", "allocate")]
    same = dict(checkout=checkout, window=40, rows=64, sinks=8, streaming=32, whole=4, logical=4, parts=4,
                tokens=64, every=4)
    return [
        ("lserve_gates", dict(method="lserve", budget="166", set=small + files), said, lserve,
         dict(gates=True, share=0.5) | same),
        ("lserve_blocks", dict(method="lserve", budget="166", set=small + files + ["attend.blocks=true"]),
         said.replace("construct_exact_streaming_mask", "generate_streaming_mask"), lserve,
         dict(gates=True, share=0.5, blocks=True) | same),
        ("lserve_gates_most", dict(method="lserve", budget="166", set=small + files + ["attend.share=0.7"]), said, lserve,
         dict(gates=True, share=0.7) | same),
        ("lserve_prompt", dict(method="lserve", budget="166", set=small),
         said.replace("sparse_attn_init of " + checkout.name + " and ", "") + "; which heads stream by the program's own rule",
         lserve, dict(gates=False, share=0.5) | same),
    ]  # fmt: skip


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
