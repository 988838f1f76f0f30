//! Weights rounded to a narrower format, as engines do that serve a model. Set by what-ifs, never by a checkpoint.

use std::fmt;

use attnscope_compute::kernels::{BlockFormat, NumberFormat};

use super::block::{BlockSpec, Mixer};
use super::feed_forward::{FeedForward, MlpSpec};
use super::grid_maps::KeyGrid;
use super::head::HeadSpec;
use super::hyper::FoldSpec;
use super::indexer::IndexSource;
use super::norm_source::NormSource;
use super::projection::ProjectionSpec;
use super::rows::{Shortcut, StreamEnds, StreamsSpec};
use super::source::LinearSource;
use super::stack::StackSpec;

/// The format that weights are rounded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightFormat {
    /// Maps, norms and tables, value by value.
    Number(NumberFormat),
    /// Maps of layers alone, as fp8 (e4m3) times a scale: the largest absolute value over 448.
    Fp8(ScaleOver),
    /// Maps of layers, the table of tokens and the head, in blocks of a row, as quantised GGUF files store them.
    Blocks(BlockFormat),
}

/// The weights that share one scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleOver {
    /// A stored matrix; it may hold several maps.
    Map,
    /// The weights of one output.
    Channel,
}

impl WeightFormat {
    /// The format of single values; `None` if values are scaled.
    pub fn number(self) -> Option<NumberFormat> {
        match self {
            Self::Number(format) => Some(format),
            Self::Fp8(_) | Self::Blocks(_) => None,
        }
    }

    /// The format of the table of tokens; `None` if it is left alone.
    fn of_tokens(self) -> Option<Self> {
        (!matches!(self, Self::Fp8(_))).then_some(self)
    }

    /// The format of a head that reads rows of some width. `llama-quantize` gives it at least 6 bits.
    fn of_head(self, width: usize) -> Option<Self> {
        match self {
            Self::Number(_) => Some(self),
            Self::Fp8(_) => None,
            Self::Blocks(BlockFormat::Q8_0) => Some(self),
            Self::Blocks(_) => BlockFormat::Q6K.of_width(width).map(Self::Blocks),
        }
    }

    fn map(self, linear: &mut LinearSource) {
        linear.rounded = Some(self);
        if let Some(then) = linear.then.as_deref_mut() {
            self.map(then);
        }
    }

