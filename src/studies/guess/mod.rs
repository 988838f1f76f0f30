//! Identifies unknown weights: roles of tensors by names and shapes, everything else by the model's loss on text.

mod assign;
mod combine;
mod first;
mod groups;
mod inventory;
mod maps;
mod norms;
mod options;
mod otherwise;
mod rivals;
mod search;
mod texts;
mod written;

use std::sync::Arc;

pub use self::rivals::Ahead;
pub use self::search::Rival;
pub use self::written::{Line, Margin};

use self::assign::{Asked, Assignment, assignments};
use self::inventory::Inventory;
use self::options::QUESTIONS;
use self::otherwise::otherwise;
use self::search::{Search, State, Width};
use self::texts::{Told, pieces};
use attnscope_checkpoint::Checkpoint;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_families::description::Described;
use attnscope_run::readings::{blind_loss, unigram_loss};

/// Number of tokens for comparing candidates; `ALL_TOKENS` is for judging the best one.
const SEARCH_TOKENS: usize = 160;
const ALL_TOKENS: usize = 2048;
/// Number of tokens for the first questions, whose wrong answers lose by far.
const SHORT: usize = 64;
const SHORT_MASKED: usize = 32;
/// Most tokens in a piece of text.
const LONGEST_PIECE: usize = 512;
/// Shorter tables are not position embeddings.
const FEWEST_POSITIONS: usize = 16;
/// Share of the unigram loss above which a model is not understood.
const UNDERSTOOD: f64 = 0.9;
/// Largest share of the blind loss (frequencies of earlier tokens only) that a trained model has. Our own measurement: correct
/// readings of small models have 0.1 to 0.45 of it, the best wrong ones 0.75 and more.
const TRAINED: f64 = 0.6;
/// Share of the unigram loss below which a description needs no second search.
const CLEAR: f64 = 0.6;
/// Number of possible mask tokens for which every norm placement is tried.
const MOST_MASKS: usize = 2;
/// Share of the unigram loss below which a first encoder candidate counts as predicting masked tokens.
const TELLS: f64 = 0.95;
/// Multiplications per candidate above which fewer candidates are tried.
const CHEAP: usize = 2_000_000_000;

/// Prediction task of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Predicts the next token.
    Decoder,
    /// Predicts masked tokens.
    Encoder,
}

/// Input from the user.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// Token ids of texts like those that the model was trained on.
    pub sequences: Vec<Vec<u32>>,
    pub kind: Option<Kind>,
    /// Id of the mask token.
    pub mask_token: Option<u32>,
}

/// Result of identifying a model.
#[derive(Debug, Clone)]
pub struct Guess {
    pub described: Described,
    pub kind: Kind,
    pub mask_token: Option<u32>,
    /// Mean loss on all texts, in nats per token.
    pub loss: f64,
    /// Loss of predicting each token by its frequency in the texts.
    pub unigram_loss: f64,
    /// Loss of predicting each token by its frequency among earlier tokens, with add-one smoothing.
    pub blind_loss: f64,
    pub n_positions: usize,
    /// Number of candidates that were run.
    pub n_tried: usize,
    /// Every line of the description file, with its evidence.
    pub lines: Vec<Line>,
    /// Tensors that are not assigned to any part.
    pub left: Vec<String>,
    pub layers: String,
    /// Questions that the texts do not decide, each with another possible answer.
    pub open: Vec<(&'static str, Rival)>,
    /// A sentence on what explains the texts better but cannot be described; only for decoders.
    pub otherwise: Option<String>,
}

impl Guess {
    /// Whether the model predicts clearly better than word frequencies.
    pub fn is_understood(&self) -> bool {
        self.loss < UNDERSTOOD * self.unigram_loss
    }

    /// Whether the loss is close to what a trained model reaches on such texts.
    pub fn is_near(&self) -> bool {
        self.is_understood() && self.loss <= self.most_loss()
    }

    /// Largest loss at which a model counts as trained on such texts.
    pub fn most_loss(&self) -> f64 {
        TRAINED * self.blind_loss
    }

