//! A block that works on a narrower residual than that of its stack, as data.

use super::feed_forward::MlpSpec;
use super::norm_source::NormSource;
use super::source::LinearSource;

/// norm(map x).
#[derive(Debug, Clone, PartialEq)]
pub struct NormedMap {
    pub map: LinearSource,
    pub norm: NormSource,
}

/// A block with a bottleneck (Sun et al. 2020, arXiv 2004.02984): its branches add to y = into(x), and behind them x becomes
/// norm(x + out y).
#[derive(Debug, Clone, PartialEq)]
pub struct Bottleneck {
    pub into: NormedMap,
    /// Whether heads read y, and not x.
    pub heads_read_inside: bool,
    /// Feed-forward layers between attention and the block's own one: y becomes norm(y + mlp(y)), one after another.
    pub layers: Vec<(MlpSpec, NormSource)>,
    pub out: LinearSource,
    pub out_norm: NormSource,
}

impl Bottleneck {
    /// Describes the computation, for comparisons.
    pub fn words(&self) -> String {
        let read = if self.heads_read_inside {
            "the narrow residual"
        } else {
            "the wide residual"
        };
        let (width, n) = (self.into.map.n_out(), self.layers.len());
        format!("{width} wide, heads read {read}, {n} layers before the last")
    }

    /// The maps, mutable.
    pub fn linears_mut(&mut self) -> impl Iterator<Item = &mut LinearSource> {
        let layers = self.layers.iter_mut();
        let of_layers = layers.flat_map(|(mlp, _)| [&mut mlp.up, &mut mlp.down]);
        [&mut self.into.map, &mut self.out]
            .into_iter()
            .chain(of_layers)
    }

    /// The norms, mutable.
    pub fn norms_mut(&mut self) -> impl Iterator<Item = &mut NormSource> {
        let of_layers = self.layers.iter_mut().map(|(_, norm)| norm);
        [&mut self.into.norm, &mut self.out_norm]
            .into_iter()
            .chain(of_layers)
    }
}
