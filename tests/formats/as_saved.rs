//! Models as versions of transformers saved them, against what each version computed: patterns and logits.

use std::path::PathBuf;

use attnscope_compute::ops::Cpu;
use attnscope_prompt::Request;
use attnscope_spec::Model;
use safetensors::SafeTensors;
use testing::hooks::hooks_of;
use testing::opening::{knob, opened};

fn case(name: &str) -> PathBuf {
    testing::root().join("fixtures/formats/versions").join(name)
}

/// Compares a model with the reference of a case; gives the largest difference of a probability.
fn furthest(model: &Model, name: &str) -> f32 {
    let bytes = std::fs::read(case(name).join("reference.safetensors")).expect("a reference");
    let reference = SafeTensors::deserialize(&bytes).expect("a reference");
    let tokens = reference.tensor("tokens").expect("tokens");
    let tokens = tokens.data().chunks(8);
    let tokens = tokens.map(|b| i64::from_le_bytes(b.try_into().expect("8 bytes")) as u32);
    let ours = hooks_of(&Cpu, model, &Request::ids(tokens.collect()));
    let f32s = |name: &str| -> Vec<f32> {
        let data = reference.tensor(name).expect("a tensor").data().to_vec();
        let values = data.chunks(4);
        values
            .map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")))
            .collect()
    };
    let mut furthest = 0.0f32;
    let mut n_patterns = 0;
    for name in reference
        .names()
        .into_iter()
        .filter(|n| n.ends_with("pattern"))
    {
        let expected = f32s(name);
        let found = &ours[name];
        assert_eq!(found.len(), expected.len(), "{name}");
        let gaps = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        furthest = gaps.fold(furthest, f32::max);
        n_patterns += 1;
    }
    assert!(n_patterns >= 2);
    if furthest < 2e-4 {
        let writes = reference.names().into_iter().any(|name| name == "logits");
        let last = if writes {
            "logits"
        } else {
            "last_hidden_state"
        };
        let found = ours.get(last).unwrap_or_else(|| &ours["logits"]);
        let expected = f32s(last);
        let norm =
            |values: &mut dyn Iterator<Item = f32>| values.map(|v| v * v).sum::<f32>().sqrt();
        let gap = norm(&mut found.iter().zip(&expected).map(|(a, b)| a - b));
        let whole = norm(&mut expected.iter().copied());
        assert!(
            gap <= 2e-3 * whole,
            "{name}: {last} differ by {}",
            gap / whole
        );
    }
    furthest
}

#[test]
fn what_wraps_a_text_model_is_read_as_the_version_that_saved_it_ran_it() {
    for (name, word) in [
        ("paligemma2-4.57", "every token sees every other one"),
        ("aya_vision-4.57", "--set logit_scale=0.0625"),
        ("mistral3-5.17", "other heads or modalities"),
        ("pi0-5.24", "every token sees every other one"),
        // Its expert in acting and its vision.
        ("pi0-5.24", "30 tensors of other heads or modalities"),
    ] {
        let model = opened(&case(name).join("model"), &[]);
        let gap = furthest(&model, name);
        assert!(gap < 2e-4, "{name}: patterns differ by {gap}");
        let said = model.checkpoint.remarks().join("\n");
        assert!(said.contains(word), "{name}: {said}");
    }
    let written = opened(&case("paligemma2-4.57").join("model"), &["mask=causal"]);
    assert!(furthest(&written, "paligemma2-4.57") > 0.1);
    let scaled = opened(
        &case("aya_vision-4.57").join("model"),
        &["logit_scale=0.0625"],
    );
    assert_eq!(scaled.spec.head.as_ref().expect("a head").scale, 0.0625);
    assert_eq!(knob(&scaled, "logit_scale").1, "set on the command line");
}

#[test]
fn a_key_that_versions_read_otherwise_is_told_with_the_other_reading() {
    let olmo = opened(&case("olmo3-4.57").join("model"), &[]);
    assert!(furthest(&olmo, "olmo3-4.57") < 2e-4);
    let said = olmo.checkpoint.remarks().join("\n");
    assert!(said.contains("--set window_rope_theta=500000"), "{said}");
    let later = opened(
        &case("olmo3-4.57").join("model"),
        &["window_rope_theta=500000"],
    );
    assert!(furthest(&later, "olmo3-4.57") > 1e-2);

    let mistral = opened(&case("mistral-4.40").join("model"), &[]);
    assert!(furthest(&mistral, "mistral-4.40") > 1e-2);
    let said = mistral.checkpoint.remarks().join("\n");
    assert!(said.contains("--set window=5"), "{said}");
    let then = opened(&case("mistral-4.40").join("model"), &["window=5"]);
    assert!(furthest(&then, "mistral-4.40") < 2e-4);
}
