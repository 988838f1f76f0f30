//! The linear maps of one attention (queries, keys, values and output), and what is applied to their outputs.

use std::fmt;

use super::added_convolution::AddedConvolution;
use super::added_places::AddedPlaces;
use super::bottleneck::NormedMap;
use super::difference::DifferenceSource;
use super::global_maps::GlobalMaps;
use super::grid_maps::{ConvolvedInputs, KeyGrid, QueryPooling};
use super::head_experts::HeadExperts;
use super::indexer::IndexerSpec;
use super::norm_source::NormSource;
use super::pools::PooledKeys;
use super::projected::{
    BiasGate, HeadGrowth, HeadScales, LatentSpec, RelativeSource, StepSource, ValueBiasSource,
};
use super::rows::KvSharing;
use super::side_stream::SideStream;
use super::source::{LinearSource, TableSource};

/// What turns the outputs of a gate's map into factors of the heads' outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateFunction {
    Sigmoid,
    /// ln(1 + e^x).
    Softplus,
}

impl fmt::Display for GateFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sigmoid => "sigmoid",
            Self::Softplus => "softplus",
        })
    }
}

/// What becomes of what heads give to the learned tokens before a picture's patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstRows {
    /// The same as of what they give to patches.
    AsOthers,
    /// It is left out, and so is the bias of the output map: the tokens pass by.
    LeftOut,
    /// Each of them gets the mean of what all get.
    Averaged,
}

impl fmt::Display for FirstRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AsOthers => "as others",
            Self::LeftOut => "left out",
            Self::Averaged => "averaged",
        })
    }
}

/// Query, key, value and output maps of one attention.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectionSpec {
    pub q: LinearSource,
    pub k: LinearSource,
    pub v: LinearSource,
    pub o: LinearSource,
    /// Norms of queries and keys before rope: per head if the width is d_head, otherwise over all heads together.
    pub q_norm: Option<NormSource>,
    pub k_norm: Option<NormSource>,
    /// What multiplies queries by their position, in each head otherwise.
    pub q_growth: Option<Box<HeadGrowth>>,
    /// What multiplies the scores of each head, besides their scale.
    pub head_scales: Option<Box<HeadScales>>,
    /// Convolutions of keys and of values over a few tokens, before norms and positions.
    pub kv_convolutions: Option<Box<[AddedConvolution; 2]>>,
    /// A norm of the values, per head.
    pub v_norm: Option<NormSource>,
    /// Rows by token that are added to values. // [token, n_kv_heads · d_value]
    pub value_rows: Option<TableSource>,
    /// Shares of a head's output along the value of the query's own position that are taken away: the tanh of stored values.
    /// // [head]
    pub own_value_shares: Option<String>,
    /// Norms the rows of the encoder, of which cross-attention makes keys and values.
    pub source_norm: Option<Box<NormSource>>,
    /// Rows that tell places, added to what queries and keys are made of, and not to what values are.
    pub places: Option<Box<AddedPlaces>>,
    /// What queries, or queries and keys, are made of in the place of what values are made of, if that is narrower.
    pub narrowed: Option<Box<Narrowed>>,
    /// Two stored weights, if attention reads a sum of the residual and what its row keeps.
    pub sum_with_kept: Option<String>,
    /// Attention reads what its row keeps, in place of the residual.
    pub reads_kept: bool,
    pub latent: Option<Box<LatentSpec>>,
    /// Clamps queries, keys and values to ±clip.
    pub clip: Option<f32>,
    /// Learned sink logits. // [head]
    pub sinks: Option<String>,
    /// Applies the norms of queries and keys after rope instead of before it.
    pub norms_after_rope: bool,
    /// Learned bias per distance bucket, used by this attention only. // [bucket, head]
    pub bucket_values: Option<TableSource>,
    /// What multiplies the learned bias by distance, by query and head.
    pub bias_gate: Option<Box<BiasGate>>,
    /// What makes a bias of keys from their values.
    pub value_bias: Option<Box<ValueBiasSource>>,
    /// Learned vectors per distance.
    pub relative: Option<Box<RelativeSource>>,
    /// Learned vectors per distance in rows and in columns of a picture.
    pub steps: Option<Box<StepSource>>,
    /// Output gate: a function of this map of the input multiplies the heads' outputs. // [n_heads · d_value], or [n_heads]
    pub gate: Option<LinearSource>,
    pub gate_function: GateFunction,
    /// A norm over all heads' outputs together, between the heads and the output map (sub-LN). What one head writes then depends on
    /// the others.
    pub z_norm: Option<NormSource>,
    /// `z_norm` norms the output of each head by itself, before the gate.
    pub norms_each_z: bool,
    /// Differential attention: the second half's pattern is subtracted from the first's.
    pub difference: Option<Box<DifferenceSource>>,
    /// KV sharing: reads another layer's keys and values, or provides its own to later layers.
    pub shared: Option<Box<KvSharing>>,
    /// Linear maps of global tokens, which attend to all other tokens.
    pub global: Option<Box<GlobalMaps>>,
    /// Set if keys and values are read of other rows than queries.
    pub key_grid: Option<Box<KeyGrid>>,
    /// Scores keys for sparse attention.
    pub indexer: Option<Box<IndexerSpec>>,
    /// Experts that make queries and map outputs in the place of `q` and `o`, which then are those of the first of them.
    pub experts: Option<Box<HeadExperts>>,
    /// A second stream that attends together with the residual; the attention's d_head counts the columns of both.
    pub side: Option<Box<SideStream>>,
    pub firsts: FirstRows,
    /// What heads give turns back, as far as the rotary embedding turned the query: of values that turn as keys do, it then depends on
    /// distances alone.
    pub turns_back: bool,
}

