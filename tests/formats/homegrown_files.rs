//! Weights without a configuration: what names and shapes tell is read, what they leave open is asked for, and the result
//! is what PyTorch computes.

use std::path::{Path, PathBuf};

use attnscope_compute::ops::Cpu;
use attnscope_prompt::{PromptForm, Request, Target, Tokenizer};
use attnscope_spec::{Model, StackSpec};
use safetensors::SafeTensors;
use testing::checkpoint_copy::{
    Copy, Stored, Weights, attnscope as program, file_of, original, text, weights,
};
use testing::effort::some_of;
use testing::hooks::hooks_of;
use testing::opening::{fails, knob, opened, opening};
use testing::refusal::{PROMPT, assert_says, refused};

const PATTERN_TOLERANCE: f64 = 2e-4;
const RELATIVE_TOLERANCE: f64 = 2e-3;

fn fixtures() -> PathBuf {
    testing::root().join("fixtures/formats/homegrown")
}

pub(crate) fn f32s(bytes: &[u8]) -> Vec<f32> {
    let values = bytes.chunks(4);
    values
        .map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")))
        .collect()
}

/// Runs the tokens of a reference and compares everything in it.
pub(crate) fn agrees(model: &Model, reference: &Path) {
    let bytes = std::fs::read(reference).expect("a reference");
    let reference = SafeTensors::deserialize(&bytes).expect("a reference");
    let ids = |name: &str| -> Option<Vec<u32>> {
        let tokens = reference.tensor(name).ok()?;
        let ids = tokens.data().chunks(8);
        let id = |b: &[u8]| i64::from_le_bytes(b.try_into().expect("8 bytes")) as u32;
        Some(ids.map(id).collect())
    };
    let mut request = Request::ids(ids("tokens").expect("tokens"));
    if let Some(target) = ids("decoder_tokens") {
        request.target = Target::Ids(target);
    }
    agrees_on(model, &request, &reference);
}

/// Compares patterns, residuals and logits of a prompt with those of a reference.
pub(crate) fn agrees_on(model: &Model, request: &Request, reference: &SafeTensors<'_>) {
    let ours = hooks_of(&Cpu, model, request);
    let mut n_compared = 0;
    for name in reference.names() {
        let kind = name.rsplit('.').next().unwrap_or(name);
        if !["pattern", "resid_post", "logits"].contains(&kind) {
            continue;
        }
        let expected = f32s(reference.tensor(name).expect("a tensor").data());
        let found = &ours[name];
        assert_eq!(found.len(), expected.len(), "{name}");
        let pairs = || {
            let pairs = found.iter().zip(&expected);
            pairs.map(|(a, b)| (f64::from(*a), f64::from(*b)))
        };
        let difference = if kind == "pattern" {
            let worst = pairs().map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            worst / PATTERN_TOLERANCE
        } else {
            let squared: f64 = pairs().map(|(a, b)| (a - b).powi(2)).sum();
            let norm: f64 = pairs().map(|(_, b)| b * b).sum();
            (squared / norm).sqrt() / RELATIVE_TOLERANCE
        };
        assert!(difference <= 1.0, "{name}: {difference} of what is allowed");
        n_compared += 1;
    }
    assert!(n_compared >= 2, "compared {n_compared}");
}

fn reference(name: &str) -> PathBuf {
    fixtures().join(format!("{name}.reference.safetensors"))
}

#[test]
fn a_trainer_s_checkpoint_of_nanogpt_needs_nothing_more() {
    let model = opened(&fixtures().join("nanogpt"), &[]);
    assert_eq!(model.spec.family, "nanogpt");
    assert_eq!(model.checkpoint.name, "nanogpt");
    let origin = |name: &str| knob(&model, name).1;
    assert_eq!(origin("n_heads"), "from model_args n_head");
    assert_eq!(origin("d_model"), "from shape of transformer.wte.weight");
    assert_eq!(
        knob(&model, "n_layers"),
        ("2".to_owned(), "from the tensors' names".to_owned())
    );
    agrees(&model, &reference("nanogpt"));
    let prompt_form = Tokenizer::open(&model.checkpoint.tokenizer).expect("opens");
    assert_eq!(prompt_form.describe(), "a table of 9 characters");
    let ids = prompt_form
        .tokenizer()
        .expect("a tokenizer")
        .encode("oak", true)
        .expect("encodes");
    assert_eq!(prompt_form.label(ids[0]), "o");
    // The file alone is the same model, under its own name.
    let file = opened(&fixtures().join("nanogpt/ckpt.pt"), &[]);
    assert_eq!(file.checkpoint.name, "ckpt");
    agrees(&file, &reference("nanogpt"));
}

