//! Questions that names and shapes leave open, each with all answers that a description could give.

mod attention;

pub use self::attention::{usual_fused, widths_of_heads, with_d_head};

use attnscope_families::description::{Axis, Described, EmbedScale, MapPart, Mlp, NormPart, Per};

use self::attention::{
    axes, exchanged, fused, heads, positions, qk_norms, scales, shares, softcaps, thetas, windows,
};
use super::assign::Assignment;
use super::norms::{Placement, orders, placements};

/// A description with one answer changed.
#[derive(Debug, Clone)]
pub struct Answer {
    pub described: Described,
    /// The answer in a few words.
    pub words: String,
    /// Share of the loss by which it must be better to be accepted. Rare features need proof, and attention that prefers near
    /// tokens helps any model that was trained only briefly.
    pub handicap: f64,
}

/// A question and the key of its answer in `attnscope.toml`.
pub struct Question {
    pub key: &'static str,
    pub answers: fn(&Known<'_>, &Described) -> Vec<Answer>,
}

/// Facts that questions depend on.
pub struct Known<'a> {
    pub assignment: &'a Assignment,
    /// Number of tokens in the longest text.
    pub n_longest: usize,
}

/// All questions, the most decisive first.
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
        key: "d_rotary",
        answers: shares,
    },
    Question {
        key: "rope_theta",
        answers: thetas,
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

/// Handicap of answers that restrict attention to near tokens or favour them.
const NEAR: f64 = 0.2;
const RARE: f64 = 0.05;
const UNUSUAL: f64 = 0.015;
const LESS_USUAL: f64 = 0.005;
/// Handicap that breaks a tie with a more usual answer.
const TIE: f64 = 5e-5;

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
            handicap: placement.handicap,
        }
    };
    all.iter().map(of).collect()
}

/// Gains with a larger mean are not offsets from 1.
const AROUND_ONE: f32 = 0.6;

fn norms(known: &Known<'_>, from: &Described) -> Vec<Answer> {
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
    let groups = known.assignment.norms.iter();
    let gains = groups.chain(&known.assignment.around_norms);
    let gains: Vec<f32> = gains
        .filter(|group| group.part.gain.is_some())
        .map(|group| group.mean)
        .collect();
    let mean = gains.iter().sum::<f32>() / gains.len().max(1) as f32;
    kinds
        .map(|(is_rms, adds_one, words)| {
            // Training starts at a gain of 1 and stays near it.
            let handicap = if *adds_one && mean > AROUND_ONE {
                NEAR
            } else {
                0.0
            };
            answer(from, *words, handicap, |described| {
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
        None | Some(Mlp::Plain(_)) => Vec::new(),
        Some(Mlp::Gated(gate, up)) => [(gate, up), (up, gate)]
            .into_iter()
            .map(|(gate, up)| {
                answer(
                    from,
                    format!("{} is the gate", gate.weight),
                    0.0,
                    |described| {
                        described.mlp = Some(Mlp::Gated(gate.clone(), up.clone()));
                    },
                )
            })
            .collect(),
        Some(Mlp::Fused(both)) => {
            let ways = [("all", Per::All), ("unit", Per::Unit)];
            let orders = [["gate", "up"], ["up", "gate"]];
            let pairs = orders.iter().flat_map(|order| ways.map(|way| (order, way)));
            pairs
                .map(|(order, (word, per))| {
                    let mut both = both.clone();
                    (both.order, both.per) = (order.to_vec(), per);
                    let words = format!("{} per {word}", order.join(" "));
                    answer(from, words, 0.0, |described| {
                        described.mlp = Some(Mlp::Fused(both))
                    })
                })
                .collect()
        }
    }
}

fn activations(_: &Known<'_>, from: &Described) -> Vec<Answer> {
    let is_gated = matches!(from.mlp, Some(Mlp::Gated(..) | Mlp::Fused(_)));
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
        let handicap = match *name {
            "quick_gelu" | "leaky_relu" | "sigmoid" | "tanh" | "identity" => LESS_USUAL,
            "gelu_new" => TIE,
            _ => 0.0,
        };
        answer(from, *name, handicap, |described| {
            described.activation = (*name).to_owned()
        })
    };
    names.iter().map(of).collect()
}

/// Norms around the layers: after them, on embeddings, or in the LM head.
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

fn embed_scales(known: &Known<'_>, from: &Described) -> Vec<Answer> {
    let width = known.assignment.d_model as f64;
    let of = |words: &str, scale: EmbedScale, handicap: f64| {
        answer(from, words, handicap, |described| {
            described.embed_scale = scale
        })
    };
    vec![
        of("as they are", EmbedScale::Factor(1.0), 0.0),
        of("√d_model", EmbedScale::SqrtD, TIE),
        of("1/√d_model", EmbedScale::Factor(1.0 / width.sqrt()), RARE),
    ]
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

/// Which of two tables of equal shape embeds and which unembeds.
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
        let handicap = [0.0, TIE, UNUSUAL, UNUSUAL, UNUSUAL, UNUSUAL][idx];
        answer(from, format!("{eps:e}"), handicap, |described| {
            described.norm_eps = eps
        })
    };
    all.into_iter().enumerate().map(of).collect()
}
