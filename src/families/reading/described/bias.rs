//! What a described model adds to its scores: the table `[tensors.bias]`, a stored tensor and the rule that finds the value of a
//! query and a key in it.

use std::borrow::Cow;

use attnscope_checkpoint::Tensors;
use attnscope_compute::attention::{Alibi, Bias, Buckets, EachDistance, GridDistances, Pairs};
use attnscope_spec::TableSource;
use serde_json::{Map, Value};

use super::parts::name_in_layer;
use super::{BIAS, Described};

const KEYS: [&str; 9] = [
    "weight",
    "by",
    "axes",
    "max_distance",
    "both_sides",
    "own",
    "counts",
    "grid",
    "first_token",
];

/// The values of `by`, each with the keys that it has besides `weight` and `axes`.
const RULES: [(&str, &[&str]); 5] = [
    ("slopes", &[]),
    ("buckets", &["max_distance", "both_sides"]),
    ("distances", &["own", "counts"]),
    ("grid", &["grid", "first_token"]),
    ("pairs", &[]),
];

/// The rule that finds the value of a query and a key.
#[derive(Debug, Clone, PartialEq)]
enum By {
    /// ALiBi: one slope for each head.
    Slopes,
    /// T5's buckets, up to the largest distance that has one of its own. Half of them are for later keys if they have both sides: that
    /// is the rule of an open mask, if nothing else is said.
    Buckets {
        max_distance: usize,
        both_sides: Option<bool>,
    },
    Distances(EachDistance),
    Grid {
        grid: [usize; 2],
        has_first: bool,
    },
    /// A value for each query and key.
    Pairs,
}

/// A stored tensor whose values are added to scores.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreBias {
    weight: String,
    by: By,
    /// The axis of heads is the first, not the last.
    heads_first: bool,
}

/// The name of a table with one row per distance, or per head and query.
fn arranged_name(name: &str) -> String {
    format!("{name} (by rows)")
}

