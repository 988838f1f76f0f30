//! Weights alone in names of their author's own: what names, shapes, buffers and the order tell is read, equal readings are refused,
//! and the result is what PyTorch computes. Files with several models open by name.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::TokenizerFile;
use attnscope_checkpoint::values::Values;
use attnscope_prompt::{Request, Source, Tokenizer};
use safetensors::SafeTensors;
use testing::checkpoint_copy::{Stored, Weights, file_of};
use testing::effort::some_of;
use testing::opening::{fails, knob, opened, opening};
use testing::refusal::assert_says;

use super::homegrown_files::{agrees, agrees_on};

/// A file, what is asked for it, what else the code does, and words of the remark.
type Case = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);

fn fixture(name: &str) -> PathBuf {
    testing::root().join(format!("fixtures/formats/homegrown/own/{name}"))
}

fn reference(name: &str) -> PathBuf {
    fixture(&format!("{name}.reference.safetensors"))
}

fn remarks(name: &str, set: &[&str]) -> String {
    opened(&fixture(name), set).checkpoint.remarks.join("\n")
}

#[test]
fn each_style_asks_for_what_is_missing_and_is_then_what_pytorch_computes() {
    // What is asked for, what else the code does that the remark names, and words of the remark.
    let cases: [Case; 6] = [
        (
            "lecture",
            &[],
            &["scale=0.25"],
            &[
                "activation=relu",
                "norm_first=true",
                "--set scale=0.25",
                "√d_model",
            ],
        ),
        (
            "copy",
            &["n_heads=2", "activation=gelu"],
            &[],
            &["norm_first=true", "mask=causal (no mask is stored"],
        ),
        (
            "post",
            &[
                "n_heads=2",
                "norm_first=false",
                "embed_scale=1",
                "activation=relu",
            ],
            &[],
            &["mask=causal", "scale="],
        ),
        (
            "gated",
            &[],
            &[],
            &["n_heads=2", "activation=silu", "norm_eps=1e-5"],
        ),
        ("early", &[], &[], &["residual=none"]),
        ("nanda", &["activation=relu"], &[], &["W_O", "[out, in]"]),
    ];
    for (name, asked, otherwise, words) in cases {
        let path = fixture(&format!("{name}.pt"));
        if !asked.is_empty() {
            let said = fails(&path, &[]);
            let keys: Vec<&str> = asked
                .iter()
                .filter_map(|set| Some(set.split_once('=')?.0))
                .collect();
            assert_says(
                &said,
                &[
                    &format!("do not tell {};", keys.join(", ")),
                    "attnscope.toml",
                ],
            );
        }
        let said = remarks(&format!("{name}.pt"), asked);
        assert_says(&said, words);
        let model = opened(&path, &[asked, otherwise].concat());
        assert_eq!(model.spec.family, "described", "{name}");
        agrees(&model, &reference(name));
        assert!(
            model.checkpoint.unread.is_empty(),
            "{name}: {:?}",
            model.checkpoint.unread
        );
    }
}

#[test]
fn an_encoder_and_a_decoder_are_told_by_their_names() {
    let path = fixture("pair.pt");
    assert_says(
        &fails(&path, &[]),
        &["do not tell norm_first, start_token, activation;"],
    );
    let set = ["norm_first=false", "activation=relu", "start_token=1"];
    let model = opened(&path, &set);
    agrees(&model, &reference("pair"));
    assert!(model.checkpoint.unread.is_empty());
    assert_eq!(knob(&model, "n_heads").0, "2", "lists of heads count them");
    let [encoder, decoder] = &model.spec.stacks[..] else {
        panic!("expected two stacks");
    };
    assert_eq!((encoder.n_layers(), decoder.n_layers()), (1, 2));
    // Heads are counted on both sides: a third one of the encoder is not left out without a word.
    let (_directory, third) = changed("pair.pt", |weights| {
        let at = "encoder.layer_1.mh1";
        for part in ["q", "k", "v"] {
            let (map, bias) = (&[0.1; 128], &[0.1; 8]);
            let name = |kind: &str| format!("{at}.attention.2.{part}.{kind}");
            weights.insert(name("weight"), Stored::f32(&[8, 16], map));
            weights.insert(name("bias"), Stored::f32(&[8], bias));
        }
        let wide = Stored::f32(&[16, 24], &[0.1; 384]);
        weights.insert(format!("{at}.proj.weight"), wide);
    });
    assert_says(
        &fails(&third, &set),
        &["3 heads in the encoder", "2 in the decoder"],
    );
    // A decoder whose two attentions have names that say nothing, in a file without an order.
    let (_directory, renamed) = changed("pair.pt", |weights| {
        let name = |name: &str| {
            name.replace(".mh1.", ".attn_a.")
                .replace(".mh2.", ".attn_b.")
        };
        let all = std::mem::take(weights).into_iter();
        *weights = all.map(|(old, tensor)| (name(&old), tensor)).collect();
    });
    assert_says(
        &fails(&renamed, &set),
        &["which one attends to the encoder", "[tensors.cross]"],
    );
}

