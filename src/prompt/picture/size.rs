//! The size that a picture is resized to.

/// The target size of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// These rows and columns, whatever the original size.
    Exactly([usize; 2]),
    /// This length for the shorter side, the other in proportion.
    Shortest(usize),
    /// Both sides rounded to multiples of a number, and scaled together until the pixels lie between two limits.
    Multiple {
        of: usize,
        least: usize,
        most: usize,
    },
    /// This length for the longer side, the other in proportion.
    Longest(usize),
    /// Scaled to at most so many pixels, both sides cut to multiples of a number.
    Area { most: usize, of: usize },
    /// This length for the shorter side, or less where the longer one would be beyond a limit; both are cut to multiples of a number.
    Between {
        shortest: usize,
        longest: usize,
        of: usize,
    },
    /// Both sides multiples of a number, as near to the sides' ratio as its neighbours allow, and at most so many of its squares.
    Squares { of: usize, most: usize },
    /// Both sides cut to multiples of a number.
    Cut { of: usize },
    /// Kept as it is, and filled up below and to the right to multiples of a number, with bytes of −1.
    Filled { of: usize },
    /// Kept as it is, and continued below and to the right to the next multiple of a number beyond each side, by its mirror image.
    Mirrored { of: usize },
    /// Scaled down until no side is longer than `longest`, and up to multiples of a number.
    Within { of: usize, longest: usize },
    /// Scaled as little as one of these rows and columns asks for, and each side rounded to a multiple of thirty-seconds of a pixel, then
    /// down.
    InRatio { to: [usize; 2], of: usize },
    /// The shorter side is brought to that of a sheet of these rows and columns, then both are made smaller until the sheet holds them,
    /// in its middle and black around.
    Sheet([usize; 2]),
}

impl Size {
    /// Multiples of a number, within the limits of Qwen2-VL's processor.
    pub fn multiple_of(of: usize) -> Self {
        Self::Multiple {
            of,
            least: 56 * 56,
            most: 28 * 28 * 1280,
        }
    }

    /// A side rounded to a multiple of thirty-seconds of a pixel, then down.
    pub fn rounded(side: f64, of: usize) -> usize {
        let of = of.max(1) as f64 / 32.0;
        ((side / of).round_ties_even() * of) as usize
    }

    /// Rows and columns of a picture after resizing.
    pub(super) fn of(self, [height, width]: [usize; 2]) -> [usize; 2] {
        match self {
            Self::Exactly(size) => size,
            Self::Shortest(shortest) => in_proportion(shortest, height, width),
            Self::Sheet([rows, columns]) => in_proportion(rows.min(columns), height, width),
            Self::Longest(longest) => {
                let by = longest as f64 / height.max(width).max(1) as f64;
                [height, width].map(|side| ((side as f64 * by + 0.5) as usize).max(1))
            }
            Self::Area { most, of } => {
                let of = of.max(1);
                let by = (most as f64 / (height.max(1) as f64 * width.max(1) as f64)).sqrt();
                let most = (most / (of * of)).max(1);
                [height, width].map(|side| {
                    let n = (by * side as f64 / of as f64).floor() as usize;
                    n.clamp(1, most) * of
                })
            }
            Self::Between {
                shortest,
                longest,
                of,
            } => {
                let (short, long) = (height.min(width).max(1), height.max(width));
                let mut sides = (shortest, shortest as f64 * long as f64 / short as f64);
                if sides.1 > longest as f64 {
                    let less = longest as f64 * short as f64 / long as f64;
                    let other = less * long as f64 / short as f64;
                    sides = (less.round_ties_even() as usize, other);
                }
                if short == sides.0 {
                    sides.1 = long as f64;
                }
                let [one, other] = [sides.0, sides.1 as usize].map(|n| (n / of.max(1)).max(1) * of);
                if height <= width {
                    [one, other]
                } else {
                    [other, one]
                }
            }
            Self::Cut { of } => [height, width].map(|side| side / of.max(1) * of.max(1)),
            Self::Filled { of } => {
                [height, width].map(|side| side.div_ceil(of.max(1)).max(1) * of.max(1))
            }
            Self::Mirrored { of } => [height, width].map(|side| (side / of.max(1) + 1) * of.max(1)),
            Self::Squares { of, most } => in_squares([height, width], of.max(1), most.max(1)),
            Self::Within { of, longest } => {
                let by = height.max(width) as f64 / longest.max(1) as f64;
                let fitted = |side: usize| {
                    if by > 1.0 {
                        (side as f64 / by).floor() as usize
                    } else {
                        side
                    }
                };
                [height, width].map(|side| fitted(side).div_ceil(of.max(1)).max(1) * of)
            }
            Self::InRatio { to, of } => {
                let sides = [height, width].map(|side| side.max(1) as f64);
                let by = [0, 1].map(|axis| to[axis] as f64 / sides[axis]);
                let off = by.map(|by| (1.0 - by).abs());
                let by = if off[1] < off[0] { by[1] } else { by[0] };
                sides.map(|side| Self::rounded(by * side, of))
            }
            Self::Multiple { of, least, most } => {
                let of = of.max(1);
                let sides = [height, width].map(|side| side as f64);
                let nearest = sides.map(|side| (side / of as f64).round_ties_even() as usize * of);
                let n_pixels = nearest[0].saturating_mul(nearest[1]);
                if n_pixels > most {
                    let by = (sides[0] * sides[1] / most.max(1) as f64).sqrt();
                    sides.map(|side| ((side / by / of as f64).floor() as usize * of).max(of))
                } else if n_pixels < least {
                    let by = (least as f64 / (sides[0] * sides[1])).sqrt();
                    sides.map(|side| (side * by / of as f64).ceil() as usize * of)
                } else {
                    nearest.map(|side| side.max(of))
                }
            }
        }
    }
}

