//! Pairs of checkpoints that differ in one thing: where `diff` says that they part, which layers differ given A's input, and why.

use std::path::PathBuf;

use serde_json::{Value, json};
use testing::checkpoint_copy::{Copy, Stored, attnscope, original};
use testing::effort::some_of;
use testing::judged::references_of_kinds;
use testing::pairs::{Found, Pair, alternating, change_tensor, diff, swapped};

/// What a pair must give: the first hook, the layers that differ given A's input, relations of tensors, knobs.
fn assert_found(found: &Found, first: &str, isolated: &str, relations: &str, knobs: &str) {
    let seen = [
        found.first(),
        found.isolated(),
        found.relations(),
        found.knobs(),
    ];
    assert_eq!(seen, [first, isolated, relations, knobs], "{}", found.said);
    assert_eq!((found.code, &found.json["same"]), (Some(1), &json!(false)));
}

fn knob(family: &str, key: &str, value: impl Into<Value>) -> Found {
    let pair = Pair::of(family).config(|config| {
        config.insert(key.to_owned(), value.into());
    });
    pair.diff(&[])
}

#[test]
fn a_knob_is_found_at_the_hook_that_it_acts_on_first() {
    let found = knob("llama", "rope_theta", 500_000.0);
    let all = "L0 L1 L2";
    assert_found(&found, "rot_q L0 H2", all, "", "rope_theta 10000 500000");
    let found = knob("qwen3_b", "rope_theta", 10_000.0);
    assert_found(
        &found,
        "rot_q L0 H1",
        "L0 L1",
        "",
        "rope_theta 1000000 10000",
    );
    let found = knob("gpt2", "layer_norm_epsilon", 0.01);
    assert_found(&found, "q L0 H2", all, "", "norm_eps 0.00001 0.01");
    let found = knob("bert", "layer_norm_eps", 1e-3);
    assert_found(&found, "resid_pre L0", all, "", "norm_eps 1e-12 0.001");
    let found = knob("gemma2_b", "attn_logit_softcapping", 3.0);
    assert_found(&found, "scores L0 H3", all, "", "softcap none 3");
    let found = knob("gemma2_b", "final_logit_softcapping", 3.0);
    assert_found(&found, "logits", "", "", "logit_softcap none 3");
    let found = knob("gemma2_b", "query_pre_attn_scalar", 64);
    assert!(found.first().starts_with("scores L0"), "{}", found.first());
    assert_eq!(found.isolated(), all);
    let found = knob("bart_b", "activation_function", "relu");
    let layers = "encoder.L0 encoder.L1 decoder.L0";
    assert_found(
        &found,
        "mlp_out encoder L0",
        layers,
        "",
        "activation gelu relu",
    );
    let found = knob("t5_v11", "relative_attention_max_distance", 6);
    assert!(
        found.first().starts_with("scores encoder L0"),
        "{}",
        found.first()
    );
    assert_eq!(found.knobs(), "bias_max_distance 16 6");
}

#[test]
fn a_window_of_some_layers_is_found_at_the_first_of_them() {
    // Every second layer of this family has the window.
    let found = knob("gemma2_b", "sliding_window", 3);
    assert!(found.first().starts_with("scores L1"), "{}", found.first());
    assert_eq!(found.isolated(), "L1 L2");
    assert_eq!(found.knobs(), "window@L1,L2 4 3");
    let first = &found.json["first"];
    let (query, key) = (first["query"].as_u64(), first["key"].as_u64());
    let distance = query.expect("a query") - key.expect("a key");
    assert_eq!(distance, 3, "the key that only the wider window shows");
}

const Q: &str = "model.layers.1.self_attn.q_proj.weight";
const K: &str = "model.layers.1.self_attn.k_proj.weight";
const V: &str = "model.layers.1.self_attn.v_proj.weight";
const O: &str = "model.layers.1.self_attn.o_proj.weight";

