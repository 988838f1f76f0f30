//! Generated traces: masks, padding, caches, records and orders of axes, healthy and broken, and what the checks make of each.

use std::collections::BTreeMap;

use attnscope_checks::Severity;
use attnscope_run::Declared;
use serde_json::{Value, json};
use testing::checkpoint_copy::Stored;
use testing::judged::Said;
use testing::made_traces::{
    Random, Rows, Sees, Trace, accused, evidence, filled, normalised, softmax, whole,
};

const N: usize = 14;
const N_HEADS: usize = 3;

fn causal(query_idx: usize, key_idx: usize) -> bool {
    key_idx <= query_idx
}

fn both(_: usize, _: usize) -> bool {
    true
}

fn heads(seed: u64, n_queries: usize, n_keys: usize) -> Vec<Rows> {
    let mut random = Random::new(seed);
    (0..N_HEADS)
        .map(|_| random.rows(n_queries, n_keys, 1.3))
        .collect()
}

fn softmaxes(scores: &[Rows], sees: Sees<'_>) -> Vec<Rows> {
    scores
        .iter()
        .map(|rows| normalised(rows, sees, &softmax))
        .collect()
}

#[test]
fn shapes_that_no_attention_is_meant_to_have_are_named() {
    type Shape = (
        &'static str,
        fn(usize, usize) -> bool,
        &'static [&'static str],
        &'static str,
    );
    let shapes: &[Shape] = &[
        (
            "next",
            |i, j| j <= i + 1,
            &["mask-shape"],
            "next key as well",
        ),
        (
            "not its own",
            |i, j| j < i,
            &["mask-shape"],
            "its own position",
        ),
        ("inverted", |i, j| j > i, &["mask-shape"], "wrong way round"),
        (
            "inverted, own too",
            |i, j| j >= i,
            &["mask-shape"],
            "wrong way round",
        ),
        ("hole", |i, j| i != j, &[], "its own position"),
    ];
    for (name, sees, checks, said_so) in shapes {
        let scores = heads(17, N, N);
        let pattern = softmaxes(&scores, sees);
        let masked: Vec<Rows> = scores
            .iter()
            .map(|rows| filled(rows, sees, f64::NEG_INFINITY))
            .collect();
        for scores in [None, Some(masked.as_slice())] {
            let said = Trace::default()
                .layer(0, &pattern, scores)
                .layer(1, &pattern, scores)
                .said();
            let with = scores.is_some();
            assert_eq!(
                accused(&said),
                *checks,
                "{name} {with}: {:#?}",
                said.findings().collect::<Vec<_>>()
            );
            assert!(
                evidence(&said, "mask-shape").contains(said_so),
                "{name} {with}"
            );
        }
    }
}

#[test]
fn layers_of_one_kind_have_one_mask() {
    let scores = heads(19, N, N);
    let of = |sees: Sees<'_>| softmaxes(&scores, sees);
    let (open, closed) = (of(&both), of(&causal));
    let trace = |open_layers: &[usize]| {
        (0..4).fold(Trace::default(), |trace, idx| {
            let pattern = if open_layers.contains(&idx) {
                &open
            } else {
                &closed
            };
            trace.layer(idx, pattern, None)
        })
    };
    let layers = |said: &Said| -> Vec<usize> {
        let findings = said.of("mask-shape").findings.iter();
        findings.filter_map(|f| f.place.layer_idx).collect()
    };
    for (open_layers, odd) in [
        (vec![], vec![]),
        (vec![0, 1, 2, 3], vec![]),
        (vec![1, 3], vec![1, 3]),
        (vec![2], vec![2]),
        (vec![0, 1, 3], vec![2]),
    ] {
        let said = trace(&open_layers).said();
        assert_eq!(layers(&said), odd, "{open_layers:?}");
        assert_eq!(accused(&said).is_empty(), odd.is_empty(), "{open_layers:?}");
    }
    // An encoder and a decoder that are told apart by their modules alone.
    let said = (0..2).fold(Trace::default(), |trace, idx| {
        let trace = trace.named(&format!("enc.{idx}.att#0"), &open, None);
        trace.named(&format!("dec.{idx}.att#0"), &closed, None)
    });
    assert_eq!(accused(&said.said()), [""; 0]);
    // One head whose mask was lost.
    let mixed = vec![closed[0].clone(), open[1].clone(), open[2].clone()];
    let said = Trace::default()
        .layer(0, &mixed, None)
        .layer(1, &mixed, None)
        .said();
    assert_eq!(accused(&said), ["mask-shape"]);
}

