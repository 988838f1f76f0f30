//! Probes and what-ifs against whole runs, and what the checks say of every reference checkpoint.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use attnscope_engine::analysis::{self, Change, Job, Kept, Observer, Options, Progress, Silent};
use attnscope_engine::attention::{Mask, Scale, SoftmaxAxis};
use attnscope_engine::checks::{Factors, Probed, Severity, Status};
use attnscope_engine::model::{FeedForward, Input, Model, ModelSpec, Stack};
use attnscope_engine::ops::Cpu;
use attnscope_engine::prompt::{PositionRule, Request};
use attnscope_engine::stats::LayerReport;
use testing::judged::{fixture, judged, prompt_of, reference_request, references, stories};
use testing::opening::opened;

const OPTIONS: Options = Options {
    keep_bytes: None,
    predicts: true,
};

/// Next-token losses of a whole run.
fn losses(model: &Model, input: &Input) -> Vec<f32> {
    let ran = analysis::run(&Cpu, model, input, OPTIONS, &mut Silent, None, &|| false);
    let predictions = ran.expect("runs").predictions.expect("predicts");
    predictions.next_loss.expect("a next-token loss")
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
            };
        }
        if factors.qk_norm == Some(false) {
            own.projections.q_norm = None;
            own.projections.k_norm = None;
        }
    }
    spec
}

#[test]
fn every_hypothesis_has_the_losses_of_a_whole_run_with_that_attention() {
    for (name, set) in [
        ("healthy", &[][..]),
        ("healthy", &["softmax_axis=queries"]),
        ("oracle/gpt2/model", &[]),
        ("oracle/llama/model", &[]),
        ("oracle/qwen3_b/model", &[]),
    ] {
        let model = opened(&fixture(name), set);
        let inputs: Vec<Input> = match name {
            "healthy" => stories(&model)
                .into_iter()
                .take(2)
                .map(|(_, i)| i)
                .collect(),
            _ => {
                let case = fixture(name.trim_end_matches("/model"));
                let request = reference_request(&case, false);
                prompt_of(&model, &request)
                    .into_iter()
                    .map(|(_, i)| i)
                    .collect()
            }
        };
        let probed = analysis::probe_training(&Cpu, &model, &inputs, &mut |_, _| {}, &|| false);
        let Probed::Ran(probe) = probed.expect("runs") else {
            panic!("{name} was not probed");
        };
        let has_norms = model.spec.stacks[0].blocks()[0]
            .own()
            .expect("attention")
            .projections
            .q_norm
            .is_some();
        let n_layers = model.spec.stacks[0].blocks().len();
        let n_everywhere = probe
            .hypotheses
            .iter()
            .filter(|h| h.layer_idx.is_none())
            .count();
        assert_eq!(
            n_everywhere,
            2 * 3 * 2 * if has_norms { 2 } else { 1 },
            "{name}"
        );
        // One layer at a time: the other axis, two other scales, the mask, and the norms.
        let n_single = probe.hypotheses.len() - n_everywhere;
        assert_eq!(n_single, n_layers * (4 + usize::from(has_norms)), "{name}");
        for hypothesis in &probe.hypotheses {
            let spec = by_hand(&model.spec, hypothesis.layer_idx, &hypothesis.factors);
            let changed = model.with_spec(spec);
            let expected: Vec<f32> = inputs.iter().flat_map(|i| losses(&changed, i)).collect();
            assert_eq!(hypothesis.losses.len(), expected.len());
            for (found, expected) in hypothesis.losses.iter().zip(&expected) {
                let off = (found - expected).abs();
                assert!(
                    off <= 2e-5 * expected.abs().max(1.0),
                    "{name} {:?} {:?}: {found} and {expected}",
                    hypothesis.layer_idx,
                    hypothesis.factors
                );
            }
        }
    }
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
    analysis::run_all(&Cpu, model, vec![job], options, &|| false).expect("runs");
    keeping
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
                    qk_norm: None,
                };
                let whole = model.with_spec(by_hand(&model.spec, Some(layer_idx), &factors));
                let expected = run_keeping(&whole, &input, 0).layers;
                let expected = &expected[layer_idx].heads[head_idx].summary;
                let at = (Stack::Only, layer_idx, head_idx);
                let found = analysis::head_with(&Cpu, &model, &input, &kept, at, &[change]);
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

fn name_of(case: &Path) -> String {
    let name = case.file_name().expect("a name");
    name.to_string_lossy().into_owned()
}

