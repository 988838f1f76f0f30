//! Turns the description of a model into the spec that runs it.

use attnscope_checkpoint::Tensors;
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::ops::{Activation, NormKind};
use attnscope_spec::{
    BlockSpec, CrossSpec, FeedForward, HeadSpec, LinearSource, Mixer, ModelSpec, NormSource, Part,
    Pooled, ProjectionSpec, StackSpec,
};

use super::parts::{FusedPart, MapPart, NormPart, Per, TANH, name_in_layer, name_of_all_heads};
use super::{Arranged, Cross, Described, NORM_PLACES, Qkv};
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
        self.check_beside()?;
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
            rows: reads.rows().map(Box::new),
            ..StackSpec::only(embed, blocks, final_norm)
        };
        let head = (!self.has_no_head).then(|| reads.head());
        Ok((stack, head))
    }
}

impl Described {
    /// The norm of what is pooled, where that is one row as it is: a norm of all rows is the same then.
    pub(super) fn norm_of_one_row(&self) -> Option<&NormPart> {
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
    pub(super) d_mlp: usize,
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
        if lacks_o && described.n_heads * described.d_value() != d_model {
            return Err(format!(
                "without o, {} heads of {} values must be the {d_model} values of the residual",
                described.n_heads,
                described.d_value()
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
    pub(super) fn vector(&self, template: &str, layer_idx: usize) -> String {
        let name = name_of_all_heads(&name_in_layer(template, layer_idx));
        let flat = flat_name(&name);
        if self.tensors.contains(&flat) {
            flat
        } else {
            name
        }
    }

    pub(super) fn norm(&self, part: &NormPart, layer_idx: usize, width: usize) -> NormSource {
        let kind = match part.kind {
            Some(TANH) => NormKind::Tanh,
            Some("rms") => NormKind::RmsNorm,
            None if self.of.norm_is_rms => NormKind::RmsNorm,
            _ => NormKind::LayerNorm,
        };
        let gain = part.gain.as_ref().map(|gain| self.vector(gain, layer_idx));
        let eps = part.eps.as_ref().and_then(|eps| eps.parse().ok());
        let eps = eps.unwrap_or(self.of.norm_eps);
        NormSource {
            bias: part.bias.as_ref().map(|bias| self.vector(bias, layer_idx)),
            adds_one: self.of.norm_adds_one && gain.is_some(),
            alpha: part
                .alpha
                .as_ref()
                .map(|alpha| self.vector(alpha, layer_idx)),
            ..NormSource::new(kind, eps, width, gain)
        }
    }

    /// A norm of queries or keys: per head if the gain has the width of a head, or says so.
    fn head_norm(
        &self,
        part: &NormPart,
        layer_idx: usize,
        (n_heads, d_head): (usize, usize),
    ) -> NormSource {
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

    /// A norm of what the heads give: of all of them together, or of each by itself.
    fn z_norm(&self, part: &NormPart, layer_idx: usize) -> NormSource {
        let (n_heads, d_value) = (self.of.n_heads, self.of.d_value());
        if part.is_per_head {
            self.head_norm(part, layer_idx, (n_heads, d_value))
        } else {
            self.norm(part, layer_idx, n_heads * d_value)
        }
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
                row: self.block_row().map(Box::new),
                sums: [None, self.sum(1, layer_idx)?],
                ..BlockSpec::mixed(Mixer::None, feed_forward)
            });
        }
        let projections = ProjectionSpec {
            sinks: of.sinks.as_ref().map(|sinks| self.vector(sinks, layer_idx)),
            bucket_values: self.bias_of_layer(layer_idx)?,
            gate: self.out_gate(layer_idx)?,
            z_norm: of.z_norm.as_ref().map(|norm| self.z_norm(norm, layer_idx)),
            norms_each_z: of.z_norm.as_ref().is_some_and(|norm| norm.is_per_head),
            relative: self
                .relative(layer_idx)?
                .map(|(source, _)| Box::new(source)),
            places: self.places(layer_idx)?,
            shared: self.shared(layer_idx).map(Box::new),
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
            row: self.block_row().map(Box::new),
            sums: [self.sum(0, layer_idx)?, self.sum(1, layer_idx)?],
            is_parallel: of.is_parallel,
            resid_factors: match (of.has_no_residual, feed_forward != FeedForward::None) {
                (false, _) => [1.0, 1.0],
                (true, true) => [0.0, 0.0],
                (true, false) => [0.0, 1.0],
            },
            ..BlockSpec::plain(self.attention(layer_idx)?, projections, feed_forward)
        })
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
        let latent = self.latent_widths(layer_idx)?;
        let d_own = of.d_head - latent.map_or(0, |latent| latent.shared);
        let q_in = latent.and_then(|latent| latent.q).unwrap_or(d_model);
        let kv_in = latent.map_or(d_model, |latent| latent.kv);
        let (d_q, d_k) = (of.n_heads * of.d_head, of.n_kv_heads * d_own);
        let (d_z, d_v) = (of.n_heads * of.d_value(), of.n_kv_heads * of.d_value());
        let sizes = |name: &str| match name {
            "q" => d_q,
            "k" => d_k,
            _ => d_v,
        };
        let plain = |part: &MapPart, n_in, n_out| self.map(part, layer_idx, (n_in, n_out), false);
        let [q, k, v] = match qkv {
            Qkv::Separate([q, k, v]) => [
                plain(q, q_in, d_q),
                plain(k, kv_in, d_k),
                plain(v, kv_in, d_v),
            ],
            Qkv::Paired(q, kv) => {
                let fused = plain(&kv.map, kv_in, d_k + d_v);
                [
                    plain(q, q_in, d_q),
                    part_of(kv, &fused, "k", of, sizes),
                    part_of(kv, &fused, "v", of, sizes),
                ]
            }
            Qkv::Fused(all) => {
                let fused = plain(&all.map, d_model, d_q + d_k + d_v);
                if all.per == Per::Unit && (d_q != d_k || d_k != d_v) {
                    return Err("per unit: expected as many keys as queries".to_owned());
                }
                ["q", "k", "v"].map(|name| part_of(all, &fused, name, of, sizes))
            }
        };
        let o = match o {
            Some(o) => self.map(o, layer_idx, (d_z, d_model), true),
            None => self.identity(),
        };
        let norm = |norm: &Option<NormPart>, n_heads| {
            let norm = norm.as_ref();
            norm.map(|norm| self.head_norm(norm, layer_idx, (n_heads, of.d_head)))
        };
        Ok(ProjectionSpec {
            q_norm: norm(q_norm, of.n_heads),
            k_norm: norm(k_norm, of.n_kv_heads),
            norms_after_rope: of.norms_after_rope,
            latent: self.latent(layer_idx)?.map(Box::new),
            ..ProjectionSpec::plain(q, k, v, o)
        })
    }

    /// The map that stands for one which the model does not have.
    pub(super) fn identity(&self) -> LinearSource {
        let d_model = self.sizes.d_model;
        LinearSource::whole(IDENTITY.to_owned(), None, d_model, d_model)
    }

    /// The attention of a block to the encoder's output: of the same heads, open, without positions.
    fn cross(&self, cross: &Cross, layer_idx: usize) -> Result<Box<CrossSpec>, String> {
        let (of, d_model) = (self.of, self.sizes.d_model);
        let attention = AttentionSpec {
            is_cross: true,
            d_value: of.d_value(),
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
}

/// One of the maps in a fused tensor.
pub(super) fn part_of(
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
