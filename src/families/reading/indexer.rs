//! Indexers of sparse attention: which layers pick keys, which take the picks of an earlier one, and the maps that score keys.

use attnscope_checkpoint::{Origin, Reader, Tensors};
use attnscope_compute::attention::{KeyBlocks, KeyRank, RopeSpec, TopKeys};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{HeadGrowth, IndexMaps, IndexSource, IndexerSpec, LinearSource, PoolMaps};

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
    /// Some layers may take the picks of an earlier one: one in so many picks itself, if the configuration says nothing else.
    pub shares: Option<usize>,
    /// Keys are pooled by weights that a model learns, and some layers may mix their tokens otherwise than by attention.
    pub pools: bool,
    /// Whether only layers of the type `indexed_attention` have an indexer.
    pub is_listed: bool,
    /// Whether its queries read the input behind a norm, not the latent of queries, and grow as a model learned.
    pub reads_input: bool,
}

impl IndexerKeys {
    /// Every layer picks single keys.
    pub const PLAIN: Self = Self {
        interleaved: false,
        shares: None,
        pools: false,
        is_listed: false,
        reads_input: false,
    };
}

/// Every layer's indexer.
pub struct Indexers {
    n_heads: usize,
    d_head: usize,
    pub top: TopKeys,
    rope: Option<RopeSpec>,
    /// Tokens of a pool.
    pool: Option<usize>,
    d_model: usize,
    d_latent: usize,
    reads_input: bool,
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
        rope: Option<&RopeSpec>,
    ) -> Result<Self> {
        let d_latent = if keys.reads_input {
            Some(d_model)
        } else {
            d_latent
        };
        let Some(d_latent) = d_latent else {
            let problem = "missing, expected the width of the latent that the indexer reads";
            return Err(Error::config(reader.path(), "q_lora_rank", problem));
        };
        let n_heads = reader.size("n_index_heads", "index_n_heads")?;
        let d_head = reader.size("d_index_head", "index_head_dim")?;
        let d_rotary = rope.map_or(0, |rope| rope.d_rotary);
        if d_head < d_rotary {
            let problem = format!("expected at least the {d_rotary} that rotate, found {d_head}");
            return Err(Error::config(reader.path(), "index_head_dim", problem));
        }
        let n_picked = reader.size("top_k_keys", "index_topk")?;
        let pool = if keys.pools {
            Some(pool(reader, n_picked)?)
        } else {
            None
        };
        let blocks = pool.map_or(KeyBlocks::SINGLE, |size| KeyBlocks {
            size,
            n_local: 0,
            are_pooled: true,
        });
        let top = TopKeys {
            n: n_picked,
            by: KeyRank::Indexer(blocks),
        };
        let attends = if keys.is_listed {
            vec![true; n_layers]
        } else {
            attending_layers(reader, n_layers, keys.pools)?
        };
        let mut read = Self {
            n_heads,
            d_head,
            top,
            rope: rope.map(|rope| RopeSpec {
                first: 0,
                interleaved: keys.interleaved,
                ..rope.clone()
            }),
            pool,
            d_model,
            d_latent,
            reads_input: keys.reads_input,
            layers: Vec::with_capacity(n_layers),
            n_kept: 0,
        };
        let mut picks = match keys.shares {
            Some(every) => picking_layers(reader, n_layers, every)?,
            None => vec![true; n_layers],
        };
        for (idx, picks) in picks.iter_mut().enumerate() {
            // What such a layer is called does not count.
            *picks |= !attends[idx];
        }
        let before = |idx: usize| idx.checked_sub(1).is_some_and(|before| attends[before]);
        if let Some(idx) = (0..n_layers).find(|idx| !picks[*idx] && !before(*idx)) {
            let problem = format!(
                "expected that layer {idx} picks keys, found that it takes those of the layer before, which picks none"
            );
            return Err(Error::config(reader.path(), TYPES, problem));
        }
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
                    let n_key = self.d_head * (1 + usize::from(self.pool.is_some()));
                    self.n_kept += self.n_heads * self.d_head + n_key + self.n_heads;
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

    /// The indexer of a layer; `attn` is the name of its attention, and the factor that of the latent which queries read.
    pub fn of_layer(
        &self,
        tensors: &Tensors,
        layer_idx: usize,
        (attn, factor, rotates): (&str, f32, bool),
    ) -> Box<IndexerSpec> {
        let at = format!("{attn}.indexer");
        let source = match self.layers[layer_idx] {
            Place::Takes { layer_idx, column } => IndexSource::Reuses { layer_idx, column },
            Place::Own { column } => {
                let (n, d) = (self.n_heads, self.d_head);
                let map =
                    |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, false);
                let maps = IndexMaps {
                    q: map("wq_b", self.d_latent, n * d).scaled(factor, 1.0),
                    k: map("wk", self.d_model, d),
                    weights: Some(map("weights_proj", self.d_model, n)),
                    q_pre: self.reads_input.then(|| {
                        layer_norm(
                            tensors,
                            &format!("{at}.q_input_norm"),
                            self.d_model,
                            KEY_EPS,
                        )
                    }),
                    q_growth: self.reads_input.then(|| head_growth(&at, n)),
                    q_norm: None,
                    k_norm: Some(layer_norm(tensors, &format!("{at}.k_norm"), d, KEY_EPS)),
                    rope: self.rope.clone().filter(|_| rotates),
                    pools: self.pool.map(|size| PoolMaps::Weighted {
                        size,
                        shares: Box::new(LinearSource::whole(
                            format!("{at}.index_kpool_compress_gate"),
                            None,
                            self.d_model,
                            d,
                        )),
                        places: format!("{at}.index_kpool_compress_ape"),
                    }),
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
            is_pooled: self.pool.is_some(),
            source,
        })
    }
}

