//! One line of a log, parsed directly into a row of numbers.

use std::fmt;

use attnscope_checks::stats::STATISTICS;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::facts::BatchFacts;
use super::header::Header;
use crate::record::UNKNOWN;

/// Content of a line.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    Record(Logged),
    /// The training was restarted: the following records replace earlier ones of the same steps. The header is present if the
    /// segment records something else than before.
    Segment(Option<Box<Header>>),
}

/// One recorded step.
#[derive(Debug, Clone, PartialEq)]
pub struct Logged {
    pub step: u64,
    pub time: Option<f64>,
    pub loss: Option<f64>,
    /// What the line says of the batch.
    pub batch: Option<Box<BatchFacts>>,
    /// [statistic of the header][cell of its grid]; [`UNKNOWN`] for whole layers, but for statistics of layers alone, and for values
    /// missing from the line.
    pub values: Box<[f32]>,
}

/// Parses a line.
///
/// # Errors
/// When it is not JSON, or does not have the shape of the header: what was expected, and what was found.
pub(super) fn read(line: &[u8], header: &Header) -> Result<Item, String> {
    let mut from = serde_json::Deserializer::from_slice(line);
    let item = Line(header).deserialize(&mut from).map_err(|e| plain(&e))?;
    from.end().map_err(|e| plain(&e))?;
    Ok(item)
}

/// Returns the message without its line number, which is always 1.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    match error.classify() {
        serde_json::error::Category::Data => text[..end].to_owned(),
        _ => format!("no JSON ({}, column {})", &text[..end], error.column()),
    }
}

struct Line<'a>(&'a Header);

impl<'de> DeserializeSeed<'de> for Line<'_> {
    type Value = Item;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Item, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Line<'_> {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record: {\"step\":…, \"values\":…}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Item, A::Error> {
        let (mut step, mut time, mut loss, mut values) = (None, None, None, None);
        let mut batch = None;
        let mut is_segment = false;
        while let Some(key) = map.next_key::<Key>()? {
            match key {
                Key::Step => step = Some(map.next_value::<u64>()?),
                Key::Time => time = map.next_value_seed(Figure)?,
                Key::Loss => loss = map.next_value_seed(Figure)?,
                Key::Batch => batch = map.next_value::<Option<Box<BatchFacts>>>()?,
                Key::Values => values = Some(map.next_value_seed(Values(self.0))?),
                Key::Segment | Key::Attnscope => {
                    map.next_value::<IgnoredAny>()?;
                    is_segment = true;
                }
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match (step, values) {
            (Some(step), Some(values)) => Ok(Item::Record(Logged {
                step,
                time,
                loss,
                batch,
                values,
            })),
            _ if is_segment => Ok(Item::Segment(None)),
            (None, _) => Err(A::Error::custom("expected a step, found none")),
            (_, None) => Err(A::Error::custom("expected values, found none")),
        }
    }
}

enum Key {
    Step,
    Time,
    Loss,
    Batch,
    Values,
    Segment,
    /// A second header, as a restarted monitor writes it.
    Attnscope,
    Other,
}

impl<'de> serde::Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Key, E> {
                Ok(match name {
                    "step" => Key::Step,
                    "time" => Key::Time,
                    "loss" => Key::Loss,
                    "batch" => Key::Batch,
                    "values" => Key::Values,
                    "segment" => Key::Segment,
                    "attnscope" => Key::Attnscope,
                    _ => Key::Other,
                })
            }
        }
        from.deserialize_identifier(Name)
    }
}

/// Parser of a number, a word for one that is not finite, or null.
pub(super) struct Figure;

impl<'de> DeserializeSeed<'de> for Figure {
    type Value = Option<f64>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<f64>, D::Error> {
        from.deserialize_any(self)
    }
}

impl Visitor<'_> for Figure {
    type Value = Option<f64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, \"NaN\", \"Infinity\", \"-Infinity\" or null")
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Option<f64>, E> {
        Ok(Some(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Option<f64>, E> {
        Ok(Some(value as f64))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Option<f64>, E> {
        Ok(Some(value as f64))
    }

    fn visit_unit<E: Error>(self) -> Result<Option<f64>, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Option<f64>, E> {
        match word {
            "NaN" => Ok(Some(f64::NAN)),
            "Infinity" => Ok(Some(f64::INFINITY)),
            "-Infinity" => Ok(Some(f64::NEG_INFINITY)),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
        }
    }
}

/// Parser of the values of all statistics.
struct Values<'a>(&'a Header);

impl<'de> DeserializeSeed<'de> for Values<'_> {
    type Value = Box<[f32]>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Box<[f32]>, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Values<'_> {
    type Value = Box<[f32]>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("values by statistic: {id: [[one per head] per layer]}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Box<[f32]>, A::Error> {
        let header = self.0;
        let n_cells = header.grid.n_cells();
        let mut values = vec![UNKNOWN; header.statistics.len() * n_cells].into_boxed_slice();
        while let Some(id) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            let of = |idx: &usize| STATISTICS[*idx].id == id;
            match header.statistics.iter().position(of) {
                Some(nth) => map.next_value_seed(Layers {
                    header,
                    id: &id,
                    is_per_head: STATISTICS[header.statistics[nth]].is_per_head(),
                    cells: &mut values[nth * n_cells..][..n_cells],
                })?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(values)
    }
}

/// Parser of the values of one statistic.
struct Layers<'a> {
    header: &'a Header,
    id: &'a str,
    /// Whether each layer has a value for each of its heads, or one for the whole of it.
    is_per_head: bool,
    cells: &'a mut [f32],
}

impl<'de> DeserializeSeed<'de> for Layers<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Layers<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: a list of layers", self.id)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let layers = self.header.grid.layers();
        let mut first = if self.is_per_head {
            0
        } else {
            self.header.grid.n_heads()
        };
        for (nth, layer) in layers.iter().enumerate() {
            let n = if self.is_per_head { layer.n_heads } else { 1 };
            let cells = &mut self.cells[first..first + n];
            let heads = Heads {
                id: self.id,
                layer: layer.place(),
                cells,
            };
            if seq.next_element_seed(heads)?.is_none() {
                return Err(A::Error::custom(format!(
                    "{}: expected {} layers, found {nth}",
                    self.id,
                    layers.len()
                )));
            }
            first += n;
        }
        let mut n_beyond = 0;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            n_beyond += 1;
        }
        match n_beyond {
            0 => Ok(()),
            n => Err(A::Error::custom(format!(
                "{}: expected {} layers, found {}",
                self.id,
                layers.len(),
                layers.len() + n
            ))),
        }
    }
}

/// Parser of the values of a layer's heads.
struct Heads<'a> {
    id: &'a str,
    layer: attnscope_spec::Place,
    cells: &'a mut [f32],
}

impl<'de> DeserializeSeed<'de> for Heads<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Heads<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}: a list of heads", self.id, self.layer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let n_expected = self.cells.len();
        let mut n = 0;
        while let Some(value) = seq.next_element_seed(Figure)? {
            if let Some(cell) = self.cells.get_mut(n) {
                *cell = value.map_or(UNKNOWN, |value| value as f32);
            }
            n += 1;
        }
        if n == n_expected {
            Ok(())
        } else {
            Err(A::Error::custom(format!(
                "{} of {}: expected {n_expected} heads, found {n}",
                self.id, self.layer
            )))
        }
    }
}
