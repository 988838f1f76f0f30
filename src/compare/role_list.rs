//! Lists every role of a model, in the order of execution.

use attnscope_spec::mixers::MixerPart;
use attnscope_spec::{
    BlockSpec, FeedForward, LinearSource, MlpSpec, ModelSpec, NormSource, Place, PositionTable,
    ProjectionSpec, Stack, StackSpec, TableSource, TokenMixer,
};

use super::roles::{Division, Heads, Role, Source};

/// Returns every role of a model, in the order of execution.
pub(super) fn roles(spec: &ModelSpec) -> Vec<Role> {
    let mut list = List::default();
    for stack in &spec.stacks {
        list.embedding(stack);
        for (layer_idx, block) in stack.blocks().iter().enumerate() {
            list.block(stack.stack, layer_idx, block);
        }
        if let Some(network) = stack.recurrence() {
            let name = prefix(stack.stack, None);
            for (idx, linear) in network.linears().into_iter().enumerate() {
                list.linear(format!("{name}map.{idx}"), linear, Division::None);
            }
        }
        let name = prefix(stack.stack, None);
        list.norm(
            &format!("{name}final_norm"),
            stack.final_norm.as_ref(),
            None,
        );
    }
    if let Some(head) = &spec.head {
        if let Some(transform) = &head.transform {
            list.linear("head.dense".to_owned(), &transform.dense, Division::None);
            list.norm("head.norm", transform.norm.as_ref(), None);
        }
        if let Some(probe) = head.probe.as_deref() {
            for (name, map) in [
                ("head.probe.q", &probe.q),
                ("head.probe.k", &probe.k),
                ("head.probe.v", &probe.v),
                ("head.probe.o", &probe.o),
                ("head.probe.up", &probe.up),
            ] {
                list.linear(name.to_owned(), map, Division::None);
            }
            list.norm("head.probe.norm", Some(&probe.norm), None);
        }
        list.linear("head.unembed".to_owned(), &head.unembed, Division::None);
        list.vector("head.bias".to_owned(), head.extra_bias.as_ref(), || {
            vec![head.unembed.n_out()]
        });
    }
    list.roles
}

fn prefix(stack: Stack, layer_idx: Option<usize>) -> String {
    let place = Place {
        stack: Some(stack),
        layer_idx,
        ..Place::MODEL
    };
    match place.to_string().as_str() {
        "" => String::new(),
        place => format!("{place}."),
    }
}

#[derive(Default)]
struct List {
    roles: Vec<Role>,
}

impl List {
    fn push(&mut self, key: String, source: Source, division: Division) {
        self.roles.push(Role {
            key,
            source,
            division,
        });
    }

    fn linear(&mut self, key: String, linear: &LinearSource, division: Division) {
        if linear.bias.is_some() {
            // The bias of an output projection belongs to no single head.
            let of_bias = match division {
                Division::Inputs(_) => Division::None,
                other => other,
            };
            let source = Source::Bias(linear.clone());
            self.push(format!("{key}.bias"), source, of_bias);
        }
        self.push(key, Source::Matrix(linear.clone()), division);
    }

    fn norm(&mut self, key: &str, norm: Option<&NormSource>, heads: Option<Heads>) {
        let Some(norm) = norm else { return };
        let division = heads
            .filter(|heads| norm.width == heads.width || norm.width == heads.n * heads.width)
            .map_or(Division::None, |heads| {
                Division::Rotating(Heads {
                    n: norm.width / heads.width,
                    ..heads
                })
            });
        let gains = norm.gain.iter().map(|name| ("gain", name));
        let bias = norm.bias.iter().map(|name| ("bias", name));
        for (nth, (what, tensor)) in gains.chain(bias).enumerate() {
            let source = Source::Vector {
                tensor: tensor.clone(),
                shape: norm.gain_shape.clone(),
            };
            let part = if norm.gain.len() > 1 {
                format!(".{nth}")
            } else {
                String::new()
            };
            self.push(format!("{key}.{what}{part}"), source, division);
        }
    }

    fn vector(&mut self, key: String, tensor: Option<&String>, shape: impl Fn() -> Vec<usize>) {
        if let Some(tensor) = tensor {
            let source = Source::Vector {
                tensor: tensor.clone(),
                shape: shape(),
            };
            self.push(key, source, Division::None);
        }
    }

    fn table(&mut self, key: String, table: Option<&TableSource>) {
        if let Some(table) = table {
            self.push(key, Source::Table(table.clone()), Division::None);
        }
    }

