"""Parameter counts from configurations against the models that Transformers builds from the same configurations."""
import json

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="counts are compared with Transformers only where it is installed")

SIZES = {"num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": 144, "num_attention_heads": 4, "vocab_size": 500}
GPT = {"n_layer": 3, "n_embd": 64, "n_head": 4, "vocab_size": 500}
T5 = {"d_model": 64, "d_ff": 144, "d_kv": 16, "num_heads": 4, "num_layers": 3, "vocab_size": 500}
OPT = {"num_hidden_layers": 3, "hidden_size": 64, "ffn_dim": 144, "num_attention_heads": 4, "vocab_size": 500}
FALCON = {"num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 500}
BART = {"d_model": 64, "encoder_layers": 3, "decoder_layers": 2, "encoder_ffn_dim": 144, "decoder_ffn_dim": 144,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "vocab_size": 500}
MOE = {**SIZES, "num_key_value_heads": 2, "num_experts": 6, "moe_intermediate_size": 48, "num_experts_per_tok": 2}
DEEPSEEK = {**SIZES, "num_key_value_heads": 4, "moe_intermediate_size": 48, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2,
            "first_k_dense_replace": 1, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
CASES = [
    ("llama", {**SIZES, "num_key_value_heads": 2}), ("llama", {**SIZES, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("mistral", {**SIZES, "num_key_value_heads": 2}), ("mixtral", {**SIZES, "num_key_value_heads": 2, "num_local_experts": 4}),
    ("qwen2", {**SIZES, "num_key_value_heads": 2}), ("qwen3", {**SIZES, "num_key_value_heads": 2, "head_dim": 32}),
    ("qwen2_moe", {**MOE, "shared_expert_intermediate_size": 96}), ("qwen3_moe", MOE), ("gemma", {**SIZES, "num_key_value_heads": 1, "head_dim": 32}),
    ("gemma2", {**SIZES, "num_key_value_heads": 2, "head_dim": 32}), ("gemma3_text", {**SIZES, "num_key_value_heads": 2, "head_dim": 32}),
    ("gpt2", GPT), ("gpt_bigcode", GPT), ("gpt_neox", SIZES), ("gptj", {**GPT, "rotary_dim": 8}), ("codegen", {**GPT, "rotary_dim": 8}),
    ("gpt_neo", {"num_layers": 3, "hidden_size": 64, "num_heads": 4, "intermediate_size": 144, "vocab_size": 500, "attention_types": [[["global"], 3]]}),
    ("opt", {**OPT, "word_embed_proj_dim": 64}), ("opt", {**OPT, "word_embed_proj_dim": 32, "do_layer_norm_before": False}),
    ("falcon", FALCON), ("falcon", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    ("bloom", {"n_layer": 3, "hidden_size": 64, "n_head": 4, "vocab_size": 500}), ("mpt", {"d_model": 64, "n_heads": 4, "n_layers": 3, "vocab_size": 500}),
    ("phi", SIZES), ("phi3", {**SIZES, "pad_token_id": 0}), ("starcoder2", {**SIZES, "num_key_value_heads": 2}),
    ("stablelm", {**SIZES, "num_key_value_heads": 4}), ("cohere", {**SIZES, "pad_token_id": 0}), ("olmo2", {**SIZES, "pad_token_id": 1}), ("granite", SIZES),
    ("bert", SIZES), ("roberta", SIZES), ("distilbert", {"dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 144, "vocab_size": 500}),
    ("t5", T5), ("mt5", T5), ("bart", BART), ("vit", {k: v for k, v in SIZES.items() if k != "vocab_size"}),
    ("deepseek_v2", {**DEEPSEEK, "q_lora_rank": None}), ("deepseek_v3", {**DEEPSEEK, "q_lora_rank": 24, "n_group": 2, "topk_group": 1}),
]


def build(kind, sizes):
    maker = {"vit": "AutoModelForImageClassification", "t5": "AutoModelForSeq2SeqLM", "mt5": "AutoModelForSeq2SeqLM", "bart": "AutoModelForSeq2SeqLM",
             "bert": "AutoModelForMaskedLM", "roberta": "AutoModelForMaskedLM", "distilbert": "AutoModelForMaskedLM"}.get(kind, "AutoModelForCausalLM")
    try:
        config = transformers.AutoConfig.for_model(kind, **sizes)
    except ValueError as error:
        pytest.skip(f"this Transformers does not know {kind}: {error}")
    with torch.device("meta"):
        model = getattr(transformers, maker).from_config(config)
    model.config.architectures = [type(model).__name__]
    return model


@pytest.mark.parametrize("kind, sizes", CASES, ids=[f"{kind}-{i}" for i, (kind, _) in enumerate(CASES)])
def test_counts_are_exact(lowtide, tmp_path, kind, sizes):
    model = build(kind, sizes)
    (tmp_path / "config.json").write_text(json.dumps(model.config.to_dict(), default=str))
    done = lowtide("plan", tmp_path, "--format", "json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)["model"]
    assert document["parameters"] == sum(p.numel() for p in dict.fromkeys(model.parameters()))
    assert document["assumed"] == []