#[test]
fn cross_attention_hides_padding_alone_unless_it_waits() {
    let (n_queries, n_keys) = (9, 12);
    let scores = heads(23, n_queries, n_keys);
    let of = |sees: Sees<'_>| softmaxes(&scores, sees);
    let trace =
        |sees: Sees<'_>| Trace::default().named("decoder.blocks.0.cross_attn", &of(sees), None);
    assert_eq!(accused(&trace(&both).said()), [""; 0]);
    let said = trace(&causal).said();
    assert_eq!(accused(&said), ["mask-shape"]);
    let waits = |i: usize, j: usize| j < i + 3;
    let said = trace(&waits).said();
    assert_eq!(accused(&said), [""; 0]);
    assert!(evidence(&said, "mask-shape").contains("wait-3"));
    assert!(
        trace(&waits)
            .says("wait_k", "3")
            .said()
            .of("mask-shape")
            .findings
            .is_empty()
    );
    assert_eq!(
        accused(&trace(&waits).says("wait_k", "2").said()),
        ["mask-shape"]
    );
    assert_eq!(
        accused(&trace(&both).says("wait_k", "3").said()),
        ["mask-shape"]
    );
    let padded = |_: usize, j: usize| j < 8;
    assert_eq!(accused(&trace(&padded).said()), [""; 0]);
}

#[test]
fn with_a_cache_the_mask_counts_from_the_last_key() {
    for n_queries in [1, 4] {
        let n_keys = 12;
        let scores = heads(29, n_queries, n_keys);
        let base = n_keys - n_queries;
        let trace = |sees: Sees<'_>, calls: Value| {
            let pattern = softmaxes(&scores, sees);
            Trace::default()
                .layer(0, &pattern, None)
                .says("capture", "1")
                .says("calls", &calls.to_string())
                .says("mask", "causal")
        };
        let call = |is_causal: bool| json!([{"name": "blocks.0.attn", "is_causal": is_causal, "axis": "keys"}]);
        let right = |i: usize, j: usize| j <= i + base;
        assert_eq!(
            accused(&trace(&right, call(false)).said()),
            [""; 0],
            "{n_queries}"
        );
        assert_eq!(
            trace(&causal, call(true)).said().errors(),
            ["mask-shape"],
            "{n_queries}"
        );
        // One query that gives everything to the first key may have a sink there; its scores tell.
        let said = accused(&trace(&causal, call(false)).said());
        assert_eq!(said.is_empty(), n_queries == 1, "{said:?}");
        let masked: Vec<Rows> = scores
            .iter()
            .map(|rows| filled(rows, &causal, f64::NEG_INFINITY))
            .collect();
        let scored = trace(&causal, call(false)).scores(0, &masked);
        assert_eq!(accused(&scored.said()), ["mask-shape"], "{n_queries}");
    }
    let scores = heads(31, N, N);
    let pattern = softmaxes(&scores, &causal);
    let square = Trace::default()
        .layer(0, &pattern, None)
        .says("is_causal", "true");
    assert_eq!(accused(&square.said()), [""; 0]);
}

