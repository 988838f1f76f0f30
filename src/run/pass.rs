//! One prompt's pass through the model: runs blocks, keeps layer values, reports to the observer, and predicts at the end.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::first_nonfinite;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::recurrent::FinalStates;
use attnscope_forward::{
    AttentionRun, BlockContext, Hook, Hooks, Input, KnownRows, LayerWeights, Memory, Recomputed,
    Scratch, Sequence, embed, final_hidden, logits_in_chunks, pool_hidden, run_layer,
};
use attnscope_spec::{Exceptions, Model, ModelSpec, Stack, StackSpec};

use super::edited::Shared;
use super::first_nonfinite::{NonFinite, guilty_tensor};
use super::job::{Job, Options, Outcome};
use super::kept::Kept;
use super::label_scan::LabelScan;
use super::layer::report;
use super::observer::Progress;
use super::predictions::Scan;
use super::resume::{Begin, Resume};
use super::tap::Tap;
use super::watch::{Norms, Watch};

/// A run in progress.
pub struct Pass<'a, O: Ops> {
    ops: &'a O,
    model: &'a Model,
    job: Job<'a>,
    pace: &'a dyn Pace,
    kept: Option<Arc<Kept>>,
    /// Results of an earlier run that hold for the first tokens.
    shared: Option<Shared<'a>>,
    /// The encoder's output, and its rows. // [source position, d_model]
    memory: O::Buffer,
    encoded: Option<Cow<'a, Sequence>>,
    /// Final states of a recurrent encoder.
    ends: FinalStates,
    /// Number of layers that have run.
    n_done: usize,
    pub(super) outcome: Outcome,
}

impl<'a, O: Ops> Pass<'a, O> {
    pub fn begin(
        ops: &'a O,
        model: &'a Model,
        job: Job<'a>,
        options: Options,
        pace: &'a dyn Pace,
    ) -> Result<Self> {
        let spec = &model.spec;
        let kept = options.keep_bytes.map(|budget| {
            let layers = spec.stacks.iter().map(|stack| {
                let n = tokens_of(stack, job.input).map_or(0, Sequence::len);
                // Merging patches makes fewer values of them.
                (stack.stack, stack.n_layers(), n * spec.d_input(stack, 0))
            });
            let kept = Kept::plan(layers.collect(), budget);
            let main = spec.main_stack();
            Arc::new(match Recomputed::of(main) {
                Some(_) => kept,
                // A picture is not edited.
                None if main.is_staged() => kept,
                None => {
                    let n_values = job.input.sequence.len() * spec.d_model;
                    kept.with_added(main.n_layers(), n_values, budget)
                }
            })
        });
        if let Some(kept) = &kept {
            job.observer.keeping(kept);
        }
        go_on(job.observer.progress(Progress::Embedding))?;
        let Input { source, sequence } = job.input;
        let source = source.as_ref();
        let encoded = job.input.encoded(spec);
        Ok(Self {
            ops,
            model,
            job,
            pace,
            kept,
            shared: None,
            memory: O::Buffer::default(),
            encoded,
            ends: FinalStates::default(),
            n_done: 0,
            outcome: Outcome {
                source_tokens: source
                    .map(|source| source.tokens.clone())
                    .unwrap_or_default(),
                tokens: sequence.tokens.clone(),
                ..Outcome::default()
            },
        })
    }

    /// Reuses an earlier run's results for the first tokens.
    pub(super) fn sharing(&mut self, shared: Shared<'a>) {
        self.shared = Some(shared);
    }

