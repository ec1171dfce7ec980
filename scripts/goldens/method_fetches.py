# SPDX-License-Identifier: Apache-2.0
"""Methods that leave entries on the host and fetch some: MagicPIG and vAttention, by their authors' own code
(`make_methods --checkouts DIR magicpig vattention`), and RetroInfer, InfLLM and EM-LLM in NumPy."""

import importlib
import math
import sys
import types
import typing

import numpy as np

from method_oracles import Sequence, sample_seed, softmax, top, uniform
from method_reads import masked_answer  # noqa: F401
from method_selection import gaussian


def planes(model, layer, bits, tables, seed):
    """Hyperplanes of 16 layers and each KV head, in the program's own numbers: [groups, dim, bits * tables]."""
    own = sample_seed(seed, "prompt")
    first = layer // 16 * model.groups
    numbers = [gaussian(own, first + h, model.dim * bits * tables) for h in range(model.groups)]
    return np.array(numbers).reshape(model.groups, model.dim, bits * tables).astype(np.float32).astype(float)


class MagicPig(Sequence):
    """Entries whose signs agree with the query's in all bits of two tables at least, each with a weight
    for its chance to be found: SimCache of the authors, in torch; the margins are by NumPy."""

    def compress(self, checkout, bits, tables, sinks, local, seed):
        import torch
        from checkouts import definitions

        given = dict(vars(typing)) | dict(torch=torch, math=math, F=torch.nn.functional, Cache=object)
        given["repeat_kv"] = lambda x, times: x.repeat_interleave(times, 1)
        module = definitions(checkout.path / "evaluations/RULER/pred/cache_ref.py", ("SimCache",), given)
        model = self.model
        self.torch, self.bits, self.tables, self.inner = torch, bits, tables, slice(sinks, self.tokens - local)
        cache = module.SimCache(bits, tables, num_qh=model.heads, num_kh=model.groups, head_dim=model.dim,
                                num_layers=model.layers, device="cpu", dtype=torch.float64)  # fmt: skip
        self.planes = planes(model, 0, bits, tables, seed)
        cache.hash_matrix = [torch.from_numpy(self.planes)[None]]
        for l in range(model.layers):
            cache.update(self.tensor(self.keys[l]), self.tensor(self.values[l]), None, l)
            cache.select_kv_cache(sinks, l, local)
        self.cache = cache

    def tensor(self, rows):
        return self.torch.from_numpy(np.stack(rows))[None]

    def answer(self, l, queries):
        self.note(l, queries)
        new = [self.tensor([rows[-1:] for rows in held]) for held in (self.keys[l], self.values[l])]
        query = self.tensor([q[None] for own in queries for q in own])
        out = self.cache.update(*new, query, l)[0, :, 0].numpy()
        return list(out.reshape(self.model.groups, self.model.share, -1)), None

    def note(self, l, queries):
        """How near a sign is to another outcome, where one sign alone changes what is read."""
        if l % 16 == 0:
            return
        for h, own in enumerate(queries):
            keys = self.keys[l][h][self.inner]
            keys = keys - keys.mean(0)
            sizes = np.linalg.norm(self.planes[h], axis=0)
            of_keys = keys @ self.planes[h] / np.linalg.norm(keys, axis=1, keepdims=True) / sizes
            for q in own:
                of_query = q @ self.planes[h] / np.linalg.norm(q) / sizes
                differ = ((of_keys > 0) != (of_query > 0)).reshape(-1, self.tables, self.bits)
                away = np.minimum(np.abs(of_keys), np.abs(of_query)).reshape(differ.shape)
                wrong = differ.sum(-1)
                found = (wrong == 0).sum(-1)
                lost = away[(found == 2)[:, None] & (wrong == 0)]
                won = away[((found == 1)[:, None] & (wrong == 1))[..., None] & differ]
                for near in (lost, won):
                    if near.size:
                        self.margins.note(near.min(), f"magicpig {l}.{h}")


