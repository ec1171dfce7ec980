# SPDX-License-Identifier: Apache-2.0
"""Methods that choose again while decoding: kvpress's DecodingPress and PrefillDecodingPress run on the
transformers model, and papers' formulas in NumPy.

kvpress leaves a compressed cache in the order of scores, and turns the queries of a window by the newest
position. Here its scorers' choices are put in the order of positions, and each query is turned by its own.
"""

import functools
import math

import numpy as np

from method_oracles import Sequence, pool_max, rkv_scores, softmax, top
from method_presses import statistics

INTERVAL, STEPS = 10, 23  # steps between two choices; two of them, and three steps more


class Kept:
    """Which tokens a cache holds while presses choose, and by how much each choice was won."""

    def __init__(self, model, margins):
        self.model, self.margins = model, margins
        config = model.config
        self.pos = [[np.zeros(0, int) for _ in range(config.num_key_value_heads)]
                    for _ in range(config.num_hidden_layers)]
        self.tokens = 0

    def see(self, l, length):
        """Tokens that came since the last choice, up to the newest."""
        for h, pos in enumerate(self.pos[l]):
            new = length - len(pos)
            self.pos[l][h] = np.append(pos, np.arange(self.tokens - new, self.tokens))

    def turned(self, hidden_states, kwargs):
        """Angles of the rows' own positions."""
        import torch

        at = torch.arange(self.tokens - hidden_states.shape[1], self.tokens)[None]
        return kwargs | {"held": self, "position_embeddings": self.model.model.rotary_emb(hidden_states, at)}

    def shared(self, scores, press):
        """Heads share a layer's budget: the cut of those that are not sure."""
        count = press.target_size
        flat = scores[0].clone()
        sure = flat.topk(int(count * press.base_press.alpha_safeguard), -1).indices
        flat.scatter_(-1, sure, float("inf"))
        ordered = flat.flatten().sort(descending=True).values
        least, most = ordered[count * len(flat) - 1].item(), ordered[count * len(flat)].item()
        self.margins.note((least - most) / max(abs(least), abs(most)), f"kvpress ada of {self.tokens}")
        return scores

    def run_by_run(self, press, keys, values, count, where):
        """LagKV's scores are ranks in runs: the cut is that of the spreads they are made of."""
        sinks, lag = press.n_sink, press.lag_size
        runs = (keys.shape[2] - sinks) // lag
        body = slice(sinks, sinks + runs * lag)
        share = (count - (keys.shape[2] - (runs - 1) * lag)) // (runs - 1)
        spread = sum(press._get_states_score(x[:, :, body].reshape(*x.shape[:2], runs, lag, -1)) for x in (keys, values))
        ordered = spread.sort(-1, descending=True).values
        self.margins.note(((ordered[..., share - 1] - ordered[..., share]) / ordered[..., share - 1]).min().item(), where)

    def compress(self, press, module, hidden_states, keys, values, attentions, kwargs):
        """In place of ScorerPress.compress."""
        from kvpress import KnormPress, LagKVPress
        from kvpress.utils import compute_n_kept

        if press.compression_ratio == 0:
            return keys, values
        l, length = module.layer_idx, keys.shape[2]
        self.see(l, length)
        scores = press.score(module, hidden_states, keys, values, attentions, self.turned(hidden_states, kwargs))
        count = compute_n_kept(length, press.compression_ratio)
        if isinstance(press, LagKVPress):
            self.run_by_run(press, keys, values, count, f"kvpress {l} of {self.tokens}")
        # Equal tokens score alike in the first layer: of equals the earlier stays, where topk takes any.
        index = scores.argsort(dim=-1, descending=True, stable=True)[..., :count].sort(-1).values
        for h in range(keys.shape[1]):
            s, kept = scores[0, h].numpy(), index[0, h].numpy()
            least, most = s[kept].min(), np.delete(s, kept).max()
            if not self.ties:
                gap = (least - most) / max(abs(least), abs(most))
                # Lengths of turned keys are equal by rounding alone.
                if isinstance(press, KnormPress):
                    gap = max(gap, 1e-12)
                self.margins.note(gap, f"kvpress {l}.{h} of {self.tokens}")
            self.pos[l][h] = self.pos[l][h][kept]
        take = index.unsqueeze(-1).expand(-1, -1, -1, module.head_dim)
        return keys.gather(2, take).contiguous(), values.gather(2, take).contiguous()


