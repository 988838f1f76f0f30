//! Hyper-connections: several residual streams, which the branches of every block read as weighted sums.

use attnscope_checkpoint::{Origin, Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    BlockRow, ConnectionSpec, FoldSpec, HyperSpec, KeptStart, LinearSource, ModelSpec, RowSpec,
    StreamEnds, StreamWeights, StreamsSpec, WeightedConnection,
};

use super::hybrid::layer_of;

/// How the hyper-connections of a family differ from others.
#[derive(Debug, Clone, Copy)]
pub struct HyperKeys {
    /// The key of the largest weight of a branch's output, with its default, where every stream goes on by itself. Without it, streams
    /// are mixed by a matrix that Sinkhorn's rounds balance.
    pub magnitude: Option<(&'static str, f64)>,
    /// Whether learned weights fold the streams behind the last block; otherwise it is their mean.
    pub weighs_end: bool,
}

/// Default number of streams, and of rounds.
const STREAMS: usize = 4;
const ROUNDS: usize = 20;

/// More rounds change nothing, and would run for ever.
const MOST_ROUNDS: usize = 1000;

const N: &str = "hc_mult";

/// Gives every block of the main stack its hyper-connections.
///
/// # Errors
/// When a value is impossible, or the configuration describes more than the file can hold.
pub fn connect(
    reader: &mut Reader<'_>,
    tensors: &Tensors,
    keys: HyperKeys,
    spec: &mut ModelSpec,
) -> Result<()> {
    let n = reader.size_or("n_streams", N, STREAMS, Origin::Default(N.to_owned()))?;
    if n > tensors.len() {
        let n_tensors = tensors.len();
        let problem = format!("{n} streams need more than the {n_tensors} tensors that are stored");
        return Err(Error::config(reader.path(), N, problem));
    }
    let least = reader.number_or("least_stream_weight", "hc_eps", 1e-6)? as f32;
    let (magnitude, rounds) = match keys.magnitude {
        Some((key, default)) => (
            reader.number_or("branch_weight", key, default)? as f32,
            None,
        ),
        None => {
            const KEY: &str = "hc_sinkhorn_iters";
            let origin = Origin::Default(KEY.to_owned());
            let rounds = reader.size_or("stream_rounds", KEY, ROUNDS, origin)?;
            if rounds > MOST_ROUNDS {
                let problem = format!("expected at most {MOST_ROUNDS} rounds, found {rounds}");
                return Err(Error::config(reader.path(), KEY, problem));
            }
            (2.0, Some(rounds))
        }
    };
    let d_model = spec.d_model;
    let Some(stack) = spec.stacks.last_mut() else {
        return Ok(());
    };
    let norm = stack.final_norm.as_ref();
    let eps = norm.map_or(1e-6, |norm| norm.eps);
    let base = norm.and_then(|norm| norm.gain.first());
    let base = base.map_or("", |name| name.trim_end_matches("norm.weight"));
    let weights = |at: &str, n_out: usize| StreamWeights {
        map: LinearSource::whole(format!("{at}fn"), None, n * d_model, n_out),
        eps,
        scale: format!("{at}scale"),
        base: format!("{at}base"),
        least,
    };
    let fold = if keys.weighs_end {
        FoldSpec::Weighted(Box::new(weights(&format!("{base}hc_head.hc_"), n)))
    } else {
        FoldSpec::Mean
    };
    let connection = |at: String| {
        ConnectionSpec::Weighted(Box::new(WeightedConnection {
            weights: weights(&at, 2 * n + rounds.map_or(0, |_| n * n)),
            magnitude,
            least_post: if rounds.is_some() { 0.0 } else { least },
            rounds,
        }))
    };
    let n_kept = stack.rows.as_ref().map_or(0, |rows| rows.n_kept);
    for block in stack.blocks_mut() {
        let at = layer_of(block, ".input_layernorm.weight");
        let hyper = HyperSpec {
            n,
            branches: ["attn_hc", "ffn_hc"].map(|name| connection(format!("{at}.{name}."))),
            fold: fold.clone(),
        };
        block.row = Some(Box::new(BlockRow {
            beside: false,
            d_model,
            streams: Some(StreamsSpec::Connected(Box::new(hyper))),
            n_kept,
            shortcut: None,
            join: None,
        }));
    }
    stack.rows = Some(Box::new(RowSpec {
        first: KeptStart::Nothing,
        d_model,
        streams: Some(StreamEnds::Copied { n, fold }),
        n_kept,
    }));
    Ok(())
}
