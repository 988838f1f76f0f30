//! Pre-norm blocks of encoders like ViT, from the names of their tensors.

use attnscope_checkpoint::Tensors;
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::ops::{Activation, NormKind};
use attnscope_spec::{BlockSpec, FeedForward, LinearSource, MlpSpec, NormSource, ProjectionSpec};

use super::vit_like::{Biases, Names};
use super::{layer_norm, linear, rms_norm, stacked};

/// Builder of a block's projections.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    pub tensors: &'a Tensors,
    pub names: Names,
    pub d_model: usize,
    /// Width of all keys together.
    pub d_keys: usize,
    pub d_mlp: usize,
    pub norm: NormRule,
    pub activation: Activation,
    pub has_qkv_bias: bool,
    pub has_fused_gate: bool,
}

/// Kind and epsilon of a family's norms.
#[derive(Debug, Clone, Copy)]
pub struct NormRule {
    pub kind: NormKind,
    pub eps: f64,
}

impl NormRule {
    /// The norm with this name.
    pub fn named(self, tensors: &Tensors, name: &str, width: usize) -> NormSource {
        match self.kind {
            NormKind::RmsNorm => rms_norm(format!("{name}.weight"), width, self.eps),
            _ => layer_norm(tensors, name, width, self.eps),
        }
    }
}

impl<'a> Block<'a> {
    /// Builds blocks with other names, like one that was read; `None` unless that attends, and has a norm and a dense layer.
    pub(crate) fn like(tensors: &'a Tensors, names: Names, block: &BlockSpec) -> Option<Self> {
        let (own, norm) = (block.own()?, block.attn_pre.as_ref()?);
        let FeedForward::Dense(mlp) = &block.feed_forward else {
            return None;
        };
        Some(Self {
            tensors,
            names,
            d_model: norm.width,
            d_keys: own.projections.k.n_out(),
            d_mlp: mlp.up.n_out(),
            norm: NormRule {
                kind: norm.kind,
                eps: f64::from(norm.eps),
            },
            activation: mlp.activation,
            has_qkv_bias: own.projections.q.bias.is_some(),
            has_fused_gate: false,
        })
    }

    /// A map of the block; a bias that the names leave to the file is one that is stored.
    fn map(&self, name: &str, n_in: usize, n_out: usize, has_bias: bool) -> LinearSource {
        let is_stored = || self.tensors.contains(&format!("{name}.bias"));
        let has_bias = match self.names.biases {
            Biases::Stored => is_stored(),
            Biases::All | Biases::Switch(_) => has_bias,
        };
        linear(name, n_in, n_out, has_bias)
    }

    /// The block whose tensors stand below this name.
    pub(crate) fn read(&self, at: &str, attention: &AttentionSpec) -> BlockSpec {
        let (names, d_model) = (self.names, self.d_model);
        let map = |name: &str| format!("{at}.{name}");
        let one = |name: &str, n: usize| self.map(&map(name), d_model, n, self.has_qkv_bias);
        let scaled = |linear: LinearSource, nth: usize| match names.factors {
            Some(factors) => linear.times(map(factors[nth])),
            None => linear,
        };
        let o = scaled(self.map(&map(names.o), d_model, d_model, true), 0);
        let [q, k, v] = match names.qkv {
            Some(name) => {
                let sizes = [d_model, self.d_keys, self.d_keys];
                stacked(&one(name, sizes.iter().sum()), sizes)
            }
            None => [
                one(names.q, d_model),
                one(names.k, self.d_keys),
                one(names.v, self.d_keys),
            ],
        };
        let mut projections = ProjectionSpec::plain(q, k, v, o);
        if let Some([of_queries, of_keys]) = names.head_norms.map(|both| both.map(map)) {
            projections.q_norm = self.head_norm(&of_queries);
            projections.k_norm = self.head_norm(&of_keys);
        }
        let [first, second] = names
            .norms
            .map(|name| Some(self.norm.named(self.tensors, &map(name), d_model)));
        BlockSpec {
            attn_pre: first,
            mlp_pre: second,
            ..BlockSpec::plain(
                attention.clone(),
                projections,
                FeedForward::Dense(Box::new(self.mlp(at, &scaled))),
            )
        }
    }

    /// The norm of queries or keys, as wide as it is stored.
    fn head_norm(&self, name: &str) -> Option<NormSource> {
        let stored = self.tensors.info(&format!("{name}.weight"))?;
        let width = stored.shape.first().copied().unwrap_or_default();
        Some(self.norm.named(self.tensors, name, width))
    }

    fn mlp(&self, at: &str, scaled: &dyn Fn(LinearSource, usize) -> LinearSource) -> MlpSpec {
        let (d_model, d_mlp) = (self.d_model, self.d_mlp);
        let map = |name: &str| format!("{at}.{name}");
        if !self.has_fused_gate {
            let into = |name: &str| self.map(&map(name), d_model, d_mlp, true);
            let down = scaled(self.map(&map(self.names.down), d_mlp, d_model, true), 1);
            return MlpSpec {
                gate: self.names.gate.map(into),
                ..MlpSpec::plain(into(self.names.up), down, self.activation)
            };
        }
        // One matrix holds the gate first, then up.
        let both = linear(&map("mlp.weights_in"), d_model, 2 * d_mlp, true);
        let half = |nth: usize| {
            both.clone().part(attnscope_spec::Part {
                group: 2 * d_mlp,
                offset: nth * d_mlp,
                len: d_mlp,
            })
        };
        let down = scaled(linear(&map("mlp.weights_out"), d_mlp, d_model, true), 1);
        MlpSpec {
            gate: Some(half(0)),
            ..MlpSpec::plain(half(1), down, self.activation)
        }
    }
}
