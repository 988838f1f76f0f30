//! A place in a model and a text: `L3`, `L3H7`, `encoder.L3H7`, `cross.L3H7`, followed by query and key if they are known.

use std::fmt;
use std::str::FromStr;

/// Which residual stream a layer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stack {
    /// The only stack of a decoder-only or encoder-only model.
    Only,
    Encoder,
    Decoder,
    /// The decoder's attention to the encoder's output.
    Cross,
}

impl Stack {
    /// Name in reports.
    pub fn label(self) -> Option<&'static str> {
        match self {
            Self::Only => None,
            Self::Encoder => Some("encoder"),
            Self::Decoder => Some("decoder"),
            Self::Cross => Some("cross"),
        }
    }

    /// Prefix of its hook names.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Only => "",
            Self::Encoder => "encoder.",
            Self::Decoder | Self::Cross => "decoder.",
        }
    }
}

/// A location. In a requested place, a field that is `None` matches everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The grid of heads. A model with a single grid uses [`Stack::Only`].
    pub stack: Option<Stack>,
    pub layer_idx: Option<usize>,
    pub head_idx: Option<usize>,
    pub query_idx: Option<usize>,
    pub key_idx: Option<usize>,
}

impl Place {
    /// The whole model.
    pub const MODEL: Self = Self {
        stack: None,
        layer_idx: None,
        head_idx: None,
        query_idx: None,
        key_idx: None,
    };

    pub fn layer(stack: Stack, layer_idx: usize) -> Self {
        Self {
            stack: Some(stack),
            layer_idx: Some(layer_idx),
            ..Self::MODEL
        }
    }

    pub fn head(self, head_idx: usize) -> Self {
        Self {
            head_idx: Some(head_idx),
            ..self
        }
    }

    pub fn query(self, query_idx: usize) -> Self {
        Self {
            query_idx: Some(query_idx),
            ..self
        }
    }

    pub fn key(self, key_idx: usize) -> Self {
        Self {
            key_idx: Some(key_idx),
            ..self
        }
    }

    /// The grid of a place where something was found; [`Stack::Only`] if none is named.
    pub fn grid(self) -> Stack {
        self.stack.unwrap_or(Stack::Only)
    }

    /// Whether two places refer to the same head, whatever their query and key.
    pub fn is_same_head(&self, other: &Self) -> bool {
        let head = |place: &Self| (place.grid(), place.layer_idx, place.head_idx);
        head(self) == head(other)
    }

    /// Whether the place includes a layer of a grid.
    pub fn holds(self, grid: Stack, layer_idx: usize) -> bool {
        let is_layer = self.layer_idx.is_none_or(|wanted| wanted == layer_idx);
        is_layer && self.stack.is_none_or(|wanted| wanted == grid)
    }

    /// Whether the place includes a head of a layer of a grid.
    pub fn holds_head(self, grid: Stack, layer_idx: usize, head_idx: usize) -> bool {
        self.holds(grid, layer_idx) && self.head_idx.is_none_or(|wanted| wanted == head_idx)
    }

    /// Checks that the place exists in some grids.
    ///
    /// # Errors
    /// If it does not exist: `there is no L9H9: the model has layers 0–1, heads 0–3`.
    pub fn within(self, grids: &[Grid]) -> Result<(), String> {
        let missing = |has: String| Err(format!("there is no {self}: {has}"));
        let is_meant = |grid: &&Grid| self.stack.is_none_or(|wanted| wanted == grid.stack);
        let meant: Vec<&Grid> = grids.iter().filter(is_meant).collect();
        if meant.is_empty() {
            let known: Vec<&str> = grids.iter().filter_map(|grid| grid.stack.label()).collect();
            return missing(if known.is_empty() {
                "the model has one stack, and its places are L0, L0H1, …".to_owned()
            } else {
                format!("the model has the stacks {}", known.join(", "))
            });
        }
        let Some(layer_idx) = self.layer_idx else {
            return Ok(());
        };
        let n_heads = meant.iter().filter_map(|grid| grid.n_heads.get(layer_idx));
        let Some(n_heads) = n_heads.max() else {
            return missing(self.extent(&meant));
        };
        match self.head_idx {
            Some(head_idx) if head_idx >= *n_heads => {
                let layer = Self {
                    head_idx: None,
                    query_idx: None,
                    key_idx: None,
                    ..self
                };
                missing(format!("{layer} has {}", counted_from_0("head", *n_heads)))
            }
            _ => Ok(()),
        }
    }

