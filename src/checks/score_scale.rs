//! Scores are not divided by √d_head.
//!
//! ## What it does
//! Finds the factor between the recorded products of queries with keys and the recorded scores, layer by layer, and says it when it
//! is not 1/√d_head. Usual mistakes are named: no scale, d_head without its root, the width of the model or the number of heads in
//! place of d_head, a product in place of a division.
//!
//! ## Why it matters
//! With 1/√d_head scores keep their spread whatever the width of a head is (Vaswani et al. 2017). A larger factor saturates the
//! softmax, a smaller one makes it flat. Seen in the wild: `C ** -0.5` in copies of a lecture's code, where C is the width of the
//! model and not that of the head.
//!
//! ## How it is measured
//! Least squares over the visible cells of up to 64 queries of every head, each less the mean of its row, since a softmax does not
//! see what is added to a row. The factor must leave at most 0.1 % of the scores (ours), or what the trace's dtype rounds, and all
//! heads of a layer must agree to 2 %. Otherwise the scale that the call of scaled_dot_product_attention stated is taken, where the
//! size of a head is known. Where a bias, a cap or a norm comes between and no scale is stated, the check does not apply.
//!
//! ## False alarms
//! It is information: families have other scales by design (T5 and Luong's attention none, Gemma `query_pre_attn_scalar`, µP
//! 1/d_head), and trained weights make up for theirs. Code that scales queries before the product has a factor of 1: that is silent when the lengths of
//! queries and keys show it. Queries and keys of one length each (normalised ones) make a free scale usual, and nothing is said.
//!
//! ## Example
//! `wei = q @ k.transpose(-2, -1) * C**-0.5` with C = 32 and heads of 8: 0.177 in place of 0.354.

use std::fmt;

use attnscope_compute::attention::ScoreScale;
use attnscope_spec::Place;

use super::evidence::{Evidence, Subject};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};
use crate::stats::LayerReport;

pub static CHECK: Check = Check {
    id: "score-scale",
    severity: Severity::Info,
    needs: Needs::Scores,
    source: include_str!("score_scale.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    if evidence.subject == Subject::Checkpoint {
        return Verdict::not_applicable(
            "the scale is the declared one, which attnscope applies itself",
        );
    }
    let near = thresholds.score_scale.difference;
    let layers = evidence.layers.iter().filter_map(|layer| {
        let scale = layer.audit()?.score_scale?;
        Some((&**layer, scale))
    });
    let layers: Vec<(&LayerReport, ScoreScale)> = layers.collect();
    if layers.is_empty() {
        return Verdict::not_applicable(
            "no layer's scores are one factor times the products of recorded queries and keys",
        );
    }
    let (mut distinct, mut n_free): (Vec<(ScoreScale, Vec<&LayerReport>)>, usize) = (Vec::new(), 0);
    for (layer, scale) in &layers {
        if scale.is(scale.usual(), near) {
            continue;
        }
        if scale.is_theirs(near) {
            n_free += 1;
            continue;
        }
        let alike = |(other, _): &&mut (ScoreScale, _)| {
            scale.is(other.factor, near) && scale.d_head == other.d_head
        };
        match distinct.iter_mut().find(alike) {
            Some((_, others)) => others.push(layer),
            None => distinct.push((*scale, vec![layer])),
        }
    }
    if distinct.is_empty() && n_free > 0 {
        return Verdict::passed(
            "queries and keys are normalised, or scaled before their product: the scale is theirs",
        );
    }
    let findings = distinct
        .iter()
        .map(|(scale, of)| finding(scale, of, layers.len(), near));
    Verdict::of(findings.collect(), "scores are q·k/√d_head")
}

/// The mistakes that a factor may come from.
#[derive(Debug, Clone, Copy)]
enum Named {
    None,
    DHead,
    DModel,
    NHeads,
    Multiplied,
    RootTwice,
    Other,
}

impl Named {
    fn of(scale: &ScoreScale, near: f64) -> Self {
        let (d_head, d_model) = (scale.d_head as f64, scale.d_model as f64);
        let known = [
            (Self::None, 1.0),
            (Self::DHead, 1.0 / d_head),
            (Self::DModel, 1.0 / d_model.sqrt()),
            (Self::NHeads, 1.0 / (scale.n_heads as f64).sqrt()),
            (Self::Multiplied, d_head.sqrt()),
            (Self::RootTwice, d_head.powf(-0.25)),
        ];
        let found = known
            .into_iter()
            .find(|(_, expected)| scale.is(*expected, near));
        found.map_or(Self::Other, |(named, _)| named)
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no scale follows the product",
            Self::DHead => "that is 1/d_head, without the root",
            Self::DModel => "that is 1/√d_model, the width of the model in place of the head's",
            Self::NHeads => "that is 1/√n_heads, the number of heads in place of their width",
            Self::Multiplied => "that is √d_head: multiplied instead of divided",
            Self::RootTwice => "that is 1/√√d_head: the root was taken twice",
            Self::Other => "",
        })
    }
}

fn finding(scale: &ScoreScale, layers: &[&LayerReport], n_layers: usize, near: f64) -> Finding {
    let usual = scale.usual();
    let named = Named::of(scale, near).to_string();
    let named = if named.is_empty() {
        named
    } else {
        format!(": {named}")
    };
    let names: Vec<String> = layers
        .iter()
        .map(|layer| {
            layer
                .name
                .clone()
                .unwrap_or_else(|| layer.place().to_string())
        })
        .collect();
    let who = match names.as_slice() {
        [one] => one.clone(),
        all if all.len() == n_layers => format!("all {n_layers} layers"),
        all => all.join(", "),
    };
    Finding {
        check: CHECK.id,
        severity: Severity::Info,
        place: match layers {
            [layer] => layer.place(),
            _ => Place::MODEL,
        },
        value: scale.factor,
        threshold: usual,
        unit: "",
        evidence: format!(
            "{who}: scores are {:.4} times q·k, 1/√d_head is {usual:.4} (d_head {}){named}",
            scale.factor, scale.d_head
        ),
        advice: "nothing if the family scales otherwise, or scales queries before the product; a live model shows what 1/√d_head \
                 does: w scale=inv_sqrt_d, or --what-if scale=inv_sqrt_d"
            .to_owned(),
    }
}
