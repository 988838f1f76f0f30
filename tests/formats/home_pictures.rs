//! Home-made Vision Transformers by their weights alone: what names and shapes tell is read, the rest is asked for, and the result is
//! what PyTorch computes of a picture.

use std::path::PathBuf;

use attnscope_prompt::{Request, Source};
use attnscope_spec::{Model, Pooled};
use safetensors::SafeTensors;
use testing::checkpoint_copy::{Stored, file_of, weights};
use testing::opening::{fails, knob, opened};
use testing::refusal::assert_says;

use super::homegrown_files::agrees_on;

fn fixtures() -> PathBuf {
    testing::root().join("fixtures/formats/homegrown/pictures")
}

fn agrees(model: &Model, name: &str) {
    let request = Request {
        source: Source::picture(
            testing::root().join("fixtures/formats/pictures/plain_jpg.rgb.png"),
        ),
        ..Request::text("")
    };
    let path = fixtures().join(format!("{name}.reference.safetensors"));
    let bytes = std::fs::read(path).expect("a reference");
    let reference = SafeTensors::deserialize(&bytes).expect("a reference");
    agrees_on(model, &request, &reference);
}

fn pooled(model: &Model) -> Option<Pooled> {
    let head = model.spec.head.as_ref()?;
    Some(head.labels.as_ref()?.pooled)
}

/// A tensor's name and shape.
type Shaped<'a> = (&'a str, &'a [usize]);

#[test]
fn what_a_picture_model_leaves_open_is_asked_for_and_then_enough() {
    let cases: &[(&str, &[&str], &[&str], Pooled)] = &[
        (
            "kernel",
            &["n_heads=3", "activation=gelu"],
            &["picture_mean=0.5", "picture_std=0.25"],
            Pooled::First,
        ),
        (
            "copied",
            &["n_heads=2", "activation=gelu"],
            &[],
            Pooled::MeanFrom(2),
        ),
        (
            "torch",
            &[
                "n_heads=4",
                "activation=relu",
                "norm_first=false",
                "head_activation=tanh",
                "patch_order=channels_first",
                "picture_size=12 20",
            ],
            &[],
            Pooled::First,
        ),
        (
            "grey",
            &["n_heads=2", "activation=gelu"],
            &["picture_size=28"],
            Pooled::Mean,
        ),
    ];
    for (name, needed, more, reads) in cases {
        let path = fixtures().join(format!("{name}.pt"));
        let said = fails(&path, more);
        for setting in *needed {
            let key = setting.split('=').next().expect("a key");
            assert!(said.contains(&format!("--set {key}=")), "{name}: {said}");
        }
        for idx in 0..needed.len() {
            let mut fewer = [needed, *more].concat();
            let left_out = fewer.remove(idx);
            let key = left_out.split('=').next().expect("a key");
            assert_says(
                &fails(&path, &fewer),
                &["do not tell", &format!("tell {key};")],
            );
        }
        let model = opened(&path, &[needed, *more].concat());
        assert_eq!(pooled(&model), Some(*reads), "{name}");
        let says = model.checkpoint.remarks().join(" ");
        let is_set = more
            .iter()
            .any(|setting| setting.starts_with("picture_mean"));
        assert_ne!(says.contains("how pixels are scaled"), is_set, "{name}");
        agrees(&model, name);
    }
}

/// One layer around a map of patches of 8 × 8 pixels, with what else a test adds.
fn stored(more: &[(&str, &[usize])]) -> (tempfile::TempDir, PathBuf) {
    let layer: [(&str, &[usize]); 11] = [
        ("patch.proj.weight", &[8, 3, 8, 8]),
        ("patch.proj.bias", &[8]),
        ("cls_token", &[1, 1, 8]),
        ("blocks.0.norm1.weight", &[8]),
        ("blocks.0.norm1.bias", &[8]),
        ("blocks.0.attn.qkv.weight", &[24, 8]),
        ("blocks.0.attn.proj.weight", &[8, 8]),
        ("blocks.0.norm2.weight", &[8]),
        ("blocks.0.norm2.bias", &[8]),
        ("blocks.0.mlp.fc1.weight", &[16, 8]),
        ("blocks.0.mlp.fc2.weight", &[8, 16]),
    ];
    let all = [&layer[..], more].concat();
    super::told_apart::stored(&all)
}

