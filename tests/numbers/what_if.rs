//! What-ifs: every change of attention against the same thing computed another way, from the values of a run without it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use attnscope_checks::stats::LayerReport;
use attnscope_compute::ops::{Candle, Cpu};
use attnscope_prompt::{PromptForm, Request, Target};
use attnscope_run::{HeadQuery, Job, Kept, Observer, Options, Progress, Resume, WhatIf};
use attnscope_spec::{Model, Stack};
use serde_json::Value;
use testing::checkpoint_copy::{attnscope, text};
use testing::hooks::hooks_of;
use testing::opening::opened;

const N: usize = 17;

fn case(name: &str) -> PathBuf {
    testing::root()
        .join("fixtures/oracle")
        .join(name)
        .join("model")
}

fn request() -> Request {
    let ids = |by: u32| (0..N as u32).map(|idx| 3 + idx * by % 19).collect();
    Request {
        target: Target::Generate(0),
        ..Request::ids(ids(7))
    }
}

type Values = BTreeMap<String, Vec<f32>>;

/// The values of a model, and of the same with changes.
struct Both {
    model: Model,
    changed: Model,
    base: Values,
    then: Values,
}

fn both(name: &str, what_ifs: &[&str]) -> Both {
    both_of(name, &request(), what_ifs)
}

fn both_of(name: &str, request: &Request, what_ifs: &[&str]) -> Both {
    let model = opened(&case(name), &[]);
    let changes: Vec<WhatIf> = what_ifs.iter().map(|w| w.parse().expect(w)).collect();
    let spec = attnscope_run::with_what_ifs(&model.spec, &changes).expect("possible");
    let changed = model.with_spec(spec);
    Both {
        base: hooks_of(&Cpu, &model, request),
        then: hooks_of(&Cpu, &changed, request),
        model,
        changed,
    }
}

impl Both {
    fn head<'a>(&self, of: &'a Values, name: &str, head_idx: usize) -> &'a [f32] {
        &of[name][head_idx * N * N..][..N * N]
    }
}

fn worst(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let pairs = a.iter().zip(b).filter(|(a, b)| a != b);
    pairs.fold(0.0, |most, (a, b)| {
        most.max(f64::from((a - b).abs()))
            .max(if a.is_nan() || b.is_nan() {
                f64::INFINITY
            } else {
                0.0
            })
    })
}

/// The pattern of rows of scores, in f64.
fn softmax(scores: &[f32]) -> Vec<f32> {
    let row = |row: &[f32]| -> Vec<f32> {
        let max = row
            .iter()
            .fold(f64::NEG_INFINITY, |m, s| m.max(f64::from(*s)));
        let weights: Vec<f64> = row.iter().map(|s| (f64::from(*s) - max).exp()).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|w| (w / sum) as f32).collect()
    };
    scores.chunks(N).flat_map(row).collect()
}

#[test]
fn a_changed_knob_is_what_setting_it_gives() {
    for (what_if, set) in [
        ("scale=none", "scale=none"),
        ("scale=inv_d", "scale=inv_d"),
        ("softmax_axis=queries", "softmax_axis=queries"),
        ("softcap=2.5", "softcap=2.5"),
        ("mask=window:5", "window=5"),
        ("mask=none", "mask=bidirectional"),
    ] {
        for name in ["gpt2", "llama_yarn", "qwen3_b"] {
            let both = both(name, &[what_if]);
            let set = hooks_of(&Cpu, &opened(&case(name), &[set]), &request());
            assert_ne!(both.base["logits"], both.then["logits"], "{name} {what_if}");
            assert_eq!(
                set.keys().collect::<Vec<_>>(),
                both.then.keys().collect::<Vec<_>>()
            );
            for (hook, values) in &set {
                assert!(
                    worst(values, &both.then[hook]) == 0.0,
                    "{name} {what_if}: {hook}"
                );
            }
        }
    }
}

