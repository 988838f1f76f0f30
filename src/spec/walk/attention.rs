//! What one attention reads: its projections, a compressed latent, an indexer, and what position adds to scores.

use attnscope_compute::attention::AttentionSpec;

use super::Walk;
use crate::roles::{Division, Heads, Source, Use};
use crate::{
    AddedConvolution, BiasGate, HeadExperts, HeadGrowth, IndexSource, KeyGrid, LatentSharing,
    LinearSource, PairValues, PoolMaps, PooledKeys, ProjectionSpec, SideStream,
};

impl<'a> Walk<'_, 'a> {
    pub(super) fn attention(
        &mut self,
        name: &str,
        spec: &'a AttentionSpec,
        maps: &'a ProjectionSpec,
    ) {
        let rotary = spec.rope.as_ref();
        let rotary = rotary.map_or((0, 0), |rope| (rope.first, rope.d_rotary));
        let heads = |n: usize, width: usize, rotary| Heads { n, width, rotary };
        let q = heads(spec.n_heads, spec.d_head, rotary);
        let k = heads(spec.n_kv_heads, spec.d_head, rotary);
        let v = heads(spec.n_kv_heads, spec.d_value, (0, 0));
        let o = heads(spec.n_heads, spec.d_value, (0, 0));
        // With latent vectors, part of a key is shared by all heads, so rows can be assigned to heads only if heads are
        // complete.
        let whole = |linear: &LinearSource, heads: Heads, division: fn(Heads) -> Division| {
            let is_whole = linear.n_out() == heads.n * heads.width;
            if is_whole {
                division(heads)
            } else {
                Division::None
            }
        };
        self.latent(name, maps);
        self.indexer(name, maps);
        let of_q = whole(&maps.q, q, Division::Rotating);
        self.divided(format_args!("{name}.q"), &maps.q, of_q);
        // Shared keys and values belong to the earlier layer that computes them.
        let used = if maps.reuses_keys() {
            Use::Never
        } else {
            self.used
        };
        self.with_use(used, |walk| {
            let of_k = whole(&maps.k, k, Division::Rotating);
            walk.divided(format_args!("{name}.k"), &maps.k, of_k);
            let of_v = whole(&maps.v, v, Division::Outputs);
            walk.divided(format_args!("{name}.v"), &maps.v, of_v);
        });
        if let Some(KeyGrid::Coarser(reduced)) = maps.key_grid.as_deref() {
            for (nth, (tensor, shape)) in reduced.convolution.tensors().enumerate() {
                self.vector(format_args!("{name}.reduced.{nth}"), tensor, shape);
            }
            self.norm(
                format_args!("{name}.reduced.norm"),
                Some(&reduced.norm),
                None,
            );
        }
        if let Some(KeyGrid::OfBoth(both)) = maps.key_grid.as_deref() {
            self.norm(
                format_args!("{name}.of_encoder.norm"),
                Some(&both.norm),
                None,
            );
        }
        if let Some(pooled) = maps.pooled_keys() {
            self.pools(name, pooled);
        }
        let convolved = maps.convolved_inputs().map(|inputs| inputs.each());
        for (of, input) in convolved.into_iter().flatten() {
            for (nth, (tensor, shape)) in input.convolution.tensors().enumerate() {
                self.vector(format_args!("{name}.convolved_{of}.{nth}"), tensor, shape);
            }
            let key = format_args!("{name}.convolved_{of}.norm");
            self.norm(key, Some(&input.norm), None);
        }
        if let Some(pooling) = maps.query_pooling() {
            self.linear(format_args!("{name}.pooled_residual"), &pooling.residual);
        }
        if let Some(global) = &maps.global {
            let keys = ["global_q", "global_k", "global_v"];
            self.linears(format_args!("{name}."), &keys, global.linears());
        }
        if let Some(difference) = &maps.difference {
            for (what, tensor) in ["q1", "k1", "q2", "k2"].iter().zip(&difference.lambdas) {
                let key = format_args!("{name}.lambda_{what}");
                self.vector(key, tensor, vec![difference.d_head]);
            }
        }
        self.norm(format_args!("{name}.q_norm"), maps.q_norm.as_ref(), Some(q));
        self.growth(name, maps.q_growth.as_deref());
        if let Some(scales) = &maps.head_scales {
            let key = format_args!("{name}.head_scales");
            self.vector(key, &scales.logarithms, scales.shape());
        }
        self.norm(format_args!("{name}.k_norm"), maps.k_norm.as_ref(), Some(k));
        self.norm(format_args!("{name}.v_norm"), maps.v_norm.as_ref(), Some(v));
        let of_keys = maps.kv_convolutions.as_deref();
        self.added_convolutions(&format!("{name}."), ["k", "v"], of_keys);
        self.table(format_args!("{name}.value_rows"), maps.value_rows.as_ref());
        let of_source = maps.source_norm.as_deref();
        self.norm(format_args!("{name}.source_norm"), of_source, None);
        if let Some(places) = &maps.places {
            let both = [("queries", &places.of_queries), ("keys", &places.of_keys)];
            for (what, rows) in both {
                let rows = rows.as_ref();
                let table = rows.and_then(|rows| rows.table());
                self.table(format_args!("{name}.places.{what}"), table);
                if let Some(map) = rows.and_then(|rows| rows.map()) {
                    self.linear(format_args!("{name}.places.{what}.map"), map);
                }
                if let Some(factors) = rows.and_then(|rows| rows.factors()) {
                    self.mlp(&format!("{name}.places.{what}.factors"), factors);
                }
            }
        }
        if let Some(narrowed) = &maps.narrowed {
            self.normed_map(format_args!("{name}.narrowed"), &narrowed.by);
        }
        let (shares, kept) = (maps.own_value_shares.as_ref(), maps.sum_with_kept.as_ref());
        self.optional_vector(
            format_args!("{name}.own_value_shares"),
            shares,
            spec.n_heads,
        );
        self.optional_vector(format_args!("{name}.sum_with_kept"), kept, 2);
        if let Some(tensor) = maps.share_of_values() {
            self.vector(format_args!("{name}.first_values"), tensor, Vec::new());
        }
        self.position(name, maps);
        if let Some(tensor) = &maps.sinks {
            let shape = vec![spec.n_heads];
            let division = Division::Outputs(heads(spec.n_heads, 1, (0, 0)));
            let source = Source::Vector { tensor, shape };
            self.push(format_args!("{name}.sinks"), source, division);
        }
        if let Some(gate) = &maps.gate {
            let is_by_head = gate.n_out() == spec.n_heads;
            let width = if is_by_head { 1 } else { spec.d_value };
            let gates = heads(spec.n_heads, width, (0, 0));
            self.divided(format_args!("{name}.gate"), gate, Division::Outputs(gates));
        }
        self.norm(format_args!("{name}.z_norm"), maps.z_norm.as_ref(), Some(o));
        match &maps.experts {
            None => self.divided(format_args!("{name}.o"), &maps.o, Division::Inputs(o)),
            Some(experts) => self.head_experts(&format!("{name}.experts."), experts),
        }
        if let Some(side) = &maps.side {
            self.side_stream(&format!("{name}.side."), side);
        }
    }

    /// What makes keys of pools, and what picks among them.
    fn pools(&mut self, name: &str, pooled: &'a PooledKeys) {
        for (what, source) in pooled.sources() {
            self.linear(format_args!("{name}.{what}.values"), &source.values);
            self.linear(format_args!("{name}.{what}.shares"), &source.shares);
            let shape = vec![pooled.size, source.values.n_out()];
            self.vector(format_args!("{name}.{what}.places"), &source.places, shape);
            self.norm(format_args!("{name}.{what}.norm"), Some(&source.norm), None);
        }
        if let Some(picks) = &pooled.picks {
            self.linear(format_args!("{name}.index_q"), &picks.q);
            self.linear(format_args!("{name}.index_weights"), &picks.weights);
        }
    }

    /// The maps of experts; their first is `q` and `o` of the projections too.
    fn head_experts(&mut self, name: &str, experts: &'a HeadExperts) {
        self.linear(format_args!("{name}router"), &experts.router);
        for (idx, map) in experts.q.iter().enumerate().skip(1) {
            self.linear(format_args!("{name}q.{idx}"), map);
        }
        for (idx, map) in experts.o.iter().enumerate() {
            self.linear(format_args!("{name}o.{idx}"), map);
        }
    }

    /// What a block does with a second stream.
    fn side_stream(&mut self, name: &str, side: &'a SideStream) {
        let keys = ["q", "k", "v", "o"];
        self.linears(format_args!("{name}"), &keys, side.maps());
        self.norm(format_args!("{name}attn_post"), Some(&side.attn_post), None);
        self.mlp(&format!("{name}mlp"), &side.mlp);
        self.norm(format_args!("{name}mlp_post"), Some(&side.mlp_post), None);
    }

    /// The latent vectors that queries, keys and values are projected from.
    fn latent(&mut self, name: &str, maps: &'a ProjectionSpec) {
        let Some(latent) = &maps.latent else { return };
        if let Some((linear, norm)) = &latent.q {
            self.linear(format_args!("{name}.q_latent"), linear);
            self.norm(format_args!("{name}.q_latent_norm"), Some(norm), None);
        }
        if matches!(latent.shared, Some(LatentSharing::Takes { .. })) {
            return;
        }
        self.linear(format_args!("{name}.kv_latent"), &latent.kv);
        let norm = Some(&latent.kv_norm);
        self.norm(format_args!("{name}.kv_latent_norm"), norm, None);
        if let Some(shared) = &latent.shared_key {
            self.linear(format_args!("{name}.shared_key"), shared);
        }
        let norm = latent.shared_key_norm.as_ref();
        self.norm(format_args!("{name}.shared_key_norm"), norm, None);
    }

    /// The kernels of two convolutions that are added.
    pub(super) fn added_convolutions(
        &mut self,
        name: &str,
        whats: [&str; 2],
        both: Option<&'a [AddedConvolution; 2]>,
    ) {
        for (what, of) in whats.iter().zip(both.into_iter().flatten()) {
            for (tensor, n_channels) in &of.convolution.kernels {
                let shape = vec![*n_channels, 1, of.convolution.n_tokens];
                self.vector(format_args!("{name}{what}_convolution"), tensor, shape);
            }
        }
    }

    /// The learned growth of queries with their position.
    fn growth(&mut self, name: &str, growth: Option<&'a HeadGrowth>) {
        for (what, tensor) in growth.iter().flat_map(|growth| growth.vectors()) {
            let n_heads = growth.map_or(0, |growth| growth.n_heads);
            self.vector(
                format_args!("{name}.q_growth.{what}"),
                tensor,
                vec![n_heads],
            );
        }
    }

    /// The maps that score keys for sparse attention.
    fn indexer(&mut self, name: &str, maps: &'a ProjectionSpec) {
        let source = maps.indexer.as_ref().map(|indexer| &indexer.source);
        let Some(IndexSource::Own { maps, .. }) = source else {
            return;
        };
        self.linear(format_args!("{name}.index_q"), &maps.q);
        self.linear(format_args!("{name}.index_k"), &maps.k);
        if let Some(weights) = &maps.weights {
            self.linear(format_args!("{name}.index_weights"), weights);
        }
        if let Some(PoolMaps::Weighted {
            size,
            shares,
            places,
        }) = &maps.pools
        {
            self.linear(format_args!("{name}.index_pool"), shares);
            let key = format_args!("{name}.index_pool.places");
            self.vector(key, places, vec![*size, maps.k.n_out()]);
        }
        self.growth(&format!("{name}.index"), maps.q_growth.as_deref());
        for (what, norm) in [
            ("q_pre", &maps.q_pre),
            ("q", &maps.q_norm),
            ("k", &maps.k_norm),
        ] {
            self.norm(
                format_args!("{name}.index_{what}_norm"),
                norm.as_ref(),
                None,
            );
        }
    }

    /// Stored tables of what position adds to scores.
    fn position(&mut self, name: &str, maps: &'a ProjectionSpec) {
        self.table(format_args!("{name}.bias"), maps.bucket_values.as_ref());
        if let Some(gate) = &maps.bias_gate {
            self.linear(format_args!("{name}.bias_gate"), gate.map());
            if let BiasGate::Shares(gate) = &**gate {
                let key = format_args!("{name}.bias_gate.scales");
                self.vector(key, &gate.scales, gate.scales_shape());
            }
        }
        if let Some(made) = &maps.value_bias {
            self.linear(format_args!("{name}.value_bias"), &made.map);
            let key = format_args!("{name}.value_bias.strengths");
            self.vector(key, &made.strengths, vec![made.map.n_out()]);
        }
        if let Some([rows, columns]) = maps.steps.as_ref().and_then(|steps| steps.tables.as_ref()) {
            self.with_use(Use::EveryDistance, |walk| {
                walk.table(format_args!("{name}.steps_in_rows"), Some(rows));
                walk.table(format_args!("{name}.steps_in_columns"), Some(columns));
            });
        }
        let pairs = maps.steps.as_ref().and_then(|steps| steps.pairs.as_ref());
        match pairs {
            Some(PairValues::Stored(table)) => {
                self.table(format_args!("{name}.steps"), Some(table));
            }
            Some(PairValues::Made(network)) => self.with_use(Use::EveryDistance, |walk| {
                walk.linear(format_args!("{name}.steps.up"), &network.up);
                walk.linear(format_args!("{name}.steps.down"), &network.down);
            }),
            None => {}
        }
        let Some(relative) = &maps.relative else {
            return;
        };
        self.with_use(Use::EveryDistance, |walk| {
            let embeddings = relative.embeddings.table();
            walk.table(format_args!("{name}.relative"), embeddings);
            if let Some(biases) = &relative.biases {
                let shape = vec![biases.n_heads, biases.d_head];
                let key = format_args!("{name}.relative_bias");
                walk.vector(key, &biases.of_distances, shape);
            }
            let norm = relative.norm.as_ref();
            walk.norm(format_args!("{name}.relative_norm"), norm, None);
            let maps = [("key", &relative.key), ("query", &relative.query)];
            for (what, linear) in maps {
                if let Some(linear) = linear {
                    walk.linear(format_args!("{name}.relative_{what}"), linear);
                }
            }
        });
    }
}
