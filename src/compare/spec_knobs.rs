//! Flattens a spec to a list of knobs, named as in `--set` where possible.

use std::ops::Range;

use KnobKind::{Computation, Label, Shape};
use attnscope_compute::attention::{AttentionSpec, Growth, GrowthCurve, NoVisible, OfKeys, Scale};
use attnscope_compute::ops::NormKind;
use attnscope_spec::{
    Ablation, BlockSpec, EmbedSpec, FeedForward, GateRule, HiddenConvolution, MapScale, MlpSpec,
    ModelSpec, NormSource, Place, PositionTable, ProjectionSpec, RouterScores, SelfSpec, Stack,
    StackSpec, TransformSpec,
};

use super::knob::{KnobKind, KnobValue, SpecKnob};
use super::position_knobs::{position, step_word, table_words};
use super::row_knobs::{ends, of_few, placement, row, sharing_word};
use super::serving_knobs::ServingKnobs;

/// List of knobs under construction, and the current place in the model.
pub(super) struct List {
    knobs: Vec<SpecKnob>,
    slot: String,
}

impl List {
    pub(super) fn add(&mut self, kind: KnobKind, name: &'static str, value: KnobValue) {
        self.knobs.push(SpecKnob {
            name,
            kind,
            slot: self.slot.clone(),
            value,
        });
    }

    pub(super) fn count(&mut self, kind: KnobKind, name: &'static str, n: usize) {
        self.add(kind, name, KnobValue::count(n));
    }

    pub(super) fn word(
        &mut self,
        kind: KnobKind,
        name: &'static str,
        word: impl std::fmt::Display,
    ) {
        self.add(kind, name, KnobValue::word(word));
    }

    fn serving(&mut self, of: &impl ServingKnobs) {
        let knobs = of.serving_knobs().into_iter();
        knobs.for_each(|(name, value)| self.word(Computation, name, value));
    }
}

/// Returns every knob of a model, in the order of the model.
pub(super) fn spec_knobs(spec: &ModelSpec) -> Vec<SpecKnob> {
    let mut list = List {
        knobs: Vec::new(),
        slot: String::new(),
    };
    list.word(Label, "family", spec.family);
    list.count(Shape, "d_model", spec.d_model);
    list.count(Shape, "d_vocab", spec.d_vocab);
    list.add(
        Label,
        "n_ctx",
        KnobValue::or_none(spec.n_ctx, KnobValue::count),
    );
    list.word(Computation, "positions", spec.positions);
    list.word(Shape, "has_encoder", spec.is_encoder_decoder());
    for stack in &spec.stacks {
        of_stack(&mut list, stack);
    }
    list.slot = String::new();
    list.word(
        Shape,
        "head",
        if spec.head.is_some() {
            "logits"
        } else {
            "none"
        },
    );
    if let Some(head) = &spec.head {
        list.add(
            Computation,
            "logit_softcap",
            KnobValue::or_none(head.softcap, KnobValue::single),
        );
        list.add(Computation, "logit_scale", KnobValue::single(head.scale));
        list.word(Shape, "head_transform", head.transform.is_some());
        let n_layers = head
            .transform
            .iter()
            .flat_map(TransformSpec::layers)
            .count();
        list.count(Shape, "head_layers", n_layers);
        if let Some(transform) = &head.transform {
            let activation = transform.activation.map(|a| a.to_string());
            let activation = KnobValue::or_none(activation, KnobValue::Word);
            list.add(Computation, "head_activation", activation);
            list.slot = "head".to_owned();
            norm(&mut list, "head_norm", transform.norm.as_ref());
            list.slot = String::new();
        }
    }
    list.word(Computation, "predicts_next_token", spec.is_causal_lm);
    if let Some(start) = &spec.decoder_start {
        list.count(Label, "start_token", start.start_token as usize);
        list.word(Label, "end_tokens", words(&start.end_tokens));
    }
    list.knobs
}

/// Formats a place as in difference rows.
fn slot(stack: Stack, layer_idx: Option<usize>) -> String {
    let place = Place {
        stack: Some(stack),
        layer_idx,
        ..Place::MODEL
    };
    place.to_string()
}

