//! Runs one prompt through a model on two engines and compares every hook of every layer.
//!
//! Both engines run a layer before either continues, so that the values of only one layer are held.

mod difference;
mod exchange;
mod largest;
mod memory;
mod place;
mod rows;
mod side;

pub use difference::{Floor, HookDifference};
pub use memory::verify_bytes;
pub use place::ValuePlace;

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Ops, reuse_buffers};
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, Input, Sequence, Unembedding, final_hidden, pool_hidden};
use attnscope_run::{Job, Progress, Silent};
use attnscope_spec::{Model, Stack, StackSpec};

use self::difference::{of_hidden, of_hook};
use self::exchange::{Comparer, ENCODER_OUTPUT, Exchange, Keeper, RowsOnly, unequal};
use self::largest::Largest;
use self::rows::{Compare, Keep, held};
use self::side::{Side, Told};

/// Name of the final norm's output.
const LAST_HIDDEN: &str = "last_hidden_state";

/// Default limit of kept scores and patterns per layer: 1 GiB.
pub const ROW_BYTES: usize = 1 << 30;

/// Options of a verification.
#[derive(Debug, Clone, Copy)]
pub struct Verifying {
    pub floor: Floor,
    /// Bytes of scores and pattern kept per layer. A larger layer reruns for the remaining heads.
    pub row_bytes: usize,
}

impl Default for Verifying {
    fn default() -> Self {
        Self {
            floor: Floor::default(),
            row_bytes: ROW_BYTES,
        }
    }
}

/// Runs a prompt on a reference and on another engine, and compares every hook in the order of execution.
///
/// # Errors
/// When the pace stops it, a tensor differs from its spec, or a device fails.
pub fn verify<A: Ops, B: Ops>(
    (reference, other): (&A, &B),
    model: &Model,
    input: &Input,
    verifying: Verifying,
    tell: &dyn Fn(Progress),
    pace: &dyn Pace,
) -> Result<Vec<HookDifference>> {
    let exchange = Exchange::default();
    let (mut told, mut silent) = (Told(tell), Silent);
    let mut keeper = Keeper::new(&exchange);
    let mut comparer = Comparer::new(&exchange, &model.spec);
    let job = Job {
        input,
        observer: &mut told,
        tap: Some(&mut keeper),
    };
    let mut reference = Side::begin(reference, model, job, pace)?;
    let job = Job {
        input,
        observer: &mut silent,
        tap: Some(&mut comparer),
    };
    let mut other = Side::begin(other, model, job, pace)?;
    let floor = verifying.floor;
    let mut found = Vec::new();
    for stack in &model.spec.stacks {
        reference.resid = reference.pass.embed(stack)?;
        other.resid = other.pass.embed(stack)?;
        let reuse = reuse_buffers();
        for layer_idx in 0..stack.n_layers() {
            if pace.stops() {
                return Err(Error::Cancelled);
            }
            begin_layer(
                &exchange,
                model,
                input,
                (stack, layer_idx),
                verifying.row_bytes,
            );
            both(&exchange, &mut reference, &mut other, (stack, layer_idx))?;
            let compared = exchange.finish_layer(layer_idx, stack.stack)?;
            found.extend(compared.into_iter().map(|c| of_hook(c, layer_idx, floor)));
        }
        drop(reuse);
        held(&exchange.own).clear();
        held(&exchange.cross).clear();
        if stack.stack == Stack::Encoder {
            reference.pass.end(stack, &reference.resid, false)?;
            other.pass.end(stack, &other.resid, false)?;
            let largest = exchange.of_encoded.take();
            let width = model.spec.d_model;
            found.extend(largest.map(|l| of_hidden(ENCODER_OUTPUT, l, width, floor)));
        }
    }
    let (reference, other) = (reference.end(), other.end());
    tell(Progress::Predictions);
    found.extend(after_layers(reference, other, model, input, floor, pace)?);
    Ok(found)
}

