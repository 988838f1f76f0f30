//! Notes about a target, and the shorter form of those that say when findings began.

use attnscope_checkpoint::counted::counted;
use attnscope_checks::Place;

/// A note for the reader of a verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    pub text: String,
    /// What the note says as data, if it says when findings of a training began.
    pub onset: Option<Onset>,
}

/// When findings of a check began.
#[derive(Debug, Clone, PartialEq)]
pub struct Onset {
    pub check: &'static str,
    /// Where; empty for the whole model.
    pub places: Vec<Place>,
    /// Position of the step among the steps of the training.
    pub order: usize,
    /// Name of the step.
    pub step: String,
    /// Whether they have ended again.
    pub is_over: bool,
}

impl From<String> for Note {
    fn from(text: String) -> Self {
        Self { text, onset: None }
    }
}

/// Returns the texts of notes, with one line for all onsets of a check: a collapse begins head by head.
pub(super) fn shortened(notes: &[Note]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut told: Vec<(&str, bool)> = Vec::new();
    for note in notes {
        let Some(onset) = &note.onset else {
            lines.push(note.text.clone());
            continue;
        };
        let key = (onset.check, onset.is_over);
        if told.contains(&key) {
            continue;
        }
        told.push(key);
        let of = notes.iter().filter_map(|note| note.onset.as_ref());
        let of: Vec<&Onset> = of.filter(|of| (of.check, of.is_over) == key).collect();
        lines.push(match of.as_slice() {
            [_] => note.text.clone(),
            of => together(of),
        });
    }
    lines
}

/// Describes several onsets of a check in one line.
fn together(onsets: &[&Onset]) -> String {
    let first = onsets.iter().min_by_key(|onset| onset.order);
    let last = onsets.iter().max_by_key(|onset| onset.order);
    let (Some(first), Some(last)) = (first, last) else {
        return String::new();
    };
    let n: usize = onsets.iter().map(|onset| onset.places.len().max(1)).sum();
    let mut places = onsets.iter().flat_map(|onset| &onset.places);
    let is_of_heads = places.clone().any(|place| place.head_idx.is_some());
    let is_of_layers = places.all(|place| place.head_idx.is_none());
    let what = match (is_of_heads, is_of_layers) {
        (true, false) => counted(n, "head"),
        (false, true) if first.places.is_empty() => format!("{n} times"),
        (false, true) => counted(n, "layer"),
        _ => counted(n, "place"),
    };
    let at_first = first.places.first();
    let at_first = at_first.map_or(String::new(), |place| format!(" ({place})"));
    let when = if first.order == last.order {
        format!("at {}", first.step)
    } else {
        format!("from {}{at_first} to {}", first.step, last.step)
    };
    let over = if first.is_over {
        ", and ends again"
    } else {
        ""
    };
    format!("{} begins {when}, in {what}{over}", first.check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_spec::Stack;

    #[test]
    fn onsets_of_one_check_are_one_line_and_other_notes_stay() {
        let note = |check, heads: &[usize], step: usize| Note {
            text: format!("{check} begins at step {step}"),
            onset: Some(Onset {
                check,
                places: heads
                    .iter()
                    .map(|idx| Place::layer(Stack::Only, 1).head(*idx))
                    .collect(),
                order: step,
                step: format!("step {step}"),
                is_over: false,
            }),
        };
        let notes = [
            Note::from("81 records".to_owned()),
            note("entropy-collapse", &[3], 260),
            note("score-explosion", &[0], 255),
            note("entropy-collapse", &[0, 1], 255),
            note("entropy-collapse", &[2], 300),
        ];
        assert_eq!(
            shortened(&notes),
            [
                "81 records",
                "entropy-collapse begins from step 255 (L1H0) to step 300, in 4 heads",
                "score-explosion begins at step 255",
            ]
        );
    }
}
