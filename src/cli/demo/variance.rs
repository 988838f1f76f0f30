//! The story of why scores are scaled and why attention is soft: products that grow with the width, a softmax that hardens, a choice
//! that teaches nothing, and what the heads of a trained model do.

use anyhow::Result;
use attnscope_checks::stats::{HeadReport, Stat};
use attnscope_report::lab::variance_figure;
use attnscope_report::{Page, Picture, Table, digits};
use attnscope_studies::lab::{
    Distribution, Match, MatchSetup, Saturation, Similarity, VarianceLab, VarianceSetup, match_lab,
    variance_lab,
};

use super::ran::Ran;
use super::story::Telling;
use crate::cli::lab::growths;

/// Keys of every simulated row.
const N_KEYS: usize = 32;
/// Width of queries and keys of the simulated lookups.
const LOOKUP_WIDTH: usize = 64;
/// Temperatures of the soft lookups.
const TEMPERATURES: [f64; 4] = [0.125, 0.5, 1.0, 4.0];
/// The cure for scores that grow.
const QK_NORM: &str = "qk_norm=on";

pub fn pages(telling: &Telling<'_>) -> Result<Vec<Page>> {
    let setup = VarianceSetup {
        widths: vec![4, 16, 64, 256],
        n_pairs: 20_000,
        n_keys: N_KEYS,
        n_rows: 400,
        components: Distribution::STANDARD_NORMAL,
        growth: growths(),
        seed: 0,
    };
    let lab = variance_lab(&setup)?;
    let bundle = telling.story.bundle;
    let ran = Ran::of(telling, bundle, &[])?;
    let normed = Ran::with(telling, bundle, &[], &[QK_NORM])?;
    let mut pages = Vec::new();
    if let [variances, gradients] = &variance_figure(&setup, &lab).charts[..] {
        pages.push(widths(
            &setup,
            &lab,
            Picture::Charts(vec![variances.clone()]),
        ));
        pages.push(hardening(&lab));
        pages.push(growing(&lab, Picture::Charts(vec![gradients.clone()])));
    }
    pages.push(soft()?);
    pages.push(heads(&ran));
    pages.push(with_qk_norm(&ran, &normed));
    Ok(pages)
}

/// A figure of the widest simulation; NaN if there is none.
fn widest(lab: &VarianceLab, figure: fn(&Saturation) -> f64) -> f64 {
    let widest = lab.widths.iter().max_by_key(|of| of.d);
    widest.map_or(f64::NAN, figure)
}

fn widths(setup: &VarianceSetup, lab: &VarianceLab, picture: Picture) -> Page {
    Page {
        title: "products grow with the width",
        words: format!(
            "The demo retells a write-up on why attention is scaled and soft (docs/why_scale.md). q·k is a sum of d products: if components are \
             independent, with mean 0 and variance 1, its variance is d. {} random pairs per width agree: {} at d = 256. Divided by √d \
             it is 1 at every width ({} at d = 256). QK-norm, which gives q and k the length √d, keeps it at 1 as well.",
            setup.n_pairs,
            digits(widest(lab, |of| of.product.variance)),
            digits(widest(lab, |of| of.product.variance / of.d as f64)),
        ),
        picture,
    }
}

fn hardening(lab: &VarianceLab) -> Page {
    let rows = lab.widths.iter().map(|of| {
        let figures = [
            of.product.variance,
            of.unscaled.max_probability,
            of.scaled.max_probability,
            of.unscaled.trace,
            of.scaled.trace,
        ];
        let d = std::iter::once(of.d.to_string());
        d.chain(figures.map(digits)).collect()
    });
    Page {
        title: "wide scores harden the softmax",
        words: format!(
            "Rows of {N_KEYS} scores, as they are and divided by √d. At d = 256 the undivided softmax puts {} of a row on one key. The last two \
             columns are what it costs: the trace of the Jacobian says how much of a gradient the softmax passes on, at most {}. It is {} \
             without the division and {} with it.",
            digits(widest(lab, |of| of.unscaled.max_probability)),
            digits(1.0 - 1.0 / N_KEYS as f64),
            digits(widest(lab, |of| of.unscaled.trace)),
            digits(widest(lab, |of| of.scaled.trace)),
        ),
        picture: Picture::Table(Table {
            titles: vec![
                "d",
                "variance of q·k",
                "largest weight",
                "with 1/√d",
                "passed on",
                "with 1/√d ",
            ],
            rows: rows.collect(),
        }),
    }
}

fn growing(lab: &VarianceLab, picture: Picture) -> Page {
    let last = lab.growth.last();
    let (growth, trace) = last.map_or((f64::NAN, f64::NAN), |of| (of.growth, of.softmax.trace));
    Page {
        title: "scores grow in training",
        words: format!(
            "1/√d is right at the start of a training only. Queries and keys grow, and q·k/√d with them: at {growth} times its first size the \
             softmax passes {} of a gradient (the trace of its Jacobian; the spectral norm is that of the best direction). QK-norm keeps the \
             trace at {} however long q and k become. Only a learned gain can undo that.",
            digits(trace),
            digits(widest(lab, |of| of.with_qk_norm.trace)),
        ),
        picture,
    }
}

