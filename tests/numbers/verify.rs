//! Two engines side by side: they agree on every family, and a fault of one is found where it is.

use std::path::Path;

use attnscope_compare::ROW_BYTES;
use attnscope_compare::verify::{DeviceDifference, Floor, ValuePlace, VerifyOptions};
use attnscope_compute::ops::{Candle, Cpu, Ops};
use attnscope_forward::Input;
use attnscope_prompt::{PromptForm, Request, Target};
use attnscope_run::{WhatIf, input_of, with_what_ifs};
use attnscope_spec::{Model, Stack};
use safetensors::SafeTensors;
use testing::effort::{one_of_each, some_of};
use testing::nudged::{Fault, Nudged};
use testing::on_each_device;
use testing::opening::opened;
use testing::oracle_case::{cases, model_of, reference_bytes, request_of};

fn input(model: &Model, request: &Request) -> Input {
    let no_text = PromptForm::Ids("not asked for".to_owned());
    let limits = model.spec.limits();
    input_of(&attnscope_prompt::prepare(request, &no_text, limits).expect("fits"))
}

/// Seven tokens on every side of a model.
fn few_tokens(model: &Model) -> Input {
    let d_vocab = model.spec.limits().d_vocab as u32;
    let ids = |by: u32| (0..7).map(|idx| (3 + idx * by) % d_vocab.min(23)).collect();
    let has_encoder = model.spec.stacks.len() > 1;
    let target = if has_encoder {
        Target::Ids(ids(5))
    } else {
        Target::Generate(0)
    };
    let request = Request {
        target,
        ..Request::ids(ids(7))
    };
    input(model, &request)
}

fn verified<B: Ops>(
    other: &B,
    model: &Model,
    input: &Input,
    row_bytes: usize,
) -> Vec<DeviceDifference> {
    let options = VerifyOptions {
        row_bytes,
        floor: Floor::default(),
    };
    let both = (&Cpu, other);
    attnscope_compare::verify::verify(both, model, input, options, &|_| {}, &|| false)
        .expect("runs")
}

fn oracle(name: &str) -> Model {
    let case = testing::root().join("fixtures/oracle").join(name);
    opened(&case.join("model"), &[])
}

/// The largest share of the floor, and of which hook.
fn worst(found: &[DeviceDifference]) -> &DeviceDifference {
    let worst = found
        .iter()
        .max_by(|a, b| a.tolerance_used.total_cmp(&b.tolerance_used));
    worst.expect("hooks")
}

/// That every hook of every layer was compared and is within the floor.
fn assert_agree(case: &Path, model: &Model, found: &[DeviceDifference]) {
    let name = case.display();
    for hook in found {
        assert!(hook.is_within(), "{name}: {hook:?}");
        assert!(hook.magnitude.is_finite(), "{name}: {hook:?}");
    }
    for stack in model.spec.grids() {
        for layer_idx in 0..model.spec.n_layers(stack) {
            let of_layer = found
                .iter()
                .filter(|hook| hook.layer == Some((stack, layer_idx)));
            let names: Vec<&str> = of_layer.map(|hook| hook.name.as_str()).collect();
            let has = |end: &str| names.iter().filter(|name| name.ends_with(end)).count();
            let n = usize::from(model.spec.n_heads(stack, layer_idx) > 0);
            for hook in [".scores", ".pattern", ".q", ".z"] {
                assert_eq!(
                    has(hook),
                    n,
                    "{name} {stack:?} {layer_idx}: {hook} in {names:?}"
                );
            }
            // A layer of a decoder may have no cross-attention, and then nothing of that grid.
            let is_absent = stack == Stack::Cross && n == 0 && names.is_empty();
            // What shares the softmax of the block's own attention has no residual of its own behind it.
            let block = model.spec.stack_of(Stack::Decoder).blocks().get(layer_idx);
            let is_merged = block.is_some_and(|block| block.merged().is_some());
            let is_absent = is_absent || stack == Stack::Cross && is_merged;
            assert_eq!(
                has("resid_post"),
                usize::from(!is_absent),
                "{name} {stack:?} {layer_idx}: {names:?}"
            );
        }
    }
    let names: Vec<&str> = found.iter().map(|hook| hook.name.as_str()).collect();
    assert!(names.contains(&"last_hidden_state"), "{name}");
    assert_eq!(
        names.contains(&"logits"),
        model.spec.head.is_some(),
        "{name}"
    );
    let has_encoder = model.spec.stacks.iter().any(|s| s.stack == Stack::Encoder);
    assert_eq!(
        names.contains(&"encoder.last_hidden_state"),
        has_encoder,
        "{name}"
    );
}

fn every_family(candle: &Candle) {
    for case in some_of(one_of_each(cases()), 2) {
        let bytes = reference_bytes(&case);
        let reference = SafeTensors::deserialize(&bytes).expect("a reference");
        let model = model_of(&case).expect("opens");
        let input = input(&model, &request_of(&case, &reference));
        let found = verified(candle, &model, &input, ROW_BYTES);
        assert_agree(&case, &model, &found);
        // Two engines that round alike everywhere would be one.
        let worst = worst(&found);
        assert!(worst.difference > 0.0, "{}", case.display());
        let relative = found.iter().filter(|hook| !hook.name.ends_with("pattern"));
        let relative = relative.map(|hook| hook.relative).fold(0.0, f64::max);
        let pattern = found.iter().filter(|hook| hook.name.ends_with("pattern"));
        let pattern = pattern.map(|hook| hook.difference).fold(0.0, f64::max);
        testing::devices::tell(&format!(
            "{} ({}): pattern {pattern:.1e}, relative {relative:.1e}, worst {}",
            case.file_name().expect("a name").display(),
            model.spec.family,
            worst.name
        ));
    }
}

