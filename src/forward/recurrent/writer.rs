//! Recurrent decoder: each step attends to the encoder's states.

use attnscope_compute::attention::{
    AttentionSpec, HeadBias, HeadMath, LogSumExp, LogSums, SoftmaxAxis, Tally, Visibility,
    finish_row,
};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::sum_of_squares;
use attnscope_compute::ops::Ops;
use attnscope_spec::recurrent::{RecurrentDecoderSpec, Start};
use attnscope_spec::{Ablation, LinearSource};

use super::cell::Cell;
use super::ends::FinalStates;
use super::scoring::Scoring;
use crate::attend::AttentionRun;
use crate::context::{BlockContext, Memory};
use crate::emit::{emit, emit_host};
use crate::hook::{Hook, Hooks, NoHooks};

/// Turns embedded target tokens into step outputs, in place. Padded steps run too, but do not count in statistics.
///
/// // resid: [position, d_embed] → [position, d_out]
///
/// # Errors
/// When a tensor differs from its spec, the device fails, the pace stops it, or the softmax runs over queries that depend on it or
/// over heads.
pub fn write<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &RecurrentDecoderSpec,
    resid: &mut O::Buffer,
    hooks: &mut dyn Hooks,
) -> Result<AttentionRun> {
    let ops = context.ops;
    emit(ops, hooks, Hook::ResidPre, resid)?; // [position, d_embed]
    if spec.feeds_back && spec.attention.softmax_axis == SoftmaxAxis::Queries {
        let problem = "a softmax over queries needs all of them at once: a decoder with input feeding makes each from the attention of the one before";
        return Err(Error::Prompt(problem.to_owned()));
    }
    if spec.attention.softmax_axis == SoftmaxAxis::Heads {
        let problem = "a softmax over heads leaves every weight 1: this attention has one head";
        return Err(Error::Prompt(problem.to_owned()));
    }
    let Some(memory) = &context.memory else {
        return Err(Error::Prompt(
            "a decoder without an encoder's output".to_owned(),
        ));
    };
    let mut decoder = Decoder::of(context, spec, memory, resid)?;
    let given = {
        let mut none = NoHooks;
        let hooks: &mut dyn Hooks = match hooks.cross() {
            Some(hooks) => hooks,
            None => &mut none,
        };
        decoder.run(hooks)?
    };
    ops.put(&decoder.given, spec.combine.n_out(), resid)?;
    emit(ops, hooks, Hook::ResidPost, resid)?; // [position, d_out]
    Ok(given)
}

/// Returns which keys each step sees. A step whose input is the end token writes nothing, and counts in no statistic.
fn visibility_of<O: Ops>(context: &BlockContext<'_, O>, spec: &RecurrentDecoderSpec) -> Visibility {
    let sequence = context.sequence;
    let n = sequence.len();
    let keys = context.memory.as_ref().map(|memory| memory.sequence);
    let real_keys = keys.and_then(|keys| keys.real.as_deref());
    let last = (0..n).rfind(|idx| sequence.is_real(*idx));
    let after_the_end =
        last.filter(|idx| *idx > 0 && spec.end_tokens.contains(&sequence.tokens[*idx]));
    let counts: Vec<bool> = (0..n)
        .map(|idx| sequence.is_real(idx) && Some(idx) != after_the_end)
        .collect();
    let n_keys = keys.map_or(0, |keys| keys.len());
    Visibility::of_cross(spec.attention.mask, (n, Some(&counts)), (n_keys, real_keys))
}

/// A run of a decoder in progress.
struct Decoder<'r, 'a, O: Ops> {
    context: &'r BlockContext<'a, O>,
    spec: &'r RecurrentDecoderSpec,
    cells: Vec<Cell<'a, O>>,
    scoring: Scoring<'a, O>,
    combine: O::Linear<'a>,
    visibility: Visibility,
    /// The encoder's states. // [key, d_value]
    values: Vec<f32>,
    /// [position, d_embed]
    embedded: Vec<f32>,
    /// States of the last layer, and their queries. // [query, width]
    states: Vec<f32>,
    queries: Vec<f32>,
    /// Σ p·v. // [query, d_value]
    contexts: Vec<f32>,
    /// Outputs of the steps. // [query, d_out]
    given: Vec<f32>,
}

