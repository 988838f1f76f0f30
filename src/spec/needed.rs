//! Every tensor that a spec reads, with its required shape: checked before anything runs.

use std::collections::BTreeSet;

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::Result;

use crate::mixers::MixerPart;
use crate::recurrent::Recurrence;
use crate::{
    BlockSpec, FeedForward, LinearSource, MlpSpec, ModelSpec, NormSource, PatchSpec, PositionTable,
    ProjectionSpec, StackSpec, TableSource, TokenMixer,
};

/// A tensor's name and shape.
pub type NeededTensor<'a> = (&'a str, Vec<usize>);

impl ModelSpec {
    /// Every tensor the model needs, in the order of computation.
    pub fn needed_tensors(&self) -> Vec<NeededTensor<'_>> {
        let mut needed = Needed::default();
        for stack in &self.stacks {
            needed.embedding(stack);
            stack.blocks().iter().for_each(|block| needed.block(block));
            needed.recurrence(stack);
            needed.norm(stack.final_norm.as_ref());
        }
        needed.0.extend(self.head_tensors());
        needed.0
    }

    /// Tensors of the head.
    pub fn head_tensors(&self) -> Vec<NeededTensor<'_>> {
        let mut needed = Needed::default();
        if let Some(head) = &self.head {
            if let Some(transform) = &head.transform {
                needed.linear(&transform.dense);
                needed.norm(transform.norm.as_ref());
            }
            if let Some(probe) = head.probe.as_deref() {
                needed
                    .0
                    .push((probe.query.as_str(), probe.query_shape.clone()));
                for map in [&probe.q, &probe.k, &probe.v, &probe.o, &probe.up] {
                    needed.linear(map);
                }
                needed.norm(Some(&probe.norm));
            }
            needed.linear(&head.unembed);
            head.second.iter().for_each(|linear| needed.linear(linear));
            needed.vector(head.extra_bias.as_ref(), self.d_vocab);
        }
        needed.0
    }

    /// Checks that every needed tensor is present with its expected shape.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape; the message names the first such tensor.
    pub fn check_tensors(&self, tensors: &Tensors) -> Result<()> {
        self.needed_tensors()
            .iter()
            .try_for_each(|(name, shape)| tensors.expect(name, shape).map(|_| ()))
    }

    /// Tensors of the checkpoint that the model never reads.
    pub fn unused_tensors<'a>(&self, tensors: &'a Tensors) -> Vec<&'a str> {
        let needed: BTreeSet<&str> = self
            .needed_tensors()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let names = tensors.iter().map(|(name, _)| name);
        names.filter(|name| !needed.contains(name)).collect()
    }
}

impl StackSpec {
    /// Tensors that one layer reads.
    pub fn layer_tensors(&self, layer_idx: usize) -> Option<Vec<NeededTensor<'_>>> {
        if self.recurrence().is_some() {
            let mut needed = Needed::default();
            needed.recurrence(self);
            return Some(needed.0);
        }
        Some(self.blocks().get(layer_idx)?.tensors())
    }

    /// Tensors read before the first block.
    pub fn embedding_tensors(&self) -> Vec<NeededTensor<'_>> {
        let mut needed = Needed::default();
        needed.embedding(self);
        needed.0
    }

    pub fn norm_tensors(&self) -> Vec<NeededTensor<'_>> {
        let mut needed = Needed::default();
        needed.norm(self.final_norm.as_ref());
        needed.0
    }
}

impl BlockSpec {
    /// Tensors that the block reads.
    pub fn tensors(&self) -> Vec<NeededTensor<'_>> {
        let mut needed = Needed::default();
        needed.block(self);
        needed.0
    }
}

impl ModelSpec {
    /// Number of multiplications per token in the linear maps of all blocks and of the head.
    pub fn n_multiplications(&self) -> usize {
        let blocks = self.stacks.iter().flat_map(|stack| stack.blocks());
        let maps = blocks.flat_map(BlockSpec::linears);
        let head = self.head.iter().map(|head| &head.unembed);
        maps.chain(head).map(|map| map.n_in * map.n_out()).sum()
    }
}

