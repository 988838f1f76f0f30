//! Weights of one block, read before it runs and dropped after it.

use std::borrow::Cow;

use attnscope_checkpoint::Tensors;
use attnscope_compute::attention::RelativeTables;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_spec::{
    BlockSpec, FeedForward, GlobalMaps, Mixer, MlpSpec, NormSource, ProjectionSpec, WeightFormat,
};

use super::curve::Curve;
use super::difference::{Difference, read_difference};
use super::indexer::IndexWeights;
use super::mixer::TokenMixerWeights;
use super::norm_gate::NormGate;
use super::rounded::round_read;
use super::weights::{Fused, WeightReader};

/// Weights of the latent vectors that queries, keys and values are projected from.
pub struct LatentWeights<'a, O: Ops> {
    pub q: Option<(O::Linear<'a>, O::Norm<'a>)>,
    pub kv: O::Linear<'a>,
    pub kv_norm: O::Norm<'a>,
    pub shared_key: Option<O::Linear<'a>>,
    pub shared_key_norm: Option<O::Norm<'a>>,
}

/// Weights that produce queries, keys and values.
pub struct AttentionWeights<'a, O: Ops> {
    pub pre: Option<O::Norm<'a>>,
    pub pre_gate: Option<NormGate<'a, O>>,
    /// The norm of so many first rows.
    /// The number of groups whose values `pre` normalises over all rows, and its epsilon.
    pub pre_groups: Option<(usize, f32)>,
    pub pre_firsts: Option<(usize, O::Norm<'a>)>,
    pub q: O::Linear<'a>,
    /// `None`, like `v` below, where an earlier layer provides keys and values.
    pub k: Option<O::Linear<'a>>,
    pub v: Option<O::Linear<'a>>,
    pub q_norm: Option<O::Norm<'a>>,
    pub k_norm: Option<O::Norm<'a>>,
    /// Scale and bias of the growth of each head's queries. // [head] each
    pub q_growth: Option<[Cow<'a, [f32]>; 2]>,
    /// What multiplies the queries of each head, besides the scale of scores. // [head]
    pub head_scales: Option<Vec<f32>>,
    pub v_norm: Option<O::Norm<'a>>,
    pub latent: Option<LatentWeights<'a, O>>,
    /// [head]
    pub sinks: Option<Cow<'a, [f32]>>,
    /// Learned bucketed position bias of this attention alone. // [bucket, head]
    pub bucket_values: Option<Cow<'a, [f32]>>,
    pub relative: Option<RelativeTables>,
    pub gate: Option<O::Linear<'a>>,
    /// The norm between the heads and the output map.
    pub z_norm: Option<O::Norm<'a>>,
    /// The norm of each head's output, before the gate.
    pub each_z_norm: Option<O::Norm<'a>>,
    pub difference: Option<Difference>,
    /// Projections of global tokens.
    pub global: Option<GlobalWeights<'a, O>>,
    /// The indexer's own maps.
    pub indexer: Option<IndexWeights<'a, O>>,
}

impl<'a, O: Ops> AttentionWeights<'a, O> {
    /// # Errors
    /// As for [`WeightReader::linear`].
    pub(super) fn read(
        maps: WeightReader<'a, O>,
        pre: &Option<NormSource>,
        spec: &ProjectionSpec,
        n_heads: usize,
    ) -> Result<Self> {
        let shelf = maps.at_once();
        let latent = match &spec.latent {
            Some(latent) => Some(LatentWeights {
                q: match &latent.q {
                    Some((linear, norm)) => Some((shelf.linear(linear)?, shelf.norm(norm)?)),
                    None => None,
                },
                kv: shelf.linear(&latent.kv)?,
                kv_norm: shelf.norm(&latent.kv_norm)?,
                shared_key: match &latent.shared_key {
                    Some(shared) => Some(shelf.linear(shared)?),
                    None => None,
                },
                shared_key_norm: shelf.optional_norm(&latent.shared_key_norm)?,
            }),
            None => None,
        };
        let fused = Fused::default();
        // Tables and vectors of an attention are rounded as its maps are.
        let format = spec.q.rounded.and_then(WeightFormat::number);
        let own = |source| -> Result<Option<O::Linear<'a>>> {
            if spec.reuses_keys() {
                return Ok(None);
            }
            maps.linear_of(source, &fused).map(Some)
        };
        Ok(Self {
            pre: shelf.optional_norm(pre)?,
            pre_gate: NormGate::read(shelf, pre)?,
            pre_groups: pre.as_ref().and_then(|norm| Some((norm.groups?, norm.eps))),
            pre_firsts: match pre.as_ref().and_then(|norm| norm.of_firsts.as_deref()) {
                Some((n, norm)) => Some((*n, shelf.norm(norm)?)),
                None => None,
            },
            q: maps.linear_of(&spec.q, &fused)?,
            k: own(&spec.k)?,
            v: own(&spec.v)?,
            q_norm: shelf.optional_norm(&spec.q_norm)?,
            k_norm: shelf.optional_norm(&spec.k_norm)?,
            q_growth: shelf.growth(spec.q_growth.as_deref())?,
            head_scales: shelf.head_scales(spec.head_scales.as_deref())?,
            v_norm: shelf.optional_norm(&spec.v_norm)?,
            latent,
            sinks: match &spec.sinks {
                Some(name) => Some(round_read(shelf.vector(name, n_heads)?, format)),
                None => None,
            },
            bucket_values: match &spec.bucket_values {
                Some(table) => Some(round_read(shelf.table(table)?, format)),
                None => None,
            },
            relative: shelf.distances(spec, format)?,
            gate: match &spec.gate {
                Some(gate) => Some(shelf.linear_of(gate, &fused)?),
                None => None,
            },
            z_norm: shelf.optional_norm(spec.norm_of_all_z())?,
            each_z_norm: shelf.optional_norm(spec.norm_of_each_z())?,
            difference: match &spec.difference {
                Some(difference) => Some(read_difference(difference, shelf.tensors)?),
                None => None,
            },
            global: match &spec.global {
                Some(maps) => Some(GlobalWeights::read(shelf, maps)?),
                None => None,
            },
            indexer: IndexWeights::read(shelf, spec)?,
        })
    }
}