fn of_stack(list: &mut List, stack: &StackSpec) {
    list.slot = slot(stack.stack, None);
    list.count(Shape, "n_layers", stack.n_layers());
    embedding(list, &stack.embed);
    list.word(Shape, "recurrent", stack.recurrence().is_some());
    if let Some(network) = stack.recurrence() {
        list.slot = slot(stack.stack, Some(0));
        if let Some(spec) = network.attention() {
            attention(list, spec);
        }
        // Sizes and scoring rules have no knob names of their own; the list of maps shows both.
        let maps = network.linears();
        let maps = maps.iter().map(|l| format!("{}x{}", l.n_in, l.n_out()));
        list.word(Shape, "maps", maps.collect::<Vec<_>>().join(" "));
    }
    for (layer_idx, spec) in stack.blocks().iter().enumerate() {
        list.slot = slot(stack.stack, Some(layer_idx));
        block(list, spec);
        if let Some(cross) = &spec.cross {
            list.slot = slot(Stack::Cross, Some(layer_idx));
            list.word(Computation, "shares_softmax", cross.shares_softmax);
            attention(list, &cross.attention);
            projections(list, &cross.projections);
            norm(list, "attn_pre_norm", cross.pre.as_ref());
            norm(list, "attn_out_norm", cross.out.as_ref());
            norm(list, "attn_post_norm", cross.post.as_ref());
        }
    }
    list.slot = slot(stack.stack, None);
    norm(list, "final_norm", stack.final_norm.as_ref());
    list.word(Shape, "last_map", stack.last_map.is_some());
    list.word(Shape, "shared_bias", stack.bucket_values.is_some());
}

fn embedding(list: &mut List, embed: &EmbedSpec) {
    list.add(Computation, "embed_scale", KnobValue::single(embed.scale));
    list.serving(embed);
    let dropped = embed.dropped.map(|dropped| match dropped.token {
        Some(token) => format!("{token}, {} of tokens in training", dropped.share),
        None => format!(
            "not in the vocabulary, {} of tokens in training",
            dropped.share
        ),
    });
    let dropped = KnobValue::or_none(dropped, KnobValue::Word);
    list.add(Computation, "dropped_token", dropped);
    list.count(Shape, "d_embed", embed.tokens.width);
    list.count(Shape, "n_embed", embed.tokens.n_rows);
    if let Some(n) = embed.by_position {
        list.count(Shape, "rows_by_position", n);
    }
    if let Some(stem) = &embed.sound {
        list.word(Computation, "stem", stem.words());
    }
    if let Some(chain) = embed.first_chain() {
        list.word(Computation, "stem", chain.words());
    }
    let table = table_words(embed.positions.as_ref());
    let kind = match &embed.positions {
        Some(PositionTable::Sinusoid(_)) => Computation,
        _ => Shape,
    };
    list.word(kind, "position_table", table);
    list.word(Shape, "token_types", embed.token_types.is_some());
    list.count(Shape, "constant_rows", embed.constants.len());
    let n_made = embed.made.as_ref().map_or(0, |made| made.parts.len());
    list.count(Shape, "made_row_parts", n_made);
    list.word(Computation, "embed_neighbours", embed.has_neighbours);
    let n_joined = embed.joined.as_ref().map_or(0, |joined| joined.n);
    list.count(Shape, "embed_joined_rows", n_joined);
    list.word(Shape, "embed_projection", embed.projection.is_some());
    if embed.projection.is_some() {
        list.word(Computation, "projects_first", embed.projects_first);
    }
    norm(list, "embed_norm", embed.norm.as_ref());
    if embed.norm.is_some() && embed.positions.is_some() {
        list.word(
            Computation,
            "norms_before_positions",
            embed.norms_before_positions,
        );
    }
}