def decoding_case(inputs, margins, press, steps=STEPS, ties=False, attention="sdpa"):
    """Kept positions and the last layer's keys and values after greedy steps under the press. `ties`: scores
    are 0 and 1, and what stays is the same for every order of topk."""
    import torch
    from kvpress.presses.adakv_press import AdaKVPress
    from kvpress.presses.scorer_press import ScorerPress
    from transformers import DynamicCache

    model, ids = inputs.model, torch.tensor(inputs.ids)
    model.set_attn_implementation(attention)
    held, cache, decoded = Kept(model, margins), DynamicCache(), []
    held.ties = ties
    held.tokens = len(ids)
    plain = ScorerPress.compress
    ScorerPress.compress = lambda self, *args: held.compress(self, *args)
    masks = isinstance(getattr(press, "base_press", None), AdaKVPress)
    if masks:
        scorer = press.base_press.press
        score = scorer.score
        scorer.score = lambda module, hidden_states, keys, values, attentions, kwargs: held.shared(
            score(module, hidden_states, keys, values, attentions, held.turned(hidden_states, kwargs)), press)
    try:
        with press(model):
            logits = model(ids[None], past_key_values=cache).logits[0, -1]
            for step in range(steps):
                best = logits.topk(2).values
                margins.note(((best[0] - best[1]) / (logits.max() - logits.min())).item(), "greedy token")
                decoded.append(logits.argmax().item())
                at = torch.tensor([len(ids) + step])
                held.tokens += 1
                logits = model(torch.tensor([[decoded[-1]]]), past_key_values=cache, cache_position=at,
                               position_ids=at[None]).logits[0, -1]
            gone = [layer.self_attn.masked_key_indices for layer in model.model.layers] if masks else None
    finally:
        ScorerPress.compress = plain
    tensors = {}
    for l, layer in enumerate(cache.layers):
        held.see(l, layer.keys.shape[2])
        for h, pos in enumerate(held.pos[l]):
            stays = np.arange(len(pos))
            if masks and gone[l] is not None:
                stays = np.setdiff1d(stays, gone[l][2][gone[l][1] == h].numpy())
            tensors[f"kept.{l}.{h}"] = pos[stays]
            if l == len(cache.layers) - 1:
                tensors[f"k.{l}.{h}"] = layer.keys[0, h].numpy()[stays]
                tensors[f"v.{l}.{h}"] = layer.values[0, h].numpy()[stays]
    return tensors, decoded


def cases(inputs, margins, budget, length, qfilter_press):
    """As kvpress_cases of make_methods. A press of this prompt keeps `budget` of it, then again and again."""
    import kvpress

    ratio = 1 - budget / length
    run = functools.partial(decoding_case, inputs, margins)
    again = lambda press: kvpress.DecodingPress(press, compression_interval=INTERVAL, target_size=budget)  # noqa: E731
    both = lambda first, then: kvpress.PrefillDecodingPress(first, again(then))  # noqa: E731
    asked = lambda name, *more: dict(  # noqa: E731
        method=name, set=[f"trigger.steps={INTERVAL}", *more], steps=STEPS)
    window = lambda r=0.0: kvpress.SnapKVPress(r, window_size=8, kernel_size=5)  # noqa: E731
    scorers = (
        ("keydiff", kvpress.KeyDiffPress, "KeyDiffPress()", [], False),
        ("tova", kvpress.TOVAPress, "TOVAPress()", [], False),
        ("streaming_llm", kvpress.StreamingLLMPress, "StreamingLLMPress(n_sink=4)", [], True),
        ("curdkv", kvpress.CURPress, "CURPress()", [], False),
    )
    for name, press, called, more, ties in scorers:
        yield (f"decoding_{name}", asked(f"decoding_{name}", *more),
               f"kvpress PrefillDecodingPress({called}, DecodingPress({called})), its choices in the order of positions",
               lambda press=press, ties=ties: run(both(press(ratio), press(0.0)), ties=ties))
    # Equal shares of runs, in whole numbers each time: no rank stands on both sides of the cut.
    lagkv = lambda r: kvpress.LagKVPress(r, n_sink=4, lag_size=16)  # noqa: E731
    yield ("decoding_lagkv", asked("decoding_lagkv", "score.lag=16", "reduce.size=16") | dict(budget="96"),
           "kvpress PrefillDecodingPress(LagKVPress(n_sink=4, lag_size=16), DecodingPress of the same), in the order of positions",
           lambda: run(kvpress.PrefillDecodingPress(lagkv(1 - 96 / length), kvpress.DecodingPress(
               lagkv(0.0), compression_interval=INTERVAL, target_size=96)), ties=True))
    yield ("decoding_qfilters", asked("decoding_qfilters", "score.calibration={inputs}/qfilters.safetensors", "protect.recent=0"),
           "kvpress PrefillDecodingPress(QFilterPress, DecodingPress of the same) with made-up filters, in the order of positions",
           lambda: run(both(qfilter_press(ratio), qfilter_press(0.0))))
    yield ("decoding_knorm_prompt", asked("decoding_knorm", "trigger.prompt=false"),
           "kvpress DecodingPress(KnormPress()), its choices in the order of positions",
           lambda: run(again(kvpress.KnormPress())))
    snapkv = "SnapKVPress(window_size=8, kernel_size=5)"
    yield ("decoding_snapkv", asked("decoding_snapkv", "score.window=8"),
           f"kvpress PrefillDecodingPress({snapkv}, DecodingPress({snapkv})), in the order of positions, queries turned by theirs",
           lambda: run(both(window(ratio), window())))
    ada = kvpress.AdaKVPress(window())
    yield ("decoding_adakv",
           asked("decoding_adakv", "score.window=8", "trigger.prompt=false") | dict(steps=INTERVAL + 3),
           f"kvpress DecodingPress(AdaKVPress({snapkv}), alpha_safeguard=0.2), once, queries turned by their positions",
           lambda: run(again(ada), INTERVAL + 3))
    yield ("prefill_decoding", asked("prefill_decoding", "score.window=8", "protect.recent=0"),
           f"kvpress PrefillDecodingPress({snapkv}, DecodingPress(KeyDiffPress())), its choices in the order of positions",
           lambda: run(both(window(ratio), kvpress.KeyDiffPress())))


