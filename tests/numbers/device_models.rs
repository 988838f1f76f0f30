//! Whole models on a device of candle and on the CPU: the same statistics of every head, entropies within 1e-3.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use attnscope_checks::stats::{LayerReport, STATISTICS};
use attnscope_compute::ops::{Candle, Cpu, Ops};
use attnscope_forward::{Input, Sequence};
use attnscope_prompt::PromptForm;
use attnscope_run::{HeadQuery, KEEP_BYTES, Kept, Observer, Options, Progress};
use attnscope_spec::Model;
use testing::effort::{one_of_each, some_of};
use testing::on_each_device;
use testing::oracle_case::{cases, heard_by, model_of, picture_of, reference_bytes, request_of};

/// Of an entropy, in nats.
const ENTROPY_TOLERANCE: f64 = 1e-3;

/// Of a statistic: this part of it, or of 1.
const TOLERANCE: f64 = 2e-3;

#[derive(Default)]
struct Keep {
    layers: Vec<LayerReport>,
    kept: Option<Arc<Kept>>,
}

impl Observer for Keep {
    fn progress(&mut self, _: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn layer(&mut self, report: LayerReport) -> ControlFlow<()> {
        self.layers.push(report);
        ControlFlow::Continue(())
    }

    fn keeping(&mut self, kept: &Arc<Kept>) {
        self.kept = Some(kept.clone());
    }
}

/// Tokens with repeats, as many as the model has positions for; both sides of an encoder–decoder model. For a model that sees
/// or hears, what its case gives it.
fn input_for(case: &Path, model: &Model) -> Input {
    if picture_of(case).is_some() || heard_by(case).is_some() {
        let bytes = reference_bytes(case);
        let reference = safetensors::SafeTensors::deserialize(&bytes).expect("a reference");
        let request = request_of(case, &reference);
        let no_text = PromptForm::Ids("not asked for".to_owned());
        let prompt =
            attnscope_prompt::prepare(&request, &no_text, model.spec.limits()).expect("fits");
        return attnscope_run::input_of(&prompt);
    }
    // Latents are few.
    let n_ids = model.spec.d_vocab.clamp(1, 23);
    let sequence = |n: usize, step: usize| Sequence {
        picture: None,
        tokens: (0..n)
            .map(|i| ((i * i * step + 3 * i) % n_ids) as u32)
            .collect(),
        positions: (0..n).collect(),
        real: None,
        ..Sequence::default()
    };
    let has_encoder = model.spec.stacks.len() > 1;
    Input {
        source: has_encoder.then(|| sequence(17, 5)),
        sequence: sequence(model.spec.n_ctx.map_or(22, |n| n.min(22)), 7),
    }
}

fn run<O: Ops>(ops: &O, model: &Model, input: &Input) -> Keep {
    let options = Options {
        keep_bytes: Some(KEEP_BYTES),
        predicts: true,
    };
    let mut keep = Keep::default();
    attnscope_run::run(ops, model, input, options, &mut keep, None, &|| false).expect("runs");
    keep
}

/// How far apart two numbers are; both may be NaN.
fn apart(found: f64, expected: f64, tolerance: f64, place: impl Fn() -> String) -> f64 {
    if (found.is_nan() && expected.is_nan()) || found == expected {
        return 0.0;
    }
    let apart = (found - expected).abs();
    assert!(
        apart <= tolerance,
        "{}: expected {expected}, found {found}",
        place()
    );
    apart
}

fn same_statistics(candle: &Candle) {
    let mut furthest = 0.0f64;
    for path in some_of(one_of_each(cases()), 2) {
        let model = model_of(&path).expect("is understood");
        let input = input_for(&path, &model);
        let (found, expected) = (run(candle, &model, &input), run(&Cpu, &model, &input));
        assert_eq!(found.layers.len(), expected.layers.len());
        for (found, expected) in found.layers.iter().zip(&expected.layers) {
            let place = format!("{} layer {}", path.display(), found.layer_idx);
            let heads = found.heads.iter().zip(&expected.heads).enumerate();
            for (head_idx, (found, expected)) in heads {
                let rows = found.summary.rows.iter().zip(&expected.summary.rows);
                for (query_idx, (found, expected)) in rows.enumerate() {
                    let at = || format!("{place} head {head_idx} query {query_idx}: entropy");
                    let entropies = (f64::from(found.entropy), f64::from(expected.entropy));
                    let apart = apart(entropies.0, entropies.1, ENTROPY_TOLERANCE, at);
                    furthest = furthest.max(apart);
                }
                for (idx, statistic) in STATISTICS.iter().enumerate() {
                    let at = || format!("{place} head {head_idx}: {}", statistic.id);
                    let expected = expected.stats.at(idx);
                    let tolerance = TOLERANCE * expected.abs().max(1.0);
                    apart(found.stats.at(idx), expected, tolerance, at);
                }
            }
            for (idx, statistic) in STATISTICS.iter().enumerate() {
                let expected = expected.stats.at(idx);
                let tolerance = TOLERANCE * expected.abs().max(1.0);
                apart(found.stats.at(idx), expected, tolerance, || {
                    format!("{place}: {}", statistic.id)
                });
            }
        }
    }
    testing::devices::tell(&format!("entropies {furthest:e}"));
}

/// The head on screen, which runs alone from a kept layer input.
fn same_head(candle: &Candle) {
    for name in ["gpt2", "t5_v11"] {
        let path = testing::root().join("fixtures/oracle");
        let path = path.join(name);
        let model = model_of(&path).expect("is understood");
        let input = input_for(&path, &model);
        let stacks = [
            model.spec.stacks.last().map(|stack| stack.stack),
            (name == "t5_v11").then_some(attnscope_spec::Stack::Cross),
        ];
        for stack in stacks.into_iter().flatten() {
            let query = HeadQuery {
                stack,
                layer_idx: 1,
                head_idx: 1,
                hides_first_key: false,
                weighs_values: false,
            };
            let kept = run(candle, &model, &input).kept.expect("kept inputs");
            let found = attnscope_run::head_detail(candle, &model, &input, &kept, query, &|| false);
            let found = found.expect("runs");
            let kept = run(&Cpu, &model, &input).kept.expect("kept inputs");
            let expected =
                attnscope_run::head_detail(&Cpu, &model, &input, &kept, query, &|| false);
            let expected = expected.expect("runs");
            let patterns = (found.pattern.finest(), expected.pattern.finest());
            assert_eq!(patterns.0.cells.len(), patterns.1.cells.len());
            for (found, expected) in patterns.0.cells.iter().zip(&patterns.1.cells) {
                let values = (f64::from(*found), f64::from(*expected));
                apart(values.0, values.1, 2e-4, || format!("{name} {stack:?}"));
            }
        }
    }
}

on_each_device! {
    every_family_has_the_statistics_that_it_has_on_the_cpu: same_statistics;
    a_head_that_runs_alone_has_the_pattern_that_it_has_on_the_cpu: same_head;
}
