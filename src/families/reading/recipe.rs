//! The recipe of a Llama-like family: its differences from Llama as data, one field each.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::attention::Window;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::NormSource;

use super::bias_rule::BiasRule;
use super::expected::Expected;
use super::experts::{ExpertsKeys, GatedNames, USUAL};
use super::windows::WindowRule;

/// The norms of a family.
#[derive(Debug, Clone, Copy)]
pub struct NormStyle {
    pub kind: NormKind,
    /// The key that states epsilon; `None` if epsilon is fixed.
    pub eps_key: Option<&'static str>,
    pub eps: f64,
    pub adds_one: bool,
    pub has_gain: bool,
    pub has_bias: bool,
}

/// RMSNorm with a stated epsilon.
pub const RMS: NormStyle = NormStyle {
    kind: NormKind::RmsNorm,
    eps_key: Some("rms_norm_eps"),
    eps: 1e-6,
    adds_one: false,
    has_gain: true,
    has_bias: false,
};

impl NormStyle {
    pub fn at(self, name: &str, width: usize, eps: f64) -> NormSource {
        let gain = self.has_gain.then(|| format!("{name}.weight"));
        NormSource {
            bias: self.has_bias.then(|| format!("{name}.bias")),
            adds_one: self.adds_one,
            ..NormSource::new(self.kind, eps, width, gain)
        }
    }
}