    /// Describes the layers of some grids, and their heads if all layers have as many.
    fn extent(self, grids: &[&Grid]) -> String {
        let whose = match self.stack.and_then(Stack::label) {
            None => "the model".to_owned(),
            Some("cross") => "cross-attention".to_owned(),
            Some(label) => format!("the {label}"),
        };
        let n_layers = grids.iter().map(|grid| grid.n_heads.len()).max();
        let layers = counted_from_0("layer", n_layers.unwrap_or(0));
        let mut n_heads = grids.iter().flat_map(|grid| &grid.n_heads);
        let first = n_heads.next().copied().unwrap_or(0);
        let heads = if n_heads.all(|n| *n == first) {
            format!(", {}", counted_from_0("head", first))
        } else {
            String::new()
        };
        format!("{whose} has {layers}{heads}")
    }
}

/// The valid indices below a count, in words: `heads 0–3`.
fn counted_from_0(what: &str, n: usize) -> String {
    match n {
        0 => format!("no {what}s"),
        1 => format!("{what} 0"),
        n => format!("{what}s 0–{}", n - 1),
    }
}

/// A grid of layers and heads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    pub stack: Stack,
    /// Number of heads in each layer; 0 if a layer has no attention.
    pub n_heads: Vec<usize>,
}

impl fmt::Display for Place {
    /// Writes `encoder.L3H7 query 5 key 9`; nothing for the whole model.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |letter: &str, idx: Option<usize>| {
            idx.map_or(String::new(), |idx| format!("{letter}{idx}"))
        };
        let layer = number("L", self.layer_idx) + &number("H", self.head_idx);
        let stack = self.stack.and_then(Stack::label).map(str::to_owned);
        let parts = stack.into_iter().chain([layer]);
        let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
        let pair = number(" query ", self.query_idx) + &number(" key ", self.key_idx);
        f.write_str(format!("{}{pair}", parts.join(".")).trim_start())
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match read(text)?.as_slice() {
            [place] => Ok(*place),
            _ => Err(wrong(text)),
        }
    }
}

/// Requested places, separated by commas, each with optional ranges: `L0-2,encoder.L3H0-7`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places(pub Vec<Place>);

impl FromStr for Places {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let places = text.split(',').map(|part| read(part.trim()));
        let places: Vec<Vec<Place>> = places.collect::<Result<_, _>>()?;
        let places = places.concat();
        if places.len() > MOST_PLACES {
            return Err(wrong(text));
        }
        Ok(Self(places))
    }
}

/// More places than this are taken for a typing error.
const MOST_PLACES: usize = 100_000;

fn wrong(text: &str) -> String {
    format!("expected a place such as L3, L3H5, encoder.L3H5 or cross.L3, found {text:?}")
}

/// Parses one place, and expands its ranges.
fn read(text: &str) -> Result<Vec<Place>, String> {
    let wrong = || wrong(text);
    let mut words = text.split_whitespace();
    let (stack, rest) = stack_of(words.next().unwrap_or_default()).ok_or_else(wrong)?;
    let (layers, heads) = match rest {
        "" => (None, None),
        rest => {
            let numbers = rest.strip_prefix('L').ok_or_else(wrong)?;
            match numbers.split_once('H') {
                Some((layers, heads)) => (Some(layers), Some(heads)),
                None => (Some(numbers), None),
            }
        }
    };
    if layers.is_none() && stack.is_none() {
        return Err(wrong());
    }
    let indices = |given: Option<&str>| match given {
        None => Some(vec![None]),
        Some(given) => indices(given),
    };
    let layers = indices(layers).ok_or_else(wrong)?;
    let heads = indices(heads).ok_or_else(wrong)?;
    let mut pair = [None, None];
    for (name, idx) in ["query", "key"].into_iter().zip(&mut pair) {
        let mut rest = words.clone();
        if rest.next() == Some(name) {
            let found = rest.next().and_then(|number| number.parse().ok());
            *idx = Some(found.ok_or_else(wrong)?);
            words = rest;
        }
    }
    if words.next().is_some() || layers.len().saturating_mul(heads.len()) > MOST_PLACES {
        return Err(wrong());
    }
    let [query_idx, key_idx] = pair;
    let places = layers.iter().flat_map(|layer_idx| {
        heads.iter().map(move |head_idx| Place {
            stack,
            layer_idx: *layer_idx,
            head_idx: *head_idx,
            query_idx,
            key_idx,
        })
    });
    Ok(places.collect())
}