    fn maps<'a>(self, linears: impl IntoIterator<Item = &'a mut LinearSource>) {
        linears.into_iter().for_each(|linear| self.map(linear));
    }

    /// Rounds maps that engines leave alone when they scale the maps of layers.
    fn spared<'a>(self, linears: impl IntoIterator<Item = &'a mut LinearSource>) {
        if self.number().is_some() {
            self.maps(linears);
        }
    }

    fn fold(self, fold: &mut FoldSpec) {
        match fold {
            FoldSpec::Mean => {}
            FoldSpec::Weighted(weights) => self.spared([&mut weights.map]),
            FoldSpec::Gated(gates) => self.spared([&mut gates.down, &mut gates.up]),
        }
    }

    fn norms<'a>(self, norms: impl IntoIterator<Item = &'a mut NormSource>) {
        for norm in norms {
            norm.rounded = self.number().or(norm.rounded);
            if let Some(gate) = norm.gate.as_deref_mut() {
                self.mlp(gate);
            }
        }
    }

    fn projections(self, spec: &mut ProjectionSpec) {
        self.maps([&mut spec.q, &mut spec.k, &mut spec.v, &mut spec.o]);
        self.maps(&mut spec.gate);
        let norms = [
            &mut spec.q_norm,
            &mut spec.k_norm,
            &mut spec.v_norm,
            &mut spec.z_norm,
        ];
        self.norms(norms.into_iter().flatten());
        if let Some(latent) = &mut spec.latent {
            self.map(&mut latent.kv);
            self.maps(&mut latent.shared_key);
            self.norms([&mut latent.kv_norm]);
            self.norms(&mut latent.shared_key_norm);
            if let Some((map, norm)) = &mut latent.q {
                self.map(map);
                self.norms([norm]);
            }
        }
        if let Some(gate) = &mut spec.bias_gate {
            self.map(gate.map_mut());
        }
        if let Some(relative) = &mut spec.relative {
            self.maps(
                [&mut relative.key, &mut relative.query]
                    .into_iter()
                    .flatten(),
            );
            self.norms(&mut relative.norm);
        }
        let source = spec.indexer.as_mut().map(|indexer| &mut indexer.source);
        if let Some(IndexSource::Own { maps, .. }) = source {
            self.maps(maps.linears_mut());
            self.norms(maps.norms_mut());
        }
        match spec.key_grid.as_deref_mut() {
            Some(KeyGrid::Coarser(reduced)) => self.norms([&mut reduced.norm]),
            Some(KeyGrid::OfBoth(both)) => self.norms([&mut both.norm]),
            Some(KeyGrid::Pooled(pooled)) => {
                self.maps(pooled.linears_mut());
                self.norms(pooled.norms_mut());
            }
            Some(KeyGrid::Finer(pooling)) => self.maps([&mut pooling.residual]),
            Some(KeyGrid::Convolved(inputs)) => self.norms([
                &mut inputs.queries.norm,
                &mut inputs.keys.norm,
                &mut inputs.values.norm,
            ]),
            None => {}
        }
        if let Some(global) = &mut spec.global {
            self.maps([&mut global.q, &mut global.k, &mut global.v]);
        }
        if let Some(experts) = &mut spec.experts {
            self.maps(experts.q.iter_mut().chain(&mut experts.o));
            self.spared([&mut experts.router]);
        }
        if let Some(side) = &mut spec.side {
            self.maps([&mut side.q, &mut side.k, &mut side.v, &mut side.o]);
            self.mlp(&mut side.mlp);
            self.norms([&mut side.attn_post, &mut side.mlp_post]);
        }
    }

    fn mlp(self, mlp: &mut MlpSpec) {
        self.maps([&mut mlp.up, &mut mlp.down]);
        self.maps(&mut mlp.gate);
        self.norms(&mut mlp.hidden_norm);
    }

    fn feed_forward(self, feed_forward: &mut FeedForward) {
        match feed_forward {
            FeedForward::Dense(mlp) => self.mlp(mlp),
            FeedForward::Experts(spec) => {
                spec.experts.iter_mut().for_each(|expert| self.mlp(expert));
                self.spared([&mut spec.router]);
                if let Some((shared, gate)) = &mut spec.shared {
                    self.mlp(shared);
                    self.spared(gate);
                }
                self.maps(spec.latent.iter_mut().flatten());
                if let Some(apart) = &mut spec.apart {
                    let norms = [&mut apart.router, &mut apart.into];
                    self.norms(norms);
                    self.norms([&mut apart.out, &mut apart.shared_out]);
                }
            }
            FeedForward::None => {}
        }
    }
}