#[test]
fn a_change_of_one_head_is_that_of_its_layer_in_this_head_and_nothing_in_the_others() {
    let (layer, head) = ("L1", 1);
    for what_if in [
        "scale=x3",
        "softmax_axis=queries",
        "qk_norm=on",
        "mask=window:3",
        "temperature=0.5",
        "scale=sum_key_norms",
    ] {
        let of_head = both("llama_yarn", &[&format!("{what_if}@{layer}H{head}")]);
        let of_layer = both("llama_yarn", &[&format!("{what_if}@{layer}")]);
        let n_heads = of_head.model.spec.n_heads(Stack::Only, 1);
        for hook in ["scores", "pattern"] {
            let name = format!("blocks.1.attn.{hook}");
            for head_idx in 0..n_heads {
                let expected = if head_idx == head {
                    &of_layer.then
                } else {
                    &of_layer.base
                };
                let (expected, found) = (
                    of_head.head(expected, &name, head_idx),
                    of_head.head(&of_head.then, &name, head_idx),
                );
                assert!(
                    worst(expected, found) == 0.0,
                    "{what_if} {hook} head {head_idx}"
                );
            }
        }
        assert_eq!(
            of_head.base["blocks.0.resid_post"],
            of_head.then["blocks.0.resid_post"]
        );
        assert_ne!(
            of_head.base["blocks.1.resid_post"], of_head.then["blocks.1.resid_post"],
            "{what_if}"
        );
    }
}

#[test]
fn divisors_of_key_norms_divide_each_row_by_those_of_the_keys_it_sees() {
    type Divisor = fn(&[f64], usize) -> f64;
    let divisors: [(&str, Divisor); 5] = [
        ("sum_key_norms", |norms, _| norms.iter().sum()),
        ("mean_key_norm", |norms, _| {
            norms.iter().sum::<f64>() / norms.len() as f64
        }),
        ("rms_key_norm", |norms, _| {
            norms.iter().map(|n| n * n).sum::<f64>().sqrt()
        }),
        ("p_norm:3", |norms, _| {
            norms.iter().map(|n| n.powi(3)).sum::<f64>().cbrt()
        }),
        ("n_sqrt_d", |norms, d| {
            norms.len() as f64 * (d as f64).sqrt()
        }),
    ];
    for (word, divisor) in divisors {
        let both = both("llama_yarn", &[&format!("scale={word}@L0")]);
        let attention = both.model.spec.main_stack().blocks()[0]
            .attention()
            .expect("attention");
        let (d, n_heads, n_kv) = (attention.d_head, attention.n_heads, attention.n_kv_heads);
        let (q, k) = (
            &both.base["blocks.0.attn.rot_q"],
            &both.base["blocks.0.attn.rot_k"],
        );
        assert_eq!(q.len(), n_heads * N * d);
        for head_idx in 0..n_heads {
            let kv_idx = head_idx / (n_heads / n_kv);
            let found = both.head(&both.then, "blocks.0.attn.scores", head_idx);
            for query_idx in 0..N {
                let query = &q[(query_idx * n_heads + head_idx) * d..][..d];
                let key = |key_idx: usize| &k[(key_idx * n_kv + kv_idx) * d..][..d];
                let dot = |a: &[f32], b: &[f32]| -> f64 {
                    a.iter()
                        .zip(b)
                        .map(|(a, b)| f64::from(*a) * f64::from(*b))
                        .sum()
                };
                let norms: Vec<f64> = (0..=query_idx)
                    .map(|i| dot(key(i), key(i)).sqrt())
                    .collect();
                let divisor = divisor(&norms, d);
                for key_idx in 0..=query_idx {
                    let expected = dot(query, key(key_idx)) / divisor;
                    let found = f64::from(found[query_idx * N + key_idx]);
                    assert!(
                        (found - expected).abs() <= 2e-5 * expected.abs().max(1.0),
                        "{word}: {found} {expected}"
                    );
                }
            }
            let pattern = softmax(found);
            let apart = worst(
                &pattern,
                both.head(&both.then, "blocks.0.attn.pattern", head_idx),
            );
            assert!(apart < 1e-5, "{word}: {apart}");
        }
    }
}

