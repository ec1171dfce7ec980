# SPDX-License-Identifier: Apache-2.0
"""Experts of gpt-oss as blocks of 32 four-bit floats, and what such a file holds."""

import torch

FOUR_BITS = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])


def four_bit_codes(matrix):
    """Codes and exponents of [experts, in, out], in blocks of 32 of its inputs: [experts, out, blocks, 32]."""
    rows = matrix.float().transpose(1, 2)
    blocks = rows.reshape(*rows.shape[:2], -1, 32)
    exponents = torch.floor(torch.log2(blocks.abs().amax(-1))).clamp(-100, 100) - 2
    units = blocks / torch.exp2(exponents)[..., None]
    return (units[..., None] - FOUR_BITS).abs().argmin(-1).to(torch.uint8), (exponents + 127).to(torch.uint8)


def is_expert_matrix(name):
    return name.endswith(("experts.gate_up_proj", "experts.down_proj"))


def as_four_bits(name, weight):
    if not is_expert_matrix(name):
        return weight
    codes, exponents = four_bit_codes(weight)
    values = FOUR_BITS[codes.long()] * torch.exp2(exponents.float() - 127)[..., None]
    return values.flatten(2).transpose(1, 2).to(weight.dtype).contiguous()


def four_bit_files(weights, c):
    out = {}
    for name, weight in weights.items():
        if not is_expert_matrix(name):
            out[name] = weight
            continue
        codes, exponents = four_bit_codes(weight)
        out[name + "_blocks"] = codes[..., 0::2] | codes[..., 1::2] << 4
        out[name + "_scales"] = exponents
    return out
