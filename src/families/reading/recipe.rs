//! What a family of Llama's kind changes, as data: one field per quirk.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::NormSource;

use super::bias_rule::BiasRule;
use super::experts::{ExpertsKeys, GatedNames, USUAL};
use super::windows::WindowRule;

/// The norms of a family.
#[derive(Debug, Clone, Copy)]
pub struct NormStyle {
    pub kind: NormKind,
    /// The key that states epsilon; `None` where it is fixed.
    pub eps_key: Option<&'static str>,
    pub eps: f64,
    pub adds_one: bool,
    pub has_gain: bool,
    pub has_bias: bool,
}

/// Root mean square, epsilon stated.
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

/// Where norms stand in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormPlaces {
    /// Before each branch.
    Before,
    /// On the output of each branch.
    Output,
    /// Both.
    Around,
    /// Before each branch, under names that say which branch a norm stands before.
    BeforeByBranch,
    /// Before each branch, under these names.
    BeforeNamed([&'static str; 2]),
    /// Both, under names that say which branch a norm follows.
    AroundByBranch,
    /// Both, under names that call attention to the block's own tokens self_attn.
    AroundSelf,
    /// One before both branches, which run side by side.
    Shared,
    /// As `Before`, or as `Shared` where this key is true.
    SharedIf(&'static str),
}

/// Norms of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QkNorm {
    None,
    /// Over each head, one gain for all.
    Head,
    /// Over the whole projection.
    Whole,
    /// Over each head, one gain for all, after the rotation.
    HeadAfterRope,
    /// Unless the key is false: over each head, without a gain, after the rotation.
    BareAfterRopeIf(&'static str),
    /// Where the key is true: over each head, one gain for all.
    HeadIf(&'static str),
    /// Where the key is true: over each head, one gain and one bias for all.
    BiasedHeadIf(&'static str, bool),
    /// Where the key is true: over each head with a gain of its own, stored as one matrix.
    OwnGainsIf(&'static str),
    /// Where the key is true: over each head with a gain of its own, stored one by one.
    ListedGainsIf(&'static str),
}

/// How the feed-forward layer is stored.
#[derive(Debug, Clone)]
pub enum MlpStore {
    /// Gate, up and down.
    Gated(GatedNames),
    /// Gate and up in one tensor, the gate first.
    FusedGated,
    /// Up and down, no gate.
    Plain {
        up: &'static str,
        down: &'static str,
    },
    /// Up and down, no gate, and an activation with learned curvatures under this name.
    Learned(&'static str),
}

/// How queries, keys and values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QkvStore {
    Apart,
    /// All queries, all keys, all values, in one tensor.
    Stacked,
    /// Query, key and value of each head in turn, in one tensor.
    PerHead,
}

/// Names of a block that some families give otherwise.
#[derive(Debug, Clone, Copy)]
pub struct BlockNames {
    /// Under the layer: where queries, keys, values and output stand.
    pub attn: &'static str,
    pub qkv: &'static str,
    pub o: &'static str,
    pub final_norm: &'static str,
    /// Under the layer: where the feed-forward layer stands.
    pub mlp: &'static str,
}

impl BlockNames {
    /// The names most families use.
    pub const USUAL: Self = Self {
        attn: "self_attn",
        qkv: "qkv_proj",
        o: "o_proj",
        final_norm: "norm",
        mlp: "mlp",
    };
}

/// A factor and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FactorRule {
    One,
    /// √d_model.
    RootWidth,
    Key(&'static str, f64),
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
            Self::RootWidth => {
                let factor = (d_model as f64).sqrt();
                reader.note(knob, factor, Origin::Derived("sqrt(d_model)".to_owned()));
                factor
            }
            Self::Key(key, default) => reader.number_or(knob, key, default)?,
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

/// Which layers rotate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeLayers {
    All,
    Never,
    /// All where this key is `rope`, none where it is null.
    IfNamed(&'static str),
    /// Those with a window.
    Windowed,
    /// Those with a window, or all where this key is null.
    WindowedUnlessNull(&'static str),
    /// Those whose entry in this list is not 0; without the list, all but every n-th.
    Listed(&'static str, usize),
    /// As `Listed`, where an empty list is none.
    ListedIfAny(&'static str, usize),
}

/// A rotary embedding of its own for layers with a window.
#[derive(Debug, Clone, Copy)]
pub struct LocalRope {
    /// The key of its base; a constant where there is none.
    pub theta_key: Option<&'static str>,
    pub theta: f64,
}

/// What a family changes of Llama.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub theta: f64,
    /// The share of a head that rotates where `partial_rotary_factor` states none; all of it where there is no share.
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
    /// The key of the factor of scores, as it is or to the power −1/2; 1/√d_head where there is none.
    pub score_factor: Option<(&'static str, ScorePower)>,
    /// Keys of the caps of scores and logits, with what holds without them.
    pub caps: Option<[(&'static str, f64); 2]>,
    pub window: WindowRule,
    pub has_sinks: bool,
    pub is_causal: bool,
    /// The key that turns attention to both sides; a window then reaches half as far either way.
    pub both_sides: Option<&'static str>,
    /// What holds without `head_dim`; d_model / n_heads where there is nothing.
    pub d_head: Option<usize>,
    /// Experts, in all layers or in some.
    pub experts: Option<ExpertsKeys>,
    /// Queries grow far into a text, as a key inside the rotary parameters says.
    pub grows: bool,
    /// Keys that no model of the family may state, and why.
    pub stateless: &'static [(&'static str, &'static str)],
    /// Whether the rotary parameters have to be stated: without them transformers takes factors that no file states.
    pub states_rope: bool,
    /// What the names of tensors begin with, where it is not found out.
    pub base: Option<&'static str>,
}

/// How a score factor is stated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScorePower {
    AsIs,
    InverseRoot,
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
            caps: None,
            window: WindowRule::Never,
            has_sinks: false,
            is_causal: true,
            both_sides: None,
            d_head: None,
            experts: None,
            grows: false,
            stateless: &[],
            states_rope: false,
            base: None,
        }
    }
}
