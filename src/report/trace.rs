//! Writes a trace as it arrives: each value goes to its position in the file, so that no layer's matrices are in memory.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use attnscope_compute::attention::{BlockSink, GlobalKeys};
use attnscope_compute::error::{Error, Result};
use attnscope_forward::Hook;
use attnscope_prompt::Prompt;
use attnscope_run::Tap;
use attnscope_spec::{ModelSpec, Stack};

use super::trace_plan::{ENCODER_OUTPUT, Planned, TracePlan};

/// A trace file being written.
#[derive(Debug)]
pub struct TraceWriter<'a> {
    plan: &'a TracePlan,
    spec: &'a ModelSpec,
    target: PathBuf,
    file: Placed<'a>,
    blocks: Blocks<'a>,
    is_hidden_state: bool,
}

/// A file written at given positions.
#[derive(Debug, Clone, Copy)]
struct Placed<'a> {
    file: &'a File,
    data_at: u64,
}

impl Placed<'_> {
    /// Writes values, beginning at an element of a tensor.
    fn write(mut self, tensor: &Planned, element: usize, values: &[f32]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(
            self.data_at + tensor.start + 4 * element as u64,
        ))?;
        self.file.write_all(bytemuck::cast_slice(values))
    }
}

/// Receives scores and pattern from the threads that compute heads.
#[derive(Debug)]
struct Blocks<'a> {
    plan: &'a TracePlan,
    state: Mutex<BlockState<'a>>,
}

#[derive(Debug)]
struct BlockState<'a> {
    at: (Stack, usize),
    file: Placed<'a>,
    /// ‖v W_O‖ of the current attention, if contributions are written. // [head][key]
    value_norms: Vec<Vec<f32>>,
    /// Keys that global tokens attend to.
    globals: Option<GlobalKeys>,
    failed: Option<io::Error>,
}

impl<'a> TraceWriter<'a> {
    /// Writes header, tokens and mask; everything else is written as it is computed.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn new(
        plan: &'a TracePlan,
        prompt: &Prompt,
        spec: &'a ModelSpec,
        file: &'a File,
        target: &Path,
    ) -> Result<Self> {
        let failed = |e: io::Error| Error::file(target, format!("cannot be written ({e})"));
        let mut writer = file;
        writer.write_all(plan.header()).map_err(failed)?;
        // Reserve the space now, so that a full disk fails before the run.
        file.set_len(plan.file_len()).map_err(failed)?;
        let given = prompt.given();
        let ids = |prompt: &Prompt| prompt.tokens.iter().map(|id| i64::from(*id)).collect();
        let mut ints: Vec<i64> = ids(given);
        let real = given.real.iter().flatten();
        ints.extend(real.map(|is_real| i64::from(*is_real)));
        if prompt.source.is_some() {
            let target: Vec<i64> = ids(prompt);
            ints.extend(target);
        }
        writer
            .write_all(bytemuck::cast_slice(&ints))
            .map_err(failed)?;
        let placed = Placed {
            file,
            data_at: plan.header().len() as u64,
        };
        let state = Mutex::new(BlockState {
            at: (Stack::Only, 0),
            file: placed,
            value_norms: Vec::new(),
            globals: None,
            failed: None,
        });
        Ok(Self {
            plan,
            spec,
            target: target.to_path_buf(),
            file: placed,
            blocks: Blocks { plan, state },
            is_hidden_state: plan.tensors.contains_key("last_hidden_state"),
        })
    }

    fn failed(&self, error: &io::Error) -> Error {
        Error::file(&self.target, format!("cannot be written ({error})"))
    }

    /// Reorders [position, head · width] → [head, position, width], for the chosen heads.
    fn by_head(
        &self,
        values: &[f32],
        row_width: usize,
        n_stored_heads: usize,
        heads: &[usize],
    ) -> Vec<f32> {
        let width = row_width / n_stored_heads;
        let rows = |head_idx: usize| {
            values
                .chunks(row_width)
                .flat_map(move |row| &row[head_idx * width..(head_idx + 1) * width])
        };
        heads
            .iter()
            .flat_map(|head_idx| rows(*head_idx))
            .copied()
            .collect()
    }
}