/// Prepares for the scores and patterns of a layer.
fn begin_layer(
    exchange: &Exchange,
    model: &Model,
    input: &Input,
    (stack, layer_idx): (&StackSpec, usize),
    row_bytes: usize,
) {
    let n_source = input.source.as_ref().map_or(0, Sequence::len);
    let n = if stack.stack == Stack::Encoder {
        n_source
    } else {
        input.sequence.len()
    };
    let has_cross = stack.stack == Stack::Decoder;
    let n_own = model.spec.n_heads(stack.stack, layer_idx);
    let n_cross = if has_cross {
        model.spec.n_heads(Stack::Cross, layer_idx)
    } else {
        0
    };
    // A decoder layer has two attentions.
    let bytes = if has_cross { row_bytes / 2 } else { row_bytes };
    held(&exchange.own).begin((n_own, n, n), bytes);
    held(&exchange.cross).begin((n_cross, n, n_source), bytes);
}

/// Runs a layer on both engines, and reruns it until all heads' rows are compared.
fn both<A: Ops, B: Ops>(
    exchange: &Exchange,
    reference: &mut Side<'_, A>,
    other: &mut Side<'_, B>,
    at: (&StackSpec, usize),
) -> Result<()> {
    let is_more = || held(&exchange.own).is_more() || held(&exchange.cross).is_more();
    let before = if is_more() {
        Some((reference.copy()?, other.copy()?))
    } else {
        None
    };
    reference.layer(at)?;
    other.layer(at)?;
    let Some((before_reference, before_other)) = before else {
        return Ok(());
    };
    while is_more() {
        held(&exchange.own).advance();
        held(&exchange.cross).advance();
        let (own, cross) = (Keep(&exchange.own), Keep(&exchange.cross));
        reference.rows_again(at, &before_reference, RowsOnly::new(&own, &cross))?;
        let (own, cross) = (Compare(&exchange.own), Compare(&exchange.cross));
        other.rows_again(at, &before_other, RowsOnly::new(&own, &cross))?;
    }
    Ok(())
}

/// Compares the final norm and logits, a chunk of the vocabulary at a time.
fn after_layers<A: Ops, B: Ops>(
    (reference, of_reference): (&A, A::Buffer),
    (other, of_other): (&B, B::Buffer),
    model: &Model,
    input: &Input,
    floor: Floor,
    pace: &dyn Pace,
) -> Result<Vec<HookDifference>> {
    let stack = model.spec.main_stack();
    let (mut of_a, mut of_b) = (A::Buffer::default(), B::Buffer::default());
    final_hidden(reference, model, stack, &of_reference, &mut of_a)?; // [position, d_model]
    final_hidden(other, model, stack, &of_other, &mut of_b)?; // [position, d_model]
    let (host_a, host_b) = (reference.get(&of_a)?, other.get(&of_b)?);
    let mut largest = Largest::default();
    largest.add(0, &host_a.values, &host_b.values);
    let mut found = vec![of_hidden(LAST_HIDDEN, largest, host_a.width, floor)];
    let Some(head) = &model.spec.head else {
        return Ok(found);
    };
    let n = input.sequence.len();
    drop((host_a, host_b));
    pool_hidden(reference, model, head, &input.sequence, &mut of_a)?;
    pool_hidden(other, model, head, &input.sequence, &mut of_b)?;
    let mut unembed = Unembedding::new(reference, model, head, &of_a, n, pace)?;
    let mut unembed_other = Unembedding::new(other, model, head, &of_b, n, pace)?;
    let d_vocab = head.unembed.n_out();
    let mut largest = Largest::default();
    for range in unembed.ranges() {
        let logits = unembed.logits(range.clone())?; // [position, range]
        let of_other = unembed_other.logits(range.clone())?;
        if logits.len() != of_other.len() {
            let name = Hook::Logits.name();
            return Err(unequal(name, logits.len(), of_other.len()));
        }
        let rows = logits.chunks(range.len()).zip(of_other.chunks(range.len()));
        for (position_idx, (row, row_of_other)) in rows.enumerate() {
            largest.add(position_idx * d_vocab + range.start, row, row_of_other);
        }
    }
    let place = ValuePlace::OfToken {
        position_idx: largest.element / d_vocab.max(1),
        token: largest.element % d_vocab.max(1),
    };
    found.push(HookDifference::new(
        Hook::Logits.name().to_owned(),
        None,
        (largest, place),
        (largest.relative(), floor.relative),
    ));
    Ok(found)
}
