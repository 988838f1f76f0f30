//! Parts of a projection that are all 0, head by head.

use attnscope_compute::attention::AttentionSpec;
use attnscope_spec::{BlockSpec, LinearSource, ProjectionSpec};

/// Heads whose part of a projection is all 0, in words.
pub(super) fn zero_parts(name: &str, block: &BlockSpec, values: &[f32]) -> Vec<String> {
    let own = block.own().map(|own| (&own.projections, &own.attention));
    let cross = block
        .cross_apart()
        .map(|cross| (&cross.projections, &cross.attention));
    let mut parts = Vec::new();
    for (projections, attention) in own.into_iter().chain(cross) {
        if !projections.is_by_head() {
            continue;
        }
        for (linear, what, of_inputs, n_heads) in sides(projections, attention) {
            if linear.weight != name || linear.slab.is_some() {
                continue;
            }
            let n = if of_inputs {
                linear.n_in
            } else {
                linear.n_out()
            };
            let d = n / n_heads.max(1);
            for head_idx in 0..n_heads {
                let mut all = (head_idx * d..(head_idx + 1) * d).map(|idx| Line {
                    linear,
                    idx,
                    of_inputs,
                });
                if d > 0 && all.all(|line| line.is_zero(values)) {
                    parts.push(format!("{what} of head {head_idx}"));
                }
            }
        }
    }
    parts
}

/// A projection, the name of a head's part of it, whether that part is made of inputs, and the number of heads.
type Side<'a> = (&'a LinearSource, &'static str, bool, usize);

fn sides<'a>(projections: &'a ProjectionSpec, attention: &AttentionSpec) -> Vec<Side<'a>> {
    let (n_heads, n_kv_heads) = (attention.n_heads, attention.n_kv_heads);
    let mut sides = vec![(&projections.q, "the query rows", false, n_heads)];
    // Keys and values of an earlier layer are reported for that layer.
    if !projections.reuses_keys() {
        sides.extend([
            (&projections.k, "the key rows", false, n_kv_heads),
            (&projections.v, "the value rows", false, n_kv_heads),
        ]);
    }
    sides.push((&projections.o, "the output columns", true, n_heads));
    sides
}

/// One output or one input of a projection, as a line of the stored matrix.
struct Line<'a> {
    linear: &'a LinearSource,
    idx: usize,
    of_inputs: bool,
}

impl Line<'_> {
    fn is_zero(&self, values: &[f32]) -> bool {
        let LinearSource {
            n_stored_out,
            is_input_major,
            part,
            groups,
            inputs,
            ..
        } = *self.linear;
        // An input of a map in groups has no column of its own.
        if self.of_inputs && groups.is_some() {
            return false;
        }
        // Outputs are selected from a fused matrix.
        let at = if self.of_inputs {
            self.idx + inputs.map_or(0, |inputs| inputs.first)
        } else {
            self.idx / part.len * part.group + part.offset + self.idx % part.len
        };
        let width = if is_input_major {
            n_stored_out
        } else {
            self.linear.n_stored_in()
        };
        let is_row = self.of_inputs == is_input_major;
        if is_row {
            let row = values.get(at * width..(at + 1) * width);
            row.is_some_and(|row| row.iter().all(|value| *value == 0.0))
        } else {
            let mut column = values.iter().skip(at).step_by(width.max(1));
            column.all(|value| *value == 0.0)
        }
    }
}
