//! Infers from the first differing values of a recording which rotation or scale it was computed with.

use attnscope_compute::attention::{AttentionSpec, RopeScaling, RopeSpec, RopeTable};

use super::knob::{KnobKind, KnobValue};
use super::knobs::KnobDifference;

/// Rotary bases of trained models.
const THETAS: [f64; 9] = [1e4, 1e5, 1e6, 5e5, 1.5e5, 1.6e5, 2.5e5, 5e6, 1e7];
/// Relative difference below which values match a hypothesis.
const NEAR: f64 = 1e-2;

fn row(knob: &str, a: KnobValue, b: KnobValue) -> KnobDifference {
    KnobDifference {
        knob: knob.to_owned(),
        kind: KnobKind::Computation,
        a,
        b,
    }
}

/// A rotation that may have been computed instead of the model's own.
#[derive(Clone)]
struct RotationHypothesis {
    rope: Option<RopeSpec>,
    positions: Vec<usize>,
    /// The knob difference to report.
    knob: KnobDifference,
}

impl RotationHypothesis {
    fn new(rope: Option<RopeSpec>, positions: Vec<usize>, knob: KnobDifference) -> Self {
        Self {
            rope,
            positions,
            knob,
        }
    }

    /// Rotates all heads of some positions. // [position, heads · d_head]
    fn turn(&self, values: &mut [f32], d_head: usize) {
        let Some(rope) = &self.rope else { return };
        let table = RopeTable::new(rope, &self.positions);
        let width = values.len() / self.positions.len().max(1);
        for (position_idx, row) in values.chunks_mut(width.max(1)).enumerate() {
            for head in row.chunks_mut(d_head.max(1)) {
                table.rotate(position_idx, head);
            }
        }
    }
}

/// Returns the knob that explains differing rotated queries or keys, if one does.
///
/// `before` are the model's values before rotation, `recorded` the recorded values after it. // [position, heads · d_head]
pub(super) fn rotation(
    spec: &AttentionSpec,
    positions: &[usize],
    before: &[f32],
    recorded: &[f32],
) -> Option<KnobDifference> {
    let all = rotation_hypotheses(spec, positions).into_iter();
    let with_distances = all.map(|hypothesis| {
        let mut values = before.to_vec();
        hypothesis.turn(&mut values, spec.d_head);
        (apart(&values, recorded), hypothesis.knob)
    });
    let nearest = with_distances.min_by(|(a, _), (b, _)| a.total_cmp(b));
    nearest
        .filter(|(distance, _)| *distance < NEAR)
        .map(|(_, knob)| knob)
}

/// Returns ‖a − b‖/‖b‖.
fn apart(a: &[f32], b: &[f32]) -> f64 {
    let (mut squares, mut size) = (0.0f64, 0.0f64);
    for (a, b) in a.iter().zip(b) {
        let difference = f64::from(*a) - f64::from(*b);
        squares += difference * difference;
        size += f64::from(*b) * f64::from(*b);
    }
    let share = (squares / size).sqrt();
    if share.is_nan() { f64::INFINITY } else { share }
}

fn rotation_hypotheses(spec: &AttentionSpec, positions: &[usize]) -> Vec<RotationHypothesis> {
    let given = || positions.to_vec();
    let Some(rope) = &spec.rope else {
        let plain = |theta| {
            let knob = row(
                "rope_theta",
                KnobValue::word("none"),
                KnobValue::Number(theta),
            );
            RotationHypothesis::new(Some(RopeSpec::plain(theta, spec.d_head)), given(), knob)
        };
        return THETAS.map(plain).to_vec();
    };
    let mut all = vec![RotationHypothesis::new(
        None,
        given(),
        row(
            "rope_theta",
            KnobValue::Number(rope.theta),
            KnobValue::word("none"),
        ),
    )];
    let turned = RopeSpec {
        interleaved: !rope.interleaved,
        ..rope.clone()
    };
    all.push(RotationHypothesis::new(
        Some(turned),
        given(),
        row(
            "rope_interleaved",
            KnobValue::word(rope.interleaved),
            KnobValue::word(!rope.interleaved),
        ),
    ));
    for theta in THETAS.into_iter().filter(|theta| *theta != rope.theta) {
        let other = RopeSpec {
            theta,
            ..rope.clone()
        };
        let knob = row(
            "rope_theta",
            KnobValue::Number(rope.theta),
            KnobValue::Number(theta),
        );
        all.push(RotationHypothesis::new(Some(other), given(), knob));
    }
    for d_rotary in [spec.d_head, spec.d_head / 2, spec.d_head / 4] {
        if d_rotary != rope.d_rotary && d_rotary >= 2 && d_rotary.is_multiple_of(2) {
            let other = RopeSpec {
                d_rotary,
                first: 0,
                ..rope.clone()
            };
            let knob = row(
                "rope_dims",
                KnobValue::count(rope.d_rotary),
                KnobValue::count(d_rotary),
            );
            all.push(RotationHypothesis::new(Some(other), given(), knob));
        }
    }
    if rope.scaling != RopeScaling::None {
        let other = RopeSpec {
            scaling: RopeScaling::None,
            magnitude: 1.0,
            ..rope.clone()
        };
        let said = rope.scaling.to_string();
        let knob = row(
            "rope_scaling",
            KnobValue::word(said),
            KnobValue::word("none"),
        );
        all.push(RotationHypothesis::new(Some(other), given(), knob));
    }
    let later = positions.iter().map(|position| position + 1).collect();
    let knob = row(
        "positions",
        KnobValue::word("given"),
        KnobValue::word("one more"),
    );
    all.push(RotationHypothesis::new(Some(rope.clone()), later, knob));
    let direction = rope.direction.reversed();
    let knob = row(
        "rope_direction",
        KnobValue::word(rope.direction),
        KnobValue::word(direction),
    );
    let other = RopeSpec {
        direction,
        ..rope.clone()
    };
    all.push(RotationHypothesis::new(Some(other), given(), knob));
    all
}

