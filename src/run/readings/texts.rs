//! The texts that readings are judged on: which tokens, which of them are to be told, and what knowing nothing would lose.

use std::collections::BTreeMap;

use attnscope_forward::{Input, Sequence};
use attnscope_prompt::Tokenizer;
use attnscope_spec::{Model, ModelSpec, StackSpec};

/// Prediction task that a model's loss measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Predict the next token.
    Next,
    /// Predict the next token of a target, given a source.
    Target,
    /// Predict tokens that were replaced by this mask token.
    Masked(u32),
}

impl Task {
    /// Task of a model, or the reason why it has none.
    pub fn of(model: &Model) -> Result<Self, String> {
        let spec = &model.spec;
        let Some(head) = &spec.head else {
            return Err("the model has no head, so that no loss tells readings apart".to_owned());
        };
        let mut stacks = spec.stacks.iter();
        if stacks.any(|stack| stack.recurrence().is_some()) {
            return Err(
                "readings are of models made of blocks, not of recurrent networks".to_owned(),
            );
        }
        if spec.stacks.iter().any(StackSpec::is_staged) {
            return Err(
                "readings are of models whose layers have one width, not stages".to_owned(),
            );
        }
        if spec.stacks.iter().any(StackSpec::reads_grid) {
            return Err(
                "readings are of models whose rows are tokens, not patches with neighbours"
                    .to_owned(),
            );
        }
        if head.unembed.n_out() != spec.d_vocab {
            return Err("a classifier's loss needs labels that a text does not have".to_owned());
        }
        if spec.is_encoder_decoder() {
            return Ok(Self::Target);
        }
        if spec.is_causal_lm {
            return Ok(Self::Next);
        }
        mask_token(model).map(Self::Masked).ok_or_else(|| {
            "a loss on masked tokens needs a tokenizer that has a mask token".to_owned()
        })
    }
}

/// Token id of the mask token.
fn mask_token(model: &Model) -> Option<u32> {
    let vocabulary = Tokenizer::open(&model.checkpoint.tokenizer).ok()?;
    let tokenizer = vocabulary.tokenizer()?;
    ["[MASK]", "<mask>"].into_iter().find_map(|name| {
        let ids = tokenizer.encode(name, false).ok()?;
        let id = *ids.last()?;
        (tokenizer.label(id).trim() == name && (id as usize) < model.spec.d_vocab).then_some(id)
    })
}

/// One text, and the positions whose losses are compared.
#[derive(Debug, Clone)]
pub struct Text {
    pub source: Option<Sequence>,
    pub sequence: Sequence,
    /// Positions at which a token is predicted.
    pub wanted: Vec<usize>,
    /// Target tokens at distance 0, 1 and 2 after each position. // [wanted]
    labels: [Vec<u32>; 3],
}

impl Text {
    pub fn labels(&self, offset: usize) -> &[u32] {
        &self.labels[offset]
    }

    /// Builds a text from its tokens, the positions that predict, and their targets.
    pub fn of(tokens: Vec<u32>, wanted: Vec<usize>, labels: Vec<u32>) -> Self {
        let positions = (0..tokens.len()).collect();
        Self {
            source: None,
            sequence: Sequence {
                tokens,
                positions,
                real: None,
                picture: None,
                ..Sequence::default()
            },
            wanted,
            labels: [labels.clone(), labels.clone(), labels],
        }
    }

    /// A text in which some positions predict the token after them, with the positions that a model gives it.
    pub fn scored(spec: &ModelSpec, tokens: Vec<u32>, wanted: Vec<usize>) -> Self {
        let labels: Vec<u32> = wanted.iter().map(|idx| tokens[idx + 1]).collect();
        let positions = spec.positions.positions(&tokens, None);
        let mut text = Self::of(tokens, wanted, labels);
        text.sequence.positions = positions;
        text
    }

    /// A text whose every token but the first is predicted.
    pub fn whole(spec: &ModelSpec, tokens: Vec<u32>) -> Self {
        let wanted = (0..tokens.len().saturating_sub(1)).collect();
        Self::scored(spec, tokens, wanted)
    }

