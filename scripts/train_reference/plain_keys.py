# SPDX-License-Identifier: Apache-2.0
"""A copy of a Llama without its key channels: what they hold on average is taken out by a bias.

Training starts with a constant in the two slowest key channels of every KV head (README.md), which
quantisers of whole entries trip over. These channels hardly turn, so the same number less in every
key shifts all scores of a query alike, and the copy answers as the model does. It shows what the
channels do: the same quantisers on both.
"""
import argparse
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging


@torch.no_grad()
def keys(model, ids):
    """Of each layer the keys before they are turned, [token, KV head, channel]."""
    found, hooks = [], []
    for layer in model.model.layers:
        hooks.append(layer.self_attn.k_proj.register_forward_hook(
            lambda _, __, out: found.append(out[0].float())))
    model(ids)
    for hook in hooks:
        hook.remove()
    heads = model.config.num_key_value_heads
    return [found_keys.view(len(found_keys), heads, -1) for found_keys in found]


def prominence(layer_keys, channels):
    """How much larger these channels are than the others, on average."""
    sizes = layer_keys.abs().mean((0, 1))
    others = [c for c in range(len(sizes)) if c not in channels]
    return (sizes[channels].mean() / sizes[others].mean()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, help="default: the model's demo/long.txt")
    parser.add_argument("--channels", default="30,31")
    args = parser.parse_args()
    logging.disable_progress_bar()
    channels = [int(c) for c in args.channels.split(",")]
    text = (args.text or args.model / "demo/long.txt").read_text()
    ids = AutoTokenizer.from_pretrained(args.model)(text, return_tensors="pt").input_ids

    config = json.loads((args.model / "config.json").read_text())
    weights = load_file(args.model / "model.safetensors")
    config["attention_bias"] = True
    for name in [name for name in weights if name.endswith("_proj.weight") and "attn" in name]:
        zeros = torch.zeros(len(weights[name]), dtype=torch.bfloat16)
        weights[name.replace("weight", "bias")] = zeros
    args.out.mkdir(parents=True, exist_ok=True)
    for path in args.model.glob("*token*"):
        shutil.copy(path, args.out)
    (args.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    def write():
        save_file(weights, args.out / "model.safetensors", metadata={"format": "pt"})
        return AutoModelForCausalLM.from_pretrained(args.out, dtype=torch.float32)

    before = keys(write(), ids)
    for layer, found in enumerate(before):
        bias = torch.zeros(found.shape[1:])
        bias[:, channels] = -found.mean(0)[:, channels]
        weights[f"model.layers.{layer}.self_attn.k_proj.bias"] = bias.flatten().to(torch.bfloat16)
    after = keys(write(), ids)
    for layer, (old, new) in enumerate(zip(before, after)):
        print(f"layer {layer}: these channels {prominence(old, channels):.1f} times the others, "
              f"then {prominence(new, channels):.1f}")


if __name__ == "__main__":
    main()