/// Query, key and value projections of global tokens.
pub struct GlobalWeights<'a, O: Ops> {
    pub q: O::Linear<'a>,
    pub k: O::Linear<'a>,
    pub v: O::Linear<'a>,
}

impl<'a, O: Ops> GlobalWeights<'a, O> {
    /// # Errors
    /// As for [`WeightReader::linear`].
    fn read(shelf: WeightReader<'a, O>, maps: &GlobalMaps) -> Result<Self> {
        let [q, k, v] = maps.linears().map(|map| shelf.linear(map));
        Ok(Self {
            q: q?,
            k: k?,
            v: v?,
        })
    }
}

/// Weights of cross-attention.
pub struct CrossWeights<'a, O: Ops> {
    pub attention: AttentionWeights<'a, O>,
    pub o: O::Linear<'a>,
    pub out: Option<O::Norm<'a>>,
    pub post: Option<O::Norm<'a>>,
}

/// Weights of a feed-forward layer.
pub struct MlpWeights<'a, O: Ops> {
    pub up: O::Linear<'a>,
    pub gate: Option<O::Linear<'a>>,
    pub down: O::Linear<'a>,
    /// The norm between the activation and the down projection.
    pub hidden_norm: Option<O::Norm<'a>>,
    pub learned: Option<Curve>,
}

impl<'a, O: Ops> MlpWeights<'a, O> {
    pub(super) fn read(shelf: WeightReader<'a, O>, spec: &MlpSpec) -> Result<Self> {
        Ok(Self {
            up: shelf.linear(&spec.up)?,
            gate: spec
                .gate
                .as_ref()
                .map(|gate| shelf.linear(gate))
                .transpose()?,
            down: shelf.linear(&spec.down)?,
            hidden_norm: shelf.optional_norm(&spec.hidden_norm)?,
            learned: match &spec.learned {
                Some(learned) => Some(Curve::read(shelf, learned)?),
                None => None,
            },
        })
    }
}

/// Weights of the part of a block that mixes tokens.
pub enum MixerWeights<'a, O: Ops> {
    /// Attention, and its output projection.
    Attention(Box<AttentionWeights<'a, O>>, O::Linear<'a>),
    Other {
        pre: Option<O::Norm<'a>>,
        weights: Box<TokenMixerWeights<'a, O>>,
    },
    None,
}

/// Weights of a mixer that comes last in a block.
pub struct LastMixerWeights<'a, O: Ops> {
    pub map: O::Linear<'a>,
    pub pre: O::Norm<'a>,
    pub mixer: TokenMixerWeights<'a, O>,
}

