//! A described model whose queries, keys and values are made of narrow vectors with a norm (latent attention): the table
//! `[tensors.latent]`.

use attnscope_spec::LatentSpec;
use serde_json::{Map, Value};

use super::parts::{FusedPart, MapPart, NormPart, Part, name_in_layer, name_of_all_heads};
use super::spec::{Reads, part_of};
use super::tables::Tables;
use super::{Described, LATENT, Qkv};

const KEYS: [&str; 6] = ["q", "q_norm", "kv", "kv_norm", "kv_shared", "shared_key"];

/// The names of the parts of `kv_shared`.
const PARTS: [&str; 2] = ["kv", "shared_key"];

/// The maps from what an attention reads to the latent of keys and values, and to the dimensions that the keys of all heads share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Down {
    Separate(MapPart, Option<MapPart>),
    Fused(FusedPart),
}

/// Maps to latent vectors, and their norms. The maps of queries, keys and values read these vectors.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Latent {
    /// `None` if queries are made of what attention reads.
    q: Option<(MapPart, NormPart)>,
    kv: Down,
    kv_norm: NormPart,
}

impl Latent {
    /// Reads `[tensors.latent]` among the values of `[tensors]`; `None` if there is none.
    pub(super) fn read(values: &Map<String, Value>) -> Result<Option<Self>, String> {
        let values = match values.get(LATENT) {
            None => return Ok(None),
            Some(Value::Object(values)) => values,
            Some(other) => return Err(format!("{LATENT}: expected a table, found {other}")),
        };
        if let Some(other) = values.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let known = KEYS.join(", ");
            return Err(format!("{LATENT}.{other}: is not known; known: {known}"));
        }
        let tables = Tables {
            values,
            within: "latent.",
        };
        let q = match (tables.map("q")?, tables.norm("q_norm")?) {
            (Some(map), Some(norm)) => Some((map, norm)),
            (None, None) => None,
            _ => return Err(format!("{LATENT}: expected q and q_norm together")),
        };
        let fused = tables.fused("kv_shared", &PARTS)?;
        let kv = match (fused, tables.map("kv")?, tables.map("shared_key")?) {
            (Some(fused), None, None) => Down::Fused(fused),
            (None, Some(kv), shared) => Down::Separate(kv, shared),
            _ => {
                return Err(format!(
                    "{LATENT}: expected kv, perhaps with shared_key, or kv_shared"
                ));
            }
        };
        let kv_norm = tables.norm("kv_norm")?;
        let kv_norm = kv_norm.ok_or_else(|| {
            format!("{LATENT}.kv_norm: missing, expected a norm: without one, kv and the maps behind it are one map")
        })?;
        Ok(Some(Self { q, kv, kv_norm }))
    }

    /// Every part that exists, with its key.
    pub(super) fn parts(&self) -> Vec<(&'static str, Part)> {
        let mut parts = Vec::new();
        if let Some((map, norm)) = &self.q {
            parts.push(("q", Part::Map(map.clone())));
            parts.push(("q_norm", Part::Norm(norm.clone())));
        }
        match &self.kv {
            Down::Separate(kv, shared) => {
                parts.push(("kv", Part::Map(kv.clone())));
                let shared = shared.iter();
                parts.extend(shared.map(|map| ("shared_key", Part::Map(map.clone()))));
            }
            Down::Fused(fused) => parts.push(("kv_shared", Part::Fused(fused.clone()))),
        }
        parts.push(("kv_norm", Part::Norm(self.kv_norm.clone())));
        parts
    }
}

/// Widths of the latent vectors of a layer, and of what the keys of all heads share.
#[derive(Debug, Clone, Copy)]
pub(super) struct LatentWidths {
    /// `None` if queries are made of what attention reads.
    pub q: Option<usize>,
    pub kv: usize,
    pub shared: usize,
}

impl Reads<'_> {
    /// The widths of a layer's latent vectors; `None` if the model has none.
    pub(super) fn latent_widths(&self, layer_idx: usize) -> Result<Option<LatentWidths>, String> {
        let Some(latent) = &self.of.latent else {
            return Ok(None);
        };
        if matches!(self.of.qkv, Qkv::Fused(_)) {
            return Err(format!(
                "{LATENT}: expected q beside it, and kv, or k and v: they read different vectors"
            ));
        }
        let n_out = |map: &MapPart| {
            let name = name_of_all_heads(&name_in_layer(&map.weight, layer_idx));
            let arranged = map.arranged_name(&name);
            let info = self.tensors.info(&name).or(self.tensors.info(&arranged));
            info.map(|info| info.n_elements() / self.sizes.d_model.max(1))
                .ok_or_else(|| format!("{LATENT}: no tensor is called {name}"))
        };
        let q = latent.q.as_ref().map(|(map, _)| n_out(map)).transpose()?;
        let (kv, shared) = match &latent.kv {
            Down::Separate(kv, shared) => {
                let shared = shared.as_ref().map(n_out).transpose()?;
                (n_out(kv)?, shared.unwrap_or(0))
            }
            Down::Fused(fused) => {
                let shared = self.of.d_rotary().unwrap_or(0);
                (n_out(&fused.map)?.saturating_sub(shared), shared)
            }
        };
        if shared >= self.of.d_head {
            return Err(format!(
                "{LATENT}: expected fewer than the {} dimensions of a head that all heads share, found {shared}",
                self.of.d_head
            ));
        }
        Ok(Some(LatentWidths { q, kv, shared }))
    }

    /// The latent vectors of a layer.
    pub(super) fn latent(&self, layer_idx: usize) -> Result<Option<LatentSpec>, String> {
        let (Some(latent), Some(widths)) = (&self.of.latent, self.latent_widths(layer_idx)?) else {
            return Ok(None);
        };
        let d_model = self.sizes.d_model;
        let map = |part: &MapPart, n_out| self.map(part, layer_idx, (d_model, n_out), false);
        let q = latent.q.as_ref().zip(widths.q);
        let (kv, shared_key) = match &latent.kv {
            Down::Separate(kv, shared) => {
                let shared = shared.as_ref();
                (
                    map(kv, widths.kv),
                    shared.map(|shared| map(shared, widths.shared)),
                )
            }
            Down::Fused(fused) => {
                let whole = map(&fused.map, widths.kv + widths.shared);
                let size = |name: &str| match name {
                    "kv" => widths.kv,
                    _ => widths.shared,
                };
                let part = |name| part_of(fused, &whole, name, self.of, size);
                (part(PARTS[0]), Some(part(PARTS[1])))
            }
        };
        Ok(Some(LatentSpec {
            q: q.map(|((down, norm), width)| (map(down, width), self.norm(norm, layer_idx, width))),
            q_reads_both: false,
            kv,
            kv_norm: self.norm(&latent.kv_norm, layer_idx, widths.kv),
            shared_key,
            shared_key_norm: None,
            shared: None,
        }))
    }
}

impl Described {
    /// Number of dimensions of each head that rotate, if any do.
    fn d_rotary(&self) -> Option<usize> {
        match self.computed {
            super::Positions::Rotary { d_rotary, .. } => Some(d_rotary),
            _ => None,
        }
    }

    /// The first dimension of a head that rotates: of keys that all heads share in part, these are the last ones.
    pub(super) fn first_rotating(&self, d_rotary: usize) -> usize {
        match self.latent {
            Some(_) => self.d_head.saturating_sub(d_rotary),
            None => 0,
        }
    }
}
