//! Tokens matched in a text before anything else: the leftmost, and among those the longest.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, MatchKind};

/// A token matched verbatim in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub text: String,
    pub id: u32,
    /// Whether it includes blanks to its left and right.
    pub takes_left: bool,
    pub takes_right: bool,
}

/// All marks, searched in one pass.
#[derive(Debug)]
pub struct Marks {
    all: Vec<Mark>,
    finder: AhoCorasick,
    place_of_id: HashMap<u32, usize>,
}

impl Marks {
    /// # Errors
    /// One clause, when there are too many to search together.
    pub fn new(marks: impl IntoIterator<Item = Mark>) -> Result<Self, String> {
        let all: Vec<Mark> = marks
            .into_iter()
            .filter(|mark| !mark.text.is_empty())
            .collect();
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(all.iter().map(|mark| &mark.text))
            .map_err(|e| format!("its special tokens cannot be looked for ({e})"))?;
        // If two marks have the same id, the first is the label of the id.
        let places = all.iter().enumerate().rev();
        Ok(Self {
            place_of_id: places.map(|(place, mark)| (mark.id, place)).collect(),
            finder,
            all,
        })
    }

    /// The first mark in a text, and its byte offset.
    pub fn first(&self, text: &str) -> Option<(usize, &Mark)> {
        let found = self.finder.find(text)?;
        Some((found.start(), &self.all[found.pattern().as_usize()]))
    }

    pub fn of_id(&self, id: u32) -> Option<&Mark> {
        self.place_of_id.get(&id).map(|place| &self.all[*place])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(id: u32, text: &str) -> Mark {
        Mark {
            text: text.to_owned(),
            id,
            takes_left: false,
            takes_right: false,
        }
    }

    #[test]
    fn the_leftmost_mark_is_found_and_the_longest_of_several() {
        let marks = [
            mark(1, "<a>"),
            mark(2, "<a><b>"),
            mark(3, "<b>"),
            mark(9, ""),
        ];
        let marks = Marks::new(marks).expect("few");
        let first = |text| marks.first(text).map(|(at, mark)| (at, mark.id));
        assert_eq!(first("x <b> <a>"), Some((2, 3)));
        assert_eq!(first("x<a><b>"), Some((1, 2)));
        assert_eq!(first("x<a>y"), Some((1, 1)));
        assert_eq!(first("nothing"), None);
        assert_eq!(marks.of_id(3).map(|mark| mark.text.as_str()), Some("<b>"));
        assert_eq!(marks.of_id(9), None);
    }
}
