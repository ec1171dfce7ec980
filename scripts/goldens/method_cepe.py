# SPDX-License-Identifier: Apache-2.0
"""CEPE on tests/golden/models/cepe: its authors' encoder, decoder and step from token to token (cepe_reference.py)."""

import json
import types

import numpy as np
from safetensors.torch import load_file

import cepe_reference
from common import GOLDEN


class CepeByAuthors:
    """Float64 but for their softmax, from the checkpoint's numbers. The prompt's last tokens go to the decoder and those
    before them, but for the first, which begins every text, to the encoder in chunks, the last of them padded."""

    merges = True  # what stays of the prompt is compared as well

    def __init__(self, _, margins, root, chunk, decoder, context):
        import torch

        torch.set_grad_enabled(False)
        self.torch, self.margins, self.decoded = torch, margins, []
        directory = GOLDEN / "models" / "cepe"
        config = json.loads((directory / "config.json").read_text())
        self.model = types.SimpleNamespace(layers=config["num_hidden_layers"], groups=config["num_key_value_heads"])
        self.lm = cepe_reference.made(config, root)
        self.lm.load_state_dict({k: v.float() for k, v in load_file(directory / "model.safetensors").items()})
        self.lm.double().eval()
        ids = prompt_ids(config)
        gone = len(ids) - decoder
        self.held = list(range(gone, len(ids)))
        read = ids[max(gone - context, 1) if context else 1 : gone]
        chunks = [read[b : b + chunk] for b in range(0, len(read), chunk)]
        padded = [c + [0] * (chunk - len(c)) for c in chunks]
        mask = [[1] * len(c) + [0] * (chunk - len(c)) for c in chunks]
        self.mask = torch.tensor([mask]).double()
        self.run(ids[gone:], encoder_input_ids=torch.tensor([padded]))
        self.prompt_logits = self.last.numpy()

    def run(self, ids, **before):
        self.torch.set_default_dtype(self.torch.float64)  # their masks are made of that
        out = self.lm(input_ids=self.torch.tensor([ids]), encoder_attention_mask=self.mask, use_cache=True, **before)
        self.torch.set_default_dtype(self.torch.float32)
        self.last, self.past, self.rows = out.logits[0, -1], out.past_key_values, out.encoder_hidden_states

    def decode(self, steps):
        logits = self.last.numpy()
        for _ in range(steps):
            best = np.sort(logits)[-2:]
            self.margins.note((best[1] - best[0]) / (logits.max() - logits.min()), "greedy token")
            self.decoded.append(int(logits.argmax()))
            self.run(self.decoded[-1:], past_key_values=self.past, encoder_hidden_states=self.rows)
            logits = self.last.numpy()
            self.held.append(self.held[-1] + 1)
        self.pos = [[np.array(self.held)] * self.model.groups for _ in range(self.model.layers)]
        self.keys = [[k for k in layer[0][0].numpy()] for layer in self.past]
        self.values = [[v for v in layer[1][0].numpy()] for layer in self.past]


def prompt_ids(config):
    path = GOLDEN / "methods" / "inputs" / "ids_cepe.json"
    if not path.exists():
        drawn = np.random.default_rng(11).integers(3, config["vocab_size"], 95).tolist()
        path.write_text(json.dumps([config["bos_token_id"]] + drawn) + "\n")
    return json.loads(path.read_text())


def cepe_cases(checkout):
    oracle = (f"LlamaForCausalContextLM of {checkout.name}, run in torch, float64 but for its softmax, on a CPU and so without"
              " flash attention")  # fmt: skip
    cases = []
    for name, chunk, decoder, context in (("cepe", 16, 30, 0), ("cepe_context", 24, 41, 30)):
        changes = [f"thin.chunk={chunk}", f"thin.decoder={decoder}", f"thin.context={context}"]
        cases.append((name, dict(method="cepe", budget="none", steps=64, set=changes, checkpoint="cepe", ids="ids_cepe"), oracle,
                      CepeByAuthors, dict(root=checkout.path.parent, chunk=chunk, decoder=decoder, context=context)))  # fmt: skip
    return cases
