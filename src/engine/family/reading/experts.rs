//! Feed-forward layers of many experts, as the families that store them one by one name them.

use crate::checkpoint::Tensors;
use crate::model::{ExpertsSpec, FeedForward, GateRule, LinearSource, MlpSpec, RouterRule};
use crate::ops::Activation;

/// Names of the three maps of a gated feed-forward layer.
#[derive(Debug, Clone, Copy)]
pub struct GatedNames {
    pub gate: &'static str,
    pub up: &'static str,
    pub down: &'static str,
}

/// The names most families use.
pub const USUAL: GatedNames = GatedNames {
    gate: "gate_proj",
    up: "up_proj",
    down: "down_proj",
};

/// down(act(gate x) · up x), stored under `at`.
pub fn gated(
    at: &str,
    names: GatedNames,
    d_model: usize,
    d_mlp: usize,
    activation: Activation,
    has_bias: bool,
) -> MlpSpec {
    let linear =
        |name: &str, n_in, n_out| super::linear(&format!("{at}.{name}"), n_in, n_out, has_bias);
    MlpSpec {
        up: linear(names.up, d_model, d_mlp),
        gate: Some(linear(names.gate, d_model, d_mlp)),
        down: linear(names.down, d_mlp, d_model),
        activation,
        gate_rule: GateRule::Product,
    }
}

/// What experts of one layer look like.
#[derive(Debug, Clone)]
pub struct ExpertsRule {
    /// Under the layer: where experts and router stand.
    pub at: &'static str,
    pub names: GatedNames,
    pub n_experts: usize,
    pub d_expert: usize,
    pub router: RouterRule,
    /// Width of the expert that every token uses, and its names.
    pub shared: Option<SharedRule>,
}

/// The expert that every token uses.
#[derive(Debug, Clone, Copy)]
pub struct SharedRule {
    pub name: &'static str,
    pub d_mlp: usize,
    /// The map whose sigmoid weighs it.
    pub gate: Option<&'static str>,
}

/// The experts of one layer.
pub fn experts(
    tensors: &Tensors,
    layer: &str,
    rule: &ExpertsRule,
    d_model: usize,
    activation: Activation,
) -> FeedForward {
    let at = format!("{layer}.{}", rule.at);
    let router =
        super::linear_bias_if_stored(tensors, &format!("{at}.gate"), d_model, rule.n_experts);
    let choice_bias = rule
        .router
        .choice_bias
        .as_ref()
        .map(|name| format!("{at}.{name}"));
    let expert = |idx: usize| {
        let at = format!("{at}.experts.{idx}");
        gated(&at, rule.names, d_model, rule.d_expert, activation, false)
    };
    let shared = rule.shared.map(|shared| {
        let at_shared = format!("{at}.{}", shared.name);
        let mlp = gated(
            &at_shared,
            rule.names,
            d_model,
            shared.d_mlp,
            activation,
            false,
        );
        let gate = shared
            .gate
            .map(|gate| LinearSource::whole(format!("{at}.{gate}.weight"), None, d_model, 1));
        (mlp, gate)
    });
    FeedForward::Experts(Box::new(ExpertsSpec {
        router,
        rule: RouterRule {
            choice_bias,
            ..rule.router.clone()
        },
        experts: (0..rule.n_experts).map(expert).collect(),
        shared,
    }))
}