def magicpig_cases(checkout):
    return [("magicpig", dict(method="magicpig", budget="none",
                              set=["read.bits=3", "read.tables=6", "read.sinks=4", "read.local=16"]),
             f"SimCache of {checkout.name}, run in torch inside a NumPy forward, float64; hyperplanes by Philox-4x32-10"
             " restated in Python",
             MagicPig, dict(checkout=checkout, bits=3, tables=6, sinks=4, local=16, seed=0))]  # fmt: skip


class VAttention(Sequence):
    """The sinks, the last and the largest, and a sample of what is between whose size follows from a first
    sample: maskers and attention of the authors, in torch. What is drawn is given to their code: the entries
    with the largest of numbers by Philox, each at most once."""

    MODULES = ("sparse_attention", "sparse_attention.utils", "sparse_attention.research_attention",
               "sparse_attention.research_attention.maskers", "sparse_attention.research_attention.maskers.fixed",
               "sparse_attention.research_attention.maskers.fixed.implementations",
               "sparse_attention.research_attention.maskers.sampling",
               "sparse_attention.research_attention.maskers.sampling.implementations")  # fmt: skip

    def compress(self, checkout, share, base, epsilon, delta, sinks, local, seed):
        import torch

        # Their packages load what is not needed here: models, adapters and a tuner.
        root = "sparse_attention_hub"
        for name in ("", *self.MODULES):
            package = types.ModuleType(f"{root}.{name}".rstrip("."))
            package.__path__ = [str(checkout.path / root / name.replace(".", "/"))]
            sys.modules[package.__name__] = package
        sys.modules["ray"] = types.ModuleType("ray")
        sys.modules["ray"].tune = types.SimpleNamespace(grid_search=lambda values: values)
        load = lambda name: importlib.import_module(f"{root}.sparse_attention.{name}")  # noqa: E731
        maskers = "research_attention.maskers"
        self.utils, self.mask = load("utils.mask_attention_utils"), load("utils.mask").Mask
        fixed = load(f"{maskers}.fixed.implementations.basic_fixed")
        largest = load(f"{maskers}.fixed.implementations.oracle_top_k")
        self.sampling = load(f"{maskers}.sampling.implementations.adaptive_sampling")
        make = lambda module, name, **of: getattr(module, name)(getattr(module, name + "Config")(**of))  # noqa: E731
        self.maskers = [make(fixed, "SinkMasker", sink_size=sinks), make(fixed, "LocalMasker", window_size=local),
                        make(largest, "OracleTopK", heavy_size=share),
                        make(self.sampling, "AdaptiveSamplingMasker", base_rate_sampling=base, epsilon=epsilon, delta=delta,
                             init_offset=sinks, local_offset=local)]  # fmt: skip
        self.torch, self.share, self.sinks, self.local = torch, share, sinks, local
        self.seed = sample_seed(seed, "prompt")
        sampler, budgets = self.maskers[-1], self.maskers[-1]._compute_adaptive_budget

        def watched(spread, denominator, between):
            wanted = (sampler.delta_ppf * spread * between / (epsilon * denominator)) ** 2
            open_ = (wanted < between + 1) & (wanted > self.least - 1)
            for x in wanted[open_].tolist():
                self.margins.note(abs(x - round(x)) / x, "vattention budget")
            return budgets(spread, denominator, between)

        sampler._compute_adaptive_budget = watched

    def numbers(self, l, sample):
        """[heads, entries between]"""
        model, n = self.model, self.tokens + 1
        rows = []
        for q in range(model.heads):
            stream = ((n * model.layers + l) * model.heads + q) * 2 + sample
            rows.append(uniform(self.seed, stream, range(self.sinks, n - self.local)))
        return np.array(rows)

    def drawn(self, numbers, counts):
        """The entries of each row, one row after the other."""
        index = [np.sort(np.argsort(-row, kind="stable")[:count]) + self.sinks for row, count in zip(numbers, counts)]
        return self.torch.from_numpy(np.concatenate(index))

    def answer(self, l, queries):
        model, torch = self.model, self.torch
        tensor = lambda rows: torch.from_numpy(np.stack(rows))[None]  # noqa: E731
        q = tensor([row for own in queries for row in own])[:, :, None]
        keys, values = tensor(self.keys[l]), tensor(self.values[l])
        n, scale = keys.shape[2], 1 / math.sqrt(model.dim)
        base, last = self.numbers(l, 0), self.numbers(l, 1)

        def first(low, high, size, device):
            assert (low, high) == (self.sinks, n - self.local) and size[:3] == (1, model.heads, 1)
            self.least = size[3]
            return self.drawn(base, [size[3]] * model.heads).reshape(size)

        def second(budgets, **rest):
            counts = budgets.flatten().tolist()
            draw = lambda low, high, size, device, dtype: self.drawn(last, counts)  # noqa: E731
            self.utils.torch = self.substitute(randint=draw)
            return self.utils.create_sampling_mask_with_per_head_budget(budgets, **rest)

        self.sampling.torch = self.substitute(randint=first)
        self.sampling.create_sampling_mask_with_per_head_budget = second
        mask = self.mask.create_empty_mask((1, model.heads, 1, n), dtype=q.dtype, device=q.device)
        given = dict(attention_mask=None, scaling=scale, dropout=0.0)
        for masker in self.maskers:
            mask = masker.add_mask(keys=keys, queries=q, values=values, sparse_meta_data={}, previous_mask=mask, **given)
        module = types.SimpleNamespace(training=False)
        out = self.utils.get_masked_attention_output(module, q, keys, values, sparse_attention_mask=mask, **given)
        self.note(l, queries)
        return list(out[0, 0].numpy().reshape(model.groups, model.share, -1)), None

    def substitute(self, **functions):
        from checkouts import Substituted

        return Substituted(**functions)

    def note(self, l, queries):
        """How near another entry is to being one of the largest."""
        for h, own in enumerate(queries):
            n = len(self.keys[l][h])
            for x in own @ self.keys[l][h].T:
                top(x[self.sinks : n - self.local], int(self.share * n), self.margins, f"vattention {l}.{h}")


