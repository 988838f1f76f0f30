//! What unknown weights may be: roles of tensors by names and shapes, everything else by what the model loses on text.

mod assign;
mod groups;
mod inventory;
mod maps;
mod names;
mod norms;
mod options;
mod search;
mod texts;
mod written;

use std::sync::Arc;

pub use self::written::{Line, Margin};

use self::assign::{Asked, Assignment, assignments};
use self::inventory::Inventory;
use self::options::QUESTIONS;
use self::search::{Search, State, Width};
use self::texts::{Told, pieces};
use super::readings::unigram_loss;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::family::description::Described;
use crate::ops::Ops;
use crate::pace::Pace;

/// Tokens that candidates are told apart by, and tokens that the best of them is judged on.
const SEARCH_TOKENS: usize = 160;
const ALL_TOKENS: usize = 2048;
/// Tokens of a piece of text at most.
const LONGEST_PIECE: usize = 512;
/// Shorter tables are none of positions.
const FEWEST_POSITIONS: usize = 16;
/// A model that loses more than this share of what word frequencies lose is not understood.
const UNDERSTOOD: f64 = 0.9;
/// A likeness of an encoder that loses less than this share tells hidden tokens.
const TELLS: f64 = 0.95;
/// Multiplications of a candidate beyond which fewer are tried.
const CHEAP: usize = 2_000_000_000;

/// What a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It tells the next token.
    Decoder,
    /// It tells hidden tokens.
    Encoder,
}

/// What a person gives.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// Ids of texts of the kind that the model was trained on.
    pub sequences: Vec<Vec<u32>>,
    pub kind: Option<Kind>,
    /// The token that stands for a hidden one.
    pub mask_token: Option<u32>,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Guess {
    pub described: Described,
    pub kind: Kind,
    pub mask_token: Option<u32>,
    /// Mean loss on all texts, in nats a token.
    pub loss: f64,
    /// What guessing by the texts' own frequencies would lose.
    pub unigram_loss: f64,
    pub n_positions: usize,
    /// Candidates that were run.
    pub n_tried: usize,
    /// Every line of the file, with its evidence.
    pub lines: Vec<Line>,
    /// Tensors that no part takes.
    pub left: Vec<String>,
    pub layers: String,
}

impl Guess {
    /// Whether the model tells clearly more than word frequencies do.
    pub fn is_understood(&self) -> bool {
        self.loss < UNDERSTOOD * self.unigram_loss
    }
}

/// Finds out what weights are.
///
/// `told` hears which question is asked and how many candidates were run.
///
/// # Errors
/// When the tensors are none of a transformer that is known, there is no text, or the work is stopped.
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
        // What cannot be arranged fails when it is described.
        let _ = assignment.described.arrange(&mut checkpoint.tensors, false);
    }
    let rows = |assignment: &Assignment| {
        let name = assignment.described.positions.as_ref()?;
        let n = checkpoint.tensors.info(name)?.n_elements();
        Some(n / assignment.d_model.max(1))
    };
    // Every way to take the tensors is judged on the same pieces; one with a short table of something else is not in the race.
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

/// The best of one kind of task.
struct Best {
    state: State,
    task: Told,
    unigram: f64,
}

impl Best {
    /// The share of what word frequencies lose.
    fn share(&self) -> f64 {
        self.state.loss / self.unigram.max(1e-9)
    }
}