impl<'r, 'a, O: Ops> Decoder<'r, 'a, O> {
    fn of(
        context: &'r BlockContext<'a, O>,
        spec: &'r RecurrentDecoderSpec,
        memory: &Memory<'a, O>,
        resid: &O::Buffer,
    ) -> Result<Self> {
        let (ops, shelf) = (context.ops, context.shelf());
        let mut cells = Vec::new();
        for cell in &spec.layers {
            cells.push(Cell::read(shelf, shelf.by_row(), cell)?);
        }
        begin(context, spec, memory.ends, &mut cells)?;
        Ok(Self {
            context,
            spec,
            cells,
            scoring: Scoring::of(context, spec, memory.hidden)?,
            combine: shelf.by_row().linear(&spec.combine)?,
            visibility: visibility_of(context, spec),
            values: ops.get(memory.hidden)?.values.into_owned(),
            embedded: ops.get(resid)?.values.into_owned(),
            states: Vec::new(),
            queries: Vec::new(),
            contexts: Vec::new(),
            given: Vec::new(),
        })
    }

    fn run(&mut self, hooks: &mut dyn Hooks) -> Result<AttentionRun> {
        let spec = self.spec;
        let n = self.context.sequence.len();
        let n_keys = self.visibility.n_keys;
        let attention = &spec.attention;
        let key_norms: Vec<f32> = self
            .scoring
            .keys
            .chunks(self.scoring.width)
            .map(length)
            .collect();
        let value_norms = self.written_norms(&self.values)?;
        emit_host(hooks, Hook::ValueNorms, &value_norms, n_keys)?;
        // A softmax over queries needs all queries before it can finish the first row.
        let mut column_sums = None;
        if !spec.feeds_back {
            for step in 0..n {
                self.advance(step)?;
            }
            if attention.softmax_axis == SoftmaxAxis::Queries {
                column_sums = Some(self.column_sums(&key_norms));
            }
        }
        let math = HeadMath {
            spec: attention,
            head_idx: 0,
            visibility: &self.visibility.clone(),
            sink: None,
            k_norms: &key_norms,
            value_norms: Some(&value_norms),
            log_sums: column_sums.as_deref().map(LogSums::OverQueries),
            positions: &[],
            learned: &HeadBias::None,
        };
        let mut tally = Tally::new(&self.visibility, None);
        let (mut scores, mut pattern) = (vec![0.0; n_keys], vec![0.0; n_keys]);
        for step in 0..n {
            if spec.feeds_back {
                self.advance(step)?;
            }
            let query = row(&self.queries, step, self.scoring.width);
            self.scoring.products(query, &mut scores);
            let mut summary = finish_row(&math, step, length(query), &mut scores, &mut pattern);
            if !self.scoring.is_product() {
                // With additive scores, lengths and angles of queries and keys are meaningless.
                (summary.q_norm, summary.k_norm_sq_sum, summary.cosine) =
                    (f32::NAN, f32::NAN, f32::NAN);
            }
            tally.add(summary, &pattern);
            if let Some(sink) = hooks.blocks() {
                sink.block(0, step, &scores, &pattern);
            }
            self.look(&pattern);
            if spec.feeds_back {
                self.give(step)?;
            }
        }
        if !spec.feeds_back {
            self.ablate_to_mean();
            for step in 0..n {
                self.give(step)?;
            }
        }
        let mut summary = tally.finish(key_norms, &self.visibility);
        let norms = self.written_norms(&self.contexts)?;
        summary.value_norms.clone_from(&value_norms);
        let mut say =
            |hook: Hook, values: &[f32], width: usize| emit_host(hooks, hook, values, width);
        let width = self.scoring.width;
        let n_out = spec.combine.n_out();
        say(Hook::ResidPre, &self.states, self.states.len() / n.max(1))?;
        say(Hook::Q, &self.queries, width)?;
        say(Hook::K, &self.scoring.keys, width)?;
        say(Hook::V, &self.values, attention.d_value)?;
        say(Hook::RotQ, &self.queries, width)?;
        say(Hook::RotK, &self.scoring.keys, width)?;
        say(Hook::Z, &self.contexts, attention.d_value)?;
        say(Hook::AttnOut, &self.given, n_out)?;
        say(Hook::ResidPost, &self.given, n_out)?;
        Ok(AttentionRun {
            heads: vec![summary],
            head_output_norms: vec![norms],
        })
    }

