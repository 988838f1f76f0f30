//! The maps of an attention and of a feed-forward layer: apart, in pairs or fused.

use super::{FusedPart, MapPart, Part};

/// The maps of queries, keys and values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Qkv {
    Separate([MapPart; 3]),
    /// Separate queries; keys fused with values.
    Paired(MapPart, FusedPart),
    Fused(FusedPart),
}

impl Qkv {
    /// Every map with its key.
    pub(super) fn parts(&self) -> Vec<(&'static str, Part)> {
        let map = |key, map: &MapPart| (key, Part::Map(map.clone()));
        match self {
            Self::Separate([q, k, v]) => vec![map("q", q), map("k", k), map("v", v)],
            Self::Paired(q, kv) => vec![map("q", q), ("kv", Part::Fused(kv.clone()))],
            Self::Fused(fused) => vec![("qkv", Part::Fused(fused.clone()))],
        }
    }
}

/// The maps of the feed-forward block.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mlp {
    Plain(MapPart),
    Gated(MapPart, MapPart),
    Fused(FusedPart),
}

impl Mlp {
    /// Every map, under these keys.
    pub(super) fn parts(
        &self,
        [up, gate, gate_up]: [&'static str; 3],
    ) -> Vec<(&'static str, Part)> {
        let map = |key, map: &MapPart| (key, Part::Map(map.clone()));
        match self {
            Self::Plain(of_up) => vec![map(up, of_up)],
            Self::Gated(of_gate, of_up) => vec![map(gate, of_gate), map(up, of_up)],
            Self::Fused(fused) => vec![(gate_up, Part::Fused(fused.clone()))],
        }
    }
}