#[test]
fn a_prefix_is_information_until_it_is_declared_or_denied() {
    let sees = |i: usize, j: usize| j <= i || j < 5;
    let scores = heads(37, N, N);
    let of = |sees: Sees<'_>| softmaxes(&scores, sees);
    let trace = |sees: Sees<'_>| Trace::default().layer(0, &of(sees), Some(&scores));
    let said = trace(&sees).said();
    assert_eq!(accused(&said), [""; 0]);
    assert!(evidence(&said, "mask-shape").contains("first 5 keys"));
    let declared =
        |sees: Sees<'_>, prefix: &str| trace(sees).says("mask", "causal").says("prefix", prefix);
    assert!(
        declared(&sees, "5")
            .said()
            .of("mask-shape")
            .findings
            .is_empty()
    );
    assert_eq!(accused(&declared(&sees, "5").said()), [""; 0]);
    let said = trace(&sees).says("mask", "causal").said();
    assert_eq!(accused(&said), ["mask-mass"]);
    assert!(evidence(&said, "mask-mass").contains("first 5 keys"));
    assert_eq!(accused(&declared(&sees, "3").said()), ["mask-mass"]);
    assert_eq!(accused(&declared(&causal, "5").said()), ["mask-shape"]);
    let refused = Trace::default()
        .layer(0, &of(&sees), None)
        .says("prefix", "many")
        .written();
    let said = attnscope_run::judge_captured(
        &refused.1,
        &Declared::default(),
        &Default::default(),
        &|_| true,
    );
    assert!(
        said.expect_err("refused")
            .to_string()
            .contains("attnscope.prefix")
    );
}

#[test]
fn what_was_recorded_is_read() {
    let scores = heads(41, N, N);
    let pattern = softmaxes(&scores, &causal);
    let trace = || {
        Trace::default()
            .layer(0, &pattern, Some(&scores))
            .layer(1, &pattern, Some(&scores))
    };
    let row_sum = |trace: Trace| trace.said().fired().get("row-sum").copied();
    assert_eq!(
        row_sum(trace().says("dropout_p", "0.1").says("training", "false")),
        Some(Severity::Error)
    );
    assert_eq!(
        row_sum(trace().says("dropout_p", "0.1").says("training", "true")),
        Some(Severity::Warning)
    );
    assert_eq!(
        row_sum(trace().says("dropout_p", "0.0").says("training", "true")),
        None
    );
    assert_eq!(
        row_sum(trace().says("deterministic", "false")),
        Some(Severity::Warning)
    );
    assert_eq!(row_sum(trace().says("deterministic", "true")), None);
    let calls = json!([{"name": "blocks.1.attn", "dropout_p": 0.2, "training": false}]);
    let said = trace().says("calls", &calls.to_string()).said();
    assert_eq!(said.places("row-sum"), [(Some(1), None)]);
    // Over the batch: rows sum to anything, and only the record tells.
    let mut random = Random::new(43);
    let over_batch: Vec<Rows> = (0..N_HEADS)
        .map(|_| {
            normalised(&random.rows(N, N, 1.0), &causal, &|row| {
                row.iter().map(|s| 1.0 / (1.0 + s.exp())).collect()
            })
        })
        .collect();
    let said = Trace::default()
        .layer(0, &over_batch, Some(&heads(44, N, N)))
        .says("softmax_axis", "batch")
        .said();
    assert!(said.errors().contains(&"wrong-axis"));
    assert!(evidence(&said, "wrong-axis").contains("the batch"));
    // A record that the sums contradict: keys stand elsewhere in the code's array.
    assert_eq!(
        accused(&trace().says("softmax_axis", "heads").said()),
        [""; 0]
    );
}

