# SPDX-License-Identifier: Apache-2.0
"""Rows of make_models, as those of model_families: Mamba alone and side by side with attention, and
layers that are one thing alone, and a decoder beside which an encoder lies."""

import cepe_reference
import goldfinch_reference
import retnet_reference
import rwkv6_reference
import rwkv7_reference
from model_families import base, row, setter

# --------------------------------------------------------------------------------------------------
# Mamba alone, and side by side with attention.

ALONE = dict(num_attention_heads=..., num_key_value_heads=..., max_position_embeddings=..., rms_norm_eps=...,
             rope_theta=..., intermediate_size=..., layer_norm_epsilon=1e-5, expand=2, conv_kernel=4, state_size=8,
             use_bias=False, use_conv_bias=True, residual_in_fp32=True, time_step_min=0.001, time_step_max=0.1,
             time_step_floor=0.0001, rescale_prenorm_residual=False, pad_token_id=0)
row("mamba2",
    base("Mamba2ForCausalLM", "mamba2", **(ALONE | dict(num_heads=4, head_dim=16, n_groups=2, chunk_size=16, rms_norm=True,
                                                        num_hidden_layers=3, time_step_rank="auto"))),
    norm_groups=2,
    note="No attention at all. Two groups of B and C, by which gated rows are normed as in the authors' code "
    "(state-spaces/mamba 03a38fb2, modules/mamba2.py): 5.2 norms all of a row at once, so the oracle has that patched.",
    ablate={"one group of B and C": setter(n_groups=1, state_size=16)})
row("mamba",
    base("MambaForCausalLM", "mamba", **(ALONE | dict(intermediate_size=64, num_hidden_layers=3, time_step_rank=3,
                                                      time_step_scale=1.0, time_step_init_scheme="random",
                                                      tie_word_embeddings=True, use_bias=True))),
    note="No attention at all, Mamba-1; tied, biases of projections.")
row("falcon_mamba",
    base("FalconMambaForCausalLM", "falcon_mamba",
         **(ALONE | dict(intermediate_size=48, expand=16, num_hidden_layers=3, time_step_rank="auto", mixer_rms_eps=1e-6,
                         time_step_scale=1.0, time_step_init_scheme="random"))),
    note="Mamba-1 whose steps, B and C are normed without weights; `expand` does not count.",
    ablate={"norms that do nothing": setter(mixer_rms_eps=1e6)})
RWKV4 = dict(hidden_act=..., intermediate_size=..., max_position_embeddings=..., num_attention_heads=..., num_key_value_heads=...,
             rms_norm_eps=..., rope_theta=..., layer_norm_epsilon=0.01, context_length=64, num_hidden_layers=4, bos_token_id=0,
             eos_token_id=0)
row("rwkv",
    base("RwkvForCausalLM", "rwkv", attention_hidden_size=32, rescale_every=2, **(RWKV4 | dict(intermediate_size=56))),
    note="No attention at all, RWKV-4: averages in time, and an MLP whose rows are mixed with those before; the residual is "
    "halved after every second layer, which so large an epsilon shows.",
    ablate={"the residual stays": setter(rescale_every=0)})
row("rwkv6",
    base("RWKV6ForCausalLM", "rwkv6", hidden_act="sqrelu", num_attention_heads=..., num_key_value_heads=..., rms_norm_eps=...,
         rope_theta=..., attn=None, attn_mode="chunk", expand_k=0.5, expand_v=1.0, fuse_cross_entropy=True, fuse_norm=False,
         gate_low_rank_dim=6, hidden_ratio=3.5, intermediate_size=56, max_position_embeddings=64, norm_bias=True,
         norm_eps=1e-4, norm_first=True, num_heads=4, num_hidden_layers=3, proj_low_rank_dim=5),
    reference=rwkv6_reference,
    oracle="RWKV6ForCausalLM of flash-linear-attention, its plain recurrence on a CPU",
    packages=("torch", "flash-linear-attention", "safetensors"),
    note="No attention at all, RWKV-6: a matrix for each head, whose rows decay as each token says; how much of the row "
    "before each product takes is made of the row. Values are twice as wide as keys.",
    ablate={"norms of a larger epsilon": setter(norm_eps=1e-2)})
