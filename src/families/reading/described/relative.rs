//! Vectors of distances that a described model's queries meet besides keys: the table `relative` of `[tensors]`.

use attnscope_checkpoint::Tensors;
use attnscope_compute::attention::{Bias, Relative};
use attnscope_spec::{DistanceRows, QueryBiases, RelativeSource, TableSource};
use serde_json::{Map, Value};

use super::parts::name_in_layer;
use super::spec::Reads;
use super::{BIAS, CROSS, Described, LATENT, RELATIVE};

const KEYS: [&str; 5] = ["weight", "own", "counts", "limits", "query_bias"];

/// A stored table with a vector for each distance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelativePart {
    /// [distance, d_head], or [distance, n_heads · d_head]
    weight: String,
    /// The row of distance 0. Distances beyond the table share its first or its last row.
    own: usize,
    /// Rows are in the order of the distance key − query, not query − key.
    counts_forward: bool,
    /// Texts with farther distances than the table has are refused.
    limits: bool,
    /// What is added to queries where they meet these vectors. // [head, d_head]
    query_bias: Option<String>,
}

impl RelativePart {
    /// Reads the table `relative` among the values of `[tensors]`; `None` if there is none.
    pub(super) fn read(values: &Map<String, Value>) -> Result<Option<Self>, String> {
        let values = match values.get(RELATIVE) {
            None => return Ok(None),
            Some(Value::Object(values)) => values,
            Some(other) => return Err(format!("{RELATIVE}: expected a table, found {other}")),
        };
        if let Some(other) = values.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let known = KEYS.join(", ");
            return Err(format!("{RELATIVE}.{other}: is not known; known: {known}"));
        }
        let text = |key: &str| match values.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(format!("{RELATIVE}.{key}: expected a text, found {other}")),
        };
        let own = values.get("own").and_then(Value::as_u64);
        Ok(Some(Self {
            weight: text("weight")?
                .ok_or_else(|| format!("{RELATIVE}.weight: missing, expected a tensor's name"))?,
            own: own
                .and_then(|own| usize::try_from(own).ok())
                .ok_or_else(|| {
                    format!("{RELATIVE}.own: expected the number of the row of distance 0")
                })?,
            counts_forward: match text("counts")?.as_deref() {
                None | Some("key - query") => true,
                Some("query - key") => false,
                Some(other) => {
                    return Err(format!(
                        "{RELATIVE}.counts: expected \"key - query\" or \"query - key\", found {other:?}"
                    ));
                }
            },
            limits: match values.get("limits") {
                None => false,
                Some(Value::Bool(limits)) => *limits,
                Some(other) => {
                    return Err(format!(
                        "{RELATIVE}.limits: expected true or false, found {other}"
                    ));
                }
            },
            query_bias: text("query_bias")?,
        }))
    }

    /// The tensors of a layer, with the axes of length one taken away.
    pub(super) fn arrange(&self, layer_idx: usize, tensors: &mut Tensors) {
        for name in std::iter::once(&self.weight).chain(&self.query_bias) {
            tensors.squeeze(&name_in_layer(name, layer_idx));
        }
    }
}

impl Reads<'_> {
    /// The vectors of distances of one layer, and how its scores count distances; `None` if the model has none.
    pub(super) fn relative(
        &self,
        layer_idx: usize,
    ) -> Result<Option<(RelativeSource, Bias)>, String> {
        let Some(part) = &self.of.relative else {
            return Ok(None);
        };
        let (n_heads, d_head) = (self.of.n_heads, self.of.d_head);
        let name = name_in_layer(&part.weight, layer_idx);
        let shape = self.tensors.info(&name).map(|info| info.shape.clone());
        let (n_rows, width) = match shape.as_deref() {
            Some([n_rows, width]) if [d_head, n_heads * d_head].contains(width) => {
                (*n_rows, *width)
            }
            None => return Err(format!("{RELATIVE}: no tensor is called {name}")),
            Some(found) => {
                return Err(format!(
                    "{RELATIVE}: {name}: expected a vector of {d_head} or {} values for each distance, found {found:?}",
                    n_heads * d_head
                ));
            }
        };
        if part.own >= n_rows {
            return Err(format!(
                "{RELATIVE}.own: expected one of the {n_rows} rows of {name}, found {}",
                part.own
            ));
        }
        let biases = part.query_bias.as_ref().map(|bias| QueryBiases {
            of_keys: None,
            of_distances: name_in_layer(bias, layer_idx),
            n_heads,
            d_head,
        });
        let rows = DistanceRows::Shared {
            table: TableSource {
                tensor: name,
                n_rows,
                width,
            },
            // A row of all heads is there once.
            n_heads: n_heads * d_head / width,
            middle: part.own,
            is_reversed: part.counts_forward,
            span: n_rows,
            limits: part.limits,
        };
        let source = RelativeSource {
            biases,
            ..RelativeSource::plain(rows)
        };
        let bias = Bias::Relative(Relative {
            span: n_rows,
            log_until: None,
        });
        Ok(Some((source, bias)))
    }
}

impl Described {
    /// The number of positions that the vectors of distances were made for, if they limit it.
    pub(super) fn n_of_distances(&self, tensors: &Tensors) -> Option<usize> {
        let part = self.relative.as_ref().filter(|part| part.limits)?;
        let name = name_in_layer(&part.weight, self.first_attending());
        let n_rows = *tensors.info(&name)?.shape.first()?;
        Some((part.own + 1).max(n_rows.saturating_sub(part.own)))
    }

    /// Checks that one thing alone is added to scores, and that no attention to an encoder is to read latent vectors.
    pub(super) fn check_beside(&self) -> Result<(), String> {
        if self.relative.is_some() && self.bias.is_some() {
            return Err(format!("{RELATIVE}: expected no {BIAS} beside it"));
        }
        if self.latent.is_some() && self.cross.is_some() {
            return Err(format!("{LATENT}: expected no {CROSS} beside it"));
        }
        Ok(())
    }
}
