//! Keeps A's values of a layer until B's are compared with them: a tap for each side on one store.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use attnscope_compute::attention::{AttentionSpec, BlockSink, GlobalKeys};
use attnscope_compute::error::{Error, Result};
use attnscope_forward::{Hook, Input, Sequence};
use attnscope_run::Tap;
use attnscope_spec::{ModelSpec, Stack};

use super::gap::{Axes, HookGap, same_bits};
use super::largest::Largest;
use super::layer_tokens::tokens_of;
use super::rows::{Compare, Keep, Keeping, RowGaps, Shared, write_rows};

/// Hook under which everything after the last layer is reported.
pub(super) const AFTER: Hook = Hook::Logits;

/// Name of the encoder's output, as in traces.
pub(super) const ENCODER_OUTPUT: &str = "encoder.last_hidden_state";

/// Kept values of a hook. // [position, width]
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    pub values: Vec<f32>,
    pub width: usize,
}

/// Comparison of one hook of the current layer.
#[derive(Debug)]
pub(super) struct Compared {
    pub stack: Stack,
    pub hook: Hook,
    pub gap: HookGap,
    /// Only with [`Measure::Largest`].
    pub largest: Option<Largest>,
    /// Width of a vector; 0 for scores and pattern.
    pub width: usize,
}

/// Mean Jensen–Shannon divergence of each head's rows, in nats, by attention. // [head] each
pub(super) type Divergences = Vec<(Stack, Vec<f64>)>;

/// How the two sides are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// Two models: sums of what both have.
    Sums,
    /// One model on two devices: the largest difference too. A value that one of them lacks is an error.
    Largest,
}

/// Makes the error for two devices that gave different numbers of values.
pub(super) fn unequal(name: &str, of_a: usize, of_b: usize) -> Error {
    Error::Device(format!(
        "{name}: expected as many values from both engines, found {of_a} and {of_b}"
    ))
}

/// Values of the current layer, shared by both sides' taps.
pub(super) struct Exchange<'a> {
    spec: &'a ModelSpec,
    input: &'a Input,
    /// Whether the current layer has a counterpart.
    pub is_on: Cell<bool>,
    measure: Measure,
    /// The layer of A.
    pub layer_idx: Cell<usize>,
    /// Values of A.
    pub of_a: RefCell<BTreeMap<(Stack, Hook), Kept>>,
    /// Keys and values of A's global tokens in the current layer.
    pub globals: RefCell<BTreeMap<Stack, GlobalKeys>>,
    /// A's input of the layer, if its rows hold more than the residual.
    pub rows_of_a: RefCell<Option<Kept>>,
    pub own: Shared,
    pub cross: Shared,
    /// In the order of execution.
    compared: RefCell<Vec<Compared>>,
    /// Buffers of earlier layers, for reuse.
    spare: RefCell<Vec<Vec<f32>>>,
    /// Output of A's encoder. // [source position, d_model]
    encoded: RefCell<Vec<f32>>,
    /// Whether the encoders' outputs are bit-identical; true without an encoder.
    pub is_same_memory: Cell<bool>,
    pub of_encoded: RefCell<Option<Compared>>,
}

impl<'a> Exchange<'a> {
    pub fn new(spec: &'a ModelSpec, input: &'a Input, measure: Measure) -> Self {
        Self {
            spec,
            input,
            measure,
            is_on: Cell::new(false),
            layer_idx: Cell::new(0),
            of_a: RefCell::default(),
            globals: RefCell::default(),
            rows_of_a: RefCell::default(),
            own: Shared::default(),
            cross: Shared::default(),
            compared: RefCell::default(),
            spare: RefCell::default(),
            encoded: RefCell::default(),
            is_same_memory: Cell::new(true),
            of_encoded: RefCell::default(),
        }
    }

    /// Returns the tokens of the queries of the layer's attention, and of its keys.
    pub fn sequences(&self, stack: Stack) -> (Cow<'a, Sequence>, Cow<'a, Sequence>) {
        tokens_of(self.spec, self.input, (stack, self.layer_idx.get()))
    }

