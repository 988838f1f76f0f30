//! What the metadata of each architecture becomes in the words of `config.json`.

use attnscope_checkpoint::gguf::Gguf;
use serde_json::{Value, json};
use testing::gguf_pieces::{BOOL, LIST, Pieces, Place, entry, number, tensor, word};

const F32: u32 = 6;

fn float(key: &str, value: f32) -> Vec<u8> {
    entry(key, F32, &value.to_le_bytes())
}

/// A file of an architecture with the sizes that every one needs: `n_layers` layers of 4 heads, 8 wide in all.
fn file(architecture: &str, n_layers: u32, more: &[Vec<u8>]) -> Pieces {
    let key = |tail: &str| format!("{architecture}.{tail}");
    let mut pieces = Pieces::sound();
    pieces.entries = vec![
        word("general.architecture", architecture),
        number(&key("block_count"), n_layers),
        number(&key("embedding_length"), 8),
        number(&key("attention.head_count"), 4),
        number(&key("feed_forward_length"), 16),
        number(&key("context_length"), 64),
    ];
    pieces.entries.extend_from_slice(more);
    pieces.tensors = vec![tensor("token_embd.weight", &[8, 3], 0, 0)];
    pieces
}

fn open(pieces: &Pieces) -> Gguf {
    let path = Place::default();
    attnscope_checkpoint::gguf::open_file(&path.write(&pieces.bytes())).expect("opens")
}

/// Compares the keys that are named, and no others.
fn agrees(found: &Gguf, expected: Value) {
    for (key, expected) in expected.as_object().expect("an object") {
        let found = found.config.get(key).cloned().unwrap_or_default();
        assert_eq!(found, *expected, "{key}");
    }
}

#[test]
fn a_plain_llama_has_the_keys_of_a_llama() {
    let found = open(&file(
        "llama",
        2,
        &[
            float("llama.attention.layer_norm_rms_epsilon", 1e-5),
            float("llama.rope.freq_base", 500_000.0),
            number("llama.attention.head_count_kv", 2),
            number("llama.something_new", 7),
        ],
    ));
    agrees(
        &found,
        json!({
            "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 2, "intermediate_size": 16, "max_position_embeddings": 64,
            "vocab_size": 3, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "rope_scaling": null,
            "tie_word_embeddings": true, "hidden_act": "silu", "attention_bias": false, "mlp_bias": false,
            // Kept under its own name, so that it shows as never read.
            "llama.something_new": 7,
        }),
    );
}

#[test]
fn a_llama_with_a_window_is_a_mistral() {
    let window = number("llama.attention.sliding_window", 16);
    let found = open(&file("llama", 1, &[window]));
    agrees(
        &found,
        json!({"model_type": "mistral", "sliding_window": 16}),
    );
}

#[test]
fn experts_are_found_one_by_one() {
    let mut pieces = file(
        "llama",
        1,
        &[
            number("llama.expert_count", 3),
            number("llama.expert_used_count", 2),
        ],
    );
    pieces
        .tensors
        .push(tensor("blk.0.ffn_down_exps.weight", &[4, 2, 3], 0, 96));
    pieces.data.resize(96, 0);
    pieces
        .data
        .extend((0..24u8).flat_map(|v| f32::from(v).to_le_bytes()));
    let found = open(&pieces);
    agrees(
        &found,
        json!({"model_type": "mixtral", "num_local_experts": 3, "num_experts_per_tok": 2}),
    );
    for expert in 0..3 {
        let name = format!("model.layers.0.block_sparse_moe.experts.{expert}.w2.weight");
        let view = found.tensors.expect(&name, &[2, 4]).expect("an expert");
        let expected: Vec<f32> = (0..8).map(|v| (8 * expert + v) as f32).collect();
        assert_eq!(view.widen().expect("reads").as_ref(), expected);
        assert_eq!(
            view.widen_rows(1..2).expect("reads").as_ref(),
            &expected[4..]
        );
    }
}

