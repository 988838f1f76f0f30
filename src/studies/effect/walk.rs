//! Walks from a logit back through the model, part by part, for direct logit attribution.

use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::vectors::dot;
use attnscope_compute::ops::Ops;
use attnscope_forward::{EmbedPart, Hook, Input, embedding_parts};
use attnscope_spec::{
    BlockSpec, CrossSpec, GateFunction, Model, Place, ProjectionSpec, Stack, StackSpec, SumWeights,
    TransformSpec,
};

use super::attribution_tap::Kept;
use super::block_ends::{end_of_block, of_heads};
use super::frozen::{Frozen, back_through, sum, times};
use super::shares::{Share, ShareOf};

/// State of a walk from a logit back through the model.
pub(super) struct Walk<'a> {
    pub model: &'a Model,
    pub kept: &'a Kept,
    /// Weights that map the residual at this point to the logit. // [d_model]
    pub weights: Vec<f64>,
    pub constant: f64,
    pub shares: Vec<Share>,
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

fn scaled(mut values: Vec<f64>, factor: f64) -> Vec<f64> {
    values.iter_mut().for_each(|value| *value *= factor);
    values
}

/// Multiplies by the weights of the residual (0) or of what a branch adds (1), where a sum has any.
fn weighed(mut values: Vec<f64>, sum: &Option<[Vec<f32>; 2]>, which: usize) -> Vec<f64> {
    if let Some(both) = sum {
        let pairs = values.iter_mut().zip(&both[which]);
        pairs.for_each(|(value, by)| *value *= f64::from(*by));
    }
    values
}

