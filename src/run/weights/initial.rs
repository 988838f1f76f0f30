//! Initial values of a layer's norm gains and biases before training.

use attnscope_spec::{BlockSpec, FeedForward, MlpSpec, NormSource};

/// Initial value of a gain or a bias.
#[derive(Debug, Clone, Copy)]
pub(super) enum Initial {
    One,
    Zero,
    /// 0, or uniform noise up to 1/√(inputs), which is PyTorch's default for biases.
    Bias {
        n_in: usize,
    },
}

/// Gains and biases of a layer, with their initial values.
pub(super) fn initial_values(block: &BlockSpec) -> Vec<(&str, Initial)> {
    let mut all = Vec::new();
    let norm = |norm: Option<&'_ NormSource>| -> Vec<(String, Initial)> {
        let Some(norm) = norm else { return Vec::new() };
        let gain = if norm.adds_one {
            Initial::Zero
        } else {
            Initial::One
        };
        let gains = norm.gain.iter().map(|name| (name.clone(), gain));
        let biases = norm.bias.iter().map(|name| (name.clone(), Initial::Zero));
        gains.chain(biases).collect()
    };
    let own = block.own().map(|own| &own.projections);
    let cross = block.cross_apart();
    let mut named = Vec::new();
    for source in [
        block.attn_pre.as_ref(),
        block.attn_out.as_ref(),
        block.attn_post.as_ref(),
        block.mlp_pre.as_ref(),
        block.mlp_out.as_ref(),
        block.mlp_post.as_ref(),
        cross.and_then(|cross| cross.pre.as_ref()),
        cross.and_then(|cross| cross.out.as_ref()),
        cross.and_then(|cross| cross.post.as_ref()),
        own.and_then(|own| own.q_norm.as_ref()),
        own.and_then(|own| own.k_norm.as_ref()),
    ] {
        named.extend(norm(source));
    }
    let mut linears = block.linears();
    if let FeedForward::Experts(experts) = &block.feed_forward {
        let maps = |mlp: &'_ MlpSpec| {
            [
                Some(mlp.up.clone()),
                mlp.gate.clone(),
                Some(mlp.down.clone()),
            ]
        };
        let of_experts = experts.experts.iter().flat_map(maps).flatten();
        named.extend(of_experts.filter_map(|linear| {
            let n_in = linear.n_in;
            linear.bias.map(|bias| (bias, Initial::Bias { n_in }))
        }));
    }
    linears.retain(|linear| linear.bias.is_some());
    named.extend(linears.iter().filter_map(|linear| {
        let bias = linear.bias.clone()?;
        Some((bias, Initial::Bias { n_in: linear.n_in }))
    }));
    // Borrow the names from the block.
    for (name, _) in block.tensors() {
        if let Some((_, initial)) = named.iter().find(|(known, _)| known == name)
            && !all.iter().any(|(known, _)| *known == name)
        {
            all.push((name, *initial));
        }
    }
    all
}

/// Whether biases look like uniform noise within ±1/√n_in, PyTorch's default: bounded by it, and with its standard deviation.
pub(super) fn is_default_bias(values: &[f32], n_in: usize) -> bool {
    const FEWEST: usize = 16;
    let bound = 1.0 / (n_in.max(1) as f64).sqrt();
    let squares = values
        .iter()
        .map(|v| f64::from(*v) * f64::from(*v))
        .sum::<f64>();
    let deviation = (squares / values.len().max(1) as f64).sqrt();
    let largest = values
        .iter()
        .map(|v| f64::from(v.abs()))
        .fold(0.0, f64::max);
    // The mean square of n uniform numbers is within 4 of its own standard deviations.
    let slack = 4.0 * (0.2 / values.len().max(1) as f64).sqrt();
    let expected = bound / 3f64.sqrt();
    values.len() >= FEWEST
        && largest <= 1.001 * bound
        && ((deviation / expected).powi(2) - 1.0).abs() <= slack.max(0.05) * 3f64.sqrt()
}