    /// Computes the layers' next states, from a step's token and the output of the step before.
    fn advance(&mut self, step: usize) -> Result<()> {
        if self.context.pace.stops() {
            return Err(Error::Cancelled);
        }
        let ops = self.context.ops;
        let width = self.embedded.len() / self.context.sequence.len().max(1);
        let mut input = row(&self.embedded, step, width).to_vec();
        if self.spec.feeds_back {
            let n_out = self.spec.combine.n_out();
            match step.checked_sub(1) {
                Some(before) => input.extend_from_slice(row(&self.given, before, n_out)),
                None => input.resize(width + n_out, 0.0),
            }
        }
        let mut from = O::Buffer::default();
        for cell in &mut self.cells {
            ops.put(&input, input.len(), &mut from)?; // [1, n_in]
            let gates = cell.read_inputs(&from)?;
            cell.step(&gates)?;
            input.clone_from(&cell.h);
        }
        self.states.extend_from_slice(&input);
        let query = self.scoring.query(&input)?;
        self.queries.extend(query);
        Ok(())
    }

    /// Sets the context of a step: Σ p·v, or its ablated replacement.
    fn look(&mut self, pattern: &[f32]) {
        let d_value = self.spec.attention.d_value;
        let at = self.contexts.len();
        self.contexts.resize(at + d_value, 0.0);
        if self.spec.ablation == Some(Ablation::Zero) {
            return;
        }
        let mut sums = vec![0.0f64; d_value];
        for (p, value) in pattern.iter().zip(self.values.chunks(d_value)) {
            let pairs = sums.iter_mut().zip(value);
            pairs.for_each(|(sum, v)| *sum += f64::from(*p) * f64::from(*v));
        }
        let pairs = self.contexts[at..].iter_mut().zip(&sums);
        pairs.for_each(|(to, sum)| *to = *sum as f32);
    }

    /// Replaces every context by the mean over real steps, under mean ablation.
    fn ablate_to_mean(&mut self) {
        if self.spec.ablation != Some(Ablation::Mean) {
            return;
        }
        let d_value = self.spec.attention.d_value;
        let rows = self.contexts.chunks(d_value).enumerate();
        let real = rows.filter(|(step, _)| self.context.sequence.is_real(*step));
        let (mut mean, mut n) = (vec![0.0f64; d_value], 0.0);
        for (_, row) in real {
            n += 1.0;
            mean.iter_mut()
                .zip(row)
                .for_each(|(sum, v)| *sum += f64::from(*v));
        }
        for row in self.contexts.chunks_mut(d_value) {
            row.iter_mut()
                .zip(&mean)
                .for_each(|(to, sum)| *to = (sum / n) as f32);
        }
    }

    /// Computes a step's output from its context and state.
    fn give(&mut self, step: usize) -> Result<()> {
        let d_value = self.spec.attention.d_value;
        let d_state = self.spec.combine.n_in - d_value;
        let (context, state) = (
            row(&self.contexts, step, d_value),
            row(&self.states, step, d_state),
        );
        let combined = self.combined(&[context, state].concat(), 1)?;
        self.given.extend(combined.iter().map(|v| v.tanh()));
        Ok(())
    }

    /// Applies the map of context and state. // from: [row, n_in] → [row, n_out]
    fn combined(&self, from: &[f32], n_rows: usize) -> Result<Vec<f32>> {
        let ops = self.context.ops;
        let (mut put, mut to) = (O::Buffer::default(), O::Buffer::default());
        ops.put(from, from.len() / n_rows.max(1), &mut put)?;
        ops.linear(&put, &self.combine, &mut to, self.context.pace)?;
        Ok(ops.get(&to)?.values.into_owned())
    }

