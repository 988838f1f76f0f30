//! Questions about attention: heads, fused maps, positions, scale, window and caps.

use attnscope_compute::attention::Scale;
use attnscope_families::description::{
    Axis, Described, MapPart, Mlp, NormPart, Per, Positions, Qkv,
};
use attnscope_spec::Sines;

use super::{Answer, Known, NEAR, RARE, UNUSUAL, answer};
use crate::guess::norms::orders;

/// Possible head widths, most usual first.
pub fn widths_of_heads(known: &Known<'_>) -> Vec<usize> {
    let (d_q, d_kv) = (known.assignment.d_q, known.assignment.d_kv);
    if let Some(d_head) = known.assignment.d_head {
        return vec![d_head];
    }
    let fits = |d_head: &usize| {
        d_q.is_multiple_of(*d_head)
            && d_kv.is_multiple_of(*d_head)
            && (d_q / d_head).is_multiple_of(d_kv / d_head)
            && d_q / d_head <= 256
    };
    let largest = d_kv.min(512);
    let mut found: Vec<usize> = (2..=largest).filter(fits).collect();
    if found.len() > 12 {
        found.retain(|d_head| *d_head >= 8);
    }
    // Most usual first: about four heads, widths of at least 8, powers of two.
    let unusual = |d_head: usize| {
        let n_heads = d_q / d_head;
        let by_number = (n_heads as f64 / 4.0).ln().abs();
        by_number
            + if d_head < 8 { 1.0 } else { 0.0 }
            + if d_head.is_power_of_two() { 0.0 } else { 0.5 }
    };
    found.sort_by(|a, b| unusual(*a).total_cmp(&unusual(*b)));
    found
}

/// Changes the head width.
pub fn with_d_head(described: &mut Described, known: &Known<'_>, d_head: usize) {
    let was = described.d_head.max(1);
    described.d_head = d_head;
    described.n_heads = known.assignment.d_q / d_head.max(1);
    described.n_kv_heads = known.assignment.d_kv / d_head.max(1);
    if let Positions::Rotary { d_rotary, .. } = &mut described.computed {
        let share = (*d_rotary * d_head / was) & !1;
        *d_rotary = share.clamp(2, d_head.max(2));
    }
}

pub(super) fn heads(known: &Known<'_>, from: &Described) -> Vec<Answer> {
    let of = |d_head: usize| {
        let n = known.assignment.d_q / d_head;
        answer(
            from,
            format!("{n} heads of width {d_head}"),
            0.0,
            |described| {
                with_d_head(described, known, d_head);
            },
        )
    };
    widths_of_heads(known).into_iter().map(of).collect()
}

pub(super) fn positions(known: &Known<'_>, from: &Described) -> Vec<Answer> {
    let d_rotary = from.d_head & !1;
    let theta = match from.computed {
        Positions::Rotary { theta, .. } => theta,
        _ => 10_000.0,
    };
    let rotary = |interleaved| Positions::Rotary {
        theta,
        interleaved,
        d_rotary,
    };
    let mut kinds = vec![
        (Positions::None, "no positions"),
        (Positions::Alibi, "ALiBi"),
        (
            Positions::Sines(Sines::Interleaved),
            "sines and cosines in turn",
        ),
        (Positions::Sines(Sines::Halves), "sines, then cosines"),
    ];
    let near = |kind: Positions| if kind == Positions::Alibi { NEAR } else { 0.0 };
    if d_rotary >= 2 {
        kinds.push((rotary(false), "rotary by halves"));
        kinds.push((rotary(true), "rotary by neighbouring pairs"));
    }
    let stored = &known.assignment.described.positions;
    let mut all = Vec::new();
    if stored.is_some() {
        all.push(answer(from, "learned", 0.0, |described| {
            described.positions.clone_from(stored);
            described.computed = Positions::None;
        }));
    }
    for (kind, words) in kinds {
        let handicap = if stored.is_some() { NEAR } else { near(kind) };
        all.push(answer(from, words, handicap, |described| {
            described.positions = None;
            described.computed = kind;
        }));
    }
    all
}

pub(super) fn fused(_: &Known<'_>, from: &Described) -> Vec<Answer> {
    let ways: &[(&str, Per)] = &[("all", Per::All), ("head", Per::Head), ("unit", Per::Unit)];
    let mut all = Vec::new();
    match &from.qkv {
        Qkv::Separate(_) => {}
        Qkv::Paired(q, kv) => {
            for order in [["k", "v"], ["v", "k"]] {
                for (word, per) in ways {
                    let mut kv = kv.clone();
                    (kv.order, kv.per) = (order.to_vec(), *per);
                    let q = q.clone();
                    let words = format!("{} per {word}", order.join(" "));
                    all.push(answer(from, words, 0.0, |described| {
                        described.qkv = Qkv::Paired(q, kv)
                    }));
                }
            }
        }
        Qkv::Fused(whole) => {
            for order in orders(3) {
                let order: Vec<&'static str> =
                    order.into_iter().map(|idx| ["q", "k", "v"][idx]).collect();
                for (word, per) in ways {
                    if *per == Per::Unit && from.n_heads != from.n_kv_heads {
                        continue;
                    }
                    let mut whole = whole.clone();
                    (whole.order, whole.per) = (order.clone(), *per);
                    let words = format!("{} per {word}", order.join(" "));
                    all.push(answer(from, words, 0.0, |described| {
                        described.qkv = Qkv::Fused(whole)
                    }));
                }
            }
        }
    }
    all
}

