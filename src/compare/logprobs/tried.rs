//! Explanations that are tried: readings of the model on the texts of a side.
//!
//! All readings of whole models run on the text where the side departs most, the best of them on all texts, then in single layers and in pairs
//! where they leave something open, and numbers of the model that may have any value are turned until they fit.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_run::readings::{DIALS, Dial, Text, engine_readings, layers_of, losses, with_second};
use attnscope_run::{Budget, Reading, end_tokens};

use super::between::gap;
use super::causes::NEAR;
use super::reference::Referee;
use super::scored::LogProbs;
use super::side::{Pair, SideJudgement};
use super::spending::{ENOUGH, Pacing, Spending, likeliest_first};
use super::transformed::Transformed;

/// Most and fewest tokens on which all readings run, and most on which the best do.
const FIRST_TOKENS: usize = 512;
const FEWEST_TOKENS: usize = 32;
const MOST_TOKENS: usize = 8192;

/// Tokens behind the first that departs on which readings are judged at most.
const BEHIND_FIRST: usize = 192;

/// What a search may cost: half for all readings, half for the best of them. A departure far into a text costs more, since readings have to
/// come to it.
const BUDGET: Budget = Budget::of_seconds(60.0);

/// About as many readings as a model has.
const USUAL_FIELD: usize = 150;

/// Readings that go on to all texts.
const N_BEST: usize = 8;

/// Share below which single layers, pairs and other values of numbers are tried too.
const OPEN: f64 = 0.95;

/// Share that a factor of the model's numbers has to explain before it is looked for more closely.
const PROMISING: f64 = 0.3;

/// Rounds in which a number is looked for, and values in each.
const DIAL_ROUNDS: usize = 3;
const DIAL_STEPS: usize = 12;

/// An explanation, and what it takes away.
pub(super) struct Tried {
    pub name: String,
    pub advice: String,
    pub explains: f64,
    pub reading: Option<Reading>,
    /// Whether it is of the side's numbers alone.
    pub is_of_numbers: bool,
    /// Whether it was fitted: of one layer among many, of two things, or of a number turned until it fits.
    pub is_fitted: bool,
    /// Values that the side would have; `None` where that is not known. // [pair]
    pub values: Vec<Option<f64>>,
}

impl Tried {
    /// What it explains, less what a fit gains by chance.
    pub fn rank(&self) -> f64 {
        self.explains - if self.is_fitted { NEAR } else { 0.0 }
    }

    fn fitted(self) -> Self {
        Self {
            is_fitted: true,
            ..self
        }
    }

    pub fn of_numbers(pairs: &[Pair], found: Transformed) -> Self {
        Self {
            explains: explained(pairs, &found.values),
            name: found.name,
            advice: found.advice,
            reading: None,
            is_of_numbers: true,
            is_fitted: false,
            values: found.values,
        }
    }
}

/// Share of Σ|difference| that values take away; below 0 where they add to it. Tokens without a value, or with NaN, keep their difference,
/// and those of which the side itself has NaN say nothing.
pub(super) fn explained(pairs: &[Pair], values: &[Option<f64>]) -> f64 {
    let (mut left, mut all) = (0.0, 0.0);
    for (pair, value) in pairs.iter().zip(values) {
        let whole = pair.gap().abs();
        if whole.is_nan() {
            continue;
        }
        all += whole;
        let known = value.filter(|value| !value.is_nan());
        left += known.map_or(whole, |value| gap(value, pair.side).abs());
    }
    if all > 0.0 { 1.0 - left / all } else { 0.0 }
}

/// What a search reads: a side, and the tokens that are judged.
pub(super) struct Searched<'a> {
    pub table: &'a LogProbs,
    pub judged: &'a SideJudgement,
    pub pairs: &'a [Pair],
    /// Mean rounding of bf16, in nats.
    pub bf16: f64,
}

/// A search under way.
struct Trying<'a> {
    spending: &'a mut Spending,
    told: &'a mut dyn FnMut(usize, usize),
}

/// A text for readings, and the pairs that are judged on it.
struct OnText {
    text: Text,
    pairs: Vec<usize>,
}