fn every_translator(candle: &Candle) {
    let cases = testing::root().join("fixtures/seq2seq/cases");
    for entry in std::fs::read_dir(cases).expect("the cases") {
        let case = entry.expect("an entry").path();
        let model = opened(&case, &[]);
        let found = verified(candle, &model, &few_tokens(&model), ROW_BYTES);
        assert_agree(&case, &model, &found);
    }
}

on_each_device! {
    every_family_is_within_the_floor_of_the_cpu: every_family;
    every_recurrent_translator_is_within_the_floor_of_the_cpu: every_translator;
}

#[test]
fn a_layer_that_runs_again_for_more_heads_gives_the_same_differences() {
    let plain: &[&str] = &[];
    for (name, what_ifs) in [
        ("gpt2", plain),
        ("t5_v11", plain),
        // Several heads share keys: a round may hold only some of them.
        ("llama", plain),
        ("gpt2", &["scale=none@L1H1"]),
    ] {
        let model = oracle(name);
        let changes: Vec<WhatIf> = what_ifs.iter().map(|w| w.parse().expect(w)).collect();
        let model = model.with_spec(with_what_ifs(&model.spec, &changes).expect("possible"));
        let input = few_tokens(&model);
        let at_once = verified(&Candle::cpu(), &model, &input, ROW_BYTES);
        // Room for one head at a time, and for two.
        for row_bytes in [0, 2 * 7 * 7 * 8] {
            let in_rounds = verified(&Candle::cpu(), &model, &input, row_bytes);
            assert_eq!(in_rounds, at_once, "{name} {what_ifs:?}");
        }
        assert!(at_once.iter().all(DeviceDifference::is_within), "{name}");
    }
}

/// The first hook beyond the floor.
fn first_beyond(found: &[DeviceDifference]) -> &DeviceDifference {
    let first = found.iter().find(|hook| !hook.is_within());
    first.expect("the fault is found")
}

#[test]
fn a_value_that_one_engine_adds_wrongly_is_found_where_it_is() {
    let model = oracle("gpt2");
    let input = few_tokens(&model);
    let clean = Nudged::new(Fault::Sum {
        nth: usize::MAX,
        row: 0,
        column: 0,
        by: 1.0,
    });
    let found = verified(&clean, &model, &input, ROW_BYTES);
    assert_eq!(worst(&found).difference, 0.0, "one engine against itself");
    // A block adds twice: the fourth sum ends layer 1.
    let nudged = Nudged::new(Fault::Sum {
        nth: 3,
        row: 4,
        column: 5,
        by: 0.5,
    });
    let found = verified(&nudged, &model, &input, ROW_BYTES);
    let first = first_beyond(&found);
    assert_eq!(first.name, "blocks.1.resid_post");
    let place = ValuePlace::OfPosition {
        position_idx: 4,
        value_idx: 5,
    };
    assert_eq!(first.place, Some(place));
    assert!((first.difference - 0.5).abs() < 1e-6, "{first:?}");
    let after = found.iter().find(|hook| hook.name == "logits");
    assert!(
        !after.expect("logits").is_within(),
        "what follows moves too"
    );
}

#[test]
fn a_wrong_cell_is_found_in_its_layer_head_query_and_key() {
    let model = oracle("gpt2");
    let input = few_tokens(&model);
    let place = ValuePlace::Cell {
        head_idx: 1,
        query_idx: 5,
        key_idx: 2,
    };
    // A probability out of place, a score that is not a number, a mask that one engine lacks or adds.
    for (key_idx, score, probability, difference) in [
        (2, 0.0, 3.0, None),
        (2, f32::NAN, 0.1, Some(f64::INFINITY)),
        (2, f32::NEG_INFINITY, 0.0, Some(f64::INFINITY)),
        (6, 0.0, 0.0, Some(f64::INFINITY)),
    ] {
        let nudged = || {
            Nudged::new(Fault::Cell {
                nth: 1,
                head_idx: 1,
                query_idx: 5,
                key_idx,
                score,
                probability,
            })
        };
        let found = verified(&nudged(), &model, &input, ROW_BYTES);
        let beyond: Vec<&DeviceDifference> = found.iter().filter(|h| !h.is_within()).collect();
        assert!(!beyond.is_empty(), "{score} {probability}");
        for hook in &beyond {
            let is_cell = ["blocks.1.attn.scores", "blocks.1.attn.pattern"];
            assert!(is_cell.contains(&hook.name.as_str()), "{hook:?}");
            assert_eq!(hook.layer, Some((Stack::Only, 1)));
            let Some(ValuePlace::Cell {
                head_idx,
                query_idx,
                key_idx: found_key,
            }) = hook.place
            else {
                panic!("{hook:?}");
            };
            assert_eq!(
                (head_idx, query_idx, found_key),
                (1, 5, key_idx),
                "{hook:?}"
            );
        }
        match difference {
            Some(difference) => assert_eq!(beyond[0].difference, difference),
            None => assert!(beyond.iter().any(|hook| hook.place == Some(place))),
        }
    }
}

#[test]
fn a_run_that_is_stopped_gives_nothing() {
    let model = oracle("gpt2");
    let input = few_tokens(&model);
    let stopped = attnscope_compare::verify::verify(
        (&Cpu, &Candle::cpu()),
        &model,
        &input,
        VerifyOptions::default(),
        &|_| {},
        &|| true,
    );
    let error = stopped.expect_err("stopped");
    assert!(
        matches!(error, attnscope_compute::error::Error::Cancelled),
        "{error}"
    );
}