impl Walk<'_> {
    pub fn row(&self, stack: Stack, layer_idx: usize, hook: Hook) -> Result<Vec<f64>> {
        let found = self.kept.rows.get(&(stack, layer_idx, hook));
        let missing = || {
            let name = hook.full_name(stack, layer_idx);
            Error::Setting(format!("{name} was not kept"))
        };
        found.map(|row| wide(row)).ok_or_else(missing)
    }

    fn raw(&self, stack: Stack, layer_idx: usize, hook: Hook) -> Vec<f64> {
        let found = self.kept.raw.get(&(stack, layer_idx, hook));
        found.map_or_else(Vec::new, |row| wide(row))
    }

    pub fn frozen(
        &self,
        norm: &Option<attnscope_spec::NormSource>,
        input: &[f64],
    ) -> Result<Option<Frozen>> {
        let tensors = &self.model.checkpoint.tensors;
        let at = |norm| Frozen::at(tensors, norm, input);
        norm.as_ref().map(at).transpose()
    }

    /// Maps the weights back through a norm on the residual.
    pub fn back_over(&mut self, norm: &Option<Frozen>) {
        if let Some(norm) = norm {
            let (weights, constant) = norm.back(&self.weights);
            self.weights = weights;
            self.constant += constant;
        }
    }

    /// The stored weights of a block's two sums: of the residual, and of what a branch adds.
    fn sums(&self, block: &BlockSpec) -> Result<[Option<[Vec<f32>; 2]>; 2]> {
        let [attn, mlp] = &block.sums;
        let of = |sum: &Option<Box<SumWeights>>| -> Result<Option<[Vec<f32>; 2]>> {
            let Some(sum) = sum else { return Ok(None) };
            let tensors = &self.model.checkpoint.tensors;
            let stored = tensors.expect(&sum.tensor, &sum.shape)?.widen()?;
            Ok(Some(sum.of_both(&stored)))
        };
        Ok([of(attn)?, of(mlp)?])
    }

    /// Weights on a branch's output before its norm, its factor and its weights in the sum.
    fn of_branch(
        &mut self,
        norm: &Option<Frozen>,
        factor: f32,
        sum: &Option<[Vec<f32>; 2]>,
    ) -> Vec<f64> {
        let scaled = weighed(scaled(self.weights.clone(), f64::from(factor)), sum, 1);
        match norm {
            Some(norm) => {
                let (weights, constant) = norm.back(&scaled);
                self.constant += constant;
                weights
            }
            None => scaled,
        }
    }

    /// Adds the shares of all heads of one attention, given the weights on its output.
    fn heads(
        &mut self,
        (grid, layer_idx): (Stack, usize),
        (attention, projections): (&AttentionSpec, &ProjectionSpec),
        (weights, gate): (&[f64], Option<&[f64]>),
    ) -> Result<()> {
        let z = self.row(grid, layer_idx, Hook::Z)?; // [n_heads · d_value]
        let (of_z, constant) =
            back_through(&self.model.checkpoint.tensors, &projections.o, weights)?;
        let tensors = &self.model.checkpoint.tensors;
        self.constant += constant;
        // The scale of a norm that all heads share is frozen.
        let (of_z, constant) = match self.frozen(projections.norm_of_all_z(), &z)? {
            Some(norm) => norm.back(&of_z),
            None => (of_z, 0.0),
        };
        self.constant += constant;
        let of_z = of_heads(tensors, attention, projections, &z, of_z)?;
        let layer = Place::layer(grid, layer_idx);
        let width = attention.d_value;
        // Shares are collected backwards, so the last head comes first.
        for head_idx in (0..attention.n_heads).rev() {
            let columns = head_idx * width..(head_idx + 1) * width;
            let of_head = &of_z[columns.clone()];
            let gated: Vec<f64> = match gate {
                Some(gate) => {
                    let pairs = of_head.iter().zip(&gate[columns.clone()]);
                    pairs.map(|(weight, gate)| weight * gate).collect()
                }
                None => of_head.to_vec(),
            };
            // A norm of the head makes what it takes from one key depend on all others, and so does its own value taken out.
            let by_key = if projections.joins_keys() {
                Vec::new()
            } else {
                self.by_key((grid, layer_idx), attention, head_idx, &gated)
            };
            self.shares.push(Share {
                of: ShareOf::Head,
                place: layer.head(head_idx),
                value: dot(of_head, &z[columns]),
                by_key,
            });
        }
        Ok(())
    }

    /// Share of a head by source position.
    fn by_key(
        &self,
        at: (Stack, usize),
        attention: &AttentionSpec,
        head_idx: usize,
        of_head: &[f64],
    ) -> Vec<f64> {
        let pattern = self.kept.patterns.get(&at).and_then(|row| row.of(head_idx));
        let (Some(pattern), Some((stride, values))) = (pattern, self.kept.values.get(&at)) else {
            return Vec::new();
        };
        let width = attention.d_value;
        let column = attention.kv_head_of(head_idx) * width;
        let keys = values.chunks((*stride).max(1)).zip(&pattern);
        keys.map(|(value, p)| {
            let value = wide(&value[column..column + width]);
            f64::from(*p) * dot(of_head, &value)
        })
        .collect()
    }

    /// Adds the share of one part of a layer.
    fn of_layer(&mut self, of: ShareOf, stack: Stack, layer_idx: usize, value: f64) {
        self.shares.push(Share {
            of,
            place: Place::layer(stack, layer_idx),
            value,
            by_key: Vec::new(),
        });
    }

    /// Walks back over one block: from weights on its output to weights on its input.
    pub fn block(&mut self, stack: Stack, layer_idx: usize, block: &BlockSpec) -> Result<()> {
        let input = self.row(stack, layer_idx, Hook::ResidPre)?;
        let mlp = self.row(stack, layer_idx, Hook::MlpOut)?;
        let own = block.own();
        let attn = self.row(stack, layer_idx, Hook::AttnOut)?;
        // Recompute the block forwards, for the inputs of the norms on the residual.
        let pre = if block.adds_to_normed {
            self.frozen(&block.attn_pre, &input)?
        } else {
            None
        };
        let start = pre
            .as_ref()
            .map_or_else(|| input.clone(), |pre| pre.apply(&input));
        let [attn_factor, mlp_factor] = block.resid_factors.map(f64::from);
        let [attn_sum, mlp_sum] = self.sums(block)?;
        let mut at = weighed(scaled(start, attn_factor), &attn_sum, 0);
        let mut post = None;
        if !block.is_parallel {
            at = sum(&at, &attn);
            post = self.frozen(&block.attn_post, &at)?;
            at = post
                .as_ref()
                .map_or_else(|| at.clone(), |post| post.apply(&at));
        }
        let mut cross_post = None;
        if let Some(cross) = &block.cross {
            let added = self.row(Stack::Cross, layer_idx, Hook::AttnOut)?;
            at = sum(&at, &added);
            cross_post = self.frozen(&cross.post, &at)?;
            at = cross_post
                .as_ref()
                .map_or_else(|| at.clone(), |post| post.apply(&at));
        }
        let mlp_pre = if block.adds_to_normed {
            self.frozen(&block.mlp_pre, &at)?
        } else {
            None
        };
        at = mlp_pre
            .as_ref()
            .map_or_else(|| at.clone(), |pre| pre.apply(&at));
        at = weighed(scaled(at, mlp_factor), &mlp_sum, 0);
        if block.is_parallel {
            at = sum(&at, &attn);
        }
        at = sum(&at, &mlp);
        let mlp_post = self.frozen(&block.mlp_post, &at)?;
        at = mlp_post
            .as_ref()
            .map_or_else(|| at.clone(), |post| post.apply(&at));

        // Now walk backwards.
        let after = self.row(stack, layer_idx, Hook::ResidPost)?;
        let tensors = &self.model.checkpoint.tensors;
        let by_token = end_of_block(tensors, block, &mut self.weights, [&at, &after])?;
        self.back_over(&mlp_post);
        let mlp_out = self.frozen(&block.mlp_out, &self.raw(stack, layer_idx, Hook::MlpOut))?;
        let of_mlp = dot(&self.weights, &mlp);
        let before = self.constant;
        let _ = self.of_branch(&mlp_out, block.branch_scales[1], &mlp_sum);
        // The constant from the norm's bias belongs to the biases. The block's by-token term is counted with the feed-forward
        // block.
        let value = of_mlp - (self.constant - before) + by_token;
        self.of_layer(ShareOf::FeedForward, stack, layer_idx, value);
        let of_attn = block.is_parallel.then(|| self.weights.clone());
        let weights = scaled(std::mem::take(&mut self.weights), mlp_factor);
        self.weights = weighed(weights, &mlp_sum, 0);
        self.back_over(&mlp_pre);
        if let Some(cross) = &block.cross {
            self.back_over(&cross_post);
            let raw = self.raw(Stack::Cross, layer_idx, Hook::AttnOut);
            let out = self.frozen(&cross.out, &raw)?;
            let weights = self.of_branch(&out, 1.0, &None);
            self.cross(layer_idx, cross, &weights)?;
        }
        if !block.is_parallel {
            self.back_over(&post);
        }
        let attn_out = self.frozen(&block.attn_out, &self.raw(stack, layer_idx, Hook::AttnOut))?;
        let here = self.weights.clone();
        if let Some(of_attn) = of_attn {
            self.weights = of_attn;
        }
        let (of_mixer, before) = (dot(&self.weights, &attn), self.constant);
        let weights = self.of_branch(&attn_out, block.branch_scales[0], &attn_sum);
        match own {
            Some(own) => {
                let maps = (&own.attention, &own.projections);
                let gate = self.gate(&block.attn_pre, maps, &input)?;
                let n_shares = self.shares.len();
                self.heads((stack, layer_idx), maps, (&weights, gate.as_deref()))?;
                if block.parallel_mixer.is_some() {
                    let of_heads = &self.shares[n_shares..];
                    let of_heads: f64 = of_heads.iter().map(|share| share.value).sum();
                    let value = of_mixer - of_heads - (self.constant - before);
                    self.of_layer(ShareOf::Mixer, stack, layer_idx, value);
                }
            }
            None => {
                let value = of_mixer - (self.constant - before);
                self.of_layer(ShareOf::Mixer, stack, layer_idx, value);
            }
        }
        self.weights = weighed(scaled(here, attn_factor), &attn_sum, 0);
        self.back_over(&pre);
        Ok(())
    }

    fn cross(&mut self, layer_idx: usize, cross: &CrossSpec, weights: &[f64]) -> Result<()> {
        let maps = (&cross.attention, &cross.projections);
        self.heads((Stack::Cross, layer_idx), maps, (weights, None))
    }

    /// Gate values that multiply the head outputs at the position; `None` without a gate.
    fn gate(
        &self,
        pre: &Option<attnscope_spec::NormSource>,
        (attention, projections): (&AttentionSpec, &ProjectionSpec),
        input: &[f64],
    ) -> Result<Option<Vec<f64>>> {
        let Some(gate) = &projections.gate else {
            return Ok(None);
        };
        let norm = self.frozen(pre, input)?;
        let normed = norm.map_or_else(|| input.to_vec(), |norm| norm.apply(input));
        let tensors = &self.model.checkpoint.tensors;
        let latent = projections
            .latent
            .as_ref()
            .filter(|latent| latent.q_reads_both);
        let read = match latent.and_then(|latent| latent.q.as_ref()) {
            Some((down, norm)) => {
                let latent = times(tensors, down, &normed)?;
                let behind = Frozen::at(tensors, norm, &latent)?.apply(&latent);
                [behind, latent].concat()
            }
            None => normed,
        };
        let outputs = times(tensors, gate, &read)?;
        let factor = |v: f64| match projections.gate_function {
            GateFunction::Sigmoid => 1.0 / (1.0 + (-v).exp()),
            GateFunction::Softplus => v.max(0.0) + (-v.abs()).exp().ln_1p(),
        };
        let is_by_head = gate.n_out() == attention.n_heads;
        let n = if is_by_head { attention.d_value } else { 1 };
        let factors = outputs
            .iter()
            .flat_map(|v| std::iter::repeat_n(factor(*v), n));
        Ok(Some(factors.collect()))
    }

    /// Walks back over the LM head's own linear layer.
    pub fn transform(&mut self, spec: &TransformSpec, hidden: &[f64]) -> Result<()> {
        let tensors = &self.model.checkpoint.tensors;
        if let Some(norm) = &spec.norm {
            let dense = times(tensors, &spec.dense, hidden)?;
            let norm = Frozen::at(tensors, norm, &dense)?;
            self.back_over(&Some(norm));
        }
        let (weights, constant) = back_through(tensors, &spec.dense, &self.weights)?;
        self.weights = weights;
        self.constant += constant;
        Ok(())
    }

    /// Walks back over the embedding, given the weights on the first block's input.
    pub fn embedding<O: Ops>(
        &mut self,
        ops: &O,
        stack: &StackSpec,
        input: &Input,
        position_idx: usize,
    ) -> Result<()> {
        let tensors = &self.model.checkpoint.tensors;
        let spec = &stack.embed;
        let projection = spec.projection.as_ref().filter(|_| !spec.projects_first);
        let parts = embedding_parts(ops, self.model, stack, &input.sequence, position_idx)?;
        let mut all: Vec<f64> = vec![0.0; parts.first().map_or(0, |(_, row)| row.len())];
        for (_, row) in &parts {
            all = sum(&all, &wide(row));
        }
        // A norm that comes before positions is part of the token's share.
        let norm = match &spec.norm {
            Some(_) if spec.norms_before_positions => None,
            norm => norm.clone(),
        };
        // Walk back through the norm and the projection, in reverse order.
        if let Some(linear) = projection.filter(|_| spec.norms_projected) {
            let norm = self.frozen(&norm, &times(tensors, linear, &all)?)?;
            self.back_over(&norm);
        }
        if let Some(linear) = projection {
            let (weights, constant) = back_through(tensors, linear, &self.weights)?;
            self.weights = weights;
            self.constant += constant;
        }
        if projection.is_none() || !spec.norms_projected {
            let norm = self.frozen(&norm, &all)?;
            self.back_over(&norm);
        }
        for (part, row) in parts.iter().rev() {
            self.shares.push(Share {
                of: match part {
                    EmbedPart::Token => ShareOf::TokenEmbedding,
                    EmbedPart::Position => ShareOf::PositionEmbedding,
                    EmbedPart::TokenType => ShareOf::TokenTypeEmbedding,
                },
                place: Place::MODEL,
                value: dot(&self.weights, &wide(row)),
                by_key: Vec::new(),
            });
        }
        Ok(())
    }
}