    /// Returns the norm of the contribution of each context or value before the tanh. // rows: [row, d_value] → [row]
    fn written_norms(&self, rows: &[f32]) -> Result<Vec<f32>> {
        let (n_in, d_value) = (self.spec.combine.n_in, self.spec.attention.d_value);
        let bias = self.combined(&vec![0.0; n_in], 1)?;
        let mut alone = vec![0.0; rows.len() / d_value * n_in];
        let pairs = alone.chunks_mut(n_in).zip(rows.chunks(d_value));
        pairs.for_each(|(to, row)| to[..d_value].copy_from_slice(row));
        let added = self.combined(&alone, alone.len() / n_in)?;
        let norm = |row: &[f32]| {
            let pairs = row.iter().zip(&bias);
            length(&pairs.map(|(v, b)| v - b).collect::<Vec<f32>>())
        };
        Ok(added.chunks(bias.len()).map(norm).collect())
    }

    /// Returns log Σ over queries of e^s. // [key]
    fn column_sums(&self, key_norms: &[f32]) -> Vec<f32> {
        let over_keys = AttentionSpec {
            softmax_axis: SoftmaxAxis::Keys,
            ..self.spec.attention.clone()
        };
        let math = HeadMath {
            spec: &over_keys,
            head_idx: 0,
            visibility: &self.visibility,
            sink: None,
            k_norms: key_norms,
            value_norms: None,
            log_sums: None,
            positions: &[],
            learned: &HeadBias::None,
        };
        let mut sums = LogSumExp::new(key_norms.len());
        let (mut scores, mut pattern) = (vec![0.0; key_norms.len()], vec![0.0; key_norms.len()]);
        for (query_idx, query) in self.queries.chunks(self.scoring.width).enumerate() {
            self.scoring.products(query, &mut scores);
            finish_row(&math, query_idx, 1.0, &mut scores, &mut pattern);
            sums.add(&scores);
        }
        sums.finish()
    }
}

/// Sets the layers' initial states.
fn begin<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &RecurrentDecoderSpec,
    ends: &FinalStates,
    cells: &mut [Cell<'_, O>],
) -> Result<()> {
    let missing = || Error::Prompt("an encoder whose last states were not kept".to_owned());
    match &spec.start {
        Start::Zeros => {}
        Start::Encoder => {
            for (layer_idx, cell) in cells.iter_mut().enumerate() {
                let of = |states: &[Vec<f32>]| states.get(layer_idx).cloned().ok_or_else(missing);
                (cell.h, cell.c) = (of(&ends.h)?, of(&ends.c)?);
            }
        }
        Start::Bridge(bridge) => {
            let bridged = |linear: &LinearSource, ends: &[Vec<f32>]| -> Result<Vec<f32>> {
                let last = ends.last().ok_or_else(missing)?;
                let (mut from, mut to) = (O::Buffer::default(), O::Buffer::default());
                context.ops.put(last, last.len(), &mut from)?;
                let weights = context.shelf().linear(linear)?;
                context.ops.linear(&from, &weights, &mut to, context.pace)?; // [1, layer · width]
                let host = context.ops.get(&to)?;
                Ok(host.values.iter().map(|v| v.tanh()).collect())
            };
            let (h, c) = (
                bridged(&bridge.hidden, &ends.h)?,
                bridged(&bridge.cell, &ends.c)?,
            );
            for (layer_idx, cell) in cells.iter_mut().enumerate() {
                let width = cell.h.len();
                cell.h = row(&h, layer_idx, width).to_vec();
                cell.c = row(&c, layer_idx, width).to_vec();
            }
        }
    }
    Ok(())
}

fn row(values: &[f32], idx: usize, width: usize) -> &[f32] {
    &values[idx * width..][..width]
}

fn length(values: &[f32]) -> f32 {
    sum_of_squares(values).sqrt() as f32
}