    fn embedding(&mut self, stack: &StackSpec) {
        let (embed, name) = (&stack.embed, prefix(stack.stack, None));
        match &embed.sound {
            Some(stem) => {
                for (nth, (tensor, shape)) in stem.tensors().into_iter().enumerate() {
                    let key = format!("{name}embed.stem.{nth}");
                    self.vector(key, Some(tensor), || shape.clone());
                }
            }
            None => self.table(format!("{name}embed.tokens"), Some(&embed.tokens)),
        }
        if let Some(PositionTable::Stored(table)) = &embed.positions {
            self.table(format!("{name}embed.positions"), Some(table));
        }
        self.table(format!("{name}embed.types"), embed.token_types.as_ref());
        self.norm(&format!("{name}embed.norm"), embed.norm.as_ref(), None);
        if let Some(linear) = &embed.projection {
            self.linear(format!("{name}embed.projection"), linear, Division::None);
        }
        let streams = stack.rows.iter().filter_map(|rows| rows.streams.as_ref());
        for maps in streams {
            for (what, maps) in [("first", &maps.first), ("last", &maps.last)] {
                for (nth, linear) in maps.iter().enumerate() {
                    let key = format!("{name}streams.{what}.{nth}");
                    self.linear(key, linear, Division::None);
                }
            }
        }
        self.table(format!("{name}bias"), stack.bucket_values.as_ref());
    }

    fn block(&mut self, stack: Stack, layer_idx: usize, block: &BlockSpec) {
        let name = prefix(stack, Some(layer_idx));
        self.norm(&format!("{name}attn_pre"), block.attn_pre.as_ref(), None);
        if let Some(own) = block.own() {
            self.attention(&format!("{name}attn"), &own.attention, &own.projections);
        }
        let mixer = block.other_mixer().into_iter();
        for part in mixer.flat_map(TokenMixer::parts) {
            let key = |what: &str| format!("{name}mixer.{what}");
            match part {
                MixerPart::Map(what, linear) => self.linear(key(what), linear, Division::None),
                MixerPart::Norm(what, norm) => self.norm(&key(what), Some(norm), None),
                MixerPart::Tensor(what, tensor, shape) => {
                    self.vector(key(what), Some(&tensor.to_owned()), || shape.clone());
                }
            }
        }
        self.norm(&format!("{name}attn_out"), block.attn_out.as_ref(), None);
        self.norm(&format!("{name}attn_post"), block.attn_post.as_ref(), None);
        if let Some(cross) = &block.cross {
            let name = prefix(Stack::Cross, Some(layer_idx));
            self.norm(&format!("{name}attn_pre"), cross.pre.as_ref(), None);
            self.attention(&format!("{name}attn"), &cross.attention, &cross.projections);
            self.norm(&format!("{name}attn_out"), cross.out.as_ref(), None);
            self.norm(&format!("{name}attn_post"), cross.post.as_ref(), None);
        }
        self.vector(
            format!("{name}resid_scale"),
            block.resid_scale.as_ref(),
            || vec![1],
        );
        if let Some(narrow) = &block.narrow {
            self.linear(format!("{name}narrow.into"), &narrow.into, Division::None);
            self.linear(format!("{name}narrow.out"), &narrow.out, Division::None);
            self.norm(&format!("{name}narrow"), Some(&narrow.norm), None);
        }
        let streams = block.row.as_ref().and_then(|row| row.streams.as_ref());
        if let Some(streams) = streams {
            let maps = ["router", "predict", "correct"].iter();
            for (what, linear) in maps.zip(streams.linears()) {
                self.linear(format!("{name}streams.{what}"), linear, Division::None);
            }
            let norm = Some(&streams.router_norm);
            self.norm(&format!("{name}streams.router"), norm, None);
            let width = streams.router.n_in;
            let key = format!("{name}streams.scale");
            self.vector(key, streams.scale.as_ref(), || vec![width]);
        }
        if let Some(branch) = &block.by_token {
            for (what, linear) in ["gate", "context", "out"].iter().zip(branch.linears()) {
                self.linear(format!("{name}by_token.{what}"), linear, Division::None);
            }
            for (what, norm) in ["context", "out"].iter().zip(branch.norms()) {
                self.norm(&format!("{name}by_token.{what}"), Some(norm), None);
            }
            self.table(format!("{name}by_token.rows"), Some(&branch.rows));
        }
        self.norm(&format!("{name}mlp_pre"), block.mlp_pre.as_ref(), None);
        match &block.feed_forward {
            FeedForward::Dense(mlp) => self.mlp(&format!("{name}mlp"), mlp),
            FeedForward::Experts(experts) => {
                self.linear(format!("{name}router"), &experts.router, Division::None);
                let n = experts.experts.len();
                let scales = experts.rule.expert_scales.as_ref();
                self.vector(format!("{name}router.scales"), scales, || vec![n]);
                for (what, norm) in experts.apart.iter().flat_map(|apart| apart.all()) {
                    self.norm(&format!("{name}apart.{what}"), Some(norm), None);
                }
                self.vector(
                    format!("{name}router.choice"),
                    experts.rule.choice_bias.as_ref().map(|bias| &bias.tensor),
                    || {
                        let bias = experts.rule.choice_bias.as_ref();
                        bias.map_or(Vec::new(), |bias| bias.shape.clone())
                    },
                );
                for (idx, mlp) in experts.experts.iter().enumerate() {
                    self.mlp(&format!("{name}expert.{idx}"), mlp);
                }
                for (what, linear) in ["in", "out"]
                    .into_iter()
                    .zip(experts.latent.iter().flatten())
                {
                    self.linear(format!("{name}expert.{what}"), linear, Division::None);
                }
                if let Some((mlp, gate)) = &experts.shared {
                    self.mlp(&format!("{name}shared"), mlp);
                    if let Some(gate) = gate {
                        self.linear(format!("{name}shared.weight"), gate, Division::None);
                    }
                }
            }
            FeedForward::None => {}
        }
        self.norm(&format!("{name}mlp_out"), block.mlp_out.as_ref(), None);
        self.norm(&format!("{name}mlp_post"), block.mlp_post.as_ref(), None);
    }

