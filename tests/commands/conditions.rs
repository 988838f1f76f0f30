//! `heads --where`: lists the heads that meet conditions, and says what is wrong with conditions that cannot be read.

use serde_json::Value;
use testing::checkpoint_copy::{attnscope, text};
use testing::judged::fixture;

const WORDS: &str = "the old king gave a red apple to his horse . the old king gave";

fn heads(arguments: &[&str]) -> (Option<i32>, String, String) {
    let model = fixture("induction");
    let model = model.to_str().expect("a path");
    let fixed = ["heads", model, "--text", WORDS];
    let output = attnscope(&[&fixed, arguments].concat());
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// The heads that are listed, as layer and head.
fn listed(conditions: &str) -> Vec<(u64, u64)> {
    let (code, said, error) = heads(&["--where", conditions, "--json"]);
    assert_eq!(code, Some(0), "{conditions}: {error}");
    let document: Value = serde_json::from_str(&said).expect("JSON");
    let heads = document["prompts"][0]["heads"].as_array().expect("heads");
    let number = |head: &Value, key: &str| head[key].as_u64().expect("a number");
    let place = |head: &Value| (number(head, "layer"), number(head, "head"));
    heads.iter().map(place).collect()
}

#[test]
fn places_statistics_and_types_choose_the_heads() {
    assert_eq!(listed("type=induction"), [(1, 0), (1, 1), (1, 2), (1, 3)]);
    assert_eq!(listed("L0-1 previous_mass>0.5"), [(0, 0), (0, 2)]);
    // The name on the screen, and a place of the other layer.
    assert_eq!(listed("L1 previous token > 50%"), []);
    assert_eq!(
        listed("l1h0-2 type=induction first_key_mass<0.6"),
        [(1, 1), (1, 2)]
    );
    let (_, _, error) = heads(&["--where", "entropy>99"]);
    assert!(error.contains("no head meets --where"), "{error}");
}

#[test]
fn conditions_that_cannot_be_met_or_read_are_refused() {
    for (conditions, words) in [
        (
            "L9 entropy<1",
            "--where: there is no L9: the model has layers 0–1, heads 0–3",
        ),
        ("entropyy<1", "did you mean entropy?"),
        ("type=inducton", "did you mean induction?"),
        ("entropy", "expected a comparison after"),
    ] {
        let (code, out, error) = heads(&["--where", conditions]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{conditions}: {error}");
        assert!(error.contains(words), "{conditions}: {error}");
    }
}