#[test]
fn gemma_3_lists_its_windows_and_two_rotations() {
    let more = [
        number("gemma3.attention.sliding_window", 16),
        number("gemma3.attention.key_length", 4),
        number("gemma3.attention.value_length", 4),
        float("gemma3.rope.freq_base", 1e6),
        word("gemma3.rope.scaling.type", "linear"),
        float("gemma3.rope.scaling.factor", 8.0),
    ];
    let found = open(&file("gemma3", 7, &more));
    let slides = "sliding_attention";
    agrees(
        &found,
        json!({
            "model_type": "gemma3_text", "head_dim": 4, "query_pre_attn_scalar": 4.0, "sliding_window": 16,
            "layer_types": [slides, slides, slides, slides, slides, "full_attention", slides],
            "rope_theta": 1e6, "rope_local_base_freq": 10000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "attn_logit_softcapping": null, "final_logit_softcapping": null,
            "hidden_activation": "gelu_pytorch_tanh",
        }),
    );
    // The largest model divides by the width of the stream over its heads.
    agrees(
        &open(&file("gemma3", 62, &more)),
        json!({"query_pre_attn_scalar": 2.0}),
    );
    // Newer files list the layers.
    let mut pattern = vec![BOOL as u8, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
    pattern.extend([0, 1]);
    let listed = entry("gemma3.attention.sliding_window_pattern", LIST, &pattern);
    let more = [number("gemma3.attention.sliding_window", 16), listed];
    agrees(
        &open(&file("gemma3", 2, &more)),
        json!({"layer_types": ["full_attention", slides]}),
    );
}

#[test]
fn an_early_gemma_2_gets_the_caps_and_the_window_of_its_models() {
    let found = open(&file("gemma2", 2, &[]));
    agrees(
        &found,
        json!({
            "model_type": "gemma2", "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
            "sliding_window": 4096, "layer_types": ["sliding_attention", "full_attention"],
        }),
    );
}

#[test]
fn phi_3_has_long_factors_and_no_window_of_0() {
    let mut pieces = file(
        "phi3",
        1,
        &[
            number("phi3.attention.sliding_window", 0),
            number("phi3.rope.scaling.original_context_length", 16),
            number("phi3.rope.dimension_count", 2),
            float("phi3.rope.scaling.attn_factor", 1.25),
        ],
    );
    pieces
        .tensors
        .push(tensor("rope_factors_long.weight", &[1], 0, 96));
    pieces
        .tensors
        .push(tensor("rope_factors_short.weight", &[1], 0, 128));
    pieces.data.resize(96, 0);
    pieces.data.extend(4f32.to_le_bytes());
    pieces.data.resize(128, 0);
    pieces.data.extend(1.5f32.to_le_bytes());
    agrees(
        &open(&pieces),
        json!({
            "model_type": "phi3", "sliding_window": null, "original_max_position_embeddings": 16,
            "rope_scaling": {
                "rope_type": "longrope", "long_factor": [4.0], "short_factor": [1.5], "attention_factor": 1.25,
            },
            "partial_rotary_factor": null, "head_dim": null,
        }),
    );
}

#[test]
fn gpt_oss_rounds_the_ends_of_yarn_if_the_file_says_so() {
    let yarn = [
        word("gpt-oss.rope.scaling.type", "yarn"),
        float("gpt-oss.rope.scaling.factor", 4.0),
    ];
    let stated = |truncates: bool| {
        let key = "gpt-oss.rope.scaling.yarn_truncate";
        let entries = [&yarn[..], &[entry(key, BOOL, &[u8::from(truncates)])]].concat();
        open(&file("gpt-oss", 2, &entries))
    };
    for (found, truncates, is_stated) in [
        (stated(true), true, true),
        (stated(false), false, true),
        (open(&file("gpt-oss", 2, &yarn)), false, false),
    ] {
        let scaling = found.config.get("rope_scaling").expect("a scaling");
        assert_eq!(scaling["truncate"], truncates);
        assert_eq!(found.remarks.is_empty(), is_stated, "{:?}", found.remarks);
    }
}

#[test]
fn qwen_scales_by_yarn_when_the_file_says_so() {
    let more = [
        word("qwen2.rope.scaling.type", "yarn"),
        float("qwen2.rope.scaling.factor", 4.0),
        number("qwen2.rope.scaling.original_context_length", 32),
    ];
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32});
    agrees(
        &open(&file("qwen2", 1, &more)),
        json!({"model_type": "qwen2", "rope_scaling": yarn}),
    );
    // One key has Hugging Face's factor, the other what multiplies yarn's own.
    for (key, expected) in [
        ("qwen2.rope.scaling.yarn_attn_factor", 0.5),
        (
            "qwen2.rope.scaling.attn_factor",
            0.5 * (0.1 * 4f64.ln() + 1.0),
        ),
    ] {
        let found = open(&file("qwen2", 1, &[&more[..], &[float(key, 0.5)]].concat()));
        let scaling = found.config.get("rope_scaling").expect("a scaling");
        assert_eq!(scaling["attention_factor"], expected, "{key}");
    }
    let found = open(&file(
        "qwen3",
        1,
        &[number("qwen3.attention.key_length", 6)],
    ));
    agrees(
        &found,
        json!({"model_type": "qwen3", "head_dim": 6, "attention_bias": false}),
    );
}

