//! A head's map in a few pixels, and the colours of its pixels.

/// The picture of one head. A pixel is the value farthest from 0 of the cells it covers; `None` where no key can be seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Thumbnail {
    pub width: usize,
    pub height: usize,
    /// Row by row. // [y, x]
    pub(crate) values: Vec<Option<f32>>,
}

impl Thumbnail {
    /// The value farthest from 0, of those that are finite.
    pub fn largest(&self) -> f32 {
        let finite = self.values.iter().flatten().filter(|v| v.is_finite());
        finite.fold(0.0, |most, value| most.max(value.abs()))
    }

    /// The value of a pixel; `None` outside, or where no key can be seen.
    pub fn at(&self, x: usize, y: usize) -> Option<f32> {
        let is_inside = x < self.width && y < self.height;
        is_inside.then(|| self.values[y * self.width + x]).flatten()
    }

    /// Shares of the colour scale: each value relative to the largest of its row of pixels, as a square root. At any length of the
    /// text this tells a stripe, a column and an even row apart.
    pub fn by_row(&self) -> impl Fn(usize, usize) -> Option<f32> {
        let rows = self.values.chunks(self.width.max(1));
        let largest: Vec<f32> = rows
            .map(|row| {
                let finite = row.iter().flatten().filter(|v| v.is_finite());
                finite.fold(0.0, |most: f32, value| most.max(*value))
            })
            .collect();
        move |x, y| {
            let value = self.at(x, y)?;
            let most = largest[y];
            Some(if value.is_nan() {
                f32::NAN
            } else if most > 0.0 {
                (value.max(0.0) / most).sqrt().min(1.0)
            } else {
                0.0
            })
        }
    }

    /// Shares of the colour scale of differences: a half for none, as a square root of each value relative to `most`.
    pub fn by_change(&self, most: f32) -> impl Fn(usize, usize) -> Option<f32> {
        move |x, y| {
            let value = self.at(x, y)?;
            Some(if value.is_nan() {
                f32::NAN
            } else if most > 0.0 {
                let share = (value.abs() / most).min(1.0).sqrt();
                0.5 + 0.5 * share.copysign(value)
            } else {
                0.5
            })
        }
    }
}
