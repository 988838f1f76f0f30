//! Runs prompts and changed copies of them side by side, layer by layer, to see what moves without storing any layer.

use std::cell::RefCell;
use std::ops::ControlFlow;

use attnscope_checks::Movement;
use attnscope_checks::stats::LayerReport;
use attnscope_compute::attention::RowSummary;
use attnscope_compute::error::Result;
use attnscope_compute::kernels::first_nonfinite;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, Input};
use attnscope_spec::{Model, Place, Stack};

use super::job::{Job, Options};
use super::observer::{Observer, Progress};
use super::pipeline::run_all;
use super::tap::Tap;

/// Positions of a copy that correspond to the first positions of the prompt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// Index in the copy of the prompt's position 0.
    pub offset: usize,
    /// Number of positions to compare.
    pub n: usize,
}

/// A changed copy, and the positions to compare in each stack; a stack without a span is not compared.
#[derive(Debug, Clone)]
pub(super) struct Copy {
    pub input: Input,
    pub source: Option<Span>,
    pub main: Option<Span>,
    /// Movements up to this are rounding.
    pub tolerance: f64,
}

impl Copy {
    fn span(&self, stack: Stack) -> Option<Span> {
        match stack {
            Stack::Encoder => self.source,
            _ => self.main,
        }
    }
}

/// What moved in one copy, compared with the prompt.
#[derive(Debug, Clone, Default)]
pub(super) struct Moved {
    pub first_pattern: Option<Movement>,
    pub first_residual: Option<Movement>,
    /// Largest movement of any residual, whether within tolerance or not.
    pub largest: f64,
    /// Whether a residual of the prompt or of the copy contains a NaN or an infinity. Since 0·NaN is NaN, it spreads even to
    /// rows that do not see it, so movements then mean nothing.
    pub is_nonfinite: bool,
    /// Movement of each position after the last layer, for all positions of the copy. // [position]
    pub at_end: Vec<f32>,
    /// Movement of the last position after each layer of the stack that predicts. // [layer]
    pub of_last: Vec<f32>,
}

/// The prompt's own values in the current layer.
#[derive(Default)]
struct Base {
    resid: Vec<f32>,
    largest: f32,
    is_nonfinite: bool,
    /// Row summaries by stack of attention. // [head, query]
    rows: Vec<(Stack, Vec<Vec<RowSummary>>)>,
}

/// A prompt, and changed copies of it that are compared with it.
pub(super) struct Group<'a> {
    pub prompt: &'a Input,
    pub copies: &'a [Copy],
}

