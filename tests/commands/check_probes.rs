//! Probes and what-ifs against whole runs.

use std::ops::ControlFlow;
use std::path::Path;

use attnscope_checks::stats::LayerReport;
use attnscope_compute::attention::{Mask, Scale, SoftmaxAxis};
use attnscope_compute::ops::Cpu;
use attnscope_forward::Input;
use attnscope_run::{Change, Job, Kept, Observer, Options, Progress, Silent};
use attnscope_spec::{Model, ModelSpec, Stack};
use testing::effort::{some_of, tries_all};
use testing::judged::{fixture, prompt_of, reference_request, references_of_kinds, stories};
use testing::opening::opened;
use testing::oracle_case::model_of;

use super::readings_as_runs::losses;

const OPTIONS: Options = Options {
    keep_bytes: None,
    predicts: true,
};

/// What is changed by hand.
#[derive(Clone, Copy)]
struct Factors {
    axis: SoftmaxAxis,
    scale: Scale,
    causal: bool,
    qk_norm: bool,
}

/// A spec changed by hand: every layer or one.
fn by_hand(spec: &ModelSpec, layer: Option<usize>, factors: &Factors) -> ModelSpec {
    let mut spec = spec.clone();
    let blocks = spec.stacks[0].blocks_mut().iter_mut().enumerate();
    for (_, block) in blocks.filter(|(idx, _)| layer.is_none_or(|layer| layer == *idx)) {
        let own = block.own_mut().expect("attention");
        own.attention.softmax_axis = factors.axis;
        own.attention.scale = factors.scale;
        if !factors.causal {
            own.attention.mask = Mask {
                causal: false,
                window: None,
                streaming: None,
                pools: None,
            };
        }
        if !factors.qk_norm {
            own.projections.q_norm = None;
            own.projections.k_norm = None;
        }
    }
    spec
}

/// Keeps where layer inputs are, and the layers.
#[derive(Default)]
struct Keeping {
    kept: Option<std::sync::Arc<Kept>>,
    layers: Vec<LayerReport>,
}

