//! Checks that look at weights alone: a trained model damaged in one way at a time, and healthy look-alikes of each.

use attnscope_checks::{Severity, Status, Thresholds};
use testing::checkpoint_copy::{Copy, Stored, Weights, put_together, take_apart};
use testing::judged::{Said, fixture, healthy_with, ids, judged_by};
use testing::opening::opened;

const OF_WEIGHTS: [&str; 7] = [
    "untrained",
    "untrained-layer",
    "copied-layer",
    "unread-weights",
    "zero-weights",
    "saturated-dtype",
    "stale-shard",
];

fn judged(directory: &std::path::Path) -> Said {
    let model = opened(directory, &[]);
    let prompts = ids(&model, &[1, 2, 3, 4]);
    judged_by(&model, &prompts, &Thresholds::default(), &OF_WEIGHTS)
}

fn damaged(change: impl FnOnce(&mut Weights)) -> Said {
    judged(healthy_with(change).path())
}

/// The checks that fired, as warnings.
fn warned(said: &Said) -> Vec<&'static str> {
    assert!(said.errors().is_empty());
    said.with(Severity::Warning)
}

fn change(weights: &mut Weights, name: &str, change: impl FnOnce(&mut [f32])) {
    let stored = weights.get_mut(name).unwrap_or_else(|| panic!("no {name}"));
    let mut values = stored.values();
    change(&mut values);
    *stored = Stored::f32(&stored.shape.clone(), &values);
}

/// The tensors of a layer.
fn of_layer(weights: &Weights, layer_idx: usize) -> Vec<String> {
    let part = format!("h.{layer_idx}.");
    let names = weights.keys().filter(|name| name.contains(&part));
    names.cloned().collect()
}

/// Gives a layer the values of an initialisation: noise, gains of 1, biases of 0.
fn initialise(weights: &mut Weights, layer_idx: usize, mut noise: impl FnMut() -> f32) {
    for name in of_layer(weights, layer_idx) {
        let is_gain = name.contains("ln_") && name.ends_with("weight");
        change(weights, &name, |values| match () {
            () if is_gain => values.fill(1.0),
            () if name.ends_with("bias") => values.fill(0.0),
            () => values.iter_mut().for_each(|value| *value = noise()),
        });
    }
}

