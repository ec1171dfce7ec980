# SPDX-License-Identifier: Apache-2.0
"""LongLLMLingua: prompts that are shortened by what a question tells about them, restated in NumPy, and
the same by its authors' functions on losses of the NumPy forward."""

import functools
import json
import types

import numpy as np

from method_authors_thin import LlmLingua
from pictures_reference import functions

STATEMENT = " We can get the answer to this question in the given documents."


class LongLlmLingua(LlmLingua):
    """Documents by how little the question behind them tells, then tokens by how much less they tell
    behind the question. `following`, `whole`: as of LlmLingua."""

    def at_the_end(self, ids, logits):
        s, n = self.settings, len(ids)
        self.ids, self.asks = list(map(int, ids)), list(map(int, ids[n - s.recent :]))
        rows = list(range(s.sinks, n - s.recent))
        wanted = min(max(len(rows) - s.drop * n, 0), len(rows))
        left = self.shorten([rows[i : i + s.document] for i in range(0, len(rows), s.document)], wanted)
        kept = np.r_[: s.sinks, left, n - s.recent : n].astype(int)
        self.gone = n - len(kept)
        return kept

    def shorten(self, documents, wanted):
        chosen, more = self.documents(documents, wanted)
        return self.tokens_of([documents[i] for i in chosen], more, wanted)

    def documents(self, documents, wanted):
        """Which stay, in their order, and what each share grows by."""
        s, told = self.settings, []
        for rows in documents:
            ids = [self.ids[row] for row in rows] + self.asks + list(STATEMENT.encode())
            told.append(self.told(ids)[len(rows) - 1 :].mean())
        order = np.argsort(told, kind="stable")
        gaps = np.diff(np.sort(told)) / np.mean(told)
        self.margins.note(gaps.min(), "longllmlingua, documents")
        room, used = wanted + s.extra, []
        for document in order:
            used.append(int(document))
            room -= len(documents[document])
            if room < 0:
                break
        places = np.linspace(s.spread, -s.spread, len(used)) if len(used) > 1 else np.zeros(1)
        return sorted(used), [float(places[used.index(i)]) for i in sorted(used)]

    def parts(self, lengths, more, wanted):
        """Segments as lists of (tokens, share), cut where a document ends."""
        size, shares = self.settings.segment, [min(max(wanted / sum(lengths) + m, 0), 1) for m in more]
        of = np.repeat(np.arange(len(lengths)), lengths)
        ends = list(range(size - 1, len(of), size)) + [len(of)]
        segments, at = [], 0
        for end in ends:
            own, counts = np.unique(of[at:end], return_counts=True)
            segments.append([(int(count), shares[i]) for i, count in zip(own, counts)])
            at = end
        return segments

    def tokens_of(self, documents, more, wanted):
        s = self.settings
        rows, size = sum(documents, []), s.segment
        segments = self.parts([len(rows) for rows in documents], more, wanted)
        alone, asked, own = {}, {}, 0 if s.following else 1  # by row

        def tell(upto, first):
            ids = [self.ids[row] for row in rows[:upto]]
            plain, behind = self.told(ids), self.told(self.asks + ids)[len(self.asks) :]
            for j in range(first, upto - 1):
                alone[rows[j + own]], asked[rows[j + own]] = plain[j], behind[j]

        def decide(at, parts):
            for count, share in parts:
                contrast = {row: alone[row] - asked[row] for row in rows if row in alone}
                ranked = sorted(contrast.values(), reverse=True)
                end = min(at + count, len(rows))
                if share < 1:
                    least = ranked[max(0, min(len(ranked) - 1, int(len(ranked) * share) - 1))]
                    here = [row for row in rows[at:end] if row in contrast]
                    gone = {row for row in here if contrast[row] <= least}
                    near = [abs(contrast[row] - least) for row in here if contrast[row] != least]
                    self.margins.note(min(near, default=1) / np.std(ranked), f"longllmlingua {at}")
                    rows[:] = [row for row in rows if row not in gone]
                    end -= len(gone)
                at = end
            return at

        tell(len(rows), 0)
        if len(rows) < size:
            if not s.whole:
                decide(0, segments[0])
            return rows
        at, before, segment = decide(0, segments[0]), 0, 1
        while segment < len(segments) and at + size <= len(rows):
            tell(at + size, before)
            before, at, segment = at, decide(at, segments[segment]), segment + 1
        if not s.whole and at < len(rows):
            tell(len(rows), before)
            decide(at, segments[segment])
        return rows