#[test]
fn rows_of_numbers_and_a_head_of_several_layers_are_read_up_to_the_head() {
    let path = fixture("series.pt");
    assert_says(
        &fails(&path, &[]),
        &["do not tell n_heads, norm_first, positions, mask, activation;"],
    );
    let set = [
        "n_heads=2",
        "norm_first=false",
        "positions=none",
        "mask=bidirectional",
        "activation=relu",
    ];
    assert_says(
        &remarks("series.pt", &set),
        &["the head fc", "is not read", "last hidden states"],
    );
    let rows = Values::read(&fixture("series.csv")).expect("rows");
    let request = Request {
        source: Source::Values(rows),
        ..Request::ids(Vec::new())
    };
    let bytes = std::fs::read(reference("series")).expect("a reference");
    let expected = SafeTensors::deserialize(&bytes).expect("a reference");
    agrees_on(&opened(&path, &set), &request, &expected);
}

#[test]
fn buffers_tell_sizes_and_masks() {
    let lecture = opened(&fixture("lecture.pt"), &[]);
    assert_eq!(lecture.spec.n_ctx, Some(12));
    assert_eq!(
        knob(&lecture, "n_heads"),
        ("2".to_owned(), "from the tensors' names".to_owned())
    );
    assert_eq!(knob(&lecture, "mask").0, "causal");
    let gated = opened(&fixture("gated.pt"), &[]);
    assert_eq!(
        knob(&gated, "rope_theta"),
        ("10000".to_owned(), "from values of rope_cos".to_owned())
    );
    assert_eq!(knob(&gated, "rope_interleaved").0, "false");
    assert_eq!(knob(&gated, "n_heads").1, "from width of rope_cos");
    // A setting of the user's is no longer remarked on.
    assert!(!remarks("lecture.pt", &["norm_first=true"]).contains("norm_first"));
}

/// Every stored tensor as f32, without the order of the state dict.
fn stored(path: &Path) -> Weights {
    let checkpoint = opening(path, &[]).open().expect("opens");
    let names = checkpoint.tensors.iter().map(|(name, _)| name.to_owned());
    let tensor = |name: String| {
        let view = checkpoint.tensors.get(&name).expect("a tensor");
        let stored = Stored::f32(view.shape(), &view.widen().expect("widens"));
        (name, stored)
    };
    names.map(tensor).collect()
}

/// Saves changed weights of a fixture.
fn changed(name: &str, change: impl FnOnce(&mut Weights)) -> (tempfile::TempDir, PathBuf) {
    let mut weights = stored(&fixture(name));
    change(&mut weights);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("mine.safetensors");
    std::fs::write(&path, file_of(&weights)).expect("writes");
    (directory, path)
}

#[test]
fn characters_stored_with_the_weights_or_found_in_a_text_are_the_tokenizer() {
    let stored = opened(&fixture("letters.pt"), &[]);
    let form = |file: &TokenizerFile| Tokenizer::open(file).expect("opens");
    let of_file = form(&stored.checkpoint.tokenizer);
    let tokenizer = of_file.tokenizer().expect("a tokenizer");
    assert_eq!(tokenizer.encode("a b\n", false).expect("ids"), [2, 1, 3, 0]);
    assert_says(
        &tokenizer
            .encode("az", false)
            .expect_err("refused")
            .to_string(),
        &["'z'", "14"],
    );
    let directory = tempfile::tempdir().expect("a directory");
    let text = directory.path().join("input.txt");
    std::fs::write(&text, "lake a jade big cliff h\n").expect("writes");
    let named = PathBuf::from(format!("characters:{}", text.display()));
    let of_text = form(&TokenizerFile::named(&named, None).expect("a text"));
    for id in 0..14 {
        assert_eq!(of_text.label(id), of_file.label(id), "{id}");
    }
    // A table beside the weights, as code writes it with pickle or json.
    let path = directory.path().join("mine.pt");
    std::fs::copy(fixture("early.pt"), path).expect("copies");
    let table = r#"{"stoi": {"\n": 0, " ": 1, "a": 2}}"#;
    std::fs::write(directory.path().join("vocab.json"), table).expect("writes");
    let found = opened(directory.path(), &[]).checkpoint.tokenizer.clone();
    assert_eq!(form(&found).label(2), "a");
}

#[test]
fn without_the_order_of_the_tensors_the_place_of_norms_is_asked_for() {
    let (_directory, path) = changed("copy.pt", |_| {});
    assert_says(
        &fails(&path, &["n_heads=2", "activation=gelu"]),
        &["tell norm_first;"],
    );
    let model = opened(&path, &["n_heads=2", "activation=gelu", "norm_first=true"]);
    agrees(&model, &reference("copy"));
}

