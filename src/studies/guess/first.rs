//! Finds the first states of the search: the most likely tensor assignments and norm placements, each with every way to split
//! its attention into parts.
//!
//! Which rows are queries, how heads are split and how positions are encoded can be judged only together. While attention is
//! misread, anything that weakens it wins: a norm on its output, a transposed output, scaled embeddings. So these questions are
//! asked together for one placement after another, until the losses separate.

use std::collections::BTreeMap;

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_families::description::{Axis, EmbedScale, MapPart, NormPart, Positions, Qkv};

use super::options::{
    Answer, Known, QUESTIONS, Question, usual_fused, widths_of_heads, with_d_head,
};
use super::search::{MOST_OF_NAMES, OF_LEFT, OF_NAMES, Search, State, Width, keep, none};

/// Share of the unigram loss below which the first questions are answered.
const SEPARATED: f64 = 0.5;
/// Gain, as a share of the loss, that scaled embeddings need before attention is read correctly: scaled, they drown it.
const SCALED: f64 = 0.02;
/// Most head widths that are tried in combination with everything else.
const MOST_WIDTHS: usize = 7;
/// Number of states whose norm placement is asked again once their attention is read.
const MOST_PLACED: usize = 4;

/// Settings fixed before attention is split: tensors, norm placement, matrix orientation, embedding scale.
type Place = (
    usize,
    [Option<NormPart>; 6],
    bool,
    Vec<Vec<Axis>>,
    EmbedScale,
);

fn place(state: &State) -> Place {
    let described = &state.described;
    let axes = |map: &MapPart| map.axes.clone();
    let mut all: Vec<Vec<Axis>> = described.o.iter().map(axes).collect();
    match &described.qkv {
        Qkv::Separate(maps) => all.extend(maps.iter().map(axes)),
        Qkv::Paired(q, kv) => all.extend([axes(q), axes(&kv.map)]),
        Qkv::Fused(fused) => all.push(axes(&fused.map)),
    }
    (
        state.assignment_idx,
        described.norms.clone(),
        described.is_parallel,
        all,
        described.embed_scale,
    )
}

fn question(key: &str) -> Option<&'static Question> {
    QUESTIONS.iter().find(|question| question.key == key)
}

