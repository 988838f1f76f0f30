//! The walk of a spec: every stored tensor that a model reads, with its role, in the order of execution.

mod attention;
mod bottleneck;
mod chain;
mod conformer;
mod feed_forward;
mod merge;
mod norm;
mod parts;

use std::fmt::Arguments;

use crate::mixers::MixerPart;
use crate::roles::{Division, RoleVisitor, Source, Use, Visited};
use crate::{
    BlockSpec, ConstantRow, EmbedSpec, FeedForward, HeadSpec, KeptStart, LinearSource, ModelSpec,
    PatchMap, Place, PositionTable, Stack, StackSpec, StreamEnds, StreamGates, StreamWeights,
    TableSource, TokenMixer,
};

impl ModelSpec {
    /// Visits every role of the model.
    pub fn visit_roles<'a>(&'a self, visitor: &mut dyn RoleVisitor<'a>) {
        let mut walk = Walk::new(visitor);
        for stack in &self.stacks {
            walk.embedding(stack);
            for (layer_idx, block) in stack.blocks().iter().enumerate() {
                walk.block(stack.stack, layer_idx, block);
            }
            walk.recurrence(stack);
            walk.final_norm(stack);
        }
        self.head.iter().for_each(|head| walk.head(head));
    }

    /// Visits the roles of the head.
    pub fn visit_head<'a>(&'a self, visitor: &mut dyn RoleVisitor<'a>) {
        let mut walk = Walk::new(visitor);
        self.head.iter().for_each(|head| walk.head(head));
    }
}

impl StackSpec {
    /// Visits the roles of what runs before the first block.
    pub fn visit_embedding<'a>(&'a self, visitor: &mut dyn RoleVisitor<'a>) {
        Walk::new(visitor).embedding(self);
    }

    /// Visits the roles of the norm behind the last block.
    pub fn visit_final_norm<'a>(&'a self, visitor: &mut dyn RoleVisitor<'a>) {
        Walk::new(visitor).final_norm(self);
    }

    /// Visits the roles of a recurrent network.
    pub fn visit_recurrence<'a>(&'a self, visitor: &mut dyn RoleVisitor<'a>) {
        Walk::new(visitor).recurrence(self);
    }
}

impl BlockSpec {
    /// Visits the roles of the block. Keys are those of the first layer.
    pub fn visit_roles<'a>(&'a self, visitor: &mut dyn RoleVisitor<'a>) {
        Walk::new(visitor).block(Stack::Only, 0, self);
    }
}

impl FeedForward {
    /// Visits the roles of the feed-forward layer. Keys have no prefix.
    pub fn visit_roles<'a>(&'a self, visitor: &mut dyn RoleVisitor<'a>) {
        Walk::new(visitor).feed_forward("", self);
    }
}

/// Prefix of the keys of a stack or a layer: `encoder.L3.`.
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

struct Walk<'v, 'a> {
    visitor: &'v mut dyn RoleVisitor<'a>,
    used: Use,
}

impl<'v, 'a> Walk<'v, 'a> {
    fn new(visitor: &'v mut dyn RoleVisitor<'a>) -> Self {
        Self {
            visitor,
            used: Use::EveryToken,
        }
    }

