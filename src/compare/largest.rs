//! Largest difference between two sides' values of one hook, and its place.

/// The largest of many differences.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Largest {
    /// |a − b|; infinite if only one is a number, or both are different infinities.
    pub difference: f64,
    /// The first element with this difference.
    pub element: usize,
    pub a: f32,
    pub b: f32,
    /// The largest finite |a|.
    pub magnitude: f64,
    /// Number of values compared.
    pub n_values: usize,
}

impl Default for Largest {
    fn default() -> Self {
        Self {
            difference: 0.0,
            element: 0,
            a: 0.0,
            b: 0.0,
            magnitude: 0.0,
            n_values: 0,
        }
    }
}

impl Largest {
    /// Compares values that start at element `first` of the whole. Parts may come in any order.
    pub fn add(&mut self, first: usize, of_a: &[f32], of_b: &[f32]) {
        for (nth, (a, b)) in of_a.iter().zip(of_b).enumerate() {
            let magnitude = f64::from(a.abs());
            self.join(&Self {
                difference: distance(*a, *b),
                element: first + nth,
                a: *a,
                b: *b,
                magnitude: if magnitude.is_finite() {
                    magnitude
                } else {
                    0.0
                },
                n_values: 1,
            });
        }
    }

    /// Adds another part of the whole.
    pub fn join(&mut self, other: &Self) {
        self.n_values += other.n_values;
        self.magnitude = self.magnitude.max(other.magnitude);
        let is_earlier = other.difference == self.difference && other.element < self.element;
        if other.difference > self.difference || (other.difference > 0.0 && is_earlier) {
            *self = Self {
                magnitude: self.magnitude,
                n_values: self.n_values,
                ..*other
            };
        }
    }

    /// Returns the difference as a share of the largest value; the difference itself if all values are 0.
    pub fn relative(&self) -> f64 {
        if self.magnitude > 0.0 {
            self.difference / self.magnitude
        } else {
            self.difference
        }
    }
}

/// Returns |a − b|; 0 between two NaNs and between equal infinities.
fn distance(a: f32, b: f32) -> f64 {
    if a == b || (a.is_nan() && b.is_nan()) {
        return 0.0;
    }
    let difference = (f64::from(a) - f64::from(b)).abs();
    if difference.is_nan() {
        f64::INFINITY
    } else {
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASKED: f32 = f32::NEG_INFINITY;

    fn of(reference: &[f32], other: &[f32]) -> Largest {
        let mut largest = Largest::default();
        largest.add(0, reference, other);
        largest
    }

    #[test]
    fn the_largest_difference_comes_with_its_place_and_both_values() {
        let found = of(&[1.0, -8.0, 3.0, 4.0], &[1.0, -8.5, 3.0, 4.25]);
        let expected = Largest {
            difference: 0.5,
            element: 1,
            a: -8.0,
            b: -8.5,
            magnitude: 8.0,
            n_values: 4,
        };
        assert_eq!(found, expected);
        assert_eq!(found.relative(), 0.0625);
    }

    #[test]
    fn cells_masked_on_both_sides_are_equal_and_on_one_side_are_not() {
        let same = of(&[MASKED, f32::NAN, 2.0], &[MASKED, f32::NAN, 2.0]);
        assert_eq!((same.difference, same.magnitude), (0.0, 2.0));
        for (reference, other) in [
            (MASKED, 1.0),
            (1.0, MASKED),
            (f32::NAN, 1.0),
            (1.0, f32::NAN),
            (MASKED, f32::INFINITY),
            (MASKED, f32::NAN),
        ] {
            let found = of(&[1.0, reference], &[1.0, other]);
            assert_eq!(
                (found.difference, found.element),
                (f64::INFINITY, 1),
                "{reference} and {other}"
            );
            assert_eq!(found.relative(), f64::INFINITY);
        }
    }

    #[test]
    fn parts_in_any_order_give_the_same_result_as_the_whole() {
        let reference = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let other = [1.0, 2.5, 3.0, 4.5, 5.0, 6.5];
        let mut parts = Largest::default();
        for first in [4, 2, 0] {
            let part = first..first + 2;
            parts.add(first, &reference[part.clone()], &other[part]);
        }
        assert_eq!(parts, of(&reference, &other));
        assert_eq!(parts.element, 1);
    }

    #[test]
    fn the_relative_difference_from_all_zeros_is_the_absolute_one() {
        assert_eq!(of(&[0.0, 0.0], &[0.0, 0.25]).relative(), 0.25);
        assert_eq!(of(&[0.0], &[-0.0]).relative(), 0.0);
    }
}
