//! What parts of a model do: shares against the logit that they sum to, ablations in batches against whole runs of a changed model.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use attnscope_compute::ops::Cpu;
use attnscope_forward::Input;
use attnscope_prompt::{PromptForm, Request};
use attnscope_run::{WhatIf, input_of, with_what_ifs};
use attnscope_spec::{Model, Place, Stack, StackSpec};
use attnscope_studies::effect::{
    Ablation, Asked, Base, Pair, Part, Patching, Replaced, ShareOf, attribute, check_linear,
    head_of, lens,
};
use safetensors::SafeTensors;
use testing::effort::{one_of_each, some_of, tries_all};
use testing::hooks::hooks_of;
use testing::oracle_case::{cases, model_of, reference_bytes, request_of};

/// A case that can be run, its name, and its prompt.
pub struct Case {
    pub name: String,
    pub model: Model,
    pub request: Request,
    pub input: Input,
}

/// The cases of some names.
pub fn cases_called(is_wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = Case> {
    let is_wanted = move |path: &PathBuf| is_wanted(&name_of(path));
    loaded(cases().into_iter().filter(is_wanted))
}

fn name_of(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into()
}

fn loaded(paths: impl IntoIterator<Item = PathBuf>) -> impl Iterator<Item = Case> {
    paths.into_iter().map(|path| {
        let bytes = reference_bytes(&path);
        let reference = SafeTensors::deserialize(&bytes).expect("a reference");
        let model = model_of(&path);
        let model = model.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let request = request_of(&path, &reference);
        let no_text = PromptForm::Ids("not asked for".to_owned());
        let prompt =
            attnscope_prompt::prepare(&request, &no_text, model.spec.limits()).expect("fits");
        Case {
            name: name_of(&path),
            input: input_of(&prompt),
            model,
            request,
        }
    })
}

pub fn go_on() -> bool {
    false
}

fn last_real(input: &Input) -> usize {
    let n = input.sequence.len();
    let found = (0..n).rev().find(|idx| input.sequence.is_real(*idx));
    found.expect("a real token")
}

#[test]
fn shares_sum_to_the_logit_in_every_family_whose_logits_are_linear() {
    let (mut n_decoders, mut refused) = (0, Vec::new());
    for case in loaded(one_of_each(cases())) {
        let Case { model, input, .. } = &case;
        let reasons = [
            "activation",
            "the residual has streams",
            "the residual has two states",
            "give their output to a mixer",
            "convolution over positions",
            "convolutions over a few tokens",
            "experts that each token chooses",
            "learned rows",
            "one softmax of its decoder sees",
            "stages of different widths",
            "keys of another grid, of two stacks or of pools",
        ];
        if let Err(e) = check_linear(model) {
            assert!(
                !model.spec.is_causal_lm || reasons.iter().any(|why| e.to_string().contains(why)),
                "{}: {e}",
                case.name
            );
            refused.push(model.spec.family);
            continue;
        }
        n_decoders += 1;
        let last = last_real(input);
        let tokens = [model.spec.d_vocab as u32 / 3, model.spec.d_vocab as u32 - 2];
        for (position_idx, against) in [(last, None), (last / 2, Some(tokens[1]))] {
            let asked = Asked {
                position_idx,
                token: tokens[0],
                against,
            };
            let found = attribute(&Cpu, model, input, asked, &|_, _| true, &go_on)
                .unwrap_or_else(|e| panic!("{}: {e}", case.name));
            let largest = found.shares.iter().map(|share| share.value.abs());
            let largest = largest.fold(found.logit.abs(), f64::max);
            let off = (found.sum() - found.logit).abs() / largest;
            assert!(
                off <= 1e-4,
                "{}: {} shares sum to {}, not {}",
                case.name,
                found.shares.len(),
                found.sum(),
                found.logit
            );
            let end = found.path.last().expect("a path");
            assert!((end - found.logit).abs() <= 1e-4 * largest, "{}", case.name);
            // Heads are what their sources add, unless one source depends on all others.
            let blocks = model.spec.stacks.iter().flat_map(StackSpec::blocks);
            let mut own = blocks.filter_map(|block| block.own());
            let joins_keys = own.any(|own| own.projections.joins_keys());
            for share in found
                .shares
                .iter()
                .filter(|share| share.of == ShareOf::Head && !joins_keys)
            {
                let by_key: f64 = share.by_key.iter().sum();
                assert!(!share.by_key.is_empty(), "{}: {}", case.name, share.place);
                assert!(
                    (by_key - share.value).abs() <= 1e-4 * largest,
                    "{}: {} {by_key} {}",
                    case.name,
                    share.place,
                    share.value
                );
            }
            let n_heads = found
                .shares
                .iter()
                .filter(|share| share.of == ShareOf::Head);
            assert!(n_heads.count() > 0, "{}", case.name);
        }
    }
    let least = if tries_all() { 60 } else { 40 };
    assert!(n_decoders > least, "{n_decoders} were looked at");
    assert!(refused.contains(&"bert") && !refused.contains(&"llama"));
}

/// Softmax of every row in f64. // [position][token]
fn probabilities(logits: &[f32], d_vocab: usize) -> Vec<Vec<f64>> {
    let row = |row: &[f32]| {
        let max = row.iter().copied().fold(f32::MIN, f32::max);
        let exp: Vec<f64> = row.iter().map(|l| f64::from(l - max).exp()).collect();
        let sum: f64 = exp.iter().sum();
        exp.iter().map(|e| e / sum).collect()
    };
    logits.chunks(d_vocab).map(row).collect()
}

/// Mean change of the loss, and mean KL, over real positions, from whole logits.
fn by_hand(case: &Case, base: &[f32], then: &[f32]) -> (f64, f64) {
    let sequence = &case.input.sequence;
    let d_vocab = base.len() / sequence.len();
    let (base, then) = (probabilities(base, d_vocab), probabilities(then, d_vocab));
    let real: Vec<usize> = (0..sequence.len())
        .filter(|idx| sequence.is_real(*idx))
        .collect();
    let kl = real.iter().map(|idx| {
        let pairs = base[*idx].iter().zip(&then[*idx]);
        pairs
            .filter(|(p, _)| **p > 0.0)
            .map(|(p, q)| p * (p / q).ln())
            .sum::<f64>()
    });
    let kl = kl.sum::<f64>() / real.len() as f64;
    let pairs = real
        .iter()
        .filter(|idx| **idx + 1 < sequence.len() && sequence.is_real(**idx + 1))
        // Some models read more tokens than they predict.
        .filter(|idx| (sequence.tokens[**idx + 1] as usize) < d_vocab);
    let losses: Vec<f64> = pairs
        .map(|idx| {
            let next = sequence.tokens[idx + 1] as usize;
            base[*idx][next].ln() - then[*idx][next].ln()
        })
        .collect();
    (losses.iter().sum::<f64>() / losses.len().max(1) as f64, kl)
}

#[test]
fn heads_ablated_in_batches_are_those_that_a_changed_model_drops() {
    let mut n_compared = 0;
    for case in loaded(some_of(cases(), 5)) {
        let Case {
            model,
            input,
            request,
            ..
        } = &case;
        // What has keys of pools, or shares a softmax with an encoder, cannot be run part by part.
        let stack = model.spec.main_stack();
        let is_merged = stack.blocks().iter().any(|block| block.merged().is_some());
        if head_of(model).is_err() || stack.reads_grid() || is_merged {
            continue;
        }
        // The second head of the first layer of every grid, the first of the last, and all of the first: they join at different layers.
        let places: Vec<Place> = model
            .spec
            .grids()
            .into_iter()
            .flat_map(|grid| {
                let has_heads = |idx: &usize| model.spec.attention(grid, *idx).is_some();
                let mut with_heads = (0..model.spec.n_layers(grid)).filter(has_heads);
                let first = with_heads.next().expect("a layer with heads");
                let last = with_heads.next_back().unwrap_or(first);
                [
                    Place::layer(grid, first).head(1),
                    Place::layer(grid, last).head(0),
                    Place::layer(grid, first),
                ]
            })
            .collect();
        let wants = |part: Part, place: Place| {
            matches!(part, Part::Head | Part::AllHeads) && places.contains(&place)
        };
        let Ok(mut ablation) = Ablation::plan(model, Replaced::Zero, wants) else {
            // What a head adds has no place in the last state of these.
            let mut stacks = model.spec.stacks.iter();
            let is_otherwise = stacks.any(|stack| {
                let mut blocks = stack.blocks().iter();
                let is_joined = stack.embed.joined.is_some();
                is_joined || stack.reads_grid() || blocks.any(|block| block.merged().is_some())
            });
            assert!(is_otherwise, "{}", case.name);
            continue;
        };
        let inputs = [input.clone()];
        let asked = Asked {
            position_idx: 1,
            token: 3,
            against: Some(4),
        };
        let mut tell = |_: &Ablation, _| ControlFlow::Continue(());
        ablation
            .run(&Cpu, model, (&inputs, Some(asked)), &mut tell, &go_on)
            .unwrap_or_else(|e| panic!("{}: {e}", case.name));
        assert_eq!(ablation.parts.len(), places.len());
        let base = &hooks_of(&Cpu, model, request)["logits"];
        for effect in &ablation.parts {
            let what_if: WhatIf = format!("drop=zero@{}", effect.place).parse().expect("one");
            let spec = with_what_ifs(&model.spec, &[what_if]).expect("possible");
            let then = &hooks_of(&Cpu, &model.with_spec(spec), request)["logits"];
            let (loss, kl) = by_hand(&case, base, then);
            let place = effect.place;
            let found = effect.kl().expect("a divergence").mean;
            assert!(
                (found - kl).abs() <= 1e-4 * (1.0 + kl),
                "{} {place}: KL {found}, not {kl}",
                case.name
            );
            assert!(kl > 0.0, "{} {place}: nothing changed", case.name);
            match effect.loss() {
                Some(found) => assert!(
                    (found.mean - loss).abs() <= 1e-4 * (1.0 + loss.abs()),
                    "{} {place}: loss {}, not {loss}",
                    case.name,
                    found.mean
                ),
                None => assert!(!model.spec.is_causal_lm, "{}", case.name),
            }
            let d_vocab = base.len() / input.sequence.len();
            let logit = |logits: &[f32]| f64::from(logits[d_vocab + 3] - logits[d_vocab + 4]);
            let moved = logit(then) - logit(base);
            let found = effect.logit().expect("a logit").mean;
            assert!(
                (found - moved).abs() <= 1e-3 * (1.0 + moved.abs()),
                "{} {place}: logit {found}, not {moved}",
                case.name
            );
            n_compared += 1;
        }
    }
    let least = if tries_all() { 150 } else { 90 };
    assert!(n_compared > least, "{n_compared} were compared");
}

#[test]
fn the_lens_ends_with_what_the_model_predicts_and_its_ranks_are_those_of_the_logits() {
    for case in cases_called(|name| ["gpt2", "gemma2_b", "bert", "t5_v11"].contains(&name)) {
        let Case {
            model,
            input,
            request,
            ..
        } = &case;
        let base = Base::run(&Cpu, model, input, &[], &mut |_| {}, &go_on).expect("runs");
        let n = input.sequence.len();
        let positions: Vec<usize> = (0..n).collect();
        let rows = lens(&Cpu, model, (input, &base), (&positions, 3), &go_on, |_| {});
        let rows = rows.unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let n_layers = model.spec.main_stack().n_layers();
        assert_eq!(rows.len(), n * (n_layers + 1));
        let logits = &hooks_of(&Cpu, model, request)["logits"];
        let d_vocab = logits.len() / n;
        let all = probabilities(logits, d_vocab);
        for row in rows.iter().filter(|row| row.depth == n_layers) {
            let (name, p) = (&case.name, &all[row.position_idx]);
            assert_eq!(row.kl, 0.0, "{name}");
            let mut order: Vec<usize> = (0..d_vocab).collect();
            order.sort_by(|a, b| p[*b].total_cmp(&p[*a]));
            assert_eq!(row.top[0].0 as usize, order[0], "{name}");
            assert!((row.top[0].1 - p[order[0]]).abs() < 1e-5, "{name}");
            if let Some(target) = row.target {
                let rank = order.iter().position(|id| *id == target as usize);
                assert_eq!(row.rank, rank.map(|idx| idx + 1), "{name}");
                let probability = row.probability.expect("one");
                assert!((probability - p[target as usize]).abs() < 1e-5, "{name}");
            }
        }
        let early = rows.iter().filter(|row| row.depth == 0);
        assert!(early.map(|row| row.kl).sum::<f64>() > 0.0, "{}", case.name);
    }
}

#[test]
fn a_whole_residual_that_is_patched_brings_all_back_and_a_prompt_of_its_own_changes_nothing() {
    for case in cases_called(|name| ["gpt2", "gptj_b", "llama", "t5_v11"].contains(&name)) {
        let Case { model, input, .. } = &case;
        let mut corrupted = input.clone();
        // Another token early in what the first stack reads.
        match &mut corrupted.source {
            Some(source) => source.tokens[1] += 1,
            None => corrupted.sequence.tokens[1] += 1,
        }
        let position_idx = last_real(input);
        let asked = Asked {
            position_idx,
            token: 5,
            against: Some(6),
        };
        let first = model.spec.stacks[0].stack;
        let wants = |part: Part, place: Place| match part {
            Part::Residual => place == Place::layer(first, 0),
            Part::Head => place.layer_idx == Some(1),
            _ => true,
        };
        let run = |corrupted: &Input| {
            let pair = Pair {
                clean: input,
                corrupted,
                asked,
            };
            let mut patching = Patching::plan(model, &pair, &[0, 1], wants).expect("a plan");
            let mut tell = |_: &Patching, _| ControlFlow::Continue(());
            patching
                .run(&Cpu, model, pair, &mut tell, &go_on)
                .unwrap_or_else(|e| panic!("{}: {e}", case.name));
            patching
        };
        let patching = run(&corrupted);
        assert!(
            (patching.clean - patching.corrupted).abs() > 1e-4,
            "{}",
            case.name
        );
        let of: BTreeMap<_, _> = patching
            .all
            .iter()
            .map(|one| {
                let restored = patching.restored(one).expect("it ran");
                (
                    (one.part, one.place.to_string(), one.position_idx),
                    restored,
                )
            })
            .collect();
        let place = Place::layer(first, 0).to_string();
        let residual = |position_idx| of[&(Part::Residual, place.clone(), position_idx)];
        // All positions of the first residual are the whole clean prompt; only position 1 differs, position 0 does not.
        assert!(
            (residual(None) - 1.0).abs() < 1e-3,
            "{}: {}",
            case.name,
            residual(None)
        );
        assert!((residual(Some(1)) - 1.0).abs() < 1e-3, "{}", case.name);
        assert!(residual(Some(0)).abs() < 1e-3, "{}", case.name);
        assert!(
            of.values()
                .any(|restored| (0.01..0.9).contains(&restored.abs()))
        );
        let own = run(input);
        for one in &own.all {
            let logit = one.logit.expect("it ran");
            assert!((logit - own.clean).abs() < 1e-3, "{}: {logit}", case.name);
        }
    }
}

#[test]
fn a_mean_over_the_set_and_another_prompt_take_the_place_of_what_is_ablated() {
    let case = cases_called(|name| name == "gpt2").next().expect("a case");
    let Case { model, input, .. } = &case;
    let mut other = input.clone();
    other.sequence.tokens.rotate_left(1);
    let run = |replaced: Replaced, inputs: &[Input]| {
        let wants = |part: Part, _: Place| part != Part::Residual;
        let mut ablation = Ablation::plan(model, replaced, wants).expect("a plan");
        let mut steps = 0;
        let mut tell = |_: &Ablation, _| {
            steps += 1;
            ControlFlow::Continue(())
        };
        let ran = ablation.run(&Cpu, model, (inputs, None), &mut tell, &go_on);
        ran.map(|()| (ablation, steps))
    };
    let of = |ablation: &Ablation, part: Part| {
        let found = ablation.parts.iter().find(|one| one.part == part);
        found.and_then(|one| one.kl()).expect("an effect").mean
    };
    let (zero, _) = run(Replaced::Zero, std::slice::from_ref(input)).expect("runs");
    let (mean, _) = run(Replaced::Mean, &[input.clone(), other.clone()]).expect("runs");
    let (from_other, steps) = run(Replaced::Other, &[input.clone(), other]).expect("runs");
    assert!(steps > 4);
    for part in [Part::Head, Part::Attention, Part::FeedForward] {
        let all = [of(&zero, part), of(&mean, part), of(&from_other, part)];
        assert!(all.iter().all(|kl| *kl > 0.0), "{part:?}: {all:?}");
        assert!(all[0] != all[1] && all[1] != all[2], "{part:?}: {all:?}");
    }
    assert_eq!(mean.n_prompts, 2);
    let alone =
        run(Replaced::Other, std::slice::from_ref(input)).expect_err("nothing to take from");
    assert!(alone.to_string().contains("no other prompt"), "{alone}");
    // A prompt that is put into itself changes nothing.
    let (itself, _) = run(Replaced::Other, &[input.clone(), input.clone()]).expect("runs");
    assert!(
        itself
            .parts
            .iter()
            .all(|one| one.kl().expect("one").mean < 1e-6)
    );
    let heads = itself.parts.iter().filter(|one| one.part == Part::Head);
    let grid = model.spec.n_layers(Stack::Only) * model.spec.n_heads(Stack::Only, 0);
    assert_eq!(heads.count(), grid);
}
