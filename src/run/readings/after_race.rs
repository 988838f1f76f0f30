//! After a race: the best readings together with others, and what silence would lose in their places.

use attnscope_checks::{SILENCE, TestedHypothesis, mean_loss};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;

use super::Reading;
use super::budget::Costs;
use super::candidate_readings::{silence, together_with, without_layers};
use super::evaluate::losses_of_readings;
use super::race::{Gain, Race, tried};
use super::texts::Text;

impl<O: Ops> Race<'_, O> {
    /// Combines the best reading with others as long as that gains. Where the model stays no good, each of the best few readings
    /// is combined with all others: of two mistakes, neither may show alone.
    pub fn together(&mut self, texts: (&[Text], &[Text]), costs: &Costs) -> Result<()> {
        const MOST: usize = 2;
        for _ in 0..MOST {
            let best = self.ranked().find(|(_, its)| self.is_last(its)).cloned();
            let Some((best, its)) = best else { break };
            if self.gain(&its) < self.lines.margin
                || !self.combine(&[&best], &its.losses, texts, costs)?
            {
                break;
            }
        }
        let best = self.ranked().find(|(_, its)| self.is_last(its));
        let loss = best.map_or(f64::NAN, |(_, its)| mean_loss(&its.losses));
        let declared = self.declared.last().cloned().unwrap_or_default();
        if loss.min(mean_loss(&declared)) <= self.lines.restored * self.unigram_loss {
            return Ok(());
        }
        let bases = costs.bases(self.catalogue.len());
        let bases: Vec<Reading> = self
            .ranked()
            .filter(|(reading, _)| reading.hypothesis.parts.is_empty())
            .map(|(reading, _)| reading.clone())
            .take(bases)
            .collect();
        self.combine(&bases.iter().collect::<Vec<_>>(), &declared, texts, costs)?;
        Ok(())
    }

    /// Whether a reading was still in the last round.
    fn is_last(&self, tried: &TestedHypothesis) -> bool {
        tried.round + 1 == self.declared.len()
    }

    /// What a reading gained on the positions of its last round.
    fn gain(&self, tried: &TestedHypothesis) -> f64 {
        let declared = self.declared.get(tried.round);
        declared.map_or(f64::NAN, |declared| mean_loss(declared)) - mean_loss(&tried.losses)
    }

    /// Readings of whole models that leave nothing out, those that gained most first.
    fn ranked(&self) -> impl Iterator<Item = &(Reading, TestedHypothesis)> {
        let all = self.out.iter().filter(|(_, tried)| {
            tried.hypothesis.layer_idx.is_none()
                && tried.hypothesis.family != SILENCE
                && self.gain(tried).is_finite()
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by(|a, b| self.gain(&b.1).total_cmp(&self.gain(&a.1)));
        all.into_iter()
    }

    /// Tries each base together with all other readings, and keeps what gains on the losses `than`. On all texts only those run
    /// that lose least on the first few positions. Returns whether any gained.
    fn combine(
        &mut self,
        bases: &[&Reading],
        than: &[f32],
        (first, all): (&[Text], &[Text]),
        costs: &Costs,
    ) -> Result<bool> {
        let tried_before = |reading: &Reading| {
            self.out
                .iter()
                .any(|(_, tried)| tried.hypothesis.name == reading.hypothesis.name)
        };
        let mut both: Vec<Reading> = Vec::new();
        for base in bases {
            for reading in together_with(self.model, all, base) {
                let is_known = both.iter().any(|known| known.does_the_same(&reading));
                if !is_known && !tried_before(&reading) {
                    both.push(reading);
                }
            }
        }
        // Those whose second part gained most by itself come first.
        let own_gain = |reading: &Reading| {
            let name = reading.hypothesis.parts.last();
            let all = self.ranked();
            let found = all.filter(|(_, tried)| Some(&tried.hypothesis.name) == name);
            found
                .map(|(_, tried)| self.gain(tried))
                .fold(f64::NEG_INFINITY, f64::max)
        };
        both.sort_by_cached_key(|reading| std::cmp::Reverse((1e6 * own_gain(reading)) as i64));
        both.truncate(costs.combinations());
        let most = costs.most_readings(than.len());
        if both.len() > most {
            let running: Vec<&Reading> = both.iter().collect();
            let few = losses_of_readings(self.ops, self.model, first, &running, self.pace)?;
            let few = few.into_iter().map(|losses| mean_loss(&losses));
            let mut ranked: Vec<(f64, Reading)> = few.zip(both).collect();
            ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
            ranked.truncate(most);
            both = ranked.into_iter().map(|(_, reading)| reading).collect();
        }
        if both.is_empty() {
            return Ok(false);
        }
        let running: Vec<&Reading> = both.iter().collect();
        let found = losses_of_readings(self.ops, self.model, all, &running, self.pace)?;
        let mut gained = false;
        for (reading, losses) in both.into_iter().zip(found) {
            if Gain::of(than, &losses).low() > 0.0
                && mean_loss(than) - mean_loss(&losses) >= self.lines.margin
            {
                gained = true;
                let last = self.declared.len() - 1;
                let tried = tried(&reading, losses, last, self.order(&reading));
                self.out.push((reading, tried));
            }
        }
        Ok(gained)
    }

    /// Measures what the embedding alone loses, for readings under which a position is asked for what it is given.
    pub fn by_embedding(&mut self, all: &[Text]) -> Result<()> {
        let last = self.declared.len() - 1;
        let (mut places, mut asked) = (Vec::new(), Vec::new());
        for (idx, (reading, tried)) in self.out.iter().enumerate() {
            let is_own = reading.offset == 0 && tried.round == last;
            if let Some(without) = is_own
                .then(|| without_layers(self.model, reading))
                .flatten()
            {
                places.push(idx);
                asked.push(without);
            }
        }
        let running: Vec<&Reading> = asked.iter().collect();
        let found = losses_of_readings(self.ops, self.model, all, &running, self.pace)?;
        for (idx, losses) in places.into_iter().zip(found) {
            self.out[idx].1.by_embedding = Some(mean_loss(&losses));
        }
        Ok(())
    }

    /// Whether a verdict may rest on what the readings of the last round lose: there are positions enough, and something loses
    /// less than the text's own word frequencies.
    fn may_accuse(&self) -> bool {
        let declared = self.declared.last().map_or(&[][..], Vec::as_slice);
        let last = self.out.iter().filter(|(_, tried)| self.is_last(tried));
        let mut all = last.map(|(_, tried)| tried.losses.as_slice());
        self.lines.are_enough(declared.len())
            && (mean_loss(declared) < self.unigram_loss
                || all.any(|losses| mean_loss(losses) < self.unigram_loss))
    }

    /// Measures what the declared model loses without the parts that the best readings change, in at most so many places, unless
    /// the verdict does not depend on that.
    pub fn in_silence(&mut self, all: &[Text], most: usize) -> Result<()> {
        if !self.may_accuse() {
            return Ok(());
        }
        let mut gaining: Vec<&TestedHypothesis> = self
            .out
            .iter()
            .map(|(_, tried)| tried)
            .filter(|tried| self.is_last(tried) && self.gain(tried) >= self.lines.margin)
            .collect();
        gaining.sort_by(|a, b| self.gain(b).total_cmp(&self.gain(a)));
        let mut places: Vec<Option<usize>> = Vec::new();
        for tried in gaining {
            if !places.contains(&tried.hypothesis.layer_idx) && places.len() < most {
                places.push(tried.hypothesis.layer_idx);
            }
        }
        let silent = silence(self.model);
        let at = |reading: &Reading, place: &Option<usize>| match place {
            Some(layer_idx) => reading.at(*layer_idx, None),
            None => reading.clone(),
        };
        let asked: Vec<Reading> = places
            .iter()
            .flat_map(|place| silent.iter().map(|reading| at(reading, place)))
            .collect();
        let running: Vec<&Reading> = asked.iter().collect();
        let found = losses_of_readings(self.ops, self.model, all, &running, self.pace)?;
        let of_places = found.chunks(silent.len().max(1));
        for (place, losses) in places.into_iter().zip(of_places) {
            let least = losses.iter().map(|losses| mean_loss(losses));
            let least = least.fold(f64::INFINITY, f64::min);
            for (_, tried) in &mut self.out {
                if tried.hypothesis.layer_idx == place && tried.hypothesis.head_idx.is_none() {
                    tried.silenced = Some(least);
                }
            }
        }
        Ok(())
    }
}