fn block(list: &mut List, spec: &BlockSpec) {
    if let Some(own) = spec.own() {
        attention(list, &own.attention);
        projections(list, &own.projections);
        // Always listed: a knob that only one side has is no difference.
        let words = if own.exceptions.is_empty() {
            "none".to_owned()
        } else {
            exceptions(own)
        };
        list.word(Computation, "heads_that_differ", words);
    }
    list.word(Computation, "norm_placement", placement(spec));
    let other = spec.other_mixer();
    let mixer = match (spec.own(), other) {
        (Some(_), None) => "attention".to_owned(),
        (Some(_), Some(other)) => format!("attention beside {}", other.label()),
        (None, Some(other)) => other.label().to_owned(),
        (None, None) => "none".to_owned(),
    };
    list.word(Shape, "mixer", mixer);
    if let Some(other) = other {
        list.word(Computation, "mixer_knobs", other.knobs());
    }
    let scales = spec.linears().into_iter().map(|linear| linear.scale);
    let scales: Vec<String> = scales
        .filter(|scale| *scale != MapScale::ONE)
        .map(|scale| format!("{}·{}", scale.input, scale.output))
        .collect();
    if !scales.is_empty() {
        list.word(Computation, "map_scales", scales.join(" "));
    }
    norm(list, "attn_pre_norm", spec.attn_pre.as_ref());
    norm(list, "attn_out_norm", spec.attn_out.as_ref());
    norm(list, "attn_post_norm", spec.attn_post.as_ref());
    norm(list, "mlp_pre_norm", spec.mlp_pre.as_ref());
    norm(list, "mlp_out_norm", spec.mlp_out.as_ref());
    norm(list, "mlp_post_norm", spec.mlp_post.as_ref());
    list.word(Computation, "parallel", spec.is_parallel);
    let branches = ["branch_scale", "mlp_branch_scale"].into_iter();
    for (name, factor) in branches.zip(spec.branch_scales) {
        list.add(Computation, name, KnobValue::single(factor));
    }
    let residuals = ["attn_resid_factor", "mlp_resid_factor"].into_iter();
    for (name, factor) in residuals.zip(spec.resid_factors) {
        list.add(Computation, name, KnobValue::single(factor));
    }
    list.word(Computation, "adds_to_normed", spec.adds_to_normed);
    list.word(Shape, "narrow_branch", spec.narrow.is_some());
    row(list, spec.row.as_deref());
    ends(list, spec);
    let conformer = spec.conformer.as_ref().map(|conformer| conformer.words());
    list.word(
        Computation,
        "conformer",
        conformer.unwrap_or("no".to_owned()),
    );
    let bottleneck = spec.bottleneck.as_ref().map(|of| of.words());
    list.word(Shape, "bottleneck", bottleneck.unwrap_or("none".to_owned()));
    match &spec.feed_forward {
        FeedForward::Dense(mlp) => {
            list.word(Shape, "experts", "none");
            feed_forward(list, mlp);
        }
        FeedForward::Experts(experts) => {
            list.count(Shape, "experts", experts.experts.len());
            list.count(Shape, "identity_experts", experts.rule.n_identities);
            list.count(Shape, "experts_always_used", experts.rule.n_always);
            let rule = &experts.rule;
            list.count(Computation, "n_experts_used", rule.n_used);
            let scores = match rule.scores {
                RouterScores::Softmax => "softmax over all experts".to_owned(),
                RouterScores::SoftmaxOfChosen => "softmax over chosen experts".to_owned(),
                RouterScores::Sigmoid => "sigmoid".to_owned(),
                RouterScores::RootSoftplus => "root of softplus".to_owned(),
                RouterScores::SigmoidOfChosen => "sigmoid of chosen experts".to_owned(),
                RouterScores::Mixer(near) => format!("softmax over near experts, within {near}"),
            };
            list.word(Computation, "router_scores", scores);
            list.word(Computation, "router_normalises", rule.normalises);
            list.add(Computation, "router_power", KnobValue::single(rule.power));
            list.add(
                Computation,
                "router_least_sum",
                KnobValue::single(rule.least_sum),
            );
            list.word(Computation, "router_scales_inputs", rule.scales_inputs);
            let capacity = rule
                .capacity
                .map_or_else(|| "none".to_owned(), |most| most.to_string());
            list.word(Computation, "router_capacity", capacity);
            list.add(Computation, "router_scale", KnobValue::single(rule.scale));
            let groups = rule.groups.map(|of| {
                format!(
                    "{} of {} groups, by their best {}",
                    of.n_kept, of.n, of.n_best
                )
            });
            let groups = KnobValue::or_none(groups, KnobValue::Word);
            list.add(Computation, "router_groups", groups);
            list.word(Shape, "shared_expert", experts.shared.is_some());
            list.word(Shape, "experts_apart", experts.apart.is_some());
            list.word(Shape, "expert_norms", experts.norms.is_some());
            if let Some(mlp) = experts.experts.first() {
                feed_forward(list, mlp);
            }
        }
        FeedForward::None => list.word(Shape, "experts", "no feed-forward layer"),
    }
}

