//! Generated traces and changed probes: what recorders write beside the pattern, and what the checks make of it.

use attnscope_checks::{Severity, Status};
use attnscope_run::Declared;
use serde_json::{Value, json};
use testing::checkpoint_copy::{Stored, attnscope, put_together, take_apart, text};
use testing::judged::{Said, captured, fixture};
use testing::made_traces::{
    Random, Rows, Trace, accused, evidence, filled, normalised, softmax, whole,
};
use testing::trace_files::Written;

pub(super) const N: usize = 24;

pub(super) fn causal(query_idx: usize, key_idx: usize) -> bool {
    key_idx <= query_idx
}

/// Heads of random scores under a causal mask: patterns and scores.
pub(super) fn causal_heads(
    seed: u64,
    n_heads: usize,
    n: usize,
    spread: f64,
) -> (Vec<Rows>, Vec<Rows>) {
    let mut random = Random::new(seed);
    let scores: Vec<Rows> = (0..n_heads).map(|_| random.rows(n, n, spread)).collect();
    let patterns = scores
        .iter()
        .map(|rows| normalised(rows, &causal, &softmax));
    let patterns = patterns.collect();
    let hidden = scores
        .iter()
        .map(|rows| filled(rows, &causal, f64::NEG_INFINITY));
    (patterns, hidden.collect())
}

#[test]
fn the_last_row_of_an_almost_even_causal_layer_loses_no_key() {
    let (even, of_even) = causal_heads(3, 1, N, 1e-5);
    let (sharp, of_sharp) = causal_heads(5, 1, N, 1.5);
    for has_scores in [true, false] {
        let with = |scores| has_scores.then_some(scores);
        let one = Trace::default()
            .layer(0, &even, with(&of_even as &[Rows]))
            .says("mask", "causal");
        assert!(!one.about().contains("padding"), "{}", one.about());
        let two = Trace::default()
            .layer(0, &even, with(&of_even as &[Rows]))
            .layer(1, &sharp, with(&of_sharp as &[Rows]));
        for trace in [one, two.says("mask", "causal")] {
            let said = trace.said();
            assert_eq!(accused(&said), ["entropy-uniform"], "{has_scores}");
            if has_scores {
                assert_eq!(said.status("pattern-mismatch"), Status::Passed);
            }
        }
    }
    // The last row is a padded query whose scores are all hidden by a large finite number: its key is padding still.
    let is_pad = |query_idx: usize| query_idx == N - 1;
    let sees = |query_idx: usize, key_idx: usize| key_idx <= query_idx && !is_pad(query_idx);
    let mut pattern = normalised(&of_sharp[0], &sees, &softmax);
    pattern[N - 1] = vec![1.0 / N as f64; N];
    let scores = filled(&of_sharp[0], &sees, -1e9);
    let trace = Trace::default().layer(0, &[pattern], Some(&[scores]));
    assert!(
        trace.about().contains("keys 23 taken as padding"),
        "{}",
        trace.about()
    );
}