#[test]
fn one_head_of_one_layer_is_named() {
    let pair = Pair::of("llama").tensor(Q, |q| q.disturb(32..48));
    let found = pair.diff(&[]);
    assert_found(&found, "q L1 H2", "L1", "-", "");
    // A head of keys is a kv head, and has a key but no query.
    let found = Pair::of("llama").tensor(K, |k| k.disturb(16..32)).diff(&[]);
    assert_found(&found, "k L1 H1", "L1", "-", "");
    assert!(found.json["first"]["key"].is_u64() && found.json["first"]["query"].is_null());
    let name = "model.decoder.layers.0.encoder_attn.k_proj.weight";
    let found = Pair::of("bart_b")
        .tensor(name, |k| k.disturb(0..8))
        .diff(&[]);
    assert_found(&found, "k cross L0 H0", "decoder.L0", "-", "");
}

#[test]
fn queries_and_keys_paired_the_other_way_are_named() {
    let found = Pair::of("llama")
        .tensor(Q, |q| q.rows(alternating(16)))
        .tensor(K, |k| k.rows(alternating(16)))
        .diff(&[]);
    assert!(found.first().starts_with("q L1"), "{}", found.first());
    assert_eq!(found.relations(), "rotary-interleaved");
    assert_eq!(found.isolated(), "L1");
    // Two things at once: the pairing is named all the same.
    let both = |row| swapped(16, [0, 2])(alternating(16)(row));
    let found = Pair::of("llama").tensor(Q, |q| q.rows(both)).diff(&[]);
    assert_eq!(found.relations(), "rotary-interleaved");
    // One projection of several families holds all three.
    let name = "model.layers.0.self_attn.qkv_proj.weight";
    let found = Pair::of("phi3_short")
        .tensor(name, |qkv| {
            // Four heads of queries and two of keys, of eight each; then values.
            let pairing = alternating(8);
            qkv.rows(move |row| if row < 48 { pairing(row) } else { row });
        })
        .diff(&[]);
    assert_eq!(found.relations(), "rotary-interleaved");
}

#[test]
fn heads_in_another_order_are_named_by_rows_and_by_columns() {
    let found = Pair::of("llama")
        .tensor(Q, |q| q.rows(swapped(16, [0, 1])))
        .diff(&[]);
    assert!(found.first().starts_with("q L1"), "{}", found.first());
    assert_eq!(
        (found.relations().as_str(), found.isolated().as_str()),
        ("heads-permuted", "L1")
    );
    let kv = swapped(16, [0, 1]);
    let found = Pair::of("llama")
        .tensor(K, |k| k.rows(&kv))
        .tensor(V, |v| v.rows(&kv))
        .diff(&[]);
    assert_eq!(found.relations(), "heads-permuted");
    let found = Pair::of("llama")
        .tensor(O, |o| o.columns(swapped(16, [0, 3])))
        .diff(&[]);
    assert_found(&found, "attn_out L1", "L1", "heads-permuted", "");
    // Stored as [inputs, outputs], all three side by side, with a bias of their own.
    let qkv = |column: usize| column / 64 * 64 + swapped(16, [1, 2])(column % 64);
    let name = "transformer.h.1.attn.c_attn";
    let found = Pair::of("gpt2")
        .tensor(&format!("{name}.weight"), |w| w.columns(qkv))
        .tensor(&format!("{name}.bias"), |b| b.rows(qkv))
        .diff(&[]);
    assert_eq!(found.relations(), "heads-permuted");
}

#[test]
fn gate_and_up_projection_are_told_apart() {
    let pair = Pair::of("llama").weights(|weights| {
        let names = ["gate", "up"].map(|what| format!("model.layers.2.mlp.{what}_proj.weight"));
        let [gate, up] = names.each_ref().map(|name| weights[name].clone());
        weights.insert(names[0].clone(), up);
        weights.insert(names[1].clone(), gate);
    });
    assert_found(&pair.diff(&[]), "mlp_out L2", "L2", "gate-up-swapped", "");
    let name = "model.layers.0.mlp.gate_up_proj.weight";
    let halves = |row: usize| (row + 40) % 80;
    let found = Pair::of("phi3_short")
        .tensor(name, |w| w.rows(halves))
        .diff(&[]);
    assert_found(&found, "mlp_out L0", "L0", "gate-up-swapped", "");
}