impl Tap for TraceWriter<'_> {
    fn wants(&self, stack: Stack, layer_idx: usize, hook: Hook) -> bool {
        let weighs = hook == Hook::ValueNorms && self.plan.hooks.contains(&Hook::Contribution);
        (weighs || self.plan.hooks.contains(&hook))
            && (hook == Hook::Logits || self.plan.layers.contains(&(stack, layer_idx)))
    }

    fn wants_globals(&self) -> bool {
        self.plan.hooks.contains(&Hook::Contribution)
    }

    fn globals(&mut self, _: Stack, keys: &GlobalKeys) {
        let state = &self.blocks.state;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.globals = Some(keys.clone());
    }

    fn values(
        &mut self,
        stack: Stack,
        layer_idx: usize,
        hook: Hook,
        values: &[f32],
        width: usize,
    ) -> Result<()> {
        if hook == Hook::ValueNorms {
            let state = &self.blocks.state;
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.value_norms = values.chunks(width.max(1)).map(<[f32]>::to_vec).collect();
            // The next attention brings its own, if it has any.
            state.globals = None;
        }
        let name = hook.full_name(stack, layer_idx);
        let (Some(tensor), Some(attention)) = (
            self.plan.tensors.get(&name),
            self.spec.attention(stack, layer_idx),
        ) else {
            return Ok(());
        };
        let by_head = match hook {
            Hook::Q | Hook::RotQ | Hook::Z => Some(self.by_head(
                values,
                width,
                attention.n_heads,
                self.plan.heads(stack, layer_idx),
            )),
            Hook::K | Hook::RotK | Hook::V => {
                let kv_heads = self.plan.kv_heads(stack, layer_idx, attention);
                Some(self.by_head(values, width, attention.n_kv_heads, &kv_heads))
            }
            Hook::ValueNorms => {
                let heads = self.plan.heads(stack, layer_idx).iter();
                Some(
                    heads
                        .flat_map(|idx| &values[idx * width..][..width])
                        .copied()
                        .collect(),
                )
            }
            _ => None,
        };
        let values = by_head.as_deref().unwrap_or(values);
        self.file
            .write(tensor, 0, values)
            .map_err(|e| self.failed(&e))
    }

    fn blocks(&self, stack: Stack, layer_idx: usize) -> Option<&dyn BlockSink> {
        let wanted = [Hook::Scores, Hook::Pattern, Hook::Contribution]
            .iter()
            .any(|hook| self.wants(stack, layer_idx, *hook));
        if !wanted {
            return None;
        }
        self.blocks
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .at = (stack, layer_idx);
        Some(&self.blocks)
    }

    fn end_of_layer(&mut self) -> Result<()> {
        let failed = self
            .blocks
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .failed
            .take();
        failed.map_or(Ok(()), |e| Err(self.failed(&e)))
    }

    fn memory(&mut self, values: &[f32]) -> Result<()> {
        match self.plan.tensors.get(ENCODER_OUTPUT) {
            Some(tensor) => self
                .file
                .write(tensor, 0, values)
                .map_err(|e| self.failed(&e)),
            None => Ok(()),
        }
    }

    fn logits(&mut self, range: Range<usize>, values: &[f32]) -> Result<()> {
        let name = if self.is_hidden_state {
            "last_hidden_state"
        } else {
            "logits"
        };
        let Some(tensor) = self.plan.tensors.get(name) else {
            return Ok(());
        };
        let width = tensor.shape[1];
        for (position_idx, row) in values.chunks(range.len()).enumerate() {
            let element = position_idx * width + range.start;
            self.file
                .write(tensor, element, row)
                .map_err(|e| self.failed(&e))?;
        }
        Ok(())
    }
}

impl BlockSink for Blocks<'_> {
    fn block(&self, head_idx: usize, first_query: usize, scores: &[f32], pattern: &[f32]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (stack, layer_idx) = state.at;
        let chosen_idx = self.plan.place_of(state.at, head_idx);
        let Some(chosen_idx) = chosen_idx.filter(|_| state.failed.is_none()) else {
            return;
        };
        let norms = state.value_norms.get(head_idx).map(Vec::as_slice);
        let carried: Vec<f32> =
            match norms.filter(|_| self.plan.hooks.contains(&Hook::Contribution)) {
                Some(norms) => {
                    let globals = state.globals.as_ref();
                    let rows = (first_query..).zip(pattern.chunks(norms.len().max(1)));
                    let rows = rows.flat_map(|(query_idx, row)| {
                        let global = globals.and_then(|of| of.norms_of_query(head_idx, query_idx));
                        row.iter().zip(global.unwrap_or(norms))
                    });
                    rows.map(|(p, norm)| p * norm).collect()
                }
                None => Vec::new(),
            };
        let values = [
            (Hook::Scores, scores),
            (Hook::Pattern, pattern),
            (Hook::Contribution, carried.as_slice()),
        ];
        for (hook, values) in values {
            let Some(tensor) = self.plan.tensors.get(&hook.full_name(stack, layer_idx)) else {
                continue;
            };
            let [_, n_queries, n_keys] = tensor.shape[..] else {
                continue;
            };
            let element = (chosen_idx * n_queries + first_query) * n_keys;
            if let Err(e) = state.file.write(tensor, element, values) {
                state.failed = Some(e);
                return;
            }
        }
    }
}
