# SPDX-License-Identifier: Apache-2.0
"""As method_authors.py: the methods that let rows of a prompt go before the last layer."""

import functools
import json
import math
import types
import typing

import numpy as np

import method_gates as gates

from checkouts import Substituted, definitions
from method_oracles import Sequence, softmax, top
from method_thin import Aim, FastKv, GemFilter, Thinned
from pictures_reference import functions


class FastKvByAuthors(FastKv):
    """Which rows go on, and what a layer keeps, by its FastKVCluster; the NumPy twin knows the margins."""

    def cluster(self, layer, keys, queries, count):
        import torch

        module = definitions(self.settings.checkout.path / "baselines/fastkv/utils.py", ("repeat_kv", "FastKVCluster"),
                             dict(torch=torch, nn=torch.nn, F=torch.nn.functional, math=math))  # fmt: skip
        s = self.settings
        cluster = module.FastKVCluster(window_size=s.window, max_capacity_prompt=s.budget, kernel_size=s.kernel,
                                       tsp_layer=layer == s.layer, tsp_length=count)
        tensor = lambda x: torch.from_numpy(x)[None].float()  # noqa: E731
        # The values carry positions.
        places = np.repeat(np.arange(keys.shape[1], dtype=float)[None, :, None], len(keys), 0)
        places = np.repeat(places, keys.shape[2], 2)
        _, held, go_on = cluster.update_kv(tensor(keys), tensor(queries), tensor(places), None, self.model.share, layer)
        return np.sort(held[0, :, :, 0].numpy().astype(int), -1), None if go_on is None else go_on[0].numpy()

    def choose(self, layer, q, k, attention):
        ours = super().choose(layer, q, k, attention)
        if ours is None:
            return None
        theirs = self.cluster(layer, k, q, len(ours))[1]
        assert np.array_equal(ours, theirs), layer
        return theirs

    def note(self, l, q, k, attention):
        super().note(l, q, k, attention)
        self.held = getattr(self, "held", {}) | {l: self.cluster(-1, k, q, len(k[0]))[0]}

    def reduce(self):
        before = [list(of_layer) for of_layer in self.pos]
        super().reduce()
        for l, of_layer in enumerate(self.pos):
            for h, positions in enumerate(of_layer):
                assert np.array_equal(positions, before[l][h][self.held[l][h]]), (l, h)


class GemFilterByAuthors(GemFilter):
    """Which rows are read again by its standard_dis_index, which may leave out the last one."""

    def choose(self, layer, q, k, attention):
        import torch

        ours = super().choose(layer, q, k, attention)
        if ours is None:
            return None
        path = self.settings.checkout.path / "my_baseline/GemFilter/gem_filter_utils.py"
        module = definitions(path, ("standard_dis_index",), dict(torch=torch, F=torch.nn.functional))
        keys = torch.from_numpy(np.repeat(k, self.model.share, 0))[None]
        _, found = module.standard_dis_index(keys, torch.from_numpy(q[:, -1:])[None], len(ours), pool=True,
                                             kernel_size=self.settings.kernel, sum_over_heads=True)
        theirs = np.sort(found[0, 0].numpy())
        if theirs[-1] != len(q[0]) - 1:  # ours has the last row in place of the worst of theirs
            assert len(np.setdiff1d(theirs, ours)) == 1
            return ours
        assert np.array_equal(ours, theirs)
        return theirs


class AimByAuthors(Aim):
    """How far a walk reaches, by its get_importance, of logits that are the logarithms of the weights."""

    def reached(self, attention):
        import torch

        path = self.settings.checkout.path / "other_packages/transformers/src/transformers/models/qwen2/modeling_qwen2.py"
        module = definitions(path, ("get_importance",), dict(torch=torch, nn=torch.nn))
        with np.errstate(divide="ignore"):
            logits = torch.from_numpy(np.log(attention))[None]
        theirs = module.get_importance(logits.double())[0].numpy()
        ours = super().reached(attention)
        assert np.abs(ours - theirs).max() < 1e-6 * ours.max()
        return ours