#[test]
fn an_attention_mask_is_used_in_layers_of_its_length() {
    let (n, n_decoder) = (12, 8);
    let mut random = Random::new(11);
    let n_real = n - 3;
    let sees = |_: usize, key_idx: usize| key_idx < n_real;
    let mut layer = |n_queries: usize, n_keys: usize, sees: &dyn Fn(usize, usize) -> bool| {
        let head = |_| normalised(&random.rows(n_queries, n_keys, 1.0), sees, &softmax);
        (0..2).map(head).collect::<Vec<Rows>>()
    };
    let flags: Vec<i64> = (0..n).map(|idx| i64::from(idx < n_real)).collect();
    let decoder = layer(n_decoder, n_decoder, &causal);
    let trace = |encoder: &[Rows], flags: &[i64]| {
        Trace::default()
            .named("encoder.layers.0.attention#0", encoder, None)
            .named("decoder.layers.0.attention#0", &decoder, None)
            .array("attention_mask", whole(&[flags.len()], flags))
    };
    let masked = trace(&layer(n, n, &sees), &flags);
    assert_eq!(accused(&masked.said()), [""; 0]);
    assert!(
        masked
            .about()
            .contains("the attention mask is used in layers with 12 keys")
    );
    let open = trace(&layer(n, n, &|_, _| true), &flags).said();
    assert_eq!(open.errors(), ["pad-mass"]);
    assert!(evidence(&open, "pad-mass").contains("encoder.layers.0"));
    // No layer has as many keys.
    let file = trace(&layer(n, n, &sees), &[1; 5]).written();
    let output = attnscope(&["check", file.1.to_str().expect("a path")]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(
        error.contains("the attention mask has 5 values, the pattern"),
        "{error}"
    );
}

#[test]
fn a_decoder_that_reads_a_target_hides_its_later_tokens() {
    let mut random = Random::new(17);
    let mut layer = |n_queries: usize, n_keys: usize, sees: &dyn Fn(usize, usize) -> bool| {
        let head = |_| normalised(&random.rows(n_queries, n_keys, 1.0), sees, &softmax);
        (0..2).map(head).collect::<Vec<Rows>>()
    };
    let all = |_: usize, _: usize| true;
    let (n, n_target) = (12, 9);
    let (encoder, cross) = (layer(n, n, &all), layer(n_target, n, &all));
    let (open, hidden) = (
        layer(n_target, n_target, &all),
        layer(n_target, n_target, &causal),
    );
    let ids: Vec<i64> = (0..n_target as i64).collect();
    let trace = |decoder: &[Rows]| {
        Trace::default()
            .named("encoder.blocks.0.attn", &encoder, None)
            .named("decoder.blocks.0.attn", decoder, None)
            .named("decoder.blocks.0.cross_attn", &cross, None)
    };
    let with = |trace: Trace| trace.array("decoder_tokens", whole(&[n_target], &ids));
    assert_eq!(with(trace(&open)).said().errors(), ["mask-mass"]);
    assert_eq!(accused(&with(trace(&hidden)).said()), [""; 0]);
    // Queries of no tokens, as of a detector, may see each other.
    assert_eq!(accused(&trace(&open).said()), [""; 0]);
    // The call left the mask to whoever calls the model.
    let unmasked = with(trace(&open)).says("absent_masks", "tgt_mask");
    assert_eq!(accused(&unmasked.said()), [""; 0]);
    assert!(unmasked.about().contains("gave no tgt_mask"));
}

#[test]
fn one_row_of_tokens_that_attends_along_the_batch_is_a_wrong_axis() {
    let calls = |shape: [usize; 4]| {
        let call = |idx: usize| json!({"name": format!("blocks.{idx}.attn"), "shape": shape});
        json!([call(0), call(1)]).to_string()
    };
    let single = vec![vec![vec![1.0]]; 4];
    let of = |tokens: &str, shape: [usize; 4]| {
        Trace::default()
            .layer(0, &single, None)
            .layer(1, &single, None)
            .says("tokens_shape", tokens)
            .says("calls", &calls(shape))
    };
    let said = of("1,24", [24, 4, 1, 1]).said();
    let finding = said.one("wrong-axis");
    assert_eq!(finding.severity, Severity::Error);
    assert!(
        finding
            .evidence
            .starts_with("24 tokens went in as one row, and every attention saw 1 query"),
        "{}",
        finding.evidence
    );
    assert!(finding.advice.contains("batch_first=True"));
    // One token, tokens that were pooled to one, and a layer that sees them all.
    assert_eq!(accused(&of("1,1", [1, 4, 1, 1]).said()), [""; 0]);
    assert_eq!(accused(&of("1,24", [1, 4, 1, 1]).said()), [""; 0]);
    let (pattern, _) = causal_heads(29, 4, N, 1.0);
    let mixed = of("1,24", [24, 4, 1, 1]).layer(2, &pattern, None);
    assert_eq!(accused(&mixed.said()), [""; 0]);
    // A step of a decoder: one query, but more keys.
    let step = vec![vec![vec![1.0 / 24.0; 24]]; 4];
    let step = Trace::default()
        .layer(0, &step, None)
        .says("tokens_shape", "1,24");
    assert!(!accused(&step.said()).contains(&"wrong-axis".to_owned()));
}

#[test]
fn an_axis_that_attention_alone_tells_is_said() {
    let (pattern, _) = causal_heads(37, 4, N, 1.0);
    let of = |sizes: &str| {
        Trace::default()
            .layer(0, &pattern, None)
            .says("first_axis", sizes)
            .about()
    };
    let said = of("24,10");
    assert!(
        said.contains("the input [24, 10, feature] is read as 24 positions")
            && said.contains("batch_first=True"),
        "{said}"
    );
    assert!(!of("24").contains("is read as"));
}

#[test]
fn even_rows_of_a_model_that_is_not_trained_are_information() {
    let (even, scores) = causal_heads(31, 2, N, 1e-5);
    let trace = || {
        Trace::default()
            .layer(0, &even, Some(&scores))
            .says("mask", "causal")
    };
    assert_eq!(accused(&trace().said()), ["entropy-uniform"]);
    let why = "the gains of all norms are still alike";
    let said = trace().says("untrained", why).said();
    assert_eq!(accused(&said), [""; 0]);
    assert_eq!(said.fired()["entropy-uniform"], Severity::Info);
    assert!(evidence(&said, "entropy-uniform").contains(why));
}

/// A probe of the fixtures whose header was changed.
fn probe(name: &str, change: &dyn Fn(&mut Value)) -> Said {
    let bytes = std::fs::read(fixture("captured/probes").join(name)).expect("reads");
    let (mut header, data) = take_apart(&bytes);
    change(&mut header["__metadata__"]);
    let file = Written::bytes("probe.safetensors", &put_together(&header, &data));
    captured(&file.1, &Declared::default())
}

const HEALTHY: &str = "healthy_learned.safetensors";

fn modules(of: &Value) -> Vec<String> {
    let text = of["attnscope.modules"].as_str().expect("modules");
    serde_json::from_str(text).expect("a list")
}

#[test]
fn a_probe_of_a_model_that_gives_nan_names_the_module_and_decides_nothing_else() {
    let said = probe(HEALTHY, &|metadata| {
        let all = modules(metadata);
        let broken = json!(all[3..]).to_string();
        metadata["attnscope.nonfinite"] = json!(broken);
        // As no module moves by more than NaN, none is the first that does.
        metadata
            .as_object_mut()
            .expect("an object")
            .remove("attnscope.mixer");
    });
    let finding = said.one("nan-or-inf");
    assert_eq!(finding.severity, Severity::Error);
    assert!(
        finding
            .evidence
            .contains("is the first module whose output is not finite")
    );
    assert_eq!(said.errors(), ["nan-or-inf"]);
    for check in [
        "future-leak",
        "padding-leak",
        "batch-leak",
        "length-leak",
        "order-blind",
        "not-deterministic",
    ] {
        let verdict = said.of(check);
        assert_eq!(
            verdict.status,
            Status::Undecidable,
            "{check}: {}",
            verdict.why
        );
        assert_eq!(verdict.why, "the output is not finite");
    }
    // Only inside: information, and everything else is decided as before.
    let said = probe(HEALTHY, &|metadata| {
        let first = json!(modules(metadata)[..1]).to_string();
        metadata["attnscope.nonfinite"] = json!(first);
    });
    assert_eq!(said.one("nan-or-inf").severity, Severity::Info);
    assert_eq!(said.status("future-leak"), Status::Passed);
    assert_eq!(
        probe(HEALTHY, &|_| {}).status("nan-or-inf"),
        Status::NotApplicable
    );
}

#[test]
fn an_output_that_hears_no_earlier_token_is_an_error_that_names_the_first_module_that_does() {
    let healthy = probe(HEALTHY, &|_| {});
    assert_eq!(healthy.status("context-blind"), Status::Passed);
    let bytes = std::fs::read(fixture("captured/probes").join(HEALTHY)).expect("reads");
    let (header, _) = take_apart(&bytes);
    let first = header["__metadata__"]["attnscope.mixer"]
        .as_str()
        .expect("a mixer");
    let said = probe(HEALTHY, &|metadata| {
        metadata["attnscope.deaf"] = json!("true")
    });
    let finding = said.one("context-blind");
    assert_eq!(finding.severity, Severity::Error);
    let expected = format!(
        "the output does not depend on earlier tokens although {first} does: what layers give is thrown away"
    );
    assert_eq!(finding.evidence, expected);
    // Inside a layer that gives what it got, a gate may be 0 before the model is trained.
    let modules = json!(["emb", "h.0.attn", "h.0", "h.1.attn", "h.1", "Model"]).to_string();
    let of = |block: f32, labels: &str| {
        let content = [0.0, 0.4, block, 0.3, block, 0.0];
        let trace = Trace::default()
            .array("probe.order.moved", Stored::f32(&[6, 1], &content))
            .array("probe.order.content", Stored::f32(&[6], &content))
            .array("probe.order.size", Stored::f32(&[6], &[1.0; 6]))
            .says("modules", &modules)
            .says("mixer", "h.0.attn")
            .says("output", "Model")
            .says("labels.skipped", labels)
            .says("deaf", "true");
        let said = trace.said();
        let finding = said.one("context-blind");
        assert!(
            finding.evidence.contains("although h.0.attn does"),
            "{}",
            finding.evidence
        );
        (finding.severity, finding.evidence.contains(", inside h.0"))
    };
    assert_eq!(of(0.0, "the model is not trained"), (Severity::Info, true));
    assert_eq!(of(0.0, "Model gives no logits"), (Severity::Error, true));
    assert_eq!(
        of(0.2, "the model is not trained"),
        (Severity::Error, false)
    );
    // A probe that replaced no tokens says so.
    let old = captured(
        &fixture("captured/probe_correct.safetensors"),
        &Declared::default(),
    );
    assert_eq!(old.status("context-blind"), Status::NotApplicable);
}

#[test]
fn positions_that_tell_no_distance_are_named_and_learned_slopes_are_not() {
    let (patterns, _) = causal_heads(7, 2, N, 1.0);
    let said = |positions: [&str; 2]| {
        let call = |idx: usize| {
            let positions = positions[idx];
            format!(r#"{{"name":"blocks.{idx}.attn","positions":{positions}}}"#)
        };
        let trace = (0..2).fold(Trace::default(), |trace, layer_idx| {
            trace.layer(layer_idx, &patterns, None)
        });
        let calls = format!("[{},{}]", call(0), call(1));
        trace.says("calls", &calls).said()
    };
    let check = "misplaced-positions";
    assert_eq!(said(["{}"; 2]).status(check), Status::NotApplicable);
    for healthy in [
        r#"{"rotated":"both"}"#,
        r#"{"rotated":"none","slopes":[-0.5,-0.1]}"#,
    ] {
        assert_eq!(said([healthy; 2]).status(check), Status::Passed);
    }
    let mixed = said([r#"{"slopes":[0.1,0.5]}"#, r#"{"slopes":[-0.1,0.5]}"#]);
    assert_eq!(mixed.status(check), Status::Passed);
    let far = said([r#"{"slopes":[0.1,0.5]}"#, r#"{"slopes":[0.2,0.6]}"#]);
    let finding = far.one(check);
    assert_eq!(finding.severity, Severity::Warning);
    assert!(
        finding
            .evidence
            .contains("plus 0.1000 to 0.6000 per position"),
        "{}",
        finding.evidence
    );
    let one_side = said([r#"{"rotated":"both"}"#, r#"{"rotated":"queries"}"#]);
    let finding = one_side.one(check);
    assert_eq!((finding.severity, finding.value), (Severity::Warning, 1.0));
    assert_eq!(finding.place.layer_idx, Some(1));
    let values = said([r#"{"rotated":"both","rotated_values":true}"#; 2]);
    assert_eq!(values.one(check).severity, Severity::Info);
    let before = said([r#"{"rotated":"none","rotated_before":true}"#; 2]);
    assert_eq!(before.one(check).severity, Severity::Warning);
}

#[test]
fn heads_that_a_reshape_mixed_with_positions_are_an_error_that_says_how_to_move_them() {
    let (patterns, _) = causal_heads(7, 2, N, 1.0);
    let said = |moved: [&str; 2]| {
        let calls: Vec<String> = (0..2)
            .map(|idx| {
                format!(
                    r#"{{"name":"blocks.{idx}.attn","heads_moved":{}}}"#,
                    moved[idx]
                )
            })
            .collect();
        let trace = (0..2).fold(Trace::default(), |trace, layer_idx| {
            trace.layer(layer_idx, &patterns, None)
        });
        trace
            .says("calls", &format!("[{}]", calls.join(",")))
            .said()
    };
    let right = r#"{"v":true,"z":true}"#;
    assert_eq!(said([right; 2]).status("head-reshape"), Status::Passed);
    assert_eq!(
        said(["{}"; 2]).status("head-reshape"),
        Status::NotApplicable
    );
    let merged = said([right, r#"{"rot_q":true,"z":false}"#]);
    let finding = merged.one("head-reshape");
    assert_eq!((finding.severity, finding.value), (Severity::Error, 1.0));
    assert_eq!(finding.place.layer_idx, Some(1));
    assert!(
        finding.evidence.starts_with("L1: outputs of heads"),
        "{}",
        finding.evidence
    );
    assert_eq!(
        finding.advice,
        "merge heads with transpose(1, 2).reshape(B, T, H * D)"
    );
    let split = said([r#"{"rot_q":false,"rot_k":false,"v":false,"z":true}"#; 2]);
    let finding = split.one("head-reshape");
    assert_eq!((finding.value, finding.place.layer_idx), (6.0, None));
    assert!(
        finding.evidence.starts_with("all 2 layers: "),
        "{}",
        finding.evidence
    );
    assert!(
        finding.advice.contains("view(B, T, H, D).transpose(1, 2)"),
        "{}",
        finding.advice
    );
}