/// Weights of one block, on the device; weights of experts are read when each expert runs.
pub struct BlockWeights<'a, O: Ops> {
    pub mixer: MixerWeights<'a, O>,
    /// A mixer parallel to attention, with the same input norm.
    pub parallel_mixer: Option<TokenMixerWeights<'a, O>>,
    /// The mixer behind attention and feed-forward layer.
    pub last_mixer: Option<LastMixerWeights<'a, O>>,
    pub attn_out: Option<O::Norm<'a>>,
    pub attn_post: Option<O::Norm<'a>>,
    pub cross: Option<CrossWeights<'a, O>>,
    /// `None` for a block of experts or without feed-forward.
    pub mlp: Option<MlpWeights<'a, O>>,
    pub mlp_pre: Option<O::Norm<'a>>,
    pub mlp_pre_gate: Option<NormGate<'a, O>>,
    pub mlp_out: Option<O::Norm<'a>>,
    pub mlp_post: Option<O::Norm<'a>>,
}

impl<'a, O: Ops> BlockWeights<'a, O> {
    /// # Errors
    /// When a tensor is missing, has the wrong shape, or the device refuses it.
    pub fn read(
        ops: &'a O,
        tensors: &'a Tensors,
        spec: &BlockSpec,
        pace: &'a dyn Pace,
    ) -> Result<Self> {
        Self::read_from(WeightReader::new(ops, tensors, pace), spec)
    }

    /// Reads weights in a layout for multiplying a few rows many times.
    ///
    /// # Errors
    /// As for [`BlockWeights::read`].
    pub fn read_for_few_rows(
        ops: &'a O,
        tensors: &'a Tensors,
        spec: &BlockSpec,
        pace: &'a dyn Pace,
    ) -> Result<Self> {
        let shelf = WeightReader {
            for_few_rows: true,
            ..WeightReader::new(ops, tensors, pace)
        };
        Self::read_from(shelf, spec)
    }

    /// Reads weights for one prompt: those that are multiplied once may be read when they are.
    ///
    /// # Errors
    /// As for [`BlockWeights::read`].
    pub fn read_for_one_run(
        ops: &'a O,
        tensors: &'a Tensors,
        spec: &BlockSpec,
        pace: &'a dyn Pace,
    ) -> Result<Self> {
        let shelf = WeightReader {
            for_one_run: true,
            ..WeightReader::new(ops, tensors, pace)
        };
        Self::read_from(shelf, spec)
    }

    fn read_from(maps: WeightReader<'a, O>, spec: &BlockSpec) -> Result<Self> {
        let shelf = maps.at_once();
        // Each read checks only its own file. This check covers all shards: one that was replaced belongs to another save.
        shelf.tensors.unchanged()?;
        let attention = |pre, projections: &ProjectionSpec, n_heads| {
            AttentionWeights::read(maps, pre, projections, n_heads)
        };
        let cross = match &spec.cross {
            Some(cross) => Some(CrossWeights {
                attention: attention(&cross.pre, &cross.projections, cross.attention.n_heads)?,
                o: shelf.linear(&cross.projections.o)?,
                out: shelf.optional_norm(&cross.out)?,
                post: shelf.optional_norm(&cross.post)?,
            }),
            None => None,
        };
        let mixer = match &spec.mixer {
            Mixer::Attention(own) => {
                let n_heads = own.attention.n_heads;
                let weights = attention(&spec.attn_pre, &own.projections, n_heads)?;
                MixerWeights::Attention(Box::new(weights), shelf.linear(&own.projections.o)?)
            }
            Mixer::Other(mixer) => MixerWeights::Other {
                pre: shelf.optional_norm(&spec.attn_pre)?,
                weights: Box::new(TokenMixerWeights::read(shelf, mixer)?),
            },
            Mixer::None => MixerWeights::None,
        };
        let parallel_mixer = spec.parallel_mixer.as_deref();
        Ok(Self {
            mixer,
            parallel_mixer: parallel_mixer
                .map(|mixer| TokenMixerWeights::read(shelf, mixer))
                .transpose()?,
            last_mixer: match &spec.last_mixer {
                Some(last) => Some(LastMixerWeights {
                    map: shelf.linear(&last.map)?,
                    pre: shelf.norm(&last.pre)?,
                    mixer: TokenMixerWeights::read(shelf, &last.mixer)?,
                }),
                None => None,
            },
            attn_out: shelf.optional_norm(&spec.attn_out)?,
            attn_post: shelf.optional_norm(&spec.attn_post)?,
            cross,
            mlp: match &spec.feed_forward {
                FeedForward::Dense(mlp) => Some(MlpWeights::read(maps, mlp)?),
                FeedForward::Experts(_) | FeedForward::None => None,
            },
            mlp_pre: shelf.optional_norm(&spec.mlp_pre)?,
            mlp_pre_gate: NormGate::read(shelf, &spec.mlp_pre)?,
            mlp_out: shelf.optional_norm(&spec.mlp_out)?,
            mlp_post: shelf.optional_norm(&spec.mlp_post)?,
        })
    }
}