/// Joins values.
pub(super) fn words<T: std::fmt::Display>(all: &[T]) -> String {
    let all: Vec<String> = all.iter().map(T::to_string).collect();
    all.join(" ")
}

/// Describes heads that deviate from their layer, each with its differing knobs.
fn exceptions(own: &SelfSpec) -> String {
    let knobs = |spec: &AttentionSpec, maps: &ProjectionSpec| {
        let mut list = List {
            knobs: Vec::new(),
            slot: String::new(),
        };
        attention(&mut list, spec);
        projections(&mut list, maps);
        list.knobs
    };
    let layer = knobs(&own.attention, &own.projections);
    let heads = |heads: &Range<usize>| match heads.len() {
        1 => format!("H{}", heads.start),
        _ => format!("H{}–{}", heads.start, heads.end.saturating_sub(1)),
    };
    let variants = own.exceptions.variants.iter().map(|variant| {
        let all = knobs(&variant.attention, &variant.projections);
        let differing = all.iter().filter(|knob| !layer.contains(knob));
        let each = differing.map(|knob| format!(" {}={}", knob.name, knob.value));
        format!("{}{}", heads(&variant.heads), each.collect::<String>())
    });
    let dropped = own.exceptions.ablated.iter().map(|(head, by)| {
        let by = match by {
            Ablation::Zero => "zero",
            Ablation::Mean => "mean",
        };
        format!("H{head} drop={by}")
    });
    variants.chain(dropped).collect::<Vec<_>>().join(", ")
}

fn feed_forward(list: &mut List, mlp: &MlpSpec) {
    list.count(Shape, "d_mlp", mlp.up.n_out());
    list.word(Shape, "gated", mlp.gate.is_some());
    let activation = match &mlp.learned {
        Some(learned) => learned.word().to_owned(),
        None => mlp.activation.to_string(),
    };
    list.word(Computation, "activation", activation);
    let of_patches = mlp.convolution.as_deref().map(HiddenConvolution::words);
    let of_patches = of_patches.unwrap_or("none".to_owned());
    list.word(Computation, "mlp_convolution", of_patches);
    norm(list, "hidden_norm", mlp.hidden_norm.as_ref());
    if let Some(after) = mlp.out_activation {
        list.word(Computation, "out_activation", after);
    }
    match mlp.gate_rule {
        GateRule::Product => {}
        GateRule::Limited { limit } => {
            list.add(Computation, "gate_limit", KnobValue::single(limit));
        }
        GateRule::LimitedBefore { limit } => list.word(Computation, "gate_limit_before", limit),
        GateRule::Clamped { limit, alpha } => {
            list.add(Computation, "gate_limit", KnobValue::single(limit));
            list.add(Computation, "gate_alpha", KnobValue::single(alpha));
        }
    }
}