    /// Whether the texts decide: the loss is close to a trained model's, and no other answer is within noise.
    pub fn is_decided(&self) -> bool {
        self.is_near() && self.open.is_empty()
    }
}

/// Identifies the architecture of unknown weights.
///
/// `told` receives the current question and the number of candidates run so far.
///
/// # Errors
/// When the tensors do not form a known transformer, there is no text, or the work is stopped.
pub fn guess<O: Ops>(
    ops: &O,
    mut checkpoint: Checkpoint,
    given: &Given,
    told: &mut dyn FnMut(&str, usize),
    pace: &dyn Pace,
) -> Result<Guess> {
    let path = checkpoint.config.path().to_path_buf();
    let largest_id = given.sequences.iter().flatten().copied().max();
    let Some(largest_id) = largest_id else {
        return Err(Error::Prompt(
            "expected a text of two tokens or more, found none".to_owned(),
        ));
    };
    let names: Vec<String> = checkpoint
        .tensors
        .iter()
        .map(|(name, _)| name.to_owned())
        .collect();
    names
        .iter()
        .for_each(|name| checkpoint.tensors.squeeze(name));
    let inventory = Inventory::of(&checkpoint.tensors);
    let n_longest = given.sequences.iter().map(Vec::len).max().unwrap_or(0);
    let asked = Asked {
        largest_id,
        n_longest: n_longest.min(LONGEST_PIECE),
    };
    let found = assignments(&inventory, asked).map_err(|problem| Error::file(&path, problem))?;
    for assignment in &found {
        // An arrangement that fails here fails again with an error when it is described.
        let _ = assignment.described.arrange(&mut checkpoint.tensors, false);
    }
    let rows = |assignment: &Assignment| {
        let name = assignment.described.positions.as_ref()?;
        let n = checkpoint.tensors.info(name)?.n_elements();
        Some(n / assignment.d_model.max(1))
    };
    // All assignments are judged on the same pieces of text; assignments with a table too short for positions are ignored.
    let likely = &found[..found.len().min(4)];
    let fits = |n: &usize| *n >= asked.n_longest.min(FEWEST_POSITIONS);
    let n_piece = likely.iter().filter_map(rows).filter(fits).min();
    let n_piece = n_piece.unwrap_or(LONGEST_PIECE).min(LONGEST_PIECE);
    let checkpoint = Arc::new(checkpoint);
    let mut finder = Finder {
        ops,
        checkpoint: &checkpoint,
        found: &found,
        given,
        n_piece,
        told,
        pace,
        n_tried: 0,
    };
    let best = finder.best(largest_id)?;
    finder.finish(best, &inventory)
}

struct Finder<'a, O> {
    ops: &'a O,
    checkpoint: &'a Arc<Checkpoint>,
    found: &'a [Assignment],
    given: &'a Given,
    n_piece: usize,
    told: &'a mut dyn FnMut(&str, usize),
    pace: &'a dyn Pace,
    n_tried: usize,
}

/// Best result for one task.
struct Best {
    state: State,
    task: Told,
    unigram: f64,
}

impl Best {
    /// Share of the unigram loss, including the handicaps of unlikely answers.
    fn share(&self) -> f64 {
        self.state.rank() / self.unigram.max(1e-9)
    }
}