fn soft() -> Result<Page> {
    let hard = [(Match::Argmax, 1.0), (Match::Max, 1.0)];
    let soft = TEMPERATURES.map(|temperature| (Match::Soft, temperature));
    let found = match_lab(&MatchSetup {
        d: LOOKUP_WIDTH,
        n_keys: N_KEYS,
        n_rows: 400,
        components: Distribution::STANDARD_NORMAL,
        similarity: Similarity::Dot,
        matches: hard.into_iter().chain(soft).collect(),
        seed: 0,
    })?;
    let rows = found.iter().map(|of| {
        let name = match of.matching {
            Match::Argmax => "value of the best key".to_owned(),
            Match::Max => "that, times its score".to_owned(),
            Match::Soft => format!("softmax, T = {}", of.temperature),
        };
        let rank = |nth: usize| of.by_rank.get(nth).copied().unwrap_or(f64::NAN);
        let figures = [of.of_query_median, rank(0), rank(1), of.keys_reached];
        let name = std::iter::once(name);
        name.chain(figures.map(digits)).collect()
    });
    Ok(Page {
        title: "why the choice is soft",
        words: format!(
            "A lookup could return the value of the best of {N_KEYS} keys. That value stays the same when scores change a little, so no gradient \
             reaches the query or any key. Returning it times its score trains that one key. A softmax trains all, most those with high \
             scores, and fewer the lower its temperature T. The columns are lengths of gradients, and how many keys share them."
        ),
        picture: Picture::Table(Table {
            titles: vec![
                "the lookup returns",
                "at the query",
                "best key",
                "second",
                "keys that learn",
            ],
            rows: rows.collect(),
        }),
    })
}

/// Heads with their names.
fn named(ran: &Ran) -> impl Iterator<Item = (String, &HeadReport)> {
    ran.layers.iter().flat_map(|layer| {
        let heads = layer.heads.iter().enumerate();
        heads.map(|(head_idx, head)| (format!("L{}H{head_idx}", layer.layer_idx), head))
    })
}

fn heads(ran: &Ran) -> Page {
    const SHOWN: [Stat; 6] = [
        Stat::QNorm,
        Stat::KNorm,
        Stat::ScoreVarPredicted,
        Stat::ScoreVarObserved,
        Stat::ScoreVarRatio,
        Stat::MaxAbsScore,
    ];
    let rows: Vec<Vec<String>> = named(ran)
        .map(|(name, head)| {
            let figures = SHOWN.map(|stat| digits(head.stats.of(stat)));
            std::iter::once(name).chain(figures).collect()
        })
        .collect();
    let most = named(ran).max_by(|a, b| {
        let ratio = |head: &HeadReport| head.stats.of(Stat::ScoreVarRatio);
        ratio(a.1).total_cmp(&ratio(b.1))
    });
    let most = most.map_or(String::new(), |(name, head)| {
        let ratio = digits(head.stats.of(Stat::ScoreVarRatio));
        format!(" Most of all in {name}: {ratio} times.")
    });
    Page {
        title: "what trained heads do with the rule",
        words: format!(
            "The heads of a small transformer on one text. If directions were independent, lengths alone would give the variance ‖q‖²‖k‖²/d². \
             Trained heads exceed it, because queries point towards the keys that they look for.{most} A large variance with a ratio near 1 \
             means long vectors, a large ratio aligned ones. Panel 3 has the histogram of any head."
        ),
        picture: Picture::Table(Table {
            titles: vec![
                "head",
                "‖q‖",
                "‖k‖",
                "predicted",
                "observed",
                "ratio",
                "max |score|",
            ],
            rows,
        }),
    }
}

fn with_qk_norm(ran: &Ran, normed: &Ran) -> Page {
    const SHOWN: [Stat; 2] = [Stat::MaxAbsScore, Stat::EntropyRelative];
    let rows = named(ran)
        .zip(named(normed))
        .map(|((name, head), (_, other))| {
            let figures = SHOWN
                .into_iter()
                .flat_map(|stat| [head, other].map(|head| digits(head.stats.of(stat))));
            std::iter::once(name).chain(figures).collect()
        });
    let loss = |ran: &Ran| ran.loss().map_or_else(|| "–".to_owned(), digits);
    Page {
        title: "the same heads with QK-norm",
        words: format!(
            "What if queries and keys had the length √d? No score exceeds √d then, and heads that rely on long vectors become soft. These \
             weights were trained without it: the loss of this text goes from {} to {} nats per token. So QK-norm is a choice for the start \
             of a training; afterwards it is a test. w {QK_NORM} shows every panel with it, v turns back.",
            loss(ran),
            loss(normed)
        ),
        picture: Picture::Table(Table {
            titles: vec![
                "head",
                "max |score|",
                "with QK-norm",
                "entropy / ln n",
                "with QK-norm ",
            ],
            rows: rows.collect(),
        }),
    }
}
