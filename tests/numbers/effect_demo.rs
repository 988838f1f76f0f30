//! The bundled induction demo: the heads that a probe of patterns names come out on top of ablation, attribution and copying, which
//! do not look at patterns.

use std::ops::ControlFlow;

use attnscope_compute::ops::Cpu;
use attnscope_forward::Input;
use attnscope_prompt::{Request, Tokenizer};
use attnscope_run::{WhatIf, input_of, stripes, with_what_ifs};
use attnscope_spec::{Model, Place, Stack};
use attnscope_studies::effect::{
    Ablation, Asked, Into, Part, Replaced, ShareOf, attribute, circuits, contributions, key_feeds,
    retrieval, rollout,
};
use testing::opening::opened;

const TEXT: &str = "one cold morning the old king gave a red apple to his good horse , and they walked up the hill by the river . \
     one cold morning the old king gave a red apple to his good horse , and they walked up the hill by the river .";

fn demo() -> (Model, Input) {
    let model = opened(&testing::root().join("fixtures/induction"), &[]);
    let prompt_form = Tokenizer::open(&model.checkpoint.tokenizer).expect("a tokenizer");
    let prompt = attnscope_prompt::prepare(&Request::text(TEXT), &prompt_form, model.spec.limits());
    let input = input_of(&prompt.expect("fits"));
    (model, input)
}

fn go_on() -> bool {
    false
}

/// The head that looks at the previous token most, and those that look at what followed a token's first copy.
fn named(model: &Model) -> (Place, Vec<Place>) {
    let all = stripes(&Cpu, model, &go_on)
        .expect("runs")
        .expect("a copy fits");
    let heads = all.iter().enumerate().flat_map(|(layer_idx, heads)| {
        let layer = Place::layer(attnscope_spec::Stack::Only, layer_idx);
        heads
            .iter()
            .enumerate()
            .map(move |(head_idx, on)| (layer.head(head_idx), on))
    });
    let heads: Vec<_> = heads.collect();
    let previous = heads
        .iter()
        .max_by(|a, b| a.1.previous.total_cmp(&b.1.previous));
    let induction = heads.iter().filter(|(_, on)| on.induction > 0.5);
    (
        previous.expect("heads").0,
        induction.map(|(place, _)| *place).collect(),
    )
}

#[test]
fn heads_that_patterns_name_come_out_on_top_of_what_heads_do() {
    let (model, input) = demo();
    let (previous, induction) = named(&model);
    assert!(!induction.is_empty() && induction.iter().all(|place| place.layer_idx == Some(1)));
    assert_eq!(previous.layer_idx, Some(0));

    let wants = |part: Part, _: Place| part == Part::Head;
    let mut ablation = Ablation::plan(&model, Replaced::Zero, wants).expect("a plan");
    let inputs = [input.clone()];
    let mut tell = |_: &Ablation, _| ControlFlow::Continue(());
    ablation
        .run(&Cpu, &model, (&inputs, None), &mut tell, &go_on)
        .expect("runs");
    let loss = |place: Place| {
        let found = ablation
            .parts
            .iter()
            .find(|one| one.place.is_same_head(&place));
        found.and_then(|one| one.loss()).expect("a loss").mean
    };
    let mut order: Vec<Place> = ablation.parts.iter().map(|one| one.place).collect();
    order.sort_by(|a, b| loss(*b).total_cmp(&loss(*a)));
    assert_eq!(order[0], previous, "{order:?}");
    assert!(induction.contains(&order[1]), "{order:?}");
    // Without the first half of the circuit more is lost than without any head that is not part of it.
    let others = order
        .iter()
        .filter(|place| **place != previous && !induction.contains(place));
    let others = others.map(|place| loss(*place)).fold(0.0, f64::max);
    assert!(loss(previous) > 4.0 * others, "{} {others}", loss(previous));

    // In the second copy, every word that follows a word is one that followed it before.
    let n = input.sequence.len();
    let (mut of_induction, mut of_others) = (0.0, 0.0);
    for position_idx in [n / 2 + 5, 3 * n / 4] {
        let asked = Asked {
            position_idx,
            token: input.sequence.tokens[position_idx + 1],
            against: None,
        };
        let found = attribute(&Cpu, &model, &input, asked, &|_, _| false, &go_on).expect("shares");
        for share in found
            .shares
            .iter()
            .filter(|share| share.of == ShareOf::Head)
        {
            if induction.contains(&share.place) {
                of_induction += share.value;
            } else {
                of_others += share.value;
            }
        }
    }
    assert!(
        of_induction > 2.0 * of_others.abs(),
        "{of_induction} {of_others}"
    );

    let found = circuits(&model, &|_| true, &mut |_, _| {}, &go_on).expect("circuits");
    let copying = |place: &Place| {
        let head = found.heads.iter().find(|head| head.place == *place);
        head.and_then(|head| head.copying).expect("a score")
    };
    assert!(induction.iter().all(|place| copying(place) > 0.95));
    assert!(copying(&previous) < 0.5);
    for head in &found.heads {
        let most = 32.0 + 1e-6;
        for ranks in [head.qk, head.ov] {
            assert!(
                ranks.stable >= 1.0 - 1e-6 && ranks.effective <= most,
                "{}",
                head.place
            );
            assert!(ranks.stable <= ranks.effective * most, "{}", head.place);
        }
    }
    // The keys of those without which most is lost read what the previous-token head wrote.
    for place in &order[1..3] {
        assert!(induction.contains(place), "{order:?}");
        let mut into = found.compositions.iter();
        let best = into.find(|one| one.to == *place && one.into == Into::Keys);
        assert_eq!(best.map(|one| one.from), Some(previous), "{place}");
    }
    // Asked for these heads alone, each gets the best of all its scores; a head feeds none of its own layer.
    let layer_0: Vec<Place> = (0..4)
        .map(|head_idx| Place::layer(Stack::Only, 0).head(head_idx))
        .collect();
    let fed = key_feeds(&model, &layer_0, &induction, &go_on).expect("weights");
    assert_eq!(fed.len(), induction.len());
    for one in &fed {
        let mut into = found.compositions.iter();
        let best = into.find(|best| best.to == one.to && best.into == Into::Keys);
        assert_eq!(Some(one), best, "{}", one.to);
    }
    let none = key_feeds(&model, &induction, &induction, &go_on).expect("weights");
    assert!(none.is_empty(), "{none:?}");
}

