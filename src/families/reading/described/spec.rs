//! Turns the description of a model into the spec that runs it.

use attnscope_checkpoint::Tensors;
use attnscope_compute::attention::{
    Alibi, AttentionSpec, Bias, Mask, RopeScaling, RopeSpec, Window,
};
use attnscope_compute::ops::{Activation, NormKind};
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, GateRule, HeadSpec, LabelKind, Labels, LinearSource,
    MlpSpec, ModelSpec, NormSource, Part, Pooled, PositionTable, ProjectionSpec, StackSpec,
    TableSource, TransformSpec,
};

use super::parts::{FusedPart, MapPart, NormPart, Per, name_in_layer, name_of_all_heads};
use super::{Arranged, Described, EmbedScale, Mlp, Positions, Qkv};
use crate::reading::activation_by_name;

/// The name for a stored vector of several axes once it is flattened.
pub fn flat_name(name: &str) -> String {
    format!("{name} (as one row)")
}

/// The name of the identity that stands for a map which the model does not have.
pub const IDENTITY: &str = "(identity)";

impl Described {
    /// Builds the spec, with sizes taken from tensor shapes.
    ///
    /// # Errors
    /// When a tensor is missing or two shapes contradict each other, with the problem.
    pub fn spec(&self, tensors: &Tensors) -> Result<ModelSpec, String> {
        let sizes = Sizes::of(self, tensors)?;
        let activation = activation_by_name(&self.activation)
            .ok_or_else(|| format!("activation {:?} is not known", self.activation))?;
        let reads = Reads {
            of: self,
            tensors,
            sizes: &sizes,
            activation,
        };
        let blocks = (0..self.n_layers).map(|layer_idx| reads.block(layer_idx));
        let blocks = blocks.collect::<Result<Vec<BlockSpec>, String>>()?;
        let embed = reads.embed();
        let n_ctx = embed.positions.as_ref().and_then(PositionTable::n_rows);
        let final_norm = self.final_norm.as_ref();
        let final_norm = final_norm.map(|norm| reads.norm(norm, 0, sizes.d_model));
        let stack = StackSpec::only(embed, blocks, final_norm);
        let head = (!self.has_no_head).then(|| reads.head());
        let predicts_tokens = head.as_ref().is_some_and(|head| head.labels.is_none());
        Ok(ModelSpec {
            n_ctx,
            is_causal_lm: self.causal && predicts_tokens,
            ..ModelSpec::of_one_stack("described", stack, head)
        })
    }
}

/// Sizes taken from shapes.
struct Sizes {
    d_vocab: usize,
    d_model: usize,
    d_mlp: usize,
}

impl Sizes {
    fn of(described: &Described, tensors: &Tensors) -> Result<Self, String> {
        let shape = |name: &str| {
            let info = tensors.info(name);
            info.map(|info| info.shape.clone())
                .ok_or_else(|| format!("{name}: no tensor has this name"))
        };
        let tokens = shape(&described.tokens)?;
        let [d_vocab, d_model] = tokens.as_slice() else {
            return Err(format!(
                "{}: expected a table [d_vocab, d_model], found {tokens:?}",
                described.tokens
            ));
        };
        let d_mlp = match &described.down {
            None => *d_model,
            Some(down) => {
                let down = name_in_layer(&down.weight, 0);
                let n: usize = shape(&down)?.iter().product();
                if *d_model == 0 || !n.is_multiple_of(*d_model) {
                    return Err(format!(
                        "{down}: {n} values are no matrix of {d_model} outputs"
                    ));
                }
                n / d_model
            }
        };
        if described.o.is_none() && described.n_heads * described.d_head != *d_model {
            return Err(format!(
                "without o, {} heads of {} values must be the {d_model} values of the residual",
                described.n_heads, described.d_head
            ));
        }
        Ok(Self {
            d_vocab: *d_vocab,
            d_model: *d_model,
            d_mlp,
        })
    }
}

struct Reads<'a> {
    of: &'a Described,
    tensors: &'a Tensors,
    sizes: &'a Sizes,
    activation: Activation,
}

