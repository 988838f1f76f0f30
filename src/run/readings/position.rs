//! What positions did.
//!
//! - **none**: no positions where some are declared.
//! - **offset**: learned or computed tables read 1 or 2 rows later or earlier; **restart** after 8, 16, 32 … tokens, or at each
//!   document, where all texts begin with a token that also stands inside them.
//! - **rotary**: interleaved ↔ halves, rows permuted twice from one to the other, in the other direction (as in nanochat's code),
//!   applied twice, turned by the number of the head instead of the position, values turned too, another base (×10, ×50, ×0.1, ×0.01,
//!   NTK's base for contexts 2, 4 and 8 times as long, and the usual bases from 10⁴ to 10⁷), a half or a quarter of each head in
//!   place of all of it, all in place of a part, the part at the other end of the head.
//! - **ALiBi**: the other sign, slopes twice and half as steep; **relative bias**: query and key exchanged.
//!
//! What concerns rotary embeddings and biases is also tried in each layer alone, where the budget allows, but for the usual bases.
//! In texts longer than those of the training another base helps any model: like every reading, one of the base is believed only
//! where it gains in the beginnings of the texts too.

use std::sync::Arc;

use attnscope_compute::attention::{AttentionOverride, Bias, RopeScaling, RopeSpec};
use attnscope_forward::{Deviation, RotationOverride};
use attnscope_spec::BlockSpec;

use super::{Family, IsLocal, Known, PositionsAs, Reading};

pub(super) const FAMILY: Family = Family {
    id: "position",
    source: include_str!("position.rs"),
    readings,
};

/// Factors by which the declared rotary base may be wrong.
const TIMES: [f64; 4] = [10.0, 50.0, 0.1, 0.01];

fn readings(known: &Known<'_>) -> Vec<Reading> {
    let in_layers = rotary(known).into_iter().chain(biases(known));
    in_layers
        .map(|reading| reading.local(IsLocal::InLayers))
        .chain(usual_bases(known))
        .chain(tables(known))
        .collect()
}

fn rotary(known: &Known<'_>) -> Vec<Reading> {
    let ropes = || {
        known
            .blocks()
            .filter_map(|block| block.attention()?.rope.as_ref())
    };
    let Some(first) = ropes().next() else {
        return Vec::new();
    };
    let with = |name: &str, advice: &str, change: &dyn Fn(&mut RopeSpec)| {
        let spec = known.with_blocks(|block| {
            let ropes = block.of_one_softmax_mut();
            ropes.filter_map(|of| of.rope.as_mut()).for_each(change);
        });
        spec.map(|spec| Reading::new(FAMILY.id, name, advice).with_attention(spec))
    };
    let none = known.with_blocks(|block| {
        block.of_one_softmax_mut().for_each(|of| of.rope = None);
    });
    let mut all: Vec<Reading> = Vec::new();
    all.extend(
        none.map(|spec| Reading::new(FAMILY.id, "no rotary positions", "").with_attention(spec)),
    );
    let is_interleaved = first.interleaved;
    let (name, advice) = if is_interleaved {
        (
            "rotary positions on pairs by halves",
            "--set rope_interleaved=false",
        )
    } else {
        (
            "rotary positions on interleaved pairs",
            "--set rope_interleaved=true",
        )
    };
    all.extend(with(name, advice, &|rope| {
        rope.interleaved = !rope.interleaved
    }));
    let direction = first.direction.reversed();
    let name = format!("rotary positions that turn {direction}");
    let advice = format!("--set rope_direction={direction}");
    all.extend(with(&name, &advice, &|rope| rope.direction = direction));
    for (name, turned) in [
        ("rotary positions applied twice", RotationOverride::Twice),
        (
            "rotary positions by head instead of by token",
            RotationOverride::ByHead,
        ),
        (
            if first.turns_values {
                "rotary positions not applied to values"
            } else {
                "rotary positions applied to values too"
            },
            RotationOverride::WithValues,
        ),
        (
            "rows of queries and keys permuted twice for rotary positions",
            RotationOverride::PermutedTwice,
        ),
    ] {
        let deviation = Deviation {
            turned,
            ..Deviation::NONE
        };
        all.push(Reading::new(FAMILY.id, name, "").deviating(deviation));
    }
    let exponent = first.d_rotary as f64 / (first.d_rotary as f64 - 2.0).max(1.0);
    let bases = TIMES.map(|times| (times, format!("{times} times the rotary base")));
    let longer = [2.0f64, 4.0, 8.0].map(|times| {
        (
            times.powf(exponent),
            format!("the rotary base of NTK for {times} times the context"),
        )
    });
    for (times, name) in bases.into_iter().chain(longer) {
        all.extend(other_base(known, first, times, &name));
    }
    all.extend(shares(known, first));
    all
}