impl<O: Ops> Referee<'_, O> {
    /// Runs readings, and says what each explains on all texts.
    pub(super) fn read(
        &self,
        searched: &Searched<'_>,
        spending: &mut Spending,
        told: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Tried>> {
        let &Searched {
            table,
            judged,
            pairs,
            bf16,
        } = searched;
        let first = judged.first.as_ref().map(|first| first.position);
        let affordable = |n_readings: usize| {
            let of_token = self.model.spec.n_multiplications().max(1) as u64;
            let n = BUDGET.multiplications() / 2 / (of_token * n_readings as u64);
            usize::try_from(n).unwrap_or(usize::MAX)
        };
        let n_first = affordable(USUAL_FIELD).clamp(FEWEST_TOKENS, FIRST_TOKENS);
        let n_last = affordable(N_BEST).clamp(n_first, MOST_TOKENS);
        let worst = self.texts(
            table,
            pairs,
            n_first.max(first.unwrap_or(0) + BEHIND_FIRST.min(n_first)),
            true,
        );
        let all_texts = self.texts(
            table,
            pairs,
            n_last.max(first.unwrap_or(0) + BEHIND_FIRST.min(n_first)),
            false,
        );
        let of_worst: Vec<Text> = worst.iter().map(|one| one.text.clone()).collect();
        let mut field = engine_readings(self.model, &of_worst, first);
        let n_tokens: usize = of_worst.iter().map(|text| text.sequence.len()).sum();
        if spending.pacing(field.len(), n_tokens) != Pacing::Together {
            likeliest_first(&mut field, judged, bf16);
        }
        let mut trying = Trying { spending, told };
        let mut ranked = self.within(&worst, pairs, field, &mut trying)?;
        let best = ranked.first().map_or(0.0, |one| one.explains);
        let leaders = ranked.iter().take(N_BEST);
        let leaders: Vec<Reading> = leaders.filter_map(|one| one.reading.clone()).collect();
        let mut fits = Vec::new();
        if best < OPEN {
            let alone = layers_of(self.model, &leaders);
            fits.extend(self.within(&worst, pairs, alone, &mut trying)?);
            if let Some(leader) = leaders.first().filter(|_| best > PROMISING) {
                let both = with_second(self.model, &of_worst, leader);
                fits.extend(self.within(&worst, pairs, both, &mut trying)?);
            }
            for dial in &DIALS {
                fits.extend(self.turned(dial, &worst, pairs, &mut trying)?);
            }
        }
        ranked.extend(fits.into_iter().map(Tried::fitted));
        ranked.sort_by(|a, b| b.rank().total_cmp(&a.rank()));
        let n_last = N_BEST.min(ranked.len());
        let out = ranked.split_off(n_last);
        let are_fitted: Vec<bool> = ranked.iter().map(|one| one.is_fitted).collect();
        let last: Vec<Reading> = ranked.into_iter().filter_map(|one| one.reading).collect();
        let mut judged = self.in_order(&all_texts, pairs, last)?;
        for (one, is_fitted) in judged.iter_mut().zip(are_fitted) {
            one.is_fitted = is_fitted;
        }
        if judged.iter().all(|one| one.explains < 1.0 - NEAR) {
            judged.extend(self.documents(table, pairs)?);
        }
        let ranked = out;
        // Those that fell out keep what they explained of one text, and cannot win any more.
        let least = judged.iter().map(|one| one.explains).fold(1.0, f64::min);
        judged.extend(ranked.into_iter().map(|one| Tried {
            explains: one.explains.min(least),
            ..one
        }));
        Ok(judged)
    }

    /// Documents that do not see each other: each is a text of its own, from the token that begins the prompt, or behind one that ends texts.
    fn documents(&self, table: &LogProbs, pairs: &[Pair]) -> Result<Vec<Tried>> {
        let ends = end_tokens(self.model);
        let mut on = Vec::new();
        for (prompt_idx, prompt) in table.prompts.iter().enumerate() {
            let Some(ids) = prompt.ids() else { continue };
            let begins = |idx: &usize| {
                *idx > 0 && (ids.first() == ids.get(*idx) || ends.contains(&ids[*idx - 1]))
            };
            let mut starts: Vec<usize> = (0..ids.len()).filter(begins).collect();
            if starts.is_empty() {
                continue;
            }
            starts.insert(0, 0);
            for (nth, start) in starts.iter().enumerate() {
                let end = starts.get(nth + 1).copied().unwrap_or(ids.len());
                // The first token of the next one is predicted by the last of this one.
                let own = ids[*start..(end + 1).min(ids.len())].to_vec();
                let judged = pairs.iter().enumerate().filter(|(_, pair)| {
                    pair.at.prompt_idx == prompt_idx
                        && (start + 1..start + own.len()).contains(&pair.at.idx)
                });
                let (judged, wanted): (Vec<usize>, Vec<usize>) = judged
                    .map(|(idx, pair)| (idx, pair.at.idx - start - 1))
                    .unzip();
                if !judged.is_empty() {
                    let text = Text::scored(&self.model.spec, own, wanted);
                    on.push(OnText {
                        text,
                        pairs: judged,
                    });
                }
            }
        }
        let named = |one: Tried| Tried {
            name: "documents that do not see each other".to_owned(),
            reading: None,
            explains: explained(pairs, &one.values),
            ..one
        };
        let found = self.race(&on, pairs, vec![Reading::declared()])?;
        Ok(found.into_iter().map(named).collect())
    }

    /// A number of the model that may have any value: a few factors, then more of them around the best.
    fn turned(
        &self,
        dial: &Dial,
        on: &[OnText],
        pairs: &[Pair],
        trying: &mut Trying<'_>,
    ) -> Result<Vec<Tried>> {
        let mut factors = dial.factors.to_vec();
        let mut found: Vec<Tried> = Vec::new();
        for _ in 0..DIAL_ROUNDS {
            let readings = factors
                .iter()
                .map(|factor| (dial.reading)(self.model, *factor));
            let Some(readings) = readings.collect::<Option<Vec<Reading>>>() else {
                break;
            };
            let in_order: Vec<String> = readings
                .iter()
                .map(|one| one.hypothesis.name.clone())
                .collect();
            let mut round = self.within(on, pairs, readings, trying)?;
            round.truncate(1);
            let Some(best) = round.pop() else { break };
            let at = in_order
                .iter()
                .position(|name| *name == best.name)
                .unwrap_or(0);
            let low = factors[at.saturating_sub(1)];
            let high = factors[(at + 1).min(factors.len() - 1)];
            let is_promising = best.explains > PROMISING;
            if found
                .first()
                .is_none_or(|known| best.explains > known.explains)
            {
                found = vec![best];
            }
            if !is_promising {
                break;
            }
            let step = |nth: usize| low * (high / low).powf(nth as f64 / DIAL_STEPS as f64);
            factors = (0..=DIAL_STEPS).map(step).collect();
        }
        Ok(found)
    }

    /// Runs readings on some texts, best first, as far as the search may spend: those of a large model a few at a time, until one explains
    /// almost everything.
    fn within(
        &self,
        on: &[OnText],
        pairs: &[Pair],
        mut field: Vec<Reading>,
        trying: &mut Trying<'_>,
    ) -> Result<Vec<Tried>> {
        let n_tokens: usize = on.iter().map(|one| one.text.sequence.len()).sum();
        let n_at_once = match trying.spending.pacing(field.len(), n_tokens) {
            Pacing::Together => field.len(),
            Pacing::InParts(n) => n,
        };
        let n_before = trying.spending.n_done;
        let n_all = n_before + field.len();
        let mut found: Vec<Tried> = Vec::new();
        while !field.is_empty() {
            (trying.told)(trying.spending.n_done, n_all);
            let rest = field.split_off(n_at_once.min(field.len()));
            if !trying.spending.takes(field.len(), n_tokens) {
                trying.spending.n_left_out += rest.len();
                break;
            }
            found.extend(self.in_order(on, pairs, field)?);
            let is_enough = found.iter().any(|one| one.explains >= ENOUGH);
            field = rest;
            if is_enough {
                trying.spending.n_left_out += field.len();
                break;
            }
        }
        (trying.told)(trying.spending.n_done, trying.spending.n_done);
        found.sort_by(|a, b| b.explains.total_cmp(&a.explains));
        Ok(found)
    }

    /// Runs readings on some texts, best first.
    fn race(&self, on: &[OnText], pairs: &[Pair], field: Vec<Reading>) -> Result<Vec<Tried>> {
        let mut tried = self.in_order(on, pairs, field)?;
        tried.sort_by(|a, b| b.explains.total_cmp(&a.explains));
        Ok(tried)
    }

    /// Runs readings on some texts.
    fn in_order(&self, on: &[OnText], pairs: &[Pair], field: Vec<Reading>) -> Result<Vec<Tried>> {
        if field.is_empty() || on.is_empty() {
            return Ok(Vec::new());
        }
        let texts: Vec<Text> = on.iter().map(|one| one.text.clone()).collect();
        let running: Vec<&Reading> = field.iter().collect();
        let mut all = losses(self.ops, self.model, &texts, &running, self.pace)?;
        all.remove(0);
        let judged: Vec<usize> = on
            .iter()
            .flat_map(|one| one.pairs.iter().copied())
            .collect();
        let some: Vec<Pair> = judged.iter().map(|idx| pairs[*idx]).collect();
        let tried = field.into_iter().zip(all).map(|(reading, losses)| {
            let found: Vec<Option<f64>> =
                losses.iter().map(|loss| Some(-f64::from(*loss))).collect();
            let explains = explained(&some, &found);
            let mut values = vec![None; pairs.len()];
            judged
                .iter()
                .zip(found)
                .for_each(|(idx, value)| values[*idx] = value);
            let place = reading
                .hypothesis
                .layer_idx
                .map(|layer_idx| format!(" in L{layer_idx}"));
            Tried {
                name: format!("{}{}", reading.hypothesis.name, place.unwrap_or_default()),
                advice: reading.hypothesis.advice.clone(),
                explains,
                reading: Some(reading),
                is_of_numbers: false,
                is_fitted: false,
                values,
            }
        });
        Ok(tried.collect())
    }

    /// The prompts as texts, those that depart most first, up to a number of tokens; or only the first of them.
    fn texts(&self, table: &LogProbs, pairs: &[Pair], most: usize, only_one: bool) -> Vec<OnText> {
        let total = |prompt_idx: usize| -> f64 {
            let own = pairs
                .iter()
                .filter(|pair| pair.at.prompt_idx == prompt_idx && pair.at.idx < most);
            own.map(|pair| pair.gap().abs()).sum()
        };
        let mut order: Vec<(usize, f64)> = (0..table.prompts.len())
            .map(|idx| (idx, total(idx)))
            .collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut left = most;
        let mut texts = Vec::new();
        for (prompt_idx, _) in order.into_iter().filter(|(_, sum)| *sum > 0.0) {
            if left < 2 || (only_one && !texts.is_empty()) {
                break;
            }
            let Some(mut ids) = table.prompts[prompt_idx].ids() else {
                continue;
            };
            ids.truncate(left);
            left -= ids.len();
            let n = ids.len();
            let own = pairs.iter().enumerate();
            let own = own.filter(|(_, pair)| {
                pair.at.prompt_idx == prompt_idx && (1..n).contains(&pair.at.idx)
            });
            let (judged, wanted): (Vec<usize>, Vec<usize>) =
                own.map(|(idx, pair)| (idx, pair.at.idx - 1)).unzip();
            if judged.is_empty() {
                continue;
            }
            let text = Text::scored(&self.model.spec, ids, wanted);
            texts.push(OnText {
                text,
                pairs: judged,
            });
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::super::side::At;
    use super::*;

    #[test]
    fn nan_explains_nothing_and_hides_nothing() {
        let pair = |side: f64| Pair {
            at: At {
                prompt_idx: 0,
                idx: 1,
            },
            side,
            model: -1.0,
            scale: 0.1,
        };
        let pairs = [pair(-2.0), pair(f64::NAN), pair(-3.0)];
        let right = [Some(-2.0), Some(-1.0), Some(-3.0)];
        assert_eq!(explained(&pairs, &right), 1.0);
        assert_eq!(explained(&pairs, &[Some(f64::NAN); 3]), 0.0);
        // One of the two that count is known: 2 of 3 nats are left.
        let half = [Some(-2.0), None, None];
        assert!((explained(&pairs, &half) - 1.0 / 3.0).abs() < 1e-12);
        assert!(explained(&pairs, &[Some(5.0); 3]) < 0.0);
    }
}
