//! What names and shapes leave open, one question a list: every other answer that a description could give.

use super::assign::Assignment;
use super::norms::{Placement, orders, placements};
use crate::attention::Scale;
use crate::family::description::{
    Axis, Described, EmbedScale, MapPart, Mlp, NormPart, Per, Positions, Qkv,
};
use crate::model::Sines;

/// A description with one answer changed.
#[derive(Debug, Clone)]
pub struct Answer {
    pub described: Described,
    /// What it is, in a few words.
    pub words: String,
    /// What it has to gain before it is believed, in nats: what few models have has to show.
    pub handicap: f64,
}

/// A question, and the key of `attnscope.toml` that its answer stands under.
pub struct Question {
    pub key: &'static str,
    pub answers: fn(&Known<'_>, &Described) -> Vec<Answer>,
}

/// What questions look at.
pub struct Known<'a> {
    pub assignment: &'a Assignment,
    /// Tokens of the longest text.
    pub n_longest: usize,
}

/// Every question, the ones that decide most first.
pub const QUESTIONS: &[Question] = &[
    Question {
        key: "block",
        answers: blocks,
    },
    Question {
        key: "n_heads",
        answers: heads,
    },
    Question {
        key: "positions",
        answers: positions,
    },
    Question {
        key: "qkv",
        answers: fused,
    },
    Question {
        key: "q",
        answers: exchanged,
    },
    Question {
        key: "axes",
        answers: axes,
    },
    Question {
        key: "norm",
        answers: norms,
    },
    Question {
        key: "gate",
        answers: gates,
    },
    Question {
        key: "activation",
        answers: activations,
    },
    Question {
        key: "final_norm",
        answers: norms_around,
    },
    Question {
        key: "scale",
        answers: scales,
    },
    Question {
        key: "embed_scale",
        answers: embed_scales,
    },
    Question {
        key: "rope_theta",
        answers: thetas,
    },
    Question {
        key: "d_rotary",
        answers: shares,
    },
    Question {
        key: "q_norm",
        answers: qk_norms,
    },
    Question {
        key: "window",
        answers: windows,
    },
    Question {
        key: "softcap",
        answers: softcaps,
    },
    Question {
        key: "logit_softcap",
        answers: logit_softcaps,
    },
    Question {
        key: "logit_scale",
        answers: logit_scales,
    },
    Question {
        key: "tokens",
        answers: tables,
    },
    Question {
        key: "norm_eps",
        answers: epsilons,
    },
];

/// What few models have has to gain so much.
const RARE: f64 = 0.004;
const UNUSUAL: f64 = 0.001;

fn answer(
    from: &Described,
    words: impl Into<String>,
    handicap: f64,
    change: impl FnOnce(&mut Described),
) -> Answer {
    let mut described = from.clone();
    change(&mut described);
    Answer {
        described,
        words: words.into(),
        handicap,
    }
}

fn blocks(known: &Known<'_>, from: &Described) -> Vec<Answer> {
    let all = placements(&known.assignment.norms);
    let of = |placement: &Placement| {
        let mut described = from.clone();
        placement.apply(&mut described);
        let words = Placement::words(&described);
        Answer {
            described,
            words,
            handicap: 0.0,
        }
    };
    all.iter().map(of).collect()
}

/// The widths that a head may have.
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
    // The most usual widths first: near an eighth of the whole, powers of two.
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

/// Gives heads another width.
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

fn heads(known: &Known<'_>, from: &Described) -> Vec<Answer> {
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

fn positions(known: &Known<'_>, from: &Described) -> Vec<Answer> {
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
        let handicap = if stored.is_some() { RARE } else { 0.0 };
        all.push(answer(from, words, handicap, |described| {
            described.positions = None;
            described.computed = kind;
        }));
    }
    all
}