impl BlockSpec {
    /// Rounds the block's maps, and for a format of single values its norms.
    pub fn round_weights(&mut self, format: WeightFormat) {
        match &mut self.mixer {
            Mixer::Attention(own) => {
                format.projections(&mut own.projections);
                for variant in &mut own.exceptions.variants {
                    format.projections(&mut variant.projections);
                }
            }
            Mixer::Other(mixer) => format.maps(mixer.linears_mut()),
            Mixer::None => {}
        }
        if let Some(mixer) = &mut self.parallel_mixer {
            format.maps(mixer.linears_mut());
        }
        if let Some(cross) = &mut self.cross {
            format.projections(&mut cross.projections);
            for variant in &mut cross.exceptions.variants {
                format.projections(&mut variant.projections);
            }
            let norms = [&mut cross.pre, &mut cross.out, &mut cross.post];
            format.norms(norms.into_iter().flatten());
        }
        format.feed_forward(&mut self.feed_forward);
        if let Some(narrow) = &mut self.narrow {
            format.maps([&mut narrow.into, &mut narrow.out]);
            format.norms([&mut narrow.norm]);
        }
        if let Some(conformer) = &mut self.conformer {
            format.maps(conformer.linears_mut());
            format.norms(conformer.norms_mut());
        }
        if let Some(bottleneck) = &mut self.bottleneck {
            format.maps(bottleneck.linears_mut());
            format.norms(bottleneck.norms_mut());
        }
        if let Some(branch) = &mut self.by_token {
            format.maps([&mut branch.gate, &mut branch.context, &mut branch.out]);
            format.norms([&mut branch.context_norm, &mut branch.out_norm]);
        }
        let shortcut = self.row.as_mut().and_then(|row| row.shortcut.as_mut());
        if let Some(Shortcut::Begins(layer)) = shortcut {
            format.feed_forward(layer);
        }
        match self.row.as_mut().and_then(|row| row.streams.as_mut()) {
            Some(StreamsSpec::Predicted(streams)) => {
                let maps = [
                    &mut streams.router,
                    &mut streams.predict,
                    &mut streams.correct,
                ];
                format.spared(maps);
                format.norms([&mut streams.router_norm]);
            }
            Some(StreamsSpec::Connected(hyper)) => {
                let branches = hyper.branches.iter_mut();
                format.spared(branches.flat_map(|branch| branch.linears_mut()));
                format.fold(&mut hyper.fold);
            }
            None => {}
        }
        let norms = [
            &mut self.attn_pre,
            &mut self.attn_out,
            &mut self.attn_post,
            &mut self.mlp_pre,
            &mut self.mlp_out,
            &mut self.mlp_post,
        ];
        format.norms(norms.into_iter().flatten());
    }
}

impl StackSpec {
    /// Rounds what stands before and behind the blocks; of formats that are not of single values, the table of tokens alone.
    pub fn round_ends(&mut self, format: WeightFormat) {
        self.embed.rounded = format.of_tokens().or(self.embed.rounded);
        format.spared(&mut self.embed.projection);
        if let Some(made) = &mut self.embed.made {
            format.spared([&mut made.up, &mut made.down]);
        }
        format.norms(&mut self.embed.norm);
        format.norms(&mut self.final_norm);
        format.spared(&mut self.last_map);
        let rows = self.rows.as_mut();
        match rows.and_then(|rows| rows.streams.as_mut()) {
            Some(StreamEnds::Mapped(maps)) => {
                format.spared(maps.first.iter_mut().chain(&mut maps.last));
            }
            Some(StreamEnds::Copied { fold, .. }) => format.fold(fold),
            None => {}
        }
    }
}

impl HeadSpec {
    /// Rounds the head; of formats that are not of single values, the matrix of the vocabulary alone.
    pub fn round_weights(&mut self, format: WeightFormat) {
        let maps = [Some(&mut self.unembed), self.second.as_mut()];
        for map in maps.into_iter().flatten() {
            map.rounded = format.of_head(map.n_in).or(map.rounded);
        }
        format.norms(&mut self.pooled_norm);
        let mut layer = self.transform.as_mut();
        while let Some(transform) = layer {
            format.spared([&mut transform.dense]);
            format.norms(&mut transform.norm);
            layer = transform.then.as_deref_mut();
        }
        if let Some(pooling) = &mut self.pooling {
            format.spared([&mut pooling.q, &mut pooling.k, &mut pooling.v]);
            format.spared([&mut pooling.o, &mut pooling.up]);
            format.norms([&mut pooling.norm]);
        }
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(format) => format.fmt(f),
            Self::Fp8(ScaleOver::Map) => f.write_str("fp8"),
            Self::Fp8(ScaleOver::Channel) => f.write_str("fp8_channel"),
            Self::Blocks(format) => format.fmt(f),
        }
    }
}