def vattention_cases(checkout):
    settings = dict(share=0.1, base=0.1, delta=0.25, sinks=4, local=16, seed=0)
    return [(name, dict(method="vattention", budget="none", tolerance=1e-4,
                        set=["read.sinks=4", "read.local=16", f"read.epsilon={epsilon}"]),
             f"SinkMasker, LocalMasker, OracleTopK, AdaptiveSamplingMasker and get_masked_attention_output of {checkout.name},"
             " run in torch inside a NumPy forward, float64; entries of a sample are distinct, drawn by Philox-4x32-10"
             " restated in Python",
             VAttention, dict(checkout=checkout, epsilon=epsilon, **settings))
            for name, epsilon in (("vattention", 0.25), ("vattention_near", 0.05))]  # fmt: skip


class RetroInfer(Sequence):
    """Clusters of centred keys: the best are read, the next count by their mean key and the sum of their
    values. segment_k_means and sparse_attention_gpu of microsoft/RetrievalAttention 6b1228c."""

    def compress(self, span, read, estimated, sinks, local, rounds, segments):
        n, model = self.tokens, self.model
        self.inner = slice(sinks, n - local)
        count = max(round(n / span), 1)
        count = max(count // segments * segments, segments)
        self.read = max(round(count * read), 1)
        self.estimated = min(round(count * estimated), count - self.read)
        self.index = [[self.divide(l, h, count, rounds, segments) for h in range(model.groups)]
                      for l in range(model.layers)]  # fmt: skip

    def divide(self, l, h, count, rounds, segments):
        keys, values = self.keys[l][h][self.inner], self.values[l][h][self.inner]
        mean = keys.mean(0)
        x, n, where = keys - mean, len(keys), f"retroinfer {l}.{h}"
        start = (np.arange(count) * (n / count) + n / count / 2).astype(int)
        centres, piece, own = x[start], n // segments, count // segments
        for part in range(segments):
            rows, at = x[part * piece : (part + 1) * piece], slice(part * own, (part + 1) * own)
            for _ in range(rounds - 1):
                member = self.nearest(rows, centres[at], where)
                for c in np.unique(member):
                    centre = rows[member == c].mean(0)
                    centres[at][c] = centre / np.linalg.norm(centre)
        member = self.nearest(x, centres, where)
        sizes = np.bincount(member, minlength=count)
        for c in np.unique(member):
            centres[c] = x[member == c].mean(0)
        sums = np.array([values[member == c].sum(0) for c in range(count)])
        return centres + mean, sums, sizes, member

    def nearest(self, rows, centres, where):
        products = rows @ centres.T
        ordered = np.sort(products, 1)
        if len(centres) > 1:
            self.margins.note(((ordered[:, -1] - ordered[:, -2]) / np.abs(ordered[:, -1])).min(), where)
        return products.argmax(1)

    def answer(self, l, queries):
        out = []
        for h, own in enumerate(queries):
            centres, sums, sizes, member = self.index[l][h]
            keys, values = self.keys[l][h], self.values[l][h]
            logits = np.where(sizes > 0, own @ centres.T / math.sqrt(self.model.dim), -np.inf)
            shares = softmax(logits).sum(0)
            best = top(shares, self.read, self.margins, f"retroinfer {l}.{h} read")
            both = top(shares, self.read + self.estimated, self.margins, f"retroinfer {l}.{h} estimated")
            rest = np.setdiff1d(both, best)
            seen = np.ones(len(keys), bool)
            seen[self.inner] = np.isin(member, best)
            scores = own @ keys[seen].T / math.sqrt(self.model.dim)
            most = max(scores.max(), logits[:, rest].max()) if len(rest) else scores.max()
            exact, guess = np.exp(scores - most), np.exp(logits[:, rest] - most)
            total = exact.sum(1) + (guess * sizes[rest]).sum(1)
            out.append((exact @ values[seen] + guess @ sums[rest]) / total[:, None])
        return out, None


class InfLlm(Sequence):
    """Blocks by the products of unrotated keys that stand for them with queries at one position; what is
    far is at one distance. context_manager.py of thunlp/InfLLM 12b7079, for a prompt that was read in full."""

    def compress(self, block, picks, sinks, local, stand):
        self.block, self.picks, self.sinks, self.local = block, picks, sinks, local
        self.count = max(0, (self.tokens - sinks - local) // block)
        model = self.model
        self.raw = [[self.prefill.raw[l][h].copy() for h in range(model.groups)] for l in range(model.layers)]
        self.means = []
        for l in range(model.layers):
            inner = slice(sinks, sinks + self.count * block)
            scores = self.prefill.column_sums(l)[:, inner].reshape(model.heads, self.count, block)
            means = np.zeros((model.heads, self.count, model.dim))
            for h, b in np.ndindex(scores.shape[:2]):
                best = top(scores[h, b], stand, self.margins, f"infllm {l}.{h}")
                means[h, b] = self.raw[l][h // model.share][inner][b * block : (b + 1) * block][best].mean(0)
            self.means.append(means)

    def append(self, l, h, raw, v):
        super().append(l, h, raw, v)
        self.raw[l][h] = np.vstack([self.raw[l][h], raw])
        positions = np.maximum(self.pos[l][h], self.tokens - self.local + 1)
        self.keys[l][h] = self.model.rotate(self.raw[l][h], positions)

    def looked_up(self, l, queries):
        """Blocks that all heads read. The queries are turned back from their own position."""
        own = self.model.rotate(np.vstack(queries), [self.local - 1 - self.tokens])
        scores = (own[:, None] * self.means[l]).sum((0, 2))
        return top(scores, min(self.picks, self.count), self.margins, f"infllm {l}")

    def answer(self, l, queries):
        mask = np.ones(len(self.keys[l][0]), bool)
        mask[self.sinks : self.sinks + self.count * self.block] = False
        for b in self.looked_up(l, queries):
            mask[self.sinks + b * self.block : self.sinks + (b + 1) * self.block] = True
        return masked_answer(self, l, queries, [mask] * len(queries))


class InfLlmByAuthors(InfLlm):
    """The answers of its ContextManager, which has read the full cache's own keys and queries. All entries
    of a block stand for it: which of them do follows from how the prompt was read."""

    def compress(self, checkout, **settings):
        import contextlib
        import types

        import torch
        from checkouts import Substituted, definitions

        super().compress(**settings)
        model, folder = self.model, checkout.path / "inf_llm/attention"
        event = lambda: types.SimpleNamespace(record=lambda _: None, wait=lambda: None)
        cuda = types.SimpleNamespace(Event=event, current_stream=lambda: None, stream=lambda _: contextlib.nullcontext())
        on_cpu = lambda make: lambda *sizes, device=None, **rest: make(*sizes, **rest)
        given = dict(vars(typing)) | dict(math=math, deepcopy=__import__("copy").deepcopy, GLOBAL_STREAM=None)
        given["torch"] = Substituted(cuda=cuda, empty=on_cpu(torch.empty), arange=on_cpu(torch.arange))
        base = definitions(folder / "dot_production_attention/base.py", ("MultiStageDotProductionAttention",), given)
        stages = definitions(folder / "dot_production_attention/torch_impl.py", ("TorchMultiStageDotProductionAttention",),
                             given | vars(base))  # fmt: skip
        rope = definitions(folder / "rope.py", ("RotaryEmbeddingESM",), given)
        attention = stages.TorchMultiStageDotProductionAttention
        given["get_multi_stage_dot_production_attention"] = lambda _: (attention, None)
        text = (folder / "context_manager.py").read_text(encoding="utf-8").replace("assert _t.is_cuda", "pass")
        module = types.ModuleType("context_manager")
        kept = [n for n in __import__("ast").parse(text).body if getattr(n, "name", None)]
        module.__dict__.update(given)
        exec(compile(__import__("ast").Module(kept, []), "context_manager", "exec"), module.__dict__)
        self.torch, self.managers, n = torch, [], self.tokens
        for l in range(model.layers):
            manager = module.ContextManager(rope.RotaryEmbeddingESM(model.dim), self.sinks, self.local, self.block, 8,
                                            self.picks, self.local, repr_topk=self.block)  # fmt: skip
            raw = self.model.rotate(self.prefill.queries[l], -np.arange(n))
            rows = [torch.from_numpy(np.stack(x))[None] for x in (raw, self.raw[l], self.values[l])]
            manager.append(*rows, *rows)
            assert manager.num_global_block == self.count
            theirs = manager.block_k[0].get_data().reshape(self.count, model.heads, -1).numpy()
            assert np.allclose(theirs.transpose(1, 0, 2), self.means[l], atol=1e-9)
            self.managers.append(manager)

    def answer(self, l, queries):
        ours, _ = super().answer(l, queries)
        model, tensor = self.model, self.torch.from_numpy
        query = self.model.rotate(np.vstack(queries), [-self.tokens])[None, :, None]
        rows = [tensor(query)]
        rows += [tensor(np.stack([held[-1:] for held in of]))[None] for of in (self.raw[l], self.values[l])]
        out = self.managers[l].append(*rows, *rows)[0, :, 0].numpy().reshape(model.groups, model.share, -1)
        assert np.allclose(out, np.stack(ours), rtol=1e-4, atol=1e-5), l
        return ours, None


def all_logits(prefill):
    """Of every row of the prompt."""
    model, n = prefill.model, len(prefill.ids)
    seen = np.tril(np.ones((n, n), bool))

    def attend(l, q, k, v):
        q, k = model.rotate(q, np.arange(n)), model.rotate(k, np.arange(n))
        scores = q @ np.repeat(k, model.share, 0).transpose(0, 2, 1) / math.sqrt(model.dim)
        return softmax(np.where(seen, scores, -np.inf)) @ np.repeat(v, model.share, 0)

    return model.run(prefill.ids, 0, attend)


class EmLlm(InfLlm):
    """Events that begin before surprising tokens, in place of blocks; as many of the best as there is room
    for. Where they begin and end is by the authors' own update_memory."""

    def compress(self, checkout, tokens, least, most, gamma, chunk, sinks, local, stand):
        self.room, self.chunk, self.sinks, self.local = tokens, chunk, sinks, local
        model, n = self.model, self.tokens
        logits = all_logits(self.prefill)
        own = logits[np.arange(n - 1), self.prefill.ids[1:]]
        most_of = logits.max(1)
        surprise = (most_of + np.log(np.exp(logits - most_of[:, None]).sum(1)))[:-1] - own
        self.events = self.divide(checkout, surprise, least, most, gamma)
        self.raw = [[self.prefill.raw[l][h].copy() for h in range(model.groups)] for l in range(model.layers)]
        self.means = []
        for l in range(model.layers):
            scores = self.prefill.column_sums(l)
            means = np.zeros((model.heads, len(self.events), model.dim))
            for h in range(model.heads):
                for e, (begin, end) in enumerate(self.events):
                    best = top(scores[h, begin:end], min(stand, end - begin), self.margins, f"emllm {l}.{h}")
                    means[h, e] = self.raw[l][h // model.share][begin:end][best].mean(0)
            self.means.append(means)

    def divide(self, checkout, surprise, least, most, gamma):
        """Beginnings and ends: a manager of a layer without keys, which notes blocks."""
        import contextlib
        import types

        import torch
        from checkouts import Substituted, definitions

        cuda = types.SimpleNamespace(stream=lambda _: contextlib.nullcontext())
        given = dict(vars(typing)) | dict(torch=Substituted(cuda=cuda), GLOBAL_STREAM=None)
        manager = definitions(checkout.path / "em_llm/attention/context_manager.py", ("ContextManager",), given).ContextManager
        state, events = manager.__new__(manager), []
        rows = lambda count: torch.zeros(1, 1, count, 1, dtype=torch.float64)
        state.__dict__.update(n_local=self.local, n_init=self.sinks, batch_size=1, num_heads=1, init_exc=False, length=0,
                              use_hf_acc=False, uniform_blocks=False, surprisal_threshold_gamma=gamma, min_block_size=least,
                              max_block_size=most, allow_disk_offload=False, async_global_stream=False,
                              init_k=rows(0), init_v=rows(0), local_k=rows(0), local_v=rows(0), gone=0,
                              global_remainder=(rows(0),) * 3, global_remainder_repr_score=rows(0)[..., 0],
                              global_remainder_surprisal=rows(0)[0, ..., 0], global_block_divide=rows(0)[0, ..., 0])  # fmt: skip
        state._add_block = lambda u, begin, end, load_to_disk: events.append((state.gone + begin, state.gone + end))
        chunks = [surprise[at : at + self.chunk] for at in range(0, len(surprise), self.chunk)]
        for part in [torch.from_numpy(c)[None] for c in chunks] + [None]:
            count = 1 if part is None else part.shape[1]
            # As its append does before the rows are attended.
            for name, more in (("global_remainder_repr_score", rows(count)[..., 0]),
                               ("global_remainder_surprisal", rows(count)[0, ..., 0]),
                               ("global_block_divide", rows(count)[0, ..., 0])):  # fmt: skip
                setattr(state, name, torch.cat((getattr(state, name), more), -1))
            state.local_k = state.local_v = torch.cat((state.local_k, rows(count)), 2)
            state.kv_length, state._global_remainder_st = state.local_k.shape[2], 0
            state._global_remainder_ed = state.global_remainder[0].shape[2]
            state.global_remainder = tuple(torch.cat((t, rows(count)), 2) for t in state.global_remainder)
            state.exc_repr_score = rows(state.kv_length)[..., 0]
            if part is not None:
                self.note_threshold(state, part[0].numpy(), gamma)
            waiting = state.global_remainder[0].shape[2]
            manager.update_memory(state, count, part)
            state.gone += waiting - state.global_remainder[0].shape[2]
        assert events and events[0][0] == self.sinks
        return events

    def note_threshold(self, state, part, gamma):
        values = state.global_remainder_surprisal[0].numpy().copy()
        values[len(values) - len(part) :] = part
        window = values[max(len(values) - self.local, 0) : max(len(values) - len(part), self.sinks)]
        if len(window) > 1:
            bound = gamma * window.std(ddof=1) + window.mean()
            self.margins.note((np.abs(part - bound) / abs(bound)).min(), "emllm surprise")

    def answer(self, l, queries):
        n = len(self.keys[l][0])
        own = self.model.rotate(np.vstack(queries), [self.local - 1 - self.tokens])
        scores = (own[:, None] * self.means[l]).sum((0, 2))
        order = np.argsort(-scores, kind="stable")
        inside = self.events[-1][1] - self.sinks
        room = self.chunk + self.room - max(n - self.sinks - inside - self.local, 0)
        mask = np.ones(n, bool)
        if inside > room:
            mask[self.sinks : self.sinks + inside] = False
            held = 0
            for place, e in enumerate(order):
                size = self.events[e][1] - self.events[e][0]
                if held + size >= room and abs(room - held) <= abs(held + size - room):
                    break
                mask[slice(*self.events[e])] = True
                held += size
                if place + 1 < len(order):
                    gap = scores[e] - scores[order[place + 1]]
                    self.margins.note(gap / np.abs(scores).max(), f"emllm {l}")
                if held >= room:
                    break
        return masked_answer(self, l, queries, [mask] * len(queries))


def emllm_cases(checkout):
    return [("emllm", dict(method="emllm", budget="none",
                           set=["read.tokens=24", "read.chunk=40", "read.least=4", "read.most=24", "read.sinks=8",
                                "read.local=64", "store.position_limit=63"]),
             f"update_memory of {checkout.name}, run in torch inside a NumPy forward, float64; its retrieval restated in"
             " NumPy for a prompt read with full attention",
             EmLlm, dict(checkout=checkout, tokens=24, least=4, most=24, gamma=1.0, chunk=40, sinks=8, local=64,
                         stand=4))]  # fmt: skip


def infllm_cases(checkout):
    return [("infllm", dict(method="infllm", budget="none",
                            set=["read.block=16", "read.picks=4", "read.sinks=8", "read.local=64",
                                 "read.representatives=16", "store.position_limit=63"]),
             f"ContextManager of {checkout.name}, run in torch inside a NumPy forward, float32, on the keys and queries of"
             " a prompt read with full attention, all entries of a block standing for it",
             InfLlmByAuthors, dict(checkout=checkout, block=16, picks=4, sinks=8, local=64, stand=16))]  # fmt: skip


# Name, what to ask the program for, the oracle in words, its class and settings.
CASES = [
    ("infllm_few",
     dict(method="infllm", budget="none",
          set=["read.block=16", "read.picks=4", "read.sinks=8", "read.local=64", "store.position_limit=63"]),
     "ContextManager of thunlp/InfLLM 12b7079, restated in NumPy for a prompt read with full attention",
     InfLlm, dict(block=16, picks=4, sinks=8, local=64, stand=4)),
    ("retroinfer",
     dict(method="retroinfer", budget="none",
          set=["read.span=12", "read.share=0.1", "read.estimated=0.3", "read.local=24", "read.iterations=4"]),
     "segment_k_means and sparse_attention_gpu of microsoft/RetrievalAttention 6b1228c, restated in NumPy",
     RetroInfer, dict(span=12, read=0.1, estimated=0.3, sinks=4, local=24, rounds=4, segments=1)),
    ("retroinfer_segments",
     dict(method="retroinfer", budget="none",
          set=["read.span=12", "read.share=0.1", "read.estimated=0.3", "read.local=24", "read.iterations=3",
               "read.segment=100"]),
     "segment_k_means and sparse_attention_gpu of microsoft/RetrievalAttention 6b1228c, restated in NumPy",
     RetroInfer, dict(span=12, read=0.1, estimated=0.3, sinks=4, local=24, rounds=3, segments=3)),
]