impl BlockSpec {
    /// Linear maps that run for one token; of the experts, one routed expert and the shared one.
    pub fn linears(&self) -> Vec<&LinearSource> {
        let mut linears = Vec::new();
        let of_cross = self.cross.iter().map(|cross| &cross.projections);
        let of_own = self.own().map(|own| &own.projections);
        for projections in of_own.into_iter().chain(of_cross) {
            linears.extend([&projections.q, &projections.o]);
            if !projections.reuses_keys() {
                linears.extend([&projections.k, &projections.v]);
            }
            if let Some(latent) = &projections.latent {
                linears.extend(latent.q.iter().map(|(linear, _)| linear));
                linears.extend([&latent.kv, &latent.shared_key]);
            }
            linears.extend(&projections.gate);
            let global = projections.global.iter();
            linears.extend(global.flat_map(|maps| maps.linears()));
        }
        let mixer = self.other_mixer().into_iter();
        linears.extend(mixer.flat_map(TokenMixer::linears));
        let narrow = self.narrow.iter();
        linears.extend(narrow.flat_map(|narrow| [&narrow.into, &narrow.out]));
        let streams = self.row.iter().filter_map(|row| row.streams.as_ref());
        linears.extend(streams.flat_map(|streams| streams.linears()));
        let branch = self.by_token.iter();
        linears.extend(branch.flat_map(|branch| branch.linears()));
        linears.extend(self.feed_forward.linears());
        linears
    }
}

impl FeedForward {
    /// Linear maps that run for one token; of the experts, one routed expert and the shared one.
    pub fn linears(&self) -> Vec<&LinearSource> {
        match self {
            Self::Dense(mlp) => mlp.linears().collect(),
            Self::Experts(experts) => {
                let one = experts.experts.iter().take(1).flat_map(MlpSpec::linears);
                let shared = experts.shared.iter().flat_map(|(mlp, _)| mlp.linears());
                let latent = experts.latent.iter().flatten();
                let router = [&experts.router].into_iter();
                router.chain(one).chain(latent).chain(shared).collect()
            }
            Self::None => Vec::new(),
        }
    }
}

impl MlpSpec {
    fn linears(&self) -> impl Iterator<Item = &LinearSource> {
        [&self.up, &self.down].into_iter().chain(&self.gate)
    }
}

#[derive(Default)]
struct Needed<'a>(Vec<NeededTensor<'a>>);

impl<'a> Needed<'a> {
    fn embedding(&mut self, stack: &'a StackSpec) {
        let embed = &stack.embed;
        match (&embed.patches, &embed.sound) {
            (Some(patches), _) => self.patches(patches),
            (None, Some(stem)) => {
                let tensors = stem.tensors().into_iter();
                self.0
                    .extend(tensors.map(|(name, shape)| (name.as_str(), shape)));
            }
            (None, None) => self.table(&embed.tokens),
        }
        if let Some(PositionTable::Stored(table)) = &embed.positions {
            self.table(table);
        }
        embed.token_types.iter().for_each(|table| self.table(table));
        self.norm(embed.norm.as_ref());
        embed
            .projection
            .iter()
            .for_each(|linear| self.linear(linear));
        let streams = stack.rows.iter().filter_map(|rows| rows.streams.as_ref());
        let maps = streams.flat_map(|maps| maps.first.iter().chain(&maps.last));
        maps.for_each(|linear| self.linear(linear));
        stack
            .bucket_values
            .iter()
            .for_each(|table| self.table(table));
    }

    fn patches(&mut self, patches: &'a PatchSpec) {
        self.linear(&patches.projection);
        let learned = patches.firsts.iter();
        self.0
            .extend(learned.map(|learned| (learned.tensor.as_str(), learned.shape.clone())));
        let positions = &patches.positions;
        self.0.push((&positions.tensor, positions.shape.clone()));
    }

    fn recurrence(&mut self, stack: &'a StackSpec) {
        let linears = stack.recurrence().into_iter().flat_map(Recurrence::linears);
        linears.for_each(|linear| self.linear(linear));
    }