fn has_experts(model: &Model) -> bool {
    let mut blocks = model.spec.stacks.iter().flat_map(|stack| stack.blocks());
    blocks.any(|block| matches!(block.feed_forward, FeedForward::Experts(_)))
}

#[test]
fn no_reference_checkpoint_leaks_the_future_and_dense_ones_are_bit_identical() {
    let (mut n_causal, mut exempt) = (0, Vec::new());
    for case in references() {
        let name = name_of(&case);
        let model = opened(&case.join("model"), &[]);
        let short = reference_request(&case, false);
        // Longer than a block of rows, as far as the model goes.
        let room = model.spec.n_ctx.unwrap_or(256).min(150);
        let long = {
            let ids = match &short.source {
                attnscope_engine::prompt::Source::Ids(ids) => ids.clone(),
                other => panic!("{other:?}"),
            };
            let n = ids.len().max(room);
            let ids = ids.iter().copied().cycle().take(n).collect();
            Request {
                source: attnscope_engine::prompt::Source::Ids(ids),
                ..short.clone()
            }
        };
        for request in [&short, &long] {
            let input = prompt_of(&model, request)[0].1.clone();
            let probed = analysis::probe_future(&Cpu, &model, &input, |_| {}, &|| false);
            let probe = match probed.expect("runs") {
                Probed::Ran(probe) => probe,
                Probed::Not(_) => {
                    exempt.push(name.clone());
                    continue;
                }
            };
            n_causal += 1;
            let tolerance = if has_experts(&model) { 1e-5 } else { 0.0 };
            assert_eq!(probe.tolerance, tolerance, "{name}");
            assert_eq!(probe.worst, None, "{name}");
            assert_eq!(probe.first_pattern, None, "{name}");
            assert_eq!(probe.first_residual, None, "{name}");
        }
    }
    exempt.dedup();
    assert_eq!(
        exempt,
        [
            "albert",
            "albert_b",
            "bert",
            "bert_b",
            "distilbert_b",
            "electra",
            "electra_b",
            "modernbert_b",
            "nomic_bert",
            "nomic_bert_b",
            "roberta_pads",
            "xlm_roberta",
        ]
    );
    assert!(n_causal > 100);
}

#[test]
fn no_reference_checkpoint_depends_on_padding_once_positions_are_counted_over_real_tokens() {
    let mut right_only = Vec::new();
    for case in references() {
        let name = name_of(&case);
        let model = opened(&case.join("model"), &[]);
        let input = prompt_of(&model, &reference_request(&case, false))[0]
            .1
            .clone();
        let probed = analysis::probe_padding(&Cpu, &model, &input, |_| {}, &|| false);
        let probe = match probed.expect("runs") {
            Probed::Ran(probe) => probe,
            Probed::Not(why) => panic!("{name}: {why}"),
        };
        for (case, moved) in &probe.cases {
            assert_eq!(*moved, None, "{name}: {case}");
        }
        assert!(probe.largest < 1e-5, "{name}: {}", probe.largest);
        if probe.cases.len() == 1 {
            assert!(matches!(model.spec.positions, PositionRule::Shifted { .. }));
            right_only.push(name);
        }
    }
    // Learned positions that their code cannot shift: pads on the left are another prompt to them.
    assert_eq!(right_only, ["bart_b", "mbart", "mbart_b"]);
}

#[test]
fn of_all_reference_checkpoints_none_is_accused_or_warned_of() {
    let mut fired: BTreeMap<&str, usize> = BTreeMap::new();
    let cases = references();
    for case in &cases {
        let model = opened(&case.join("model"), &[]);
        let said = judged(&model, &prompt_of(&model, &reference_request(case, true)));
        for (check, severity) in said.fired() {
            assert_eq!(severity, Severity::Info, "{}: {check}", case.display());
            *fired.entry(check).or_default() += 1;
        }
        for check in ["wrong-axis", "row-sum"] {
            assert_eq!(
                said.status(check),
                Status::ByConstruction,
                "{}",
                case.display()
            );
        }
    }
    // They are random: keys that many queries happen to like are sinks, and large scores leave no entropy guaranteed. A scale
    // that is left out is left out by six families' designs.
    let checks: Vec<&str> = fired.keys().copied().collect();
    assert_eq!(
        checks,
        ["attention-sink", "scale-mismatch", "spectral-bound"],
        "{fired:?}"
    );
    assert_eq!(fired["scale-mismatch"], 6, "{fired:?} of {}", cases.len());
}
