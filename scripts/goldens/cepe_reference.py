# SPDX-License-Identifier: Apache-2.0
"""CEPE by its authors' model (modeling_llama_flash.py of princeton-nlp/CEPE) on a CPU, without flash attention. Their
code is written for transformers 4.34: what it takes from there is restated. The folder of the authors' repositories
is that of `make_methods --checkouts`, or $CHECKOUTS."""

import collections
import functools
import math
import os
import pathlib
import types
import typing

import torch

from checkouts import Checkout, definitions

COMMIT = "53ca69b"
CLASSES = ("LlamaRMSNorm", "LlamaRotaryEmbedding", "LlamaMLP", "LlamaAttention", "LlamaCrossAttention", "LlamaDecoderLayer",
           "LlamaModel", "LlamaEncoder", "LlamaForCausalLM", "LlamaForCausalContextLM")  # fmt: skip
FUNCTIONS = ("rotate_half", "apply_rotary_pos_emb", "repeat_kv", "_make_causal_mask", "_expand_mask")


def of_transformers():
    """What transformers 4.34 gives the authors' module."""

    class LlamaPreTrainedModel(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config = config

        def post_init(self):
            pass

    output = lambda name, fields: collections.namedtuple(name, fields, defaults=[None] * len(fields.split()))  # noqa: E731
    keep = lambda *_, **__: lambda it: it  # noqa: E731
    return dict(
        vars(typing), torch=torch, nn=torch.nn, F=torch.nn.functional, math=math, LlamaPreTrainedModel=LlamaPreTrainedModel,
        ACT2FN={"silu": torch.nn.functional.silu}, LlamaConfig=types.SimpleNamespace(from_dict=lambda c: settings(c)),
        BaseModelOutputWithPast=output("Base", "last_hidden_state past_key_values hidden_states attentions"),
        CausalLMOutputWithPastContext=output(
            "Context", "loss logits past_key_values hidden_states attentions encoder_hidden_states"),
        CausalLMOutputWithPast=None, ModelOutput=object, LLAMA_INPUTS_DOCSTRING="",
        LLAMA_START_DOCSTRING="", _CONFIG_FOR_DOC="", add_start_docstrings=keep, replace_return_docstrings=keep,
        add_start_docstrings_to_model_forward=keep, logger=types.SimpleNamespace(warning_once=print))  # fmt: skip


def settings(config):
    """A LlamaConfig, whose defaults these are."""
    usual = dict(pad_token_id=None, rope_theta=10000.0, rope_scaling=None, pretraining_tp=1, is_decoder=False, use_cache=True,
                 output_attentions=False, output_hidden_states=False, use_return_dict=True)  # fmt: skip
    usual["num_key_value_heads"] = config["num_attention_heads"]
    return types.SimpleNamespace(**(usual | config))


def made(config, root=None):
    checkout = Checkout(pathlib.Path(root or os.environ["CHECKOUTS"]), "princeton-nlp/CEPE", COMMIT)
    module = definitions(checkout.path / "modeling_llama_flash.py", CLASSES + FUNCTIONS, of_transformers())
    # They ask for flash attention in the encoder, which is of the same weights.
    module.LlamaFlashAttention2 = module.LlamaAttention
    return module.LlamaForCausalContextLM(settings(config))


def shapes(c):
    return {k: tuple(v.shape) for k, v in made(c).state_dict().items()}


class Oracle:
    """The decoder alone: without an encoder's rows nothing attends across."""

    def __init__(self, config, weights):
        self.config, self.weights = config, weights

    @functools.lru_cache(maxsize=None)
    def model(self, dtype):
        model = made(self.config)
        model.load_state_dict(self.weights)
        return model.to(dtype).eval()

    @torch.no_grad()
    def forward(self, ids, dtype=torch.float32, gaps=None):
        return self.model(dtype)(ids[None], use_cache=False).logits[0].float()

    def greedy_cached(self, ids):
        return None
