# SPDX-License-Identifier: Apache-2.0
"""Scores that trained gates give entries where they are made: kvpress's presses with made-up weights, in
the layout of the published files.
"""

import math

import numpy as np

from common import save_file
from method_decoding import INTERVAL, STEPS, decoding_case

LAYERS, HEADS, GROUP, HIDDEN, INNER, DIM, SINKS, HEAD_DIM = 4, 2, 2, 64, 8, 16, 16, 32


def kvzap_tables(kind):
    """As nvidia/KVzap-*'s model.safetensors names them."""
    rng = np.random.default_rng(31 if kind == "mlp" else 32)
    draw = lambda *dims: (rng.normal(size=dims) / math.sqrt(dims[-1])).astype(np.float32)  # noqa: E731
    tables = {}
    for l in range(LAYERS):
        if kind == "linear":
            tables |= {f"layers.{l}.weight": draw(HEADS, HIDDEN), f"layers.{l}.bias": draw(HEADS) - 5}
        else:
            tables |= {f"layers.{l}.0.weight": draw(INNER, HIDDEN), f"layers.{l}.0.bias": draw(INNER),
                       f"layers.{l}.2.weight": draw(HEADS, INNER), f"layers.{l}.2.bias": draw(HEADS)}
    return tables


def fastkvzip_tables():
    """The list of gates in Jang-Hyun/Fast-KVzip's files, as LAYER.NAME."""
    rng = np.random.default_rng(33)
    draw = lambda *dims: (rng.normal(size=dims) / math.sqrt(dims[-1])).astype(np.float32)  # noqa: E731
    tables = {}
    for l in range(LAYERS):
        tables |= {f"{l}.q_proj.weight": draw(HEADS * GROUP * DIM, HIDDEN), f"{l}.q_proj.bias": draw(HEADS * GROUP * DIM),
                   f"{l}.k_proj.weight": draw(HEADS * DIM, HIDDEN),
                   f"{l}.q_norm.weight": 1 + draw(DIM), f"{l}.k_norm.weight": 1 + draw(DIM),
                   f"{l}.k_base": 2 * draw(HEADS, 1, SINKS, DIM), f"{l}.b": draw(HEADS, 1, GROUP)}
    return tables


def locret_heads():
    """As huangyuxiang03/Locret's saved heads name them: maps of queries, keys and values."""
    rng = np.random.default_rng(34)
    draw = lambda *dims: (2 * rng.normal(size=dims) / math.sqrt(dims[-1])).astype(np.float32)  # noqa: E731
    wide, heads = (HEADS * GROUP + 2 * HEADS) * HEAD_DIM, {}
    for l in range(LAYERS):
        heads |= {f"model.layers.{l}.self_attn.fc1.weight": draw(INNER, wide),
                  f"model.layers.{l}.self_attn.fc2.weight": draw(HEADS, INNER)}
    return heads


def locret_tables(weights):
    """The same behind the model's projections, for the inputs of layers."""
    heads, tables = locret_heads(), {}
    for l in range(LAYERS):
        own = np.concatenate([weights[f"model.layers.{l}.self_attn.{x}_proj.weight"].astype(np.float64) for x in "qkv"])
        tables |= {f"layers.{l}.0.weight": (heads[f"model.layers.{l}.self_attn.fc1.weight"] @ own).astype(np.float32),
                   f"layers.{l}.0.bias": np.zeros(INNER, np.float32),
                   f"layers.{l}.2.weight": heads[f"model.layers.{l}.self_attn.fc2.weight"],
                   f"layers.{l}.2.bias": np.zeros(HEADS, np.float32)}
    return tables


def trimkv_gates():
    """As ngocbh/trimkv's weights name them."""
    rng = np.random.default_rng(35)
    draw = lambda *dims: (2 * rng.normal(size=dims) / math.sqrt(dims[-1])).astype(np.float32)  # noqa: E731
    gates = {}
    for l in range(LAYERS):
        name = f"model.layers.{l}.self_attn.retention_gate."
        gates |= {name + "linear1.weight": draw(INNER, HIDDEN), name + "linear1.bias": draw(INNER),
                  name + "linear2.weight": draw(HEADS, INNER), name + "bias": 6 + draw(HEADS)}
    return gates