const SET: [&str; 3] = ["n_heads=2", "activation=gelu", "norm_first=true"];

#[test]
fn positions_tell_which_tokens_have_one_and_the_size_of_pictures() {
    for (shape, size, n_placed) in [
        (&[1, 10, 8][..], None, 1),
        (&[9, 8], None, 0),
        (&[1, 3, 3, 8], None, 0),
        (&[7, 8], Some("picture_size=16 24"), 1),
        (&[51, 8], Some("picture_size=16 24"), 1),
    ] {
        let (_directory, path) = stored(&[("pos_embed", shape)]);
        let mut set = SET.to_vec();
        if let Some(size) = size {
            assert_says(&fails(&path, &set), &["picture_size"]);
            set.push(size);
        }
        let model = opened(&path, &set);
        let patches = model.spec.main_stack().embed.patches.as_ref();
        let patches = patches.expect("patches");
        let positions = patches.positions.as_ref().expect("positions");
        assert_eq!(positions.n_first, n_placed, "{shape:?}");
        assert_eq!(patches.firsts[0].has_positions, n_placed == 1, "{shape:?}");
        let grid = if size.is_some() { [2, 3] } else { [3, 3] };
        assert_eq!(positions.grid, grid, "{shape:?}");
        let tokens = grid[0] * grid[1] + 1;
        assert_eq!(knob(&model, "n_tokens").0, tokens.to_string());
        assert!(model.spec.head.is_none());
    }
    // A stated size that the positions contradict is told.
    let (_directory, path) = stored(&[("pos_embed", &[1, 10, 8])]);
    let set = [&SET[..], &["picture_size=32"]].concat();
    assert_says(
        &fails(&path, &set),
        &["pos_embed has 10 rows", "4 × 4 patches"],
    );
}

#[test]
fn other_kinds_of_picture_models_are_refused_by_name() {
    let cases: &[(&[Shaped<'_>], &[&str])] = &[
        (
            &[],
            &[
                "patch.proj.weight",
                "no table of positions",
                "--set positions=none",
            ],
        ),
        (
            &[("pos_embed", &[1, 10, 8]), ("stem.weight", &[8, 8, 3, 3])],
            &["stem.weight", "expected one convolution"],
        ),
        (
            &[("pos_embed", &[1, 10, 8]), ("head.weight", &[5, 80])],
            &["head.weight", "10 rows of a picture in one"],
        ),
        (
            &[
                ("pos_embed", &[1, 11, 8]),
                ("dist_token", &[1, 1, 8]),
                ("head.weight", &[5, 8]),
                ("head_dist.weight", &[5, 8]),
            ],
            &["could be the head as well"],
        ),
        (
            &[("pos_embed", &[1, 10, 8]), ("blocks.0.ls1.gamma", &[8])],
            &["blocks.0.ls1.gamma", "fits no part"],
        ),
        (
            &[("pos_embed", &[1, 10, 8]), ("rope.freqs", &[2])],
            &["rope.freqs", "positions of pictures that turn"],
        ),
        (
            &[("row_pos", &[3, 8]), ("col_pos", &[3, 8])],
            &["could be the table of positions as well"],
        ),
    ];
    for (more, says) in cases {
        let (_directory, path) = stored(more);
        assert_says(&fails(&path, &SET), says);
    }
}

#[test]
fn a_norm_that_no_training_changed_is_left_aside() {
    let (directory, path) = stored(&[("pos_embed", &[1, 10, 8]), ("head.weight", &[5, 8])]);
    let kept = opened(&path, &SET);
    assert!(kept.spec.main_stack().final_norm.is_none());
    let mut more = weights(&std::fs::read(&path).expect("bytes"));
    more.insert("norm.weight".to_owned(), Stored::f32(&[8], &[1.0; 8]));
    more.insert("norm.bias".to_owned(), Stored::f32(&[8], &[0.0; 8]));
    let changed = directory.path().join("changed.safetensors");
    std::fs::write(&changed, file_of(&more)).expect("writes");
    let model = opened(&changed, &SET);
    assert!(model.spec.main_stack().final_norm.is_none());
    let remarks = model.checkpoint.remarks().join(" ");
    assert_says(
        &remarks,
        &["norm.weight was left aside", "no training changed it"],
    );
}