#[test]
fn padding_is_found_by_what_it_holds_and_the_direction_by_who_receives_nothing() {
    let sees = |_: usize, j: usize| j < N - 4;
    let scores = heads(47, N, N);
    let of = |sees: Sees<'_>| softmaxes(&scores, sees);
    let flags = |one_is_real: bool| -> Vec<i64> {
        (0..N)
            .map(|j| i64::from((j < N - 4) == one_is_real))
            .collect()
    };
    for (name, one_is_real) in [
        ("src_mask", true),
        ("src_mask", false),
        ("key_padding_mask", false),
        ("pad", true),
        ("valid", true),
    ] {
        let array = |pattern: &[Rows]| {
            let batch = [flags(one_is_real), vec![1; N]].concat();
            Trace::default()
                .layer(0, pattern, None)
                .array(name, whole(&[2, N], &batch))
        };
        let said = array(&of(&sees)).said();
        assert_eq!(accused(&said), [""; 0], "{name} {one_is_real}");
        assert!(
            said.of("pad-mass").why.contains("padded"),
            "{name}: {}",
            said.of("pad-mass").why
        );
    }
    // Nothing is hidden: the name says what 1 means.
    let batch = flags(false);
    let said = Trace::default()
        .layer(0, &of(&both), None)
        .array("key_padding_mask", whole(&[1, N], &batch))
        .said();
    assert_eq!(accused(&said), ["pad-mass"]);
    let said = Trace::default()
        .layer(0, &of(&both), None)
        .array("src_mask", whole(&[1, N], &flags(true)))
        .said();
    assert_eq!(accused(&said), ["pad-mass"]);
    // The wrong way round: padding is seen, tokens are not.
    let said = Trace::default()
        .layer(0, &of(&|i, j| !sees(i, j)), None)
        .array("attention_mask", whole(&[N], &flags(true)))
        .said();
    assert!(
        said.errors().contains(&"pad-mass") && said.errors().contains(&"mask-shape"),
        "{:?}",
        said.fired()
    );
}

#[test]
fn orders_of_axes_are_told_apart() {
    let (n_batch, n_heads, n) = (2, 3, 7);
    let mut random = Random::new(53);
    let all: Vec<Vec<Rows>> = (0..n_batch)
        .map(|_| {
            (0..n_heads)
                .map(|_| normalised(&random.rows(n, n, 1.0), &causal, &softmax))
                .collect()
        })
        .collect();
    let at = |name: [usize; 4]| all[name[0]][name[1]][name[2]][name[3]] as f32;
    let sizes = [n_batch, n_heads, n, n];
    let orders: BTreeMap<&str, [usize; 4]> = BTreeMap::from([
        ("bhqk", [0, 1, 2, 3]),
        ("bqkh", [0, 2, 3, 1]),
        ("hbqk", [1, 0, 2, 3]),
        ("qkbh", [2, 3, 0, 1]),
    ]);
    let tokens: Vec<i64> = (0..(n_batch * n) as i64).collect();
    for (order, axes) in orders {
        let shape = axes.map(|axis| sizes[axis]);
        let mut values = Vec::new();
        for flat in 0..shape.iter().product() {
            let (mut rest, mut name) = (flat, [0; 4]);
            for place in (0..4).rev() {
                name[axes[place]] = rest % shape[place];
                rest /= shape[place];
            }
            values.push(at(name));
        }
        let trace = Trace::default()
            .array("attentions.0", Stored::f32(&shape, &values))
            .array("tokens", whole(&[n_batch, n], &tokens));
        let said = trace.said();
        assert_eq!(
            accused(&said),
            [""; 0],
            "{order}: {:#?}",
            said.findings().collect::<Vec<_>>()
        );
        assert!(trace.about().contains("causal inferred: 3 of 3"), "{order}");
    }
    // Positions and batch changed places: a matrix over the batch for each position.
    let across: Vec<f32> = (0..n * n_heads * 4)
        .flat_map(|_| {
            softmax(&[
                random.normal(),
                random.normal(),
                random.normal(),
                random.normal(),
            ])
        })
        .map(|p| p as f32)
        .collect();
    let tokens: Vec<i64> = (0..4 * n as i64).collect();
    let said = Trace::default()
        .array("attentions.0", Stored::f32(&[n, n_heads, 4, 4], &across))
        .array("tokens", whole(&[4, n], &tokens))
        .said();
    assert_eq!(said.errors(), ["wrong-axis"]);
    assert!(evidence(&said, "wrong-axis").contains("across the batch"));
}

