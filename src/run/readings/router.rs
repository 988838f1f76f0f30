//! How a router's outputs weigh the experts it chooses.
//!
//! - **softmax** over all experts, or over those that are chosen; a **sigmoid** of each.
//! - **divided by their sum**, or not.
//! - **one expert more** or **less** for each token.
//!
//! Tried in all layers, and in each layer alone where the budget allows.

use attnscope_spec::{ExpertsSpec, FeedForward, RouterRule, RouterScores};

use super::{Family, IsLocal, Known, Reading};

pub(super) const FAMILY: Family = Family {
    id: "router",
    source: include_str!("router.rs"),
    readings,
};

fn readings(known: &Known<'_>) -> Vec<Reading> {
    let experts = |feed_forward: &FeedForward| match feed_forward {
        FeedForward::Experts(experts) => Some((experts.rule.clone(), experts.experts.len())),
        FeedForward::Dense(_) | FeedForward::None => None,
    };
    let first = known
        .blocks()
        .find_map(|block| experts(&block.feed_forward));
    let Some((declared, n_experts)) = first else {
        return Vec::new();
    };
    let with = |name: &str, change: &dyn Fn(&mut RouterRule)| {
        let spec = known.with_blocks(|block| {
            if let FeedForward::Experts(experts) = &mut block.feed_forward {
                let ExpertsSpec { rule, .. } = &mut **experts;
                change(rule);
            }
        })?;
        let reading = Reading::new(FAMILY.id, name, "").with_attention(spec);
        Some(reading.local(IsLocal::InLayers))
    };
    let scores = [
        ("a router's softmax over all experts", RouterScores::Softmax),
        (
            "a router's softmax over the chosen experts",
            RouterScores::SoftmaxOfChosen,
        ),
        ("a router's sigmoid", RouterScores::Sigmoid),
    ];
    let others = scores
        .into_iter()
        .filter(|(_, scores)| *scores != declared.scores)
        .filter_map(|(name, scores)| with(name, &|rule| rule.scores = scores));
    let mut all: Vec<Reading> = others.collect();
    let name = if declared.normalises {
        "weights of experts that are not divided by their sum"
    } else {
        "weights of experts divided by their sum"
    };
    all.extend(with(name, &|rule| rule.normalises = !rule.normalises));
    for (name, n_used) in [
        ("one expert more for each token", declared.n_used + 1),
        (
            "one expert less for each token",
            declared.n_used.saturating_sub(1),
        ),
    ] {
        if (1..=n_experts).contains(&n_used) {
            all.extend(with(name, &|rule| rule.n_used = n_used));
        }
    }
    all
}
