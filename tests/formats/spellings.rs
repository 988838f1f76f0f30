//! One attention in many spellings, and captures of healthy transformers models: what the capture file saw is judged alike.

use attnscope_checkpoint::captured::Captured;
use attnscope_checks::Severity;
use attnscope_run::{Declared, Recorded};
use testing::judged::{captured, fixture};

/// The only array of a file whose name ends so.
fn array(name: &str, ending: &str) -> Vec<f32> {
    let path = fixture("captured/written").join(format!("{name}.safetensors"));
    let captured = Captured::open(&path).expect("opens");
    let names: Vec<String> = captured
        .names()
        .into_iter()
        .filter(|name| name.ends_with(ending))
        .map(str::to_owned)
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
    captured.array(&names[0]).expect("reads").values
}

#[test]
fn every_spelling_of_a_softmax_is_the_same_attention() {
    let plain = ["pattern", "scores"].map(|part| array("exp_sum", part));
    for name in [
        "exp_sum_in_place",
        "log_softmax_exp",
        "aten_kernel",
        "heads_last",
        "keys_first",
        "product_and_sum",
    ] {
        for (part, plain) in ["pattern", "scores"].into_iter().zip(&plain) {
            let found = array(name, part);
            assert_eq!(found.len(), plain.len(), "{name}");
            for (a, b) in found.iter().zip(plain) {
                let is_same = a == b || (a - b).abs() <= 1e-5 * b.abs().max(1.0);
                assert!(is_same, "{name}.{part}: {a} and {b}");
            }
        }
        let path = fixture("captured/written").join(format!("{name}.safetensors"));
        let said = captured(&path, &Declared::default());
        assert!(said.errors().is_empty(), "{name}: {:?}", said.fired());
        assert!(said.with(Severity::Warning).is_empty(), "{name}");
    }
}

#[test]
fn faults_in_a_softmax_that_is_written_out_are_found() {
    for (name, check) in [
        ("exp_sum_over_queries", "wrong-axis"),
        ("exp_without_sum", "row-sum"),
        ("heads_last_over_heads", "wrong-axis"),
    ] {
        let path = fixture("captured/written").join(format!("{name}.safetensors"));
        let said = captured(&path, &Declared::default());
        let errors = said.errors();
        assert!(errors.contains(&check), "{name}: {errors:?}");
    }
}

#[test]
fn healthy_models_of_transformers_are_not_accused() {
    let mut n = 0;
    for entry in std::fs::read_dir(fixture("captured/healthy")).expect("the fixtures") {
        let path = entry.expect("an entry").path();
        let said = captured(&path, &Declared::default());
        assert!(said.errors().is_empty(), "{path:?}: {:?}", said.fired());
        assert!(said.with(Severity::Warning).is_empty(), "{path:?}");
        n += 1;
    }
    assert_eq!(n, 6);
}

#[test]
fn a_capture_with_a_tokenizer_shows_texts() {
    let recorded = |name: &str| {
        let path = fixture("captured/healthy").join(format!("{name}.safetensors"));
        let captured = Captured::open(&path).expect("opens");
        let trace = attnscope_run::read_trace(&captured, &Declared::default()).expect("reads");
        Recorded::new(captured, &trace)
    };
    let prompt = recorded("bert_eager_left").prompt;
    assert_eq!(prompt.labels.len(), 14);
    assert_eq!(prompt.labels[0], " w1");
    assert!(
        prompt
            .labels
            .iter()
            .zip(&prompt.tokens)
            .all(|(text, id)| *text == format!(" w{id}"))
    );
    let both = recorded("t5_eager_right").prompt;
    let source = both.source.as_ref().expect("an encoder");
    assert_eq!((both.labels.len(), source.labels.len()), (7, 14));
    assert!(
        both.labels
            .iter()
            .chain(&source.labels)
            .all(|text| text.starts_with(" w"))
    );
}

#[test]
fn masked_scores_of_a_capture_are_infinite_whatever_value_masked_them() {
    let path = fixture("captured/healthy/gpt2_eager_left.safetensors");
    let captured = Captured::open(&path).expect("opens");
    let scores = captured
        .array("blocks.0.attn.scores")
        .expect("reads")
        .values;
    assert!(
        scores
            .iter()
            .all(|score| *score == f32::NEG_INFINITY || score.abs() < 1e3)
    );
    assert!(captured.metadata["attnscope.calls"].contains("mask_value"));
}