/// How a model's heads copy needles of random tokens.
fn copies(model: &Model) -> Vec<(Place, f64, f64)> {
    let found = retrieval(&Cpu, model, &go_on).expect("runs");
    let heads = found.heads.iter();
    heads
        .map(|head| (head.place, head.retrieval, head.looks))
        .collect()
}

#[test]
fn the_heads_that_copy_needles_are_the_induction_heads() {
    let (model, _) = demo();
    let (_, induction) = named(&model);
    for (place, retrieval, looks) in copies(&model) {
        if induction.contains(&place) {
            assert!(
                retrieval > 0.5 && looks >= retrieval,
                "{place}: {retrieval} {looks}"
            );
        } else {
            assert!(looks < 0.1, "{place}: {looks}");
        }
    }
}

/// Without the heads that say what came before, the same heads look at the same tokens and copy nothing; and a model that has
/// learned its sentences otherwise has no head that copies random ones.
#[test]
fn heads_that_cannot_know_what_followed_copy_nothing() {
    let (mut model, _) = demo();
    let words = ["drop=zero@L0H0", "drop=zero@L0H2"];
    let what_ifs = words.map(|word| word.parse::<WhatIf>().expect("a what-if"));
    model.spec = with_what_ifs(&model.spec, &what_ifs).expect("applies");
    let healthy = opened(&testing::root().join("fixtures/healthy"), &[]);
    for model in [&model, &healthy] {
        for (place, retrieval, looks) in copies(model) {
            assert!(
                retrieval < 0.1 && looks < 0.1,
                "{place}: {retrieval} {looks}"
            );
        }
    }
}

#[test]
fn what_heads_carry_is_weighed_by_what_they_write() {
    let (model, input) = demo();
    let found = contributions(&Cpu, &model, &input, &go_on).expect("runs");
    assert_eq!(found.len(), 8);
    for one in &found {
        assert!(
            one.added <= one.total * (1.0 + 1e-5),
            "{}: more than the sum of lengths",
            one.place
        );
        assert!(
            (0.0..=1.0).contains(&one.first_share) && (0.0..=1.0).contains(&one.first_attention)
        );
        assert!(one.entropy >= 0.0 && one.entropy <= (input.sequence.len() as f64).ln());
        assert_eq!(one.value_norms.len(), input.sequence.len());
        assert!(one.value_norms.iter().all(|norm| *norm > 0.0));
    }
    // A head that cancels nothing would add all it carries: some do nearly, none does exactly.
    assert!(found.iter().any(|one| one.added > 0.9 * one.total));
}

#[test]
fn rollout_rows_sum_to_one_and_causal_ones_gather_at_the_start() {
    let (model, input) = demo();
    let n = input.sequence.len();
    let found = rollout(&Cpu, &model, &input, &[0, n - 1], &go_on).expect("runs");
    let [stack] = found.as_slice() else {
        panic!("one stack");
    };
    assert!(stack.is_causal && stack.layers.len() == 2);
    for rows in &stack.layers {
        for (row, position_idx) in rows.iter().zip([0, n - 1]) {
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-4);
            assert!(row[position_idx + 1..].iter().all(|value| *value == 0.0));
        }
        assert_eq!(rows[0][0], 1.0, "the first token sees itself alone");
    }
    let first = |layer_idx: usize| stack.means[layer_idx][0];
    assert!(first(1) > first(0), "every layer adds to it");
}
