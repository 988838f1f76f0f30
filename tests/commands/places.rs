//! `--at`: one spelling of places in every command that takes one.

use testing::checkpoint_copy::{attnscope, text, weights};

fn fixture(name: &str) -> String {
    let path = testing::root().join("fixtures").join(name);
    path.display().to_string()
}

#[test]
fn a_trace_at_places_holds_their_heads_and_no_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let (model, words) = (fixture("healthy"), "the king took a story");
    let traced = |name: &str, places: &[&str]| {
        let file = directory.path().join(name).display().to_string();
        let asked = [
            "trace",
            &model,
            words,
            "--hooks",
            "pattern,q",
            "--output",
            &file,
        ];
        let output = attnscope(&[&asked[..], places].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        weights(&std::fs::read(&file).expect("a trace"))
    };
    let (all, some) = (traced("all", &[]), traced("some", &["--at", "L0,L1H2"]));
    for hook in ["pattern", "q"] {
        let [first, second] = [0, 1].map(|layer| format!("blocks.{layer}.attn.{hook}"));
        assert_eq!(some[&first].values(), all[&first].values());
        let whole = all[&second].values();
        let n = whole.len() / 4;
        assert_eq!(some[&second].values(), whole[2 * n..3 * n]);
    }
}

#[test]
fn a_place_that_is_not_there_is_refused_with_what_is() {
    let model = fixture("healthy");
    for (command, expected) in [
        (
            vec!["trace", &model, "--output", "no.safetensors", "--at", "L9"],
            "there is no L9: the model has layers 0–1, heads 0–3",
        ),
        (vec!["sweep", &model, "--at", "L0H9"], "L0 has heads 0–3"),
        (
            vec!["sweep", &model, "--at", "cross.L0"],
            "there is no cross.L0: the model has one stack",
        ),
        (
            vec![
                "trace",
                &model,
                "--output",
                "no.safetensors",
                "--at",
                "L0",
                "--layers",
                "0",
            ],
            "cannot be used with",
        ),
    ] {
        let output = attnscope(&command);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
        assert!(said.contains(expected), "{command:?}: {said}");
    }
}
