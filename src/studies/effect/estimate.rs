//! A mean over prompts or positions, with its confidence interval.

use attnscope_compute::bootstrap::interval_of_mean;

/// A mean with its 99 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    /// Ends of the bootstrap interval; `None` for a single value.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// Mean of some values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let interval = (values.len() > 1).then(|| interval_of_mean(values));
        Some(Self { mean, interval })
    }
}

/// Values grouped by prompt.
#[derive(Debug, Clone, Default)]
pub struct Sampled(Vec<Vec<f64>>);

impl Sampled {
    pub fn add(&mut self, of_prompt: Vec<f64>) {
        self.0.push(of_prompt);
    }

    /// Number of prompts added.
    pub fn n_prompts(&self) -> usize {
        self.0.len()
    }

    /// Mean over prompts with equal weights; `None` if there are no values.
    pub fn mean(&self) -> Option<f64> {
        let all = self.0.iter().filter(|values| !values.is_empty());
        let means = all.map(|values| values.iter().sum::<f64>() / values.len() as f64);
        let means: Vec<f64> = means.collect();
        (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64)
    }

    /// Mean over prompts with equal weights and a bootstrap interval over prompts; for a single prompt, over its positions.
    pub fn estimate(&self) -> Option<Estimate> {
        let all: Vec<&Vec<f64>> = self.0.iter().filter(|values| !values.is_empty()).collect();
        match all.as_slice() {
            [only] => Estimate::of(only),
            all => {
                let means = all
                    .iter()
                    .map(|values| values.iter().sum::<f64>() / values.len() as f64);
                Estimate::of(&means.collect::<Vec<f64>>())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_prompt_is_sampled_by_position_and_several_by_prompt() {
        let mut sampled = Sampled::default();
        sampled.add(vec![1.0, 2.0, 3.0]);
        let one = sampled.estimate().expect("values");
        assert_eq!(one.mean, 2.0);
        let (low, high) = one.interval.expect("three values");
        assert!(low < 2.0 && high > 2.0);
        sampled.add(vec![10.0]);
        let two = sampled.estimate().expect("values");
        assert_eq!(two.mean, 6.0, "every prompt counts alike");
        assert_eq!(two.interval, Some((2.0, 10.0)));
        assert_eq!(Sampled::default().estimate(), None);
    }
}
