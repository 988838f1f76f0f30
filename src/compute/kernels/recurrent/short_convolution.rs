//! A depthwise causal convolution over a few tokens.

use rayon::prelude::*;

/// Σ over a token and those before it of weight · value, for each channel separately. `kernel` has a row per channel, whose last
/// weight belongs to the token itself. `tail` holds the earlier values that the kernel covers, and is updated.
/// // values: [position, channel], kernel: [channel, token] → [position, channel]
pub fn short_convolution(
    tail: &mut Vec<f32>,
    values: &[f32],
    kernel: &[f32],
    bias: Option<&[f32]>,
    n_channels: usize,
) -> Vec<f32> {
    let n = n_channels.max(1);
    let n_tokens = kernel.len() / n;
    let n_before = tail.len() / n;
    tail.extend_from_slice(values);
    let all = &*tail;
    // Ordered by distance, so that whole rows are multiplied.
    let by_distance: Vec<Vec<f32>> = (0..n_tokens)
        .map(|back| {
            let weights = kernel.chunks(n_tokens.max(1));
            weights.map(|row| row[n_tokens - 1 - back]).collect()
        })
        .collect();
    let mut mixed = vec![0.0; values.len()];
    let rows = mixed.par_chunks_mut(n).enumerate();
    rows.for_each(|(position_idx, to)| {
        if let Some(bias) = bias {
            to.copy_from_slice(bias);
        }
        let at = n_before + position_idx;
        for (back, weights) in by_distance.iter().enumerate().take(at + 1) {
            let from = &all[(at - back) * n..(at - back + 1) * n];
            let pairs = to.iter_mut().zip(weights).zip(from);
            pairs.for_each(|((to, weight), value)| *to += weight * value);
        }
    });
    let n_kept = n_tokens.saturating_sub(1) * n;
    let n_over = tail.len().saturating_sub(n_kept);
    tail.drain(..n_over);
    mixed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_weight_belongs_to_the_token_itself() {
        let mixed = short_convolution(
            &mut Vec::new(),
            &[1.0, 2.0, 4.0],
            &[10.0, 1.0],
            Some(&[0.5]),
            1,
        );
        assert_eq!(mixed, [1.5, 12.5, 24.5]);
    }

    #[test]
    fn running_token_by_token_is_bit_identical_to_running_all_at_once() {
        let values: Vec<f32> = (0..14).map(|v| (v as f32 * 0.7).sin()).collect();
        let kernel: Vec<f32> = (0..6).map(|v| 0.3 - v as f32 * 0.11).collect();
        let whole = short_convolution(&mut Vec::new(), &values, &kernel, None, 2);
        let mut tail = Vec::new();
        let parts = values.chunks(2);
        let parts: Vec<f32> = parts
            .flat_map(|row| short_convolution(&mut tail, row, &kernel, None, 2))
            .collect();
        assert_eq!(parts, whole);
        assert_eq!(tail, values[10..]);
    }
}