class LongLlmLinguaByAuthors(LongLlmLingua):
    """Texts are lists of ids with blanks between. Their function counts two separators to a document,
    and one to all, which are not there: lengths are given two too short, and the target in proportion."""

    def shorten(self, documents, wanted):
        import torch

        s = self.settings
        names = ("get_rank_results", "get_condition_ppl", "control_context_budget", "iterative_compress_prompt",
                 "get_compressed_input", "get_estimate_threshold_base_distribution", "get_dynamic_compression_ratio")
        module = functions(s.checkout.path / "llmlingua/prompt_compressor.py", {f"{name}@PromptCompressor" for name in names},
                           dict(torch=torch, List=list, tuple=tuple, list=list, Union=dict))
        text = lambda rows: " ".join(str(self.ids[row]) for row in rows)  # noqa: E731
        question = " ".join(map(str, self.asks))

        def parse(given):
            plain = given.replace(STATEMENT, " " + " ".join(map(str, STATEMENT.encode())))
            return torch.tensor([[int(part) for part in plain.split()]])

        def get_ppl(text, granularity="sentence", input_ids=None, attention_mask=None, past_key_values=None,
                    return_kv=False, end=None, condition_mode="none", condition_pos_id=0):
            if input_ids is None:
                assert granularity == "sentence" and condition_mode == "after"
                return self.told(parse(text)[0].numpy())[condition_pos_id:].mean()
            past = 0 if past_key_values is None else past_key_values[0][0].shape[2]
            end = input_ids.shape[1] if end is None else end
            told = torch.tensor(self.told(input_ids[0, :end].numpy()))
            return told[past:], [[torch.zeros(1, 1, end, 1)] * 2]

        def tokenizer(given, **_):
            ids = parse(given)
            return dict(input_ids=ids, attention_mask=torch.ones_like(ids))

        given = types.SimpleNamespace(
            tokenizer=tokenizer, device="cpu", max_position_embeddings=1 << 20, cache_bos_num=0, get_ppl=get_ppl, context_idxs=[],
            get_token_length=lambda text, special=True: parse(text).shape[1] - (0 if special else 2))
        for name in names:
            setattr(given, name, functools.partial(getattr(module, name), given))
        # Documents that begin alike would be one text.
        texts = [text(rows) + " " for rows in documents]
        left, more, used = given.control_context_budget(
            texts, [len(rows) for rows in documents], wanted, question=question, condition_in_question="after",
            dynamic_context_compression_ratio=s.spread, context_budget=f"+{s.extra}")
        chosen, restated = self.documents(documents, wanted)
        assert used == chosen and np.allclose(more, restated)
        tokens = sum(len(documents[i]) for i in chosen)
        ids, _ = given.iterative_compress_prompt(
            [question, *left], wanted * (tokens + 1) / tokens, s.segment, dynamic_ratio=more, start=len(self.asks),
            condition_compare=True)
        rows = self.tokens_of([documents[i] for i in chosen], restated, wanted)
        assert ids[0].tolist() == [self.ids[row] for row in rows]
        return rows


def longllmlingua_cases(checkout):
    shared = dict(drop=0.5, segment=40, document=50, extra=20, spread=0.3, sinks=4, recent=24)
    asked = lambda **more: [f"thin.{k}={json.dumps(v)}" for k, v in (shared | more).items()]  # noqa: E731
    return [
        ("longllmlingua_released", dict(method="longllmlingua", budget="none", steps=6,
                                        set=asked(told_by="following", rest="whole")),
         f"control_context_budget and iterative_compress_prompt of {checkout.name} on losses of a NumPy forward, and one of"
         " what they leave, float64",
         LongLlmLinguaByAuthors, dict(checkout=checkout, following=True, whole=True) | shared),
        ("longllmlingua", dict(method="longllmlingua", budget="none", steps=6, set=asked()),
         f"the same restated in NumPy, which agrees with {checkout.name}: a token by its own contrast, and the rest as a"
         " segment",
         LongLlmLingua, dict(following=False, whole=False) | shared)]  # fmt: skip
