//! A brief description of what is done to pictures, for the Model panel.

use attnscope_prompt::{PicturePreprocessing, Size};

/// Describes the steps briefly.
pub(super) fn steps(preprocessing: &PicturePreprocessing) -> String {
    let mut steps = Vec::new();
    if preprocessing.crops_margin {
        steps.push("without its margin".to_owned());
    }
    if preprocessing.is_framed {
        steps.push("framed by its mirror image".to_owned());
    }
    if preprocessing.resizes_values {
        steps.push("values resized from corner to corner".to_owned());
    }
    if let Some((size, filter)) = preprocessing.resize {
        steps.push(match size {
            Size::Exactly([rows, columns]) => format!("{columns} × {rows}, {}", filter.word()),
            Size::Shortest(side) => format!("shorter side {side}, {}", filter.word()),
            Size::Sheet([rows, columns]) => format!(
                "in the middle of a sheet of {columns} × {rows}, {}",
                filter.word()
            ),
            Size::Longest(side) => format!("longer side {side}, {}", filter.word()),
            Size::Area { most, of } => {
                format!("up to {most} pixels, multiples of {of}, {}", filter.word())
            }
            Size::Between {
                shortest,
                longest,
                of,
            } => format!(
                "shorter side {shortest}, longer side up to {longest}, multiples of {of}, {}",
                filter.word()
            ),
            Size::Cut { of } => format!("cut to multiples of {of}, {}", filter.word()),
            Size::Mirrored { of } => format!("continued by its mirror image to multiples of {of}"),
            Size::Filled { of } => format!("filled up to multiples of {of}"),
            Size::InRatio {
                to: [rows, columns],
                of,
            } => format!(
                "{columns} or {rows}, whichever changes less, in proportion, multiples of {}, {}",
                of as f64 / 32.0,
                filter.word()
            ),
            Size::Squares { of, most } => {
                format!("up to {most} squares of {of}, {}", filter.word())
            }
            Size::Within { of, longest } => format!(
                "multiples of {of}, sides up to {longest}, {}",
                filter.word()
            ),
            Size::Multiple { of, least, most } => format!(
                "multiples of {of}, {least} to {most} pixels, {}",
                filter.word()
            ),
        });
    }
    if let Some([rows, columns]) = preprocessing.crop {
        steps.push(format!("middle {columns} × {rows}"));
    }
    if let Some([rows, columns]) = preprocessing.fill {
        steps.push(format!("filled up to {columns} × {rows}"));
    }
    let of = |values: [f32; 3]| match values {
        [a, b, c] if a == b && b == c => a.to_string(),
        values => values.map(|value| value.to_string()).join(" "),
    };
    steps.push(format!(
        "less {}, over {}",
        of(preprocessing.mean),
        of(preprocessing.std)
    ));
    steps.join("; ")
}