/// Splits the stack off the front of a place. The first release wrote `decoder.L3.cross` for `cross.L3`.
fn stack_of(text: &str) -> Option<(Option<Stack>, &str)> {
    let (first, rest) = match text.split_once('.') {
        Some((first, rest)) => (first, rest),
        None if text.starts_with('L') => return Some((None, text)),
        None => (text, ""),
    };
    if text.ends_with('.') {
        return None;
    }
    let named = [Stack::Encoder, Stack::Decoder, Stack::Cross];
    let named = named.into_iter().find(|stack| stack.label() == Some(first));
    let crossed = |rest| Some((Some(Stack::Cross), rest));
    match (named, rest.strip_suffix(".cross")) {
        (Some(Stack::Decoder), Some(rest)) => crossed(rest),
        (Some(Stack::Decoder), None) if rest == "cross" => crossed(""),
        (None, _) if rest == "cross" && first.starts_with('L') => crossed(first),
        (Some(stack), None) => Some((Some(stack), rest)),
        _ => None,
    }
}

/// Parses `3`, or `3-5` (inclusive).
fn indices(text: &str) -> Option<Vec<Option<usize>>> {
    let number = |text: &str| text.parse::<usize>().ok();
    let (first, last) = match text.split_once('-') {
        None => (number(text)?, number(text)?),
        Some((first, last)) => (number(first)?, number(last)?),
    };
    let is_short = last.checked_sub(first)? < MOST_PLACES;
    is_short.then(|| (first..=last).map(Some).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_parse_to_what_they_were_written_from() {
        for text in [
            "L3",
            "L3H5",
            "encoder.L3H5",
            "cross.L3",
            "cross.L0H2",
            "decoder.L12H0",
            "encoder",
            "cross",
            "L3H5 query 7",
            "L3 key 9",
            "encoder.L3H5 query 7 key 9",
        ] {
            let place: Place = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(place.to_string(), text);
        }
        for text in [
            "",
            "3",
            "L",
            "LH1",
            "L3H",
            "L-1",
            "H3",
            "encoder.",
            "encoder.L0.cross",
            "other.L0",
            "L3.",
            "L3H5x",
            "L3H5 7",
            "L3 query",
            "L3 key 9 query 7",
            "L3 L4",
            "L0-2",
            ".L3",
            "cross.L3.cross",
            "L3-",
            "l3",
        ] {
            let error = text.parse::<Place>().expect_err(text);
            assert!(error.contains("expected a place"), "{error}");
        }
    }

    #[test]
    fn cross_attention_parses_in_the_first_releases_notation() {
        for (old, now) in [
            ("decoder.L3.cross", "cross.L3"),
            ("decoder.L3H1.cross", "cross.L3H1"),
            ("L1.cross", "cross.L1"),
            ("decoder.cross", "cross"),
        ] {
            let place: Place = old.parse().unwrap_or_else(|e| panic!("{old}: {e}"));
            assert_eq!(place.to_string(), now);
        }
    }

    #[test]
    fn the_whole_model_is_written_as_an_empty_string() {
        assert_eq!(Place::MODEL.to_string(), "");
        assert_eq!(Place::MODEL.query(3).to_string(), "query 3");
        let only = Place::layer(Stack::Only, 3).head(7);
        assert_eq!(only.to_string(), "L3H7");
    }

    #[test]
    fn place_lists_accept_ranges() {
        let written = |text: &str| -> Vec<String> {
            let Places(places) = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            places.iter().map(Place::to_string).collect()
        };
        assert_eq!(written("L0-2,L3H7"), ["L0", "L1", "L2", "L3H7"]);
        assert_eq!(
            written("encoder.L1-2H0-1, cross"),
            [
                "encoder.L1H0",
                "encoder.L1H1",
                "encoder.L2H0",
                "encoder.L2H1",
                "cross"
            ]
        );
        for text in [
            "",
            "L0,,L1",
            "L2-1",
            "L0-99999999999",
            "L0-999H0-999",
            "L0,",
        ] {
            assert!(text.parse::<Places>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_error_about_a_missing_place_lists_the_existing_ones() {
        let one = [Grid {
            stack: Stack::Only,
            n_heads: vec![2, 4],
        }];
        let two = [Stack::Encoder, Stack::Cross].map(|stack| Grid {
            stack,
            n_heads: vec![2],
        });
        let said = |text: &str, grids: &[Grid]| {
            let place: Place = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            place.within(grids).err().unwrap_or_default()
        };
        assert_eq!(said("L1H3", &one), "");
        assert_eq!(
            said("L0H3 query 5", &one),
            "there is no L0H3 query 5: L0 has heads 0–1"
        );
        assert_eq!(said("L2", &one), "there is no L2: the model has layers 0–1");
        assert_eq!(
            said("encoder.L0", &one),
            "there is no encoder.L0: the model has one stack, and its places are L0, L0H1, …"
        );
        assert_eq!(said("L0H1", &two), "");
        assert_eq!(
            said("encoder.L9H9", &two),
            "there is no encoder.L9H9: the encoder has layer 0, heads 0–1"
        );
        assert_eq!(
            said("decoder.L0", &two),
            "there is no decoder.L0: the model has the stacks encoder, cross"
        );
    }
}
