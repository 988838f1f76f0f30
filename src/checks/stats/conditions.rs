//! Conditions on heads, as people write them: `L1 entropy<0.1 type=induction`.

use std::str::FromStr;

use attnscope_checkpoint::nearest::did_you_mean;
use attnscope_spec::{Grid, Place, Places, Stack};

use super::{HeadType, Stat, Values};
use crate::named::statistic_named;

/// The word for the type of a head, and the value for heads without one.
const TYPE: &str = "type";
const NO_TYPE: &str = "none";

/// Conditions that a head meets if it is at one of the places, if there are any, and if every comparison holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    places: Vec<Place>,
    comparisons: Vec<Comparison>,
}

/// One comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Comparison {
    Value(Stat, Relation, f64),
    Type {
        kind: Option<HeadType>,
        is_wanted: bool,
    },
}

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Relation {
    Less,
    AtMost,
    Greater,
    AtLeast,
    Equal,
    Unequal,
}

impl Relation {
    /// Signs, longer ones before those that they begin with.
    const SIGNS: [(&str, Self); 9] = [
        ("<=", Self::AtMost),
        (">=", Self::AtLeast),
        ("!=", Self::Unequal),
        ("==", Self::Equal),
        ("≤", Self::AtMost),
        ("≥", Self::AtLeast),
        ("<", Self::Less),
        (">", Self::Greater),
        ("=", Self::Equal),
    ];

    fn holds(self, value: f64, than: f64) -> bool {
        match self {
            Self::Less => value < than,
            Self::AtMost => value <= than,
            Self::Greater => value > than,
            Self::AtLeast => value >= than,
            Self::Equal => value == than,
            Self::Unequal => value != than,
        }
    }
}

/// Splits a word at its first sign.
fn at_sign(word: &str) -> Option<(&str, Relation, &str)> {
    let places = word.char_indices().map(|(at, _)| at);
    places.into_iter().find_map(|at| {
        let (name, rest) = word.split_at(at);
        let mut signs = Relation::SIGNS.iter();
        signs.find_map(|(sign, relation)| Some((name, *relation, rest.strip_prefix(sign)?)))
    })
}

/// Splits a text into words, and keeps what stands around a sign together: `entropy < 0.1` is one word.
fn words(text: &str) -> Vec<String> {
    let is_sign = |c: char| "<>=!≤≥".contains(c);
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let goes_on = word.starts_with(is_sign);
        match words.last_mut() {
            Some(last) if goes_on || last.ends_with(is_sign) => last.push_str(word),
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// Reads a word as a place, in either case; `None` if it is not meant as one.
fn places(word: &str) -> Option<Result<Vec<Place>, String>> {
    let mut letters = word.chars();
    let begins = |c: char| c.eq_ignore_ascii_case(&'l');
    let is_layer =
        letters.next().is_some_and(begins) && letters.next().is_some_and(|c| c.is_ascii_digit());
    let word = if is_layer {
        word.to_ascii_uppercase()
    } else {
        word.to_owned()
    };
    match word.parse() {
        Ok(Places(places)) => Some(Ok(places)),
        Err(e) => is_layer.then_some(Err(e)),
    }
}

fn head_type(name: &str) -> Result<Option<HeadType>, String> {
    let name = name.to_lowercase().replace(['-', '_'], " ");
    if name == NO_TYPE {
        return Ok(None);
    }
    let short = |kind: &HeadType| kind.title().split(' ').next() == Some(name.as_str());
    let mut all = HeadType::ALL.into_iter();
    let found = all.find(|kind| kind.title() == name || short(kind));
    found.map(Some).ok_or_else(|| {
        let known = HeadType::ALL.map(|kind| kind.title().replace(' ', "-"));
        let meant = did_you_mean(&name, known.iter().map(String::as_str));
        let known = known.join(", ");
        format!("there is no type {name:?}{meant}: expected one of {known}, {NO_TYPE}")
    })
}

/// Reads a number; a percentage is a share.
fn number(text: &str) -> Option<f64> {
    let (digits, factor) = match text.strip_suffix('%') {
        Some(digits) => (digits, 0.01),
        None => (text, 1.0),
    };
    let value: f64 = digits.parse().ok()?;
    value.is_finite().then_some(value * factor)
}

fn comparison(name: &str, relation: Relation, value: &str) -> Result<Comparison, String> {
    if name.eq_ignore_ascii_case(TYPE) {
        let is_wanted = match relation {
            Relation::Equal => true,
            Relation::Unequal => false,
            _ => return Err(format!("{TYPE} takes = or !=, such as {TYPE}=induction")),
        };
        return Ok(Comparison::Type {
            kind: head_type(value)?,
            is_wanted,
        });
    }
    let stat = statistic_named(name).map_err(|reason| format!("{name}: {reason}"))?;
    if !stat.statistic().is_per_head() {
        return Err(format!(
            "{name} is a statistic of layers: expected one of heads"
        ));
    }
    let than =
        number(value).ok_or_else(|| format!("{name}: expected a number, found {value:?}"))?;
    Ok(Comparison::Value(stat, relation, than))
}

impl FromStr for Conditions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut read = Self {
            places: Vec::new(),
            comparisons: Vec::new(),
        };
        // The words of a name before its comparison.
        let mut name: Vec<String> = Vec::new();
        for word in words(text) {
            if let Some((last, relation, value)) = at_sign(&word) {
                name.push(last.to_owned());
                let whole = name.join(" ");
                read.comparisons
                    .push(comparison(whole.trim(), relation, value)?);
                name.clear();
                continue;
            }
            match places(&word) {
                Some(found) if name.is_empty() => read.places.extend(found?),
                _ => name.push(word),
            }
        }
        if !name.is_empty() {
            let name = name.join(" ");
            return Err(format!(
                "expected a comparison after {name:?}, such as {name}<0.1"
            ));
        }
        if read.places.is_empty() && read.comparisons.is_empty() {
            return Err("expected conditions, such as L1 entropy<0.1 type=induction".to_owned());
        }
        Ok(read)
    }
}