#[test]
fn equal_readings_and_tensors_without_a_part_are_refused_by_name() {
    let set = ["n_heads=2", "activation=gelu", "norm_first=true"];
    let said = |change: &dyn Fn(&mut Weights)| {
        let (_directory, path) = changed("copy.pt", change);
        fails(&path, &set)
    };
    let table = Stored::f32(&[9, 16], &[0.5; 9 * 16]);
    let two_tables =
        said(&|weights| drop(weights.insert("item_emb.weight".to_owned(), table.clone())));
    assert_says(
        &two_tables,
        &["item_emb.weight", "tok_emb.weight", "as well"],
    );
    let square = Stored::f32(&[16, 16], &[0.5; 256]);
    let two_outputs = said(&|weights| {
        for layer in 0..2 {
            weights.insert(
                format!("transformer_blocks.{layer}.attn.out.weight"),
                square.clone(),
            );
        }
    });
    assert_says(
        &two_outputs,
        &["attn.out.weight", "attn.proj.weight", "output map"],
    );
    let scale = Stored::f32(&[16], &[0.5; 16]);
    let extra = said(&|weights| {
        for layer in 0..2 {
            weights.insert(
                format!("transformer_blocks.{layer}.layer_scale.gamma"),
                scale.clone(),
            );
        }
    });
    assert_says(
        &extra,
        &["layer_scale.gamma", "fits no part", "attnscope guess"],
    );
    let uneven = said(&|weights| drop(weights.remove("transformer_blocks.1.ffn.0.bias")));
    assert_says(&uneven, &["transformer_blocks.1", "alike"]);
    let window: Vec<f32> = (0..144)
        .map(|at| f32::from(u8::from(at % 12 <= at / 12 && at % 12 + 3 > at / 12)))
        .collect();
    let masked =
        said(&|weights| drop(weights.insert("mask".to_owned(), Stored::f32(&[12, 12], &window))));
    assert_says(&masked, &["tensor mask", "not causal"]);
}

#[test]
fn one_of_several_models_opens_by_name() {
    let path = fixture("several.pt");
    assert_says(
        &fails(&path, &[]),
        &[
            "holds 2 models",
            "generator, encoder",
            "several.pt#generator",
        ],
    );
    let encoder = opened(&fixture("several.pt#encoder"), &["activation=relu"]);
    assert_eq!(encoder.checkpoint.name, "several#encoder");
    agrees(&encoder, &reference("nanda"));
    agrees(
        &opened(&fixture("several.pt#generator"), &[]),
        &reference("early"),
    );
    let opens = |name: &str| {
        opening(&fixture(name), &[])
            .open()
            .map_err(|e| e.to_string())
    };
    assert_says(
        &opens("several.pt#critic").expect_err("refused"),
        &["\"critic\"", "generator, encoder"],
    );
    assert_says(
        &opens("early.pt#model").expect_err("refused"),
        &["one state dict", "leave out #model"],
    );
    assert_says(
        &opens("early.reference.safetensors#model").expect_err("refused"),
        &["torch.save", "leave out #model"],
    );
    // A file that has this name is the file.
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::copy(&path, directory.path().join("a.pt")).expect("copies");
    let real = directory.path().join("a.pt#encoder.pt");
    std::fs::copy(fixture("early.pt"), &real).expect("copies");
    agrees(&opened(&real, &[]), &reference("early"));
}

#[test]
fn changed_shapes_and_missing_tensors_are_read_or_refused_in_one_line() {
    let set = [
        "n_heads=2",
        "activation=relu",
        "norm_first=true",
        "embed_scale=1",
        "positions=none",
    ];
    let (mut n_read, mut n_refused) = (0, 0);
    for name in ["lecture", "copy", "post", "gated", "early", "nanda"] {
        let whole = stored(&fixture(&format!("{name}.pt")));
        let mut tries = |weights: &Weights| {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("weights.safetensors");
            std::fs::write(&path, file_of(weights)).expect("writes");
            match opening(&path, &set)
                .open()
                .and_then(attnscope_families::read)
            {
                Ok(_) => n_read += 1,
                Err(e) => {
                    n_refused += 1;
                    assert_eq!(e.to_string().lines().count(), 1, "{e}");
                }
            }
        };
        for name in some_of(whole.keys(), 4) {
            let n: usize = whole[name].shape.iter().product();
            for shape in [
                vec![n],
                vec![1, n],
                vec![n, 1],
                vec![n / 2, 2],
                vec![1, 1, n],
                vec![2, 2, n / 4],
                vec![0, 7],
                vec![],
            ] {
                let mut weights = whole.clone();
                let tensor = weights.get_mut(name).expect("a tensor");
                tensor.bytes.resize(4 * shape.iter().product::<usize>(), 0);
                tensor.shape = shape;
                tries(&weights);
            }
            let mut weights = whole.clone();
            let tensor = weights.remove(name).expect("a tensor");
            tries(&weights);
            weights.insert(name.replace('0', "7"), tensor.clone());
            weights.insert(name.replace('0', "99999999999999999999999"), tensor);
            tries(&weights);
        }
    }
    assert!(
        n_read > 5 && n_refused > 50,
        "{n_read} read, {n_refused} refused"
    );
}
