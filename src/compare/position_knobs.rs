//! The knobs by which position affects scores.

use attnscope_compute::attention::{AttentionSpec, Bias, GridFrequencies, GridPlaces};
use attnscope_spec::{PairValues, PositionTable, Sines, StepSource};

use super::knob::KnobKind::{Computation, Shape};
use super::knob::KnobValue;
use super::spec_knobs::{List, words};

/// What is added to embeddings for their positions.
pub(super) fn table_words(positions: Option<&PositionTable>) -> &'static str {
    match positions {
        None => "none",
        Some(PositionTable::Stored(_)) => "stored",
        Some(PositionTable::Sinusoid(sines)) => match sines {
            Sines::Halves => "sines, then cosines",
            Sines::HalvesToEnd => "sines, then cosines, up to the last frequency",
            Sines::CosinesToEnd => "cosines, then sines, up to the last frequency",
            Sines::Interleaved => "sines and cosines in turn",
        },
    }
}

/// Adds the knobs by which position affects scores.
pub(super) fn position(list: &mut List, spec: &AttentionSpec) {
    let rope = spec.rope.as_ref();
    let theta = KnobValue::or_none(rope, |rope| KnobValue::Number(rope.theta));
    list.add(Computation, "rope_theta", theta);
    if let Some(rope) = rope {
        list.count(Computation, "rope_dims", rope.d_rotary);
        list.count(Computation, "rope_first", rope.first);
        list.word(Computation, "rope_interleaved", rope.interleaved);
        list.word(Computation, "rope_direction", rope.direction);
        list.word(Computation, "rope_scaling", &rope.scaling);
        list.word(Computation, "rope_precision", rope.precision.name());
        let n_learned = rope.pair_factors.len();
        list.count(Shape, "rope_learned_factors", n_learned);
        list.add(
            Computation,
            "rope_magnitude",
            KnobValue::Number(rope.magnitude),
        );
        let grid = rope.grid.map(|turn| {
            let grid = match turn.grid {
                Some(grid) => grid.map(|n| n.to_string()).join(" × "),
                None => "of the picture".to_owned(),
            };
            let counted = match turn.places {
                GridPlaces::Centres => String::new(),
                GridPlaces::From(first) => format!(", counted from {first}"),
            };
            let pairs = match turn.frequencies {
                GridFrequencies::Shared => "",
                GridFrequencies::Alternating => ", alternating frequencies",
                GridFrequencies::ColumnsFirst => ", columns first",
                GridFrequencies::ColumnThenRow => ", column then row",
                GridFrequencies::BehindTime => ", behind pairs of time",
                GridFrequencies::BehindTimeInTurn => ", behind pairs of time, dimensions in turn",
                GridFrequencies::Apart => ", in halves apart",
            };
            format!("{grid}{counted}{pairs}")
        });
        list.add(
            Computation,
            "rope_grid",
            KnobValue::or_none(grid, KnobValue::Word),
        );
    }
    let bias = match &spec.bias {
        Bias::None => "none",
        Bias::Alibi(_) => "alibi",
        Bias::Buckets(_) => "buckets",
        Bias::Relative(_) => "relative",
        Bias::Grid(_) => "places of a grid",
        Bias::Pairs(_) => "pairs of positions",
        Bias::Steps(_) => "steps in rows and columns",
        Bias::Profiles(_) => "profiles of distances",
        Bias::OfValues => "of values",
    };
    let kind = match &spec.bias {
        Bias::Buckets(_)
        | Bias::Grid(_)
        | Bias::Pairs(_)
        | Bias::Steps(_)
        | Bias::Relative(_)
        | Bias::Profiles(_)
        | Bias::OfValues => Shape,
        _ => Computation,
    };
    list.word(kind, "bias", bias);
    match &spec.bias {
        Bias::None | Bias::OfValues => {}
        Bias::Alibi(alibi) => {
            list.word(Computation, "bias_slopes", words(&alibi.slopes));
            list.word(Computation, "bias_scaled", alibi.is_scaled);
            list.word(Computation, "bias_rounded", alibi.rounds_to_bf16);
            list.word(Computation, "bias_both_ways", alibi.is_both_ways);
        }
        Bias::Buckets(buckets) => {
            list.count(Shape, "bias_buckets", buckets.n_buckets);
            list.count(Computation, "bias_max_distance", buckets.max_distance);
            list.word(Computation, "bias_both_sides", buckets.is_bidirectional);
            list.word(Computation, "bias_is_scaled", buckets.is_scaled);
            if let Some(each) = buckets.each {
                list.count(Computation, "bias_own_bucket", each.own);
                list.word(Computation, "bias_counts_back", each.counts_back);
            }
            if let Some(across) = buckets.across {
                list.count(Computation, "bias_first_positions", across.n_firsts);
            }
        }
        Bias::Grid(distances) => {
            let [rows, columns] = distances.grid;
            list.word(Shape, "bias_grid", format!("{rows} × {columns}"));
        }
        Bias::Pairs(pairs) => {
            list.count(Shape, "bias_positions", pairs.n_positions);
            list.word(Shape, "bias_shared", pairs.is_shared);
        }
        Bias::Steps(steps) => {
            let [rows, columns] = steps.grid;
            list.word(Shape, "bias_grid", format!("{rows} × {columns}"));
        }
        Bias::Profiles(profiles) => {
            list.count(Shape, "bias_profiles", profiles.n);
            list.count(Shape, "bias_distances", profiles.n_distances);
        }
        Bias::Relative(relative) => {
            list.count(Shape, "bias_span", relative.span);
            let until = KnobValue::or_none(relative.log_until, KnobValue::count);
            list.add(Computation, "bias_log_until", until);
        }
    }
}

/// What distances in rows and columns of a picture add to scores.
pub(super) fn step_word(steps: &StepSource) -> &'static str {
    match (&steps.tables, &steps.pairs) {
        (Some(_), _) => "vectors",
        (None, Some(PairValues::Stored(_))) => "values by head",
        (None, Some(PairValues::Made(_))) => "a network",
        (None, None) => "none",
    }
}
