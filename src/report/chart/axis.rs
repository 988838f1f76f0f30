//! Axes: positions of values, and ticks at round numbers.

/// Linear or logarithmic spacing along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    Linear,
    Logarithmic,
}

/// One axis of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    pub scale: Scale,
    /// Fixed ends of the axis; `None` takes the end from the values.
    pub ends: (Option<f64>, Option<f64>),
    /// Values are whole numbers only, and so are ticks.
    pub is_whole: bool,
}

impl Axis {
    pub fn linear(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            scale: Scale::Linear,
            ends: (None, None),
            is_whole: false,
        }
    }

    /// Restricts ticks to whole numbers, for layers or positions.
    pub fn whole(self) -> Self {
        Self {
            is_whole: true,
            ..self
        }
    }

    pub fn logarithmic(label: impl Into<String>) -> Self {
        Self {
            scale: Scale::Logarithmic,
            ..Self::linear(label)
        }
    }

    pub fn from(self, low: f64) -> Self {
        Self {
            ends: (Some(low), self.ends.1),
            ..self
        }
    }

    pub fn to(self, high: f64) -> Self {
        Self {
            ends: (self.ends.0, Some(high)),
            ..self
        }
    }

    /// Whether a value can be drawn on the axis.
    pub fn holds(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }

    /// Returns the ends of the axis, with a margin where they follow from the values; `None` if no value can be drawn.
    pub(super) fn range_of(
        &self,
        values: impl Iterator<Item = f64>,
        room: f64,
    ) -> Option<(f64, f64)> {
        let values = values.filter(|value| self.holds(*value));
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
            (low.min(v), high.max(v))
        });
        if low > high {
            return None;
        }
        let low = self.ends.0.unwrap_or(low);
        let high = self.ends.1.unwrap_or(high);
        // What differs by rounding alone is equal: its digits would fill the axis.
        let is_rounding = self.scale == Scale::Linear
            && !self.is_whole
            && high - low <= 4e-6 * low.abs().max(high.abs());
        if low < high && !is_rounding {
            let beyond = |end: f64, share: f64| match self.scale {
                Scale::Linear => end + share * (high - low),
                Scale::Logarithmic => end * (high / low).powf(share),
            };
            let least = self.ends.0.unwrap_or_else(|| beyond(low, -room));
            let most = self.ends.1.unwrap_or_else(|| beyond(high, room));
            return Some((least, most));
        }
        // All values are equal: put them in the middle.
        Some(match self.scale {
            Scale::Logarithmic => (low / 2.0, low * 2.0),
            Scale::Linear if low == 0.0 => (-1.0, 1.0),
            Scale::Linear => (low - 0.5 * low.abs(), low + 0.5 * low.abs()),
        })
    }

    /// Returns a value's position between the ends, from 0 to 1; outside of that range for values beyond the ends.
    pub fn share(&self, value: f64, (low, high): (f64, f64)) -> f64 {
        match self.scale {
            Scale::Linear => (value - low) / (high - low),
            Scale::Logarithmic => (value / low).ln() / (high / low).ln(),
        }
    }

    /// Returns round numbers between the ends, about as many as fit.
    pub fn ticks(&self, (low, high): (f64, f64), about: usize) -> Ticks {
        match self.scale {
            // No step is smaller than 1.
            Scale::Linear if self.is_whole => {
                let n_whole = (high - low).floor().max(1.0);
                Ticks::linear(low, high, about.min(n_whole as usize)).whole()
            }
            Scale::Linear => Ticks::linear(low, high, about),
            Scale::Logarithmic => Ticks::logarithmic(low, high, about),
        }
    }
}

/// Round numbers along an axis, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Ticks {
    pub values: Vec<f64>,
    /// Decimals needed to distinguish them.
    decimals: usize,
}