impl Reads<'_> {
    fn map(
        &self,
        part: &MapPart,
        layer_idx: usize,
        (n_in, n_out): (usize, usize),
        heads_are_inputs: bool,
    ) -> LinearSource {
        let weight = name_of_all_heads(&name_in_layer(&part.weight, layer_idx));
        let bias = part.bias.as_ref().map(|bias| self.vector(bias, layer_idx));
        match part.arranged(heads_are_inputs, false) {
            Arranged::AsItLies => LinearSource::whole(weight, bias, n_in, n_out),
            Arranged::InputMajor => LinearSource::whole(weight, bias, n_in, n_out).input_major(),
            Arranged::RotationOverride { is_input_major, .. } => {
                let linear = LinearSource::whole(part.arranged_name(&weight), bias, n_in, n_out);
                if is_input_major {
                    linear.input_major()
                } else {
                    linear
                }
            }
        }
    }

    /// The name of a vector, or of its flattened copy if it is stored with several axes.
    fn vector(&self, template: &str, layer_idx: usize) -> String {
        let name = name_of_all_heads(&name_in_layer(template, layer_idx));
        let flat = flat_name(&name);
        if self.tensors.contains(&flat) {
            flat
        } else {
            name
        }
    }

    fn norm(&self, part: &NormPart, layer_idx: usize, width: usize) -> NormSource {
        let is_rms = part.kind.map_or(self.of.norm_is_rms, |kind| kind == "rms");
        let kind = if is_rms {
            NormKind::RmsNorm
        } else {
            NormKind::LayerNorm
        };
        let gain = part.gain.as_ref().map(|gain| self.vector(gain, layer_idx));
        let eps = part.eps.as_ref().and_then(|eps| eps.parse().ok());
        let eps = eps.unwrap_or(self.of.norm_eps);
        NormSource {
            bias: part.bias.as_ref().map(|bias| self.vector(bias, layer_idx)),
            adds_one: self.of.norm_adds_one && gain.is_some(),
            ..NormSource::new(kind, eps, width, gain)
        }
    }

    /// A norm of queries or keys: per head if the gain has the width of a head.
    fn head_norm(&self, part: &NormPart, layer_idx: usize, n_heads: usize) -> NormSource {
        let d_head = self.of.d_head;
        let stored = part.gain.as_ref().map(|gain| self.vector(gain, layer_idx));
        let n = stored
            .and_then(|name| self.tensors.info(&name))
            .map(|info| info.n_elements());
        let is_of_all = n.is_some_and(|n| n == n_heads * d_head && n_heads > 1);
        self.norm(
            part,
            layer_idx,
            if is_of_all { n_heads * d_head } else { d_head },
        )
    }

    fn attention(&self, layer_idx: usize) -> AttentionSpec {
        let of = self.of;
        let is_windowed = of
            .window_layers
            .is_none_or(|(step, first)| step > 0 && layer_idx % step == first);
        let window = of
            .window
            .filter(|_| is_windowed)
            .map(|width| Window::of_width(width, of.causal));
        AttentionSpec {
            scale: of.scale,
            mask: Mask {
                causal: of.causal,
                window,
                streaming: None,
            },
            softcap: of.softcap,
            bias: match of.computed {
                Positions::Alibi => Bias::Alibi(Alibi {
                    is_both_ways: !of.causal,
                    ..Alibi::new(of.n_heads, 8.0)
                }),
                _ => Bias::None,
            },
            rope: match of.computed {
                Positions::Rotary {
                    theta,
                    interleaved,
                    d_rotary,
                } => Some(RopeSpec {
                    interleaved,
                    scaling: if of.rope_divisors.is_empty() {
                        RopeScaling::None
                    } else {
                        RopeScaling::Long {
                            short: of.rope_divisors.clone(),
                            long: of.rope_divisors.clone(),
                            original_n_ctx: usize::MAX,
                        }
                    },
                    ..RopeSpec::plain(theta, d_rotary)
                }),
                _ => None,
            },
            ..AttentionSpec::plain(of.n_heads, of.n_kv_heads, of.d_head, of.causal)
        }
    }

    fn block(&self, layer_idx: usize) -> Result<BlockSpec, String> {
        let (of, d_model, d_mlp) = (self.of, self.sizes.d_model, self.sizes.d_mlp);
        if of.n_kv_heads == 0 || !of.n_heads.is_multiple_of(of.n_kv_heads) {
            return Err(format!(
                "{} kv heads do not divide {} heads",
                of.n_kv_heads, of.n_heads
            ));
        }
        let (d_q, d_kv) = (of.n_heads * of.d_head, of.n_kv_heads * of.d_head);
        let plain = |part: &MapPart, n_in, n_out| self.map(part, layer_idx, (n_in, n_out), false);
        let [q, k, v] = match &of.qkv {
            Qkv::Separate([q, k, v]) => [
                plain(q, d_model, d_q),
                plain(k, d_model, d_kv),
                plain(v, d_model, d_kv),
            ],
            Qkv::Paired(q, kv) => {
                let fused = plain(&kv.map, d_model, 2 * d_kv);
                let sizes = |_: &str| d_kv;
                [
                    plain(q, d_model, d_q),
                    part_of(kv, &fused, "k", of, sizes),
                    part_of(kv, &fused, "v", of, sizes),
                ]
            }
            Qkv::Fused(all) => {
                let fused = plain(&all.map, d_model, d_q + 2 * d_kv);
                let sizes = |name: &str| if name == "q" { d_q } else { d_kv };
                if all.per == Per::Unit && d_q != d_kv {
                    return Err("per unit: expected as many keys as queries".to_owned());
                }
                ["q", "k", "v"].map(|name| part_of(all, &fused, name, of, sizes))
            }
        };
        let identity = || LinearSource::whole(IDENTITY.to_owned(), None, d_model, d_model);
        let o = match &of.o {
            Some(o) => self.map(o, layer_idx, (d_q, d_model), true),
            None => identity(),
        };
        let down = match &of.down {
            Some(down) => plain(down, d_mlp, d_model),
            None => identity(),
        };
        let maps = of.mlp.as_ref().map(|mlp| match mlp {
            Mlp::Plain(up) => (None, plain(up, d_model, d_mlp)),
            Mlp::Gated(gate, up) => (Some(plain(gate, d_model, d_mlp)), plain(up, d_model, d_mlp)),
            Mlp::Fused(both) => {
                let fused = plain(&both.map, d_model, 2 * d_mlp);
                let sizes = |_: &str| d_mlp;
                let [gate, up] = ["gate", "up"].map(|name| part_of(both, &fused, name, of, sizes));
                (Some(gate), up)
            }
        });
        let feed_forward = match maps {
            None => FeedForward::None,
            Some((gate, up)) => FeedForward::Dense(Box::new(MlpSpec {
                learned: None,
                sparsity: None,
                up,
                gate,
                down,
                activation: self.activation,
                gate_rule: GateRule::Product,
            })),
        };
        let norm = |place: usize| {
            of.norms[place]
                .as_ref()
                .map(|norm| self.norm(norm, layer_idx, d_model))
        };
        let projections = ProjectionSpec {
            q_norm: of
                .q_norm
                .as_ref()
                .map(|norm| self.head_norm(norm, layer_idx, of.n_heads)),
            k_norm: of
                .k_norm
                .as_ref()
                .map(|norm| self.head_norm(norm, layer_idx, of.n_kv_heads)),
            sinks: of.sinks.as_ref().map(|sinks| self.vector(sinks, layer_idx)),
            ..ProjectionSpec::plain(q, k, v, o)
        };
        Ok(BlockSpec {
            attn_pre: norm(0),
            attn_out: norm(1),
            attn_post: norm(2),
            mlp_pre: norm(3),
            mlp_out: norm(4),
            mlp_post: norm(5),
            is_parallel: of.is_parallel,
            resid_factors: match (of.has_no_residual, &of.mlp) {
                (false, _) => [1.0, 1.0],
                (true, Some(_)) => [0.0, 0.0],
                (true, None) => [0.0, 1.0],
            },
            ..BlockSpec::plain(self.attention(layer_idx), projections, feed_forward)
        })
    }

    fn table(&self, name: &str, n_rows: usize) -> TableSource {
        TableSource {
            tensor: name.to_owned(),
            n_rows,
            width: self.sizes.d_model,
        }
    }

    fn embed(&self) -> EmbedSpec {
        let (of, d_model) = (self.of, self.sizes.d_model);
        let stored = |name: &String| {
            let n = self.tensors.info(name).map_or(0, |info| info.n_elements());
            self.table(name, n / d_model)
        };
        let positions = match (&of.positions, of.computed) {
            (Some(name), _) => Some(PositionTable::Stored(stored(name))),
            (None, Positions::Sines(sines)) => Some(PositionTable::Sinusoid(sines)),
            (None, _) => None,
        };
        EmbedSpec {
            scale: match of.embed_scale {
                EmbedScale::SqrtD => (d_model as f64).sqrt() as f32,
                EmbedScale::Factor(factor) => factor as f32,
            },
            positions,
            token_types: of.token_types.as_ref().map(stored),
            norm: of
                .embed_norm
                .as_ref()
                .map(|norm| self.norm(norm, 0, d_model)),
            ..EmbedSpec::plain(self.table(&of.tokens, self.sizes.d_vocab))
        }
    }

    fn head(&self) -> HeadSpec {
        let (of, d_model, d_vocab) = (self.of, self.sizes.d_model, self.sizes.d_vocab);
        let stored = of.unembed.as_ref();
        let stored = stored.and_then(|part| {
            let info = |name: &str| self.tensors.info(name);
            info(&part.weight).or_else(|| info(&part.arranged_name(&part.weight)))
        });
        let n_out = stored.map_or(d_vocab, |info| info.n_elements() / d_model.max(1));
        let unembed = match &of.unembed {
            None => LinearSource::whole(of.tokens.clone(), None, d_model, d_vocab),
            Some(part) => {
                let bias = part.bias.as_ref().map(|bias| self.vector(bias, 0));
                let weight = match part.arranged(false, true) {
                    Arranged::RotationOverride { .. } => part.arranged_name(&part.weight),
                    _ => part.weight.clone(),
                };
                LinearSource::whole(weight, bias, d_model, n_out)
            }
        };
        let labels = (of.pooled.is_some() || n_out != d_vocab).then(|| {
            Box::new(Labels {
                names: (0..n_out).map(|idx| idx.to_string()).collect(),
                kind: if n_out == 1 {
                    LabelKind::Value
                } else {
                    LabelKind::OneOf
                },
                pooled: of.pooled.unwrap_or(Pooled::Every),
            })
        });
        let transform = of.head_dense.as_ref().map(|dense| TransformSpec {
            dense: self.map(dense, 0, (d_model, d_model), false),
            activation: Some(
                of.head_activation
                    .as_deref()
                    .and_then(activation_by_name)
                    .unwrap_or(self.activation),
            ),
            norm: of
                .head_norm
                .as_ref()
                .map(|norm| self.norm(norm, 0, d_model)),
        });
        HeadSpec {
            labels,
            transform,
            scale: of.logit_scale,
            softcap: of.logit_softcap,
            extra_bias: of.logit_bias.as_ref().map(|bias| self.vector(bias, 0)),
            ..HeadSpec::plain(unembed)
        }
    }
}

/// One of the maps in a fused tensor.
fn part_of(
    fused: &FusedPart,
    whole: &LinearSource,
    name: &str,
    of: &Described,
    size: impl Fn(&str) -> usize,
) -> LinearSource {
    let before = fused.order.iter().take_while(|own| **own != name);
    let part = match fused.per {
        Per::All => Part {
            group: fused.order.iter().map(|own| size(own)).sum(),
            offset: before.map(|own| size(own)).sum(),
            len: size(name),
        },
        Per::Head => {
            let of_group = |own: &str| size(own) / of.n_kv_heads;
            Part {
                group: fused.order.iter().map(|own| of_group(own)).sum(),
                offset: before.map(|own| of_group(own)).sum(),
                len: of_group(name),
            }
        }
        Per::Unit => Part {
            group: fused.order.len(),
            offset: before.count(),
            len: 1,
        },
    };
    whole.clone().part(part)
}
