//! Rotary embeddings as a reading supposes them.

use attnscope_compute::attention::{AttentionSpec, RopeTable};

use super::as_read::Segment;
use super::deviation::RotationOverride;
use super::head_order::transposed_rows;

/// Applies rotary embeddings to queries and keys, and to values where they turn too, if the spec has them. // parts: q, k, v, each [position, heads · d_head]
pub(super) fn turn(attention: &AttentionSpec, segment: &Segment<'_>, parts: &mut [Vec<f32>; 3]) {
    let Some(rope) = &attention.rope else {
        return;
    };
    let (d_head, turned) = (attention.d_head, segment.deviation.turned);
    let numbers: Vec<usize> = (0..attention.n_heads.max(attention.n_kv_heads)).collect();
    let by_head = turned == RotationOverride::ByHead;
    let by = if by_head {
        &numbers
    } else {
        &segment.sequence.positions
    };
    let mut rope = segment.sequence.turning(rope).into_owned();
    let is_permuted = turned == RotationOverride::PermutedTwice;
    rope.interleaved ^= is_permuted;
    let table = RopeTable::new(&rope, by);
    let [q, k, v] = parts;
    if turned == RotationOverride::QueriesRotaryFirst {
        let heads = q.chunks_mut(d_head);
        heads.for_each(|head| head.rotate_left(rope.d_rotary));
    }
    let rotate = |values: &mut [f32], n_heads: usize| {
        for (position_idx, row) in values.chunks_mut(n_heads * d_head).enumerate() {
            for (head_idx, head) in row.chunks_mut(d_head).enumerate() {
                if is_permuted {
                    // Taken back once, pairs stand in the other order. Products of queries and keys stay as they are.
                    let turns = &mut head[rope.first..rope.first + rope.d_rotary];
                    let shape = if rope.interleaved {
                        (rope.d_rotary / 2, 2)
                    } else {
                        (2, rope.d_rotary / 2)
                    };
                    turns.copy_from_slice(&transposed_rows(turns, shape.0, shape.1));
                }
                table.rotate(if by_head { head_idx } else { position_idx }, head);
            }
        }
    };
    let n_times = if turned == RotationOverride::Twice {
        2
    } else {
        1
    };
    for _ in 0..n_times {
        rotate(q, attention.n_heads);
        if !rope.leaves_keys {
            rotate(k, attention.n_kv_heads);
        }
    }
    let turns_values = rope.turns_values != (turned == RotationOverride::WithValues);
    if turns_values && attention.d_value == d_head {
        rotate(v, attention.n_kv_heads);
    }
}