/// Returns the knob that explains scores scaled by one factor.
pub(super) fn scale(spec: &AttentionSpec, factor: f64) -> KnobDifference {
    let own = f64::from(spec.scale.of_bias(spec.d_head));
    row(
        "scale",
        KnobValue::single(own as f32),
        KnobValue::single((own * factor) as f32),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_is_inferred_from_the_rotated_values() {
        let spec = AttentionSpec {
            rope: Some(RopeSpec::plain(10_000.0, 8)),
            ..AttentionSpec::plain(2, 2, 8, true)
        };
        let positions: Vec<usize> = (0..6).collect();
        let before: Vec<f32> = (0..6 * 16)
            .map(|i| ((i * 7919) % 23) as f32 / 7.0 - 1.5)
            .collect();
        let turned = |rope: &RopeSpec, positions: &[usize]| {
            let mut values = before.clone();
            let table = RopeTable::new(rope, positions);
            for (position_idx, row) in values.chunks_mut(16).enumerate() {
                row.chunks_mut(8)
                    .for_each(|head| table.rotate(position_idx, head));
            }
            values
        };
        let found = |recorded: &[f32]| {
            let knob = rotation(&spec, &positions, &before, recorded)?;
            Some(knob.to_string())
        };
        let own = RopeSpec::plain(10_000.0, 8);
        let other = RopeSpec {
            interleaved: true,
            ..own.clone()
        };
        assert_eq!(
            found(&turned(&other, &positions)).as_deref(),
            Some("rope_interleaved false → true")
        );
        let theta = RopeSpec::plain(500_000.0, 8);
        assert_eq!(
            found(&turned(&theta, &positions)).as_deref(),
            Some("rope_theta 10000 → 500000")
        );
        assert_eq!(found(&before).as_deref(), Some("rope_theta 10000 → none"));
        let later: Vec<usize> = (1..7).collect();
        assert_eq!(
            found(&turned(&own, &later)).as_deref(),
            Some("positions given → one more")
        );
        // Every pair rotated by the negative of its angle.
        for interleaved in [false, true] {
            let rope = RopeSpec {
                interleaved,
                ..own.clone()
            };
            let spec = AttentionSpec {
                rope: Some(rope.clone()),
                ..spec.clone()
            };
            let mut backward = before.clone();
            for (position_idx, row) in backward.chunks_mut(16).enumerate() {
                for head in row.chunks_mut(8) {
                    for pair in 0..4 {
                        let (i, j) = if interleaved {
                            (2 * pair, 2 * pair + 1)
                        } else {
                            (pair, pair + 4)
                        };
                        let angle = -(position_idx as f64) * 10_000f64.powf(-(pair as f64) / 4.0);
                        let (sin, cos) = (angle.sin() as f32, angle.cos() as f32);
                        (head[i], head[j]) =
                            (head[i] * cos - head[j] * sin, head[j] * cos + head[i] * sin);
                    }
                }
            }
            let knob = rotation(&spec, &positions, &before, &backward);
            let knob = knob.map(|knob| knob.to_string());
            assert_eq!(knob.as_deref(), Some("rope_direction forward → backward"));
        }
        let noise: Vec<f32> = before.iter().rev().copied().collect();
        assert_eq!(found(&noise), None);
    }
}
