//! Quantiles of a stream in bounded memory: the sketch of Karnin, Lang and Liberty 2016 (arXiv 1603.05346). Where the paper
//! draws a random bit, bits alternate, so that the same values in the same order give the same quantiles.

/// Most values held. Quantiles of so many values are exact.
const HELD: usize = 1024;

/// Capacity of the topmost level. Each level below has 2/3 of the one above, so that all of them together hold at most [`HELD`].
const TOPMOST: usize = 320;

/// A sketch of the values seen so far. A value at level `i` stands for 2^i values.
#[derive(Debug, Clone, Default)]
pub(super) struct Quantiles {
    levels: Vec<Level>,
    n: u64,
    n_held: usize,
}

#[derive(Debug, Clone, Default)]
struct Level {
    values: Vec<f32>,
    /// Which value of each pair the next compaction keeps.
    keeps_second: bool,
}

impl Quantiles {
    /// Adds a finite value.
    pub fn add(&mut self, value: f32) {
        if self.levels.is_empty() {
            self.levels.push(Level::default());
        }
        self.levels[0].values.push(value);
        self.n += 1;
        self.n_held += 1;
        while self.n_held > HELD && self.compact() {}
    }

    /// Number of values that a level may hold before it is compacted.
    fn capacity(&self, level_idx: usize) -> usize {
        let below = self.levels.len() - 1 - level_idx;
        let share = (0..below).fold(TOPMOST as f64, |share, _| share * 2.0 / 3.0);
        (share as usize).max(2)
    }

    /// Halves the lowest level that is over its capacity; returns false if none is.
    fn compact(&mut self) -> bool {
        let is_over = |idx: &usize| self.levels[*idx].values.len() > self.capacity(*idx);
        let Some(level_idx) = (0..self.levels.len()).find(is_over) else {
            return false;
        };
        let level = &mut self.levels[level_idx];
        level.values.sort_by(f32::total_cmp);
        // Of an odd number, one value stays behind, in turn the largest and the smallest.
        let left_over = match (level.values.len() % 2, level.keeps_second) {
            (0, _) => None,
            (_, true) => level.values.pop(),
            (_, false) => Some(level.values.remove(0)),
        };
        let first = usize::from(level.keeps_second);
        let kept: Vec<f32> = level
            .values
            .iter()
            .skip(first)
            .step_by(2)
            .copied()
            .collect();
        self.n_held -= level.values.len() - kept.len();
        level.keeps_second = !level.keeps_second;
        level.values = left_over.into_iter().collect();
        if level_idx + 1 == self.levels.len() {
            self.levels.push(Level::default());
        }
        self.levels[level_idx + 1].values.extend(kept);
        true
    }

    /// Returns the nine deciles: of each share 0.1 … 0.9 the smallest value that is at least as large as this share of all
    /// values. `None` without values.
    pub fn deciles(&self) -> Option<[f32; 9]> {
        let mut all: Vec<(f32, u64)> = Vec::with_capacity(self.n_held);
        for (level_idx, level) in self.levels.iter().enumerate() {
            all.extend(level.values.iter().map(|value| (*value, 1 << level_idx)));
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let last = all.last()?.0;
        let mut deciles = [last; 9];
        let (mut nth, mut n_below) = (0, 0);
        for (value, weight) in all {
            n_below += weight;
            while nth < deciles.len() && n_below >= (self.n * (nth as u64 + 1)).div_ceil(10) {
                deciles[nth] = value;
                nth += 1;
            }
        }
        Some(deciles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of values below a value, and the share of values up to it.
    fn ranks(sorted: &[f32], value: f32) -> (f64, f64) {
        let n = sorted.len() as f64;
        let below = sorted.partition_point(|other| *other < value) as f64;
        let up_to = sorted.partition_point(|other| *other <= value) as f64;
        (below / n, up_to / n)
    }

    fn sketch(values: &[f32]) -> Quantiles {
        let mut sketch = Quantiles::default();
        values.iter().for_each(|value| sketch.add(*value));
        sketch
    }

    #[test]
    fn deciles_of_few_values_are_values_at_the_nearest_rank() {
        assert_eq!(Quantiles::default().deciles(), None);
        assert_eq!(sketch(&[2.5]).deciles(), Some([2.5; 9]));
        let mut random = fastrand::Rng::with_seed(1);
        for n in [2, 9, 10, 11, HELD] {
            let mut values: Vec<f32> = (0..n).map(|_| random.f32()).collect();
            let deciles = sketch(&values).deciles().expect("values");
            values.sort_by(f32::total_cmp);
            let exact: Vec<f32> = (1..10).map(|d| values[(d * n).div_ceil(10) - 1]).collect();
            assert_eq!(deciles.to_vec(), exact, "{n} values");
        }
    }

    #[test]
    fn deciles_of_many_values_are_within_1_percent_of_their_rank_and_memory_is_bounded() {
        let mut random = fastrand::Rng::with_seed(2);
        let n = 200_000;
        let uneven = (0..n)
            .map(|_| (random.f32() * 12.0).exp())
            .collect::<Vec<f32>>();
        let rising = (0..n).map(|nth| nth as f32).collect();
        let falling = (0..n).map(|nth| -(nth as f32)).collect();
        let waves = (0..n).map(|nth| ((nth * 37) % 1000) as f32).collect();
        let ties = (0..n).map(|_| (random.f32() * 3.0).floor()).collect();
        for (name, mut values) in [
            ("uneven", uneven),
            ("rising", rising),
            ("falling", falling),
            ("waves", waves),
            ("ties", ties),
        ] {
            let sketch = sketch(&values);
            assert!(sketch.n_held <= HELD, "{name}: {}", sketch.n_held);
            let held: usize = sketch.levels.iter().map(|level| level.values.len()).sum();
            assert_eq!(held, sketch.n_held);
            values.sort_by(f32::total_cmp);
            for (nth, decile) in sketch.deciles().expect("values").into_iter().enumerate() {
                let wanted = (nth + 1) as f64 / 10.0;
                let (below, up_to) = ranks(&values, decile);
                assert!(
                    below <= wanted + 0.01 && up_to >= wanted - 0.01,
                    "{name}: {decile} has ranks {below} to {up_to}, wanted {wanted}"
                );
            }
        }
    }
}