fn attention(list: &mut List, spec: &AttentionSpec) {
    list.count(Shape, "n_heads", spec.n_heads);
    list.count(Shape, "n_kv_heads", spec.n_kv_heads);
    list.count(Shape, "d_head", spec.d_head);
    list.count(Shape, "d_value", spec.d_value);
    let scale = match spec.scale {
        Scale::OfKeys(OfKeys {
            divisor,
            factor: 1.0,
        }) => KnobValue::word(divisor),
        Scale::OfKeys(OfKeys { divisor, factor }) => {
            KnobValue::word(format!("{divisor} × {factor}"))
        }
        other => KnobValue::single(other.factor(spec.d_head)),
    };
    list.add(Computation, "scale", scale);
    list.word(Computation, "softmax_axis", spec.softmax_axis);
    let mask = if spec.mask.causal {
        "causal"
    } else {
        "bidirectional"
    };
    list.word(Computation, "mask", mask);
    let window = match spec.mask.window {
        None => KnobValue::word("none"),
        Some(window) => match window.width_back() {
            Some(width) => KnobValue::count(width),
            None => KnobValue::word(window.to_string().trim_start_matches("window ")),
        },
    };
    list.add(Computation, "window", window);
    list.serving(spec);
    let globals = spec.globals.map(|globals| globals.to_string());
    let globals = KnobValue::or_none(globals, KnobValue::Word);
    list.add(Computation, "global_tokens", globals);
    let without_keys = match spec.no_visible {
        NoVisible::Zero => "zero",
        NoVisible::Uniform => "uniform",
        NoVisible::Nan => "nan",
    };
    list.word(Computation, "row_without_keys", without_keys);
    list.add(
        Computation,
        "softcap",
        KnobValue::or_none(spec.softcap, KnobValue::single),
    );
    if spec.softcap.is_some() {
        list.word(Computation, "caps_bias", spec.caps_bias);
    }
    let growth = spec.growth.map(|growth| {
        let Growth {
            beta,
            period,
            first,
            curve,
        } = growth;
        let how = match curve {
            GrowthCurve::Steps => "",
            GrowthCurve::Power => "power of ",
            GrowthCurve::Log => "logarithm from one period on, ",
        };
        format!("{how}{beta} per {period} positions, from {first}")
    });
    list.add(
        Computation,
        "query_growth",
        KnobValue::or_none(growth, KnobValue::word),
    );
    position(list, spec);
}

fn projections(list: &mut List, spec: &ProjectionSpec) {
    list.serving(spec);
    norm(list, "q_norm", spec.q_norm.as_ref());
    norm(list, "k_norm", spec.k_norm.as_ref());
    norm(list, "z_norm", spec.z_norm.as_ref());
    list.word(Computation, "norms_each_z", spec.norms_each_z);
    let clip = KnobValue::or_none(spec.clip, KnobValue::single);
    list.add(Computation, "qkv_clip", clip);
    list.word(Shape, "sinks", spec.sinks.is_some());
    if spec.gate.is_some() {
        list.word(Computation, "gate_function", spec.gate_function);
    }
    if spec.q_norm.is_some() || spec.k_norm.is_some() {
        list.word(Computation, "norms_after_rope", spec.norms_after_rope);
    }
    list.word(Shape, "relative", spec.relative.is_some());
    if let Some(steps) = &spec.steps {
        list.word(Shape, "steps", step_word(steps));
    }
    list.word(Shape, "bias_gate", spec.bias_gate.is_some());
    let difference = spec.difference.as_ref();
    let first = difference.map(|difference| difference.first);
    list.add(
        Computation,
        "difference",
        KnobValue::or_none(first, KnobValue::single),
    );
    list.word(Shape, "latent", spec.latent.is_some());
    if let Some(latent) = &spec.latent {
        list.count(Shape, "d_latent", latent.kv.n_out());
        norm(list, "latent_norm", Some(&latent.kv_norm));
        norm(list, "shared_key_norm", latent.shared_key_norm.as_ref());
        list.word(Shape, "latent_sharing", sharing_word(latent.shared));
    }
    of_few(list, spec);
}

/// Adds a norm's presence and kind, and its epsilon, which is one knob for all norms that share it.
fn norm(list: &mut List, name: &'static str, norm: Option<&NormSource>) {
    let kind = match norm.map(|norm| norm.kind) {
        None => "none",
        Some(NormKind::LayerNorm) => "layer_norm",
        Some(NormKind::RmsNorm) => "rms_norm",
        Some(NormKind::Fixed) if norm.is_some_and(|norm| norm.statistics.is_some()) => "batch_norm",
        Some(NormKind::Fixed) if norm.is_some_and(|norm| norm.groups.is_some()) => "group_norm",
        Some(NormKind::Fixed) => "gain and bias alone",
        Some(NormKind::Tanh) => "tanh",
    };
    // The kind of a norm, or its absence, does not change the shapes of hooks.
    list.word(Computation, name, kind);
    let Some(norm) = norm else { return };
    // Norms of a layer share its slot, so the norm's name is added.
    let slot = list.slot.clone();
    list.slot = match slot.as_str() {
        "" => name.to_owned(),
        slot => format!("{slot} {name}"),
    };
    list.add(Computation, "norm_eps", KnobValue::single(norm.eps));
    list.word(Computation, "norm_gain", norm.gain_words());
    list.slot = slot;
}
