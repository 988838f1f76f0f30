//! How a router's outputs weigh the experts it chooses.
//!
//! - **softmax** over all experts, or over those that are chosen; a **sigmoid** of each.
//! - **divided by their sum**, or not.
//! - **one expert more** or **less** for each token.
//! - **experts in another order** than the router's: sorted by name (0, 1, 10, 11, 2 …), reversed, or as ranks hold them that take
//!   experts in turn.

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
    all.extend(orders(known, n_experts));
    all
}

/// Readings in which the router's outputs belong to experts in another order.
fn orders(known: &Known<'_>, n_experts: usize) -> Vec<Reading> {
    let mut orders: Vec<(String, Vec<usize>)> = Vec::new();
    let mut by_name: Vec<usize> = (0..n_experts).collect();
    by_name.sort_by_key(usize::to_string);
    let inverse = |order: &[usize]| {
        let mut places = vec![0; order.len()];
        order
            .iter()
            .enumerate()
            .for_each(|(place, idx)| places[*idx] = place);
        places
    };
    let placed = inverse(&by_name);
    orders.push((
        "experts sorted by name (0, 1, 10, 11, 2 …)".to_owned(),
        placed,
    ));
    orders.push((
        "experts in reverse order".to_owned(),
        (0..n_experts).rev().collect(),
    ));
    for n_ranks in [2, 4, 8] {
        if n_ranks >= n_experts || !n_experts.is_multiple_of(n_ranks) {
            continue;
        }
        // The experts of rank 0, then those of rank 1, …, when expert i went to rank i mod n_ranks.
        let dealt: Vec<usize> = (0..n_ranks)
            .flat_map(|rank| (rank..n_experts).step_by(n_ranks))
            .collect();
        orders.push((
            format!("experts stored by {n_ranks} ranks that took them in turn"),
            inverse(&dealt),
        ));
        orders.push((format!("experts of {n_ranks} ranks stored in turn"), dealt));
    }
    let mut tried: Vec<Vec<usize>> = vec![(0..n_experts).collect()];
    let mut all = Vec::new();
    for (name, order) in orders {
        if tried.contains(&order) {
            continue;
        }
        let spec = known.with_blocks(|block| {
            if let FeedForward::Experts(experts) = &mut block.feed_forward
                && experts.experts.len() == order.len()
            {
                let stored = experts.experts.clone();
                experts.experts = order.iter().map(|idx| stored[*idx].clone()).collect();
            }
        });
        let reading = spec.map(|spec| Reading::new(FAMILY.id, name, "").with_weights(spec));
        all.extend(reading.map(|reading| reading.local(IsLocal::InLayers)));
        tried.push(order);
    }
    all
}
