# SPDX-License-Identifier: Apache-2.0
"""A learned gate in PyTorch, as docs/python.md explains it: a linear layer over keys for each layer
and KV head. With the directions that score.qfilters learns, it scores as that does.

    kvgauge calibrate MODEL --method qfilters --text-file some.txt --out gate.safetensors
    GATE=gate.safetensors python -m kvgauge --python examples/python/gate.py run mine.json
"""

import json
import os
import pathlib

import torch

import kvgauge

WEIGHTS = pathlib.Path(os.environ.get("GATE", "gate.safetensors"))


def read_layers(path):
    """layer -> a linear layer [kv_heads, key_dim], from a file of float32 tables."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    layers = {}
    for name, table in json.loads(content[8:start]).items():
        if name.startswith("filters."):
            begin, end = table["data_offsets"]
            numbers = torch.frombuffer(bytearray(content[start + begin:start + end]),
                                       dtype=torch.float32)
            layers[int(name.split(".")[1])] = numbers.reshape(table["shape"])
    return layers


LAYERS = read_layers(WEIGHTS)


@kvgauge.score(any_time=True, depends=[WEIGHTS], paper="arXiv:2503.02812")
def gated(view):
    """What a linear layer that was learned says of each key."""
    with torch.no_grad():
        keys = [torch.from_dlpack(view.keys(head)) for head in range(view.kv_heads)]
        gate = LAYERS[view.layer].to(keys[0].device)
        return [keys[head] @ gate[head] for head in range(view.kv_heads)]