class DynamicLlavaByAuthors(Thinned):
    """Its VisionPredictor on the rows that a layer is given; around it the rule of its forward: int(n * rate)
    rows stay."""

    merges = True  # what stays of the prompt is compared as well

    @functools.cached_property
    def predictor(self):
        import torch

        folder = self.settings.checkout.path / "llava/model/language_model"
        given = vars(typing) | dict(torch=torch, nn=torch.nn, F=torch.nn.functional, use_fused_attn=lambda: False,
                                    partial=functools.partial, to_2tuple=lambda x: (x, x))  # fmt: skip
        blocks = definitions(folder / "custom_transformer_layer.py", ("Mlp", "Attention", "SelfTransformerEncoderBlock"), given)
        module = definitions(folder / "dynamic_modeling_llama.py", ("VisionPredictor",),
                             given | dict(SelfTransformerEncoderBlock=blocks.SelfTransformerEncoderBlock))  # fmt: skip
        predictor = module.VisionPredictor(input_dim=gates.HIDDEN, d_model=gates.WIDE, nhead=gates.PREDICTOR_HEADS,
                                           dim_feedforward=gates.PREDICTOR_INNER, num_layers=gates.BLOCKS)  # fmt: skip
        predictor.load_state_dict({k: torch.from_numpy(v) for k, v in gates.dynamic_llava_tables().items()})
        return predictor.double().eval().requires_grad_(False)

    def choose(self, layer, q, k, attention):
        import torch

        if layer != self.settings.layer:
            return None
        rows = torch.from_numpy(self.hidden[:-1])[None]  # all but the last one count as a picture's
        logits = self.predictor(rows, torch.ones(1, rows.shape[1], 1, dtype=rows.dtype))
        scores = torch.nn.functional.log_softmax(logits, dim=-1)[0, :, 0]
        count = int(rows.shape[1] * self.settings.keep)
        theirs = torch.argsort(scores, descending=True)[:count].sort()[0].numpy()
        ours = top((logits[0, :, 0] - logits[0, :, 1]).numpy(), count, self.margins, "dynamic_llava rows")
        assert np.array_equal(ours, theirs)
        return np.append(theirs, len(rows[0]))


class TokensByAuthors:
    """Its TextPredictor on the row of each decoded token as it enters a layer: what it gives up is no longer held
    from that layer on when the token has attended to itself, as in the cached branch of its forward."""

    @functools.cached_property
    def text_predictor(self):
        import torch

        folder = self.settings.checkout.path / "llava/model/language_model"
        module = definitions(folder / "dynamic_modeling_llama.py", ("TextPredictor",),
                             vars(typing) | dict(torch=torch, nn=torch.nn))  # fmt: skip
        predictor = module.TextPredictor(input_dim=gates.HIDDEN, d_model=gates.WIDE)
        predictor.load_state_dict({k: torch.from_numpy(v) for k, v in gates.dynamic_llava_text_tables().items()})
        return predictor.double().eval().requires_grad_(False)

    def entering(self, l, h):
        import torch

        if l != self.settings.text_layer:
            return
        stay, go = self.text_predictor(torch.from_numpy(h)[None]).reshape(1, -1, 2)[0, 0].tolist()
        self.margins.note(abs(stay - go) / max(abs(stay), abs(go)), "dynamic_llava token")
        self.stays = stay > go

    def after_step(self, rows):
        if self.stays:
            return
        for l in range(self.settings.text_layer, self.model.layers):
            for h, positions in enumerate(self.pos[l]):
                self.keep(l, h, np.arange(len(positions) - 1))


class DynamicLlavaTextByAuthors(TokensByAuthors, Sequence):
    def compress(self, **settings):
        self.settings = types.SimpleNamespace(**settings)


class DynamicLlavaBothByAuthors(TokensByAuthors, DynamicLlavaByAuthors):
    pass