    fn block(&mut self, block: &'a BlockSpec) {
        for norm in [&block.attn_pre, &block.attn_out, &block.attn_post] {
            self.norm(norm.as_ref());
        }
        if let Some(own) = block.own() {
            self.projections(&own.projections, own.attention.n_heads);
        }
        let mixer = block.other_mixer().into_iter();
        for part in mixer.flat_map(TokenMixer::parts) {
            match part {
                MixerPart::Map(_, linear) => self.linear(linear),
                MixerPart::Norm(_, norm) => self.norm(Some(norm)),
                MixerPart::Tensor(_, tensor, shape) => self.0.push((tensor, shape)),
            }
        }
        if let Some(cross) = &block.cross {
            self.norm(cross.pre.as_ref());
            self.norm(cross.out.as_ref());
            self.norm(cross.post.as_ref());
            self.projections(&cross.projections, cross.attention.n_heads);
        }
        for norm in [&block.mlp_pre, &block.mlp_out, &block.mlp_post] {
            self.norm(norm.as_ref());
        }
        if let Some(branch) = &block.by_token {
            let (linears, norms, tables) = (branch.linears(), branch.norms(), branch.tables());
            linears.into_iter().for_each(|linear| self.linear(linear));
            norms.into_iter().for_each(|norm| self.norm(Some(norm)));
            tables.into_iter().for_each(|table| self.table(table));
        }
        if let Some(narrow) = &block.narrow {
            self.linear(&narrow.into);
            self.linear(&narrow.out);
            self.norm(Some(&narrow.norm));
        }
        let streams = block.row.as_ref().and_then(|row| row.streams.as_ref());
        if let Some(streams) = streams {
            self.norm(Some(&streams.router_norm));
            let linears = streams.linears().into_iter();
            linears.for_each(|linear| self.linear(linear));
            self.vector(streams.scale.as_ref(), streams.router.n_in);
        }
        self.vector(block.resid_scale.as_ref(), 1);
        match &block.feed_forward {
            FeedForward::Dense(mlp) => self.mlp(mlp),
            FeedForward::Experts(experts) => {
                self.linear(&experts.router);
                if let Some(bias) = &experts.rule.choice_bias {
                    self.0.push((&bias.tensor, bias.shape.clone()));
                }
                self.vector(experts.rule.expert_scales.as_ref(), experts.experts.len());
                let norms = experts.apart.iter().flat_map(|apart| apart.all());
                norms.for_each(|(_, norm)| self.norm(Some(norm)));
                experts.experts.iter().for_each(|mlp| self.mlp(mlp));
                let latent = experts.latent.iter().flatten();
                latent.for_each(|linear| self.linear(linear));
                if let Some((mlp, gate)) = &experts.shared {
                    self.mlp(mlp);
                    gate.iter().for_each(|linear| self.linear(linear));
                }
            }
            FeedForward::None => {}
        }
    }

    fn projections(&mut self, projections: &'a ProjectionSpec, n_heads: usize) {
        for linear in [
            &projections.q,
            &projections.k,
            &projections.v,
            &projections.o,
        ] {
            self.linear(linear);
        }
        let global = projections.global.iter();
        let global = global.flat_map(|maps| maps.linears());
        global.for_each(|linear| self.linear(linear));
        self.norm(projections.q_norm.as_ref());
        self.norm(projections.k_norm.as_ref());
        self.norm(projections.v_norm.as_ref());
        self.vector(projections.sinks.as_ref(), n_heads);
        let difference = projections.difference.iter();
        difference.for_each(|difference| {
            for name in &difference.lambdas {
                self.vector(Some(name), difference.d_head);
            }
        });
        let buckets = projections.bucket_values.iter();
        buckets.for_each(|table| self.table(table));
        if let Some(relative) = &projections.relative {
            self.table(&relative.embeddings);
            self.norm(relative.norm.as_ref());
            let maps = relative.key.iter().chain(&relative.query);
            maps.for_each(|linear| self.linear(linear));
        }
        projections.gate.iter().for_each(|gate| self.linear(gate));
        if let Some(latent) = &projections.latent {
            if let Some((linear, norm)) = &latent.q {
                self.linear(linear);
                self.norm(Some(norm));
            }
            self.linear(&latent.kv);
            self.norm(Some(&latent.kv_norm));
            self.linear(&latent.shared_key);
        }
    }

    fn mlp(&mut self, mlp: &'a MlpSpec) {
        self.linear(&mlp.up);
        mlp.gate.iter().for_each(|linear| self.linear(linear));
        self.linear(&mlp.down);
        if let Some(learned) = &mlp.learned {
            let tensors = learned.tensors().into_iter();
            self.0
                .extend(tensors.map(|(name, shape)| (name.as_str(), shape)));
        }
    }

    fn table(&mut self, table: &'a TableSource) {
        self.0
            .push((&table.tensor, vec![table.n_rows, table.width]));
    }

    fn vector(&mut self, name: Option<&'a String>, n: usize) {
        if let Some(name) = name {
            self.0.push((name, vec![n]));
        }
    }

    fn linear(&mut self, linear: &'a LinearSource) {
        self.0.push((&linear.weight, linear.stored_shape()));
        if let Some(bias) = &linear.bias {
            self.0.push((bias, linear.stored_bias_shape()));
        }
        self.vector(linear.factors.as_ref(), linear.n_out());
    }

    fn norm(&mut self, norm: Option<&'a NormSource>) {
        let Some(norm) = norm else { return };
        for tensor in &norm.gain {
            self.0.push((tensor, norm.gain_shape.clone()));
        }
        if let Some(bias) = &norm.bias {
            self.0.push((bias, norm.gain_shape.clone()));
        }
    }
}
