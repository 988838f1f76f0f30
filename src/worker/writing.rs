//! Lets the model on screen continue its text token by token, and keeps every head's attention row for each token.

use std::sync::{Arc, Mutex, PoisonError};

use attnscope_compute::attention::BlockSink;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::on_device;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::Hook;
use attnscope_prompt::Prompt;
use attnscope_run::{
    MemoryNeed, Past, Subject, Tap, Taps, Text, can_write, encoded_prompt, input_of, n_encoded,
};
use attnscope_spec::{Model, Stack};

use super::context::{Context, RunData};
use super::event::{Event, Sink};
use super::lane::lock;
use super::runner::{Remembered, Runner};
use super::written::{StepRows, WrittenToken};

/// Maximum number of tokens generated per request.
const N_WRITTEN: usize = 64;

/// Maximum bytes of attention rows kept for one text; once exceeded, later tokens get none.
const ROW_BYTES: usize = 256 << 20;

/// Tap that keeps the last row of every head.
#[derive(Default)]
struct LastRows {
    at: Mutex<Option<(Stack, usize)>>,
    last_query: usize,
    n_source: usize,
    rows: Mutex<StepRows>,
    is_full: bool,
}

impl BlockSink for LastRows {
    fn block(&self, head_idx: usize, first_query: usize, _: &[f32], pattern: &[f32]) {
        let Some((stack, layer_idx)) = *lock(&self.at) else {
            return;
        };
        let Some(row_idx) = self.last_query.checked_sub(first_query) else {
            return;
        };
        let n_keys = match stack {
            Stack::Cross => self.n_source,
            _ => self.last_query + 1,
        };
        // Only the block that contains the last query.
        if let Some(row) = pattern.chunks(n_keys.max(1)).nth(row_idx) {
            lock(&self.rows).insert((stack, layer_idx, head_idx), row.to_vec());
        }
    }
}

impl Tap for LastRows {
    fn wants(&self, _: Stack, _: usize, _: Hook) -> bool {
        false
    }

    fn values(&mut self, _: Stack, _: usize, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }

    fn blocks(&self, stack: Stack, layer_idx: usize) -> Option<&dyn BlockSink> {
        *lock(&self.at) = Some((stack, layer_idx));
        (!self.is_full).then_some(self)
    }
}

impl Taps for LastRows {
    fn tap(&mut self) -> Option<&mut dyn Tap> {
        Some(self)
    }
}

