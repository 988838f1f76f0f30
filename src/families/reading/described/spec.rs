//! Turns the description of a model into the spec that runs it.

use attnscope_checkpoint::Tensors;
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::ops::{Activation, NormKind};
use attnscope_spec::{
    BlockSpec, CrossSpec, FeedForward, GateRule, HeadSpec, LabelKind, Labels, LinearSource, Mixer,
    MlpSpec, ModelSpec, NormSource, Part, Pooled, ProjectionSpec, StackSpec, TransformSpec,
};

use super::parts::{FusedPart, MapPart, NormPart, Per, name_in_layer, name_of_all_heads};
use super::{Arranged, Cross, Described, Mlp, NORM_PLACES, Qkv};
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
        let (stack, head) = self.stack(tensors)?;
        let n_ctx = self.n_ctx(&stack, tensors);
        let predicts_tokens = head.as_ref().is_some_and(|head| head.labels.is_none());
        let d_model = width_of(&stack);
        let n_out = head.as_ref().map(|head| head.unembed.n_out());
        let d_vocab = match self.values {
            Some(_) => n_out.unwrap_or(d_model),
            None => stack.embed.tokens.n_rows,
        };
        let n_ctx = match self.patches {
            Some(_) => Some(d_vocab),
            None => n_ctx,
        };
        let only = ModelSpec {
            n_ctx,
            d_model,
            d_vocab,
            is_causal_lm: self.causal && predicts_tokens,
            ..ModelSpec::of_one_stack("described", stack, head)
        };
        match &self.encoder {
            None => Ok(only),
            Some(encoder) => encoder.before(only, tensors),
        }
    }

    /// The stack alone, and the head that reads it.
    pub(super) fn stack(&self, tensors: &Tensors) -> Result<(StackSpec, Option<HeadSpec>), String> {
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
        let embed = reads.embed()?;
        let final_norm = self.final_norm.as_ref().or(self.norm_of_one_row());
        let final_norm = final_norm.map(|norm| reads.norm(norm, 0, sizes.d_model));
        let stack = StackSpec {
            bucket_values: reads.bias_of_all_layers()?,
            ..StackSpec::only(embed, blocks, final_norm)
        };
        let head = (!self.has_no_head).then(|| reads.head());
        Ok((stack, head))
    }
}

impl Described {
    /// The norm of what is pooled, where that is one row as it is: a norm of all rows is the same then.
    fn norm_of_one_row(&self) -> Option<&NormPart> {
        let is_one_row = matches!(self.pooled, Some(Pooled::First | Pooled::Last(_)));
        self.pooled_norm.as_ref().filter(|_| is_one_row)
    }
}

/// Width of the residual of a stack.
pub(super) fn width_of(stack: &StackSpec) -> usize {
    let projection = stack.embed.projection.as_ref();
    projection.map_or(stack.embed.tokens.width, LinearSource::n_out)
}

/// Sizes taken from shapes.
pub(super) struct Sizes {
    pub(super) d_vocab: usize,
    pub(super) d_model: usize,
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
        let of_pictures = described.patches.as_ref();
        let of_pictures = of_pictures.map(|patches| Some([0, patches.d_model(tensors)?]));
        let found = of_pictures.unwrap_or_else(|| described.table_shape(&tokens));
        let Some([d_vocab, d_model]) = found else {
            return Err(format!(
                "{}: expected a table [d_vocab, d_model], found {tokens:?}",
                described.tokens
            ));
        };
        let d_mlp = match &described.down {
            None => d_model,
            Some(down) => {
                let has_experts = |idx: &usize| {
                    described
                        .experts
                        .as_ref()
                        .is_some_and(|own| own.are_in(*idx))
                };
                let is_dense = |idx: &usize| described.has("down", *idx) && !has_experts(idx);
                let dense = (0..described.n_layers).find(is_dense);
                let down = name_in_layer(&down.weight, dense.unwrap_or(0));
                let n: usize = shape(&down)?.iter().product();
                if d_model == 0 || !n.is_multiple_of(d_model) {
                    return Err(format!(
                        "{down}: {n} values are no matrix of {d_model} outputs"
                    ));
                }
                n / d_model
            }
        };
        let lacks_map =
            described.o.is_none() || described.mlp.is_some() && described.down.is_none();
        if let Some(key) = described.reads_no_tokens() {
            if lacks_map {
                return Err(format!("{key}: expected o and down beside it"));
            }
            if !described.has_no_head && described.unembed.is_none() {
                return Err(format!(
                    "{key}: expected unembed beside it, or head = \"none\""
                ));
            }
        }
        let cross = described.cross.as_ref();
        let lacks_o = described.o.is_none() || cross.is_some_and(|cross| cross.o.is_none());
        if lacks_o && described.n_heads * described.d_head != d_model {
            return Err(format!(
                "without o, {} heads of {} values must be the {d_model} values of the residual",
                described.n_heads, described.d_head
            ));
        }
        Ok(Self {
            d_vocab,
            d_model,
            d_mlp,
        })
    }
}