class SparseVlmByAuthors(Thinned):
    """What stays by its attn_postprocess_topk, what is merged by its cluster_and_merge, without noise.
    Between them the lines of its forward are restated, the choice of words among them. A merged row
    stands where the middle of its cluster stood, as the rows keep their places."""

    def choose(self, layer, q, k, attention):
        import torch

        s, below, n = self.settings, layer - 1, attention.shape[-1]
        if below not in s.layers:
            return None
        theirs = s.checkout.path / "llava/model/language_model"
        at = {2: 0, 6: 1, 15: 2}
        name = next(name for name, stage in at.items() if stage == s.layers.index(below))
        score = definitions(theirs / "score.py", ("attn_postprocess_topk",), dict(
            torch=torch, layer_dict=at, sparse_token_dict={0: s.counts}, RETAIN_TOKN=0))
        candidates = n - s.words
        mask, merges, looks = score.attn_postprocess_topk(
            torch.from_numpy(attention)[None], 0, candidates, candidates, self.counting(torch), name)
        assert merges
        mask, looks = mask[0].numpy(), looks[0].numpy()
        assert (np.flatnonzero(mask) == top(looks, mask.sum(), self.margins, f"sparsevlm {layer}")).all()
        dropped = np.flatnonzero(~mask)
        best = torch.from_numpy(looks[dropped]).topk(int(len(dropped) * 0.3) + 1)[1].numpy()
        top(looks[dropped], len(best), self.margins, f"sparsevlm {layer}, merged")
        self.merge(torch, theirs, dropped[best], layer)
        return np.sort(np.r_[np.flatnonzero(mask), list(self.made), np.arange(candidates, n)])

    def counting(self, torch):
        """The words of the question at which the rows before it point more than the mean."""
        read = torch.from_numpy(self.model.w["model.embed_tokens.weight"][np.asarray(self.inputs)])
        rows, words = read[: -self.settings.words][None], read[-self.settings.words :][None]
        share = (rows @ words.transpose(1, 2)).softmax(2).mean(1)
        self.margins.note(((share - share.mean()).abs() / share.mean()).min().item(), "sparsevlm words")
        return torch.where(share > share.mean())

    def merge(self, torch, theirs, rows, layer):
        import einops

        count = len(rows) // 10 + 1
        middles = []

        def topk(values, k, largest=True, **more):
            if largest:
                top(values[0].numpy(), k, self.margins, f"sparsevlm {layer}, middles")
            return torch.topk(values, k, largest=largest, **more)

        def index_points(distance, index):
            middles.extend(index[0].tolist())
            near = distance[0][index[0]].sort(0)[0]
            others = [i for i in range(len(rows)) if i not in middles]
            if len(near) > 1:
                gap = (near[1] - near[0]) / near[1]
                self.margins.note(gap[others].min().item(), f"sparsevlm {layer}, clusters")
            return distance[:, index[0]]

        module = definitions(theirs / "utils.py", ("cluster_and_merge",), dict(
            torch=Substituted(rand=lambda *a, **b: torch.zeros(*a, **b), topk=topk), ein=einops, index_points=index_points))
        values = module.cluster_and_merge(torch.from_numpy(self.hidden[rows])[None], count)[0].numpy()
        self.made = {rows[middle]: value for middle, value in zip(middles, values)}

    def passed(self, h, keep):
        return np.stack([self.made.get(row, h[row]) for row in keep])

    def read(self, ids, places, again=False):
        self.inputs = ids
        return super().read(ids, places, again)


class Ordered(dict):
    """A set that is gone through in the order in which its members came."""

    def __init__(self, members=()):
        super().__init__(dict.fromkeys(members))

    def update(self, members):
        super().update(dict.fromkeys(members))

    def difference_update(self, members):
        for member in members:
            self.pop(member, None)

    def __sub__(self, members):
        return Ordered(member for member in self if member not in members)