impl<O: Ops> Finder<'_, O> {
    /// Best description of either kind.
    fn best(&mut self, largest_id: u32) -> Result<Best> {
        let decoder = match self.given.kind {
            Some(Kind::Encoder) => None,
            _ => Some(self.search(Told::Next)?),
        };
        let Some(decoder) = decoder else {
            let problem = "the token that stands for a hidden one is needed: --mask-token ID";
            let encoder = self.masked(largest_id, f64::INFINITY)?;
            return encoder.ok_or_else(|| Error::Prompt(problem.to_owned()));
        };
        if self.given.kind == Some(Kind::Decoder) {
            return Ok(decoder);
        }
        let encoder = self.masked(largest_id, decoder.share())?;
        Ok(match encoder {
            Some(encoder) if encoder.share() < decoder.share() => encoder,
            _ => decoder,
        })
    }

    /// Possible mask tokens, most likely first: ids that no text contains.
    fn mask_tokens(&self, largest_id: u32) -> Vec<u32> {
        if let Some(id) = self.given.mask_token {
            return vec![id];
        }
        let d_vocab = self.found.first().and_then(|one| {
            let info = self.checkpoint.tensors.info(&one.described.tokens)?;
            info.shape.first().copied()
        });
        let last = d_vocab.unwrap_or(1) as u32 - 1;
        let mut seen: Vec<u32> = self.given.sequences.iter().flatten().copied().collect();
        let usual = [last, largest_id + 1, 103, 4, 3, 2, 1, 0, 50_264];
        let mut free = Vec::new();
        for id in usual.into_iter().filter(|id| *id <= last) {
            if !seen.contains(&id) {
                free.push(id);
                seen.push(id);
            }
        }
        free
    }

    /// Best encoder, if its first candidate loses less than word frequencies; among several possible mask tokens, the one with
    /// the least loss. `of_decoder` is the best decoder's share of the unigram loss.
    fn masked(&mut self, largest_id: u32, of_decoder: f64) -> Result<Option<Best>> {
        let candidates = self.mask_tokens(largest_id);
        let is_asked_for = self.given.kind == Some(Kind::Encoder);
        if let ([id], true) = (candidates.as_slice(), is_asked_for) {
            return Ok(Some(self.search(Told::Masked(*id))?));
        }
        let mut likely: Vec<(f64, u32)> = Vec::new();
        for id in candidates {
            let task = Told::Masked(id);
            let texts = self.texts(task, SEARCH_TOKENS / 2);
            let unigram = unigram_loss(&texts);
            let mut search = self.start(&texts);
            let found = search.quick(false);
            let tried = search.n_tried;
            self.n_tried += tried;
            match found {
                Ok(state) => likely.push((state.loss / unigram.max(1e-9), id)),
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(_) => {}
            }
        }
        likely.sort_by(|a, b| a.0.total_cmp(&b.0));
        // If a decoder predicts well, keep only mask tokens that predict as well with default answers. Otherwise try every
        // placement for them.
        if of_decoder < CLEAR {
            likely.retain(|(share, _)| *share < of_decoder);
        }
        let mut best: Option<Best> = None;
        for (_, id) in likely.into_iter().take(MOST_MASKS) {
            let task = Told::Masked(id);
            let short = self.texts(task, SHORT_MASKED);
            let first = match self.first(task, &short) {
                Ok(states) => states,
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(_) => continue,
            };
            let unigram = unigram_loss(&short);
            let tells = first
                .first()
                .is_some_and(|state| state.loss < TELLS * unigram);
            if !tells && !is_asked_for {
                continue;
            }
            let found = self.search_on(task, first)?;
            if best
                .as_ref()
                .is_none_or(|best| found.share() < best.share())
            {
                best = Some(found);
            }
        }
        Ok(best)
    }

    fn texts(&self, task: Told, n: usize) -> Vec<attnscope_run::readings::Text> {
        pieces(&self.given.sequences, task, self.n_piece.min(n), n)
    }

    fn start<'s>(&'s mut self, texts: &'s [attnscope_run::readings::Text]) -> Search<'s, O> {
        let n_longest = texts
            .iter()
            .map(|text| text.sequence.len())
            .max()
            .unwrap_or(0);
        let n_tokens: usize = texts.iter().map(|text| text.sequence.len()).sum();
        let values: usize = self
            .checkpoint
            .tensors
            .iter()
            .map(|(_, info)| info.n_elements())
            .sum();
        let is_cheap = values.saturating_mul(n_tokens) <= CHEAP;
        let width = if is_cheap {
            Width {
                beam: 6,
                assignments: 16,
                placements: 8,
                places: 8,
            }
        } else {
            Width {
                beam: 2,
                assignments: 3,
                placements: 4,
                places: 3,
            }
        };
        Search {
            ops: self.ops,
            checkpoint: self.checkpoint,
            assignments: self.found,
            texts,
            n_longest,
            width,
            pace: self.pace,
            told: &mut *self.told,
            n_tried: 0,
            known: Default::default(),
        }
    }

    fn search(&mut self, task: Told) -> Result<Best> {
        let n = if task == Told::Next {
            SHORT
        } else {
            SHORT_MASKED
        };
        let short = self.texts(task, n);
        if short.is_empty() {
            return Err(Error::Prompt(
                "expected a text of two tokens or more, found none".to_owned(),
            ));
        }
        let first = self.first(task, &short)?;
        self.search_on(task, first)
    }

    /// Finds the first states on some texts.
    fn first(&mut self, task: Told, texts: &[attnscope_run::readings::Text]) -> Result<Vec<State>> {
        let unigram = unigram_loss(texts);
        let mut search = self.start(texts);
        let found = search.first(task == Told::Next, unigram);
        let tried = search.n_tried;
        self.n_tried += tried;
        found
    }

    /// Finds the best description that starts from some first states.
    fn search_on(&mut self, task: Told, first: Vec<State>) -> Result<Best> {
        // Each token is masked once, which takes seven times as many rows.
        let n = if task == Told::Next {
            SEARCH_TOKENS
        } else {
            SEARCH_TOKENS / 2
        };
        let texts = self.texts(task, n);
        let unigram = unigram_loss(&texts);
        let of = |state| Best {
            state,
            task,
            unigram,
        };
        let quick = of(self.rest(first, &texts)?);
        if quick.share() < CLEAR {
            return Ok(quick);
        }
        // Few positions may rank the first questions wrongly, so ask again on all of them.
        let first = self.first(task, &texts)?;
        let slow = of(self.rest(first, &texts)?);
        Ok(if slow.share() < quick.share() {
            slow
        } else {
            quick
        })
    }

    /// Asks the remaining questions.
    fn rest(
        &mut self,
        first: Vec<State>,
        texts: &[attnscope_run::readings::Text],
    ) -> Result<State> {
        let mut search = self.start(texts);
        let found = search.best(first);
        let tried = search.n_tried;
        self.n_tried += tried;
        found
    }

    /// Judges the best description on all texts, improves its answers there, and measures the margin of each answer.
    fn finish(mut self, best: Best, inventory: &Inventory) -> Result<Guess> {
        let n_ctx = best
            .state
            .described
            .spec(&self.checkpoint.tensors)
            .ok()
            .and_then(|spec| spec.n_ctx);
        self.n_piece = n_ctx.unwrap_or(LONGEST_PIECE).min(LONGEST_PIECE);
        let texts = self.texts(best.task, ALL_TOKENS);
        let unigram_loss = unigram_loss(&texts);
        let d_vocab = best.state.described.spec(&self.checkpoint.tensors);
        let blind_loss = blind_loss(&texts, d_vocab.map_or(1, |spec| spec.d_vocab));
        let n_positions = texts.iter().map(|text| text.wanted.len()).sum();
        let found = self.found;
        let n_before = self.n_tried;
        let mut search = self.start(&texts);
        let mut state = best.state;
        search.evaluate(std::slice::from_mut(&mut state))?;
        let (mut margins, mut open) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            margins.clear();
            open.clear();
            let before = state.rank();
            for question in QUESTIONS {
                (search.told)(question.key, n_before + search.n_tried);
                let asked = search.asked(&state, question)?;
                if let Some(better) = asked.better {
                    state = better;
                }
                margins.push((question.key, asked.margin));
                open.extend(asked.open.map(|rival| (question.key, rival)));
            }
            if before - state.rank() < 1e-6 {
                break;
            }
        }
        let n_tried = n_before + search.n_tried;
        let assignment = &found[state.assignment_idx];
        let (kind, mask_token) = match best.task {
            Told::Next => (Kind::Decoder, None),
            Told::Masked(id) => (Kind::Encoder, Some(id)),
        };
        let is_understood = state.loss < UNDERSTOOD * unigram_loss;
        let otherwise = if kind == Kind::Decoder && is_understood {
            let sequences = &self.given.sequences;
            otherwise(
                self.ops,
                self.checkpoint,
                &state.described,
                sequences,
                self.pace,
            )?
        } else {
            None
        };
        Ok(Guess {
            otherwise,
            lines: written::lines(&state.described, &margins),
            open,
            kind,
            mask_token,
            loss: state.loss,
            unigram_loss,
            blind_loss,
            n_positions,
            n_tried,
            left: assignment.left.clone(),
            layers: inventory.evidence.clone(),
            described: state.described,
        })
    }
}