#[test]
fn scaled_transposed_and_rounded_tensors_are_named() {
    let found = Pair::of("llama").tensor(V, |v| v.scale(0.5)).diff(&[]);
    assert!(found.first().starts_with("v L1"), "{}", found.first());
    assert_eq!(found.relations(), "scaled");
    let found = Pair::of("llama").tensor(Q, |q| q.transpose()).diff(&[]);
    assert_eq!(found.relations(), "transposed");
    let name = "transformer.h.1.attn.c_proj.weight";
    let found = Pair::of("gpt2").tensor(name, |w| w.transpose()).diff(&[]);
    assert_found(&found, "attn_out L1", "L1", "transposed", "");
    // Far below what 16 bits leave, but these are f32.
    let found = Pair::of("gpt2").tensor(name, |w| w.round()).diff(&[]);
    assert_found(&found, "attn_out L1", "L1", "rounded", "");
    let name = "model.layers.0.block_sparse_moe.experts.0.w2.weight";
    let found = Pair::of("mixtral_b")
        .tensor(name, |w| w.scale(1.5))
        .diff(&[]);
    assert_eq!(found.relations(), "scaled");
    assert_eq!(found.isolated(), "L0");
}

#[test]
fn two_mistakes_at_once_are_both_named() {
    let pair = Pair::of("llama")
        .config(|config| {
            config.insert("rope_theta".to_owned(), json!(500.0));
        })
        .tensor(O, |o| o.columns(swapped(16, [0, 3])));
    let found = pair.diff(&[]);
    assert_found(
        &found,
        "rot_q L0 H2",
        "L0 L1 L2",
        "heads-permuted",
        "rope_theta 10000 500",
    );
}

#[test]
fn what_no_prompt_reaches_still_differs() {
    let found = Pair::of("llama")
        .tensor("model.embed_tokens.weight", |table| table.disturb(101..102))
        .diff(&[]);
    assert_eq!((found.first().as_str(), found.code), ("", Some(1)));
    assert_eq!(found.relations(), "-");
    // What rounding to f32 explains does not.
    let found = Pair::of("gpt2")
        .tensor("transformer.h.1.attn.c_proj.weight", |w| {
            w.scale(1.0 + 1e-6)
        })
        .diff(&[]);
    assert_eq!((found.first().as_str(), found.code), ("", Some(0)));
}

#[test]
fn a_nan_on_one_side_is_placed_and_goes_no_further() {
    let pair = Pair::of("gpt2").tensor("transformer.h.1.attn.c_attn.weight", |w| {
        w.values[3 * w.width + 70] = f32::NAN;
    });
    let found = pair.diff(&[]);
    // Column 70 is the first head of keys.
    assert_eq!((found.first().as_str(), found.code), ("k L1 H0", Some(2)));
    assert_eq!(found.said.lines().count(), 1, "{}", found.said);
    let before = found.json["hooks"].as_array().expect("hooks").iter();
    let before = before.take_while(|hook| hook["layer"] == 0);
    assert!(before.clone().count() > 8 && before.clone().all(|hook| hook["relative"] == 0.0));
    assert!(
        !found.json.to_string().contains("NaN\",\"max_abs"),
        "{}",
        found.json["hooks"]
    );
}