impl Ticks {
    /// Multiples of 1, 2, 2.5 or 5 times a power of ten.
    pub fn linear(low: f64, high: f64, about: usize) -> Self {
        let raw = (high - low) / about.max(1) as f64;
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|step| *step >= raw)
            .unwrap_or(raw);
        // Tolerate rounding: an end that is almost a multiple counts as one.
        let first = (low / step - 1e-9).ceil();
        let last = (high / step + 1e-9).floor();
        let n = (last - first).clamp(-1.0, 1e3) as i64;
        Self {
            values: (0..=n).map(|nth| (first + nth as f64) * step).collect(),
            decimals: decimals_of(step),
        }
    }

    /// Keeps only whole numbers.
    fn whole(self) -> Self {
        let is_whole = |value: &f64| (value - value.round()).abs() < 1e-9;
        Self {
            values: self.values.into_iter().filter(is_whole).collect(),
            decimals: 0,
        }
    }

    /// 1, 2 and 5 times powers of ten; fewer per decade where there are many decades.
    pub fn logarithmic(low: f64, high: f64, about: usize) -> Self {
        let first = low.log10().floor().clamp(-320.0, 320.0) as i32;
        let last = high.log10().ceil().clamp(-320.0, 320.0) as i32;
        let inside = |factors: &[f64], every: i32| -> Vec<f64> {
            let powers = (first..=last).filter(|power| power.rem_euclid(every) == 0);
            let ticks = powers.flat_map(|power| factors.iter().map(move |f| f * 10f64.powi(power)));
            ticks
                .filter(|tick| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(tick))
                .collect()
        };
        let fewer = [
            inside(&[1.0, 2.0, 5.0], 1),
            inside(&[1.0, 3.0], 1),
            inside(&[1.0], 1),
            inside(&[1.0], 2),
            inside(&[1.0], 5),
            inside(&[1.0], 20),
        ];
        let values = fewer
            .into_iter()
            .find(|ticks| ticks.len() <= about.max(1) + 1);
        Self {
            values: values.unwrap_or_default(),
            decimals: 0,
        }
    }

    /// Formats the ticks as text; all ticks of a linear axis have the same number of decimals.
    pub fn labels(&self) -> Vec<String> {
        let largest = self.values.iter().fold(0.0, |a: f64, v| a.max(v.abs()));
        let is_plain = self.decimals > 0 && (1e-3..1e5).contains(&largest);
        let label = |value: &f64| match (is_plain, *value) {
            (_, 0.0) => "0".to_owned(),
            (true, value) => format!("{value:.*}", self.decimals),
            (false, value) => tick_label(value),
        };
        self.values.iter().map(label).collect()
    }
}

/// Returns how many decimals a step needs.
fn decimals_of(step: f64) -> usize {
    let decimals = (0..12).find(|decimals| {
        let shifted = step * 10f64.powi(*decimals);
        (shifted - shifted.round()).abs() < 1e-6 * shifted
    });
    decimals.unwrap_or(0) as usize
}

/// Formats a number with as few digits as possible, as a power of ten where that is shorter.
pub fn tick_label(tick: f64) -> String {
    match tick.abs() {
        0.0 => "0".to_owned(),
        size if (1e-3..1e5).contains(&size) => {
            let text = format!("{tick:.4}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => {
            let text = format!("{tick:.1e}");
            text.replace(".0e", "e")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_and_within_the_ends() {
        assert_eq!(
            Ticks::linear(0.0, 1.0, 4).values,
            [0.0, 0.25, 0.5, 0.75, 1.0]
        );
        assert_eq!(
            Ticks::linear(0.0, 1.0, 4).labels(),
            ["0", "0.25", "0.50", "0.75", "1.00"]
        );
        assert_eq!(Ticks::linear(-7.0, 18.0, 4).values, [0.0, 10.0]);
        assert_eq!(Ticks::linear(-7.0, 18.0, 4).labels(), ["0", "10"]);
        let labels = Ticks::linear(0.0301, 0.0326, 3).labels();
        assert_eq!(labels, ["0.031", "0.032"]);
    }

    #[test]
    fn logarithmic_ticks_thin_out_as_decades_grow() {
        let of = |low, high, about| Ticks::logarithmic(low, high, about).labels();
        assert_eq!(
            of(0.1, 50.0, 9),
            ["0.1", "0.2", "0.5", "1", "2", "5", "10", "20", "50"]
        );
        assert_eq!(of(0.1, 50.0, 3), ["0.1", "1", "10"]);
        assert_eq!(of(1e-8, 1.0, 4), ["1e-8", "1e-6", "1e-4", "0.01", "1"]);
        assert!(of(1e-300, 1e300, 4).len() < 35);
    }

    #[test]
    fn values_that_cannot_be_drawn_are_left_out_of_the_range() {
        let axis = Axis::logarithmic("scale");
        let values = [0.0, -1.0, f64::NAN, 2.0, 8.0];
        assert_eq!(axis.range_of(values.into_iter(), 0.0), Some((2.0, 8.0)));
        assert_eq!(axis.share(4.0, (2.0, 8.0)), 0.5);
        assert_eq!(axis.range_of([f64::NAN].into_iter(), 0.0), None);
        let equal = [0.024_390_24, 0.024_390_27].into_iter();
        let (low, high) = Axis::linear("x").range_of(equal, 0.0).unwrap_or_default();
        assert!(0.01 < low && low < 0.02 && high > 0.03, "{low} {high}");
        let alike = Axis::linear("x").range_of([3.0, 3.0].into_iter(), 0.1);
        assert_eq!(alike, Some((1.5, 4.5)));
        let from_0 = Axis::linear("x").from(0.0);
        let with_room = from_0.range_of([2.0, 10.0].into_iter(), 0.1);
        assert_eq!(with_room, Some((0.0, 11.0)));
        let decades = axis.range_of([1.0, 100.0].into_iter(), 0.5);
        assert_eq!(decades, Some((0.1, 1000.0)));
    }
}
