//! What a feed-forward layer reads: its maps, or a router and experts.

use super::Walk;
use crate::roles::{Division, Source, Use};
use crate::{FeedForward, MlpSpec};

impl<'a> Walk<'_, 'a> {
    pub(super) fn feed_forward(&mut self, name: &str, feed_forward: &'a FeedForward) {
        let experts = match feed_forward {
            FeedForward::Dense(mlp) => return self.mlp(&format!("{name}mlp"), mlp),
            FeedForward::Experts(experts) => experts,
            FeedForward::None => return,
        };
        self.linear(format_args!("{name}router"), &experts.router);
        let scales = experts.rule.expert_scales.as_ref();
        let n = experts.experts.len() + experts.rule.n_identities;
        self.optional_vector(format_args!("{name}router.scales"), scales, n);
        for (what, norm) in experts.apart.iter().flat_map(|apart| apart.all()) {
            self.norm(format_args!("{name}apart.{what}"), Some(norm), None);
        }
        if let Some(bias) = &experts.rule.choice_bias {
            let key = format_args!("{name}router.choice");
            self.vector(key, &bias.tensor, bias.shape.clone());
        }
        if let Some(table) = &experts.rule.by_token {
            let (tensor, shape) = (&table.tensor, vec![table.d_vocab, experts.rule.n_used]);
            let key = format_args!("{name}router.by_token");
            self.push(key, Source::Numbers { tensor, shape }, Division::None);
        }
        for (idx, mlp) in experts.experts.iter().enumerate() {
            self.with_use(Use::Expert(idx), |walk| {
                walk.mlp(&format!("{name}expert.{idx}"), mlp);
            });
        }
        for (what, norm) in experts.norms.iter().flat_map(|norms| norms.all()) {
            self.norm(format_args!("{name}expert.{what}_norm"), Some(norm), None);
        }
        let latent = experts.latent.iter().flatten();
        self.linears(format_args!("{name}expert."), &["in", "out"], latent);
        if let Some((mlp, gate)) = &experts.shared {
            self.mlp(&format!("{name}shared"), mlp);
            if let Some(gate) = gate {
                self.linear(format_args!("{name}shared.weight"), gate);
            }
        }
    }

    pub(super) fn mlp(&mut self, name: &str, mlp: &'a MlpSpec) {
        if let Some(gate) = &mlp.gate {
            self.linear(format_args!("{name}.gate"), gate);
        }
        self.linear(format_args!("{name}.up"), &mlp.up);
        let of_patches = mlp
            .convolution
            .iter()
            .flat_map(|of| of.convolution.tensors());
        for (nth, (tensor, shape)) in of_patches.enumerate() {
            self.vector(format_args!("{name}.convolution.{nth}"), tensor, shape);
        }
        let norm = mlp.hidden_norm.as_ref();
        self.norm(format_args!("{name}.hidden_norm"), norm, None);
        self.linear(format_args!("{name}.down"), &mlp.down);
        if let Some(learned) = &mlp.learned {
            for (part, tensor, shape) in learned.tensors() {
                self.vector(format_args!("{name}.activation.{part}"), tensor, shape);
            }
        }
    }
}