/// Every family of the oracle.
fn families() -> Vec<String> {
    let name = |case: &PathBuf| {
        case.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let names: Vec<String> = references_of_kinds().iter().filter_map(name).collect();
    assert!(names.len() > 60);
    names
}

const TOKENS: [&str; 2] = ["--tokens", "5,9,2,18,7,11,3,8,5,9,2,18"];

/// The prompt of a family: a picture, a sound or rows of its case, or tokens, and those of a decoder.
fn prompt_for(family: &str) -> Vec<String> {
    let model = original(family);
    let sibling = |name: &str| {
        let path = model.with_file_name(name);
        path.exists().then(|| path.to_string_lossy().into_owned())
    };
    let mut arguments = TOKENS.map(str::to_owned).to_vec();
    if let Some(picture) = sibling("picture.png") {
        arguments = vec!["--image".to_owned(), picture];
    }
    for (name, flag) in [("sound.wav", "--text"), ("rows.npy", "--values")] {
        if let Some(heard) = sibling(name) {
            arguments = vec![flag.to_owned(), heard];
        }
    }
    let opened = testing::oracle_case::model_of(model.parent().expect("a case")).expect("opens");
    if let Some(rows) = sibling("target_rows.npy") {
        arguments.extend(["--target-text".to_owned(), rows]);
    } else if opened.spec.decoder_start.is_some() {
        // Detectors have few queries, and others few latents.
        let has_few = opened.spec.d_vocab < 10;
        let target = if has_few { "0,1,2" } else { "0,5,9,4,7" };
        arguments.extend(["--target-tokens", target].map(str::to_owned));
    }
    arguments
}

#[test]
fn every_family_is_the_same_as_itself() {
    for family in some_of(families(), 3) {
        let model = original(&family);
        let arguments = prompt_for(&family);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let found = diff(&model, &model, &arguments);
        assert_eq!((found.code, found.said.as_str()), (Some(0), ""), "{family}");
        let hooks = found.json["hooks"].as_array().expect("hooks");
        assert!(hooks.len() > 8, "{family}");
        for hook in hooks {
            assert_eq!(hook["relative"], 0.0, "{family}: {hook}");
        }
        assert_eq!(found.json["isolated"], json!([]), "{family}");
    }
}

#[test]
fn a_checkpoint_is_the_same_as_its_bf16_copy() {
    let mut n_rounded = 0;
    for family in [
        "gpt2",
        "bert",
        "llama",
        "gemma2_b",
        "t5_v11",
        "bart_b",
        "mixtral_b",
        "gpt_neox_b",
    ] {
        let pair = Pair::of(family);
        pair.b.weights(|weights| {
            for stored in weights.values_mut().filter(|stored| stored.dtype == "F32") {
                let values = stored.values();
                let mut matrix = testing::pairs::Matrix {
                    n_rows: 1,
                    width: values.len(),
                    values,
                };
                matrix.round();
                let bits = matrix
                    .values
                    .iter()
                    .flat_map(|v| (v.to_bits() >> 16).to_le_bytes());
                let bytes = bits.enumerate().filter(|(idx, _)| idx % 4 < 2);
                *stored = Stored {
                    dtype: "BF16".to_owned(),
                    shape: stored.shape.clone(),
                    bytes: bytes.map(|(_, byte)| byte).collect(),
                };
            }
        });
        let found = pair.diff(&[]);
        assert_eq!(
            (found.code, found.first().as_str()),
            (Some(0), ""),
            "{family}: {}",
            found.json["first"]
        );
        assert_eq!(found.json["tolerance"], 0.02, "{family}");
        let relations = found.relations();
        assert!(
            ["rounded", ""].contains(&relations.as_str()),
            "{family}: {relations}"
        );
        n_rounded += usize::from(!relations.is_empty());
        // A tolerance that somebody gives holds as it is.
        if !relations.is_empty() {
            assert_eq!(
                pair.diff(&["--tolerance", "1e-6"]).code,
                Some(1),
                "{family}"
            );
        }
    }
    assert!(n_rounded > 3);
}

#[test]
fn quantised_weights_are_the_same_but_for_their_sizes() {
    let file = |name: &str| testing::root().join("fixtures/formats/gguf").join(name);
    let found = diff(&file("llama-f32.gguf"), &file("llama-q8_0.gguf"), &TOKENS);
    assert_eq!(
        (found.code, found.first().as_str()),
        (Some(0), ""),
        "{}",
        found.said
    );
    assert_eq!(
        (found.relations().as_str(), &found.json["tolerance"]),
        ("", &json!("Infinity"))
    );
    let sizes = found.json["hooks"].as_array().expect("hooks").iter();
    assert!(
        sizes
            .clone()
            .any(|hook| hook["relative"].as_f64() > Some(1e-3))
    );
    let prompt = &found.json["prompts"][0];
    assert!(prompt["kl"].as_f64() > Some(0.0) && prompt["same_top1"].as_f64() > Some(0.5));
}

#[test]
fn shards_and_other_layouts_are_the_same_checkpoint() {
    let whole = Copy::of("gpt2");
    let sharded = Copy::of("gpt2");
    sharded.shard();
    let found = diff(whole.path(), sharded.path(), &TOKENS);
    assert_eq!(
        (found.code, found.relations().as_str()),
        (Some(0), ""),
        "{}",
        found.said
    );
}

#[test]
fn layers_of_a_pruned_model_are_compared_where_they_are_mapped() {
    // The second of three layers is taken out; the third takes its place.
    let pair = Pair::of("llama")
        .config(|config| {
            config.insert("num_hidden_layers".to_owned(), json!(2));
        })
        .weights(|weights| {
            let third: Vec<String> = weights
                .keys()
                .filter(|n| n.contains("layers.2."))
                .cloned()
                .collect();
            for name in third {
                if let Some(stored) = weights.remove(&name) {
                    weights.insert(name.replace("layers.2.", "layers.1."), stored);
                }
            }
        });
    let refused = pair.diff(&[]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.said.contains("n_layers 3 → 2"), "{}", refused.said);
    let found = pair.diff(&["--map", "0:0,2:1"]);
    // Layer 2 of A reads what layer 1 leaves, and that one is gone: its weights are those of B's layer 1 all the same.
    assert_eq!(
        (found.first().as_str(), found.isolated().as_str()),
        ("resid_pre L2", "")
    );
    assert_eq!(found.relations(), "", "{}", found.json["weights"]);
    let mut weights = testing::checkpoint_copy::weights(&pair.b.weight_bytes());
    change_tensor(&mut weights, Q, |q| q.disturb(0..16));
    pair.b.write(
        "model.safetensors",
        testing::checkpoint_copy::file_of(&weights),
    );
    assert_eq!(pair.diff(&["--map", "0:0,2:1"]).isolated(), "L2");
}

#[test]
fn a_deeper_model_is_the_same_in_the_layers_that_are_mapped() {
    // A fourth layer that adds nothing to the residual.
    let pair = Pair::of("llama")
        .config(|config| {
            config.insert("num_hidden_layers".to_owned(), json!(4));
        })
        .weights(|weights| {
            let third: Vec<String> = weights
                .keys()
                .filter(|name| name.contains("layers.2."))
                .cloned()
                .collect();
            for name in third {
                let mut stored = weights[&name].clone();
                if name.contains("o_proj") || name.contains("down_proj") {
                    let shape = stored.shape.clone();
                    stored = Stored::f32(&shape, &vec![0.0; shape.iter().product()]);
                }
                weights.insert(name.replace("layers.2.", "layers.3."), stored);
            }
        });
    assert_eq!(pair.diff(&[]).code, Some(2));
    let map = ["--map", "0-2:0-2"];
    let found = pair.diff(&map);
    let seen = (found.code, &found.json["same"], found.knobs());
    assert_eq!(seen, (Some(0), &json!(true), "n_layers 3 4".to_owned()));
    let text = attnscope(
        &[
            &["diff", "--quiet", "--tokens", "5,9,2,20,7,11,3,8"][..],
            &[pair.a.path(), pair.b.path()].map(|path| path.to_str().expect("a path")),
            &map,
        ]
        .concat(),
    );
    let text = testing::checkpoint_copy::text(&text.stdout);
    let first = text.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("the same in the layers that are mapped"),
        "{text}"
    );
    assert!(text.contains("left out by --map: L3 of B"), "{text}");
    // What is mapped must agree all the same.
    pair.b
        .weights(|weights| change_tensor(weights, Q, |q| q.disturb(0..16)));
    assert_eq!(pair.diff(&map).code, Some(1));
}

#[test]
fn norms_that_stand_elsewhere_are_named_before_what_follows() {
    let pair = Pair::of("opt_350m").config(|config| {
        config.insert("do_layer_norm_before".to_owned(), json!(true));
        config.insert("_remove_final_layer_norm".to_owned(), json!(true));
    });
    let found = pair.diff(&[]);
    assert!(found.first().starts_with("q L0"), "{}", found.first());
    assert_eq!(
        (found.code, &found.json["knobs"][0]["knob"]),
        (Some(1), &json!("norm_placement"))
    );
    assert!(
        found.knobs().starts_with("norm_placement post pre"),
        "{}",
        found.knobs()
    );
    // The norms are the same tensors in another place.
    assert_eq!(found.relations(), "");
    let weights = &found.json["weights"];
    assert_eq!(
        (&weights["only_a"], &weights["only_b"]),
        (&json!([]), &json!([]))
    );
    let n_layers = found.isolated().split(' ').count();
    assert!(n_layers > 1, "{}", found.isolated());
}
