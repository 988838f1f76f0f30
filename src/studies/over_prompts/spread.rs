//! How the values of one statistic of one head spread over prompts.

use super::quantiles::Quantiles;

/// Values of one statistic of one head, seen so far.
#[derive(Debug, Clone, Default)]
pub struct Spread {
    /// Number of prompts with a finite value.
    pub n: usize,
    /// Number of prompts on which the statistic has no meaning.
    pub n_absent: usize,
    /// Number of prompts with NaN or an infinity; no figure counts them.
    pub n_nonfinite: usize,
    sum: f64,
    least: Option<(f64, usize)>,
    largest: Option<(f64, usize)>,
    quantiles: Quantiles,
}

/// Figures of a spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    pub mean: f64,
    /// Smallest and largest value, each with the index of the first prompt that has it.
    pub least: (f64, usize),
    pub largest: (f64, usize),
    /// Values that 10 %, 20 %, … 90 % of the prompts do not exceed. Exact up to 1024 prompts; of more, their rank is within 1 %.
    pub deciles: [f64; 9],
}

impl Spread {
    /// Adds the value on a prompt; `None` if the statistic has no meaning there.
    pub(super) fn add(&mut self, prompt_idx: usize, value: Option<f64>) {
        let Some(value) = value else {
            self.n_absent += 1;
            return;
        };
        if !value.is_finite() {
            self.n_nonfinite += 1;
            return;
        }
        self.n += 1;
        self.sum += value;
        if self.least.is_none_or(|(least, _)| value < least) {
            self.least = Some((value, prompt_idx));
        }
        if self.largest.is_none_or(|(largest, _)| value > largest) {
            self.largest = Some((value, prompt_idx));
        }
        self.quantiles.add(value as f32);
    }

    /// Returns mean, extremes and deciles; `None` if no prompt has a finite value.
    pub fn figures(&self) -> Option<Figures> {
        let (least, largest) = (self.least?, self.largest?);
        // Values are held as f32; one that is an extreme is given as it was.
        let exact = |decile: f32| {
            let ends = [least.0, largest.0];
            let extreme = ends.into_iter().find(|end| *end as f32 == decile);
            extreme.unwrap_or(f64::from(decile))
        };
        let deciles = self.quantiles.deciles()?.map(exact);
        Some(Figures {
            mean: self.mean(),
            least,
            largest,
            deciles,
        })
    }

    /// Returns the mean; NaN if no prompt has a finite value.
    pub fn mean(&self) -> f64 {
        self.sum / self.n as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_and_broken_values_are_counted_apart_and_move_no_figure() {
        let mut spread = Spread::default();
        let values = [
            Some(0.1),
            None,
            Some(f64::NAN),
            Some(0.3),
            Some(f64::INFINITY),
        ];
        for (prompt_idx, value) in values.into_iter().enumerate() {
            spread.add(prompt_idx, value);
        }
        assert_eq!((spread.n, spread.n_absent, spread.n_nonfinite), (2, 1, 2));
        let figures = spread.figures().expect("two values");
        assert_eq!((figures.least, figures.largest), ((0.1, 0), (0.3, 3)));
        assert!((figures.mean - 0.2).abs() < 1e-15);
        assert_eq!((figures.deciles[0], figures.deciles[8]), (0.1, 0.3));
        assert_eq!(Spread::default().figures(), None);
    }
}