impl ScoreBias {
    /// Reads `[tensors.bias]` among the values of `[tensors]`; `None` if there is none.
    pub(super) fn read(values: &Map<String, Value>) -> Result<Option<Self>, String> {
        let values = match values.get(BIAS) {
            None => return Ok(None),
            Some(Value::Object(values)) => values,
            Some(other) => return Err(format!("{BIAS}: expected a table, found {other}")),
        };
        if let Some(other) = values.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let known = KEYS.join(", ");
            return Err(format!("{BIAS}.{other}: is not known; known: {known}"));
        }
        let text = |key: &str| match values.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(other) => Err(format!("{BIAS}.{key}: expected a text, found {other}")),
        };
        let missing =
            |key: &str, expected: &str| format!("{BIAS}.{key}: missing, expected {expected}");
        let weight = text("weight")?.ok_or_else(|| missing("weight", "a tensor's name"))?;
        let rules = RULES.map(|(rule, _)| rule).join(", ");
        let rule = text("by")?.ok_or_else(|| missing("by", &format!("one of {rules}")))?;
        let Some((rule, own)) = RULES.iter().find(|(name, _)| *name == rule) else {
            return Err(format!(
                "{BIAS}.by: expected one of {rules}, found {rule:?}"
            ));
        };
        let usual = ["weight", "by", "axes"];
        let not_its =
            |key: &&String| !own.contains(&key.as_str()) && !usual.contains(&key.as_str());
        if let Some(other) = values.keys().find(not_its) {
            return Err(format!("{BIAS}.{other}: says nothing where by is {rule:?}"));
        }
        let by = match *rule {
            "slopes" => By::Slopes,
            "buckets" => By::Buckets {
                max_distance: count(values, "max_distance")?.unwrap_or(128),
                both_sides: flag(values, "both_sides")?,
            },
            "distances" => By::Distances(EachDistance {
                own: count(values, "own")?.ok_or_else(|| missing("own", "a row's number"))?,
                counts_back: match text("counts")? {
                    None | Some("key - query") => false,
                    Some("query - key") => true,
                    Some(other) => {
                        return Err(format!(
                            "{BIAS}.counts: expected \"key - query\" or \"query - key\", found {other:?}"
                        ));
                    }
                },
            }),
            "grid" => By::Grid {
                grid: grid(values)?,
                has_first: flag(values, "first_token")?.unwrap_or(false),
            },
            _ => By::Pairs,
        };
        let heads_first = match (text("axes")?, &by) {
            (None, by) => *by == By::Pairs,
            (Some("row head"), By::Buckets { .. } | By::Distances(_) | By::Grid { .. }) => false,
            (Some("head row"), By::Buckets { .. } | By::Distances(_) | By::Grid { .. }) => true,
            (Some("head query key"), By::Pairs) => true,
            (Some("query key head"), By::Pairs) => false,
            (Some(other), by) => {
                let expected = match by {
                    By::Pairs => "head query key or query key head",
                    By::Slopes => "none, since there is one slope for each head",
                    _ => "row head or head row",
                };
                return Err(format!("{BIAS}.axes: expected {expected}, found {other:?}"));
            }
        };
        Ok(Some(Self {
            weight: weight.to_owned(),
            by,
            heads_first,
        }))
    }

    /// What is added, for the list of settings.
    pub fn words(&self) -> &'static str {
        match self.by {
            By::Slopes => "slopes of distance, stored",
            By::Buckets { .. } => "learned, by buckets of distance",
            By::Distances(_) => "learned, by distance",
            By::Grid { .. } => "learned, by distance in rows and columns",
            By::Pairs => "learned, by query and key",
        }
    }

    /// What is added to the scores of one layer.
    pub(super) fn bias(
        &self,
        of: &Described,
        tensors: &Tensors,
        layer_idx: usize,
    ) -> Result<Bias, String> {
        let table = self.table(of, tensors, layer_idx)?;
        let wrong = |expected: &str| {
            let (name, found) = (name_in_layer(&self.weight, layer_idx), table.n_rows);
            Err(format!(
                "{BIAS}: {name}: expected {expected}, found {found} rows"
            ))
        };
        Ok(match self.by {
            By::Slopes => {
                if table.n_rows != 1 {
                    return wrong("one, with a slope for each head");
                }
                let stored = tensors.get(&table.tensor).map(|slopes| slopes.widen());
                let slopes = stored.transpose().map_err(|error| error.to_string())?;
                Bias::Alibi(Alibi {
                    slopes: slopes.map(Cow::into_owned).unwrap_or_default(),
                    is_both_ways: !of.causal,
                    ..Alibi::new(of.n_heads, 8.0)
                })
            }
            By::Buckets {
                max_distance,
                both_sides,
            } => {
                let has_both = both_sides.unwrap_or(!of.causal);
                let sides = if has_both { 2 } else { 1 };
                let n_exact = table.n_rows / sides / 2;
                if n_exact == 0 || max_distance <= n_exact {
                    return wrong("at least two a side, and half of them fewer than max_distance");
                }
                Bias::Buckets(Buckets::plain(table.n_rows, max_distance, has_both))
            }
            By::Distances(each) => {
                if each.own >= table.n_rows {
                    return wrong(&format!("more than own, {}", each.own));
                }
                Bias::Buckets(Buckets {
                    each: Some(each),
                    ..Buckets::plain(table.n_rows, 0, !of.causal)
                })
            }
            By::Grid { grid, has_first } => {
                let distances = GridDistances {
                    grid,
                    has_first,
                    is_resampled: false,
                };
                let expected = distances.n_rows();
                if table.n_rows != expected {
                    return wrong(&format!(
                        "{expected}, one for each distance in rows and columns, and three for a first token"
                    ));
                }
                Bias::Grid(distances)
            }
            By::Pairs => {
                let n = table.width;
                let is_shared = table.n_rows == n && of.n_heads > 1;
                if !is_shared && table.n_rows != of.n_heads * n {
                    return wrong(&format!("{n} for each of {} heads", of.n_heads));
                }
                Bias::Pairs(Pairs {
                    n_positions: n,
                    is_shared,
                })
            }
        })
    }

    /// The table of one layer; its shape is that of the arranged tensor.
    fn table(
        &self,
        of: &Described,
        tensors: &Tensors,
        layer_idx: usize,
    ) -> Result<TableSource, String> {
        let name = name_in_layer(&self.weight, layer_idx);
        let arranged = arranged_name(&name);
        let Some(info) = tensors.info(&arranged) else {
            return Err(format!("{BIAS}: no tensor is called {name}"));
        };
        match *info.shape.as_slice() {
            [n_rows, width] if self.by == By::Pairs || width == of.n_heads => Ok(TableSource {
                tensor: arranged,
                n_rows,
                width,
            }),
            ref found => Err(format!(
                "{BIAS}: {name}: expected a value for each of {} heads, found {found:?}",
                of.n_heads
            )),
        }
    }

    /// The table of one layer, and whether all layers read that one.
    pub(super) fn source(
        &self,
        of: &Described,
        tensors: &Tensors,
        layer_idx: usize,
    ) -> Result<(TableSource, bool), String> {
        let is_shared = name_in_layer(&self.weight, 0) == name_in_layer(&self.weight, 1);
        Ok((self.table(of, tensors, layer_idx)?, is_shared))
    }

    /// The number of positions that the table was made for, if it is limited.
    pub(super) fn n_positions(&self, of: &Described, tensors: &Tensors) -> Option<usize> {
        match self.bias(of, tensors, of.first_attending()).ok()? {
            Bias::Pairs(pairs) => Some(pairs.n_positions),
            Bias::Grid(distances) => Some(distances.n_positions()),
            _ => None,
        }
    }

    /// Adds the tables with their axes in the order of the rule, and the names of those that they stand for to `used`.
    pub(super) fn arrange(
        &self,
        of: &Described,
        tensors: &mut Tensors,
        used: &mut Vec<String>,
    ) -> Result<(), String> {
        for layer_idx in (0..of.n_layers).filter(|idx| of.has(BIAS, *idx)) {
            let name = name_in_layer(&self.weight, layer_idx);
            let new_name = arranged_name(&name);
            if tensors.contains(&new_name) {
                continue;
            }
            tensors.squeeze(&name);
            let Some(shape) = tensors.info(&name).map(|info| info.shape.clone()) else {
                return Err(format!("{BIAS}: no tensor is called {name}"));
            };
            let Some((order, rows)) = self.order(&shape, of.n_heads) else {
                return Err(format!(
                    "{BIAS}: {name} has shape {shape:?}, expected two axes or more"
                ));
            };
            if !tensors.arrange(&name, &new_name, &order, &rows) {
                return Err(format!(
                    "{BIAS}: the axes of {name} cannot be exchanged as it is stored"
                ));
            }
            used.push(name);
        }
        Ok(())
    }
}