impl<O: Ops> Finder<'_, O> {
    /// The best description of either kind.
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
        // A decoder never saw the token that hides others; an encoder may tell the next token all the same.
        let most = if decoder.share() < UNDERSTOOD {
            decoder.share().max(TELLS)
        } else {
            f64::INFINITY
        };
        let encoder = self.masked(largest_id, most)?;
        Ok(match encoder {
            Some(encoder) if encoder.share() < decoder.share() => encoder,
            _ => decoder,
        })
    }

    /// The best encoder, where its first likeness loses less than a share; of several tokens that may stand for a hidden one the one that loses least.
    fn masked(&mut self, largest_id: u32, most: f64) -> Result<Option<Best>> {
        let d_vocab = self.found.first().and_then(|one| {
            let info = self.checkpoint.tensors.info(&one.described.tokens)?;
            info.shape.first().copied()
        });
        let candidates: Vec<u32> = match self.given.mask_token {
            Some(id) => vec![id],
            None => {
                let last = d_vocab.unwrap_or(1) as u32 - 1;
                let mut all = vec![last, largest_id + 1, 4, 3, 2, 1, 0, 103];
                all.retain(|id| *id <= last);
                let mut seen = Vec::new();
                all.retain(|id| {
                    !seen.contains(id) && {
                        seen.push(*id);
                        true
                    }
                });
                all
            }
        };
        let mut best: Option<(f64, u32)> = None;
        if candidates.len() > 1 || most.is_finite() {
            for id in &candidates {
                let task = Told::Masked(*id);
                let texts = self.texts(task, SEARCH_TOKENS / 2);
                let unigram = unigram_loss(&texts);
                let mut search = self.start(&texts);
                let Ok(state) = search.quick(false) else {
                    continue;
                };
                let tried = search.n_tried;
                self.n_tried += tried;
                let share = state.loss / unigram.max(1e-9);
                if best.is_none_or(|(least, _)| share < least) {
                    best = Some((share, *id));
                }
            }
        } else {
            best = candidates.first().map(|id| (0.0, *id));
        }
        match best.filter(|(share, _)| *share <= most) {
            Some((_, id)) => Ok(Some(self.search(Told::Masked(id))?)),
            None => Ok(None),
        }
    }

    fn texts(&self, task: Told, n: usize) -> Vec<super::readings::Text> {
        pieces(&self.given.sequences, task, self.n_piece.min(n), n)
    }

    fn start<'s>(&'s mut self, texts: &'s [super::readings::Text]) -> Search<'s, O> {
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
            }
        } else {
            Width {
                beam: 2,
                assignments: 3,
                placements: 4,
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
        // Each token of a text is hidden once: seven times as many rows.
        let n = if task == Told::Next {
            SEARCH_TOKENS
        } else {
            SEARCH_TOKENS / 2
        };
        let texts = self.texts(task, n);
        if texts.is_empty() {
            return Err(Error::Prompt(
                "expected a text of two tokens or more, found none".to_owned(),
            ));
        }
        let unigram = unigram_loss(&texts);
        let short = self.texts(task, n * 2 / 5);
        let mut search = self.start(&short);
        let beam = search.first(task == Told::Next)?;
        let mut tried = search.n_tried;
        let mut search = self.start(&texts);
        let state = search.best(beam)?;
        tried += search.n_tried;
        self.n_tried += tried;
        Ok(Best {
            state,
            task,
            unigram,
        })
    }

    /// Judges the best description on all texts, changes the answers that lose less there, and says how far ahead each answer is.
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
        let n_positions = texts.iter().map(|text| text.wanted.len()).sum();
        let found = self.found;
        let n_before = self.n_tried;
        let mut search = self.start(&texts);
        let mut state = best.state;
        search.evaluate(std::slice::from_mut(&mut state))?;
        let mut margins = Vec::new();
        for _ in 0..3 {
            margins.clear();
            let before = state.rank();
            for question in QUESTIONS {
                (search.told)(question.key, n_before + search.n_tried);
                let asked = search.asked(&state, question)?;
                if let Some(better) = asked.better {
                    state = better;
                }
                margins.push((question.key, asked.margin));
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
        Ok(Guess {
            lines: written::lines(&state.described, &margins),
            kind,
            mask_token,
            loss: state.loss,
            unigram_loss,
            n_positions,
            n_tried,
            left: assignment.left.clone(),
            layers: inventory.evidence.clone(),
            described: state.described,
        })
    }
}
