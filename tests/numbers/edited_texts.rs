//! A text whose end was edited gives what a run of all of it gives, in every family, and costs less where its beginning is known.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use attnscope_checks::stats::LayerReport;
use attnscope_compute::ops::Cpu;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Input, Recomputed};
use attnscope_run::{
    Earlier, Job, Kept, Observer, Options, Outcome, Progress, Shared, work_spared,
};
use attnscope_spec::Model;
use testing::effort::{some_of, tries_all};
use testing::oracle_case::cases;

use super::cache_parity::writing_cases;

/// What a run tells, and keeps.
#[derive(Default)]
struct Told {
    layers: Vec<LayerReport>,
    kept: Option<Arc<Kept>>,
}

impl Observer for Told {
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

#[derive(Default)]
struct Counter(AtomicU64);

impl Pace for Counter {
    fn stops(&self) -> bool {
        false
    }

    fn did(&self, multiply_adds: u64) {
        self.0.fetch_add(multiply_adds, Ordering::Relaxed);
    }
}

const OPTIONS: Options = Options {
    keep_bytes: Some(1 << 22),
    predicts: true,
};

/// What a run tells, what comes of it, and how many multiplications it took.
fn ran(model: &Model, input: &Input, shared: Option<Shared<'_>>) -> (Told, Outcome, u64) {
    let (mut told, counter) = (Told::default(), Counter::default());
    let job = Job {
        input,
        observer: &mut told,
        tap: None,
    };
    let outcome = match shared {
        Some(shared) => attnscope_run::run_edited(&Cpu, model, job, OPTIONS, shared, &counter),
        None => attnscope_run::run(&Cpu, model, input, OPTIONS, job.observer, None, &counter),
    };
    (told, outcome.expect("runs"), counter.0.into_inner())
}

/// The tokens from one on are others, and of as many as there were some are cut off.
fn edited(input: &Input, from: usize, n: usize) -> Input {
    let mut edited = Input {
        source: input.source.clone(),
        sequence: input.sequence.first(n),
    };
    let tokens = edited.sequence.tokens.iter_mut();
    tokens.skip(from).for_each(|token| *token ^= 1);
    edited
}

/// # Errors
/// Says what differs from a run of the whole text.
fn compare(model: &Model, input: &Input, edited: &Input, n_same: usize) -> Result<bool, String> {
    let (before, outcome, _) = ran(model, input, None);
    let kept = before.kept.ok_or("nothing was kept")?;
    let earlier = Earlier {
        input,
        kept: &kept,
        outcome: &outcome,
    };
    let stack = model.spec.main_stack();
    let Some(shared) = earlier.shared_with(&model.spec, edited) else {
        let (_, why) = Recomputed::n_reusable(stack, &input.sequence, &edited.sequence);
        return why.map(|_| false).ok_or("nothing is shared".to_owned());
    };
    if shared.n_tokens() != n_same {
        return Err(format!("{} tokens are shared", shared.n_tokens()));
    }
    let spared = work_spared(model, &shared, OPTIONS);
    let (whole, expected, work) = ran(model, edited, None);
    let (found, outcome, work_of_rest) = ran(model, edited, Some(shared));
    if work_of_rest >= work {
        return Err(format!("{work_of_rest} multiplications of {work}"));
    }
    let told = (work - work_of_rest) as f64 / spared as f64;
    if !(0.8..=1.25).contains(&told) {
        return Err(format!("{} spared, {spared} told", work - work_of_rest));
    }
    for (whole, found) in whole.layers.iter().zip(&found.layers) {
        if format!("{whole:?}") != format!("{found:?}") {
            return Err(format!("layer {} differs", whole.layer_idx));
        }
    }
    let [expected, outcome] = [expected, outcome].map(|outcome| outcome.predictions);
    let (Some(expected), Some(outcome)) = (expected, outcome) else {
        return Err("no predictions".to_owned());
    };
    // A token beyond the logits has no loss.
    let near =
        |a: f64, b: f64| (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-5 * (1.0 + b.abs());
    let tops = [&expected, &outcome].map(|all| all.top.concat());
    let same_tops = tops[0].len() == tops[1].len()
        && (tops[0].iter().zip(&tops[1]))
            .all(|(a, b)| a.id == b.id && near(f64::from(a.probability), f64::from(b.probability)));
    let losses = [expected, outcome].map(|all| (all.next_loss.unwrap_or_default(), all.loss));
    // A token beyond the logits has no loss, and every other one has.
    let head = model.spec.head.as_ref();
    let n_logits = head.map_or(0, |head| head.unembed.n_out());
    let same = |(idx, (a, b)): (usize, (&f32, &f32))| {
        let has_none = edited.sequence.tokens[idx + 1] as usize >= n_logits;
        if has_none {
            a.is_nan() && b.is_nan()
        } else {
            near(f64::from(*a), f64::from(*b))
        }
    };
    let same_losses = losses[0].0.len() == losses[1].0.len()
        && (losses[0].0.iter().zip(&losses[1].0)).enumerate().all(same)
        && near(losses[0].1.unwrap_or(0.0), losses[1].1.unwrap_or(0.0));
    if !same_tops || !same_losses {
        return Err("predictions differ".to_owned());
    }
    // Kept again: a third text can go on from the second.
    let all_kept = (0..stack.n_layers()).all(|layer_idx| kept.wants_added(layer_idx));
    let again = found.kept.ok_or("nothing was kept again")?;
    let again = Earlier {
        input: edited,
        kept: &again,
        outcome: &Outcome::default(),
    };
    let shared = again.shared_with(&model.spec, edited);
    if !all_kept || shared.is_none_or(|shared| shared.n_tokens() != edited.sequence.len()) {
        return Err("a third text could not go on".to_owned());
    }
    Ok(true)
}

#[test]
fn every_family_tells_of_an_edited_text_what_a_whole_run_tells() {
    let (mut told, mut n_shared) = (Vec::new(), 0);
    for (case, model, input) in writing_cases(some_of(cases(), 3)) {
        let n = input.sequence.len();
        for (from, len) in [(n - 2, n), (n - 1, n - 1)] {
            let edited = edited(&input, from, len);
            match compare(&model, &input, &edited, from) {
                Ok(true) => n_shared += 1,
                Ok(false) => {}
                Err(problem) => told.push(format!("{}: {problem}", case.display())),
            }
        }
    }
    assert!(told.is_empty(), "{}", told.join("\n"));
    let least = if tries_all() { 100 } else { 70 };
    assert!(n_shared > least, "{n_shared}");
}

#[test]
fn another_source_and_another_beginning_share_nothing() {
    let is_chosen = |case: &PathBuf| case.ends_with("t5") || case.ends_with("llama");
    for (_, model, input) in writing_cases(cases().into_iter().filter(is_chosen)) {
        let (told, outcome, _) = ran(&model, &input, None);
        let kept = told.kept.expect("keeps");
        let earlier = Earlier {
            input: &input,
            kept: &kept,
            outcome: &outcome,
        };
        let mut other = input.clone();
        match &mut other.source {
            Some(source) => source.tokens[0] ^= 1,
            None => other.sequence.tokens[0] ^= 1,
        }
        assert!(earlier.shared_with(&model.spec, &other).is_none());
        let mut shifted = input.clone();
        shifted
            .sequence
            .positions
            .iter_mut()
            .for_each(|at| *at += 1);
        assert!(earlier.shared_with(&model.spec, &shifted).is_none());
    }
}