#[test]
fn starcoder_2_and_gpt_2_use_their_own_words() {
    let eps = float("starcoder2.attention.layer_norm_epsilon", 1e-5);
    agrees(
        &open(&file("starcoder2", 1, &[eps])),
        json!({
            "model_type": "starcoder2", "norm_epsilon": 1e-5, "use_bias": false, "sliding_window": null,
            "hidden_act": "gelu_pytorch_tanh", "rms_norm_eps": null,
        }),
    );
    let eps = float("gpt2.attention.layer_norm_epsilon", 1e-5);
    agrees(
        &open(&file("gpt2", 1, &[eps])),
        json!({
            "model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 4, "n_inner": 16, "n_positions": 64,
            "vocab_size": 3, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "hidden_size": null,
        }),
    );
}

/// A list of whole numbers of 32 bits.
fn numbers(key: &str, values: &[u32]) -> Vec<u8> {
    const U32: u32 = 4;
    let mut list = U32.to_le_bytes().to_vec();
    list.extend((values.len() as u64).to_le_bytes());
    list.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    entry(key, LIST, &list)
}

/// Sizes of the mixers of hybrids.
fn mixer(architecture: &str) -> Vec<Vec<u8>> {
    let key = |tail: &str| format!("{architecture}.ssm.{tail}");
    [
        ("conv_kernel", 4),
        ("inner_size", 16),
        ("state_size", 5),
        ("time_step_rank", 2),
        ("group_count", 2),
    ]
    .map(|(tail, value)| number(&key(tail), value))
    .to_vec()
}

fn refused(pieces: &Pieces) -> String {
    let path = Place::default();
    let told =
        attnscope_checkpoint::gguf::open_file(&path.write(&pieces.bytes())).expect_err("refused");
    told.to_string()
}

#[test]
fn jamba_s_layers_come_back_in_equal_distances_or_are_refused() {
    let with = |heads: &[u32]| {
        let mut more = mixer("jamba");
        more.push(numbers("jamba.attention.head_count_kv", heads));
        more.push(number("jamba.expert_count", 1));
        file("jamba", heads.len() as u32, &more)
    };
    agrees(
        &open(&with(&[0, 2, 0, 0, 2, 0])),
        json!({
            "model_type": "jamba", "attn_layer_period": 3, "attn_layer_offset": 1, "expert_layer_period": 7,
            "expert_layer_offset": 6, "num_experts": 1, "mamba_expand": 2, "mamba_d_conv": 4, "mamba_d_state": 5,
            "mamba_dt_rank": 2, "num_key_value_heads": 2, "mamba_conv_bias": false, "rope_theta": null,
        }),
    );
    let said = refused(&with(&[0, 2, 2, 0]));
    assert!(said.contains("equal distances"), "{said}");
    let said = refused(&with(&[0, 2, 1, 0]));
    assert!(said.contains("expected 0 or 2 for each layer"), "{said}");
}

#[test]
fn a_granite_without_granite_s_factors_is_a_bamba() {
    let flag = |value: u8| entry("granitehybrid.rope.scaling.finetuned", BOOL, &[value]);
    let mut more = mixer("granitehybrid");
    more.push(numbers("granitehybrid.attention.head_count_kv", &[0, 4]));
    more.push(flag(1));
    more.push(number("granitehybrid.rope.dimension_count", 1));
    agrees(
        &open(&file("granitehybrid", 2, &more)),
        json!({
            "model_type": "bamba", "attn_layer_indices": [1], "partial_rotary_factor": 0.5, "mamba_n_heads": 2,
            "mamba_n_groups": 2, "attention_bias": false,
        }),
    );
    more.truncate(more.len() - 2);
    more.push(flag(0));
    more.push(float("granitehybrid.attention.scale", 0.25));
    agrees(
        &open(&file("granitehybrid", 2, &more)),
        json!({
            "model_type": "granitemoehybrid", "layer_types": ["linear_attention", "full_attention"],
            "position_embedding_type": "nope", "attention_multiplier": 0.25, "num_local_experts": 0,
            "shared_intermediate_size": 16, "rope_theta": null,
        }),
    );
}

#[test]
fn qwen_3_next_attends_in_listed_layers_or_in_every_so_many() {
    let every = [
        mixer("qwen3next"),
        vec![number("qwen3next.full_attention_interval", 2)],
    ];
    let layers = |more: &[Vec<u8>]| {
        let found = open(&file("qwen3next", 3, more));
        found.config.get("layer_types").cloned().unwrap_or_default()
    };
    let (mixes, attends) = ("linear_attention", "full_attention");
    assert_eq!(layers(&every.concat()), json!([mixes, attends, mixes]));
    let mut flags = BOOL.to_le_bytes().to_vec();
    flags.extend(3u64.to_le_bytes());
    flags.extend([0, 1, 1]);
    let listed = entry("qwen3next.attention.recurrent_layers", LIST, &flags);
    let more = [every.concat(), vec![listed]].concat();
    assert_eq!(layers(&more), json!([attends, mixes, mixes]));
}

