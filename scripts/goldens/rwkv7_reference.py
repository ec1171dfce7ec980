# SPDX-License-Identifier: Apache-2.0
"""RWKV-7 as its author's package `rwkv` computes it (requirements-rwkv.txt), for checkpoints that are laid out as
flash-linear-attention does it: `shapes` says what a config has, `Oracle` runs it."""

import functools
import os
import pathlib
import tempfile

import torch

os.environ["RWKV_V7_ON"] = "1"
STEPS = 64


def shapes(c):
    d, ffn, heads = c["hidden_size"], c["intermediate_size"], c["hidden_size"] // c["head_dim"]
    out = {"model.embeddings.weight": (c["vocab_size"], d), "lm_head.weight": (c["vocab_size"], d)}

    def norm(name):
        out[name + ".weight"] = out[name + ".bias"] = (d,)

    norm("model.norm")
    norm("model.layers.0.pre_norm")
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        norm(at + "attn_norm")
        norm(at + "ffn_norm")
        norm(at + "attn.g_norm")
        for x in "rwkvag":
            out[f"{at}attn.x_{x}"] = (1, 1, d)
        for x in "rkvo":
            out[f"{at}attn.{x}_proj.weight"] = (d, d)
        ranks = {"w": "decay_low_rank_dim", "a": "a_low_rank_dim", "g": "gate_low_rank_dim", "v": "v_low_rank_dim"}
        for x, rank in ranks.items():
            if x == "v" and i == 0:
                continue
            out[f"{at}attn.{x}_lora.lora.0.weight"] = (c[rank], d)
            out[f"{at}attn.{x}_lora.lora.2.weight"] = (d, c[rank])
            if x != "g":
                out[f"{at}attn.{x}_lora.lora.2.bias"] = (d,)
        out[at + "attn.k_k"] = out[at + "attn.k_a"] = (d,)
        out[at + "attn.r_k"] = (heads, c["head_dim"])
        out[at + "ffn.x_k"] = (d,)
        out[at + "ffn.key.weight"] = (ffn, d)
        out[at + "ffn.value.weight"] = (d, ffn)
    return out


def as_published_by_the_author(weights):
    """The same tensors under the names of BlinkDL's own files."""
    out = {}
    places = {"embeddings": "emb", "norm": "ln_out", "pre_norm": "ln0", "attn_norm": "ln1", "ffn_norm": "ln2",
              "g_norm": "ln_x", "r_proj": "receptance", "k_proj": "key", "v_proj": "value", "o_proj": "output",
              "attn": "att", "layers": "blocks"}
    for name, w in weights.items():
        if name == "lm_head.weight":
            out["head.weight"] = w
            continue
        parts = [places.get(p, p) for p in name.removeprefix("model.").split(".")]
        if "lora" in parts:
            at, x = ".".join(parts[:3]), parts[3][0]
            if parts[-1] == "bias":
                out[f"{at}.{x}0"] = w
            else:
                out[f"{at}.{x}{1 if parts[-2] == '0' else 2}"] = w.t().contiguous()
        else:
            out[".".join(parts)] = w
    return out


class Oracle:
    def __init__(self, config, weights):
        self.weights, self.eps = weights, config["norm_eps"]
        # The package has the numbers of a head of 64 columns and a norm_eps of 1e-5.
        assert abs(config["head_dim"] * self.eps - 64e-5) < 1e-9

    @functools.lru_cache(maxsize=None)
    def model(self, kind):
        torch.jit._state.disable()  # so that the norm below is taken
        import rwkv.model as package

        plain = torch.nn.functional.layer_norm
        package.F = type("F", (), dict(layer_norm=staticmethod(functools.partial(plain, eps=self.eps))))
        with tempfile.TemporaryDirectory() as tmp:
            file = pathlib.Path(tmp) / "model"
            torch.save({k: v.float() for k, v in as_published_by_the_author(self.weights).items()}, f"{file}.pth")
            return package.RWKV_x070(str(file), "cpu " + kind)

    def forward(self, ids, dtype=torch.float32, gaps=None):
        model = self.model("fp32" if dtype is torch.float32 else "bf16")
        return model.forward(ids.tolist(), None, full_output=True)[0].float()

    def greedy_cached(self, ids):
        model, out = self.model("fp32"), []
        logits, state = model.forward(ids.tolist(), None)
        for _ in range(STEPS):
            out.append(int(logits.argmax()))
            logits, state = model.forward(out[-1], state)
        return torch.tensor(out)