/// Sides in multiples of a number: of those just below and above, scaled down to at most so many squares, the nearest ratio.
fn in_squares([height, width]: [usize; 2], of: usize, most: usize) -> [usize; 2] {
    let ratio = height as f64 / width.max(1) as f64;
    let mut sides = [height, width].map(|side| side as f64 / of as f64);
    if sides[0] * sides[1] > most as f64 {
        let rows = (most as f64 * ratio).sqrt();
        sides = [rows, rows / ratio];
    }
    let near = sides.map(|side| [side.floor(), side.ceil()]);
    let all = near[0]
        .into_iter()
        .flat_map(|rows| near[1].map(|columns| [rows, columns]));
    let fits =
        |sides: &[f64; 2]| sides.iter().all(|n| *n >= 1.0) && sides[0] * sides[1] <= most as f64;
    let off = |sides: &[f64; 2]| (sides[0] / sides[1] - ratio).abs();
    let best = all.filter(fits).min_by(|a, b| off(a).total_cmp(&off(b)));
    let best = best.unwrap_or_else(|| sides.map(|side| side.round_ties_even().max(1.0)));
    best.map(|n| n as usize * of)
}

/// The size of a picture with the given shorter side, rounded like Python's integer division.
fn in_proportion(shortest: usize, height: usize, width: usize) -> [usize; 2] {
    let (short, long) = (height.min(width), height.max(width));
    let other = shortest.saturating_mul(long) / short.max(1);
    if height <= width {
        [shortest, other]
    } else {
        [other, shortest]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_become_multiples_within_limits_of_pixels() {
        let size = |least, most| Size::Multiple {
            of: 28,
            least,
            most,
        };
        let all = [[100, 200], [42, 70], [10, 9]].map(|from| size(0, 1 << 20).of(from));
        // A half is rounded to even, as in Python.
        assert_eq!(all, [[112, 196], [56, 56], [28, 28]]);
        let within = Size::Within {
            of: 16,
            longest: 100,
        };
        assert_eq!(within.of([300, 150]), [112, 64]);
        assert_eq!(within.of([40, 17]), [48, 32]);
        assert_eq!(size(0, 10_000).of([100, 200]), [56, 140]);
        assert_eq!(size(50_000, 1 << 20).of([100, 200]), [168, 336]);
        // As the processors of YOLOS and Gemma 4 give them.
        let between = Size::Between {
            shortest: 800,
            longest: 1333,
            of: 16,
        };
        assert_eq!(between.of([480, 640]), [800, 1056]);
        assert_eq!(between.of([900, 300]), [1328, 432]);
        let area = Size::Area {
            most: 280 * 48 * 48,
            of: 48,
        };
        assert_eq!(area.of([480, 640]), [672, 912]);
        assert_eq!(Size::Shortest(10).of([30, 20]), [15, 10]);
        // As the processors of DPT (Depth Anything) and ZoeDepth give them.
        let in_ratio = |to, of, sides| Size::InRatio { to, of }.of(sides);
        assert_eq!(in_ratio([518; 2], 14 * 32, [480, 640]), [518, 686]);
        assert_eq!(in_ratio([384, 512], 1, [526, 693]), [388, 512]);
        assert_eq!(in_ratio([384, 512], 1, [700, 300]), [384, 164]);
        assert_eq!(Size::Shortest(10).of([20, 33]), [10, 16]);
        // As Muse Glimmer's gives them.
        let squares = |most, sides| Size::Squares { of: 28, most }.of(sides);
        assert_eq!(squares(4096, [480, 640]), [476, 644]);
        assert_eq!(squares(100, [900, 300]), [476, 140]);
        assert_eq!(squares(40, [3000, 200]), [672, 28]);
        assert_eq!(squares(4096, [10, 9]), [28, 28]);
    }
}