#[test]
fn a_device_divides_by_key_norms_as_the_cpu_does() {
    for word in ["sum_key_norms@L0", "p_norm:3@L1H0"] {
        let both = both("llama_yarn", &[&format!("scale={word}"), "softcap=9"]);
        let on_device = hooks_of(&Candle::cpu(), &both.changed, &request());
        for (hook, values) in &both.then {
            let apart = worst(values, &on_device[hook]);
            assert!(apart < 2e-4, "{word} {hook}: {apart}");
        }
    }
}

#[test]
fn temperature_and_softcap_change_the_scores_that_were_there() {
    let base = |s: f32| f64::from(s);
    let of: [(&str, &dyn Fn(f32) -> f64); 3] = [
        ("temperature=2.5", &|s| base(s) / 2.5),
        ("scale=x4", &|s| base(s) * 4.0),
        ("softcap=0.7", &|s| 0.7 * (base(s) / 0.7).tanh()),
    ];
    for (what_if, expected) in of {
        let both = both("llama_yarn", &[&format!("{what_if}@L0")]);
        let name = "blocks.0.attn.scores";
        let visible = both.base[name]
            .iter()
            .zip(&both.then[name])
            .filter(|(s, _)| s.is_finite());
        for (before, after) in visible {
            let expected = expected(*before);
            assert!(
                (f64::from(*after) - expected).abs() < 1e-5 * expected.abs().max(1.0),
                "{what_if}"
            );
        }
    }
}

#[test]
fn qk_norm_gives_queries_and_keys_the_root_mean_square_of_one() {
    let both = both("llama_yarn", &["qk_norm=on@L0"]);
    let d = both.model.spec.main_stack().blocks()[0]
        .attention()
        .expect("attention")
        .d_head;
    for hook in ["q", "k"] {
        let name = format!("blocks.0.attn.{hook}");
        for (before, after) in both.base[&name].chunks(d).zip(both.then[&name].chunks(d)) {
            let square: f64 = before.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / d as f64;
            for (before, after) in before.iter().zip(after) {
                let expected = f64::from(*before) / (square + 1e-6).sqrt();
                assert!((f64::from(*after) - expected).abs() < 1e-5);
            }
        }
    }
}

#[test]
fn a_dropped_head_gives_zeros_or_its_mean() {
    let both_zero = both("llama_yarn", &["drop=zero@L1H1"]);
    let both_mean = both("llama_yarn", &["drop=mean@L1H1,L1H0"]);
    let d = both_zero.model.spec.main_stack().blocks()[1]
        .attention()
        .expect("attention")
        .d_value;
    let name = "blocks.1.attn.z"; // [position, head, d_value]
    let n_heads = both_zero.model.spec.n_heads(Stack::Only, 1);
    let of_head = |values: &Values, head_idx: usize| -> Vec<f32> {
        let rows = values[name].chunks(n_heads * d);
        rows.flat_map(|row| row[head_idx * d..][..d].to_vec())
            .collect()
    };
    for head_idx in 0..n_heads {
        let base = of_head(&both_zero.base, head_idx);
        let zero = of_head(&both_zero.then, head_idx);
        match head_idx {
            1 => assert!(zero.iter().all(|v| *v == 0.0)),
            _ => assert_eq!(base, zero),
        }
        let mean = of_head(&both_mean.then, head_idx);
        if head_idx > 1 {
            assert_eq!(base, mean);
            continue;
        }
        for column in 0..d {
            let sum: f64 = base
                .iter()
                .skip(column)
                .step_by(d)
                .map(|v| f64::from(*v))
                .sum();
            let expected = sum / N as f64;
            for found in mean.iter().skip(column).step_by(d) {
                assert!((f64::from(*found) - expected).abs() < 1e-6);
            }
        }
    }
    assert_eq!(
        both_zero.base["blocks.1.attn.pattern"],
        both_zero.then["blocks.1.attn.pattern"]
    );
    assert_ne!(both_zero.base["logits"], both_zero.then["logits"]);
    // Without any head, attention adds its output's bias: the same everywhere.
    let none = both("gpt2", &["drop=zero@L0"]);
    let added = &none.then["blocks.0.attn_out"];
    let width = none.model.spec.d_model;
    assert!(added.chunks(width).all(|row| row == &added[..width]));
    assert_ne!(
        none.base["blocks.0.attn_out"],
        none.then["blocks.0.attn_out"]
    );
}

