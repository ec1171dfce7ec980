# SPDX-License-Identifier: Apache-2.0
"""Compressed Context Memory by its authors' model, LoRA and memory (snu-mllab/Context-Memory), with a made-up
adapter. Their code is written for transformers 4.29: what it takes from there is restated, and so is the loop of
test_case.py, which asks for a device. Both of their forms run and must agree: chunk after chunk, and in one pass
under their mask."""

import collections
import json
import math
import types
import typing

import numpy as np
from safetensors.numpy import load_file

from common import GOLDEN, save_file
from checkouts import definitions
from method_layers import heads_ids

MODEL = "a1dafa88e116a14e20ad8381f6aca7b12dfed16807bc9305a8c80f3f1980262d"  # tests/golden/models/llama2
RANK, ALPHA = 3, 16
FORMS = {"concat": 2, "merge": 3}  # tokens behind a chunk
PEFT = "base_model.model.model."


def adapter(memory):
    """As their trainer saves one: PEFT's names, and the embeddings of tokens, for `merge` twice as many."""
    config = json.loads((GOLDEN / "models" / "llama2" / "config.json").read_text())
    hidden, tokens = config["hidden_size"], FORMS[memory] * (2 if memory == "merge" else 1)
    rng = np.random.default_rng(sum(memory.encode()))
    draw = lambda size, *dims: (size * rng.normal(size=dims)).astype(np.float32)  # noqa: E731
    tensors = {f"{PEFT}embed_tokens.comp_embeddings.weight": draw(0.6, tokens, hidden)}
    for l in range(config["num_hidden_layers"]):
        for p in "qkvo":
            name = f"{PEFT}layers.{l}.self_attn.{p}_proj.lora_"
            tensors[f"{name}A.weight"] = draw(hidden**-0.5, RANK, hidden)
            tensors[f"{name}B.weight"] = draw(0.15, hidden, RANK)
    return tensors


def write_side_files(directory):
    for memory, tokens in FORMS.items():
        tables, published = {}, adapter(memory)
        for name, table in published.items():
            parts = name.removeprefix(PEFT).split(".")
            side = {"lora_A": "down", "lora_B": "up"}.get(parts[-2])
            tables[f"layers.{parts[1]}.{parts[3][0]}.{side}" if side else "embeddings"] = table
        save_file(published, directory / f"ccm_{memory}_published.safetensors")
        save_file(tables, directory / f"ccm_{memory}.safetensors", metadata={
            "kvgauge_calibration": "1", "stage": "thin.ccm", "stage_version": "1", "model": MODEL, "model_name": "llama2",
            "params": json.dumps({"memory": memory, "rank": RANK, "tokens": tokens}, separators=(",", ":"))})


def of_transformers(torch, config):
    """What modeling_llama.py of transformers 4.29 gives the authors' module."""
    nn = torch.nn

    class LlamaPreTrainedModel(nn.Module):
        def __init__(self, given):
            super().__init__()
            self.config = given

        def post_init(self):
            pass

    class LlamaRMSNorm(nn.Module):
        def __init__(self, size, eps):
            super().__init__()
            self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

        def forward(self, x):
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))

    class LlamaMLP(nn.Module):
        def __init__(self, hidden_size, intermediate_size, hidden_act):
            super().__init__()
            assert hidden_act == "silu"
            self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
            self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
            self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

        def forward(self, x):
            return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))

    class LlamaRotaryEmbedding(nn.Module):
        def __init__(self, dim, max_position_embeddings):
            super().__init__()
            self.frequencies = config["rope_theta"] ** (-torch.arange(0, dim, 2).float() / dim)

        def forward(self, x, seq_len):
            angles = torch.arange(seq_len).to(self.frequencies)[:, None] * self.frequencies
            angles = torch.cat([angles, angles], -1)
            return angles.cos(), angles.sin()

    def apply_rotary_pos_emb(q, k, cos, sin, position_ids):
        cos, sin = cos[position_ids][:, None], sin[position_ids][:, None]
        half = q.shape[-1] // 2
        turned = lambda x: x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin  # noqa: E731
        return turned(q), turned(k)

    def _make_causal_mask(shape, dtype, device, past_key_values_length):
        n = shape[1]
        mask = torch.full((n, n), torch.finfo(dtype).min, dtype=dtype).triu(1)
        return torch.cat([torch.zeros(n, past_key_values_length, dtype=dtype), mask], -1)[None, None]

    def _expand_mask(mask, dtype, tgt_len):
        left = 1.0 - mask[:, None, None].expand(-1, 1, tgt_len, -1).to(dtype)
        return left.masked_fill(left.bool(), torch.finfo(dtype).min)

    output = collections.namedtuple("Output", "last_hidden_state past_key_values hidden_states attentions")
    quiet = types.SimpleNamespace(warning_once=print)
    return locals() | dict(BaseModelOutputWithPast=output, logger=quiet)