impl Runner {
    /// Continues the last prompt until the token limit, an end token, or cancellation.
    pub(super) fn write(&mut self, pace: &dyn Pace) -> Result<()> {
        let (model, compared_model) = {
            let context = lock(&self.context);
            match (&context.subject, &context.a) {
                (Some(Subject::Model(model)), Some(ran))
                    if matches!(ran.what, RunData::Model(_)) =>
                {
                    (model.clone(), context.twin_of(model))
                }
                _ => {
                    let problem = "there is no model that could write";
                    return Err(Error::Prompt(problem.to_owned()));
                }
            }
        };
        // A bundled checkpoint may name a twin, which then generates alongside.
        let bundle = self.opening.as_ref().and_then(|opening| opening.bundle);
        let twin = match bundle.and_then(|bundle| (bundle.twin)()) {
            Some(bundle) => Some(Arc::new(attnscope_families::read(bundle.open()?)?)),
            None => compared_model,
        };
        let Some(prompt) = self.prompt.clone() else {
            return Err(Error::Prompt("nothing ran yet: e takes a text".to_owned()));
        };
        let mut prompt = Prompt::clone(&prompt);
        let limits = model.spec.limits();
        let room = limits.hard_n_ctx().map_or(usize::MAX, |n_ctx| {
            n_ctx.saturating_sub(prompt.tokens.len())
        });
        prompt.n_to_generate = N_WRITTEN.min(room);
        if prompt.n_to_generate == 0 {
            let problem = "the text fills the model's context: there is no room to write";
            return Err(Error::Prompt(problem.to_owned()));
        }
        if !self.terms.is_forced {
            let longest = input_of(&prompt.longest());
            let need = MemoryNeed::on_screen(&model, &longest, rayon::current_num_threads());
            attnscope_checkpoint::machine::check_memory(need.total())?;
        }
        let n_before = prompt.tokens.len();
        let compute = self.device.get()?;
        let prompt_form = &self.prompt_form;
        let label = |id: u32| prompt_form.of_target(limits).label(id);
        let (remembered, sink) = (self.remembered.take(), &self.sink);
        (sink)(Event::BeganToWrite {
            given: prompt.labels.clone(),
            keys: encoded_prompt(&model.spec, &prompt).map(|seen| seen.labels.clone()),
            n_most: prompt.n_to_generate,
            models: [Some(&model), twin.as_ref()]
                .into_iter()
                .flatten()
                .map(|model| model.checkpoint.name.clone())
                .collect(),
        });
        let ended = on_device!(&compute, ops => {
            let models = (&model, twin.as_ref());
            write_on(ops, models, &mut prompt, &label, remembered, sink, pace)
        });
        let why = match ended {
            Ok(past) => {
                self.remembered = Some(past);
                None
            }
            Err(Error::Cancelled) => Some("stopped".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        (self.sink)(Event::EndedWriting {
            tokens: prompt.tokens.clone(),
            given: prompt.source.as_ref().map(|_| prompt.given_source()),
            real: prompt.given().real.clone(),
            n_written: prompt.tokens.len() - n_before,
            why,
        });
        Ok(())
    }
}

/// Generates with A and, if there is one, B in turn. B starts with the same text and continues on its own.
fn write_on<O: Ops>(
    ops: &O,
    (model, twin): (&Arc<Model>, Option<&Arc<Model>>),
    prompt: &mut Prompt,
    label: &dyn Fn(u32) -> String,
    remembered: Option<Remembered>,
    sink: &Sink,
    pace: &dyn Pace,
) -> Result<Remembered>
where
    O::Buffer: 'static,
    Past<O>: Send + 'static,
{
    let mut of_b = prompt.clone();
    let mut text = Text::begin(ops, model, prompt, pace)?;
    let known = remembered.filter(|known| Arc::ptr_eq(&known.model, model));
    if let Some(past) = known.and_then(|known| known.past.downcast::<Past<O>>().ok()) {
        text = text.with_past(*past);
    }
    let mut of_twin = match twin {
        Some(twin) => Some(Text::begin(ops, twin, &of_b, pace)?),
        None => None,
    };
    let mut n_bytes = 0;
    loop {
        let a = next(&mut text, prompt, label, (&mut n_bytes, 0, sink))?;
        let b = match &mut of_twin {
            Some(of_twin) => next(of_twin, &mut of_b, label, (&mut n_bytes, 1, sink))?,
            None => false,
        };
        if !a && !b {
            break;
        }
    }
    Ok(Remembered {
        model: model.clone(),
        past: Box::new(text.into_past()),
    })
}

/// Generates one token and sends it; returns false at the end of the text.
fn next<O: Ops>(
    text: &mut Text<'_, O>,
    prompt: &mut Prompt,
    label: &dyn Fn(u32) -> String,
    (n_bytes, side, sink): (&mut usize, usize, &Sink),
) -> Result<bool> {
    let mut rows = LastRows {
        last_query: prompt.tokens.len().saturating_sub(1),
        n_source: n_encoded(text.spec(), prompt),
        is_full: *n_bytes > ROW_BYTES,
        ..LastRows::default()
    };
    let Some(written) = text.next(prompt, label, &mut rows)? else {
        return Ok(false);
    };
    let rows = rows
        .rows
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    *n_bytes += rows
        .values()
        .map(|row| size_of_val(row.as_slice()))
        .sum::<usize>();
    let likeliest = written.likeliest.iter();
    let token = WrittenToken {
        label: label(written.id),
        probability: written.probability,
        likeliest: likeliest.map(|(id, p)| (label(*id), *p)).collect(),
        rows,
    };
    (sink)(Event::Wrote(side, Arc::new(token)));
    Ok(true)
}

impl Context {
    /// Returns the model compared with A if it is another one, has the same vocabulary limits, and can generate.
    fn twin_of(&self, model: &Arc<Model>) -> Option<Arc<Model>> {
        let RunData::Model(ran) = &self.b.as_ref()?.what else {
            return None;
        };
        let limits = [&model.spec, &ran.model.spec].map(|spec| spec.limits());
        let is_other = !Arc::ptr_eq(&ran.model, model);
        let fits = limits[0] == limits[1] && can_write(&ran.model.spec).is_ok();
        (is_other && fits).then(|| ran.model.clone())
    }
}