#[test]
fn places_of_an_encoder_decoder_are_its_stacks() {
    let request = Request {
        target: Target::Ids((0..9).collect()),
        ..request()
    };
    let both = both_of("t5_v11", &request, &["scale=x0.5@decoder.L0.cross"]);
    assert_eq!(
        both.base["encoder.last_hidden_state"],
        both.then["encoder.last_hidden_state"]
    );
    let (own, cross) = (
        "decoder.blocks.0.attn.pattern",
        "decoder.blocks.0.cross_attn.pattern",
    );
    assert_eq!(both.base[own], both.then[own]);
    assert_ne!(both.base[cross], both.then[cross]);
    let everywhere = both_of("t5_v11", &request, &["scale=x0.5"]);
    assert_ne!(
        everywhere.base["encoder.last_hidden_state"],
        everywhere.then["encoder.last_hidden_state"]
    );
}

#[test]
fn a_place_that_the_model_lacks_is_refused_with_those_it_has() {
    for (name, what_if, expected) in [
        ("llama_yarn", "scale=none@L9", "has layers 0–1"),
        ("llama_yarn", "scale=none@L0H99", "L0 has heads 0–3"),
        ("llama_yarn", "scale=none@encoder.L0", "one stack"),
        ("t5_v11", "scale=none@decoder.L77", "has layers 0–"),
    ] {
        let model = opened(&case(name), &[]);
        let what_if: WhatIf = what_if.parse().expect("well-formed");
        let message = attnscope_run::with_what_ifs(&model.spec, &[what_if])
            .expect_err("refused")
            .to_string();
        assert!(
            message.contains(expected) && message.contains("--what-if"),
            "{message}"
        );
    }
}

#[test]
fn commands_report_the_what_ifs() {
    let path = case("llama_yarn");
    let path = path.to_str().expect("a path");
    let tokens = ["--tokens", "3,4,5,6,7,8"];
    let run = |arguments: &[&str]| {
        let output = attnscope(&[arguments, &tokens[..]].concat());
        (output.status.code(), output.stdout, text(&output.stderr))
    };
    let what_if = ["--what-if", "scale=none@L1", "--what-if", "drop=zero@L0H0"];
    let (code, out, said) = run(&[&["report", path], &what_if[..]].concat());
    assert_eq!(code, Some(0), "{said}");
    let report: Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(
        report["what_if"],
        serde_json::json!(["scale=none@L1", "drop=zero@L0H0"])
    );
    assert!(said.contains("not the checkpoint as it is"), "{said}");
    let (_, out, _) = run(&[&["check", path, "--format", "json"], &what_if[..]].concat());
    let verdict: Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(verdict["targets"][0]["what_if"][0], "scale=none@L1");
    let (_, out, _) = run(&[&["check", path], &what_if[..]].concat());
    assert!(text(&out).contains("what if scale=none@L1"));
    let refused = |wrong: &str, told: &str| {
        let (code, _, said) = run(&["report", path, "--what-if", wrong]);
        assert!(code == Some(2) && said.contains(told), "{said}");
    };
    refused("scale=2", "expected");
    refused("scale=none@L7", "there is no L7: the model has layers 0–1");
    refused("nothing=1", "expected");
}

/// What a run tells, and keeps.
#[derive(Default)]
struct Told {
    layers: Vec<Arc<LayerReport>>,
    kept: Option<Arc<Kept>>,
    n_run: usize,
}