fn normal(seed: u64) -> impl FnMut() -> f32 {
    let mut random = fastrand::Rng::with_seed(seed);
    move || {
        let (u, v) = (1.0 - random.f64(), random.f64());
        (0.02 * (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
    }
}

fn even(seed: u64) -> impl FnMut() -> f32 {
    let mut random = fastrand::Rng::with_seed(seed);
    move || 0.125 * (2.0 * random.f32() - 1.0)
}

#[test]
fn trained_models_pass() {
    for name in [
        "healthy",
        "unscaled",
        "degenerate",
        "degenerate_early",
        "induction",
    ] {
        let said = judged(&fixture(name));
        assert!(said.fired().is_empty(), "{name}: {:?}", said.fired());
        for check in [
            "untrained",
            "untrained-layer",
            "copied-layer",
            "unread-weights",
        ] {
            assert_eq!(said.status(check), Status::Passed, "{name}: {check}");
        }
        assert_eq!(said.status("stale-shard"), Status::NotApplicable);
    }
}

#[test]
fn a_model_of_initial_values_is_untrained_and_named_once() {
    for seed in 0..4 {
        let said = damaged(|weights| {
            initialise(weights, 0, normal(seed));
            initialise(weights, 1, even(seed));
        });
        assert_eq!(warned(&said), ["untrained"], "{seed}");
        assert_eq!(said.one("untrained").place, attnscope_spec::Place::MODEL);
        assert_eq!(said.status("untrained-layer"), Status::NotApplicable);
    }
}

#[test]
fn one_layer_of_initial_values_is_named_and_a_gain_or_a_direction_shows_training() {
    let said = damaged(|weights| initialise(weights, 1, normal(7)));
    assert_eq!(warned(&said), ["untrained-layer"]);
    let finding = said.one("untrained-layer");
    assert_eq!(finding.place.layer_idx, Some(1));
    assert!((0.7..1.1).contains(&finding.value), "{finding:?}");
    // One gain that moved.
    let said = damaged(|weights| {
        initialise(weights, 1, normal(7));
        change(weights, "transformer.h.1.ln_1.weight", |values| {
            values[3] = 1.001
        });
    });
    assert!(said.fired().is_empty(), "{:?}", said.fired());
    // One matrix that learned a direction.
    let said = damaged(|weights| {
        initialise(weights, 1, normal(7));
        change(weights, "transformer.h.1.mlp.c_proj.weight", |values| {
            values.iter_mut().for_each(|value| *value += 0.01);
        });
    });
    assert!(said.fired().is_empty(), "{:?}", said.fired());
}

#[test]
fn biases_as_pytorch_begins_with_are_initial_and_others_are_not() {
    let with_biases = |width: f32| {
        damaged(|weights| {
            initialise(weights, 1, even(5));
            let mut random = fastrand::Rng::with_seed(9);
            // The inputs of c_fc are 64.
            change(weights, "transformer.h.1.mlp.c_fc.bias", |values| {
                values
                    .iter_mut()
                    .for_each(|value| *value = width * (2.0 * random.f32() - 1.0));
            });
        })
    };
    assert_eq!(warned(&with_biases(0.125)), ["untrained-layer"]);
    assert!(with_biases(0.3).fired().is_empty());
    assert!(with_biases(0.01).fired().is_empty());
}

#[test]
fn a_copied_layer_and_a_copied_attention_are_told_apart() {
    let copy = |only: &'static str| {
        damaged(move |weights| {
            for name in of_layer(weights, 0) {
                if name.contains(only) {
                    let stored = weights[&name].clone();
                    weights.insert(name.replace("h.0.", "h.1."), stored);
                }
            }
        })
    };
    let whole = copy("");
    assert_eq!(warned(&whole), ["copied-layer"]);
    let finding = whole.one("copied-layer");
    assert_eq!(finding.place.layer_idx, Some(1));
    assert!(
        finding
            .evidence
            .contains("all its matrices equal those of L0"),
        "{finding:?}"
    );
    let attention = copy("attn");
    assert_eq!(warned(&attention), ["copied-layer"]);
    assert!(!attention.one("copied-layer").evidence.contains("all its"));
    // Norms alone make no copy.
    assert!(copy("ln_").fired().is_empty());
}

#[test]
fn layers_that_share_their_weights_by_design_are_no_copies() {
    for name in ["albert", "albert_b"] {
        let said = judged(&testing::checkpoint_copy::original(name));
        assert!(said.of("copied-layer").findings.is_empty(), "{name}");
    }
}

#[test]
fn matrices_and_heads_of_zeros_are_named_and_zero_biases_are_not() {
    let said = damaged(|weights| {
        change(weights, "transformer.h.1.mlp.c_proj.weight", |values| {
            values.fill(0.0)
        });
    });
    assert_eq!(warned(&said), ["zero-weights"]);
    let finding = said.one("zero-weights");
    assert_eq!(finding.place.layer_idx, Some(1));
    assert!(
        finding.evidence.contains("mlp.c_proj.weight is 0"),
        "{finding:?}"
    );
    // Keys of head 2 in the fused matrix, stored by input: columns 64 + 32 to 64 + 48 of 192.
    let said = damaged(|weights| {
        change(weights, "transformer.h.0.attn.c_attn.weight", |values| {
            values
                .chunks_mut(192)
                .for_each(|row| row[96..112].fill(0.0));
        });
    });
    let finding = said.one("zero-weights");
    assert!(
        finding.evidence.contains("the key rows of head 2"),
        "{finding:?}"
    );
    // What head 3 writes: rows 48 to 64 of the output matrix.
    let said = damaged(|weights| {
        change(weights, "transformer.h.0.attn.c_proj.weight", |values| {
            values[48 * 64..64 * 64].fill(0.0);
        });
    });
    let finding = said.one("zero-weights");
    assert!(
        finding.evidence.contains("the output columns of head 3"),
        "{finding:?}"
    );
    // All but one value of a head, biases, and a row of the embedding.
    let said = damaged(|weights| {
        change(weights, "transformer.h.0.attn.c_proj.weight", |values| {
            values[48 * 64 + 1..64 * 64].fill(0.0);
        });
        change(weights, "transformer.h.0.attn.c_attn.bias", |values| {
            values.fill(0.0)
        });
        change(weights, "transformer.wte.weight", |values| {
            values[..64].fill(0.0)
        });
    });
    assert!(said.fired().is_empty(), "{:?}", said.fired());
}

#[test]
fn adapters_and_weights_that_the_configuration_leaves_out_are_named() {
    let one = |name: &str, shape: &[usize], value: f32| {
        let n = shape.iter().product();
        let values: Vec<f32> = (0..n).map(|at| value * (1 + at % 5) as f32).collect();
        let stored = Stored::f32(shape, &values);
        let name = name.to_owned();
        damaged(move |weights| {
            weights.insert(name, stored);
        })
    };
    for (name, shape, words) in [
        (
            "transformer.h.0.attn.c_attn.lora_A.default.weight",
            &[4, 64][..],
            "merge_and_unload",
        ),
        ("transformer.h.1.adapter.down.weight", &[8, 64], "merge"),
        ("transformer.h.1.attn.q_norm.weight", &[16], "switched off"),
        (
            "transformer.h.5.mlp.c_fc.weight",
            &[64, 256],
            "number of layers",
        ),
        ("something.else", &[3, 64], "family"),
    ] {
        let said = one(name, shape, 0.1);
        assert_eq!(warned(&said), ["unread-weights"], "{name}");
        let finding = said.one("unread-weights");
        assert!(finding.evidence.contains(name), "{finding:?}");
        assert!(finding.advice.contains(words), "{finding:?}");
    }
    for (name, shape, value) in [
        ("transformer.h.0.attn.bias", &[1, 1, 8, 8][..], 1.0),
        ("transformer.h.0.attn.masked_bias", &[1], -1e4),
        ("transformer.h.0.attn.rotary_emb.inv_freq", &[8], 1.0),
        ("transformer.h.0.attn.q_proj.bias", &[64], 0.0),
        ("score.weight", &[2, 64], 1.0),
        ("optimizer.state.3.exp_avg", &[64, 64], 1.0),
    ] {
        let said = one(name, shape, value);
        assert!(said.fired().is_empty(), "{name}: {:?}", said.fired());
    }
    // A tied unembedding that is stored as well changes nothing.
    let said = damaged(|weights| {
        let table = weights["transformer.wte.weight"].clone();
        weights.insert("lm_head.weight".to_owned(), table);
    });
    assert!(said.fired().is_empty(), "{:?}", said.fired());
}

/// A tensor in f16, some of whose values are given bits.
fn in_f16(weights: &mut Weights, name: &str, bits: &[u16]) {
    let stored = &weights[name];
    let halves = stored.values().into_iter().map(half::f16::from_f32);
    let mut bytes: Vec<u8> = halves
        .flat_map(|half| half.to_bits().to_le_bytes())
        .collect();
    for (at, bits) in bits.iter().enumerate() {
        bytes[2 * at..2 * at + 2].copy_from_slice(&bits.to_le_bytes());
    }
    let stored = Stored {
        dtype: "F16".to_owned(),
        shape: stored.shape.clone(),
        bytes,
    };
    weights.insert(name.to_owned(), stored);
}

#[test]
fn values_at_the_end_of_their_type_are_counted() {
    let name = "transformer.h.0.mlp.c_fc.weight";
    // ±65504, and the number below it.
    let said = damaged(|weights| in_f16(weights, name, &[0x7bff, 0xfbff, 0x7bfe]));
    assert_eq!(warned(&said), ["saturated-dtype"]);
    let finding = said.one("saturated-dtype");
    assert_eq!((finding.value, finding.place.layer_idx), (2.0, Some(0)));
    assert!(
        damaged(|weights| in_f16(weights, name, &[0x7bfe]))
            .fired()
            .is_empty()
    );
    // The number is an ordinary one in f32; infinity is not.
    let with = |value: f32| damaged(|weights| change(weights, name, |values| values[5] = value));
    assert!(with(65504.0).fired().is_empty());
    assert_eq!(with(f32::INFINITY).one("saturated-dtype").value, 1.0);
}

#[test]
fn shards_of_two_saves_are_told_from_those_of_one() {
    let sharded = |metadata: [&[(&str, &str)]; 2]| {
        let copy = Copy::of_directory(&fixture("healthy"));
        copy.shard();
        for (nth, entries) in metadata.into_iter().enumerate() {
            let name = format!("model-0000{}-of-00002.safetensors", nth + 1);
            let (mut header, data) = take_apart(&std::fs::read(copy.file(&name)).expect("reads"));
            let entries = entries
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).into()));
            header["__metadata__"] = serde_json::Value::Object(entries.collect());
            copy.write(&name, put_together(&header, &data));
        }
        judged(copy.path())
    };
    let one = sharded([
        &[("format", "pt"), ("step", "90")],
        &[("format", "pt"), ("step", "90")],
    ]);
    assert!(one.fired().is_empty(), "{:?}", one.fired());
    assert_eq!(one.status("stale-shard"), Status::Passed);
    let numbered = sharded([
        &[("shard", "1"), ("format", "pt")],
        &[("shard", "2"), ("format", "pt")],
    ]);
    assert!(numbered.fired().is_empty(), "{:?}", numbered.fired());
    let two = sharded([
        &[("format", "pt"), ("step", "90")],
        &[("format", "pt"), ("step", "80")],
    ]);
    assert_eq!(warned(&two), ["stale-shard"]);
    assert!(two.one("stale-shard").evidence.contains("step is \"90\""));
}

#[test]
fn a_report_says_who_looks_at_weights() {
    let model = opened(&fixture("healthy"), &[]);
    let prompts = ids(&model, &[1, 2, 3, 4]);
    let only = ["nan-or-inf"];
    let said = judged_by(&model, &prompts, &Thresholds::default(), &only);
    assert_eq!(said.status("nan-or-inf"), Status::Passed);
    let all = judged_by(&model, &prompts, &Thresholds::default(), &["untrained"]);
    assert!(
        all.of("untrained").why.contains("2 of 2 layers"),
        "{}",
        all.of("untrained").why
    );
}