    /// Its first real tokens, with the first tokens of its source; `None` if they predict nothing.
    pub fn beginning(&self, n_tokens: usize) -> Option<Self> {
        let first = (0..self.sequence.len()).find(|idx| self.sequence.is_real(*idx))?;
        let end = self.sequence.len().min(first + n_tokens);
        let told = self.wanted.iter().take_while(|idx| **idx < end).count();
        let of_source = |source: &Sequence| match (&source.sound, &source.picture) {
            (None, None) => source.first(n_tokens),
            _ => source.clone(),
        };
        (told > 0).then(|| Self {
            source: self.source.as_ref().map(of_source),
            sequence: self.sequence.part(first..end),
            wanted: self.wanted[..told].iter().map(|idx| idx - first).collect(),
            labels: self.labels.each_ref().map(|labels| labels[..told].to_vec()),
        })
    }

    /// Text for next-token prediction; `None` if no token can be predicted.
    fn telling_next(input: &Input, n: usize) -> Option<Self> {
        let sequence = input.sequence.first(n);
        let n = sequence.len();
        let real = |idx: usize| idx < n && sequence.is_real(idx);
        // All readings are judged on the same positions, including those that predict two tokens ahead.
        let ahead = if n >= 8 { 2 } else { 1 };
        let wanted: Vec<usize> = (0..n)
            .filter(|idx| real(*idx) && real(idx + 1) && real(idx + ahead))
            .collect();
        let labels = [0, 1, ahead].map(|offset| {
            wanted
                .iter()
                .map(|idx| sequence.tokens[idx + offset])
                .collect()
        });
        (!wanted.is_empty()).then(|| Self {
            source: input.source.clone(),
            sequence,
            wanted,
            labels,
        })
    }

    /// Text in which every `N_MASKED`th token, from the nth on, is masked.
    fn masked(input: &Input, n: usize, nth: usize, mask: u32) -> Option<Self> {
        let mut sequence = input.sequence.first(n);
        // Leave out the first and last token, which the tokenizer adds.
        let inner = 1..sequence.len().saturating_sub(1);
        let wanted: Vec<usize> = inner
            .filter(|idx| idx % N_MASKED == nth && sequence.is_real(*idx))
            .collect();
        let labels: Vec<u32> = wanted.iter().map(|idx| sequence.tokens[*idx]).collect();
        wanted.iter().for_each(|idx| sequence.tokens[*idx] = mask);
        (!wanted.is_empty()).then(|| Self {
            source: None,
            sequence,
            wanted,
            labels: [labels.clone(), labels.clone(), labels],
        })
    }
}

/// One in this many tokens is masked at a time: close to the 15 % of training (Devlin et al. 2019, arXiv 1810.04805).
const N_MASKED: usize = 7;

/// Texts of at most `n_each` tokens, with about `n_wanted` positions to compare in total.
pub fn sample(task: Task, inputs: &[Input], n_each: usize, n_wanted: usize) -> Vec<Text> {
    let mut texts = Vec::new();
    let mut n = 0;
    let mut add = |text: Option<Text>| {
        if let Some(text) = text.filter(|_| n < n_wanted) {
            n += text.wanted.len();
            texts.push(text);
        }
    };
    match task {
        Task::Next | Task::Target => {
            inputs
                .iter()
                .for_each(|input| add(Text::telling_next(input, n_each)));
        }
        Task::Masked(mask) => {
            for nth in 0..N_MASKED {
                inputs
                    .iter()
                    .for_each(|input| add(Text::masked(input, n_each, nth, mask)));
            }
        }
    }
    texts
}

/// Loss of predicting each token by its frequency in the texts, in nats.
pub fn unigram_loss(texts: &[Text]) -> f64 {
    let mut counts = BTreeMap::<u32, usize>::new();
    for token in texts.iter().flat_map(|text| text.labels(1)) {
        *counts.entry(*token).or_default() += 1;
    }
    let n: usize = counts.values().sum();
    let share = |count: &usize| *count as f64 / n as f64;
    -counts
        .values()
        .map(|count| share(count) * share(count).ln())
        .sum::<f64>()
}