/// Runs prompts and their copies, all of them through one layer after another, so that weights are read once. Equal prompts run
/// once. Returns what moved in each copy. // [group][copy]
///
/// # Errors
/// As for [`run_all`].
pub(super) fn lockstep<O: Ops>(
    ops: &O,
    model: &Model,
    groups: &[Group<'_>],
    mut progress: impl FnMut(Progress),
    pace: &dyn Pace,
) -> Result<Vec<Vec<Moved>>> {
    let mut prompts: Vec<&Input> = Vec::new();
    let of_groups: Vec<usize> = groups
        .iter()
        .map(|group| {
            let known = prompts.iter().position(|known| *known == group.prompt);
            known.unwrap_or_else(|| {
                prompts.push(group.prompt);
                prompts.len() - 1
            })
        })
        .collect();
    let bases: Vec<RefCell<Base>> = prompts.iter().map(|_| RefCell::default()).collect();
    let mut progress = Some(&mut progress as &mut dyn FnMut(Progress));
    let listener = |base| Listener {
        base,
        progress: progress.take(),
    };
    let mut listeners: Vec<Listener<'_>> = bases.iter().map(listener).collect();
    let mut keepers: Vec<Keeper<'_>> = bases.iter().map(Keeper).collect();
    let all: Vec<(usize, &Copy)> = groups
        .iter()
        .zip(of_groups)
        .flat_map(|(group, prompt_idx)| group.copies.iter().map(move |copy| (prompt_idx, copy)))
        .collect();
    let moved: Vec<RefCell<Moved>> = all.iter().map(|_| RefCell::default()).collect();
    let mut watchers: Vec<Watcher<'_>> = all
        .iter()
        .zip(&moved)
        .map(|((prompt_idx, copy), moved)| Watcher {
            base: &bases[*prompt_idx],
            copy,
            moved,
        })
        .collect();
    let mut taps: Vec<Comparer<'_>> = all
        .iter()
        .zip(&moved)
        .map(|((prompt_idx, copy), moved)| Comparer {
            base: &bases[*prompt_idx],
            copy,
            moved,
        })
        .collect();
    // In each layer the prompts run first.
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for ((prompt, listener), keeper) in prompts.iter().zip(&mut listeners).zip(&mut keepers) {
        jobs.push(Job {
            input: prompt,
            observer: listener,
            tap: Some(keeper),
        });
    }
    for (((_, copy), watcher), tap) in all.iter().zip(&mut watchers).zip(&mut taps) {
        jobs.push(Job {
            input: &copy.input,
            observer: watcher,
            tap: Some(tap),
        });
    }
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    run_all(ops, model, jobs, options, pace)?;
    drop((watchers, taps));
    let mut moved = moved.into_iter().map(RefCell::into_inner);
    let of_group = |group: &Group<'_>| moved.by_ref().take(group.copies.len()).collect();
    Ok(groups.iter().map(of_group).collect())
}

/// Keeps the prompt's rows of the current layer.
struct Listener<'a> {
    base: &'a RefCell<Base>,
    /// Of the first prompt alone.
    progress: Option<&'a mut dyn FnMut(Progress)>,
}

impl Observer for Listener<'_> {
    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        if let Some(told) = &mut self.progress {
            told(progress);
        }
        ControlFlow::Continue(())
    }

    fn layer(&mut self, report: LayerReport) -> ControlFlow<()> {
        let mut base = self.base.borrow_mut();
        if report.stack != Stack::Cross {
            base.rows.clear();
        }
        let rows = report.heads.into_iter().map(|head| head.summary.rows);
        base.rows.push((report.stack, rows.collect()));
        ControlFlow::Continue(())
    }
}

/// Compares a copy's rows with the prompt's.
struct Watcher<'a> {
    base: &'a RefCell<Base>,
    copy: &'a Copy,
    moved: &'a RefCell<Moved>,
}

impl Observer for Watcher<'_> {
    fn progress(&mut self, _: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn layer(&mut self, report: LayerReport) -> ControlFlow<()> {
        let mut moved = self.moved.borrow_mut();
        let Some(span) = self.copy.span(report.stack) else {
            return ControlFlow::Continue(());
        };
        if moved.first_pattern.is_some() {
            return ControlFlow::Continue(());
        }
        let base = self.base.borrow();
        let rows = base.rows.iter().find(|(stack, _)| *stack == report.stack);
        let heads = rows
            .map_or(&[][..], |(_, heads)| heads)
            .iter()
            .zip(&report.heads);
        for (head_idx, (rows, head)) in heads.enumerate() {
            let copied = &head.summary.rows[span.offset..];
            let pairs = rows.iter().zip(copied).take(span.n).enumerate();
            let worst = pairs.map(|(query_idx, (a, b))| (query_idx, difference(a, b)));
            let worst = worst.max_by(|a, b| a.1.total_cmp(&b.1));
            let Some((query_idx, amount)) =
                worst.filter(|(_, amount)| *amount > self.copy.tolerance)
            else {
                continue;
            };
            let place = report.place().head(head_idx).query(query_idx);
            moved.first_pattern = Some(Movement {
                place,
                name: None,
                amount,
            });
            break;
        }
        ControlFlow::Continue(())
    }
}