    pub fn attention(&self, stack: Stack) -> Option<&'a AttentionSpec> {
        self.spec.attention(stack, self.layer_idx.get())
    }

    pub fn rows(&self, stack: Stack) -> &Shared {
        if stack == Stack::Cross {
            &self.cross
        } else {
            &self.own
        }
    }

    /// Prepares for a layer; up to `bytes` of its scores and patterns are kept.
    pub fn begin_layer(&self, stack: Stack, layer_idx: usize, bytes: usize) {
        self.is_on.set(true);
        self.layer_idx.set(layer_idx);
        let crosses = (stack == Stack::Decoder).then_some(Stack::Cross);
        let bytes = if crosses.is_some() { bytes / 2 } else { bytes };
        write_rows(&self.cross).clear();
        for grid in [Some(stack), crosses].into_iter().flatten() {
            let (queries, keys) = self.sequences(grid);
            let n_heads = self.spec.n_heads(grid, layer_idx);
            let is_plain = self
                .spec
                .exceptions(grid, layer_idx)
                .is_some_and(|exceptions| exceptions.variants.is_empty());
            // Heads with a spec of their own cannot be recomputed from the layer's queries and keys.
            let bytes = if is_plain { bytes } else { usize::MAX };
            let sizes = (n_heads, queries.len(), keys.len());
            let attention = self.spec.attention(grid, layer_idx);
            let is_causal = attention.is_some_and(|spec| spec.mask.causal && !spec.is_cross);
            let keeping = Keeping {
                bytes,
                is_causal,
                has_largest: self.measure == Measure::Largest,
            };
            write_rows(self.rows(grid)).begin(sizes, queries.real.as_deref(), keeping);
        }
    }

    /// Compares one value of B with A's. B may have run on leading tokens only.
    fn compare(&self, (stack, hook): (Stack, Hook), values: &[f32], width: usize) -> Result<()> {
        let of_a = self.of_a.borrow();
        let kept = of_a.get(&(stack, hook)).filter(|kept| kept.width == width);
        if self.measure == Measure::Largest {
            let n = kept.map_or(0, |kept| kept.values.len());
            if n != values.len() {
                let name = hook.full_name(stack, self.layer_idx.get());
                return Err(unequal(&name, n, values.len()));
            }
        }
        let Some(of_a) = kept.and_then(|kept| kept.values.get(..values.len())) else {
            return Ok(());
        };
        let (queries, keys) = self.sequences(stack);
        let attention = self.attention(stack);
        let is_of_keys = matches!(hook, Hook::K | Hook::V | Hook::RotK);
        let n_heads = attention.and_then(|attention| match hook {
            Hook::Q | Hook::RotQ | Hook::Z => Some(attention.n_heads),
            _ if is_of_keys => Some(attention.n_kv_heads),
            _ => None,
        });
        let (axes, sequence) = if is_of_keys {
            (Axes::Keys, keys)
        } else {
            (Axes::Queries, queries)
        };
        let both = (of_a, values);
        let gap = HookGap::of_vectors(axes, n_heads, both, width, &|idx| sequence.is_real(idx));
        self.compared.borrow_mut().push(Compared {
            stack,
            hook,
            gap,
            largest: self.largest(both, width, &sequence),
            width,
        });
        Ok(())
    }

    /// Returns the largest difference over real positions; only with [`Measure::Largest`]. // [position, width] each
    fn largest(
        &self,
        (of_a, of_b): (&[f32], &[f32]),
        width: usize,
        sequence: &Sequence,
    ) -> Option<Largest> {
        if self.measure != Measure::Largest {
            return None;
        }
        let mut largest = Largest::default();
        let rows = of_a.chunks(width.max(1)).zip(of_b.chunks(width.max(1)));
        for (position_idx, (a, b)) in rows.enumerate() {
            if sequence.is_real(position_idx) {
                largest.add(position_idx * width, a, b);
            }
        }
        Some(largest)
    }

    /// Compares one value of B, whose layer runs in isolation, with A's.
    ///
    /// # Errors
    /// When one model on two devices gave different numbers of values.
    pub fn compare_alone(
        &self,
        at: (Stack, Hook),
        values: &[f32],
        width: usize,
    ) -> Result<Vec<Compared>> {
        self.compare(at, values, width)?;
        Ok(self.compared.take())
    }

    /// Returns a layer's compared hooks in the order of execution, and the divergences of its patterns. The values stay until
    /// [`Self::end_layer`].
    ///
    /// # Errors
    /// When one model on two devices gave different numbers of values.
    pub fn finish_layer(&self, stack: Stack) -> Result<(Vec<Compared>, Divergences)> {
        let mut compared = self.compared.take();
        self.require_all(&compared)?;
        let mut divergences = Vec::new();
        for stack in [stack, Stack::Cross] {
            let mut rows = write_rows(self.rows(stack));
            let Some(gaps) = rows.finish() else {
                continue;
            };
            let RowGaps {
                scores,
                pattern,
                divergence,
                largest,
            } = gaps;
            // Scores and pattern are placed before z, which is made of them.
            let is_after = |c: &Compared| c.stack == stack && c.hook == Hook::Z;
            let at = compared.iter().position(is_after).unwrap_or(compared.len());
            for (hook, gap, nth) in [(Hook::Pattern, pattern, 1), (Hook::Scores, scores, 0)] {
                let largest = largest.map(|both| both[nth]);
                if let Some(largest) = largest
                    && largest.n_values != rows.n_cells()
                {
                    let name = hook.full_name(stack, self.layer_idx.get());
                    return Err(unequal(&name, rows.n_cells(), largest.n_values));
                }
                let row = Compared {
                    stack,
                    hook,
                    gap,
                    largest,
                    width: 0,
                };
                compared.insert(at, row);
            }
            divergences.push((stack, divergence));
        }
        Ok((compared, divergences))
    }

    /// Requires that every value of A was compared, if both sides are one model.
    fn require_all(&self, compared: &[Compared]) -> Result<()> {
        let of_a = self.of_a.borrow();
        let is_there = |at: &(Stack, Hook)| compared.iter().any(|c| (c.stack, c.hook) == *at);
        match of_a.iter().find(|(at, _)| !is_there(at)) {
            Some(((stack, hook), kept)) if self.measure == Measure::Largest => {
                let name = hook.full_name(*stack, self.layer_idx.get());
                Err(unequal(&name, kept.values.len(), 0))
            }
            _ => Ok(()),
        }
    }

    /// Releases the values of a layer.
    pub fn end_layer(&self) {
        self.is_on.set(false);
        self.globals.take();
        let all = self.of_a.take().into_values();
        let all = all.chain(self.rows_of_a.take());
        self.spare.borrow_mut().extend(all.map(|kept| kept.values));
    }

    /// Copies values, reusing a large enough buffer of an earlier layer.
    fn kept(&self, values: &[f32], width: usize) -> Kept {
        let mut spare = self.spare.borrow_mut();
        let fits = spare
            .iter()
            .position(|spare| spare.capacity() >= values.len());
        let mut copy = fits.map_or_else(Vec::new, |idx| spare.swap_remove(idx));
        copy.clear();
        copy.extend_from_slice(values);
        Kept {
            values: copy,
            width,
        }
    }

    /// Compares the output of B's encoder with that of A's.
    fn compare_encoded(&self, values: &[f32]) -> Result<()> {
        let of_a = self.encoded.take();
        self.is_same_memory.set(same_bits(&of_a, values));
        if of_a.len() != values.len() {
            return match self.measure {
                Measure::Sums => Ok(()),
                Measure::Largest => Err(unequal(ENCODER_OUTPUT, of_a.len(), values.len())),
            };
        }
        let width = self.spec.d_memory();
        let (_, source) = self.sequences(Stack::Cross);
        let both = (&*of_a, values);
        let is_real = |idx: usize| source.is_real(idx);
        self.of_encoded.replace(Some(Compared {
            stack: Stack::Encoder,
            hook: AFTER,
            gap: HookGap::of_vectors(Axes::Queries, None, both, width, &is_real),
            largest: self.largest(both, width, &source),
            width,
        }));
        Ok(())
    }

    /// Whether the inputs of A's and B's layer are bit-identical.
    pub fn is_same_input(&self, stack: Stack, values: &[f32]) -> bool {
        let of_a = self.of_a.borrow();
        let kept = of_a.get(&(stack, Hook::ResidPre));
        kept.is_some_and(|kept| same_bits(&kept.values, values))
    }
}