row("rwkv7",
    base("RWKV7ForCausalLM", "rwkv7", hidden_act="sqrelu", num_attention_heads=..., num_key_value_heads=..., rms_norm_eps=...,
         rope_theta=..., a_low_rank_dim=6, attn=None, attn_mode="chunk", decay_low_rank_dim=5, fuse_cross_entropy=True,
         fuse_norm=False, gate_low_rank_dim=9, head_dim=8, hidden_ratio=4.0, intermediate_size=64, max_position_embeddings=64,
         norm_bias=True, norm_eps=8e-5, norm_first=True, num_heads=None, num_hidden_layers=3, v_low_rank_dim=3,
         value_dim=[32, 32, 32]),
    reference=rwkv7_reference,
    oracle="RWKV_x070 of the author's package rwkv, cpu fp32 and bf16",
    packages=("torch", "rwkv", "safetensors"),
    note="No attention at all, RWKV-7: a matrix for each head, whose rows decay by themselves and which looks up what it "
    "replaces; later layers take a share of the first one's values. Laid out as flash-linear-attention does it. The "
    "package's norms have another epsilon, so it is patched to that of the file.")
row("retnet",
    base("RetNetForCausalLM", "retnet", hidden_act="swish", num_attention_heads=..., num_key_value_heads=..., rms_norm_eps=...,
         rope_theta=..., attn=None, attn_mode="fused_chunk", conv_size=4, elementwise_affine=True, expand_k=1, expand_v=2,
         feature_map=None, fuse_cross_entropy=True, fuse_norm=True, hidden_ratio=2, max_position_embeddings=64, norm_eps=1e-6,
         num_heads=4, num_kv_heads=None, use_output_gate=True, use_short_conv=False),
    reference=retnet_reference,
    oracle="RetNetForCausalLM of flash-linear-attention, its plain forms of retention and rotation on a CPU",
    packages=("torch", "flash-linear-attention", "safetensors"),
    note="No attention at all, RetNet: a matrix for each head, which decays at a rate of its own; keys and queries turn.")
row("goldfinch",
    base(None, "goldfinch", architectures=..., hidden_act=..., hidden_size=..., intermediate_size=..., max_position_embeddings=...,
         num_attention_heads=..., num_hidden_layers=..., num_key_value_heads=..., rms_norm_eps=..., rope_theta=..., bos_token_id=0,
         eos_token_id=0, tmix="x060c2", tmix2="gold", cmix="x060", cmix2="x060", parallel=0, ctx_len=64, n_layer=4, n_embd=32,
         dropout=0.0, inv_other_layer_ratio=2, kv_cache_compression_ratio=4, dim_att=0, dim_ffn=64, head_size=8,
         head_size_divisor=8, rope=None, brope=None, alibi=None, use_one_minus_w=1, use_v2=1),
    reference=goldfinch_reference,
    oracle="Transformer of recursal/GoldFinch-paper 4fbc70c on a CPU",
    packages=("torch", "safetensors"),
    note="Two layers of Finch-C2 below two that attend to keys and values made anew of eight numbers a token and of its "
    "embedding.",
    ablate={"a bonus in the place of second values": setter(use_v2=0), "keys as they are": setter(use_one_minus_w=0)})
row("jamba",
    base("JambaForCausalLM", "jamba", num_hidden_layers=4, attn_layer_period=4, attn_layer_offset=2,
         expert_layer_period=2, expert_layer_offset=1, num_experts=4, num_experts_per_tok=2, output_router_logits=False,
         router_aux_loss_coef=0.001, mamba_d_state=8, mamba_d_conv=4, mamba_expand=2, mamba_dt_rank=3,
         mamba_conv_bias=True, mamba_proj_bias=True, mamba_inner_layernorms=True, use_mamba_kernels=False,
         num_logits_to_keep=1, rope_theta=..., sliding_window=None, attention_dropout=0.0, pad_token_id=0,
         rms_norm_eps=1e-6),
    expert_gain=0.6,
    router_gap=0.02,
    note="Mamba-1 layers, whose steps, B and C are normed, around one that attends and does not turn; experts in every "
    "second layer.",
    ablate={"one expert more": setter(num_experts_per_tok=3)})
FALCON_H1 = dict(num_hidden_layers=2, head_dim=12, mamba_d_ssm=48, mamba_n_heads=4, mamba_d_head=12, mamba_n_groups=2,
                 mamba_d_state=8, mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=16, mamba_conv_bias=True,
                 mamba_proj_bias=False, mamba_use_mlp=True, mlp_expansion_factor=8, attention_bias=False, mlp_bias=False,
                 projectors_bias=False, num_logits_to_keep=1, attn_layer_indices=None, attention_dropout=0.0,
                 rope_theta=100000000000.0, rope_scaling=None, pad_token_id=0)