impl Conditions {
    /// Checks that a model has the places.
    ///
    /// # Errors
    /// When it has not: [`Place::within`].
    pub fn within(&self, grids: &[Grid]) -> Result<(), String> {
        self.places.iter().try_for_each(|place| place.within(grids))
    }

    /// Whether a text is meant as conditions: it has a sign that compares.
    pub fn are_meant(text: &str) -> bool {
        text.contains(['<', '>', '=', '≤', '≥'])
    }

    /// The statistics that are compared.
    pub fn statistics(&self) -> impl Iterator<Item = Stat> {
        self.comparisons
            .iter()
            .filter_map(|comparison| match comparison {
                Comparison::Value(stat, ..) => Some(*stat),
                Comparison::Type { .. } => None,
            })
    }

    /// Whether a head meets the conditions. A comparison with a value that is absent or not a number does not hold.
    pub fn hold(
        &self,
        (stack, layer_idx, head_idx): (Stack, usize, usize),
        stats: &Values,
        kind: Option<HeadType>,
    ) -> bool {
        let is_at = |place: &Place| place.holds_head(stack, layer_idx, head_idx);
        let is_here = self.places.is_empty() || self.places.iter().any(is_at);
        is_here
            && self.comparisons.iter().all(|comparison| match *comparison {
                Comparison::Value(stat, relation, than) => {
                    let value = stats.of(stat);
                    !value.is_nan() && relation.holds(value, than)
                }
                Comparison::Type {
                    kind: wanted,
                    is_wanted,
                } => (kind == wanted) == is_wanted,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(text: &str) -> Vec<usize> {
        let conditions: Conditions = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        let heads = [
            (0.05, None),
            (0.5, Some(HeadType::Induction)),
            (0.02, Some(HeadType::Induction)),
            (f64::NAN, Some(HeadType::Previous)),
        ];
        let meets = |(head_idx, (entropy, kind)): (usize, &(f64, Option<HeadType>))| {
            let of = |id: &str| match id {
                "entropy_relative" => Some(*entropy),
                "induction_mass" => Some(1.0 - entropy),
                _ => None,
            };
            let place = (Stack::Only, head_idx / 2, head_idx % 2);
            conditions
                .hold(place, &Values::by_id(of), *kind)
                .then_some(head_idx)
        };
        heads.iter().enumerate().filter_map(meets).collect()
    }

    #[test]
    fn places_are_alternatives_and_comparisons_all_hold() {
        assert_eq!(met("entropy_relative<0.1"), [0, 2]);
        assert_eq!(met("relative entropy < 10%"), [0, 2]);
        assert_eq!(met("type=induction relative entropy >= 0.5"), [1]);
        assert_eq!(met("L1"), [2, 3]);
        assert_eq!(met("l0h0 L1H0-1 type!=previous"), [0, 2]);
        assert_eq!(met("type=previous-token"), [3]);
        assert_eq!(met("type=none"), [0]);
        assert_eq!(met("after same token>0.97"), [2]);
        // A value that is absent is neither above nor below.
        assert_eq!(met("entropy<1"), [0usize; 0]);
        assert_eq!(met("entropy!=1"), [0usize; 0]);
    }

    #[test]
    fn what_cannot_be_read_is_named_with_what_was_expected() {
        for (text, words) in [
            ("entropyy<0.1", "did you mean entropy?"),
            ("entropy<much", "expected a number, found \"much\""),
            ("entropy<", "expected a number"),
            ("entropy", "expected a comparison after \"entropy\""),
            ("type=inductoin", "did you mean induction?"),
            ("type<induction", "takes = or !="),
            ("resid_norm>1", "a statistic of layers"),
            ("L", "expected a comparison after"),
            ("L1Hx", "expected a place"),
            ("  ", "expected conditions"),
        ] {
            let said = text.parse::<Conditions>().expect_err(text);
            assert!(said.contains(words), "{text}: {said}");
        }
        let grids = [Grid {
            stack: Stack::Only,
            n_heads: vec![4, 4],
        }];
        let conditions: Conditions = "L9 entropy<1".parse().expect("reads");
        let said = conditions.within(&grids).expect_err("no such layer");
        assert!(said.contains("the model has layers 0–1"), "{said}");
    }
}