    pub(super) fn tokens(&self, stack: &StackSpec) -> Result<&'a Sequence> {
        let missing = || Error::Prompt("an encoder without tokens to read".to_owned());
        tokens_of(stack, self.job.input).ok_or_else(missing)
    }

    /// Width of the input of a layer.
    pub fn d_input(&self, stack: &StackSpec, layer_idx: usize) -> usize {
        self.model.spec.d_input(stack, layer_idx)
    }

    /// Computes the input of a stack's first block. // [position, width of a row]
    pub fn embed(&self, stack: &StackSpec) -> Result<O::Buffer> {
        let (mut resid, mut spare) = (O::Buffer::default(), O::Buffer::default());
        let sequence = self.tokens(stack)?;
        embed(
            self.ops, self.model, stack, sequence, &mut spare, &mut resid,
        )?;
        Ok(resid)
    }

    /// Starts a stack at the first layer that a changed model affects: its index and input. `None` for an unaffected encoder, whose
    /// output is taken over.
    pub(super) fn resume(
        &mut self,
        stack: &StackSpec,
        resume: &Resume<'_>,
    ) -> Result<Option<(usize, O::Buffer)>> {
        if let Some(encoded) = resume.encoded(stack) {
            self.ends = encoded.ends.clone();
            let width = self.model.spec.d_memory();
            self.ops.put(&encoded.hidden, width, &mut self.memory)?; // [source position, d_memory]
            self.tell_again(stack, stack.n_layers(), resume)?;
            self.remember()?;
            return Ok(None);
        }
        match resume.begin(&self.model.spec, stack) {
            Begin::Anew => Ok(Some((0, self.embed(stack)?))),
            Begin::At { layer_idx, input } => {
                self.tell_again(stack, layer_idx, resume)?;
                let mut resid = O::Buffer::default();
                let width = self.model.spec.d_input(stack, layer_idx);
                self.ops.put(&input, width, &mut resid)?; // [position, d_model]
                Ok(Some((layer_idx, resid)))
            }
        }
    }

    /// Reports an earlier run's results again for the layers before `before`, and copies what was kept of them.
    fn tell_again(&mut self, stack: &StackSpec, before: usize, resume: &Resume<'_>) -> Result<()> {
        self.n_done += before;
        if let Some(kept) = &self.kept {
            kept.share(resume.kept, stack.stack, before);
        }
        for report in resume.reports_before(stack.stack, before) {
            go_on(self.job.observer.layer(report.clone()))?;
        }
        Ok(())
    }

    /// Reports which layer is running.
    pub fn say(&mut self, stack: Stack, layer_idx: usize) -> Result<()> {
        let n_done = self.n_done;
        go_on(self.job.observer.progress(Progress::Layer {
            stack,
            layer_idx,
            n_done,
        }))
    }

    /// Runs one block on the residual and judges it.
    pub fn block(
        &mut self,
        stack: &StackSpec,
        layer_idx: usize,
        weights: &LayerWeights<'_, O>,
        resid: &mut O::Buffer,
        scratch: &mut Scratch<O>,
    ) -> Result<()> {
        let model = self.model;
        let sequence = self.tokens(stack)?;
        let at = (stack.stack, layer_idx);
        let shared = self.shared.filter(|_| stack.stack != Stack::Encoder);
        let known = shared.and_then(|shared| Some((shared.n_tokens(), shared.added(layer_idx)?)));
        let d_model = model.spec.d_model;
        let block = stack.blocks().get(layer_idx);
        let d_added = block.map_or(d_model, |block| block.d_added(d_model));
        let known = known.as_ref().map(|(n, rows)| KnownRows {
            n: *n,
            rows: &rows[..*n * d_added],
        });
        let context = BlockContext::of(
            self.ops,
            &model.checkpoint.tensors,
            stack,
            sequence,
            memory_of(&self.encoded, stack, &self.memory, &self.ends),
            self.pace,
        )?
        .knowing(known);
        let kept = self.kept.clone();
        let keeps_input = kept.as_ref().is_some_and(|kept| kept.wants(at));
        let keeps_added = kept
            .as_ref()
            .is_some_and(|kept| stack.stack != Stack::Encoder && kept.wants_added(layer_idx));
        let looks = self.outcome.nonfinite.is_none();
        let tap: Option<&mut dyn Tap> = match &mut self.job.tap {
            Some(tap) => Some(&mut **tap),
            None => None,
        };
        let own = sequence.of_layer(stack, layer_idx);
        let mut watch = Watch::new(at, (keeps_input, keeps_added), looks, tap, &own);
        let ran = run_layer(
            &context, stack, layer_idx, weights, resid, scratch, &mut watch,
        )?;
        if let (Some(kept), Some(input)) = (&kept, watch.input.take()) {
            kept.put(at, input);
        }
        if let (Some(kept), Some(added)) = (&kept, watch.added.take()) {
            kept.put_added(layer_idx, added);
        }
        let found = watch.nonfinite.take().map(|found| {
            let is_cross = found.stack == Stack::Cross;
            let of = if is_cross { &ran.cross } else { &ran.attention };
            found.traced_back(of.as_ref())
        });
        let norms = watch.finish();
        let real = |position_idx: usize| sequence.is_real(position_idx);
        let none = Exceptions::default();
        let judged = |grid: Stack, ran: Option<AttentionRun>, norms: Option<&Norms>| {
            let attention = model.spec.attention(grid, layer_idx)?;
            let has_sinks = model.spec.has_sinks(grid, layer_idx);
            let exceptions = model.spec.exceptions(grid, layer_idx).unwrap_or(&none);
            let knobs = (attention, exceptions, has_sinks);
            Some(report(grid, layer_idx, knobs, ran?, norms?, &real))
        };
        let of_self = judged(stack.stack, ran.attention, Some(&norms));
        let mut of_cross = judged(Stack::Cross, ran.cross, norms.cross.as_deref());
        if let (Some(report), Some(timing)) = (&mut of_cross, &model.spec.timing) {
            let heads = report.heads.iter_mut().enumerate();
            heads
                .filter(|(head_idx, _)| timing.has(layer_idx, *head_idx))
                .for_each(|(_, head)| {
                    head.kind = Some(attnscope_checks::stats::HeadType::Alignment)
                });
        }
        if ran.ends != FinalStates::default() {
            self.ends = ran.ends;
        }
        if let Some(found) = found {
            self.first_nonfinite(NonFinite {
                tensor: guilty_tensor(model, found.stack, layer_idx, found.hook),
                ..found
            });
        }
        if let Some(tap) = &mut self.job.tap {
            tap.end_of_layer()?;
        }
        self.n_done += 1;
        for judged in of_self.into_iter().chain(of_cross) {
            go_on(self.job.observer.layer(judged))?;
        }
        Ok(())
    }

    /// Reruns a block from its input for what `hooks` still has to observe, without judging or keeping anything. `encoded` is
    /// another run whose encoder output cross-attention reads; `tokens` may replace the prompt by a prefix of it.
    pub fn block_again(
        &self,
        (stack, layer_idx): (&StackSpec, usize),
        weights: &LayerWeights<'_, O>,
        resid: &mut O::Buffer,
        scratch: &mut Scratch<O>,
        hooks: &mut dyn Hooks,
        (encoded, tokens): (Option<&Self>, Option<&Sequence>),
    ) -> Result<()> {
        let encoded = encoded.unwrap_or(self);
        let tokens = match tokens {
            Some(tokens) => tokens,
            None => self.tokens(stack)?,
        };
        let context = BlockContext::of(
            self.ops,
            &self.model.checkpoint.tensors,
            stack,
            tokens,
            memory_of(&encoded.encoded, stack, &encoded.memory, &encoded.ends),
            self.pace,
        )?;
        run_layer(&context, stack, layer_idx, weights, resid, scratch, hooks)?;
        Ok(())
    }

    /// Finishes a stack after its last block: an encoder's output is kept, other stacks predict.
    pub fn end(&mut self, stack: &StackSpec, resid: &O::Buffer, predicts: bool) -> Result<()> {
        if stack.stack != Stack::Encoder {
            return self.predict(stack, resid, predicts);
        }
        let mut memory = O::Buffer::default();
        final_hidden(self.ops, self.model, stack, resid, &mut memory)?; // [source position, d_model]
        self.memory = memory;
        self.remember()
    }

    fn first_nonfinite(&mut self, found: NonFinite) {
        self.job.observer.nonfinite(&found);
        self.outcome.nonfinite = Some(found);
    }

    /// Keeps the encoder's output for later use.
    fn remember(&mut self) -> Result<()> {
        let host = self.ops.get(&self.memory)?;
        if let Some(kept) = &self.kept {
            kept.put_memory(host.values.to_vec(), self.ends.clone());
        }
        match &mut self.job.tap {
            Some(tap) => tap.memory(&host.values),
            None => Ok(()),
        }
    }

    /// Runs the final norm and LM head, if anyone needs their output.
    fn predict(&mut self, stack: &StackSpec, resid: &O::Buffer, predicts: bool) -> Result<()> {
        match self.begin_predictions(stack, resid, predicts)? {
            Some((hidden, taking)) => self.predictions(stack, &hidden, taking),
            None => Ok(()),
        }
    }

    /// Computes the last hidden states and sets up the reading of the logits; `None` if no logits are needed.
    pub(super) fn begin_predictions(
        &mut self,
        stack: &StackSpec,
        resid: &O::Buffer,
        predicts: bool,
    ) -> Result<Option<(O::Buffer, Taking<'a>)>> {
        let (ops, model) = (self.ops, self.model);
        let (spec, after) = (&model.spec, stack.n_layers());
        let sequence = self.tokens(stack)?;
        let wants_logits = self
            .job
            .tap
            .as_ref()
            .is_some_and(|tap| tap.wants(stack.stack, after, Hook::Logits));
        let tap = self.job.tap.as_ref();
        let wants_hidden = tap.is_some_and(|tap| tap.wants_hidden());
        let predicts = predicts && spec.head.is_some();
        if !wants_logits && !wants_hidden && !predicts {
            return Ok(None);
        }
        go_on(self.job.observer.progress(Progress::Predictions))?;
        let mut hidden = O::Buffer::default();
        final_hidden(ops, model, stack, resid, &mut hidden)?; // [position, d_model]
        let Some(head) = &spec.head else {
            let host = ops.get(&hidden)?;
            if let Some(tap) = &mut self.job.tap {
                tap.logits(0..host.width, &host.values)?;
            }
            return Ok(None);
        };
        pool_hidden(ops, model, head, sequence, &mut hidden)?;
        if wants_hidden && let Some(tap) = &mut self.job.tap {
            tap.hidden(&ops.get(&hidden)?.values);
        }
        if !wants_logits && !predicts {
            return Ok(None);
        }
        let labels = head.labels.as_deref().map(|labels| {
            let given = self.job.input.source.as_ref().unwrap_or(sequence);
            LabelScan::new(labels, [&given.tokens, &sequence.tokens], |idx| {
                sequence.is_real(idx)
            })
        });
        let known = self.shared.as_ref().and_then(Shared::predictions);
        let known = known.filter(|_| labels.is_none() && !wants_logits);
        let n_known = known.map_or(0, |(_, n)| n);
        if n_known > 0 {
            let others: Vec<usize> = (n_known..sequence.len()).collect();
            let mut rows = O::Buffer::default();
            ops.gather_rows(&hidden, &others, &mut rows)?;
            hidden = rows; // [others, d_model]
        }
        let taking = Taking {
            scan: Scan::new(targets(spec, sequence).split_off(n_known)),
            n_known,
            labels,
            wants_logits,
        };
        Ok(Some((hidden, taking)))
    }

    /// Computes and reads all logits of this prompt alone.
    pub(super) fn predictions(
        &mut self,
        stack: &StackSpec,
        hidden: &O::Buffer,
        mut taking: Taking<'a>,
    ) -> Result<()> {
        let (ops, model, pace) = (self.ops, self.model, self.pace);
        let n_positions = self.tokens(stack)?.len() - taking.n_known;
        if let Some(head) = &model.spec.head {
            let take = |range: Range<usize>, logits: &[f32]| {
                self.take_logits(stack, &mut taking, range, logits)
            };
            logits_in_chunks(ops, model, head, hidden, n_positions, pace, take)?;
        }
        self.end_predictions(stack, taking)
    }

    /// Reads the logits of a range of the vocabulary. // [position, range]
    pub(super) fn take_logits(
        &mut self,
        stack: &StackSpec,
        taking: &mut Taking<'a>,
        range: Range<usize>,
        logits: &[f32],
    ) -> Result<()> {
        let after = stack.n_layers();
        match &mut taking.labels {
            Some(labels) => labels.add(&range, logits),
            None => taking.scan.add(&range, logits),
        }
        if self.outcome.nonfinite.is_none()
            && let Some(element) = first_nonfinite(logits)
        {
            self.first_nonfinite(NonFinite {
                stack: stack.stack,
                layer_idx: after,
                hook: Hook::Logits,
                position_idx: taking.n_known + element / range.len(),
                column_idx: range.start + element % range.len(),
                value: logits[element],
                tensor: guilty_tensor(self.model, stack.stack, after, Hook::Logits),
            });
        }
        match &mut self.job.tap {
            Some(tap) if taking.wants_logits => tap.logits(range, logits),
            _ => Ok(()),
        }
    }

    /// Stores the predictions read from the logits.
    pub(super) fn end_predictions(&mut self, stack: &StackSpec, taking: Taking<'a>) -> Result<()> {
        let sequence = self.tokens(stack)?;
        // A pair counts if both its tokens are real: padding is neither context nor target.
        let targets = targets(&self.model.spec, sequence);
        // A token that has no logit has no loss.
        let has_target = |i: usize| targets.get(i).is_some_and(Option::is_some);
        let is_counted = |i: usize| sequence.is_real(i) && sequence.is_real(i + 1) && has_target(i);
        self.outcome.predictions = Some(match taking.labels {
            Some(labels) => labels.finish(),
            None => {
                let known = self.shared.as_ref().and_then(Shared::predictions);
                let known = known.map(|(known, _)| (known, taking.n_known));
                let has_loss = self.model.spec.is_causal_lm;
                taking.scan.finish(known, has_loss, is_counted)
            }
        });
        Ok(())
    }
}