class CcmByAuthors:
    """Their model, float64 but for its softmax, from the checkpoint's and the adapter's float32 numbers."""

    merges = True  # what stays of the prompt is compared as well

    def __init__(self, _, margins, checkout, memory, chunk, sinks=0):
        import torch

        torch.set_grad_enabled(False)
        write_side_files(GOLDEN / "methods" / "inputs")
        self.torch, self.margins, self.decoded = torch, margins, []
        self.memory, self.tokens, self.sinks = memory, FORMS[memory], sinks
        directory = GOLDEN / "models" / "llama2"
        config = json.loads((directory / "config.json").read_text())
        self.vocab = config["vocab_size"]
        self.build(checkout.path / "src", config, load_file(directory / "model.safetensors"))
        ids = [int(i) for i in heads_ids()]
        end = (len(ids) - 1) // chunk * chunk
        self.chunks = [ids[b : b + chunk] for b in range(0, end, chunk)]
        self.question = ids[end:]
        self.model_view = types.SimpleNamespace(layers=config["num_hidden_layers"], groups=config["num_attention_heads"])
        self.read(chunk, end)
        self.agree_with_one_pass()

    @property
    def model(self):
        return self.model_view

    def build(self, source, config, weights):
        torch = self.torch
        given = dict(vars(typing)) | of_transformers(torch, config)
        given |= dict(torch=torch, nn=torch.nn, F=torch.nn.functional, Tensor=torch.Tensor, math=math, LlamaConfig=object)
        self.masks = definitions(source / "data/mask.py", ("reverse_cumsum", "get_comp_mask", "get_comp_attn_mask_recur",
                                                           "get_comp_attn_mask_concat_recur"), given)  # fmt: skip
        self.utils = definitions(source / "utils.py", ("SeparatedEmbedding", "extract_comp_results", "merge_comp_results",
                                                       "transpose"), given)  # fmt: skip
        lora = definitions(source / "peft_custom/lora.py", ("LoraLayer", "Linear"),
                           given | dict(transpose=self.utils.transpose, warnings=None))  # fmt: skip
        arch = definitions(source / "arch/ccm_llama.py",
                           ("LinearMask", "LlamaAttention", "LlamaDecoderLayer", "update_position_ids", "LlamaModelCCM"),
                           given | dict(get_comp_mask=self.masks.get_comp_mask))  # fmt: skip
        settings = config | dict(comp_relative_embedding="skip", pad_token_id=None, output_attentions=False,
                                 output_hidden_states=False, use_return_dict=True)  # fmt: skip
        self.llama = arch.LlamaModelCCM(types.SimpleNamespace(**settings)).eval()
        own = {k.removeprefix("model."): torch.from_numpy(v) for k, v in weights.items()
               if k.startswith("model.") and "rotary" not in k}
        self.llama.load_state_dict(own)
        self.head = torch.from_numpy(weights["lm_head.weight"]).double()
        published = {k: torch.from_numpy(v) for k, v in adapter(self.memory).items()}
        rows = published[f"{PEFT}embed_tokens.comp_embeddings.weight"]
        self.llama.embed_tokens = self.utils.SeparatedEmbedding(self.llama.embed_tokens, len(rows))
        self.llama.embed_tokens.comp_embeddings.weight.copy_(rows)
        for l, layer in enumerate(self.llama.layers):
            for p in "qkvo":
                old = getattr(layer.self_attn, f"{p}_proj")
                new = lora.Linear("default", old.in_features, old.out_features, r=RANK, lora_alpha=ALPHA, bias=False)
                new.weight = old.weight
                for side in "AB":
                    name = f"{PEFT}layers.{l}.self_attn.{p}_proj.lora_{side}.weight"
                    getattr(new, f"lora_{side}")["default"].weight.copy_(published[name])
                setattr(layer.self_attn, f"{p}_proj", new)
        self.llama.double().eval()
        for layer in self.llama.layers:
            rotary = layer.self_attn.rotary_emb
            dim = 2 * len(rotary.frequencies)
            rotary.frequencies = config["rope_theta"] ** (-torch.arange(0, dim, 2).double() / dim)
        self.comp = [self.vocab + i for i in range(self.tokens)]
        self.sum = [self.vocab + self.tokens + i for i in range(self.tokens)] if self.memory == "merge" else None
        self.llama.comp_token, self.llama.sum_token = self.comp, self.sum

    def run(self, ids, past, offset):
        out = self.llama(self.torch.tensor([ids]), past_key_values=past, use_cache=True, pos_id_offset=offset)
        return out.last_hidden_state[0] @ self.head.T, out.past_key_values

    def read(self, chunk, end):
        """The recursion of test_case.py; where no sink stays, its merge reads a name that it has not set."""
        torch, n, sinks, past, offset = self.torch, self.tokens, self.sinks, None, 0
        for i, ids in enumerate(self.chunks):
            _, past = self.run(ids, past, offset)
            offset += len(ids)
            _, past = self.run(self.comp, past, offset)
            held = n * (i if self.memory == "concat" else i > 0)
            place = [True] * held + [False] * len(ids) + [True] * n
            if sinks and i == 0:
                place[0] = True
            elif sinks:
                place = [True] + place
            past = self.utils.extract_comp_results(past, torch.tensor(place))
            if self.memory == "merge" and i > 0:
                past = self.merged(past, n, i)
        self.past, self.offset = past, offset
        logits, self.past = self.run(self.question, past, offset)
        self.offset += len(self.question)
        self.last, self.prompt_logits = logits[-1], logits[-1].numpy()
        # Where what is held stands here: at the last places of its chunk.
        kept = [list(range(chunk * i - n, chunk * i)) for i in range(1, len(self.chunks) + 1)]
        kept = sum(kept if self.memory == "concat" else kept[:1], list(range(sinks)))
        self.held = kept + list(range(end, end + len(self.question)))

    def merged(self, past, n, i):
        if self.sinks:
            return self.utils.merge_comp_results(past, n, i)
        # Their function with a sink of zeros in front, which it leaves alone.
        padded = [[self.torch.cat([x[:, :, :1] * 0, x], 2) for x in layer] for layer in past]
        return [[x[:, :, 1:] for x in layer] for layer in self.utils.merge_comp_results(padded, n, i)]

    def agree_with_one_pass(self):
        ids = []
        for chunk in self.chunks:
            ids += chunk + self.comp + (self.sum or [])
        ids = self.torch.tensor([ids + self.question])
        mask = self.masks.get_comp_attn_mask_recur if self.sum else self.masks.get_comp_attn_mask_concat_recur
        seen = mask(ids, self.sum or self.comp)
        if self.sinks:  # their mask of the token's id; here it is the first token, whatever its id
            seen[..., 0] = 1
        out = self.llama(ids, attention_mask_comp=seen, use_cache=False)
        logits = out.last_hidden_state[0, -1] @ self.head.T
        assert (logits - self.last).abs().max() < 1e-6  # their softmax is float32

    def decode(self, steps):
        logits = self.last.numpy()
        for _ in range(steps):
            best = np.sort(logits)[-2:]
            self.margins.note((best[1] - best[0]) / (logits.max() - logits.min()), "greedy token")
            self.decoded.append(int(logits.argmax()))
            out, self.past = self.run([self.decoded[-1]], self.past, self.offset)
            logits = out[-1].numpy()
            self.held.append(self.offset)
            self.offset += 1
        self.pos = [[np.array(self.held)] * self.model.groups for _ in range(self.model.layers)]
        self.keys = [[k for k in layer[0][0].numpy()] for layer in self.past]
        self.values = [[v for v in layer[1][0].numpy()] for layer in self.past]


def ccm_cases(checkout):
    cases = []
    for name, memory, chunk, sinks in (("ccm_concat", "concat", 24, 0), ("ccm_concat_sink", "concat", 17, 1),
                                       ("ccm_merge", "merge", 20, 0), ("ccm_merge_sink", "merge", 33, 1)):
        settings = [f"thin.calibration={{inputs}}/ccm_{memory}.safetensors", f"thin.rank={RANK}", f"thin.alpha={ALPHA}",
                    f"thin.tokens={FORMS[memory]}", f"thin.chunk={chunk}", f"thin.sinks={sinks}"]
        cases.append((name, dict(method=f"ccm_{memory}", budget="none", steps=8, set=settings, checkpoint="llama2", ids="ids_heads"),
                      f"LlamaModelCCM, the conditional LoRA and the memory of {checkout.name}, run in torch, float64, with a"
                      " made-up adapter; chunk after chunk, which agrees with one pass under their mask",
                      CcmByAuthors, dict(checkout=checkout, memory=memory, chunk=chunk, sinks=sinks)))  # fmt: skip
    return cases