    fn attention(
        &mut self,
        name: &str,
        spec: &attnscope_compute::attention::AttentionSpec,
        projections: &ProjectionSpec,
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
        let rotating = |heads: Heads, linear: &LinearSource| {
            if linear.n_out() == heads.n * heads.width {
                Division::Rotating(heads)
            } else {
                Division::None
            }
        };
        if let Some(latent) = &projections.latent {
            if let Some((linear, norm)) = &latent.q {
                self.linear(format!("{name}.q_latent"), linear, Division::None);
                self.norm(&format!("{name}.q_latent_norm"), Some(norm), None);
            }
            self.linear(format!("{name}.kv_latent"), &latent.kv, Division::None);
            self.norm(
                &format!("{name}.kv_latent_norm"),
                Some(&latent.kv_norm),
                None,
            );
            self.linear(
                format!("{name}.shared_key"),
                &latent.shared_key,
                Division::None,
            );
        }
        self.linear(
            format!("{name}.q"),
            &projections.q,
            rotating(q, &projections.q),
        );
        // Shared keys and values belong to the earlier layer that computes them.
        let is_own = !projections.reuses_keys();
        if is_own {
            self.linear(
                format!("{name}.k"),
                &projections.k,
                rotating(k, &projections.k),
            );
        }
        let of_v = if projections.v.n_out() == v.n * v.width {
            Division::Outputs(v)
        } else {
            Division::None
        };
        if is_own {
            self.linear(format!("{name}.v"), &projections.v, of_v);
        }
        if let Some(difference) = &projections.difference {
            for (what, tensor) in ["q1", "k1", "q2", "k2"].iter().zip(&difference.lambdas) {
                let key = format!("{name}.lambda_{what}");
                self.vector(key, Some(tensor), || vec![difference.d_head]);
            }
        }
        self.norm(
            &format!("{name}.q_norm"),
            projections.q_norm.as_ref(),
            Some(q),
        );
        self.norm(
            &format!("{name}.k_norm"),
            projections.k_norm.as_ref(),
            Some(k),
        );
        self.norm(
            &format!("{name}.v_norm"),
            projections.v_norm.as_ref(),
            Some(v),
        );
        self.table(format!("{name}.bias"), projections.bucket_values.as_ref());
        if let Some(relative) = &projections.relative {
            self.table(format!("{name}.relative"), Some(&relative.embeddings));
            self.norm(
                &format!("{name}.relative_norm"),
                relative.norm.as_ref(),
                None,
            );
            for (what, linear) in [("key", &relative.key), ("query", &relative.query)] {
                if let Some(linear) = linear {
                    let key = format!("{name}.relative_{what}");
                    self.linear(key, linear, Division::None);
                }
            }
        }
        self.vector(format!("{name}.sinks"), projections.sinks.as_ref(), || {
            vec![spec.n_heads]
        });
        if projections.sinks.is_some()
            && let Some(last) = self.roles.last_mut()
        {
            last.division = Division::Outputs(heads(spec.n_heads, 1, (0, 0)));
        }
        if let Some(gate) = &projections.gate {
            self.linear(format!("{name}.gate"), gate, Division::Outputs(o));
        }
        self.linear(format!("{name}.o"), &projections.o, Division::Inputs(o));
    }

    fn mlp(&mut self, name: &str, mlp: &MlpSpec) {
        if let Some(gate) = &mlp.gate {
            self.linear(format!("{name}.gate"), gate, Division::None);
        }
        self.linear(format!("{name}.up"), &mlp.up, Division::None);
        self.linear(format!("{name}.down"), &mlp.down, Division::None);
        if let Some(learned) = &mlp.learned {
            let parts = ["above", "below", "slope", "limit"].into_iter();
            for (part, (tensor, shape)) in parts.zip(learned.tensors()) {
                let key = format!("{name}.activation.{part}");
                self.vector(key, Some(tensor), || shape.clone());
            }
        }
    }
}
