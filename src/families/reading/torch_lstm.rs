//! Layers of `torch.nn.LSTM`, by the names of its weights.

use attnscope_checkpoint::{Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::LinearSource;
use attnscope_spec::recurrent::CellSpec;

/// One layer in one direction: `layer` is `l0`, `l1_reverse`, ….
pub fn cell(tensors: &Tensors, module: &str, layer: &str, n_in: usize, width: usize) -> CellSpec {
    let map = |what: &str, n_in: usize| {
        let bias = Some(format!("{module}.bias_{what}_{layer}"));
        let bias = bias.filter(|bias| tensors.contains(bias));
        LinearSource::whole(
            format!("{module}.weight_{what}_{layer}"),
            bias,
            n_in,
            4 * width,
        )
    };
    CellSpec {
        input: map("ih", n_in),
        hidden: map("hh", width),
    }
}

/// Refuses more layers than there are tensors, before building a list of them.
///
/// # Errors
/// When there are more.
pub fn check_layers(reader: &Reader<'_>, tensors: &Tensors, n_layers: usize) -> Result<()> {
    if n_layers <= tensors.len() {
        return Ok(());
    }
    let problem = format!("expected at most one layer per tensor, found {n_layers}");
    Err(Error::config(reader.path(), "num_encoder_layers", problem))
}