#[test]
fn what_the_weights_leave_open_is_asked_for_and_then_enough() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("nanogpt_bias", "nanogpt_bias/mine.pth", &["n_heads=3"]),
        (
            "meta",
            "meta",
            &["n_heads=3", "rope_theta=500", "norm_eps=1e-3"],
        ),
        (
            "encoder",
            "encoder/weights.safetensors",
            &[
                "n_heads=3",
                "mask=bidirectional",
                "activation=relu",
                "norm_first=false",
                // Twenty-four to the power of one half, as the model multiplies by it.
                "embed_scale=4.898979486",
            ],
        ),
        (
            "causal_encoder",
            "causal_encoder",
            &[
                "n_heads=3",
                "mask=causal",
                "activation=gelu",
                "norm_first=true",
                "embed_scale=1",
            ],
        ),
        (
            "translator",
            "translator",
            &[
                "n_heads=3",
                "activation=relu",
                "norm_first=false",
                "embed_scale=sqrt_d",
                "start_token=2",
            ],
        ),
        (
            "learned_translator",
            "learned_translator",
            &[
                "n_heads=3",
                "activation=gelu",
                "norm_first=true",
                "embed_scale=1",
                "start_token=2",
            ],
        ),
        (
            "computed_translator",
            "computed_translator",
            &[
                "n_heads=2",
                "activation=relu",
                "norm_first=false",
                "embed_scale=1",
                "positions=sines",
                "start_token=2",
            ],
        ),
    ];
    for (name, path, needed) in cases {
        let path = fixtures().join(path);
        let said = fails(&path, &[]);
        for part in *needed {
            let key = part.split('=').next().expect("a key");
            assert!(said.contains(&format!("--set {key}=")), "{said}");
        }
        assert_eq!(said.lines().count(), 1, "{said}");
        for idx in 0..needed.len() {
            let mut fewer = needed.to_vec();
            let left_out = fewer.remove(idx);
            let said = fails(&path, &fewer);
            let key = left_out.split('=').next().expect("a key");
            assert_says(
                &said,
                &["do not tell", &format!("tell {key};"), "attnscope.toml"],
            );
        }
        let model = opened(&path, needed);
        assert_eq!(knob(&model, "n_heads").1, "set on the command line");
        agrees(&model, &reference(name));
        assert_eq!(model.spec.is_causal_lm, *name != "encoder", "{name}");
    }
}