impl<O: Ops> Search<'_, O> {
    /// Returns the best first states, after the most decisive questions.
    ///
    /// # Errors
    /// When the work is stopped, or no description can run.
    pub fn first(&mut self, causal: bool, unigram: f64) -> Result<Vec<State>> {
        // Sorted by loss, each with its rank by names and shapes.
        let mut open = self.begin(causal)?;
        let mut pool: Vec<State> = Vec::new();
        let mut cut: Vec<Place> = Vec::new();
        let n_kept = 3 * self.width.beam;
        let is_separated = |pool: &[State]| {
            pool.first()
                .is_some_and(|best| best.loss < SEPARATED * unigram)
        };
        for round in 0..2 {
            let n_places = if round == 0 { self.width.places } else { 3 };
            (self.told)("n_heads", self.n_tried);
            for nth in 0..n_places {
                // Alternate between the lowest loss, though attention may be misread, and the best rank by names and shapes.
                let mut uncut = open
                    .iter()
                    .filter(|(_, state)| !cut.contains(&place(state)));
                let next = if nth % 2 == 0 {
                    uncut.next()
                } else {
                    uncut.min_by_key(|(prior, _)| *prior)
                };
                let Some((_, state)) = next.cloned() else {
                    break;
                };
                cut.push(place(&state));
                let mut states = self.cut(&state);
                self.evaluate(&mut states)?;
                states.append(&mut pool);
                keep(&mut pool, states, n_kept);
                if is_separated(&pool) {
                    break;
                }
            }
            // Once attention is read correctly, losses show the places of norms and matrices.
            for key in ["block", "axes", "embed_scale"] {
                let Some(question) = question(key) else {
                    continue;
                };
                (self.told)(key, self.n_tried);
                let mut placed: Vec<State> = pool.iter().take(MOST_PLACED).cloned().collect();
                let most = MOST_PLACED * 4;
                self.ask(question.key, question.answers, &mut placed, most)?;
                placed.append(&mut pool);
                keep(&mut pool, placed, n_kept);
            }
            // Try the current winners before those that won while attention was misread.
            let likely = pool.iter().map(|state| (0, state.clone()));
            open = likely.chain(open).collect();
            if pool.first().is_none_or(|best| cut.contains(&place(best))) && is_separated(&pool) {
                break;
            }
        }
        if pool.is_empty() {
            return Err(none());
        }
        pool.truncate(2 * self.width.beam);
        Ok(pool)
    }

    /// Returns the best first state, with attention set up in the most common way.
    ///
    /// # Errors
    /// As for [`Search::first`].
    pub fn quick(&mut self, causal: bool) -> Result<State> {
        self.width = Width {
            beam: 1,
            assignments: 2,
            placements: 6,
            places: 1,
        };
        let open = self.begin(causal)?;
        let first = open.into_iter().next();
        first.map(|(_, state)| state).ok_or_else(none)
    }

    /// Every combination of fused-map layout, head width and position encoding.
    fn cut(&self, state: &State) -> Vec<State> {
        let mut lying = vec![state.clone()];
        let ways = self.answers(state, usual_fused);
        if !ways.is_empty() {
            lying = ways
                .into_iter()
                .map(|way| State {
                    described: way.described,
                    ..state.clone()
                })
                .collect();
        }
        let (Some(heads), Some(positions)) = (question("n_heads"), question("positions")) else {
            return lying;
        };
        let mut all = Vec::new();
        for lies in &lying {
            let widths = self.answers(lies, heads.answers);
            for width in widths.into_iter().take(MOST_WIDTHS) {
                let mut one = lies.clone();
                one.described = width.described;
                for told in self.answers(&one, positions.answers) {
                    let mut both = one.clone();
                    both.described = told.described;
                    both.handicaps.insert(positions.key, told.handicap);
                    all.push(both);
                }
            }
        }
        all
    }

    /// The most likely tensor assignments and norm placements with default answers; keeps the best of each place.
    fn begin(&mut self, causal: bool) -> Result<Vec<(usize, State)>> {
        let mut states = Vec::new();
        let top = self.assignments.first().map_or(0, |one| one.score);
        let assignments = self.assignments.iter().enumerate();
        for (assignment_idx, assignment) in assignments.take(self.width.assignments) {
            let known = Known {
                assignment,
                n_longest: self.n_longest,
            };
            let mut usual = assignment.described.clone();
            usual.causal = causal;
            if let Some(d_head) = widths_of_heads(&known).first() {
                with_d_head(&mut usual, &known, *d_head);
            }
            let usual = State {
                assignment_idx,
                described: usual,
                loss: f64::INFINITY,
                handicaps: BTreeMap::new(),
                of_names: (OF_NAMES * f64::from(top - assignment.score)).min(MOST_OF_NAMES)
                    + OF_LEFT * assignment.left.len() as f64,
            };
            let mut placed = self.asked_of(&usual, "block");
            placed.truncate(self.width.placements);
            for state in placed {
                let mut told = vec![state];
                let has_none = told[0].described.computed == Positions::None
                    && told[0].described.positions.is_none();
                if has_none {
                    let mut rotary = told[0].clone();
                    rotary.described.computed = Positions::Rotary {
                        theta: 10_000.0,
                        interleaved: false,
                        d_rotary: (rotary.described.d_head & !1).max(2),
                    };
                    told.push(rotary);
                }
                for state in told {
                    for turned in self.asked_of(&state, "axes") {
                        let mut scaled = turned.clone();
                        scaled.described.embed_scale = EmbedScale::SqrtD;
                        scaled.handicaps.insert("embed_scale", SCALED);
                        states.push(turned);
                        if self.width.beam > 1 {
                            states.push(scaled);
                        }
                    }
                }
            }
        }
        (self.told)("layout", self.n_tried);
        self.evaluate(&mut states)?;
        let mut states: Vec<(usize, State)> = states.into_iter().enumerate().collect();
        states.retain(|(_, state)| state.loss.is_finite());
        states.sort_by(|(_, a), (_, b)| a.rank().total_cmp(&b.rank()));
        let mut places: Vec<Place> = Vec::new();
        states.retain(|(_, state)| {
            let own = place(state);
            let is_new = !places.contains(&own);
            if is_new {
                places.push(own);
            }
            is_new
        });
        if states.is_empty() {
            Err(none())
        } else {
            Ok(states)
        }
    }

    /// Returns the state with every answer to a question.
    fn asked_of(&self, state: &State, key: &'static str) -> Vec<State> {
        let answers = question(key).map(|question| self.answers(state, question.answers));
        let with = |answer: Answer| {
            let mut next = state.clone();
            next.described = answer.described;
            next.handicaps.insert(key, answer.handicap);
            next
        };
        answers.unwrap_or_default().into_iter().map(with).collect()
    }
}