row("falcon_h1",
    base("FalconH1ForCausalLM", "falcon_h1", mamba_rms_norm=False, mamba_norm_before_gate=False,
         embedding_multiplier=5.656854249492381, lm_head_multiplier=0.0390625 * 8, key_multiplier=0.5,
         attention_in_multiplier=0.9, attention_out_multiplier=0.9375, ssm_in_multiplier=1.25,
         ssm_out_multiplier=0.23570226039551587 * 4, ssm_multipliers=[0.8838834764831845, 0.7, 1.3, 0.9, 0.6],
         mlp_multipliers=[0.8838834764831844, 0.5859375], **FALCON_H1),
    embed_gain=0.2,
    note="Each layer attends and keeps a Mamba-2 state, side by side; multipliers of all parts; gated and not normed.",
    ablate={"keys stay": setter(key_multiplier=1.0), "gates stay": setter(mlp_multipliers=[1.0, 0.5859375]),
            "attention reads all": setter(attention_in_multiplier=1.0), "states read all": setter(ssm_in_multiplier=1.0)})
row("falcon_h1_norm",
    base("FalconH1ForCausalLM", "falcon_h1", mamba_rms_norm=True, mamba_norm_before_gate=True, **FALCON_H1),
    note="Without multipliers; what a state gives is normed by group and then gated.",
    ablate={"gated first": setter(mamba_norm_before_gate=False)})

# --------------------------------------------------------------------------------------------------
# Layers that are one thing alone. The pinned transformers does not have them: run these with 5.23.

NEMOTRON = dict(num_hidden_layers=5, head_dim=12, mamba_num_heads=4, mamba_head_dim=12, n_groups=2, ssm_state_size=8,
                conv_kernel=4, chunk_size=16, expand=2, use_bias=False, use_conv_bias=True, mamba_hidden_act="silu",
                mamba_proj_bias=False, mlp_hidden_act="relu2", mlp_bias=False, attention_bias=False, hidden_act=...,
                layer_norm_epsilon=1e-5, rms_norm_eps=1e-5, rope_theta=..., residual_in_fp32=False,
                rescale_prenorm_residual=True, num_logits_to_keep=1, time_step_floor=0.0001, time_step_min=0.001,
                time_step_max=0.1, sliding_window=None, hidden_dropout=0.0, attention_dropout=0.0,
                use_mamba_kernels=False, pad_token_id=0)
row("nemotron_h",
    base("NemotronHForCausalLM", "nemotron_h", hybrid_override_pattern="M-*M-", **NEMOTRON),
    note="Two Mamba-2 layers of two groups, one that attends and does not turn, two MLPs with a squared ReLU; each under "
    "one norm, and heads wider than `expand` says. The oracle's lower bound of steps, time_step_min, is in its path "
    "without kernels alone; no step of this model comes near it.",
    ablate={"not squared": setter(mlp_hidden_act="relu"),
            "one group of B and C": setter(n_groups=1, ssm_state_size=16)})
row("nemotron_h_moe",
    base("NemotronHForCausalLM", "nemotron_h", hybrid_override_pattern="ME*EM", n_routed_experts=6, n_shared_experts=1,
         num_experts_per_tok=2, moe_intermediate_size=12, moe_shared_expert_intermediate_size=20, n_group=1, topk_group=1,
         norm_topk_prob=True, routed_scaling_factor=2.5, moe_latent_size=None, partial_rotary_factor=1.0,
         **(NEMOTRON | dict(rope_theta=10000))),
    expert_gain=0.6,
    router_gap=0.02,
    note="Experts without gates, chosen by corrected sigmoids, beside one that all tokens share; rope_theta is in the "
    "file and no layer turns.",
    ablate={"one expert more": setter(num_experts_per_tok=3), "not squared": setter(mlp_hidden_act="relu")})

# --------------------------------------------------------------------------------------------------
# A second model beside the decoder, which reads the beginning of a prompt.

row("cepe",
    base("LlamaForCausalContextLM", "llama", num_hidden_layers=3, is_decoder=True, do_cross_attention=True,
         num_cross_attn_layers=2, num_cross_attn_hidden_states=1, encoder_is_model=False, encoder_hidden_size=24,
         encode_mode="context_only", train_encoder=True, train_batch_mode="none", offload_hidden_states=False,
         lm_loss_cof=1.0, kl_loss_cof=1.0, kl_loss_mode="smooth", pad_token_id=0,
         encoder_config=dict(architectures=["LlamaForMLM"], model_type="llama", bos_token_id=1, eos_token_id=2,
                             pad_token_id=0, hidden_act="silu", hidden_size=24, initializer_range=0.02, intermediate_size=40,
                             max_position_embeddings=64, num_attention_heads=3, num_hidden_layers=2, rms_norm_eps=1e-6,
                             tie_word_embeddings=True, torch_dtype="bfloat16", use_cache=True, is_encoder=True,
                             vocab_size=101)),
    reference=cepe_reference,
    oracle="LlamaForCausalContextLM of princeton-nlp/CEPE 53ca69b on a CPU, without its encoder",
    packages=("torch", "safetensors"),
    note="A Llama beside an encoder, which its last two layers attend to where a method gives it something to read "
    "(tests/golden/methods/cepe.json); without that they are those of Llama.")
