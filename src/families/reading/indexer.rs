//! Indexers of sparse attention: which layers pick keys, which take the picks of an earlier one, and the maps that score keys.

use attnscope_checkpoint::{Origin, Reader, Tensors};
use attnscope_compute::attention::{KeyBlocks, KeyRank, RopeSpec, TopKeys};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{IndexMaps, IndexSource, IndexerSpec};

use super::{layer_norm, linear};

const TYPES: &str = "indexer_types";
const PATTERN: &str = "index_topk_pattern";
/// Epsilon of the norm of an indexer's keys.
const KEY_EPS: f64 = 1e-6;

/// How the indexers of a family differ from others.
#[derive(Debug, Clone, Copy)]
pub struct IndexerKeys {
    /// Whether rotating pairs of an indexer are interleaved.
    pub interleaved: bool,
    /// Whether some layers may take the picks of an earlier one.
    pub shares: bool,
}

/// Every layer's indexer.
pub struct Indexers {
    n_heads: usize,
    d_head: usize,
    pub top: TopKeys,
    rope: RopeSpec,
    d_model: usize,
    d_latent: usize,
    layers: Vec<Place>,
    /// Number of columns that a row keeps for later layers.
    pub n_kept: usize,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Own { column: Option<usize> },
    Takes { layer_idx: usize, column: usize },
}

impl Indexers {
    /// Reads the keys; `rope` is that of the attention.
    ///
    /// # Errors
    /// When a value is missing or impossible.
    pub fn read(
        reader: &mut Reader<'_>,
        keys: IndexerKeys,
        (n_layers, d_model, d_latent): (usize, usize, Option<usize>),
        rope: &RopeSpec,
    ) -> Result<Self> {
        let Some(d_latent) = d_latent else {
            let problem = "missing, expected the width of the latent that the indexer reads";
            return Err(Error::config(reader.path(), "q_lora_rank", problem));
        };
        let n_heads = reader.size("n_index_heads", "index_n_heads")?;
        let d_head = reader.size("d_index_head", "index_head_dim")?;
        if d_head < rope.d_rotary {
            let problem = format!(
                "expected at least the {} that rotate, found {d_head}",
                rope.d_rotary
            );
            return Err(Error::config(reader.path(), "index_head_dim", problem));
        }
        let top = TopKeys {
            n: reader.size("top_k_keys", "index_topk")?,
            by: KeyRank::Indexer(KeyBlocks::SINGLE),
        };
        let types = reader.words_by_layer("layer_types", n_layers)?;
        if let Some(other) = types
            .iter()
            .flatten()
            .find(|kind| *kind != "indexed_attention")
        {
            let problem = format!("expected indexed_attention, found {other:?}");
            return Err(Error::config(reader.path(), "layer_types", problem));
        }
        let mut read = Self {
            n_heads,
            d_head,
            top,
            rope: RopeSpec {
                first: 0,
                interleaved: keys.interleaved,
                ..rope.clone()
            },
            d_model,
            d_latent,
            layers: Vec::with_capacity(n_layers),
            n_kept: 0,
        };
        let picks = if keys.shares {
            picking_layers(reader, n_layers)?
        } else {
            vec![true; n_layers]
        };
        read.share(&picks);
        let taking: Vec<String> = (0..n_layers)
            .filter(|idx| !picks[*idx])
            .map(|idx| idx.to_string())
            .collect();
        if !taking.is_empty() {
            let said = format!("layers {} pick as the layer before", taking.join(", "));
            reader.note("shared_picks", said, Origin::Derived(TYPES.to_owned()));
        }
        Ok(read)
    }

    /// Gives layers that pick no keys the values of the last one before them that does. The first layer picks.
    fn share(&mut self, picks: &[bool]) {
        let mut source = 0;
        for (layer_idx, picks) in picks.iter().enumerate() {
            if *picks {
                source = layer_idx;
                self.layers.push(Place::Own { column: None });
                continue;
            }
            let column = match self.layers[source] {
                Place::Own {
                    column: Some(column),
                } => column,
                _ => {
                    let column = self.n_kept;
                    self.n_kept += (self.n_heads + 1) * self.d_head + self.n_heads;
                    self.layers[source] = Place::Own {
                        column: Some(column),
                    };
                    column
                }
            };
            self.layers.push(Place::Takes {
                layer_idx: source,
                column,
            });
        }
    }

    /// The indexer of a layer; `attn` is the name of its attention.
    pub fn of_layer(&self, tensors: &Tensors, layer_idx: usize, attn: &str) -> Box<IndexerSpec> {
        let at = format!("{attn}.indexer");
        let source = match self.layers[layer_idx] {
            Place::Takes { layer_idx, column } => IndexSource::Reuses { layer_idx, column },
            Place::Own { column } => {
                let (n, d) = (self.n_heads, self.d_head);
                let map =
                    |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, false);
                let maps = IndexMaps {
                    q: map("wq_b", self.d_latent, n * d),
                    k: map("wk", self.d_model, d),
                    weights: Some(map("weights_proj", self.d_model, n)),
                    q_norm: None,
                    k_norm: Some(layer_norm(tensors, &format!("{at}.k_norm"), d, KEY_EPS)),
                    rope: Some(self.rope.clone()),
                };
                IndexSource::Own {
                    maps: Box::new(maps),
                    column,
                }
            }
        };
        Box::new(IndexerSpec {
            n_heads: self.n_heads,
            d_head: self.d_head,
            is_weighted: true,
            source,
        })
    }
}

/// Which layers pick keys themselves: those of a list, of a pattern, or every n-th from some layer on.
fn picking_layers(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<bool>> {
    let (key, words) = match reader.words_by_layer(TYPES, n_layers)? {
        Some(words) => (TYPES, words),
        None => match reader.value(PATTERN) {
            Some(value) if value.is_string() => {
                let letters = value.as_str().unwrap_or_default().chars();
                (PATTERN, letters.map(String::from).collect())
            }
            Some(_) => (
                PATTERN,
                reader
                    .words_by_layer(PATTERN, n_layers)?
                    .unwrap_or_default(),
            ),
            None => {
                let every = reader
                    .count_or("picking_layers_every", "index_topk_freq", 1)?
                    .max(1);
                let first = reader.count_or("first_shared_picks", "index_skip_topk_offset", 2)?;
                let picks = |idx: usize| (idx + 1).saturating_sub(first).is_multiple_of(every);
                (
                    "index_skip_topk_offset",
                    (0..n_layers)
                        .map(|idx| if picks(idx) { "full" } else { "shared" }.to_owned())
                        .collect(),
                )
            }
        },
    };
    if words.len() != n_layers {
        let problem = format!("expected {n_layers} layers, found {}", words.len());
        return Err(Error::config(reader.path(), key, problem));
    }
    let picks: Result<Vec<bool>> = words
        .iter()
        .map(|word| match word.as_str() {
            "full" | "F" => Ok(true),
            "shared" | "S" => Ok(false),
            other => {
                let problem = format!("expected full or shared, found {other:?}");
                Err(Error::config(reader.path(), key, problem))
            }
        })
        .collect();
    let picks = picks?;
    if picks.first() == Some(&false) {
        let problem =
            "expected that the first layer picks keys, found that it takes those of an earlier one";
        return Err(Error::config(reader.path(), key, problem));
    }
    Ok(picks)
}