class DartByAuthors(Thinned):
    """The rows between `first` and the last `behind` ones that stay by its get_retained_image_token, as for
    one picture there. Python's own sets, in whose order its pivots take turns, are put in order of coming;
    how many rows that changes is printed."""

    def choose(self, layer, q, k, attention):
        import torch
        import torch.nn.functional

        s, n = self.settings, len(k[0])
        if layer != s.layer:
            return None
        path = s.checkout.path / "llava/model/language_model/modeling_llama_self.py"
        length = n - s.first - s.behind
        config = types.SimpleNamespace(text_length=None, DART_config=dict(
            K=layer, image_token_start_index=s.first, image_token_length=length, max_num_trunction=None,
            pivot_image_token=s.pivots[0], pivot_text_token=s.pivots[1], reduction_ratio=s.drop))
        normed = torch.from_numpy(self.model.norm(self.hidden, "model.norm.weight"))[None]
        kept = []
        for kind in (Ordered, set):
            model = functions(path, {"get_retained_image_token@DART"}, dict(
                torch=torch, math=math, set=kind, LlamaConfig=None, Optional=typing.Optional))
            found = model.get_retained_image_token(None, config, normed, torch.from_numpy(np.stack(list(k)))[None])
            kept.append(np.sort(found.numpy()))
        print(f"dart {layer}: {len(np.setdiff1d(*kept))} of {len(kept[0])} rows are others in the order of Python's sets")
        self.twin(layer, k, normed[0].numpy(), length, kept[0])
        return np.r_[: s.first, kept[0], n - s.behind : n]

    def twin(self, layer, k, normed, length, kept):
        """The same anew, for its margins."""
        s, keys = self.settings, np.abs(k).sum((0, 2))
        end = s.first + length

        def longest(begin, stop, count, what):
            rows = begin + np.argsort(-keys[begin:stop], kind="stable")[:count]
            top(keys[begin:stop], count, self.margins, f"dart {layer}, {what} pivots")
            self.margins.note((-np.diff(keys[rows]) / keys[rows[1:]]).min(), f"dart {layer}, turns of {what}")
            return rows

        pictures, text = longest(s.first, end, s.pivots[0], "visual"), longest(end, len(keys), s.pivots[1], "text")
        left, own = np.setdiff1d(np.arange(s.first, end), pictures), list(pictures)
        unit = normed / np.linalg.norm(normed, axis=1, keepdims=True)
        for pivot in np.r_[pictures, text]:
            each = int(length * (1 - s.drop) // sum(s.pivots))
            taken = left[top(-unit[left] @ unit[pivot], each, self.margins, f"dart {layer}, {pivot}")]
            own.extend(taken)
            left = np.setdiff1d(left, taken)
        assert np.array_equal(np.sort(own), kept)


class SelectiveContextByAuthors(Thinned):
    """Tokens that stay by its self_info_mask, given what each tells behind all before it; the model then
    reads them as a prompt. Entries keep the places of their tokens, and turn by those in the shorter prompt."""

    def stand(self, places):
        return np.arange(len(places))

    def at_the_end(self, ids, logits):
        s, n = self.settings, len(ids)
        chances = logits - logits.max(1, keepdims=True)
        chances -= np.log(np.exp(chances).sum(1, keepdims=True))
        told = -chances[np.arange(n - 1), ids[1:]][s.sinks - 1 : n - 1 - s.recent]
        rows = np.arange(s.sinks, n - s.recent)
        module = functions(s.checkout.path / "selective_context.py", {"self_info_mask@SelectiveContext"}, dict(np=np, List=list))
        given = types.SimpleNamespace(mask_ratio=s.drop, mask_a_sent=lambda *_: "")
        _, masked = module.self_info_mask(given, [str(row) for row in rows], list(told), "token")
        gone = np.array([int(row) for row in masked])
        order = np.sort(told)
        self.margins.note((order[len(gone)] - order[len(gone) - 1]) / order[len(gone)], "selective context")
        self.gone = len(gone)
        return np.setdiff1d(np.arange(n), gone)

    def append(self, l, h, raw, v):
        self.pos[l][h] = np.append(self.pos[l][h], self.tokens)
        self.keys[l][h] = np.vstack([self.keys[l][h], self.model.rotate(raw, [self.tokens - self.gone])])
        self.values[l][h] = np.vstack([self.values[l][h], v])

    def query(self, l, h, raw):
        return self.model.rotate(raw, [self.tokens - self.gone])

    def choose(self, layer, q, k, attention):
        return None


class LlmLingua(SelectiveContextByAuthors):
    """LLMLingua's compression in segments, restated: each is told behind what is left of those before it,
    and keeps what tells more than a quantile of all that is left. `following`: a token stays by what the
    one behind it tells, as in the released code; `whole`: what does not fill a segment stays."""

    def told(self, ids):
        """What each token but the first tells, behind those before it."""
        model, n = self.model, len(ids)
        seen = np.tri(n, dtype=bool)

        def attend(l, q, k, v):
            q, k = model.rotate(q, np.arange(n)), model.rotate(k, np.arange(n))
            scores = q @ np.repeat(k, model.share, 0).transpose(0, 2, 1) / math.sqrt(model.dim)
            return softmax(np.where(seen, scores, -np.inf)) @ np.repeat(v, model.share, 0)

        chances = model.run(np.asarray(ids), 0, attend)
        chances = chances - chances.max(1, keepdims=True)
        chances -= np.log(np.exp(chances).sum(1, keepdims=True))
        return -chances[np.arange(n - 1), ids[1:]]

    def share(self, n):
        s = self.settings
        return min(max((n * (1 - s.drop) - s.sinks - s.recent) / (n - s.sinks - s.recent), 0), 1)

    def at_the_end(self, ids, logits):
        s, n = self.settings, len(ids)
        left = self.segments(ids, list(range(s.sinks, n - s.recent)))
        kept = np.r_[: s.sinks, left, n - s.recent : n].astype(int)
        self.gone = n - len(kept)
        return kept

    def segments(self, ids, rows):
        s, share = self.settings, self.share(len(ids))
        size, told = s.segment, {}  # by row
        own = 0 if s.following else 1

        def tell(upto, first):
            values = self.told([ids[row] for row in rows[:upto]])
            for j in range(first, upto - 1):
                told[rows[j + own]] = values[j]

        def decide(begin, end):
            ranked = sorted((told[row] for row in rows if row in told), reverse=True)
            least = ranked[max(0, min(len(ranked) - 1, int(len(ranked) * share) - 1))]
            gone = {row for row in rows[begin:end] if row in told and told[row] <= least}
            near = [abs(told[row] - least) / least for row in rows[begin:end] if row in told]
            self.margins.note(min(gap for gap in near if gap), f"llmlingua {begin}")
            rows[:] = [row for row in rows if row not in gone]
            return end - len(gone)

        if len(rows) < size:
            if not s.whole:
                tell(len(rows), 0)
                decide(0, len(rows))
            return rows
        tell(len(rows), 0)
        begin, before = decide(0, size - 1), 0
        while begin + size <= len(rows):
            tell(begin + size, before)
            before, begin = begin, decide(begin, begin + size)
        if not s.whole and begin < len(rows):
            tell(len(rows), before)
            decide(begin, len(rows))
        return rows


class LlmLinguaByAuthors(LlmLingua):
    """The same by its iterative_compress_prompt and what that calls, on losses of the NumPy forward."""

    def segments(self, ids, rows):
        import torch

        s, share = self.settings, self.share(len(ids))
        names = ("get_compressed_input", "get_estimate_threshold_base_distribution", "iterative_compress_prompt",
                 "get_dynamic_compression_ratio")
        module = functions(s.checkout.path / "llmlingua/prompt_compressor.py", {f"{name}@PromptCompressor" for name in names},
                           dict(torch=torch, List=list, tuple=tuple, list=list))
        context = torch.tensor([[ids[row] for row in rows]])

        def get_ppl(text, granularity, input_ids, mask, past_key_values=None, return_kv=False, end=None):
            past = 0 if past_key_values is None else past_key_values[0][0].shape[2]
            end = input_ids.shape[1] if end is None else end
            told = torch.tensor(self.told(input_ids[0, :end].numpy()))
            return told[past:], [[torch.zeros(1, 1, end, 1)] * 2]

        given = types.SimpleNamespace(
            tokenizer=lambda text, **_: dict(input_ids=context, attention_mask=torch.ones_like(context)), device="cpu",
            max_position_embeddings=1 << 20, cache_bos_num=0, get_ppl=get_ppl,
            get_token_length=lambda text, _: len(rows))
        for name in names[:2] + names[3:]:
            setattr(given, name, functools.partial(getattr(module, name), given))
        # It counts three tokens more: a share of those is asked.
        left, _ = module.iterative_compress_prompt(given, ["context"], share * (len(rows) + 3), s.segment, dynamic_ratio=[0.0])
        restated = super().segments(ids, list(rows))
        assert left[0].tolist() == [ids[row] for row in restated]
        return restated


def fastkv_cases(checkout):
    return [("fastkv", dict(method="fastkv", budget="45", set=["thin.drop=0.7"]),
             f"FastKVCluster of {checkout.name}, run in torch inside a NumPy forward, float64; what is kept stays in"
             " order of position",
             FastKvByAuthors, dict(checkout=checkout, layer=2, rate=0.3, window=8, kernel=7, budget=45))]  # fmt: skip


def gemfilter_cases(checkout):
    return [("gemfilter", dict(method="gemfilter", budget="none", set=["thin.drop=0.7", "thin.layer=2"]),
             f"standard_dis_index of {checkout.name}, run in torch inside a NumPy forward, float64; rows keep their"
             " positions, the last one stays",
             GemFilterByAuthors, dict(checkout=checkout, layer=2, share=0.3, kernel=5))]  # fmt: skip


def aim_cases(checkout):
    return [("aim_prune", dict(method="aim_prune", budget="none", steps=6, set=["thin.rows=all", "thin.start=0.25", "thin.drop=0.3"]),
             f"get_importance of {checkout.name}, run in torch inside a NumPy forward, float64, for rows that leave",
             AimByAuthors, dict(checkout=checkout, first=1, drop=0.3))]  # fmt: skip


def dynamic_llava_cases(checkout):
    sizes = [f"thin.width={gates.WIDE}", f"thin.heads={gates.PREDICTOR_HEADS}", f"thin.inner={gates.PREDICTOR_INNER}",
             "thin.calibration={inputs}/dynamic_llava.safetensors"]  # fmt: skip
    text = [f"score.width={gates.WIDE}", "score.calibration={inputs}/dynamic_llava_text.safetensors"]
    by_text = f"TextPredictor of {checkout.name}, with made-up weights, run in torch inside a NumPy forward, float64"
    return [(name, dict(method="dynamic_llava_text", budget="none", steps=16, set=[f"score.layer={layer}", *text]), by_text,
             DynamicLlavaTextByAuthors, dict(checkout=checkout, text_layer=layer))
            for name, layer in (("dynamic_llava_text", 2), ("dynamic_llava_text_first", 0))] + [
            ("dynamic_llava_both", dict(method="dynamic_llava_both", budget="none", steps=16,
                                        set=["thin.rows=all", *sizes, *text]),
             by_text.replace("TextPredictor", "TextPredictor and VisionPredictor"),
             DynamicLlavaBothByAuthors, dict(checkout=checkout, layer=2, keep=0.2, text_layer=2))] + [
            (name, dict(method="dynamic_llava", budget="none", steps=6, set=["thin.rows=all", *more, *sizes]) | asks,
             f"VisionPredictor of {checkout.name}, with made-up weights, run in torch inside a NumPy forward, float64",
             DynamicLlavaByAuthors, dict(checkout=checkout, layer=layer, keep=keep))
            for name, more, layer, keep, asks in (
                ("dynamic_llava", [], 2, 0.2, {}),
                # Three layers of 150 rows: float32 sums in plain order differ by 2.2e-5.
                ("dynamic_llava_half", ["thin.layer=1", "thin.drop=0.5"], 1, 0.5, dict(tolerance=4e-5)))]  # fmt: skip


def sparsevlm_cases(checkout):
    return [(name, dict(method="sparsevlm", budget="none", steps=6,
                        set=["thin.rows=all", f"thin.layers=\"{','.join(map(str, layers))}\"", f'thin.kept="{kept}"',
                             "thin.of=100", f"thin.words={words}"]),
             f"attn_postprocess_topk and cluster_and_merge of {checkout.name}, run in torch inside a NumPy forward,"
             " float64; merged rows in the middle of their cluster",
             SparseVlmByAuthors, dict(checkout=checkout, layers=layers, words=words,
                                      counts=[int((300 - words) * int(part) / 100 + 1e-9) for part in kept.split(",")]))
            for name, layers, kept, words in (("sparsevlm", [0, 1, 2], "52,34,19", 24), ("sparsevlm_few", [1], "10", 60))]  # fmt: skip


def dart_cases(checkout):
    return [(name, dict(method="dart", budget="none", steps=6,
                        set=["thin.rows=all", f"thin.layer={layer}", f"thin.sinks={first}", f"thin.recent={behind}",
                             f"thin.drop={drop}", f"thin.visual_pivots={pivots[0]}", f"thin.text_pivots={pivots[1]}"]),
             f"get_retained_image_token of ZichenWen1/DART as {checkout.name} holds it (llava, last changed by its"
             " authors in 9fee9fa), run in torch inside a NumPy forward, float64, its sets in order of coming",
             DartByAuthors, dict(checkout=checkout, layer=layer, first=first, behind=behind, drop=drop, pivots=pivots))
            for name, layer, first, behind, drop, pivots in (("dart", 2, 20, 24, 0.778, (4, 4)), ("dart_few", 1, 0, 60, 0.9, (2, 5)))]  # fmt: skip


def selective_context_cases(checkout):
    return [(name, dict(method="selective_context", budget="none", steps=6,
                        set=[f"thin.drop={drop}", f"thin.sinks={sinks}", f"thin.recent={recent}"]),
             f"self_info_mask of {checkout.name} on tokens, and a NumPy forward of what it leaves, float64",
             SelectiveContextByAuthors, dict(checkout=checkout, drop=drop, sinks=sinks, recent=recent))
            for name, drop, sinks, recent in (("selective_context", 0.35, 4, 64), ("selective_context_few", 0.8, 1, 1))]  # fmt: skip


def llmlingua_cases(checkout):
    sets = dict(sinks=4, recent=64)
    asked = lambda **more: [f"thin.{k}={json.dumps(v)}" for k, v in (sets | more).items()]  # noqa: E731
    return [
        ("llmlingua_released", dict(method="llmlingua", budget="none", steps=6,
                                    set=asked(drop=0.4, segment=50, told_by="following", rest="whole")),
         f"iterative_compress_prompt of {checkout.name} on losses of a NumPy forward, and one of what it leaves, float64",
         LlmLinguaByAuthors, dict(checkout=checkout, drop=0.4, segment=50, following=True, whole=True) | sets),
        ("llmlingua", dict(method="llmlingua", budget="none", steps=6, set=asked(drop=0.5, segment=40)),
         f"the same restated in NumPy, which agrees with {checkout.name}: a token by what it tells itself, and the rest as"
         " a segment",
         LlmLingua, dict(drop=0.5, segment=40, following=False, whole=False) | sets)]  # fmt: skip