/// Whether a hook holds vectors.
pub(super) fn is_value(hook: Hook) -> bool {
    !hook.is_measure() && !matches!(hook, Hook::Scores | Hook::Pattern | Hook::Logits)
}

/// A side's role in the exchange.
enum SideRole<'a> {
    /// Keeps A's values.
    Keep { own: Keep<'a>, cross: Keep<'a> },
    /// Compares B's values with A's, and says whether the layer's input was bit-identical to A's.
    Compare {
        own: Compare<'a>,
        cross: Compare<'a>,
        was_same: &'a Cell<bool>,
    },
}

/// Tap of one side.
pub(super) struct SideTap<'a> {
    exchange: &'a Exchange<'a>,
    role: SideRole<'a>,
}

impl<'a> SideTap<'a> {
    /// The tap of A.
    pub fn keep(exchange: &'a Exchange<'a>) -> Self {
        let role = SideRole::Keep {
            own: Keep(&exchange.own),
            cross: Keep(&exchange.cross),
        };
        Self { exchange, role }
    }

    /// The tap of B.
    pub fn compare(exchange: &'a Exchange<'a>, was_same: &'a Cell<bool>) -> Self {
        let role = SideRole::Compare {
            own: Compare(&exchange.own),
            cross: Compare(&exchange.cross),
            was_same,
        };
        Self { exchange, role }
    }
}

