# SPDX-License-Identifier: Apache-2.0
"""Methods that have a smaller model answer the prompt first. The draft is a checkpoint of its own,
`inputs/draft`, which `write_draft` makes; its greedy answer and the forward pass of the measured model
are NumPy in float64, and what is scored and kept is the authors' own code."""

import json
import math

import numpy as np

import method_oracles as oracles
from checkouts import definitions
from common import GOLDEN

DRAFT = GOLDEN / "methods" / "inputs" / "draft"
CONFIG = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", attention_bias=False, bos_token_id=1, dtype="bfloat16",
    eos_token_id=2, head_dim=16, hidden_act="silu", hidden_size=32, intermediate_size=16, max_position_embeddings=1024,
    mlp_bias=False, num_attention_heads=2, num_hidden_layers=2, num_key_value_heads=1, rms_norm_eps=1e-05,
    rope_parameters={"rope_theta": 10000.0, "rope_type": "default"}, tie_word_embeddings=True, use_cache=True,
    vocab_size=271)  # fmt: skip


def write_draft(tokenizer):
    """`tokenizer`: the measured model's file, of which the draft has a copy."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, LlamaConfig

    g, weights = torch.Generator().manual_seed(11), {}
    for name, value in sorted(AutoModelForCausalLM.from_config(LlamaConfig(**CONFIG)).state_dict().items()):
        if name == "lm_head.weight":
            continue
        draw = torch.randn(value.shape, generator=g)
        draw = 1 + 0.3 * draw if "norm" in name else draw * (2 if "embed" in name else 1) / math.sqrt(value.shape[-1])
        weights[name] = draw.to(torch.bfloat16).contiguous()
    DRAFT.mkdir(parents=True, exist_ok=True)
    (DRAFT / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    save_file(weights, DRAFT / "model.safetensors", metadata={"format": "pt"})
    (DRAFT / "tokenizer.json").write_bytes(tokenizer.read_bytes())


def draft_model():
    from safetensors.torch import load_file as load_torch

    return oracles.Llama(CONFIG, {k: v.double().numpy() for k, v in load_torch(DRAFT / "model.safetensors").items()})


class SpecKvByAuthors(oracles.Sequence):
    """compress_kv on the queries and keys of prompt and draft, then the cut of
    speckv_generate_from_lookahead_ids: what was kept first, up to the capacity, and the prompt's last token,
    which is read again. Values say which entries stay."""

    def compress(self, checkout, capacity, window, lookahead):
        import torch

        code = definitions(checkout.path / "draft_approx_llm/speckv/util.py", ("compress_kv",), dict(
            torch=torch, math=math, F=torch.nn.functional, Tensor=torch.Tensor, Literal=dict, **self.helpers(torch)))
        ids, n = np.array(self.prefill.ids), self.tokens
        drafted = oracles.Sequence(oracles.Prefill(draft_model(), ids), self.margins)
        drafted.decode(lookahead)
        assert CONFIG["eos_token_id"] not in drafted.decoded
        whole = oracles.Prefill(self.model, np.r_[ids, drafted.decoded])
        rows, most = window + lookahead + 1, capacity + lookahead + 1
        places = np.repeat(np.arange(n + lookahead, dtype=float)[None, :, None], self.model.groups, 0)
        tensor = lambda x: torch.from_numpy(np.ascontiguousarray(x))[None]  # noqa: E731
        torch.set_default_dtype(torch.float64)  # its mask is made of that
        for l in range(self.model.layers):
            _, values, _ = code.compress_kv(
                tensor(whole.keys[l]), tensor(whole.queries[l]), tensor(np.repeat(places, self.model.dim, 2)), rows, most,
                0, "max", "max", 7)
            kept = values[0, :, :capacity, 0].numpy().astype(int)
            self.twin(l, whole.attention[l][:, -rows:, : n + lookahead - rows], capacity - window, kept)
            for h, index in enumerate(kept):
                self.keep(l, h, np.sort(np.r_[index, n - 1]))
        torch.set_default_dtype(torch.float32)

    def twin(self, l, attention, count, kept):
        """The same anew, for its margins."""
        for h, own in enumerate(attention.max(1).reshape(self.model.groups, self.model.share, -1).max(1)):
            pooled = oracles.pool_max(own, 7)
            chosen = oracles.top(pooled, count, self.margins, f"speckv {l}.{h}")
            assert np.allclose(np.sort(pooled[chosen]), np.sort(pooled[kept[h, :count]]), rtol=1e-5)
            ours = np.union1d(chosen, kept[h, count:])
            if set(ours) != set(kept[h]):  # equal maxima: the lower place is ours
                kept[h] = ours

    @staticmethod
    def helpers(torch):
        return dict(repeat_kv=lambda x, times: x.repeat_interleave(times, 1))


def speckv_cases(checkout):
    return [("speckv", dict(method="speckv", budget="90", set=[
                "score.draft_model={inputs}/draft", "score.window=17", "score.lookahead=12"]),
             f"compress_kv of {checkout.name}, run in torch inside a NumPy forward, float64; a draft in NumPy; of equal"
             " maxima the first stay",
             SpecKvByAuthors, dict(checkout=checkout, capacity=89, window=16, lookahead=12))]  # fmt: skip
