//! Probes and what-ifs against whole runs, and what the checks say of every reference checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use attnscope_checks::stats::LayerReport;
use attnscope_checks::{Probed, Severity, Status};
use attnscope_compute::attention::{Globals, Mask, Scale, SoftmaxAxis};
use attnscope_compute::ops::Cpu;
use attnscope_forward::Input;
use attnscope_prompt::{PositionRule, Request};
use attnscope_run::{Change, Job, Kept, Observer, Options, Progress, Silent};
use attnscope_spec::{FeedForward, Model, ModelSpec, Stack};
use testing::effort::{family_of, some_of, tries_all};
use testing::judged::{
    fixture, judged, prompt_of, reference_request, references_of_kinds, stories,
};
use testing::opening::opened;
use testing::oracle_case::model_of;

use super::readings_as_runs::losses;

/// Cases in which padding before a text is part of what a mixer reads.
const CARRYING: [&str; 8] = [
    "falcon_h1_b",
    "granitemoehybrid_b",
    "jamba_b",
    "minimax",
    "minimax_b",
    "nemotron_h_b",
    "recurrent_gemma",
    "recurrent_gemma_b",
];

/// Cases one of whose heads has, by the chance of its random weights, queries and keys long enough to saturate it.
const SATURATED: [&str; 4] = [
    "clap_text_model",
    "clvp_decoder",
    "deepseek_ocr2_text",
    "layoutlm",
];

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
    let tried: Vec<PathBuf> = some_of(references_of_kinds(), 3).collect();
    for case in &tried {
        let name = name_of(case);
        let model = model_of(case).expect("opens");
        let short = reference_request(case, false);
        // Longer than a block of rows, as far as the model goes.
        let room = model.spec.n_ctx.unwrap_or(256).min(72);
        let long = {
            let ids = match &short.source {
                attnscope_prompt::Source::Ids(ids) => ids.clone(),
                // Pictures and sounds have the length that they have.
                _ => continue,
            };
            let n = ids.len().max(room);
            let ids = ids.iter().copied().cycle().take(n).collect();
            Request {
                source: attnscope_prompt::Source::Ids(ids),
                ..short
            }
        };
        let input = prompt_of(&model, &long)[0].1.clone();
        let probed = attnscope_run::probe_future(&Cpu, &model, &input, |_| {}, &|| false);
        let probe = match probed.expect("runs") {
            Probed::Ran(probe) => probe,
            Probed::Not(_) | Probed::Untried(_) | Probed::Undecided(_) => {
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
    let expected = "albert align_text_model altclip_text_model bert bert_generation_b bert_plain big_bird blip_text_model bros \
         camembert chinese_clip_text_model clap_text_model convbert data2vec_text deberta deberta_v2 dia_encoder \
         distilbert dpr electra embedding_gemma2_text ernie esm esmc eurobert flaubert flava_text_model \
         gemma3_both_sides gte ibert jina_embeddings_v3 layoutlm layoutlmv3 longformer luke megatron_bert modernbert \
         mpnet nomic_bert openai_privacy_filter rembert roberta_pads roberta-prelayernorm roberta_prelayernorm \
         roc_bert roformer siglip2_text_model siglip_text_model splinter squeezebert tapas tipsv2_text_model ultrabert visual_bert xlm \
         xlm_roberta xlm_roberta_xl xlnet xmod";
    let expected: Vec<&str> = expected.split(' ').collect();
    // A case of its own where other cases of the family are decoders; otherwise a family.
    let of = |case: &PathBuf| {
        let name = name_of(case);
        let is_one = expected.contains(&name.as_str());
        if is_one { name } else { family_of(case) }
    };
    let is_exempt = |case: &&PathBuf| exempt.contains(&name_of(case));
    let found: BTreeSet<String> = tried.iter().filter(is_exempt).map(of).collect();
    let tried: BTreeSet<String> = tried.iter().map(of).collect();
    let expected = expected.into_iter().filter(|name| tried.contains(*name));
    assert_eq!(found, expected.map(str::to_owned).collect());
    assert!(n_causal > 25, "{n_causal}");
}

#[test]
fn no_reference_checkpoint_depends_on_padding_once_positions_are_counted_over_real_tokens() {
    let (mut right_only, mut carrying) = (Vec::new(), Vec::new());
    let tried = references_of_kinds();
    for case in &tried {
        let name = name_of(case);
        let model = model_of(case).expect("opens");
        let input = prompt_of(&model, &reference_request(case, false))[0]
            .1
            .clone();
        let probed = attnscope_run::probe_padding(&Cpu, &model, &input, |_| {}, &|| false);
        let probe = match probed.expect("runs") {
            Probed::Ran(probe) => probe,
            // A picture and a sound are never padded as tokens are.
            Probed::Not(_) if case.join("picture.png").exists() => continue,
            Probed::Not(_) if case.join("sound.wav").exists() => continue,
            // So does its code: a sentence gives other values beside padding.
            Probed::Not(_) if name.starts_with("convbert") => continue,
            other => panic!("{name}: {other:?}"),
        };
        for (case, moved) in &probe.cases {
            assert_eq!(*moved, None, "{name}: {case}");
        }
        assert!(probe.largest < 1e-5, "{name}: {}", probe.largest);
        if probe.cases.len() == 1 {
            // A state that is carried from token to token reads what stands before a text.
            let mut blocks = model.spec.main_stack().blocks().iter();
            if blocks.any(|block| block.other_mixer().is_some()) {
                carrying.push(name);
            } else {
                let first = model.spec.main_stack().first_attention();
                let is_global = first.and_then(|of| of.globals) == Some(Globals::First);
                let is_shifted = matches!(model.spec.positions, PositionRule::Shifted { .. });
                let mut blocks = model.spec.stacks.iter().flat_map(|stack| stack.blocks());
                let is_limited = blocks.any(|block| block.feed_forward.is_limited());
                assert!(is_shifted || is_global || is_limited);
                right_only.push(name);
            }
        }
    }
    let tried: Vec<String> = tried.iter().map(|case| name_of(case)).collect();
    let of_tried = |all: &[&str]| -> Vec<String> {
        let known = all.iter().map(|name| (*name).to_owned());
        known.filter(|name| tried.contains(name)).collect()
    };
    assert_eq!(carrying, of_tried(&CARRYING));
    // Learned positions that their code cannot shift, and a first token that sees all: pads on the left are another prompt to them.
    assert_eq!(
        right_only,
        of_tried(&[
            "bart_b",
            "bigbird_pegasus",
            "bigbird_pegasus_b",
            "biogpt",
            "biogpt_b",
            "blenderbot",
            "blenderbot_b",
            "blenderbot_small",
            "blenderbot_small_b",
            "led",
            "led_b",
            "led_c",
            "longformer_d",
            "mbart",
            "mbart_b",
            "pp_formulanet_text",
            "pp_formulanet_text_b",
            "switch_transformers",
            "switch_transformers_b",
            "trocr",
            "trocr_b",
            "xglm",
            "xglm_b",
        ])
    );
}

#[test]
fn of_all_reference_checkpoints_none_is_accused_or_warned_of() {
    let mut fired: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let (mut n_ordered, mut told) = (0, Vec::new());
    let cases: Vec<PathBuf> = some_of(references_of_kinds(), 3).collect();
    for case in &cases {
        let model = model_of(case).expect("opens");
        let said = judged(&model, &prompt_of(&model, &reference_request(case, true)));
        for (check, severity) in said.fired() {
            // Their weights are random: they know nothing, and it is said. One has no gains that could hide it.
            let is_bare = check == "untrained" && name_of(case) == "nanochat";
            let is_saturated =
                check == "entropy-collapse" && SATURATED.contains(&name_of(case).as_str());
            let expected = if check == "knows-nothing" || is_bare || is_saturated {
                Severity::Warning
            } else {
                Severity::Info
            };
            if severity != expected {
                told.push(format!("{}: {check} is {severity:?}", name_of(case)));
            }
            fired.entry(check).or_default().push(name_of(case));
        }
        n_ordered += usize::from(said.status("order-blind") == Status::Passed);
        for check in ["wrong-axis", "row-sum"] {
            assert_eq!(said.status(check), Status::NotTested, "{}", case.display());
        }
    }
    assert!(told.is_empty(), "{}\n{fired:?}", told.join("\n"));
    // The others are made without positions, or too short.
    assert!(
        3 * n_ordered >= 2 * cases.len(),
        "{n_ordered} of {}",
        cases.len()
    );
    let ran: Vec<String> = cases.iter().map(|case| name_of(case)).collect();
    let bare = ran.iter().filter(|name| *name == "nanochat").cloned();
    let untrained = fired.remove("untrained").unwrap_or_default();
    assert_eq!(untrained, bare.collect::<Vec<_>>());
    let saturated = SATURATED
        .iter()
        .filter(|name| ran.iter().any(|ran| ran == *name));
    let collapsed = fired.remove("entropy-collapse").unwrap_or_default();
    assert_eq!(collapsed, saturated.copied().collect::<Vec<_>>());
    // A random model may predict its text worse than any guess, and that is said.
    let guessing = fired.remove("knows-nothing").unwrap_or_default();
    let may_guess = |name: &String| ["falcon", "gpt2", "gpt_oss"].contains(&name.as_str());
    assert!(guessing.iter().all(may_guess), "{guessing:?}");
    // Random weights: a liked key is a sink, and large scores leave no entropy guaranteed. Some designs have no scale, or one of their own.
    let checks: Vec<&str> = fired.keys().copied().collect();
    assert_eq!(
        checks,
        ["attention-sink", "scale-mismatch", "spectral-bound"],
        "{fired:?}"
    );
    let unscaled = "dia_encoder dia_encoder_b diffusion_gemma_text embedding_gemma2_text embedding_gemma2_text_b gemma3n_text \
                    gemma3n_text_b gemma3n_text_plain gemma4_text gemma4_text_b gemma4_text_c gemma4_text_d gpt2_unscaled gpt_neo \
                    gpt_neo_b granitemoehybrid_b longt5 longt5_b mt5 mt5_b muse_glimmer pop2piano pop2piano_b switch_transformers \
                    switch_transformers_b t5_pads t5_v11 \
                    t5_v11_again umt5 umt5_b";
    let expected = unscaled
        .split(' ')
        .filter(|name| ran.iter().any(|ran| ran == name));
    assert_eq!(fired["scale-mismatch"], expected.collect::<Vec<_>>());
}