#[test]
fn meta_s_own_sizes_beside_the_weights_are_used() {
    let directory = tempfile::tempdir().expect("a directory");
    let weights = directory.path().join("consolidated.00.pth");
    std::fs::copy(fixtures().join("meta/consolidated.00.pth"), &weights).expect("copies");
    let params = directory.path().join("params.json");
    let write = |text: &str| std::fs::write(&params, text).expect("writes");
    write(
        r#"{"dim": 24, "n_layers": 2, "n_heads": 3, "n_kv_heads": 1, "norm_eps": 1e-3, "rope_theta": 500.0, "vocab_size": -1}"#,
    );
    let model = opened(directory.path(), &[]);
    agrees(&model, &reference("meta"));
    assert_eq!(knob(&model, "norm_eps").1, "from params.json norm_eps");
    assert_eq!(knob(&model, "rope_interleaved").0, "true");
    // What is said wins over what is written, and a contradiction is told.
    assert!(
        opened(directory.path(), &["norm_eps=1e-6"])
            .spec
            .knobs
            .iter()
            .any(|k| k.value == "1e-6")
    );
    write(r#"{"dim": 32, "n_heads": 3}"#);
    assert_says(
        &fails(directory.path(), &[]),
        &["shape says 24", "params.json dim says 32"],
    );
    write(r#"{"n_layers": 3, "n_heads": 3}"#);
    assert_says(
        &fails(directory.path(), &[]),
        &["2 layers are stored", "says 3"],
    );
    write(r#"{"use_scaled_rope": true, "n_heads": 3}"#);
    assert_says(&fails(directory.path(), &[]), &["scales rotary positions"]);
}

#[test]
fn hugging_face_s_weights_without_their_configuration_are_known_by_their_names() {
    for (family, set) in [
        ("gpt2", &["n_heads=4"][..]),
        ("llama", &["n_heads=4", "rope_theta=10000", "norm_eps=1e-5"]),
        ("bert", &["n_heads=4"]),
    ] {
        let copy = Copy::of(family);
        copy.remove("config.json");
        let with_config =
            attnscope_families::read(opening(&original(family), &[]).open().expect("opens"))
                .expect("reads");
        let model = opened(copy.path(), set);
        assert_eq!(model.spec.family, family);
        // The weights alone give the same description; llama's fixture has a context that no shape tells.
        for (a, b) in model.spec.stacks.iter().zip(&with_config.spec.stacks) {
            let projections = |stack: &StackSpec| {
                stack.blocks()[0]
                    .own()
                    .expect("attention")
                    .projections
                    .clone()
            };
            assert_eq!(projections(a), projections(b), "{family}");
            assert_eq!(a.embed, b.embed, "{family}");
            assert_eq!(a.final_norm.is_some(), b.final_norm.is_some(), "{family}");
        }
        assert_eq!(model.spec.head, with_config.spec.head, "{family}");
    }
}

#[test]
fn weights_of_no_known_layout_are_refused_with_what_is_known_and_found() {
    let copy = Copy::of("gpt2");
    copy.remove("config.json");
    copy.weights(|weights| {
        *weights = std::mem::take(weights)
            .into_iter()
            .enumerate()
            .map(|(idx, (_, stored))| (format!("x.{idx:03}"), stored))
            .collect();
    });
    let said = refused("report", copy.path(), PROMPT);
    assert_says(
        &said,
        &[
            "no layout that is known",
            "nanoGPT",
            "Llama",
            "BERT",
            "found x.",
        ],
    );
}

#[test]
fn a_layer_with_a_part_of_its_own_is_not_taken_for_a_known_one() {
    let copy = Copy::of("llama");
    copy.remove("config.json");
    copy.weights(|weights| {
        let norm = weights["model.layers.1.input_layernorm.weight"].clone();
        weights.insert(
            "model.layers.1.pre_feedforward_layernorm.weight".to_owned(),
            norm,
        );
    });
    let said = fails(
        copy.path(),
        &["n_heads=4", "rope_theta=10000", "norm_eps=1e-5"],
    );
    assert_says(
        &said,
        &["pre_feedforward_layernorm", "is no part of a layer"],
    );
}

#[test]
fn weights_are_chosen_among_the_files_of_a_directory() {
    let copy = Copy::of("gpt2");
    std::fs::rename(copy.file("model.safetensors"), copy.file("old.safetensors")).expect("renames");
    // The only one is taken; of two, one must be named.
    assert_eq!(opened(copy.path(), &[]).spec.family, "gpt2");
    std::fs::copy(copy.file("old.safetensors"), copy.file("new.safetensors")).expect("copies");
    assert_says(
        &refused("report", copy.path(), PROMPT),
        &["holds 2 files", "--weights FILE"],
    );
    for command in ["report", "tensors"] {
        let path = copy.path().to_str().expect("a path");
        let prompt = if command == "report" { PROMPT } else { &[] };
        let output = program(&[&[command, path, "--weights", "new.safetensors"], prompt].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let said = refused("tensors", copy.path(), &["--weights", "absent.pt"]);
    assert_says(&said, &["absent.pt", "no such file"]);
    let said = refused(
        "tensors",
        &copy.file("new.safetensors"),
        &["--weights", "old.safetensors"],
    );
    assert_says(&said, &["found a file", "--weights"]);
    // A bare file has the configuration beside it.
    assert_eq!(
        opened(&copy.file("new.safetensors"), &[]).spec.family,
        "gpt2"
    );
}

/// Tensors of every layout that is known by its names, and what they leave open.
fn layouts() -> Vec<(Weights, Vec<&'static str>)> {
    let of = |path: PathBuf| weights(&std::fs::read(path).expect("reads"));
    let torch = |last| {
        let set = [
            "n_heads=3",
            "activation=relu",
            "norm_first=false",
            "embed_scale=1",
        ];
        [&set[..], &[last]].concat()
    };
    let oracle = |family: &str| of(original(family).join("model.safetensors"));
    let homegrown = |name: &str| of(fixtures().join(name).join("weights.safetensors"));
    let llama = vec!["n_heads=4", "rope_theta=10000", "norm_eps=1e-5"];
    vec![
        (oracle("gpt2"), vec!["n_heads=4"]),
        (oracle("llama"), llama),
        (oracle("bert"), vec!["n_heads=4"]),
        (homegrown("encoder"), torch("mask=bidirectional")),
        (homegrown("causal_encoder"), torch("mask=causal")),
        (homegrown("translator"), torch("start_token=2")),
        (homegrown("learned_translator"), torch("start_token=2")),
    ]
}

#[test]
fn weights_that_lack_a_part_or_have_another_shape_are_an_error_or_a_reading() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("weights.safetensors");
    let read = |weights: &Weights, set: &[&str]| {
        // Some file systems flush a file that is written over, and wait for it.
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, file_of(weights)).expect("writes");
        let read = opening(&path, set)
            .open()
            .and_then(attnscope_families::read);
        read.map_err(|e| assert_eq!(e.to_string().lines().count(), 1, "{e}"))
    };
    let (mut n_read, mut n_refused) = (0, 0);
    for (whole, set) in layouts() {
        assert!(read(&whole, &set).is_ok());
        for name in some_of(whole.keys(), 3) {
            let changed = |change: &dyn Fn(&mut Weights)| {
                let mut weights = whole.clone();
                change(&mut weights);
                read(&weights, &set).is_ok()
            };
            let n: usize = whole[name].shape.iter().product();
            let shapes = [
                vec![n],
                vec![1, n],
                vec![n, 1],
                vec![n / 2, 2],
                vec![1, 1, n],
                vec![0, 7],
                vec![],
            ];
            for shape in shapes {
                let is_read = changed(&|weights| {
                    let stored = weights.get_mut(name).expect("a tensor");
                    let n_new: usize = shape.iter().product();
                    let size = stored.bytes.len() / n;
                    stored.bytes.resize(n_new * size, 0);
                    stored.shape.clone_from(&shape);
                });
                n_read += usize::from(is_read);
                n_refused += usize::from(!is_read);
            }
            n_refused += usize::from(!changed(&|weights| drop(weights.remove(name))));
            changed(&|weights| {
                let stored = weights[name].clone();
                weights.insert(name.replace('0', "7"), stored.clone());
                weights.insert(name.replace('0', "99999999999999999999999"), stored);
            });
        }
    }
    assert!(
        n_read > 50 && n_refused > 500,
        "{n_read} read, {n_refused} refused"
    );
}

#[test]
fn a_nanogpt_with_gpt_2_s_vocabulary_takes_ids_and_says_why() {
    let zeros = |shape: &[usize]| Stored::f32(shape, &vec![0.0; shape.iter().product()]);
    let mut weights = Weights::new();
    for (name, shape) in [
        ("wte", &[50304, 2][..]),
        ("wpe", &[8, 2]),
        ("ln_f", &[2]),
        ("h.0.ln_1", &[2]),
        ("h.0.ln_2", &[2]),
        ("h.0.attn.c_attn", &[6, 2]),
        ("h.0.attn.c_proj", &[2, 2]),
        ("h.0.mlp.c_fc", &[8, 2]),
        ("h.0.mlp.c_proj", &[2, 8]),
    ] {
        weights.insert(format!("transformer.{name}.weight"), zeros(shape));
    }
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("mine.safetensors"), file_of(&weights)).expect("writes");
    let model = opened(directory.path(), &["n_heads=1"]);
    let prompt_form = Tokenizer::open(&model.checkpoint.tokenizer).expect("a reading");
    assert_says(
        &prompt_form.describe(),
        &["ids only", "tiktoken", "meta.pkl"],
    );
    let meta = directory.path().join("meta.pkl");
    std::fs::write(&meta, b"\x80\x02}.").expect("writes");
    let model = opened(directory.path(), &["n_heads=1"]);
    let prompt_form = Tokenizer::open(&model.checkpoint.tokenizer).expect("a reading");
    assert_says(&prompt_form.describe(), &["ids only", "no stoi"]);
}

#[test]
fn a_decoder_with_words_of_its_own_has_ids_of_its_own() {
    let set = [
        "n_heads=3",
        "activation=relu",
        "norm_first=false",
        "embed_scale=sqrt_d",
        "start_token=2",
    ];
    let model = opened(&fixtures().join("translator"), &set);
    let limits = model.spec.limits();
    assert_eq!((limits.d_vocab, limits.d_vocab_target), (20, Some(14)));
    let no_text = PromptForm::Ids("not asked for".to_owned());
    let prepared = |source: u32, target: u32| {
        let request = Request {
            target: Target::Ids(vec![target]),
            ..Request::ids(vec![source])
        };
        attnscope_prompt::prepare(&request, &no_text, limits).map_err(|e| e.to_string())
    };
    assert!(prepared(19, 13).is_ok());
    assert_says(&prepared(20, 13).expect_err("refused"), &["id 20", "0..19"]);
    assert_says(&prepared(19, 14).expect_err("refused"), &["id 14", "0..13"]);
    // One table for both sides is one vocabulary.
    let set = [
        "n_heads=2",
        "activation=relu",
        "norm_first=false",
        "embed_scale=1",
        "positions=none",
        "start_token=2",
    ];
    let model = opened(&fixtures().join("computed_translator"), &set);
    assert_eq!(model.spec.limits().d_vocab_target, None);
    let bad = [&set[..5], &["start_token=14"]].concat();
    assert_says(
        &fails(&fixtures().join("computed_translator"), &bad),
        &["below 14", "found 14"],
    );
}

#[test]
fn a_decoder_without_its_encoder_is_refused() {
    let copy = Copy::of("gpt2");
    copy.remove("config.json");
    let whole =
        weights(&std::fs::read(fixtures().join("translator/weights.safetensors")).expect("reads"));
    copy.weights(|weights| {
        *weights = whole.clone();
        weights.retain(|name, _| !name.contains("encoder.layers"));
    });
    let said = refused("report", copy.path(), PROMPT);
    assert_says(&said, &["multihead_attn", "attends to an encoder"]);
}