impl ScoreBias {
    /// The order of the axes of a stored tensor, and its shape with one row per distance, or per head and query.
    fn order(&self, shape: &[usize], n_heads: usize) -> Option<(Vec<usize>, [usize; 2])> {
        let (n_axes, n) = (shape.len(), shape.iter().product::<usize>());
        let as_it_lies: Vec<usize> = (0..n_axes).collect();
        let (order, width) = match (&self.by, shape) {
            (By::Slopes, _) => (as_it_lies, n),
            (_, [_]) if n_heads == 1 => (as_it_lies, 1),
            (_, [] | [_]) => return None,
            (By::Pairs, [.., width, _]) if !self.heads_first && n_axes > 2 => {
                ([&[n_axes - 1], &as_it_lies[..n_axes - 1]].concat(), *width)
            }
            (By::Buckets { .. } | By::Distances(_) | By::Grid { .. }, [n_first, ..])
                if self.heads_first =>
            {
                ([&as_it_lies[1..], &[0]].concat(), *n_first)
            }
            (_, [.., last]) => (as_it_lies, *last),
        };
        Some((order, [n.checked_div(width).unwrap_or(0), width]))
    }
}

fn count(values: &Map<String, Value>, key: &str) -> Result<Option<usize>, String> {
    let Some(value) = values.get(key) else {
        return Ok(None);
    };
    let number = value.as_u64().and_then(|n| usize::try_from(n).ok());
    let wrong = || format!("{BIAS}.{key}: expected a whole number, found {value}");
    number.map(Some).ok_or_else(wrong)
}

fn flag(values: &Map<String, Value>, key: &str) -> Result<Option<bool>, String> {
    match values.get(key) {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(format!(
            "{BIAS}.{key}: expected true or false, found {other}"
        )),
    }
}

/// Rows and columns of patches.
fn grid(values: &Map<String, Value>) -> Result<[usize; 2], String> {
    const MOST: u64 = 1 << 12;
    let found = values.get("grid");
    let sides = found.and_then(Value::as_array).map(|sides| {
        let sides = sides.iter().filter_map(Value::as_u64);
        sides.filter(|n| (1..=MOST).contains(n)).map(|n| n as usize)
    });
    let sides: Vec<usize> = sides.into_iter().flatten().collect();
    match (sides.as_slice(), found) {
        ([rows, columns], _) => Ok([*rows, *columns]),
        (_, None) => Err(format!(
            "{BIAS}.grid: missing, expected the numbers of rows and columns, such as [7, 7]"
        )),
        (_, Some(found)) => Err(format!(
            "{BIAS}.grid: expected the numbers of rows and columns, such as [7, 7], found {found}"
        )),
    }
}