impl Observer for Keeping {
    fn progress(&mut self, _: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn layer(&mut self, report: LayerReport) -> ControlFlow<()> {
        self.layers.push(report);
        ControlFlow::Continue(())
    }

    fn keeping(&mut self, kept: &std::sync::Arc<Kept>) {
        self.kept = Some(kept.clone());
    }
}

fn run_keeping(model: &Model, input: &Input, keep_bytes: usize) -> Keeping {
    let mut keeping = Keeping::default();
    let options = Options {
        keep_bytes: Some(keep_bytes),
        predicts: false,
    };
    let job = Job {
        input,
        observer: &mut keeping,
        tap: None,
    };
    attnscope_run::run_all(&Cpu, model, vec![job], options, &|| false).expect("runs");
    keeping
}

/// Inputs of a reference checkpoint, with targets where it has an encoder.
fn reference_inputs(model: &Model, case: &Path) -> Vec<Input> {
    let prompts = prompt_of(model, &reference_request(case, false));
    prompts.into_iter().map(|(_, input)| input).collect()
}

#[test]
fn what_is_declared_loses_in_a_race_of_readings_what_it_loses_in_a_run() {
    let mut n_compared = 0;
    for case in some_of(references_of_kinds(), 2) {
        let model = model_of(&case).expect("opens");
        let inputs = reference_inputs(&model, &case);
        let all = attnscope_run::losses_of_all_readings(&Cpu, &model, &inputs, &|| false);
        let all = all.expect("runs");
        let Some((declared, found)) = all.first() else {
            continue;
        };
        assert_eq!(declared.hypothesis.family, "declared");
        let ran = attnscope_run::run(
            &Cpu,
            &model,
            &inputs[0],
            OPTIONS,
            &mut Silent,
            None,
            &|| false,
        );
        let predictions = ran.expect("runs").predictions.expect("predicts");
        let expected = predictions.next_loss.expect("a loss");
        for (found, expected) in found.iter().zip(&expected) {
            let off = (found - expected).abs();
            // What predicts no token of a text has no loss in either.
            if found.is_nan() && expected.is_nan() {
                continue;
            }
            assert!(
                off <= 2e-4 * expected.abs().max(1.0),
                "{case:?}: {found} and {expected}"
            );
        }
        n_compared += 1;
    }
    let least = if tries_all() { 30 } else { 20 };
    assert!(n_compared >= least, "{n_compared} checkpoints have a loss");
}

#[test]
fn readings_that_a_spec_can_state_lose_what_a_run_of_that_spec_loses() {
    for name in [
        "healthy",
        "oracle/gpt2/model",
        "oracle/llama/model",
        "oracle/qwen3_b/model",
    ] {
        let model = opened(&fixture(name), &[]);
        let inputs: Vec<Input> = if name == "healthy" {
            stories(&model)
                .into_iter()
                .take(2)
                .map(|(_, input)| input)
                .collect()
        } else {
            reference_inputs(&model, &fixture(name.trim_end_matches("/model")))
        };
        let own = model.spec.stacks[0].blocks()[0].own().expect("attention");
        let (declared, has_norms) = (own.attention.scale, own.projections.q_norm.is_some());
        let usual = Factors {
            axis: SoftmaxAxis::Keys,
            scale: declared,
            causal: true,
            qk_norm: true,
        };
        let of = |name: &str| match name {
            "declared" | "what is declared" => Some(usual),
            "a softmax over queries" => Some(Factors {
                axis: SoftmaxAxis::Queries,
                ..usual
            }),
            "no scale" => Some(Factors {
                scale: Scale::One,
                ..usual
            }),
            "a scale of 1/d_head" => Some(Factors {
                scale: Scale::InvD,
                ..usual
            }),
            "no causal mask" => Some(Factors {
                causal: false,
                ..usual
            }),
            "no QK-norm" => Some(Factors {
                qk_norm: false,
                ..usual
            }),
            "a softmax over queries and no scale" => Some(Factors {
                axis: SoftmaxAxis::Queries,
                scale: Scale::One,
                ..usual
            }),
            _ => None,
        };
        let all = attnscope_run::losses_of_all_readings(&Cpu, &model, &inputs, &|| false);
        let mut seen = std::collections::BTreeSet::new();
        for (reading, found) in all.expect("runs") {
            let of_reading = &reading.hypothesis;
            let (name_of_reading, layer_idx) = (&of_reading.name, of_reading.layer_idx);
            let factors = of(name_of_reading).filter(|_| of_reading.head_idx.is_none());
            let Some(factors) = factors else {
                continue;
            };
            seen.insert((name_of_reading.clone(), layer_idx));
            let changed = model.with_spec(by_hand(&model.spec, layer_idx, &factors));
            // A reading leaves out the last position of a text: two tokens after it there is none.
            let expected = inputs.iter().flat_map(|input| {
                let mut losses = losses(&changed, input);
                losses
                    .truncate(input.sequence.len() - if input.sequence.len() >= 8 { 2 } else { 1 });
                losses
            });
            let expected: Vec<f32> = expected.collect();
            assert_eq!(found.len(), expected.len(), "{name}");
            for (found, expected) in found.iter().zip(&expected) {
                let off = (found - expected).abs();
                let said =
                    format!("{name} {name_of_reading} {layer_idx:?}: {found} and {expected}");
                assert!(off <= 1e-4 * expected.abs().max(1.0), "{said}");
            }
        }
        let n_layers = model.spec.stacks[0].blocks().len();
        let n_local = if n_layers > 1 { n_layers } else { 0 };
        assert_eq!(
            seen.len(),
            6 + usize::from(has_norms) + (4 + usize::from(has_norms)) * n_local,
            "{name}: {seen:?}"
        );
    }
}

#[test]
fn one_head_with_a_change_is_that_head_of_a_whole_run_with_the_change_in_its_layer() {
    let model = opened(&fixture("oracle/gpt2/model"), &[]);
    let request = reference_request(&fixture("oracle/gpt2"), false);
    let input = prompt_of(&model, &request)[0].1.clone();
    let d_head = model.spec.stacks[0].blocks()[0]
        .own()
        .expect("attention")
        .attention
        .d_head;
    let factor = Scale::InvSqrtD.factor(d_head);
    let changes = [
        (Change::Scale(Scale::One), Scale::One, SoftmaxAxis::Keys),
        (
            Change::Temperature(2.0),
            Scale::Factor(factor / 2.0),
            SoftmaxAxis::Keys,
        ),
        (
            Change::SoftmaxAxis(SoftmaxAxis::Queries),
            Scale::InvSqrtD,
            SoftmaxAxis::Queries,
        ),
    ];
    // With all inputs kept, and with only the first: what lies between is run again.
    for keep_bytes in [64 << 20, 1] {
        let kept = run_keeping(&model, &input, keep_bytes).kept.expect("kept");
        for (layer_idx, head_idx) in [(0, 1), (2, 3)] {
            for (change, scale, axis) in changes {
                let factors = Factors {
                    axis,
                    scale,
                    causal: true,
                    qk_norm: true,
                };
                let whole = model.with_spec(by_hand(&model.spec, Some(layer_idx), &factors));
                let expected = run_keeping(&whole, &input, 0).layers;
                let expected = &expected[layer_idx].heads[head_idx].summary;
                let at = (Stack::Only, layer_idx, head_idx);
                let found = attnscope_run::head_with(&Cpu, &model, &input, &kept, at, &[change]);
                let Ok(Some(found)) = found else {
                    // Nothing may have been kept where nothing fits.
                    assert_eq!(keep_bytes, 1, "{found:?}");
                    continue;
                };
                for (a, b) in found.rows.iter().zip(&expected.rows) {
                    assert!((a.mass - b.mass).abs() < 1e-5, "{change:?}");
                    assert!((a.entropy - b.entropy).abs() < 1e-4 || a.entropy.is_nan());
                    assert!((a.top1 - b.top1).abs() < 1e-5, "{change:?}");
                }
            }
        }
    }
}