class Window(Sequence):
    """The last rows' queries, of prompt and answer, by layer and KV head."""

    def begin(self, window):
        self.window, model = window, self.model
        self.last = [[self.prefill.queries[l][h * model.share : (h + 1) * model.share, -window:]
                      for h in range(model.groups)] for l in range(model.layers)]

    def answer(self, l, queries):
        for h, own in enumerate(queries):
            self.last[l][h] = np.concatenate([self.last[l][h], own[:, None]], 1)[:, -self.window :]
        return super().answer(l, queries)


class MorphKv(Window):
    """The most that a KV head's query heads pay to entries before the window, among those alone, summed
    over the window's rows but the first."""

    def compress(self, budget, window, fusion):
        self.budget, self.fusion = budget, fusion
        self.begin(window)
        self.evict()

    def evict(self):
        for l, h in np.ndindex(self.model.layers, self.model.groups):
            n, w = len(self.pos[l][h]), self.window
            if n <= self.budget:
                continue
            logits = self.last[l][h][:, 1:] @ self.keys[l][h][: n - w].T / math.sqrt(self.model.dim)
            rows = softmax(logits).max(0)
            scores = np.r_[rows.max(0) if self.fusion == "max" else rows.sum(0), np.full(w, np.inf)]
            self.keep(l, h, top(scores, self.budget, self.margins, f"morphkv {l}.{h} of {self.tokens}"))

    def after_step(self, rows):
        self.evict()


class RkvAgain(Window):
    """R-KV, every so many steps."""

    def compress(self, budget, interval, window, **settings):
        self.settings = dict(budget=budget, window=window) | settings
        self.interval, self.steps = interval, 0
        self.begin(window)
        self.evict(**self.settings)

    def evict(self, budget, window, kernel, mix, threshold):
        for l, h in np.ndindex(self.model.layers, self.model.groups):
            where = f"rkv {l}.{h} of {self.tokens}"
            scores = rkv_scores(self.keys[l][h], self.last[l][h], kernel, mix, threshold, self.margins, where)
            self.keep(l, h, top(scores, budget, self.margins, where))

    def after_step(self, rows):
        self.steps += 1
        if self.steps % self.interval == 0:
            self.evict(**self.settings)


class Again(Window):
    """The best of a head's entries by `scores(l, h)`, when the prompt is read and every so many steps."""

    def choose_again(self, budget, interval, window=0):
        self.budget, self.interval, self.window = budget, interval, window
        if window:
            self.begin(window)
        self.evict()

    def answer(self, l, queries):
        return super().answer(l, queries) if self.window else Sequence.answer(self, l, queries)

    def evict(self):
        for l, h in np.ndindex(self.model.layers, self.model.groups):
            self.keep(l, h, top(self.scores(l, h), self.budget, self.margins, f"again {l}.{h} of {self.tokens}"))

    def after_step(self, rows):
        if len(self.decoded) % self.interval == 0:
            self.evict()