pub(super) struct Reads<'a> {
    pub(super) of: &'a Described,
    pub(super) tensors: &'a Tensors,
    pub(super) sizes: &'a Sizes,
    pub(super) activation: Activation,
}

impl Reads<'_> {
    pub(super) fn map(
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

    pub(super) fn norm(&self, part: &NormPart, layer_idx: usize, width: usize) -> NormSource {
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

    /// A norm of queries or keys: per head if the gain has the width of a head, or says so.
    fn head_norm(&self, part: &NormPart, layer_idx: usize, n_heads: usize) -> NormSource {
        let d_head = self.of.d_head;
        let stored = part.gain.as_ref().map(|gain| self.vector(gain, layer_idx));
        let n = stored
            .and_then(|name| self.tensors.info(&name))
            .map(|info| info.n_elements());
        let is_of_all = n.is_some_and(|n| n == n_heads * d_head && n_heads > 1);
        if part.is_per_head && is_of_all {
            return NormSource {
                gain_shape: vec![n_heads * d_head],
                ..self.norm(part, layer_idx, d_head)
            };
        }
        self.norm(
            part,
            layer_idx,
            if is_of_all { n_heads * d_head } else { d_head },
        )
    }

    fn block(&self, layer_idx: usize) -> Result<BlockSpec, String> {
        let (of, d_model) = (self.of, self.sizes.d_model);
        if of.n_kv_heads == 0 || !of.n_heads.is_multiple_of(of.n_kv_heads) {
            return Err(format!(
                "{} kv heads do not divide {} heads",
                of.n_kv_heads, of.n_heads
            ));
        }
        let norm = |place: usize| {
            let norm = of.norms[place].as_ref();
            let norm = norm.filter(|_| of.has(NORM_PLACES[place], layer_idx));
            norm.map(|norm| self.norm(norm, layer_idx, d_model))
        };
        if !of.attention_layers.have(layer_idx) {
            let feed_forward = self.feed_forward(layer_idx)?;
            return Ok(BlockSpec {
                mlp_pre: norm(3),
                mlp_out: norm(4),
                mlp_post: norm(5),
                ..BlockSpec::mixed(Mixer::None, feed_forward)
            });
        }
        let projections = ProjectionSpec {
            sinks: of.sinks.as_ref().map(|sinks| self.vector(sinks, layer_idx)),
            bucket_values: self.bias_of_layer(layer_idx)?,
            gate: self.out_gate(layer_idx)?,
            ..self.projections(layer_idx, &of.qkv, &of.o, [&of.q_norm, &of.k_norm])?
        };
        let feed_forward = self.feed_forward(layer_idx)?;
        let cross = of.cross.as_ref().map(|cross| self.cross(cross, layer_idx));
        Ok(BlockSpec {
            attn_pre: norm(0),
            attn_out: norm(1),
            attn_post: norm(2),
            mlp_pre: norm(3),
            mlp_out: norm(4),
            mlp_post: norm(5),
            cross: cross.transpose()?,
            is_parallel: of.is_parallel,
            resid_factors: match (of.has_no_residual, feed_forward != FeedForward::None) {
                (false, _) => [1.0, 1.0],
                (true, true) => [0.0, 0.0],
                (true, false) => [0.0, 1.0],
            },
            ..BlockSpec::plain(self.attention(layer_idx)?, projections, feed_forward)
        })
    }

    /// The feed-forward layer of a block.
    fn feed_forward(&self, layer_idx: usize) -> Result<FeedForward, String> {
        let (of, d_model, d_mlp) = (self.of, self.sizes.d_model, self.sizes.d_mlp);
        if !of.feed_forward_layers.have(layer_idx) {
            return Ok(FeedForward::None);
        }
        let plain = |part: &MapPart, n_in, n_out| self.map(part, layer_idx, (n_in, n_out), false);
        let down = match &of.down {
            Some(down) => plain(down, d_mlp, d_model),
            None => self.identity(),
        };
        let mlp = of.mlp.as_ref();
        let maps = mlp.map(|mlp| self.first_maps(mlp, d_mlp, plain));
        let experts = of.experts.as_ref().filter(|own| own.are_in(layer_idx));
        Ok(match (experts, maps) {
            (Some(experts), _) => self.experts(experts, layer_idx)?,
            (None, None) => FeedForward::None,
            (None, Some((gate, up))) => FeedForward::Dense(Box::new(MlpSpec {
                learned: None,
                convolution: None,
                hidden_norm: None,
                sparsity: None,
                up,
                gate,
                down,
                activation: self.activation,
                gate_rule: GateRule::Product,
            })),
        })
    }

    /// The gate, if there is one, and the up projection of a feed-forward layer of some width; `map` makes one of their maps.
    pub(super) fn first_maps(
        &self,
        mlp: &Mlp,
        width: usize,
        map: impl Fn(&MapPart, usize, usize) -> LinearSource,
    ) -> (Option<LinearSource>, LinearSource) {
        let d_model = self.sizes.d_model;
        match mlp {
            Mlp::Plain(up) => (None, map(up, d_model, width)),
            Mlp::Gated(gate, up) => (Some(map(gate, d_model, width)), map(up, d_model, width)),
            Mlp::Fused(both) => {
                let fused = map(&both.map, d_model, 2 * width);
                let part = |name| part_of(both, &fused, name, self.of, |_| width);
                (Some(part("gate")), part("up"))
            }
        }
    }

    /// The maps of an attention to the residual, or to the encoder's output, which is as wide.
    fn projections(
        &self,
        layer_idx: usize,
        qkv: &Qkv,
        o: &Option<MapPart>,
        [q_norm, k_norm]: [&Option<NormPart>; 2],
    ) -> Result<ProjectionSpec, String> {
        let (of, d_model) = (self.of, self.sizes.d_model);
        let (d_q, d_kv) = (of.n_heads * of.d_head, of.n_kv_heads * of.d_head);
        let plain = |part: &MapPart, n_in, n_out| self.map(part, layer_idx, (n_in, n_out), false);
        let [q, k, v] = match qkv {
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
        let o = match o {
            Some(o) => self.map(o, layer_idx, (d_q, d_model), true),
            None => self.identity(),
        };
        let norm = |norm: &Option<NormPart>, n_heads| {
            let norm = norm.as_ref();
            norm.map(|norm| self.head_norm(norm, layer_idx, n_heads))
        };
        Ok(ProjectionSpec {
            q_norm: norm(q_norm, of.n_heads),
            k_norm: norm(k_norm, of.n_kv_heads),
            ..ProjectionSpec::plain(q, k, v, o)
        })
    }

    /// The map that stands for one which the model does not have.
    fn identity(&self) -> LinearSource {
        let d_model = self.sizes.d_model;
        LinearSource::whole(IDENTITY.to_owned(), None, d_model, d_model)
    }

    /// The attention of a block to the encoder's output: of the same heads, open, without positions.
    fn cross(&self, cross: &Cross, layer_idx: usize) -> Result<Box<CrossSpec>, String> {
        let (of, d_model) = (self.of, self.sizes.d_model);
        let attention = AttentionSpec {
            is_cross: true,
            scale: of.scale,
            softcap: of.softcap,
            ..AttentionSpec::plain(of.n_heads, of.n_kv_heads, of.d_head, false)
        };
        let heads = [&cross.q_norm, &cross.k_norm];
        let projections = self.projections(layer_idx, &cross.qkv, &cross.o, heads)?;
        let [pre, out, post] = [0, 1, 2].map(|place| {
            let norm = cross.norms[place].as_ref();
            norm.map(|norm| self.norm(norm, layer_idx, d_model))
        });
        Ok(Box::new(CrossSpec {
            pre,
            out,
            post,
            ..CrossSpec::plain(attention, projections)
        }))
    }

    fn head(&self) -> HeadSpec {
        let (of, d_model, d_vocab) = (self.of, self.sizes.d_model, self.sizes.d_vocab);
        // A dense layer before the unembedding may have a width of its own.
        let dense = of.head_dense.as_ref();
        let dense = dense.and_then(|dense| self.tensors.info(&dense.weight));
        let d_last = dense.map_or(d_model, |info| info.n_elements() / d_model.max(1));
        let stored = of.unembed.as_ref();
        let stored = stored.and_then(|part| {
            let info = |name: &str| self.tensors.info(name);
            info(&part.weight).or_else(|| info(&part.arranged_name(&part.weight)))
        });
        let n_out = stored.map_or(d_vocab, |info| info.n_elements() / d_last.max(1));
        let unembed = match &of.unembed {
            None => LinearSource::whole(of.tokens.clone(), None, d_model, d_vocab),
            Some(part) => {
                let bias = part.bias.as_ref().map(|bias| self.vector(bias, 0));
                let weight = match part.arranged(false, true) {
                    Arranged::RotationOverride { .. } => part.arranged_name(&part.weight),
                    _ => part.weight.clone(),
                };
                LinearSource::whole(weight, bias, d_last, n_out)
            }
        };
        let reads_values = of.values.is_some();
        let reads_pictures = of.patches.is_some();
        let is_of_labels =
            of.pooled.is_some() || n_out != d_vocab || reads_values || reads_pictures;
        let labels = is_of_labels.then(|| {
            Box::new(Labels {
                names: (0..n_out).map(|idx| idx.to_string()).collect(),
                kind: if n_out == 1 || reads_values && of.pooled.is_none() {
                    LabelKind::Value
                } else {
                    LabelKind::OneOf
                },
                pooled: of.pooled.unwrap_or(Pooled::Every),
            })
        });
        let transform = of.head_dense.as_ref().map(|dense| TransformSpec {
            dense: self.map(dense, 0, (d_model, d_last), false),
            activation: Some(
                of.head_activation
                    .as_deref()
                    .and_then(activation_by_name)
                    .unwrap_or(self.activation),
            ),
            norm: of.head_norm.as_ref().map(|norm| self.norm(norm, 0, d_last)),
            then: None,
        });
        HeadSpec {
            labels,
            transform,
            pooled_norm: of
                .pooled_norm
                .as_ref()
                .filter(|_| of.final_norm.is_some() || of.norm_of_one_row().is_none())
                .map(|norm| self.norm(norm, 0, d_model)),
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