fn fused(_: &Known<'_>, from: &Described) -> Vec<Answer> {
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

/// Queries, keys, values and output in each other's places.
fn exchanged(known: &Known<'_>, from: &Described) -> Vec<Answer> {
    let Qkv::Separate(parts) = &from.qkv else {
        return Vec::new();
    };
    let is_square = known.assignment.d_q == known.assignment.d_model
        && known.assignment.d_kv == known.assignment.d_q;
    let mut all: Vec<MapPart> = parts.to_vec();
    if is_square && from.o.axes.len() == 2 {
        all.push(from.o.clone());
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
                described.o = of(3);
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

/// Square matrices may lie as [out, in] or as [in, out].
fn axes(known: &Known<'_>, from: &Described) -> Vec<Answer> {
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
    let mut all = vec![answer(from, "as they are", 0.0, |_| {})];
    if has_qkv {
        all.push(answer(
            from,
            "queries, keys and values the other way",
            0.0,
            turn_qkv,
        ));
    }
    if qkv_is_square {
        all.push(answer(from, "the output the other way", 0.0, |described| {
            turned(&mut described.o)
        }));
        all.push(answer(
            from,
            "all of attention the other way",
            0.0,
            |described| {
                turn_qkv(described);
                turned(&mut described.o);
            },
        ));
    }
    all
}

fn norms(_: &Known<'_>, from: &Described) -> Vec<Answer> {
    let has_bias = from
        .norms
        .iter()
        .chain([&from.final_norm, &from.embed_norm])
        .flatten()
        .any(|norm| norm.bias.is_some());
    let kinds: &[(bool, bool, &str)] = &[
        (false, false, "layer norm"),
        (true, false, "RMS norm"),
        (true, true, "RMS norm whose gain is added to 1"),
        (false, true, "layer norm whose gain is added to 1"),
    ];
    let kinds = kinds.iter().filter(|(is_rms, ..)| !(*is_rms && has_bias));
    kinds
        .map(|(is_rms, adds_one, words)| {
            answer(from, *words, 0.0, |described| {
                (described.norm_is_rms, described.norm_adds_one) = (*is_rms, *adds_one);
                if *is_rms != from.norm_is_rms {
                    described.norm_eps = if *is_rms { 1e-6 } else { 1e-5 };
                }
            })
        })
        .collect()
}

fn gates(_: &Known<'_>, from: &Described) -> Vec<Answer> {
    match &from.mlp {
        Mlp::Plain(_) => Vec::new(),
        Mlp::Gated(gate, up) => [(gate, up), (up, gate)]
            .into_iter()
            .map(|(gate, up)| {
                answer(
                    from,
                    format!("{} is the gate", gate.weight),
                    0.0,
                    |described| {
                        described.mlp = Mlp::Gated(gate.clone(), up.clone());
                    },
                )
            })
            .collect(),
        Mlp::Fused(both) => {
            let ways = [("all", Per::All), ("unit", Per::Unit)];
            let orders = [["gate", "up"], ["up", "gate"]];
            let pairs = orders.iter().flat_map(|order| ways.map(|way| (order, way)));
            pairs
                .map(|(order, (word, per))| {
                    let mut both = both.clone();
                    (both.order, both.per) = (order.to_vec(), per);
                    let words = format!("{} per {word}", order.join(" "));
                    answer(from, words, 0.0, |described| {
                        described.mlp = Mlp::Fused(both)
                    })
                })
                .collect()
        }
    }
}

fn activations(_: &Known<'_>, from: &Described) -> Vec<Answer> {
    let is_gated = !matches!(from.mlp, Mlp::Plain(_));
    let names: &[&str] = if is_gated {
        &[
            "silu",
            "gelu",
            "gelu_new",
            "relu",
            "sigmoid",
            "relu2",
            "quick_gelu",
            "identity",
            "tanh",
        ]
    } else {
        &[
            "gelu",
            "gelu_new",
            "relu",
            "silu",
            "relu2",
            "quick_gelu",
            "leaky_relu",
            "tanh",
            "sigmoid",
        ]
    };
    let of = |name: &&str| {
        answer(from, *name, 0.0, |described| {
            described.activation = (*name).to_owned()
        })
    };
    names.iter().map(of).collect()
}

/// Norms around the layers: after them, on embeddings, or in the head.
fn norms_around(known: &Known<'_>, from: &Described) -> Vec<Answer> {
    let groups = &known.assignment.around_norms;
    let set = |described: &mut Described, places: [Option<NormPart>; 3]| {
        [
            described.final_norm,
            described.embed_norm,
            described.head_norm,
        ] = places;
    };
    if groups.is_empty() {
        let plain = || Some(NormPart::default());
        return vec![
            answer(from, "no norm after the layers", 0.0, |described| {
                set(described, [None, None, None])
            }),
            answer(
                from,
                "a norm without a gain after the layers",
                0.0,
                |described| {
                    set(described, [plain(), None, None]);
                },
            ),
            answer(
                from,
                "norms without gains of embeddings and after the layers",
                UNUSUAL,
                |described| {
                    set(described, [plain(), plain(), None]);
                },
            ),
        ];
    }
    let mut all = Vec::new();
    let n_places = if from.head_dense.is_some() { 3 } else { 2 };
    for order in orders(n_places) {
        if groups.len() > n_places {
            continue;
        }
        let places: [Option<NormPart>; 3] = std::array::from_fn(|place| {
            let at = order.iter().position(|at| *at == place)?;
            groups.get(at).map(|group| group.part.clone())
        });
        let names = ["after the layers", "of embeddings", "in the head"];
        let words = names.iter().zip(&places).filter_map(|(name, part)| {
            let gain = part.as_ref()?.gain.clone()?;
            Some(format!("{gain} {name}"))
        });
        let words = words.collect::<Vec<_>>().join(", ");
        if all.iter().any(|other: &Answer| other.words == words) {
            continue;
        }
        all.push(answer(from, words, 0.0, |described| set(described, places)));
    }
    all
}

fn scales(known: &Known<'_>, from: &Described) -> Vec<Answer> {
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

fn embed_scales(known: &Known<'_>, from: &Described) -> Vec<Answer> {
    let width = known.assignment.d_model as f64;
    let of = |words: &str, scale: EmbedScale, handicap: f64| {
        answer(from, words, handicap, |described| {
            described.embed_scale = scale
        })
    };
    vec![
        of("as they are", EmbedScale::Factor(1.0), 0.0),
        of("√d_model", EmbedScale::SqrtD, 0.0),
        of("1/√d_model", EmbedScale::Factor(1.0 / width.sqrt()), RARE),
    ]
}

fn thetas(_: &Known<'_>, from: &Described) -> Vec<Answer> {
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
            if theta == 1e4 { 0.0 } else { UNUSUAL / 4.0 },
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

fn shares(_: &Known<'_>, from: &Described) -> Vec<Answer> {
    let Positions::Rotary { theta, .. } = from.computed else {
        return Vec::new();
    };
    let d_head = from.d_head;
    let mut all = Vec::new();
    for interleaved in [false, true] {
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
                if quarters == 4 { 0.0 } else { UNUSUAL / 4.0 },
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

fn qk_norms(known: &Known<'_>, from: &Described) -> Vec<Answer> {
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

fn windows(known: &Known<'_>, from: &Described) -> Vec<Answer> {
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
            all.push(answer(from, format!("{width}{of}"), RARE, |described| {
                (described.window, described.window_layers) = (Some(width), layers);
            }));
        }
    }
    all
}

fn softcaps(_: &Known<'_>, from: &Described) -> Vec<Answer> {
    let none = answer(from, "none", 0.0, |described| described.softcap = None);
    let caps = [50.0, 30.0, 20.0, 15.0, 10.0, 5.0, 2.0].map(|cap: f32| {
        answer(from, format!("{cap}"), RARE, |described| {
            described.softcap = Some(cap)
        })
    });
    std::iter::once(none).chain(caps).collect()
}

fn logit_softcaps(_: &Known<'_>, from: &Described) -> Vec<Answer> {
    let none = answer(from, "none", 0.0, |described| {
        described.logit_softcap = None
    });
    let caps = [30.0, 15.0, 50.0, 20.0, 10.0, 5.0].map(|cap: f32| {
        answer(from, format!("{cap}"), UNUSUAL, |described| {
            described.logit_softcap = Some(cap)
        })
    });
    std::iter::once(none).chain(caps).collect()
}

fn logit_scales(known: &Known<'_>, from: &Described) -> Vec<Answer> {
    let width = known.assignment.d_model as f32;
    let scales = [
        (1.0, 0.0),
        (1.0 / width.sqrt(), UNUSUAL),
        (1.0 / width, RARE),
        (width.sqrt(), RARE),
    ];
    scales
        .into_iter()
        .map(|(scale, handicap)| {
            answer(from, format!("{scale}"), handicap, |described| {
                described.logit_scale = scale
            })
        })
        .collect()
}

/// The table that embeds and the one that unembeds, where they have one shape.
fn tables(_: &Known<'_>, from: &Described) -> Vec<Answer> {
    let Some(unembed) = &from.unembed else {
        return Vec::new();
    };
    if unembed.axes != [Axis::Out, Axis::In] {
        return Vec::new();
    }
    let same = answer(from, format!("{} embeds", from.tokens), 0.0, |_| {});
    let other = answer(
        from,
        format!("{} embeds", unembed.weight),
        0.0,
        |described| {
            let head = MapPart {
                weight: described.tokens.clone(),
                ..unembed.clone()
            };
            described.tokens.clone_from(&unembed.weight);
            described.unembed = Some(head);
        },
    );
    vec![same, other]
}

fn epsilons(_: &Known<'_>, from: &Described) -> Vec<Answer> {
    let usual = if from.norm_is_rms {
        [1e-6, 1e-5]
    } else {
        [1e-5, 1e-6]
    };
    let all = [
        usual[0],
        usual[1],
        1e-8,
        1e-12,
        f64::from(f32::EPSILON),
        1e-3,
    ];
    let of = |(idx, eps): (usize, f64)| {
        let handicap = [0.0, 2e-6, 1e-4, 1e-4, 1e-4, 1e-4][idx];
        answer(from, format!("{eps:e}"), handicap, |described| {
            described.norm_eps = eps
        })
    };
    all.into_iter().enumerate().map(of).collect()
}