/// The declared rotary embeddings with a base that is some times as large.
fn other_base(known: &Known<'_>, first: &RopeSpec, times: f64, name: &str) -> Option<Reading> {
    let spec = known.with_blocks(|block| {
        if let Some(own) = block.own_mut()
            && let Some(rope) = &mut own.attention.rope
        {
            rope.theta *= times;
        }
    })?;
    let advice = format!("--set rope_theta={}", first.theta * times);
    let reading = Reading::new(FAMILY.id, name, advice).with_attention(spec);
    Some(reading.acting_far())
}

/// Bases that models are usually trained with: those of Vaswani et al. 2017 and of GPT-OSS, Llama 3, Qwen2 and Qwen3-Next.
fn usual_bases(known: &Known<'_>) -> Vec<Reading> {
    let first = known
        .blocks()
        .find_map(|block| block.attention()?.rope.as_ref());
    let Some(first) = first else {
        return Vec::new();
    };
    let times = [1e4, 1.5e5, 5e5, 1e6, 1e7].map(|base| (base, base / first.theta));
    // Others are among those of some times the base.
    let is_new = |times: &f64| {
        let mut known = TIMES.into_iter().chain([1.0]);
        known.all(|other| (other / times).ln().abs() > 0.1)
    };
    let new = times.into_iter().filter(|(_, times)| is_new(times));
    new.filter_map(|(base, times)| {
        other_base(known, first, times, &format!("a rotary base of {base}"))
    })
    .collect()
}

/// Readings in which another part of each head rotates.
fn shares(known: &Known<'_>, first: &RopeSpec) -> Vec<Reading> {
    let d_head = known
        .blocks()
        .find_map(|block| Some(block.attention()?.d_head))
        .unwrap_or(first.d_rotary);
    // Start and width of the part, from the width of a head and what is declared.
    type PartOf = fn(usize, &RopeSpec) -> (usize, usize);
    let named: [(&str, PartOf); 2] = if first.d_rotary == d_head {
        [
            (
                "rotary positions on the first half of each head",
                |d_head, _| (0, d_head / 2),
            ),
            (
                "rotary positions on the first quarter of each head",
                |d_head, _| (0, d_head / 4),
            ),
        ]
    } else {
        [
            ("rotary positions on all of each head", |d_head, _| {
                (0, d_head)
            }),
            (
                "rotary positions at the other end of each head",
                |d_head, rope| {
                    let last = d_head.saturating_sub(rope.d_rotary);
                    (if rope.first == 0 { last } else { 0 }, rope.d_rotary)
                },
            ),
        ]
    };
    let with = |(name, part): (&str, PartOf)| {
        let spec = known.with_blocks(|block| {
            let Some(own) = block.own_mut() else { return };
            let d_head = own.attention.d_head;
            // Scaling by pair belongs to the declared width.
            let plain = |rope: &&mut RopeSpec| rope.scaling == RopeScaling::None;
            if let Some(rope) = own.attention.rope.as_mut().filter(plain) {
                let (start, width) = part(d_head, rope);
                if width >= 2 && width.is_multiple_of(2) && start + width <= d_head {
                    (rope.first, rope.d_rotary) = (start, width);
                }
            }
        })?;
        Some(Reading::new(FAMILY.id, name, "").with_attention(spec))
    };
    named.into_iter().filter_map(with).collect()
}