    /// Runs part of the walk with another [`Use`], then restores the current one.
    fn with_use(&mut self, used: Use, part: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.used, used);
        part(self);
        self.used = before;
    }

    fn push(&mut self, key: Arguments<'_>, source: Source<'a>, division: Division) {
        let used = self.used;
        let visited = Visited {
            source,
            division,
            used,
        };
        self.visitor.role(key, visited);
    }

    fn divided(&mut self, key: Arguments<'_>, linear: &'a LinearSource, division: Division) {
        // The stored columns of a grouped map are inputs of several heads, and those of a part of a map are not all heads'.
        let is_part = linear.groups.is_some() || linear.inputs.is_some();
        let division = match division {
            Division::Inputs(_) if is_part => Division::None,
            other => other,
        };
        if linear.bias.is_some() {
            // The bias of an output map is no head's own.
            let of_bias = match division {
                Division::Inputs(_) => Division::None,
                other => other,
            };
            self.push(format_args!("{key}.bias"), Source::Bias(linear), of_bias);
        }
        self.parts(key, linear);
        self.push(key, Source::Matrix(linear), division);
    }

    fn linear(&mut self, key: Arguments<'_>, linear: &'a LinearSource) {
        self.divided(key, linear, Division::None);
    }

    /// Maps with a name each, below a prefix.
    fn linears<L>(&mut self, name: Arguments<'_>, keys: &[&str], linears: L)
    where
        L: IntoIterator<Item = &'a LinearSource>,
    {
        for (what, linear) in keys.iter().zip(linears) {
            self.linear(format_args!("{name}{what}"), linear);
        }
    }

    fn vector(&mut self, key: Arguments<'_>, tensor: &'a str, shape: Vec<usize>) {
        self.push(key, Source::Vector { tensor, shape }, Division::None);
    }

    fn optional_vector(&mut self, key: Arguments<'_>, tensor: Option<&'a String>, n: usize) {
        if let Some(tensor) = tensor {
            self.vector(key, tensor, vec![n]);
        }
    }

    fn table(&mut self, key: Arguments<'_>, table: Option<&'a TableSource>) {
        if let Some(table) = table {
            self.push(key, Source::Table(table), Division::None);
        }
    }

    fn constants(&mut self, key: Arguments<'_>, constants: &'a [ConstantRow]) {
        for (nth, constant) in constants.iter().enumerate() {
            let table = Some(&constant.table);
            self.table(format_args!("{key}.constant.{nth}"), table);
        }
    }

    fn embedding(&mut self, stack: &'a StackSpec) {
        let (embed, name) = (&stack.embed, &prefix(stack.stack, None));
        self.inputs(name, embed);
        if let Some(PositionTable::Stored(table)) = &embed.positions {
            self.table(format_args!("{name}embed.positions"), Some(table));
        }
        self.table(format_args!("{name}embed.summary"), embed.summary.as_ref());
        self.constants(format_args!("{name}embed"), &embed.constants);
        if let Some(made) = &embed.made {
            for (nth, part) in made.parts.iter().enumerate() {
                let key = format_args!("{name}embed.made.{nth}");
                self.table(key, Some(&part.table));
            }
            self.linear(format_args!("{name}embed.made.up"), &made.up);
            self.linear(format_args!("{name}embed.made.down"), &made.down);
        }
        let types = embed.token_types.as_ref();
        self.table(format_args!("{name}embed.types"), types);
        self.norm(format_args!("{name}embed.norm"), embed.norm.as_ref(), None);
        if let Some(linear) = &embed.projection {
            self.linear(format_args!("{name}embed.projection"), linear);
        }
        if let Some(chain) = &embed.chain {
            self.chain(&format!("{name}embed.chain"), chain);
        }
        if let Some(KeptStart::Side(side)) = stack.rows.as_ref().map(|rows| &rows.first) {
            self.constants(format_args!("{name}side"), &side.constants);
            self.linear(format_args!("{name}side.map"), &side.map);
            self.table(format_args!("{name}side.positions"), Some(&side.positions));
            self.norm(format_args!("{name}side.norm"), Some(&side.norm), None);
        }
        let streams = stack.rows.iter().filter_map(|rows| rows.streams.as_ref());
        for ends in streams {
            match ends {
                StreamEnds::Mapped(maps) => {
                    for (what, maps) in [("first", &maps.first), ("last", &maps.last)] {
                        for (nth, linear) in maps.iter().enumerate() {
                            self.linear(format_args!("{name}streams.{what}.{nth}"), linear);
                        }
                    }
                }
                StreamEnds::Copied { fold, .. } => {
                    if let Some(weights) = fold.weights() {
                        self.stream_weights(&format!("{name}streams.fold"), weights, 1);
                    }
                    if let Some(gates) = fold.gates() {
                        self.stream_gates(&format!("{name}streams.fold"), gates);
                    }
                }
            }
        }
        if let Some(joined) = embed.joined.as_deref() {
            self.table(format_args!("{name}embed.joined"), Some(&joined.table));
            self.constants(format_args!("{name}embed.joined"), &joined.constants);
        }
        let shared = stack.bucket_values.as_ref();
        self.table(format_args!("{name}bias"), shared);
    }

    /// What turns tokens, pictures or sound into vectors.
    fn inputs(&mut self, name: &str, embed: &'a EmbedSpec) {
        if let Some(patches) = &embed.patches {
            match &patches.map {
                PatchMap::Linear(map) => self.linear(format_args!("{name}embed.patches"), map),
                PatchMap::Chain(chain) => self.chain(&format!("{name}embed.chain"), chain),
            }
            let norms = [("values", &patches.value_norm), ("rows", &patches.row_norm)];
            for (of, norm) in norms {
                let key = format_args!("{name}embed.patches.{of}");
                self.norm(key, norm.as_ref(), None);
            }
            for (nth, learned) in patches.firsts.iter().enumerate() {
                let key = format_args!("{name}embed.first.{nth}");
                self.vector(key, &learned.tensor, learned.shape.clone());
                if let Some(place) = &learned.place {
                    let key = format_args!("{name}embed.first.{nth}.place");
                    self.vector(key, place, learned.shape.clone());
                }
            }
            if let Some(positions) = &patches.positions {
                for (of, tensor, shape) in positions.tensors(patches.width()) {
                    self.vector(format_args!("{name}embed.{of}"), tensor, shape);
                }
            }
            for (axis, lines) in ["rows", "columns"]
                .iter()
                .zip(patches.lines.iter().flatten())
            {
                let key = format_args!("{name}embed.{axis}");
                self.vector(key, &lines.tensor, lines.shape.clone());
            }
        } else if let Some(stem) = &embed.sound {
            for (nth, (tensor, shape)) in stem.tensors().into_iter().enumerate() {
                self.vector(format_args!("{name}embed.stem.{nth}"), tensor, shape);
            }
            if let Some(map) = &stem.first {
                self.linear(format_args!("{name}embed.stem.first"), map);
            }
            if let Some(end) = &stem.end {
                self.norm(
                    format_args!("{name}embed.stem.norm"),
                    end.norm.as_ref(),
                    None,
                );
                if let Some(map) = &end.projection {
                    self.linear(format_args!("{name}embed.stem.map"), map);
                }
            }
        } else {
            self.table(format_args!("{name}embed.tokens"), Some(&embed.tokens));
        }
    }

    fn recurrence(&mut self, stack: &'a StackSpec) {
        let Some(network) = stack.recurrence() else {
            return;
        };
        let name = prefix(stack.stack, None);
        for (idx, linear) in network.linears().into_iter().enumerate() {
            self.linear(format_args!("{name}map.{idx}"), linear);
        }
    }

    fn final_norm(&mut self, stack: &'a StackSpec) {
        let name = prefix(stack.stack, None);
        let norm = stack.final_norm.as_ref();
        self.norm(format_args!("{name}final_norm"), norm, None);
        if let Some(map) = &stack.last_map {
            self.linear(format_args!("{name}last_map"), map);
        }
    }

    fn head(&mut self, head: &'a HeadSpec) {
        if let Some(transform) = &head.transform {
            self.linear(format_args!("head.dense"), &transform.dense);
            self.norm(format_args!("head.norm"), transform.norm.as_ref(), None);
            if let Some(then) = &transform.then {
                self.linear(format_args!("head.dense2"), &then.dense);
                self.norm(format_args!("head.norm2"), then.norm.as_ref(), None);
            }
        }
        self.norm(format_args!("head.pooled"), head.pooled_norm.as_ref(), None);
        if let Some(pooling) = head.pooling.as_deref() {
            let key = format_args!("head.probe.query");
            self.vector(key, &pooling.query, pooling.query_shape.clone());
            let maps = [&pooling.q, &pooling.k, &pooling.v, &pooling.o, &pooling.up];
            let keys = ["q", "k", "v", "o", "up"];
            self.linears(format_args!("head.probe."), &keys, maps);
            self.norm(format_args!("head.probe.norm"), Some(&pooling.norm), None);
        }
        self.linear(format_args!("head.unembed"), &head.unembed);
        if let Some(second) = &head.second {
            self.linear(format_args!("head.second"), second);
        }
        let n = head.unembed.n_out();
        self.optional_vector(format_args!("head.bias"), head.extra_bias.as_ref(), n);
    }

    fn block(&mut self, stack: Stack, layer_idx: usize, block: &'a BlockSpec) {
        let name = &prefix(stack, Some(layer_idx));
        if let Some(conformer) = &block.conformer {
            if let Some(guess) = &conformer.guess {
                self.linear(format_args!("{name}guess.labels"), &guess.labels);
                self.linear(format_args!("{name}guess.back"), &guess.back);
            }
            let norm = conformer.before_norm.as_ref();
            self.norm(format_args!("{name}before_pre"), norm, None);
            self.mlp(&format!("{name}before"), &conformer.before);
            let norm = conformer.before_out.as_ref();
            self.norm(format_args!("{name}before_out"), norm, None);
            let norm = conformer.before_post.as_ref();
            self.norm(format_args!("{name}before_post"), norm, None);
        }
        self.enter_bottleneck(name, block);
        self.norm(
            format_args!("{name}attn_pre"),
            block.attn_pre.as_ref(),
            None,
        );
        if let Some(own) = block.own() {
            self.attention(&format!("{name}attn"), &own.attention, &own.projections);
        }
        let mixer = block.other_mixer().into_iter();
        let mut seen: Vec<&str> = Vec::new();
        for part in mixer.flat_map(TokenMixer::parts) {
            // Parts of later heads have the same names.
            let nth = seen.iter().filter(|what| **what == part.name()).count();
            seen.push(part.name());
            let nth = if nth > 0 {
                format!(".{nth}")
            } else {
                Default::default()
            };
            let key = format!("{name}mixer.{}{nth}", part.name());
            match part {
                MixerPart::Map(_, linear) => self.linear(format_args!("{key}"), linear),
                MixerPart::Norm(_, norm) => self.norm(format_args!("{key}"), Some(norm), None),
                MixerPart::Tensor(_, tensor, shape) => {
                    self.vector(format_args!("{key}"), tensor, shape);
                }
            }
        }
        self.norm(
            format_args!("{name}attn_out"),
            block.attn_out.as_ref(),
            None,
        );
        let post = block.attn_post.as_ref();
        self.norm(format_args!("{name}attn_post"), post, None);
        // The maps of a shared softmax are those of self-attention.
        if let Some(cross) = block.cross_apart() {
            let name = &prefix(Stack::Cross, Some(layer_idx));
            self.norm(format_args!("{name}attn_pre"), cross.pre.as_ref(), None);
            let key = format!("{name}attn");
            self.attention(&key, &cross.attention, &cross.projections);
            self.norm(format_args!("{name}attn_out"), cross.out.as_ref(), None);
            self.norm(format_args!("{name}attn_post"), cross.post.as_ref(), None);
        }
        if let Some(conformer) = &block.conformer
            && let Some(module) = &conformer.convolution
        {
            self.convolution(&format!("{name}convolution."), module);
        }
        self.quirks(name, block);
        self.norm(format_args!("{name}mlp_pre"), block.mlp_pre.as_ref(), None);
        self.feed_forward(name, &block.feed_forward);
        if let Some(layer) = block.row.as_ref().and_then(|row| row.begun()) {
            self.feed_forward(&format!("{name}shortcut."), layer);
        }
        self.norm(format_args!("{name}mlp_out"), block.mlp_out.as_ref(), None);
        self.norm(
            format_args!("{name}mlp_post"),
            block.mlp_post.as_ref(),
            None,
        );
        let last = block.conformer.as_ref().and_then(|of| of.last.as_ref());
        self.norm(format_args!("{name}last"), last, None);
        self.leave_bottleneck(name, block);
        self.end_of_stage(name, block);
    }

    /// Branches and factors that few families have.
    fn quirks(&mut self, name: &str, block: &'a BlockSpec) {
        let scale = block.resid_scale.as_ref();
        self.optional_vector(format_args!("{name}resid_scale"), scale, 1);
        for (what, sum) in ["attn", "mlp"].iter().zip(&block.sums) {
            if let Some(sum) = sum {
                let key = format_args!("{name}{what}_sum");
                self.vector(key, &sum.tensor, sum.shape.clone());
            }
        }
        self.added_convolutions(name, ["attn", "mlp"], block.convolutions.as_deref());
        if let Some(last) = &block.last_mixer {
            self.linear(format_args!("{name}last_mixer.map"), &last.map);
            self.norm(format_args!("{name}last_mixer.pre"), Some(&last.pre), None);
        }
        if let Some(narrow) = &block.narrow {
            self.linear(format_args!("{name}narrow.into"), &narrow.into);
            self.linear(format_args!("{name}narrow.out"), &narrow.out);
            self.norm(format_args!("{name}narrow"), Some(&narrow.norm), None);
        }
        let row = block.row.as_ref();
        let connections = row.and_then(|row| row.connected());
        for (what, weights, n) in connections.iter().flat_map(|hyper| hyper.weights()) {
            self.stream_weights(&format!("{name}streams.{what}"), weights, n);
        }
        for (what, of) in connections.iter().flat_map(|hyper| hyper.gated()) {
            self.stream_gates(&format!("{name}streams.{what}"), &of.gates);
            self.linear(format_args!("{name}streams.{what}.inject"), &of.inject);
        }
        if let Some(streams) = row.and_then(|row| row.predicted()) {
            let keys = ["router", "predict", "correct"];
            self.linears(format_args!("{name}streams."), &keys, streams.linears());
            let norm = Some(&streams.router_norm);
            self.norm(format_args!("{name}streams.router"), norm, None);
            let (scale, width) = (streams.scale.as_ref(), streams.router.n_in);
            self.optional_vector(format_args!("{name}streams.scale"), scale, width);
        }
        if let Some(branch) = &block.by_token {
            let keys = ["gate", "context", "out"];
            self.linears(format_args!("{name}by_token."), &keys, branch.linears());
            for (what, norm) in ["context", "out"].iter().zip(branch.norms()) {
                self.norm(format_args!("{name}by_token.{what}"), Some(norm), None);
            }
            // The table of tokens is that of the embedding.
            self.table(format_args!("{name}by_token.rows"), branch.rows.as_ref());
        }
    }

    /// What gates the columns of residual streams.
    fn stream_gates(&mut self, name: &str, gates: &'a StreamGates) {
        self.vector(
            format_args!("{name}.gain"),
            &gates.gain,
            vec![gates.down.n_in],
        );
        self.linear(format_args!("{name}.down"), &gates.down);
        self.linear(format_args!("{name}.up"), &gates.up);
    }

    /// What weighs residual streams, with the number of its factors.
    fn stream_weights(&mut self, name: &str, weights: &'a StreamWeights, n_scales: usize) {
        self.linear(format_args!("{name}"), &weights.map);
        self.vector(format_args!("{name}.scale"), &weights.scale, vec![n_scales]);
        let n = weights.map.n_out();
        self.vector(format_args!("{name}.base"), &weights.base, vec![n]);
    }
}