/// The most likely layouts of a fused map, for a first look.
pub fn usual_fused(known: &Known<'_>, from: &Described) -> Vec<Answer> {
    let mut all = fused(known, from);
    if matches!(from.qkv, Qkv::Fused(_)) {
        let usual = ["q k v", "k q v", "k v q", "v k q"];
        all.retain(|answer| usual.iter().any(|order| answer.words.starts_with(order)));
    }
    all
}

/// Exchanges queries, keys, values and output.
pub(super) fn exchanged(known: &Known<'_>, from: &Described) -> Vec<Answer> {
    let Qkv::Separate(parts) = &from.qkv else {
        return Vec::new();
    };
    let is_square = known.assignment.d_q == known.assignment.d_model
        && known.assignment.d_kv == known.assignment.d_q;
    let mut all: Vec<MapPart> = parts.to_vec();
    if let Some(o) = from.o.as_ref().filter(|o| is_square && o.axes.len() == 2) {
        all.push(o.clone());
    }
    let mut answers = Vec::new();
    for order in orders(all.len()) {
        if known.assignment.d_kv != known.assignment.d_q && order[0] != 0 {
            continue;
        }
        let of = |at: usize| all[order[at]].clone();
        let words = format!(
            "q is {}, k is {}, v is {}",
            of(0).weight,
            of(1).weight,
            of(2).weight
        );
        answers.push(answer(from, words, 0.0, |described| {
            described.qkv = Qkv::Separate([of(0), of(1), of(2)]);
            if all.len() == 4 {
                described.o = Some(of(3));
            }
        }));
    }
    answers
}

fn turned(part: &mut MapPart) {
    if part.axes == [Axis::Out, Axis::In] {
        part.axes = vec![Axis::In, Axis::Out];
    } else if part.axes == [Axis::In, Axis::Out] {
        part.axes = vec![Axis::Out, Axis::In];
    }
}

/// Square matrices may be stored as [out, in] or as [in, out].
pub(super) fn axes(known: &Known<'_>, from: &Described) -> Vec<Answer> {
    let d_model = known.assignment.d_model;
    let qkv_is_square = known.assignment.d_q == d_model;
    let kv_is_square = known.assignment.d_kv == d_model;
    let turn_qkv = |described: &mut Described| {
        let Qkv::Separate([q, k, v]) = &mut described.qkv else {
            if let Qkv::Paired(q, _) = &mut described.qkv
                && qkv_is_square
            {
                turned(q);
            }
            return;
        };
        if qkv_is_square {
            turned(q);
        }
        if kv_is_square {
            turned(k);
            turned(v);
        }
    };
    let has_qkv = qkv_is_square && !matches!(from.qkv, Qkv::Fused(_));
    // Matrices that are not square show the orientation; square ones with another orientation get a handicap.
    let is_mixed = |described: &Described| {
        let other = match &described.mlp {
            Some(Mlp::Plain(up) | Mlp::Gated(_, up)) => &up.axes,
            Some(Mlp::Fused(both)) => &both.map.axes,
            None => return false,
        };
        let lies_otherwise = |axes: &[Axis]| axes.len() == 2 && axes != other.as_slice();
        let qkv = match &described.qkv {
            Qkv::Separate([q, ..]) => qkv_is_square && lies_otherwise(&q.axes),
            Qkv::Paired(q, _) => qkv_is_square && lies_otherwise(&q.axes),
            Qkv::Fused(_) => false,
        };
        let o = described.o.as_ref();
        qkv || (qkv_is_square && o.is_some_and(|o| lies_otherwise(&o.axes)))
    };
    let turned_as = |words: &str, change: &dyn Fn(&mut Described)| {
        let mut changed = answer(from, words, 0.0, |described| change(described));
        if is_mixed(&changed.described) {
            changed.handicap = RARE;
        }
        changed
    };
    let turn_o = |described: &mut Described| described.o.iter_mut().for_each(turned);
    let mut all = vec![turned_as("as they are", &|_| {})];
    if has_qkv {
        all.push(turned_as(
            "queries, keys and values the other way",
            &turn_qkv,
        ));
    }
    if qkv_is_square && from.o.as_ref().is_some_and(|o| o.axes.len() == 2) {
        all.push(turned_as("the output the other way", &turn_o));
        all.push(turned_as("all of attention the other way", &|described| {
            turn_qkv(described);
            turn_o(described);
        }));
    }
    all
}

pub(super) fn scales(known: &Known<'_>, from: &Described) -> Vec<Answer> {
    let width = known.assignment.d_model as f32;
    let of = |words: &str, scale: Scale, handicap: f64| {
        answer(from, words, handicap, |described| described.scale = scale)
    };
    vec![
        of("1/√d_head", Scale::InvSqrtD, 0.0),
        of("none", Scale::One, UNUSUAL),
        of("1/d_head", Scale::InvD, UNUSUAL),
        of("1/√d_model", Scale::Factor(1.0 / width.sqrt()), UNUSUAL),
        of("1/d_model", Scale::Factor(1.0 / width), RARE),
    ]
}