/// The learned growth of queries, stored under `at`.
pub(super) fn head_growth(at: &str, n_heads: usize) -> Box<HeadGrowth> {
    Box::new(HeadGrowth {
        scale: format!("{at}.softmax_scaling.scale"),
        bias: format!("{at}.softmax_scaling.bias"),
        n_heads,
    })
}

/// The number of tokens of a pool, of which a query keeps as many as hold its keys.
fn pool(reader: &mut Reader<'_>, n_picked: usize) -> Result<usize> {
    const KEY: &str = "index_kpool";
    let size = reader.size_or("index_pool", KEY, 16, Origin::Default(KEY.to_owned()))?;
    if !n_picked.is_multiple_of(size) {
        let problem = format!("expected a divisor of index_topk ({n_picked}), found {size}");
        return Err(Error::config(reader.path(), KEY, problem));
    }
    const TAIL: &str = "index_kpool_always_select_tail";
    if !reader.flag_or("keeps_tail", TAIL, true)? {
        let problem = "expected true: a first token would see no key at all";
        return Err(Error::config(reader.path(), TAIL, problem));
    }
    Ok(size)
}

/// Which layers attend. Where some may not, one in four does, if nothing else is said.
pub fn attending_layers(
    reader: &mut Reader<'_>,
    n_layers: usize,
    are_mixed: bool,
) -> Result<Vec<bool>> {
    const KEY: &str = "layer_types";
    let Some(words) = reader.words_by_layer(KEY, n_layers)? else {
        let attends = |idx: usize| !are_mixed || idx % 4 == 3;
        return Ok((0..n_layers).map(attends).collect());
    };
    let attends = |word: &String| match word.as_str() {
        "indexed_attention" => Ok(true),
        "full_attention" if are_mixed => Ok(true),
        "linear_attention" if are_mixed => Ok(false),
        other => {
            let problem = format!("expected indexed_attention, found {other:?}");
            Err(Error::config(reader.path(), KEY, problem))
        }
    };
    words.iter().map(attends).collect()
}

/// Which layers pick keys themselves: those of a list, of a pattern, or every n-th from some layer on.
fn picking_layers(reader: &mut Reader<'_>, n_layers: usize, every: usize) -> Result<Vec<bool>> {
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
                    .count_or("picking_layers_every", "index_topk_freq", every)?
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
    picks
}