impl Observer for Told {
    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        self.n_run += usize::from(matches!(progress, Progress::Layer { .. }));
        ControlFlow::Continue(())
    }

    fn layer(&mut self, report: LayerReport) -> ControlFlow<()> {
        self.layers.push(Arc::new(report));
        ControlFlow::Continue(())
    }

    fn keeping(&mut self, kept: &Arc<Kept>) {
        self.kept = Some(kept.clone());
    }
}

#[test]
fn a_run_from_the_layer_that_changed_tells_what_a_whole_run_tells() {
    let options = Options {
        keep_bytes: Some(1 << 20),
        predicts: true,
    };
    // And how many layers need not run.
    for (name, what_if, n_spared) in [
        ("gpt2", "scale=none@L1", 1),
        ("llama_yarn", "drop=mean@L1H0", 1),
        ("llama_yarn", "scale=x2", 0),
        ("t5_v11", "scale=x0.5@decoder.L1.cross", 3),
        ("t5_v11", "scale=x0.5@encoder.L1", 1),
        ("mbart", "temperature=2@decoder.L0", 2),
        ("gpt2", "kv=int4@L1", 1),
        ("llama_yarn", "kv_window=4+sinks:1@L1H0", 1),
        ("llama_yarn", "weights=fp8@L1", 1),
        ("gpt2", "weights=bf16", 0),
    ] {
        let model = opened(&case(name), &[]);
        let what_if: WhatIf = what_if.parse().expect("well-formed");
        let spec = attnscope_run::with_what_ifs(&model.spec, std::slice::from_ref(&what_if));
        let changed = model.with_spec(spec.expect("possible"));
        let request = Request {
            target: if model.spec.is_encoder_decoder() {
                Target::Ids((0..9).collect())
            } else {
                Target::Generate(0)
            },
            ..request()
        };
        let no_text = PromptForm::Ids("not asked for".to_owned());
        let prompt =
            attnscope_prompt::prepare(&request, &no_text, model.spec.limits()).expect("fits");
        let input = attnscope_run::input_of(&prompt);
        let run = |model: &Model| {
            let mut told = Told::default();
            let outcome =
                attnscope_run::run(&Cpu, model, &input, options, &mut told, None, &|| false);
            (told, outcome.expect("runs"))
        };
        let (base, _) = run(&model);
        let (whole, expected) = run(&changed);
        let mut resumed = Told::default();
        let kept = base.kept.expect("keeps");
        let resume = Resume {
            spec: &model.spec,
            kept: &kept,
            layers: &base.layers,
        };
        let job = Job {
            input: &input,
            observer: &mut resumed,
            tap: None,
        };
        let outcome = attnscope_run::run_changed(&Cpu, &changed, job, options, resume, &|| false);
        assert_eq!(whole.n_run - resumed.n_run, n_spared, "{name} {what_if}");
        let [found, expected] = [outcome.expect("runs"), expected].map(|one| format!("{one:?}"));
        assert_eq!(found, expected, "{name} {what_if}");
        assert_eq!(whole.layers.len(), resumed.layers.len(), "{name} {what_if}");
        for (whole, resumed) in whole.layers.iter().zip(&resumed.layers) {
            let [whole, resumed] = [whole, resumed].map(|layer| format!("{layer:?}"));
            assert_eq!(whole, resumed, "{name} {what_if}");
        }
        // A head of an early layer can be looked at in the resumed run too.
        let query = HeadQuery {
            stack: changed.spec.main_stack().stack,
            layer_idx: 0,
            head_idx: 0,
            hides_first_key: false,
            weighs_values: false,
        };
        let kept = [whole.kept, resumed.kept].map(|kept| kept.expect("keeps"));
        let [whole, resumed] = kept.map(|kept| {
            attnscope_run::head_detail(&Cpu, &changed, &input, &kept, query, &|| false)
                .expect("runs")
        });
        assert_eq!(format!("{whole:?}"), format!("{resumed:?}"));
    }
}
