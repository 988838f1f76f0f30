//! A tap that keeps everything a reference holds, whole: for small models only.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use attnscope::analysis::Tap;
use attnscope::attention::BlockSink;
use attnscope::error::Result;
use attnscope::model::{Hook, Stack};

/// Every tensor of a run by its trace name.
#[derive(Default)]
pub struct Collected {
    tensors: BTreeMap<String, Vec<f32>>,
    patterns: Patterns,
    logits: Vec<(Range<usize>, Vec<f32>)>,
}

/// A layer of a grid.
type At = (Stack, usize);

/// Scores and pattern by layer, head and first query.
type Blocks = BTreeMap<(At, usize, usize), (Vec<f32>, Vec<f32>)>;

#[derive(Default)]
struct Patterns {
    at: Mutex<Option<At>>,
    blocks: Mutex<Blocks>,
}

impl BlockSink for Patterns {
    fn block(&self, head_idx: usize, first_query: usize, scores: &[f32], pattern: &[f32]) {
        let at = self.at.lock().expect("a lock").expect("a layer runs");
        let block = (scores.to_vec(), pattern.to_vec());
        let mut blocks = self.blocks.lock().expect("a lock");
        blocks.insert((at, head_idx, first_query), block);
    }
}

impl Collected {
    /// Puts the chunks of logits together and gives everything.
    pub fn finish(mut self) -> BTreeMap<String, Vec<f32>> {
        let d_vocab = self.logits.last().map_or(0, |(range, _)| range.end);
        let n = self
            .logits
            .first()
            .map_or(0, |(range, values)| values.len() / range.len());
        let mut logits = vec![0.0; n * d_vocab];
        for (range, values) in &self.logits {
            for (row, part) in logits.chunks_mut(d_vocab).zip(values.chunks(range.len())) {
                row[range.clone()].copy_from_slice(part);
            }
        }
        self.tensors.insert("logits".to_owned(), logits);
        self.tensors
    }
}

impl Tap for Collected {
    fn wants(&self, _: Stack, _: usize, _: Hook) -> bool {
        true
    }

    fn values(
        &mut self,
        stack: Stack,
        layer_idx: usize,
        hook: Hook,
        values: &[f32],
        _: usize,
    ) -> Result<()> {
        self.tensors
            .insert(hook.full_name(stack, layer_idx), values.to_vec());
        Ok(())
    }

    fn blocks(&self, stack: Stack, layer_idx: usize) -> Option<&dyn BlockSink> {
        *self.patterns.at.lock().expect("a lock") = Some((stack, layer_idx));
        Some(&self.patterns)
    }

    fn end_of_layer(&mut self) -> Result<()> {
        let blocks = std::mem::take(&mut *self.patterns.blocks.lock().expect("a lock"));
        let mut whole: BTreeMap<String, Vec<f32>> = BTreeMap::new();
        for (((stack, layer_idx), _, _), (scores, pattern)) in blocks {
            for (hook, block) in [(Hook::Scores, scores), (Hook::Pattern, pattern)] {
                let name = hook.full_name(stack, layer_idx);
                whole.entry(name).or_default().extend(block);
            }
        }
        self.tensors.extend(whole);
        Ok(())
    }

    fn memory(&mut self, values: &[f32]) -> Result<()> {
        let name = "encoder.last_hidden_state".to_owned();
        self.tensors.insert(name, values.to_vec());
        Ok(())
    }

    fn logits(&mut self, range: Range<usize>, values: &[f32]) -> Result<()> {
        self.logits.push((range, values.to_vec()));
        Ok(())
    }
}