/// Loss of predicting each token by its frequency among earlier tokens, in nats, with add-one smoothing over the vocabulary
/// (Laplace's rule). Unlike the unigram loss, it uses no knowledge of later text.
pub fn blind_loss(texts: &[Text], d_vocab: usize) -> f64 {
    let mut counts = BTreeMap::<u32, f64>::new();
    let (mut sum, mut n) = (0.0, 0.0);
    for token in texts.iter().flat_map(|text| text.labels(1)) {
        let count = counts.entry(*token).or_insert(1.0);
        sum -= (*count / (n + d_vocab as f64)).ln();
        *count += 1.0;
        n += 1.0;
    }
    sum / n
}

/// Loss of guessing each token by what followed the token before it, in nats, as far as the texts have been read: pairs backed by
/// single tokens, and these by a uniform guess (Witten and Bell 1991). It knows nothing of the texts in advance.
pub fn pair_loss(texts: &[Text], d_vocab: usize) -> f64 {
    let (mut singles, mut pairs) = (Counts::default(), BTreeMap::<u32, Counts>::new());
    let (mut sum, mut n) = (0.0, 0.0);
    for text in texts {
        for (at, label) in text.wanted.iter().zip(text.labels(1)) {
            // What is masked is told by the token before it.
            let is_masked = text.sequence.tokens.get(at + 1) != Some(label);
            let before = if is_masked {
                at.checked_sub(1)
            } else {
                Some(*at)
            };
            let before = before.map(|idx| text.sequence.tokens[idx]);
            let alone = singles.share(*label, 1.0 / d_vocab as f64);
            let after = before.and_then(|before| pairs.get(&before));
            let share = after.map_or(alone, |after| after.share(*label, alone));
            sum -= share.ln();
            n += 1.0;
            singles.add(*label);
            if let Some(before) = before {
                pairs.entry(before).or_default().add(*label);
            }
        }
    }
    sum / n
}

/// How often tokens have been read.
#[derive(Default)]
struct Counts {
    of: BTreeMap<u32, f64>,
    n: f64,
}

impl Counts {
    fn add(&mut self, id: u32) {
        *self.of.entry(id).or_default() += 1.0;
        self.n += 1.0;
    }

    /// Share of a token, with as much left to `otherwise` as there are kinds of tokens.
    fn share(&self, id: u32, otherwise: f64) -> f64 {
        let n_kinds = (self.of.len() as f64).max(1.0);
        let n = self.of.get(&id).copied().unwrap_or(0.0);
        (n + n_kinds * otherwise) / (self.n + n_kinds)
    }
}

/// Most tokens of a text that is repeated.
const MOST_COPIED: usize = 128;

/// Repeats texts and predicts their second copies. There are about `n_wanted` positions in total, or fewer if the model's
/// context is too short.
pub fn said_twice(spec: &ModelSpec, inputs: &[Input], n_wanted: usize) -> Vec<Text> {
    let most_texts = n_wanted.div_ceil(MOST_COPIED);
    let room = spec.n_ctx.map_or(usize::MAX, |n_ctx| n_ctx / 2);
    let twice = |input: &Input| {
        let n = input
            .sequence
            .len()
            .min(MOST_COPIED)
            .min(n_wanted)
            .min(room);
        let tokens = input.sequence.tokens[..n].repeat(2);
        let twice = Input {
            source: None,
            sequence: Sequence {
                positions: spec.positions.positions(&tokens, None),
                tokens,
                real: None,
                picture: None,
                ..Sequence::default()
            },
        };
        let mut text = Text::telling_next(&twice, 2 * n)?;
        // The first token of the second copy cannot be predicted.
        let first = text.wanted.iter().position(|idx| *idx >= n)?;
        text.wanted.drain(..first);
        text.labels
            .iter_mut()
            .for_each(|labels| drop(labels.drain(..first)));
        Some(text)
    };
    inputs.iter().take(most_texts).filter_map(twice).collect()
}
