//! Routing: which experts a token uses and with what weights, from the router's outputs and its rule.

use attnscope_spec::{ExpertGroups, RouterRule, RouterScores};

/// What chooses experts besides the scores.
#[derive(Debug, Clone, Copy)]
pub enum Choice<'a> {
    Scores,
    /// Added to the scores of experts.
    Biased(&'a [f32]),
    /// These experts are chosen, whatever their scores.
    These(&'a [usize]),
}

/// Returns one token's chosen experts with their weights, highest score first unless they were given.
pub fn route(rule: &RouterRule, outputs: &[f32], choice: Choice<'_>) -> Vec<(usize, f32)> {
    if let RouterScores::Mixer(jitter) = rule.scores {
        return mixed(outputs, rule.n_used, jitter);
    }
    let scores: Vec<f32> = match rule.scores {
        RouterScores::Softmax => softmax(outputs),
        RouterScores::SoftmaxOfChosen | RouterScores::SigmoidOfChosen | RouterScores::Mixer(_) => {
            outputs.to_vec()
        }
        RouterScores::Sigmoid => outputs.iter().copied().map(sigmoid).collect(),
        RouterScores::RootSoftplus => outputs.iter().copied().map(root_softplus).collect(),
    };
    let mut for_choice = scores.clone();
    if let Choice::Biased(bias) = choice {
        for_choice.iter_mut().zip(bias).for_each(|(s, b)| *s += b);
    }
    if let Some(groups) = rule.groups {
        keep_groups(&mut for_choice, groups);
    }
    let first_always = for_choice.len().saturating_sub(rule.n_always);
    let mut chosen = match choice {
        Choice::These(experts) => experts.to_vec(),
        Choice::Scores | Choice::Biased(_) => top(&for_choice[..first_always], rule.n_used),
    };
    chosen.extend(first_always..for_choice.len());
    let mut weights: Vec<f32> = chosen
        .iter()
        .map(|expert_idx| scores[*expert_idx])
        .collect();
    match rule.scores {
        RouterScores::SoftmaxOfChosen => weights = softmax(&weights),
        RouterScores::SigmoidOfChosen => weights.iter_mut().for_each(|w| *w = sigmoid(*w)),
        RouterScores::Softmax
        | RouterScores::Sigmoid
        | RouterScores::RootSoftplus
        | RouterScores::Mixer(_) => {}
    }
    if rule.normalises {
        let mut sum = norm(&weights, rule.power);
        // A comparison, not `max`, so that a NaN sum stays NaN.
        if sum < rule.least_sum {
            sum = rule.least_sum;
        }
        // Such models were trained with this tiny addend.
        let sum = sum + 1e-20;
        weights.iter_mut().for_each(|w| *w /= sum);
    }
    let weights = weights.into_iter().map(|w| w * rule.scale);
    chosen.into_iter().zip(weights).collect()
}

fn sigmoid(value: f32) -> f32 {
    1.0 / (1.0 + (-value).exp())
}

fn root_softplus(value: f32) -> f32 {
    (value.max(0.0) + (-value.abs()).exp().ln_1p()).sqrt()
}

/// Returns the p-norm of non-negative weights.
fn norm(weights: &[f32], power: f32) -> f32 {
    if power == 1.0 {
        return weights.iter().sum();
    }
    let sum: f32 = weights.iter().map(|weight| weight.powf(power)).sum();
    sum.powf(1.0 / power)
}

fn softmax(values: &[f32]) -> Vec<f32> {
    let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exp: Vec<f32> = values.iter().map(|v| (v - max).exp()).collect();
    let sum: f32 = exp.iter().sum();
    exp.into_iter().map(|v| v / sum).collect()
}

/// Returns the indices of the `n` largest values, largest first; among equals the first.
fn top(values: &[f32], n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
    order.truncate(n);
    order
}

/// Masks the scores of all groups except the best; a group is rated by the sum of its best scores.
fn keep_groups(scores: &mut [f32], groups: ExpertGroups) {
    let width = scores.len() / groups.n;
    let of_group =
        |group: &[f32]| -> f32 { top(group, groups.n_best).iter().map(|i| group[*i]).sum() };
    let sums: Vec<f32> = scores.chunks(width).map(of_group).collect();
    let kept = top(&sums, groups.n_kept);
    for (group_idx, group) in scores.chunks_mut(width).enumerate() {
        if !kept.contains(&group_idx) {
            group.fill(f32::NEG_INFINITY);
        }
    }
}

/// Chooses experts one after the other: each is the best one left, weighted by a softmax over the experts close to it.
fn mixed(outputs: &[f32], n_used: usize, jitter: f32) -> Vec<(usize, f32)> {
    let mut left = outputs.to_vec();
    let mut chosen = Vec::with_capacity(n_used);
    for _ in 0..n_used {
        let Some(best) = top(&left, 1).first().copied() else {
            break;
        };
        let max = left[best];
        let is_close = |score: f32| (max - score) / score.abs().max(max) <= 2.0 * jitter;
        let close = left.iter().zip(outputs).map(|(left, score)| {
            if is_close(*score) {
                *left
            } else {
                f32::NEG_INFINITY
            }
        });
        let weights = softmax(&close.collect::<Vec<f32>>());
        chosen.push((best, weights[best]));
        left[best] = f32::NEG_INFINITY;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(scores: RouterScores) -> RouterRule {
        RouterRule::plain(2, scores)
    }

    #[test]
    fn a_softmax_over_the_chosen_sums_to_one_and_one_over_all_does_not() {
        let outputs = [0.0, 2.0, 1.0, -1.0];
        let sum = |routed: &[(usize, f32)]| routed.iter().map(|(_, w)| w).sum::<f32>();
        let chosen = route(
            &rule(RouterScores::SoftmaxOfChosen),
            &outputs,
            Choice::Scores,
        );
        assert_eq!((chosen[0].0, chosen[1].0), (1, 2));
        assert!((sum(&chosen) - 1.0).abs() < 1e-6);
        let all = route(&rule(RouterScores::Softmax), &outputs, Choice::Scores);
        assert!(sum(&all) < 0.9);
        let normalised = RouterRule {
            normalises: true,
            ..rule(RouterScores::Softmax)
        };
        assert!((sum(&route(&normalised, &outputs, Choice::Scores)) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn weights_may_be_divided_by_another_norm_than_their_sum() {
        let squares = RouterRule {
            normalises: true,
            power: 2.0,
            least_sum: 0.0,
            ..rule(RouterScores::Softmax)
        };
        let routed = route(&squares, &[0.0, 2.0, 1.0, -1.0], Choice::Scores);
        let sum: f32 = routed.iter().map(|(_, weight)| weight * weight).sum();
        assert!((sum - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_choice_bias_changes_the_choice_but_not_the_weights() {
        let outputs = [0.0, 2.0, 1.0, -1.0];
        let bias = [0.0, 0.0, 0.0, 5.0];
        let routed = route(
            &rule(RouterScores::Sigmoid),
            &outputs,
            Choice::Biased(&bias),
        );
        assert_eq!((routed[0].0, routed[1].0), (3, 1));
        assert!((routed[0].1 - 1.0 / (1.0 + 1f32.exp())).abs() < 1e-6);
    }

    #[test]
    fn experts_that_a_token_names_are_weighed_by_their_own_scores() {
        let normalised = RouterRule {
            normalises: true,
            ..rule(RouterScores::RootSoftplus)
        };
        let outputs = [0.0, 5.0, -1.0, 2.0];
        let routed = route(&normalised, &outputs, Choice::These(&[2, 0]));
        let score = |value: f64| (1.0 + value.exp()).ln().sqrt();
        let expected = score(-1.0) / (score(-1.0) + score(0.0));
        assert_eq!((routed[0].0, routed[1].0), (2, 0));
        assert!(
            (f64::from(routed[0].1) - expected).abs() < 1e-6,
            "{routed:?}"
        );
    }

    #[test]
    fn only_experts_of_the_best_groups_are_chosen() {
        let grouped = RouterRule {
            groups: Some(ExpertGroups {
                n: 2,
                n_kept: 1,
                n_best: 2,
            }),
            ..rule(RouterScores::Sigmoid)
        };
        // The best single expert is in the group whose two best have the lower sum.
        let routed = route(&grouped, &[3.0, -9.0, 1.0, 1.5], Choice::Scores);
        assert_eq!((routed[0].0, routed[1].0), (3, 2));
    }

    #[test]
    fn experts_that_are_always_used_share_in_the_weights() {
        let always = RouterRule {
            n_used: 1,
            n_always: 1,
            normalises: true,
            ..rule(RouterScores::Sigmoid)
        };
        let routed = route(&always, &[1.0, 2.0, 0.0], Choice::Biased(&[9.0, 0.0]));
        assert_eq!((routed[0].0, routed[1].0), (0, 2));
        let first = 1.0 / (1.0 + (-1f32).exp());
        assert!(
            (routed[1].1 - 0.5 / (0.5 + first)).abs() < 1e-6,
            "{routed:?}"
        );
    }

    #[test]
    fn a_mixed_choice_is_weighted_against_experts_with_close_scores() {
        let mixer = rule(RouterScores::Mixer(0.1));
        // Only the third is within a fifth of the first.
        let routed = route(&mixer, &[1.0, 2.0, 1.7, -3.0], Choice::Scores);
        assert_eq!((routed[0].0, routed[1].0), (1, 2));
        let expected = 1.0 / (1.0 + (-0.3f32).exp());
        assert!((routed[0].1 - expected).abs() < 1e-6);
        assert!((routed[1].1 - 1.0).abs() < 1e-6);
    }
}
