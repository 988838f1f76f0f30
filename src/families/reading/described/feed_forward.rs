//! The feed-forward layers of a described model.

use attnscope_spec::{FeedForward, LinearSource, MlpSpec};

use super::Mlp;
use super::parts::MapPart;
use super::spec::{Reads, part_of};
use crate::reading::activation_by_name;

impl Reads<'_> {
    /// The feed-forward layer of a block.
    pub(super) fn feed_forward(&self, layer_idx: usize) -> Result<FeedForward, String> {
        let (of, d_model, d_mlp) = (self.of, self.sizes.d_model, self.sizes.d_mlp);
        if !of.feed_forward_layers.have(layer_idx) {
            return Ok(FeedForward::None);
        }
        let plain = |part: &MapPart, n_in, n_out| self.map(part, layer_idx, (n_in, n_out), false);
        let down = match &of.down {
            Some(down) => plain(down, d_mlp, d_model),
            None => self.identity(),
        };
        let mlp = of.mlp.as_ref();
        let maps = mlp.map(|mlp| self.first_maps(mlp, d_mlp, plain));
        let experts = of.experts.as_ref().filter(|own| own.are_in(layer_idx));
        Ok(match (experts, maps) {
            (Some(experts), _) => self.experts(experts, layer_idx)?,
            (None, None) => FeedForward::None,
            (None, Some((gate, up))) => FeedForward::Dense(Box::new(MlpSpec {
                gate,
                hidden_norm: of
                    .hidden_norm
                    .as_ref()
                    .map(|norm| self.norm(norm, layer_idx, d_mlp)),
                out_activation: of.out_activation.as_deref().and_then(activation_by_name),
                ..MlpSpec::plain(up, down, self.activation)
            })),
        })
    }

    /// The gate, if there is one, and the up projection of a feed-forward layer of some width; `map` makes one of their maps.
    pub(super) fn first_maps(
        &self,
        mlp: &Mlp,
        width: usize,
        map: impl Fn(&MapPart, usize, usize) -> LinearSource,
    ) -> (Option<LinearSource>, LinearSource) {
        let d_model = self.sizes.d_model;
        match mlp {
            Mlp::Plain(up) => (None, map(up, d_model, width)),
            Mlp::Gated(gate, up) => (Some(map(gate, d_model, width)), map(up, d_model, width)),
            Mlp::Fused(both) => {
                let fused = map(&both.map, d_model, 2 * width);
                let part = |name| part_of(both, &fused, name, self.of, |_| width);
                (Some(part("gate")), part("up"))
            }
        }
    }
}