pub(super) fn thetas(_: &Known<'_>, from: &Described) -> Vec<Answer> {
    let Positions::Rotary {
        interleaved,
        d_rotary,
        ..
    } = from.computed
    else {
        return Vec::new();
    };
    let bases = [
        1e4, 5e5, 1e6, 1e5, 1e3, 5e3, 2e4, 2.5e4, 5e4, 2e5, 2.5e5, 1e7, 500.0, 100.0,
    ];
    let of = |theta: f64| {
        answer(
            from,
            format!("{theta}"),
            if theta == 1e4 { 0.0 } else { UNUSUAL },
            |described| {
                described.computed = Positions::Rotary {
                    theta,
                    interleaved,
                    d_rotary,
                };
            },
        )
    };
    bases.into_iter().map(of).collect()
}

pub(super) fn shares(_: &Known<'_>, from: &Described) -> Vec<Answer> {
    let Positions::Rotary { theta, .. } = from.computed else {
        return Vec::new();
    };
    let d_head = from.d_head;
    let mut all = Vec::new();
    // Fewer rotary dimensions and a larger base have similar effects, so each share is also tried with the usual base.
    let bases = if theta == 1e4 {
        vec![theta]
    } else {
        vec![theta, 1e4]
    };
    let ways = [false, true]
        .into_iter()
        .flat_map(|interleaved| bases.iter().map(move |theta| (interleaved, *theta)));
    for (interleaved, theta) in ways {
        for quarters in [4, 2, 1, 3] {
            let d_rotary = (d_head * quarters / 4) & !1;
            if d_rotary < 2 || (d_rotary * 4 != d_head * quarters) {
                continue;
            }
            let words = format!(
                "{d_rotary} of {d_head}, {}",
                if interleaved {
                    "neighbouring pairs"
                } else {
                    "halves"
                }
            );
            all.push(answer(
                from,
                words,
                if quarters == 4 { 0.0 } else { UNUSUAL },
                |described| {
                    described.computed = Positions::Rotary {
                        theta,
                        interleaved,
                        d_rotary,
                    };
                },
            ));
        }
    }
    all
}

pub(super) fn qk_norms(known: &Known<'_>, from: &Described) -> Vec<Answer> {
    let stored = &known.assignment.described;
    let with = |words: &str, kind: Option<&'static str>, handicap: f64| {
        answer(from, words, handicap, |described| {
            let of = |part: &Option<NormPart>| {
                Some(NormPart {
                    kind,
                    ..part.clone().unwrap_or_default()
                })
            };
            (described.q_norm, described.k_norm) = (of(&stored.q_norm), of(&stored.k_norm));
        })
    };
    let without = |handicap| {
        answer(from, "none", handicap, |described| {
            (described.q_norm, described.k_norm) = (None, None);
        })
    };
    if stored.q_norm.is_some() {
        return vec![
            with("as the other norms", None, 0.0),
            with("RMS norms", Some("rms"), 0.0),
            with("layer norms", Some("layer"), 0.0),
        ];
    }
    vec![
        without(0.0),
        with("RMS norms without gains", Some("rms"), RARE),
    ]
}

pub(super) fn windows(known: &Known<'_>, from: &Described) -> Vec<Answer> {
    const LADDER: [usize; 14] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192];
    let mut all = vec![answer(from, "none", 0.0, |described| {
        (described.window, described.window_layers) = (None, None);
    })];
    let mut widths: Vec<usize> = LADDER.to_vec();
    if let Some(width) = from.window {
        let near = [1, 2, 4, 8]
            .into_iter()
            .flat_map(|by| [width.saturating_sub(by), width + by]);
        widths.extend(near.chain([width]).filter(|width| *width > 1));
    }
    widths.sort_unstable();
    widths.dedup();
    for width in widths.into_iter().filter(|width| *width < known.n_longest) {
        let all_layers = [None, Some((2, 0)), Some((2, 1))];
        let n = if from.n_layers > 1 { 3 } else { 1 };
        for layers in all_layers.into_iter().take(n) {
            let of = match layers {
                None => String::new(),
                Some((step, first)) => format!(" in layers {step}*i+{first}"),
            };
            all.push(answer(from, format!("{width}{of}"), NEAR, |described| {
                (described.window, described.window_layers) = (Some(width), layers);
            }));
        }
    }
    all
}

pub(super) fn softcaps(_: &Known<'_>, from: &Described) -> Vec<Answer> {
    let none = answer(from, "none", 0.0, |described| described.softcap = None);
    let caps = [50.0, 30.0, 20.0, 15.0, 10.0, 5.0, 2.0].map(|cap: f32| {
        answer(from, format!("{cap}"), UNUSUAL, |described| {
            described.softcap = Some(cap)
        })
    });
    std::iter::once(none).chain(caps).collect()
}
