//! What differs between families that use BART's names: positions, token tables, names inside a layer.

/// How positions are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Positions {
    /// A learned table; its first rows belong to no position.
    Learned { n_rows_before: usize },
    /// Sines and cosines, stored or computed.
    Sinusoid,
    /// Sines and cosines; positions count only tokens other than the padding token, from the index after it.
    SinusoidNotPad,
}

/// Whether encoder and decoder share a token table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedWords {
    Always,
    /// Unless this key is false.
    Unless(&'static str),
    Never,
}

/// Names inside a layer that differ between families.
#[derive(Debug, Clone, Copy)]
pub struct LayerNames {
    /// A tensor of the first layer that shows whether the encoder or decoder exists.
    pub probe: &'static str,
    /// Prefix of the feed-forward maps.
    pub mlp: &'static str,
    pub mlp_norm: &'static str,
    pub cross: &'static str,
    pub cross_norm: &'static str,
}

impl LayerNames {
    /// BART's own names.
    pub const USUAL: Self = Self {
        probe: "fc1.weight",
        mlp: "",
        mlp_norm: "final_layer_norm",
        cross: "encoder_attn",
        cross_norm: "encoder_attn_layer_norm",
    };
}