/// A narrower input of queries, or of queries and keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Narrowed {
    pub by: NormedMap,
    /// Whether keys are made of it too.
    pub reaches_keys: bool,
}

impl ProjectionSpec {
    pub fn plain(q: LinearSource, k: LinearSource, v: LinearSource, o: LinearSource) -> Self {
        Self {
            q,
            k,
            v,
            o,
            q_norm: None,
            k_norm: None,
            q_growth: None,
            head_scales: None,
            kv_convolutions: None,
            v_norm: None,
            value_rows: None,
            own_value_shares: None,
            source_norm: None,
            places: None,
            narrowed: None,
            sum_with_kept: None,
            reads_kept: false,
            latent: None,
            clip: None,
            sinks: None,
            norms_after_rope: false,
            bucket_values: None,
            bias_gate: None,
            value_bias: None,
            relative: None,
            steps: None,
            gate: None,
            gate_function: GateFunction::Sigmoid,
            z_norm: None,
            norms_each_z: false,
            difference: None,
            shared: None,
            global: None,
            key_grid: None,
            indexer: None,
            experts: None,
            side: None,
            firsts: FirstRows::AsOthers,
            turns_back: false,
        }
    }

    /// How queries are pooled of a finer grid, if they are.
    pub fn query_pooling(&self) -> Option<&QueryPooling> {
        match self.key_grid.as_deref() {
            Some(KeyGrid::Finer(pooling)) => Some(pooling),
            Some(
                KeyGrid::Coarser(_)
                | KeyGrid::Convolved(_)
                | KeyGrid::OfBoth(_)
                | KeyGrid::Pooled(_),
            )
            | None => None,
        }
    }

    /// The keys of pools behind those of the rows, if there are such.
    pub fn pooled_keys(&self) -> Option<&PooledKeys> {
        self.key_grid.as_deref()?.pooled()
    }

    /// The convolutions that queries, keys and values pass through, if there are any.
    pub fn convolved_inputs(&self) -> Option<&ConvolvedInputs> {
        match self.key_grid.as_deref() {
            Some(KeyGrid::Convolved(inputs)) => Some(inputs),
            Some(
                KeyGrid::Coarser(_) | KeyGrid::Finer(_) | KeyGrid::OfBoth(_) | KeyGrid::Pooled(_),
            )
            | None => None,
        }
    }

    /// Whether what a head gives is more than a sum of values behind one map: a norm follows, the query's own value is taken out, or
    /// each token has a map of its own.
    pub fn changes_z(&self) -> bool {
        self.z_norm.is_some() || self.own_value_shares.is_some() || self.experts.is_some()
    }

    /// Whether every query gets the values that it weighs, each of which has a length of its own behind the output map.
    pub fn weighs_values(&self) -> bool {
        !self.changes_z() && !self.turns_back && self.firsts == FirstRows::AsOthers
    }

    /// Whether what a head gives of one key depends on what it takes from others.
    pub fn joins_keys(&self) -> bool {
        let is_averaged = self.firsts == FirstRows::Averaged;
        self.norm_of_each_z().is_some() || self.own_value_shares.is_some() || is_averaged
    }

    /// The norm over all heads' outputs together.
    pub fn norm_of_all_z(&self) -> &Option<NormSource> {
        if self.norms_each_z {
            &None
        } else {
            &self.z_norm
        }
    }

    /// The norm of each head's output by itself.
    pub fn norm_of_each_z(&self) -> &Option<NormSource> {
        if self.norms_each_z {
            &self.z_norm
        } else {
            &None
        }
    }

    /// Whether it reuses an earlier layer's keys and values.
    pub fn reuses_keys(&self) -> bool {
        matches!(self.shared.as_deref(), Some(KvSharing::Reuses { .. }))
    }

    /// The number by which an earlier layer's values are multiplied before they are added to its own, if they are.
    pub fn share_of_values(&self) -> Option<&String> {
        match self.shared.as_deref() {
            Some(KvSharing::AddsValues { share, .. }) => Some(share),
            Some(KvSharing::Provides(_) | KvSharing::Reuses { .. }) | None => None,
        }
    }

    /// Whether each head has its own rows and columns of the maps, and nothing else: false with latent vectors, differential
    /// attention, a second stream or experts.
    pub fn is_by_head(&self) -> bool {
        let is_shared = self.latent.is_some() || self.difference.is_some();
        !is_shared && self.side.is_none() && self.experts.is_none()
    }
}
