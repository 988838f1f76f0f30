//! KV sharing: which layers reuse keys and values of earlier layers, and the columns of a row that keep them.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::KvSharing;

const KEY: &str = "num_kv_shared_layers";

/// Key and value heads of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHeads {
    pub n: usize,
    pub d: usize,
    /// Layers with a window share only among themselves, and so do those without.
    pub is_windowed: bool,
}

/// Every layer's role in KV sharing.
pub struct Sharing {
    layers: Vec<Option<Place>>,
    /// Number of columns that a row keeps for later layers.
    pub n_kept: usize,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Leaves(usize),
    Takes { layer_idx: usize, column: usize },
}

impl Sharing {
    /// The last layers reuse keys and values of the last earlier layer of their kind.
    ///
    /// # Errors
    /// When there is no such layer, or its heads differ.
    pub fn read(reader: &mut Reader<'_>, default: usize, heads: &[KeyHeads]) -> Result<Self> {
        let n_shared = reader.count_or("n_layers_of_shared_keys", KEY, default)?;
        let mut layers = vec![None; heads.len()];
        let mut n_kept = 0;
        if n_shared == 0 {
            return Ok(Self { layers, n_kept });
        }
        let refused =
            |reader: &Reader<'_>, problem: String| Error::config(reader.path(), KEY, problem);
        let n_own = heads.len().saturating_sub(n_shared);
        if heads.len() < n_shared {
            let problem = format!(
                "expected at most {}, the number of layers, found {n_shared}",
                heads.len()
            );
            return Err(refused(reader, problem));
        }
        let mut said = Vec::new();
        for layer_idx in n_own..heads.len() {
            let own = heads[layer_idx];
            let source = (0..n_own)
                .rev()
                .find(|idx| heads[*idx].is_windowed == own.is_windowed);
            let Some(source) = source else {
                let kind = if own.is_windowed { "with" } else { "without" };
                let problem = format!(
                    "layer {layer_idx} needs the keys of a layer {kind} a window before layer {n_own}, but there is none"
                );
                return Err(refused(reader, problem));
            };
            if heads[source] != own {
                let [found, expected] = [heads[source], own]
                    .map(|heads| format!("{} heads of size {}", heads.n, heads.d));
                let problem = format!(
                    "layer {layer_idx} uses the keys of layer {source}: expected {expected}, found {found}"
                );
                return Err(refused(reader, problem));
            }
            let column = match layers[source] {
                Some(Place::Leaves(column)) => column,
                _ => {
                    let column = n_kept;
                    n_kept += 2 * own.n * own.d;
                    layers[source] = Some(Place::Leaves(column));
                    said.push(source.to_string());
                    column
                }
            };
            layers[layer_idx] = Some(Place::Takes {
                layer_idx: source,
                column,
            });
        }
        let said = format!(
            "layers {n_own}-{} take those of {}",
            heads.len() - 1,
            said.join(", ")
        );
        reader.note("shared_keys", said, Origin::Derived(KEY.to_owned()));
        Ok(Self { layers, n_kept })
    }

    /// The layer whose keys a layer attends to.
    pub fn source_of(&self, layer_idx: usize) -> usize {
        match self.layers[layer_idx] {
            Some(Place::Takes { layer_idx, .. }) => layer_idx,
            _ => layer_idx,
        }
    }

    /// The KV-sharing entry of a layer's projections; `attn` is the name of its attention.
    pub fn of(&self, layer_idx: usize, attn: &str) -> Option<Box<KvSharing>> {
        Some(Box::new(match self.layers[layer_idx]? {
            Place::Leaves(column) => KvSharing::Provides(column),
            Place::Takes { layer_idx, column } => {
                const IN_VAIN: [&str; 6] = [
                    "k_proj.weight",
                    "k_proj.bias",
                    "v_proj.weight",
                    "v_proj.bias",
                    "k_norm.weight",
                    "v_norm.weight",
                ];
                KvSharing::Reuses {
                    layer_idx,
                    column,
                    unread_tensors: IN_VAIN
                        .iter()
                        .map(|name| format!("{attn}.{name}"))
                        .collect(),
                }
            }
        }))
    }
}
