//! Arrays of which some values were printed, rounded to a number of digits.

use attnscope_compute::error::Result;

use super::{Array, Captured, MOST_ELEMENTS};
use crate::machine::too_much;

/// The values of an array that a text has, by their places; the array itself is made when it is read.
#[derive(Debug, Clone, PartialEq)]
pub struct Printed {
    pub shape: Vec<usize>,
    /// Row-major index and value; each index is inside the shape.
    pub values: Vec<(usize, f32)>,
    /// Half a unit of the last printed digit.
    pub rounding: f32,
}

impl Captured {
    /// Adds an array of printed values, which replaces one of the same name.
    pub fn put(&mut self, name: &str, printed: Printed) {
        self.printed.insert(name.to_owned(), printed);
    }

    /// How far each value of an array may lie from what was computed: infinite where nothing was printed. `None` if all values are
    /// exact.
    ///
    /// # Errors
    /// When the machine has too little memory for the whole array.
    pub fn slack(&self, name: &str) -> Result<Option<Array>> {
        let Some(printed) = self.printed.get(name) else {
            return Ok(None);
        };
        let rounding = |value: f32| printed.rounding + value.abs() * f32::EPSILON;
        self.dense(name, printed, f32::INFINITY, rounding).map(Some)
    }

    /// Makes the whole array, with `gap` where nothing was printed.
    pub(super) fn dense(
        &self,
        name: &str,
        printed: &Printed,
        gap: f32,
        of: impl Fn(f32) -> f32,
    ) -> Result<Array> {
        let shape = printed.shape.clone();
        let n = shape
            .iter()
            .try_fold(1usize, |n, axis| n.checked_mul(*axis));
        let n = n.filter(|n| *n as u64 <= MOST_ELEMENTS).ok_or_else(|| {
            let problem = format!("shape {shape:?} has more than {MOST_ELEMENTS} elements");
            self.at(name, &problem)
        })?;
        if let Some(problem) = too_much(n.saturating_mul(2 * size_of::<f32>())) {
            return Err(self.at(name, &format!("shape {shape:?} {problem}")));
        }
        let mut values = vec![gap; n];
        for (at, value) in &printed.values {
            if let Some(place) = values.get_mut(*at) {
                *place = of(*value);
            }
        }
        Ok(Array { shape, values })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_was_not_printed_has_no_bounds() {
        let mut captured = Captured::empty(Path::new("dump"));
        let printed = Printed {
            shape: vec![2, 2],
            values: vec![(0, 1.5), (3, -2.0)],
            rounding: 0.05,
        };
        captured.put("a", printed.clone());
        let array = captured.array("a").expect("reads");
        assert_eq!(
            (array.shape, array.values),
            (vec![2, 2], vec![1.5, 0.0, 0.0, -2.0])
        );
        let slack = captured.slack("a").expect("reads").expect("slack").values;
        assert!(
            slack[1].is_infinite() && (slack[3] - 0.05).abs() < 1e-5,
            "{slack:?}"
        );
        let shape = vec![usize::MAX, 2];
        captured.put("huge", Printed { shape, ..printed });
        let said = captured.array("huge").expect_err("refused").to_string();
        assert!(said.contains("elements"), "{said}");
    }
}