impl Tap for SideTap<'_> {
    fn wants(&self, _: Stack, _: usize, hook: Hook) -> bool {
        self.exchange.is_on.get() && is_value(hook)
    }

    fn values(
        &mut self,
        stack: Stack,
        _: usize,
        hook: Hook,
        of: &[f32],
        width: usize,
    ) -> Result<()> {
        let exchange = self.exchange;
        match &self.role {
            SideRole::Keep { .. } => {
                let kept = exchange.kept(of, width);
                exchange.of_a.borrow_mut().insert((stack, hook), kept);
                Ok(())
            }
            SideRole::Compare { was_same, .. } => {
                if hook == Hook::ResidPre && stack != Stack::Cross {
                    was_same.set(exchange.is_same_input(stack, of));
                }
                exchange.compare((stack, hook), of, width)
            }
        }
    }

    fn blocks(&self, stack: Stack, _: usize) -> Option<&dyn BlockSink> {
        let (own, cross): (&dyn BlockSink, &dyn BlockSink) = match &self.role {
            SideRole::Keep { own, cross } => (own, cross),
            SideRole::Compare { own, cross, .. } => (own, cross),
        };
        let sink = if stack == Stack::Cross { cross } else { own };
        self.exchange.is_on.get().then_some(sink)
    }

    fn wants_globals(&self) -> bool {
        self.exchange.is_on.get() && matches!(self.role, SideRole::Keep { .. })
    }

    fn globals(&mut self, stack: Stack, keys: &GlobalKeys) {
        let mut of_a = self.exchange.globals.borrow_mut();
        of_a.insert(stack, keys.clone());
    }

    fn wants_rows(&self) -> bool {
        self.exchange.is_on.get()
    }

    fn rows(&mut self, _: Stack, _: usize, hook: Hook, values: &[f32], width: usize) -> Result<()> {
        if hook != Hook::ResidPre {
            return Ok(());
        }
        let rows_of_a = &self.exchange.rows_of_a;
        match &self.role {
            SideRole::Keep { .. } => {
                rows_of_a.replace(Some(self.exchange.kept(values, width)));
            }
            SideRole::Compare { was_same, .. } => {
                let of_a = rows_of_a.borrow();
                let kept = of_a.as_ref();
                was_same.set(kept.is_some_and(|kept| same_bits(&kept.values, values)));
            }
        }
        Ok(())
    }

    fn memory(&mut self, values: &[f32]) -> Result<()> {
        match self.role {
            SideRole::Keep { .. } => {
                self.exchange.encoded.replace(values.to_vec());
                Ok(())
            }
            SideRole::Compare { .. } => self.exchange.compare_encoded(values),
        }
    }
}
