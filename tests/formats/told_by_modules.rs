//! Weights alone whose settings stand elsewhere: in the attributes of pickled modules, or in a trainer's own `config.json`. Layers that
//! nothing runs are left aside.

use std::path::{Path, PathBuf};

use testing::checkpoint_copy::{Stored, Weights, file_of};
use testing::opening::{fails, knob, opened, opening};
use testing::refusal::assert_says;

use super::homegrown_files::agrees;

fn fixture(name: &str) -> PathBuf {
    testing::root().join(format!("fixtures/formats/homegrown/own/{name}"))
}

const OPEN: [&str; 2] = ["embed_scale=1", "mask=bidirectional"];

#[test]
fn modules_saved_whole_tell_what_names_and_shapes_do_not() {
    let kept = fixture("kept.pt");
    assert_says(&fails(&kept, &[]), &["do not tell embed_scale, mask;"]);
    let model = opened(&kept, &OPEN);
    let said = |name: &str| knob(&model, name);
    assert_eq!(
        said("n_heads"),
        ("4".to_owned(), "from module attributes n_heads".to_owned())
    );
    assert_eq!(said("norm_first").0, "true");
    assert_eq!(said("activation").0, "gelu");
    assert_eq!(said("norm_eps").0, "0.001");
    agrees(&model, &fixture("kept.reference.safetensors"));
}

#[test]
fn the_layer_that_a_stack_was_copied_from_is_left_aside_unless_something_trained_it() {
    let remarks = opened(&fixture("kept.pt"), &OPEN)
        .checkpoint
        .remarks
        .join("\n");
    assert_says(
        &remarks,
        &["encoder_layer is left aside", "no training changed it"],
    );
    let checkpoint = opening(&fixture("kept.pt"), &[]).open().expect("opens");
    let names = checkpoint.tensors.iter().map(|(name, _)| name.to_owned());
    let mut weights: Weights = names
        .map(|name| {
            let view = checkpoint.tensors.get(&name).expect("a tensor");
            let stored = Stored::f32(view.shape(), &view.widen().expect("widens"));
            (name, stored)
        })
        .collect();
    weights.insert(
        "encoder_layer.norm2.bias".to_owned(),
        Stored::f32(&[16], &[0.25; 16]),
    );
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("mine.safetensors");
    std::fs::write(&path, file_of(&weights)).expect("writes");
    assert_says(&fails(&path, &[]), &["encoder_layer.norm"]);
}

/// A copy of a fixture beside a `config.json`.
fn beside(directory: &Path, config: &str) {
    std::fs::copy(fixture("copy.pt"), directory.join("model.pt")).expect("copies");
    std::fs::write(directory.join("config.json"), config).expect("writes");
}

#[test]
fn a_trainers_own_configuration_tells_sizes_and_never_hides_the_weights() {
    let directory = tempfile::tempdir().expect("a directory");
    let own = r#"{"n_head": 2, "lr": 1e-3, "activation": "gelu", "data": "./data"}"#;
    beside(directory.path(), own);
    let model = opened(directory.path(), &[]);
    assert_eq!(knob(&model, "n_heads").1, "from config.json n_head");
    agrees(&model, &fixture("copy.reference.safetensors"));
    beside(directory.path(), r#"{"lr": 1e-3}"#);
    assert_says(
        &fails(directory.path(), &[]),
        &["config.json names no kind of model", "n_heads, activation"],
    );
    // Of unknown weights the configuration stays the first thing to mend.
    let strange: Weights = [("w.x".to_owned(), Stored::f32(&[2], &[0.0; 2]))].into();
    std::fs::remove_file(directory.path().join("model.pt")).expect("removes");
    std::fs::write(
        directory.path().join("model.safetensors"),
        file_of(&strange),
    )
    .expect("writes");
    assert_says(&fails(directory.path(), &[]), &["model_type: missing"]);
}
