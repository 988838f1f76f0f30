//! Latent attention whose layers differ in what they take over: latents of earlier layers, and rotation by learned frequencies.

use attnscope_checkpoint::{Origin, Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::LatentSharing;

use super::latent_widths::Widths;

const SOURCES: &str = "kv_source_layers";
const ROTATING: &str = "no_rope_layers";

/// Reads which layers rotate: those whose entry in a list is not 0; without the list, all but every n-th.
///
/// # Errors
/// When the list is shorter than the layers.
pub fn rotating_layers(
    reader: &mut Reader<'_>,
    n_layers: usize,
    every: usize,
) -> Result<Vec<bool>> {
    let Some(list) = reader.numbers(ROTATING)? else {
        const KEY: &str = "no_rope_layer_interval";
        let default = Origin::Default(KEY.to_owned());
        let every = reader.size_or("no_rope_every", KEY, every, default)?;
        return Ok((1..=n_layers).map(|nth| nth % every != 0).collect());
    };
    if list.len() < n_layers {
        let found = list.len();
        let problem = format!("expected {n_layers} entries, one per layer, found {found}");
        return Err(Error::config(reader.path(), ROTATING, problem));
    }
    let rotates: Vec<bool> = list[..n_layers].iter().map(|entry| *entry != 0).collect();
    let n = rotates.iter().filter(|rotates| **rotates).count();
    let said = format!("{n} of {n_layers}");
    reader.note("rotating_layers", said, Origin::Key(ROTATING.to_owned()));
    Ok(rotates)
}

/// The widths of layers of which some do not rotate: what heads would share of their keys is then a part of each head.
pub fn widths_where(rotates: &[bool], widths: Widths) -> Vec<Widths> {
    let own = Widths {
        d_own: widths.d_head(),
        d_shared: 0,
        ..widths
    };
    let of = |rotates: &bool| if *rotates { widths } else { own };
    rotates.iter().map(of).collect()
}

/// The learned factors of rotary frequencies: e to the power of what is stored.
///
/// # Errors
/// When the tensor is missing or has another shape.
pub fn learned_factors(tensors: &Tensors, base: &str, n_pairs: usize) -> Result<Vec<f64>> {
    let stored = tensors.expect(&format!("{base}rotary_emb.alpha"), &[n_pairs])?;
    let values = stored.widen()?;
    Ok(values.iter().map(|alpha| f64::from(*alpha).exp()).collect())
}

/// Which layers leave their latents to later ones, and which take those of an earlier one.
pub struct SharedLatents {
    layers: Vec<Option<LatentSharing>>,
    /// Number of columns that a row keeps, with those before these.
    pub n_kept: usize,
}

impl SharedLatents {
    /// No layer takes latents of another.
    pub fn none(n_layers: usize, n_before: usize) -> Self {
        Self {
            layers: vec![None; n_layers],
            n_kept: n_before,
        }
    }

    /// Reads from which layer each takes its latents; `n_before` columns of a row are used otherwise.
    ///
    /// # Errors
    /// When a source is not a layer before, takes latents itself, or is not the last of its kind.
    pub fn read(reader: &mut Reader<'_>, widths: &[Widths], n_before: usize) -> Result<Self> {
        let mut read = Self::none(widths.len(), n_before);
        let Some(sources) = reader.numbers(SOURCES)? else {
            return Ok(read);
        };
        let sources: Vec<usize> = sources.into_iter().map(|source| source as usize).collect();
        let refused = |reader: &Reader<'_>, problem: String| {
            Err(Error::config(reader.path(), SOURCES, problem))
        };
        if sources.len() != widths.len() {
            let (n, found) = (widths.len(), sources.len());
            let problem = format!("expected {n} layers, one per layer, found {found}");
            return refused(reader, problem);
        }
        let mut said = Vec::new();
        for (layer_idx, source) in sources.iter().copied().enumerate() {
            if source == layer_idx {
                continue;
            }
            if source > layer_idx || sources[source] != source {
                let problem = format!(
                    "layer {layer_idx}: expected an earlier layer with latents of its own, found {source}"
                );
                return refused(reader, problem);
            }
            // What a layer leaves replaces what layers of its kind left before.
            let leaves = |idx: usize| sources[idx + 1..].contains(&idx);
            let same = |idx: &usize| {
                sources[*idx] == *idx && widths[*idx] == widths[layer_idx] && leaves(*idx)
            };
            let last = (0..layer_idx).rev().find(same);
            if last != Some(source) {
                let last = last.map_or("none".to_owned(), |last| last.to_string());
                let problem = format!(
                    "layer {layer_idx}: expected the last layer before it that leaves latents and rotates as it does ({last}), found {source}"
                );
                return refused(reader, problem);
            }
            let column = match read.layers[source] {
                Some(LatentSharing::Leaves { column }) => column,
                _ => {
                    let column = read.n_kept;
                    read.n_kept += widths[source].d_latent + widths[source].d_shared;
                    read.layers[source] = Some(LatentSharing::Leaves { column });
                    column
                }
            };
            said.push(format!("{layer_idx} of {source}"));
            read.layers[layer_idx] = Some(LatentSharing::Takes {
                layer_idx: source,
                column,
            });
        }
        if !said.is_empty() {
            let said = format!("layers take the latents of others: {}", said.join(", "));
            reader.note("shared_latents", said, Origin::Key(SOURCES.to_owned()));
        }
        Ok(read)
    }

    /// What a layer does.
    pub fn of(&self, layer_idx: usize) -> Option<LatentSharing> {
        self.layers[layer_idx]
    }

    /// The layer whose latents a layer reads.
    pub fn source_of(&self, layer_idx: usize) -> usize {
        match self.layers[layer_idx] {
            Some(LatentSharing::Takes { layer_idx, .. }) => layer_idx,
            _ => layer_idx,
        }
    }
}