/// Placement of norms in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormPlaces {
    /// Before each branch.
    Before,
    /// On the output of each branch, before the residual sum.
    Output,
    /// Before attention, on its output, before the feed-forward layer, and on its output, with these names.
    Around([&'static str; 4]),
    /// Before each branch, with names that say which branch follows.
    BeforeByBranch,
    /// Before each branch, with these names.
    BeforeNamed([&'static str; 2]),
    /// Before each branch; unless the key is false, also on the output of each, with these names.
    BeforeAndIf(&'static str, [&'static str; 2]),
    /// One norm for both branches, which run in parallel.
    Shared,
    /// `Shared` if this key is true, otherwise `Before`.
    SharedIf(&'static str),
}

impl NormPlaces {
    /// Both before each branch and on its output, with Gemma's names.
    pub const AROUND: Self = Self::Around([
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ]);
}

/// Norms of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QkNorm {
    None,
    /// Per head, one gain for all heads.
    Head,
    /// Over the whole projection.
    Whole,
    /// Per head, one gain for all heads, after the rotation.
    HeadAfterRope,
    /// Per head, without a gain.
    Bare,
    /// Per head, without a gain, after the rotation.
    BareAfterRope,
    /// Unless the key is false: per head, without a gain, after the rotation.
    BareAfterRopeIf(&'static str),
    /// If the key is true: per head, one gain for all heads.
    HeadIf(&'static str),
    /// If the key is true: per head, one gain and one bias for all heads.
    BiasedHeadIf(&'static str, bool),
    /// If the key is true: per head with its own gain, stored as one matrix.
    OwnGainsIf(&'static str),
    /// Layer norms per head with a gain and a bias of each head, stored as matrices.
    CentredByHead,
    /// If the key is true: per head with its own gain, stored one by one.
    ListedGainsIf(&'static str),
}

impl QkNorm {
    /// Whether the rotation comes first.
    pub fn is_after_rope(self) -> bool {
        matches!(
            self,
            Self::HeadAfterRope | Self::BareAfterRope | Self::BareAfterRopeIf(_)
        )
    }
}

/// How the feed-forward block is stored.
#[derive(Debug, Clone)]
pub enum MlpStore {
    /// Gate, up and down.
    Gated(GatedNames),
    /// Gate and up in one tensor, the gate first.
    FusedGated,
    /// Up and down, without a gate.
    Plain {
        up: &'static str,
        down: &'static str,
    },
    /// Up and down, without a gate, and an activation whose learned parameters have this name.
    Learned(&'static str),
}

/// How queries, keys and values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QkvStore {
    Apart,
    /// All queries, then all keys, then all values, in one tensor.
    Stacked,
    /// Query, key and value head by head, in one tensor.
    PerHead,
}

/// Names of a block that differ between families.
#[derive(Debug, Clone, Copy)]
pub struct BlockNames {
    /// Name under the layer of the module with queries, keys, values and output.
    pub attn: &'static str,
    pub qkv: &'static str,
    /// Names of queries, keys and values that are stored apart.
    pub apart: [&'static str; 3],
    pub o: &'static str,
    pub final_norm: &'static str,
    /// Name under the layer of the feed-forward block.
    pub mlp: &'static str,
}

impl BlockNames {
    /// The names most families use.
    pub const USUAL: Self = Self {
        attn: "self_attn",
        qkv: "qkv_proj",
        apart: ["q_proj", "k_proj", "v_proj"],
        o: "o_proj",
        final_norm: "norm",
        mlp: "mlp",
    };
}

/// A factor and where its value comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FactorRule {
    One,
    /// √d_model.
    RootWidth,
    /// √d_model if the key is true, otherwise 1.
    RootWidthIf(&'static str),
    Key(&'static str, f64),
    /// The key's value; 1 if it is absent or null.
    KeyIfStated(&'static str),
    /// 1 / the key's value.
    InverseKey(&'static str, f64),
}

impl FactorRule {
    pub(super) fn read(
        self,
        reader: &mut Reader<'_>,
        knob: &'static str,
        d_model: usize,
    ) -> Result<f32> {
        let factor = match self {
            Self::One => 1.0,
            Self::RootWidthIf(key) if !reader.flag_or(knob, key, false)? => 1.0,
            Self::RootWidth | Self::RootWidthIf(_) => {
                let factor = (d_model as f64).sqrt();
                reader.note(knob, factor, Origin::Derived("sqrt(d_model)".to_owned()));
                factor
            }
            Self::Key(key, default) => reader.number_or(knob, key, default)?,
            Self::KeyIfStated(key) => reader.number_or_none(knob, key, None)?.unwrap_or(1.0),
            Self::InverseKey(key, default) => {
                let divisor = reader.number_or(knob, key, default)?;
                if divisor == 0.0 {
                    let problem = "expected a number other than 0, found 0";
                    return Err(Error::config(reader.path(), key, problem));
                }
                1.0 / divisor
            }
        };
        Ok(factor as f32)
    }
}

/// Which layers use the rotary embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeLayers {
    All,
    Never,
    /// All if this key is `rope`, none if it is null.
    IfNamed(&'static str),
    /// Layers with a window.
    Windowed,
    /// Layers with a window, or all if this key is null.
    WindowedUnlessNull(&'static str),
    /// Layers whose entry in this list is not 0; without the list, all except every n-th.
    Listed(&'static str, usize),
    /// As `Listed`, but an empty list counts as absent.
    ListedIfAny(&'static str, usize),
}

/// A separate rotary embedding for layers with a window.
#[derive(Debug, Clone, Copy)]
pub struct LocalRope {
    /// The key of its base; `None` if the base is constant.
    pub theta_key: Option<&'static str>,
    pub theta: f64,
}

/// How far a window of some width reaches where it has two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TwoSided {
    HalfEitherWay,
    WholeEitherWay,
    /// As many keys as a window that reaches back: of an even number, one more ahead.
    SameNumber,
}

impl TwoSided {
    pub(super) fn of(self, window: Window) -> Window {
        match self {
            Self::HalfEitherWay => window.to_both_sides(|width| width / 2),
            Self::WholeEitherWay => window.to_both_sides(|width| width),
            Self::SameNumber => window.centred(),
        }
    }
}

/// How a family differs from Llama.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub theta: f64,
    /// The share of a head that rotates if `partial_rotary_factor` is absent; `None` for the whole head.
    pub rotary_share: Option<f64>,
    pub yarn_is_long: bool,
    pub interleaved: bool,
    pub local_rope: Option<LocalRope>,
    pub rope_layers: RopeLayers,
    pub norm: NormStyle,
    pub norm_places: NormPlaces,
    pub qk_norm: QkNorm,
    pub qkv_bias: BiasRule,
    pub o_bias: BiasRule,
    pub mlp_bias: BiasRule,
    pub qkv: QkvStore,
    pub names: BlockNames,
    pub clips_qkv: bool,
    pub activation: (&'static str, &'static str),
    pub mlp: MlpStore,
    pub is_tied: bool,
    pub embed_scale: FactorRule,
    pub branch_scale: FactorRule,
    pub logit_scale: FactorRule,
    /// The key of the factor of scores, and how it counts; 1/√d_head if `None`.
    pub score_factor: Option<(&'static str, ScorePower)>,
    /// Key of the cap of scores, with its default; 0 is no cap.
    pub score_cap: Option<(&'static str, f64)>,
    /// The same of logits.
    pub logit_cap: Option<(&'static str, f64)>,
    pub window: WindowRule,
    pub has_sinks: bool,
    /// Names of the norms inside the branches: between the heads and the output map, and before the down projection.
    pub sub_norms: Option<[&'static str; 2]>,
    /// Name of the map whose sigmoid multiplies the outputs of the heads.
    pub head_gate: Option<&'static str>,
    pub is_causal: bool,
    /// The key that makes attention bidirectional.
    pub both_sides: Option<&'static str>,
    /// What a window becomes where attention is bidirectional.
    pub two_sided: TwoSided,
    /// The head width if `head_dim` is absent; d_model / n_heads if `None`.
    pub d_head: Option<usize>,
    /// Experts, in all or some layers.
    pub experts: Option<ExpertsKeys>,
    /// Queries are scaled by position far into a text, by a key inside the rotary parameters.
    pub scales_with_position: bool,
    /// Keys that the family does not support, and why.
    pub forbidden_keys: &'static [(&'static str, &'static str)],
    /// Keys with only one value that the family reads.
    pub expected_keys: &'static [(&'static str, Expected)],
    /// Whether rotary parameters are required: transformers would otherwise use factors that no file states.
    pub requires_rope_parameters: bool,
    /// Prefix of tensor names; found by probing if `None`.
    pub base: Option<&'static str>,
}

/// The power of a score factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScorePower {
    AsIs,
    /// As is; 1/√d_head if the key is absent.
    AsIsIfStated,
    InverseRoot,
    /// 1 / its root; 1/√d_head if the key is absent.
    InverseRootIfStated,
    /// Divided by √d_head.
    OverRoot,
    /// Always 1; the key is read and ignored.
    One,
}

impl Recipe {
    /// Llama itself.
    pub fn llama() -> Self {
        Self {
            theta: 10_000.0,
            rotary_share: None,
            yarn_is_long: false,
            interleaved: false,
            local_rope: None,
            rope_layers: RopeLayers::All,
            norm: RMS,
            norm_places: NormPlaces::Before,
            qk_norm: QkNorm::None,
            qkv_bias: BiasRule::Never,
            o_bias: BiasRule::Never,
            mlp_bias: BiasRule::Never,
            qkv: QkvStore::Apart,
            names: BlockNames::USUAL,
            clips_qkv: false,
            activation: ("hidden_act", "silu"),
            mlp: MlpStore::Gated(USUAL),
            is_tied: false,
            embed_scale: FactorRule::One,
            branch_scale: FactorRule::One,
            logit_scale: FactorRule::One,
            score_factor: None,
            score_cap: None,
            logit_cap: None,
            window: WindowRule::Never,
            has_sinks: false,
            sub_norms: None,
            head_gate: None,
            is_causal: true,
            both_sides: None,
            two_sided: TwoSided::HalfEitherWay,
            d_head: None,
            experts: None,
            scales_with_position: false,
            forbidden_keys: &[],
            expected_keys: &[],
            requires_rope_parameters: false,
            base: None,
        }
    }
}