#[test]
fn what_heads_look_at_is_no_mask() {
    let one_hot = |key: &dyn Fn(usize) -> usize| -> Rows {
        let row = |i: usize| (0..N).map(|j| f64::from(u8::from(j == key(i)))).collect();
        (0..N).map(row).collect()
    };
    let closed = softmaxes(&heads(71, N, N), &causal);
    // Rounded to 0 everywhere else: previous token, sink, own position.
    let previous = |i: usize| i.saturating_sub(1);
    let looks: [(&str, Vec<Rows>); 4] = [
        ("previous", vec![one_hot(&previous); N_HEADS]),
        ("sink", vec![one_hot(&|_| 0); N_HEADS]),
        ("own", vec![one_hot(&|i| i); N_HEADS]),
        (
            "two of them",
            vec![one_hot(&previous), one_hot(&|_| 0), one_hot(&previous)],
        ),
    ];
    for (name, sharp) in &looks {
        let said = Trace::default()
            .layer(0, &closed, None)
            .layer(1, sharp, None)
            .layer(2, &closed, None)
            .said();
        assert!(
            !said.fired().contains_key("mask-shape"),
            "{name}: {:?}",
            said.of("mask-shape")
        );
        assert!(said.errors().is_empty(), "{name}: {:?}", said.fired());
    }
    let aligned = vec![one_hot(&|i| i); N_HEADS];
    let said = Trace::default()
        .named("decoder.blocks.0.cross_attn", &aligned, None)
        .said();
    assert!(!said.fired().contains_key("mask-shape"));
}

#[test]
fn other_arrays_of_0_and_1_are_no_padding() {
    let open = softmaxes(&heads(73, N, N), &both);
    let flags: Vec<i64> = (0..N).map(|j| i64::from(j >= 6)).collect();
    for name in [
        "token_type_ids",
        "labels",
        "loss_mask",
        "special_tokens_mask",
    ] {
        let said = Trace::default()
            .layer(0, &open, None)
            .array(name, whole(&[1, N], &flags))
            .said();
        assert_eq!(accused(&said), [""; 0], "{name}");
    }
}

#[test]
fn a_faint_mask_is_a_mask_and_a_sink_is_none() {
    let scores = heads(79, N, N);
    let soft = |by: f64| -> Vec<Rows> {
        let hidden = |rows: &Rows| -> Rows {
            let cell = |i: usize, j: usize| rows[i][j] - if j > i { by } else { 0.0 };
            (0..N)
                .map(|i| (0..N).map(|j| cell(i, j)).collect())
                .collect()
        };
        softmaxes(&scores.iter().map(hidden).collect::<Vec<_>>(), &both)
    };
    let said = Trace::default().layer(0, &soft(12.0), None).said();
    assert_eq!(accused(&said), ["mask-mass"]);
    let to_first = |rows: &Rows| -> Rows {
        let cell = |i: usize, j: usize| rows[i][j] + if j == 0 { 9.0 } else { 0.0 };
        (0..N)
            .map(|i| (0..N).map(|j| cell(i, j)).collect())
            .collect()
    };
    let sunk = softmaxes(&scores.iter().map(to_first).collect::<Vec<_>>(), &both);
    let said = Trace::default().layer(0, &sunk, None).said();
    assert!(said.errors().is_empty(), "{:?}", said.fired());
}

#[test]
fn zeros_that_all_heads_share_are_a_mask_and_no_sparse_normaliser() {
    let sees = |i: usize, j: usize| i.abs_diff(j) <= 2 || i == 0 || j == 0;
    let said = Trace::default()
        .layer(0, &softmaxes(&heads(83, N, N), &sees), None)
        .said();
    assert!(said.of("normaliser").findings.is_empty());
    assert_eq!(accused(&said), [""; 0]);
}