/// Difference between two rows of a pattern, from their summaries: hardly any change of a row leaves all these numbers equal.
fn difference(a: &RowSummary, b: &RowSummary) -> f64 {
    let of = |row: &RowSummary| {
        [
            row.mass,
            row.top1,
            row.top2,
            row.sum_p2,
            row.sum_p3,
            row.entropy,
            row.diagonal_mass,
        ]
    };
    let pairs = of(a).into_iter().zip(of(b));
    pairs
        .map(|(a, b)| f64::from(distance(a, b)))
        .fold(0.0, f64::max)
}

/// |a − b|; 0 between two NaNs or equal infinities, and infinite if only one is a NaN.
fn distance(a: f32, b: f32) -> f32 {
    if a == b || (a.is_nan() && b.is_nan()) {
        return 0.0;
    }
    let difference = (a - b).abs();
    if difference.is_nan() {
        f32::INFINITY
    } else {
        difference
    }
}

/// Keeps the prompt's residual of the current layer.
struct Keeper<'a>(&'a RefCell<Base>);

/// Compares a copy's residual with the prompt's.
struct Comparer<'a> {
    base: &'a RefCell<Base>,
    copy: &'a Copy,
    moved: &'a RefCell<Moved>,
}

fn is_residual(stack: Stack, hook: Hook) -> bool {
    hook == Hook::ResidPost && stack != Stack::Cross
}

impl Tap for Keeper<'_> {
    fn wants(&self, stack: Stack, _: usize, hook: Hook) -> bool {
        is_residual(stack, hook)
    }

    fn values(&mut self, _: Stack, _: usize, _: Hook, values: &[f32], _: usize) -> Result<()> {
        let mut base = self.0.borrow_mut();
        base.largest = values.iter().fold(0.0, |most, value| most.max(value.abs()));
        base.is_nonfinite |= first_nonfinite(values).is_some();
        base.resid.clear();
        base.resid.extend_from_slice(values);
        Ok(())
    }
}

impl Tap for Comparer<'_> {
    fn wants(&self, stack: Stack, _: usize, hook: Hook) -> bool {
        is_residual(stack, hook)
    }

    fn values(
        &mut self,
        stack: Stack,
        layer_idx: usize,
        _: Hook,
        values: &[f32],
        width: usize,
    ) -> Result<()> {
        let base = self.base.borrow();
        let mut moved = self.moved.borrow_mut();
        moved.is_nonfinite |= base.is_nonfinite || first_nonfinite(values).is_some();
        let offset = self.copy.span(stack).map_or(0, |span| span.offset);
        let n_compared = self.copy.span(stack).map_or(0, |span| span.n);
        let largest = if base.largest.is_finite() && base.largest > 0.0 {
            base.largest
        } else {
            1.0
        };
        let pairs = base
            .resid
            .chunks(width)
            .zip(values.chunks(width).skip(offset));
        let amounts = pairs.map(|(a, b)| {
            let pairs = a.iter().zip(b);
            let most = pairs.fold(0.0f32, |most, (a, b)| most.max(distance(*a, *b)));
            // A movement relative to 0 or to infinity is undefined, so count it as none.
            if most == 0.0 { 0.0 } else { most / largest }
        });
        let amounts: Vec<f32> = amounts.collect();
        let worst = amounts.iter().take(n_compared).copied().enumerate();
        if let Some((position_idx, amount)) = worst.max_by(|a, b| a.1.total_cmp(&b.1)) {
            let amount = f64::from(amount);
            moved.largest = moved.largest.max(amount);
            if amount > self.copy.tolerance && moved.first_residual.is_none() {
                moved.first_residual = Some(Movement {
                    place: Place::layer(stack, layer_idx).query(position_idx),
                    name: None,
                    amount,
                });
            }
        }
        if stack != Stack::Encoder {
            moved.of_last.push(amounts.last().copied().unwrap_or(0.0));
            moved.at_end = amounts;
        }
        Ok(())
    }
}