#[test]
fn llama_4_has_chunks_unless_the_file_says_otherwise() {
    let more = [
        number("llama4.attention.key_length", 2),
        number("llama4.expert_count", 128),
        number("llama4.expert_feed_forward_length", 6),
    ];
    let chunked = "chunked_attention";
    agrees(
        &open(&file("llama4", 5, &more)),
        json!({
            "model_type": "llama4_text", "layer_types": [chunked, chunked, chunked, "full_attention", chunked],
            "no_rope_layers": [1, 1, 1, 0, 1], "attention_chunk_size": 8192, "use_qk_norm": false, "moe_layers": [],
            "intermediate_size": 6, "intermediate_size_mlp": 16,
        }),
    );
    let without = [
        more.to_vec(),
        vec![number("llama4.attention.sliding_window", 0)],
    ]
    .concat();
    let said = refused(&file("llama4", 5, &without));
    assert!(said.contains("no chunks"), "{said}");
}

#[test]
fn gemma_4_has_heads_of_two_widths_and_lists_the_wide_ones() {
    let key = |tail: &str| format!("gemma4.{tail}");
    let mut slides = BOOL.to_le_bytes().to_vec();
    slides.extend(2u64.to_le_bytes());
    slides.extend([1, 0]);
    let more = [
        number(&key("attention.sliding_window"), 16),
        number(&key("attention.key_length"), 8),
        number(&key("attention.value_length"), 8),
        number(&key("attention.key_length_swa"), 4),
        number(&key("attention.value_length_swa"), 4),
        numbers(&key("attention.head_count_kv"), &[4, 2]),
        numbers(&key("feed_forward_length"), &[16, 32]),
        number(&key("attention.shared_kv_layers"), 1),
        entry(&key("attention.sliding_window_pattern"), LIST, &slides),
        float(&key("rope.freq_base"), 1e6),
    ];
    let mut pieces = file("gemma4", 2, &more);
    let own = "gemma4.feed_forward_length";
    pieces.entries.retain(|kept| *kept != number(own, 16));
    agrees(
        &open(&pieces),
        json!({
            "model_type": "gemma4_text", "head_dim": 4, "num_key_value_heads": 4, "sliding_window": 16,
            "per_layer_config": {"1": {"head_dim": 8, "num_key_value_heads": 2}},
            "layer_types": ["sliding_attention", "full_attention"], "num_kv_shared_layers": 1,
            "use_double_wide_mlp": true, "hidden_size_per_layer_input": 0, "attention_k_eq_v": false,
            "rope_parameters": {
                "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 1.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        }),
    );
}

#[test]
fn queries_keys_and_values_that_do_not_fit_the_heads_are_refused() {
    let key = "qwen3next.full_attention_interval";
    let sizes = [mixer("qwen3next"), vec![number(key, 2)]].concat();
    // Two heads of keys of 5, and 16 values: 36 rows, and 16 gates.
    let with = |n_rows: u64| {
        let mut pieces = file("qwen3next", 1, &sizes);
        for (name, n_rows) in [
            ("blk.0.attn_qkv.weight", n_rows),
            ("blk.0.attn_gate.weight", 16),
        ] {
            let start = pieces.data.len().next_multiple_of(32);
            pieces
                .tensors
                .push(tensor(name, &[8, n_rows], 0, start as u64));
            pieces.data.resize(start + 32 * n_rows as usize, 0);
        }
        pieces
    };
    let found = open(&with(36));
    let name = "model.layers.0.linear_attn.in_proj_qkvz.weight";
    let info = found.tensors.info(name).expect("the whole");
    assert_eq!(info.shape, [52, 8]);
    let said = refused(&with(35));
    assert!(said.contains("expected 36 rows"), "{said}");
}

#[test]
fn gemma_3n_states_how_many_spreads_a_gate_must_lie_above_the_mean() {
    let floats = |values: &[f32]| {
        let mut list = F32.to_le_bytes().to_vec();
        list.extend((values.len() as u64).to_le_bytes());
        list.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        entry("gemma3n.activation_sparsity_scale", LIST, &list)
    };
    let of = |values: &[f32]| file("gemma3n", 2, &[floats(values)]);
    agrees(
        &open(&of(&[1.644_853_6, f32::NEG_INFINITY])),
        json!({
            "model_type": "gemma3n_text", "activation_sparsity_pattern": [0.95, 0.0], "altup_correct_scale": false,
            "final_logit_softcapping": 30.0,
        }),
    );
    for wrong in [&[0.5][..], &[0.5, f32::NAN], &[0.5, f32::INFINITY]] {
        let said = refused(&of(wrong));
        assert!(said.contains("activation_sparsity_scale"), "{said}");
    }
}