def trimkv_tables():
    ours = {"linear1.weight": "0.weight", "linear1.bias": "0.bias", "linear2.weight": "2.weight", "bias": "2.bias"}
    return {f"layers.{k.split('.')[2]}.{ours[k.split('retention_gate.')[1]]}": v for k, v in trimkv_gates().items()}


WIDE, PREDICTOR_HEADS, PREDICTOR_INNER, BLOCKS = 16, 2, 32, 2
PREDICTOR = "model.image_score_predictor."


def dynamic_llava_predictor():
    """As a checkpoint of Osilly/dynamic_llava names it, a small one."""
    rng = np.random.default_rng(36)
    draw = lambda *dims: (2 * rng.normal(size=dims) / math.sqrt(dims[-1])).astype(np.float32)  # noqa: E731
    tables = {}

    def norm(name, size):
        tables.update({name + ".weight": 1 + draw(size), name + ".bias": draw(size)})

    def map_of(name, out, come):
        tables.update({name + ".weight": draw(out, come), name + ".bias": draw(out)})

    norm(PREDICTOR + "down_mlp.0", HIDDEN)
    map_of(PREDICTOR + "down_mlp.1", WIDE, HIDDEN)
    for b in range(BLOCKS):
        at = f"{PREDICTOR}transformer.{b}."
        norm(at + "norm1", WIDE)
        tables[at + "attn.qkv.weight"] = draw(3 * WIDE, WIDE)
        map_of(at + "attn.proj", WIDE, WIDE)
        norm(at + "norm2", WIDE)
        map_of(at + "mlp.fc1", PREDICTOR_INNER, WIDE)
        map_of(at + "mlp.fc2", WIDE, PREDICTOR_INNER)
    for i, (out, come) in enumerate(((WIDE // 2, WIDE), (WIDE // 4, WIDE // 2), (2, WIDE // 4))):
        map_of(f"{PREDICTOR}output_mlp.{2 * i}", out, come)
    return tables


def dynamic_llava_tables():
    return {k.removeprefix(PREDICTOR): v for k, v in dynamic_llava_predictor().items()}


TEXT_PREDICTOR = "model.output_text_score_predictor."


def dynamic_llava_text_predictor():
    """The predictor of decoded tokens in the same checkpoint: a norm and four maps."""
    rng = np.random.default_rng(37)
    draw = lambda *dims: (2 * rng.normal(size=dims) / math.sqrt(dims[-1])).astype(np.float32)  # noqa: E731
    name = TEXT_PREDICTOR + "output_mlp."
    tables = {name + "0.weight": 1 + draw(HIDDEN), name + "0.bias": draw(HIDDEN)}
    for i, (out, come) in enumerate(((WIDE, HIDDEN), (WIDE // 2, WIDE), (WIDE // 4, WIDE // 2), (2, WIDE // 4))):
        tables |= {f"{name}{2 * i + 1}.weight": draw(out, come), f"{name}{2 * i + 1}.bias": draw(out)}
    return tables


def dynamic_llava_text_tables():
    return {k.removeprefix(TEXT_PREDICTOR): v for k, v in dynamic_llava_text_predictor().items()}


def write_side_files(directory, weights):
    """weights: the checkpoint's, by name."""
    save_file(trimkv_gates(), directory / "trimkv_published.safetensors")
    save_file(locret_heads(), directory / "locret_published.safetensors")
    # A checkpoint holds more.
    save_file(dynamic_llava_predictor() | dynamic_llava_text_predictor() | {"model.norm.weight": np.ones(HIDDEN, np.float32)},
              directory / "dynamic_llava_published.safetensors")
    kvzap = '{"inner":0,"kind":"%s"}'
    for name, tables, stage, params in (
        ("kvzap_mlp", kvzap_tables("mlp"), "score.kvzap", kvzap % "mlp"),
        ("kvzap_linear", kvzap_tables("linear"), "score.kvzap", kvzap % "linear"),
        ("fastkvzip", fastkvzip_tables(), "score.fastkvzip", '{"dim":16,"sinks":16}'),
        ("locret", locret_tables(weights), "score.locret", '{"inner":8}'),
        ("trimkv", trimkv_tables(), "score.trimkv", '{"inner":8}'),
        ("dynamic_llava", dynamic_llava_tables(), "thin.dynamic_llava",
         f'{{"blocks":{BLOCKS},"heads":{PREDICTOR_HEADS},"inner":{PREDICTOR_INNER},"width":{WIDE}}}'),
        ("dynamic_llava_text", dynamic_llava_text_tables(), "score.dynamic_llava", f'{{"width":{WIDE}}}'),
    ):
        save_file(tables, directory / f"{name}.safetensors", metadata={
            "kvgauge_calibration": "1", "stage": stage, "stage_version": "1", "params": params,
            "model": "6193d2452e6d71261c46f91490427c94b7e2c528a859ff2fc2f7c0cafef09dfa", "model_name": "model",
        })


def kvzap_press(kind, ratio=0.0):
    import torch
    from kvpress.presses.kvzap_press import KVzapConfig, KVzapModel, KVzapPress

    gate = KVzapModel(KVzapConfig(input_dim=HIDDEN, output_dim=HEADS, n_modules=LAYERS,
                                  hidden_dim=INNER if kind == "mlp" else None))
    gate.load_state_dict({k: torch.from_numpy(v) for k, v in kvzap_tables(kind).items()})

    class Press(KVzapPress):
        def post_init_from_model(self, model):
            self.kvzap_model = gate.float().eval()

    return Press(ratio, model_type=kind)


def locret_press(ratio, recent):
    """Locret's heads as the authors' attention applies them, to queries, keys and values before they are turned."""
    import torch
    from dataclasses import dataclass
    from kvpress.presses.scorer_press import ScorerPress

    heads = {k: torch.from_numpy(v) for k, v in locret_heads().items()}

    @dataclass
    class Press(ScorerPress):
        def score(self, module, hidden_states, keys, values, attentions, kwargs):
            wide = torch.cat([f(hidden_states) for f in (module.q_proj, module.k_proj, module.v_proj)], -1)
            first, second = (heads[f"model.layers.{module.layer_idx}.self_attn.fc{i}.weight"] for i in (1, 2))
            scores = (torch.nn.functional.silu(wide @ first.T) @ second.T).transpose(1, 2)
            scores[..., -recent:] = scores.max() + 1
            return scores

    return Press(ratio)


def trimkv_press(ratio, given):
    """The authors' gate and score, on the inputs of attention; what a gate gave an entry is in `given`, by layer."""
    import torch
    from dataclasses import dataclass
    from kvpress.presses.scorer_press import ScorerPress

    gates = {k: torch.from_numpy(v) for k, v in trimkv_gates().items()}
    @dataclass
    class Press(ScorerPress):
        def score(self, module, hidden_states, keys, values, attentions, kwargs):
            l, held = module.layer_idx, kwargs["held"]
            part = lambda name: gates[f"model.layers.{l}.self_attn.retention_gate.{name}"]  # noqa: E731
            inner = torch.nn.functional.silu(hidden_states[0] @ part("linear1.weight").T + part("linear1.bias"))
            logs = torch.nn.functional.logsigmoid(inner @ part("linear2.weight").T + part("bias")).T
            before = given.get(l) if held.tokens > logs.shape[1] else None
            given[l] = logs if before is None else torch.cat([before, logs], 1)
            assert given[l].shape[1] == held.tokens
            at = torch.from_numpy(np.stack(held.pos[l]))
            return (given[l].gather(1, at) * (held.tokens + 1 - at))[None]

    return Press(ratio)


def fastkvzip_press(ratio):
    import torch
    from kvpress.presses import fastkvzip_press as module

    tables, gates = fastkvzip_tables(), []
    for l in range(LAYERS):
        gate = module.FastKVzipGate(l, HIDDEN, HEADS, GROUP, torch.float32, DIM, SINKS)
        gate.load_state_dict({k.split(".", 1)[1]: torch.from_numpy(v) for k, v in tables.items() if k.startswith(f"{l}.")})
        gates.append(gate.float().eval())
    press = module.FastKVzipPress(compression_ratio=ratio)
    press.gates = gates
    return press


def dms_case(inputs, margins, press, steps):
    """Kept positions and the last layer's keys and values of what is not masked."""
    import torch
    from transformers import DynamicCache

    model, ids = inputs.model, torch.tensor(inputs.ids)
    model.set_attn_implementation("sdpa")
    cache, decoded = DynamicCache(), []
    plain = press.press.score

    def noted(*args):
        scores = plain(*args)
        margins.note((scores - press.threshold).abs().min().item() / abs(press.threshold), "kvpress threshold")
        return scores

    press.press.score = noted
    with press(model):
        logits = model(ids[None], past_key_values=cache).logits[0, -1]
        for step in range(steps):
            best = logits.topk(2).values
            margins.note(((best[0] - best[1]) / (logits.max() - logits.min())).item(), "greedy token")
            decoded.append(logits.argmax().item())
            at = torch.tensor([len(ids) + step])
            logits = model(torch.tensor([[decoded[-1]]]), past_key_values=cache, cache_position=at,
                           position_ids=at[None]).logits[0, -1]
        gone = [layer.self_attn.masked_key_indices for layer in model.model.layers]
    tensors = {}
    for l, layer in enumerate(cache.layers):
        for h in range(HEADS):
            stays = np.setdiff1d(np.arange(layer.keys.shape[2]), gone[l][2][gone[l][1] == h].numpy())
            tensors[f"kept.{l}.{h}"] = stays
            if l == len(cache.layers) - 1:
                tensors[f"k.{l}.{h}"] = layer.keys[0, h].numpy()[stays]
                tensors[f"v.{l}.{h}"] = layer.values[0, h].numpy()[stays]
    return tensors, decoded


def cases(inputs, margins, budget, length, steps, whole_cache_case):
    """As kvpress_cases of make_methods, whose functions these are."""
    import kvpress
    import torch

    model, ids = inputs.model, torch.tensor(inputs.ids)
    ratio = 1 - budget / length
    named = {"mlp": "kvzap", "linear": "kvzap_linear"}
    for kind, method in named.items():
        yield (method, dict(method=method, set=[f"score.calibration={{inputs}}/kvzap_{kind}.safetensors"], steps=steps),
               f"kvpress KVzapPress({kind}) with made-up weights",
               lambda kind=kind: decoding_case(inputs, margins, kvzap_press(kind, ratio), steps))
    yield ("locret", dict(method="locret", set=["score.calibration={inputs}/locret.safetensors", "score.inner=8",
                                                "protect.recent=20"], steps=steps),
           "Locret's heads, by the authors' formula on transformers' queries, keys and values, with made-up weights",
           lambda: decoding_case(inputs, margins, locret_press(ratio, 20), steps))
    yield ("trimkv", dict(method="trimkv", set=["score.calibration={inputs}/trimkv.safetensors", "score.inner=8",
                                                f"trigger.steps={INTERVAL}"], steps=STEPS),
           "TRIM-KV's gate and score, by the authors' formulas on the inputs of attention, with made-up weights",
           lambda given={}: decoding_case(inputs, margins, kvpress.PrefillDecodingPress(
               trimkv_press(ratio, given), kvpress.DecodingPress(
                   trimkv_press(0.0, given), compression_interval=INTERVAL, target_size=budget))))
    yield ("fastkvzip", dict(method="fastkvzip", set=["score.calibration={inputs}/fastkvzip.safetensors", "protect.recent=6"]),
           "kvpress FastKVzipPress() with made-up weights",
           lambda: whole_cache_case(model, ids, fastkvzip_press(ratio), "sdpa", margins))
    for name, threshold in (("dms", 0.1), ("dms_few", 0.6)):
        yield (name,
               dict(method="dms", budget="none", steps=12,
                    set=["score.calibration={inputs}/kvzap_mlp.safetensors", "protect.recent=40", f"reduce.least={threshold}"]),
               f"kvpress DMSPress(KVzapPress(mlp), {threshold}, sliding_window_size=40, decoding=True) with made-up weights",
               lambda threshold=threshold: dms_case(
                   inputs, margins, kvpress.DMSPress(kvzap_press("mlp"), threshold, 40, True), 12))