class ObservedAgain(Again):
    """The mean of what every row since an entry's own, of prompt and answer, paid it."""

    def compress(self, **settings):
        n, model = self.tokens, self.model
        self.sums = [list(self.prefill.group(self.prefill.column_sums(l)).mean(1)) for l in range(model.layers)]
        assert all(len(s) == n for of_layer in self.sums for s in of_layer)
        self.choose_again(**settings)

    def scores(self, l, h):
        return self.sums[l][h] / (self.tokens - self.pos[l][h])

    def keep(self, l, h, index):
        super().keep(l, h, index)
        self.sums[l][h] = self.sums[l][h][index]

    def after_step(self, rows):
        for l, of_layer in enumerate(rows):
            for h, row in enumerate(of_layer):
                self.sums[l][h] = np.append(self.sums[l][h], 0) + row.mean(0)
        super().after_step(rows)


class CriticalAgain(Again):
    """CriticalKV's two stages over what the last rows pay."""

    def compress(self, kernel, first=0.5, epsilon=1e-4, **settings):
        self.kernel, self.first, self.epsilon = kernel, first, epsilon
        self.choose_again(**settings)

    def scores(self, l, h):
        model, w, values = self.model, self.window, self.values[l][h]
        logits = self.last[l][h] @ self.keys[l][h].T / math.sqrt(model.dim)
        rows = np.arange(self.tokens - w, self.tokens)
        attention = softmax(np.where(self.pos[l][h][None, :] <= rows[:, None], logits, -np.inf))
        paid = pool_max(attention.mean((0, 1))[:-w], self.kernel)
        scores = np.r_[paid, np.full(w, np.inf)]
        weights = model.w[f"model.layers.{l}.self_attn.o_proj.weight"].reshape(-1, model.heads, model.dim)
        size = np.mean([np.abs(values @ weights[:, q].T).sum(1)
                        for q in range(h * model.share, (h + 1) * model.share)], 0)  # fmt: skip
        count = int(self.budget * self.first)
        sure = top(scores, count, self.margins, f"critical {l}.{h} of {self.tokens}")
        second = (scores + self.epsilon) * size
        second[sure] = np.inf
        return second


class ExpectedAgain(Again):
    """What queries of known mean and covariance are expected to pay over the next 512 positions, times the
    length of the value; the first entries stay."""

    def compress(self, sinks, epsilon, **settings):
        self.sinks, self.epsilon = sinks, epsilon
        self.mean, self.covariance = (x.astype(np.float64) for x in statistics(
            (self.model.layers, self.model.heads, self.model.dim)))  # fmt: skip
        self.choose_again(**settings)

    def scores(self, l, h):
        model = self.model
        keys, values = (rows[l][h][self.sinks :] for rows in (self.keys, self.values))
        # Turning is linear: the mean rotation is that of the unit vectors, averaged.
        ahead = np.arange(self.tokens, self.tokens + 512)
        turn = np.stack([model.rotate(np.repeat(unit[None], 512, 0), ahead).mean(0) for unit in np.eye(model.dim)])
        shares = []
        for q in range(h * model.share, (h + 1) * model.share):
            mean, covariance = self.mean[l, q] @ turn, turn.T @ self.covariance[l, q] @ turn
            logits = keys @ mean / math.sqrt(model.dim) + ((keys @ covariance) * keys).sum(1) / model.dim / 2
            shares.append(softmax(logits))
        scores = (np.mean(shares, 0) + self.epsilon) * np.linalg.norm(values, axis=1)
        return np.r_[np.full(self.sinks, np.inf), scores]


FORMULAS = "the paper's formulas in NumPy, float64"
AGAIN = dict(budget=90, interval=5)
CASES = [
    (f"morphkv{'' if fusion == 'sum' else '_max'}",
     dict(method="morphkv", set=["score.window=8", f"score.fusion={fusion}"], steps=12), FORMULAS, MorphKv,
     dict(budget=90, window=8, fusion=fusion))
    for fusion in ("sum", "max")
] + [
    ("rkv_decode", dict(method="rkv_decode", set=["score.threshold=0.6", "trigger.steps=5"], steps=12), FORMULAS,
     RkvAgain, dict(budget=90, interval=5, window=8, kernel=7, mix=0.07, threshold=0.6)),
    ("decoding_observed_attention", dict(method="decoding_observed_attention", set=["trigger.steps=5"], steps=12),
     FORMULAS, ObservedAgain, AGAIN),
    ("decoding_criticalkv", dict(method="decoding_criticalkv", set=["score.window=8", "trigger.steps=5"], steps=12),
     FORMULAS, CriticalAgain, dict(window=8, kernel=7) | AGAIN),
    ("expected_attention_stats_again",
     dict(method="expected_attention", steps=12,
          set=["score.calibration={inputs}/expected_attention.safetensors", "trigger.id=interval", "trigger.steps=5"]),
     FORMULAS + ", with made-up statistics", ExpectedAgain, dict(sinks=4, epsilon=0) | AGAIN),
]
