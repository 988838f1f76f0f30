//! What parts of a model do, against PyTorch hooks on transformers' own models.

use std::ops::ControlFlow;

use attnscope_compute::ops::Cpu;
use attnscope_spec::Place;
use attnscope_studies::effect::{
    Ablation, Asked, Base, Pair, Part, Patching, Replaced, ShareOf, attribute, lens,
};

use super::effect::{Case, cases_called, go_on};

/// Values that PyTorch hooks gave: `fixtures/effect/make_effects.py`.
fn judged() -> serde_json::Map<String, serde_json::Value> {
    let path = testing::root().join("fixtures/effect/expected.json");
    let text = std::fs::read_to_string(path).expect("the fixture");
    serde_json::from_str(&text).expect("an object")
}

fn number(value: &serde_json::Value) -> f64 {
    value.as_f64().expect("a number")
}

fn index(value: &serde_json::Value) -> usize {
    value.as_u64().expect("an index") as usize
}

/// Relative to 1 where values are small.
fn near(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-4 * expected.abs().max(1.0)
}

#[test]
fn hooks_of_pytorch_give_the_same_ablations_lenses_patches_and_shares() {
    let judged = judged();
    let mut n_compared = [0; 4];
    for case in cases_called(|name| judged.contains_key(name)) {
        let (name, of) = (&case.name, &judged[&case.name]);
        let Case { model, input, .. } = &case;
        let rows = |what: &str| of[what].as_array().expect("rows");
        let wants = |part: Part, _: Place| part == Part::Head;
        let mut ablation = Ablation::plan(model, Replaced::Zero, wants).expect("a plan");
        let inputs = [input.clone()];
        let mut tell = |_: &Ablation, _| ControlFlow::Continue(());
        ablation
            .run(&Cpu, model, (&inputs, None), &mut tell, &go_on)
            .expect("runs");
        assert_eq!(rows("ablation").len(), ablation.parts.len(), "{name}");
        for row in rows("ablation") {
            let place: Place = row[0].as_str().expect("a place").parse().expect("one");
            let effect = ablation
                .parts
                .iter()
                .find(|one| one.place.is_same_head(&place));
            let effect = effect.unwrap_or_else(|| panic!("{name}: {place}"));
            let kl = effect.kl().expect("a divergence").mean;
            assert!(near(kl, number(&row[2])), "{name} {place}: {kl}, {row}");
            if let Some(loss) = row[1].as_f64() {
                let found = effect.loss().expect("a loss").mean;
                assert!(near(found, loss), "{name} {place}: {found}, {row}");
            }
            n_compared[0] += 1;
        }

        let base = Base::run(&Cpu, model, input, &[], &mut |_| {}, &go_on).expect("runs");
        let positions: Vec<usize> = (0..input.sequence.len()).collect();
        let lens = lens(&Cpu, model, (input, &base), (&positions, 1), &go_on, |_| {});
        let lens = lens.expect("runs");
        for row in rows("lens") {
            let (position_idx, depth) = (index(&row[0]), index(&row[1]));
            let mut found = lens.iter();
            let found = found.find(|one| (one.position_idx, one.depth) == (position_idx, depth));
            let found = found.unwrap_or_else(|| panic!("{name}: {row}"));
            assert_eq!(
                found.target.map(|id| id as usize),
                Some(index(&row[2])),
                "{name}"
            );
            assert_eq!(found.rank, Some(index(&row[3])), "{name}: {row}");
            let probability = found.probability.expect("one");
            assert!(near(probability, number(&row[4])), "{name}: {row}");
            assert!(
                near(found.kl, number(&row[5])),
                "{name}: {} {row}",
                found.kl
            );
            n_compared[1] += 1;
        }

        if !rows("patching").is_empty() {
            let mut corrupted = input.clone();
            let changed = index(&of["changed"]);
            corrupted.sequence.tokens[changed] += 1;
            let last = input.sequence.len() - 1;
            let pair = Pair {
                clean: input,
                corrupted: &corrupted,
                asked: Asked {
                    position_idx: last,
                    token: 5,
                    against: Some(6),
                },
            };
            let wants = |part: Part, _: Place| matches!(part, Part::Head | Part::Residual);
            let mut patching =
                Patching::plan(model, &pair, &[changed, last], wants).expect("a plan");
            let mut tell = |_: &Patching, _| ControlFlow::Continue(());
            patching
                .run(&Cpu, model, pair, &mut tell, &go_on)
                .expect("runs");
            assert!(near(patching.clean, number(&of["clean"])), "{name}");
            assert!(near(patching.corrupted, number(&of["corrupted"])), "{name}");
            for row in rows("patching") {
                let place: Place = row[1].as_str().expect("a place").parse().expect("one");
                let mut found = patching.all.iter().filter(|one| {
                    Some(one.part.label()) == row[0].as_str()
                        && one.place.is_same_head(&place)
                        && one.position_idx == Some(index(&row[2]))
                });
                let logit = found.next().and_then(|one| one.logit);
                let logit = logit.unwrap_or_else(|| panic!("{name}: {row}"));
                assert!(near(logit, number(&row[3])), "{name}: {logit} {row}");
                n_compared[2] += 1;
            }
        }

        if !rows("shares").is_empty() {
            let asked = Asked {
                position_idx: input.sequence.len() - 1,
                token: 7,
                against: None,
            };
            let found = attribute(&Cpu, model, input, asked, &|_, _| false, &go_on);
            let found = found.expect("shares");
            for row in rows("shares") {
                let place: Place = row[0].as_str().expect("a place").parse().expect("one");
                let mut shares = found.shares.iter();
                let share = shares
                    .find(|share| share.of == ShareOf::Head && share.place.is_same_head(&place));
                let value = share.unwrap_or_else(|| panic!("{name}: {row}")).value;
                assert!(near(value, number(&row[1])), "{name}: {value} {row}");
                n_compared[3] += 1;
            }
        }
    }
    assert_eq!(judged.len(), 8);
    assert!(n_compared.iter().all(|n| *n >= 20), "{n_compared:?}");
}