fn biases(known: &Known<'_>) -> Vec<Reading> {
    let has = |is: fn(&Bias) -> bool| {
        known
            .blocks()
            .filter_map(BlockSpec::attention)
            .any(|attention| is(&attention.bias))
    };
    let odd = |name: &str, odd: AttentionOverride| Reading::new(FAMILY.id, name, "").odd(odd);
    let times = |bias: f32| AttentionOverride {
        bias,
        ..AttentionOverride::NONE
    };
    let mut all = Vec::new();
    if has(|bias| matches!(bias, Bias::Alibi(_))) {
        all.push(odd("no ALiBi", times(0.0)));
        all.push(odd("ALiBi of the other sign", times(-1.0)));
        all.push(odd("ALiBi slopes twice as steep", times(2.0)));
        all.push(odd("ALiBi slopes half as steep", times(0.5)));
        let reversed = known.with_blocks(|block| {
            if let Some(own) = block.own_mut()
                && let Bias::Alibi(alibi) = &mut own.attention.bias
            {
                alibi.slopes.reverse();
            }
        });
        let name = "ALiBi slopes in the other order of heads";
        all.extend(reversed.map(|spec| Reading::new(FAMILY.id, name, "").with_attention(spec)));
    }
    if has(|bias| matches!(bias, Bias::Buckets(_))) {
        all.push(odd("no relative bias", times(0.0)));
        let transposed = AttentionOverride {
            transposes_bias: true,
            ..AttentionOverride::NONE
        };
        all.push(odd("the relative bias transposed", transposed));
        let directions = known.with_blocks(|block| {
            if let Some(own) = block.own_mut()
                && let Bias::Buckets(buckets) = &mut own.attention.bias
            {
                match &mut buckets.each {
                    Some(each) => each.counts_back = !each.counts_back,
                    None => buckets.is_bidirectional = !buckets.is_bidirectional,
                }
            }
        });
        let name = "relative buckets of the other direction";
        all.extend(directions.map(|spec| Reading::new(FAMILY.id, name, "").with_attention(spec)));
    }
    all
}

fn tables(known: &Known<'_>) -> Vec<Reading> {
    let tables = || {
        known
            .spec()
            .stacks
            .iter()
            .filter_map(|stack| stack.embed.positions.as_ref())
    };
    if tables().next().is_none() {
        return Vec::new();
    }
    let mut bare = known.spec().clone();
    bare.stacks
        .iter_mut()
        .for_each(|stack| stack.embed.positions = None);
    let mut all = vec![Reading::new(FAMILY.id, "no positions", "").with_attention(Arc::new(bare))];
    let n_rows = tables()
        .filter_map(|table| table.n_rows())
        .min()
        .unwrap_or(usize::MAX);
    let (first, last) = (known.first_position, known.first_position + known.n_longest);
    for by in [-2isize, -1, 1, 2] {
        let fits =
            first.checked_add_signed(by).is_some() && last.saturating_add_signed(by) <= n_rows;
        if fits {
            let way = if by > 0 { "late" } else { "early" };
            let name = format!("positions counted {} too {way}", by.abs());
            let reading = Reading::new(FAMILY.id, name, "");
            all.push(Reading {
                positions: PositionsAs::Shifted(by),
                ..reading
            });
        }
    }
    if let Some(separator) = known.separator {
        all.push(Reading {
            positions: PositionsAs::RestartingAt(separator),
            ..Reading::new(FAMILY.id, "positions that begin again at each document", "")
        });
    }
    for after in [8, 16, 32, 64, 128]
        .into_iter()
        .filter(|after| *after < known.n_longest)
    {
        let name = format!("positions that begin again after {after} tokens");
        all.push(Reading {
            positions: PositionsAs::Restarting(after),
            ..Reading::new(FAMILY.id, name, "")
        });
    }
    all
}