/// State of reading a prompt's logits as they arrive.
pub(super) struct Taking<'a> {
    scan: Scan,
    /// Number of leading positions with known predictions; logits are computed only for later positions.
    n_known: usize,
    labels: Option<LabelScan<'a>>,
    wants_logits: bool,
}

/// Tokens that a stack reads.
fn tokens_of<'a>(stack: &StackSpec, input: &'a Input) -> Option<&'a Sequence> {
    match stack.stack {
        Stack::Encoder => input.source.as_ref(),
        _ => Some(&input.sequence),
    }
}

/// Encoder output for the stack that has cross-attention.
fn memory_of<'m, O: Ops>(
    encoded: &'m Option<Cow<'_, Sequence>>,
    stack: &StackSpec,
    hidden: &'m O::Buffer,
    ends: &'m FinalStates,
) -> Option<Memory<'m, O>> {
    let encoded = encoded.as_deref();
    let encoded = encoded.filter(|_| stack.stack == Stack::Decoder);
    encoded.map(|sequence| Memory {
        hidden,
        sequence,
        ends,
    })
}

fn go_on(flow: ControlFlow<()>) -> Result<()> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Cancelled),
    }
}

/// Token that follows each position, for models that predict the next token.
pub fn targets(spec: &ModelSpec, sequence: &Sequence) -> Vec<Option<u32>> {
    // Rows that only fill a table up have no logits.
    let head = spec.head.as_ref();
    let n_logits = head.map_or(usize::MAX, |head| head.unembed.n_out());
    let next = |i: usize| {
        let token = sequence.tokens.get(i + 1).copied();
        token.filter(|token| spec.is_causal_lm && (*token as usize) < n_logits)
    };
    (0..sequence.len()).map(next).collect()
}
